// The .npy reader. Source: NEP 1 and numpy.lib.format: magic, version, header length (2 bytes in
// version 1, 4 in 2 and 3), a Python dict literal with exactly descr, fortran_order and shape.
#include "reference/head/npy.h"

#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "reference/input_error.h"

namespace headroom {

void parse_npy(TensorFile& file, const OpenOptions& options);

namespace {

constexpr std::uint64_t max_header_bytes = 1 << 20;
constexpr std::size_t max_rank = 64;

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

/// A dict literal of the three keys in any order; nothing else of Python.
class HeaderParser {
 public:
  HeaderParser(std::string where, std::string_view text) : where_(std::move(where)), text_(text) {}

  Header parse() {
    Header header;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = string("a key");
      expect(':');
      if (key == "descr" && !std::exchange(has_descr, true)) {
        header.descr = peek() == '[' ? list() : string("a dtype");
      } else if (key == "fortran_order" && !std::exchange(has_order, true)) {
        header.fortran_order = boolean();
      } else if (key == "shape" && !std::exchange(has_shape, true)) {
        header.shape = tuple();
      } else {
        const bool known = key == "descr" || key == "fortran_order" || key == "shape";
        fail(fmt::format("{} key {}, expected descr, fortran_order and shape once each",
                         known ? "duplicate" : "unknown", quoted_text(key)));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) fail(fmt::format("text after the closing brace at byte {}", at_));
    if (!has_descr || !has_order || !has_shape) {
      fail(fmt::format("key {} is missing", !has_descr   ? "descr"
                                            : !has_order ? "fortran_order"
                                                         : "shape"));
    }
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(where_ + ": npy header: " + what);
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("expected '{}' at byte {}", c, at_));
  }
  std::string string(const char* what) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail(fmt::format("expected {} at byte {}", what, at_));
    const std::size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\\' && text_[at_] != '\n') {
      ++at_;
    }
    if (at_ >= text_.size() || text_[at_] != quote) {
      fail(fmt::format("unterminated string at byte {}", begin - 1));
    }
    return std::string(text_.substr(begin, at_++ - begin));
  }
  /// The text of a structured dtype: brackets that match, outside strings.
  std::string list() {
    const std::size_t begin = at_;
    int depth = 0;
    do {
      const char c = peek();
      if (c == '\'' || c == '"') {
        string("a string");
        continue;
      }
      if (at_ >= text_.size() || c == '{' || c == '}') {
        fail(fmt::format("unterminated list at byte {}", begin));
      }
      if (c == '[' || c == '(') ++depth;
      if (c == ']' || c == ')') --depth;
      ++at_;
    } while (depth > 0);
    return std::string(text_.substr(begin, at_ - begin));
  }
  bool boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true},
                                      std::pair<std::string_view, bool>{"False", false}}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        const char next = peek();
        if (next == ',' || next == '}') return value;
        break;
      }
    }
    fail(fmt::format("fortran_order: expected True or False before byte {}", at_));
  }
  std::int64_t natural() {
    skip_space();
    const std::size_t begin = at_;
    std::int64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      if (__builtin_mul_overflow(value, 10, &value) ||
          __builtin_add_overflow(value, text_[at_] - '0', &value)) {
        fail(fmt::format("shape: a dimension beyond 2^63 at byte {}", begin));
      }
      ++at_;
    }
    if (at_ == begin) fail(fmt::format("shape: expected a non-negative integer at byte {}", begin));
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // written by Python 2
    return value;
  }
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> shape;
    expect('(');
    bool comma = true;
    while (!accept(')')) {
      if (!comma) fail(fmt::format("shape: expected ',' or ')' at byte {}", at_));
      if (shape.size() >= max_rank) fail(fmt::format("shape: more than {} dimensions", max_rank));
      shape.push_back(natural());
      comma = accept(',');
    }
    if (shape.size() == 1 && !comma) fail("shape: (n) is no tuple, expected (n,)");
    return shape;
  }

  std::string where_;
  std::string_view text_;
  std::size_t at_ = 0;
};

/// The operand format of a dtype, or nullptr and why there is none.
const Format* operand_of(const std::string& descr, const OpenOptions& options,
                         std::string& refusal) {
  if (descr == "<f4") return &fp32;
  if (descr == "<f2") return &fp16;
  const char order = descr.empty() ? '\0' : descr[0];
  const bool ordered = order == '<' || order == '>' || order == '|' || order == '=';
  const std::string kind = descr.substr(ordered ? 1 : 0);
  if (options.v2_is_bf16 && kind == "V2" && order != '>' && order != '=') return &bf16;
  refusal = fmt::format("dtype {}: ", quoted_text(descr));
  if (descr.starts_with('[')) {
    refusal += "structured dtype, expected '<f2' or '<f4'";
  } else if (kind.starts_with('V')) {
    refusal += kind == "V2" ? "void of 2 bytes: bfloat16 saved by numpy loses its type; save it as "
                              ".safetensors, or say --npy-v2 bf16"
                            : "void: the type was lost on saving; save it as .safetensors";
  } else if (order == '>') {
    refusal += "big-endian, expected little-endian '<f2' or '<f4'";
  } else if (kind == "f1") {
    refusal += "an 8-bit float, which .npy has no name for; save it as .safetensors";
  } else if (kind == "f8") {
    refusal += "float64 is no operand format; expected '<f2' or '<f4'";
  } else if (kind == "O") {
    refusal += "pickled Python objects are never read; expected '<f2' or '<f4'";
  } else {
    refusal += "no operand format; expected '<f2' or '<f4'";
  }
  return nullptr;
}

