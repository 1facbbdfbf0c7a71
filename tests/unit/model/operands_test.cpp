// Operands against an emulation by MPFR's own rounding (precision, mpfr_check_range,
// mpfr_subnormalize), and the key mean against summations in several orders.
#include "reference/model/operands.h"

#include <gtest/gtest.h>
#include <mpfr.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace headroom {
namespace {

using Values = std::vector<double>;
constexpr double inf = std::numeric_limits<double>::infinity();

// A 600-bit MPFR number.
class Big {
 public:
  Big() { mpfr_init2(v_, 600), mpfr_set_ui(v_, 0, MPFR_RNDN); }
  explicit Big(double x) : Big() { mpfr_set_d(v_, x, MPFR_RNDN); }
  Big(const Big& o) : Big() { mpfr_set(v_, o.v_, MPFR_RNDN); }
  Big& operator=(const Big& o) { return mpfr_set(v_, o.v_, MPFR_RNDN), *this; }
  ~Big() { mpfr_clear(v_); }
  mpfr_ptr raw() { return v_; }
  friend Big operator*(Big a, const Big& b) { return mpfr_mul(a.v_, a.v_, b.v_, MPFR_RNDN), a; }
  friend Big operator/(Big a, const Big& b) { return mpfr_div(a.v_, a.v_, b.v_, MPFR_RNDN), a; }
  friend Big operator-(Big a, const Big& b) { return mpfr_sub(a.v_, a.v_, b.v_, MPFR_RNDN), a; }

