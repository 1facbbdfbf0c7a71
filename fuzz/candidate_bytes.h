// Candidates as plain bytes, for fuzzers that know nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fuzz/candidate.h"
#include "fuzz/target.h"

namespace headroom::fuzz {

/// Any bytes are a candidate of the hunt, finite where a row can see: a byte for the shape, one for
/// the mask, one for the length (0: all keys), one for the sink (0: none, else a signed multiple of
/// 8, if the hunt has sinks), then words of the operand format, little-endian, of Q, K and V; what
/// is missing is zero.
Candidate candidate_of_bytes(const Hunt& hunt, std::span<const std::uint8_t> bytes);
/// The inverse, where shape and setting can be said so: else with the nearest that can.
std::vector<std::uint8_t> bytes_of_candidate(const Hunt& hunt, const Candidate& candidate);

}  // namespace headroom::fuzz
