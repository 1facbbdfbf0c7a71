// Certification against reading the same bytes, and passes against other interval arithmetic.
//
// One thread. At the end the ratios to plain reads of this run, from the least processor time among
// each benchmark's repetitions: whatever else the machine does only adds to it.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <mpfi.h>
#include <sys/resource.h>

#include <CGAL/Interval_nt.h>
#include <oneapi/tbb/global_control.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "bench/certify/read.h"
#include "bounds/score.h"
#include "certify/certificate.h"
#include "certify/certify.h"
#include "certify/head_scan.h"
#include "certify/path_claims.h"
#include "reference/format/convert.h"
#include "reference/model/kernel_file.h"
#include "reference/model/passes/passes.h"
#include "reference/stabilizer/stabilizer.h"

namespace headroom::bench {
namespace {

constexpr std::int64_t rows = 75600, channels = 128;
constexpr std::size_t matrix_bytes = rows * channels * 2;

/// Normal numbers around an offset a channel, as BF16.
Matrix gaussian(std::uint64_t seed, double offset) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal;
  // room behind the last row: prefetching and the plain read work in whole blocks
  auto bytes = std::make_shared<std::vector<std::byte>>(matrix_bytes + 4096);
  float around[channels];
  for (float& x : around) x = static_cast<float>(offset) * normal(engine);
  for (std::size_t i = 0; i < static_cast<std::size_t>(rows * channels); ++i) {
    const double x = static_cast<double>(normal(engine) + around[i % channels]);
    const std::uint64_t code = encode(bf16, round_to(bf16, x), {});
    std::memcpy(bytes->data() + 2 * i, &code, 2);
  }
  const std::byte* data = bytes->data();
  return {std::move(bytes), data, bf16, rows, channels, channels * 2};
}

const Head& head() {
  static const Head h = [] {
    Head made;
    made.id = "gaussian:0";
    made.q = gaussian(1, 0);
    made.k = gaussian(2, 1);
    made.v = gaussian(3, 0.5);
    made.scale = Scale::reciprocal_sqrt(channels);
    made.visibility = {.kind = MaskKind::none, .queries = rows, .keys = rows, .length = rows};
    return made;
  }();
  return h;
}
const Head& causal_head() {
  static const Head h = [] {
    Head made = head();
    made.visibility.kind = MaskKind::causal;
    return made;
  }();
  return h;
}

/// K 24 times over: 465 MB, beyond every cache.
const std::vector<std::byte>& far_keys() {
  static const std::vector<std::byte> all = [] {
    std::vector<std::byte> bytes(24 * matrix_bytes + 4096);
    for (std::size_t i = 0; i < 24; ++i) {
      std::memcpy(bytes.data() + i * matrix_bytes, head().k.row_bytes(0), matrix_bytes);
    }
    return bytes;
  }();
  return all;
}

std::uint64_t read(const std::byte* data, std::size_t bytes) {
  return processor_has(InstructionSet::avx512) ? read_avx512(data, bytes) : read_plain(data, bytes);
}

void bytes_per_second(benchmark::State& state, std::size_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes));
}

StoredRows near_rows() { return {head().k.row_bytes(0), channels * 2, rows, channels}; }
StoredRows far_rows() { return {far_keys().data(), channels * 2, 24 * rows, channels}; }

void plain_read(benchmark::State& state, const StoredRows& of) {
  const auto bytes = static_cast<std::size_t>(of.rows * of.stride);
  for (auto _ : state) benchmark::DoNotOptimize(read(of.data, bytes / 512 * 512));
  bytes_per_second(state, bytes);
}

/// A table of passes and its name.
struct Variant {
  InstructionSet set;
  bool bf16_products;
  std::string text() const { return std::string(name(set)) + (bf16_products ? "+bf16" : ""); }
};
std::vector<Variant> variants() {
  std::vector<Variant> all;
  if (has_bf16_products()) all.push_back({InstructionSet::avx512, true});
  for (const InstructionSet set :
       {InstructionSet::avx512, InstructionSet::avx2, InstructionSet::portable}) {
    if (processor_has(set)) all.push_back({set, false});
  }
  return all;
}

/// `rest`: a centre whose elements are no BF16 numbers.
void norms(benchmark::State& state, const StoredRows& of, const Variant& variant, bool both,
           bool rest = false) {
  const std::vector<float> centre =
      arranged_floats(WordFormat::bf16, std::vector<double>(channels, rest ? 0.2 : 0.25));
  std::vector<float> raw(static_cast<std::size_t>(of.rows)), centred(raw);
  const NearestRounding nearest;
  for (auto _ : state) {
    pass_kernels(variant.set, WordFormat::bf16, variant.bf16_products)
        .norms(of, both ? centre.data() : nullptr, raw.data(), centred.data());
    benchmark::ClobberMemory();
  }
  bytes_per_second(state, static_cast<std::size_t>(of.rows * of.stride));
}

