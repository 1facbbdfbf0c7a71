// Packs of doubles, one traits struct per instruction set: Portable (1 lane), Avx2 (4), Avx512 (8).
//
// Kernels are templates over such a struct, instantiated in one translation unit per instruction
// set that is compiled with that set's flags (see meson.build in this folder). All operations are
// IEEE in the current mode, which has to be round-to-nearest without FTZ and DAZ (NearestRounding);
// fma is a single rounding in each of them, so that a kernel gives the same bits in all three.
// Only the *_down / *_up operations are directed, without touching MXCSR.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

// Every function here is compiled once per set of flags. Without a namespace of its own per set the
// linker could keep an AVX-512 copy of an inline function for the portable path.
#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && defined(__AVX512BW__)
#define HEADROOM_VECTOR_FLAGS compiled_for_avx512
#define HEADROOM_VECTOR_AVX512 1
#elif defined(__AVX2__) && defined(__FMA__)
#define HEADROOM_VECTOR_FLAGS compiled_for_avx2
#define HEADROOM_VECTOR_AVX2 1
#else
#define HEADROOM_VECTOR_FLAGS compiled_for_baseline
#endif

#define HEADROOM_VECTOR_INLINE inline __attribute__((always_inline))
#define HEADROOM_VECTOR_LAMBDA __attribute__((always_inline))

