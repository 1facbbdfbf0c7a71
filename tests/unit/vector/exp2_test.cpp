// exp2 kernels against MPFR, and against each other bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "reference/evaluate/vector/exp2_constants.h"
#include "reference/evaluate/vector/kernels.h"
#include "reference/real/fp_environment.h"
#include "tests/unit/vector/exp2_oracle.h"
#include "tests/unit/vector/instruction_sets.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
// log2 e as a pair, [OEIS A007525]; any c would do
constexpr double log2_e[2] = {0x1.71547652b82fep0, 0x1.777d0ffda0d24p-56};

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

/// Points where something happens: integers, table entries and their midpoints with neighbours,
/// tiny and huge arguments, the ends of the range.
std::vector<double> special_points() {
  std::vector<double> points = {0.0, -0.0, 0x1p-1074, -0x1p-1074, 0x1p-1022, -0x1p-1022};
  const auto around = [&points](double x) {
    double up = x, down = x;
    points.push_back(x);
    for (int i = 0; i < 2; ++i) {
      points.push_back(up = std::nextafter(up, infinity));
      points.push_back(down = std::nextafter(down, -infinity));
    }
  };
  for (int e = -1070; e <= 25; ++e) {
    around(std::ldexp(1.0, e));
    around(-std::ldexp(1.0, e));
  }
  for (int n = -1080; n <= 1030; ++n) around(n);
  // every breakpoint of the table near the places that matter
  for (const int centre : {-1075, -1023, -126, -25, 0, 15, 127, 1023}) {
    for (int j = -32; j <= 32; ++j) around(centre + j / 32.0);
  }
  // 2^x at the overflow threshold and at the least subnormal and its half
  const double overflow = 0x1.fffffffffffffp9;
  for (const double x : {overflow, 1024.0, -1074.0, -1074.5, -1075.0, -1076.0, -2043.0, -2044.0,
                         -2045.0, 2044.0, 4096.0}) {
    around(x);
    around(-x);
  }
  for (const double x : {exp2_argument_limit, 2 * exp2_argument_limit, 0x1p46, 0x1p48, 1e300,
                         std::numeric_limits<double>::max()}) {
    points.push_back(x);
    points.push_back(-x);
  }
  return points;
}

/// Random doubles in ranges of different widths; a third within 2^-30 of a table midpoint.
std::vector<double> random_points(std::size_t n, unsigned long seed) {
  std::mt19937_64 random(seed);
  std::vector<double> points(n);
  const auto unit = [&random] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  for (std::size_t i = 0; i < n; ++i) {
    const double width = i % 4 == 0 ? 1 : i % 4 == 1 ? 40 : i % 4 == 2 ? 160 : 1080;
    double x = (unit() * 2 - 1) * width;
    if (i % 3 == 0) x = (std::rint(x * 16) + 0.5 + (unit() - 0.5) * 0x1p-30) / 16;
    if (i % 64 == 5) x *= std::ldexp(1.0, -static_cast<int>(random() % 60));
    points[i] = x;
  }
  return points;
}

using Exp2Kernels = EachInstructionSet;
INSTANTIATE_TEST_SUITE_P(Every, Exp2Kernels, every_instruction_set(), instruction_set_name);

TEST_P(Exp2Kernels, SpecialPointsWithinTheBound) {
  const NearestRounding nearest;
  const std::vector<double> x = special_points();
  std::vector<double> y(x.size());
  kernels().exp2(x.data(), y.data(), x.size());
  Exp2Oracle oracle;
  for (std::size_t i = 0; i < x.size(); ++i) {
    oracle.argument(x[i]);
    const Exp2Judgement j = oracle.judge(y[i]);
    ASSERT_TRUE(j.within) << "2^" << hex(x[i]) << " gave " << hex(y[i]) << ", off by "
                          << j.error_in_2_53 << " * 2^-53";
  }
}

TEST_P(Exp2Kernels, PowersOfTwoAreExact) {
  const NearestRounding nearest;
  for (int n = -1200; n <= 1100; ++n) {
    const double x = n;
    double y, with_shift;
    kernels().exp2(&x, &y, 1);
    EXPECT_EQ(y, std::ldexp(1.0, n)) << n;
    const double at = 5;  // the shift is an integer and costs nothing
    const double zero = 0;
    kernels().exp2_pair(&at, &zero, 5 - n, &with_shift, 1);
    EXPECT_EQ(with_shift, std::ldexp(1.0, n)) << n;
  }
}

