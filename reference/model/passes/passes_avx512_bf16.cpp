#include "reference/model/passes/pass_loops.h"

namespace headroom {

extern const PassKernels* const passes_avx512_bf16;
const PassKernels* const passes_avx512_bf16 = all_pass_kernels;

}  // namespace headroom
