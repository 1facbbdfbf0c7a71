// One row of a modelled attention kernel, simulated step by step, and its exact softmax in
// binary128: what output_error and score_error are tested against.
#pragma once

#include <quadmath.h>

#include "bounds/exp2_unit.h"
#include "tests/unit/bounds/simulation.h"

namespace headroom::simulation {

__extension__ using Quad = __float128;

/// Operands as multiplied, n keys of d channels.
struct RowOperands {
  std::vector<double> q;
  std::vector<std::vector<double>> k;
  std::vector<double> v;
};

inline Quad exact_dot(const std::vector<double>& a, const std::vector<double>& b) {
  Quad s = 0;  // products and sums of few-bit numbers within 2^60 of each other: exact
  for (std::size_t i = 0; i < a.size(); ++i) s += static_cast<Quad>(a[i]) * b[i];
  return s;
}

/// The score as stored, log2 units.
inline double simulated_score(const KernelModel& kernel, const std::vector<double>& q,
                              const std::vector<double>& key, double stored_factor, bool multiplies,
                              Random& g) {
  const ScoreStage& score = kernel.score;
  const bool flush = score.accumulator.flush_to_zero;
  const Arithmetic own{score.accumulator.format, flush}, store{score.store, flush},
      exponent{kernel.exponent.format, flush};
  double s = accumulate(score.accumulator, q, key, g);
  if (score.scale_before_store) {
    if (multiplies) s = own.multiply(s, stored_factor);
    return store.round(s);
  }
  s = store.round(s);
  if (!multiplies) return s;
  return kernel.exponent.fused ? s * stored_factor : exponent.multiply(s, stored_factor);
}

/// A result that the exp2 unit may give: correctly rounded (from binary128), or up to
/// max_error_ulps - 1/2 steps beside it.
inline double simulated_exp2(const Exp2Unit& unit, double x, Random& g) {
  if (x < unit.result.least_exponent() - 2) return 0;
  const Quad exact = exp2q(static_cast<Quad>(x));
  double r = static_cast<double>(exact);
  // To odd, as in sum_to_odd.
  if (static_cast<Quad>(r) != exact && (std::bit_cast<std::uint64_t>(r) & 1) == 0) {
    r = std::bit_cast<double>(std::bit_cast<std::uint64_t>(r) +
                              (exact > static_cast<Quad>(r) ? 1 : -1));
  }
  double result = Arithmetic{unit.result}.round(r);
  const int steps = static_cast<int>(std::floor(unit.max_error_ulps - 0.5));
  if (steps > 0 && x != 0) {
    const int by = static_cast<int>(below(g, static_cast<std::size_t>(2 * steps + 1))) - steps;
    const int e = std::max(result > 0 ? std::ilogb(result) : unit.result.emin, unit.result.emin);
    result = std::fmax(0, result + by * std::ldexp(1.0, e - unit.result.precision));
    result = Arithmetic{unit.result}.round(result);
  }
  if (unit.flush_to_zero && result < std::ldexp(1.0, unit.result.emin)) result = 0;
  return result;
}

inline double simulated_normalise(const KernelModel& kernel, double o, double l) {
  const Format& format = kernel.numerator.format.precision < kernel.denominator.format.precision
                             ? kernel.numerator.format
                             : kernel.denominator.format;
  const bool flush = kernel.numerator.flush_to_zero;
  const Arithmetic arithmetic{format, flush};
  double out;
  if (kernel.normalise.division == Division::reciprocal) {
    const Arithmetic reciprocal{format, kernel.normalise.reciprocal_flush_to_zero};
    out = arithmetic.multiply(o, reciprocal.round(1.0 / l));  // 53 bits to 24: 1/l is no midpoint
  } else {
    out = arithmetic.round(o / l);
  }
  return Arithmetic{kernel.normalise.output, flush}.round(out);
}

/// P as stored.
inline double stored_weight(const WeightStage& p, double weight) {
  return Arithmetic{p.format, p.flush_to_zero}.round(weight);
}

}  // namespace headroom::simulation
