// The loops of kernels.h over one Simd; included by one translation unit per instruction set.
#pragma once

#include <type_traits>

#include "reference/evaluate/ladder/kernels.h"
#include "reference/evaluate/vector/exp2.h"
#include "reference/evaluate/vector/log2.h"
#include "reference/evaluate/vector/quotient.h"

#if defined(HEADROOM_VECTOR_AVX512) || defined(HEADROOM_VECTOR_AVX2)
#define HEADROOM_VECTOR_EIGHT 1
#endif

namespace headroom {
inline namespace HEADROOM_VECTOR_FLAGS {

/// `Vectors` registers of rows a panel, `Keys` keys at a time in the score product.
template <class Simd, int Vectors, int Keys>
struct LadderLoops {
  using Double = typename Simd::Double;
  static constexpr int lanes = Simd::lanes;
  static constexpr std::int64_t rows = lanes * Vectors;
  static_assert(rows <= most_panel_rows && tile_keys % Keys == 0 && tile_keys % weight_chain == 0);

  /// a b + c: fused where the instruction exists, else two roundings (the product of two operands
  /// is exact, so in `scores` it makes no difference).
  static HEADROOM_VECTOR_INLINE Double multiply_add(Double a, Double b, Double c) {
    if constexpr (lanes == 1) {
      return Simd::add(Simd::mul(a, b), c);
    } else {
      return Simd::fma(a, b, c);
    }
  }

  /// Calls `f` with the kind of words as a compile-time constant.
  template <class F>
  static HEADROOM_VECTOR_INLINE void with_words(Words words, const F& f) {
    switch (words) {
      case Words::bf16:
        return f(std::integral_constant<Words, Words::bf16>{});
      case Words::fp16:
        return f(std::integral_constant<Words, Words::fp16>{});
      case Words::fp32:
        return f(std::integral_constant<Words, Words::fp32>{});
    }
  }
  static constexpr std::int64_t bytes_of(Words words) { return words == Words::fp32 ? 4 : 2; }

  static void convert(Words words, const std::byte* from, std::int64_t count, double* to) {
    with_words(words, [&](auto kind) {
      std::int64_t i = 0;
#ifdef HEADROOM_VECTOR_EIGHT
      for (; i + 8 <= count; i += 8) store_eight(to + i, eight<kind()>(from, i));
#endif
      for (; i < count; ++i) to[i] = convert_one(kind, from, i);
    });
  }

  static void convert_values(Words words, const std::byte* from, std::int64_t count, double* to) {
    constexpr std::int64_t group = tile_keys * channel_group;
    with_words(words, [&](auto kind) {
      std::int64_t i = 0;
#ifdef HEADROOM_VECTOR_EIGHT
      static_assert(channel_group == 4);
      for (; i + 8 <= count; i += 8) {
        const __m256 f = eight<kind()>(from, i);
        _mm256_storeu_pd(to + i / 4 * group, _mm256_cvtps_pd(_mm256_castps256_ps128(f)));
        _mm256_storeu_pd(to + (i / 4 + 1) * group, _mm256_cvtps_pd(_mm256_extractf128_ps(f, 1)));
      }
#endif
      for (; i < count; ++i) {
        to[i / channel_group * group + i % channel_group] = convert_one(kind, from, i);
      }
    });
  }

  static void measure_words(Words words, const std::byte* from, std::int64_t count, double* squares,
                            double* least) {
    with_words(words, [&](auto kind) {
      constexpr Words w = kind();
      std::int64_t i = 0;
      double sum = 0;
      // least |code| less 1, so that zeros wrap around to the top
      std::uint32_t least_code = ~std::uint32_t{0};
#ifdef HEADROOM_VECTOR_EIGHT
      constexpr int parts = 8 / lanes;
      Double s[parts];
      for (int n = 0; n < parts; ++n) s[n] = Simd::set(0.0);
      __m256i small = _mm256_set1_epi32(-1);
      for (; i + 8 <= count; i += 8) {
        const __m256 f = eight<w>(from, i);
        Double x[parts];
        widen_eight(f, x);
#pragma GCC unroll 2
        for (int n = 0; n < parts; ++n) s[n] = multiply_add(x[n], x[n], s[n]);
        if constexpr (w == Words::fp32) {
          small = _mm256_min_epu32(small, less_one(_mm256_castps_si256(f)));
        } else {
          const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i));
          const __m128i m =
              _mm_sub_epi16(_mm_and_si128(x, _mm_set1_epi16(0x7fff)), _mm_set1_epi16(1));
          small = _mm256_castsi128_si256(_mm_min_epu16(_mm256_castsi256_si128(small), m));
        }
      }
      double sums[lanes];
      for (int n = 0; n < parts; ++n) {
        Simd::store(sums, s[n]);
        for (int m = 0; m < lanes; ++m) sum += sums[m];
      }
      if constexpr (w == Words::fp32) {
        std::uint32_t codes[8];
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), small);
        for (const std::uint32_t c : codes) least_code = c < least_code ? c : least_code;
      } else {
        std::uint16_t codes[8];
        _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm256_castsi256_si128(small));
        for (const std::uint16_t c : codes) {
          if (c != 0xffff && c < least_code) least_code = c;
        }
      }
#endif
      for (; i < count; ++i) {
        const double x = convert_one(w, from, i);
        sum += x * x;
        std::uint32_t code = 0;
        std::memcpy(&code, from + bytes_of(w) * i, bytes_of(w));
        code &= w == Words::fp32 ? 0x7fffffffU : 0x7fffU;
        if (code != 0 && code - 1 < least_code) least_code = code - 1;
      }
      *squares = sum;
      *least = __builtin_inf();
      if (least_code != ~std::uint32_t{0}) {
        const std::uint32_t code = least_code + 1;
        std::byte bytes[4];
        std::memcpy(bytes, &code, 4);
        *least = convert_one(w, bytes, 0);
      }
    });
  }

  static void absorb_words(Words words, const std::byte* from, std::int64_t count, double* most,
                           double* squares) {
    with_words(words, [&](auto kind) {
      std::int64_t c = 0;
#ifdef HEADROOM_VECTOR_EIGHT
      for (; c + 8 <= count; c += 8) {
        Double v[8 / lanes];
        widen_eight(eight<kind()>(from, c), v);
#pragma GCC unroll 2
        for (int n = 0; n < 8 / lanes; ++n) {
          absorb_pack(v[n], most + c + n * lanes, squares + c + n * lanes);
        }
      }
#endif
      for (; c < count; ++c) absorb_one(convert_one(kind, from, c), most + c, squares + c);
    });
  }

  static void measure(const double* x, std::int64_t count, double* squares, double* least,
                      double* most) {
    const Double infinity = Simd::set(__builtin_inf()), zero = Simd::set(0.0);
    Double sum = zero, small = infinity, large = zero, sum_2 = zero, small_2 = infinity,
           large_2 = zero;
    const auto take = [&](const double* at, Double& s, Double& least_of, Double& most_of) {
      const Double a = Simd::abs(Simd::load(at));
      s = multiply_add(a, a, s);
      least_of = Simd::min(least_of, Simd::select(Simd::equal(a, zero), infinity, a));
      most_of = Simd::max(most_of, a);
    };
    std::int64_t i = 0;
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
      take(x + i, sum, small, large);
      take(x + i + lanes, sum_2, small_2, large_2);
    }
    for (; i + lanes <= count; i += lanes) take(x + i, sum, small, large);
    sum = Simd::add(sum, sum_2);
    small = Simd::min(small, small_2);
    large = Simd::max(large, large_2);
    double sums[lanes], smalls[lanes], larges[lanes];
    Simd::store(sums, sum);
    Simd::store(smalls, small);
    Simd::store(larges, large);
    *squares = 0;
    *least = __builtin_inf();
    *most = 0;
    for (int n = 0; n < lanes; ++n) {
      *squares += sums[n];
      *least = smalls[n] < *least ? smalls[n] : *least;
      *most = larges[n] > *most ? larges[n] : *most;
    }
    for (; i < count; ++i) {
      const double a = __builtin_fabs(x[i]);
      *squares += a * a;
      *least = a != 0 && a < *least ? a : *least;
      *most = a > *most ? a : *most;
    }
  }

  static void absorb(const double* v, std::int64_t count, double* most, double* squares) {
    std::int64_t c = 0;
    for (; c + lanes <= count; c += lanes) absorb_pack(Simd::load(v + c), most + c, squares + c);
    for (; c < count; ++c) absorb_one(v[c], most + c, squares + c);
  }

  static void split(const double* x, std::int64_t count, double sigma, double* high, double* low) {
    const Double s = Simd::set(sigma);
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      const Double a = Simd::load(x + i);
      const Double h = Simd::sub(Simd::add(a, s), s);
      Simd::store(high + i, h);
      Simd::store(low + i, Simd::sub(a, h));
    }
    for (; i < count; ++i) {
      const double h = (x[i] + sigma) - sigma;
      high[i] = h;
      low[i] = x[i] - h;
    }
  }

  static void scores(const double* q, const double* k, std::int64_t k_stride, std::int64_t channels,
                     std::int64_t keys, double* s) {
    for (std::int64_t j = 0; j < keys; j += Keys) {
      const double* key = k + j * k_stride;
      Double a[Keys][Vectors];
#pragma GCC unroll 16
      for (int i = 0; i < Keys; ++i) {
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) a[i][v] = Simd::set(0.0);
      }
      for (std::int64_t t = 0; t < channels; ++t) {
        Double x[Vectors];
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) x[v] = Simd::load(q + t * rows + v * lanes);
#pragma GCC unroll 16
        for (int i = 0; i < Keys; ++i) {
          const Double b = Simd::set(key[i * k_stride + t]);
#pragma GCC unroll 8
          for (int v = 0; v < Vectors; ++v) a[i][v] = multiply_add(b, x[v], a[i][v]);
        }
      }
