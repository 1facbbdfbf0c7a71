// Double-word arithmetic ("double-double") over arrays, for the second rung. Lanes are keys.
//
// Every operation is one of M. Joldes, J.-M. Muller, V. Popescu, Tight and rigorous error bounds
// for basic building blocks of double-word arithmetic, ACM TOMS 44 (2017) 15, with u = 2^-53:
//   sum of pairs           AccurateDWPlusDW (algorithm 6)    relative error below 3 u^2 / (1 - 4 u)
//   pair times double      DWTimesFP3 (algorithm 9)          below 2 u^2
//   pair times pair        DWTimesDW2 (algorithm 11)         below 5 u^2
//   sum with a smaller     add_smaller in pair_loops.h       below 4 u^2
//   pair by pair           DWDivDW2 (algorithm 17)           below 15 u^2 + 56 u^3
#pragma once

#include <cstdint>

#include "reference/evaluate/ladder/kernels.h"

namespace headroom {

/// Relative error of `weights`: the account stands at exp2_of_pair in pair_loops.h.
inline constexpr double pair_exp2_error = 0x1p-98;
/// Absolute error of `exponents` relative to T = |c s| + |bias| log2(e): one product of pairs
/// (5 u^2), the constant (2^-105), the same for the bias and a sum (3 u^2).
inline constexpr double pair_exponent_error = 0x1p-101;
/// Absolute error of capped exponents relative to softcap log2(e).
inline constexpr double pair_softcap_error = 0x1p-94;
/// Relative error of one addition of pairs, 3 u^2 / (1 - 4 u), and of one product with a double.
inline constexpr double pair_sum_error = 0x1.9p-105;
inline constexpr double pair_product_error = 0x1p-105;
/// Weights below 2^pair_least_exponent are taken as 0.
inline constexpr double pair_least_exponent = -900;
/// Arrays are padded to a multiple of this.
inline constexpr std::int64_t pair_padding = 8;

struct PairScale {
  double c_hi, c_lo;      ///< as ExponentArgs
  double cap_hi, cap_lo;  ///< 0 without softcap
};

struct PairKernels {
  /// scores[j] = sum of q[t] k_j[t] in any order, one rounding a product-sum, for `keys` rows of
  /// words, `stride` bytes apart.
  void (*scores)(Words words, const std::byte* rows, std::int64_t stride, std::int64_t keys,
                 const double* q, std::int64_t count, double* scores);
  /// The same for one row of doubles.
  double (*dot)(const double* a, const double* b, std::int64_t count);
  /// The same as hi + lo by cascaded TwoSum: off by at most gamma_n^2 sum |a b|, n = count + 16
  /// (T. Ogita, S. M. Rump, S. Oishi, Accurate sum and dot product, SISC 26 (2005), prop. 5.5,
  /// before its last rounding). Requires products that are exact in fp64.
  void (*dot_pair)(const double* a, const double* b, std::int64_t count, double* hi, double* lo);
  /// t = c s (or capped) + bias log2(e). bias may be nullptr.
  void (*exponents)(const PairScale& scale, const double* s_hi, const double* s_lo,
                    const double* bias, std::int64_t count, double* t_hi, double* t_lo);
  /// p = 2^(t - shift), an integer shift, |t| <= 2^40.
  void (*weights)(const double* t_hi, const double* t_lo, double shift, std::int64_t count,
                  double* p_hi, double* p_lo);
  /// Sum of p.
  void (*sum)(const double* p_hi, const double* p_lo, std::int64_t count, double* hi, double* lo);
  /// to[i] = the word at from + keys[i] stride.
  void (*gather)(Words words, const std::byte* from, std::int64_t stride, const std::int64_t* keys,
                 std::int64_t count, double* to);
  /// Sum of p v, and of p_hi |v| in plain doubles.
  void (*weighted_sum)(const double* p_hi, const double* p_lo, const double* v, std::int64_t count,
                       double* hi, double* lo, double* absolute);
};

/// Counts are multiples of pair_padding except in dot and dot_pair. Requires processor_has(set).
const PairKernels& pair_kernels(InstructionSet set);

/// The Taylor coefficients ln(2)^k / k! as pairs, k = 0 .. 14. Made once by MPFR.
struct PairExp2Table {
  double hi[15], lo[15];
};
const PairExp2Table& pair_exp2_table();

}  // namespace headroom
