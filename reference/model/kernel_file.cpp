#include "reference/model/kernel_file.h"

#include <fmt/format.h>
#include <mpfr.h>
#include <openssl/evp.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>

#include "reference/format/format.h"
#include "reference/head/small_file.h"
#include "reference/head/tensor_file.h"
#include "reference/input_error.h"
#include "reference/real/fp_environment.h"

namespace headroom {
namespace {

// ---------------------------------------------------------------------------------------- names

template <class E>
constexpr auto all_values = std::array<E, 0>{};
template <>
constexpr auto all_values<Evidence> =
    std::array{Evidence::measured, Evidence::documented, Evidence::assumed};
template <>
constexpr auto all_values<FactorSite> =
    std::array{FactorSite::query, FactorSite::key, FactorSite::score};
template <>
constexpr auto all_values<Centring> =
    std::array{Centring::none, Centring::mean, Centring::virtual_};
template <>
constexpr auto all_values<Division> = std::array{Division::divide, Division::reciprocal};
template <>
constexpr auto all_values<DenominatorGuard> =
    std::array{DenominatorGuard::none, DenominatorGuard::zero_to_one,
               DenominatorGuard::zero_to_zero, DenominatorGuard::maximum};
template <>
constexpr auto all_values<GateSides> = std::array{GateSides::two_sided, GateSides::one_sided};
template <>
constexpr auto all_values<GateUnit> = std::array{GateUnit::head, GateUnit::head_over_batch};
template <>
constexpr auto all_values<Padding> =
    std::array{Padding::sliced, Padding::masked, Padding::zero_keys};
template <>
constexpr auto all_values<EmptyRowRule> =
    std::array{EmptyRowRule::zero, EmptyRowRule::zero_pos_inf, EmptyRowRule::mean_of_visited,
               EmptyRowRule::nan};

template <>
constexpr auto all_values<SoftcapFormula> =
    std::array{SoftcapFormula::tanh, SoftcapFormula::exp_ratio, SoftcapFormula::logistic};
template <>
constexpr auto all_values<MaskForm> = std::array{MaskForm::select, MaskForm::additive};
template <>
constexpr auto all_values<SinkPlace> = std::array{SinkPlace::end, SinkPlace::start};
template <>
constexpr auto all_values<ExponentBase> = std::array{ExponentBase::two, ExponentBase::e};
template <>
constexpr auto all_values<MergeRule> =
    std::array{MergeRule::lse, MergeRule::lse_naive, MergeRule::lse_log1p, MergeRule::accumulate};

// ---------------------------------------------------------------------------------------- keys

/// Every key of a kernel file, once, in canonical order: the reader and the writer both walk this,
/// so that no field of the model can be in one and not in the other. Facts are apart. Optional keys
/// have the default given here, may be left out of complete files, and are written only where they
/// differ from it.
template <class Visitor, class Model>
void visit_keys(Visitor& v, Model& m) {
  const auto accumulator = [&](auto& a) {
    v.key("accumulator", a.format);
    v.key("order", a.order);
    v.key("flush_to_zero", a.flush_to_zero);
    v.key("rounded_products", a.rounded_products);
    v.optional("denormals_are_zero", a.denormals_are_zero, false);
  };
  v.section("");
  v.key("name", m.name);
  v.key("machine", m.machine);
  v.key("operand", m.operand);
  v.section("scale");
  v.key("scale", m.scale.scale);
  v.key("log2e", m.scale.log2e);
  v.key("constant", m.scale.constant);
  v.key("arithmetic", m.scale.arithmetic);
  v.section("centring");
  v.key("keys", m.centring.keys);
  v.key("mean", m.centring.mean);
  v.key("difference", m.centring.difference);
  v.section("score");
  accumulator(m.score.accumulator);
  v.key("store", m.score.store);
  v.key("scale_before_store", m.score.scale_before_store);
  v.optional("softcap", m.score.softcap, SoftcapFormula::tanh);
  v.section("mask");
  v.optional("form", m.mask.form, MaskForm::select);
  v.optional_number("value", m.mask.value, -std::numeric_limits<double>::infinity());
  v.section("sink");
  v.optional("place", m.sink, SinkPlace::end);
  v.section("exponent");
  v.key("format", m.exponent.format);
  v.key("fused", m.exponent.fused);
  v.optional("base", m.exponent.base, ExponentBase::two);
  v.section("exp2");
  v.unit("unit", m.exp2.name);
  v.key("result", m.exp2.result);
  v.error_bound("max_error_ulps", m.exp2.max_error_ulps);
  v.key("flush_to_zero", m.exp2.flush_to_zero);
  v.key("monotone_at_integers", m.exp2.monotone_at_integers);
  v.key("propagates_nan", m.exp2.propagates_nan);
  v.optional_number("floor", m.exp2.floor, 0.0);
  v.key("evidence", m.exp2.evidence);
  v.key("source", m.exp2.source);
  v.section("p");
  v.key("format", m.p.format);
  v.key("saturate", m.p.saturate);
  v.key("flush_to_zero", m.p.flush_to_zero);
  v.key("denominator_rounded", m.p.denominator_rounded);
  v.section("denominator");
  accumulator(m.denominator);
  v.section("numerator");
  accumulator(m.numerator);
  v.section("normalise");
  v.key("division", m.normalise.division);
  v.error_bound("reciprocal_max_error_ulps", m.normalise.reciprocal_max_error_ulps);
  v.key("reciprocal_flush_to_zero", m.normalise.reciprocal_flush_to_zero);
  v.key("reciprocal_exact_at_powers_of_two", m.normalise.reciprocal_exact_at_powers_of_two);
  v.key("guard", m.normalise.guard);
  v.exact_number("guard_value", m.normalise.guard_value);
  v.optional("every_tile", m.normalise.every_tile, false);
  v.key("output", m.normalise.output);
  v.key("evidence", m.normalise.evidence);
  v.key("source", m.normalise.source);
  v.section("stabilizer");
  v.key("norm", m.stabilizer.norm);
  v.key("store", m.stabilizer.store);
  v.key("round_up", m.stabilizer.round_up);
  v.section("gate");
  v.exact_number("vmax", m.gate.vmax);
  v.key("gate", m.gate.sides);
  v.key("unit", m.gate.unit);
  v.key("query_block", m.gate.query_block);
  v.section("tiles");
  v.key("keys", m.tiles.keys);
  v.optional("queries", m.tiles.queries, 128);
  v.key("padding", m.tiles.padding);
  v.key("empty_row", m.tiles.empty_row);
  v.section("split");
  v.optional("parts", m.split.parts, 1);
  v.optional("merge", m.split.merge, MergeRule::lse);
  v.optional("reads", m.split.reads, ExponentBase::e);
  v.section("lse");
  v.optional("base", m.lse.base, ExponentBase::e);
}

template <class Visitor, class Fact>
void visit_fact_keys(Visitor& v, Fact& fact) {
  v.key("id", fact.id);
  v.key("text", fact.text);
  v.key("evidence", fact.evidence);
  v.key("source", fact.source);
}

// ------------------------------------------------------------------------------------- numbers

/// A number of a kernel file as a double: the value if it is exact, else rounded up.
struct ReadNumber {
  double value;
  bool exact;
};

bool all_digits(std::string_view s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// "0x1.8p-3", "0.51", "1e-7", "3/8", "2^-10", with a sign; at most 64 characters.
std::optional<ReadNumber> read_number(const std::string& text) {
  if (text.empty() || text.size() > 64) return std::nullopt;
  const bool negative = text.front() == '-';
  const std::string body = text.substr(negative || text.front() == '+' ? 1 : 0);
  if (body.empty() || !std::isdigit(static_cast<unsigned char>(body.front()))) return std::nullopt;
  const NearestRounding nearest;
  mpfr_t x;
  mpfr_init2(x, 53);
  const mpfr_rnd_t up = negative ? MPFR_RNDD : MPFR_RNDU;  // of |x|; the sign comes last
  const mpfr_rnd_t rounding = up == MPFR_RNDD ? MPFR_RNDZ : MPFR_RNDU;
  int inexact = 0;
  bool read = false;
  if (const std::size_t slash = body.find('/'); slash != std::string::npos) {
    const std::string p = body.substr(0, slash), q = body.substr(slash + 1);
    if (all_digits(p) && all_digits(q)) {
      mpfr_t a, b;  // 64 digits are less than 213 bits
      mpfr_inits2(256, a, b, static_cast<mpfr_ptr>(nullptr));
      mpfr_set_str(a, p.c_str(), 10, MPFR_RNDN);
      mpfr_set_str(b, q.c_str(), 10, MPFR_RNDN);
      read = !mpfr_zero_p(b);
      if (read) inexact = mpfr_div(x, a, b, rounding);
      mpfr_clears(a, b, static_cast<mpfr_ptr>(nullptr));
    }
  } else if (body.starts_with("2^")) {
    const std::string power = body.substr(2);
    const std::string digits = power.starts_with('-') ? power.substr(1) : power;
    read = all_digits(digits) && digits.size() <= 5;
    if (read) inexact = mpfr_set_si_2exp(x, 1, std::stol(power), rounding);
  } else if (body.find_first_not_of("0123456789abcdefABCDEFxXpP.+-") == std::string::npos) {
    // The first digit and the alphabet exclude MPFR's "nan", "inf", "@" and blanks.
    const bool hex = body.starts_with("0x") || body.starts_with("0X");
    char* end = nullptr;
    inexact = mpfr_strtofr(x, body.c_str(), &end, hex ? 16 : 10, rounding);
    read = *end == '\0';
  }
  std::optional<ReadNumber> result;
  // Subnormal doubles would be rounded once more by mpfr_get_d: no key has use for them.
  if (read && mpfr_number_p(x) &&
      (mpfr_zero_p(x) || (mpfr_get_exp(x) > -1000 && mpfr_get_exp(x) <= 1024))) {
    const double magnitude = mpfr_get_d(x, MPFR_RNDN);
    result = ReadNumber{negative ? -magnitude : magnitude, inexact == 0};
  }
  mpfr_clear(x);
  return result;
}

// -------------------------------------------------------------------------------------- reading

struct Position {
  unsigned long line = 1, column = 1;
};

Position position_of(const toml::source_region& region) {
  // toml++ gives generated nodes line 0
  if (region.begin.line == 0) return {};
  return {region.begin.line, region.begin.column};
}

/// `text` on one line and not too long, for messages.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 60)) {
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return text.size() > 60 ? out + "..." : out;
}

/// "FP16": formats in the text of facts.
std::string upper_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

[[noreturn]] void fail(const std::string& path, Position at, const std::string& key,
                       const std::string& found, const std::string& expected) {
  throw InputError(fmt::format("{}:{}:{}: {}: found {}, expected {}", path, at.line, at.column, key,
                               found, expected));
}

std::string describe(const toml::node& node) {
  if (const auto* s = node.as_string()) return "\"" + shown(s->get()) + "\"";
  if (const auto* i = node.as_integer()) return fmt::format("{}", i->get());
  if (const auto* f = node.as_floating_point()) return fmt::format("{}", f->get());
  if (const auto* b = node.as_boolean()) return b->get() ? "true" : "false";
  if (node.is_table()) return "a table";
  return node.is_array() ? "an array" : "a date or time";
}

/// What toml++ expected where a text is no TOML. Its own descriptions name what it was reading, in
/// the words of the grammar.
std::string expected_syntax(std::string_view description) {
  constexpr std::array<std::pair<std::string_view, const char*>, 10> readings = {{
      {"utf-8", "UTF-8 text"},
      {"redefine", "each key and each [section] once"},
      {"maximum", "brackets that are not nested deeply"},
      {"string", "a string that ends with its quotes on the same line, a backslash written \\\\"},
      {"table header", "[section]"},
      {"array", "[value, value, ...]"},
      {"inline table", "{key = value, ...}"},
      {"parsing value", "a value: \"text\", a number, true or false"},
      {"integer", "a number"},
      {"float", "a number"},
  }};
  for (const auto& [word, expected] : readings) {
    if (description.find(word) != std::string_view::npos) return expected;
  }
  return "one `key = value` or one [section] a line";
}

/// The line of `text` that an error is in, for messages.
std::string found_in_line(std::string_view text, Position at) {
  for (unsigned long line = 1; line < at.line; ++line) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return "the end of the file";
    text.remove_prefix(end + 1);
  }
  text = text.substr(0, text.find('\n'));
  while (!text.empty() && (text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return text.empty() ? "an empty line" : "`" + shown(text) + "`";
}

/// Keys nested too deeply make toml++ overflow the stack when it frees them (each dot is a table,
/// and its own limit counts only values). No key of a kernel file has more than one dot.
void refuse_deep_keys(const std::string& text, const std::string& path) {
  constexpr int most_dots = 8;
  Position at;
  int dots = 0;
  char quote = 0;
  bool multiline = false, comment = false;
  const auto triple = [&](std::size_t i) {
    return i + 2 < text.size() && text[i + 1] == text[i] && text[i + 2] == text[i];
  };
  for (std::size_t i = 0; i < text.size(); ++i, ++at.column) {
    const char c = text[i];
    // Whatever could end a line ends a comment: reading on as TOML can only count more dots.
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == '\xc2' || c == '\xe2') {
      comment = false;
    }
    if (c == '\n') {
      at = {at.line + 1, 0};
      dots = 0;
      if (!multiline) quote = 0;
    } else if (comment) {
      continue;
    } else if (quote == 0) {
      if (c == '#') comment = true;
      if (c == '.' && ++dots > most_dots) {
        fail(path, at, "syntax", fmt::format("more than {} dots in a line", most_dots),
             "keys of the form section.key");
      }
      if (c == '"' || c == '\'') {
        quote = c;
        multiline = triple(i);
        if (multiline) i += 2, at.column += 2;
      }
    } else if (c == '\\' && quote == '"') {
      if (i + 1 < text.size() && text[i + 1] != '\n') ++i, ++at.column;
    } else if (c == quote && (!multiline || triple(i))) {
      quote = 0;
      if (multiline) {
        i += 2, at.column += 2;
        // one or two quotes may stand before the closing three
        for (int extra = 0; extra < 2 && i + 1 < text.size() && text[i + 1] == c; ++extra) {
          ++i, ++at.column;
        }
      }
      multiline = false;
    }
  }
}

/// Fills a model from a parsed file, and remembers where each key stands.
class Reader {
 public:
  Reader(const toml::table& root, const std::string& path) : root_(root), path_(path) {}

