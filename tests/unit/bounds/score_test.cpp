// Score errors and ranges against simulated dot products and binary128.
#include "bounds/score.h"

#include <gtest/gtest.h>

#include "bounds/norms.h"
#include "bounds/sums.h"
#include "tests/unit/bounds/kernel_rows.h"

namespace headroom {
namespace {

using simulation::below;
using simulation::Quad;
using simulation::Random;

constexpr double infinity = std::numeric_limits<double>::infinity();

double norm_of(const UpwardRounding& up, const std::vector<double>& x) { return norm(up, x).hi(); }

// Keys 2^20, 15/256, -2^20: scores 60 computed as 0 in FP32. A gate without the dot-product error
// promises 2^-11.3 lost and every exponent is -175.
TEST(ScoreError, CoversUncentredCancellation) {
  const UpwardRounding up;
  KernelModel kernel;
  kernel.score.accumulator = {fp32, {OrderKind::sequential}};
  const std::vector<double> q = {1024, 1024, 1024, 0};
  for (const double last : {0.0, 0.125, -0.125}) {
    const std::vector<double> k = {0x1p20, 15.0 / 256, -0x1p20, last};
    Random g(1);
    double computed;
    {
      const NearestRounding scope;
      computed = simulation::accumulate(kernel.score.accumulator, q, k, g);
    }
    EXPECT_EQ(computed, 0);
    EXPECT_EQ(static_cast<double>(simulation::exact_dot(q, k)), 60);
    const double e = score_error(up, kernel, 4, Interval(1.0), 1.0, Upper<Absolute>(norm_of(up, q)),
                                 Upper<Absolute>(norm_of(up, k)))
                         .value();
    EXPECT_GE(e, 60);
    EXPECT_LT(e, 1000);  // gamma_d |q| |k| is about 627
  }
}

struct Case {
  KernelModel kernel;
  Interval factor;
  Quad exact_factor;
  double stored;
};

std::vector<Case> cases() {
  const UpwardRounding up;
  std::vector<Case> all;
  const Quad c = log2q(expq(static_cast<Quad>(1))) / sqrtq(static_cast<Quad>(48));
  const Interval c_enclosed = log2_e() / sqrt(Interval(48.0));
  for (const Format& operand : {bf16, fp16}) {
    for (const Format& format : {fp32, bf16, fp16}) {
      for (const Accumulator& unit : simulation::accumulators(format)) {
        for (int variant = 0; variant < 6; ++variant) {
          Case x;
          x.kernel.operand = operand;
          x.kernel.score.accumulator = unit;
          x.kernel.score.store = variant == 1 ? bf16 : variant == 2 ? fp16 : fp32;
          x.kernel.score.scale_before_store = variant < 3;
          x.kernel.exponent.fused = variant == 4;
          x.kernel.exponent.format = variant == 5 ? bf16 : fp32;
          const NearestRounding scope;
          x.stored =
              simulation::Arithmetic{variant == 2 ? bf16 : fp32}.round(static_cast<double>(c));
          x.factor = c_enclosed;
          x.exact_factor = c;
          all.push_back(x);
          if (variant % 2 == 0) {  // exact constants: 1/8, and none
            x.stored = variant == 2 ? 1.0 : 0.125;
            x.factor = Interval(x.stored);
            x.exact_factor = x.stored;
            all.push_back(x);
          }
        }
      }
    }
  }
  return all;
}

TEST(ScoreError, SimulatedScoresStayWithin) {
  Random g(2);
  double closest = 0;
  for (const Case& x : cases()) {
    for (int trial = 0; trial < 8; ++trial) {
      const std::size_t d = 1 + simulation::below(g, 40);
      std::vector<double> q(d), k(d);
      double computed;
      {
        const NearestRounding scope;
        const bool narrow = x.kernel.operand == fp16 || x.kernel.score.accumulator.format == fp16;
        const int center = trial % 4 == 0 ? (narrow ? -10 : -64) : trial % 4 == 1 ? 3 : 0;
        for (std::size_t i = 0; i < d; ++i) {
          q[i] = simulation::random_value(x.kernel.operand, g, center, 4);
          k[i] = simulation::random_value(x.kernel.operand, g, center, trial % 2 ? 0 : 5);
          if (trial % 3 == 1 && i % 2 == 1) q[i] = q[i - 1], k[i] = -k[i - 1];
        }
        const bool multiplies = !(x.factor.is_point() && x.stored == 1);
        computed = simulation::simulated_score(x.kernel, q, k, x.stored, multiplies, g);
      }
      const Quad exact = x.exact_factor * simulation::exact_dot(q, k);
      const UpwardRounding up;
      const Upper<Absolute> q_norm(norm_of(up, q)), k_norm(norm_of(up, k));
      const auto channels = static_cast<std::int64_t>(d);
      const double bound =
          score_error(up, x.kernel, channels, x.factor, x.stored, q_norm, k_norm).value();
      const double range =
          score_range(up, x.kernel, channels, x.factor, x.stored, q_norm, k_norm).value();
      const Quad error = fabsq(static_cast<Quad>(computed) - exact);
      ASSERT_LE(error, static_cast<Quad>(bound))
          << to_text(x.kernel.score.accumulator.order) << " "
          << x.kernel.score.accumulator.format.name << " store " << x.kernel.score.store.name;
      ASSERT_EQ(range > 0, std::isinf(bound));
      if (!std::isfinite(computed)) {
        ASSERT_GT(range, 0);
      }
      if (std::isfinite(bound) && bound > 0) {
        closest = std::max(closest, static_cast<double>(error / static_cast<Quad>(bound)));
      }
    }
  }
  EXPECT_GT(closest, 0.3);
  RecordProperty("largest_error_over_bound", std::to_string(closest));
}

// A store in FP16: 71234 overflows, and the range says so before any key is looked at.
TEST(ScoreRange, Fp16StoreAndAccumulator) {
  const UpwardRounding up;
  KernelModel kernel;
  kernel.score.accumulator = {fp32, {OrderKind::sequential}};
  kernel.score.store = fp16;
  const auto range = [&](double product) {
    return score_range(up, kernel, 4, Interval(1.0), 1.0, Upper<Absolute>(product),
                       Upper<Absolute>(1))
        .value();
  };
  EXPECT_GT(range(71234), 0);
  EXPECT_LT(range(65000), 0);
  kernel.score.store = fp32;
  EXPECT_LT(range(71234), 0);
  kernel.score.accumulator.format = fp16;
  EXPECT_GT(range(71234), 0);
  // Scaling after an FP16 store comes too late; before it, the store is safe.
  kernel.score = {};
  kernel.score.accumulator = {fp32, {OrderKind::sequential}};
  kernel.score.store = fp16;
  kernel.score.scale_before_store = false;
  const auto scaled = [&] {
    return score_range(up, kernel, 4, Interval(0.125), 0.125, Upper<Absolute>(71234),
                       Upper<Absolute>(1))
        .value();
  };
  EXPECT_GT(scaled(), 0);
  kernel.score.scale_before_store = true;
  EXPECT_LT(scaled(), 0);
  EXPECT_EQ(score_error(up, kernel, 4, Interval(1.0), 1.0, Upper<Absolute>(1e9), Upper<Absolute>(1))
                .value(),
            infinity);
}

// What each part of the bound is there for: constants that are exact cost nothing.
TEST(ScoreError, ExactConstantsCostNothing) {
  const UpwardRounding up;
  KernelModel kernel;
  kernel.score.accumulator = {fp32, {OrderKind::sequential}};
  const auto error = [&](const Interval& factor, double stored) {
    return score_error(up, kernel, 64, factor, stored, Upper<Absolute>(100), Upper<Absolute>(10))
        .value();
  };
  const double plain = accumulation_error(up, kernel.score.accumulator, 64).value() * 1000;
  EXPECT_NEAR(error(Interval(1.0), 1.0), plain, plain * 1e-9);
  EXPECT_NEAR(error(Interval(0.125), 0.125), plain / 8, plain * 1e-9);
  // 0.1 is rounded once as a constant and once as a product.
  const double stored = static_cast<float>(0.1);
  const double off = std::fabs(stored - 0.1);
  EXPECT_NEAR(error(Interval(1.0) / Interval(10.0), stored),
              plain * stored + off * 1000 + 0x1p-24 * stored * 1000, 1e-9);
  // FP16 products in an FP32 accumulator are exact; of two FP32 numbers they are not.
  kernel.score.accumulator.rounded_products = true;
  EXPECT_NEAR(error(Interval(1.0), 1.0), plain, plain * 1e-9);
  kernel.operand = fp32;
  EXPECT_GT(error(Interval(1.0), 1.0), plain * (1 + 0.9 / 64));
}

TEST(CauchySchwarz, HoldsAroundAnyCenter) {
  Random g(5);
  for (int trial = 0; trial < 200; ++trial) {
    const std::size_t d = 1 + simulation::below(g, 20);
    std::vector<double> q(d);
    std::vector<Interval> a;
    std::vector<double> center(d);
    for (std::size_t i = 0; i < d; ++i) {
      const NearestRounding scope;
      q[i] = simulation::random_value(fp16, g, 0, 6);
      center[i] = simulation::random_value(fp16, g, 2, 6);
      a.emplace_back(center[i]);
    }
    const double sign = trial % 2 ? 0.25 : -0.25;
    const UpwardRounding up;
    double radius = 0;
    Quad largest = -1e300;
    for (int j = 0; j < 20; ++j) {
      std::vector<double> k = center;
      for (double& x : k) x += sign * q[0] * static_cast<double>(j);
      radius = std::fmax(radius, distance(up, k, k, a).hi());
      const Quad z = static_cast<Quad>(sign) * simulation::exact_dot(q, k);
      largest = z > largest ? z : largest;
    }
    const Upper<Log2> bound =
        cauchy_schwarz(up, Interval(sign), Upper<Absolute>(norm_of(up, q)), Upper<Absolute>(radius),
                       Interval(sign) * dot(up, q, a));
    ASSERT_LE(largest, static_cast<Quad>(bound.value()));
  }
}

TEST(OperandRounding, HoldsForRoundedAndShiftedOperands) {
  Random g(6);
  for (int trial = 0; trial < 300; ++trial) {
    const std::size_t d = 1 + simulation::below(g, 20);
    std::vector<double> q(d), stored_q(d), k(d), stored_k(d), a(d), dq(d), dk(d), centred(d);
    for (std::size_t i = 0; i < d; ++i) {
      const NearestRounding scope;
      const simulation::Arithmetic operand{bf16};
      q[i] = simulation::random_value(fp32, g, 0, 4);
      k[i] = simulation::random_value(fp32, g, 2, 4);
      a[i] = simulation::random_value(bf16, g, 2, 2);
      centred[i] = k[i] - a[i];  // exact: few bits apart
      stored_q[i] = operand.round(q[i]);
      stored_k[i] = operand.round(centred[i]);
      dq[i] = stored_q[i] - q[i];
      dk[i] = stored_k[i] - centred[i];
    }
    const UpwardRounding up;
    const Upper<Log2> bound =
        operand_rounding_error(up, Interval(-0.5), Upper<Absolute>(norm_of(up, stored_q)),
                               Upper<Absolute>(norm_of(up, dq)), Upper<Absolute>(norm_of(up, dk)),
                               Upper<Absolute>(norm_of(up, centred)));
    const Quad multiplied = simulation::exact_dot(stored_q, stored_k);
    const Quad raw = simulation::exact_dot(q, k) - simulation::exact_dot(q, a);
    ASSERT_LE(fabsq(multiplied - raw) / 2, static_cast<Quad>(bound.value()));
  }
}

// Every range of keys, against the exact maximum of the multiplied operands; ties and a negative
// factor included. With mean centring the keys are enclosures.
TEST(RowMaximumOfKeys, EnclosesTheExactMaximum) {
  Random g(7);
  for (int trial = 0; trial < 40; ++trial) {
    const std::int64_t n = 1 + static_cast<std::int64_t>(below(g, 30)), d = 1 + trial % 9;
    const auto values = [&](std::int64_t rows, int spread) {
      const NearestRounding scope;
      std::vector<double> x;
      for (std::int64_t i = 0; i < rows * d; ++i) {
        x.push_back(trial % 5 == 0 ? 1.0 : simulation::random_value(bf16, g, 0, spread));
      }
      return x;
    };
    Head head;
    head.q = Matrix::from_values(bf16, 2, d, values(2, 4));
    head.k = Matrix::from_values(bf16, n, d, values(n, 8));
    head.v = head.k;
    head.scale = Scale::base2(trial % 2 ? Rational(1, 8) : Rational(-3, 8));
    head.visibility = {MaskKind::none, 2, n, n};
    KernelModel kernel;
    kernel.centring.keys = trial % 3 == 0 ? Centring::mean : Centring::none;
    const UpwardRounding up;
    const Operands operands(up, head, kernel);
    ASSERT_TRUE(operands.finite());
    const auto channels = static_cast<std::size_t>(d);
    std::vector<double> q(channels), lo(channels), hi(channels);
    const Quad factor = trial % 2 ? 0.125 : -0.375;
    for (std::int64_t row = 0; row < 2; ++row) {
      const auto begin = static_cast<std::int64_t>(below(g, static_cast<std::size_t>(n)));
      const RowMaximum found = row_maximum(up, operands, row, begin, n);
      operands.query_row(row, q.data());
      Quad least = -1e300, most = -1e300, of_key = 0;
      {
        const NearestRounding scope;
        for (std::int64_t j = begin; j < n; ++j) {
          operands.key_row(j, lo.data(), hi.data());
          Quad low = 0, high = 0;
          for (std::size_t i = 0; i < channels; ++i) {
            const Quad a = factor * q[i] * lo[i], b = factor * q[i] * hi[i];
            low += a < b ? a : b;
            high += a < b ? b : a;
          }
          least = low > least ? low : least;
          most = high > most ? high : most;
          if (j == found.key) of_key = high;
        }
      }
      ASSERT_GE(found.key, begin);
      ASSERT_LT(found.key, n);
      ASSERT_LE(static_cast<Quad>(found.value.lo()), least);
      ASSERT_GE(static_cast<Quad>(found.value.hi()), most);
      ASSERT_NEAR(found.value.hi(), static_cast<double>(most),
                  1e-12 * (1 + found.value.magnitude()));
      ASSERT_NEAR(static_cast<double>(of_key), static_cast<double>(most), 1e-12);
      // The overload that takes operands is the one with their factor.
      ASSERT_EQ(score_error(up, kernel, operands, Upper<Absolute>(3), Upper<Absolute>(5)).value(),
                score_error(up, kernel, d, operands.score_factor(), operands.stored_score_factor(),
                            Upper<Absolute>(3), Upper<Absolute>(5))
                    .value());
    }
  }
}

}  // namespace
}  // namespace headroom
