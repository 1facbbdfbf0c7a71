// Rows and heads moved to where the equations say that something happens.
#include "fuzz/mutate/families.h"

namespace headroom::fuzz::change {
namespace {

Index pick_query(Random& random, const Candidate& c) {
  return random.between(0, c.shape.queries - 1);
}
Index pick_key(Random& random, const Candidate& c) { return random.between(0, c.length() - 1); }

/// Where a weight of a row flushes whose gate has the value that it just takes.
double flush_score(const Landmarks& marks) {
  return std::ceil(marks.gate_limit) - marks.cap + marks.flush;
}

void set_query(const std::vector<double>& direction, double norm, float* query) {
  double squares = 0;
  for (const double x : direction) squares += x * x;
  if (!(squares > 0) || !std::isfinite(squares)) return;
  const double by = norm / std::sqrt(squares);
  for (std::size_t ch = 0; ch < direction.size(); ++ch) query[ch] = to_float(direction[ch] * by);
}

}  // namespace

/// A query to or against a key, or a difference of two, as long as it was.
void align_query(Random& random, const Landmarks&, const SearchSpace&, const Candidate&,
                 Candidate& c) {
  const Index i = pick_query(random, c), a = pick_key(random, c), b = pick_key(random, c);
  const Index d = c.shape.channels;
  const bool difference = random.coin() && a != b;
  const double sign = random.coin() ? 1 : -1, share = random.chance(0.7) ? 1 : random.uniform();
  const double norm = std::sqrt(square(c.query(i), d));
  std::vector<double> direction(at(d));
  for (Index ch = 0; ch < d; ++ch) {
    const double other = difference ? static_cast<double>(c.key(b)[ch]) : 0;
    direction[at(ch)] = sign * (static_cast<double>(c.key(a)[ch]) - other);
  }
  if (share < 1) {  // a part of the way
    const double key = std::sqrt(square(c.key(a), d));
    if (!(key > 0) || !(norm > 0)) return;
    for (Index ch = 0; ch < d; ++ch) {
      double& x = direction[at(ch)];
      x = share * x / key + (1 - share) * static_cast<double>(c.query(i)[ch]) / norm;
    }
  }
  set_query(direction, norm > 0 ? norm : 1, c.query(i));
}

/// What a query has of a key is taken out.
void orthogonal_query(Random& random, const Landmarks&, const SearchSpace&, const Candidate&,
                      Candidate& c) {
  const Index i = pick_query(random, c), j = pick_key(random, c), d = c.shape.channels;
  const double key = square(c.key(j), d);
  if (!(key > 0) || !std::isfinite(key) || d < 2) return;
  const double by = dot(c.query(i), c.key(j), d) / key;
  for (Index ch = 0; ch < d; ++ch) {
    float& x = c.query(i)[ch];
    x = to_float(static_cast<double>(x) - by * static_cast<double>(c.key(j)[ch]));
  }
}

/// One key's score in one row: to a mark, to another key's, to just below that, or to where it
/// flushes.
void aim_score(Random& random, const Landmarks& marks, const SearchSpace&, const Candidate&,
               Candidate& c) {
  const Index i = pick_query(random, c), j = pick_key(random, c), other = pick_key(random, c);
  double s = 0;
  switch (random.below(marks.gate_limit > 0 ? 4 : 3)) {
    case 0:
      s = pick_score(random, marks);
      break;
    case 1:
      s = score(marks, c, i, other) + pick_tail(random, marks, c.length());
      break;
    case 2:
      s = score(marks, c, i, other);
      if (marks.threshold > 0) s += marks.threshold * (random.coin() ? 1 : 1 + 0x1p-6);
      break;
    default:
      s = flush_score(marks) + either_sign(random, pick_margin(random));
  }
  if (std::isfinite(s)) aim_at_score(marks, i, j, s, c);
}

/// A query by one factor, so that one of its scores lies at a mark.
void aim_row(Random& random, const Landmarks& marks, const SearchSpace&, const Candidate&,
             Candidate& c) {
  const Index i = pick_query(random, c), j = pick_key(random, c);
  const double s = pick_score(random, marks), now = score(marks, c, i, j);
  const double by = s / now;
  if (!(by != 0) || !std::isfinite(by)) return;
  for (Index ch = 0; ch < c.shape.channels; ++ch) {
    float& x = c.query(i)[ch];
    x = to_float(static_cast<double>(x) * by);
  }
}

void aim_gate(Random& random, const Landmarks& marks, const SearchSpace&, const Candidate&,
              Candidate& c) {
  const Centre centre = pick_centre(random, marks);
  aim_at_gate(marks, pick_target(random, marks), centre, c);
}

/// All scores of a row to two levels, the sides of their mean kept.
void aim_levels(Random& random, const Landmarks& marks, const SearchSpace&, const Candidate&,
                Candidate& c) {
  const Index i = pick_query(random, c), n = c.length();
  std::vector<double> scores(at(n));
  double mean = 0;
  for (Index j = 0; j < n; ++j) {
    scores[at(j)] = score(marks, c, i, j);
    mean += scores[at(j)] / static_cast<double>(n);
  }
  if (!std::isfinite(mean)) return;
  double apart = std::fabs(pick_tail(random, marks, n));
  if (marks.gate_limit > 0 && random.coin()) {
    apart = std::fabs(flush_score(marks)) + pick_margin(random);
  }
  const bool about_zero = random.coin();
  for (double& s : scores) s = (about_zero ? 0 : mean) + (s > mean ? apart : -apart);
  aim_at_scores(marks, i, scores, c);
}

/// The keys of a tile along one query, by a threshold or a mark.
void shift_tile(Random& random, const Landmarks& marks, const SearchSpace&, const Candidate&,
                Candidate& c) {
  const Index i = pick_query(random, c), n = c.length(), d = c.shape.channels;
  const Index whole = std::max(marks.key_block, 1);
  const Index tile = 2 * whole <= n ? whole : std::max<Index>(1, n / 4);
  const Index begin = random.between(0, (n - 1) / tile) * tile, end = std::min(begin + tile, n);
  const double length = square(c.query(i), d);
  double s = marks.threshold > 0 && random.coin()
                 ? marks.threshold * random.pick({1.0, 1 + 0x1p-6, 1 - 0x1p-6, 0.5})
                 : random.pick({1.0, 7.0, 16.0, 60.0, 100.0, 126.0, 140.0});
  if (random.coin()) s = -s;
  const double by = s / (marks.factor * length);
  if (!(length > 0) || !std::isfinite(by)) return;
  for (Index j = begin; j < end; ++j) {
    for (Index ch = 0; ch < d; ++ch) {
      float& x = c.key(j)[ch];
      x = to_float(static_cast<double>(x) + by * static_cast<double>(c.query(i)[ch]));
    }
  }
}

}  // namespace headroom::fuzz::change
