// Loading against arithmetic definitions of the formats, on unaligned data, in directed rounding.
#include "reference/head/matrix.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "reference/real/fp_environment.h"
#include "tests/unit/head/scratch.h"

namespace headroom {
namespace {

/// IEEE 754 binary16 and bfloat16 by their definition: (-1)^s 2^(e-bias) (1 + f/2^t).
double value_by_definition(unsigned code, int exponent_bits, int trailing_bits) {
  const unsigned field = code >> trailing_bits & ((1U << exponent_bits) - 1);
  const unsigned fraction = code & ((1U << trailing_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (code >> 15U & 1U) != 0 ? -1.0 : 1.0;
  if (field == (1U << exponent_bits) - 1) return fraction != 0 ? NAN : sign * INFINITY;
  const double significand = std::ldexp(fraction, -trailing_bits) + (field != 0 ? 1 : 0);
  return sign * std::ldexp(significand, static_cast<int>(field == 0 ? 1 : field) - bias);
}

bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

/// `row_length` words of one format after an odd number of bytes.
Matrix unaligned(const Format& format, std::int64_t rows, std::int64_t columns,
                 const std::vector<std::byte>& words, std::size_t shift) {
  const auto storage = std::make_shared<std::vector<std::byte>>(words.size() + shift);
  std::memcpy(storage->data() + shift, words.data(), words.size());
  const std::byte* data = storage->data() + shift;
  return {storage, data, format, rows, columns, columns * format.storage_bytes()};
}

TEST(Matrix, LoadsEveryHalfWidthCodeExactlyInEitherRounding) {
  std::vector<std::byte> words(2 * 65536);
  for (unsigned code = 0; code < 65536; ++code) {
    words[2 * code] = static_cast<std::byte>(code & 0xFFU);
    words[2 * code + 1] = static_cast<std::byte>(code >> 8U);
  }
  for (const Format& format : {fp16, bf16}) {
    for (const std::size_t shift : {0U, 1U}) {
      const Matrix matrix = unaligned(format, 256, 256, words, shift);
      for (const bool upward : {false, true}) {
        const MxcsrScope scope(upward ? mxcsr_upward : mxcsr_nearest);
        std::vector<double> doubles(256);
        std::vector<float> floats(256);
        for (std::int64_t row = 0; row < 256; ++row) {
          matrix.load_row(row, doubles.data());
          matrix.load_row(row, floats.data());
          for (std::int64_t j = 0; j < 256; ++j) {
            const auto code = static_cast<unsigned>(256 * row + j);
            const double expected =
                format == fp16 ? value_by_definition(code, 5, 10) : value_by_definition(code, 8, 7);
            ASSERT_TRUE(same(doubles[static_cast<std::size_t>(j)], expected)) << code;
            ASSERT_TRUE(same(floats[static_cast<std::size_t>(j)], expected)) << code;
            ASSERT_EQ(matrix.code(row, j), code);
          }
        }
      }
    }
  }
}

TEST(Matrix, LoadsSinglesWithSubnormalsAndOtherFormats) {
  const std::vector<double> values = {0x1p-149, -0x1p-149, 0x1.fffffep127, -0.0, INFINITY, 1.5};
  const Matrix single = Matrix::from_values(fp32, 2, 3, values);
  std::vector<std::byte> words(24);
  for (std::size_t i = 0; i < 6; ++i) {
    const auto value = static_cast<float>(values[i]);
    std::memcpy(words.data() + 4 * i, &value, 4);
  }
  const Matrix shifted = unaligned(fp32, 2, 3, words, 3);
  for (const Matrix& matrix : {single, shifted}) {
    for (std::int64_t row = 0; row < 2; ++row) {
      double doubles[3];
      float floats[3];
      matrix.load_row(row, doubles);
      matrix.load_row(row, floats);
      for (std::int64_t j = 0; j < 3; ++j) {
        EXPECT_TRUE(same(doubles[j], values[static_cast<std::size_t>(3 * row + j)]));
        EXPECT_TRUE(same(floats[j], values[static_cast<std::size_t>(3 * row + j)]));
      }
    }
  }
  EXPECT_EQ(single.sha256(), shifted.sha256());

  double wide[2];
  Matrix::from_values(fp64, 1, 2, {0x1p-1074, 0x1.fffffffffffffp1023}).load_row(0, wide);
  EXPECT_EQ(wide[0], 0x1p-1074);
  EXPECT_EQ(wide[1], 0x1.fffffffffffffp1023);
  float narrow[2];
  EXPECT_THROW(Matrix::from_values(fp64, 1, 2, {0, 1}).load_row(0, narrow), std::invalid_argument);
  Matrix::from_values(e4m3fn, 1, 2, {448, -0.001953125}).load_row(0, narrow);
  EXPECT_EQ(narrow[0], 448);
  EXPECT_EQ(narrow[1], -0x1p-9);
}

TEST(Matrix, FromValuesTakesOnlyRepresentableNumbers) {
  EXPECT_EQ(Matrix::from_values(bf16, 1, 1, {1.0}).code(0, 0), 0x3F80U);
  EXPECT_EQ(Matrix::from_values(fp16, 1, 1, {-0.0}).code(0, 0), 0x8000U);
  EXPECT_EQ(Matrix::from_values(fp16, 1, 1, {0x1p-24}).code(0, 0), 1U);
  EXPECT_THROW(Matrix::from_values(bf16, 1, 1, {1.001}), std::invalid_argument);
  EXPECT_THROW(Matrix::from_values(fp16, 1, 1, {65536.0}), std::invalid_argument);
  EXPECT_THROW(Matrix::from_values(fp16, 1, 1, {0x1p-25}), std::invalid_argument);
  EXPECT_THROW(Matrix::from_values(e2m1, 1, 1, {NAN}), std::invalid_argument);
  EXPECT_THROW(Matrix::from_values(fp16, 1, 2, {1.0}), std::invalid_argument);
  EXPECT_THROW(Matrix::from_values(fp16, -1, 1, {}), std::invalid_argument);
}

TEST(Matrix, CastRoundsOnce) {
  // 1 + 2^-8 is half way between bfloat16 neighbours: to even. 2^-8 and a little more: up.
  // 1 + 2^-11 + 2^-22 is just above half way in binary16: 0x3c01.
  const Matrix single =
      Matrix::from_values(fp32, 1, 4, {1 + 0x1p-8, 1 + 0x1p-8 + 0x1p-20, 1 + 0x1p-7, 1e30F});
  const Matrix brain = single.cast(bf16, Rounding::nearest_even);
  EXPECT_EQ(brain.code(0, 0), 0x3F80U);
  EXPECT_EQ(brain.code(0, 1), 0x3F81U);
  EXPECT_EQ(brain.code(0, 2), 0x3F81U);
  const Matrix half = Matrix::from_values(fp32, 1, 3, {1 + 0x1p-11 + 0x1p-22, 1 + 0x1p-11, 65520})
                          .cast(fp16, Rounding::nearest_even);
  EXPECT_EQ(half.code(0, 0), 0x3C01U);
  EXPECT_EQ(half.code(0, 1), 0x3C00U);
  EXPECT_EQ(half.code(0, 2), 0x7C00U);
  EXPECT_EQ(single.cast(bf16, Rounding::upward).code(0, 0), 0x3F81U);
}

TEST(Matrix, Sha256OfKnownStrings) {
  // FIPS 180-2, appendix B, and the empty string
  const auto digest = [](const std::string& text, std::int64_t rows, std::int64_t stride,
                         std::int64_t columns) {
    const auto storage = std::make_shared<std::string>(text);
    return Matrix(storage, reinterpret_cast<const std::byte*>(storage->data()), e4m3fn, rows,
                  columns, stride)
        .sha256();
  };
  EXPECT_EQ(digest("abc", 1, 3, 3),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abc", 3, 1, 1),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("axbxcx", 3, 2, 1),  // what lies between rows is not hashed
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 7, 8, 8),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest("", 0, 0, 0),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace headroom
