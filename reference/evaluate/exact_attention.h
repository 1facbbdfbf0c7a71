// Exact attention, the plain way: MPFR at high precision, one obvious loop. The oracle.
#pragma once

#include <cstdint>
#include <vector>

#include <boost/multiprecision/mpfr.hpp>

#include "reference/head/head.h"

namespace headroom {

/// Boost's MPFR number with a precision chosen at run time.
using Real = boost::multiprecision::number<boost::multiprecision::mpfr_float_backend<0>,
                                           boost::multiprecision::et_off>;

/// <a, b>, exact: the result has the precision that makes every operation exact, which is checked.
/// Throws std::invalid_argument on NaN or infinity. Works in any rounding mode of the processor.
Real exact_dot(const double* a, const double* b, std::int64_t n);

/// Scores and softmax of one row: exact dot products, then MPFR rounded to nearest at `bits` plus
/// as many bits as the largest |z| has in front of its point (an absolute error of z is a relative
/// one of 2^z), plus 8. With n visible keys:
///
///   |z_j - exact| < 2^-bits,   |O_c - exact| < (2 n + 8) 2^-bits max_j |v_jc|,
///   |LSE2 - exact|, |LSE - exact| < (2 n + 8) 2^-bits.
struct ExactRow {
  std::vector<Real> z;       ///< visible scores, log2 units, keys in order
  std::vector<Real> output;  ///< O, one a value channel; zero for an empty row
  Real max_z;                ///< row maximum; -infinity for an empty row
  Real lse2;                 ///< log2 sum 2^z; -infinity for an empty row
  Real lse;                  ///< natural log-sum-exp; -infinity for an empty row
  std::int64_t first_key = 0;
};

/// One row of the head over the stored operands. Requires: finite operands; throws
/// std::invalid_argument on NaN or infinity in the row's q and visible k.
ExactRow exact_row(const Head& head, std::int64_t row, int bits = 256);

/// The same formula for given scores (log2 units) and values (row-major n x dv): what oracles use
/// for operands that a kernel has pre-rounded.
ExactRow exact_row_from_scores(std::vector<Real> z, const std::vector<double>& values,
                               std::int64_t value_channels, int bits = 256);

/// Exact maximum over the row's visible keys of <q, k_j>, and a key that attains it (the first).
/// Requires: at least one visible key; throws std::invalid_argument otherwise.
struct ExactMaximum {
  Real value;
  std::int64_t key;
};
ExactMaximum exact_row_maximum(const Head& head, std::int64_t row);

}  // namespace headroom
