// Passes over stored rows, on every instruction set, against exact sums.
//
// The oracle adds in MPFR with 4,096 bits: squares of binary32 numbers reach from 2^-298 to 2^256,
// and differences of them are held exactly, so that every oracle value here is exact.
#include "reference/model/passes/passes.h"

#include <gtest/gtest.h>
#include <mpfr.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "reference/format/convert.h"
#include "reference/real/fp_environment.h"

namespace headroom {
namespace {

class Exact {
 public:
  Exact() { mpfr_init2(value_, 4096), mpfr_set_zero(value_, 1); }
  ~Exact() { mpfr_clear(value_); }
  Exact(const Exact&) = delete;
  Exact& operator=(const Exact&) = delete;

  /// Adds (a - b) (a - b), or a b.
  void add_square_of_difference(double a, double b) {
    Exact d;
    mpfr_set_d(d.value_, a, MPFR_RNDN);
    mpfr_sub_d(d.value_, d.value_, b, MPFR_RNDN);
    mpfr_sqr(d.value_, d.value_, MPFR_RNDN);
    mpfr_add(value_, value_, d.value_, MPFR_RNDN);
  }
  void add_product(double a, double b) {
    Exact p;
    mpfr_set_d(p.value_, a, MPFR_RNDN);
    mpfr_mul_d(p.value_, p.value_, b, MPFR_RNDN);
    mpfr_add(value_, value_, p.value_, MPFR_RNDN);
  }
  /// |this - x| <= relative |scale| + absolute.
  testing::AssertionResult near(double x, double relative, double scale, double absolute) const {
    Exact off, limit;
    mpfr_sub_d(off.value_, value_, x, MPFR_RNDN);
    mpfr_abs(off.value_, off.value_, MPFR_RNDN);
    limit.add_product(relative, scale);
    limit.add_product(1, absolute);
    if (mpfr_lessequal_p(off.value_, limit.value_) != 0) return testing::AssertionSuccess();
    return testing::AssertionFailure()
           << std::hexfloat << "exact " << to_double() << " computed " << x << " off by "
           << off.to_double() << " limit " << limit.to_double();
  }
  double to_double() const { return mpfr_get_d(value_, MPFR_RNDN); }

 private:
  mpfr_t value_;
};

/// Rows at a stride of their own, from an address that no word is aligned at.
struct Stored {
  Format format = bf16;
  WordFormat words = WordFormat::bf16;
  std::int64_t rows = 0, channels = 0, stride = 0;
  std::vector<std::byte> bytes;

  StoredRows view() const { return {bytes.data() + 1, stride, rows, channels}; }
  std::byte* at(std::int64_t i, std::int64_t c) {
    return bytes.data() + 1 + i * stride + c * format.storage_bytes();
  }
  void set(std::int64_t i, std::int64_t c, std::uint64_t code) {
    std::memcpy(at(i, c), &code, static_cast<std::size_t>(format.storage_bytes()));
  }
  double value(std::int64_t i, std::int64_t c) const {
    std::uint64_t code = 0;
    std::memcpy(&code, bytes.data() + 1 + i * stride + c * format.storage_bytes(),
                static_cast<std::size_t>(format.storage_bytes()));
    return decode(format, code);
  }
};

enum class Kind { normal, any_finite, subnormal, huge, zeros, integers };

Stored make(const Format& format, std::int64_t rows, std::int64_t channels, Kind kind,
            std::mt19937_64& engine) {
  Stored s;
  s.format = format;
  s.words = *word_format(format);
  s.rows = rows, s.channels = channels;
  const std::int64_t bytes = format.storage_bytes();
  s.stride = channels * bytes + (engine() % 3) * 3;
  s.bytes.resize(static_cast<std::size_t>(1 + rows * s.stride + channels * bytes));
  std::normal_distribution<double> normal;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t c = 0; c < channels; ++c) {
      std::uint64_t code = 0;
      switch (kind) {
        case Kind::normal:
          code = encode(format, round_to(format, normal(engine) * 3 + 1), {});
          break;
        case Kind::any_finite:
          do {
            code = engine() & ((std::uint64_t{1} << format.bits()) - 1);
          } while (!is_finite(format, code));
          break;
        case Kind::subnormal:
          code = engine() & (format.trailing_mask() | format.sign_mask());
          break;
        case Kind::huge:
          code = format.max_finite_code() - engine() % 8;
          break;
        case Kind::zeros:
          code = engine() % 2 == 0 ? 0 : format.sign_mask();
          break;
        case Kind::integers:
          code = encode(format, static_cast<double>(static_cast<int>(engine() % 9)) - 4, {});
          break;
      }
      s.set(i, c, code);
    }
  }
  return s;
}

