// Which stabilizers give valid rows on video-sized heads: see docs/validity.md.
//
//   validity [--lengths 17160,75600] [--heads common,near] [--rows 64] [--kernel tpu7x]
//            [--seed 1] [--check]
//   validity --files a.safetensors,b.safetensors   (dense heads, cast to BF16)
//
// A row fails if an element of it is NaN or infinite, or if all are zero where exact attention is
// not. A stabilizer is valid on a workload if no row of it fails. `--check` holds the results
// against what theory says of each stabilizer and exits with 1 where they differ.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "bench/validity/workload.h"
#include "certify/policy.h"
#include "reference/evaluate/ladder/ladder.h"
#include "reference/evaluate/simulate/head_arithmetic.h"
#include "reference/evaluate/simulate/lanes/lanes.h"
#include "reference/head/load.h"
#include "reference/input_error.h"
#include "reference/model/kernel_file.h"
#include "reference/real/fp_environment.h"
#include "reference/stabilizer/loop/loop.h"

namespace headroom::bench {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr const char* online_name = "online-maxdiffusion";
constexpr double ln_2 = 0x1.62e42fefa39efp-1;

// --- What is run

struct Workload {
  VideoShape shape;
  std::string_view video;
};
/// Latent frames of 480p (30 x 52 tokens) and 720p (45 x 80) videos.
std::vector<Workload> workloads() {
  const auto of = [](std::int64_t frames, bool hd) {
    return Workload{{frames, hd ? 45 : 30, hd ? 80 : 52}, hd ? "720p" : "480p"};
  };
  return {of(11, false), of(21, false), of(11, true), of(33, false), of(41, false),
          of(21, true),  of(51, false), of(33, true), of(41, true),  of(51, true)};
}

enum class Operand : std::uint8_t { raw, centred };
enum class Rows : std::uint8_t { sampled, block };
enum class Expected : std::uint8_t { nothing, valid, frozen };

struct Variant {
  std::string name = {}, stabilizer = {};
  LoopParameters parameters = {};
  Operand keys = Operand::raw;
  int block = 256;       ///< keys a tile, which is VFA's block
  bool guarded = false;  ///< l = max(l, 1e-7)
  Rows rows = Rows::sampled;
  bool falls_back = false;  ///< a head that the gate refuses takes the online kernel
  Expected expected = Expected::nothing;
};

/// FD++'s constants, natural units.
struct Window {
  double phi = 0, a = 0, b = 0;
};

std::vector<Variant> variants(const Window& w) {
  using enum Expected;
  return {
      {.name = "online", .stabilizer = online_name, .expected = valid},
      {.name = "online, keys centred",
       .stabilizer = online_name,
       .keys = Operand::centred,
       .expected = valid},
      {.name = "vfa", .stabilizer = "vfa", .expected = frozen},
      {.name = "vfa, blocks of 1024", .stabilizer = "vfa", .block = 1024, .expected = frozen},
      {.name = "vfa, blocks of 2816", .stabilizer = "vfa", .block = 2816, .expected = frozen},
      {.name = "vfa, prescan",
       .stabilizer = "vfa",
       .parameters = {{"prescan", 1}},
       .expected = frozen},
      {.name = "vfa as in aiter",
       .stabilizer = "vfa",
       .parameters = {{"safety", 1}, {"sink_blocks", 0}, {"local_blocks", 0}},
       .guarded = true},
      {.name = "vfa, keys centred",
       .stabilizer = "vfa",
       .keys = Operand::centred,
       .expected = frozen},
      {.name = "vfa-sampled", .stabilizer = "vfa-sampled", .expected = frozen},
      {.name = "vfa-sampled, top",
       .stabilizer = "vfa-sampled",
       .parameters = {{"top", 1}},
       .expected = frozen},
      {.name = "fdpp",
       .stabilizer = "fdpp",
       .parameters = {{"phi", w.phi}, {"a", w.a}, {"b", w.b}},
       .expected = valid},
      {.name = "fdpp-untested", .stabilizer = "fdpp-untested", .parameters = {{"phi", w.phi}}},
      {.name = "fa4-row", .stabilizer = "fa4-row", .expected = valid},
      {.name = "fa4-tile1", .stabilizer = "fa4-tile1", .rows = Rows::block, .expected = valid},
      {.name = "fa4-tile2", .stabilizer = "fa4-tile2", .expected = valid},
      {.name = "clis",
       .stabilizer = "clis",
       .keys = Operand::centred,
       .falls_back = true,
       .expected = valid},
      {.name = "clis-alg1",
       .stabilizer = "clis-alg1",
       .keys = Operand::centred,
       .falls_back = true},
      {.name = "fixed-m", .stabilizer = "fixed-m", .keys = Operand::centred, .falls_back = true}};
}

/// Those of which the table of heads shows mu - max (least, most) and failed rows.
constexpr const char* shown[] = {"vfa", "vfa, blocks of 1024", "vfa, blocks of 2816",
                                 "vfa, keys centred", "vfa-sampled"};

struct Arguments {
  std::vector<std::int64_t> lengths;
  std::vector<std::string> heads, files;
  std::string kernel = "tpu7x";
  std::int64_t rows = 64;
  std::uint64_t seed = 1;
  bool check = false;
};

// --- One head

/// The kernel of a variant, and the head as it multiplies it.
struct Prepared {
  KernelModel kernel;
  std::optional<HeadArithmetic> arithmetic;
};

/// Words of BF16 numbers that are stored as floats.
Matrix bf16_matrix(std::int64_t rows, std::int64_t d, const float* values) {
  auto words = std::make_shared<std::vector<std::uint16_t>>(static_cast<std::size_t>(rows * d));
  for (std::size_t i = 0; i < words->size(); ++i) {
    (*words)[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16);
  }
  const auto* data = reinterpret_cast<const std::byte*>(words->data());
  return Matrix(words, data, bf16, rows, d, 2 * d);
}

/// Correctly rounded FP32 outputs of exact attention over the operands as multiplied.
std::vector<float> reference(const Head& head, const Prepared& p,
                             const std::vector<std::int64_t>& rows) {
  AttentionProblem problem(head);
  const HeadArithmetic& a = *p.arithmetic;
  problem.q = bf16_matrix(a.queries(), a.channels(), a.query(0));
  problem.k = bf16_matrix(a.keys(), a.channels(), a.key(0));
  problem.scale = scale_at_score(head.scale, p.kernel).value_or(head.scale);
  const RoundedRows exact = correctly_rounded(problem, rows, {});
  std::vector<float> output;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::int64_t c = 0; c < exact.channels; ++c) {
      output.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(exact.output_code(i, c))));
    }
  }
  return output;
}

