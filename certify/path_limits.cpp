#include "certify/path_limits.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bounds/exp2_unit.h"
#include "bounds/stabilizer.h"
#include "bounds/sums.h"
#include "certify/row_execution.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The limits that the reciprocal and the guards set to l.
void limit_final_l(const KernelModel& kernel, PathLimits& limits) {
  const Format& f = kernel.denominator.format;
  const Normalisation& last = kernel.normalise;
  limits.final_l_most = limits.final_l_too_big = limits.denominator;
  limits.final_l_least = limits.final_l_too_small =
      flush_exponent(f, kernel.denominator.flush_to_zero);
  if (last.division == Division::reciprocal) {
    const bool rounded_correctly = last.reciprocal_max_error_ulps <= 0.5;
    // k ulps of 2^e <= 1 / l are at most k 2^(1 - p) of it, half an ulp at most 2^-p
    const Interval error =
        Interval(last.reciprocal_max_error_ulps) * Interval(std::ldexp(1.0, 1 - f.precision));
    if (last.reciprocal_flush_to_zero) {
      // A unit that may err by more than half an ulp can land below 2^emin from just above it.
      const bool exact = rounded_correctly && last.reciprocal_exact_at_powers_of_two;
      limits.final_l_most = exact ? -f.emin
                            : (Interval(-f.emin) + log2_kept(error)).lo() > -f.emin - 1
                                ? -f.emin - 1
                                : -infinity;
      limits.final_l_too_big =
          rounded_correctly ? -f.emin : (Interval(-f.emin) + log2(Interval(1.0) + error)).hi();
    }
    // 1 / l, grown by the unit's error, stays below the largest number and half an ulp of it.
    const Interval room = Interval(1.0) - Interval(std::ldexp(1.0, -f.precision - 1));
    const Interval least = Interval(-f.emax - 1) +
                           log2((rounded_correctly ? Interval(1.0) : Interval(1.0) + error) / room);
    limits.final_l_least = std::max(limits.final_l_least, least.hi());
    const Interval hopeless =
        Interval(-f.emax - 1) + (rounded_correctly ? Interval(0.0) : log2_kept(error));
    limits.final_l_too_small = std::max(limits.final_l_too_small, hopeless.lo());
  }
  if (last.guard == DenominatorGuard::maximum && last.guard_value > 0) {
    const Interval guard = log2(Interval(last.guard_value));
    limits.final_l_least = std::max(limits.final_l_least, guard.hi());
    limits.final_l_too_small = std::max(limits.final_l_too_small, guard.lo());
  }
}

}  // namespace

Interval log2_kept(const Interval& error) {
  return error.hi() < 1 ? log2(Interval(1.0) - error) : Interval(-infinity, 0.0);
}

PathLimits limits_of(const UpwardRounding& up, const KernelModel& kernel) {
  const Interval eps(exp2_relative_error(kernel.exp2).value());
  const Format& result = kernel.exp2.result;
  PathLimits limits{};
  limits.exponent =
      (Interval(exp2_limit(up, kernel.exp2).value()) - log2(Interval(1.0) + eps)).lo();
  // 2^x less the unit's error still rounds to infinity
  limits.exponent_fails = (Interval(result.emax + 1) - log2_kept(eps)).hi();
  if (kernel.exp2.monotone_at_integers || kernel.exp2.max_error_ulps <= 0.5) {
    limits.exponent_fails = std::min<double>(limits.exponent_fails, result.emax + 1);
  }
  limits.hidden = certainly_zero_below(kernel.exp2);
  limits.weight = log2_max_finite(up, kernel.p.format).value();
  limits.weight_fails = kernel.p.saturate ? infinity : kernel.p.format.emax + 1;
  limits.denominator = log2_max_finite(up, kernel.denominator.format).value();
  limits.numerator = log2_max_finite(up, kernel.numerator.format).value();
  limit_final_l(kernel, limits);
  const int flush =
      std::max({exp2_flush_exponent(kernel.exp2), weight_flush_exponent(kernel.p),
                flush_exponent(kernel.denominator.format, kernel.denominator.flush_to_zero)});
  // Rounded upward to a number of the exponent's format, so that x from there on stays there.
  limits.flush_exponent =
      rounded(up, kernel.exponent.format, Interval((Interval(flush) - log2_kept(eps)).hi()), true)
          .hi();
  return limits;
}

}  // namespace headroom
