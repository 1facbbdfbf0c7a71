#include "certify/bias_absorption.h"

#include <algorithm>
#include <cmath>

#include "certify/row_scores.h"

namespace headroom {

// Scores and biases are in one unit, so log2(e) matters to neither comparison: |s| below a quarter
// of an ulp of b leaves RN(s + b) = b, a power of two included, below which numbers are twice as
// dense.
std::optional<AbsorbedRow> absorbed_by_bias(const UpwardRounding&, const Head& head,
                                            const KernelModel& kernel, const Operands& operands,
                                            const HeadScan& scan) {
  if (!head.modifiers.bias) return {};
  std::optional<AbsorbedRow> worst;
  const int p = kernel.score.store.precision;
  for (std::int64_t i = 0; i < head.queries(); ++i) {
    const RowScan& row = scan.rows[static_cast<std::size_t>(i)];
    if (row.visible < 2) continue;
    Interval reach = abs(operands.score_factor()) * row.norm * scan.key_norm;
    if (scan.softcap) reach = min(reach, *scan.softcap);
    if (!(reach.hi() > 0)) continue;
    const Interval of_score = log2(Interval(reach.hi()));
    // the row's largest bias first: most rows are done with it
    if (!(row.bias.largest > 0) || of_score.lo() > std::ilogb(row.bias.largest) - p - 1) continue;
    double least = row.bias.largest;
    for (const KeyRange& run : visible_runs(head, i)) {
      for (std::int64_t j = run.begin; j < run.end; ++j) {
        least = std::min(least, std::fabs(head.modifiers.bias_at(i, j)));
      }
    }
    if (!(least > 0)) continue;
    const double bits = (Interval(std::ilogb(least) - p - 1) - of_score).lo();
    if (bits > 0 && (!worst || bits > worst->bits)) worst = AbsorbedRow{i, bits};
  }
  return worst;
}

}  // namespace headroom
