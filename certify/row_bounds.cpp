#include "certify/row_bounds.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <oneapi/tbb/parallel_for.h>

#include "bounds/norms.h"
#include "bounds/row_max/exact.h"
#include "bounds/score.h"
#include "certify/policy.h"
#include "certify/row_scores.h"
#include "reference/input_error.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<double> query(const Operands& operands, std::int64_t row) {
  std::vector<double> q(static_cast<std::size_t>(operands.channels()));
  operands.query_row(row, q.data());
  return q;
}

Upper<Log2> ball_maximum(const UpwardRounding& up, const Operands& operands,
                         const EnclosingBall& ball, std::span<const double> q,
                         Upper<Absolute> q_norm) {
  const Interval& factor = operands.score_factor();
  return cauchy_schwarz(up, factor, q_norm, ball.radius,
                        factor * dot(up, q, ball.centre, ball.centre));
}

}  // namespace

std::string_view to_text(ScoreBound bound) {
  switch (bound) {
    case ScoreBound::norms:
      return "norms";
    case ScoreBound::cauchy_schwarz:
      return "cauchy-schwarz";
    case ScoreBound::ball:
      return "ball";
    case ScoreBound::box:
      return "box";
    case ScoreBound::blocks:
      return "blocks";
  }
  return "";
}

const KeyBox& KeyGeometry::box() {
  if (box_) return *box_;
  box_.emplace(operands_.channels());
  std::vector<double> lo(static_cast<std::size_t>(operands_.channels())), hi(lo.size());
  for (std::int64_t j = 0; j < head_.visibility.length; ++j) {
    operands_.key_row(j, lo.data(), hi.data());
    box_->add(lo, hi);
  }
  return *box_;
}

const EnclosingBall& KeyGeometry::ball() {
  if (!ball_) {
    const KeyReader keys = [this](std::int64_t j, double* lo, double* hi) {
      operands_.key_row(j, lo, hi);
    };
    ball_ = enclosing_ball(up_, keys, head_.visibility.length, operands_.channels());
  }
  return *ball_;
}

const KeyBlocks& KeyGeometry::blocks() {
  if (!blocks_) blocks_.emplace(up_, operands_, head_.visibility.length);
  return *blocks_;
}

void KeyGeometry::prepare() { box(), ball(), blocks(); }

Upper<Log2> KeyGeometry::ball_or_box(std::int64_t row) {
  const std::vector<double> q = query(operands_, row);
  const Upper<Absolute> q_norm(scan_.rows[static_cast<std::size_t>(row)].norm.hi());
  return tighter(ball_maximum(up_, operands_, ball(), q, q_norm),
                 box_maximum(up_, operands_.score_factor(), q, box()));
}

Upper<Log2> KeyGeometry::block_balls(std::int64_t row) {
  return block_ball_maximum(up_, operands_.score_factor(), query(operands_, row),
                            Upper<Absolute>(scan_.rows[static_cast<std::size_t>(row)].norm.hi()),
                            blocks(), head_.modifiers.range(head_.visibility, row));
}

RowBounds KeyGeometry::all(const UpwardRounding& up, std::int64_t row) const {
  const RowScan& scanned = scan_.rows[static_cast<std::size_t>(row)];
  const std::vector<double> q = query(operands_, row);
  const Upper<Absolute> q_norm(scanned.norm.hi()), radius(scan_.radius.hi());
  const Interval& factor = operands_.score_factor();
  RowBounds bounds;
  const auto set = [&](ScoreBound bound, Upper<Log2> value) {
    bounds.of[static_cast<std::size_t>(bound)] = value;
  };
  set(ScoreBound::norms, cauchy_schwarz(up, factor, Upper<Absolute>(scan_.query_norm.hi()), radius,
                                        scanned.centre_score));
  set(ScoreBound::cauchy_schwarz, cauchy_schwarz(up, factor, q_norm, radius, scanned.centre_score));
  set(ScoreBound::ball, ball_maximum(up, operands_, *ball_, q, q_norm));
  set(ScoreBound::box, box_maximum(up, factor, q, *box_));
  set(ScoreBound::blocks, block_ball_maximum(up, factor, q, q_norm, *blocks_,
                                             head_.modifiers.range(head_.visibility, row)));
  return bounds;
}

std::string ExactRows::text() const {
  return sample == 0 ? "all" : "sample:" + std::to_string(sample);
}

