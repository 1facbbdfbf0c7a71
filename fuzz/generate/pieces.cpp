#include "fuzz/generate/pieces.h"

namespace headroom::fuzz {

double power_of_two(double x) {
  if (!(x > -1080)) return x <= -1080 ? 0 : x;
  if (x > 1024) return HUGE_VAL;
  const double whole = std::floor(x);
  // exp of at most ln 2 / 2 by its series, 15 terms: the rest is below 2^-60
  const double t = (x - whole - 0.5) * 0x1.62e42fefa39efp-1;
  double sum = 1;
  for (int i = 15; i >= 1; --i) sum = 1 + sum * t / i;
  return std::ldexp(sum * 0x1.6a09e667f3bcdp+0, static_cast<int>(whole));
}

float step_by(const Format& format, float x, int steps) {
  if (!std::isfinite(x)) return x;
  float moved = to_float(static_cast<double>(x) + steps * ulp_at(format, x));
  round_numbers(format, {&moved, 1});
  return moved;
}

float toward_zero(const Format& format, double x) {
  const float nearest = operand_number(format, x);
  if (std::fabs(static_cast<double>(nearest)) <= std::fabs(x)) return nearest;
  return step_by(format, nearest, nearest > 0 ? -1 : 1);
}

float special_number(Random& random, const Format& format) {
  const double sign = random.coin() ? 1 : -1;
  const double least = two_to(format.least_exponent()), normal = two_to(format.emin);
  switch (random.below(10)) {
    case 0:
      return static_cast<float>(sign * 0.0);
    case 1:
      return static_cast<float>(sign);
    case 2:
      return static_cast<float>(sign * format.max_finite());
    case 3:
      return static_cast<float>(sign * normal);
    case 4:
      return static_cast<float>(sign * least);
    case 5:
      return static_cast<float>(sign * (normal - least));
    case 6:
      return static_cast<float>(sign * (1 + two_to(1 - format.precision)));
    case 7:
      return operand_number(format, sign * random.pick({133120.0, 64.0, 256.0, 1708.0, 448.0}));
    default:
      return operand_number(
          format, sign * two_to(static_cast<int>(random.between(format.emin, format.emax))));
  }
}

double pick_margin(Random& random) {
  const int e = static_cast<int>(random.between(-9, 2));
  return two_to(e);
}

double pick_target(Random& random, const Landmarks& marks) {
  if (marks.gate_limit > 0) {
    if (random.chance(0.7)) {
      const double below = random.pick({0.0, 0x1p-6, 0.1, 0.5, 1.0});
      return std::max(marks.gate_limit - below, marks.gate_limit * 0.5);
    }
    return marks.gate_limit * random.uniform(0.05, 1.02);
  }
  const double reach = marks.emax + 1;
  switch (random.below(4)) {
    case 0:
      return -static_cast<double>(marks.flush) + random.pick({-1.0, -0.5, 0.0, 0.5, 1.0, 10.0});
    case 1:
      return reach + random.pick({-8.0, -1.0, 0.0, 1.0, 8.0});
    case 2:
      return random.uniform(1, 4 * reach);
    default:
      return two_to(static_cast<int>(random.between(0, 31)));
  }
}

double pick_score(Random& random, const Landmarks& marks) {
  const bool known = !marks.scores.empty() && random.chance(0.6);
  double s = known ? random.pick(marks.scores)
                   : random.pick({-120.0, -5e4, -5e4 * 1.4426950408889634, -524288.0, -66855.859,
                                  120.0, 173.2, -173.2, 1e4, -1e4, 0.0});
  if (!std::isfinite(s)) s = -120;
  const std::uint64_t how = random.below(4);
  if (how == 0) s += either_sign(random, pick_margin(random));
  if (how == 1) s *= random.uniform(0.9, 1.1);
  return s;
}

double pick_tail(Random& random, const Landmarks& marks, Index keys) {
  const double margin = either_sign(random, pick_margin(random));
  switch (random.below(6)) {
    case 0:
      return -7;
    case 1:  // all of them weigh as much as one at the top
      return -static_cast<double>(ceil_log2(static_cast<std::uint64_t>(keys))) +
             random.pick({-1.0, 0.0, 1.0});
    case 2:  // what accumulators of 8, 11 and 24 bits swallow
      return -random.pick({8.0, 9.0, 11.0, 12.0, 13.0, 24.0, 25.0});
    case 3:
      return marks.flush + margin;
    case 4:
      return random.pick({-6.0, -9.0, -10.0, -14.0, -24.0, -25.0, -126.0, -133.0, -149.0, -150.0}) +
             margin;
    default:
      return -random.uniform(0, 20);
  }
}

Centre pick_centre(Random& random, const Landmarks& marks) {
  if (!marks.centred) return Centre::none;
  return random.coin() ? Centre::mean : Centre::rounded_mean;
}

void zero(Candidate& c) {
  for (std::vector<float>* numbers : {&c.q, &c.k, &c.v}) {
    std::fill(numbers->begin(), numbers->end(), 0.0F);
  }
}

void fill_normal(Random& random, double deviation, std::vector<float>& numbers) {
  for (float& x : numbers) x = to_float(deviation * random.normal());
}

int brink_of_sum(Random& random, const Landmarks& marks, Index keys) {
  // emax is of weights, sums and products alike: 2^cap a key, N of them
  const int n = floor_log2(static_cast<std::uint64_t>(std::max<Index>(keys, 1)));
  return marks.emax + 1 - static_cast<int>(std::floor(marks.cap)) - n +
         static_cast<int>(random.between(-2, 2));
}

void values_by_score(Random& random, const Landmarks& marks, Candidate& c) {
  const Index row = random.between(0, c.shape.queries - 1), n = c.length();
  double mean = 0;
  for (Index j = 0; j < n; ++j) mean += score(marks, c, row, j) / static_cast<double>(n);
  const float high = random.pick({1.0F, 1.0F, 2.0F, 100.0F});
  const float low = random.pick({-high, 0.0F, -high});
  for (Index j = 0; j < c.shape.keys; ++j) {
    const float x = j < n && score(marks, c, row, j) > mean ? high : low;
    std::fill_n(c.value(j), c.shape.value_channels, x);
  }
}

void fill_values(Random& random, const Landmarks& marks, Candidate& c) {
  const Index n = c.shape.keys, dv = c.shape.value_channels;
  const Format& format = marks.operand;
  const auto each = [&](auto&& value) {
    for (Index j = 0; j < n; ++j) {
      for (Index ch = 0; ch < dv; ++ch) c.value(j)[ch] = value(j, ch);
    }
  };
  switch (random.below(14)) {
    case 0:
      return each([](Index, Index) { return 1.0F; });
    case 1: {
      const float x = random.pick({0.30078125F, 0.75F, 0.99609375F, 1.984375F, 3.0F, -1.5F});
      return each([&](Index, Index) { return x; });
    }
    case 2: {
      const float x = random.pick({1.0F, 0.5F, 64.0F});
      return each([&](Index j, Index ch) { return (j + ch) % 2 == 0 ? x : -x; });
    }
    case 3:
    case 4:
      return values_by_score(random, marks, c);
    case 5:
    case 6: {  // the numerator at the end of its range
      const double x = std::clamp(two_to(brink_of_sum(random, marks, c.length())),
                                  two_to(format.emin), format.max_finite());
      const bool alternate = random.chance(0.2);
      return each([&](Index j, Index) { return to_float(alternate && j % 2 != 0 ? -x : x); });
    }
    case 7: {
      const auto x = static_cast<float>(format.max_finite());
      const std::uint64_t how = random.below(3);
      return each([&](Index j, Index ch) {
        return how == 0 || (how == 1 && (j + ch) % 2 == 0) ? x : how == 1 ? -x : j == 0 ? x : 0.0F;
      });
    }
    case 8: {  // all below 1
      const double x = two_to(-static_cast<int>(random.between(1, std::min(-format.emin, 40))));
      return each([&](Index j, Index) { return to_float(x * (j % 3 == 0 ? 1 : 0.75)); });
    }
    case 9: {  // subnormal, or as good as
      const double x = two_to(format.least_exponent() + static_cast<int>(random.between(0, 10)));
      return each([&](Index, Index) { return to_float(x); });
    }
    case 10:
      return each([](Index j, Index) { return static_cast<float>(j % 20) / 32; });
    case 11:
      return each([&](Index j, Index ch) { return j % dv == ch ? 1.0F : 0.0F; });
    case 12:
      return each([&](Index j, Index) { return j == n - 1 ? 1.0F : 0.0F; });
    default: {
      const double deviation = two_to(static_cast<int>(random.between(-4, 6)));
      const double mean = random.coin() ? 0 : deviation * random.uniform(-4, 4);
      return each([&](Index, Index) { return to_float(mean + deviation * random.normal()); });
    }
  }
}

void scramble(Random& random, Candidate& c) {
  const Index d = c.shape.channels;
  const auto swap_channels = [&](Index a, Index b) {
    for (Index i = 0; i < c.shape.queries; ++i) std::swap(c.query(i)[a], c.query(i)[b]);
    for (Index j = 0; j < c.shape.keys; ++j) std::swap(c.key(j)[a], c.key(j)[b]);
  };
  for (Index a = d - 1; a > 0; --a) {
    const Index b = random.between(0, a);
    if (a != b) swap_channels(a, b);
  }
  for (Index a = 0; a < d; ++a) {
    if (random.coin()) continue;
    for (Index i = 0; i < c.shape.queries; ++i) c.query(i)[a] = -c.query(i)[a];
    for (Index j = 0; j < c.shape.keys; ++j) c.key(j)[a] = -c.key(j)[a];
  }
}

void lay_levels(Random& random, const Landmarks& marks, const std::vector<double>& levels,
                double target, Candidate& c) {
  zero(c);
  const Format& format = marks.operand;
  const Index n = c.shape.keys, d = c.shape.channels;
  const double factor = marks.factor == 0 ? 1 : marks.factor;
  double largest = 0;
  for (const double level : levels) largest = std::max(largest, std::fabs(level));
  // the query's part along the keys: small, so that keys carry the levels' digits; but their
  // magnitude stays in the format
  int e = static_cast<int>(random.between(-2, 7));
  const double wish = largest / std::fabs(factor);
  const double top = two_to(format.emax - 2);
  while (wish / two_to(e) > top && e < format.emax - 2) ++e;
  const double a = random.chance(0.7) ? two_to(e) : two_to(e) * random.uniform(1, 2);
  const auto along = static_cast<double>(operand_number(format, a));
  for (Index j = 0; j < n; ++j) {
    const double level = j < static_cast<Index>(levels.size()) ? levels[at(j)] : 0;
    c.key(j)[0] = operand_number(format, level / (factor * along));
  }
  if (d >= 3 && random.coin()) {
    const double w = std::min(random.pick({1.0, 0.5, 4.0}), format.max_finite());
    const Index stride = random.pick({Index{1}, Index{2}, Index{5}});
    for (Index j = 0; j < n; ++j) c.key(j)[2] = static_cast<float>((j / stride) % 2 == 0 ? w : -w);
  }
  for (Index i = 0; i < c.shape.queries; ++i) c.query(i)[0] = static_cast<float>(along);
  if (target > 0) {
    const Centre centre = pick_centre(random, marks);
    if (d == 1) {
      aim_at_gate(marks, target, centre, c);
    } else if (const double norm = std::fabs(factor) * largest_key_norm(marks, c, centre);
               norm > 0) {
      const bool all_rows = random.chance(0.7);
      for (Index i = 0; i < c.shape.queries; ++i) {
        const double part = all_rows || i == 0 ? 1 : random.uniform();
        const double whole = target * part / norm;
        double rest = whole * whole * (1 - 0x1p-40) - along * along;
        for (Index ch = 1; ch < d && ch < 6 && rest > 0; ++ch) {
          if (ch == 2) continue;  // keys may have it
          const double b = static_cast<double>(toward_zero(format, std::sqrt(rest)));
          c.query(i)[ch] = static_cast<float>(random.coin() ? b : -b);
          rest -= b * b;
        }
      }
    }
  }
  scramble(random, c);
}

}  // namespace headroom::fuzz
