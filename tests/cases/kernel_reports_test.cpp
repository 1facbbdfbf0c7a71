// Failures of attention kernels that were reported in public, run: the arithmetic that each report
// describes gives the wrong numbers that it gives, and the corrected arithmetic does not.
//
// Names are those of the shared list of reports. Expected numbers are the reports', or worked out
// by hand from the construction beside them; never the simulation's own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "reference/evaluate/simulate/simulate.h"
#include "reference/format/convert.h"
#include "reference/model/kernel_file.h"
#include "tests/cases/reported_heads.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

using namespace reports;  // NOLINT(google-build-using-namespace): the reports' own words

struct Outcome {
  Simulated all;
  SimulationDump dump;
  std::size_t channels = 0;
  double output(std::size_t row = 0, std::size_t channel = 0) const {
    return static_cast<double>(all.output[row * channels + channel]);
  }
  double lse(std::size_t row = 0) const { return static_cast<double>(all.lse[row]); }
  double l(std::size_t row = 0) const { return static_cast<double>(all.denominator[row]); }
  double score(std::size_t key) const { return static_cast<double>(dump.scores[key]); }
  double exponent(std::size_t key) const { return static_cast<double>(dump.exponents[key]); }
  double weight(std::size_t key) const { return static_cast<double>(dump.weights[key]); }
  double p(std::size_t key) const { return static_cast<double>(dump.stored_weights[key]); }
  /// An event of row 0.
  bool has(EventKind kind, SimulationStage stage) const {
    return std::any_of(all.events.begin(), all.events.end(), [&](const SimulationEvent& e) {
      return e.row == 0 && e.kind == kind && e.stage == stage;
    });
  }
};

Outcome run(const AttentionProblem& p, const KernelModel& k, const std::string& stabilizer,
            const LoopParameters& parameters = {}) {
  validate(k);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(p.queries()));
  std::iota(rows.begin(), rows.end(), 0);
  SimulationOptions options;
  options.events = true;
  Outcome outcome;
  outcome.channels = static_cast<std::size_t>(p.value_channels());
  outcome.all =
      simulate(p, k, *make_loop_stabilizer(stabilizer, parameters), rows, options, &outcome.dump);
  return outcome;
}

// --- attention forward ---------------------------------------------------------------------------

// The maximum's own exponent is fma(s, c, -RN(s c)): the residual of a rounding, not 0.
TEST(KernelReports, B01_FusedExponentOfTheMaximum) {
  struct Case {
    std::int64_t d;
    Scale scale;
    double residual;
  };
  const KernelModel fused = flash(bf16);
  KernelModel plain = fused;
  plain.exponent.fused = false;
  for (const Case& c : {Case{64, Scale::natural(Rational(1, 8)), 7916},
                        Case{128, Scale::reciprocal_sqrt(128), -10384},
                        Case{256, Scale::natural(Rational(1, 16)), 15832},
                        Case{1, Scale::natural(Rational(1, 4)), 247.375}}) {
    const AttentionProblem p =
        problem_of(filled(bf16, 1, c.d, 133120), filled(bf16, 1, c.d, 133120),
                   filled(bf16, 1, c.d, 133120), c.scale);
    const Outcome wrong = run(p, fused, "online-fa2");
    EXPECT_EQ(wrong.exponent(0), c.residual) << c.d;
    if (c.residual > 0) {
      EXPECT_EQ(wrong.weight(0), infinity);
      EXPECT_TRUE(std::isnan(wrong.output()));
      EXPECT_TRUE(wrong.has(EventKind::infinity, SimulationStage::weight));
    } else {
      EXPECT_EQ(wrong.weight(0), 0);
      EXPECT_EQ(wrong.output(), 0);  // l = 0 is read as 1
      KernelModel unguarded = fused;
      unguarded.normalise.guard = DenominatorGuard::none;
      EXPECT_TRUE(std::isnan(run(p, unguarded, "online-fa2").output()));
    }
    const Outcome right = run(p, plain, "online-fa2");
    EXPECT_EQ(right.exponent(0), 0);
    EXPECT_EQ(right.output(), 133120);
    if (c.d == 64) {
      EXPECT_NEAR(right.lse() / 141767475200.0, 1, 0x1p-22);
    }
  }
  // numbers that FP16 holds; P as FP16 overflows from an exponent of 16 on
  KernelModel half = flash(fp16);
  half.score.accumulator.order = {OrderKind::pairwise};  // 64 equal products: exact
  for (const auto& [fill, residual] :
       {std::pair{1708.0, 1.9966}, {6832.0, 31.946}, {19296.0, 156.63}}) {
    const AttentionProblem p = problem_of(filled(fp16, 1, 64, fill), filled(fp16, 1, 64, fill),
                                          filled(fp16, 1, 1, 1), Scale::natural(Rational(1, 8)));
    const Outcome wrong = run(p, half, "online-fa2");
    EXPECT_NEAR(wrong.exponent(0), residual, 0.01 * std::fabs(residual) / 32 + 1e-3);
    EXPECT_EQ(std::isinf(wrong.p(0)), residual >= 16);
    EXPECT_EQ(std::isinf(wrong.weight(0)), residual >= 128);
    EXPECT_EQ(std::isfinite(wrong.output()), residual < 16);
  }
}

// Raw scores in FP16 before the softmax.
TEST(KernelReports, B02_RawScoresInFp16) {
  const auto p = [](double q_factor) {
    return problem_of(
        matrix(fp16, 1, 2, [&](auto, std::int64_t c) { return (c == 0 ? 256 : 2) * q_factor; }),
        matrix(fp16, 4, 2,
               [](std::int64_t j, std::int64_t c) {
                 return c == 0 ? (j == 3 ? 278.0 : 277.0) : (j == 3 ? 33.0 : 0.0);
               }),
        one_hot(fp16, 4), Scale::natural(1));
  };
  KernelModel k = natural();
  k.operand = k.score.store = fp16;
  const Outcome wrong = run(p(1), k, "online-scaled");
  EXPECT_EQ(wrong.score(0), infinity);
  EXPECT_EQ(wrong.score(3), infinity);
  EXPECT_TRUE(wrong.has(EventKind::infinity, SimulationStage::score));
  EXPECT_TRUE(std::isnan(wrong.output()));
  KernelModel wide = k;
  wide.score.store = fp32;
  const Outcome right = run(p(1), wide, "online-scaled");
  EXPECT_EQ(right.score(3), 71234);
  EXPECT_EQ(right.output(0, 3), 1);
  EXPECT_EQ(right.output(0, 0), 0);
  // q less 2^4: in range, but 4452.125 is stored as 4452
  const Outcome scaled = run(p(0x1p-4), k, "online-scaled");
  EXPECT_EQ(scaled.score(3), 4452);
  EXPECT_EQ(scaled.output(0, 3), 1);
  // 65519 is the last integer that is stored as 65504
  for (const double last : {239.0, 240.0}) {
    const AttentionProblem edge =
        problem_of(matrix(fp16, 1, 2, [](auto, std::int64_t c) { return c == 0 ? 256.0 : 1.0; }),
                   matrix(fp16, 1, 2, [&](auto, std::int64_t c) { return c == 0 ? 255.0 : last; }),
                   filled(fp16, 1, 1, 1), Scale::natural(1));
    const Outcome o = run(edge, k, "online-scaled");
    EXPECT_EQ(o.score(0), last == 239 ? 65504 : infinity);
    EXPECT_EQ(std::isnan(o.output()), last == 240);
  }
}

