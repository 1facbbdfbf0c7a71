// One pass over K, V and Q of a head: every number that the bounds of its rows are made of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/head/head.h"
#include "reference/model/kernel_model.h"
#include "reference/model/operands.h"
#include "reference/real/bound.h"

namespace headroom {

/// The biases of a row's visible keys, log2 units, upper bounds; 0 without biases.
struct RowBias {
  double most = 0;     ///< max_j b_j
  double near = 0;     ///< max |b_j| over the keys that are not far
  double largest = 0;  ///< max |b_j|
};

/// What is known of one query row, over the multiplied operands; log2 units where scores.
struct RowScan {
  std::int64_t visible = 0;    ///< number of visible keys
  Interval norm{0.0};          ///< ||q~_i||
  Interval kernel_norm{0.0};   ///< the same as the kernel computes it, in any order
  Interval mean_score{0.0};    ///< zbar: mean of the visible keys' exact scores (row_scores.h)
  Interval centre_score{0.0};  ///< factor <q~_i, a>, a the stored mean (virtual centring)
  double operand_error = 0;    ///< upper bound of |z~ - (z - shift)|: pre-rounding of operands
  RowBias bias;
  std::int64_t far_keys = 0;  ///< visible keys of biases far below the row's largest (row_scores.h)
  double v_magnitude = 0;     ///< max |V| over the visible keys, exact
};

/// Enclosures over one head. Shapes and units as Head; keys counted from 0.
struct HeadScan {
  bool finite = true;
  /// With finite = false: an operand is NaN or infinite in every summation order, not just in some.
  bool non_finite_certain = true;
  std::string non_finite_where;

  double v_min = 0, v_max = 0, v_magnitude = 0;  ///< over the keys the kernel reads, exact
  double v_real_magnitude = 0;  ///< max |V| over the keys that are not padding: what gates look at
  Interval key_norm{0.0};       ///< max_j ||k~_j||, enclosed
  std::int64_t key_norm_at = 0;
  Interval radius{0.0};  ///< max_j ||k~_j - a||: a = 0, or the stored mean (virtual centring)
  std::int64_t radius_at = 0;
  Interval kernel_radius{0.0};  ///< the same as the kernel computes it, in any order
  Interval query_norm{0.0};     ///< max_i ||q~_i||, enclosed
  std::int64_t query_norm_at = 0;
  Interval kernel_query_norm{0.0};  ///< the same as the kernel computes it
  double key_difference = 0;    ///< max_j ||k~_j - (k'_j - a)||: rounding of folded, centred keys
  double raw_centred_norm = 0;  ///< max_j ||k'_j - a||
  std::vector<RowScan> rows;
  std::int64_t most_visible = 0;  ///< keys of a row, a sink included
  std::int64_t empty_rows = 0, first_empty_row = -1;
  std::optional<Interval> softcap, sink;  ///< log2 units, if the head has them
  /// Keys whose P the kernel adds beyond the visible ones (zero-filled padding).
  std::int64_t padding_keys = 0;
};

/// Keys from visibility.length on are not read when padding is sliced. Requires: shapes as Head
/// says. Memory: one RowScan and a few numbers a row.
///
/// Passes at memory speed (reference/model/passes) serve where they can read the operands, and the
/// rows that may be the largest are done again in full; a row by row scan serves elsewhere, and
/// everywhere if `by_passes` is false. What is a maximum over keys is the same in both.
HeadScan scan_head(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                   const Operands& operands, bool by_passes = true);

}  // namespace headroom
