#include "reference/stabilizer/stabilizer.h"

#include <gtest/gtest.h>
#include <mpfr.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "reference/input_error.h"
#include "reference/model/kernel_file.h"
#include "reference/real/fp_environment.h"
#include "reference/stabilizer/kernel_arithmetic.h"
#include "reference/stabilizer/norm_rule.h"

namespace headroom {
namespace {

using Entry = std::function<double(std::int64_t row, std::int64_t column)>;

Matrix matrix(const Format& format, std::int64_t rows, std::int64_t columns, const Entry& entry) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t c = 0; c < columns; ++c) values.push_back(entry(i, c));
  }
  return Matrix::from_values(format, rows, columns, values);
}

/// A head of base-2 scores: log2(e) and the scale are in the operands already.
Head base2_head(const Format& format, std::int64_t queries, std::int64_t keys, std::int64_t d,
                const Entry& q, const Entry& k, const Entry& v) {
  Head head;
  head.id = "test:0";
  head.q = matrix(format, queries, d, q);
  head.k = matrix(format, keys, d, k);
  head.v = matrix(format, keys, 1, v);
  head.scale = Scale::base2(1);
  head.visibility = {MaskKind::none, queries, keys, keys};
  return head;
}

double constant(std::int64_t, std::int64_t) { return 1; }

/// The released kernel with log2(e) and the scale folded before (c = 1).
KernelModel released() {
  KernelModel kernel = preset("tpu7x");
  kernel.stabilizer.round_up = false;
  return kernel;
}

/// A head with its operands and one stabilizer.
struct Case {
  Case(Head h, KernelModel k, const std::string& name, StabilizerParameters parameters = {})
      : head(std::move(h)),
        kernel(std::move(k)),
        operands(UpwardRounding(), head, kernel),
        stabilizer(make_stabilizer(name, head, kernel, operands, parameters)) {}
  GateOutcome gate() const { return stabilizer->gate(); }
  Head head;
  KernelModel kernel;
  Operands operands;
  std::unique_ptr<Stabilizer> stabilizer;
};

// DESIGN.md, "Heads that pass a public gate and are wrong": the gate's values.

TEST(FixedM, CaseAKeyMeanRoundedToBf16) {
  // The pattern has period 20 in j and every sum of keys is exact, so 20 keys stand for 75,600.
  const Case c(
      base2_head(
          bf16, 2, 20, 128, [](auto, auto) { return -260.0; },
          [](std::int64_t j, std::int64_t i) { return (i + j) % 20 < 9 ? 1 + 0x1p-7 : 1.0; },
          [](std::int64_t j, auto) { return static_cast<double>(j % 20) / 32; }),
      released(), "fixed-m");
  // Largest key: 62 channels of 2^-7, so 260 sqrt(128) sqrt(62) 2^-7.
  EXPECT_NEAR(c.gate().value, 180.95, 0.005);
  EXPECT_NEAR(c.gate().value, 260 * std::sqrt(128.0 * 62) / 128, 1e-4);
  EXPECT_EQ(c.gate().limit, 213);
  EXPECT_TRUE(c.gate().accepts);
  EXPECT_EQ(c.stabilizer->mu(0), 181 - 88);
}

Head case_b() {
  // 40 % of keys at 51/32, 60 % at -17/16, the signs of the last channel balanced in each group
  return base2_head(
      bf16, 1, 20, 3, [](auto, std::int64_t c) { return c == 0   ? 1.0
                                                        : c == 1 ? 113.0
                                                                 : 0.0; },
      [](std::int64_t j, std::int64_t c) {
        if (c == 0) return j < 8 ? 51.0 / 32 : -17.0 / 16;
        return c == 1 ? 0.0 : j % 2 == 0 ? 1.0 : -1.0;
      },
      [](std::int64_t j, auto) { return j < 8 ? 1.0 : -1.0; });
}

TEST(FixedM, CaseBTwoLevels) {
  const Case c(case_b(), released(), "fixed-m");
  EXPECT_NEAR(c.gate().value, 212.6, 0.05);
  EXPECT_TRUE(c.gate().accepts);
  EXPECT_EQ(c.stabilizer->mu(0), 213 - 88);
}

