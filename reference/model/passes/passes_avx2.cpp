#include "reference/model/passes/pass_loops.h"

namespace headroom {

extern const PassKernels* const passes_avx2;
const PassKernels* const passes_avx2 = all_pass_kernels;

}  // namespace headroom