  KernelModel read() {
    KernelModel model;
    complete_ = read_complete();
    if (!complete_) model = machine();
    const KernelModel base = model;
    if (const toml::node* unit = find("exp2", "unit")) start_unit(*unit, model.exp2);
    visit_keys(*this, model);
    if (!complete_) {
      if (!given("name")) fail(path_, {}, "name", "nothing", "a name for this kernel");
      restate_unit(base, model.exp2);
      restate_evidence(base, model);
      restate_facts(base, model);
    }
    read_facts(model);
    refuse_unknown_keys();
    if (const auto problem = find_problem(model)) {
      const auto& keys = problem->keys;
      const auto in_file =
          std::find_if(keys.begin(), keys.end(), [&](const std::string& k) { return given(k); });
      // `found` is the value of the first key, though the file may hold only another one
      const bool inherited = in_file != keys.end() && *in_file != keys.front();
      fail(path_, where(in_file == keys.end() ? keys.front() : *in_file),
           keys.front() + (inherited ? " (inherited from " + model.machine + ")" : ""),
           problem->found, problem->expected);
    }
    return model;
  }

  // The visitor's part: each call reads one key of the current section, if it is there.

  void section(const std::string& name) {
    section_ = name;
    table_ = name.empty() ? &root_ : nullptr;
    if (name.empty()) return;
    expected_[""].push_back(name);
    const toml::node* node = root_.get(name);
    if (node == nullptr) return;
    where_[name] = position_of(node->source());
    table_ = node->as_table();
    if (table_ == nullptr) wrong(name, *node, "a table [" + name + "]");
  }

