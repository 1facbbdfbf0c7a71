// The loops of passes.h, for the one translation unit per instruction set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "reference/model/passes/packs.h"
#include "reference/model/passes/passes.h"

namespace headroom {
inline namespace HEADROOM_PACK_FLAGS {

/// One chunk of a row towards its sums of squares and of products with a centre. `parts`: 0 without
/// centre, 2 if the centre's `has_rest`, else 1.
template <class Words>
struct NormStep {
  struct Centre {
    Floats a, b;
    Centre() = default;
    explicit Centre(const float* at) : a(load(at)), b(load(at + pack_size)) {}
    bool has_rest() const { return false; }
  };
  Floats squares{}, other_squares{}, dots{}, other_dots{};

  template <int parts>
  HEADROOM_PACK_INLINE void take(const std::byte* chunk, const Centre* around) {
    Floats a, b;
    Words::load(chunk, a, b);
    squares = fused(a, a, squares);
    other_squares = fused(b, b, other_squares);
    if constexpr (parts > 0) {
      dots = fused(a, around->a, dots);
      other_dots = fused(b, around->b, other_dots);
    }
  }
};

#if defined(HEADROOM_PACK_BF16_PRODUCTS)
template <>
struct NormStep<Bf16Words> {
  /// Pairs of BF16 words like the stored ones: the elements to nearest, and what that leaves.
  struct Centre {
    Bits first, rest;
    Centre() = default;
    explicit Centre(const float* at) {
      const Floats even = load(at), odd = load(at + pack_size);
      const Floats a = to_bf16(even), b = to_bf16(odd);
      first = together(a, b);
      rest = together(to_bf16(even - a), to_bf16(odd - b));
    }
    bool has_rest() const { return any(rest); }
    static Bits together(Floats even, Floats odd) { return (bits(even) >> 16) | bits(odd); }
  };
  Floats squares{}, other_squares{}, dots{}, other_dots{};

  template <int parts>
  HEADROOM_PACK_INLINE void take(const std::byte* chunk, const Centre* around) {
    const Bits x = load_pack<Bits>(chunk);
    squares = with_products(squares, x, x);
    if constexpr (parts > 0) dots = with_products(dots, x, around->first);
    if constexpr (parts > 1) other_dots = with_products(other_dots, x, around->rest);
  }
};
#endif

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

  using Step = NormStep<Words>;
  using Centre = typename Step::Centre;

  /// Sums over a row: of squares, and of products with a centre. `known` chunks exactly, or any
  /// number if 0; `parts` as NormStep has it.
  template <int known, int parts>
  static HEADROOM_PACK_INLINE Step row_sums(const std::byte* row, std::int64_t d,
                                            const Centre* around) {
    Step sums;
    const std::int64_t n = d / chunk;
    if constexpr (known > 0) {
#pragma GCC unroll 8
      for (int c = 0; c < known; ++c) {
        __builtin_prefetch(row + c * chunk_bytes + ahead);
        sums.template take<parts>(row + c * chunk_bytes, around + c);
      }
    } else {
      for (std::int64_t c = 0; c < n; ++c) {
        __builtin_prefetch(row + c * chunk_bytes + ahead);
        sums.template take<parts>(row + c * chunk_bytes, around + c);
      }
      if (n * chunk < d) {
        std::byte buffer[chunk_bytes] = {};
        std::memcpy(buffer, row + n * chunk_bytes,
                    static_cast<std::size_t>((d - n * chunk) * Words::bytes));
        sums.template take<parts>(buffer, around + n);
      }
    }
    return sums;
  }

  template <int known, int parts>
  static void norms_of(const StoredRows& rows, const Centre* centre, float centre_square,
                       float* raw, float* centred) {
    const std::int64_t d = rows.channels;
    Centre around[known > 0 && parts > 0 ? known : 1];
    if constexpr (known > 0 && parts > 0) {
      for (int c = 0; c < known; ++c) around[c] = centre[c];
      centre = around;
    }
    for (std::int64_t begin = 0; begin < rows.rows; begin += pack_size) {
      const std::int64_t count = std::min<std::int64_t>(pack_size, rows.rows - begin);
      Floats squares[pack_size], dots[pack_size];
      for (std::int64_t i = count; i < pack_size; ++i) squares[i] = dots[i] = Floats{};
      const std::byte* row = rows.data + begin * rows.stride;
      for (std::int64_t i = 0; i < count; ++i, row += rows.stride) {
        const Step sums = row_sums<known, parts>(row, d, centre);
        squares[i] = sums.squares + sums.other_squares;
        if constexpr (parts > 0) dots[i] = sums.dots + sums.other_dots;
      }
      float raws[pack_size], around_centre[pack_size];
      sum_rows(squares, raws);
      store_some(raws, raw + begin, count);
      if constexpr (parts > 0) {
        sum_rows(dots, around_centre);
        const Floats p = load(around_centre);
        store(around_centre, (load(raws) - (p + p)) + all(centre_square));
        store_some(around_centre, centred + begin, count);
      }
    }
  }
  static HEADROOM_PACK_INLINE void store_sums(const Floats* rows, float* out, std::int64_t count) {
    float sums[pack_size];
    sum_rows(rows, sums);
    store_some(sums, out, count);
  }
  static HEADROOM_PACK_INLINE void store_some(const float* from, float* to, std::int64_t count) {
    if (count == pack_size) return store(to, load(from));
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
  }
  template <int parts>
  static void norms_by_channels(const StoredRows& rows, const Centre* centre, float centre_square,
                                float* raw, float* centred) {
    switch (rows.channels) {
      case 64:
        return norms_of<64 / chunk, parts>(rows, centre, centre_square, raw, centred);
      case 128:
        return norms_of<128 / chunk, parts>(rows, centre, centre_square, raw, centred);
      default:
        return norms_of<0, parts>(rows, centre, centre_square, raw, centred);
    }
  }
  static void norms(const StoredRows& rows, const float* centre, float* raw, float* centred) {
    if (centre == nullptr) return norms_by_channels<0>(rows, nullptr, 0, raw, nullptr);
    const std::int64_t n = chunks(rows.channels);
    std::vector<Centre> around;
    double square = 0;
    for (std::int64_t c = 0; c < n; ++c) around.emplace_back(centre + c * chunk);
    for (std::int64_t at = 0; at < n * chunk; ++at) {
      square += static_cast<double>(centre[at]) * static_cast<double>(centre[at]);
    }
    const auto centre_square = static_cast<float>(square);
    bool rest = false;
    for (const Centre& part : around) rest = rest || part.has_rest();
    rest ? norms_by_channels<2>(rows, around.data(), centre_square, raw, centred)
         : norms_by_channels<1>(rows, around.data(), centre_square, raw, centred);
  }

  // --- norms and columns ---------------------------------------------------------------------

  static constexpr bool in_bf16 = std::is_same_v<Words, Bf16Words>;

  static void sums(const StoredRows& rows, float* raw, double* by_channel) {
    const std::int64_t d = rows.channels, n = chunks(d);
    for (std::int64_t begin = 0; begin < rows.rows; begin += column_block) {
      const std::int64_t count = std::min(column_block, rows.rows - begin);
      const StoredRows block{rows.data + begin * rows.stride, rows.stride, count, d};
      norms(block, nullptr, raw + begin, nullptr);
      for (std::int64_t c = 0; c < n; ++c) {  // read again, from a near cache
        const std::byte* at = block.data + c * chunk_bytes;
        const bool whole = c * chunk + chunk <= d;
        Doubles a{}, b{};
        if constexpr (in_bf16) {
          EightDoubles sum[4] = {}, x[4];
          for (std::int64_t i = 0; i < count && whole; ++i, at += rows.stride) {
            load_bf16(at, x);
            for (int p = 0; p < 4; ++p) sum[p] += x[p];
          }
          gather(sum, a, b);
          a = a * all(bf16_unit);
          b = b * all(bf16_unit);
        }
        for (std::int64_t i = 0; i < count && !(in_bf16 && whole); ++i, at += rows.stride) {
          const Pair x = whole ? load_chunk(at) : load_some(at, d - c * chunk);
          a = a + widen(x.a);
          b = b + widen(x.b);
        }
        add_to(by_channel + c * chunk, a);
        add_to(by_channel + c * chunk + pack_size, b);
      }
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
  /// Squares and means of BF16 rows that are not folded, of whole chunks; the same sums whether or
  /// not products are fused, since squares are exact.
  static void bf16_queries(const StoredRows& rows, const double* mean, const QuerySums& out) {
    // x 2^-896 times x 2^127: squares stay far from underflow
    constexpr double root = bf16_unit == 1 ? 1 : 0x1p1023;
    constexpr double scale = bf16_unit == 1 ? 1 : 0x1p769;
    const std::int64_t n = rows.channels / chunk;
    std::vector<double> scaled_mean(static_cast<std::size_t>(n * chunk));
    for (std::int64_t c = 0; c < n; ++c) {
      EightDoubles m[4];
      const double* from = mean + c * chunk;
      scatter(headroom::load(from) * all(bf16_unit),
              headroom::load(from + pack_size) * all(bf16_unit), m);
      std::memcpy(&scaled_mean[static_cast<std::size_t>(c * chunk)], m, sizeof m);
    }
    for (std::int64_t begin = 0; begin < rows.rows; begin += 8) {
      const std::int64_t count = std::min<std::int64_t>(8, rows.rows - begin);
      EightDoubles squares[8], dots[8];
      double square_sums[8], dot_sums[8];
      for (std::int64_t i = count; i < 8; ++i) squares[i] = dots[i] = EightDoubles{};
      for (std::int64_t i = 0; i < count; ++i) {
        const std::byte* row = rows.data + (begin + i) * rows.stride;
        EightDoubles s[4] = {}, t[4] = {}, x[4];
        for (std::int64_t c = 0; c < n; ++c) {
          __builtin_prefetch(row + c * chunk_bytes + ahead);
          load_bf16(row + c * chunk_bytes, x);
          const double* m = &scaled_mean[static_cast<std::size_t>(c * chunk)];
          for (int p = 0; p < 4; ++p) {
            s[p] += x[p] * (x[p] * root);
            t[p] += x[p] * load_pack<EightDoubles>(m + 8 * p);
          }
        }
        squares[i] = (s[0] + s[1]) + (s[2] + s[3]);
        dots[i] = (t[0] + t[1]) + (t[2] + t[3]);
      }
      sum_rows(squares, square_sums);
      sum_rows(dots, dot_sums);
      for (std::int64_t i = 0; i < count; ++i) {
        const double total = square_sums[i] * scale;
        out.squares[begin + i] = total;
        out.mean_dot[begin + i] = dot_sums[i];
        out.may_be_on_grid[begin + i] =
            may_be_on_grid(load_chunk(rows.data + (begin + i) * rows.stride), total);
      }
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
    if constexpr (in_bf16) {
      if (!fold.on && !spread && vectors.centre == nullptr && rows.channels % chunk == 0) {
        return bf16_queries(rows, vectors.mean, out);
      }
    }
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

  static constexpr PassKernels kernels{extremes, norms, sums, columns, centred, queries, prefixes};
};

inline constexpr PassKernels all_pass_kernels[] = {
    PassLoops<Bf16Words>::kernels, PassLoops<Fp16Words>::kernels, PassLoops<Fp32Words>::kernels};

}  // namespace HEADROOM_PACK_FLAGS
}  // namespace headroom
