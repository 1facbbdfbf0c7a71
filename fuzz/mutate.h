// Changes of candidates: bits and ulps, rows and structure, and targets solved on the equations.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "fuzz/candidate.h"
#include "fuzz/random.h"
#include "fuzz/target.h"

namespace headroom::fuzz {

/// `other`: a second parent, of any shape. Operands need no rounding yet; the setting may be left
/// unfit for repair().
struct Mutator {
  /// Where it can do anything.
  enum class Needs : std::uint8_t {
    nothing,
    settings,  ///< a space with more settings than one
    poison,    ///< a space that allows NaN: among visible rows, or in padding that there is
    shapes,    ///< a space with more shapes of as many channels
  };
  std::string_view name;
  std::string_view summary;
  double weight;  ///< how often, relative to others
  void (*change)(Random& random, const Landmarks& marks, const SearchSpace& space,
                 const Candidate& other, Candidate& candidate);
  Needs needs = Needs::nothing;
};
/// At most 64.
const std::vector<Mutator>& mutators();

/// One to four mutators by weight, of those that can do anything, then repair() and
/// round_operands(). Numbers that are not finite stay only where padding is, or, in a space with
/// poison_visible, in Q and K. Returns a bit mask of the mutators used, by index.
std::uint64_t mutate(Random& random, const Landmarks& marks, const SearchSpace& space,
                     const Candidate& other, Candidate& candidate);

/// Six numbers that move a whole candidate smoothly, for a continuous search.
struct Motion {
  static constexpr int dimensions = 6;
  /// log2 factors of Q, of the keys less their mean, of the mean and of V; a blend of every query
  /// with the direction of the largest key; a blend of keys toward two levels. All 0: no change.
  /// Blends count from -1, the opposite direction, to 1.
  double by[dimensions] = {};
};
void move(const Motion& motion, Candidate& candidate);

}  // namespace headroom::fuzz
