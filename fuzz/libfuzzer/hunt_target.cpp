// A hunt as a libFuzzer target: its engine, our mutators, counters of every stage of the kernel.
//
// HEADROOM_HUNT names an entry of `headroom fuzz --list`, clis-hopper if it is not set. Met
// objectives abort, with the explanation on stderr: of a sound target that is a failure of the
// project's own.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "fuzz/candidate_bytes.h"
#include "fuzz/coverage.h"
#include "fuzz/diagnose.h"
#include "fuzz/execute.h"
#include "fuzz/mutate.h"
#include "fuzz/random.h"

// libFuzzer takes what lies in this section for coverage counters of its own.
__attribute__((section("__libfuzzer_extra_counters")))
std::uint8_t stage_counters[headroom::fuzz::coverage_size];

namespace {

using namespace headroom::fuzz;  // NOLINT(google-build-using-namespace)

const Hunt& this_hunt() {
  static const Hunt& hunt = []() -> const Hunt& {
    const char* name = std::getenv("HEADROOM_HUNT");
    return catalogue_entry(name == nullptr ? "clis-hopper" : name);
  }();
  return hunt;
}
Executor& executor() {
  static Executor e(this_hunt());
  return e;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Hunt& hunt = this_hunt();
  const Candidate c = candidate_of_bytes(hunt, {data, size});
  for (const std::uint16_t hit : stage_coverage(hunt.target, c)) stage_counters[hit] = 1;
  const Observation& seen = executor().run(c, true);
  if (!seen.ran) return 0;
  for (const Objective o : hunt.objectives) {
    if (seen.closeness[static_cast<std::size_t>(o)] < 0) continue;
    const Diagnosis d = diagnose(hunt.target, c, o);
    if (!d.met || (!hunt.event.empty() && d.event != hunt.event) ||
        (!hunt.stage.empty() && d.stage != hunt.stage)) {
      continue;
    }
    std::fprintf(stderr, "%s\n", explain(hunt.target, c, d).c_str());
    std::abort();
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned int seed) {
  const Hunt& hunt = this_hunt();
  Candidate c = candidate_of_bytes(hunt, {data, size});
  Random random(seed);
  const Candidate other = c;
  mutate(random, executor().landmarks(c.shape), hunt.space, other, c);
  const std::vector<std::uint8_t> bytes = bytes_of_candidate(hunt, c);
  const std::size_t n = std::min(most, bytes.size());
  std::memcpy(data, bytes.data(), n);
  return n;
}
