// One kernel run over many heads of one shape: everything but the operands is prepared once.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "reference/evaluate/simulate/lanes/lanes.h"
#include "reference/evaluate/simulate/simulate.h"

namespace headroom {

class Simulator {
 public:
  /// `problem` is the first head and gives all others their shapes, formats, scale, masks and sink.
  /// `rows`: those to compute. Throws InputError as simulate() does.
  Simulator(AttentionProblem problem, KernelModel kernel,
            std::unique_ptr<LoopStabilizer> stabilizer, std::span<const std::int64_t> rows,
            const SimulationOptions& options = {});
  ~Simulator();
  Simulator(const Simulator&) = delete;
  Simulator& operator=(const Simulator&) = delete;

  /// simulate() of the head with these operands, whose storage is read in the call only. Requires:
  /// the first head's shapes and formats. The result is valid until the next call. Allocates
  /// nothing after the first call, where the vector implementation covers the kernel, no range is
  /// split, no row is recomputed, and the stabilizer allocates nothing.
  const Simulated& run(const Matrix& q, const Matrix& k, const Matrix& v);
  /// The same with operands as words of their formats, row-major without gaps.
  const Simulated& run(const void* q, const void* k, const void* v);
  /// run(), but for heads that the stabilizer's gate refuses: of their result `gate` alone is set.
  const Simulated& run_if_accepted(const void* q, const void* k, const void* v);

 private:
  const Simulated& run(const void* q, const void* k, const void* v, bool refused_too);
  void start(const Matrix& q, const Matrix& k, const Matrix& v);
  const Simulated& run_loop();

  AttentionProblem problem_;
  KernelModel kernel_;
  std::unique_ptr<LoopStabilizer> stabilizer_;
  std::vector<std::int64_t> rows_;
  std::optional<HeadArithmetic> head_;
  std::optional<LaneSimulation> lanes_;  ///< empty: the plain implementation runs
  std::vector<LaneBlock> blocks_;
  std::vector<std::int64_t> places_;  ///< of the blocks' rows in rows_, -1: nobody asked
  bool in_order_ = false;             ///< the blocks' rows are rows_
  LaneWorkspace work_;
  Simulated all_, block_;
};

/// Makes stabilizers of one kind and setting.
using StabilizerFactory = std::function<std::unique_ptr<LoopStabilizer>()>;

/// simulate() with query blocks in parallel on the threads of the enclosing TBB arena, each with a
/// stabilizer of its own. The same bits whatever their number. What the vector implementation does
/// not cover runs on one thread.
Simulated simulate_in_parallel(const AttentionProblem& problem, const KernelModel& kernel,
                               const StabilizerFactory& make, std::span<const std::int64_t> rows,
                               const SimulationOptions& options = {});

}  // namespace headroom
