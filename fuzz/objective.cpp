#include "fuzz/objective.h"

#include <fmt/format.h>

#include "reference/input_error.h"

namespace headroom::fuzz {
namespace {

struct Description {
  std::string_view name, summary;
};
constexpr std::array<Description, objective_count> descriptions = {{
    {"non-finite", "an output or LSE is NaN or infinite where the exact one rounds to a number"},
    {"zero-row", "all outputs of a row are 0, and one should be larger than any rounding explains"},
    {"inaccurate", "an output is off by more than the tolerance times the largest visible |v|"},
    {"lost-mass", "keys whose stored weight is 0 hold more than eps of a row's exact mass"},
    {"saturation", "a weight was clipped to the largest number of P's format"},
    {"absorption", "an accumulator lost more than the tolerance of a row to swallowed terms"},
    {"wrong-lse", "LSE is off by more than the tolerance, natural units, and its own rounding"},
    {"partition", "a row changes by more than the tolerance when its keys are split into parts"},
    {"tiling", "a row changes by more than the tolerance with other numbers of keys a tile"},
    {"padding", "numbers of keys that no row sees change an output"},
    {"backward", "a weight recomputed from LSE, as in a backward pass, is NaN or infinite"},
    {"gate-underestimate", "the gate accepts what it would refuse in exact arithmetic"},
    {"needless-fallback", "the gate refuses a head that its fixed path computes accurately"},
    {"swallowed-nan", "a row whose query or a visible key holds NaN has outputs that are numbers"},
    {"claim", "an execution contradicts a claim of the head's certificate"},
}};

}  // namespace

std::string_view to_text(Objective objective) {
  return descriptions[static_cast<std::size_t>(objective)].name;
}

std::string_view summary(Objective objective) {
  return descriptions[static_cast<std::size_t>(objective)].summary;
}

std::array<Objective, objective_count> all_objectives() {
  std::array<Objective, objective_count> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Objective>(i);
  return all;
}

Objective parse_objective(const std::string& text) {
  std::string known;
  for (const Objective o : all_objectives()) {
    if (to_text(o) == text) return o;
    known += (known.empty() ? "" : ", ") + std::string(to_text(o));
  }
  throw InputError(fmt::format("objective: found '{}', expected one of {}", text, known));
}

}  // namespace headroom::fuzz
