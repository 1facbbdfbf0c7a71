// A fixed stabilizer as a plug-in in C++: mu = ceil(|q| max|k|) - cap, stored before the loop, and
// a gate in front that refuses heads whose scores could lie too far below it.
//
//     c++ -std=c++20 -O2 -ffp-contract=off -fPIC -shared -I INCLUDE norm_bound.cpp -o norm_bound.so
#include <algorithm>
#include <cmath>
#include <new>
#include <vector>

#include <headroom_stabilizer.h>

namespace {

/// Lives in the memory that Headroom owns; init makes it and finish ends it.
struct State {
  double cap;
  double query_norm = 0, key_norm = 0;
  std::vector<float> mu;     // of every query row
  std::vector<float> block;  // of the rows under way
};

State& of(void* state) { return *static_cast<State*>(state); }

/// FP32 sums one after another, as a kernel's prologue has them.
float norm(const float* x, int64_t channels) {
  float sum = 0;
  for (int64_t c = 0; c < channels; ++c) sum += x[c] * x[c];
  return std::sqrt(sum);
}

size_t state_bytes(const headroom_kernel*, const double*) { return sizeof(State); }

int init(void* memory, const headroom_kernel* kernel, const double* parameters,
         headroom_constants*) {
  State& s = *new (memory) State;
  s.cap = parameters[0];
  const auto larger = [](double a, double b) { return std::isnan(b) || b > a ? b : a; };
  for (int64_t j = 0; j < kernel->keys; ++j) {
    s.key_norm = larger(s.key_norm, norm(kernel->key(kernel, j), kernel->channels));
  }
  const double factor = std::fabs(kernel->score_factor);
  for (int64_t i = 0; i < kernel->queries; ++i) {
    const double q = norm(kernel->query(kernel, i), kernel->channels);
    s.query_norm = larger(s.query_norm, q);
    s.mu.push_back(kernel->round_store(kernel, std::ceil(q * s.key_norm * factor) - s.cap));
  }
  return 0;
}

/// Scores lie in [-U, U], mu in [U - cap, U + 1 - cap]: exponents in [cap - 1 - 2 U, cap].
void gate(void* memory, const headroom_kernel* kernel, headroom_gate* outcome) {
  const State& s = of(memory);
  outcome->value = s.query_norm * s.key_norm * std::fabs(kernel->score_factor);
  outcome->limit = (s.cap + 125) / 2;
  outcome->accepts = outcome->value <= outcome->limit ? 1 : 0;  // NaN is refused
}

void before_loop(void* memory, const headroom_kernel*, const int64_t* rows, int64_t n) {
  State& s = of(memory);
  s.block.resize(static_cast<size_t>(n));
  for (int64_t r = 0; r < n; ++r) {
    s.block[static_cast<size_t>(r)] = s.mu[static_cast<size_t>(rows[r])];
  }
}

void tile(void* memory, const headroom_kernel*, const headroom_tile*,
          const headroom_decision* decision) {
  const State& s = of(memory);
  std::copy(s.block.begin(), s.block.end(), decision->shift);
}

void finish(void* memory, const headroom_kernel*) { of(memory).~State(); }

constexpr headroom_parameter parameters[] = {
    {"cap", "log2 of the largest weight that the rule aims at", 88}};

constexpr headroom_stabilizer table = {
    .abi = HEADROOM_STABILIZER_ABI,
    .size = sizeof(headroom_stabilizer),
    .name = "norm-bound",
    .summary = "mu = ceil(|q| max|k|) - cap before the loop, behind a gate of (cap + 125) / 2",
    .parameters = parameters,
    .parameter_count = 1,
    .fallback = nullptr,
    .flags = 0,
    .reserved = 0,
    .state_bytes = state_bytes,
    .init = init,
    .gate = gate,
    .before_loop = before_loop,
    .order = nullptr,
    .tile = tile,
    .finish = finish,
};

}  // namespace

extern "C" HEADROOM_STABILIZER_EXPORT const headroom_stabilizer* headroom_stabilizer_entry() {
  return &table;
}
