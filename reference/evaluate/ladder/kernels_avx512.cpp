#include "reference/evaluate/ladder/kernel_loops.h"
#include "reference/evaluate/ladder/pair_loops.h"
#include "reference/evaluate/ladder/single_row_loops.h"

namespace headroom {

extern const LadderKernels ladder_kernels_avx512;
const LadderKernels ladder_kernels_avx512 =
    LadderLoops<Avx512, 4, 6>::kernels(InstructionSet::avx512);

// One register of rows: for heads of few queries.
extern const LadderKernels ladder_kernels_small_avx512;
const LadderKernels ladder_kernels_small_avx512 =
    LadderLoops<Avx512, 1, 12>::kernels(InstructionSet::avx512);

// One row: for heads of fewer still.
extern const LadderKernels ladder_kernels_single_avx512;
const LadderKernels ladder_kernels_single_avx512 =
    SingleRowLoops<Avx512>::kernels(InstructionSet::avx512);

extern const PairKernels pair_kernels_avx512;
const PairKernels pair_kernels_avx512 = PairLoops<Avx512>::kernels;

}  // namespace headroom
