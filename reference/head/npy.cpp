// The .npy reader. Source: NEP 1 and numpy.lib.format: magic, version, header length (2 bytes in
// version 1, 4 in 2 and 3), a Python dict literal with exactly descr, fortran_order and shape.
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "reference/head/tensor_file.h"
#include "reference/input_error.h"

namespace headroom {

void parse_npy(TensorFile& file);

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
        if (peek() == '[') {
          fail("structured dtype, expected '<f2' or '<f4'");
        }
        header.descr = string("a dtype");
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

const Format& operand_of(const std::string& where, const std::string& descr) {
  if (descr == "<f4") return fp32;
  if (descr == "<f2") return fp16;
  const auto fail = [&](const std::string& what) {
    throw InputError(fmt::format("{}: dtype {}: {}", where, quoted_text(descr), what));
  };
  const char order = descr.empty() ? '\0' : descr[0];
  const bool ordered = order == '<' || order == '>' || order == '|' || order == '=';
  const std::string kind = descr.substr(ordered ? 1 : 0);
  if (kind.starts_with('V')) {
    fail(kind == "V2" ? "void of 2 bytes: bfloat16 saved by numpy loses its type; save it as "
                        ".safetensors"
                      : "void: the type was lost on saving; save it as .safetensors");
  }
  if (order == '>') fail("big-endian, expected little-endian '<f2' or '<f4'");
  if (kind == "f1") fail("an 8-bit float, no operand format; expected '<f2' or '<f4'");
  if (kind == "f8") fail("float64 is no operand format; expected '<f2' or '<f4'");
  if (kind == "O") fail("pickled Python objects are never read; expected '<f2' or '<f4'");
  fail("no operand format; expected '<f2' or '<f4'");
  return fp32;  // not reached
}

}  // namespace

void parse_npy(TensorFile& file) {
  const std::string where = path_text(file.path_);
  const auto* bytes = reinterpret_cast<const unsigned char*>(file.map_);
  if (file.size_ < 10) throw InputError(where + ": npy header is truncated");
  const int major = bytes[6];
  const int minor = bytes[7];
  if (major < 1 || major > 3 || minor != 0) {
    throw InputError(
        fmt::format("{}: npy version {}.{}, expected 1.0, 2.0 or 3.0", where, major, minor));
  }
  std::size_t header_at = 10;
  std::uint64_t header_bytes = bytes[8] | static_cast<unsigned>(bytes[9]) << 8U;
  if (major > 1) {
    if (file.size_ < 12) throw InputError(where + ": npy header is truncated");
    header_bytes |=
        static_cast<std::uint64_t>(bytes[10]) << 16U | static_cast<std::uint64_t>(bytes[11]) << 24U;
    header_at = 12;
  }
  if (header_bytes > max_header_bytes) {
    throw InputError(fmt::format("{}: npy header length {} exceeds the limit of {} bytes", where,
                                 header_bytes, max_header_bytes));
  }
  if (header_bytes > file.size_ - header_at) {
    throw InputError(
        fmt::format("{}: npy header length {} exceeds the {} bytes that follow "
                    "(truncated file?)",
                    where, header_bytes, file.size_ - header_at));
  }
  Header header =
      HeaderParser(where,
                   std::string_view(reinterpret_cast<const char*>(bytes) + header_at, header_bytes))
          .parse();
  const Format& format = operand_of(where, header.descr);
  if (header.fortran_order && header.shape.size() > 1) {
    throw InputError(
        fmt::format("{}: fortran_order is True for shape {}, expected C order "
                    "(numpy.ascontiguousarray before saving)",
                    where, shape_text(header.shape)));
  }
  std::int64_t needed = format.storage_bytes();
  bool empty = false;
  for (const std::int64_t n : header.shape) {
    if (n == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(needed, n, &needed)) {
      throw InputError(
          fmt::format("{}: shape {} has 2^63 bytes or more", where, shape_text(header.shape)));
    }
  }
  if (empty) needed = 0;
  const auto found = static_cast<std::int64_t>(file.size_ - header_at - header_bytes);
  if (found != needed) {
    throw InputError(fmt::format("{}: shape {} of dtype '{}' needs {} bytes of data, found {} ({})",
                                 where, shape_text(header.shape), header.descr, needed, found,
                                 found < needed ? "truncated file" : "trailing bytes"));
  }
  file.tensors_.push_back(
      {file.stem_, format, std::move(header.shape), file.map_ + header_at + header_bytes, needed});
}

}  // namespace headroom
