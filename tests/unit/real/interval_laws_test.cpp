// One suite of laws for every enclosing arithmetic: Interval (CGAL's doubles) and WideInterval
// (MPFI) at two precisions. Expected values are exact rationals.
#include <gtest/gtest.h>

#include <boost/multiprecision/gmp.hpp>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "reference/real/interval.h"
#include "reference/real/wide_interval.h"

namespace headroom {
namespace {

using Exact = boost::multiprecision::mpq_rational;
constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

struct Doubles {
  using Number = Interval;
  static Number make(const Interval& i) { return i; }
  static Interval seen(const Number& n) { return n; }
};
template <int Bits>
struct Wide {
  using Number = WideInterval;
  static Number make(const Interval& i) { return {Bits, i}; }
  static Interval seen(const Number& n) { return n.to_doubles(); }
};

template <class Arithmetic>
class Laws : public testing::Test {
 protected:
  const UpwardRounding up_;
  std::mt19937_64 random_{20250102};

  static Interval add(const Interval& a, const Interval& b) {
    return Arithmetic::seen(Arithmetic::make(a) + Arithmetic::make(b));
  }
  static Interval subtract(const Interval& a, const Interval& b) {
    return Arithmetic::seen(Arithmetic::make(a) - Arithmetic::make(b));
  }
  static Interval multiply(const Interval& a, const Interval& b) {
    return Arithmetic::seen(Arithmetic::make(a) * Arithmetic::make(b));
  }
  static Interval divide(const Interval& a, const Interval& b) {
    return Arithmetic::seen(Arithmetic::make(a) / Arithmetic::make(b));
  }
  static Interval root(const Interval& a) { return Arithmetic::seen(sqrt(Arithmetic::make(a))); }
  static Interval power(const Interval& a) { return Arithmetic::seen(exp2(Arithmetic::make(a))); }
  static Interval logarithm(const Interval& a) {
    return Arithmetic::seen(log2(Arithmetic::make(a)));
  }

