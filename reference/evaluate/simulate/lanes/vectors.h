// Vectors of 16 floats, one struct per instruction set: Lanes512, Lanes256, LanesPortable.
//
// Beside FP32's own operations there are those that round to odd to 24 bits (the result, if it is
// not exact, is the neighbour whose last bit is 1): one more rounding to at most 22 bits gives what
// rounding the exact result gives (S. Boldo, G. Melquiond, IEEE TC 57 (2008)). They require gradual
// underflow. AVX-512 takes them from results rounded in three directions, the others from doubles:
// a product of floats is a double, and the error of a sum is known (TwoSum, Knuth).
//
// fma_bf16 and fma_fp16 round a b + c once into the narrow format. The FP32 result, rounded to
// nearest, may be rounded again unless it is a midpoint of the narrow format: rounding is monotone,
// so no other result crosses one. Midpoints take the way over odd rounding.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "reference/evaluate/simulate/lanes/lane_kernels.h"
#include "reference/evaluate/simulate/lanes/power_constants.h"
#include "reference/evaluate/vector/simd.h"

namespace headroom {
inline namespace HEADROOM_VECTOR_FLAGS {

inline constexpr std::uint32_t sign_bit = 0x80000000U, infinity_bits = 0x7f800000U,
                               quiet_nan_bits = 0x7fc00000U;

HEADROOM_VECTOR_INLINE std::uint32_t bits_of(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
HEADROOM_VECTOR_INLINE float float_of(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

/// One float: what LanesPortable does 16 times.
struct OneFloat {
  /// s + error to odd, for s + error exact, |error| below half an ulp of s.
  static HEADROOM_VECTOR_INLINE float odd(double s, double error) {
    const auto y = static_cast<float>(s);
    const auto back = static_cast<double>(y);
    std::uint32_t bits = bits_of(y);
    if ((back == s && error == 0) || s != s || (bits & 1) != 0) return y;
    const bool away = back != s ? std::fabs(s) > std::fabs(back) : (error > 0) == (s > 0);
    bits += away ? 1U : ~0U;
    return float_of(bits);
  }
  static HEADROOM_VECTOR_INLINE float odd_sum(double a, double b) {
    const double s = a + b, t = s - a;
    const double error = (a - (s - t)) + (b - t);
    return s - s == 0 ? odd(s, error) : static_cast<float>(s);
  }
  static HEADROOM_VECTOR_INLINE float fma(float a, float b, float c) {
    // the double sum to odd, so that the conversion is the only rounding, FTZ or not
    const double p = static_cast<double>(a) * static_cast<double>(b);
    const double s = p + static_cast<double>(c), t = s - p;
    const double error = (p - (s - t)) + (static_cast<double>(c) - t);
    std::uint64_t bits;
    std::memcpy(&bits, &s, sizeof bits);
    if (s - s == 0 && error != 0 && (bits & 1) == 0) {
      bits += (error > 0) == (s > 0) ? 1U : ~std::uint64_t{0};
    }
    double odd_s;
    std::memcpy(&odd_s, &bits, sizeof odd_s);
    return static_cast<float>(odd_s);
  }
  static HEADROOM_VECTOR_INLINE float narrow(const Narrowing& f, float x) {
    const std::uint32_t bits = bits_of(x), magnitude = bits & ~sign_bit;
    std::uint32_t y = (magnitude + f.half + ((magnitude >> f.shift) & f.odd)) & f.keep;
    if (magnitude < f.normal) y = bits_of((float_of(magnitude) + f.magic) - f.magic);
    if (y > f.largest) y = f.over;
    if (magnitude > infinity_bits) y = quiet_nan_bits;
    if (magnitude < f.flushed) y = 0;
    return float_of(y | (bits & sign_bit));
  }
};

/// x[i] becomes the i-th elements of all, number by number.
template <typename V>
HEADROOM_VECTOR_INLINE void transpose_numbers(typename V::Float* x) {
  float from[16][16], to[16][16];
  for (int i = 0; i < 16; ++i) V::store(from[i], x[i]);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) to[j][i] = from[i][j];
  }
  for (int i = 0; i < 16; ++i) x[i] = V::load(to[i]);
}

struct LanesPortable {
  static constexpr bool has_power = false;
  static constexpr int key_block = 2, channel_block = 2;  ///< sums a loop keeps
  struct Float {
    float x[16];
  };
  template <typename Operation>
  static HEADROOM_VECTOR_INLINE Float each(const Operation& operation) {
    Float y;
    for (int i = 0; i < 16; ++i) y.x[i] = operation(i);
    return y;
  }

  static HEADROOM_VECTOR_INLINE Float load(const float* p) {
    Float y;
    std::memcpy(&y, p, sizeof y);
    return y;
  }
  static HEADROOM_VECTOR_INLINE void store(float* p, const Float& a) {
    std::memcpy(p, &a, sizeof a);
  }
  static HEADROOM_VECTOR_INLINE Float set(float a) {
    return each([&](int) HEADROOM_VECTOR_LAMBDA { return a; });
  }
  static HEADROOM_VECTOR_INLINE Float add(const Float& a, const Float& b) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA { return a.x[i] + b.x[i]; });
  }
  static HEADROOM_VECTOR_INLINE Float sub(const Float& a, const Float& b) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA { return a.x[i] - b.x[i]; });
  }
  static HEADROOM_VECTOR_INLINE Float mul(const Float& a, const Float& b) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA { return a.x[i] * b.x[i]; });
  }
  static HEADROOM_VECTOR_INLINE Float div(const Float& a, const Float& b) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA { return a.x[i] / b.x[i]; });
  }
  /// a b + c
  static HEADROOM_VECTOR_INLINE Float fma(const Float& a, const Float& b, const Float& c) {
    return each([&](int i)
                    HEADROOM_VECTOR_LAMBDA { return OneFloat::fma(a.x[i], b.x[i], c.x[i]); });
  }
  static HEADROOM_VECTOR_INLINE Float odd_add(const Float& a, const Float& b) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA { return OneFloat::odd_sum(a.x[i], b.x[i]); });
  }
  static HEADROOM_VECTOR_INLINE Float odd_mul(const Float& a, const Float& b) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA {
      return OneFloat::odd(static_cast<double>(a.x[i]) * static_cast<double>(b.x[i]), 0);
    });
  }
  /// A quotient of floats lies no nearer to a number of 25 bits than 2^-49 of it: as a double it is
  /// on the right side of every boundary.
  static HEADROOM_VECTOR_INLINE Float odd_div(const Float& a, const Float& b) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA {
      return OneFloat::odd(static_cast<double>(a.x[i]) / static_cast<double>(b.x[i]), 0);
    });
  }
  static HEADROOM_VECTOR_INLINE Float odd_fma(const Float& a, const Float& b, const Float& c) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA {
      return OneFloat::odd_sum(static_cast<double>(a.x[i]) * static_cast<double>(b.x[i]), c.x[i]);
    });
  }
  static HEADROOM_VECTOR_INLINE Float fma_bf16(const Float& a, const Float& b, const Float& c) {
    return to_bf16(odd_fma(a, b, c));
  }
  static HEADROOM_VECTOR_INLINE Float fma_fp16(const Float& a, const Float& b, const Float& c) {
    return to_fp16(odd_fma(a, b, c));
  }
  static HEADROOM_VECTOR_INLINE Float negate(const Float& a) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA { return -a.x[i]; });
  }
  /// `yes` where a = b, else `no`.
  static HEADROOM_VECTOR_INLINE Float where_equal(const Float& a, const Float& b, const Float& yes,
                                                  const Float& no) {
    return each([&](int i)
                    HEADROOM_VECTOR_LAMBDA { return a.x[i] == b.x[i] ? yes.x[i] : no.x[i]; });
  }
  static HEADROOM_VECTOR_INLINE bool all_equal(const Float& a, const Float& b) {
    bool all = true;
    for (int i = 0; i < 16; ++i) all = all && a.x[i] == b.x[i];
    return all;
  }
  /// y, or a zero of y's sign where |x| < least.
  static HEADROOM_VECTOR_INLINE Float flush(const Float& x, float least, const Float& y) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA {
      return std::fabs(x.x[i]) < least ? float_of(bits_of(y.x[i]) & sign_bit) : y.x[i];
    });
  }
  static HEADROOM_VECTOR_INLINE Float canonical(const Float& a) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA {
      return a.x[i] != a.x[i] ? float_of(quiet_nan_bits) : a.x[i];
    });
  }
  /// RNE. Requires: of NaN the low 15 bits are zero, so that nothing carries out of it.
  static HEADROOM_VECTOR_INLINE Float to_bf16(const Float& a) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA {
      const std::uint32_t bits = bits_of(a.x[i]);
      return float_of((bits + 0x7fffU + ((bits >> 16) & 1)) & 0xffff0000U);
    });
  }
  static HEADROOM_VECTOR_INLINE Float to_fp16(const Float& a) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA {
      const std::uint32_t bits = bits_of(a.x[i]), magnitude = bits & ~sign_bit;
      std::uint32_t y = (magnitude + 0xfffU + ((magnitude >> 13) & 1)) & ~0x1fffU;
      if (magnitude < 0x38800000U) y = bits_of((float_of(magnitude) + 0.5F) - 0.5F);
      if (y > 0x477fe000U) y = infinity_bits;
      if (magnitude > infinity_bits) y = quiet_nan_bits;
      return float_of(y | (bits & sign_bit));
    });
  }
  static HEADROOM_VECTOR_INLINE Float narrow(const Narrowing& f, const Float& a) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA { return OneFloat::narrow(f, a.x[i]); });
  }
  static HEADROOM_VECTOR_INLINE void transpose(Float* x) { transpose_numbers<LanesPortable>(x); }
  /// table[code of x], x a number of bf16 or of fp16.
  static HEADROOM_VECTOR_INLINE Float look_up_bf16(const float* table, const Float& x) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA { return table[bits_of(x.x[i]) >> 16]; });
  }
  static HEADROOM_VECTOR_INLINE Float look_up_fp16(const float* table, const Float& x) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA {
      const std::uint32_t bits = bits_of(x.x[i]), magnitude = bits & ~sign_bit;
      std::uint32_t code = (magnitude >> 13) - (112U << 10);
      // an integer of 2^-24 below the smallest normal
      if (magnitude < 0x38800000U) code = bits_of(float_of(magnitude) + 0.5F) - 0x3f000000U;
      if (magnitude >= infinity_bits) code = magnitude == infinity_bits ? 0x7c00U : 0x7e00U;
      return table[code | (bits & sign_bit) >> 16];
    });
  }
  static HEADROOM_VECTOR_INLINE Float widen_bf16(const std::uint16_t* p) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA {
      return float_of(static_cast<std::uint32_t>(p[i]) << 16);
    });
  }
  static HEADROOM_VECTOR_INLINE Float widen_fp16(const std::uint16_t* p) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA {
      const std::uint32_t h = p[i], magnitude = h & 0x7fffU, sign = (h & 0x8000U) << 16;
      if (magnitude >= 0x7c00U)
        return float_of(sign | infinity_bits | ((magnitude & 0x3ffU) << 13));
      // the encoding as a float's has an exponent that is 112 too small
      const float y = float_of(magnitude << 13) * 0x1p112F;
      return float_of(sign | bits_of(y));
    });
  }
};

