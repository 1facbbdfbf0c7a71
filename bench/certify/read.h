// Reading bytes and nothing else: what a pass over stored rows is measured against.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headroom::bench {

/// Exclusive or of all 64-bit words, prefetched as the passes are. Requires: bytes a multiple of
/// 512.
std::uint64_t read_avx512(const std::byte* data, std::size_t bytes);
/// The same by plain loops, for processors without AVX-512.
std::uint64_t read_plain(const std::byte* data, std::size_t bytes);

}  // namespace headroom::bench
