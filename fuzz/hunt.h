// The search: batches of candidates from generators, mutations and ascents, the archive, findings.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fuzz/candidate.h"
#include "fuzz/finding.h"
#include "fuzz/target.h"

namespace headroom::fuzz {

/// Where candidates come from: everything, or one of the ways that know nothing of attention.
enum class Strategy : std::uint8_t {
  full,
  uniform_bits,   ///< operands are random bit patterns
  gaussian,       ///< normal operands of a random scale
  byte_mutation,  ///< bytes of earlier candidates flipped, new cells of behaviour kept
};
std::string_view to_text(Strategy strategy);
Strategy parse_strategy(const std::string& text);  ///< throws InputError

struct HuntProgress {
  double seconds = 0;
  std::int64_t runs = 0, cells = 0, findings = 0;
  std::int64_t coverage = 0;  ///< counters of stage_coverage() that were hit
  /// Of each of the hunt's objectives, in its order: the nearest so far, -infinity if none.
  std::vector<double> nearest;
};

struct HuntOptions {
  std::uint64_t seed = 1;
  double seconds = 60;    ///< at most; 0: no limit
  std::int64_t runs = 0;  ///< candidates at most, in whole batches; 0: no limit
  int threads = 0;        ///< 0: the processor's
  bool stop_at_find = false;
  Strategy strategy = Strategy::full;
  std::vector<Candidate> seeds;  ///< tried first
  /// After every batch, on the calling thread; false ends the hunt.
  std::function<bool(const HuntProgress&)> progress;
  /// Called at most every few seconds, and at the end, with what is worth keeping.
  std::function<void(const std::vector<const Candidate*>&)> save;
  std::function<void(const Finding&)> found;  ///< as soon as there is one, before it is shrunk
};

struct HuntResult {
  std::vector<Finding> findings;       ///< one a class, in the order found
  std::vector<std::int64_t> found_at;  ///< run of each
  std::vector<double> seconds_to_find;
  std::int64_t runs = 0;         ///< candidates
  std::int64_t simulations = 0;  ///< of kernels and their twins
  std::int64_t diagnoses = 0, false_alarms = 0, cells = 0, coverage = 0;
  std::vector<double> nearest;  ///< as in HuntProgress
  double seconds = 0;
};

/// What is tried, and found, depends on the hunt, the seed and the number of runs alone, not on
/// threads or time. Throws InputError where the hunt cannot be run at all.
HuntResult hunt(const Hunt& hunt, const HuntOptions& options);

}  // namespace headroom::fuzz
