#include "reference/head/load.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "reference/input_error.h"

namespace headroom {
namespace {

using FilePtr = std::shared_ptr<const TensorFile>;

/// `*` any run, `?` any byte, all else itself. Linear backtracking: only to the last star.
bool glob_matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

/// A non-negative decimal of at most 18 digits.
std::optional<std::int64_t> natural(std::string_view text) {
  if (text.empty() || text.size() > 18) return std::nullopt;
  std::int64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

/// `--heads`: which prefixes, and which query heads of each.
class Selection {
 public:
  explicit Selection(const std::string& text) : text_(text), glob_(text) {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string::npos) return;
    const std::string_view list = std::string_view(text).substr(colon + 1);
    // a colon may belong to the tensor names: only digits, commas and dashes make a list
    if (list.find_first_not_of("0123456789,-") != std::string_view::npos) return;
    glob_ = text.substr(0, colon);
    if (glob_.empty()) glob_ = "*";
    for (const std::string_view part : split(list, ',')) {
      const std::size_t dash = part.find('-');
      const auto first = natural(part.substr(0, dash));
      const auto last = dash == std::string_view::npos ? first : natural(part.substr(dash + 1));
      if (!first || !last || *first > *last) {
        throw InputError(fmt::format("--heads {}: list {}, expected e.g. 0-3,7", quoted_text(text),
                                     quoted_text(list)));
      }
      ranges_.emplace_back(*first, *last);
    }
  }

  bool takes_prefix(std::string_view prefix) const {
    if (glob_matches(glob_, prefix)) return true;
    constexpr std::string_view separators = "._-/:";
    return !prefix.empty() && separators.find(prefix.back()) != std::string_view::npos &&
           glob_matches(glob_, prefix.substr(0, prefix.size() - 1));
  }
  bool takes_head(std::int64_t h) const {
    return ranges_.empty() || std::any_of(ranges_.begin(), ranges_.end(), [h](const auto& range) {
             return range.first <= h && h <= range.second;
           });
  }
  /// Largest head asked for, or -1.
  std::int64_t last_head() const {
    std::int64_t last = -1;
    for (const auto& range : ranges_) last = std::max(last, range.second);
    return last;
  }
  bool is_everything() const { return glob_ == "*"; }
  const std::string& text() const { return text_; }

 private:
  std::string text_, glob_;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges_;
};

/// A value of the command line or the file's metadata, and where it came from.
struct Setting {
  std::string text;
  std::string source;  ///< "option", "metadata" or "sidecar"
  std::string where;   ///< begins messages: "--scale", "x.json: key \"scale\""
};

/// The keys of a file's metadata and sidecar that say something about its heads.
constexpr const char* setting_keys[] = {"scale", "causal", "mask", "layout", "lengths"};

std::optional<Setting> setting(const TensorFile& file, const std::string& key,
                               const std::optional<std::string>& option = std::nullopt) {
  if (option) return Setting{*option, "option", "--" + key};
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) return std::nullopt;
  const std::string source = file.metadata_source(key);
  const std::string& path = source == "sidecar" ? file.sidecar_path() : file.path();
  return Setting{found->second, source,
                 fmt::format("{}: {} key {}", path_text(path), source, path_text(key))};
}

/// Calls `read` and puts the setting's origin before the message of an InputError.
template <class Read>
auto read_setting(const Setting& setting, Read read) {
  try {
    return read(setting.text);
  } catch (const InputError& error) {
    throw InputError(setting.where + ": " + error.what());
  }
}

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

/// "nd", "hnd", "bhnd" or "bnhd", from itself or from words: "[heads,tokens,channels]".
std::string parse_layout(const std::string& text) {
  static const std::map<std::string, char, std::less<>> words = {
      {"batch", 'b'}, {"heads", 'h'},    {"head", 'h'}, {"tokens", 'n'},   {"sequence", 'n'},
      {"seq", 'n'},   {"channels", 'd'}, {"dim", 'd'},  {"head_dim", 'd'},
  };
  std::string letters = lower(text);
  if (letters.size() >= 2 && letters.front() == '[' && letters.back() == ']') {
    std::string spelled;
    for (std::string_view part :
         split(std::string_view(letters).substr(1, letters.size() - 2), ',')) {
      while (part.starts_with(' ')) part.remove_prefix(1);
      while (part.ends_with(' ')) part.remove_suffix(1);
      const auto word = words.find(part);
      spelled += word != words.end() ? word->second : part.size() == 1 ? part[0] : '?';
    }
    letters = spelled;
  }
  for (const char* known : {"nd", "hnd", "bhnd", "bnhd"}) {
    if (letters == known) return known;
  }
  throw InputError("layout " + quoted_text(text) + ": unknown, expected nd, hnd, bhnd or bnhd");
}

bool parse_flag(const std::string& text) {
  const std::string word = lower(text);
  if (word == "true" || word == "1") return true;
  if (word == "false" || word == "0") return false;
  throw InputError("value " + quoted_text(text) + ": expected true or false");
}

/// Q, K and V tensors that belong together.
struct Triple {
  std::string prefix;
  std::array<const Tensor*, 3> tensors{};
  std::array<FilePtr, 3> files;

