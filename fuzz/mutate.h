// Changes of candidates: bits and ulps, rows and structure, and targets solved on the equations.
#pragma once

#include <string_view>
#include <vector>

#include "fuzz/candidate.h"
#include "fuzz/random.h"
#include "fuzz/target.h"

namespace headroom::fuzz {

/// `other`: a second parent, of any shape. Operands need no rounding yet; the setting may be left
/// unfit for repair().
struct Mutator {
  std::string_view name;
  std::string_view summary;
  double weight;  ///< how often, relative to others
  void (*change)(Random& random, const Landmarks& marks, const SearchSpace& space,
                 const Candidate& other, Candidate& candidate);
};
const std::vector<Mutator>& mutators();

/// One to four mutators by weight, then repair() and round_operands(). Returns a bit mask of the
/// mutators used, by index.
std::uint64_t mutate(Random& random, const Landmarks& marks, const SearchSpace& space,
                     const Candidate& other, Candidate& candidate);

/// Six numbers that move a whole candidate smoothly, for a continuous search.
struct Motion {
  static constexpr int dimensions = 6;
  /// log2 factors of Q, of the keys less their mean, of the mean and of V; a blend of every query
  /// with the direction of the largest key; a blend of keys toward two levels. All 0: no change.
  double by[dimensions] = {};
};
void move(const Motion& motion, Candidate& candidate);

}  // namespace headroom::fuzz
