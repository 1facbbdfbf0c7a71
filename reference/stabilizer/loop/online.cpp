// Online softmax as public kernels write it: the row's running maximum, raw or scaled.

#include <algorithm>
#include <cmath>

#include "reference/stabilizer/loop/exponent_arithmetic.h"
#include "reference/stabilizer/loop/families.h"
#include "reference/stabilizer/loop/row_maximum.h"

namespace headroom {
namespace {

constexpr double from_kernel = std::numeric_limits<double>::quiet_NaN();
constexpr double log2_e = 0x1.71547652b82fep+0;

/// -0.7 of FP32's largest number, the mask value of JAX's Pallas kernels, where m starts.
constexpr double jax_mask_value = -0.7 * 0x1.FFFFFEp127;

/// `x` in the exponent's format, but finite.
float finite_start(const LoopArithmetic& kernel, double x) {
  const auto largest = static_cast<float>(kernel.model().exponent.format.max_finite());
  return std::isinf(x) ? static_cast<float>(x)
                       : std::clamp(kernel.round_exponent(x), -largest, largest);
}

/// m is the maximum of stored scores before they are scaled. Dao-AILab/flash-attention 0251105a,
/// csrc/flash_attn/src/softmax.h and hopper/softmax.h.
class RawMaximum final : public RowMaximumLoop {
 public:
  RawMaximum(std::string_view name, const LoopParameters& parameters)
      : RowMaximumLoop(name),
        initial_(static_cast<float>(parameters.at("initial_max"))),
        check_infinity_(parameters.at("check_inf") != 0),
        descending_(parameters.at("descending") != 0),
        asked_offset_(parameters.contains("offset") ? parameters.at("offset") : 0) {}

  void init(const LoopArithmetic& kernel) override {
    RowMaximumLoop::init(kernel);
    const bool fp8 = kernel.model().p.format.bits() <= 8;
    offset_ = std::isnan(asked_offset_) ? (fp8 ? 8.0F : 0.0F) : static_cast<float>(asked_offset_);
    start_ = initial_;
    if (const std::optional<float> sink = kernel.sink()) {
      // m is a stored score: the sink before it is scaled
      start_ = kernel.round_exponent(static_cast<double>(*sink) / kernel.factor());
    }
    first_correction_ = kernel.sink().has_value();
  }
  bool starts_at_sink() const override { return true; }
  void before_loop(std::span<const std::int64_t> rows) override {
    RowMaximumLoop::before_loop(rows);
    std::fill(maximum_.begin(), maximum_.end(), start_);
  }
  void order(std::vector<std::int64_t>& tiles) const override {
    if (descending_) std::reverse(tiles.begin(), tiles.end());
  }
  void tile(const TileScores& scores, const TileDecision& decision) override {
    std::copy(maximum_.begin(), maximum_.end(), top_.begin());
    raise_to_stored(scores, NanInMaximum::dropped, top_.data());
    with_exponents(kernel().model().exponent.format,
                   [&](const auto& x) { follow(x, scores.rows, decision.shift); });
    if (scores.tile > 0 || first_correction_) {
      kernel().exponentials(change_.data(), decision.correction, maximum_.size());
    }
  }
  float offset() const override { return offset_; }

 private:
  template <typename Exponents>
  void follow(const Exponents& x, std::int64_t rows, float* shift) {
    const float c = kernel().factor(), offset = offset_;
    const bool check = check_infinity_;
    const float *top = top_.data(), safe_for_none = check ? 0.0F : minus_infinity;
    float *m = maximum_.data(), *change = change_.data();
    for (std::int64_t r = 0; r < rows; ++r) {
      const float old = m[r], next = top[r];
      const bool none = next == minus_infinity;
      const float safe = none ? safe_for_none : next;
      change[r] = x.multiply(x.subtract(old, safe), c);
      const float product = x.multiply(next, c);
      shift[r] = none ? 0.0F : product;
      m[r] = next;
    }
    if (offset == 0) return;
    for (std::int64_t r = 0; r < rows; ++r) shift[r] = x.subtract(shift[r], offset);
  }

  float initial_, start_ = minus_infinity, offset_ = 0;
  bool check_infinity_, descending_, first_correction_ = false;
  double asked_offset_;
};

/// FlashInfer: m is raw, what is subtracted is its product, kept finite, and the correction takes
/// the old m through the same exponent. flashinfer-ai/flashinfer fb28d724, prefill.cuh, state.cuh.
class FlashInfer final : public RowMaximumLoop {
 public:
  FlashInfer(std::string_view name, const LoopParameters& parameters)
      : RowMaximumLoop(name), start_(static_cast<float>(parameters.at("initial_max"))) {}

