// What lets a head through, as text and as options of the certifier.
#include <fmt/format.h>

#include "fuzz/target.h"
#include "reference/input_error.h"

namespace headroom::fuzz {

std::string_view to_text(GateChoice gate) {
  switch (gate) {
    case GateChoice::none:
      return "none";
    case GateChoice::own:
      return "own";
    case GateChoice::certified:
      return "certified";
  }
  return "?";
}

GateChoice parse_gate(const std::string& text) {
  for (const GateChoice gate : {GateChoice::none, GateChoice::own, GateChoice::certified}) {
    if (to_text(gate) == text) return gate;
  }
  throw InputError(fmt::format("gate: found '{}', expected one of none, own, certified", text));
}

CertifyOptions Target::certify_options() const {
  CertifyOptions options;
  options.policy = policy;
  options.parameters = policy_parameters;
  options.eps = eps;
  return options;
}

}  // namespace headroom::fuzz
