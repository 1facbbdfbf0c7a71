#include "reference/stabilizer/loop/fixed.h"

#include <gtest/gtest.h>
#include <mpfr.h>

#include <cmath>
#include <limits>
#include <random>

#include "reference/stabilizer/norm_rule.h"
#include "tests/unit/stabilizer/loop_arithmetic.h"

namespace headroom {
namespace {

/// A head and its operands as the loop shows them: K~ is centred one key after another.
struct Case {
  Case(std::mt19937_64& random, const KernelModel& k, std::int64_t queries, std::int64_t keys,
       std::int64_t length, std::int64_t d, double mean, double deviation)
      : kernel(k) {
    std::normal_distribution<double> normal(0, deviation);
    const auto fill = [&](std::int64_t rows, double centre) {
      std::vector<double> values(static_cast<std::size_t>(rows * d));
      for (double& x : values) x = round_to(kernel.operand, centre + normal(random));
      return Matrix::from_values(kernel.operand, rows, d, values);
    };
    head.id = "test:0";
    head.q = fill(queries, 0);
    head.k = fill(keys, mean);
    head.v = fill(keys, 0);
    head.scale = Scale::base2(Rational(static_cast<int>(random() % 7) + 1, 4));
    head.visibility = {MaskKind::none, queries, keys, length};
    {
      const UpwardRounding up;
      operands = std::make_unique<Operands>(up, head, kernel);
    }
    arithmetic.kernel = kernel;
    arithmetic.all_keys = keys;
    const auto constant = static_cast<float>(operands->stored_score_factor());
    if (kernel.score.scale_before_store) {
      arithmetic.factor_before = constant;
    } else {
      arithmetic.c = constant;
    }
    std::vector<double> lo(static_cast<std::size_t>(d)), hi(lo);
    for (std::int64_t i = 0; i < queries; ++i) {
      operands->query_row(i, lo.data());
      arithmetic.q.emplace_back(lo.begin(), lo.end());
    }
    KernelModel without = kernel;
    without.centring.keys = Centring::none;
    const UpwardRounding up;
    const Operands raw(up, head, without);
    std::vector<double> centre(static_cast<std::size_t>(d));
    if (kernel.centring.keys == Centring::mean) centre = sequential_key_mean(head, kernel, raw);
    const KernelArithmetic difference(kernel.centring.difference);
    for (std::int64_t j = 0; j < length; ++j) {
      raw.key_row(j, lo.data(), hi.data());
      const NearestRounding nearest;
      for (std::size_t c = 0; c < lo.size() && kernel.centring.keys == Centring::mean; ++c) {
        lo[c] = difference.subtract(lo[c], centre[c]);
      }
      arithmetic.k.emplace_back(lo.begin(), lo.end());
    }
    arithmetic.largest_v = static_cast<float>(largest_value(head));
  }

