// A kernel's scalar arithmetic in one format, round to nearest even with gradual underflow.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

#include "reference/format/convert.h"
#include "reference/format/format.h"

namespace headroom {

/// Operations on numbers of `format`, held as doubles. Requires: NearestRounding active, and a
/// format of p <= 24 bits: the double result of +, *, / and sqrt on its numbers has at least 2 p +
/// 2 bits, and rounding it once more gives the correctly rounded one (Figueroa 1995).
class KernelArithmetic {
 public:
  explicit KernelArithmetic(const Format& format) : format_(format), native_(format == fp32) {}

  const Format& format() const { return format_; }
  double round(double x) const {
    return native_ ? static_cast<double>(static_cast<float>(x)) : round_to(format_, x);
  }
  double add(double a, double b) const { return round(a + b); }
  /// a - b for numbers of up to 24 bits that need not be of the format.
  double subtract(double a, double b) const {
    // A wider operand can be a midpoint of the format, with the other far below it: the double
    // difference is rounded to odd first (Boldo and Melquiond 2008), its error by TwoSum (Knuth).
    const double difference = a - b;
    if (!std::isfinite(difference)) return round(difference);
    const double b_part = difference - a;
    const double error = (a - (difference - b_part)) - (b + b_part);
    const bool odd = (std::bit_cast<std::uint64_t>(difference) & 1) != 0;
    if (error == 0 || odd) return round(difference);
    return round(std::nextafter(difference, error > 0 ? HUGE_VAL : -HUGE_VAL));
  }
  double multiply(double a, double b) const { return round(a * b); }
  double divide(double a, double b) const { return round(a / b); }
  double square_root(double a) const { return round(std::sqrt(a)); }

  /// sqrt(initial + x_1^2 + ... + x_n^2), products and sums rounded, one after another.
  double norm(std::span<const double> x, double initial = 0) const {
    double sum = initial;
    for (const double element : x) {
      const double e = round(element);
      sum = add(sum, multiply(e, e));
    }
    return square_root(sum);
  }
  /// x_1 y_1 + ... + x_n y_n, products and sums rounded, one after another.
  double dot(std::span<const double> x, std::span<const double> y) const {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum = add(sum, multiply(x[i], y[i]));
    return sum;
  }

 private:
  Format format_;
  bool native_;
};

/// a b, rounded toward +infinity. Requires: numbers of at most 24 bits (the product is exact).
inline double multiply_up(const Format& format, double a, double b) {
  return round_to(format, a * b, {.rounding = Rounding::upward});
}

}  // namespace headroom
