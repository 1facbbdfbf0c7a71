#include "reference/model/kernel_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <stdexcept>

#include "reference/format/convert.h"
#include "reference/input_error.h"

namespace headroom {
namespace {

// Limits of counts in a model: far above any kernel, small enough that products of two fit an int64
// and that loops over one end.
constexpr int max_count = 1 << 20;
constexpr int max_fraction_bits = 64;
constexpr std::size_t max_name = 100;
constexpr std::size_t max_text = 2000;

bool is_printable(const std::string& text, std::size_t longest) {
  return text.size() <= longest && std::none_of(text.begin(), text.end(), [](char c) {
           return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
         });
}

bool is_identifier(const std::string& text) {
  return !text.empty() && text.size() <= max_name &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
         });
}

/// Collects the first problem; later checks are skipped once one is found.
class Checker {
 public:
  std::optional<ModelProblem> take() { return std::move(problem_); }

  void require(bool holds, std::vector<std::string> keys, std::string found, std::string expected) {
    if (!holds && !problem_) {
      problem_ = ModelProblem{std::move(keys), std::move(found), std::move(expected)};
    }
  }

  void format(const std::string& key, const Format& f) {
    const std::vector<const Format*> formats = formats_of_key(key);
    const bool known =
        std::any_of(formats.begin(), formats.end(), [&](const Format* a) { return *a == f; });
    std::string list;
    for (const Format* a : formats) list += (list.empty() ? "" : ", ") + std::string(a->name);
    require(known, {key}, std::string(f.name), "one of " + list);
  }

  void count(const std::string& key, int value, int least, int most = max_count) {
    require(value >= least && value <= most, {key}, std::to_string(value),
            fmt::format("an integer from {} to {}", least, most));
  }

  void accumulator(const std::string& section, const Accumulator& a) {
    format(section + ".accumulator", a.format);
    const std::string key = section + ".order";
    const AccumulationOrder& o = a.order;
    const std::string text = to_text(o);
    const bool sized =
        o.kind == OrderKind::tile || o.kind == OrderKind::lanes || o.kind == OrderKind::matrix_unit;
    if (sized) {
      require(o.size >= 1 && o.size <= max_count, {key}, text,
              fmt::format("a size from 1 to {}", max_count));
    } else {
      require(o.size == 0, {key}, text + fmt::format(" with size {}", o.size), "no size");
    }
    if (o.kind == OrderKind::matrix_unit) {
      require(o.fraction_bits >= 1 && o.fraction_bits <= max_fraction_bits, {key}, text,
              fmt::format("from 1 to {} fraction bits", max_fraction_bits));
      require(a.format == fp32, {section + ".accumulator", key},
              fmt::format("{} with {}", a.format.name, text), "fp32 with matrix-unit");
      require(!a.rounded_products, {section + ".rounded_products", key},
              "rounded_products = true with " + text, "false: a matrix unit adds exact products");
    } else {
      require(o.fraction_bits == 0, {key},
              text + fmt::format(" with {} fraction bits", o.fraction_bits), "none");
    }
  }

  void ulps(const std::string& key, double value, const Format& result) {
    // An error of 2^(p-1) ulps is all of the result: nothing is promised.
    const double limit = std::ldexp(1.0, result.precision - 1);
    require(value >= 0.5 && value < limit, {key}, fmt::format("{}", value),
            fmt::format("at least 0.5 and less than {} ulps", limit));
  }

  void positive_fp32(const std::string& key, double value) {
    const bool fits = value > 0 && value <= fp32.max_finite() &&
                      static_cast<double>(static_cast<float>(value)) == value;
    require(fits, {key}, fmt::format("{} ({:a})", value, value),
            value > 0 && value <= fp32.max_finite()
                ? fmt::format("a number that fp32 holds, such as \"{:a}\"",
                              static_cast<double>(static_cast<float>(value)))
                : "a positive number that fp32 holds");
  }

