#include "bounds/sums.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bounds/stabilizer.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
__extension__ using Wide = unsigned __int128;

Interval enclose(Wide n) {
  Interval result(0.0);
  for (int word = 3; word >= 0; --word) {
    result = result * Interval(0x1p32) +
             Interval(static_cast<double>(static_cast<std::uint32_t>(n >> (32 * word))));
  }
  return result;
}

Wide power(int exponent) { return Wide{1} << exponent; }
Wide ceil_divide(Wide a, Wide b) { return (a + b - 1) / b; }

Upper<Log2> log2_units(Wide units, int unit_exponent) {
  if (units == 0) return Upper<Log2>(-infinity);
  return Upper<Log2>::of(log2(enclose(units))) + Upper<Log2>(unit_exponent);
}

// Largest partial sum of k units under round to nearest in any association, in units; 0 if unknown.
// k <= 2^p: every integer up to 2^p is representable and rounding is monotone, so k itself.
// k <= 2^(2p): g(k) = max(k, 2k - 2^p).
Wide any_order(Wide k, int p) {
  if (k <= power(p)) return k;
  if (k <= power(2 * p)) return 2 * k - power(p);
  return 0;
}

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// The largest number of roundings that any one term passes on its way into the sum, the first of
// which may be the rounding of an exact product that is added to zero.
//
// In *any* association of n terms a term passes at most n - 1 additions, plus that first rounding
// where the accumulator starts as zero: n. An addition of zero to a number of the format is exact
// and does not count. tile:N: within its tile of m <= N terms at most m by the same argument, then
// one addition for each of the ceil(n / N) tile sums. lanes:N: lane j holds at most ceil(n / N)
// terms, added one after another; the at most N lane sums then meet in any association. A balanced
// tree has depth ceil(log2 n), plus the first rounding. All of these are associations, so none
// exceeds n.
std::int64_t roundings_passed(const AccumulationOrder& order, std::int64_t count) {
  const std::int64_t size = order.size;
  switch (order.kind) {
    case OrderKind::sequential:
    case OrderKind::any:
      return count;
    case OrderKind::tile:
    case OrderKind::lanes:
      if (size <= 0) return count;
      return std::min(count, std::min(size, count) + ceil_divide(count, size));
    case OrderKind::pairwise:
      return std::min<std::int64_t>(count, ceil_log2(static_cast<std::uint64_t>(count)) + 1);
    case OrderKind::matrix_unit:
      return size > 0 ? ceil_divide(count, size) : count;  // steps
  }
  return count;
}

}  // namespace

Upper<Relative> compound_roundings(const UpwardRounding&, Upper<Relative> unit, std::int64_t n) {
  if (n <= 0 || unit.value() == 0) return Upper<Relative>(0);
  if (n == 1) return unit;
  const Interval u(unit.value());
  const Interval count(static_cast<double>(n));
  const double y = (u * count).hi();
  if (unit.value() < 0x1p-20 && y < 0x1p-6) {
    // (1 + u)^n <= e^y <= (2 + y) / (2 - y): the Pade approximant lies above e^y on (0, 2). Cheap,
    // and 2e-5 too large at most.
    return Upper<Relative>::of(Interval(2.0) * Interval(y) / (Interval(2.0) - Interval(y)));
  }
  return Upper<Relative>::of(exp2(count * log2(Interval(1.0) + u)) - Interval(1.0));
}

Upper<Absolute> underflow_error(const Format& format, bool flush_to_zero) {
  const UpwardRounding up;
  return Upper<Absolute>::of(
      power_of_two(flush_to_zero ? format.emin : format.least_exponent() - 1));
}

