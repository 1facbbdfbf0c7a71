// What enters a row's softmax besides Q, K, V, the scale and a prefix mask.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/head/matrix.h"
#include "reference/head/scale.h"
#include "reference/head/visibility.h"

namespace headroom {

/// A sliding window around the diagonal: row i sees keys i + offset - left .. i + offset + right,
/// offset being Nk - Nq for causal_bottom_right and 0 otherwise. Negative: unlimited on that side.
struct Window {
  std::int64_t left = -1, right = -1;
  bool operator==(const Window&) const = default;
};

/// Masks that are no prefixes, and what is done to scores before and beside the softmax: scores are
/// capped first, then the bias is added, as in FlashAttention. Members that ask about a row take
/// the head's Visibility, whose queries and keys are Nq and Nk.
struct ScoreModifiers {
  std::optional<Window> window;
  /// Query i sees key j only if their segment ids are equal. Both empty: one segment.
  std::vector<std::int32_t> query_segments, key_segments;
  /// Nonzero: visible. Row-major, Nq x Nk, or 1 x Nk for all rows. Empty: no such mask.
  std::vector<std::uint8_t> mask;
  /// Natural units. Nq x Nk, or 1 x Nk for all rows. Minus infinity hides the key.
  std::optional<Matrix> bias;
  std::optional<Rational> softcap;  ///< > 0, natural units: cap(x) = softcap tanh(x / softcap)
  std::optional<double> sink;       ///< natural-unit score of a key with v = 0; finite

  /// Nothing but the prefix mask: neither hides a key nor changes a score.
  bool none() const { return !hides_keys() && !bias && !softcap && !sink; }
  /// A window, segments or a boolean mask.
  bool hides_keys() const { return window || !query_segments.empty() || !mask.empty(); }
  /// True if visibility is decided by range() alone.
  bool ranges_only() const { return query_segments.empty() && mask.empty(); }

  /// Smallest range known to hold every key the row can see, from prefix masks and windows alone.
  KeyRange range(const Visibility& visibility, std::int64_t row) const;
  /// Range, segments and boolean mask; not the bias.
  bool sees(const Visibility& visibility, std::int64_t row, std::int64_t key) const;
  /// Bias of a pair, 0 without one.
  double bias_at(std::int64_t row, std::int64_t key) const;
  /// sees() and the bias is not -infinity.
  bool visible(const Visibility& visibility, std::int64_t row, std::int64_t key) const;

  /// Throws InputError, one line that starts with `who`, where shapes, formats or parameters do
  /// not fit.
  void validate(const Visibility& visibility, const std::string& who) const;
};

}  // namespace headroom
