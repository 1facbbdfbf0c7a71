// The FMA peak: what no program that needs as many FMAs can beat. Requires AVX-512.
#pragma once

#include <cstdint>

namespace headroom::bench {

/// flops / 16 FMAs of eight doubles (or sixteen floats: they take the same time), two flops a
/// double, in twelve chains in registers. Returns a number that depends on all of them.
double fma_chains_avx512(std::int64_t flops);

}  // namespace headroom::bench
