// Certificates: a small head under any kernel and policy that the bytes choose. Certified twice it
// gives the same text; read back strictly, the text has the keys of certificate_v1.md, its numbers
// are the doubles that they were, and outcomes, binding and verdict follow from the claims in it.
#include <oneapi/tbb/global_control.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "certify/certificate.h"
#include "certify/certify.h"
#include "reference/head/strict_json.h"
#include "reference/input_error.h"
#include "reference/model/kernel_file.h"
#include "tests/fuzz_readers/memory_file.h"

namespace headroom::fuzz {
namespace {

using Json = nlohmann::ordered_json;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// Bytes one after another; zeros behind the last.
class Source {
 public:
  Source(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
  std::uint8_t byte() { return at_ == end_ ? std::uint8_t{0} : *at_++; }
  std::int64_t below(std::int64_t n) { return byte() % n; }
  bool flag() { return (byte() & 1U) != 0; }
  bool empty() const { return at_ == end_; }

 private:
  const std::uint8_t *at_, *end_;
};

/// What a kernel file may say differently from its machine.
struct Line {
  const char *section, *text;
};
constexpr Line lines[] = {
    {"scale", "scale = \"query\"\n"},
    {"scale", "log2e = \"query\"\n"},
    {"scale", "scale = \"score\"\n"},
    {"scale", "log2e = \"score\"\n"},
    {"centring", "keys = \"none\"\n"},
    {"centring", "keys = \"mean\"\n"},
    {"centring", "keys = \"virtual\"\n"},
    {"score", "accumulator = \"fp16\"\n"},
    {"score", "store = \"fp16\"\n"},
    {"score", "store = \"bf16\"\n"},
    {"score", "scale_before_store = true\n"},
    {"score", "order = \"any\"\n"},
    {"score", "denormals_are_zero = true\n"},
    {"score", "softcap = \"exp-ratio\"\n"},
    {"mask", "value = -65504\n"},
    {"mask", "value = -1\n"},
    {"mask", "form = \"additive\"\n"},
    {"sink", "place = \"start\"\n"},
    {"exponent", "format = \"fp16\"\n"},
    {"exponent", "format = \"bf16\"\n"},
    {"exponent", "fused = true\n"},
    {"exponent", "fused = false\n"},
    {"exponent", "base = \"e\"\n"},
    {"exp2", "unit = \"ex2.approx.ftz\"\n"},
    {"exp2", "unit = \"fa4-poly3\"\n"},
    {"exp2", "unit = \"correctly-rounded\"\n"},
    {"exp2", "result = \"fp16\"\n"},
    {"exp2", "flush_to_zero = true\n"},
    {"exp2", "flush_to_zero = false\n"},
    {"exp2", "max_error_ulps = 64\n"},
    {"exp2", "max_error_ulps = \"2^23\"\n"},
    {"exp2", "monotone_at_integers = false\n"},
    {"exp2", "floor = \"2^-126\"\n"},
    {"p", "format = \"fp16\"\n"},
    {"p", "format = \"e4m3fn\"\n"},
    {"p", "format = \"e5m2\"\n"},
    {"p", "saturate = true\n"},
    {"p", "denominator_rounded = true\n"},
    {"denominator", "accumulator = \"fp16\"\n"},
    {"denominator", "accumulator = \"bf16\"\n"},
    {"denominator", "order = \"sequential\"\n"},
    {"denominator", "flush_to_zero = true\n"},
    {"numerator", "accumulator = \"fp16\"\n"},
    {"numerator", "order = \"any\"\n"},
    {"numerator", "order = \"tile:8\"\n"},
    {"numerator", "rounded_products = true\n"},
    {"numerator", "flush_to_zero = true\n"},
    {"numerator", "denormals_are_zero = true\n"},
    {"normalise", "division = \"reciprocal\"\n"},
    {"normalise", "division = \"divide\"\n"},
    {"normalise", "reciprocal_max_error_ulps = \"2^22\"\n"},
    {"normalise", "reciprocal_flush_to_zero = true\n"},
    {"normalise", "guard = \"maximum\"\nguard_value = \"2^-20\"\n"},
    {"normalise", "output = \"fp16\"\n"},
    {"normalise", "every_tile = true\n"},
    {"stabilizer", "store = \"bf16\"\n"},
    {"stabilizer", "norm = \"fp16\"\n"},
    {"stabilizer", "round_up = true\n"},
    {"gate", "vmax = 4\n"},
    {"gate", "gate = \"one-sided\"\n"},
    {"gate", "unit = \"head\"\n"},
    {"gate", "unit = \"head-over-batch\"\n"},
    {"gate", "query_block = 3\n"},
    {"tiles", "keys = 1\n"},
    {"tiles", "keys = 7\n"},
    {"tiles", "queries = 4\n"},
    {"tiles", "padding = \"masked\"\n"},
    {"tiles", "padding = \"zero-keys\"\n"},
    {"tiles", "padding = \"sliced\"\n"},
    {"tiles", "empty_row = \"nan\"\n"},
    {"split", "parts = 3\n"},
    {"split", "merge = \"lse-naive\"\n"},
    {"split", "merge = \"lse-log1p\"\n"},
    {"split", "reads = \"2\"\n"},
    {"lse", "base = \"2\"\n"},
};

std::optional<KernelModel> kernel_of(Source& source) {
  const std::vector<std::string> names = preset_names();
  std::string machine = names[static_cast<std::size_t>(source.byte()) % names.size()];
  const std::int64_t reading = source.below(3);
  if (reading > 0) machine += reading == 1 ? ":ftz" : ":gradual";
  std::string text = "name = \"k\"\nmachine = \"" + machine + "\"\n";
  std::map<std::string, std::string> sections;
  for (std::int64_t n = source.below(8); n > 0; --n) {
    const Line& line = lines[source.byte() % std::size(lines)];
    std::string& section = sections[line.section];
    if (section.find(line.text) == std::string::npos) section += line.text;
  }
  if (source.flag()) text += source.flag() ? "operand = \"fp16\"\n" : "operand = \"fp32\"\n";
  for (const auto& [name, keys] : sections) text.append("[").append(name).append("]\n") += keys;
  try {
    return parse_kernel(text, "k.toml");
  } catch (const InputError& error) {
    require_one_line(error.what(), "k.toml");
    return std::nullopt;
  }
}

/// Words of `format`: any code, or one of few, so that rows repeat each other.
Matrix matrix_of(Source& source, const Format& format, std::int64_t rows, std::int64_t columns) {
  const auto width = static_cast<std::size_t>(format.storage_bytes());
  const auto bytes =
      std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(rows * columns) * width);
  const std::int64_t way = source.below(4);
  constexpr double few[] = {0, 1, -1, 0.5, 3, -0.25, 24, -8};
  const double scale = std::ldexp(1.0, static_cast<int>(source.below(64)) - (way == 1 ? 8 : 32));
  for (std::size_t i = 0; i < bytes->size(); i += width) {
    if (way == 0) {  // whatever there is
      for (std::size_t b = 0; b < width; ++b) (*bytes)[i + b] = std::byte{source.byte()};
      continue;
    }
    const std::uint64_t code =
        encode(format, few[source.byte() % std::size(few)] * (way == 2 ? 1 : scale), {});
    std::memcpy(bytes->data() + i, &code, width);
  }
  const std::byte* data = bytes->data();
  return {bytes, data, format, rows, columns, columns * static_cast<std::int64_t>(width)};
}

ScoreModifiers modifiers_of(Source& source, std::int64_t queries, std::int64_t keys) {
  ScoreModifiers m;
  if (source.flag()) m.window = Window{source.below(9) - 1, source.below(9) - 1};
  if (source.flag()) {
    for (std::int64_t i = 0; i < queries; ++i) m.query_segments.push_back(source.byte() % 4);
    for (std::int64_t j = 0; j < keys; ++j) m.key_segments.push_back(source.byte() % 4);
  }
  if (source.flag()) {
    const std::int64_t rows = source.flag() ? queries : 1;
    for (std::int64_t i = 0; i < rows * keys; ++i) m.mask.push_back(source.byte() % 2);
  }
  if (source.flag()) m.bias = matrix_of(source, fp32, source.flag() ? queries : 1, keys);
  if (source.flag()) m.softcap = Rational(1 + source.below(100)) / Rational(1 + source.below(10));
  if (source.flag()) m.sink = std::ldexp(1.0 + source.below(8), static_cast<int>(source.below(20)));
  return m;
}

Head head_of(Source& source, const KernelModel& kernel) {
  Head head;
  const std::int64_t queries = 1 + source.below(64), keys = 1 + source.below(64);
  const std::int64_t channels = 1 + source.below(8), value_channels = 1 + source.below(8);
  head.id = "f:0";
  head.file = "f.safetensors";
  head.layout = "nd";
  head.visibility.kind = static_cast<MaskKind>(source.below(4));
  if (head.visibility.kind == MaskKind::causal && queries != keys) {
    head.visibility.kind = MaskKind::causal_top_left;
  }
  head.visibility.queries = queries;
  head.visibility.keys = keys;
  head.visibility.length = source.flag() ? source.below(keys + 1) : keys;
  switch (source.below(4)) {
    case 0:
      head.scale = Scale::reciprocal_sqrt(static_cast<std::uint64_t>(channels));
      break;
    case 1:
      head.scale = Scale::base2(Rational(source.below(256) - 64) / Rational(8));
      break;
    case 2:
      head.scale = Scale::natural(Rational(source.below(256) - 64) / Rational(64));
      break;
    default:
      head.scale = Scale::natural(1);
  }
  if (source.flag()) head.modifiers = modifiers_of(source, queries, keys);
  head.q = matrix_of(source, kernel.operand, queries, channels);
  head.k = matrix_of(source, kernel.operand, keys, channels);
  head.v = matrix_of(source, kernel.operand, keys, value_channels);
  head.stored_q = head.stored_k = head.stored_v = kernel.operand;
  return head;
}

CertifyOptions options_of(Source& source) {
  CertifyOptions options;
  constexpr Policy policies[] = {Policy::clis,      Policy::clis_alg1, Policy::fixed_m,
                                 Policy::fixed_m_n, Policy::fdpp,      Policy::fa4,
                                 Policy::online};
  options.policy = policies[source.byte() % std::size(policies)];
  options.eps = std::ldexp(1.0, -1 - static_cast<int>(source.below(40)));
  if (source.flag()) options.max_error = std::ldexp(1.0, 8 - static_cast<int>(source.below(40)));
  options.evaluate_rows = source.below(9);
  options.tighter_bounds = source.flag();
  if (source.flag()) options.exact_rows = ExactRows{source.below(5)};
  const auto number = [&] { return static_cast<double>(source.below(256)) / 2 - 64; };
  if (source.flag()) {
    if (options.policy == Policy::fdpp) {
      options.parameters = {{"phi", number()}, {"a", number()}, {"b", number()}};
    } else if (options.policy == Policy::fa4) {
      options.parameters = {{"threshold", number()},
                            {"offset", number()},
                            {"wave", static_cast<double>(source.below(5))},
                            {"running_max", source.flag() ? 1.0 : 0.0}};
    } else if (options.policy == Policy::online) {
      options.parameters = {{"initial_max", number()}, {"guard", source.flag() ? 1.0 : 0.0}};
    }
  }
  return options;
}

// Reading back ------------------------------------------------------------------------------------

/// Takes any strict JSON.
class Strict : public StrictJson {
 public:
  Strict() : StrictJson("certificate", 16) {}

