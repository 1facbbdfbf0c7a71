#include "fuzz/gated_loop.h"

#include <cmath>

#include "certify/clis_table.h"

namespace headroom::fuzz {
namespace {

/// What a policy's certificate is about.
std::pair<std::string, LoopParameters> policy_loop(const Target& target) {
  const CertifyOptions options = target.certify_options();
  switch (target.policy) {
    case Policy::online:
      return {"online-scaled", {}};
    case Policy::fa4: {
      LoopParameters lag;
      for (const char* name : {"threshold", "offset"}) {
        const auto given = options.parameters.find(name);
        if (given != options.parameters.end()) lag[name] = given->second;
      }
      return {"fa4-row", lag};
    }
    case Policy::fdpp:
      return {"fdpp", {options.parameters.begin(), options.parameters.end()}};
    default:
      return {std::string(to_text(target.policy)), {{"last_online", 0}}};
  }
}

}  // namespace

bool takes_table(const Target& target) {
  return target.gate == GateChoice::certified && target.policy == Policy::clis;
}

std::unique_ptr<LoopStabilizer> loop_of(const Target& target) {
  if (target.gate == GateChoice::certified) {
    const auto [name, parameters] = policy_loop(target);
    return make_loop_stabilizer(name, parameters);
  }
  return make_loop_stabilizer(target.stabilizer, target.parameters);
}

std::unique_ptr<LoopStabilizer> loop_behind_gate(const Target& target, const Candidate& candidate) {
  if (!takes_table(target)) return loop_of(target);
  const CertifiedTable table =
      certified_table(head_of(candidate, target.kernel.operand, target.scale_of(candidate.shape)),
                      target.kernel, target.eps);
  if (!table.accepts || !std::isfinite(table.kappa)) return nullptr;
  return make_loop_stabilizer("clis",
                              {{"cap", table.cap}, {"kappa", table.kappa}, {"last_online", 0}});
}

}  // namespace headroom::fuzz
