#include "certify/range_test.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bounds/norms.h"
#include "bounds/score.h"
#include "bounds/stabilizer.h"
#include "certify/row_scores.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Every score that a row can have, by Cauchy-Schwarz about the origin and about the centre.
Interval score_reach(const Operands& operands, const HeadScan& scan, const RowScan& row) {
  const Interval factor = abs(operands.score_factor());
  const double about_origin = (factor * row.norm * scan.key_norm).hi();
  const double about_centre = (factor * row.norm * scan.radius).hi();
  const Interval near_centre = row.centre_score + Interval(-about_centre, about_centre);
  const double lo = std::max(-about_origin, near_centre.lo());
  const double hi = std::min(about_origin, near_centre.hi());
  return lo <= hi ? Interval(lo, hi) : Interval(-about_origin, about_origin);
}

/// What one exponent says: inside, outside, or either.
Tri inside(const RangeTest& test, const Interval& x) {
  if (x.lo() > test.low.hi() && x.hi() < test.high.lo()) return Tri::yes;
  if (x.hi() <= test.low.lo() || x.lo() >= test.high.hi()) return Tri::no;
  return Tri::unknown;
}

/// How far an exponent lies beyond the nearer end.
Interval excess_of(const RangeTest& test, const Interval& x) {
  return max(x - test.high, test.low - x);
}

/// Decides rows one by one.
class Classifier {
 public:
  Classifier(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
             const Operands& operands, const HeadScan& scan, const RangeTest& test)
      : up_(up), head_(head), kernel_(kernel), operands_(operands), scan_(scan), test_(test) {}

  double score_error_of(const RowScan& row) const {
    return row_score_error(up_, head_, kernel_, operands_, scan_, row).value();
  }
  /// Capped and biased scores are not looked at, nor what a finite mask value does to the test:
  /// their rows may go either way.
  bool plain() const {
    return !head_.modifiers.bias && !head_.modifiers.softcap && std::isinf(kernel_.mask.value);
  }
  /// The stored exponent of an exact score in `z`.
  Interval exponent(const Interval& z, double error) const {
    return rounded(up_, kernel_.exponent.format, z + Interval(-error, error) - test_.shift, false);
  }

  struct Answer {
    RowPath path = RowPath::either;
    Interval excess{-infinity, infinity};
  };

  Answer by_bounds(const RowScan& row) const {
    const double error = score_error_of(row);
    if (!std::isfinite(error)) return {};
    const bool no_test = std::isinf(test_.low.hi()) && std::isinf(test_.high.lo());
    if (no_test) return {RowPath::fixed, Interval(-infinity)};
    if (!plain()) return {};
    const Interval reach = exponent(score_reach(operands_, scan_, row), error);
    const Interval mean = exponent(row.mean_score, error);
    // the largest score is at least the mean, the least at most
    const Interval beyond(excess_of(test_, mean).lo(), excess_of(test_, reach).hi());
    if (inside(test_, reach) == Tri::yes) return {RowPath::fixed, beyond};
    if (mean.lo() >= test_.high.hi() || mean.hi() <= test_.low.lo()) {
      return {RowPath::online, beyond};
    }
    return {RowPath::either, beyond};
  }

  Answer by_scores(std::int64_t i) const {
    const RowScan& row = scan_.rows[static_cast<std::size_t>(i)];
    const double error = score_error_of(row);
    if (!std::isfinite(error) || !plain()) return {};
    const auto d = static_cast<std::size_t>(operands_.channels());
    std::vector<double> q(d), lo(d), hi(d);
    operands_.query_row(i, q.data());
    Answer answer{RowPath::fixed, Interval(-infinity, -infinity)};
    for (const KeyRange& run : visible_runs(head_, i)) {
      for (std::int64_t j = run.begin; j < run.end; ++j) {
        operands_.key_row(j, lo.data(), hi.data());
        const Interval x = exponent(operands_.score_factor() * dot(up_, q, lo, hi), error);
        answer.excess = max(answer.excess, excess_of(test_, x));
        const Tri in = inside(test_, x);
        if (in == Tri::no) answer.path = RowPath::online;
        if (in == Tri::unknown && answer.path == RowPath::fixed) answer.path = RowPath::either;
      }
    }
    return answer;
  }

