// The instruction sets that vector code exists for, and which of them this processor has.
#pragma once

namespace headroom {

enum class InstructionSet : unsigned char { portable, avx2, avx512 };

const char* name(InstructionSet set);

/// Does this processor (and operating system) run code compiled for `set`? avx512: F, DQ, VL, BW;
/// avx2: with FMA.
bool processor_has(InstructionSet set);

/// The widest that processor_has.
InstructionSet best_instruction_set();

}  // namespace headroom
