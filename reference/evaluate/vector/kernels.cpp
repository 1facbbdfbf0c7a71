#include "reference/evaluate/vector/kernels.h"

#include <cassert>

namespace headroom {

extern const VectorKernels kernels_portable;
extern const VectorKernels kernels_avx2;
extern const VectorKernels kernels_avx512;

const char* name(InstructionSet set) {
  switch (set) {
    case InstructionSet::portable:
      return "portable";
    case InstructionSet::avx2:
      return "avx2";
    case InstructionSet::avx512:
      return "avx512";
  }
  return "?";
}

bool processor_has(InstructionSet set) {
  __builtin_cpu_init();
  switch (set) {
    case InstructionSet::portable:
      return true;
    case InstructionSet::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case InstructionSet::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  }
  return false;
}

InstructionSet best_instruction_set() {
  if (processor_has(InstructionSet::avx512)) return InstructionSet::avx512;
  if (processor_has(InstructionSet::avx2)) return InstructionSet::avx2;
  return InstructionSet::portable;
}

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