/// Every table of passes that this processor runs.
struct Variant {
  InstructionSet set;
  bool bf16_products;
  const PassKernels& kernels(WordFormat words) const {
    return pass_kernels(set, words, bf16_products);
  }
  std::string text() const { return std::string(name(set)) + (bf16_products ? "+bf16" : ""); }
};
std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const InstructionSet set :
       {InstructionSet::portable, InstructionSet::avx2, InstructionSet::avx512}) {
    if (processor_has(set)) all.push_back({set, false});
  }
  if (has_bf16_products()) all.push_back({InstructionSet::avx512, true});
  return all;
}

std::vector<InstructionSet> sets() {
  std::vector<InstructionSet> all;
  for (const InstructionSet set :
       {InstructionSet::portable, InstructionSet::avx2, InstructionSet::avx512}) {
    if (processor_has(set)) all.push_back(set);
  }
  return all;
}

constexpr Kind kinds[] = {Kind::normal, Kind::any_finite, Kind::subnormal,
                          Kind::huge,   Kind::zeros,      Kind::integers};
constexpr std::int64_t shapes[][2] = {{1, 1},  {3, 3},   {17, 31},  {16, 32},
                                      {5, 33}, {33, 64}, {19, 128}, {2, 129}};

template <class Body>
void for_all(const Body& body) {
  std::mt19937_64 engine(1);
  for (const Format* format : {&bf16, &fp16, &fp32}) {
    for (const Kind kind : kinds) {
      for (const auto& shape : shapes) {
        const Stored s = make(*format, shape[0], shape[1], kind, engine);
        for (const Variant& variant : variants()) {
          SCOPED_TRACE(testing::Message()
                       << format->name << " kind " << static_cast<int>(kind) << " " << shape[0]
                       << " x " << shape[1] << " " << variant.text());
          const NearestRounding nearest;
          body(s, variant.kernels(s.words), engine);
        }
      }
    }
  }
}

double gamma(std::int64_t roundings, int precision) {
  const double x = static_cast<double>(roundings) * std::ldexp(1.0, -precision);
  return x / (1 - x) * (1 + 1e-9);
}

TEST(Passes, ExtremesAreExact) {
  for_all([](const Stored& s, const PassKernels& kernels, std::mt19937_64&) {
    const Extremes e = kernels.extremes(s.view());
    double least = INFINITY, most = -INFINITY, smallest = INFINITY;
    for (std::int64_t i = 0; i < s.rows; ++i) {
      for (std::int64_t c = 0; c < s.channels; ++c) {
        const double x = s.value(i, c);
        least = std::fmin(least, x), most = std::fmax(most, x);
        if (x != 0) smallest = std::fmin(smallest, std::fabs(x));
      }
    }
    EXPECT_TRUE(e.finite);
    EXPECT_EQ(e.least, least);
    EXPECT_EQ(e.most, most);
    EXPECT_EQ(e.smallest, smallest);
  });
}

