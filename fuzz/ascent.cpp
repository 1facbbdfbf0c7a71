#include "fuzz/ascent.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace headroom::fuzz {
namespace {

constexpr int n = Motion::dimensions;
constexpr int parents = Ascent::population / 2;
constexpr int most_generations = 60, most_without_better = 12;

/// Weights of the better half, and what follows from them, by the formulas of the paper.
struct Constants {
  double weight[parents];
  double effective, sigma_rate, sigma_damping, path_rate, rank_one, rank_many, expected_length;
  Constants() {
    double sum = 0, squares = 0;
    for (int i = 0; i < parents; ++i) {
      weight[i] = std::log(parents + 0.5) - std::log(i + 1.0);
      sum += weight[i];
    }
    for (double& w : weight) {
      w /= sum;
      squares += w * w;
    }
    effective = 1 / squares;
    sigma_rate = (effective + 2) / (n + effective + 5);
    sigma_damping = 1 + 2 * std::max(0.0, std::sqrt((effective - 1) / (n + 1)) - 1) + sigma_rate;
    path_rate = (4 + effective / n) / (n + 4 + 2 * effective / n);
    // a diagonal is learned (n + 2) / 3 times faster than a full matrix
    const double faster = (n + 2) / 3.0;
    rank_one = faster * 2 / ((n + 1.3) * (n + 1.3) + effective);
    rank_many = std::min(1 - rank_one, faster * 2 * (effective - 2 + 1 / effective) /
                                           ((n + 2.0) * (n + 2.0) + effective));
    expected_length = std::sqrt(double{n}) * (1 - 1 / (4.0 * n) + 1 / (21.0 * n * n));
  }
};
const Constants& constants() {
  static const Constants c;
  return c;
}

}  // namespace

void Ascent::start(const Candidate& base, double closeness) {
  base_ = base;
  running_ = true;
  best_ = closeness;
  sigma_ = 0.25;
  generation_ = since_better_ = 0;
  for (int i = 0; i < n; ++i) {
    mean_[i] = path_[i] = step_path_[i] = 0;
    deviation_[i] = 1;
  }
}

std::vector<Motion> Ascent::ask(Random& random) {
  asked_.assign(population, {});
  steps_.assign(population, {});
  for (int p = 0; p < population; ++p) {
    for (int i = 0; i < n; ++i) {
      const double step = deviation_[i] * random.normal();
      steps_[static_cast<std::size_t>(p)].by[i] = step;
      asked_[static_cast<std::size_t>(p)].by[i] = std::clamp(mean_[i] + sigma_ * step, -64.0, 64.0);
    }
  }
  return asked_;
}

void Ascent::tell(const std::vector<double>& closeness) {
  std::vector<std::size_t> order(population);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return closeness[a] > closeness[b]; });
  ++generation_;
  if (closeness[order[0]] > best_ + 1e-6) {
    best_ = closeness[order[0]];
    since_better_ = 0;
  } else {
    ++since_better_;
  }
  const Constants& c = constants();
  double mean_step[n] = {}, square_step[n] = {};
  for (int p = 0; p < parents; ++p) {
    const Motion& step = steps_[order[static_cast<std::size_t>(p)]];
    for (int i = 0; i < n; ++i) {
      mean_step[i] += c.weight[p] * step.by[i];
      square_step[i] += c.weight[p] * step.by[i] * step.by[i];
    }
  }
  double length = 0;
  for (int i = 0; i < n; ++i) {
    mean_[i] += sigma_ * mean_step[i];
    step_path_[i] =
        (1 - c.sigma_rate) * step_path_[i] +
        std::sqrt(c.sigma_rate * (2 - c.sigma_rate) * c.effective) * mean_step[i] / deviation_[i];
    length += step_path_[i] * step_path_[i];
  }
  length = std::sqrt(length);
  for (int i = 0; i < n; ++i) {
    path_[i] = (1 - c.path_rate) * path_[i] +
               std::sqrt(c.path_rate * (2 - c.path_rate) * c.effective) * mean_step[i];
    const double variance = (1 - c.rank_one - c.rank_many) * deviation_[i] * deviation_[i] +
                            c.rank_one * path_[i] * path_[i] + c.rank_many * square_step[i];
    deviation_[i] = std::sqrt(std::max(variance, 1e-20));
  }
  sigma_ *=
      std::exp(std::min(1.0, c.sigma_rate / c.sigma_damping * (length / c.expected_length - 1)));
  if (generation_ >= most_generations || since_better_ >= most_without_better || sigma_ < 1e-7) {
    running_ = false;
  }
}

}  // namespace headroom::fuzz
