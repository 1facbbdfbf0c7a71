// Kernel files: TOML in, KernelModel out, and back as canonical text.
#pragma once

#include <string>
#include <vector>

#include "reference/model/kernel_model.h"

namespace headroom {

/// Reads `name_or_path`: a preset name, or the path of a kernel file. Throws InputError; errors in
/// a file are "path:line:column: key: what was found, what was expected". Unknown keys are errors.
/// The result is consistent: validate() holds.
KernelModel load_kernel(const std::string& name_or_path);

/// Parses kernel-file text; `path` only names it in errors.
KernelModel parse_kernel(const std::string& text, const std::string& path);

/// The whole model as canonical TOML: every key, fixed order, one spelling for each value, exact
/// numbers as hex-float strings. parse_kernel(canonical_text(m)) == m, and equal models have equal
/// text.
std::string canonical_text(const KernelModel& model);

/// SHA-256 of canonical_text, lower-case hex.
std::string digest(const KernelModel& model);

/// Stock kernels, one a machine: "tpu7x", "tpu-v6e", "hopper", "ieee-fp32", "fp16-everywhere".
std::vector<std::string> preset_names();
/// The stock kernel of a machine. Throws InputError that lists the names.
KernelModel preset(const std::string& name);

}  // namespace headroom
