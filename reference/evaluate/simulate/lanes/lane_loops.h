// Loops of LaneKernels over vectors of 16 floats, for the one translation unit per instruction set.
#pragma once

#include <algorithm>
#include <utility>

#include "reference/evaluate/simulate/lanes/matrix_loops.h"
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
      if constexpr (native) {
        return V::fma(a, b, sum);
      } else if constexpr (flush) {
        return round(V::odd_fma(a, b, sum));
      } else if constexpr (format == LaneFormat::bf16) {
        return V::fma_bf16(a, b, sum);
      } else {
        return V::fma_fp16(a, b, sum);
      }
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

  /// `width`: the number of channels, so that keys are at constant distances; 0: any.
  template <int block, bool one_chain, int width>
  static HEADROOM_VECTOR_INLINE void score_block(const ScoreArgs& a, std::int64_t row,
                                                 std::int64_t key) {
    const std::int64_t d = width > 0 ? width : a.channels;
    const float* k = a.k + key * d;
    const float* q = a.q + row;
    const auto chain_of = [&](const ScoreChain& chain, Float* part) HEADROOM_VECTOR_LAMBDA {
      unrolled<block>([&](auto u) HEADROOM_VECTOR_LAMBDA { part[u] = V::set(0); });
      for (std::int64_t t = chain.begin; t < chain.end; t += chain.step) {
        const Float x = V::load(q + t * a.stride);
        unrolled<block>([&](auto u) HEADROOM_VECTOR_LAMBDA {
          part[u] = S::template step<kind>(part[u], x, V::set(k[u * d + t]));
        });
      }
    };
    Float sum[block];
    if constexpr (one_chain) {
      chain_of(a.chains[0], sum);
    } else {
      unrolled<block>([&](auto u) HEADROOM_VECTOR_LAMBDA { sum[u] = V::set(0); });
      for (std::int64_t i = 0; i < a.n_chains; ++i) {
        Float part[block];
        chain_of(a.chains[i], part);
        const bool first = i == 0 && !a.from_zero;
        unrolled<block>([&](auto u) HEADROOM_VECTOR_LAMBDA {
          sum[u] = first ? part[u] : S::add_own(sum[u], part[u]);
        });
      }
    }
    const bool from_zero = one_chain && a.from_zero, scaled = a.factor != 1;
    const Float factor = V::set(a.factor);
    unrolled<block>([&](auto u) HEADROOM_VECTOR_LAMBDA {
      Float x = sum[u];
      if (from_zero) x = S::add_own(x, V::set(0));
      if (scaled) x = S::multiply(x, factor);
      if (!a.store.identity) x = V::narrow(a.store, x);
      V::store(a.scores + (key + u) * a.stride + row, x);
    });
  }

  template <bool one_chain, int width>
  static void all_scores(const ScoreArgs& a) {
    for (std::int64_t row = 0; row < a.stride; row += lane_group) {
      std::int64_t key = 0;
      constexpr int block = one_chain ? V::key_block : V::key_block / 2;
      for (; key + block <= a.keys; key += block) score_block<block, one_chain, width>(a, row, key);
      for (; key < a.keys; ++key) score_block<1, one_chain, 0>(a, row, key);
    }
  }
  static void scores(const ScoreArgs& a) {
    if (a.n_chains > 1) return all_scores<false, 0>(a);
    if constexpr (V::key_block >= 16) {  // there are too few registers for so many pointers
      if (a.channels == 16) return all_scores<true, 16>(a);
      if (a.channels == 64) return all_scores<true, 64>(a);
      if (a.channels == 128) return all_scores<true, 128>(a);
    }
    all_scores<true, 0>(a);
  }

  template <int block>
  static HEADROOM_VECTOR_INLINE void product_block(const ProductArgs& a, std::int64_t row,
                                                   std::int64_t channel) {
    const float* start = a.start + channel * a.start_stride + row;
    float* out = a.sum + channel * a.stride + row;
    Float sum[block];
    unrolled<block>([&](auto u)
                        HEADROOM_VECTOR_LAMBDA { sum[u] = V::load(start + u * a.start_stride); });
    const float *p = a.p + row, *v = a.v + channel;
    const std::int64_t p_step = a.step * a.stride, v_step = a.step * a.v_stride;
    for (std::int64_t j = 0; j < a.terms; ++j, p += p_step, v += v_step) {
      const Float x = V::load(p);
      unrolled<block>([&](auto u) HEADROOM_VECTOR_LAMBDA {
        sum[u] = S::template step<kind>(sum[u], x, V::set(v[u]));
      });
    }
    const bool join = a.join;
    unrolled<block>([&](auto u) HEADROOM_VECTOR_LAMBDA {
      if (join) sum[u] = S::add_own(V::load(out + u * a.stride), sum[u]);
      V::store(out + u * a.stride, sum[u]);
    });
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
    float unit = 1;
    asm("" : "+x"(unit));  // else the product, which flushes, is left out
    const Float one = V::set(unit);
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

  static HEADROOM_VECTOR_INLINE Float rounded(const Narrowing& format, const Float& x) {
    if (format.plain_bf16()) return V::to_bf16(x);
    if (format.plain_fp16()) return V::to_fp16(x);
    return V::narrow(format, x);
  }
  static void narrow(const Narrowing& format, const float* x, float* y, std::int64_t n) {
    if (format.identity) {
      if (x != y) std::copy(x, x + n, y);
      return;
    }
    for (std::int64_t i = 0; i < n; i += lane_group) {
      V::store(y + i, rounded(format, V::load(x + i)));
    }
  }
  template <LaneFormat p, bool fused>
  static std::int64_t all_weights(const WeightArgs& w, UnsettledWeight* unsettled) {
    std::int64_t found = 0;
    if constexpr (V::has_power) {
      const typename V::PowerTable table;
      const ExponentArgs& a = w.exponent;
      const Float factor = V::set(a.factor);
      const std::int64_t stride = a.stride, end = a.keys * stride;
      const float *scores = a.scores, *shift = a.shift;
      float *exponentials = a.exponents, *weights = w.weights;
      for (std::int64_t row = 0; row < stride; row += lane_group) {
        const Float minus_shift = V::negate(V::load(shift + row));
        for (std::int64_t i = row; i < end; i += stride) {
          const Float s = V::load(scores + i);
          const Float x =
              fused ? V::fma(s, factor, minus_shift) : V::add(V::mul(s, factor), minus_shift);
          Float y;
          std::uint32_t mask = V::power(table, x, y);
          V::store(exponentials + i, y);
          if constexpr (p != LaneFormat::fp32) {
            V::store(weights + i, LaneStage<V, p, false>::round(y));
          }
          if (__builtin_expect(mask != 0, 0)) {
            float arguments[lane_group];
            V::store(arguments, x);
            for (; mask != 0; mask &= mask - 1) {
              const int lane = __builtin_ctz(mask);
              unsettled[found++] = {i + lane, arguments[lane]};
            }
          }
        }
      }
    }
    return found;
  }
  template <LaneFormat p>
  static std::int64_t weights_of(const WeightArgs& w, UnsettledWeight* unsettled) {
    return w.exponent.fused ? all_weights<p, true>(w, unsettled)
                            : all_weights<p, false>(w, unsettled);
  }
  static std::int64_t weights(const WeightArgs& w, UnsettledWeight* unsettled) {
    if (w.p.identity) return weights_of<LaneFormat::fp32>(w, unsettled);
    return w.p.plain_bf16() ? weights_of<LaneFormat::bf16>(w, unsettled)
                            : weights_of<LaneFormat::fp16>(w, unsettled);
  }
  static void flush(float least, float* x, std::int64_t n) {
    in_place(x, n, [&](const Float& a) HEADROOM_VECTOR_LAMBDA { return V::flush(a, least, a); });
  }
  static void widen_bf16(const std::uint16_t* words, float* x, std::int64_t n) {
    widen(words, x, n,
          [](const std::uint16_t* p) HEADROOM_VECTOR_LAMBDA { return V::widen_bf16(p); });
  }
  static void widen_fp16(const std::uint16_t* words, float* x, std::int64_t n) {
    widen(words, x, n, [](const std::uint16_t* p) HEADROOM_VECTOR_LAMBDA {
      return V::canonical(V::widen_fp16(p));
    });
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
      const Float y = arithmetic.identity ? V::mul(a, c) : rounded(arithmetic, V::odd_mul(a, c));
      return operand.identity || operand.keep == arithmetic.keep ? y : rounded(operand, y);
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
                                 : rounded(format, V::odd_add(a, minus_mean));
        });
      }
    }
  }
  static void transpose(const float* x, std::int64_t rows, std::int64_t columns, float* y,
                        std::int64_t stride) {
    Float block[lane_group];
    for (std::int64_t r = 0; r < stride; r += lane_group) {
      std::int64_t c = 0;
      for (; r + lane_group <= rows && c + lane_group <= columns; c += lane_group) {
        for (int i = 0; i < lane_group; ++i) block[i] = V::load(x + (r + i) * columns + c);
        V::transpose(block);
        for (int i = 0; i < lane_group; ++i) V::store(y + (c + i) * stride + r, block[i]);
      }
      for (; c < columns; ++c) {
        for (std::int64_t i = r; i < r + lane_group; ++i) {
          y[c * stride + i] = i < rows ? x[i * columns + c] : 0;
        }
      }
    }
  }
  static void deliver(const Narrowing& format, const float* x, std::int64_t stride,
                      std::int64_t rows, std::int64_t columns, float* y) {
    const auto result = [&](const float* p) HEADROOM_VECTOR_LAMBDA {
      const Float a = V::load(p);
      return V::canonical(format.identity ? a : rounded(format, a));
    };
    Float block[lane_group];
    for (std::int64_t r = 0; r < rows; r += lane_group) {
      std::int64_t c = 0;
      for (; r + lane_group <= rows && c + lane_group <= columns; c += lane_group) {
        for (int i = 0; i < lane_group; ++i) block[i] = result(x + (c + i) * stride + r);
        V::transpose(block);
        for (int i = 0; i < lane_group; ++i) V::store(y + (r + i) * columns + c, block[i]);
      }
      for (; c < columns; ++c) {
        float lanes[lane_group];
        V::store(lanes, result(x + c * stride + r));
        for (std::int64_t i = r; i < std::min(rows, r + lane_group); ++i) {
          y[i * columns + c] = lanes[i - r];
        }
      }
    }
  }
  static void look_up(bool words_of_bf16, const float* table, float* x, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += lane_group) {
      const Float code = V::load(x + i);
      V::store(x + i, words_of_bf16 ? V::look_up_bf16(table, code) : V::look_up_fp16(table, code));
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

  static constexpr LaneKernels kernels{stage,
                                       MatrixLoops<V>::scores,
                                       MatrixLoops<V>::products,
                                       exponents,
                                       V::has_power ? weights : nullptr,
                                       narrow,
                                       flush,
                                       widen_bf16,
                                       widen_fp16,
                                       fold,
                                       column_sums,
                                       centre,
                                       transpose,
                                       deliver,
                                       look_up,
                                       logarithms};
};

}  // namespace HEADROOM_VECTOR_FLAGS
}  // namespace headroom
