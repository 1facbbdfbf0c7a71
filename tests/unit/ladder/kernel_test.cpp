// The inner loops of the ladder, each alone: powers and double-word arithmetic against MPFR,
// readers of words against decode(), sums against sums of integers.
#include <gtest/gtest.h>
#include <mpfr.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "reference/evaluate/ladder/kernels.h"
#include "reference/evaluate/ladder/pair_kernels.h"
#include "reference/evaluate/vector/exp2_constants.h"
#include "reference/format/convert.h"
#include "reference/real/fp_environment.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<InstructionSet> sets() {
  std::vector<InstructionSet> r = {InstructionSet::portable};
  for (InstructionSet s : {InstructionSet::avx2, InstructionSet::avx512}) {
    if (processor_has(s)) r.push_back(s);
  }
  return r;
}

struct Free {
  void operator()(double* p) const { std::free(p); }
};
using Aligned = std::unique_ptr<double, Free>;
Aligned aligned(std::int64_t n) {
  auto* p =
      static_cast<double*>(std::aligned_alloc(64, (static_cast<std::size_t>(n) + 8) / 8 * 64));
  std::fill_n(p, n, 0.0);
  return Aligned(p);
}

class Mpfr {
 public:
  Mpfr() { mpfr_init2(x_, 300); }
  ~Mpfr() { mpfr_clear(x_); }
  Mpfr(const Mpfr&) = delete;
  Mpfr& operator=(const Mpfr&) = delete;
  mpfr_ptr get() { return x_; }

 private:
  mpfr_t x_;
};

/// |hi + lo - 2^t| / 2^t, t = (c_hi + c_lo) s - shift or the pair itself with s = 1.
double relative_error(double hi, double lo, double c_hi, double c_lo, double s, double shift) {
  Mpfr t, y, e;
  mpfr_set_d(t.get(), c_hi, MPFR_RNDN);
  mpfr_add_d(t.get(), t.get(), c_lo, MPFR_RNDN);
  mpfr_mul_d(t.get(), t.get(), s, MPFR_RNDN);
  mpfr_sub_d(t.get(), t.get(), shift, MPFR_RNDN);
  mpfr_exp2(y.get(), t.get(), MPFR_RNDN);
  mpfr_set_d(e.get(), hi, MPFR_RNDN);
  mpfr_add_d(e.get(), e.get(), lo, MPFR_RNDN);
  mpfr_sub(e.get(), e.get(), y.get(), MPFR_RNDN);
  mpfr_div(e.get(), e.get(), y.get(), MPFR_RNDN);
  return std::fabs(mpfr_get_d(e.get(), MPFR_RNDA));
}

/// Arguments of at most `limit`: of all sizes, and close to odd 32nds, where r is largest.
double argument(std::mt19937_64& random, double limit) {
  const auto unit = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  double x = (2 * unit() - 1) * limit;
  switch (random() % 4) {
    case 0:
      return (std::rint(x * 16 - 0.5) + 0.5 + (unit() - 0.5) * 0x1p-30) / 16;
    case 1:
      return std::ldexp(x, -static_cast<int>(random() % 60));
    case 2:
      return std::rint(x * 16) / 16;
    default:
      return x;
  }
}

