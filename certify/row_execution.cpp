#include "certify/row_execution.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "bounds/exp2_unit.h"
#include "bounds/norms.h"
#include "bounds/output_error.h"
#include "bounds/sequential_sum.h"
#include "bounds/sums.h"
#include "certify/row_scores.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// 2^x for x <= about 0 (weights relative to the row's largest); tiny ones as [0, 2^-300], since
/// no verdict hangs on them and MPFR is slow.
Interval relative_weight(const Interval& x) {
  constexpr double negligible = -300;
  if (x.hi() < negligible) return {0, std::ldexp(1.0, static_cast<int>(negligible))};
  return exp2(x);
}

/// Thresholds on the computed exponent: certainly zero below `zero`, certainly nonzero from `kept`,
/// certainly a normal number from `normal`.
struct FlushThresholds {
  double zero, kept, normal;
};

Interval log2_kept(const Interval& error) {
  return error.hi() < 1 ? log2(Interval(1.0) - error) : Interval(-infinity, 0.0);
}

/// Of a value 2^x (1 + error), |error| <= eps, that is rounded to `format`.
FlushThresholds flush_thresholds(const Format& format, bool ftz, const Interval& eps) {
  const double threshold = flush_exponent(format, ftz);
  // A value within half an ulp below 2^emin rounds up to it (FTZ); a value above half the least
  // subnormal rounds up to that (gradual, one binade below the threshold).
  const double slack = ftz ? std::ldexp(1.0, 2 - format.precision) : 1.0;
  const Interval overshoot = log2(Interval(1.0) + eps);
  const Interval undershoot = -log2_kept(eps);
  return {(Interval(threshold) - Interval(slack) - overshoot).lo(),
          (Interval(threshold) + undershoot).hi(), (Interval(format.emin) + undershoot).hi()};
}

/// The exp2 unit's own: where results are subnormal, errors are ulps of the least of them. Only a
/// unit that rounds correctly certainly gives 0 for very small results then.
FlushThresholds flush_thresholds(const Exp2Unit& unit, const Interval& eps) {
  FlushThresholds result = flush_thresholds(unit.result, unit.flush_to_zero, eps);
  if (!unit.flush_to_zero && unit.max_error_ulps > 0.5) {
    result.zero = -infinity;
    result.kept = exp2_flush_exponent(unit);
  }
  return result;
}

/// A computed weight, relative: 2^x (1 + error) if normal in `format`, anything from 0 to twice
/// that, or that and `floor`, below (gradual underflow or a flush).
Interval stored_weight(const Interval& value, const Interval& exponent,
                       const FlushThresholds& flush, const Interval& rounding,
                       const Interval& floor) {
  if (exponent.hi() < flush.zero) return Interval(0.0);
  if (exponent.lo() >= flush.normal) return value * rounding;
  return {0, std::fmax((value * Interval(2.0)).hi(), (value + floor).hi())};
}

/// log2 of a magnitude over the format's overflow threshold: from 2^(emax + 1) on nothing is
/// finite, whatever the rounding.
double over_threshold(const Interval& magnitude, const Format& format) {
  return magnitude.lo() > 0 ? (log2(magnitude) - Interval(format.emax + 1)).lo() : -infinity;
}

/// Lower bound of how far the score of largest magnitude lies beyond its formats' ranges.
/// `largest_terms` bounds sum |q~ k~| of its products.
double score_overflow(const UpwardRounding& up, const KernelModel& kernel, const Operands& operands,
                      double largest_dot, double largest_terms) {
  const Interval gamma(
      accumulation_error(up, kernel.score.accumulator, operands.channels()).value());
  const Interval computed = Interval(largest_dot) - gamma * Interval(largest_terms);
  if (!(computed.lo() > 0)) return -infinity;
  const int accumulator_precision = kernel.score.accumulator.format.precision;
  const Interval held =
      kernel.score.scale_before_store
          ? computed * Interval(std::fabs(operands.stored_score_factor())) *
                square(Interval(1.0) -
                       Interval(std::ldexp(
                           1.0, -std::min(kernel.score.store.precision, accumulator_precision))))
          : computed;
  return std::max(over_threshold(computed, kernel.score.accumulator.format),
                  over_threshold(held, kernel.score.store));
}