struct Outcome {
  std::int64_t rows = 0, bad = 0, zero = 0, recomputed = 0, heads_fallen_back = 0, heads_failed = 0;
  double error = 0;
  bool valid() const { return bad == 0 && zero == 0; }
  void operator+=(const Outcome& o) {
    rows += o.rows;
    bad += o.bad;
    zero += o.zero;
    recomputed += o.recomputed;
    heads_fallen_back += o.heads_fallen_back;
    heads_failed += o.valid() ? 0 : 1;
    error = std::max(error, o.error);
  }
};

bool row_fails(const Simulated& s, std::size_t i, std::size_t dv, bool* zero = nullptr) {
  const auto row = s.output.begin() + static_cast<std::ptrdiff_t>(i * dv);
  const auto end = row + static_cast<std::ptrdiff_t>(dv);
  const bool all_zero = std::all_of(row, end, [](float x) { return x == 0; });
  if (zero != nullptr) *zero = all_zero;
  return all_zero || !std::all_of(row, end, [](float x) { return std::isfinite(x); });
}

Outcome outcome_of(const Simulated& s, const std::vector<float>& exact, std::size_t dv) {
  Outcome o;
  o.rows = static_cast<std::int64_t>(exact.size() / dv);
  for (std::size_t i = 0; i < exact.size() / dv; ++i) {
    bool zero = false;
    if (row_fails(s, i, dv, &zero)) {
      ++(zero ? o.zero : o.bad);
      continue;
    }
    for (std::size_t c = 0; c < dv; ++c) {
      o.error = std::max(o.error, std::fabs(static_cast<double>(s.output[i * dv + c]) -
                                            static_cast<double>(exact[i * dv + c])));
    }
  }
  for (const std::uint8_t again : s.recomputed) o.recomputed += again;
  return o;
}