  void key(const char* name, std::string& value) {
    if (const toml::node* node = take(name)) value = string_of(name, *node, "a string");
  }
  void key(const char* name, bool& value) {
    const toml::node* node = take(name);
    if (node == nullptr) return;
    if (!node->is_boolean()) wrong(full(name), *node, "true or false");
    value = node->as_boolean()->get();
  }
  void key(const char* name, int& value) {
    const toml::node* node = take(name);
    if (node == nullptr) return;
    const auto* integer = node->as_integer();
    if (integer == nullptr || integer->get() < 0 || integer->get() > (1 << 20)) {
      wrong(full(name), *node, fmt::format("an integer from 0 to {}", 1 << 20));
    }
    value = static_cast<int>(integer->get());
  }
  void key(const char* name, Format& value) {
    const toml::node* node = take(name);
    if (node == nullptr) return;
    std::string names;
    for (const Format* f : formats_of_key(full(name))) {
      names += (names.empty() ? "" : ", ") + std::string(f->name);
    }
    const Format* format = find_format(string_of(name, *node, "one of " + names));
    if (format == nullptr) wrong(full(name), *node, "one of " + names);
    value = *format;
  }
  void key(const char* name, AccumulationOrder& value) {
    const toml::node* node = take(name);
    if (node == nullptr) return;
    try {
      value = parse_order(string_of(name, *node, "an order"));
    } catch (const std::invalid_argument& expected) {
      wrong(full(name), *node, expected.what());
    }
  }
  template <class E>
  requires std::is_enum_v<E>
  void key(const char* name, E& value) {
    const toml::node* node = take(name);
    if (node == nullptr) return;
    std::string names;
    for (const E e : all_values<E>) names += (names.empty() ? "" : ", ") + to_text(e);
    const std::string text = string_of(name, *node, "one of " + names);
    for (const E e : all_values<E>) {
      if (to_text(e) == text) {
        value = e;
        return;
      }
    }
    wrong(full(name), *node, "one of " + names);
  }
  /// An upper bound: what a double cannot hold is rounded up.
  void error_bound(const char* name, double& value) {
    if (const toml::node* node = take(name)) value = number_of(full(name), *node).value;
  }
  /// A number the kernel holds: it must be exact.
  void exact_number(const char* name, double& value) {
    const toml::node* node = take(name);
    if (node == nullptr) return;
    const ReadNumber number = number_of(full(name), *node);
    if (!number.exact) {
      wrong(full(name), *node,
            fmt::format("an exact number, such as \"{:a}\"",
                        static_cast<double>(static_cast<float>(number.value))));
    }
    value = number.value;
  }
  template <class T>
  void optional(const char* name, T& value, const T& missing) {
    if (complete_) value = missing;
    if (present(name)) {
      key(name, value);
    } else {
      expected_[section_].push_back(name);
    }
  }
  /// An exact number or "-inf".
  void optional_number(const char* name, double& value, double missing) {
    if (complete_) value = missing;
    if (!present(name)) {
      expected_[section_].push_back(name);
    } else if (const auto* text = table_->get(name)->as_string();
               text != nullptr && text->get() == "-inf") {
      take(name);
      value = -std::numeric_limits<double>::infinity();
    } else {
      exact_number(name, value);
    }
  }
  /// start_unit has read it.
  void unit(const char* name, std::string&) { take(name); }

