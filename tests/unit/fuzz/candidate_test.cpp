// Rounding of operands, against the conversions of reference/format.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "fuzz/candidate.h"
#include "fuzz/random.h"
#include "reference/format/convert.h"

namespace headroom::fuzz {
namespace {

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

TEST(RoundNumbers, EveryUpperHalfOfAWordAsTheConversions) {
  constexpr std::uint32_t lower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  for (const Format* format : {&bf16, &fp16, &tf32, &e4m3fn, &e5m2, &fp32}) {
    std::vector<float> numbers;
    for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
      for (const std::uint32_t low : lower) {
        numbers.push_back(std::bit_cast<float>((upper << 16) | low));
      }
    }
    numbers.pop_back();  // and not a multiple of four
    std::vector<float> rounded = numbers;
    round_numbers(*format, rounded);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const float x = numbers[i];
      if (std::isnan(x)) {
        ASSERT_TRUE(std::isnan(rounded[i])) << format->name << " " << std::hex << bits(x);
      } else if (std::isinf(x)) {
        ASSERT_EQ(rounded[i], x) << format->name;
      } else {
        const double most = format->max_finite();
        const double expected = round_to(*format, std::clamp(static_cast<double>(x), -most, most));
        ASSERT_EQ(static_cast<double>(rounded[i]), expected)
            << format->name << " " << std::hexfloat << x;
        ASSERT_EQ(std::signbit(rounded[i]), std::signbit(x)) << format->name;
      }
    }
  }
}

TEST(RoundNumbers, AnyBits) {
  Random random(7);
  for (const Format* format : {&bf16, &fp16, &e4m3fn, &e5m2}) {
    std::vector<float> numbers(4000);
    for (float& x : numbers) {
      // half of them near what the format has
      x = std::bit_cast<float>(static_cast<std::uint32_t>(random.bits() >> 32));
      if (random.coin()) {
        x = static_cast<float>(
            std::ldexp(random.uniform(-2, 2), static_cast<int>(random.between(-30, 17))));
      }
    }
    std::vector<float> rounded = numbers;
    round_numbers(*format, rounded);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (!std::isfinite(numbers[i])) continue;
      ASSERT_EQ(bits(rounded[i]), bits(operand_number(*format, static_cast<double>(numbers[i]))))
          << format->name << " " << std::hexfloat << numbers[i];
    }
  }
}

}  // namespace
}  // namespace headroom::fuzz
