#include "fuzz/exact_gate.h"

#include <mpfr.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/evaluate/simulate/head_arithmetic.h"
#include "reference/format/convert.h"
#include "reference/model/operands.h"
#include "reference/real/fp_environment.h"
#include "reference/real/wide_interval.h"
#include "reference/stabilizer/stabilizer.h"

namespace headroom::fuzz {
namespace {

/// Squares of binary32 numbers and of their differences span 2^-298 .. 2^258: sums of them are
/// exact.
constexpr mpfr_prec_t bits = 700;

/// max_i sum_c (x_ic - centre_c)^2, exactly.
class LargestSquare {
 public:
  LargestSquare() {
    for (mpfr_ptr x : {largest_, sum_, term_}) mpfr_init2(x, bits);
    mpfr_set_zero(largest_, 1);
  }
  ~LargestSquare() {
    for (mpfr_ptr x : {largest_, sum_, term_}) mpfr_clear(x);
  }
  LargestSquare(const LargestSquare&) = delete;
  LargestSquare& operator=(const LargestSquare&) = delete;

  void add_row(const float* x, const float* centre, std::int64_t channels) {
    mpfr_set_zero(sum_, 1);
    for (std::int64_t c = 0; c < channels; ++c) {
      mpfr_set_flt(term_, x[c], MPFR_RNDN);
      if (centre != nullptr) mpfr_sub_d(term_, term_, centre[c], MPFR_RNDN);
      mpfr_sqr(term_, term_, MPFR_RNDN);
      mpfr_add(sum_, sum_, term_, MPFR_RNDN);
    }
    if (mpfr_greater_p(sum_, largest_)) mpfr_set(largest_, sum_, MPFR_RNDN);
  }
  /// The norm.
  WideInterval root() const {
    WideInterval x(bits);
    mpfi_set_fr(x.raw(), largest_);
    return sqrt(x);
  }

 private:
  mpfr_t largest_, sum_, term_;
};

bool finite(const float* x, std::int64_t n) {
  return std::all_of(x, x + n, [](float a) { return std::isfinite(a); });
}

/// The stored mean of virtual centring: summed in FP32 one key after another (NormLoop, fixed.cpp).
std::vector<float> stored_mean(const HeadArithmetic& head) {
  std::vector<float> sum(static_cast<std::size_t>(head.channels()));
  for (std::int64_t j = 0; j < head.keys(); ++j) {
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += head.key(j)[c];
  }
  for (float& x : sum) {
    x = static_cast<float>(
        round_to(head.kernel().centring.mean, x / static_cast<float>(head.keys())));
  }
  return sum;
}

}  // namespace

std::optional<ExactGate> exact_gate(const Head& head, const KernelModel& kernel,
                                    const std::string& stabilizer, const LoopParameters& parameters,
                                    const SimulationOptions& how) {
  if (stabilizer != "fixed-m" && stabilizer != "fixed-m-n" && stabilizer != "clis-alg1") {
    return std::nullopt;
  }
  const std::optional<Scale> scale = scale_at_score(head.scale, kernel);
  if (!scale) return std::nullopt;
  ExactGate gate;
  {
    const UpwardRounding up;
    const Operands operands(up, head, kernel);
    if (!operands.finite()) return std::nullopt;
    const GateOutcome own = make_stabilizer(stabilizer, head, kernel, operands)->gate();
    gate.value = own.value;
    gate.limit = own.limit;
  }
  if (const auto given = parameters.find("limit"); given != parameters.end()) {
    gate.limit = given->second;
  }
  const NearestRounding nearest;
  const AttentionProblem problem(head);
  const HeadArithmetic arithmetic(problem, kernel, how);
  const std::int64_t d = arithmetic.channels();
  const std::vector<float> mean =
      kernel.centring.keys == Centring::virtual_ && arithmetic.keys() > 0 ? stored_mean(arithmetic)
                                                                          : std::vector<float>();
  LargestSquare queries, keys;
  for (std::int64_t i = 0; i < arithmetic.queries(); ++i) {
    if (!finite(arithmetic.query(i), d)) return std::nullopt;
    queries.add_row(arithmetic.query(i), nullptr, d);
  }
  for (std::int64_t j = 0; j < arithmetic.keys(); ++j) {
    if (!finite(arithmetic.key(j), d)) return std::nullopt;
    keys.add_row(arithmetic.key(j), mean.empty() ? nullptr : mean.data(), d);
  }
  WideInterval factor = scale->log2_factor(bits);
  mpfi_abs(factor.raw(), factor.raw());
  const Interval exact = (queries.root() * keys.root() * factor).to_doubles();
  gate.exact_lo = exact.lo();
  gate.exact_hi = exact.hi();
  return gate;
}

}  // namespace headroom::fuzz
