#include "reference/evaluate/simulate/lanes/lane_loops.h"

namespace headroom {

extern const LaneKernels lane_kernels_avx2;
const LaneKernels lane_kernels_avx2 = LaneLoops<Lanes256>::kernels;

}  // namespace headroom
