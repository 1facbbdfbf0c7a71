// Rounding boundaries (midpoints of neighbouring numbers) of the formats that exp2 rounds to.
#pragma once

#include <mpfr.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace headroom {

struct BoundaryFormat {
  const char* name;
  int precision;  ///< hidden bit counted
  int emin;       ///< exponent of the smallest normal number
  int emax;
};
/// IEEE 754-2019, table 3.5; bfloat16 has binary32's exponents.
inline constexpr std::array<BoundaryFormat, 3> boundary_formats = {{
    {"fp32", 24, -126, 127},
    {"bf16", 8, -126, 127},
    {"fp16", 11, -14, 15},
}};

/// The boundary nearest to y > 0, an exact double, or 0 where there is none to speak of: beyond the
/// overflow threshold, or more than a factor of 2 below the least boundary.
inline double nearest_boundary(const BoundaryFormat& f, double y) {
  const int exponent = static_cast<int>((std::bit_cast<std::uint64_t>(y) >> 52) & 0x7ff) - 1023;
  const int quantum = (exponent > f.emin ? exponent : f.emin) - f.precision + 1;
  if (exponent > f.emax || exponent < f.emin - f.precision - 1) return 0;
  // In units of the quantum, boundaries are the half-integers: exact steps, powers of two.
  const double units = std::ldexp(y, -quantum);
  const double whole = (units + 0x1p52) - 0x1p52;  // nearest integer, units < 2^24
  const double below = whole > units ? whole - 1 : whole;
  return std::ldexp(below + 0.5, quantum);
}

/// (2^x - boundary) / 2^x with MPFR at 200 bits.
class Exp2BoundaryDistance {
 public:
  Exp2BoundaryDistance() { mpfr_inits2(200, power_, difference_, mpfr_ptr(nullptr)); }
  ~Exp2BoundaryDistance() { mpfr_clears(power_, difference_, mpfr_ptr(nullptr)); }
  Exp2BoundaryDistance(const Exp2BoundaryDistance&) = delete;
  Exp2BoundaryDistance& operator=(const Exp2BoundaryDistance&) = delete;

  double of(const BoundaryFormat& f, double x) {
    mpfr_set_d(difference_, x, MPFR_RNDN);
    mpfr_exp2(power_, difference_, MPFR_RNDN);
    mpfr_sub_d(difference_, power_, nearest_boundary(f, mpfr_get_d(power_, MPFR_RNDN)), MPFR_RNDN);
    mpfr_div(difference_, difference_, power_, MPFR_RNDN);
    return mpfr_get_d(difference_, MPFR_RNDN);
  }
  /// After `of`: 2^x.
  mpfr_srcptr power() const { return power_; }

 private:
  mpfr_t power_, difference_;
};

}  // namespace headroom
