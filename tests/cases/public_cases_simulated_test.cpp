// The heads that pass a public gate and are wrong, run: what each kernel gives, bit by bit, and
// that the sound policy's stabilizer, or online softmax where it refuses, is right (DESIGN.md, "Two
// verdicts"; expected values from the constructions and from exact attention).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>

#include "certify/certify.h"
#include "reference/evaluate/exact_attention.h"
#include "reference/evaluate/simulate/simulate.h"
#include "reference/head/load.h"
#include "tests/cases/public_gates.h"

namespace headroom::cases {
namespace {

const std::string fp32_output = "output = \"fp32\"\n";

/// ideal_kernel with O as FP32: BF16 would round 0.999 to 1.
KernelModel kernel_with(const std::string& more = {}, bool products_flush = false) {
  KernelModel kernel = ideal_kernel(more, products_flush);
  kernel.normalise.output = fp32;
  return kernel;
}

struct Outcome {
  Simulated all;
  SimulationDump dump;
  double output() const { return static_cast<double>(all.output[0]); }
  bool has(EventKind kind, SimulationStage stage) const {
    return std::any_of(all.events.begin(), all.events.end(), [&](const SimulationEvent& e) {
      return e.kind == kind && e.stage == stage;
    });
  }
  double least_exponent() const {
    return *std::min_element(dump.exponents.begin(), dump.exponents.end());
  }
  double largest_exponent() const {
    return *std::max_element(dump.exponents.begin(), dump.exponents.end());
  }
};

Outcome run(const Head& head, const KernelModel& kernel, LoopStabilizer& stabilizer,
            std::int64_t row = 0) {
  SimulationOptions options;
  options.events = true;
  const std::int64_t rows[] = {row};
  Outcome r;
  r.all = simulate(AttentionProblem(head), kernel, stabilizer, rows, options, &r.dump);
  return r;
}
Outcome run(const Head& head, const KernelModel& kernel, const std::string& stabilizer,
            const LoopParameters& parameters = {}, std::int64_t row = 0) {
  return run(head, kernel, *make_loop_stabilizer(stabilizer, parameters), row);
}

/// Weights that are no powers of two lose up to 1/257 of themselves as BF16, and l does not know.
void expect_near(double output, double exact) {
  EXPECT_NEAR(output, exact, std::fabs(exact) / 257);
}

/// The sound stabilizer with the certifier's own table.
Outcome run_clis(const Head& head, const KernelModel& kernel, int expected_cap) {
  const HeadReport report = certify_head(head, kernel, CertifyOptions{});
  EXPECT_EQ(report.verdict, Verdict::certified) << report.reason;
  EXPECT_EQ(report.cap, expected_cap);
  return run(head, kernel, "clis", {{"cap", report.cap}, {"kappa", report.kappa}});
}

TEST(PublicCasesSimulated, AEveryTermFlushes) {
  const Head head = case_a();
  const Outcome fixed = run(head, kernel_with(), "fixed-m");
  EXPECT_TRUE(fixed.all.gate);
  EXPECT_TRUE(std::isnan(fixed.output()));
  EXPECT_EQ(fixed.all.denominator[0], 0);
  EXPECT_NEAR(fixed.least_exponent(), -218.9, 0.1);
  EXPECT_NEAR(fixed.largest_exponent(), -202.7, 0.1);
  EXPECT_TRUE(std::all_of(fixed.dump.weights.begin(), fixed.dump.weights.end(),
                          [](float w) { return w == 0; }));
  EXPECT_TRUE(fixed.has(EventKind::flush, SimulationStage::weight));
  EXPECT_TRUE(fixed.has(EventKind::nan, SimulationStage::normalise));

  // the sound gate refuses; online softmax over the same multiplied keys is right. Centring by a
  // mean of BF16 moves no difference between scores by more than the rounding of K - mean.
  EXPECT_NEAR(run(head, kernel_with(), "online-maxdiffusion").output(), 0.32812327, 2e-3);
  // and virtual centring is certified
  const KernelModel virtual_keys = kernel_with("[centring]\nkeys = \"virtual\"\nmean = \"fp32\"\n");
  const HeadReport report = certify_head(head, virtual_keys, CertifyOptions{});
  EXPECT_EQ(report.verdict, Verdict::certified);
  const Outcome sound =
      run(head, virtual_keys, "clis", {{"cap", report.cap}, {"kappa", report.kappa}});
  EXPECT_NEAR(sound.output(), 0.32812327, 2e-3);
}

TEST(PublicCasesSimulated, BSixtyPercentOfTheKeysFlush) {
  const Head head = case_b();
  KernelModel kernel = kernel_with();
  const Outcome tiled = run(head, kernel, "fixed-m");
  EXPECT_TRUE(tiled.all.gate);
  EXPECT_NEAR(tiled.output(), 0.9991, 5e-5);
  EXPECT_TRUE(tiled.has(EventKind::flush, SimulationStage::weight));
  EXPECT_FALSE(tiled.has(EventKind::nan, SimulationStage::normalise));
  const auto kept = std::count_if(tiled.dump.weights.begin(), tiled.dump.weights.end(),
                                  [](float w) { return w > 0; });
  EXPECT_EQ(kept, 75600 * 2 / 5);
  for (Accumulator* sum : {&kernel.denominator, &kernel.numerator}) {
    sum->order = {OrderKind::sequential};
  }
  EXPECT_NEAR(run(head, kernel, "fixed-m").output(), 0.99925, 5e-6);

  EXPECT_NEAR(run_clis(head, kernel_with(), 109).output(), 0.615578, 2e-3);
}

TEST(PublicCasesSimulated, CNumeratorOverflows) {
  const Head head = case_c();
  const Outcome fixed = run(head, kernel_with(), "fixed-m");
  EXPECT_TRUE(fixed.all.gate);
  EXPECT_EQ(fixed.output(), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(fixed.has(EventKind::infinity, SimulationStage::numerator));
  expect_near(run_clis(head, kernel_with(), 87).output(), 16777216);
}

TEST(PublicCasesSimulated, DReciprocalFlushes) {
  const Head head = case_d();
  const Outcome published = run(head, kernel_with(), "clis-alg1");
  EXPECT_TRUE(published.all.gate);
  // mu is rounded up from a norm that is no smaller than the square root of 2^-40
  EXPECT_NEAR(static_cast<double>(published.all.denominator[0]) / 0x1p127, 1, 1e-5);
  EXPECT_EQ(published.output(), 0);
  EXPECT_TRUE(published.has(EventKind::flush, SimulationStage::normalise));
  expect_near(run_clis(head, kernel_with(), 110).output(), 0.75);
  // a unit that is not exact at powers of two may flush what is 2^-126 exactly
  KernelModel inexact = kernel_with();
  inexact.normalise.reciprocal_exact_at_powers_of_two = false;
  expect_near(run_clis(head, inexact, 109).output(), 0.75);
}

TEST(PublicCasesSimulated, EOneSidedGateLosesMass) {
  const Head head = case_e();
  const KernelModel kernel =
      kernel_with("[gate]\ngate = \"one-sided\"\n[stabilizer]\nround_up = false\n");
  const Outcome fixed = run(head, kernel, "fixed-m-n");
  EXPECT_TRUE(fixed.all.gate);
  EXPECT_NEAR(fixed.output(), 1.0027, 5e-5);
  // the lost mass, from the scores: 2418 keys at -9 114 2^-10 all flush
  const double low = std::exp2(-9 * 114 * 0x1p-10), high = std::exp2(13 * 114 * 0x1p-10);
  const double lost = 2418 * low / (2418 * low + 1674 * high + 4);
  EXPECT_NEAR(lost, 0.209, 5e-4);
  const auto flushed = std::count(fixed.dump.weights.begin(), fixed.dump.weights.end(), 0.0F);
  EXPECT_EQ(flushed, 2418);
  EXPECT_NEAR(run_clis(head, kernel, 114).output(), 0.58195, 2e-3);
}

TEST(PublicCasesSimulated, FProductsFlush) {
  const Head head = case_f();
  const KernelModel kernel = kernel_with({}, true);
  const Outcome fixed = run(head, kernel, "fixed-m");
  EXPECT_TRUE(fixed.all.gate);
  EXPECT_EQ(fixed.output(), 0);
  EXPECT_EQ(fixed.all.denominator[0], 1024 * 0x1p-125F);
  expect_near(run_clis(head, kernel, 116).output(), 0.30078125);
}

// A real causal head: one row of which every weight flushes.
TEST(PublicCasesSimulated, GARealHeadWithAnEmptyRow) {
  const char* named = std::getenv("HEADROOM_SHARED");
  const char* checkout = std::getenv("HEADROOM_SOURCE_ROOT");
  const std::filesystem::path shared =
      named != nullptr      ? std::filesystem::path(named)
      : checkout != nullptr ? std::filesystem::path(checkout).parent_path() / "shared"
                            : std::filesystem::path();
  const std::filesystem::path file =
      shared / "data" / "heads" / "third-party" / "stories260k_f32.safetensors";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no shared data: set HEADROOM_SHARED";
  KernelModel kernel = parse_kernel(
      "name = \"algorithm-1\"\nmachine = \"tpu7x\"\noperand = \"fp32\"\n"
      "[scale]\nscale = \"score\"\nlog2e = \"score\"\nconstant = \"fp32\"\n"
      "arithmetic = \"fp32\"\n"
      "[centring]\nkeys = \"mean\"\nmean = \"fp32\"\ndifference = \"fp32\"\n"
      "[exp2]\nunit = \"correctly-rounded\"\nflush_to_zero = true\n"
      "[normalise]\noutput = \"fp32\"\nguard = \"zero-to-zero\"\n",
      "case-g.toml");
  LoadOptions load;
  load.operand = kernel.operand;
  load.heads = "layer1.*:0";
  const std::vector<Head> heads = load_heads(file.string(), load);
  ASSERT_EQ(heads.size(), 1U);
  const AttentionProblem problem(heads[0]);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(problem.queries()));
  std::iota(rows.begin(), rows.end(), 0);
  const auto published = make_loop_stabilizer("clis-alg1");
  SimulationDump dump;
  const Simulated run = simulate(problem, kernel, *published, rows, {}, &dump);
  EXPECT_TRUE(run.gate);
  const auto dv = static_cast<std::size_t>(problem.value_channels());
  const auto keys = static_cast<std::size_t>(problem.keys());
  std::vector<std::size_t> zero_rows;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (std::all_of(run.output.begin() + static_cast<std::ptrdiff_t>(i * dv),
                    run.output.begin() + static_cast<std::ptrdiff_t>((i + 1) * dv),
                    [](float x) { return x == 0; })) {
      zero_rows.push_back(i);
    }
  }
  ASSERT_EQ(zero_rows.size(), 1U);
  double best = -HUGE_VAL;
  for (std::size_t j = 0; j <= zero_rows[0]; ++j) {
    best = std::max(best, static_cast<double>(dump.exponents[zero_rows[0] * keys + j]));
  }
  EXPECT_NEAR(best, -128.1, 0.05);
  // without a guard the row is NaN
  kernel.normalise.guard = DenominatorGuard::none;
  const std::int64_t row[] = {static_cast<std::int64_t>(zero_rows[0])};
  EXPECT_TRUE(std::isnan(simulate(problem, kernel, *published, row).output[0]));
  // and the fallback of the sound gate, which refuses, is right
  const auto online = make_loop_stabilizer("online-maxdiffusion");
  const Simulated sound = simulate(problem, kernel, *online, row);
  const ExactRow exact = exact_row(heads[0], row[0]);
  for (std::size_t c = 0; c < dv; ++c) {
    EXPECT_NEAR(static_cast<double>(sound.output[c]), static_cast<double>(exact.output[c]), 4e-3);
  }
}

}  // namespace
}  // namespace headroom::cases
