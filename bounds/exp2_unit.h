// What a modelled exp2 unit can return.
#pragma once

#include "reference/model/kernel_model.h"
#include "reference/real/bound.h"

namespace headroom {

/// Relative error of normal results: |E(x) - 2^x| <= value 2^x. 0.5 ulp is correct rounding:
/// 2^-p. Otherwise k = max_error_ulps against the exact 2^x, in ulps of 2^x or of the result,
/// whichever is meant: k / (2^(p-1) - k), which is k 2^(1-p) to second order. (An error stated
/// against the *rounded* 2^x, as CUDA's tables do, has to be entered half an ulp larger.) Infinite
/// where k ulps may be all of the result.
Upper<Relative> exp2_relative_error(const Exp2Unit& unit);

/// Absolute error where the result is below the smallest normal: flush-to-zero 2^emin (1 + eps),
/// gradual max_error_ulps ulps of the least subnormal. For every argument the relative *or* the
/// absolute bound holds.
Upper<Absolute> exp2_floor_error(const Exp2Unit& unit);

/// log2 of the largest E(x) for x <= argument: argument itself if it is an integer and the unit is
/// monotone at integers (or correctly rounded), else the smaller of argument + log2(1 + eps) and,
/// for such units, the next integer; never below what rounding to the format can give. Infinite
/// where the result may be.
Upper<Log2> exp2_upper(const UpwardRounding& up, const Exp2Unit& unit, Upper<Log2> argument);

/// U_exp: log2 of the largest finite value of the result format (a lower bound of it).
Lower<Log2> exp2_limit(const UpwardRounding& up, const Exp2Unit& unit);

/// L_E: an argument x >= L_E certainly gives E(x) > 0. Smallest normal exponent with FTZ, smallest
/// subnormal otherwise, for units that are monotone at integers (or correctly rounded); for others
/// higher by what the unit's error can take away, so the error must not be deducted again.
int exp2_flush_exponent(const Exp2Unit& unit);
/// L_P: a weight of at least 2^L_P is certainly not flushed by the conversion to P.
int weight_flush_exponent(const WeightStage& p);

/// Largest integer exponent C such that P = 2^C is finite (or not saturated) when stored.
int weight_limit_exponent(const WeightStage& p);

}  // namespace headroom
