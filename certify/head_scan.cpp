#include "certify/head_scan.h"

#include <algorithm>
#include <cmath>

#include "bounds/key_mean.h"
#include "bounds/norms.h"
#include "bounds/score.h"
#include "bounds/stabilizer.h"
#include "certify/key_facts.h"
#include "certify/row_scores.h"
#include "certify/row_values.h"
#include "certify/scan_passes.h"

namespace headroom {
namespace {

void scan_values(const Head& head, std::int64_t keys_read, HeadScan& scan) {
  std::vector<double> row(static_cast<std::size_t>(head.value_channels()));
  bool first = true;
  for (std::int64_t j = 0; j < keys_read; ++j) {
    head.v.load_row(j, row.data());
    for (std::size_t c = 0; c < row.size(); ++c) {
      const double v = row[c];
      if (!std::isfinite(v)) {
        if (scan.finite) {
          scan.non_finite_where = "v[" + std::to_string(j) + "," + std::to_string(c) + "] = " +
                                  (std::isnan(v) ? "nan"
                                   : v > 0       ? "inf"
                                                 : "-inf");
        }
        scan.finite = false;
        return;
      }
      if (j < head.visibility.length) {
        scan.v_real_magnitude = std::max(scan.v_real_magnitude, std::fabs(v));
      }
      scan.v_min = first ? v : std::min(scan.v_min, v);
      scan.v_max = first ? v : std::max(scan.v_max, v);
      first = false;
    }
  }
  scan.v_magnitude = std::max(std::fabs(scan.v_min), std::fabs(scan.v_max));
}

void scan_queries(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                  const Operands& operands, HeadScan& scan) {
  const std::int64_t d = head.channels();
  std::vector<double> q(static_cast<std::size_t>(d));
  std::vector<double> key_lo(q.size()), key_hi(q.size()), exact_lo(q.size()), exact_hi(q.size());
  KeyMean running(d);
  const KernelNorm kernel_norm(up, kernel.stabilizer.norm, d);
  const Interval& factor = operands.score_factor();
  const bool virtual_centre = kernel.centring.keys == Centring::virtual_;
  for (std::int64_t i = 0; i < head.queries(); ++i) {
    RowScan& row = scan.rows[static_cast<std::size_t>(i)];
    const KeyRange visible = head.visibility.visible(i);
    operands.query_row(i, q.data());
    row.norm = norm(up, q);
    row.kernel_norm = kernel_norm.of(up, q, q);
    // every visibility so far is a prefix that does not shrink from row to row
    while (running.count() < visible.end) {
      operands.key_row(running.count(), key_lo.data(), key_hi.data());
      running.add(up, key_lo, key_hi);
    }
    if (row.visible > 0) row.mean_score = factor * running.dot_mean(up, q);
    if (virtual_centre) row.centre_score = factor * dot(up, q, operands.stored_mean());

    operands.exact_query_row(i, exact_lo.data(), exact_hi.data());
    std::vector<Interval> exact(q.size());
    for (std::size_t c = 0; c < exact.size(); ++c) exact[c] = Interval(exact_lo[c], exact_hi[c]);
    row.operand_error = operand_rounding_error(up, factor, Upper<Absolute>(row.norm.hi()),
                                               Upper<Absolute>(distance(up, q, q, exact).hi()),
                                               Upper<Absolute>(scan.key_difference),
                                               Upper<Absolute>(scan.raw_centred_norm))
                            .value();
  }
}

void count_keys(const Head& head, HeadScan& scan) {
  const std::int64_t last = head.queries() - 1;
  RowScan each;
  each.v_magnitude = scan.v_real_magnitude;
  if (last >= 0) each.visible = head.visibility.visible(last).count();
  scan.rows.assign(static_cast<std::size_t>(head.queries()), each);
  if (head.visibility.kind == MaskKind::none && each.visible > 0) {  // all rows alike
    scan.most_visible = each.visible;
    return;
  }
  for (std::int64_t i = 0; i <= last; ++i) {
    RowScan& row = scan.rows[static_cast<std::size_t>(i)];
    row.visible = head.visibility.visible(i).count();
    scan.most_visible = std::max(scan.most_visible, row.visible);
    if (row.visible == 0 && scan.empty_rows++ == 0) scan.first_empty_row = i;
  }
}

}  // namespace

void largest_queries(std::size_t begin, std::size_t end, HeadScan& scan) {
  double lo = scan.query_norm.lo(), hi = scan.query_norm.hi();
  double kernel_lo = scan.kernel_query_norm.lo(), kernel_hi = scan.kernel_query_norm.hi();
  for (std::size_t i = begin; i < end; ++i) {
    const RowScan& row = scan.rows[i];
    if (row.norm.hi() > hi) {
      hi = row.norm.hi();
      scan.query_norm_at = static_cast<std::int64_t>(i);
    }
    lo = std::max(lo, row.norm.lo());
    kernel_lo = std::max(kernel_lo, row.kernel_norm.lo());
    kernel_hi = std::max(kernel_hi, row.kernel_norm.hi());
  }
  scan.query_norm = Interval(lo, hi);
  scan.kernel_query_norm = Interval(kernel_lo, kernel_hi);
}

HeadScan scan_head(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                   const Operands& operands, bool by_passes) {
  HeadScan scan;
  const bool sliced = kernel.tiles.padding == Padding::sliced;
  const std::int64_t keys_read = sliced ? head.visibility.length : head.keys();
  if (!operands.finite()) {
    scan.finite = false;
    scan.non_finite_certain = operands.non_finite_certain();
    scan.non_finite_where = operands.non_finite_where();
    return scan;
  }
  if (!by_passes || !values_by_pass(head, keys_read, scan)) scan_values(head, keys_read, scan);
  if (!scan.finite) return scan;
  if (kernel.tiles.padding == Padding::zero_keys && kernel.tiles.keys > 0) {
    const std::int64_t tile = kernel.tiles.keys;
    scan.padding_keys = (tile - head.visibility.length % tile) % tile;
  }
  KeyFacts facts(up, head, kernel, operands);
  MultipliedKeys sums;
  if (!by_passes || !keys_by_passes(up, head, kernel, operands, facts, scan, sums)) {
    for (std::int64_t j = 0; j < head.visibility.length; ++j) facts.take(j, scan);
  }
  count_keys(head, scan);
  if (!by_passes || !queries_by_passes(up, head, kernel, operands, sums, scan)) {
    scan_queries(up, head, kernel, operands, scan);
    largest_queries(0, scan.rows.size(), scan);
  }
  if (!head.modifiers.none()) scan_modified_rows(up, head, operands, scan);
  if (scan.finite) scan_row_values(head, by_passes, scan);
  return scan;
}

}  // namespace headroom
