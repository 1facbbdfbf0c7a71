#include "reference/evaluate/simulate/lanes/lane_loops.h"

namespace headroom {

extern const LaneKernels lane_kernels_avx512;
const LaneKernels lane_kernels_avx512 = LaneLoops<Lanes512>::kernels;

}  // namespace headroom
