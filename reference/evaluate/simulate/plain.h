// The plain simulation: one row at a time in doubles, everything that a model can say, events.
#pragma once

#include <span>

#include "reference/evaluate/simulate/head_arithmetic.h"

namespace headroom {

/// What simulate() promises, on a prepared head. Requires: NearestRounding is active;
/// stabilizer.init(head) has been called.
Simulated simulate_plain(const HeadArithmetic& head, LoopStabilizer& stabilizer,
                         std::span<const std::int64_t> rows, SimulationDump* dump);

/// The rows that have to run together for these: themselves, or their whole blocks. One block an
/// element, ascending.
std::vector<std::vector<std::int64_t>> blocks_of(const HeadArithmetic& head,
                                                 const LoopStabilizer& stabilizer,
                                                 std::span<const std::int64_t> rows);
/// The tiles that a block visits in one part of a split range, ascending: those that hold a key in
/// the range of one of its rows.
std::vector<std::int64_t> tiles_of(const HeadArithmetic& head, std::int64_t block,
                                   std::int64_t part);

/// One part's result, before parts are joined and O is rounded to the output format.
struct PartResult {
  std::vector<float> output;  ///< O / l in the numerator's format, or O if parts are added
  float denominator = 0, shift = 0, lse = 0;
  bool visible = false;  ///< the row sees a key of this part
};
/// O and LSE of a row, or a part of one, that sees no key, as tiles.empty_row says; with a sink the
/// sink's. Requires: the rule is not mean_of_visited.
PartResult empty_row(const HeadArithmetic& head, bool with_sink);
/// Are O and l of the parts added, and divided once?
inline bool accumulates(const KernelModel& kernel) {
  return kernel.split.parts > 1 && kernel.split.merge == MergeRule::accumulate;
}
/// Does the loop start with m = sink? Else a sink enters after the last key: for rules that do not
/// start there, and where parts with one mu are added.
bool starts_with_sink(const HeadArithmetic& head, const LoopStabilizer& stabilizer);
/// l before the first tile of a part: E(0), times the rule's offset, of a sink that starts the
/// first one.
float initial_denominator(const HeadArithmetic& head, const LoopStabilizer& stabilizer,
                          std::int64_t part);
/// LSE where guard = zero-to-one finds l = 0 or NaN: +infinity, but -infinity of a part, which then
/// weighs nothing in a merge (flash-attention 2, softmax.h).
float lse_without_denominator(const KernelModel& kernel);
/// The power of two that LSE takes out of l before the logarithm, as FA3 and FA4 do: the offset, if
/// it is a whole number of log2 units. Else 0, and shift + log l is LSE as it is: the shift holds
/// minus the offset.
int offset_taken_out(const KernelModel& kernel, float offset);
/// Joins the parts of one row as kernel.split says, and rounds to the output format. A sink is
/// counted once: in the first part, or here where parts are added.
PartResult join_parts(const HeadArithmetic& head, const std::vector<PartResult>& parts);

}  // namespace headroom
