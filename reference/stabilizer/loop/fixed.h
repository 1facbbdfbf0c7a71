// Stabilizers that are known before the loop: one mu a query row.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reference/stabilizer/loop/loop.h"

namespace headroom {

/// The loop of a fixed stabilizer whose mu and gate were computed before (`Stabilizer::mu`,
/// `Stabilizer::gate`). `mus`: one a query row, the shift as it is. `last_online`: the last tile
/// raises mu to the row's maximum there and corrects, as the released kernel does.
std::unique_ptr<LoopStabilizer> make_fixed_loop(std::string name, std::vector<float> mus, bool gate,
                                                bool last_online = false);

/// Norms of a head's operands as the kernel computes them: the largest, and each query row's.
struct LoopNorms {
  double query = 0, key = 0;
  std::span<const double> rows;
};
/// What `clis` subtracts and multiplies with, and whether the fixed path is taken at all.
struct LoopTable {
  double cap = 0, kappa = 0;
  bool accepts = true;
};
/// `clis` whose table is made anew of each head, once its norms are known.
std::unique_ptr<LoopStabilizer> make_clis_loop(
    std::function<LoopTable(const LoopArithmetic& kernel, const LoopNorms& norms)> make_table);

/// a + b + c rounded once into `format`, to nearest even, or toward +infinity if `round_up`. Any
/// that is not finite: their sum. Requires: NearestRounding is active; numbers of at most 24 bits
/// of binary32's range, so that no double of the computation over- or underflows.
double round_sum_of_three(const Format& format, bool round_up, double a, double b, double c);

}  // namespace headroom
