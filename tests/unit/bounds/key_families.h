// Families of keys for the tests of score bounds: random, degenerate and adversarial.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "reference/format/convert.h"
#include "tests/unit/bounds/simulation.h"

namespace headroom::simulation {

enum class Keys {
  gaussian,
  uniform,
  heavy_tailed,
  shell,       ///< all at nearly one distance from the origin
  clusters,    ///< three, one of them small
  collinear,   ///< on one line, off the origin
  duplicates,  ///< few different keys
  outlier,     ///< one far from all others
  equal,
  shifted,      ///< far from the origin, all in one direction
  huge,         ///< up to the format's largest number
  subnormal,    ///< below the format's smallest normal number
  zeros,        ///< of both signs, and a few ones
  one_channel,  ///< the largest number in one channel, small ones beside it
  corners,      ///< of a cube: as many supports as channels allow
  powers,       ///< of two, over the format's range
};

inline const std::vector<Keys> key_families = {
    Keys::gaussian, Keys::uniform,     Keys::heavy_tailed, Keys::shell,
    Keys::clusters, Keys::collinear,   Keys::duplicates,   Keys::outlier,
    Keys::equal,    Keys::shifted,     Keys::huge,         Keys::subnormal,
    Keys::zeros,    Keys::one_channel, Keys::corners,      Keys::powers};

inline double gaussian(Random& g) {
  return std::sqrt(-2 * std::log(1 - uniform(g))) * std::cos(6.283185307179586 * uniform(g));
}

/// n keys of d channels, numbers of `format`, row-major. Round to nearest must be active.
inline std::vector<double> make_keys(Keys family, const Format& format, std::size_t n,
                                     std::size_t d, Random& g) {
  std::vector<double> k(n * d), centre(3 * d);
  for (double& x : centre) x = 4 * gaussian(g);
  const int least = format.least_exponent(), most = format.emax;
  for (std::size_t j = 0; j < n; ++j) {
    double* row = k.data() + j * d;
    const double along = gaussian(g);
    double square = 0;
    for (std::size_t c = 0; c < d; ++c) {
      switch (family) {
        case Keys::gaussian:
        case Keys::shell:
          row[c] = gaussian(g);
          break;
        case Keys::uniform:
          row[c] = 2 * uniform(g) - 1;
          break;
        case Keys::heavy_tailed:
          row[c] = gaussian(g) / (0.05 + std::fabs(along));
          break;
        case Keys::clusters:
          row[c] = centre[(j % 17 == 0 ? 2 : j % 2) * d + c] + 0.1 * gaussian(g);
          break;
        case Keys::collinear:
          row[c] = centre[c] + std::ldexp(std::round(8 * along), -3) * std::round(centre[d + c]);
          break;
        case Keys::duplicates:
          row[c] = j < 3 ? gaussian(g) : k[(j % 3) * d + c];
          break;
        case Keys::outlier:
          row[c] = gaussian(g) + (j == n / 2 ? 50 : 0);
          break;
        case Keys::equal:
          row[c] = centre[c];
          break;
        case Keys::shifted:
          row[c] = 100 + centre[c] + gaussian(g);
          break;
        case Keys::huge:
          row[c] = (2 * uniform(g) - 1) * format.max_finite();
          break;
        case Keys::subnormal:
          row[c] = std::ldexp(2 * uniform(g) - 1, least + 4);
          break;
        case Keys::zeros:
          row[c] = below(g, 8) == 0 ? 1.0 : std::copysign(0.0, gaussian(g));
          break;
        case Keys::one_channel:
          row[c] = c == 0 ? format.max_finite() : gaussian(g);
          break;
        case Keys::corners:
          row[c] = (g() & 1) != 0 ? 1 : -1;
          break;
        case Keys::powers:
          row[c] = std::ldexp(
              (g() & 1) != 0 ? 1 : -1,
              least + static_cast<int>(below(g, static_cast<std::size_t>(most - least))));
          break;
      }
      square += row[c] * row[c];
    }
    for (std::size_t c = 0; c < d; ++c) {
      if (family == Keys::shell) row[c] *= 8 / std::sqrt(square);
      row[c] = round_to(format, row[c]);
      if (!std::isfinite(row[c])) row[c] = std::copysign(format.max_finite(), row[c]);
    }
  }
  return k;
}

}  // namespace headroom::simulation