#pragma GCC unroll 16
      for (int i = 0; i < Keys; ++i) {
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) {
          Simd::store(s + (j + i) * rows + v * lanes, a[i][v]);
        }
      }
    }
  }

  struct Constants {
    Exp2Constants<Simd> exp2;
    Double c_hi, c_lo, cap_hi, cap_lo;
    explicit Constants(const ExponentArgs& args)
        : c_hi(Simd::set(args.c_hi)),
          c_lo(Simd::set(args.c_lo)),
          cap_hi(Simd::set(args.cap_hi)),
          cap_lo(Simd::set(args.cap_lo)) {}
  };
  struct Exponent {
    Double head, tail;
  };

  /// Error account (T = |head| + |bias| log2(e), u = 2^-53):
  ///   product   tail is off by u |tail| <= 2u^2 T, c by 2^-104: together 2^-103 T;
  ///   bias      the same for the second product; the two tails and the error of the sum of heads
  ///             add with two roundings of numbers below 2^-51 T: together below 2^-101 T;
  ///   softcap   stated in vector_rung.cpp.
  ///   low       s + low is normalised by TwoSum, so it only adds the rounding of c_hi low to
  ///             the tail, again of a number below 2^-51 T.
  template <bool split, bool capped, bool biased>
  static HEADROOM_VECTOR_INLINE Exponent exponent(const Constants& k, const double* s,
                                                  const double* low, const double* bias) {
    Exponent t;
    Double x = Simd::load(s), x_low = Simd::set(0.0);
    if constexpr (split) {
      const Double y = Simd::load(low);
      const Double sum = Simd::add(x, y);
      const Double part = Simd::sub(sum, x);
      x_low = Simd::add(Simd::sub(x, Simd::sub(sum, part)), Simd::sub(y, part));
      x = sum;
    }
    if constexpr (capped) {
      // tanh |u| = (1 - E) / (1 + E), E = 2^-w; beyond w = 200 it is 1 to 2^-199
      const Double a = Simd::abs(x);  // the low part, below 2^-53 |x|, is in the account
      const Double limit = Simd::set(200.0);
      const Double head = Simd::mul(k.c_hi, a);
      const Double tail = Simd::fma(k.c_lo, a, Simd::fms(k.c_hi, a, head));
      const auto small = Simd::less(head, limit);
      const Double w = Simd::select(small, head, limit);
      const Double w_tail = Simd::select(small, tail, Simd::set(0.0));
      const Double e =
          exp2_reduced<Simd>(k.exp2, negate<Simd>(w), negate<Simd>(w_tail), Simd::set(0.0));
      const Double one = Simd::set(1.0);
      Double q = Simd::div(Simd::sub(one, e), Simd::add(one, e));
      q = Simd::select(Simd::less(x, Simd::set(0.0)), negate<Simd>(q), q);
      t.head = Simd::mul(k.cap_hi, q);
      t.tail = Simd::fma(k.cap_lo, q, Simd::fms(k.cap_hi, q, t.head));
    } else {
      t.head = Simd::mul(k.c_hi, x);
      t.tail = Simd::fma(k.c_lo, x, Simd::fms(k.c_hi, x, t.head));
      if constexpr (split) t.tail = Simd::fma(k.c_hi, x_low, t.tail);
    }
    if constexpr (biased) {
      const Double b = Simd::load(bias);
      const Double hi = Simd::set(log2_e_hi);
      const Double b_head = Simd::mul(hi, b);
      const Double b_tail = Simd::fma(Simd::set(log2_e_lo), b, Simd::fms(hi, b, b_head));
      // TwoSum (Knuth): sum + error exactly
      const Double sum = Simd::add(t.head, b_head);
      const Double part = Simd::sub(sum, t.head);
      const Double error =
          Simd::add(Simd::sub(t.head, Simd::sub(sum, part)), Simd::sub(b_head, part));
      t.tail = Simd::add(Simd::add(t.tail, b_tail), error);
      t.head = sum;
    }
    return t;
  }

  template <bool split, bool capped, bool biased, bool masked>
  static void greatest_in(const ExponentArgs& args, const double* s, std::int64_t keys,
                          double* greatest) {
    const Constants k(args);
    const Double lowest = Simd::set(-__builtin_inf());
    for (int v = 0; v < Vectors; ++v) {
      Double most = lowest;
      for (std::int64_t j = 0; j < keys; ++j) {
        const std::int64_t at = j * rows + v * lanes;
        Double head = exponent<split, capped, biased>(k, s + at, split ? args.low + at : nullptr,
                                                      biased ? args.bias + at : nullptr)
                          .head;
        if constexpr (masked) {
          const auto seen = Simd::less(Simd::set(0.0), Simd::load(args.visible + at));
          head = Simd::select(seen, head, lowest);
        }
        most = Simd::max(most, head);
      }
      Simd::store(greatest + v * lanes, most);
    }
  }

  template <bool split, bool capped, bool biased, bool masked>
  static void weights_in(const ExponentArgs& args, double* s, std::int64_t keys,
                         PanelState* state) {
    const Constants k(args);
    const Double zero = Simd::set(0.0);
    for (int v = 0; v < Vectors; ++v) {
      const Double shift = Simd::load(state->shift + v * lanes);
      Double most = Simd::load(state->greatest + v * lanes);
      Double squares = Simd::load(state->squares + v * lanes);
      Double sum = zero;
      for (std::int64_t first = 0; first < keys; first += weight_chain) {
        Double chain = zero;
        const std::int64_t last = first + weight_chain < keys ? first + weight_chain : keys;
        for (std::int64_t j = first; j < last; ++j) {
          const std::int64_t at = j * rows + v * lanes;
          Exponent t = exponent<split, capped, biased>(k, s + at, split ? args.low + at : nullptr,
                                                       biased ? args.bias + at : nullptr);
          Double w = exp2_reduced<Simd>(k.exp2, t.head, t.tail, shift);
          if constexpr (masked) {
            const auto seen = Simd::less(zero, Simd::load(args.visible + at));
            t.head = Simd::select(seen, t.head, Simd::set(-__builtin_inf()));
            w = Simd::select(seen, w, zero);
          }
          most = Simd::max(most, t.head);
          Simd::store(s + at, w);
          chain = Simd::add(chain, w);
          squares = multiply_add(w, w, squares);
        }
        sum = Simd::add(sum, chain);
      }
      for (std::int64_t j = keys; j < tile_keys; ++j) Simd::store(s + j * rows + v * lanes, zero);
      Simd::store(state->greatest + v * lanes, most);
      Simd::store(state->squares + v * lanes, squares);
      Simd::store(state->sum + v * lanes, Simd::add(sum, Simd::load(state->sum + v * lanes)));
    }
  }

  template <bool masked>
  static void short_weights_in(const ExponentArgs& args, double* s, std::int64_t keys,
                               PanelState* state) {
    // powers at once, from neighbouring registers and then from neighbouring keys: so many that
    // latencies overlap, as far as the register file goes
    constexpr int across = Vectors;
    constexpr int down = lanes == 8 ? (Vectors < 4 ? 4 / Vectors : 1) : 1;
    static_assert(weight_chain % down == 0 && tile_keys % down == 0);
    const typename Simd::Table16 table = Simd::load_table(exp2_short_table.entry);
    const Double c_hi = Simd::set(args.c_hi), c_lo = Simd::set(args.c_lo), zero = Simd::set(0.0);
    constexpr int count = across * down;
    Double squares[across], sum[across], chain[across];
#pragma GCC unroll 8
    for (int v = 0; v < across; ++v) {
      squares[v] = Simd::load(state->squares + v * lanes);
      sum[v] = zero;
    }
    // whole steps: what they make of scores beyond the last key is replaced by 0
    const std::int64_t padded = (keys + down - 1) / down * down;
    for (std::int64_t first = 0; first < padded; first += weight_chain) {
#pragma GCC unroll 8
      for (int v = 0; v < across; ++v) chain[v] = zero;
      const std::int64_t last = first + weight_chain < padded ? first + weight_chain : padded;
      for (std::int64_t j = first; j < last; j += down) {
        double* at = s + j * rows;
        Double x[count], w[count];
#pragma GCC unroll 8
        for (int i = 0; i < count; ++i) x[i] = Simd::load(at + i * lanes);
        exp2_short<Simd, count>(table, c_hi, c_lo, x, w);
#pragma GCC unroll 8
        for (int i = 0; i < count; ++i) {
          if constexpr (masked) {
            const auto seen = Simd::less(zero, Simd::load(args.visible + j * rows + i * lanes));
            w[i] = Simd::select(seen, w[i], zero);
          } else if constexpr (down > 1) {
            if (j + i / across >= keys) w[i] = zero;
          }
          Simd::store(at + i * lanes, w[i]);
          chain[i % across] = Simd::add(chain[i % across], w[i]);
          squares[i % across] = multiply_add(w[i], w[i], squares[i % across]);
        }
      }
#pragma GCC unroll 8
      for (int v = 0; v < across; ++v) sum[v] = Simd::add(sum[v], chain[v]);
    }
    for (std::int64_t i = padded * rows; i < tile_keys * rows; i += lanes) Simd::store(s + i, zero);
#pragma GCC unroll 8
    for (int v = 0; v < across; ++v) {
      Simd::store(state->squares + v * lanes, squares[v]);
      Simd::store(state->sum + v * lanes, Simd::add(sum[v], Simd::load(state->sum + v * lanes)));
    }
  }
  static void short_weights(const ExponentArgs& args, double* s, std::int64_t keys,
                            PanelState* state) {
    if (args.visible != nullptr) {
      short_weights_in<true>(args, s, keys, state);
    } else {
      short_weights_in<false>(args, s, keys, state);
    }
  }

  /// Calls `f` with the four questions about `args` as compile-time constants.
  template <class F>
  static void dispatch(const ExponentArgs& args, const F& f) {
    const auto choose = [](bool question, const auto& next) {
      return question ? next(std::true_type{}) : next(std::false_type{});
    };
    choose(args.low != nullptr, [&](auto split) {
      choose(args.cap_hi != 0, [&](auto capped) {
        choose(args.bias != nullptr, [&](auto biased) {
          choose(args.visible != nullptr, [&](auto masked) { f(split, capped, biased, masked); });
        });
      });
    });
  }
  static void greatest(const ExponentArgs& args, const double* s, std::int64_t keys, double* most) {
    dispatch(args, [&](auto split, auto capped, auto biased, auto masked) {
      greatest_in<split(), capped(), biased(), masked()>(args, s, keys, most);
    });
  }
  static void weights(const ExponentArgs& args, double* s, std::int64_t keys, PanelState* state) {
    dispatch(args, [&](auto split, auto capped, auto biased, auto masked) {
      weights_in<split(), capped(), biased(), masked()>(args, s, keys, state);
    });
  }

  /// Chains of value_chain products, each then added to its sum.
  static void values(const double* p, const double* v_tile, std::int64_t channels4,
                     std::int64_t keys, double* o, double* total) {
    constexpr int width = static_cast<int>(channel_group);
    static_assert(tile_keys % value_chain == 0);
    for (std::int64_t c = 0; c < channels4; c += width) {
      const double* value = v_tile + c * tile_keys;
      for (std::int64_t first = 0; first < keys; first += value_chain) {
        const std::int64_t last = first + value_chain < keys ? first + value_chain : keys;
        Double a[width][Vectors];
#pragma GCC unroll 8
        for (int i = 0; i < width; ++i) {
#pragma GCC unroll 8
          for (int v = 0; v < Vectors; ++v) a[i][v] = Simd::set(0.0);
        }
        for (std::int64_t j = first; j < last; ++j) {
          Double x[Vectors];
#pragma GCC unroll 8
          for (int v = 0; v < Vectors; ++v) x[v] = Simd::load(p + j * rows + v * lanes);
#pragma GCC unroll 8
          for (int i = 0; i < width; ++i) {
            const Double b = Simd::set(value[j * width + i]);
#pragma GCC unroll 8
            for (int v = 0; v < Vectors; ++v) a[i][v] = multiply_add(b, x[v], a[i][v]);
          }
        }
#pragma GCC unroll 8
        for (int i = 0; i < width; ++i) {
#pragma GCC unroll 8
          for (int v = 0; v < Vectors; ++v) {
            double* at = o + (c + i) * rows + v * lanes;
            const Double sum = Simd::add(a[i][v], Simd::load(at));
            if (total != nullptr && last == keys) {
              double* to = total + (c + i) * rows + v * lanes;
              Simd::store(to, Simd::add(Simd::load(to), sum));
              Simd::store(at, Simd::set(0.0));
            } else {
              Simd::store(at, sum);
            }
          }
        }
      }
    }
  }

  static void flush(double* part, double* total, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += lanes) {
      Simd::store(total + i, Simd::add(Simd::load(total + i), Simd::load(part + i)));
      Simd::store(part + i, Simd::set(0.0));
    }
  }

  static void finish(const double* sums, std::int64_t channels, const double* l,
                     const double* l_error, const double* l_bound, const double* p_norm,
                     const double* relative, const double* absolute, const double* vmax,
                     const double* v_norm, const double* extra, double* lo, double* hi) {
    // each of the at most six roundings below loses 2^-53 of a nonnegative sum
    const Double inflate = Simd::set(1 + 0x1p-49);
    for (int v = 0; v < Vectors; ++v) {
      const std::int64_t r = v * lanes;
      const Double l_v = Simd::load(l + r), dl = Simd::load(l_error + r);
      const Double bound = Simd::load(l_bound + r), norm = Simd::load(p_norm + r);
      const Double rel = Simd::load(relative + r), abs = Simd::load(absolute + r);
      for (std::int64_t c = 0; c < channels; ++c) {
        const Double most = Simd::set(vmax[c]);
        const Double mass =
            Simd::min(Simd::mul(bound, most), Simd::mul(norm, Simd::set(v_norm[c])));
        Double error = Simd::add(Simd::mul(rel, mass), Simd::mul(abs, most));
        if (extra != nullptr) error = Simd::add(error, Simd::load(extra + c * rows + r));
        error = Simd::mul(error, inflate);
        const Bounds<Simd> b =
            quotient_bounds<Simd>(Simd::load(sums + c * rows + r), error, l_v, dl);
        Simd::store(lo + c * rows + r, b.lo);
        Simd::store(hi + c * rows + r, b.hi);
      }
    }
  }

  static constexpr LadderKernels kernels(InstructionSet set) {
    return {set,           rows,         convert, convert_values, measure,  measure_words,
            absorb,        absorb_words, split,   scores,         greatest, weights,
            short_weights, values,       flush,   finish};
  }

  static HEADROOM_VECTOR_INLINE float float_of(std::uint32_t bits) {
    float f;
    std::memcpy(&f, &bits, sizeof f);
    return f;
  }
  static HEADROOM_VECTOR_INLINE double convert_one(Words words, const std::byte* from,
                                                   std::int64_t i) {
    if (words == Words::fp32) {
      float f;
      std::memcpy(&f, from + 4 * i, sizeof f);
      return f;
    }
    std::uint16_t w;
    std::memcpy(&w, from + 2 * i, sizeof w);
    if (words == Words::bf16) return float_of(static_cast<std::uint32_t>(w) << 16);
    const std::uint32_t sign = static_cast<std::uint32_t>(w & 0x8000U) << 16;
    const std::uint32_t field = (w >> 10) & 31U, trailing = w & 1023U;
    if (field == 31) return float_of(sign | 0x7f800000U | (trailing << 13));
    if (field != 0) return float_of(sign | ((field + 112) << 23) | (trailing << 13));
    const double magnitude = trailing * 0x1p-24;
    return sign != 0 ? -magnitude : magnitude;
  }
  static HEADROOM_VECTOR_INLINE void absorb_one(double v, double* most, double* squares) {
    const double a = __builtin_fabs(v);
    *most = *most > a ? *most : a;
    *squares += a * a;
  }
  static HEADROOM_VECTOR_INLINE void absorb_pack(Double v, double* most, double* squares) {
    const Double a = Simd::abs(v);
    Simd::store(most, Simd::max(Simd::load(most), a));
    Simd::store(squares, multiply_add(a, a, Simd::load(squares)));
  }