  /// Begins messages about tensor i.
  std::string where(std::size_t i) const {
    return fmt::format("{}: tensor {}", path_text(files[i]->path()), quoted_text(tensors[i]->name));
  }
};

/// One tensor seen as batch x heads x rows x columns.
struct View {
  const Tensor* tensor = nullptr;
  std::int64_t batch = 1, heads = 1, rows = 0, columns = 0;
  std::int64_t batch_stride = 0, head_stride = 0, row_stride = 0;  // bytes

  Matrix matrix(const FilePtr& file, std::int64_t b, std::int64_t h) const {
    return {file,           tensor->data + b * batch_stride + h * head_stride,
            tensor->format, rows,
            columns,        row_stride};
  }
};

View view(const Tensor& tensor, const std::string& layout) {
  View v;
  v.tensor = &tensor;
  std::int64_t stride = tensor.format.storage_bytes();
  for (std::size_t i = layout.size(); i-- > 0;) {
    const std::int64_t n = tensor.shape[i];
    switch (layout[i]) {
      case 'b':
        v.batch = n, v.batch_stride = stride;
        break;
      case 'h':
        v.heads = n, v.head_stride = stride;
        break;
      case 'n':
        v.rows = n, v.row_stride = stride;
        break;
      default:
        v.columns = n;
    }
    stride *= n;  // no overflow: at most the tensor's bytes, since no dimension is 0
  }
  return v;
}

std::string layout_of(const Triple& triple, const LoadOptions& options) {
  const auto given = setting(*triple.files[0], "layout", options.layout);
  const std::size_t rank = triple.tensors[0]->shape.size();
  for (std::size_t i = 0; i < 3; ++i) {
    const Tensor& tensor = *triple.tensors[i];
    if (tensor.shape.size() < 2 || tensor.shape.size() > 4) {
      throw InputError(
          fmt::format("{}: shape {}, expected 2 dimensions [N,d], 3 [H,N,d], or 4 "
                      "with --layout bhnd or bnhd",
                      triple.where(i), shape_text(tensor.shape)));
    }
    if (tensor.shape.size() != rank) {
      throw InputError(fmt::format("{}: shape {}, expected {} dimensions as {} has {}",
                                   triple.where(i), shape_text(tensor.shape), rank,
                                   quoted_text(triple.tensors[0]->name),
                                   shape_text(triple.tensors[0]->shape)));
    }
    for (const std::int64_t n : tensor.shape) {
      if (n == 0) {
        throw InputError(fmt::format("{}: shape {} is empty: no head to judge", triple.where(i),
                                     shape_text(tensor.shape)));
      }
    }
  }
  if (given) {
    std::string layout = read_setting(*given, parse_layout);
    if (layout.size() != rank) {
      throw InputError(fmt::format("{}: shape {} has {} dimensions, expected {} ({} says {})",
                                   triple.where(0), shape_text(triple.tensors[0]->shape), rank,
                                   layout.size(), given->where, layout));
    }
    return layout;
  }
  if (rank == 4) {
    throw InputError(fmt::format("{}: shape {} has 4 dimensions, expected --layout bhnd or bnhd",
                                 triple.where(0), shape_text(triple.tensors[0]->shape)));
  }
  return rank == 2 ? "nd" : "hnd";
}

void set_scale(Head& head, const TensorFile& file, const LoadOptions& options) {
  const auto d = static_cast<std::uint64_t>(head.channels());
  if (options.scale && options.scale_log2) {
    throw InputError("--scale and --scale-log2 are both given, expected one");
  }
  if (options.scale_log2) {
    const Setting log2{*options.scale_log2, "option", "--scale-log2"};
    head.scale = read_setting(
        log2, [](const std::string& text) { return Scale::from_text("log2:" + text); });
    head.scale_source = log2.source;
  } else if (const auto given = setting(file, "scale", options.scale)) {
    head.scale =
        read_setting(*given, [d](const std::string& text) { return Scale::parse(text, d); });
    head.scale_source = given->source;
  } else {
    head.scale = Scale::reciprocal_sqrt(d);
    head.scale_source = "default";
  }
}

/// A scale divided where it should be multiplied is off by d: far outside [1/4, 4] / sqrt(d), where
/// the scales of trained models lie (Gemma's 1 with d = 256 is a known exception, hence no error).
void warn_of_scale(Head& head) {
  const double s = head.scale.natural_factor().lo();
  const double ratio = s * std::sqrt(static_cast<double>(head.channels()));
  if (ratio >= 0.25 && ratio <= 4) return;
  head.warnings.push_back(
      fmt::format("scale {} ({}) is {:.4g} times 1/sqrt(d), d = {}: outside [0.25, 4]{}",
                  head.scale.text(), head.scale_source, ratio, head.channels(),
                  ratio > 4 && std::fabs(ratio / static_cast<double>(head.channels()) - 1) < 0.01
                      ? "; it is sqrt(d), divided where it should be multiplied?"
                      : ""));
}

void set_mask(Head& head, const TensorFile& file, const LoadOptions& options,
              const std::string& where) {
  MaskKind kind = MaskKind::none;
  head.mask_source = "default";
  std::string origin;
  if (const auto given = setting(file, "mask", options.mask)) {
    kind = read_setting(*given, parse_mask);
    head.mask_source = given->source;
    origin = given->where;
  }
  if (!options.mask) {
    if (const auto causal = setting(file, "causal")) {
      const bool is_causal = read_setting(*causal, parse_flag);
      if (!origin.empty() && is_causal != (kind != MaskKind::none)) {
        throw InputError(fmt::format("{} says {}, but {} says {}", origin, to_text(kind),
                                     causal->where, quoted_text(causal->text)));
      }
      if (origin.empty()) {
        kind = is_causal ? MaskKind::causal : MaskKind::none;
        head.mask_source = causal->source;
        origin = causal->where;
      }
    }
  }
  head.visibility.kind = kind;
  head.visibility.queries = head.queries();
  head.visibility.keys = head.visibility.length = head.keys();
  if (kind == MaskKind::causal && head.queries() != head.keys()) {
    throw InputError(
        fmt::format("{}: mask causal ({}) with {} queries and {} keys, expected "
                    "--mask causal-top-left or causal-bottom-right",
                    where, origin, head.queries(), head.keys()));
  }
}

void set_length(Head& head, std::int64_t batch_size, const TensorFile& file,
                const LoadOptions& options, const std::string& where) {
  const auto given = setting(file, "lengths", options.lengths);
  if (!given) return;
  std::vector<std::int64_t> lengths;
  // metadata are text, so a list may be written into them as JSON
  const std::string_view text = given->text;
  const bool is_list = given->source != "option" && text.starts_with('[') && text.ends_with(']');
  for (std::string_view part : split(is_list ? text.substr(1, text.size() - 2) : text, ',')) {
    while (is_list && part.starts_with(' ')) part.remove_prefix(1);
    while (is_list && part.ends_with(' ')) part.remove_suffix(1);
    const auto length = natural(part);
    if (!length || *length > head.keys()) {
      throw InputError(
          fmt::format("{}: length {}, expected integers from 0 to the {} keys of {}, "
                      "as 64 or 64,50{}",
                      given->where, quoted_text(part), head.keys(), where,
                      given->source == "option" ? "" : " or [64, 50]"));
    }
    lengths.push_back(*length);
  }
  if (lengths.size() != 1 && static_cast<std::int64_t>(lengths.size()) != batch_size) {
    throw InputError(
        fmt::format("{}: {} lengths, expected 1 or one for each of {} batch entries "
                    "of {}",
                    given->where, lengths.size(), batch_size, where));
  }
  head.visibility.length =
      lengths.size() == 1 ? lengths[0] : lengths[static_cast<std::size_t>(head.batch)];
}

/// A matrix in the format the kernel reads, and how many finite values the cast made infinite.
struct Operand {
  Matrix matrix;
  std::int64_t overflowed = 0;
};

Operand to_operand(const Matrix& stored, const LoadOptions& options) {
  if (!options.operand || stored.format() == *options.operand) return {stored, 0};
  Operand operand{stored.cast(*options.operand, Rounding::nearest_even), 0};
  std::vector<double> before(static_cast<std::size_t>(stored.columns()));
  std::vector<double> after(before.size());
  for (std::int64_t i = 0; i < stored.rows(); ++i) {
    stored.load_row(i, before.data());
    operand.matrix.load_row(i, after.data());
    for (std::size_t j = 0; j < before.size(); ++j) {
      operand.overflowed += std::isfinite(before[j]) && !std::isfinite(after[j]);
    }
  }
  return operand;
}

void check_formats(const Triple& triple, const LoadOptions& options) {
  if (!options.operand || options.cast) return;
  for (std::size_t i = 0; i < 3; ++i) {
    if (triple.tensors[i]->format == *options.operand) continue;
    throw InputError(
        fmt::format("{}: stored as {}, expected {}, which the kernel reads; --cast rne "
                    "rounds it and records that",
                    triple.where(i), triple.tensors[i]->format.name, options.operand->name));
  }
}

void check_shapes(const Triple& triple, const std::array<View, 3>& views) {
  const auto& [q, k, v] = views;
  const auto fail = [&](std::size_t i, const std::string& what) {
    throw InputError(fmt::format("{}: shape {}: {}", triple.where(i),
                                 shape_text(triple.tensors[i]->shape), what));
  };
  if (k.columns != q.columns) {
    fail(1, fmt::format("{} channels, expected the {} of {}", k.columns, q.columns,
                        quoted_text(triple.tensors[0]->name)));
  }
  if (v.rows != k.rows) {
    fail(2, fmt::format("{} tokens, expected the {} of {}", v.rows, k.rows,
                        quoted_text(triple.tensors[1]->name)));
  }
  if (v.heads != k.heads) {
    fail(2, fmt::format("{} heads, expected the {} of {}", v.heads, k.heads,
                        quoted_text(triple.tensors[1]->name)));
  }
  if (q.heads % k.heads != 0) {
    fail(1, fmt::format("{} KV heads, expected a divisor of the {} heads of {}", k.heads, q.heads,
                        quoted_text(triple.tensors[0]->name)));
  }
  for (std::size_t i = 1; i < 3; ++i) {
    if (views[i].batch != q.batch) {
      fail(i, fmt::format("{} batch entries, expected the {} of {}", views[i].batch, q.batch,
                          quoted_text(triple.tensors[0]->name)));
    }
  }
}

/// Whether one letter put in, left out or changed, or two neighbours swapped, makes one word the
/// other (Damerau's distance 1).
bool differ_by_one(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() > 1 || a == b) return false;
  const auto at =
      static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
  if (a.substr(a.size() == b.size() ? at + 1 : at) == b.substr(at + 1)) return true;
  return a.size() == b.size() && at + 1 < a.size() && a[at] == b[at + 1] && a[at + 1] == b[at] &&
         a.substr(at + 2) == b.substr(at + 2);
}

