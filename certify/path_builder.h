// How the claims of a path are made, from each row's inputs to the rows' worst. Sources: one file a
// path (fixed_path, online_path), and what they share (path_rows, path_head, path_merge,
// path_claims).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "bounds/stabilizer.h"
#include "certify/path_claims.h"
#include "certify/path_limits.h"
#include "certify/row_execution.h"
#include "certify/row_scores.h"
#include "certify/worst_rows.h"

namespace headroom {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline const Interval unknown_log2(-infinity, infinity);

/// A quantity's enclosure on one row, for every claim that is made row by row.
struct RowFacts {
  Interval score_range = unknown_log2;
  Interval exponent = unknown_log2;     ///< largest x^, as stored
  Interval weight = unknown_log2;       ///< log2 of the largest stored P
  Interval denominator = unknown_log2;  ///< log2 of the largest partial sum of l
  Interval final_l = unknown_log2;      ///< log2 of the final l
  Interval numerator = unknown_log2;    ///< log2 of the largest partial sum of O
  Interval lost{0.0, 1.0};
  Interval flush{0.0, infinity};
  Interval mask{0.0, infinity};
  Interval hidden = unknown_log2;   ///< exponent of a hidden key, whose score is a finite stand-in
  Interval initial = unknown_log2;  ///< initial maximum less the row's own
  /// log2 of the largest rescale factor, where it is a claim of rows (waves)
  Interval correction{0.0};
  std::int64_t key = -1;
};

/// What a row's facts are computed from; log2 units.
struct RowInputs {
  std::int64_t row = -1;
  std::int64_t visible = 0;        ///< visible keys; of a block of rows the most
  std::int64_t least_visible = 0;  ///< of a block of rows the fewest
  double norm = 0;                 ///< upper bound of ||q~||
  Upper<Log2> exponent;            ///< bound of x^ before its rounding
  Lower<Log2> mean_exponent;       ///< zbar - mu - e
  Lower<Log2> exact_mean;          ///< zbar - mu
  /// Of a row that stays in a tested range: a lower bound of every stored exponent.
  Lower<Log2> least_exponent{-infinity};
  /// Online: lower bound of the exponent that the row's maximum has, in every frame from its
  /// tile's.
  Lower<Log2> top_exponent;
  double residual = 0;    ///< online: how far rounding can move what is subtracted
  double correction = 0;  ///< waves: upper bound of log2 of a rescale factor
  /// Exact scores of hidden keys, where they are finite stand-ins; what is known of them less mu.
  Interval hidden_score{-infinity, -infinity};
  Interval initial{-infinity, -infinity};  ///< initial maximum less the row's own, log2 units
  std::int64_t far = 0;                    ///< far keys (row_scores.h)
  /// Upper bound of a far key's exponent, exact or computed: bias.most - b_j is at least far_bits,
  /// of which rounding in formats of 8 bits takes less than 8.
  Upper<Log2> far_exponent{-infinity};
  /// Upper bound of sum |q~ k~| of any key, where it is known; else ||q~|| max ||k~|| is.
  double terms = infinity;
  double reach = 0;       ///< |exponent|
  double bias_reach = 0;  ///< max |b_j|
  /// Lower bound of max |v| over the keys that the row sees; infinity where all of them are 0, so
  /// that nothing can be lost.
  double value = infinity;
  bool sink_may_flush = false;
  Interval mu{0.0};
  double mean_score_lo = 0;
  double score_error = 0;
};

/// The claims of one path of one head.
class PathBuilder {
 public:
  static constexpr std::size_t block = range_fan * range_fan;

  /// `stabilizer`: of the fixed path; null online.
  PathBuilder(const PathContext& context, const FixedStabilizer* stabilizer)
      : c_(context),
        stabilizer_(stabilizer),
        online_(stabilizer == nullptr),
        limits_(limits_of(context.up, context.kernel)),
        eps_(context.options.eps),
        row_errors_(context.up, context.head, context.kernel, context.operands, context.scan) {}

  PathResult build();

 private:
  /// Over all rows.
  struct Extremes {
    RowInputs worst;
    std::array<std::size_t, 9> rows{};  ///< positions of the rows that are extreme
    double mu = 0, raw_error = 0;       ///< max |mu|, the largest error against raw operands
    double score_reach = 0;             ///< max reach_of
    std::int64_t mu_row = -1;
  };

