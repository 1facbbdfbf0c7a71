// Loops of UnitKernels, for the one translation unit per instruction set.
#pragma once

#include <cstdint>
#include <limits>

#include "reference/evaluate/simulate/unit_kernels.h"
#include "reference/evaluate/vector/exp2.h"
#include "reference/evaluate/vector/simd.h"

namespace headroom {
inline namespace HEADROOM_VECTOR_FLAGS {

/// FP32 beside Portable: one lane.
struct PortableFloat {
  using Simd = Portable;
  static constexpr int lanes = 1;
  using Float = float;

  static HEADROOM_VECTOR_INLINE double widen(const float* p) { return *p; }
  static HEADROOM_VECTOR_INLINE unsigned narrow(double lo, double hi, float floor, float* p) {
    const auto y = static_cast<float>(lo);
    *p = y < floor ? floor : y;
    return y == static_cast<float>(hi) ? 0 : 1;
  }

  static HEADROOM_VECTOR_INLINE Float load(const float* p) { return *p; }
  static HEADROOM_VECTOR_INLINE void store(float* p, Float a) { *p = a; }
  static HEADROOM_VECTOR_INLINE Float set(float a) { return a; }
  static HEADROOM_VECTOR_INLINE Float sub(Float a, Float b) { return a - b; }
  static HEADROOM_VECTOR_INLINE Float fma(Float a, Float b, Float c) {
    return __builtin_fmaf(a, b, c);
  }
  /// The second operand if either is NaN.
  static HEADROOM_VECTOR_INLINE Float max(Float a, Float b) { return a > b ? a : b; }
  /// a where |a| >= 2^-126, else 0.
  static HEADROOM_VECTOR_INLINE Float without_subnormals(Float a) {
    return __builtin_fabsf(a) < 0x1p-126F ? 0 : a;
  }
  /// a + b rounded down, for a positive sum. TwoSum (Knuth) gives the error of the nearest one.
  static HEADROOM_VECTOR_INLINE Float add_down(Float a, Float b) {
    const float s = a + b;
    const float t = s - a;
    const float error = (a - (s - t)) + (b - t);
    if (!(error < 0)) return s;
    std::uint32_t bits;
    std::memcpy(&bits, &s, sizeof bits);
    bits -= 1;
    float r;
    std::memcpy(&r, &bits, sizeof r);
    return r;
  }
  /// The float of bits(r) 2^23 + bits(y), modulo 2^32.
  static HEADROOM_VECTOR_INLINE Float shift_and_add(Float r, Float y) {
    std::uint32_t a, b;
    std::memcpy(&a, &r, sizeof a);
    std::memcpy(&b, &y, sizeof b);
    b += a << 23;
    float result;
    std::memcpy(&result, &b, sizeof result);
    return result;
  }
  static HEADROOM_VECTOR_INLINE Float canonical(Float a) {
    return a != a ? std::numeric_limits<float>::quiet_NaN() : a;
  }
};

#ifdef HEADROOM_VECTOR_AVX2
struct Avx2Float {
  using Simd = Avx2;
  static constexpr int lanes = 8;
  using Float = __m256;

  static HEADROOM_VECTOR_INLINE __m256d widen(const float* p) {
    return _mm256_cvtps_pd(_mm_loadu_ps(p));
  }
  static HEADROOM_VECTOR_INLINE unsigned narrow(__m256d lo, __m256d hi, float floor, float* p) {
    const __m128 y = _mm256_cvtpd_ps(lo);
    _mm_storeu_ps(p, _mm_max_ps(_mm_set1_ps(floor), y));  // the second operand if it is NaN
    return static_cast<unsigned>(_mm_movemask_ps(_mm_cmpneq_ps(y, _mm256_cvtpd_ps(hi))));
  }

  static HEADROOM_VECTOR_INLINE Float load(const float* p) { return _mm256_loadu_ps(p); }
  static HEADROOM_VECTOR_INLINE void store(float* p, Float a) { _mm256_storeu_ps(p, a); }
  static HEADROOM_VECTOR_INLINE Float set(float a) { return _mm256_set1_ps(a); }
  static HEADROOM_VECTOR_INLINE Float sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static HEADROOM_VECTOR_INLINE Float fma(Float a, Float b, Float c) {
    return _mm256_fmadd_ps(a, b, c);
  }
  static HEADROOM_VECTOR_INLINE Float max(Float a, Float b) { return _mm256_max_ps(a, b); }
  static HEADROOM_VECTOR_INLINE Float without_subnormals(Float a) {
    const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), a);
    const __m256 small = _mm256_cmp_ps(magnitude, _mm256_set1_ps(0x1p-126F), _CMP_LT_OQ);
    return _mm256_andnot_ps(small, a);
  }
  static HEADROOM_VECTOR_INLINE Float add_down(Float a, Float b) {
    const __m256 s = _mm256_add_ps(a, b);
    const __m256 t = _mm256_sub_ps(s, a);
    const __m256 error = _mm256_add_ps(_mm256_sub_ps(a, _mm256_sub_ps(s, t)), _mm256_sub_ps(b, t));
    const __m256 above = _mm256_cmp_ps(error, _mm256_setzero_ps(), _CMP_LT_OQ);  // all ones is -1
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(s), _mm256_castps_si256(above)));
  }
  static HEADROOM_VECTOR_INLINE Float shift_and_add(Float r, Float y) {
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(r), 23), _mm256_castps_si256(y)));
  }
  static HEADROOM_VECTOR_INLINE Float canonical(Float a) {
    const __m256 nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
    return _mm256_blendv_ps(a, _mm256_set1_ps(std::numeric_limits<float>::quiet_NaN()), nan);
  }
};
#endif

