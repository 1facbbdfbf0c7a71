// One step of a matrix unit that aligns, truncates and adds: d = c + sum of a_i b_i in one go.
//
// Model: MMA-Sim (arXiv 2511.10909). Measured: each of 25,000 recorded answers of GPUs (the files
// of north-numerical-computing/MATLAB-tensor-core) comes out bit for bit, with these steps:
//   V100 FP16 F = 23, 4 terms; A100 FP16 and BF16 F = 24, 8 terms; H100 BF16 F = 25, 16 terms;
//   Ada E4M3 F = 13, 32 terms as two steps of 16.
// The records hold numbers of ordinary size. Not measured here, as MMA-Sim has it: subnormal
// operands, overflow, specials. Unknown: whether a product that is zero takes part in the alignment
// (here it does not).
#pragma once

#include <cstdint>

namespace headroom {

/// d = accumulator + sum over i < count of a[i] b[i].
///
/// Every product is exact and has the exponent that is the *sum* of its operands' exponents (so it
/// may be up to a bit low); a subnormal operand has the exponent emin of its format. Products and
/// accumulator are aligned to the largest exponent E among those that are not zero, each cut toward
/// zero to multiples of 2^(E - fraction_bits), added exactly, and the sum cut toward zero to
/// min(23, fraction_bits) fraction bits: FP32, subnormals honoured, infinity from 2^128 on. A sum
/// of zero is +0. Infinities and NaN as in the exact sum; NaN is the canonical one.
///
/// `a_emin`, `b_emin`: emin of the operands' formats, if that matters (FP16 and FP8 with subnormal
/// operands); the default is FP32's, TF32's and BF16's.
/// Requires: 1 <= fraction_bits <= 64, 0 <= count <= 2^20, NearestRounding is active.
float matrix_unit_step(int fraction_bits, const float* a, const float* b, std::int64_t count,
                       float accumulator, int a_emin = -126, int b_emin = -126);

}  // namespace headroom
