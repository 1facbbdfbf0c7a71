// headroom simulate: kernels run bit for bit, their rows against exact attention, their events.
#include <fmt/format.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "certify/certificate.h"
#include "certify/clis_table.h"
#include "cli/commands.h"
#include "cli/free_choices.h"
#include "cli/head_options.h"
#include "cli/output_file.h"
#include "cli/problem_options.h"
#include "cli/progress.h"
#include "cli/settings.h"
#include "cli/table.h"
#include "reference/evaluate/ladder/ladder.h"
#include "reference/evaluate/simulate/compare.h"
#include "reference/evaluate/simulate/simulate.h"
#include "reference/head/load.h"
#include "reference/head/write.h"
#include "reference/input_error.h"
#include "reference/model/kernel_file.h"
#include "reference/stabilizer/loop/loop.h"
#include "reference/stabilizer/plugin/plugin.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr double infinity = std::numeric_limits<double>::infinity();

struct SimulateArguments {
  std::vector<std::string> files, set;
  std::string plugin;
  std::string kernel, stabilizer, rows, output, dump;
  FreeChoices choices;
  std::uint64_t seed = 1;
  int threads = 0;
  bool events = false, json = false, list = false, no_gate = false;
  HeadOptions heads;
  ProblemOptions problem;
};

// --- Options as values

std::vector<std::int64_t> rows_of(const SimulateArguments& a, const Head& head) {
  constexpr std::string_view sample = "sample:";
  if (a.rows.starts_with(sample)) {
    const std::int64_t count = whole_number("--rows", std::string_view(a.rows).substr(7));
    if (count < 1) {
      throw InputError(fmt::format("--rows: found '{}', expected sample:N with N of at least 1",
                                   printable(a.rows)));
    }
    return sampled_rows(count, head.queries(), a.seed);
  }
  if (!a.rows.empty()) return row_list(a.rows, head.queries(), head.id);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(head.queries()));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(i);
  return rows;
}

// --- One head

/// The largest error over the rows whose output is finite: how far outside of the enclosure of the
/// exact value it lies.
struct Errors {
  double absolute = 0, ulps = 0;  ///< the largest, and that one in ulps at the exact value
  double most_ulps = 0;           ///< of any element
  std::int64_t row = -1, channel = -1;
  double lse = 0;
  std::int64_t lse_row = -1;
};

struct HeadRun {
  const Head* head = nullptr;
  std::vector<std::int64_t> rows;
  Simulated result;
  std::optional<bool> certified_gate;
  std::vector<std::int64_t> bad_rows, zero_rows;
  Errors stored;
  std::optional<Errors> multiplied;
  double largest_value = 0;

  bool gate() const { return certified_gate.value_or(result.gate); }
  bool failed() const { return !bad_rows.empty() || !zero_rows.empty(); }
  const Errors& errors() const { return multiplied ? *multiplied : stored; }
};

/// An ulp of the numbers of a format at magnitude x.
double ulp_at(const Format& format, double x) {
  const int exponent = x == 0 ? format.emin : std::max(format.emin, std::ilogb(x));
  return std::ldexp(1.0, exponent - format.precision + 1);
}

Errors errors_of(const Simulated& s, const std::vector<std::int64_t>& rows,
                 const EnclosedRows& exact, const KernelModel& kernel) {
  Errors errors;
  const auto dv = static_cast<std::size_t>(exact.channels);
  const double unit = kernel.lse.base == ExponentBase::two ? std::log(2.0) : 1.0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    bool defined = true;
    for (std::size_t c = 0; c < dv; ++c) {
      const double lo = exact.output_lo[i * dv + c], hi = exact.output_hi[i * dv + c];
      const double o = s.output[i * dv + c];
      if (!std::isfinite(lo) || !std::isfinite(hi)) {
        defined = false;
        break;
      }
      if (!std::isfinite(o)) continue;
      const double error = outside(o, lo, hi);
      const double ulps =
          error / ulp_at(kernel.normalise.output, std::max(std::fabs(lo), std::fabs(hi)));
      errors.most_ulps = std::max(errors.most_ulps, ulps);
      if (errors.row < 0 || error > errors.absolute) {
        errors.absolute = error;
        errors.ulps = ulps;
        errors.row = rows[i];
        errors.channel = static_cast<std::int64_t>(c);
      }
    }
    if (!defined) continue;
    const double lo = exact.lse_lo[i], hi = exact.lse_hi[i], lse = s.lse[i] * unit;
    double error = lo == lse && hi == lse ? 0 : outside(lse, lo, hi);
    if (std::isnan(lse) || std::isnan(error)) error = infinity;
    if (errors.lse_row < 0 || error > errors.lse) {
      errors.lse = error;
      errors.lse_row = rows[i];
    }
  }
  return errors;
}

