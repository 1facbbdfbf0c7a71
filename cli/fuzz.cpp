// headroom fuzz: hunts inputs that break a stabilizer, or a certificate.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "certify/certificate.h"
#include "cli/commands.h"
#include "cli/free_choices.h"
#include "cli/head_options.h"
#include "cli/settings.h"
#include "cli/table.h"
#include "fuzz/corpus.h"
#include "fuzz/finding.h"
#include "fuzz/generate.h"
#include "fuzz/hunt.h"
#include "fuzz/shrink.h"
#include "reference/head/write.h"
#include "reference/input_error.h"
#include "reference/model/kernel_file.h"
#include "reference/stabilizer/plugin/plugin.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;
using namespace fuzz;  // NOLINT(google-build-using-namespace): the whole command is about it

struct FuzzArguments {
  std::string plugin;
  std::string known, kernel, stabilizer, policy, scale, scale_log2, eps, tolerance;
  std::string corpus, output = "findings", strategy = "full";
  std::vector<std::string> set, objectives, shapes, seeds;
  FreeChoices choices;
  double seconds = 60;
  std::int64_t runs = 0;
  std::uint64_t seed = 1;
  int threads = 0;
  bool no_gate = false, stop_at_find = false, no_shrink = false, list = false, json = false;
};

std::atomic<bool> interrupted = false;

// --- What is hunted

double positive(const std::string& option, const std::string& text) {
  try {
    const double value = enclose(parse_exact_number(text)).hi();
    if (value > 0 && std::isfinite(value)) return value;
  } catch (const std::invalid_argument&) {
  }
  throw InputError(
      fmt::format("{}: found '{}', expected a number above 0", option, printable(text)));
}

/// "16x64x16" or "16x64x16x8": Nq, Nk, d and dv.
Shape shape_of(const std::string& text) {
  std::vector<std::int64_t> numbers;
  std::int64_t number = 0;
  bool digits = false, good = true;
  for (const char ch : text + "x") {
    if (ch >= '0' && ch <= '9' && number < 1000000) {
      number = number * 10 + (ch - '0');
      digits = true;
    } else if (ch == 'x' && digits) {
      numbers.push_back(number);
      number = 0;
      digits = false;
    } else {
      good = false;
    }
  }
  if (numbers.size() == 3) numbers.push_back(numbers[2]);
  good = good && numbers.size() == 4;
  for (const std::int64_t n : numbers) good = good && n >= 1 && n <= 65536;
  if (!good || numbers[0] * numbers[1] > (1 << 24) || numbers[2] > 1024 || numbers[3] > 1024) {
    throw InputError(
        fmt::format("--shape: found '{}', expected NQxNKxD or NQxNKxDxDV, at most 2^24 scores and "
                    "1024 channels",
                    printable(text)));
  }
  return {numbers[0], numbers[1], numbers[2], numbers[3]};
}

Hunt hunt_of(const FuzzArguments& a) {
  int ways = 0;
  for (const std::string* way : {&a.known, &a.stabilizer, &a.policy, &a.plugin}) {
    ways += way->empty() ? 0 : 1;
  }
  if (ways != 1) {
    throw InputError("found " + std::to_string(ways) +
                     " of --known, --stabilizer, --policy and --plugin, expected one (see --help)");
  }
  Hunt h;
  if (!a.known.empty()) {
    h = catalogue_entry(a.known);
    if (!a.kernel.empty()) throw InputError("--kernel: --known brings its own kernel");
    if (a.no_gate) h.target.gate = GateChoice::none;
  } else {
    if (a.kernel.empty()) throw InputError("--kernel is required (a kernel file or a preset)");
    const KernelModel kernel = load_kernel(a.kernel);
    const LoopParameters given = settings_of(a.set);
    const std::string stabilizer =
        a.plugin.empty() ? a.stabilizer : load_plugin(a.plugin).loop.name;
    if (!stabilizer.empty()) {
      make_loop_stabilizer(stabilizer, given);  // an error names what is wrong
      h = make_hunt(kernel, stabilizer, given, !a.no_gate);
    } else {
      h = make_certified_hunt(kernel, parse_policy(a.policy), {given.begin(), given.end()},
                              a.eps.empty() ? 0x1p-10 : positive("--eps", a.eps));
    }
  }
  h.target.how = simulation_options(a.choices, a.seed);
  if (!a.eps.empty()) h.target.eps = positive("--eps", a.eps);
  if (!a.tolerance.empty()) h.target.tolerance = positive("--tolerance", a.tolerance);
  if (!a.scale.empty() && !a.scale_log2.empty()) {
    throw InputError("--scale and --scale-log2: found both, expected one");
  }
  if (!a.scale_log2.empty()) h.target.scale = Scale::from_text("log2:" + a.scale_log2);
  if (!a.scale.empty() && a.scale != "1/sqrt(d)") h.target.scale = Scale::parse(a.scale, 1);
  if (!a.shapes.empty()) {
    h.space.shapes.clear();
    for (const std::string& s : a.shapes) h.space.shapes.push_back(shape_of(s));
  }
  if (!a.objectives.empty()) {
    h.objectives.clear();
    for (const std::string& o : a.objectives) {
      h.objectives.push_back(parse_objective(o));
      if (h.objectives.back() == Objective::claim && h.target.gate != GateChoice::certified) {
        throw InputError("--objective claim: only a --policy has claims");
      }
      if (h.objectives.back() == Objective::swallowed_nan) h.space.poison_visible = true;
    }
    h.event.clear();
    h.stage.clear();
  }
  return h;
}

