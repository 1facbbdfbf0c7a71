// One number, or one row or channel of them.
#include "fuzz/mutate/families.h"

namespace headroom::fuzz::change {
namespace {

/// Some rows of one width.
struct Rows {
  float* first;
  Index count, width;
  float* row(Index i) const { return first + i * width; }
};

/// Q, K or V, most often K.
Rows pick_matrix(Random& random, Candidate& c) {
  const std::uint64_t which = random.below(8);
  if (which < 3) return {c.q.data(), c.shape.queries, c.shape.channels};
  if (which < 6) return {c.k.data(), c.length(), c.shape.channels};
  return {c.v.data(), c.length(), c.shape.value_channels};
}

float& pick_element(Random& random, Candidate& c) {
  const Rows m = pick_matrix(random, c);
  return m.first[random.below(static_cast<std::uint64_t>(m.count * m.width))];
}

float* pick_row(Random& random, Candidate& c, Index& width) {
  const Rows m = pick_matrix(random, c);
  width = m.width;
  return m.row(random.between(0, m.count - 1));
}

int pick_exponent(Random& random) {
  const int wide = static_cast<int>(random.between(-24, 24));
  const int near = static_cast<int>(random.between(1, 3));
  return random.chance(0.7) ? (wide < 0 ? -near : near) : wide;
}

float times(float x, double by) { return to_float(static_cast<double>(x) * by); }

}  // namespace

void flip_bit(Random& random, const Landmarks& marks, const SearchSpace&, const Candidate&,
              Candidate& c) {
  float& x = pick_element(random, c);
  // sign, exponent, and the digits that the format has
  const int bit = static_cast<int>(random.between(24 - marks.operand.precision, 31));
  const float flipped = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) ^ (1U << bit));
  if (std::isfinite(flipped)) x = flipped;
}

void nudge(Random& random, const Landmarks& marks, const SearchSpace&, const Candidate&,
           Candidate& c) {
  float& x = pick_element(random, c);
  const int steps = static_cast<int>(random.between(1, 3));
  x = step_by(marks.operand, x, random.coin() ? steps : -steps);
}

void scale_element(Random& random, const Landmarks&, const SearchSpace&, const Candidate&,
                   Candidate& c) {
  float& x = pick_element(random, c);
  x = times(x, two_to(pick_exponent(random)));
}

void special_element(Random& random, const Landmarks& marks, const SearchSpace&, const Candidate&,
                     Candidate& c) {
  float& x = pick_element(random, c);
  x = special_number(random, marks.operand);
}

void negate(Random& random, const Landmarks&, const SearchSpace&, const Candidate&, Candidate& c) {
  if (random.coin()) {
    float& x = pick_element(random, c);
    x = -x;
    return;
  }
  Index width = 0;
  float* row = pick_row(random, c, width);
  for (Index ch = 0; ch < width; ++ch) row[ch] = -row[ch];
}

void copy_element(Random& random, const Landmarks&, const SearchSpace&, const Candidate&,
                  Candidate& c) {
  const float x = pick_element(random, c);
  pick_element(random, c) = x;
}

void scale_row(Random& random, const Landmarks& marks, const SearchSpace&, const Candidate&,
               Candidate& c) {
  Index width = 0;
  float* row = pick_row(random, c, width);
  const int e = pick_exponent(random);
  const double near = 1 + two_to(1 - marks.operand.precision) * random.uniform(-8, 8);
  const double by = random.coin() ? two_to(e) : near;
  for (Index ch = 0; ch < width; ++ch) row[ch] = times(row[ch], by);
}

void zero_row(Random& random, const Landmarks&, const SearchSpace&, const Candidate&,
              Candidate& c) {
  Index width = 0;
  float* row = pick_row(random, c, width);
  std::fill_n(row, width, 0.0F);
}

/// Elements to powers of two of the same exponents.
void power_row(Random& random, const Landmarks&, const SearchSpace&, const Candidate&,
               Candidate& c) {
  Index width = 0;
  float* row = pick_row(random, c, width);
  for (Index ch = 0; ch < width; ++ch) {
    row[ch] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(row[ch]) & 0xff800000U);
  }
}

void scale_channel(Random& random, const Landmarks&, const SearchSpace&, const Candidate&,
                   Candidate& c) {
  const Rows m = pick_matrix(random, c);
  const Index ch = random.between(0, m.width - 1);
  const double by = two_to(pick_exponent(random));
  for (Index i = 0; i < m.count; ++i) m.row(i)[ch] = times(m.row(i)[ch], by);
}

/// A channel of Q times 2^e and of K times 2^-e: the same scores under other norms.
void trade_channel(Random& random, const Landmarks&, const SearchSpace&, const Candidate&,
                   Candidate& c) {
  const Index ch = random.between(0, c.shape.channels - 1);
  const int e = pick_exponent(random);
  const double up = two_to(e), down = two_to(-e);
  for (Index i = 0; i < c.shape.queries; ++i) c.query(i)[ch] = times(c.query(i)[ch], up);
  for (Index j = 0; j < c.length(); ++j) c.key(j)[ch] = times(c.key(j)[ch], down);
}

void zero_channel(Random& random, const Landmarks&, const SearchSpace&, const Candidate&,
                  Candidate& c) {
  const Rows m = pick_matrix(random, c);
  const Index ch = random.between(0, m.width - 1);
  for (Index i = 0; i < m.count; ++i) m.row(i)[ch] = 0;
}

/// The same number added to a channel of every key: scores of a row move together.
void shift_channel(Random& random, const Landmarks& marks, const SearchSpace&, const Candidate&,
                   Candidate& c) {
  const Index ch = random.between(0, c.shape.channels - 1), n = c.length();
  double by = two_to(static_cast<int>(random.between(-3, 6)));
  if (random.coin()) by = -by;
  if (random.coin()) {  // or a score of the first row
    const auto q = static_cast<double>(c.query(0)[ch]) * marks.factor;
    const double s = pick_score(random, marks);
    if (q != 0 && std::isfinite(s / q)) by = s / q;
  }
  for (Index j = 0; j < n; ++j) {
    float& x = c.key(j)[ch];
    x = to_float(static_cast<double>(x) + by);
  }
}

}  // namespace headroom::fuzz::change
