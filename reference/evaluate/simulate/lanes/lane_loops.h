// Loops of LaneKernels over vectors of 16 floats, for the one translation unit per instruction set.
#pragma once

#include <algorithm>

#include "reference/evaluate/simulate/lanes/vectors.h"

namespace headroom {
inline namespace HEADROOM_VECTOR_FLAGS {

enum class LaneFormat : std::uint8_t { fp32, bf16, fp16 };

/// A stage's arithmetic on vectors: what Stage (stage.h) is for doubles.
template <typename V, LaneFormat format, bool flush>
struct LaneStage {
  using Float = typename V::Float;
  static constexpr bool native = format == LaneFormat::fp32;
  /// The least magnitude that is not tiny after rounding with unbounded exponent: half a unit below
  /// the smallest normal, a number of p + 1 bits.
  static constexpr float least =
      format == LaneFormat::bf16 ? 0x1p-126F - 0x1p-135F : 0x1p-14F - 0x1p-26F;

  /// Requires: exact, or rounded to odd, or from operations on two numbers of the format.
  static HEADROOM_VECTOR_INLINE Float round(const Float& x) {
    if constexpr (native) {
      return x;
    } else {
      Float y;
      if constexpr (format == LaneFormat::bf16) {
        y = V::to_bf16(x);
      } else {
        y = V::to_fp16(x);
      }
      if constexpr (flush) y = V::flush(x, least, y);
      return y;
    }
  }
  /// Of two numbers of the format. 24 >= 2 p + 2 (S. Figueroa, When is double rounding innocuous,
  /// SIGNUM 1995); sums that underflow are exact.
  static HEADROOM_VECTOR_INLINE Float add_own(const Float& a, const Float& b) {
    return round(V::add(a, b));
  }
  static HEADROOM_VECTOR_INLINE Float add(const Float& a, const Float& b) {
    if constexpr (native) return V::add(a, b);
    return round(V::odd_add(a, b));
  }
  static HEADROOM_VECTOR_INLINE Float multiply(const Float& a, const Float& b) {
    if constexpr (native) return V::mul(a, b);
    return round(V::odd_mul(a, b));
  }
  static HEADROOM_VECTOR_INLINE Float divide(const Float& a, const Float& b) {
    if constexpr (native) return V::div(a, b);
    return round(V::odd_div(a, b));
  }
  template <Products products>
  static HEADROOM_VECTOR_INLINE Float step(const Float& sum, const Float& a, const Float& b) {
    if constexpr (products == Products::fused) {
      if constexpr (native) return V::fma(a, b, sum);
      return round(V::odd_fma(a, b, sum));
    } else if constexpr (products == Products::exact) {
      return add_own(sum, round(V::mul(a, b)));
    } else {
      return add_own(sum, multiply(a, b));
    }
  }
};

template <typename V, LaneFormat format, bool flush, Products kind>
struct StageLoopsOf {
  using S = LaneStage<V, format, flush>;
  using Float = typename V::Float;

  template <int block>
  static HEADROOM_VECTOR_INLINE void score_block(const ScoreArgs& a, std::int64_t row,
                                                 std::int64_t key) {
    const std::int64_t d = a.channels;
    const float* k = a.k + key * d;
    const float* q = a.q + row;
    Float sum[block];
    for (int u = 0; u < block; ++u) sum[u] = V::set(0);
    for (std::int64_t i = 0; i < a.n_chains; ++i) {
      const ScoreChain chain = a.chains[i];
      Float part[block];
      for (int u = 0; u < block; ++u) part[u] = V::set(0);
      for (std::int64_t t = chain.begin; t < chain.end; t += chain.step) {
        const Float x = V::load(q + t * a.stride);
        for (int u = 0; u < block; ++u) {
          part[u] = S::template step<kind>(part[u], x, V::set(k[u * d + t]));
        }
      }
      if (i == 0 && !a.from_zero) {
        for (int u = 0; u < block; ++u) sum[u] = part[u];
      } else {
        for (int u = 0; u < block; ++u) sum[u] = S::add_own(sum[u], part[u]);
      }
    }
    if (a.factor != 1) {
      const Float factor = V::set(a.factor);
      for (int u = 0; u < block; ++u) sum[u] = S::multiply(sum[u], factor);
    }
    if (!a.store.identity) {
      for (int u = 0; u < block; ++u) sum[u] = V::narrow(a.store, sum[u]);
    }
    for (int u = 0; u < block; ++u) V::store(a.scores + (key + u) * a.stride + row, sum[u]);
  }

  static void scores(const ScoreArgs& a) {
    for (std::int64_t row = 0; row < a.stride; row += lane_group) {
      std::int64_t key = 0;
      constexpr int block = V::key_block;
      for (; key + block <= a.keys; key += block) score_block<block>(a, row, key);
      for (; key < a.keys; ++key) score_block<1>(a, row, key);
    }
  }

  template <int block>
  static HEADROOM_VECTOR_INLINE void product_block(const ProductArgs& a, std::int64_t row,
                                                   std::int64_t channel) {
    const float* start = a.start + channel * a.start_stride + row;
    float* out = a.sum + channel * a.stride + row;
    Float sum[block];
    for (int u = 0; u < block; ++u) sum[u] = V::load(start + u * a.start_stride);
    const float *p = a.p + row, *v = a.v + channel;
    const std::int64_t p_step = a.step * a.stride, v_step = a.step * a.v_stride;
    for (std::int64_t j = 0; j < a.terms; ++j, p += p_step, v += v_step) {
      const Float x = V::load(p);
      for (int u = 0; u < block; ++u) {
        sum[u] = S::template step<kind>(sum[u], x, V::set(v[u]));
      }
    }
    if (a.join) {
      for (int u = 0; u < block; ++u) sum[u] = S::add_own(V::load(out + u * a.stride), sum[u]);
    }
    for (int u = 0; u < block; ++u) V::store(out + u * a.stride, sum[u]);
  }

  static void products(const ProductArgs& a) {
    for (std::int64_t row = 0; row < a.stride; row += lane_group) {
      std::int64_t channel = 0;
      constexpr int block = V::channel_block;
      for (; channel + block <= a.channels; channel += block) {
        product_block<block>(a, row, channel);
      }
      for (; channel < a.channels; ++channel) product_block<1>(a, row, channel);
    }
  }

  static void terms(const TermArgs& a) {
    const Float one = V::set(1);
    for (std::int64_t row = 0; row < a.stride; row += lane_group) {
      Float sum = V::load(a.start + row);
      const float* p = a.p + row;
      for (std::int64_t j = 0; j < a.terms; ++j, p += a.step * a.stride) {
        Float x = V::load(p);
        if (a.least > 0) x = V::flush(x, a.least, x);
        if constexpr (kind == Products::fused) {
          sum = S::add(sum, x);
        } else if constexpr (S::native) {
          sum = V::add(sum, V::mul(x, one));  // under FTZ a subnormal term is lost
        } else {
          sum = S::add_own(sum, S::round(x));
        }
      }
      if (a.join) sum = S::add_own(V::load(a.sum + row), sum);
      V::store(a.sum + row, sum);
    }
  }

  static void add(const float* a, const float* b, float* sum, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += lane_group) {
      V::store(sum + i, S::add_own(V::load(a + i), V::load(b + i)));
    }
  }

  static void scale(float* x, std::int64_t channels, std::int64_t stride, const float* factor) {
    const Float one = V::set(1);
    for (std::int64_t row = 0; row < stride; row += lane_group) {
      const Float f = V::load(factor + row);
      if (V::all_equal(f, one)) continue;
      for (std::int64_t c = 0; c < channels; ++c) {
        float* at = x + c * stride + row;
        const Float old = V::load(at);
        V::store(at, V::where_equal(f, one, old, S::multiply(old, f)));
      }
    }
  }

  static void divide(float* x, std::int64_t channels, std::int64_t stride, const float* divisor) {
    for (std::int64_t row = 0; row < stride; row += lane_group) {
      const Float l = V::load(divisor + row);
      for (std::int64_t c = 0; c < channels; ++c) {
        float* at = x + c * stride + row;
        V::store(at, S::divide(V::load(at), l));
      }
    }
  }

  static constexpr StageLoops loops{scores, products, terms, add, scale, divide};
};

/// Everything of LaneKernels for one vector type.
template <typename V>
struct LaneLoops {
  using Float = typename V::Float;