TEST(Passes, NanAndInfinityAreSeenEverywhere) {
  for_all([](const Stored& given, const PassKernels& kernels, std::mt19937_64& engine) {
    Stored s = given;
    const auto i = static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(s.rows));
    const auto c = static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(s.channels));
    for (const std::uint64_t code :
         {s.format.infinity_code(), s.format.infinity_code() | s.format.sign_mask(),
          s.format.nan_code(), s.format.infinity_code() | 1}) {
      s.set(i, c, code);
      EXPECT_FALSE(kernels.extremes(s.view()).finite);
      std::vector<float> raw(static_cast<std::size_t>(s.rows));
      kernels.norms(s.view(), nullptr, raw.data(), nullptr);
      EXPECT_FALSE(std::isfinite(raw[static_cast<std::size_t>(i)]));
      ColumnSums sums;
      const auto width = static_cast<std::size_t>(padded_channels(s.channels));
      sums.sum.assign(width, 0.0);
      kernels.sums(s.view(), raw.data(), sums.sum.data());
      EXPECT_FALSE(std::isfinite(raw[static_cast<std::size_t>(i)]));
      std::vector<double> squares(raw.size()), dots(raw.size());
      std::vector<std::uint8_t> grid(raw.size());
      kernels.queries(
          s.view(), {}, {sums.sum.data(), nullptr, nullptr, nullptr, 1},
          {squares.data(), dots.data(), nullptr, nullptr, nullptr, nullptr, grid.data()});
      EXPECT_FALSE(squares[static_cast<std::size_t>(i)] < 0x1p256);
      sums.sum.assign(width, 0.0);
      sums.magnitude.assign(width, 0.0);
      sums.least.assign(width, 0.0F);
      sums.most.assign(width, 0.0F);
      kernels.columns(s.view(), {}, sums);
      EXPECT_FALSE(
          std::isfinite(sums.magnitude[static_cast<std::size_t>(position_of(s.words, c))]));
    }
  });
}

TEST(Passes, SumsOfSquaresLieWithinTheirError) {
  for_all([](const Stored& s, const PassKernels& kernels, std::mt19937_64& engine) {
    std::vector<double> centre(static_cast<std::size_t>(s.channels));
    for (double& c : centre) {
      c = static_cast<float>(engine() % 4 == 0 ? 0.0 : s.value(0, 0) * 0.37 + 0.1);
    }
    const std::vector<float> arranged = arranged_floats(s.words, centre);
    std::vector<float> raw(static_cast<std::size_t>(s.rows)), centred(raw), alone(raw);
    kernels.norms(s.view(), arranged.data(), raw.data(), centred.data());
    kernels.norms(s.view(), nullptr, alone.data(), nullptr);
    const std::int64_t m = lane_roundings(s.channels);
    const double absolute = sums_floor(s.channels);
    Exact centre_squares;
    for (const double c : centre) centre_squares.add_square_of_difference(c, 0);
    for (std::int64_t i = 0; i < s.rows; ++i) {
      const auto at = static_cast<std::size_t>(i);
      Exact squares, around;
      for (std::int64_t c = 0; c < s.channels; ++c) {
        squares.add_square_of_difference(s.value(i, c), 0);
        around.add_square_of_difference(s.value(i, c), centre[static_cast<std::size_t>(c)]);
      }
      EXPECT_EQ(raw[at], alone[at]);
      if (std::isfinite(raw[at])) {
        EXPECT_TRUE(squares.near(raw[at], gamma(m, 24), squares.to_double(), absolute));
      } else {  // only where a sum comes near FP32's largest number
        EXPECT_GT(squares.to_double(), 0x1p127);
      }
      if (std::isfinite(centred[at])) {
        const double both = std::sqrt(squares.to_double()) + std::sqrt(centre_squares.to_double());
        EXPECT_TRUE(around.near(centred[at], centred_error(s.channels), both * both, absolute));
      } else {
        EXPECT_GT(squares.to_double() + centre_squares.to_double(), 0x1p125);
      }
    }
  });
}

