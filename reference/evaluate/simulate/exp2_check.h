// What an exponential unit does over all arguments of a format, against the exact powers and
// against its promise.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "reference/evaluate/simulate/units.h"
#include "reference/format/format.h"
#include "reference/model/kernel_model.h"

namespace headroom {

/// An argument with the unit's answer.
struct Answer {
  float x = 0, y = 0;
};

/// How often something happened, and the lowest argument at which it did.
struct Occurrences {
  std::uint64_t count = 0;
  Answer first;
};

/// Errors are upper bounds, by less than 2^-26 of an ulp. An answer counts among errors where it
/// and the exact power lie in the format's normal range.
struct Exp2Report {
  std::uint64_t arguments = 0;  ///< finite ones, both zeros counted
  double error_ulps = 0;        ///< of the exact power or of the answer, whichever is larger
  double relative_error = 0;    ///< of the exact power
  Answer at_ulps, at_relative;

  Answer zero, minus_infinity, plus_infinity, nan;
  std::optional<Answer> overflow;      ///< lowest argument whose answer is infinite
  std::optional<Answer> last_zero;     ///< highest argument <= 0 whose answer is a zero
  std::optional<Answer> first_normal;  ///< lowest from which on, up to 0, all answers are normal
  Occurrences decreasing;              ///< the answer is less than that of the argument before
  Occurrences inexact;       ///< an integer x, 2^x a number of the format (not flushed): not 2^x
  Occurrences beyond_power;  ///< E(x) > 2^k for an integer k >= x, or < 2^k for k <= x, k in range
  Occurrences negative;      ///< the sign bit is set
  Occurrences not_finite;    ///< infinite or NaN though the exact power rounds to a finite number

  /// Answers that the promise does not allow; among them NaN that is swallowed (if promised not).
  Occurrences broken;
  bool nan_kept = true;
  /// The arguments around 0 from `first_kept` to `last_kept` all have answers that the promise
  /// allows. Nothing if 0 itself has not.
  std::optional<float> first_kept, last_kept;
  bool kept() const { return broken.count == 0 && nan_kept; }
};

/// Runs `unit` over every number of `argument` (BF16, FP16 or FP32), in parallel. Its promise is
/// its error, flush, monotonicity at integers and propagation of NaN (bounds/exp2_unit.h), held
/// against each answer exactly. `progress` is told how many arguments were done, from any thread.
Exp2Report check_exp2(const Exp2Unit& unit, ExponentBase base, UnitChoice choice,
                      std::uint64_t seed, const Format& argument,
                      const std::function<void(std::uint64_t)>& progress = {});

}  // namespace headroom
