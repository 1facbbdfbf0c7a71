#include "reference/evaluate/simulate/exp2_check.h"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/parallel_reduce.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "reference/evaluate/simulate/unit_kernels.h"
#include "reference/evaluate/vector/exp2_constants.h"
#include "reference/format/convert.h"
#include "reference/real/fp_environment.h"

namespace headroom {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::size_t block_size = 512;
constexpr std::uint64_t chunk_size = 1 << 20;

void note(Occurrences& occurrences, const Answer& answer) {
  if (occurrences.count++ == 0) occurrences.first = answer;
}
void append(Occurrences& to, const Occurrences& later) {
  if (to.count == 0) to.first = later.first;
  to.count += later.count;
}

// The report of consecutive arguments; `last_broken` below 0 and `first_broken` from 0 on.
struct Partial {
  Exp2Report report;
  std::optional<Answer> last_small;  ///< highest argument <= 0 whose answer is below 2^emin
  std::optional<std::uint64_t> last_broken, first_broken;

  void append_later(const Partial& later) {
    Exp2Report& a = report;
    const Exp2Report& b = later.report;
    a.arguments += b.arguments;
    if (b.error_ulps > a.error_ulps) {
      a.error_ulps = b.error_ulps;
      a.at_ulps = b.at_ulps;
    }
    if (b.relative_error > a.relative_error) {
      a.relative_error = b.relative_error;
      a.at_relative = b.at_relative;
    }
    if (!a.overflow) a.overflow = b.overflow;
    if (b.last_zero) a.last_zero = b.last_zero;
    if (later.last_small) last_small = later.last_small;
    append(a.decreasing, b.decreasing);
    append(a.inexact, b.inexact);
    append(a.beyond_power, b.beyond_power);
    append(a.negative, b.negative);
    append(a.not_finite, b.not_finite);
    append(a.broken, b.broken);
    if (later.last_broken) last_broken = later.last_broken;
    if (!first_broken) first_broken = later.first_broken;
  }
};

class Checker {
 public:
  Checker(const Exp2Unit& unit, ExponentBase base, UnitChoice choice, std::uint64_t seed,
          const Format& argument)
      : model_(unit),
        base_(base),
        argument_(argument),
        unit_(unit, base, choice, seed),
        least_(promise_of(unit), base, UnitChoice::lowest),
        largest_(promise_of(unit), base, UnitChoice::highest),
        kernels_(unit_kernels(best_instruction_set())),
        half_(argument.max_finite_code() + 1),
        normal_(std::ldexp(1.0, unit.result.emin)),
        beyond_(std::ldexp(1.0, unit.result.emax + 1)),
        largest_finite_(unit.result.max_finite()),
        finite_below_(largest_finite_ + 0.499 / inverse_ulp(largest_finite_)),
        zero_below_(std::ldexp(normal_, unit.flush_to_zero ? -1 : -unit.result.precision)),
        flush_(flush_exponent(unit.result, unit.flush_to_zero)),
        // Up to 2^(p-2) ulps an allowed answer lies between y / 2 and 2 y.
        moderate_(unit.max_error_ulps <= std::ldexp(1.0, unit.result.precision - 2)) {}

  std::uint64_t size() const { return 2 * half_; }

  /// Arguments in ascending order: from the lowest negative one to -0, then from +0.
  float argument(std::uint64_t index) const {
    const std::uint64_t code =
        index < half_ ? argument_.sign_mask() | (half_ - 1 - index) : index - half_;
    if (argument_ == fp32) return std::bit_cast<float>(static_cast<std::uint32_t>(code));
    return static_cast<float>(decode(argument_, code));
  }