 private:
  mpfr_t v_;
};

Big log2_e() {
  Big e(1.0);
  mpfr_exp(e.raw(), e.raw(), MPFR_RNDN);
  mpfr_log2(e.raw(), e.raw(), MPFR_RNDN);
  return e;
}
Big reciprocal_root(unsigned long n) {
  Big x;
  mpfr_set_ui(x.raw(), n, MPFR_RNDN);
  mpfr_rec_sqrt(x.raw(), x.raw(), MPFR_RNDN);
  return x;
}

// RNE by MPFR's emulation of IEEE formats (MPFR manual, mpfr_subnormalize).
double rounded(const Format& format, Big x) {
  const mpfr_exp_t emin = mpfr_get_emin(), emax = mpfr_get_emax();
  mpfr_t y;
  mpfr_init2(y, format.precision);
  mpfr_set_emin(format.least_exponent() + 1), mpfr_set_emax(format.emax + 1);
  int ternary = mpfr_set(y, x.raw(), MPFR_RNDN);
  ternary = mpfr_check_range(y, ternary, MPFR_RNDN);
  mpfr_subnormalize(y, ternary, MPFR_RNDN);
  const double result = mpfr_get_d(y, MPFR_RNDN);
  mpfr_clear(y);
  mpfr_set_emin(emin), mpfr_set_emax(emax);
  return result;
}
double rounded(const Format& format, double x) { return rounded(format, Big(x)); }

struct Random {
  std::mt19937_64 engine{20250105};
  double unit() { return static_cast<double>(engine() >> 11) * 0x1p-52 - 1; }
  // A finite number of the format: any exponent, or near 1.
  double number(const Format& format) {
    const int exponent = engine() % 2 == 0 ? static_cast<int>(engine() % 6) - 3
                                           : static_cast<int>(engine() % 40) + format.emin - 15;
    const double x = rounded(format, std::ldexp(unit(), exponent));
    return std::isfinite(x) ? x : 1;
  }
  Values numbers(const Format& format, std::int64_t count) {
    Values x(static_cast<std::size_t>(count));
    for (double& each : x) each = number(format);
    return x;
  }
};

Head make_head(const Format& format, std::int64_t nq, std::int64_t nk, std::int64_t d,
               const Values& q, const Values& k, const Scale& scale) {
  Head head;
  head.q = Matrix::from_values(format, nq, d, q);
  head.k = Matrix::from_values(format, nk, d, k);
  head.v = Matrix::from_values(format, nk, 1, Values(static_cast<std::size_t>(nk), 1.0));
  head.scale = scale;
  head.visibility = {MaskKind::none, nq, nk, nk};
  return head;
}

KernelModel plain_kernel(const Format& operand) {
  KernelModel kernel;
  kernel.operand = operand;
  return kernel;
}

Operands make_operands(const Head& head, const KernelModel& kernel) {
  const UpwardRounding up;
  return {up, head, kernel};
}

TEST(Folding, QueriesAndKeysAreBitExact) {
  Random random;
  const std::int64_t n = 20, d = 12;
  for (const Format& operand : {bf16, fp16, fp32}) {
    const Values stored = random.numbers(operand, n * d);
    const Head head = make_head(operand, n, n, d, stored, stored, Scale::reciprocal_sqrt(12));
    for (const Format& constant : {bf16, fp32, fp64}) {
      for (const Format& arithmetic : {bf16, fp32}) {
        for (const bool at_query : {true, false}) {
          KernelModel kernel = plain_kernel(operand);
          kernel.scale = {at_query ? FactorSite::query : FactorSite::key,
                          at_query ? FactorSite::query : FactorSite::key, constant, arithmetic};
          const Operands operands = make_operands(head, kernel);
          const Big exact_factor = reciprocal_root(12) * log2_e();
          const Big factor(rounded(constant, exact_factor));
          Values row(d), high(d), lo(d), hi(d);
          for (std::int64_t i = 0; i < n; ++i) {
            if (at_query) {
              operands.query_row(i, row.data());
              operands.exact_query_row(i, lo.data(), hi.data());
            } else {
              operands.key_row(i, row.data(), high.data());
              ASSERT_EQ(row, high);
              operands.exact_key_row(i, lo.data(), hi.data());
            }
            for (std::int64_t c = 0; c < d; ++c) {
              const double x = stored[i * d + c];
              ASSERT_EQ(row[c], rounded(operand, rounded(arithmetic, Big(x) * factor)))
                  << operand.name << ' ' << constant.name << ' ' << arithmetic.name << ' ' << x;
              Big exact = Big(x) * exact_factor;
              ASSERT_LE(mpfr_cmp_d(exact.raw(), hi[c]), 0);
              ASSERT_GE(mpfr_cmp_d(exact.raw(), lo[c]), 0);
            }
          }
          // the other side is as stored
          if (at_query) operands.key_row(0, row.data(), high.data());
          if (!at_query) operands.query_row(0, row.data());
          for (std::int64_t c = 0; c < d; ++c) ASSERT_EQ(row[c], stored[c]);
        }
      }
    }
  }
}

// The product of factors at one site is rounded once, and rounding it twice would show: find a
// scale where RN(RN(s) RN(log2 e)) differs from RN(s log2 e).
TEST(Folding, TwoFactorsAtOneSiteAreOneConstant) {
  int differs = 0;
  for (int n = 1; n < 40; ++n) {
    const Head head = make_head(bf16, 1, 1, 1, {1}, {1}, Scale::natural(Rational(1, 2 * n + 1)));
    KernelModel kernel = plain_kernel(bf16);
    const Operands together = make_operands(head, kernel);
    const Big s = Big(1) / Big(2 * n + 1);
    EXPECT_EQ(together.stored_score_factor(), rounded(fp32, s * log2_e()));
    differs += together.stored_score_factor() !=
               rounded(fp32, Big(rounded(fp32, s)) * Big(rounded(fp32, log2_e())));
    Big exact = s * log2_e();
    EXPECT_LT(mpfr_cmp_d(exact.raw(), together.score_factor().hi()), 0);
    EXPECT_GT(mpfr_cmp_d(exact.raw(), together.score_factor().lo()), 0);
    EXPECT_EQ(std::nextafter(together.score_factor().lo(), inf), together.score_factor().hi());

    kernel.scale.scale = FactorSite::query;  // now only log2 e is left for the score
    const Operands apart = make_operands(head, kernel);
    EXPECT_EQ(apart.stored_score_factor(), rounded(fp32, log2_e()));
  }
  EXPECT_GT(differs, 5);
}

TEST(Folding, ATieOfTheConstantGoesToEven) {
  for (const auto& [numerator, expected] :
       {std::pair{257, 256.0}, std::pair{259, 260.0}, std::pair{-257, -256.0}}) {
    const Head head = make_head(bf16, 1, 1, 1, {1}, {1}, Scale::base2(numerator));
    KernelModel kernel = plain_kernel(bf16);
    kernel.scale.constant = bf16;
    const Operands operands = make_operands(head, kernel);
    EXPECT_EQ(operands.stored_score_factor(), expected);
    EXPECT_TRUE(operands.score_factor().is_point());
    EXPECT_EQ(operands.score_factor().lo(), numerator);
  }
}

TEST(Folding, BaseTwoAppliesOnlyItsOwnConstant) {
  KernelModel kernel = plain_kernel(bf16);
  const Head head = make_head(bf16, 1, 1, 1, {3}, {5}, Scale::base2(Rational(1, 4)));
  kernel.scale.scale = FactorSite::query;
  const Operands operands = make_operands(head, kernel);
  double q = 0;
  operands.query_row(0, &q);
  EXPECT_EQ(q, 0.75);
  EXPECT_EQ(operands.score_factor().lo(), 1);
  EXPECT_EQ(operands.score_factor().hi(), 1);
  EXPECT_EQ(operands.stored_score_factor(), 1);
}

// A factor of one is no operation: nothing is rounded, whatever the arithmetic's format.
TEST(Folding, OneIsNotMultiplied) {
  KernelModel kernel = plain_kernel(fp32);
  kernel.scale = {FactorSite::query, FactorSite::query, fp32, bf16};
  const double x = 1 + 0x1p-20;
  const Head one = make_head(fp32, 1, 1, 1, {x}, {1}, Scale::base2(1));
  const Head two = make_head(fp32, 1, 1, 1, {x}, {1}, Scale::base2(2));
  double q = 0;
  make_operands(one, kernel).query_row(0, &q);
  EXPECT_EQ(q, x);
  make_operands(two, kernel).query_row(0, &q);
  EXPECT_EQ(q, 2);
}

// (256, 258), (258, 256): the mean is (257, 257), a tie of bf16 that goes to (256, 256), in any
// order, since integers this small are added exactly.
TEST(Mean, ATieIsCertain) {
  const Head head =
      make_head(bf16, 1, 2, 2, {1, 1}, {256, 258, 258, 256}, Scale::reciprocal_sqrt(2));
  KernelModel kernel = plain_kernel(bf16);
  kernel.centring.keys = Centring::mean;
  const Operands operands = make_operands(head, kernel);
  EXPECT_TRUE(operands.keys_certain());
  double lo[2], hi[2];
  for (int c = 0; c < 2; ++c) {
    EXPECT_EQ(operands.stored_mean()[c].lo(), 256);
    EXPECT_EQ(operands.stored_mean()[c].hi(), 256);
  }
  operands.key_row(1, lo, hi);
  EXPECT_EQ(lo[0], 2);
  EXPECT_EQ(hi[0], 2);
  EXPECT_EQ(lo[1], 0);

  kernel.centring.keys = Centring::virtual_;
  const Operands virtually = make_operands(head, kernel);
  EXPECT_EQ(virtually.stored_mean()[0].lo(), 256);
  virtually.key_row(1, lo, hi);
  EXPECT_EQ(lo[0], 258);
  EXPECT_EQ(hi[0], 258);
  kernel.centring.keys = Centring::none;
  EXPECT_TRUE(make_operands(head, kernel).stored_mean().empty());
}

float pairwise(const std::vector<float>& x, std::size_t begin, std::size_t end) {
  if (end - begin == 1) return x[begin];
  const std::size_t middle = (begin + end) / 2;
  return pairwise(x, begin, middle) + pairwise(x, middle, end);
}

TEST(Mean, EverySummationOrderIsInside) {
  const NearestRounding scope;
  Random random;
  int uncertain = 0, distinct = 0;
  for (const Format& operand : {bf16, fp16, fp32}) {
    for (const Format& mean_format : {bf16, fp32}) {
      for (const std::int64_t n : {2, 7, 300, 1500}) {
        const std::int64_t d = 4;
        Values k(static_cast<std::size_t>(n * d));
        for (std::size_t i = 0; i < k.size(); ++i) {
          // channels: near 1; wide exponents; cancelling; subnormal in FP32
          const double x = random.unit();
          const double each[] = {1 + x, std::ldexp(x, static_cast<int>(random.engine() % 16)),
                                 i % 8 < 4 ? 1 + x / 1024 : -1 + x / 1024,
                                 std::ldexp(x, operand.emin - 4)};
          k[i] = rounded(operand, each[i % 4]);
        }
        const Head head = make_head(operand, 1, n, d, Values(4, 1.0), k, Scale::base2(1));
        KernelModel kernel = plain_kernel(operand);
        kernel.centring = {Centring::mean, mean_format, operand};
        const Operands operands = make_operands(head, kernel);
        ASSERT_TRUE(operands.finite());
        uncertain += !operands.keys_certain();
        std::vector<Values> lo(static_cast<std::size_t>(n), Values(4)), hi = lo;
        for (std::int64_t j = 0; j < n; ++j) operands.key_row(j, lo[j].data(), hi[j].data());
        for (std::int64_t c = 0; c < d; ++c) {
          std::vector<float> x(static_cast<std::size_t>(n));
          for (std::int64_t j = 0; j < n; ++j) x[j] = static_cast<float>(k[j * d + c]);
          Values sums;
          for (int order = 0; order < 12; ++order) {
            if (order == 1) std::reverse(x.begin(), x.end());
            if (order == 2) std::sort(x.begin(), x.end());
            if (order > 2) std::shuffle(x.begin(), x.end(), random.engine);
            for (const bool flush : {false, true}) {
              const MxcsrScope mode(mxcsr_nearest | (flush ? 0x8040U : 0U));
              sums.push_back(std::accumulate(x.begin(), x.end(), 0.0F));
              sums.push_back(pairwise(x, 0, x.size()));
            }
          }
          double first = NAN;
          for (const double sum : sums) {
            const auto s = static_cast<float>(sum);
            const float count = static_cast<float>(n);
            for (const float quotient : {s / count, s * (1.0F / count)}) {
              const double mean = rounded(mean_format, static_cast<double>(quotient));
              distinct += first == first && mean != first;
              first = mean;
              const Interval& claimed = operands.stored_mean()[c];
              ASSERT_TRUE(claimed.contains(mean))
                  << operand.name << ' ' << mean_format.name << " n " << n << " channel " << c
                  << ": " << mean << " not in [" << claimed.lo() << ", " << claimed.hi() << "]";
              for (std::int64_t j = 0; j < n; j += 1 + n / 16) {
                const double centred = rounded(operand, Big(k[j * d + c]) - Big(mean));
                ASSERT_LE(lo[j][c], centred);
                ASSERT_GE(hi[j][c], centred);
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(uncertain, 0);  // the orders do matter,
  EXPECT_GT(distinct, 0);   // so the claim is not empty
}

// 2^24 + 1 + 1: sequential FP32 stays at 2^24, another order gives 2^24 + 2. Both are claimed.
TEST(Mean, AKnownOrderEffectIsEnclosed) {
  const Head head = make_head(fp32, 1, 4, 1, {1}, {0x1p24, 1, 1, 0}, Scale::base2(1));
  KernelModel kernel = plain_kernel(fp32);
  kernel.centring = {Centring::mean, fp32, fp32};
  const Operands operands = make_operands(head, kernel);
  EXPECT_FALSE(operands.keys_certain());
  EXPECT_TRUE(operands.stored_mean()[0].contains(0x1p22));
  EXPECT_TRUE(operands.stored_mean()[0].contains(0x1p22 + 0.5));
  EXPECT_LT(operands.stored_mean()[0].width(), 8);
}

TEST(Mean, PaddingIsLeftOut) {
  Head head = make_head(bf16, 1, 4, 1, {1}, {2, 4, 100, inf}, Scale::base2(1));
  head.visibility.length = 2;
  KernelModel kernel = plain_kernel(bf16);
  kernel.centring.keys = Centring::mean;
  const Operands operands = make_operands(head, kernel);
  EXPECT_TRUE(operands.finite());
  EXPECT_EQ(operands.stored_mean()[0].lo(), 3);
  EXPECT_EQ(operands.stored_mean()[0].hi(), 3);
  kernel.tiles.padding = Padding::zero_keys;
  EXPECT_EQ(make_operands(head, kernel).non_finite_where(), "k[3,0] = inf");
  head.visibility.length = 0;
  kernel.tiles.padding = Padding::sliced;
  EXPECT_EQ(make_operands(head, kernel).stored_mean()[0].hi(), 0);
}

// The mean is that of the folded keys: 1.5 times (1 + 2^-7) rounds in bf16.
TEST(Mean, IsTakenAfterFolding) {
  const double k = 1 + 0x1p-7;
  const Head head = make_head(bf16, 1, 2, 1, {1}, {k, k}, Scale::base2(Rational(3, 2)));
  KernelModel kernel = plain_kernel(bf16);
  kernel.scale.scale = FactorSite::key;
  kernel.centring.keys = Centring::mean;
  const Operands operands = make_operands(head, kernel);
  const double folded = rounded(bf16, 1.5 * k);
  ASSERT_NE(folded, 1.5 * k);
  EXPECT_EQ(operands.stored_mean()[0].lo(), folded);
  EXPECT_EQ(operands.stored_mean()[0].hi(), folded);
}

// k - a needs more bits than a double has: one rounding, with a tail far below the midpoint.
TEST(Difference, IsRoundedOnce) {
  // 1 + 2^-8 is a midpoint of bf16; a mean near 2^-58 decides. fp32 operands, bf16 differences.
  // 4 keys: mean exactly 2^-60 is reached by 2^-58 alone; the others are 0.
  const Head head =
      make_head(fp32, 1, 4, 2, {1, 1},
                {0x1p-58, 1 + 0x1p-8, 0, -1 - 0x1p-8, 0, 0x1p-58, 0, 0x1p-58}, Scale::base2(1));
  KernelModel kernel = plain_kernel(fp32);
  kernel.centring = {Centring::mean, fp32, bf16};
  const Operands operands = make_operands(head, kernel);
  ASSERT_TRUE(operands.stored_mean()[0].is_point());
  ASSERT_EQ(operands.stored_mean()[0].lo(), 0x1p-60);
  double lo[2], hi[2];
  for (std::int64_t j = 0; j < 4; ++j) {
    operands.key_row(j, lo, hi);
    const double k = j == 0 ? 0x1p-58 : 0;
    EXPECT_EQ(lo[0], rounded(bf16, Big(k) - Big(0x1p-60)));
    EXPECT_EQ(hi[0], lo[0]);
    const Interval& a = operands.stored_mean()[1];
    const double other[] = {1 + 0x1p-8, -1 - 0x1p-8, 0x1p-58, 0x1p-58};
    EXPECT_EQ(lo[1], rounded(bf16, Big(other[j]) - Big(a.hi())));
    EXPECT_EQ(hi[1], rounded(bf16, Big(other[j]) - Big(a.lo())));
  }
}

TEST(NonFinite, TheFirstPlaceIsNamed) {
  KernelModel kernel = plain_kernel(fp16);
  const auto where = [&](const Head& head) {
    const Operands operands = make_operands(head, kernel);
    EXPECT_FALSE(operands.finite());
    EXPECT_TRUE(operands.non_finite_certain());
    return operands.non_finite_where();
  };
  EXPECT_EQ(where(make_head(fp16, 1, 2, 2, {1, 1}, {1, 1, 1, -inf}, Scale::base2(1))),
            "k[1,1] = -inf");
  EXPECT_EQ(where(make_head(fp16, 1, 1, 2, {1, inf}, {1, inf}, Scale::base2(1))), "q[0,1] = inf");
  kernel.scale.scale = FactorSite::query;
  EXPECT_EQ(where(make_head(fp16, 2, 1, 1, {1, 65504}, {1}, Scale::base2(2))),
            "q[1,0] = 65504 becomes inf when scaled");
  kernel.scale.constant = fp16;
  EXPECT_EQ(where(make_head(fp16, 1, 1, 1, {1}, {1}, Scale::base2(100000))),
            "query constant overflows fp16");
  kernel.scale = {};
  kernel.centring = {Centring::mean, fp16, fp16};
  EXPECT_EQ(where(make_head(fp16, 1, 4, 1, {1}, {65504, -65504, -65504, -65504}, Scale::base2(1))),
            "k[0,0] = 65504 less the mean overflows fp16");
}

TEST(NonFinite, AnOverflowOfTheMeanIsCertainOnlyInEveryOrder) {
  KernelModel kernel = plain_kernel(bf16);
  kernel.centring.keys = Centring::mean;
  const double big = 0x1.8p127;
  const Head always = make_head(bf16, 1, 2, 1, {1}, {big, big}, Scale::base2(1));
  const Head sometimes = make_head(bf16, 1, 4, 1, {1}, {big, -big, big, -big}, Scale::base2(1));
  EXPECT_FALSE(make_operands(always, kernel).finite());
  EXPECT_TRUE(make_operands(always, kernel).non_finite_certain());
  EXPECT_FALSE(make_operands(sometimes, kernel).finite());
  EXPECT_FALSE(make_operands(sometimes, kernel).non_finite_certain());
}

}  // namespace
}  // namespace headroom
