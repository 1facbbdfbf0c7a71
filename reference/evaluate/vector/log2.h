// Bounds of log2 and ln of a double, for log-sum-exp: one value a row, so it need not be fast, but
// it needs no MPFR (about 0.1 us).
//
// A guess y of log2 m, from libm or anywhere, is judged by the exp2 kernel: E = 2^y (1 + delta)
// with |delta| <= exp2_relative_error_bound gives m / 2^y = (m / E)(1 + delta), and what is left of
// the logarithm is (m - E) / E to first order. The result is right whatever libm returned.
#pragma once

#include "reference/evaluate/vector/exp2_constants.h"

namespace headroom {

/// log2 e and ln 2 as pairs of doubles: |error| <= 2^-109.
inline constexpr double log2_e_hi = 0x1.71547652b82fep0;
inline constexpr double log2_e_lo = 0x1.777d0ffda0d24p-56;
inline constexpr double ln_2_hi = 0x1.62e42fefa39efp-1;
inline constexpr double ln_2_lo = 0x1.abc9e3b39803fp-56;

/// The enclosures below have half-widths of at most these, absolute, before their ends are rounded
/// outward to double. Account in log2.cpp; derived in proofs/sollya/vector_log2.sollya.
inline constexpr double log2_absolute_error = 0x1.95p-53;
inline constexpr double ln_absolute_error = 0x1.1ap-53;

struct LogBounds {
  double lo, hi;
};

/// lo <= log2 x + shift <= hi for every x in [x_lo, x_hi]; log-sum-exp of a shifted row is
/// log2 of the sum, plus the shift.
/// Requires x_lo <= x_hi, shift an integer with |shift| <= exp2_shift_limit.
/// 0 gives -infinity, +infinity +infinity; [-infinity, +infinity] if x_lo < 0 or an end is NaN.
/// Tightness: exact (lo = hi) for x a power of two, else hi - lo <= 2 log2_absolute_error + 2 ulp
/// of the larger end.
/// Works in any rounding mode (opens NearestRounding).
LogBounds log2_bounds(double x_lo, double x_hi, double shift = 0);

/// log2_bounds(x, x) from the caller's guess of log2 x, good or bad: any double gives an enclosure.
/// Requires 0 < x < infinity.
LogBounds log2_bounds_from(double x, double guess);

/// lo <= ln x + shift ln 2 <= hi, otherwise like log2_bounds; exact only for x 2^shift = 1.
LogBounds ln_bounds(double x_lo, double x_hi, double shift = 0);

}  // namespace headroom
