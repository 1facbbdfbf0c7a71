// Gates and scores that are aimed at, against exact rational arithmetic.
#include <gtest/gtest.h>
#include <mpfr.h>

#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>

#include "fuzz/generate.h"
#include "fuzz/generate/pieces.h"
#include "tests/unit/fuzz/marks.h"

namespace headroom::fuzz {
namespace {

using Exact = boost::multiprecision::cpp_rational;

Exact exact(double x) { return Exact(x); }
Exact exact(float x) { return Exact(static_cast<double>(x)); }

/// Square of factor max|q| max|k - mean|, or without the mean.
Exact gate_square(const Landmarks& marks, const Candidate& c, bool centred) {
  const std::int64_t n = c.length(), d = c.shape.channels;
  std::vector<Exact> mean(static_cast<std::size_t>(d));
  for (std::int64_t ch = 0; centred && ch < d; ++ch) {
    for (std::int64_t j = 0; j < n; ++j) mean[at(ch)] += exact(c.key(j)[ch]);
    mean[at(ch)] /= n;
  }
  Exact query = 0, key = 0;
  for (std::int64_t i = 0; i < c.shape.queries; ++i) {
    Exact sum = 0;
    for (std::int64_t ch = 0; ch < d; ++ch) sum += exact(c.query(i)[ch]) * exact(c.query(i)[ch]);
    query = std::max(query, sum);
  }
  for (std::int64_t j = 0; j < n; ++j) {
    Exact sum = 0;
    for (std::int64_t ch = 0; ch < d; ++ch) {
      const Exact x = exact(c.key(j)[ch]) - mean[at(ch)];
      sum += x * x;
    }
    key = std::max(key, sum);
  }
  return query * key * exact(marks.factor) * exact(marks.factor);
}

Candidate noise(Random& random, const Landmarks& marks, const Shape& shape, double offset) {
  Candidate c = make_candidate(shape);
  for (float& x : c.q) x = static_cast<float>(random.normal());
  for (float& x : c.k) x = static_cast<float>(offset + random.normal());
  round_operands(c, marks.operand);
  return c;
}

TEST(Aim, GateFromBelowByAFewUlps) {
  int aimed = 0;
  for (const auto& [name, marks] : test::all_marks()) {
    for (const Shape& shape : {Shape{1, 2, 1, 1}, Shape{4, 16, 4, 1}, Shape{3, 9, 7, 1}}) {
      for (std::uint64_t seed = 0; seed < 8; ++seed) {
        Random random(seed);
        const double offset = seed % 2 == 0 ? 0 : 20;
        Candidate c = noise(random, marks, shape, offset);
        for (const double target : {213.0, 212.6, 17.0}) {
          if (!aim_at_gate(marks, target, c)) {
            // keys that rounding made equal, or a range that is soon left
            EXPECT_TRUE(gate_square(marks, c, marks.centred) == 0 || marks.operand == e4m3fn)
                << name;
            continue;
          }
          ++aimed;
          const Exact value = gate_square(marks, c, marks.centred), limit = exact(target);
          EXPECT_LE(value, limit * limit * (1 + exact(0x1p-48))) << name << " seed " << seed;
          const Exact least = limit * (1 - exact(std::ldexp(1.0, 4 - marks.operand.precision)));
          if (marks.operand.emin <= -14) {
            EXPECT_GT(value, least * least) << name << " seed " << seed << " target " << target;
          }
          Candidate rounded = c;
          round_operands(rounded, marks.operand);
          EXPECT_TRUE(rounded == c) << name;
        }
      }
    }
  }
  EXPECT_GE(aimed, 200);
}

// A value just above the limit would be refused: that is what "from below" is for.
TEST(Aim, RoundingAloneWouldOftenBeAbove) {
  const Landmarks marks = test::released();
  int above = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    Candidate c = noise(random, marks, {2, 8, 4, 1}, 0);
    const double by = 213 / gate_value(marks, c, Centre::mean);
    for (float& x : c.q) x = static_cast<float>(static_cast<double>(x) * by);
    round_operands(c, marks.operand);
    if (gate_square(marks, c, true) > Exact(213) * 213) ++above;
  }
  EXPECT_GT(above, 10);
}

TEST(Aim, GateValueAgainstRationals) {
  for (const auto& [name, marks] : test::all_marks()) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      Random random(seed);
      const Candidate c = noise(random, marks, {3, 11, 5, 1}, seed < 5 ? 0 : 100);
      for (const bool centred : {false, true}) {
        const double value = gate_value(marks, c, centred ? Centre::mean : Centre::none);
        const Exact square = gate_square(marks, c, centred);
        if (square == 0) {  // keys that rounding made equal
          EXPECT_EQ(value, 0) << name;
          continue;
        }
        const Exact ratio = exact(value) * exact(value) / square;
        EXPECT_LT(boost::multiprecision::abs(ratio - 1), exact(0x1p-44)) << name;
      }
    }
  }
}

