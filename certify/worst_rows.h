// The worst rows of a head under bounds that are monotone in what they are made from.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "certify/claim.h"

namespace headroom {

/// The claims of rows [begin, end) together: every value at least as unfavourable as that of each
/// row in the range. The same claims, in the same order, for every range.
using RangeClaims = std::function<std::vector<Claim>(std::size_t begin, std::size_t end)>;

/// The claim of two rows, or of two sets of rows, from the same claim of each: its value as the
/// enclosure of the larger (at_least: the smaller), row and key of the more unfavourable one; a
/// failure binds before an open claim, an open claim before one that holds.
Claim worse(const Claim& a, const Claim& b);
/// Raises `worst` to include `more`, claim by claim.
void worsen_claims(std::vector<Claim>& worst, const std::vector<Claim>& more);

/// How many rows a range is divided into is a power of this.
inline constexpr std::size_t range_fan = 8;

/// Claims over all rows [0, n), by branch and bound: a range is divided where it may hold a row
/// that is worse, by some claim, than every row seen so far. `likely` rows are tried first; where
/// each claim depends on one quantity and its extreme row is among them, nothing else is looked at.
///
/// **Ensures** each value covers every row not in `open`; its unfavourable end exceeds the worst
/// row's by at most 2^-26 (log2 units) or 2^-26 of itself. Row and key are those of a row within
/// that of the worst. If `open` is not null, ranges are divided until every row that has a claim
/// which does not hold stands alone; those rows go there, ascending, and are not covered.
std::vector<Claim> worst_claims(std::size_t n, const std::vector<std::size_t>& likely,
                                const RangeClaims& claims, std::vector<std::size_t>* open);

}  // namespace headroom