  void evidence(const std::string& section, Evidence e, const std::string& source) {
    require(is_printable(source, max_text), {section + ".source"}, "unprintable or overlong text",
            fmt::format("at most {} printable bytes", max_text));
    require(e == Evidence::assumed || !source.empty(), {section + ".evidence", section + ".source"},
            to_text(e) + " without a source", "a source, or evidence = \"assumed\"");
  }

 private:
  std::optional<ModelProblem> problem_;
};

bool is_fa4_polynomial(const std::string& name) {
  return name.size() == 9 && name.starts_with("fa4-poly") && name[8] >= '1' && name[8] <= '5';
}

bool is_number_of(const Format& format, double x) {
  return std::isfinite(x) && round_to(format, x) == x;
}

void check_exp2(Checker& check, const Exp2Unit& unit) {
  check.format("exp2.result", unit.result);
  check.ulps("exp2.max_error_ulps", unit.max_error_ulps, unit.result);
  const std::string found = fmt::format("{} ulps with unit {}", unit.max_error_ulps, unit.name);
  if (unit.name == "correctly-rounded") {
    check.require(unit.max_error_ulps == 0.5, {"exp2.max_error_ulps", "exp2.unit"}, found,
                  "0.5 ulps, or another unit");
    check.require(unit.monotone_at_integers, {"exp2.monotone_at_integers", "exp2.unit"},
                  "false with unit correctly-rounded", "true: 2^k is representable");
  } else if (unit.name == "ex2.approx.ftz") {
    check.require(unit.result == fp32, {"exp2.result", "exp2.unit"},
                  std::string(unit.result.name) + " with unit ex2.approx.ftz", "fp32");
    check.require(unit.flush_to_zero, {"exp2.flush_to_zero", "exp2.unit"},
                  "false with unit ex2.approx.ftz", "true");
    check.require(unit.max_error_ulps == 2.5, {"exp2.max_error_ulps", "exp2.unit"}, found,
                  "2.5 ulps, or unit \"ulp:K\"");
  } else if (unit.name.starts_with("ulp:")) {
    check.require(unit.name == ulp_unit_name(unit.max_error_ulps),
                  {"exp2.max_error_ulps", "exp2.unit"}, found,
                  "unit \"" + ulp_unit_name(unit.max_error_ulps) + "\"");
  } else if (is_fa4_polynomial(unit.name)) {
    check.require(unit.result == fp32, {"exp2.result", "exp2.unit"},
                  std::string(unit.result.name) + " with unit " + unit.name, "fp32");
    check.require(!unit.propagates_nan, {"exp2.propagates_nan", "exp2.unit"},
                  "true with unit " + unit.name, "false: it takes NaN for -127");
  } else {
    check.require(false, {"exp2.unit"}, "\"" + unit.name + "\"",
                  "correctly-rounded, ulp:K, ex2.approx.ftz or fa4-poly1 to 5");
  }
  check.require(unit.floor == 0 || (unit.floor > 0 && is_number_of(unit.result, unit.floor)),
                {"exp2.floor", "exp2.result"}, fmt::format("{:a}", unit.floor),
                fmt::format("0 or a positive number of {}", unit.result.name));
  check.evidence("exp2", unit.evidence, unit.source);
}

void check_normalisation(Checker& check, const Normalisation& n) {
  check.format("normalise.output", n.output);
  check.ulps("normalise.reciprocal_max_error_ulps", n.reciprocal_max_error_ulps, fp32);
  if (n.guard == DenominatorGuard::maximum) {
    check.positive_fp32("normalise.guard_value", n.guard_value);
  } else {
    check.require(n.guard_value == 0 && !std::signbit(n.guard_value),
                  {"normalise.guard_value", "normalise.guard"},
                  fmt::format("{} with guard {}", n.guard_value, to_text(n.guard)),
                  "0, or guard = \"maximum\"");
  }
  check.evidence("normalise", n.evidence, n.source);
}