SumBound partial_sums(const UpwardRounding&, const Accumulator& accumulator, std::int64_t count,
                      std::uint64_t leaf_weight, int unit_exponent) {
  SumBound result;
  if (count <= 0 || leaf_weight == 0) {
    result.log2_largest = Upper<Log2>(-infinity);
    result.exact_order_free = true;
    return result;
  }
  const Format& format = accumulator.format;
  const int p = format.precision;
  // Terms below weight 2^e are also below ceil(weight / 2^s) 2^(e + s): lift the unit to emin, and
  // keep a leaf representable (weight <= 2^p), so that rounding a product cannot exceed it.
  int exponent = unit_exponent;
  Wide weight = leaf_weight;
  int lift = std::max(0, format.emin - unit_exponent);
  while (ceil_divide(weight, power(std::min(lift, 64))) > power(p)) ++lift;
  weight = ceil_divide(weight, power(std::min(lift, 64)));
  exponent += lift;

  const Wide n = static_cast<Wide>(count);
  const Wide k = n * weight;  // below 2^63 2^53
  const AccumulationOrder& order = accumulator.order;
  result.exact_order_free = k <= power(p);

  if (order.kind == OrderKind::matrix_unit) {
    // Every truncation, of the aligned operands (the accumulator is one of them) and of the result,
    // is toward zero: |sum| <= sum |operands| <= k units, whatever k is. The adder need not be
    // monotone for that.
    result.log2_largest = log2_units(k, exponent);
    return result;
  }

  const auto consider = [&](Wide units) {
    if (units > 0) {
      result.log2_largest = tighter(result.log2_largest, log2_units(units, exponent));
    }
  };
  consider(any_order(k, p));

  // Terms of at most 2^j units added one after another, ties to even, never exceed 2^(p + j): at
  // that value half an ulp is 2^j units and the even neighbour is the lower one.
  const auto stall = [&](Wide term) {
    int j = 0;
    while (power(j) < term) ++j;
    return power(p + j);
  };
  const Wide size = order.size > 0 ? static_cast<Wide>(order.size) : 0;
  if (order.kind == OrderKind::sequential) {
    consider(stall(weight));
  } else if (order.kind == OrderKind::tile && size > 0 && size * weight <= power(p)) {
    consider(stall(size * weight));  // a tile's own sum is at most size * weight, any order inside
  } else if (order.kind == OrderKind::lanes && size > 0) {
    const Wide lane = std::min(any_order(ceil_divide(n, size) * weight, p) > 0
                                   ? any_order(ceil_divide(n, size) * weight, p)
                                   : stall(weight),
                               stall(weight));
    int j = 0;
    while (power(j) < lane) ++j;
    // At most `size` lane sums of at most 2^j units each, in any order.
    const Wide lanes = any_order(std::min(size, n), p);
    if (lanes > 0 && j + 2 * p + 1 < 127) consider(lanes << j);
  }
  return result;
}

SumBound partial_sums(const UpwardRounding& up, const Accumulator& accumulator, std::int64_t count,
                      Upper<Log2> log2_leaf) {
  SumBound best;
  const double leaf = log2_leaf.value();
  if (leaf == -infinity || count <= 0) return partial_sums(up, accumulator, count, 0, 0);
  if (!(std::fabs(leaf) < 0x1p20)) return best;
  const double above = std::ceil(leaf);
  const double fraction = exp2(Interval(leaf) - Interval(above)).hi();  // in (1/2, 1]
  double units = fraction;
  for (int h = 0; h < accumulator.format.precision; ++h, units *= 2) {
    const auto weight = static_cast<std::uint64_t>(std::ceil(units));
    const SumBound bound =
        partial_sums(up, accumulator, count, weight, static_cast<int>(above) - h);
    if (bound.log2_largest.value() < best.log2_largest.value()) best = bound;
    if (fraction == 1) break;  // a power of two: one unit is best
  }
  return best;
}

Lower<Log2> log2_max_finite(const UpwardRounding&, const Format& format) {
  return Lower<Log2>::of(log2(Interval(format.max_finite())));
}

