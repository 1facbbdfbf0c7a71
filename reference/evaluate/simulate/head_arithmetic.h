// The arithmetic of one kernel on one head: operands as multiplied, scores, exponents, units.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "reference/evaluate/simulate/lanes/lane_kernels.h"
#include "reference/evaluate/simulate/running_sum.h"
#include "reference/evaluate/simulate/simulate.h"
#include "reference/evaluate/simulate/stage.h"
#include "reference/evaluate/simulate/units.h"
#include "reference/model/operands.h"

namespace headroom {

/// What both implementations of the simulation, and the stabilizers, compute with. Holds Q~ and K~
/// as floats. Requires: NearestRounding is active in the constructor and in every member; the
/// problem and the kernel outlive this. The const members may be called from several threads.
class HeadArithmetic final : public LoopArithmetic {
 public:
  /// Throws InputError where problem and kernel do not fit.
  HeadArithmetic(const AttentionProblem& problem, const KernelModel& kernel,
                 const SimulationOptions& options);

  /// Reads the problem's operands anew. Requires: their shapes and formats, and everything else in
  /// the problem and the kernel, are as they were.
  void reload();

  std::int64_t queries() const override { return problem_->queries(); }
  std::int64_t keys() const override { return length_; }
  std::int64_t padded_keys() const override { return problem_->keys(); }
  std::int64_t channels() const override { return problem_->channels(); }
  const KernelModel& model() const override { return *kernel_; }
  float score_factor() const override { return stored_factor_; }
  void exponentials(const float* x, float* y, std::size_t n) const override {
    unit_.apply(x, y, n);
  }
  float largest_value() const override;
  int key_block() const override { return kernel_->tiles.keys; }
  const float* query(std::int64_t row) const override { return &queries_[at(row)]; }
  const float* key(std::int64_t key) const override { return &keys_[at(key)]; }
  bool sees(std::int64_t row, std::int64_t key) const override {
    return problem_->visible(row, key);
  }
  float score(std::int64_t row, const float* key) const override;
  float scaled(float stored_score) const override {
    return factor_ == 1 ? stored_score
                        : static_cast<float>(exponent_.multiply(stored_score, factor_));
  }
  float factor() const override { return factor_; }
  bool fused() const override { return kernel_->exponent.fused; }
  float exponential(float x) const override { return unit_(x); }
  float round_exponent(double exact) const override {
    return static_cast<float>(exponent_.round(exact));
  }
  float store(double exact) const override;
  float largest_weight() const override {
    return static_cast<float>(kernel_->p.format.max_finite());
  }
  std::optional<float> sink() const override {
    return kernel_->sink == SinkPlace::start ? sink_ : std::nullopt;
  }
  std::optional<float> softcap() const override { return cap_; }

  const AttentionProblem& problem() const { return *problem_; }
  const KernelModel& kernel() const { return *kernel_; }
  const SimulationOptions& options() const { return options_; }
  const ExponentialUnit& unit() const { return unit_; }
  /// The sink in the unit of scaled scores, wherever it enters.
  std::optional<float> scaled_sink() const { return sink_; }
  /// The constant at the score site where it multiplies before the store; 1 if none.
  float early_factor() const { return early_factor_; }

  /// The keys that a tile holds, padding included where it is computed.
  std::int64_t tiled_keys() const { return tiled_keys_; }
  /// A stored score with the bias of this pair added: `score` is what score() gave.
  float biased(std::int64_t row, std::int64_t key, float score) const;
  /// What the mask makes of the score of a hidden key.
  float masked(float score) const;
  /// x = z - shift of a stored score.
  float exponent(float score, float shift) const {
    return static_cast<float>(kernel_->exponent.fused && factor_ != 1
                                  ? exponent_.fma(score, factor_, -static_cast<double>(shift))
                                  : exponent_.add(scaled(score), -static_cast<double>(shift)));
  }
  /// exponent.format, p.format and normalise.output as stages.
  const Stage& exponent_stage() const { return exponent_; }
  const Stage& weight_stage() const { return weight_; }

  /// ln x or log2 x in FP32, correctly rounded; of 0 minus infinity.
  static float logarithm(ExponentBase base, float x);
  /// e^x or 2^x in FP32, correctly rounded, gradual.
  float exact_power(ExponentBase base, float x) const {
    return base == ExponentBase::two ? power_2_(x) : power_e_(x);
  }

 private:
  std::size_t at(std::int64_t row) const {
    return static_cast<std::size_t>(row * problem_->channels());
  }
  void load_queries();
  void load_keys();
  void load(const Matrix& from, std::int64_t rows, bool fold, double constant, float* to) const;
  float capped(float u) const;

  const AttentionProblem* problem_;
  const KernelModel* kernel_;
  SimulationOptions options_;
  Stage score_, store_, exponent_, weight_;
  SumRule score_sum_;
  ExponentialUnit unit_, power_2_, power_e_;
  std::vector<float> queries_, keys_, mean_;
  std::int64_t length_ = 0, tiled_keys_ = 0;
  StoredConstants constants_;
  Narrowing arithmetic_, operand_, difference_;  ///< of the folded constants and of centring
  float factor_ = 1, early_factor_ = 1, stored_factor_ = 1;
  mutable std::atomic<float> largest_value_ = -1;  ///< negative: not known yet
  std::optional<float> sink_, cap_;
  /// Of scores that are capped before they are scaled: u = s * cap_slope_, which may be 0.
  std::optional<float> cap_slope_;
  float bias_factor_ = 1;
};

}  // namespace headroom
