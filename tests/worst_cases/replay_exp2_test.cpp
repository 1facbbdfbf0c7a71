// Replays exp2.wc: what was hardest stays decided, within the bound, and as hard as recorded.
#include <gtest/gtest.h>
#include <mpfr.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "reference/evaluate/vector/exp2_constants.h"
#include "reference/evaluate/vector/kernels.h"
#include "reference/real/fp_environment.h"
#include "tests/unit/vector/exp2_oracle.h"
#include "tests/unit/vector/instruction_sets.h"
#include "tests/worst_cases/exp2_boundary.h"

namespace headroom {
namespace {

struct Record {
  std::string line;
  std::vector<std::string> words;
  double number(std::size_t i) const { return std::strtod(words.at(i).c_str(), nullptr); }
};

std::vector<Record> records() {
  std::ifstream file(HEADROOM_WORST_CASES);
  std::vector<Record> all;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    Record r{line, {}};
    std::istringstream words(line);
    for (std::string w; words >> w;) r.words.push_back(w);
    all.push_back(r);
  }
  return all;
}

using WorstCases = EachInstructionSet;
INSTANTIATE_TEST_SUITE_P(Every, WorstCases, every_instruction_set(), instruction_set_name);

// The side of the boundary that the kernel's bound proves is MPFR's, and where it proves neither,
// the recorded distance is indeed within the bound.
TEST_P(WorstCases, MidpointsAreDecidedRightlyOrNotAtAll) {
  const NearestRounding nearest;
  Exp2BoundaryDistance distance;
  std::map<std::string, int> seen, undecided;
  for (const Record& r : records()) {
    if (r.words[0] != "midpoint") continue;
    ASSERT_EQ(r.words.size(), 4U) << r.line;
    const BoundaryFormat* format = nullptr;
    for (const BoundaryFormat& f : boundary_formats) {
      if (r.words[1] == f.name) format = &f;
    }
    ASSERT_NE(format, nullptr) << r.line;
    const double x = r.number(2);
    const double exact = distance.of(*format, x);
    if (exact == 0) {
      EXPECT_EQ(r.words[3], "-inf") << r.line;
    } else {
      EXPECT_NEAR(std::log2(std::fabs(exact)), r.number(3), 1e-4) << r.line;
    }
    double y;
    kernels().exp2(&x, &y, 1);
    const double boundary = nearest_boundary(*format, mpfr_get_d(distance.power(), MPFR_RNDN));
    // y is a double and the boundary its neighbour: the difference is exact (Sterbenz)
    const double side = y - boundary;
    // |2^x - y| <= y b / (1 - b), b the bound
    const double reach = exp2_relative_error_bound * (1 + 0x1p-40);
    const bool decided = std::fabs(side) > reach * y;
    ++seen[format->name];
    if (decided) {
      EXPECT_EQ(side > 0, exact > 0) << r.line << " gave " << hex(y);
    } else {
      ++undecided[format->name];
      EXPECT_LE(std::fabs(exact), 2 * reach) << r.line;  // so further ones are all decided
    }
  }
  for (const BoundaryFormat& f : boundary_formats) EXPECT_GE(seen[f.name], 16) << f.name;
  // Every FP32 argument was searched: beyond the one exact tie (2^emin-p, an integer) bf16 and fp16
  // have nothing within 2^-40, so nothing undecided.
  EXPECT_EQ(undecided["bf16"], 1);
  EXPECT_EQ(undecided["fp16"], 1);
  std::printf("undecided: fp32 %d of %d\n", undecided["fp32"], seen["fp32"]);
}

TEST_P(WorstCases, KernelErrorsAreAsRecorded) {
  const NearestRounding nearest;
  Exp2Oracle oracle;
  double largest = 0;
  for (const Record& r : records()) {
    if (r.words[0] != "kernel") continue;
    ASSERT_EQ(r.words.size(), 5U) << r.line;
    const double hi = r.number(1), lo = r.number(2), shift = r.number(3);
    double y;
    kernels().exp2_pair(&hi, &lo, shift, &y, 1);
    oracle.argument_pair(hi, lo, shift);
    const Exp2Judgement j = oracle.judge(y);
    EXPECT_TRUE(j.within) << r.line;
    EXPECT_NEAR(j.error_in_2_53, r.number(4), 1e-4) << r.line;
    largest = std::max(largest, j.error_in_2_53);
  }
  std::printf("largest known error: %.4f * 2^-53, bound %.4f * 2^-53\n", largest,
              exp2_relative_error_bound * 0x1p53);
  EXPECT_GT(largest, 1);
}

}  // namespace
}  // namespace headroom
