// Shrinking: heads become as small as theory allows and fail as before.
#include <gtest/gtest.h>

#include <cmath>

#include "fuzz/random.h"
#include "fuzz/shrink.h"
#include "tests/unit/fuzz/failing_heads.h"

namespace headroom::fuzz {
namespace {

Finding finding_of(const FailingHead& f) {
  Finding finding;
  finding.target = f.target;
  finding.candidate = f.candidate;
  finding.objective = f.objective;
  finding.diagnosis = diagnose(f.target, f.candidate, f.objective);
  return finding;
}

/// The failing head among other rows and channels, every number a little different.
FailingHead buried(FailingHead f, std::int64_t rows, std::int64_t channels, double noise) {
  Random random(11);
  const Candidate& was = f.candidate;
  Shape shape = was.shape;
  shape.queries = rows;
  shape.channels += channels;
  shape.value_channels += 2;
  Candidate c = make_candidate(shape, was.setting);
  const std::int64_t row = rows / 2;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t t = 0; t < was.shape.channels; ++t) {
      c.query(i)[t] = i == row ? was.query(0)[t] : static_cast<float>(random.normal());
    }
  }
  for (std::int64_t j = 0; j < shape.keys; ++j) {
    for (std::int64_t t = 0; t < was.shape.channels; ++t) c.key(j)[t] = was.key(j)[t];
    for (std::int64_t t = was.shape.channels; t < shape.channels; ++t) {
      c.key(j)[t] = static_cast<float>(noise * random.normal());
    }
    for (std::int64_t t = 0; t < shape.value_channels; ++t) {
      const float v = was.value(j)[0];
      c.value(j)[t] = t == 0 ? v : v * static_cast<float>(random.uniform());
    }
  }
  round_operands(c, f.target.kernel.operand);
  f.candidate = c;
  return f;
}

void expect_smaller(const FailingHead& f, const Shape& most) {
  const Finding before = finding_of(f);
  ASSERT_TRUE(before.diagnosis.met) << before.diagnosis.verdict;
  std::int64_t runs = 0;
  ShrinkOptions options;
  options.progress = [&](std::int64_t done, const Candidate&) { runs = done; };
  const Finding after = shrink(before, options);
  EXPECT_TRUE(after.diagnosis.met);
  EXPECT_EQ(after.diagnosis.stage, before.diagnosis.stage);
  EXPECT_EQ(after.diagnosis.claim, before.diagnosis.claim);
  const Shape& s = after.candidate.shape;
  EXPECT_LE(s.queries, most.queries);
  EXPECT_LE(s.keys, most.keys);
  EXPECT_LE(s.channels, most.channels);
  EXPECT_LE(s.value_channels, most.value_channels);
  EXPECT_TRUE(replay(after).reproduces);
  EXPECT_FALSE(after.text.empty());
  // again, with nothing left to take
  const Finding again = shrink(after, {});
  EXPECT_TRUE(again.candidate == after.candidate);
  std::printf(
      "%s: %lld x %lld x %lld x %lld to %lld x %lld x %lld x %lld in %lld runs\n",
      std::string(to_text(f.objective)).c_str(), static_cast<long long>(f.candidate.shape.queries),
      static_cast<long long>(f.candidate.shape.keys),
      static_cast<long long>(f.candidate.shape.channels),
      static_cast<long long>(f.candidate.shape.value_channels), static_cast<long long>(s.queries),
      static_cast<long long>(s.keys), static_cast<long long>(s.channels),
      static_cast<long long>(s.value_channels), static_cast<long long>(runs));
  const auto show = [](const char* name, const std::vector<float>& x) {
    std::printf("  %s", name);
    for (std::size_t i = 0; i < std::min<std::size_t>(x.size(), 24); ++i) {
      std::printf(" %g", static_cast<double>(x[i]));
    }
    std::printf("\n");
  };
  show("q", after.candidate.q);
  show("k", after.candidate.k);
  show("v", after.candidate.v);
  if (!(again.candidate == after.candidate)) {
    show("again q", again.candidate.q);
    show("again k", again.candidate.k);
    show("again v", again.candidate.v);
  }
}

