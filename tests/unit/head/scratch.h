// Scratch files for tests of the readers: a folder removed at the end, and bytes laid out by hand.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "reference/input_error.h"

namespace headroom::tests {

class Scratch : public ::testing::Test {
 protected:
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "headroom-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Scratch() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string put(const std::string& name, const std::string& bytes) const {
    std::filesystem::remove(path(name));  // truncating in place makes some file systems sync
    std::ofstream out(path(name), std::ios::binary);
    out << bytes;
    return path(name);
  }
  static std::string get(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::filesystem::path folder_;
};

/// A .safetensors file: header length, header, data.
inline std::string safetensors(const std::string& header, const std::string& data = "") {
  std::string bytes;
  for (std::uint64_t n = header.size(), i = 0; i < 8; ++i, n >>= 8U) {
    bytes += static_cast<char>(n & 0xFFU);
  }
  return bytes + header + data;
}

/// A .npy file of version `major`.
inline std::string npy(const std::string& dict, const std::string& data, char major = 1) {
  const std::string header = dict + "\n";
  std::string bytes = "\x93NUMPY";
  bytes += major;
  bytes += '\0';
  const int width = major == 1 ? 2 : 4;
  for (int i = 0; i < width; ++i) {
    bytes += static_cast<char>((header.size() >> static_cast<unsigned>(8 * i)) & 0xFFU);
  }
  return bytes + header + data;
}

/// A regular file in memory, for tests that rewrite one thousands of times.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("headroom-test", 0)) {}
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  /// Replaces the content; the path that opens it.
  std::string put(const std::string& bytes) const {
    EXPECT_EQ(::ftruncate(fd_, 0), 0);
    EXPECT_EQ(::pwrite(fd_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    return "/proc/self/fd/" + std::to_string(fd_);
  }

 private:
  int fd_;
};

/// The message of the InputError that `act` throws; checks that it is one line.
template <class Act>
std::string message_of(Act act) {
  try {
    act();
  } catch (const InputError& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    return what;
  }
  ADD_FAILURE() << "no InputError";
  return "";
}

inline ::testing::AssertionResult mentions(const std::string& message, const std::string& part) {
  if (message.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << part << "' is not in: " << message;
}

}  // namespace headroom::tests
