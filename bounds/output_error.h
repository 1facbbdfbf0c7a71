// The composed output error of one row, and of its log-sum-exp (error_bounds.md, section 3).
#pragma once

#include <cstdint>

#include "reference/model/kernel_model.h"
#include "reference/real/bound.h"

namespace headroom {

/// What the formula needs of a row. All log2 units or absolute; see error_bounds.md for symbols.
struct OutputErrorInputs {
  std::int64_t visible = 0;       ///< N
  Upper<Log2> exponent_error;     ///< A: |x^ - (z - mu)|
  int exp2_factors = 1;           ///< n: one plus the number of rescale factors
  Lower<Log2> log2_mass;          ///< log2 W: lower bound of log2 sum 2^(z_j - mu)
  double vmax_abs = 0, vmin = 0, vmax = 0;  ///< V, and the hull of the visible (or all) values
  std::int64_t rescales = 0;      ///< rescales of O and l (0 for a fixed stabilizer)
};

/// Each summand, absolute units of the output, after the factor (1 + eps_D)(1 + u_o).
struct OutputError {
  bool defined = false;        ///< false: l_d <= 0 or l^ <= 0, no bound
  Upper<Absolute> total;
  Upper<Absolute> weights;     ///< (vmax - vmin) tanh(ln R / 4)
  Upper<Absolute> flush;       ///< flush in both sums
  Upper<Absolute> rounding;    ///< P rounding against unrounded l, accumulators
  Upper<Absolute> underflow;   ///< P underflow, product and partial flush
  Upper<Absolute> normalise;   ///< division and output format
  Interval lse2;               ///< error of LSE2, log2 units
};

/// |out - y| <= total, y the exact softmax average over the multiplied operands.
OutputError output_error(const UpwardRounding& up, const KernelModel& kernel,
                         const OutputErrorInputs& row);

/// Flushed products and partial sums of O, absolute: (count + rescales) 2^L / l (theory.md,
/// product.flush), as a bound on the output. `log2_denominator` bounds log2 of the computed l.
Upper<Absolute> product_flush(const UpwardRounding& up, const KernelModel& kernel,
                              std::int64_t count, Lower<Log2> log2_denominator);

}  // namespace headroom
