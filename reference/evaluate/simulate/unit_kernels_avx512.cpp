#include "reference/evaluate/simulate/unit_loops.h"

namespace headroom {

extern const UnitKernels unit_kernels_avx512;
const UnitKernels unit_kernels_avx512 = UnitLoops<Avx512Float>::kernels;

}  // namespace headroom
