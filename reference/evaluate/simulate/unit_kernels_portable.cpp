#include "reference/evaluate/simulate/unit_loops.h"

namespace headroom {

extern const UnitKernels unit_kernels_portable;
const UnitKernels unit_kernels_portable = UnitLoops<PortableFloat>::kernels;

}  // namespace headroom
