#include "reference/head/small_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

#include "reference/head/tensor_file.h"
#include "reference/input_error.h"

namespace headroom {

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Descriptor open_regular(const std::string& path, struct stat& status) {
  if (path.find('\0') != std::string::npos) {
    throw InputError(path_text(path) + ": a path cannot hold a NUL byte");
  }
  // O_NONBLOCK so that a FIFO without a writer does not block
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    throw InputError(fmt::format("{}: cannot open: {}", path_text(path), std::strerror(errno)));
  }
  Descriptor descriptor(fd);
  if (::fstat(fd, &status) != 0) {
    throw InputError(fmt::format("{}: cannot stat: {}", path_text(path), std::strerror(errno)));
  }
  if (!S_ISREG(status.st_mode)) {
    throw InputError(fmt::format("{}: is {}, expected a regular file", path_text(path),
                                 S_ISDIR(status.st_mode)    ? "a directory"
                                 : S_ISFIFO(status.st_mode) ? "a FIFO"
                                                            : "a device or socket"));
  }
  return descriptor;
}

std::string read_small_file(const std::string& path, std::size_t max_bytes) {
  struct stat status {};
  const Descriptor file = open_regular(path, status);
  if (static_cast<std::uint64_t>(status.st_size) > max_bytes) {
    throw InputError(fmt::format("{}: {} bytes, expected at most {}", path_text(path),
                                 status.st_size, max_bytes));
  }
  std::string text;
  std::array<char, 65536> buffer;
  while (true) {
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw InputError(fmt::format("{}: cannot read: {}", path_text(path), std::strerror(errno)));
    }
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
    if (text.size() > max_bytes) {
      throw InputError(fmt::format("{}: expected at most {} bytes", path_text(path), max_bytes));
    }
  }
}

}  // namespace headroom