Simulated run(const Prepared& p, const Variant& v, const std::vector<std::int64_t>& rows) {
  const auto make = [&] { return make_loop_stabilizer(v.stabilizer, v.parameters); };
  const auto stabilizer = make();
  stabilizer->init(*p.arithmetic);
  const HeadArithmetic& a = *p.arithmetic;
  if (!lanes_cover(a.problem(), a.kernel(), a.options())) {
    return simulate_plain(a, *stabilizer, rows, nullptr);
  }
  return simulate_lanes(a, *stabilizer, rows, make);
}

/// Does the certified gate take the head? Sets C and the slope of `clis`.
bool certified(const Head& head, const KernelModel& kernel, LoopParameters& parameters) {
  const UpwardRounding up;
  const Operands operands(up, head, kernel);
  const HeadScan scan = scan_head(up, head, kernel, operands);
  const auto fixed = make_fixed_stabilizer(up, Policy::clis, head, kernel, operands, scan,
                                           norms_of(scan), 0x1p-10);
  parameters["cap"] = fixed->cap();
  parameters["kappa"] = fixed->kappa();
  return fixed->gate().accepts == Tri::yes;
}

/// max norm(q) max norm(k) in log2 units.
double norm_bound(const HeadArithmetic& a) {
  const auto largest = [&](std::int64_t n, const auto& row) {
    double most = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const float* x = row(i);
      double square = 0;
      for (std::int64_t c = 0; c < a.channels(); ++c) square += static_cast<double>(x[c]) * x[c];
      most = std::max(most, square);
    }
    return std::sqrt(most);
  };
  return largest(a.queries(), [&](std::int64_t i) { return a.query(i); }) *
         largest(a.keys(), [&](std::int64_t j) { return a.key(j); }) * std::fabs(a.score_factor());
}

double dot(const HeadArithmetic& a, std::int64_t row, const float* key) {
  const float* q = a.query(row);
  double sum = 0;
  for (std::int64_t c = 0; c < a.channels(); ++c) sum += static_cast<double>(q[c]) * key[c];
  return sum * a.score_factor();
}

/// Scores of every eighth row in doubles, log2 units, independent of the simulation.
struct Scores {
  std::vector<std::size_t> places;  ///< which of the rows
  std::vector<double> maxima;
  double least = infinity, most = -infinity;
};
Scores scores_of(const HeadArithmetic& a, const std::vector<std::int64_t>& rows,
                 std::vector<double>* all = nullptr) {
  Scores s;
  for (std::size_t i = 0; i < rows.size(); i += 8) {
    double most = -infinity;
    for (std::int64_t j = 0; j < a.keys(); ++j) {
      const double z = dot(a, rows[i], a.key(j));
      most = std::max(most, z);
      s.least = std::min(s.least, z);
      if (all != nullptr) all->push_back(z * ln_2);
    }
    s.places.push_back(i);
    s.maxima.push_back(most);
    s.most = std::max(s.most, most);
  }
  return s;
}

/// How far a frozen stabilizer is above (or below: negative) the rows' maxima, log2 units.
struct Offsets {
  double least = infinity, most = -infinity;
  std::size_t most_at = 0;
};
Offsets offsets_of(const Simulated& frozen, const Simulated& online) {
  Offsets o;
  for (std::size_t i = 0; i < frozen.shift.size(); ++i) {
    const double x = static_cast<double>(frozen.shift[i]) - online.shift[i];
    if (x > o.most) o.most_at = i;
    o.most = std::max(o.most, x);
    o.least = std::min(o.least, x);
  }
  return o;
}

