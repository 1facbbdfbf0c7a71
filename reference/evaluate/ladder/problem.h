// What the reference evaluates: one head with everything that can enter a row's softmax.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "reference/head/head.h"
#include "reference/model/kernel_model.h"

namespace headroom {

/// A sliding window around the diagonal: row i sees keys i + offset - left .. i + offset + right,
/// offset being Nk - Nq for causal_bottom_right and 0 otherwise. Negative: unlimited on that side.
struct Window {
  std::int64_t left = -1, right = -1;
};

/// O_i = sum_j w_ij v_j / l_i, LSE_i = ln l_i, l_i = sum_j w_ij (+ e^sink), over visible keys j:
///
///   natural scale:  w = exp(cap(s <q_i, k_j>) + bias_ij)
///   base-2 scale:   w = 2^(c <q_i, k_j>) exp(bias_ij)       (softcap: of c ln 2 <q_i, k_j>)
///
/// with cap(x) = softcap tanh(x / softcap), or x. Softcap comes before the bias, as in
/// FlashAttention. A bias of -infinity hides its key. A row that sees no key has O = 0 and
/// LSE = -infinity, or LSE = sink. Operands are the stored numbers, taken as exact reals.
///
/// Shapes: q Nq x d, k Nk x d, v Nk x dv; formats of at most 24 bits of precision (fp32 and
/// narrower), so that a product of two operands is exact in fp64.
struct AttentionProblem {
  Matrix q, k, v;
  Scale scale = Scale::natural(1);
  Visibility visibility;  ///< prefix masks and padding; queries, keys and length are set
  std::optional<Window> window;
  /// Query i sees key j only if their segment ids are equal. Both empty: one segment.
  std::vector<std::int32_t> query_segments, key_segments;
  /// Nonzero: visible. Row-major, Nq x Nk, or 1 x Nk for all rows. Empty: no such mask.
  std::vector<std::uint8_t> mask;
  /// Natural units. Nq x Nk, or 1 x Nk for all rows.
  std::optional<Matrix> bias;
  std::optional<Rational> softcap;  ///< > 0
  std::optional<double> sink;       ///< natural-unit score of a key with v = 0; finite

  AttentionProblem() = default;
  /// The head's stored operands, scale and visibility.
  explicit AttentionProblem(const Head& head);

  /// The operands as `kernel` pre-rounds them (Operands), with the scale that is left at the score
  /// site: the "multiplied" reference. Throws InputError if the keys are not certain, an operand
  /// is not finite, or the remaining scale has no exact form.
  static AttentionProblem as_multiplied(const Head& head, const KernelModel& kernel);

  std::int64_t queries() const { return q.rows(); }
  std::int64_t keys() const { return k.rows(); }
  std::int64_t channels() const { return q.columns(); }
  std::int64_t value_channels() const { return v.columns(); }

  /// Smallest range known to hold every key the row can see, from prefix masks and windows alone.
  KeyRange range(std::int64_t row) const;
  /// Range, segments and boolean mask; not the bias.
  bool sees(std::int64_t row, std::int64_t key) const;
  /// Bias of a pair, 0 without one.
  double bias_at(std::int64_t row, std::int64_t key) const;
  /// sees() and the bias is not -infinity.
  bool visible(std::int64_t row, std::int64_t key) const;

  /// True if visibility is decided by range() alone.
  bool ranges_only() const { return query_segments.empty() && mask.empty(); }

  /// Throws InputError, one line, where shapes, formats or parameters do not fit.
  void validate() const;
};

/// What a kernel leaves of a head's scale for the score, over operands with the other factors
/// folded in; nothing if that is no exact scale (an irrational base-2 factor).
std::optional<Scale> scale_at_score(const Scale& scale, const KernelModel& kernel);

}  // namespace headroom