/// Cuts of real heads to start from.
std::vector<Candidate> seeds_of(const FuzzArguments& a, const Hunt& h) {
  std::vector<Candidate> list;
  for (const std::string& file : a.seeds) {
    LoadOptions load;
    load.operand = h.target.kernel.operand;
    load.cast = true;
    Random random(a.seed, 0, list.size());
    for (const Head& head : load_heads(file, load)) {
      for (int i = 0; i < 16; ++i) {
        list.push_back(cut_from(head, random, random.pick(h.space.shapes)));
      }
    }
  }
  return list;
}

// --- What is printed

void print_list(bool json) {
  if (json) {
    Json all = Json::array();
    for (const Hunt& h : catalogue()) {
      Json objectives = Json::array();
      for (const Objective o : h.objectives) objectives.push_back(to_text(o));
      all.push_back({{"name", h.target.name},
                     {"kernel", h.target.kernel.name},
                     {"stabilizer", h.target.stabilizer},
                     {"gate", to_text(h.target.gate)},
                     {"objectives", objectives},
                     {"sound", h.sound},
                     {"summary", h.summary}});
    }
    fmt::print("{}\n", all.dump(2));
    return;
  }
  Table table({{"known"}, {"stabilizer"}, {"gate"}, {"what is there to be found"}});
  for (const Hunt& h : catalogue()) {
    table.add_row({h.target.name, h.target.stabilizer, std::string(to_text(h.target.gate)),
                   h.sound ? "nothing: it is sound" : h.summary});
  }
  fmt::print("{}\nobjectives\n", table.render(colour_wanted(stdout)));
  Table objectives({{"objective"}, {"met when"}});
  for (const Objective o : all_objectives()) {
    objectives.add_row({std::string(to_text(o)), std::string(summary(o))});
  }
  fmt::print("{}", objectives.render(colour_wanted(stdout)));
}

