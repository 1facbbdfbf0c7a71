// Runs a target on every file of the folders given, without a fuzzer and in bounded memory: the
// corpus as a test of any compiler.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz_readers/memory_file.h"

int main(int argc, char** argv) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__clang__)  // ASan reserves terabytes of addresses
  constexpr rlim_t most = rlim_t{512} << 20;
  const rlimit limit{most, most};
  ::setrlimit(RLIMIT_AS, &limit);
#endif
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    std::fprintf(stderr, "%s\n", file.filename().c_str());  // the last line names what crashed
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  }
  std::printf("%zu inputs\n", files.size());
  return files.empty() ? 1 : 0;
}
