// Strict JSON, as sidecars, headers and certificates are read: what it takes, the ordinary parser
// takes too, with the same scalars in the same order.
#include <nlohmann/json.hpp>
#include <vector>

#include "reference/head/strict_json.h"
#include "reference/input_error.h"
#include "tests/fuzz_readers/memory_file.h"

namespace headroom::fuzz {
namespace {

constexpr std::size_t deepest = 64;

class Collector : public StrictJson {
 public:
  Collector() : StrictJson("input", deepest) {}
  std::vector<std::string> keys, scalars;
  std::size_t opened = 0, closed = 0;

 private:
  void on_key(const std::string& key) override { keys.push_back(key); }
  void on_scalar(const JsonScalar& value) override {
    if (value.kind == JsonScalar::Kind::string) {
      scalars.push_back(nlohmann::json(value.text).dump());
    } else {
      scalars.push_back(value.kind == JsonScalar::Kind::null ? "null" : value.text);
    }
  }
  void on_open(bool /*object*/) override {
    require(depth() <= deepest, "nesting is limited");
    ++opened;
  }
  void on_close(bool /*object*/) override { ++closed; }
};

void collect(const nlohmann::ordered_json& value, std::vector<std::string>& keys,
             std::vector<std::string>& scalars) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      keys.push_back(key);
      collect(inner, keys, scalars);
    }
  } else if (value.is_array()) {
    for (const auto& inner : value) collect(inner, keys, scalars);
  } else {
    scalars.push_back(value.dump());
  }
}

}  // namespace
}  // namespace headroom::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using headroom::fuzz::require;
  const std::string text(reinterpret_cast<const char*>(data), size);
  headroom::fuzz::Collector strict;
  try {
    strict.read(text);
  } catch (const headroom::InputError& error) {
    headroom::fuzz::require_one_line(error.what(), "input");
    return 0;
  }
  const auto whole = nlohmann::ordered_json::parse(text, nullptr, false);
  require(!whole.is_discarded(), "what is read strictly is JSON");
  std::vector<std::string> keys, scalars;
  headroom::fuzz::collect(whole, keys, scalars);
  require(keys == strict.keys, "the same keys");
  require(strict.opened == strict.closed, "what is opened is closed");
  require(scalars.size() == strict.scalars.size(), "as many scalars");
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    // a number that is no 64-bit integer is kept as it is written, and so may be spelled otherwise
    const bool same = scalars[i] == strict.scalars[i];
    const bool is_number = scalars[i][0] == '-' || (scalars[i][0] >= '0' && scalars[i][0] <= '9');
    require(same || (is_number && std::stod(scalars[i]) == std::stod(strict.scalars[i])),
            "the same scalars");
  }
  return 0;
}
