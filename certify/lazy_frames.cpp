#include "certify/lazy_frames.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "bounds/score.h"
#include "bounds/stabilizer.h"
#include "certify/row_scores.h"

namespace headroom {
namespace {

/// What the maxima are multiplied by before they are compared; 1 where scores hold the factor.
double factor_after_store(const KernelModel& kernel, const Operands& operands) {
  return kernel.score.scale_before_store ? 1 : operands.stored_score_factor();
}

/// (1 -+ u)^2, the two roundings of t, and what they can lose below the normal range.
struct Roundings {
  Interval relative{1.0};
  double absolute = 0;
};
Roundings roundings_of_change(const KernelModel& kernel, const Operands& operands) {
  const Format& f = kernel.exponent.format;
  const double u = std::ldexp(1.0, -f.precision);
  const Interval once = Interval(1.0) + Interval(-u, u);
  const double c = std::fabs(factor_after_store(kernel, operands));
  return {square(once),
          (Interval(std::ldexp(1.0, f.least_exponent())) * (Interval(c) + Interval(1.0))).hi()};
}

bool is_power_of_two(double x) {
  int exponent = 0;
  return std::isfinite(x) && std::fabs(std::frexp(x, &exponent)) == 0.5;
}

/// The kernel's choice between two maxima, from their exact difference in log2 units (at most 0
/// where the new one is the larger).
class Decision {
 public:
  Decision(const UpwardRounding& up, const KernelModel& kernel, const Operands& operands,
           const LazyRescale& lazy)
      : up_(up),
        format_(kernel.exponent.format),
        threshold_(lazy.threshold),
        roundings_(roundings_of_change(kernel, operands)),
        exact_factor_(is_power_of_two(factor_after_store(kernel, operands))) {}

  /// yes: t < -threshold, the maxima must be followed.
  Tri beyond(const Interval& change) const {
    // a difference that the format holds is not rounded, nor its product by a power of two
    const Interval held = rounded(up_, format_, change, false);
    const bool exact =
        exact_factor_ && change.is_point() && held.is_point() && held.lo() == change.lo();
    Interval t = change;
    if (!exact) {
      t = change * roundings_.relative + Interval(-roundings_.absolute, roundings_.absolute);
    }
    if (t.hi() < -threshold_) return Tri::yes;
    return t.lo() >= -threshold_ ? Tri::no : Tri::unknown;
  }

 private:
  const UpwardRounding& up_;
  Format format_;
  double threshold_;
  Roundings roundings_;
  bool exact_factor_;
};

/// The exponent of a nonzero number's last bit.
int last_bit(double x) {
  int exponent = 0;
  const auto significand =
      static_cast<std::int64_t>(std::ldexp(std::frexp(std::fabs(x), &exponent), 53));
  return exponent - 53 + std::countr_zero(static_cast<std::uint64_t>(significand));
}

/// Does the kernel compute this score without rounding, in any order? Products lie on a grid, no
/// sum of some of them exceeds 2^p grid, and the store holds the result; no factor is multiplied.
bool computed_exactly(const UpwardRounding& up, const KernelModel& kernel,
                      const std::vector<double>& q, const std::vector<double>& k) {
  const Format& f = kernel.score.accumulator.format;
  int grid = f.emax;
  Interval sum(0.0), magnitude(0.0);
  for (std::size_t c = 0; c < q.size(); ++c) {
    if (q[c] == 0 || k[c] == 0) continue;
    grid = std::min(grid, last_bit(q[c]) + last_bit(k[c]));
    const Interval product = Interval(q[c]) * Interval(k[c]);
    sum += product;
    magnitude += abs(product);
  }
  const int least = kernel.score.accumulator.flush_to_zero ? f.emin : f.least_exponent();
  if (magnitude.hi() == 0) return true;
  const Interval stored = rounded(up, kernel.score.store, sum, false);
  return grid >= least && magnitude.hi() <= std::ldexp(1.0, std::min(grid + f.precision, f.emax)) &&
         sum.is_point() && stored.is_point() && stored.lo() == sum.lo();
}

/// Largest computed scores of a row's visible keys, tile by tile, log2 units.
class TileMaxima {
 public:
  TileMaxima(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
             const Operands& operands, const HeadScan& scan)
      : up_(up), head_(head), kernel_(kernel), operands_(operands), scan_(scan) {}

  /// Nothing for a tile of which the row sees no key.
  std::vector<std::optional<Interval>> of(std::int64_t row) const {
    const std::vector<KeyRange> runs = visible_runs(head_, row);
    const double e = every_score_is_exact(row, runs)
                         ? 0
                         : row_score_error(up_, head_, kernel_, operands_, scan_,
                                           scan_.rows[static_cast<std::size_t>(row)])
                               .value();
    const std::int64_t tile = kernel_.tiles.keys;
    std::vector<std::optional<Interval>> maxima;
    for (const KeyRange& run : runs) {
      for (std::int64_t begin = run.begin; begin < run.end;) {
        const std::int64_t end = std::min(run.end, (begin / tile + 1) * tile);
        maxima.resize(static_cast<std::size_t>(begin / tile + 1));
        const Interval top = row_maximum(up_, operands_, row, begin, end).value + Interval(-e, e);
        maxima.back() = maxima.back() ? max(*maxima.back(), top) : top;
        begin = end;
      }
    }
    return maxima;
  }