#ifdef HEADROOM_VECTOR_AVX2
/// Eight floats; Lanes256 is two of them.
struct Half256 {
  using Float = __m256;
  static HEADROOM_VECTOR_INLINE __m256i integer(Float a) { return _mm256_castps_si256(a); }
  static HEADROOM_VECTOR_INLINE Float floating(__m256i a) { return _mm256_castsi256_ps(a); }
  static HEADROOM_VECTOR_INLINE __m256i all(std::uint32_t a) {
    return _mm256_set1_epi32(static_cast<int>(a));
  }
  /// a > b of encodings without sign.
  static HEADROOM_VECTOR_INLINE __m256i above(__m256i a, __m256i b) {
    return _mm256_cmpgt_epi32(a, b);
  }
  static HEADROOM_VECTOR_INLINE __m256i pick(__m256i mask, __m256i yes, __m256i no) {
    return _mm256_blendv_epi8(no, yes, mask);
  }
  /// The four sums s + error to odd, as floats.
  static HEADROOM_VECTOR_INLINE __m128 odd(__m256d s, __m256d error) {
    const __m128 y = _mm256_cvtpd_ps(s);
    const __m256d back = _mm256_cvtps_pd(y), zero = _mm256_setzero_pd();
    const __m256d moved = _mm256_cmp_pd(back, s, _CMP_NEQ_OQ);
    const __m256d sign = _mm256_set1_pd(-0.0);
    const __m256d farther =
        _mm256_cmp_pd(_mm256_andnot_pd(sign, s), _mm256_andnot_pd(sign, back), _CMP_GT_OQ);
    // error and s of one sign
    const __m256d alike =
        _mm256_cmp_pd(_mm256_xor_pd(error, _mm256_and_pd(sign, s)), zero, _CMP_GT_OQ);
    const __m256d away = _mm256_blendv_pd(alike, farther, moved);
    const __m256d inexact = _mm256_or_pd(moved, _mm256_cmp_pd(error, zero, _CMP_NEQ_OQ));
    const auto shorten = [](__m256d m) HEADROOM_VECTOR_LAMBDA {
      const __m256i both = _mm256_permutevar8x32_epi32(_mm256_castpd_si256(m),
                                                       _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
      return _mm256_castsi256_si128(both);
    };
    const __m128i bits = _mm_castps_si128(y);
    const __m128i one = _mm_set1_epi32(1);
    const __m128i step = _mm_or_si128(_mm_andnot_si128(shorten(away), _mm_set1_epi32(-1)), one);
    const __m128i even = _mm_cmpeq_epi32(_mm_and_si128(bits, one), _mm_setzero_si128());
    const __m128i change = _mm_and_si128(step, _mm_and_si128(even, shorten(inexact)));
    return _mm_castsi128_ps(_mm_add_epi32(bits, change));
  }
  static HEADROOM_VECTOR_INLINE __m128 odd_sum(__m256d a, __m256d b) {
    const __m256d s = _mm256_add_pd(a, b), t = _mm256_sub_pd(s, a);
    __m256d error = _mm256_add_pd(_mm256_sub_pd(a, _mm256_sub_pd(s, t)), _mm256_sub_pd(b, t));
    // of infinite sums NaN, which compares as no error
    return odd(s, error);
  }
  static HEADROOM_VECTOR_INLINE __m256d low(Float a) {
    return _mm256_cvtps_pd(_mm256_castps256_ps128(a));
  }
  static HEADROOM_VECTOR_INLINE __m256d high(Float a) {
    return _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
  }
  static HEADROOM_VECTOR_INLINE Float join(__m128 lo, __m128 hi) { return _mm256_set_m128(hi, lo); }

  static HEADROOM_VECTOR_INLINE Float load(const float* p) { return _mm256_loadu_ps(p); }
  static HEADROOM_VECTOR_INLINE void store(float* p, Float a) { _mm256_storeu_ps(p, a); }
  static HEADROOM_VECTOR_INLINE Float set(float a) { return _mm256_set1_ps(a); }
  static HEADROOM_VECTOR_INLINE Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static HEADROOM_VECTOR_INLINE Float sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static HEADROOM_VECTOR_INLINE Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static HEADROOM_VECTOR_INLINE Float div(Float a, Float b) { return _mm256_div_ps(a, b); }
  static HEADROOM_VECTOR_INLINE Float fma(Float a, Float b, Float c) {
    return _mm256_fmadd_ps(a, b, c);
  }
  static HEADROOM_VECTOR_INLINE Float odd_add(Float a, Float b) {
    return join(odd_sum(low(a), low(b)), odd_sum(high(a), high(b)));
  }
  static HEADROOM_VECTOR_INLINE Float odd_mul(Float a, Float b) {
    const __m256d zero = _mm256_setzero_pd();
    return join(odd(_mm256_mul_pd(low(a), low(b)), zero),
                odd(_mm256_mul_pd(high(a), high(b)), zero));
  }
  static HEADROOM_VECTOR_INLINE Float odd_div(Float a, Float b) {
    const __m256d zero = _mm256_setzero_pd();
    return join(odd(_mm256_div_pd(low(a), low(b)), zero),
                odd(_mm256_div_pd(high(a), high(b)), zero));
  }
  static HEADROOM_VECTOR_INLINE Float odd_fma(Float a, Float b, Float c) {
    return join(odd_sum(_mm256_mul_pd(low(a), low(b)), low(c)),
                odd_sum(_mm256_mul_pd(high(a), high(b)), high(c)));
  }
  static HEADROOM_VECTOR_INLINE Float fma_bf16(Float a, Float b, Float c) {
    const __m256i up = _mm256_add_epi32(integer(fma(a, b, c)), all(0x8000));
    const __m256i tie = _mm256_cmpeq_epi32(_mm256_and_si256(up, all(0xffff)), all(0));
    if (__builtin_expect(_mm256_testz_si256(tie, tie) == 0, 0)) return to_bf16(odd_fma(a, b, c));
    return floating(_mm256_and_si256(up, all(0xffff0000U)));
  }
  static HEADROOM_VECTOR_INLINE Float fma_fp16(Float a, Float b, Float c) {
    const Float y = fma(a, b, c);
    const __m256i magnitude = _mm256_and_si256(integer(y), all(~sign_bit));
    const __m256i tie = _mm256_cmpeq_epi32(_mm256_and_si256(integer(y), all(0x1fff)), all(0x1000));
    // subnormal numbers have midpoints of other forms
    const __m256i tiny =
        _mm256_and_si256(above(all(0x38800000U), magnitude), above(magnitude, all(0)));
    const __m256i any = _mm256_or_si256(tie, tiny);
    if (__builtin_expect(_mm256_testz_si256(any, any) == 0, 0)) return to_fp16(odd_fma(a, b, c));
    return to_fp16(y);
  }
  static HEADROOM_VECTOR_INLINE Float negate(Float a) {
    return _mm256_xor_ps(a, _mm256_set1_ps(-0.0F));
  }
  static HEADROOM_VECTOR_INLINE Float where_equal(Float a, Float b, Float yes, Float no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_EQ_OQ));
  }
  static HEADROOM_VECTOR_INLINE bool all_equal(Float a, Float b) {
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)) == 0xff;
  }
  static HEADROOM_VECTOR_INLINE Float flush(Float x, float least, Float y) {
    const Float sign = _mm256_set1_ps(-0.0F);
    const Float small = _mm256_cmp_ps(_mm256_andnot_ps(sign, x), _mm256_set1_ps(least), _CMP_LT_OQ);
    return _mm256_andnot_ps(_mm256_andnot_ps(sign, small), y);
  }
  static HEADROOM_VECTOR_INLINE Float canonical(Float a) {
    return _mm256_blendv_ps(a, floating(all(quiet_nan_bits)), _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  }
  static HEADROOM_VECTOR_INLINE Float to_bf16(Float a) {
    const __m256i bits = integer(a);
    const __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), all(1));
    return floating(_mm256_and_si256(_mm256_add_epi32(bits, _mm256_add_epi32(all(0x7fff), last)),
                                     all(0xffff0000U)));
  }
  static HEADROOM_VECTOR_INLINE Float to_fp16(Float a) {
    return _mm256_cvtph_ps(_mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static HEADROOM_VECTOR_INLINE Float narrow(const Narrowing& f, Float a) {
    const __m256i bits = integer(a), sign = _mm256_and_si256(bits, all(sign_bit));
    const __m256i magnitude = _mm256_andnot_si256(all(sign_bit), bits);
    const __m256i last = _mm256_and_si256(
        _mm256_srl_epi32(magnitude, _mm_cvtsi32_si128(static_cast<int>(f.shift))), all(f.odd));
    __m256i y = _mm256_and_si256(_mm256_add_epi32(_mm256_add_epi32(magnitude, all(f.half)), last),
                                 all(f.keep));
    const Float magic = _mm256_set1_ps(f.magic);
    const __m256i fine = integer(_mm256_sub_ps(_mm256_add_ps(floating(magnitude), magic), magic));
    y = pick(above(all(f.normal), magnitude), fine, y);
    y = pick(above(y, all(f.largest)), all(f.over), y);
    y = pick(above(magnitude, all(infinity_bits)), all(quiet_nan_bits), y);
    y = _mm256_andnot_si256(above(all(f.flushed), magnitude), y);
    return floating(_mm256_or_si256(y, sign));
  }
  static HEADROOM_VECTOR_INLINE Float look_up_bf16(const float* table, Float x) {
    return _mm256_i32gather_ps(table, _mm256_srli_epi32(integer(x), 16), 4);
  }
  static HEADROOM_VECTOR_INLINE Float look_up_fp16(const float* table, Float x) {
    return _mm256_i32gather_ps(
        table,
        _mm256_cvtepu16_epi32(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)),
        4);
  }
  static HEADROOM_VECTOR_INLINE Float widen_bf16(const std::uint16_t* p) {
    return floating(_mm256_slli_epi32(
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
  }
  static HEADROOM_VECTOR_INLINE Float widen_fp16(const std::uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};

/// Two vectors of half the width.
template <typename Half>
struct Twice {
  static constexpr bool has_power = false;
  static constexpr int key_block = 4, channel_block = 4;
  struct Float {
    typename Half::Float lo, hi;
  };
  static HEADROOM_VECTOR_INLINE Float load(const float* p) {
    return {Half::load(p), Half::load(p + 8)};
  }
  static HEADROOM_VECTOR_INLINE void store(float* p, Float a) {
    Half::store(p, a.lo);
    Half::store(p + 8, a.hi);
  }
  static HEADROOM_VECTOR_INLINE Float set(float a) { return {Half::set(a), Half::set(a)}; }
  static HEADROOM_VECTOR_INLINE Float add(Float a, Float b) {
    return {Half::add(a.lo, b.lo), Half::add(a.hi, b.hi)};
  }
  static HEADROOM_VECTOR_INLINE Float sub(Float a, Float b) {
    return {Half::sub(a.lo, b.lo), Half::sub(a.hi, b.hi)};
  }
  static HEADROOM_VECTOR_INLINE Float mul(Float a, Float b) {
    return {Half::mul(a.lo, b.lo), Half::mul(a.hi, b.hi)};
  }
  static HEADROOM_VECTOR_INLINE Float div(Float a, Float b) {
    return {Half::div(a.lo, b.lo), Half::div(a.hi, b.hi)};
  }
  static HEADROOM_VECTOR_INLINE Float fma(Float a, Float b, Float c) {
    return {Half::fma(a.lo, b.lo, c.lo), Half::fma(a.hi, b.hi, c.hi)};
  }
  static HEADROOM_VECTOR_INLINE Float odd_add(Float a, Float b) {
    return {Half::odd_add(a.lo, b.lo), Half::odd_add(a.hi, b.hi)};
  }
  static HEADROOM_VECTOR_INLINE Float odd_mul(Float a, Float b) {
    return {Half::odd_mul(a.lo, b.lo), Half::odd_mul(a.hi, b.hi)};
  }
  static HEADROOM_VECTOR_INLINE Float odd_div(Float a, Float b) {
    return {Half::odd_div(a.lo, b.lo), Half::odd_div(a.hi, b.hi)};
  }
  static HEADROOM_VECTOR_INLINE Float odd_fma(Float a, Float b, Float c) {
    return {Half::odd_fma(a.lo, b.lo, c.lo), Half::odd_fma(a.hi, b.hi, c.hi)};
  }
  static HEADROOM_VECTOR_INLINE Float fma_bf16(Float a, Float b, Float c) {
    return {Half::fma_bf16(a.lo, b.lo, c.lo), Half::fma_bf16(a.hi, b.hi, c.hi)};
  }
  static HEADROOM_VECTOR_INLINE Float fma_fp16(Float a, Float b, Float c) {
    return {Half::fma_fp16(a.lo, b.lo, c.lo), Half::fma_fp16(a.hi, b.hi, c.hi)};
  }
  static HEADROOM_VECTOR_INLINE Float negate(Float a) {
    return {Half::negate(a.lo), Half::negate(a.hi)};
  }
  static HEADROOM_VECTOR_INLINE Float where_equal(Float a, Float b, Float yes, Float no) {
    return {Half::where_equal(a.lo, b.lo, yes.lo, no.lo),
            Half::where_equal(a.hi, b.hi, yes.hi, no.hi)};
  }
  static HEADROOM_VECTOR_INLINE bool all_equal(Float a, Float b) {
    return Half::all_equal(a.lo, b.lo) && Half::all_equal(a.hi, b.hi);
  }
  static HEADROOM_VECTOR_INLINE Float flush(Float x, float least, Float y) {
    return {Half::flush(x.lo, least, y.lo), Half::flush(x.hi, least, y.hi)};
  }
  static HEADROOM_VECTOR_INLINE Float canonical(Float a) {
    return {Half::canonical(a.lo), Half::canonical(a.hi)};
  }
  static HEADROOM_VECTOR_INLINE Float to_bf16(Float a) {
    return {Half::to_bf16(a.lo), Half::to_bf16(a.hi)};
  }
  static HEADROOM_VECTOR_INLINE Float to_fp16(Float a) {
    return {Half::to_fp16(a.lo), Half::to_fp16(a.hi)};
  }
  static HEADROOM_VECTOR_INLINE Float narrow(const Narrowing& f, Float a) {
    return {Half::narrow(f, a.lo), Half::narrow(f, a.hi)};
  }
  static HEADROOM_VECTOR_INLINE void transpose(Float* x) { transpose_numbers<Twice>(x); }
  static HEADROOM_VECTOR_INLINE Float look_up_bf16(const float* table, Float x) {
    return {Half::look_up_bf16(table, x.lo), Half::look_up_bf16(table, x.hi)};
  }
  static HEADROOM_VECTOR_INLINE Float look_up_fp16(const float* table, Float x) {
    return {Half::look_up_fp16(table, x.lo), Half::look_up_fp16(table, x.hi)};
  }
  static HEADROOM_VECTOR_INLINE Float widen_bf16(const std::uint16_t* p) {
    return {Half::widen_bf16(p), Half::widen_bf16(p + 8)};
  }
  static HEADROOM_VECTOR_INLINE Float widen_fp16(const std::uint16_t* p) {
    return {Half::widen_fp16(p), Half::widen_fp16(p + 8)};
  }
};
using Lanes256 = Twice<Half256>;
#endif

#ifdef HEADROOM_VECTOR_AVX512
struct Lanes512 {
  static constexpr bool has_power = true;
  static constexpr int key_block = 16, channel_block = 16;
  using Float = __m512;
  static constexpr int down = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
  static constexpr int up = _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC;

  static HEADROOM_VECTOR_INLINE __m512i integer(Float a) { return _mm512_castps_si512(a); }
  static HEADROOM_VECTOR_INLINE Float floating(__m512i a) { return _mm512_castsi512_ps(a); }
  static HEADROOM_VECTOR_INLINE __m512i all(std::uint32_t a) {
    return _mm512_set1_epi32(static_cast<int>(a));
  }
  /// Of the results rounded down and up, which are equal or neighbours, the one whose last bit
  /// is 1.
  static HEADROOM_VECTOR_INLINE Float odd(Float below, Float above) {
    return _mm512_mask_mov_ps(above, _mm512_test_epi32_mask(integer(below), all(1)), below);
  }

  static HEADROOM_VECTOR_INLINE Float load(const float* p) { return _mm512_loadu_ps(p); }
  static HEADROOM_VECTOR_INLINE void store(float* p, Float a) { _mm512_storeu_ps(p, a); }
  static HEADROOM_VECTOR_INLINE Float set(float a) { return _mm512_set1_ps(a); }
  static HEADROOM_VECTOR_INLINE Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static HEADROOM_VECTOR_INLINE Float sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static HEADROOM_VECTOR_INLINE Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static HEADROOM_VECTOR_INLINE Float div(Float a, Float b) { return _mm512_div_ps(a, b); }
  static HEADROOM_VECTOR_INLINE Float fma(Float a, Float b, Float c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  static HEADROOM_VECTOR_INLINE Float odd_add(Float a, Float b) {
    return odd(_mm512_maskz_add_round_ps(0xffff, a, b, down),
               _mm512_maskz_add_round_ps(0xffff, a, b, up));
  }
  static HEADROOM_VECTOR_INLINE Float odd_mul(Float a, Float b) {
    return odd(_mm512_maskz_mul_round_ps(0xffff, a, b, down),
               _mm512_maskz_mul_round_ps(0xffff, a, b, up));
  }
  static HEADROOM_VECTOR_INLINE Float odd_div(Float a, Float b) {
    return odd(_mm512_maskz_div_round_ps(0xffff, a, b, down),
               _mm512_maskz_div_round_ps(0xffff, a, b, up));
  }
  static HEADROOM_VECTOR_INLINE Float odd_fma(Float a, Float b, Float c) {
    return odd(_mm512_maskz_fmadd_round_ps(0xffff, a, b, c, down),
               _mm512_maskz_fmadd_round_ps(0xffff, a, b, c, up));
  }
  // two operations more, but no branch, which ties of short significands make hard to predict
  static HEADROOM_VECTOR_INLINE Float fma_bf16(Float a, Float b, Float c) {
    return to_bf16(odd_fma(a, b, c));
  }
  static HEADROOM_VECTOR_INLINE Float fma_fp16(Float a, Float b, Float c) {
    return to_fp16(odd_fma(a, b, c));
  }
  struct PowerTable {
    __m512 head[2] = {_mm512_loadu_ps(power_head), _mm512_loadu_ps(power_head + 16)};
    __m512 tail[2] = {_mm512_loadu_ps(power_tail), _mm512_loadu_ps(power_tail + 16)};
    __m512 slope_tail[2] = {_mm512_loadu_ps(power_slope_tail),
                            _mm512_loadu_ps(power_slope_tail + 16)};
  };
  /// y = RN(2^x), but for the lanes of the answer, which are not settled. x = k + r, k a multiple
  /// of 1/32: the power is a pair of floats, sum and rest, which is rounded once, from both ends of
  /// its error.
  static HEADROOM_VECTOR_INLINE __mmask16 power(const PowerTable& table, Float x, Float& y) {
    const __mmask16 outside = _mm512_cmp_ps_mask(
        floating(_mm512_and_epi32(integer(x), all(~sign_bit))), set(125), _CMP_NLE_UQ);
    const Float magic = set(0x1.8p18F);
    const Float t = add(x, magic), k = sub(t, magic), r = sub(x, k);
    const auto entry = [&](const __m512(&of)[2]) HEADROOM_VECTOR_LAMBDA {
      return _mm512_permutex2var_ps(of[0], integer(t), of[1]);
    };
    const Float head = entry(table.head);
    // sum = head + r slope, and what it lacks: the difference is exact (Sterbenz), its error too
    const Float slope = mul(head, set(power_c1)), sum = fma(r, slope, head), step = sub(sum, head);
    const Float lost = _mm512_maskz_fmsub_ps(0xffff, r, slope, step);
    const Float q = fma(r, fma(r, set(power_c4), set(power_c3)), set(power_c2));
    const Float linear = fma(r, entry(table.slope_tail), entry(table.tail));
    const Float rest = add(lost, fma(mul(head, mul(r, r)), q, linear));
    // the tail's table is less by the error
    const Float low = add(sum, rest), high = add(sum, add(rest, set(2 * power_error)));
    y = _mm512_maskz_scalef_ps(0xffff, low, k);
    auto unsettled = static_cast<__mmask16>(outside | _mm512_cmp_ps_mask(low, high, _CMP_NEQ_UQ));
    if (__builtin_expect(outside != 0, 0)) {
      const __mmask16 zero = _mm512_cmp_ps_mask(x, set(-151), _CMP_LT_OQ);
      y = _mm512_mask_mov_ps(y, zero, _mm512_setzero_ps());
      unsettled = static_cast<__mmask16>(unsettled & ~zero);
    }
    return unsettled;
  }
  static HEADROOM_VECTOR_INLINE Float negate(Float a) {
    return floating(_mm512_xor_epi32(integer(a), all(sign_bit)));
  }
  static HEADROOM_VECTOR_INLINE Float where_equal(Float a, Float b, Float yes, Float no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ), no, yes);
  }
  static HEADROOM_VECTOR_INLINE bool all_equal(Float a, Float b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ) == 0xffff;
  }
  static HEADROOM_VECTOR_INLINE Float flush(Float x, float least, Float y) {
    const __m512i magnitude = _mm512_and_epi32(integer(x), all(~sign_bit));
    const __mmask16 small = _mm512_cmplt_epi32_mask(magnitude, all(bits_of(least)));
    return floating(_mm512_mask_and_epi32(integer(y), small, integer(y), all(sign_bit)));
  }
  static HEADROOM_VECTOR_INLINE Float canonical(Float a) {
    return _mm512_mask_mov_ps(a, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q),
                              floating(all(quiet_nan_bits)));
  }
  static HEADROOM_VECTOR_INLINE Float to_bf16(Float a) {
    // half a unit up, and a tie back to the even one
    const __m512i up = _mm512_add_epi32(integer(a), all(0x8000));
    const __mmask16 tie = _mm512_testn_epi32_mask(up, all(0xffff));
    const __m512i y = _mm512_and_epi32(up, all(0xffff0000U));
    return floating(_mm512_mask_and_epi32(y, tie, y, all(0xfffe0000U)));
  }
  static HEADROOM_VECTOR_INLINE Float to_fp16(Float a) {
    return _mm512_maskz_cvtph_ps(
        0xffff, _mm512_maskz_cvtps_ph(0xffff, a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static HEADROOM_VECTOR_INLINE Float narrow(const Narrowing& f, Float a) {
    const __m512i bits = integer(a), magnitude = _mm512_and_epi32(bits, all(~sign_bit));
    const __m512i last = _mm512_and_epi32(
        _mm512_maskz_srl_epi32(0xffff, magnitude, _mm_cvtsi32_si128(static_cast<int>(f.shift))),
        all(f.odd));
    __m512i y = _mm512_and_epi32(_mm512_add_epi32(_mm512_add_epi32(magnitude, all(f.half)), last),
                                 all(f.keep));
    const Float magic = _mm512_set1_ps(f.magic);
    const __m512i fine = integer(_mm512_sub_ps(_mm512_add_ps(floating(magnitude), magic), magic));
    y = _mm512_mask_mov_epi32(y, _mm512_cmplt_epi32_mask(magnitude, all(f.normal)), fine);
    y = _mm512_mask_mov_epi32(y, _mm512_cmpgt_epi32_mask(y, all(f.largest)), all(f.over));
    y = _mm512_mask_mov_epi32(y, _mm512_cmpgt_epi32_mask(magnitude, all(infinity_bits)),
                              all(quiet_nan_bits));
    y = _mm512_maskz_mov_epi32(_mm512_cmpge_epi32_mask(magnitude, all(f.flushed)), y);
    return floating(_mm512_or_epi32(y, _mm512_and_epi32(bits, all(sign_bit))));
  }
  static HEADROOM_VECTOR_INLINE Float look_up_bf16(const float* table, Float x) {
    const __m512i code = _mm512_maskz_srli_epi32(0xffff, integer(x), 16);
    return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), 0xffff, code, table, 4);
  }
  static HEADROOM_VECTOR_INLINE Float look_up_fp16(const float* table, Float x) {
    const __m256i code =
        _mm512_maskz_cvtps_ph(0xffff, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), 0xffff,
                                    _mm512_maskz_cvtepu16_epi32(0xffff, code), table, 4);
  }
  /// x[i] becomes the i-th elements of all.
  static HEADROOM_VECTOR_INLINE void transpose(Float* x) {
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i += 2) {
      a[i] = _mm512_maskz_unpacklo_epi32(0xffff, integer(x[i]), integer(x[i + 1]));
      a[i + 1] = _mm512_maskz_unpackhi_epi32(0xffff, integer(x[i]), integer(x[i + 1]));
    }
    for (int i = 0; i < 16; i += 4) {
      for (int j = 0; j < 2; ++j) {
        b[i + 2 * j] = _mm512_maskz_unpacklo_epi64(0xff, a[i + j], a[i + j + 2]);
        b[i + 2 * j + 1] = _mm512_maskz_unpackhi_epi64(0xff, a[i + j], a[i + j + 2]);
      }
    }
    // b[4 i + j] holds columns j, j + 4, j + 8, j + 12 of rows 4 i to 4 i + 3
    for (int j = 0; j < 4; ++j) {
      const __m512i low = _mm512_maskz_shuffle_i32x4(0xffff, b[j], b[j + 4], 0x88),
                    high = _mm512_maskz_shuffle_i32x4(0xffff, b[j], b[j + 4], 0xdd),
                    low2 = _mm512_maskz_shuffle_i32x4(0xffff, b[j + 8], b[j + 12], 0x88),
                    high2 = _mm512_maskz_shuffle_i32x4(0xffff, b[j + 8], b[j + 12], 0xdd);
      x[j] = floating(_mm512_maskz_shuffle_i32x4(0xffff, low, low2, 0x88));
      x[j + 4] = floating(_mm512_maskz_shuffle_i32x4(0xffff, high, high2, 0x88));
      x[j + 8] = floating(_mm512_maskz_shuffle_i32x4(0xffff, low, low2, 0xdd));
      x[j + 12] = floating(_mm512_maskz_shuffle_i32x4(0xffff, high, high2, 0xdd));
    }
  }
  static HEADROOM_VECTOR_INLINE Float widen_bf16(const std::uint16_t* p) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return floating(
        _mm512_maskz_slli_epi32(0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, words), 16));
  }
  static HEADROOM_VECTOR_INLINE Float widen_fp16(const std::uint16_t* p) {
    return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
};
#endif

}  // namespace HEADROOM_VECTOR_FLAGS
}  // namespace headroom
