#include "reference/evaluate/vector/array_loops.h"

namespace headroom {

extern const VectorKernels kernels_avx512;
const VectorKernels kernels_avx512 = ArrayLoops<Avx512>::kernels;

}  // namespace headroom
