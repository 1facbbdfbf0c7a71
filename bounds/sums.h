// Floating-point sums in any order: how large partial sums get, and how far off.
#pragma once

#include <cstdint>

#include "reference/model/kernel_model.h"
#include "reference/real/bound.h"

namespace headroom {

/// Bound of any partial sum of at most `count` terms, each |x| <= 2^term_exponent, in a format.
struct SumBound {
  Upper<Log2> log2_largest;       ///< log2 of the bound; +inf where no bound is known
  bool exact_order_free = false;  ///< count <= 2^p: holds for any order and any rounding
};

/// Every partial sum of at most `count` terms |x| <= u = leaf_weight 2^unit_exponent (products
/// rounded or fused, zeros added, rescaled by factors in [0, 1], flushed or not). With k = count
/// leaf_weight units 2^unit_exponent, in any association:
///   k <= 2^p:      <= k units, any mix of rounding directions (acc_bound);
///   k <= 2^(2p):   <= g(k) units, g(k) = max(k, 2k - 2^p), round to nearest (near_step).
/// Beyond 2^(2p) there is no bound (+inf) unless the order gives one:
///   sequential: 2^p u', u' the power of two at or above u (ties to even stall there);
///   tile:T: 2^p times the power of two at or above T u, if T leaf_weight <= 2^p;
///   lanes:T: as sequential in each lane, then any order over T of them;
///   matrix unit: k units for every k, since it truncates toward zero.
/// The least of those that hold. A unit below emin is replaced by the larger one at emin.
/// **Source** DESIGN.md, "Sums, any order"; proved in the Coq theory.
SumBound partial_sums(const UpwardRounding& up, const Accumulator& accumulator, std::int64_t count,
                      std::uint64_t leaf_weight, int unit_exponent);

/// The same for a leaf bound that is no power of two: the best integer weight is chosen
/// (a = ceil(leaf / 2^(e - h)), 2^e the power of two above it, 0 <= h < p). `log2_leaf` bounds
/// log2 |x|.
SumBound partial_sums(const UpwardRounding& up, const Accumulator& accumulator, std::int64_t count,
                      Upper<Log2> log2_leaf);

/// log2 of the largest finite number of a format. Partial sums that are themselves in the format
/// need only stay at or below it. (A real result rounded to nearest stays finite a little further,
/// below max_finite + ulp/2.)
Lower<Log2> log2_max_finite(const UpwardRounding& up, const Format& format);

/// (1 + unit)^n - 1: what n roundings of relative error `unit` each can do to a term.
Upper<Relative> compound_roundings(const UpwardRounding& up, Upper<Relative> unit, std::int64_t n);

/// Absolute error of one result below the normal range: half the least subnormal rounded to
/// nearest, 2^emin if flushed to zero.
Upper<Absolute> underflow_error(const Format& format, bool flush_to_zero);

/// Relative error of an accumulated sum against sum |x_j|: |computed - exact| <= value sum |x_j|
/// + accumulation_underflow(). `count` terms that fill the order's tiles or lanes from the first
/// on; a product that is rounded by itself counts one more (`rounded_products`), and so does each
/// of `rescales` multiplications by a rescale factor (whose own error is not included).
///   h additions a term passes: sequential and any count; tile:N N + ceil(count/N); pairwise
///   ceil(log2 count) + 1; lanes:N ceil(count/N) + N; never more than count:    (1 + u)^h - 1
///   matrix-unit:F:k:     (1 + (k + 1) 2^-F + 2^(1 - p))^steps - 1, steps = ceil(count / k);
///   where F < p - 1 each rescale counts (1 + 2^-F) too: steps that add zeros cut the accumulator
/// **Source** DESIGN.md, "Error bounds"; Higham, Accuracy and Stability, 4.2; proof in sums.cpp.
Upper<Relative> accumulation_error(const UpwardRounding& up, const Accumulator& accumulator,
                                   std::int64_t count, std::int64_t rescales = 0);

/// Absolute error of underflow in an accumulation of `count` products: products and partial sums
/// together lose at most count events of underflow_event(), each carried on by the later
/// roundings: times 1 + accumulation_error().
Upper<Absolute> accumulation_underflow(const UpwardRounding& up, const Accumulator& accumulator,
                                       std::int64_t count);

/// What one such event can lose: 2^emin with FTZ, else half the least subnormal (all of it in a
/// matrix unit, which truncates).
Upper<Absolute> underflow_event(const Accumulator& accumulator);

/// How many equal terms an accumulator in its order can still resolve: sequential ties-to-even sums
/// stop growing at 2^p (256 in bf16, 2048 in fp16), tile sums of T terms at 2^p T, lanes likewise,
/// a matrix unit of k terms a step at 2^(p + floor(log2 k)) or where its aligned terms vanish,
/// 2^(F + 1); a balanced tree never (infinity). `any` includes sequential.
double absorption_limit(const Accumulator& accumulator);

}  // namespace headroom
