// Exponential and reciprocal units as a simulation runs them: one answer for every argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "reference/model/kernel_model.h"

namespace headroom {

/// The answer of a unit that only promises an error bound.
enum class UnitChoice : std::uint8_t {
  nearest,  ///< the correctly rounded result
  lowest,   ///< the least result that the promise allows
  highest,  ///< the largest
  random,   ///< any that it allows, a function of the argument and the seed
};

/// E(x), approximately 2^x or e^x, as `unit` gives it. Immutable; threads may share one.
///
/// "correctly-rounded": RNE of the exact value into unit.result, gradual or flushed. "ulp:K" and
/// "ex2.approx.ftz": the choice within the promise (bounds/exp2_unit.h), which at integers is the
/// exact power where the unit is monotone there. "fa4-polyD": the published instructions, edges
/// included, choice or not. NaN gives NaN (the polynomials: 0); E(-inf) = 0 or unit.floor,
/// E(+inf) = inf (unit.result has one); overflow as RNE.
class ExponentialUnit {
 public:
  ExponentialUnit(const Exp2Unit& unit, ExponentBase base, UnitChoice choice = UnitChoice::nearest,
                  std::uint64_t seed = 0);
  ~ExponentialUnit();
  ExponentialUnit(ExponentialUnit&&) noexcept;
  ExponentialUnit& operator=(ExponentialUnit&&) noexcept;

  /// Requires: NearestRounding is active. The result is a number of unit.result.
  float operator()(float x) const;
  /// The same for n numbers; x and y may be the same array.
  void apply(const float* x, float* y, std::size_t n) const;

 private:
  struct Implementation;
  std::unique_ptr<const Implementation> implementation_;
};

/// 1 / x in FP32 as [normalise] promises: RNE, or the choice within reciprocal_max_error_ulps
/// (exact at powers of two where promised), subnormal results flushed where it says so; 1 / 0 is
/// an infinity of its sign, 1 / inf a zero, NaN gives NaN. Requires: NearestRounding is active.
float reciprocal(const Normalisation& unit, float x, UnitChoice choice = UnitChoice::nearest,
                 std::uint64_t seed = 0);

}  // namespace headroom
