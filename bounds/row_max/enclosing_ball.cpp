#include "bounds/row_max/enclosing_ball.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>
#include <span>

#include "bounds/norms.h"

namespace headroom {
namespace {

// The search for a centre uses plain doubles: whatever it finds, radius and least_radius are
// enclosed afterwards, about that centre and with those weights.

/// Upper bound of ||x - a||^2 for x in [lo, hi]. Eight sums, so that none waits for the last.
double squared_distance(std::span<const double> lo, std::span<const double> hi,
                        std::span<const double> a) {
  constexpr std::size_t lanes = 8;
  std::array<double, lanes> sums{};
  std::size_t c = 0;
  const auto add = [&](std::size_t at, double& sum) {
    const double above = hi[at] - a[at], below = a[at] - lo[at];
    const double most = above > below ? above : below;
    sum = sum + most * most;
  };
  for (; c + lanes <= a.size(); c += lanes) {
    for (std::size_t l = 0; l < lanes; ++l) add(c + l, sums[l]);
  }
  for (; c < a.size(); ++c) add(c, sums[0]);
  double total = 0;
  for (const double s : sums) total = total + s;
  return opaque(total);
}

/// Keys that determine the ball so far, each with its weight in the centre.
class CoreSet {
 public:
  /// Points are held relative to `origin`, one of the keys: channels in which all keys are equal
  /// are 0 and do not swamp the others.
  CoreSet(std::span<const double> origin, std::int64_t n)
      : origin_(origin.begin(), origin.end()), member_(static_cast<std::size_t>(n)) {}

  bool holds(std::int64_t key) const { return member_[static_cast<std::size_t>(key)]; }
  void add(std::int64_t key, std::span<const double> lo, std::span<const double> hi) {
    member_[static_cast<std::size_t>(key)] = true;
    Point p;
    p.key = key;
    p.lo.assign(lo.begin(), lo.end());
    p.hi.assign(hi.begin(), hi.end());
    p.x.resize(lo.size());
    for (std::size_t c = 0; c < lo.size(); ++c) {
      p.x[c] = 0.5 * ((lo[c] - origin_[c]) + (hi[c] - origin_[c]));
    }
    points_.push_back(std::move(p));
  }
  /// Forgets keys without weight: the ball of the others is at least as large as before.
  void drop_weightless() {
    for (const Point& p : points_) {
      if (p.weight == 0) member_[static_cast<std::size_t>(p.key)] = false;
    }
    std::erase_if(points_, [](const Point& p) { return p.weight == 0; });
  }
  void find_weights();
  std::vector<double> centre() const;
  Lower<Absolute> least_radius(const UpwardRounding& up, std::span<const double> centre) const;

 private:
  struct Point {
    std::int64_t key = 0;
    std::vector<double> lo, hi, x;
    double weight = 0;
  };
  std::vector<double> origin_;
  std::vector<bool> member_;
  std::vector<Point> points_;
};

// The dual of the minimum enclosing ball: over weights w >= 0 of sum 1, the largest
// phi(w) = sum w_i |x_i|^2 - |sum w_i x_i|^2 is the squared radius. A step moves weight from the
// nearest point that has some to the farthest, as far as phi rises; phi is within `tolerance` of
// its maximum when the farthest point's squared distance is within that of phi.
void CoreSet::find_weights() {
  constexpr double tolerance = 0x1p-10;
  const std::size_t m = points_.size();
  std::vector<double> gram(m * m), product(m);  // <x_i, x_j>, and sum_j <x_i, x_j> w_j
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      std::array<double, 4> sums{};
      const std::vector<double>&x = points_[i].x, &y = points_[j].x;
      std::size_t c = 0;
      for (; c + 4 <= x.size(); c += 4) {
        for (std::size_t l = 0; l < 4; ++l) sums[l] += x[c + l] * y[c + l];
      }
      for (; c < x.size(); ++c) sums[0] += x[c] * y[c];
      gram[i * m + j] = gram[j * m + i] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
  }
  double total = 0;
  for (const Point& p : points_) total += p.weight;
  if (total == 0) points_.front().weight = total = 1;
  for (Point& p : points_) p.weight /= total;
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < m; ++j) product[i] += gram[i * m + j] * points_[j].weight;
  }
  for (std::size_t step = 0; step < 200 * m + 1000; ++step) {
    std::size_t far = 0, near = m;
    double far_slope = -std::numeric_limits<double>::infinity(), near_slope = -far_slope;
    double phi = 0, centre_square = 0;
    for (std::size_t i = 0; i < m; ++i) {
      const double w = points_[i].weight, slope = gram[i * m + i] - 2 * product[i];
      if (slope > far_slope) far = i, far_slope = slope;
      if (w == 0) continue;
      if (slope < near_slope) near = i, near_slope = slope;
      centre_square += w * product[i];
      phi += w * (gram[i * m + i] - product[i]);
    }
    if (near == m || !(far_slope + centre_square > (1 + tolerance) * phi)) return;
    const double between = gram[far * m + far] + gram[near * m + near] - 2 * gram[far * m + near];
    if (!(between > 0)) return;
    const double most = points_[near].weight;
    const double moved = std::min(most, (far_slope - near_slope) / (2 * between));
    points_[far].weight += moved;
    points_[near].weight = moved == most ? 0 : most - moved;
    for (std::size_t i = 0; i < m; ++i) {
      product[i] += moved * (gram[i * m + far] - gram[i * m + near]);
    }
  }
}