TEST(FixedM, CaseCEqualKeysAndHugeValues) {
  const Case c(base2_head(
                   bf16, 1, 1000, 2, constant, [](auto, auto) { return 3.0; },
                   [](auto, auto) { return 0x1p24; }),
               released(), "fixed-m");
  EXPECT_EQ(c.gate().value, 0);
  EXPECT_TRUE(c.gate().accepts);  // it does not look at V
  EXPECT_EQ(c.stabilizer->mu(0), -88);
}

TEST(ClisAlgorithm1, CaseDCap) {
  const Case c(base2_head(bf16, 1, 65536, 1, constant, constant, constant), released(),
               "clis-alg1");
  EXPECT_EQ(c.stabilizer->exponent_cap(), 111);
  EXPECT_TRUE(c.gate().accepts);
  EXPECT_EQ(c.gate().limit, 111 + 126);
  EXPECT_NEAR(c.gate().value, 0, 1e-15);
}

TEST(FixedMN, CaseEOneSided) {
  KernelModel kernel = released();
  kernel.gate.sides = GateSides::one_sided;
  const Head head = base2_head(
      bf16, 1, 4096, 3, [](auto, std::int64_t c) { return c == 0   ? 114.0
                                                          : c == 1 ? 201.0
                                                                   : 0.0; },
      [](std::int64_t j, std::int64_t c) {
        if (j < 2418) return c == 0 ? -9 * 0x1p-10 : 0;
        if (j < 2418 + 1674) return c == 0 ? 13 * 0x1p-10 : 0;
        return c == 2 ? (j % 2 == 0 ? 1.0 : -1.0) : 0.0;
      },
      [](std::int64_t j, auto) { return j < 2418 ? -1.0 : 1.0; });
  const Case c(head, kernel, "fixed-m-n");
  EXPECT_EQ(c.stabilizer->exponent_cap(), 107);
  EXPECT_EQ(c.gate().limit, 232);
  EXPECT_NEAR(c.gate().value, 231.08, 0.005);
  EXPECT_TRUE(c.gate().accepts);
  EXPECT_EQ(c.stabilizer->mu(0), 232 - 107);
  kernel.gate.sides = GateSides::two_sided;
  const Case two(head, kernel, "fixed-m-n");
  EXPECT_EQ(two.gate().limit, 116);
  EXPECT_FALSE(two.gate().accepts);
}

Head case_f(double query) {
  return base2_head(
      bf16, 1, 1024, 2, [query](auto, std::int64_t c) { return c == 0 ? query : 0.0; },
      [](std::int64_t j, std::int64_t c) { return c == 0       ? 0.0
                                                  : j % 2 == 0 ? 1.0
                                                               : -1.0; },
      [](auto, auto) { return 0x1.34p-2; });
}

TEST(FixedM, CaseFAtTheGate) {
  const Case at(case_f(213), released(), "fixed-m");
  EXPECT_EQ(at.gate().value, 213);
  EXPECT_TRUE(at.gate().accepts);
  EXPECT_EQ(at.stabilizer->mu(0), 125);  // ceil of an integer is that integer
  const Case beyond(case_f(214), released(), "fixed-m");
  EXPECT_FALSE(beyond.gate().accepts);
  const Case power(case_f(128), released(), "fixed-m");
  EXPECT_EQ(power.stabilizer->mu(0), 128 - 88);
}

// Tables of C.

Head flat_head(std::int64_t keys, double value) {
  return base2_head(bf16, 1, keys, 1, constant, constant, [value](auto, auto) { return value; });
}