/// Where sums are sequential and may or may not overflow, follows them. `terms`, `weights`: those
/// of l and of O, relative; times `scale` as they are.
void follow_sums(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                 const std::vector<std::int64_t>& keys, const std::vector<Interval>& terms,
                 const std::vector<Interval>& weights, const Interval& scale,
                 RowExecution& result) {
  const auto straddles = [&](const Accumulator& sum, const Interval& log2_value) {
    const double most = log2_max_finite(up, sum.format).value();
    return sum.order.kind == OrderKind::sequential && log2_value.lo() <= most &&
           log2_value.hi() > most;
  };
  const auto held = [&](const Accumulator& sum, const Interval& term) {
    return sum.rounded_products ? rounded(up, sum.format, term, false) : term;
  };
  // far from the flush: the sums are near the other end of the format
  if (straddles(kernel.denominator, result.log2_denominator)) {
    SequentialSum l(up, kernel.denominator.format);
    for (const Interval& term : terms) l.add(term * scale);
    if (std::isfinite(l.largest()) && l.total().lo() > 0) {
      const double hi = log2(l.total()).hi();  // the lower end may have lost flushed terms
      result.log2_denominator = {std::min(result.log2_denominator.lo(), hi), hi};
    }
  }
  if (!straddles(kernel.numerator, result.log2_numerator)) return;
  const auto channels = static_cast<std::size_t>(head.value_channels());
  std::vector<SequentialSum> o(channels, SequentialSum(up, kernel.numerator.format));
  std::vector<double> v(channels);
  for (std::size_t j = 0; j < keys.size(); ++j) {
    head.v.load_row(keys[j], v.data());
    for (std::size_t c = 0; c < channels; ++c) {
      o[c].add(held(kernel.numerator, weights[j] * Interval(v[c]) * scale));
    }
  }
  double largest = 0;
  for (const SequentialSum& sum : o) largest = std::max(largest, sum.largest());
  if (kernel.numerator.flush_to_zero) return;
  if (std::isfinite(largest) && largest > 0) {
    result.log2_numerator = {std::min(result.log2_numerator.lo(), log2(Interval(largest)).hi()),
                             log2(Interval(largest)).hi()};
  }
}

Interval plus_minus(double relative) { return Interval(1.0) + Interval(-relative, relative); }

}  // namespace

Upper<Absolute> largest_terms(const UpwardRounding&, const Operands& operands, std::int64_t row,
                              std::int64_t end) {
  const auto d = static_cast<std::size_t>(operands.channels());
  std::vector<double> q(d), lo(d), hi(d);
  operands.query_row(row, q.data());
  double most = 0;
  for (std::int64_t j = 0; j < end; ++j) {
    operands.key_row(j, lo.data(), hi.data());
    Interval sum(0.0);
    for (std::size_t c = 0; c < d; ++c) sum += abs(Interval(q[c]) * Interval(lo[c], hi[c]));
    most = std::max(most, sum.hi());
  }
  return Upper<Absolute>(most);
}

Interval largest_score(const UpwardRounding& up, const Head& head, const Operands& operands,
                       std::int64_t row) {
  const auto d = static_cast<std::size_t>(head.channels());
  std::vector<double> q(d), lo(d), hi(d);
  operands.query_row(row, q.data());
  Interval largest(-infinity, -infinity);
  for (const KeyRange& run : visible_runs(head, row)) {
    for (std::int64_t j = run.begin; j < run.end; ++j) {
      operands.key_row(j, lo.data(), hi.data());
      largest = max(largest, operands.score_factor() * dot(up, q, lo, hi) +
                                 Interval(head.modifiers.bias_at(row, j)) * log2_e());
    }
  }
  return largest;
}