#ifdef HEADROOM_VECTOR_AVX512
struct Avx512Float {
  using Simd = Avx512;
  static constexpr int lanes = 16;
  using Float = __m512;

  // The zero-masked forms, as in simd.h: GCC 12 calls the plain ones' operand uninitialised.
  static HEADROOM_VECTOR_INLINE __m512d widen(const float* p) {
    return _mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(p));
  }
  static HEADROOM_VECTOR_INLINE unsigned narrow(__m512d lo, __m512d hi, float floor, float* p) {
    const __m256 y = _mm512_maskz_cvtpd_ps(0xff, lo);
    _mm256_storeu_ps(p, _mm256_max_ps(_mm256_set1_ps(floor), y));
    return _mm256_cmp_ps_mask(y, _mm512_maskz_cvtpd_ps(0xff, hi), _CMP_NEQ_UQ);
  }

  static HEADROOM_VECTOR_INLINE Float load(const float* p) { return _mm512_loadu_ps(p); }
  static HEADROOM_VECTOR_INLINE void store(float* p, Float a) { _mm512_storeu_ps(p, a); }
  static HEADROOM_VECTOR_INLINE Float set(float a) { return _mm512_set1_ps(a); }
  static HEADROOM_VECTOR_INLINE Float sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static HEADROOM_VECTOR_INLINE Float fma(Float a, Float b, Float c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  static HEADROOM_VECTOR_INLINE Float max(Float a, Float b) {
    return _mm512_maskz_max_ps(0xffff, a, b);
  }
  static HEADROOM_VECTOR_INLINE Float without_subnormals(Float a) {
    const __m512 magnitude = _mm512_castsi512_ps(
        _mm512_and_epi32(_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff)));
    return _mm512_maskz_mov_ps(
        _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(0x1p-126F), _CMP_NLT_UQ), a);
  }
  static HEADROOM_VECTOR_INLINE Float add_down(Float a, Float b) {
    return _mm512_maskz_add_round_ps(0xffff, a, b, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  }
  static HEADROOM_VECTOR_INLINE Float shift_and_add(Float r, Float y) {
    return _mm512_castsi512_ps(_mm512_add_epi32(
        _mm512_maskz_slli_epi32(0xffff, _mm512_castps_si512(r), 23), _mm512_castps_si512(y)));
  }
  static HEADROOM_VECTOR_INLINE Float canonical(Float a) {
    return _mm512_mask_mov_ps(a, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q),
                              _mm512_set1_ps(std::numeric_limits<float>::quiet_NaN()));
  }
};
#endif

template <class Pack>
struct UnitLoops {
  using Simd = typename Pack::Simd;
  using Double = typename Simd::Double;
  static constexpr int packs = 4;  // of doubles at once, so that latencies overlap
  static constexpr std::size_t width = packs * Simd::lanes;

