#include "reference/evaluate/simulate/lanes/lane_loops.h"

namespace headroom {

extern const LaneKernels lane_kernels_portable;
const LaneKernels lane_kernels_portable = LaneLoops<LanesPortable>::kernels;

}  // namespace headroom
