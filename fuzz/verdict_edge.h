// Heads moved to where the certifier only just certifies them.
#pragma once

#include "fuzz/candidate.h"
#include "fuzz/random.h"
#include "fuzz/target.h"

namespace headroom::fuzz {

/// Multiplies Q, K, the keys less their mean, or V by the factor at which the target's certificate
/// is only just given, by bisection: the head that is left is certified, the same one with a
/// factor larger (or smaller) by little is not. False, and nothing changed, where no factor from
/// 2^-64 to 2^64 parts the two. Requires: the target's gate is a certificate.
bool aim_at_verdict(Random& random, const Target& target, Candidate& candidate);

}  // namespace headroom::fuzz
