// Windows, segments, masks, biases, softcaps and sinks: row facts against exact log-sum-exps, which
// the reference computes on its own, and verdicts about heads whose outcome is known.
#include <gtest/gtest.h>

#include <cmath>

#include "certify/certify.h"
#include "certify/row_scores.h"
#include "reference/evaluate/ladder/ladder.h"
#include "reference/model/kernel_file.h"
#include "tests/property/random_instances.h"
#include "tests/unit/certify/judge.h"

namespace headroom {
namespace {

using simulation::Random;

/// FP32 throughout and correctly rounded: operands are multiplied as they are.
KernelModel exact_operands() {
  return parse_kernel(
      "name = \"k\"\nmachine = \"ieee-fp32\"\noperand = \"bf16\"\n"
      "[scale]\nscale = \"score\"\nlog2e = \"score\"\n[score]\nscale_before_store = true\n"
      "[exponent]\nfused = false\n",
      "k.toml");
}

HeadScan scan_of(const Head& head, const KernelModel& kernel) {
  const UpwardRounding up;
  const Operands operands(up, head, kernel);
  return scan_head(up, head, kernel, operands);
}

/// One query row q = 1 of one channel: the keys are the scores, in log2 units.
Head head_of_scores(const std::vector<double>& scores) {
  const auto n = static_cast<std::int64_t>(scores.size());
  return cases::make_head(
      "scores", 1, n, 1, 1, [](auto, auto) { return 1.0; },
      [&](std::int64_t j, auto) { return scores[static_cast<std::size_t>(j)]; },
      [](auto, auto) { return 1.0; });
}

const Claim& claim(const HeadReport& report, const std::string& id) {
  const Claim* found = find_claim(report, id);
  EXPECT_NE(found, nullptr) << id;
  static const Claim none;
  return found == nullptr ? none : *found;
}

TEST(Modifiers, MeanScoresBoundTheMassOfEveryRow) {
  const KernelModel kernel = exact_operands();
  Random g(20);
  int rows = 0, far = 0, capped = 0;
  for (int i = 0; i < 300; ++i) {
    Head head = simulation::random_head(g, kernel, 6);
    simulation::add_modifiers(g, head);
    head.modifiers.sink.reset();  // it is no part of the bound
    const HeadScan scan = scan_of(head, kernel);
    if (!scan.finite) continue;
    const AttentionProblem problem(head);
    const EnclosedRows exact = enclosures(problem, all_rows(problem), {});
    for (std::int64_t r = 0; r < head.queries(); ++r) {
      const RowScan& row = scan.rows[static_cast<std::size_t>(r)];
      std::int64_t seen = 0;
      for (std::int64_t j = 0; j < head.keys(); ++j) seen += problem.visible(r, j) ? 1 : 0;
      ASSERT_EQ(row.visible, seen);
      if (seen == 0) continue;
      const double lse2 = exact.lse_hi[static_cast<std::size_t>(r)] * 1.4426950408889634;
      const double slack = 1e-12 * (1 + std::fabs(lse2));
      ASSERT_LE(std::log2(static_cast<double>(seen)) + row.mean_score.lo(), lse2 + slack)
          << "head " << i << " row " << r;
      ++rows;
      far += row.far_keys > 0 ? 1 : 0;
      capped += head.modifiers.softcap ? 1 : 0;
    }
  }
  EXPECT_GT(rows, 1000);
  EXPECT_GT(far, 50);
  EXPECT_GT(capped, 100);
}

/// A hidden key may score anything.
TEST(Modifiers, HiddenKeysDoNotCount) {
  const KernelModel kernel = exact_operands();
  Head head = head_of_scores({0, -4, 64, 2});
  head.modifiers.mask = {1, 1, 0, 1};
  EXPECT_EQ(scan_of(head, kernel).rows[0].visible, 3);
  EXPECT_NEAR(scan_of(head, kernel).rows[0].mean_score.lo(), -2.0 / 3, 1e-12);
  head.modifiers.mask.clear();
  head.modifiers.window = Window{.left = 0, .right = 1};
  EXPECT_NEAR(scan_of(head, kernel).rows[0].mean_score.lo(), -2, 1e-12);
  head.modifiers.window.reset();
  head.modifiers.query_segments = {7};
  head.modifiers.key_segments = {7, 1, 1, 7};
  EXPECT_NEAR(scan_of(head, kernel).rows[0].mean_score.lo(), 1, 1e-12);
}

/// Half of the keys at finfo.min: the mean of all is -1.2e38, that of the others 0, and a row of
/// 8 keys at 0 has mass 8 = 16 2^-1.
TEST(Modifiers, BiasesAtTheLowestNumberLeaveTheMeanAlone) {
  const KernelModel kernel = exact_operands();
  Head head = head_of_scores(std::vector<double>(16, 0.0));
  std::vector<double> bias(16, 0.0);
  for (std::size_t j = 0; j < bias.size(); j += 2) bias[j] = -0x1.fffffep127;
  head.modifiers.bias = Matrix::from_values(fp32, 1, 16, bias);
  const HeadScan scan = scan_of(head, kernel);
  EXPECT_EQ(scan.rows[0].far_keys, 8);
  EXPECT_NEAR(scan.rows[0].mean_score.lo(), -1, 1e-12);
  const HeadReport report = certify_head(head, kernel, {});
  // finfo.min times log2(e) overflows: the score may be -inf
  EXPECT_NE(report.verdict, Verdict::certified);
  for (std::size_t j = 0; j < bias.size(); j += 2) bias[j] = -0x1p126;
  head.modifiers.bias = Matrix::from_values(fp32, 1, 16, bias);
  EXPECT_EQ(certify_head(head, kernel, {}).verdict, Verdict::certified);
}

/// cap 4, 1000 keys, one of score 4000 and all others -4000/999: the mean of scores is 0, and the
/// mass 0.102 of what it would promise of capped scores.
TEST(Modifiers, TheMeanOfScoresSaysNothingOfCappedOnes) {
  const KernelModel kernel = exact_operands();
  std::vector<double> scores(1000, round_to(bf16, -4000.0 / 999));
  scores[0] = 4000;
  Head head = head_of_scores(scores);
  head.scale = Scale::natural(1);
  head.modifiers.softcap = Rational(4);
  const AttentionProblem problem(head);
  const EnclosedRows exact = enclosures(problem, all_rows(problem), {});
  const double log2_mass = exact.lse_hi[0] * 1.4426950408889634;
  EXPECT_LT(log2_mass, std::log2(1000.0) - 3);
  EXPECT_LE(std::log2(1000.0) + scan_of(head, kernel).rows[0].mean_score.lo(), log2_mass);
}

/// A bias that rises above the scores comes off the C of clis.
TEST(Modifiers, PositiveBiasesLowerTheCap) {
  const KernelModel kernel = exact_operands();
  Head head = head_of_scores({1, 0, -1, 0.5});
  const double plain = certify_head(head, kernel, {}).cap;
  head.modifiers.bias = Matrix::from_values(fp32, 1, 4, {0, 10, 0, 0});  // 14.43 log2 units
  const HeadReport report = certify_head(head, kernel, {});
  EXPECT_EQ(report.cap, plain - 15);
  EXPECT_EQ(report.verdict, Verdict::certified);
  head.modifiers.bias.reset();
  head.modifiers.sink = 20;  // 28.85
  EXPECT_EQ(certify_head(head, kernel, {}).cap, plain - 29);
}

TEST(Modifiers, SinksFarAboveTheScoresRefuseTheFixedPath) {
  const KernelModel kernel = exact_operands();
  Head head = head_of_scores({1, 0, -1, 0.5});
  head.modifiers.sink = 10000;
  EXPECT_NE(certify_head(head, kernel, {}).verdict, Verdict::certified);
  head.modifiers.sink = -10000;  // flushed, and nothing lost by it
  const HeadReport report = certify_head(head, kernel, {});
  EXPECT_EQ(report.verdict, Verdict::certified);
}

TEST(Modifiers, NaNBiasIsRefuted) {
  const KernelModel kernel = exact_operands();
  Head head = head_of_scores({1, 0});
  head.modifiers.bias = Matrix::from_values(fp32, 1, 2, {0, NAN});
  HeadReport report = certify_head(head, kernel, {});
  EXPECT_EQ(report.verdict, Verdict::refuted);
  EXPECT_EQ(report.binding, "operand.finite");
  EXPECT_NE(report.reason.find("bias[0,1] = nan"), std::string::npos) << report.reason;
  head.modifiers.mask = {1, 0};  // nobody sees it
  EXPECT_EQ(certify_head(head, kernel, {}).verdict, Verdict::certified);
}

TEST(Modifiers, RowsThatSeeNothingAreTheModels) {
  KernelModel kernel = exact_operands();
  Head head = head_of_scores({1, 0});
  head.modifiers.mask = {0, 0};
  EXPECT_EQ(certify_head(head, kernel, {}).verdict, Verdict::certified);
  kernel.tiles.empty_row = EmptyRowRule::nan;
  const HeadReport report = certify_head(head, kernel, {});
  EXPECT_EQ(report.verdict, Verdict::refuted);
  EXPECT_EQ(claim(report, "empty.row").row, 0);
}

TEST(Modifiers, WhatNoBoundCoversIsUndecided) {
  KernelModel kernel = exact_operands();
  Head head = head_of_scores({1, 0});
  head.modifiers.softcap = Rational(50);
  const HeadReport capped = certify_head(head, kernel, {});
  EXPECT_EQ(capped.verdict, Verdict::certified);
  EXPECT_EQ(capped.status, ClaimStatus::assumed);
  EXPECT_TRUE(capped.assumptions.back().starts_with("softcap.tanh"));
  kernel.centring.keys = Centring::mean;
  EXPECT_EQ(certify_head(head, kernel, {}).verdict, Verdict::undecided);
  head.modifiers.softcap.reset();
  head.modifiers.sink = 0;
  EXPECT_EQ(certify_head(head, kernel, {}).verdict, Verdict::undecided);
  kernel.centring.keys = Centring::none;
  kernel.score.scale_before_store = false;
  head.scale = Scale::natural(1);
  head.modifiers.bias = Matrix::from_values(fp32, 1, 2, {0, 0});
  const HeadReport report = certify_head(head, kernel, {});
  EXPECT_EQ(report.verdict, Verdict::undecided);
  EXPECT_NE(report.reason.find("a bias where scores are scaled after"), std::string::npos);
}

/// A score of 0 is 0 / 0 where the cap is 0 in FP32 (2^-151 rounds to it), 0 / inf inf where it is
/// infinite, and 0 inf where the scale over the cap is: NaN in every row.
TEST(Modifiers, SoftcapsThatFp32DoesNotHold) {
  const KernelModel before = exact_operands();
  KernelModel after = exact_operands();
  after.score.scale_before_store = false;
  Head head = head_of_scores({0, 0});
  for (const KernelModel& kernel : {before, after}) {
    for (const Policy policy : {Policy::clis, Policy::online}) {
      CertifyOptions options;
      options.policy = policy;
      const auto verdict = [&](const char* cap) {
        head.modifiers.softcap = parse_exact_number(cap);
        return certify_head(head, kernel, options).verdict;
      };
      for (const char* cap : {"2^-151", "2^-140", "2^-127", "2^-1100", "2^128", "2^1100"}) {
        // `online` needs no table, and a row that is run shows the NaN: of a cap that is 0 or
        // infinite in FP32, or of a scale over it that is, where they are divided
        const std::string text = cap;
        const bool held = text == "2^-127" || (text == "2^-140" && kernel.score.scale_before_store);
        const bool shows = policy == Policy::online && !held;
        EXPECT_EQ(verdict(cap), shows ? Verdict::refuted : Verdict::undecided)
            << cap << " " << to_text(policy);
      }
      for (const char* cap : {"2^-20", "2^20"}) {
        EXPECT_EQ(verdict(cap), Verdict::certified) << cap << " " << to_text(policy);
      }
    }
  }
  head.modifiers.softcap = parse_exact_number("2^-60");
  head.scale = Scale::base2(parse_exact_number("2^70"));  // 2^130 over the cap
  const HeadReport report = certify_head(head, after, {});
  EXPECT_EQ(report.verdict, Verdict::undecided);
  EXPECT_NE(report.reason.find("whose quotient with the scale"), std::string::npos)
      << report.reason;
}

/// Online softmax over tiles that a row cannot see rests on a guard, which is named.
TEST(Modifiers, HiddenTilesAreAnAssumptionOfOnlineSoftmax) {
  const KernelModel kernel = exact_operands();
  Head head = head_of_scores({1, 0, -1, 0.5});
  CertifyOptions online;
  online.policy = Policy::online;
  const std::size_t before = certify_head(head, kernel, online).assumptions.size();
  head.modifiers.mask = {0, 0, 1, 1};
  const HeadReport report = certify_head(head, kernel, online);
  EXPECT_EQ(report.verdict, Verdict::certified);
  EXPECT_EQ(report.status, ClaimStatus::assumed);
  ASSERT_EQ(report.assumptions.size(), before + 1);
  EXPECT_TRUE(report.assumptions.back().starts_with("online.hidden-tiles"));
  EXPECT_EQ(certify_head(head, kernel, {}).assumptions.size(), before);  // clis needs no guard
}

}  // namespace
}  // namespace headroom