// The same on one key, and a sum of 64 products.
TEST(KernelReports, B04_HalfPrecisionIntermediate) {
  for (const auto& [d, fill] : {std::pair<std::int64_t, double>{1, 256}, {64, 32}}) {
    const AttentionProblem p = problem_of(filled(fp16, 1, d, fill), filled(fp16, 1, d, fill),
                                          filled(fp16, 1, 1, 3), Scale::natural(1));
    KernelModel k = natural();
    k.operand = k.score.store = fp16;
    EXPECT_EQ(run(p, k, "online-scaled").score(0), infinity);
    EXPECT_TRUE(std::isnan(run(p, k, "online-scaled").output()));
    k.score.store = fp32;
    EXPECT_EQ(run(p, k, "online-scaled").output(), 3);
  }
}

// The running maximum starts at -5e4, and is compared with raw scores.
TEST(KernelReports, B06_FiniteSentinel) {
  for (const std::int64_t keys : {1, 64}) {
    const AttentionProblem p = problem_of(filled(bf16, 1, 128, 64), filled(bf16, keys, 128, -64),
                                          filled(bf16, keys, 1, 1), Scale::reciprocal_sqrt(128));
    KernelModel k = flash(bf16);
    k.exponent.fused = false;
    k.lse.base = ExponentBase::two;
    const Outcome wrong = run(p, k, "online-flashinfer", {{"initial_max", -5e4}});
    EXPECT_EQ(wrong.score(0), -524288);
    EXPECT_NEAR(wrong.exponent(0), -60479.99, 0.01);
    EXPECT_EQ(wrong.output(), 0);
    EXPECT_NEAR(wrong.lse(), -5e4 * 1.4426950408889634 / std::sqrt(128.0), 1e-3);
    EXPECT_TRUE(wrong.has(EventKind::flush, SimulationStage::weight));
    EXPECT_FALSE(wrong.has(EventKind::nan, SimulationStage::normalise));
    const Outcome right = run(p, k, "online-flashinfer");
    EXPECT_EQ(right.output(), 1);
    EXPECT_NEAR(right.lse(), -66855.85877 + std::log2(static_cast<double>(keys)), 0.01);
    KernelModel natural_lse = k;
    natural_lse.lse.base = ExponentBase::e;
    EXPECT_NEAR(run(p, natural_lse, "online-flashinfer").lse(),
                -46340.95001 + std::log(static_cast<double>(keys)), 0.01);
  }
}

// A hidden score of -10000 is above a valid one of -20000.
TEST(KernelReports, B07_FiniteMaskOutranksScores) {
  const auto p = [](double hidden_value) {
    AttentionProblem q = problem_of(column(fp32, {-20000}), column(fp32, {1, 0}),
                                    column(fp32, {1, hidden_value}), Scale::natural(1));
    q.mask = {1, 0};
    return q;
  };
  for (const MaskForm form : {MaskForm::select, MaskForm::additive}) {
    KernelModel k = natural();
    k.mask = {.form = form, .value = -10000};
    EXPECT_EQ(run(p(100), k, "online-scaled").output(), 100);
    EXPECT_EQ(run(p(7), k, "online-scaled").output(), 7);
    k.mask.value = -infinity;
    for (const double hidden : {100.0, 7.0, -3e38}) {
      EXPECT_EQ(run(p(hidden), k, "online-scaled").output(), 1);
    }
  }
}

// Learned scores below the mask; two masks added to one key.
TEST(KernelReports, B08_ScoresDefeatTheMask) {
  AttentionProblem p = scores({-10005, -10004, 0}, column(fp32, {0, 0, 1}));
  p.mask = {1, 1, 0};
  KernelModel k = natural();
  k.mask = {.form = MaskForm::additive, .value = -10000};
  const double share = 1 / (1 + std::exp(-4.0) + std::exp(-5.0));
  EXPECT_NEAR(share, 0.976, 5e-4);
  EXPECT_NEAR(run(p, k, "online-scaled").output(), share, 1e-6);
  // the same bias as a bias: what exact attention makes of it too
  AttentionProblem biased = p;
  biased.mask.clear();
  biased.bias = matrix(fp32, 1, 3, [](auto, std::int64_t j) { return j == 2 ? -10000.0 : 0.0; });
  EXPECT_NEAR(run(biased, k, "online-scaled").output(), share, 1e-6);
  k.mask.value = -infinity;
  EXPECT_EQ(run(p, k, "online-scaled").output(), 0);
  // an all-masked row is uniform only if each key is masked equally often
  AttentionProblem twice = scores({0, 0}, column(fp32, {1, 3}));
  twice.bias = matrix(fp32, 1, 2, [](auto, std::int64_t j) { return j == 0 ? -20000.0 : -10000; });
  EXPECT_EQ(run(twice, natural(), "online-scaled").output(), 3);
  twice.bias = filled(fp32, 1, 2, -10000);
  EXPECT_EQ(run(twice, natural(), "online-scaled").output(), 2);
}

