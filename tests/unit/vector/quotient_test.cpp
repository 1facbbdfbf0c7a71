// quotient_bounds against exact rational arithmetic (GMP).
#include <gmp.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "reference/evaluate/vector/kernels.h"
#include "reference/real/fp_environment.h"
#include "tests/unit/vector/exp2_oracle.h"
#include "tests/unit/vector/instruction_sets.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

class Rational {
 public:
  explicit Rational(double x) {
    mpq_init(q_);
    mpq_set_d(q_, x);
  }
  Rational(const Rational& other) {
    mpq_init(q_);
    mpq_set(q_, other.q_);
  }
  Rational& operator=(const Rational&) = delete;
  ~Rational() { mpq_clear(q_); }
  friend Rational operator+(const Rational& a, const Rational& b) { return a.apply(mpq_add, b); }
  friend Rational operator-(const Rational& a, const Rational& b) { return a.apply(mpq_sub, b); }
  friend Rational operator/(const Rational& a, const Rational& b) { return a.apply(mpq_div, b); }
  /// Is this >= x, for any double?
  bool at_least(double x) const { return std::isinf(x) ? x < 0 : mpq_cmp(q_, Rational(x).q_) >= 0; }
  bool at_most(double x) const { return std::isinf(x) ? x > 0 : mpq_cmp(q_, Rational(x).q_) <= 0; }
  int sign() const { return mpq_sgn(q_); }

 private:
  template <class Operation>
  Rational apply(Operation operation, const Rational& b) const {
    Rational r(0.0);
    operation(r.q_, q_, b.q_);
    return r;
  }
  mpq_t q_;
};

struct Quotients {
  std::vector<double> o, o_error, l, l_error, lo, hi;
  void add(double o_, double o_error_, double l_, double l_error_) {
    o.push_back(o_);
    o_error.push_back(o_error_);
    l.push_back(l_);
    l_error.push_back(l_error_);
  }
  void run(const VectorKernels& kernels) {
    lo.resize(o.size());
    hi.resize(o.size());
    kernels.quotient_bounds(o.data(), o_error.data(), l.data(), l_error.data(), lo.data(),
                            hi.data(), o.size());
  }
};

Quotients random_quotients(int n) {
  std::mt19937_64 random(test_seed());
  const auto unit = [&random] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  const auto exponent = [&random](int from, int to) {
    return from + static_cast<int>(random() % static_cast<unsigned>(to - from + 1));
  };
  Quotients q;
  for (int i = 0; i < n; ++i) {
    // moderate; anything representable; few bits (exact sums and quotients); cancelling errors
    const bool any = i % 4 == 1, short_numbers = i % 4 == 2;
    double o = std::ldexp(unit() * 2 - 1, any ? exponent(-1074, 1023) : exponent(-20, 20));
    double l = std::ldexp(1 + unit(), any ? exponent(-1074, 1022) : exponent(-5, 20));
    double o_error = std::fabs(o) * std::ldexp(unit(), exponent(-60, 1));
    double l_error = l * std::ldexp(unit(), exponent(-60, -1));
    if (short_numbers) {
      o = exponent(-64, 64);
      l = std::ldexp(1.0, exponent(0, 4)) * exponent(1, 3);
      o_error = exponent(0, 2) * 0.25;
      l_error = 0;
    }
    if (i % 8 == 0) o_error = l_error = 0;
    q.add(o, o_error, l, l_error);
  }
  for (const double o : {0.0, -0.0, 0x1p-1074, -0x1p-1074, 0x1p-1022, 1.0, -1.0, 0x1p1023}) {
    for (const double o_error : {0.0, 0x1p-1074, 0x1p-53}) {
      for (const double l : {0x1p-1074, 0x1p-1022, 1.0, 3.0, 0x1p1000}) {
        for (const double l_error : {0.0, l / 2, l / 3}) q.add(o, o_error, l, l_error);
      }
    }
  }
  return q;
}

using QuotientKernels = EachInstructionSet;
INSTANTIATE_TEST_SUITE_P(Every, QuotientKernels, every_instruction_set(), instruction_set_name);

