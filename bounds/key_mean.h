// The mean of the visible keys, enclosed: what Jensen's bound needs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/real/interval.h"

namespace headroom {

/// Running sum of key rows; after n adds, `mean()` encloses their exact mean channel by channel.
///
/// **Ensures** for keys k_1..k_n in the added boxes: mean()[c] contains (1/n) sum_j k_j[c].
/// Width grows by one rounding a key: at most n 2^-53 relative to sum |k| / n.
class KeyMean {
 public:
  explicit KeyMean(std::int64_t channels)
      : minus_lower_(static_cast<std::size_t>(channels)), upper_(minus_lower_.size()) {}
  void add(const UpwardRounding& up, std::span<const double> lo, std::span<const double> hi);
  std::int64_t count() const { return count_; }
  /// Requires: count() > 0.
  std::vector<Interval> mean(const UpwardRounding& up) const;
  /// <q, mean of the added keys>. Requires: count() > 0.
  Interval dot_mean(const UpwardRounding& up, std::span<const double> q) const;

 private:
  std::vector<double> minus_lower_, upper_;  // of the sums, channel by channel
  std::int64_t count_ = 0;
};

}  // namespace headroom
