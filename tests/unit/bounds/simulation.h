// A second, plain implementation of narrow arithmetic and accumulation orders for the tests of
// bounds/: doubles, round to odd where a double is not exact, one rounding into the format.
// Independent of reference/format/convert.h and of reference/evaluate.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "reference/model/kernel_model.h"

namespace headroom::simulation {

using Random = std::mt19937_64;
inline double uniform(Random& g) { return static_cast<double>(g() >> 11) * 0x1p-53; }
inline std::size_t below(Random& g, std::size_t n) { return static_cast<std::size_t>(g() % n); }

/// a + b rounded to odd: rounding the result to a format of at most 51 bits is then the same as
/// rounding the exact sum (Boldo and Melquiond, 2008). Needs round to nearest.
inline double sum_to_odd(double a, double b) {
  const double s = a + b;
  const double t = s - a;
  const double error = (a - (s - t)) + (b - t);
  if (error == 0 || !std::isfinite(s)) return s;
  std::uint64_t bits = std::bit_cast<std::uint64_t>(s);
  if ((bits & 1) != 0) return s;
  const bool grows = (error > 0) == (s > 0);
  return std::bit_cast<double>(grows ? bits + 1 : bits - 1);
}

/// Arithmetic of one format, round to nearest even, with or without flush to zero.
struct Arithmetic {
  Format format;
  bool flush = false;

