#include "reference/evaluate/simulate/unit_loops.h"

namespace headroom {

extern const UnitKernels unit_kernels_avx2;
const UnitKernels unit_kernels_avx2 = UnitLoops<Avx2Float>::kernels;

}  // namespace headroom