/// Rows that are not finite, and rows that are all zero, where correct rounding is neither.
void find_failures(HeadRun& run, const EnclosedRows& exact, const Format& format) {
  const auto dv = static_cast<std::size_t>(exact.channels);
  for (std::size_t i = 0; i < run.rows.size(); ++i) {
    const RowFailure failure = row_failure(std::span(run.result.output).subspan(i * dv, dv),
                                           std::span(exact.output_lo).subspan(i * dv, dv),
                                           std::span(exact.output_hi).subspan(i * dv, dv), format);
    if (failure.not_finite) run.bad_rows.push_back(run.rows[i]);
    if (failure.zero) run.zero_rows.push_back(run.rows[i]);
  }
}

double largest_value(const Head& head) {
  double largest = 0;
  std::vector<double> row(static_cast<std::size_t>(head.value_channels()));
  for (std::int64_t j = 0; j < std::min(head.keys(), head.visibility.length); ++j) {
    head.v.load_row(j, row.data());
    for (const double x : row) {
      if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
    }
  }
  return largest;
}

/// `clis` takes C and its slope from the certifier; whether the sound gate accepts.
bool take_certified_table(const Head& head, const KernelModel& kernel, LoopParameters& parameters) {
  const CertifiedTable table = certified_table(head, kernel, 0x1p-10);
  parameters["cap"] = table.cap;
  parameters["kappa"] = table.kappa;
  return table.accepts;
}

bool wants_table(const std::string& stabilizer, const LoopParameters& given) {
  return stabilizer == "clis" && !given.contains("cap") && !given.contains("kappa");
}

