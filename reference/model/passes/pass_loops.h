// The loops of passes.h, for the one translation unit per instruction set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "reference/model/passes/packs.h"
#include "reference/model/passes/passes.h"

namespace headroom {
inline namespace HEADROOM_PACK_FLAGS {

template <class Words>
struct PassLoops {
  static constexpr std::int64_t chunk = 2 * pack_size;  // words
  static constexpr std::int64_t chunk_bytes = chunk * Words::bytes;
  static constexpr std::int64_t ahead = 8192;  // bytes between what is read and what is fetched
  static constexpr std::int64_t column_block = 64;

  struct Pair {
    Floats a, b;
  };

  static HEADROOM_PACK_INLINE Pair load_chunk(const std::byte* p) {
    Pair x;
    Words::load(p, x.a, x.b);
    return x;
  }
  /// The first `count` words of a chunk, then zeros; or copies of the first.
  static Pair load_some(const std::byte* p, std::int64_t count, bool copies = false) {
    std::byte buffer[chunk_bytes] = {};
    std::memcpy(buffer, p, static_cast<std::size_t>(count * Words::bytes));
    for (std::int64_t i = count; copies && i < chunk; ++i) {
      std::memcpy(buffer + i * Words::bytes, p, Words::bytes);
    }
    return load_chunk(buffer);
  }
  static HEADROOM_PACK_INLINE Pair load_at(const std::byte* row, std::int64_t c, std::int64_t d) {
    const std::int64_t at = c * chunk;
    __builtin_prefetch(row + at * Words::bytes + ahead);
    return at + chunk <= d ? load_chunk(row + at * Words::bytes)
                           : load_some(row + at * Words::bytes, d - at);
  }
  static std::int64_t chunks(std::int64_t d) { return (d + chunk - 1) / chunk; }

  template <bool fold>
  static HEADROOM_PACK_INLINE Floats folded(Floats x, float constant) {
    if constexpr (fold) return to_bf16(x * constant);
    return x;
  }

  // --- extremes ------------------------------------------------------------------------------

  struct Running {
    Floats least, most;
    Bits largest{}, smallest = all_bits(0xffffffffU);  // codes of magnitudes; of those less one

    HEADROOM_PACK_INLINE void take(Floats x) {
      const Bits code = bits(magnitude(x));
      least = smaller(least, x);
      most = headroom::larger(most, x);
      largest = headroom::larger(largest, code);
      smallest = headroom::smaller(smallest, code - 1U);  // zero wraps round to the largest
    }
  };

  /// Of codes of magnitudes less one, where that of zero has wrapped round to the largest.
  static float least_magnitude(Bits less_one) {
    std::uint32_t codes[pack_size], least = 0x7f800000U;
    less_one += 1U;
    std::memcpy(codes, &less_one, sizeof codes);
    for (const std::uint32_t code : codes) {
      if (code != 0) least = std::min(least, code);
    }
    float value;
    std::memcpy(&value, &least, sizeof value);
    return value;
  }

  static Extremes extremes(const StoredRows& rows) {
    StoredRows flat = rows;
    if (rows.stride == rows.channels * Words::bytes) {  // one long row
      flat = {rows.data, 0, 1, rows.rows * rows.channels};
    }
    Extremes result;
    if (rows.rows == 0 || rows.channels == 0) return result;
    Running a{all(result.least), all(result.most)}, b = a;
    for (std::int64_t i = 0; i < flat.rows; ++i) {
      const std::byte* row = flat.data + i * flat.stride;
      std::int64_t at = 0;
      for (; at + chunk <= flat.channels; at += chunk) {
        __builtin_prefetch(row + at * Words::bytes + ahead);
        const Pair x = load_chunk(row + at * Words::bytes);
        a.take(x.a);
        b.take(x.b);
      }
      if (at < flat.channels) {
        const Pair x = load_some(row + at * Words::bytes, flat.channels - at, true);
        a.take(x.a);
        b.take(x.b);
      }
    }
    float least[pack_size], most[pack_size];
    std::uint32_t largest[pack_size];
    store(least, smaller(a.least, b.least));
    store(most, headroom::larger(a.most, b.most));
    const Bits most_code = headroom::larger(a.largest, b.largest);
    std::memcpy(largest, &most_code, sizeof largest);
    for (int i = 0; i < pack_size; ++i) {
      result.least = std::min(result.least, least[i]);
      result.most = std::max(result.most, most[i]);
      result.finite = result.finite && largest[i] < 0x7f800000U;
    }
    result.smallest = least_magnitude(headroom::smaller(a.smallest, b.smallest));
    return result;
  }

  // --- norms ---------------------------------------------------------------------------------

  /// `known` chunks exactly, or any number if 0.
  template <int known, bool with_centre>
  static void norms_of(const StoredRows& rows, const float* centre, float* raw, float* centred) {
    const std::int64_t d = rows.channels;
    const std::int64_t n = known > 0 ? known : chunks(d);
    Pair around[known > 0 ? known : 1];
    if constexpr (known > 0 && with_centre) {
      for (int c = 0; c < known; ++c)
        around[c] = {load(centre + c * chunk), load(centre + c * chunk + pack_size)};
    }
    for (std::int64_t begin = 0; begin < rows.rows; begin += pack_size) {
      const std::int64_t count = std::min<std::int64_t>(pack_size, rows.rows - begin);
      Floats squares[pack_size], from_centre[pack_size];
      for (std::int64_t i = 0; i < pack_size; ++i) {
        Floats s{}, t{}, u{}, v{};
        if (i < count) {
          const std::byte* row = rows.data + (begin + i) * rows.stride;
          const auto take = [&](std::int64_t c, const Pair& x) __attribute__((always_inline)) {
            s = fused(x.a, x.a, s);
            t = fused(x.b, x.b, t);
            if constexpr (with_centre) {
              const Pair at =
                  known > 0 ? around[known > 0 ? c : 0]
                            : Pair{load(centre + c * chunk), load(centre + c * chunk + pack_size)};
              const Floats p = x.a - at.a, q = x.b - at.b;
              u = fused(p, p, u);
              v = fused(q, q, v);
            }
          };
          if constexpr (known > 0) {
#pragma GCC unroll 8
            for (int c = 0; c < known; ++c) {
              __builtin_prefetch(row + c * chunk_bytes + ahead);
              take(c, load_chunk(row + c * chunk_bytes));
            }
          } else {
            for (std::int64_t c = 0; c < n; ++c) take(c, load_at(row, c, d));
          }
        }
        squares[i] = s + t;
        if constexpr (with_centre) from_centre[i] = u + v;
      }
      store_sums(squares, raw + begin, count);
      if constexpr (with_centre) store_sums(from_centre, centred + begin, count);
    }
  }
  static HEADROOM_PACK_INLINE void store_sums(const Floats* rows, float* out, std::int64_t count) {
    if (count == pack_size) return sum_rows(rows, out);
    float sums[pack_size];
    sum_rows(rows, sums);
    std::memcpy(out, sums, static_cast<std::size_t>(count) * sizeof(float));
  }

  static void norms(const StoredRows& rows, const float* centre, float* raw, float* centred) {
    const bool both = centre != nullptr;
    switch (rows.channels) {
      case 64:
        return both ? norms_of<2, true>(rows, centre, raw, centred)
                    : norms_of<2, false>(rows, centre, raw, centred);
      case 128:
        return both ? norms_of<4, true>(rows, centre, raw, centred)
                    : norms_of<4, false>(rows, centre, raw, centred);
      default:
        return both ? norms_of<0, true>(rows, centre, raw, centred)
                    : norms_of<0, false>(rows, centre, raw, centred);
    }
  }

  // --- columns -------------------------------------------------------------------------------

  static HEADROOM_PACK_INLINE void add_to(double* total, const Doubles& x) {
    store(total, headroom::load(total) + x);
  }

  template <bool fold>
  static void columns_of(const StoredRows& rows, float constant, ColumnSums& into) {
    const std::int64_t d = rows.channels, n = chunks(d);
    Bits smallest = all_bits(0xffffffffU);  // codes less one, as above
    for (std::int64_t begin = 0; begin < rows.rows; begin += column_block) {
      const std::int64_t end = std::min(begin + column_block, rows.rows);
      for (std::int64_t c = 0; c < n; ++c) {
        const auto at = static_cast<std::size_t>(c * chunk);
        Doubles sum_a{}, sum_b{}, all_a{}, all_b{};
        Floats least_a = load(&into.least[at]), least_b = load(&into.least[at + pack_size]);
        Floats most_a = load(&into.most[at]), most_b = load(&into.most[at + pack_size]);
        for (std::int64_t i = begin; i < end; ++i) {
          const std::byte* row = rows.data + i * rows.stride;
          __builtin_prefetch(row + c * chunk_bytes + column_block * rows.stride);
          Pair x = c * chunk + chunk <= d ? load_chunk(row + c * chunk_bytes)
                                          : load_some(row + c * chunk_bytes, d - c * chunk);
          smallest = smaller(smallest, bits(magnitude(x.a)) - 1U);
          smallest = smaller(smallest, bits(magnitude(x.b)) - 1U);
          x.a = folded<fold>(x.a, constant);
          x.b = folded<fold>(x.b, constant);
          sum_a = sum_a + widen(x.a);
          sum_b = sum_b + widen(x.b);
          all_a = all_a + widen(magnitude(x.a));
          all_b = all_b + widen(magnitude(x.b));
          least_a = smaller(least_a, x.a);
          least_b = smaller(least_b, x.b);
          most_a = larger(most_a, x.a);
          most_b = larger(most_b, x.b);
        }
        add_to(&into.sum[at], sum_a);
        add_to(&into.sum[at + pack_size], sum_b);
        add_to(&into.magnitude[at], all_a);
        add_to(&into.magnitude[at + pack_size], all_b);
        store(&into.least[at], least_a);
        store(&into.least[at + pack_size], least_b);
        store(&into.most[at], most_a);
        store(&into.most[at + pack_size], most_b);
      }
    }
    into.smallest = std::min(into.smallest, least_magnitude(smallest));
  }
  static void columns(const StoredRows& rows, Folding fold, ColumnSums& into) {
    fold.on ? columns_of<true>(rows, fold.constant, into)
            : columns_of<false>(rows, fold.constant, into);
  }

  // --- keys under mean centring --------------------------------------------------------------

  template <bool fold, bool certain, bool narrow>
  static void centred_of(const StoredRows& rows, float constant, const CentredKeys& keys) {
    const std::int64_t d = rows.channels, n = chunks(d), width = n * chunk;
    // both ends of k~, 16 rows, for the column sums
    std::vector<float> ends(static_cast<std::size_t>(2 * pack_size * width));
    float* lower = ends.data();
    float* upper = certain ? lower : lower + pack_size * width;
    for (std::int64_t begin = 0; begin < rows.rows; begin += pack_size) {
      const std::int64_t count = std::min<std::int64_t>(pack_size, rows.rows - begin);
      Floats length[pack_size] = {}, difference[pack_size] = {}, exact[pack_size] = {};
      for (std::int64_t i = 0; i < count; ++i) {
        const std::byte* row = rows.data + (begin + i) * rows.stride;
        Floats far{}, off{}, raw{};
        const auto take = [&](Floats stored, std::int64_t at) __attribute__((always_inline)) {
          const Floats a_lo = load(keys.mean_lo + at), a_hi = load(keys.mean_hi + at);
          const Floats k = folded<fold>(stored, constant);
          const Floats t = fold ? stored * keys.factor : stored;
          Floats lo = k - a_hi, hi = certain ? lo : k - a_lo;
          if constexpr (narrow) {
            lo = to_bf16(lo);
            hi = certain ? lo : to_bf16(hi);
          }
          const Floats below = t - a_hi, above = certain ? below : t - a_lo;
          const Floats most = certain ? lo : larger(magnitude(lo), magnitude(hi));
          const Floats apart = certain ? lo - below : larger(hi - below, above - lo);
          const Floats reach = certain ? below : larger(magnitude(below), magnitude(above));
          far = fused(most, most, far);
          off = fused(apart, apart, off);
          raw = fused(reach, reach, raw);
          store(lower + i * width + at, lo);
          if constexpr (!certain) store(upper + i * width + at, hi);
        };
        for (std::int64_t c = 0; c < n; ++c) {
          const Pair x = load_at(row, c, d);
          take(x.a, c * chunk);
          take(x.b, c * chunk + pack_size);
        }
        length[i] = far;
        difference[i] = off;
        exact[i] = raw;
      }
      store_sums(length, keys.length + begin, count);
      store_sums(difference, keys.difference + begin, count);
      store_sums(exact, keys.exact + begin, count);
      for (std::int64_t at = 0; at < width; at += pack_size) {
        Doubles lo{}, hi{};
        for (std::int64_t i = 0; i < count; ++i) {
          lo = lo + widen(load(lower + i * width + at));
          if constexpr (!certain) hi = hi + widen(load(upper + i * width + at));
        }
        add_to(keys.sum_lo + at, lo);
        add_to(keys.sum_hi + at, certain ? lo : hi);
      }
    }
  }
  template <bool fold, bool certain>
  static void centred_by_format(const StoredRows& rows, float constant, const CentredKeys& keys) {
    keys.narrow ? centred_of<fold, certain, true>(rows, constant, keys)
                : centred_of<fold, certain, false>(rows, constant, keys);
  }
  static void centred(const StoredRows& rows, Folding fold, const CentredKeys& keys) {
    if (fold.on) {
      keys.certain ? centred_by_format<true, true>(rows, fold.constant, keys)
                   : centred_by_format<true, false>(rows, fold.constant, keys);
    } else {
      keys.certain ? centred_by_format<false, true>(rows, fold.constant, keys)
                   : centred_by_format<false, false>(rows, fold.constant, keys);
    }
  }

  // --- queries -------------------------------------------------------------------------------

  static HEADROOM_PACK_INLINE Doubles without_sign(const Doubles& x) {
    using Longs = std::uint64_t __attribute__((vector_size(64)));
    const Longs mask = Longs{} + 0x7fffffffffffffffULL;
    return {reinterpret_cast<EightDoubles>(reinterpret_cast<Longs>(x.low) & mask),
            reinterpret_cast<EightDoubles>(reinterpret_cast<Longs>(x.high) & mask)};
  }

  /// FP32 sums of squares of total at most 2^24 2^(2 g) over multiples of 2^g are exact: whether
  /// the first 32 channels are such multiples.
  static HEADROOM_PACK_INLINE std::uint8_t may_be_on_grid(const Pair& first, double squares) {
    std::uint64_t code;
    std::memcpy(&code, &squares, sizeof code);
    const int exponent = static_cast<int>(code >> 52) - 1023;
    const int twice = exponent - 24;
    const int grid = (twice + (twice & 1)) / 2;
    if (grid < -120 || grid > 120) return 1;
    const std::uint32_t scale = static_cast<std::uint32_t>(127 - grid) << 23;  // 2^-grid
    float inverse;
    std::memcpy(&inverse, &scale, sizeof inverse);
    return any_fraction(first.a * inverse) || any_fraction(first.b * inverse) ? 0 : 1;
  }

  template <bool fold, bool spread, bool second>
  static void queries_of(const StoredRows& rows, float constant, const QueryVectors& vectors,
                         const QuerySums& out) {
    const std::int64_t d = rows.channels, n = chunks(d);
    const Doubles factor = all(vectors.factor);
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      const std::byte* row = rows.data + i * rows.stride;
      Doubles squares{}, dot{}, reach{}, dot2{}, reach2{}, off{};
      Pair first{};
      const auto take = [&](Floats stored, std::int64_t at) __attribute__((always_inline)) {
        const Floats q = folded<fold>(stored, constant);
        const Doubles x = widen(q);
        squares = squares + x * x;
        dot = dot + x * headroom::load(vectors.mean + at);
        if constexpr (spread || second) {
          const Doubles size = without_sign(x);
          if constexpr (spread) reach = reach + size * headroom::load(vectors.mean_half + at);
          if constexpr (second) {
            dot2 = dot2 + x * headroom::load(vectors.centre + at);
            reach2 = reach2 + size * headroom::load(vectors.centre_half + at);
          }
        }
        if constexpr (fold) {
          const Doubles apart = x - widen(stored) * factor;
          off = off + apart * apart;
        }
        return q;
      };
      for (std::int64_t c = 0; c < n; ++c) {
        const Pair x = load_at(row, c, d);
        const Floats a = take(x.a, c * chunk), b = take(x.b, c * chunk + pack_size);
        if (c == 0) first = {a, b};
      }
      const double total = sum(squares);
      out.squares[i] = total;
      out.mean_dot[i] = sum(dot);
      if constexpr (spread) out.mean_spread[i] = sum(reach);
      if constexpr (second) {
        out.centre_dot[i] = sum(dot2);
        out.centre_spread[i] = sum(reach2);
      }
      if constexpr (fold) out.difference[i] = sum(off);
      out.may_be_on_grid[i] = may_be_on_grid(first, total);
    }
  }
  template <bool fold, bool spread>
  static void queries_by_centre(const StoredRows& rows, float constant, const QueryVectors& vectors,
                                const QuerySums& out) {
    vectors.centre != nullptr ? queries_of<fold, spread, true>(rows, constant, vectors, out)
                              : queries_of<fold, spread, false>(rows, constant, vectors, out);
  }
  static void queries(const StoredRows& rows, Folding fold, const QueryVectors& vectors,
                      const QuerySums& out) {
    const bool spread = vectors.mean_half != nullptr;
    if (fold.on) {
      spread ? queries_by_centre<true, true>(rows, fold.constant, vectors, out)
             : queries_by_centre<true, false>(rows, fold.constant, vectors, out);
    } else {
      spread ? queries_by_centre<false, true>(rows, fold.constant, vectors, out)
             : queries_by_centre<false, false>(rows, fold.constant, vectors, out);
    }
  }

  // --- means of prefixes ---------------------------------------------------------------------

  template <bool fold_query, bool fold_key>
  static void prefixes_of(const StoredRows& queries, float query_constant, const StoredRows& keys,
                          float key_constant, const std::int64_t* ends, double* out) {
    const std::int64_t d = queries.channels, n = chunks(d);
    std::vector<double> sums(static_cast<std::size_t>(n * chunk));
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < queries.rows; ++i) {
      for (; count < ends[i]; ++count) {
        const std::byte* row = keys.data + count * keys.stride;
        for (std::int64_t c = 0; c < n; ++c) {
          const Pair x = load_at(row, c, d);
          add_to(&sums[static_cast<std::size_t>(c * chunk)],
                 widen(folded<fold_key>(x.a, key_constant)));
          add_to(&sums[static_cast<std::size_t>(c * chunk + pack_size)],
                 widen(folded<fold_key>(x.b, key_constant)));
        }
      }
      const std::byte* row = queries.data + i * queries.stride;
      Doubles dot{};
      for (std::int64_t c = 0; c < n; ++c) {
        const Pair x = load_at(row, c, d);
        const double* at = &sums[static_cast<std::size_t>(c * chunk)];
        dot = dot + widen(folded<fold_query>(x.a, query_constant)) * headroom::load(at);
        dot = dot + widen(folded<fold_query>(x.b, query_constant)) * headroom::load(at + pack_size);
      }
      out[i] = sum(dot);
    }
  }
  static void prefixes(const StoredRows& queries, Folding query, const StoredRows& keys,
                       Folding key, const std::int64_t* ends, double* dot) {
    if (query.on) {
      key.on ? prefixes_of<true, true>(queries, query.constant, keys, key.constant, ends, dot)
             : prefixes_of<true, false>(queries, query.constant, keys, key.constant, ends, dot);
    } else {
      key.on ? prefixes_of<false, true>(queries, query.constant, keys, key.constant, ends, dot)
             : prefixes_of<false, false>(queries, query.constant, keys, key.constant, ends, dot);
    }
  }

  static constexpr PassKernels kernels{extremes, norms, columns, centred, queries, prefixes};
};

inline constexpr PassKernels all_pass_kernels[] = {
    PassLoops<Bf16Words>::kernels, PassLoops<Fp16Words>::kernels, PassLoops<Fp32Words>::kernels};

}  // namespace HEADROOM_PACK_FLAGS
}  // namespace headroom
