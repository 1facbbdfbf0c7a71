// Heads of trained models, against the statistics that their sidecars give, which were computed
// elsewhere in float64 from the stored tensors.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

#include "reference/head/load.h"
#include "tests/shared_data.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

struct Extremes {
  double largest = 0, largest_norm = 0;
};

Extremes extremes(const Matrix& matrix) {
  Extremes e;
  std::vector<double> row(static_cast<std::size_t>(matrix.columns()));
  for (std::int64_t i = 0; i < matrix.rows(); ++i) {
    matrix.load_row(i, row.data());
    double sum = 0;
    for (const double x : row) {
      e.largest = std::fmax(e.largest, std::fabs(x));
      sum += x * x;
    }
    e.largest_norm = std::fmax(e.largest_norm, std::sqrt(sum));
  }
  return e;
}

TEST(TrainedHeads, AgreeWithTheirSidecars) {
  const fs::path folder = tests::shared_data_or_skip() / "data" / "heads";
  int files = 0, heads_seen = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    SCOPED_TRACE(entry.path().string());
    ++files;
    const std::vector<Head> heads = load_heads(entry.path().string(), {});
    std::ifstream in(fs::path(entry.path()).replace_extension(".json"));
    const nlohmann::json sidecar = nlohmann::json::parse(in);
    std::size_t at = 0;
    for (const auto& layer : sidecar["layers"]) {
      for (std::size_t h = 0; h < layer["heads"].size(); ++h, ++at, ++heads_seen) {
        ASSERT_LT(at, heads.size());
        const Head& head = heads[at];
        const auto& expected = layer["heads"][h];
        const std::string prefix = layer["name"].get<std::string>() + ".";
        EXPECT_EQ(head.id, entry.path().stem().string() + ":" + prefix + std::to_string(h));
        EXPECT_EQ(head.layout, "hnd");
        EXPECT_EQ(head.queries(), layer["Nq"].get<std::int64_t>());
        EXPECT_EQ(head.keys(), layer["Nk"].get<std::int64_t>());
        EXPECT_EQ(head.channels(), layer["d"].get<std::int64_t>());
        EXPECT_EQ(head.value_channels(), layer["dv"].get<std::int64_t>());
        EXPECT_EQ(head.kv_head, static_cast<std::int64_t>(h) * layer["Hkv"].get<std::int64_t>() /
                                    layer["H"].get<std::int64_t>());
        EXPECT_EQ(head.visibility.kind == MaskKind::causal, sidecar["causal"].get<bool>());
        EXPECT_TRUE(head.scale.natural_factor().contains(sidecar["scale"].get<double>()));
        EXPECT_TRUE(head.warnings.empty()) << head.warnings[0];
        const Extremes q = extremes(head.q), k = extremes(head.k), v = extremes(head.v);
        EXPECT_EQ(q.largest, expected["max_q"].get<double>());
        EXPECT_EQ(k.largest, expected["max_k"].get<double>());
        EXPECT_EQ(v.largest, expected["max_v"].get<double>());
        EXPECT_NEAR(q.largest_norm, expected["max_qnorm"].get<double>(), 1e-12 * q.largest_norm);
        EXPECT_NEAR(k.largest_norm, expected["max_knorm"].get<double>(), 1e-12 * k.largest_norm);
      }
    }
    EXPECT_EQ(at, heads.size());
  }
  EXPECT_GT(files, 0);
  std::printf("%d files, %d heads\n", files, heads_seen);
}

}  // namespace
}  // namespace headroom
