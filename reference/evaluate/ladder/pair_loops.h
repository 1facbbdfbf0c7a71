// The loops of pair_kernels.h over one Simd; included by one translation unit per instruction set.
#pragma once

#include "reference/evaluate/ladder/kernel_loops.h"
#include "reference/evaluate/ladder/pair_kernels.h"
#include "reference/evaluate/vector/exp2.h"
#include "reference/evaluate/vector/quotient.h"

namespace headroom {
inline namespace HEADROOM_VECTOR_FLAGS {

template <class Simd>
struct PairLoops {
  using Double = typename Simd::Double;
  static constexpr int lanes = Simd::lanes;
  struct Pair {
    Double hi, lo;
  };

  // --- Error-free transformations: Knuth's TwoSum, Dekker's Fast2Sum, TwoProd by FMA.
  static HEADROOM_VECTOR_INLINE Pair two_sum(Double a, Double b) {
    const Double s = Simd::add(a, b);
    const Double b_part = Simd::sub(s, a);
    return {s, Simd::add(Simd::sub(a, Simd::sub(s, b_part)), Simd::sub(b, b_part))};
  }
  static HEADROOM_VECTOR_INLINE Pair fast_two_sum(Double a, Double b) {
    const Double s = Simd::add(a, b);
    return {s, Simd::sub(b, Simd::sub(s, a))};
  }
  static HEADROOM_VECTOR_INLINE Pair two_product(Double a, Double b) {
    const Double p = Simd::mul(a, b);
    return {p, Simd::fms(a, b, p)};
  }

  // --- Double-word arithmetic, named in pair_kernels.h.
  static HEADROOM_VECTOR_INLINE Pair add(Pair x, Pair y) {
    const Pair s = two_sum(x.hi, y.hi), t = two_sum(x.lo, y.lo);
    const Pair v = fast_two_sum(s.hi, Simd::add(s.lo, t.hi));
    return fast_two_sum(v.hi, Simd::add(t.lo, v.lo));
  }
  /// The same if |y.hi| <= |x.hi| / 8, without the TwoSums. s = RN(x.hi + y.hi) and its error e are
  /// exact (Fast2Sum). |y.lo + e| <= u |y.hi| + u |s| <= 1.15 u |s|, rounded; with x.lo at most
  /// 2.3 u |s|, rounded: together an error below 3.5 u^2 |s|, and |s| <= (1 + 4 u) |x + y|.
  static HEADROOM_VECTOR_INLINE Pair add_smaller(Pair x, Pair y) {
    const Pair s = fast_two_sum(x.hi, y.hi);
    return fast_two_sum(s.hi, Simd::add(x.lo, Simd::add(y.lo, s.lo)));
  }
  static HEADROOM_VECTOR_INLINE Pair mul(Pair x, Double y) {
    const Pair c = two_product(x.hi, y);
    return fast_two_sum(c.hi, Simd::fma(x.lo, y, c.lo));
  }
  static HEADROOM_VECTOR_INLINE Pair mul(Pair x, Pair y) {
    const Pair c = two_product(x.hi, y.hi);
    const Double t = Simd::fma(x.lo, y.hi, Simd::mul(x.hi, y.lo));
    return fast_two_sum(c.hi, Simd::add(c.lo, t));
  }
  static HEADROOM_VECTOR_INLINE Pair div(Pair x, Pair y) {
    const Double t = Simd::div(x.hi, y.hi);
    const Pair r = mul(y, t);
    const Double high = Simd::sub(x.hi, r.hi);  // exact
    const Double d = Simd::add(high, Simd::sub(x.lo, r.lo));
    return fast_two_sum(t, Simd::div(d, y.hi));
  }

  struct Constants {
    Exp2Constants<Simd> table;
    const PairExp2Table& taylor;
  };
  static HEADROOM_VECTOR_INLINE Pair coefficient(const Constants& k, int i) {
    return {Simd::set(k.taylor.hi[i]), Simd::set(k.taylor.lo[i])};
  }

  /// 2^(t - shift) for |t| <= 2^40. Account, relative to the result, u = 2^-53, r within
  /// 1/32 + 2^-12, so that |r ln 2| < 2^-5.5:
  ///   Taylor, degree 13     (r ln 2)^14 / 14! < 2^-113
  ///   terms 7 to 13         in doubles, without r's low part: below 2^-50.8 together, with a
  ///                         relative error below 4 u (coefficients, Horner, r): 2^-101.8
  ///   terms 1 to 6          sums below 4 u^2 and products below 5 u^2 |r| ln 2 (terms fall by
  ///                         a factor of at least 2^5.5 / 2): below 5 u^2 2^-5.5 together
  ///   table                 2^-107; products with r and T: 5 u^2 2^-5.5 each, last sum 4 u^2:
  ///                         below 2^-103
  /// Together below 2^-101; pair_exp2_error leaves 2^3 to spare.
  static HEADROOM_VECTOR_INLINE Pair exp2_of_pair(const Constants& k, Pair t, Double shift) {
    const Double magic = Simd::set(exp2_round_to_sixteenth);
    const Double low_bits = Simd::add(t.hi, magic);
    const Double kr = Simd::sub(low_bits, magic);
    const Pair r = two_sum(Simd::sub(t.hi, kr), t.lo);
    Double q = Simd::set(k.taylor.hi[13]);
#pragma GCC unroll 8
    for (int i = 12; i >= 7; --i) q = Simd::fma(q, r.hi, Simd::set(k.taylor.hi[i]));
    Pair a = add_smaller(coefficient(k, 6), two_product(q, r.hi));
#pragma GCC unroll 8
    for (int i = 5; i >= 1; --i) a = add_smaller(coefficient(k, i), mul(a, r));
    const Pair z = mul(a, r);
    const Pair table = {Simd::lookup(k.table.head, low_bits), Simd::lookup(k.table.tail, low_bits)};
    const Pair y = add_smaller(table, mul(table, z));
    const Double e = Simd::sub(kr, shift);
    // two exact steps: 2^e may be 2^900 away from what a pair with a normal tail allows
    const auto kept = Simd::less(Simd::set(pair_least_exponent), e);
    const Double scale =
        scale_by_power<Simd>(Simd::set(1.0), Simd::select(kept, e, Simd::set(pair_least_exponent)));
    const Double zero = Simd::set(0.0);
    return {Simd::select(kept, Simd::mul(y.hi, scale), zero),
            Simd::select(kept, Simd::mul(y.lo, scale), zero)};
  }

  static double dot(const double* a, const double* b, std::int64_t count) {
    Double s[2] = {Simd::set(0.0), Simd::set(0.0)};
    std::int64_t t = 0;
    for (; t + 2 * lanes <= count; t += 2 * lanes) {
      s[0] = Simd::fma(Simd::load(a + t), Simd::load(b + t), s[0]);
      s[1] = Simd::fma(Simd::load(a + t + lanes), Simd::load(b + t + lanes), s[1]);
    }
    double part[lanes];
    Simd::store(part, Simd::add(s[0], s[1]));
    double sum = 0;
    for (int i = 0; i < lanes; ++i) sum += part[i];
    for (; t < count; ++t) sum += a[t] * b[t];
    return sum;
  }

  /// Four keys at a time; the sums of their lanes are added up four keys at a time too.
  static void scores(Words words, const std::byte* row, std::int64_t stride, std::int64_t keys,
                     const double* q, std::int64_t count, double* out) {
    using Loops = LadderLoops<Simd, 1, 12>;  // for its conversions
    Loops::with_words(words, [&](auto kind) {
      constexpr Words w = kind();
      constexpr int together = 4;
      std::int64_t j = 0;
      for (; j < keys; j += together) {
        const int n = static_cast<int>(keys - j < together ? keys - j : together);
        const std::byte* at[together];
        for (int i = 0; i < together; ++i) at[i] = row + (j + (i < n ? i : 0)) * stride;
        double sums[together] = {};
        std::int64_t t = 0;
#ifdef HEADROOM_VECTOR_EIGHT
        constexpr int parts = 8 / lanes;
        Double s[together];
#pragma GCC unroll 4
        for (int i = 0; i < together; ++i) s[i] = Simd::set(0.0);
        for (; t + 8 <= count; t += 8) {
#pragma GCC unroll 4
          for (int i = 0; i < together; ++i) {
            Double x[parts];
            Loops::widen_eight(Loops::template eight<w>(at[i], t), x);
#pragma GCC unroll 2
            for (int m = 0; m < parts; ++m) {
              s[i] = Simd::fma(x[m], Simd::load(q + t + m * lanes), s[i]);
            }
          }
        }
        double lane[together][lanes];
        for (int i = 0; i < together; ++i) Simd::store(lane[i], s[i]);
        for (int i = 0; i < together; ++i) {
          double pair[2] = {lane[i][0], lane[i][1]};
          for (int m = 2; m < lanes; m += 2) {
            pair[0] += lane[i][m];
            pair[1] += lane[i][m + 1];
          }
          sums[i] = pair[0] + pair[1];
        }
#endif
        for (; t < count; ++t) {
          for (int i = 0; i < together; ++i) sums[i] += Loops::convert_one(w, at[i], t) * q[t];
        }
        for (int i = 0; i < n; ++i) out[j + i] = sums[i];
      }
    });
  }

  static void gather(Words words, const std::byte* from, std::int64_t stride,
                     const std::int64_t* keys, std::int64_t count, double* to) {
    using Loops = LadderLoops<Simd, 1, 12>;
    Loops::with_words(words, [&](auto kind) {
      for (std::int64_t i = 0; i < count; ++i) {
        to[i] = Loops::convert_one(kind, from + keys[i] * stride, 0);
      }
    });
  }

  static void add_one(double x, double* hi, double* lo) {
    const double s = *hi + x;
    const double part = s - *hi;
    *lo += (*hi - (s - part)) + (x - part);
    *hi = s;
  }
  static void dot_pair(const double* a, const double* b, std::int64_t count, double* hi,
                       double* lo) {
    Double sum = Simd::set(0.0), low = sum;
    std::int64_t t = 0;
    for (; t + lanes <= count; t += lanes) {
      const Pair s = two_sum(sum, Simd::mul(Simd::load(a + t), Simd::load(b + t)));
      sum = s.hi;
      low = Simd::add(low, s.lo);
    }
    double sums[lanes], lows[lanes];
    Simd::store(sums, sum);
    Simd::store(lows, low);
    *hi = *lo = 0;
    for (int i = 0; i < lanes; ++i) {
      add_one(sums[i], hi, lo);
      *lo += lows[i];
    }
    for (; t < count; ++t) add_one(a[t] * b[t], hi, lo);
  }

  static void exponents(const PairScale& scale, const double* s_hi, const double* s_lo,
                        const double* bias, std::int64_t count, double* t_hi, double* t_lo) {
    const Constants k{{}, pair_exp2_table()};
    const Pair c = {Simd::set(scale.c_hi), Simd::set(scale.c_lo)};
    const Pair cap = {Simd::set(scale.cap_hi), Simd::set(scale.cap_lo)};
    const Pair log2_e = {Simd::set(0x1.71547652b82fep+0), Simd::set(0x1.777d0ffda0d24p-56)};
    const Double zero = Simd::set(0.0), one = Simd::set(1.0);
    for (std::int64_t i = 0; i < count; i += lanes) {
      // renormalised, since dot_pair may leave a large low part after cancellation
      const Pair s = two_sum(Simd::load(s_hi + i), Simd::load(s_lo + i));
      Pair t = mul(s, c);
      if (scale.cap_hi != 0) {
        // tanh of half of t ln 2, t >= 0: (1 - E) / (1 + E), E = 2^-t; 1 beyond t = 300
        const auto negative = Simd::less(t.hi, zero);
        const auto far = Simd::less(Simd::set(300.0), Simd::abs(t.hi));
        Pair w = {Simd::select(negative, t.hi, negate<Simd>(t.hi)),
                  Simd::select(negative, t.lo, negate<Simd>(t.lo))};
        w = {Simd::select(far, Simd::set(-300.0), w.hi), Simd::select(far, zero, w.lo)};
        const Pair e = exp2_of_pair(k, w, zero);
        const Pair unit = {one, zero};
        const Pair minus_e = {negate<Simd>(e.hi), negate<Simd>(e.lo)};
        t = mul(div(add(unit, minus_e), add(unit, e)), cap);
        t = {Simd::select(negative, negate<Simd>(t.hi), t.hi),
             Simd::select(negative, negate<Simd>(t.lo), t.lo)};
      }
      if (bias != nullptr) t = add(t, mul(log2_e, Simd::load(bias + i)));
      Simd::store(t_hi + i, t.hi);
      Simd::store(t_lo + i, t.lo);
    }
  }

  static void weights(const double* t_hi, const double* t_lo, double shift, std::int64_t count,
                      double* p_hi, double* p_lo) {
    const Constants k{{}, pair_exp2_table()};
    for (std::int64_t i = 0; i < count; i += lanes) {
      const Pair p =
          exp2_of_pair(k, {Simd::load(t_hi + i), Simd::load(t_lo + i)}, Simd::set(shift));
      Simd::store(p_hi + i, p.hi);
      Simd::store(p_lo + i, p.lo);
    }
  }

  /// Sum of the lanes of a pair, by the same additions in one lane.
  static void reduce(Pair s, double* hi, double* lo) {
    double his[lanes], los[lanes];
    Simd::store(his, s.hi);
    Simd::store(los, s.lo);
    Pair sum = {Simd::set(0.0), Simd::set(0.0)};
    for (int i = 0; i < lanes; ++i) sum = add(sum, {Simd::set(his[i]), Simd::set(los[i])});
    Simd::store(his, sum.hi);
    Simd::store(los, sum.lo);
    *hi = his[0];
    *lo = los[0];
  }

  static void sum(const double* p_hi, const double* p_lo, std::int64_t count, double* hi,
                  double* lo) {
    Pair s[2] = {{Simd::set(0.0), Simd::set(0.0)}, {Simd::set(0.0), Simd::set(0.0)}};
    std::int64_t i = 0;
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
      s[0] = add(s[0], {Simd::load(p_hi + i), Simd::load(p_lo + i)});
      s[1] = add(s[1], {Simd::load(p_hi + i + lanes), Simd::load(p_lo + i + lanes)});
    }
    for (; i < count; i += lanes) s[0] = add(s[0], {Simd::load(p_hi + i), Simd::load(p_lo + i)});
    reduce(add(s[0], s[1]), hi, lo);
  }

  static void weighted_sum(const double* p_hi, const double* p_lo, const double* v,
                           std::int64_t count, double* hi, double* lo, double* absolute) {
    Pair s[2] = {{Simd::set(0.0), Simd::set(0.0)}, {Simd::set(0.0), Simd::set(0.0)}};
    Double magnitude = Simd::set(0.0);
    const auto take = [&](Pair& sum, std::int64_t i) {
      const Double value = Simd::load(v + i), p = Simd::load(p_hi + i);
      sum = add(sum, mul(Pair{p, Simd::load(p_lo + i)}, value));
      magnitude = Simd::fma(p, Simd::abs(value), magnitude);
    };
    std::int64_t i = 0;
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
      take(s[0], i);
      take(s[1], i + lanes);
    }
    for (; i < count; i += lanes) take(s[0], i);
    reduce(add(s[0], s[1]), hi, lo);
    double magnitudes[lanes];
    Simd::store(magnitudes, magnitude);
    *absolute = 0;
    for (int i = 0; i < lanes; ++i) *absolute += magnitudes[i];
  }

  static constexpr PairKernels kernels{scores,  dot, dot_pair, exponents,
                                       weights, sum, gather,   weighted_sum};
};

}  // namespace HEADROOM_VECTOR_FLAGS
}  // namespace headroom
