// headroom certify: verdicts, margins and certificates for the heads of files.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <oneapi/tbb/global_control.h>
#include <nlohmann/json.hpp>

#include "certify/certificate.h"
#include "certify/certify.h"
#include "cli/bounds_output.h"
#include "cli/commands.h"
#include "cli/head_options.h"
#include "cli/problem_options.h"
#include "cli/progress.h"
#include "cli/settings.h"
#include "cli/table.h"
#include "reference/head/load.h"
#include "reference/head/write.h"
#include "reference/input_error.h"
#include "reference/model/kernel_file.h"

namespace headroom::cli {
namespace {

struct CertifyArguments {
  std::vector<std::string> files, set;
  std::string kernel, policy = "clis", eps = "2^-10", max_error, certificates;
  HeadOptions heads;
  ProblemOptions problem;
  std::string exact_max;
  std::int64_t evaluate_rows = 64;
  int threads = 0;
  bool json = false, accept_fallback = false, claims = false, bounds = false;
};

/// A positive exact number as a double, rounded toward zero: a limit may only get stricter.
double positive_limit(const std::string& option, const std::string& text) {
  Rational value;
  try {
    value = parse_exact_number(text);
  } catch (const std::invalid_argument&) {
    throw InputError(
        fmt::format("{}: found '{}', expected a number such as 0.001, 2^-10 or "
                    "0x1p-10",
                    option, printable(text)));
  }
  if (value <= 0) {
    throw InputError(
        fmt::format("{}: found '{}', expected a number above 0", option, printable(text)));
  }
  const double lower = enclose(value).lo();
  if (!(lower > 0) || !std::isfinite(lower)) {
    throw InputError(
        fmt::format("{}: found '{}', which a double cannot hold", option, printable(text)));
  }
  return lower;
}

/// Bits with two digits; a margin too small for them with one that shows its sign.
std::string bits_text(double bits) {
  if (std::isinf(bits)) return bits > 0 ? "-" : "-inf";
  return bits != 0 && std::fabs(bits) < 0.005 ? fmt::format("{:+.0e}", bits)
                                              : fmt::format("{:+.2f}", bits);
}

/// An upper bound for people: two digits, rounded up, so that the shown number is a bound too.
std::string upper_text(double value) {
  if (!std::isfinite(value) || value <= 0) return fmt::format("{:.2g}", value);
  const std::string nearest = fmt::format("{:.1e}", value);
  if (std::stod(nearest) >= value) return fmt::format("{:.2g}", std::stod(nearest));
  const double step = std::pow(10.0, std::floor(std::log10(std::stod(nearest))) - 1);
  return fmt::format("{:.2g}", std::stod(nearest) + step);
}

/// A number for people: four digits.
std::string number_text(double value) {
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return fmt::format("{:.4g}", value);
}

/// Two numbers for people: four digits, or as many more as tell them apart.
std::pair<std::string, std::string> told_apart(double a, double b) {
  std::string first = number_text(a), second = number_text(b);
  for (int digits = 5; digits <= 17 && a != b && first == second; ++digits) {
    first = fmt::format("{:.{}g}", a, digits);
    second = fmt::format("{:.{}g}", b, digits);
  }
  return {first, second};
}

Tone tone_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::certified:
      return Tone::good;
    case Verdict::fallback:
    case Verdict::undecided:
      return Tone::warning;
    case Verdict::refuted:
      return Tone::bad;
  }
  return Tone::plain;
}

const Claim* find_claim(const HeadReport& report, std::string_view id) {
  for (const Claim& claim : report.claims) {
    if (claim.id == id) return &claim;
  }
  return nullptr;
}

/// The claim that decided: an id may stand for several, of which one has the report's margin.
const Claim* binding_claim(const HeadReport& report) {
  const ClaimOutcome deciding = report.verdict == Verdict::refuted     ? ClaimOutcome::fails
                                : report.verdict == Verdict::undecided ? ClaimOutcome::unknown
                                                                       : ClaimOutcome::holds;
  for (const Claim& claim : report.claims) {
    if (claim.id == report.binding && claim.required && claim.kind != LimitKind::none &&
        claim.outcome() == deciding && claim.margin_bits() == report.margin_bits) {
      return &claim;
    }
  }
  return find_claim(report, report.binding);
}

