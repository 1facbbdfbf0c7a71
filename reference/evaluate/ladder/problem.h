// What the reference evaluates: one head with everything that can enter a row's softmax.
#pragma once

#include <cstdint>
#include <optional>

#include "reference/head/head.h"
#include "reference/head/score_modifiers.h"
#include "reference/model/kernel_model.h"

namespace headroom {

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
struct AttentionProblem : ScoreModifiers {
  Matrix q, k, v;
  Scale scale = Scale::natural(1);
  Visibility visibility;  ///< prefix masks and padding; queries, keys and length are set

  AttentionProblem() = default;
  /// The head's stored operands, scale, visibility and modifiers.
  explicit AttentionProblem(const Head& head);

  /// The operands as `kernel` pre-rounds them (Operands), with the scale that is left at the score
  /// site: the "multiplied" reference. Throws InputError if the keys are not certain, an operand
  /// is not finite, or the remaining scale has no exact form.
  static AttentionProblem as_multiplied(const Head& head, const KernelModel& kernel);

  std::int64_t queries() const { return q.rows(); }
  std::int64_t keys() const { return k.rows(); }
  std::int64_t channels() const { return q.columns(); }
  std::int64_t value_channels() const { return v.columns(); }

  /// As in ScoreModifiers.
  KeyRange range(std::int64_t row) const { return ScoreModifiers::range(visibility, row); }
  bool sees(std::int64_t row, std::int64_t key) const {
    return ScoreModifiers::sees(visibility, row, key);
  }
  bool visible(std::int64_t row, std::int64_t key) const {
    return ScoreModifiers::visible(visibility, row, key);
  }

  /// Throws InputError, one line, where shapes, formats or parameters do not fit.
  void validate() const;
};

/// What a kernel leaves of a head's scale for the score, over operands with the other factors
/// folded in; nothing if that is no exact scale (an irrational base-2 factor).
std::optional<Scale> scale_at_score(const Scale& scale, const KernelModel& kernel);

}  // namespace headroom
