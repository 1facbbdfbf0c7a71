#include "reference/stabilizer/norm_rule.h"

#include <mpfr.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

#include "reference/real/fp_environment.h"

namespace headroom {
namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

std::int64_t real_keys(const Head& head) { return std::min(head.visibility.length, head.keys()); }

/// The larger, or NaN if either is: `max` of a kernel may drop a NaN, but its gate then compares
/// an infinity or NaN from the same row's norm elsewhere; here none is ever dropped.
double maximum(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? not_a_number : std::max(a, b);
}

/// `sum` of three numbers of at most 24 bits each, rounded once into `format`.
double round_sum(const Format& format, bool round_up, double a, double b, double c) {
  if (!std::isfinite(a) || !std::isfinite(b) || !std::isfinite(c)) return a + b + c;
  // FP32 exponents span 2^-149 to 2^128; two carries: every sum is exact in 384 bits.
  mpfr_t sum;
  mpfr_init2(sum, 384);
  mpfr_set_d(sum, a, MPFR_RNDN);
  mpfr_add_d(sum, sum, b, MPFR_RNDN);
  [[maybe_unused]] const int inexact = mpfr_add_d(sum, sum, c, MPFR_RNDN);
  assert(inexact == 0);
  ConversionPolicy policy;
  policy.rounding = round_up ? Rounding::upward : Rounding::nearest_even;
  const double rounded =
      mpfr_zero_p(sum) ? 0.0
                       : decode(format, encode(format, static_cast<mpfr_srcptr>(sum), policy));
  mpfr_clear(sum);
  return rounded;
}

}  // namespace

int ceil_log2_count(std::int64_t n) {
  return n <= 1 ? 0 : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n) - 1));
}

double ceil_log2_at_least_one_or_nan(double x) {
  if (!std::isfinite(x)) return not_a_number;
  if (x <= 1) return 0;
  const int exponent = std::ilogb(x);
  return std::ldexp(1.0, exponent) == x ? exponent : exponent + 1;
}

double largest_value(const Head& head) {
  double largest = 0;
  std::vector<double> row(static_cast<std::size_t>(head.value_channels()));
  for (std::int64_t j = 0; j < real_keys(head); ++j) {
    head.v.load_row(j, row.data());
    for (const double x : row) {
      if (!std::isfinite(x)) return not_a_number;
      largest = std::max(largest, std::fabs(x));
    }
  }
  return largest;
}

std::vector<double> sequential_key_mean(const Head& head, const KernelModel& kernel,
                                        const Operands& uncentred) {
  const auto d = static_cast<std::size_t>(head.channels());
  const std::int64_t n = real_keys(head);
  std::vector<float> sum(d);
  std::vector<double> lo(d), hi(d), mean(d);
  if (n == 0) return mean;  // no key: zeros, as Operands has it
  for (std::int64_t j = 0; j < n; ++j) {
    uncentred.key_row(j, lo.data(), hi.data());
    const NearestRounding nearest;
    for (std::size_t c = 0; c < d; ++c) sum[c] += static_cast<float>(lo[c]);
  }
  const NearestRounding nearest;
  for (std::size_t c = 0; c < d; ++c) {
    mean[c] = round_to(kernel.centring.mean, sum[c] / static_cast<float>(n));
  }
  return mean;
}

NormRule::NormRule(const Head& head, const KernelModel& kernel, const Operands& operands,
                   const StabilizerParameters& parameters, double initial_square)
    : head_(head),
      kernel_(kernel),
      operands_(operands),
      arithmetic_(kernel.stabilizer.norm),
      initial_square_(initial_square),
      row_norms_(static_cast<std::size_t>(head.queries()), not_a_number) {
  if (!operands.finite()) {
    query_norm_ = key_norm_ = not_a_number;
    return;
  }
  const auto d = static_cast<std::size_t>(head.channels());
  const bool centred = kernel.centring.keys != Centring::none;
  // Under mean centring the rows of `operands` are K~ already, if they are certain.
  const bool subtract = kernel.centring.keys == Centring::virtual_ || !operands.keys_certain();
  std::vector<double> mean;
  std::unique_ptr<Operands> uncentred;
  KernelModel without = kernel;
  without.centring.keys = Centring::none;
  if (centred && subtract) {
    {
      const UpwardRounding up;
      uncentred = std::make_unique<Operands>(up, head, without);
    }
    mean = sequential_key_mean(head, kernel, *uncentred);
#ifndef NDEBUG
    for (std::size_t c = 0; c < d; ++c) assert(operands.stored_mean()[c].contains(mean[c]));
#endif
  }
  const Operands& source = uncentred ? *uncentred : operands;
  const KernelArithmetic difference(kernel.centring.keys == Centring::virtual_
                                        ? kernel.stabilizer.norm
                                        : kernel.centring.difference);
  std::vector<double> lo(d), hi(d);
  for (std::int64_t j = 0; j < real_keys(head); ++j) {
    source.key_row(j, lo.data(), hi.data());
    const NearestRounding nearest;
    for (std::size_t c = 0; c < mean.size(); ++c) lo[c] = difference.subtract(lo[c], mean[c]);
    key_norm_ = maximum(key_norm_, arithmetic_.norm(lo, initial_square_));
  }
  for (std::int64_t i = 0; i < head.queries(); ++i) {
    operands.query_row(i, lo.data());
    const NearestRounding nearest;
    const double norm = arithmetic_.norm(lo, initial_square_);
    row_norms_[static_cast<std::size_t>(i)] = norm;
    query_norm_ = maximum(query_norm_, norm);
  }
  query_norm_ = maximum(query_norm_, parameters.joined_query_norm);
  key_norm_ = maximum(key_norm_, parameters.joined_key_norm);
  if (kernel.centring.keys == Centring::virtual_) centre_ = mean;
}

double NormRule::stored_factor() const { return std::fabs(operands_.stored_score_factor()); }

double NormRule::nearest_bound(double query_norm) const {
  const NearestRounding nearest;
  const double product = arithmetic_.multiply(query_norm, key_norm_);
  const double factor = stored_factor();
  return factor == 1 ? product : arithmetic_.multiply(product, arithmetic_.round(factor));
}

double NormRule::mu(std::int64_t row) const {
  double centre = 0;
  if (!centre_.empty()) {
    std::vector<double> q(centre_.size());
    operands_.query_row(row, q.data());
    const NearestRounding nearest;
    const KernelArithmetic score(kernel_.score.accumulator.format);
    centre = score.dot(q, centre_);
    const double factor = operands_.stored_score_factor();
    if (factor != 1) centre = score.multiply(centre, score.round(factor));
  }
  return round_sum(kernel_.stabilizer.store, kernel_.stabilizer.round_up, base(row),
                   -exponent_cap(), centre);
}

GateOutcome NormRule::compare(double value, double limit) {
  return {.accepts = std::isfinite(value) && value <= limit, .value = value, .limit = limit};
}

}  // namespace headroom
