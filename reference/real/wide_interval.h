// Intervals of MPFR numbers at any precision (MPFI): what decides when doubles do not.
#pragma once

#include <mpfi.h>

#include "reference/real/interval.h"

namespace headroom {

/// An MPFI interval of a fixed working precision, with value semantics and named comparisons.
///
/// Boost's mpfi backend is not used: its `compare` is noexcept and throws on overlap, and it calls
/// equal two wide intervals with the same ends. All results enclose; precision is that of the
/// left operand. Independent of the processor's rounding mode.
class WideInterval {
 public:
  explicit WideInterval(mpfr_prec_t bits) { mpfi_init2(v_, bits), mpfi_set_ui(v_, 0); }
  WideInterval(mpfr_prec_t bits, double exact) { mpfi_init2(v_, bits), mpfi_set_d(v_, exact); }
  WideInterval(mpfr_prec_t bits, const Interval& e) {
    mpfi_init2(v_, bits), mpfi_interv_d(v_, e.lo(), e.hi());
  }
  WideInterval(const WideInterval& o) { mpfi_init2(v_, mpfi_get_prec(o.v_)), mpfi_set(v_, o.v_); }
  WideInterval& operator=(const WideInterval& o) {
    if (this != &o) mpfi_set_prec(v_, mpfi_get_prec(o.v_)), mpfi_set(v_, o.v_);
    return *this;
  }
  ~WideInterval() { mpfi_clear(v_); }

  mpfi_srcptr raw() const { return v_; }
  mpfi_ptr raw() { return v_; }
  mpfr_prec_t precision() const { return mpfi_get_prec(v_); }

  WideInterval& operator+=(const WideInterval& b) { return mpfi_add(v_, v_, b.v_), *this; }
  WideInterval& operator-=(const WideInterval& b) { return mpfi_sub(v_, v_, b.v_), *this; }
  WideInterval& operator*=(const WideInterval& b) { return mpfi_mul(v_, v_, b.v_), *this; }
  WideInterval& operator/=(const WideInterval& b) { return mpfi_div(v_, v_, b.v_), *this; }
  friend WideInterval operator+(WideInterval a, const WideInterval& b) { return a += b; }
  friend WideInterval operator-(WideInterval a, const WideInterval& b) { return a -= b; }
  friend WideInterval operator*(WideInterval a, const WideInterval& b) { return a *= b; }
  friend WideInterval operator/(WideInterval a, const WideInterval& b) { return a /= b; }
  friend WideInterval exp2(WideInterval a) { return mpfi_exp2(a.v_, a.v_), a; }
  friend WideInterval log2(WideInterval a) { return mpfi_log2(a.v_, a.v_), a; }
  friend WideInterval sqrt(WideInterval a) { return mpfi_sqrt(a.v_, a.v_), a; }

  /// The tightest Interval of doubles that holds this one.
  Interval to_doubles() const {
    mpfr_srcptr lo = &v_->left;
    mpfr_srcptr hi = &v_->right;
    if (mpfr_nan_p(lo) || mpfr_nan_p(hi)) return Interval::entire();
    return {mpfr_get_d(lo, MPFR_RNDD), mpfr_get_d(hi, MPFR_RNDU)};
  }

 private:
  mpfi_t v_;
};

Tri less(const WideInterval& a, const WideInterval& b);
Tri less_equal(const WideInterval& a, const WideInterval& b);

}  // namespace headroom