TEST(Shrink, TwoLevelsBehindAGate) {
  expect_smaller(buried(two_levels(), 5, 5, 0.01), {1, 8, 4, 1});
}
TEST(Shrink, AnOverflowingNumerator) {
  FailingHead f = huge_values();
  f.candidate =
      head_of_rows(1, 1, {1}, std::vector<float>(40, 0.0F), std::vector<float>(40, 0x1.3p43F));
  // a tile of 8 that is not the last, and one key more
  expect_smaller(buried(f, 4, 7, 0), {1, 9, 1, 1});
}
TEST(Shrink, AnOverflowOfManyKeys) {
  FailingHead f = huge_values();
  // 2^88 2^35 32 = 2^128, in all tiles but the last
  f.candidate =
      head_of_rows(1, 1, {1}, std::vector<float>(41, 0.0F), std::vector<float>(41, 0x1p35F));
  expect_smaller(f, {1, 9, 1, 1});
}
TEST(Shrink, AFlushedReciprocal) {
  FailingHead f = flushed_reciprocal();
  f.candidate =
      head_of_rows(2, 1, {1, 0.5F}, std::vector<float>(64, 0.5F), std::vector<float>(32, 0.7F));
  round_operands(f.candidate, f.target.kernel.operand);
  expect_smaller(f, {1, 1, 1, 1});
}
TEST(Shrink, FlushedProducts) {
  std::vector<float> k;
  for (int j = 0; j < 64; ++j) k.insert(k.end(), {0, j % 2 == 0 ? 1.0F : -1.0F});
  FailingHead f = flushed_products();
  f.candidate = head_of_rows(2, 1, {213, 0}, k, std::vector<float>(64, 0.30078125F));
  expect_smaller(buried(f, 3, 3, 0), {1, 2, 2, 1});
}
TEST(Shrink, APaddedBackwardPass) {
  FailingHead f = padded_backward();
  f.candidate.setting.mask = MaskKind::causal_bottom_right;
  // with one key another claim of the certificate binds
  expect_smaller(f, {1, 2, 1, 1});
}
TEST(Shrink, AClippedWeight) { expect_smaller(saturated_weights(), {1, 9, 1, 1}); }
TEST(Shrink, SettingsThatDoNotMatter) {
  FailingHead f = flushed_products();
  Setting& s = f.candidate.setting;
  f.candidate = head_of_rows(2, 1, {213, 0, 213, 0, 213, 0}, {0, 1, 0, -1, 0, 1, 0, -1, 0, 0},
                             std::vector<float>(5, 0.30078125F));
  s.length = 4;
  s.mask = MaskKind::causal_bottom_right;
  s.window = Window{3, -1};
  s.query_segments = {0, 0, 0};
  s.key_segments = {0, 0, 0, 0, 1};
  const Finding after = shrink(finding_of(f), {});
  ASSERT_TRUE(after.diagnosis.met);
  EXPECT_TRUE(after.candidate.setting.plain());
  EXPECT_LE(after.candidate.shape.keys, 2);
}

TEST(Shrink, WhatDoesNotFailIsLeftAlone) {
  FailingHead f = huge_values();
  f.candidate.v.assign(9, 1);
  const Finding after = shrink(finding_of(f), {});
  EXPECT_FALSE(after.diagnosis.met);
  EXPECT_TRUE(after.candidate == f.candidate);
}

TEST(Shrink, WithinItsRuns) {
  ShrinkOptions options;
  options.most_runs = 5;
  std::int64_t runs = 0;
  options.progress = [&](std::int64_t done, const Candidate&) { runs = done; };
  const Finding after = shrink(finding_of(buried(two_levels(), 5, 5, 0.01)), options);
  EXPECT_TRUE(after.diagnosis.met);
  EXPECT_LE(runs, 5);
}

TEST(Shrink, TheSameEveryTime) {
  const Finding f = finding_of(buried(two_levels(), 3, 3, 0.01));
  EXPECT_EQ(finding_text(shrink(f, {})), finding_text(shrink(f, {})));
}

}  // namespace
}  // namespace headroom::fuzz
