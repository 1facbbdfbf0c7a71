// A kernel's arithmetic made of few lines, and a loop over tiles, to run stabilizers with.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "reference/format/convert.h"
#include "reference/model/kernel_file.h"
#include "reference/real/fp_environment.h"
#include "reference/stabilizer/loop/loop.h"

namespace headroom {

/// Scores are what the test says; operands only where a rule looks at them. FP32 exp2 or exp with
/// gradual underflow, from libm in doubles: exact powers at integers.
class TestArithmetic : public LoopArithmetic {
 public:
  KernelModel kernel = preset("ieee-fp32");
  std::vector<std::vector<float>> q, k;
  float c = 1, factor_before = 1, largest_v = 1;
  std::int64_t all_keys = -1;  ///< with padding; -1: as many as k
  std::function<bool(std::int64_t, std::int64_t)> visible;
  std::optional<float> sink_score, cap;

  std::int64_t queries() const override { return static_cast<std::int64_t>(q.size()); }
  std::int64_t keys() const override { return static_cast<std::int64_t>(k.size()); }
  std::int64_t padded_keys() const override { return all_keys < 0 ? keys() : all_keys; }
  std::int64_t channels() const override {
    return k.empty() ? 0 : static_cast<std::int64_t>(k[0].size());
  }
  int key_block() const override { return kernel.tiles.keys; }
  const KernelModel& model() const override { return kernel; }
  const float* query(std::int64_t row) const override {
    return q[static_cast<std::size_t>(row)].data();
  }
  const float* key(std::int64_t key) const override {
    return k[static_cast<std::size_t>(key)].data();
  }
  bool sees(std::int64_t row, std::int64_t key) const override {
    return !visible || visible(row, key);
  }
  float score(std::int64_t row, const float* key) const override {
    float sum = 0;
    for (std::int64_t i = 0; i < channels(); ++i) sum += query(row)[i] * key[i];
    return sum * factor_before;
  }
  float scaled(float s) const override { return c == 1 ? s : round_exponent(double{s} * c); }
  float factor() const override { return c; }
  float score_factor() const override { return c * factor_before; }
  bool fused() const override { return kernel.exponent.fused; }
  float exponential(float x) const override {
    const double wide = x;
    return static_cast<float>(kernel.exponent.base == ExponentBase::two ? std::exp2(wide)
                                                                        : std::exp(wide));
  }
  float round_exponent(double exact) const override {
    return static_cast<float>(round_to(kernel.exponent.format, exact));
  }
  float store(double exact) const override {
    return static_cast<float>(round_to(
        kernel.stabilizer.store, exact,
        {.rounding = kernel.stabilizer.round_up ? Rounding::upward : Rounding::nearest_even}));
  }
  float largest_weight() const override { return static_cast<float>(kernel.p.format.max_finite()); }
  float largest_value() const override { return largest_v; }
  std::optional<float> sink() const override { return sink_score; }
  std::optional<float> softcap() const override { return cap; }

  /// x = z - mu.
  float exponent(float s, float shift) const {
    return kernel.exponent.fused ? std::fma(s, c, -shift) : scaled(s) - shift;
  }
};

/// What a row has after the loop, in FP32 (P rounded to kernel.p.format, l from unrounded P).
struct LoopRow {
  float l = 0, shift = 0;
  std::vector<float> o;
  bool recompute = false;
  std::vector<float> shifts, corrections;  ///< a number a tile, in the order visited
  float output(std::size_t channel = 0) const { return o[channel] / l; }
};

/// Runs rows of scores[row][key] through the tiles; v[key][channel].
inline std::vector<LoopRow> run_loop(const TestArithmetic& kernel, LoopStabilizer& stabilizer,
                                     const std::vector<std::vector<float>>& scores,
                                     const std::vector<std::vector<float>>& v) {
  const NearestRounding nearest;
  stabilizer.init(kernel);
  const std::size_t rows = scores.size(), keys = v.size();
  std::vector<std::int64_t> all(rows);
  std::iota(all.begin(), all.end(), 0);
  stabilizer.before_loop(all);
  const auto block = static_cast<std::size_t>(kernel.key_block());
  std::vector<std::int64_t> tiles((keys + block - 1) / block);
  std::iota(tiles.begin(), tiles.end(), 0);
  stabilizer.order(tiles);
  std::vector<LoopRow> result(rows);
  for (LoopRow& row : result) {
    row.l = kernel.sink_score ? 1 : stabilizer.initial_denominator();
    row.o.assign(v[0].size(), 0.0F);
  }
  std::vector<float> shift(rows);
  std::vector<std::uint8_t> recompute(rows);
  for (std::size_t t = 0; t < tiles.size(); ++t) {
    const std::size_t begin = static_cast<std::size_t>(tiles[t]) * block;
    const std::size_t n = std::min(block, keys - begin), stride = rows + 3;
    std::vector<float> tile(n * stride, 1e30F), correction(rows, 1.0F);
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t r = 0; r < rows; ++r) tile[j * stride + r] = scores[r][begin + j];
    }
    TileScores view;
    view.scores = tile.data();
    view.rows = static_cast<std::int64_t>(rows);
    view.stride = static_cast<std::int64_t>(stride);
    view.keys = static_cast<std::int64_t>(n);
    view.first_key = static_cast<std::int64_t>(begin);
    view.tile = static_cast<std::int64_t>(t);
    view.last = t + 1 == tiles.size();
    stabilizer.tile(view, {shift.data(), correction.data(), recompute.data()});
    for (std::size_t r = 0; r < rows; ++r) {
      LoopRow& row = result[r];
      row.shift = shift[r];
      row.shifts.push_back(shift[r]);
      row.corrections.push_back(correction[r]);
      row.l *= correction[r];
      for (float& o : row.o) o *= correction[r];
      for (std::size_t j = 0; j < n; ++j) {
        const float weight = kernel.exponential(kernel.exponent(scores[r][begin + j], shift[r]));
        const double p =
            round_to(kernel.kernel.p.format, weight, {.saturate = kernel.kernel.p.saturate});
        row.l += weight;
        for (std::size_t i = 0; i < row.o.size(); ++i) {
          row.o[i] += static_cast<float>(p) * v[begin + j][i];
        }
      }
    }
  }
  for (std::size_t r = 0; r < rows; ++r) result[r].recompute = recompute[r] != 0;
  return result;
}

}  // namespace headroom