// -65504 plus a negative score is minus infinity in FP16.
TEST(KernelReports, B09_LowestFp16PlusAScore) {
  const auto p = [](double k0, double k1) {
    AttentionProblem q = problem_of(column(fp16, {1, 1}), column(fp16, {k0, k1}),
                                    column(fp16, {10, 20}), Scale::natural(1));
    q.mask = {0, 0, 0, 1};  // causal, and key 0 is padding
    return q;
  };
  KernelModel k = natural();
  k.operand = k.score.store = fp16;
  k.mask = {.form = MaskForm::additive, .value = -65504};
  k.tiles.empty_row = EmptyRowRule::mean_of_visited;
  const Outcome moved = run(p(-16, 0), k, "online-scaled");
  EXPECT_EQ(moved.score(0), -infinity);
  EXPECT_EQ(moved.score(1), -65504);
  EXPECT_EQ(moved.output(0), 20);  // all weight on one hidden key
  EXPECT_EQ(run(p(-15.9921875, 0), k, "online-scaled").score(0), -65504);
  EXPECT_EQ(run(p(-15.9921875, 0), k, "online-scaled").output(0), 15);
  const Outcome undefined = run(p(-16, -16), k, "online-scaled");
  EXPECT_TRUE(std::isnan(undefined.output(0)));
  EXPECT_EQ(undefined.output(1), 20);
  // hidden by selection, an empty row by rule
  k.mask = {};
  k.tiles.empty_row = EmptyRowRule::zero;
  const Outcome right = run(p(-16, -16), k, "online-scaled");
  EXPECT_EQ(right.output(0), 0);
  EXPECT_EQ(right.lse(0), -infinity);
  EXPECT_EQ(right.output(1), 20);
}

// A bias of -FLT_MAX times log2(e) is minus infinity.
TEST(KernelReports, B11_LowestFp32InLog2Units) {
  const auto p = [](double bias) {
    AttentionProblem q =
        problem_of(matrix(fp32, 1, 4, [](auto, std::int64_t c) { return c == 0 ? 1.0 : 0.0; }),
                   matrix(fp32, 3, 4,
                          [](std::int64_t j, std::int64_t c) {
                            return c != 0 ? 0.0 : j == 0 ? 0.3 : j == 1 ? -1.2 : 2.0;
                          }),
                   column(fp32, {3, 6, 12}), Scale::natural(1));
    q.bias = filled(fp32, 1, 3, bias);
    return q;
  };
  const double lowest = -fp32.max_finite();
  const double a = std::exp(0.3), b = std::exp(-1.2), c = std::exp(2.0);
  const double softmax = (3 * a + 6 * b + 12 * c) / (a + b + c);
  KernelModel k = base_2();
  const Outcome wrong = run(p(lowest), k, "online-scaled");
  EXPECT_EQ(wrong.score(0), -infinity);
  EXPECT_TRUE(std::isnan(wrong.output()));
  k.normalise.guard = DenominatorGuard::zero_to_one;
  EXPECT_EQ(run(p(lowest), k, "online-scaled").output(), 0);
  // in natural units the bias swallows every score: the plain mean
  EXPECT_EQ(run(p(lowest), natural(), "online-scaled").output(), 7);
  EXPECT_EQ(run(p(lowest / 2), base_2(), "online-scaled").output(), 7);
  // a bias that leaves the scores their bits cancels
  EXPECT_NEAR(run(p(-100), base_2(), "online-scaled").output(), softmax, 1e-3);
  EXPECT_NEAR(run(p(-100), natural(), "online-scaled").output(), softmax, 1e-3);
}

// A row that sees nothing.
TEST(KernelReports, B12_FullyMaskedRow) {
  AttentionProblem p =
      problem_of(filled(fp32, 2, 4, 1), filled(fp32, 2, 4, 0.5),
                 matrix(fp32, 2, 4, [](std::int64_t j, auto) { return j == 0 ? 1.0 : 3.0; }),
                 Scale::reciprocal_sqrt(4));
  p.mask = {0, 0, 1, 1};
  KernelModel k = base_2();
  k.tiles.empty_row = EmptyRowRule::mean_of_visited;  // no rule: the loop as it is
  const Outcome undefined = run(p, k, "online-scaled", {{"guard", 0}});
  EXPECT_TRUE(std::isnan(undefined.output(0)));
  EXPECT_TRUE(undefined.has(EventKind::nan, SimulationStage::correction));
  EXPECT_TRUE(std::isnan(undefined.exponent(0)));
  EXPECT_EQ(undefined.output(1), 2);
  EXPECT_TRUE(std::isnan(run(p, k, "online-scaled").output(0)));  // 0 / 0
  // a finite stand-in: the mean of the keys that are hidden
  k.mask.value = -0x1.6p127;
  EXPECT_EQ(run(p, k, "online-splash").output(0), 2);
  k.mask = {};
  k.normalise.guard = DenominatorGuard::zero_to_zero;
  EXPECT_EQ(run(p, k, "online-fa3").output(0), 0);
  EXPECT_EQ(run(p, k, "online-fa3").lse(0), -infinity);
  k.tiles.empty_row = EmptyRowRule::zero;
  k.normalise.guard = DenominatorGuard::none;
  for (const char* stabilizer : {"online-scaled", "online-fa2", "online-splash", "fa4-row"}) {
    const Outcome right = run(p, k, stabilizer);
    EXPECT_EQ(right.output(0), 0) << stabilizer;
    EXPECT_EQ(right.lse(0), -infinity);
    EXPECT_EQ(right.output(1), 2);
  }
}

// A leading tile that is hidden makes m - m = -inf - -inf.
TEST(KernelReports, B13_LeadingHiddenTile) {
  std::mt19937_64 engine(13);
  std::normal_distribution<double> normal;
  std::vector<double> q(64), k(32 * 64), v(32);
  for (auto* x : {&q, &k, &v}) {
    for (double& e : *x) e = round_to(bf16, normal(engine));
  }
  const auto keys = [&](std::int64_t from) {
    return matrix(bf16, 32 - from, 64, [&, from](std::int64_t j, std::int64_t c) {
      return k[static_cast<std::size_t>((from + j) * 64 + c)];
    });
  };
  const auto values = [&](std::int64_t from) {
    return matrix(bf16, 32 - from, 1, [&, from](std::int64_t j, auto) {
      return v[static_cast<std::size_t>(from + j)];
    });
  };
  const Matrix query = Matrix::from_values(bf16, 1, 64, q);
  AttentionProblem p = problem_of(query, keys(0), values(0), Scale::reciprocal_sqrt(64));
  p.mask.assign(32, 1);
  std::fill_n(p.mask.begin(), 16, 0);
  KernelModel kernel = base_2();
  kernel.operand = bf16;
  for (const int tile : {1, 2, 4, 8, 16}) {
    kernel.tiles.keys = tile;
    EXPECT_TRUE(std::isnan(run(p, kernel, "online-scaled", {{"guard", 0}}).output())) << tile;
    // FlashAttention multiplies by no correction in the first tile: it takes two hidden ones
    EXPECT_EQ(std::isnan(run(p, kernel, "online-fa2", {{"check_inf", 0}}).output()), tile < 16);
    const AttentionProblem rest =
        problem_of(query, keys(16), values(16), Scale::reciprocal_sqrt(64));
    for (const char* stabilizer : {"online-scaled", "online-fa2", "online-fa3", "online-splash",
                                   "online-flashinfer", "fa4-row", "fa4-tile1"}) {
      const Outcome right = run(p, kernel, stabilizer), expected = run(rest, kernel, stabilizer);
      EXPECT_EQ(right.output(), expected.output()) << stabilizer << " tile " << tile;
      EXPECT_EQ(right.lse(), expected.lse()) << stabilizer << " tile " << tile;
    }
  }
}

