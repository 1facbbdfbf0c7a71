// Executions against exact attention: over which operands, and which rows failed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "reference/evaluate/ladder/problem.h"
#include "reference/evaluate/simulate/simulate.h"

namespace headroom {

/// The operands as an execution with these options multiplies them (constants folded, keys
/// centred), with the scale that is left at the score. Numbers are in the narrowest of BF16, FP16
/// and FP32 that holds all of an operand; keys that nothing reads are 0. Nothing where the scale
/// that is left has no exact form. Throws InputError where problem and kernel do not fit.
std::optional<AttentionProblem> multiplied_problem(const AttentionProblem& stored,
                                                   const KernelModel& kernel,
                                                   const SimulationOptions& options = {});

/// How far x lies outside of [lo, hi].
double outside(double x, double lo, double hi);

/// What became of a row whose exact elements lie in [lo, hi].
struct RowFailure {
  bool not_finite =
      false;          ///< an element is NaN or infinite where the exact one rounds to a number
  bool zero = false;  ///< all are 0, and the correctly rounded ones are not
  bool any() const { return not_finite || zero; }
};
/// `output`: the row as delivered, numbers of `format`.
RowFailure row_failure(std::span<const float> output, std::span<const double> lo,
                       std::span<const double> hi, const Format& format);

}  // namespace headroom
