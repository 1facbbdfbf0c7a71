#include "bounds/row_max/exact.h"

#include <algorithm>
#include <limits>

#include "bounds/norms.h"

namespace headroom {

std::vector<RowMaximum> row_maxima(const UpwardRounding& up, const Operands& operands,
                                   std::span<const VisibleRow> rows) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr std::int64_t tile = 64;  // of keys, so that they stay in the cache for all rows
  const auto d = static_cast<std::size_t>(operands.channels());
  const Interval& factor = operands.score_factor();
  std::vector<RowMaximum> result(rows.size(), {Interval(-infinity, -infinity), -1});
  std::vector<double> q(rows.size() * d);
  std::vector<std::size_t> next_run(rows.size());
  std::int64_t first = operands.keys(), last = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    operands.query_row(rows[i].row, q.data() + i * d);
    if (rows[i].keys.empty()) continue;
    first = std::min(first, rows[i].keys.front().begin);
    last = std::max(last, rows[i].keys.back().end);
  }
  std::vector<double> lo(tile * d), hi(lo.size());
  for (std::int64_t begin = first; begin < last; begin += tile) {
    const std::int64_t end = std::min(begin + tile, last);
    for (std::int64_t j = begin; j < end; ++j) {
      const std::size_t at = static_cast<std::size_t>(j - begin) * d;
      operands.key_row(j, lo.data() + at, hi.data() + at);
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::span<const double> row = std::span(q).subspan(i * d, d);
      const std::vector<KeyRange>& runs = rows[i].keys;
      RowMaximum& most = result[i];
      for (; next_run[i] < runs.size() && runs[next_run[i]].begin < end; ++next_run[i]) {
        const KeyRange& run = runs[next_run[i]];
        for (std::int64_t j = std::max(begin, run.begin); j < std::min(end, run.end); ++j) {
          const std::size_t at = static_cast<std::size_t>(j - begin) * d;
          const Interval score =
              factor * dot(up, row, std::span(lo).subspan(at, d), std::span(hi).subspan(at, d));
          if (most.key < 0 || score.hi() > most.value.hi()) most.key = j;
          most.value = max(most.value, score);
        }
        if (run.end > end) break;  // goes on in the next tile
      }
    }
  }
  return result;
}

}  // namespace headroom
