// Rules that keep a stale maximum while it lags little: FlashAttention-4's, and a wave's.

#include <algorithm>
#include <cmath>

#include "reference/stabilizer/loop/exponent_arithmetic.h"
#include "reference/stabilizer/loop/families.h"
#include "reference/stabilizer/loop/row_maximum.h"

namespace headroom {
namespace {

constexpr double from_kernel = std::numeric_limits<double>::quiet_NaN();

enum class Vote : std::uint8_t {
  row,   ///< each row decides for itself
  tile,  ///< one row that must be rescaled makes all follow their maxima
};

/// t = RN(RN(m_old - m_safe) c); a row with t >= -threshold keeps its maximum, correction 1.
/// Dao-AILab/flash-attention 0251105a, flash_attn/cute/softmax.py and flash_fwd_sm100.py.
class ConditionalRescale final : public RowMaximumLoop {
 public:
  ConditionalRescale(std::string_view name, Vote vote, const LoopParameters& parameters)
      : RowMaximumLoop(name),
        vote_(vote),
        descending_(parameters.at("descending") != 0),
        asked_threshold_(parameters.at("threshold")),
        asked_offset_(parameters.at("offset")) {}

  void init(const LoopArithmetic& kernel) override {
    RowMaximumLoop::init(kernel);
    const bool fp8 = kernel.model().p.format.bits() <= 8;
    const auto or_default = [](double asked, float otherwise) {
      return std::isnan(asked) ? otherwise : static_cast<float>(asked);
    };
    threshold_ = or_default(asked_threshold_, fp8 ? 0.0F : 8.0F);
    offset_ = or_default(asked_offset_, fp8 ? 8.0F : 0.0F);
    start_ = minus_infinity;
    if (const std::optional<float> sink = kernel.sink()) {
      start_ = kernel.round_exponent(static_cast<double>(*sink) / kernel.factor());
    }
  }
  bool couples_rows() const override { return vote_ == Vote::tile; }
  bool starts_at_sink() const override { return true; }
  void before_loop(std::span<const std::int64_t> rows) override {
    RowMaximumLoop::before_loop(rows);
    std::fill(maximum_.begin(), maximum_.end(), start_);
    correction_.resize(rows.size());
  }
  void order(std::vector<std::int64_t>& tiles) const override {
    if (descending_) std::reverse(tiles.begin(), tiles.end());
  }
  void tile(const TileScores& scores, const TileDecision& decision) override {
    std::copy(maximum_.begin(), maximum_.end(), top_.begin());
    raise_to_stored(scores, NanInMaximum::dropped, top_.data());
    with_exponents(kernel().model().exponent.format, [&](const auto& x) {
      // the first tile takes its maximum as it is: there is nothing to rescale
      if (scores.tile == 0 && start_ == minus_infinity) {
        maximum_ = top_;
      } else {
        follow(x, decision.correction);
      }
      subtract(x, decision.shift);
    });
  }
  float offset() const override { return offset_; }

 private:
  template <typename Exponents>
  void follow(const Exponents& x, float* correction) {
    const float c = kernel().factor(), threshold = threshold_;
    const auto rows = static_cast<std::int64_t>(maximum_.size());
    float *m = maximum_.data(), *change = change_.data();
    const float* top = top_.data();
    int beyond = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      const float next = top[r], safe = next == minus_infinity ? 0.0F : next;
      change[r] = x.multiply(x.subtract(m[r], safe), c);
      beyond |= change[r] < -threshold ? 1 : 0;
    }
    kernel().exponentials(change, correction_.data(), maximum_.size());
    const bool keeps = threshold > 0;
    const bool all_keep = keeps && vote_ == Vote::tile && beyond == 0;
    const bool rows_keep = keeps && vote_ == Vote::row;
    for (std::int64_t r = 0; r < rows; ++r) {
      const bool keep = all_keep || (rows_keep && change[r] >= -threshold);
      correction[r] = keep ? 1.0F : correction_[static_cast<std::size_t>(r)];
      m[r] = keep ? m[r] : top[r];
    }
  }

  template <typename Exponents>
  void subtract(const Exponents& x, float* shift) const {
    const float c = kernel().factor(), offset = offset_;
    const float* m = maximum_.data();
    const auto rows = static_cast<std::int64_t>(maximum_.size());
    for (std::int64_t r = 0; r < rows; ++r) {
      const float product = x.multiply(m[r], c);
      shift[r] = m[r] == minus_infinity ? 0.0F : product;
    }
    if (offset == 0) return;
    for (std::int64_t r = 0; r < rows; ++r) shift[r] = x.subtract(shift[r], offset);
  }

