// A maximum that may stay behind (policy fa4), followed through the tiles of one row in enclosures.
#pragma once

#include <cstdint>
#include <vector>

#include "certify/head_scan.h"
#include "certify/policy_parameters.h"

namespace headroom {

/// What is subtracted from a row's scores while each tile is worked off, log2 units.
struct LazyFrames {
  std::int64_t tile = 1;     ///< keys a tile
  std::vector<Interval> mu;  ///< of tile 0, 1, ...; the last is the final one. Before the first
                             ///< tile with a visible key: anything
  /// log2 of the largest rescale factor; at most 0 by the rule itself unless `may_fall`.
  Interval correction{0.0};
  const Interval& of_key(std::int64_t key) const {
    return mu[static_cast<std::size_t>(key / tile)];
  }
};

/// Rows whose maxima decide together with this one's.
struct RowRange {
  std::int64_t begin = 0, end = 0;
};
RowRange rows_of_decision(const LazyRescale& lazy, const KernelModel& kernel, std::int64_t queries,
                          std::int64_t row);

/// Tiles in ascending order; the decisions that enclosures leave open enclose both outcomes.
/// `residual` bounds how far rounding can move what is subtracted from m c - offset. Reads every
/// key once for the row, or, where maxima may fall, for each row that decides with it.
/// Requires: at least one visible key; no bias, softcap or sink.
LazyFrames lazy_frames(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                       const Operands& operands, const HeadScan& scan, const LazyRescale& lazy,
                       std::int64_t row, double residual);

/// How far a maximum can stay behind in exact terms: t = RN(RN(m - m') c) >= -threshold, log2
/// units.
double largest_lag(const KernelModel& kernel, const Operands& operands, const LazyRescale& lazy);

}  // namespace headroom
