#include "reference/evaluate/simulate/matrix_unit.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

#include "reference/format/format.h"

namespace headroom {
namespace {

constexpr std::uint64_t exponent_field = 0x7ff;

// floor(log2 |x|) of a nonzero number; floats, subnormal ones too, and their products are normal
// doubles. -1023 for zero, 1024 for infinity and NaN.
int exponent_of(double x) {
  const auto field = (std::bit_cast<std::uint64_t>(x) >> fp64.trailing_bits()) & exponent_field;
  return static_cast<int>(field) - fp64.bias();
}

double power(int e) {  // 2^e, normal
  assert(e >= fp64.emin && e <= fp64.emax);
  return std::bit_cast<double>(static_cast<std::uint64_t>(e + fp64.bias()) << fp64.trailing_bits());
}

// What an infinity or NaN among the terms makes of the exact sum.
float special_sum(const float* a, const float* b, std::int64_t count, float accumulator) {
  double sum = accumulator;  // finite terms stay below 2^512 and cannot matter
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * b[i];
  return std::isnan(sum) ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(sum);
}

__extension__ using Int128 = __int128;

int width_of(std::int64_t positive) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(positive)));
}
int width_of(Int128 positive) {
  const auto high = static_cast<std::uint64_t>(positive >> 64);
  return high != 0 ? 64 + static_cast<int>(std::bit_width(high))
                   : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(positive)));
}

// The sum of finite terms, aligned to 2^largest. Integer holds every partial sum.
template <class Integer>
float aligned_sum(int fraction_bits, int largest, const float* a, const float* b,
                  std::int64_t count, float accumulator) {
  // The scaling is exact, and the conversion cuts toward zero whatever the rounding mode.
  const int unit = largest - fraction_bits;
  const double scale = power(-unit);
  auto sum = static_cast<Integer>(accumulator * scale);
  for (std::int64_t i = 0; i < count; ++i) {
    sum += static_cast<Integer>(static_cast<double>(a[i]) * b[i] * scale);
  }
  if (sum == 0) return 0;

  Integer magnitude = sum < 0 ? -sum : sum;
  const int exponent = width_of(magnitude) - 1 + unit;
  const int kept = std::min(fraction_bits, fp32.trailing_bits());
  const int cut = std::max(exponent, fp32.emin) - kept - unit;  // bits of the sum below its last
  if (cut > width_of(magnitude)) return 0;
  if (cut > 0) magnitude = magnitude >> cut << cut;
  // At most 24 bits are left, so the conversions to double and float are exact, or infinity.
  const double value = std::ldexp(static_cast<double>(magnitude), unit);
  return static_cast<float>(sum < 0 ? -value : value);
}

}  // namespace

float matrix_unit_step(int fraction_bits, const float* a, const float* b, std::int64_t count,
                       float accumulator, int a_emin, int b_emin) {
  assert(fraction_bits >= 1 && fraction_bits <= 64 && count >= 0 && count <= 1 << 20);
  const double c = accumulator;
  bool special = !std::isfinite(accumulator);
  constexpr int none = std::numeric_limits<int>::min();
  int largest = c == 0 ? none : std::max(exponent_of(c), fp32.emin);
  for (std::int64_t i = 0; i < count; ++i) {
    special |= !std::isfinite(a[i]) || !std::isfinite(b[i]);
    if (a[i] == 0 || b[i] == 0) continue;
    largest = std::max(largest,
                       std::max(exponent_of(a[i]), a_emin) + std::max(exponent_of(b[i]), b_emin));
  }
  if (special) return special_sum(a, b, count, accumulator);
  if (largest == none) return 0;

  // A term is below 2^(F + 2) units of 2^(largest - F).
  const bool narrow =
      fraction_bits + 2 + static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count + 1))) <
      63;
  return narrow ? aligned_sum<std::int64_t>(fraction_bits, largest, a, b, count, accumulator)
                : aligned_sum<Int128>(fraction_bits, largest, a, b, count, accumulator);
}

}  // namespace headroom
