#include "reference/head/score_modifiers.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/input_error.h"

namespace headroom {

KeyRange ScoreModifiers::range(const Visibility& visibility, std::int64_t row) const {
  KeyRange r = visibility.visible(row);
  if (window) {
    const std::int64_t offset =
        visibility.kind == MaskKind::causal_bottom_right ? visibility.keys - visibility.queries : 0;
    const std::int64_t centre = row + offset;
    if (window->left >= 0) r.begin = std::max(r.begin, centre - window->left);
    if (window->right >= 0) r.end = std::min(r.end, centre + window->right + 1);
  }
  r.begin = std::min(r.begin, visibility.keys);
  r.end = std::max(r.end, r.begin);
  return r;
}

bool ScoreModifiers::sees(const Visibility& visibility, std::int64_t row, std::int64_t key) const {
  const KeyRange r = range(visibility, row);
  if (key < r.begin || key >= r.end) return false;
  if (!query_segments.empty() && query_segments[static_cast<std::size_t>(row)] !=
                                     key_segments[static_cast<std::size_t>(key)]) {
    return false;
  }
  if (mask.empty()) return true;
  const bool shared = static_cast<std::int64_t>(mask.size()) == visibility.keys;
  return mask[static_cast<std::size_t>(shared ? key : row * visibility.keys + key)] != 0;
}

double ScoreModifiers::bias_at(std::int64_t row, std::int64_t key) const {
  if (!bias) return 0;
  return decode(bias->format(), bias->code(bias->rows() == 1 ? 0 : row, key));
}

bool ScoreModifiers::visible(const Visibility& visibility, std::int64_t row,
                             std::int64_t key) const {
  return sees(visibility, row, key) &&
         bias_at(row, key) != -std::numeric_limits<double>::infinity();
}

void ScoreModifiers::validate(const Visibility& visibility, const std::string& who) const {
  const std::int64_t queries = visibility.queries, keys = visibility.keys;
  const auto refuse = [&](const std::string& line) { throw InputError(who + ": " + line); };
  if (query_segments.empty() != key_segments.empty() ||
      (!query_segments.empty() && (static_cast<std::int64_t>(query_segments.size()) != queries ||
                                   static_cast<std::int64_t>(key_segments.size()) != keys))) {
    refuse("segments: " + std::to_string(query_segments.size()) + " query and " +
           std::to_string(key_segments.size()) + " key ids, expected " + std::to_string(queries) +
           " and " + std::to_string(keys));
  }
  const auto mask_size = static_cast<std::int64_t>(mask.size());
  if (!mask.empty() && mask_size != keys && mask_size != queries * keys) {
    refuse("mask of " + std::to_string(mask_size) + " elements, expected Nq x Nk or 1 x Nk");
  }
  if (bias) {
    if (bias->columns() != keys || (bias->rows() != 1 && bias->rows() != queries)) {
      refuse("bias is " + std::to_string(bias->rows()) + " x " + std::to_string(bias->columns()) +
             ", expected Nq x Nk or 1 x Nk");
    }
    if (bias->format().precision > 24) refuse("bias: expected fp32 or narrower");
  }
  if (softcap && *softcap <= 0) refuse("softcap " + to_text(*softcap) + ", expected > 0");
  if (sink && !std::isfinite(*sink)) refuse("sink is not finite");
}

}  // namespace headroom
