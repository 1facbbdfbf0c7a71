// Conversions by MPFR and by the definition of the formats: the independent side of the tests of
// reference/format. Shares nothing with convert.cpp but the Format parameters.
#pragma once

#include <mpfr.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reference/format/convert.h"
#include "reference/format/format.h"

namespace headroom::testing {

inline constexpr Rounding all_roundings[] = {Rounding::nearest_even, Rounding::toward_zero,
                                             Rounding::upward, Rounding::downward};

inline mpfr_rnd_t mpfr_rounding(Rounding rounding) {
  switch (rounding) {
    case Rounding::nearest_even:
      return MPFR_RNDN;
    case Rounding::toward_zero:
      return MPFR_RNDZ;
    case Rounding::upward:
      return MPFR_RNDU;
    case Rounding::downward:
      return MPFR_RNDD;
  }
  return MPFR_RNDN;
}

/// The magnitude of a finite code by the textbook formula (IEEE 754-2019, 3.4; OCP OFP8, 5).
/// std::ldexp is exact here: every value of a format up to 53 bits is a double.
inline double textbook_magnitude(const Format& f, std::uint64_t magnitude_code) {
  const int t = f.precision - 1;
  const auto fraction = static_cast<double>(magnitude_code % (std::uint64_t{1} << t));
  const int field = static_cast<int>(magnitude_code >> t);
  if (field == 0) return std::ldexp(fraction, f.emin - t);
  return std::ldexp(std::ldexp(1.0, t) + fraction, f.emin + field - 1 - t);
}

class MpfrNumber {
 public:
  explicit MpfrNumber(mpfr_prec_t bits) { mpfr_init2(value_, bits); }
  ~MpfrNumber() { mpfr_clear(value_); }
  MpfrNumber(const MpfrNumber&) = delete;
  MpfrNumber& operator=(const MpfrNumber&) = delete;
  mpfr_ptr get() { return value_; }

 private:
  mpfr_t value_;
};

/// Rounds exact numbers to a format by mpfr_set, mpfr_check_range and mpfr_subnormalize in the
/// format's exponent range (MPFR manual, mpfr_subnormalize: the ternary value must be handed on, or
/// subnormals are rounded twice).
class MpfrFormat {
 public:
  explicit MpfrFormat(const Format& f)
      : format_(f), wide_(f.precision), narrow_(f.precision), least_normal_(2), largest_(64) {
    mpfr_set_ui_2exp(least_normal_.get(), 1, f.emin, MPFR_RNDN);
    // Largest finite value: all ones, less one unit where that code is NaN.
    const std::uint64_t all_ones = (std::uint64_t{1} << f.precision) - 1;
    mpfr_set_ui_2exp(largest_.get(), all_ones - (f.specials == Specials::nan_only ? 1 : 0),
                     f.emax - f.precision + 1, MPFR_RNDN);
    largest_double_ = mpfr_get_d(largest_.get(), MPFR_RNDN);
  }

  /// What the policies of a conversion act on. NaN in `gradual` stands for the format's NaN.
  struct Rounded {
    double gradual;    ///< IEEE result, subnormals kept
    bool tiny;         ///< nonzero input below 2^emin after rounding with unbounded exponent
    bool overflow;     ///< largest finite exceeded after rounding with unbounded exponent
    double saturated;  ///< gradual, or the largest finite number of that sign on overflow
  };

  /// Requires: finite.
  Rounded round(mpfr_srcptr exact, Rounding rounding) {
    return deliver(mpfr_set(wide_.get(), exact, mpfr_rounding(rounding)), rounding);
  }

  /// 2^x, correctly rounded.
  Rounded exp2(mpfr_srcptr x, Rounding rounding) {
    return deliver(mpfr_exp2(wide_.get(), x, mpfr_rounding(rounding)), rounding);
  }

 private:
  // `wide_` holds the result at the format's precision in MPFR's own exponent range.
  Rounded deliver(int ternary, Rounding rounding) {
    const mpfr_rnd_t direction = mpfr_rounding(rounding);
    Rounded result;
    const bool nonzero = mpfr_zero_p(wide_.get()) == 0 || ternary != 0;
    result.tiny = nonzero && mpfr_cmpabs(wide_.get(), least_normal_.get()) < 0;
    result.overflow = mpfr_cmpabs(wide_.get(), largest_.get()) > 0;
    mpfr_set(narrow_.get(), wide_.get(), MPFR_RNDN);  // same precision: exact
    const mpfr_exp_t saved_emin = mpfr_get_emin();
    const mpfr_exp_t saved_emax = mpfr_get_emax();
    // MPFR writes 0.1f * 2^e: its exponents are one more.
    mpfr_set_emin(format_.emin - format_.precision + 2);
    mpfr_set_emax(format_.emax + 1);
    ternary = mpfr_check_range(narrow_.get(), ternary, direction);
    mpfr_subnormalize(narrow_.get(), ternary, direction);
    mpfr_set_emin(saved_emin);
    mpfr_set_emax(saved_emax);
    result.gradual = mpfr_get_d(narrow_.get(), MPFR_RNDN);
    const double signed_largest = std::copysign(largest_double_, result.gradual);
    result.saturated = result.overflow ? signed_largest : result.gradual;
    if (result.overflow && format_.specials == Specials::nan_only) {
      const bool away =
          rounding == Rounding::nearest_even ||
          rounding == (std::signbit(result.gradual) ? Rounding::downward : Rounding::upward);
      result.gradual = away
                           ? std::copysign(std::numeric_limits<double>::quiet_NaN(), result.gradual)
                           : signed_largest;
    }
    if (format_.specials == Specials::none) result.gradual = result.saturated;
    return result;
  }

  Format format_;
  MpfrNumber wide_;
  MpfrNumber narrow_;
  MpfrNumber least_normal_;
  MpfrNumber largest_;
  double largest_double_;
};

/// Codes of a format of up to 19 bits, looked up by value.
class CodeTable {
 public:
  explicit CodeTable(const Format& f) : format_(f) {
    for (std::uint64_t code = 0; code <= f.max_finite_code(); ++code) {
      magnitudes_.push_back(textbook_magnitude(f, code));
    }
  }

  /// Increasing; the index is the code.
  const std::vector<double>& magnitudes() const { return magnitudes_; }

  /// The code of a value that the format has; canonical NaN; ~0 if the value is none of these.
  std::uint64_t code_of(double value) const {
    const std::uint64_t sign = std::signbit(value) ? std::uint64_t{1} << (format_.bits() - 1) : 0;
    if (std::isnan(value)) return sign | format_.nan_code();
    if (std::isinf(value)) return sign | format_.infinity_code();
    const auto found = std::lower_bound(magnitudes_.begin(), magnitudes_.end(), std::fabs(value));
    if (found == magnitudes_.end() || *found != std::fabs(value)) return ~std::uint64_t{0};
    return sign | static_cast<std::uint64_t>(found - magnitudes_.begin());
  }

 private:
  Format format_;
  std::vector<double> magnitudes_;
};

}  // namespace headroom::testing
