#include "fuzz/mutate.h"

#include <emmintrin.h>

#include "fuzz/mutate/families.h"

namespace headroom::fuzz {
namespace {

bool has_settings(const SearchSpace& s) {
  return s.masks.size() > 1 || s.lengths || s.windows || s.segments || s.booleans || s.biases ||
         s.softcaps || s.sinks;
}

bool has_shapes(const SearchSpace& space, const Shape& shape) {
  return std::any_of(space.shapes.begin(), space.shapes.end(), [&](const Shape& s) {
    return s != shape && s.channels == shape.channels && s.value_channels == shape.value_channels;
  });
}

bool can_change(const Mutator& m, const SearchSpace& space, const Candidate& c) {
  switch (m.needs) {
    case Mutator::Needs::settings:
      return has_settings(space);
    case Mutator::Needs::poison:
      return space.poison_visible || (space.poison && c.length() < c.shape.keys);
    case Mutator::Needs::shapes:
      return has_shapes(space, c.shape);
    default:
      return true;
  }
}

/// A place in the list for each of 512 draws, in proportion to the weights.
std::array<std::uint8_t, 512> make_draws() {
  const std::vector<Mutator>& all = mutators();
  double sum = 0;
  for (const Mutator& m : all) sum += m.weight;
  std::array<std::uint8_t, 512> draws{};
  double upto = 0;
  std::size_t next = 0;
  for (std::size_t m = 0; m < all.size(); ++m) {
    upto += all[m].weight / sum * 512;
    while (next < 512 && static_cast<double>(next) < upto) {
      draws[next++] = static_cast<std::uint8_t>(m);
    }
  }
  return draws;
}

/// Zeros for what is not finite, other than in padding; `visible`: Q and K are left alone.
void cure(Candidate& c, bool visible) {
  const auto n = c.length();
  const auto rows = [](std::vector<float>& numbers, std::int64_t count) {
    // four at a time: there is hardly ever anything to do
    const __m128i infinity = _mm_set1_epi32(0x7f800000);
    std::int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
      float* x = numbers.data() + i;
      const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
      const __m128i special = _mm_cmpeq_epi32(_mm_and_si128(bits, infinity), infinity);
      if (_mm_movemask_epi8(special) == 0) continue;
      _mm_storeu_si128(reinterpret_cast<__m128i*>(x), _mm_andnot_si128(special, bits));
    }
    for (; i < count; ++i) {
      if (!std::isfinite(numbers[at(i)])) numbers[at(i)] = 0;
    }
  };
  if (!visible) {
    rows(c.q, c.shape.queries * c.shape.channels);
    rows(c.k, n * c.shape.channels);
  }
  rows(c.v, n * c.shape.value_channels);
}

}  // namespace

const std::vector<Mutator>& mutators() {
  using namespace change;  // NOLINT(google-build-using-namespace): the list itself
  using enum Mutator::Needs;
  static const std::vector<Mutator> all = {
      {"flip-bit", "one bit of one number", 10, flip_bit},
      {"nudge", "one number by a few ulps", 10, nudge},
      {"scale-element", "one number by a power of two", 8, scale_element},
      {"special-element", "one number to an end of its format, 0, 1 or a power of two", 6,
       special_element},
      {"negate", "the sign of a number or a row", 5, negate},
      {"copy-element", "one number to another place", 4, copy_element},
      {"scale-row", "a row by a power of two, or by ulps", 6, scale_row},
      {"zero-row", "a row of zeros", 2, zero_row},
      {"power-row", "a row of powers of two", 2, power_row},
      {"scale-channel", "a channel by a power of two", 3, scale_channel},
      {"trade-channel", "norms between Q and K, scores kept", 2, trade_channel},
      {"zero-channel", "a channel of zeros", 1, zero_channel},
      {"shift-channel", "every key by the same amount in one channel", 2, shift_channel},
      {"copy-key", "a key twice", 6, copy_key},
      {"swap-keys", "two keys", 3, swap_keys},
      {"copy-query", "a query twice", 3, copy_query},
      {"rotate-keys", "all keys by some places", 1, rotate_keys},
      {"swap-tiles", "two tiles of keys", 1, swap_tiles},
      {"cluster-keys", "all keys within an ulp or two of one", 0.5, cluster_keys},
      {"value-row", "the values of one key", 4, value_row},
      {"scale-values", "V by a power of two, or to the brink of the sums", 1.5, scale_values},
      {"fill-values", "new values", 0.75, fill_all_values},
      {"cross-rows", "rows of another head", 4, cross_rows},
      {"cross-matrix", "Q, K or V of another head", 1, cross_matrix},
      {"refill", "a generator", 0.3, refill},
      {"refill-part", "Q, K or V of a generator", 0.3, refill_part},
      {"align-query", "a query to or against a key", 5, align_query},
      {"orthogonal-query", "a query less its part along a key", 3, orthogonal_query},
      {"aim-score", "one score to a mark, a threshold or another score", 10, aim_score},
      {"aim-row", "a query by the factor that takes a score to a mark", 3, aim_row},
      {"aim-gate", "Q by the factor that takes the gate's value to its limit", 1.5, aim_gate},
      {"aim-levels", "a row's scores to two levels", 0.3, aim_levels},
      {"shift-tile", "a tile's scores by a threshold", 2, shift_tile},
      {"new-setting", "masks, biases, caps and sinks anew", 2, new_setting, settings},
      {"nudge-setting", "one part of the setting by a little", 4, nudge_setting, settings},
      {"poison", "NaN and infinities in padding, NaN where it is looked for", 3, change::poison,
       Mutator::Needs::poison},
      {"resize", "another number of rows", 1, resize, shapes},
  };
  return all;
}

