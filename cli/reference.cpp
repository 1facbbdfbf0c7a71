// headroom reference: exact attention, correctly rounded to a format, or enclosed.
#include <fmt/format.h>
#include <oneapi/tbb/global_control.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/head_options.h"
#include "cli/output_file.h"
#include "cli/problem_options.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "reference/evaluate/ladder/ladder.h"
#include "reference/head/load.h"
#include "reference/input_error.h"
#include "reference/model/kernel_file.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ReferenceArguments {
  std::vector<std::string> files;
  std::string format, lse_format, rounding = "rne", lse_base = "e", output;
  std::string kernel, rows;
  std::int64_t sample_rows = 0;
  std::uint64_t seed = 1;
  int threads = 0;
  bool enclosure = false, json = false;
  HeadOptions heads;
  ProblemOptions problem;
};

// --- Options as values

Format format_named(const std::string& option, const std::string& name) {
  std::string known;
  for (const Format* f : {&fp64, &fp32, &fp16, &bf16, &e4m3fn, &e5m2}) {
    if (f->name == name) return *f;
    known += (known.empty() ? "" : ", ") + std::string(f->name);
  }
  throw InputError(
      fmt::format("{}: found '{}', expected one of {}", option, printable(name), known));
}

Rounding rounding_named(const std::string& name) {
  if (name == "rne") return Rounding::nearest_even;
  if (name == "rz") return Rounding::toward_zero;
  if (name == "ru") return Rounding::upward;
  if (name == "rd") return Rounding::downward;
  throw InputError(
      fmt::format("--rounding: found '{}', expected rne, rz, ru or rd", printable(name)));
}

AttentionProblem problem_of(const ReferenceArguments& a, const Head& head,
                            const std::optional<KernelModel>& kernel, TensorFiles& others) {
  AttentionProblem p =
      kernel ? AttentionProblem::as_multiplied(head, *kernel) : AttentionProblem(head);
  const TensorFiles opened = apply_problem_options(a.problem, head, a.files.size() == 1, p);
  others.insert(others.end(), opened.begin(), opened.end());
  return p;
}

// --- The command

constexpr Rung all_rungs[] = {Rung::vector,  Rung::double_double, Rung::wide,     Rung::tie,
                              Rung::defined, Rung::undefined,     Rung::undecided};

Json counts_json(const RungCounts& counts) {
  Json o, lse;
  for (const Rung r : all_rungs) {
    o[name(r)] = counts.output[static_cast<std::size_t>(r)];
    lse[name(r)] = counts.lse[static_cast<std::size_t>(r)];
  }
  return {{"o", o},
          {"lse", lse},
          {"widest_bits", counts.widest_bits},
          {"seconds",
           {{"vector", counts.seconds[0]},
            {"double-double", counts.seconds[1]},
            {"wide", counts.seconds[2]}}}};
}

struct HeadSummary {
  const Head* head;
  std::vector<std::int64_t> rows;
  RungCounts counts;
  std::vector<UndecidedElement> undecided;
};

void print_summary(const std::vector<HeadSummary>& summaries, const ReferenceArguments& a) {
  Table table({{"head"},
               {"rows", Align::right},
               {"vector", Align::right},
               {"double-double", Align::right},
               {"wide", Align::right},
               {"tie", Align::right},
               {"no key", Align::right},
               {"undefined", Align::right},
               {"undecided", Align::right}});
  for (const HeadSummary& s : summaries) {
    std::vector<Cell> cells = {s.head->id, std::to_string(s.rows.size())};
    for (const Rung r : all_rungs) {
      const std::int64_t n = s.counts.of(r);
      const bool odd = n > 0 && (r == Rung::undefined || r == Rung::undecided);
      cells.emplace_back(std::to_string(n), odd ? Tone::warning : Tone::plain);
    }
    table.add_row(cells);
  }
  std::fputs(table.render(colour_wanted(stdout)).c_str(), stdout);
  std::map<std::string, std::size_t> settings, warnings;
  for (const HeadSummary& s : summaries) {
    ++settings[fmt::format("scale {} ({}), mask {} ({})", scale_text(s.head->scale),
                           s.head->scale_source, to_text(s.head->visibility.kind),
                           s.head->mask_source)];
    for (const std::string& w : warnings_of(a.problem, *s.head))
      ++warnings["warning: " + printable(w)];
  }
  for (const auto& [text, count] : settings) {
    std::fputs(fmt::format("{}: {} head{}\n", text, count, count == 1 ? "" : "s").c_str(), stdout);
  }
  for (const auto& [text, count] : warnings) {
    std::fputs(fmt::format("{} ({} head{})\n", text, count, count == 1 ? "" : "s").c_str(), stdout);
  }
  std::fputs(fmt::format("{} written to {}\n", a.enclosure ? "enclosures" : "correctly rounded",
                         printable(a.output))
                 .c_str(),
             stdout);
}

