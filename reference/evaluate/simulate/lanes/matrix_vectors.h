// Vectors of 16 integers beside those of 16 floats, for sums that are aligned and cut.
#pragma once

#include <utility>

#include "reference/evaluate/simulate/lanes/vectors.h"

namespace headroom {
inline namespace HEADROOM_VECTOR_FLAGS {

/// use(0), ..., use(n - 1) with constants, so that arrays of sums stay in registers: GCC unrolls
/// loops after it has given arrays their places.
template <int n, typename Use>
HEADROOM_VECTOR_INLINE void unrolled(const Use& use) {
  [&]<int... i>(std::integer_sequence<int, i...>) HEADROOM_VECTOR_LAMBDA {
    (use(std::integral_constant<int, i>{}), ...);
  }
  (std::make_integer_sequence<int, n>{});
}

/// Exponents of what is zero, and of infinities and NaN: their sums with any other exponent are
/// told from exponents of products.
inline constexpr int no_exponent = -10000, special_exponent = 30000;

/// max(floor(log2 |x|), emin); `no_exponent` of zero, `special_exponent` of infinity and NaN.
HEADROOM_VECTOR_INLINE int aligned_exponent(float x, int emin) {
  const std::uint32_t magnitude = bits_of(x) & ~sign_bit;
  if (magnitude == 0) return no_exponent;
  if (magnitude >= infinity_bits) return special_exponent;
  const int e = static_cast<int>(magnitude >> 23) - 127;
  return e < emin ? emin : e;
}

template <typename V>
struct MatrixVectors;

template <>
struct MatrixVectors<LanesPortable> {
  using Float = LanesPortable::Float;
  struct Int {
    std::int32_t x[16];
  };
  template <typename Operation>
  static HEADROOM_VECTOR_INLINE Int each(const Operation& operation) {
    Int y;
    for (int i = 0; i < 16; ++i) y.x[i] = operation(i);
    return y;
  }
  static HEADROOM_VECTOR_INLINE Int load(const std::int32_t* p) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA { return p[i]; });
  }
  static HEADROOM_VECTOR_INLINE void store(std::int32_t* p, const Int& a) {
    std::memcpy(p, &a, sizeof a);
  }
  static HEADROOM_VECTOR_INLINE Int set(std::int32_t a) {
    return each([&](int) HEADROOM_VECTOR_LAMBDA { return a; });
  }
  static HEADROOM_VECTOR_INLINE Int add(const Int& a, const Int& b) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA {
      return static_cast<std::int32_t>(static_cast<std::uint32_t>(a.x[i]) +
                                       static_cast<std::uint32_t>(b.x[i]));
    });
  }
  static HEADROOM_VECTOR_INLINE Int minus(const Int& a) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA { return -a.x[i]; });
  }
  static HEADROOM_VECTOR_INLINE Int max(const Int& a, const Int& b) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA { return a.x[i] > b.x[i] ? a.x[i] : b.x[i]; });
  }
  static HEADROOM_VECTOR_INLINE Int exponents(const Float& x, int emin) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA { return aligned_exponent(x.x[i], emin); });
  }
  /// 2^e. Requires: -126 <= e <= 127 where the result matters.
  static HEADROOM_VECTOR_INLINE Float power(const Int& e) {
    Float y;
    for (int i = 0; i < 16; ++i) {
      y.x[i] = float_of(static_cast<std::uint32_t>(e.x[i] + 127) << 23);
    }
    return y;
  }
  /// Cut toward zero; any number where that is not below 2^31 in magnitude.
  static HEADROOM_VECTOR_INLINE Int cut(const Float& x) {
    return each([&](int i) HEADROOM_VECTOR_LAMBDA {
      return std::fabs(x.x[i]) < 0x1p31F ? static_cast<std::int32_t>(x.x[i]) : 0;
    });
  }
  /// Cut toward zero to the leading bits that `kept` keeps of a float's fraction.
  static HEADROOM_VECTOR_INLINE Float cut_to_float(const Int& a, std::uint32_t kept) {
    Float y;
    for (int i = 0; i < 16; ++i) {
      const auto wide = static_cast<double>(a.x[i]);
      std::uint64_t bits;
      std::memcpy(&bits, &wide, sizeof bits);
      bits &= ~((std::uint64_t{1} << 29) - 1);
      double shorter;
      std::memcpy(&shorter, &bits, sizeof shorter);
      y.x[i] = float_of(bits_of(static_cast<float>(shorter)) & kept);
    }
    return y;
  }
  /// Lanes with a > b; with a and b of one sign and sum = a + b of the other.
  static HEADROOM_VECTOR_INLINE std::uint32_t above(const Int& a, const Int& b) {
    std::uint32_t mask = 0;
    for (int i = 0; i < 16; ++i) mask |= (a.x[i] > b.x[i] ? 1U : 0U) << i;
    return mask;
  }
  static HEADROOM_VECTOR_INLINE std::uint32_t overflowed(const Int& a, const Int& b,
                                                         const Int& sum) {
    std::uint32_t mask = 0;
    for (int i = 0; i < 16; ++i) {
      mask |= (((a.x[i] ^ sum.x[i]) & (b.x[i] ^ sum.x[i])) < 0 ? 1U : 0U) << i;
    }
    return mask;
  }
};

