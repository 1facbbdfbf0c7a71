// Policies whose rule leaves numbers open: FlashDecoding++'s range test, a maximum that stays
// behind, and the rows of a wave that decide together. Values are worked out by hand from the
// construction beside them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "certify/lazy_frames.h"
#include "reference/input_error.h"
#include "tests/unit/certify/judge.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double log2_of_e = 1.4426950408889634;

/// FP32 throughout with BF16 operands: scores of one channel are exact.
KernelModel exact_kernel(const std::string& more = {}) {
  return parse_kernel("name = \"exact\"\nmachine = \"ieee-fp32\"\noperand = \"bf16\"\n" + more,
                      "exact.toml");
}
/// One channel, q = 1: scores in log2 units are the keys; one query row for each factor.
Head scores(const std::vector<double>& keys, const std::vector<double>& factors = {1}) {
  const auto n = static_cast<std::int64_t>(keys.size());
  return cases::make_head(
      "scores", static_cast<std::int64_t>(factors.size()), n, 1, 1,
      [&](std::int64_t i, auto) { return factors[static_cast<std::size_t>(i)]; },
      [&](std::int64_t j, auto) { return keys[static_cast<std::size_t>(j)]; },
      [&](std::int64_t j, auto) { return j % 2 == 0 ? 1.0 : -1.0; });
}
HeadReport certify(const Head& head, const KernelModel& kernel, Policy policy,
                   const PolicyParameters& parameters = {}) {
  CertifyOptions options;
  options.policy = policy;
  options.parameters = parameters;
  return certify_head(head, kernel, options);
}

// --- fdpp ----------------------------------------------------------------------------------------

TEST(RangeTest, RowsInsideStay) {
  const HeadReport r = certify(scores({-3, 0, 4}, {1, 2}), exact_kernel(), Policy::fdpp);
  EXPECT_EQ(r.verdict, Verdict::certified) << r.reason;
  EXPECT_EQ(r.row_paths.fixed, 2);
  EXPECT_EQ(r.gate_accepts, Tri::yes);
  // the largest of |z| is 8, the range ends at 60 log2(e)
  EXPECT_NEAR(r.gate_value.hi(), 8 - 60 * log2_of_e, 1e-4);
  EXPECT_EQ(find_claim(r, "mass.lost")->value.hi(), 0);
  EXPECT_NEAR(find_claim(r, "exponent.upper")->value.hi(), 8, 1e-5);
}

TEST(RangeTest, TheEndsAreOutside) {
  // 8 log2(e) = 11.54156...; BF16 keys 11.5 and 11.5625, and the middle of the range moved
  const PolicyParameters range = {{"phi", 0}, {"a", -8}, {"b", 8}};
  EXPECT_EQ(certify(scores({11.5, 0}), exact_kernel(), Policy::fdpp, range).verdict,
            Verdict::certified);
  for (const double key : {11.5625, -11.5625}) {
    const HeadReport r = certify(scores({key, 0}), exact_kernel(), Policy::fdpp, range);
    EXPECT_EQ(r.verdict, Verdict::fallback) << r.reason;
    EXPECT_EQ(r.row_paths.online, 1);
    EXPECT_NEAR(r.gate_value.lo(), 11.5625 - 8 * log2_of_e, 1e-5);
  }
  // phi moves both ends
  const PolicyParameters moved = {{"phi", 8}, {"a", -8}, {"b", 8}};
  EXPECT_EQ(certify(scores({23, 1}), exact_kernel(), Policy::fdpp, moved).verdict,
            Verdict::certified);
  EXPECT_EQ(certify(scores({23, -1}), exact_kernel(), Policy::fdpp, moved).verdict,
            Verdict::fallback);
}

TEST(RangeTest, EachRowDecidesForItself) {
  const PolicyParameters range = {{"phi", 0}, {"a", -8}, {"b", 8}};
  const HeadReport r = certify(scores({4, -2}, {1, 4, 0.5}), exact_kernel(), Policy::fdpp, range);
  EXPECT_EQ(r.verdict, Verdict::fallback) << r.reason;
  EXPECT_EQ(r.row_paths.of,
            (std::vector<RowPath>{RowPath::fixed, RowPath::online, RowPath::fixed}));
  EXPECT_EQ(r.row_paths.row, 1);
  // claims of both paths: the shift's exponents reach 4, online's largest is 0
  EXPECT_NEAR(find_claim(r, "exponent.upper")->value.hi(), 4, 1e-5);
  ASSERT_NE(find_claim(r, "correction.range"), nullptr);
}

