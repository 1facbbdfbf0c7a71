// What a simulated kernel does where its model leaves a choice.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "reference/evaluate/simulate/simulate.h"

namespace headroom::cli {

/// The text of --order, --exp2-choice and --reciprocal-choice.
struct FreeChoices {
  std::string order = "ascending", exp2 = "nearest", reciprocal = "nearest";
};
void add_free_choices(CLI::App& command, FreeChoices& choices);
/// `seed`: of random choices. Throws InputError that names the option and lists its values.
SimulationOptions simulation_options(const FreeChoices& choices, std::uint64_t seed);

}  // namespace headroom::cli
