// The largest value that each row sees.
#pragma once

#include <cstdint>
#include <vector>

#include "certify/head_scan.h"

namespace headroom {

/// Largest of runs of x >= 0: blocks of 64, maxima of 2^k blocks, and the ends one by one.
class RunMaximum {
 public:
  explicit RunMaximum(std::vector<double> x);
  /// 0 for an empty run. Requires: 0 <= begin, end <= the number of x.
  double of(const KeyRange& run) const;

 private:
  static constexpr std::size_t width = 64;
  std::vector<double> x_;
  std::vector<std::vector<double>> levels_;  ///< [k][b]: of blocks b .. b + 2^k - 1
};

/// Sets v_magnitude of every row, exact, where rows see different keys: reads V once more.
/// Requires: scan.finite; scan.rows with their `visible`, and scan.v_real_magnitude in each.
void scan_row_values(const Head& head, bool by_passes, HeadScan& scan);

}  // namespace headroom