/// Bytes of an element, or nothing for a dtype of no known width.
std::optional<std::int64_t> width_of(std::string_view descr) {
  if (!descr.empty() && std::string_view("<>|=").find(descr[0]) != std::string_view::npos) {
    descr.remove_prefix(1);
  }
  if (descr.size() < 2 || std::string_view("biufcV").find(descr[0]) == std::string_view::npos) {
    return std::nullopt;
  }
  std::int64_t width = 0;
  for (const char c : descr.substr(1)) {
    if (c < '0' || c > '9' || width > 100000) return std::nullopt;
    width = 10 * width + (c - '0');
  }
  return width;
}

}  // namespace

NpyArray read_npy(const std::string& where, std::span<const std::byte> file,
                  const OpenOptions& options) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(file.data());
  if (file.size() < 10) throw InputError(where + ": npy header is truncated");
  if (std::string_view(reinterpret_cast<const char*>(bytes), 6) != "\x93NUMPY") {
    throw InputError(where + ": does not begin with \\x93NUMPY, expected .npy");
  }
  const int major = bytes[6];
  const int minor = bytes[7];
  if (major < 1 || major > 3 || minor != 0) {
    throw InputError(
        fmt::format("{}: npy version {}.{}, expected 1.0, 2.0 or 3.0", where, major, minor));
  }
  std::size_t header_at = 10;
  std::uint64_t header_bytes = bytes[8] | static_cast<unsigned>(bytes[9]) << 8U;
  if (major > 1) {
    if (file.size() < 12) throw InputError(where + ": npy header is truncated");
    header_bytes |=
        static_cast<std::uint64_t>(bytes[10]) << 16U | static_cast<std::uint64_t>(bytes[11]) << 24U;
    header_at = 12;
  }
  if (header_bytes > max_header_bytes) {
    throw InputError(fmt::format("{}: npy header length {} exceeds the limit of {} bytes", where,
                                 header_bytes, max_header_bytes));
  }
  if (header_bytes > file.size() - header_at) {
    throw InputError(
        fmt::format("{}: npy header length {} exceeds the {} bytes that follow "
                    "(truncated file?)",
                    where, header_bytes, file.size() - header_at));
  }
  Header header =
      HeaderParser(where,
                   std::string_view(reinterpret_cast<const char*>(bytes) + header_at, header_bytes))
          .parse();
  NpyArray array;
  array.operand = operand_of(header.descr, options, array.refusal);
  if (array.operand != nullptr && header.fortran_order && header.shape.size() > 1) {
    throw InputError(
        fmt::format("{}: fortran_order is True for shape {}, expected C order "
                    "(numpy.ascontiguousarray before saving)",
                    where, shape_text(header.shape)));
  }
  array.data = file.subspan(header_at + header_bytes);
  array.descr = std::move(header.descr);
  array.shape = std::move(header.shape);
  if (array.operand != nullptr) check_extent(where, array);
  return array;
}

void check_extent(const std::string& where, const NpyArray& array) {
  const std::optional<std::int64_t> width = width_of(array.descr);
  if (!width) return;
  std::int64_t needed = *width;
  bool empty = false;
  for (const std::int64_t n : array.shape) {
    if (n == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(needed, n, &needed)) {
      throw InputError(
          fmt::format("{}: shape {} has 2^63 bytes or more", where, shape_text(array.shape)));
    }
  }
  if (empty) needed = 0;
  const auto found = static_cast<std::int64_t>(array.data.size());
  if (found != needed) {
    throw InputError(fmt::format("{}: shape {} of dtype '{}' needs {} bytes of data, found {} ({})",
                                 where, shape_text(array.shape), array.descr, needed, found,
                                 found < needed ? "truncated file" : "trailing bytes"));
  }
}

void parse_npy(TensorFile& file, const OpenOptions& options) {
  const std::string where = path_text(file.path_);
  NpyArray array = read_npy(where, {file.map_.data(), file.map_.size()}, options);
  if (array.operand == nullptr) {
    if (!options.any_dtype) throw InputError(where + ": " + array.refusal);
    check_extent(where, array);
    file.unusable_.emplace(file.stem_,
                           UnusableTensor{array.descr, std::move(array.shape), array.data.data(),
                                          static_cast<std::int64_t>(array.data.size())});
    return;
  }
  file.tensors_.push_back({file.stem_, *array.operand, std::move(array.shape), array.data.data(),
                           static_cast<std::int64_t>(array.data.size()), array.was_void()});
}

}  // namespace headroom