  KernelModel kernel;
  Head head;
  std::unique_ptr<Operands> operands;
  TestArithmetic arithmetic;
};

/// mu of every row as the loop subtracts it.
std::vector<float> loop_mus(LoopStabilizer& loop, const TestArithmetic& arithmetic) {
  const NearestRounding nearest;
  loop.init(arithmetic);
  const auto n = static_cast<std::size_t>(arithmetic.queries());
  std::vector<std::int64_t> rows(n);
  std::iota(rows.begin(), rows.end(), 0);
  loop.before_loop(rows);
  std::vector<float> scores(n), shift(n), correction(n, 1.0F);
  std::vector<std::uint8_t> again(n);
  TileScores tile;
  tile.scores = scores.data();
  tile.rows = tile.stride = static_cast<std::int64_t>(n);
  tile.keys = 1;
  loop.tile(tile, {shift.data(), correction.data(), again.data()});
  for (const float x : correction) EXPECT_EQ(x, 1);
  return shift;
}

TEST(FixedLoops, EqualNormRulesBitForBit) {
  std::mt19937_64 random(7);
  const auto one_of = [&](auto... choices) {
    const std::common_type_t<decltype(choices)...> list[] = {choices...};
    return list[random() % sizeof...(choices)];
  };
  int accepted = 0, refused = 0;
  for (int trial = 0; trial < 300; ++trial) {
    KernelModel kernel = preset(one_of("tpu7x", "hopper", "ieee-fp32"));
    kernel.operand = one_of(bf16, fp16);
    kernel.centring = {.keys = one_of(Centring::none, Centring::mean, Centring::virtual_),
                       .mean = one_of(bf16, fp32),
                       .difference = kernel.operand};
    kernel.stabilizer = {.norm = one_of(fp32, fp32, bf16, fp16),
                         .store = one_of(fp32, fp32, bf16),
                         .round_up = random() % 2 == 0};
    kernel.gate.query_block = one_of(0, 0, 4);
    kernel.gate.vmax = one_of(0.5, 8.0, 256.0);
    kernel.gate.sides = one_of(GateSides::one_sided, GateSides::two_sided);
    kernel.score.scale_before_store = random() % 2 == 0;
    kernel.exponent.fused = false;
    const auto keys = static_cast<std::int64_t>(1 + random() % 40);
    const std::int64_t length =
        random() % 3 == 0 ? static_cast<std::int64_t>(1 + random() % keys) : keys;
    const double size = std::ldexp(1.0, static_cast<int>(random() % 8) - 4);
    const Case c(random, kernel, static_cast<std::int64_t>(1 + random() % 20), keys, length,
                 static_cast<std::int64_t>(1 + random() % 40), one_of(0.0, 3.0) * size, size);
    StabilizerParameters parameters;
    const double kappa =
        round_to(kernel.stabilizer.norm, std::ldexp(1.37, static_cast<int>(random() % 6)));
    parameters.clis = ClisTable{.cap = one_of(100.0, 87.0),
                                .kappa = kappa,
                                .residual = std::ldexp(1.1, static_cast<int>(random() % 60) - 50),
                                .width = one_of(100.0, 20.0, 3.0)};
    for (const char* name : {"clis", "clis-alg1", "fixed-m", "fixed-m-n"}) {
      const auto rule = make_stabilizer(name, c.head, c.kernel, *c.operands, parameters);
      LoopParameters p = {{"last_online", 0}};
      if (std::string(name) == "clis") {
        p["cap"] = parameters.clis->cap;
        p["kappa"] = kappa;
        p["residual"] = parameters.clis->residual;
        p["width"] = parameters.clis->width;
      }
      const auto loop = make_loop_stabilizer(name, p);
      const std::vector<float> mus = loop_mus(*loop, c.arithmetic);
      EXPECT_EQ(loop->gate(), rule->gate().accepts) << name << " " << trial;
      (loop->gate() ? accepted : refused) += 1;
      for (std::size_t i = 0; i < mus.size(); ++i) {
        ASSERT_EQ(static_cast<double>(mus[i]), rule->mu(static_cast<std::int64_t>(i)))
            << name << " trial " << trial << " row " << i << std::hexfloat << " " << mus[i];
      }
    }
  }
  EXPECT_GT(accepted, 200);
  EXPECT_GT(refused, 200);
}

TEST(FixedLoops, HandedOverMus) {
  TestArithmetic a;
  a.kernel.tiles.keys = 2;
  a.kernel.p.format = fp32;
  a.kernel.exponent.fused = false;
  const auto loop = make_fixed_loop("mine", {10, 20}, false);
  EXPECT_EQ(loop->name(), "mine");
  EXPECT_FALSE(loop->gate());
  const auto rows = run_loop(a, *loop, {{1, 2, 30}, {1, 2, 3}}, {{1}, {1}, {1}});
  EXPECT_EQ(rows[0].shifts, (std::vector<float>{10, 10}));
  EXPECT_EQ(rows[0].l, 0x1p-9F + 0x1p-8F + 0x1p20F);
  EXPECT_EQ(rows[1].corrections, (std::vector<float>{1, 1}));
}

TEST(FixedLoops, LastTileIsOnline) {
  TestArithmetic a;
  a.kernel.tiles.keys = 2;
  a.kernel.p.format = fp32;
  a.kernel.exponent.fused = false;
  a.c = 0.5F;
  const auto loop = make_fixed_loop("mine", {10, 20, 5}, true, true);
  const float none = -std::numeric_limits<float>::infinity();
  const auto rows =
      run_loop(a, *loop, {{4, 2, 60, 2}, {4, 2, 6, 8}, {8, 8, none, none}}, {{1}, {1}, {1}, {1}});
  EXPECT_EQ(rows[0].shifts, (std::vector<float>{10, 30}));
  EXPECT_EQ(rows[0].corrections, (std::vector<float>{1, 0x1p-20F}));
  EXPECT_EQ(rows[1].shifts, (std::vector<float>{20, 20}));
  EXPECT_EQ(rows[1].corrections, (std::vector<float>{1, 1}));
  EXPECT_EQ(rows[2].shifts, (std::vector<float>{5, 5}));
  for (const LoopRow& row : rows) EXPECT_EQ(row.output(), 1);
  const NearestRounding nearest;
  EXPECT_TRUE(make_loop_stabilizer("fixed-m")->initial_denominator() == 0);
}

/// round_sum_of_three by MPFR: the exact sum in 700 bits, encoded once.
double exact_sum(const Format& format, bool up, double a, double b, double c) {
  mpfr_t sum;
  mpfr_init2(sum, 700);
  mpfr_set_d(sum, a, MPFR_RNDN);
  EXPECT_EQ(mpfr_add_d(sum, sum, b, MPFR_RNDN), 0);
  EXPECT_EQ(mpfr_add_d(sum, sum, c, MPFR_RNDN), 0);
  ConversionPolicy policy;
  policy.rounding = up ? Rounding::upward : Rounding::nearest_even;
  const double result = mpfr_zero_p(sum)
                            ? 0.0
                            : decode(format, encode(format, static_cast<mpfr_srcptr>(sum), policy));
  mpfr_clear(sum);
  return result;
}

TEST(RoundSumOfThree, EqualsMpfr) {
  const NearestRounding nearest;
  std::mt19937_64 random(8);
  for (int trial = 0; trial < 30000; ++trial) {
    // few significant bits and close exponents make ties, far ones make sticky parts
    const int spread = 1 + static_cast<int>(random() % 250);
    const int bits = 1 + static_cast<int>(random() % 24);
    const auto number = [&] {
      const auto significand = static_cast<double>((random() >> 40) & ((1UL << bits) - 1));
      const int exponent =
          static_cast<int>(random() % static_cast<std::uint64_t>(spread)) - spread / 2;
      const double x = std::ldexp(significand, std::clamp(exponent, -149, 103));
      return random() % 2 == 0 ? x : -x;
    };
    double a = number(), b = number(), c = number();
    if (trial % 5 == 0) b = -a + number() * 0x1p-20;
    if (trial % 5 == 0) b = static_cast<float>(b);
    for (const Format& format : {fp32, fp16, bf16}) {
      for (const bool up : {false, true}) {
        ASSERT_EQ(round_sum_of_three(format, up, a, b, c), exact_sum(format, up, a, b, c))
            << std::hexfloat << a << " " << b << " " << c << " " << format.name << up;
      }
    }
  }
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(round_sum_of_three(fp32, true, inf, 1, -5), inf);
  EXPECT_TRUE(std::isnan(round_sum_of_three(fp32, true, inf, -inf, 0)));
  EXPECT_EQ(round_sum_of_three(fp32, true, 0x1.fffffep127, 0x1p-149, 0), inf);
  EXPECT_EQ(round_sum_of_three(fp32, false, 0x1.fffffep127, 0x1p-149, 0), 0x1.fffffep127);
}

}  // namespace
}  // namespace headroom