// --- parts and merges ----------------------------------------------------------------------------

// (0, -inf) merged with (0, -inf).
TEST(KernelReports, B15_MergeOfTwoEmptyParts) {
  AttentionProblem p = scores({0, 0, 0, 0, 0, 0, 1, 2}, column(fp32, {9, 9, 9, 9, 9, 9, 4, 6}));
  p.mask = {0, 0, 0, 0, 0, 0, 1, 1};
  const double w = std::exp(-1.0), expected = (4 * w + 6) / (1 + w);
  // tiles of 2 keys, a part each: empty, empty, empty, visible
  const Outcome wrong = run(p, split(2, 4, MergeRule::lse_naive), "online-scaled");
  EXPECT_TRUE(std::isnan(wrong.output()));
  EXPECT_TRUE(std::isnan(wrong.lse()));
  const Outcome right = run(p, split(2, 4, MergeRule::lse), "online-scaled");
  EXPECT_NEAR(right.output(), expected, 1e-6);
  EXPECT_NEAR(right.lse(), 2 + std::log1p(w), 1e-6);
  // no part with a key
  p.mask.assign(8, 0);
  EXPECT_EQ(run(p, split(2, 4, MergeRule::lse), "online-scaled").output(), 0);
  EXPECT_EQ(run(p, split(2, 4, MergeRule::lse), "online-scaled").lse(), -infinity);
  EXPECT_TRUE(std::isnan(run(p, split(2, 4, MergeRule::lse_naive), "online-scaled").output()));
}

// Rows without keys whose LSE is +infinity.
TEST(KernelReports, B16_EmptyRowsWithPositiveInfinity) {
  AttentionProblem p = problem_of(filled(fp32, 4, 1, 0), filled(fp32, 2, 1, 0),
                                  filled(fp32, 2, 1, 5), Scale::natural(1));
  p.visibility.kind = MaskKind::causal_bottom_right;
  KernelModel k = base_2();
  k.tiles.empty_row = EmptyRowRule::zero_pos_inf;
  const Outcome fa2 = run(p, k, "online-fa2");
  EXPECT_EQ(fa2.lse(0), infinity);
  EXPECT_EQ(fa2.lse(1), infinity);
  EXPECT_EQ(fa2.lse(2), 0);
  k.tiles.empty_row = EmptyRowRule::zero;
  EXPECT_EQ(run(p, k, "online-fa2").lse(0), -infinity);

  // merged with a part that has O = 5, LSE = 0
  const AttentionProblem merged = two_parts(1, 0, 9, 1, 5);
  for (const MergeRule rule : {MergeRule::lse, MergeRule::lse_naive}) {
    KernelModel parts = split(1, 2, rule);
    parts.tiles.empty_row = EmptyRowRule::zero_pos_inf;
    EXPECT_TRUE(std::isnan(run(merged, parts, "online-fa2").output()));
    parts.tiles.empty_row = EmptyRowRule::zero;
    EXPECT_EQ(run(merged, parts, "online-fa2").output(), 5);
    EXPECT_EQ(run(merged, parts, "online-fa2").lse(), 0);
  }
}

// One part speaks of log2, the merge of ln.
TEST(KernelReports, B18_LogBaseOfMerges) {
  const AttentionProblem p = two_parts(8, 2, 0, 8, 10);  // Z = (2, 8), O = (0, 10)
  const auto merged = [](const AttentionProblem& problem, int tile, ExponentBase delivered,
                         ExponentBase read) {
    KernelModel k = split(tile, 2, MergeRule::lse);
    k.lse.base = delivered;
    k.split.reads = read;
    return run(problem, k, "online-scaled").output();
  };
  constexpr ExponentBase e = ExponentBase::e, two = ExponentBase::two;
  EXPECT_NEAR(merged(p, 8, e, e), 8, 1e-5);
  EXPECT_NEAR(merged(p, 8, two, two), 8, 1e-5);
  EXPECT_NEAR(merged(p, 8, e, two), 7.2330317, 1e-5);
  EXPECT_NEAR(merged(p, 8, two, e), 8.8079708, 1e-5);
  const AttentionProblem prefix = two_parts(3072, 3072, 0, 64, 1);
  EXPECT_NEAR(merged(prefix, 3072, e, e), 0.0204082, 1e-6);
  EXPECT_NEAR(merged(prefix, 3072, two, e), 0.00373985, 1e-7);
}

// LSE = a + ln(1 + e^(b - a)) with b - a = 90.
TEST(KernelReports, B19_PositiveExponentInAMerge) {
  const AttentionProblem p = scores({-60, 30}, column(fp32, {1, 2}));
  const Outcome wrong = run(p, split(1, 2, MergeRule::lse_log1p), "online-scaled");
  EXPECT_EQ(wrong.lse(), infinity);
  EXPECT_EQ(wrong.output(), 0);
  for (const MergeRule rule : {MergeRule::lse, MergeRule::lse_naive}) {
    const Outcome right = run(p, split(1, 2, rule), "online-scaled");
    EXPECT_NEAR(right.lse(), 30, 1e-5);
    EXPECT_EQ(right.output(), 2);
  }
  // the other way round, and up to 88.7, it is right
  EXPECT_EQ(run(scores({30, -60}, column(fp32, {2, 1})), split(1, 2, MergeRule::lse_log1p),
                "online-scaled")
                .output(),
            2);
  EXPECT_NEAR(run(scores({-58, 30}, column(fp32, {1, 2})), split(1, 2, MergeRule::lse_log1p),
                  "online-scaled")
                  .lse(),
              30, 1e-4);
}

// --- accumulators --------------------------------------------------------------------------------

