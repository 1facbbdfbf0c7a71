// Speed of the simulation: heads of 16 x 64 x 16, as a fuzzer runs them, and large ones, one core.
//
// A call takes Q, K and V as stored words and gives O, LSE, l and mu of every row. It includes
// reading and folding the operands, the stabilizer's own preparation, and all rounding; it does not
// include making the operands, and allocates nothing. Heads come from a pool of 64.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include "bench/ladder/heads.h"
#include "bench/peak.h"
#include "bench/simulate/mpfr_kernel.h"
#include "reference/evaluate/simulate/lanes/simulator.h"
#include "reference/model/kernel_file.h"
#include "reference/real/fp_environment.h"

namespace headroom::bench {
namespace {

constexpr std::int64_t small_nq = 16, small_nk = 64, small_d = 16;
constexpr int pool = 64;

/// FlashAttention-3 with IEEE sums in place of the matrix unit's.
KernelModel flash(const Format& format) {
  KernelModel m = preset("hopper");
  m.operand = m.p.format = m.normalise.output = format;
  m.score.accumulator.order = m.numerator.order = {OrderKind::sequential};
  return m;
}
/// MaxDiffusion's kernel, sums in tiles of 256.
KernelModel tpu() { return preset("tpu7x"); }

KernelModel everywhere(const Format& format) {
  KernelModel m = preset("fp16-everywhere");
  const auto all = [&](auto&... formats) { ((formats = format), ...); };
  all(m.operand, m.scale.constant, m.scale.arithmetic, m.score.accumulator.format, m.score.store,
      m.exponent.format, m.exp2.result, m.p.format, m.denominator.format, m.numerator.format,
      m.normalise.output, m.stabilizer.store);
  m.tiles.keys = 16;
  return m;
}

struct Case {
  std::string name;
  KernelModel kernel;
  std::string stabilizer;
};
std::vector<Case> cases() {
  KernelModel narrow_tiles = flash(bf16);
  narrow_tiles.tiles.keys = 16;
  return {{"flash_bf16", flash(bf16), "online-fa3"},
          {"flash_bf16_tiles_of_16", narrow_tiles, "online-fa3"},
          {"flash_fp16", flash(fp16), "online-fa3"},
          {"flash_bf16_fixed", flash(bf16), "fixed-m"},
          {"tpu_fixed", tpu(), "fixed-m"},
          {"tpu_splash", tpu(), "online-splash"},
          {"fp16_everywhere", everywhere(fp16), "online-scaled"},
          {"bf16_everywhere", everywhere(bf16), "online-scaled"}};
}

std::vector<std::int64_t> all_rows(const AttentionProblem& p) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(p.queries()));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

void rates(benchmark::State& state, const AttentionProblem& p) {
  const double scores = static_cast<double>(p.queries() * p.keys());
  state.counters["heads/s"] = benchmark::Counter(1, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["ns/score"] = benchmark::Counter(
      scores * 1e-9, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

/// Made once for all repetitions.
const std::vector<AttentionProblem>& heads(const Format& format, int n, std::int64_t nq,
                                           std::int64_t nk, std::int64_t d) {
  static std::map<std::pair<std::string, std::int64_t>, std::vector<AttentionProblem>> made;
  std::vector<AttentionProblem>& all = made[{std::string(format.name), nk}];
  for (auto i = static_cast<int>(all.size()); i < n; ++i) {
    all.push_back(make_head(HeadKind::gaussian, format, nq, nk, d, static_cast<std::uint64_t>(i)));
  }
  return all;
}

void lanes(benchmark::State& state, const Case& of, InstructionSet set, bool plain, std::int64_t nq,
           std::int64_t nk, std::int64_t d, int n) {
  const std::vector<AttentionProblem>& all = heads(of.kernel.operand, n, nq, nk, d);
  SimulationOptions options;
  options.set = set;
  options.plain = plain;
  Simulator simulator(all[0], of.kernel, make_loop_stabilizer(of.stabilizer), all_rows(all[0]),
                      options);
  std::size_t next = 0;
  for (auto _ : state) {
    const AttentionProblem& p = all[next];
    next = next + 1 == all.size() ? 0 : next + 1;
    const Simulated& result = simulator.run(p.q.row_bytes(0), p.k.row_bytes(0), p.v.row_bytes(0));
    benchmark::DoNotOptimize(result.output.data());
    benchmark::ClobberMemory();
    if (result.vectorised == plain) state.SkipWithError("the other implementation ran");
  }
  rates(state, all[0]);
}

/// As many FMAs as the two products of a small head need, in registers.
void fma_peak(benchmark::State& state) {
  constexpr std::int64_t vectors = 2 * small_nq * small_nk * small_d / 16;
  for (auto _ : state) benchmark::DoNotOptimize(fma_chains_avx512(16 * vectors));
  state.counters["heads/s"] = benchmark::Counter(1, benchmark::Counter::kIsIterationInvariantRate);
}

void mpfr(benchmark::State& state, const Case& of) {
  const std::vector<AttentionProblem>& all =
      heads(of.kernel.operand, pool, small_nq, small_nk, small_d);
  MpfrKernel kernel(of.kernel.operand, small_nq, small_nk, small_d, of.kernel.tiles.keys);
  Simulator simulator(all[0], of.kernel, make_loop_stabilizer(of.stabilizer), all_rows(all[0]));
  std::vector<float> output(static_cast<std::size_t>(small_nq * small_d));
  for (const AttentionProblem& p : all) {
    kernel.run(p, output.data());
    const Simulated& simulated = simulator.run(p.q, p.k, p.v);
    for (std::size_t i = 0; i < output.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(output[i]) !=
          std::bit_cast<std::uint32_t>(simulated.output[i])) {
        return state.SkipWithError(
            fmt::format("MPFR gives {:a}, the simulation {:a}", output[i], simulated.output[i])
                .c_str());
      }
    }
  }
  std::size_t next = 0;
  for (auto _ : state) {
    kernel.run(all[next], output.data());
    next = next + 1 == all.size() ? 0 : next + 1;
  }
  rates(state, all[0]);
}

void register_all() {
  const auto repeat = [](benchmark::internal::Benchmark* b, int repetitions) {
    b->Repetitions(repetitions)
        ->Unit(benchmark::kMicrosecond)
        ->ComputeStatistics(
            "least",
            [](const std::vector<double>& x) { return *std::min_element(x.begin(), x.end()); })
        ->ComputeStatistics(
            "most",
            [](const std::vector<double>& x) { return *std::max_element(x.begin(), x.end()); })
        ->ReportAggregatesOnly();
  };
  static const std::vector<Case> all = cases();
  if (processor_has(InstructionSet::avx512)) {
    repeat(benchmark::RegisterBenchmark("fma_peak/16x64x16", fma_peak)->Iterations(1500), 101);
  }
  for (const Case& of : all) {
    for (const InstructionSet set :
         {InstructionSet::avx512, InstructionSet::avx2, InstructionSet::portable}) {
      if (!processor_has(set)) continue;
      repeat(benchmark::RegisterBenchmark(fmt::format("{}/16x64x16/{}", of.name, name(set)).c_str(),
                                          [&of, set](benchmark::State& s) {
                                            lanes(s, of, set, false, small_nq, small_nk, small_d,
                                                  pool);
                                          })
                 ->Iterations(set == InstructionSet::portable ? 100 : 1500),
             101);
    }
    repeat(benchmark::RegisterBenchmark(fmt::format("{}/16x64x16/plain", of.name).c_str(),
                                        [&of](benchmark::State& s) {
                                          lanes(s, of, best_instruction_set(), true, small_nq,
                                                small_nk, small_d, pool);
                                        }),
           3);
    repeat(benchmark::RegisterBenchmark(
               fmt::format("{}/1024x4096x128/{}", of.name, name(best_instruction_set())).c_str(),
               [&of](benchmark::State& s) {
                 lanes(s, of, best_instruction_set(), false, 1024, 4096, 128, 1);
               })
               ->Iterations(1),
           3);
  }
  for (const Case& of : all) {
    if (of.name.find("everywhere") == std::string::npos) continue;
    repeat(benchmark::RegisterBenchmark(fmt::format("{}/16x64x16/mpfr", of.name).c_str(),
                                        [&of](benchmark::State& s) { mpfr(s, of); }),
           5);
  }
}

}  // namespace
}  // namespace headroom::bench

int main(int argc, char** argv) {
  const headroom::NearestRounding nearest;
  headroom::bench::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
