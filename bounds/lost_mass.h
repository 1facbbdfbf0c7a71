// Mass lost to flushing, and the guard bits that keep it below a limit.
#pragma once

#include <cstdint>

#include "reference/real/bound.h"

namespace headroom {

/// D bits of margin of the mean score above the flush threshold: D = zbar - mu - L > 0.
/// lost <= rho / (1 + rho), rho = 2^-D / (e D ln 2); the supremum over all rows.
/// D <= 0 gives 1. **Source** DESIGN.md, "Lost mass"; proof in lost_mass.cpp.
Upper<Relative> lost_mass(const UpwardRounding& up, Lower<Log2> margin);

/// D(t): the least number of guard bits D (rounded up to 2^-20) with lost_mass(D) <= eps.
/// Requires: 0 < eps. eps >= 1 gives 0; an eps that no number of bits reaches gives infinity.
/// **Ensures** lost_mass(Lower(D(t))) <= eps as computed, not only as a formula.
Upper<Log2> guard_bits(const UpwardRounding& up, double eps);

/// By counting: at most `count` keys of weight below 2^threshold each are lost from a mass of at
/// least 2^mass: lost <= min(1, count 2^(threshold - mass)).
Upper<Relative> lost_mass_by_count(const UpwardRounding& up, std::int64_t count,
                                   Upper<Log2> threshold, Lower<Log2> mass);

}  // namespace headroom