// Unnormalised P V in FP16, and an offset of the maximum against it.
TEST(KernelReports, B21_Fp16Numerator) {
  KernelModel k = base_2();
  k.operand = k.p.format = k.numerator.format = fp16;
  k.p.denominator_rounded = true;
  EXPECT_EQ(run(equal_keys(fp16, 1024, 64), k, "online-scaled").output(), infinity);
  const Outcome last = run(equal_keys(fp16, 1023, 64), k, "online-scaled");
  EXPECT_EQ(last.output(), 64);
  EXPECT_EQ(static_cast<double>(last.dump.numerators.back()), 65472);
  // 3 ln 2 on the maximum: no overflow, but 16384 + 8 = 16384
  const Outcome stalled = run(equal_keys(fp16, 8192, 64), k, "llama-offset");
  EXPECT_EQ(stalled.p(0), 0.125);
  EXPECT_EQ(static_cast<double>(stalled.dump.numerators.back()), 16384);
  EXPECT_EQ(stalled.output(), 16);
  EXPECT_TRUE(stalled.has(EventKind::absorption, SimulationStage::numerator));
  k.numerator.format = fp32;
  EXPECT_EQ(run(equal_keys(fp16, 8192, 64), k, "llama-offset").output(), 64);
  EXPECT_EQ(run(equal_keys(fp16, 8192, 64), k, "online-scaled").output(), 64);
}

// A denominator that stops growing.
TEST(KernelReports, B23_NarrowDenominator) {
  KernelModel k = base_2();
  k.denominator.format = fp16;
  const Outcome half = run(equal_keys(fp32, 4096, 1), k, "online-scaled");
  EXPECT_EQ(half.l(), 2048);
  EXPECT_EQ(half.output(), 2);
  EXPECT_TRUE(half.has(EventKind::absorption, SimulationStage::denominator));
  EXPECT_EQ(run(equal_keys(fp32, 2048, 1), k, "online-scaled").output(), 1);
  k.denominator.format = bf16;
  const Outcome brain = run(equal_keys(fp32, 512, 1), k, "online-scaled");
  EXPECT_EQ(brain.l(), 256);
  EXPECT_EQ(brain.output(), 2);
  k.denominator.format = fp32;
  EXPECT_EQ(run(equal_keys(fp32, 4096, 1), k, "online-scaled").output(), 1);
  // narrow tile sums are enough where each is exact
  k.denominator = {.format = fp16, .order = {OrderKind::tile, 64}};
  EXPECT_EQ(run(equal_keys(fp32, 4096, 1), k, "online-scaled").output(), 1);
}

// --- shifts that do not follow the scores --------------------------------------------------------

// phi = 5 without a test of the range.
TEST(KernelReports, B24_FixedPhi) {
  const KernelModel gradual = natural();
  KernelModel flushing = gradual;
  flush_everywhere(flushing);
  const auto one = [](double score) { return scores({score}, column(fp32, {1})); };
  const auto many = [](double score) {
    return scores(std::vector<double>(4096, score), filled(fp32, 4096, 1, 1));
  };
  const auto output = [](const AttentionProblem& p, const KernelModel& k) {
    return run(p, k, "fdpp-untested").output();
  };
  EXPECT_TRUE(std::isnan(output(one(93.73), gradual)));
  EXPECT_EQ(run(one(93.73), gradual, "fdpp-untested").weight(0), infinity);
  EXPECT_EQ(output(one(93.72), gradual), 1);
  EXPECT_TRUE(std::isnan(output(many(85.4052), gradual)));
  EXPECT_NEAR(output(many(85.405), gradual), 1, 1e-3);
  EXPECT_TRUE(std::isnan(output(many(-98.98), gradual)));
  EXPECT_GT(run(many(-98.9), gradual, "fdpp-untested").l(), 0);
  EXPECT_TRUE(std::isnan(output(many(-82.34), flushing)));
  EXPECT_GT(run(many(-82.33), flushing, "fdpp-untested").l(), 0);
  const AttentionProblem aligned =
      problem_of(filled(fp32, 1, 128, 2.8824), filled(fp32, 1, 128, 2.8824), filled(fp32, 1, 1, 1),
                 Scale::reciprocal_sqrt(128));
  EXPECT_TRUE(std::isnan(output(aligned, gradual)));
  // the published rule: a row with a score outside of (a, b) is computed anew
  for (const AttentionProblem& p :
       {one(93.73), many(85.4052), many(-98.98), many(-82.34), aligned}) {
    const Outcome right = run(p, flushing, "fdpp");
    EXPECT_NEAR(right.output(), 1, 1e-3);
    EXPECT_EQ(right.all.recomputed[0], 1);
  }
  EXPECT_EQ(run(one(4), gradual, "fdpp").all.recomputed[0], 0);

  // a maximum that is an estimate: 30, until logits are capped at 20
  AttentionProblem large = scores({119, 60}, column(fp32, {1, 2}));
  EXPECT_TRUE(std::isnan(run(large, gradual, "static-max", {{"estimate", 30}}).output()));
  large.softcap = 20;
  const double a = 20 * std::tanh(119.0 / 20), b = 20 * std::tanh(3.0);
  const double w = std::exp(b - a);
  EXPECT_NEAR(run(large, gradual, "static-max", {{"estimate", 30}}).output(), (1 + 2 * w) / (1 + w),
              1e-5);
  EXPECT_NEAR(run(large, gradual, "softcap-max").output(), (1 + 2 * w) / (1 + w), 1e-5);
}

// No maximum at all.
TEST(KernelReports, B25_NoMaximum) {
  const AttentionProblem p = scores({151.29, 150}, one_hot(fp32, 2));
  const Outcome wrong = run(p, natural(), "static-max");
  EXPECT_EQ(wrong.weight(0), infinity);
  EXPECT_TRUE(std::isnan(wrong.output()));
  const double first = 1 / (1 + std::exp(-1.29));
  EXPECT_NEAR(run(p, natural(), "online-scaled").output(), first, 1e-5);
  // a position bias of 0.5 a token
  AttentionProblem alibi = scores({0, 0}, one_hot(fp32, 2));
  alibi.bias =
      matrix(fp32, 1, 2, [](auto, std::int64_t j) { return 0.5 * (j == 0 ? 4095 : 4094); });
  EXPECT_TRUE(std::isnan(run(alibi, natural(), "static-max").output()));
  EXPECT_NEAR(run(alibi, natural(), "online-scaled").output(), 1 / (1 + std::exp(-0.5)), 1e-5);
  // [1000, 1001] gives [0, 0] where overflow saturates and 1 / inf is 0
  const AttentionProblem thousand = scores({1000, 1001}, one_hot(fp32, 2));
  KernelModel saturating = natural();
  saturating.p.saturate = true;
  saturating.normalise.division = Division::reciprocal;
  const Outcome zeros = run(thousand, saturating, "static-max");
  EXPECT_EQ(zeros.output(0, 0), 0);
  EXPECT_EQ(zeros.output(0, 1), 0);
  EXPECT_NEAR(run(thousand, saturating, "online-scaled").output(0, 1), 1 / (1 + std::exp(-1.0)),
              1e-6);
  // FP16: ln 65520 = 11.0901107
  KernelModel half = natural();
  half.exp2.result = fp16;
  EXPECT_EQ(run(scores({11.0901}, column(fp32, {1})), half, "static-max").weight(0), 65504);
  EXPECT_EQ(run(scores({11.09012}, column(fp32, {1})), half, "static-max").weight(0), infinity);
}

