#include "reference/evaluate/simulate/allowed_results.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

#include "reference/format/convert.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Exact sums of y and ulps: y's 256 bits, 53 of the number of ulps, a distance of at most 600.
class Exact {
 public:
  Exact() { mpfr_init2(value_, 1200); }
  ~Exact() { mpfr_clear(value_); }
  Exact(const Exact&) = delete;
  Exact& operator=(const Exact&) = delete;

  // y + ulps 2^e
  void set(mpfr_srcptr y, double ulps, int e) {
    mpfr_set_d(value_, ulps, MPFR_RNDN);
    mpfr_mul_2si(value_, value_, e, MPFR_RNDN);
    [[maybe_unused]] const int inexact = mpfr_add(value_, value_, y, MPFR_RNDN);
    assert(inexact == 0);
  }
  bool reaches(int e) const { return mpfr_cmp_si_2exp(value_, 1, e) >= 0; }
  bool positive() const { return mpfr_sgn(value_) > 0; }
  bool zero() const { return mpfr_zero_p(value_) != 0; }
  mpfr_srcptr get() const { return value_; }

 private:
  mpfr_t value_;
};

double rounded(const UlpPromise& promise, mpfr_srcptr value, bool sticky, Rounding rounding) {
  ExactValue exact = exact_value(value);
  exact.sticky = exact.sticky || sticky;
  const ConversionPolicy policy{.rounding = rounding, .flush_to_zero = promise.flush_to_zero};
  return decode(promise.result, encode(promise.result, exact, policy));
}

// The exponent of the unit in the last place of numbers in [2^e, 2^(e + 1)).
int last_place(const UlpPromise& promise, int e) {
  return (promise.flush_to_zero ? e : std::max(e, promise.result.emin)) -
         promise.result.trailing_bits();
}

double least_result(const UlpPromise& promise, const TruncatedReal& y, int exponent) {
  Exact bound;
  bound.set(y.value, -promise.max_error_ulps, last_place(promise, exponent));
  if (bound.zero() && y.sticky && !promise.flush_to_zero) {
    return std::ldexp(1.0, promise.result.least_exponent());
  }
  if (!bound.positive()) return 0;
  return rounded(promise, bound.get(), y.sticky, Rounding::upward);
}

double largest_result(const UlpPromise& promise, const TruncatedReal& y, int exponent) {
  Exact bound;
  if (promise.ulps_of_result) {
    // The highest binade that y + k ulps of it reach.
    const auto reaches_next = [&] {
      bound.set(y.value, promise.max_error_ulps, last_place(promise, exponent + 1));
      return bound.reaches(exponent + 1);
    };
    while (exponent <= promise.result.emax && reaches_next()) ++exponent;
  }
  bound.set(y.value, promise.max_error_ulps, last_place(promise, exponent));
  if (bound.reaches(promise.result.emax + 1)) return infinity;
  // Between the largest finite number and the power of two above it lies nothing of 24 bits.
  return rounded(promise, bound.get(), y.sticky, Rounding::downward);
}

// `value` > 0 rounded up or down to the format: bits in the normal range, else through a code.
double rounded(const UlpPromise& promise, double value, Rounding rounding) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const int exponent = static_cast<int>(bits >> fp64.trailing_bits()) - fp64.bias();
  const Format& f = promise.result;
  if (exponent >= f.emin && exponent < f.emax) {
    const std::uint64_t mask = (std::uint64_t{1} << (fp64.precision - f.precision)) - 1;
    return std::bit_cast<double>((rounding == Rounding::upward ? bits + mask : bits) & ~mask);
  }
  const ConversionPolicy policy{.rounding = rounding, .flush_to_zero = promise.flush_to_zero};
  return decode(f, encode(f, value, policy));
}

// Bounds of a sum: the same where it is exact (powers of two and a moderate number of ulps), else
// neighbours, between which everything is if both are rounded alike.
struct Ends {
  double lo, hi;
};
double neighbour(double x, int step) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) + static_cast<std::uint64_t>(step));
}
Ends sum(double lo, double hi, double term) {
  const double below = lo + term, above = hi + term;
  if (lo == hi && below - lo == term && below - term == lo) return {below, below};
  return {below > 0 ? neighbour(below, -1) : below, above > 0 ? neighbour(above, 1) : above};
}

}  // namespace