  /// Zero keys that pad the last tile may be tested too, or may lie beyond a row's tiles.
  Answer with_padding(Answer answer) const {
    if (scan_.padding_keys == 0) return answer;
    const Interval x = exponent(Interval(0.0), 0);
    if (inside(test_, x) != Tri::yes && answer.path == RowPath::fixed) {
      answer.path = RowPath::either;
      answer.excess = hull(answer.excess, max(answer.excess, excess_of(test_, x)));
    }
    return answer;
  }

 private:
  const UpwardRounding& up_;
  const Head& head_;
  const KernelModel& kernel_;
  const Operands& operands_;
  const HeadScan& scan_;
  const RangeTest& test_;
};

class RangeTested final : public FixedStabilizer {
 public:
  RangeTested(const UpwardRounding& up, const KernelModel& kernel, const Operands& operands,
              const HeadScan& scan, const RangeTest& test)
      : up_(up), kernel_(kernel), operands_(operands), scan_(scan), test_(test) {}
  std::string_view name() const override { return "fdpp"; }
  double cap() const override { return test_.high.hi(); }
  Gate gate() const override { return {}; }
  Gate sound_gate() const override { return {}; }
  Interval mu(std::int64_t) const override { return test_.shift; }
  Upper<Log2> largest_exponent(std::int64_t row, Upper<Log2> score_error) const override {
    const RowScan& r = scan_.rows[static_cast<std::size_t>(row)];
    const Interval top = Interval(score_reach(operands_, scan_, r).hi()) +
                         Interval(score_error.value()) - test_.shift;
    return tighter(Upper<Log2>(top.hi()), Upper<Log2>(test_.high.hi()));
  }
  Lower<Log2> least_exponent(std::int64_t) const override { return Lower<Log2>(test_.low.lo()); }

 private:
  const UpwardRounding& up_;
  const KernelModel& kernel_;
  const Operands& operands_;
  const HeadScan& scan_;
  RangeTest test_;
};

}  // namespace

RowPaths row_paths(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                   const Operands& operands, const HeadScan& scan, const RangeTest& test,
                   std::int64_t rows, std::int64_t scores) {
  const Classifier classify(up, head, kernel, operands, scan, test);
  RowPaths paths;
  paths.of.assign(scan.rows.size(), RowPath::fixed);
  paths.excess = Interval(-infinity, -infinity);
  for (std::size_t i = 0; i < scan.rows.size(); ++i) {
    const RowScan& row = scan.rows[i];
    if (row.visible == 0) continue;
    Classifier::Answer answer = classify.by_bounds(row);
    if (answer.path == RowPath::either && paths.rows_evaluated < rows && row.visible <= scores) {
      answer = classify.by_scores(static_cast<std::int64_t>(i));
      ++paths.rows_evaluated;
      scores -= row.visible;
    }
    answer = classify.with_padding(answer);
    paths.of[i] = answer.path;
    (answer.path == RowPath::fixed    ? paths.fixed
     : answer.path == RowPath::either ? paths.either
                                      : paths.online) += 1;
    if (answer.excess.hi() > paths.excess.hi()) paths.row = static_cast<std::int64_t>(i);
    paths.excess = max(paths.excess, answer.excess);
  }
  return paths;
}

std::unique_ptr<FixedStabilizer> make_range_tested(const UpwardRounding& up,
                                                   const KernelModel& kernel,
                                                   const Operands& operands, const HeadScan& scan,
                                                   const RangeTest& test) {
  return std::make_unique<RangeTested>(up, kernel, operands, scan, test);
}

}  // namespace headroom