#ifdef HEADROOM_VECTOR_AVX2
template <>
struct MatrixVectors<Lanes256> {
  using Float = Lanes256::Float;
  struct Int {
    __m256i lo, hi;
  };
  static HEADROOM_VECTOR_INLINE Int load(const std::int32_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
  }
  static HEADROOM_VECTOR_INLINE void store(std::int32_t* p, Int a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), a.hi);
  }
  static HEADROOM_VECTOR_INLINE Int set(std::int32_t a) {
    return {_mm256_set1_epi32(a), _mm256_set1_epi32(a)};
  }
  static HEADROOM_VECTOR_INLINE Int add(Int a, Int b) {
    return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
  }
  static HEADROOM_VECTOR_INLINE Int minus(Int a) {
    const __m256i zero = _mm256_setzero_si256();
    return {_mm256_sub_epi32(zero, a.lo), _mm256_sub_epi32(zero, a.hi)};
  }
  static HEADROOM_VECTOR_INLINE Int max(Int a, Int b) {
    return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)};
  }
  static HEADROOM_VECTOR_INLINE __m256i exponents_of_half(__m256 x, int emin) {
    const __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(x), Half256::all(~sign_bit));
    const __m256i e =
        _mm256_max_epi32(_mm256_sub_epi32(_mm256_srli_epi32(magnitude, 23), _mm256_set1_epi32(127)),
                         _mm256_set1_epi32(emin));
    const __m256i zero = _mm256_cmpeq_epi32(magnitude, _mm256_setzero_si256());
    const __m256i special = Half256::above(magnitude, Half256::all(infinity_bits - 1));
    return Half256::pick(zero, _mm256_set1_epi32(no_exponent),
                         Half256::pick(special, _mm256_set1_epi32(special_exponent), e));
  }
  static HEADROOM_VECTOR_INLINE Int exponents(Float x, int emin) {
    return {exponents_of_half(x.lo, emin), exponents_of_half(x.hi, emin)};
  }
  static HEADROOM_VECTOR_INLINE Float power(Int e) {
    const auto half = [](__m256i a) HEADROOM_VECTOR_LAMBDA {
      return _mm256_castsi256_ps(
          _mm256_slli_epi32(_mm256_add_epi32(a, _mm256_set1_epi32(127)), 23));
    };
    return {half(e.lo), half(e.hi)};
  }
  static HEADROOM_VECTOR_INLINE Int cut(Float x) {
    return {_mm256_cvttps_epi32(x.lo), _mm256_cvttps_epi32(x.hi)};
  }
  static HEADROOM_VECTOR_INLINE __m256 cut_half_to_float(__m256i a, std::uint32_t kept) {
    const auto quarter = [](__m128i four) HEADROOM_VECTOR_LAMBDA {
      const __m256i cut = _mm256_set1_epi64x(static_cast<std::int64_t>(~std::uint64_t{0} << 29));
      const __m256i bits = _mm256_castpd_si256(_mm256_cvtepi32_pd(four));
      return _mm256_cvtpd_ps(_mm256_castsi256_pd(_mm256_and_si256(bits, cut)));
    };
    const __m256 y =
        Half256::join(quarter(_mm256_castsi256_si128(a)), quarter(_mm256_extracti128_si256(a, 1)));
    return _mm256_and_ps(y, _mm256_castsi256_ps(Half256::all(kept)));
  }
  static HEADROOM_VECTOR_INLINE Float cut_to_float(Int a, std::uint32_t kept) {
    return {cut_half_to_float(a.lo, kept), cut_half_to_float(a.hi, kept)};
  }
  static HEADROOM_VECTOR_INLINE std::uint32_t signs(__m256i lo, __m256i hi) {
    return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(lo))) |
           static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(hi))) << 8;
  }
  static HEADROOM_VECTOR_INLINE std::uint32_t above(Int a, Int b) {
    return signs(Half256::above(a.lo, b.lo), Half256::above(a.hi, b.hi));
  }
  static HEADROOM_VECTOR_INLINE std::uint32_t overflowed(Int a, Int b, Int sum) {
    const auto half = [](__m256i x, __m256i y, __m256i s) HEADROOM_VECTOR_LAMBDA {
      return _mm256_and_si256(_mm256_xor_si256(x, s), _mm256_xor_si256(y, s));
    };
    return signs(half(a.lo, b.lo, sum.lo), half(a.hi, b.hi, sum.hi));
  }
};
#endif

