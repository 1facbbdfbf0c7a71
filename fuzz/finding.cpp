#include "fuzz/finding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "certify/policy_parameters.h"
#include "reference/format/convert.h"
#include "reference/head/small_file.h"
#include "reference/head/strict_json.h"
#include "reference/input_error.h"
#include "reference/model/kernel_file.h"

namespace headroom::fuzz {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* schema = "headroom.finding/1";
constexpr std::size_t max_finding_bytes = std::size_t{64} << 20;
/// Of any dimension: beyond every kernel's range, and products of two fit 64 bits.
constexpr std::int64_t largest_dimension = std::int64_t{1} << 30;

// --- Numbers as text

/// "0x1.8p+1", "inf", "-inf" or "nan": every double but the payloads of NaN.
std::string number_text(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  return fmt::format("{:a}", x);
}

std::string words_text(const Format& format, const float* x, std::int64_t n) {
  const std::vector<std::byte> words = words_of({x, x + n}, format);
  const auto bytes = static_cast<std::size_t>(format.storage_bytes());
  std::string text;
  text.reserve(static_cast<std::size_t>(n) * (2 * bytes + 1));
  for (std::size_t i = 0; i < words.size(); i += bytes) {
    if (i > 0) text += ' ';
    for (std::size_t b = bytes; b-- > 0;) {
      constexpr const char* digits = "0123456789abcdef";
      const auto byte = static_cast<unsigned>(words[i + b]);
      text += digits[byte >> 4];
      text += digits[byte & 15];
    }
  }
  return text;
}

/// A matrix, one line of words a row.
Json rows_json(const Format& format, const std::vector<float>& x, std::int64_t rows,
               std::int64_t columns) {
  Json list = Json::array();
  for (std::int64_t i = 0; i < rows; ++i) {
    list.push_back(words_text(format, x.data() + i * columns, columns));
  }
  return list;
}

// --- Names of choices

template <class T>
using Names = std::initializer_list<std::pair<const char*, T>>;

constexpr Names<FreeOrder> order_names = {{"ascending", FreeOrder::ascending},
                                          {"descending", FreeOrder::descending},
                                          {"pairwise", FreeOrder::pairwise},
                                          {"random", FreeOrder::random}};
constexpr Names<UnitChoice> unit_names = {{"nearest", UnitChoice::nearest},
                                          {"lowest", UnitChoice::lowest},
                                          {"highest", UnitChoice::highest},
                                          {"random", UnitChoice::random}};

template <class T>
const char* name_of(Names<T> names, T value) {
  for (const auto& [name, v] : names) {
    if (v == value) return name;
  }
  return "?";
}

// --- Writing

Json parameters_json(const std::map<std::string, double>& parameters) {
  Json object = Json::object();
  for (const auto& [name, value] : parameters) object[name] = number_text(value);
  return object;
}

Json target_json(const Target& t) {
  return {{"name", t.name},
          {"stabilizer", t.stabilizer},
          {"parameters", parameters_json(t.parameters)},
          {"gate", to_text(t.gate)},
          {"policy", to_text(t.policy)},
          {"policy_parameters", parameters_json(t.policy_parameters)},
          {"scale", t.scale ? Json(t.scale->text()) : Json(nullptr)},
          {"eps", number_text(t.eps)},
          {"tolerance", number_text(t.tolerance)},
          {"options",
           {{"order", name_of(order_names, t.how.order)},
            {"exp2_choice", name_of(unit_names, t.how.exp2)},
            {"reciprocal_choice", name_of(unit_names, t.how.reciprocal)},
            {"seed", t.how.seed}}},
          {"kernel_sha256", digest(t.kernel)},
          {"kernel", canonical_text(t.kernel)}};
}

Json setting_json(const Candidate& c) {
  const Setting& s = c.setting;
  Json object = {{"mask", to_text(s.mask)}, {"length", c.length()}};
  if (s.window) object["window"] = {s.window->left, s.window->right};
  if (!s.query_segments.empty()) {
    object["query_segments"] = s.query_segments;
    object["key_segments"] = s.key_segments;
  }
  if (!s.visible.empty()) {
    Json rows = Json::array();
    const auto nk = static_cast<std::size_t>(c.shape.keys);
    for (std::size_t i = 0; i < s.visible.size(); i += nk) {
      std::string row;
      for (std::size_t j = 0; j < nk; ++j) row += s.visible[i + j] != 0 ? '1' : '0';
      rows.push_back(row);
    }
    object["visible"] = rows;
  }
  if (!s.bias.empty()) {
    object["bias"] = rows_json(
        fp32, s.bias, static_cast<std::int64_t>(s.bias.size()) / c.shape.keys, c.shape.keys);
  }
  if (s.softcap) object["softcap"] = number_text(*s.softcap);
  if (s.sink) object["sink"] = number_text(*s.sink);
  return object;
}

Json head_json(const Candidate& c, const Format& operand) {
  const Shape& s = c.shape;
  return {{"format", operand.name},
          {"queries", s.queries},
          {"keys", s.keys},
          {"channels", s.channels},
          {"value_channels", s.value_channels},
          {"setting", setting_json(c)},
          {"q", rows_json(operand, c.q, s.queries, s.channels)},
          {"k", rows_json(operand, c.k, s.keys, s.channels)},
          {"v", rows_json(operand, c.v, s.keys, s.value_channels)}};
}

Json diagnosis_json(const Diagnosis& d, const Shape& shape) {
  Json object = {{"met", d.met},
                 {"stage", d.stage},
                 {"event", d.event},
                 {"claim", d.claim},
                 {"row", d.row},
                 {"channel", d.channel},
                 {"key", d.key},
                 {"tile", d.tile},
                 {"found", number_text(d.found)},
                 {"exact_lo", number_text(d.exact_lo)},
                 {"exact_hi", number_text(d.exact_hi)},
                 {"amount", number_text(d.amount)},
                 {"limit", number_text(d.limit)},
                 {"verdict", d.verdict},
                 {"gate_value", number_text(d.gate_value)},
                 {"gate_limit", number_text(d.gate_limit)},
                 {"variant", d.variant},
                 {"variant_found", number_text(d.variant_found)}};
  const std::int64_t rows = d.lse.empty() ? 0 : shape.queries;
  object["output"] = rows_json(fp32, d.output, rows, shape.value_channels);
  object["lse"] = rows_json(fp32, d.lse, rows, 1);
  return object;
}

// --- Reading

/// Refuses duplicate keys and deep nesting, which the document's parser would let through.
class Checked final : public StrictJson {
 public:
  explicit Checked(const std::string& where) : StrictJson(where, 8) {}

