// The limits that a kernel sets to the rows of a path.
#pragma once

#include "reference/model/kernel_model.h"
#include "reference/real/fp_environment.h"
#include "reference/real/interval.h"

namespace headroom {

/// log2 units.
struct PathLimits {
  double exponent;        ///< largest exponent whose exp2 is finite
  double weight;          ///< log2 of P's largest finite number
  double denominator;     ///< log2 of l's largest finite number
  double numerator;       ///< log2 of O's largest finite number
  double final_l_most;    ///< the reciprocal stays normal
  double hidden;          ///< exponents of hidden keys that E certainly makes zero
  double final_l_least;   ///< l is nonzero, its reciprocal finite, its guard idle
  double flush_exponent;  ///< weights from here on survive exp2, P and l, the unit's error included
  // What lies beyond a limit above need not fail; beyond these it certainly does.
  double exponent_fails;   ///< exp2 certainly overflows above
  double weight_fails;     ///< P is certainly infinite above
  double final_l_too_big;  ///< the reciprocal is certainly flushed, or l infinite, above
  double
      final_l_too_small;  ///< l is certainly 0, its reciprocal infinite or its guard active, below
};

PathLimits limits_of(const UpwardRounding& up, const KernelModel& kernel);

/// log2 (1 - error); [-inf, 0] where an error may be all of the value.
Interval log2_kept(const Interval& error);

}  // namespace headroom
