// Ties and other exact results: every kind built, decided, and decided as such.
#include <gtest/gtest.h>

#include "reference/evaluate/ladder/ladder.h"
#include "tests/unit/ladder/oracle.h"

namespace headroom {
namespace {

using ladder_test::problem_of;

double output(const AttentionProblem& p, const Format& f, Rounding rounding, Rung* by = nullptr) {
  LadderOptions o;
  o.output = {f, rounding};
  const RoundedRows r = correctly_rounded(p, all_rows(p), o);
  if (by != nullptr) {
    for (std::size_t i = 0; i < RungCounts::rungs; ++i) {
      if (r.counts.output[i] > 0) *by = static_cast<Rung>(i);
    }
  }
  return decode(f, r.output_code(0, 0));
}
double lse(const AttentionProblem& p, LseBase base, const Format& f, Rounding rounding,
           Rung* by = nullptr) {
  LadderOptions o;
  o.lse = {f, rounding};
  o.lse_base = base;
  const RoundedRows r = correctly_rounded(p, all_rows(p), o);
  if (by != nullptr) {
    for (std::size_t i = 0; i < RungCounts::rungs; ++i) {
      if (r.counts.lse[i] > 0) *by = static_cast<Rung>(i);
    }
  }
  return decode(f, r.lse_code(0));
}

/// One query 1, keys z (as 1 x 1 products), values v.
AttentionProblem row(const std::vector<double>& z, const std::vector<double>& v, Scale scale) {
  const auto n = static_cast<std::int64_t>(z.size());
  return problem_of(Matrix::from_values(fp32, 1, 1, {1}), Matrix::from_values(fp32, n, 1, z),
                    Matrix::from_values(fp32, n, 1, v), scale);
}

constexpr double half_ulp = 0x1p-8;  // of 1 in BF16

/// Value exactly 1 + 2^-8 (a BF16 midpoint): even is 1, up is 1 + 2^-7.
void expect_midpoint(const AttentionProblem& p) {
  Rung by{};
  EXPECT_EQ(output(p, bf16, Rounding::nearest_even, &by), 1.0);
  EXPECT_EQ(by, Rung::tie);
  EXPECT_EQ(output(p, bf16, Rounding::upward), 1 + 2 * half_ulp);
  EXPECT_EQ(output(p, bf16, Rounding::downward), 1.0);
  EXPECT_EQ(output(p, bf16, Rounding::toward_zero), 1.0);
  // representable in FP32: all directions agree
  for (const Rounding r : {Rounding::nearest_even, Rounding::upward, Rounding::downward}) {
    EXPECT_EQ(output(p, fp32, r), 1 + half_ulp);
    EXPECT_EQ(output(p, fp64, r), 1 + half_ulp);
  }
}

TEST(Ties, EqualScoresAverageToAMidpoint) {
  expect_midpoint(row({3, 3}, {1, 1 + 2 * half_ulp}, Scale::natural(Rational(1, 3))));
  expect_midpoint(row({3, 3}, {1, 1 + 2 * half_ulp}, Scale::reciprocal_sqrt(3)));
  expect_midpoint(row({3, 3}, {1, 1 + 2 * half_ulp}, Scale::base2(Rational(1, 7))));
}

TEST(Ties, TwoGroupsEachAverageToTheMidpoint) {
  const std::vector<double> z = {2, 2, -1, -1, -1},
                            v = {1, 1 + 2 * half_ulp, 1 + half_ulp, 1 - half_ulp, 1 + 3 * half_ulp};
  expect_midpoint(row(z, v, Scale::natural(1)));
  expect_midpoint(row(z, v, Scale::reciprocal_sqrt(2)));
}

// (255/256 + 2 * 129/128) / 3 = 1 + 2^-8 though no two scores are equal.
TEST(Ties, BaseTwoScoresOneApart) {
  const std::vector<double> v = {255.0 / 256, 129.0 / 128};
  expect_midpoint(row({0, 1}, v, Scale::base2(1)));
  expect_midpoint(row({5, 8}, v, Scale::base2(Rational(1, 3))));  // 5/3 and 8/3
  // with natural exponents it is no tie: weights 1 : e pull it up
  Rung by{};
  EXPECT_EQ(output(row({0, 1}, v, Scale::natural(1)), bf16, Rounding::nearest_even, &by),
            1 + 2 * half_ulp);
  EXPECT_NE(by, Rung::tie);
}

TEST(Ties, RationalScaleJoinsScoreAndBias) {
  // 8/8 + 0 = 0/8 + 1
  AttentionProblem p = row({8, 0}, {1, 1 + 2 * half_ulp}, Scale::natural(Rational(1, 8)));
  p.bias = Matrix::from_values(fp32, 1, 2, {0, 1});
  expect_midpoint(p);
  // an irrational scale cannot
  AttentionProblem q = row({8, 0}, {1, 1 + 2 * half_ulp}, Scale::reciprocal_sqrt(63));
  q.bias = Matrix::from_values(fp32, 1, 2, {0, 1});
  Rung by{};
  output(q, bf16, Rounding::nearest_even, &by);
  EXPECT_NE(by, Rung::tie);
}

TEST(Ties, BaseTwoScoresWithNaturalBias) {
  AttentionProblem p =
      row({0, 1, 0, 1}, {255.0 / 256, 129.0 / 128, 255.0 / 256, 129.0 / 128}, Scale::base2(1));
  p.bias = Matrix::from_values(fp32, 1, 4, {0, 0, 2, 2});
  expect_midpoint(p);
}

TEST(Ties, SinkIsAKeyOfValueZero) {
  // half of the weight on the sink
  AttentionProblem p = row({2}, {2 + 2 * half_ulp}, Scale::natural(1));
  p.sink = 2;
  expect_midpoint(p);
}

TEST(Ties, SoftcapWithEqualScores) {
  AttentionProblem p = row({3, 3}, {1, 1 + 2 * half_ulp}, Scale::natural(1));
  p.softcap = Rational(50);
  expect_midpoint(p);
}

TEST(Ties, SoftcapWithEqualValues) {
  AttentionProblem p =
      row({1, -1, 0}, {1 + half_ulp, 1 + half_ulp, 1 + half_ulp}, Scale::natural(1));
  p.softcap = Rational(2);
  expect_midpoint(p);
}

// tanh(5000) and tanh(6000) differ by 2^-14426, so that the mean is that close to the midpoint, and
// no criterion of softcaps tells it from a tie; tanh(1000) and tanh(1001) differ by 2^-2885.
TEST(Ties, SoftcapBeyondTheWidestPrecisionIsUndecided) {
  const std::vector<double> v = {1, 1 + 2 * half_ulp};
  AttentionProblem p = row({5000, 6000}, v, Scale::natural(1));
  p.softcap = Rational(1);
  LadderOptions o;
  o.output = {bf16, Rounding::nearest_even};
  const RoundedRows r = correctly_rounded(p, all_rows(p), o);
  EXPECT_EQ(r.counts.output[static_cast<std::size_t>(Rung::undecided)], 1);
  EXPECT_EQ(r.counts.lse[static_cast<std::size_t>(Rung::undecided)], 0);
  ASSERT_EQ(r.undecided.size(), 1U);
  EXPECT_EQ(r.undecided[0].row, 0);
  EXPECT_EQ(r.undecided[0].channel, 0);
  EXPECT_EQ(r.output_code(0, 0), bf16.nan_code());
  EXPECT_EQ(r.counts.widest_bits, widest_precision);
  // no boundary is near in FP32
  Rung by{};
  EXPECT_EQ(output(p, fp32, Rounding::nearest_even, &by), 1 + half_ulp);
  EXPECT_NE(by, Rung::undecided);

  AttentionProblem q = row({1000, 1001}, v, Scale::natural(1));
  q.softcap = Rational(1);
  EXPECT_EQ(output(q, bf16, Rounding::nearest_even, &by), 1 + 2 * half_ulp);
  EXPECT_EQ(by, Rung::wide);
  q = row({1001, 1000}, v, Scale::natural(1));
  q.softcap = Rational(1);
  EXPECT_EQ(output(q, bf16, Rounding::nearest_even), 1.0);
}

TEST(Ties, FarBelowPrecisionStillDecides) {
  // 1 + 2^-8 plus or minus something of relative size e^-66000: the sign alone decides
  for (const double other : {2.0, 0.0}) {
    const AttentionProblem p = row({66000, 0}, {1 + half_ulp, other}, Scale::natural(1));
    Rung by{};
    EXPECT_EQ(output(p, bf16, Rounding::nearest_even, &by), other > 1 ? 1 + 2 * half_ulp : 1.0);
    EXPECT_EQ(by, Rung::wide);
    EXPECT_EQ(output(p, fp32, Rounding::upward), other > 1 ? 1 + half_ulp + 0x1p-23 : 1 + half_ulp);
  }
}

TEST(Ties, ZeroOutputs) {
  // exactly zero, and zero but for e^-1000
  const AttentionProblem zero = row({1, 1}, {1, -1}, Scale::natural(1));
  Rung by{};
  for (const Rounding r : {Rounding::nearest_even, Rounding::upward, Rounding::downward}) {
    EXPECT_EQ(output(zero, bf16, r, &by), 0.0);
    EXPECT_FALSE(std::signbit(output(zero, bf16, r)));
    EXPECT_EQ(by, Rung::tie);
  }
  const AttentionProblem tiny = row({1000, 0}, {0, -1}, Scale::natural(1));
  EXPECT_TRUE(std::signbit(output(tiny, bf16, Rounding::nearest_even)));
  EXPECT_EQ(output(tiny, bf16, Rounding::nearest_even), 0.0);
  EXPECT_EQ(output(tiny, bf16, Rounding::upward), 0.0);
  EXPECT_EQ(output(tiny, bf16, Rounding::downward), -0x1p-133);
}

TEST(Ties, OverflowOfNarrowTargets) {
  // 464 is the E4M3FN midpoint beyond 448 and ties down; anything above is NaN
  EXPECT_EQ(output(row({0, 0}, {448, 480}, Scale::natural(1)), e4m3fn, Rounding::nearest_even),
            448.0);
  EXPECT_TRUE(std::isnan(
      output(row({0, 0}, {448, 480.0625}, Scale::natural(1)), e4m3fn, Rounding::nearest_even)));
  // 65520 ties up to infinity in FP16
  EXPECT_EQ(output(row({0, 0}, {65504, 65536}, Scale::natural(1)), fp16, Rounding::nearest_even),
            std::numeric_limits<double>::infinity());
  EXPECT_EQ(output(row({0, 0}, {65504, 65536}, Scale::natural(1)), fp16, Rounding::toward_zero),
            65504.0);
}

TEST(LseTies, OneVisibleKey) {
  Rung by{};
  EXPECT_EQ(lse(row({3}, {1}, Scale::natural(Rational(1, 2))), LseBase::natural, fp32,
                Rounding::upward, &by),
            1.5);
  // a midpoint: 1 + 2^-8 to BF16
  EXPECT_EQ(lse(row({1 + half_ulp}, {1}, Scale::natural(1)), LseBase::natural, bf16,
                Rounding::nearest_even, &by),
            1.0);
  EXPECT_EQ(by, Rung::tie);
  EXPECT_EQ(
      lse(row({1 + half_ulp}, {1}, Scale::natural(1)), LseBase::natural, bf16, Rounding::upward),
      1 + 2 * half_ulp);
  // just above: another key e^-66000 away
  EXPECT_EQ(lse(row({1 + half_ulp, -66000}, {1, 1}, Scale::natural(1)), LseBase::natural, bf16,
                Rounding::nearest_even),
            1 + 2 * half_ulp);
}

TEST(LseTies, PowersOfTwoOfZeroScores) {
  Rung by{};
  EXPECT_EQ(lse(row({0, 0, 0, 0}, {1, 1, 1, 1}, Scale::natural(1)), LseBase::two, bf16,
                Rounding::upward, &by),
            2.0);
  EXPECT_EQ(by, Rung::tie);
  EXPECT_EQ(
      lse(row(std::vector<double>(8, 0.0), std::vector<double>(8, 1.0), Scale::reciprocal_sqrt(5)),
          LseBase::two, fp64, Rounding::downward),
      3.0);
}

TEST(LseTies, BaseTwo) {
  Rung by{};
  // 2^-1 + 2^-2 + 2^-2 = 1: LSE2 = 7 after a shift, LSE = 0 before it
  EXPECT_EQ(
      lse(row({6, 5, 5}, {1, 1, 1}, Scale::base2(1)), LseBase::two, bf16, Rounding::upward, &by),
      7.0);
  EXPECT_EQ(by, Rung::tie);
  EXPECT_EQ(lse(row({-1, -2, -2}, {1, 1, 1}, Scale::base2(1)), LseBase::natural, bf16,
                Rounding::upward, &by),
            0.0);
  EXPECT_EQ(by, Rung::tie);
  // z = 1/256 + (6, 5, 5): a midpoint of BF16 near 7? 7 + 2^-6 is; use fraction 2^-6
  EXPECT_EQ(lse(row({6 + 0x1p-6, 5 + 0x1p-6, 5 + 0x1p-6}, {1, 1, 1}, Scale::base2(1)), LseBase::two,
                bf16, Rounding::nearest_even, &by),
            7.0);
  EXPECT_EQ(by, Rung::tie);
  // a bias common to all moves LSE by itself
  AttentionProblem p = row({-1, -1}, {1, 1}, Scale::base2(1));
  p.bias = Matrix::from_values(fp32, 1, 2, {1 + half_ulp, 1 + half_ulp});
  EXPECT_EQ(lse(p, LseBase::natural, bf16, Rounding::nearest_even, &by), 1.0);
  EXPECT_EQ(by, Rung::tie);
}

}  // namespace
}  // namespace headroom