 protected:
  void on_key(const std::string&) override {}
  void on_scalar(const JsonScalar&) override {}
  void on_open(bool) override {}
  void on_close(bool) override {}
};

/// One line that a terminal shows as it is.
std::string shown(std::string_view text) {
  constexpr std::size_t most = 60;
  std::string line;
  for (const char c : text.substr(0, most)) line += c >= 0x20 && c < 0x7f ? c : '?';
  return text.size() > most ? line + "..." : line;
}

/// An error's line, which may hold what was found.
std::string shown_line(std::string_view text) {
  constexpr std::size_t most = 1000;
  std::string line;
  for (const char c : text.substr(0, most)) line += c >= 0x20 && c < 0x7f ? c : '?';
  return line;
}

/// A value of the document with its path, and what it has to be.
class Node {
 public:
  Node(const Json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  [[noreturn]] void fail(const std::string& found, const std::string& expected) const {
    throw InputError(fmt::format("{}: found {}, expected {}", path_, found, expected));
  }
  const std::string& path() const { return path_; }

  bool has(const char* key) const { return value_->is_object() && value_->contains(key); }
  Node at(const char* key) const {
    if (!value_->is_object()) fail_kind("an object");
    const auto found = value_->find(key);
    if (found == value_->end()) fail("no \"" + std::string(key) + "\"", "one");
    return {*found, path_ + ": " + key};
  }
  /// An object with these keys and no others; those after the first `required` may be absent.
  void require_keys(std::initializer_list<const char*> keys, std::size_t required) const {
    if (!value_->is_object()) fail_kind("an object");
    for (const auto& [key, unused] : value_->items()) {
      static_cast<void>(unused);
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
        fail("the key \"" + shown(key) + "\"", "one of its schema (docs/finding.md)");
      }
    }
    std::size_t i = 0;
    for (const char* key : keys) {
      if (i++ < required) at(key);
    }
  }