void check_facts(Checker& check, const std::vector<MachineFact>& facts) {
  std::set<std::string> seen;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    const MachineFact& fact = facts[i];
    const std::string section = fmt::format("fact[{}]", i);
    check.require(is_identifier(fact.id), {section + ".id"}, "\"" + fact.id + "\"",
                  "letters a-z, digits, '.' and '-'");
    check.require(seen.insert(fact.id).second, {section + ".id"}, "\"" + fact.id + "\" twice",
                  "one fact an id");
    check.require(!fact.text.empty() && is_printable(fact.text, max_text), {section + ".text"},
                  fact.text.empty() ? "nothing" : "unprintable or overlong text",
                  fmt::format("1 to {} printable bytes", max_text));
    check.evidence(section, fact.evidence, fact.source);
  }
}

}  // namespace

std::string to_text(Evidence e) {
  switch (e) {
    case Evidence::measured:
      return "measured";
    case Evidence::documented:
      return "documented";
    case Evidence::assumed:
      return "assumed";
  }
  return "?";
}

std::string to_text(FactorSite site) {
  switch (site) {
    case FactorSite::query:
      return "query";
    case FactorSite::key:
      return "key";
    case FactorSite::score:
      return "score";
  }
  return "?";
}

std::string to_text(Centring keys) {
  switch (keys) {
    case Centring::none:
      return "none";
    case Centring::mean:
      return "mean";
    case Centring::virtual_:
      return "virtual";
  }
  return "?";
}

std::string to_text(Division division) {
  return division == Division::divide ? "divide" : "reciprocal";
}

std::string to_text(DenominatorGuard guard) {
  switch (guard) {
    case DenominatorGuard::none:
      return "none";
    case DenominatorGuard::zero_to_one:
      return "zero-to-one";
    case DenominatorGuard::zero_to_zero:
      return "zero-to-zero";
    case DenominatorGuard::maximum:
      return "maximum";
  }
  return "?";
}

std::string to_text(GateSides sides) {
  return sides == GateSides::two_sided ? "two-sided" : "one-sided";
}

std::string to_text(GateUnit unit) { return unit == GateUnit::head ? "head" : "head-over-batch"; }

std::string to_text(Padding padding) {
  switch (padding) {
    case Padding::sliced:
      return "sliced";
    case Padding::masked:
      return "masked";
    case Padding::zero_keys:
      return "zero-keys";
  }
  return "?";
}

std::string to_text(EmptyRowRule rule) {
  switch (rule) {
    case EmptyRowRule::zero:
      return "zero";
    case EmptyRowRule::zero_pos_inf:
      return "zero-pos-inf";
    case EmptyRowRule::mean_of_visited:
      return "mean-of-visited";
    case EmptyRowRule::nan:
      return "nan";
  }
  return "?";
}

std::string to_text(SoftcapFormula formula) {
  switch (formula) {
    case SoftcapFormula::tanh:
      return "tanh";
    case SoftcapFormula::exp_ratio:
      return "exp-ratio";
    case SoftcapFormula::logistic:
      return "logistic";
  }
  return "?";
}

std::string to_text(MaskForm form) { return form == MaskForm::select ? "select" : "additive"; }

std::string to_text(SinkPlace place) { return place == SinkPlace::end ? "end" : "start"; }

std::string to_text(ExponentBase base) { return base == ExponentBase::two ? "2" : "e"; }

std::string to_text(MergeRule rule) {
  switch (rule) {
    case MergeRule::lse:
      return "lse";
    case MergeRule::lse_naive:
      return "lse-naive";
    case MergeRule::lse_log1p:
      return "lse-log1p";
    case MergeRule::accumulate:
      return "accumulate";
  }
  return "?";
}

std::string to_text(const AccumulationOrder& order) {
  switch (order.kind) {
    case OrderKind::sequential:
      return "sequential";
    case OrderKind::tile:
      return fmt::format("tile:{}", order.size);
    case OrderKind::pairwise:
      return "pairwise";
    case OrderKind::lanes:
      return fmt::format("lanes:{}", order.size);
    case OrderKind::matrix_unit:
      return fmt::format("matrix-unit:{}:{}", order.fraction_bits, order.size);
    case OrderKind::any:
      return "any";
  }
  return "?";
}

