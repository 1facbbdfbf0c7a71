#include "reference/evaluate/vector/kernels.h"

#include <cassert>

namespace headroom {

extern const VectorKernels kernels_portable;
extern const VectorKernels kernels_avx2;
extern const VectorKernels kernels_avx512;

const VectorKernels& vector_kernels(InstructionSet set) {
  assert(processor_has(set));
  switch (set) {
    case InstructionSet::avx512:
      return kernels_avx512;
    case InstructionSet::avx2:
      return kernels_avx2;
    case InstructionSet::portable:
      break;
  }
  return kernels_portable;
}

}  // namespace headroom
