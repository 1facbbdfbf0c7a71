// The loops of kernels.h for panels of one row, where lanes are keys and channels instead: for
// heads of very few queries (decoding). Included by the translation unit of an instruction set.
//
// Sums are shorter than the tall panels' (vector_rung.cpp): a score's terms in any order; weights
// six to a lane and then the lanes, 5 + 7 roundings a tile; a product's chain is 24 keys of one
// parity, then the two parities, 24 + 1 roundings a tile, once a tile instead of twice.
#pragma once

#include "reference/evaluate/ladder/kernel_loops.h"

namespace headroom {
inline namespace HEADROOM_VECTOR_FLAGS {

template <class Simd>
struct SingleRowLoops {
  using Double = typename Simd::Double;
  static constexpr int lanes = Simd::lanes;
  static_assert(lanes == 2 * channel_group);
  using Words = LadderLoops<Simd, 1, 12>;
  using Scalar = LadderLoops<Portable, 1, 12>;  // the forms that few heads need
  static_assert(Scalar::rows == 1);

  static double across(Double a) {
    double x[lanes];
    Simd::store(x, a);
    return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
  }

  /// Reads whole registers: buffers are zero behind their last channel, keys by 8 channels, the
  /// query up to a cache line.
  static void scores(const double* q, const double* k, std::int64_t k_stride, std::int64_t channels,
                     std::int64_t keys, double* s) {
    for (std::int64_t j = 0; j < keys; j += lanes) {
      Double a[lanes];
#pragma GCC unroll 8
      for (int i = 0; i < lanes; ++i) a[i] = Simd::set(0.0);
      for (std::int64_t t = 0; t < channels; t += lanes) {
        const Double x = Simd::load(q + t);
#pragma GCC unroll 8
        for (int i = 0; i < lanes; ++i) {
          a[i] = Simd::fma(x, Simd::load(k + (j + i) * k_stride + t), a[i]);
        }
      }
      for (int i = 0; i < lanes; ++i) s[j + i] = across(a[i]);
    }
  }

  static void short_weights(const ExponentArgs& args, double* s, std::int64_t keys,
                            PanelState* state) {
    constexpr int count = static_cast<int>(tile_keys) / lanes, half = count / 2;
    static_assert(count % 2 == 0);
    const typename Simd::Table16 table = Simd::load_table(exp2_short_table.entry);
    const Double c_hi = Simd::set(args.c_hi), c_lo = Simd::set(args.c_lo), zero = Simd::set(0.0);
    double index[lanes];
    for (int i = 0; i < lanes; ++i) index[i] = i;
    Double x[count], w[count], sum = zero, squares = zero;
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) x[i] = Simd::load(s + i * lanes);
    exp2_short<Simd, half>(table, c_hi, c_lo, x, w);
    exp2_short<Simd, half>(table, c_hi, c_lo, x + half, w + half);
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) {
      const auto present = Simd::less(
          Simd::load(index), Simd::set(static_cast<double>(keys) - static_cast<double>(i * lanes)));
      w[i] = Simd::select(present, w[i], zero);
      if (args.visible != nullptr) {
        w[i] = Simd::select(Simd::less(zero, Simd::load(args.visible + i * lanes)), w[i], zero);
      }
      Simd::store(s + i * lanes, w[i]);
      sum = Simd::add(sum, w[i]);
      squares = Simd::fma(w[i], w[i], squares);
    }
    state->sum[0] += across(sum);
    state->squares[0] += across(squares);
  }

  static void values(const double* p, const double* v_tile, std::int64_t channels4,
                     std::int64_t /*keys*/, double* o, double* total) {
    // weights of two keys, each for a group of channels
    constexpr std::int64_t steps = tile_keys / 2;
    alignas(64) double weights[steps * lanes];
    for (std::int64_t i = 0; i < steps * lanes; ++i) weights[i] = p[i / channel_group];
    std::int64_t c = 0;
    for (; c + 4 * channel_group <= channels4; c += 4 * channel_group) {
      groups<4>(weights, v_tile + c * tile_keys, o + c);
    }
    for (; c < channels4; c += channel_group) groups<1>(weights, v_tile + c * tile_keys, o + c);
    if (total != nullptr) Scalar::flush(o, total, channels4);
  }

  static constexpr LadderKernels kernels(InstructionSet set) {
    return {set,
            1,
            Words::convert,
            Words::convert_values,
            Words::measure,
            Words::measure_words,
            Words::absorb,
            Words::absorb_words,
            Words::split,
            scores,
            Scalar::greatest,
            Scalar::weights,
            short_weights,
            values,
            Scalar::flush,
            Scalar::finish};
  }

 private:
  template <int count>
  static HEADROOM_VECTOR_INLINE void groups(const double* weights, const double* v, double* o) {
    constexpr std::int64_t group = tile_keys * channel_group;
    Double a[count];
#pragma GCC unroll 4
    for (int i = 0; i < count; ++i) a[i] = Simd::set(0.0);
    for (std::int64_t j = 0; j < tile_keys / 2; ++j) {
      const Double w = Simd::load(weights + j * lanes);
#pragma GCC unroll 4
      for (int i = 0; i < count; ++i) {
        a[i] = Simd::fma(w, Simd::load(v + i * group + j * lanes), a[i]);
      }
    }
    for (int i = 0; i < count; ++i) {
      double x[lanes];
      Simd::store(x, a[i]);
      for (int n = 0; n < channel_group; ++n) {
        o[i * channel_group + n] += x[n] + x[n + channel_group];
      }
    }
  }
};

}  // namespace HEADROOM_VECTOR_FLAGS
}  // namespace headroom
