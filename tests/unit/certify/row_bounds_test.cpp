// Bounds of rows' scores as the certifier uses and reports them.
#include "certify/row_bounds.h"

#include <gtest/gtest.h>

#include "reference/input_error.h"
#include "tests/unit/certify/judge.h"

namespace headroom {
namespace {

using simulation::Random;

ExactRows sample(std::int64_t rows) { return {rows}; }

/// Scores within 2 of 0 where norms allow 100, values near 2^70: P V overflows if exponents may be
/// C.
Head narrow_scores(std::int64_t queries) {
  return cases::make_head(
      "narrow", queries, 256, 3, 1,
      [](std::int64_t i, std::int64_t c) {
        return c == 0 ? 1.0 : c == 1 ? 40.0 + static_cast<double>(i % 8) : 0.0;
      },
      [](std::int64_t j, std::int64_t c) {
        if (c == 0) return j % 5 < 2 ? 1.5 : -1.0;
        return c == 1 ? 0.0 : j % 2 == 0 ? 2.0 : -2.0;
      },
      [](std::int64_t j, auto) { return j % 2 == 0 ? 0x1p70 : 0x1p69; });
}

/// Scores 0 where norms allow 128: blocks of 64 keys at (8, 8) and at (-8, -8), q = (8, -8). Only
/// the balls of blocks see it.
Head opposite_blocks(std::int64_t queries) {
  return cases::make_head(
      "opposite", queries, 256, 2, 1, [](auto, std::int64_t c) { return c == 0 ? 8.0 : -8.0; },
      [](std::int64_t j, auto) { return j / 64 % 2 == 0 ? 8.0 : -8.0; },
      [](std::int64_t j, auto) { return j % 2 == 0 ? 0x1p70 : 0x1p69; });
}

// More rows than are evaluated exactly: Cauchy-Schwarz leaves o.range open, the others decide it.
TEST(TighterBounds, DecideWhatCauchySchwarzLeavesOpen) {
  const KernelModel kernel = cases::ideal_kernel();
  for (const auto& make : {narrow_scores, opposite_blocks}) {
    const Head head = make(100);
    CertifyOptions options;
    options.policy = Policy::fixed_m;
    options.tighter_bounds = false;
    const HeadReport before = certify_head(head, kernel, options);
    EXPECT_EQ(before.verdict, Verdict::undecided) << before.reason;
    EXPECT_EQ(before.binding, "o.range");
    EXPECT_EQ(before.rows_undecided, 36);
    options.tighter_bounds = true;
    const HeadReport after = judge(head, kernel, options);
    EXPECT_EQ(after.verdict, Verdict::certified) << head.id << ": " << after.reason;
    EXPECT_EQ(after.rows_evaluated, 0);
    EXPECT_EQ(after.rows_undecided, 0);
  }
}

// They decide nothing that is not so: one key more, at the far end of what norms allow.
TEST(TighterBounds, DoNotDecideAHeadThatOverflows) {
  Head head = narrow_scores(100);
  std::vector<double> k(256 * 3);
  for (std::size_t j = 0; j < 256; ++j) head.k.load_row(static_cast<std::int64_t>(j), &k[j * 3]);
  k[200 * 3 + 1] = 2, k[200 * 3 + 2] = 0;  // score about 80 to 95
  head.k = Matrix::from_values(bf16, 256, 3, k);
  CertifyOptions options;
  options.policy = Policy::fixed_m;
  options.evaluate_rows = 0;
  const HeadReport report = judge(head, cases::ideal_kernel(), options);
  EXPECT_EQ(report.verdict, Verdict::undecided);
  EXPECT_EQ(report.binding, "o.range");
  EXPECT_EQ(report.rows_undecided, 100);
}

// Four equal keys: the box is the key itself, and its exact score, -7/64, is the bound. The BF16
// accumulator loses it beside 64 and gives 0: the score's error has to be in the exponent's bound.
TEST(TighterBounds, LeaveRoomForTheScoresError) {
  const Head head = cases::make_head(
      "absorbed", 3, 4, 3, 1, [](auto, auto) { return 8.0; },
      [](auto, std::int64_t c) { return c == 0   ? 8.0
                                        : c == 1 ? -7.0 / 512
                                                 : -8.0; },
      [](auto, auto) { return 0x1p50; });
  const KernelModel kernel = cases::ideal_kernel(
      "[centring]\nkeys = \"none\"\n[score]\naccumulator = \"bf16\"\norder = \"sequential\"\n");
  CertifyOptions options;
  options.policy = Policy::fixed_m;
  options.evaluate_rows = 0;
  options.tighter_bounds = false;
  EXPECT_EQ(certify_head(head, kernel, options).verdict, Verdict::undecided);
  options.tighter_bounds = true;
  Truth truth;
  const HeadReport report = judge(head, kernel, options, &truth);
  EXPECT_EQ(report.verdict, Verdict::certified) << report.reason;
  EXPECT_EQ(truth.largest_exponent, 88 - 157);  // 157: the rounded-up product of the norms
}

TEST(BoundsReport, BoundsLieAboveTheLargestScores) {
  Random g(21);
  for (int trial = 0; trial < 20; ++trial) {
    const auto n = static_cast<std::int64_t>(1 + simulation::below(g, 150));
    Head head = cases::make_head(
        "random", n, n, 4, 1, [&](auto, auto) { return simulation::random_value(bf16, g, 1, 3); },
        [&](auto, auto) { return simulation::random_value(bf16, g, 0, 3); },
        [](auto, auto) { return 1.0; });
    head.visibility.kind = trial % 2 == 0 ? MaskKind::none : MaskKind::causal;
    CertifyOptions options;
    options.exact_rows = ExactRows{};
    const HeadReport report = certify_head(head, cases::ideal_kernel(), options);
    ASSERT_TRUE(report.bounds);
    const BoundsReport& bounds = *report.bounds;
    EXPECT_EQ(bounds.rows, "all");
    ASSERT_EQ(bounds.evaluated.size(), static_cast<std::size_t>(n));
    std::vector<double> slack(score_bound_count);
    double largest = -INFINITY;
    for (const EvaluatedRow& e : bounds.evaluated) {
      largest = std::fmax(largest, e.largest.hi());
      EXPECT_GE(e.key, 0);
      EXPECT_LT(e.key, head.visibility.visible(e.row).end);
      EXPECT_LE(e.bounds[ScoreBound::cauchy_schwarz].value(), e.bounds[ScoreBound::norms].value());
      for (const ScoreBound bound : score_bounds) {
        EXPECT_GE(e.bounds[bound].value(), e.largest.lo());
        const auto i = static_cast<std::size_t>(bound);
        slack[i] = std::fmax(slack[i], e.bounds[bound].value() - e.largest.lo());
      }
    }
    EXPECT_EQ(bounds.largest.hi(), largest);
    ASSERT_EQ(bounds.slack.size(), score_bound_count);
    for (const BoundSlack& s : bounds.slack) {
      EXPECT_GE(s.largest, slack[static_cast<std::size_t>(s.bound)] * (1 - 0x1p-40));
      EXPECT_LE(s.largest, slack[static_cast<std::size_t>(s.bound)] + 1e-9);
      EXPECT_LE(s.median, s.largest);
      EXPECT_GE(s.median, 0);
    }
    EXPECT_EQ(bounds.radius, report.radius);
    EXPECT_LE(bounds.least_radius, bounds.radius);
    EXPECT_LE(bounds.ball_radius, 1.01 * bounds.radius);
    EXPECT_EQ(bounds.kappa, report.kappa);
  }
}

// Two keys, one row: every number by hand. q = (3, 4), keys (1, 0) and (1, 2): scores 3 and 11.
TEST(BoundsReport, NumbersOfTwoKeys) {
  const Head head = cases::make_head(
      "two", 1, 2, 2, 1, [](auto, std::int64_t c) { return c == 0 ? 3.0 : 4.0; },
      [](std::int64_t j, std::int64_t c) { return c == 0 ? 1.0 : 2.0 * static_cast<double>(j); },
      [](auto, auto) { return 1.0; });
  CertifyOptions options;
  options.exact_rows = sample(1);
  const HeadReport report =
      certify_head(head, cases::ideal_kernel("[centring]\nkeys = \"none\"\n"), options);
  ASSERT_TRUE(report.bounds);
  const BoundsReport& b = *report.bounds;
  EXPECT_EQ(b.rows, "sample:1");
  EXPECT_EQ(b.row, 0);
  EXPECT_EQ(b.key, 1);
  EXPECT_EQ(b.largest.lo(), 11);
  EXPECT_EQ(b.largest.hi(), 11);
  ASSERT_EQ(b.slack.size(), 5U);
  const double root5 = std::sqrt(5.0);
  EXPECT_NEAR(b.slack[0].largest, 5 * root5 - 11, 1e-12);  // 5 |k|
  EXPECT_NEAR(b.slack[1].largest, 5 * root5 - 11, 1e-12);
  EXPECT_NEAR(b.slack[2].largest, 7 + 5 - 11, 1e-12);  // about (1, 1), radius 1
  EXPECT_NEAR(b.slack[3].largest, 0, 1e-12);
  EXPECT_NEAR(b.slack[4].largest, 7 + 5 - 11, 1e-12);
  EXPECT_NEAR(b.radius, root5, 1e-12);
  EXPECT_NEAR(b.ball_radius, 1, 1e-12);
  EXPECT_NEAR(b.least_radius, 1, 1e-12);
  EXPECT_GE(b.kappa, root5);
  EXPECT_GE(b.ball_kappa, 1);
  EXPECT_LE(b.ball_kappa, 1.001);
}

TEST(BoundsReport, HeadsWithoutVisibleKeysAndNonFiniteHeads) {
  Head head = narrow_scores(3);
  CertifyOptions options;
  options.exact_rows = sample(8);
  head.visibility.length = 0;
  HeadReport report = certify_head(head, cases::ideal_kernel(), options);
  ASSERT_TRUE(report.bounds);
  EXPECT_TRUE(report.bounds->evaluated.empty());
  EXPECT_TRUE(report.bounds->slack.empty());
  head.visibility.length = 256;
  head.k = Matrix::from_values(bf16, 256, 3, std::vector<double>(768, INFINITY));
  report = certify_head(head, cases::ideal_kernel(), options);
  EXPECT_FALSE(report.bounds);
}

TEST(ExactRows, AreSpreadOverTheRowsThatSeeAKey) {
  HeadScan scan;
  scan.rows.resize(12);
  for (std::size_t i = 2; i < 12; ++i) scan.rows[i].visible = 1;  // 10 of them
  using Rows = std::vector<std::int64_t>;
  EXPECT_EQ(sample(2).of(scan), (Rows{4, 9}));
  EXPECT_EQ(sample(3).of(scan), (Rows{3, 7, 10}));
  EXPECT_EQ(sample(1).of(scan), (Rows{7}));
  EXPECT_EQ(sample(10).of(scan), ExactRows{}.of(scan));
  EXPECT_EQ(sample(99).of(scan).size(), 10U);
}

TEST(ExactRows, Text) {
  EXPECT_EQ(parse_exact_rows("--exact-max", "rows=all").sample, 0);
  EXPECT_EQ(parse_exact_rows("--exact-max", "all").sample, 0);
  EXPECT_EQ(parse_exact_rows("--exact-max", "rows=sample:12").sample, 12);
  EXPECT_EQ(parse_exact_rows("--exact-max", "rows=sample:12").text(), "sample:12");
  for (const char* bad : {"", "rows=", "rows=some", "rows=sample:", "rows=sample:0",
                          "rows=sample:-1", "rows=sample:1.5", "rows=sample:1 ", "rows=rows=all",
                          "sample:99999999999999999999", "rows=sample:1073741825", "All"}) {
    EXPECT_THROW(parse_exact_rows("--exact-max", bad), InputError) << bad;
  }
}

}  // namespace
}  // namespace headroom
