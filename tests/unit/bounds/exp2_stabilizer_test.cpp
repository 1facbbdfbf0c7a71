// What exp2 units may return, and the stored stabilizer's arithmetic, against MPFR and against
// every order of simulated sums.
#include <gtest/gtest.h>

#include <boost/multiprecision/mpfr.hpp>

#include "bounds/exp2_unit.h"
#include "bounds/norms.h"
#include "bounds/stabilizer.h"
#include "tests/unit/bounds/simulation.h"

namespace headroom {
namespace {

using simulation::Random;
using simulation::uniform;
using Number = boost::multiprecision::mpfr_float_100;

constexpr double infinity = std::numeric_limits<double>::infinity();

Exp2Unit unit_of(const Format& format, double ulps, bool flush, bool monotone) {
  Exp2Unit unit;
  unit.result = format;
  unit.max_error_ulps = ulps;
  unit.flush_to_zero = flush;
  unit.monotone_at_integers = monotone;
  return unit;
}

TEST(Exp2Unit, DocumentedValues) {
  const UpwardRounding up;
  EXPECT_EQ(exp2_relative_error(unit_of(fp32, 0.5, true, true)).value(), 0x1p-24);
  EXPECT_EQ(exp2_relative_error(unit_of(bf16, 0.5, true, true)).value(), 0x1p-8);
  EXPECT_NEAR(exp2_relative_error(unit_of(fp32, 2, true, true)).value(), 0x1p-22, 0x1p-43);
  EXPECT_GE(exp2_relative_error(unit_of(fp32, 2, true, true)).value(), 0x1p-22);
  EXPECT_EQ(exp2_relative_error(unit_of(bf16, 128, true, true)).value(), infinity);
  EXPECT_EQ(exp2_floor_error(unit_of(fp32, 0.5, false, true)).value(), 0x1p-150);
  EXPECT_EQ(exp2_floor_error(unit_of(fp16, 0.5, false, true)).value(), 0x1p-25);
  EXPECT_NEAR(exp2_floor_error(unit_of(fp32, 0.5, true, true)).value(), 0x1p-126, 0x1p-149);
  EXPECT_EQ(exp2_flush_exponent(unit_of(fp32, 0.5, true, false)), -126);
  EXPECT_EQ(exp2_flush_exponent(unit_of(fp32, 0.5, false, true)), -149);
  EXPECT_EQ(exp2_flush_exponent(unit_of(bf16, 0.5, false, true)), -133);
  EXPECT_EQ(exp2_flush_exponent(unit_of(fp16, 0.5, false, true)), -24);
  EXPECT_EQ(exp2_flush_exponent(unit_of(fp32, 2, true, true)), -126);
  // Without the promise at integers, E(-126) may lie below 2^-126 and flush.
  EXPECT_EQ(exp2_flush_exponent(unit_of(fp32, 2, true, false)), -125);
  EXPECT_EQ(exp2_flush_exponent(unit_of(fp32, 2, false, false)), -147);
  WeightStage p;
  EXPECT_EQ(weight_flush_exponent(p), -133);
  p.flush_to_zero = true;
  EXPECT_EQ(weight_flush_exponent(p), -126);
  p.format = e4m3fn;
  EXPECT_EQ(weight_limit_exponent(p), 8);  // 256 <= 448
  EXPECT_NEAR(exp2_limit(up, unit_of(fp16, 0.5, true, true)).value(), 15.99929, 1e-5);
}

TEST(Exp2Unit, UpperOfIntegersAndOfTheRest) {
  const UpwardRounding up;
  const Exp2Unit exact = unit_of(fp32, 0.5, true, true);
  EXPECT_EQ(exp2_upper(up, exact, Upper<Log2>(88)).value(), 88);
  EXPECT_EQ(exp2_upper(up, exact, Upper<Log2>(-300)).value(), -126);
  EXPECT_EQ(exp2_upper(up, exact, Upper<Log2>(128)).value(), infinity);
  EXPECT_EQ(exp2_upper(up, exact, Upper<Log2>(127)).value(), 127);
  EXPECT_EQ(exp2_upper(up, exact, Upper<Log2>()).value(), infinity);
  const Exp2Unit loose = unit_of(fp32, 2, true, false);
  EXPECT_GT(exp2_upper(up, loose, Upper<Log2>(88)).value(), 88 + 0x1p-22);
  EXPECT_LT(exp2_upper(up, loose, Upper<Log2>(88)).value(), 88 + 0x1p-21);
  EXPECT_EQ(exp2_upper(up, unit_of(fp32, 0.5, false, true), Upper<Log2>(-140)).value(), -140);
  // Rounding up below the grid: 2^-148.6 may become 2^-148.
  EXPECT_EQ(exp2_upper(up, unit_of(fp32, 0.5, false, true), Upper<Log2>(-148.6)).value(), -148);
}

// Every result that a unit of k ulps may deliver (the worst of both directions, in ulps of the
// exact value or of the result) meets the relative or the floor error, the upper bound and L.
TEST(Exp2Unit, WorstResultsMeetTheContract) {
  Random g(1);
  for (const Format& format : {fp32, bf16, fp16, e5m2}) {
    for (const double ulps : {0.5, 1.0, 2.0, 3.5}) {
      for (const bool flush : {false, true}) {
        const Exp2Unit unit = unit_of(format, ulps, flush, false);
        const Number eps(exp2_relative_error(unit).value());
        const Number floor(exp2_floor_error(unit).value());
        for (int trial = 0; trial < 400; ++trial) {
          double x = format.least_exponent() - 3 +
                     uniform(g) * (format.emax - format.least_exponent() + 2);
          if (trial % 3 == 0) x = std::floor(x) + (uniform(g) - 0.5) * 0x1p-20;
          if (trial % 4 == 0) x = std::floor(x);
          const Number exact = exp2(Number(x));
          // Largest and smallest numbers of the format within k of their own ulps.
          for (const int direction : {-1, 1}) {
            double result = 0;
            {
              const NearestRounding scope;
              const simulation::Arithmetic arithmetic{format};
              const double nearest = arithmetic.round(exact.convert_to<double>());
              if (!std::isfinite(nearest) || nearest >= format.max_finite() / 4) continue;
              result = nearest;
              for (int step = 0; ulps > 0.5 && step < 12; ++step) {
                const double ulp = std::ldexp(
                    1.0, (result > 0 ? std::max(std::ilogb(result), format.emin) : format.emin) -
                             format.precision + 1);
                const double candidate = result + direction * ulp;
                const double its_ulp = std::ldexp(
                    1.0,
                    (candidate > 0 ? std::max(std::ilogb(candidate), format.emin) : format.emin) -
                        format.precision + 1);
                if (candidate < 0) break;
                const Number error = abs(Number(candidate) - exact);
                if (error > Number(ulps) * Number(its_ulp)) break;
                result = candidate;
              }
              if (flush && result < std::ldexp(1.0, format.emin)) result = 0;
            }
            const Number error = abs(Number(result) - exact);
            const bool relative = error <= eps * exact;
            ASSERT_TRUE(relative || error <= floor)
                << format.name << " " << ulps << " " << flush << " x = " << x << " -> " << result;
            const UpwardRounding up;
            const double top = exp2_upper(up, unit, Upper<Log2>(x)).value();
            if (result > 0) {
              ASSERT_LE(log2(Number(result)), Number(top) + Number(1e-12)) << format.name << x;
            }
            if (x >= exp2_flush_exponent(unit)) {
              ASSERT_GT(result, 0) << format.name << " " << x;
            }
          }
        }
      }
    }
  }
}

TEST(Stabilizer, Logarithms) {
  for (std::uint64_t n = 1; n < 5000; ++n) {
    ASSERT_LE(std::uint64_t{1} << floor_log2(n), n);
    ASSERT_GT(std::uint64_t{2} << floor_log2(n), n);
    ASSERT_GE(std::uint64_t{1} << ceil_log2(n), n);
    ASSERT_EQ(ceil_log2(n), floor_log2(n) + ((n & (n - 1)) != 0 ? 1 : 0));
    ASSERT_EQ(ceil_log2_at_least_one(static_cast<double>(n)), ceil_log2(n));
  }
  EXPECT_EQ(ceil_log2(~std::uint64_t{0}), 64);
  EXPECT_EQ(ceil_log2(75600), 17);
  EXPECT_EQ(floor_log2(75600), 16);
  EXPECT_EQ(ceil_log2_at_least_one(0), 0);
  EXPECT_EQ(ceil_log2_at_least_one(0.7), 0);
  EXPECT_EQ(ceil_log2_at_least_one(std::nextafter(8.0, 9.0)), 4);
  EXPECT_EQ(ceil_log2_at_least_one(std::nextafter(8.0, 7.0)), 3);
  EXPECT_EQ(ceil_log2_at_least_one(infinity), unbounded_exponent);
  EXPECT_EQ(ceiling(Interval(-0.5, 2.25)).hi(), 3);
  EXPECT_EQ(ceiling(Interval(-0.5, 2.25)).lo(), 0);
}

TEST(Stabilizer, RoundedHoldsEveryResult) {
  Random g(2);
  for (const Format& format : {fp32, bf16, fp16, e4m3fn}) {
    for (int trial = 0; trial < 500; ++trial) {
      const double a = std::ldexp(uniform(g) - 0.5, static_cast<int>(g() % 20) - 10);
      const double b = a + std::fabs(a) * uniform(g) * 0.1;
      const double x = a + (b - a) * uniform(g);
      double nearest;
      {
        const NearestRounding scope;
        nearest = simulation::Arithmetic{format}.round(x);
      }
      const UpwardRounding up;
      ASSERT_TRUE(rounded(up, format, Interval(a, b), false).contains(nearest));
      const Interval upward = rounded(up, format, Interval(a, b), true);
      ASSERT_GE(upward.lo(), a);
      ASSERT_GE(upward.hi(), x);
    }
  }
  const UpwardRounding up;
  // BF16 mu: half an ulp is 0.5 in [128, 256); rounding up never lessens it.
  EXPECT_EQ(rounded(up, bf16, Interval(200.5), false).lo(), 200);
  EXPECT_EQ(rounded(up, bf16, Interval(200.5), true).lo(), 201);
  EXPECT_EQ(rounded(up, fp16, Interval(65519.0, 65520.0), false).hi(), infinity);
  EXPECT_EQ(rounded(up, fp16, Interval(65519.0, 65520.0), false).lo(), 65504);
  EXPECT_EQ(rounded(up, e4m3fn, Interval(300.0, 500.0), false).hi(), infinity);
  EXPECT_EQ(rounded(up, fp32, Interval::entire(), true).lo(), -infinity);
}

// Norms computed in any order, fused or not, with and without flushing.
TEST(Stabilizer, KernelNormHoldsEveryOrder) {
  Random g(3);
  for (const Format& format : {fp32, bf16, fp16}) {
    for (const Accumulator& sum : simulation::accumulators(format)) {
      if (sum.order.kind == OrderKind::matrix_unit) continue;
      if (sum.flush_to_zero && format == fp16) continue;
      for (int trial = 0; trial < 60; ++trial) {
        const std::size_t n = 1 + simulation::below(g, 40);
        const int center = trial % 4 == 0 ? format.emin / 2 - 1 : trial % 4 == 1 ? -4 : 0;
        std::vector<double> x(n), stored(n);
        double computed;
        {
          const NearestRounding scope;
          const simulation::Arithmetic arithmetic{format, sum.flush_to_zero};
          for (std::size_t i = 0; i < n; ++i) {
            x[i] = simulation::random_value(trial % 3 == 2 ? fp32 : bf16, g, center, 6);
            stored[i] = arithmetic.round(x[i]);
          }
          const double square = simulation::accumulate(sum, stored, stored, g);
          computed = arithmetic.round(std::sqrt(square));
        }
        const UpwardRounding up;
        const Interval bound = kernel_norm(up, format, norm(up, x), static_cast<std::int64_t>(n));
        ASSERT_TRUE(bound.contains(computed))
            << format.name << " " << to_text(sum.order) << " " << computed << " not in ["
            << bound.lo() << ", " << bound.hi() << "]";
      }
    }
  }
  const UpwardRounding up;
  const Interval fine = kernel_norm(up, fp32, Interval(10.0), 128);
  EXPECT_LT(fine.width(), 10 * 134 * 0x1p-23);
  EXPECT_EQ(kernel_norm(up, fp16, Interval(300.0), 4).hi(), infinity);  // 90000 > 65504
}

}  // namespace
}  // namespace headroom
