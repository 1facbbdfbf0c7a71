// The certified stabilizer: a slope kappa from the certifier, and mu rounded as the kernel stores.

#include <cmath>
#include <stdexcept>

#include "reference/real/fp_environment.h"
#include "reference/stabilizer/norm_rule.h"

namespace headroom {
namespace {

/// mu_i = store(RN(||q_i|| kappa) - C), one rounding into the store format; the gate is
/// RU(RU(max||q|| kappa) + residual) <= width.
class ClisRule final : public NormRule {
 public:
  ClisRule(const Head& head, const KernelModel& kernel, const Operands& operands,
           const StabilizerParameters& parameters, const ClisTable& table)
      : NormRule(head, kernel, operands, parameters), table_(table) {}

  std::string_view name() const override { return "clis"; }
  double exponent_cap() const override { return table_.cap; }
  GateOutcome gate() const override {
    const Format& format = kernel().stabilizer.norm;
    double value = 0;
    {
      const NearestRounding nearest;
      value = multiply_up(format, largest_query_norm(), table_.kappa);
    }
    {
      // a double sum rounded up, then rounded up into the format: not below the exact sum
      const UpwardRounding up;
      value = opaque(opaque(value) + table_.residual);
    }
    value = round_to(format, value, {.rounding = Rounding::upward});
    return compare(value, table_.width);
  }

 private:
  double base(std::int64_t row) const override {
    const NearestRounding nearest;
    return arithmetic().multiply(row_norm(row), table_.kappa);
  }

  ClisTable table_;
};

}  // namespace

std::unique_ptr<Stabilizer> make_clis(const Head& head, const KernelModel& kernel,
                                      const Operands& operands,
                                      const StabilizerParameters& parameters) {
  if (!parameters.clis) throw std::invalid_argument("clis: needs its table");
  return std::make_unique<ClisRule>(head, kernel, operands, parameters, *parameters.clis);
}

}  // namespace headroom
