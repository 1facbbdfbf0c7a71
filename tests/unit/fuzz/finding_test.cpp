// Findings as files: there and back, refusals, replay, snippets.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "fuzz/finding.h"
#include "fuzz/random.h"
#include "reference/head/write.h"
#include "reference/input_error.h"
#include "tests/unit/fuzz/failing_heads.h"

namespace headroom::fuzz {
namespace {

Finding finding_of(const FailingHead& f) {
  Finding finding;
  finding.target = f.target;
  finding.candidate = f.candidate;
  finding.objective = f.objective;
  finding.diagnosis = diagnose(f.target, f.candidate, f.objective);
  finding.text = explain(f.target, f.candidate, finding.diagnosis);
  return finding;
}

std::vector<FailingHead> all_failing() {
  return {two_levels(),
          huge_values(),
          flushed_reciprocal(),
          flushed_products(),
          merged_in_the_wrong_base(Objective::partition),
          padded_backward(),
          saturated_weights(),
          lost_nan(),
          read_padding(),
          rounded_gate(),
          refused_and_accurate()};
}

TEST(Finding, ThereAndBack) {
  for (const FailingHead& f : all_failing()) {
    const Finding a = finding_of(f);
    ASSERT_TRUE(a.diagnosis.met) << to_text(f.objective) << ": " << a.diagnosis.verdict;
    const std::string text = finding_text(a);
    const Finding b = parse_finding(text, "there");
    EXPECT_TRUE(b.candidate == a.candidate);
    EXPECT_EQ(b.target.kernel, a.target.kernel);
    EXPECT_EQ(b.class_name(), a.class_name());
    EXPECT_EQ(finding_text(b), text);
    EXPECT_TRUE(replay(b).reproduces) << to_text(f.objective);
  }
}

/// Every member away from its default, and every kind of special number.
TEST(Finding, EveryMemberIsKept) {
  FailingHead f = saturated_weights();
  const float inf = std::numeric_limits<float>::infinity();
  f.candidate = make_candidate({3, 5, 2, 2});
  Random random(5);
  for (std::vector<float>* x : {&f.candidate.q, &f.candidate.k, &f.candidate.v}) {
    for (float& a : *x) a = static_cast<float>(random.normal());
  }
  Setting& s = f.candidate.setting;
  s.mask = MaskKind::causal_bottom_right;
  s.length = 4;
  s.window = Window{2, -1};
  s.query_segments = {1, 1, -2};
  s.key_segments = {1, 1, -2, 1, 7};
  s.visible = {1, 0, 1, 1, 1};
  s.bias.assign(15, 0.1F);
  s.bias[3] = -inf;
  s.bias[4] = -0.0F;
  s.softcap = 0.1;
  s.sink = -3.7;
  f.candidate.k[8] = std::numeric_limits<float>::quiet_NaN();  // padding
  f.candidate.v[9] = -inf;
  f.candidate.q[0] = -0.0F;
  f.candidate.q[1] = 0x1p-133F;
  round_operands(f.candidate, f.target.kernel.operand);
  Finding a = finding_of(f);
  Target& t = a.target;
  t.stabilizer = "fdpp";
  t.parameters = {{"phi", 1e-300}, {"a", -HUGE_VAL}, {"b", HUGE_VAL}};
  t.gate = GateChoice::own;
  t.policy = Policy::fa4;
  t.policy_parameters = {{"threshold", std::nan("")}};
  t.scale = Scale::base2(Rational(1, 3));
  t.eps = 0.1;
  t.tolerance = 0x1p-1074;
  t.how.order = FreeOrder::random;
  t.how.exp2 = UnitChoice::lowest;
  t.how.reciprocal = UnitChoice::highest;
  t.how.seed = std::numeric_limits<std::uint64_t>::max();
  Diagnosis& d = a.diagnosis;
  d = {};
  d.objective = a.objective;
  d.met = true;
  d.stage = "p";
  d.event = "saturation";
  d.claim = "p.range";
  d.row = 2;
  d.channel = 1;
  d.key = 4;
  d.tile = 0;
  d.found = std::nan("");
  d.exact_lo = -0.0;
  d.exact_hi = 0x1.fffffffffffffp+1023;
  d.amount = HUGE_VAL;
  d.limit = -HUGE_VAL;
  d.verdict = "undecided";
  d.gate_value = 0.3;
  d.gate_limit = -0x1p-1074;
  d.variant = "split.parts = 3";
  d.variant_found = 7;
  d.output.assign(6, 0.1F);
  d.output[2] = -inf;
  d.lse = {-inf, 0x1p-149F, std::numeric_limits<float>::quiet_NaN()};
  a.text = "one \"line\" with \\ and more";
  const std::string text = finding_text(a);
  const Finding b = parse_finding(text, "there");
  EXPECT_EQ(finding_text(b), text);
  EXPECT_TRUE(b.candidate == a.candidate);
  EXPECT_EQ(b.target.parameters, a.target.parameters);
  EXPECT_TRUE(std::isnan(b.target.policy_parameters.at("threshold")));
  EXPECT_EQ(b.target.scale, a.target.scale);
  EXPECT_EQ(b.target.eps, a.target.eps);
  EXPECT_EQ(b.target.tolerance, a.target.tolerance);
  EXPECT_EQ(b.target.how.seed, a.target.how.seed);
  EXPECT_EQ(b.target.how.order, a.target.how.order);
  EXPECT_EQ(b.target.how.exp2, a.target.how.exp2);
  EXPECT_EQ(b.target.how.reciprocal, a.target.how.reciprocal);
  EXPECT_EQ(b.diagnosis.exact_hi, d.exact_hi);
  EXPECT_TRUE(std::signbit(b.diagnosis.exact_lo));
  EXPECT_TRUE(std::isnan(b.diagnosis.found));
  EXPECT_EQ(b.diagnosis.limit, d.limit);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(b.diagnosis.lse[1]), 1U);
  EXPECT_EQ(b.text, a.text);
}

/// The words of one head are what the format's definition says.
TEST(Finding, WordsAreBitPatterns) {
  FailingHead f = flushed_products();
  const std::string text = finding_text(finding_of(f));
  // bf16: 213 = 1.1010101b 2^7, 0.30078125 = 1.0011010b 2^-2
  EXPECT_NE(text.find("\"4355 0000\""), std::string::npos);
  EXPECT_NE(text.find("\"3e9a\""), std::string::npos);
  EXPECT_NE(text.find("\"schema\": \"headroom.finding/1\""), std::string::npos);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

TEST(Finding, WhatIsWrongIsNamed) {
  const std::string good = finding_text(finding_of(flushed_products()));
  const struct {
    std::string text, part;
  } bad[] = {
      {"", "there"},
      {"[]", "there: found a list, expected an object"},
      {good.substr(0, good.size() / 2), "there"},
      {replaced(good, "headroom.finding/1", "headroom.finding/2"), "schema: found"},
      {replaced(good, "\"objective\"", "\"objectiv\""), "objectiv"},
      {replaced(good, "\"zero-row\"", "\"zero-rows\""), "zero-rows"},
      {replaced(good, "\"met\": true", "\"met\": true, \"met\": true"), "met"},
      {replaced(good, "\"queries\": 1", "\"queries\": 2"), "expected 2"},
      {replaced(good, "\"keys\": 2", "\"keys\": 1000000000"), "k: found 2 rows"},
      {replaced(good, "\"channels\": 2", "\"channels\": 1000000000"), "expected the words"},
      {replaced(good, "\"keys\": 2", "\"keys\": 0"), "keys: found 0"},
      {replaced(good, "\"keys\": 2", "\"keys\": 1e3"), "keys: found"},
      {replaced(good, "4355 0000", "4355 000g"), "'g'"},
      {replaced(good, "4355 0000", "4355 00000"), "characters"},
      {replaced(good, "4355 0000", "4355-0000"), "no space"},
      {replaced(good, "\"bf16\"", "\"fp16\""), "the kernel's operand"},
      {replaced(good, "\"own\"", "\"mine\""), "gate"},
      {replaced(good, "\"fixed-m\"", "\"fixed-q\""), "fixed-q"},
      {replaced(good, "\"parameters\": {}", "\"parameters\": {\"gap\": \"0x1p0\"}"), "gap"},
      {replaced(good, "\"parameters\": {}", "\"parameters\": {\"cap\": \"88\"}"), "'88'"},
      {replaced(good, "\"tolerance\": \"", "\"tolerance\": \"-"), "a positive number"},
      {replaced(good, "\"scale\": \"", "\"scale\": \"x"), "scale"},
      {replaced(good, "complete = true", "complete = maybe"), "kernel"},
      {replaced(good, "\"kernel_sha256\": \"", "\"kernel_sha256\": \"0"), "kernel_sha256"},
      {replaced(good, "\"length\": 2", "\"length\": 3"), "length"},
      {replaced(good, "\"mask\": \"none\"", "\"mask\": \"causal\""), "setting"},
      {replaced(good, "\"setting\": {", "\"setting\": {\"visible\": [\"012\"],"), "digits 0 or 1"},
      {replaced(good, "\"setting\": {", "\"setting\": {\"sink\": \"inf\","), "setting"},
      {replaced(good, "\"row\": 0", "\"row\": 1"), "row"},
      {replaced(good, "\"text\": \"", "\"text\": \"\\n"), "control"},
  };
  for (const auto& [text, part] : bad) {
    try {
      parse_finding(text, "there");
      ADD_FAILURE() << "read although it should say " << part;
    } catch (const InputError& error) {
      const std::string line = error.what();
      EXPECT_NE(line.find(part), std::string::npos) << line << "\n  lacks " << part;
      EXPECT_TRUE(line.starts_with("there")) << line;
      EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    }
  }
  EXPECT_NO_THROW(parse_finding(good, "there"));
}

TEST(Finding, ReplaySeesOtherBits) {
  Finding f = finding_of(huge_values());
  EXPECT_TRUE(replay(f).reproduces);
  f.diagnosis.lse[0] = std::nextafter(f.diagnosis.lse[0], 0.0F);
  Replay r = replay(f);
  EXPECT_FALSE(r.reproduces);
  EXPECT_FALSE(r.same_bits);
  EXPECT_TRUE(r.diagnosis.met);
  f = finding_of(huge_values());
  f.candidate.v.assign(9, 1);
  r = replay(f);
  EXPECT_FALSE(r.reproduces);
  EXPECT_FALSE(r.diagnosis.met);
}

TEST(Finding, OneParagraph) {
  for (const FailingHead& f : all_failing()) {
    const Finding a = finding_of(f);
    EXPECT_EQ(a.text.find('\n'), std::string::npos);
    EXPECT_NE(a.text.find(a.target.kernel.name), std::string::npos);
    EXPECT_GT(a.text.size(), 100U);
    EXPECT_LT(a.text.size(), 1500U);
  }
  const std::string text = finding_of(huge_values()).text;
  EXPECT_NE(text.find("output channel 0 is infinity"), std::string::npos) << text;
  EXPECT_NE(text.find("2.19902e+12 (0x1p+41)"), std::string::npos) << text;
  EXPECT_NE(text.find("`numerator`"), std::string::npos) << text;
}

/// The findings of examples/ replay bit for bit. HEADROOM_WRITE_FINDINGS=FOLDER writes them anew.
TEST(Finding, Examples) {
  const std::pair<const char*, FailingHead> examples[] = {
      {"lost-mass", two_levels()},
      {"zero-row", flushed_products()},
      {"wrong-base", merged_in_the_wrong_base(Objective::partition)}};
  for (const auto& [name, head] : examples) {
    const Finding made = finding_of(head);
    if (const char* folder = std::getenv("HEADROOM_WRITE_FINDINGS")) {
      atomic_write_file(std::string(folder) + "/" + name + ".headroom", finding_text(made));
      continue;
    }
    const Finding f =
        read_finding(std::string(HEADROOM_EXAMPLES "/findings/") + name + ".headroom");
    EXPECT_TRUE(replay(f).reproduces) << name;
    EXPECT_TRUE(f.candidate == made.candidate) << name;
    EXPECT_EQ(f.text, explain(f.target, f.candidate, replay(f).diagnosis)) << name;
  }
}

TEST(Finding, Snippets) {
  const Finding f = finding_of(flushed_products());
  const std::string torch = test_snippet(f, "pytorch");
  EXPECT_NE(torch.find("def test_headroom_zero_row_numerator():"), std::string::npos) << torch;
  EXPECT_NE(torch.find("4355 0000"), std::string::npos);
  EXPECT_NE(torch.find("3e9a0000"), std::string::npos);  // 0.30078125, exactly, in FP32
  EXPECT_NE(test_snippet(f, "jax").find("import jax"), std::string::npos);
  const std::string cpp = test_snippet(f, "c++");
  EXPECT_NE(cpp.find("TEST(HeadroomFinding, ZeroRowNumerator)"), std::string::npos);
  EXPECT_THROW(test_snippet(f, "fortran"), InputError);
}

}  // namespace
}  // namespace headroom::fuzz
