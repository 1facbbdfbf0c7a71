// MPFR's exp2 at 160 bits as the judge of a computed power, and its distance in units of 2^-53.
#pragma once

#include <mpfr.h>

#include <cmath>
#include <cstdio>
#include <string>

#include "reference/evaluate/vector/exp2_constants.h"

namespace headroom {

/// What MPFR says about one y against 2^t.
struct Exp2Judgement {
  bool within;           ///< |y - 2^t| <= exp2_relative_error_bound 2^t + exp2_absolute_error_bound
  double error_in_2_53;  ///< |y / 2^t - 1| 2^53; meaningful where `normal`
  bool normal;           ///< 2^-1022 <= 2^t < 2^1024, so only the relative part may be used
};

class Exp2Oracle {
 public:
  Exp2Oracle() {
    mpfr_inits2(4096, t_, product_, mpfr_ptr(nullptr));
    mpfr_inits2(160, power_, error_, allowed_, mpfr_ptr(nullptr));
  }
  ~Exp2Oracle() { mpfr_clears(t_, product_, power_, error_, allowed_, mpfr_ptr(nullptr)); }
  Exp2Oracle(const Exp2Oracle&) = delete;
  Exp2Oracle& operator=(const Exp2Oracle&) = delete;

  /// t = x, or hi + lo - shift, or (c_hi + c_lo) s - shift: exact at 4096 bits.
  void argument(double x) { mpfr_set_d(t_, x, MPFR_RNDN); }
  void argument_pair(double hi, double lo, double shift) {
    mpfr_set_d(t_, hi, MPFR_RNDN);
    mpfr_add_d(t_, t_, lo, MPFR_RNDN);
    mpfr_sub_d(t_, t_, shift, MPFR_RNDN);
  }
  void argument_product(double c_hi, double c_lo, double s, double shift) {
    mpfr_set_d(product_, c_hi, MPFR_RNDN);
    mpfr_add_d(product_, product_, c_lo, MPFR_RNDN);
    mpfr_mul_d(t_, product_, s, MPFR_RNDN);
    mpfr_sub_d(t_, t_, shift, MPFR_RNDN);
  }

  Exp2Judgement judge(double y) {
    // Arguments outside the table of exponents: anything between 2^-+5000 judges the same.
    if (mpfr_cmp_si(t_, 5000) > 0) mpfr_set_si(t_, 5000, MPFR_RNDN);
    if (mpfr_cmp_si(t_, -5000) < 0) mpfr_set_si(t_, -5000, MPFR_RNDN);
    const bool normal = mpfr_cmp_si(t_, -1022) >= 0 && mpfr_cmp_si(t_, 1024) < 0;
    mpfr_exp2(power_, t_, MPFR_RNDN);
    if (std::isnan(y)) return {false, INFINITY, normal};
    mpfr_mul_d(allowed_, power_, exp2_relative_error_bound, MPFR_RNDD);
    if (std::isinf(y)) {  // allowed where the bound reaches 2^1024
      mpfr_add(allowed_, allowed_, power_, MPFR_RNDU);
      mpfr_set_ui_2exp(error_, 1, 1024, MPFR_RNDN);
      return {y > 0 && mpfr_cmp(allowed_, error_) >= 0, 0, false};
    }
    mpfr_set_d(error_, y, MPFR_RNDN);
    mpfr_sub(error_, error_, power_, MPFR_RNDA);
    mpfr_abs(error_, error_, MPFR_RNDN);
    if (!normal) mpfr_add_d(allowed_, allowed_, exp2_absolute_error_bound, MPFR_RNDD);
    const bool within = mpfr_cmp(error_, allowed_) <= 0;
    mpfr_div(error_, error_, power_, MPFR_RNDU);
    return {within, mpfr_get_d(error_, MPFR_RNDU) * 0x1p53, normal};
  }
  /// After judge: 2^t.
  mpfr_srcptr power() const { return power_; }

 private:
  mpfr_t t_, product_, power_, error_, allowed_;
};

inline std::string hex(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%a", x);
  return text;
}

}  // namespace headroom
