// Every recorded answer of the shared matrix units, bit for bit; skipped where they are absent.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "reference/evaluate/simulate/matrix_unit.h"
#include "reference/model/kernel_file.h"
#include "reference/real/fp_environment.h"
#include "tests/shared_data.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

struct Recording {
  std::string machine, format, operands;  ///< folder, folder, suffix of the operands' files
  int fraction_bits, step;                ///< terms a step
};

const Recording recordings[] = {
    {"V100", "fp16", "V100_fp16", 23, 4}, {"A100", "fp16", "A100_fp16", 24, 8},
    {"A100", "bf16", "A100_bf16", 24, 8}, {"H100", "bf16", "H100_bf16", 25, 16},
    {"Ada", "E4M3", "Ada_E4M3", 13, 16},
};

fs::path shared;

// The lines of a file as words of FP32; base 16 with blanks between words, base 2 without.
std::vector<std::vector<float>> read_words(const fs::path& file, int base) {
  std::ifstream in(file);
  std::vector<std::vector<float>> lines;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    lines.emplace_back();
    for (std::string word; words >> word;) {
      lines.back().push_back(
          std::bit_cast<float>(static_cast<std::uint32_t>(std::stoul(word, nullptr, base))));
    }
  }
  return lines;
}

class RecordedMatrixUnit : public testing::TestWithParam<Recording> {};

TEST_P(RecordedMatrixUnit, IsReproduced) {
  const NearestRounding nearest;
  const Recording& r = GetParam();
  const fs::path folder = shared / "data" / "tensor-core" / r.machine / r.format;
  const auto a = read_words(folder / ("a_" + r.operands + ".txt"), 16);
  const auto b = read_words(folder / ("b_" + r.operands + ".txt"), 16);
  const auto c = read_words(folder / ("c_" + r.machine + "_fp32.txt"), 2);
  const auto d = read_words(folder / ("d_" + r.machine + "_fp32.txt"), 2);
  ASSERT_EQ(a.size(), 5000U);
  ASSERT_EQ(b.size(), a.size());
  ASSERT_EQ(c.size(), a.size());
  ASSERT_EQ(d.size(), a.size());
  int reproduced = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].size(), b[i].size());
    ASSERT_EQ(a[i].size() % static_cast<unsigned>(r.step), 0U);
    float sum = c[i].at(0);
    for (std::size_t k = 0; k < a[i].size(); k += static_cast<unsigned>(r.step)) {
      sum = matrix_unit_step(r.fraction_bits, a[i].data() + k, b[i].data() + k, r.step, sum);
    }
    const bool same = std::bit_cast<std::uint32_t>(sum) == std::bit_cast<std::uint32_t>(d[i].at(0));
    reproduced += same ? 1 : 0;
    EXPECT_TRUE(same) << "line " << i + 1 << ": " << std::hexfloat << sum << ", recorded "
                      << d[i].at(0);
  }
  std::printf("%s %s: %d of %zu answers reproduced\n", r.machine.c_str(), r.format.c_str(),
              reproduced, a.size());
}

// The presets of those machines add as the recordings do; FP8 on Ada is narrower than its preset.
TEST(RecordedMatrixUnits, ArePresets) {
  for (const auto& [name, machine] :
       {std::pair<const char*, const char*>{"ampere", "A100"}, {"hopper", "H100"}}) {
    const AccumulationOrder order = preset(name).numerator.order;
    for (const Recording& r : recordings) {
      if (r.machine != machine) continue;
      EXPECT_EQ(order.kind, OrderKind::matrix_unit);
      EXPECT_EQ(order.fraction_bits, r.fraction_bits) << name;
      EXPECT_EQ(order.size, r.step) << name;
      EXPECT_FALSE(preset(name).numerator.flush_to_zero) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gpus, RecordedMatrixUnit, testing::ValuesIn(recordings),
                         [](const testing::TestParamInfo<Recording>& p) {
                           return p.param.machine + "_" + p.param.format;
                         });

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  headroom::shared = headroom::tests::shared_data_or_skip();
  if (!headroom::fs::is_directory(headroom::shared / "data" / "tensor-core")) {
    std::printf("skipped: no data/tensor-core in %s\n", headroom::shared.c_str());
    return headroom::tests::skipped;
  }
  return RUN_ALL_TESTS();
}
