// The vector simulation: 16 query rows at a time in FP32, the same bits as plain.h on what it
// covers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "reference/evaluate/simulate/head_arithmetic.h"
#include "reference/evaluate/simulate/lanes/lane_sum.h"
#include "reference/evaluate/simulate/plain.h"

namespace headroom {

/// Does the vector simulation do this? Not: events and dumps, biases, softcap, normalisation after
/// every tile, pairwise sums, more than 64 lanes of a sum, free orders other than ascending where
/// the model leaves an order; of matrix units, weights that are added by one, more than 32 products
/// a step, sums that 32 bits do not hold (MatrixUnit), products of more than 24 bits.
bool lanes_cover(const AttentionProblem& problem, const KernelModel& kernel,
                 const SimulationOptions& options);

/// Rows of one query block that run together, and what they visit; independent of operands.
struct LaneBlock {
  std::vector<std::int64_t> rows;                ///< ascending
  std::vector<KeyRange> ranges;                  ///< of each row
  std::int64_t all_begin = 0, all_end = 0;       ///< keys that are in every row's range
  std::vector<std::vector<std::int64_t>> tiles;  ///< of each part, ascending
};

/// What a thread needs to run blocks: memory that is kept from block to block.
struct LaneWorkspace {
  LaneArray queries, scores, exponentials, weights;
  LaneArray shift, correction, inverse, divisor, sink;
  std::vector<UnsettledWeight> unsettled;
  std::vector<double> logarithms;
  std::vector<std::uint8_t> again, visible, recompute;
  LaneSum denominator, numerator;
  std::vector<std::int64_t> tiles;
  std::vector<std::vector<PartResult>> parts;
  std::unique_ptr<LoopStabilizer> fallback;  ///< made when a row is first given up
  std::unique_ptr<LaneWorkspace> second;     ///< for the fallback
};

/// Where a block's results go: one element a row of the block, output rows x dv.
struct LaneResults {
  float *output, *lse, *denominator, *shift;
  std::uint8_t* recomputed;
};

/// One head, prepared. The const members may be called from several threads, each with a workspace
/// and a stabilizer (that init(head) has been called of) of its own. Requires: lanes_cover;
/// NearestRounding is active in every member; the head outlives this.
class LaneSimulation {
 public:
  /// `often`: what costs as much as 65,536 exponentials is worth while.
  LaneSimulation(const HeadArithmetic& head, InstructionSet set, bool often);
  /// Reads V anew, after head.reload(). Workspaces must forget their fallback.
  void reload();

  std::vector<LaneBlock> blocks(const LoopStabilizer& stabilizer,
                                std::span<const std::int64_t> rows) const;
  void run(const LaneBlock& block, LoopStabilizer& stabilizer, LaneWorkspace& work,
           const LaneResults& results) const;

 private:
  void run_block(const LaneBlock& block, LoopStabilizer& stabilizer, LaneWorkspace& work,
                 const LaneResults& results) const;
  void run_part(const LaneBlock& block, std::int64_t part, LoopStabilizer& stabilizer,
                LaneWorkspace& work) const;
  const float* weigh(std::int64_t n, std::int64_t stride, LaneWorkspace& work) const;
  void finish(const LaneBlock& block, std::int64_t part, const LoopStabilizer& stabilizer,
              LaneWorkspace& work, float* output, const LaneResults& results) const;
  void log_sums(std::int64_t rows, float offset, LaneWorkspace& work,
                const LaneResults& results) const;
  void load_queries(const LaneBlock& block, std::int64_t stride, LaneArray& queries) const;
  void mask(const LaneBlock& block, std::int64_t begin, std::int64_t n, std::int64_t stride,
            LaneWorkspace& work) const;
  void reciprocals(LaneWorkspace& work) const;

  const HeadArithmetic& head_;
  const KernelModel& kernel_;
  const LaneKernels& loops_;
  LaneStageChoice score_, denominator_, numerator_;
  std::vector<ScoreChain> chains_;
  ScoreArgs score_args_;
  ExponentArgs exponent_args_;
  Narrowing weight_, output_, reciprocal_;
  bool one_pass_ = false;  ///< LaneKernels::weights does it, rounding to:
  Narrowing one_pass_weight_;
  std::vector<float> table_;  ///< E of every 16-bit exponent, by its code; or empty
  float hidden_ = 0;          ///< what selection leaves in a hidden score
  float least_term_ = 0;      ///< smaller terms of l are read as zeros
  float least_weight_ = 0;    ///< the same of P as multiplied
  LaneArray values_;          ///< V, rows up to the last tile's end
};

/// simulate() for a prepared head. `make` gives stabilizers like the given one, if blocks may run
/// in parallel; else empty.
Simulated simulate_lanes(const HeadArithmetic& head, LoopStabilizer& stabilizer,
                         std::span<const std::int64_t> rows,
                         const std::function<std::unique_ptr<LoopStabilizer>()>& make = {});

}  // namespace headroom
