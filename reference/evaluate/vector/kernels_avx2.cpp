#include "reference/evaluate/vector/array_loops.h"

namespace headroom {

extern const VectorKernels kernels_avx2;
const VectorKernels kernels_avx2 = ArrayLoops<Avx2>::kernels;

}  // namespace headroom