// Round to nearest: each rounding multiplies a term by 1 + d, |d| <= u, so a term that passes h of
// them moves by at most ((1 + u)^h - 1) times itself; h over all terms is roundings_passed().
//
// Matrix unit: let S be the sum of the magnitudes of a step's operands, K products and the
// accumulator. Each is cut below 2^(E - F), 2^E no larger than the largest of them, so the K + 1
// cuts lose at most (K + 1) 2^-F S; the cut of the result to p bits loses 2^(1-p) of at most S. The
// accumulator is at most the sum of magnitudes so far, since every cut is toward zero.
Upper<Relative> accumulation_error(const UpwardRounding& up, const Accumulator& accumulator,
                                   std::int64_t count, std::int64_t rescales) {
  if (count <= 0) return Upper<Relative>(0);
  const Upper<Relative> unit =
      Upper<Relative>::of(power_of_two(accumulator.format.log2_unit_roundoff()));
  std::int64_t nearest = rescales + (accumulator.rounded_products ? 1 : 0);
  const std::int64_t passed = roundings_passed(accumulator.order, count);
  if (accumulator.order.kind != OrderKind::matrix_unit) {
    return compound_roundings(up, unit, nearest + passed);
  }
  const AccumulationOrder& order = accumulator.order;
  const Interval step =
      Interval(static_cast<double>(order.size) + 1) * power_of_two(-order.fraction_bits) +
      power_of_two(1 - accumulator.format.precision);
  Upper<Relative> cut = compound_roundings(up, Upper<Relative>::of(step), passed);
  if (order.fraction_bits + 1 < accumulator.format.precision) {
    // steps that add zeros, those of hidden keys, cut what a rescale left below 2^-F once more
    const Upper<Relative> again =
        compound_roundings(up, Upper<Relative>::of(power_of_two(-order.fraction_bits)), rescales);
    cut = cut + again + cut * again;
  }
  const Upper<Relative> rounding = compound_roundings(up, unit, nearest);
  return cut + rounding + cut * rounding;  // (1 + cut)(1 + rounding) - 1
}

// At most `count` events, each at most eta, each then carried through the rest of the sum.
// Flush to zero: an event is a product or a partial sum that becomes 0. It kills at least one value
// that was not 0 (an addition that flushes kills two; adding 0 flushes nothing), and there are
// `count` values to kill. Gradual: sums of numbers of the format are exact below the normal range,
// so only the `count` products (rounded, or fused into an addition) lose up to half the least
// subnormal; a truncating unit loses up to all of it, once a step.
Upper<Absolute> accumulation_underflow(const UpwardRounding& up, const Accumulator& accumulator,
                                       std::int64_t count) {
  if (count <= 0) return Upper<Absolute>(0);
  const Upper<Absolute> events(static_cast<double>(count));
  return underflow_event(accumulator) * events *
         (Upper<Relative>(1) + accumulation_error(up, accumulator, count));
}

Upper<Absolute> underflow_event(const Accumulator& accumulator) {
  const UpwardRounding up;
  if (accumulator.flush_to_zero) return underflow_error(accumulator.format, true);
  const bool truncating = accumulator.order.kind == OrderKind::matrix_unit;
  return Upper<Absolute>::of(
      power_of_two(accumulator.format.least_exponent() - (truncating ? 0 : 1)));
}

double absorption_limit(const Accumulator& accumulator) {
  const AccumulationOrder& order = accumulator.order;
  const double stall = std::ldexp(1.0, accumulator.format.precision);
  switch (order.kind) {
    case OrderKind::sequential:
    case OrderKind::any:
      return stall;
    case OrderKind::tile:
      return order.size > 0 && order.size <= stall ? stall * order.size : stall;
    case OrderKind::lanes:
      return order.size > 0 ? stall * order.size : stall;
    case OrderKind::pairwise:
      return infinity;
    case OrderKind::matrix_unit: {
      if (order.size <= 0) return stall;
      // A single term is cut once the accumulator reaches 2^(F + 1); a step's sum of k terms once
      // an ulp of the accumulator exceeds it.
      const int step = floor_log2(static_cast<std::uint64_t>(order.size));
      return std::fmin(std::ldexp(1.0, order.fraction_bits + 1), std::ldexp(stall, step));
    }
  }
  return stall;
}

}  // namespace headroom
