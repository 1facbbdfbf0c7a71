// A sum of the KV loop for many rows: RunningSum (running_sum.h) in vectors, ascending order.
#pragma once

#include <cstdint>
#include <vector>

#include <oneapi/tbb/cache_aligned_allocator.h>

#include "reference/evaluate/simulate/lanes/lane_kernels.h"
#include "reference/model/kernel_model.h"
#include "reference/real/fp_environment.h"

namespace headroom {

/// Starts on a cache line.
using LaneArray = std::vector<float, oneapi::tbb::cache_aligned_allocator<float>>;

/// MXCSR for one stage: FTZ where it is FP32 and flushes, else as it is. (No optional MxcsrScope:
/// GCC 12 takes its number for uninitialised under sanitizers.)
class StageScope {
 public:
  explicit StageScope(bool flush) : flush_(flush), saved_(flush ? _mm_getcsr() : 0) {
    if (flush_) _mm_setcsr(mxcsr_nearest | flush_to_zero);
  }
  ~StageScope() {
    if (flush_) _mm_setcsr(saved_);
  }
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

 private:
  static constexpr std::uint32_t flush_to_zero = 0x8000;
  bool flush_;
  std::uint32_t saved_;
};

/// One accumulator's loops and what calls of them need.
struct LaneStageChoice {
  LaneStageChoice() = default;
  LaneStageChoice(const LaneKernels& kernels, const Accumulator& accumulator, Products products);
  const StageLoops* loops = nullptr;
  bool flush_scope = false;  ///< StageScope's argument
  /// Of a matrix unit whose sums `matrix_products` makes in place of loops->products.
  MatrixUnit unit;
  void (*matrix_products)(const MatrixUnit& unit, const ProductArgs& args) = nullptr;
};

/// Sums [channels][stride] whose terms all rows add in the same places of their orders.
class LaneSum {
 public:
  /// Nothing added yet. Memory is kept from before.
  void start(const LaneStageChoice& stage, const AccumulationOrder& order, std::int64_t channels,
             std::int64_t stride, float initial);
  /// Multiplies every partial sum by factor[r], unless that is 1.
  void scale(const float* factor);
  /// Adds p[j][r] v[j][c], j < n.
  void add(const float* p, const float* v, std::int64_t v_stride, std::int64_t n);
  /// The same with v = 1 for one channel; terms below `least` in magnitude are zeros.
  void add(const float* p, std::int64_t n, float least);
  /// Writes the sums so far, [channels][stride].
  void total(float* sums) const;

 private:
  template <typename Add>
  void in_order(std::int64_t n, const Add& add);
  std::int64_t size() const { return channels_ * stride_; }

  LaneStageChoice stage_;
  AccumulationOrder order_;
  std::int64_t channels_ = 0, stride_ = 0;
  LaneArray run_;
  LaneArray tile_;   ///< of the tile that is not complete
  LaneArray empty_;  ///< [stride]: a tile without terms: 0, but for the sign and NaN of factors
  std::int64_t in_tile_ = 0;
  LaneArray lanes_;  ///< [lanes][channels][stride]
  std::int64_t next_lane_ = 0;
  bool started_ = false;  ///< lanes_ holds the sum instead of run_
};

}  // namespace headroom
