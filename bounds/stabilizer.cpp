#include "bounds/stabilizer.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <limits>

#include "bounds/norms.h"
#include "bounds/sums.h"
#include "reference/format/convert.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// One end of `rounded`. Infinite ends say "unbounded" and stay as they are.
double round_end(const Format& format, double value, bool round_up) {
  if (std::isinf(value)) return value;
  ConversionPolicy policy;
  policy.rounding = round_up ? Rounding::upward : Rounding::nearest_even;
  const double result = round_to(format, value, policy);
  if (std::isnan(result)) return std::copysign(infinity, value);  // overflow where only NaN is left
  return result;
}

}  // namespace

// Each element may be rounded into the format (1 +- u, twice in the square), squared (1 +- u) and
// passed through at most n additions (1 +- u each, the initial zero included): the computed sum of
// squares lies in ||x||^2 (1 +- u)^(n + 3), widened by what underflows. Three absolute errors eta
// are allowed an element: its conversion (|x| is then subnormal, so x^2 moves by at most
// 3 2^emin eta < eta / 2), its square, and one sum a term that flushes. The square root and its
// rounding are monotone, so the ends are simply rounded.
KernelNorm::KernelNorm(const UpwardRounding& up, const Format& format, std::int64_t n)
    : format_(format) {
  const std::int64_t roundings = n + 3;
  const Interval unit = power_of_two(format.log2_unit_roundoff());
  grown_ = Interval(1.0) +
           Interval(compound_roundings(up, Upper<Relative>(unit.hi()), roundings).value());
  shrunk_ = exp2(Interval(static_cast<double>(roundings)) * log2(Interval(1.0) - unit));
  lost_ = Interval(3.0) * Interval(static_cast<double>(n)) *
          Interval(underflow_error(format, format.emin <= fp32.emin).value());
}

Interval KernelNorm::of(const UpwardRounding& up, const Interval& exact) const {
  const Interval squared = square(exact);
  const double high = ((squared + lost_) * grown_).hi();
  const double low = (squared * shrunk_ - lost_).lo();
  const Interval root = sqrt(Interval(std::fmax(0.0, low), std::fmax(0.0, high)));
  const Interval result = rounded(up, format_, root, false);
  // A partial sum above the largest finite number becomes infinite, and so does the norm.
  return high <= format_.max_finite() ? result : Interval(result.lo(), infinity);
}

Interval KernelNorm::of(const UpwardRounding& up, std::span<const double> lo,
                        std::span<const double> hi) const {
  // least exponent of a set bit over the elements; their squares are multiples of its double
  int grid = std::numeric_limits<int>::max();
  double sum = 0;  // upward: at least the exact sum, and equal to it where the test below passes
  for (std::size_t c = 0; c < lo.size(); ++c) {
    if (lo[c] != hi[c] || !std::isfinite(lo[c])) return of(up, norm(up, lo, hi));
    if (lo[c] == 0) continue;
    int exponent = 0;
    const double significand = std::frexp(std::fabs(lo[c]), &exponent);
    const auto integer = static_cast<std::uint64_t>(std::ldexp(significand, 53));
    grid = std::min(grid, exponent - 53 + std::countr_zero(integer));
    sum += lo[c] * lo[c];
  }
  if (sum == 0 && grid == std::numeric_limits<int>::max()) return Interval(0.0);
  const bool on_grid = 2 * grid >= format_.least_exponent() && format_.precision <= 53 &&
                       sum <= format_.max_finite() &&
                       sum <= std::ldexp(1.0, std::min(1023, 2 * grid + format_.precision));
  if (!on_grid) return of(up, norm(up, lo, hi));
  return rounded(up, format_, sqrt(Interval(sum)), false);
}

Interval kernel_norm(const UpwardRounding& up, const Format& format, const Interval& exact,
                     std::int64_t n) {
  return KernelNorm(up, format, n).of(up, exact);
}

Interval kernel_norm(const UpwardRounding& up, const Format& format, std::span<const double> lo,
                     std::span<const double> hi) {
  return KernelNorm(up, format, static_cast<std::int64_t>(lo.size())).of(up, lo, hi);
}

Interval rounded(const UpwardRounding&, const Format& format, const Interval& value,
                 bool round_up) {
  return {round_end(format, value.lo(), round_up), round_end(format, value.hi(), round_up)};
}

Interval ceiling(const Interval& value) { return {std::ceil(value.lo()), std::ceil(value.hi())}; }

int floor_log2(std::uint64_t n) {
  assert(n > 0);
  return std::bit_width(n) - 1;
}

int ceil_log2(std::uint64_t n) {
  assert(n > 0);
  return std::bit_width(n - 1);
}

int ceil_log2_at_least_one(double vmax) {
  if (!(vmax > 1)) return std::isnan(vmax) ? unbounded_exponent : 0;
  if (std::isinf(vmax)) return unbounded_exponent;
  int exponent = 0;
  const double fraction = std::frexp(vmax, &exponent);  // exact, fraction in [1/2, 1)
  return fraction == 0.5 ? exponent - 1 : exponent;
}

}  // namespace headroom
