// Floating-point sums in any order: how large partial sums get, and how far off.
#pragma once

#include <cstdint>

#include "reference/model/kernel_model.h"
#include "reference/real/bound.h"

namespace headroom {

/// Bound of any partial sum of at most `count` terms, each |x| <= 2^term_exponent, in a format.
struct SumBound {
  Upper<Log2> log2_largest;  ///< log2 of the bound; +inf where no bound is known
  bool exact_order_free = false;  ///< count <= 2^p: holds for any order and any rounding
};

/// Every partial sum of k <= count terms, in any association:
///   count <= 2^p:      <= k u, any mix of rounding directions (acc_bound);
///   count <= 2^(2p):   <= g(k) u, g(k) = max(k, 2k - 2^p), round to nearest (near_step);
/// with u = weight 2^unit_exponent for an integer leaf weight >= 1 (then k counts k * weight units)
/// and unit_exponent >= emin. Beyond 2^(2p), or if the unit is below emin: no bound (+inf),
/// except for truncating accumulators (matrix_unit), which are bounded by k u for every k.
/// Sequential round-to-nearest sums of single terms also never exceed 2^p u.
/// **Source** theory.md, 3 ("Sums, any order"); proved in the Coq theory.
SumBound partial_sums(const UpwardRounding& up, const Accumulator& accumulator,
                      std::int64_t count, std::uint64_t leaf_weight, int unit_exponent);

/// The same for a leaf bound that is no power of two: the best integer weight is chosen
/// (a = ceil(leaf / 2^(e - h)), 0 <= h < p). `log2_leaf` bounds log2 |x|.
SumBound partial_sums(const UpwardRounding& up, const Accumulator& accumulator,
                      std::int64_t count, Upper<Log2> log2_leaf);

/// log2 of the overflow threshold of a format: a result rounded to nearest stays finite iff it is
/// below max_finite + ulp/2; partial sums that are themselves in the format need only <= max_finite.
Lower<Log2> log2_max_finite(const UpwardRounding& up, const Format& format);

/// Relative error of an accumulated sum against sum |x_j|: |computed - exact| <= value sum |x_j|
/// + underflow(). `count` terms; products counted as one more rounding if `rounded_products`.
///   h additions a term passes: sequential count; tile:N N + ceil(count/N); pairwise
///   ceil(log2 count) + 1; lanes:N ceil(count/N) + N; any count:     (1 + u)^h - 1
///   matrix-unit:F:k:     (1 + (k + 1) 2^-F + 2^(1 - p))^steps - 1, steps = ceil(count / k)
/// **Source** error_bounds.md, 2 and 3.
Upper<Relative> accumulation_error(const UpwardRounding& up, const Accumulator& accumulator,
                                   std::int64_t count, std::int64_t rescales = 0);

/// Absolute error of underflow in an accumulation of `count` products: each product and each
/// partial sum together lose at most 2 count eta, eta = 2^emin with FTZ, else half the least
/// subnormal (products only).
Upper<Absolute> accumulation_underflow(const UpwardRounding& up, const Accumulator& accumulator,
                                       std::int64_t count);

/// Ties-to-even sequential sums of equal terms stop growing at 2^p terms (tile sums of T terms at
/// 2^p T): the largest count of terms that an accumulator in its order can still resolve.
double absorption_limit(const Accumulator& accumulator);

}  // namespace headroom
