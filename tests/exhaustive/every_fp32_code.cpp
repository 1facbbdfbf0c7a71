// Every FP32 code to a narrower format, in every rounding, against a second method: neighbours.
//
// The magnitudes of the target, by the textbook formula, are walked in step with the FP32
// magnitudes; the expected code is found by comparing with the two neighbours and their midpoint,
// which are exact doubles. `fp16-f16c` compares FP16 with the processor's own conversion instead.
// Usage: every_fp32_code FORMAT [STRIDE]
#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "reference/format/convert.h"
#include "tests/unit/format/mpfr_rounding.h"

namespace headroom {
namespace {

using testing::CodeTable;

struct Expected {
  std::uint64_t toward_zero, away, nearest;  // codes of the magnitude, overflow delivered
  bool tiny_toward_zero, tiny_away, tiny_nearest;
};

class Neighbours {
 public:
  explicit Neighbours(const Format& to)
      : to_(to), values_(CodeTable(to).magnitudes()), largest_(values_.size() - 1) {
    // The number after the largest finite one, were the exponent unbounded.
    beyond_ = values_[largest_] + (values_[largest_] - values_[largest_ - 1]);
    // Neighbours of tiny numbers when tininess is tested: one unit below 2^emin on the finer grid.
    least_normal_ = std::ldexp(1.0, to.emin);
    last_tiny_ = least_normal_ - std::ldexp(1.0, to.emin - to.precision);
  }

  // Requires: calls with increasing x.
  Expected next(double x) {
    while (below_ < largest_ && values_[below_ + 1] <= x) ++below_;
    const double low = values_[below_];
    Expected e;
    e.toward_zero = below_;
    if (x == low) {
      e.away = e.nearest = below_;
    } else {
      const double high = below_ < largest_ ? values_[below_ + 1] : beyond_;
      const double middle = low + (high - low) / 2;
      const std::uint64_t after = below_ < largest_ ? below_ + 1 : overflow();
      e.away = after;
      const bool up = x > middle || (x == middle && below_ % 2 != 0);
      e.nearest = up ? after : below_;
    }
    // Rounded with unbounded exponent, the result reaches 2^emin.
    const double tie = last_tiny_ + (least_normal_ - last_tiny_) / 2;
    e.tiny_toward_zero = x < least_normal_;
    e.tiny_away = x <= last_tiny_;
    e.tiny_nearest = x < tie;
    return e;
  }

  std::uint64_t largest() const { return largest_; }
  std::uint64_t overflow() const {
    if (to_.specials == Specials::ieee) return to_.infinity_code();
    return to_.specials == Specials::nan_only ? to_.nan_code() : largest_;
  }

 private:
  Format to_;
  std::vector<double> values_;
  std::uint64_t largest_;
  std::uint64_t below_ = 0;
  double beyond_, least_normal_, last_tiny_;
};

class Report {
 public:
  explicit Report(const Format& to) : to_(to) {}
  void compare(std::uint64_t got, std::uint64_t expected, std::uint32_t code,
               const ConversionPolicy& policy) {
    ++compared_;
    if (got == expected) return;
    if (++wrong_ <= 5) {
      std::printf("0x%08x to %s, rounding %d%s%s: got 0x%llx, expected 0x%llx\n", code,
                  std::string(to_.name).c_str(), static_cast<int>(policy.rounding),
                  policy.saturate ? ", saturate" : "", policy.flush_to_zero ? ", ftz" : "",
                  static_cast<unsigned long long>(got), static_cast<unsigned long long>(expected));
    }
  }
  int finish() const {
    std::printf("%s: %llu conversions compared, %llu wrong\n", std::string(to_.name).c_str(),
                static_cast<unsigned long long>(compared_),
                static_cast<unsigned long long>(wrong_));
    return wrong_ == 0 && compared_ > 0 ? 0 : 1;
  }

