// Heads for the ladder's benchmarks, seeded.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "reference/evaluate/ladder/problem.h"

namespace headroom::bench {

enum class HeadKind { gaussian, outlier_channels, mean_one };

/// gaussian: N(0, 1) throughout. outlier_channels: every key shares an offset, two channels of it
/// large, and Q is doubled, as in real models. mean_one: V has mean 1.
inline AttentionProblem make_head(HeadKind kind, const Format& f, std::int64_t nq, std::int64_t nk,
                                  std::int64_t d, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  std::vector<double> offset(static_cast<std::size_t>(d), 0.0);
  const bool outliers = kind == HeadKind::outlier_channels;
  if (outliers) {
    for (double& x : offset) x = normal(engine);
    offset[3 % offset.size()] += 12;
    offset[offset.size() / 2] -= 9;
  }
  const auto matrix = [&](std::int64_t rows, double factor, const std::vector<double>* shift,
                          double mean) {
    std::vector<double> x(static_cast<std::size_t>(rows * d));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double s = shift == nullptr ? mean : (*shift)[i % static_cast<std::size_t>(d)];
      x[i] = round_to(f, normal(engine) * factor + s);
    }
    return Matrix::from_values(f, rows, d, x);
  };
  AttentionProblem p;
  p.q = matrix(nq, outliers ? 2 : 1, nullptr, 0);
  p.k = matrix(nk, 1, &offset, 0);
  p.v = matrix(nk, 1, nullptr, kind == HeadKind::mean_one ? 1 : 0);
  p.scale = Scale::reciprocal_sqrt(static_cast<std::uint64_t>(d));
  p.visibility = {.kind = MaskKind::none, .queries = nq, .keys = nk, .length = nk};
  return p;
}

}  // namespace headroom::bench
