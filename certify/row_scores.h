// What windows, segments, masks, biases, softcaps and sinks do to a row's scores, for its bounds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bounds/score.h"
#include "certify/head_scan.h"

namespace headroom {

/// The keys that a row sees, the bias included, as ascending runs.
std::vector<KeyRange> visible_runs(const Head& head, std::int64_t row);

/// Makes the row facts of `scan` those of a head with modifiers: which keys are visible, and the
/// mean of their capped and biased scores. Requires: everything else of `scan` is made.
///
/// **Ensures** for a row with N visible keys of scores z_j: sum_j 2^(z_j) >= N 2^mean_score, and
/// where far_keys is 0, mean_score also bounds the scores' mean from below. A softcap leaves no
/// bound but that of its smallest value: the cap of the mean score is above the mean of the capped
/// ones. Keys whose bias is more than `far_bits` below the row's largest are left out of the mean.
/// **Source** Jensen's inequality, on a subset of the keys.
void scan_modified_rows(const UpwardRounding& up, const Head& head, const Operands& operands,
                        HeadScan& scan);
inline constexpr double far_bits = 128;

/// |z^ - z| of a row's scores as they enter the exponent, for the keys that are not far: what the
/// product's arithmetic adds (score_error, bounds/score.h), then the softcap's and the bias's.
Upper<Log2> row_score_error(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                            const Operands& operands, const HeadScan& scan, const RowScan& row);
/// row_score_error for many rows. Without modifiers the score's error is at most a line in ||q~||
/// (score_error_line, bounds/score.h): it exceeds what score_error gives by roundings only.
class RowScoreErrors {
 public:
  RowScoreErrors(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                 const Operands& operands, const HeadScan& scan);
  Upper<Log2> of(const RowScan& row) const {
    return line_ ? line_->at(row.norm.hi())
                 : row_score_error(up_, head_, kernel_, operands_, scan_, row);
  }

 private:
  const UpwardRounding& up_;
  const Head& head_;
  const KernelModel& kernel_;
  const Operands& operands_;
  const HeadScan& scan_;
  std::optional<ScoreErrorLine> line_;
};
/// The same for the sink's score: its conversion to FP32 and the multiplication by log2(e).
Upper<Log2> sink_error(const HeadScan& scan);

/// By how much a score or the sink may exceed what ||q~|| max ||k~ - a|| and score_error allow:
/// what `clis` takes off its C. 0 without modifiers.
Upper<Log2> score_excess(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                         const Operands& operands, const HeadScan& scan);

/// What of the head's modifiers no bound covers with this kernel: one phrase each.
std::vector<std::string> uncovered_modifiers(const Head& head, const KernelModel& kernel,
                                             const Operands& operands);

}  // namespace headroom