/// What other programs call a setting, less the spellings that are one letter away from it.
constexpr std::pair<std::string_view, const char*> aliases[] = {
    {"is_causal", "causal"},     {"softmax_scale", "scale"},   {"sm_scale", "scale"},
    {"attn_scale", "scale"},     {"attention_scale", "scale"}, {"attn_mask", "mask"},
    {"attention_mask", "mask"},  {"mask_type", "mask"},        {"qkv_layout", "layout"},
    {"tensor_layout", "layout"}, {"seqlens", "lengths"},       {"seq_lens", "lengths"},
    {"kv_lengths", "lengths"},   {"kv_seqlens", "lengths"},
};

/// The setting that a key which nothing reads seems to mean; nullptr if none.
const char* setting_meant_by(const std::string& key) {
  const auto is_read = [&](const char* known) { return key == known; };
  if (std::any_of(std::begin(setting_keys), std::end(setting_keys), is_read)) return nullptr;
  const std::string word = lower(key);
  for (const char* known : setting_keys) {
    if (word == known || differ_by_one(word, known)) return known;
  }
  for (const auto& [alias, known] : aliases) {
    if (word == alias) return known;
  }
  return nullptr;
}

/// Keys of the metadata and of the sidecar that nothing reads and that seem to mean one that
/// counts.
std::vector<std::string> warn_of_misspelt(const TensorFile& file) {
  std::vector<std::string> warnings;
  for (const auto& [key, value] : file.metadata()) {
    const char* meant = setting_meant_by(key);
    if (meant == nullptr) continue;
    warnings.push_back(
        fmt::format("{} is not read; is {} meant?", setting(file, key)->where, meant));
  }
  return warnings;
}

