#include "reference/evaluate/vector/array_loops.h"

namespace headroom {

extern const VectorKernels kernels_portable;
const VectorKernels kernels_portable = ArrayLoops<Portable>::kernels;

}  // namespace headroom
