// The softmax scale, kept exactly.
#pragma once

#include <cstdint>
#include <string>

#include <boost/multiprecision/cpp_int.hpp>

#include "reference/real/interval.h"
#include "reference/real/wide_interval.h"

namespace headroom {

using Rational = boost::multiprecision::cpp_rational;

/// Parses "0.125", "-1.5e-3", "0x1.8p-3", "3/8", "2^-10" exactly. Throws std::invalid_argument.
Rational parse_exact_number(const std::string& text);
/// Canonical text of an exact number: "p/q" in lowest terms, or "p".
std::string to_text(const Rational& value);
/// Tight enclosure of a rational.
Interval enclose(const Rational& value);

/// s or c of z = c <q, k>: exactly one of
///  * natural: the softmax scale s, so that c = s log2(e); s is rational or 1/sqrt(n);
///  * base 2 (`--scale-log2`): c itself, rational.
class Scale {
 public:
  /// s = 1/sqrt(n), n >= 1.
  static Scale reciprocal_sqrt(std::uint64_t n);
  static Scale natural(Rational s);
  static Scale base2(Rational c);
  /// `--scale`: "1/sqrt(d)" (with `d` given), "1/sqrt(128)", or an exact number. Throws InputError.
  static Scale parse(const std::string& text, std::uint64_t d);

  bool is_base2() const { return base2_; }
  /// True if the number (s, or c for base 2) is 1/sqrt(radicand()) with radicand() no square.
  bool is_irrational() const { return radicand_ > 1; }
  /// The rational factor: the number is rational() / sqrt(radicand()).
  const Rational& rational() const { return rational_; }
  std::uint64_t radicand() const { return radicand_; }

  /// Enclosure of c = s log2(e) (natural) or c (base 2), log2 units per unit of <q, k>.
  Interval log2_factor() const;
  WideInterval log2_factor(mpfr_prec_t bits) const;
  /// Enclosure of s itself (natural) or c ln 2 (base 2).
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
