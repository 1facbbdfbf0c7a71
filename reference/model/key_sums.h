// Sums of folded keys, channel by channel, and what a kernel's FP32 mean of them can be.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "reference/head/matrix.h"
#include "reference/model/passes/passes.h"
#include "reference/real/interval.h"

namespace headroom {

/// What a summation in any order may do, for one channel of the folded keys.
struct KeyChannel {
  Interval sum{0.0};                            ///< exact sum
  double absolute = 0;                          ///< upper bound of sum |k|
  int grain = std::numeric_limits<int>::max();  ///< every key is a multiple of 2^grain
  double least = std::numeric_limits<double>::infinity(), most = -least;

  /// Requires: UpwardRounding is active.
  void add(double k);
};

/// The channels of the first n rows by one pass over them; sums within ColumnSums' error, `grain`
/// at most the true one, and the true one wherever it decides that the FP32 sum is exact or that
/// keys underflow. `key` gives a folded element. None if some folded key is not finite. Requires:
/// UpwardRounding is active.
std::optional<std::vector<KeyChannel>> key_channels_by_pass(
    const Matrix& keys, std::int64_t n, WordFormat words, Folding fold,
    const std::function<double(std::int64_t row, std::int64_t channel)>& key);

struct ComputedSum {
  Interval value{0.0};
  bool may_overflow = false, must_overflow = false;
};

/// The FP32 sum of n keys in any order; see Operands for the inequality. `growth` bounds
/// (1 + 2^-24)^n - 1.
ComputedSum computed_sum(const KeyChannel& channel, std::int64_t n, double growth);

/// Ends of S^ / n in FP32, divided or multiplied by the rounded reciprocal. Rounding is monotone,
/// so the ends of S^ give the ends of the mean.
Interval computed_mean(const Interval& sum, std::int64_t n);

}  // namespace headroom