  double round(double x) const {
    if (x == 0 || !std::isfinite(x)) return x;
    double r;
    if (format.precision == 24) {
      r = static_cast<double>(static_cast<float>(x));
    } else {
      const int exponent = std::max(std::ilogb(x), format.emin) - format.precision + 1;
      r = std::ldexp(std::nearbyint(std::ldexp(x, -exponent)), exponent);
      if (std::fabs(r) > format.max_finite()) r = std::copysign(INFINITY, r);
    }
    if (flush && std::fabs(r) < std::ldexp(1.0, format.emin)) r = std::copysign(0.0, r);
    return r;
  }
  double add(double a, double b) const { return round(sum_to_odd(a, b)); }
  /// Factors of at most 26 bits: the product is exact in double.
  double multiply(double a, double b) const { return round(a * b); }
  double fused(double a, double b, double c) const { return round(sum_to_odd(a * b, c)); }
};

/// x cut toward zero to p bits (and to the least subnormal).
inline double truncate(const Format& format, double x) {
  if (x == 0) return 0;
  const int exponent = std::max(std::ilogb(x), format.emin) - format.precision + 1;
  return std::ldexp(std::trunc(std::ldexp(x, -exponent)), exponent);
}

/// One step of a matrix unit: products and accumulator aligned to the largest exponent (of a
/// product: the sum of its factors' exponents), cut `fraction_bits` below it, summed exactly, cut.
inline double matrix_step(const Accumulator& unit, const double* a, const double* b, std::size_t n,
                          double accumulator) {
  int top = -100000;
  for (std::size_t i = 0; i < n; ++i) {
    if (a[i] != 0 && b[i] != 0) top = std::max(top, std::ilogb(a[i]) + std::ilogb(b[i]));
  }
  if (accumulator != 0) top = std::max(top, std::ilogb(accumulator));
  if (top == -100000) return 0;
  const int grid = top - unit.order.fraction_bits;
  double sum = std::trunc(std::ldexp(accumulator, -grid));
  for (std::size_t i = 0; i < n; ++i) sum += std::trunc(std::ldexp(a[i] * b[i], -grid));
  const double result = truncate(unit.format, std::ldexp(sum, grid));
  const bool flushes = unit.flush_to_zero && std::fabs(result) < std::ldexp(1.0, unit.format.emin);
  return flushes ? 0.0 : result;
}

/// Sum of the numbers in `pool` (each exact, or of the format) in a random association.
inline double random_association(const Arithmetic& arithmetic, std::vector<double> pool,
                                 Random& g) {
  while (pool.size() > 1) {
    std::swap(pool[below(g, pool.size())], pool.back());
    const double x = pool.back();
    pool.pop_back();
    double& y = pool[below(g, pool.size())];
    y = arithmetic.add(x, y);
  }
  return pool.empty() ? 0.0 : arithmetic.round(pool[0]);
}

/// Accumulates a[i] * b[i] as the accumulator says; where its order leaves freedom, at random.
inline double accumulate(const Accumulator& unit, const std::vector<double>& a,
                         const std::vector<double>& b, Random& g) {
  const Arithmetic arithmetic{unit.format, unit.flush_to_zero};
  const std::size_t n = a.size();
  const auto product = [&](std::size_t i) {
    return unit.rounded_products ? arithmetic.multiply(a[i], b[i]) : a[i] * b[i];
  };
  const auto chain = [&](std::size_t begin, std::size_t end, std::size_t stride) {
    double s = 0;
    for (std::size_t i = begin; i < end; i += stride) s = arithmetic.add(product(i), s);
    return s;
  };
  const auto size = static_cast<std::size_t>(std::max(1, unit.order.size));
  double sum = 0;
  switch (unit.order.kind) {
    case OrderKind::sequential:
      return chain(0, n, 1);
    case OrderKind::tile:
      for (std::size_t t = 0; t < n; t += size) {
        const std::size_t end = std::min(n, t + size);
        double tile;
        if (g() & 1) {
          tile = chain(t, end, 1);
        } else {
          std::vector<double> pool;
          for (std::size_t i = t; i < end; ++i) pool.push_back(product(i));
          tile = random_association(arithmetic, pool, g);
        }
        sum = arithmetic.add(sum, tile);
      }
      return sum;
    case OrderKind::pairwise: {
      std::vector<double> level;
      for (std::size_t i = 0; i < n; ++i) level.push_back(product(i));
      while (level.size() > 1) {
        std::vector<double> next;
        for (std::size_t i = 0; i + 1 < level.size(); i += 2) {
          next.push_back(arithmetic.add(level[i], level[i + 1]));
        }
        if (level.size() % 2 == 1) next.push_back(level.back());
        level.swap(next);
      }
      return level.empty() ? 0.0 : arithmetic.round(level[0]);
    }
    case OrderKind::lanes: {
      std::vector<double> lanes;
      for (std::size_t lane = 0; lane < std::min(size, n); ++lane) {
        lanes.push_back(chain(lane, n, size));
      }
      return random_association(arithmetic, lanes, g);
    }
    case OrderKind::matrix_unit:
      for (std::size_t t = 0; t < n; t += size) {
        sum = matrix_step(unit, a.data() + t, b.data() + t, std::min(size, n - t), sum);
      }
      return sum;
    case OrderKind::any: {
      std::vector<double> pool;
      for (std::size_t i = 0; i < n; ++i) pool.push_back(product(i));
      return random_association(arithmetic, pool, g);
    }
  }
  return sum;
}

/// A random number of a format: `bits` of spread in the exponent around 2^center.
inline double random_value(const Format& format, Random& g, int center, int spread) {
  const double x =
      std::ldexp(1 + uniform(g), center + static_cast<int>(below(g, spread + 1)) - spread / 2);
  const double r = Arithmetic{format}.round(x);
  return g() & 1 ? r : -r;
}

inline std::vector<Accumulator> accumulators(const Format& format) {
  std::vector<Accumulator> all;
  for (const AccumulationOrder& order :
       {AccumulationOrder{OrderKind::sequential}, AccumulationOrder{OrderKind::tile, 8},
        AccumulationOrder{OrderKind::tile, 5}, AccumulationOrder{OrderKind::pairwise},
        AccumulationOrder{OrderKind::lanes, 4}, AccumulationOrder{OrderKind::lanes, 7},
        AccumulationOrder{OrderKind::any}, AccumulationOrder{OrderKind::matrix_unit, 8, 13},
        AccumulationOrder{OrderKind::matrix_unit, 16, 25}}) {
    for (const bool flush : {false, true}) {
      for (const bool rounded : {false, true}) {
        if (order.kind == OrderKind::matrix_unit && rounded) continue;
        all.push_back({format, order, flush, rounded});
      }
    }
  }
  return all;
}

}  // namespace headroom::simulation
