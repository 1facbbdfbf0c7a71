// exp2 of packs of doubles with a proved error, for the first rung of exact attention.
//
// Method (table-driven, P. T. P. Tang, ACM TOMS 15 (1989) 144-157): k = t rounded to a multiple of
// 1/16, r = t - k, 2^t = 2^floor(k) 2^(j/16) 2^r with the table in two parts and 2^r = 1 + r P(r).
// The account of errors stands beside the operations below and is proved by
// proofs/sollya/vector_exp2.sollya (polynomial) and proofs/gappa/vector_exp2.g (roundings).
//
// All three instruction sets give the same bits: the same correctly rounded operations in the same
// order, and one rounding when the power of two is applied, subnormal results included.
//
// Requires of the caller: round-to-nearest, no FTZ, no DAZ (NearestRounding), and a translation
// unit of its own for each instruction set (simd.h).
#pragma once

#include "reference/evaluate/vector/exp2_constants.h"
#include "reference/evaluate/vector/simd.h"

namespace headroom {
inline namespace HEADROOM_VECTOR_FLAGS {

/// Tables and coefficients in registers; build one outside the loop.
template <class Simd>
struct Exp2Constants {
  typename Simd::Table16 head = Simd::load_table(exp2_table_head);
  typename Simd::Table16 tail = Simd::load_table(exp2_table_tail);
};

/// The factor c of an argument c s, as c_hi + c_lo, and the largest |s| that is taken as it is.
struct Exp2Factor {
  double hi, lo;
  double s_limit;
};

/// Requires |c - (hi + lo)| <= 2^-104 |c|, |lo| <= 2^-53 |hi|, and c = 0 or
/// 2^-1000 <= |hi| <= 2^900.
HEADROOM_VECTOR_INLINE Exp2Factor exp2_factor(double hi, double lo) {
  const double limit = exp2_argument_limit / __builtin_fabs(hi);
  return {hi, lo, limit < 0x1.fffffffffffffp1023 ? limit : 0x1.fffffffffffffp1023};
}

/// y 2^floor(e), rounded once: exact in the normal range, to nearest below it, +-infinity above.
/// |e| <= 2^21; 1/2 < |y| < 4 or NaN.
template <class Simd>
HEADROOM_VECTOR_INLINE typename Simd::Double scale_by_power(typename Simd::Double y,
                                                            typename Simd::Double e) {
#ifdef HEADROOM_VECTOR_AVX512
  if constexpr (Simd::lanes == 8) {
    return _mm512_maskz_scalef_pd(0xff, y, e);
  } else
#endif
  {
    // |n| <= 2044 = 2 * 1022 splits into two powers of two that are normal. The first product is
    // exact unless n < -2040, where the result is 0 either way; so only the second one rounds.
    typename Simd::Double n = Simd::floor(Simd::max(Simd::set(-2044.0), e));
    n = Simd::min(n, Simd::set(2044.0));
    const typename Simd::Double half = Simd::floor(Simd::mul(n, Simd::set(0.5)));
    const typename Simd::Double rest = Simd::sub(n, half);
    return Simd::mul(Simd::mul(y, Simd::power_of_two(half)), Simd::power_of_two(rest));
  }
}

/// 2^e 2^(j/16) 2^r, j the low four bits of k's significand (the last step of every form below).
/// Requires |r| <= exp2_reduced_limit, e a multiple of 1/16 whose fraction is j / 16, |e| <= 2^21.
template <class Simd>
HEADROOM_VECTOR_INLINE typename Simd::Double exp2_from_reduced(const Exp2Constants<Simd>& constants,
                                                               typename Simd::Double r,
                                                               typename Simd::Double k,
                                                               typename Simd::Double e) {
  using Double = typename Simd::Double;
  // P by Horner; |p0 - P| <= 2^-54 (1 + 2^-5): the last rounding, the others scaled by r.
  const Double p5 = Simd::fma(Simd::set(exp2_coefficients[6]), r, Simd::set(exp2_coefficients[5]));
  const Double p4 = Simd::fma(p5, r, Simd::set(exp2_coefficients[4]));
  const Double p3 = Simd::fma(p4, r, Simd::set(exp2_coefficients[3]));
  const Double p2 = Simd::fma(p3, r, Simd::set(exp2_coefficients[2]));
  const Double p1 = Simd::fma(p2, r, Simd::set(exp2_coefficients[1]));
  const Double p0 = Simd::fma(p1, r, Simd::set(exp2_coefficients[0]));
  const Double z = Simd::mul(r, p0);  // |z| < 2^-5.5; error <= 2^-59 (p0) + 2^-59 (this product)
  const Double table_head = Simd::lookup(constants.head, k);
  const Double table_tail = Simd::lookup(constants.tail, k);
  const Double w = Simd::fma(table_head, z, table_tail);  // error <= 2^-58; tail z is left out
  const Double y = Simd::add(table_head, w);  // in [0.978, 2.001]; relative error <= 2^-53
  return scale_by_power<Simd>(y, e);
}

/// 2^(head + tail - shift). Requires |head| <= exp2_argument_limit (1 + 2^-50),
/// |tail| <= exp2_tail_limit, shift an integer with |shift| <= exp2_shift_limit. NaN gives NaN.
/// Ensures the bounds of exp2_constants.h less exp2_product_error: head + tail is taken as exact.
template <class Simd>
HEADROOM_VECTOR_INLINE typename Simd::Double exp2_reduced(const Exp2Constants<Simd>& constants,
                                                          typename Simd::Double head,
                                                          typename Simd::Double tail,
                                                          typename Simd::Double shift) {
  using Double = typename Simd::Double;
  const Double magic = Simd::set(exp2_round_to_sixteenth);
  const Double k = Simd::add(head, magic);
  const Double kr = Simd::sub(k, magic);  // exact; a multiple of 1/16, |head - kr| <= 1/32
  const Double f = Simd::sub(head, kr);   // exact: |f| <= 1/32, a multiple of ulp(head) or of 2^-57
  const Double r = Simd::add(f, tail);    // |r| <= 1/32 + 2^-32; error <= 2^-58
  return exp2_from_reduced<Simd>(constants, r, k, Simd::sub(kr, shift));  // the difference is exact
}

/// 2^(x_hi + x_lo - shift). Requires |x_lo| <= 2^-52 |x_hi| where |x_hi| <= exp2_argument_limit
/// (a normalised pair), shift an integer with |shift| <= exp2_shift_limit. Larger |x_hi|, infinite
/// too, are clamped, which keeps the promise; NaN in either part gives NaN.
template <class Simd>
HEADROOM_VECTOR_INLINE typename Simd::Double exp2_of_pair(const Exp2Constants<Simd>& constants,
                                                          typename Simd::Double x_hi,
                                                          typename Simd::Double x_lo,
                                                          typename Simd::Double shift) {
  // min and max return their second operand for NaN, so NaN passes through
  const auto head =
      Simd::min(Simd::set(exp2_argument_limit), Simd::max(Simd::set(-exp2_argument_limit), x_hi));
  const auto tail =
      Simd::min(Simd::set(exp2_tail_limit), Simd::max(Simd::set(-exp2_tail_limit), x_lo));
  return exp2_reduced<Simd>(constants, head, tail, shift);
}

/// 2^x for any double x: NaN gives NaN, -infinity 0, +infinity +infinity.
template <class Simd>
HEADROOM_VECTOR_INLINE typename Simd::Double exp2_of(const Exp2Constants<Simd>& constants,
                                                     typename Simd::Double x) {
  const auto head =
      Simd::min(Simd::set(exp2_argument_limit), Simd::max(Simd::set(-exp2_argument_limit), x));
  return exp2_reduced<Simd>(constants, head, Simd::set(0.0), Simd::set(0.0));
}

/// 2^(c s - shift), c real, s exact. Requires a factor from exp2_factor, shift an integer with
/// |shift| <= exp2_shift_limit, s any double (infinite only if c is not 0); NaN gives NaN.
/// An error of at most d in s is the caller's: a factor within 2^(+-|c| d).
template <class Simd>
HEADROOM_VECTOR_INLINE typename Simd::Double exp2_of_product(const Exp2Constants<Simd>& constants,
                                                             const Exp2Factor& c,
                                                             typename Simd::Double s,
                                                             typename Simd::Double shift) {
  using Double = typename Simd::Double;
  const Double c_hi = Simd::set(c.hi);
  const Double clamped = Simd::min(Simd::set(c.s_limit), Simd::max(Simd::set(-c.s_limit), s));
  const Double head = Simd::mul(c_hi, clamped);  // |head| <= 2^20 (1 + 2^-51)
  // The inner fma is exact (or off by 2^-1074 where it underflows); the outer one is off by
  // 2^-53 |tail| <= 2^-85; c - (c_hi + c_lo) by 2^-104 |c s| <= 2^-84. Together < 2^-82 / ln 2.
  const Double tail = Simd::fma(Simd::set(c.lo), clamped, Simd::fms(c_hi, clamped, head));
  return exp2_reduced<Simd>(constants, head, tail, shift);
}

/// `count` powers 2^(c s) at once, stage by stage, so that their latencies overlap, with one table
/// lookup and no clamp. Requires |c s| <= exp2_short_limit, c_lo as in exp2_factor, s finite.
/// Ensures |power - 2^(c s)| <= exp2_short_relative_error_bound 2^(c s):
///   first rounding of r   |c_hi s - k| <= 2^-5: an error of at most 2^-59
///   second                |r| <= exp2_reduced_limit, a little more than 2^-5: at most 2^-58; the
///                         two are exp2_scaled_argument_error
///   the table's tail      left out, and the roundings: exp2_short_rounding_error
/// c_hi s enters unrounded, so that of exp2_product_error only c's own error is left.
template <class Simd, int count>
HEADROOM_VECTOR_INLINE void exp2_short(const typename Simd::Table16& table,
                                       typename Simd::Double c_hi, typename Simd::Double c_lo,
                                       const typename Simd::Double* s,
                                       typename Simd::Double* power) {
  using Double = typename Simd::Double;
  const Double magic = Simd::set(exp2_round_to_sixteenth);
  Double k[count], r[count], p[count], scaled[count];
  const auto each = [](const auto& step) HEADROOM_VECTOR_LAMBDA {
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) step(i);
  };
  each([&](int i) HEADROOM_VECTOR_LAMBDA { k[i] = Simd::fma(c_hi, s[i], magic); });
  each([&](int i) HEADROOM_VECTOR_LAMBDA { r[i] = Simd::sub(k[i], magic); });  // exact
  each([&](int i) HEADROOM_VECTOR_LAMBDA { r[i] = Simd::fms(c_hi, s[i], r[i]); });
  each([&](int i) HEADROOM_VECTOR_LAMBDA { scaled[i] = Simd::lookup(table, k[i]); });
  each([&](int i) HEADROOM_VECTOR_LAMBDA { r[i] = Simd::fma(c_lo, s[i], r[i]); });
  each([&](int i) HEADROOM_VECTOR_LAMBDA { scaled[i] = Simd::add_exponent(scaled[i], k[i]); });
  each([&](int i) HEADROOM_VECTOR_LAMBDA { p[i] = Simd::set(exp2_coefficients[exp2_degree]); });
#pragma GCC unroll 8
  for (int n = exp2_degree - 1; n >= 0; --n) {
    const Double c = Simd::set(exp2_coefficients[n]);
    each([&](int i) HEADROOM_VECTOR_LAMBDA { p[i] = Simd::fma(p[i], r[i], c); });
  }
  each([&](int i) HEADROOM_VECTOR_LAMBDA { p[i] = Simd::mul(r[i], p[i]); });
  each([&](int i) HEADROOM_VECTOR_LAMBDA { power[i] = Simd::fma(scaled[i], p[i], scaled[i]); });
}

}  // namespace HEADROOM_VECTOR_FLAGS
}  // namespace headroom