// Squares of 16-bit operands are exact in FP32, so every set makes the same additions; products of
// pairs are added in another order.
TEST(Passes, EverySetGivesTheSameRawSumsOf16BitRows) {
  std::mt19937_64 engine(2);
  for (const Format* format : {&bf16, &fp16}) {
    for (const auto& shape : shapes) {
      const Stored s = make(*format, shape[0], shape[1], Kind::normal, engine);
      const NearestRounding nearest;
      std::vector<float> first;
      for (const InstructionSet set : sets()) {
        std::vector<float> raw(static_cast<std::size_t>(s.rows));
        pass_kernels(set, s.words, false).norms(s.view(), nullptr, raw.data(), nullptr);
        if (first.empty()) first = raw;
        EXPECT_EQ(raw, first) << name(set);
      }
    }
  }
}

double fold(double x, Folding f) {
  return f.on ? round_to(bf16, round_to(fp32, x * static_cast<double>(f.constant))) : x;
}

/// Foldings that a row format may have: constants of 24 bits, in BF16 where nothing underflows.
std::vector<Folding> foldings(const Stored& s, Kind) {
  std::vector<Folding> all{{}};
  double smallest = INFINITY, largest = 0;
  for (std::int64_t i = 0; i < s.rows; ++i) {
    for (std::int64_t c = 0; c < s.channels; ++c) {
      const double x = std::fabs(s.value(i, c));
      if (x != 0) smallest = std::fmin(smallest, x);
      largest = std::fmax(largest, x);
    }
  }
  for (const float constant : {0.08838834764F, 1.4453125F, -0.7F}) {
    const double size = std::fabs(constant);
    if (s.format == bf16 && smallest * size >= 0x1p-126 && largest * size < 0x1p127) {
      all.push_back({true, constant});
    }
  }
  return all;
}

TEST(Passes, ColumnsSumFoldedKeys) {
  for_all([](const Stored& s, const PassKernels& kernels, std::mt19937_64&) {
    for (const Folding f : foldings(s, Kind::normal)) {
      ColumnSums sums;
      const auto width = static_cast<std::size_t>(padded_channels(s.channels));
      sums.sum.assign(width, 0.0);
      sums.magnitude.assign(width, 0.0);
      sums.least.assign(width, INFINITY);
      sums.most.assign(width, -INFINITY);
      kernels.columns(s.view(), f, sums);
      for (std::int64_t c = 0; c < s.channels; ++c) {
        const auto at = static_cast<std::size_t>(position_of(s.words, c));
        Exact sum, magnitude;
        double least = INFINITY, most = -INFINITY;
        for (std::int64_t i = 0; i < s.rows; ++i) {
          const double k = fold(s.value(i, c), f);
          sum.add_product(k, 1);
          magnitude.add_product(std::fabs(k), 1);
          least = std::fmin(least, k), most = std::fmax(most, k);
        }
        const double all = magnitude.to_double();
        EXPECT_TRUE(sum.near(sums.sum[at], column_error(s.rows), all, 0));
        EXPECT_TRUE(magnitude.near(sums.magnitude[at], column_error(s.rows), all, 0));
        EXPECT_EQ(sums.least[at], least);
        EXPECT_EQ(sums.most[at], most);
      }
    }
  });
}

TEST(Passes, SumsByChannelComeWithTheNorms) {
  for_all([](const Stored& s, const PassKernels& kernels, std::mt19937_64&) {
    std::vector<float> raw(static_cast<std::size_t>(s.rows)), alone(raw);
    std::vector<double> sums(static_cast<std::size_t>(padded_channels(s.channels)));
    kernels.norms(s.view(), nullptr, alone.data(), nullptr);
    kernels.sums(s.view(), raw.data(), sums.data());
    kernels.sums(s.view(), raw.data(), sums.data());  // added to
    EXPECT_EQ(raw, alone);
    for (std::int64_t c = 0; c < s.channels; ++c) {
      Exact sum, magnitude;
      for (std::int64_t i = 0; i < s.rows; ++i) {
        sum.add_product(s.value(i, c), 2);
        magnitude.add_product(std::fabs(s.value(i, c)), 2);
      }
      const double found = sums[static_cast<std::size_t>(position_of(s.words, c))];
      const double all = magnitude.to_double();
      EXPECT_TRUE(sum.near(found, column_sum_error(2 * s.rows), all, 0));
    }
  });
}

