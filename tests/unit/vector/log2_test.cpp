// log2_bounds and ln_bounds against MPFR's directed logarithms.
#include "reference/evaluate/vector/log2.h"

#include <gtest/gtest.h>
#include <mpfr.h>

#include <cmath>
#include <limits>
#include <random>

#include "reference/real/fp_environment.h"
#include "tests/unit/vector/exp2_oracle.h"
#include "tests/unit/vector/instruction_sets.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

class Logarithms : public ::testing::Test {
 protected:
  Logarithms() { mpfr_inits2(200, x_, log_, ln2_, mpfr_ptr(nullptr)); }
  ~Logarithms() override { mpfr_clears(x_, log_, ln2_, mpfr_ptr(nullptr)); }

  /// lo <= log + shift <= hi, and the ends no further away than the header says.
  void check(double x, double shift) {
    mpfr_set_d(x_, x, MPFR_RNDN);
    mpfr_log2(log_, x_, MPFR_RNDN);
    mpfr_add_d(log_, log_, shift, MPFR_RNDN);
    judge("log2", log2_bounds(x, x, shift), log2_absolute_error, x, shift);
    mpfr_const_log2(ln2_, MPFR_RNDN);
    mpfr_mul(log_, log_, ln2_, MPFR_RNDN);
    judge("ln", ln_bounds(x, x, shift), ln_absolute_error, x, shift);
  }

  // Guesses of every quality: here the exp2 kernel's error really enters.
  void check_guess(double x, double guess) {
    mpfr_set_d(x_, x, MPFR_RNDN);
    mpfr_log2(log_, x_, MPFR_RNDN);
    judge("log2 from a guess", log2_bounds_from(x, guess), log2_absolute_error, x, 0);
  }

 private:
  void judge(const char* what, LogBounds b, double radius, double x, double shift) {
    const double larger = std::fmax(std::fabs(b.lo), std::fabs(b.hi));
    const double ulp = std::nextafter(larger, infinity) - larger;
    ASSERT_GE(mpfr_cmp_d(log_, b.lo), 0)
        << what << " " << hex(x) << " + " << shift << " below " << hex(b.lo);
    ASSERT_LE(mpfr_cmp_d(log_, b.hi), 0)
        << what << " " << hex(x) << " + " << shift << " above " << hex(b.hi);
    ASSERT_LE(b.hi - b.lo, 2 * radius + 2 * ulp) << what << " " << hex(x) << " + " << shift;
  }
  mpfr_t x_, log_, ln2_;
};

TEST_F(Logarithms, HoldTheExactValue) {
  std::mt19937_64 random(test_seed());
  const auto unit = [&random] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  for (int i = 0; i < 20000 * test_multiplier(); ++i) {
    const int e = i % 2 ? static_cast<int>(random() % 2090) - 1074 : static_cast<int>(random() % 8);
    const double x = std::ldexp(1 + unit(), e);
    const double shift = i % 3 == 0 ? 0 : std::rint((unit() - 0.5) * (i % 3 == 1 ? 500 : 0x1p20));
    check(x, shift);
    if (HasFatalFailure()) return;
  }
}

TEST_F(Logarithms, HoldAtTheSeamsAndNearOne) {
  for (const double centre : {1.0, 0x1.6a09e667f3bcdp-1, 0x1.6a09e667f3bcdp0, 0.5, 2.0, 75600.0,
                              0x1p-1022, 0x1p1023, 0x1p-1074, 0x1.8p-1074}) {
    double up = centre, down = centre;
    for (int i = 0; i < 100 && down > 0; ++i) {
      check(up, 0);
      check(down, -3);
      if (HasFatalFailure()) return;
      up = std::nextafter(up, infinity);
      down = std::nextafter(down, 0);
    }
  }
  check(std::numeric_limits<double>::max(), 0);
}

TEST_F(Logarithms, HoldWhateverTheGuess) {
  std::mt19937_64 random(test_seed());
  const auto unit = [&random] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  for (int i = 0; i < 20000 * test_multiplier(); ++i) {
    const double x = 0.75 + unit() / 2;
    check_guess(x, std::log2(x) + std::ldexp(unit() * 2 - 1, -static_cast<int>(random() % 60)));
    if (HasFatalFailure()) return;
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double guess : {0.0, 1e300, -infinity, infinity, nan, 1024.0, -7.0}) {
    for (const double x : {1.0, 3.0, 0x1.7p-1060, 1e300}) check_guess(x, guess);
  }
}

TEST_F(Logarithms, PowersOfTwoAreExact) {
  for (int e = -1074; e <= 1023; ++e) {
    const LogBounds b = log2_bounds(std::ldexp(1.0, e), std::ldexp(1.0, e), 7);
    EXPECT_EQ(b.lo, e + 7);
    EXPECT_EQ(b.hi, e + 7);
  }
  const LogBounds one = ln_bounds(1, 1);
  EXPECT_EQ(one.lo, 0);
  EXPECT_EQ(one.hi, 0);
}

TEST_F(Logarithms, OfIntervalsAndOutsideTheDomain) {
  const LogBounds wide = log2_bounds(3, 5, 0);
  EXPECT_EQ(wide.lo, log2_bounds(3, 3).lo);
  EXPECT_EQ(wide.hi, log2_bounds(5, 5).hi);
  EXPECT_EQ(log2_bounds(0, 1).lo, -infinity);
  EXPECT_EQ(log2_bounds(0, 0).hi, -infinity);
  EXPECT_EQ(ln_bounds(1, infinity).hi, infinity);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const LogBounds b : {log2_bounds(-1, 1), log2_bounds(nan, 1), log2_bounds(1, nan)}) {
    EXPECT_EQ(b.lo, -infinity);
    EXPECT_EQ(b.hi, infinity);
  }
}

TEST_F(Logarithms, DoNotDependOnTheCallersRounding) {
  for (const double x : {0.3, 1.1, 12345.678, 0x1.23456p-1060}) {
    const LogBounds nearest = log2_bounds(x, x, 11), natural = ln_bounds(x, x, 11);
    const UpwardRounding up;
    const LogBounds upward = log2_bounds(opaque(x), x, 11), natural_upward = ln_bounds(x, x, 11);
    EXPECT_EQ(nearest.lo, upward.lo);
    EXPECT_EQ(nearest.hi, upward.hi);
    EXPECT_EQ(natural.lo, natural_upward.lo);
    EXPECT_EQ(natural.hi, natural_upward.hi);
  }
}

}  // namespace
}  // namespace headroom