/// Tensors beside q, k and v whose names say that they change the scores, and misspelt settings.
std::vector<std::string> warn_of_unread(const Triple& triple) {
  std::vector<std::string> warnings = warn_of_misspelt(*triple.files[0]);
  for (const Tensor* tensor : triple.tensors) {
    if (!tensor->was_void) continue;
    warnings.push_back("tensor " + quoted_text(tensor->name) +
                       " has words of no type (V2), read as bf16 on request");
  }
  for (const char* name :
       {"mask", "attn_mask", "bias", "attn_bias", "alibi", "sink", "sinks", "softcap"}) {
    const std::string full = triple.prefix + name;
    const TensorFile& file = *triple.files[0];
    if (file.find(full) != nullptr || file.unusable().contains(full)) {
      warnings.push_back("tensor " + quoted_text(full) +
                         " is not read: the head is judged without it");
    }
  }
  return warnings;
}

void add_heads(std::vector<Head>& heads, const Triple& triple, const LoadOptions& options,
               const Selection& selection) {
  const std::string layout = layout_of(triple, options);
  std::array<View, 3> views;
  for (std::size_t i = 0; i < 3; ++i) views[i] = view(*triple.tensors[i], layout);
  check_shapes(triple, views);
  check_formats(triple, options);
  const auto& [q, k, v] = views;
  if (selection.last_head() >= q.heads) {
    throw InputError(fmt::format("--heads {}: head {}, but {} has heads 0 to {}",
                                 quoted_text(selection.text()), selection.last_head(),
                                 triple.where(0), q.heads - 1));
  }
  const TensorFile& file = *triple.files[0];
  const std::vector<std::string> unread = warn_of_unread(triple);
  const bool has_batch = layout[0] == 'b';
  for (std::int64_t b = 0; b < q.batch; ++b) {
    std::map<std::int64_t, std::array<Operand, 2>> kv_cache;  // a cast is made once a KV head
    for (std::int64_t h = 0; h < q.heads; ++h) {
      if (!selection.takes_head(h)) continue;
      Head head;
      head.file = file.path();
      head.files = triple.files;
      head.prefix = triple.prefix;
      head.batch = b;
      head.has_batch = has_batch;
      head.query_head = h;
      head.kv_head = h / (q.heads / k.heads);
      head.layout = layout;
      head.id = fmt::format("{}:{}{}{}", file.stem(), triple.prefix,
                            has_batch ? fmt::format("{}.", b) : "", h);
      auto cached = kv_cache.find(head.kv_head);
      if (cached == kv_cache.end()) {
        cached = kv_cache
                     .emplace(head.kv_head,
                              std::array<Operand, 2>{
                                  to_operand(k.matrix(triple.files[1], b, head.kv_head), options),
                                  to_operand(v.matrix(triple.files[2], b, head.kv_head), options)})
                     .first;
      }
      const Operand query = to_operand(q.matrix(triple.files[0], b, h), options);
      head.q = query.matrix;
      head.k = cached->second[0].matrix;
      head.v = cached->second[1].matrix;
      head.stored_q = q.tensor->format;
      head.stored_k = k.tensor->format;
      head.stored_v = v.tensor->format;
      head.was_cast = !(head.stored_q == head.q.format() && head.stored_k == head.k.format() &&
                        head.stored_v == head.v.format());
      if (head.was_cast) {
        head.file_q = q.matrix(triple.files[0], b, h);
        head.file_k = k.matrix(triple.files[1], b, head.kv_head);
        head.file_v = v.matrix(triple.files[2], b, head.kv_head);
        head.drop_pages();
      }
      set_scale(head, file, options);
      set_mask(head, file, options, triple.where(0));
      set_length(head, q.batch, file, options, triple.where(1));
      warn_of_scale(head);
      const std::int64_t overflowed =
          query.overflowed + cached->second[0].overflowed + cached->second[1].overflowed;
      if (overflowed > 0) {
        head.warnings.push_back(fmt::format("the cast to {} made {} finite values infinite",
                                            head.q.format().name, overflowed));
      }
      head.warnings.insert(head.warnings.end(), unread.begin(), unread.end());
      heads.push_back(std::move(head));
    }
  }
}

