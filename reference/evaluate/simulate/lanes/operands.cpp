#include "reference/evaluate/simulate/lanes/operands.h"

#include <cstring>
#include <limits>

namespace headroom {

void make_nan_canonical(float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (x[i] != x[i]) x[i] = std::numeric_limits<float>::quiet_NaN();
  }
}

void load_matrix(const LaneKernels& lanes, const Matrix& from, std::int64_t rows, float* to) {
  const std::int64_t columns = from.columns(), bytes = from.format().storage_bytes();
  const bool half = from.format() == bf16 || from.format() == fp16;
  if (rows == 0) return;
  const bool aligned = reinterpret_cast<std::uintptr_t>(from.row_bytes(0)) % 2 == 0;
  if (from.row_stride_bytes() == columns * bytes && half && aligned) {
    const auto* words = reinterpret_cast<const std::uint16_t*>(from.row_bytes(0));
    (from.format() == bf16 ? lanes.widen_bf16 : lanes.widen_fp16)(words, to, rows * columns);
  } else if (from.row_stride_bytes() == columns * bytes && from.format() == fp32) {
    std::memcpy(to, from.row_bytes(0), static_cast<std::size_t>(rows * columns * bytes));
    make_nan_canonical(to, rows * columns);
  } else {
    for (std::int64_t i = 0; i < rows; ++i) from.load_row(i, to + i * columns);
  }
}

}  // namespace headroom