TEST(FixedMN, CapAndLimits) {
  KernelModel kernel = released();
  const Case wan(flat_head(75600, 1), kernel, "fixed-m-n");
  EXPECT_EQ(wan.stabilizer->exponent_cap(), 102);
  EXPECT_EQ(wan.gate().limit, 113);  // floor(227 / 2)
  kernel.gate.sides = GateSides::one_sided;
  EXPECT_EQ(Case(flat_head(75600, 1), kernel, "fixed-m-n").gate().limit, 227);
  // vmax <= 1 costs nothing; 2^k costs k, the next number k + 1
  for (const auto& [vmax, cost] :
       {std::pair{0.25, 0}, {1.0, 0}, {2.0, 1}, {2.125, 2}, {256.0, 8}}) {
    kernel.gate.vmax = vmax;
    EXPECT_EQ(Case(flat_head(1, 0.25), kernel, "fixed-m-n").stabilizer->exponent_cap(), 127 - cost);
  }
}

TEST(FixedMN, RefusesLargeValuesAndNarrowWeights) {
  KernelModel kernel = released();
  EXPECT_TRUE(Case(flat_head(16, 256), kernel, "fixed-m-n").gate().accepts);
  EXPECT_FALSE(Case(flat_head(16, 258), kernel, "fixed-m-n").gate().accepts);
  EXPECT_FALSE(Case(flat_head(16, -258), kernel, "fixed-m-n").gate().accepts);
  kernel.p.format = fp16;
  EXPECT_FALSE(Case(flat_head(16, 1), kernel, "fixed-m-n").gate().accepts);
}

TEST(ClisAlgorithm1, Caps) {
  const auto cap = [](const KernelModel& kernel, std::int64_t keys, double value) {
    return Case(flat_head(keys, value), kernel, "clis-alg1").stabilizer->exponent_cap();
  };
  const KernelModel kernel = released();
  EXPECT_EQ(cap(kernel, 75600, 1), 110);
  EXPECT_EQ(cap(kernel, 512, 2), 117);
  EXPECT_EQ(cap(kernel, 75600, 256), 102);
  EXPECT_EQ(cap(kernel, 1, 0.125), 127);
  EXPECT_EQ(cap(kernel, 2, 1), 126);
  EXPECT_EQ(cap(kernel, 3, 1), 125);
  EXPECT_EQ(cap(kernel, 4, 1.0078125), 124);
  KernelModel half = released();
  half.numerator.format = fp16;
  half.numerator.order = {OrderKind::sequential};
  EXPECT_EQ(cap(half, 1024, 1), 15 - 10);
}

TEST(FixedMN, QueryBlocksShareMu) {
  KernelModel kernel = released();
  kernel.gate.query_block = 4;
  const Head head = base2_head(
      bf16, 10, 2, 1, [](std::int64_t i, auto) { return static_cast<double>(1 + i); },
      [](std::int64_t j, auto) { return j == 0 ? 1.0 : -1.0; }, constant);
  const Case c(head, kernel, "fixed-m-n");
  const double cap = 127 - 1 - 8;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(c.stabilizer->mu(i), (i < 4 ? 4 : i < 8 ? 8 : 10) - cap) << i;
  }
  kernel.gate.query_block = 0;
  const Case rows(head, kernel, "fixed-m-n");
  for (int i = 0; i < 10; ++i) EXPECT_EQ(rows.stabilizer->mu(i), 1 + i - cap);
}

TEST(FixedM, UncentredKeysAndScoreFactor) {
  KernelModel kernel = preset("hopper");
  kernel.stabilizer.round_up = false;
  Head head = base2_head(
      bf16, 1, 2, 2, constant, [](auto, std::int64_t c) { return 3 + c; }, constant);
  head.scale = Scale::base2(Rational(1, 4));  // a power of two is exact wherever it enters
  const Case c(head, kernel, "fixed-m");
  const float q = std::sqrt(2.0F);
  EXPECT_EQ(c.gate().value, static_cast<double>(q * 5.0F / 4));
  EXPECT_EQ(c.stabilizer->mu(0), std::ceil(q * 5.0F / 4) - 88);
}

TEST(FixedM, JoinedNormsCount) {
  StabilizerParameters joined;
  joined.joined_key_norm = 2;
  joined.joined_query_norm = 300;
  const Case c(case_f(100), released(), "fixed-m", joined);
  EXPECT_EQ(c.gate().value, 600);
  EXPECT_FALSE(c.gate().accepts);
  EXPECT_EQ(c.stabilizer->mu(0), 200 - 88);  // each row has its own norm
  EXPECT_EQ(c.stabilizer->largest_query_norm(), 300);
  EXPECT_EQ(c.stabilizer->largest_key_norm(), 2);
}

