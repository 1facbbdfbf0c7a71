// Heads by how their queries lie to their keys.
#include "fuzz/generate/families.h"

namespace headroom::fuzz::generate {
namespace {

void fill_rows(float* first, Index rows, Index channels, const std::vector<float>& row) {
  for (Index r = 0; r < rows; ++r) std::copy(row.begin(), row.end(), first + r * channels);
}

/// Every query this one, by a factor of its own.
void queries_like(Random& random, const std::vector<double>& direction, Candidate& c) {
  const bool same = random.chance(0.6);
  for (Index i = 0; i < c.shape.queries; ++i) {
    const double by = same || i == 0 ? 1 : random.pick({1.0, 0.5, -1.0, 0.984375, 0.25});
    for (Index ch = 0; ch < c.shape.channels; ++ch) {
      c.query(i)[ch] = to_float(by * direction[at(ch)]);
    }
  }
}

/// Keys around a point away from 0, deviating by one number.
void cluster(Random& random, Candidate& c) {
  const double centre = random.pick({0.0, 0.0, 1.0, 4.0, 64.0}), width = random.pick({0.1, 1.0});
  std::vector<double> point(at(c.shape.channels));
  for (double& x : point) x = centre * random.normal();
  for (Index j = 0; j < c.shape.keys; ++j) {
    for (Index ch = 0; ch < c.shape.channels; ++ch) {
      c.key(j)[ch] = to_float(point[at(ch)] + width * random.normal());
    }
  }
}

void toward_keys(Random& random, const Landmarks& marks, double sign, Candidate& c) {
  zero(c);
  cluster(random, c);
  round_numbers(marks.operand, c.k);
  const Index d = c.shape.channels;
  std::vector<double> direction(at(d));
  const bool mean = random.coin();
  const Index n = c.length(), one = random.between(0, n - 1);
  for (Index j = 0; j < n; ++j) {
    if (!mean && j != one) continue;
    for (Index ch = 0; ch < d; ++ch) direction[at(ch)] += static_cast<double>(c.key(j)[ch]);
  }
  for (double& x : direction) x *= sign;
  queries_like(random, direction, c);
  const Centre centre = pick_centre(random, marks);
  if (random.chance(0.3)) {  // one row at a score that means something
    const double s = sign * std::fabs(pick_score(random, marks));
    const double now = score(marks, c, 0, one);
    if (now != 0 && std::isfinite(s / now)) {
      for (float& x : c.q) x = to_float(static_cast<double>(x) * (s / now));
    }
  } else {
    aim_at_gate(marks, pick_target(random, marks), centre, c);
  }
  fill_values(random, marks, c);
}

}  // namespace

/// Q, K and V of one number each, such as 133120.
void constant(Random& random, const Landmarks& marks, Candidate& c) {
  double x = random.pick({133120.0, 1708.0, 6832.0, 19296.0, 64.0, 256.0, 32.0, 1.0});
  const std::uint64_t how = random.below(4);
  if (how == 0) {
    x = two_to(static_cast<int>(random.between(-10, 20)));
    x *= random.uniform(1, 2);
  } else if (how == 1) {  // the scores at a mark
    const double s = std::fabs(pick_score(random, marks));
    const double per = std::fabs(marks.factor) * static_cast<double>(c.shape.channels);
    if (per > 0) x = std::sqrt(s / per);
  }
  const auto number = operand_number(marks.operand, x);
  const float sign = random.chance(0.3) ? -1.0F : 1.0F;
  std::fill(c.q.begin(), c.q.end(), number);
  std::fill(c.k.begin(), c.k.end(), sign * number);
  if (random.coin()) {
    std::fill(c.v.begin(), c.v.end(), number);
  } else {
    fill_values(random, marks, c);
  }
}

/// Every key the same: the gate of centred keys is 0, the row's mass is the number of keys.
void equal_keys(Random& random, const Landmarks& marks, Candidate& c) {
  const Index d = c.shape.channels;
  std::vector<float> key(at(d));
  const float x = random.pick({0.5F, 1.0F, 0.0F, -3.0F, 0.99609375F});
  const bool one_number = random.coin();
  for (float& e : key) e = one_number ? x : to_float(random.normal());
  fill_rows(c.k.data(), c.shape.keys, d, key);
  const float q = random.pick({1.0F, 0.0F, 0.25F, 4.0F});
  for (float& e : c.q) e = random.chance(0.9) ? q : -q;
  fill_values(random, marks, c);
}

/// Keys on a few neighbouring numbers far from 0, whose mean rounds to one of them, and queries
/// along what rounding took away.
void narrow_grid(Random& random, const Landmarks& marks, Candidate& c) {
  zero(c);
  const Format& format = marks.operand;
  const Index d = c.shape.channels, n = c.shape.keys;
  const double base = random.pick({1.0, 1.0, 2.0, 16.0, 64.0, -1.0, 257.0});
  const float low = operand_number(format, base);
  const int steps = random.pick({1, 1, 1, 2, 3});
  const Index period = random.pick({Index{2}, Index{3}, Index{5}, Index{7}, Index{20}});
  const Index high = std::max<Index>(1, period * 9 / 20);  // fewer than half: the mean rounds down
  const bool random_places = random.chance(0.3);
  for (Index j = 0; j < n; ++j) {
    for (Index ch = 0; ch < d; ++ch) {
      const bool up = random_places ? random.chance(0.45) : (j + ch) % period < high;
      c.key(j)[ch] = up ? step_by(format, low, steps) : low;
    }
  }
  std::vector<double> direction(at(d));
  const std::uint64_t how = random.below(4);
  for (double& x : direction) x = how == 0 ? random.normal() : how == 1 ? 1 : -1;
  queries_like(random, direction, c);
  const double target = pick_target(random, marks);
  aim_at_gate(marks, target, pick_centre(random, marks), c);
  fill_values(random, marks, c);
}

/// Queries that no key has a part of, as long as the gate lets them be: scores of 0 under a bound
/// that is not.
void orthogonal(Random& random, const Landmarks& marks, Candidate& c) {
  zero(c);
  const Index d = c.shape.channels, n = c.shape.keys;
  if (d == 1) {
    std::fill(c.k.begin(), c.k.end(), random.coin() ? 1.0F : 0.0F);
    c.k.front() = 0;
  } else if (d % 2 == 0 && random.coin()) {  // pairs of channels that cancel
    for (Index j = 0; j < n; ++j) {
      for (Index ch = 0; ch < d; ch += 2) {
        const float x = to_float(random.normal());
        c.key(j)[ch] = x;
        c.key(j)[ch + 1] = x;
      }
    }
    for (Index i = 0; i < c.shape.queries; ++i) {
      for (Index ch = 0; ch < d; ch += 2) {
        const float x = random.coin() ? 1.0F : -1.0F;
        c.query(i)[ch] = x;
        c.query(i)[ch + 1] = -x;
      }
    }
  } else {  // keys have other channels than queries
    const Index own = random.between(1, d - 1);
    const bool signs = random.coin();
    for (Index j = 0; j < n; ++j) {
      for (Index ch = own; ch < d; ++ch) {
        c.key(j)[ch] = signs ? (j % 2 == 0 ? 1.0F : -1.0F) : to_float(random.normal());
      }
    }
    for (Index i = 0; i < c.shape.queries; ++i) {
      for (Index ch = 0; ch < own; ++ch) c.query(i)[ch] = to_float(random.normal());
    }
  }
  if (d == 1) std::fill(c.q.begin(), c.q.end(), 1.0F);
  const double target = pick_target(random, marks);
  aim_at_gate(marks, target, pick_centre(random, marks), c);
  if (random.chance(0.7)) scramble(random, c);
  fill_values(random, marks, c);
}

/// Queries along a key, or along the mean of all.
void aligned(Random& random, const Landmarks& marks, Candidate& c) {
  toward_keys(random, marks, 1, c);
}

void anti_aligned(Random& random, const Landmarks& marks, Candidate& c) {
  toward_keys(random, marks, -1, c);
}

/// In each tile the largest elements of the channels come from different keys: a key made of them
/// scores far above any of the tile's, by about what exp2 can take.
void block_extremes(Random& random, const Landmarks& marks, Candidate& c) {
  zero(c);
  const Format& format = marks.operand;
  const Index n = c.shape.keys, d = c.shape.channels;
  const Index block = std::clamp<Index>(marks.key_block, 1, n);
  const Index apart = std::min(block, d);  // channels' extremes lie on so many keys
  const double factor = marks.factor == 0 ? 1 : marks.factor;
  // the made-up key scores d x, a real one ceil(d / apart) x
  const double real = static_cast<double>((d + apart - 1) / apart);
  const double over = -static_cast<double>(marks.flush) * random.pick({0.95, 1.0, 1.1, 1.5, 3.0});
  const double gap = std::max(1.0, static_cast<double>(d) - real);
  const double x = over / gap, q = random.pick({1.0, 2.0, 8.0});
  const auto element = static_cast<double>(operand_number(format, x / (std::fabs(factor) * q)));
  const double rest = random.pick({0.0, 0.0, -0.5, 0.25});
  for (Index j = 0; j < n; ++j) {
    for (Index ch = 0; ch < d; ++ch) {
      c.key(j)[ch] = to_float(j % block % apart == ch % apart ? element : rest * element);
    }
  }
  for (float& e : c.q) e = to_float(factor < 0 ? -q : q);
  scramble(random, c);
  fill_values(random, marks, c);
}

/// A key along the query with small elements, in a tile whose largest elements point the other
/// way: what stands for the tile scores far below it.
void hidden_key(Random& random, const Landmarks& marks, Candidate& c) {
  zero(c);
  const Format& format = marks.operand;
  const Index n = c.length(), d = c.shape.channels;
  const Index block = std::clamp<Index>(marks.key_block, 1, n);
  const Index tiles = (n + block - 1) / block;
  const Index tile = tiles > 2 ? random.between(1, tiles - 2) : tiles - 1;
  const Index last = std::min((tile + 1) * block, n) - 1;
  const Index hidden = random.between(tile * block, last);
  const double factor = marks.factor == 0 ? 1 : marks.factor;
  const double reach = marks.emax + 1;
  const double under = reach * random.pick({0.5, 0.9, 1.0, 1.1, 2.0, 4.0});
  const double share = random.pick({0.5, 0.75, 0.9375});  // of the others' magnitude
  // hidden scores share y, all others -y, so that it is above them by (1 + share) y
  const double y = under / (1 + share), q = random.pick({1.0, 2.0, 8.0});
  const double element = y / (std::fabs(factor) * q * static_cast<double>(d));
  for (Index j = 0; j < c.shape.keys; ++j) {
    for (Index ch = 0; ch < d; ++ch) {
      c.key(j)[ch] = operand_number(format, j == hidden ? share * element : -element);
    }
  }
  for (float& e : c.q) e = to_float(factor < 0 ? -q : q);
  scramble(random, c);
  fill_values(random, marks, c);
}

/// One large product and small ones of half its ulp, a little less or more: the accumulator
/// swallows each, or rounds each up to twice itself. Queries along the keys or with the large part
/// against them; one channel that keys lack may lengthen the query.
void swallowed_terms(Random& random, const Landmarks& marks, Candidate& c) {
  zero(c);
  const Format& format = marks.operand;
  const Index d = c.shape.channels;
  const bool longer = d >= 3 && random.coin();
  const Index small = longer ? d - 2 : d - 1;
  const double factor = marks.factor == 0 ? 1 : std::fabs(marks.factor);
  const double raw = random.uniform(8, 250) / factor;  // the large product
  const auto a = static_cast<double>(operand_number(format, raw));
  if (!(a > 0)) return fill_values(random, marks, c);
  const double ulp = two_to(exponent_of(static_cast<float>(a)) - marks.score_precision + 1);
  const bool up = random.coin(), against = random.chance(up ? 0.25 : 0.75);
  const double off = random.pick({0x1p-7, 0x1p-5, 0x1p-4, 0x1p-3, 0x1p-2});
  const double t = std::sqrt(ulp / 2 * (up ? 1 + off : 1 - off) / a);
  for (Index i = 0; i < c.shape.queries; ++i) {
    c.query(i)[0] = 1;
    for (Index ch = 1; ch <= small; ++ch) c.query(i)[ch] = operand_number(format, t);
    if (longer) c.query(i)[d - 1] = operand_number(format, random.uniform(0, 3));
  }
  const bool all_alike = random.chance(0.7);
  for (Index j = 0; j < c.shape.keys; ++j) {
    const double size = all_alike || random.coin() ? 1 : random.uniform(0.25, 1);
    c.key(j)[0] = operand_number(format, (against ? -a : a) * size);
    for (Index ch = 1; ch <= small; ++ch) c.key(j)[ch] = operand_number(format, a * t * size);
  }
  fill_values(random, marks, c);
}

}  // namespace headroom::fuzz::generate
