#include "reference/head/visibility.h"

#include <algorithm>
#include <utility>

#include "reference/head/tensor_file.h"
#include "reference/input_error.h"

namespace headroom {
namespace {

constexpr std::pair<MaskKind, const char*> names[] = {
    {MaskKind::none, "none"},
    {MaskKind::causal, "causal"},
    {MaskKind::causal_top_left, "causal-top-left"},
    {MaskKind::causal_bottom_right, "causal-bottom-right"},
};

}  // namespace

KeyRange Visibility::visible(std::int64_t row) const {
  std::int64_t end = keys;
  switch (kind) {
    case MaskKind::none:
      break;
    case MaskKind::causal:
    case MaskKind::causal_top_left:
      end = row + 1;
      break;
    case MaskKind::causal_bottom_right:
      end = row + 1 + keys - queries;
      break;
  }
  return {0, std::clamp<std::int64_t>(end, 0, std::min(length, keys))};
}

std::string to_text(MaskKind kind) {
  for (const auto& [value, name] : names) {
    if (value == kind) return name;
  }
  return "none";
}

MaskKind parse_mask(const std::string& text) {
  for (const auto& [value, name] : names) {
    if (text == name) return value;
  }
  throw InputError("mask " + quoted_text(text) +
                   ": unknown, expected none, causal, causal-top-left or causal-bottom-right");
}

}  // namespace headroom
