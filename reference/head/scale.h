// The softmax scale, kept exactly.
#pragma once

#include <cstdint>
#include <string>

#include <boost/multiprecision/cpp_int.hpp>

#include "reference/real/interval.h"
#include "reference/real/wide_interval.h"

namespace headroom {

using Rational = boost::multiprecision::cpp_rational;

/// Parses "0.125", "-1.5e-3", "0x1.8p-3", "3/8", "2^-10" exactly: a sign, then one number or a
/// quotient of two. A number is a decimal with an optional power of ten, a hexadecimal
/// floating-point literal of C (the power of two optional), or 2^n or 10^n with an integer n.
/// Exponents are at most 20000 in magnitude and the text at most 65536 characters, so that a few
/// characters cannot ask for unbounded memory. Throws std::invalid_argument on anything else,
/// "nan", "inf", spaces and a zero denominator included.
Rational parse_exact_number(const std::string& text);
/// Canonical text of an exact number: "p/q" in lowest terms, or "p". parse_exact_number reads it.
std::string to_text(const Rational& value);
/// The tightest enclosure of a rational by doubles: a point if it is one, else two neighbours
/// ([max, inf] or [0, least subnormal] at the ends of the range). In any rounding mode.
Interval enclose(const Rational& value);

/// s or c of z = c <q, k>: exactly one of
///  * natural: the softmax scale s, so that c = s log2(e); s is rational or 1/sqrt(n);
///  * base 2 (`--scale-log2`): c itself, rational.
///
/// A decimal is the decimal: 0.08838834764831843 is that number over 10^17 and not 1/sqrt(128),
/// from which it differs by 2^-58 relatively; only "1/sqrt(d)", also the default, is the root.
class Scale {
 public:
  /// s = 1/sqrt(n), n >= 1. A square n gives a rational.
  static Scale reciprocal_sqrt(std::uint64_t n);
  static Scale natural(Rational s);
  static Scale base2(Rational c);
  /// `--scale`: "1/sqrt(d)" (with `d` given), "1/sqrt(128)", or an exact number. Throws InputError.
  static Scale parse(const std::string& text, std::uint64_t d);
  /// Inverse of text(): "1/sqrt(128)", "1/8", "log2:1". Throws InputError.
  static Scale from_text(const std::string& text);

  bool is_base2() const { return base2_; }
  /// True if the number (s, or c for base 2) is 1/sqrt(radicand()) with radicand() no square.
  bool is_irrational() const { return radicand_ > 1; }
  /// The rational factor: the number is rational() / sqrt(radicand()).
  const Rational& rational() const { return rational_; }
  std::uint64_t radicand() const { return radicand_; }
  bool operator==(const Scale&) const = default;

  /// Enclosure of c = s log2(e) (natural) or c (base 2), log2 units per unit of <q, k>: a point or
  /// two neighbouring doubles. In any rounding mode.
  Interval log2_factor() const;
  /// As above at a working precision: radius at most 2^(1 - bits) relatively.
  WideInterval log2_factor(mpfr_prec_t bits) const;
  /// Enclosure of s itself (natural) or c ln 2 (base 2), as tight as log2_factor.
  Interval natural_factor() const;
  WideInterval natural_factor(mpfr_prec_t bits) const;

  /// As in certificates: "1/sqrt(128)", "1/8", "log2:1".
  std::string text() const;

 private:
  Rational rational_ = 1;
  std::uint64_t radicand_ = 1;
  bool base2_ = false;
};

}  // namespace headroom
