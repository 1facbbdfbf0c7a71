#include "reference/input_error.h"
#include "tests/fuzz_readers/memory_file.h"

namespace headroom::fuzz {

int open_and_touch(const std::uint8_t* data, std::size_t size, const OpenOptions& options) {
  const MemoryFile file(data, size);
  try {
    touch(*TensorFile::open(file.path(), options));
  } catch (const InputError& error) {
    require_one_line(error.what(), file.path());
  }
  return 0;
}

}  // namespace headroom::fuzz