 private:
  Format to_;
  std::uint64_t compared_ = 0;
  std::uint64_t wrong_ = 0;
};

void compare_finite(const Format& to, std::uint32_t stride, Report& report) {
  Neighbours neighbours(to);
  const std::uint64_t sign = std::uint64_t{1} << (to.bits() - 1);
  const double limit = std::ldexp(1.0, to.emin + 1);
  for (std::uint32_t code = 0; code < 0x7f800000u; code += stride) {
    const double x = std::bit_cast<float>(code);
    const Expected e = neighbours.next(x);
    const auto check = [&](Rounding rounding, std::uint64_t positive, std::uint64_t negative,
                           bool positive_tiny, bool negative_tiny) {
      ConversionPolicy policy{rounding, false, false, false};
      report.compare(convert(fp32, code, to, policy), positive, code, policy);
      report.compare(convert(fp32, code | 0x80000000u, to, policy), sign | negative,
                     code | 0x80000000u, policy);
      if (x < limit) {  // flushing can matter
        policy.flush_to_zero = true;
        report.compare(convert(fp32, code, to, policy), positive_tiny ? 0 : positive, code, policy);
        report.compare(convert(fp32, code | 0x80000000u, to, policy),
                       sign | (negative_tiny ? 0 : negative), code | 0x80000000u, policy);
      } else if (e.away > neighbours.largest() || e.toward_zero == neighbours.largest()) {
        policy.saturate = true;
        const auto clamp = [&](std::uint64_t magnitude) {
          return magnitude > neighbours.largest() ? neighbours.largest() : magnitude;
        };
        report.compare(convert(fp32, code, to, policy), clamp(positive), code, policy);
      }
    };
    check(Rounding::nearest_even, e.nearest, e.nearest, e.tiny_nearest, e.tiny_nearest);
    check(Rounding::toward_zero, e.toward_zero, e.toward_zero, e.tiny_toward_zero,
          e.tiny_toward_zero);
    check(Rounding::upward, e.away, e.toward_zero, e.tiny_away, e.tiny_toward_zero);
    check(Rounding::downward, e.toward_zero, e.away, e.tiny_toward_zero, e.tiny_away);
  }
}

void compare_nans_and_infinities(const Format& to, std::uint32_t stride, Report& report) {
  const std::uint64_t sign = std::uint64_t{1} << (to.bits() - 1);
  const std::uint64_t largest = to.max_finite_code();
  const std::uint64_t nan = to.specials == Specials::none ? largest : to.nan_code();
  const std::uint64_t infinity = to.specials == Specials::ieee ? to.infinity_code() : nan;
  for (std::uint32_t code = 0x7f800000u; code < 0x80000000u; code += stride) {
    const std::uint64_t expected = code == 0x7f800000u ? infinity : nan;
    for (const Rounding rounding : testing::all_roundings) {
      const ConversionPolicy policy{rounding, false, false, false};
      report.compare(convert(fp32, code, to, policy), expected, code, policy);
      report.compare(convert(fp32, code | 0x80000000u, to, policy), sign | expected,
                     code | 0x80000000u, policy);
      const ConversionPolicy clamp{rounding, true, false, false};
      report.compare(convert(fp32, code, to, clamp), code == 0x7f800000u ? largest : nan, code,
                     clamp);
    }
  }
}

// vcvtps2ph, the rounding in its immediate operand (it ignores MXCSR.FTZ; gradual results).
template <int mode>
__attribute__((target("f16c"))) void compare_f16c(Rounding rounding, std::uint32_t stride,
                                                  Report& report) {
  const ConversionPolicy policy{rounding, false, false, false};
  for (std::uint64_t wide = 0; wide >> 32 == 0; wide += stride) {
    const auto code = static_cast<std::uint32_t>(wide);
    if ((code & 0x7fffffffu) > 0x7f800000u) continue;  // NaN payloads are kept there
    const __m128i half = _mm_cvtps_ph(_mm_set_ss(std::bit_cast<float>(code)), mode);
    report.compare(convert(fp32, code, fp16, policy),
                   static_cast<std::uint64_t>(_mm_extract_epi16(half, 0)), code, policy);
  }
}

int run(const Format& to, std::uint32_t stride) {
  Report report(to);
  compare_finite(to, stride, report);
  compare_nans_and_infinities(to, stride, report);
  return report.finish();
}

constexpr int skipped = 77;  // Meson's exit status of a test that cannot run here

int run_f16c(std::uint32_t stride) {
  if (!__builtin_cpu_supports("f16c")) {
    std::puts("skipped: this processor has no F16C");
    return skipped;
  }
  Report report(fp16);
  compare_f16c<0>(Rounding::nearest_even, stride, report);
  compare_f16c<1>(Rounding::downward, stride, report);
  compare_f16c<2>(Rounding::upward, stride, report);
  compare_f16c<3>(Rounding::toward_zero, stride, report);
  return report.finish();
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  const std::string name = argc >= 2 ? argv[1] : "";
  const long stride = argc >= 3 ? std::strtol(argv[2], nullptr, 10) : 1;
  const headroom::Format* to = headroom::find_format(name);
  const bool narrow = to != nullptr && to->bits() <= 19;
  if ((!narrow && name != "fp16-f16c") || stride < 1) {
    std::fprintf(stderr,
                 "usage: every_fp32_code tf32|fp16|fp16-f16c|bf16|e4m3fn|e5m2|e2m1 [STRIDE]\n");
    return 2;
  }
  if (!narrow) return headroom::run_f16c(static_cast<std::uint32_t>(stride));
  return headroom::run(*to, static_cast<std::uint32_t>(stride));
}
