// Everything here is integer arithmetic on codes: no result depends on the processor's rounding
// mode, FTZ or DAZ, and none is rounded twice.
#include "reference/format/convert.h"

#include <bit>
#include <cassert>

namespace headroom {
namespace {

constexpr int significand_width = 64;
static_assert(GMP_NUMB_BITS == significand_width, "one limb holds the leading 64 bits");

constexpr bool away_from_zero(Rounding rounding, bool negative) {
  return (rounding == Rounding::upward && !negative) ||
         (rounding == Rounding::downward && negative);
}

// The integer nearest to value / 2^drop in the given direction, for a value in [kept, kept + 1)
// whose fraction is described by `half` (its leading bit) and `below_half` (anything below that).
constexpr std::uint64_t rounded_up_or_not(std::uint64_t kept, bool half, bool below_half,
                                          Rounding rounding, bool negative) {
  if (rounding == Rounding::nearest_even) return kept + (half && (below_half || (kept & 1) != 0));
  return kept + ((half || below_half) && away_from_zero(rounding, negative));
}

// |value| / 2^(value.exponent + drop), rounded to an integer.
std::uint64_t round_significand(const ExactValue& value, std::int64_t drop, Rounding rounding) {
  const std::uint64_t s = value.significand;
  // Not sticky then: a sticky value has at least 63 bits and no format keeps more than 53.
  if (drop <= 0) return s << -drop;
  std::uint64_t kept = 0;
  bool half = false;
  std::uint64_t rest = s;
  if (drop <= significand_width) {
    half = ((s >> (drop - 1)) & 1) != 0;
    rest = s & ((std::uint64_t{1} << (drop - 1)) - 1);
    kept = drop < significand_width ? s >> drop : 0;
  }
  return rounded_up_or_not(kept, half, rest != 0 || value.sticky, rounding, value.negative);
}

std::uint64_t sign_of(const Format& format, bool negative) {
  return negative ? format.sign_mask() : 0;
}

// What stands for an infinity in this format.
std::uint64_t infinity(const Format& format, bool negative, bool saturate) {
  std::uint64_t code = format.max_finite_code();
  if (!saturate && format.has_infinity()) code = format.infinity_code();
  if (!saturate && !format.has_infinity() && format.has_nan()) code = format.nan_code();
  return sign_of(format, negative) | code;
}

std::uint64_t nan(const Format& format, bool negative) {
  const std::uint64_t code = format.has_nan() ? format.nan_code() : format.max_finite_code();
  return sign_of(format, negative) | code;
}

// A finite magnitude that, rounded with unbounded exponent, exceeds the largest finite number
// (IEEE 754-2019, 7.4).
std::uint64_t overflowed(const Format& format, bool negative, const ConversionPolicy& policy) {
  const bool gives_infinity =
      policy.rounding == Rounding::nearest_even || away_from_zero(policy.rounding, negative);
  return infinity(format, negative, policy.saturate || !gives_infinity);
}

// `value`, nonzero with leading bit 2^(emin - 1) or less, stays below 2^emin when it is rounded
// to the format's precision with unbounded exponent.
bool is_tiny(const Format& format, const ExactValue& value, int width, Rounding rounding) {
  const std::int64_t leading = value.exponent + width - 1;
  if (leading < format.emin - 1) return true;  // rounding reaches 2^(leading + 1) at most
  const std::uint64_t rounded = round_significand(value, width - format.precision, rounding);
  return rounded < (std::uint64_t{1} << format.precision);
}

}  // namespace

ExactValue exact_value(double finite) {
  return decode_exact(fp64, std::bit_cast<std::uint64_t>(finite));
}

ExactValue exact_value(mpfr_srcptr value) {
  assert(mpfr_number_p(value) != 0);
  ExactValue result;
  result.negative = mpfr_signbit(value) != 0;
  if (mpfr_zero_p(value) != 0) return result;
  // MPFR manual, "Custom Interface": the significand is an array of limbs, least significant
  // first, its leading bit set, and the number is 0.significand * 2^exponent.
  const auto* limbs = static_cast<const mp_limb_t*>(mpfr_custom_get_significand(value));
  const std::int64_t last = (mpfr_get_prec(value) - 1) / significand_width;
  result.significand = limbs[last];
  result.exponent = mpfr_get_exp(value) - significand_width;
  for (std::int64_t i = 0; i < last && !result.sticky; ++i) result.sticky = limbs[i] != 0;
  return result;
}

NumberClass classify(const Format& format, std::uint64_t code) {
  const std::uint64_t magnitude = code & (format.sign_mask() - 1);
  if (magnitude == 0) return NumberClass::zero;
  if (magnitude <= format.trailing_mask()) return NumberClass::subnormal;
  if (magnitude <= format.max_finite_code()) return NumberClass::normal;
  return format.has_infinity() && magnitude == format.infinity_code() ? NumberClass::infinite
                                                                      : NumberClass::nan;
}

ExactValue decode_exact(const Format& format, std::uint64_t code) {
  const int trailing = format.trailing_bits();
  const std::uint64_t magnitude = code & (format.sign_mask() - 1);
  const std::uint64_t field = magnitude >> trailing;
  ExactValue result;
  result.negative = (code & format.sign_mask()) != 0;
  result.significand = magnitude & format.trailing_mask();
  if (magnitude == 0) return result;
  result.exponent = format.least_exponent();
  if (field != 0) {
    result.significand |= std::uint64_t{1} << trailing;
    result.exponent += static_cast<std::int64_t>(field) - 1;
  }
  return result;
}

double decode(const Format& format, std::uint64_t code) {
  if (format == fp64) return std::bit_cast<double>(code);
  const int trailing = format.trailing_bits();
  const std::uint64_t magnitude = code & (format.sign_mask() - 1);
  const std::uint64_t sign = (code & format.sign_mask()) != 0 ? fp64.sign_mask() : 0;
  const int widening = fp64.trailing_bits() - trailing;
  if (magnitude > format.max_finite_code()) {
    const bool infinite = format.has_infinity() && magnitude == format.infinity_code();
    return std::bit_cast<double>(sign | (infinite ? fp64.infinity_code() : fp64.nan_code()));
  }
  if (magnitude > format.trailing_mask()) {  // normal: rebias the exponent field
    const auto rebias = static_cast<std::uint64_t>(fp64.bias() - format.bias());
    return std::bit_cast<double>(sign |
                                 ((magnitude << widening) + (rebias << fp64.trailing_bits())));
  }
  if (magnitude == 0) return std::bit_cast<double>(sign);
  // Subnormal; every other format's subnormals are normal doubles.
  const int width = std::bit_width(magnitude);
  const auto field = static_cast<std::uint64_t>(format.least_exponent() + width - 1 + fp64.bias());
  const std::uint64_t fraction = magnitude << (fp64.precision - width) & fp64.trailing_mask();
  return std::bit_cast<double>(sign | field << fp64.trailing_bits() | fraction);
}

std::uint64_t encode(const Format& format, const ExactValue& value,
                     const ConversionPolicy& policy) {
  assert(!value.sticky || value.significand >> 62 != 0);
  const std::uint64_t sign = sign_of(format, value.negative);
  if (value.significand == 0) return sign;
  const int width = std::bit_width(value.significand);
  const std::int64_t leading = value.exponent + width - 1;
  if (leading > format.emax) return overflowed(format, value.negative, policy);
  if (policy.flush_to_zero && leading < format.emin &&
      is_tiny(format, value, width, policy.rounding)) {
    return sign;
  }
  // Codes of one sign are consecutive integers in the order of their values, so a significand that
  // rounds up to the next power of two carries into the exponent field by itself.
  const std::int64_t binade = leading > format.emin ? leading - format.emin : 0;
  const std::int64_t quantum = format.least_exponent() + binade;
  const std::uint64_t code = (static_cast<std::uint64_t>(binade) << format.trailing_bits()) +
                             round_significand(value, quantum - value.exponent, policy.rounding);
  if (code > format.max_finite_code()) return overflowed(format, value.negative, policy);
  return sign | code;
}

std::uint64_t encode(const Format& format, double value, const ConversionPolicy& policy) {
  const auto code = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t magnitude = code & (fp64.sign_mask() - 1);
  const int leading = static_cast<int>(magnitude >> fp64.trailing_bits()) - fp64.bias();
  // The common case of emulation, shorter: to nearest, and neither flushing nor overflow is near.
  if (policy.rounding == Rounding::nearest_even && leading >= format.emin &&
      leading < format.emax && format.precision < fp64.precision) {
    const int drop = fp64.precision - format.precision;
    const auto rebias = static_cast<std::uint64_t>(fp64.bias() - format.bias());
    const std::uint64_t rebiased = magnitude - (rebias << fp64.trailing_bits());
    const std::uint64_t below_half = (std::uint64_t{1} << (drop - 1)) - 1;
    const std::uint64_t odd = (rebiased >> drop) & 1;
    return sign_of(format, code != magnitude) | (rebiased + below_half + odd) >> drop;
  }
  return convert(fp64, code, format, policy);
}

std::uint64_t encode(const Format& format, mpfr_srcptr value, const ConversionPolicy& policy) {
  const bool negative = mpfr_signbit(value) != 0;
  if (mpfr_nan_p(value) != 0) return nan(format, negative);
  if (mpfr_inf_p(value) != 0) return infinity(format, negative, policy.saturate);
  return encode(format, exact_value(value), policy);
}

std::uint64_t convert(const Format& from, std::uint64_t code, const Format& to,
                      const ConversionPolicy& policy) {
  const std::uint64_t magnitude = code & (from.sign_mask() - 1);
  const bool negative = (code & from.sign_mask()) != 0;
  if (magnitude > from.max_finite_code()) {
    const bool infinite = from.has_infinity() && magnitude == from.infinity_code();
    return infinite ? infinity(to, negative, policy.saturate) : nan(to, negative);
  }
  if (policy.denormals_are_zero && magnitude <= from.trailing_mask()) return sign_of(to, negative);
  return encode(to, decode_exact(from, code), policy);
}

}  // namespace headroom
