#include "reference/evaluate/simulate/simulate.h"

#include "reference/evaluate/simulate/lanes/lanes.h"
#include "reference/evaluate/simulate/plain.h"
#include "reference/real/fp_environment.h"

namespace headroom {

Simulated simulate(const AttentionProblem& problem, const KernelModel& kernel,
                   LoopStabilizer& stabilizer, std::span<const std::int64_t> rows,
                   const SimulationOptions& options, SimulationDump* dump) {
  const NearestRounding nearest;
  const HeadArithmetic head(problem, kernel, options);
  stabilizer.init(head);
  if (dump == nullptr && lanes_cover(problem, kernel, options)) {
    return simulate_lanes(head, stabilizer, rows);
  }
  return simulate_plain(head, stabilizer, rows, dump);
}

std::vector<float> recomputed_weights(const AttentionProblem& problem, const KernelModel& kernel,
                                      std::int64_t row, float lse, bool masked,
                                      const SimulationOptions& options) {
  const NearestRounding nearest;
  const HeadArithmetic head(problem, kernel, options);
  constexpr float ln_2 = 0x1.62e43p-1F, log2_e = 0x1.715476p+0F;
  float shift = lse;
  if (kernel.exponent.base == ExponentBase::two && kernel.lse.base == ExponentBase::e) {
    shift *= log2_e;
  } else if (kernel.exponent.base == ExponentBase::e && kernel.lse.base == ExponentBase::two) {
    shift *= ln_2;
  }
  const std::int64_t width = kernel.tiles.keys;
  const std::int64_t tiled = (head.keys() + width - 1) / width * width;
  std::vector<float> weights(static_cast<std::size_t>(tiled), 0.0F);
  for (std::int64_t j = 0; j < tiled; ++j) {
    const bool padding = j >= head.keys();
    if ((padding && masked) || (!padding && !problem.visible(row, j))) continue;
    const float s = padding ? 0.0F : head.biased(row, j, head.score(row, head.key(j)));
    weights[static_cast<std::size_t>(j)] =
        head.exponential(head.exponent(s, static_cast<float>(head.round_exponent(shift))));
  }
  return weights;
}

std::string to_text(EventKind kind) {
  switch (kind) {
    case EventKind::nan:
      return "nan";
    case EventKind::infinity:
      return "infinity";
    case EventKind::flush:
      return "flush";
    case EventKind::saturation:
      return "saturation";
    case EventKind::absorption:
      return "absorption";
  }
  return "?";
}

std::string to_text(SimulationStage stage) {
  constexpr const char* names[] = {"operand",   "score",  "mask", "shift",       "correction",
                                   "exponent",  "weight", "p",    "denominator", "numerator",
                                   "normalise", "merge",  "lse"};
  return names[static_cast<std::size_t>(stage)];
}

}  // namespace headroom
