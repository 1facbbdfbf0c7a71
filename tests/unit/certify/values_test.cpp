// Rows whose own visible values are small beside the head's: what flushed products take from them.
// Expected values are worked out by hand in the comments.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "certify/certify.h"
#include "certify/row_values.h"
#include "reference/evaluate/ladder/ladder.h"
#include "reference/model/kernel_file.h"
#include "tests/property/random_instances.h"
#include "tests/unit/certify/judge.h"

namespace headroom {
namespace {

using simulation::Random;

KernelModel kernel_of(const std::string& more = "") {
  return parse_kernel(
      "name = \"k\"\nmachine = \"ieee-fp32\"\noperand = \"fp32\"\n"
      "[scale]\nscale = \"score\"\nlog2e = \"score\"\n[score]\nscale_before_store = true\n"
      "[exponent]\nfused = false\n" +
          more,
      "k.toml");
}

/// Two keys, -1 and 1, and two queries s: scores -s and s, log2 units. The values of the keys are
/// `first` and `second`; something hides key 1 from row 0.
Head two_keys(double s, double first, double second = 1) {
  return cases::make_head(
      "values", 2, 2, 1, 1, [&](auto, auto) { return s; },
      [](std::int64_t j, auto) { return j == 0 ? -1.0 : 1.0; },
      [&](std::int64_t j, auto) { return j == 0 ? first : second; }, fp32);
}
Head causal(double s, double first, double second = 1) {
  Head head = two_keys(s, first, second);
  head.visibility.kind = MaskKind::causal_top_left;
  return head;
}

const Claim& fixed_claim(const HeadReport& report, const std::string& id) {
  const std::vector<Claim>& claims =
      report.gate_accepts == Tri::yes ? report.claims : report.fixed_claims;
  for (const Claim& c : claims) {
    if (c.id == id) return c;
  }
  ADD_FAILURE() << "no claim " << id;
  static const Claim none;
  return none;
}

/// Under `clis` mu is s - C but for roundings upward. Row 0 sees the score -s alone, and s is such
/// that its exponent C - 2 s is -135, less those roundings.
double query_of(const KernelModel& kernel, const CertifyOptions& options) {
  const double cap = certify_head(causal(1, 1), kernel, options).cap;
  EXPECT_NEAR(cap, 126, 2);
  return (cap + 135) / 2;
}

// FP32 with gradual underflow. Row 0: P = l = 2^-135 and P v = 2^-151, less than half of 2^-149, so
// that O = 0, and exact attention is v = 2^-16. Beside the head's largest value, 1, that is below
// eps = 2^-10. With v = 1 the product is off by at most 2^-150: 2^-15 of l v.
TEST(Values, RowsThatAreWipedOutAreNotCertified) {
  const KernelModel kernel = kernel_of();
  CertifyOptions options;
  const double s = query_of(kernel, options);
  const HeadReport kept = certify_head(causal(s, 1), kernel, options);
  EXPECT_EQ(kept.verdict, Verdict::certified) << kept.reason;
  const Claim& whole = fixed_claim(kept, "product.flush");
  EXPECT_GE(whole.value.hi(), 0x1p-15);
  EXPECT_LE(whole.value.hi(), 0x1.01p-13);  // two events of 2^-149 at most

  const HeadReport wiped = certify_head(causal(s, 0x1p-16), kernel, options);
  EXPECT_EQ(wiped.gate_accepts, Tri::no);
  EXPECT_EQ(wiped.gate_note, "product.flush");
  EXPECT_EQ(wiped.verdict, Verdict::fallback) << wiped.reason;  // online: P = l = 1
  const Claim& lost = fixed_claim(wiped, "product.flush");
  EXPECT_EQ(lost.row, 0);
  EXPECT_EQ(lost.value.hi(), whole.value.hi() * 0x1p16);  // a power of two: nothing is rounded

  // every row sees the largest value: it is all that counts
  const HeadReport same = certify_head(causal(s, 1, 0x1p-16), kernel, options);
  EXPECT_EQ(fixed_claim(same, "product.flush").value.hi(), whole.value.hi());
  // all values are 0: products are exact
  const HeadReport zeros = certify_head(causal(s, 0), kernel, options);
  EXPECT_EQ(zeros.verdict, Verdict::certified) << zeros.reason;
}

TEST(Values, WhateverHidesTheLargestValue) {
  const KernelModel kernel = kernel_of();
  const CertifyOptions options;
  const double s = query_of(kernel, options);
  const Matrix bias =
      cases::make_head(
          "bias", 2, 2, 2, 1, [](auto, auto) { return 0.0; },
          [](std::int64_t i, std::int64_t j) { return i == 0 && j == 1 ? -INFINITY : 0.0; },
          [](auto, auto) { return 0.0; }, fp32)
          .k;
  const std::vector<std::pair<const char*, std::function<void(Head&)>>> ways = {
      {"window", [](Head& h) { h.modifiers.window = Window{.left = 1, .right = 0}; }},
      {"segments",
       [](Head& h) {
         h.modifiers.query_segments = {4, 5};
         h.modifiers.key_segments = {4, 5};
       }},
      {"mask",
       [](Head& h) {
         h.modifiers.mask = {1, 0, 1, 1};
       }},
      {"bias", [&](Head& h) { h.modifiers.bias = bias; }},
      {"length", [](Head& h) { h.visibility.length = 1; }},
  };
  for (const auto& [name, hide] : ways) {
    SCOPED_TRACE(name);
    Head head = two_keys(s, 1);
    hide(head);
    EXPECT_EQ(certify_head(head, kernel, options).verdict, Verdict::certified);
    head = two_keys(s, 0x1p-16);
    hide(head);
    const HeadReport report = certify_head(head, kernel, options);
    EXPECT_NE(report.verdict, Verdict::certified);
    EXPECT_EQ(report.gate_note, "product.flush");
  }
  // a row that is not the first
  const Head last = cases::make_head(
      "last", 2, 2, 1, 1, [&](auto, auto) { return s; },
      [](std::int64_t j, auto) { return j == 0 ? 1.0 : -1.0; },
      [](std::int64_t j, auto) { return j == 0 ? 1.0 : 0x1p-16; }, fp32);
  Head hidden = last;
  hidden.modifiers.query_segments = hidden.modifiers.key_segments = {4, 5};
  EXPECT_EQ(certify_head(hidden, kernel, options).gate_note, "product.flush");
  EXPECT_EQ(certify_head(last, kernel, options).verdict, Verdict::certified);
  // every row sees the largest value
  EXPECT_EQ(certify_head(two_keys(s, 0x1p-16), kernel, options).gate_note, "");
}

// Algorithm 1 with flushed products: mu = s - 126, exponent of row 0 126 - 2 s = -110, P v = 2^-127
// is flushed: all of the row, and 2^-17 of l times the head's largest value.
TEST(Values, RowsThatAreCertainlyWipedOutAreRefuted) {
  const KernelModel kernel =
      kernel_of("[numerator]\nflush_to_zero = true\nrounded_products = true\n");
  CertifyOptions options;
  options.policy = Policy::clis_alg1;
  const HeadReport kept = certify_head(causal(118, 1), kernel, options);
  EXPECT_EQ(kept.verdict, Verdict::certified) << kept.reason;
  const HeadReport wiped = certify_head(causal(118, 0x1p-17), kernel, options);
  EXPECT_EQ(wiped.verdict, Verdict::refuted) << wiped.reason;
  EXPECT_EQ(wiped.binding, "product.flush");
  const Claim& lost = fixed_claim(wiped, "product.flush");
  EXPECT_EQ(lost.row, 0);
  EXPECT_NEAR(lost.value.lo(), 1, 1e-4);
}

TEST(Values, LargestOfRuns) {
  Random g(8);
  for (const std::int64_t n : {1, 63, 64, 65, 128, 300}) {
    std::vector<double> x;
    for (std::int64_t j = 0; j < n; ++j) {
      x.push_back(static_cast<double>(simulation::below(g, 1000)));
    }
    const RunMaximum maxima(x);
    for (std::int64_t begin = 0; begin <= n; ++begin) {
      double most = 0;
      ASSERT_EQ(maxima.of({begin, begin}), 0);
      for (std::int64_t end = begin + 1; end <= n; ++end) {
        most = std::max(most, x[static_cast<std::size_t>(end - 1)]);
        ASSERT_EQ(maxima.of({begin, end}), most) << begin << " to " << end << " of " << n;
      }
    }
  }
}

TEST(Values, LargestThatEachRowSees) {
  const KernelModel kernel = kernel_of();
  Random g(30);
  int rows = 0, smaller = 0;
  for (int i = 0; i < 300; ++i) {
    Head head = simulation::random_head(g, kernel, 100);
    if (i % 3 != 0) simulation::add_modifiers(g, head);
    const UpwardRounding up;
    const Operands operands(up, head, kernel);
    const AttentionProblem problem(head);
    for (const bool by_passes : {false, true}) {
      const HeadScan scan = scan_head(up, head, kernel, operands, by_passes);
      if (!scan.finite) continue;
      std::vector<double> v(static_cast<std::size_t>(head.value_channels()));
      for (std::int64_t r = 0; r < head.queries(); ++r) {
        double most = 0;
        for (std::int64_t j = 0; j < head.keys(); ++j) {
          if (!problem.visible(r, j)) continue;
          head.v.load_row(j, v.data());
          for (const double x : v) most = std::max(most, std::fabs(x));
        }
        ASSERT_EQ(scan.rows[static_cast<std::size_t>(r)].v_magnitude, most)
            << "head " << i << " row " << r;
        ++rows;
        smaller += most > 0 && most < scan.v_magnitude ? 1 : 0;
      }
    }
  }
  EXPECT_GT(rows, 2000);
  EXPECT_GT(smaller, 200);
}

}  // namespace
}  // namespace headroom
