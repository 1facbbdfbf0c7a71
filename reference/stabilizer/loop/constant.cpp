// Rules that subtract one number from every score of a head.

#include <algorithm>
#include <cmath>

#include "reference/input_error.h"
#include "reference/stabilizer/loop/families.h"
#include "reference/stabilizer/loop/row_maximum.h"

namespace headroom {
namespace {

constexpr double log2_e = 0x1.71547652b82fep+0;

class ConstantShift : public LoopStabilizer {
 public:
  explicit ConstantShift(std::string_view name) : name_(name) {}
  std::string_view name() const final { return name_; }
  void before_loop(std::span<const std::int64_t>) final {}
  void tile(const TileScores& scores, const TileDecision& decision) final {
    std::fill_n(decision.shift, scores.rows, shift_);
  }

 protected:
  float shift_ = 0;

 private:
  std::string_view name_;
};

/// An estimate of the largest score, never compared with one. Tokamax splash attention's
/// max_logit_const in maxdiffusion 7cfb8801, MaxText's max_logit_estimate.
class StaticMaximum final : public ConstantShift {
 public:
  StaticMaximum(std::string_view name, const LoopParameters& parameters)
      : ConstantShift(name), estimate_(parameters.at("estimate")) {}
  void init(const LoopArithmetic& kernel) override {
    const bool base_2 = kernel.model().exponent.base == ExponentBase::two;
    shift_ = kernel.round_exponent(base_2 ? estimate_ * log2_e : estimate_);
  }

 private:
  double estimate_;
};

/// No capped score is larger than the cap.
class SoftcapMaximum final : public ConstantShift {
 public:
  SoftcapMaximum(std::string_view name, const LoopParameters&) : ConstantShift(name) {}
  void init(const LoopArithmetic& kernel) override {
    const std::optional<float> cap = kernel.softcap();
    if (!cap) throw InputError("stabilizer softcap-max: found no softcap, expected one");
    shift_ = kernel.round_exponent(*cap);
  }
};

template <typename Rule>
std::unique_ptr<LoopStabilizer> make(std::string_view name, const LoopParameters& parameters) {
  return std::make_unique<Rule>(name, parameters);
}

}  // namespace

const std::vector<LoopEntry>& constant_entries() {
  static const std::vector<LoopEntry> entries = {
      {"static-max",
       "`estimate` (natural units) is the maximum, unchecked; tokamax splash, MaxText",
       {{"estimate", 0}},
       make<StaticMaximum>},
      {"softcap-max",
       "the softcap is the maximum: no capped score is larger",
       {},
       make<SoftcapMaximum>},
  };
  return entries;
}

}  // namespace headroom
