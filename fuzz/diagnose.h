// Did it happen? One candidate, one objective, decided exactly.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fuzz/candidate.h"
#include "fuzz/objective.h"
#include "fuzz/target.h"

namespace headroom::fuzz {

/// What an execution did, held against exact attention and, behind a certificate, its claims.
struct Diagnosis {
  bool met = false;  ///< the objective, exactly
  Objective objective = Objective::non_finite;
  std::string stage;  ///< where it began: the stage of the first event of that row that explains it
  std::string event;  ///< "nan", "infinity", "flush", "saturation", "absorption" or empty
  std::string claim;  ///< of the certifier's claims about this kernel, the one that binds; or empty
  std::int64_t row = -1, channel = -1, key = -1, tile = -1;
  double found = 0;                   ///< what the kernel gave
  double exact_lo = 0, exact_hi = 0;  ///< what it should be lies in between
  double amount = 0;    ///< by how much, in the objective's unit: error, lost share, bits, ...
  double limit = 0;     ///< what amount was held to
  std::string verdict;  ///< of the certifier on this head: "certified", ..., or why there is none
  double gate_value = 0, gate_limit = 0;  ///< of the kernel's gate, where known
  std::vector<float> output, lse;         ///< of all rows, as the kernel gives them
  /// Objectives about two executions: what is different in the other, and what it gave.
  std::string variant;  ///< "split.parts = 3", "tiles.keys = 64", "padding = nan", ...
  double variant_found = 0;
};

/// Runs the kernel with events, the exact reference over the operands as multiplied, and the
/// certifier. The same result for the same arguments, on any machine and number of threads. Never
/// throws for what candidates hold; a candidate that the kernel cannot run is not met, with the
/// reason as `verdict`.
Diagnosis diagnose(const Target& target, const Candidate& candidate, Objective objective);

/// One paragraph: what happened where, with the exact value beside it.
std::string explain(const Target& target, const Candidate& candidate, const Diagnosis& diagnosis);

}  // namespace headroom::fuzz