 private:
  std::string full(const std::string& name) const {
    return section_.empty() ? name : section_ + "." + name;
  }
  bool present(const char* name) const { return table_ != nullptr && table_->get(name) != nullptr; }
  bool given(const std::string& key) const { return where_.contains(key); }
  Position where(const std::string& key) const {
    if (const auto found = where_.find(key); found != where_.end()) return found->second;
    const auto section = where_.find(key.substr(0, key.find('.')));
    return section == where_.end() ? Position{} : section->second;
  }
  const toml::node* find(const char* section, const char* name) const {
    const toml::node* node = root_.get(section);
    const toml::table* table = node == nullptr ? nullptr : node->as_table();
    return table == nullptr ? nullptr : table->get(name);
  }
  [[noreturn]] void wrong(const std::string& key, const toml::node& node,
                          const std::string& expected) const {
    fail(path_, position_of(node.source()), key, describe(node), expected);
  }

  const toml::node* take(const char* name) {
    expected_[section_].push_back(name);
    const toml::node* node = table_ == nullptr ? nullptr : table_->get(name);
    if (node != nullptr) {
      where_[full(name)] = position_of(node->source());
    } else if (complete_) {
      fail(path_, where(section_), full(name), "nothing", "a value: the file is complete = true");
    }
    return node;
  }