TEST(VirtualCentring, MeanEntersMuAndTheRadiusTheGate) {
  KernelModel kernel = released();
  kernel.centring.keys = Centring::virtual_;
  const Head head = base2_head(
      bf16, 2, 2, 2, [](std::int64_t i, std::int64_t) { return i == 0 ? 2.0 : -2.0; },
      [](std::int64_t j, std::int64_t c) { return (j == 0 ? 3.0 : -3.0) + (c == 0 ? 10 : 20); },
      constant);
  // mean (10, 20), radius sqrt(18), |q| = sqrt(8): bound 12 but for rounding; q.mean = +-60
  const float bound = std::sqrt(8.0F) * std::sqrt(18.0F);
  const Case c(head, kernel, "fixed-m");
  EXPECT_EQ(c.gate().value, static_cast<double>(bound));
  EXPECT_EQ(c.stabilizer->mu(0), std::ceil(bound) - 88 + 60);
  EXPECT_EQ(c.stabilizer->mu(1), std::ceil(bound) - 88 - 60);
}

TEST(Gates, NanAndInfinityNeverPass) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  StabilizerParameters parameters;
  parameters.clis = ClisTable{.cap = 100, .kappa = 1, .residual = 0, .width = 1e30};
  for (const double bad : {nan, inf, -inf}) {
    for (const Centring keys : {Centring::none, Centring::mean, Centring::virtual_}) {
      KernelModel kernel = released();
      kernel.centring.keys = keys;
      const auto poisoned = [bad](std::int64_t row, std::int64_t column) {
        return row == 1 && column == 1 ? bad : 0.5;
      };
      const auto clean = [](auto, auto) { return 0.5; };
      const Head in_q = base2_head(bf16, 3, 4, 2, poisoned, clean, clean);
      const Head in_k = base2_head(bf16, 3, 4, 2, clean, poisoned, clean);
      const Head in_v = base2_head(bf16, 3, 4, 2, clean, clean,
                                   [bad](std::int64_t j, auto) { return j == 1 ? bad : 0.5; });
      for (const char* name : {"clis", "clis-alg1", "fixed-m", "fixed-m-n"}) {
        EXPECT_TRUE(Case(base2_head(bf16, 3, 4, 2, clean, clean, clean), kernel, name, parameters)
                        .gate()
                        .accepts);
        EXPECT_FALSE(Case(in_q, kernel, name, parameters).gate().accepts) << name << bad;
        EXPECT_FALSE(Case(in_k, kernel, name, parameters).gate().accepts) << name << bad;
      }
      EXPECT_FALSE(Case(in_v, kernel, "clis-alg1").gate().accepts) << bad;
      EXPECT_FALSE(Case(in_v, kernel, "fixed-m-n").gate().accepts) << bad;
    }
  }
  // norms that overflow
  const auto huge = [](auto, auto) { return 0x1p100; };
  KernelModel kernel = released();
  kernel.centring.keys = Centring::none;
  EXPECT_FALSE(
      Case(base2_head(bf16, 1, 2, 2, huge, constant, constant), kernel, "fixed-m").gate().accepts);
  parameters.clis->kappa = inf;
  EXPECT_FALSE(
      Case(base2_head(bf16, 1, 2, 2, constant, constant, constant), kernel, "clis", parameters)
          .gate()
          .accepts);
}

// Norms against MPFR.

/// Exact sum of squares, then the square root at 200 bits.
double exact_norm(const std::vector<double>& x, mpfr_rnd_t rounding) {
  mpfr_t sum, square;
  mpfr_inits2(2000, sum, square, static_cast<mpfr_ptr>(nullptr));
  mpfr_set_zero(sum, 1);
  for (const double e : x) {
    mpfr_set_d(square, e, MPFR_RNDN);
    mpfr_sqr(square, square, MPFR_RNDN);
    mpfr_add(sum, sum, square, MPFR_RNDN);
  }
  mpfr_sqrt(sum, sum, rounding);
  const double result = mpfr_get_d(sum, rounding);
  mpfr_clears(sum, square, static_cast<mpfr_ptr>(nullptr));
  return result;
}