/// The prefixes of names that end in one of the parts, in file order.
std::vector<std::string> candidate_prefixes(const TensorFile& file,
                                            const std::array<std::string, 3>& parts) {
  std::vector<std::string> prefixes;
  std::set<std::string> seen;
  const auto add = [&](const std::string& name) {
    for (const std::string& part : parts) {
      if (!name.ends_with(part)) continue;
      std::string prefix = name.substr(0, name.size() - part.size());
      if (seen.insert(prefix).second) prefixes.push_back(std::move(prefix));
    }
  };
  for (const Tensor& tensor : file.tensors()) add(tensor.name);
  for (const auto& [name, unusable] : file.unusable()) add(name);
  return prefixes;
}

}  // namespace

std::vector<Head> load_heads(const std::string& path, const LoadOptions& options) {
  const std::array<std::string, 3> parts = {options.q, options.k, options.v};
  for (std::size_t i = 0; i < 3; ++i) {
    if (parts[i].empty() || parts[i] == parts[(i + 1) % 3]) {
      throw InputError(fmt::format("tensor names {}, {}, {}: expected three different names",
                                   quoted_text(parts[0]), quoted_text(parts[1]),
                                   quoted_text(parts[2])));
    }
  }
  const Selection selection(options.heads);
  const FilePtr file = TensorFile::open(path, options.open);
  std::vector<Head> heads;
  std::vector<std::string> incomplete;
  for (const std::string& prefix : candidate_prefixes(*file, parts)) {
    if (!selection.takes_prefix(prefix)) continue;
    Triple triple{prefix, {}, {file, file, file}};
    std::string missing;
    std::string unusable;
    int present = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string name = prefix + parts[i];
      triple.tensors[i] = file->find(name);
      const auto other = file->unusable().find(name);
      if (other != file->unusable().end()) {
        unusable = fmt::format("{}: tensor {}: dtype {} is no operand format, expected {}",
                               path_text(path), quoted_text(name), quoted_text(other->second.dtype),
                               other->second.dtype.ends_with("V2")
                                   ? "a type; bfloat16 saved by numpy is read with "
                                     "--npy-v2 bf16"
                               : file->is_npz() ? "'<f4' or '<f2'"
                                                : "F32, F16, BF16, F8_E4M3 or F8_E5M2");
      }
      if (triple.tensors[i] != nullptr || other != file->unusable().end()) {
        ++present;
      } else {
        missing = name;
      }
    }
    if (present == 3 && !unusable.empty()) throw InputError(unusable);
    if (present == 2) {
      incomplete.push_back(
          fmt::format("tensor {} is missing beside its two fellows", quoted_text(missing)));
      if (!selection.is_everything()) throw InputError(path_text(path) + ": " + incomplete.back());
    }
    if (present == 3) add_heads(heads, triple, options, selection);
  }
  if (heads.empty()) {
    const std::string what =
        !incomplete.empty() ? incomplete.front()
        : selection.is_everything()
            ? fmt::format("no tensors named PREFIX{}, PREFIX{}, PREFIX{}", parts[0], parts[1],
                          parts[2])
            : fmt::format(
                  "--heads {} matches no PREFIX{}, PREFIX{}, PREFIX{} (expected "
                  "PREFIX-GLOB:LIST)",
                  quoted_text(selection.text()), parts[0], parts[1], parts[2]);
    throw InputError(
        fmt::format("{}: {}; the file holds {}", path_text(path), what, file->summary()));
  }
  heads.front().warnings.insert(heads.front().warnings.end(), incomplete.begin(), incomplete.end());
  return heads;
}

