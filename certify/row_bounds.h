// Upper bounds of rows' largest scores, each with its slack against the largest score itself.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bounds/row_max/box.h"
#include "bounds/row_max/enclosing_ball.h"
#include "bounds/row_max/key_blocks.h"
#include "certify/head_scan.h"

namespace headroom {

/// What a row's largest score is bounded by, from what a gate knows to what one centre can give.
enum class ScoreBound : std::uint8_t {
  norms,           ///< factor <q, a> + |factor| max_i ||q_i|| max_j ||k_j - a||: one norm for all
  cauchy_schwarz,  ///< the same with the row's own norm
  ball,            ///< about the centre of a nearly smallest ball
  box,             ///< ranges of channels
  blocks,          ///< Cauchy-Schwarz within blocks of keys, each about its own mean
};
inline constexpr ScoreBound score_bounds[] = {ScoreBound::norms, ScoreBound::cauchy_schwarz,
                                              ScoreBound::ball, ScoreBound::box,
                                              ScoreBound::blocks};
inline constexpr std::size_t score_bound_count = std::size(score_bounds);
/// "norms", "cauchy-schwarz", "ball", "box", "blocks".
std::string_view to_text(ScoreBound bound);

/// Upper bounds of one row's largest exact score factor <q~, k~> over its visible keys, log2 units;
/// a softcap, biases and a sink come after it.
struct RowBounds {
  Upper<Log2> of[score_bound_count];
  Upper<Log2> operator[](ScoreBound bound) const { return of[static_cast<std::size_t>(bound)]; }
};

/// What the bounds need to know of a head's keys [0, visibility.length), each part made when it is
/// first asked for. For one thread, inside the rounding scope that it was made in.
class KeyGeometry {
 public:
  /// The arguments outlive this. Requires: scan.finite, and a row that sees a key before anything
  /// is asked for.
  KeyGeometry(const UpwardRounding& up, const Head& head, const Operands& operands,
              const HeadScan& scan)
      : up_(up), head_(head), operands_(operands), scan_(scan) {}

  const KeyBox& box();
  const EnclosingBall& ball();
  const KeyBlocks& blocks();
  /// Makes all three.
  void prepare();

  /// The tighter of ball and box for a row's visible keys: 2 d interval operations.
  Upper<Log2> ball_or_box(std::int64_t row);
  /// Block balls: d interval operations for every block of 64 visible keys.
  Upper<Log2> block_balls(std::int64_t row);
  /// All of them. After prepare() for any thread, in a rounding scope of its own.
  RowBounds all(const UpwardRounding& up, std::int64_t row) const;

 private:
  const UpwardRounding& up_;
  const Head& head_;
  const Operands& operands_;
  const HeadScan& scan_;
  std::optional<KeyBox> box_;
  std::optional<EnclosingBall> ball_;
  std::optional<KeyBlocks> blocks_;
};

/// Rows whose largest score is evaluated: all that see a key, or K of those m, the rows
/// floor((k + 1/2) m / K) of them for k = 0 to K - 1.
struct ExactRows {
  std::int64_t sample = 0;  ///< K; 0: all

  std::string text() const;  ///< "all" or "sample:K"
  /// Indices of rows, ascending.
  std::vector<std::int64_t> of(const HeadScan& scan) const;
};
/// "rows=all", "rows=sample:K", K from 1 to 2^30; "rows=" may be left out. Throws InputError, which
/// names `option`.
ExactRows parse_exact_rows(const std::string& option, const std::string& text);

/// How far a bound lies above the rows' largest scores, bits, rounded upward.
struct BoundSlack {
  ScoreBound bound = ScoreBound::norms;
  double median = 0;  ///< of the evaluated rows; of an even number the larger middle one
  double largest = 0;
  std::int64_t row = -1;  ///< where it is largest
};

struct EvaluatedRow {
  std::int64_t row = -1, key = -1;  ///< a key whose score's enclosure holds the upper end
  Interval largest{0.0};  ///< max_j factor <q~, k~_j> over the visible keys, exact, enclosed
  RowBounds bounds;
};

/// What `--bounds` and `--exact-max` report of a head. It decides nothing.
struct BoundsReport {
  std::string rows;                     ///< which: ExactRows::text()
  std::vector<EvaluatedRow> evaluated;  ///< ascending rows; empty if no row sees a key
  std::vector<BoundSlack> slack;        ///< in the order of score_bounds; empty like `evaluated`
  Interval largest{0.0};                ///< over the evaluated rows
  std::int64_t row = -1, key = -1;      ///< where
  double radius = 0;                    ///< about the kernel's centre, upper bound
  double ball_radius = 0;               ///< about the ball's, upper bound
  double least_radius = 0;              ///< no centre has a smaller one: lower bound
  int passes = 0;                       ///< over the keys, to find the ball
  std::int64_t block = 0;               ///< keys a block
  /// kappa of `clis` with the kernel's centre, and what it would be about the ball's centre, whose
  /// score the kernel would add to mu.
  double kappa = 0, ball_kappa = 0;
};

/// Requires: scan.finite. Evaluates the chosen rows' scores, in parallel.
BoundsReport score_bounds_report(const UpwardRounding& up, const Head& head,
                                 const KernelModel& kernel, const Operands& operands,
                                 const HeadScan& scan, KeyGeometry& geometry,
                                 const ExactRows& rows);

}  // namespace headroom