/// The block whose key misleads a row: what rep_b scores, and what the block's keys do.
std::string misleading_block(const HeadArithmetic& a, std::int64_t row, double row_maximum) {
  const std::int64_t size = a.key_block(), d = a.channels();
  double worst = -infinity;
  std::string text;
  std::vector<float> best(static_cast<std::size_t>(d));
  std::vector<std::int64_t> from(best.size());
  for (std::int64_t begin = 0; begin < a.keys(); begin += size) {
    std::fill(best.begin(), best.end(), 0.0F);
    double inside = -infinity;
    for (std::int64_t j = begin; j < std::min(begin + size, a.keys()); ++j) {
      const float* k = a.key(j);
      for (std::size_t c = 0; c < best.size(); ++c) {
        if (std::fabs(k[c]) > std::fabs(best[c])) {
          best[c] = k[c];
          from[c] = j;
        }
      }
      inside = std::max(inside, dot(a, row, k));
    }
    const double z = dot(a, row, best.data());
    if (z <= worst) continue;
    worst = z;
    text = fmt::format(
        "row {}: block {} scores {:.1f} with its block key, {:.1f} with its best key; the row's "
        "maximum is {:.1f}; {} channels from {} keys",
        row, begin / size, z, inside, row_maximum, d,
        std::set<std::int64_t>(from.begin(), from.end()).size());
  }
  return text;
}

// --- One workload

struct Problems {
  int count = 0;
  void say(const std::string& text) {
    ++count;
    fmt::print("PROBLEM {}\n", text);
  }
};

struct Samples {
  std::vector<std::int64_t> sampled, block;
};
/// `count` rows of four query blocks of 128 spread over the video (of all of it where there are
/// fewer blocks), and all rows of the second of them.
Samples rows_of(std::int64_t n, std::int64_t count) {
  Samples s;
  const std::int64_t blocks = n / 128, each = count / 4;
  if (blocks < 4) {
    const std::int64_t rows = std::min(count, n);
    for (std::int64_t r = 0; r < rows; ++r) s.sampled.push_back(r * n / rows);
    for (std::int64_t r = 0; r < std::min<std::int64_t>(n, 128); ++r) s.block.push_back(r);
    return s;
  }
  for (std::int64_t i = 0; i < 4; ++i) {
    const std::int64_t first = (2 * i + 1) * blocks / 8 * 128;
    for (std::int64_t r = 0; r < each; ++r) s.sampled.push_back(first + r * 128 / each);
    for (std::int64_t r = 0; i == 1 && r < 128; ++r) s.block.push_back(first + r);
  }
  return s;
}

KernelModel kernel_of(const std::string& name, const Variant& v) {
  KernelModel kernel = preset(name);
  kernel.centring.keys = v.keys == Operand::centred ? Centring::mean : Centring::none;
  kernel.tiles.keys = v.block;
  if (v.guarded) {
    kernel.normalise.guard = DenominatorGuard::maximum;
    kernel.normalise.guard_value = 1e-7;
  }
  return kernel;
}

class HeadRuns {
 public:
  HeadRuns(const Head& head, const Arguments& arguments, Problems& problems)
      : head_(head),
        arguments_(arguments),
        problems_(problems),
        rows_(rows_of(head.queries(), arguments.rows)) {}

  void run_all(std::vector<Variant> all, std::map<std::string, Outcome>& outcomes) {
    // one preparation at a time, since the operands of a long video are large
    const auto setup = [](const Variant& v) { return std::tuple(v.keys, v.guarded, v.block); };
    std::stable_sort(all.begin(), all.end(),
                     [&](const Variant& v, const Variant& w) { return setup(v) < setup(w); });
    const AttentionProblem problem(head_);
    Prepared p;
    const Variant* last = nullptr;
    for (const Variant& v : all) {
      if (last == nullptr || setup(*last) != setup(v)) {
        p.arithmetic.reset();
        p.kernel = kernel_of(arguments_.kernel, v);
        p.arithmetic.emplace(problem, p.kernel, SimulationOptions{});
      }
      if (last == nullptr || last->keys != v.keys) prepare(p, v.keys);
      last = &v;
      const Outcome o = outcome(p, v);
      outcomes[v.name] += o;
      check(v, o);
    }
  }

