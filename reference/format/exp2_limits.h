// Where exp2 overflows, turns subnormal and turns zero, and how large a stabilizer's exponent an
// accumulator admits: derived from the formats' parameters, never typed in.
//
// All limits are for a correctly rounded exp2 (to nearest, ties to even).
#pragma once

#include <cstdint>
#include <optional>

#include "reference/format/format.h"

namespace headroom {

/// A real number at which a rounded result changes kind: 2^x is of the upper kind if it is above
/// `significand * 2^exponent`, or equal to it and `includes_equality`.
struct ResultThreshold {
  std::uint64_t significand;  ///< at most precision + 1 bits
  int exponent;
  bool includes_equality;  ///< the tie itself rounds up to the even neighbour
  double log2_lower;       ///< log2_lower <= log2 of the threshold <= log2_upper, in log2 units;
  double log2_upper;       ///< equal if the threshold is a power of two, else adjacent doubles
};

/// The three thresholds of a result format.
struct Exp2Thresholds {
  ResultThreshold overflow;  ///< from here on the result, rounded with unbounded exponent, exceeds
                             ///< the largest finite number (IEEE 754-2019, 7.4)
  ResultThreshold normal;    ///< from here on the result is at least the smallest normal number
  ResultThreshold nonzero;   ///< from here on the result is not zero
};

/// `flush_to_zero` as in ConversionPolicy: tested after rounding with unbounded exponent. Then
/// `normal` and `nonzero` are the same.
Exp2Thresholds exp2_thresholds(const Format& result, bool flush_to_zero);

/// The same as arguments: finite codes of the argument format, ordered by value (a zero counts
/// once, as +0). Where no argument is beyond a threshold, the empty optional says so.
struct Exp2Limits {
  std::uint64_t largest_finite;  ///< largest argument whose exp2 is finite
  std::optional<std::uint64_t> smallest_overflow;
  std::uint64_t smallest_normal;  ///< smallest argument whose exp2 is a normal number, or more
  std::optional<std::uint64_t> largest_below_normal;
  std::uint64_t smallest_nonzero;  ///< smallest argument whose exp2 is not zero
  std::optional<std::uint64_t> largest_zero;
};

/// Ensures: exact; every comparison of 2^x with a threshold is decided by a truncated MPFR
/// exponential with more bits than the threshold has.
Exp2Limits exp2_limits(const Format& argument, const Format& result, bool flush_to_zero);

/// log2 of the largest finite number (U_exp, U_acc), enclosed by adjacent doubles.
struct Log2Enclosure {
  double lower;
  double upper;
};
Log2Enclosure log2_largest_finite(const Format& format);

/// The largest integer C such that weights 2^C and `count` terms of at most 2^(C + G), summed in
/// any order, stay finite; both forms are capped by floor(log2 largest finite) of exp2's result.
struct StabilizerExponent {
  /// Algorithm 1 of CLiS, lines 6 and 7: C + ceil(log2 count) + G < log2 of the accumulator's
  /// range, strictly: ceil(U_acc - ceil(log2 count) - G) - 1.
  int published;
  /// Rounding to nearest keeps every association of `count` terms finite at `published`: true up
  /// to count = 2^(2 precision), beyond which counterexamples exist. Truncation: always.
  bool published_is_sound_to_nearest;
  /// count 2^(C + G) <= largest finite, for IEEE formats C + floor(log2 count) + G <= emax: every
  /// partial sum of k terms is at most k 2^(C + G) as long as k <= 2^precision, whatever the
  /// rounding (DESIGN.md, "Sums"). Empty for larger counts.
  std::optional<int> tight;
};

/// Requires: count >= 1; value_exponent (G) such that all |V| <= 2^G, with 0 <= G.
StabilizerExponent largest_stabilizer_exponent(const Format& exp2_result, const Format& accumulator,
                                               std::uint64_t count, int value_exponent);

}  // namespace headroom
