// Frozen maxima: from signed abs-max keys of blocks (VFA), or from sampled blocks.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "reference/stabilizer/loop/exponent_arithmetic.h"
#include "reference/stabilizer/loop/families.h"
#include "reference/stabilizer/loop/row_maximum.h"

namespace headroom {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// What both rules share: blocks of keys as large as tiles, and the query block of some rows.
class BlockKeyLoop : public RowMaximumLoop {
 public:
  using RowMaximumLoop::RowMaximumLoop;
  void init(const LoopArithmetic& kernel) override {
    RowMaximumLoop::init(kernel);
    block_ = kernel.key_block();
    blocks_ = (kernel.keys() + block_ - 1) / block_;
  }

 protected:
  std::int64_t block() const { return block_; }
  std::int64_t blocks() const { return blocks_; }
  std::int64_t block_end(std::int64_t b) const {
    return std::min((b + 1) * block_, kernel().keys());
  }
  bool sees_some(std::int64_t row, std::int64_t b) const {
    for (std::int64_t j = b * block_; j < block_end(b); ++j) {
      if (kernel().sees(row, j)) return true;
    }
    return false;
  }
  /// Largest scaled score of the row with the visible keys of a block, fmax.
  float block_maximum(std::int64_t row, std::int64_t b) const {
    float m = minus_infinity;
    for (std::int64_t j = b * block_; j < block_end(b); ++j) {
      if (!kernel().sees(row, j)) continue;
      m = maximum(m, kernel().scaled(kernel().score(row, kernel().key(j))), NanInMaximum::dropped);
    }
    return m;
  }
  float add(float a, float b) const {
    float sum = 0;
    with_exponents(kernel().model().exponent.format,
                   [&](const auto& x) { sum = x.subtract(a, -b); });
    return sum;
  }
  /// First and last row of the query block that holds `row`.
  std::pair<std::int64_t, std::int64_t> query_block(std::int64_t row) const {
    const std::int64_t size = kernel().model().tiles.queries;
    const std::int64_t first = row / size * size;
    return {first, std::min(first + size, kernel().queries()) - 1};
  }
  /// What is subtracted where a row's maximum is `m`: nothing where it has none.
  static float shift_of(float m) { return m == minus_infinity ? 0.0F : m; }

 private:
  std::int64_t block_ = 1, blocks_ = 0;
};

/// m_0 = safety + max over blocks b of z(q, rep_b), rep_b[c] the element of largest magnitude of
/// channel c in the block, sign kept. Sink and local tiles come first and raise m; then it is
/// frozen. VFA, arXiv 2604.12798, and ROCm/aiter pull request 3690.
class BlockKeyMaximum final : public BlockKeyLoop {
 public:
  BlockKeyMaximum(std::string_view name, const LoopParameters& parameters)
      : BlockKeyLoop(name),
        sink_blocks_(static_cast<std::int64_t>(parameters.at("sink_blocks"))),
        local_blocks_(static_cast<std::int64_t>(parameters.at("local_blocks"))),
        asked_safety_(parameters.at("safety")),
        visible_only_(parameters.at("visible_only") != 0),
        prescan_(parameters.at("prescan") != 0) {}

  void init(const LoopArithmetic& kernel) override {
    BlockKeyLoop::init(kernel);
    safety_ = kernel.round_exponent(asked_safety_);
    const auto d = at(kernel.channels());
    representatives_.assign(at(blocks()) * d, 0.0F);
    for (std::int64_t b = 0; b < blocks(); ++b) {
      float* best = representatives_.data() + at(b) * d;
      for (std::int64_t j = b * block(); j < block_end(b); ++j) {
        const float* key = kernel.key(j);
        for (std::size_t c = 0; c < d; ++c) {
          const float larger = std::fabs(key[c]), largest = std::fabs(best[c]);
          if (larger > largest || (larger == largest && key[c] > best[c])) best[c] = key[c];
        }
      }
    }
  }

