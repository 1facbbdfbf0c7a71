// headroom exp2: what an exponential unit does over every argument of a format.
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "reference/evaluate/simulate/exp2_check.h"
#include "reference/format/format.h"
#include "reference/input_error.h"
#include "reference/model/kernel_file.h"
#include "reference/model/kernel_model.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int exit_kept = 0;
constexpr int exit_broken = 1;

struct Options {
  std::string unit, format = "fp32", result, base = "2", choice = "nearest";
  bool flush = false, monotone = false, json = false;
  std::uint64_t seed = 0;
};

const Format& stage_format(const std::string& option, const std::string& name) {
  for (const Format* f : {&bf16, &fp16, &fp32}) {
    if (f->name == name) return *f;
  }
  throw InputError(
      fmt::format("{}: found '{}', expected bf16, fp16 or fp32", option, printable(name)));
}

template <class T>
T one_of(const std::string& option, const std::string& name,
         const std::vector<std::pair<std::string, T>>& known) {
  std::string names;
  for (const auto& [known_name, value] : known) {
    if (known_name == name) return value;
    names += (names.empty() ? "" : ", ") + known_name;
  }
  throw InputError(
      fmt::format("{}: found '{}', expected one of: {}", option, printable(name), names));
}

/// The unit that --unit and the options beside it describe.
Exp2Unit described_unit(const Options& options) {
  const auto wrong = [&] {
    return InputError(fmt::format(
        "--unit: found '{}', expected correctly-rounded, ulp:K (K from 0.5), ex2.approx.ftz or "
        "fa4-poly1 to fa4-poly5",
        printable(options.unit)));
  };
  Exp2Unit unit;
  unit.name = options.unit;
  bool fixed = true;  // the name says everything
  if (const std::optional<Exp2Unit> polynomial = fa4_polynomial(options.unit)) {
    unit = *polynomial;
  } else if (options.unit == "ex2.approx.ftz") {
    unit = preset("hopper").exp2;
  } else {
    fixed = false;
    unit.result =
        stage_format("--result", options.result.empty() ? options.format : options.result);
    unit.flush_to_zero = options.flush;
    if (options.unit.starts_with("ulp:")) {
      const std::string number = options.unit.substr(4);
      std::size_t used = 0;
      try {
        unit.max_error_ulps = std::stod(number, &used);
      } catch (const std::exception&) {
        throw wrong();
      }
      const double limit = std::ldexp(1.0, unit.result.precision - 1);
      if (used != number.size() || !(unit.max_error_ulps >= 0.5)) throw wrong();
      if (unit.max_error_ulps >= limit) {
        throw InputError(fmt::format("--unit: found '{}', expected fewer than {} ulps of {}",
                                     printable(options.unit), limit, unit.result.name));
      }
      unit.monotone_at_integers = options.monotone || unit.max_error_ulps == 0.5;
    } else if (options.unit != "correctly-rounded") {
      throw wrong();
    }
  }
  if (fixed && (!options.result.empty() || options.flush || options.monotone)) {
    throw InputError(
        fmt::format("{}: found with unit {}, expected only with correctly-rounded or ulp:K",
                    !options.result.empty() ? "--result"
                    : options.flush         ? "--flush-to-zero"
                                            : "--monotone",
                    unit.name));
  }
  if (options.monotone && !options.unit.starts_with("ulp:")) {
    throw InputError("--monotone: found with unit " + unit.name + ", expected only with ulp:K");
  }
  return unit;
}

std::string decimal(float x) { return fmt::format("{:.9g}", x); }
std::string hex(float x) { return fmt::format("{:a}", x); }

Json answer_json(const Answer& a) { return {{"x", hex(a.x)}, {"result", hex(a.y)}}; }
Json answer_json(const std::optional<Answer>& a) { return a ? answer_json(*a) : Json(nullptr); }
Json occurrences_json(const Occurrences& o) {
  return {{"count", o.count}, {"first", o.count == 0 ? Json(nullptr) : answer_json(o.first)}};
}