std::string modifiers_text(const ScoreModifiers& m) {
  std::string text;
  if (m.window) text += fmt::format(", window {},{}", m.window->left, m.window->right);
  if (!m.query_segments.empty()) text += ", segments";
  if (!m.mask.empty()) text += ", a mask tensor";
  if (m.bias) text += ", a bias";
  if (m.softcap) text += fmt::format(", softcap {}", to_text(*m.softcap));
  if (m.sink) text += fmt::format(", sink {}", number_text(*m.sink));
  return text;
}

void print_table(const std::vector<Head>& heads, const std::vector<HeadReport>& reports) {
  const bool colour = colour_wanted(stdout);
  Table table({{"head"},
               {"verdict"},
               {"margin", Align::right},
               {"binding"},
               {"row", Align::right},
               {"gate", Align::right},
               {"limit", Align::right},
               {"C", Align::right},
               {"lost <=", Align::right},
               {"error <=", Align::right}});
  for (const HeadReport& r : reports) {
    const Claim* lost = find_claim(r, "mass.lost");
    const Claim* error = find_claim(r, "output.error");
    const Claim* binding = binding_claim(r);
    table.add_row({r.id, Cell(std::string(to_text(r.verdict)), tone_of(r.verdict)),
                   bits_text(r.margin_bits), r.binding.empty() ? "-" : r.binding,
                   binding != nullptr && binding->row >= 0 ? std::to_string(binding->row) : "-",
                   r.has_gate ? number_text(r.gate_value.hi()) : "-",
                   r.has_gate ? number_text(r.gate_limit) : "-",
                   r.has_gate ? number_text(r.cap) : "-",
                   lost != nullptr ? upper_text(lost->value.hi()) : "-",
                   error != nullptr ? upper_text(error->value.hi()) : "-"});
  }
  std::fputs(table.render(colour).c_str(), stdout);

  // What was taken from where, once for all heads that agree.
  std::map<std::string, std::size_t> settings;
  for (const Head& head : heads) {
    ++settings[fmt::format(
        "scale {} ({}), mask {} ({}){}{}", scale_text(head.scale), head.scale_source,
        to_text(head.visibility.kind), head.mask_source, modifiers_text(head.modifiers),
        head.was_cast ? fmt::format(", cast to {} (rne)", head.q.format().name) : "")];
  }
  std::fputs("\n", stdout);
  for (const auto& [text, count] : settings) {
    std::fputs(fmt::format("{}: {} head{}\n", text, count, count == 1 ? "" : "s").c_str(), stdout);
  }
}

void print_summary(const std::vector<HeadReport>& reports, const KernelModel& kernel,
                   const std::vector<Head>& heads, const CertifyArguments& arguments) {
  std::map<Verdict, std::size_t> counts;
  for (const HeadReport& r : reports) ++counts[r.verdict];
  std::fputs(fmt::format("kernel {} (machine {}), policy {}, eps {}\n", printable(kernel.name),
                         printable(kernel.machine), arguments.policy, arguments.eps)
                 .c_str(),
             stdout);
  if (!reports.empty() && !reports.front().assumptions.empty()) {
    std::fputs("assumed:\n", stdout);
    for (const std::string& a : reports.front().assumptions) {
      std::fputs(fmt::format("  {}\n", printable(a)).c_str(), stdout);
    }
  }
  std::map<std::string, std::size_t> warnings;
  for (const Head& head : heads) {
    for (const std::string& w : head.warnings) ++warnings[w];
  }
  for (const auto& [text, count] : warnings) {
    std::fputs(
        fmt::format("warning: {} ({} head{})\n", printable(text), count, count == 1 ? "" : "s")
            .c_str(),
        stdout);
  }
  std::fputs(fmt::format("{} certified, {} fallback, {} undecided, {} refuted\n",
                         counts[Verdict::certified], counts[Verdict::fallback],
                         counts[Verdict::undecided], counts[Verdict::refuted])
                 .c_str(),
             stdout);
}

