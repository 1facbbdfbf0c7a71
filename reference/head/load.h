// From files to heads: names, layouts, GQA, defaults.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reference/head/head.h"
#include "reference/head/tensor_file.h"

namespace headroom {

/// What the command line says about heads; unset fields come from the file's metadata, its
/// sidecar, or the defaults of DESIGN.md ("Words").
struct LoadOptions {
  std::string q = "q", k = "k", v = "v";  ///< final part of the tensor names
  /// `PREFIX-GLOB:LIST`, e.g. "layer3.*:0-3,7", or a glob alone. `*` and `?` match as in a shell;
  /// a separator that ends the prefix may be left out ("layer3:0"); LIST counts query heads.
  std::string heads = "*";
  std::optional<std::string> scale;       ///< `--scale`
  std::optional<std::string> scale_log2;  ///< `--scale-log2`
  std::optional<std::string> mask;        ///< `--mask`
  std::optional<std::string> layout;      ///< `--layout`: nd, hnd, bhnd, bnhd
  std::optional<std::string> lengths;     ///< `--lengths`: visible keys, one or one a batch entry
  /// Format the kernel reads. A stored format that differs is an InputError unless `cast`.
  std::optional<Format> operand;
  bool cast = false;  ///< `--cast rne`
  OpenOptions open;   ///< `--npy-v2 bf16`
};

/// The heads of one .safetensors or .npz file, in file order of prefixes, then b, then h.
///
/// Tensors are matched as triples `prefix + q|k|v`: rank 2 is [N,d], rank 3 [H,N,d], rank 4 what
/// the layout names; query head h reads KV head h / (Hq / Hkv). Metadata keys read: `scale`,
/// `mask` or `causal`, `layout` (also as "[heads,tokens,channels]") and `lengths`.
/// Throws InputError (one line; it lists what the file holds when no name matches) on anything that
/// does not fit: shapes, head counts that do not divide, unnamed 4-D layouts, formats, a scale that
/// is no finite number, `causal` with Nq != Nk. A zero or negative scale is a number like any
/// other.
std::vector<Head> load_heads(const std::string& path, const LoadOptions& options);

/// As above for separate .npy files of Q, K and V; the prefix is empty, the id's stem is q's.
/// Metadata are q's; those of k and v must not contradict them.
std::vector<Head> load_heads(const std::string& q_path, const std::string& k_path,
                             const std::string& v_path, const LoadOptions& options);

}  // namespace headroom
