// Kernel files: any bytes give a model or one line of error; a model's canonical text gives it
// back.
#include "reference/input_error.h"
#include "reference/model/kernel_file.h"
#include "tests/fuzz_readers/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using headroom::fuzz::require;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const headroom::KernelModel model = headroom::parse_kernel(text, "k.toml");
    const std::string canonical = headroom::canonical_text(model);
    const headroom::KernelModel again = headroom::parse_kernel(canonical, "canonical.toml");
    require(again == model, "the canonical text is the model");
    require(headroom::canonical_text(again) == canonical, "the canonical text is one");
  } catch (const headroom::InputError& error) {
    headroom::fuzz::require_one_line(error.what(), "k.toml");
  }
  return 0;
}
