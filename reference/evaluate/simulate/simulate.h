// Bit-exact simulation of an attention kernel that a kernel model describes.
//
// The third interpreter of KernelModel, beside the exact one (ladder/) and the bounds. Where a
// model leaves freedom (order inside a tile, answers of an exp2 unit within its promise), options
// choose, and every choice is one that the model allows: a certified claim holds for all of them.
//
// Two implementations give the same bits: `plain.cpp`, a row at a time in doubles, which does
// everything and records events; and `lanes/`, many rows at a time in vectors of FP32.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reference/evaluate/ladder/problem.h"
#include "reference/evaluate/simulate/running_sum.h"
#include "reference/evaluate/simulate/units.h"
#include "reference/evaluate/vector/kernels.h"
#include "reference/model/kernel_model.h"
#include "reference/stabilizer/loop/loop.h"

namespace headroom {

struct SimulationOptions {
  FreeOrder order = FreeOrder::ascending;
  UnitChoice exp2 = UnitChoice::nearest;
  UnitChoice reciprocal = UnitChoice::nearest;
  std::uint64_t seed = 0;     ///< of random choices
  bool events = false;        ///< record events; the plain implementation then runs
  double absorbed = 0x1p-10;  ///< an absorption event: this share of l or of sum p |v| is lost
  bool plain = false;         ///< do not use the vector implementation
  std::optional<InstructionSet> set;  ///< of the vector implementation; default: the widest
};

enum class SimulationStage : std::uint8_t {
  operand,
  score,
  mask,
  shift,
  correction,
  exponent,
  weight,
  p,
  denominator,
  numerator,
  normalise,
  merge,
  lse
};
enum class EventKind : std::uint8_t { nan, infinity, flush, saturation, absorption };
/// The first event of its kind in a row. Tiles count from 0 in the order visited.
struct SimulationEvent {
  std::int64_t row = 0;
  EventKind kind = EventKind::nan;
  SimulationStage stage = SimulationStage::operand;
  std::int64_t tile = -1, key = -1, channel = -1;  ///< -1: not of one tile, key or channel
  /// What went in and what came out. In: the element of an operand, the exact score, x of a weight,
  /// the sum (of a correction: l) or the shift before the tile.
  double before = 0, after = 0;
};

/// Every intermediate of the rows asked for. Arrays over keys are rows x Nk, with NaN where a key
/// was not visited; arrays over tiles are rows x tiles, tile t holding keys t * tiles.keys and on,
/// in the state after that tile.
struct SimulationDump {
  std::int64_t tiles = 0;
  std::vector<float> scores;                             ///< as stored, masked
  std::vector<float> exponents;                          ///< x = z - mu
  std::vector<float> weights;                            ///< E(x)
  std::vector<float> stored_weights;                     ///< P
  std::vector<float> shifts, corrections, denominators;  ///< rows x tiles
  std::vector<float> numerators;                         ///< rows x tiles x dv
};

/// Outputs of the rows asked for. NaN is canonical.
struct Simulated {
  std::vector<float> output;              ///< rows x dv, numbers of normalise.output
  std::vector<float> lse;                 ///< in the kernel's base
  std::vector<float> denominator, shift;  ///< l before the division, the last mu
  std::vector<std::uint8_t> recomputed;   ///< rows that the fallback computed
  std::vector<SimulationEvent> events;    ///< by row, then by kind
  bool gate = true;                       ///< what the stabilizer's own gate said
  bool vectorised = false;                ///< which implementation ran
};

/// Runs the kernel. `rows`: query rows, in any order; a row's result does not depend on which
/// others are asked for (rules that couple rows are run on whole blocks). Throws InputError where
/// the problem and the kernel do not fit (a bias with scores that are scaled after the store, say).
/// Opens its own NearestRounding. `dump` is filled if not nullptr, and then the plain
/// implementation runs.
Simulated simulate(const AttentionProblem& problem, const KernelModel& kernel,
                   LoopStabilizer& stabilizer, std::span<const std::int64_t> rows,
                   const SimulationOptions& options = {}, SimulationDump* dump = nullptr);

/// The weights that a backward pass recomputes from a stored LSE, P = E(z - LSE in the unit of z),
/// for every key of the row's tiles. Keys that pad the last tile (to tiles.keys) have score 0 and
/// are computed like the others, as a kernel without a mask in its backward pass does; `masked`:
/// they are hidden. Returns one weight a tiled key.
std::vector<float> recomputed_weights(const AttentionProblem& problem, const KernelModel& kernel,
                                      std::int64_t row, float lse, bool masked,
                                      const SimulationOptions& options = {});

std::string to_text(EventKind kind);
std::string to_text(SimulationStage stage);

}  // namespace headroom
