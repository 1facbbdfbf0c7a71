#include "reference/evaluate/simulate/unit_kernels.h"

#include <cassert>

namespace headroom {

extern const UnitKernels unit_kernels_portable;
extern const UnitKernels unit_kernels_avx2;
extern const UnitKernels unit_kernels_avx512;

const UnitKernels& unit_kernels(InstructionSet set) {
  assert(processor_has(set));
  switch (set) {
    case InstructionSet::avx512:
      return unit_kernels_avx512;
    case InstructionSet::avx2:
      return unit_kernels_avx2;
    case InstructionSet::portable:
      break;
  }
  return unit_kernels_portable;
}

}  // namespace headroom
