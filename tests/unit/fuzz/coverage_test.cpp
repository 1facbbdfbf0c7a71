// Known failures, met at small shapes by heads as the generators make them, without any search:
// the kernels that tests/cases holds fixed heads against, with tiles of 8 keys, run bit by bit.
// What should have come out is computed here, from the dumped scores.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "fuzz/generate.h"
#include "reference/evaluate/simulate/simulate.h"
#include "reference/model/kernel_file.h"
#include "tests/cases/public_gates.h"
#include "tests/cases/reported_heads.h"

namespace headroom::fuzz {
namespace {

struct Outcome {
  Simulated all;
  SimulationDump dump;
  std::int64_t keys = 0, value_channels = 0;
  double output(std::int64_t row = 0, std::int64_t channel = 0) const {
    return static_cast<double>(
        all.output[static_cast<std::size_t>(row * value_channels + channel)]);
  }
  bool has(EventKind kind, SimulationStage stage) const {
    for (const SimulationEvent& e : all.events) {
      if (e.kind == kind && e.stage == stage) return true;
    }
    return false;
  }
};

struct Kernel {
  KernelModel model;
  std::string stabilizer;
  LoopParameters parameters;
  Landmarks marks;
  Scale scale = Scale::base2(1);
};

/// The released kernel with small tiles and FP32 outputs.
Kernel released(const std::string& more = {}, bool products_flush = false) {
  Kernel k;
  k.model = cases::ideal_kernel("[tiles]\nkeys = 8\n" + more, products_flush);
  k.model.normalise.output = fp32;
  k.stabilizer = "fixed-m";
  k.marks.centred = true;
  k.marks.gate_limit = 213;
  k.marks.cap = 88;
  k.marks.key_block = 8;
  return k;
}

Outcome run(const Kernel& k, const Candidate& c) {
  Outcome o;
  o.keys = c.shape.keys;
  o.value_channels = c.shape.value_channels;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(c.shape.queries));
  std::iota(rows.begin(), rows.end(), 0);
  SimulationOptions options;
  options.events = true;
  const auto stabilizer = make_loop_stabilizer(k.stabilizer, k.parameters);
  o.all = simulate(problem_of(c, k.marks.operand, k.scale), k.model, *stabilizer, rows, options,
                   &o.dump);
  return o;
}

/// Exact attention of row 0 over base-2 scores as stored, and the share of its mass whose weights
/// are 0; doubles are good enough for what is looked for.
struct Softmax {
  double output = 0, lost = 0;
};
Softmax exact_row(const Outcome& o, const Candidate& c) {
  double top = -HUGE_VAL;
  for (std::int64_t j = 0; j < o.keys; ++j) {
    top = std::max(top, static_cast<double>(o.dump.scores[static_cast<std::size_t>(j)]));
  }
  double sum = 0, numerator = 0, lost = 0;
  for (std::int64_t j = 0; j < o.keys; ++j) {
    const auto i = static_cast<std::size_t>(j);
    const double w = std::exp2(static_cast<double>(o.dump.scores[i]) - top);
    sum += w;
    numerator += w * static_cast<double>(c.value(j)[0]);
    if (o.dump.weights[i] == 0) lost += w;
  }
  return {numerator / sum, lost / sum};
}

using Met = std::function<bool(const Outcome&, const Candidate&)>;

/// Generators, each with how many of its heads met the case. Stops at the first head of each.
std::map<std::string, int> search(const Kernel& k, const std::vector<Shape>& shapes, const Met& met,
                                  int seeds = 200) {
  std::map<std::string, int> found;
  for (const Generator& g : generators()) {
    for (int seed = 0; seed < seeds; ++seed) {
      Random random(static_cast<std::uint64_t>(seed));
      Candidate c = make_candidate(random.pick(shapes));
      g.fill(random, k.marks, c);
      round_operands(c, k.marks.operand);
      if (!met(run(k, c), c)) continue;
      found[std::string(g.name)] = seed + 1;
      break;
    }
  }
  for (const auto& [name, runs] : found) {
    ::testing::Test::RecordProperty("found-by-" + name, std::to_string(runs));
    std::printf("  %-20s after %d heads\n", name.c_str(), runs);
  }
  return found;
}

const std::vector<Shape> small = {{1, 16, 2, 1}, {1, 24, 3, 1}, {1, 32, 4, 2}, {1, 64, 16, 2}};

TEST(Coverage, CaseAEveryWeightFlushes) {
  const auto found = search(released(), small, [](const Outcome& o, const Candidate&) {
    return o.all.gate && std::isnan(o.output()) && o.all.denominator[0] == 0 &&
           o.has(EventKind::flush, SimulationStage::weight);
  });
  EXPECT_TRUE(found.contains("narrow-grid"));
}

TEST(Coverage, CaseBMostOfTheMassFlushes) {
  const auto found = search(released(), small, [](const Outcome& o, const Candidate& c) {
    const Softmax exact = exact_row(o, c);
    return o.all.gate && std::isfinite(o.output()) && exact.lost > 0.15 &&
           std::fabs(o.output() - exact.output) > 0.1;
  });
  EXPECT_TRUE(found.contains("two-level"));
}

TEST(Coverage, CaseCTheNumeratorOverflows) {
  const auto found = search(released(), small, [](const Outcome& o, const Candidate& c) {
    return o.all.gate && !std::isfinite(o.output()) &&
           o.has(EventKind::infinity, SimulationStage::numerator) &&
           std::fabs(static_cast<double>(c.value(0)[0])) < 0x1p60;
  });
  EXPECT_TRUE(found.contains("equal-keys"));
  EXPECT_TRUE(found.contains("extreme-values"));
}

TEST(Coverage, CaseDTheReciprocalFlushes) {
  Kernel k = released();
  k.stabilizer = "clis-alg1";
  for (const Shape& shape : {Shape{1, 16, 2, 1}, Shape{1, 64, 4, 1}}) {
    k.marks.cap = 127 - std::bit_width(static_cast<std::uint64_t>(shape.keys)) + 1;
    k.marks.gate_limit = k.marks.cap + 126;
    const auto found = search(k, {shape}, [](const Outcome& o, const Candidate& c) {
      return o.all.gate && o.output() == 0 && c.value(0)[0] > 0 &&
             std::fabs(static_cast<double>(o.all.denominator[0]) / 0x1p127 - 1) < 1e-4 &&
             o.has(EventKind::flush, SimulationStage::normalise);
    });
    EXPECT_TRUE(found.contains("equal-keys")) << shape.keys;
  }
}

TEST(Coverage, CaseETheOneSidedGateLosesMass) {
  Kernel k = released("[gate]\ngate = \"one-sided\"\n[stabilizer]\nround_up = false\n");
  k.stabilizer = "fixed-m-n";
  for (const Shape& shape : {Shape{1, 16, 3, 1}, Shape{1, 64, 4, 1}}) {
    // C(N) = 127 - ceil(log2 N) - ceil(log2 vmax), the gate C + 125
    k.marks.cap = 127 - std::bit_width(static_cast<std::uint64_t>(shape.keys - 1)) -
                  std::ceil(std::log2(k.model.gate.vmax));
    k.marks.gate_limit = k.marks.cap + 125;
    const auto found = search(k, {shape}, [](const Outcome& o, const Candidate& c) {
      return o.all.gate && std::isfinite(o.output()) && exact_row(o, c).lost > 0.1;
    });
    EXPECT_TRUE(found.contains("two-level")) << shape.keys;
  }
}

TEST(Coverage, CaseFProductsFlush) {
  const auto found = search(released({}, true), small, [](const Outcome& o, const Candidate& c) {
    return o.all.gate && o.output() == 0 && o.all.denominator[0] > 0 &&
           std::fabs(exact_row(o, c).output) > 0x1p-10;
  });
  EXPECT_TRUE(found.contains("orthogonal"));
}

/// FlashAttention's arithmetic over natural scores, tiles of 8.
Kernel flash(const Format& operand = bf16) {
  Kernel k;
  k.model = reports::flash(operand);
  k.model.tiles.keys = 8;
  k.scale = Scale::natural(1);
  k.stabilizer = "online-fa2";
  k.marks.operand = operand;
  k.marks.factor = 1.4426950408889634;
  k.marks.flush = -149;
  k.marks.key_block = 8;
  return k;
}

TEST(Coverage, FusedResidualOfTheMaximum) {
  const auto found = search(flash(), small, [](const Outcome& o, const Candidate&) {
    return !std::isfinite(o.output()) && o.has(EventKind::infinity, SimulationStage::weight);
  });
  EXPECT_TRUE(found.contains("constant"));
  EXPECT_TRUE(found.contains("fused-residual"));
}

TEST(Coverage, FiniteSentinelAboveEveryScore) {
  Kernel k = flash();
  k.model.exponent.fused = false;
  k.stabilizer = "online-flashinfer";
  k.parameters = {{"initial_max", -5e4}};
  const auto found = search(k, small, [](const Outcome& o, const Candidate& c) {
    const Softmax exact = exact_row(o, c);  // FlashInfer's l starts at 1
    return o.output() == 0 && exact.output != 0 && exact.lost == 1;
  });
  EXPECT_TRUE(found.contains("far-rows"));
}

TEST(Coverage, WaveWideLazyRescale) {
  Kernel k = flash();
  k.scale = Scale::base2(1);
  k.marks.factor = 1;
  k.marks.threshold = 8;
  k.stabilizer = "lazy-wave";
  const auto found =
      search(k, {{2, 16, 2, 1}, {4, 32, 4, 1}}, [](const Outcome& o, const Candidate&) {
        for (const float x : o.all.output) {
          if (!std::isfinite(x)) return true;
        }
        return false;
      });
  EXPECT_TRUE(found.contains("opposed-rows"));
}

TEST(Coverage, Fp8WeightsSaturateBehindALazyMaximum) {
  Kernel k = flash();
  k.scale = Scale::base2(1);
  k.marks.factor = 1;
  k.model.p.format = e4m3fn;
  k.model.p.saturate = true;
  k.marks.threshold = 4;
  k.stabilizer = "fa4-row";
  k.parameters = {{"threshold", 4}, {"offset", 8}};
  const auto found = search(k, small, [](const Outcome& o, const Candidate& c) {
    return o.has(EventKind::saturation, SimulationStage::p) &&
           std::fabs(o.output() - exact_row(o, c).output) > 0.1;
  });
  EXPECT_TRUE(found.contains("creeping-maximum"));
}

TEST(Coverage, BlockKeysOverAndUnder) {
  Kernel k = flash();
  k.scale = Scale::base2(1);
  k.marks.factor = 1;
  k.marks.flush = -126;
  k.model.exp2.flush_to_zero = true;
  k.stabilizer = "vfa";
  const std::vector<Shape> shapes = {{1, 32, 4, 1}, {1, 64, 8, 1}};
  const auto over = search(k, shapes, [](const Outcome& o, const Candidate& c) {
    return o.all.denominator[0] == 0 && exact_row(o, c).lost == 1;
  });
  EXPECT_TRUE(over.contains("block-extremes"));
  const auto under = search(k, shapes, [](const Outcome& o, const Candidate&) {
    return !std::isfinite(o.output()) && o.has(EventKind::infinity, SimulationStage::weight);
  });
  EXPECT_TRUE(under.contains("hidden-key"));
}

TEST(Coverage, Fp16ScoresAndSums) {
  Kernel k = flash(fp16);
  k.model = reports::natural();
  k.model.tiles.keys = 8;
  k.model.operand = k.model.score.store = fp16;
  k.stabilizer = "online-scaled";
  const auto stored = search(k, small, [](const Outcome& o, const Candidate&) {
    return std::isnan(o.output()) && o.has(EventKind::infinity, SimulationStage::score);
  });
  EXPECT_TRUE(stored.contains("store-edge"));
  k.model.score.store = fp32;
  k.model.numerator.format = fp16;
  k.marks.emax = 15;
  const auto summed = search(k, small, [](const Outcome& o, const Candidate&) {
    return std::isinf(o.output()) && o.has(EventKind::infinity, SimulationStage::numerator);
  });
  EXPECT_TRUE(summed.contains("equal-keys"));
  k.model.numerator.format = fp32;
  k.model.denominator.format = bf16;
  k.model.denominator.order = {OrderKind::sequential};
  const auto swallowed = search(
      k, {{1, 600, 2, 1}},
      [](const Outcome& o, const Candidate& c) {
        return std::isfinite(o.output()) &&
               o.has(EventKind::absorption, SimulationStage::denominator) &&
               std::fabs(o.output() - exact_row(o, c).output) >
                   0.1 * std::fabs(static_cast<double>(c.value(0)[0]));
      },
      40);
  EXPECT_TRUE(swallowed.contains("equal-keys"));
  EXPECT_TRUE(swallowed.contains("hot-and-tails"));
}

}  // namespace
}  // namespace headroom::fuzz