  // Row level -------------------------------------------------------------------------------
  double row_error(const RowScan& row) const { return row_errors_.of(row).value(); }
  /// The same, from the row's own products where those are known.
  double error_of(std::int64_t row) const;
  bool tighten_scores(std::int64_t row);
  double error_of_far(const RowInputs& in) const;
  void add_sink(RowInputs& in) const;
  static double value_of(const RowScan& row) {
    return row.v_magnitude > 0 ? row.v_magnitude : infinity;
  }
  /// Upper bound of the row's capped and biased scores, `product` one of factor <q~, k~>.
  Upper<Log2> modified(Upper<Log2> product, const RowScan& row) const {
    if (c_.scan.softcap) {
      product = tighter(max(product, Upper<Log2>(0)), Upper<Log2>(c_.scan.softcap->hi()));
    }
    return product + Upper<Log2>(row.bias.most);
  }
  // `largest` bounds factor <q~, k~> of the row's visible keys, besides Cauchy-Schwarz.
  RowInputs fixed_inputs(std::int64_t row, const FixedStabilizer& stabilizer,
                         Upper<Log2> largest = {}) const;
  RowInputs online_inputs(std::int64_t row, Upper<Log2> largest = {}) const;
  RowInputs inputs_of(std::int64_t row, Upper<Log2> largest = {}) const {
    RowInputs in = online_ ? online_inputs(row, largest) : fixed_inputs(row, *stabilizer_, largest);
    in.reach = std::fabs(in.exponent.value());
    return in;
  }
  // The rows of the path by their positions 0 to count_ - 1. Their inputs are made where they are
  // looked at, and only the worst of each block is kept: a row's are some 250 bytes.
  std::int64_t row_at(std::size_t at) const {
    return rows_.empty() ? static_cast<std::int64_t>(at) : rows_[at];
  }
  RowInputs input(std::size_t at) const {
    const auto it = tightened_.empty() ? tightened_.end() : tightened_.find(at);
    return it != tightened_.end() ? it->second : inputs_of(row_at(at));
  }
  void list_rows();
  void try_tighter_bounds(std::vector<std::size_t>& open, std::vector<Claim>& worst);
  void summarise();
  void summarise_each();
  bool inputs_are_plain() const;
  void summarise_plain();
  static void worsen(RowInputs& worst, const RowInputs& in);
  RowInputs worst_of(std::size_t begin, std::size_t end) const;
  RowFacts bound(const RowInputs& in) const;
  double padded_share(const RowInputs& in) const;
  double flushed_share(const RowInputs& in, std::int64_t events, double log2_least_l) const;
  Upper<Log2> largest_sum(const Accumulator& accumulator, std::int64_t n, Upper<Log2> term) const;
  Interval log2_kept_below_normal() const;
  void refine(RowFacts& facts, const RowInputs& in, const RowExecution& run) const;
  void refine_weights(RowFacts& facts, const RowExecution& run) const;
  Upper<Relative> lost_by_flush(const RowInputs& in, double log2_least_l) const;
  Interval rounded_exponent(const Interval& x) const {
    return rounded(c_.up, c_.kernel.exponent.format, x, false);
  }
  bool decided(const RowFacts& facts) const;

