// What generators and mutators are made of. Nothing here calls libm but sqrt, floor and ldexp, and
// no two draws stand in one expression: the same numbers with every compiler and library.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "fuzz/candidate.h"
#include "fuzz/generate.h"
#include "fuzz/random.h"
#include "fuzz/target.h"

namespace headroom::fuzz {

using Index = std::int64_t;

inline std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// In binary64: products of operands are exact.
inline double dot(const float* a, const float* b, Index d) {
  double even = 0, odd = 0;
  Index c = 0;
  for (; c + 2 <= d; c += 2) {
    even += static_cast<double>(a[c]) * static_cast<double>(b[c]);
    odd += static_cast<double>(a[c + 1]) * static_cast<double>(b[c + 1]);
  }
  if (c < d) even += static_cast<double>(a[c]) * static_cast<double>(b[c]);
  return even + odd;
}
inline double square(const float* a, Index d) { return dot(a, a, d); }

inline double score(const Landmarks& marks, const Candidate& c, Index row, Index key) {
  return marks.factor * dot(c.query(row), c.key(key), c.shape.channels);
}

inline double two_to(int e) {
  if (e < -1022 || e > 1023) return std::ldexp(1.0, e);
  return std::bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52);
}
/// 2^x, within 2^-45 of itself; 0 and infinity beyond binary64.
double power_of_two(double x);

/// floor(log2|x|) for normal x; below the normal numbers, -127.
inline int exponent_of(float x) {
  return static_cast<int>((std::bit_cast<std::uint32_t>(x) >> 23) & 255U) - 127;
}
inline int floor_log2(std::uint64_t n) { return std::bit_width(n) - 1; }
inline int ceil_log2(std::uint64_t n) { return n <= 1 ? 0 : std::bit_width(n - 1); }

/// Distance of neighbouring numbers of the format at x, whose magnitude is in its range.
inline double ulp_at(const Format& format, float x) {
  return two_to(std::max(exponent_of(x), format.emin) - (format.precision - 1));
}
/// x moved by so many of those, within the range.
float step_by(const Format& format, float x, int steps);
/// The number of the format nearest to x between it and 0.
float toward_zero(const Format& format, double x);
/// Beyond FP32: its largest numbers. For what rounding will cut to the operand's format.
inline float to_float(double x) {
  return static_cast<float>(std::clamp(x, -0x1.fffffep127, 0x1.fffffep127));
}
/// x with the sign of a coin.
inline double either_sign(Random& random, double x) { return random.coin() ? x : -x; }

/// Of the format's: ends, ones, powers of two, subnormals, both zeros.
float special_number(Random& random, const Format& format);

/// A limit just met, most often: what a gate still takes, or, without a gate, a distance that
/// matters to exp2. Log2 units, > 0.
double pick_target(Random& random, const Landmarks& marks);
/// A score that means something to this kernel, log2 units.
double pick_score(Random& random, const Landmarks& marks);
/// How far below a row's largest score keys still count, or just do not.
double pick_tail(Random& random, const Landmarks& marks, Index keys);
/// A small amount, > 0, from 2^-9 to 4.
double pick_margin(Random& random);
/// Centre that norms of this kernel's gate may be taken about.
Centre pick_centre(Random& random, const Landmarks& marks);

/// Largest |k - centre| in the gate's sense.
double largest_key_norm(const Landmarks& marks, const Candidate& c, Centre centre);

void zero(Candidate& c);
/// V of one of many kinds: ones, constants, alternating, by the score of a row, at the brink of the
/// numerator's range, at the format's ends, below 1, ramps, one-hot, noise.
void fill_values(Random& random, const Landmarks& marks, Candidate& c);
/// High values for keys whose score in a row is above the row's mean, low ones for the others.
void values_by_score(Random& random, const Landmarks& marks, Candidate& c);
/// What the numerator of this kernel just holds, or just does not, with weights of 2^cap: an
/// exponent.
int brink_of_sum(Random& random, const Landmarks& marks, Index keys);

/// The channels of Q and K in another order and with other signs: no score and no norm changes.
void scramble(Random& random, Candidate& c);

/// Keys (level_j / (factor a), 0, +-w, 0...) and queries (a, b, 0, b'...): the rows' scores are the
/// levels, b and b' bring the gate's value to `target` from below (0: b = 0), w is a channel that
/// only keys have. With one channel the target moves the scores too.
void lay_levels(Random& random, const Landmarks& marks, const std::vector<double>& levels,
                double target, Candidate& c);

/// Nearly normal numbers of this deviation.
void fill_normal(Random& random, double deviation, std::vector<float>& numbers);

}  // namespace headroom::fuzz