/// Whole query blocks of about equal work, so that threads share a head and progress shows.
std::vector<std::pair<std::size_t, std::size_t>> groups_of(const std::vector<std::int64_t>& rows,
                                                           const Head& head,
                                                           const KernelModel& kernel) {
  // each group prepares the operands anew: it must have far more products than operands
  constexpr double products_a_group = 1e8;
  const double products = static_cast<double>(head.keys()) *
                          static_cast<double>(head.channels() + head.value_channels());
  const auto least = static_cast<std::size_t>(products_a_group / std::max(1.0, products)) + 1;
  std::vector<std::pair<std::size_t, std::size_t>> groups;
  std::size_t begin = 0;
  for (std::size_t i = 1; i <= rows.size(); ++i) {
    const bool block_ends =
        i == rows.size() || rows[i] / kernel.tiles.queries != rows[i - 1] / kernel.tiles.queries;
    if (block_ends && (i - begin >= least || i == rows.size())) {
      groups.emplace_back(begin, i);
      begin = i;
    }
  }
  return groups;
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

Simulated simulate_rows(const AttentionProblem& problem, const KernelModel& kernel,
                        const std::string& stabilizer, const LoopParameters& parameters,
                        const std::vector<std::int64_t>& rows, const Head& head,
                        const SimulationOptions& options, Progress& progress) {
  const auto groups = groups_of(rows, head, kernel);
  std::vector<Simulated> parts(groups.size());
  oneapi::tbb::parallel_for(std::size_t{0}, groups.size(), [&](std::size_t g) {
    const auto loop = make_loop_stabilizer(stabilizer, parameters);
    const auto [begin, end] = groups[g];
    parts[g] =
        simulate(problem, kernel, *loop, std::span(rows).subspan(begin, end - begin), options);
    progress.advance(end - begin);
  });
  Simulated all = std::move(parts.front());
  for (std::size_t g = 1; g < parts.size(); ++g) {
    append(all.output, parts[g].output);
    append(all.lse, parts[g].lse);
    append(all.denominator, parts[g].denominator);
    append(all.shift, parts[g].shift);
    append(all.recomputed, parts[g].recomputed);
    append(all.events, parts[g].events);
    all.vectorised = all.vectorised && parts[g].vectorised;
  }
  return all;
}

// --- Files

OutputTensor fp32_tensor(const std::string& name, std::vector<std::int64_t> shape,
                         const std::vector<float>& values) {
  return {name, fp32, std::move(shape),
          encoded(fp32, Rounding::nearest_even, {values.begin(), values.end()})};
}

/// DIR/ID.NAME.npy for every intermediate.
void write_dump(const std::string& folder, const HeadRun& run, const SimulationDump& dump,
                const std::vector<std::string>& inputs) {
  const auto n = static_cast<std::int64_t>(run.rows.size());
  const std::int64_t keys = run.head->keys(), dv = run.head->value_channels();
  std::vector<OutputTensor> tensors = {
      fp32_tensor("scores", {n, keys}, dump.scores),
      fp32_tensor("exponents", {n, keys}, dump.exponents),
      fp32_tensor("weights", {n, keys}, dump.weights),
      fp32_tensor("stored_weights", {n, keys}, dump.stored_weights),
      fp32_tensor("shifts", {n, dump.tiles}, dump.shifts),
      fp32_tensor("corrections", {n, dump.tiles}, dump.corrections),
      fp32_tensor("denominators", {n, dump.tiles}, dump.denominators),
      fp32_tensor("numerators", {n, dump.tiles, dv}, dump.numerators),
      fp32_tensor("o", {n, dv}, run.result.output),
      fp32_tensor("lse", {n}, run.result.lse),
      {"rows",
       fp64,
       {n},
       encoded(fp64, Rounding::nearest_even, {run.rows.begin(), run.rows.end()})}};
  std::string stem = certificate_file_name(run.head->id);
  stem.resize(stem.size() - std::string_view(".json").size());
  std::vector<std::pair<std::string, std::string>> files;
  for (const OutputTensor& t : tensors) {
    files.emplace_back((std::filesystem::path(folder) / (stem + "." + t.name + ".npy")).string(),
                       npy_bytes("--dump", t));
    require_no_input("--dump", files.back().first, inputs);
  }
  atomic_write_files(files);
}

void make_folder(const std::string& option, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error || !std::filesystem::is_directory(folder)) {
    throw InputError(fmt::format("{} {}: cannot make this folder{}", option, printable(folder),
                                 error ? ": " + error.message() : ""));
  }
}

void refuse_huge_dump(const Head& head, std::size_t rows, const KernelModel& kernel) {
  constexpr double most = 0x1p30;
  const double tiles = std::ceil(static_cast<double>(head.keys()) / kernel.tiles.keys);
  const double numbers =
      static_cast<double>(rows) * (4.0 * static_cast<double>(head.keys()) +
                                   tiles * static_cast<double>(3 + head.value_channels()));
  if (numbers <= most) return;
  throw InputError(
      fmt::format("--dump: {} rows of {} are {:.3g} numbers, expected at most 2^30: see --rows",
                  rows, printable(head.id), numbers));
}

// --- What is printed

std::string number_text(double x) { return fmt::format("{:.3g}", x); }

std::string event_number(double x) { return std::isnan(x) ? "nan" : fmt::format("{:.6g}", x); }

std::string place_text(const SimulationEvent& e) {
  std::string text = to_text(e.stage);
  if (e.tile >= 0) text += fmt::format(", tile {}", e.tile);
  if (e.key >= 0) text += fmt::format(", key {}", e.key);
  if (e.channel >= 0) text += fmt::format(", channel {}", e.channel);
  return text;
}

/// The event of each kind in the lowest row that has one.
std::vector<SimulationEvent> first_events(const std::vector<SimulationEvent>& events) {
  std::map<EventKind, SimulationEvent> first;
  for (const SimulationEvent& e : events) {
    const auto [known, fresh] = first.emplace(e.kind, e);
    if (!fresh && e.row < known->second.row) known->second = e;
  }
  std::vector<SimulationEvent> list;
  for (const auto& [kind, event] : first) list.push_back(event);
  return list;
}

