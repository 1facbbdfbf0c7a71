#include "certify/policy_loops.h"

#include <cmath>

#include "reference/model/operands.h"
#include "reference/real/fp_environment.h"
#include "reference/stabilizer/loop/fixed.h"
#include "reference/stabilizer/stabilizer.h"

namespace headroom {
namespace {

/// Of policies that leave numbers open: with the report's parameters.
std::vector<std::unique_ptr<LoopStabilizer>> ruled_loops(const HeadReport& report) {
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

}  // namespace

std::vector<std::unique_ptr<LoopStabilizer>> certified_loops(const HeadReport& report,
                                                             const Head& head,
                                                             const KernelModel& kernel,
                                                             bool own_rule) {
  std::vector<std::unique_ptr<LoopStabilizer>> list;
  if (report.stabilizer == "fdpp" || report.stabilizer == "fa4") {
    return ruled_loops(report);
  }
  if (report.stabilizer == "online") {
    // mu is the maximum, stored
    const auto holds = [&](const Format& f) {
      const Format& store = kernel.stabilizer.store;
      return store.precision >= f.precision && store.emax >= f.emax &&
             store.least_exponent() <= f.least_exponent();
    };
    const bool holds_all = holds(kernel.score.store) && holds(kernel.exponent.format);
    const auto guard = report.parameters.find("guard");
    if (guard != report.parameters.end() && guard->second == 0) {
      if (holds_all) list.push_back(make_loop_stabilizer("online-scaled", {{"guard", 0}}));
      return list;
    }
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
    if (holds_all) {
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

}  // namespace headroom
