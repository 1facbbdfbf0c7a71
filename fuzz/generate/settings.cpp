// What a head has beside Q, K and V: what hides keys, and what is added to scores.
#include <limits>

#include "fuzz/generate/pieces.h"

namespace headroom::fuzz {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// A number of keys near what tiles and powers of two are, 1 .. keys.
Index pick_length(Random& random, const Landmarks& marks, Index keys) {
  const Index block = std::max(marks.key_block, 1);
  const Index shift = random.between(-1, 1);
  Index n = keys;
  switch (random.below(6)) {
    case 0:
      n = Index{1} << random.between(0, floor_log2(static_cast<std::uint64_t>(keys)));
      n += shift;
      break;
    case 1:
      n = block * random.between(1, std::max<Index>(1, keys / block)) + shift;
      break;
    case 2:  // half a tile more or less
      n = keys - block / 2;
      break;
    case 3:
      n = keys - 1;
      break;
    case 4:
      n = 1;
      break;
    default:
      n = random.between(1, keys);
  }
  return std::clamp<Index>(n, 1, keys);
}

/// Which keys are off, by range: first tiles, last tiles, whole parts, all but one, all.
std::vector<std::uint8_t> some_keys(Random& random, const Landmarks& marks, Index keys) {
  const Index block = std::clamp<Index>(marks.key_block, 1, keys);
  std::vector<std::uint8_t> on(at(keys), 1);
  const auto off = [&](Index begin, Index end) {
    for (Index j = std::max<Index>(begin, 0); j < std::min(end, keys); ++j) on[at(j)] = 0;
  };
  switch (random.below(8)) {
    case 0: {  // the first tiles
      const Index tiles = random.between(1, std::max<Index>(1, keys / block));
      off(0, tiles * block < keys ? tiles * block : keys - 1);
      break;
    }
    case 1: {  // the last tiles, or some of the last
      off(pick_length(random, marks, keys), keys);
      break;
    }
    case 2: {  // a part that is split off sees nothing
      const Index parts = marks.parts > 1 ? marks.parts : 2;
      const Index size = (keys + parts - 1) / parts, part = random.between(0, parts - 1);
      off(part * size, (part + 1) * size);
      break;
    }
    case 3: {  // one key
      const Index one = random.between(0, keys - 1);
      off(0, one);
      off(one + 1, keys);
      break;
    }
    case 4:
      for (Index j = 0; j < keys; j += 2) on[at(j)] = 0;
      break;
    case 5: {
      const double share = random.uniform();
      for (std::uint8_t& x : on) x = random.chance(share) ? 1 : 0;
      break;
    }
    case 6: {  // a tile in the middle
      const Index tile = random.between(0, (keys - 1) / block);
      off(tile * block, (tile + 1) * block);
      break;
    }
    default:
      if (random.chance(0.3)) off(0, keys);
  }
  return on;
}

void add_segments(Random& random, const Shape& shape, Setting& s) {
  s.query_segments.assign(at(shape.queries), 0);
  s.key_segments.assign(at(shape.keys), 0);
  const Index kinds = random.between(2, 4);
  const std::uint64_t how = random.below(3);
  for (Index i = 0; i < shape.queries; ++i) {
    s.query_segments[at(i)] = static_cast<std::int32_t>(how == 0 ? i * kinds / shape.queries
                                                                 : random.between(0, kinds - 1));
  }
  for (Index j = 0; j < shape.keys; ++j) {
    s.key_segments[at(j)] =
        static_cast<std::int32_t>(how == 2 ? random.between(0, kinds - 1) : j * kinds / shape.keys);
  }
  if (random.chance(0.1)) s.query_segments[0] = -1;  // a row without keys
}

void add_visible(Random& random, const Landmarks& marks, const Shape& shape, Setting& s) {
  if (random.coin()) {
    s.visible = some_keys(random, marks, shape.keys);
    return;
  }
  const std::vector<std::uint8_t> one = some_keys(random, marks, shape.keys);
  for (Index i = 0; i < shape.queries; ++i) {
    const std::vector<std::uint8_t> row =
        random.coin() ? one : some_keys(random, marks, shape.keys);
    s.visible.insert(s.visible.end(), row.begin(), row.end());
  }
}

/// A finite stand-in for minus infinity, or what two of them add up to.
float mask_value(Random& random) {
  constexpr float lowest = std::numeric_limits<float>::lowest();
  const float one = random.pick({lowest, lowest / 2, -65504.0F, -3.3895314e38F, -1e4F, -5e4F, -1e6F,
                                 -1e30F, -0x1.666666p127F, -65488.0F, -65520.0F});
  const bool twice = random.chance(0.25);
  return twice ? std::max(one * 2, lowest) : one;
}

void add_bias(Random& random, const Landmarks& marks, const Shape& shape, Setting& s) {
  const Index rows = random.coin() ? 1 : shape.queries;
  s.bias.assign(at(rows * shape.keys), 0);
  const std::uint64_t how = random.below(8);
  const double slope = two_to(-static_cast<int>(random.between(0, 8)));
  const float low = mask_value(random);
  const float small = random.pick({-16.0F, -15.9921875F, -100.0F, 100.0F, 30.0F, -1000.0F});
  for (Index i = 0; i < rows; ++i) {
    const std::vector<std::uint8_t> on = some_keys(random, marks, shape.keys);
    for (Index j = 0; j < shape.keys; ++j) {
      float& b = s.bias[at(i * shape.keys + j)];
      switch (how) {
        case 0:
          b = on[at(j)] != 0 ? 0 : minus_infinity;
          break;
        case 1:
          b = on[at(j)] != 0 ? 0 : low;
          break;
        case 2:
          b = low;
          break;
        case 3: {  // falls with the distance to the diagonal
          const Index away = rows == 1 ? shape.keys - 1 - j : i + shape.keys - shape.queries - j;
          b = to_float(-slope * std::fabs(static_cast<double>(away)));
          break;
        }
        case 4:
          b = to_float(random.normal() * 4);
          break;
        case 5:
          b = on[at(j)] != 0 ? small : 0;
          break;
        case 6:  // both ends beside numbers
          b = on[at(j)] != 0 ? to_float(random.normal()) : random.coin() ? low : minus_infinity;
          break;
        default: {
          const double z = pick_score(random, marks);
          b = on[at(j)] != 0 ? 0 : to_float(z * 0x1.62e42fefa39efp-1);
        }
      }
    }
  }
}

}  // namespace

