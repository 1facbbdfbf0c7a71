// Euclidean norms and distances, enclosed.
#pragma once

#include <cstdint>
#include <span>

#include "reference/real/bound.h"

namespace headroom {

/// ||x||_2 for exact x: lo <= ||x|| <= hi. No overflow or underflow of the squares makes it
/// wrong (an overflow gives hi = inf). Relative width <= (n + 4) 2^-53 in the normal range.
/// **Requires** x finite. **Source** sums of squares rounded outward, then sqrt.
Interval norm(const UpwardRounding& up, std::span<const double> x);

/// ||x||_2 for x anywhere in the box [lo, hi].
Interval norm(const UpwardRounding& up, std::span<const double> lo, std::span<const double> hi);

/// ||a||_2 for a in the enclosures `a`, channel by channel independent.
Interval norm(const UpwardRounding& up, std::span<const Interval> a);

/// ||x - a||_2 for x in [lo, hi] and a in the enclosures `a` (channel by channel independent).
Interval distance(const UpwardRounding& up, std::span<const double> lo, std::span<const double> hi,
                  std::span<const Interval> a);

/// <q, a> for exact q and enclosed a.
Interval dot(const UpwardRounding& up, std::span<const double> q, std::span<const Interval> a);
/// <q, k> for exact q and k in [lo, hi].
Interval dot(const UpwardRounding& up, std::span<const double> q, std::span<const double> lo,
             std::span<const double> hi);

}  // namespace headroom
