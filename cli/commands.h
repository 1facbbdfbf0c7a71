// The program's subcommands. Each adds itself to the application and, when run, sets the exit code
// (DESIGN.md, "Exit codes"); InputError thrown from a callback becomes one line and exit code 2.
#pragma once

#include <CLI/CLI.hpp>

namespace headroom::cli {

void add_certify(CLI::App& app, int& exit_code);
void add_check(CLI::App& app, int& exit_code);
void add_exp2(CLI::App& app, int& exit_code);
void add_fuzz(CLI::App& app, int& exit_code);
void add_limits(CLI::App& app, int& exit_code);
void add_new_stabilizer(CLI::App& app, int& exit_code);
void add_reference(CLI::App& app, int& exit_code);
void add_replay(CLI::App& app, int& exit_code);
void add_shrink(CLI::App& app, int& exit_code);
void add_simulate(CLI::App& app, int& exit_code);

}  // namespace headroom::cli
