// JSON read strictly: the events of nlohmann's parser with duplicate keys and deep nesting refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "reference/input_error.h"

namespace headroom {

/// One scalar of a JSON text. Integers that fit no 64-bit type arrive as `real`.
struct JsonScalar {
  enum class Kind : std::uint8_t { null, boolean, natural, negative, real, string };
  Kind kind = Kind::null;
  bool boolean = false;
  std::uint64_t natural = 0;  ///< a non-negative integer
  std::string text;           ///< string value, or a number's digits (as written for `real`)
};

/// Base of a streaming reader. nlohmann's DOM keeps the last of duplicate keys silently; here a
/// duplicate at any level is an InputError, as is nesting deeper than `max_depth`. Memory is
/// bounded by the text: nothing is allocated by a number found in it, and nothing recurses.
class StrictJson : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// `where` begins every message, e.g. "x.safetensors: header".
  StrictJson(std::string where, std::size_t max_depth)
      : where_(std::move(where)), max_depth_(max_depth) {}

  /// Parses all of `text`. Throws InputError.
  void read(std::string_view text);

 protected:
  /// The events that matter. Depth counts open objects and arrays; `on_scalar` is called at the
  /// depth of its container; `on_open` after and `on_close` before the container is counted.
  virtual void on_key(const std::string& key) = 0;
  virtual void on_scalar(const JsonScalar& value) = 0;
  virtual void on_open(bool object) = 0;
  virtual void on_close(bool object) = 0;

  std::size_t depth() const { return levels_.size(); }
  [[noreturn]] void fail(const std::string& what) const { throw InputError(where_ + ": " + what); }

 private:
  struct Level {
    bool object;
    std::set<std::string, std::less<>> keys;
  };

  void open(bool object);
  void close(bool object);

  bool null() override;
  bool boolean(bool value) override;
  bool number_integer(number_integer_t value) override;
  bool number_unsigned(number_unsigned_t value) override;
  bool number_float(number_float_t value, const string_t& text) override;
  bool string(string_t& value) override;
  bool binary(binary_t& value) override;
  bool start_object(std::size_t elements) override;
  bool key(string_t& value) override;
  bool end_object() override;
  bool start_array(std::size_t elements) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& error) override;

  std::string where_;
  std::size_t max_depth_;
  std::vector<Level> levels_;
};

}  // namespace headroom
