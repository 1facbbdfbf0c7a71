// Tensors that subcommands write: .safetensors with all of the program's formats, or .npy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "reference/format/convert.h"
#include "reference/head/head.h"

namespace headroom::cli {

struct OutputTensor {
  std::string name;
  Format format;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> words;
};

/// What one head gives: tensors by final name, without the head dimension.
using HeadTensors = std::vector<OutputTensor>;

/// The little-endian words of values, rounded to a format.
std::vector<std::byte> encoded(const Format& f, Rounding rounding,
                               const std::vector<double>& values);

/// Heads of one prefix stacked in file order: [rows, dv] for a 2-D file, else [heads, rows, dv], or
/// [batch, heads, rows, dv] if the selection is a full grid. Throws InputError if shapes differ.
void stack(std::vector<OutputTensor>& out, const std::vector<const Head*>& heads,
           const std::vector<HeadTensors>& tensors);

/// Throws InputError unless a name ends in .safetensors or .npy.
void check_output_name(const std::string& option, const std::string& path);

/// Everything that a command reads: the heads' files and sidecars, and what else it names.
std::vector<std::string> input_paths(const std::vector<Head>& heads,
                                     std::vector<std::string> others);
/// Throws InputError, naming `option`, if `path` is one of the files that are read.
void require_no_input(const std::string& option, const std::string& path,
                      const std::vector<std::string>& inputs);

/// The bytes of a .npy file (version 1). Throws InputError that names `option` for a format that
/// .npy has no name for.
std::string npy_bytes(const std::string& option, const OutputTensor& tensor);

/// Writes atomically. `prefix`: that of every tensor, left out of .npy names, so that `o` is `path`
/// itself and `lse` is `stem.lse.npy`. Errors name `option`, which chose the format. None of
/// `inputs` is replaced.
void write_output(const std::string& option, const std::string& path, const std::string& prefix,
                  const std::vector<OutputTensor>& tensors,
                  const std::map<std::string, std::string>& metadata,
                  const std::vector<std::string>& inputs);

}  // namespace headroom::cli