std::uint64_t mutate(Random& random, const Landmarks& marks, const SearchSpace& space,
                     const Candidate& other, Candidate& c) {
  static const std::array<std::uint8_t, 512> draws = make_draws();
  const std::vector<Mutator>& all = mutators();
  const std::uint64_t coins = random.bits();
  const int count = 1 + std::min(std::countr_zero(coins | 8U), 3);
  std::uint64_t used = 0;
  for (int i = 0; i < count; ++i) {
    std::size_t m = draws[random.below(draws.size())];
    while (!can_change(all[m], space, c)) m = draws[random.below(draws.size())];
    all[m].change(random, marks, space, other, c);
    // the next one reads lengths and masks
    if (all[m].needs != Mutator::Needs::nothing) repair(c);
    used |= std::uint64_t{1} << m;
  }
  repair(c);
  if (space.poison || space.poison_visible) cure(c, space.poison_visible);
  round_operands(c, marks.operand);
  return used;
}

void move(const Motion& motion, Candidate& c) {
  double by[Motion::dimensions];
  for (int i = 0; i < Motion::dimensions; ++i) by[i] = std::clamp(motion.by[i], -256.0, 256.0);
  const std::int64_t d = c.shape.channels, n = c.length();
  const auto scale = [](std::vector<float>& numbers, double factor) {
    for (float& x : numbers) x = to_float(static_cast<double>(x) * factor);
  };
  const auto count = static_cast<double>(n);
  std::vector<double> mean(at(d));
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t ch = 0; ch < d; ++ch)
      mean[at(ch)] += static_cast<double>(c.key(j)[ch]) / count;
  }
  if (by[1] != 0 || by[2] != 0) {
    const double spread = power_of_two(by[1]), centre = power_of_two(by[2]);
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t ch = 0; ch < d; ++ch) {
        float& x = c.key(j)[ch];
        const double m = mean[at(ch)];
        x = to_float(m * centre + (static_cast<double>(x) - m) * spread);
      }
    }
    for (double& m : mean) m *= centre;
  }
  if (by[0] != 0) scale(c.q, power_of_two(by[0]));
  if (by[3] != 0) scale(c.v, power_of_two(by[3]));
  if (by[4] == 0 && by[5] == 0) return;
  std::int64_t longest = 0;
  double norm = 0;
  for (std::int64_t j = 0; j < n; ++j) {
    const double size = square(c.key(j), d);
    if (size > norm) {
      norm = size;
      longest = j;
    }
  }
  if (!(norm > 0) || !std::isfinite(norm)) return;
  norm = std::sqrt(norm);
  std::vector<double> direction(at(d));
  for (std::int64_t ch = 0; ch < d; ++ch) {
    direction[at(ch)] = static_cast<double>(c.key(longest)[ch]) / norm;
  }
  if (by[4] != 0) {
    const double blend = std::clamp(by[4], -1.0, 1.0), kept = 1 - std::fabs(blend);
    for (std::int64_t i = 0; i < c.shape.queries; ++i) {
      const double size = std::sqrt(square(c.query(i), d));
      for (std::int64_t ch = 0; ch < d; ++ch) {
        float& x = c.query(i)[ch];
        x = to_float(kept * static_cast<double>(x) + blend * size * direction[at(ch)]);
      }
    }
  }
  if (by[5] != 0) {  // along that direction, each key to one side's level about the mean
    const double blend = std::clamp(by[5], -1.0, 1.0);
    const auto along = [&](std::int64_t j) {
      double t = 0;
      for (std::int64_t ch = 0; ch < d; ++ch) {
        t += (static_cast<double>(c.key(j)[ch]) - mean[at(ch)]) * direction[at(ch)];
      }
      return t;
    };
    double level = 0;
    for (std::int64_t j = 0; j < n; ++j) level += std::fabs(along(j)) / count;
    for (std::int64_t j = 0; j < n; ++j) {
      const double t = along(j), change = blend * ((t > 0 ? level : -level) - t);
      for (std::int64_t ch = 0; ch < d; ++ch) {
        float& x = c.key(j)[ch];
        x = to_float(static_cast<double>(x) + change * direction[at(ch)]);
      }
    }
  }
}

}  // namespace headroom::fuzz
