// The matrix unit against recorded answers of GPUs and an exact model in big integers.
#include "reference/evaluate/simulate/matrix_unit.h"

#include <gtest/gtest.h>

#include <bit>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "reference/real/fp_environment.h"
#include "tests/unit/simulate/recorded_matrix_units.h"

namespace headroom {
namespace {

using boost::multiprecision::cpp_int;

constexpr float infinity = std::numeric_limits<float>::infinity();

float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint32_t to_bits(float x) { return std::bit_cast<std::uint32_t>(x); }

// The same step in rationals: numbers as integer times 2^-512, alignment by integer division.
class ExactStep {
 public:
  ExactStep(int fraction_bits, int a_emin, int b_emin)
      : fraction_bits_(fraction_bits), a_emin_(a_emin), b_emin_(b_emin) {}

  float operator()(const std::vector<float>& a, const std::vector<float>& b, float c) const {
    std::vector<cpp_int> terms{fixed(c)};
    std::vector<int> exponents{exponent(c, -126)};
    for (std::size_t i = 0; i < a.size(); ++i) {
      const cpp_int product = fixed(a[i]) * fixed(b[i]);  // times 2^-1024
      terms.push_back(product / power(512));              // exact: floats end at 2^-149
      exponents.push_back(exponent(a[i], a_emin_) + exponent(b[i], b_emin_));
    }
    int largest = -100000;
    for (std::size_t i = 0; i < terms.size(); ++i) {
      if (terms[i] != 0) largest = std::max(largest, exponents[i]);
    }
    if (largest == -100000) return 0;
    cpp_int sum = 0;
    for (const cpp_int& term : terms) sum += cut(term, largest - fraction_bits_);
    if (sum == 0) return 0;
    const cpp_int magnitude = abs(sum);
    const int top = static_cast<int>(msb(magnitude)) - 512;
    const int last = std::max(top, -126) - std::min(fraction_bits_, 23);
    const cpp_int result = cut(sum, last);
    if (top > 127) return sum < 0 ? -infinity : infinity;
    return static_cast<float>(
        std::ldexp(static_cast<double>(cpp_int(result / power(512 + last))), last));
  }

 private:
  static cpp_int power(int e) {
    return boost::multiprecision::pow(cpp_int(2), static_cast<unsigned>(e));
  }
  static cpp_int fixed(float x) {
    int e = 0;
    const double m = std::frexp(static_cast<double>(x), &e);
    if (m == 0) return 0;
    const cpp_int v(static_cast<std::int64_t>(std::ldexp(m, 53)));
    return e - 53 + 512 >= 0 ? cpp_int(v << static_cast<unsigned>(e - 53 + 512))
                             : cpp_int(v / power(53 - 512 - e));
  }
  static int exponent(float x, int emin) {
    return x == 0 ? -100000 : std::max(std::ilogb(x), emin);
  }
  // Toward zero to a multiple of 2^e: cpp_int division truncates.
  static cpp_int cut(const cpp_int& x, int e) {
    const cpp_int unit = power(512 + e);
    return cpp_int(x / unit) * unit;
  }

