// Opening files that a user names: regular files only, so that none blocks or lies about its size.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <string>
#include <utility>

namespace headroom {

/// An open file, closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

/// Opens a regular file for reading and says what it is. A FIFO, device, socket or folder is an
/// InputError and does not block; so is whatever cannot be opened.
Descriptor open_regular(const std::string& path, struct stat& status);

/// The whole of a regular file of at most `max_bytes`; more is an InputError.
std::string read_small_file(const std::string& path, std::size_t max_bytes);

}  // namespace headroom
