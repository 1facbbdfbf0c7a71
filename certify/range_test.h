// FlashDecoding++'s range test (policy fdpp): which rows keep the fixed shift, and which are
// recomputed online.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "certify/policy.h"
#include "certify/policy_parameters.h"

namespace headroom {

/// What a test of each row says of it, over every execution that the model allows.
enum class RowPath : std::uint8_t {
  fixed,   ///< every stored exponent lies in the range: the row stays
  either,  ///< undecided
  online,  ///< some stored exponent does not: the row is recomputed
};
struct RowPaths {
  std::vector<RowPath> of;  ///< one a query row; rows without visible keys are `fixed`
  std::int64_t fixed = 0, either = 0, online = 0;  ///< rows with visible keys
  /// Largest distance of an exponent beyond the nearer end of the range, log2 units: the head's
  /// rows all stay iff it is below 0. Infinite ends where no row of that kind was decided.
  Interval excess{0.0};
  std::int64_t row = -1;  ///< where it is largest
  std::int64_t rows_evaluated = 0;
};

/// Bounds first (Cauchy-Schwarz about the scan's centre; the mean score refuses), then every score
/// of at most `rows` rows and `scores` scores, in the order of rows. Requires: scan.finite.
RowPaths row_paths(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                   const Operands& operands, const HeadScan& scan, const RangeTest& test,
                   std::int64_t rows, std::int64_t scores);

/// The shift as a fixed stabilizer, for rows that stay: every stored exponent lies in the range, by
/// the test itself. C is the upper end.
std::unique_ptr<FixedStabilizer> make_range_tested(const UpwardRounding& up,
                                                   const KernelModel& kernel,
                                                   const Operands& operands, const HeadScan& scan,
                                                   const RangeTest& test);

}  // namespace headroom
