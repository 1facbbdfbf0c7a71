#include "reference/evaluate/ladder/ladder.h"

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>

#include "reference/evaluate/ladder/pair_rung.h"
#include "reference/evaluate/ladder/vector_rung.h"

namespace headroom {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
/// Converting a tile of K and V costs about as much as one to two rows of it.
constexpr std::int64_t rows_in_block = 512;
constexpr std::size_t most_undecided_listed = 1000;

class Stopwatch {
 public:
  explicit Stopwatch(double& total) : total_(total), start_(Clock::now()) {}
  ~Stopwatch() { total_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& total_;
  Clock::time_point start_;
};

/// ln 2, rounded down and up.
constexpr double ln_2_down = 0x1.62e42fefa39efp-1, ln_2_up = 0x1.62e42fefa39f0p-1;
double times_ln_2_down(double x) {
  return std::nextafter(x * (x >= 0 ? ln_2_down : ln_2_up), -infinity);
}
double times_ln_2_up(double x) {
  return std::nextafter(x * (x >= 0 ? ln_2_up : ln_2_down), infinity);
}

WideInterval in_base(LseBase base, WideInterval lse2) {
  if (base == LseBase::two) return lse2;
  WideInterval ln_2(lse2.precision());
  mpfi_const_log2(ln_2.raw());
  return lse2 * ln_2;
}

std::optional<std::uint64_t> decide(const Target& target, const WideInterval& x) {
  return common_code(target, &x.raw()->left, &x.raw()->right);
}

void put(std::vector<std::byte>& words, std::size_t index, const Format& format,
         std::uint64_t code) {
  const auto bytes = static_cast<std::size_t>(format.storage_bytes());
  std::memcpy(&words[index * bytes], &code, bytes);  // little-endian host, checked by meson
}
std::uint64_t get(const std::vector<std::byte>& words, std::size_t index, const Format& format) {
  const auto bytes = static_cast<std::size_t>(format.storage_bytes());
  std::uint64_t code = 0;
  std::memcpy(&code, &words[index * bytes], bytes);
  return code;
}

/// Rows in blocks over threads; `work(first, last)` under NearestRounding, in a task of its own.
template <class Work>
void over_blocks(std::size_t rows, std::int64_t panel, const Work& work) {
  const auto threads =
      static_cast<std::int64_t>(std::max(1, tbb::this_task_arena::max_concurrency()));
  const auto n = static_cast<std::int64_t>(rows);
  const std::int64_t share = (n + threads - 1) / threads;
  const std::int64_t block =
      std::clamp((share + panel - 1) / panel * panel, panel, std::max(panel, rows_in_block));
  const std::int64_t blocks = (n + block - 1) / block;
  tbb::parallel_for(std::int64_t{0}, blocks, [&](std::int64_t b) {
    const NearestRounding nearest;
    work(static_cast<std::size_t>(b * block),
         static_cast<std::size_t>(std::min(n, (b + 1) * block)));
  });
}

RowEnclosures nothing_known(const VectorRung& rung, std::span<const std::int64_t> rows,
                            std::int64_t dv) {
  RowEnclosures e;
  for (const std::int64_t row : rows) e.kind.push_back(rung.scan(row));
  e.lo.assign(rows.size() * static_cast<std::size_t>(dv), -infinity);
  e.hi.assign(rows.size() * static_cast<std::size_t>(dv), infinity);
  e.lse2_lo.assign(rows.size(), -infinity);
  e.lse2_hi.assign(rows.size(), infinity);
  return e;
}

/// One row, from the first rung's enclosures to codes.
class RowDecision {
 public:
  RowDecision(const AttentionProblem& problem, const VectorRung& rung, const LadderOptions& options,
              std::int64_t row, PairWorkspace& work, RungCounts& counts)
      : problem_(problem),
        rung_(rung),
        options_(options),
        row_(row),
        work_(work),
        counts_(counts) {}

