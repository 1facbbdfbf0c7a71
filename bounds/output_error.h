// The composed output error of one row, and of its log-sum-exp (DESIGN.md, "Error bounds").
#pragma once

#include <cstdint>
#include <limits>

#include "reference/model/kernel_model.h"
#include "reference/real/bound.h"

namespace headroom {

/// What the formula needs of a row. Symbols: z the exact scores of the reference, mu the stored
/// stabilizer (of an online kernel the final maximum, exactly), N visible keys (a sink is one more,
/// with v = 0), V = max |v|.
struct OutputErrorInputs {
  std::int64_t visible = 0;                 ///< N
  Upper<Log2> exponent_error;               ///< A: |x^ - (z - mu)|, x^ the exponent that exp2 gets
  int exp2_factors = 1;                     ///< n: one plus the number of rescale factors != 1
  Lower<Log2> log2_mass;                    ///< log2 W: lower bound of log2 sum 2^(z_j - mu)
  double vmax_abs = 0, vmin = 0, vmax = 0;  ///< V, and a hull of the values
  std::int64_t rescales = 0;                ///< rescales of O and l (0 for a fixed stabilizer)
  /// Mean of z - mu over the visible keys, if known: sharpens the flush term where exp2 flushes
  /// and nothing is rescaled, and bounds rows whose mass is of the order of N flushed weights.
  Lower<Log2> mean_exponent;
  /// Upper bound of log2 of the computed l, if known: only for reciprocals that are not flushed.
  Upper<Log2> log2_denominator;
};

/// Each summand, absolute units of the output, times (1 + eps_D)(1 + u_o). Their sum is `total`.
struct OutputError {
  bool defined = false;  ///< false: l_d <= 0 or l^ <= 0, or O or out may overflow: no bound
  Upper<Absolute> total;
  Upper<Absolute> weights;             ///< (vmax - vmin) tanh(ln R / 4)
  Upper<Absolute> flush;               ///< flush in both sums
  Upper<Absolute> rounding;            ///< P rounding against unrounded l, accumulators
  Upper<Absolute> underflow;           ///< P underflow, product and partial flush
  Upper<Absolute> normalise;           ///< division and output format
  Interval lse2 = Interval::entire();  ///< log2 l^ - log2 l, before mu is added
};

/// |out - y| <= total, y the exact softmax average over the multiplied operands.
///
/// **Requires** (claims of their own): no saturation of P, no overflow of l and O, no guard active,
/// a reciprocal that is not flushed (normalise.range); rescale factors in [0, 1], and 1 where they
/// are not counted; visible keys fill the accumulators' tiles from the first on.
/// **Source** DESIGN.md, "The composed bound"; derivation in output_error.cpp.
OutputError output_error(const UpwardRounding& up, const KernelModel& kernel,
                         const OutputErrorInputs& row);

/// Flushed products and partial sums of O as a bound on the output, absolute:
/// count eta (1 + g_O) / l, eta what one event loses. `count` is the number of keys plus the number
/// of rescales; `log2_denominator` bounds log2 of the computed l.
Upper<Absolute> product_flush(const UpwardRounding& up, const KernelModel& kernel,
                              std::int64_t count, Lower<Log2> log2_denominator);

}  // namespace headroom
