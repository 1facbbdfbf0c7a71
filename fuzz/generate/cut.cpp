// Seeds from real heads.
#include "fuzz/generate/pieces.h"

namespace headroom::fuzz {
namespace {

/// `count` of `all` places that follow each other, going around; or any, in order.
std::vector<Index> places(Random& random, Index count, Index all, bool neighbours) {
  std::vector<Index> at_places(at(count));
  const Index first = random.between(0, all - 1);
  for (Index i = 0; i < count; ++i) {
    at_places[at(i)] = neighbours ? (first + i) % all : random.between(0, all - 1);
  }
  if (!neighbours || first + count <= all) std::sort(at_places.begin(), at_places.end());
  return at_places;
}

void copy(const Matrix& from, const std::vector<Index>& rows, const std::vector<Index>& columns,
          std::vector<float>& to) {
  std::vector<double> row(at(from.columns()));
  std::size_t next = 0;
  for (const Index r : rows) {
    from.load_row(r, row.data());
    for (const Index ch : columns) to[next++] = to_float(row[at(ch)]);
  }
}

}  // namespace

Candidate cut_from(const Head& head, Random& random, const Shape& shape) {
  Candidate c = make_candidate(shape);
  if (head.queries() == 0 || head.keys() == 0 || head.channels() == 0 ||
      head.value_channels() == 0) {
    return c;
  }
  const bool neighbours = random.chance(0.8), same_channels = random.coin();
  std::vector<Index> keys = places(random, shape.keys, head.keys(), neighbours);
  if (random.chance(0.7)) keys[0] = 0;  // where sinks are
  const std::vector<Index> queries = places(random, shape.queries, head.queries(), neighbours);
  const std::vector<Index> channels =
      places(random, shape.channels, head.channels(), same_channels);
  const std::vector<Index> values =
      places(random, shape.value_channels, head.value_channels(), same_channels);
  copy(head.q, queries, channels, c.q);
  copy(head.k, keys, channels, c.k);
  copy(head.v, keys, values, c.v);
  return c;
}

}  // namespace headroom::fuzz
