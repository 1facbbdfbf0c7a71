// headroom reference: exact attention, correctly rounded to a format, or enclosed.
#include <fmt/format.h>
#include <oneapi/tbb/global_control.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/head_options.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "reference/evaluate/ladder/ladder.h"
#include "reference/head/load.h"
#include "reference/head/write.h"
#include "reference/input_error.h"
#include "reference/model/kernel_file.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ReferenceArguments {
  std::vector<std::string> files;
  std::string format, lse_format, rounding = "rne", lse_base = "e", output;
  std::string kernel, rows;
  std::string window, segments, key_segments, bias, mask_tensor, softcap, sink;
  std::int64_t sample_rows = 0;
  std::uint64_t seed = 1;
  int threads = 0;
  bool enclosure = false, json = false;
  HeadOptions heads;
};

// --- Options as values

Format format_named(const std::string& option, const std::string& name) {
  std::string known;
  for (const Format* f : {&fp64, &fp32, &fp16, &bf16, &e4m3fn, &e5m2}) {
    if (f->name == name) return *f;
    known += (known.empty() ? "" : ", ") + std::string(f->name);
  }
  throw InputError(
      fmt::format("{}: found '{}', expected one of {}", option, printable(name), known));
}

Rounding rounding_named(const std::string& name) {
  if (name == "rne") return Rounding::nearest_even;
  if (name == "rz") return Rounding::toward_zero;
  if (name == "ru") return Rounding::upward;
  if (name == "rd") return Rounding::downward;
  throw InputError(
      fmt::format("--rounding: found '{}', expected rne, rz, ru or rd", printable(name)));
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

std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
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
  return {whole_number("--window", parts[0]), whole_number("--window", parts[1])};
}

// --- Extra tensors of a head: bias, mask, sink

/// The [rows, columns] matrix of a head in a tensor of rank 1 to 4; leading dimensions are heads,
/// or batch and heads, and each may be 1 for all.
Matrix head_matrix(const std::shared_ptr<const TensorFile>& file, const Head& head,
                   const std::string& name, std::int64_t columns) {
  const std::string full = head.prefix + name;
  const Tensor* t = file->find(full);
  if (t == nullptr) {
    const auto unusable = file->unusable().find(full);
    throw InputError(fmt::format("{}: tensor {}: {}", printable(file->path()), printable(full),
                                 unusable == file->unusable().end()
                                     ? "not found"
                                     : fmt::format("dtype {}, expected F32, F16 or BF16",
                                                   printable(unusable->second.dtype))));
  }
  std::vector<std::int64_t> shape = t->shape;
  const auto refuse = [&] {
    std::string text;
    for (const std::int64_t n : t->shape) text += (text.empty() ? "" : ",") + std::to_string(n);
    throw InputError(
        fmt::format("{}: tensor {}: shape [{}] does not fit head {} ({} queries, {} "
                    "columns)",
                    printable(file->path()), printable(full), text, printable(head.id),
                    head.queries(), columns));
  };
  if (shape.empty() || shape.size() > 4) refuse();
  while (shape.size() < 4) shape.insert(shape.begin(), 1);
  const std::int64_t rows = shape[2];
  if (shape[3] != columns || (rows != 1 && rows != head.queries())) refuse();
  const std::int64_t b = shape[0] == 1 ? 0 : head.batch, h = shape[1] == 1 ? 0 : head.query_head;
  if (b >= shape[0] || h >= shape[1]) refuse();
  const std::int64_t stride = columns * t->format.storage_bytes();
  return Matrix(file, t->data + (b * shape[1] + h) * rows * stride, t->format, rows, columns,
                stride);
}

