// Online softmax: mu is the row's own maximum.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/real/fp_environment.h"
#include "reference/stabilizer/norm_rule.h"

namespace headroom {
namespace {

/// mu_i after the last key: the largest visible score as the kernel holds it, its sum taken one
/// product after another in the accumulator's format. -infinity if no key is visible.
class OnlineRule final : public Stabilizer {
 public:
  OnlineRule(const Head& head, const KernelModel& kernel, const Operands& operands)
      : head_(head), kernel_(kernel), operands_(operands) {}

  std::string_view name() const override { return "online"; }
  double exponent_cap() const override { return 0; }
  GateOutcome gate() const override {
    const double none = std::numeric_limits<double>::infinity();
    return {.accepts = true, .value = 0, .limit = none};
  }

  double mu(std::int64_t row) const override {
    if (!operands_.finite()) return std::numeric_limits<double>::quiet_NaN();
    const auto d = static_cast<std::size_t>(head_.channels());
    std::vector<double> q(d), lo(d), hi(d);
    const NearestRounding nearest;
    operands_.query_row(row, q.data());
    double largest = -std::numeric_limits<double>::infinity();
    const KeyRange visible = head_.visibility.visible(row);
    for (std::int64_t j = visible.begin; j < visible.end; ++j) {
      operands_.key_row(j, lo.data(), hi.data());
      largest = std::fmax(largest, score(q, lo));
    }
    return round_to(
        kernel_.stabilizer.store, largest,
        {.rounding = kernel_.stabilizer.round_up ? Rounding::upward : Rounding::nearest_even});
  }

 private:
  double score(const std::vector<double>& q, const std::vector<double>& k) const {
    const KernelArithmetic accumulator(kernel_.score.accumulator.format);
    const KernelArithmetic exponent(kernel_.exponent.format);
    const double factor = operands_.stored_score_factor();
    double z = accumulator.dot(q, k);
    if (kernel_.score.scale_before_store && factor != 1) z = accumulator.multiply(z, factor);
    z = round_to(kernel_.score.store, z);
    if (!kernel_.score.scale_before_store && factor != 1) z = exponent.multiply(z, factor);
    return z;
  }

  const Head& head_;
  const KernelModel& kernel_;
  const Operands& operands_;
};

}  // namespace

std::unique_ptr<Stabilizer> make_online(const Head& head, const KernelModel& kernel,
                                        const Operands& operands, const StabilizerParameters&) {
  return std::make_unique<OnlineRule>(head, kernel, operands);
}

}  // namespace headroom