 private:
  bool every_score_is_exact(std::int64_t row, const std::vector<KeyRange>& runs) const {
    const Interval& factor = operands_.score_factor();
    const bool truncates = kernel_.score.accumulator.order.kind == OrderKind::matrix_unit;
    if (truncates || !factor.is_point() || factor.lo() != 1 ||
        operands_.stored_score_factor() != 1) {
      return false;
    }
    std::vector<double> q(static_cast<std::size_t>(operands_.channels())), lo(q.size()),
        hi(q.size());
    operands_.query_row(row, q.data());
    for (const KeyRange& run : runs) {
      for (std::int64_t j = run.begin; j < run.end; ++j) {
        operands_.key_row(j, lo.data(), hi.data());
        if (lo != hi || !computed_exactly(up_, kernel_, q, lo)) return false;
      }
    }
    return true;
  }

  const UpwardRounding& up_;
  const Head& head_;
  const KernelModel& kernel_;
  const Operands& operands_;
  const HeadScan& scan_;
};

/// m of the row after each tile, where its maximum never falls; 0 before the first visible key.
std::vector<Interval> follow(const Decision& decision, const LazyRescale& lazy,
                             const std::vector<std::optional<Interval>>& tops) {
  std::vector<Interval> of_tiles;
  std::optional<Interval> m;
  for (const std::optional<Interval>& top : tops) {
    if (top && !m) {
      m = top;
    } else if (top) {
      const Interval old = *m, next = max(old, *top);
      Tri beyond = lazy.threshold > 0 ? decision.beyond(old - next) : Tri::yes;
      // other rows may make this one follow
      if (beyond == Tri::no && lazy.wave != 1) beyond = Tri::unknown;
      m = beyond == Tri::yes ? next : beyond == Tri::no ? old : hull(old, next);
    }
    of_tiles.push_back(m.value_or(Interval(0.0)));
  }
  return of_tiles;
}

/// The same where all rows of a wave take their tile's maxima if one must, lower ones too.
std::vector<Interval> follow_wave(const Decision& decision,
                                  const std::vector<std::vector<std::optional<Interval>>>& tops,
                                  std::size_t tiles, std::size_t own, Interval& correction) {
  std::vector<std::optional<Interval>> m(tops.size());
  std::vector<Interval> of_own;
  for (std::size_t t = 0; t < tiles; ++t) {
    Tri beyond = Tri::no;
    for (std::size_t r = 0; r < tops.size(); ++r) {
      if (t >= tops[r].size() || !tops[r][t]) continue;
      // nothing yet: the change is -infinity
      const Tri own_beyond = m[r] ? decision.beyond(*m[r] - *tops[r][t]) : Tri::yes;
      if (own_beyond == Tri::yes || (own_beyond == Tri::unknown && beyond == Tri::no)) {
        beyond = own_beyond;
      }
    }
    for (std::size_t r = 0; r < tops.size(); ++r) {
      if (t >= tops[r].size() || !tops[r][t] || beyond == Tri::no) continue;
      const Interval top = *tops[r][t];
      if (m[r] && r == own) {
        const Interval change = *m[r] - top;
        correction = max(correction, beyond == Tri::yes ? change : hull(change, Interval(0.0)));
      }
      m[r] = beyond == Tri::yes || !m[r] ? top : hull(*m[r], top);
    }
    of_own.push_back(m[own].value_or(Interval(0.0)));
  }
  return of_own;
}

}  // namespace

double largest_lag(const KernelModel& kernel, const Operands& operands, const LazyRescale& lazy) {
  if (!(lazy.threshold > 0)) return 0;
  const Roundings roundings = roundings_of_change(kernel, operands);
  return ((Interval(lazy.threshold) + Interval(roundings.absolute)) / roundings.relative).hi();
}

RowRange rows_of_decision(const LazyRescale& lazy, const KernelModel& kernel, std::int64_t queries,
                          std::int64_t row) {
  const std::int64_t block = row / kernel.tiles.queries * kernel.tiles.queries;
  const std::int64_t block_end = std::min<std::int64_t>(queries, block + kernel.tiles.queries);
  if (lazy.wave == 0) return {block, block_end};
  const std::int64_t begin = block + (row - block) / lazy.wave * lazy.wave;
  return {begin, begin + std::min(lazy.wave, block_end - begin)};
}

LazyFrames lazy_frames(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                       const Operands& operands, const HeadScan& scan, const LazyRescale& lazy,
                       std::int64_t row, double residual) {
  const Decision decision(up, kernel, operands, lazy);
  const TileMaxima maxima(up, head, kernel, operands, scan);
  LazyFrames frames;
  frames.tile = kernel.tiles.keys;
  if (lazy.may_fall()) {
    const RowRange group = rows_of_decision(lazy, kernel, head.queries(), row);
    std::vector<std::vector<std::optional<Interval>>> tops;
    for (std::int64_t r = group.begin; r < group.end; ++r) tops.push_back(maxima.of(r));
    const auto own = static_cast<std::size_t>(row - group.begin);
    frames.mu = follow_wave(decision, tops, tops[own].size(), own, frames.correction);
  } else {
    frames.mu = follow(decision, lazy, maxima.of(row));
  }
  for (Interval& mu : frames.mu) {
    mu = mu - Interval(lazy.offset) + Interval(-residual, residual);
  }
  return frames;
}

}  // namespace headroom