TEST(RangeTest, WhatARangeAllowsIsBounded) {
  // no end: a shift without a test. Every weight is 2^(0 - 150) and flushed, or 2^(150) infinite
  const PolicyParameters none = {{"phi", 104}, {"a", -infinity}, {"b", infinity}};
  const KernelModel flushing = exact_kernel("[exp2]\nflush_to_zero = true\n");
  const HeadReport low = certify(scores({0, 0}), flushing, Policy::fdpp, none);
  EXPECT_EQ(low.verdict, Verdict::refuted);
  EXPECT_EQ(low.row_paths.fixed, 1);
  EXPECT_EQ(find_claim(low, "mass.lost")->outcome(), ClaimOutcome::fails);
  const HeadReport high = certify(scores({150, 150}), flushing, Policy::fdpp,
                                  {{"phi", 0}, {"a", -infinity}, {"b", infinity}});
  EXPECT_EQ(high.verdict, Verdict::refuted);
  EXPECT_EQ(find_claim(high, "exponent.upper")->outcome(), ClaimOutcome::fails);
  // with a test both are recomputed
  for (const double phi : {104.0, -104.0}) {
    const HeadReport r =
        certify(scores({0, 0}), flushing, Policy::fdpp, {{"phi", phi}, {"a", -60}, {"b", 60}});
    EXPECT_EQ(r.verdict, Verdict::fallback) << r.reason;
  }
  // a range wider than the formats: rows that stay are not safe for that
  const HeadReport wide = certify(scores({120, 0}), exact_kernel(), Policy::fdpp,
                                  {{"phi", 0}, {"a", -100}, {"b", 100}});
  EXPECT_EQ(wide.verdict, Verdict::certified) << wide.reason;  // 2^120 fits
  EXPECT_NE(
      certify(scores({129, 0}), exact_kernel(), Policy::fdpp, {{"phi", 0}, {"a", -100}, {"b", 100}})
          .verdict,
      Verdict::certified);
}

// --- fa4 -----------------------------------------------------------------------------------------

KernelModel fp8_kernel() {
  return exact_kernel("[p]\nformat = \"e4m3fn\"\nsaturate = true\n[tiles]\nkeys = 1\n");
}

TEST(LazyMaximum, ExponentsReachTheThreshold) {
  const KernelModel kernel = exact_kernel("[tiles]\nkeys = 1\n");
  const HeadReport r = certify(scores({0, 8, 30, 20}), kernel, Policy::fa4);
  EXPECT_EQ(r.verdict, Verdict::certified) << r.reason;
  EXPECT_EQ(r.stabilizer, "fa4");
  EXPECT_NEAR(find_claim(r, "exponent.upper")->value.hi(), 8, 1e-4);
  EXPECT_NEAR(find_claim(r, "l.range")->value.hi(), 10, 1e-4);  // four of them
  // a threshold of 0 is online softmax
  const HeadReport none = certify(scores({0, 8, 30, 20}), kernel, Policy::fa4, {{"threshold", 0}});
  EXPECT_NEAR(find_claim(none, "exponent.upper")->value.hi(), 0, 1e-4);
  EXPECT_NEAR(find_claim(none, "l.range")->value.hi(), 2, 1e-4);
}

TEST(LazyMaximum, Fp8WeightsSaturateBeyondTheirRoom) {
  // 448 = 2^8.807: an offset of 8 leaves room for a threshold of 0.807
  const Head grows = scores({0, 4});
  const auto verdict = [&](double threshold, double offset) {
    return certify(grows, fp8_kernel(), Policy::fa4, {{"threshold", threshold}, {"offset", offset}})
        .verdict;
  };
  EXPECT_EQ(verdict(4, 8), Verdict::refuted);
  EXPECT_EQ(verdict(4, 4), Verdict::certified);
  EXPECT_EQ(verdict(0, 8), Verdict::certified);
  EXPECT_EQ(verdict(0.75, 8), Verdict::certified);
  // the default for FP8 is a threshold of 0 with an offset of 8
  EXPECT_EQ(certify(grows, fp8_kernel(), Policy::fa4).verdict, Verdict::certified);
  // a head whose scores do not grow keeps its room
  EXPECT_EQ(
      certify(scores({4, 0}), fp8_kernel(), Policy::fa4, {{"threshold", 4}, {"offset", 8}}).verdict,
      Verdict::certified);
  const HeadReport lost =
      certify(grows, fp8_kernel(), Policy::fa4, {{"threshold", 4}, {"offset", 8}});
  // the key of weight 16 of 17
  EXPECT_NEAR(find_claim(lost, "mass.lost")->value.lo(), 16.0 / 17, 1e-5);
}

