// The second rung: one row in double-word arithmetic, for elements that doubles leave open.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reference/evaluate/ladder/pair_kernels.h"
#include "reference/evaluate/ladder/vector_rung.h"
#include "reference/real/wide_interval.h"

namespace headroom {

/// Arrays of a row, kept from row to row.
struct PairWorkspace {
  std::vector<double> query, key, scores, s_hi, s_lo, bias, t_hi, t_lo, values;
};

/// Weights of one row as pairs, and enclosures made from them, of relative width about 2^-90 of
/// sum p |v| / l.
///
/// Scores are plain doubles where the pair (row, key) certifies that they are exact, cascaded sums
/// elsewhere. A key's certificate takes its reach from the rung. Requires: NearestRounding in every
/// call; finite visible operands (the row is `enclosed` or `unknown` on the first rung); rung and
/// problem outlive the row.
class PairRow {
 public:
  PairRow(const AttentionProblem& problem, const VectorRung& rung, std::int64_t row,
          PairWorkspace& work);

  /// False if the row is empty or beyond this rung's range (|t| > 2^40); nothing else may be asked.
  bool usable() const { return usable_; }
  /// Enclosures of the outputs of some channels, in their order.
  std::vector<WideInterval> outputs(std::span<const std::int64_t> channels,
                                    PairWorkspace& work) const;
  /// The value if all visible keys have the same one in this channel and there is no sink (unless
  /// it is 0): the output, exactly.
  std::optional<double> common_value(std::int64_t channel) const;
  /// log2 of l.
  WideInterval lse2() const;
  /// Keys whose scores needed cascaded sums.
  std::int64_t cascaded_keys() const { return cascaded_; }

 private:
  const AttentionProblem* problem_;
  const PairKernels* kernels_;
  const LadderKernels* loops_;
  bool usable_ = false;
  std::vector<std::int64_t> keys_;
  std::vector<double> p_hi_, p_lo_;
  double shift_ = 0;
  double l_hi_ = 0, l_lo_ = 0;
  double weight_error_ = 0;  ///< relative, of each weight
  double lost_ = 0;          ///< absolute, of all weights taken as 0
  std::int64_t cascaded_ = 0;
};

}  // namespace headroom
