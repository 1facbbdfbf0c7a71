// Speed of the fuzzer's mutations: heads of 16 x 64 x 16, one core.
//
// `mutate` is one call on a copy of a parent, as the search makes it: the copy of Q, K and V, one
// to four mutators, repair and rounding. `copy` is the copy alone, `round` the rounding alone, and
// `change/NAME` one mutator alone, without either. Parents are one head of each generator.
#include <benchmark/benchmark.h>

#include "fuzz/generate.h"
#include "fuzz/mutate.h"

namespace headroom::fuzz::bench {
namespace {

constexpr Shape shape = {16, 64, 16, 16};

/// The released fixed-stabilizer kernel over base-2 scores.
Landmarks marks_of(const Format& operand) {
  Landmarks m;
  m.operand = operand;
  m.centred = true;
  m.gate_limit = 213;
  m.cap = 88;
  m.key_block = 16;
  m.threshold = 8;
  m.scores = {-7, -120, -126, -524288, 300};
  return m;
}

std::vector<Candidate> parents(const Landmarks& marks) {
  std::vector<Candidate> all;
  Random random(1);
  for (const Generator& g : generators()) {
    Candidate c = make_candidate(shape);
    g.fill(random, marks, c);
    round_operands(c, marks.operand);
    all.push_back(c);
  }
  return all;
}

void rate(benchmark::State& state) {
  state.counters["heads/s"] = benchmark::Counter(1, benchmark::Counter::kIsIterationInvariantRate);
}

SearchSpace space_of(bool settings) {
  SearchSpace space;
  space.shapes = {shape};
  space.lengths = space.windows = space.booleans = space.poison = settings;
  return space;
}

void mutations(benchmark::State& state, const Format& operand, bool settings) {
  const Landmarks marks = marks_of(operand);
  const std::vector<Candidate> all = parents(marks);
  const SearchSpace space = space_of(settings);
  Random random(2);
  Candidate child = all[0];
  std::size_t next = 0;
  for (auto _ : state) {
    child = all[next];
    next = next + 1 == all.size() ? 0 : next + 1;
    benchmark::DoNotOptimize(mutate(random, marks, space, all[next], child));
  }
  rate(state);
}

void copies(benchmark::State& state) {
  const std::vector<Candidate> all = parents(marks_of(bf16));
  Candidate child = all[0];
  std::size_t next = 0;
  for (auto _ : state) {
    child = all[next];
    next = next + 1 == all.size() ? 0 : next + 1;
    benchmark::DoNotOptimize(child.q.data());
  }
  rate(state);
}

void roundings(benchmark::State& state, const Format& operand) {
  Candidate c = parents(marks_of(bf16)).back();
  for (auto _ : state) {
    round_operands(c, operand);
    benchmark::DoNotOptimize(c.q.data());
    benchmark::ClobberMemory();
  }
  rate(state);
}

/// Copies are made in blocks, so that their time can be taken out without a clock a call.
void change(benchmark::State& state, const Mutator& m) {
  const Landmarks marks = marks_of(bf16);
  const std::vector<Candidate> all = parents(marks);
  std::vector<Candidate> children = all;
  const SearchSpace space = space_of(true);
  Random random(3);
  std::size_t next = 0;
  for (auto _ : state) {
    if (next == all.size()) {
      state.PauseTiming();
      children = all;
      next = 0;
      state.ResumeTiming();
    }
    m.change(random, marks, space, all[(next + 1) % all.size()], children[next]);
    ++next;
  }
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  benchmark::RegisterBenchmark("mutate/bf16", mutations, bf16, false);
  benchmark::RegisterBenchmark("mutate/bf16_settings", mutations, bf16, true);
  benchmark::RegisterBenchmark("mutate/fp16", mutations, fp16, false);
  benchmark::RegisterBenchmark("copy", copies);
  benchmark::RegisterBenchmark("round/bf16", roundings, bf16);
  benchmark::RegisterBenchmark("round/fp16", roundings, fp16);
  for (const Mutator& m : mutators()) {
    benchmark::RegisterBenchmark(("change/" + std::string(m.name)).c_str(),
                                 [&m](benchmark::State& state) { change(state, m); });
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace headroom::fuzz::bench

int main(int argc, char** argv) { return headroom::fuzz::bench::run(argc, argv); }
