#include "reference/stabilizer/plugin/guarded_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

namespace headroom {
namespace {

constexpr std::size_t alignment = 64;
constexpr auto fill = std::byte{0xA5};

std::size_t rounded_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }
std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

GuardedBuffer::~GuardedBuffer() { unmap(); }

void GuardedBuffer::unmap() {
  if (mapping_ == nullptr) return;
  munmap(mapping_, mapped_);
  mapping_ = data_ = nullptr;
  mapped_ = size_ = 0;
}

void GuardedBuffer::reset(std::size_t bytes) {
  const std::size_t page = page_size();
  if (bytes > (std::size_t{1} << 40)) throw std::bad_alloc();
  const std::size_t padded = rounded_up(std::max<std::size_t>(bytes, 1), alignment);
  const std::size_t inner = rounded_up(padded + alignment, page);
  if (mapping_ == nullptr || mapped_ != inner + 2 * page) {
    unmap();
    void* place = mmap(nullptr, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) throw std::bad_alloc();
    mapping_ = static_cast<std::byte*>(place);
    mapped_ = inner + 2 * page;
    if (mprotect(mapping_ + page, inner, PROT_READ | PROT_WRITE) != 0) {
      munmap(mapping_, mapped_);
      mapping_ = nullptr;
      throw std::bad_alloc();
    }
  }
  std::byte* end = mapping_ + page + inner;
  data_ = end - padded;
  size_ = bytes;
  std::memset(data_, 0, bytes);
  std::fill(data_ + bytes, end, fill);
  std::fill(data_ - alignment, data_, fill);
}

bool GuardedBuffer::intact() const {
  if (mapping_ == nullptr) return true;
  const std::byte* end = mapping_ + mapped_ - page_size();
  const auto untouched = [](std::byte b) { return b == fill; };
  return std::all_of<const std::byte*>(data_ - alignment, data_, untouched) &&
         std::all_of<const std::byte*>(data_ + size_, end, untouched);
}

}  // namespace headroom
