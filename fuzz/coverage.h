// Which numbers and events a kernel went through, stage by stage, as counters.
#pragma once

#include <bitset>
#include <cstdint>
#include <vector>

#include "fuzz/candidate.h"
#include "fuzz/target.h"

namespace headroom::fuzz {

/// Counters that one execution hits: for every intermediate (scores, exponents, weights before and
/// after their rounding, shifts, corrections, l, O, outputs, LSE) the sign and the exponent in
/// steps of four, zeros, infinities and NaN; and for every stage the kinds of events. Ascending,
/// each below `coverage_size`. Runs the plain simulation: far more than Executor::run costs. Empty
/// where the kernel cannot run the candidate.
inline constexpr std::size_t coverage_size = 2048;
std::vector<std::uint16_t> stage_coverage(const Target& target, const Candidate& candidate);

/// What a whole hunt has covered.
class Coverage {
 public:
  /// How many of these counters were not hit before.
  std::int64_t add(const std::vector<std::uint16_t>& hits) {
    std::int64_t fresh = 0;
    for (const std::uint16_t hit : hits) {
      fresh += hit_.test(hit) ? 0 : 1;
      hit_.set(hit);
    }
    return fresh;
  }
  std::int64_t count() const { return static_cast<std::int64_t>(hit_.count()); }

 private:
  std::bitset<coverage_size> hit_;
};

}  // namespace headroom::fuzz
