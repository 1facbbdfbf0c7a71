// The search's parts: the archive, the ascent, the twin, and that a hunt depends on its seed alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "fuzz/archive.h"
#include "fuzz/ascent.h"
#include "fuzz/execute.h"
#include "fuzz/hunt.h"
#include "fuzz/mutate.h"
#include "fuzz/verdict_edge.h"
#include "reference/evaluate/ladder/ladder.h"
#include "reference/input_error.h"
#include "reference/model/kernel_file.h"

namespace headroom::fuzz {
namespace {

Candidate numbered(float x) {
  Candidate c = make_candidate({1, 1, 1, 1});
  c.q[0] = x;
  return c;
}

TEST(FuzzRandom, StreamsAreReproducibleAndApart) {
  Random a(1, 2, 3), same(1, 2, 3), other(1, 2, 4);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t x = a.bits();
    EXPECT_EQ(x, same.bits());
    EXPECT_NE(x, other.bits());
    EXPECT_TRUE(seen.insert(x).second);
  }
  // mean 0, variance 1 of twelve uniforms less 6: 10^5 of them are off by some 1/300
  double sum = 0, squares = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = a.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.02);
  EXPECT_NEAR(squares / 1e5, 1, 0.02);
}

TEST(FuzzArchive, KeepsTheNearestOfEachCell) {
  Archive archive({Objective::zero_row, Objective::lost_mass});
  EXPECT_TRUE(archive.offer(Objective::zero_row, 7, -3, numbered(1)));
  EXPECT_FALSE(archive.offer(Objective::zero_row, 7, -4, numbered(2)));
  EXPECT_FALSE(archive.offer(Objective::zero_row, 7, -3, numbered(2)));
  EXPECT_TRUE(archive.offer(Objective::zero_row, 7, -2, numbered(3)));
  EXPECT_TRUE(archive.offer(Objective::zero_row, 8, -1, numbered(4)));
  EXPECT_FALSE(archive.offer(Objective::zero_row, 9, std::nan(""), numbered(5)));
  EXPECT_FALSE(archive.offer(Objective::zero_row, 9, -HUGE_VAL, numbered(5)));
  archive.settle();
  EXPECT_EQ(archive.cells(), 2);
  const auto nearest = archive.nearest(Objective::zero_row, 5);
  ASSERT_EQ(nearest.size(), 2U);
  EXPECT_EQ(nearest[0]->candidate.q[0], 4);
  EXPECT_EQ(nearest[1]->candidate.q[0], 3);
  Random random(1);
  EXPECT_EQ(archive.parent(Objective::lost_mass, random), nullptr);
  EXPECT_NE(archive.parent(Objective::zero_row, random), nullptr);
}

TEST(FuzzArchive, StaysBoundedAndDropsTheFarthest) {
  Archive archive({Objective::claim});
  for (int i = 0; i < 5000; ++i) {
    archive.offer(Objective::claim, static_cast<std::uint64_t>(i), i % 1000, numbered(1));
  }
  archive.settle();
  EXPECT_LE(archive.cells(), 2048);
  const auto all = archive.nearest(Objective::claim, 5000);
  EXPECT_EQ(all.front()->closeness, 999);
  EXPECT_GE(all.back()->closeness, 999 - 2048 / 5 - 1);
}

// A smooth function of the motion with its top elsewhere: the ascent gets there.
TEST(FuzzAscent, ClimbsAQuadratic) {
  Ascent ascent;
  ascent.start(numbered(1), -1e9);
  Random random(5);
  const double top[Motion::dimensions] = {1, -2, 0.5, 3, 0.25, -1};
  double best = -HUGE_VAL;
  for (int generation = 0; generation < 60 && ascent.running(); ++generation) {
    std::vector<double> near;
    for (const Motion& m : ascent.ask(random)) {
      double sum = 0;
      for (int i = 0; i < Motion::dimensions; ++i) {
        sum -= (m.by[i] - top[i]) * (m.by[i] - top[i]) * (i + 1);
      }
      near.push_back(sum);
      best = std::max(best, sum);
    }
    ascent.tell(near);
  }
  EXPECT_GT(best, -1e-3);
}

