// Diagnoses of failures that are known in advance, and of heads where nothing fails.
#include <gtest/gtest.h>
#include <oneapi/tbb/global_control.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "fuzz/diagnose.h"
#include "fuzz/random.h"
#include "reference/evaluate/exact_attention.h"
#include "reference/model/kernel_file.h"
#include "reference/real/fp_environment.h"
#include "tests/unit/fuzz/failing_heads.h"

namespace headroom::fuzz {
namespace {

Diagnosis of(const FailingHead& f) { return diagnose(f.target, f.candidate, f.objective); }

TEST(Diagnose, OverflowOfTheNumerator) {
  const Diagnosis d = of(huge_values());
  ASSERT_TRUE(d.met) << d.verdict;
  EXPECT_EQ(d.row, 0);
  EXPECT_EQ(d.channel, 0);
  EXPECT_TRUE(std::isinf(d.found));
  EXPECT_EQ(d.exact_lo, 0x1p41);  // one key
  EXPECT_EQ(d.exact_hi, 0x1p41);
  EXPECT_EQ(d.event, "infinity");
  EXPECT_EQ(d.stage, "numerator");
  EXPECT_EQ(d.gate_value, 0);  // the key less its mean
  EXPECT_EQ(d.gate_limit, 213);
  EXPECT_FALSE(d.claim.empty());
  EXPECT_EQ(d.output.size(), 1U);
  EXPECT_TRUE(std::isinf(d.output[0]));
}

TEST(Diagnose, LostMassIsTheExactShare) {
  FailingHead f = two_levels();
  const Diagnosis d = of(f);
  ASSERT_TRUE(d.met) << d.verdict;
  EXPECT_EQ(d.event, "flush");
  EXPECT_EQ(d.stage, "weight");
  EXPECT_EQ(d.key, 2);  // the first of the lower ones
  // the same share from MPFR: keys have mean 0, so nothing is rounded
  const Head head = head_of(f.candidate, f.target.kernel.operand, Scale::base2(1));
  const ExactRow row = exact_row(head, 0);
  Real lost = 0, mass = 0;
  for (std::size_t j = 0; j < 10; ++j) {
    const Real weight = exp2(row.z[j]);
    mass += weight;
    if (j % 5 >= 2) lost += weight;
  }
  const double share = (lost / mass).convert_to<double>();
  EXPECT_NEAR(d.amount, share, 1e-12);
  EXPECT_LE(d.amount, share);  // the lower end of its enclosure
  f.target.eps = share * (1 + 1e-9);
  EXPECT_FALSE(of(f).met);
  f.target.eps = share * (1 - 1e-9);
  EXPECT_TRUE(of(f).met);
}

TEST(Diagnose, RowsOfZeros) {
  const Diagnosis d = of(flushed_reciprocal());
  ASSERT_TRUE(d.met) << d.verdict;
  EXPECT_EQ(d.found, 0);
  EXPECT_EQ(d.exact_lo, 0.75);
  EXPECT_EQ(d.event, "flush");
  EXPECT_EQ(d.stage, "normalise");
  const Diagnosis f = of(flushed_products());
  ASSERT_TRUE(f.met) << f.verdict;
  EXPECT_EQ(f.stage, "numerator");
  EXPECT_EQ(f.exact_lo, 0.30078125);  // two equal values
  EXPECT_EQ(f.exact_hi, 0.30078125);
}

/// One row of two keys that score the same: the output is the mean of the values.
FailingHead cancelling(float first, float second, const Format& format, double eps) {
  FailingHead f;
  f.target.kernel = preset("ieee-fp32");
  f.target.kernel.p.format = format;
  f.target.stabilizer = "static-max";
  f.target.parameters = {{"estimate", 200}};  // above all scores: every weight flushes
  f.target.kernel.exp2.flush_to_zero = true;
  f.target.kernel.normalise.guard = DenominatorGuard::zero_to_one;
  f.target.eps = eps;
  f.target.scale = Scale::base2(1);
  f.candidate = head_of_rows(1, 1, {0}, {0, 0}, {first, second});
  f.objective = Objective::zero_row;
  return f;
}

// Zeros count where neither lost mass within eps nor the weights' roundings explain them: FP8
// rounds by up to 2^-4 of sum p |v| / l, FP32 by next to nothing.
TEST(Diagnose, ZerosThatAreExplained) {
  EXPECT_TRUE(of(cancelling(1, 1, fp32, 0x1p-10)).met);
  EXPECT_TRUE(of(cancelling(1, 1, e4m3fn, 0x1p-10)).met);
  const float little = 1 - 0x1p-6F;  // output 2^-7, of values of 1
  EXPECT_TRUE(of(cancelling(1, -little, fp32, 0x1p-10)).met);
  EXPECT_FALSE(of(cancelling(1, -little, fp32, 0x1p-8)).met);
  EXPECT_FALSE(of(cancelling(1, -little, e4m3fn, 0x1p-10)).met);
  // nothing cancels: small beside the other value, but all that is there
  EXPECT_TRUE(of(cancelling(1, -1 + 0x1p-3F, e4m3fn, 0x1p-10)).met);
  EXPECT_FALSE(of(cancelling(1, -1, fp32, 0x1p-10)).met);
}

TEST(Diagnose, MergesInTheWrongBase) {
  // weights e^4 times larger in the second part: the exact output is 1 / (1 + e^4); base-2 LSEs
  // differ by 4 log2(e), read as natural: 1 / (1 + e^(4 log2 e)), off by 0.0149
  FailingHead f = merged_in_the_wrong_base(Objective::inaccurate);
  const Diagnosis met = of(f);
  f.target.tolerance = 0.015;
  EXPECT_FALSE(of(f).met);
  f.target.tolerance = 0.014;
  ASSERT_TRUE(met.met) << met.verdict;
  const double exact = 1 / (1 + std::exp(4.0));
  EXPECT_NEAR(met.exact_lo, exact, 1e-15);
  EXPECT_NEAR(met.found, 1 / (1 + std::exp(4 / std::log(2.0))), 1e-6);
  EXPECT_NEAR(met.amount, exact - met.found, 1e-12);
  f.objective = Objective::partition;
  const Diagnosis parts = of(f);
  ASSERT_TRUE(parts.met) << parts.verdict;
  EXPECT_TRUE(parts.variant.starts_with("split.parts = ")) << parts.variant;
  EXPECT_NEAR(parts.variant_found, exact, 1e-3);
  f.objective = Objective::wrong_lse;
  const Diagnosis lse = of(f);
  ASSERT_TRUE(lse.met) << lse.verdict;
  EXPECT_NEAR(lse.exact_lo, std::log2(8 * (1 + std::exp(4.0))), 1e-12);
  EXPECT_EQ(lse.channel, -1);
  EXPECT_EQ(lse.stage, "lse");
}

TEST(Diagnose, AccumulatorsThatStopGrowing) {
  const Diagnosis d = of(stuck_denominator());
  ASSERT_TRUE(d.met) << d.verdict;
  EXPECT_EQ(d.stage, "denominator");
  EXPECT_EQ(d.event, "absorption");
  EXPECT_GT(d.amount, 0x1p-8);
}

TEST(Diagnose, ClippedWeights) {
  const Diagnosis d = of(saturated_weights());
  ASSERT_TRUE(d.met) << d.verdict;
  EXPECT_EQ(d.found, 448);
  EXPECT_EQ(d.key, 8);
  EXPECT_EQ(d.stage, "p");
  EXPECT_NEAR(d.amount, std::exp2(8 + 2.5 / std::log(2.0)), 0.01);
}

TEST(Diagnose, TheBackwardPass) {
  const Diagnosis d = of(padded_backward());
  ASSERT_TRUE(d.met) << d.verdict;
  EXPECT_EQ(d.key, 12);
  EXPECT_TRUE(std::isinf(d.found));
  EXPECT_EQ(d.stage, "backward");
}

TEST(Diagnose, ACertificateMayIgnoreKeysThatNoRowSees) {
  Target target;
  target.kernel = preset("ieee-fp32");
  target.gate = GateChoice::certified;
  target.policy = Policy::online;
  target.stabilizer = "online";
  Setting apart;
  apart.query_segments = {0};
  apart.key_segments = {0, 1};
  Candidate c = make_candidate({1, 2, 1, 1}, apart);
  c.k[1] = std::numeric_limits<float>::quiet_NaN();
  const Diagnosis d = diagnose(target, c, Objective::claim);
  EXPECT_FALSE(d.met);
  EXPECT_NE(d.verdict.find("no row sees"), std::string::npos) << d.verdict;
  std::swap(c.k[0], c.k[1]);  // seen, and not certified
  EXPECT_FALSE(diagnose(target, c, Objective::claim).met);
}

TEST(Diagnose, NumbersOutOfNaN) {
  const Diagnosis d = of(lost_nan());
  ASSERT_TRUE(d.met) << d.verdict;
  EXPECT_EQ(d.key, 1);
  EXPECT_TRUE(std::isfinite(d.found));
  FailingHead kept = lost_nan();
  kept.target = known_target("fused-residual");
  EXPECT_FALSE(of(kept).met);
}

TEST(Diagnose, PaddingThatIsRead) {
  FailingHead f = read_padding();
  const Diagnosis d = of(f);
  ASSERT_TRUE(d.met) << d.verdict;
  EXPECT_EQ(d.variant, "padding = nan");
  EXPECT_TRUE(std::isnan(d.variant_found));
  for (const Padding padding : {Padding::sliced, Padding::zero_keys}) {
    f.target.kernel.tiles.padding = padding;
    EXPECT_FALSE(of(f).met) << to_text(padding);
  }
}

TEST(Diagnose, GatesThatRoundDown) {
  FailingHead f = rounded_gate();
  const Diagnosis d = of(f);
  ASSERT_TRUE(d.met) << d.verdict;
  EXPECT_EQ(d.found, 213);
  EXPECT_NEAR(d.exact_lo, std::sqrt(213.0 * 213 + 64), 1e-12);
  EXPECT_EQ(d.limit, 213);
  f.target.kernel.stabilizer.norm = fp32;  // refused
  EXPECT_FALSE(of(f).met);
  f.target.stabilizer = "online-scaled";
  EXPECT_FALSE(of(f).met);
}

TEST(Diagnose, GatesThatRefuseWhatIsAccurate) {
  FailingHead f = refused_and_accurate();
  const Diagnosis d = of(f);
  ASSERT_TRUE(d.met) << d.verdict;
  EXPECT_EQ(d.gate_value, 220);
  EXPECT_EQ(d.amount, 0);
  f.candidate.q[0] = 200;  // accepted
  EXPECT_FALSE(of(f).met);
  f.candidate.q[0] = 220;
  f.candidate.k = {0.125F, -0.125F};
  f.candidate.q[0] = 8 * 220;
  EXPECT_TRUE(of(f).met);
  f.candidate = head_of_rows(2, 1, {220, 0}, {0, 1, 0, -1}, {1, 1});  // everything flushes
  EXPECT_FALSE(of(f).met);
}

TEST(Diagnose, NothingBehindAGateThatRefuses) {
  FailingHead f = huge_values();
  f.candidate = head_of_rows(1, 1, {220}, {1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
                             std::vector<float>(10, 0x1p100F));
  const Diagnosis d = of(f);
  EXPECT_FALSE(d.met);
  EXPECT_EQ(d.verdict, "the gate refuses");
  f.target.gate = GateChoice::none;
  EXPECT_TRUE(of(f).met);
  f.target.gate = GateChoice::certified;
  f.target.policy = Policy::fixed_m;
  EXPECT_FALSE(of(f).met);
}

TEST(Diagnose, CertifiedHeadsKeepTheirClaims) {
  for (const char* name : {"clis-tpu7x", "clis-hopper", "clis-ieee-fp32"}) {
    const Target target = known_target(name);
    int certified = 0;
    for (std::uint64_t i = 0; i < 20; ++i) {
      Random random(7, i);
      Candidate c = make_candidate({3, 20, 4, 2});
      for (std::vector<float>* x : {&c.q, &c.k, &c.v}) {
        for (float& a : *x) a = static_cast<float>(random.normal());
      }
      round_operands(c, target.kernel.operand);
      for (const Objective o : all_objectives()) {
        if (o == Objective::needless_fallback || o == Objective::swallowed_nan) continue;
        const Diagnosis d = diagnose(target, c, o);
        EXPECT_FALSE(d.met) << name << ' ' << to_text(o) << ' ' << i << ' ' << d.claim;
        if (o == Objective::claim && d.verdict == "certified") ++certified;
      }
    }
    EXPECT_GT(certified, 10) << name;
  }
}

TEST(Diagnose, SoundKernelsAreNotBlamed) {
  Target target;
  target.name = "sound";
  target.kernel = preset("ieee-fp32");
  target.kernel.tiles.keys = 8;
  target.stabilizer = "online-scaled";
  for (std::uint64_t i = 0; i < 10; ++i) {
    Random random(3, i);
    Candidate c = make_candidate({4, 40, 8, 3});
    c.setting.mask = i % 2 == 0 ? MaskKind::none : MaskKind::causal_bottom_right;
    if (i % 3 == 1) c.setting.length = 33;
    if (i % 3 == 2) c.setting.sink = 2;
    for (std::vector<float>* x : {&c.q, &c.k, &c.v}) {
      for (float& a : *x) a = static_cast<float>(4 * random.normal());
    }
    for (const Objective o : all_objectives()) {
      const Diagnosis d = diagnose(target, c, o);
      EXPECT_FALSE(d.met) << to_text(o) << ' ' << i << ' ' << d.variant << ' ' << d.amount;
    }
  }
}

TEST(Diagnose, WhatDoesNotRunIsNotMet) {
  FailingHead f = huge_values();
  f.target.stabilizer = "no-such-rule";
  Diagnosis d = of(f);
  EXPECT_FALSE(d.met);
  EXPECT_NE(d.verdict.find("no-such-rule"), std::string::npos);
  f = huge_values();
  f.candidate.v[0] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(of(f).met);
  f = two_levels();
  f.target.kernel = known_target("fused-residual").kernel;
  f.candidate.setting.bias.assign(10, 0.5F);  // scores are scaled after their store
  f.target.scale = Scale::natural(Rational(1, 2));
  EXPECT_FALSE(of(f).met);
}

bool same_bits(const Diagnosis& a, const Diagnosis& b) {
  const auto same = [](double x, double y) { return std::memcmp(&x, &y, sizeof x) == 0; };
  return a.met == b.met && a.stage == b.stage && a.event == b.event && a.claim == b.claim &&
         a.row == b.row && a.channel == b.channel && a.key == b.key && a.tile == b.tile &&
         same(a.found, b.found) && same(a.exact_lo, b.exact_lo) && same(a.exact_hi, b.exact_hi) &&
         same(a.amount, b.amount) && a.verdict == b.verdict && a.output.size() == b.output.size() &&
         std::memcmp(a.output.data(), b.output.data(), a.output.size() * 4) == 0 &&
         std::memcmp(a.lse.data(), b.lse.data(), a.lse.size() * 4) == 0;
}

TEST(Diagnose, TheSameWithOneThreadAndAnyRounding) {
  for (const FailingHead& f : {two_levels(), huge_values(), stuck_denominator()}) {
    const Diagnosis many = of(f);
    const oneapi::tbb::global_control one(oneapi::tbb::global_control::max_allowed_parallelism, 1);
    EXPECT_TRUE(same_bits(many, of(f))) << to_text(f.objective);
    const UpwardRounding up;
    EXPECT_TRUE(same_bits(many, of(f))) << to_text(f.objective);
  }
}

}  // namespace
}  // namespace headroom::fuzz