// A wave rescales together, rows whose maximum fell included.
TEST(KernelReports, B26_WaveWideRescale) {
  const AttentionProblem p =
      problem_of(one_hot(fp32, 2),
                 matrix(fp32, 256, 2,
                        [](std::int64_t j, std::int64_t c) {
                          return j < 128 ? (c == 0 ? 100.0 : 0.0) : (c == 0 ? -60.0 : 20.0);
                        }),
                 matrix(fp32, 256, 1, [](std::int64_t j, auto) { return j < 128 ? 1.0 : 2.0; }),
                 Scale::base2(1));
  const KernelModel k = base_2();
  const Outcome wrong = run(p, k, "lazy-wave");
  EXPECT_EQ(static_cast<double>(wrong.dump.corrections[1]), infinity);  // 2^160
  EXPECT_TRUE(std::isnan(wrong.output(0)));
  EXPECT_TRUE(wrong.has(EventKind::infinity, SimulationStage::correction));
  EXPECT_NEAR(wrong.output(1), 2, 1e-5);
  for (const auto& [name, parameters] :
       {std::pair<std::string, LoopParameters>{"lazy-wave", {{"running_max", 1}}},
        {"lazy-wave", {{"wave", 1}}},
        {"fa4-row", {}},
        {"fa4-tile1", {}},
        {"fa4-tile2", {}},
        {"online-fa2", {}}}) {
    const Outcome right = run(p, k, name, parameters);
    EXPECT_EQ(right.output(0), 1) << name;
    EXPECT_NEAR(right.output(1), 2, 1e-5) << name;
    for (const float correction : right.dump.corrections) EXPECT_LE(correction, 1) << name;
  }
}

// P = 2^(8 + 4) does not fit E4M3, and the denominator does not know.
TEST(KernelReports, B27_Fp8WeightsSaturate) {
  const auto p = [](std::int64_t prefix, double v_prefix, double v_last) {
    return problem_of(
        filled(bf16, 1, 1, 1),
        matrix(bf16, prefix + 1, 1, [&](std::int64_t j, auto) { return j == prefix ? 4.0 : 0.0; }),
        matrix(bf16, prefix + 1, 1,
               [&](std::int64_t j, auto) { return j == prefix ? v_last : v_prefix; }),
        Scale::base2(1));
  };
  KernelModel k = base_2();
  k.operand = bf16;
  k.p.format = e4m3fn;
  k.p.saturate = true;
  k.lse.base = ExponentBase::two;
  const LoopParameters eight = {{"threshold", 4}, {"offset", 8}};
  const LoopParameters four = {{"threshold", 4}, {"offset", 4}};
  k.tiles.keys = 127;
  const Outcome wrong = run(p(127, -1, 1), k, "fa4-row", eight);
  EXPECT_EQ(wrong.weight(127), 4096);
  EXPECT_EQ(wrong.p(127), 448);
  EXPECT_NEAR(wrong.output(), -0.87587, 5e-6);
  EXPECT_TRUE(wrong.has(EventKind::saturation, SimulationStage::p));
  EXPECT_NEAR(wrong.lse(), std::log2(143.0), 1e-5);  // the log-sum-exp stays right
  EXPECT_NEAR(run(p(127, -1, 1), k, "fa4-row", four).output(), -0.77622, 5e-6);
  EXPECT_NEAR(run(p(127, -1, 1), k, "fa4-row", four).lse(), std::log2(143.0), 1e-5);
  k.tiles.keys = 1;
  EXPECT_NEAR(run(p(1, 0, 1), k, "fa4-row", eight).output(), 0.102941, 5e-7);
  EXPECT_NEAR(run(p(1, 0, 1), k, "fa4-row", four).output(), 0.941176, 5e-7);
  // within one tile the maximum is known in time
  k.tiles.keys = 128;
  EXPECT_NEAR(run(p(127, -1, 1), k, "fa4-row", eight).output(), -0.77622, 5e-6);
}

// Two exponential units for one row: which one depends on how it was tiled.
TEST(KernelReports, B29_TwoExponentialUnits) {
  KernelModel hardware = base_2(), polynomial = hardware;
  hardware.exp2.flush_to_zero = true;
  polynomial.exp2 = *fa4_polynomial("fa4-poly3");
  // exponents 0 and -1e-10: the polynomial's fraction rounds to 1
  const AttentionProblem p = problem_of(filled(fp32, 1, 1, 1), column(fp32, {0, -1e-10}),
                                        column(fp32, {0, 1}), Scale::base2(1));
  EXPECT_EQ(run(p, hardware, "online-scaled").weight(1), 1);
  EXPECT_NEAR(run(p, polynomial, "online-scaled").weight(1), 0.999915, 1e-6);
  const double first = run(p, hardware, "online-scaled").lse();
  const double second = run(p, polynomial, "online-scaled").lse();
  EXPECT_NEAR(first - second, 8.5e-5 / 2, 2e-6);
  // a row of 192 keys: other bits, each within 8.77e-5 of the other
  std::mt19937_64 engine(29);
  std::normal_distribution<double> normal;
  const Matrix keys = matrix(fp32, 192, 1, [&](auto, auto) { return normal(engine) * 4; });
  const Matrix values = matrix(fp32, 192, 1, [&](auto, auto) { return normal(engine); });
  const AttentionProblem row = problem_of(filled(fp32, 1, 1, 1), keys, values, Scale::base2(1));
  const double a = run(row, hardware, "online-scaled").output();
  const double b = run(row, polynomial, "online-scaled").output();
  EXPECT_NE(a, b);
  EXPECT_NEAR(a, b, 2 * 8.77e-5 * 4);
  EXPECT_EQ(run(row, hardware, "online-scaled").output(), a);
}

// --- backward ------------------------------------------------------------------------------------