AccumulationOrder parse_order(const std::string& text) {
  const auto fail = [&] [[noreturn]] () {
    throw std::invalid_argument("sequential, tile:N, pairwise, lanes:N, matrix-unit:F:k or any");
  };
  if (text == "sequential") return {OrderKind::sequential};
  if (text == "pairwise") return {OrderKind::pairwise};
  if (text == "any") return {OrderKind::any};
  // One spelling a number (no sign, no leading zero), so that equal models have equal text.
  const auto number = [&](std::string_view digits) {
    int value = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (error != std::errc() || stop != end || value < 1 || value > max_count ||
        digits.front() == '0') {
      fail();
    }
    return value;
  };
  const std::string_view view = text;
  if (view.starts_with("tile:")) return {OrderKind::tile, number(view.substr(5))};
  if (view.starts_with("lanes:")) return {OrderKind::lanes, number(view.substr(6))};
  if (view.starts_with("matrix-unit:")) {
    const std::string_view rest = view.substr(12);
    const std::size_t colon = rest.find(':');
    if (colon == std::string_view::npos) fail();
    return {OrderKind::matrix_unit, number(rest.substr(colon + 1)), number(rest.substr(0, colon))};
  }
  fail();
}

std::string ulp_unit_name(double ulps) {
  // At most 15 digits are needed for sixteenths in range, so the shortest decimal is exact; any
  // other decimal would be read back rounded up.
  const bool short_decimal = std::fabs(ulps) < 0x1p23 && ulps * 16 == std::trunc(ulps * 16);
  return short_decimal ? fmt::format("ulp:{}", ulps) : fmt::format("ulp:{:a}", ulps);
}

std::vector<const Format*> formats_of_key(const std::string& key) {
  if (key == "p.format") return {&fp32, &tf32, &fp16, &bf16, &e4m3fn, &e5m2};
  return {&fp32, &fp16, &bf16};
}

std::optional<Exp2Unit> fa4_polynomial(const std::string& name) {
  if (!is_fa4_polynomial(name)) return std::nullopt;
  // Upper bounds over all numbers of FP32 in [-126, 128), by `headroom exp2`: 650142 (the supremum
  // toward -0), 34460 (likewise), 1429.9, 48.93 and 2.552 ulps; docs/exp2.md.
  constexpr double ulps[] = {650142, 34460, 1430, 49, 2.5625};
  Exp2Unit unit;
  unit.name = name;
  unit.result = fp32;
  unit.max_error_ulps = ulps[name[8] - '1'];
  unit.flush_to_zero = true;
  unit.monotone_at_integers = true;
  unit.propagates_nan = false;
  unit.evidence = Evidence::measured;
  unit.source = "headroom exp2: every number of FP32 from -126 to below 128, see docs/exp2.md";
  return unit;
}

std::vector<std::string> simulated_only(const KernelModel& m) {
  std::vector<std::string> keys;
  const auto list = [&](bool differs, const std::string& key, const std::string& value) {
    if (differs) keys.push_back(key + " = " + value);
  };
  // Subnormal operands that are read as zeros: score_error() has room for them where the sum
  // flushes; terms of l and weights of O must not be subnormal (values are looked at head by head).
  const Accumulator& score = m.score.accumulator;
  list(score.denormals_are_zero && !(score.flush_to_zero && m.operand.emin <= score.format.emin &&
                                     (m.centring.keys != Centring::mean ||
                                      m.centring.difference.emin <= score.format.emin)),
       "score.denormals_are_zero", "true");
  const bool whole_terms = m.p.denominator_rounded ? m.p.flush_to_zero : m.exp2.flush_to_zero;
  list(m.denominator.denormals_are_zero && !whole_terms, "denominator.denormals_are_zero", "true");
  list(m.numerator.denormals_are_zero && !m.p.flush_to_zero, "numerator.denormals_are_zero",
       "true");
  list(m.score.softcap != SoftcapFormula::tanh, "score.softcap", to_text(m.score.softcap));
  list(m.sink != SinkPlace::end, "sink.place", to_text(m.sink));
  list(m.exponent.base != ExponentBase::two, "exponent.base", to_text(m.exponent.base));
  list(is_fa4_polynomial(m.exp2.name), "exp2.unit", m.exp2.name);
  list(m.exp2.floor != 0, "exp2.floor", fmt::format("{:a}", m.exp2.floor));
  list(m.normalise.every_tile, "normalise.every_tile", "true");
  list(m.split.parts != 1 && m.split.merge == MergeRule::accumulate, "split.merge",
       to_text(m.split.merge));
  list(m.split.parts != 1 && m.normalise.every_tile, "split.parts", std::to_string(m.split.parts));
  return keys;
}