  bool starts_at_sink() const override { return true; }
  void before_loop(std::span<const std::int64_t> rows) override {
    RowMaximumLoop::before_loop(rows);
    float start = start_;
    if (const std::optional<float> sink = kernel().sink()) {
      start = kernel().round_exponent(static_cast<double>(*sink) / kernel().factor());
    }
    std::fill(maximum_.begin(), maximum_.end(), start);
  }
  void tile(const TileScores& scores, const TileDecision& decision) override {
    std::copy(maximum_.begin(), maximum_.end(), top_.begin());
    raise_to_stored(scores, NanInMaximum::dropped, top_.data());
    with_exponents(kernel().model().exponent.format,
                   [&](const auto& x) { follow(x, scores.rows, decision.shift); });
    kernel().exponentials(change_.data(), decision.correction, maximum_.size());
  }
  float initial_denominator() const override { return 1; }

 private:
  template <typename Exponents>
  void follow(const Exponents& x, std::int64_t rows, float* shift) {
    const float c = kernel().factor();
    const auto lowest = -static_cast<float>(kernel().model().exponent.format.max_finite());
    const bool fused = kernel().fused();
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto i = static_cast<std::size_t>(r);
      const float product = x.multiply(top_[i], c);
      const float next = product > lowest ? product : lowest;
      change_[i] = fused ? x.multiply_subtract(maximum_[i], c, next)
                         : x.subtract(x.multiply(maximum_[i], c), next);
      shift[r] = next;
      maximum_[i] = top_[i];
    }
  }

  float start_;
};

/// What the kernels that keep a scaled maximum do differently.
struct ScaledForm {
  NanInMaximum nan = NanInMaximum::dropped;
  bool raw_top = false;   ///< the tile's maximum is taken of stored scores, then scaled
  bool stored = false;    ///< m is rounded to stabilizer.store
  bool from_one = false;  ///< l starts at 1
};

/// m is the maximum of scaled scores, and is itself what is subtracted.
class ScaledMaximum final : public RowMaximumLoop {
 public:
  ScaledMaximum(std::string_view name, const ScaledForm& form, const LoopParameters& parameters)
      : RowMaximumLoop(name), form_(form), initial_(parameters.at("initial_max")) {
    const auto given = [&](const char* key, double otherwise) {
      const auto found = parameters.find(key);
      return found == parameters.end() ? otherwise : found->second;
    };
    guard_ = given("guard", 0) != 0;
    if (const double keep = given("nan_max", from_kernel); !std::isnan(keep)) {
      form_.nan = keep != 0 ? NanInMaximum::kept : NanInMaximum::dropped;
    }
    narrow_correction_ = given("narrow_correction", 0) != 0;
    added_natural_ = given("added", 0);
    flush_natural_ = given("flush_below", -std::numeric_limits<double>::infinity());
  }

  void init(const LoopArithmetic& kernel) override {
    RowMaximumLoop::init(kernel);
    start_ = kernel.sink().value_or(finite_start(kernel, initial_));
    const double unit = kernel.model().exponent.base == ExponentBase::two ? log2_e : 1;
    added_ = kernel.round_exponent(added_natural_ * unit);
    flush_below_ = static_cast<float>(flush_natural_ * unit);
  }
  bool starts_at_sink() const override { return true; }
  void before_loop(std::span<const std::int64_t> rows) override {
    RowMaximumLoop::before_loop(rows);
    std::fill(maximum_.begin(), maximum_.end(), start_);
  }
  void tile(const TileScores& scores, const TileDecision& decision) override {
    std::fill(top_.begin(), top_.end(), minus_infinity);
    if (form_.raw_top) {
      raise_to_stored(scores, form_.nan, top_.data());
      for (float& top : top_) top = kernel().scaled(top);
    } else {
      raise_to_scaled(kernel(), scores, form_.nan, top_.data());
    }
    if (form_.stored) {
      for (float& top : top_) top = kernel().store(top);
    }
    with_exponents(kernel().model().exponent.format, [&](const auto& x) {
      if (narrow_correction_) {
        follow(x, RoundedExponents(kernel().model().stabilizer.store), scores.rows, decision.shift);
      } else {
        follow(x, x, scores.rows, decision.shift);
      }
    });
    correct(decision.correction);
  }
  float initial_denominator() const override { return form_.from_one ? 1.0F : 0.0F; }

