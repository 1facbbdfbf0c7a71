// An accumulator of the KV loop or of a score, term by term in the order that its model allows.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "reference/evaluate/simulate/stage.h"
#include "reference/model/kernel_model.h"

namespace headroom {

/// Order of terms where the model says "in any order" (inside a tile, across lanes, "any").
enum class FreeOrder : std::uint8_t { ascending, descending, pairwise, random };

/// How sums of one stage run: the accumulator's model and the choices that it leaves.
struct SumRule {
  /// `a`, `b`: formats of the terms' factors, whose subnormals a matrix unit aligns as numbers of
  /// the format's least exponent.
  explicit SumRule(const Accumulator& accumulator, FreeOrder free = FreeOrder::ascending,
                   const Format& a = fp32, const Format& b = fp32)
      : unit(accumulator),
        stage(accumulator.format, accumulator.flush_to_zero),
        free(free),
        a_emin(a.emin),
        b_emin(b.emin) {}
  Accumulator unit;
  Stage stage;
  FreeOrder free;
  int a_emin, b_emin;
};

/// The sum of products a b (or of a alone). Its partial sums, all numbers of the stage's format:
///
///  * sequential: one; any: one, and the terms of one call in the free order;
///  * tile:N: the tile sums so far and the sum of the current tile's terms, which the next calls
///    continue; inside a call the terms of one tile come in the free order;
///  * lanes:N: term t goes to lane t mod N; the lanes are added in the free order at the end;
///  * pairwise: sums of 1, 2, 4, ... terms, joined as soon as two are equally long;
///  * matrix-unit:F:k: one; each k terms of a call are a step, the last may be shorter.
///
/// Products are exact, or rounded first where the model says so; a matrix unit's always exact.
/// Requires: NearestRounding is active.
class RunningSum {
 public:
  explicit RunningSum(double initial = 0) : run_(initial) {}

  /// Adds a[i] * b[i], i < n; b may be nullptr: 1. `random` is used by FreeOrder::random only.
  void add(const SumRule& rule, const float* a, const float* b, std::int64_t n,
           std::mt19937_64& random);
  /// Multiplies every partial sum, rounding each.
  void scale(const SumRule& rule, double factor);
  /// The sum of everything so far; the partial sums stay.
  double total(const SumRule& rule, std::mt19937_64& random) const;

  /// Sum of |term| over terms that left a partial sum as it was, of the terms themselves since the
  /// beginning; scaled with the sums. An estimate in doubles, for events.
  double absorbed() const { return absorbed_; }

 private:
  double joined(const SumRule& rule, double sum, double term);
  double term(const SumRule& rule, double a, double b) const;
  double chain(const SumRule& rule, double start, const float* a, const float* b, std::int64_t n,
               std::mt19937_64& random);

  double run_ = 0;
  double tile_ = 0;
  std::int64_t in_tile_ = 0;
  std::vector<double> lanes_;
  std::int64_t next_lane_ = 0;
  std::vector<std::pair<double, std::int64_t>> levels_;
  bool started_ = false;
  double absorbed_ = 0;
};

}  // namespace headroom