std::vector<double> CoreSet::centre() const {
  std::vector<double> sum(origin_.size());
  double total = 0;
  for (const Point& p : points_) {
    if (p.weight == 0) continue;
    total += p.weight;
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += p.weight * p.x[c];
  }
  for (std::size_t c = 0; c < sum.size(); ++c) sum[c] = origin_[c] + sum[c] / total;
  return sum;
}

// For any centre a, weights w of sum W, and m = sum w_i p_i / W:
//   sum w_i |p_i - a|^2 / W = sum w_i |p_i - m|^2 / W + |m - a|^2,
// and the first term on the right is at most the squared radius r^2 of every ball that holds the
// p_i (b its centre: sum w_i |p_i - m|^2 <= sum w_i |p_i - b|^2 <= W r^2). So
//   r^2 >= sum w_i |p_i - a|^2 / W - |m - a|^2, with m - a = sum w_i (p_i - a) / W.
Lower<Absolute> CoreSet::least_radius(const UpwardRounding& up,
                                      std::span<const double> centre) const {
  const std::vector<Interval> a(centre.begin(), centre.end());
  std::vector<Interval> offset(a.size());
  Interval total(0.0), spread(0.0), off(0.0);
  for (const Point& p : points_) {
    if (!(p.weight > 0)) continue;
    const Interval w(p.weight);
    total += w;
    spread += w * square(Interval(distance(up, p.lo, p.hi, a).lo()));
    for (std::size_t c = 0; c < a.size(); ++c) offset[c] += w * (Interval(p.lo[c], p.hi[c]) - a[c]);
  }
  for (std::size_t c = 0; c < a.size(); ++c) off += square(offset[c] / total);
  const double least = (spread / total - off).lo();
  return Lower<Absolute>(least > 0 ? sqrt(Interval(least)).lo() : 0.0);
}

}  // namespace

EnclosingBall enclosing_ball(const UpwardRounding& up, const KeyReader& keys, std::int64_t n,
                             std::int64_t channels, const EnclosingBallOptions& options) {
  assert(n >= 1 && options.max_passes >= 2);
  const auto d = static_cast<std::size_t>(channels);
  std::vector<double> lo(d), hi(d);

  // The first pass gives the mean, where the search starts.
  keys(0, lo.data(), hi.data());
  const std::vector<double> origin = lo;
  std::vector<double> centre(d);
  for (std::int64_t j = 1; j < n; ++j) {
    keys(j, lo.data(), hi.data());
    for (std::size_t c = 0; c < d; ++c) centre[c] += lo[c] - origin[c];
  }
  for (std::size_t c = 0; c < d; ++c) centre[c] = origin[c] + centre[c] / static_cast<double>(n);

  EnclosingBall ball;
  ball.centre = centre;
  ball.least_radius = Lower<Absolute>(0);
  ball.passes = 1;
  CoreSet core(origin, n);
  const std::size_t batch = std::clamp<std::size_t>(4 * d, 32, 512);
  struct Far {
    double square;
    std::int64_t key;
  };
  std::vector<Far> far(static_cast<std::size_t>(n));
  const auto near_enough = [&] {
    return certainly_at_most(
        ball.radius,
        Lower<Absolute>((Interval(options.ratio) * Interval(ball.least_radius.value())).lo()));
  };
  while (ball.passes < options.max_passes) {
    ++ball.passes;
    double most = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      keys(j, lo.data(), hi.data());
      const double square = squared_distance(lo, hi, centre);
      far[static_cast<std::size_t>(j)] = {square, j};
      most = std::max(most, square);
    }
    const Upper<Absolute> radius = Upper<Absolute>::of(sqrt(Interval(most)));
    if (radius.value() < ball.radius.value()) {
      ball.radius = radius;
      ball.centre = centre;
    }
    if (!std::isfinite(most) || near_enough()) break;

    core.drop_weightless();
    const std::size_t looked_at = std::min(batch, far.size());
    std::partial_sort(far.begin(), far.begin() + static_cast<std::ptrdiff_t>(looked_at), far.end(),
                      [](const Far& a, const Far& b) { return a.square > b.square; });
    bool grown = false;
    for (std::size_t i = 0; i < looked_at; ++i) {
      if (core.holds(far[i].key)) continue;
      keys(far[i].key, lo.data(), hi.data());
      core.add(far[i].key, lo, hi);
      grown = true;
    }
    if (!grown) break;  // the core-set's ball is as good as its own tolerance
    core.find_weights();
    centre = core.centre();
    ball.least_radius = tighter(ball.least_radius, core.least_radius(up, centre));
    if (near_enough()) break;
  }
  return ball;
}

}  // namespace headroom
