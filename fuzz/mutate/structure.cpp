// Keys, queries and values as wholes.
#include "fuzz/mutate/families.h"

namespace headroom::fuzz::change {
namespace {

Index pick_key(Random& random, const Candidate& c) { return random.between(0, c.length() - 1); }

void copy_rows(const float* from, Index rows, Index width, float* to) {
  std::copy_n(from, rows * width, to);
}

}  // namespace

/// With its value, or without.
void copy_key(Random& random, const Landmarks&, const SearchSpace&, const Candidate&,
              Candidate& c) {
  const Index from = pick_key(random, c), to = pick_key(random, c);
  if (from == to) return;
  copy_rows(c.key(from), 1, c.shape.channels, c.key(to));
  if (random.coin()) copy_rows(c.value(from), 1, c.shape.value_channels, c.value(to));
}

void swap_keys(Random& random, const Landmarks&, const SearchSpace&, const Candidate&,
               Candidate& c) {
  const Index a = pick_key(random, c), b = pick_key(random, c);
  if (a == b) return;
  std::swap_ranges(c.key(a), c.key(a) + c.shape.channels, c.key(b));
  if (random.coin()) {
    std::swap_ranges(c.value(a), c.value(a) + c.shape.value_channels, c.value(b));
  }
}

void copy_query(Random& random, const Landmarks&, const SearchSpace&, const Candidate&,
                Candidate& c) {
  const Index from = random.between(0, c.shape.queries - 1);
  const Index to = random.between(0, c.shape.queries - 1);
  if (from != to) copy_rows(c.query(from), 1, c.shape.channels, c.query(to));
}

void rotate_keys(Random& random, const Landmarks&, const SearchSpace&, const Candidate&,
                 Candidate& c) {
  const Index n = c.length();
  if (n < 2) return;
  const Index by = random.between(1, n - 1), d = c.shape.channels, dv = c.shape.value_channels;
  std::rotate(c.key(0), c.key(by), c.key(0) + n * d);
  std::rotate(c.value(0), c.value(by), c.value(0) + n * dv);
}

void swap_tiles(Random& random, const Landmarks& marks, const SearchSpace&, const Candidate&,
                Candidate& c) {
  const Index n = c.length(), whole = std::max(marks.key_block, 1);
  const Index tile = 2 * whole <= n ? whole : std::max<Index>(1, n / 4), tiles = n / tile;
  const Index a = random.between(0, tiles - 1), b = random.between(0, tiles - 1);
  if (a == b) return;
  const Index d = c.shape.channels, dv = c.shape.value_channels;
  std::swap_ranges(c.key(a * tile), c.key(a * tile) + tile * d, c.key(b * tile));
  std::swap_ranges(c.value(a * tile), c.value(a * tile) + tile * dv, c.value(b * tile));
}

/// Every key within a few ulps of one of them.
void cluster_keys(Random& random, const Landmarks& marks, const SearchSpace&, const Candidate&,
                  Candidate& c) {
  const Index one = pick_key(random, c), n = c.length(), d = c.shape.channels;
  const int most = random.pick({0, 1, 1, 2});
  std::uint64_t bits = 0;
  for (Index ch = 0; ch < d; ++ch) {
    const float x = c.key(one)[ch], moved = step_by(marks.operand, x, most);
    for (Index j = 0; j < n; ++j) {
      if (j % 64 == 0) bits = random.bits();
      c.key(j)[ch] = (bits & 1U) != 0 ? moved : x;
      bits >>= 1;
    }
  }
}

void value_row(Random& random, const Landmarks& marks, const SearchSpace&, const Candidate&,
               Candidate& c) {
  const Index j = pick_key(random, c), dv = c.shape.value_channels;
  float x = 0;
  switch (random.below(4)) {
    case 0:
      x = special_number(random, marks.operand);
      break;
    case 1: {
      const double most = marks.operand.max_finite();
      x = to_float(std::min(two_to(brink_of_sum(random, marks, c.length())), most));
      break;
    }
    case 2:
      x = random.coin() ? 1.0F : -1.0F;
      break;
    default:
      x = -c.value(j)[0];
  }
  std::fill_n(c.value(j), dv, x);
}

void scale_values(Random& random, const Landmarks& marks, const SearchSpace&, const Candidate&,
                  Candidate& c) {
  int e = static_cast<int>(random.between(-12, 12));
  if (random.coin()) {  // the largest of the first channel to the brink of the sums
    float largest = 0;
    for (Index j = 0; j < c.length(); ++j) largest = std::max(largest, std::fabs(c.value(j)[0]));
    if (largest > 0) e = brink_of_sum(random, marks, c.length()) - exponent_of(largest);
  }
  const double by = two_to(e);
  for (float& x : c.v) x = to_float(static_cast<double>(x) * by);
}

void fill_all_values(Random& random, const Landmarks& marks, const SearchSpace&, const Candidate&,
                     Candidate& c) {
  fill_values(random, marks, c);
}

/// Neighbouring rows of the other parent, of Q or of K and V.
void cross_rows(Random& random, const Landmarks&, const SearchSpace&, const Candidate& other,
                Candidate& c) {
  const Shape& a = other.shape;
  const Shape& b = c.shape;
  if (a.channels != b.channels) return;
  const bool queries = random.chance(0.3);
  const Index have = queries ? a.queries : a.keys, want = queries ? b.queries : b.keys;
  const Index rows = random.between(1, std::min(have, want));
  const Index from = random.between(0, have - rows), to = random.between(0, want - rows);
  if (queries) {
    copy_rows(other.query(from), rows, b.channels, c.query(to));
    return;
  }
  const std::uint64_t which = random.below(3);
  if (which != 1) copy_rows(other.key(from), rows, b.channels, c.key(to));
  if (which != 2 && a.value_channels == b.value_channels) {
    copy_rows(other.value(from), rows, b.value_channels, c.value(to));
  }
}

void cross_matrix(Random& random, const Landmarks&, const SearchSpace&, const Candidate& other,
                  Candidate& c) {
  const std::uint64_t which = random.below(3);
  if (which == 0 && other.q.size() == c.q.size()) c.q = other.q;
  if (which == 1 && other.k.size() == c.k.size()) c.k = other.k;
  if (which == 2 && other.v.size() == c.v.size()) c.v = other.v;
}

void refill(Random& random, const Landmarks& marks, const SearchSpace&, const Candidate&,
            Candidate& c) {
  random.pick(generators()).fill(random, marks, c);
}

/// Two of Q, K and V are kept.
void refill_part(Random& random, const Landmarks& marks, const SearchSpace&, const Candidate&,
                 Candidate& c) {
  Candidate fresh = make_candidate(c.shape, c.setting);
  random.pick(generators()).fill(random, marks, fresh);
  const std::uint64_t which = random.below(3);
  if (which == 0) c.q.swap(fresh.q);
  if (which == 1) c.k.swap(fresh.k);
  if (which == 2) c.v.swap(fresh.v);
}

}  // namespace headroom::fuzz::change