  /// Writes dv codes and the LSE's; appends what stays undecided.
  void decide_row(RowKind kind, const double* lo, const double* hi, double lse2_lo, double lse2_hi,
                  std::uint64_t* codes, std::uint64_t* lse,
                  std::vector<UndecidedElement>& undecided) {
    const std::int64_t dv = problem_.value_channels();
    const auto n = static_cast<std::size_t>(dv);
    if (kind == RowKind::undefined) {
      std::fill_n(codes, n, options_.output.nan());
      *lse = options_.lse.nan();
      return count(Rung::undefined, dv, 1);
    }
    if (kind == RowKind::empty) {
      std::fill_n(codes, n, 0);
      *lse = encode(options_.lse.format, -infinity, options_.lse.policy());
      if (problem_.sink) *lse = sink_lse();
      return count(Rung::defined, dv, 1);
    }
    std::vector<std::uint8_t> decided(n);
    std::vector<std::int64_t> open;
    if (common_codes(options_.output, lo, hi, dv, codes, decided.data()) > 0) {
      for (std::int64_t c = 0; c < dv; ++c) {
        if (decided[static_cast<std::size_t>(c)] == 0) open.push_back(c);
      }
    }
    counts_.output[static_cast<std::size_t>(Rung::vector)] +=
        dv - static_cast<std::int64_t>(open.size());
    const bool base2 = options_.lse_base == LseBase::two;
    std::optional<std::uint64_t> lse_code;
    if (lse2_lo > -infinity && lse2_hi < infinity) {
      lse_code = common_code(options_.lse, base2 ? lse2_lo : times_ln_2_down(lse2_lo),
                             base2 ? lse2_hi : times_ln_2_up(lse2_hi));
    }
    if (lse_code) ++counts_.lse[static_cast<std::size_t>(Rung::vector)];

    if (options_.use_pair_rung && (!open.empty() || !lse_code)) {
      const Stopwatch watch(counts_.seconds[1]);
      pair_rung(open, codes, lse_code);
    }
    if (!open.empty() || !lse_code) {
      const Stopwatch watch(counts_.seconds[2]);
      wide_rung(open, codes, lse_code, undecided);
    }
    *lse = *lse_code;
  }

 private:
  void count(Rung rung, std::int64_t outputs, std::int64_t lses) {
    counts_.output[static_cast<std::size_t>(rung)] += outputs;
    counts_.lse[static_cast<std::size_t>(rung)] += lses;
  }

  std::uint64_t sink_lse() const {
    if (options_.lse_base == LseBase::natural) {
      return encode(options_.lse.format, *problem_.sink, options_.lse.policy());
    }
    WideRow wide(problem_, row_);
    return wide.lse(LseBase::two, options_.lse).code;
  }

  void pair_rung(std::vector<std::int64_t>& open, std::uint64_t* codes,
                 std::optional<std::uint64_t>& lse_code) {
    const PairRow pairs(problem_, rung_, row_, work_);
    counts_.cascaded_keys += pairs.cascaded_keys();
    if (!pairs.usable()) return;
    if (!lse_code) {
      lse_code = decide(options_.lse, in_base(options_.lse_base, pairs.lse2()));
      if (lse_code) count(Rung::double_double, 0, 1);
    }
    if (open.empty()) return;
    const std::vector<WideInterval> outputs = pairs.outputs(open, work_);
    std::vector<std::int64_t> still_open;
    for (std::size_t i = 0; i < open.size(); ++i) {
      const std::int64_t c = open[i];
      if (const auto code = decide(options_.output, outputs[i])) {
        codes[c] = *code;
        count(Rung::double_double, 1, 0);
      } else if (const auto value = pairs.common_value(c)) {
        codes[c] = rounded(options_.output, Dyadic::of(*value));
        count(Rung::tie, 1, 0);
      } else {
        still_open.push_back(c);
      }
    }
    open = still_open;
  }

  void wide_rung(const std::vector<std::int64_t>& open, std::uint64_t* codes,
                 std::optional<std::uint64_t>& lse_code, std::vector<UndecidedElement>& undecided) {
    WideRow wide(problem_, row_);
    for (const std::int64_t c : open) {
      const Settled s = wide.output(c, options_.output);
      codes[c] = s.code;
      count(s.rung, 1, 0);
      if (s.rung == Rung::undecided) undecided.push_back({row_, c});
    }
    if (!lse_code) {
      const Settled s = wide.lse(options_.lse_base, options_.lse);
      lse_code = s.code;
      count(s.rung, 0, 1);
      if (s.rung == Rung::undecided) undecided.push_back({row_, -1});
    }
    counts_.widest_bits = std::max<std::int64_t>(counts_.widest_bits, wide.precision_used());
  }