  void before_loop(std::span<const std::int64_t> rows) override {
    BlockKeyLoop::before_loop(rows);
    const auto d = at(kernel().channels());
    set_local_tiles(rows);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      float m = minus_infinity;
      for (std::int64_t b = 0; b < blocks(); ++b) {
        if (visible_only_ && !sees_some(rows[r], b)) continue;
        const float s = kernel().score(rows[r], representatives_.data() + at(b) * d);
        m = maximum(m, kernel().scaled(s), NanInMaximum::dropped);
      }
      if (safety_ != 0 && m != minus_infinity) m = add(m, safety_);
      for (std::int64_t b = 0; prescan_ && b < blocks(); ++b) {
        if (updates(b)) m = maximum(m, block_maximum(rows[r], b), NanInMaximum::dropped);
      }
      maximum_[r] = m;
    }
  }

  void order(std::vector<std::int64_t>& tiles) const override {
    std::stable_partition(tiles.begin(), tiles.end(), [&](std::int64_t t) { return updates(t); });
  }

  void tile(const TileScores& scores, const TileDecision& decision) override {
    const bool follows = !prescan_ && updates(scores.first_key / block());
    if (follows) {
      std::copy(maximum_.begin(), maximum_.end(), top_.begin());
      raise_to_scaled(kernel(), scores, NanInMaximum::dropped, top_.data());
      with_exponents(kernel().model().exponent.format, [&](const auto& x) {
        for (std::size_t r = 0; r < top_.size(); ++r) {
          change_[r] = x.subtract(maximum_[r], shift_of(top_[r]));
        }
      });
      if (scores.tile > 0) {
        kernel().exponentials(change_.data(), decision.correction, change_.size());
      }
      maximum_ = top_;
    }
    for (std::size_t r = 0; r < maximum_.size(); ++r) decision.shift[r] = shift_of(maximum_[r]);
  }

 private:
  /// The diagonal ends in the last query and the last key, or where all keys are passed.
  void set_local_tiles(std::span<const std::int64_t> rows) {
    first_local_ = last_local_ = -1;
    if (rows.empty() || local_blocks_ == 0 || blocks() == 0) return;
    const auto [first, last] = query_block(rows[0]);
    const std::int64_t offset = kernel().keys() - kernel().queries();
    const auto tile_at = [&](std::int64_t row) {
      return std::clamp<std::int64_t>(row + offset, 0, kernel().keys() - 1) / block();
    };
    first_local_ = std::max<std::int64_t>(tile_at(first) - (local_blocks_ - 1), 0);
    last_local_ = tile_at(last) + local_blocks_ - 1;
  }
  bool updates(std::int64_t tile) const {
    return tile < sink_blocks_ ||
           (first_local_ >= 0 && tile >= first_local_ && tile <= last_local_);
  }

  std::int64_t sink_blocks_, local_blocks_, first_local_ = -1, last_local_ = -1;
  double asked_safety_;
  bool visible_only_, prescan_;
  float safety_ = 0;
  std::vector<float> representatives_;  ///< blocks x channels
};

/// m = safety + the row's exact maximum over n blocks, frozen: a lower bound of its maximum. The
/// second version in ROCm/aiter pull request 3690.
class SampledMaximum final : public BlockKeyLoop {
 public:
  SampledMaximum(std::string_view name, const LoopParameters& parameters)
      : BlockKeyLoop(name),
        count_(static_cast<std::int64_t>(parameters.at("blocks"))),
        seed_(static_cast<std::uint64_t>(parameters.at("seed"))),
        top_blocks_(parameters.at("top") != 0),
        asked_safety_(parameters.at("safety")) {}

