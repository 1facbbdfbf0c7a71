// headroom replay: findings run again, bit for bit.
#include <fmt/format.h>
#include <oneapi/tbb/global_control.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "fuzz/finding.h"
#include "reference/input_error.h"
#include "reference/stabilizer/plugin/plugin.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ReplayArguments {
  std::vector<std::string> files;
  std::string plugin;
  std::string test;
  int threads = 0;
  bool json = false;
};

struct Replayed {
  std::string file;
  fuzz::Finding finding;
  fuzz::Replay replay;

  const char* result() const {
    if (replay.reproduces) return "reproduces";
    return replay.diagnosis.met ? "other bits" : "does not";
  }
};

std::string shape_text(const fuzz::Shape& s) {
  return fmt::format("{} x {} x {} x {}", s.queries, s.keys, s.channels, s.value_channels);
}

void print_json(const std::vector<Replayed>& all, int exit_code) {
  Json document = {
      {"schema", "headroom-replay-1"}, {"exit_code", exit_code}, {"findings", Json::array()}};
  for (const Replayed& r : all) {
    const fuzz::Finding& f = r.finding;
    const fuzz::Diagnosis& d = r.replay.diagnosis;
    document["findings"].push_back({{"file", r.file},
                                    {"objective", to_text(f.objective)},
                                    {"class", f.class_name()},
                                    {"target", f.target.name},
                                    {"reproduces", r.replay.reproduces},
                                    {"met", d.met},
                                    {"same_bits", r.replay.same_bits},
                                    {"queries", f.candidate.shape.queries},
                                    {"keys", f.candidate.shape.keys},
                                    {"channels", f.candidate.shape.channels},
                                    {"value_channels", f.candidate.shape.value_channels},
                                    {"stage", d.stage},
                                    {"event", d.event},
                                    {"claim", d.claim},
                                    {"verdict", d.verdict},
                                    {"text", explain(f.target, f.candidate, d)}});
  }
  std::fputs((document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n").c_str(), stdout);
}

void print_table(const std::vector<Replayed>& all) {
  Table table({{"finding", Align::left},
               {"result", Align::left},
               {"class", Align::left},
               {"Nq x Nk x d x dv", Align::left}});
  for (const Replayed& r : all) {
    table.add_row({r.file, Cell(r.result(), r.replay.reproduces ? Tone::bad : Tone::good),
                   r.finding.class_name(), shape_text(r.finding.candidate.shape)});
  }
  std::fputs(table.render(colour_wanted(stdout)).c_str(), stdout);
  for (const Replayed& r : all) {
    const std::string text = explain(r.finding.target, r.finding.candidate, r.replay.diagnosis);
    std::fputs(fmt::format("{}: {}\n", printable(r.file), printable(text)).c_str(), stdout);
  }
}

void run_replay(const ReplayArguments& a, int& exit_code) {
  std::unique_ptr<oneapi::tbb::global_control> limit;
  if (a.threads > 0) {
    limit = std::make_unique<oneapi::tbb::global_control>(
        oneapi::tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(a.threads));
  }
  if (!a.test.empty() && a.files.size() != 1) {
    throw InputError(fmt::format("--test: found {} files, expected one", a.files.size()));
  }
  if (!a.plugin.empty()) load_plugin(a.plugin);
  std::vector<Replayed> all;
  for (const std::string& file : a.files) all.push_back({file, fuzz::read_finding(file), {}});
  if (!a.test.empty()) {
    std::fputs(fuzz::test_snippet(all.front().finding, a.test).c_str(), stdout);
    exit_code = 0;
    return;
  }
  {
    Progress progress("replay", all.size());
    for (Replayed& r : all) {
      r.replay = fuzz::replay(r.finding);
      progress.advance();
    }
  }
  exit_code = 0;
  for (const Replayed& r : all) {
    if (r.replay.reproduces) exit_code = 1;
  }
  if (a.json) return print_json(all, exit_code);
  print_table(all);
}

}  // namespace

void add_replay(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ReplayArguments>();
  ReplayArguments& a = *arguments;
  CLI::App* command =
      app.add_subcommand("replay", "Run findings again and say whether they reproduce");
  command->add_option("findings", a.files, "Files that headroom fuzz or shrink wrote")->required();
  command->add_option("--test", a.test,
                      "Run nothing: print a test for your own suite, c++, pytorch or jax");
  command->add_option("--plugin", a.plugin, "The library of a finding's plug-in");
  command->add_option("--threads", a.threads, "Worker threads (0: all cores)")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
  command->add_flag("--json", a.json, "Machine-readable output");
  command->footer(
      "Examples:\n"
      "  headroom replay examples/findings/lost-mass.headroom\n"
      "  headroom replay found/*.headroom --json\n"
      "  headroom replay examples/findings/lost-mass.headroom --test pytorch\n"
      "Exit codes: 1 a finding reproduces: it fails as it did, with the same bits;\n"
      "0 none does; 2 bad input.\n"
      "The file: docs/finding.md");
  command->callback([=, &exit_code] { run_replay(*arguments, exit_code); });
}

}  // namespace headroom::cli