  /// Beyond this every format's result is zero, or infinite, in base e and 2.
  static constexpr double argument_limit = 277;  // 400 / log2(e)

  /// 2^(c x) as exp2_from_reduced gives it, within exp2_relative_error_bound: c_hi x and its
  /// nearest sixteenth enter unrounded, r is rounded twice (exp2_scaled_argument_error).
  static HEADROOM_VECTOR_INLINE void powers(const Exp2Constants<Simd>& constants, Double c_hi,
                                            Double c_lo, const float* x, Double* power) {
    const Double magic = Simd::set(exp2_round_to_sixteenth);
    for (int j = 0; j < packs; ++j) {
      const Double s =
          Simd::min(Simd::set(argument_limit),
                    Simd::max(Simd::set(-argument_limit), Pack::widen(x + j * Simd::lanes)));
      const Double k = Simd::fma(c_hi, s, magic);
      const Double sixteenths = Simd::sub(k, magic);
      const Double r = Simd::fma(c_lo, s, Simd::fms(c_hi, s, sixteenths));
      power[j] = exp2_from_reduced<Simd>(constants, r, k, sixteenths);
    }
  }

  /// 2^(c x) from below: the true power lies in (y, y (1 + quick_width)).
  /// Account, relative: the series of 2^r to r^5, |r| <= 2^-5 (1 + 2^-40), leaves less than
  /// 1.01 (2^-5 ln 2)^6 / 720 < 2^-42.6; without c_lo x, |x| <= 277, 2^-47; roundings of the
  /// series, the table and the product, 2^-50 together: less than 2^-42.5 in all, around 1 - 2^-41.
  static constexpr double quick_width = 0x1p-40;
  static HEADROOM_VECTOR_INLINE Double quick_power(const Exp2Constants<Simd>& constants,
                                                   Double c_hi, const float* x) {
    const Double magic = Simd::set(exp2_round_to_sixteenth);
    const Double s =
        Simd::min(Simd::set(argument_limit), Simd::max(Simd::set(-argument_limit), Pack::widen(x)));
    const Double k = Simd::fma(c_hi, s, magic);
    const Double sixteenths = Simd::sub(k, magic);
    const Double r = Simd::fms(c_hi, s, sixteenths);
    // ln(2)^n / n!
    Double p = Simd::fma(Simd::set(0x1.5d87fe78a6731p-10), r, Simd::set(0x1.3b2ab6fba4e77p-7));
    p = Simd::fma(p, r, Simd::set(0x1.c6b08d704a0c0p-5));
    p = Simd::fma(p, r, Simd::set(0x1.ebfbdff82c58fp-3));
    p = Simd::fma(p, r, Simd::set(0x1.62e42fefa39efp-1));
    p = Simd::fma(p, r, Simd::set(1 - 0x1p-41));
    return scale_by_power<Simd>(Simd::mul(Simd::lookup(constants.head, k), p), sixteenths);
  }

  /// `count` packs of arguments; the bits of the result tell the unsettled ones.
  template <bool flush, int count>
  static HEADROOM_VECTOR_INLINE std::uint32_t block(const Exp2Constants<Simd>& constants,
                                                    const NearestPower& q, const float* x,
                                                    float* y) {
    Double power[count];
    for (int j = 0; j < count; ++j) {
      power[j] = quick_power(constants, Simd::set(q.c_hi), x + j * Simd::lanes);
    }
    std::uint32_t unsettled = 0;
    for (int j = 0; j < count; ++j) {
      Double lo = power[j];
      Double hi = Simd::mul(lo, Simd::set(1 + quick_width));
      if constexpr (flush) {
        // Rounded to 24 bits with unbounded exponent, below 2^-126. NaN is not less and stays.
        const Double least = Simd::set(0x1p-126 - 0x1p-151);
        lo = Simd::select(Simd::less(lo, least), Simd::set(0.0), lo);
        hi = Simd::select(Simd::less(hi, least), Simd::set(0.0), hi);
      }
      unsettled |= static_cast<std::uint32_t>(Pack::narrow(lo, hi, q.floor, y + j * Simd::lanes))
                   << (j * Simd::lanes);
    }
    return unsettled;
  }

