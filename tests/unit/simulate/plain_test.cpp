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
  if (dice.one_in(5)) start.offset = 8;
  start.descending = dice.one_in(4);
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
      fine = check("output", c, run.output[i * dv + c], expected.output[c]) && fine;
    }
    fine = check("lse", 0, run.lse[i], expected.lse) && fine;
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

}  // namespace
}  // namespace headroom