  template <LaneFormat format, bool flush>
  static const StageLoops& with_products(Products products) {
    switch (products) {
      case Products::fused:
        return StageLoopsOf<V, format, flush, Products::fused>::loops;
      case Products::exact:
        if constexpr (format != LaneFormat::fp32) {
          return StageLoopsOf<V, format, flush, Products::exact>::loops;
        }
        break;
      case Products::rounded:
        break;
    }
    return StageLoopsOf<V, format, flush, Products::rounded>::loops;
  }
  static const StageLoops& stage(const Format& format, bool flush, Products products) {
    if (format == bf16) {
      return flush ? with_products<LaneFormat::bf16, true>(products)
                   : with_products<LaneFormat::bf16, false>(products);
    }
    if (format == fp16) {
      return flush ? with_products<LaneFormat::fp16, true>(products)
                   : with_products<LaneFormat::fp16, false>(products);
    }
    return with_products<LaneFormat::fp32, false>(products);
  }

  static HEADROOM_VECTOR_INLINE Float exponent(const ExponentArgs& a, const Float& score,
                                               const Float& factor, const Float& minus_shift) {
    if (a.native) {
      if (a.factor == 1) return V::add(score, minus_shift);
      return a.fused ? V::fma(score, factor, minus_shift)
                     : V::add(V::mul(score, factor), minus_shift);
    }
    if (a.factor == 1) return V::narrow(a.format, V::odd_add(score, minus_shift));
    if (a.fused) return V::narrow(a.format, V::odd_fma(score, factor, minus_shift));
    const Float z = V::narrow(a.format, V::odd_mul(score, factor));
    return V::narrow(a.format, V::odd_add(z, minus_shift));
  }
  static void exponents(const ExponentArgs& a) {
    const Float factor = V::set(a.factor);
    for (std::int64_t row = 0; row < a.stride; row += lane_group) {
      const Float minus_shift = V::negate(V::load(a.shift + row));
      for (std::int64_t i = row; i < a.keys * a.stride; i += a.stride) {
        V::store(a.exponents + i, exponent(a, V::load(a.scores + i), factor, minus_shift));
      }
    }
  }

