#include "certify/row_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "certify/row_scores.h"
#include "certify/scan_passes.h"

namespace headroom {
namespace {

/// max_c |v_jc| of keys [0, n).
std::vector<double> key_magnitudes(const Head& head, std::int64_t n, bool by_passes) {
  std::vector<double> most(static_cast<std::size_t>(n), 0.0);
  if (by_passes && magnitudes_by_pass(head, most)) return most;
  std::vector<double> row(static_cast<std::size_t>(head.value_channels()));
  for (std::size_t j = 0; j < most.size(); ++j) {
    head.v.load_row(static_cast<std::int64_t>(j), row.data());
    for (const double v : row) most[j] = std::max(most[j], std::fabs(v));
  }
  return most;
}

}  // namespace

RunMaximum::RunMaximum(std::vector<double> x) : x_(std::move(x)), levels_(1) {
  for (std::size_t begin = 0; begin < x_.size(); begin += width) {
    const std::size_t end = std::min(begin + width, x_.size());
    levels_[0].push_back(*std::max_element(x_.begin() + static_cast<std::ptrdiff_t>(begin),
                                           x_.begin() + static_cast<std::ptrdiff_t>(end)));
  }
  const std::size_t blocks = levels_[0].size();
  for (std::size_t step = 1; 2 * step <= blocks; step *= 2) {
    const std::vector<double>& last = levels_.back();
    std::vector<double> next(blocks - 2 * step + 1);
    for (std::size_t b = 0; b < next.size(); ++b) next[b] = std::max(last[b], last[b + step]);
    levels_.push_back(std::move(next));
  }
}

double RunMaximum::of(const KeyRange& run) const {
  if (run.count() == 0) return 0;
  const auto begin = static_cast<std::size_t>(run.begin), end = static_cast<std::size_t>(run.end);
  double most = 0;
  const auto each = [&](std::size_t from, std::size_t to) {
    for (std::size_t j = from; j < to; ++j) most = std::max(most, x_[j]);
  };
  const std::size_t first = (begin + width - 1) / width, last = end / width;
  if (first >= last) {  // no whole block
    each(begin, end);
    return most;
  }
  each(begin, first * width);
  each(last * width, end);
  const auto level = static_cast<std::size_t>(std::bit_width(last - first)) - 1;
  const std::vector<double>& of_blocks = levels_[level];
  return std::max({most, of_blocks[first], of_blocks[last - (std::size_t{1} << level)]});
}

void scan_row_values(const Head& head, bool by_passes, HeadScan& scan) {
  const bool prefixes = !head.modifiers.hides_keys() && !head.modifiers.bias;
  if (prefixes && head.visibility.kind == MaskKind::none) return;
  const std::int64_t n = std::clamp<std::int64_t>(head.visibility.length, 0, head.keys());
  std::vector<double> keys = key_magnitudes(head, n, by_passes);
  if (prefixes) {  // that do not shrink from row to row
    std::int64_t taken = 0;
    double most = 0;
    for (RowScan& row : scan.rows) {
      for (; taken < row.visible; ++taken) {
        most = std::max(most, keys[static_cast<std::size_t>(taken)]);
      }
      row.v_magnitude = most;
    }
    return;
  }
  const RunMaximum maxima(std::move(keys));
  for (std::size_t i = 0; i < scan.rows.size(); ++i) {
    double most = 0;
    for (const KeyRange& run : visible_runs(head, static_cast<std::int64_t>(i))) {
      most = std::max(most, maxima.of(run));
    }
    scan.rows[i].v_magnitude = most;
  }
}

}  // namespace headroom
