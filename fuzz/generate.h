// Heads that break attention: generators that know what a gate, a tile and a flush threshold are.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "fuzz/candidate.h"
#include "fuzz/random.h"
#include "fuzz/target.h"

namespace headroom::fuzz {

/// Fills Q, K and V of a candidate whose shape and setting are made; operands need no rounding yet.
/// What is in them before does not matter. Every number written is finite.
struct Generator {
  std::string_view name;
  std::string_view summary;
  void (*fill)(Random& random, const Landmarks& marks, Candidate& candidate);
};
const std::vector<Generator>& generators();

/// A setting of the space for a shape: masks, lengths, windows, segments, boolean masks, biases,
/// softcaps and sinks that hide first tiles, last tiles, whole parts or everything, or that lie at
/// the ends of formats.
Setting make_setting(Random& random, const SearchSpace& space, const Landmarks& marks,
                     const Shape& shape);

/// Which centre norms of keys are taken about.
enum class Centre : std::uint8_t {
  none,          ///< no centre
  mean,          ///< the exact mean of the keys that are not padding
  rounded_mean,  ///< that mean, and each difference, rounded to the operand's format
};

/// factor max|q| max|k - centre| in log2 units over the operands as they are and the keys that are
/// not padding, within 2^-44 of itself; for rounded_mean as good as its sum in binary64.
double gate_value(const Landmarks& marks, const Candidate& candidate, Centre centre);

/// Rounds Q and K, and multiplies Q by one factor so that gate_value (centre `mean` if
/// marks.centred, else `none`) is at most `target` log2 units, as binary64 rounds it, and, where
/// the operand's format has no underflow there, more than target (1 - 2^(4 - p)), p its precision.
/// False, and Q as rounded, where the value is 0 or not finite or Q would leave the format's range.
bool aim_at_gate(const Landmarks& marks, double target, Candidate& candidate);
bool aim_at_gate(const Landmarks& marks, double target, Centre centre, Candidate& candidate);

/// Moves Q and K so that row `row` has about these scores (log2 units), one a key: by the least
/// change of its query where there are fewer scores than channels and the keys are independent,
/// else of the keys, along the query (one channel: the keys are divided out). The scores are then
/// within factor max_c |q_c| ulp(k_c) of what was asked, ulps of the operand's format. That query
/// is rounded. False, and nothing else is done, where the equations have no solution in the
/// format's range: a query of zeros.
bool aim_at_scores(const Landmarks& marks, std::int64_t row, const std::vector<double>& scores,
                   Candidate& candidate);
/// The same for one key.
bool aim_at_score(const Landmarks& marks, std::int64_t row, std::int64_t key, double score,
                  Candidate& candidate);

/// Rows and channels cut out of a head, at random places, as FP32 numbers: neighbouring keys, most
/// often with the first of them, neighbouring queries, and the same channels of Q and K. What the
/// shape asks for beyond the head's is filled by going around. The setting is empty.
Candidate cut_from(const Head& head, Random& random, const Shape& shape);

}  // namespace headroom::fuzz