/// Why, one line for each head that is not certified.
void print_reasons(const std::vector<HeadReport>& reports) {
  constexpr std::size_t most = 20;
  std::size_t printed = 0, left = 0;
  for (const HeadReport& r : reports) {
    if (r.verdict == Verdict::certified) continue;
    if (printed == most) {
      ++left;
      continue;
    }
    ++printed;
    std::string line = fmt::format("{}: {}: {}", printable(r.id), to_text(r.verdict), r.reason);
    const Claim* binding = binding_claim(r);
    if (r.verdict == Verdict::fallback) {
      if (!r.gate_note.empty()) line += fmt::format(" (refused by {})", r.gate_note);
    } else if (binding != nullptr && binding->id != "operand.finite") {
      const double end =
          binding->kind == LimitKind::at_least ? binding->value.lo() : binding->value.hi();
      const auto [value, limit] = told_apart(end, binding->limit);
      line += fmt::format(": {} is {}, limit {}", binding->id, value, limit);
      if (binding->row >= 0) line += fmt::format(", row {}", binding->row);
    }
    std::fputs((printable(line) + "\n").c_str(), stdout);
  }
  if (left > 0) std::fputs(fmt::format("and {} more; see --claims\n", left).c_str(), stdout);
}

void print_claims(const std::vector<HeadReport>& reports) {
  const bool colour = colour_wanted(stdout);
  const auto print = [&](const HeadReport& r, const std::vector<Claim>& claims,
                         const std::string& title) {
    std::fputs(fmt::format("\n{}: {}\n", printable(r.id), title).c_str(), stdout);
    Table table({{"claim"},
                 {"outcome"},
                 {"value", Align::right},
                 {"limit", Align::right},
                 {"margin", Align::right},
                 {"unit"},
                 {"row", Align::right},
                 {"key", Align::right},
                 {"over"},
                 {"status"}});
    for (const Claim& c : claims) {
      const bool limited = c.kind != LimitKind::none;
      const double end = c.kind == LimitKind::at_least ? c.value.lo() : c.value.hi();
      const double margin = c.margin_bits();
      table.add_row({c.id,
                     Cell(std::string(limited ? to_text(c.outcome()) : "reported") +
                              (c.required || !limited ? "" : " (not required)"),
                          !limited                             ? Tone::dim
                          : c.outcome() == ClaimOutcome::holds ? Tone::good
                          : c.outcome() == ClaimOutcome::fails ? Tone::bad
                                                               : Tone::warning),
                     number_text(end), limited ? number_text(c.limit) : "-",
                     limited ? bits_text(margin) : "-", std::string(to_text(c.unit)),
                     c.row >= 0 ? std::to_string(c.row) : "-",
                     c.key >= 0 ? std::to_string(c.key) : "-", std::string(c.reference),
                     std::string(to_text(c.status))});
    }
    std::fputs(table.render(colour).c_str(), stdout);
  };
  for (const HeadReport& r : reports) {
    print(r, r.claims,
          fmt::format("{} ({}); SAFE {}, ACCURATE {}", r.reason, r.stabilizer, to_text(r.safe),
                      to_text(r.accurate)));
    if (!r.fixed_claims.empty()) {
      print(r, r.fixed_claims, fmt::format("the refused path ({})", to_text(r.policy)));
    }
  }
}

int exit_code_of(const std::vector<HeadReport>& reports, bool accept_fallback) {
  const auto any = [&](Verdict verdict) {
    return std::any_of(reports.begin(), reports.end(),
                       [&](const HeadReport& r) { return r.verdict == verdict; });
  };
  if (any(Verdict::refuted) || (!accept_fallback && any(Verdict::fallback))) return 1;
  return any(Verdict::undecided) ? 3 : 0;
}

std::vector<Head> load_all(const std::vector<std::string>& files, const LoadOptions& options) {
  const auto npy = std::count_if(files.begin(), files.end(),
                                 [](const std::string& f) { return ends_with(f, ".npy"); });
  if (npy > 0) {
    if (npy != 3 || files.size() != 3) {
      throw InputError(
          fmt::format("found {} files, {} of them .npy, expected three .npy files: Q, "
                      "K and V in this order",
                      files.size(), npy));
    }
    return load_heads(files[0], files[1], files[2], options);
  }
  std::vector<Head> heads;
  for (const std::string& file : files) {
    for (Head& head : load_heads(file, options)) heads.push_back(std::move(head));
  }
  return heads;
}