  bool is_null() const { return value_->is_null(); }
  bool boolean() const {
    if (!value_->is_boolean()) fail_kind("true or false");
    return value_->get<bool>();
  }
  std::string text() const {
    if (!value_->is_string()) fail_kind("a string");
    return value_->get<std::string>();
  }
  /// Of one line without control characters.
  std::string line() const {
    std::string s = text();
    for (const char c : s) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) fail("a control character", "none");
    }
    return s;
  }
  std::int64_t integer(std::int64_t least, std::int64_t most) const {
    if (value_->is_number_integer()) {
      const bool negative = !value_->is_number_unsigned();
      const bool fits =
          negative || value_->get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max();
      const std::int64_t x = fits ? value_->get<std::int64_t>() : 0;
      if (fits && x >= least && x <= most) return x;
    }
    fail_kind(fmt::format("an integer from {} to {}", least, most));
  }
  std::uint64_t natural() const {
    if (!value_->is_number_unsigned()) fail_kind("a whole number below 2^64");
    return value_->get<std::uint64_t>();
  }
  /// number_text's.
  double number() const {
    const std::string s = text();
    if (s == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (s == "inf") return HUGE_VAL;
    if (s == "-inf") return -HUGE_VAL;
    const std::string_view digits = std::string_view(s).substr(s.starts_with('-') ? 1 : 0);
    constexpr std::size_t longest = 40;
    if (digits.starts_with("0x") && s.size() <= longest &&
        digits.find_first_not_of("0123456789abcdefpx.+-") == std::string_view::npos) {
      char* end = nullptr;
      const double x = std::strtod(s.c_str(), &end);
      if (*end == '\0' && std::isfinite(x)) return x;
    }
    fail("'" + shown(s) + "'", "a hexadecimal floating-point number, inf, -inf or nan");
  }
  std::size_t size() const {
    if (!value_->is_array()) fail_kind("a list");
    return value_->size();
  }
  Node item(std::size_t i) const { return {(*value_)[i], fmt::format("{}[{}]", path_, i)}; }
  std::map<std::string, double> parameters() const {
    if (!value_->is_object()) fail_kind("an object");
    std::map<std::string, double> result;
    for (const auto& [key, value] : value_->items()) {
      result[key] = Node(value, path_ + ": " + shown(key)).number();
    }
    return result;
  }

 private:
  [[noreturn]] void fail_kind(const std::string& expected) const {
    fail(value_->is_string() ? "'" + shown(value_->get<std::string>()) + "'"
         : value_->is_structured()
             ? std::string(value_->is_array() ? "a list" : "an object")
             : shown(value_->dump(-1, ' ', false, Json::error_handler_t::replace)),
         expected);
  }

  const Json* value_;
  std::string path_;
};