void print_heads(const std::vector<HeadRun>& runs) {
  const bool colour = colour_wanted(stdout);
  Table table({{"head"},
               {"gate"},
               {"rows", Align::right},
               {"NaN/Inf", Align::right},
               {"zero", Align::right},
               {"error", Align::right},
               {"ulps", Align::right},
               {"of max|v|", Align::right},
               {"row", Align::right},
               {"channel", Align::right},
               {"LSE", Align::right},
               {"stored", Align::right}});
  const auto count = [](std::size_t n) {
    return Cell(std::to_string(n), n > 0 ? Tone::bad : Tone::plain);
  };
  for (const HeadRun& r : runs) {
    const Errors& e = r.errors();
    const bool any = e.row >= 0;
    table.add_row(
        {r.head->id, Cell(r.gate() ? "takes" : "refuses", r.gate() ? Tone::plain : Tone::warning),
         std::to_string(r.rows.size()), count(r.bad_rows.size()), count(r.zero_rows.size()),
         any ? number_text(e.absolute) : "-", any ? number_text(e.ulps) : "-",
         any && r.largest_value > 0 ? number_text(e.absolute / r.largest_value) : "-",
         any ? std::to_string(e.row) : "-", any ? std::to_string(e.channel) : "-",
         e.lse_row >= 0 ? number_text(e.lse) : "-",
         r.stored.row >= 0 ? number_text(r.stored.absolute) : "-"});
  }
  std::fputs(table.render(colour).c_str(), stdout);
}

void print_first_events(const std::vector<HeadRun>& runs) {
  constexpr std::size_t most = 40;
  std::size_t printed = 0, left = 0;
  for (const HeadRun& r : runs) {
    for (const SimulationEvent& e : first_events(r.result.events)) {
      if (printed == most) {
        ++left;
        continue;
      }
      ++printed;
      std::fputs(fmt::format("{}: first {}: row {}, {}: {} -> {}\n", printable(r.head->id),
                             to_text(e.kind), e.row, place_text(e), event_number(e.before),
                             event_number(e.after))
                     .c_str(),
                 stdout);
    }
  }
  if (left > 0) std::fputs(fmt::format("and {} more; see --json\n", left).c_str(), stdout);
}

void print_events(const std::vector<HeadRun>& runs) {
  constexpr std::size_t most = 1000;
  Table table({{"head"},
               {"row", Align::right},
               {"event"},
               {"stage"},
               {"tile", Align::right},
               {"key", Align::right},
               {"channel", Align::right},
               {"before", Align::right},
               {"after", Align::right}});
  std::size_t left = 0;
  const auto index = [](std::int64_t i) { return i < 0 ? std::string("-") : std::to_string(i); };
  for (const HeadRun& r : runs) {
    for (const SimulationEvent& e : r.result.events) {
      if (table.row_count() == most) {
        ++left;
        continue;
      }
      table.add_row({r.head->id, std::to_string(e.row), to_text(e.kind), to_text(e.stage),
                     index(e.tile), index(e.key), index(e.channel), event_number(e.before),
                     event_number(e.after)});
    }
  }
  if (table.row_count() == 0) {
    std::fputs("no event\n", stdout);
    return;
  }
  std::fputs(("\n" + table.render(colour_wanted(stdout))).c_str(), stdout);
  if (left > 0) std::fputs(fmt::format("and {} more; see --json\n", left).c_str(), stdout);
}

std::string parameters_text(const LoopParameters& parameters) {
  std::string text;
  for (const auto& [name, value] : parameters) {
    text += (text.empty() ? "" : ", ") + name + " = " + fmt::format("{}", value);
  }
  return text;
}

