#include "certify/row_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bounds/key_mean.h"
#include "bounds/norms.h"
#include "bounds/score.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// |z| of a row before softcap and bias: factor ||q~|| max ||k~||, at most the cap after it.
Interval reach_of(const Operands& operands, const HeadScan& scan, const RowScan& row) {
  return abs(operands.score_factor()) * row.norm * scan.key_norm;
}

/// What a softcap adds to the error e of the scores before it, and how large it leaves them. The
/// slope of x -> cap tanh(x / cap) is at most 1.
struct Capped {
  double error, reach;
};
Capped capped(const KernelModel& kernel, const Operands& operands, const HeadScan& scan,
              const RowScan& row, double error) {
  const Interval reach = reach_of(operands, scan, row);
  if (!scan.softcap) return {error, reach.hi()};
  const double cap = scan.softcap->hi();
  const Format& store = kernel.score.store;
  // FP32: the constants, the division, tanh, the product; then the store's rounding, of the tanh
  // itself where the cap multiplies later, and that product in the exponent's format.
  const double u = std::ldexp(1.0, -24);
  const double later =
      std::ldexp(1.0, -store.precision) + std::ldexp(1.0, -kernel.exponent.format.precision);
  const double least = std::ldexp(
      1.0, std::max(flush_exponent(store, kernel.score.accumulator.flush_to_zero), -1000));
  const Interval sum = Interval(error) + Interval(4 * u) * reach +
                       Interval(cap) * (Interval(8 * u) + Interval(2 * later)) +
                       (Interval(1.0) + Interval(cap)) * Interval(least + std::ldexp(1.0, -120));
  return {sum.hi(), std::min(reach.hi(), cap)};
}

}  // namespace

std::vector<KeyRange> visible_runs(const Head& head, std::int64_t row) {
  const ScoreModifiers& m = head.modifiers;
  const KeyRange range = m.range(head.visibility, row);
  std::vector<KeyRange> runs;
  if (range.count() == 0) return runs;
  if (m.ranges_only() && !m.bias) return {range};
  for (std::int64_t j = range.begin; j < range.end; ++j) {
    if (!m.visible(head.visibility, row, j)) continue;
    if (!runs.empty() && runs.back().end == j) {
      ++runs.back().end;
    } else {
      runs.push_back({j, j + 1});
    }
  }
  return runs;
}

void scan_modified_rows(const UpwardRounding& up, const Head& head, const Operands& operands,
                        HeadScan& scan) {
  const ScoreModifiers& m = head.modifiers;
  const std::int64_t d = head.channels();
  const std::int64_t length = std::clamp<std::int64_t>(head.visibility.length, 0, head.keys());
  const Interval& factor = operands.score_factor();
  if (m.softcap) scan.softcap = enclose(*m.softcap) * log2_e();
  if (m.sink) scan.sink = Interval(*m.sink) * log2_e();
  const KeySums sums(up, length, d,
                     [&](std::int64_t j, double* lo, double* hi) { operands.key_row(j, lo, hi); });
  scan.most_visible = scan.empty_rows = 0;
  scan.first_empty_row = -1;
  std::vector<double> q(static_cast<std::size_t>(d));
  std::vector<Interval> total(q.size());
  for (std::int64_t i = 0; i < head.queries(); ++i) {
    RowScan& row = scan.rows[static_cast<std::size_t>(i)];
    std::vector<KeyRange> runs = visible_runs(head, i);
    std::int64_t count = 0;
    double top = -infinity;  // natural units, as all biases here
    for (const KeyRange& run : runs) {
      count += run.count();
      for (std::int64_t j = run.begin; m.bias && j < run.end; ++j) {
        const double b = m.bias_at(i, j);
        if (!std::isfinite(b)) {  // minus infinity is not visible
          scan.finite = false;
          scan.non_finite_where = "bias[" + std::to_string(i) + "," + std::to_string(j) +
                                  "] = " + (std::isnan(b) ? "nan" : "inf");
          return;
        }
        top = std::max(top, b);
      }
    }
    row.visible = count;
    row.bias = {};
    scan.most_visible = std::max(scan.most_visible, count + (m.sink ? 1 : 0));
    if (count == 0) {
      if (scan.empty_rows++ == 0) scan.first_empty_row = i;
      continue;
    }
    std::int64_t near = count;
    Interval bias_sum(0.0);
    if (m.bias) {
      const double least = (Interval(top) - Interval(89.0)).lo();  // 89 log2(e) > far_bits
      double near_reach = 0, reach = 0;
      std::vector<KeyRange> near_runs;
      near = 0;
      for (const KeyRange& run : runs) {
        for (std::int64_t j = run.begin; j < run.end; ++j) {
          const double b = m.bias_at(i, j);
          reach = std::max(reach, std::fabs(b));
          if (!(b >= least)) continue;
          near_reach = std::max(near_reach, std::fabs(b));
          bias_sum += Interval(b);
          ++near;
          if (!near_runs.empty() && near_runs.back().end == j) {
            ++near_runs.back().end;
          } else {
            near_runs.push_back({j, j + 1});
          }
        }
      }
      runs = std::move(near_runs);
      row.bias.most = (Interval(top) * log2_e()).hi();
      row.bias.near = (Interval(near_reach) * log2_e()).hi();
      row.bias.largest = (Interval(reach) * log2_e()).hi();
      row.far_keys = count - near;
    }
    const Interval members(static_cast<double>(near));
    Interval mean(0.0);
    if (scan.softcap) {
      const Interval reach = reach_of(operands, scan, row);
      const double most = std::isfinite(reach.hi())
                              ? (*scan.softcap * tanh(reach / *scan.softcap)).hi()
                              : scan.softcap->hi();
      mean = Interval(-most, most);
    } else {
      operands.query_row(i, q.data());
      std::fill(total.begin(), total.end(), Interval(0.0));
      for (const KeyRange& run : runs) sums.add(up, run.begin, run.end, total);
      mean = factor * dot(up, q, total) / members;
    }
    mean += bias_sum * log2_e() / members;
    if (near < count) {
      const Interval share = log2(members) - log2(Interval(static_cast<double>(count)));
      mean = Interval((mean + share).lo(), mean.hi());
    }
    row.mean_score = mean;
  }
}

