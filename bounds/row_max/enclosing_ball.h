// A small ball that holds all keys: the centre that makes Cauchy-Schwarz nearly as tight as one
// centre can.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "reference/real/bound.h"

namespace headroom {

/// Writes row j of the keys as enclosures [lo, hi] of its elements (Operands::key_row).
using KeyReader = std::function<void(std::int64_t j, double* lo, double* hi)>;

struct EnclosingBallOptions {
  /// The keys are read at most this often. Requires: >= 2.
  int max_passes = 25;
  /// Enough when radius <= ratio * least_radius.
  double ratio = 1.01;
};

struct EnclosingBall {
  std::vector<double> centre;
  Upper<Absolute> radius;        ///< every key lies this near to the centre
  Lower<Absolute> least_radius;  ///< no ball that holds the keys has a smaller radius
  int passes = 0;                ///< how often the keys were read
};

/// A ball that holds keys 0 to n - 1, near the smallest one.
///
/// **Ensures** ||k_j - centre|| <= radius for all j, rounded upward, whatever centre was found;
/// least_radius <= radius of the minimum enclosing ball <= radius. The iteration ends when the two
/// differ by at most `ratio`, so that it certifies its own tightness; keys that are known only as
/// boxes, or the passes, can end it before.
/// **Requires** n >= 1, finite keys. Memory: 16 bytes a key; a few hundred keys whole.
/// **Source** core-sets: M. Badoiu, K. Clarkson, Smaller core-sets for balls, SODA 2003. Many keys
/// join the core-set in a pass; its own ball is found by pairwise Frank-Wolfe steps on the dual
/// (S. Lacoste-Julien, M. Jaggi, NIPS 2015), whose value is the lower bound.
EnclosingBall enclosing_ball(const UpwardRounding& up, const KeyReader& keys, std::int64_t n,
                             std::int64_t channels, const EnclosingBallOptions& options = {});

}  // namespace headroom
