#include "reference/evaluate/simulate/compare.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/evaluate/simulate/head_arithmetic.h"
#include "reference/format/convert.h"
#include "reference/real/fp_environment.h"

namespace headroom {
namespace {

/// `values`, row-major floats, in the narrowest of the usual formats that holds them all.
Matrix stored_floats(std::int64_t rows, std::int64_t columns, const std::vector<double>& values) {
  for (const Format* format : {&bf16, &fp16}) {
    const bool exact = std::all_of(values.begin(), values.end(), [&](double x) {
      return std::isnan(x) || round_to(*format, x) == x;
    });
    if (exact) return Matrix::from_values(*format, rows, columns, values);
  }
  return Matrix::from_values(fp32, rows, columns, values);
}

}  // namespace

std::optional<AttentionProblem> multiplied_problem(const AttentionProblem& stored,
                                                   const KernelModel& kernel,
                                                   const SimulationOptions& options) {
  const std::optional<Scale> scale = scale_at_score(stored.scale, kernel);
  if (!scale) return std::nullopt;
  const NearestRounding nearest;
  const HeadArithmetic arithmetic(stored, kernel, options);
  const std::int64_t d = stored.channels();
  std::vector<double> queries, keys;
  for (std::int64_t i = 0; i < stored.queries(); ++i) {
    queries.insert(queries.end(), arithmetic.query(i), arithmetic.query(i) + d);
  }
  for (std::int64_t j = 0; j < arithmetic.keys(); ++j) {
    keys.insert(keys.end(), arithmetic.key(j), arithmetic.key(j) + d);
  }
  keys.resize(static_cast<std::size_t>(stored.keys() * d));  // keys that nothing sees
  AttentionProblem problem = stored;
  problem.q = stored_floats(stored.queries(), d, queries);
  problem.k = stored_floats(stored.keys(), d, keys);
  problem.scale = *scale;
  return problem;
}

double outside(double x, double lo, double hi) { return std::max({0.0, lo - x, x - hi}); }

RowFailure row_failure(std::span<const float> output, std::span<const double> lo,
                       std::span<const double> hi, const Format& format) {
  bool zero = !output.empty(), exact_is_zero = true;
  RowFailure failure;
  for (std::size_t c = 0; c < output.size(); ++c) {
    const double low = round_to(format, lo[c]), high = round_to(format, hi[c]);
    failure.not_finite = failure.not_finite ||
                         (!std::isfinite(output[c]) && std::isfinite(low) && std::isfinite(high));
    zero = zero && output[c] == 0;
    if (low > 0 || high < 0) exact_is_zero = false;
  }
  failure.zero = zero && !exact_is_zero;
  return failure;
}

}  // namespace headroom