// Both ends of k~, channel by channel: a row of one channel at a time shows them in its sums.
TEST(Passes, CentredKeysAreRoundedOnce) {
  std::mt19937_64 engine(3);
  for (const auto& shape : shapes) {
    const Stored s = make(bf16, shape[0], shape[1], Kind::normal, engine);
    std::vector<double> a_lo, a_hi;
    const bool certain = engine() % 2 == 0;
    std::normal_distribution<double> normal;
    for (std::int64_t c = 0; c < s.channels; ++c) {
      a_lo.push_back(round_to(bf16, normal(engine)));
      a_hi.push_back(certain ? a_lo.back() : round_to(bf16, a_lo.back() + 0.0078125));
    }
    for (const bool narrow : {true, false}) {
      for (const Folding f : foldings(s, Kind::normal)) {
        for (const InstructionSet set : sets()) {
          SCOPED_TRACE(testing::Message() << shape[0] << " x " << shape[1] << " " << name(set)
                                          << narrow << f.constant);
          const double factor = f.on ? 0.0883 : 1;
          const std::vector<float> lo = arranged_floats(s.words, a_lo);
          const std::vector<float> hi = arranged_floats(s.words, a_hi);
          std::vector<float> length(static_cast<std::size_t>(s.rows)), off(length), raw(length);
          std::vector<double> sum_lo(lo.size()), sum_hi(lo.size());
          {
            const NearestRounding nearest;
            pass_kernels(set, s.words)
                .centred(s.view(), f,
                         {lo.data(), hi.data(), certain, narrow, static_cast<float>(factor),
                          length.data(), off.data(), raw.data(), sum_lo.data(), sum_hi.data()});
          }
          std::vector<double> ends_lo(static_cast<std::size_t>(s.channels)), ends_hi(ends_lo);
          std::vector<double> magnitude(ends_lo);
          for (std::int64_t i = 0; i < s.rows; ++i) {
            double far = 0, apart = 0, reach = 0, largest = 0;
            for (std::int64_t c = 0; c < s.channels; ++c) {
              const auto at = static_cast<std::size_t>(c);
              const double k = fold(s.value(i, c), f);
              // exact as doubles: BF16 numbers of similar size
              double from = k - a_hi[at], to = k - a_lo[at];
              from = round_to(narrow ? bf16 : fp32, from);
              to = round_to(narrow ? bf16 : fp32, to);
              const double t = s.value(i, c) * factor;
              far += std::pow(std::fmax(std::fabs(from), std::fabs(to)), 2);
              apart += std::pow(std::fmax(to - (t - a_hi[at]), (t - a_lo[at]) - from), 2);
              reach += std::pow(std::fmax(std::fabs(t - a_lo[at]), std::fabs(t - a_hi[at])), 2);
              largest = std::fmax(largest, std::fabs(t) + std::fabs(a_hi[at]));
              ends_lo[at] += from, ends_hi[at] += to;
              magnitude[at] += std::fabs(from) + std::fabs(to);
            }
            const auto at = static_cast<std::size_t>(i);
            EXPECT_NEAR(length[at], far, 1e-5 * far);
            EXPECT_NEAR(std::sqrt(raw[at]), std::sqrt(reach), 1e-5 * std::sqrt(reach) + 1e-6);
            EXPECT_NEAR(std::sqrt(off[at]), std::sqrt(apart),
                        1e-5 * std::sqrt(apart) +
                            0x1p-22 * largest * std::sqrt(static_cast<double>(s.channels)));
          }
          for (std::int64_t c = 0; c < s.channels; ++c) {
            const auto at = static_cast<std::size_t>(position_of(s.words, c));
            const auto by_channel = static_cast<std::size_t>(c);
            const double error = (column_error(s.rows) + 1e-14) * magnitude[by_channel];
            EXPECT_NEAR(sum_lo[at], ends_lo[by_channel], error);
            EXPECT_NEAR(sum_hi[at], ends_hi[by_channel], error);
          }
        }
      }
    }
  }
}

