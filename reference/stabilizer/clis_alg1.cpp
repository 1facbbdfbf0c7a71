// CLiS as its paper's page states it, Algorithm 1, lines 1-7, with a one-sided gate.

#include <mpfr.h>

#include <algorithm>
#include <cmath>

#include "reference/real/fp_environment.h"
#include "reference/stabilizer/norm_rule.h"

namespace headroom {
double clis_alg1_initial_square(const Format& format, std::int64_t n) {
  const int eta = format.emin <= fp32.emin ? format.emin : format.least_exponent();
  return round_to(format, std::ldexp(static_cast<double>(n), eta), {.rounding = Rounding::upward});
}

double clis_alg1_inflation(const Format& format, std::int64_t n) {
  mpfr_t factor;
  mpfr_init2(factor, 128);
  mpfr_set_si_2exp(factor, -1, format.log2_unit_roundoff(), MPFR_RNDN);
  mpfr_add_ui(factor, factor, 1, MPFR_RNDN);  // 1 - u, exact
  mpfr_pow_si(factor, factor, -static_cast<long>(n + 6), MPFR_RNDU);
  const double result = decode(
      format, encode(format, static_cast<mpfr_srcptr>(factor), {.rounding = Rounding::upward}));
  mpfr_clear(factor);
  return result;
}

namespace {

/// C = min(floor(U_exp), ceil(U_acc - A) - 1), A = ceil(log2 N) + ceil(log2 max(1, max|V|)),
/// U the log2 of the largest finite value of exp2's result and of the accumulators.
/// BoundUp(q) = RU(RU(RU(||q|| kappa) F) |factor|), norms rounded to nearest, F =
/// clis_alg1_inflation().
class ClisAlgorithm1Rule final : public NormRule {
 public:
  ClisAlgorithm1Rule(const Head& head, const KernelModel& kernel, const Operands& operands,
                     const StabilizerParameters& parameters)
      : NormRule(head, kernel, operands, parameters,
                 clis_alg1_initial_square(kernel.stabilizer.norm, head.channels())),
        inflation_(clis_alg1_inflation(kernel.stabilizer.norm, head.channels())) {
    const double a =
        ceil_log2_count(head.keys()) + ceil_log2_at_least_one_or_nan(largest_value(head));
    // The largest finite number of a format lies strictly between 2^emax and 2^(emax + 1):
    // floor(U_exp) = emax, ceil(U_acc - A) - 1 = emax - A for the integer A.
    const int accumulators = std::min(kernel.denominator.format.emax, kernel.numerator.format.emax);
    const double by_sums = accumulators - a;
    cap_ = std::isnan(by_sums) ? by_sums : std::min<double>(kernel.exp2.result.emax, by_sums);
  }

  std::string_view name() const override { return "clis-alg1"; }
  double exponent_cap() const override { return cap_; }
  GateOutcome gate() const override {
    return compare(bound_up(largest_query_norm()),
                   cap_ - flush_exponent(kernel().exp2.result, kernel().exp2.flush_to_zero));
  }

 private:
  double base(std::int64_t row) const override { return bound_up(row_norm(row)); }

  double bound_up(double query_norm) const {
    const NearestRounding nearest;  // products of doubles here are exact
    const Format& format = kernel().stabilizer.norm;
    double bound = multiply_up(format, query_norm, largest_key_norm());
    bound = multiply_up(format, bound, inflation_);
    const double factor = round_to(format, stored_factor(), {.rounding = Rounding::upward});
    return factor == 1 ? bound : multiply_up(format, bound, factor);
  }

  double inflation_;
  double cap_ = 0;
};

}  // namespace

std::unique_ptr<Stabilizer> make_clis_alg1(const Head& head, const KernelModel& kernel,
                                           const Operands& operands,
                                           const StabilizerParameters& parameters) {
  return std::make_unique<ClisAlgorithm1Rule>(head, kernel, operands, parameters);
}

}  // namespace headroom