TEST(LadderKernels, ShortWeightsWithinTheirBound) {
  const NearestRounding nearest;
  double worst = 0;
  for (const InstructionSet set : sets()) {
    for (const LadderKernels* k :
         {&ladder_kernels(set), &small_ladder_kernels(set, 8), &small_ladder_kernels(set, 1)}) {
      std::mt19937_64 random(3);
      const std::int64_t n = tile_keys * k->panel_rows;
      const Aligned scores = aligned(n), visible = aligned(n);
      for (int round = 0; round < (set == InstructionSet::portable ? 40 : 12); ++round) {
        // log2 e / sqrt(128), 1/3 and 1 as pairs
        const double c[3][2] = {
            {0x1.051a6d6345fdap-3, 0}, {0x1.5555555555555p-2, 0x1.5p-56}, {1, 0}};
        ExponentArgs args;
        args.c_hi = c[round % 3][0];
        args.c_lo = c[round % 3][1];
        const std::int64_t keys = round % 5 == 0 ? static_cast<std::int64_t>(random() % 49) : 48;
        const bool masked = round % 4 == 1;
        std::vector<double> s(static_cast<std::size_t>(n), 0.0);
        for (std::int64_t i = 0; i < keys * k->panel_rows; ++i) {
          s[static_cast<std::size_t>(i)] = argument(random, 399.0) / args.c_hi;
          visible.get()[i] = !masked || random() % 3 != 0;
        }
        std::fill_n(visible.get() + keys * k->panel_rows, n - keys * k->panel_rows, 0.0);
        std::copy(s.begin(), s.end(), scores.get());
        if (masked) args.visible = visible.get();
        PanelState state{};
        k->short_weights(args, scores.get(), keys, &state);
        for (std::int64_t r = 0; r < k->panel_rows; ++r) {
          double sum = 0, squares = 0;
          for (std::int64_t j = 0; j < tile_keys; ++j) {
            const std::int64_t i = j * k->panel_rows + r;
            const double w = scores.get()[i];
            sum += w;
            squares += w * w;
            if (visible.get()[i] == 0) {
              ASSERT_EQ(w, 0.0) << name(set) << " key " << j << " of " << keys;
              continue;
            }
            const double x = s[static_cast<std::size_t>(i)];
            const double error = relative_error(w, 0, args.c_hi, args.c_lo, x, 0);
            worst = std::max(worst, error);
            ASSERT_LE(error, exp2_short_relative_error_bound)
                << std::hexfloat << name(set) << " score " << x << " factor " << args.c_hi;
          }
          EXPECT_NEAR(state.sum[r], sum, sum * 0x1p-45);
          EXPECT_NEAR(state.squares[r], squares, squares * 0x1p-45);
        }
      }
    }
  }
  // the bound is not idle
  EXPECT_GT(worst, 0.75 * exp2_short_relative_error_bound);
}

TEST(PairKernels, WeightsWithinTheirBound) {
  const NearestRounding nearest;
  double worst = 0;
  for (const InstructionSet set : sets()) {
    const PairKernels& k = pair_kernels(set);
    std::mt19937_64 random(17);
    constexpr std::int64_t n = 4096;
    std::vector<double> hi(n), lo(n), p_hi(n), p_lo(n);
    for (const double shift : {0.0, 37.0, -512.0}) {
      for (std::int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<std::size_t>(i);
        hi[at] = argument(random, 300.0) + shift;
        lo[at] = std::ldexp(hi[at], -54) * (static_cast<double>(random() % 2001) / 1000 - 1);
      }
      k.weights(hi.data(), lo.data(), shift, n, p_hi.data(), p_lo.data());
      for (std::size_t i = 0; i < n; ++i) {
        const double error = relative_error(p_hi[i], p_lo[i], hi[i], lo[i], 1, shift);
        worst = std::max(worst, error);
        ASSERT_LE(error, pair_exp2_error)
            << std::hexfloat << name(set) << " " << hi[i] << " " << lo[i] << " " << shift;
        ASSERT_EQ(p_hi[i] + p_lo[i], p_hi[i]);
      }
    }
  }
  EXPECT_GT(worst, 0x1p-107);
  EXPECT_LT(worst, 0x1p-101);  // as the account at exp2_of_pair says
}