  void init(const LoopArithmetic& kernel) override {
    BlockKeyLoop::init(kernel);
    safety_ = kernel.round_exponent(asked_safety_);
    sample_.resize(at(blocks()));
    std::iota(sample_.begin(), sample_.end(), 0);
    if (top_blocks_) {
      pool_keys();
      return;
    }
    // the same blocks for every row: a shuffle's first n (Fisher and Yates), by our own modulo so
    // that every library gives the same
    std::mt19937_64 random(seed_);
    for (std::int64_t i = 0; i < std::min(count_, blocks()); ++i) {
      const auto j =
          i + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(blocks() - i));
      std::swap(sample_[at(i)], sample_[at(j)]);
    }
  }

  void before_loop(std::span<const std::int64_t> rows) override {
    BlockKeyLoop::before_loop(rows);
    if (top_blocks_ && !rows.empty()) rank_blocks(rows[0]);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      float m = minus_infinity;
      for (std::int64_t i = 0; i < std::min(count_, blocks()); ++i) {
        m = maximum(m, block_maximum(rows[r], sample_[at(i)]), NanInMaximum::dropped);
      }
      if (safety_ != 0 && m != minus_infinity) m = add(m, safety_);
      maximum_[r] = shift_of(m);
    }
  }

  void tile(const TileScores&, const TileDecision& decision) override {
    std::copy(maximum_.begin(), maximum_.end(), decision.shift);
  }

 private:
  void pool_keys() {
    const auto d = at(kernel().channels());
    pooled_.assign(at(blocks()) * d, 0.0);
    for (std::int64_t j = 0; j < kernel().keys(); ++j) {
      const float* key = kernel().key(j);
      const std::int64_t b = j / block();
      const auto n = static_cast<double>(block_end(b) - b * block());
      for (std::size_t c = 0; c < d; ++c) pooled_[at(b) * d + c] += key[c] / n;
    }
  }
  /// Blocks by the score of mean keys with the mean query of the block, largest first.
  void rank_blocks(std::int64_t row) {
    const auto d = at(kernel().channels());
    const auto [first, last] = query_block(row);
    std::vector<double> q(d), score(at(blocks()));
    for (std::int64_t i = first; i <= last; ++i) {
      for (std::size_t c = 0; c < d; ++c) q[c] += kernel().query(i)[c];
    }
    for (std::size_t b = 0; b < score.size(); ++b) {
      for (std::size_t c = 0; c < d; ++c) score[b] += q[c] * pooled_[b * d + c];
      if (kernel().score_factor() < 0) score[b] = -score[b];
    }
    std::iota(sample_.begin(), sample_.end(), 0);
    std::stable_sort(sample_.begin(), sample_.end(),
                     [&](std::int64_t a, std::int64_t b) { return score[at(a)] > score[at(b)]; });
  }

  std::int64_t count_;
  std::uint64_t seed_;
  bool top_blocks_;
  double asked_safety_;
  float safety_ = 0;
  std::vector<std::int64_t> sample_;
  std::vector<double> pooled_;  ///< blocks x channels
};

template <typename Rule>
std::unique_ptr<LoopStabilizer> make(std::string_view name, const LoopParameters& parameters) {
  return std::make_unique<Rule>(name, parameters);
}

}  // namespace

const std::vector<LoopEntry>& block_key_entries() {
  using enum LoopEntry::Kind;
  static const std::vector<LoopEntry> entries = {
      {"vfa",
       "signed abs-max keys of blocks, raised in sink and local tiles, then frozen; VFA, "
       "2604.12798",
       {{"sink_blocks", 1, count},
        {"local_blocks", 1, count},
        {"safety", 0},
        {"visible_only", 1, choice},
        {"prescan", 0, choice}},
       make<BlockKeyMaximum>},
      {"vfa-sampled",
       "the maximum over sampled blocks, frozen; ROCm/aiter pull request 3690",
       {{"blocks", 8, count}, {"seed", 0, count}, {"top", 0, choice}, {"safety", 0}},
       make<SampledMaximum>},
  };
  return entries;
}

}  // namespace headroom