  std::string string_of(const char* name, const toml::node& node,
                        const std::string& expected) const {
    if (!node.is_string()) wrong(full(name), node, expected);
    return node.as_string()->get();
  }

  ReadNumber number_of(const std::string& key, const toml::node& node) const {
    if (const auto* integer = node.as_integer()) {
      if (std::abs(static_cast<double>(integer->get())) <= 0x1p53) {
        return {static_cast<double>(integer->get()), true};
      }
    } else if (const auto* real = node.as_floating_point()) {
      // The file's decimal is gone; only a short dyadic number can be trusted to be what it said.
      const double value = real->get();
      if (std::isfinite(value)) {
        const bool dyadic =
            std::fabs(value) < 0x1p20 && std::ldexp(value, 20) == std::rint(std::ldexp(value, 20));
        return {dyadic ? value : std::nextafter(value, HUGE_VAL), dyadic};
      }
    } else if (const auto* text = node.as_string()) {
      if (const auto number = read_number(text->get())) return *number;
    }
    wrong(key, node,
          "a number, or an exact one in a string such as \"0x1p-3\", \"3/8\", \"2^-10\"");
  }

  bool read_complete() {
    section("");
    expected_[""].push_back("complete");
    const toml::node* node = root_.get("complete");
    if (node == nullptr) return false;
    where_["complete"] = position_of(node->source());
    if (!node->is_boolean()) wrong("complete", *node, "true or false");
    return node->as_boolean()->get();
  }

  KernelModel machine() const {
    std::string names;
    for (const std::string& n : preset_names()) names += (names.empty() ? "" : ", ") + n;
    const std::string expected = "one of " + names + ", or complete = true and every key";
    const toml::node* node = root_.get("machine");
    if (node == nullptr) fail(path_, {}, "machine", "nothing", expected);
    if (!node->is_string()) wrong("machine", *node, expected);
    const std::string name = node->as_string()->get();
    const std::vector<std::string> known = preset_names();
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      wrong("machine", *node, expected);
    }
    return preset(name);
  }