double sink_of(const std::shared_ptr<const TensorFile>& file, const Head& head,
               const std::string& text) {
  try {
    const Rational value = parse_exact_number(text);
    const Interval enclosure = [&] {
      const UpwardRounding up;
      return enclose(value);
    }();
    if (!enclosure.is_point() || !enclosure.is_finite()) {
      throw InputError(fmt::format("--sink: '{}' is no fp64 number", printable(text)));
    }
    return enclosure.lo();
  } catch (const std::invalid_argument&) {
    if (!file) throw InputError("--sink: expected a number with .npy files");
  }
  const Tensor* t = file->find(head.prefix + text);
  if (t == nullptr || t->shape.size() != 1 ||
      (t->shape[0] != 1 && t->shape[0] <= head.query_head)) {
    throw InputError(
        fmt::format("--sink: '{}' is no number, and {} has no tensor {} of one "
                    "element a query head",
                    printable(text), printable(file->path()), printable(head.prefix + text)));
  }
  double value = 0;
  Matrix(file, t->data + (t->shape[0] == 1 ? 0 : head.query_head) * t->format.storage_bytes(),
         t->format, 1, 1, 0)
      .load_row(0, &value);
  return value;
}

AttentionProblem problem_of(const ReferenceArguments& a, const Head& head,
                            const std::optional<KernelModel>& kernel) {
  AttentionProblem p =
      kernel ? AttentionProblem::as_multiplied(head, *kernel) : AttentionProblem(head);
  if (!a.window.empty()) p.window = window_of(a.window);
  if (!a.segments.empty() || !a.key_segments.empty()) {
    p.query_segments = segment_ids("--segments", a.segments, p.queries());
    p.key_segments = a.key_segments.empty()
                         ? segment_ids("--segments", a.segments, p.keys())
                         : segment_ids("--key-segments", a.key_segments, p.keys());
  }
  if (!a.softcap.empty()) {
    try {
      p.softcap = parse_exact_number(a.softcap);
    } catch (const std::invalid_argument&) {
      throw InputError(
          fmt::format("--softcap: found '{}', expected a number", printable(a.softcap)));
    }
  }
  std::shared_ptr<const TensorFile> file;
  const bool wants_file = !a.bias.empty() || !a.mask_tensor.empty() || !a.sink.empty();
  if (wants_file && a.files.size() == 1) file = TensorFile::open(head.file);
  if (!file && (!a.bias.empty() || !a.mask_tensor.empty())) {
    throw InputError("--bias, --mask-tensor: tensors are read from a .safetensors file");
  }
  if (!a.bias.empty()) p.bias = head_matrix(file, head, a.bias, p.keys());
  if (!a.mask_tensor.empty()) {
    const Matrix m = head_matrix(file, head, a.mask_tensor, p.keys());
    std::vector<double> row(static_cast<std::size_t>(p.keys()));
    for (std::int64_t i = 0; i < m.rows(); ++i) {
      m.load_row(i, row.data());
      for (const double x : row) p.mask.push_back(x != 0);
    }
  }
  if (!a.sink.empty()) p.sink = sink_of(file, head, a.sink);
  return p;
}

// --- Output files

struct OutputTensor {
  std::string name;
  Format format;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> words;
};

std::string_view dtype_of(const Format& f) {
  return f == fp64     ? "F64"
         : f == fp32   ? "F32"
         : f == fp16   ? "F16"
         : f == bf16   ? "BF16"
         : f == e4m3fn ? "F8_E4M3"
                       : "F8_E5M2";
}

/// All of the program's formats; TensorWriter (reference/head) is for operand formats.
std::string safetensors_bytes(const std::vector<OutputTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<const OutputTensor*> order;
  for (const OutputTensor& t : tensors) order.push_back(&t);
  // wider words first: every tensor is then aligned to its words
  std::stable_sort(order.begin(), order.end(), [](const OutputTensor* a, const OutputTensor* b) {
    return a->format.storage_bytes() > b->format.storage_bytes();
  });
  Json header;
  header["__metadata__"] = metadata;
  std::size_t offset = 0;
  for (const OutputTensor* t : order) {
    header[t->name] = {{"dtype", std::string(dtype_of(t->format))},
                       {"shape", t->shape},
                       {"data_offsets", {offset, offset + t->words.size()}}};
    offset += t->words.size();
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t size = text.size();
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  bytes += text;
  for (const OutputTensor* t : order) {
    bytes.append(reinterpret_cast<const char*>(t->words.data()), t->words.size());
  }
  return bytes;
}

std::string npy_bytes(const OutputTensor& t) {
  const char* descr = t.format == fp64   ? "<f8"
                      : t.format == fp32 ? "<f4"
                      : t.format == fp16 ? "<f2"
                                         : nullptr;
  if (descr == nullptr) {
    throw InputError(fmt::format(
        "--format {}: .npy has no such dtype, expected fp64, fp32 or fp16, or a .safetensors "
        "output",
        t.format.name));
  }
  std::string shape;
  for (const std::int64_t n : t.shape) shape += std::to_string(n) + ",";
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  header.append(64 - (10 + header.size() + 1) % 64, ' ');
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8);
  bytes += header;
  bytes.append(reinterpret_cast<const char*>(t.words.data()), t.words.size());
  return bytes;
}

