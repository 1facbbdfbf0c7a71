// One stage's arithmetic: round to nearest even into a format, with FTZ and DAZ.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "reference/format/convert.h"
#include "reference/format/format.h"

namespace headroom {

/// a + b rounded to odd: one more rounding, to at most 51 bits, gives what rounding the exact sum
/// gives (S. Boldo, G. Melquiond, Emulation of FMA and correctly rounded sums: proved algorithms
/// using rounding to odd, IEEE TC 57 (2008)). The error of the sum is by TwoSum (Knuth).
inline double sum_to_odd(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  const double error = (a - (sum - b_part)) + (b - b_part);
  const auto bits = std::bit_cast<std::uint64_t>(sum);
  if (error == 0 || (bits & 1) != 0 || !std::isfinite(sum)) return sum;
  return std::bit_cast<double>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

/// Operations on numbers of at most 24 bits, held as doubles; results are numbers of `format`.
/// Requires: NearestRounding is active. Products of two such numbers are exact doubles, quotients
/// of them are no nearer to a midpoint of 25 bits than 2^-49, relatively, unless they are one.
class Stage {
 public:
  explicit Stage(const Format& format, bool flush_to_zero = false, bool saturate = false)
      : format_(format), native_(format == fp32 && !flush_to_zero && !saturate) {
    policy_.flush_to_zero = flush_to_zero;
    policy_.saturate = saturate;
  }

  const Format& format() const { return format_; }
  /// Requires: exact, or rounded to odd to 53 bits.
  double round(double x) const {
    return native_ ? static_cast<double>(static_cast<float>(x)) : round_to(format_, x, policy_);
  }
  double add(double a, double b) const { return round(sum_to_odd(a, b)); }
  double multiply(double a, double b) const { return round(a * b); }
  double fma(double a, double b, double c) const { return round(sum_to_odd(a * b, c)); }
  double divide(double a, double b) const { return round(a / b); }

 private:
  Format format_;
  ConversionPolicy policy_;
  bool native_;
};

}  // namespace headroom