 private:
  template <typename Exponents, typename Differences>
  void follow(const Exponents& x, const Differences& differences, std::int64_t rows, float* shift) {
    if (added_ != 0) {
      for (float& top : top_) top = x.subtract(top, -added_);
    }
    const NanInMaximum nan = form_.nan;
    const float for_none = guard_ ? 0.0F : minus_infinity;
    const float* top = top_.data();
    float *m = maximum_.data(), *change = change_.data();
    for (std::int64_t r = 0; r < rows; ++r) {
      const float old = m[r], next = maximum(old, top[r], nan);
      const float safe = next == minus_infinity ? for_none : next;
      change[r] = differences.subtract(old, safe);
      shift[r] = safe;
      m[r] = next;
    }
  }

  void correct(float* correction) {
    kernel().exponentials(change_.data(), correction, change_.size());
    if (narrow_correction_) {
      const KernelArithmetic narrow(kernel().model().stabilizer.store);
      for (std::size_t r = 0; r < change_.size(); ++r) {
        correction[r] = static_cast<float>(narrow.round(correction[r]));
      }
    }
    if (flush_below_ == minus_infinity) return;
    for (std::size_t r = 0; r < change_.size(); ++r) {
      if (change_[r] < flush_below_) correction[r] = 0;
    }
  }

  ScaledForm form_;
  double initial_, added_natural_ = 0, flush_natural_ = 0;
  float start_ = minus_infinity, added_ = 0, flush_below_ = minus_infinity;
  bool guard_ = false, narrow_correction_ = false;
};

std::unique_ptr<LoopStabilizer> make_raw(std::string_view name, const LoopParameters& parameters) {
  return std::make_unique<RawMaximum>(name, parameters);
}
std::unique_ptr<LoopStabilizer> make_flashinfer(std::string_view name,
                                                const LoopParameters& parameters) {
  return std::make_unique<FlashInfer>(name, parameters);
}
template <ScaledForm form>
std::unique_ptr<LoopStabilizer> make_scaled(std::string_view name,
                                            const LoopParameters& parameters) {
  return std::make_unique<ScaledMaximum>(name, form, parameters);
}

}  // namespace

const std::vector<LoopEntry>& online_entries() {
  using enum LoopEntry::Kind;
  constexpr double none = -std::numeric_limits<double>::infinity();
  static const std::vector<LoopEntry> entries = {
      {"online-fa2",
       "running maximum of raw scores, fma(s, c, -RN(m c)); flash-attention 2, softmax.h",
       {{"initial_max", none}, {"check_inf", 1, choice}, {"descending", 0, choice}},
       make_raw},
      {"online-fa3",
       "as online-fa2, less `offset` where P is FP8 (8); flash-attention 3, hopper/softmax.h",
       {{"initial_max", none},
        {"check_inf", 1, choice},
        {"descending", 0, choice},
        {"offset", from_kernel}},
       make_raw},
      {"online-scaled",
       "running maximum of scaled scores; JAX Mosaic GPU's attention is guard = 0",
       {{"initial_max", none}, {"guard", 1, choice}},
       make_scaled<ScaledForm{}>},
      {"online-triton",
       "running maximum of RN(max(s) c), l starts at 1; Triton tutorial 06",
       {{"initial_max", none}},
       make_scaled<ScaledForm{.raw_top = true, .from_one = true}>},
      {"online-splash",
       "running maximum from JAX's finite mask value on; Pallas TPU flash and splash attention",
       {{"initial_max", jax_mask_value}, {"nan_max", 1, choice}},
       make_scaled<ScaledForm{.nan = NanInMaximum::kept}>},
      {"online-maxdiffusion",
       "online-splash over sub-tiles; maxdiffusion 7cfb8801, custom_splash_attention.py",
       {{"initial_max", jax_mask_value}, {"nan_max", 1, choice}},
       make_scaled<ScaledForm{.nan = NanInMaximum::kept}>},
      {"online-rpa",
       "running maximum rounded to stabilizer.store; tpu-inference b8692ff0, RPA v3",
       {{"initial_max", none}, {"nan_max", 1, choice}, {"narrow_correction", 1, choice}},
       make_scaled<ScaledForm{.nan = NanInMaximum::kept, .stored = true}>},
  };
  return entries;
}

const std::vector<LoopEntry>& later_online_entries() {
  constexpr double none = -std::numeric_limits<double>::infinity();
  static const std::vector<LoopEntry> entries = {
      {"online-flashinfer",
       "running maximum of raw scores, finite shift, l starts at 1; FlashInfer's prefill.cuh",
       {{"initial_max", none}},
       make_flashinfer},
      {"llama-offset",
       "running maximum plus `added` (3 ln 2), far corrections flushed; llama.cpp 033efaf9, CUDA",
       {{"initial_max", -65504.0 / 2}, {"added", 3 * 0.6931}, {"flush_below", -20}},
       make_scaled<ScaledForm{}>},
  };
  return entries;
}

}  // namespace headroom