  void print() const {
    fmt::print("{:28} {:>9.1f} {:>9.1f} {:>8.1f} {:>8.1f} | {:>7} {:>4}", head_.id, bound_[0],
               bound_[1], least_, most_, gate_, recomputed_);
    for (const char* v : shown) {
      const auto o = offsets_.find(v);
      if (o != offsets_.end()) {
        fmt::print(" | {:>6.1f} {:>6.1f} {:>3}", o->second.least, o->second.most, failed_.at(v));
      }
    }
    fmt::print("\n");
    if (!misled_.empty()) fmt::print("  {}\n", misled_);
  }

 private:
  /// The online kernel, which others are held against and fall back on, and the reference.
  void prepare(const Prepared& p, Operand keys) {
    const Variant online{.stabilizer = online_name};
    const std::size_t k = keys == Operand::raw ? 0 : 1;
    bound_[k] = norm_bound(*p.arithmetic);
    exact_ = reference(head_, p, rows_.sampled);
    online_ = run(p, online, rows_.sampled);
    scores_ = scores_of(*p.arithmetic, rows_.sampled);
    if (keys == Operand::centred) return;
    exact_block_ = reference(head_, p, rows_.block);
    online_outcome_ = outcome_of(*online_, exact_, dv());
    least_ = scores_.least;
    most_ = *std::max_element(online_->shift.begin(), online_->shift.end());
  }

  Outcome outcome(const Prepared& p, const Variant& v) {
    Variant with = v;
    bool taken = true;
    if (v.stabilizer == "clis") {
      taken = certified(head_, p.kernel, with.parameters);
      gate_ = taken ? "takes" : "refuses";
    }
    Outcome o;
    if (taken) {
      const std::vector<std::int64_t>& rows = v.rows == Rows::block ? rows_.block : rows_.sampled;
      last_ = v.stabilizer == online_name ? *online_ : run(p, with, rows);
      taken = last_.gate;
      o = outcome_of(last_, v.rows == Rows::block ? exact_block_ : exact_, dv());
    }
    if (v.falls_back && !taken) {
      o = online_outcome_;
      o.heads_fallen_back = 1;
      return o;
    }
    if (v.stabilizer == "fdpp") recomputed_ = o.recomputed;
    if (v.expected != Expected::frozen) return o;
    const Offsets offsets = offsets_of(last_, *online_);
    offsets_[v.name] = offsets;
    failed_[v.name] = o.bad + o.zero;
    if (v.name == "vfa" && offsets.most > 126) {
      misled_ = misleading_block(*p.arithmetic, rows_.sampled[offsets.most_at],
                                 online_->shift[offsets.most_at]);
    }
    return o;
  }

  /// What must be: online, FA4, FD++ and CLiS valid; a row with a frozen mu fails where all its
  /// weights flush or one overflows, and does not where mu is near its maximum.
  void check(const Variant& v, const Outcome& o) {
    if (!arguments_.check || v.expected == Expected::nothing) return;
    if (v.expected == Expected::valid) {
      if (!o.valid()) problems_.say(fmt::format("{}: {} is not valid", head_.id, v.name));
      return;
    }
    for (std::size_t i = 0; i < scores_.places.size(); ++i) {
      const std::size_t row = scores_.places[i];
      const double above = last_.shift[row] - scores_.maxima[i];
      const bool fails = row_fails(last_, row, dv());
      // 0.1: the simulated score and exp2's 90 ulp; 20 and 40: sums and products with V
      const bool must_fail = above > 126.1 || above < -128.1;
      const bool must_not = above < 126 - 20 && above > -128 + 40;
      if ((must_fail && !fails) || (must_not && fails)) {
        problems_.say(fmt::format("{}: {}: row {}: mu is {:a} above the maximum, and the row {}",
                                  head_.id, v.name, rows_.sampled[row], above,
                                  fails ? "fails" : "does not fail"));
      }
    }
  }

