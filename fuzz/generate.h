// Heads that break attention: generators that know what a gate, a tile and a flush threshold are.
#pragma once

#include <string_view>
#include <vector>

#include "fuzz/candidate.h"
#include "fuzz/random.h"
#include "fuzz/target.h"

namespace headroom::fuzz {

/// Fills Q, K and V of a candidate whose shape and setting are made; operands need no rounding yet.
struct Generator {
  std::string_view name;
  std::string_view summary;
  void (*fill)(Random& random, const Landmarks& marks, Candidate& candidate);
};
const std::vector<Generator>& generators();

/// A setting of the space for a shape.
Setting make_setting(Random& random, const SearchSpace& space, const Landmarks& marks,
                     const Shape& shape);

/// Multiplies Q by one factor so that factor max|q| max|k - mean| (max|k| if not centred) is
/// `target` log2 units, from below in the operand's format by at most a few ulps. False, and
/// nothing is done, where the product is 0 or not finite.
bool aim_at_gate(const Landmarks& marks, double target, Candidate& candidate);

/// Moves Q and K so that row `row` has about these scores (log2 units), one a key, by the least
/// change of its query (d >= 2) or of the keys (d = 1). False where the equations have no solution.
bool aim_at_scores(const Landmarks& marks, std::int64_t row, const std::vector<double>& scores,
                   Candidate& candidate);

}  // namespace headroom::fuzz
