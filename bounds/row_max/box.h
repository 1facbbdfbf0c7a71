// Upper bound of a row's largest score: the box of its keys.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/real/bound.h"

namespace headroom {

/// The smallest box of channels that holds the added keys. Exact: nothing is rounded.
class KeyBox {
 public:
  explicit KeyBox(std::int64_t channels)
      : lo_(static_cast<std::size_t>(channels)), hi_(lo_.size()) {}
  /// A key anywhere in [lo, hi], channel by channel. Requires: d finite elements each.
  void add(std::span<const double> lo, std::span<const double> hi);
  std::int64_t count() const { return count_; }
  /// Ends by channel; zeros before the first add.
  std::span<const double> lo() const { return lo_; }
  std::span<const double> hi() const { return hi_; }

 private:
  std::vector<double> lo_, hi_;
  std::int64_t count_ = 0;
};

/// Box. For every key k of the box: factor <q, k> <= sum_c max(factor q_c lo_c, factor q_c hi_c),
/// log2 units. Attained if some key is the box's corner on q's side, as where all keys but for one
/// channel are equal; beyond Cauchy-Schwarz where keys spread along few channels, behind it where
/// they fill a ball (by up to sqrt(d)). -infinity for a box without keys.
/// **Requires** q of d finite elements. **Source** a linear function on a box, by channels.
Upper<Log2> box_maximum(const UpwardRounding& up, const Interval& factor, std::span<const double> q,
                        const KeyBox& keys);

}  // namespace headroom