void print_settings(const std::vector<HeadRun>& runs, const KernelModel& kernel,
                    const SimulateArguments& a, const LoopParameters& parameters) {
  std::map<std::string, std::size_t> settings;
  std::map<std::string, std::size_t> notes;
  for (const HeadRun& r : runs) {
    const Head& head = *r.head;
    ++settings[fmt::format(
        "scale {} ({}), mask {} ({}){}", scale_text(head.scale), head.scale_source,
        to_text(head.visibility.kind), head.mask_source,
        head.was_cast ? fmt::format(", cast to {} (rne)", head.q.format().name) : "")];
    for (const std::string& w : warnings_of(a.problem, head)) ++notes["warning: " + w];
    if (!r.multiplied) {
      ++notes["errors are over the stored operands alone: the scale that is left at the score, " +
              scale_text(head.scale) + " with log2(e) folded, has no exact form"];
    }
  }
  std::fputs("\n", stdout);
  for (const auto& [text, n] : settings) {
    std::fputs(fmt::format("{}: {} head{}\n", text, n, n == 1 ? "" : "s").c_str(), stdout);
  }
  for (const auto& [text, n] : notes) {
    std::fputs(fmt::format("{} ({} head{})\n", printable(text), n, n == 1 ? "" : "s").c_str(),
               stdout);
  }
  const std::string set = parameters_text(parameters);
  std::fputs(fmt::format("kernel {} (machine {}), stabilizer {}{}, order {}, exp2 {}\n",
                         printable(kernel.name), printable(kernel.machine), a.stabilizer,
                         set.empty() ? "" : " with " + set, a.choices.order, a.choices.exp2)
                 .c_str(),
             stdout);
}

