#include "cli/problem_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <random>
#include <set>
#include <string_view>

#include "cli/head_options.h"
#include "cli/table.h"
#include "reference/input_error.h"

namespace headroom::cli {
namespace {

std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::vector<std::int32_t> segment_ids(const std::string& option, const std::string& text,
                                      std::int64_t length) {
  std::vector<std::int32_t> ids;
  std::int32_t id = 0;
  for (const std::string_view part : parts_of(text, ',')) {
    const std::int64_t n = whole_number(option, part);
    if (n < 0 || static_cast<std::int64_t>(ids.size()) + n > length) {
      throw InputError(fmt::format("{}: found '{}', expected lengths that add to {}", option,
                                   printable(text), length));
    }
    ids.insert(ids.end(), static_cast<std::size_t>(n), id++);
  }
  if (static_cast<std::int64_t>(ids.size()) != length) {
    throw InputError(fmt::format("{}: lengths '{}' add to {}, expected {}", option, printable(text),
                                 ids.size(), length));
  }
  return ids;
}

Window window_of(const std::string& text) {
  const auto parts = parts_of(text, ',');
  if (parts.size() != 2) {
    throw InputError(
        fmt::format("--window: found '{}', expected LEFT,RIGHT (-1: unlimited)", printable(text)));
  }
  const Window window = {whole_number("--window", parts[0]), whole_number("--window", parts[1])};
  if (window.left < -1 || window.right < -1) {
    throw InputError(fmt::format(
        "--window: found '{}', expected numbers of at least -1 (unlimited)", printable(text)));
  }
  return window;
}

// --- Extra tensors of a head: bias, mask, sink

/// Where the [rows, columns] matrix of a head is in a tensor of rank 1 to 4; leading dimensions are
/// heads, or batch and heads, and each may be 1 for all.
struct Place {
  std::int64_t first, rows;  ///< first element; 1 row for all queries, or one a query
};
Place place_of(const TensorFile& file, const Head& head, const std::string& full,
               std::vector<std::int64_t> shape, std::int64_t columns) {
  const auto refuse = [&, given = shape] {
    std::string text;
    for (const std::int64_t n : given) text += (text.empty() ? "" : ",") + std::to_string(n);
    throw InputError(
        fmt::format("{}: tensor {}: shape [{}] does not fit head {} ({} queries, {} "
                    "columns)",
                    printable(file.path()), printable(full), text, printable(head.id),
                    head.queries(), columns));
  };
  if (shape.empty() || shape.size() > 4) refuse();
  while (shape.size() < 4) shape.insert(shape.begin(), 1);
  const std::int64_t rows = shape[2];
  if (shape[3] != columns || (rows != 1 && rows != head.queries())) refuse();
  const std::int64_t b = shape[0] == 1 ? 0 : head.batch, h = shape[1] == 1 ? 0 : head.query_head;
  if (b >= shape[0] || h >= shape[1]) refuse();
  return {(b * shape[1] + h) * rows * columns, rows};
}

[[noreturn]] void refuse_tensor(const TensorFile& file, const std::string& full,
                                std::string_view expected) {
  const auto unusable = file.unusable().find(full);
  throw InputError(fmt::format(
      "{}: tensor {}: {}", printable(file.path()), printable(full),
      unusable == file.unusable().end()
          ? "not found, expected one of " + file.summary()
          : fmt::format("dtype {}, expected {}", printable(unusable->second.dtype), expected)));
}

/// A tensor that an option names.
struct Named {
  std::shared_ptr<const TensorFile> file;
  std::string full;
};
/// `name` after the head's prefix in the head's file; or, if it has none such and the name ends in
/// .npy, the array of that file.
Named tensor_named(const std::string& option, const std::string& name, const Head& head,
                   bool one_file) {
  if (one_file) {  // open already, with its options
    const std::shared_ptr<const TensorFile>& file = head.files[0];
    const std::string full = head.prefix + name;
    const bool there = file->find(full) != nullptr || file->unusable().contains(full);
    if (there || !ends_with(name, ".npy")) return {file, full};
  }
  if (!ends_with(name, ".npy")) {
    throw InputError(
        fmt::format("{}: found '{}', expected FILE.npy: heads in .npy files have no other tensors",
                    option, printable(name)));
  }
  OpenOptions options;
  options.any_dtype = true;
  const std::shared_ptr<const TensorFile> file = TensorFile::open(name, options);
  return {file, file->stem()};
}

Matrix head_matrix(const Named& named, const Head& head, std::int64_t columns,
                   std::string_view expected) {
  const auto& [file, full] = named;
  const Tensor* t = file->find(full);
  if (t == nullptr) refuse_tensor(*file, full, expected);
  const Place place = place_of(*file, head, full, t->shape, columns);
  const std::int64_t bytes = t->format.storage_bytes();
  return Matrix(file, t->data + place.first * bytes, t->format, place.rows, columns,
                columns * bytes);
}

/// A mask: a boolean tensor (safetensors BOOL, numpy '|b1'), or numbers of which those that are not
/// zero are visible. Integers are refused: an integer mask may hold lengths, indices or bits.
std::vector<std::uint8_t> mask_of(const Named& named, const Head& head, std::int64_t columns) {
  constexpr std::string_view expected = "BOOL, F32, F16 or BF16";
  const auto& [file, full] = named;
  std::vector<std::uint8_t> mask;
  const auto other = file->unusable().find(full);
  if (other != file->unusable().end()) {
    const UnusableTensor& t = other->second;
    if (t.dtype != "BOOL" && t.dtype != "|b1" && t.dtype != "b1") {
      refuse_tensor(*file, full, expected);
    }
    const Place place = place_of(*file, head, full, t.shape, columns);
    for (std::int64_t i = 0; i < place.rows * columns; ++i) {
      const auto byte = std::to_integer<std::uint8_t>(t.data[place.first + i]);
      if (byte > 1) {
        throw InputError(fmt::format("{}: tensor {}: element {} is the byte {}, expected 0 or 1",
                                     printable(file->path()), printable(full), place.first + i,
                                     byte));
      }
      mask.push_back(byte);
    }
    return mask;
  }
  const Matrix m = head_matrix(named, head, columns, expected);
  std::vector<double> row(static_cast<std::size_t>(columns));
  for (std::int64_t i = 0; i < m.rows(); ++i) {
    m.load_row(i, row.data());
    for (const double x : row) {
      if (std::isnan(x)) {
        throw InputError(fmt::format("{}: tensor {}: row {} holds NaN, expected numbers",
                                     printable(file->path()), printable(full), i));
      }
      mask.push_back(x != 0);
    }
  }
  return mask;
}

/// The number, or nothing where the text is none.
std::optional<double> sink_number(const std::string& text) {
  Rational value;
  try {
    value = parse_exact_number(text);
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
  const UpwardRounding up;
  const Interval enclosure = enclose(value);
  if (!enclosure.is_point() || !enclosure.is_finite()) {
    throw InputError(fmt::format("--sink: '{}' is no fp64 number", printable(text)));
  }
  return enclosure.lo();
}

double sink_of(const Named& named, const Head& head, const std::string& text) {
  const auto& [file, full] = named;
  if (file->unusable().contains(full)) refuse_tensor(*file, full, "F32, F16 or BF16");
  const Tensor* t = file->find(full);
  if (t == nullptr || t->shape.size() != 1 ||
      (t->shape[0] != 1 && t->shape[0] <= head.query_head)) {
    throw InputError(
        fmt::format("--sink: '{}' is no number, and {} has no tensor {} of one "
                    "element a query head",
                    printable(text), printable(file->path()), printable(full)));
  }
  double value = 0;
  Matrix(file, t->data + (t->shape[0] == 1 ? 0 : head.query_head) * t->format.storage_bytes(),
         t->format, 1, 1, 0)
      .load_row(0, &value);
  return value;
}

}  // namespace

void add_problem_options(CLI::App& command, ProblemOptions& options) {
  command.add_option("--window", options.window,
                     "LEFT,RIGHT: keys around the diagonal that a row sees (-1: unlimited)");
  CLI::Option* segments =
      command.add_option("--segments", options.segments,
                         "Lengths of packed sequences, e.g. 100,156; each sees only itself");
  command
      .add_option("--key-segments", options.key_segments,
                  "As --segments for the keys, if different")
      ->needs(segments);
  command.add_option("--bias", options.bias,
                     "Final part of the name of an additive bias, or FILE.npy; natural units; -inf "
                     "hides");
  command.add_option(
      "--mask-tensor", options.mask_tensor,
      "Final part of the name of a mask tensor, or FILE.npy: true, or a number not 0, is visible");
  command.add_option("--softcap", options.softcap,
                     "Scores become C tanh(score / C), before the bias");
  command.add_option(
      "--sink", options.sink,
      "Score of a key with value 0: a number, or a tensor (or FILE.npy) with one a head");
  // an empty text is a variable that was not set, not a head without a mask
  for (const char* name : {"--window", "--segments", "--key-segments", "--bias", "--mask-tensor",
                           "--softcap", "--sink"}) {
    command.get_option(name)->check(
        [](const std::string& text) { return text.empty() ? "found no text" : std::string(); });
  }
}

TensorFiles apply_problem_options(const ProblemOptions& a, const Head& head, bool one_file,
                                  ScoreModifiers& p) {
  if (!a.window.empty()) p.window = window_of(a.window);
  if (!a.segments.empty() || !a.key_segments.empty()) {
    p.query_segments = segment_ids("--segments", a.segments, head.queries());
    p.key_segments = a.key_segments.empty()
                         ? segment_ids("--segments", a.segments, head.keys())
                         : segment_ids("--key-segments", a.key_segments, head.keys());
  }
  if (!a.softcap.empty()) {
    try {
      p.softcap = parse_exact_number(a.softcap);
    } catch (const std::invalid_argument&) {
      throw InputError(
          fmt::format("--softcap: found '{}', expected a number", printable(a.softcap)));
    }
  }
  TensorFiles opened;
  const auto named = [&](const char* option, const std::string& name) {
    Named tensor = tensor_named(option, name, head, one_file);
    if (!one_file || tensor.file != head.files[0]) opened.push_back(tensor.file);
    return tensor;
  };
  if (!a.bias.empty()) {
    p.bias = head_matrix(named("--bias", a.bias), head, head.keys(), "F32, F16 or BF16");
  }
  if (!a.mask_tensor.empty()) {
    p.mask = mask_of(named("--mask-tensor", a.mask_tensor), head, head.keys());
  }
  if (!a.sink.empty()) {
    p.sink = sink_number(a.sink);
    if (!p.sink && !one_file && !ends_with(a.sink, ".npy")) {
      throw InputError(fmt::format(
          "--sink: found '{}', expected a number, or FILE.npy with .npy heads", printable(a.sink)));
    }
    if (!p.sink) p.sink = sink_of(named("--sink", a.sink), head, a.sink);
  }
  return opened;
}

std::vector<std::string> warnings_of(const ProblemOptions& a, const Head& head) {
  std::vector<std::string> warnings = head.warnings;
  for (const std::string& name : {a.bias, a.mask_tensor, a.sink}) {
    if (name.empty()) continue;
    const std::string start = "tensor " + quoted_text(head.prefix + name) + " is not read";
    std::erase_if(warnings, [&](const std::string& w) { return w.starts_with(start); });
  }
  return warnings;
}

std::vector<Head> load_files(const std::vector<std::string>& files, const LoadOptions& load) {
  if (files.size() == 3) return load_heads(files[0], files[1], files[2], load);
  if (files.size() != 1) {
    throw InputError(
        fmt::format("found {} files, expected one .safetensors or .npz file, or "
                    "three .npy files: Q, K, V",
                    files.size()));
  }
  return load_heads(files[0], load);
}

std::int64_t whole_number(const std::string& option, std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw InputError(fmt::format("{}: found '{}', expected a whole number", option,
                                 printable(std::string(text))));
  }
  return value;
}

/// "0-63,100": ascending, each once.
std::vector<std::int64_t> row_list(const std::string& text, std::int64_t queries,
                                   const std::string& id) {
  std::set<std::int64_t> rows;
  for (const std::string_view part : parts_of(text, ',')) {
    const std::size_t dash = part.find('-', 1);
    const std::int64_t first = whole_number("--rows", part.substr(0, dash));
    const std::int64_t last =
        dash == std::string_view::npos ? first : whole_number("--rows", part.substr(dash + 1));
    if (first < 0 || last < first || last >= queries) {
      throw InputError(fmt::format("--rows: found '{}', expected rows of {} within 0-{}",
                                   printable(std::string(part)), printable(id), queries - 1));
    }
    for (std::int64_t i = first; i <= last; ++i) rows.insert(i);
  }
  return {rows.begin(), rows.end()};
}

/// `count` different rows, ascending, a function of seed and Nq alone (R. W. Floyd's sampling).
std::vector<std::int64_t> sampled_rows(std::int64_t count, std::int64_t queries,
                                       std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::set<std::int64_t> rows;
  for (std::int64_t j = std::max<std::int64_t>(0, queries - count); j < queries; ++j) {
    // the bias of the remainder is below 2^-40 for heads below 2^24 rows
    const auto i = static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(j + 1));
    if (!rows.insert(i).second) rows.insert(j);
  }
  return {rows.begin(), rows.end()};
}

std::string rows_text(const std::vector<std::int64_t>& rows) {
  std::string text;
  for (std::size_t i = 0; i < rows.size();) {
    std::size_t j = i;
    while (j + 1 < rows.size() && rows[j + 1] == rows[j] + 1) ++j;
    text += (text.empty() ? "" : ",") + std::to_string(rows[i]);
    if (j > i) text += "-" + std::to_string(rows[j]);
    i = j + 1;
  }
  return text;
}

}  // namespace headroom::cli