  /// `use(i)` for groups from 0, then for the last, partial one in a copy.
  template <typename Use>
  static HEADROOM_VECTOR_INLINE void in_place(float* x, std::int64_t n, const Use& use) {
    std::int64_t i = 0;
    for (; i + lane_group <= n; i += lane_group) V::store(x + i, use(V::load(x + i)));
    if (i == n) return;
    float rest[lane_group] = {};
    std::copy(x + i, x + n, rest);
    V::store(rest, use(V::load(rest)));
    std::copy(rest, rest + (n - i), x + i);
  }

  static void narrow(const Narrowing& format, const float* x, float* y, std::int64_t n) {
    if (format.identity) {
      if (x != y) std::copy(x, x + n, y);
      return;
    }
    const bool plain = format.flushed == 0 && format.over == infinity_bits;
    if (plain && format.shift == 16) {
      for (std::int64_t i = 0; i < n; i += lane_group) V::store(y + i, V::to_bf16(V::load(x + i)));
    } else if (plain && format.shift == 13 && format.normal != 0) {
      for (std::int64_t i = 0; i < n; i += lane_group) V::store(y + i, V::to_fp16(V::load(x + i)));
    } else {
      for (std::int64_t i = 0; i < n; i += lane_group) {
        V::store(y + i, V::narrow(format, V::load(x + i)));
      }
    }
  }
  static void flush(float least, float* x, std::int64_t n) {
    in_place(x, n, [&](const Float& a) HEADROOM_VECTOR_LAMBDA { return V::flush(a, least, a); });
  }
  static void widen_bf16(const std::uint16_t* words, float* x, std::int64_t n) {
    widen(words, x, n,
          [](const std::uint16_t* p) HEADROOM_VECTOR_LAMBDA { return V::widen_bf16(p); });
  }
  static void widen_fp16(const std::uint16_t* words, float* x, std::int64_t n) {
    widen(words, x, n,
          [](const std::uint16_t* p) HEADROOM_VECTOR_LAMBDA { return V::widen_fp16(p); });
  }
  template <typename Convert>
  static HEADROOM_VECTOR_INLINE void widen(const std::uint16_t* words, float* x, std::int64_t n,
                                           const Convert& convert) {
    std::int64_t i = 0;
    for (; i + lane_group <= n; i += lane_group) V::store(x + i, convert(words + i));
    if (i == n) return;
    std::uint16_t rest[lane_group] = {};
    float wide[lane_group];
    std::copy(words + i, words + n, rest);
    V::store(wide, convert(rest));
    std::copy(wide, wide + (n - i), x + i);
  }
  static void fold(float constant, const Narrowing& arithmetic, const Narrowing& operand, float* x,
                   std::int64_t n) {
    const Float c = V::set(constant);
    in_place(x, n, [&](const Float& a) HEADROOM_VECTOR_LAMBDA {
      Float y = arithmetic.identity ? V::mul(a, c) : V::narrow(arithmetic, V::odd_mul(a, c));
      if (!operand.identity) y = V::narrow(operand, y);
      return y;
    });
  }
  static void column_sums(const float* x, std::int64_t rows, std::int64_t columns, float* sum) {
    std::fill(sum, sum + columns, 0.0F);
    std::int64_t c = 0;
    for (; c + lane_group <= columns; c += lane_group) {
      Float total = V::set(0);
      for (std::int64_t j = 0; j < rows; ++j) total = V::add(total, V::load(x + j * columns + c));
      V::store(sum + c, total);
    }
    for (std::int64_t j = 0; j < rows; ++j) {
      for (std::int64_t i = c; i < columns; ++i) sum[i] += x[j * columns + i];
    }
  }
  static void centre(const float* mean, const Narrowing& format, float* x, std::int64_t rows,
                     std::int64_t columns) {
    for (std::int64_t c = 0; c < columns; c += lane_group) {
      const std::int64_t n = std::min(lane_group, columns - c);
      float part[lane_group] = {};
      std::copy(mean + c, mean + c + n, part);
      const Float minus_mean = V::negate(V::load(part));
      for (std::int64_t j = 0; j < rows; ++j) {
        in_place(x + j * columns + c, n, [&](const Float& a) HEADROOM_VECTOR_LAMBDA {
          return format.identity ? V::add(a, minus_mean)
                                 : V::narrow(format, V::odd_add(a, minus_mean));
        });
      }
    }
  }
  static void transpose(const float* x, std::int64_t rows, std::int64_t columns, float* y,
                        std::int64_t stride) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) y[c * stride + r] = x[r * columns + c];
    }
    for (std::int64_t c = 0; c < columns; ++c) {
      std::fill(y + c * stride + rows, y + (c + 1) * stride, 0.0F);
    }
  }
  static void deliver(const Narrowing& format, const float* x, std::int64_t stride,
                      std::int64_t rows, std::int64_t columns, float* y) {
    for (std::int64_t r = 0; r < rows; r += lane_group) {
      const std::int64_t n = std::min(lane_group, rows - r);
      for (std::int64_t c = 0; c < columns; ++c) {
        Float a = V::load(x + c * stride + r);
        if (!format.identity) a = V::narrow(format, a);
        float lanes[lane_group];
        V::store(lanes, V::canonical(a));
        for (std::int64_t i = 0; i < n; ++i) y[(r + i) * columns + c] = lanes[i];
      }
    }
  }

  /// x = 2^e m with m from sqrt(1/2) to sqrt(2), nearly: log m = 2 artanh(s), s = (m - 1) / (m + 1)
  /// and |s| < 0.172. Eleven terms leave out less than s^22 / 23 of log m, below 2^-60; e log(2) is
  /// at least twice log m in magnitude, so that rounding errs by a few units of 2^-52.
  static void logarithms(bool base_two, const float* x, double* y, std::int64_t n) {
    constexpr double ln_2 = 0x1.62e42fefa39efp-1, log2_e = 0x1.71547652b82fep0;
    const double unit = base_two ? log2_e : 1.0, octave = base_two ? 1.0 : ln_2;
    for (std::int64_t i = 0; i < n; ++i) {
      const auto wide = static_cast<double>(x[i]);
      std::uint64_t bits;
      std::memcpy(&bits, &wide, sizeof bits);
      // 0x3fe6a09e... is sqrt(1/2)
      const std::uint64_t shifted = bits - 0x3fe6a09e00000000U;
      const auto exponent = static_cast<std::int32_t>(static_cast<std::int64_t>(shifted) >> 52);
      const std::uint64_t significand = (shifted & 0x000fffffffffffffU) + 0x3fe6a09e00000000U;
      double m;
      std::memcpy(&m, &significand, sizeof m);
      const double s = (m - 1) / (m + 1), z = s * s;
      double tail = 1.0 / 23;
      for (const double term : {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9,
                                1.0 / 7, 1.0 / 5, 1.0 / 3}) {
        tail = tail * z + term;
      }
      const double log_m = 2 * s + 2 * s * (z * tail);
      y[i] = static_cast<double>(exponent) * octave + log_m * unit;
    }
  }

  static constexpr LaneKernels kernels{stage,      exponents,  narrow,  flush,
                                       widen_bf16, widen_fp16, fold,    column_sums,
                                       centre,     transpose,  deliver, logarithms};
};

}  // namespace HEADROOM_VECTOR_FLAGS
}  // namespace headroom
