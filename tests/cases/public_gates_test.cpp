// Each case passes its public gate as that kernel computes it, the kernel is refuted by the right
// claim, and the sound policy says what theory says: refuse A and G, certify the others with its
// own C.
#include "tests/cases/public_gates.h"

#include <gtest/gtest.h>

#include <cmath>

#include "certify/certify.h"
#include "reference/evaluate/exact_attention.h"
#include "reference/stabilizer/stabilizer.h"

namespace headroom::cases {
namespace {

HeadReport certify_with(const Head& head, const KernelModel& kernel, Policy policy) {
  CertifyOptions options;
  options.policy = policy;
  return certify_head(head, kernel, options);
}

const Claim& claim(const HeadReport& report, const std::string& id) {
  for (const Claim& c : report.claims) {
    if (c.id == id) return c;
  }
  ADD_FAILURE() << "no claim " << id;
  return report.claims.front();
}

double exact_output(const Head& head) {
  return static_cast<double>(exact_row(head, 0).output.front());
}

/// The public gate, emulated bit by bit, accepts and lies in the certifier's enclosure.
void expect_gate(const Head& head, const KernelModel& kernel, const std::string& stabilizer,
                 const HeadReport& report, double value, double limit) {
  const UpwardRounding up;
  const Operands operands(up, head, kernel);
  const GateOutcome gate = make_stabilizer(stabilizer, head, kernel, operands)->gate();
  EXPECT_TRUE(gate.accepts);
  EXPECT_NEAR(gate.value, value, 0.05);
  EXPECT_EQ(gate.limit, limit);
  EXPECT_EQ(report.gate_accepts, Tri::yes);
  EXPECT_TRUE(report.gate_value.contains(gate.value))
      << gate.value << " not in [" << report.gate_value.lo() << ", " << report.gate_value.hi();
}

TEST(PublicGates, CaseA) {
  const Head head = case_a();
  const KernelModel kernel = ideal_kernel();
  EXPECT_NEAR(exact_output(head), 0.32812327, 1e-8);
  const HeadReport fixed = certify_with(head, kernel, Policy::fixed_m);
  expect_gate(head, kernel, "fixed-m", fixed, 180.95, 213);
  EXPECT_EQ(fixed.verdict, Verdict::refuted);
  EXPECT_EQ(fixed.binding, "l.nonzero");
  const Claim& exponent = claim(fixed, "exponent.upper");
  EXPECT_NEAR(exponent.value.hi(), -202.7, 0.1);
  const Claim& sound = claim(fixed, "gate.conservative");
  EXPECT_NEAR(sound.value.hi(), 297.95, 1.0);  // mu is rounded up to an integer
  EXPECT_EQ(sound.outcome(), ClaimOutcome::fails);

  const HeadReport clis = certify_with(head, kernel, Policy::clis);
  EXPECT_EQ(clis.verdict, Verdict::fallback);
  EXPECT_NEAR(clis.gate_value.hi(), 297.95, 0.1);
}

TEST(PublicGates, CaseAWithVirtualCentringIsCertified) {
  const KernelModel kernel = ideal_kernel("[centring]\nkeys = \"virtual\"\nmean = \"fp32\"\n");
  const HeadReport report = certify_with(case_a(), kernel, Policy::clis);
  EXPECT_EQ(report.verdict, Verdict::certified) << report.reason << " " << report.binding;
}

TEST(PublicGates, CaseB) {
  const Head head = case_b();
  const KernelModel kernel = ideal_kernel();
  EXPECT_NEAR(exact_output(head), 0.615578, 1e-6);
  const HeadReport fixed = certify_with(head, kernel, Policy::fixed_m);
  expect_gate(head, kernel, "fixed-m", fixed, 212.62, 213);
  EXPECT_EQ(fixed.verdict, Verdict::refuted);
  EXPECT_EQ(fixed.binding, "mass.lost");
  EXPECT_NEAR(claim(fixed, "mass.lost").value.lo(), 0.1922, 1e-4);
  // nothing is NaN and no denominator vanishes: safe, and wrong
  EXPECT_EQ(fixed.safe, ClaimOutcome::holds);
  EXPECT_EQ(fixed.accurate, ClaimOutcome::fails);
  const HeadReport clis = certify_with(head, kernel, Policy::clis);
  EXPECT_EQ(clis.verdict, Verdict::certified) << clis.reason << " " << clis.binding;
  EXPECT_EQ(clis.cap, 109);
}

TEST(PublicGates, CaseC) {
  const Head head = case_c();
  const KernelModel kernel = ideal_kernel();
  EXPECT_EQ(exact_output(head), 16777216);
  const HeadReport fixed = certify_with(head, kernel, Policy::fixed_m);
  expect_gate(head, kernel, "fixed-m", fixed, 0, 213);
  EXPECT_EQ(fixed.verdict, Verdict::refuted);
  EXPECT_EQ(fixed.binding, "o.range");
  const HeadReport clis = certify_with(head, kernel, Policy::clis);
  EXPECT_EQ(clis.verdict, Verdict::certified) << clis.reason << " " << clis.binding;
  EXPECT_EQ(clis.cap, 87);
}

TEST(PublicGates, CaseD) {
  const Head head = case_d();
  const KernelModel kernel = ideal_kernel();
  EXPECT_EQ(exact_output(head), 0.75);
  const HeadReport published = certify_with(head, kernel, Policy::clis_alg1);
  expect_gate(head, kernel, "clis-alg1", published, 0, 111 + 126);
  EXPECT_EQ(published.cap, 111);
  EXPECT_EQ(published.verdict, Verdict::refuted);
  EXPECT_EQ(published.binding, "normalise.range");
  const HeadReport clis = certify_with(head, kernel, Policy::clis);
  EXPECT_EQ(clis.verdict, Verdict::certified) << clis.reason << " " << clis.binding;
  EXPECT_EQ(clis.cap, 110);
  KernelModel inexact = kernel;
  inexact.normalise.reciprocal_exact_at_powers_of_two = false;
  const HeadReport lower = certify_with(head, inexact, Policy::clis);
  EXPECT_EQ(lower.verdict, Verdict::certified);
  EXPECT_EQ(lower.cap, 109);
}

TEST(PublicGates, CaseE) {
  const Head head = case_e();
  const KernelModel kernel =
      ideal_kernel("[gate]\ngate = \"one-sided\"\n[stabilizer]\nround_up = false\n");
  EXPECT_NEAR(exact_output(head), 0.58195, 1e-5);
  const HeadReport fixed = certify_with(head, kernel, Policy::fixed_m_n);
  expect_gate(head, kernel, "fixed-m-n", fixed, 231.08, 232);
  EXPECT_EQ(fixed.cap, 107);
  EXPECT_EQ(fixed.verdict, Verdict::refuted);
  EXPECT_EQ(fixed.binding, "mass.lost");
  EXPECT_NEAR(claim(fixed, "mass.lost").value.lo(), 0.209, 1e-3);
  const HeadReport clis = certify_with(head, kernel, Policy::clis);
  EXPECT_EQ(clis.verdict, Verdict::certified) << clis.reason << " " << clis.binding;
  EXPECT_EQ(clis.cap, 114);
}

TEST(PublicGates, CaseF) {
  const Head head = case_f();
  const KernelModel kernel = ideal_kernel({}, true);
  EXPECT_EQ(exact_output(head), 0.30078125);
  const HeadReport fixed = certify_with(head, kernel, Policy::fixed_m);
  expect_gate(head, kernel, "fixed-m", fixed, 213, 213);
  EXPECT_EQ(fixed.verdict, Verdict::refuted);
  EXPECT_EQ(fixed.binding, "product.flush");
  const HeadReport clis = certify_with(head, kernel, Policy::clis);
  EXPECT_EQ(clis.verdict, Verdict::certified) << clis.reason << " " << clis.binding;
  EXPECT_EQ(clis.cap, 116);
}

// A bound between the two-sided gate (116 at N = 4096, C = 107) and C - L - D(t).
TEST(PublicGates, OnlyTheSoundGateCertifiesAWideBound) {
  const Head head = make_head(
      "wide", 4, 4096, 4, 2, [](std::int64_t i, std::int64_t c) { return c == i ? 150.0 : 0.0; },
      [](std::int64_t j, std::int64_t c) {
        return (j + c) % 8 < 4 ? ((j + c) % 2 == 0 ? 0.5 : -0.5) : 0.25;
      },
      [](std::int64_t j, std::int64_t c) { return (j + c) % 3 == 0 ? 1.0 : -0.5; });
  const KernelModel kernel = ideal_kernel();
  const HeadReport two_sided = certify_with(head, kernel, Policy::fixed_m_n);
  EXPECT_EQ(two_sided.gate_limit, 116);
  EXPECT_GT(two_sided.gate_value.lo(), 116);
  EXPECT_EQ(two_sided.verdict, Verdict::fallback);
  const HeadReport clis = certify_with(head, kernel, Policy::clis);
  EXPECT_EQ(clis.verdict, Verdict::certified) << clis.reason << " " << clis.binding;
}

// The textbook misuse: C = 88 with FP16 weights. P = 2^71 is infinite in every execution.
TEST(PublicGates, FixedMWithFp16WeightsIsRefutedByTheirRange) {
  const Head head = make_head(
      "fp16-weights", 2, 64, 2, 1, [](auto, std::int64_t c) { return c == 0 ? 16.0 : 0.5; },
      [](std::int64_t j, std::int64_t c) { return c == 0 ? (j % 2 == 0 ? 1.0 : -1.0) : 0.25; },
      [](std::int64_t j, auto) { return static_cast<double>(j % 5) / 4; });
  const KernelModel kernel = ideal_kernel("[p]\nformat = \"fp16\"\n");
  const HeadReport fixed = certify_with(head, kernel, Policy::fixed_m);
  EXPECT_EQ(fixed.gate_accepts, Tri::yes);
  EXPECT_EQ(fixed.verdict, Verdict::refuted) << fixed.reason << " " << fixed.binding;
  EXPECT_EQ(fixed.binding, "p.range");
  EXPECT_NEAR(claim(fixed, "p.range").value.lo(), 88, 1.5);
  const HeadReport clis = certify_with(head, kernel, Policy::clis);
  EXPECT_EQ(clis.verdict, Verdict::certified) << clis.reason << " " << clis.binding;
  EXPECT_LE(clis.cap, 15);
}

}  // namespace
}  // namespace headroom::cases
