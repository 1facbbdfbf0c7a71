#include "certify/path_builder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "bounds/exp2_unit.h"
#include "bounds/lost_mass.h"
#include "bounds/output_error.h"
#include "bounds/row_mass.h"
#include "bounds/score.h"
#include "bounds/sums.h"

namespace headroom {
namespace {

/// Both enclose one quantity; where they do not meet the second, the exact evaluation's.
Interval meet(const Interval& a, const Interval& b) {
  const double lo = std::max(a.lo(), b.lo());
  const double hi = std::min(a.hi(), b.hi());
  return lo <= hi ? Interval(lo, hi) : b;
}

}  // namespace

double PathBuilder::error_of(std::int64_t row) const {
  const auto it = row_terms_.find(row);
  if (it == row_terms_.end()) return row_error(c_.scan.rows[static_cast<std::size_t>(row)]);
  return score_error(c_.up, c_.kernel, c_.operands, Upper<Absolute>(it->second),
                     Upper<Absolute>(1.0))
      .value();
}

/// Bounds the row's products one by one where their norms leave open whether a score overflows, in
/// which case scores have no error bound. True if they have one then. Scores of every key that may
/// be computed count, seen or not.
bool PathBuilder::tighten_scores(std::int64_t row) {
  const KernelModel& k = c_.kernel;
  // operands that may be read as zero are bounded by norms of their own (bounds/score.h)
  if (k.score.accumulator.flush_to_zero || c_.head.modifiers.bias) return false;
  row_terms_[row] =
      largest_terms(c_.up, c_.operands, row, std::min(c_.head.visibility.length, c_.head.keys()))
          .value();
  if (std::isfinite(error_of(row))) return true;
  row_terms_.erase(row);
  return false;
}

/// in.score_error for all keys, those far below the row's largest bias too: their sums are rounded
/// in larger steps.
double PathBuilder::error_of_far(const RowInputs& in) const {
  if (in.far == 0) return in.score_error;
  RowScan row = c_.scan.rows[static_cast<std::size_t>(in.row)];
  row.bias.near = row.bias.largest;
  const Upper<Log2> error = row_score_error(c_.up, c_.head, c_.kernel, c_.operands, c_.scan, row);
  return (Interval(in.score_error) + Interval(error.value())).hi();
}

/// A constant of the stored score's unit, as the kernel scales it.
Interval PathBuilder::scaled_constant(double stored) const {
  const Interval c(factor_after_store() ? c_.operands.stored_score_factor() : 1.0);
  const Interval x = Interval(stored) * c;
  return hull(x,
              rounded(c_.up, c_.kernel.exponent.format,
                      rounded(c_.up, c_.kernel.score.store, Interval(stored), false) * c, false));
}

/// What a hidden key scores: the mask's value, or that and its own score.
Interval PathBuilder::hidden_score(const RowScan& row) const {
  const Interval value = scaled_constant(c_.kernel.mask.value);
  if (c_.kernel.mask.form == MaskForm::select) return value;
  // their sum is rounded once more
  const Interval own(reach_of(row, row_error(row)).hi());
  const Interval sum = value + Interval(-own.hi(), own.hi());
  const double u = std::ldexp(
      1.0, 1 - std::min(c_.kernel.score.store.precision, c_.kernel.exponent.format.precision));
  return sum + Interval(sum.magnitude()) * Interval(-u, u);
}

/// The sink as one more key, of its own exponent. It only adds to l, unless it is flushed.
void PathBuilder::add_sink(RowInputs& in) const {
  if (!c_.scan.sink) return;
  const Interval error(sink_error(c_.scan).value());
  const Interval exponent = *c_.scan.sink - in.mu + Interval(-error.hi(), error.hi());
  ++in.visible;
  in.exponent = max(in.exponent, Upper<Log2>(exponent.hi()));
  in.sink_may_flush = exponent.lo() < limits_.flush_exponent + 1;
}

Upper<Relative> PathBuilder::lost_by_flush(const RowInputs& in, double log2_least_l) const {
  if (in.least_exponent.value() >= limits_.flush_exponent && !in.sink_may_flush && in.far == 0) {
    return Upper<Relative>(0.0);
  }
  const Lower<Log2> margin = in.mean_exponent - Upper<Log2>(limits_.flush_exponent);
  // A lost key's computed exponent is below the threshold, and the exact one within the scores'
  // error of it, or it is far.
  const double error =
      c_.scan.sink ? std::max(in.score_error, sink_error(c_.scan).value()) : in.score_error;
  const Upper<Log2> threshold =
      max(Upper<Log2>((Interval(limits_.flush_exponent) + Interval(error)).hi()), in.far_exponent);
  const Lower<Log2> mass = row_mass(c_.up, in.least_visible, in.exact_mean);
  Upper<Relative> lost = in.far > 0 ? lost_mass_by_count(c_.up, in.visible, threshold, mass)
                                    : lost_mass(c_.up, margin);
  if (in.sink_may_flush && in.far == 0) {
    lost = Upper<Relative>(
        (Interval(lost.value()) + Interval(lost_mass_by_count(c_.up, 1, threshold, mass).value()))
            .hi());
  }
  // One key that is the maximum itself is kept.
  if (online_ && in.visible == 1 && in.top_exponent.value() >= limits_.flush_exponent) {
    lost = Upper<Relative>(0.0);
  } else if (online_ && std::isfinite(log2_least_l)) {
    // Exact weights: a lost key's computed exponent is below the threshold, the maximum's is at
    // least -residual; each may differ from the exact one by the score's error.
    lost = tighter(lost, lost_mass_by_count(c_.up, in.visible, threshold,
                                            in.top_exponent - Upper<Log2>(in.score_error)));
    // a rescale can flush what l held: at most 2^L a tile
    lost = Upper<Relative>((Interval(lost.value()) +
                            Interval(lost_mass_by_count(c_.up, rescales(in.visible),
                                                        Upper<Log2>(flush_exponent(
                                                            c_.kernel.denominator.format,
                                                            c_.kernel.denominator.flush_to_zero)),
                                                        Lower<Log2>(log2_least_l))
                                         .value()))
                               .hi());
  }
  if (split()) {
    lost = Upper<Relative>((Interval(lost.value()) + Interval(merge_lost(in))).hi());
  }
  return Upper<Relative>(std::min(1.0, lost.value()));
}

/// log2 of the largest partial sum of n terms of at most 2^term each. Rescale factors of a unit
/// that may exceed E(0) = 1 let terms grow, and sums leave the grid of their terms.
Upper<Log2> PathBuilder::largest_sum(const Accumulator& accumulator, std::int64_t n,
                                     Upper<Log2> term) const {
  const Exp2Unit& unit = c_.kernel.exp2;
  if (!online_ || unit.monotone_at_integers || unit.max_error_ulps <= 0.5) {
    return partial_sums(c_.up, accumulator, n, term).log2_largest;
  }
  const Interval growth =
      Interval(static_cast<double>(rescales(n))) *
          log2(Interval(1.0) + Interval(exp2_relative_error(unit).value())) +
      log2(Interval(1.0) +
           Interval(accumulation_error(c_.up, accumulator, n, rescales(n)).value()));
  return Upper<Log2>(
      (Interval(term.value()) + log2(Interval(static_cast<double>(n))) + growth).hi());
}

/// Padded weight as computed over the exact l: pad 2^(0 - mu) / (N 2^(zbar - mu)). mu cancels; what
/// does not are the rounding of 0 - mu to the exponent's format, the unit's error and P's rounding.
double PathBuilder::padded_share(const RowInputs& in) const {
  const KernelModel& k = c_.kernel;
  const double u = std::ldexp(1.0, -k.exponent.format.precision);
  Interval log2_share = log2(Interval(static_cast<double>(c_.scan.padding_keys))) -
                        log2(Interval(static_cast<double>(in.least_visible))) -
                        Interval(in.mean_score_lo) +
                        log2(Interval(1.0) + Interval(exp2_relative_error(k.exp2).value())) +
                        log2(Interval(1.0) + Interval(std::ldexp(1.0, -k.p.format.precision))) +
                        Interval(u) * Interval(in.mu.magnitude() + 1);
  if (online_) log2_share += Interval(in.score_error);
  double share = exp2(Interval(log2_share.hi())).hi();
  // Below the normal range errors are absolute: each stage adds at most its floor.
  const int least_normal = std::max(k.exp2.result.emin, k.p.format.emin);
  if (!(-in.mu.hi() > least_normal + 1)) {
    const Interval floor =
        Interval(exp2_floor_error(k.exp2).value()) + Interval(std::ldexp(1.0, k.p.format.emin));
    const Interval log2_exact_l = log2(Interval(static_cast<double>(in.least_visible))) +
                                  Interval(in.mean_score_lo) - Interval(in.mu.hi());
    share = (Interval(share) + Interval(static_cast<double>(c_.scan.padding_keys)) * floor *
                                   exp2(-Interval(log2_exact_l.lo())))
                .hi();
  }
  return share;
}

/// product.flush: what `events` flushes can take from O, over l and the largest value that the row
/// sees. Products of zeros are exact.
double PathBuilder::flushed_share(const RowInputs& in, std::int64_t events,
                                  double log2_least_l) const {
  if (!std::isfinite(in.value)) return 0;
  const double flush = product_flush(c_.up, c_.kernel, events, Lower<Log2>(log2_least_l)).value();
  return (Interval(flush) / Interval(in.value)).hi();
}

/// log2 of what a kept weight keeps at least of itself where exp2's results are subnormal: errors
/// are absolute there.
Interval PathBuilder::log2_kept_below_normal() const {
  const Exp2Unit& unit = c_.kernel.exp2;
  if (unit.flush_to_zero || limits_.flush_exponent >= unit.result.emin) return Interval(0.0);
  const Interval kept =
      log2_kept(Interval(unit.max_error_ulps) *
                exp2(Interval(unit.result.least_exponent()) - Interval(limits_.flush_exponent)));
  const bool keeps_half = unit.monotone_at_integers || unit.max_error_ulps <= 0.5;
  return Interval(keeps_half ? std::max(kept.lo(), -1.0) : kept.lo());
}

RowFacts PathBuilder::bound(const RowInputs& in) const {
  const KernelModel& k = c_.kernel;
  RowFacts facts;
  facts.key = c_.scan.radius_at;
  facts.score_range = Interval(
      -infinity,
      std::isfinite(in.terms)
          ? score_range(c_.up, k, c_.operands, Upper<Absolute>(in.terms), Upper<Absolute>(1.0))
                .value()
          : score_range(c_.up, k, c_.operands, Upper<Absolute>(in.norm),
                        Upper<Absolute>(c_.scan.key_norm.hi()))
                .value());
  if (c_.head.modifiers.bias) {  // the sum of score and bias is stored too
    const Interval reach = abs(c_.operands.score_factor()) * Interval(in.norm) * c_.scan.key_norm +
                           Interval(in.score_error) + Interval(in.bias_reach);
    const Interval over = log2(reach) - Interval(log2_max_finite(c_.up, k.score.store).value());
    facts.score_range = Interval(-infinity, std::max(facts.score_range.hi(), over.hi()));
  }
  const double x = std::isfinite(in.exponent.value())
                       ? rounded_exponent(Interval(in.exponent.value())).hi()
                       : infinity;
  facts.exponent = Interval(-infinity, x);
  const Upper<Log2> e = exp2_upper(c_.up, k.exp2, Upper<Log2>(x));
  const Upper<Log2> p = stored_weight(c_.up, k, e);
  facts.weight = Interval(-infinity, p.value());
  const std::int64_t n =
      finite_mask() ? std::max(added(in.visible), added(c_.head.keys())) : added(in.visible);
  const Upper<Log2> l = largest_sum(k.denominator, n, k.p.denominator_rounded ? max(p, e) : e);
  facts.denominator = Interval(-infinity, l.value());
  if (c_.scan.v_magnitude > 0) {
    const Interval v = log2(Interval(c_.scan.v_magnitude));
    const Upper<Log2> exact = largest_sum(k.numerator, n, p + Upper<Log2>(v.hi()));
    const Upper<Log2> power =
        largest_sum(k.numerator, n, p + Upper<Log2>(ceil_log2_at_least_one(c_.scan.v_magnitude)));
    facts.numerator = Interval(-infinity, tighter(exact, power).value());
  } else {
    facts.numerator = Interval(-infinity, -infinity);
  }

  // Lower bound of the computed l: kept mass, each kept weight at least (1 - eps) of the exact one.
  const Interval eps(exp2_relative_error(k.exp2).value());
  const bool narrow_l = k.denominator.format.precision < k.exp2.result.precision ||
                        k.denominator.format.emin > k.exp2.result.emin;
  const Interval kept_factor =
      Interval(static_cast<double>(1 + rescales(in.visible))) * log2_kept(eps) +
      log2_kept_below_normal() - Interval(k.p.denominator_rounded ? 1.0 : 0.0) -
      Interval(narrow_l ? 1.0 : 0.0) -
      Interval(std::ldexp(1.0, -k.exponent.format.precision)) *
          Interval(std::max(std::fabs(limits_.flush_exponent), std::fabs(x)) + 1);
  const double g = accumulation_error(c_.up, k.denominator, n, rescales(in.visible)).value();
  const Interval sum_factor = g < 1 ? log2(Interval(1.0) - Interval(g)) : unknown_log2;
  double least = -infinity;
  if (online_) {  // the row's maximum keeps E(-residual) in the final frame
    // where E and P keep it
    const bool kept = in.top_exponent.value() >= limits_.flush_exponent;
    const Interval top =
        kept ? Interval(in.top_exponent.value()) + kept_factor : Interval(-infinity);
    least = kept ? (top + sum_factor).lo() : -infinity;
    // Sums to nearest of terms that are not negative are no smaller than any term, in any order:
    // only rescales round it down, where nothing is flushed.
    const double rescaled =
        (top + Interval(static_cast<double>(rescales(in.visible))) *
                   log2(Interval(1.0) - Interval(std::ldexp(1.0, -k.denominator.format.precision))))
            .lo();
    if (kept && k.denominator.order.kind != OrderKind::matrix_unit &&
        rescaled > k.denominator.format.emin + 1) {
      least = std::max(least, rescaled);
    }
  }
  // a saturated weight is lost too: its excess is missing in the numerator
  const bool may_saturate = k.p.saturate && p.value() > limits_.weight;
  facts.lost = Interval(0.0, may_saturate ? 1.0 : lost_by_flush(in, least).value());
  if (facts.lost.hi() < 1) {
    const Interval kept = log2(Interval(1.0) - Interval(facts.lost.hi()));
    const Lower<Log2> mass = row_mass(c_.up, in.least_visible, in.mean_exponent);
    least = std::max(least, (Interval(mass.value()) + kept + kept_factor + sum_factor).lo());
  }
  // A mean at or above the threshold keeps at least one key whole: l >= 2^L.
  if (!online_ && (in.mean_exponent - Upper<Log2>(limits_.flush_exponent)).value() >= 0) {
    least =
        std::max(least, static_cast<double>(flush_exponent(k.exp2.result, k.exp2.flush_to_zero)));
  }
  // a row that cannot stay in its range has a mass that its exponents do not allow
  if (c_.paths != nullptr) least = std::min(least, l.value());
  facts.final_l = Interval(least, l.value());
  facts.flush = Interval(0.0, flushed_share(in, n + rescales(in.visible), least));
  if (c_.scan.padding_keys > 0) facts.mask = Interval(0.0, padded_share(in));
  facts.hidden = in.hidden_score - in.mu;
  facts.initial = in.initial;
  if (finite_mask() && facts.hidden.hi() >= limits_.hidden) facts.lost = Interval(0.0, 1.0);
  facts.correction = Interval(-infinity, in.correction);
  if (may_fall() && in.correction > 0) {  // what was held may grow by it: nothing else is known
    facts.denominator = facts.final_l = facts.numerator = unknown_log2;
    facts.lost = Interval(0.0, 1.0);
    facts.flush = facts.mask = Interval(0.0, infinity);
  }
  return facts;
}

/// Largest exponent and largest weight of a row whose visible keys were run. Requires: no keys are
/// added besides.
void PathBuilder::refine_weights(RowFacts& facts, const RowExecution& run) const {
  if (c_.scan.padding_keys > 0) return;
  facts.exponent = meet(facts.exponent, rounded_exponent(run.max_exponent));
  const Upper<Log2> e = exp2_upper(c_.up, c_.kernel.exp2, Upper<Log2>(facts.exponent.hi()));
  facts.weight = Interval(facts.weight.lo(),
                          std::min(facts.weight.hi(), stored_weight(c_.up, c_.kernel, e).value()));
  // the largest weight is at least its exponent's, less the unit's error and P's rounding
  const Interval least = Interval(facts.exponent.lo()) +
                         log2_kept(Interval(exp2_relative_error(c_.kernel.exp2).value())) +
                         log2_kept(Interval(std::ldexp(1.0, -c_.kernel.p.format.precision)));
  // only where E and P are normal numbers, and P does not saturate below it
  const int least_normal = std::max(c_.kernel.exp2.result.emin, c_.kernel.p.format.emin);
  if (least.lo() >= least_normal + 1) {
    const double most = c_.kernel.p.saturate ? limits_.weight : infinity;
    facts.weight = Interval(std::min({least.lo(), facts.weight.hi(), most}), facts.weight.hi());
  }
}

void PathBuilder::refine(RowFacts& facts, const RowInputs& in, const RowExecution& run) const {
  if (may_fall() && facts.correction.hi() > 0) return;  // sums in frames that grow
  facts.score_range =
      Interval(run.score_overflow_lo, std::max(facts.score_range.hi(), run.score_overflow_lo));
  facts.key = run.max_key;
  if (online_) {
    // weights of earlier frames are larger: only the upper end of what is lost carries over, but
    // for a maximum that was followed through its frames
    if (c_.lazy != nullptr) {
      facts.lost = meet(facts.lost, run.lost);
      refine_weights(facts, run);
    } else if (!(c_.kernel.p.saturate && facts.weight.hi() > limits_.weight)) {
      facts.lost = Interval(0.0, std::min(facts.lost.hi(), run.lost.hi()));
    }
    // the same weights, rescaled and rounded once more a tile
    const Accumulator& l = c_.kernel.denominator;
    const Interval rescaled =
        Interval(run.log2_denominator.lo()) +
        Interval(static_cast<double>(rescales(in.visible))) *
            (log2_kept(Interval(exp2_relative_error(c_.kernel.exp2).value())) +
             log2(Interval(1.0) - Interval(std::ldexp(1.0, -l.format.precision))));
    const double least = std::max(facts.final_l.lo(), rescaled.lo());
    facts.final_l = Interval(least, facts.final_l.hi());
    const double flush = flushed_share(in, added(in.visible) + rescales(in.visible), least);
    facts.flush = Interval(0.0, std::min(facts.flush.hi(), flush));
    return;
  }
  if (c_.scan.padding_keys > 0) {  // padded keys that are added have exponent 0 - mu
    facts.exponent = meet(facts.exponent, rounded_exponent(max(run.max_exponent, -in.mu)));
  } else {
    refine_weights(facts, run);
    facts.denominator = meet(facts.denominator, run.log2_denominator);
    facts.final_l = meet(facts.final_l, run.log2_denominator);
  }
  if (c_.scan.padding_keys > 0) {
    // (a row that cannot stay in its range may have a mass that its exponents do not allow)
    facts.final_l = Interval(
        std::min(std::max(facts.final_l.lo(), run.log2_denominator.lo()), facts.final_l.hi()),
        facts.final_l.hi());
  }
  facts.numerator = meet(facts.numerator, run.log2_numerator);
  facts.lost = meet(facts.lost, run.lost);
  facts.flush = meet(facts.flush, run.product_flush);
}

std::vector<Claim> PathBuilder::row_claims(const RowFacts& facts, const RowInputs& in) const {
  std::vector<Claim> claims;
  const auto add = [&](const char* id, ClaimUnit unit, LimitKind kind, const Interval& value,
                       double limit, std::int64_t key = -1) {
    Claim claim;
    claim.id = id;
    claim.unit = unit;
    claim.kind = kind;
    claim.value = value;
    claim.limit = limit;
    claim.row = in.row;
    claim.key = key;
    claims.push_back(std::move(claim));
  };
  add("score.range", ClaimUnit::log2, LimitKind::at_most, facts.score_range, 0,
      c_.scan.key_norm_at);
  // Beyond a limit by no more than what the model leaves open is not evidence of failure.
  const auto certain = [](const Interval& value, LimitKind kind, double limit, double fails) {
    if (kind == LimitKind::at_most && value.lo() > limit && !(value.lo() > fails)) {
      return Interval(limit, value.hi());
    }
    if (kind == LimitKind::at_least && value.hi() < limit && !(value.hi() < fails)) {
      return Interval(value.lo(), limit);
    }
    return value;
  };
  add("exponent.upper", ClaimUnit::log2, LimitKind::at_most,
      certain(facts.exponent, LimitKind::at_most, limits_.exponent, limits_.exponent_fails),
      limits_.exponent, facts.key);
  add("p.range", ClaimUnit::log2, LimitKind::at_most,
      certain(facts.weight, LimitKind::at_most, limits_.weight, limits_.weight_fails),
      limits_.weight, facts.key);
  add("l.range", ClaimUnit::log2, LimitKind::at_most, facts.denominator, limits_.denominator);
  add("o.range", ClaimUnit::log2, LimitKind::at_most, facts.numerator, limits_.numerator);
  add("l.nonzero", ClaimUnit::log2, LimitKind::at_least,
      certain(facts.final_l, LimitKind::at_least, limits_.final_l_least, limits_.final_l_too_small),
      limits_.final_l_least);
  add("normalise.range", ClaimUnit::log2, LimitKind::at_most,
      certain(facts.final_l, LimitKind::at_most, limits_.final_l_most, limits_.final_l_too_big),
      limits_.final_l_most);
  add("mass.lost", ClaimUnit::relative, LimitKind::at_most, facts.lost, eps_);
  add("product.flush", ClaimUnit::relative, LimitKind::at_most, facts.flush, eps_);
  if (c_.scan.padding_keys > 0) {
    add("mask.mass", ClaimUnit::relative, LimitKind::at_most, facts.mask, eps_);
  }
  if (finite_mask()) {  // beside every visible score, E makes it zero
    add("mask.mass", ClaimUnit::log2, LimitKind::at_most, facts.hidden, limits_.hidden);
  }
  if (std::isfinite(c_.initial_max)) {
    add("stabilizer.stored", ClaimUnit::log2, LimitKind::at_most, facts.initial, 0);
  }
  if (may_fall()) {
    // a factor E(x), x <= 0, may exceed 1 by the unit's error: the exponents' bound has room for it
    const Interval eps(exp2_relative_error(c_.kernel.exp2).value());
    const double room = c_.kernel.exp2.monotone_at_integers ? 0 : log2(Interval(1.0) + eps).hi();
    add("correction.range", ClaimUnit::log2, LimitKind::at_most,
        facts.correction + Interval(0.0, room), room);
  }
  if (in.row >= 0 && may_take_another(in.row)) {
    for (Claim& claim : claims) {
      if (claim.outcome() == ClaimOutcome::fails) claim.value = hull(claim.value, claim.limit);
    }
  }
  return claims;
}

bool PathBuilder::decided(const RowFacts& facts) const {
  for (const Claim& claim : row_claims(facts, {})) {
    if (claim.outcome() != ClaimOutcome::holds) return false;
  }
  return true;
}

}  // namespace headroom