/// The same sequence of operations by MPFR at p bits (no underflow in the tests' range).
double sequential_norm(const std::vector<double>& x, int precision) {
  mpfr_t sum, square;
  mpfr_inits2(precision, sum, square, static_cast<mpfr_ptr>(nullptr));
  mpfr_set_zero(sum, 1);
  for (const double e : x) {
    mpfr_set_d(square, e, MPFR_RNDN);
    mpfr_sqr(square, square, MPFR_RNDN);
    mpfr_add(sum, sum, square, MPFR_RNDN);
  }
  mpfr_sqrt(sum, sum, MPFR_RNDN);
  const double result = mpfr_get_d(sum, MPFR_RNDN);
  mpfr_clears(sum, square, static_cast<mpfr_ptr>(nullptr));
  return result;
}

TEST(Norms, EqualMpfrAtThePrecisionOfTheFormat) {
  std::mt19937_64 random(4);
  std::normal_distribution<double> normal;
  for (const Format& format : {fp32, fp16, bf16}) {
    for (const int n : {1, 2, 7, 64, 128}) {
      for (int trial = 0; trial < 40; ++trial) {
        std::vector<double> x(static_cast<std::size_t>(n));
        for (double& e : x) e = round_to(format, normal(random));
        const double norm = KernelArithmetic(format).norm(x);
        ASSERT_EQ(norm, sequential_norm(x, format.precision)) << format.name << " " << n;
        const double u = std::ldexp(1.0, -format.precision);
        EXPECT_LE(norm, exact_norm(x, MPFR_RNDU) * std::pow(1 + u, n / 2.0 + 2));
        EXPECT_GE(norm, exact_norm(x, MPFR_RNDD) * std::pow(1 - u, n / 2.0 + 2) - n * 0x1p-14);
      }
    }
  }
}

TEST(KernelArithmetic, DifferencesOfWiderNumbersAreRoundedOnce) {
  std::mt19937_64 random(5);
  mpfr_t exact;
  mpfr_init2(exact, 400);
  for (int trial = 0; trial < 20000; ++trial) {
    const Format& format = trial % 2 == 0 ? bf16 : fp16;
    // midpoints of the format, or any FP32 number, less one far below it
    double a = std::ldexp(static_cast<double>(random() >> 40), -24);
    if (trial % 3 != 0) {
      a = std::ldexp(static_cast<double>((1UL << format.precision) + 1 +
                                         2 * (random() % (1UL << (format.precision - 1)))),
                     -format.precision);
    }
    const double b = std::ldexp(static_cast<double>(static_cast<std::int64_t>(random()) >> 40),
                                -static_cast<int>(random() % 100));
    mpfr_set_d(exact, a, MPFR_RNDN);
    ASSERT_EQ(mpfr_sub_d(exact, exact, b, MPFR_RNDN), 0);
    const double expected =
        decode(format, encode(format, static_cast<mpfr_srcptr>(exact), ConversionPolicy{}));
    ASSERT_EQ(KernelArithmetic(format).subtract(a, b), expected) << a << " - " << b;
  }
  mpfr_clear(exact);
}

Head random_head(std::mt19937_64& random, const Format& format, std::int64_t queries,
                 std::int64_t keys, std::int64_t d, double mean, double deviation) {
  std::normal_distribution<double> normal(0, deviation);
  const auto entry = [&](auto, auto) { return round_to(format, normal(random)); };
  return base2_head(
      format, queries, keys, d, entry,
      [&](auto, auto) { return round_to(format, mean + normal(random)); }, entry);
}

