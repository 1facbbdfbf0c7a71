#include "reference/head/strict_json.h"

#include <utility>

#include <fmt/format.h>

#include "reference/head/tensor_file.h"

namespace headroom {

void StrictJson::read(std::string_view text) {
  // A byte order mark would be skipped by the parser; RFC 8259, 8.1 forbids writing one.
  if (text.starts_with("\xEF\xBB\xBF")) fail("begins with a byte order mark, expected JSON");
  // the parser takes a NUL byte for the end of its input; JSON holds none
  if (text.find('\0') != std::string_view::npos) fail("not valid JSON: holds a NUL byte");
  nlohmann::json_sax<nlohmann::json>* events = this;
  nlohmann::json::sax_parse(text.data(), text.data() + text.size(), events);
}

void StrictJson::open(bool object) {
  if (levels_.size() >= max_depth_) fail(fmt::format("nested deeper than {}", max_depth_));
  levels_.push_back({object, {}});
  on_open(object);
}

void StrictJson::close(bool object) {
  on_close(object);
  levels_.pop_back();
}

bool StrictJson::key(string_t& value) {
  if (!levels_.back().keys.insert(value).second) fail("duplicate key " + quoted_text(value));
  on_key(value);
  return true;
}

bool StrictJson::null() {
  on_scalar({});
  return true;
}

bool StrictJson::boolean(bool value) {
  on_scalar({.kind = JsonScalar::Kind::boolean,
             .boolean = value,
             .natural = 0,
             .text = value ? "true" : "false"});
  return true;
}

bool StrictJson::number_integer(number_integer_t value) {
  on_scalar({.kind = JsonScalar::Kind::negative,
             .boolean = false,
             .natural = 0,
             .text = std::to_string(value)});
  return true;
}

bool StrictJson::number_unsigned(number_unsigned_t value) {
  on_scalar({.kind = JsonScalar::Kind::natural,
             .boolean = false,
             .natural = value,
             .text = std::to_string(value)});
  return true;
}

bool StrictJson::number_float(number_float_t /*value*/, const string_t& text) {
  // the parser puts the decimal point of the C locale into the text it gives: back to JSON's own
  std::string written = text;
  for (char& c : written) {
    if (std::string_view("0123456789+-eE").find(c) == std::string_view::npos) c = '.';
  }
  on_scalar(
      {.kind = JsonScalar::Kind::real, .boolean = false, .natural = 0, .text = std::move(written)});
  return true;
}

bool StrictJson::string(string_t& value) {
  on_scalar({.kind = JsonScalar::Kind::string, .boolean = false, .natural = 0, .text = value});
  return true;
}

bool StrictJson::binary(binary_t& /*value*/) { fail("binary value, expected JSON text"); }

bool StrictJson::start_object(std::size_t /*elements*/) {
  open(true);
  return true;
}

bool StrictJson::end_object() {
  close(true);
  return true;
}

bool StrictJson::start_array(std::size_t /*elements*/) {
  open(false);
  return true;
}

bool StrictJson::end_array() {
  close(false);
  return true;
}

bool StrictJson::parse_error(std::size_t position, const std::string& token,
                             const nlohmann::detail::exception& /*error*/) {
  fail(fmt::format("not valid JSON at byte {}, near {}", position, quoted_text(token)));
}

}  // namespace headroom
