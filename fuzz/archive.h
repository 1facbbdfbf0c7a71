// What a hunt remembers: of each objective and each cell of behaviour the nearest candidate.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "fuzz/candidate.h"
#include "fuzz/objective.h"
#include "fuzz/random.h"

namespace headroom::fuzz {

/// A MAP-Elites archive (Mouret and Clune, arXiv 1504.04909), one a objective. Candidates are
/// offered in a fixed order, so that what is kept depends on nothing else.
class Archive {
 public:
  struct Elite {
    std::uint64_t cell = 0;
    double closeness = 0;
    Candidate candidate;
  };

  explicit Archive(std::vector<Objective> objectives);

  /// True if it is kept: its cell is new, or it is nearer than what the cell held.
  bool offer(Objective objective, std::uint64_t cell, double closeness, const Candidate& candidate);
  /// The cell's candidate is at most this near after all.
  void lower(Objective objective, std::uint64_t cell, double closeness);
  /// Ranks what was offered: between the last offer and the first question.
  void settle();
  /// A parent for this objective, the nearest most often. Null while there is none.
  const Candidate* parent(Objective objective, Random& random) const;
  /// The nearest `n` of an objective, the nearest first.
  std::vector<const Elite*> nearest(Objective objective, std::size_t n) const;
  std::int64_t cells() const;

 private:
  struct Map {
    std::unordered_map<std::uint64_t, std::size_t> place;
    std::vector<Elite> elites;
    std::vector<std::uint32_t> ranked;  ///< places, nearest first
    bool settled = true;
  };
  static void settle(Map& map);
  const Map& map_of(Objective objective) const;

  std::vector<Objective> objectives_;
  std::vector<Map> maps_;
};

}  // namespace headroom::fuzz
