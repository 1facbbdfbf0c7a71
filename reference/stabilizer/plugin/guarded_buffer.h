// Memory that foreign code writes to: a write past either end is caught, not believed.
#pragma once

#include <cstddef>
#include <string>

namespace headroom {

/// Bytes between two pages that nobody may touch. The end is exact to 64 bytes and the rest of them
/// is filled and looked at by `intact`; a write beyond raises SIGSEGV at the very instruction.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::string name) : name_(std::move(name)) {}
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  /// At least so many bytes, zeroed, aligned to 64. Throws std::bad_alloc.
  void reset(std::size_t bytes);
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  /// False if the bytes around the buffer were written to.
  bool intact() const;
  const std::string& name() const { return name_; }

 private:
  void unmap();

  std::string name_;
  std::byte* mapping_ = nullptr;
  std::size_t mapped_ = 0;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace headroom