TEST(Passes, QueriesLieWithinTheirErrorAndAreTheSameInEverySet) {
  std::mt19937_64 engine(4);
  std::normal_distribution<double> normal;
  for (const Format* format : {&bf16, &fp16, &fp32}) {
    for (const Kind kind : kinds) {
      for (const auto& shape : shapes) {
        const Stored s = make(*format, shape[0], shape[1], kind, engine);
        std::vector<double> mean, half, centre;
        for (std::int64_t c = 0; c < s.channels; ++c) {
          mean.push_back(normal(engine)), half.push_back(std::fabs(normal(engine)) * 0.01);
          centre.push_back(normal(engine));
        }
        const std::vector<double> m = arranged_doubles(s.words, mean);
        const std::vector<double> w = arranged_doubles(s.words, half);
        const std::vector<double> a = arranged_doubles(s.words, centre);
        const double relative = gamma(lane_roundings(s.channels), 53);
        for (const Folding f : foldings(s, kind)) {
          std::vector<double> first, first_alone;
          for (const InstructionSet set : sets()) {
            SCOPED_TRACE(testing::Message()
                         << format->name << " kind " << static_cast<int>(kind) << " " << shape[0]
                         << " x " << shape[1] << " " << name(set));
            const auto n = static_cast<std::size_t>(s.rows);
            std::vector<double> all(6 * n);
            std::vector<std::uint8_t> grid(n);
            {
              const NearestRounding nearest;
              pass_kernels(set, s.words)
                  .queries(s.view(), f, {m.data(), w.data(), a.data(), w.data(), 0.0883},
                           {&all[0], &all[n], &all[2 * n], &all[3 * n], &all[4 * n], &all[5 * n],
                            grid.data()});
            }
            if (first.empty()) first = all;
            EXPECT_EQ(all, first);
            // squares and means alone, which may be summed in another order
            std::vector<double> alone(3 * n);
            std::vector<std::uint8_t> grid_alone(n);
            {
              const NearestRounding nearest;
              pass_kernels(set, s.words)
                  .queries(s.view(), f, {m.data(), nullptr, nullptr, nullptr, 0.0883},
                           {&alone[0], &alone[n], nullptr, nullptr, nullptr, &alone[2 * n],
                            grid_alone.data()});
            }
            if (first_alone.empty()) first_alone = alone;
            EXPECT_EQ(alone, first_alone);
            for (std::size_t i = 0; i < n; ++i) {
              Exact squares, dot, spread, second;
              Exact dot_terms, second_terms;
              int least = 1 << 20;  // exponent of the lowest bit set in any element
              for (std::int64_t c = 0; c < s.channels; ++c) {
                const auto at = static_cast<std::size_t>(c);
                const double q = fold(s.value(static_cast<std::int64_t>(i), c), f);
                squares.add_product(q, q);
                dot.add_product(q, mean[at]);
                dot_terms.add_product(std::fabs(q), std::fabs(mean[at]));
                spread.add_product(std::fabs(q), half[at]);
                second.add_product(q, centre[at]);
                second_terms.add_product(std::fabs(q), std::fabs(centre[at]));
                if (q != 0) {
                  const ExactValue x = exact_value(q);
                  least = std::min(least,
                                   static_cast<int>(x.exponent) + std::countr_zero(x.significand));
                }
              }
              EXPECT_TRUE(squares.near(all[i], relative, squares.to_double(), 0));
              EXPECT_TRUE(dot.near(all[n + i], relative, dot_terms.to_double(), 0));
              EXPECT_TRUE(spread.near(all[2 * n + i], relative, spread.to_double(), 0));
              EXPECT_TRUE(second.near(all[3 * n + i], relative, second_terms.to_double(), 0));
              EXPECT_TRUE(spread.near(all[4 * n + i], relative, spread.to_double(), 0));
              EXPECT_TRUE(squares.near(alone[i], relative, squares.to_double(), 0));
              EXPECT_TRUE(dot.near(alone[n + i], relative, dot_terms.to_double(), 0));
              // a row whose FP32 sums of squares are exact is never said to be off the grid
              const double total = squares.to_double();
              if (least < (1 << 20) && total <= std::ldexp(1.0, 2 * least + 24)) {
                EXPECT_EQ(grid[i], 1) << total << " " << least;
                EXPECT_EQ(grid_alone[i], 1) << total << " " << least;
              }
            }
          }
        }
      }
    }
  }
}

