// One row of a fixed-stabilizer kernel, evaluated exactly: every score of the multiplied operands
// enclosed, every weight classed as flushed, kept or either.
#pragma once

#include <cstdint>

#include "certify/head_scan.h"
#include "certify/lazy_frames.h"

namespace headroom {

/// Enclosures of what the modelled kernel gives on one row, over every execution that the model
/// allows (any summation order within the declared one, any stored mu in `mu`).
struct RowExecution {
  Interval max_exponent{0.0};  ///< max_j x^_j
  std::int64_t max_key = 0;    ///< a key that attains its upper end
  Interval log2_mass{0.0};     ///< log2 sum_j 2^(z_j - mu), exact weights
  /// log2 of the largest stored score over the overflow threshold of its format: > 0 overflows.
  double score_overflow_lo = 0;
  Interval lost{0.0};              ///< mass.lost: flushed or saturated exact weight / exact l
  Interval log2_denominator{0.0};  ///< log2 of the computed l; lo = -inf if it may be 0
  bool denominator_zero = false;   ///< every weight is certainly flushed
  Interval log2_numerator{0.0};    ///< log2 max_c |O^_c|, the final accumulator
  /// max_c |sum of flushed products|, over l and max |V| of the visible keys; certain part below.
  Interval product_flush{0.0};
};

/// E(x) is certainly 0 for every x below this; -infinity if it may be another number however small
/// 2^x is.
double certainly_zero_below(const Exp2Unit& unit);

/// max_j sum_c |q~_c| |k~_jc| over keys [0, end), which every partial sum of a score keeps to.
Upper<Absolute> largest_terms(const UpwardRounding& up, const Operands& operands, std::int64_t row,
                              std::int64_t end);

/// The row's largest exact score, its bias included. Requires: a visible key; no softcap.
Interval largest_score(const UpwardRounding& up, const Head& head, const Operands& operands,
                       std::int64_t row);

/// Requires: at least one visible key; no softcap or sink. `score_error` bounds |z^ - z~| of
/// the row's keys, log2 units (bounds/score.h). `frames`: what is subtracted while a key's own tile
/// is worked off, where that is not yet the final `mu`: exponents and saturation are of the own
/// frames, `lost` has from what is lost there to what may be lost there or in the final one. Cost:
/// visible * (d + dv) interval operations, 2 exp2 a key.
RowExecution execute_row(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                         const Operands& operands, const HeadScan& scan, std::int64_t row,
                         const Interval& mu, double score_error,
                         const LazyFrames* frames = nullptr);

}  // namespace headroom
