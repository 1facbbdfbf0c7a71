// Real heads that are certified, run bit for bit: every preset, the policies clis and online, the
// answers of the exp2 and reciprocal units that the models allow. No claim fails.
//
// usage: simulated_heads_test [ROWS [STRIDE]]: ROWS rows a head (64; 0: all) of each STRIDE-th head
// (12). Certifying a head costs far more than running it. Kernels that the vector implementation
// does not cover are run on fewer rows. Prints a line a preset and the largest share of each bound
// that was used.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/claim_checks.h"
#include "reference/evaluate/simulate/compare.h"
#include "reference/evaluate/simulate/lanes/lanes.h"
#include "reference/head/load.h"
#include "reference/model/kernel_file.h"
#include "tests/shared_data.h"

namespace headroom::simulation {
namespace {

std::filesystem::path shared;
std::int64_t rows_a_head = 64, stride = 12;

std::vector<std::string> head_files() {
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(shared / "data" / "heads")) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// How many rows of a head are run; 0: all of them.
std::int64_t row_count(const AttentionProblem& stored, const KernelModel& kernel) {
  if (lanes_cover(stored, kernel, {})) return rows_a_head;
  return rows_a_head == 0 ? 64 : std::max<std::int64_t>(rows_a_head / 8, 1);
}

/// Rows at equal distances, the last one included: the last row of a causal head sees every key.
std::vector<std::int64_t> some_rows(std::int64_t queries, std::int64_t count) {
  const std::int64_t n = count == 0 ? queries : std::min(queries, count);
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 1; i <= n; ++i) rows.push_back(i * queries / n - 1);
  return rows;
}

/// What a unit with an error bound may answer, exp2's and the reciprocal's.
struct Choices {
  UnitChoice exp2, reciprocal;
};
constexpr Choices all_choices[] = {{UnitChoice::nearest, UnitChoice::nearest},
                                   {UnitChoice::lowest, UnitChoice::highest},
                                   {UnitChoice::highest, UnitChoice::lowest},
                                   {UnitChoice::random, UnitChoice::random}};

class SimulatedHeads : public testing::TestWithParam<std::string> {
 protected:
  void run_head(const Head& head, const HeadReport& report, const EnclosedRows& exact,
                const std::vector<std::int64_t>& rows) {
    const AttentionProblem stored(head);
    for (std::size_t i = 0; i < std::size(all_choices); ++i) {
      SimulationOptions how;
      how.exp2 = all_choices[i].exp2;
      how.reciprocal = all_choices[i].reciprocal;
      how.seed = 1;
      for (const auto& loop : certified_loops(report, head, kernel_, i % 2 == 0)) {
        const Simulated run = simulate(stored, kernel_, *loop, rows, how);
        vectorised_ += run.vectorised ? 1 : 0;
        ++runs_;
        rows_ += static_cast<long>(rows.size());
        for (const ClaimUse& use : check_claims(
                 report, kernel_, head, rows, run, exact, [&](const ClaimViolation& found) {
                   ADD_FAILURE() << head.id << " row " << found.row << ", " << loop->name()
                                 << ", choices " << i << ": " << found.what << ": " << found.found
                                 << " against " << found.expected;
                 })) {
          double& most = most_used_[std::string(use.claim) + ", " + report.stabilizer];
          most = std::max(most, use.share);
        }
      }
    }
  }

  KernelModel kernel_;
  long runs_ = 0, rows_ = 0, vectorised_ = 0;
  std::map<std::string, double> most_used_;
};

TEST_P(SimulatedHeads, NoCertifiedClaimFails) {
  kernel_ = preset(GetParam());
  std::map<Policy, long> certified;
  long heads_seen = 0;
  std::size_t place = GetParam().size();  // other heads for each preset
  for (const std::string& file : head_files()) {
    LoadOptions load;
    load.operand = kernel_.operand;
    load.cast = true;
    std::vector<Head> heads;
    for (const Head& head : load_heads(file, load)) {
      if (place++ % static_cast<std::size_t>(stride) == 0) heads.push_back(head);
    }
    heads_seen += static_cast<long>(heads.size());
    std::map<Policy, std::vector<HeadReport>> reports;
    for (const Policy policy : {Policy::clis, Policy::online}) {
      CertifyOptions options;
      options.policy = policy;
      reports[policy] = certify_heads(heads, kernel_, options);
    }
    for (std::size_t h = 0; h < heads.size(); ++h) {
      const AttentionProblem stored(heads[h]);
      const std::vector<std::int64_t> rows =
          some_rows(stored.queries(), row_count(stored, kernel_));
      std::optional<EnclosedRows> exact;
      for (const auto& [policy, of_policy] : reports) {
        if (of_policy[h].verdict != Verdict::certified) continue;
        ++certified[policy];
        if (!exact) exact = enclosures(multiplied_problem(stored, kernel_).value(), rows, {});
        run_head(heads[h], of_policy[h], *exact, rows);
      }
    }
  }
  std::printf(
      "%-16s %ld heads: %ld certified by clis, %ld by online; %ld runs (%ld vectorised), %ld "
      "rows\n",
      GetParam().c_str(), heads_seen, certified[Policy::clis], certified[Policy::online], runs_,
      vectorised_, rows_);
  for (const auto& [what, share] : most_used_) std::printf("  %-24s %.6f\n", what.c_str(), share);
  EXPECT_GT(heads_seen, 240 / stride);
  EXPECT_GT(runs_, 0);
}

INSTANTIATE_TEST_SUITE_P(Presets, SimulatedHeads,
                         testing::Values("tpu7x", "tpu-v6e", "hopper", "ieee-fp32",
                                         "fp16-everywhere"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace headroom::simulation

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) headroom::simulation::rows_a_head = std::atoll(argv[1]);
  if (argc > 2) headroom::simulation::stride = std::atoll(argv[2]);
  headroom::simulation::shared = headroom::tests::shared_data_or_skip();
  return RUN_ALL_TESTS();
}