TEST(Passes, QueriesFoldAndTellTheFoldingsError) {
  std::mt19937_64 engine(6);
  const Stored s = make(bf16, 9, 40, Kind::normal, engine);
  const Folding f{true, 1.4453125F};
  const double factor = 1.4426950408889634;
  const std::vector<double> zeros(static_cast<std::size_t>(padded_channels(s.channels)));
  for (const InstructionSet set : sets()) {
    std::vector<double> squares(9), dot(9), off(9);
    std::vector<std::uint8_t> grid(9);
    const NearestRounding nearest;
    pass_kernels(set, s.words)
        .queries(s.view(), f, {zeros.data(), nullptr, nullptr, nullptr, factor},
                 {squares.data(), dot.data(), nullptr, nullptr, nullptr, off.data(), grid.data()});
    for (std::int64_t i = 0; i < 9; ++i) {
      long double expected = 0, length = 0;
      for (std::int64_t c = 0; c < s.channels; ++c) {
        const long double x = s.value(i, c);
        const long double apart = static_cast<long double>(fold(s.value(i, c), f)) - x * factor;
        expected += apart * apart;
        length += x * factor * x * factor;
      }
      EXPECT_NEAR(std::sqrt(off[static_cast<std::size_t>(i)]),
                  static_cast<double>(std::sqrt(expected)),
                  static_cast<double>(0x1p-50L * std::sqrt(length)));
    }
  }
}

TEST(Passes, PrefixesAddTheKeysARowSees) {
  std::mt19937_64 engine(5);
  for (const Format* format : {&bf16, &fp16, &fp32}) {
    const Stored q = make(*format, 23, 37, Kind::normal, engine);
    const Stored k = make(*format, 40, 37, Kind::normal, engine);
    std::vector<std::int64_t> ends;
    for (std::int64_t i = 0; i < q.rows; ++i) ends.push_back(i < 3 ? 0 : i + 17);
    for (const InstructionSet set : sets()) {
      std::vector<double> dots(static_cast<std::size_t>(q.rows));
      {
        const NearestRounding nearest;
        pass_kernels(set, q.words).prefixes(q.view(), {}, k.view(), {}, ends.data(), dots.data());
      }
      for (std::int64_t i = 0; i < q.rows; ++i) {
        Exact sum, terms;
        for (std::int64_t j = 0; j < ends[static_cast<std::size_t>(i)]; ++j) {
          for (std::int64_t c = 0; c < q.channels; ++c) {
            sum.add_product(q.value(i, c), k.value(j, c));
            terms.add_product(std::fabs(q.value(i, c)), std::fabs(k.value(j, c)));
          }
        }
        const double relative =
            gamma(lane_roundings(q.channels) + ends[static_cast<std::size_t>(i)], 53);
        EXPECT_TRUE(sum.near(dots[static_cast<std::size_t>(i)], relative, terms.to_double(), 0));
      }
    }
  }
}

}  // namespace
}  // namespace headroom
