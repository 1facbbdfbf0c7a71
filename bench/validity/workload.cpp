#include "bench/validity/workload.h"

#include <oneapi/tbb/parallel_for.h>

#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <numbers>

#include "reference/real/fp_environment.h"

namespace headroom::bench {
namespace {

constexpr std::size_t d = 128, pairs = d / 2;
using Vector = std::array<float, d>;

// Streams of random numbers: (what, index) of one head's seed.
enum Stream : std::uint64_t {
  common,
  key_gain,
  query_gain,
  frame,
  site,
  key,
  query,
  value,
  choice
};

/// splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
class Random {
 public:
  Random(std::uint64_t seed, Stream stream, std::uint64_t index)
      : state_(mixed(mixed(seed * 16 + stream) + index)) {}
  std::uint64_t next() { return mixed(state_ += 0x9e3779b97f4a7c15U); }
  /// Two independent standard normal numbers (Box and Muller).
  std::array<double, 2> normals() {
    const double u = std::ldexp(static_cast<double>((next() >> 11) + 1), -53);
    const double angle = std::ldexp(static_cast<double>(next() >> 11), -52) * std::numbers::pi;
    const double radius = std::sqrt(-2 * std::log(u));
    return {radius * std::cos(angle), radius * std::sin(angle)};
  }
  Vector normal_vector() {
    Vector x;
    for (std::size_t c = 0; c < d; c += 2) {
      const std::array<double, 2> two = normals();
      x[c] = static_cast<float>(two[0]);
      x[c + 1] = static_cast<float>(two[1]);
    }
    return x;
  }

