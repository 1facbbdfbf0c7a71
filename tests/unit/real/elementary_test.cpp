// Elementary functions of Interval against MPFR at 400 bits, independent of how ends are rounded.
#include <gtest/gtest.h>
#include <mpfr.h>

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "reference/real/interval.h"

namespace headroom {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr std::uint32_t modes[] = {0x0000, 0x2000, 0x4000, 0x6000};

struct Function {
  const char* name;
  Interval (*enclose)(const Interval&);
  int (*exact)(mpfr_ptr, mpfr_srcptr, mpfr_rnd_t);
  bool logarithm;
};
const Function functions[] = {
    {"exp2", exp2, mpfr_exp2, false}, {"exp", exp, mpfr_exp, false},
    {"tanh", tanh, mpfr_tanh, false}, {"log2", log2, mpfr_log2, true},
    {"log", log, mpfr_log, true},
};

std::vector<double> arguments() {
  std::vector<double> x = {
      0.0,       -0.0,    1.0,         -1.0,        0.5,           DBL_TRUE_MIN,
      DBL_MIN,   DBL_MAX, -DBL_MAX,    -DBL_MIN,    -DBL_TRUE_MIN, 0x1p-1050,
      1023.0,    1024.0,  -1022.0,     -1074.0,     -1075.0,       -1073.5,
      -1074.5,   -1e6,    1e6,         1e300,       -1e300,        709.782712893384,
      -745.1332, -744.44, 1 + 0x1p-52, 1 - 0x1p-53, 19.07,         -19.07};
  std::mt19937_64 random(20250101);
  for (int i = 0; i < 1500; ++i) {
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    x.push_back((unit - 0.5) * 2200);
    x.push_back(std::ldexp(unit - 0.5, static_cast<int>(random() % 80) - 70));
    x.push_back(std::ldexp(unit, static_cast<int>(random() % 2098) - 1074));
  }
  return x;
}

// Is the end the closest double on its side? One step inward must be beyond the exact value.
TEST(Elementary, EndsAreTheClosestDoublesOnTheirSideInEveryRoundingMode) {
  mpfr_t value, argument;
  mpfr_init2(value, 400), mpfr_init2(argument, 53);
  std::size_t round = 0;
  for (const Function& f : functions) {
    for (const double x : arguments()) {
      if (f.logarithm && !(x > 0)) continue;
      Interval enclosure;
      {
        const MxcsrScope scope(0x1f80 | modes[round++ % 4]);
        enclosure = f.enclose(x);
      }
      mpfr_set_d(argument, x, MPFR_RNDN);
      const int ternary = f.exact(value, argument, MPFR_RNDZ);
      SCOPED_TRACE(testing::Message() << f.name << "(" << std::hexfloat << x << ") in ["
                                      << enclosure.lo() << ", " << enclosure.hi() << "]");
      // value is the exact one, truncated toward zero: the exact one lies strictly beyond it
      // unless the ternary value is 0.
      const int below = mpfr_cmp_d(value, enclosure.lo()),
                above = mpfr_cmp_d(value, enclosure.hi());
      const bool positive = mpfr_sgn(value) > 0 || (mpfr_sgn(value) == 0 && ternary < 0);
      if (ternary == 0) {
        EXPECT_GE(below, 0);
        EXPECT_LE(above, 0);
      } else if (positive) {
        EXPECT_GE(below, 0);
        EXPECT_LT(above, 0);
      } else {
        EXPECT_GT(below, 0);
        EXPECT_LE(above, 0);
      }
      if (enclosure.lo() != enclosure.hi()) {
        EXPECT_NE(ternary == 0 && below == 0, true) << "exact, so it should be a point";
        EXPECT_EQ(std::nextafter(enclosure.lo(), inf), enclosure.hi());
      }
    }
  }
  mpfr_clear(value), mpfr_clear(argument);
}

TEST(Elementary, InfiniteEndsAndDomains) {
  EXPECT_EQ(exp2(Interval::entire()).lo(), 0);
  EXPECT_EQ(exp2(Interval::entire()).hi(), inf);
  EXPECT_EQ(exp(Interval(-inf, 0)).lo(), 0);
  EXPECT_EQ(exp(Interval(-inf, 0)).hi(), 1);
  EXPECT_EQ(tanh(Interval::entire()).lo(), -1);
  EXPECT_EQ(tanh(Interval::entire()).hi(), 1);
  for (const double lo : {-inf, -1.0, -0.0, 0.0}) {
    EXPECT_EQ(log2(Interval(lo, 8)).lo(), -inf);
    EXPECT_EQ(log2(Interval(lo, 8)).hi(), 3);
    EXPECT_EQ(log(Interval(lo, 1)).lo(), -inf);
    EXPECT_EQ(log(Interval(lo, 1)).hi(), 0);
  }
  EXPECT_EQ(log2(Interval(1, inf)).hi(), inf);
  for (const Function& f : functions) {
    EXPECT_EQ(f.enclose(Interval(nan)).hi(), f.enclose(Interval::entire()).hi()) << f.name;
  }
}

TEST(Elementary, Exp2OutsideTheRangeOfDouble) {
  EXPECT_EQ(exp2(Interval(1024)).lo(), DBL_MAX);
  EXPECT_EQ(exp2(Interval(1024)).hi(), inf);
  EXPECT_EQ(exp2(Interval(1e300)).lo(), DBL_MAX);  // overflows MPFR's own range too
  EXPECT_EQ(exp2(Interval(1e300)).hi(), inf);
  EXPECT_EQ(exp2(Interval(-1e300)).lo(), 0);
  EXPECT_EQ(exp2(Interval(-1e300)).hi(), DBL_TRUE_MIN);
  EXPECT_EQ(exp2(Interval(-1075)).lo(), 0);
  EXPECT_EQ(exp2(Interval(-1075)).hi(), DBL_TRUE_MIN);
}

TEST(Elementary, PowersOfTwoAreExactOrEnclosed) {
  for (const std::uint32_t mode : modes) {
    const MxcsrScope scope(0x1f80 | mode);
    double power = DBL_TRUE_MIN;
    for (long k = -1074; k <= 1023; ++k, power *= 2) {
      ASSERT_TRUE(power_of_two(k).is_point()) << k;
      ASSERT_EQ(power_of_two(k).lo(), power) << k;
    }
    for (const long k : {-1075L, -5000L, std::numeric_limits<long>::min()}) {
      EXPECT_EQ(power_of_two(k).lo(), 0);
      EXPECT_EQ(power_of_two(k).hi(), DBL_TRUE_MIN);
    }
    for (const long k : {1024L, 5000L, std::numeric_limits<long>::max()}) {
      EXPECT_EQ(power_of_two(k).lo(), DBL_MAX);
      EXPECT_EQ(power_of_two(k).hi(), inf);
    }
  }
}

// 1.442695040888963407359924681001892137426645954152985934135449... (OEIS A007525)
// 0.693147180559945309417232121458176568075500134360255254120680... (OEIS A002162)
TEST(Elementary, ConstantsAgreeWithTheirDecimalExpansions) {
  const auto brackets = [](const Interval& e, const char* digits) {
    mpfr_t exact;
    mpfr_init2(exact, 190);
    mpfr_set_str(exact, digits, 10, MPFR_RNDN);
    EXPECT_LT(mpfr_cmp_d(exact, e.hi()), 0);
    EXPECT_GT(mpfr_cmp_d(exact, e.lo()), 0);
    EXPECT_EQ(std::nextafter(e.lo(), inf), e.hi());
    mpfr_clear(exact);
  };
  brackets(log2_e(), "1.442695040888963407359924681001892137426645954152985934135449");
  brackets(ln_2(), "0.693147180559945309417232121458176568075500134360255254120680");
}

}  // namespace
}  // namespace headroom
