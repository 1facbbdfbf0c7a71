// The options by which a subcommand is told which heads to read, the same on each.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "reference/head/load.h"

namespace headroom::cli {

struct HeadOptions {
  LoadOptions load;
  std::string cast;    ///< "" or "rne"
  std::string npy_v2;  ///< "" or "bf16"
};

/// --heads, --q, --k, --v, --scale, --scale-log2, --mask, --layout, --lengths, --cast and
/// --npy-v2.
/// `options` must outlive the parse.
void add_head_options(CLI::App& command, HeadOptions& options);

/// The options as the loader takes them, for a kernel that reads `operand` (unset: any format).
/// Throws InputError for an unknown --cast or --npy-v2.
LoadOptions load_options(const HeadOptions& options, const std::optional<Format>& operand);

/// A scale for people: the decimal number where it is one of at most 20 places, else exact text,
/// cut where it is longer than a line.
std::string scale_text(const Scale& scale);

inline bool ends_with(const std::string& text, std::string_view end) {
  return std::string_view(text).ends_with(end);
}

}  // namespace headroom::cli
