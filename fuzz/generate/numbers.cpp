// Heads by where their numbers lie in their formats, and heads with the statistics of real ones.
#include "fuzz/generate/families.h"
#include "reference/format/convert.h"

namespace headroom::fuzz::generate {
namespace {

/// Position p turned by an angle whose half has the tangent t: an exact rational rotation.
struct Turn {
  double cosine, sine;
  explicit Turn(double t) : cosine((1 - t * t) / (1 + t * t)), sine(2 * t / (1 + t * t)) {}
};

/// Scores of this deviation, by one factor on Q.
void scale_to(Random& random, const Landmarks& marks, double deviation, Candidate& c) {
  double mean = 0, squares = 0;
  constexpr int samples = 16;
  for (int s = 0; s < samples; ++s) {
    const Index i = random.between(0, c.shape.queries - 1), j = random.between(0, c.length() - 1);
    const double z = score(marks, c, i, j);
    mean += z / samples;
    squares += z * z / samples;
  }
  const double now = std::sqrt(std::max(squares - mean * mean, squares * 0x1p-10));
  if (!(now > 0) || !std::isfinite(deviation / now)) return;
  for (float& x : c.q) x = to_float(static_cast<double>(x) * (deviation / now));
}

}  // namespace

/// Scores of no account, V at the ends of its format, at the brink of the sums, or all below 1.
void extreme_values(Random& random, const Landmarks& marks, Candidate& c) {
  fill_normal(random, random.pick({0.0, 0.25, 1.0}), c.q);
  fill_normal(random, 1, c.k);
  const Format& format = marks.operand;
  const int brink = brink_of_sum(random, marks, c.length());
  const std::uint64_t how = random.below(5);
  for (Index j = 0; j < c.shape.keys; ++j) {
    for (Index ch = 0; ch < c.shape.value_channels; ++ch) {
      double x = 0;
      switch (how) {
        case 0:
          x = std::min(two_to(brink), format.max_finite());
          break;
        case 1:
          x = either_sign(random, format.max_finite());
          break;
        case 2:
          x = j == 0 ? format.max_finite() : 1;
          break;
        case 3:
          x = two_to(format.emin + static_cast<int>(random.between(-3, 6)));
          break;
        default:
          x = two_to(static_cast<int>(random.between(format.emin, -1)));
      }
      c.value(j)[ch] = operand_number(format, x);
    }
  }
}

/// Subnormals and zeros of both signs among a few numbers that are neither.
void tiny(Random& random, const Landmarks& marks, Candidate& c) {
  const Format& format = marks.operand;
  const double most = random.pick({0.5, 0.9, 0.98});
  for (std::vector<float>* numbers : {&c.q, &c.k, &c.v}) {
    for (float& x : *numbers) {
      if (random.chance(most)) {
        const double least = two_to(format.least_exponent());
        const double size = random.coin() ? 0 : least * static_cast<double>(random.between(1, 300));
        x = to_float(random.coin() ? size : -size);
      } else {
        const double size = two_to(static_cast<int>(random.between(-4, 8)));
        x = to_float(size * random.normal());
      }
    }
  }
}

/// Elements whose products leave FP32, or whose sums cancel there.
void huge(Random& random, const Landmarks& marks, Candidate& c) {
  const Format& format = marks.operand;
  const int half = random.coin() ? format.emax / 2 : format.emax - 1;
  const int spread = static_cast<int>(random.between(0, 8));
  for (std::vector<float>* numbers : {&c.q, &c.k}) {
    for (float& x : *numbers) {
      const int e = half - static_cast<int>(random.between(0, spread));
      x = operand_number(format, either_sign(random, two_to(e) * random.uniform(1, 2)));
    }
  }
  fill_values(random, marks, c);
}

/// Raw scores that just fit the format that they may be stored in, and just do not.
void store_edge(Random& random, const Landmarks& marks, Candidate& c) {
  zero(c);
  const Format& format = marks.operand;
  const Index d = c.shape.channels;
  const double edge = random.pick({65504.0, 65519.0, 65520.0, 448.0, 57344.0, 61440.0});
  const bool raw = random.coin();  // else after the factor
  const double factor = marks.factor == 0 ? 1 : std::fabs(marks.factor);
  const double wish = raw ? edge : edge / factor;
  const double q = random.pick({256.0, 64.0, 32.0, 16.0}), sign = random.coin() ? 1 : -1;
  for (Index i = 0; i < c.shape.queries; ++i) {
    c.query(i)[0] = operand_number(format, q);
    if (d >= 2) c.query(i)[1] = 1;
  }
  for (Index j = 0; j < c.shape.keys; ++j) {
    const double off = random.pick({0.0, 0.0, 1.0, -1.0, 16.0, -16.0});
    const auto coarse = static_cast<double>(operand_number(format, sign * (wish + off) / q));
    c.key(j)[0] = static_cast<float>(coarse);
    if (d >= 2) c.key(j)[1] = operand_number(format, sign * (wish + off) - coarse * q);
  }
  fill_values(random, marks, c);
}

/// Scores so large that the rounding of their maximum is an exponent of its own.
void fused_residual(Random& random, const Landmarks& marks, Candidate& c) {
  zero(c);
  const Format& format = marks.operand;
  const Index d = c.shape.channels;
  const double factor = marks.factor == 0 ? 1 : std::fabs(marks.factor);
  double size = two_to(static_cast<int>(random.between(18, 34)));
  size *= random.uniform(1, 2);
  const double each = std::sqrt(size / (factor * static_cast<double>(d)));
  const float q = operand_number(format, each), k = operand_number(format, each);
  const float sign = random.coin() ? 1.0F : -1.0F;
  std::fill(c.q.begin(), c.q.end(), q);
  std::fill(c.k.begin(), c.k.end(), sign * k);
  const bool rows_differ = random.coin();
  for (Index i = 0; rows_differ && i < c.shape.queries; ++i) {
    for (Index ch = 0; ch < d; ++ch) {
      c.query(i)[ch] = step_by(format, q, static_cast<int>(random.between(-3, 3)));
    }
  }
  const Index below = random.between(0, c.shape.keys - 1);  // so many keys far below
  for (Index j = 0; j < below; ++j) std::fill_n(c.key(j), d, random.coin() ? 0.0F : -sign * k);
  fill_values(random, marks, c);
}

/// Few small integers: ties everywhere, and sums that are exact.
void small_integers(Random& random, const Landmarks& marks, Candidate& c) {
  const Index most = random.between(1, 8);
  for (std::vector<float>* numbers : {&c.q, &c.k, &c.v}) {
    for (float& x : *numbers) x = static_cast<float>(random.between(-most, most));
  }
  if (random.coin()) aim_at_gate(marks, pick_target(random, marks), c);
}

/// A few channels of keys that are larger than the others by powers of two, and of one sign.
void outlier_channels(Random& random, const Landmarks& marks, Candidate& c) {
  fill_normal(random, 1, c.q);
  fill_normal(random, 1, c.k);
  const Index outliers = random.between(1, std::max<Index>(1, c.shape.channels / 4));
  for (Index o = 0; o < outliers; ++o) {
    const Index ch = random.between(0, c.shape.channels - 1);
    const double large = two_to(static_cast<int>(random.between(2, 9)));
    const double mean = random.coin() ? large : 0, by = random.coin() ? large / 8 : large;
    for (Index j = 0; j < c.shape.keys; ++j) {
      c.key(j)[ch] = to_float(mean + by * static_cast<double>(c.key(j)[ch]));
    }
  }
  if (random.coin()) {
    const double target = pick_target(random, marks);
    aim_at_gate(marks, target, pick_centre(random, marks), c);
  } else {
    scale_to(random, marks, random.pick({1.0, 6.0, 30.0, 100.0}), c);
  }
  fill_values(random, marks, c);
}

/// Keys and queries that turn with their position, pair by pair of channels, the slow pairs with a
/// large constant part, as rotary embeddings leave them; the first key may be a sink.
void rope(Random& random, const Landmarks& marks, Candidate& c) {
  const Index d = c.shape.channels, pairs = d / 2;
  fill_normal(random, 0.5, c.q);
  fill_normal(random, 0.5, c.k);
  double tangent = 0.5;
  const double ratio = random.uniform(0.25, 0.75);
  for (Index p = 0; p < pairs; ++p) {
    const Turn turn(tangent);
    tangent *= ratio;
    // the constant part grows with the period
    const double size = 0.5 + 4 * random.uniform() * static_cast<double>(p) /
                                  static_cast<double>(std::max<Index>(1, pairs));
    const double kx = size * random.normal(), ky = size * random.normal();
    const double qx = size * random.normal(), qy = size * random.normal();
    const auto spin = [&](double x, double y, Index rows, float* first) {
      for (Index r = 0; r < rows; ++r) {
        float* pair = first + r * d + 2 * p;
        pair[0] = to_float(x + static_cast<double>(pair[0]));
        pair[1] = to_float(y + static_cast<double>(pair[1]));
        const double turned = x * turn.cosine - y * turn.sine;
        y = x * turn.sine + y * turn.cosine;
        x = turned;
      }
    };
    spin(kx, ky, c.shape.keys, c.k.data());
    spin(qx, qy, c.shape.queries, c.q.data());
  }
  if (random.coin()) {  // a first token whose key is short and along the mean query
    std::vector<double> mean(at(d));
    for (Index i = 0; i < c.shape.queries; ++i) {
      for (Index ch = 0; ch < d; ++ch) mean[at(ch)] += static_cast<double>(c.query(i)[ch]);
    }
    for (Index ch = 0; ch < d; ++ch) {
      c.key(0)[ch] = to_float(mean[at(ch)] / static_cast<double>(c.shape.queries));
    }
  }
  scale_to(random, marks, random.pick({2.0, 6.0, 12.0, 40.0}), c);
  fill_values(random, marks, c);
}

/// Rows of equal length with a gain a channel, as after an RMS norm, a few gains many times the
/// others, and a sink.
void rms_normed(Random& random, const Landmarks& marks, Candidate& c) {
  const Index d = c.shape.channels;
  std::vector<double> gain(at(d));
  for (double& g : gain) g = random.uniform(0.5, 1.5);
  const Index outliers = random.between(0, std::max<Index>(1, d / 8));
  for (Index o = 0; o < outliers; ++o) {
    const Index ch = random.between(0, d - 1);
    gain[at(ch)] = random.uniform(4, 24);
  }
  const auto norm = [&](Index rows, float* first) {
    for (Index r = 0; r < rows; ++r) {
      float* x = first + r * d;
      for (Index ch = 0; ch < d; ++ch) x[ch] = to_float(random.normal());
      const double size = std::sqrt(square(x, d) / static_cast<double>(d)) + 0x1p-20;
      for (Index ch = 0; ch < d; ++ch) {
        x[ch] = to_float(static_cast<double>(x[ch]) / size * gain[at(ch)]);
      }
    }
  };
  norm(c.shape.queries, c.q.data());
  norm(c.shape.keys, c.k.data());
  // what all tokens share, on the outlying channels
  const double shift = random.pick({0.0, 1.0, 4.0});
  for (Index j = 0; j < c.shape.keys; ++j) {
    for (Index ch = 0; ch < d; ++ch) {
      if (gain[at(ch)] >= 4)
        c.key(j)[ch] = to_float(static_cast<double>(c.key(j)[ch]) + shift * gain[at(ch)]);
    }
  }
  const double deviation = random.pick({2.0, 8.0, 25.0, 60.0});
  scale_to(random, marks, deviation, c);
  round_numbers(marks.operand, c.q);
  round_numbers(marks.operand, c.k);
  fill_values(random, marks, c);
  if (random.coin()) {
    aim_at_score(marks, random.between(0, c.shape.queries - 1), 0, 4 * deviation, c);
    std::fill_n(c.value(0), c.shape.value_channels, 0.015625F);
  }
}

/// What no row sees holds numbers that would count: large, tiny, or like the others.
void loud_padding(Random& random, const Landmarks& marks, Candidate& c) {
  gaussian(random, marks, c);
  const double loud = random.pick({1e4, 65504.0, 1e30, 3e38, 0x1p-130, 448.0});
  for (Index j = c.length(); j < c.shape.keys; ++j) {
    for (Index ch = 0; ch < c.shape.channels; ++ch) {
      c.key(j)[ch] = operand_number(marks.operand, either_sign(random, loud));
    }
    for (Index ch = 0; ch < c.shape.value_channels; ++ch) {
      c.value(j)[ch] = operand_number(marks.operand, either_sign(random, loud));
    }
  }
}

void gaussian(Random& random, const Landmarks& marks, Candidate& c) {
  const double q = two_to(static_cast<int>(random.between(-2, 4)));
  const double k = two_to(static_cast<int>(random.between(-2, 4)));
  fill_normal(random, q, c.q);
  fill_normal(random, k, c.k);
  fill_normal(random, 1, c.v);
  if (random.chance(0.3)) {
    const double target = pick_target(random, marks);
    aim_at_gate(marks, target, pick_centre(random, marks), c);
  }
}

/// Every finite code of the operand's format alike.
void uniform_bits(Random& random, const Landmarks& marks, Candidate& c) {
  const Format& format = marks.operand;
  const auto codes = static_cast<std::uint64_t>(format.max_finite_code()) + 1;
  for (std::vector<float>* numbers : {&c.q, &c.k, &c.v}) {
    for (float& x : *numbers) {
      const std::uint64_t code = random.below(std::min<std::uint64_t>(codes, 0xffffffffU));
      const double size = decode(format, code);
      x = static_cast<float>(random.coin() ? size : -size);
    }
  }
}

}  // namespace headroom::fuzz::generate