namespace headroom {
inline namespace HEADROOM_VECTOR_FLAGS {

/// One double. `fma` is glibc's, correctly rounded with or without the hardware instruction.
struct Portable {
  static constexpr int lanes = 1;
  using Double = double;
  using Mask = bool;
  struct Table16 {
    const double* entry;
  };

  static HEADROOM_VECTOR_INLINE Double load(const double* p) { return *p; }
  static HEADROOM_VECTOR_INLINE void store(double* p, Double a) { *p = a; }
  static HEADROOM_VECTOR_INLINE Double set(double a) { return a; }
  static HEADROOM_VECTOR_INLINE Double add(Double a, Double b) { return a + b; }
  static HEADROOM_VECTOR_INLINE Double sub(Double a, Double b) { return a - b; }
  static HEADROOM_VECTOR_INLINE Double mul(Double a, Double b) { return a * b; }
  static HEADROOM_VECTOR_INLINE Double div(Double a, Double b) { return a / b; }
  /// a b + c, a b - c, c - a b, each rounded once.
  static HEADROOM_VECTOR_INLINE Double fma(Double a, Double b, Double c) {
    return __builtin_fma(a, b, c);
  }
  static HEADROOM_VECTOR_INLINE Double fms(Double a, Double b, Double c) {
    return __builtin_fma(a, b, -c);
  }
  static HEADROOM_VECTOR_INLINE Double fnma(Double a, Double b, Double c) {
    return __builtin_fma(-a, b, c);
  }
  /// The second operand if either is NaN (as MINPD and MAXPD do).
  static HEADROOM_VECTOR_INLINE Double min(Double a, Double b) { return a < b ? a : b; }
  static HEADROOM_VECTOR_INLINE Double max(Double a, Double b) { return a > b ? a : b; }
  static HEADROOM_VECTOR_INLINE Double abs(Double a) { return __builtin_fabs(a); }
  static HEADROOM_VECTOR_INLINE Mask less(Double a, Double b) { return a < b; }
  static HEADROOM_VECTOR_INLINE Mask equal(Double a, Double b) { return a == b; }
  static HEADROOM_VECTOR_INLINE Mask both(Mask a, Mask b) { return a && b; }
  static HEADROOM_VECTOR_INLINE Mask either(Mask a, Mask b) { return a || b; }
  static HEADROOM_VECTOR_INLINE Double select(Mask m, Double yes, Double no) {
    return m ? yes : no;
  }

  static HEADROOM_VECTOR_INLINE Table16 load_table(const double* entry) { return {entry}; }
  /// entry[low four bits of the significand of k].
  static HEADROOM_VECTOR_INLINE Double lookup(const Table16& t, Double k) {
    std::uint64_t bits;
    std::memcpy(&bits, &k, sizeof bits);
    return t.entry[bits & 15];
  }
  /// The bits of `entry` plus those of k shifted left by 48: with k = magic + n + j / 16
  /// (exp2_round_to_sixteenth), n is added to the exponent and j to the leading bits behind it.
  static HEADROOM_VECTOR_INLINE Double add_exponent(Double entry, Double k) {
    std::uint64_t bits, more;
    std::memcpy(&bits, &entry, sizeof bits);
    std::memcpy(&more, &k, sizeof more);
    bits += more << 48;
    double r;
    std::memcpy(&r, &bits, sizeof r);
    return r;
  }
  /// 2^n for an integer n in [-1022, 1023].
  static HEADROOM_VECTOR_INLINE Double power_of_two(Double n) {
    const double shifted = n + (0x1.8p52 + 1023);  // n + 1023 in the low bits
    std::uint64_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    bits <<= 52;
    double r;
    std::memcpy(&r, &bits, sizeof r);
    return r;
  }
  /// Largest integer <= a; |a| <= 2^31, NaN unspecified.
  static HEADROOM_VECTOR_INLINE Double floor(Double a) {
    const double nearest = (a + 0x1.8p52) - 0x1.8p52;
    return nearest > a ? nearest - 1 : nearest;
  }
  /// The neighbouring doubles; -infinity and +infinity stay where they are, NaN stays NaN.
  static HEADROOM_VECTOR_INLINE Double next_up(Double a) {
    if (!(a < __builtin_inf())) return a;
    if (a == 0) return 0x1p-1074;
    std::int64_t bits;
    std::memcpy(&bits, &a, sizeof bits);
    bits += a > 0 ? 1 : -1;
    double r;
    std::memcpy(&r, &bits, sizeof r);
    return r;
  }
  static HEADROOM_VECTOR_INLINE Double next_down(Double a) { return -next_up(-a); }
};

#ifdef HEADROOM_VECTOR_AVX2
struct Avx2 {
  static constexpr int lanes = 4;
  using Double = __m256d;
  using Mask = __m256d;
  struct Table16 {
    const double* entry;
  };

  static HEADROOM_VECTOR_INLINE Double load(const double* p) { return _mm256_loadu_pd(p); }
  static HEADROOM_VECTOR_INLINE void store(double* p, Double a) { _mm256_storeu_pd(p, a); }
  static HEADROOM_VECTOR_INLINE Double set(double a) { return _mm256_set1_pd(a); }
  static HEADROOM_VECTOR_INLINE Double add(Double a, Double b) { return _mm256_add_pd(a, b); }
  static HEADROOM_VECTOR_INLINE Double sub(Double a, Double b) { return _mm256_sub_pd(a, b); }
  static HEADROOM_VECTOR_INLINE Double mul(Double a, Double b) { return _mm256_mul_pd(a, b); }
  static HEADROOM_VECTOR_INLINE Double div(Double a, Double b) { return _mm256_div_pd(a, b); }
  static HEADROOM_VECTOR_INLINE Double fma(Double a, Double b, Double c) {
    return _mm256_fmadd_pd(a, b, c);
  }
  static HEADROOM_VECTOR_INLINE Double fms(Double a, Double b, Double c) {
    return _mm256_fmsub_pd(a, b, c);
  }
  static HEADROOM_VECTOR_INLINE Double fnma(Double a, Double b, Double c) {
    return _mm256_fnmadd_pd(a, b, c);
  }
  static HEADROOM_VECTOR_INLINE Double min(Double a, Double b) { return _mm256_min_pd(a, b); }
  static HEADROOM_VECTOR_INLINE Double max(Double a, Double b) { return _mm256_max_pd(a, b); }
  static HEADROOM_VECTOR_INLINE Double abs(Double a) {
    return _mm256_andnot_pd(_mm256_set1_pd(-0.0), a);
  }
  static HEADROOM_VECTOR_INLINE Mask less(Double a, Double b) {
    return _mm256_cmp_pd(a, b, _CMP_LT_OQ);
  }
  static HEADROOM_VECTOR_INLINE Mask equal(Double a, Double b) {
    return _mm256_cmp_pd(a, b, _CMP_EQ_OQ);
  }
  static HEADROOM_VECTOR_INLINE Mask both(Mask a, Mask b) { return _mm256_and_pd(a, b); }
  static HEADROOM_VECTOR_INLINE Mask either(Mask a, Mask b) { return _mm256_or_pd(a, b); }
  static HEADROOM_VECTOR_INLINE Double select(Mask m, Double yes, Double no) {
    return _mm256_blendv_pd(no, yes, m);
  }

  static HEADROOM_VECTOR_INLINE Table16 load_table(const double* entry) { return {entry}; }
  static HEADROOM_VECTOR_INLINE Double lookup(const Table16& t, Double k) {
    const __m256i index = _mm256_and_si256(_mm256_castpd_si256(k), _mm256_set1_epi64x(15));
    return _mm256_i64gather_pd(t.entry, index, 8);
  }
  static HEADROOM_VECTOR_INLINE Double add_exponent(Double entry, Double k) {
    return _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(entry),
                                                _mm256_slli_epi64(_mm256_castpd_si256(k), 48)));
  }
  static HEADROOM_VECTOR_INLINE Double power_of_two(Double n) {
    const __m256d shifted = _mm256_add_pd(n, _mm256_set1_pd(0x1.8p52 + 1023));
    return _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_castpd_si256(shifted), 52));
  }
  static HEADROOM_VECTOR_INLINE Double floor(Double a) { return _mm256_floor_pd(a); }
  static HEADROOM_VECTOR_INLINE Double next_up(Double a) {
    const __m256d zero = _mm256_setzero_pd();
    const __m256i bits = _mm256_castpd_si256(a);
    // +1 for positive numbers, -1 for negative ones: the ordering of the encodings
    const __m256i one = _mm256_set1_epi64x(1);
    const __m256i negative = _mm256_castpd_si256(_mm256_cmp_pd(a, zero, _CMP_LT_OQ));
    const __m256i step = _mm256_or_si256(negative, one);  // all ones is -1
    __m256d r = _mm256_castsi256_pd(_mm256_add_epi64(bits, step));
    r = _mm256_blendv_pd(r, _mm256_set1_pd(0x1p-1074), _mm256_cmp_pd(a, zero, _CMP_EQ_OQ));
    const __m256d fixed = _mm256_cmp_pd(a, _mm256_set1_pd(__builtin_inf()), _CMP_NLT_UQ);
    return _mm256_blendv_pd(r, a, fixed);
  }
  static HEADROOM_VECTOR_INLINE Double next_down(Double a) {
    const __m256d sign = _mm256_set1_pd(-0.0);
    return _mm256_xor_pd(sign, next_up(_mm256_xor_pd(sign, a)));
  }
};
#endif

