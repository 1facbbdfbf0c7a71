// Claims as three-valued statements, and C against its rules written out a second time.
#include <gtest/gtest.h>

#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <limits>

#include "certify/claim.h"
#include "certify/policy.h"
#include "reference/model/kernel_file.h"

namespace headroom {
namespace {

using boost::multiprecision::cpp_int;
constexpr double infinity = std::numeric_limits<double>::infinity();

Claim claim_of(LimitKind kind, ClaimUnit unit, double lo, double hi, double limit) {
  const UpwardRounding up;
  Claim claim;
  claim.kind = kind;
  claim.unit = unit;
  claim.value = Interval(lo, hi);
  claim.limit = limit;
  return claim;
}

TEST(Claim, OutcomesAreThreeValued) {
  struct Row {
    LimitKind kind;
    double lo, hi, limit;
    ClaimOutcome expected;
  };
  const double next = std::nextafter(3.0, 4.0), before = std::nextafter(3.0, 2.0);
  const Row rows[] = {
      {LimitKind::at_most, 1, 3, 3, ClaimOutcome::holds},
      {LimitKind::at_most, 1, next, 3, ClaimOutcome::unknown},
      {LimitKind::at_most, 3, next, 3, ClaimOutcome::unknown},
      {LimitKind::at_most, next, 5, 3, ClaimOutcome::fails},
      {LimitKind::at_most, -infinity, infinity, 3, ClaimOutcome::unknown},
      {LimitKind::at_most, infinity, infinity, 3, ClaimOutcome::fails},
      {LimitKind::at_most, -infinity, -infinity, 3, ClaimOutcome::holds},
      {LimitKind::at_most, 0, infinity, infinity, ClaimOutcome::holds},
      {LimitKind::at_most, -infinity, infinity, -infinity, ClaimOutcome::unknown},
      {LimitKind::at_least, 3, 5, 3, ClaimOutcome::holds},
      {LimitKind::at_least, before, 5, 3, ClaimOutcome::unknown},
      {LimitKind::at_least, before, 3, 3, ClaimOutcome::unknown},
      {LimitKind::at_least, 1, before, 3, ClaimOutcome::fails},
      {LimitKind::at_least, -infinity, infinity, 3, ClaimOutcome::unknown},
      {LimitKind::at_least, -infinity, -infinity, 3, ClaimOutcome::fails},
      {LimitKind::at_least, infinity, infinity, 3, ClaimOutcome::holds},
      {LimitKind::none, infinity, infinity, 0, ClaimOutcome::holds},
  };
  for (const Row& row : rows) {
    for (const ClaimUnit unit : {ClaimUnit::log2, ClaimUnit::relative, ClaimUnit::absolute}) {
      const Claim claim = claim_of(row.kind, unit, row.lo, row.hi, row.limit);
      EXPECT_EQ(claim.outcome(), row.expected) << row.lo << " " << row.hi << " " << row.limit;
      // a claim holds exactly where nothing is missing
      const bool holds = claim.outcome() == ClaimOutcome::holds;
      if (unit == ClaimUnit::log2 && row.kind != LimitKind::none) {
        EXPECT_EQ(claim.margin_bits() >= 0, holds) << row.lo << " " << row.hi << " " << row.limit;
      }
    }
  }
}

// A NaN is no number: nothing is known, and nothing holds.
TEST(Claim, NanNeverHolds) {
  const UpwardRounding up;
  Claim claim = claim_of(LimitKind::at_most, ClaimUnit::log2, 0, 0, 3);
  claim.value = Interval(std::nan(""));
  EXPECT_EQ(claim.outcome(), ClaimOutcome::unknown);
  claim.value = Interval(1.0);
  claim.limit = std::nan("");
  EXPECT_NE(claim.outcome(), ClaimOutcome::holds);
  claim.kind = LimitKind::at_least;
  EXPECT_NE(claim.outcome(), ClaimOutcome::holds);
}

TEST(Claim, MarginsInBits) {
  const auto margin = [](LimitKind kind, ClaimUnit unit, double lo, double hi, double limit) {
    return claim_of(kind, unit, lo, hi, limit).margin_bits();
  };
  EXPECT_EQ(margin(LimitKind::at_most, ClaimUnit::log2, 1, 3, 10), 7);
  EXPECT_EQ(margin(LimitKind::at_most, ClaimUnit::log2, 1, 12, 10), -2);
  EXPECT_EQ(margin(LimitKind::at_least, ClaimUnit::log2, 1, 3, -126), 127);
  EXPECT_EQ(margin(LimitKind::at_least, ClaimUnit::log2, -130, 3, -126), -4);
  EXPECT_EQ(margin(LimitKind::at_most, ClaimUnit::log2, -infinity, -infinity, 10), infinity);
  EXPECT_EQ(margin(LimitKind::at_most, ClaimUnit::log2, 0, infinity, 10), -infinity);
  EXPECT_EQ(margin(LimitKind::at_most, ClaimUnit::log2, 0, infinity, infinity), 0);
  EXPECT_EQ(margin(LimitKind::none, ClaimUnit::log2, 0, 1, 0), infinity);
  for (const ClaimUnit unit : {ClaimUnit::relative, ClaimUnit::absolute}) {
    EXPECT_NEAR(margin(LimitKind::at_most, unit, 0, 0x1p-13, 0x1p-10), 3, 1e-12);
    EXPECT_NEAR(margin(LimitKind::at_most, unit, 0, 0x1p-8, 0x1p-10), -2, 1e-12);
    EXPECT_NEAR(margin(LimitKind::at_least, unit, 8, 9, 2), 2, 1e-12);
    EXPECT_EQ(margin(LimitKind::at_most, unit, 0, 0, 0x1p-10), infinity);
    EXPECT_EQ(margin(LimitKind::at_most, unit, 0, infinity, 0x1p-10), -infinity);
    // whatever rounding mode the caller has
    const NearestRounding nearest;
    EXPECT_NEAR(margin(LimitKind::at_most, unit, 0, 0x1.8p-13, 0x1p-10), 3 - std::log2(1.5), 1e-12);
  }
}

TEST(Policy, NamesAndErrors) {
  for (const char* name : {"clis", "clis-alg1", "fixed-m", "fixed-m-n", "online"}) {
    EXPECT_EQ(to_text(parse_policy(name)), name);
  }
  EXPECT_ANY_THROW(parse_policy("CLIS"));
  EXPECT_ANY_THROW(parse_policy(""));
}

/// units 2^exponent <= the largest finite number of an IEEE format, exactly.
bool fits(const Format& format, const cpp_int& units, int exponent) {
  const cpp_int largest = (cpp_int(1) << format.precision) - 1;  // times 2^(emax - p + 1)
  const int shift = exponent - (format.emax - format.precision + 1);
  return shift >= 0 ? units << shift <= largest : units <= largest << -shift;
}

/// What N terms can add up to in any order, in units of one term (DESIGN.md, "Sums in any order"):
/// N up to 2^p, g(N) = 2 N - 2^p beyond, nothing beyond 2^(2p) (given as 0).
cpp_int sum_units(std::int64_t keys, const Format& format) {
  const cpp_int n = keys, limit = cpp_int(1) << format.precision;
  if (n <= limit) return n;
  return n <= limit * limit ? 2 * n - limit : cpp_int(0);
}

/// The rules for C, in integers: exp2 finite, P finite, l and O finite in any order, and l at most
/// 2^126 where the reciprocal flushes (2^125 if it is not exact at powers of two).
int written_out_cap(std::int64_t keys, int g, const Format& exp2, const Format& p,
                    const Format& sums, bool flushing, bool exact) {
  const cpp_int units = sum_units(keys, sums);
  for (int cap = std::min(exp2.emax, p.emax);; --cap) {
    if (units == 0) return -100000;
    bool good = fits(sums, units, cap) && fits(sums, units, cap + g);
    if (good && flushing) {
      const int most = -sums.emin - (exact ? 0 : 1);
      good = most >= cap ? units <= cpp_int(1) << (most - cap) : false;
    }
    if (good) return cap;
    if (cap < -300) return -100000;
  }
}

KernelModel any_order_kernel(const std::string& sums, const std::string& p, bool flushing,
                             bool exact, const std::string& exp2 = "fp32") {
  return parse_kernel(
      "name = \"caps\"\nmachine = \"ieee-fp32\"\n[exp2]\nresult = \"" + exp2 +
          "\"\n[p]\nformat = \"" + p + "\"\nsaturate = " + (p == "e4m3fn" ? "true" : "false") +
          "\n[denominator]\naccumulator = \"" + sums +
          "\"\norder = \"any\"\n[numerator]\naccumulator = \"" + sums +
          "\"\norder = \"any\"\n[normalise]\ndivision = \"reciprocal\"\n"
          "reciprocal_flush_to_zero = " +
          (flushing ? "true" : "false") +
          "\nreciprocal_exact_at_powers_of_two = " + (exact ? "true" : "false") + "\n",
      "caps.toml");
}

TEST(Cap, RulesWrittenOut) {
  const UpwardRounding up;
  std::vector<std::int64_t> counts = {1, 75600, 183600, 17160, 65535, 131072};
  for (const int e : {1, 4, 7, 8, 9, 11, 15, 16, 22, 23, 24, 25}) {
    for (const int d : {-1, 0, 1}) counts.push_back((std::int64_t{1} << e) + d);
  }
  for (const char* sums : {"fp32", "fp16", "bf16"}) {
    for (const char* p : {"fp32", "fp16", "e4m3fn"}) {
      for (const bool flushing : {false, true}) {
        for (const bool exact : {false, true}) {
          if (!flushing && !exact) continue;
          const KernelModel kernel = any_order_kernel(sums, p, flushing, exact);
          for (const std::int64_t keys : counts) {
            for (const int g : {0, 3}) {
              const Format& f = kernel.denominator.format;
              const int expected =
                  written_out_cap(keys, g, fp32, kernel.p.format, f, flushing, exact);
              if (expected <= f.least_exponent() - g) continue;  // none is useful
              const int cap = clis_cap(up, kernel, keys, g);
              EXPECT_LE(cap, expected) << sums << p << flushing << exact << keys << " " << g;
              // Terms below the accumulator's normal range count as the least normal number; a
              // sum that is exactly the largest number is not told from one beyond it.
              const cpp_int units = sum_units(keys, f);
              cpp_int significand = units == 0 ? cpp_int(1) : units;
              while (significand % 2 == 0) significand /= 2;
              const bool at_the_end = significand == (cpp_int(1) << f.precision) - 1;
              const bool normal = expected >= std::max(f.emin, kernel.p.format.emin);
              if (normal && !at_the_end) {
                EXPECT_EQ(cap, expected) << sums << p << flushing << exact << keys << " " << g;
              }
            }
          }
        }
      }
    }
  }
}

TEST(Cap, ValuesOfTheTheory) {
  const UpwardRounding up;
  const KernelModel divide = any_order_kernel("fp32", "fp32", false, true);
  const KernelModel flushing = any_order_kernel("fp32", "bf16", true, true);
  const KernelModel inexact = any_order_kernel("fp32", "bf16", true, false);
  EXPECT_EQ(clis_cap(up, divide, 75600, 0), 111);
  EXPECT_EQ(clis_cap(up, flushing, 75600, 0), 109);
  EXPECT_EQ(clis_cap(up, inexact, 75600, 0), 108);
  EXPECT_EQ(clis_cap(up, divide, 75600, 3), 108);
  EXPECT_EQ(clis_cap(up, divide, 75600, 24), 87);
  EXPECT_EQ(clis_cap(up, divide, 75600, 8), 103);
  EXPECT_EQ(clis_cap(up, divide, 65536, 0), 111);
  EXPECT_EQ(clis_cap(up, divide, 65535, 0), 112);
  EXPECT_EQ(clis_cap(up, flushing, 65536, 0), 110);
  EXPECT_EQ(clis_cap(up, inexact, 65536, 0), 109);
  EXPECT_EQ(clis_cap(up, divide, 1, 0), 127);
  // beyond 2^(2p) terms of BF16 no C is sound in an arbitrary order
  EXPECT_LT(clis_cap(up, any_order_kernel("bf16", "bf16", false, true), 123840, 0), -126);
}

// An exp2 unit that may exceed 2^C by 90 ulp: terms of 1 + 2^-16.5 need room of their own.
TEST(Cap, OvershootCostsRoom) {
  const UpwardRounding up;
  KernelModel kernel = any_order_kernel("fp32", "fp32", false, true);
  kernel.exp2.max_error_ulps = 90;
  kernel.exp2.monotone_at_integers = false;
  for (const std::int64_t keys : {1, 2, 3, 64, 65535, 65536, 75600}) {
    const int cap = clis_cap(up, kernel, keys, 0);
    // N (1 + 90 2^-23) 2^C in integers of 2^(C - 23)
    EXPECT_TRUE(fits(fp32, cpp_int(keys) * ((1 << 23) + 90), cap - 23)) << keys;
    EXPECT_FALSE(fits(fp32, cpp_int(keys), cap + 2)) << keys;
  }
}

}  // namespace
}  // namespace headroom
