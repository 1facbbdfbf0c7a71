// The reference over the operands that a kernel multiplies.
#include <algorithm>
#include <string>

#include "reference/evaluate/ladder/problem.h"
#include "reference/input_error.h"
#include "reference/model/operands.h"

namespace headroom {

namespace {

/// The narrowest of the usual formats that holds every value, to store pre-rounded operands.
Matrix stored(std::int64_t rows, std::int64_t columns, const std::vector<double>& values,
              const std::string& what) {
  for (const Format* format : {&bf16, &fp16, &fp32}) {
    const bool exact = std::all_of(values.begin(), values.end(),
                                   [&](double x) { return round_to(*format, x) == x; });
    if (exact) return Matrix::from_values(*format, rows, columns, values);
  }
  throw InputError("reference: the pre-rounded " + what + " does not fit fp32");
}

}  // namespace

std::optional<Scale> scale_at_score(const Scale& scale, const KernelModel& kernel) {
  const bool scale_left = kernel.scale.scale == FactorSite::score;
  const bool log2e_left = kernel.scale.log2e == FactorSite::score;
  if (scale.is_base2()) return scale_left ? scale : Scale::base2(1);
  if (log2e_left) return scale_left ? scale : Scale::natural(1);
  if (!scale_left) return Scale::base2(1);
  if (scale.is_irrational()) return std::nullopt;
  return Scale::base2(scale.rational());
}

AttentionProblem AttentionProblem::as_multiplied(const Head& head, const KernelModel& kernel) {
  std::vector<double> queries, keys;
  const std::int64_t d = head.channels();
  {
    const UpwardRounding up;
    const Operands operands(up, head, kernel);
    if (!operands.finite()) {
      throw InputError(head.id + ": operand not finite: " + operands.non_finite_where());
    }
    if (!operands.keys_certain()) {
      throw InputError(head.id + ": the kernel's centred keys depend on the order in which their " +
                       "mean is summed; --kernel needs certain operands");
    }
    queries.resize(static_cast<std::size_t>(head.queries() * d));
    keys.resize(static_cast<std::size_t>(head.keys() * d));
    std::vector<double> hi(static_cast<std::size_t>(d));
    for (std::int64_t i = 0; i < head.queries(); ++i) operands.query_row(i, &queries[i * d]);
    for (std::int64_t j = 0; j < head.keys(); ++j) operands.key_row(j, &keys[j * d], hi.data());
  }
  const NearestRounding nearest;
  AttentionProblem problem(head);
  problem.q = stored(head.queries(), d, queries, "Q");
  problem.k = stored(head.keys(), d, keys, "K");
  const std::optional<Scale> left = scale_at_score(head.scale, kernel);
  if (!left) {
    throw InputError(head.id + ": scale " + head.scale.text() +
                     " left at the score with log2(e) folded is an irrational base-2 factor, " +
                     "which the reference does not take");
  }
  problem.scale = *left;
  return problem;
}

}  // namespace headroom
