// The options that say which rows of a head a subcommand evaluates, and what enters their softmax
// besides Q, K, V and the mask: the same on each that evaluates rows.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reference/head/load.h"
#include "reference/head/score_modifiers.h"
#include "reference/head/tensor_file.h"

namespace headroom::cli {

using TensorFiles = std::vector<std::shared_ptr<const TensorFile>>;

struct ProblemOptions {
  std::string window, segments, key_segments, bias, mask_tensor, softcap, sink;
};

/// --window, --segments, --key-segments, --bias, --mask-tensor, --softcap and --sink. `options`
/// must outlive the parse.
void add_problem_options(CLI::App& command, ProblemOptions& options);

/// Puts the options into the modifiers of `head`, or of a problem made of it. Tensors are read from
/// the head's file
/// (`one_file`: it is one .safetensors or .npz file) or from .npy files of their own, which are
/// returned: call require_unchanged() of each before anything is published. Throws InputError for
/// what does not fit.
[[nodiscard]] TensorFiles apply_problem_options(const ProblemOptions& options, const Head& head,
                                                bool one_file, ScoreModifiers& modifiers);

/// What the loader warns of, less the tensors that the options read.
std::vector<std::string> warnings_of(const ProblemOptions& options, const Head& head);

/// All heads of one .safetensors or .npz file or of three .npy files. Throws InputError for any
/// other number of files.
std::vector<Head> load_files(const std::vector<std::string>& files, const LoadOptions& load);

/// "0-63,100": ascending, each once, within 0 .. queries - 1 (InputError otherwise, that names
/// --rows and the head).
std::vector<std::int64_t> row_list(const std::string& text, std::int64_t queries,
                                   const std::string& id);
/// `count` different rows, ascending, a function of seed and Nq alone.
std::vector<std::int64_t> sampled_rows(std::int64_t count, std::int64_t queries,
                                       std::uint64_t seed);
/// As row_list reads it.
std::string rows_text(const std::vector<std::int64_t>& rows);

/// The whole of `text` as a number; InputError naming the option otherwise.
std::int64_t whole_number(const std::string& option, std::string_view text);

}  // namespace headroom::cli
