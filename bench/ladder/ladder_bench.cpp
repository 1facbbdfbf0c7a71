// The first rung against its limits and its peers, and what the whole ladder decides and costs.
//
// One process, one core, random interleaving, medians: trust the ratios printed at the end, not the
// times. Peers do the same work on fewer rows and are compared by time a score (row x key).
#include <arb.h>
#include <arb_mat.h>
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <mpfi.h>
#include <mpfr.h>
#include <oneapi/tbb/global_control.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "bench/ladder/heads.h"
#include "bench/peak.h"
#include "reference/evaluate/ladder/ladder.h"
#include "reference/evaluate/ladder/pair_rung.h"
#include "reference/evaluate/ladder/vector_rung.h"

namespace headroom::bench {

namespace {

constexpr std::int64_t nq = 512, nk = 4096, d = 128;
constexpr std::int64_t flops = 2 * nq * nk * (d + d);

const AttentionProblem& head() {
  static const AttentionProblem p = make_head(HeadKind::gaussian, bf16, nq, nk, d, 1);
  return p;
}
struct Doubles {
  std::vector<double> q, k, v;
};
const Doubles& doubles() {
  static const Doubles x = [] {
    Doubles r;
    const auto fill = [](const Matrix& m, std::vector<double>& out) {
      out.resize(static_cast<std::size_t>(m.rows() * m.columns()));
      for (std::int64_t i = 0; i < m.rows(); ++i) m.load_row(i, &out[i * m.columns()]);
    };
    fill(head().q, r.q);
    fill(head().k, r.k);
    fill(head().v, r.v);
    return r;
  }();
  return x;
}

/// Time a score is what ratios are made of.
void per_score(benchmark::State& state, std::int64_t rows) {
  state.counters["ns/score"] = benchmark::Counter(
      static_cast<double>(rows * nk) * 1e-9,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void fma_peak(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(fma_chains_avx512(flops));
  per_score(state, nq);
}

void rigorous(benchmark::State& state) {
  const NearestRounding nearest;
  const auto set = static_cast<InstructionSet>(state.range(0));
  const std::vector<std::int64_t> rows = all_rows(head());
  for (auto _ : state) {
    const VectorRung rung(head(), set);
    benchmark::DoNotOptimize(rung.enclose(rows));
  }
  per_score(state, nq);
  state.SetLabel(name(set));
}

/// The first rung on a head of few queries (decoding).
void few_queries(benchmark::State& state) {
  const NearestRounding nearest;
  const auto n = state.range(0);
  const AttentionProblem p = make_head(HeadKind::gaussian, bf16, n, nk, d, 1);
  const std::vector<std::int64_t> rows = all_rows(p);
  for (auto _ : state) {
    const VectorRung rung(p, best_instruction_set());
    benchmark::DoNotOptimize(rung.enclose(rows));
  }
  per_score(state, n);
}

/// Conversion, Q K^T and S V with the same loops: no exp2, no sums, no bounds.
void two_products(benchmark::State& state) {
  const auto set = static_cast<InstructionSet>(state.range(0));
  const LadderKernels& k = ladder_kernels(set);
  const std::int64_t height = k.panel_rows, stride = d + 8;
  const auto panels = nq / height;
  const auto aligned = [](std::int64_t n) {
    return std::unique_ptr<double, void (*)(void*)>(
        static_cast<double*>(std::aligned_alloc(64, static_cast<std::size_t>(n) * 8)), std::free);
  };
  const auto q = aligned(nq * d), key = aligned(tile_keys * stride), value = aligned(tile_keys * d),
             scores = aligned(tile_keys * height), sums = aligned(nq * d);
  std::fill_n(sums.get(), nq * d, 0.0);
  std::vector<double> row(d);
  for (auto _ : state) {
    for (std::int64_t i = 0; i < nq; ++i) {
      k.convert(Words::bf16, head().q.row_bytes(i), d, row.data());
      for (std::int64_t t = 0; t < d; ++t) {
        q.get()[(i / height * d + t) * height + i % height] = row[static_cast<std::size_t>(t)];
      }
    }
    for (std::int64_t begin = 0; begin < nk; begin += tile_keys) {
      const std::int64_t keys = std::min(tile_keys, nk - begin);
      for (std::int64_t j = 0; j < keys; ++j) {
        k.convert(Words::bf16, head().k.row_bytes(begin + j), d, key.get() + j * stride);
        k.convert_values(Words::bf16, head().v.row_bytes(begin + j), d,
                         value.get() + j * channel_group);
      }
      for (std::int64_t p = 0; p < panels; ++p) {
        k.scores(q.get() + p * d * height, key.get(), stride, d, keys, scores.get());
        k.values(scores.get(), value.get(), d, keys, sums.get() + p * d * height, nullptr);
      }
    }
    benchmark::DoNotOptimize(sums.get()[0]);
    benchmark::ClobberMemory();
  }
  per_score(state, nq);
  state.SetLabel(name(set));
}

using Dgemm = void (*)(int, int, int, int, int, int, double, const double*, int, const double*, int,
                       double, double*, int);
struct OpenBlas {
  Dgemm gemm = nullptr;
  std::string core;
};
/// OpenBLAS falls back to an SSE2 kernel on a processor younger than itself, and the environment
/// may name a core type of its own; either takes half its speed or more.
const OpenBlas& openblas() {
  static const OpenBlas blas = [] {
    OpenBlas b;
    unsetenv("OPENBLAS_CORETYPE");
    unsetenv("OPENBLAS_L2_SIZE");
    if (processor_has(InstructionSet::avx512)) {
      setenv("OPENBLAS_CORETYPE", "SkylakeX", 1);
    } else if (processor_has(InstructionSet::avx2)) {
      setenv("OPENBLAS_CORETYPE", "Haswell", 1);
    }
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    for (const char* path :
         {"/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so",
          "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0", "libopenblas.so.0"}) {
      if (void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
        b.gemm = reinterpret_cast<Dgemm>(dlsym(library, "cblas_dgemm"));
        using CoreName = char* (*)();
        const auto name = reinterpret_cast<CoreName>(dlsym(library, "openblas_get_corename"));
        if (name != nullptr) b.core = name();
        break;
      }
    }
    return b;
  }();
  return blas;
}
void two_dgemms(benchmark::State& state) {
  const Dgemm gemm = openblas().gemm;
  if (gemm == nullptr) return state.SkipWithError("OpenBLAS not found");
  state.SetLabel(openblas().core);
  static std::vector<double> s(static_cast<std::size_t>(nq * nk)),
      o(static_cast<std::size_t>(nq * d));
  const Doubles& x = doubles();
  for (auto _ : state) {
    gemm(101, 111, 112, nq, nk, d, 0.088, x.q.data(), d, x.k.data(), d, 0, s.data(), nk);
    gemm(101, 111, 111, nq, d, nk, 1, s.data(), nk, x.v.data(), d, 0, o.data(), d);
    benchmark::ClobberMemory();
  }
  per_score(state, nq);
}

void arb_matrix(benchmark::State& state) {
  constexpr slong bits = 113, rows = 64;
  const Doubles& x = doubles();
  arb_mat_t q, k, v, s, o;
  arb_mat_init(q, rows, d);
  arb_mat_init(k, d, nk);
  arb_mat_init(v, nk, d);
  arb_mat_init(s, rows, nk);
  arb_mat_init(o, rows, d);
  for (slong i = 0; i < rows; ++i) {
    for (slong t = 0; t < d; ++t) arb_set_d(arb_mat_entry(q, i, t), x.q[i * d + t]);
  }
  for (slong j = 0; j < nk; ++j) {
    for (slong t = 0; t < d; ++t) {
      arb_set_d(arb_mat_entry(k, t, j), x.k[j * d + t]);
      arb_set_d(arb_mat_entry(v, j, t), x.v[j * d + t]);
    }
  }
  arb_t l, scale;
  arb_init(l);
  arb_init(scale);
  arb_set_ui(scale, d);
  arb_rsqrt(scale, scale, bits);
  for (auto _ : state) {
    arb_mat_mul(s, q, k, bits);
    for (slong i = 0; i < rows; ++i) {
      for (slong j = 0; j < nk; ++j) {
        arb_ptr e = arb_mat_entry(s, i, j);
        arb_mul(e, e, scale, bits);
        arb_exp(e, e, bits);
      }
    }
    arb_mat_mul(o, s, v, bits);
    for (slong i = 0; i < rows; ++i) {
      arb_zero(l);
      for (slong j = 0; j < nk; ++j) arb_add(l, l, arb_mat_entry(s, i, j), bits);
      for (slong c = 0; c < d; ++c)
        arb_div(arb_mat_entry(o, i, c), arb_mat_entry(o, i, c), l, bits);
    }
  }
  per_score(state, rows);
  arb_mat_clear(q);
  arb_mat_clear(k);
  arb_mat_clear(v);
  arb_mat_clear(s);
  arb_mat_clear(o);
  arb_clear(l);
  arb_clear(scale);
}

void arb_dots(benchmark::State& state) {
  constexpr slong bits = 64, rows = 2;
  const Doubles& x = doubles();
  const auto vector = [](const std::vector<double>& from) {
    arb_ptr r = _arb_vec_init(static_cast<slong>(from.size()));
    for (std::size_t i = 0; i < from.size(); ++i) arb_set_d(r + i, from[i]);
    return r;
  };
  static const arb_ptr q = vector(x.q), k = vector(x.k), v = vector(x.v);
  arb_ptr p = _arb_vec_init(nk);
  arb_t l, o, scale;
  arb_init(l);
  arb_init(o);
  arb_init(scale);
  arb_set_ui(scale, d);
  arb_rsqrt(scale, scale, bits);
  for (auto _ : state) {
    for (slong i = 0; i < rows; ++i) {
      arb_zero(l);
      for (slong j = 0; j < nk; ++j) {
        arb_dot(p + j, nullptr, 0, q + i * d, 1, k + j * d, 1, d, bits);
        arb_mul(p + j, p + j, scale, bits);
        arb_exp(p + j, p + j, bits);
        arb_add(l, l, p + j, bits);
      }
      for (slong c = 0; c < d; ++c) {
        arb_dot(o, nullptr, 0, p, 1, v + c, d, nk, bits);
        arb_div(o, o, l, bits);
      }
    }
  }
  per_score(state, rows);
  _arb_vec_clear(p, nk);
  arb_clear(l);
  arb_clear(o);
  arb_clear(scale);
}

void mpfi_row(benchmark::State& state) {
  constexpr mpfr_prec_t bits = 53;
  const Doubles& x = doubles();
  std::vector<__mpfi_struct> o(d);
  for (auto& y : o) mpfi_init2(&y, bits);
  mpfi_t s, t, l, k;
  for (auto* y : {s, t, l, k}) mpfi_init2(y, bits);
  for (auto _ : state) {
    mpfi_set_ui(l, 0);
    for (auto& y : o) mpfi_set_ui(&y, 0);
    for (std::int64_t j = 0; j < nk; ++j) {
      mpfi_set_ui(s, 0);
      for (std::int64_t c = 0; c < d; ++c) {
        mpfi_set_d(k, x.k[j * d + c]);
        mpfi_mul_d(t, k, x.q[c]);
        mpfi_add(s, s, t);
      }
      mpfi_mul_d(s, s, 0.088);
      mpfi_exp(s, s);
      mpfi_add(l, l, s);
      for (std::int64_t c = 0; c < d; ++c) {
        mpfi_mul_d(t, s, x.v[j * d + c]);
        mpfi_add(&o[c], &o[c], t);
      }
    }
    for (auto& y : o) mpfi_div(&y, &y, l);
  }
  per_score(state, 1);
  for (auto& y : o) mpfi_clear(&y);
  for (auto* y : {s, t, l, k}) mpfi_clear(y);
}

void mpfr_row(benchmark::State& state) {
  constexpr mpfr_prec_t bits = 113;
  const Doubles& x = doubles();
  std::vector<__mpfr_struct> o(d);
  for (auto& y : o) mpfr_init2(&y, bits);
  mpfr_t s, t, l, k;
  for (auto* y : {s, t, l, k}) mpfr_init2(y, bits);
  for (auto _ : state) {
    mpfr_set_zero(l, 1);
    for (auto& y : o) mpfr_set_zero(&y, 1);
    for (std::int64_t j = 0; j < nk; ++j) {
      mpfr_set_zero(s, 1);
      for (std::int64_t c = 0; c < d; ++c) {
        mpfr_set_d(k, x.k[j * d + c], MPFR_RNDN);
        mpfr_mul_d(t, k, x.q[c], MPFR_RNDN);
        mpfr_add(s, s, t, MPFR_RNDN);
      }
      mpfr_mul_d(s, s, 0.088, MPFR_RNDN);
      mpfr_exp(s, s, MPFR_RNDN);
      mpfr_add(l, l, s, MPFR_RNDN);
      for (std::int64_t c = 0; c < d; ++c) {
        mpfr_mul_d(t, s, x.v[j * d + c], MPFR_RNDN);
        mpfr_add(&o[c], &o[c], t, MPFR_RNDN);
      }
    }
    for (auto& y : o) mpfr_div(&y, &y, l, MPFR_RNDN);
  }
  per_score(state, 1);
  for (auto& y : o) mpfr_clear(&y);
  for (auto* y : {s, t, l, k}) mpfr_clear(y);
}

/// One row of the second rung, with one output: what an undecided element costs.
void pair_row(benchmark::State& state, HeadKind kind, const Format& from) {
  const NearestRounding nearest;
  const AttentionProblem p = make_head(kind, from, 64, nk, d, 5);
  const VectorRung rung(p, best_instruction_set());
  std::int64_t row = 0;
  PairWorkspace work;
  for (auto _ : state) {
    const PairRow pairs(p, rung, row, work);
    const std::int64_t channel = row;
    benchmark::DoNotOptimize(pairs.outputs({&channel, 1}, work));
    row = (row + 1) % p.queries();
  }
  per_score(state, 1);
}

/// The whole ladder on one core: share of fallbacks, share of undecided elements.
void ladder_case(benchmark::State& state, HeadKind kind, const Format& from, const Format& to) {
  const oneapi::tbb::global_control one(oneapi::tbb::global_control::max_allowed_parallelism, 1);
  const AttentionProblem p = make_head(kind, from, nq, nk, d, 5);
  LadderOptions options;
  options.output.format = options.lse.format = to;
  RungCounts counts;
  for (auto _ : state) {
    counts = correctly_rounded(p, all_rows(p), options).counts;
  }
  per_score(state, nq);
  const auto elements = static_cast<double>(nq * d);
  const auto vector = static_cast<double>(counts.output[static_cast<std::size_t>(Rung::vector)]);
  state.counters["undecided"] = 1 - vector / elements;
  state.counters["fallback/vector"] = (counts.seconds[1] + counts.seconds[2]) / counts.seconds[0];
}

/// Median and 99th percentile of log2(width / A), A = sum p |v| / l.
void width_case(benchmark::State& state, HeadKind kind, const Format& from) {
  const AttentionProblem p = make_head(kind, from, nq, nk, d, 5);
  AttentionProblem magnitude = p;
  std::vector<double> v(static_cast<std::size_t>(nk * d));
  for (std::int64_t j = 0; j < nk; ++j) p.v.load_row(j, &v[static_cast<std::size_t>(j * d)]);
  for (double& x : v) x = std::fabs(x);
  magnitude.v = Matrix::from_values(from, nk, d, v);
  std::vector<double> widths;
  for (auto _ : state) {
    const EnclosedRows e = enclosures(p, all_rows(p), {}),
                       a = enclosures(magnitude, all_rows(p), {});
    widths.clear();
    for (std::size_t i = 0; i < e.output_lo.size(); ++i) {
      widths.push_back(std::log2((e.output_hi[i] - e.output_lo[i]) / a.output_lo[i]));
    }
  }
  std::sort(widths.begin(), widths.end());
  state.counters["log2 width/A"] = widths[widths.size() / 2];
  state.counters["p99"] = widths[widths.size() * 99 / 100];
  state.counters["max"] = widths.back();
}

/// A whole head of 75,600 queries and keys, correctly rounded to BF16 on one core. Only where asked
/// for: it takes a minute.
void full_head(benchmark::State& state) {
  constexpr std::int64_t n = 75600;
  const oneapi::tbb::global_control one(oneapi::tbb::global_control::max_allowed_parallelism, 1);
  const AttentionProblem p = make_head(HeadKind::gaussian, bf16, n, n, d, 1);
  LadderOptions options;
  options.output.format = options.lse.format = bf16;
  RungCounts counts;
  for (auto _ : state) counts = correctly_rounded(p, all_rows(p), options).counts;
  state.counters["ns/score"] = benchmark::Counter(
      static_cast<double>(n) * static_cast<double>(n) * 1e-9,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.counters["vector s"] = counts.seconds[0];
  state.counters["double-double s"] = counts.seconds[1];
  state.counters["wide s"] = counts.seconds[2];
  state.counters["undecided by vector"] = static_cast<double>(n * d + n - counts.of(Rung::vector));
  state.counters["undecided"] = static_cast<double>(counts.of(Rung::undecided));
}

/// Prints ratios of medians to the rigorous pass.
class RatioReporter : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      const auto c = run.counters.find("ns/score");
      const bool median = run.run_type == Run::RT_Aggregate && run.aggregate_name == "median";
      if (c != run.counters.end() && (median || run.repetitions <= 1)) {
        scores_[run.run_name.function_name +
                (run.run_name.args.empty() ? "" : "/" + run.run_name.args)] = c->second.value;
      }
    }
  }
  void Finalize() override {
    const std::string own = "rigorous/" + std::to_string(static_cast<int>(best_instruction_set()));
    if (!scores_.contains(own)) return;
    fmt::print("\nratios to {} (SIMD path {}), one core, one run, medians:\n", own,
               headroom::name(best_instruction_set()));
    for (const auto& [what, score] : scores_) {
      fmt::print(
          "  {:<44} {:>10.2f} ns/score   time / rigorous {:>9.3f}   rigorous / time {:>7.3f}\n",
          what, score, score / scores_[own], scores_[own] / score);
    }
  }

 private:
  std::map<std::string, double> scores_;
};

void register_all(bool full) {
  const auto fast = [](benchmark::internal::Benchmark* b) {
    b->Repetitions(41)->MinTime(0.02)->Unit(benchmark::kMillisecond)->ReportAggregatesOnly();
  };
  const auto slow = [](benchmark::internal::Benchmark* b) {
    b->Iterations(1)->Repetitions(3)->Unit(benchmark::kMillisecond)->ReportAggregatesOnly();
  };
  const auto best = static_cast<int>(best_instruction_set());
  if (processor_has(InstructionSet::avx512))
    fast(benchmark::RegisterBenchmark("fma_peak", fma_peak));
  fast(benchmark::RegisterBenchmark("two_products", two_products)->Arg(best));
  fast(benchmark::RegisterBenchmark("rigorous", rigorous)->Arg(best));
  fast(benchmark::RegisterBenchmark("openblas_two_dgemms", two_dgemms));
  for (const int n : {1, 2, 4, 5, 8}) {
    benchmark::RegisterBenchmark("few_queries", few_queries)
        ->Arg(n)
        ->Unit(benchmark::kMicrosecond)
        ->Repetitions(9)
        ->MinTime(0.02)
        ->ReportAggregatesOnly();
  }
  for (const InstructionSet set : {InstructionSet::avx2, InstructionSet::portable}) {
    if (processor_has(set) && static_cast<int>(set) != best) {
      slow(benchmark::RegisterBenchmark("rigorous", rigorous)->Arg(static_cast<int>(set)));
    }
  }
  slow(benchmark::RegisterBenchmark("arb_mat_mul", arb_matrix));
  slow(benchmark::RegisterBenchmark("arb_dot", arb_dots));
  slow(benchmark::RegisterBenchmark("mpfi", mpfi_row));
  slow(benchmark::RegisterBenchmark("mpfr", mpfr_row));
  if (full) {
    benchmark::RegisterBenchmark("full_head_gaussian_bf16", full_head)
        ->Iterations(1)
        ->Unit(benchmark::kSecond);
  }
  const std::pair<const char*, HeadKind> kinds[] = {{"gaussian", HeadKind::gaussian},
                                                    {"outliers", HeadKind::outlier_channels},
                                                    {"mean_one", HeadKind::mean_one}};
  for (const auto& [kind_name, kind] : kinds) {
    for (const Format* from : {&bf16, &fp16, &fp32}) {
      benchmark::RegisterBenchmark(
          fmt::format("pair_row_{}_{}", kind_name, from->name).c_str(),
          [kind = kind, from](benchmark::State& s) { pair_row(s, kind, *from); })
          ->Unit(benchmark::kMicrosecond);
      for (const Format* to : {&fp32, &bf16, &fp16}) {
        benchmark::RegisterBenchmark(
            fmt::format("ladder_{}_{}_to_{}", kind_name, from->name, to->name).c_str(),
            [kind = kind, from, to](benchmark::State& s) { ladder_case(s, kind, *from, *to); })
            ->Iterations(1)
            ->Unit(benchmark::kMillisecond);
      }
      benchmark::RegisterBenchmark(
          fmt::format("width_{}_{}", kind_name, from->name).c_str(),
          [kind = kind, from](benchmark::State& s) { width_case(s, kind, *from); })
          ->Iterations(1)
          ->Unit(benchmark::kMillisecond);
    }
  }
}

}  // namespace
}  // namespace headroom::bench

int main(int argc, char** argv) {
  const bool full = argc > 1 && std::string_view(argv[1]) == "--full-head";
  if (full) {
    argv[1] = argv[0];
    ++argv;
    --argc;
  }
  headroom::bench::register_all(full);
  benchmark::Initialize(&argc, argv);
  headroom::bench::RatioReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
}