// JSON has neither infinities nor NaN.
Json json_number(double x) {
  return std::isfinite(x) ? Json(x) : Json(std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

Json errors_json(const Errors& e, double largest_value) {
  if (e.row < 0) return nullptr;
  return {{"absolute", json_number(e.absolute)},
          {"ulps", json_number(e.ulps)},
          {"most_ulps", json_number(e.most_ulps)},
          {"relative_to_largest_value",
           largest_value > 0 ? json_number(e.absolute / largest_value) : Json(nullptr)},
          {"row", e.row},
          {"channel", e.channel},
          {"lse", json_number(e.lse)},
          {"lse_row", e.lse_row}};
}

Json events_json(const std::vector<SimulationEvent>& events) {
  Json list = Json::array();
  for (const SimulationEvent& e : events) {
    list.push_back({{"row", e.row},
                    {"event", to_text(e.kind)},
                    {"stage", to_text(e.stage)},
                    {"tile", e.tile < 0 ? Json(nullptr) : Json(e.tile)},
                    {"key", e.key < 0 ? Json(nullptr) : Json(e.key)},
                    {"channel", e.channel < 0 ? Json(nullptr) : Json(e.channel)},
                    {"before", json_number(e.before)},
                    {"after", json_number(e.after)}});
  }
  return list;
}

void print_json(const std::vector<HeadRun>& runs, const KernelModel& kernel,
                const SimulateArguments& a, const LoopParameters& parameters, int exit_code) {
  Json document = {{"schema", "headroom-simulate-1"},
                   {"exit_code", exit_code},
                   {"kernel", {{"name", kernel.name}, {"sha256", digest(kernel)}}},
                   {"stabilizer", a.stabilizer},
                   {"parameters", Json::object()},
                   {"order", a.choices.order},
                   {"exp2_choice", a.choices.exp2},
                   {"reciprocal_choice", a.choices.reciprocal},
                   {"seed", a.seed},
                   {"output_format", std::string(kernel.normalise.output.name)},
                   {"lse_base", to_text(kernel.lse.base)},
                   {"heads", Json::array()}};
  for (const auto& [name, value] : parameters) document["parameters"][name] = json_number(value);
  for (const HeadRun& r : runs) {
    const Head& head = *r.head;
    const auto recomputed =
        std::count(r.result.recomputed.begin(), r.result.recomputed.end(), std::uint8_t{1});
    document["heads"].push_back(
        {{"id", head.id},
         {"rows", rows_text(r.rows)},
         {"channels", head.value_channels()},
         {"gate", r.gate()},
         {"nonfinite_rows", rows_text(r.bad_rows)},
         {"zero_rows", rows_text(r.zero_rows)},
         {"nonfinite", r.bad_rows.size()},
         {"zero", r.zero_rows.size()},
         {"recomputed", recomputed},
         {"errors",
          {{"multiplied",
            r.multiplied ? errors_json(*r.multiplied, r.largest_value) : Json(nullptr)},
           {"stored", errors_json(r.stored, r.largest_value)}}},
         {"largest_value", r.largest_value},
         {"vectorised", r.result.vectorised},
         {"events", events_json(r.result.events)},
         {"scale", head.scale.text()},
         {"scale_source", head.scale_source},
         {"mask", to_text(head.visibility.kind)},
         {"mask_source", head.mask_source},
         {"warnings", warnings_of(a.problem, head)}});
  }
  std::fputs((document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n").c_str(), stdout);
}

void print_list(bool json) {
  if (json) {
    Json document = {{"schema", "headroom-stabilizers-1"}, {"stabilizers", Json::array()}};
    for (const LoopDescription& d : loop_stabilizers()) {
      Json parameters = Json::object();
      for (const auto& [name, value] : d.parameters) {
        parameters[name] = std::isnan(value) ? Json(nullptr) : json_number(value);
      }
      document["stabilizers"].push_back(
          {{"name", d.name}, {"summary", d.summary}, {"parameters", parameters}});
    }
    std::fputs((document.dump(2) + "\n").c_str(), stdout);
    return;
  }
  for (const LoopDescription& d : loop_stabilizers()) {
    std::string parameters;
    for (const auto& [name, value] : d.parameters) {
      parameters += (parameters.empty() ? "" : ", ") + name;
      if (!std::isnan(value)) parameters += fmt::format(" = {}", value);
    }
    std::fputs(fmt::format("{}\n  {}\n", d.name, d.summary).c_str(), stdout);
    if (!parameters.empty()) std::fputs(("  --set " + parameters + "\n").c_str(), stdout);
  }
}

// --- The command

void compare(HeadRun& run, const SimulateArguments& a, const KernelModel& kernel,
             const AttentionProblem& stored, Progress& progress) {
  LadderOptions options;
  options.output = {fp64, Rounding::nearest_even};
  options.lse = options.output;
  options.rows_done = [&](std::int64_t n) { progress.advance(static_cast<std::uint64_t>(n)); };
  const EnclosedRows exact = enclosures(stored, run.rows, options);
  const NearestRounding nearest;
  find_failures(run, exact, kernel.normalise.output);
  run.stored = errors_of(run.result, run.rows, exact, kernel);
  const std::optional<AttentionProblem> multiplied =
      multiplied_problem(stored, kernel, simulation_options(a.choices, a.seed));
  if (multiplied) {
    run.multiplied =
        errors_of(run.result, run.rows, enclosures(*multiplied, run.rows, options), kernel);
  }
}

void run_simulate(SimulateArguments a, int& exit_code) {
  if (!a.plugin.empty()) {
    if (!a.stabilizer.empty()) {
      throw InputError("--plugin and --stabilizer: found both, expected one");
    }
    a.stabilizer = load_plugin(a.plugin).loop.name;
  }
  if (a.list || a.stabilizer == "list") return print_list(a.json);
  for (const auto& [option, text] :
       {std::pair<std::string, const std::string&>{"--kernel", a.kernel},
        std::pair<std::string, const std::string&>{"--stabilizer", a.stabilizer}}) {
    if (text.empty()) throw InputError(option + " is required (see --help)");
  }
  SimulationOptions options = simulation_options(a.choices, a.seed);
  options.events = a.events;
  const LoopParameters given = settings_of(a.set);
  refuse_settings_as_files(a.set, a.files);
  if (a.stabilizer == "clis" && given.contains("cap") != given.contains("kappa")) {
    throw InputError(fmt::format(
        "--set: found {0} without {1}, expected both, or neither for the certifier's table",
        given.contains("cap") ? "cap" : "kappa", given.contains("cap") ? "kappa" : "cap"));
  }
  {  // names and values are checked before anything is read
    LoopParameters complete = given;
    if (wants_table(a.stabilizer, given)) complete.insert({{"cap", 0}, {"kappa", 1}});
    make_loop_stabilizer(a.stabilizer, complete);
  }
  if (!a.output.empty()) check_output_name("-o", a.output);
  const KernelModel kernel = load_kernel(a.kernel);
  const LoadOptions load = load_options(a.heads, kernel.operand);
  std::unique_ptr<oneapi::tbb::global_control> limit;
  if (a.threads > 0) {
    limit = std::make_unique<oneapi::tbb::global_control>(
        oneapi::tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(a.threads));
  }
  const std::vector<Head> heads = load_files(a.files, load);
  if (heads.empty()) throw InputError("no head is selected");
  if (ends_with(a.output, ".npy") && heads.front().prefix != heads.back().prefix) {
    throw InputError("-o: heads of several prefixes need a .safetensors output");
  }
  const std::vector<std::string> inputs =
      input_paths(heads, {a.kernel, a.problem.bias, a.problem.mask_tensor, a.problem.sink});
  if (!a.output.empty()) require_no_input("-o", a.output, inputs);
  TensorFiles others;
  std::vector<HeadRun> runs;
  std::uint64_t total = 0;
  for (const Head& head : heads) {
    runs.emplace_back();
    runs.back().head = &head;
    runs.back().rows = rows_of(a, head);
    total += 3 * runs.back().rows.size();
    if (!a.dump.empty()) refuse_huge_dump(head, runs.back().rows.size(), kernel);
  }
  if (!a.dump.empty()) make_folder("--dump", a.dump);

  std::vector<OutputTensor> out;
  {
    Progress progress("simulate", total);
    std::vector<const Head*> same_prefix;
    std::vector<HeadTensors> tensors;
    for (HeadRun& run : runs) {
      const Head& head = *run.head;
      AttentionProblem problem(head);
      const TensorFiles opened =
          apply_problem_options(a.problem, head, a.files.size() == 1, problem);
      append(others, opened);
      LoopParameters parameters = given;
      if (wants_table(a.stabilizer, given)) {
        run.certified_gate = take_certified_table(head, kernel, parameters);
      }
      if (a.dump.empty()) {
        run.result = simulate_rows(problem, kernel, a.stabilizer, parameters, run.rows, head,
                                   options, progress);
      } else {
        SimulationDump dump;
        const auto loop = make_loop_stabilizer(a.stabilizer, parameters);
        run.result = simulate(problem, kernel, *loop, run.rows, options, &dump);
        head.require_unchanged();
        for (const auto& file : others) file->require_unchanged();
        write_dump(a.dump, run, dump, inputs);
        progress.advance(run.rows.size());
      }
      run.largest_value = largest_value(head);
      compare(run, a, kernel, problem, progress);
      if (!options.events && run.failed()) {
        // the events of the first rows that failed
        std::vector<std::int64_t> failed = run.bad_rows;
        append(failed, run.zero_rows);
        std::sort(failed.begin(), failed.end());
        failed.erase(std::unique(failed.begin(), failed.end()), failed.end());
        constexpr std::size_t most = 16;
        failed.resize(std::min(failed.size(), most));
        SimulationOptions with_events = options;
        with_events.events = true;
        const auto loop = make_loop_stabilizer(a.stabilizer, parameters);
        run.result.events = simulate(problem, kernel, *loop, failed, with_events).events;
      }
      head.drop_pages();
      if (a.output.empty()) continue;
      if (!same_prefix.empty() && same_prefix.front()->prefix != head.prefix) {
        stack(out, same_prefix, tensors);
        same_prefix.clear();
        tensors.clear();
      }
      const auto n = static_cast<std::int64_t>(run.rows.size());
      const Format& f = kernel.normalise.output;
      same_prefix.push_back(&head);
      tensors.push_back({{"o",
                          f,
                          {n, head.value_channels()},
                          encoded(f, Rounding::nearest_even,
                                  {run.result.output.begin(), run.result.output.end()})},
                         fp32_tensor("lse", {n}, run.result.lse)});
    }
    if (!same_prefix.empty()) stack(out, same_prefix, tensors);
  }
  for (const Head& head : heads) head.require_unchanged();
  for (const auto& file : others) file->require_unchanged();
  if (!a.output.empty()) {
    std::map<std::string, std::string> metadata = {
        {"headroom", HEADROOM_VERSION},
        {"kernel", kernel.name},
        {"kernel_sha256", digest(kernel)},
        {"stabilizer", a.stabilizer},
        {"parameters", parameters_text(given)},
        {"order", a.choices.order},
        {"exp2_choice", a.choices.exp2},
        {"reciprocal_choice", a.choices.reciprocal},
        {"seed", std::to_string(a.seed)},
        {"rows", rows_text(runs.front().rows)},
        {"lse_base", to_text(kernel.lse.base)},
        {"scale", heads.front().scale.text()},
        {"mask", to_text(heads.front().visibility.kind)}};
    std::string ids;
    for (const Head& h : heads) ids += (ids.empty() ? "" : " ") + h.id;
    metadata["heads"] = ids;
    write_output("-o: output", a.output, heads.front().prefix, out, metadata, inputs);
  }

  exit_code = std::any_of(runs.begin(), runs.end(),
                          [&](const HeadRun& r) { return r.failed() && (r.gate() || a.no_gate); })
                  ? 1
                  : 0;
  if (a.json) return print_json(runs, kernel, a, given, exit_code);
  print_heads(runs);
  print_first_events(runs);
  print_settings(runs, kernel, a, given);
  if (a.events) print_events(runs);
}

}  // namespace

void add_simulate(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<SimulateArguments>();
  SimulateArguments& a = *arguments;
  CLI::App* command = app.add_subcommand(
      "simulate", "Run a kernel bit for bit and compare its rows with exact attention");
  command->add_option("files", a.files,
                      "One .safetensors or .npz file, or three .npy files: Q, K, V");
  command->add_option("--kernel", a.kernel, "Kernel file (TOML) or preset name");
  command->add_option("--stabilizer", a.stabilizer,
                      "The rule for mu inside the loop; `list` prints them all");
  command->add_option("--plugin", a.plugin,
                      "A stabilizer of your own: a shared library (docs/plugins.md)");
  command->add_flag("--list", a.list, "Print the stabilizers and their parameters");
  command
      ->add_option("--set", a.set,
                   "One NAME=X, a parameter of the stabilizer (--list names them and their\n"
                   "defaults); repeat it: --set cap=100 --set last_online=0")
      ->allow_extra_args(false);
  command->add_option("--rows", a.rows, "Query rows, e.g. 0-63,100, or sample:N (by --seed)");
  add_head_options(*command, a.heads);
  add_problem_options(*command, a.problem);
  add_free_choices(*command, a.choices);
  command->add_option("--seed", a.seed, "Of random choices and sampled rows")
      ->capture_default_str();
  command->add_flag("--events", a.events,
                    "List each row's first NaN, infinity, flush, saturation and absorption");
  command->add_option("--dump", a.dump, "Write every intermediate as .npy into this folder")
      ->check([](const std::string& folder) {
        return folder.empty() ? std::string("expected a folder") : std::string();
      });
  command->add_option("-o,--output", a.output,
                      "Where tensors `o` and `lse` go: .safetensors or .npy");
  command->add_flag("--no-gate", a.no_gate,
                    "Failures count where the stabilizer's own gate refuses the head, too");
  command->add_option("--threads", a.threads, "Worker threads (0: all cores)")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
  command->add_flag("--json", a.json, "Machine-readable output");
  command->footer(
      "Examples:\n"
      "  headroom simulate --list\n"
      "  headroom simulate heads.safetensors --kernel hopper --stabilizer fa4-row\n"
      "  headroom simulate heads.safetensors --kernel tpu7x --stabilizer vfa \\\n"
      "      --set sink_blocks=2 --rows sample:64 --events\n"
      "  headroom simulate heads.safetensors --kernel my-kernel.toml \\\n"
      "      --stabilizer fixed-m --order random --seed 7 -o out.safetensors\n"
      "  headroom simulate q.npy k.npy v.npy --kernel ieee-fp32 \\\n"
      "      --stabilizer online-fa2 --rows 17 --dump dump\n"
      "Exit codes: 0 no row failed, whatever the errors; 1 a row is NaN or infinite,\n"
      "or zero where the exact row is not; 2 bad input.\n"
      "Columns and events: docs/simulate.md");
  command->callback([=, &exit_code] { run_simulate(*arguments, exit_code); });
}

}  // namespace headroom::cli
