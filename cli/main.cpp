// headroom: the program. Parsing, one-line errors and exit codes; the work is in the libraries.
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>

#include "cli/commands.h"
#include "cli/table.h"
#include "reference/input_error.h"
#include "reference/real/fp_environment.h"

namespace {

constexpr int exit_bad_input = 2;

int fail(const std::string& line) {
  // A path or an option may hold a line feed; an error stays one line.
  std::fprintf(stderr, "headroom: %s\n", headroom::cli::printable(line).c_str());
  return exit_bad_input;
}

// Why the command line was refused. CLI11 says only that a subcommand is missing where the word
// given is not one.
std::string refusal(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "-";
  std::string known;
  bool is_known = false;
  for (const CLI::App* subcommand : app.get_subcommands({})) {
    known += (known.empty() ? "" : ", ") + subcommand->get_name();
    is_known = is_known || subcommand->get_name() == first;
  }
  if (is_known || first.starts_with('-')) return std::string(error.what()) + " (see --help)";
  return "unknown subcommand '" + first + "', expected one of: " + known;
}

int run(int argc, char** argv) {
  const std::string environment = headroom::floating_point_self_check();
  if (!environment.empty()) {
    return fail("floating-point self-check failed, no bound can be trusted: " + environment);
  }
  CLI::App app{
      "Certify, bound and break softmax stabilizers of attention kernels.\n"
      "Exit codes: 0 all certified; 1 refuted or fallback; 2 bad input; 3 undecided.",
      "headroom"};
  app.set_version_flag("--version", HEADROOM_VERSION);
  app.require_subcommand(1);
  app.fallthrough(false);
  int exit_code = 0;
  headroom::cli::add_certify(app, exit_code);
  headroom::cli::add_limits(app, exit_code);
  headroom::cli::add_reference(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return fail(refusal(app, e, argc, argv));
  }
  // A full disk must not look like a verdict.
  if (!std::cout.flush() || std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    return fail("cannot write to stdout");
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const headroom::InputError& e) {
    return fail(e.what());
  } catch (const std::exception& e) {
    return fail(std::string("unexpected error: ") + e.what());
  }
}
