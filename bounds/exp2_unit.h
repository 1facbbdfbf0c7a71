// What a modelled exp2 unit can return.
#pragma once

#include "reference/model/kernel_model.h"
#include "reference/real/bound.h"

namespace headroom {

/// Relative error of normal results: |E(x) - 2^x| <= value 2^x. max_error_ulps ulps of the result
/// format, at worst 2^(1-p) each relative to the smallest significand; 0.5 ulp gives 2^-p.
Upper<Relative> exp2_relative_error(const Exp2Unit& unit);

/// Absolute error where the result is below the smallest normal: flush-to-zero 2^emin (1 + eps),
/// gradual max_error_ulps ulps of the least subnormal.
Upper<Absolute> exp2_floor_error(const Exp2Unit& unit);

/// log2 of the largest E(x) for x <= argument: argument itself if it is an integer and the unit is
/// monotone at integers (or correctly rounded), else argument + log2(1 + eps); never below what
/// rounding to the format can give.
Upper<Log2> exp2_upper(const UpwardRounding& up, const Exp2Unit& unit, Upper<Log2> argument);

/// U_exp: log2 of the largest finite value of the result format (a lower bound of it).
Lower<Log2> exp2_limit(const UpwardRounding& up, const Exp2Unit& unit);

/// L_E and L_P: exponents at or above which a weight is certainly not flushed by exp2, or by the
/// conversion to P (smallest normal exponent with FTZ, smallest subnormal otherwise).
int exp2_flush_exponent(const Exp2Unit& unit);
int weight_flush_exponent(const WeightStage& p);

/// Largest integer exponent C such that P = 2^C is finite (or not saturated) when stored.
int weight_limit_exponent(const WeightStage& p);

}  // namespace headroom
