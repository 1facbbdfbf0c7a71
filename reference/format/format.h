// Number formats as compile-time values.
//
// A format is its precision, exponent range and kind of special values; everything else (widths,
// masks, largest finite value, flush thresholds) is derived here and nowhere else. Rounding,
// flushing and saturation are policies of a conversion (convert.h), not properties of a format.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace headroom {

/// Which codes of the top exponent are not finite numbers.
enum class Specials : std::uint8_t {
  ieee,      ///< all-ones exponent: significand 0 is infinity, anything else NaN (IEEE 754)
  nan_only,  ///< no infinity; only all-ones exponent and significand is NaN (OCP FP8 E4M3)
  none,      ///< every code is a finite number (OCP FP4 E2M1)
};

/// A binary floating-point format with gradual underflow.
///
/// `precision` counts the hidden bit; `emin` and `emax` are the exponents of the smallest normal
/// and of the largest finite number, written 1.f * 2^e (IEEE 754-2019, 3.3; Flocq's emax is one
/// more). A code is sign, exponent field, trailing significand, most significant bit first,
/// in the low `bits()` bits of an unsigned integer.
struct Format {
  int precision;
  int emin;
  int emax;
  Specials specials;
  std::string_view name;  ///< as in kernel files, `--format` and certificates

  constexpr bool operator==(const Format& other) const {
    return precision == other.precision && emin == other.emin && emax == other.emax &&
           specials == other.specials;
  }

  /// Bias of the exponent field: field value 1 is emin.
  constexpr int bias() const { return 1 - emin; }
  constexpr int trailing_bits() const { return precision - 1; }
  /// Width of the exponent field. With IEEE specials one field value is spent on them.
  constexpr int exponent_bits() const {
    const int top_field = emax + bias() + (specials == Specials::ieee ? 1 : 0);
    return std::bit_width(static_cast<unsigned>(top_field));
  }
  /// Width of a code: 64, 32, 19 (TF32), 16, 16, 8, 8, 4.
  constexpr int bits() const { return 1 + exponent_bits() + trailing_bits(); }
  /// Bytes of one stored code (TF32 is stored in 4, E2M1 unpacked in 1).
  constexpr int storage_bytes() const { return (bits() + 7) / 8 == 3 ? 4 : (bits() + 7) / 8; }

  constexpr std::uint64_t sign_mask() const { return std::uint64_t{1} << (bits() - 1); }
  constexpr std::uint64_t trailing_mask() const {
    return (std::uint64_t{1} << trailing_bits()) - 1;
  }
  constexpr std::uint64_t exponent_mask() const {
    return ((std::uint64_t{1} << exponent_bits()) - 1) << trailing_bits();
  }
  constexpr bool has_infinity() const { return specials == Specials::ieee; }
  constexpr bool has_nan() const { return specials != Specials::none; }

  /// Exponent of the unit in the last place of subnormals: the smallest positive number is
  /// 2^least_exponent().
  constexpr int least_exponent() const { return emin - (precision - 1); }
  /// Code of the largest finite number (positive).
  constexpr std::uint64_t max_finite_code() const {
    switch (specials) {
      case Specials::ieee:
        return exponent_mask() - 1;  // field one below all-ones, significand all ones
      case Specials::nan_only:
        return (exponent_mask() | trailing_mask()) - 1;
      case Specials::none:
        return exponent_mask() | trailing_mask();
    }
    return 0;
  }
  /// Integer significand of the largest finite number: its value is
  /// max_finite_significand() * 2^(emax - precision + 1).
  constexpr std::uint64_t max_finite_significand() const {
    return (std::uint64_t{1} << trailing_bits()) | (max_finite_code() & trailing_mask());
  }
  /// The largest finite number as a double; exact for every format here.
  constexpr double max_finite() const {
    double value = static_cast<double>(max_finite_significand());
    for (int e = emax - precision + 1; e > 0; --e) value *= 2;
    for (int e = emax - precision + 1; e < 0; ++e) value /= 2;
    return value;
  }
  constexpr std::uint64_t infinity_code() const { return exponent_mask(); }
  /// The canonical NaN: quiet bit set for IEEE formats, S.1111.111 for E4M3FN, positive.
  constexpr std::uint64_t nan_code() const {
    if (specials == Specials::ieee) {
      return exponent_mask() | (std::uint64_t{1} << (trailing_bits() - 1));
    }
    return exponent_mask() | trailing_mask();
  }
  /// log2 of the unit roundoff under rounding to nearest: u = 2^-precision (half an ulp of 1).
  constexpr int log2_unit_roundoff() const { return -precision; }
};

/// A format's parameters are consistent: used by static_assert for each named format.
constexpr bool valid(const Format& f) {
  return f.precision >= 2 && f.precision <= 53 && f.emin < f.emax && f.bits() <= 64 &&
         f.emin == 1 - f.bias();
}

inline constexpr Format fp64{53, -1022, 1023, Specials::ieee, "fp64"};   // IEEE 754 binary64
inline constexpr Format fp32{24, -126, 127, Specials::ieee, "fp32"};     // IEEE 754 binary32
inline constexpr Format tf32{11, -126, 127, Specials::ieee, "tf32"};     // NVIDIA TF32, 19 bits
inline constexpr Format fp16{11, -14, 15, Specials::ieee, "fp16"};       // IEEE 754 binary16
inline constexpr Format bf16{8, -126, 127, Specials::ieee, "bf16"};      // bfloat16
inline constexpr Format e4m3fn{4, -6, 8, Specials::nan_only, "e4m3fn"};  // OCP OFP8 E4M3
inline constexpr Format e5m2{3, -14, 15, Specials::ieee, "e5m2"};        // OCP OFP8 E5M2
inline constexpr Format e2m1{2, 0, 2, Specials::none, "e2m1"};           // OCP MX FP4

/// Every named format, widest first.
inline constexpr const Format* all_formats[] = {&fp64, &fp32,   &tf32, &fp16,
                                                &bf16, &e4m3fn, &e5m2, &e2m1};

static_assert(valid(fp64) && fp64.bits() == 64 && fp64.max_finite_code() == 0x7fefffffffffffff);
static_assert(valid(fp32) && fp32.bits() == 32 && fp32.max_finite_code() == 0x7f7fffff);
static_assert(valid(tf32) && tf32.bits() == 19 && tf32.storage_bytes() == 4);
static_assert(valid(fp16) && fp16.bits() == 16 && fp16.max_finite() == 65504);
static_assert(valid(bf16) && bf16.bits() == 16 && bf16.max_finite() == 0x1.FEp127);
static_assert(valid(e4m3fn) && e4m3fn.bits() == 8 && e4m3fn.max_finite() == 448);
static_assert(valid(e5m2) && e5m2.bits() == 8 && e5m2.max_finite() == 57344);
static_assert(valid(e2m1) && e2m1.bits() == 4 && e2m1.max_finite() == 6);

/// The named format, or nullptr. Names are the lower-case ones of kernel files.
constexpr const Format* find_format(std::string_view name) {
  for (const Format* f : all_formats) {
    if (f->name == name) return f;
  }
  return nullptr;
}

}  // namespace headroom
