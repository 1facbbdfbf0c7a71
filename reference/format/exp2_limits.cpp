#include "reference/format/exp2_limits.h"

#include <mpfr.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <numeric>

#include "reference/format/convert.h"

namespace headroom {
namespace {

// More than the precision + 1 bits of any threshold, so that truncation never crosses one.
constexpr mpfr_prec_t comparison_bits = 64;
constexpr mpfr_prec_t double_bits = fp64.precision;

class Number {
 public:
  explicit Number(mpfr_prec_t bits) { mpfr_init2(value_, bits); }
  ~Number() { mpfr_clear(value_); }
  Number(const Number&) = delete;
  Number& operator=(const Number&) = delete;
  mpfr_ptr get() { return value_; }

 private:
  mpfr_t value_;
};

Log2Enclosure enclose_log2(std::uint64_t significand, int exponent) {
  Number exact(comparison_bits);
  Number logarithm(double_bits);
  mpfr_set_ui_2exp(exact.get(), significand, exponent, MPFR_RNDN);  // exact: 64 bits hold it
  mpfr_log2(logarithm.get(), exact.get(), MPFR_RNDD);
  const double lower = mpfr_get_d(logarithm.get(), MPFR_RNDD);
  mpfr_log2(logarithm.get(), exact.get(), MPFR_RNDU);
  return {lower, mpfr_get_d(logarithm.get(), MPFR_RNDU)};
}

ResultThreshold threshold(std::uint64_t significand, int exponent, bool includes_equality) {
  const Log2Enclosure log2 = enclose_log2(significand, exponent);
  return {significand, exponent, includes_equality, log2.lower, log2.upper};
}

// Halfway between the largest finite number and the next one that an unbounded exponent would
// have; the tie goes to the even one of the two.
ResultThreshold overflow_threshold(const Format& f) {
  const std::uint64_t largest = f.max_finite_significand();
  return threshold(2 * largest + 1, f.emax - f.precision, largest % 2 != 0);
}

// Halfway between 2^emin, which is even, and the largest number below it: on the grid of
// subnormals, or on the finer grid of the next binade where tininess is tested.
ResultThreshold normal_threshold(const Format& f, bool flush_to_zero) {
  const int bits = flush_to_zero ? f.precision + 1 : f.precision;
  return threshold((std::uint64_t{1} << bits) - 1, f.emin - bits, true);
}

ResultThreshold nonzero_threshold(const Format& f, bool flush_to_zero) {
  if (flush_to_zero) return normal_threshold(f, true);
  return threshold(1, f.least_exponent() - 1, false);  // halfway from 0, which is even
}

// 2^x is of the upper kind of a threshold.
bool reaches(mpfr_srcptr x, const ResultThreshold& limit) {
  Number power(comparison_bits);
  Number bound(comparison_bits);
  mpfr_set_ui_2exp(bound.get(), limit.significand, limit.exponent, MPFR_RNDN);
  const int ternary = mpfr_exp2(power.get(), x, MPFR_RNDZ);
  const int comparison = mpfr_cmp(power.get(), bound.get());
  if (comparison != 0) return comparison > 0;
  return ternary != 0 || limit.includes_equality;  // 2^x is above its truncation, or equal to it
}

// Finite codes in the order of their values: -max_finite ... -1, 0, 1 ... max_finite.
std::uint64_t code_of(const Format& f, std::int64_t index) {
  return index < 0 ? f.sign_mask() | static_cast<std::uint64_t>(-index)
                   : static_cast<std::uint64_t>(index);
}

struct Split {
  std::optional<std::uint64_t> last_below;
  std::optional<std::uint64_t> first_reaching;
};

// 2^x grows with x: bisect the argument codes.
Split split(const Format& argument, const ResultThreshold& limit) {
  Number x(double_bits);
  const auto code_reaches = [&](std::int64_t index) {
    mpfr_set_d(x.get(), decode(argument, code_of(argument, index)), MPFR_RNDN);  // exact
    return reaches(x.get(), limit);
  };
  const auto top = static_cast<std::int64_t>(argument.max_finite_code());
  std::int64_t below = -top - 1;    // invariant: below does not reach (or is outside),
  std::int64_t reaching = top + 1;  // reaching does (or is outside)
  while (below + 1 < reaching) {
    const std::int64_t middle = std::midpoint(below, reaching);
    (code_reaches(middle) ? reaching : below) = middle;
  }
  Split result;
  if (below >= -top) result.last_below = code_of(argument, below);
  if (reaching <= top) result.first_reaching = code_of(argument, reaching);
  return result;
}

int floor_log2(std::uint64_t n) { return std::bit_width(n) - 1; }
int ceil_log2(std::uint64_t n) { return std::bit_width(n - 1); }

// The largest integer e with count 2^e <= largest finite number.
int largest_scale(const Format& f, std::uint64_t count) {
  // count 2^e against max_significand 2^(emax - p + 1): align the leading bits, then compare.
  const std::uint64_t aligned_count = count << std::countl_zero(count);
  const std::uint64_t largest = f.max_finite_significand();
  const std::uint64_t aligned_largest = largest << std::countl_zero(largest);
  return f.emax - floor_log2(count) - (aligned_count > aligned_largest ? 1 : 0);
}

}  // namespace

Exp2Thresholds exp2_thresholds(const Format& result, bool flush_to_zero) {
  return {overflow_threshold(result), normal_threshold(result, flush_to_zero),
          nonzero_threshold(result, flush_to_zero)};
}

Exp2Limits exp2_limits(const Format& argument, const Format& result, bool flush_to_zero) {
  const Exp2Thresholds thresholds = exp2_thresholds(result, flush_to_zero);
  const Split overflow = split(argument, thresholds.overflow);
  const Split normal = split(argument, thresholds.normal);
  const Split nonzero = split(argument, thresholds.nonzero);
  // 2^0 = 1 is finite and normal in every format, so these exist.
  return {overflow.last_below.value(),    overflow.first_reaching,
          normal.first_reaching.value(),  normal.last_below,
          nonzero.first_reaching.value(), nonzero.last_below};
}

Log2Enclosure log2_largest_finite(const Format& format) {
  return enclose_log2(format.max_finite_significand(), format.emax - format.precision + 1);
}

StabilizerExponent largest_stabilizer_exponent(const Format& exp2_result, const Format& accumulator,
                                               std::uint64_t count, int value_exponent) {
  assert(count >= 1 && value_exponent >= 0);
  // The largest finite number lies in [2^emax, 2^(emax + 1)), hence floor(U_exp) = emax. It is not
  // a power of two (precision >= 2), so U_acc is no integer and ceil(U_acc - A) - 1 = emax - A.
  const int cap = exp2_result.emax;
  StabilizerExponent result;
  result.published = std::min(cap, accumulator.emax - ceil_log2(count) - value_exponent);
  const int p = accumulator.precision;
  result.published_is_sound_to_nearest = 2 * p >= 64 || count <= std::uint64_t{1} << (2 * p);
  if (count <= std::uint64_t{1} << p) {
    result.tight = std::min(cap, largest_scale(accumulator, count) - value_exponent);
  }
  return result;
}

}  // namespace headroom