TEST(LazyMaximum, AWaveMayTakeALowerMaximum) {
  // row 0: +100, then -60; row 1: 0, then +20, which makes both rows follow their tiles
  const Head head = cases::make_head(
      "wave", 2, 2, 2, 1, [](std::int64_t i, std::int64_t c) { return i == c ? 1.0 : 0.0; },
      [](std::int64_t j, std::int64_t c) {
        return j == 0 ? (c == 0 ? 100.0 : 0.0) : (c == 0 ? -60.0 : 20.0);
      },
      [](std::int64_t j, auto) { return j == 0 ? 1.0 : 2.0; });
  const KernelModel kernel = exact_kernel("[tiles]\nkeys = 1\n");
  const HeadReport wave = certify(head, kernel, Policy::fa4, {{"wave", 64}, {"running_max", 0}});
  EXPECT_EQ(wave.verdict, Verdict::refuted) << wave.reason;
  const Claim* correction = find_claim(wave, "correction.range");
  ASSERT_NE(correction, nullptr);
  EXPECT_EQ(correction->row, 0);
  EXPECT_NEAR(correction->value.lo(), 160, 1e-3);
  EXPECT_NEAR(correction->value.hi(), 160, 1e-3);
  for (const PolicyParameters& right :
       {PolicyParameters{{"wave", 64}, {"running_max", 1}}, {{"wave", 0}}, {{"wave", 1}}, {}}) {
    EXPECT_EQ(certify(head, kernel, Policy::fa4, right).verdict, Verdict::certified);
  }
  // one row alone, and keys of one tile, never take a lower one
  EXPECT_EQ(certify(head, kernel, Policy::fa4, {{"wave", 1}, {"running_max", 0}}).verdict,
            Verdict::certified);
  EXPECT_EQ(certify(head, exact_kernel(), Policy::fa4, {{"wave", 64}, {"running_max", 0}}).verdict,
            Verdict::certified);
}

TEST(LazyMaximum, RowsOfADecision) {
  KernelModel kernel = exact_kernel("[tiles]\nqueries = 10\n");
  const auto range = [&](std::int64_t wave, std::int64_t row) {
    const RowRange r = rows_of_decision({.wave = wave}, kernel, 25, row);
    return std::pair(r.begin, r.end);
  };
  EXPECT_EQ(range(4, 0), std::pair(std::int64_t{0}, std::int64_t{4}));
  EXPECT_EQ(range(4, 9), std::pair(std::int64_t{8}, std::int64_t{10}));  // a block's last wave
  EXPECT_EQ(range(4, 12), std::pair(std::int64_t{10}, std::int64_t{14}));
  EXPECT_EQ(range(0, 23), std::pair(std::int64_t{20}, std::int64_t{25}));
  EXPECT_EQ(range(1, 7), std::pair(std::int64_t{7}, std::int64_t{8}));
}

// --- parameters ----------------------------------------------------------------------------------

TEST(PolicyParameters, DefaultsAndMistakes) {
  const KernelModel kernel = exact_kernel();
  EXPECT_EQ(complete_parameters(Policy::fa4, kernel, {}),
            (PolicyParameters{{"threshold", 8}, {"offset", 0}, {"wave", 1}, {"running_max", 1}}));
  EXPECT_EQ(complete_parameters(Policy::fa4, fp8_kernel(), {{"offset", 4}}),
            (PolicyParameters{{"threshold", 0}, {"offset", 4}, {"wave", 1}, {"running_max", 1}}));
  EXPECT_TRUE(complete_parameters(Policy::clis, kernel, {}).empty());
  const auto message = [&](Policy policy, const PolicyParameters& given) -> std::string {
    try {
      complete_parameters(policy, kernel, given);
    } catch (const InputError& e) {
      return e.what();
    }
    return {};
  };
  EXPECT_EQ(message(Policy::online, {{"phi", 1}}),
            "policy online: found parameter \"phi\", expected one of guard, initial_max");
  EXPECT_EQ(message(Policy::clis, {{"phi", 1}}),
            "policy clis: found parameter \"phi\", expected none");
  EXPECT_EQ(message(Policy::fdpp, {{"tau", 1}}),
            "policy fdpp: found parameter \"tau\", expected one of a, b, phi");
  EXPECT_EQ(message(Policy::fdpp, {{"a", 61}}),
            "policy fdpp: a: found 61, expected less than b = 60");
  EXPECT_EQ(message(Policy::fdpp, {{"phi", infinity}}),
            "policy fdpp: phi: found inf, expected a finite number");
  EXPECT_EQ(message(Policy::fa4, {{"threshold", -1}}),
            "policy fa4: threshold: found -1, expected a number of at least 0");
  EXPECT_EQ(message(Policy::fa4, {{"wave", 0.5}}),
            "policy fa4: wave: found 0.5, expected an integer of at least 0");
  EXPECT_EQ(message(Policy::fa4, {{"running_max", 2}}),
            "policy fa4: running_max: found 2, expected 0 or 1");
}

}  // namespace
}  // namespace headroom
