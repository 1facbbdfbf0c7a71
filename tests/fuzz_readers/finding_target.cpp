// Findings: any bytes give a finding that is consistent, or one line of error; its text gives it
// back, and small ones can be run.
#include "fuzz/finding.h"
#include "reference/input_error.h"
#include "tests/fuzz_readers/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using headroom::fuzz::require;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const headroom::fuzz::Finding finding = headroom::fuzz::parse_finding(text, "f.headroom");
    const std::string again = headroom::fuzz::finding_text(finding);
    const headroom::fuzz::Finding other = headroom::fuzz::parse_finding(again, "again.headroom");
    require(other.candidate == finding.candidate, "the text holds the head");
    require(other.target.kernel == finding.target.kernel, "the text holds the kernel");
    require(headroom::fuzz::finding_text(other) == again, "the text is one");
    const headroom::fuzz::Shape& s = finding.candidate.shape;
    constexpr std::int64_t small = 64;
    const headroom::KernelModel& kernel = finding.target.kernel;
    if (s.queries * s.keys * (s.channels + s.value_channels) <= small &&
        kernel.tiles.keys <= small && kernel.split.parts <= small) {
      headroom::fuzz::replay(finding);
      headroom::fuzz::test_snippet(finding, "pytorch");
    }
  } catch (const headroom::InputError& error) {
    headroom::fuzz::require_one_line(error.what(), "f.headroom");
  }
  return 0;
}
