// headroom limits: where exp2 overflows and dies, and what accumulators admit, for every format.
#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/table.h"
#include "reference/format/convert.h"
#include "reference/format/exp2_limits.h"
#include "reference/format/format.h"
#include "reference/input_error.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string format;
  std::string argument = "fp32";
  std::vector<std::uint64_t> keys{4096, 75600, 262144};
  int value_exponent = 0;
  bool json = false;
};

std::string known_formats() {
  std::string names;
  for (const Format* f : all_formats) names += (names.empty() ? "" : ", ") + std::string(f->name);
  return names;
}

const Format& named_format(const std::string& option, const std::string& name) {
  const Format* found = find_format(name);
  if (found == nullptr) {
    throw InputError(fmt::format("{}: unknown format '{}'; known formats: {}", option,
                                 printable(name), known_formats()));
  }
  return *found;
}

/// What is wrong with a number of keys, or nothing. CLI11's own check answers with the range of
/// doubles, spelled out.
std::string positive_integer(const std::string& text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && value > 0) return "";
  return fmt::format("found '{}', expected an integer from 1", printable(text));
}

std::string code_text(const Format& f, std::uint64_t code) {
  return fmt::format("0x{:0{}x}", code, (f.bits() + 3) / 4);
}

// An argument of exp2 as its decimal value, hexadecimal value and code.
Json argument_json(const Format& f, std::optional<std::uint64_t> code) {
  if (!code) return nullptr;
  const double value = decode(f, *code);
  return {{"value", value}, {"hex", fmt::format("{:a}", value)}, {"code", code_text(f, *code)}};
}

Json number_json(const Format& f, std::uint64_t code) { return argument_json(f, code); }

Json threshold_json(const ResultThreshold& t) {
  return {{"significand", t.significand},
          {"exponent", t.exponent},
          {"includes_equality", t.includes_equality},
          {"log2_lower", fmt::format("{:a}", t.log2_lower)},
          {"log2_upper", fmt::format("{:a}", t.log2_upper)}};
}

std::uint64_t least_normal_code(const Format& f) { return std::uint64_t{1} << f.trailing_bits(); }

Json format_json(const Format& f) {
  const Log2Enclosure log2 = log2_largest_finite(f);
  return {
      {"format", std::string(f.name)},
      {"bits", f.bits()},
      {"precision", f.precision},
      {"emin", f.emin},
      {"emax", f.emax},
      {"infinity", f.has_infinity()},
      {"nan", f.has_nan()},
      {"largest_finite", number_json(f, f.max_finite_code())},
      {"smallest_normal", number_json(f, least_normal_code(f))},
      {"smallest_subnormal", number_json(f, 1)},
      {"log2_largest_finite",
       {{"lower", fmt::format("{:a}", log2.lower)}, {"upper", fmt::format("{:a}", log2.upper)}}}};
}

Json exp2_json(const Format& result, const Format& argument, bool flush) {
  const Exp2Thresholds t = exp2_thresholds(result, flush);
  const Exp2Limits limits = exp2_limits(argument, result, flush);
  return {{"flush_to_zero", flush},
          {"thresholds",
           {{"overflow", threshold_json(t.overflow)},
            {"normal", threshold_json(t.normal)},
            {"nonzero", threshold_json(t.nonzero)}}},
          {"largest_finite", argument_json(argument, limits.largest_finite)},
          {"smallest_overflow", argument_json(argument, limits.smallest_overflow)},
          {"smallest_normal", argument_json(argument, limits.smallest_normal)},
          {"largest_below_normal", argument_json(argument, limits.largest_below_normal)},
          {"smallest_nonzero", argument_json(argument, limits.smallest_nonzero)},
          {"largest_zero", argument_json(argument, limits.largest_zero)}};
}

// Accumulators are wide or IEEE: E4M3FN and E2M1 are storage formats only.
bool is_accumulator(const Format& f) { return f.specials == Specials::ieee; }