// exp(0 - LSE) on the padded half of a tile.
TEST(KernelReports, B30_PaddingInTheBackwardPass) {
  const auto first_channel = [](double x) {
    return [x](std::int64_t, std::int64_t c) { return c == 0 ? x : 0.0; };
  };
  const AttentionProblem p =
      problem_of(matrix(bf16, 1, 64, first_channel(1)), matrix(bf16, 64, 64, first_channel(-960)),
                 filled(bf16, 64, 1, 1), Scale::natural(Rational(1, 8)));
  KernelModel k = base_2();
  k.operand = bf16;
  const Outcome forward = run(p, k, "online-scaled");
  EXPECT_EQ(forward.output(), 1);
  EXPECT_NEAR(forward.lse(), -115.841, 5e-4);
  const std::vector<float> wrong = recomputed_weights(p, k, 0, forward.all.lse[0], false);
  ASSERT_EQ(wrong.size(), 128U);
  for (std::size_t j = 0; j < 64; ++j) EXPECT_NEAR(wrong[j], 1.0 / 64, 1e-6);
  for (std::size_t j = 64; j < 128; ++j) EXPECT_EQ(static_cast<double>(wrong[j]), infinity);
  const std::vector<float> right = recomputed_weights(p, k, 0, forward.all.lse[0], true);
  for (std::size_t j = 64; j < 128; ++j) EXPECT_EQ(right[j], 0);
}

// --- softcap, padding, masks, units --------------------------------------------------------------

// tanh as a ratio of sums of exponentials.
TEST(KernelReports, B32_SoftcapByExpRatio) {
  const auto p = [](double score) {
    AttentionProblem q = problem_of(filled(fp32, 1, 1, score), column(fp32, {1, 0.5}),
                                    column(fp32, {1, 3}), Scale::natural(1));
    q.softcap = 50;
    return q;
  };
  KernelModel k = natural();
  k.score.softcap = SoftcapFormula::exp_ratio;
  EXPECT_NEAR(run(p(4240), k, "online-scaled").score(0), 50, 1e-5);
  EXPECT_EQ(run(p(4241), k, "online-scaled").score(0), infinity);
  EXPECT_EQ(run(p(4400), k, "online-scaled").score(0), infinity);
  EXPECT_TRUE(std::isnan(run(p(4437), k, "online-scaled").score(0)));
  for (const double score : {5000.0, 10000.0, -10000.0}) {
    EXPECT_TRUE(std::isnan(run(p(score), k, "online-scaled").score(0))) << score;
  }
  EXPECT_TRUE(std::isnan(run(p(5000), k, "online-scaled").output()));
  for (const SoftcapFormula formula : {SoftcapFormula::logistic, SoftcapFormula::tanh}) {
    k.score.softcap = formula;
    // capped scores 50 and 50 - 4e-42: equal weights
    EXPECT_EQ(run(p(5000), k, "online-scaled").output(), 2);
    EXPECT_EQ(run(p(10000), k, "softcap-max").output(), 2);
  }
}

// NaN and others in slots past the length.
TEST(KernelReports, B35_NanInUnusedSlots) {
  const auto p = [](double padding) {
    AttentionProblem q =
        problem_of(filled(bf16, 1, 4, 1),
                   matrix(bf16, 128, 4,
                          [&](std::int64_t j, std::int64_t c) {
                            return j < 3 ? static_cast<double>(j + c) / 8 : padding;
                          }),
                   matrix(bf16, 128, 2,
                          [&](std::int64_t j, std::int64_t c) {
                            return j < 3 ? static_cast<double>(j - c) : padding;
                          }),
                   Scale::reciprocal_sqrt(4));
    q.visibility.length = 3;
    return q;
  };
  KernelModel k = base_2();
  k.operand = bf16;
  k.tiles.padding = Padding::masked;
  const Outcome clean = run(p(0), k, "online-scaled");
  EXPECT_TRUE(std::isfinite(clean.output()));
  // P is 0 there, and 0 NaN = NaN
  EXPECT_TRUE(std::isnan(run(p(nan_value), k, "online-scaled").output()));
  EXPECT_TRUE(std::isnan(run(p(-infinity), k, "online-scaled").output()));
  EXPECT_EQ(run(p(1e30), k, "online-scaled").output(), clean.output());
  k.tiles.padding = Padding::sliced;
  const Outcome sliced = run(p(0), k, "online-scaled");
  for (const double padding : {nan_value, 1e30, -infinity, infinity, 65504.0, 0x1p-130}) {
    for (const char* stabilizer : {"online-scaled", "fixed-m", "vfa"}) {
      const Outcome other = run(p(padding), k, stabilizer);
      EXPECT_EQ(other.output(0, 0), run(p(0), k, stabilizer).output(0, 0)) << padding;
      EXPECT_EQ(other.output(0, 1), run(p(0), k, stabilizer).output(0, 1)) << padding;
    }
  }
  EXPECT_EQ(sliced.output(), clean.output());
}

// NaN in a hidden key.
TEST(KernelReports, B36_NanInAHiddenKey) {
  const auto p = [](double in_key) {
    const Element count = [](std::int64_t r, std::int64_t c) {
      return static_cast<double>(4 * r + c);
    };
    AttentionProblem q = problem_of(matrix(fp32, 2, 4, count),
                                    matrix(fp32, 2, 4,
                                           [&](std::int64_t r, std::int64_t c) {
                                             return r == 1 && c == 0 ? in_key : count(r, c);
                                           }),
                                    matrix(fp32, 2, 4, count), Scale::reciprocal_sqrt(4));
    q.mask = {1, 0};
    return q;
  };
  KernelModel k = base_2();
  k.mask.form = MaskForm::additive;
  for (const double fine : {4.0, 1e10}) {
    const Outcome o = run(p(fine), k, "online-scaled");
    for (std::size_t c = 0; c < 4; ++c) EXPECT_EQ(o.output(1, c), static_cast<double>(c));
  }
  const Outcome wrong = run(p(nan_value), k, "online-scaled");
  EXPECT_TRUE(std::isnan(wrong.output(1)));
  k.mask.form = MaskForm::select;
  const Outcome right = run(p(nan_value), k, "online-scaled");
  for (std::size_t c = 0; c < 4; ++c) EXPECT_EQ(right.output(1, c), static_cast<double>(c));
}

