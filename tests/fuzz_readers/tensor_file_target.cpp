// .safetensors, .npy and .npz: the first bytes decide which reader gets the input.
#include "tests/fuzz_readers/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // numpy's V2 is read or refused, by a bit that is no part of any header
  const bool v2_is_bf16 = size > 0 && (data[size - 1] & 1U) != 0;
  return headroom::fuzz::open_and_touch(data, size, {.v2_is_bf16 = v2_is_bf16});
}