#ifdef HEADROOM_VECTOR_EIGHT
  /// Eight words from word i on, exactly.
  template <Words words>
  static HEADROOM_VECTOR_INLINE __m256 eight(const std::byte* from, std::int64_t i) {
    if constexpr (words == Words::fp32) {
      return _mm256_loadu_ps(reinterpret_cast<const float*>(from + 4 * i));
    } else {
      const __m128i w = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i));
      if constexpr (words == Words::fp16) return _mm256_cvtph_ps(w);
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(w), 16));
    }
  }
  static HEADROOM_VECTOR_INLINE __m256i less_one(__m256i code) {
    return _mm256_sub_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x7fffffff)),
                            _mm256_set1_epi32(1));
  }
  /// Eight floats in 8 / lanes registers.
  static HEADROOM_VECTOR_INLINE void widen_eight(__m256 f, Double* x) {
#ifdef HEADROOM_VECTOR_AVX512
    x[0] = _mm512_maskz_cvtps_pd(0xff, f);
#else
    x[0] = _mm256_cvtps_pd(_mm256_castps256_ps128(f));
    x[1] = _mm256_cvtps_pd(_mm256_extractf128_ps(f, 1));
#endif
  }
  static HEADROOM_VECTOR_INLINE void store_eight(double* to, __m256 f) {
    Double x[8 / lanes];
    widen_eight(f, x);
#pragma GCC unroll 2
    for (int n = 0; n < 8 / lanes; ++n) Simd::store(to + n * lanes, x[n]);
  }
#endif
};

}  // namespace HEADROOM_VECTOR_FLAGS
}  // namespace headroom
