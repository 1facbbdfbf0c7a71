// Heads whose scores are chosen, and the gate's value with them.
#include "fuzz/generate/families.h"

namespace headroom::fuzz::generate {
namespace {

/// A gate's value to reach, or 0 where nothing looks at norms and none is wanted.
double gate_or_none(Random& random, const Landmarks& marks) {
  const bool wanted = random.chance(marks.gate_limit > 0 ? 0.9 : 0.1);
  return wanted ? pick_target(random, marks) : 0;
}

/// The score at which a weight flushes, of a row whose gate has this value: rules round mu up.
double flush_score(Random& random, const Landmarks& marks, double target) {
  return (random.coin() ? std::ceil(target) : target) - marks.cap + marks.flush;
}

/// `high` and `low` to so many and the rest, in blocks, alternating or at random.
void arrange(Random& random, Index highs, double high, double low, std::vector<double>& levels) {
  const auto n = static_cast<Index>(levels.size());
  std::fill(levels.begin(), levels.end(), low);
  switch (random.below(3)) {
    case 0:
      std::fill_n(levels.begin(), highs, high);
      return;
    case 1:
      std::fill_n(levels.end() - highs, highs, high);
      return;
    default: {  // evenly spread
      Index sum = random.between(0, n - 1);
      for (double& level : levels) {
        sum += highs;
        if (sum < n) continue;
        sum -= n;
        level = high;
      }
    }
  }
}

void values(Random& random, const Landmarks& marks, Candidate& c, double by_score) {
  if (random.chance(by_score)) {
    values_by_score(random, marks, c);
  } else {
    fill_values(random, marks, c);
  }
}

/// A place for one key: ends, ends of tiles, anywhere.
Index pick_place(Random& random, const Landmarks& marks, Index n) {
  const Index block = std::clamp<Index>(marks.key_block, 1, n);
  switch (random.below(5)) {
    case 0:
      return 0;
    case 1:
      return n - 1;
    case 2:
      return random.below(static_cast<std::uint64_t>((n + block - 1) / block)) * block;
    case 3:
      return std::min(n - 1, block - 1);
    default:
      return random.between(0, n - 1);
  }
}

/// The tile of a key, or of a head that is one tile, quarters.
Index pseudo_tile(const Landmarks& marks, Index n) {
  return marks.key_block < n ? marks.key_block : std::max<Index>(1, n / 4);
}

}  // namespace

/// Two levels that balance about the mean, the lower one just below the flush threshold of a row
/// that the gate just takes.
void two_level(Random& random, const Landmarks& marks, Candidate& c) {
  const Index n = c.length();
  std::vector<double> levels(at(n));
  const double target = gate_or_none(random, marks);
  const Index highs = n == 1 ? 1 : random.between(1, n - 1);
  const double margin = pick_margin(random);
  double low = -random.uniform(0.01, 3), high = 0;
  if (target > 0 && random.chance(0.8)) {
    const double threshold = flush_score(random, marks, target);
    if (threshold - margin < 0) low = threshold - margin;
    high = n == highs ? 0 : -low * static_cast<double>(n - highs) / static_cast<double>(highs);
  } else {
    low = pick_tail(random, marks, n);
    const double base = random.chance(0.3) ? pick_score(random, marks) : 0;
    low += base;
    high = base;
  }
  arrange(random, highs, high, low, levels);
  lay_levels(random, marks, levels, target, c);
  values(random, marks, c, 0.6);
}

void multi_level(Random& random, const Landmarks& marks, Candidate& c) {
  const Index n = c.length();
  const double target = gate_or_none(random, marks);
  const Index kinds = random.between(3, 6);
  std::vector<double> kind(at(kinds)), levels(at(n));
  for (double& x : kind) {
    const std::uint64_t how = random.below(4);
    x = how == 0   ? pick_tail(random, marks, n)
        : how == 1 ? 0
        : how == 2 ? random.uniform(-4, 4)
                   : flush_score(random, marks, target);
    if (how == 3) x += either_sign(random, pick_margin(random));
  }
  double mean = 0;
  for (double& x : levels) {
    x = random.pick(kind);
    mean += x / static_cast<double>(n);
  }
  if (random.chance(0.7)) {
    for (double& x : levels) x -= mean;
  }
  lay_levels(random, marks, levels, target, c);
  values(random, marks, c, 0.4);
}

/// Every row all of whose scores lie far from 0: -120, -5e4, -524288, and this kernel's own marks.
void far_rows(Random& random, const Landmarks& marks, Candidate& c) {
  zero(c);
  const Format& format = marks.operand;
  const Index d = c.shape.channels;
  const double factor = marks.factor == 0 ? 1 : marks.factor;
  const bool spread = random.coin() || d == 1;
  const Index used = spread ? d : 1;
  const double base = random.pick({-64.0, 1.0, -1.0, 16.0, -4.0});
  for (Index j = 0; j < c.shape.keys; ++j) {
    for (Index ch = 0; ch < used; ++ch) c.key(j)[ch] = static_cast<float>(base);
  }
  const bool one_for_all = random.coin();
  double s = pick_score(random, marks);
  for (Index i = 0; i < c.shape.queries; ++i) {
    if (!one_for_all && i > 0) s = pick_score(random, marks);
    for (Index ch = 0; ch < used; ++ch) {
      c.query(i)[ch] = operand_number(format, s / (factor * base * static_cast<double>(used)));
    }
  }
  if (!spread && random.coin()) {  // a little that tells keys apart
    const double step = pick_margin(random);
    for (Index i = 0; i < c.shape.queries; ++i) c.query(i)[1] = 1;
    for (Index j = 0; j < c.shape.keys; ++j) {
      c.key(j)[1] = operand_number(format, random.uniform(-1, 1) * step / factor);
    }
  }
  scramble(random, c);
  values(random, marks, c, 0.1);
}

/// A maximum that rises from tile to tile, by just under and just over the threshold.
void creeping_maximum(Random& random, const Landmarks& marks, Candidate& c) {
  const Index n = c.length(), tile = pseudo_tile(marks, n);
  const double threshold =
      marks.threshold > 0 ? marks.threshold : random.pick({1.0, 4.0, 8.0, 16.0});
  const double slack = random.pick({0.0, 0x1p-8, 0x1p-5, 0.5});
  const bool within_tiles = random.coin();
  const double first = random.chance(0.2) ? pick_score(random, marks) : 0;
  std::vector<double> levels(at(n));
  double top = first;
  for (Index j = 0; j < n; ++j) {
    if (j > 0 && j % tile == 0) {
      const std::uint64_t how = random.below(4);
      top += how == 0 ? threshold + slack : how == 1 ? threshold * 0.5 : threshold - slack;
    }
    const bool at_top = within_tiles ? j % tile == 0 : true;
    levels[at(j)] = at_top ? top : top - random.uniform(0, 12);
  }
  lay_levels(random, marks, levels, gate_or_none(random, marks), c);
  // some rows fall where the others rise, or rise by a little more
  for (Index i = 1; i < c.shape.queries; ++i) {
    const float by = random.pick({1.0F, 1.0F, -1.0F, 1.015625F, 0.984375F, 0.5F});
    for (Index ch = 0; ch < c.shape.channels; ++ch) c.query(i)[ch] *= by;
  }
  values(random, marks, c, 0.4);
}

/// Rows that share a block and want opposite things: one falls far where another rises by more
/// than the threshold.
void opposed_rows(Random& random, const Landmarks& marks, Candidate& c) {
  zero(c);
  const Format& format = marks.operand;
  const Index n = c.length(), d = c.shape.channels, tile = pseudo_tile(marks, n);
  const double factor = marks.factor == 0 ? 1 : marks.factor;
  const double threshold = marks.threshold > 0 ? marks.threshold : 8;
  const double about = random.uniform(0.8, 1.2);
  const double far = about * random.pick({60.0, 80.0, 100.0, 140.0, 160.0});
  const double rise = threshold * random.uniform(1, 4);
  const Index turn = random.between(1, std::max<Index>(1, (n - 1) / tile));
  const double q = random.pick({1.0, 4.0, 16.0});
  for (Index j = 0; j < n; ++j) {
    const bool after = j / tile >= turn;
    c.key(j)[0] = operand_number(format, (after ? -0.6 : 1) * far / (factor * q));
    if (d >= 2) c.key(j)[1] = operand_number(format, (after ? rise : 0) / (factor * q));
  }
  for (Index i = 0; i < c.shape.queries; ++i) {
    const bool falls = i % 2 == 0;
    c.query(i)[0] = static_cast<float>(falls ? q : d >= 2 ? 0 : -q / 4);
    if (d >= 2 && !falls) c.query(i)[1] = static_cast<float>(q);
  }
  scramble(random, c);
  values(random, marks, c, 0.3);
}

/// One hot key, and as many at one level below as there are: a mass that only counts together.
void hot_and_tails(Random& random, const Landmarks& marks, Candidate& c) {
  const Index n = c.length();
  const double tail = pick_tail(random, marks, n);
  const double base = random.chance(0.3) ? pick_score(random, marks) : 0;
  std::vector<double> levels(at(n), base + tail);
  levels[at(pick_place(random, marks, n))] = base;
  if (random.chance(0.2)) levels[at(pick_place(random, marks, n))] = base;
  lay_levels(random, marks, levels, gate_or_none(random, marks), c);
  values(random, marks, c, 0.5);
}

/// Several keys of a row hold its maximum, in one tile or in many.
void duplicate_maxima(Random& random, const Landmarks& marks, Candidate& c) {
  const Index n = c.length();
  const double deviation = random.pick({0.5, 4.0, 30.0});
  const double base = random.chance(0.3) ? pick_score(random, marks) : 0;
  std::vector<double> levels(at(n));
  for (double& x : levels) x = base - std::fabs(deviation * random.normal());
  const Index copies = random.between(2, std::max<Index>(2, n / 2));
  for (Index i = 0; i < copies; ++i) levels[at(pick_place(random, marks, n))] = base;
  lay_levels(random, marks, levels, gate_or_none(random, marks), c);
  values(random, marks, c, 0.3);
}

/// A key that takes all of the mass, most often the first, with next to no value.
void sink_key(Random& random, const Landmarks& marks, Candidate& c) {
  const Index n = c.length();
  const double height = random.pick({8.0, 20.0, 60.0, 126.0, 140.0, 400.0});
  std::vector<double> levels(at(n));
  for (double& x : levels) x = random.normal() * 2;
  const Index place = random.chance(0.7) ? 0 : pick_place(random, marks, n);
  levels[at(place)] += height;
  lay_levels(random, marks, levels, gate_or_none(random, marks), c);
  fill_values(random, marks, c);
  if (random.coin()) std::fill_n(c.value(place), c.shape.value_channels, 0.0F);
}

/// Keys whose mean is 0 or so, but not that of the first of them, which is all that early rows of a
/// causal head see: anti-aligned with every query, as far as the gate lets them.
void causal_prefix(Random& random, const Landmarks& marks, Candidate& c) {
  const Index n = c.length();
  const double target = pick_target(random, marks);
  const Index first = n == 1 ? 1 : random.between(1, std::max<Index>(1, n / 2));
  const double low = -target * random.uniform(0.5, 1.02);
  std::vector<double> levels(at(n));
  for (Index j = 0; j < n; ++j) {
    levels[at(j)] =
        j < first ? low : -low * static_cast<double>(first) / static_cast<double>(n - first);
    if (random.chance(0.2)) levels[at(j)] += random.normal();
  }
  lay_levels(random, marks, levels, target, c);
  values(random, marks, c, 0.3);
}

/// Weights on both sides of every threshold below a row's maximum, by ulps.
void flush_edge(Random& random, const Landmarks& marks, Candidate& c) {
  const Index n = c.length();
  const double target = marks.gate_limit > 0 ? pick_target(random, marks) : 0;
  const bool fixed = marks.gate_limit > 0 && random.chance(0.7);
  const double edge = fixed ? flush_score(random, marks, target) : marks.flush;
  std::vector<double> levels(at(n));
  for (double& x : levels) {
    const std::uint64_t how = random.below(4);
    const double margin = either_sign(random, pick_margin(random));
    x = how == 0   ? edge + margin
        : how == 1 ? edge
        : how == 2 ? pick_tail(random, marks, n)
                   : margin;
  }
  if (!fixed) levels[at(pick_place(random, marks, n))] = 0;
  lay_levels(random, marks, levels, target, c);
  values(random, marks, c, 0.5);
}

/// Parts of a row's keys whose own sums differ by more than any format's range, or that see
/// nothing of weight.
void uneven_parts(Random& random, const Landmarks& marks, Candidate& c) {
  const Index n = c.length();
  const Index parts = marks.parts > 1 ? marks.parts : random.between(2, 4);
  const Index size = std::max<Index>(1, (n + parts - 1) / parts);
  std::vector<double> levels(at(n));
  double level = 0;
  for (Index j = 0; j < n; ++j) {
    if (j % size == 0) {
      level = random.pick({0.0, 0.0, 90.0, -90.0, 130.0, -130.0, -200.0, 1000.0, -1e4, 3.0});
      if (random.chance(0.2)) level = pick_score(random, marks);
    }
    levels[at(j)] = level + (random.coin() ? 0 : random.uniform(-2, 2));
  }
  lay_levels(random, marks, levels, 0, c);
  values(random, marks, c, 0.4);
}

}  // namespace headroom::fuzz::generate