  const AttentionProblem& problem_;
  const VectorRung& rung_;
  const LadderOptions& options_;
  std::int64_t row_;
  PairWorkspace& work_;
  RungCounts& counts_;
};

}  // namespace

RungCounts& RungCounts::operator+=(const RungCounts& other) {
  for (std::size_t i = 0; i < rungs; ++i) {
    output[i] += other.output[i];
    lse[i] += other.lse[i];
  }
  for (std::size_t i = 0; i < 3; ++i) seconds[i] += other.seconds[i];
  cascaded_keys += other.cascaded_keys;
  widest_bits = std::max(widest_bits, other.widest_bits);
  return *this;
}

const char* name(Rung rung) {
  switch (rung) {
    case Rung::vector:
      return "vector";
    case Rung::double_double:
      return "double-double";
    case Rung::wide:
      return "wide";
    case Rung::tie:
      return "tie";
    case Rung::defined:
      return "defined";
    case Rung::undefined:
      return "undefined";
    case Rung::undecided:
      return "undecided";
  }
  return "?";
}

std::uint64_t RoundedRows::output_code(std::size_t row, std::int64_t channel) const {
  return get(output, row * static_cast<std::size_t>(channels) + static_cast<std::size_t>(channel),
             output_format);
}
std::uint64_t RoundedRows::lse_code(std::size_t row) const { return get(lse, row, lse_format); }

std::vector<std::int64_t> all_rows(const AttentionProblem& problem) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(problem.queries()));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(i);
  return rows;
}

RoundedRows correctly_rounded(const AttentionProblem& problem, std::span<const std::int64_t> rows,
                              const LadderOptions& options) {
  const NearestRounding nearest;
  problem.validate();
  RoundedRows result;
  result.rows.assign(rows.begin(), rows.end());
  result.output_format = options.output.format;
  result.lse_format = options.lse.format;
  result.channels = problem.value_channels();
  const auto dv = static_cast<std::size_t>(result.channels);
  result.output.resize(rows.size() * dv *
                       static_cast<std::size_t>(options.output.format.storage_bytes()));
  result.lse.resize(rows.size() * static_cast<std::size_t>(options.lse.format.storage_bytes()));
  double preparation = 0;
  std::optional<VectorRung> rung;
  {
    const Stopwatch watch(preparation);
    rung.emplace(problem, options.instruction_set);
  }
  result.counts.seconds[0] += preparation;
  std::mutex mutex;
  over_blocks(rows.size(), rung->panel_rows(), [&](std::size_t first, std::size_t last) {
    RungCounts counts;
    std::vector<UndecidedElement> undecided;
    std::vector<std::uint64_t> codes(dv);
    PairWorkspace work;
    const auto block = rows.subspan(first, last - first);
    const RowEnclosures e = [&] {
      const Stopwatch watch(counts.seconds[0]);
      return options.use_vector_rung ? rung->enclose(block)
                                     : nothing_known(*rung, block, result.channels);
    }();
    for (std::size_t i = 0; i < block.size(); ++i) {
      std::uint64_t lse = 0;
      RowDecision row(problem, *rung, options, block[i], work, counts);
      row.decide_row(e.kind[i], &e.lo[i * dv], &e.hi[i * dv], e.lse2_lo[i], e.lse2_hi[i],
                     codes.data(), &lse, undecided);
      for (std::size_t c = 0; c < dv; ++c) {
        put(result.output, (first + i) * dv + c, options.output.format, codes[c]);
      }
      put(result.lse, first + i, options.lse.format, lse);
    }
    {
      const std::lock_guard lock(mutex);
      result.counts += counts;
      result.undecided.insert(result.undecided.end(), undecided.begin(), undecided.end());
    }
    if (options.rows_done) options.rows_done(static_cast<std::int64_t>(block.size()));
  });
  std::sort(result.undecided.begin(), result.undecided.end(), [](const auto& a, const auto& b) {
    return a.row != b.row ? a.row < b.row : a.channel < b.channel;
  });
  if (result.undecided.size() > most_undecided_listed) {
    result.undecided.resize(most_undecided_listed);
  }
  return result;
}

