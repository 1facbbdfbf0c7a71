// Which keys a query row sees.
#pragma once

#include <cstdint>
#include <string>

namespace headroom {

enum class MaskKind : std::uint8_t {
  none,                 ///< every key
  causal,               ///< row i sees keys 0..i; only with Nq = Nk
  causal_top_left,      ///< row i sees keys 0..i, Nq and Nk free
  causal_bottom_right,  ///< row i sees keys 0..i + Nk - Nq (the last row sees all)
};

/// A half-open range of keys.
struct KeyRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end > begin ? end - begin : 0; }
};

/// Visibility of keys by row. Every kind so far shows row i a prefix of the keys, of a length that
/// does not decrease with i.
struct Visibility {
  MaskKind kind = MaskKind::none;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  /// Keys from here on are padding and hidden from every row (`--lengths`); = keys if none.
  std::int64_t length = 0;

  KeyRange visible(std::int64_t row) const;
  /// Largest count over rows.
  std::int64_t most_visible() const { return queries > 0 ? visible(queries - 1).count() : 0; }
};

/// "none", "causal", "causal-top-left", "causal-bottom-right".
std::string to_text(MaskKind kind);
/// Inverse of to_text. Throws InputError.
MaskKind parse_mask(const std::string& text);

}  // namespace headroom