/// One line on a terminal, after two seconds, redrawn four times a second.
class Line {
 public:
  Line(std::string name, const FuzzArguments& a)
      : name_(std::move(name)), limit_(a.seconds), runs_(a.runs), visible_(isatty(2) != 0) {}
  ~Line() { clear(); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  void show(const HuntProgress& p) {
    if (!visible_ || p.seconds < 2 || p.seconds < next_) return;
    next_ = p.seconds + 0.25;
    const double rate = static_cast<double>(p.runs) / p.seconds;
    double left = limit_ > 0 ? limit_ - p.seconds : HUGE_VAL;
    if (runs_ > 0) left = std::min(left, static_cast<double>(runs_ - p.runs) / rate);
    std::string text =
        fmt::format("{}: {:.3g} million heads, {:.0f}/s, {} cells, {} counters, {} found", name_,
                    static_cast<double>(p.runs) * 1e-6, rate, p.cells, p.coverage, p.findings);
    if (std::isfinite(left)) text += fmt::format(", {:.0f} s left", std::max(0.0, left));
    std::fprintf(stderr, "\r%s\033[K", text.c_str());
    drawn_ = true;
  }
  void clear() {
    if (drawn_) std::fprintf(stderr, "\r\033[K");
    drawn_ = false;
  }

 private:
  std::string name_;
  double limit_, next_ = 0;
  std::int64_t runs_;
  bool visible_, drawn_ = false;
};

std::string nearness(double bits) {
  if (bits == -HUGE_VAL) return "-";
  return bits >= 0 ? "0" : fmt::format("{:.2f}", bits);
}

std::string file_name(const Finding& f, std::size_t number) {
  std::string stem =
      f.target.name + "-" + std::string(to_text(f.objective)) + "-" + std::to_string(number);
  stem = certificate_file_name(stem);
  stem.resize(stem.size() - std::string_view(".json").size());
  return stem + ".headroom";
}

struct Written {
  Finding finding;
  std::string path;
  std::int64_t run = 0;
  double seconds = 0;
};

void print_people(const Hunt& h, const HuntResult& result, const std::vector<Written>& written) {
  const bool colour = colour_wanted(stdout);
  Table table({{"objective"}, {"nearest, bits", Align::right}, {"found", Align::right}});
  for (std::size_t o = 0; o < h.objectives.size(); ++o) {
    std::size_t found = 0;
    for (const Written& w : written) found += w.finding.objective == h.objectives[o] ? 1 : 0;
    table.add_row({std::string(to_text(h.objectives[o])), nearness(result.nearest[o]),
                   Cell(std::to_string(found), found > 0 ? Tone::bad : Tone::good)});
  }
  fmt::print("{}", table.render(colour));
  for (const Written& w : written) {
    const Shape& s = w.finding.candidate.shape;
    fmt::print("\n{}: {} x {} x {} x {} (Nq, Nk, d, dv), found after {} heads\n{}\n{}\n",
               toned(w.finding.class_name(), Tone::bad, colour), s.queries, s.keys, s.channels,
               s.value_channels, w.run, w.finding.text, w.path);
  }
  fmt::print(
      "\n{} found in {} heads, {:.1f} s ({:.0f} heads/s), {} cells of behaviour, {} counters of "
      "stages, {} exact diagnoses\n",
      written.size(), result.runs, result.seconds,
      static_cast<double>(result.runs) / std::max(1e-9, result.seconds), result.cells,
      result.coverage, result.diagnoses);
}

void print_json(const Hunt& h, const FuzzArguments& a, const HuntResult& result,
                const std::vector<Written>& written) {
  Json nearest = Json::object();
  for (std::size_t o = 0; o < h.objectives.size(); ++o) {
    const double bits = result.nearest[o];
    nearest[std::string(to_text(h.objectives[o]))] = bits == -HUGE_VAL ? Json(nullptr) : Json(bits);
  }
  Json findings = Json::array();
  for (const Written& w : written) {
    const Shape& s = w.finding.candidate.shape;
    findings.push_back({{"class", w.finding.class_name()},
                        {"objective", to_text(w.finding.objective)},
                        {"stage", w.finding.diagnosis.stage},
                        {"event", w.finding.diagnosis.event},
                        {"claim", w.finding.diagnosis.claim},
                        {"shape", {s.queries, s.keys, s.channels, s.value_channels}},
                        {"run", w.run},
                        {"seconds", w.seconds},
                        {"text", w.finding.text},
                        {"file", w.path}});
  }
  const Json all = {{"target", h.target.name},
                    {"kernel", h.target.kernel.name},
                    {"stabilizer", h.target.stabilizer},
                    {"gate", to_text(h.target.gate)},
                    {"seed", a.seed},
                    {"strategy", a.strategy},
                    {"runs", result.runs},
                    {"simulations", result.simulations},
                    {"seconds", result.seconds},
                    {"cells", result.cells},
                    {"coverage", result.coverage},
                    {"diagnoses", result.diagnoses},
                    {"false_alarms", result.false_alarms},
                    {"nearest", nearest},
                    {"findings", findings}};
  fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
}

void make_folder(const std::string& option, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error || !std::filesystem::is_directory(folder)) {
    throw InputError(fmt::format("{} {}: cannot make this folder{}", option, printable(folder),
                                 error ? ": " + error.message() : ""));
  }
}

void run_fuzz(const FuzzArguments& a, int& exit_code) {
  if (a.list) return print_list(a.json);
  const Hunt h = hunt_of(a);
  HuntOptions options;
  options.seed = a.seed;
  options.seconds = a.seconds;
  options.runs = a.runs;
  options.threads = a.threads;
  options.stop_at_find = a.stop_at_find;
  options.strategy = parse_strategy(a.strategy);
  options.seeds = seeds_of(a, h);
  std::string corpus;
  if (!a.corpus.empty()) {
    make_folder("--corpus", a.corpus);
    std::string name = certificate_file_name(h.target.name);
    name.resize(name.size() - std::string_view(".json").size());
    corpus = (std::filesystem::path(a.corpus) / (name + ".corpus")).string();
    const std::vector<Candidate> kept = read_corpus(corpus);
    options.seeds.insert(options.seeds.end(), kept.begin(), kept.end());
    options.save = [&](const std::vector<const Candidate*>& worth) {
      write_corpus(corpus, h.target, worth);
    };
  }
  interrupted = false;
  const auto stop = [](int) { interrupted = true; };
  const auto previous = std::signal(SIGINT, stop);
  std::signal(SIGXCPU, stop);  // a limit of processor time: what was found so far is reported
  Line line(h.target.name, a);
  options.progress = [&](const HuntProgress& p) {
    line.show(p);
    return !interrupted;
  };
  std::vector<Written> written;
  const auto keep = [&](Finding finding) {
    make_folder("-o", a.output);
    Written w;
    w.path = (std::filesystem::path(a.output) / file_name(finding, written.size() + 1)).string();
    atomic_write_file(w.path, finding_text(finding));
    w.finding = std::move(finding);
    written.push_back(std::move(w));
  };
  options.found = keep;
  HuntResult result = hunt(h, options);
  line.clear();
  for (std::size_t i = 0; i < written.size(); ++i) {
    written[i].run = result.found_at[i];
    written[i].seconds = result.seconds_to_find[i];
    if (a.no_shrink || interrupted) continue;
    written[i].finding = shrink(written[i].finding);
    atomic_write_file(written[i].path, finding_text(written[i].finding));
  }
  std::signal(SIGINT, previous);
  if (a.json) {
    print_json(h, a, result, written);
  } else {
    print_people(h, result, written);
  }
  exit_code = written.empty() ? 0 : 1;
}

}  // namespace

