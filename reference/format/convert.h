// Conversions between formats, and from exact values, under explicit policies.
#pragma once

#include <bit>
#include <cstdint>

#include <mpfr.h>

#include "reference/format/format.h"

namespace headroom {

enum class Rounding : std::uint8_t {
  nearest_even,  ///< RNE: to nearest, ties to even
  toward_zero,   ///< RZ
  upward,        ///< RU: toward +infinity
  downward,      ///< RD: toward -infinity
};

/// How a result is delivered.
///
/// * Overflow without `saturate`: IEEE rules per rounding direction for formats with an infinity
///   (RNE and the direction away from zero give infinity; RZ and the other one the largest finite
///   number); formats with only NaN (E4M3FN) give NaN where an IEEE format would give infinity;
///   formats with neither (E2M1) always saturate. An infinite input is exact: in every direction
///   it gives infinity, or NaN, or the largest finite number, the first of them that exists.
/// * `saturate`: finite overflow and infinities give the largest finite number of that sign.
/// * `flush_to_zero`: a nonzero result below the smallest normal becomes a zero of its sign. The
///   test is made after rounding to the format with unbounded exponent (as MXCSR.FTZ does), so a
///   flushed result is zero even where gradual rounding away from zero gives the smallest normal.
/// * `denormals_are_zero`: a subnormal *input* is read as a zero of its sign.
struct ConversionPolicy {
  Rounding rounding = Rounding::nearest_even;
  bool saturate = false;
  bool flush_to_zero = false;
  bool denormals_are_zero = false;
};

/// A real number known well enough to be rounded correctly: `significand * 2^exponent`, or,
/// if `sticky`, some number strictly between that and `(significand + 1) * 2^exponent`.
/// Requires: sticky only with significand >= 2^62 (so that no format's rounding boundary can lie
/// strictly between). Zero is significand 0, not sticky.
struct ExactValue {
  bool negative = false;
  std::uint64_t significand = 0;
  std::int64_t exponent = 0;
  bool sticky = false;
};

/// Exact decomposition of a finite double.
ExactValue exact_value(double finite);
/// `value` truncated to 64 significant bits plus sticky. Requires: finite.
ExactValue exact_value(mpfr_srcptr value);

enum class NumberClass : std::uint8_t { zero, subnormal, normal, infinite, nan };

/// Class of a code. Bits above `format.bits()` must be zero.
NumberClass classify(const Format& format, std::uint64_t code);
inline bool is_finite(const Format& format, std::uint64_t code) {
  const NumberClass c = classify(format, code);
  return c != NumberClass::infinite && c != NumberClass::nan;
}

/// The exact value of a finite code.
ExactValue decode_exact(const Format& format, std::uint64_t code);
/// The value of a code as a double: exact for finite codes of every format; NaN (payload lost) and
/// infinities as such.
double decode(const Format& format, std::uint64_t code);

/// Correctly rounded conversion of an exact value: the code that the policy asks for.
std::uint64_t encode(const Format& format, const ExactValue& value, const ConversionPolicy& policy);
/// As above from a double, NaN and infinities included (`denormals_are_zero` reads a subnormal
/// double as zero). A NaN becomes the canonical NaN with the
/// input's sign; a format without NaN (E2M1) gives its largest finite number with the sign
/// (what saturating hardware conversions do); zeros keep their sign.
std::uint64_t encode(const Format& format, double value, const ConversionPolicy& policy);
/// As above from an MPFR number (its ternary value is not needed: MPFR numbers are exact).
std::uint64_t encode(const Format& format, mpfr_srcptr value, const ConversionPolicy& policy);

/// Converts a code of one format to another. `denormals_are_zero` applies to `from`,
/// `flush_to_zero` and `saturate` to `to`. One rounding only: never goes through a third format.
std::uint64_t convert(const Format& from, std::uint64_t code, const Format& to,
                      const ConversionPolicy& policy);

/// `value` rounded to `format` (RNE unless said) and back: the workhorse of emulation.
///
/// Rounding to nearest or upward into the normal range works on the double's own bits: half a unit
/// of the last kept place (less one bit unless the place is odd) is added and the rest cut off;
/// upward, a whole unit less one bit if the number is positive. A carry into the exponent is the
/// next binade, which is finite below emax. Everything else but zeros goes through a code.
inline double round_to(const Format& format, double value, const ConversionPolicy& policy = {}) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const int exponent = static_cast<int>((bits >> 52) & 0x7ff) - fp64.bias();
  const int cut = fp64.precision - format.precision;
  if (cut > 0 && exponent >= format.emin && exponent < format.emax) {
    const std::uint64_t kept = ~std::uint64_t{0} << cut;
    if (policy.rounding == Rounding::nearest_even) {
      const std::uint64_t odd = (bits >> cut) & 1;
      const std::uint64_t half = (std::uint64_t{1} << (cut - 1)) - 1 + odd;
      return std::bit_cast<double>((bits + half) & kept);
    }
    if (policy.rounding == Rounding::upward) {
      return std::bit_cast<double>((bits + (bits >> 63 == 0 ? ~kept : 0)) & kept);
    }
  }
  if (value == 0) return value;  // every format has both zeros
  return decode(format, encode(format, value, policy));
}

}  // namespace headroom
