// Kernel files: TOML in, KernelModel out, and back as canonical text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "reference/model/kernel_model.h"

namespace headroom {

/// Reads `name_or_path`: a preset name, or the path of a kernel file. Throws InputError; errors in
/// a file are "path:line:column: key: what was found, what was expected". Unknown keys are errors.
/// The result is consistent: validate() holds.
KernelModel load_kernel(const std::string& name_or_path);

/// Parses kernel-file text; `path` only names it in errors. At most max_kernel_bytes long; any
/// bytes give a model or an InputError.
///
/// A file either names the machine it starts from (`machine = "hopper"`) and overrides keys of that
/// machine's stock kernel, or says `complete = true`, gives every key and inherits nothing. When a
/// file changes what a unit promises, the inherited facts about that unit are dropped and one
/// `assumed` fact "UNIT.kernel-file" takes their place (docs/kernel_file.md).
KernelModel parse_kernel(const std::string& text, const std::string& path);
inline constexpr std::size_t max_kernel_bytes = 1 << 20;

/// The whole model as canonical TOML (`complete = true`): every key, fixed order, one spelling for
/// each value, exact numbers as hex-float strings. parse_kernel(canonical_text(m)) == m, and equal
/// models have equal text. Requires: validate(model) holds; throws its InputError otherwise.
std::string canonical_text(const KernelModel& model);

/// SHA-256 of canonical_text, lower-case hex.
std::string digest(const KernelModel& model);

/// Stock kernels, one a machine (reference/model/presets/).
std::vector<std::string> preset_names();
/// A machine's name, alone or with a reading of subnormal numbers: "hopper", "hopper:ftz",
/// "hopper:gradual".
bool is_preset(const std::string& name);
/// The stock kernel of a machine; with ":ftz" or ":gradual" every stage flushes subnormal results,
/// or none does. Throws InputError that lists the names.
KernelModel preset(const std::string& name);

}  // namespace headroom
