#include "reference/evaluate/simulate/lanes/simulator.h"

#include <algorithm>

#include "reference/real/fp_environment.h"

namespace headroom {

Simulator::Simulator(AttentionProblem problem, KernelModel kernel,
                     std::unique_ptr<LoopStabilizer> stabilizer, std::span<const std::int64_t> rows,
                     const SimulationOptions& options)
    : problem_(std::move(problem)),
      kernel_(std::move(kernel)),
      stabilizer_(std::move(stabilizer)),
      rows_(rows.begin(), rows.end()) {
  const NearestRounding nearest;
  head_.emplace(problem_, kernel_, options);
  if (!lanes_cover(problem_, kernel_, options)) return;
  lanes_.emplace(*head_, options.set.value_or(best_instruction_set()), true);
  blocks_ = lanes_->blocks(*stabilizer_, rows_);
  std::vector<std::int64_t> in_blocks;
  for (const LaneBlock& block : blocks_) {
    in_blocks.insert(in_blocks.end(), block.rows.begin(), block.rows.end());
  }
  in_order_ = in_blocks == rows_;
  const auto resize = [&](Simulated& results, std::size_t n) {
    results.output.resize(n * static_cast<std::size_t>(problem_.value_channels()));
    results.lse.resize(n);
    results.denominator.resize(n);
    results.shift.resize(n);
    results.recomputed.resize(n);
    results.vectorised = true;
  };
  resize(all_, rows_.size());
  if (in_order_) return;
  resize(block_, in_blocks.size());
  for (const std::int64_t row : rows_) {
    places_.push_back(std::find(in_blocks.begin(), in_blocks.end(), row) - in_blocks.begin());
  }
}

Simulator::~Simulator() = default;

void Simulator::start(const Matrix& q, const Matrix& k, const Matrix& v) {
  problem_.q = q;
  problem_.k = k;
  problem_.v = v;
  head_->reload();
  stabilizer_->init(*head_);
  all_.gate = stabilizer_->gate();
}

const Simulated& Simulator::run(const Matrix& q, const Matrix& k, const Matrix& v) {
  const NearestRounding nearest;
  start(q, k, v);
  return run_loop();
}

/// Requires: start() was called, and NearestRounding is active.
const Simulated& Simulator::run_loop() {
  if (!lanes_) {
    all_ = simulate_plain(*head_, *stabilizer_, rows_, nullptr);
    return all_;
  }
  lanes_->reload();
  work_.fallback.reset();
  Simulated& to = in_order_ ? all_ : block_;
  const auto dv = static_cast<std::size_t>(problem_.value_channels());
  std::size_t first = 0;
  for (const LaneBlock& block : blocks_) {
    lanes_->run(block, *stabilizer_, work_,
                {&to.output[first * dv], &to.lse[first], &to.denominator[first], &to.shift[first],
                 &to.recomputed[first]});
    first += block.rows.size();
  }
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const auto from = static_cast<std::size_t>(places_[i]);
    std::copy_n(&block_.output[from * dv], dv, &all_.output[i * dv]);
    all_.lse[i] = block_.lse[from];
    all_.denominator[i] = block_.denominator[from];
    all_.shift[i] = block_.shift[from];
    all_.recomputed[i] = block_.recomputed[from];
  }
  return all_;
}

const Simulated& Simulator::run(const void* q, const void* k, const void* v) {
  return run(q, k, v, true);
}
const Simulated& Simulator::run_if_accepted(const void* q, const void* k, const void* v) {
  return run(q, k, v, false);
}

const Simulated& Simulator::run(const void* q, const void* k, const void* v, bool refused_too) {
  const auto matrix = [](const Matrix& like, const void* words) {
    return Matrix(nullptr, static_cast<const std::byte*>(words), like.format(), like.rows(),
                  like.columns(), like.columns() * like.format().storage_bytes());
  };
  const NearestRounding nearest;
  start(matrix(problem_.q, q), matrix(problem_.k, k), matrix(problem_.v, v));
  return all_.gate || refused_too ? run_loop() : all_;
}

Simulated simulate_in_parallel(const AttentionProblem& problem, const KernelModel& kernel,
                               const StabilizerFactory& make, std::span<const std::int64_t> rows,
                               const SimulationOptions& options) {
  const NearestRounding nearest;
  const HeadArithmetic head(problem, kernel, options);
  const std::unique_ptr<LoopStabilizer> stabilizer = make();
  stabilizer->init(head);
  if (!lanes_cover(problem, kernel, options)) {
    return simulate_plain(head, *stabilizer, rows, nullptr);
  }
  return simulate_lanes(head, *stabilizer, rows, make);
}

}  // namespace headroom
