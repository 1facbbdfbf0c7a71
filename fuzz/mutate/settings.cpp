// What hides keys, what is added to scores, and how many rows there are.
#include <limits>

#include "fuzz/mutate/families.h"

namespace headroom::fuzz::change {
namespace {

void resize_rows(Index rows, Index width, std::vector<float>& numbers) {
  const std::size_t had = numbers.size(), want = at(rows * width);
  numbers.resize(want);
  // what is new repeats what was there, row by row
  for (std::size_t i = had; i < want; ++i) numbers[i] = numbers[i - had];
}

}  // namespace

void new_setting(Random& random, const Landmarks& marks, const SearchSpace& space, const Candidate&,
                 Candidate& c) {
  c.setting = make_setting(random, space, marks, c.shape);
}

void nudge_setting(Random& random, const Landmarks& marks, const SearchSpace& space,
                   const Candidate&, Candidate& c) {
  Setting& s = c.setting;
  const Index keys = c.shape.keys;
  switch (random.below(6)) {
    case 0:
      if (space.lengths) {
        const Index n = c.length() + (random.coin() ? 1 : -1);
        if (n >= 1) s.length = n < keys ? n : -1;
      }
      break;
    case 1:
      if (s.window) {
        std::int64_t& side = random.coin() ? s.window->left : s.window->right;
        side = std::max<std::int64_t>(side + random.between(-1, 1), -1);
      }
      break;
    case 2:
      if (!s.visible.empty()) {
        std::uint8_t& x = s.visible[random.below(s.visible.size())];
        x = x != 0 ? 0 : 1;
      }
      break;
    case 3:
      if (!s.bias.empty()) {
        float& b = s.bias[random.below(s.bias.size())];
        const double z = pick_score(random, marks) * 0x1.62e42fefa39efp-1;
        const std::uint64_t how = random.below(4);
        b = how == 0   ? 0
            : how == 1 ? -std::numeric_limits<float>::infinity()
            : how == 2 ? std::numeric_limits<float>::lowest()
                       : to_float(z);
      }
      break;
    case 4:
      if (space.sinks && s.sink) {
        *s.sink += random.pick({1.0, -1.0, 30.0, -30.0, 90.0, -90.0});
      } else if (space.sinks) {
        s.sink = pick_score(random, marks) * 0x1.62e42fefa39efp-1;
      }
      break;
    default:
      if (s.softcap) {
        *s.softcap *= random.pick({0.5, 2.0, 0.984375});
      } else if (!space.masks.empty()) {
        s.mask = random.pick(space.masks);
      }
  }
}

/// Padding holds NaN or infinities, or numbers again; or a query or a visible key holds NaN.
void poison(Random& random, const Landmarks& marks, const SearchSpace& space, const Candidate&,
            Candidate& c) {
  const bool padded = space.poison && c.length() < c.shape.keys;
  if (space.poison_visible && (!padded || random.coin())) {
    if (!marks.operand.has_nan()) return;
    const bool query = random.chance(0.2);
    const Index row = random.between(0, (query ? c.shape.queries : c.length()) - 1);
    float* numbers = query ? c.query(row) : c.key(row);
    numbers[random.between(0, c.shape.channels - 1)] = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  constexpr float infinity = std::numeric_limits<float>::infinity();
  float x =
      random.pick({std::numeric_limits<float>::quiet_NaN(), infinity, -infinity, 1e30F, 0.0F});
  if (!marks.operand.has_infinity() && std::isinf(x)) x = marks.operand.has_nan() ? NAN : 0.0F;
  if (!marks.operand.has_nan() && std::isnan(x)) x = 0.0F;
  const std::uint64_t which = random.below(3);
  const Index n = c.length(), rows = c.shape.keys - n;
  if (which != 1) std::fill_n(c.key(n), rows * c.shape.channels, x);
  if (which != 0) std::fill_n(c.value(n), rows * c.shape.value_channels, x);
}

/// Another shape of the space with as many channels: rows are cut off, or repeat.
void resize(Random& random, const Landmarks&, const SearchSpace& space, const Candidate&,
            Candidate& c) {
  const Shape& s = space.shapes[random.below(space.shapes.size())];
  if (s.channels != c.shape.channels || s.value_channels != c.shape.value_channels) return;
  resize_rows(s.queries, s.channels, c.q);
  resize_rows(s.keys, s.channels, c.k);
  resize_rows(s.keys, s.value_channels, c.v);
  c.shape = s;
}

}  // namespace headroom::fuzz::change