TEST_P(Exp2Kernels, LimitsAndNan) {
  const NearestRounding nearest;
  const std::vector<double> x = {infinity, -infinity, nan, 1e300, -1e300, 1025, -1076};
  std::vector<double> y(x.size());
  kernels().exp2(x.data(), y.data(), x.size());
  EXPECT_EQ(y[0], infinity);
  EXPECT_EQ(y[1], 0);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_EQ(y[3], infinity);
  EXPECT_EQ(y[4], 0);
  EXPECT_EQ(y[5], infinity);
  EXPECT_EQ(y[6], 0);
  for (const double shift : {0.0, exp2_shift_limit, -exp2_shift_limit}) {
    const std::vector<double> s = {infinity, -infinity, nan, 1e308, -1e308};
    kernels().exp2_product(log2_e[0], log2_e[1], s.data(), shift, y.data(), s.size());
    EXPECT_EQ(y[0], infinity) << shift;
    EXPECT_EQ(y[1], 0) << shift;
    EXPECT_TRUE(std::isnan(y[2])) << shift;
    EXPECT_EQ(y[3], infinity) << shift;
    EXPECT_EQ(y[4], 0) << shift;
    kernels().exp2_product(-log2_e[0], -log2_e[1], s.data(), shift, y.data(), s.size());
    EXPECT_EQ(y[0], 0) << shift;
    EXPECT_EQ(y[1], infinity) << shift;
  }
  const double lo = nan, hi = 1;
  kernels().exp2_pair(&hi, &lo, 0, y.data(), 1);
  EXPECT_TRUE(std::isnan(y[0]));
  const double s = 3;
  kernels().exp2_product(0, 0, &s, 4, y.data(), 1);
  EXPECT_EQ(y[0], 0x1p-4);
}

TEST_P(Exp2Kernels, ArraysOfAnyLength) {
  const NearestRounding nearest;
  const std::vector<double> x = random_points(40, 1);
  std::vector<double> all(40);
  kernels().exp2(x.data(), all.data(), 40);
  for (std::size_t n = 0; n <= 20; ++n) {
    std::vector<double> y(n + 1, -1);
    kernels().exp2(x.data(), y.data(), n);
    for (std::size_t i = 0; i < n; ++i) EXPECT_TRUE(same_bits(y[i], all[i]));
    EXPECT_EQ(y[n], -1) << "wrote beyond the end";
  }
}

// The claim "same bits everywhere" lets one set stand for all against MPFR below.
TEST_P(Exp2Kernels, SameBitsAsPortable) {
  const NearestRounding nearest;
  const VectorKernels& portable = vector_kernels(InstructionSet::portable);
  std::vector<double> x = special_points();
  const std::vector<double> more =
      random_points(200000 * static_cast<std::size_t>(test_multiplier()), test_seed());
  x.insert(x.end(), more.begin(), more.end());
  x.insert(x.end(), {infinity, -infinity, nan});
  std::vector<double> ours(x.size()), theirs(x.size()), tail(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) tail[i] = 0x1p-54 * x[i];
  const auto compare = [&](const char* what) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_TRUE(same_bits(ours[i], theirs[i]))
          << what << " of " << hex(x[i]) << ": " << hex(ours[i]) << " and " << hex(theirs[i]);
    }
  };
  kernels().exp2(x.data(), ours.data(), x.size());
  portable.exp2(x.data(), theirs.data(), x.size());
  compare("exp2");
  kernels().exp2_pair(x.data(), tail.data(), -700, ours.data(), x.size());
  portable.exp2_pair(x.data(), tail.data(), -700, theirs.data(), x.size());
  compare("exp2_pair");
  kernels().exp2_product(log2_e[0], log2_e[1], x.data(), 300, ours.data(), x.size());
  portable.exp2_product(log2_e[0], log2_e[1], x.data(), 300, theirs.data(), x.size());
  compare("exp2_product");
}

/// Judges y against MPFR; returns the largest relative error seen, in units of 2^-53.
class Exp2Errors : public ::testing::Test {
 protected:
  void judge(double y, const std::string& what) {
    const Exp2Judgement j = oracle_.judge(y);
    EXPECT_TRUE(j.within) << what << " gave " << hex(y) << ", off by " << j.error_in_2_53
                          << " * 2^-53; seed " << test_seed();
    if (j.normal) largest_ = std::max(largest_, j.error_in_2_53);
  }
  void report() {
    RecordProperty("largest_error_in_2_53", std::to_string(largest_));
    std::printf("largest relative error seen: %.4f * 2^-53, bound %.4f * 2^-53\n", largest_,
                exp2_relative_error_bound * 0x1p53);
    // An error below half an ulp of the largest significands would mean a blind judge.
    EXPECT_GT(largest_, 0.9);
    EXPECT_LE(largest_, exp2_relative_error_bound * 0x1p53);
  }
  const VectorKernels& kernels_ = vector_kernels(best_instruction_set());
  const NearestRounding nearest_;
  const std::size_t n_ = 40000 * static_cast<std::size_t>(test_multiplier());
  Exp2Oracle oracle_;
  double largest_ = 0;
};