void print_json(const Exp2Unit& unit, const Options& options, const Exp2Report& r) {
  const auto edge = [](const std::optional<float>& x) { return x ? Json(hex(*x)) : Json(nullptr); };
  const Json document = {{"schema", "headroom-exp2-1"},
                         {"unit", unit.name},
                         {"base", options.base},
                         {"argument", options.format},
                         {"result", std::string(unit.result.name)},
                         {"choice", options.choice},
                         {"promise",
                          {{"max_error_ulps", unit.max_error_ulps},
                           {"flush_to_zero", unit.flush_to_zero},
                           {"monotone_at_integers", unit.monotone_at_integers},
                           {"propagates_nan", unit.propagates_nan}}},
                         {"arguments", r.arguments},
                         {"largest_error",
                          {{"ulps", r.error_ulps},
                           {"at_ulps", answer_json(r.at_ulps)},
                           {"relative", r.relative_error},
                           {"at_relative", answer_json(r.at_relative)}}},
                         {"zero", answer_json(r.zero)},
                         {"minus_infinity", answer_json(r.minus_infinity)},
                         {"plus_infinity", answer_json(r.plus_infinity)},
                         {"nan", answer_json(r.nan)},
                         {"overflow_from", answer_json(r.overflow)},
                         {"zero_up_to", answer_json(r.last_zero)},
                         {"normal_from", answer_json(r.first_normal)},
                         {"decreasing", occurrences_json(r.decreasing)},
                         {"inexact_at_integers", occurrences_json(r.inexact)},
                         {"beyond_powers", occurrences_json(r.beyond_power)},
                         {"negative", occurrences_json(r.negative)},
                         {"not_finite", occurrences_json(r.not_finite)},
                         {"broken", occurrences_json(r.broken)},
                         {"nan_kept", r.nan_kept},
                         {"kept_from", edge(r.first_kept)},
                         {"kept_to", edge(r.last_kept)},
                         {"kept", r.kept()}};
  fmt::print("{}\n", document.dump(2));
}

void print_table(const Exp2Unit& unit, const Options& options, const Exp2Report& r) {
  Table table({{"what"}, {"found"}, {"x", Align::right}, {"x in hex"}, {"result in hex"}});
  const auto at = [&](const std::string& what, const Cell& found, const Answer& a) {
    table.add_row({what, found, decimal(a.x), hex(a.x), hex(a.y)});
  };
  const auto where = [&](const std::string& what, const std::optional<Answer>& a) {
    if (a) {
      at(what, decimal(a->y), *a);
    } else {
      table.add_row({what, "nowhere", "-", "-", "-"});
    }
  };
  // How often, and first where; `wrong`: does it contradict the promise?
  const auto often = [&](const std::string& what, const Occurrences& o, bool wrong) {
    if (o.count == 0) {
      table.add_row({what, "0", "-", "-", "-"});
    } else {
      at(what, {std::to_string(o.count), wrong ? Tone::bad : Tone::plain}, o.first);
    }
  };
  const std::string power = options.base == "e" ? "e" : "2";
  const bool too_far = r.error_ulps > unit.max_error_ulps * (1 + 0x1p-20);
  at("largest error, ulps",
     {fmt::format("{:.6g}", r.error_ulps), too_far ? Tone::bad : Tone::plain}, r.at_ulps);
  at("largest error, relative", {fmt::format("{:.4g}", r.relative_error)}, r.at_relative);
  where("infinite from", r.overflow);
  where("normal from", r.first_normal);
  where("zero up to", r.last_zero);
  where("E(0)", r.zero);
  where("E(-inf)", r.minus_infinity);
  where("E(+inf)", r.plus_infinity);
  at("E(NaN)", {decimal(r.nan.y), r.nan_kept ? Tone::plain : Tone::bad}, r.nan);
  often("decreasing", r.decreasing, false);
  if (power == "2") often("not 2^k at integer k", r.inexact, unit.monotone_at_integers);
  often("beyond a power of two", r.beyond_power, unit.monotone_at_integers);
  often("negative", r.negative, true);
  often("not finite below overflow", r.not_finite, true);
  often("outside the promise", r.broken, true);

  const bool colour = colour_wanted(stdout);
  fmt::print("E(x) = {}^x by {} ({}), {} arguments of {}, results in {}\n{}", power, unit.name,
             options.choice, r.arguments, options.format, unit.result.name, table.render(colour));
  fmt::print("Promise: {} ulps, {}{}, NaN {}\n", unit.max_error_ulps,
             unit.flush_to_zero ? "flushed" : "gradual",
             unit.monotone_at_integers ? ", monotone at integers" : "",
             unit.propagates_nan ? "propagates" : "may be swallowed");
  if (r.kept()) {
    fmt::print("{}\n", toned("kept for every argument", Tone::good, colour));
  } else if (r.first_kept) {
    fmt::print(
        "{} ({} to {})\n",
        toned(fmt::format("kept from {} to {}", decimal(*r.first_kept), decimal(*r.last_kept)),
              Tone::bad, colour),
        hex(*r.first_kept), hex(*r.last_kept));
  } else {
    fmt::print("{}\n", toned("not kept at 0", Tone::bad, colour));
  }
}

