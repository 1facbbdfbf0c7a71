// The FMA-peak limit: independent chains in registers, nothing else.
#include "bench/peak.h"

#include <immintrin.h>

namespace headroom::bench {

double fma_chains_avx512(std::int64_t flops) {
  constexpr int chains = 12;
  __m512d c[chains];
  for (__m512d& x : c) x = _mm512_set1_pd(1e-3);
  const __m512d a = _mm512_set1_pd(0.999), b = _mm512_set1_pd(1e-9);
  __m512d c0 = c[0], c1 = c[1], c2 = c[2], c3 = c[3], c4 = c[4], c5 = c[5], c6 = c[6], c7 = c[7],
          c8 = c[8], c9 = c[9], ca = c[10], cb = c[11];
  for (std::int64_t i = 0; i < flops / (chains * 16); ++i) {
    asm volatile(
        "vfmadd213pd %13, %12, %0\n\tvfmadd213pd %13, %12, %1\n\tvfmadd213pd %13, %12, %2\n\t"
        "vfmadd213pd %13, %12, %3\n\tvfmadd213pd %13, %12, %4\n\tvfmadd213pd %13, %12, %5\n\t"
        "vfmadd213pd %13, %12, %6\n\tvfmadd213pd %13, %12, %7\n\tvfmadd213pd %13, %12, %8\n\t"
        "vfmadd213pd %13, %12, %9\n\tvfmadd213pd %13, %12, %10\n\tvfmadd213pd %13, %12, %11"
        : "+v"(c0), "+v"(c1), "+v"(c2), "+v"(c3), "+v"(c4), "+v"(c5), "+v"(c6), "+v"(c7), "+v"(c8),
          "+v"(c9), "+v"(ca), "+v"(cb)
        : "v"(a), "v"(b));
  }
  double lanes[8];  // GCC 12 warns of its own reduce intrinsic
  _mm512_storeu_pd(lanes, _mm512_add_pd(c0, cb));
  return lanes[0];
}

}  // namespace headroom::bench