  /// Naming another unit sets what that unit promises; keys of [exp2] then override.
  void start_unit(const toml::node& node, Exp2Unit& exp2) {
    const std::string expected = "correctly-rounded, ulp:K, ex2.approx.ftz or fa4-poly1 to 5";
    section_ = "exp2";
    std::string name = string_of("unit", node, expected);
    if (name.starts_with("ulp:")) {
      const auto bound = read_number(name.substr(4));
      if (!bound) wrong("exp2.unit", node, expected);
      name = ulp_unit_name(bound->value);
      if (name == exp2.name) return;
      exp2.max_error_ulps = bound->value;
      exp2.monotone_at_integers = false;
    } else if (name == exp2.name) {
      return;
    } else if (name == "correctly-rounded") {
      exp2.max_error_ulps = 0.5;
      exp2.monotone_at_integers = true;
    } else if (name == "ex2.approx.ftz") {
      exp2 = preset("hopper").exp2;
    } else if (const std::optional<Exp2Unit> polynomial = fa4_polynomial(name)) {
      exp2 = *polynomial;
    } else {
      wrong("exp2.unit", node, expected);
    }
    exp2.name = name;
  }

  /// A file that changes the error of an inherited unit has an "ulp:K" unit.
  void restate_unit(const KernelModel& base, Exp2Unit& exp2) const {
    if (given("exp2.unit") || exp2.max_error_ulps == base.exp2.max_error_ulps) return;
    exp2.name = ulp_unit_name(exp2.max_error_ulps);
    if (!given("exp2.monotone_at_integers")) exp2.monotone_at_integers = false;
  }

  static bool same_promises(Exp2Unit a, const Exp2Unit& b) {
    a.evidence = b.evidence;
    a.source = b.source;
    return a == b;
  }
  static bool same_promises(const Normalisation& a, const Normalisation& b) {
    return a.division == b.division && a.reciprocal_max_error_ulps == b.reciprocal_max_error_ulps &&
           a.reciprocal_flush_to_zero == b.reciprocal_flush_to_zero &&
           a.reciprocal_exact_at_powers_of_two == b.reciprocal_exact_at_powers_of_two;
  }

  /// The inherited evidence is about the inherited promises: other promises are assumed.
  void restate_evidence(const KernelModel& base, KernelModel& m) const {
    const auto restate = [&](const std::string& section, auto& unit) {
      if (!given(section + ".evidence")) unit.evidence = Evidence::assumed;
      if (!given(section + ".source")) unit.source.clear();
    };
    const Exp2Unit stock = preset("hopper").exp2;
    if (m.exp2.name == stock.name && same_promises(m.exp2, stock)) {
      // what is promised of this instruction is documented on whatever machine has it
      if (!given("exp2.evidence")) m.exp2.evidence = stock.evidence;
      if (!given("exp2.source")) m.exp2.source = stock.source;
    } else if (!same_promises(m.exp2, base.exp2)) {
      restate("exp2", m.exp2);
    }
    if (!same_promises(m.normalise, base.normalise)) restate("normalise", m.normalise);
  }

  /// The conversions to nearest of a kernel, "FP32 to BF16": of folded operands, of the key mean
  /// and the centred keys, of stored scores, of P and of O.
  static std::set<std::string> conversions(const KernelModel& m) {
    std::set<std::string> pairs;
    const auto add = [&](const Format& from, const Format& to) {
      if (from == to) return;
      pairs.insert(upper_case(from.name) + " to " + upper_case(to.name));
    };
    if (m.scale.scale != FactorSite::score || m.scale.log2e != FactorSite::score) {
      add(m.scale.arithmetic, m.operand);
    }
    if (m.centring.keys != Centring::none) add(fp32, m.centring.mean);
    if (m.centring.keys == Centring::mean) add(fp32, m.centring.difference);
    add(m.score.accumulator.format, m.score.store);
    add(m.exp2.result, m.p.format);
    add(m.numerator.format, m.normalise.output);
    return pairs;
  }