// The twin is near exact attention where the kernel itself is not.
TEST(FuzzTwin, IsNearExactAttention) {
  const Hunt& hunt = catalogue_entry("fa4-fp8");
  Random random(3);
  const KernelModel twin = careful_twin(hunt.target.kernel);
  EXPECT_FALSE(find_problem(twin));
  for (int repeat = 0; repeat < 20; ++repeat) {
    Candidate c = make_candidate({3, 40, 8, 2});
    for (std::vector<float>* numbers : {&c.q, &c.k, &c.v}) {
      for (float& x : *numbers) x = static_cast<float>(4 * random.normal());
    }
    round_operands(c, hunt.target.kernel.operand);
    const AttentionProblem p =
        problem_of(c, hunt.target.kernel.operand, hunt.target.scale_of(c.shape));
    const std::vector<std::int64_t> rows = all_rows(p);
    const Simulated run = simulate(p, twin, *make_loop_stabilizer("online-scaled"), rows);
    const EnclosedRows exact = enclosures(p, rows, {});
    for (std::size_t i = 0; i < run.output.size(); ++i) {
      EXPECT_NEAR(run.output[i], exact.output_lo[i], 1e-4);
    }
  }
}

std::string told(const HuntResult& result) {
  std::string text = std::to_string(result.runs) + " " + std::to_string(result.cells);
  for (const double near : result.nearest) text += " " + std::to_string(near);
  for (const Finding& f : result.findings) text += "\n" + finding_text(f);
  return text;
}

TEST(FuzzHunt, DependsOnTheSeedAndNotOnThreads) {
  for (const char* name : {"case-b", "finite-sentinel"}) {
    HuntOptions options;
    options.seconds = 0;
    options.runs = 8 * 512;
    options.threads = 1;
    const Hunt& h = catalogue_entry(name);
    const std::string one = told(hunt(h, options));
    options.threads = 2;
    EXPECT_EQ(told(hunt(h, options)), one) << name;
    options.seed = 2;
    EXPECT_NE(told(hunt(h, options)), one) << name;
  }
}

TEST(FuzzHunt, StopsAtAFindAndAtItsRuns) {
  HuntOptions options;
  options.seconds = 0;
  options.runs = 200000;
  options.stop_at_find = true;
  const HuntResult found = hunt(catalogue_entry("finite-sentinel"), options);
  ASSERT_EQ(found.findings.size(), 1U);
  EXPECT_LT(found.runs, options.runs);
  EXPECT_EQ(found.findings[0].objective, Objective::zero_row);
  EXPECT_TRUE(replay(found.findings[0]).reproduces);
  options.runs = 512;
  options.stop_at_find = false;
  options.strategy = Strategy::gaussian;
  EXPECT_EQ(hunt(catalogue_entry("case-a"), options).runs, 512);
}

// Certified as it is, and not with one of its matrices some ulps larger (V: or smaller).
TEST(FuzzVerdict, IsAtTheEdgeOfTheCertificate) {
  const auto certified = [](const Target& t, const Candidate& c) {
    const Head head = head_of(c, t.kernel.operand, t.scale_of(c.shape));
    return certify_head(head, t.kernel, t.certify_options()).verdict == Verdict::certified;
  };
  for (const char* name : {"clis-tpu7x", "clis-ieee-fp32"}) {
    const Target& target = catalogue_entry(name).target;
    int moved = 0;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      Random random(seed);
      Candidate c = make_candidate({2, 12, 3, 1});
      for (std::vector<float>* numbers : {&c.q, &c.k, &c.v}) {
        for (float& x : *numbers) x = static_cast<float>(random.normal());
      }
      round_operands(c, target.kernel.operand);
      const Candidate before = c;
      if (!aim_at_verdict(random, target, c)) {
        EXPECT_TRUE(c == before);
        continue;
      }
      ++moved;
      EXPECT_TRUE(certified(target, c)) << name << ' ' << seed;
      bool refused = false;
      for (const int which : {0, 1, 3}) {
        for (const double by : {0.05, -0.05}) {
          Candidate other = c;
          Motion motion;
          motion.by[which] = by;
          move(motion, other);
          round_operands(other, target.kernel.operand);
          refused = refused || !certified(target, other);
        }
      }
      EXPECT_TRUE(refused) << name << ' ' << seed;
    }
    EXPECT_GT(moved, 20) << name;
  }
}

TEST(FuzzCatalogue, EveryEntryIsAKernelThatCanBeRun) {
  std::set<std::string> names;
  for (const Hunt& h : catalogue()) {
    EXPECT_TRUE(names.insert(h.target.name).second);
    EXPECT_FALSE(find_problem(h.target.kernel)) << h.target.name;
    EXPECT_FALSE(h.objectives.empty());
    Executor executor(h);
    Random random(1);
    const Shape shape = h.space.shapes[0];
    Candidate c = make_candidate(shape);
    for (std::vector<float>* numbers : {&c.q, &c.k, &c.v}) {
      for (float& x : *numbers) x = static_cast<float>(random.normal());
    }
    round_operands(c, h.target.kernel.operand);
    EXPECT_TRUE(executor.run(c, true).ran) << h.target.name;
  }
  EXPECT_THROW(catalogue_entry("no such"), InputError);
}

}  // namespace
}  // namespace headroom::fuzz
