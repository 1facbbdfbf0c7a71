// The loops of exponential units over arrays, one set per instruction set, chosen at run time.
// All sets give the same bits.
#pragma once

#include <cstddef>

#include "reference/evaluate/vector/kernels.h"

namespace headroom {

/// An argument whose result is not settled by doubles.
struct UnsettledArgument {
  std::size_t index;
  float x;
};

/// 2^(c x), c = c_hi + c_lo to 104 bits, rounded to FP32.
struct NearestPower {
  double c_hi, c_lo;
  bool flush_to_zero;
  float floor;  ///< no result is below this
};

struct UnitKernels {
  /// y[i] = RNE(2^(c x[i])), at least `floor`. `unsettled` has room for n; returns how many were
  /// put there: arguments near a midpoint, and NaN, whose y[i] is unspecified. x may be y.
  std::size_t (*nearest)(const NearestPower& power, const float* x, float* y, std::size_t n,
                         UnsettledArgument* unsettled);
  /// FlashAttention-4's instructions with coefficients c[0..degree]; NaN is the canonical one.
  void (*polynomial)(const float* c, int degree, float floor, const float* x, float* y,
                     std::size_t n);
  /// y[i] = approximately 2^(c x[i]), |c x| <= 400 after clamping, within
  /// exp2_relative_error_bound; NaN gives NaN.
  void (*power)(double c_hi, double c_lo, const float* x, double* y, std::size_t n);
};

/// Requires processor_has(set).
const UnitKernels& unit_kernels(InstructionSet set);

}  // namespace headroom