AllowedResults allowed_results(const UlpPromise& promise, const TruncatedReal& y, bool nearest) {
  if (nearest || promise.max_error_ulps <= 0.5) {
    const double result = rounded(promise, y.value, y.sticky, Rounding::nearest_even);
    return {result, result};
  }
  const int exponent = static_cast<int>(mpfr_get_exp(y.value)) - 1;
  return {least_result(promise, y, exponent), largest_result(promise, y, exponent)};
}

std::optional<AllowedResults> allowed_results(const UlpPromise& promise, double lo, double hi,
                                              bool nearest) {
  const Format& f = promise.result;
  if (nearest || promise.max_error_ulps <= 0.5) {
    const ConversionPolicy policy{.flush_to_zero = promise.flush_to_zero};
    const double result = round_to(f, lo, policy);
    if (result != round_to(f, hi, policy)) return std::nullopt;
    return AllowedResults{result, result};
  }
  const int exponent = std::ilogb(lo);
  if (std::ilogb(hi) != exponent) return std::nullopt;
  const double k = promise.max_error_ulps;
  // Below every unit y itself does not matter: k is a multiple of 2^-54.
  if (const int unit = f.least_exponent();
      !promise.flush_to_zero && hi < std::ldexp(1.0, unit - 60)) {
    return AllowedResults{0, rounded(promise, std::ldexp(k, unit), Rounding::downward)};
  }
  double least = 0;
  const double step = std::ldexp(k, last_place(promise, exponent));
  if (const Ends bound = sum(lo, hi, -step); bound.lo > 0x1p-900) {
    least = rounded(promise, bound.lo, Rounding::upward);
    if (least != rounded(promise, bound.hi, Rounding::upward)) return std::nullopt;
  } else if (bound.hi > 0) {
    return std::nullopt;
  }
  int top = exponent;
  for (; promise.ulps_of_result && top <= f.emax; ++top) {
    const Ends bound = sum(lo, hi, std::ldexp(k, last_place(promise, top + 1)));
    const double power = std::ldexp(1.0, top + 1);
    if ((bound.lo >= power) != (bound.hi >= power)) return std::nullopt;
    if (bound.lo < power) break;
  }
  const Ends bound = sum(lo, hi, std::ldexp(k, last_place(promise, top)));
  const double limit = std::ldexp(1.0, f.emax + 1);
  if ((bound.lo >= limit) != (bound.hi >= limit)) return std::nullopt;
  if (bound.lo >= limit) return AllowedResults{least, infinity};
  const double largest = rounded(promise, bound.lo, Rounding::downward);
  if (largest != rounded(promise, bound.hi, Rounding::downward)) return std::nullopt;
  return AllowedResults{least, largest};
}

double pick_result(const UlpPromise& promise, const AllowedResults& results, double lo,
                   std::uint64_t hash) {
  if (results.least == results.largest) return results.least;
  const Format& f = promise.result;
  const std::uint64_t least_normal = std::uint64_t{1} << f.trailing_bits();
  const auto place = [&](double x) {  // codes of positive numbers are ordered as they are
    const std::uint64_t code = encode(f, x, {});
    if (!promise.flush_to_zero) return code;
    return code == 0 ? 0 : code - least_normal + 1;
  };
  const std::uint64_t first = place(results.least);
  std::uint64_t code = first + hash % (place(results.largest) - first + 1);
  if (promise.flush_to_zero && code != 0) code += least_normal - 1;
  const double picked = decode(f, code);
  if (picked <= lo || picked == results.largest) return picked;
  // Too far in its own units: the power of two above is allowed, if it does not exceed the largest.
  const int exponent = std::ilogb(picked);
  const double power = std::ldexp(1.0, exponent + 1);
  const double reach = std::ldexp(promise.max_error_ulps, last_place(promise, exponent));
  if (power > results.largest || (picked - lo) * (1 + 0x1p-50) <= reach) return picked;
  return power > f.max_finite() ? infinity : power;
}

}  // namespace headroom
