// Stored matrices as floats, whole.
#pragma once

#include <cstdint>

#include "reference/evaluate/simulate/lanes/lane_kernels.h"
#include "reference/head/matrix.h"

namespace headroom {

/// NaN becomes the canonical one.
void make_nan_canonical(float* x, std::int64_t n);

/// The first `rows` rows, row-major without gaps, exact; NaN as LaneKernels take it. Requires: a
/// format of at most 24 bits.
void load_matrix(const LaneKernels& lanes, const Matrix& from, std::int64_t rows, float* to);

}  // namespace headroom
