// The sums of matrix units (matrix_unit.h) in vectors of 16 rows, for lane_loops.h.
//
// A step of k products: the largest exponent of the lane's terms is found in integers, every
// product is scaled to units of 2^(largest - F), exactly, cut toward zero to an integer, and the
// integers are added. What FP32 and 32 bits do not hold (the exponents of `lowest` and `highest`,
// infinities, NaN, a sum of 2^31 units) is left to matrix_unit_step, lane by lane.
#pragma once

#include "reference/evaluate/simulate/lanes/matrix_vectors.h"
#include "reference/evaluate/simulate/matrix_unit.h"

namespace headroom {
inline namespace HEADROOM_VECTOR_FLAGS {

template <typename V>
struct MatrixLoops {
  using M = MatrixVectors<V>;
  using Float = typename V::Float;
  using Int = typename M::Int;
  static constexpr int block = V::key_block >= 16 ? 8 : 2;  ///< sums a loop keeps
  /// Largest exponents that are dealt with here. Scales 2^(F - largest) are normal for F <= 30, and
  /// so are results, multiples of 2^(largest - F); what is scaled too low rounds to less than one
  /// unit, which is cut. Above, no product and no sum leaves FP32.
  static constexpr int lowest = -96, highest = 120;

  /// Terms of one step: a[t] of the lanes, b[t] of each sum.
  struct Terms {
    const float* a;  ///< [n][a_step]
    std::int64_t a_step;
    const float* b;  ///< b[t * b_term + u * b_sum]
    std::int64_t b_term, b_sum;
    const std::int32_t* a_exponents;  ///< [n][lane_group]
    const std::int32_t* b_exponents;  ///< as b, but:
    std::int64_t exponent_term, exponent_sum;
    std::int64_t n;
  };

  /// One step of `sums` sums.
  template <int sums>
  static HEADROOM_VECTOR_INLINE void step(const MatrixUnit& unit, const Terms& terms, Float* sum) {
    Int largest[sums];
    unrolled<sums>([&](auto u) HEADROOM_VECTOR_LAMBDA {
      // the accumulator's own format is FP32
      largest[u] = M::exponents(sum[u], -126);
    });
    for (std::int64_t t = 0; t < terms.n; ++t) {
      const Int e = M::load(terms.a_exponents + t * lane_group);
      const std::int32_t* other = terms.b_exponents + t * terms.exponent_term;
      unrolled<sums>([&](auto u) HEADROOM_VECTOR_LAMBDA {
        largest[u] = M::max(largest[u], M::add(e, M::set(other[u * terms.exponent_sum])));
      });
    }
    std::uint32_t left[sums];
    Float scale[sums], weight[sums];
    unrolled<sums>([&](auto u) HEADROOM_VECTOR_LAMBDA {
      const std::uint32_t none = M::above(M::set(no_exponent / 2), largest[u]);
      left[u] =
          M::above(largest[u], M::set(highest)) | (M::above(M::set(lowest), largest[u]) & ~none);
      const Int at = M::max(largest[u], M::set(lowest));
      scale[u] = M::power(M::add(M::minus(at), M::set(unit.fraction_bits)));
      weight[u] = M::power(M::add(at, M::set(-unit.fraction_bits)));
    });
    Int total[sums];
    unrolled<sums>([&](auto u)
                       HEADROOM_VECTOR_LAMBDA { total[u] = M::cut(V::mul(sum[u], scale[u])); });
    const auto add = [&](std::int64_t begin, std::int64_t end, Int* to) HEADROOM_VECTOR_LAMBDA {
      for (std::int64_t t = begin; t < end; ++t) {
        const Float a = V::load(terms.a + t * terms.a_step);
        const float* b = terms.b + t * terms.b_term;
        unrolled<sums>([&](auto u) HEADROOM_VECTOR_LAMBDA {
          const Float product = V::mul(a, V::set(b[u * terms.b_sum]));
          to[u] = M::add(to[u], M::cut(V::mul(product, scale[u])));
        });
      }
    };
    const std::int64_t half = unit.halves() ? (terms.n + 1) / 2 : terms.n;
    add(0, half, total);
    if (half < terms.n) {
      Int second[sums];
      unrolled<sums>([&](auto u) HEADROOM_VECTOR_LAMBDA { second[u] = M::set(0); });
      add(half, terms.n, second);
      unrolled<sums>([&](auto u) HEADROOM_VECTOR_LAMBDA {
        const Int both = M::add(total[u], second[u]);
        left[u] |= M::overflowed(total[u], second[u], both);
        total[u] = both;
      });
    }
    unrolled<sums>([&](auto u) HEADROOM_VECTOR_LAMBDA {
      const Float before = sum[u];
      sum[u] = V::mul(M::cut_to_float(total[u], unit.kept_bits()), weight[u]);
      if (__builtin_expect(left[u] != 0, 0)) by_lane(unit, terms, u, left[u], before, sum[u]);
    });
  }

  static __attribute__((noinline)) void by_lane(const MatrixUnit& unit, const Terms& terms, int u,
                                                std::uint32_t lanes, const Float& before,
                                                Float& sum) {
    float from[lane_group], to[lane_group], a[MatrixUnit::most_terms], b[MatrixUnit::most_terms];
    V::store(from, before);
    V::store(to, sum);
    for (std::int64_t t = 0; t < terms.n; ++t) b[t] = terms.b[t * terms.b_term + u * terms.b_sum];
    for (; lanes != 0; lanes &= lanes - 1) {
      const int lane = __builtin_ctz(lanes);
      for (std::int64_t t = 0; t < terms.n; ++t) a[t] = terms.a[t * terms.a_step + lane];
      float next =
          matrix_unit_step(unit.fraction_bits, a, b, terms.n, from[lane], unit.a_emin, unit.b_emin);
      if (unit.flush_to_zero && std::fabs(next) < 0x1p-126F) {
        next = float_of(bits_of(next) & sign_bit);
      }
      to[lane] = next;
    }
    sum = V::load(to);
  }

  /// Exponents of x[0..n), n at most lane_group.
  static HEADROOM_VECTOR_INLINE void exponents_of(const float* x, std::int64_t n, int emin,
                                                  std::int32_t* e) {
    if (n == lane_group) {
      M::store(e, M::exponents(V::load(x), emin));
    } else {
      for (std::int64_t i = 0; i < n; ++i) e[i] = aligned_exponent(x[i], emin);
    }
  }

  static void scores(const MatrixUnit& unit, const ScoreArgs& args) {
    std::int32_t a[MatrixUnit::most_terms * lane_group];
    std::int32_t b[static_cast<std::size_t>(block) * MatrixUnit::most_terms];
    const std::int64_t d = args.channels;
    for (std::int64_t row = 0; row < args.stride; row += lane_group) {
      // a score without channels is zero
      for (std::int64_t begin = 0; begin < d || begin == 0; begin += unit.size) {
        Terms terms;
        terms.a = args.q + begin * args.stride + row;
        terms.a_step = args.stride;
        terms.n = std::min<std::int64_t>(unit.size, d - begin);
        terms.b_term = 1;
        terms.b_sum = d;
        terms.a_exponents = a;
        terms.b_exponents = b;
        terms.exponent_term = 1;
        terms.exponent_sum = MatrixUnit::most_terms;
        for (std::int64_t t = 0; t < terms.n; ++t) {
          exponents_of(terms.a + t * args.stride, lane_group, unit.a_emin, a + t * lane_group);
        }
        const auto some = [&](auto sums, std::int64_t key) HEADROOM_VECTOR_LAMBDA {
          terms.b = args.k + key * d + begin;
          Float sum[sums];
          for (int u = 0; u < sums; ++u) {
            for (std::int64_t t = 0; t < terms.n; t += lane_group) {
              exponents_of(terms.b + u * d + t, std::min(lane_group, terms.n - t), unit.b_emin,
                           b + u * MatrixUnit::most_terms + t);
            }
          }
          float* to = args.scores + key * args.stride + row;
          unrolled<sums>([&](auto u) HEADROOM_VECTOR_LAMBDA {
            sum[u] = begin == 0 ? V::set(0) : V::load(to + u * args.stride);
          });
          step<sums>(unit, terms, sum);
          unrolled<sums>([&](auto u)
                             HEADROOM_VECTOR_LAMBDA { V::store(to + u * args.stride, sum[u]); });
        };
        std::int64_t key = 0;
        for (; key + block <= args.keys; key += block) {
          some(std::integral_constant<int, block>{}, key);
        }
        for (; key < args.keys; ++key) some(std::integral_constant<int, 1>{}, key);
      }
    }
    if (args.factor == 1 && args.store.identity) return;
    const Float factor = V::set(args.factor);
    for (std::int64_t i = 0; i < args.keys * args.stride; i += lane_group) {
      Float x = V::load(args.scores + i);
      if (args.factor != 1) x = V::mul(x, factor);
      if (!args.store.identity) x = V::narrow(args.store, x);
      V::store(args.scores + i, x);
    }
  }

  /// sum[c] += p[0] v[0][c] + ..., in steps from the first term on.
  static void products(const MatrixUnit& unit, const ProductArgs& args) {
    std::int32_t a[MatrixUnit::most_terms * lane_group];
    std::int32_t b[MatrixUnit::most_terms * lane_group];
    for (std::int64_t row = 0; row < args.stride; row += lane_group) {
      for (std::int64_t begin = 0; begin < args.terms; begin += unit.size) {
        Terms terms;
        terms.a = args.p + begin * args.stride + row;
        terms.a_step = args.stride;
        terms.n = std::min<std::int64_t>(unit.size, args.terms - begin);
        terms.b_term = args.v_stride;
        terms.b_sum = 1;
        terms.a_exponents = a;
        terms.exponent_term = lane_group;
        terms.exponent_sum = 1;
        for (std::int64_t t = 0; t < terms.n; ++t) {
          exponents_of(terms.a + t * args.stride, lane_group, unit.a_emin, a + t * lane_group);
        }
        const auto some = [&](auto sums, std::int64_t channel,
                              std::int64_t first) HEADROOM_VECTOR_LAMBDA {
          terms.b = args.v + begin * args.v_stride + channel;
          terms.b_exponents = b + (channel - first);
          Float sum[sums];
          float* to = args.sum + channel * args.stride + row;
          unrolled<sums>([&](auto u)
                             HEADROOM_VECTOR_LAMBDA { sum[u] = V::load(to + u * args.stride); });
          step<sums>(unit, terms, sum);
          unrolled<sums>([&](auto u)
                             HEADROOM_VECTOR_LAMBDA { V::store(to + u * args.stride, sum[u]); });
        };
        for (std::int64_t first = 0; first < args.channels; first += lane_group) {
          const std::int64_t n = std::min(lane_group, args.channels - first);
          for (std::int64_t t = 0; t < terms.n; ++t) {
            exponents_of(args.v + (begin + t) * args.v_stride + first, n, unit.b_emin,
                         b + t * lane_group);
          }
          std::int64_t channel = first;
          for (; channel + block <= first + n; channel += block) {
            some(std::integral_constant<int, block>{}, channel, first);
          }
          for (; channel < first + n; ++channel) {
            some(std::integral_constant<int, 1>{}, channel, first);
          }
        }
      }
    }
  }
};

}  // namespace HEADROOM_VECTOR_FLAGS
}  // namespace headroom