/// Certificates are named by the id: two heads of one id would overwrite each other's.
void refuse_equal_ids(const std::vector<Head>& heads) {
  std::map<std::string, std::string> file_of;
  for (const Head& head : heads) {
    const auto [known, fresh] = file_of.emplace(head.id, head.file);
    if (!fresh) {
      throw InputError(
          fmt::format("--certificates: {} and {} both hold a head {}, expected ids "
                      "that differ: certificates are named by them",
                      path_text(known->second), path_text(head.file), printable(head.id)));
    }
  }
}

void run_certify(const CertifyArguments& arguments, int& exit_code) {
  CertifyOptions options;
  options.policy = parse_policy(arguments.policy);
  options.eps = positive_limit("--eps", arguments.eps);
  if (options.eps >= 1) {
    throw InputError(
        fmt::format("--eps: found '{}', expected a number below 1: a share of the "
                    "softmax mass",
                    printable(arguments.eps)));
  }
  if (!arguments.max_error.empty()) {
    options.max_error = positive_limit("--max-error", arguments.max_error);
  }
  options.evaluate_rows = arguments.evaluate_rows;
  if (arguments.bounds || !arguments.exact_max.empty()) {
    options.exact_rows = parse_exact_rows(
        "--exact-max", arguments.exact_max.empty() ? "rows=sample:64" : arguments.exact_max);
  }
  options.parameters = settings_of(arguments.set);
  refuse_settings_as_files(arguments.set, arguments.files);
  const KernelModel kernel = load_kernel(arguments.kernel);
  complete_parameters(options.policy, kernel, options.parameters);
  const LoadOptions load = load_options(arguments.heads, kernel.operand);
  std::unique_ptr<oneapi::tbb::global_control> limit;
  if (arguments.threads > 0) {
    limit = std::make_unique<oneapi::tbb::global_control>(
        oneapi::tbb::global_control::max_allowed_parallelism,
        static_cast<std::size_t>(arguments.threads));
  }
  std::vector<Head> heads = load_all(arguments.files, load);
  const bool three_files = ends_with(arguments.files[0], ".npy");
  TensorFiles beside;
  for (Head& head : heads) {
    for (auto& file :
         apply_problem_options(arguments.problem, head, !three_files, head.modifiers)) {
      beside.push_back(std::move(file));
    }
    head.modifiers.validate(head.visibility, printable(head.id));
    head.warnings = warnings_of(arguments.problem, head);
  }
  if (!arguments.certificates.empty()) refuse_equal_ids(heads);
  std::vector<HeadReport> reports;
  {
    Progress progress("certifying", heads.size());
    reports = certify_heads(heads, kernel, options, [&](std::size_t) { progress.advance(); });
  }
  std::vector<std::string> certificates;
  if (!arguments.certificates.empty() || arguments.json) {
    for (std::size_t i = 0; i < heads.size(); ++i) {
      certificates.push_back(certificate_json(heads[i], kernel, options, reports[i]));
      heads[i].drop_pages();
    }
  }
  for (const Head& head : heads) head.require_unchanged();
  for (const auto& file : beside) file->require_unchanged();
  if (!arguments.certificates.empty()) {
    std::error_code error;
    std::filesystem::create_directories(arguments.certificates, error);
    if (error || !std::filesystem::is_directory(arguments.certificates)) {
      throw InputError(fmt::format("--certificates {}: cannot make this folder{}",
                                   printable(arguments.certificates),
                                   error ? ": " + error.message() : ""));
    }
    for (std::size_t i = 0; i < heads.size(); ++i) {
      atomic_write_file(
          (std::filesystem::path(arguments.certificates) / certificate_file_name(heads[i].id))
              .string(),
          certificates[i]);
    }
  }
  exit_code = exit_code_of(reports, arguments.accept_fallback);
  if (arguments.json) {
    nlohmann::ordered_json out;
    out["schema"] = "headroom-certify/1";
    out["exit_code"] = exit_code;
    out["heads"] = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < heads.size(); ++i) {
      auto head = nlohmann::ordered_json::parse(certificates[i]);
      head["scale_source"] = heads[i].scale_source;
      head["mask_source"] = heads[i].mask_source;
      head["warnings"] = heads[i].warnings;
      if (reports[i].bounds) head["bounds"]["maxima"] = row_maxima_json(*reports[i].bounds);
      out["heads"].push_back(std::move(head));
    }
    std::fputs((out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n").c_str(),
               stdout);
    return;
  }
  print_table(heads, reports);
  print_reasons(reports);
  print_summary(reports, kernel, heads, arguments);
  if (arguments.claims) print_claims(reports);
  std::fputs(bounds_tables(reports, colour_wanted(stdout)).c_str(), stdout);
}

}  // namespace

