// The proposal of maxdiffusion's pull request 477: C depends on the number of keys and on vmax.

#include <algorithm>
#include <cmath>

#include "reference/stabilizer/norm_rule.h"

namespace headroom {
namespace {

/// C(N) = 127 - ceil(log2 N) - max(0, ceil(log2 vmax)), W = C + 125; gate floor(W / 2) two-sided,
/// W one-sided; refuses heads with max |V| > vmax and P formats that do not hold 2^C.
/// mu = ceil(max||q|| max||k||) - C, the maximum over the row's query block.
class FixedMNRule final : public NormRule {
 public:
  FixedMNRule(const Head& head, const KernelModel& kernel, const Operands& operands,
              const StabilizerParameters& parameters)
      : NormRule(head, kernel, operands, parameters), largest_value_(largest_value(head)) {}

  std::string_view name() const override { return "fixed-m-n"; }
  double exponent_cap() const override {
    return 127 - ceil_log2_count(head().keys()) - ceil_log2_at_least_one_or_nan(kernel().gate.vmax);
  }
  GateOutcome gate() const override {
    const double width = exponent_cap() + 125;
    const bool two_sided = kernel().gate.sides == GateSides::two_sided;
    GateOutcome outcome =
        compare(nearest_bound(largest_query_norm()), two_sided ? std::floor(width / 2) : width);
    const bool weights_fit = kernel().p.format.emax + 1 > exponent_cap();
    // a NaN or infinite V compares false
    outcome.accepts = outcome.accepts && largest_value_ <= kernel().gate.vmax && weights_fit;
    return outcome;
  }

 private:
  double base(std::int64_t row) const override {
    double norm = row_norm(row);
    if (const std::int64_t block = kernel().gate.query_block; block > 0) {
      const std::int64_t begin = row / block * block;
      const std::int64_t end = std::min(begin + block, head().queries());
      for (std::int64_t i = begin; i < end; ++i) norm = std::fmax(norm, row_norm(i));
    }
    return std::ceil(nearest_bound(norm));
  }

  double largest_value_;
};

}  // namespace

std::unique_ptr<Stabilizer> make_fixed_m_n(const Head& head, const KernelModel& kernel,
                                           const Operands& operands,
                                           const StabilizerParameters& parameters) {
  return std::make_unique<FixedMNRule>(head, kernel, operands, parameters);
}

}  // namespace headroom
