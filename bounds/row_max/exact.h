// The largest scores of rows themselves, enclosed: what every upper bound is measured against.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bounds/score.h"
#include "reference/head/visibility.h"

namespace headroom {

/// A row and the keys that it sees, as ascending, disjoint runs.
struct VisibleRow {
  std::int64_t row = 0;
  std::vector<KeyRange> keys;
};

/// row_maximum of each of `rows` over the keys that it sees, log2 units: the same dot products,
/// every key read once for all rows. A row that sees nothing has value [-inf, -inf] and key -1.
/// Memory: d numbers a row. Cost: visible * d interval operations a row.
std::vector<RowMaximum> row_maxima(const UpwardRounding& up, const Operands& operands,
                                   std::span<const VisibleRow> rows);

}  // namespace headroom
