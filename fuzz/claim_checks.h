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

/// The same for policies that leave numbers open: with the report's parameters.
inline std::vector<std::unique_ptr<LoopStabilizer>> ruled_loops(const HeadReport& report) {
  std::vector<std::unique_ptr<LoopStabilizer>> list;
  const PolicyParameters& p = report.parameters;
  if (report.stabilizer == "fdpp") {
    list.push_back(make_loop_stabilizer("fdpp", {p.begin(), p.end()}));
    if (std::isinf(p.at("a")) && std::isinf(p.at("b"))) {
      list.push_back(make_loop_stabilizer("fdpp-untested", {{"phi", p.at("phi")}}));
    }
    return list;
  }
  const double wave = p.at("wave"), running = p.at("running_max");
  const LoopParameters lag = {{"threshold", p.at("threshold")}, {"offset", p.at("offset")}};
  if (wave == 1) {
    list.push_back(make_loop_stabilizer("fa4-row", lag));
    list.push_back(make_loop_stabilizer("fa4-tile2", lag));
  }
  if (wave == 0 && running != 0) list.push_back(make_loop_stabilizer("fa4-tile1", lag));
  if (p.at("offset") == 0 && p.at("threshold") > 0) {
    list.push_back(make_loop_stabilizer(
        "lazy-wave", {{"wave", wave}, {"threshold", p.at("threshold")}, {"running_max", running}}));
  }
  return list;
}

/// The loops whose every execution a report is about. `own_rule`: a fixed mu is computed by the
/// loop's own rule, as `headroom simulate` does it, else by the stabilizer that the certifier
/// encloses.
inline std::vector<std::unique_ptr<LoopStabilizer>> certified_loops(const HeadReport& report,
                                                                    const Head& head,
                                                                    const KernelModel& kernel,
                                                                    bool own_rule) {
  std::vector<std::unique_ptr<LoopStabilizer>> list;
  if (report.stabilizer == "fdpp" || report.stabilizer == "fa4") {
    return ruled_loops(report);
  }
  if (report.stabilizer == "online") {
    const auto start = report.parameters.find("initial_max");
    if (start != report.parameters.end() && std::isfinite(start->second)) {
      // in the unit of stored scores: rules of raw maxima, or scores that are stored scaled
      const LoopParameters from = {{"initial_max", start->second}};
      if (kernel.score.scale_before_store && kernel.stabilizer.store == fp32) {
        list.push_back(make_loop_stabilizer("online-scaled", from));
      } else if (kernel.exponent.fused && kernel.exponent.format == fp32 &&
                 kernel.stabilizer.store == fp32) {
        list.push_back(make_loop_stabilizer("online-fa2", from));
      }
      return list;
    }
    // mu is the maximum, stored
    const auto holds = [&](const Format& f) {
      const Format& store = kernel.stabilizer.store;
      return store.precision >= f.precision && store.emax >= f.emax &&
             store.least_exponent() <= f.least_exponent();
    };
    if (holds(kernel.score.store) && holds(kernel.exponent.format)) {
      list.push_back(make_loop_stabilizer("online-scaled"));
    } else {
      // from a finite start on: this rule has no guard for rows that see nothing yet
      list.push_back(
          make_loop_stabilizer("online-rpa", {{"narrow_correction", 0}, {"initial_max", -1e30}}));
    }
    // what they subtract is a number of the exponent's format, the policy's mu one of the store
    if (kernel.stabilizer.store == fp32 && kernel.exponent.fused &&
        kernel.exponent.format == fp32) {
      list.push_back(make_loop_stabilizer("online-fa2"));
      // the policy has no offset for FP8 weights
      list.push_back(make_loop_stabilizer("online-fa3", {{"offset", 0}}));
    }
    return list;
  }
  const bool clis = report.stabilizer == "clis";
  if (own_rule) {
    LoopParameters given = {{"last_online", 0}};  // no certified rule has an online last tile
    if (clis) given.insert({{"cap", report.cap}, {"kappa", report.kappa}});
    list.push_back(make_loop_stabilizer(report.stabilizer, given));
    return list;
  }
  StabilizerParameters parameters;
  if (clis) parameters.clis = ClisTable{report.cap, report.kappa, 0, HUGE_VAL};
  const UpwardRounding up;
  const Operands operands(up, head, kernel);
  const auto rule = make_stabilizer(report.stabilizer, head, kernel, operands, parameters);
  std::vector<float> mus;
  for (std::int64_t i = 0; i < head.queries(); ++i) {
    mus.push_back(static_cast<float>(rule->mu(i)));
  }
  list.push_back(make_fixed_loop(report.stabilizer, mus, true));
  return list;
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
