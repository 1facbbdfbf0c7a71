// The mean of the visible keys, enclosed: what Jensen's bound needs.
#pragma once

#include <cstdint>
#include <functional>
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

/// Sums of key rows over any ranges: prefix sums at every 64th key, and the rows between.
///
/// **Ensures** for keys in the added boxes: `add` adds enclosures of sum_{begin <= j < end} k_j[c]
/// to `sum`. Width: that of the prefix sums, at most n 2^-53 relative to sum |k| over all n keys.
class KeySums {
 public:
  /// Reads keys 0 .. keys - 1 once; `key(j, lo, hi)` gives the box of key j, now and in `add`.
  using KeyRow = std::function<void(std::int64_t j, double* lo, double* hi)>;
  KeySums(const UpwardRounding& up, std::int64_t keys, std::int64_t channels, KeyRow key);
  /// Requires: 0 <= begin <= end <= keys, sum of `channels` elements.
  void add(const UpwardRounding& up, std::int64_t begin, std::int64_t end,
           std::span<Interval> sum) const;

 private:
  static constexpr std::int64_t block = 64;
  std::size_t channels_;
  KeyRow key_;
  std::vector<Interval> prefix_;  ///< [keys / block + 1][channels]
};

}  // namespace headroom