 private:
  static std::uint64_t mixed(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

/// Rotation of channel pair p: 22 pairs turn with the frame, 21 with y, 21 with x, each axis with
/// frequencies 10000^(-i / pairs of the axis).
struct PairRotation {
  int axis;
  double frequency;
};
PairRotation rotation_of(std::size_t pair) {
  constexpr std::array<std::size_t, 3> of_axis = {22, 21, 21};
  std::size_t i = pair;
  int axis = 0;
  while (i >= of_axis[static_cast<std::size_t>(axis)]) {
    i -= of_axis[static_cast<std::size_t>(axis)];
    ++axis;
  }
  const double n = static_cast<double>(of_axis[static_cast<std::size_t>(axis)]);
  return {axis, std::pow(10000.0, -static_cast<double>(i) / n)};
}

double rms(const Vector& x) {
  double sum = 0;
  for (const float v : x) sum += static_cast<double>(v) * v;
  return std::sqrt(sum / d);
}

void add(Vector& to, double share, const Vector& x) {
  const auto factor = static_cast<float>(std::copysign(std::sqrt(std::fabs(share)), share));
  for (std::size_t c = 0; c < d; ++c) to[c] += factor * x[c];
}

std::uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

class Generator {
 public:
  Generator(const VideoShape& shape, const HeadCharacter& character, std::uint64_t seed)
      : shape_(shape), of_(character), seed_(seed) {
    for (std::size_t p = 0; p < pairs; ++p) {
      rotation_[p] = rotation_of(p);
      const double extent = rotation_[p].axis == 0   ? static_cast<double>(shape.frames)
                            : rotation_[p].axis == 1 ? static_cast<double>(shape.height)
                                                     : static_cast<double>(shape.width);
      slow_[p] = rotation_[p].frequency * extent < 1;
    }
    common_ = Random(seed, common, 0).normal_vector();
    for (std::size_t c = 0; c < d; ++c) {
      if (character.band == CommonBand::slow && !slow_[c / 2]) common_[c] = 0;
    }
    scale(common_, 1 / rms(common_));
    key_gain_ = gains(key_gain);
    query_gain_ = gains(query_gain);
    double square = 0;
    for (std::size_t c = 0; c < d; ++c) square += std::pow(key_gain_[c] * query_gain_[c], 2);
    const double factor = std::sqrt(of_.gain / std::sqrt(square / d));
    scale(key_gain_, factor);
    scale(query_gain_, factor);
    // neighbouring frames correlate by 0.9
    for (std::int64_t f = 0; f < shape.frames; ++f) {
      frames_.push_back(Random(seed, frame, static_cast<std::uint64_t>(f)).normal_vector());
      if (f == 0) continue;
      scale(frames_.back(), std::sqrt(1 - 0.9 * 0.9));
      add(frames_.back(), 0.9 * 0.9, frames_[frames_.size() - 2]);
    }
    for (std::int64_t s = 0; s < shape.height * shape.width; ++s) {
      sites_.push_back(Random(seed, site, static_cast<std::uint64_t>(s)).normal_vector());
    }
  }

  Vector key_of(std::int64_t t) const {
    Random random(seed_, key, static_cast<std::uint64_t>(t));
    Vector x{};
    if (t < of_.sinks) {
      add(x, 1, common_);
    } else {
      x = random.normal_vector();
      scale(x, std::sqrt(1 - of_.key_common - of_.key_frame - of_.key_site));
      add_shared(x, t, of_.key_common, of_.key_frame, of_.key_site);
    }
    finish(x, t, key_gain_, random);
    if (t < of_.sinks) scale(x, of_.sink_factor);
    return x;
  }

  Vector query_of(std::int64_t t) const {
    Random random(seed_, query, static_cast<std::uint64_t>(t));
    Vector x = random.normal_vector();
    scale(x, std::sqrt(1 - std::fabs(of_.query_common) - of_.query_frame - of_.query_site -
                       of_.query_partner));
    add_shared(x, t, of_.query_common, of_.query_frame, of_.query_site);
    if (of_.query_partner > 0) {
      const std::uint64_t partner = Random(seed_, choice, static_cast<std::uint64_t>(t)).next() %
                                    static_cast<std::uint64_t>(shape_.tokens());
      add(x, of_.query_partner, Random(seed_, key, partner).normal_vector());
    }
    finish(x, t, query_gain_, random);
    return x;
  }

  Vector value_of(std::int64_t t) const {
    return Random(seed_, value, static_cast<std::uint64_t>(t)).normal_vector();
  }

 private:
  static void scale(Vector& x, double factor) {
    for (float& v : x) v = static_cast<float>(v * factor);
  }

  /// Log-normal, and the outliers: the channels of the slowest pairs of the last axis and of those
  /// before it.
  Vector gains(Stream stream) const {
    Vector gain = Random(seed_, stream, 0).normal_vector();
    for (float& g : gain) g = static_cast<float>(std::exp(0.25 * g));
    int left = of_.outliers;
    for (std::size_t p = pairs; p-- > 0 && left > 0;) {
      if (!slow_[p]) continue;
      gain[2 * p] = static_cast<float>(gain[2 * p] * of_.outlier_factor);
      --left;
    }
    return gain;
  }

  void add_shared(Vector& x, std::int64_t t, double of_common, double of_frame,
                  double of_site) const {
    const std::int64_t area = shape_.height * shape_.width;
    if (of_common != 0) add(x, of_common, common_);
    if (of_frame != 0) add(x, of_frame, frames_[static_cast<std::size_t>(t / area)]);
    if (of_site != 0) add(x, of_site, sites_[static_cast<std::size_t>(t % area)]);
  }

  /// RMS norm, gains, the token's own size (the norm is over all heads of a layer, so one head's
  /// share of it varies: log-normal, 10 %), rotation.
  void finish(Vector& x, std::int64_t t, const Vector& gain, Random& random) const {
    scale(x, std::exp(0.1 * random.normals()[0]) / rms(x));
    const std::array<double, 3> place = {static_cast<double>(t / (shape_.height * shape_.width)),
                                         static_cast<double>(t / shape_.width % shape_.height),
                                         static_cast<double>(t % shape_.width)};
    for (std::size_t p = 0; p < pairs; ++p) {
      const double angle =
          place[static_cast<std::size_t>(rotation_[p].axis)] * rotation_[p].frequency;
      const double cosine = std::cos(angle), sine = std::sin(angle);
      const double a = static_cast<double>(x[2 * p]) * gain[2 * p];
      const double b = static_cast<double>(x[2 * p + 1]) * gain[2 * p + 1];
      x[2 * p] = static_cast<float>(a * cosine - b * sine);
      x[2 * p + 1] = static_cast<float>(a * sine + b * cosine);
    }
  }

  VideoShape shape_;
  HeadCharacter of_;
  std::uint64_t seed_;
  std::array<PairRotation, pairs> rotation_;
  std::array<bool, pairs> slow_;
  Vector common_, key_gain_, query_gain_;
  std::vector<Vector> frames_, sites_;
};

template <typename Row>
Matrix matrix(std::int64_t rows, const Row& row) {
  auto words = std::make_shared<std::vector<std::uint16_t>>(static_cast<std::size_t>(rows) * d);
  oneapi::tbb::parallel_for(std::int64_t{0}, rows, [&](std::int64_t t) {
    const NearestRounding nearest;
    const Vector x = row(t);
    for (std::size_t c = 0; c < d; ++c) {
      (*words)[static_cast<std::size_t>(t) * d + c] = to_bf16(x[c]);
    }
  });
  const auto* data = reinterpret_cast<const std::byte*>(words->data());
  return Matrix(words, data, bf16, rows, d, 2 * d);
}

}  // namespace

const std::vector<HeadCharacter>& head_characters() {
  static const std::vector<HeadCharacter> all = {
      {.name = "diffuse",
       .key_common = 0.3,
       .key_frame = 0.1,
       .key_site = 0.2,
       .query_common = 0.1,
       .query_frame = 0.1,
       .query_site = 0.1,
       .gain = 1.2},
      {.name = "near",
       .band = CommonBand::all,
       .key_common = 0.5,
       .key_site = 0.1,
       .query_common = 0.6,
       .query_site = 0.1,
       .gain = 3.5},
      {.name = "site",
       .key_common = 0.3,
       .key_site = 0.5,
       .query_common = 0.1,
       .query_site = 0.7,
       .gain = 3.5},
      {.name = "frame",
       .key_common = 0.3,
       .key_frame = 0.4,
       .key_site = 0.1,
       .query_common = 0.1,
       .query_frame = 0.6,
       .query_site = 0.1,
       .gain = 4},
      {.name = "common",
       .key_common = 0.85,
       .key_site = 0.05,
       .query_common = 0.25,
       .query_site = 0.2,
       .gain = 4.5},
      {.name = "opposed",
       .key_common = 0.85,
       .key_site = 0.05,
       .query_common = -0.25,
       .query_site = 0.2,
       .gain = 4.5},
      {.name = "outliers",
       .key_common = 0.6,
       .key_site = 0.2,
       .query_common = 0.1,
       .query_site = 0.2,
       .gain = 5,
       .outliers = 4,
       .outlier_factor = 3},
      {.name = "retrieval",
       .key_common = 0.3,
       .query_common = 0.05,
       .query_partner = 0.8,
       .gain = 3.5},
      {.name = "sink",
       .key_common = 0.2,
       .key_site = 0.2,
       .query_common = 0.4,
       .query_site = 0.2,
       .gain = 3,
       .sinks = 16,
       .sink_factor = 1.5},
      {.name = "aligned",
       .key_common = 0.85,
       .key_site = 0.05,
       .query_common = 0.6,
       .query_site = 0.1,
       .gain = 10},
      {.name = "beyond",
       .key_common = 0.8,
       .key_site = 0.1,
       .query_common = 0.2,
       .query_site = 0.2,
       .gain = 24},
  };
  return all;
}

Head make_video_head(const VideoShape& shape, const HeadCharacter& character, std::uint64_t seed) {
  // every head has streams of its own
  std::uint64_t of_head = seed;
  for (const char c : character.name) of_head = of_head * 257 + static_cast<unsigned char>(c);
  const Generator generator(shape, character, of_head);
  const std::int64_t n = shape.tokens();
  Head head;
  head.id = character.name;
  head.q = matrix(n, [&](std::int64_t t) { return generator.query_of(t); });
  head.k = matrix(n, [&](std::int64_t t) { return generator.key_of(t); });
  head.v = matrix(n, [&](std::int64_t t) { return generator.value_of(t); });
  head.stored_q = head.stored_k = head.stored_v = bf16;
  head.scale = Scale::reciprocal_sqrt(d);
  head.scale_source = head.mask_source = "default";
  head.visibility = {.kind = MaskKind::none, .queries = n, .keys = n, .length = n};
  return head;
}

}  // namespace headroom::bench
