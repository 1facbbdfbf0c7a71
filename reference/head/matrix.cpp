#include "reference/head/matrix.h"

#include <openssl/evp.h>

#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace headroom {
namespace {

template <class Word>
Word load_word(const std::byte* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

std::uint64_t load_code(const std::byte* at, int bytes) {
  switch (bytes) {
    case 1:
      return load_word<std::uint8_t>(at);
    case 2:
      return load_word<std::uint16_t>(at);
    case 4:
      return load_word<std::uint32_t>(at);
    default:
      return load_word<std::uint64_t>(at);
  }
}

void store_code(std::byte* at, int bytes, std::uint64_t code) {
  std::memcpy(at, &code, static_cast<std::size_t>(bytes));  // little-endian host
}

float from_bf16(std::uint16_t code) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16U);
}

/// Exact in every rounding mode and with DAZ on: a subnormal code is an integer of at most 10 bits
/// times 2^-24, a normal result in binary32.
float from_fp16(std::uint16_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x8000U) << 16U;
  const std::uint32_t field = code & 0x7C00U;
  const std::uint32_t low = code & 0x7FFFU;
  const float subnormal = static_cast<float>(static_cast<std::int32_t>(low)) * 0x1p-24F;
  const std::uint32_t rebias = field == 0x7C00U ? (255U - 31U) << 23U : (127U - 15U) << 23U;
  const std::uint32_t normal = (low << 13U) + rebias;
  return std::bit_cast<float>(sign |
                              (field == 0 ? std::bit_cast<std::uint32_t>(subnormal) : normal));
}

template <class Real>
void load(const std::byte* row, const Format& format, std::int64_t columns, Real* out) {
  if (format == fp32) {
    for (std::int64_t j = 0; j < columns; ++j) out[j] = Real{load_word<float>(row + 4 * j)};
  } else if (format == bf16) {
    for (std::int64_t j = 0; j < columns; ++j) {
      out[j] = Real{from_bf16(load_word<std::uint16_t>(row + 2 * j))};
    }
  } else if (format == fp16) {
    for (std::int64_t j = 0; j < columns; ++j) {
      out[j] = Real{from_fp16(load_word<std::uint16_t>(row + 2 * j))};
    }
  } else {
    const int bytes = format.storage_bytes();
    for (std::int64_t j = 0; j < columns; ++j) {
      // exact: for float, a precondition of load_row says that the format is no wider
      out[j] = static_cast<Real>(decode(format, load_code(row + j * bytes, bytes)));
    }
  }
}

struct Storage {
  std::shared_ptr<std::vector<std::byte>> bytes;
  std::int64_t stride;
};

Storage allocate(const Format& format, std::int64_t rows, std::int64_t columns) {
  std::int64_t total = 0;
  if (rows < 0 || columns < 0 || __builtin_mul_overflow(rows, columns, &total) ||
      __builtin_mul_overflow(total, format.storage_bytes(), &total)) {
    throw std::invalid_argument("matrix: bad number of rows or columns");
  }
  return {std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(total)),
          columns * format.storage_bytes()};
}

}  // namespace

std::uint64_t Matrix::code(std::int64_t row, std::int64_t column) const {
  assert(row >= 0 && row < rows_ && column >= 0 && column < columns_);
  const int bytes = format_.storage_bytes();
  return load_code(row_bytes(row) + column * bytes, bytes);
}

void Matrix::load_row(std::int64_t row, double* out) const {
  assert(row >= 0 && row < rows_);
  load(row_bytes(row), format_, columns_, out);
}

void Matrix::load_row(std::int64_t row, float* out) const {
  assert(row >= 0 && row < rows_);
  if (format_.precision > fp32.precision || format_.emax > fp32.emax) {
    throw std::invalid_argument("load_row: the format is wider than fp32");
  }
  load(row_bytes(row), format_, columns_, out);
}

Matrix Matrix::from_values(const Format& format, std::int64_t rows, std::int64_t columns,
                           const std::vector<double>& values) {
  const Storage storage = allocate(format, rows, columns);
  if (static_cast<std::int64_t>(values.size()) != rows * columns) {
    throw std::invalid_argument("from_values: expected rows * columns values");
  }
  const int bytes = format.storage_bytes();
  std::byte* at = storage.bytes->data();
  for (const double value : values) {
    const std::uint64_t code = encode(format, value, {});
    const double back = decode(format, code);
    const bool same = std::isnan(value) ? std::isnan(back)
                                        : std::bit_cast<std::uint64_t>(value) ==
                                              std::bit_cast<std::uint64_t>(back);
    if (!same) {
      throw std::invalid_argument("from_values: " + std::to_string(value) +
                                  " is not representable in " + std::string(format.name));
    }
    store_code(at, bytes, code);
    at += bytes;
  }
  const std::byte* data = storage.bytes->data();
  return {storage.bytes, data, format, rows, columns, storage.stride};
}

Matrix Matrix::cast(const Format& format, Rounding rounding) const {
  const Storage storage = allocate(format, rows_, columns_);
  const ConversionPolicy policy{
      .rounding = rounding, .saturate = false, .flush_to_zero = false, .denormals_are_zero = false};
  const int from = format_.storage_bytes();
  const int to = format.storage_bytes();
  std::byte* at = storage.bytes->data();
  for (std::int64_t i = 0; i < rows_; ++i) {
    const std::byte* row = row_bytes(i);
    for (std::int64_t j = 0; j < columns_; ++j, at += to) {
      store_code(at, to, convert(format_, load_code(row + j * from, from), format, policy));
    }
  }
  const std::byte* data = storage.bytes->data();
  return {storage.bytes, data, format, rows_, columns_, storage.stride};
}

std::string Matrix::sha256() const {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  const std::int64_t row_length = columns_ * format_.storage_bytes();
  bool ok = context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  if (row_length == stride_ && rows_ > 0) {
    ok = ok &&
         EVP_DigestUpdate(context.get(), data_, static_cast<std::size_t>(rows_ * row_length)) == 1;
  } else {
    for (std::int64_t i = 0; i < rows_ && ok; ++i) {
      ok = EVP_DigestUpdate(context.get(), row_bytes(i), static_cast<std::size_t>(row_length)) == 1;
    }
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  ok = ok && EVP_DigestFinal_ex(context.get(), digest, &length) == 1;
  if (!ok) throw std::runtime_error("SHA-256 failed");
  std::string text;
  for (unsigned i = 0; i < length; ++i) {
    constexpr char digits[] = "0123456789abcdef";
    text += digits[digest[i] >> 4U];
    text += digits[digest[i] & 15U];
  }
  return text;
}

}  // namespace headroom
