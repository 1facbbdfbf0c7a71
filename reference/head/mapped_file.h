// Bytes of a file, mapped to be read, and what becomes of a program whose file shrinks meanwhile.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

namespace headroom {

/// The first `bytes` bytes of an open regular file, mapped read-only. Not copyable; movable.
///
/// A mapping is no snapshot. Where a file is cut off after it was mapped, a read beyond its last
/// page raises SIGBUS and the rest of that page reads as zeros: the first ends the process unless
/// `exit_on_truncation` was called, the second is what `TensorFile::require_unchanged` is for.
/// Files may be larger than memory: pages are clean, and `drop` gives them back before the system
/// has to look for them.
class MappedFile {
 public:
  MappedFile() = default;
  /// `name` is how messages call the file, one line. Requires bytes > 0. Throws InputError.
  MappedFile(int descriptor, std::size_t bytes, std::string name);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept { swap(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    swap(other);
    return *this;
  }

  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

  /// Takes the pages of these bytes out of the process where they lie in this mapping and more than
  /// `resident_bytes` are mapped in all: what comes next needs the room. They are read from the
  /// file again if they are read again, other bytes of the first and last page included. Any thread
  /// may call it, and read meanwhile.
  void drop(const std::byte* data, std::size_t bytes) const;

  /// Private to the source file; public for the signal handler.
  struct Slot {
    std::atomic<const std::byte*> begin{nullptr}, end{nullptr};
    std::atomic<const char*> name{nullptr};
    std::atomic<bool> taken{false};
  };

 private:
  void swap(MappedFile& other) noexcept;

  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::unique_ptr<const std::string> name_;  // stays where it is while the slot points to it
  Slot* slot_ = nullptr;
};

/// Mapped files that hold no more than this together stay resident once they are read.
inline constexpr std::size_t resident_bytes = std::size_t{128} << 20;

/// Installs a handler of SIGBUS for the whole process: where a MappedFile was cut off while it was
/// read, one line on stderr that begins with `program` and names the file, then _exit(2), so that
/// no verdict is printed about bytes that are not there. Any other SIGBUS does what it did before.
/// For programs to call, once; the library never does. `program` must be a literal.
void exit_on_truncation(const char* program);

}  // namespace headroom