Setting make_setting(Random& random, const SearchSpace& space, const Landmarks& marks,
                     const Shape& shape) {
  Setting s;
  if (!space.masks.empty()) s.mask = random.pick(space.masks);
  if (s.mask == MaskKind::causal && shape.queries != shape.keys) {
    s.mask = MaskKind::causal_bottom_right;
  }
  // most heads have little: simulators are prepared for a setting
  if (random.chance(0.4)) return s;
  constexpr double often = 0.35;
  if (space.lengths && random.chance(often)) {
    const Index n = pick_length(random, marks, shape.keys);
    if (n < shape.keys) s.length = n;
  }
  if (space.windows && random.chance(often)) {
    Window w;
    const Index left = pick_length(random, marks, shape.keys);
    const Index right = pick_length(random, marks, shape.keys);
    const std::uint64_t how = random.below(4);
    if (how != 1) w.left = left - 1;
    if (how != 2) w.right = how == 3 ? 0 : right - 1;
    s.window = w;
  }
  if (space.segments && random.chance(often)) add_segments(random, shape, s);
  if (space.booleans && random.chance(often)) add_visible(random, marks, shape, s);
  if (space.biases && random.chance(often)) add_bias(random, marks, shape, s);
  if (space.softcaps && random.chance(often)) {
    s.softcap = random.pick({50.0, 30.0, 20.0, 1.0, 0.0625, 1000.0});
    // constants that FP32 holds no longer
    if (random.chance(0.1)) s.softcap = random.pick({0x1p-120, 0x1p-148, 0x1p120, 0x1p127});
  }
  if (space.sinks && random.chance(often)) {
    const double natural = pick_score(random, marks) * 0x1.62e42fefa39efp-1;
    const double plain = random.pick({0.0, 10.0, 60.0, 100.0, 400.0, -60.0, -1000.0, 1e4});
    s.sink = random.coin() ? natural : plain;
  }
  return s;
}

}  // namespace headroom::fuzz
