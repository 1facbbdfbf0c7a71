#include "reference/evaluate/ladder/kernel_loops.h"
#include "reference/evaluate/ladder/pair_loops.h"

namespace headroom {

extern const LadderKernels ladder_kernels_avx2;
const LadderKernels ladder_kernels_avx2 = LadderLoops<Avx2, 2, 6>::kernels(InstructionSet::avx2);

// One register of rows: for heads of few queries.
extern const LadderKernels ladder_kernels_small_avx2;
const LadderKernels ladder_kernels_small_avx2 =
    LadderLoops<Avx2, 1, 12>::kernels(InstructionSet::avx2);

extern const PairKernels pair_kernels_avx2;
const PairKernels pair_kernels_avx2 = PairLoops<Avx2>::kernels;

}  // namespace headroom
