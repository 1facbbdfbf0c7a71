// The vector kernels over arrays, one set per instruction set, chosen at run time.
//
// For callers that are not themselves compiled per instruction set: the exhaustive exp2 check, the
// tests, log2. Code that fuses exp2 into its own loops includes exp2.h instead.
#pragma once

#include <cstddef>

#include "reference/real/instruction_set.h"

namespace headroom {

/// Array forms of exp2.h and quotient.h. Same requirements (round-to-nearest, no FTZ, no DAZ) and
/// same promises; n is any size, arrays may not overlap unless equal.
struct VectorKernels {
  /// y[i] = 2^x[i].
  void (*exp2)(const double* x, double* y, std::size_t n);
  /// y[i] = 2^(hi[i] + lo[i] - shift).
  void (*exp2_pair)(const double* hi, const double* lo, double shift, double* y, std::size_t n);
  /// y[i] = 2^(c s[i] - shift), c = c_hi + c_lo.
  void (*exp2_product)(double c_hi, double c_lo, const double* s, double shift, double* y,
                       std::size_t n);
  /// [lo[i], hi[i]] holds every (o[i] +- o_error[i]) / (l[i] +- l_error[i]).
  void (*quotient_bounds)(const double* o, const double* o_error, const double* l,
                          const double* l_error, double* lo, double* hi, std::size_t n);
};

/// Requires processor_has(set).
const VectorKernels& vector_kernels(InstructionSet set);

}  // namespace headroom