int run(const Options& options) {
  const Format& argument = stage_format("--format", options.format);
  const Exp2Unit unit = described_unit(options);
  const auto base = one_of<ExponentBase>("--base", options.base,
                                         {{"2", ExponentBase::two}, {"e", ExponentBase::e}});
  const auto choice = one_of<UnitChoice>("--choice", options.choice,
                                         {{"nearest", UnitChoice::nearest},
                                          {"lowest", UnitChoice::lowest},
                                          {"highest", UnitChoice::highest},
                                          {"random", UnitChoice::random}});
  if (unit.name.starts_with("fa4-") && base == ExponentBase::e) {
    throw InputError("--base: found e with unit " + unit.name + ", expected 2");
  }
  Exp2Report report;
  {
    Progress progress("exp2 " + unit.name, 2 * (argument.max_finite_code() + 1));
    report = check_exp2(unit, base, choice, options.seed, argument,
                        [&](std::uint64_t done) { progress.advance(done); });
  }
  if (options.json) {
    print_json(unit, options, report);
  } else {
    print_table(unit, options, report);
  }
  return report.kept() ? exit_kept : exit_broken;
}

}  // namespace

void add_exp2(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "exp2", "Run an exponential unit over every argument of a format: is its promise kept?");
  command
      ->add_option("--unit", options->unit,
                   "correctly-rounded, ulp:K, ex2.approx.ftz, fa4-poly1 to fa4-poly5")
      ->type_name("NAME")
      ->required();
  command->add_option("--format", options->format, "Format of arguments: bf16, fp16 or fp32")
      ->type_name("FORMAT")
      ->capture_default_str();
  command
      ->add_option("--result", options->result,
                   "Format of results of correctly-rounded and ulp:K (default: that of arguments)")
      ->type_name("FORMAT");
  command->add_option("--base", options->base, "2, or e for units that compute e^x")
      ->type_name("BASE")
      ->capture_default_str();
  command
      ->add_option("--choice", options->choice,
                   "What a unit with an error bound answers: nearest, lowest, highest or random")
      ->type_name("CHOICE")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of --choice random")
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--flush-to-zero", options->flush, "Results below the smallest normal are 0");
  command->add_flag("--monotone", options->monotone,
                    "ulp:K is exact at integers and monotone there");
  command->add_flag("--json", options->json, "Print JSON for programs");
  command->footer(
      "Examples:\n"
      "  headroom exp2 --unit fa4-poly3                 all 2^32 arguments, minutes\n"
      "  headroom exp2 --unit fa4-poly3 --format bf16   the same unit in a second\n"
      "  headroom exp2 --unit correctly-rounded --format bf16 --result fp32\n"
      "  headroom exp2 --unit ulp:2 --format fp16 --choice highest --flush-to-zero\n"
      "  headroom exp2 --unit correctly-rounded --format bf16 --base e --json\n"
      "Exit codes: 0 promise kept for every argument; 1 broken; 2 bad option.\n"
      "Rows: docs/exp2.md");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace headroom::cli
