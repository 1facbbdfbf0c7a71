#include "certify/path_builder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "bounds/exp2_unit.h"
#include "bounds/output_error.h"
#include "bounds/row_mass.h"
#include "bounds/sums.h"

namespace headroom {

void PathBuilder::head_claims(std::vector<Claim>& claims, const FixedStabilizer* stabilizer) const {
  const KernelModel& k = c_.kernel;
  const auto add = [&](Claim claim) { claims.push_back(std::move(claim)); };
  {
    Claim finite;
    finite.id = "operand.finite";
    finite.value = Interval(0.0);
    finite.note = "Q, K and V hold no NaN or infinity";
    add(finite);
  }
  {
    Claim error;
    error.id = "score.error";
    error.required = false;
    if (count_ > 0) {
      error.row = row_at(extremes_.rows[4]);
      error.value = Interval(0.0, extremes_.worst.score_error);
    }
    error.note = "largest error of a score, log2 units";
    add(error);
    Claim against_raw = error;
    against_raw.reference = "raw";
    against_raw.value = Interval(0.0, extremes_.raw_error);
    against_raw.note = "the same with the pre-rounding of operands";
    add(against_raw);
  }
  const double largest_mu = extremes_.mu, largest_exponent = extremes_.worst.reach;
  const double largest_reach = extremes_.score_reach;
  {
    Claim defined;
    defined.id = "exponent.defined";
    defined.kind = LimitKind::at_most;
    const double log2_mu = largest_mu > 0 ? log2(Interval(largest_mu)).hi() : -infinity;
    defined.value = Interval(-infinity, log2_mu);
    defined.limit = std::min(log2_max_finite(c_.up, k.stabilizer.store).value(),
                             log2_max_finite(c_.up, k.exponent.format).value());
    defined.row = extremes_.mu_row;
    defined.note = "log2 |mu|: no term of mu overflows, so no exponent is inf - inf";
    add(defined);
  }
  const Visibility& visible = c_.head.visibility;
  const bool hides_padding = k.tiles.padding == Padding::masked && visible.length < visible.keys &&
                             visible.length % k.tiles.keys != 0;
  if (!k.score.scale_before_store && !(c_.operands.stored_score_factor() > 0) &&
      (visible.kind != MaskKind::none || hides_padding || c_.head.modifiers.hides_keys())) {
    Claim defined;
    defined.id = "exponent.defined";
    defined.kind = LimitKind::at_most;
    defined.value = Interval(0.0, 1.0);
    defined.limit = 0;
    defined.note = "masked scores are -inf: times a zero or negative scale NaN or +inf";
    add(defined);
  }
  if (stabilizer == nullptr && (c_.head.modifiers.hides_keys() || c_.head.modifiers.bias)) {
    Claim guarded;
    guarded.id = "exponent.defined";
    guarded.value = Interval(0.0);
    guarded.status = c_.guard ? ClaimStatus::assumed : ClaimStatus::enclosed;
    if (!c_.guard) {
      guarded.kind = LimitKind::at_most;
      guarded.value = starts_visible() ? Interval(0.0) : Interval(0.0, 1.0);
      for (std::size_t at = 0; at < count_; ++at) {  // a mask hides a tile that is computed
        const std::int64_t row = row_at(at);
        if (c_.head.modifiers.mask.empty() || std::isfinite(k.mask.value)) break;
        if (visible_runs(c_.head, row).front().begin >= k.tiles.keys &&
            c_.head.modifiers.range(visible, row).begin == 0) {
          guarded.value = Interval(1.0);
          guarded.row = row;
        }
      }
    }
    guarded.note = "a running maximum of -inf, where the first tiles are hidden, is guarded";
    add(guarded);
  }
  if (stabilizer != nullptr) {
    Claim stored;
    stored.id = "stabilizer.stored";
    stored.required = false;
    double excess = -infinity;
    if (count_ > 0) {  // rounding is monotone
      const double x = rounded_exponent(Interval(extremes_.worst.exponent.value())).hi();
      excess = (Interval(x) - Interval(stabilizer->cap())).hi();
      stored.row = row_at(extremes_.rows[1]);
    }
    stored.value = Interval(-infinity, excess);
    stored.kind = LimitKind::at_most;
    stored.limit = 0;
    stored.note = "largest stored exponent over C; the ranges use the exponent itself";
    add(stored);
  } else {
    Claim correction;
    correction.id = "correction.range";
    if (lowest_of_raw()) {
      correction.kind = LimitKind::at_most;
      correction.value = Interval(0.0, 2 * largest_exponent);
      correction.note = "the maximum of raw scores under a negative scale is the row's minimum";
    } else if (k.exp2.monotone_at_integers) {
      correction.value = Interval(0.0);
      correction.note = "rescale factors are at most 1, per row: E(x) <= 1 for x <= 0";
    } else {
      correction.required = false;
      correction.value =
          Interval(0.0, log2(Interval(1.0) + Interval(exp2_relative_error(k.exp2).value())).hi());
      correction.note = "log2 of a rescale factor; the exponents' bound has room for it";
    }
    if (!may_fall() || lowest_of_raw()) add(correction);
    if (raw_maximum() && factor_after_store()) {
      // RN(m - m') before it is scaled
      Claim defined;
      defined.id = "exponent.defined";
      defined.kind = LimitKind::at_most;
      const Interval c(std::fabs(c_.operands.stored_score_factor()));
      const Interval change = Interval(2.0) * Interval(largest_reach) / c;
      defined.value =
          Interval(-infinity, largest_reach > 0 ? log2(Interval(change.hi())).hi() : -infinity);
      defined.limit = log2_max_finite(c_.up, k.exponent.format).value();
      defined.note = "log2 of the largest difference of two raw maxima";
      add(defined);
    }
  }
  {
    Claim rounding;
    rounding.id = "exponent.rounding";
    rounding.required = false;
    rounding.value =
        Interval(0.0, (Interval(std::ldexp(1.0, -k.exponent.format.precision)) *
                       Interval(std::max(largest_exponent, std::fabs(limits_.flush_exponent))))
                          .hi());
    rounding.note = "largest rounding of an exponent that matters, log2 units";
    add(rounding);
  }
  {
    Claim unit;
    unit.id = "exp2.contract";
    unit.unit = ClaimUnit::relative;
    unit.value = Interval(0.0, exp2_relative_error(k.exp2).value());
    unit.status =
        k.exp2.evidence == Evidence::assumed ? ClaimStatus::assumed : ClaimStatus::enclosed;
    unit.note = k.exp2.name + (k.exp2.source.empty() ? "" : ": " + k.exp2.source);
    add(unit);
  }
  {
    Claim absorption;
    absorption.id = "sum.absorption";
    absorption.kind = LimitKind::at_most;
    const double n = static_cast<double>(std::max<std::int64_t>(1, added(c_.scan.most_visible)));
    absorption.value = Interval(0.0, log2(Interval(n)).hi());
    absorption.limit = std::min(log2(Interval(absorption_limit(k.denominator))).lo(),
                                log2(Interval(absorption_limit(k.numerator))).lo());
    absorption.note = "log2 of the terms added; equal terms beyond the limit are absorbed";
    add(absorption);
  }
  if (c_.scan.empty_rows > 0) {
    Claim empty;
    empty.id = "empty.row";
    const bool right = k.tiles.empty_row == EmptyRowRule::zero;
    empty.kind = right ? LimitKind::none : LimitKind::at_most;
    empty.value = Interval(right ? 0.0 : 1.0);
    empty.limit = 0;
    empty.row = c_.scan.first_empty_row;
    empty.note = right ? "rows without visible keys give O = 0, LSE = -inf"
                       : "rows without visible keys do not give O = 0, LSE = -inf";
    add(empty);
  }
}

/// Does every row see a key of the first tile that its query block computes? Its running maximum is
/// a number from then on. A part of the keys starts anew, so there must be one.
bool PathBuilder::starts_visible() const {
  if (split()) return false;
  const KernelModel& k = c_.kernel;
  std::map<std::int64_t, std::int64_t> first_keys;  // that some row of the block may see
  for (std::int64_t row = 0; row < c_.head.queries(); ++row) {
    const KeyRange range = c_.head.modifiers.range(c_.head.visibility, row);
    if (range.count() == 0) continue;
    const auto [it, fresh] = first_keys.emplace(row / k.tiles.queries, range.begin);
    if (!fresh) it->second = std::min(it->second, range.begin);
  }
  for (std::size_t at = 0; at < count_; ++at) {
    const std::int64_t row = row_at(at);
    const std::int64_t sees = visible_runs(c_.head, row).front().begin;
    if (sees / k.tiles.keys > first_keys.at(row / k.tiles.queries) / k.tiles.keys) return false;
  }
  return true;
}

/// output.error and lse.error of rows [begin, end): a bound for every row in it. None where a claim
/// that the bound requires (bounds/output_error.h) does not hold.
std::vector<Claim> PathBuilder::output_of(std::size_t begin, std::size_t end) const {
  const RowInputs r = worst_of(begin, end);
  OutputErrorInputs in;
  in.visible = added(r.visible);
  const double reach = std::max(r.reach, std::fabs(limits_.flush_exponent)) + 1;
  const double e =
      c_.scan.sink ? std::max(r.score_error, sink_error(c_.scan).value()) : r.score_error;
  const Interval a = Interval(e) + Interval(std::ldexp(1.0, -c_.kernel.exponent.format.precision)) *
                                       Interval(reach);
  double mass = row_mass(c_.up, r.least_visible, r.exact_mean).value();
  if (online_) mass = std::max(mass, (r.top_exponent - Upper<Log2>(r.score_error)).value());
  const bool hidden_may_count = finite_mask() && (r.hidden_score - r.mu).hi() >= limits_.hidden;
  double far_share = 0;
  if (r.far > 0) {
    const Interval share = Interval(static_cast<double>(r.far)) *
                           exp2(Interval(r.far_exponent.value()) - Interval(mass));
    far_share = share.hi();
  }
  const double padded = c_.scan.padding_keys > 0 ? padded_share(r) : 0;
  in.exponent_error = Upper<Log2>(a.hi());
  in.log2_mass = Lower<Log2>(mass);
  in.rescales = rescales(in.visible);
  in.exp2_factors = 1 + static_cast<int>(std::min<std::int64_t>(in.rescales, 1 << 30));
  in.vmax_abs = c_.scan.v_magnitude;
  in.vmin = c_.scan.v_min;
  in.vmax = c_.scan.v_max;
  if (c_.scan.padding_keys > 0 || c_.scan.sink) {
    in.vmin = std::min(in.vmin, 0.0);
    in.vmax = std::max(in.vmax, 0.0);
  }
  const OutputError error = output_error(c_.up, c_.kernel, in);
  double total = error.defined ? error.total.value() : infinity;
  double lse_error = error.defined ? error.lse2.magnitude() : infinity;
  if (padded > 0) {  // a share of l that belongs to no key
    total = (Interval(total) + Interval(padded) * Interval(c_.scan.v_magnitude)).hi();
    lse_error = (Interval(lse_error) + log2(Interval(1.0) + Interval(padded))).hi();
  }
  // Saturated weights, an active guard, a flushed reciprocal and overflows are in no summand.
  if (hidden_may_count || split() || !safe_) total = lse_error = infinity;
  if (far_share > 0) {
    // Far keys hold at most this share of the exact l, and twice it of the computed one. Taking
    // them out moves an average by at most twice max |V| times their share.
    const bool small = far_share <= 0.125;
    total = small ? (Interval(total) + Interval(8 * far_share) * Interval(c_.scan.v_magnitude)).hi()
                  : infinity;
    lse_error = small ? (Interval(lse_error) + Interval(4 * far_share)).hi() : infinity;
  }
  Claim output, lse;
  output.id = "output.error";
  output.unit = ClaimUnit::absolute;
  output.value = Interval(0.0, total);
  output.required = c_.options.max_error.has_value();
  if (output.required) {
    output.kind = LimitKind::at_most;
    output.limit = *c_.options.max_error;
  }
  output.row = r.row;
  output.note = "against exact attention over the multiplied operands";
  lse.id = "lse.error";
  lse.required = false;
  lse.value = Interval(0.0, lse_error);
  lse.row = r.row;
  lse.note = "error of LSE2, log2 units";
  return {output, lse};
}

/// log2 of the largest O over the least l, of different rows at worst, and of two roundings and
/// the reciprocal's error. Of merged parts nothing.
double PathBuilder::largest_quotient(const std::vector<Claim>& claims) const {
  double most_o = infinity, least_l = -infinity;
  for (const Claim& claim : claims) {
    if (claim.id == "o.range") most_o = claim.value.hi();
    if (claim.id == "l.nonzero") least_l = claim.value.lo();
  }
  if (split() || !std::isfinite(most_o) || !std::isfinite(least_l) ||
      c_.kernel.normalise.reciprocal_max_error_ulps > 1) {
    return infinity;
  }
  return (Interval(most_o) - Interval(least_l) + Interval(0.05)).hi();
}

void PathBuilder::output_claims(std::vector<Claim>& claims) const {
  const std::vector<Claim> errors = worst_claims(
      count_, likely_rows(),
      [&](std::size_t begin, std::size_t end) { return output_of(begin, end); }, nullptr);
  const Claim& output = errors.front();
  claims.insert(claims.end(), errors.begin(), errors.end());
  Claim output_range;

  // O / l stays within max |V| times the rounding of P, the sums and the division.
  output_range.id = "normalise.range";
  output_range.kind = LimitKind::at_most;
  output_range.limit = std::min(log2_max_finite(c_.up, c_.kernel.normalise.output).value(),
                                log2_max_finite(c_.up, c_.kernel.numerator.format).value());
  output_range.note = "log2 of the largest output";
  double largest = -infinity;
  if (c_.scan.v_magnitude > 0) {
    const std::int64_t n = added(c_.scan.most_visible);
    const double g_o = accumulation_error(c_.up, c_.kernel.numerator, n, rescales(n)).value();
    const double g_l = accumulation_error(c_.up, c_.kernel.denominator, n, rescales(n)).value();
    // P is at most doubled by its rounding (least subnormal from half of it)
    const Interval by_error = Interval(c_.scan.v_magnitude) + Interval(output.value.hi());
    largest = g_l < 1 ? (log2(Interval(c_.scan.v_magnitude)) + Interval(1.0) +
                         log2(Interval(1.0) + Interval(g_o)) - log2(Interval(1.0) - Interval(g_l)) +
                         Interval(0.01))
                            .hi()
                      : infinity;
    largest = std::min(
        largest, std::isfinite(by_error.hi()) ? (log2(by_error) + Interval(0.01)).hi() : infinity);
    largest = std::min(largest, largest_quotient(claims));
  }
  output_range.value = Interval(-infinity, largest);
  claims.push_back(output_range);
}

}  // namespace headroom