Upper<Log2> row_score_error(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                            const Operands& operands, const HeadScan& scan, const RowScan& row) {
  const double product = score_error(up, kernel, operands, Upper<Absolute>(row.norm.hi()),
                                     Upper<Absolute>(scan.key_norm.hi()))
                             .value();
  if (head.modifiers.none()) return Upper<Log2>(product);
  const auto [error, reach] = capped(kernel, operands, scan, row, product);
  if (!head.modifiers.bias) return Upper<Log2>(error);
  // the bias times log2(e), both roundings of FP32; then the sum, rounded to the store's format
  const Format& store = kernel.score.store;
  const Interval added = Interval(row.bias.near) * Interval(2.1 * std::ldexp(1.0, -24)) +
                         Interval(std::ldexp(1.0, -148));
  const Interval sum = Interval(reach) + Interval(error) + Interval(row.bias.near) + added;
  const double least = std::ldexp(
      1.0, std::max(flush_exponent(store, kernel.score.accumulator.flush_to_zero), -1000));
  return Upper<Log2>((Interval(error) + added + sum * Interval(std::ldexp(1.0, -store.precision)) +
                      Interval(least))
                         .hi());
}

RowScoreErrors::RowScoreErrors(const UpwardRounding& up, const Head& head,
                               const KernelModel& kernel, const Operands& operands,
                               const HeadScan& scan)
    : up_(up), head_(head), kernel_(kernel), operands_(operands), scan_(scan) {
  if (!head.modifiers.none()) return;
  line_ = score_error_line(up, kernel, operands, Upper<Absolute>(scan.query_norm.hi()),
                           Upper<Absolute>(scan.key_norm.hi()));
}

Upper<Log2> sink_error(const HeadScan& scan) {
  const Interval relative(3.1 * std::ldexp(1.0, -24));
  return Upper<Log2>(
      (relative * Interval(scan.sink->magnitude()) + Interval(std::ldexp(1.0, -148))).hi());
}

Upper<Log2> score_excess(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                         const Operands& operands, const HeadScan& scan) {
  double most = 0;
  if (head.modifiers.bias || scan.softcap) {
    for (const RowScan& row : scan.rows) {
      if (row.visible == 0) continue;
      const Interval product(score_error(up, kernel, operands, Upper<Absolute>(row.norm.hi()),
                                         Upper<Absolute>(scan.key_norm.hi()))
                                 .value());
      const Interval all(row_score_error(up, head, kernel, operands, scan, row).value());
      most = std::max(most, (Interval(row.bias.most) + all - product).hi());
    }
  }
  if (scan.sink) most = std::max(most, (*scan.sink + Interval(sink_error(scan).value())).hi());
  return Upper<Log2>(most);
}

std::vector<std::string> uncovered_modifiers(const Head& head, const KernelModel& kernel,
                                             const Operands& operands) {
  const ScoreModifiers& m = head.modifiers;
  std::vector<std::string> all;
  if (m.none()) return all;
  if (kernel.tiles.padding == Padding::zero_keys) all.emplace_back("zero keys beside other masks");
  if (m.bias && !kernel.score.scale_before_store && operands.stored_score_factor() != 1) {
    all.emplace_back("a bias where scores are scaled after they are stored");
  }
  const bool centred = kernel.centring.keys == Centring::mean;
  if (m.softcap && kernel.centring.keys != Centring::none) {
    all.emplace_back("a softcap beside centred keys");
  }
  if (m.softcap) {
    // kernels hold the cap, in either unit, and its quotients in FP32: none may leave the normal
    // numbers, or u = s / cap is 0 / 0, and the slope that replaces it loses its bits
    const Interval cap = enclose(*m.softcap);
    const double c = head.scale.log2_factor().magnitude();
    const auto usual = [](double x) { return x >= 0x1p-120 && x <= 0x1p120; };
    if (!usual(cap.lo()) || !usual(cap.hi()) || (c != 0 && !usual(c / cap.lo()))) {
      all.emplace_back(
          "a softcap that FP32 cannot hold, or whose quotient with the scale it cannot");
    }
  }
  if (m.sink && centred) all.emplace_back("a sink beside scores over centred keys");
  if (m.softcap && m.bias && !kernel.score.scale_before_store) {
    all.emplace_back("a bias where the softcap multiplies after the store");
  }
  return all;
}

}  // namespace headroom