TEST(PairKernels, SumsOfIntegersAreExact) {
  const NearestRounding nearest;
  for (const InstructionSet set : sets()) {
    const PairKernels& k = pair_kernels(set);
    std::mt19937_64 random(5);
    for (const std::int64_t n : {8, 16, 24, 808}) {
      const auto size = static_cast<std::size_t>(n);
      // p = a + b 2^-60 with small integers a, b: sums and products are exact in pairs
      std::vector<double> p_hi(size), p_lo(size), v(size);
      std::int64_t a_sum = 0, b_sum = 0, av = 0, bv = 0, magnitude = 0;
      for (std::size_t i = 0; i < size; ++i) {
        const auto a = static_cast<std::int64_t>(random() % 1000 + 1);
        const auto b = static_cast<std::int64_t>(random() % 64);
        const auto x = static_cast<std::int64_t>(random() % 201) - 100;
        p_hi[i] = static_cast<double>(a);
        p_lo[i] = static_cast<double>(b) * 0x1p-60;
        v[i] = static_cast<double>(x);
        a_sum += a, b_sum += b, av += a * x, bv += b * x, magnitude += a * std::abs(x);
      }
      double hi, lo, absolute;
      k.sum(p_hi.data(), p_lo.data(), n, &hi, &lo);
      EXPECT_EQ(hi, static_cast<double>(a_sum));
      EXPECT_EQ(lo, static_cast<double>(b_sum) * 0x1p-60);
      k.weighted_sum(p_hi.data(), p_lo.data(), v.data(), n, &hi, &lo, &absolute);
      EXPECT_EQ(hi, static_cast<double>(av));
      EXPECT_EQ(lo, static_cast<double>(bv) * 0x1p-60);
      EXPECT_EQ(absolute, static_cast<double>(magnitude));
    }
  }
}

// Every word of the 16-bit formats and random ones of fp32, at every length modulo a register.
TEST(LadderKernels, WordsAreRead) {
  const NearestRounding nearest;
  for (const InstructionSet set : sets()) {
    const LadderKernels& k = ladder_kernels(set);
    const PairKernels& pairs = pair_kernels(set);
    std::mt19937_64 random(9);
    for (const Format& f : {bf16, fp16, fp32}) {
      const Words words = *words_of(f);
      const auto bytes = static_cast<std::size_t>(f.storage_bytes());
      std::uint64_t next = 0;
      for (std::int64_t count = 1; next < 65536; count = count % 131 + 1) {
        const auto n = static_cast<std::size_t>(count);
        std::vector<std::byte> row(n * bytes);
        std::vector<double> x(n);
        double squares = 0, least = infinity;
        for (std::size_t i = 0; i < n; ++i) {
          std::uint64_t code = next++ & 0xffff;
          if (f == fp32) code = code << 16 | (random() & 0xffff);
          if (!is_finite(f, code)) code &= 0xff;  // judged below
          std::memcpy(&row[i * bytes], &code, bytes);
          x[i] = decode(f, code);
          squares += x[i] * x[i];
          if (x[i] != 0) least = std::min(least, std::fabs(x[i]));
        }
        std::vector<double> out(n, 7);
        k.convert(words, row.data(), count, out.data());
        ASSERT_EQ(out, x) << name(set) << " " << f.name;
        const std::int64_t groups = (count + channel_group - 1) / channel_group;
        std::vector<double> tile(static_cast<std::size_t>(groups * channel_group * tile_keys), 7);
        k.convert_values(words, row.data(), count, tile.data() + 2 * channel_group);
        for (std::int64_t c = 0; c < count; ++c) {
          ASSERT_EQ(tile[static_cast<std::size_t>(c / 4 * 4 * tile_keys + 2 * 4 + c % 4)],
                    x[static_cast<std::size_t>(c)]);
        }
        double found_squares, found_least;
        k.measure_words(words, row.data(), count, &found_squares, &found_least);
        EXPECT_NEAR(found_squares, squares, squares * 0x1p-44);
        EXPECT_EQ(found_least, least);
        std::vector<double> most(n, 0.5), sums(n, 0.25);
        k.absorb_words(words, row.data(), count, most.data(), sums.data());
        for (std::size_t i = 0; i < n; ++i) {
          ASSERT_EQ(most[i], std::max(0.5, std::fabs(x[i])));
          ASSERT_NEAR(sums[i], 0.25 + x[i] * x[i], (0.25 + x[i] * x[i]) * 0x1p-51);
        }
        // a row of one element each: strided, in any order
        const std::int64_t keys[] = {count - 1, 0, count / 2};
        double gathered[3];
        pairs.gather(words, row.data(), static_cast<std::int64_t>(bytes), keys, 3, gathered);
        for (int i = 0; i < 3; ++i) EXPECT_EQ(gathered[i], x[static_cast<std::size_t>(keys[i])]);
      }
      // a NaN or an infinity anywhere shows in the squares
      for (std::int64_t at = 0; at < 19; ++at) {
        for (const std::uint64_t code : {f.nan_code(), f.max_finite_code() + 1}) {
          std::vector<std::byte> row(19 * bytes);
          std::memcpy(&row[static_cast<std::size_t>(at) * bytes], &code, bytes);
          double squares, least;
          k.measure_words(words, row.data(), 19, &squares, &least);
          EXPECT_FALSE(std::isfinite(squares)) << name(set) << " " << f.name << " " << at;
        }
      }
    }
  }
}