/// `prefix`: that of every tensor, left out of .npy names, so that `o` is `path` itself.
void write_output(const std::string& path, const std::string& prefix,
                  const std::vector<OutputTensor>& tensors,
                  const std::map<std::string, std::string>& metadata) {
  if (!ends_with(path, ".npy")) {
    atomic_write_file(path, safetensors_bytes(tensors, metadata));
    return;
  }
  // exact.npy, exact.lse.npy, ...: one file a tensor
  const std::string stem = path.substr(0, path.size() - 4);
  std::vector<std::pair<std::string, std::string>> files;
  for (const OutputTensor& t : tensors) {
    const std::string name = t.name.starts_with(prefix) ? t.name.substr(prefix.size()) : t.name;
    files.emplace_back(name == "o" ? path : stem + "." + name + ".npy", npy_bytes(t));
  }
  for (const auto& [name, bytes] : files) atomic_write_file(name, bytes);
}

/// What one head gives: tensors by final name, without the head dimension.
using HeadTensors = std::vector<OutputTensor>;

std::vector<std::byte> encoded(const Format& f, Rounding rounding,
                               const std::vector<double>& values) {
  const auto bytes = static_cast<std::size_t>(f.storage_bytes());
  std::vector<std::byte> words(values.size() * bytes);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t code = encode(f, values[i], {.rounding = rounding});
    std::memcpy(&words[i * bytes], &code, bytes);
  }
  return words;
}

/// Heads of one prefix stacked in file order: [rows, dv] for a 2-D file, else [heads, rows, dv], or
/// [batch, heads, rows, dv] if the selection is a full grid.
void stack(std::vector<OutputTensor>& out, const std::vector<const Head*>& heads,
           const std::vector<HeadTensors>& tensors) {
  std::vector<std::int64_t> leading;
  if (heads.front()->layout != "nd" || heads.size() > 1) {
    leading = {static_cast<std::int64_t>(heads.size())};
    std::set<std::int64_t> batches, numbers;
    for (const Head* h : heads) {
      batches.insert(h->batch);
      numbers.insert(h->query_head);
    }
    if (heads.front()->has_batch && batches.size() * numbers.size() == heads.size()) {
      leading = {static_cast<std::int64_t>(batches.size()),
                 static_cast<std::int64_t>(numbers.size())};
    }
  }
  for (std::size_t t = 0; t < tensors.front().size(); ++t) {
    OutputTensor whole = tensors.front()[t];
    whole.name = heads.front()->prefix + whole.name;
    whole.words.clear();
    for (const HeadTensors& one : tensors) {
      if (one[t].shape != tensors.front()[t].shape) {
        throw InputError(fmt::format("{}: heads of different shapes cannot share tensor {}",
                                     printable(heads.front()->file), printable(whole.name)));
      }
      whole.words.insert(whole.words.end(), one[t].words.begin(), one[t].words.end());
    }
    whole.shape.insert(whole.shape.begin(), leading.begin(), leading.end());
    out.push_back(std::move(whole));
  }
}

// --- The command

constexpr Rung all_rungs[] = {Rung::vector,  Rung::double_double, Rung::wide,     Rung::tie,
                              Rung::defined, Rung::undefined,     Rung::undecided};