// --- peers: the same upper bounds of |k| and |k - a| over `sample` rows
// -----------------------------

constexpr std::int64_t sample = 2048;

void cgal_norms(benchmark::State& state) {
  using I = CGAL::Interval_nt<false>;
  std::vector<float> row(channels);
  double sink = 0;
  for (auto _ : state) {
    const I::Protector protector;
    for (std::int64_t i = 0; i < sample; ++i) {
      head().k.load_row(i, row.data());
      I raw(0.0), centred(0.0);
      for (const float x : row) {
        raw += CGAL::square(I(static_cast<double>(x)));
        centred += CGAL::square(I(static_cast<double>(x)) - I(0.25));
      }
      sink += CGAL::sqrt(raw).sup() + CGAL::sqrt(centred).sup();
    }
  }
  benchmark::DoNotOptimize(sink);
  bytes_per_second(state, static_cast<std::size_t>(sample * channels * 2));
}

void mpfi_norms(benchmark::State& state) {
  mpfi_t raw, centred, x;
  mpfi_init2(raw, 53);
  mpfi_init2(centred, 53);
  mpfi_init2(x, 53);
  std::vector<float> row(channels);
  double sink = 0;
  for (auto _ : state) {
    for (std::int64_t i = 0; i < sample / 16; ++i) {
      head().k.load_row(i, row.data());
      mpfi_set_ui(raw, 0);
      mpfi_set_ui(centred, 0);
      for (const float element : row) {
        mpfi_set_d(x, static_cast<double>(element));
        mpfi_sqr(x, x);
        mpfi_add(raw, raw, x);
        mpfi_set_d(x, static_cast<double>(element));
        mpfi_sub_d(x, x, 0.25);
        mpfi_sqr(x, x);
        mpfi_add(centred, centred, x);
      }
      mpfi_sqrt(raw, raw);
      mpfi_sqrt(centred, centred);
      sink += mpfi_get_d(raw) + mpfi_get_d(centred);
    }
  }
  benchmark::DoNotOptimize(sink);
  mpfi_clear(raw);
  mpfi_clear(centred);
  mpfi_clear(x);
  bytes_per_second(state, static_cast<std::size_t>(sample / 16 * channels * 2));
}

// --- whole heads
// -----------------------------------------------------------------------------------

void read_head(benchmark::State& state) {
  for (auto _ : state) {
    for (const Matrix* m : {&head().q, &head().k, &head().v}) {
      benchmark::DoNotOptimize(read(m->row_bytes(0), matrix_bytes / 512 * 512));
    }
  }
  bytes_per_second(state, 3 * matrix_bytes);
}

void certify(benchmark::State& state, const Head& of, const std::string& kernel_name,
             Policy policy) {
  const KernelModel kernel = preset(kernel_name);
  CertifyOptions options;
  options.policy = policy;
  Verdict verdict = Verdict::undecided;
  for (auto _ : state) verdict = certify_head(of, kernel, options).verdict;
  state.SetLabel(std::string(to_text(verdict)));
  bytes_per_second(state, 3 * matrix_bytes);
}

void digest(benchmark::State& state) {
  for (auto _ : state) {
    for (const Matrix* m : {&head().q, &head().k, &head().v}) {
      benchmark::DoNotOptimize(m->sha256().size());
    }
  }
  bytes_per_second(state, 3 * matrix_bytes);
}

/// The gate of a public rule as the kernel computes it, bit by bit.
void emulated_gate(benchmark::State& state) {
  const KernelModel kernel = preset("hopper");
  const UpwardRounding up;
  const Operands operands(up, head(), kernel);
  const NearestRounding nearest;
  for (auto _ : state) {
    benchmark::DoNotOptimize(make_stabilizer("fixed-m-n", head(), kernel, operands)->gate().value);
  }
  bytes_per_second(state, 3 * matrix_bytes);
}

/// Exact maxima: one row's largest score over all keys, enclosed.
void row_maxima(benchmark::State& state) {
  const KernelModel kernel = preset("hopper");
  const UpwardRounding up;
  const Operands operands(up, head(), kernel);
  std::int64_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(row_maximum(up, operands, i++ % rows, 0, rows).key);
  }
}

// --- the report
// ------------------------------------------------------------------------------------

