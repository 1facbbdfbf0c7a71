#include "fuzz/coverage.h"

#include <algorithm>
#include <cmath>

#include "fuzz/gated_loop.h"
#include "reference/evaluate/ladder/ladder.h"
#include "reference/input_error.h"

namespace headroom::fuzz {
namespace {

constexpr std::size_t exponents = 76;              ///< -152 .. 148 in steps of four
constexpr std::size_t values = 2 * exponents + 3;  ///< by sign; zero, infinity and NaN
constexpr std::size_t arrays = 10, stages = 13, kinds = 5;
static_assert(arrays * values + stages * kinds <= coverage_size);

std::size_t value_of(float x) {
  if (std::isnan(x)) return 2 * exponents + 2;
  if (std::isinf(x)) return 2 * exponents + 1;
  if (x == 0) return 2 * exponents;
  const int bucket = std::clamp((std::ilogb(x) + 152) / 4, 0, static_cast<int>(exponents) - 1);
  return static_cast<std::size_t>(bucket) + (x < 0 ? exponents : 0);
}

}  // namespace

std::vector<std::uint16_t> stage_coverage(const Target& target, const Candidate& candidate) {
  std::bitset<coverage_size> hit;
  try {
    const AttentionProblem problem =
        problem_of(candidate, target.kernel.operand, target.scale_of(candidate.shape));
    const auto loop = loop_behind_gate(target, candidate);
    if (loop == nullptr) return {};
    SimulationOptions how = target.how;
    how.events = true;
    SimulationDump dump;
    const Simulated run = simulate(problem, target.kernel, *loop, all_rows(problem), how, &dump);
    const std::vector<float>* all[arrays] = {
        &dump.scores,      &dump.exponents,    &dump.weights,    &dump.stored_weights, &dump.shifts,
        &dump.corrections, &dump.denominators, &dump.numerators, &run.output,          &run.lse};
    for (std::size_t a = 0; a < arrays; ++a) {
      for (const float x : *all[a]) hit.set(a * values + value_of(x));
    }
    for (const SimulationEvent& e : run.events) {
      hit.set(arrays * values + static_cast<std::size_t>(e.stage) * kinds +
              static_cast<std::size_t>(e.kind));
    }
  } catch (const InputError&) {
    return {};
  }
  std::vector<std::uint16_t> hits;
  for (std::size_t i = 0; i < coverage_size; ++i) {
    if (hit.test(i)) hits.push_back(static_cast<std::uint16_t>(i));
  }
  return hits;
}

}  // namespace headroom::fuzz