  // A finite double: any bit pattern, or of moderate size, or with few bits (exact results).
  double finite() {
    switch (random_() % 3) {
      case 0: {
        double x;
        do x = std::bit_cast<double>(random_());
        while (!std::isfinite(x));
        return x;
      }
      case 1:
        return std::ldexp(static_cast<double>(static_cast<std::int64_t>(random_())),
                          static_cast<int>(random_() % 40) - 80);
      default:
        return static_cast<double>(static_cast<std::int64_t>(random_() % 33) - 16);
    }
  }
  Interval interval() {
    const double a = finite(), b = finite();
    return {std::fmin(a, b), std::fmax(a, b)};
  }
  // A double inside a finite interval: an end, or some other one where chance finds it.
  double inside(const Interval& i) {
    const double x = finite();
    if (random_() % 3 == 0 && i.contains(x)) return x;
    return random_() % 2 == 0 ? i.lo() : i.hi();
  }
};
using Arithmetics = testing::Types<Doubles, Wide<53>, Wide<200>>;
TYPED_TEST_SUITE(Laws, Arithmetics);

const std::vector<double>& special() {
  static const std::vector<double> values = {
      0.0,     -0.0,     DBL_TRUE_MIN, -DBL_TRUE_MIN, 3 * DBL_TRUE_MIN, DBL_MIN, -DBL_MIN,
      DBL_MAX, -DBL_MAX, 1.0,          -1.0,          1 + 0x1p-52,      -3.0,    10.0,
      1.1,     -10.1,    0x1p-537,     0x1p-538,      0x1.8p1023,       0x1p53,  1e-300};
  return values;
}

bool encloses(const Interval& i, const Exact& x) {
  return (i.lo() == -inf || Exact(i.lo()) <= x) && (i.hi() == inf || x <= Exact(i.hi()));
}
// The ends are the same or adjacent doubles, and the same if the result is a double.
bool tight(const Interval& i, const Exact& x) {
  if (i.lo() == i.hi()) return true;
  if (std::nextafter(i.lo(), inf) != i.hi()) return false;
  return (i.lo() == -inf || Exact(i.lo()) != x) && (i.hi() == inf || Exact(i.hi()) != x);
}
bool subset(const Interval& a, const Interval& b) { return b.lo() <= a.lo() && a.hi() <= b.hi(); }

std::string text(const Interval& i) {
  char buffer[80];
  std::snprintf(buffer, sizeof buffer, "[%a, %a]", i.lo(), i.hi());
  return buffer;
}

TYPED_TEST(Laws, PointsGiveTightEnclosuresOfTheExactResult) {
  const auto check = [](double a, double b) {
    const Exact x(a), y(b);
    const std::pair<Interval, Exact> results[] = {{TestFixture::add(a, b), Exact(x + y)},
                                                  {TestFixture::subtract(a, b), Exact(x - y)},
                                                  {TestFixture::multiply(a, b), Exact(x * y)}};
    for (const auto& [result, exact] : results) {
      ASSERT_TRUE(encloses(result, exact) && tight(result, exact)) << text(a) << text(b);
    }
    if (b != 0) {
      const Interval quotient = TestFixture::divide(a, b);
      const Exact exact = x / y;
      ASSERT_TRUE(encloses(quotient, exact) && tight(quotient, exact)) << text(a) << text(b);
    }
  };
  for (const double a : special()) {
    for (const double b : special()) check(a, b);
  }
  for (int i = 0; i < 4000; ++i) check(this->finite(), this->finite());
}

TYPED_TEST(Laws, SquareRootsAreTight) {
  const auto check = [](double a) {
    if (a < 0) return;
    const Interval root = TestFixture::root(a);
    const Exact lo(root.lo()), hi(root.hi()), x(a);
    ASSERT_TRUE(root.lo() >= 0 && lo * lo <= x && x <= hi * hi) << text(a);
    ASSERT_TRUE(root.is_point() || std::nextafter(root.lo(), inf) == root.hi()) << text(a);
    if (!root.is_point()) {
      ASSERT_TRUE(lo * lo < x && x < hi * hi) << text(a);
    }
  };
  for (const double a : special()) check(a);
  for (int i = 0; i < 2000; ++i) check(std::fabs(this->finite()));
  EXPECT_EQ(TestFixture::root(Interval(4, inf)).hi(), inf);
}

TYPED_TEST(Laws, EveryPairOfPointsInsideIsEnclosed) {
  for (int i = 0; i < 3000; ++i) {
    const Interval a = this->interval(), b = this->interval();
    const double p = this->inside(a), q = this->inside(b);
    const Exact x(p), y(q);
    ASSERT_TRUE(encloses(TestFixture::add(a, b), x + y)) << text(a) << text(b);
    ASSERT_TRUE(encloses(TestFixture::subtract(a, b), x - y)) << text(a) << text(b);
    ASSERT_TRUE(encloses(TestFixture::multiply(a, b), x * y)) << text(a) << text(b);
    if (q != 0) {
      ASSERT_TRUE(encloses(TestFixture::divide(a, b), x / y)) << text(a) << text(b);
    }
  }
}

TYPED_TEST(Laws, InclusionIsotone) {
  const auto wider = [this](const Interval& a) { return hull(a, Interval(this->finite())); };
  for (int i = 0; i < 3000; ++i) {
    const Interval a = this->interval(), b = this->interval(), c = wider(a), d = wider(b);
    ASSERT_TRUE(subset(TestFixture::add(a, b), TestFixture::add(c, d)));
    ASSERT_TRUE(subset(TestFixture::subtract(a, b), TestFixture::subtract(c, d)));
    ASSERT_TRUE(subset(TestFixture::multiply(a, b), TestFixture::multiply(c, d)));
    ASSERT_TRUE(subset(TestFixture::divide(a, b), TestFixture::divide(c, d)))
        << text(a) << text(b) << text(c) << text(d);
    if (i % 8 == 0) {
      const Interval s(std::fmin(a.hi(), 1e4)), t = hull(s, Interval(std::fmin(d.lo(), 1e4)));
      ASSERT_TRUE(subset(TestFixture::power(s), TestFixture::power(t)));
      const Interval m = abs(a) + Interval(DBL_TRUE_MIN), w = hull(m, abs(c) + Interval(1));
      ASSERT_TRUE(subset(TestFixture::logarithm(m), TestFixture::logarithm(w)));
      ASSERT_TRUE(subset(TestFixture::root(m), TestFixture::root(w)));
    }
  }
}

// exp2 and log2 against MPFR at 300 bits.
TYPED_TEST(Laws, Exp2AndLog2AreTight) {
  mpfr_t value, argument;
  mpfr_init2(value, 300), mpfr_init2(argument, 53);
  const auto check = [&](const Interval& result, double x, auto function) {
    mpfr_set_d(argument, x, MPFR_RNDN);
    function(value, argument, MPFR_RNDN);
    ASSERT_LE(mpfr_cmp_d(value, result.hi()), 0) << text(x);
    ASSERT_GE(mpfr_cmp_d(value, result.lo()), 0) << text(x);
    ASSERT_TRUE(result.is_point() || std::nextafter(result.lo(), inf) == result.hi()) << text(x);
  };
  for (int i = 0; i < 1000; ++i) {
    const double x = static_cast<double>(static_cast<std::int64_t>(this->random_())) * 0x1p-53;
    check(TestFixture::power(x), x, mpfr_exp2);
    const double y = std::fabs(this->finite()) + DBL_TRUE_MIN;
    if (std::isfinite(y)) check(TestFixture::logarithm(y), y, mpfr_log2);
  }
  for (int k = -1074; k <= 1023; k += 9) {
    ASSERT_TRUE(TestFixture::power(k).is_point());
    ASSERT_EQ(TestFixture::logarithm(power_of_two(k)).lo(), k);
    ASSERT_EQ(TestFixture::logarithm(power_of_two(k)).hi(), k);
  }
  mpfr_clear(value), mpfr_clear(argument);
}

TYPED_TEST(Laws, InfiniteEndsNeverLoseAValue) {
  const Interval entire = Interval::entire();
  const double ends[] = {-inf, -DBL_MAX, -2, -0.0, 0, DBL_TRUE_MIN, 2, DBL_MAX, inf};
  const double points[] = {-DBL_MAX, -3, -2, -DBL_TRUE_MIN, 0, DBL_TRUE_MIN, 1, 2, 5, DBL_MAX};
  std::vector<Interval> intervals = {entire};
  for (const double lo : ends) {
    for (const double hi : ends) {
      if (lo < hi || (lo == hi && std::isfinite(lo))) intervals.emplace_back(lo, hi);
    }
  }
  for (const Interval& a : intervals) {
    for (const Interval& b : intervals) {
      const Interval sum = TestFixture::add(a, b), difference = TestFixture::subtract(a, b),
                     product = TestFixture::multiply(a, b), quotient = TestFixture::divide(a, b);
      for (const double p : points) {
        for (const double q : points) {
          if (!a.contains(p) || !b.contains(q)) continue;
          const Exact x(p), y(q);
          ASSERT_TRUE(encloses(sum, x + y)) << text(a) << text(b);
          ASSERT_TRUE(encloses(difference, x - y)) << text(a) << text(b);
          ASSERT_TRUE(encloses(product, x * y)) << text(a) << text(b);
          if (q != 0) {
            ASSERT_TRUE(encloses(quotient, x / y)) << text(a) << text(b);
          }
        }
      }
    }
  }
  EXPECT_TRUE(TestFixture::multiply(0.0, entire).contains(0));
  EXPECT_EQ(TestFixture::divide(1.0, Interval(-1, 1)).lo(), -inf);
  EXPECT_EQ(TestFixture::divide(1.0, Interval(-1, 1)).hi(), inf);
}

TYPED_TEST(Laws, NanIsTheWholeLine) {
  const Interval a = TypeParam::seen(TypeParam::make(Interval(nan)));
  EXPECT_EQ(a.lo(), -inf);
  EXPECT_EQ(a.hi(), inf);
  if constexpr (!std::is_same_v<TypeParam, Doubles>) {
    const WideInterval wide(100, nan);
    EXPECT_EQ(wide.to_doubles().lo(), -inf);
    EXPECT_EQ(wide.to_doubles().hi(), inf);
    EXPECT_EQ(less(wide, WideInterval(100, 1.0)), Tri::unknown);
    EXPECT_EQ(less(WideInterval(100, 1.0), wide), Tri::unknown);
    EXPECT_EQ(less_equal(wide, wide), Tri::unknown);
    const WideInterval sum = wide + WideInterval(100, 1.0);
    EXPECT_EQ(sum.to_doubles().hi(), inf);
    EXPECT_EQ(log2(WideInterval(100, -1.0)).to_doubles().lo(), -inf);
    EXPECT_EQ(log2(WideInterval(100, -1.0)).to_doubles().hi(), inf);
  } else {
    EXPECT_EQ((Interval(inf) - Interval(inf)).lo(), -inf);
    EXPECT_EQ((Interval(inf) - Interval(inf)).hi(), inf);
    EXPECT_EQ(Interval(nan, 1).hi(), inf);
    EXPECT_EQ(Interval(0, nan).lo(), -inf);
  }
}

TYPED_TEST(Laws, ComparisonIsThreeValued) {
  const auto l = [](const Interval& a, const Interval& b) {
    return less(TypeParam::make(a), TypeParam::make(b));
  };
  const auto le = [](const Interval& a, const Interval& b) {
    return less_equal(TypeParam::make(a), TypeParam::make(b));
  };
  EXPECT_EQ(l({1, 2}, {3, 4}), Tri::yes);
  EXPECT_EQ(l({3, 4}, {1, 2}), Tri::no);
  EXPECT_EQ(l({1, 3}, {2, 4}), Tri::unknown);
  EXPECT_EQ(l({1, 2}, {1, 2}), Tri::unknown);  // two wide intervals with equal ends: not "equal"
  EXPECT_EQ(l({1, 2}, {2, 3}), Tri::unknown);
  EXPECT_EQ(l({2, 3}, {1, 2}), Tri::no);
  EXPECT_EQ(l(1.0, 1.0), Tri::no);
  EXPECT_EQ(le({1, 2}, {2, 3}), Tri::yes);
  EXPECT_EQ(le({2, 3}, {1, 2}), Tri::unknown);
  EXPECT_EQ(le({1, 2}, {1, 2}), Tri::unknown);
  EXPECT_EQ(le({3, 4}, {1, 2}), Tri::no);
  EXPECT_EQ(le(1.0, 1.0), Tri::yes);
  EXPECT_EQ(le(-0.0, 0.0), Tri::yes);
  EXPECT_EQ(le(0.0, -0.0), Tri::yes);
}

// The test of the test: the same arithmetic without the guard loses values.
TEST(WithoutTheGuard, RoundingToNearestFailsToEnclose) {
  using Unguarded = CGAL::Interval_nt<false>;
  const NearestRounding nearest;
  std::mt19937_64 random(20250103);
  int lost = 0;
  for (int i = 0; i < 200; ++i) {
    const double a = static_cast<double>(random() >> 11) * 0x1p-50 + 1;
    const double b = static_cast<double>(random() >> 11) * 0x1p-51 + 1;
    const Unguarded product = Unguarded(a) * Unguarded(b);
    const Exact exact = Exact(a) * Exact(b);
    lost += !(Exact(product.inf()) <= exact && exact <= Exact(product.sup()));
  }
  EXPECT_GT(lost, 150);
}

#ifndef NDEBUG
TEST(WithoutTheGuard, DebugBuildsAssert) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        const NearestRounding nearest;
        (void)(Interval(1) + Interval(2));
      },
      "outside UpwardRounding");
}
#endif