  void check(std::uint64_t begin, std::uint64_t end, Partial& partial) const {
    float x[block_size], y[block_size];
    double exact[block_size];
    float before = begin == 0 ? -infinity : unit_(argument(begin - 1));
    for (std::uint64_t i = begin; i < end; i += block_size) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(block_size, end - i));
      for (std::size_t j = 0; j < n; ++j) x[j] = argument(i + j);
      unit_.apply(x, y, n);
      const bool two = base_ == ExponentBase::two;
      kernels_.power(two ? 1 : 0x1.71547652b82fep0, two ? 0 : 0x1.777d0ffda0d24p-56, x, exact, n);
      for (std::size_t j = 0; j < n; ++j) {
        one({x[j], y[j]}, exact[j], before, i + j, partial);
        before = y[j];
      }
    }
    partial.report.arguments += end - begin;
  }

  Exp2Report finished(Partial& partial) const {
    Exp2Report& r = partial.report;
    const auto answer = [&](float x) { return Answer{x, unit_(x)}; };
    r.zero = answer(0);
    r.minus_infinity = answer(-infinity);
    r.plus_infinity = answer(infinity);
    r.nan = answer(std::numeric_limits<float>::quiet_NaN());
    r.nan_kept = !model_.propagates_nan || std::isnan(r.nan.y);
    for (const Answer& special : {r.minus_infinity, r.plus_infinity}) {
      if (special.y != least_(special.x)) note(r.broken, special);
    }
    const std::uint64_t first = partial.last_small ? index_of(partial.last_small->x) + 1 : 0;
    if (first <= half_) r.first_normal = answer(argument(first));
    const std::uint64_t lowest = partial.last_broken ? *partial.last_broken + 1 : 0;
    const std::uint64_t end = partial.first_broken.value_or(size());
    if (lowest < end && end > half_) {
      r.first_kept = argument(lowest);
      r.last_kept = argument(end - 1);
    }
    return r;
  }

 private:
  // The promise alone, whatever computes the unit.
  static Exp2Unit promise_of(Exp2Unit unit) {
    if (unit.name.starts_with("fa4-")) unit.name = ulp_unit_name(unit.max_error_ulps);
    return unit;
  }

  std::uint64_t index_of(float x) const {
    const std::uint64_t code = encode(argument_, x, {});
    const std::uint64_t magnitude = code & (argument_.sign_mask() - 1);
    return code == magnitude ? half_ + magnitude : half_ - 1 - magnitude;
  }

  static double power_of_two(int e) {  // of a normal double
    return std::bit_cast<double>(static_cast<std::uint64_t>(e + fp64.bias())
                                 << fp64.trailing_bits());
  }
  // 1 / ulp of the binade of a normal double.
  double inverse_ulp(double value) const {
    const auto field =
        static_cast<int>(std::bit_cast<std::uint64_t>(value) >> fp64.trailing_bits());
    return power_of_two(model_.result.trailing_bits() + fp64.bias() - field);
  }

  // The integers around x, which beyond 1000 stands for all that is beyond.
  struct Around {
    int below, above;
  };
  static Around integers_around(float x) {
    const float bounded = std::min(std::max(x, -1000.0F), 1000.0F);
    const int cut = static_cast<int>(bounded);
    return {cut - (static_cast<float>(cut) > bounded ? 1 : 0),
            cut + (static_cast<float>(cut) < bounded ? 1 : 0)};
  }

  // Is the answer one that the promise allows? `error` in ulps, an upper bound, or -1 where it or
  // the power is not normal. What doubles do not settle is asked of the promise's ends.
  bool allowed(const Answer& a, double exact, double error, bool beyond) const {
    if (std::isnan(a.y) || std::signbit(a.y)) return false;
    if (error >= 0 && error <= model_.max_error_ulps && !beyond) return true;
    if (a.y == 0 && model_.floor == 0) {
      if (exact < zero_below_) return true;
      if (moderate_ && exact > 4 * normal_) return false;
    }
    if (exact >= 2 * beyond_ && (moderate_ || std::isinf(a.y))) return std::isinf(a.y);
    if (a.y < normal_ && a.y > 0 && model_.flush_to_zero && model_.floor == 0) return false;
    if (error > model_.max_error_ulps + 0x1p-26) return false;
    return a.y >= least_(a.x) && a.y <= largest_(a.x);
  }

  // Does the answer lie beyond a power of two that the argument does not reach?
  bool beyond_power(const Answer& a, const Around& n) const {
    if (base_ == ExponentBase::e) return (a.x >= 0 && a.y < 1) || (a.x <= 0 && a.y > 1);
    const int top = model_.result.emax;
    if (n.above <= top && a.y > power_of_two(std::max(n.above, flush_)) && a.y > model_.floor) {
      return true;
    }
    if (n.below < flush_) return false;
    return a.y < (n.below <= top ? power_of_two(n.below) : largest_finite_);
  }

  void one(const Answer& a, double exact, float before, std::uint64_t index,
           Partial& partial) const {
    Exp2Report& r = partial.report;
    const Around n = integers_around(a.x);
    const bool integer = base_ == ExponentBase::two ? n.below == n.above : a.x == 0;
    double error = -1;
    if (exact >= normal_ && exact < beyond_ && a.y >= normal_ && a.y < beyond_) {
      const double slack = exact * exp2_relative_error_bound * (1 + 0x1p-50);
      const double absolute = std::fabs(a.y - exact) + slack;
      error = absolute * std::min(inverse_ulp(exact), inverse_ulp(a.y));
      // A power that is itself a number has no error that slack may pretend.
      if (integer && a.y == exact) error = 0;
      if (error > r.error_ulps) {
        r.error_ulps = error;
        r.at_ulps = a;
      }
      if (absolute > r.relative_error * exact && error > 0) {
        r.relative_error = absolute / exact * (1 + 0x1p-50);
        r.at_relative = a;
      }
    }
    if (a.y == infinity && !r.overflow) r.overflow = a;
    if (index < half_ || a.x == 0) {
      if (a.y == 0) r.last_zero = a;
      if (!(a.y >= normal_)) partial.last_small = a;
    }
    if (a.y < before) note(r.decreasing, a);
    if (integer && n.below >= flush_ && n.below <= model_.result.emax && a.y != exact) {
      note(r.inexact, a);
    }
    const bool beyond = beyond_power(a, n);
    if (beyond) note(r.beyond_power, a);
    if (std::signbit(a.y)) note(r.negative, a);
    // Rounded to nearest, anything below the largest number and half an ulp of it is finite.
    if (!std::isfinite(a.y) && exact < finite_below_) note(r.not_finite, a);
    if (!allowed(a, exact, error, beyond && model_.monotone_at_integers)) {
      note(r.broken, a);
      if (index < half_) {
        partial.last_broken = index;
      } else if (!partial.first_broken) {
        partial.first_broken = index;
      }
    }
  }

  Exp2Unit model_;
  ExponentBase base_;
  Format argument_;
  ExponentialUnit unit_, least_, largest_;
  const UnitKernels& kernels_;
  std::uint64_t half_;  ///< non-negative finite arguments
  double normal_, beyond_;
  double largest_finite_, finite_below_;
  double zero_below_;  ///< of powers below this a zero is an allowed answer
  int flush_;
  bool moderate_;
};

}  // namespace

Exp2Report check_exp2(const Exp2Unit& unit, ExponentBase base, UnitChoice choice,
                      std::uint64_t seed, const Format& argument,
                      const std::function<void(std::uint64_t)>& progress) {
  const NearestRounding nearest;
  const Checker checker(unit, base, choice, seed, argument);
  const std::uint64_t chunks = (checker.size() + chunk_size - 1) / chunk_size;
  using Range = oneapi::tbb::blocked_range<std::uint64_t>;
  Partial all = oneapi::tbb::parallel_reduce(
      Range(0, chunks, 1), Partial{},
      [&](const Range& range, Partial partial) {
        const NearestRounding in_task;
        for (std::uint64_t chunk = range.begin(); chunk < range.end(); ++chunk) {
          const std::uint64_t begin = chunk * chunk_size;
          const std::uint64_t end = std::min(checker.size(), begin + chunk_size);
          Partial part;
          checker.check(begin, end, part);
          partial.append_later(part);
          if (progress) progress(end - begin);
        }
        return partial;
      },
      [](Partial earlier, const Partial& later) {
        earlier.append_later(later);
        return earlier;
      });
  return checker.finished(all);
}

}  // namespace headroom
