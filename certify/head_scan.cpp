#include "certify/head_scan.h"

#include <algorithm>
#include <cmath>

#include "bounds/key_mean.h"
#include "bounds/norms.h"
#include "bounds/score.h"
#include "bounds/stabilizer.h"
#include "certify/row_scores.h"

namespace headroom {
namespace {

struct Row {
  explicit Row(std::int64_t n) : lo(static_cast<std::size_t>(n)), hi(lo), raw_lo(lo), raw_hi(lo) {}
  std::vector<double> lo, hi, raw_lo, raw_hi;
};

/// Raises the enclosed maximum `best` to include `value`; keeps where the upper end came from.
void raise_maximum(Interval& best, std::int64_t& at, const Interval& value, std::int64_t index) {
  if (value.hi() > best.hi()) at = index;
  best = max(best, value);
}

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

void scan_keys(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
               const Operands& operands, HeadScan& scan) {
  Row key(head.channels());
  const std::vector<Interval>& mean = operands.stored_mean();
  const std::vector<Interval> origin(static_cast<std::size_t>(head.channels()));
  const bool virtual_centre = kernel.centring.keys == Centring::virtual_;
  // k' - a for mean and virtual centring; k' otherwise
  const std::vector<Interval>& centre = mean.empty() ? origin : mean;
  const Format& norm_format = kernel.stabilizer.norm;
  // k - a is rounded channel by channel before it is squared
  const double u = std::ldexp(1.0, -norm_format.precision);
  const Interval difference_rounding = Interval(1.0) + Interval(-u, u);
  for (std::int64_t j = 0; j < head.visibility.length; ++j) {
    operands.key_row(j, key.lo.data(), key.hi.data());
    operands.exact_key_row(j, key.raw_lo.data(), key.raw_hi.data());
    const Interval length = norm(up, key.lo, key.hi);
    raise_maximum(scan.key_norm, scan.key_norm_at, length, j);
    const Interval from_centre = virtual_centre ? distance(up, key.lo, key.hi, mean) : length;
    raise_maximum(scan.radius, scan.radius_at, from_centre, j);
    scan.kernel_radius =
        max(scan.kernel_radius,
            virtual_centre
                ? kernel_norm(up, norm_format, from_centre * difference_rounding, head.channels())
                : kernel_norm(up, norm_format, key.lo, key.hi));
    const Interval raw_centred = distance(up, key.raw_lo, key.raw_hi, centre);
    scan.raw_centred_norm = std::fmax(scan.raw_centred_norm, raw_centred.hi());
    // k~ - (k' - a): zero when nothing was rounded
    std::vector<Interval> exact(key.lo.size());
    for (std::size_t c = 0; c < exact.size(); ++c) {
      exact[c] = Interval(key.raw_lo[c], key.raw_hi[c]);
      if (kernel.centring.keys == Centring::mean) exact[c] -= mean[c];
    }
    scan.key_difference = std::fmax(scan.key_difference, distance(up, key.lo, key.hi, exact).hi());
  }
}

void scan_queries(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                  const Operands& operands, HeadScan& scan) {
  const std::int64_t d = head.channels();
  std::vector<double> q(static_cast<std::size_t>(d));
  Row exact_query(d), key(d);
  KeyMean running(d);
  const Interval& factor = operands.score_factor();
  const bool virtual_centre = kernel.centring.keys == Centring::virtual_;
  scan.rows.resize(static_cast<std::size_t>(head.queries()));
  for (std::int64_t i = 0; i < head.queries(); ++i) {
    RowScan& row = scan.rows[static_cast<std::size_t>(i)];
    const KeyRange visible = head.visibility.visible(i);
    row.visible = visible.count();
    scan.most_visible = std::max(scan.most_visible, row.visible);
    if (row.visible == 0) {
      if (scan.empty_rows++ == 0) scan.first_empty_row = i;
    }
    operands.query_row(i, q.data());
    row.norm = norm(up, q);
    raise_maximum(scan.query_norm, scan.query_norm_at, row.norm, i);
    row.kernel_norm = kernel_norm(up, kernel.stabilizer.norm, q, q);
    scan.kernel_query_norm = max(scan.kernel_query_norm, row.kernel_norm);
    // every visibility so far is a prefix that does not shrink from row to row
    while (running.count() < visible.end) {
      operands.key_row(running.count(), key.lo.data(), key.hi.data());
      running.add(up, key.lo, key.hi);
    }
    if (row.visible > 0) row.mean_score = factor * running.dot_mean(up, q);
    if (virtual_centre) row.centre_score = factor * dot(up, q, operands.stored_mean());

    operands.exact_query_row(i, exact_query.lo.data(), exact_query.hi.data());
    std::vector<Interval> exact(q.size());
    for (std::size_t c = 0; c < exact.size(); ++c) {
      exact[c] = Interval(exact_query.lo[c], exact_query.hi[c]);
    }
    row.operand_error = operand_rounding_error(up, factor, Upper<Absolute>(row.norm.hi()),
                                               Upper<Absolute>(distance(up, q, q, exact).hi()),
                                               Upper<Absolute>(scan.key_difference),
                                               Upper<Absolute>(scan.raw_centred_norm))
                            .value();
  }
}

}  // namespace

HeadScan scan_head(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                   const Operands& operands) {
  HeadScan scan;
  const bool sliced = kernel.tiles.padding == Padding::sliced;
  const std::int64_t keys_read = sliced ? head.visibility.length : head.keys();
  if (!operands.finite()) {
    scan.finite = false;
    scan.non_finite_certain = operands.non_finite_certain();
    scan.non_finite_where = operands.non_finite_where();
    return scan;
  }
  scan_values(head, keys_read, scan);
  if (!scan.finite) return scan;
  if (kernel.tiles.padding == Padding::zero_keys && kernel.tiles.keys > 0) {
    const std::int64_t tile = kernel.tiles.keys;
    scan.padding_keys = (tile - head.visibility.length % tile) % tile;
  }
  scan_keys(up, head, kernel, operands, scan);
  scan_queries(up, head, kernel, operands, scan);
  if (!head.modifiers.none()) scan_modified_rows(up, head, operands, scan);
  return scan;
}

}  // namespace headroom
