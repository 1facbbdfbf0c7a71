#include <cstring>

#include "bench/certify/read.h"

namespace headroom::bench {

std::uint64_t read_plain(const std::byte* data, std::size_t bytes) {
  std::uint64_t lanes[8] = {};
  for (std::size_t i = 0; i < bytes; i += sizeof lanes) {
    __builtin_prefetch(data + i + 8192);
    std::uint64_t words[8];
    std::memcpy(words, data + i, sizeof words);
    for (int k = 0; k < 8; ++k) lanes[k] ^= words[k];
  }
  std::uint64_t all = 0;
  for (const std::uint64_t lane : lanes) all ^= lane;
  return all;
}

}  // namespace headroom::bench