double certainly_zero_below(const Exp2Unit& unit) {
  return flush_thresholds(unit, Interval(exp2_relative_error(unit).value())).zero;
}

RowExecution execute_row(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                         const Operands& operands, const HeadScan& scan, std::int64_t row,
                         const Interval& mu, double score_error, const LazyFrames* frames) {
  std::vector<std::int64_t> keys;
  for (const KeyRange& run : visible_runs(head, row)) {
    for (std::int64_t j = run.begin; j < run.end; ++j) keys.push_back(j);
  }
  const auto d = static_cast<std::size_t>(head.channels());
  const std::size_t count = keys.size();
  std::vector<double> q(d), lo(d), hi(d);
  operands.query_row(row, q.data());
  const Interval& factor = operands.score_factor();

  RowExecution result;
  std::vector<Interval> z(count);
  Interval largest(-infinity, -infinity);
  double largest_dot = 0;  // lower bound of max |<q~, k~>|
  for (std::size_t j = 0; j < count; ++j) {
    operands.key_row(keys[j], lo.data(), hi.data());
    const Interval product = dot(up, q, lo, hi);
    largest_dot = std::max(largest_dot, abs(product).lo());
    z[j] = factor * product;
    if (head.modifiers.bias) z[j] += Interval(head.modifiers.bias_at(row, keys[j])) * log2_e();
    if (z[j].hi() > largest.hi()) result.max_key = keys[j];
    largest = max(largest, z[j]);
  }
  const Interval terms = norm(up, q) * scan.key_norm;
  result.score_overflow_lo = score_overflow(up, kernel, operands, largest_dot, terms.hi());

  // |x^ - (z - mu)|: the score's error, then the rounding of x to the exponent format, which for
  // keys that matter is at most u max(|largest x|, |least threshold|).
  const Interval eps(exp2_relative_error(kernel.exp2).value());
  const FlushThresholds exp2_flush = flush_thresholds(kernel.exp2, eps);
  FlushThresholds p_flush = flush_thresholds(kernel.p.format, kernel.p.flush_to_zero, eps);
  if (std::isinf(exp2_flush.zero)) {
    // E may be off by its floor however small 2^x is: P is certainly 0 only where that is far below
    // P's own threshold.
    const bool negligible = exp2_floor_error(kernel.exp2).value() <=
                            std::ldexp(1.0, static_cast<int>(std::floor(p_flush.zero)) - 2);
    p_flush.zero = negligible ? std::floor(p_flush.zero) - 1 : -infinity;
  }
  const FlushThresholds l_flush =
      flush_thresholds(kernel.denominator.format, kernel.denominator.flush_to_zero, eps);
  const bool narrow_l = kernel.denominator.format.emin > kernel.exp2.result.emin;
  const double least_threshold =
      std::max({std::fabs(l_flush.kept), static_cast<double>(-kernel.exp2.result.least_exponent()),
                static_cast<double>(-kernel.p.format.least_exponent()), std::fabs(p_flush.kept)});
  const auto own_mu = [&](std::size_t j) {
    return frames == nullptr ? mu : frames->of_key(keys[j]);
  };
  double top = (largest - mu).magnitude();
  if (frames != nullptr) {
    for (std::size_t j = 0; j < count; ++j) top = std::max(top, (z[j] - own_mu(j)).hi());
  }
  const double reach = std::max(top, least_threshold) + 3;
  const Interval exponent_rounding =
      Interval(reach) * Interval(std::ldexp(1.0, -kernel.exponent.format.precision));
  const double error_bound = (Interval(score_error) + exponent_rounding).hi();
  const Interval error(-error_bound, error_bound);
  const Interval exponent_shift = error - mu;
  result.max_exponent = largest + exponent_shift;
  if (frames != nullptr) {
    result.max_exponent = Interval(-infinity);
    for (std::size_t j = 0; j < count; ++j) {
      result.max_exponent = max(result.max_exponent, z[j] + error - own_mu(j));
    }
  }

  // Where P stops growing (saturating conversions) the excess is lost from the numerator only:
  // perhaps once E may exceed the largest number, certainly from half an ulp above it.
  double may_saturate = infinity, saturates = infinity;
  if (kernel.p.saturate) {
    const Format& f = kernel.p.format;
    const Interval most(f.max_finite());
    may_saturate = (log2(most) - log2(Interval(1.0) + eps)).lo();
    saturates =
        (log2(most + Interval(std::ldexp(1.0, f.emax - f.precision))) - log2_kept(eps)).hi();
    // an infinite E saturates as well
    const Format& result = kernel.exp2.result;
    may_saturate = std::min(may_saturate,
                            (log2(Interval(result.max_finite())) - log2(Interval(1.0) + eps)).lo());
    saturates = std::min(saturates, (Interval(result.emax + 1) - log2_kept(eps)).hi());
  }
  const Interval unit_error = plus_minus(eps.hi());
  const Interval p_rounding = plus_minus(std::ldexp(1.0, -kernel.p.format.precision));

  // Weights relative to 2^reference, so that nothing overflows here.
  const double reference = std::floor(largest.hi());
  const Interval frame = Interval(reference) - mu;  // log2 of (kernel's weight / relative weight)
  const Interval scale = exp2(frame);
  // what a unit may add to a subnormal result, in the same relative units
  const Interval exp2_floor = kernel.exp2.max_error_ulps > 0.5 && !kernel.exp2.flush_to_zero
                                  ? Interval(exp2_floor_error(kernel.exp2).value()) * exp2(-frame)
                                  : Interval(0.0);
  const auto channels = static_cast<std::size_t>(head.value_channels());
  const bool products_flush = kernel.numerator.flush_to_zero && kernel.numerator.rounded_products;
  const double product_floor = std::ldexp(1.0, kernel.numerator.format.emin);
  // just below it a product is rounded up to it
  const double product_flushes =
      product_floor * (1 - std::ldexp(1.0, -kernel.numerator.format.precision));
  Interval mass(0.0), lost(0.0), denominator(0.0);
  std::vector<Interval> numerator(channels), absolute(channels), flushed_products(channels);
  std::vector<double> v(channels);
  double v_magnitude = 0;  // of the visible keys
  // sums that are followed term by term, if need be
  std::vector<Interval> terms_of_l(count), weights(count);
  bool one_sign = true, products_are_normal = true;
  std::vector<double> signs(channels);
  for (std::size_t j = 0; j < count; ++j) {
    const Interval weight = relative_weight(z[j] - Interval(reference));
    const Interval exponent = z[j] + exponent_shift;
    mass += weight;
    const Interval own = frames == nullptr ? exponent : z[j] + error - own_mu(j);
    const bool flushed = own.hi() < exp2_flush.zero || own.hi() < p_flush.zero;
    const bool kept = exponent.lo() >= exp2_flush.kept && exponent.lo() >= p_flush.kept;
    if (flushed || own.lo() > saturates) {
      lost += weight;
    } else if (!kept || own.hi() > may_saturate) {
      lost += Interval(0.0, weight.hi());
    }

    const Interval value = relative_weight(z[j] + error - Interval(reference));
    const Interval e = stored_weight(value, exponent, exp2_flush, unit_error, exp2_floor);
    Interval p = stored_weight(e, exponent, p_flush, p_rounding, Interval(0.0));
    if (own.hi() > may_saturate) p = hull(Interval(0.0), p);
    Interval term = kernel.p.denominator_rounded ? p : e;
    // an accumulator narrower than its terms may lose up to all of one near its floor, or double it
    if (narrow_l && exponent.lo() < l_flush.normal) {
      term = hull(Interval(0.0), term * Interval(2.0));
    }
    denominator += term;
    terms_of_l[j] = term;
    weights[j] = p;

    head.v.load_row(keys[j], v.data());
    for (std::size_t c = 0; c < channels; ++c) {
      v_magnitude = std::max(v_magnitude, std::fabs(v[c]));
      const Interval product = p * Interval(v[c]);
      const Interval magnitude = abs(product);
      absolute[c] += magnitude;
      const Interval actual = magnitude * scale;
      if (v[c] != 0) {
        one_sign = one_sign && signs[c] * v[c] >= 0;
        signs[c] = std::copysign(1.0, v[c]);
        products_are_normal = products_are_normal && actual.lo() >= product_floor;
      }
      if (!products_flush || actual.lo() >= product_floor) {
        numerator[c] += product;
      } else if (actual.hi() < product_flushes) {
        flushed_products[c] += product;
      } else {
        numerator[c] += hull(Interval(0.0), product);
        flushed_products[c] += hull(Interval(0.0), product);
      }
    }
  }
  result.log2_mass = log2(mass) + frame;
  const Interval share_lost = lost / mass;
  result.lost = {std::max(0.0, share_lost.lo()), std::min(1.0, share_lost.hi())};

  const std::int64_t added = static_cast<std::int64_t>(count) + scan.padding_keys;
  const double l_error = accumulation_error(up, kernel.denominator, added).value();
  denominator = l_error < 1 ? denominator * plus_minus(l_error)
                            : Interval(0.0, denominator.hi() > 0 ? infinity : 0.0);
  if (scan.padding_keys > 0) {  // zero keys score 0: each adds 2^(0 - mu), or is flushed
    const Interval padding = Interval(static_cast<double>(scan.padding_keys)) *
                             exp2(Interval(-reference)) * Interval(2.0);
    denominator += Interval(0.0, padding.hi());
  }
  result.denominator_zero = denominator.hi() == 0;
  result.log2_denominator =
      result.denominator_zero ? Interval(-infinity, -infinity) : log2(denominator) + frame;

  // The final accumulator is numerator +- error; partial sums in any order stay below the sum of
  // magnitudes and error.
  const double o_error = accumulation_error(up, kernel.numerator, added).value();
  const Interval o_underflow(accumulation_underflow(up, kernel.numerator, added).value());
  double final_lo = 0, partial_hi = 0, flush_lo = 0;
  for (std::size_t c = 0; c < channels; ++c) {
    const Interval spread = absolute[c] * Interval(-o_error, o_error);
    final_lo = std::max(final_lo, abs(numerator[c] + spread).lo());
    partial_hi = std::max(partial_hi, (absolute[c] * plus_minus(o_error)).hi());
    if (products_flush && denominator.hi() > 0) {
      const Interval share = abs(flushed_products[c]) / denominator;
      flush_lo = std::max(flush_lo, share.lo());
    }
  }
  const Interval largest_lo = Interval(final_lo) * scale - o_underflow;
  const Interval largest_hi = Interval(partial_hi) * scale + o_underflow;
  result.log2_numerator = {largest_lo.lo() > 0 ? log2(Interval(largest_lo.lo())).lo() : -infinity,
                           largest_hi.hi() > 0 ? log2(Interval(largest_hi.hi())).hi() : -infinity};
  if (frames == nullptr && scan.padding_keys == 0 && std::isinf(kernel.mask.value)) {
    follow_sums(up, head, kernel, keys, terms_of_l, weights, scale, result);
  }
  // Sums of normal products of one sign are no smaller than one of them: nothing is flushed.
  const bool nothing_is_flushed = kernel.numerator.flush_to_zero && one_sign &&
                                  products_are_normal &&
                                  kernel.numerator.order.kind != OrderKind::matrix_unit;
  if (nothing_is_flushed) return result;
  // Flushed partial sums come on top of flushed products: together at most one event a key.
  if (v_magnitude > 0 && !result.denominator_zero) {
    const double events =
        product_flush(up, kernel, added, Lower<Log2>(result.log2_denominator.lo())).value();
    result.product_flush = Interval(std::min(flush_lo, events), events) / Interval(v_magnitude);
  }
  return result;
}

}  // namespace headroom
