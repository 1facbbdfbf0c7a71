#include "fuzz/archive.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace headroom::fuzz {
namespace {

constexpr std::size_t most_cells = 2048;  ///< of one objective: memory stays bounded

}  // namespace

Archive::Archive(std::vector<Objective> objectives)
    : objectives_(std::move(objectives)), maps_(objectives_.size()) {}

const Archive::Map& Archive::map_of(Objective objective) const {
  const auto found = std::find(objectives_.begin(), objectives_.end(), objective);
  if (found == objectives_.end()) throw std::invalid_argument("an objective that is not hunted");
  return maps_[static_cast<std::size_t>(found - objectives_.begin())];
}

bool Archive::offer(Objective objective, std::uint64_t cell, double closeness,
                    const Candidate& candidate) {
  if (std::isnan(closeness) || std::isinf(closeness)) return false;
  Map& map = maps_[static_cast<std::size_t>(&map_of(objective) - maps_.data())];
  const auto [found, fresh] = map.place.emplace(cell, map.elites.size());
  if (!fresh) {
    Elite& elite = map.elites[found->second];
    if (closeness <= elite.closeness) return false;
    elite.closeness = closeness;
    elite.candidate = candidate;
    map.settled = false;
    return true;
  }
  if (map.elites.size() >= most_cells) {  // the farthest makes room
    const auto farthest =
        std::min_element(map.elites.begin(), map.elites.end(),
                         [](const Elite& a, const Elite& b) { return a.closeness < b.closeness; });
    const auto last = static_cast<std::size_t>(farthest - map.elites.begin());
    if (map.elites[last].closeness >= closeness) {
      map.place.erase(found);
      return false;
    }
    map.place.erase(map.elites[last].cell);
    map.elites[last] = {cell, closeness, candidate};
    found->second = last;
  } else {
    map.elites.push_back({cell, closeness, candidate});
  }
  map.settled = false;
  return true;
}

void Archive::lower(Objective objective, std::uint64_t cell, double closeness) {
  Map& map = maps_[static_cast<std::size_t>(&map_of(objective) - maps_.data())];
  const auto found = map.place.find(cell);
  if (found == map.place.end()) return;
  Elite& elite = map.elites[found->second];
  elite.closeness = std::min(elite.closeness, closeness);
  map.settled = false;
}

void Archive::settle(Map& map) {
  if (map.settled) return;
  map.ranked.resize(map.elites.size());
  std::iota(map.ranked.begin(), map.ranked.end(), 0U);
  std::stable_sort(map.ranked.begin(), map.ranked.end(), [&](std::uint32_t a, std::uint32_t b) {
    return map.elites[a].closeness > map.elites[b].closeness;
  });
  map.settled = true;
}

void Archive::settle() {
  for (Map& map : maps_) settle(map);
}

const Candidate* Archive::parent(Objective objective, Random& random) const {
  const Map& map = map_of(objective);
  const std::size_t n = map.ranked.size();
  if (n == 0) return nullptr;
  // the square of a uniform prefers the near
  const double u = random.uniform();
  const auto rank = static_cast<std::size_t>(u * u * static_cast<double>(n));
  return &map.elites[map.ranked[std::min(rank, n - 1)]].candidate;
}

std::vector<const Archive::Elite*> Archive::nearest(Objective objective, std::size_t n) const {
  const Map& map = map_of(objective);
  std::vector<const Elite*> list;
  for (std::size_t i = 0; i < std::min(n, map.ranked.size()); ++i) {
    list.push_back(&map.elites[map.ranked[i]]);
  }
  return list;
}

std::int64_t Archive::cells() const {
  std::int64_t sum = 0;
  for (const Map& map : maps_) sum += static_cast<std::int64_t>(map.elites.size());
  return sum;
}

}  // namespace headroom::fuzz