  template <bool flush>
  static std::size_t nearest_loop(const NearestPower& q, const float* x, float* y, std::size_t n,
                                  UnsettledArgument* unsettled) {
    const Exp2Constants<Simd> constants;
    std::size_t found = 0;
    const auto note = [&](std::uint32_t mask, const float* from, std::size_t i, std::size_t end) {
      for (; mask != 0; mask &= mask - 1) {
        const auto lane = static_cast<std::size_t>(__builtin_ctz(mask));
        if (i + lane < end) unsettled[found++] = {i + lane, from[lane]};
      }
    };
    std::size_t i = 0;
    for (; i + width <= n; i += width) {
      float result[width];
      const std::uint32_t mask = block<flush, packs>(constants, q, x + i, result);
      if (__builtin_expect(mask != 0, 0)) note(mask, x + i, i, n);
      __builtin_memcpy(y + i, result, sizeof result);
    }
    constexpr std::size_t lanes = Simd::lanes;
    for (; i < n; i += lanes) {
      const std::size_t m = n - i < lanes ? n - i : lanes;
      float rest[lanes] = {}, result[lanes];
      for (std::size_t j = 0; j < m; ++j) rest[j] = x[i + j];
      const std::uint32_t mask = block<flush, 1>(constants, q, rest, result);
      if (mask != 0) note(mask, rest, i, n);
      for (std::size_t j = 0; j < m; ++j) y[i + j] = result[j];
    }
    return found;
  }

  static std::size_t nearest(const NearestPower& q, const float* x, float* y, std::size_t n,
                             UnsettledArgument* unsettled) {
    return q.flush_to_zero ? nearest_loop<true>(q, x, y, n, unsettled)
                           : nearest_loop<false>(q, x, y, n, unsettled);
  }

  static void power(double c_hi, double c_lo, const float* x, double* y, std::size_t n) {
    const Exp2Constants<Simd> constants;
    for (std::size_t i = 0; i < n; i += width) {
      const std::size_t m = n - i < width ? n - i : width;
      float rest[width] = {};
      for (std::size_t j = 0; j < m; ++j) rest[j] = x[i + j];
      Double result[packs];
      powers(constants, Simd::set(c_hi), Simd::set(c_lo), rest, result);
      double stored[width];
      for (int j = 0; j < packs; ++j) Simd::store(stored + j * Simd::lanes, result[j]);
      for (std::size_t j = 0; j < m; ++j) y[i + j] = stored[j];
    }
  }

  static HEADROOM_VECTOR_INLINE typename Pack::Float polynomial_of(const float* c, int degree,
                                                                   typename Pack::Float floor,
                                                                   typename Pack::Float x) {
    using Float = typename Pack::Float;
    const Float magic = Pack::set(0x1.8p23F);  // 2^23 + 2^22: units are integers
    x = Pack::max(x, Pack::set(-127));         // -127 for NaN
    const Float r = Pack::add_down(Pack::without_subnormals(x), magic);
    const Float f = Pack::sub(x, Pack::sub(r, magic));
    Float y = Pack::set(c[degree]);
    for (int i = degree - 1; i >= 0; --i) y = Pack::fma(y, f, Pack::set(c[i]));
    return Pack::canonical(Pack::max(floor, Pack::shift_and_add(r, y)));
  }

  static void polynomial(const float* c, int degree, float floor, const float* x, float* y,
                         std::size_t n) {
    constexpr std::size_t lanes = Pack::lanes;
    // Without a floor even the least number stays: the polynomials have negative results.
    const auto least = Pack::set(floor > 0 ? floor : -std::numeric_limits<float>::infinity());
    std::size_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      Pack::store(y + i, polynomial_of(c, degree, least, Pack::load(x + i)));
    }
    if (i < n) {
      float rest[lanes] = {};
      for (std::size_t j = i; j < n; ++j) rest[j - i] = x[j];
      Pack::store(rest, polynomial_of(c, degree, least, Pack::load(rest)));
      for (std::size_t j = i; j < n; ++j) y[j] = rest[j - i];
    }
  }

  static constexpr UnitKernels kernels{nearest, polynomial, power};
};

}  // namespace HEADROOM_VECTOR_FLAGS
}  // namespace headroom