  Vote vote_;
  bool descending_;
  double asked_threshold_, asked_offset_;
  float threshold_ = 8, offset_ = 0, start_ = minus_infinity;
  std::vector<float> correction_;
};

/// A wave of rows rescales when one of them grew beyond the threshold; then every row of the wave
/// takes its tile's maximum, even a lower one. ROCm/FlyDSL pull request 1033.
class LazyWave final : public RowMaximumLoop {
 public:
  LazyWave(std::string_view name, const LoopParameters& parameters)
      : RowMaximumLoop(name),
        wave_(static_cast<std::int64_t>(parameters.at("wave"))),
        threshold_(static_cast<float>(parameters.at("threshold"))),
        running_(parameters.at("running_max") != 0) {}

  void init(const LoopArithmetic& kernel) override {
    RowMaximumLoop::init(kernel);
    start_ = minus_infinity;
    if (const std::optional<float> sink = kernel.sink()) {
      start_ = kernel.round_exponent(static_cast<double>(*sink) / kernel.factor());
    }
  }
  bool couples_rows() const override { return true; }
  bool starts_at_sink() const override { return true; }
  void before_loop(std::span<const std::int64_t> rows) override {
    RowMaximumLoop::before_loop(rows);
    std::fill(maximum_.begin(), maximum_.end(), start_);
    correction_.resize(rows.size());
  }
  void tile(const TileScores& scores, const TileDecision& decision) override {
    std::fill(top_.begin(), top_.end(), minus_infinity);
    raise_to_stored(scores, NanInMaximum::dropped, top_.data());
    with_exponents(kernel().model().exponent.format, [&](const auto& x) {
      follow(x, scores.tile == 0 && start_ == minus_infinity, decision.correction);
      for (std::size_t r = 0; r < maximum_.size(); ++r) {
        const float m = maximum_[r];
        decision.shift[r] = m == minus_infinity ? 0.0F : x.multiply(m, kernel().factor());
      }
    });
  }

 private:
  template <typename Exponents>
  void follow(const Exponents& x, bool first, float* correction) {
    const float c = kernel().factor();
    for (std::size_t r = 0; r < maximum_.size(); ++r) {
      // a row whose tile is hidden, or that only grows under running_max, keeps its maximum
      const float old = maximum_[r];
      if (top_[r] == minus_infinity || (running_ && !(top_[r] > old))) top_[r] = old;
      const float safe = top_[r] == minus_infinity ? 0.0F : top_[r];
      change_[r] = x.multiply(x.subtract(old, safe), c);
    }
    if (first) {
      maximum_ = top_;
      return;
    }
    kernel().exponentials(change_.data(), correction_.data(), change_.size());
    const std::size_t wave = wave_ == 0 ? maximum_.size() : static_cast<std::size_t>(wave_);
    for (std::size_t begin = 0; begin < maximum_.size(); begin += wave) {
      const std::size_t end = std::min(begin + wave, maximum_.size());
      bool beyond = false;
      for (std::size_t r = begin; r < end; ++r) {
        beyond = beyond || (top_[r] != minus_infinity && change_[r] < -threshold_);
      }
      if (!beyond) continue;
      for (std::size_t r = begin; r < end; ++r) {
        correction[r] = correction_[r];
        maximum_[r] = top_[r];
      }
    }
  }

  std::int64_t wave_;
  float threshold_, start_ = minus_infinity;
  bool running_;
  std::vector<float> correction_;
};

template <Vote vote>
std::unique_ptr<LoopStabilizer> make_conditional(std::string_view name,
                                                 const LoopParameters& parameters) {
  return std::make_unique<ConditionalRescale>(name, vote, parameters);
}
std::unique_ptr<LoopStabilizer> make_wave(std::string_view name, const LoopParameters& parameters) {
  return std::make_unique<LazyWave>(name, parameters);
}

}  // namespace

const std::vector<LoopEntry>& lazy_entries() {
  using enum LoopEntry::Kind;
  const std::vector<LoopEntry::Parameter> fa4 = {
      {"threshold", from_kernel}, {"offset", from_kernel}, {"descending", 0, choice}};
  static const std::vector<LoopEntry> entries = {
      {"fa4-row",
       "a row keeps a maximum that lags at most `threshold` (8); FlashAttention-4, cute/softmax.py",
       fa4, make_conditional<Vote::row>},
      {"fa4-tile1",
       "as fa4-row, but all rows of a tile follow their maxima if one must (tile reading T1)", fa4,
       make_conditional<Vote::tile>},
      {"fa4-tile2",
       "as fa4-row: the tile's branch only skips multiplications by 1 (tile reading T2)", fa4,
       make_conditional<Vote::row>},
      {"lazy-wave",
       "a wave of rows takes its tile's maxima if one grew beyond `threshold`; FlyDSL PR 1033",
       {{"wave", 64, count}, {"threshold", 8}, {"running_max", 0, choice}},
       make_wave},
  };
  return entries;
}

}  // namespace headroom
