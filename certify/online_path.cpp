#include "certify/path_builder.h"

#include <algorithm>
#include <cmath>

#include "bounds/score.h"
#include "certify/lazy_frames.h"

namespace headroom {

RowInputs PathBuilder::online_inputs(std::int64_t i, Upper<Log2> largest) const {
  const RowScan& row = c_.scan.rows[static_cast<std::size_t>(i)];
  const KernelModel& k = c_.kernel;
  RowInputs in;
  in.row = i;
  in.visible = in.least_visible = row.visible;
  in.norm = row.norm.hi();
  in.value = value_of(row);
  in.score_error = error_of(i);
  if (const auto it = row_terms_.find(i); it != row_terms_.end()) in.terms = it->second;
  in.mean_score_lo = row.mean_score.lo();
  const Interval factor = abs(c_.operands.score_factor());
  Interval reach = reach_of(row, in.score_error);
  // until a key is visible the maximum is the mask's value, rounded like any other
  const Interval plain_reach = reach;
  if (finite_mask()) {
    in.hidden_score = hidden_score(row);
    reach = max(reach, abs(in.hidden_score));
  }
  // Exponent of the maximum itself: a fused kernel subtracts the rounded product m c from the
  // unrounded s c; a narrower store rounds m.
  const auto half_ulp_at = [&](const Format& f, const Interval& x) {
    if (!std::isfinite(x.hi())) return infinity;
    const double magnitude = std::max(x.hi(), std::ldexp(1.0, f.emin));
    return std::ldexp(1.0, std::ilogb(magnitude) + 1 - f.precision);
  };
  const auto half_ulp = [&](const Format& f) { return half_ulp_at(f, reach); };
  double residual = 0;
  if (k.exponent.fused && factor_after_store()) {
    // kernels round the product where they multiply scores, or where they subtract
    residual = std::max(half_ulp(k.score.accumulator.format), half_ulp(k.exponent.format));
  }
  // These rules subtract RN(m c) in the exponent's format; with c = 1 that rounds a wider m.
  if (raw_maximum() && !factor_after_store() &&
      (k.exponent.format.precision < k.score.store.precision ||
       k.exponent.format.least_exponent() > k.score.store.least_exponent())) {
    residual = std::max(residual, half_ulp(k.exponent.format));
  }
  // The maximum is one of scores in the store format, in the exponent's once scaled there, or a
  // product in the accumulator's if the exponent is fused.
  const bool scaled_last = factor_after_store();
  const Format& held = !scaled_last       ? k.score.store
                       : k.exponent.fused ? k.score.accumulator.format
                                          : k.exponent.format;
  if (k.stabilizer.store.precision < held.precision ||
      k.stabilizer.store.least_exponent() > held.least_exponent()) {
    const double roundings = k.stabilizer.round_up ? 2 : 1;  // half an ulp, or all of it
    residual =
        (Interval(residual) + Interval(roundings) * Interval(half_ulp(k.stabilizer.store))).hi();
  }
  const double lag = c_.lazy != nullptr ? largest_lag(k, c_.operands, *c_.lazy) : 0;
  const double offset = c_.lazy != nullptr ? c_.lazy->offset : 0;
  if (offset != 0) {  // one more rounding: of m c less the offset
    residual = (Interval(residual) +
                Interval(half_ulp_at(k.exponent.format, reach + Interval(std::fabs(offset)))))
                   .hi();
  }
  in.residual = residual;
  // Frames: tile maxima, alphas and the fused product are each rounded; their errors telescope to
  // at most 4.2 u Z + 135 u beyond the residual (composed bound, online kernels).
  const double frame =
      (Interval(5.2) * Interval(half_ulp_at(k.exponent.format, plain_reach)) + Interval(residual) +
       Interval(std::ldexp(135.0, -k.exponent.format.precision)))
          .hi();
  in.score_error = (Interval(in.score_error) + Interval(frame)).hi();
  Interval top = Interval(residual) + Interval(lag) + Interval(offset);
  // a raw maximum under a negative scale is the row's minimum
  const bool lowest =
      lowest_of_raw() || (k.exponent.fused && c_.operands.stored_score_factor() < 0);
  if (lowest) top = Interval(2.0) * reach + Interval(residual) + Interval(offset);
  in.exponent = Upper<Log2>(top.hi());
  // the final m lies within the scores' error of the exact row maximum, or stays behind it
  const Upper<Log2> bound = tighter(
      largest,
      Upper<Log2>::of(row.centre_score + Interval((factor * row.norm * c_.scan.radius).hi())));
  const Interval most = Interval(modified(bound, row).value()) + Interval(in.score_error) +
                        Interval(residual) - Interval(offset);
  const Interval least = row.mean_score - Interval(in.score_error) - Interval(residual) -
                         Interval(lag) - Interval(offset);
  in.mu = Interval(std::min(least.lo(), most.hi()), most.hi());
  if (lowest) in.mu = hull(in.mu, -reach - Interval(residual) - Interval(offset));
  in.exact_mean = Lower<Log2>((Interval(row.mean_score.lo()) - Interval(in.mu.hi())).lo());
  in.mean_exponent = in.exact_mean - Upper<Log2>(in.score_error);
  in.bias_reach = row.bias.largest;
  // Where the maximum stays behind, it may rise after the row's largest score: by rescale factors
  // whose errors are those of the frames.
  in.top_exponent =
      Lower<Log2>((Interval(offset) - Interval(c_.lazy != nullptr ? frame : residual)).lo());
  if (std::isfinite(c_.initial_max)) {
    const Interval start = scaled_constant(c_.initial_max);
    const Interval own((row.mean_score - Interval(in.score_error)).lo(), most.hi());
    in.initial = start - own;
    in.mu = max(in.mu, start);
    in.exact_mean = Lower<Log2>((Interval(row.mean_score.lo()) - Interval(in.mu.hi())).lo());
    in.mean_exponent = in.exact_mean - Upper<Log2>(in.score_error);
    in.top_exponent = in.top_exponent - Upper<Log2>(std::max(0.0, in.initial.hi()));
  }
  const std::int64_t spread =
      c_.head.modifiers.hides_keys() || c_.head.modifiers.bias ? c_.head.keys() : row.visible;
  if (may_fall() && spread > k.tiles.keys) in.correction = (Interval(2.0) * reach).hi();
  if (split()) {  // a part has its own maximum, and a mean that nobody knows
    in.mu = hull(in.mu, -reach - Interval(residual) - Interval(lag) - Interval(offset));
    in.exact_mean = in.mean_exponent = Lower<Log2>();
  }
  in.far = row.far_keys;
  if (in.far > 0) {
    in.far_exponent = Upper<Log2>((Interval(in.mu.hi()) - Interval(in.mu.lo())).hi()) +
                      Upper<Log2>(std::max(0.0, offset)) + Upper<Log2>(8 - far_bits);
  }
  add_sink(in);
  return in;
}

/// Scores that an exact evaluation of the row reads.
std::int64_t PathBuilder::cost(const RowInputs& in) const {
  if (!may_fall()) return in.visible;
  const RowRange rows = rows_of_decision(*c_.lazy, c_.kernel, c_.head.queries(), in.row);
  return in.visible * (1 + rows.end - rows.begin);
}

/// Evaluates one row exactly. Where maxima may fall, the row's facts are those of `in` anew if they
/// did not.
RowExecution PathBuilder::execute(const RowInputs& in, RowFacts& facts) const {
  const double error = error_of_far(in);
  const auto run = [&](const Interval& mu, const LazyFrames* frames) {
    return execute_row(c_.up, c_.head, c_.kernel, c_.operands, c_.scan, in.row, mu, error, frames);
  };
  if (!online_) return run(in.mu, nullptr);
  if (c_.lazy != nullptr) {
    const LazyFrames frames =
        lazy_frames(c_.up, c_.head, c_.kernel, c_.operands, c_.scan, *c_.lazy, in.row, in.residual);
    if (may_fall() && frames.correction.hi() <= 0) {
      RowInputs stays = in;
      stays.correction = 0;
      facts = bound(stays);
    }
    if (may_fall()) facts.correction = frames.correction;
    return run(frames.mu.back(), &frames);
  }
  // the row's own maximum, known only once its scores are
  const Interval most = largest_score(c_.up, c_.head, c_.operands, in.row);
  const double slack = (Interval(error) + Interval(in.residual)).hi();
  Interval mu = most + Interval(-slack, slack);
  if (std::isfinite(c_.initial_max)) {
    const Interval initial = scaled_constant(c_.initial_max) - mu;
    if (initial.hi() <= 0) {
      RowInputs starts_below = in;
      starts_below.initial = initial;
      starts_below.top_exponent = in.top_exponent + Lower<Log2>(std::max(0.0, in.initial.hi()));
      facts = bound(starts_below);
    }
    facts.initial = initial;
    mu = max(mu, scaled_constant(c_.initial_max));
  }
  facts.hidden = in.hidden_score - mu;
  return run(mu, nullptr);
}

}  // namespace headroom
