// What every reader's target needs: bytes as a file that readers can open, and one way to fail.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "reference/head/tensor_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace headroom::fuzz {

/// A property that does not hold ends the process, so that a fuzzer keeps the input.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

/// A message is one line that begins with the file's name.
inline void require_one_line(const std::string& message, const std::string& file) {
  require(message.find('\n') == std::string::npos, "an error is one line");
  require(message.starts_with(file), "an error names the file");
  require(message.size() < 2000 + file.size(), "an error is no longer than a screen");
}

/// A regular file without a name.
class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t size) : fd_(::memfd_create("input", 0)) {
    require(fd_ >= 0 && ::write(fd_, data, size) == static_cast<ssize_t>(size), "a file in memory");
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

/// Reads every byte that a file says it has.
inline void touch(const TensorFile& file) {
  const auto read = [](const std::byte* data, std::int64_t bytes) {
    require(bytes >= 0, "sizes are not negative");
    const volatile std::byte* at = data;  // each is read, though nothing comes of it
    for (std::int64_t i = 0; i < bytes; ++i) static_cast<void>(at[i]);
  };
  for (const Tensor& tensor : file.tensors()) {
    std::int64_t bytes = tensor.format.storage_bytes();
    bool empty = false;
    for (const std::int64_t n : tensor.shape) empty = empty || n == 0;
    for (const std::int64_t n : tensor.shape) bytes = empty ? 0 : bytes * n;
    require(bytes == tensor.bytes, "an operand has the bytes of its shape");
    require(file.find(tensor.name) != nullptr, "a listed tensor is found");
    read(tensor.data, tensor.bytes);
  }
  for (const auto& [name, tensor] : file.unusable()) read(tensor.data, tensor.bytes);
  require(file.summary().find('\n') == std::string::npos, "a summary is one line");
  file.require_unchanged();
}

/// Opens the input as a tensor file and reads it whole, or gets one line of error.
int open_and_touch(const std::uint8_t* data, std::size_t size, const OpenOptions& options);

}  // namespace headroom::fuzz
