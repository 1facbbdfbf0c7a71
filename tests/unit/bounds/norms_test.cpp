// Norms, distances, dot products and means against exact rationals; row mass, lost mass and guard
// bits against MPFR and against the rows that attain them.
#include "bounds/norms.h"

#include <gtest/gtest.h>

#include <boost/multiprecision/cpp_int.hpp>
#include <boost/multiprecision/mpfr.hpp>

#include "bounds/key_mean.h"
#include "bounds/lost_mass.h"
#include "bounds/row_mass.h"
#include "tests/unit/bounds/simulation.h"

namespace headroom {
namespace {

using simulation::Random;
using simulation::uniform;
using Rational = boost::multiprecision::cpp_rational;
using Number = boost::multiprecision::mpfr_float_100;

constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<double> random_row(Random& g, std::size_t n, int kind) {
  const NearestRounding scope;
  std::vector<double> x(n);
  for (double& v : x) {
    switch (kind) {
      case 0:  // bf16: squares are exact
        v = simulation::random_value(bf16, g, 0, 8);
        break;
      case 1:  // all 53 bits: every square is rounded
        v = (1 + uniform(g)) * (g() & 1 ? 1 : -1);
        break;
      case 2:  // far apart exponents
        v = std::ldexp(1 + uniform(g), static_cast<int>(g() % 300) - 150);
        break;
      case 3:  // squares underflow or are subnormal
        v = std::ldexp(1 + uniform(g), -530 - static_cast<int>(g() % 540));
        break;
      default:  // powers of two, one ulp either side
        v = std::ldexp(1.0, static_cast<int>(g() % 9));
        v = g() % 3 == 0 ? v : std::nextafter(v, g() & 1 ? 0 : INFINITY);
    }
  }
  return x;
}

void expect_root_of(const Interval& bound, const Rational& square, bool tight, std::size_t n) {
  ASSERT_GE(bound.lo(), 0);
  ASSERT_LE(Rational(bound.lo()) * Rational(bound.lo()), square);
  if (std::isfinite(bound.hi())) {
    ASSERT_GE(Rational(bound.hi()) * Rational(bound.hi()), square);
  }
  if (tight) {
    ASSERT_LE(bound.width(), (static_cast<double>(n) + 4) * 0x1p-53 * bound.hi());
  }
}

TEST(Norm, EnclosesTheExactNorm) {
  Random g(1);
  for (int kind = 0; kind < 5; ++kind) {
    for (int trial = 0; trial < 100; ++trial) {
      const std::size_t n = 1 + simulation::below(g, 70);
      const std::vector<double> x = random_row(g, n, kind);
      Rational square = 0;
      for (const double v : x) square += Rational(v) * Rational(v);
      const UpwardRounding up;
      expect_root_of(norm(up, x), square, kind != 3, n);
      expect_root_of(norm(up, x, x), square, kind != 3, n);
    }
  }
}

TEST(Norm, OverflowAndEmptyRowsAreSound) {
  const UpwardRounding up;
  const std::vector<double> large(8, 0x1p600);
  EXPECT_EQ(norm(up, large).hi(), infinity);
  EXPECT_LE(norm(up, large).lo(), 0x1p601);
  EXPECT_EQ(norm(up, std::vector<double>{}).hi(), 0);
  const std::vector<double> tiny(5, 0x1p-1074);
  EXPECT_GE(norm(up, tiny).hi(), 0x1.1p-1073);  // sqrt(5) 2^-1074
  EXPECT_EQ(norm(up, tiny).lo(), 0);
}

TEST(Norm, BoxesAndDistancesHoldEveryPoint) {
  Random g(2);
  for (int trial = 0; trial < 400; ++trial) {
    const std::size_t n = 1 + simulation::below(g, 40);
    const std::vector<double> x = random_row(g, n, trial % 3);
    const std::vector<double> center = random_row(g, n, trial % 2);
    std::vector<double> lo = x, hi = x;
    std::vector<Interval> a;
    for (std::size_t i = 0; i < n; ++i) {
      const double wide = trial % 4 == 0 ? 0 : uniform(g) * std::fabs(x[i]);
      lo[i] = std::nextafter(x[i] - wide * uniform(g), wide > 0 ? -INFINITY : x[i]);
      hi[i] = std::nextafter(x[i] + wide * uniform(g), wide > 0 ? INFINITY : x[i]);
      a.emplace_back(center[i] - wide * 0.25, center[i] + wide * 0.125);
    }
    Rational square = 0, difference = 0, product = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const Rational d = Rational(x[i]) - Rational(center[i]);
      square += Rational(x[i]) * Rational(x[i]);
      difference += d * d;
      product += Rational(x[i]) * Rational(center[i]);
    }
    const UpwardRounding up;
    expect_root_of(norm(up, lo, hi), square, false, n);
    expect_root_of(distance(up, lo, hi, a), difference, false, n);
    const Interval by_enclosure = dot(up, x, a);
    ASSERT_LE(Rational(by_enclosure.lo()), product);
    ASSERT_GE(Rational(by_enclosure.hi()), product);
    const Interval by_box = dot(up, center, lo, hi);
    ASSERT_LE(Rational(by_box.lo()), product);
    ASSERT_GE(Rational(by_box.hi()), product);
  }
}

TEST(KeyMean, EnclosesTheMeanOfPrefixes) {
  Random g(3);
  const std::size_t d = 6;
  KeyMean mean(static_cast<std::int64_t>(d));
  std::vector<Rational> sum(d);
  for (int n = 1; n <= 300; ++n) {
    const std::vector<double> key = random_row(g, d, n % 3);
    const std::vector<double> q = random_row(g, d, 1);
    const UpwardRounding up;
    mean.add(up, key, key);
    ASSERT_EQ(mean.count(), n);
    const std::vector<Interval> m = mean.mean(up);
    Rational product = 0;
    for (std::size_t c = 0; c < d; ++c) {
      sum[c] += Rational(key[c]);
      ASSERT_LE(Rational(m[c].lo()) * n, sum[c]);
      ASSERT_GE(Rational(m[c].hi()) * n, sum[c]);
      product += Rational(q[c]) * sum[c];
    }
    const Interval p = mean.dot_mean(up, q);
    ASSERT_LE(Rational(p.lo()) * n, product);
    ASSERT_GE(Rational(p.hi()) * n, product);
  }
}

TEST(RowMass, NeverExceedsTheExactMass) {
  Random g(4);
  for (int trial = 0; trial < 300; ++trial) {
    const std::size_t n = 1 + simulation::below(g, 30);
    std::vector<Interval> z;
    std::vector<double> weights;
    Number mass = 0;
    for (std::size_t j = 0; j < n; ++j) {
      const double value = (uniform(g) - 0.5) * (trial % 3 == 0 ? 300 : 4);
      z.emplace_back(value);
      mass += exp2(Number(value));
      weights.push_back(trial % 5 == 0 ? 1.0
                        : trial % 5 == 1
                            ? (g() % 3 == 0 ? uniform(g) : 0.0)
                            : std::exp2(value * 0.9));  // close to the softmax: nearly attained
    }
    weights[0] = 1;
    const Number exact = log2(mass);
    const UpwardRounding up;
    const double general = row_mass(up, weights, z).value();
    ASSERT_LE(Number(general), exact);
    Interval sum(0.0);
    for (const Interval& x : z) sum += x;
    const Interval mean = sum / Interval(static_cast<double>(n));
    const double jensen =
        row_mass(up, static_cast<std::int64_t>(n), Lower<Log2>(mean.lo())).value();
    ASSERT_LE(Number(jensen), exact);
    // The general form at uniform weights is Jensen's.
    const std::vector<double> uniform_weights(n, 3.7);
    ASSERT_NEAR(row_mass(up, uniform_weights, z).value(), jensen, 1e-10);
  }
}

TEST(RowMass, AttainedAndDegenerateRows) {
  const UpwardRounding up;
  // All scores equal: Jensen is an equality.
  EXPECT_EQ(row_mass(up, 4096, Lower<Log2>(-3.25)).value(), 8.75);
  // One witness key: its score, exactly. Keys of weight 0 are free, hidden ones included.
  const std::vector<Interval> z = {Interval(-infinity, 0.0), Interval(1.625), Interval(-14427.0)};
  EXPECT_EQ(row_mass(up, std::vector<double>{0, 7, 0}, z).value(), 1.625);
  EXPECT_EQ(row_mass(up, std::vector<double>{1, 7, 0}, z).value(), -infinity);
  EXPECT_EQ(row_mass(up, std::vector<double>{0, 0, 0}, z).value(), -infinity);
  EXPECT_EQ(row_mass(up, std::vector<double>{0, 7, -1}, z).value(), -infinity);
  // A bias of -1e4 on half of 4096 keys: the mean says -7213, the subset -1 (plus log2 N).
  std::vector<Interval> biased;
  std::vector<double> subset;
  for (int j = 0; j < 4096; ++j) {
    biased.emplace_back(j % 2 ? 0.0 : -14427.0);
    subset.push_back(j % 2);
  }
  EXPECT_NEAR(row_mass(up, subset, biased).value(), 11, 1e-9);
  EXPECT_LT(row_mass(up, std::vector<double>(4096, 1.0), biased).value(), -7000);
}

Number sharp(const Number& d) {
  const Number rho = exp2(Number(-d)) / (exp(Number(1)) * d * log(Number(2)));
  return rho / (1 + rho);
}

TEST(LostMass, MatchesTheClosedForm) {
  const UpwardRounding up;
  for (const double d : {1e-300, 1e-9, 0.01, 0.5, 1.0, 6.41, 10.0, 18.85, 149.0, 900.0, 1060.0}) {
    const double bound = lost_mass(up, Lower<Log2>(d)).value();
    const Number exact = sharp(Number(d));
    EXPECT_GE(Number(bound), exact) << d;
    if (d < 1000) {
      EXPECT_LE(Number(bound), exact * Number(1 + 1e-14)) << d;
    }
  }
  EXPECT_NEAR(lost_mass(up, Lower<Log2>(1)).value(), 0.2097, 5e-5);
  EXPECT_NEAR(lost_mass(up, Lower<Log2>(10)).value(), 5.2e-5, 5e-7);
  EXPECT_EQ(lost_mass(up, Lower<Log2>(0)).value(), 1);
  EXPECT_EQ(lost_mass(up, Lower<Log2>(-3)).value(), 1);
  EXPECT_EQ(lost_mass(up, Lower<Log2>()).value(), 1);
  EXPECT_LE(lost_mass(up, Lower<Log2>(infinity)).value(), 0x1p-1022);
}

// Two-level rows: a share of the keys just below zbar - D, the rest balancing them. The best of
// them attains the supremum; case E is N = 4096 at D = 1, 20.9 % lost.
TEST(LostMass, TwoLevelRowsAttainIt) {
  const UpwardRounding up;
  for (const double d : {0.1, 1.0, 6.41, 12.0}) {
    const double bound = lost_mass(up, Lower<Log2>(d)).value();
    double worst = 0;
    const int n = 1 << 20;
    for (int lost = 1; lost < n; lost += 1 + lost / 512) {
      const double kept = n - lost;
      const double low = lost * std::exp2(-d), high = kept * std::exp2(d * lost / kept);
      worst = std::max(worst, low / (low + high));
    }
    EXPECT_LE(worst, bound * (1 + 1e-12));
    EXPECT_GE(worst, bound * 0.999) << d;
  }
  const double case_e =
      2418 * std::exp2(-9.0 / 1024 * 114) /
      (2418 * std::exp2(-9.0 / 1024 * 114) + 1674 * std::exp2(13.0 / 1024 * 114) + 4);
  EXPECT_NEAR(case_e, 0.209, 1e-3);
  EXPECT_LE(case_e, lost_mass(up, Lower<Log2>(1)).value());
  EXPECT_GT(case_e, lost_mass(up, Lower<Log2>(1.01)).value());
}

TEST(LostMass, RandomRowsStayBelow) {
  Random g(6);
  std::normal_distribution<double> normal(0, 1);
  for (int trial = 0; trial < 5000; ++trial) {
    const std::size_t n = 2 + simulation::below(g, 29);
    const double d = std::vector<double>{0.2, 0.5, 1, 2, 4}[simulation::below(g, 5)];
    const double spread = std::vector<double>{0.3, 1, 3}[simulation::below(g, 3)];
    std::vector<double> z(n);
    double mean = 0;
    for (double& x : z) mean += x = normal(g) * spread;
    mean /= static_cast<double>(n);
    double lost = 0, all = 0;
    for (const double x : z) {
      all += std::exp2(x - mean);
      if (x - mean < -d) lost += std::exp2(x - mean);
    }
    const UpwardRounding up;
    ASSERT_LE(lost / all, lost_mass(up, Lower<Log2>(d)).value() * (1 + 1e-12));
  }
}

TEST(GuardBits, InvertLostMass) {
  const UpwardRounding up;
  EXPECT_NEAR(guard_bits(up, 0x1p-10).value(), 6.41, 5e-3);
  EXPECT_NEAR(guard_bits(up, 0x1p-24).value(), 18.85, 5e-3);
  for (const double eps : {0.999, 0.5, 0x1p-10, 0x1p-24, 1e-300, 0x1p-1074}) {
    const double d = guard_bits(up, eps).value();
    EXPECT_LE(lost_mass(up, Lower<Log2>(d)).value(), eps);
    EXPECT_LE(sharp(Number(d)), Number(eps));
    EXPECT_EQ(d * 0x1p20, std::floor(d * 0x1p20));
    if (eps > 1e-290) {  // the least such multiple of 2^-20
      EXPECT_GT(sharp(Number(d - 0x1p-19)), Number(eps));
    }
  }
  EXPECT_EQ(guard_bits(up, 1).value(), 0);
  EXPECT_EQ(guard_bits(up, 7).value(), 0);
  EXPECT_EQ(guard_bits(up, 0).value(), infinity);
  EXPECT_EQ(guard_bits(up, std::nan("")).value(), infinity);
}

TEST(LostMass, ByCount) {
  const UpwardRounding up;
  EXPECT_EQ(lost_mass_by_count(up, 1024, Upper<Log2>(-126), Lower<Log2>(-106)).value(), 0x1p-10);
  EXPECT_EQ(lost_mass_by_count(up, 0, Upper<Log2>(-126), Lower<Log2>(-106)).value(), 0);
  EXPECT_EQ(lost_mass_by_count(up, 3, Upper<Log2>(5), Lower<Log2>(-106)).value(), 1);
  EXPECT_EQ(lost_mass_by_count(up, 3, Upper<Log2>(), Lower<Log2>()).value(), 1);
}

}  // namespace
}  // namespace headroom
