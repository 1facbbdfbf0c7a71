// Lower bounds of a row's mass sum_j 2^(z_j): Jensen.
#pragma once

#include <cstdint>
#include <span>

#include "reference/real/bound.h"

namespace headroom {

/// log2 sum_j 2^(z_j) >= log2(count) + zbar, zbar the mean score of the `count` *visible* keys.
/// Requires: count >= 1. No centring of stored keys is needed. **Source** Jensen's inequality for
/// 2^x.
Lower<Log2> row_mass(const UpwardRounding& up, std::int64_t count, Lower<Log2> mean_score);

/// General form: for any probability pi on visible keys,
/// log2 sum_j 2^(z_j) >= sum_j pi_j z_j + H2(pi), H2 the entropy in bits. Keys with pi_j = 0 are
/// free; a single positive weight gives that key's score exactly. The weights are normalised
/// exactly (any nonnegative finite numbers, not all 0; otherwise nothing is known: -inf).
Lower<Log2> row_mass(const UpwardRounding& up, std::span<const double> weights,
                     std::span<const Interval> scores);

}  // namespace headroom
