#include "fuzz/corpus.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "fuzz/finding.h"
#include "reference/head/write.h"
#include "reference/input_error.h"

namespace headroom::fuzz {
namespace {

constexpr std::string_view first_line = "headroom.corpus/1\n";
constexpr std::string_view entry = "entry ";
constexpr std::uintmax_t most_bytes = std::uintmax_t{256} << 20;

}  // namespace

void write_corpus(const std::string& path, const Target& target,
                  const std::vector<const Candidate*>& candidates) {
  std::string text(first_line);
  Finding finding;
  finding.target = target;
  for (const Candidate* c : candidates) {
    finding.candidate = *c;
    const std::string one = finding_text(finding);
    text += fmt::format("{}{}\n{}", entry, one.size(), one);
  }
  atomic_write_file(path, text);
}

std::vector<Candidate> read_corpus(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return {};
  const auto fail = [&](const std::string& what) -> InputError {
    return InputError(path + ": " + what);
  };
  if (!std::filesystem::is_regular_file(status)) throw fail("found no regular file");
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size > most_bytes) {
    throw fail(fmt::format("found {} bytes, expected a corpus of at most 2^28", size));
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream all;
  if (!file || !(all << file.rdbuf())) throw fail("cannot be read");
  const std::string text = all.str();
  if (!text.starts_with(first_line)) throw fail("found no corpus, expected 'headroom.corpus/1'");
  std::string_view rest = std::string_view(text).substr(first_line.size());
  std::vector<Candidate> list;
  while (!rest.empty()) {
    const std::size_t line = rest.find('\n');
    std::size_t bytes = 0;
    const std::string where = fmt::format("{}: entry {}", path, list.size() + 1);
    if (!rest.starts_with(entry) || line == std::string_view::npos) {
      throw InputError(where + ": found no line 'entry BYTES'");
    }
    const char* begin = rest.data() + entry.size();
    const auto [end, wrong] = std::from_chars(begin, rest.data() + line, bytes);
    if (wrong != std::errc() || end != rest.data() + line || bytes > rest.size() - line - 1) {
      throw InputError(where + ": found a length beyond the end of the file");
    }
    list.push_back(parse_finding(std::string(rest.substr(line + 1, bytes)), where).candidate);
    rest.remove_prefix(line + 1 + bytes);
  }
  return list;
}

}  // namespace headroom::fuzz