// Two keys of BF16 whose mean is a tie and goes to 1, by hand.
TEST(Aim, ARoundedMeanIsNotTheMean) {
  const Landmarks marks = test::released();
  Candidate c = make_candidate({1, 2, 2, 1});
  c.k = {1, 1 + 0x1p-7F, 1 + 0x1p-7F, 1};
  c.q = {-3, -4};
  EXPECT_EQ(gate_value(marks, c, Centre::rounded_mean), 5 * 0x1p-7);
  EXPECT_NEAR(gate_value(marks, c, Centre::mean), 5 * 0x1p-7 / std::sqrt(2.0), 1e-15);
  EXPECT_NEAR(gate_value(marks, c, Centre::none), 5 * std::sqrt(1 + std::pow(1 + 0x1p-7, 2)),
              1e-14);
  ASSERT_TRUE(aim_at_gate(marks, 160, Centre::rounded_mean, c));
  EXPECT_EQ(c.q, (std::vector<float>{-12288, -16384}));  // 160 / (5 2^-7) = 4096
}

TEST(Aim, PaddingHasNoPart) {
  const Landmarks marks = test::released();
  Random random(3);
  Candidate c = noise(random, marks, {1, 6, 3, 1}, 0);
  c.setting.length = 4;
  const double value = gate_value(marks, c, Centre::mean);
  c.key(4)[0] = 1e30F;
  c.key(5)[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(gate_value(marks, c, Centre::mean), value);
  EXPECT_EQ(gate_value(marks, c, Centre::rounded_mean), gate_value(marks, c, Centre::rounded_mean));
}

TEST(Aim, GateThatCannotBe) {
  Landmarks marks = test::released();
  Candidate c = make_candidate({1, 2, 2, 1});
  c.k = {1, 1, 1, 1};
  c.q = {1, 1};
  EXPECT_FALSE(aim_at_gate(marks, 213, c));  // equal keys: 0
  EXPECT_EQ(c.q, (std::vector<float>{1, 1}));
  c.k = {0, 1, 0, -1};
  c.q = {0, 0};
  EXPECT_FALSE(aim_at_gate(marks, 213, c));
  c.q = {1, 0};
  c.k = {0, 0x1p-120F, 0, -0x1p-120F};  // 213 2^120 fits, 213 2^121 does not
  EXPECT_TRUE(aim_at_gate(marks, 213, c));
  c.q = {1, 0};
  c.k = {0, 0x1p-121F, 0, -0x1p-121F};
  EXPECT_FALSE(aim_at_gate(marks, 213, c));
  EXPECT_EQ(c.q, (std::vector<float>{1, 0}));
  EXPECT_FALSE(aim_at_gate(marks, -1, c));
  c.q = {1, std::numeric_limits<float>::infinity()};
  EXPECT_FALSE(aim_at_gate(marks, 213, c));
}

void expect_score(const Landmarks& marks, const Candidate& c, std::int64_t row, std::int64_t key,
                  double wish, const std::string& where) {
  Exact z = 0;
  double unit = 0;
  for (std::int64_t ch = 0; ch < c.shape.channels; ++ch) {
    z += exact(c.query(row)[ch]) * exact(c.key(key)[ch]);
    unit = std::max(unit, std::fabs(static_cast<double>(c.query(row)[ch])) *
                              ulp_at(marks.operand, c.key(key)[ch]));
  }
  const Exact off = boost::multiprecision::abs(z * exact(marks.factor) - exact(wish));
  EXPECT_LE(off, exact(std::fabs(marks.factor) * unit * (1 + 0x1p-30)))
      << where << " key " << key << " wish " << wish;
}

TEST(Aim, ScoresAgainstRationals) {
  for (const auto& [name, marks] : test::all_marks()) {
    if (marks.operand == e4m3fn) continue;  // 448 is soon left
    for (const Shape& shape :
         {Shape{2, 6, 1, 1}, Shape{2, 6, 3, 1}, Shape{2, 6, 12, 1}, Shape{1, 40, 16, 1}}) {
      for (std::uint64_t seed = 0; seed < 10; ++seed) {
        Random random(seed);
        Candidate c = noise(random, marks, shape, seed % 3 == 0 ? 8 : 0);
        std::vector<double> wish(at(shape.keys));
        for (double& s : wish) s = random.pick({-120.0, 0.0, 3.25, -7.0, 126.0});
        const std::int64_t row = shape.queries - 1;
        const Candidate before = c;
        if (!aim_at_scores(marks, row, wish, c)) {
          EXPECT_TRUE(c == before) << name;
          EXPECT_TRUE(marks.operand == fp16) << name << " seed " << seed;
          continue;
        }
        for (std::int64_t j = 0; j < shape.keys; ++j) {
          expect_score(marks, c, row, j, wish[at(j)], name);
        }
        Candidate rounded = c;
        round_operands(rounded, marks.operand);
        EXPECT_TRUE(rounded == c) << name;
      }
    }
  }
}

// One key and two channels: the query goes along the key, and no further than it has to.
TEST(Aim, LeastChangeOfAQuery) {
  Landmarks marks = test::released();
  marks.operand = fp32;
  Candidate c = make_candidate({1, 1, 2, 1});
  c.q = {1, 2};
  c.k = {3, 4};
  ASSERT_TRUE(aim_at_scores(marks, 0, {61}, c));  // 11 now: q + 2 k
  EXPECT_EQ(c.q, (std::vector<float>{7, 10}));
  EXPECT_EQ(c.k, (std::vector<float>{3, 4}));
  // two keys on one line: the query cannot, so the keys go along it
  c = make_candidate({1, 2, 3, 1});
  c.q = {1, 0, 0};
  c.k = {2, 1, 0, 4, 2, 0};
  ASSERT_TRUE(aim_at_scores(marks, 0, {8, 4}, c));
  EXPECT_EQ(c.q, (std::vector<float>{1, 0, 0}));
  EXPECT_EQ(c.k, (std::vector<float>{8, 1, 0, 4, 2, 0}));
}

TEST(Aim, ScoresThatCannotBe) {
  const Landmarks marks = test::released();
  Candidate c = make_candidate({1, 2, 1, 1});
  c.k = {1, 2};
  const Candidate before = c;
  EXPECT_FALSE(aim_at_scores(marks, 0, {1, 1}, c));  // a query of zeros
  EXPECT_TRUE(c == before);
  c.q = {0x1p-120F};
  EXPECT_FALSE(aim_at_scores(marks, 0, {1, 300}, c));  // the second key would be 300 2^120
  EXPECT_EQ(c.k, before.k);
  EXPECT_TRUE(aim_at_scores(marks, 0, {1, 200}, c));
}

TEST(Pieces, PowerOfTwoAgainstMpfr) {
  mpfr_t x, y;
  mpfr_inits2(200, x, y, nullptr);
  Random random(5);
  for (int i = 0; i < 20000; ++i) {
    const double e = i < 300 ? i - 150 : random.uniform(-300, 300);
    mpfr_set_d(x, e, MPFR_RNDN);
    mpfr_exp2(y, x, MPFR_RNDN);
    mpfr_d_div(y, power_of_two(e), y, MPFR_RNDN);
    mpfr_sub_ui(y, y, 1, MPFR_RNDN);
    ASSERT_LT(std::fabs(mpfr_get_d(y, MPFR_RNDN)), 0x1p-45) << e;
  }
  mpfr_clears(x, y, nullptr);
  EXPECT_EQ(power_of_two(-2000), 0);
  EXPECT_EQ(power_of_two(2000), HUGE_VAL);
}

TEST(Pieces, StepsAreNeighbours) {
  EXPECT_EQ(step_by(bf16, 1, 1), 1 + 0x1p-7F);
  EXPECT_EQ(step_by(bf16, 1, -1), 1 - 0x1p-7F);  // two numbers below 1: ulps are those at 1
  EXPECT_EQ(step_by(fp16, 0, 1), 0x1p-24F);
  EXPECT_EQ(step_by(fp16, 0x1p-20F, 1), 0x1p-20F + 0x1p-24F);
  EXPECT_EQ(step_by(fp16, 65504, 1), 65504);
  EXPECT_EQ(step_by(fp32, -1, -1), -1 - 0x1p-23F);
  EXPECT_EQ(toward_zero(bf16, 1 + 0x1p-7 - 0x1p-30), 1);
  EXPECT_EQ(toward_zero(bf16, -257.5), -256);
  EXPECT_EQ(toward_zero(bf16, 3), 3);
}

}  // namespace
}  // namespace headroom::fuzz
