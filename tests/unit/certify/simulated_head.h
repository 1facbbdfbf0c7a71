// What a certificate is held against: rows of a modelled kernel, simulated operation by operation,
// and their exact weights in binary128. Nothing here uses bounds/ or certify/ but for the stored mu
// that is to be judged, which is an argument.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reference/head/head.h"
#include "reference/model/operands.h"
#include "tests/unit/bounds/kernel_rows.h"

namespace headroom::simulation {

/// One execution of one row. Exact quantities are over the multiplied operands.
struct SimulatedRow {
  double largest_exponent = -INFINITY;  ///< max of the stored exponents
  double largest_weight = 0;            ///< max of the stored P
  double l = 0;                         ///< the computed denominator
  double o = 0;                         ///< max |O| of the computed numerators
  double log2_mass = 0;                 ///< exact log2 sum 2^(z - mu)
  double lost = 0;                      ///< exact weight of keys whose P is 0 or saturated, over l
  double output_error = 0;              ///< max |out - exact|
  bool finite = true;                   ///< no exponent, weight, sum or output is NaN or infinite
};

/// A stored exponent's exp2, and P with saturation.
inline double saturated_weight(const WeightStage& p, double weight) {
  const double stored = stored_weight(p, weight);
  return p.saturate ? std::fmin(stored, p.format.max_finite()) : stored;
}

/// Requires: keys_certain(), no fused exponent, a factor at the score site that is exact (1).
inline SimulatedRow simulate_row(const Head& head, const KernelModel& kernel,
                                 const Operands& operands, std::int64_t row, double mu, Random& g) {
  const auto d = static_cast<std::size_t>(head.channels());
  const auto dv = static_cast<std::size_t>(head.value_channels());
  const KeyRange visible = head.visibility.visible(row);
  std::vector<double> q(d), key(d), high(d), v(dv);
  operands.query_row(row, q.data());
  const Arithmetic exponent{kernel.exponent.format};
  SimulatedRow result;
  std::vector<double> weights, terms;
  std::vector<std::vector<double>> values(dv);
  Quad mass = 0, lost = 0;
  std::vector<Quad> exact(dv);
  const auto add = [&](double score) {
    const double x = exponent.round(sum_to_odd(score, -mu));
    const double e = simulated_exp2(kernel.exp2, x, g);
    const double p = saturated_weight(kernel.p, e);
    result.largest_exponent = std::fmax(result.largest_exponent, x);
    result.largest_weight = std::fmax(result.largest_weight, p);
    result.finite = result.finite && std::isfinite(x) && std::isfinite(e) && std::isfinite(p);
    weights.push_back(p);
    terms.push_back(kernel.p.denominator_rounded ? p : e);
    return std::pair(e, p);
  };
  for (std::int64_t j = visible.begin; j < visible.end; ++j) {
    operands.key_row(j, key.data(), high.data());
    head.v.load_row(j, v.data());
    const auto [e, p] = add(simulated_score(kernel, q, key, 1, false, g));
    const Quad weight = exp2q(exact_dot(q, key) - static_cast<Quad>(mu));
    mass += weight;
    const bool saturates = kernel.p.saturate && e > kernel.p.format.max_finite();
    if (p == 0 || e == 0 || saturates) lost += weight;
    for (std::size_t c = 0; c < dv; ++c) {
      values[c].push_back(v[c]);
      exact[c] += weight * static_cast<Quad>(v[c]);
    }
  }
  if (kernel.tiles.padding == Padding::zero_keys) {
    const std::int64_t tile = kernel.tiles.keys;
    const std::int64_t padded = (tile - head.visibility.length % tile) % tile;
    for (std::int64_t j = 0; j < padded; ++j) {
      add(0);
      for (std::size_t c = 0; c < dv; ++c) values[c].push_back(0);
    }
  }
  result.l = accumulate(kernel.denominator, terms, std::vector<double>(terms.size(), 1.0), g);
  result.log2_mass = static_cast<double>(log2q(mass));
  result.lost = static_cast<double>(lost / mass);
  result.finite = result.finite && std::isfinite(result.l) && result.l > 0;
  for (std::size_t c = 0; c < dv; ++c) {
    const double o = accumulate(kernel.numerator, weights, values[c], g);
    const double out = simulated_normalise(kernel, o, result.l);
    result.o = std::isnan(o) ? INFINITY : std::fmax(result.o, std::fabs(o));
    result.finite = result.finite && std::isfinite(o) && std::isfinite(out);
    if (kernel.normalise.division == Division::reciprocal &&
        kernel.normalise.reciprocal_flush_to_zero) {
      // a subnormal reciprocal is zero: no row may get there
      result.finite =
          result.finite && 1 / result.l >= std::ldexp(1.0, kernel.denominator.format.emin);
    }
    const Quad error = static_cast<Quad>(out) - exact[c] / mass;
    result.output_error = std::fmax(result.output_error, std::fabs(static_cast<double>(error)));
  }
  return result;
}

}  // namespace headroom::simulation
