#include "reference/head/mapped_file.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "reference/input_error.h"

namespace headroom {
namespace {

// What is mapped, for a signal handler to look through: it may take no lock and free nothing.
// Chunks are never freed, and a thread that faults holds the file it reads from, so that the one
// slot whose name is used does not change meanwhile.
struct Chunk {
  std::array<MappedFile::Slot, 256> slots;
  std::atomic<Chunk*> next{nullptr};
};

Chunk first_chunk;

MappedFile::Slot* take_slot() {
  for (Chunk* chunk = &first_chunk;;) {
    for (MappedFile::Slot& slot : chunk->slots) {
      if (!slot.taken.exchange(true)) return &slot;
    }
    Chunk* next = chunk->next.load();
    if (next == nullptr) {
      auto fresh = std::make_unique<Chunk>();
      if (chunk->next.compare_exchange_strong(next, fresh.get())) next = fresh.release();
    }
    chunk = next;
  }
}

const char* name_of(const std::byte* address) {
  for (const Chunk* chunk = &first_chunk; chunk != nullptr; chunk = chunk->next.load()) {
    for (const MappedFile::Slot& slot : chunk->slots) {
      const std::byte* begin = slot.begin.load();
      if (begin == nullptr || address < begin || address >= slot.end.load()) continue;
      if (const char* name = slot.name.load()) return name;
    }
  }
  return nullptr;
}

std::atomic<std::size_t> mapped_bytes{0};

const char* program_name = "";
struct sigaction previous_action {};
std::atomic_flag is_exiting = ATOMIC_FLAG_INIT;

iovec piece(const char* text) {
  // writev does not write to what it is given
  return {const_cast<char*>(text), std::strlen(text)};
}

void on_bus_error(int number, siginfo_t* info, void* /*context*/) {
  const char* name = info->si_code > 0 ? name_of(static_cast<std::byte*>(info->si_addr)) : nullptr;
  if (name == nullptr) {
    // back to what was there; a fault happens again on return, a signal from outside is sent again
    ::sigaction(number, &previous_action, nullptr);
    if (info->si_code <= 0) ::raise(number);
    return;
  }
  while (is_exiting.test_and_set()) ::pause();  // another thread has said it
  const std::array<iovec, 4> line = {piece(program_name), piece(": "), piece(name),
                                     piece(": was cut off or became unreadable while it was being"
                                           " read, expected a file that stays as it is\n")};
  const ssize_t wrote = ::writev(STDERR_FILENO, line.data(), static_cast<int>(line.size()));
  static_cast<void>(wrote);  // nobody is left to tell
  ::_exit(2);
}

}  // namespace

MappedFile::MappedFile(int descriptor, std::size_t bytes, std::string name) : size_(bytes) {
  assert(bytes > 0);
  name_ = std::make_unique<const std::string>(std::move(name));
  slot_ = take_slot();
  void* map = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (map == MAP_FAILED) {
    const int error = errno;
    slot_->taken = false;
    throw InputError(fmt::format("{}: cannot map: {}", *name_, std::strerror(error)));
  }
  data_ = static_cast<const std::byte*>(map);
  mapped_bytes += bytes;
  slot_->name = name_->c_str();
  slot_->end = data_ + bytes;
  slot_->begin = data_;
}

MappedFile::~MappedFile() {
  if (slot_ == nullptr) return;
  slot_->begin = nullptr;
  slot_->end = nullptr;
  slot_->name = nullptr;
  slot_->taken = false;
  ::munmap(const_cast<std::byte*>(data_), size_);
  mapped_bytes -= size_;
}

void MappedFile::drop(const std::byte* data, std::size_t bytes) const {
  const std::less_equal<> in_order;  // of pointers into anything
  const bool inside = data_ != nullptr && in_order(data_, data) && in_order(data, data_ + size_) &&
                      bytes <= size_ - static_cast<std::size_t>(data - data_);
  if (!inside || bytes == 0 || mapped_bytes <= resident_bytes) return;
  // whole pages, outward: a mapping begins at one, and no page of it was ever written to
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = static_cast<std::size_t>(data - data_) / page * page;
  const std::size_t end = static_cast<std::size_t>(data - data_) + bytes;
  ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

void MappedFile::swap(MappedFile& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(name_, other.name_);
  std::swap(slot_, other.slot_);
}

void exit_on_truncation(const char* program) {
  program_name = program;
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, &previous_action);
}

}  // namespace headroom
