// Upper bound of a row's largest score: a ball around each block of consecutive keys.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/head/visibility.h"
#include "reference/model/operands.h"
#include "reference/real/bound.h"

namespace headroom {

/// Balls that hold the keys, block by block. Memory: d + 1 numbers a block.
class KeyBlocks {
 public:
  static constexpr std::int64_t default_size = 64;

  /// Keys [0, end) of the operands in blocks of `size`; reads each once. Centres are the blocks'
  /// means, rounded (any centre gives a true radius); radii are rounded upward.
  /// Requires: 0 <= end <= operands.keys(), size >= 1.
  KeyBlocks(const UpwardRounding& up, const Operands& operands, std::int64_t end,
            std::int64_t size = default_size);

  std::int64_t count() const { return static_cast<std::int64_t>(radii_.size()); }
  std::int64_t size() const { return size_; }
  /// Requires: 0 <= block < count().
  std::span<const double> centre(std::int64_t block) const;
  /// ||k_j - centre(block)|| <= radius(block) for every key of the block.
  Upper<Absolute> radius(std::int64_t block) const {
    return radii_[static_cast<std::size_t>(block)];
  }
  /// Blocks that hold one of the keys, as [begin, end).
  KeyRange blocks_of(const KeyRange& keys) const;

 private:
  void close(const UpwardRounding& up, std::span<const double> lo, std::span<const double> hi);

  std::int64_t size_;
  std::size_t channels_;
  std::vector<double> centres_;
  std::vector<Upper<Absolute>> radii_;
};

/// Block ball. With a_b, r_b centre and radius of block b: for every visible key
/// factor <q, k_j> <= max_b (factor <q, a_b> + |factor| ||q|| r_b) over the blocks that hold a
/// visible key, log2 units. -infinity if none is visible. Tight where near keys are alike, as
/// those of one image region or one phrase; with blocks of one key it is the exact maximum.
/// Cost: d interval operations a block.
/// **Requires** visible keys among those of the blocks, `q_norm` >= ||q||.
/// **Source** Cauchy-Schwarz within each block.
Upper<Log2> block_ball_maximum(const UpwardRounding& up, const Interval& factor,
                               std::span<const double> q, Upper<Absolute> q_norm,
                               const KeyBlocks& blocks, const KeyRange& visible);

}  // namespace headroom