#ifdef HEADROOM_VECTOR_AVX512
template <>
struct MatrixVectors<Lanes512> {
  using Float = __m512;
  using Int = __m512i;
  static HEADROOM_VECTOR_INLINE Int load(const std::int32_t* p) { return _mm512_loadu_si512(p); }
  static HEADROOM_VECTOR_INLINE void store(std::int32_t* p, Int a) { _mm512_storeu_si512(p, a); }
  static HEADROOM_VECTOR_INLINE Int set(std::int32_t a) { return _mm512_set1_epi32(a); }
  static HEADROOM_VECTOR_INLINE Int add(Int a, Int b) { return _mm512_add_epi32(a, b); }
  static HEADROOM_VECTOR_INLINE Int minus(Int a) {
    return _mm512_sub_epi32(_mm512_setzero_si512(), a);
  }
  static HEADROOM_VECTOR_INLINE Int max(Int a, Int b) {
    return _mm512_maskz_max_epi32(0xffff, a, b);
  }
  static HEADROOM_VECTOR_INLINE Int exponents(Float x, int emin) {
    const __m512i magnitude = _mm512_and_epi32(_mm512_castps_si512(x), Lanes512::all(~sign_bit));
    __m512i e =
        max(_mm512_sub_epi32(_mm512_maskz_srli_epi32(0xffff, magnitude, 23), set(127)), set(emin));
    e = _mm512_mask_mov_epi32(e, _mm512_testn_epi32_mask(magnitude, magnitude), set(no_exponent));
    return _mm512_mask_mov_epi32(
        e, _mm512_cmpge_epi32_mask(magnitude, Lanes512::all(infinity_bits)), set(special_exponent));
  }
  static HEADROOM_VECTOR_INLINE Float power(Int e) {
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, _mm512_add_epi32(e, set(127)), 23));
  }
  static HEADROOM_VECTOR_INLINE Int cut(Float x) { return _mm512_maskz_cvttps_epi32(0xffff, x); }
  static HEADROOM_VECTOR_INLINE Float cut_to_float(Int a, std::uint32_t kept) {
    const __m512 y =
        _mm512_maskz_cvt_roundepi32_ps(0xffff, a, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    return Lanes512::floating(_mm512_and_epi32(Lanes512::integer(y), Lanes512::all(kept)));
  }
  static HEADROOM_VECTOR_INLINE std::uint32_t above(Int a, Int b) {
    return _mm512_cmpgt_epi32_mask(a, b);
  }
  static HEADROOM_VECTOR_INLINE std::uint32_t overflowed(Int a, Int b, Int sum) {
    const __m512i changed = _mm512_and_epi32(_mm512_xor_epi32(a, sum), _mm512_xor_epi32(b, sum));
    return _mm512_movepi32_mask(changed);
  }
};
#endif

}  // namespace HEADROOM_VECTOR_FLAGS
}  // namespace headroom
