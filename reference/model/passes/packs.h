// Packs of 16 floats and of 16 doubles over stored words, for every instruction set.
//
// Written in the compiler's vector types, which any set of flags can compile, with intrinsics where
// one instruction does better. Loops over packs are instantiated in one translation unit per
// instruction set; everything lives in a namespace of its own per set, or the linker could keep an
// AVX-512 copy of an inline function for the portable path. All operations are IEEE in the current
// mode, which has to be round to nearest without FTZ and DAZ; `fused` rounds once or twice.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && defined(__AVX512BW__)
#define HEADROOM_PACK_AVX512 1
#if defined(__AVX512BF16__)
#define HEADROOM_PACK_FLAGS packs_for_avx512_bf16
#define HEADROOM_PACK_BF16_PRODUCTS 1
#else
#define HEADROOM_PACK_FLAGS packs_for_avx512
#endif
#elif defined(__AVX2__) && defined(__FMA__)
#define HEADROOM_PACK_FLAGS packs_for_avx2
#define HEADROOM_PACK_AVX2 1
#else
#define HEADROOM_PACK_FLAGS packs_for_baseline
#endif

#define HEADROOM_PACK_INLINE inline __attribute__((always_inline))

// Packs are always inlined: how they would be passed to functions does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace headroom {
inline namespace HEADROOM_PACK_FLAGS {

inline constexpr int pack_size = 16;

using Floats = float __attribute__((vector_size(64)));
using Bits = std::uint32_t __attribute__((vector_size(64)));
using EightDoubles = double __attribute__((vector_size(64)));
/// Lanes 0 to 7 and 8 to 15.
struct Doubles {
  EightDoubles low, high;
};

template <class Pack, class Element>
HEADROOM_PACK_INLINE Pack load_pack(const Element* p) {
  Pack a;
  std::memcpy(&a, p, sizeof a);
  return a;
}
HEADROOM_PACK_INLINE Floats load(const float* p) { return load_pack<Floats>(p); }
HEADROOM_PACK_INLINE void store(float* p, Floats a) { std::memcpy(p, &a, sizeof a); }
HEADROOM_PACK_INLINE Floats all(float x) { return Floats{} + x; }
HEADROOM_PACK_INLINE Bits all_bits(std::uint32_t x) { return Bits{} + x; }
HEADROOM_PACK_INLINE Bits bits(Floats a) { return reinterpret_cast<Bits>(a); }
HEADROOM_PACK_INLINE Floats floats(Bits a) { return reinterpret_cast<Floats>(a); }

#if defined(HEADROOM_PACK_AVX512)

HEADROOM_PACK_INLINE Floats fused(Floats a, Floats b, Floats c) {
  return reinterpret_cast<Floats>(_mm512_fmadd_ps(
      reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
}
// The zero-masked forms: GCC 12 calls the plain ones' pass-through operand uninitialised.
HEADROOM_PACK_INLINE Floats larger(Floats a, Floats b) {
  return reinterpret_cast<Floats>(
      _mm512_maskz_max_ps(0xffff, reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
}
HEADROOM_PACK_INLINE Floats smaller(Floats a, Floats b) {
  return reinterpret_cast<Floats>(
      _mm512_maskz_min_ps(0xffff, reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
}
HEADROOM_PACK_INLINE Bits larger(Bits a, Bits b) {
  return reinterpret_cast<Bits>(
      _mm512_maskz_max_epu32(0xffff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
HEADROOM_PACK_INLINE Bits smaller(Bits a, Bits b) {
  return reinterpret_cast<Bits>(
      _mm512_maskz_min_epu32(0xffff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
HEADROOM_PACK_INLINE bool any(Bits mask) {
  const auto m = reinterpret_cast<__m512i>(mask);
  return _mm512_test_epi32_mask(m, m) != 0;
}

#else

HEADROOM_PACK_INLINE Floats fused(Floats a, Floats b, Floats c) {
#if defined(HEADROOM_PACK_AVX2)
  __m256 x[2], y[2], z[2];
  std::memcpy(x, &a, sizeof a);
  std::memcpy(y, &b, sizeof b);
  std::memcpy(z, &c, sizeof c);
  for (int i = 0; i < 2; ++i) z[i] = _mm256_fmadd_ps(x[i], y[i], z[i]);
  std::memcpy(&c, z, sizeof c);
  return c;
#else
  return a * b + c;
#endif
}
HEADROOM_PACK_INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }
HEADROOM_PACK_INLINE Floats smaller(Floats a, Floats b) { return a < b ? a : b; }
HEADROOM_PACK_INLINE Bits larger(Bits a, Bits b) { return a > b ? a : b; }
HEADROOM_PACK_INLINE Bits smaller(Bits a, Bits b) { return a < b ? a : b; }
HEADROOM_PACK_INLINE bool any(Bits mask) {
  std::uint64_t words[8], some = 0;
  std::memcpy(words, &mask, sizeof words);
  for (const std::uint64_t w : words) some |= w;
  return some != 0;
}

#endif

HEADROOM_PACK_INLINE Doubles widen(Floats a) {
  return {
      __builtin_convertvector(__builtin_shufflevector(a, a, 0, 1, 2, 3, 4, 5, 6, 7), EightDoubles),
      __builtin_convertvector(__builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15),
                              EightDoubles)};
}
HEADROOM_PACK_INLINE Floats magnitude(Floats a) { return floats(bits(a) & 0x7fffffffU); }
/// To nearest BF16, ties to even, as a float; NaN unspecified.
HEADROOM_PACK_INLINE Floats to_bf16(Floats a) {
  const Bits x = bits(a);
  return floats((x + (0x7fffU + ((x >> 16) & 1U))) & 0xffff0000U);
}
/// Does a lane hold no integer? Requires: no NaN. Beyond 2^31 a lane counts as no integer.
HEADROOM_PACK_INLINE bool any_fraction(Floats a) {
  using Integers = std::int32_t __attribute__((vector_size(64)));
  const Integers whole = __builtin_convertvector(a, Integers);
  return any(reinterpret_cast<Bits>(__builtin_convertvector(whole, Floats) != a));
}

HEADROOM_PACK_INLINE Doubles all(double x) { return {EightDoubles{} + x, EightDoubles{} + x}; }
HEADROOM_PACK_INLINE Doubles load(const double* p) {
  return {load_pack<EightDoubles>(p), load_pack<EightDoubles>(p + 8)};
}
HEADROOM_PACK_INLINE void store(double* p, const Doubles& a) { std::memcpy(p, &a, sizeof a); }
HEADROOM_PACK_INLINE Doubles operator+(const Doubles& a, const Doubles& b) {
  return {a.low + b.low, a.high + b.high};
}
HEADROOM_PACK_INLINE Doubles operator-(const Doubles& a, const Doubles& b) {
  return {a.low - b.low, a.high - b.high};
}
HEADROOM_PACK_INLINE Doubles operator*(const Doubles& a, const Doubles& b) {
  return {a.low * b.low, a.high * b.high};
}
/// By pairs, four levels.
HEADROOM_PACK_INLINE double sum(const Doubles& a) {
  double x[8];
  const EightDoubles eight = a.low + a.high;
  std::memcpy(x, &eight, sizeof x);
  return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}
HEADROOM_PACK_INLINE float sum(Floats a) {
  float x[16], part[4];
  std::memcpy(x, &a, sizeof x);
  for (int i = 0; i < 4; ++i) part[i] = (x[4 * i] + x[4 * i + 2]) + (x[4 * i + 1] + x[4 * i + 3]);
  return (part[0] + part[1]) + (part[2] + part[3]);
}

#if defined(HEADROOM_PACK_BF16_PRODUCTS)
/// sum + a b, two BF16 products a lane. Rounds to nearest twice at most; operands, products and
/// sums below 2^-126 may be taken as 0, whatever the current mode.
HEADROOM_PACK_INLINE Floats with_products(Floats sum, Bits a, Bits b) {
  return reinterpret_cast<Floats>(_mm512_dpbf16_ps(
      reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b)));
}
#endif

/// out[i] = sum(rows[i]), 8 rows of 8.
HEADROOM_PACK_INLINE void sum_rows(const EightDoubles* rows, double* out) {
  // a transposition with an addition in every step
  EightDoubles pairs[4], fours[2];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const EightDoubles x = rows[2 * i], y = rows[2 * i + 1];
    pairs[i] = __builtin_shufflevector(x, y, 0, 8, 2, 10, 4, 12, 6, 14) +
               __builtin_shufflevector(x, y, 1, 9, 3, 11, 5, 13, 7, 15);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const EightDoubles x = pairs[2 * i], y = pairs[2 * i + 1];
    fours[i] = __builtin_shufflevector(x, y, 0, 1, 8, 9, 4, 5, 12, 13) +
               __builtin_shufflevector(x, y, 2, 3, 10, 11, 6, 7, 14, 15);
  }
  const EightDoubles all = __builtin_shufflevector(fours[0], fours[1], 0, 1, 2, 3, 8, 9, 10, 11) +
                           __builtin_shufflevector(fours[0], fours[1], 4, 5, 6, 7, 12, 13, 14, 15);
  std::memcpy(out, &all, sizeof all);
}

/// Chunks of BF16 words as four packs of doubles: pack p holds channels 4 j + 3 - p of lanes j.
/// Here they are put in the order in which Bf16Words has their channels, and taken from it.
HEADROOM_PACK_INLINE void gather(const EightDoubles (&x)[4], Doubles& a, Doubles& b) {
  a = {__builtin_shufflevector(x[3], x[1], 0, 8, 1, 9, 2, 10, 3, 11),
       __builtin_shufflevector(x[3], x[1], 4, 12, 5, 13, 6, 14, 7, 15)};
  b = {__builtin_shufflevector(x[2], x[0], 0, 8, 1, 9, 2, 10, 3, 11),
       __builtin_shufflevector(x[2], x[0], 4, 12, 5, 13, 6, 14, 7, 15)};
}
HEADROOM_PACK_INLINE void scatter(const Doubles& a, const Doubles& b, EightDoubles (&x)[4]) {
  x[3] = __builtin_shufflevector(a.low, a.high, 0, 2, 4, 6, 8, 10, 12, 14);
  x[1] = __builtin_shufflevector(a.low, a.high, 1, 3, 5, 7, 9, 11, 13, 15);
  x[2] = __builtin_shufflevector(b.low, b.high, 0, 2, 4, 6, 8, 10, 12, 14);
  x[0] = __builtin_shufflevector(b.low, b.high, 1, 3, 5, 7, 9, 11, 13, 15);
}
#if defined(HEADROOM_PACK_AVX512)
/// By shifts, which cost less than conversions: sign, exponent and significand where a double has
/// them, so that a finite x, subnormal or not, is read as x / bf16_unit, exactly.
inline constexpr double bf16_unit = 0x1p896;
HEADROOM_PACK_INLINE void load_bf16(const std::byte* p, EightDoubles (&x)[4]) {
  using Longs = std::int64_t __attribute__((vector_size(64)));
  const Longs words = load_pack<Longs>(p);
  const Longs mask = Longs{} + static_cast<std::int64_t>(0x8fffe00000000000ULL);
  x[0] = reinterpret_cast<EightDoubles>((words >> 3) & mask);
  x[1] = reinterpret_cast<EightDoubles>(((words << 16) >> 3) & mask);
  x[2] = reinterpret_cast<EightDoubles>(((words << 32) >> 3) & mask);
  x[3] = reinterpret_cast<EightDoubles>(((words << 48) >> 3) & mask);
}
#else
inline constexpr double bf16_unit = 1;
HEADROOM_PACK_INLINE void load_bf16(const std::byte* p, EightDoubles (&x)[4]) {
  const Bits words = load_pack<Bits>(p);
  scatter(widen(floats(words << 16)), widen(floats(words & 0xffff0000U)), x);
}
#endif

// 32 stored words as two packs. Which channel stands where depends on the format (`channel_at`):
// BF16 is split into even and odd channels, which costs a shift and a mask.

struct Bf16Words {
  static constexpr int bytes = 2;
  static constexpr int channel_at(int position) {
    return position < pack_size ? 2 * position : 2 * (position - pack_size) + 1;
  }
  static HEADROOM_PACK_INLINE void load(const std::byte* p, Floats& a, Floats& b) {
    const Bits words = load_pack<Bits>(p);
    a = floats(words << 16);
    b = floats(words & 0xffff0000U);
  }
};

struct Fp16Words {
  static constexpr int bytes = 2;
  static constexpr int channel_at(int position) { return position; }
  static HEADROOM_PACK_INLINE void load(const std::byte* p, Floats& a, Floats& b) {
    a = widened(p);
    b = widened(p + 32);
  }

 private:
  static HEADROOM_PACK_INLINE Floats widened(const std::byte* p) {
#if defined(HEADROOM_PACK_AVX512)
    __m256i words;
    std::memcpy(&words, p, sizeof words);
    return reinterpret_cast<Floats>(_mm512_maskz_cvtph_ps(0xffff, words));
#else
    using Words = std::uint16_t __attribute__((vector_size(32)));
    using Integers = std::int32_t __attribute__((vector_size(64)));
    const Bits w = __builtin_convertvector(load_pack<Words>(p), Bits);
    const Bits low = w & 0x7fffU;
    // a subnormal code is an integer of at most 10 bits times 2^-24
    const Floats subnormal =
        __builtin_convertvector(reinterpret_cast<Integers>(low), Floats) * 0x1p-24F;
    const Bits rebias =
        low >= 0x7c00U ? all_bits((255U - 31U) << 23) : all_bits((127U - 15U) << 23);
    const Bits magnitude = low < 0x400U ? bits(subnormal) : (low << 13) + rebias;
    return floats(magnitude | ((w & 0x8000U) << 16));
#endif
  }
};

struct Fp32Words {
  static constexpr int bytes = 4;
  static constexpr int channel_at(int position) { return position; }
  static HEADROOM_PACK_INLINE void load(const std::byte* p, Floats& a, Floats& b) {
    a = load_pack<Floats>(p);
    b = load_pack<Floats>(p + 64);
  }
};

/// out[i] = sum(rows[i]), 16 rows.
HEADROOM_PACK_INLINE void sum_rows(const Floats* rows, float* out) {
#if defined(HEADROOM_PACK_AVX512)
  // a transposition with an addition in every step
  __m512 pairs[8], fours[4];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const auto x = reinterpret_cast<__m512>(rows[2 * i]);
    const auto y = reinterpret_cast<__m512>(rows[2 * i + 1]);
    pairs[i] = _mm512_add_ps(_mm512_maskz_unpacklo_ps(0xffff, x, y),
                             _mm512_maskz_unpackhi_ps(0xffff, x, y));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512d x = _mm512_castps_pd(pairs[2 * i]), y = _mm512_castps_pd(pairs[2 * i + 1]);
    fours[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_maskz_unpacklo_pd(0xff, x, y)),
                             _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(0xff, x, y)));
  }
  // each 128-bit part of fours[i] holds a part of the sums of rows 4 i to 4 i + 3
  const auto join = [](__m512 x, __m512 y) __attribute__((always_inline)) {
    return _mm512_add_ps(_mm512_maskz_shuffle_f32x4(0xffff, x, y, 0x88),
                         _mm512_maskz_shuffle_f32x4(0xffff, x, y, 0xdd));
  };
  _mm512_storeu_ps(out, join(join(fours[0], fours[1]), join(fours[2], fours[3])));
#else
  for (int i = 0; i < pack_size; ++i) out[i] = sum(rows[i]);
#endif
}

}  // namespace HEADROOM_PACK_FLAGS
}  // namespace headroom
