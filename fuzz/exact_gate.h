// A public gate's value beside what it stands for, in exact arithmetic.
#pragma once

#include <optional>
#include <string>

#include "reference/evaluate/simulate/simulate.h"
#include "reference/head/head.h"
#include "reference/model/kernel_model.h"

namespace headroom::fuzz {

/// Log2 units.
struct ExactGate {
  double value = 0;  ///< as the kernel computes it
  double limit = 0;
  /// |factor| max_i ||q~_i|| max_j ||k~_j - a|| over the operands as this execution multiplies
  /// them, a the stored mean of virtual centring or 0: what the value rounds, or bounds.
  double exact_lo = 0, exact_hi = 0;
};
/// Of fixed-m, fixed-m-n and clis-alg1; nothing for other stabilizers, and where an operand is not
/// finite or the scale that is left at the score has no exact form. Sums of squares are exact, the
/// rest is enclosed at 700 bits.
std::optional<ExactGate> exact_gate(const Head& head, const KernelModel& kernel,
                                    const std::string& stabilizer, const LoopParameters& parameters,
                                    const SimulationOptions& how);

}  // namespace headroom::fuzz