std::vector<std::int64_t> ExactRows::of(const HeadScan& scan) const {
  std::vector<std::int64_t> seeing;
  for (std::size_t i = 0; i < scan.rows.size(); ++i) {
    if (scan.rows[i].visible > 0) seeing.push_back(static_cast<std::int64_t>(i));
  }
  const auto m = static_cast<std::int64_t>(seeing.size());
  if (sample == 0 || sample >= m) return seeing;
  std::vector<std::int64_t> chosen;
  for (std::int64_t k = 0; k < sample; ++k) {
    chosen.push_back(seeing[static_cast<std::size_t>((2 * k + 1) * m / (2 * sample))]);
  }
  return chosen;
}

ExactRows parse_exact_rows(const std::string& option, const std::string& text) {
  std::string_view which = text;
  constexpr std::string_view prefix = "rows=", sample = "sample:";
  if (which.starts_with(prefix)) which.remove_prefix(prefix.size());
  if (which == "all") return {};
  ExactRows rows;
  if (which.starts_with(sample)) {
    which.remove_prefix(sample.size());
    const char* const end = which.data() + which.size();
    const auto [stop, error] = std::from_chars(which.data(), end, rows.sample);
    constexpr std::int64_t most = std::int64_t{1} << 30;
    if (error == std::errc() && stop == end && rows.sample >= 1 && rows.sample <= most) return rows;
  }
  throw InputError(option + ": found '" + text + "', expected rows=all or rows=sample:K, K >= 1");
}

BoundsReport score_bounds_report(const UpwardRounding& up, const Head& head,
                                 const KernelModel& kernel, const Operands& operands,
                                 const HeadScan& scan, KeyGeometry& geometry,
                                 const ExactRows& rows) {
  BoundsReport report;
  report.rows = rows.text();
  const std::vector<std::int64_t> chosen = rows.of(scan);
  if (chosen.empty()) return report;
  geometry.prepare();
  report.evaluated.resize(chosen.size());
  constexpr std::size_t together = 128;  // rows for which the keys are read once
  oneapi::tbb::parallel_for(
      std::size_t{0}, (chosen.size() + together - 1) / together, [&](std::size_t part) {
        const UpwardRounding own;
        const std::size_t begin = part * together;
        const auto some =
            std::span(chosen).subspan(begin, std::min(together, chosen.size() - begin));
        std::vector<VisibleRow> visible;
        for (const std::int64_t i : some) visible.push_back({i, visible_runs(head, i)});
        const std::vector<RowMaximum> maxima = row_maxima(own, operands, visible);
        for (std::size_t i = 0; i < some.size(); ++i) {
          report.evaluated[begin + i] = {some[i], maxima[i].key, maxima[i].value,
                                         geometry.all(own, some[i])};
        }
      });

  report.largest = Interval(-infinity, -infinity);
  for (const EvaluatedRow& e : report.evaluated) {
    if (e.largest.hi() > report.largest.hi() || report.row < 0)
      report.row = e.row, report.key = e.key;
    report.largest = max(report.largest, e.largest);
  }
  for (const ScoreBound bound : score_bounds) {
    BoundSlack slack;
    slack.bound = bound;
    std::vector<double> bits;
    for (const EvaluatedRow& e : report.evaluated) {
      const double above = (e.bounds[bound] - Lower<Log2>(e.largest.lo())).value();
      if (slack.row < 0 || above > slack.largest) slack.largest = above, slack.row = e.row;
      bits.push_back(above);
    }
    const auto middle = bits.begin() + static_cast<std::ptrdiff_t>(bits.size() / 2);
    std::nth_element(bits.begin(), middle, bits.end());
    slack.median = *middle;
    report.slack.push_back(slack);
  }
  const EnclosingBall& ball = geometry.ball();
  report.radius = scan.radius.hi();
  report.ball_radius = ball.radius.value();
  report.least_radius = ball.least_radius.value();
  report.passes = ball.passes;
  report.block = geometry.blocks().size();
  const Interval own_centre =
      kernel.centring.keys == Centring::virtual_ ? norm(up, operands.stored_mean()) : Interval(0.0);
  report.kappa = clis_kappa(up, kernel, operands, scan, scan.radius, own_centre);
  report.ball_kappa =
      clis_kappa(up, kernel, operands, scan, Interval(ball.radius.value()), norm(up, ball.centre));
  return report;
}

}  // namespace headroom