Json counts_json(const RungCounts& counts) {
  Json o, lse;
  for (const Rung r : all_rungs) {
    o[name(r)] = counts.output[static_cast<std::size_t>(r)];
    lse[name(r)] = counts.lse[static_cast<std::size_t>(r)];
  }
  return {{"o", o},
          {"lse", lse},
          {"widest_bits", counts.widest_bits},
          {"seconds",
           {{"vector", counts.seconds[0]},
            {"double-double", counts.seconds[1]},
            {"wide", counts.seconds[2]}}}};
}

struct HeadSummary {
  const Head* head;
  std::vector<std::int64_t> rows;
  RungCounts counts;
  std::vector<UndecidedElement> undecided;
};

void print_summary(const std::vector<HeadSummary>& summaries, const std::string& output,
                   bool enclosure) {
  Table table({{"head"},
               {"rows", Align::right},
               {"vector", Align::right},
               {"double-double", Align::right},
               {"wide", Align::right},
               {"tie", Align::right},
               {"no key", Align::right},
               {"undefined", Align::right},
               {"undecided", Align::right}});
  for (const HeadSummary& s : summaries) {
    std::vector<Cell> cells = {s.head->id, std::to_string(s.rows.size())};
    for (const Rung r : all_rungs) {
      const std::int64_t n = s.counts.of(r);
      const bool odd = n > 0 && (r == Rung::undefined || r == Rung::undecided);
      cells.emplace_back(std::to_string(n), odd ? Tone::warning : Tone::plain);
    }
    table.add_row(cells);
  }
  std::fputs(table.render(colour_wanted(stdout)).c_str(), stdout);
  std::map<std::string, std::size_t> settings;
  for (const HeadSummary& s : summaries) {
    ++settings[fmt::format("scale {} ({}), mask {} ({})", s.head->scale.text(),
                           s.head->scale_source, to_text(s.head->visibility.kind),
                           s.head->mask_source)];
  }
  for (const auto& [text, count] : settings) {
    std::fputs(fmt::format("{}: {} head{}\n", text, count, count == 1 ? "" : "s").c_str(), stdout);
  }
  std::fputs(fmt::format("{} written to {}\n", enclosure ? "enclosures" : "correctly rounded",
                         printable(output))
                 .c_str(),
             stdout);
}

std::vector<Head> load_all(const ReferenceArguments& a, const LoadOptions& load) {
  if (a.files.size() == 3) return load_heads(a.files[0], a.files[1], a.files[2], load);
  if (a.files.size() != 1) {
    throw InputError(
        fmt::format("found {} files, expected one .safetensors file or three .npy "
                    "files: Q, K, V",
                    a.files.size()));
  }
  return load_heads(a.files[0], load);
}

