// The loop that a target runs on one head.
#pragma once

#include <memory>

#include "fuzz/candidate.h"
#include "fuzz/target.h"

namespace headroom::fuzz {

/// The stabilizer of a target, or that of its policy, with the certifier's table for `clis`; null
/// where a table cannot be had: the sound gate refuses.
std::unique_ptr<LoopStabilizer> loop_behind_gate(const Target& target, const Candidate& candidate);
/// The same but for the table; what takes one is not to be asked for.
std::unique_ptr<LoopStabilizer> loop_of(const Target& target);
bool takes_table(const Target& target);

}  // namespace headroom::fuzz
