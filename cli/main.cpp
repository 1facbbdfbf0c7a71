// headroom: the program. Parsing, one-line errors and exit codes; the work is in the libraries.
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "cli/commands.h"
#include "cli/table.h"
#include "reference/head/mapped_file.h"
#include "reference/input_error.h"
#include "reference/real/fp_environment.h"

namespace {

constexpr int exit_bad_input = 2;

int fail(const std::string& line) {
  // A path or an option may hold a line feed; an error stays one line.
  std::fprintf(stderr, "headroom: %s\n", headroom::cli::printable(line).c_str());
  return exit_bad_input;
}

// What is wrong with the first word, or nothing. CLI11 would say only that a subcommand is missing
// where the word given is not one, and would answer `bogus --help` with the help of the program.
std::string unknown_subcommand(const CLI::App& app, int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "-";
  if (first.starts_with('-')) return "";
  std::string known;
  for (const CLI::App* subcommand : app.get_subcommands({})) {
    if (subcommand->get_name() == first) return "";
    known += (known.empty() ? "" : ", ") + subcommand->get_name();
  }
  return "unknown subcommand '" + first + "', expected one of: " + known;
}

/// Breaks descriptions between words, so that help fits a terminal of 80 columns.
class WrappedHelp : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(CLI::Formatter::make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::stringstream out;
    CLI::detail::format_help(out, command->get_name(), wrapped(command->get_description()),
                             column_width_);
    return out.str();
  }

 private:
  std::string wrapped(const std::string& text) const {
    const std::size_t width = 79 - column_width_;
    std::istringstream words(text);
    std::string word, line, lines;
    while (words >> word) {
      if (!line.empty() && line.size() + 1 + word.size() > width) {
        lines += line + '\n';
        line.clear();
      }
      line += (line.empty() ? "" : " ") + word;
    }
    return lines + line;
  }
};

int run(int argc, char** argv) {
  const std::string environment = headroom::floating_point_self_check();
  if (!environment.empty()) {
    return fail("floating-point self-check failed, no bound can be trusted: " + environment);
  }
  CLI::App app{
      "Certify softmax stabilizers of attention kernels, run kernels bit for bit, and\n"
      "compute what is exact: the limits of formats and the attention itself.\n"
      "Exit codes: 0 all is well; 1 a failure was found; 2 bad input; 3 undecided;\n"
      "4 no theorem covers it.",
      "headroom"};
  app.set_version_flag("--version", HEADROOM_VERSION);
  app.formatter(std::make_shared<WrappedHelp>());
  app.require_subcommand(1);
  app.fallthrough(false);
  int exit_code = 0;
  headroom::cli::add_certify(app, exit_code);
  headroom::cli::add_check(app, exit_code);
  headroom::cli::add_exp2(app, exit_code);
  headroom::cli::add_fuzz(app, exit_code);
  headroom::cli::add_limits(app, exit_code);
  headroom::cli::add_new_stabilizer(app, exit_code);
  headroom::cli::add_reference(app, exit_code);
  headroom::cli::add_replay(app, exit_code);
  headroom::cli::add_shrink(app, exit_code);
  headroom::cli::add_simulate(app, exit_code);
  if (const std::string wrong = unknown_subcommand(app, argc, argv); !wrong.empty()) {
    return fail(wrong);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return fail(std::string(e.what()) + " (see --help)");
  }
  // A full disk must not look like a verdict.
  if (!std::cout.flush() || std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    return fail("cannot write to stdout");
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  headroom::exit_on_truncation("headroom");
  try {
    return run(argc, argv);
  } catch (const headroom::InputError& e) {
    return fail(e.what());
  } catch (const std::exception& e) {
    return fail(std::string("unexpected error: ") + e.what());
  }
}