  static void restate_facts(const KernelModel& base, KernelModel& m) {
    const auto replace = [&](const std::string& unit, const std::string& text, Evidence evidence,
                             const std::string& source) {
      std::erase_if(m.facts, [&](const MachineFact& f) { return f.id.starts_with(unit + "."); });
      m.facts.push_back({unit + ".kernel-file", text, evidence, source});
    };
    if (!same_promises(m.exp2, base.exp2)) {
      replace("exp2",
              fmt::format("exp2 is the unit {} with {} result, error at most {} ulp, subnormal "
                          "results {}, {} at integers, {} NaN",
                          m.exp2.name, m.exp2.result.name, m.exp2.max_error_ulps,
                          m.exp2.flush_to_zero ? "flushed" : "kept",
                          m.exp2.monotone_at_integers ? "exact" : "maybe inexact",
                          m.exp2.propagates_nan ? "propagates" : "may swallow"),
              m.exp2.evidence, m.exp2.source);
    }
    if (!same_promises(m.normalise, base.normalise)) {
      const Normalisation& n = m.normalise;
      replace("reciprocal",
              n.division == Division::divide
                  ? std::string("O / l is a correctly rounded quotient")
                  : fmt::format("1 / l errs by at most {} ulp, subnormal results {}, {} at powers "
                                "of two",
                                n.reciprocal_max_error_ulps,
                                n.reciprocal_flush_to_zero ? "flushed" : "kept",
                                n.reciprocal_exact_at_powers_of_two ? "exact" : "maybe inexact"),
              n.evidence, n.source);
    }
    const auto sum = [](const Accumulator& a, const std::string& products) {
      return fmt::format("{} in order {}, {}subnormals {}", a.format.name, to_text(a.order),
                         products, a.flush_to_zero ? "flushed" : "kept");
    };
    const auto sum_of_products = [&](const Accumulator& a) {
      return sum(a, a.rounded_products ? "products rounded, " : "products exact, ");
    };
    if (m.score.accumulator != base.score.accumulator || m.numerator != base.numerator) {
      replace("matrix-unit",
              fmt::format("scores are summed as {}; the numerator as {}",
                          sum_of_products(m.score.accumulator), sum_of_products(m.numerator)),
              Evidence::assumed, "");
    }
    if (m.denominator != base.denominator) {
      replace("denominator", fmt::format("the denominator is summed as {}", sum(m.denominator, "")),
              Evidence::assumed, "");
    }
    // What a fact says of FP32 to BF16 says nothing of a kernel that converts to FP16.
    if (conversions(m) != conversions(base) || m.p.saturate != base.p.saturate ||
        m.p.flush_to_zero != base.p.flush_to_zero) {
      std::string list;
      for (const std::string& c : conversions(m)) list += (list.empty() ? "" : ", ") + c;
      if (list.empty()) {
        std::erase_if(m.facts,
                      [](const MachineFact& f) { return f.id.starts_with("conversion."); });
      } else {
        replace(
            "conversion",
            fmt::format("{} round{} to nearest even{}, subnormal P {}", list,
                        conversions(m).size() == 1 ? "s" : "", m.p.saturate ? ", P saturates" : "",
                        m.p.flush_to_zero ? "flushed" : "kept"),
            Evidence::assumed, "");
      }
    }
  }

  void read_facts(KernelModel& m) {
    expected_[""].push_back("fact");
    const toml::node* node = root_.get("fact");
    if (node == nullptr) return;
    const toml::array* facts = node->as_array();
    if (facts == nullptr) wrong("fact", *node, "tables [[fact]]");
    std::vector<std::string> ids;
    for (std::size_t i = 0; i < facts->size(); ++i) {
      const toml::node& element = *facts->get(i);
      section_ = fmt::format("fact[{}]", i);
      table_ = element.as_table();
      if (table_ == nullptr) wrong(section_, element, "a table [[fact]]");
      where_[section_] = position_of(element.source());
      MachineFact fact;
      visit_fact_keys(*this, fact);
      refuse_unknown_keys_of(section_, *table_);
      // find_problem numbers the model's facts, not the file's: checked here, where the place is
      KernelModel alone = preset("ieee-fp32");
      alone.facts = {fact};
      if (const auto problem = find_problem(alone)) {
        const std::string key = section_ + problem->keys.front().substr(7);  // after "fact[0]"
        fail(path_, where_.contains(key) ? where_[key] : where_[section_], key, problem->found,
             problem->expected);
      }
      if (std::find(ids.begin(), ids.end(), fact.id) != ids.end()) {
        fail(path_, where_[section_ + ".id"], section_ + ".id", "\"" + fact.id + "\" twice",
             "one fact an id");
      }
      ids.push_back(fact.id);
      const auto old = std::find_if(m.facts.begin(), m.facts.end(),
                                    [&](const MachineFact& f) { return f.id == fact.id; });
      if (old == m.facts.end()) {
        m.facts.push_back(fact);
      } else {
        *old = fact;
      }
    }
  }

  void refuse_unknown_keys_of(const std::string& section, const toml::table& table) const {
    const std::vector<std::string>& known = expected_.at(section);
    for (const auto& [key, node] : table) {
      if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
      std::string names;
      for (const std::string& k : known) names += (names.empty() ? "" : ", ") + k;
      const std::string name = shown(key.str());
      fail(path_, position_of(key.source()), section.empty() ? name : section + "." + name,
           "an unknown key", "one of " + names);
    }
  }
  void refuse_unknown_keys() const {
    refuse_unknown_keys_of("", root_);
    for (const auto& [section, keys] : expected_) {
      if (section.empty() || section.starts_with("fact[")) continue;
      if (const toml::node* node = root_.get(section)) {
        refuse_unknown_keys_of(section, *node->as_table());
      }
    }
  }