  std::size_t dv() const { return static_cast<std::size_t>(head_.value_channels()); }

  const Head& head_;
  const Arguments& arguments_;
  Problems& problems_;
  Samples rows_;
  std::optional<Simulated> online_;
  Simulated last_;
  Outcome online_outcome_;
  Scores scores_;
  std::vector<float> exact_, exact_block_;
  double bound_[2] = {}, least_ = 0, most_ = 0;
  std::string gate_, misled_;
  std::int64_t recomputed_ = 0;
  std::map<std::string, Offsets> offsets_;
  std::map<std::string, std::int64_t> failed_;
};

/// phi, a, b as FlashDecoding++ chooses them, per model from statistics taken offline: phi is the
/// middle of the range of 99.99 % of all scores in a calibration run of the heads. The window is
/// the widest for which e^a is a normal number and sums with |v| < 8 of 183,600 keys are finite.
Window calibrated(const Arguments& arguments, std::size_t heads,
                  const std::function<Head(std::size_t)>& head_at) {
  std::vector<double> all;
  for (std::size_t i = 0; i < heads; ++i) {
    const Head head = head_at(i);
    const AttentionProblem problem(head);
    const KernelModel kernel = kernel_of(arguments.kernel, {});
    const HeadArithmetic a(problem, kernel, {});
    scores_of(a, rows_of(head.queries(), 32).sampled, &all);
  }
  const auto quantile = [&](double share) {
    const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(all.size() - 1));
    std::nth_element(all.begin(), all.begin() + at, all.end());
    return all[static_cast<std::size_t>(at)];
  };
  const double low = quantile(0.00005), high = quantile(0.99995);
  Window w;
  w.phi = std::round((low + high) / 2);
  w.a = -87;
  w.b = std::floor(128 * ln_2 - std::log(183600.0 * 8));
  fmt::print(
      "FD++: 99.99 % of {} calibration scores in [{:.1f}, {:.1f}]: phi = {}, a = {}, b = {} "
      "(natural units)\n\n",
      all.size(), low, high, w.phi, w.a, w.b);
  return w;
}

void print_outcomes(const std::vector<Variant>& all, const std::map<std::string, Outcome>& of) {
  fmt::print("{:22} {:>6} {:>8} {:>6} {:>10} {:>12} {:>12} {:>10}  {}\n", "stabilizer", "rows",
             "NaN/Inf", "zero", "recomputed", "heads failed", "heads online", "error", "valid");
  for (const Variant& v : all) {
    const Outcome& o = of.at(v.name);
    fmt::print("{:22} {:>6} {:>8} {:>6} {:>10} {:>12} {:>12} {:>10.3g}  {}\n", v.name, o.rows,
               o.bad, o.zero, o.recomputed, o.heads_failed, o.heads_fallen_back, o.error,
               o.valid() ? "yes" : "no");
  }
  fmt::print("\n");
}

class Run {
 public:
  explicit Run(const Arguments& arguments) : arguments_(arguments) {}

  int videos() {
    std::vector<HeadCharacter> characters;
    for (const HeadCharacter& c : head_characters()) {
      if (wanted(arguments_.heads, std::string(c.name))) characters.push_back(c);
    }
    variants_ = variants(calibrated(arguments_, characters.size(), [&](std::size_t i) {
      return make_video_head(workloads().front().shape, characters[i], arguments_.seed + 1000);
    }));
    for (const Workload& w : workloads()) {
      const VideoShape& shape = w.shape;
      if (!wanted(arguments_.lengths, shape.tokens())) continue;
      workload(fmt::format("{} tokens: {} frames of {} x {} ({})", shape.tokens(), shape.frames,
                           shape.height, shape.width, w.video),
               characters.size(), [&](std::size_t i) {
                 return make_video_head(shape, characters[i], arguments_.seed);
               });
    }
    return end();
  }

