// Certified claims of a head held against simulated executions of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "certify/certify.h"
#include "certify/policy_loops.h"
#include "certify/row_scores.h"
#include "reference/evaluate/ladder/ladder.h"
#include "reference/evaluate/simulate/simulate.h"
#include "reference/head/head.h"
#include "reference/model/kernel_model.h"
#include "reference/real/fp_environment.h"
#include "reference/stabilizer/loop/fixed.h"
#include "reference/stabilizer/stabilizer.h"

namespace headroom::simulation {

inline const Claim* find_claim(const std::vector<Claim>& claims, const std::string& id) {
  for (const Claim& c : claims) {
    if (c.id == id && c.reference == "multiplied") return &c;
  }
  return nullptr;
}

/// How much of a claim's value an execution used: 1 is all that was certified.
struct ClaimUse {
  const char* claim;
  double share = 0;  ///< the largest of its rows
  long checks = 0;
};
struct ClaimViolation {
  std::string what;
  double found, expected;
  std::int64_t row;
};

/// Holds the intermediates of one row against exponent.upper, p.range, correction.range and
/// mass.lost. `exact`: the exact scores of the row's visible keys, log2 units, the first visible
/// one first.
template <class Violation>
std::vector<ClaimUse> check_row_claims(const HeadReport& report, const KernelModel& kernel,
                                       std::int64_t row, const SimulationDump& dump,
                                       const std::vector<long double>& exact,
                                       const Violation& violation) {
  std::vector<ClaimUse> uses = {
      {"exponent.upper"}, {"p.range"}, {"correction.range"}, {"mass.lost"}};
  enum : std::size_t { of_exponent, of_weight, of_correction, of_lost };
  const auto hold = [&](std::size_t what, double share) {
    ++uses[what].checks;
    uses[what].share = std::max(uses[what].share, share);
    if (!(share <= 1 + 1e-9)) violation(ClaimViolation{uses[what].claim, share, 1, row});
  };
  const auto upper = [&](const char* id) {
    const Claim* c = find_claim(report.claims, id);
    return c == nullptr || (c->kind == LimitKind::none && c->id != "correction.range")
               ? HUGE_VAL
               : c->value.hi();
  };
  long double top = -HUGE_VALL, mass = 0, lost = 0;
  for (const long double z : exact) top = std::max(top, z);
  for (std::size_t j = 0; j < exact.size(); ++j) {
    const long double weight = exp2l(exact[j] - top);
    mass += weight;
    // margins of exponents and weights are differences of logarithms
    hold(of_exponent, std::exp2(dump.exponents[j] - upper("exponent.upper")));
    const double p = dump.stored_weights[j];
    if (p > 0) hold(of_weight, std::exp2(std::log2(p) - upper("p.range")));
    const bool saturated =
        kernel.p.saturate && dump.weights[j] > p && p >= kernel.p.format.max_finite();
    if (p == 0 || saturated) lost += weight;
  }
  hold(of_lost, static_cast<double>(lost / mass) / (upper("mass.lost") + 1e-300));
  for (const float correction : dump.corrections) {
    if (correction > 0 && upper("correction.range") < HUGE_VAL) {
      hold(of_correction,
           std::exp2(std::log2(static_cast<double>(correction)) - upper("correction.range")));
    }
  }
  return uses;
}

/// Does an execution of the row whose claim fails show the failure? What it finds is NaN or
/// infinite, or lies beyond the limit. Yes for claims that this does not look at.
inline bool shows_failure(const Claim& claim, const KernelModel& kernel, const SimulationDump& dump,
                          float l, const std::vector<long double>& exact) {
  double exponent = -HUGE_VAL, weight = 0, correction = 0;
  long double top = -HUGE_VALL, mass = 0, lost = 0;
  for (const long double z : exact) top = std::max(top, z);
  for (std::size_t j = 0; j < exact.size(); ++j) {
    const long double share = exp2l(exact[j] - top);
    const double p = dump.stored_weights[j];
    if (std::isnan(p)) return true;
    exponent = std::max(exponent, static_cast<double>(dump.exponents[j]));
    weight = std::max(weight, p);
    mass += share;
    const bool saturated =
        kernel.p.saturate && dump.weights[j] > p && p >= kernel.p.format.max_finite();
    if (p == 0 || saturated) lost += share;
  }
  for (const float x : dump.corrections) {
    if (std::isnan(x)) return true;
    correction = std::max(correction, static_cast<double>(x));
  }
  if (std::isnan(l)) return true;
  // of parts that are merged, l is the merge's own sum
  const bool infinite_l = std::any_of(dump.denominators.begin(), dump.denominators.end(),
                                      [](float x) { return std::isinf(x); });
  if (claim.id == "l.range" && infinite_l) return true;
  // the row's own enclosure lies beyond the limit; the claim's is of all rows
  const double least = claim.limit - 1e-9, log2_l = std::log2(static_cast<double>(l));
  if (claim.id == "exponent.upper") return exponent >= least;
  if (claim.id == "p.range") return std::log2(weight) >= least;
  if (claim.id == "correction.range") return std::log2(correction) >= least;
  if (claim.id == "mass.lost") return static_cast<double>(lost / mass) >= least;
  if (claim.id == "l.range") return log2_l >= least;
  if (claim.id == "l.nonzero") return log2_l <= claim.limit + 1e-9;
  return true;
}

/// Holds the rows of a run against l.range, l.nonzero, output.error and lse.error, and against what
/// every certificate says: l > 0 and finite outputs. `exact`: over the operands as multiplied.
/// `violation` is called for each row and claim that fails.
template <class Violation>
std::vector<ClaimUse> check_claims(const HeadReport& report, const KernelModel& kernel,
                                   const Head& head, std::span<const std::int64_t> rows,
                                   const Simulated& run, const EnclosedRows& exact,
                                   const Violation& violation) {
  const auto dv = static_cast<std::size_t>(head.value_channels());
  const auto value = [&](const char* id) -> std::optional<double> {
    const Claim* c = find_claim(report.claims, id);
    return c == nullptr ? std::nullopt : std::optional<double>(c->value.hi());
  };
  const auto output_error = value("output.error"), lse_error = value("lse.error"),
             l_range = value("l.range");
  const Claim* l_nonzero = find_claim(report.claims, "l.nonzero");
  std::vector<ClaimUse> uses = {{"l.range"}, {"l.nonzero"}, {"output.error"}, {"lse.error"}};
  enum : std::size_t { of_l_range, of_l_nonzero, of_output, of_lse };
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::int64_t row = rows[r];
    const auto fail = [&](const std::string& what, double found, double expected) {
      violation(ClaimViolation{what, found, expected, row});
    };
    const auto near = [&](std::size_t what, double share) {
      ++uses[what].checks;
      uses[what].share = std::max(uses[what].share, share);
      if (!(share <= 1 + 1e-9)) fail(uses[what].claim, share, 1);
    };
    if (visible_runs(head, row).empty()) continue;
    const double l = run.denominator[r];
    const bool usable = l > 0 && std::isfinite(l);
    if (!usable) fail("l is " + std::to_string(l), l, 0);
    const double log2_l = usable ? std::log2(l) : std::numeric_limits<double>::quiet_NaN();
    if (l_range && usable) near(of_l_range, std::exp2(log2_l - *l_range));
    if (l_nonzero != nullptr && usable) {
      near(of_l_nonzero, std::exp2(l_nonzero->value.lo() - log2_l));
    }
    for (std::size_t c = 0; c < dv; ++c) {
      const double o = run.output[r * dv + c];
      if (!std::isfinite(o)) {
        fail("output not finite", o, 0);
        continue;
      }
      const double lo = exact.output_lo[r * dv + c], hi = exact.output_hi[r * dv + c];
      const double error = std::max({0.0, lo - o, o - hi});
      if (output_error && error > 0) near(of_output, error / *output_error);
    }
    if (lse_error && kernel.centring.keys != Centring::mean) {
      const double lse = run.lse[r];
      const double error =
          std::max({0.0, exact.lse_lo[r] - lse, lse - exact.lse_hi[r]}) * 1.4426950408889634;
      // the claim is about mu + log2 l as real numbers; delivering it in FP32 costs three
      // roundings of numbers of that size
      const double delivered =
          3 * 0x1p-24 * (std::fabs(run.shift[r]) + std::fabs(log2_l) + std::fabs(lse));
      if (error > delivered) near(of_lse, (error - delivered) / *lse_error);
    }
  }
  return uses;
}

}  // namespace headroom::simulation
