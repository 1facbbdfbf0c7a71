// Every TF32 code to every format, in every rounding, with and without FTZ, against MPFR.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

#include "reference/format/convert.h"
#include "tests/unit/format/mpfr_rounding.h"

namespace headroom {
namespace {

using testing::MpfrFormat;
using testing::MpfrNumber;

// Compares by value: the narrow formats' codes are decoded by the textbook formula.
bool same(const Format& to, std::uint64_t code, double expected) {
  const std::uint64_t sign = std::uint64_t{1} << (to.bits() - 1);
  if (((code & sign) != 0) != std::signbit(expected)) return false;
  const std::uint64_t magnitude = code % sign;
  if (std::isnan(expected)) return to.specials != Specials::none && magnitude == to.nan_code();
  if (std::isinf(expected)) return magnitude == to.infinity_code();
  return magnitude <= to.max_finite_code() &&
         testing::textbook_magnitude(to, magnitude) == std::fabs(expected);
}

int run() {
  long compared = 0;
  long wrong = 0;
  for (const Format* to : all_formats) {
    MpfrFormat mpfr(*to);
    MpfrNumber x(53);
    for (std::uint64_t code = 0; code <= tf32.max_finite_code(); ++code) {
      for (const bool negative : {false, true}) {
        const double magnitude = testing::textbook_magnitude(tf32, code);
        const double value = negative ? -magnitude : magnitude;
        mpfr_set_d(x.get(), value, MPFR_RNDN);
        for (const Rounding rounding : testing::all_roundings) {
          const MpfrFormat::Rounded r = mpfr.round(x.get(), rounding);
          for (int bits = 0; bits < 4; ++bits) {
            const ConversionPolicy policy{rounding, (bits & 1) != 0, (bits & 2) != 0, false};
            const double kept = policy.saturate ? r.saturated : r.gradual;
            const double expected =
                policy.flush_to_zero && r.tiny ? std::copysign(0.0, value) : kept;
            const std::uint64_t signed_code = code | (negative ? tf32.sign_mask() : 0);
            ++compared;
            if (same(*to, convert(tf32, signed_code, *to, policy), expected)) continue;
            if (++wrong <= 5) {
              std::printf("tf32 %a to %s, rounding %d: expected %a\n", value,
                          std::string(to->name).c_str(), static_cast<int>(rounding), expected);
            }
          }
        }
      }
    }
  }
  std::printf("%ld conversions compared, %ld wrong\n", compared, wrong);
  return wrong == 0 && compared > 0 ? 0 : 1;
}

}  // namespace
}  // namespace headroom

int main() { return headroom::run(); }