void run_reference(const ReferenceArguments& a, int& exit_code) {
  LadderOptions options;
  options.output = {format_named("--format", a.format), rounding_named(a.rounding)};
  options.lse = options.output;
  if (!a.lse_format.empty()) options.lse.format = format_named("--lse-format", a.lse_format);
  if (a.lse_base != "e" && a.lse_base != "2") {
    throw InputError(fmt::format("--lse-base: found '{}', expected e or 2", printable(a.lse_base)));
  }
  options.lse_base = a.lse_base == "2" ? LseBase::two : LseBase::natural;
  check_output_name("-o", a.output);
  std::optional<KernelModel> kernel;
  if (!a.kernel.empty()) kernel = load_kernel(a.kernel);
  const LoadOptions load =
      load_options(a.heads, kernel ? std::optional<Format>(kernel->operand) : std::nullopt);
  if (load.cast && !kernel) {
    throw InputError("--cast: needs --kernel, whose operand format it casts to");
  }
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
  require_no_input("-o", a.output, inputs);

  TensorFiles others;
  std::vector<HeadSummary> summaries;
  std::uint64_t total = 0;
  for (const Head& head : heads) {
    HeadSummary s{&head, {}, {}, {}};
    if (!a.rows.empty()) {
      s.rows = row_list(a.rows, head.queries(), head.id);
    } else if (a.sample_rows > 0) {
      s.rows = sampled_rows(a.sample_rows, head.queries(), a.seed);
    } else {
      for (std::int64_t i = 0; i < head.queries(); ++i) s.rows.push_back(i);
    }
    total += s.rows.size();
    summaries.push_back(std::move(s));
  }

  std::vector<OutputTensor> out;
  {
    Progress progress("reference", total);
    options.rows_done = [&](std::int64_t n) { progress.advance(static_cast<std::uint64_t>(n)); };
    std::vector<const Head*> same_prefix;
    std::vector<HeadTensors> tensors;
    for (HeadSummary& s : summaries) {
      if (!same_prefix.empty() && same_prefix.front()->prefix != s.head->prefix) {
        stack(out, same_prefix, tensors);
        same_prefix.clear();
        tensors.clear();
      }
      const AttentionProblem problem = problem_of(a, *s.head, kernel, others);
      const auto n = static_cast<std::int64_t>(s.rows.size());
      const std::int64_t dv = problem.value_channels();
      HeadTensors t;
      if (a.enclosure) {
        const EnclosedRows e = enclosures(problem, s.rows, options);
        s.counts = e.counts;
        const Format &f = options.output.format, &g = options.lse.format;
        t = {{"o_lo", f, {n, dv}, encoded(f, Rounding::downward, e.output_lo)},
             {"o_hi", f, {n, dv}, encoded(f, Rounding::upward, e.output_hi)},
             {"lse_lo", g, {n}, encoded(g, Rounding::downward, e.lse_lo)},
             {"lse_hi", g, {n}, encoded(g, Rounding::upward, e.lse_hi)}};
      } else {
        RoundedRows r = correctly_rounded(problem, s.rows, options);
        s.counts = r.counts;
        s.undecided = r.undecided;
        t = {{"o", r.output_format, {n, dv}, std::move(r.output)},
             {"lse", r.lse_format, {n}, std::move(r.lse)}};
      }
      same_prefix.push_back(s.head);
      tensors.push_back(std::move(t));
      s.head->drop_pages();
    }
    stack(out, same_prefix, tensors);
  }
  for (const Head& head : heads) head.require_unchanged();
  for (const auto& file : others) file->require_unchanged();
  std::map<std::string, std::string> metadata = {
      {"headroom", HEADROOM_VERSION},
      {"reference", kernel ? "multiplied operands of kernel " + kernel->name : "stored operands"},
      {"format", std::string(options.output.format.name)},
      {"lse_format", std::string(options.lse.format.name)},
      {"lse_base", a.lse_base},
      {"rounding", a.enclosure ? "outward" : a.rounding},
      {"rows", rows_text(summaries.front().rows)},
      {"scale", heads.front().scale.text()},
      {"mask", to_text(heads.front().visibility.kind)}};
  std::string ids;
  for (const Head& h : heads) ids += (ids.empty() ? "" : " ") + h.id;
  metadata["heads"] = ids;
  write_output("--format", a.output, heads.front().prefix, out, metadata, inputs);

  std::int64_t undecided = 0;
  for (const HeadSummary& s : summaries) undecided += s.counts.of(Rung::undecided);
  exit_code = undecided > 0 ? 3 : 0;
  if (!a.json) {
    print_summary(summaries, a);
    return;
  }
  Json document = {{"schema", "headroom-reference-1"},
                   {"exit_code", exit_code},
                   {"output", a.output},
                   {"format", std::string(options.output.format.name)},
                   {"lse_format", std::string(options.lse.format.name)},
                   {"lse_base", a.lse_base},
                   {"rounding", a.enclosure ? "outward" : a.rounding},
                   {"enclosure", a.enclosure},
                   {"reference", metadata["reference"]},
                   {"simd", headroom::name(options.instruction_set)},
                   {"heads", Json::array()}};
  for (const HeadSummary& s : summaries) {
    Json open = Json::array();
    for (const UndecidedElement& u : s.undecided) {
      open.push_back({{"row", u.row}, {"channel", u.channel}});
    }
    document["heads"].push_back({{"id", s.head->id},
                                 {"rows", rows_text(s.rows)},
                                 {"channels", s.head->value_channels()},
                                 {"scale", s.head->scale.text()},
                                 {"scale_source", s.head->scale_source},
                                 {"mask", to_text(s.head->visibility.kind)},
                                 {"mask_source", s.head->mask_source},
                                 {"warnings", warnings_of(a.problem, *s.head)},
                                 {"decided_by", counts_json(s.counts)},
                                 {"undecided", open}});
  }
  std::fputs((document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n").c_str(), stdout);
}

}  // namespace

void add_reference(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ReferenceArguments>();
  ReferenceArguments& a = *arguments;
  CLI::App* command = app.add_subcommand(
      "reference", "Exact attention: O and LSE, each element correctly rounded, or enclosed");
  command
      ->add_option("files", a.files, "One .safetensors or .npz file, or three .npy files: Q, K, V")
      ->required();
  command
      ->add_option("-o,--output", a.output, "Where tensors `o` and `lse` go: .safetensors or .npy")
      ->required();
  command->add_option("--format", a.format, "fp64, fp32, fp16, bf16, e4m3fn or e5m2")->required();
  command->add_option("--lse-format", a.lse_format, "Format of `lse` (default: --format)");
  command->add_option("--lse-base", a.lse_base, "Base of `lse`: e or 2")->capture_default_str();
  command->add_option("--rounding", a.rounding, "rne, rz, ru or rd")->capture_default_str();
  command->add_flag("--enclosure", a.enclosure,
                    "Write lower and upper bounds (o_lo, o_hi, lse_lo, lse_hi) instead");
  CLI::Option* rows = command->add_option("--rows", a.rows, "Query rows, e.g. 0-63,100");
  CLI::Option* sample =
      command->add_option("--sample-rows", a.sample_rows, "This many rows, chosen by --seed")
          ->check(CLI::PositiveNumber)
          ->excludes(rows);
  command->add_option("--seed", a.seed, "Seed of --sample-rows")
      ->capture_default_str()
      ->needs(sample);
  command->add_option("--kernel", a.kernel,
                      "Kernel file or preset: evaluate the operands as it pre-rounds them");
  add_head_options(*command, a.heads);
  add_problem_options(*command, a.problem);
  command->add_option("--threads", a.threads, "Worker threads (0: all cores)")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
  command->add_flag("--json", a.json, "Machine-readable summary, with what decided the elements");
  command->footer(
      "Examples:\n"
      "  headroom reference heads.safetensors --format bf16 -o exact.safetensors\n"
      "  headroom reference heads.safetensors --format fp32 --rounding ru \\\n"
      "      --heads 'layer0.*:0-3' -o up.safetensors\n"
      "  headroom reference giant.safetensors --format bf16 \\\n"
      "      --sample-rows 64 --seed 7 --json -o rows.safetensors\n"
      "  headroom reference heads.safetensors --format fp64 \\\n"
      "      --enclosure --rows 0-63 -o bounds.safetensors\n"
      "  headroom reference q.npy k.npy v.npy --format fp32 \\\n"
      "      --softcap 50 --window 127,0 -o o.npy\n"
      "  headroom reference heads.safetensors --format fp32 \\\n"
      "      --mask-tensor keep --sink sinks -o exact.safetensors\n"
      "Exit codes: 0 all decided; 2 bad input; 3 some element undecided at 4096 bits.");
  command->callback([=, &exit_code] { run_reference(*arguments, exit_code); });
}

}  // namespace headroom::cli