template <class T>
T choice(const Node& node, Names<T> names) {
  const std::string text = node.text();
  std::string known;
  for (const auto& [name, value] : names) {
    if (name == text) return value;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  node.fail("'" + shown(text) + "'", "one of " + known);
}

/// Runs a parser of this library; its message gets the path.
template <class F>
auto named(const Node& node, const F& parse) {
  try {
    return parse();
  } catch (const InputError& error) {
    throw InputError(node.path() + ": " + shown_line(error.what()));
  } catch (const std::invalid_argument& error) {
    throw InputError(node.path() + ": " + shown_line(error.what()));
  }
}

/// One row of words, two digits a byte, single spaces between.
void read_words(const Node& node, const Format& format, float* to, std::int64_t n) {
  const std::string text = node.text();
  const auto digits = static_cast<std::size_t>(2 * format.storage_bytes());
  const auto expected = [&] {
    return fmt::format("{} words of {} hexadecimal digits, a space between two", n, digits);
  };
  const auto count = static_cast<std::size_t>(n);
  if (text.size() != count * (digits + 1) - 1) {
    node.fail(fmt::format("{} characters", text.size()), expected());
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t code = 0;
    for (std::size_t k = 0; k < digits; ++k) {
      const char c = text[i * (digits + 1) + k];
      const bool decimal = c >= '0' && c <= '9';
      if (!decimal && !(c >= 'a' && c <= 'f')) node.fail("'" + shown({&c, 1}) + "'", expected());
      code = code << 4 | static_cast<std::uint64_t>(decimal ? c - '0' : c - 'a' + 10);
    }
    if (i > 0 && text[i * (digits + 1) - 1] != ' ') node.fail("no space", expected());
    if (format.bits() < 64 && code >> format.bits() != 0) {
      node.fail("a word beyond its format", expected());
    }
    const double x = decode(format, code);
    // one NaN only
    to[i] = std::isnan(x) ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(x);
  }
}

std::vector<float> read_rows(const Node& node, const Format& format, std::int64_t rows,
                             std::int64_t columns) {
  if (node.size() != static_cast<std::size_t>(rows)) {
    node.fail(fmt::format("{} rows", node.size()), fmt::format("{}", rows));
  }
  std::vector<float> x;
  for (std::int64_t i = 0; i < rows; ++i) {
    const Node row = node.item(static_cast<std::size_t>(i));
    // a row has more characters than numbers: what the text cannot hold is not allocated
    if (row.text().size() < static_cast<std::size_t>(columns)) {
      row.fail(fmt::format("{} characters", row.text().size()),
               fmt::format("the words of {} numbers", columns));
    }
    x.resize(x.size() + static_cast<std::size_t>(columns));
    read_words(row, format, &x[static_cast<std::size_t>(i * columns)], columns);
  }
  return x;
}

std::vector<std::int32_t> read_segments(const Node& node, std::int64_t n) {
  if (node.size() != static_cast<std::size_t>(n)) {
    node.fail(fmt::format("{} ids", node.size()), fmt::format("{}", n));
  }
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < node.size(); ++i) {
    using Limits = std::numeric_limits<std::int32_t>;
    ids.push_back(static_cast<std::int32_t>(node.item(i).integer(Limits::min(), Limits::max())));
  }
  return ids;
}

/// 1 row for all queries, or one a query.
std::int64_t mask_rows(const Node& node, const Shape& shape) {
  const auto rows = static_cast<std::int64_t>(node.size());
  if (rows != 1 && rows != shape.queries) {
    node.fail(fmt::format("{} rows", rows), fmt::format("1 or {}", shape.queries));
  }
  return rows;
}

Setting read_setting(const Node& node, const Shape& shape) {
  node.require_keys({"mask", "length", "window", "query_segments", "key_segments", "visible",
                     "bias", "softcap", "sink"},
                    2);
  Setting s;
  const Node mask = node.at("mask");
  s.mask = named(mask, [&] { return parse_mask(mask.line()); });
  s.length = node.at("length").integer(1, shape.keys);
  if (s.length == shape.keys) s.length = -1;
  if (node.has("window")) {
    const Node window = node.at("window");
    if (window.size() != 2) window.fail("another number of items", "2");
    s.window = Window{window.item(0).integer(-1, largest_dimension),
                      window.item(1).integer(-1, largest_dimension)};
  }
  if (node.has("query_segments") || node.has("key_segments")) {
    s.query_segments = read_segments(node.at("query_segments"), shape.queries);
    s.key_segments = read_segments(node.at("key_segments"), shape.keys);
  }
  if (node.has("visible")) {
    const Node visible = node.at("visible");
    const std::int64_t rows = mask_rows(visible, shape);
    for (std::int64_t i = 0; i < rows; ++i) {
      const Node row = visible.item(static_cast<std::size_t>(i));
      const std::string text = row.text();
      if (text.size() != static_cast<std::size_t>(shape.keys) ||
          text.find_first_not_of("01") != std::string::npos) {
        row.fail("'" + shown(text) + "'", fmt::format("{} digits 0 or 1", shape.keys));
      }
      for (const char c : text) s.visible.push_back(c == '1' ? 1 : 0);
    }
  }
  if (node.has("bias")) {
    const Node bias = node.at("bias");
    s.bias = read_rows(bias, fp32, mask_rows(bias, shape), shape.keys);
  }
  if (node.has("softcap")) s.softcap = node.at("softcap").number();
  if (node.has("sink")) s.sink = node.at("sink").number();
  return s;
}