 private:
  void on_key(const std::string& /*key*/) override {}
  void on_scalar(const JsonScalar& value) override {
    require(value.kind != JsonScalar::Kind::real, "numbers of inequalities are strings");
  }
  void on_open(bool /*object*/) override {}
  void on_close(bool /*object*/) override {}
};

void require_keys(const Json& object, std::initializer_list<std::string_view> names,
                  std::initializer_list<std::string_view> optional) {
  auto next = names.begin();
  for (const auto& [key, value] : object.items()) {
    if (next != names.end() && key == *next) {
      ++next;
    } else {
      require(std::find(optional.begin(), optional.end(), key) != optional.end(),
              "keys are those of the specification, in its order");
    }
  }
  require(next == names.end(), "no key of the specification is missing");
}

double number(const Json& text) {
  const std::string& s = text.get_ref<const std::string&>();
  char* end = nullptr;
  const double value = std::strtod(s.c_str(), &end);
  require(!s.empty() && end == s.c_str() + s.size(), "a number is one");
  require(!std::isnan(value), "no number is NaN");
  require(hex_float(value) == s, "a number has one spelling");
  return value;
}

struct Read {
  std::string outcome;
  double margin = infinity;
  bool has_limit = false, required = false;
};

/// Its outcome and margin, by the page's words.
Read read_claim(const Json& c) {
  require_keys(c,
               {"id", "unit", "kind", "value", "limit", "margin_bits", "outcome", "required",
                "reference", "row", "key", "status"},
               {"note"});
  const double lo = number(c["value"][0]), hi = number(c["value"][1]);
  require(c["value"].size() == 2 && lo <= hi, "an enclosure has its ends in order");
  for (const char* index : {"row", "key"}) {
    require(c[index].is_null() || c[index].is_number_unsigned(), "an index is one or null");
  }
  Read r{"holds", infinity, c["kind"] != "none", c["required"].get<bool>()};
  require(c["limit"].is_null() != r.has_limit && c["margin_bits"].is_null() != r.has_limit,
          "a limit and a margin where there is a kind");
  if (!r.has_limit) {
    require(c["outcome"] == "holds", "a statement holds");
    return r;
  }
  const bool most = c["kind"] == "at-most";
  const double limit = number(c["limit"]);
  require(most || c["kind"] == "at-least", "a kind");
  if (most) {
    r.outcome = hi <= limit ? "holds" : lo > limit ? "fails" : "unknown";
  } else {
    r.outcome = lo >= limit ? "holds" : hi < limit ? "fails" : "unknown";
  }
  require(c["outcome"] == r.outcome, "the outcome follows from value and limit");
  r.margin = number(c["margin_bits"]);
  double end = most ? hi : lo, bound = limit;
  if (c["unit"] != "log2") {
    end = end > 0 ? std::log2(end) : -infinity;
    bound = bound > 0 ? std::log2(bound) : -infinity;
  }
  const double expected = std::isinf(end) && end == bound ? 0 : (most ? bound - end : end - bound);
  const double size = std::max({1.0, std::fabs(bound), std::fabs(end)});
  require(r.margin == expected || std::fabs(r.margin - expected) <= 1e-12 * size,
          "the margin follows from value and limit");
  if (r.outcome == "holds") require(r.margin >= -1e-12 * size, "what holds has room");
  if (c["unit"] == "log2" && r.outcome == "holds") {
    require(r.margin >= 0, "what holds has a margin of 0 or more");
  }
  return r;
}

std::string conjunction(const Json& claims, bool with_accuracy) {
  std::string all = "holds";
  for (const Json& c : claims) {
    const bool accuracy = c["id"] == "mass.lost" || c["id"] == "product.flush" ||
                          c["id"] == "mask.mass" || c["id"] == "output.error" ||
                          c["id"] == "gate.conservative";
    if (!c["required"].get<bool>() || (accuracy && !with_accuracy)) continue;
    if (c["outcome"] == "fails") return "fails";
    if (c["outcome"] == "unknown") all = "unknown";
  }
  return all;
}

void check_verdict(const Json& j) {
  const Json &claims = j["claims"], &gate = j["gate"];
  const std::string verdict = j["verdict"];
  bool fails = false, unknown = false, not_finite = false;
  double least = infinity;  // of the required claims with the deciding outcome
  for (const Json& c : claims) {
    const Read r = read_claim(c);
    fails = fails || (r.required && r.outcome == "fails");
    unknown = unknown || (r.required && r.outcome == "unknown");
    not_finite = not_finite || (c["id"] == "operand.finite" && r.outcome == "fails");
  }
  for (const Json& c : j["refused"]) read_claim(c);
  require(j["safe"] == conjunction(claims, false), "safe follows from the claims");
  require(j["accurate"] == conjunction(claims, true), "accurate follows from the claims");
  const double margin = number(j["margin_bits"]);
  const bool tested = j["policy"] == "fdpp";
  const bool own = tested && !gate.is_null() ? gate["accepts"] == "yes" : j["path"] == j["policy"];
  if (claims.empty()) {  // what the certifier does not cover
    require(verdict == "undecided", "without claims nothing is decided");
    return;
  }
  std::string expected = fails ? "refuted" : unknown ? "undecided" : own ? "certified" : "fallback";
  if (!not_finite && !tested && !gate.is_null() && gate["accepts"] == "unknown") {
    require(verdict == "undecided" && j["binding"] == "gate.conservative",
            "a gate that may go either way leaves the head undecided");
    return;
  }
  if (not_finite) expected = "refuted";
  require(verdict == expected, "the verdict follows from the claims");
  const char* deciding = fails ? "fails" : unknown ? "unknown" : "holds";
  bool bound = false;
  for (const Json& c : claims) {
    const Read r = read_claim(c);
    const std::string id = c["id"];
    if (!r.required || !r.has_limit || r.outcome != deciding) continue;
    if (r.outcome == "holds") {
      if (id == "sum.absorption" || id == "exponent.defined") continue;
      if (id == "score.range" && r.margin > 16) continue;
      if (verdict == "certified" && j["policy"] == "clis" &&
          (id == "exponent.upper" || id == "p.range" || id == "l.range" || id == "o.range" ||
           id == "normalise.range")) {
        continue;
      }
    }
    if (!bound || r.margin < least) {
      least = r.margin;
      require(margin <= r.margin, "the binding claim has the least margin");
    }
    if (r.margin == margin && j["binding"] == id) bound = true;
    least = std::min(least, r.margin);
  }
  require(margin == least, "the margin is the binding claim's");
  require(bound || std::isinf(least), "the binding claim is there");
}

void check_certificate(const std::string& text, const Head& head, const KernelModel& kernel,
                       const CertifyOptions& options, const HeadReport& report) {
  Strict().read(text);
  const Json j = Json::parse(text);
  require_keys(
      j, {"schema",  "toolkit", "kernel",   "policy",  "parameters",  "head",        "gate",
          "values",  "path",    "claims",   "refused", "assumptions", "not_covered", "theorem",
          "verdict", "safe",    "accurate", "reason",  "binding",     "margin_bits", "status"},
      {"bounds", "execution"});
  require(j.contains("execution") == report.execution.has_value(), "an execution is told");
  require(!report.execution || j["verdict"] == "refuted", "an execution refutes");
  require(j["schema"] == "headroom-certificate/1", "the schema");
  require_keys(
      j["head"],
      {"id", "prefix", "layout", "batch", "query_head", "kv_head", "queries", "keys", "channels",
       "value_channels", "mask", "length", "scale", "stored", "cast", "sha256"},
      {"modifiers"});
  require(j["head"].contains("modifiers") == !head.modifiers.none(), "modifiers are told");
  require(parse_kernel(j["kernel"]["text"].get<std::string>(), "text") == kernel,
          "the kernel's text is the kernel");
  require(number(j["parameters"]["eps"]) == options.eps, "eps");
  for (const auto& [name, value] : report.parameters) {
    require(number(j["parameters"][name]) == value, "parameters come back");
  }
  if (!j["gate"].is_null()) {
    require(number(j["gate"]["value"][0]) <= number(j["gate"]["value"][1]), "the gate's ends");
    number(j["gate"]["limit"]);
    number(j["gate"]["C"]);
  }
  for (const char* name : {"query_norm", "key_norm", "radius", "v_magnitude"}) {
    require(j["values"][name].is_null() != report.scanned, "values of heads that were scanned");
    if (report.scanned) require(number(j["values"][name]) >= 0, "norms are not negative");
  }
  require(j["claims"].size() == report.claims.size(), "every claim is written");
  for (std::size_t i = 0; i < report.claims.size(); ++i) {
    const Json& c = j["claims"][i];
    require(number(c["value"][0]) == report.claims[i].value.lo() &&
                number(c["value"][1]) == report.claims[i].value.hi(),
            "values come back");
    require(c["limit"].is_null() || number(c["limit"]) == report.claims[i].limit,
            "limits come back");
  }
  require(j["status"] == (j["assumptions"].empty() ? "enclosed" : "assumed"), "the status");
  require(j["reason"].get<std::string>().find('\n') == std::string::npos, "a reason is one line");
  check_verdict(j);
}

}  // namespace
}  // namespace headroom::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headroom;
  // many threads reserve more addresses than a replay is allowed
  using oneapi::tbb::global_control;
  static const global_control one_thread(global_control::max_allowed_parallelism, 1);
  fuzz::Source source(data, size);
  const std::optional<KernelModel> kernel = fuzz::kernel_of(source);
  if (!kernel) return 0;
  CertifyOptions options = fuzz::options_of(source);
  const Head head = fuzz::head_of(source, *kernel);
  try {
    head.modifiers.validate(head.visibility, "f:0");
    complete_parameters(options.policy, *kernel, options.parameters);
  } catch (const InputError& error) {
    fuzz::require(std::string(error.what()).find('\n') == std::string::npos, "an error is a line");
    return 0;
  }
  const HeadReport report = certify_head(head, *kernel, options);
  const std::string text = certificate_json(head, *kernel, options, report);
  fuzz::check_certificate(text, head, *kernel, options, report);
  fuzz::require(
      certificate_json(head, *kernel, options, certify_head(head, *kernel, options)) == text,
      "the same head gives the same text");
  return 0;
}
