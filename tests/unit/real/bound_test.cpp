#include "reference/real/bound.h"

#include <gtest/gtest.h>

#include <limits>

namespace headroom {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
using Up = Upper<Absolute>;
using Low = Lower<Absolute>;

// 2^53 + 1 and (2^27 + 1)^2 = 2^54 + 2^28 + 1 are no doubles; the neighbours are exact integers.
TEST(Bound, RoundsAwayFromTheBoundedQuantity) {
  const UpwardRounding up;
  EXPECT_EQ((Up(0x1p53) + Up(1)).value(), 0x1p53 + 2);
  EXPECT_EQ((Low(0x1p53) + Low(1)).value(), 0x1p53);
  EXPECT_EQ((Up(0x1p53) - Low(-1)).value(), 0x1p53 + 2);
  EXPECT_EQ((Low(0x1p53) - Up(-1)).value(), 0x1p53);
  EXPECT_EQ((Low(-0x1p53) - Up(1)).value(), -0x1p53 - 2);
  const double f = 0x1p27 + 1;
  EXPECT_EQ((Up(f) * Up(f)).value(), 0x1p54 + 0x1p28 + 4);
  EXPECT_EQ((Upper<Log2>(f) * Upper<Relative>(f)).value(), 0x1p54 + 0x1p28 + 4);
  EXPECT_EQ((Up(1) / Low(3)).value(), 0x1.5555555555556p-2);
  EXPECT_EQ((-Up(2)).value(), -2);
  EXPECT_EQ((-Low(2)).value(), -2);
}

TEST(Bound, NothingKnownIsTheWeakestBound) {
  const UpwardRounding up;
  EXPECT_EQ(Up().value(), inf);
  EXPECT_EQ(Low().value(), -inf);
  EXPECT_EQ(Up(nan).value(), inf);
  EXPECT_EQ(Low(nan).value(), -inf);
  EXPECT_EQ((Up(inf) + Up(-inf)).value(), inf);
  EXPECT_EQ((Up(inf) - Low(inf)).value(), inf);
  EXPECT_EQ((Low(inf) + Low(-inf)).value(), -inf);
  EXPECT_EQ((Low(inf) - Up(inf)).value(), -inf);
  EXPECT_EQ((Up(0) * Up(inf)).value(), inf);
  EXPECT_EQ((Up(1) / Low(0)).value(), inf);
  EXPECT_EQ((Up(1) / Low(-1)).value(), inf);
  EXPECT_EQ((Up(inf) / Low(inf)).value(), inf);
  EXPECT_FALSE(certainly_at_most(Up(), Low(1e300)));
  EXPECT_FALSE(certainly_at_most(Up(1), Low()));
  EXPECT_TRUE(certainly_at_most(Up(1), Low(1)));
}

TEST(Bound, MaximumBoundsBothAndTighterTakesTheBetter) {
  EXPECT_EQ(max(Up(1), Up(2)).value(), 2);
  EXPECT_EQ(tighter(Up(1), Up(2)).value(), 1);
  EXPECT_EQ(min(Low(1), Low(2)).value(), 1);
  EXPECT_EQ(tighter(Low(1), Low(2)).value(), 2);
  EXPECT_EQ(Up::of(Interval(1, 2)).value(), 2);
  EXPECT_EQ(Low::of(Interval(1, 2)).value(), 1);
}

// The sum is used after the scope has ended: it must have been rounded inside it.
[[gnu::noinline]] double sum_used_outside(double a, double b) {
  Up sum;
  {
    const UpwardRounding up;
    sum = Up(a) + Up(b);
  }
  return sum.value();
}
TEST(Bound, ResultsDoNotMoveBehindTheEndOfTheScope) {
  EXPECT_EQ(sum_used_outside(0x1p53, 1), 0x1p53 + 2);
}

}  // namespace
}  // namespace headroom