TEST_P(QuotientKernels, HoldTheExactQuotientsAndAreTight) {
  const NearestRounding nearest;
  Quotients q = random_quotients(40000 * test_multiplier());
  q.run(kernels());
  for (std::size_t i = 0; i < q.o.size(); ++i) {
    const Rational o_lo = Rational(q.o[i]) - Rational(q.o_error[i]);
    const Rational o_hi = Rational(q.o[i]) + Rational(q.o_error[i]);
    const Rational l_lo = Rational(q.l[i]) - Rational(q.l_error[i]);
    const Rational l_hi = Rational(q.l[i]) + Rational(q.l_error[i]);
    if (l_lo.sign() <= 0) {
      EXPECT_EQ(q.lo[i], -infinity);
      EXPECT_EQ(q.hi[i], infinity);
      continue;
    }
    const auto where = [&] {
      return "(" + hex(q.o[i]) + " +- " + hex(q.o_error[i]) + ") / (" + hex(q.l[i]) + " +- " +
             hex(q.l_error[i]) + ") in [" + hex(q.lo[i]) + ", " + hex(q.hi[i]) + "]";
    };
    const Rational least = o_lo / (o_lo.sign() < 0 ? l_lo : l_hi);
    const Rational most = o_hi / (o_hi.sign() < 0 ? l_hi : l_lo);
    ASSERT_TRUE(least.at_least(q.lo[i])) << where();
    ASSERT_TRUE(most.at_most(q.hi[i])) << where();
    // Three roundings an end, each less than one ulp of a relative 2^-52: the ends moved inward by
    // 2^-50 of themselves and four subnormal quanta are no bounds any more. Needs sums and
    // quotient in the normal range.
    const bool normal = std::fabs(q.o[i]) > 0x1p-900 && std::fabs(q.o[i]) < 0x1p900 &&
                        q.l[i] > 0x1p-100 && q.l[i] < 0x1p100 &&
                        std::fabs(std::fabs(q.o[i]) - q.o_error[i]) > 0x1p-900;
    if (normal) {
      EXPECT_FALSE(least.at_least(q.lo[i] + 0x1p-50 * std::fabs(q.lo[i]))) << where();
      EXPECT_FALSE(most.at_most(q.hi[i] - 0x1p-50 * std::fabs(q.hi[i]))) << where();
    }
  }
}

TEST_P(QuotientKernels, ExactQuotientsArePoints) {
  const NearestRounding nearest;
  Quotients q;
  for (int a = -100; a <= 100; ++a) {
    for (const double b : {1.0, 2.0, 0.25, 64.0}) q.add(a == 0 ? 0.5 : a, 0, b, 0);
  }
  q.run(kernels());
  for (std::size_t i = 0; i < q.o.size(); ++i) {
    EXPECT_EQ(q.lo[i], q.o[i] / q.l[i]);
    EXPECT_EQ(q.hi[i], q.o[i] / q.l[i]);
  }
}

TEST_P(QuotientKernels, WholeLineWhereNothingIsKnown) {
  const NearestRounding nearest;
  const double huge = std::numeric_limits<double>::max();
  Quotients q;
  q.add(1, 0, 0, 0);
  q.add(1, 0, -1, 0);
  q.add(1, 0, 1, 1);
  q.add(1, 0, 1, 2);
  q.add(nan, 0, 1, 0);
  q.add(1, nan, 1, 0);
  q.add(1, 0, nan, 0);
  q.add(1, 0, 1, nan);
  q.add(infinity, 0, 1, 0);
  q.add(-infinity, 0, 1, 0);
  q.add(1, infinity, 1, 0);
  q.add(1, 0, infinity, 0);
  q.add(1, 0, 1, infinity);
  q.add(huge, huge, 1, 0);
  q.add(1, 0, huge, huge / 2);
  q.run(kernels());
  for (std::size_t i = 0; i < q.o.size(); ++i) {
    EXPECT_EQ(q.lo[i], -infinity) << i;
    EXPECT_EQ(q.hi[i], infinity) << i;
  }
}

// The error-free transformations find the same doubles as embedded rounding, away from underflow.
TEST_P(QuotientKernels, SameBitsAsPortable) {
  const NearestRounding nearest;
  Quotients ours = random_quotients(40000), theirs = ours;
  ours.run(kernels());
  theirs.run(vector_kernels(InstructionSet::portable));
  for (std::size_t i = 0; i < ours.o.size(); ++i) {
    const bool safe = std::fabs(std::fabs(ours.o[i]) - ours.o_error[i]) > 0x1p-800 &&
                      std::fabs(ours.o[i]) < 0x1p900 && ours.l[i] < 0x1p900;
    if (!safe) continue;
    ASSERT_EQ(ours.lo[i], theirs.lo[i]) << i;
    ASSERT_EQ(ours.hi[i], theirs.hi[i]) << i;
  }
}

}  // namespace
}  // namespace headroom
