#include "reference/model/passes/pass_loops.h"

namespace headroom {

extern const PassKernels* const passes_avx512;
const PassKernels* const passes_avx512 = all_pass_kernels;

}  // namespace headroom
