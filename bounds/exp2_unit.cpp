#include "bounds/exp2_unit.h"

#include <cmath>
#include <limits>

#include "bounds/sums.h"

namespace headroom {
namespace {

bool correctly_rounded(const Exp2Unit& unit) { return unit.max_error_ulps <= 0.5; }

// E(x) <= 2^k for x <= k and E(x) >= 2^k for x >= k, for every integer k in range: rounding is
// monotone and powers of two are representable; other units have to promise it.
bool monotone_at_integers(const Exp2Unit& unit) {
  return correctly_rounded(unit) || unit.monotone_at_integers;
}

}  // namespace

Upper<Relative> exp2_relative_error(const Exp2Unit& unit) {
  const UpwardRounding up;
  const int p = unit.result.precision;
  if (correctly_rounded(unit)) return Upper<Relative>::of(power_of_two(-p));
  // k ulps of the *result* E: |E - y| <= k 2^(1-p) E, hence <= k / (2^(p-1) - k) y. Ulps of the
  // exact value give k 2^(1-p), which is smaller.
  const Interval ulps(unit.max_error_ulps);
  const Interval rest = power_of_two(p - 1) - ulps;
  if (!(rest.lo() > 0)) return {};
  return Upper<Relative>::of(ulps / rest);
}

Upper<Absolute> exp2_floor_error(const Exp2Unit& unit) {
  const UpwardRounding up;
  if (unit.flush_to_zero) {
    const Interval grown = Interval(1.0) + Interval(exp2_relative_error(unit).value());
    return Upper<Absolute>::of(power_of_two(unit.result.emin) * grown);
  }
  const double ulps = correctly_rounded(unit) ? 0.5 : unit.max_error_ulps;
  return Upper<Absolute>::of(Interval(ulps) * power_of_two(unit.result.least_exponent()));
}

Upper<Log2> exp2_upper(const UpwardRounding& up, const Exp2Unit& unit, Upper<Log2> argument) {
  const Interval grown = Interval(1.0) + Interval(exp2_relative_error(unit).value());
  if (!std::isfinite(grown.hi())) return {};
  // Below the smallest normal the relative error is no promise, but 2^x plus the floor error is at
  // most 2^emin (1 + eps) there, and a result that is not flushed is at least the smallest number.
  const Upper<Log2> normal = max(argument, Upper<Log2>(unit.result.emin));
  Upper<Log2> bound = normal + Upper<Log2>::of(log2(grown));
  if (monotone_at_integers(unit)) {
    // The next integer at or above the argument, at least the smallest one that is "in range".
    const double lowest = flush_exponent(unit.result, unit.flush_to_zero);
    bound = tighter(bound, Upper<Log2>(std::fmax(std::ceil(argument.value()), lowest)));
  }
  // A result beyond the largest finite number is infinite.
  return bound.value() <= exp2_limit(up, unit).value() ? bound : Upper<Log2>();
}

Lower<Log2> exp2_limit(const UpwardRounding& up, const Exp2Unit& unit) {
  return log2_max_finite(up, unit.result);
}

int exp2_flush_exponent(const Exp2Unit& unit) {
  const int flush = flush_exponent(unit.result, unit.flush_to_zero);
  if (monotone_at_integers(unit)) return flush;
  const UpwardRounding up;
  const Upper<Relative> eps = exp2_relative_error(unit);
  // A normal result 2^n (1 - eps) has to reach the threshold (FTZ), or just stay positive.
  const Interval kept = Interval(1.0) - Interval(eps.value());
  if (!(kept.lo() > 0)) return unit.result.emax + 1;
  if (unit.flush_to_zero) return flush + static_cast<int>(std::ceil(-log2(kept).lo()));
  // Below the normal range an error of k least ulps leaves 2^n > k 2^least positive.
  int n = flush;
  while (n < unit.result.emin && std::ldexp(1.0, n - flush) <= unit.max_error_ulps) ++n;
  return n;
}

int weight_flush_exponent(const WeightStage& p) {
  return flush_exponent(p.format, p.flush_to_zero);
}

int weight_limit_exponent(const WeightStage& p) { return p.format.emax; }

}  // namespace headroom
