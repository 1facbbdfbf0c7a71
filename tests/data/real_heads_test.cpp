// Every head of the shared folder under every preset and policy: no row of a certified head fails
// by exact evaluation, no refuted head is right, and a table of what stays uncertified and why.
//
// Exact evaluation here is this test's own loop in 64-bit precision over the operands as the matrix
// unit multiplies them, independent of the certifier's interval code. Prints one line a preset;
// HEADROOM_REPORT=1 adds a line a head that is not certified.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>

#include "bounds/exp2_unit.h"
#include "certify/certify.h"
#include "certify/head_scan.h"
#include "reference/evaluate/exact_attention.h"
#include "reference/head/load.h"
#include "reference/model/kernel_file.h"
#include "tests/shared_data.h"

namespace headroom {
namespace {

std::filesystem::path shared;

std::vector<std::string> head_files() {
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(shared / "data" / "heads")) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// K~ of a head, the middle of each element's enclosure (a point but for uncertain means).
std::vector<double> multiplied_keys(const Operands& operands, std::int64_t keys) {
  const auto d = static_cast<std::size_t>(operands.channels());
  std::vector<double> all(static_cast<std::size_t>(keys) * d), lo(d), hi(d);
  for (std::int64_t j = 0; j < keys; ++j) {
    operands.key_row(j, lo.data(), hi.data());
    for (std::size_t c = 0; c < d; ++c) {
      all[static_cast<std::size_t>(j) * d + c] = (lo[c] + hi[c]) / 2;
    }
  }
  return all;
}

/// z~ of a row in 64-bit precision, by plain loops of this test's own: its error is below 2^-50
/// relative to |q||k|, far below the margins compared.
std::vector<long double> scores(const Operands& operands, const std::vector<double>& keys,
                                const KeyRange& visible, std::int64_t row, long double factor) {
  const auto d = static_cast<std::size_t>(operands.channels());
  std::vector<double> q(d);
  operands.query_row(row, q.data());
  std::vector<long double> z;
  for (std::int64_t j = visible.begin; j < visible.end; ++j) {
    const double* k = &keys[static_cast<std::size_t>(j) * d];
    long double sum = 0;
    for (std::size_t c = 0; c < d; ++c) sum += static_cast<long double>(q[c]) * k[c];
    z.push_back(factor * sum);
  }
  return z;
}

class RealHeads : public testing::TestWithParam<std::string> {};

TEST_P(RealHeads, NoCertifiedRowFails) {
  const KernelModel kernel = preset(GetParam());
  std::map<Verdict, int> verdicts;
  std::map<std::string, int> binding;
  std::int64_t rows_checked = 0;
  int safe_but_uncertified = 0, heads_seen = 0;
  for (const std::string& file : head_files()) {
    LoadOptions load;
    load.operand = kernel.operand;
    load.cast = true;
    const std::vector<Head> heads = load_heads(file, load);
    CertifyOptions options;
    const std::vector<HeadReport> reports = certify_heads(heads, kernel, options);
    for (std::size_t h = 0; h < heads.size(); ++h) {
      const Head& head = heads[h];
      const HeadReport& report = reports[h];
      ++heads_seen;
      ++verdicts[report.verdict];
      const UpwardRounding up;
      const Operands operands(up, head, kernel);
      const HeadScan scan = scan_head(up, head, kernel, operands);
      if (!scan.finite) {
        EXPECT_EQ(report.verdict, Verdict::refuted);
        continue;
      }
      const auto stabilizer = make_fixed_stabilizer(up, Policy::clis, head, kernel, operands, scan,
                                                    norms_of(scan), options.eps);
      const double flush =
          std::max(exp2_flush_exponent(kernel.exp2), weight_flush_exponent(kernel.p));
      const long double factor = static_cast<long double>(operands.score_factor().lo());
      const std::vector<double> keys = multiplied_keys(operands, head.visibility.length);
      bool safe = true;
      for (std::int64_t i = 0; i < head.queries(); ++i) {
        const KeyRange visible = head.visibility.visible(i);
        if (visible.count() == 0) continue;
        ++rows_checked;
        const Interval mu = stabilizer->mu(i);
        long double all = 0, lost = 0, largest = -INFINITY;
        const std::vector<long double> z = scores(operands, keys, visible, i, factor);
        for (const long double x : z) largest = std::max(largest, x);
        for (const long double x : z) {
          const long double weight = std::exp2(x - largest);
          all += weight;
          if (x - mu.hi() < flush) lost += weight;  // the latest it can be flushed
        }
        const bool row_fails = lost / all > options.eps ||
                               largest - mu.lo() > stabilizer->cap() + 1e-3 ||
                               largest - mu.hi() < flush;
        safe = safe && !row_fails;
        if (report.verdict == Verdict::certified) {
          EXPECT_FALSE(row_fails) << head.id << " row " << i << ": largest "
                                  << static_cast<double>(largest) << " mu [" << mu.lo() << ", "
                                  << mu.hi() << "] lost " << static_cast<double>(lost / all);
        }
      }
      if (report.verdict != Verdict::certified) {
        ++binding[report.verdict == Verdict::fallback ? "gate: " + report.gate_note
                                                      : report.binding];
        if (safe) ++safe_but_uncertified;
        if (std::getenv("HEADROOM_REPORT") != nullptr) {
          std::printf("  %-40s %-10s %-16s %-16s gate %.2f of %.2f%s\n", head.id.c_str(),
                      std::string(to_text(report.verdict)).c_str(), report.binding.c_str(),
                      report.gate_note.c_str(), report.gate_value.hi(), report.gate_limit,
                      safe ? " (safe by exact evaluation)" : "");
        }
      }
    }
  }
  std::printf(
      "%-16s %d heads, %lld rows: %d certified, %d fallback, %d undecided, %d refuted; %d "
      "safe heads not certified",
      GetParam().c_str(), heads_seen, static_cast<long long>(rows_checked),
      verdicts[Verdict::certified], verdicts[Verdict::fallback], verdicts[Verdict::undecided],
      verdicts[Verdict::refuted], safe_but_uncertified);
  for (const auto& [id, count] : binding) std::printf("; %s %d", id.c_str(), count);
  std::printf("\n");
  EXPECT_GT(heads_seen, 100);
}

// Case G: a real causal head that Algorithm 1's published gate accepts with 22.7 bits to spare, and
// one row of which is all zero (its best exponent is -128.1).
TEST(CaseG, ThePublishedGateAcceptsAHeadWithAnEmptyRow) {
  const KernelModel kernel = parse_kernel(
      "name = \"algorithm-1\"\nmachine = \"tpu7x\"\noperand = \"fp32\"\n"
      "[scale]\nscale = \"score\"\nlog2e = \"score\"\nconstant = \"fp32\"\n"
      "arithmetic = \"fp32\"\n"
      "[centring]\nkeys = \"mean\"\nmean = \"fp32\"\ndifference = \"fp32\"\n"
      "[exp2]\nunit = \"correctly-rounded\"\nflush_to_zero = true\n",
      "case-g.toml");
  LoadOptions load;
  load.operand = kernel.operand;
  load.heads = "layer1.*:0";
  const std::vector<Head> heads = load_heads(
      (shared / "data" / "heads" / "third-party" / "stories260k_f32.safetensors").string(), load);
  ASSERT_EQ(heads.size(), 1U);
  CertifyOptions options;
  options.policy = Policy::clis_alg1;
  const HeadReport published = certify_head(heads[0], kernel, options);
  EXPECT_EQ(published.cap, 117);
  EXPECT_NEAR(published.gate_value.hi(), 220.3, 0.05);
  EXPECT_EQ(published.gate_limit, 117 + 126);
  EXPECT_EQ(published.gate_accepts, Tri::yes);
  EXPECT_EQ(published.verdict, Verdict::refuted);
  EXPECT_EQ(published.binding, "l.nonzero");
  options.policy = Policy::clis;
  const HeadReport sound = certify_head(heads[0], kernel, options);
  EXPECT_EQ(sound.gate_accepts, Tri::no);
  EXPECT_EQ(sound.verdict, Verdict::fallback) << sound.reason << " " << sound.binding;
}

INSTANTIATE_TEST_SUITE_P(Presets, RealHeads,
                         testing::Values("tpu7x", "tpu-v6e", "hopper", "ieee-fp32",
                                         "fp16-everywhere"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  headroom::shared = headroom::tests::shared_data_or_skip();
  return RUN_ALL_TESTS();
}
