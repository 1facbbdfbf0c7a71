// The released fixed stabilizer of AI-Hypercomputer/maxdiffusion 7cfb8801: C = 88, gate 213.

#include <cmath>

#include "reference/stabilizer/norm_rule.h"

namespace headroom {
namespace {

/// mu_i = ceil(||q_i|| max||k||) - 88, gate max||q|| max||k|| <= 213 = 88 + 125. It looks neither
/// at V nor at the number of keys.
class FixedMRule final : public NormRule {
 public:
  using NormRule::NormRule;
  std::string_view name() const override { return "fixed-m"; }
  double exponent_cap() const override { return 88; }
  GateOutcome gate() const override { return compare(nearest_bound(largest_query_norm()), 213); }

 private:
  double base(std::int64_t row) const override { return std::ceil(nearest_bound(row_norm(row))); }
};

}  // namespace

std::unique_ptr<Stabilizer> make_fixed_m(const Head& head, const KernelModel& kernel,
                                         const Operands& operands,
                                         const StabilizerParameters& parameters) {
  return std::make_unique<FixedMRule>(head, kernel, operands, parameters);
}

}  // namespace headroom
