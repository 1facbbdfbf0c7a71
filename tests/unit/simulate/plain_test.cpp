// The plain simulation against a second one in MPFR, and its events.
#include "reference/evaluate/simulate/plain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "reference/input_error.h"
#include "reference/model/kernel_file.h"
#include "reference/real/fp_environment.h"
#include "tests/unit/simulate/tiny_kernels.h"

namespace headroom {
namespace {

using second::Row;
using second::Scripted;
using tiny::Dice;

constexpr float infinity = std::numeric_limits<float>::infinity();

int multiplier() {
  const char* text = std::getenv("HEADROOM_TEST_MULTIPLIER");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

std::string hex(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%a", x);
  return text;
}

/// A random script for one problem: shifts near the largest score of the tile, mostly.
class RandomScript {
 public:
  RandomScript(Dice& dice, const std::vector<Row>& rows, const KernelModel& kernel) {
    for (const Row& row : rows) {
      std::vector<Scripted> tiles;
      for (std::int64_t begin = 0; begin < row.tiled_keys(); begin += kernel.tiles.keys) {
        double top = 0;
        bool any = false;
        for (std::int64_t j = begin; j < std::min(row.tiled_keys(), begin + kernel.tiles.keys);
             ++j) {
          const double z = row.scaled(row.stored_score(j));
          if (std::isfinite(z) && (!any || z > top)) top = z;
          any = any || std::isfinite(z);
        }
        double off = dice.pick({0.0, 0.0, 1.0, 5.0, -5.0});
        if (dice.one_in(6)) off = dice.normal() * 60;
        // weights below the least normal P
        if (dice.one_in(6)) off = static_cast<double>(dice.between(4, 24));
        if (dice.one_in(20)) off = dice.pick({140.0, -120.0, 1000.0});
        const double shift = round_to(kernel.exponent.format, top + off);
        float correction = 1;
        if (dice.one_in(3)) correction = static_cast<float>(std::exp2(-std::fabs(dice.normal())));
        if (dice.one_in(10)) correction = static_cast<float>(std::exp2(dice.normal() * 40));
        if (dice.one_in(30)) correction = dice.pick({0.0F, 2.5F, infinity});
        tiles.push_back({std::isfinite(shift) ? static_cast<float>(shift) : 0.0F, correction});
      }
      said_.push_back(tiles);
    }
  }
  Scripted operator()(std::int64_t row, std::int64_t tile) const {
    return said_[static_cast<std::size_t>(row)][static_cast<std::size_t>(tile)];
  }

 private:
  std::vector<std::vector<Scripted>> said_;
};

/// What a run of the simulation has to be, compared bit for bit. Returns the number of rows that
/// came out finite.
int compare_one(std::uint64_t seed, std::map<std::string, int>& seen) {
  const NearestRounding nearest;
  Dice dice(seed);
  const KernelModel kernel = tiny::random_kernel(dice);
  const AttentionProblem p = tiny::random_problem(dice, kernel.operand, dice.one_in(3));
  SimulationOptions options;
  options.order = dice.pick({FreeOrder::ascending, FreeOrder::descending, FreeOrder::pairwise});
  options.plain = true;
  Row::Start start;
  if (dice.one_in(5)) start.denominator = 1;
  if (dice.one_in(5)) start.offset = dice.pick({8.0F, 8.0F, 0.807F, -3.0F});
  start.descending = dice.one_in(4);
  start.at_sink = dice.coin();
  std::vector<Row> rows;
  for (std::int64_t i = 0; i < p.queries(); ++i) rows.emplace_back(p, kernel, options.order, i);
  const RandomScript script(dice, rows, kernel);
  if (std::getenv("HEADROOM_TEST_SEED") != nullptr) {
    std::printf("%s\nscale %s, %lld x %lld keys, softcap %d, sink %d, bias %d\n",
                canonical_text(kernel).c_str(), p.scale.text().c_str(),
                static_cast<long long>(p.queries()), static_cast<long long>(p.keys()),
                p.softcap.has_value(), p.sink.has_value(), p.bias.has_value());
  }
  tiny::ScriptedLoop loop(script, start, dice.coin());
  const std::vector<std::int64_t> all = tiny::all_rows(p);
  SimulationDump dump;
  Simulated run;
  try {
    run = simulate(p, kernel, loop, all, options, &dump);
  } catch (const InputError&) {
    ++seen["refused"];
    return 0;
  }
  options.plain = false;  // and what the vector implementation covers
  const Simulated quick = simulate(p, kernel, loop, all, options);
  if (quick.vectorised) ++seen["vectorised"];
  int finite = 0;
  const auto dv = static_cast<std::size_t>(p.value_channels());
  const auto keys = static_cast<std::size_t>(p.keys());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row::Result expected = rows[i].run(script, start);
    const auto check = [&](const std::string& what, std::size_t at, double got, double want) {
      EXPECT_TRUE(tiny::same(got, want)) << "seed " << seed << " row " << i << ' ' << what << '['
                                         << at << "] is " << hex(got) << ", expected " << hex(want);
      return tiny::same(got, want);
    };
    bool fine = true;
    for (std::size_t j = 0; j < keys && fine; ++j) {
      fine = check("score", j, dump.scores[i * keys + j], expected.scores[j]) &&
             check("exponent", j, dump.exponents[i * keys + j], expected.exponents[j]) &&
             check("weight", j, dump.weights[i * keys + j], expected.weights[j]) &&
             check("p", j, dump.stored_weights[i * keys + j], expected.stored[j]);
    }
    const auto tiles = static_cast<std::size_t>(dump.tiles);
    EXPECT_EQ(tiles, expected.denominators.size()) << "seed " << seed;
    for (std::size_t t = 0; t < tiles && fine; ++t) {
      fine = check("l", t, dump.denominators[i * tiles + t], expected.denominators[t]);
      for (std::size_t c = 0; c < expected.numerators[t].size() && fine; ++c) {
        fine = check("o", t, dump.numerators[(i * tiles + t) * dv + c], expected.numerators[t][c]);
      }
    }
    if (!fine) return 0;
    for (std::size_t c = 0; c < dv; ++c) {
      fine = check("output", c, run.output[i * dv + c], expected.output[c]) &&
             check("quick output", c, quick.output[i * dv + c], expected.output[c]) && fine;
    }
    fine = check("lse", 0, run.lse[i], expected.lse) && fine;
    fine = check("quick lse", 0, quick.lse[i], expected.lse) && fine;
    fine = check("denominator", 0, run.denominator[i], expected.denominator) && fine;
    if (std::isfinite(expected.output[0]) && expected.output[0] != 0) {
      ++finite;
      ++seen[to_text(kernel.numerator.order).substr(0, 4)];
      ++seen["finite"];
    } else {
      ++seen[expected.output[0] == 0 ? "zero" : "not finite"];
    }
    if (!fine) return 0;
  }
  return finite;
}

TEST(PlainSimulation, AgreesWithTheSecondOneBitForBit) {
  std::map<std::string, int> seen;
  const int runs = 1200 * multiplier();
  const char* only = std::getenv("HEADROOM_TEST_SEED");
  const std::uint64_t from = only == nullptr ? 0 : std::strtoull(only, nullptr, 10);
  for (std::uint64_t i = from; i < from + static_cast<std::uint64_t>(only == nullptr ? runs : 1);
       ++i) {
    compare_one(i, seen);
  }
  for (const auto& [what, count] : seen) std::printf("%s %d  ", what.c_str(), count);
  std::printf("\n");
}

// --- events --------------------------------------------------------------------------------------

/// One query of one channel, 1; scores are the keys, in log2 units; tiles of two keys.
Simulated events_of(const KernelModel& kernel, const std::vector<double>& scores,
                    const std::vector<double>& values, const second::Script& script) {
  const auto n = static_cast<std::int64_t>(scores.size());
  const auto list = [n](const std::vector<double>& x) {
    return tiny::matrix(fp32, n, 1,
                        [&](std::int64_t j, auto) { return x[static_cast<std::size_t>(j)]; });
  };
  const AttentionProblem p =
      tiny::problem_of(tiny::matrix(fp32, 1, 1, [](auto, auto) { return 1; }), list(scores),
                       list(values), Scale::base2(1));
  SimulationOptions options;
  options.events = true;
  tiny::ScriptedLoop loop(script, {});
  const std::int64_t rows[] = {0};
  return simulate(p, kernel, loop, rows, options);
}
KernelModel pairs_kernel() {
  KernelModel k = preset("ieee-fp32");
  k.name = "events";
  k.facts.clear();
  k.tiles.keys = 2;
  return k;
}
Scripted nothing(std::int64_t, std::int64_t) { return {}; }

struct Place {
  EventKind kind;
  SimulationStage stage;
  std::int64_t tile, key;
  double before = std::nan("");  ///< what went in, if it is to be compared
};
void expect_event(const Simulated& run, const Place& place) {
  for (const SimulationEvent& e : run.events) {
    if (e.kind != place.kind) continue;
    EXPECT_EQ(to_text(e.stage), to_text(place.stage));
    EXPECT_EQ(e.tile, place.tile) << to_text(place.kind);
    EXPECT_EQ(e.key, place.key) << to_text(place.kind);
    if (!std::isnan(place.before)) {
      EXPECT_EQ(e.before, place.before) << to_text(place.kind);
    }
    return;
  }
  ADD_FAILURE() << "no event " << to_text(place.kind);
}

TEST(PlainSimulationEvents, NoneWhereNothingHappens) {
  EXPECT_TRUE(events_of(pairs_kernel(), {1, 2, -3, 0.5}, {1, 2, 3, 4}, nothing).events.empty());
}

TEST(PlainSimulationEvents, ScoresThatTheStoreCannotHold) {
  KernelModel k = pairs_kernel();
  k.score.store = fp16;
  const Simulated run = events_of(k, {1, 2, 3, 65520, 70000}, {1, 1, 1, 1, 1}, nothing);
  expect_event(run, {EventKind::infinity, SimulationStage::score, 1, 3, 65520});
}

TEST(PlainSimulationEvents, WeightsThatFlushOrOverflow) {
  KernelModel k = pairs_kernel();
  k.exp2.flush_to_zero = true;
  const Simulated run = events_of(k, {1, -126, 2, -126.5, -300, 128}, {1, 1, 1, 1, 1, 1}, nothing);
  expect_event(run, {EventKind::flush, SimulationStage::weight, 1, 3});
  expect_event(run, {EventKind::infinity, SimulationStage::weight, 2, 5, 128});
  expect_event(run, {EventKind::nan, SimulationStage::normalise, -1, -1});  // inf / inf
}

TEST(PlainSimulationEvents, WeightsThatSaturate) {
  KernelModel k = pairs_kernel();
  k.p.format = e4m3fn;
  k.p.saturate = true;
  // 2^8.85 = 462 rounds to 448 and is within its half ulp; 2^9 is not
  const Simulated run = events_of(k, {8, 8.85, 0, 9, 10}, {1, 1, 1, 1, 1}, nothing);
  expect_event(run, {EventKind::saturation, SimulationStage::p, 1, 3});
  // subnormals of P end at 2^-9: 2^-10 ties to 0
  const Simulated small = events_of(k, {0, -9.5, -10, 1}, {1, 1, 1, 1}, nothing);
  expect_event(small, {EventKind::flush, SimulationStage::p, 1, 2});
}

TEST(PlainSimulationEvents, SumsThatStopGrowingOrOverflow) {
  KernelModel k = pairs_kernel();
  k.denominator.format = fp16;
  const Simulated stalled = events_of(k, {11, 0, 0, 0, 0, 0}, {1, 0, 0, 0, 0, 0}, nothing);
  // 2048 + 1 = 2048: 2 of 2050 by the end of the second tile, 1 of 2049 is below 2^-10 in the first
  expect_event(stalled, {EventKind::absorption, SimulationStage::denominator, 1, -1});
  k = pairs_kernel();
  const Simulated grown = events_of(k, {127, 0, 0, 127}, {0, 1, 1, 3}, nothing);
  expect_event(grown, {EventKind::infinity, SimulationStage::denominator, 1, -1, 0x1p127});
  const Simulated large = events_of(k, {0, 0, 100, 0}, {1, 1, 0x1p40, 0}, nothing);
  expect_event(large, {EventKind::infinity, SimulationStage::numerator, 1, -1, 2});
}

TEST(PlainSimulationEvents, ShiftsAndCorrectionsThatAreNotFinite) {
  const Simulated corrected =
      events_of(pairs_kernel(), {0, 0, 0, 0}, {1, 1, 1, 1}, [](auto, std::int64_t tile) {
        return Scripted{0, tile == 1 ? infinity : 1.0F};
      });
  expect_event(corrected, {EventKind::infinity, SimulationStage::correction, 1, -1, 2});
  const Simulated shifted =
      events_of(pairs_kernel(), {0, 0, 0, 0}, {1, 1, 1, 1}, [](auto, std::int64_t tile) {
        return Scripted{tile == 1 ? std::nanf("") : 3.0F, 1};
      });
  expect_event(shifted, {EventKind::nan, SimulationStage::shift, 1, -1, 3});
}

TEST(PlainSimulationEvents, OperandsThatAreNotFinite) {
  const Simulated key = events_of(pairs_kernel(), {0, 0, std::nan(""), 0}, {1, 1, 1, 1}, nothing);
  expect_event(key, {EventKind::nan, SimulationStage::operand, 1, 2});
  const Simulated value = events_of(pairs_kernel(), {0, 0, 0, 0}, {1, 1, 1, infinity}, nothing);
  expect_event(value, {EventKind::infinity, SimulationStage::operand, 1, 3, infinity});
}

TEST(PlainSimulationEvents, RowsWithoutKeys) {
  KernelModel k = pairs_kernel();
  k.tiles.empty_row = EmptyRowRule::nan;
  AttentionProblem p =
      tiny::problem_of(tiny::matrix(fp32, 2, 1, [](auto, auto) { return 1; }),
                       tiny::matrix(fp32, 1, 1, [](auto, auto) { return 1; }),
                       tiny::matrix(fp32, 1, 1, [](auto, auto) { return 1; }), Scale::base2(1));
  p.visibility.kind = MaskKind::causal_bottom_right;
  SimulationOptions options;
  options.events = true;
  tiny::ScriptedLoop loop(nothing, {});
  const std::int64_t rows[] = {0, 1};
  const Simulated run = simulate(p, k, loop, rows, options);
  ASSERT_EQ(run.events.size(), 1U);
  EXPECT_EQ(run.events[0].row, 0);
  expect_event(run, {EventKind::nan, SimulationStage::normalise, -1, -1, 0});
}

TEST(PlainSimulationEvents, TermsThatASumNeverGets) {
  KernelModel k = pairs_kernel();
  k.denominator.format = fp16;  // 2^-25 ties to 0
  const Simulated narrow = events_of(k, {-25, -26}, {1, 1}, nothing);
  expect_event(narrow, {EventKind::flush, SimulationStage::denominator, 0, 0, 0x1p-25});
  k = pairs_kernel();
  k.denominator.denormals_are_zero = true;
  const Simulated read = events_of(k, {0, -127}, {1, 1}, nothing);
  expect_event(read, {EventKind::flush, SimulationStage::denominator, 0, 1, 0x1p-127});
  k = pairs_kernel();
  k.numerator.denormals_are_zero = true;
  const Simulated weight = events_of(k, {0, -127}, {1, 1}, nothing);
  expect_event(weight, {EventKind::flush, SimulationStage::numerator, 0, 1, 0x1p-127});
  k = pairs_kernel();
  k.numerator.flush_to_zero = true;
  k.numerator.rounded_products = false;  // it is the sum that flushes
  const Simulated sum = events_of(k, {-1, -2}, {0x1p-126, 0x1p-126}, nothing);
  expect_event(sum, {EventKind::flush, SimulationStage::numerator, 0, -1});
}

TEST(PlainSimulationEvents, OutputsThatTheirFormatCannotHold) {
  KernelModel k = pairs_kernel();
  k.normalise.output = fp16;
  const Simulated small = events_of(k, {0, 0}, {0x1p-30, 0x1p-30}, nothing);
  EXPECT_EQ(small.output[0], 0);
  expect_event(small, {EventKind::flush, SimulationStage::normalise, -1, -1, 0x1p-30});
  const Simulated large = events_of(k, {0, 0}, {70000, 70000}, nothing);
  expect_event(large, {EventKind::infinity, SimulationStage::normalise, -1, -1, 70000});
}

TEST(PlainSimulationEvents, PartsThatAreAdded) {
  KernelModel k = pairs_kernel();
  k.split.parts = 2;
  k.split.merge = MergeRule::accumulate;
  k.normalise.division = Division::reciprocal;
  k.normalise.reciprocal_flush_to_zero = true;
  // l = 2^127, whose reciprocal is subnormal: the output is 0 where 1 is right
  const Simulated run = events_of(k, {125, 125, 125, 125}, {1, 1, 1, 1}, nothing);
  EXPECT_EQ(run.output[0], 0);
  expect_event(run, {EventKind::flush, SimulationStage::normalise, -1, -1, 0x1p127});
}

TEST(PlainSimulationEvents, WeightsOfInfiniteExponents) {
  KernelModel k = pairs_kernel();
  k.exponent.format = fp16;
  const auto apart = [](auto, auto) { return Scripted{-60000, 1}; };
  k.p.format = e4m3fn;
  k.p.saturate = true;
  const Simulated cut = events_of(k, {60000, -60000}, {1, 1}, apart);
  expect_event(cut, {EventKind::saturation, SimulationStage::p, 0, 0, infinity});
  k = pairs_kernel();
  k.exponent.format = fp16;
  k.exp2 = fa4_polynomial("fa4-poly3").value();
  const Simulated beyond = events_of(k, {60000, -60000}, {1, 1}, apart);
  expect_event(beyond, {EventKind::nan, SimulationStage::weight, 0, 0, infinity});
}

// aiter: l = max(l, 1e-7); O = o / l; LSE = m + log2 l. Both implementations.
TEST(PlainSimulation, LogSumIsOfTheGuardedDenominator) {
  KernelModel k = pairs_kernel();
  k.normalise.guard = DenominatorGuard::maximum;
  k.normalise.guard_value = 0x1p-20;
  k.lse.base = ExponentBase::two;
  const AttentionProblem p =
      tiny::problem_of(tiny::matrix(fp32, 1, 1, [](auto, auto) { return 1; }),
                       tiny::matrix(fp32, 2, 1, [](auto, auto) { return -31; }),
                       tiny::matrix(fp32, 2, 1, [](auto, auto) { return 1; }), Scale::base2(1));
  const std::int64_t rows[] = {0};
  for (const bool plain : {true, false}) {
    SimulationOptions options;
    options.plain = plain;
    tiny::ScriptedLoop loop([](auto, auto) { return Scripted{3, 1}; }, {});
    const Simulated run = simulate(p, k, loop, rows, options);
    EXPECT_EQ(run.vectorised, !plain);
    EXPECT_EQ(run.output[0], 0x1p-13F);  // 2^-33 / 2^-20
    EXPECT_EQ(run.lse[0], -17);          // 3 - 20
    EXPECT_EQ(run.denominator[0], 0x1p-33F);
  }
}

/// A scale of 0 makes all scores 0, capped or not, wherever the cap multiplies.
TEST(PlainSimulation, CapsOfScoresThatTheScaleMakesZero) {
  for (const bool before : {false, true}) {
    KernelModel kernel = preset("ieee-fp32");
    kernel.score.scale_before_store = before;
    kernel.exponent.fused = false;
    AttentionProblem p = tiny::problem_of(tiny::matrix(fp32, 1, 1, [](auto, auto) { return 3.0; }),
                                          tiny::matrix(fp32, 4, 1, [](auto j, auto) { return j; }),
                                          tiny::matrix(fp32, 4, 1, [](auto, auto) { return 1.0; }),
                                          Scale::natural(0));
    p.softcap = Rational(5);
    SimulationOptions plain;
    plain.plain = true;
    const Simulated run =
        simulate(p, kernel, *make_loop_stabilizer("online-scaled"), tiny::all_rows(p), plain);
    EXPECT_EQ(run.denominator[0], 4) << before;
    EXPECT_EQ(run.shift[0], 0) << before;
  }
}

// flash-attention 2, softmax.h: no denominator gives LSE = +infinity, but -infinity in a split, so
// that the part weighs nothing. The first part's weights all flush.
TEST(PlainSimulation, PartsWithoutADenominatorWeighNothing) {
  KernelModel k = pairs_kernel();
  k.exp2.flush_to_zero = true;
  k.normalise.guard = DenominatorGuard::zero_to_one;
  const AttentionProblem p =
      tiny::problem_of(tiny::matrix(fp32, 1, 1, [](auto, auto) { return 1; }),
                       tiny::matrix(fp32, 4, 1, [](auto j, auto) { return j < 2 ? -200 : 0; }),
                       tiny::matrix(fp32, 4, 1, [](auto j, auto) { return j; }), Scale::base2(1));
  const std::int64_t rows[] = {0};
  for (const bool plain : {true, false}) {
    SimulationOptions options;
    options.plain = plain;
    tiny::ScriptedLoop loop(nothing, {});
    k.split.parts = 2;
    EXPECT_EQ(simulate(p, k, loop, rows, options).output[0], 2.5F);
    k.split.parts = 1;
    AttentionProblem first = p;
    first.visibility.length = 2;
    EXPECT_EQ(simulate(first, k, loop, rows, options).lse[0], infinity);
  }
}

TEST(PlainSimulationEvents, ExponentsThatTheirFormatCannotHold) {
  KernelModel k = pairs_kernel();
  k.exponent.format = fp16;
  const Simulated run = events_of(k, {0, 0, -40000, 40000}, {1, 1, 1, 1}, [](auto, auto) {
    return Scripted{-30000, 1};
  });
  expect_event(run, {EventKind::infinity, SimulationStage::weight, 0, 0, 30000});
  const Simulated low = events_of(k, {30000, 30000, -40000, 30000}, {1, 1, 1, 1}, [](auto, auto) {
    return Scripted{30000, 1};
  });
  expect_event(low, {EventKind::infinity, SimulationStage::exponent, 1, 2, -40000});
}

}  // namespace
}  // namespace headroom