class Report : public benchmark::ConsoleReporter {
 public:
  Report() : ConsoleReporter(OO_None) {}
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      const auto rate = run.counters.find("bytes_per_second");
      if (rate == run.counters.end()) continue;
      const std::string& entry = run.run_name.function_name;
      // repetitions are odd in number: the median rate is that of the median time
      if (run.aggregate_name == "median") {
        bytes_[entry] = rate->second.value * run.GetAdjustedCPUTime();
      } else if (run.aggregate_name == "least") {
        least_[entry] = run.GetAdjustedCPUTime();
      }
    }
    for (const auto& [entry, time] : least_) rate_[entry] = bytes_[entry] / time;
  }
  void ratios() const {
    const auto ratio = [&](const std::string& what, const std::string& to) {
      const auto a = rate_.find(what), b = rate_.find(to);
      if (a == rate_.end() || b == rate_.end()) return;
      fmt::print("{:<44} {:8.2f} times {}\n", what, b->second / a->second, to);
    };
    fmt::print("\nTime over that of a plain read of the same bytes, best set {}\n",
               variants().front().text());
    for (const auto& [entry, rate] : rate_) {
      if (entry.rfind("read", 0) == 0) continue;
      ratio(entry, entry.rfind("norms/dram", 0) == 0 ? "read/dram"
                   : entry.rfind("norms/", 0) == 0   ? "read/l3"
                                                     : "read/head");
    }
    fmt::print("\nPeers over the pass\n");
    const std::string best = fmt::format("norms/l3/raw+centred/{}", variants().front().text());
    ratio("norms/cgal", best);
    ratio("norms/mpfi", best);
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    fmt::print(
        "\npeak resident {} MiB, of which {} MiB are the benchmark's own copies of tensors\n",
        usage.ru_maxrss / 1024, (27 * matrix_bytes) >> 20);
  }

 private:
  std::map<std::string, double> bytes_, least_, rate_;
};

void register_all() {
  const auto add = [](const std::string& entry, auto body, int repetitions, double seconds) {
    benchmark::RegisterBenchmark(entry.c_str(), body)
        ->Repetitions(repetitions)
        ->MinTime(seconds)
        ->Unit(benchmark::kMillisecond)
        ->ComputeStatistics("least",
                            [](const std::vector<double>& all) {
                              return *std::min_element(all.begin(), all.end());
                            })
        ->ReportAggregatesOnly();
  };
  add(
      "read/l3", [](benchmark::State& s) { plain_read(s, near_rows()); }, 31, 0.01);
  add(
      "read/dram", [](benchmark::State& s) { plain_read(s, far_rows()); }, 11, 0.02);
  for (const Variant& variant : variants()) {
    for (const bool both : {false, true}) {
      const char* what = both ? "raw+centred" : "raw";
      add(
          fmt::format("norms/l3/{}/{}", what, variant.text()),
          [=](benchmark::State& s) { norms(s, near_rows(), variant, both); }, 31, 0.01);
      add(
          fmt::format("norms/dram/{}/{}", what, variant.text()),
          [=](benchmark::State& s) { norms(s, far_rows(), variant, both); }, 11, 0.02);
    }
  }
  add(
      "norms/l3/raw+centred by an FP32 centre",
      [](benchmark::State& s) { norms(s, near_rows(), variants().front(), true, true); }, 31, 0.01);
  add("norms/cgal", cgal_norms, 5, 0.01);
  add("norms/mpfi", mpfi_norms, 3, 0.01);
  add("read/head", read_head, 31, 0.02);
  for (const char* kernel : {"hopper", "tpu7x"}) {
    add(
        fmt::format("certify/{}/clis", kernel),
        [=](benchmark::State& s) { certify(s, head(), kernel, Policy::clis); }, 11, 0.02);
  }
  add(
      "certify/hopper/online",
      [](benchmark::State& s) { certify(s, head(), "hopper", Policy::online); }, 5, 0.02);
  add(
      "certify/hopper/causal",
      [](benchmark::State& s) { certify(s, causal_head(), "hopper", Policy::clis); }, 5, 0.02);
  add("digest", digest, 3, 0.01);
  add("gate/emulated", emulated_gate, 3, 0.01);
  add("exact_maximum_of_a_row", row_maxima, 3, 0.01);
}

}  // namespace
}  // namespace headroom::bench

int main(int argc, char** argv) {
  const oneapi::tbb::global_control one_thread(oneapi::tbb::global_control::max_allowed_parallelism,
                                               1);
  headroom::bench::register_all();
  benchmark::Initialize(&argc, argv);
  headroom::bench::Report report;
  benchmark::RunSpecifiedBenchmarks(&report);
  report.ratios();
}
