#include "reference/model/passes/pass_loops.h"

namespace headroom {

extern const PassKernels* const passes_portable;
const PassKernels* const passes_portable = all_pass_kernels;

}  // namespace headroom