TEST(WideIntervalAssignment, TakesThePrecisionOfTheSource) {
  WideInterval a(60, 1.0);
  const WideInterval b(300, 0.1);
  a = b;
  EXPECT_EQ(a.precision(), 300);
  EXPECT_EQ(a.to_doubles().lo(), 0.1);
  EXPECT_EQ(a.to_doubles().hi(), 0.1);
}

TEST(IntervalHelpers, WidthMagnitudeHull) {
  const UpwardRounding up;
  EXPECT_EQ(Interval(1, 1 + 0x1p-52).width(), 0x1p-52);
  EXPECT_EQ(Interval(-0x1p-60, 1).width(), 1 + 0x1p-52);
  EXPECT_EQ(Interval(inf).width(), 0);
  EXPECT_EQ(Interval::entire().width(), inf);
  EXPECT_EQ(Interval(-3, 2).magnitude(), 3);
  EXPECT_EQ(hull(Interval(1, 2), Interval(5)).hi(), 5);
  EXPECT_EQ(max(Interval(1, 4), Interval(2, 3)).lo(), 2);
  EXPECT_EQ(min(Interval(1, 4), Interval(2, 3)).hi(), 3);
  EXPECT_EQ(square(Interval(-2, 1)).lo(), 0);
  EXPECT_EQ(square(Interval(-2, 1)).hi(), 4);
  EXPECT_EQ(sqrt(Interval(-4, 9)).lo(), 0);
  EXPECT_EQ(sqrt(Interval(-4, 9)).hi(), 3);
}

}  // namespace
}  // namespace headroom
