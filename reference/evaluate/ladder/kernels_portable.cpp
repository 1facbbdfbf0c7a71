#include "reference/evaluate/ladder/kernel_loops.h"
#include "reference/evaluate/ladder/pair_loops.h"

namespace headroom {

extern const LadderKernels ladder_kernels_portable;
const LadderKernels ladder_kernels_portable =
    LadderLoops<Portable, 4, 3>::kernels(InstructionSet::portable);

// One register of rows: for heads of few queries.
extern const LadderKernels ladder_kernels_small_portable;
const LadderKernels ladder_kernels_small_portable =
    LadderLoops<Portable, 1, 4>::kernels(InstructionSet::portable);

extern const PairKernels pair_kernels_portable;
const PairKernels pair_kernels_portable = PairLoops<Portable>::kernels;

}  // namespace headroom
