#include "reference/evaluate/vector/log2.h"

#include <cmath>
#include <limits>

#include "reference/evaluate/vector/exp2.h"
#include "reference/evaluate/vector/quotient.h"
#include "reference/real/fp_environment.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Enough for a guess that libm got right to half its digits; see log2_parts.
constexpr double accepted_remainder = 0x1p-40;

/// log2 x + shift = head + tail + error, |error| <= radius.
struct Parts {
  double head, tail, radius;
};

/// x = m 2^e, m in [sqrt(1/2), sqrt 2).
struct Decomposed {
  double m;
  int e;
};
Decomposed decompose(double x) {
  int e;
  const double m = std::frexp(x, &e);  // exact, subnormal x included
  return m < 0x1.6a09e667f3bcdp-1 ? Decomposed{2 * m, e - 1} : Decomposed{m, e};
}

/// From any guess y of log2 m. Requires round-to-nearest, e and shift integers below 2^20.
Parts log2_parts_from(const Decomposed& x, double y, double shift) {
  const double m = x.m;
  const double whole = x.e + shift;  // exact
  const Exp2Constants<Portable> constants;
  for (int attempt = 0; attempt < 8; ++attempt) {
    if (!(y >= -1 && y <= 1)) y = 0;
    const double E = exp2_of<Portable>(constants, y);
    if (m <= 2 * E && E <= 2 * m) {
      const double q =
          (m - E) / E;  // the difference is exact (Sterbenz); |error of q| <= 2^-53 |q|
      if (std::fabs(q) <= accepted_remainder) {
        // log2 m = y + (ln(1 + t) + ln(1 + delta)) log2 e, t = (m - E) / E:
        //   |ln(1 + delta)| <= b + b^2, b = exp2_relative_error_bound       b log2 e = 1.578 2^-53
        //   |ln(1 + t) - t| <= t^2 <= 2^-80, |t - q| <= 2^-93               <= 2^-79 log2 e
        //   correction = q log2 e: one rounding, and log2_e_lo left out     <= 2^-92
        const double correction = q * log2_e_hi;
        // whole + y = head + rest, exactly (TwoSum); |rest| <= 2^-33
        const double head = whole + y;
        const double y_part = head - whole;
        const double rest = (whole - (head - y_part)) + (y - y_part);
        //   the sum of the two small parts is rounded: <= 2^-86. All together < 1.579 2^-53.
        return {head, rest + correction, log2_absolute_error};
      }
    }
    y += std::log1p((m - E) / E) * log2_e_hi;  // Newton: the guess was not good enough
  }
  return {whole, 0, 0.5 + 0x1p-50};  // |log2 m| <= 1/2 and a little: never wrong, never reached
}

/// Requires 0 < x < infinity, round-to-nearest.
Parts log2_parts(double x, double shift) {
  const Decomposed d = decompose(x);
  if (d.m == 1) return {d.e + shift, 0, 0};
  return log2_parts_from(d, std::log2(d.m), shift);
}

/// The same times ln 2.
Parts ln_parts(double x, double shift) {
  const Parts log2_x = log2_parts(x, shift);
  if (log2_x.radius == 0) {
    // An integer times ln 2: product exact in two parts, ln_2_lo times it rounded (<= 2^-88), and
    // ln 2 itself to 2^-109 2^21.
    const double head = ln_2_hi * log2_x.head;
    return {head, std::fma(ln_2_lo, log2_x.head, std::fma(ln_2_hi, log2_x.head, -head)),
            log2_x.head == 0 ? 0.0 : 0x1p-80};
  }
  const double head = ln_2_hi * log2_x.head;
  // |exact remainder| <= 2^-33, |ln_2_lo head| <= 2^-35, |ln_2_hi tail| <= 2^-33: three roundings
  // <= 2^-84 together, ln_2_lo tail left out <= 2^-88; radius ln 2 (1.579 2^-53) = 1.0945 2^-53.
  const double remainder = std::fma(ln_2_hi, log2_x.head, -head);
  const double tail = std::fma(ln_2_hi, log2_x.tail, std::fma(ln_2_lo, log2_x.head, remainder));
  return {head, tail, log2_x.radius > 0.5 ? log2_x.radius : ln_absolute_error};
}

// head + (tail -+ radius): the inner sum is rounded to nearest, an error of at most 2^-86 that the
// constants' slack (more than 2^-61) covers; the outer one is directed.
double lower_end(const Parts& p) {
  return p.radius == 0 && p.tail == 0 ? p.head : add_down<Portable>(p.head, p.tail - p.radius);
}
double upper_end(const Parts& p) {
  return p.radius == 0 && p.tail == 0 ? p.head : add_up<Portable>(p.head, p.tail + p.radius);
}

LogBounds bounds(Parts (*parts)(double, double), double x_lo, double x_hi, double shift) {
  const NearestRounding nearest;
  const double from = opaque(x_lo), to = opaque(x_hi), by = opaque(shift);
  if (!(from >= 0 && to >= from)) return {-infinity, infinity};
  const double lo = from == 0          ? -infinity
                    : from == infinity ? infinity
                                       : lower_end(parts(from, by));
  const double hi = to == 0 ? -infinity : to == infinity ? infinity : upper_end(parts(to, by));
  return {opaque(lo), opaque(hi)};
}

}  // namespace

LogBounds log2_bounds(double x_lo, double x_hi, double shift) {
  return bounds(log2_parts, x_lo, x_hi, shift);
}

LogBounds log2_bounds_from(double x, double guess) {
  const NearestRounding nearest;
  const Decomposed d = decompose(opaque(x));
  const Parts p = log2_parts_from(d, opaque(guess) - d.e, 0);
  return {opaque(lower_end(p)), opaque(upper_end(p))};
}

LogBounds ln_bounds(double x_lo, double x_hi, double shift) {
  return bounds(ln_parts, x_lo, x_hi, shift);
}

}  // namespace headroom
