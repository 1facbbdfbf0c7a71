// headroom check: runs the verified checker, a program of its own (proofs/check) that shares no
// code with this one.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.h"
#include "reference/input_error.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string certificate;
  std::vector<std::string> tensors;
  bool json = false;
};

/// The checker: beside this program where it is installed, in proofs/check/ where it was built.
fs::path checker() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) throw InputError("check: cannot tell where this program is: " + error.message());
  const fs::path here = self.parent_path();
  for (const fs::path& candidate :
       {here / "headroom-check", here.parent_path() / "proofs" / "check" / "headroom-check"}) {
    if (fs::is_regular_file(candidate, error)) return candidate;
  }
  throw InputError(fmt::format(
      "check: found no headroom-check beside {}, expected the verified checker: configure with "
      "-Dproofs=enabled (Coq 8.16, Flocq, Interval, Gappa, OCaml, Zarith) and build",
      self.string()));
}

/// Runs it with this program's standard streams; its exit code.
int run(const Options& options) {
  if (options.tensors.size() != 1 && options.tensors.size() != 3) {
    throw InputError(fmt::format(
        "check: found {} tensor files, expected one .safetensors file or three .npy files: Q, K, V",
        options.tensors.size()));
  }
  const fs::path program = checker();
  std::vector<std::string> words{program.string()};
  if (options.json) words.push_back("--json");
  words.push_back("--");
  words.push_back(options.certificate);
  words.insert(words.end(), options.tensors.begin(), options.tensors.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::cout.flush();
  std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) throw InputError(fmt::format("check: cannot fork: {}", std::strerror(errno)));
  if (child == 0) {
    execv(program.c_str(), arguments.data());
    _exit(126);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw InputError(fmt::format("check: {}", std::strerror(errno)));
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == 0 || code == 1 || code == 2 || code == 4) return code;
  throw InputError(fmt::format("check: {} ended without an answer ({})", program.string(),
                               WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                                                   : fmt::format("exit code {}", code)));
}

}  // namespace

void add_check(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "check",
      "Check a certificate against its tensors with a program extracted from Coq,\n"
      "whose answer is a theorem: says what it checked, what it trusted and the\n"
      "theorem's name (proofs/TRUST.md).");
  command->add_option("certificate", options->certificate, "A certificate that certify wrote")
      ->type_name("JSON")
      ->required();
  command
      ->add_option("tensors", options->tensors,
                   "The .safetensors file, or three .npy files: Q, K, V")
      ->type_name("FILE ...")
      ->required();
  command->add_flag("--json", options->json, "Print JSON for programs");
  command->footer(
      "Exit codes: 0 accepted; 1 rejected: tampered, malformed, or not of these tensors;\n"
      "2 a file cannot be read, or the checker was not built; 4 no theorem covers it.\n"
      "Examples:\n"
      "  headroom certify heads.safetensors --kernel hopper --certificates certificates\n"
      "  headroom check certificates/heads:0.json heads.safetensors");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace headroom::cli