Candidate read_head(const Node& node, const Format& operand) {
  node.require_keys(
      {"format", "queries", "keys", "channels", "value_channels", "setting", "q", "k", "v"}, 9);
  const Node format = node.at("format");
  if (format.line() != operand.name) {
    format.fail("'" + shown(format.line()) + "'",
                fmt::format("'{}', the kernel's operand", operand.name));
  }
  Candidate c;
  const auto dimension = [&](const char* key) {
    return node.at(key).integer(1, largest_dimension);
  };
  c.shape = {dimension("queries"), dimension("keys"), dimension("channels"),
             dimension("value_channels")};
  c.q = read_rows(node.at("q"), operand, c.shape.queries, c.shape.channels);
  c.k = read_rows(node.at("k"), operand, c.shape.keys, c.shape.channels);
  c.v = read_rows(node.at("v"), operand, c.shape.keys, c.shape.value_channels);
  const Node setting = node.at("setting");
  c.setting = read_setting(setting, c.shape);
  Candidate repaired = c;
  repair(repaired);
  if (!(repaired == c)) {
    setting.fail("what no head of this shape has", "masks, lengths and numbers that fit it");
  }
  return c;
}

Target read_target(const Node& node) {
  node.require_keys({"name", "stabilizer", "parameters", "gate", "policy", "policy_parameters",
                     "scale", "eps", "tolerance", "options", "kernel", "kernel_sha256"},
                    11);
  Target t;
  t.name = node.at("name").line();
  const Node kernel = node.at("kernel");
  t.kernel = named(kernel, [&] { return parse_kernel(kernel.text(), "kernel"); });
  if (node.has("kernel_sha256")) {
    const Node sum = node.at("kernel_sha256");
    if (sum.line() != digest(t.kernel))
      sum.fail("another digest than the kernel's", digest(t.kernel));
  }
  t.stabilizer = node.at("stabilizer").line();
  t.parameters = node.at("parameters").parameters();
  const Node gate = node.at("gate"), policy = node.at("policy");
  t.gate = named(gate, [&] { return parse_gate(shown(gate.line())); });
  t.policy = named(policy, [&] { return parse_policy(shown(policy.line())); });
  t.policy_parameters = node.at("policy_parameters").parameters();
  if (t.gate == GateChoice::certified) {
    named(policy, [&] { return complete_parameters(t.policy, t.kernel, t.policy_parameters); });
  } else {
    LoopParameters complete = t.parameters;
    // made from the certifier's table where it is not given
    if (t.stabilizer == "clis") complete.insert({{"cap", 0}, {"kappa", 1}});
    named(node.at("stabilizer"),
          [&] { return make_loop_stabilizer(shown(t.stabilizer), complete); });
  }
  const Node scale = node.at("scale");
  if (!scale.is_null()) t.scale = named(scale, [&] { return Scale::from_text(scale.line()); });
  const auto positive = [&](const char* key) {
    const Node at = node.at(key);
    const double x = at.number();
    if (!(x > 0 && std::isfinite(x))) at.fail(number_text(x), "a positive number");
    return x;
  };
  t.eps = positive("eps");
  t.tolerance = positive("tolerance");
  const Node options = node.at("options");
  options.require_keys({"order", "exp2_choice", "reciprocal_choice", "seed"}, 4);
  t.how.order = choice(options.at("order"), order_names);
  t.how.exp2 = choice(options.at("exp2_choice"), unit_names);
  t.how.reciprocal = choice(options.at("reciprocal_choice"), unit_names);
  t.how.seed = options.at("seed").natural();
  return t;
}

