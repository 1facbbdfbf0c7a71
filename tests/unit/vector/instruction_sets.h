// Value-parameterised tests over the instruction sets; one that the processor lacks is skipped.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "reference/evaluate/vector/kernels.h"

namespace headroom {

class EachInstructionSet : public ::testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    if (!processor_has(GetParam())) GTEST_SKIP() << "no " << name(GetParam()) << " here";
  }
  const VectorKernels& kernels() const { return vector_kernels(GetParam()); }
};

inline auto every_instruction_set() {
  return ::testing::Values(InstructionSet::portable, InstructionSet::avx2, InstructionSet::avx512);
}
inline std::string instruction_set_name(const ::testing::TestParamInfo<InstructionSet>& info) {
  return name(info.param);
}

/// HEADROOM_TEST_MULTIPLIER, by which the number of random points grows (suite 'long').
inline int test_multiplier() {
  const char* text = std::getenv("HEADROOM_TEST_MULTIPLIER");
  const int n = text ? std::atoi(text) : 1;
  return n > 0 ? n : 1;
}
/// HEADROOM_TEST_SEED, printed by a failing test.
inline unsigned long test_seed() {
  const char* text = std::getenv("HEADROOM_TEST_SEED");
  return text ? std::strtoul(text, nullptr, 0) : 20240229;
}

}  // namespace headroom
