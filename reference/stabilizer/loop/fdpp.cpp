// FlashDecoding++: a fixed phi, and rows recomputed where a score leaves the window around it.

#include <algorithm>
#include <cmath>

#include "reference/stabilizer/loop/exponent_arithmetic.h"
#include "reference/stabilizer/loop/families.h"
#include "reference/stabilizer/loop/row_maximum.h"

namespace headroom {
namespace {

constexpr double log2_e = 0x1.71547652b82fep+0;

/// mu = phi; a row with a visible score for which a < x - phi < b is false is computed anew
/// (arXiv 2311.01282, section 3). Without the test: executorch's shipped variant.
class FlashDecoding final : public LoopStabilizer {
 public:
  FlashDecoding(std::string_view name, const LoopParameters& parameters)
      : name_(name), phi_(parameters.at("phi")), tested_(parameters.contains("a")) {
    if (tested_) {
      a_ = parameters.at("a");
      b_ = parameters.at("b");
    }
  }
  std::string_view name() const override { return name_; }
  void init(const LoopArithmetic& kernel) override {
    kernel_ = &kernel;
    const double unit = kernel.model().exponent.base == ExponentBase::two ? log2_e : 1;
    shift_ = kernel.round_exponent(phi_ * unit);
    low_ = kernel.round_exponent(a_ * unit);
    high_ = kernel.round_exponent(b_ * unit);
  }
  void before_loop(std::span<const std::int64_t> rows) override { doubtful_.resize(rows.size()); }
  void tile(const TileScores& scores, const TileDecision& decision) override {
    std::fill_n(decision.shift, scores.rows, shift_);
    if (!tested_) return;
    std::fill(doubtful_.begin(), doubtful_.end(), 0);
    find_doubtful(scores);
    with_exponents(kernel_->model().exponent.format, [&](const auto& x) {
      for (std::int64_t r = 0; r < scores.rows; ++r) {
        if (doubtful_[static_cast<std::size_t>(r)] != 0 && !inside(x, scores, r)) {
          decision.recompute[r] = 1;
        }
      }
    });
  }
  std::string_view fallback() const override {
    return tested_ ? std::string_view("online-fa2") : std::string_view();
  }

 private:
  /// Marks rows with a visible score that may be outside: x in FP32 is not inside by a margin of
  /// 8 * 2^-p (|end| + |phi|), when x as the kernel rounds it and x here differ by half of that.
  void find_doubtful(const TileScores& scores) {
    const double size = std::fmax(std::fabs(low_), std::fabs(high_)) + std::fabs(shift_);
    const double margin =
        std::ldexp(size, 3 - kernel_->model().exponent.format.precision) + 0x1p-20;
    const float c = kernel_->factor(), shift = shift_;
    const auto low = static_cast<float>(low_ + margin), high = static_cast<float>(high_ - margin);
    std::int32_t* doubtful = doubtful_.data();
    for (std::int64_t j = 0; j < scores.keys; ++j) {
      const float* s = scores.scores + j * scores.stride;
      for (std::int64_t r = 0; r < scores.rows; ++r) {
        const float x = s[r] * c - shift;
        const int in = static_cast<int>(x > low) & static_cast<int>(x < high);
        doubtful[r] |= static_cast<int>(s[r] != minus_infinity) & (1 - in);
      }
    }
  }

  /// The kernel's own test of one row.
  template <typename Exponents>
  bool inside(const Exponents& x, const TileScores& scores, std::int64_t r) const {
    const float c = kernel_->factor();
    const bool fused = kernel_->fused() && c != 1;
    for (std::int64_t j = 0; j < scores.keys; ++j) {
      const float s = scores.scores[j * scores.stride + r];
      if (s == minus_infinity) continue;
      const float exponent =
          fused ? x.multiply_subtract(s, c, shift_) : x.subtract(kernel_->scaled(s), shift_);
      if (!(exponent > low_ && exponent < high_)) return false;
    }
    return true;
  }

  std::string_view name_;
  double phi_, a_ = 0, b_ = 0;
  bool tested_;
  const LoopArithmetic* kernel_ = nullptr;
  float shift_ = 0, low_ = 0, high_ = 0;
  std::vector<std::int32_t> doubtful_;
};

std::unique_ptr<LoopStabilizer> make_fdpp(std::string_view name, const LoopParameters& parameters) {
  return std::make_unique<FlashDecoding>(name, parameters);
}

}  // namespace

const std::vector<LoopEntry>& range_tested_entries() {
  static const std::vector<LoopEntry> entries = {
      {"fdpp",
       "phi (natural units), rows outside a < x - phi < b recomputed; FlashDecoding++, 2311.01282",
       {{"phi", 0}, {"a", -60}, {"b", 60}},
       make_fdpp},
      {"fdpp-untested",
       "phi (natural units) without a test; executorch pull request 18867",
       {{"phi", 5}},
       make_fdpp},
  };
  return entries;
}

}  // namespace headroom