std::optional<ModelProblem> find_problem(const KernelModel& m) {
  Checker check;
  for (const auto& [key, text] :
       {std::pair<std::string, const std::string&>{"name", m.name},
        std::pair<std::string, const std::string&>{"machine", m.machine}}) {
    check.require(!text.empty() && is_printable(text, max_name), {key},
                  text.empty() ? "nothing" : "unprintable or overlong text",
                  fmt::format("1 to {} printable bytes", max_name));
  }
  check.format("operand", m.operand);
  check.format("scale.constant", m.scale.constant);
  check.format("scale.arithmetic", m.scale.arithmetic);
  check.format("centring.mean", m.centring.mean);
  check.format("centring.difference", m.centring.difference);
  check.accumulator("score", m.score.accumulator);
  check.format("score.store", m.score.store);
  check.format("exponent.format", m.exponent.format);
  if (m.exponent.fused) {
    check.require(m.scale.scale == FactorSite::score || m.scale.log2e == FactorSite::score,
                  {"exponent.fused", "scale.scale", "scale.log2e"},
                  "true with no factor at the score",
                  "[exponent] fused = false, or a factor at site \"score\"");
    check.require(!m.score.scale_before_store, {"exponent.fused", "score.scale_before_store"},
                  "true with score.scale_before_store = true",
                  "one of them: fma(s, c, -mu) multiplies the stored score");
  }
  check_exp2(check, m.exp2);
  check.format("p.format", m.p.format);
  check.accumulator("denominator", m.denominator);
  check.accumulator("numerator", m.numerator);
  check_normalisation(check, m.normalise);
  check.format("stabilizer.norm", m.stabilizer.norm);
  check.format("stabilizer.store", m.stabilizer.store);
  check.positive_fp32("gate.vmax", m.gate.vmax);
  check.count("gate.query_block", m.gate.query_block, 0);
  check.count("tiles.keys", m.tiles.keys, 1);
  check.count("tiles.queries", m.tiles.queries, 1);
  check.count("split.parts", m.split.parts, 1, max_split_parts);
  // the stored score may be a narrower format than FP32; a mask value that it cannot hold is
  // rounded when it is applied, as a kernel's conversion would
  check.require(!std::isnan(m.mask.value) && m.mask.value < 0 &&
                    (std::isinf(m.mask.value) || is_number_of(fp32, m.mask.value)),
                {"mask.value"}, fmt::format("{:a}", m.mask.value),
                "-inf or a negative number that fp32 holds");
  if (m.exponent.base == ExponentBase::e) {
    check.require(m.scale.log2e == m.scale.scale, {"exponent.base", "scale.log2e", "scale.scale"},
                  "e with log2(e) at a site of its own",
                  "both at one site: base e multiplies no log2(e)");
  }
  check_facts(check, m.facts);
  return check.take();
}

void validate(const KernelModel& model) {
  if (const std::optional<ModelProblem> problem = find_problem(model)) {
    throw InputError(fmt::format("kernel {}: {}: found {}, expected {}", model.name,
                                 problem->keys.front(), problem->found, problem->expected));
  }
}

}  // namespace headroom
