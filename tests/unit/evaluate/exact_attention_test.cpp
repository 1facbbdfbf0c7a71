// The oracle against exact rationals where attention is rational, and against identities that need
// no second implementation where it is not.
#include "reference/evaluate/exact_attention.h"

#include <gtest/gtest.h>

#include <array>
#include <boost/multiprecision/gmp.hpp>
#include <cfloat>
#include <cmath>
#include <random>
#include <stdexcept>
#include <vector>

#include "reference/real/fp_environment.h"

namespace headroom {
namespace {

using Exact = boost::multiprecision::mpq_rational;
using Values = std::vector<double>;

// Value of an MPFR number as a rational, exact.
Exact rational(const Real& x) {
  Exact q;
  mpfr_get_q(q.backend().data(), x.backend().data());
  return q;
}

// |x - expected| <= 2^-bits, both exact.
testing::AssertionResult close(const Real& x, const Exact& expected, int bits) {
  if (!mpfr_number_p(x.backend().data())) return testing::AssertionFailure() << "not a number";
  const Exact error = abs(Exact(rational(x) - expected));
  const Exact limit = Exact(1) / Exact(boost::multiprecision::mpz_int(1) << bits);
  if (error <= limit) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << x.str(30) << " is off by 2^" << std::log2(error.convert_to<double>());
}
testing::AssertionResult agree(const Real& x, const Real& y, int bits) {
  return close(x, rational(y), bits);
}
testing::AssertionResult agrees_with_digits(const Real& x, const char* digits, double tolerance) {
  const double error = std::fabs(mpfr_get_d(x.backend().data(), MPFR_RNDN) - std::atof(digits));
  if (error <= tolerance) return testing::AssertionSuccess();
  return testing::AssertionFailure() << x.str(20) << ", expected " << digits;
}
bool is_minus_infinity(const Real& x) {
  return mpfr_inf_p(x.backend().data()) && mpfr_signbit(x.backend().data());
}

Head make_head(const Format& format, std::int64_t nq, std::int64_t nk, std::int64_t d,
               std::int64_t dv, const Values& q, const Values& k, const Values& v,
               const Scale& scale, MaskKind mask = MaskKind::none) {
  Head head;
  head.q = Matrix::from_values(format, nq, d, q);
  head.k = Matrix::from_values(format, nk, d, k);
  head.v = Matrix::from_values(format, nk, dv, v);
  head.scale = scale;
  head.visibility = {mask, nq, nk, nk};
  return head;
}

struct Random {
  std::mt19937_64 engine{20250104};
  // integer in [-limit, limit] / 8: representable in bf16 for limit <= 127
  double eighth(int limit) {
    return static_cast<double>(static_cast<int>(engine() % (2U * unsigned(limit) + 1)) - limit) / 8;
  }
  Values eighths(std::int64_t count, int limit) {
    Values x(static_cast<std::size_t>(count));
    for (double& each : x) each = eighth(limit);
    return x;
  }
  double any_finite() {
    double x;
    do x = std::bit_cast<double>(engine());
    while (!std::isfinite(x));
    return x;
  }
};

TEST(ExactDot, EqualsTheRationalSumOverTheWholeRangeOfDouble) {
  Random random;
  for (const std::uint32_t mxcsr : {0x1f80U, 0x3f80U, 0x5f80U, 0x7f80U, 0x9fc0U}) {
    for (int round = 0; round < 20; ++round) {
      Values a(17), b(17);
      Exact expected = 0;
      for (std::size_t i = 0; i < a.size(); ++i) {
        a[i] = random.any_finite(), b[i] = random.any_finite();
        if (i % 5 == 0) a[i] = DBL_TRUE_MIN * static_cast<double>(i);
        if (i % 7 == 0) b[i] = round % 2 == 0 ? 0.0 : DBL_MAX;
        if (i % 4 == 3) a[i] = -a[i - 1], b[i] = b[i - 1];  // cancels exactly
        expected += Exact(a[i]) * Exact(b[i]);
      }
      Real dot;
      {
        const MxcsrScope scope(mxcsr);
        dot = exact_dot(a.data(), b.data(), 17);
      }
      ASSERT_EQ(rational(dot), expected);
    }
  }
}

TEST(ExactDot, EmptyZeroAndNonFinite) {
  const double inf = std::numeric_limits<double>::infinity();
  const Values zeros(3), ones(3, 1.0), bad = {1, inf, 1}, nan = {NAN, 1, 1};
  EXPECT_TRUE(mpfr_zero_p(exact_dot(zeros.data(), ones.data(), 3).backend().data()));
  EXPECT_TRUE(mpfr_zero_p(exact_dot(zeros.data(), ones.data(), 0).backend().data()));
  EXPECT_EQ(rational(exact_dot(ones.data(), ones.data(), 3)), 3);
  EXPECT_THROW(exact_dot(bad.data(), ones.data(), 3), std::invalid_argument);
  EXPECT_THROW(exact_dot(bad.data(), zeros.data(), 3), std::invalid_argument);
  EXPECT_THROW(exact_dot(nan.data(), ones.data(), 3), std::invalid_argument);
}

// Integer scores in base 2 make every weight, the sum and the output rational.
TEST(ExactRow, Base2IntegerScoresGiveTheRationalOutput) {
  Random random;
  const std::int64_t nq = 3, nk = 9, d = 4, dv = 3;
  for (int round = 0; round < 10; ++round) {
    Values q(12), k(36);
    for (double& x : q) x = static_cast<double>(static_cast<int>(random.engine() % 9) - 4);
    for (double& x : k) x = static_cast<double>(static_cast<int>(random.engine() % 9) - 4);
    const Values v = random.eighths(nk * dv, 127);
    const Head head = make_head(bf16, nq, nk, d, dv, q, k, v, Scale::base2(1), MaskKind::none);
    for (std::int64_t i = 0; i < nq; ++i) {
      Exact sum = 0;
      std::vector<Exact> numerator(dv, Exact(0));
      for (std::int64_t j = 0; j < nk; ++j) {
        double z = 0;
        for (std::int64_t c = 0; c < d; ++c) z += q[i * d + c] * k[j * d + c];
        const Exact weight(std::ldexp(1.0, static_cast<int>(z)));
        sum += weight;
        for (std::int64_t c = 0; c < dv; ++c) numerator[c] += weight * Exact(v[j * dv + c]);
      }
      for (const std::uint32_t mode : {0x1f80U, 0x3f80U, 0x5f80U, 0x7f80U, 0x9fc0U}) {
        const MxcsrScope scope(mode);
        const ExactRow row = exact_row(head, i);
        ASSERT_EQ(row.z.size(), 9U);
        for (std::int64_t c = 0; c < dv; ++c) {
          const NearestRounding nearest;
          ASSERT_TRUE(close(row.output[c], numerator[c] / sum, 245));
        }
      }
    }
  }
}

// z = (0, 1), v = (255/256, 129/128): exactly 1 + 2^-8, a midpoint of bf16 that any rounding of
// the output to bf16 must recognise as a tie.
TEST(ExactRow, AMidpointOfBf16) {
  const Head head =
      make_head(bf16, 1, 2, 1, 1, {1}, {0, 1}, {255.0 / 256, 129.0 / 128}, Scale::base2(1));
  EXPECT_TRUE(close(exact_row(head, 0).output[0], Exact(257) / 256, 250));
}

TEST(ExactRow, AllOnesInVGiveOne) {
  Random random;
  const Head head = make_head(bf16, 2, 40, 8, 2, random.eighths(16, 127), random.eighths(320, 127),
                              Values(80, 1.0), Scale::reciprocal_sqrt(8));
  for (std::int64_t i = 0; i < 2; ++i) {
    for (const Real& x : exact_row(head, i).output) EXPECT_TRUE(close(x, Exact(1), 250));
  }
}

TEST(ExactRow, ZeroQueryGivesTheMeanOfV) {
  Random random;
  const Values v = random.eighths(21, 127);
  const Head head =
      make_head(fp16, 1, 7, 5, 3, Values(5), random.eighths(35, 127), v, Scale::natural(2));
  const ExactRow row = exact_row(head, 0);
  for (std::size_t c = 0; c < 3; ++c) {
    Exact mean = 0;
    for (std::size_t j = 0; j < 7; ++j) mean += Exact(v[3 * j + c]) / 7;
    EXPECT_TRUE(close(row.output[c], mean, 245));
  }
  EXPECT_TRUE(agrees_with_digits(row.lse2, "2.807354922057604107", 1e-15));  // log2 7
  EXPECT_TRUE(agrees_with_digits(row.lse, "1.945910149055313305", 1e-15));   // ln 7
}

// A vector added to every key leaves O and moves LSE by s <q, c>, exactly.
TEST(ExactRow, AddingAVectorToEveryKeyMovesOnlyTheLogSumExp) {
  Random random;
  const Values q = random.eighths(6, 40), k = random.eighths(66, 40), v = random.eighths(22, 127);
  const Values shift = {16, -8, 4, 2, -32, 1};
  Values moved = k;
  Exact dot = 0;
  for (std::size_t j = 0; j < moved.size(); ++j) moved[j] += shift[j % 6];
  for (std::size_t c = 0; c < 6; ++c) dot += Exact(q[c]) * Exact(shift[c]);
  const Scale scale = Scale::natural(Rational(3, 8));
  const ExactRow before = exact_row(make_head(fp32, 1, 11, 6, 2, q, k, v, scale), 0);
  const ExactRow after = exact_row(make_head(fp32, 1, 11, 6, 2, q, moved, v, scale), 0);
  for (std::size_t c = 0; c < 2; ++c) EXPECT_TRUE(agree(after.output[c], before.output[c], 250));
  EXPECT_TRUE(close(after.lse, Exact(rational(before.lse) + dot * 3 / 8), 245));
}

TEST(ExactRow, MasksShowAPrefix) {
  Random random;
  const std::int64_t n = 6;
  const Values q = random.eighths(n * 2, 60), k = random.eighths(n * 2, 60),
               v = random.eighths(n, 127);
  const Scale scale = Scale::reciprocal_sqrt(2);
  const Head causal = make_head(fp32, n, n, 2, 1, q, k, v, scale, MaskKind::causal);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto visible = static_cast<std::size_t>(i + 1);
    const Head cut = make_head(fp32, 1, i + 1, 2, 1, {q[2 * i], q[2 * i + 1]},
                               Values(k.begin(), k.begin() + 2 * (i + 1)),
                               Values(v.begin(), v.begin() + i + 1), scale);
    const ExactRow expected = exact_row(cut, 0), row = exact_row(causal, i);
    ASSERT_EQ(row.z.size(), visible);
    EXPECT_EQ(row.first_key, 0);
    EXPECT_TRUE(agree(row.output[0], expected.output[0], 250));
    EXPECT_TRUE(agree(row.lse, expected.lse, 245));
  }
  Head padded = causal;
  padded.visibility.length = 2;
  EXPECT_EQ(exact_row(padded, 5).z.size(), 2U);
}

// PyTorch issue 121558: bf16 fill 133120, d = 64, scale 1/8. Output V, LSE = 141767475200.
TEST(PublicReports, FusedResidualOfTheRowMaximum) {
  const Head head = make_head(bf16, 1, 1, 64, 1, Values(64, 133120), Values(64, 133120), {133120},
                              Scale::reciprocal_sqrt(64));
  const ExactRow row = exact_row(head, 0);
  EXPECT_TRUE(close(row.output[0], Exact(133120), 200));
  EXPECT_TRUE(close(row.lse, Exact(141767475200), 240));
}

// flashinfer issue 4267: every raw score lies below a sentinel of -5e4.
TEST(PublicReports, ScoresBelowAFiniteSentinel) {
  const Head head = make_head(bf16, 1, 64, 128, 1, Values(128, 64), Values(64 * 128, -64),
                              Values(64, 1), Scale::reciprocal_sqrt(128));
  const ExactRow row = exact_row(head, 0);
  EXPECT_TRUE(close(row.output[0], Exact(1), 250));
  // 64 equal keys: the report's values for one key are ln 64 and 6 lower
  const Real one = exact_row_from_scores({row.z[0]}, {1}, 1).lse;
  EXPECT_TRUE(agrees_with_digits(one, "-46340.95001", 5e-6));
  EXPECT_TRUE(agrees_with_digits(row.z[0], "-66855.85877", 5e-6));
  EXPECT_TRUE(close(row.lse2, Exact(rational(row.z[0]) + 6), 240));
}

// PyTorch issue 119131: one-hot on key 3 up to 3 exp(-322).
TEST(PublicReports, OneHotThatOverflowsFp16) {
  const Head head = make_head(fp16, 1, 4, 2, 4, {256, 2}, {277, 0, 277, 0, 277, 0, 278, 33},
                              {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, Scale::natural(1));
  // 3 exp(-322) = 3 2^-464.55: enough bits to see it
  const ExactRow row = exact_row(head, 0, 1000);
  const double others = 3 * std::exp(-322.0);
  EXPECT_NEAR((1 - rational(row.output[3])).convert_to<double>() / others, 1, 1e-12);
  EXPECT_NEAR(rational(row.output[0]).convert_to<double>() * 3 / others, 1, 1e-12);
  EXPECT_TRUE(close(row.lse, Exact(71234), 400));
  const ExactMaximum best = exact_row_maximum(head, 0);
  EXPECT_EQ(best.key, 3);
  EXPECT_EQ(rational(best.value), 71234);
}

// PyTorch issue 103749 and flash-attention pull 978: a row without keys is (0, -inf).
TEST(PublicReports, RowsWithoutKeys) {
  const Head head = make_head(bf16, 4, 2, 1, 2, {1, 2, 3, 4}, {1, 2}, {5, 6, 7, 8},
                              Scale::natural(1), MaskKind::causal_bottom_right);
  for (std::int64_t i = 0; i < 2; ++i) {
    const ExactRow row = exact_row(head, i);
    EXPECT_TRUE(row.z.empty());
    ASSERT_EQ(row.output.size(), 2U);
    for (const Real& x : row.output) EXPECT_TRUE(mpfr_zero_p(x.backend().data()));
    EXPECT_TRUE(is_minus_infinity(row.lse));
    EXPECT_TRUE(is_minus_infinity(row.lse2));
    EXPECT_TRUE(is_minus_infinity(row.max_z));
    EXPECT_THROW(exact_row_maximum(head, i), std::invalid_argument);
  }
  EXPECT_TRUE(close(exact_row(head, 2).output[0], Exact(5), 250));
  EXPECT_EQ(exact_row(head, 3).z.size(), 2U);
}

TEST(ExactRow, DoublingThePrecisionAgreesWithinTheStatedError) {
  Random random;
  const std::int64_t n = 30;
  // scores of about 10^4: an error of z weighs that much more in 2^z
  const Head head = make_head(fp32, 1, n, 4, 2, random.eighths(4, 9000), random.eighths(n * 4, 900),
                              random.eighths(n * 2, 127), Scale::reciprocal_sqrt(2));
  for (const int bits : {53, 100, 256}) {
    const ExactRow coarse = exact_row(head, 0, bits), fine = exact_row(head, 0, 2 * bits + 64);
    const int allowed = bits - 7;  // (2 n + 8) 2^-bits = 2^(6.1 - bits)
    for (std::size_t c = 0; c < 2; ++c) {
      EXPECT_TRUE(agree(coarse.output[c], fine.output[c], allowed - 4));  // times max |v| < 16
    }
    EXPECT_TRUE(agree(coarse.lse2, fine.lse2, allowed));
    EXPECT_TRUE(agree(coarse.lse, fine.lse, allowed));
    for (std::size_t j = 0; j < coarse.z.size(); ++j) {
      EXPECT_TRUE(agree(coarse.z[j], fine.z[j], bits));
    }
  }
}

TEST(ExactRow, ResultsDoNotDependOnBoostsDefaultPrecision) {
  const Head head = make_head(bf16, 1, 2, 1, 1, {1}, {1, 2}, {1, 3}, Scale::natural(1));
  const ExactRow expected = exact_row(head, 0);
  const unsigned before = Real::default_precision();
  Real::default_precision(5);
  const ExactRow row = exact_row(head, 0);
  ExactRow copy;
  copy = row;
  Real::default_precision(before);
  EXPECT_EQ(rational(row.output[0]), rational(expected.output[0]));
  EXPECT_EQ(rational(copy.output[0]), rational(expected.output[0]));
  EXPECT_EQ(rational(copy.lse), rational(expected.lse));
}

TEST(ExactRowMaximum, FirstOfEqualMaximaAndExactComparison) {
  // scores 2^60 + 1 and 2^60 are one double
  const Head head =
      make_head(fp32, 1, 4, 2, 1, {0x1p30, 1}, {0x1p30, 0, 0x1p30, 1, 0x1p30, 1, 1, 1},
                {0, 0, 0, 0}, Scale::natural(1));
  const ExactMaximum best = exact_row_maximum(head, 0);
  EXPECT_EQ(best.key, 1);
  EXPECT_EQ(rational(best.value), Exact(0x1p60) + 1);
}

}  // namespace
}  // namespace headroom
