// headroom shrink: a smaller and simpler head that fails in the same way.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "fuzz/shrink.h"
#include "reference/head/write.h"
#include "reference/input_error.h"
#include "reference/stabilizer/plugin/plugin.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ShrinkArguments {
  std::string plugin;
  std::string file, output;
  std::int64_t runs = 20000;
  bool json = false;
};

/// "dir/x.headroom" gives "dir/x.small.headroom".
std::string default_output(const std::string& file) {
  const std::filesystem::path path(file);
  return path.parent_path() / (path.stem().string() + ".small.headroom");
}

std::string shape_text(const fuzz::Shape& s) {
  return fmt::format("{} x {} x {} x {}", s.queries, s.keys, s.channels, s.value_channels);
}

Json shape_json(const fuzz::Shape& s) {
  return {{"queries", s.queries},
          {"keys", s.keys},
          {"channels", s.channels},
          {"value_channels", s.value_channels}};
}

void run_shrink(const ShrinkArguments& a, int& exit_code) {
  if (!a.plugin.empty()) load_plugin(a.plugin);
  const fuzz::Finding finding = fuzz::read_finding(a.file);
  const std::string output = a.output.empty() ? default_output(a.file) : a.output;
  // only -o may name a file that is there
  std::error_code error;
  if (a.output.empty() && std::filesystem::exists(output, error)) {
    throw InputError(
        fmt::format("{}: found a file, expected none: -o says which file may be replaced", output));
  }
  fuzz::Finding small;
  std::int64_t runs = 0;
  {
    Progress progress("shrink", static_cast<std::uint64_t>(a.runs));
    fuzz::ShrinkOptions options;
    options.most_runs = a.runs;
    options.progress = [&](std::int64_t done, const fuzz::Candidate&) {
      progress.advance(static_cast<std::uint64_t>(done - runs));
      runs = done;
    };
    small = fuzz::shrink(finding, options);
  }
  if (!small.diagnosis.met) {
    throw InputError(
        fmt::format("{}: found a finding that does not reproduce ({}), expected one "
                    "that does",
                    a.file, small.diagnosis.verdict));
  }
  atomic_write_file(output, fuzz::finding_text(small));
  exit_code = 0;
  if (a.json) {
    const Json document = {{"schema", "headroom-shrink-1"},
                           {"exit_code", exit_code},
                           {"file", a.file},
                           {"output", output},
                           {"class", small.class_name()},
                           {"runs", runs},
                           {"before", shape_json(finding.candidate.shape)},
                           {"after", shape_json(small.candidate.shape)},
                           {"text", small.text}};
    std::fputs((document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n").c_str(),
               stdout);
    return;
  }
  std::fputs(fmt::format("{}: {} to {} in {} runs\n{}\n", printable(output),
                         shape_text(finding.candidate.shape), shape_text(small.candidate.shape),
                         runs, printable(small.text))
                 .c_str(),
             stdout);
}

}  // namespace

void add_shrink(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ShrinkArguments>();
  ShrinkArguments& a = *arguments;
  CLI::App* command = app.add_subcommand(
      "shrink", "Make a finding as small and as simple as it can be and still fail");
  command->add_option("finding", a.file, "A file that headroom fuzz or shrink wrote")->required();
  command->add_option("-o,--output", a.output,
                      "Where the smaller finding goes (default: NAME.small.headroom beside it, if "
                      "there is no such file); may be the finding itself");
  command->add_option("--plugin", a.plugin, "The library of a finding's plug-in");
  command->add_option("--runs", a.runs, "Diagnoses at most")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  command->add_flag("--json", a.json, "Machine-readable output");
  command->footer(
      "Examples:\n"
      "  headroom shrink found/1.headroom\n"
      "  headroom shrink examples/findings/lost-mass.headroom -o small.headroom\n"
      "Exit codes: 0 the smaller finding is written; 2 bad input, or a finding that\n"
      "does not reproduce, and nothing is written.\n"
      "The file: docs/finding.md");
  command->callback([=, &exit_code] { run_shrink(*arguments, exit_code); });
}

}  // namespace headroom::cli