TEST(PairKernels, ScoresOfIntegersAreExact) {
  const NearestRounding nearest;
  for (const InstructionSet set : sets()) {
    const PairKernels& k = pair_kernels(set);
    std::mt19937_64 random(23);
    for (const Format& f : {bf16, fp16, fp32}) {
      const auto bytes = static_cast<std::size_t>(f.storage_bytes());
      for (std::int64_t d = 1; d < 40; ++d) {
        const std::int64_t keys = d % 7 + 1, stride = static_cast<std::int64_t>(bytes) * (d + 3);
        std::vector<std::byte> rows(static_cast<std::size_t>(keys * stride));
        std::vector<double> q(static_cast<std::size_t>(d)), s(static_cast<std::size_t>(keys));
        for (double& x : q) x = static_cast<double>(random() % 255) - 127;
        std::vector<double> expected(s.size(), 0.0);
        for (std::int64_t j = 0; j < keys; ++j) {
          for (std::int64_t t = 0; t < d; ++t) {
            const double x = static_cast<double>(random() % 255) - 127;
            const std::uint64_t code = encode(f, x, {});
            std::memcpy(
                &rows[static_cast<std::size_t>(j * stride) + static_cast<std::size_t>(t) * bytes],
                &code, bytes);
            expected[static_cast<std::size_t>(j)] += x * q[static_cast<std::size_t>(t)];
          }
        }
        k.scores(*words_of(f), rows.data(), stride, keys, q.data(), d, s.data());
        EXPECT_EQ(s, expected) << name(set) << " " << f.name << " " << d;
      }
    }
  }
}

void expect_values(const LadderKernels& k) {
  const NearestRounding nearest;
  for (const std::int64_t channels : {4, 8, 20, 24, 28}) {
    // whole and part tiles, ends of chains among them
    const std::int64_t keys = channels == 4 ? 48 : channels == 8 ? 24 : channels * 2 - 31;
    const std::int64_t rows = k.panel_rows;
    const Aligned w = aligned(tile_keys * rows), v = aligned(tile_keys * channels),
                  sums = aligned(channels * rows), total = aligned(channels * rows);
    for (std::int64_t i = 0; i < keys * rows; ++i) w.get()[i] = static_cast<double>(i % 11);
    for (std::int64_t i = 0; i < tile_keys * channels; ++i) v.get()[i] = static_cast<double>(i % 7);
    for (std::int64_t i = 0; i < channels * rows; ++i) {
      sums.get()[i] = 3;
      total.get()[i] = 1000;
    }
    k.values(w.get(), v.get(), channels, keys, sums.get(), nullptr);
    std::vector<double> once(sums.get(), sums.get() + channels * rows);
    k.values(w.get(), v.get(), channels, keys, sums.get(), total.get());
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (std::int64_t j = 0; j < tile_keys; ++j) {
          sum += w.get()[j * rows + r] * v.get()[c / 4 * 4 * tile_keys + j * 4 + c % 4];
        }
        const std::int64_t at = c * rows + r;
        EXPECT_EQ(once[static_cast<std::size_t>(at)], 3 + sum);
        EXPECT_EQ(sums.get()[at], 0);
        EXPECT_EQ(total.get()[at], 1003 + 2 * sum);
      }
    }
  }
}
TEST(LadderKernels, ValuesMoveIntoTotals) {
  for (const InstructionSet set : sets()) {
    expect_values(ladder_kernels(set));
    expect_values(small_ladder_kernels(set, 8));
    expect_values(small_ladder_kernels(set, 1));
  }
}

}  // namespace
}  // namespace headroom
