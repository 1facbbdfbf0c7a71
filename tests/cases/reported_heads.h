// Heads and kernels of failures that were reported in public, for the simulator and the certifier.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "reference/evaluate/ladder/problem.h"
#include "reference/format/convert.h"
#include "reference/head/head.h"
#include "reference/model/kernel_file.h"

namespace headroom::reports {

using Element = std::function<double(std::int64_t row, std::int64_t column)>;

inline Matrix matrix(const Format& format, std::int64_t rows, std::int64_t columns,
                     const Element& x) {
  std::vector<double> values;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) values.push_back(round_to(format, x(r, c)));
  }
  return Matrix::from_values(format, rows, columns, values);
}
inline Matrix filled(const Format& format, std::int64_t rows, std::int64_t columns, double x) {
  return matrix(format, rows, columns, [x](auto, auto) { return x; });
}
inline Matrix column(const Format& format, const std::vector<double>& x) {
  return matrix(format, static_cast<std::int64_t>(x.size()), 1,
                [&](std::int64_t r, auto) { return x[static_cast<std::size_t>(r)]; });
}
/// n rows of the identity.
inline Matrix one_hot(const Format& format, std::int64_t n) {
  return matrix(format, n, n, [](std::int64_t r, std::int64_t c) { return r == c ? 1.0 : 0.0; });
}

inline AttentionProblem problem_of(Matrix q, Matrix k, Matrix v, Scale scale) {
  AttentionProblem p;
  p.q = std::move(q);
  p.k = std::move(k);
  p.v = std::move(v);
  p.scale = std::move(scale);
  p.visibility.queries = p.queries();
  p.visibility.keys = p.visibility.length = p.keys();
  return p;
}

/// The problem as a head that the certifier reads.
inline Head head_of(const AttentionProblem& p, const std::string& id) {
  Head head;
  head.id = id;
  head.layout = "nd";
  head.q = p.q;
  head.k = p.k;
  head.v = p.v;
  head.stored_q = p.q.format();
  head.stored_k = p.k.format();
  head.stored_v = p.v.format();
  head.scale = p.scale;
  head.scale_source = head.mask_source = "option";
  head.visibility = p.visibility;
  head.modifiers = p;
  return head;
}

/// FP32 throughout, 2^x, one factor at the score, before it is stored.
inline KernelModel base_2() {
  KernelModel k = preset("ieee-fp32");
  k.name = "reported";
  k.facts.clear();
  return k;
}
/// FP32 throughout, e^x.
inline KernelModel natural() {
  KernelModel k = base_2();
  k.exponent.base = ExponentBase::e;
  return k;
}
/// FlashAttention: raw scores are stored, x = fma(s, c, -mu), l = 0 is read as 1.
inline KernelModel flash(const Format& operand) {
  KernelModel k = base_2();
  k.operand = k.p.format = operand;
  k.score.scale_before_store = false;
  k.exponent.fused = true;
  k.normalise.division = Division::reciprocal;
  k.normalise.guard = DenominatorGuard::zero_to_one;
  return k;
}
inline void flush_everywhere(KernelModel& k) {
  k.exp2.flush_to_zero = k.denominator.flush_to_zero = k.numerator.flush_to_zero = true;
}

/// Scores that are the keys, in natural units: q = 1, d = 1, scale 1.
inline AttentionProblem scores(const std::vector<double>& natural_scores, Matrix v,
                               const Format& format = fp32) {
  return problem_of(column(format, {1}), column(format, natural_scores), std::move(v),
                    Scale::natural(1));
}
/// n keys whose scores are all 0 and whose values are all v.
inline AttentionProblem equal_keys(const Format& format, std::int64_t n, double v) {
  return problem_of(filled(format, 1, 1, 0), filled(format, n, 1, 0), filled(format, n, 1, v),
                    Scale::natural(1));
}

/// `first` keys of one value in the first part, `second` of another in the second; equal scores.
inline AttentionProblem two_parts(std::int64_t part, std::int64_t first, double v_first,
                                  std::int64_t second, double v_second) {
  AttentionProblem p =
      problem_of(filled(fp32, 1, 1, 0), filled(fp32, 2 * part, 1, 0),
                 matrix(fp32, 2 * part, 1,
                        [&](std::int64_t j, auto) { return j < part ? v_first : v_second; }),
                 Scale::natural(1));
  for (std::int64_t j = 0; j < 2 * part; ++j) {
    p.mask.push_back(j % part < (j < part ? first : second) ? 1 : 0);
  }
  return p;
}
inline KernelModel split(int tile, int parts, MergeRule merge) {
  KernelModel k = base_2();
  k.tiles.keys = tile;
  k.split = {.parts = parts, .merge = merge, .reads = ExponentBase::e};
  return k;
}

}  // namespace headroom::reports
