// headroom new-stabilizer: a plug-in to start from, built and hunted at once.
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <embedded.h>
#include "cli/commands.h"
#include "cli/table.h"
#include "reference/head/write.h"
#include "reference/input_error.h"

extern char** environ;

namespace headroom::cli {
namespace {

struct NewStabilizerArguments {
  std::string name, folder, kernel = "hopper";
  double seconds = 10;
  bool no_build = false;
};

void check_name(const std::string& name) {
  bool good = !name.empty() && name.size() <= 64 && name.front() != '-';
  for (const char c : name) {
    good = good && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '-' || c == '_');
  }
  if (!good) {
    throw InputError(fmt::format(
        "NAME: found '{}', expected at most 64 letters, digits, '-' and '_'", printable(name)));
  }
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw std::logic_error("the template does not hold " + from);
  return text.replace(at, from.size(), to);
}

/// The example without its heading, which is about the example.
std::string source_of(const std::string& name) {
  std::string text = plugin_example;
  text.erase(0, text.find("*/") + 3);
  const std::string heading = fmt::format(
      "/* The stabilizer `{0}`, a plug-in of Headroom: headroom_stabilizer.h says what each "
      "callback\n"
      " * may do. It starts as online softmax; put your rule for mu into tile().\n"
      " *\n"
      " *     make && headroom fuzz --plugin ./{0}.so --kernel hopper\n"
      " */\n",
      name);
  text = replaced(std::move(text), "\"online\"", "\"" + name + "\"");
  return heading + replaced(std::move(text),
                            "running maximum of stored scores, scaled when subtracted",
                            "what " + name + " does, and where it comes from");
}

std::string makefile_of(const std::string& name) {
  return fmt::format(
      "CFLAGS ?= -O2\n"
      "{0}.so: {0}.c headroom_stabilizer.h\n"
      "\t$(CC) -std=c11 -Wall -Wextra $(CFLAGS) -ffp-contract=off -fPIC -shared -o $@ {0}.c -lm\n",
      name);
}

/// Runs a program in a folder and waits; its exit status, or 128 and the signal.
int run_program(const std::vector<std::string>& words) {
  std::vector<std::string> copies = words;
  std::vector<char*> arguments;
  for (std::string& w : copies) arguments.push_back(w.data());
  arguments.push_back(nullptr);
  pid_t pid = -1;
  const int error =
      posix_spawnp(&pid, words.front().c_str(), nullptr, nullptr, arguments.data(), environ);
  if (error != 0) {
    throw InputError(fmt::format("{}: cannot be started: {}", words.front(), std::strerror(error)));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void run_new_stabilizer(const NewStabilizerArguments& a, int& exit_code) {
  check_name(a.name);
  const std::filesystem::path folder = a.folder.empty() ? a.name : a.folder;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!std::filesystem::is_directory(folder)) {
    throw InputError(fmt::format("{}: cannot make this folder", printable(folder.string())));
  }
  const std::vector<std::pair<std::string, std::string>> files = {
      {(folder / (a.name + ".c")).string(), source_of(a.name)},
      {(folder / "headroom_stabilizer.h").string(), plugin_header},
      {(folder / "Makefile").string(), makefile_of(a.name)}};
  for (const auto& [path, text] : files) {
    if (std::filesystem::exists(path, error)) {
      throw InputError(
          fmt::format("{}: found a file, expected none: nothing is replaced", printable(path)));
    }
  }
  atomic_write_files(files);
  for (const auto& [path, text] : files) fmt::print("wrote {}\n", printable(path));
  exit_code = 0;
  if (a.no_build) return;
  const char* compiler = std::getenv("CC");
  const std::string library = (folder / (a.name + ".so")).string();
  const std::vector<std::string> build = {compiler == nullptr || *compiler == 0 ? "cc" : compiler,
                                          "-std=c11",
                                          "-Wall",
                                          "-Wextra",
                                          "-O2",
                                          "-ffp-contract=off",
                                          "-fPIC",
                                          "-shared",
                                          "-o",
                                          library,
                                          files.front().first,
                                          "-lm"};
  fmt::print("{}\n", printable(fmt::format("{}", fmt::join(build, " "))));
  std::fflush(stdout);
  if (const int status = run_program(build); status != 0) {
    throw InputError(fmt::format("{}: the compiler ended with {}, expected a library",
                                 printable(files.front().first), status));
  }
  if (a.seconds <= 0) return;
  const std::string plugin = library.find('/') == std::string::npos ? "./" + library : library;
  const std::vector<std::string> hunt = {"/proc/self/exe",
                                         "fuzz",
                                         "--plugin",
                                         plugin,
                                         "--kernel",
                                         a.kernel,
                                         "--seconds",
                                         fmt::format("{}", a.seconds),
                                         "-o",
                                         (folder / "findings").string()};
  fmt::print("headroom {}\n",
             printable(fmt::format("{}", fmt::join(hunt.begin() + 1, hunt.end(), " "))));
  std::fflush(stdout);
  exit_code = run_program(hunt);
}

}  // namespace

void add_new_stabilizer(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<NewStabilizerArguments>();
  NewStabilizerArguments& a = *arguments;
  CLI::App* command = app.add_subcommand(
      "new-stabilizer", "Start a stabilizer of your own: source, build and a first hunt");
  command->add_option("name", a.name, "Its name, and that of its files")->required();
  command->add_option("-o,--output", a.folder, "Folder of the files (default: NAME)");
  command->add_option("--kernel", a.kernel, "Kernel file or preset of the first hunt")
      ->capture_default_str();
  command->add_option("--seconds", a.seconds, "Of the first hunt; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  command->add_flag("--no-build", a.no_build, "Write the files and stop");
  command->footer(
      "Examples:\n"
      "  headroom new-stabilizer mine\n"
      "  headroom new-stabilizer mine --kernel my-kernel.toml --seconds 60\n"
      "Exit codes: as of headroom fuzz: 0 nothing was found; 1 something was; 2 bad\n"
      "input, a compiler that fails, or files that are there already.\n"
      "docs/plugins.md goes on from there.");
  command->callback([=, &exit_code] { run_new_stabilizer(*arguments, exit_code); });
}

}  // namespace headroom::cli