  const toml::table& root_;
  const std::string& path_;
  bool complete_ = false;
  std::string section_;
  const toml::table* table_ = nullptr;
  std::map<std::string, Position> where_;
  std::map<std::string, std::vector<std::string>> expected_;
};

// -------------------------------------------------------------------------------------- writing

class Writer {
 public:
  std::string take() { return std::move(text_); }

  void section(const std::string& name) {
    if (!name.empty()) heading_ = "\n[" + name + "]\n";
  }
  void fact() { heading_ = "\n[[fact]]\n"; }
  void key(const char* name, const std::string& value) { line(name, quoted(value)); }
  void key(const char* name, bool value) { line(name, value ? "true" : "false"); }
  void key(const char* name, int value) { line(name, fmt::format("{}", value)); }
  void key(const char* name, const Format& value) {
    // by value, not by its name: equal formats are spelled the same
    for (const Format* f : all_formats) {
      if (*f == value) return line(name, quoted(std::string(f->name)));
    }
  }
  void key(const char* name, const AccumulationOrder& value) { line(name, quoted(to_text(value))); }
  template <class E>
  requires std::is_enum_v<E>
  void key(const char* name, const E& value) { line(name, quoted(to_text(value))); }
  void error_bound(const char* name, double value) { exact_number(name, value); }
  void exact_number(const char* name, double value) { line(name, fmt::format("\"{:a}\"", value)); }
  void unit(const char* name, const std::string& value) { key(name, value); }
  template <class T>
  void optional(const char* name, const T& value, const T& missing) {
    if (!(value == missing)) key(name, value);
  }
  void optional_number(const char* name, double value, double missing) {
    if (value == missing) return;
    if (std::isinf(value)) return line(name, quoted("-inf"));
    exact_number(name, value);
  }

 private:
  void line(const char* name, const std::string& value) {
    text_ += std::exchange(heading_, "") + std::string(name) + " = " + value + "\n";
  }
  // Valid models hold no control characters (find_problem).
  static std::string quoted(const std::string& value) {
    std::string out = "\"";
    for (const char c : value) {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    return out + "\"";
  }

  std::string text_ = "complete = true\n";
  std::string heading_;  ///< of a section that has no key yet
};

}  // namespace

KernelModel parse_kernel(const std::string& text, const std::string& path) {
  if (text.size() > max_kernel_bytes) {
    fail(path, {}, "size", fmt::format("more than {} bytes", max_kernel_bytes), "a kernel file");
  }
  const NearestRounding nearest;  // toml++ reads decimals with the caller's rounding
  refuse_deep_keys(text, path);
  toml::table root;
  try {
    root = toml::parse(std::string_view(text), path);
  } catch (const toml::parse_error& error) {
    const Position at = position_of(error.source());
    fail(path, at, "syntax", found_in_line(text, at), expected_syntax(error.description()));
  }
  return Reader(root, path).read();
}

KernelModel load_kernel(const std::string& name_or_path) {
  if (is_preset(name_or_path)) return preset(name_or_path);
  const std::vector<std::string> names = preset_names();
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(name_or_path, error);
  if (!std::filesystem::exists(status) || std::filesystem::is_directory(status)) {
    std::string list;
    for (const std::string& n : names) list += (list.empty() ? "" : ", ") + n;
    throw InputError(fmt::format(
        "{}: {}, expected a kernel file or one of {}, each also with :ftz or :gradual after it",
        path_text(name_or_path),
        std::filesystem::exists(status) ? "is a directory" : "found no readable file", list));
  }
  const std::string text = read_small_file(name_or_path, max_kernel_bytes);
  return parse_kernel(text, name_or_path);
}

std::string canonical_text(const KernelModel& model) {
  validate(model);
  Writer writer;
  visit_keys(writer, model);
  for (const MachineFact& fact : model.facts) {
    writer.fact();
    visit_fact_keys(writer, fact);
  }
  return writer.take();
}

std::string digest(const KernelModel& model) {
  const std::string text = canonical_text(model);
  std::array<unsigned char, EVP_MAX_MD_SIZE> hash;
  unsigned int length = 0;
  if (EVP_Digest(text.data(), text.size(), hash.data(), &length, EVP_sha256(), nullptr) != 1) {
    throw std::runtime_error("SHA-256 is not available");
  }
  std::string hex;
  for (unsigned int i = 0; i < length; ++i) hex += fmt::format("{:02x}", hash[i]);
  return hex;
}

}  // namespace headroom
