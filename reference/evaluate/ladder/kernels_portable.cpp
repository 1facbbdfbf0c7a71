#include "reference/evaluate/ladder/kernel_loops.h"
#include "reference/evaluate/ladder/pair_loops.h"

namespace headroom {

extern const LadderKernels ladder_kernels_portable;
const LadderKernels ladder_kernels_portable =
    LadderLoops<Portable, 4, 3>::kernels(InstructionSet::portable);

extern const PairKernels pair_kernels_portable;
const PairKernels pair_kernels_portable = PairLoops<Portable>::kernels;

}  // namespace headroom
