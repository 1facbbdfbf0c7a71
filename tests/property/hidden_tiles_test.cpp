// Claims of online softmax where a query block visits tiles that a row cannot see: its maximum
// stays, yet l and O are multiplied by E(0), which a unit that promises only an error bound need
// not make 1.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "fuzz/claim_checks.h"
#include "reference/evaluate/simulate/compare.h"
#include "reference/model/kernel_file.h"

namespace headroom::simulation {
namespace {

constexpr std::int64_t queries = 64;

Head causal_head() {
  const auto ones = [](std::int64_t rows) {
    return Matrix::from_values(bf16, rows, 1,
                               std::vector<double>(static_cast<std::size_t>(rows), 1));
  };
  Head head;
  head.id = "ones";
  head.layout = "nd";
  head.q = ones(queries);
  head.k = ones(queries);
  head.v = ones(queries);
  head.stored_q = head.stored_k = head.stored_v = bf16;
  head.scale = Scale::base2(1);
  head.scale_source = head.mask_source = "option";
  head.visibility.kind = MaskKind::causal;
  head.visibility.queries = head.visibility.keys = head.visibility.length = queries;
  return head;
}

// The first row sees one key of 64 tiles: l = E(0) and 64 factors of E(0), all 1 - 90 ulp at worst.
TEST(HiddenTiles, ArePartOfTheBoundsOfADenominator) {
  KernelModel kernel = preset("tpu7x");
  kernel.tiles.keys = 1;
  kernel.tiles.queries = queries;
  ASSERT_FALSE(kernel.exp2.monotone_at_integers);
  const Head head = causal_head();
  CertifyOptions options;
  options.policy = Policy::online;
  const HeadReport report = certify_head(head, kernel, options);
  ASSERT_EQ(report.verdict, Verdict::certified);
  const AttentionProblem stored(head);
  const std::vector<std::int64_t> rows = all_rows(stored);
  const EnclosedRows exact = enclosures(multiplied_problem(stored, kernel).value(), rows, {});
  SimulationOptions how;
  how.exp2 = UnitChoice::lowest;
  for (const auto& loop : certified_loops(report, head, kernel, true)) {
    const Simulated run = simulate(stored, kernel, *loop, rows, how);
    // 65 factors, less a little for roundings
    EXPECT_LT(run.denominator[0], std::pow(1 - 80 * 0x1p-24, 65));
    check_claims(report, kernel, head, rows, run, exact, [](const ClaimViolation& found) {
      ADD_FAILURE() << "row " << found.row << ": " << found.what << " " << found.found;
    });
  }
}

}  // namespace
}  // namespace headroom::simulation
