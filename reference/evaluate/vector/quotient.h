// Enclosures of quotients of enclosed numbers, without touching the rounding mode.
//
// Avx512 uses embedded rounding. Avx2 and Portable round to nearest, find the sign of the error by
// an error-free transformation and step to the neighbouring double if needed. Sums: TwoSum (Knuth,
// TAOCP 2, 4.2.2, theorem B; exact unless the sum overflows). Quotients: a - q b is a double, so
// one fma gives it exactly unless it underflows (Boldo, Daumas, ARITH 2003, theorem 1).
#pragma once

#include "reference/evaluate/vector/simd.h"

namespace headroom {
inline namespace HEADROOM_VECTOR_FLAGS {

/// The greatest double <= a + b; the least one if a + b >= it is for *_up. With an overflowing or
/// underflowing intermediate possibly one double further out; never further in. NaN gives NaN.
template <class Simd>
HEADROOM_VECTOR_INLINE typename Simd::Double add_down(typename Simd::Double a,
                                                      typename Simd::Double b) {
#ifdef HEADROOM_VECTOR_AVX512
  if constexpr (Simd::lanes == 8) {
    return _mm512_maskz_add_round_pd(0xff, a, b, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  } else
#endif
  {
    const auto sum = Simd::add(a, b);
    const auto b_part = Simd::sub(sum, a);
    const auto error = Simd::add(Simd::sub(a, Simd::sub(sum, b_part)), Simd::sub(b, b_part));
    // error >= 0: the sum is already below; NaN (after overflow) takes the step
    const auto keep = Simd::less(Simd::set(-0x1p-1074), error);
    return Simd::select(keep, sum, Simd::next_down(sum));
  }
}

template <class Simd>
HEADROOM_VECTOR_INLINE typename Simd::Double negate(typename Simd::Double a) {
  return Simd::mul(Simd::set(-1.0), a);
}

template <class Simd>
HEADROOM_VECTOR_INLINE typename Simd::Double add_up(typename Simd::Double a,
                                                    typename Simd::Double b) {
#ifdef HEADROOM_VECTOR_AVX512
  if constexpr (Simd::lanes == 8) {
    return _mm512_maskz_add_round_pd(0xff, a, b, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
  } else
#endif
  {
    return negate<Simd>(add_down<Simd>(negate<Simd>(a), negate<Simd>(b)));
  }
}

/// The greatest double <= a / b (least >= for *_up), with the same reservation. Requires b > 0.
template <class Simd>
HEADROOM_VECTOR_INLINE typename Simd::Double div_down(typename Simd::Double a,
                                                      typename Simd::Double b) {
#ifdef HEADROOM_VECTOR_AVX512
  if constexpr (Simd::lanes == 8) {
    return _mm512_maskz_div_round_pd(0xff, a, b, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  } else
#endif
  {
    const auto q = Simd::div(a, b);
    // remainder > 0 means q < a / b even if the fma underflowed, since rounding keeps the sign;
    // remainder = 0 means equality only where a - q b, a multiple of ulp(q) ulp(b) >= 2^-106 |a|
    // roughly, cannot underflow.
    const auto remainder = Simd::fnma(q, b, a);
    const auto zero = Simd::set(0.0);
    const auto below = Simd::less(zero, remainder);
    const auto exact =
        Simd::both(Simd::equal(remainder, zero), Simd::less(Simd::set(0x1p-900), Simd::abs(a)));
    return Simd::select(Simd::either(below, exact), q, Simd::next_down(q));
  }
}

template <class Simd>
HEADROOM_VECTOR_INLINE typename Simd::Double div_up(typename Simd::Double a,
                                                    typename Simd::Double b) {
#ifdef HEADROOM_VECTOR_AVX512
  if constexpr (Simd::lanes == 8) {
    return _mm512_maskz_div_round_pd(0xff, a, b, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
  } else
#endif
  {
    return negate<Simd>(div_down<Simd>(negate<Simd>(a), b));
  }
}

template <class Simd>
struct Bounds {
  typename Simd::Double lo, hi;
};

/// An enclosure of o' / l' for all |o' - o| <= o_error and |l' - l| <= l_error.
///
/// Requires o_error >= 0 and l_error >= 0. The whole line, [-inf, inf], where l - l_error is not
/// above 0 or anything is infinite or NaN.
/// Tightness: the sums and quotients are the nearest doubles outward, so the enclosure exceeds
/// the hull of the quotients by the rounding of the four ends and of the two quotients.
template <class Simd>
HEADROOM_VECTOR_INLINE Bounds<Simd> quotient_bounds(typename Simd::Double o,
                                                    typename Simd::Double o_error,
                                                    typename Simd::Double l,
                                                    typename Simd::Double l_error) {
  using Double = typename Simd::Double;
  const Double zero = Simd::set(0.0), infinity = Simd::set(__builtin_inf());
  const Double o_lo = add_down<Simd>(o, negate<Simd>(o_error));
  const Double o_hi = add_up<Simd>(o, o_error);
  const Double l_lo = add_down<Simd>(l, negate<Simd>(l_error));
  const Double l_hi = add_up<Simd>(l, l_error);
  // the quotient is monotone in o'; in l' its direction follows the sign of o'
  const Double lo = div_down<Simd>(o_lo, Simd::select(Simd::less(o_lo, zero), l_lo, l_hi));
  const Double hi = div_up<Simd>(o_hi, Simd::select(Simd::less(o_hi, zero), l_hi, l_lo));
  const auto defined = Simd::both(Simd::both(Simd::less(zero, l_lo), Simd::less(l_hi, infinity)),
                                  Simd::less(Simd::add(Simd::abs(o), o_error), infinity));
  return {Simd::select(defined, lo, Simd::set(-__builtin_inf())),
          Simd::select(defined, hi, infinity)};
}

}  // namespace HEADROOM_VECTOR_FLAGS
}  // namespace headroom