TEST(ClisAlgorithm1, BoundIsNeverBelowTheExactOne) {
  std::mt19937_64 random(6);
  for (int trial = 0; trial < 60; ++trial) {
    const std::int64_t d = 1 + static_cast<std::int64_t>(random() % 64);
    const double size = std::ldexp(1.0, static_cast<int>(random() % 160) - 140);
    KernelModel kernel = released();
    kernel.centring.keys = Centring::none;
    const Case c(random_head(random, bf16, 3, 5, d, 0, size), kernel, "clis-alg1");
    std::vector<double> row(static_cast<std::size_t>(d));
    double q = 0, k = 0;
    for (std::int64_t i = 0; i < 3; ++i) {
      c.head.q.load_row(i, row.data());
      q = std::fmax(q, exact_norm(row, MPFR_RNDD));
    }
    for (std::int64_t j = 0; j < 5; ++j) {
      c.head.k.load_row(j, row.data());
      k = std::fmax(k, exact_norm(row, MPFR_RNDD));
    }
    const double exact = q * k * (1 - 0x1p-50);  // the product of lower bounds, rounded
    EXPECT_GE(c.gate().value, exact) << d << " " << size;
    if (size > 0x1p-20) {
      EXPECT_LE(c.gate().value, exact * (1 + 2 * static_cast<double>(d + 12) * 0x1p-24));
    }
  }
}

TEST(StoredMu, IsRoundedIntoTheStoreFormat) {
  std::mt19937_64 random(7);
  for (const bool round_up : {false, true}) {
    for (const Format& store : {bf16, fp16, fp32}) {
      KernelModel kernel = released();
      kernel.stabilizer.round_up = round_up;
      kernel.stabilizer.store = store;
      StabilizerParameters parameters;
      parameters.clis = ClisTable{.cap = 100, .kappa = 0x1.8p0, .residual = 0, .width = 230};
      for (int trial = 0; trial < 50; ++trial) {
        const Case c(random_head(random, bf16, 1, 3, 8, 0, 30), kernel, "clis", parameters);
        std::vector<double> q(8);
        c.head.q.load_row(0, q.data());
        // norm in float, product rounded to float, the rest exact in double
        float sum = 0;
        for (const double e : q) sum += static_cast<float>(e) * static_cast<float>(e);
        const double exact = static_cast<double>(std::sqrt(sum) * 1.5F) - 100;
        const double mu = c.stabilizer->mu(0);
        EXPECT_EQ(mu, round_to(store, mu));
        const double ulp =
            std::ldexp(1.0, std::max(std::ilogb(exact), store.emin) + 1 - store.precision);
        if (round_up) {
          EXPECT_GE(mu, exact);
          EXPECT_LT(mu - exact, ulp);
        } else {
          EXPECT_LE(std::fabs(mu - exact), ulp / 2);
        }
      }
    }
  }
}

TEST(Clis, GateRoundsUp) {
  StabilizerParameters parameters;
  parameters.clis = ClisTable{.cap = 100, .kappa = 1 + 0x1p-23, .residual = 0x1p-30, .width = 3};
  KernelModel kernel = released();
  kernel.centring.keys = Centring::none;
  const auto three = [](auto, auto) { return 3.0; };
  const Case c(base2_head(bf16, 1, 2, 1, three, constant, constant), kernel, "clis", parameters);
  // 3 (1 + 2^-23) = 3 + 1.5 ulp, rounded up to 3 + 2 ulp, and up again for the residual
  EXPECT_EQ(c.gate().value, 3 + 3 * 0x1p-22);
  EXPECT_FALSE(c.gate().accepts);
  EXPECT_EQ(c.gate().limit, 3);
  EXPECT_THROW(Case(c.head, kernel, "clis"), std::invalid_argument);
}