  int files() {
    std::vector<std::vector<Head>> all;
    std::vector<Head> every;
    for (const std::string& file : arguments_.files) {
      LoadOptions load;
      load.operand = bf16;
      load.cast = true;
      std::vector<Head> heads = load_heads(file, load);
      std::erase_if(heads, [](const Head& h) { return h.visibility.kind != MaskKind::none; });
      every.insert(every.end(), heads.begin(), heads.end());
      all.push_back(std::move(heads));
    }
    if (every.empty()) throw InputError("found no dense head in the files, expected one");
    variants_ =
        variants(calibrated(arguments_, every.size(), [&](std::size_t i) { return every[i]; }));
    for (std::size_t f = 0; f < all.size(); ++f) {
      workload(fmt::format("{} heads of {}", all[f].size(),
                           std::filesystem::path(arguments_.files[f]).filename().string()),
               all[f].size(), [&](std::size_t i) { return all[f][i]; });
    }
    return end();
  }

 private:
  template <class T>
  static bool wanted(const std::vector<T>& list, const T& x) {
    return list.empty() || std::find(list.begin(), list.end(), x) != list.end();
  }

  void workload(const std::string& title, std::size_t heads,
                const std::function<Head(std::size_t)>& head_at) {
    const auto start = std::chrono::steady_clock::now();
    fmt::print("{}\n\n{:28} {:>9} {:>9} {:>8} {:>8} | {:>7} {:>4}", title, "head", "bound",
               "centred", "least z", "most z", "clis", "fd++");
    for (const std::string_view v : shown) {
      fmt::print(" | {:17}", v.starts_with("vfa, ") ? v.substr(5) : v);
    }
    fmt::print("\n");
    std::map<std::string, Outcome> outcomes;
    for (std::size_t i = 0; i < heads; ++i) {
      const Head head = head_at(i);
      HeadRuns runs(head, arguments_, problems_);
      runs.run_all(variants_, outcomes);
      runs.print();
      std::fflush(stdout);
    }
    fmt::print("\n");
    print_outcomes(variants_, outcomes);
    std::fflush(stdout);
    ++done_;
    for (const auto& [name, outcome] : outcomes) valid_[name] += outcome.valid() ? 1 : 0;
    fmt::print(stderr, "{}: {:.0f} s\n", title,
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }

  int end() {
    fmt::print("workloads on which a stabilizer is valid, of {}\n", done_);
    for (const Variant& v : variants_) fmt::print("{:22} {:>3}\n", v.name, valid_[v.name]);
    if (problems_.count == 0) return 0;
    fmt::print("{} problems (seed {})\n", problems_.count, arguments_.seed);
    return 1;
  }

  const Arguments& arguments_;
  std::vector<Variant> variants_;
  Problems problems_;
  int done_ = 0;
  std::map<std::string, int> valid_;
};

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--check") {
      a.check = true;
      continue;
    }
    if (i + 1 == argc) throw InputError("found '" + option + "', expected an option and its value");
    const std::string value = argv[++i];
    if (option == "--lengths") {
      for (const std::string& part : parts_of(value)) a.lengths.push_back(std::stoll(part));
    } else if (option == "--heads") {
      a.heads = parts_of(value);
    } else if (option == "--files") {
      a.files = parts_of(value);
    } else if (option == "--rows") {
      a.rows = std::max<std::int64_t>(4, std::stoll(value));
    } else if (option == "--kernel") {
      a.kernel = value;
    } else if (option == "--seed") {
      a.seed = std::stoull(value);
    } else {
      throw InputError(
          "found '" + option +
          "', expected --lengths, --heads, --files, --rows, --kernel, --seed or --check");
    }
  }
  return a;
}

}  // namespace
}  // namespace headroom::bench

int main(int argc, char** argv) {
  try {
    using namespace headroom;
    const NearestRounding nearest;
    const bench::Arguments arguments = bench::parse(argc, argv);
    bench::Run run(arguments);
    return arguments.files.empty() ? run.videos() : run.files();
  } catch (const std::exception& e) {
    fmt::print(stderr, "validity: {}\n", e.what());
    return 2;
  }
}