Diagnosis read_diagnosis(const Node& node, const Shape& shape) {
  node.require_keys(
      {"met",        "stage",      "event",    "claim",         "row",    "channel", "key",
       "tile",       "found",      "exact_lo", "exact_hi",      "amount", "limit",   "verdict",
       "gate_value", "gate_limit", "variant",  "variant_found", "output", "lse"},
      20);
  Diagnosis d;
  d.met = node.at("met").boolean();
  d.stage = node.at("stage").line();
  d.event = node.at("event").line();
  d.claim = node.at("claim").line();
  d.row = node.at("row").integer(-1, shape.queries - 1);
  d.channel = node.at("channel").integer(-1, shape.value_channels - 1);
  d.key = node.at("key").integer(-1, 2 * largest_dimension);
  d.tile = node.at("tile").integer(-1, 2 * largest_dimension);
  d.found = node.at("found").number();
  d.exact_lo = node.at("exact_lo").number();
  d.exact_hi = node.at("exact_hi").number();
  d.amount = node.at("amount").number();
  d.limit = node.at("limit").number();
  d.verdict = node.at("verdict").line();
  d.gate_value = node.at("gate_value").number();
  d.gate_limit = node.at("gate_limit").number();
  d.variant = node.at("variant").line();
  d.variant_found = node.at("variant_found").number();
  const std::int64_t rows = node.at("lse").size() == 0 ? 0 : shape.queries;
  d.output = read_rows(node.at("output"), fp32, rows, shape.value_channels);
  d.lse = read_rows(node.at("lse"), fp32, rows, 1);
  return d;
}

}  // namespace

std::string Finding::class_name() const {
  const auto part = [](const std::string& s) { return s.empty() ? std::string("-") : s; };
  return fmt::format("{}/{}/{}", to_text(objective), part(diagnosis.stage), part(diagnosis.claim));
}

std::string finding_text(const Finding& f) {
  const Json document = {{"schema", schema},
                         {"objective", to_text(f.objective)},
                         {"class", f.class_name()},
                         {"text", f.text},
                         {"diagnosis", diagnosis_json(f.diagnosis, f.candidate.shape)},
                         {"target", target_json(f.target)},
                         {"head", head_json(f.candidate, f.target.kernel.operand)}};
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Finding parse_finding(const std::string& text, const std::string& where) {
  if (text.size() > max_finding_bytes) {
    throw InputError(fmt::format("{}: found {} bytes, expected at most {}", where, text.size(),
                                 max_finding_bytes));
  }
  Checked(where).read(text);
  const Json document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Node root(document, where);
  if (document.is_discarded()) root.fail("no JSON", "a finding");
  const Node version = root.at("schema");
  if (version.text() != schema) {
    version.fail("'" + shown(version.text()) + "'", fmt::format("'{}'", schema));
  }
  root.require_keys({"schema", "objective", "class", "text", "diagnosis", "target", "head"}, 7);
  Finding f;
  const Node objective = root.at("objective");
  f.objective = named(objective, [&] { return parse_objective(shown(objective.line())); });
  f.text = root.at("text").line();
  f.target = read_target(root.at("target"));
  f.candidate = read_head(root.at("head"), f.target.kernel.operand);
  f.diagnosis = read_diagnosis(root.at("diagnosis"), f.candidate.shape);
  f.diagnosis.objective = f.objective;
  if (root.at("class").line() != f.class_name()) {
    root.at("class").fail("'" + shown(root.at("class").line()) + "'",
                          "'" + shown(f.class_name()) + "', its objective, stage and claim");
  }
  return f;
}

Finding read_finding(const std::string& path) {
  return parse_finding(read_small_file(path, max_finding_bytes), path);
}

Replay replay(const Finding& f) {
  Replay r;
  r.diagnosis = diagnose(f.target, f.candidate, f.objective);
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
  };
  r.same_bits =
      same(r.diagnosis.output, f.diagnosis.output) && same(r.diagnosis.lse, f.diagnosis.lse);
  r.reproduces = r.diagnosis.met && r.same_bits;
  return r;
}

}  // namespace headroom::fuzz