void add_fuzz(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<FuzzArguments>();
  FuzzArguments& a = *arguments;
  CLI::App* command =
      app.add_subcommand("fuzz", "Hunt heads that break a stabilizer or a certificate");
  command->add_option("--kernel", a.kernel, "Kernel file (TOML) or preset name");
  command->add_option("--stabilizer", a.stabilizer,
                      "Hunt this rule, behind its own gate if it has one (simulate --list)");
  command->add_option("--plugin", a.plugin,
                      "Hunt a stabilizer of your own: a shared library (docs/plugins.md)");
  command->add_flag("--no-gate", a.no_gate, "Hunt it without its gate");
  command->add_option("--policy", a.policy,
                      "Hunt heads that `headroom certify --policy` certifies and that are wrong");
  command->add_option("--known", a.known, "Hunt a known failure; --list names them");
  command->add_flag("--list", a.list, "Print the known failures and the objectives");
  command->add_option("--set", a.set, "name=value: a parameter of the rule; repeatable")
      ->allow_extra_args(false);
  command->add_option("--objective", a.objectives, "What to look for, repeatable (default: all)")
      ->allow_extra_args(false);
  command
      ->add_option("--shape", a.shapes, "NQxNKxD or NQxNKxDxDV of heads to start from, repeatable")
      ->allow_extra_args(false);
  add_free_choices(*command, a.choices);
  command->add_option("--scale", a.scale, "Softmax scale (default 1/sqrt(d))");
  command->add_option("--scale-log2", a.scale_log2, "c of z = c <q, k>, in log2 units");
  command->add_option("--eps", a.eps, "Softmax mass that may be lost (default 2^-10)");
  command->add_option("--tolerance", a.tolerance,
                      "Of outputs, over the largest |v|, and of LSE (default 2^-5)");
  command->add_option("--seconds", a.seconds, "Time to hunt; 0: no limit")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--runs", a.runs, "Heads to try, in batches of 512; 0: no limit")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--seed", a.seed, "Of everything random")->capture_default_str();
  command->add_option("--threads", a.threads, "Worker threads (0: all cores)")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
  command->add_flag("--stop-at-find", a.stop_at_find, "Stop at the first finding");
  command->add_flag("--no-shrink", a.no_shrink, "Leave findings as they were found");
  command->add_option("--corpus", a.corpus,
                      "Folder that keeps what is worth keeping, and is read first");
  command->add_option("--seeds", a.seeds, "Files of real heads to cut pieces from")
      ->allow_extra_args(false);
  command->add_option("-o,--output", a.output, "Folder of the findings, made when there is one")
      ->capture_default_str();
  command
      ->add_option("--strategy", a.strategy,
                   "full, or a baseline: uniform-bits, gaussian, byte-mutation")
      ->capture_default_str();
  command->add_flag("--json", a.json, "Machine-readable output");
  command->footer(
      "Examples:\n"
      "  headroom fuzz --list\n"
      "  headroom fuzz --stabilizer vfa --kernel my-kernel.toml --seconds 60\n"
      "  headroom fuzz --stabilizer fa4-row --set threshold=4 --set offset=8 \\\n"
      "      --kernel blackwell --objective saturation --stop-at-find\n"
      "  headroom fuzz --policy clis --kernel hopper --seconds 600 --corpus corpus\n"
      "  headroom fuzz --known case-b --seed 7\n"
      "  headroom fuzz --plugin ./mine.so --kernel hopper\n"
      "Exit codes: 0 nothing was found; 1 something was; 2 bad input.\n"
      "Findings are replayed by `headroom replay`; docs/fuzz.md explains the search.");
  command->callback([=, &exit_code] { run_fuzz(*arguments, exit_code); });
}

}  // namespace headroom::cli