  // Claims ----------------------------------------------------------------------------------
  std::vector<Claim> row_claims(const RowFacts& facts, const RowInputs& in) const;
  void head_claims(std::vector<Claim>& claims, const FixedStabilizer* stabilizer) const;
  std::vector<Claim> output_of(std::size_t begin, std::size_t end) const;
  double largest_quotient(const std::vector<Claim>& claims) const;
  void output_claims(std::vector<Claim>& claims) const;
  std::vector<std::size_t> likely_rows() const {
    std::vector<std::size_t> rows(extremes_.rows.begin(), extremes_.rows.end());
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    return rows;
  }
  std::int64_t added(std::int64_t visible) const { return visible + c_.scan.padding_keys; }
  /// Tiles whose rescale factor need not be 1, of a row with n keys. Where the row sees nothing of
  /// a tile that its query block visits, its maximum stays and the factor is E(0).
  std::int64_t rescales(std::int64_t n) const {
    if (!online_) return 0;
    const std::int64_t tile = std::max(1, c_.kernel.tiles.keys);
    const Exp2Unit& unit = c_.kernel.exp2;
    const bool one_at_zero = unit.monotone_at_integers || unit.max_error_ulps <= 0.5;
    const std::int64_t all = added(std::min(c_.head.visibility.length, c_.head.keys()));
    const std::int64_t tiles = (std::max(n, all) + tile - 1) / tile;
    if (!one_at_zero) return tiles;
    // keys that masks leave may lie in as many tiles
    const bool scattered = c_.head.modifiers.hides_keys() || c_.head.modifiers.bias;
    return scattered ? std::min(n, tiles) : (n + tile - 1) / tile;
  }
  /// May a rescale factor exceed 1 by more than the unit's error?
  bool may_fall() const { return c_.lazy != nullptr && c_.lazy->may_fall(); }
  /// Policies fdpp and fa4 hold the maximum of scores as stored, before they are scaled.
  bool raw_maximum() const { return c_.lazy != nullptr || c_.paths != nullptr; }
  /// The maximum of raw scores under a negative scale is the row's minimum.
  bool lowest_of_raw() const {
    return raw_maximum() && factor_after_store() && c_.operands.stored_score_factor() < 0;
  }
  bool factor_after_store() const {
    // a softcap that is applied before the scale multiplies where the scale would
    return !c_.kernel.score.scale_before_store &&
           (c_.head.modifiers.softcap || c_.operands.stored_score_factor() != 1);
  }
  /// Largest |z^| of the row, far keys included.
  Interval reach_of(const RowScan& row, double score_error) const {
    Interval raw = abs(c_.operands.score_factor()) * row.norm * c_.scan.key_norm;
    if (c_.scan.softcap) raw = min(raw, *c_.scan.softcap);
    return raw + Interval(score_error) + Interval(row.bias.largest);
  }
  /// A row that may take another path fails nothing: what it would fail is unknown.
  bool may_take_another(std::int64_t row) const {
    return c_.paths != nullptr && c_.paths->of[static_cast<std::size_t>(row)] == RowPath::either;
  }
  RowExecution execute(const RowInputs& in, RowFacts& facts) const;
  /// Do computed tiles hold hidden keys with a finite score?
  bool finite_mask() const {
    const Visibility& v = c_.head.visibility;
    const bool hides = v.kind != MaskKind::none || c_.head.modifiers.hides_keys() ||
                       (c_.kernel.tiles.padding == Padding::masked && v.length < v.keys);
    return hides && std::isfinite(c_.kernel.mask.value);
  }
  /// Are parts of the keys worked off by themselves and merged by their LSE?
  bool split() const { return c_.kernel.split.parts > 1; }
  double merge_lost(const RowInputs& in) const;
  bool starts_visible() const;
  double log1p_difference() const;
  void merge_claims(std::vector<Claim>& claims) const;
  Interval scaled_constant(double stored) const;
  Interval hidden_score(const RowScan& row) const;
  std::int64_t cost(const RowInputs& in) const;
  /// Scores of execute_row are products and biases, of all keys.
  bool exact_evaluation_covers_rows() const {
    const ScoreModifiers& modifiers = c_.head.modifiers;
    const bool plain_rule = c_.lazy == nullptr && c_.paths == nullptr;
    return (!modifiers.bias || plain_rule) && !modifiers.softcap && !modifiers.sink &&
           !(c_.lazy != nullptr && lowest_of_raw()) && !split();
  }

  const PathContext& c_;
  const FixedStabilizer* stabilizer_;
  bool online_;
  PathLimits limits_;
  double eps_;
  RowScoreErrors row_errors_;
  std::size_t count_ = 0;
  std::vector<std::int64_t> rows_;  ///< empty if the path has every row
  std::map<std::size_t, RowInputs> tightened_;
  std::map<std::int64_t, double> row_terms_;  ///< RowInputs::terms of rows that needed it
  /// Do all claims hold on which the bound of the output rests?
  bool safe_ = true;
  std::vector<RowInputs> blocks_;  ///< the worst of each `block` of rows
  Extremes extremes_;
};

}  // namespace headroom
