#include "cli/free_choices.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "cli/table.h"
#include "reference/input_error.h"

namespace headroom::cli {
namespace {

template <class T>
T choice_of(const std::string& option, const std::string& text,
            const std::vector<std::pair<std::string, T>>& choices) {
  std::string known;
  for (const auto& [name, value] : choices) {
    if (name == text) return value;
    known += (known.empty() ? "" : ", ") + name;
  }
  throw InputError(
      fmt::format("{}: found '{}', expected one of {}", option, printable(text), known));
}

UnitChoice unit_choice(const std::string& option, const std::string& text) {
  return choice_of<UnitChoice>(option, text,
                               {{"nearest", UnitChoice::nearest},
                                {"lowest", UnitChoice::lowest},
                                {"highest", UnitChoice::highest},
                                {"random", UnitChoice::random}});
}

}  // namespace

void add_free_choices(CLI::App& command, FreeChoices& choices) {
  command
      .add_option("--order", choices.order,
                  "Where the kernel's order is free: ascending, descending, pairwise or random")
      ->capture_default_str();
  command
      .add_option("--exp2-choice", choices.exp2,
                  "Which result a unit that promises an error bound gives: nearest, lowest, "
                  "highest or random")
      ->capture_default_str();
  command.add_option("--reciprocal-choice", choices.reciprocal, "The same for 1 / l")
      ->capture_default_str();
}

SimulationOptions simulation_options(const FreeChoices& choices, std::uint64_t seed) {
  SimulationOptions options;
  options.order = choice_of<FreeOrder>("--order", choices.order,
                                       {{"ascending", FreeOrder::ascending},
                                        {"descending", FreeOrder::descending},
                                        {"pairwise", FreeOrder::pairwise},
                                        {"random", FreeOrder::random}});
  options.exp2 = unit_choice("--exp2-choice", choices.exp2);
  options.reciprocal = unit_choice("--reciprocal-choice", choices.reciprocal);
  options.seed = seed;
  return options;
}

}  // namespace headroom::cli
