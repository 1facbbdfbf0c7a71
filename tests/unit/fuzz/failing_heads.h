// Small heads that fail, one a kind of failure, built by hand from what is known of each kernel.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "fuzz/diagnose.h"

namespace headroom::fuzz {

struct FailingHead {
  Target target;
  Candidate candidate;
  Objective objective;
};

inline Candidate head_of_rows(std::int64_t channels, std::int64_t value_channels,
                              const std::vector<float>& q, const std::vector<float>& k,
                              const std::vector<float>& v, Setting setting = {}) {
  Shape shape;
  shape.channels = channels;
  shape.value_channels = value_channels;
  shape.queries = static_cast<std::int64_t>(q.size()) / channels;
  shape.keys = static_cast<std::int64_t>(k.size()) / channels;
  Candidate c = make_candidate(shape, std::move(setting));
  c.q = q;
  c.k = k;
  c.v = v;
  return c;
}

inline Target known_target(const std::string& name) { return catalogue_entry(name).target; }

/// Case B: 40 % of the keys at +1.59375 log2 units, 60 % at -1.0625, and the gate at 212.6: mu is
/// 125, and the lower ones flush.
inline FailingHead two_levels() {
  std::vector<float> k, v;
  for (int j = 0; j < 10; ++j) {
    const bool high = j % 5 < 2;
    k.insert(k.end(), {high ? 51.0F / 32 : -17.0F / 16, 0.0F, j < 5 ? 1.0F : -1.0F});
    v.push_back(high ? 1.0F : -1.0F);
  }
  return {known_target("case-b"), head_of_rows(3, 1, {1, 113, 0}, k, v), Objective::lost_mass};
}
/// Case C: P = 2^88 in every tile but the last, and V takes O beyond FP32.
inline FailingHead huge_values() {
  return {known_target("case-c"),
          head_of_rows(1, 1, {1}, std::vector<float>(9, 0.0F), std::vector<float>(9, 0x1p41F)),
          Objective::non_finite};
}
/// Case D: l = 2^127, whose reciprocal flushes.
inline FailingHead flushed_reciprocal() {
  return {known_target("case-d"), head_of_rows(1, 1, {1}, {0.5F}, {0.75F}), Objective::zero_row};
}
/// Case F: P = 2^-125, products with small values flush.
inline FailingHead flushed_products() {
  return {known_target("case-f"),
          head_of_rows(2, 1, {213, 0}, {0, 1, 0, -1}, {0.30078125F, 0.30078125F}),
          Objective::zero_row};
}
/// Parts whose base-2 log-sum-exps are merged as natural ones.
inline FailingHead merged_in_the_wrong_base(Objective objective) {
  std::vector<float> k(16, 0.0F), v(16, 1.0F);
  std::fill(k.begin() + 8, k.end(), 4.0F);
  std::fill(v.begin() + 8, v.end(), 0.0F);
  FailingHead f{known_target("lse-base"), head_of_rows(1, 1, {1}, k, v), objective};
  f.target.tolerance = 0.014;
  return f;
}
/// exp(0 - LSE) of the keys that pad a tile, with scores of -120.
inline FailingHead padded_backward() {
  return {known_target("backward-padding"),
          head_of_rows(1, 1, {-120}, std::vector<float>(12, 1.0F), std::vector<float>(12, 1.0F)),
          Objective::backward};
}
/// FP16 ones, one after another: 2048 + 1 is 2048.
inline FailingHead stuck_denominator() {
  return {known_target("fp16-absorption"),
          head_of_rows(1, 1, {1}, std::vector<float>(4096, 0.0F), std::vector<float>(4096, 1.0F)),
          Objective::absorption};
}
/// A maximum that lags by 4 and an offset of 8: 2^12 in E4M3.
inline FailingHead saturated_weights() {
  std::vector<float> k(9, 0.0F), v(9, 0.0F);
  k[8] = 2.5F;  // natural units: 3.6 log2 units, within the threshold
  v[8] = 1;
  return {known_target("fa4-fp8"), head_of_rows(1, 1, {1}, k, v), Objective::saturation};
}
/// NaN that a polynomial reads as -127.
inline FailingHead lost_nan() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  return {known_target("fa4-poly-nan"), head_of_rows(1, 1, {1}, {0, nan}, {1, 1}),
          Objective::swallowed_nan};
}
/// The padding's V is multiplied by weights of 0.
inline FailingHead read_padding() {
  FailingHead f{known_target("fused-residual"), {}, Objective::padding};
  f.target.kernel.tiles.padding = Padding::masked;
  Setting s;
  s.length = 2;
  f.candidate = head_of_rows(1, 1, {1}, {1, 2, 3}, {1, 1, 1}, s);
  return f;
}
/// A norm of 213.15 that BF16 rounds to 213, the limit.
inline FailingHead rounded_gate() {
  FailingHead f{known_target("case-a"), head_of_rows(2, 1, {213, 8}, {1, 0, -1, 0}, {1, 1}),
                Objective::gate_underestimate};
  f.target.kernel.stabilizer.norm = bf16;
  return f;
}
/// Scores of +-220, which C = 88 keeps in range, beyond the gate of 213.
inline FailingHead refused_and_accurate() {
  return {known_target("case-a"), head_of_rows(1, 1, {220}, {1, -1}, {1, -1}),
          Objective::needless_fallback};
}

}  // namespace headroom::fuzz
