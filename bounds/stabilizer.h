// The stored stabilizer: how far mu lies from what its rule says in exact arithmetic.
#pragma once

#include <cstdint>
#include <span>

#include "reference/model/kernel_model.h"
#include "reference/real/bound.h"

namespace headroom {

/// A norm as a kernel computes it: squares and sums in `format` in any order, square root, rounded
/// to nearest. Encloses every result for an exact norm in `exact` of n channels:
/// exact (1 -+ u)^(n/2 + 2) outward, with the underflow of small squares.
Interval kernel_norm(const UpwardRounding& up, const Format& format, const Interval& exact,
                     std::int64_t n);

/// Rounds an enclosed value to nearest (or upward) into a format: every possible result.
Interval rounded(const UpwardRounding& up, const Format& format, const Interval& value,
                 bool round_up);

/// ceil of an enclosed value: every possible result (integers at both ends).
Interval ceiling(const Interval& value);

/// floor/ceil of log2 of a positive integer, and G = ceil(log2 max(1, vmax)); exact.
int floor_log2(std::uint64_t n);
int ceil_log2(std::uint64_t n);
int ceil_log2_at_least_one(double vmax);

}  // namespace headroom