Json accumulator_json(const Format& f, const Format& exp2_result, const Options& options) {
  Json rows = Json::array();
  for (const std::uint64_t keys : options.keys) {
    const StabilizerExponent c =
        largest_stabilizer_exponent(exp2_result, f, keys, options.value_exponent);
    rows.push_back({{"keys", keys},
                    {"value_exponent", options.value_exponent},
                    {"exp2_format", std::string(exp2_result.name)},
                    {"published", c.published},
                    {"published_sound_to_nearest", c.published_is_sound_to_nearest},
                    {"tight", c.tight ? Json(*c.tight) : Json(nullptr)}});
  }
  return rows;
}

void print_json(const std::vector<const Format*>& formats, const Format& argument,
                const Options& options) {
  Json document = {{"schema", "headroom-limits-1"},
                   {"argument", std::string(argument.name)},
                   {"formats", Json::array()}};
  for (const Format* f : formats) {
    Json entry = format_json(*f);
    entry["exp2"] = {exp2_json(*f, argument, false), exp2_json(*f, argument, true)};
    if (is_accumulator(*f)) entry["accumulator"] = accumulator_json(*f, argument, options);
    document["formats"].push_back(std::move(entry));
  }
  fmt::print("{}\n", document.dump(2));
}

std::string decimal(double value) { return fmt::format("{:.10g}", value); }

Table format_table(const std::vector<const Format*>& formats) {
  Table table({{"format"},
               {"bits", Align::right},
               {"precision", Align::right},
               {"largest finite", Align::right},
               {"hex"},
               {"code"},
               {"smallest normal"},
               {"smallest subnormal"},
               {"specials"}});
  for (const Format* f : formats) {
    const std::string specials = f->has_infinity() ? "Inf, NaN" : f->has_nan() ? "NaN" : "none";
    table.add_row({std::string(f->name), std::to_string(f->bits()), std::to_string(f->precision),
                   decimal(f->max_finite()), fmt::format("{:a}", f->max_finite()),
                   code_text(*f, f->max_finite_code()), fmt::format("2^{}", f->emin),
                   fmt::format("2^{}", f->least_exponent()), specials});
  }
  return table;
}

// "x >= 15.9996477365", with the digits on which both ends of the enclosure agree.
std::string threshold_text(const ResultThreshold& t) {
  const char* relation = t.includes_equality ? ">=" : ">";
  if (t.log2_lower == t.log2_upper) return fmt::format("x {} {:g}", relation, t.log2_lower);
  for (int digits = 10; digits > 0; --digits) {
    const std::string lower = fmt::format("{:.{}f}", t.log2_lower, digits);
    if (lower == fmt::format("{:.{}f}", t.log2_upper, digits)) {
      return fmt::format("x {} {}", relation, lower);
    }
  }
  return fmt::format("x {} {}", relation, t.log2_lower);
}

Table exp2_table(const std::vector<const Format*>& formats, const Format& argument) {
  Table table({{"exp2 to"},
               {"below normal"},
               {"exp2(x) is"},
               {"for real x, to 10 digits"},
               {"code of x"},
               {"x", Align::right},
               {"x in hex"}});
  for (const Format* f : formats) {
    for (const bool flush : {false, true}) {
      const Exp2Thresholds t = exp2_thresholds(*f, flush);
      const Exp2Limits limits = exp2_limits(argument, *f, flush);
      const auto add = [&](const char* kind, const std::string& real,
                           std::optional<std::uint64_t> code) {
        const std::string name(f->name);
        const char* mode = flush ? "flushed" : "gradual";
        if (!code) {
          table.add_row({name, mode, kind, real, "-", fmt::format("no {}", argument.name), "-"});
          return;
        }
        const double value = decode(argument, *code);
        table.add_row({name, mode, kind, real, code_text(argument, *code), fmt::format("{}", value),
                       fmt::format("{:a}", value)});
      };
      if (!flush) {
        add("finite up to", "", limits.largest_finite);
        add("overflow from", threshold_text(t.overflow), limits.smallest_overflow);
      }
      add("normal from", threshold_text(t.normal), limits.smallest_normal);
      if (!flush) add("nonzero from", threshold_text(t.nonzero), limits.smallest_nonzero);
      add("zero up to", "", limits.largest_zero);
    }
  }
  return table;
}

