// Bounds of one row's scores, log2 units.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "reference/model/kernel_model.h"
#include "reference/model/operands.h"
#include "reference/real/bound.h"

namespace headroom {

/// Cauchy-Schwarz. For every visible key: factor <q, k_j> <= factor <q, a> + |factor| ||q|| radius,
/// with the *same* centre a in both. `center_score` encloses factor <q, a>
/// (0 for the origin); `radius` bounds max_j ||k_j - a||.
Upper<Log2> cauchy_schwarz(const UpwardRounding& up, const Interval& factor, Upper<Absolute> q_norm,
                           Upper<Absolute> radius, const Interval& center_score);

/// Exact row maximum of factor <q~_i, k~_j> over keys [begin, end), enclosed, with a key whose
/// score's enclosure holds the maximum's upper end. Reads every key. Requires: begin < end.
struct RowMaximum {
  Interval value;
  std::int64_t key = 0;
};
RowMaximum row_maximum(const UpwardRounding& up, const Operands& operands, std::int64_t row,
                       std::int64_t begin, std::int64_t end);

/// What the kernel's own arithmetic adds to a score: |z^ - z~| <= value, where
/// z~ = factor <q~, k~> exactly and z^ is the score as stored, in log2 units, for every key with
/// ||k~|| <= key_norm. The stages of the kernel are followed one by one, each adding its error to
/// what it inherits (DESIGN.md, "Error bounds", T2, with the operands' pre-rounding left out); to
/// first order the sum of
///   |factor| gamma ||q~|| ||k~||          gamma: accumulation_error() over d products, rounded
///                                         products only where they are not exact in the format
///   |stored - factor| ||q~|| ||k~||       the stored constant
///   u_mul Z                               its multiplication, in the accumulator's format before
///                                         the store, in the exponent's after it (none if fused);
///                                         none by a power of two, no multiplication at all by 1
///   u_store Z                             rounding to the store format, if it is narrower
///   underflow                             flushed or subnormal products, sums, operands, stores
/// with Z = |factor| ||q~|| ||k~||. Infinite if an intermediate may overflow (score_range).
Upper<Log2> score_error(const UpwardRounding& up, const KernelModel& kernel,
                        const Operands& operands, Upper<Absolute> q_norm, Upper<Absolute> key_norm);
/// The same, the exact score-site factor and its stored constant given by themselves.
Upper<Log2> score_error(const UpwardRounding& up, const KernelModel& kernel, std::int64_t channels,
                        const Interval& factor, double stored_factor, Upper<Absolute> q_norm,
                        Upper<Absolute> key_norm);

/// A line above score_error for every q_norm up to `most`: each stage of the kernel adds to the
/// error what is affine in its magnitude, and the magnitude is affine in q_norm, so the chord
/// through bounds at 0 and at `most` bounds it in between.
struct ScoreErrorLine {
  double constant, slope;
  /// Upper bound for 0 <= q_norm <= most. Requires: UpwardRounding is active.
  Upper<Log2> at(double q_norm) const {
    return Upper<Log2>(opaque(opaque(slope * q_norm) + constant));
  }
};
/// None if an intermediate may overflow at `most`: score_error is infinite from some norm on.
std::optional<ScoreErrorLine> score_error_line(const UpwardRounding& up, const KernelModel& kernel,
                                               const Operands& operands, Upper<Absolute> most,
                                               Upper<Absolute> key_norm);

/// Largest magnitude that any intermediate of the score can reach (partial sums in any subset and
/// order, the scaled score, the stored score), as a ratio to the largest finite number of the
/// format that holds it. Log2 units: log2(ratio) <= 0 means that no intermediate overflows.
Upper<Log2> score_range(const UpwardRounding& up, const KernelModel& kernel,
                        const Operands& operands, Upper<Absolute> q_norm, Upper<Absolute> key_norm);
/// The same, the exact score-site factor and its stored constant given by themselves.
Upper<Log2> score_range(const UpwardRounding& up, const KernelModel& kernel, std::int64_t channels,
                        const Interval& factor, double stored_factor, Upper<Absolute> q_norm,
                        Upper<Absolute> key_norm);

/// Pre-rounding of operands, for claims against the raw tensors: |z~ - (z - shift)| <= value, where
/// shift is common to the row:  |factor| ( ||q~|| max ||k~ - (k' - a)|| + ||q~ - q'|| max||k' - a||
/// ) q', k' the exactly scaled raw operands.
Upper<Log2> operand_rounding_error(const UpwardRounding& up, const Interval& factor,
                                   Upper<Absolute> q_norm, Upper<Absolute> q_difference,
                                   Upper<Absolute> key_difference,
                                   Upper<Absolute> raw_centred_key_norm);

}  // namespace headroom