EnclosedRows enclosures(const AttentionProblem& problem, std::span<const std::int64_t> rows,
                        const LadderOptions& options) {
  const NearestRounding nearest;
  problem.validate();
  EnclosedRows result;
  result.rows.assign(rows.begin(), rows.end());
  result.channels = problem.value_channels();
  const auto dv = static_cast<std::size_t>(result.channels);
  result.output_lo.assign(rows.size() * dv, -infinity);
  result.output_hi.assign(rows.size() * dv, infinity);
  result.lse_lo.assign(rows.size(), -infinity);
  result.lse_hi.assign(rows.size(), infinity);
  const VectorRung rung(problem, options.instruction_set);
  const bool base2 = options.lse_base == LseBase::two;
  std::mutex mutex;
  over_blocks(rows.size(), rung.panel_rows(), [&](std::size_t first, std::size_t last) {
    RungCounts counts;
    const auto block = rows.subspan(first, last - first);
    const RowEnclosures e =
        options.use_vector_rung ? rung.enclose(block) : nothing_known(rung, block, result.channels);
    PairWorkspace work;
    for (std::size_t i = 0; i < block.size(); ++i) {
      double* lo = &result.output_lo[(first + i) * dv];
      double* hi = &result.output_hi[(first + i) * dv];
      double& lse_lo = result.lse_lo[first + i];
      double& lse_hi = result.lse_hi[first + i];
      Rung by = Rung::vector;
      const auto take = [&](const std::vector<WideInterval>& outputs, const WideInterval& lse) {
        for (std::size_t c = 0; c < dv; ++c) {
          lo[c] = mpfr_get_d(&outputs[c].raw()->left, MPFR_RNDD);
          hi[c] = mpfr_get_d(&outputs[c].raw()->right, MPFR_RNDU);
        }
        lse_lo = mpfr_get_d(&lse.raw()->left, MPFR_RNDD);
        lse_hi = mpfr_get_d(&lse.raw()->right, MPFR_RNDU);
      };
      switch (e.kind[i]) {
        case RowKind::enclosed:
          std::copy_n(&e.lo[i * dv], dv, lo);
          std::copy_n(&e.hi[i * dv], dv, hi);
          lse_lo = base2 ? e.lse2_lo[i] : times_ln_2_down(e.lse2_lo[i]);
          lse_hi = base2 ? e.lse2_hi[i] : times_ln_2_up(e.lse2_hi[i]);
          break;
        case RowKind::undefined:
          by = Rung::undefined;
          break;
        case RowKind::empty: {
          by = Rung::defined;
          std::fill_n(lo, dv, 0.0);
          std::fill_n(hi, dv, 0.0);
          WideRow wide(problem, block[i]);
          const WideInterval lse = wide.enclose_lse(options.lse_base, first_precision);
          lse_lo = mpfr_get_d(&lse.raw()->left, MPFR_RNDD);
          lse_hi = mpfr_get_d(&lse.raw()->right, MPFR_RNDU);
          break;
        }
        case RowKind::unknown: {
          std::vector<WideInterval> outputs;
          std::vector<std::int64_t> channels(dv);
          for (std::size_t c = 0; c < dv; ++c) channels[c] = static_cast<std::int64_t>(c);
          const PairRow pairs(problem, rung, block[i], work);
          if (options.use_pair_rung && pairs.usable()) {
            by = Rung::double_double;
            take(pairs.outputs(channels, work), in_base(options.lse_base, pairs.lse2()));
            break;
          }
          by = Rung::wide;
          WideRow wide(problem, block[i]);
          // scores far apart cancel in the exponents: more bits until the width is small
          const mpfr_prec_t bits = 2 * first_precision;
          for (const std::int64_t c : channels) outputs.push_back(wide.enclose_output(c, bits));
          take(outputs, wide.enclose_lse(options.lse_base, bits));
          break;
        }
      }
      counts.output[static_cast<std::size_t>(by)] += result.channels;
      ++counts.lse[static_cast<std::size_t>(by)];
    }
    {
      const std::lock_guard lock(mutex);
      result.counts += counts;
    }
    if (options.rows_done) options.rows_done(static_cast<std::int64_t>(block.size()));
  });
  return result;
}

}  // namespace headroom