Table accumulator_table(const std::vector<const Format*>& formats, const Format& exp2_result,
                        const Options& options) {
  Table table({{"accumulator"},
               {"log2 largest finite", Align::right},
               {"keys", Align::right},
               {"C, Algorithm 1", Align::right},
               {"sound to nearest"},
               {"C, tight", Align::right}});
  for (const Format* f : formats) {
    if (!is_accumulator(*f)) continue;
    for (const std::uint64_t keys : options.keys) {
      const StabilizerExponent c =
          largest_stabilizer_exponent(exp2_result, *f, keys, options.value_exponent);
      table.add_row({std::string(f->name),
                     fmt::format("{:.10f}", log2_largest_finite(*f).lower),
                     std::to_string(keys),
                     std::to_string(c.published),
                     {c.published_is_sound_to_nearest ? "yes" : "no",
                      c.published_is_sound_to_nearest ? Tone::plain : Tone::bad},
                     c.tight ? std::to_string(*c.tight) : "-"});
    }
  }
  return table;
}

void print_tables(const std::vector<const Format*>& formats, const Format& argument,
                  const Options& options) {
  const bool colour = colour_wanted(stdout);
  fmt::print("Formats\n{}", format_table(formats).render(colour));
  fmt::print("\nCorrectly rounded exp2 of {} arguments (to nearest, ties to even)\n{}",
             argument.name, exp2_table(formats, argument).render(colour));
  const Table accumulators = accumulator_table(formats, argument, options);
  if (accumulators.row_count() == 0) return;
  fmt::print(
      "\nLargest stabilizer exponent C for |V| <= 2^{} and exp2 results in {}\n{}"
      "Algorithm 1: C + ceil(log2 N) + G < emax + 1. Tight: C + floor(log2 N) + G < emax + 1,\n"
      "any order and rounding, while N <= 2^precision. Both before reciprocals that flush.\n",
      options.value_exponent, argument.name, accumulators.render(colour));
}

void run(const Options& options) {
  std::vector<const Format*> formats(std::begin(all_formats), std::end(all_formats));
  if (!options.format.empty()) formats = {&named_format("--format", options.format)};
  const Format& argument = named_format("--argument", options.argument);
  if (options.json) {
    print_json(formats, argument, options);
  } else {
    print_tables(formats, argument, options);
  }
}

}  // namespace

void add_limits(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "limits",
      "Exact limits of exp2 and of accumulators, derived from the formats'\n"
      "parameters: where a correctly rounded exp2 overflows, stops being normal and\n"
      "becomes zero, and the largest stabilizer exponent C for a number of keys.");
  command->add_option("--format", options->format, "Result format (default: all)")
      ->type_name("FORMAT");
  command
      ->add_option("--argument", options->argument,
                   "Format of exp2's argument, and of exp2's result where sums are bounded")
      ->type_name("FORMAT")
      ->capture_default_str();
  command->add_option("--keys", options->keys, "Numbers of keys N for the accumulator limits")
      ->type_name("N")
      ->delimiter(',')
      ->check(positive_integer)  // an unsigned number would take -4 for 2^64 - 4
      ->capture_default_str();
  command
      ->add_option("--value-exponent", options->value_exponent,
                   "G = ceil(log2 max(1, max|V|)) for the accumulator limits")
      ->type_name("G")
      ->check(CLI::Range(0, fp64.emax + 1))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON for programs");
  command->footer("Formats: " + known_formats() +
                  "\n"
                  "Examples:\n"
                  "  headroom limits                                   every format\n"
                  "  headroom limits --format bf16 --argument bf16     a bf16 exp2 unit\n"
                  "  headroom limits --format fp32 --keys 75600 --value-exponent 3\n"
                  "  headroom limits --format e4m3fn --json            for programs");
  command->callback([options, &exit_code] {
    run(*options);
    exit_code = 0;
  });
}

}  // namespace headroom::cli
