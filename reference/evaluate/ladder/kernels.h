// The inner loops of the first rung, one set per instruction set, chosen at run time.
//
// Lanes are query rows: a panel holds `panel_rows` rows of Q transposed, keys come in tiles of
// `tile_keys`. Everything is plain round-to-nearest; the error bounds that make the results
// enclosures are derived in vector_rung.cpp, which is the only caller apart from bench/.
//
// Layouts (row-major, doubles):
//   q panel  [d][panel_rows]              k tile  [tile_keys][k_stride], k_stride >= d
//   scores   [tile_keys][panel_rows]      v tile  [dv4 / 4][tile_keys][4], dv4 = dv up to 4's
//   sums     [dv4][panel_rows]            padded keys, rows and channels are zero
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "reference/evaluate/vector/kernels.h"
#include "reference/format/format.h"

namespace headroom {

/// Keys in a tile, and value channels in a group of a v tile.
inline constexpr std::int64_t tile_keys = 48;
inline constexpr std::int64_t channel_group = 4;
/// Longest chain of additions inside a tile: of weights into l, and of products into an output.
inline constexpr std::int64_t weight_chain = 16;
inline constexpr std::int64_t value_chain = 24;
/// No panel is taller.
inline constexpr std::int64_t most_panel_rows = 32;

/// Words that kernels read directly.
enum class Words : std::uint8_t { bf16, fp16, fp32 };
/// Those of a format, or nothing.
inline std::optional<Words> words_of(const Format& format) {
  if (format == bf16) return Words::bf16;
  if (format == fp16) return Words::fp16;
  if (format == fp32) return Words::fp32;
  return std::nullopt;
}

/// A row's running state, one element a panel row.
struct PanelState {
  double shift[most_panel_rows];     ///< m: weights are 2^(t - m); an integer
  double greatest[most_panel_rows];  ///< largest head of a visible exponent so far
  double sum[most_panel_rows];       ///< l, this group of tiles
  double squares[most_panel_rows];   ///< sum of squared weights
};

/// How scores become exponents t = head + tail (log2 units).
struct ExponentArgs {
  double c_hi = 0, c_lo = 0;  ///< t = c s; with softcap, of w = 2 |s| scale log2(e) / softcap
  /// Softcap: t = cap tanh, cap = softcap log2(e) as a pair; unused if cap_hi is 0.
  double cap_hi = 0, cap_lo = 0;
  /// Low parts of scores, [tile_keys][panel_rows], or nullptr: s = scores + low.
  const double* low = nullptr;
  /// Bias in natural units, [tile_keys][panel_rows], or nullptr.
  const double* bias = nullptr;
  /// 1 where visible, 0 where not, [tile_keys][panel_rows], or nullptr if all are visible.
  const double* visible = nullptr;
};

struct LadderKernels {
  InstructionSet set;
  std::int64_t panel_rows;

  /// `count` stored words as doubles, exact.
  void (*convert)(Words words, const std::byte* from, std::int64_t count, double* to);
  /// The same for a row of V, into its places in a v tile: to points at [0][key][0].
  void (*convert_values)(Words words, const std::byte* from, std::int64_t count, double* to);
  /// Sum of squares (any order), least nonzero and largest magnitude of x[0, count). A NaN or an
  /// infinity makes the sum of squares not finite.
  void (*measure)(const double* x, std::int64_t count, double* squares, double* least,
                  double* most);
  /// The first two of `count` stored words.
  void (*measure_words)(Words words, const std::byte* from, std::int64_t count, double* squares,
                        double* least);
  /// most[c] = max(most[c], |v[c]|), squares[c] += v[c]^2.
  void (*absorb)(const double* v, std::int64_t count, double* most, double* squares);
  void (*absorb_words)(Words words, const std::byte* from, std::int64_t count, double* most,
                       double* squares);
  /// high = (x + sigma) - sigma, low = x - high: with sigma = 1.5 2^52 g and |x| <= 2^50 g, high is
  /// x rounded to a multiple of g and low is exact.
  void (*split)(const double* x, std::int64_t count, double sigma, double* high, double* low);
  /// scores[j][r] = <q_r, k_j>, one rounding an addition (products are exact or fused), for the
  /// first `keys` keys of the tile; further scores are unspecified.
  void (*scores)(const double* q_panel, const double* k_tile, std::int64_t k_stride,
                 std::int64_t channels, std::int64_t keys, double* scores);
  /// Largest head of each row's visible exponents into `greatest` (which is overwritten;
  /// -infinity without a visible key).
  void (*greatest)(const ExponentArgs& args, const double* scores, std::int64_t keys,
                   double* greatest);
  /// Replaces scores by weights 2^(t - shift), 0 where invisible and from `keys` on; updates the
  /// state's greatest, sum and squares.
  void (*weights)(const ExponentArgs& args, double* scores, std::int64_t keys, PanelState* state);
  /// The same with shift 0, by exp2_short; updates sum and squares. Requires neither low parts nor
  /// softcap nor bias, and |c s| <= exp2_short_limit.
  void (*short_weights)(const ExponentArgs& args, double* scores, std::int64_t keys,
                        PanelState* state);
  /// sums[c][r] += sum_j weights[j][r] v[j][c] over the first `keys` keys, the other weights being
  /// 0; with a total, then total += sums and sums = 0.
  void (*values)(const double* weights, const double* v_tile, std::int64_t channels4,
                 std::int64_t keys, double* sums, double* total);
  /// total += part; part = 0.
  void (*flush)(double* part, double* total, std::int64_t count);
  /// For each channel c and row r: bounds of (sums[c][r] +- E) / (l[r] +- l_error[r]) with
  ///   E = absolute[r] vmax[c] + relative[r] min(l_bound[r] vmax[c], p_norm[r] v_norm[c])
  ///       + extra[c][r] (if not nullptr),
  /// into lo, hi [channels][panel_rows].
  void (*finish)(const double* sums, std::int64_t channels, const double* l, const double* l_error,
                 const double* l_bound, const double* p_norm, const double* relative,
                 const double* absolute, const double* vmax, const double* v_norm,
                 const double* extra, double* lo, double* hi);
};

/// Requires processor_has(set).
const LadderKernels& ladder_kernels(InstructionSet set);
/// The same for `rows` rows in all, few (decoding): with panels of one row and keys in lanes up to
/// most_single_rows where the instruction set has such loops, else with panels of one register.
const LadderKernels& small_ladder_kernels(InstructionSet set, std::int64_t rows);
/// From three rows on a panel of one register costs less (bench/ladder, few_queries).
inline constexpr std::int64_t most_single_rows = 2;

}  // namespace headroom
