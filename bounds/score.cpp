#include "bounds/score.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "bounds/norms.h"
#include "bounds/sums.h"

namespace headroom {
namespace {

Upper<Relative> unit_roundoff(const Format& format) {
  return Upper<Relative>::of(power_of_two(format.log2_unit_roundoff()));
}

/// Every number of `narrow` is one of `wide`.
bool holds(const Format& wide, const Format& narrow) {
  return wide.precision >= narrow.precision && wide.least_exponent() <= narrow.least_exponent() &&
         wide.max_finite() >= narrow.max_finite();
}

bool is_power_of_two(double x) {
  int exponent = 0;
  return std::fabs(std::frexp(x, &exponent)) == 0.5;
}

Upper<Absolute> absolute(const Interval& x) { return Upper<Absolute>(x.magnitude()); }

/// The value as far as it has come: how large its magnitude can be, and how far off.
struct Stage {
  Upper<Absolute> magnitude, error;
  Upper<Absolute> ratio{0.0};  ///< largest magnitude over its format's largest finite number

  void enter(const Format& format) {
    ratio = max(ratio, magnitude / Lower<Absolute>(format.max_finite()));
  }
  /// One rounding to nearest into `format`, underflow included.
  void round(const Format& format, bool flush, bool exact_if_normal) {
    Upper<Absolute> step = underflow_error(format, flush);
    if (!exact_if_normal) step = step + magnitude * unit_roundoff(format);
    // to nearest nothing becomes infinite below half an ulp beyond the largest number
    const Interval overflows =
        Interval(format.max_finite()) + power_of_two(format.emax - format.precision);
    const bool stays_finite = magnitude.value() < overflows.lo();
    error = error + step;
    magnitude = magnitude + step;
    // (the magnitude itself stays affine in the norms: score_error_line)
    if (stays_finite && magnitude.value() > format.max_finite()) {
      ratio = max(ratio, Upper<Absolute>(1.0));
    } else {
      enter(format);
    }
  }
};

// The steps of a score, DESIGN.md "Kernel model":
//   s = accumulate(q~_i k~_i)                                   accumulator format
//   scale_before_store:   t = RN(s c^) in the accumulator's format, z = RN(t) in `store`
//   otherwise:            t = RN(s) in `store`, z = RN(t c^) in the exponent's format (exact and
//                         not rounded if the exponent is fused)
// c^ the stored constant. No multiplication takes place where factor and constant are 1; by a power
// of two it is exact but for underflow; a conversion to a format that holds the other is exact.
Stage score_stages(const UpwardRounding& up, const KernelModel& kernel, std::int64_t channels,
                   const Interval& factor, double stored_factor, Upper<Absolute> q_norm,
                   Upper<Absolute> key_norm) {
  const ScoreStage& score = kernel.score;
  const bool flush = score.accumulator.flush_to_zero;
  const Format& format = score.accumulator.format;
  const Format& key_format =
      kernel.centring.keys == Centring::mean ? kernel.centring.difference : kernel.operand;

  // A product of p1 and p2 significant bits has p1 + p2.
  Accumulator accumulator = score.accumulator;
  if (kernel.operand.precision + key_format.precision <= format.precision) {
    accumulator.rounded_products = false;
  }

  const Upper<Absolute> exact = q_norm * key_norm;  // bounds sum |q_i k_i| over any subset
  Upper<Absolute> lost = accumulation_underflow(up, accumulator, channels);
  if (flush &&
      std::min(kernel.operand.least_exponent(), key_format.least_exponent()) < format.emin) {
    // Hardware that flushes may also read operands below 2^emin as zero: by Cauchy-Schwarz again,
    // sum |q_i| |k_i| over such q_i or such k_i is at most 2^emin sqrt(d) times the other's norm.
    const Upper<Absolute> small = Upper<Absolute>::of(
        power_of_two(format.emin) * sqrt(Interval(static_cast<double>(channels))));
    lost = lost + (small * key_norm + small * q_norm) *
                      (Upper<Relative>(1) + accumulation_error(up, accumulator, channels));
  }

  Stage s;
  s.error = exact * accumulation_error(up, accumulator, channels) + lost;
  s.magnitude = exact + s.error;
  s.enter(format);

  const bool multiplies = !(factor.is_point() && factor.lo() == 1 && stored_factor == 1);
  const bool exact_factor =
      factor.is_point() && factor.lo() == stored_factor && is_power_of_two(stored_factor);
  const Upper<Absolute> constant(std::fabs(stored_factor));
  const Upper<Absolute> off = absolute(Interval(stored_factor) - factor);
  const auto multiply = [&] {
    s.error = constant * s.error + off * exact;
    s.magnitude = constant * s.magnitude;
  };
  const auto store = [&] {
    if (holds(score.store, format)) {
      s.enter(score.store);
    } else {
      s.round(score.store, flush, false);
    }
  };

  if (score.scale_before_store) {
    if (multiplies) {
      multiply();
      s.round(format, flush, exact_factor);
    }
    store();
  } else {
    store();
    if (multiplies) {
      multiply();
      s.enter(kernel.exponent.format);
      // a power of two keeps every bit, but the exponent's format may not hold those of the store
      if (!kernel.exponent.fused) {
        s.round(kernel.exponent.format, flush,
                exact_factor && holds(kernel.exponent.format, score.store));
      }
    }
  }
  return s;
}

}  // namespace

Upper<Log2> cauchy_schwarz(const UpwardRounding&, const Interval& factor, Upper<Absolute> q_norm,
                           Upper<Absolute> radius, const Interval& center_score) {
  const Upper<Absolute> spread = absolute(factor) * q_norm * radius;
  return Upper<Log2>::of(center_score) + Upper<Log2>(spread.value());
}

RowMaximum row_maximum(const UpwardRounding& up, const Operands& operands, std::int64_t row,
                       std::int64_t begin, std::int64_t end) {
  const auto d = static_cast<std::size_t>(operands.channels());
  std::vector<double> q(d), lo(d), hi(d);
  operands.query_row(row, q.data());
  const Interval factor = operands.score_factor();
  RowMaximum result;
  for (std::int64_t j = begin; j < end; ++j) {
    operands.key_row(j, lo.data(), hi.data());
    const Interval score = factor * dot(up, q, lo, hi);
    if (j == begin) {
      result = {score, j};
      continue;
    }
    if (score.hi() > result.value.hi()) result.key = j;
    result.value = max(result.value, score);
  }
  return result;
}

Upper<Log2> score_error(const UpwardRounding& up, const KernelModel& kernel, std::int64_t channels,
                        const Interval& factor, double stored_factor, Upper<Absolute> q_norm,
                        Upper<Absolute> key_norm) {
  const Stage s = score_stages(up, kernel, channels, factor, stored_factor, q_norm, key_norm);
  return s.ratio.value() <= 1 ? Upper<Log2>(s.error.value()) : Upper<Log2>();
}

Upper<Log2> score_error(const UpwardRounding& up, const KernelModel& kernel,
                        const Operands& operands, Upper<Absolute> q_norm,
                        Upper<Absolute> key_norm) {
  return score_error(up, kernel, operands.channels(), operands.score_factor(),
                     operands.stored_score_factor(), q_norm, key_norm);
}

std::optional<ScoreErrorLine> score_error_line(const UpwardRounding& up, const KernelModel& kernel,
                                               const Operands& operands, Upper<Absolute> most,
                                               Upper<Absolute> key_norm) {
  const double low = score_error(up, kernel, operands, Upper<Absolute>(0), key_norm).value();
  const double high = score_error(up, kernel, operands, most, key_norm).value();
  if (!std::isfinite(low) || !std::isfinite(high)) return std::nullopt;
  if (!(most.value() > 0)) return ScoreErrorLine{std::max(low, high), 0};
  const Interval rise = Interval(std::max(low, high)) - Interval(low);
  return ScoreErrorLine{low, (rise / Interval(most.value())).hi()};
}

Upper<Log2> score_range(const UpwardRounding& up, const KernelModel& kernel, std::int64_t channels,
                        const Interval& factor, double stored_factor, Upper<Absolute> q_norm,
                        Upper<Absolute> key_norm) {
  const Stage s = score_stages(up, kernel, channels, factor, stored_factor, q_norm, key_norm);
  if (s.ratio.value() == 0) return Upper<Log2>(-std::numeric_limits<double>::infinity());
  return Upper<Log2>::of(log2(Interval(s.ratio.value())));
}

Upper<Log2> score_range(const UpwardRounding& up, const KernelModel& kernel,
                        const Operands& operands, Upper<Absolute> q_norm,
                        Upper<Absolute> key_norm) {
  return score_range(up, kernel, operands.channels(), operands.score_factor(),
                     operands.stored_score_factor(), q_norm, key_norm);
}

Upper<Log2> operand_rounding_error(const UpwardRounding&, const Interval& factor,
                                   Upper<Absolute> q_norm, Upper<Absolute> q_difference,
                                   Upper<Absolute> key_difference,
                                   Upper<Absolute> raw_centred_key_norm) {
  const Upper<Absolute> shift = q_norm * key_difference + q_difference * raw_centred_key_norm;
  return Upper<Log2>((absolute(factor) * shift).value());
}

}  // namespace headroom
