#include "reference/real/interval.h"

#include <mpfr.h>

#include <cfloat>

namespace headroom {
namespace {

using MpfrFunction = int (*)(mpfr_ptr, mpfr_srcptr, mpfr_rnd_t);

constexpr mpfr_prec_t double_precision = 53;

// f(x) rounded to double in one direction. MPFR's exponent range is far wider than double's, and
// two roundings in the same direction onto nested grids are one, so this is the correctly rounded
// double, subnormals and overflow included (MPFR manual, mpfr_get_d).
double directed(MpfrFunction f, double x, mpfr_rnd_t direction) {
  MPFR_DECL_INIT(value, double_precision);
  mpfr_set_d(value, x, direction);
  f(value, value, direction);
  return mpfr_get_d(value, direction);
}

// Both directions at once: an inexact result lies strictly between the rounded down one and the
// next number of 53 bits.
Interval at_a_point(MpfrFunction f, double x) {
  MPFR_DECL_INIT(value, double_precision);
  mpfr_set_d(value, x, MPFR_RNDN);  // exact
  const int inexact = f(value, value, MPFR_RNDD);
  const double lo = mpfr_get_d(value, MPFR_RNDD);
  if (inexact != 0) mpfr_nextabove(value);
  return {lo, mpfr_get_d(value, MPFR_RNDU)};
}

// Image of an interval under an increasing function.
Interval increasing(MpfrFunction f, const Interval& x) {
  const NearestRounding scope;  // MPFR reads and makes doubles: no FTZ, no DAZ
  if (x.is_point() && x.is_finite()) return at_a_point(f, x.lo());
  return {directed(f, x.lo(), MPFR_RNDD), directed(f, x.hi(), MPFR_RNDU)};
}

// As above for a logarithm: the nonpositive part of x is outside its domain.
Interval logarithm(MpfrFunction f, const Interval& x) {
  assert(x.hi() > 0);
  if (!(x.hi() > 0)) return Interval::entire();
  const NearestRounding scope;
  if (x.is_point() && x.is_finite()) return at_a_point(f, x.lo());
  const double lo =
      x.lo() > 0 ? directed(f, x.lo(), MPFR_RNDD) : -std::numeric_limits<double>::infinity();
  return {lo, directed(f, x.hi(), MPFR_RNDU)};
}

}  // namespace

Interval exp2(const Interval& x) { return increasing(mpfr_exp2, x); }
Interval exp(const Interval& x) { return increasing(mpfr_exp, x); }
Interval tanh(const Interval& x) { return increasing(mpfr_tanh, x); }
Interval log2(const Interval& x) { return logarithm(mpfr_log2, x); }
Interval log(const Interval& x) { return logarithm(mpfr_log, x); }

Interval power_of_two(long k) {
  if (k >= DBL_MAX_EXP) return {DBL_MAX, std::numeric_limits<double>::infinity()};
  if (k < DBL_MIN_EXP - DBL_MANT_DIG) return {0.0, DBL_TRUE_MIN};
  return std::ldexp(1.0, static_cast<int>(k));  // exact, in any rounding mode
}

Interval ln_2() {
  static const Interval value = [] {
    const NearestRounding scope;
    MPFR_DECL_INIT(lo, double_precision);
    MPFR_DECL_INIT(hi, double_precision);
    mpfr_const_log2(lo, MPFR_RNDD);
    mpfr_const_log2(hi, MPFR_RNDU);
    return Interval(mpfr_get_d(lo, MPFR_RNDD), mpfr_get_d(hi, MPFR_RNDU));
  }();
  return value;
}

Interval log2_e() {
  static const Interval value = [] {
    const NearestRounding scope;
    // 1 / ln 2, enclosed to 256 bits: far closer than any double is.
    MPFR_DECL_INIT(lo, 256);
    MPFR_DECL_INIT(hi, 256);
    mpfr_const_log2(hi, MPFR_RNDD);
    mpfr_const_log2(lo, MPFR_RNDU);
    mpfr_ui_div(lo, 1, lo, MPFR_RNDD);
    mpfr_ui_div(hi, 1, hi, MPFR_RNDU);
    return Interval(mpfr_get_d(lo, MPFR_RNDD), mpfr_get_d(hi, MPFR_RNDU));
  }();
  return value;
}

}  // namespace headroom
