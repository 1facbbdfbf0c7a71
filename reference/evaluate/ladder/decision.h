// From an enclosure of a real number to the one code it rounds to.
#pragma once

#include <cstdint>
#include <optional>

#include <boost/multiprecision/gmp.hpp>

#include "reference/format/convert.h"
#include "reference/format/format.h"

namespace headroom {

/// Integers of any size.
using Integer =
    boost::multiprecision::number<boost::multiprecision::gmp_int, boost::multiprecision::et_off>;

/// significand * 2^exponent, exactly.
struct Dyadic {
  Integer significand = 0;
  std::int64_t exponent = 0;

  static Dyadic of(double finite);
};

/// What decided an element, cheapest first.
enum class Rung : std::uint8_t {
  vector,         ///< doubles with a proved error bound
  double_double,  ///< double-double with a proved error bound
  wide,           ///< MPFR at some precision
  tie,            ///< known exactly: a rounding boundary by a criterion, or a one-point enclosure
  defined,        ///< by convention: a row without visible keys
  undefined,      ///< a visible operand, or the row's query, is NaN or infinite
  undecided,      ///< not decided at the largest precision
};

/// The code of the target format for one element, and what decided it. An undefined or undecided
/// element has the format's canonical NaN (E2M1: its largest number).
struct Settled {
  std::uint64_t code = 0;
  Rung rung = Rung::undecided;
};

/// The target of correct rounding. Overflow goes to infinity (NaN for E4M3FN) as IEEE 754 says; a
/// result that is exactly zero is +0.
struct Target {
  Format format = fp32;
  Rounding rounding = Rounding::nearest_even;

  ConversionPolicy policy() const { return {.rounding = rounding}; }
  std::uint64_t nan() const {
    return format.has_nan() ? format.nan_code() : format.max_finite_code();
  }
};

/// The code that every real in [lo, hi] rounds to, if there is one. Requires: lo <= hi.
std::optional<std::uint64_t> common_code(const Target& target, double lo, double hi);
std::optional<std::uint64_t> common_code(const Target& target, mpfr_srcptr lo, mpfr_srcptr hi);

/// The same for `count` enclosures at once: the codes of decided elements; `decided[i]` says which.
/// Returns the number of undecided ones.
std::int64_t common_codes(const Target& target, const double* lo, const double* hi,
                          std::int64_t count, std::uint64_t* codes, std::uint8_t* decided);

/// The real number at which rounding changes from code `below` to code `above`. Requires: numbers
/// next to each other in the format (-0 and +0 count as two), or the largest and the overflow
/// result. Nothing if they are not neighbours.
std::optional<Dyadic> boundary_between(const Target& target, std::uint64_t below,
                                       std::uint64_t above);

/// Correct rounding of an exactly known number.
std::uint64_t rounded(const Target& target, const Dyadic& value);

}  // namespace headroom
