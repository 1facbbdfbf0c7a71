// A matrix of stored numbers: rows of Q, K or V of one head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reference/format/convert.h"
#include "reference/format/format.h"

namespace headroom {

/// A read-only row-major view of stored words of one format, with a stride between rows. The words
/// are little-endian and may be unaligned. `owner` keeps the storage alive.
class Matrix {
 public:
  Matrix() = default;
  Matrix(std::shared_ptr<const void> owner, const std::byte* data, Format format, std::int64_t rows,
         std::int64_t columns, std::int64_t row_stride_bytes)
      : owner_(std::move(owner)),
        data_(data),
        format_(format),
        rows_(rows),
        columns_(columns),
        stride_(row_stride_bytes) {}

  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  const Format& format() const { return format_; }
  const std::byte* row_bytes(std::int64_t row) const { return data_ + row * stride_; }
  std::int64_t row_stride_bytes() const { return stride_; }

  /// The stored code of one element.
  std::uint64_t code(std::int64_t row, std::int64_t column) const;
  /// One row as doubles (exact; NaN and infinities as such). `out` has columns() elements.
  void load_row(std::int64_t row, double* out) const;
  /// One row as floats (exact). Requires: a format no wider than fp32.
  void load_row(std::int64_t row, float* out) const;

  /// A matrix from values that are exactly representable in `format` (tests, generators); throws
  /// std::invalid_argument otherwise. `values` is row-major, rows * columns long.
  static Matrix from_values(const Format& format, std::int64_t rows, std::int64_t columns,
                            const std::vector<double>& values);
  /// This matrix converted to `format`, in new storage, one rounding an element.
  Matrix cast(const Format& format, Rounding rounding) const;

  /// SHA-256 of the rows as stored (row-major little-endian words, no padding), lower-case hex.
  std::string sha256() const;

 private:
  std::shared_ptr<const void> owner_;
  const std::byte* data_ = nullptr;
  Format format_{fp32};
  std::int64_t rows_ = 0, columns_ = 0, stride_ = 0;
};

}  // namespace headroom