std::vector<Head> load_heads(const std::string& q_path, const std::string& k_path,
                             const std::string& v_path, const LoadOptions& options) {
  const Selection selection(options.heads);
  Triple triple;
  triple.files = {TensorFile::open(q_path, options.open), TensorFile::open(k_path, options.open),
                  TensorFile::open(v_path, options.open)};
  for (std::size_t i = 0; i < 3; ++i) {
    const TensorFile& file = *triple.files[i];
    if (file.tensors().size() != 1 || !file.unusable().empty()) {
      throw InputError(fmt::format("{}: holds {}, expected one operand tensor",
                                   path_text(file.path()), file.summary()));
    }
    triple.tensors[i] = &file.tensors()[0];
    for (const char* key : setting_keys) {
      const auto own = setting(file, key);
      const auto first = setting(*triple.files[0], key);
      if (i > 0 && own && (!first || own->text != first->text)) {
        throw InputError(fmt::format("{} is {}, expected what the file of Q says ({})", own->where,
                                     quoted_text(own->text),
                                     first ? quoted_text(first->text) : "nothing"));
      }
    }
  }
  if (!selection.takes_prefix("")) {
    throw InputError(
        fmt::format("--heads {}: .npy tensors have no prefix, expected a list such as "
                    "':0-7'",
                    quoted_text(selection.text())));
  }
  std::vector<Head> heads;
  add_heads(heads, triple, options, selection);
  return heads;
}

}  // namespace headroom
