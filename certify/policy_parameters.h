// Numbers that the rule of a policy leaves open, by the names that the simulator's loops give them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "reference/model/kernel_model.h"
#include "reference/real/interval.h"

namespace headroom {

enum class Policy : std::uint8_t;

/// `--set NAME=VALUE` of `headroom certify`.
using PolicyParameters = std::map<std::string, double>;

/// What was given, completed by the policy's defaults under this kernel:
///   fdpp  phi 0, a -60, b 60: the shift and the range, natural units; a = -inf, b = inf is a shift
///         without a test. No published number is the default of any kernel: arXiv 2311.01282 takes
///         them from a model's statistics.
///   fa4   threshold 8 (FP8 P: 0), log2 units, and offset 0 (FP8 P: 8), of FlashAttention-4
///         0251105a, cute/softmax.py; wave 1: how many rows decide together, 0 for the query block;
///         running_max 1: rows that follow keep the larger of their maxima, 0: they take their
///         tile's (FlyDSL pull request 1033)
///   online  initial_max -inf: where the running maximum starts, in the unit of the stored score;
///         guard 1: a running maximum of -inf, while all tiles so far are hidden, is guarded
/// Throws InputError that names the parameter, what was found and what was expected.
PolicyParameters complete_parameters(Policy policy, const KernelModel& kernel,
                                     const PolicyParameters& given);

/// A maximum that may stay behind (policy fa4), as the kernel holds it.
struct LazyRescale {
  double threshold = 0;   ///< log2 units, a number of FP32
  double offset = 0;      ///< log2 units: P is 2^offset times too large by intent
  std::int64_t wave = 1;  ///< rows that decide together; 0: a query block
  bool running_max = true;
  /// Rows of one decision may take a maximum below their own: factors above 1.
  bool may_fall() const { return wave != 1 && !running_max; }
};
LazyRescale lazy_rescale(const PolicyParameters& complete);

/// FlashDecoding++'s shift and the ends of its range as kernels store them (numbers of
/// exponent.format), log2 units: every rounding of phi log2(e) and so on that a kernel may choose.
struct RangeTest {
  Interval shift{0.0}, low{0.0}, high{0.0};
};
/// Requires: UpwardRounding is active.
RangeTest range_test(const KernelModel& kernel, const PolicyParameters& complete);

}  // namespace headroom
