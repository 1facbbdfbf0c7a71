#include "certify/path_builder.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "bounds/exp2_unit.h"
#include "bounds/score.h"
#include "bounds/sums.h"

namespace headroom {

/// Share of the mass in parts whose weight E(LSE - largest LSE) is flushed: each part's LSE is off
/// by no more than its scores, its sums (twice N at most) and its own rounding.
double PathBuilder::merge_lost(const RowInputs& in) const {
  const Interval log2_n =
      log2(Interval(static_cast<double>(std::max<std::int64_t>(1, in.visible))));
  const Interval size = abs(c_.operands.score_factor()) * Interval(in.norm) * c_.scan.key_norm +
                        Interval(in.score_error) + Interval(in.bias_reach) + log2_n +
                        Interval(256.0);
  const Interval off =
      Interval(2.0) * (Interval(2.0) * Interval(in.score_error) + log2_n + Interval(8.0)) +
      size * Interval(0x1p-20);
  return exp2(Interval(limits_.flush_exponent) + off +
              log2(Interval(static_cast<double>(c_.kernel.split.parts))))
      .hi();
}

/// Upper bound of b - a, natural units, where parts are merged one after another: b the LSE of a
/// part, a that of all parts before it. Infinite where no row's scores may be evaluated.
///
/// With M the largest exact score of a part's n visible keys, log2 units, its computed LSE lies in
/// [M - r, M + log2 n + r]: scores and the subtracted maximum are off by their error and residual,
/// weights and sums at most halve or double l (p.range, l.range: at most 2n largest terms; no sum
/// of terms that are not negative is below its largest), and log2, ln and one addition in FP32 take
/// less than 2^-20 of numbers of that size, once a part. Rescale factors may take a quarter of l
/// together. That of merged parts is no less than the largest M of
/// them, less r once more for their merge.
double PathBuilder::log1p_difference() const {
  const KernelModel& k = c_.kernel;
  const Head& head = c_.head;
  std::int64_t scores = 0;
  for (std::size_t at = 0; at < count_; ++at) {
    scores += c_.scan.rows[static_cast<std::size_t>(row_at(at))].visible;
  }
  if (head.modifiers.bias || head.modifiers.softcap || c_.options.evaluate_rows == 0 ||
      scores > c_.options.evaluate_scores) {
    return infinity;
  }
  const std::int64_t tile = k.tiles.keys, tiles = (head.keys() + tile - 1) / tile;
  double worst = -infinity;
  for (std::size_t at = 0; at < count_; ++at) {
    const RowInputs in = input(at);
    const Interval size(c_.scan.rows[static_cast<std::size_t>(in.row)].visible + 256.0);
    const Interval reach = reach_of(c_.scan.rows[static_cast<std::size_t>(in.row)], in.score_error);
    const Interval off =
        Interval(2.0) * Interval(in.score_error) + Interval(in.residual) + Interval(1.0) +
        (reach + size) * Interval(0x1p-20) * Interval(static_cast<double>(k.split.parts));
    const Interval shrinks = Interval(static_cast<double>(1 + rescales(in.visible))) *
                             (Interval(exp2_relative_error(k.exp2).value()) +
                              Interval(std::ldexp(1.0, -k.denominator.format.precision)));
    if (shrinks.hi() > 0.25) return infinity;
    Interval before(-infinity, -infinity);  // the largest score of the parts so far
    for (std::int64_t part = 0; part < k.split.parts; ++part) {
      const std::int64_t first = tiles * part / k.split.parts * tile;
      const std::int64_t last = tiles * (part + 1) / k.split.parts * tile;
      Interval top(-infinity, -infinity);
      std::int64_t n = 0;
      for (const KeyRange& run : visible_runs(head, in.row)) {
        const std::int64_t begin = std::max(run.begin, first), end = std::min(run.end, last);
        if (begin >= end) continue;
        n += end - begin;
        top = max(top, row_maximum(c_.up, c_.operands, in.row, begin, end).value);
      }
      if (n == 0) return infinity;
      if (part > 0) {
        const Interval difference =
            top + log2(Interval(static_cast<double>(n))) - before + Interval(3.0) * off;
        worst = std::max(worst, (difference * ln_2()).hi());
      }
      before = max(before, top);
    }
  }
  return worst;
}

/// What a merge does with parts of which a row sees nothing, with the base of its LSE, and with the
/// differences of two.
void PathBuilder::merge_claims(std::vector<Claim>& claims) const {
  const KernelModel& k = c_.kernel;
  const std::int64_t tile = k.tiles.keys;
  const std::int64_t tiles = (c_.head.keys() + tile - 1) / tile;
  const std::int64_t part = (tiles + k.split.parts - 1) / k.split.parts;  // of tiles, at most
  bool all_see_all = true, one_tile = false, two_empty = false;
  std::int64_t row = -1;
  double reach = 0;
  for (std::size_t at = 0; at < count_; ++at) {
    const std::int64_t i = row_at(at);
    const RowScan& scan = c_.scan.rows[static_cast<std::size_t>(i)];
    const std::vector<KeyRange> runs = visible_runs(c_.head, i);
    const std::int64_t first = runs.front().begin / tile, last = (runs.back().end - 1) / tile;
    all_see_all = all_see_all && scan.visible == c_.head.keys() && tiles >= k.split.parts;
    const bool alone = first == last && tiles >= k.split.parts;
    const bool late = first >= 2 * part;
    if ((alone && !one_tile) || (late && !two_empty)) row = i;
    one_tile = one_tile || alone;
    two_empty = two_empty || late;
    reach = std::max(reach, reach_of(scan, row_error(scan)).hi());
  }
  const auto statement = [&](const char* id, const Interval& value, double limit,
                             const std::string& note) {
    Claim claim;
    claim.id = id;
    claim.kind = LimitKind::at_most;
    claim.value = value;
    claim.limit = limit;
    claim.row = row;
    claim.note = note;
    claims.push_back(std::move(claim));
  };
  if (k.split.reads != k.lse.base) {
    statement("merge.identity", Interval(1.0), 0,
              "the merge takes LSE in another base than it has");
  } else if (k.split.merge != MergeRule::lse || k.tiles.empty_row != EmptyRowRule::zero) {
    // the rule's own care for (0, -infinity), and that parts without keys are that
    const bool certain =
        k.split.merge == MergeRule::lse_naive && k.tiles.empty_row == EmptyRowRule::zero
            ? two_empty
            : k.tiles.empty_row != EmptyRowRule::zero && one_tile;
    const bool never = all_see_all;
    statement("merge.identity",
              certain ? Interval(1.0)
              : never ? Interval(0.0)
                      : Interval(0.0, 1.0),
              0, "a part without keys is (0, -inf), and changes nothing");
  } else {
    statement("merge.identity", Interval(0.0), 0, "a part without keys is (0, -inf), and weighs 0");
  }
  if (k.split.merge == MergeRule::lse_log1p) {
    const Interval difference = (Interval(2.0) * Interval(reach) +
                                 log2(Interval(static_cast<double>(c_.scan.most_visible)))) *
                                ln_2();
    const double most =
        difference.hi() <= 88.7 ? difference.hi() : std::min(difference.hi(), log1p_difference());
    statement("merge.range", Interval(-infinity, most), 88.7,
              "largest difference of two LSE, natural units: e of it has to be finite");
  } else {
    const double v = c_.scan.v_magnitude > 0 ? log2(Interval(c_.scan.v_magnitude)).hi() : -infinity;
    statement(
        "merge.range",
        Interval(-infinity,
                 (Interval(v) + log2(Interval(static_cast<double>(k.split.parts))) + Interval(2.0))
                     .hi()),
        log2_max_finite(c_.up, fp32).value(),
        "exponents of a merge are at most 0; log2 of its largest sum");
  }
}

}  // namespace headroom