#ifdef HEADROOM_VECTOR_AVX512
struct Avx512 {
  static constexpr int lanes = 8;
  using Double = __m512d;
  using Mask = __mmask8;
  struct Table16 {
    __m512d low, high;
  };

  static HEADROOM_VECTOR_INLINE Double load(const double* p) { return _mm512_loadu_pd(p); }
  static HEADROOM_VECTOR_INLINE void store(double* p, Double a) { _mm512_storeu_pd(p, a); }
  static HEADROOM_VECTOR_INLINE Double set(double a) { return _mm512_set1_pd(a); }
  static HEADROOM_VECTOR_INLINE Double add(Double a, Double b) { return _mm512_add_pd(a, b); }
  static HEADROOM_VECTOR_INLINE Double sub(Double a, Double b) { return _mm512_sub_pd(a, b); }
  static HEADROOM_VECTOR_INLINE Double mul(Double a, Double b) { return _mm512_mul_pd(a, b); }
  static HEADROOM_VECTOR_INLINE Double div(Double a, Double b) { return _mm512_div_pd(a, b); }
  static HEADROOM_VECTOR_INLINE Double fma(Double a, Double b, Double c) {
    return _mm512_fmadd_pd(a, b, c);
  }
  static HEADROOM_VECTOR_INLINE Double fms(Double a, Double b, Double c) {
    return _mm512_fmsub_pd(a, b, c);
  }
  static HEADROOM_VECTOR_INLINE Double fnma(Double a, Double b, Double c) {
    return _mm512_fnmadd_pd(a, b, c);
  }
  // The zero-masked forms: GCC 12 calls the plain ones' pass-through operand uninitialised.
  static HEADROOM_VECTOR_INLINE Double min(Double a, Double b) {
    return _mm512_maskz_min_pd(0xff, a, b);
  }
  static HEADROOM_VECTOR_INLINE Double max(Double a, Double b) {
    return _mm512_maskz_max_pd(0xff, a, b);
  }
  static HEADROOM_VECTOR_INLINE Double abs(Double a) {
    return _mm512_castsi512_pd(
        _mm512_and_epi64(_mm512_castpd_si512(a), _mm512_set1_epi64(0x7fffffffffffffff)));
  }
  static HEADROOM_VECTOR_INLINE Mask less(Double a, Double b) {
    return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ);
  }
  static HEADROOM_VECTOR_INLINE Mask equal(Double a, Double b) {
    return _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ);
  }
  static HEADROOM_VECTOR_INLINE Mask both(Mask a, Mask b) { return static_cast<Mask>(a & b); }
  static HEADROOM_VECTOR_INLINE Mask either(Mask a, Mask b) { return static_cast<Mask>(a | b); }
  static HEADROOM_VECTOR_INLINE Double select(Mask m, Double yes, Double no) {
    return _mm512_mask_blend_pd(m, no, yes);
  }

  static HEADROOM_VECTOR_INLINE Table16 load_table(const double* entry) {
    return {_mm512_loadu_pd(entry), _mm512_loadu_pd(entry + 8)};
  }
  static HEADROOM_VECTOR_INLINE Double lookup(const Table16& t, Double k) {
    return _mm512_permutex2var_pd(t.low, _mm512_castpd_si512(k), t.high);
  }
  static HEADROOM_VECTOR_INLINE Double add_exponent(Double entry, Double k) {
    return _mm512_castsi512_pd(_mm512_add_epi64(
        _mm512_castpd_si512(entry), _mm512_maskz_slli_epi64(0xff, _mm512_castpd_si512(k), 48)));
  }
};
#endif

}  // namespace HEADROOM_VECTOR_FLAGS
}  // namespace headroom
