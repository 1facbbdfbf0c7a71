#include "reference/real/instruction_set.h"

namespace headroom {

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

}  // namespace headroom