  int fraction_bits_, a_emin_, b_emin_;
};

TEST(MatrixUnit, GivesRecordedAnswers) {
  const NearestRounding nearest;
  for (const RecordedStep& r : recorded_steps) {
    std::vector<float> a, b;
    for (int i = 0; i < r.count; ++i) {
      a.push_back(from_bits(r.a[i]));
      b.push_back(from_bits(r.b[i]));
    }
    const float d = matrix_unit_step(r.fraction_bits, a.data(), b.data(), r.count, from_bits(r.c));
    EXPECT_EQ(to_bits(d), r.d) << r.machine;
  }
}

TEST(MatrixUnit, AgreesWithBigIntegers) {
  const NearestRounding nearest;
  std::mt19937_64 random(1);
  for (int round = 0; round < 10000; ++round) {
    const int fraction_bits = std::vector<int>{1, 13, 23, 24, 25, 35, 48, 64}[random() % 8];
    const auto count = random() % 20;
    // Exponents near one another, far apart, or at the ends of FP32's range.
    const int centre = std::vector<int>{0, 0, -63, -120, 62}[random() % 5];
    const int spread = std::vector<int>{3, 12, 40}[random() % 3];
    const auto number = [&](int bits) {
      if (random() % 16 == 0) return 0.0F;
      const auto m =
          static_cast<double>(random() % (std::uint64_t{1} << bits)) * (random() % 2 == 0 ? 1 : -1);
      const int e = centre + static_cast<int>(random() % static_cast<unsigned>(spread)) - bits;
      const auto x = static_cast<float>(std::ldexp(m, e));
      return std::isfinite(x) ? x : 0.0F;
    };
    const int bits = std::vector<int>{8, 11, 24}[random() % 3];
    std::vector<float> a, b;
    for (std::uint64_t i = 0; i < count; ++i) {
      a.push_back(number(bits));
      b.push_back(number(bits));
    }
    float c = number(24);
    if (random() % 4 == 0 && std::isfinite(c * c)) c *= c;
    const int emin = random() % 2 == 0 ? -126 : -14;
    const float expected = ExactStep(fraction_bits, emin, -126)(a, b, c);
    const float found = matrix_unit_step(fraction_bits, a.data(), b.data(),
                                         static_cast<std::int64_t>(count), c, emin, -126);
    ASSERT_EQ(to_bits(found), to_bits(expected))
        << "round " << round << " F " << fraction_bits << " c " << std::hexfloat << c << ": "
        << found << " expected " << expected;
  }
}

// 1 2^24 - 1 2^24 + small: what is below 2^(24 - F) of the largest is lost before it cancels.
TEST(MatrixUnit, LosesWhatLiesBelowTheLargest) {
  const NearestRounding nearest;
  for (const int bits : {23, 24, 25}) {
    const float a[] = {1, -1, 1};
    const float kept[] = {0x1p24F, 0x1p24F, std::ldexp(1.0F, 24 - bits)};
    const float lost[] = {0x1p24F, 0x1p24F, std::ldexp(1.0F, 23 - bits)};
    EXPECT_EQ(matrix_unit_step(bits, a, kept, 3, 0), kept[2]);
    EXPECT_EQ(matrix_unit_step(bits, a, lost, 3, 0), 0);
  }
}

// 1.75 * 1.75 = 3.0625 has the exponent 0 of its operands' sum, one below that of the product.
TEST(MatrixUnit, DoesNotNormaliseProducts) {
  const NearestRounding nearest;
  const float a[] = {1.75F}, b[] = {1.75F};
  EXPECT_EQ(matrix_unit_step(4, a, b, 1, 0x1p-4F), 3.125F);  // 3 if it had the exponent 1
  EXPECT_EQ(matrix_unit_step(3, a, b, 1, 0x1p-4F), 3);
}

TEST(MatrixUnit, CutsTowardZero) {
  const NearestRounding nearest;
  const float one[] = {1};
  const float tail[] = {0x1.8p-24F};
  EXPECT_EQ(matrix_unit_step(25, one, tail, 1, 1), 1);
  EXPECT_EQ(matrix_unit_step(25, one, tail, 1, -1), -0x1.fffffcp-1F);
}

TEST(MatrixUnit, TakesSubnormalOperandsAtTheirFormatsExponent) {
  const NearestRounding nearest;
  // FP16's 2^-24 times 1: exponent -14, so that 2^-40 lies below 2^(-14 - 25).
  const float a[] = {0x1p-24F}, b[] = {1};
  EXPECT_EQ(matrix_unit_step(25, a, b, 1, 0x1p-40F, -14), 0x1p-24F);
  EXPECT_EQ(matrix_unit_step(25, a, b, 1, 0x1p-40F), 0x1p-24F + 0x1p-40F);
  const float c = 0x1p-149F;
  EXPECT_EQ(matrix_unit_step(25, a, b, 0, c), c);
}

TEST(MatrixUnit, HandlesSpecials) {
  const NearestRounding nearest;
  const float a[] = {infinity, 1}, b[] = {1, 1};
  EXPECT_EQ(matrix_unit_step(25, a, b, 2, 0), infinity);
  EXPECT_EQ(matrix_unit_step(25, a, b, 2, -1), infinity);
  EXPECT_EQ(to_bits(matrix_unit_step(25, a, b, 2, -infinity)), 0x7fc00000U);
  const float zero[] = {0, 0};
  EXPECT_TRUE(std::isnan(matrix_unit_step(25, a, zero, 2, 0)));
  EXPECT_EQ(to_bits(matrix_unit_step(25, zero, b, 2, from_bits(0xffc12345U))), 0x7fc00000U);
  const float large[] = {0x1p127F, 0x1p127F};
  EXPECT_EQ(matrix_unit_step(25, large, b, 2, 0), infinity);
  const float minus[] = {-1, -1};
  EXPECT_EQ(matrix_unit_step(25, large, minus, 2, 0), -infinity);
  EXPECT_EQ(to_bits(matrix_unit_step(25, zero, minus, 2, -0.0F)), 0U);
}

}  // namespace
}  // namespace headroom