TEST(KeyMean, SequentialSumLiesInTheEnclosure) {
  std::mt19937_64 random(8);
  int uncertain = 0;
  for (int trial = 0; trial < 40; ++trial) {
    for (const Format& mean : {bf16, fp32}) {
      KernelModel kernel = released();
      kernel.centring.mean = mean;
      const Case c(random_head(random, bf16, 1, 500, 4, 3, 2), kernel, "fixed-m");
      uncertain += !c.operands.keys_certain();
      KernelModel without = kernel;
      without.centring.keys = Centring::none;
      const Operands uncentred(UpwardRounding(), c.head, without);
      const std::vector<double> sequential = sequential_key_mean(c.head, kernel, uncentred);
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_TRUE(c.operands.stored_mean()[i].contains(sequential[i]));
      }
      // the centred keys that the norm is of lie in the enclosures of Operands
      double largest_lo = 0, largest_hi = 0;
      for (std::int64_t j = 0; j < 500; ++j) {
        std::vector<double> lo(4), hi(4), near(4), far(4);
        {
          const UpwardRounding up;
          c.operands.key_row(j, lo.data(), hi.data());
        }
        for (std::size_t i = 0; i < 4; ++i) {
          far[i] = std::fmax(std::fabs(lo[i]), std::fabs(hi[i]));
          near[i] = lo[i] <= 0 && hi[i] >= 0 ? 0 : std::fmin(std::fabs(lo[i]), std::fabs(hi[i]));
        }
        largest_lo = std::fmax(largest_lo, KernelArithmetic(fp32).norm(near));
        largest_hi = std::fmax(largest_hi, KernelArithmetic(fp32).norm(far));
      }
      EXPECT_GE(c.stabilizer->largest_key_norm(), largest_lo);
      EXPECT_LE(c.stabilizer->largest_key_norm(), largest_hi);
    }
  }
  EXPECT_GT(uncertain, 0);
}

TEST(Stabilizers, DoNotDependOnTheRoundingModeAround) {
  std::mt19937_64 random(9);
  StabilizerParameters parameters;
  parameters.clis = ClisTable{.cap = 100, .kappa = 0x1.234p0, .residual = 0, .width = 230};
  for (const Centring keys : {Centring::none, Centring::mean, Centring::virtual_}) {
    KernelModel kernel = released();
    kernel.centring.keys = keys;
    const Head head = random_head(random, bf16, 4, 50, 16, 1, 1);
    for (const std::string& name : stabilizer_names()) {
      const Case nearest(head, kernel, name, parameters);
      const UpwardRounding up;
      const Case upward(head, kernel, name, parameters);
      EXPECT_EQ(nearest.gate().value, upward.gate().value) << name;
      EXPECT_EQ(nearest.stabilizer->exponent_cap(), upward.stabilizer->exponent_cap()) << name;
      for (int i = 0; i < 4; ++i) EXPECT_EQ(nearest.stabilizer->mu(i), upward.stabilizer->mu(i));
    }
  }
}

TEST(Online, MuIsTheRowMaximum) {
  KernelModel kernel = released();
  kernel.centring.keys = Centring::none;
  Head head = base2_head(
      bf16, 3, 3, 1, [](std::int64_t i, auto) { return i == 0 ? -1.0 : 2.0; },
      [](std::int64_t j, auto) { return static_cast<double>(j + 1); }, constant);
  head.visibility.kind = MaskKind::causal;
  const Case c(head, kernel, "online");
  EXPECT_TRUE(c.gate().accepts);
  EXPECT_EQ(c.stabilizer->mu(0), -1);
  EXPECT_EQ(c.stabilizer->mu(1), 4);
  EXPECT_EQ(c.stabilizer->mu(2), 6);
}

TEST(Padding, KeysPastTheLengthAreLeftOut) {
  Head head = case_f(100);
  head.k = matrix(bf16, 1024, 2, [](std::int64_t j, std::int64_t c) {
    return j >= 1000 ? 500.0 : c == 0 ? 0.0 : j % 2 == 0 ? 1.0 : -1.0;
  });
  head.visibility.length = 1000;
  const Case c(head, released(), "fixed-m");
  EXPECT_EQ(c.gate().value, 100);
}

TEST(Stabilizers, UnknownNamesAreListed) {
  try {
    Case(case_f(1), released(), "vfa");
    FAIL();
  } catch (const InputError& e) {
    EXPECT_STREQ(e.what(),
                 "stabilizer: found \"vfa\", expected one of clis, clis-alg1, fixed-m, fixed-m-n, "
                 "online");
  }
}

}  // namespace
}  // namespace headroom