// An exponential that never gives zero, not even for minus infinity.
TEST(KernelReports, B38_ExponentialWithAFloor) {
  const auto p = [](double hidden) {
    AttentionProblem q = problem_of(
        filled(fp16, 1, 1, 0), filled(fp16, 128, 1, 0),
        matrix(fp16, 128, 1, [&](std::int64_t j, auto) { return j < 32 ? 1.0 : hidden; }),
        Scale::natural(1));
    for (std::int64_t j = 0; j < 128; ++j) q.mask.push_back(j < 32 ? 1 : 0);
    return q;
  };
  KernelModel k = base_2();
  k.operand = k.exp2.result = k.p.format = fp16;
  k.exp2.floor = 0x1p-14;
  for (const double hidden : {0.0, 1.0, 100.0, 1000.0}) {
    // 32 keys of weight 1, 96 of weight 2^-14
    const double expected = (32 + 96 * 0x1p-14 * hidden) / (32 + 96 * 0x1p-14);
    EXPECT_NEAR(run(p(hidden), k, "online-scaled").output(), expected, 1e-6) << hidden;
  }
  EXPECT_EQ(run(p(1000), k, "online-scaled").weight(127), 0x1p-14);
  k.exp2.floor = 0;
  for (const double hidden : {0.0, 1.0, 100.0, 1000.0}) {
    EXPECT_EQ(run(p(hidden), k, "online-scaled").output(), 1);
  }
}

// Tile sums that are added in FP16.
TEST(KernelReports, B40_Fp16OuterSum) {
  KernelModel k = base_2();
  k.operand = k.p.format = fp16;
  k.numerator = {.format = fp16, .order = {OrderKind::tile, 64}};
  k.tiles.keys = 64;
  const Outcome wrong = run(equal_keys(fp16, 16384, 4), k, "online-scaled");
  EXPECT_EQ(wrong.output(), infinity);  // 65536
  EXPECT_TRUE(wrong.has(EventKind::infinity, SimulationStage::numerator));
  EXPECT_EQ(run(equal_keys(fp16, 16320, 4), k, "online-scaled").output(), 4);
  // one term after another stops at 8192 + 4 = 8192 instead
  k.numerator.order = {OrderKind::sequential};
  EXPECT_EQ(run(equal_keys(fp16, 16384, 4), k, "online-scaled").output(), 0.5);
  k.numerator.format = fp32;
  EXPECT_EQ(run(equal_keys(fp16, 16384, 4), k, "online-scaled").output(), 4);
}

// An accumulator of 14 bits that truncates: V = 1 gives 1 up to 2^14 keys.
TEST(KernelReports, B41_TruncatingAccumulator) {
  KernelModel k = base_2();
  k.operand = k.p.format = bf16;
  k.numerator = {.format = fp32, .order = {OrderKind::matrix_unit, 1, 13}};
  for (const AccumulationOrder& order : {AccumulationOrder{OrderKind::matrix_unit, 1, 13},
                                         AccumulationOrder{OrderKind::matrix_unit, 32, 13}}) {
    k.numerator.order = order;
    for (const std::int64_t n : {(1 << 14) - 1, 1 << 14, (1 << 14) + 1, 160000}) {
      // each term is cut to a multiple of 2 once the sum is 2^14
      const double expected = std::min(1.0, 0x1p14 / static_cast<double>(n));
      const Outcome o = run(equal_keys(bf16, n, 1), k, "online-scaled");
      EXPECT_NEAR(o.output(), expected, 1e-7) << n;
      EXPECT_EQ(o.has(EventKind::absorption, SimulationStage::numerator), n > 20000);
    }
  }
  // 26 bits hold every N here
  k.numerator.order = {OrderKind::matrix_unit, 1, 25};
  EXPECT_EQ(run(equal_keys(bf16, 160000, 1), k, "online-scaled").output(), 1);
}

// Subtracting the mean of the keys moves every row's log-sum-exp.
TEST(KernelReports, B43_KeySmoothingMovesLse) {
  const AttentionProblem p = problem_of(
      matrix(fp32, 1, 4, [](auto, std::int64_t c) { return static_cast<double>(c + 1); }),
      matrix(fp32, 2, 4,
             [](std::int64_t j, std::int64_t c) {
               return (c == 0 ? 10.0 : 0.0) + (c == 1 ? (j == 0 ? 0.5 : -0.5) : 0.0);
             }),
      column(fp32, {1, 2}), Scale::natural(Rational(1, 2)));
  KernelModel k = base_2();
  const Outcome plain = run(p, k, "online-scaled");
  k.centring = {.keys = Centring::mean, .mean = fp32, .difference = fp32};
  const Outcome smoothed = run(p, k, "online-scaled");
  EXPECT_NEAR(plain.lse() - smoothed.lse(), 5.0, 1e-5);
  EXPECT_NEAR(plain.output(), smoothed.output(), 1e-6);
}

// The largest of many scores overflows FP16, not the typical one.
TEST(KernelReports, B48_OverflowInTheTail) {
  std::mt19937_64 engine(48);
  std::normal_distribution<double> normal;
  const auto random = [&](auto, auto) { return 40 * normal(engine); };
  const Matrix q = matrix(fp16, 4, 128, random), keys = matrix(fp16, 4096, 128, random);
  const AttentionProblem p =
      problem_of(q, keys, filled(fp16, 4096, 1, 1), Scale::reciprocal_sqrt(128));
  KernelModel k = flash(fp16);
  k.exponent.fused = false;
  k.score.store = fp16;
  const Outcome wrong = run(p, k, "online-fa2");
  const auto overflows = std::count_if(wrong.dump.scores.begin(), wrong.dump.scores.end(),
                                       [](float s) { return std::isinf(s); });
  EXPECT_GT(overflows, 0);
  EXPECT_LT(overflows, 4 * 4096 / 500);
  EXPECT_TRUE(std::any_of(wrong.all.output.begin(), wrong.all.output.end(),
                          [](float o) { return std::isnan(o); }));
  // 1 / sqrt(d) folded into q
  k.scale.scale = FactorSite::query;
  const Outcome right = run(p, k, "online-fa2");
  for (const float o : right.all.output) EXPECT_NEAR(o, 1, 1e-3);
}

// A control: 32,769 random keys in FP16 with FP32 accumulators are no problem.
TEST(KernelReports, B54_LongRandomRowsAreFine) {
  std::mt19937_64 engine(54);
  std::normal_distribution<double> normal;
  const auto random = [&](auto, auto) { return normal(engine); };
  const Matrix q = matrix(fp16, 1, 64, random), keys = matrix(fp16, 32769, 64, random);
  const AttentionProblem p =
      problem_of(q, keys, filled(fp16, 32769, 1, 1), Scale::reciprocal_sqrt(64));
  for (const char* stabilizer : {"online-fa2", "fa4-row"}) {
    const Outcome o = run(p, flash(fp16), stabilizer);
    EXPECT_NEAR(o.output(), 1, 1e-3);
    EXPECT_NEAR(o.lse(), std::log(32769.0) + 0.5, 0.5);
  }
}

}  // namespace
}  // namespace headroom