TEST_F(Exp2Errors, OfRandomArguments) {
  const std::vector<double> x = random_points(n_, test_seed());
  std::vector<double> y(n_);
  kernels_.exp2(x.data(), y.data(), n_);
  for (std::size_t i = 0; i < n_; ++i) {
    oracle_.argument(x[i]);
    judge(y[i], "2^" + hex(x[i]));
  }
  report();
}

TEST_F(Exp2Errors, OfPairs) {
  std::vector<double> hi = random_points(n_, test_seed() + 1), lo(n_), y(n_);
  std::mt19937_64 random(test_seed());
  for (std::size_t i = 0; i < n_; ++i) {
    const double half_ulp = std::ldexp(std::fabs(hi[i]), -53);
    lo[i] = half_ulp * (static_cast<double>(random() >> 11) * 0x1p-52 - 1);
  }
  for (const double shift : {0.0, 1000.0, -500.0}) {
    kernels_.exp2_pair(hi.data(), lo.data(), shift, y.data(), n_ / 3);
    for (std::size_t i = 0; i < n_ / 3; ++i) {
      oracle_.argument_pair(hi[i], lo[i], shift);
      judge(y[i], "2^(" + hex(hi[i]) + " + " + hex(lo[i]) + " - " + std::to_string(shift) + ")");
    }
  }
  report();
}

TEST_F(Exp2Errors, OfProducts) {
  // factors: log2 e, log2 e / sqrt 128, huge and tiny; arguments from everywhere, shifts that
  // bring most of them back into range
  const double root = 1 / std::sqrt(128.0);
  const double scaled = log2_e[0] * root;
  const double factors[][2] = {
      {log2_e[0], log2_e[1]},   {scaled, std::fma(log2_e[0], root, -scaled)},
      {-0x1.3p-30, 0x1.1p-84},  {0x1.7p900, -0x1.9p846},
      {0x1.7p-1000, 0x1p-1054},
  };
  std::vector<double> s = random_points(n_, test_seed() + 2), y(n_);
  std::mt19937_64 random(test_seed());
  for (const auto& c : factors) {
    for (const double shift : {0.0, 900.0, -70000.0, exp2_shift_limit, -exp2_shift_limit}) {
      const std::size_t m = n_ / 25;
      std::vector<double> arguments(m);
      for (std::size_t i = 0; i < m; ++i) {
        arguments[i] = (s[random() % n_] + shift) / c[0];  // c s - shift is of moderate size
        if (i % 16 == 0) arguments[i] *= 1 + 0x1p-10 * static_cast<double>(random() % 64);
      }
      kernels_.exp2_product(c[0], c[1], arguments.data(), shift, y.data(), m);
      for (std::size_t i = 0; i < m; ++i) {
        oracle_.argument_product(c[0], c[1], arguments[i], shift);
        judge(y[i],
              "2^(" + hex(c[0]) + " * " + hex(arguments[i]) + " - " + std::to_string(shift) + ")");
      }
    }
  }
  report();
}

// Subnormal results: one rounding, so within half of the absolute part beyond the relative one.
TEST_F(Exp2Errors, OfSubnormalResultsAreHalfAQuantum) {
  std::mt19937_64 random(test_seed());
  mpfr_t error;
  mpfr_init2(error, 300);
  for (int i = 0; i < 10000; ++i) {
    const double x = -1022 - 54 * static_cast<double>(random() >> 11) * 0x1p-53;
    double y;
    kernels_.exp2(&x, &y, 1);
    oracle_.argument(x);
    ASSERT_TRUE(oracle_.judge(y).within) << hex(x);
    mpfr_sub_d(error, oracle_.power(), y, MPFR_RNDA);
    // 2^-1075 and the relative part of something below 2^-1022, in units of 2^-1075
    mpfr_mul_2si(error, error, 1075, MPFR_RNDN);
    ASSERT_LE(std::fabs(mpfr_get_d(error, MPFR_RNDN)), 1 + exp2_relative_error_bound * 0x1p53)
        << hex(x);
  }
  mpfr_clear(error);
}

}  // namespace
}  // namespace headroom
