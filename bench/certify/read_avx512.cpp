#include <immintrin.h>

#include "bench/certify/read.h"

namespace headroom::bench {

__attribute__((target("avx512f,avx512dq"))) std::uint64_t read_avx512(const std::byte* data,
                                                                      std::size_t bytes) {
  __m512i lanes[8] = {};
  for (std::size_t i = 0; i < bytes; i += 512) {
    for (std::size_t k = 0; k < 8; ++k) {
      __builtin_prefetch(data + i + 64 * k + 8192);
      lanes[k] = _mm512_xor_si512(lanes[k], _mm512_loadu_si512(data + i + 64 * k));
    }
  }
  for (int k = 1; k < 8; ++k) lanes[0] = _mm512_xor_si512(lanes[0], lanes[k]);
  std::uint64_t words[8], all = 0;
  _mm512_storeu_si512(words, lanes[0]);
  for (const std::uint64_t word : words) all ^= word;
  return all;
}

}  // namespace headroom::bench