void run_reference(const ReferenceArguments& a, int& exit_code) {
  LadderOptions options;
  options.output = {format_named("--format", a.format), rounding_named(a.rounding)};
  options.lse = options.output;
  if (!a.lse_format.empty()) options.lse.format = format_named("--lse-format", a.lse_format);
  if (a.lse_base != "e" && a.lse_base != "2") {
    throw InputError(fmt::format("--lse-base: found '{}', expected e or 2", printable(a.lse_base)));
  }
  options.lse_base = a.lse_base == "2" ? LseBase::two : LseBase::natural;
  if (!ends_with(a.output, ".safetensors") && !ends_with(a.output, ".npy")) {
    throw InputError(
        fmt::format("-o {}: expected a name ending in .safetensors or .npy", printable(a.output)));
  }
  std::optional<KernelModel> kernel;
  if (!a.kernel.empty()) kernel = load_kernel(a.kernel);
  const LoadOptions load =
      load_options(a.heads, kernel ? std::optional<Format>(kernel->operand) : std::nullopt);
  if (load.cast && !kernel) {
    throw InputError("--cast: needs --kernel, whose operand format it casts to");
  }
  std::unique_ptr<oneapi::tbb::global_control> limit;
  if (a.threads > 0) {
    limit = std::make_unique<oneapi::tbb::global_control>(
        oneapi::tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(a.threads));
  }
  const std::vector<Head> heads = load_all(a, load);
  if (heads.empty()) throw InputError("no head is selected");
  if (ends_with(a.output, ".npy") && heads.front().prefix != heads.back().prefix) {
    throw InputError("-o: heads of several prefixes need a .safetensors output");
  }

  std::vector<HeadSummary> summaries;
  std::uint64_t total = 0;
  for (const Head& head : heads) {
    HeadSummary s{&head, {}, {}, {}};
    if (!a.rows.empty()) {
      s.rows = row_list(a.rows, head.queries(), head.id);
    } else if (a.sample_rows > 0) {
      s.rows = sampled_rows(a.sample_rows, head.queries(), a.seed);
    } else {
      for (std::int64_t i = 0; i < head.queries(); ++i) s.rows.push_back(i);
    }
    total += s.rows.size();
    summaries.push_back(std::move(s));
  }

  std::vector<OutputTensor> out;
  {
    Progress progress("reference", total);
    options.rows_done = [&](std::int64_t n) { progress.advance(static_cast<std::uint64_t>(n)); };
    std::vector<const Head*> same_prefix;
    std::vector<HeadTensors> tensors;
    for (HeadSummary& s : summaries) {
      if (!same_prefix.empty() && same_prefix.front()->prefix != s.head->prefix) {
        stack(out, same_prefix, tensors);
        same_prefix.clear();
        tensors.clear();
      }
      const AttentionProblem problem = problem_of(a, *s.head, kernel);
      const auto n = static_cast<std::int64_t>(s.rows.size());
      const std::int64_t dv = problem.value_channels();
      HeadTensors t;
      if (a.enclosure) {
        const EnclosedRows e = enclosures(problem, s.rows, options);
        s.counts = e.counts;
        const Format &f = options.output.format, &g = options.lse.format;
        t = {{"o_lo", f, {n, dv}, encoded(f, Rounding::downward, e.output_lo)},
             {"o_hi", f, {n, dv}, encoded(f, Rounding::upward, e.output_hi)},
             {"lse_lo", g, {n}, encoded(g, Rounding::downward, e.lse_lo)},
             {"lse_hi", g, {n}, encoded(g, Rounding::upward, e.lse_hi)}};
      } else {
        RoundedRows r = correctly_rounded(problem, s.rows, options);
        s.counts = r.counts;
        s.undecided = r.undecided;
        t = {{"o", r.output_format, {n, dv}, std::move(r.output)},
             {"lse", r.lse_format, {n}, std::move(r.lse)}};
      }
      same_prefix.push_back(s.head);
      tensors.push_back(std::move(t));
    }
    stack(out, same_prefix, tensors);
  }
  std::map<std::string, std::string> metadata = {
      {"headroom", HEADROOM_VERSION},
      {"reference", kernel ? "multiplied operands of kernel " + kernel->name : "stored operands"},
      {"format", std::string(options.output.format.name)},
      {"lse_format", std::string(options.lse.format.name)},
      {"lse_base", a.lse_base},
      {"rounding", a.enclosure ? "outward" : a.rounding},
      {"rows", rows_text(summaries.front().rows)},
      {"scale", heads.front().scale.text()},
      {"mask", to_text(heads.front().visibility.kind)}};
  std::string ids;
  for (const Head& h : heads) ids += (ids.empty() ? "" : " ") + h.id;
  metadata["heads"] = ids;
  write_output(a.output, heads.front().prefix, out, metadata);

  std::int64_t undecided = 0;
  for (const HeadSummary& s : summaries) undecided += s.counts.of(Rung::undecided);
  exit_code = undecided > 0 ? 3 : 0;
  if (!a.json) {
    print_summary(summaries, a.output, a.enclosure);
    return;
  }
  Json document = {{"schema", "headroom-reference-1"},
                   {"exit_code", exit_code},
                   {"output", a.output},
                   {"format", std::string(options.output.format.name)},
                   {"lse_format", std::string(options.lse.format.name)},
                   {"lse_base", a.lse_base},
                   {"rounding", a.enclosure ? "outward" : a.rounding},
                   {"enclosure", a.enclosure},
                   {"reference", metadata["reference"]},
                   {"simd", headroom::name(options.instruction_set)},
                   {"heads", Json::array()}};
  for (const HeadSummary& s : summaries) {
    Json open = Json::array();
    for (const UndecidedElement& u : s.undecided) {
      open.push_back({{"row", u.row}, {"channel", u.channel}});
    }
    document["heads"].push_back({{"id", s.head->id},
                                 {"rows", rows_text(s.rows)},
                                 {"channels", s.head->value_channels()},
                                 {"scale", s.head->scale.text()},
                                 {"scale_source", s.head->scale_source},
                                 {"mask", to_text(s.head->visibility.kind)},
                                 {"mask_source", s.head->mask_source},
                                 {"decided_by", counts_json(s.counts)},
                                 {"undecided", open}});
  }
  std::fputs((document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n").c_str(), stdout);
}

}  // namespace

void add_reference(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ReferenceArguments>();
  ReferenceArguments& a = *arguments;
  CLI::App* command = app.add_subcommand(
      "reference", "Exact attention: O and LSE, each element correctly rounded, or enclosed");
  command->add_option("files", a.files, "One .safetensors file, or three .npy files: Q, K, V")
      ->required();
  command
      ->add_option("-o,--output", a.output, "Where tensors `o` and `lse` go: .safetensors or .npy")
      ->required();
  command->add_option("--format", a.format, "fp64, fp32, fp16, bf16, e4m3fn or e5m2")->required();
  command->add_option("--lse-format", a.lse_format, "Format of `lse` (default: --format)");
  command->add_option("--lse-base", a.lse_base, "Base of `lse`: e or 2")->capture_default_str();
  command->add_option("--rounding", a.rounding, "rne, rz, ru or rd")->capture_default_str();
  command->add_flag("--enclosure", a.enclosure,
                    "Write lower and upper bounds (o_lo, o_hi, lse_lo, lse_hi) instead");
  CLI::Option* rows = command->add_option("--rows", a.rows, "Query rows, e.g. 0-63,100");
  CLI::Option* sample =
      command->add_option("--sample-rows", a.sample_rows, "This many rows, chosen by --seed")
          ->check(CLI::PositiveNumber)
          ->excludes(rows);
  command->add_option("--seed", a.seed, "Seed of --sample-rows")
      ->capture_default_str()
      ->needs(sample);
  command->add_option("--kernel", a.kernel,
                      "Kernel file or preset: evaluate the operands as it pre-rounds them");
  add_head_options(*command, a.heads);
  command->add_option("--window", a.window,
                      "LEFT,RIGHT: keys around the diagonal that a row sees (-1: unlimited)");
  CLI::Option* segments = command->add_option(
      "--segments", a.segments, "Lengths of packed sequences, e.g. 100,156; each sees only itself");
  command->add_option("--key-segments", a.key_segments, "As --segments for the keys, if different")
      ->needs(segments);
  command->add_option("--bias", a.bias,
                      "Final part of the name of an additive bias, natural units; -inf hides");
  command->add_option("--mask-tensor", a.mask_tensor,
                      "Final part of the name of a mask tensor: nonzero is visible");
  command->add_option("--softcap", a.softcap, "Scores become C tanh(score / C), before the bias");
  command->add_option("--sink", a.sink,
                      "Score of a key with value 0: a number, or a tensor with one a head");
  command->add_option("--threads", a.threads, "Worker threads (0: all cores)")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
  command->add_flag("--json", a.json, "Machine-readable summary, with what decided the elements");
  command->footer(
      "Examples:\n"
      "  headroom reference heads.safetensors --format bf16 -o exact.safetensors\n"
      "  headroom reference heads.safetensors --format fp32 --rounding ru --heads 'layer0.*:0-3'"
      " -o up.safetensors\n"
      "  headroom reference giant.safetensors --format bf16 --sample-rows 64 --seed 7 --json"
      " -o rows.safetensors\n"
      "  headroom reference heads.safetensors --format fp64 --enclosure --rows 0-63"
      " -o bounds.safetensors\n"
      "  headroom reference q.npy k.npy v.npy --format fp32 --softcap 50 --window 127,0 -o o.npy\n"
      "Exit codes: 0 all decided; 2 bad input; 3 some element is undecided at 4096 bits.");
  command->callback([=, &exit_code] { run_reference(*arguments, exit_code); });
}

}  // namespace headroom::cli