void add_certify(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<CertifyArguments>();
  CLI::App* command =
      app.add_subcommand("certify", "Certify the heads of files under a kernel and a policy");
  command
      ->add_option("files", arguments->files,
                   "One or more .safetensors or .npz files, or three .npy files: Q, K, V")
      ->required();
  command->add_option("--kernel", arguments->kernel, "Kernel file (TOML) or preset name")
      ->required();
  command
      ->add_option("--policy", arguments->policy,
                   "clis, clis-alg1, fixed-m, fixed-m-n, fdpp, fa4 or online")
      ->capture_default_str();
  command
      ->add_option("--set", arguments->set,
                   "One NAME=X, a number of the policy; repeat it: --set a=-16 --set b=24.\n"
                   "online: initial_max (-inf; unit of the stored score), guard (1; 0: a maximum\n"
                   "of -inf, while all tiles so far are hidden, is not guarded);\n"
                   "fdpp: phi, a, b (natural units; 0, -60, 60; --set a=-inf --set b=inf: a shift\n"
                   "without a test); fa4: threshold, offset (log2 units; 8, 0; FP8 P: 0, 8),\n"
                   "wave (rows that decide together; 1, 0: a query block), running_max (1; 0: a\n"
                   "wave takes its tile's maxima). The other policies take none")
      ->allow_extra_args(false);
  command->add_option("--eps", arguments->eps, "Limit of mass.lost; sets the gate's guard bits")
      ->capture_default_str();
  command->add_option("--max-error", arguments->max_error,
                      "Limit of output.error, absolute (default: reported only)");
  add_head_options(*command, arguments->heads);
  add_problem_options(*command, arguments->problem);
  command
      ->add_option("--certificates", arguments->certificates,
                   "Write one certificate a head into this folder")
      ->check([](const std::string& folder) {
        return folder.empty() ? std::string("expected a folder") : std::string();
      });
  command
      ->add_option("--evaluate-rows", arguments->evaluate_rows,
                   "Rows evaluated exactly at most, a head, where bounds do not decide")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30));
  command->add_option("--threads", arguments->threads, "Worker threads (0: all cores)")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
  command->add_flag("--claims", arguments->claims, "Print every claim of every head");
  command->add_flag("--bounds", arguments->bounds,
                    "Print how far bounds of the scores lie above the largest scores");
  command
      ->add_option("--exact-max", arguments->exact_max,
                   "Rows for --bounds: rows=all or rows=sample:K (default: rows=sample:64)")
      ->check([](const std::string& rows) {
        return rows.empty() ? std::string("expected rows=all or rows=sample:K") : std::string();
      });
  command->add_flag("--accept-fallback", arguments->accept_fallback,
                    "Exit 1 only for refuted heads");
  command->add_flag("--json", arguments->json, "Machine-readable output");
  command->footer(
      "Examples:\n"
      "  headroom certify heads.safetensors --kernel hopper\n"
      "  headroom certify heads.safetensors --kernel my-kernel.toml \\\n"
      "      --policy fixed-m --claims\n"
      "  headroom certify heads.safetensors --kernel hopper --policy fdpp \\\n"
      "      --set phi=-16.8 --set a=-16 --set b=24\n"
      "  headroom certify f32.safetensors --kernel tpu7x \\\n"
      "      --cast rne --mask causal --json\n"
      "  headroom certify q.npy k.npy v.npy --kernel ieee-fp32 \\\n"
      "      --certificates certificates\n"
      "  headroom certify heads.safetensors --kernel hopper --exact-max rows=all --json\n"
      "Exit codes: 0 all certified; 1 some head refuted or fallback (--accept-fallback:\n"
      "refuted only); 2 bad input; 3 some head undecided.");
  command->callback([=, &exit_code] { run_certify(*arguments, exit_code); });
}

}  // namespace headroom::cli
