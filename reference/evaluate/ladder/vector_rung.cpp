// Error account of the first rung. u = 2^-53, gamma_n = n u / (1 - n u) (Higham, Accuracy and
// Stability of Numerical Algorithms, 2nd ed., lemma 3.1). For one row and one channel:
//
//  * Scores. Products of operands are exact in fp64. If |q| |k| <= 2^53 g h, with g and h grids
//    (powers of two) of the elements of q and k, every partial sum in any order is a multiple of
//    g h not above 2^53 g h, so the computed score is exact. Otherwise it is off by at most
//    gamma_d |q| |k| (Higham, 3.5, with Cauchy-Schwarz). |q| / g and |k| / h are rounded up to
//    quarter bits (the "reach"), so the keys that are not exact for a row are a suffix by reach.
//    Rows for which many keys fail, and every row of wide operands, take split products
//    (error-free splitting; Ozaki, Ogita, Oishi, Rump, Numer. Algorithms 59 (2012) 95-118):
//    q = q' + q", k = k' + k" with q', k' on grids of 2^-25 of the norms; <q', k'> is exact, and
//    <q, k"> + <q", k'>, computed in one chain of 2d terms, is off by at most
//    gamma_2d (|q| |k"| + |q"| |k'|) <= gamma_2d sqrt(d) 2^-24 |q| |k|.
//  * Exponents t, |t| <= T < 2^19: off by 2^-100 T plus |c| times the score's error
//  (kernel_loops.h).
//    Softcap: E = 2^-w has relative error below 1.25 u and w misses at most 2^-53 w; tanh =
//    (1 - E) / (1 + E) moves by at most (0.63 + 0.45) u from these, and by 3 u from its three
//    roundings; the clamp of w adds 2^-198. So t is off by at most 5 u cap log2(e), and by the
//    score's error at slope at most 1.
//  * Weights p_j = P_j (1 + e_j), P_j = 2^(t_j - m): |e_j| <= eps = exp2_relative_error_bound plus
//    ln 2 times the exponent's error (times 1 + 2^-9, that being below 2^-10); keys with inexact
//    scores have delta more. Below 2^-1022: 2^-1074 absolute.
//    Rows with |t| <= 400, unless split, capped or biased, take m = 0 and the short exp2 with its
//    own relative error, the exponent's error being in it but for c's 2^-104 T. Nothing
//    underflows there, nor is anything rescaled; l >= 2^-400 if any key is visible.
//  * l and outputs are sums of sums of sums, each of which starts at 0, so that its first addition
//    is exact: a sum of n terms rounds a term n - 1 times at most. l: 16 weights, 3 such in a
//    tile, 8 tiles, groups; n_l = 15 + 2 + 7 + (groups - 1). Outputs: 24 products (24 roundings,
//    the product's own included, fused or not), 16 such in 8 tiles, groups; n_o = 24 + 15 +
//    (groups - 1). gamma_n bounds the factor of each term (Higham, lemma 3.1).
//    With S = sum p_j, A = sum p_j |v_j|, F and F_v the same over inexact keys:
//    |l^ - l| <= gamma S + (eps S + delta F) (1 + 2 (eps + delta)),
//    |o^ - o| <= gamma A + (eps A + delta F_v) (1 + 2 (eps + delta)), and
//    A <= min(S vmax, |p| |v|), F <= min(S, |p| sqrt(count)), F_v <= min(S vmax, |p| |v_F|).
//  * Shifts m are integers, and rescaling by 2^(m - m') is exact but for underflow. When the
//    greatest exponent exceeds m by 400 the row is rescaled, so nothing overflows; at the end
//    m <= greatest + 1, so l >= 2^-1.1 and everything that underflowed, below 2^-900 in all, is
//    covered by the absolute term.

#include "reference/evaluate/ladder/vector_rung.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>

#include "reference/evaluate/ladder/decision.h"
#include "reference/evaluate/vector/exp2_constants.h"
#include "reference/evaluate/vector/log2.h"

namespace headroom {

namespace {

constexpr double u = 0x1p-53;
constexpr double infinity = std::numeric_limits<double>::infinity();
/// |t| admitted on this rung, without and with the bias's part, natural units: together below
/// 2^18.8, so that tails, below 2^-51 |t|, are within exp2_tail_limit.
constexpr double largest_exponent = 0x1p18;
constexpr double largest_bias = 0x1p17;
/// Exponents may exceed the shift by this much before a row is rescaled.
constexpr double headroom_above_shift = 400;
/// Reaches are quarter bits, clamped to [0, reach_limit].
constexpr int reach_limit = 4 * 53 + 1;
constexpr int tiles_in_group = 8;
/// Everything that underflow can take from one key, relative to l >= 2^-1.1, with room.
constexpr double underflow_per_key = 0x1p-900;
/// Rows of which more than one in this many keys have inexact scores take split products.
constexpr std::int64_t split_share = 16;
/// What inflates a nonnegative result of up to about 1000 roundings to an upper bound.
constexpr double inflation = 1 + 0x1p-42;

double gamma(double n) { return n * u / (1 - n * u) * (1 + 0x1p-50); }

/// x = m 2^e, 1/2 <= m < 1, of a normal x > 0.
struct Binary {
  double m;
  int e;
  explicit Binary(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    e = static_cast<int>(bits >> 52) - 1022;
    m = std::bit_cast<double>((bits & 0xfffffffffffffU) | (std::uint64_t{1022} << 52));
  }
};

/// An upper bound of 4 log2(sqrt(square) / 2^grid) = 2 log2(square) - 4 grid as an integer in
/// [0, reach_limit]. square is 0 or normal.
int reach_of(double square, int grid) {
  if (square == 0) return 0;
  const Binary x(square);
  const int half = x.m <= 0x1.6a09e667f3bccp-1 ? -1 : 0;  // 2^(-1/2), rounded down
  return std::clamp(2 * x.e + half - 4 * grid, 0, reach_limit);
}

/// Exponent of a grid that holds every number of `format` of at least `least` in magnitude, a
/// normal double.
int grid_exponent(double least, const Format& format) {
  if (!(least < infinity)) return 0;  // a zero row
  return std::max(Binary(least).e - 1 - (format.precision - 1), format.least_exponent());
}

/// Upper bound of a sum of `n` squares from the computed sum, and of a root.
double square_bound(double squares, double n) { return squares * (1 + (n + 8) * 0x1p-51); }
double root_bound(double square) { return std::sqrt(square) * (1 + 0x1p-50); }
/// Upper bound of the 2-norm from a computed sum of `n` squares.
double norm_bound(double squares, double n) { return root_bound(square_bound(squares, n)); }

struct AlignedFree {
  void operator()(double* p) const { std::free(p); }
};
/// Zeroed doubles on a cache line.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t n) {
    const std::size_t bytes = (static_cast<std::size_t>(n) * sizeof(double) + 4095) / 4096 * 4096;
    data_.reset(static_cast<double*>(std::aligned_alloc(64, std::max<std::size_t>(bytes, 4096))));
    if (!data_) throw std::bad_alloc();
    std::memset(data_.get(), 0, bytes);
  }
  double* get() const { return data_.get(); }
  explicit operator bool() const { return static_cast<bool>(data_); }

 private:
  std::unique_ptr<double, AlignedFree> data_;
};

struct Pair {
  double hi, lo;
};
Pair pair_of(const WideInterval& x) {
  mpfr_t m;
  mpfr_init2(m, 400);
  mpfi_mid(m, x.raw());
  const double hi = mpfr_get_d(m, MPFR_RNDN);
  mpfr_sub_d(m, m, hi, MPFR_RNDN);
  const double lo = mpfr_get_d(m, MPFR_RNDN);
  mpfr_clear(m);
  return {hi, lo};
}

}  // namespace

ScaleConstants::ScaleConstants(const AttentionProblem& problem) {
  constexpr mpfr_prec_t bits = 300;
  const WideInterval c = problem.scale.log2_factor(bits);
  const Pair pair = pair_of(c);
  c_hi = pair.hi;
  c_lo = pair.lo;
  natural_magnitude = std::fabs(c_hi) * 0x1.62e42fefa39fp-1 * (1 + 0x1p-50);
  cap_hi = cap_lo = w_hi = w_lo = 0;
  if (problem.softcap) {
    WideInterval ln_2(bits), cap(bits);
    mpfi_const_log2(ln_2.raw());
    mpq_t q;
    mpq_init(q);
    mpq_set_str(q, problem.softcap->str().c_str(), 10);
    mpfi_set_q(cap.raw(), q);
    mpq_clear(q);
    const Pair cap_pair = pair_of(cap / ln_2);
    const Pair w_pair = pair_of(WideInterval(bits, 2.0) * c / cap);
    cap_hi = cap_pair.hi, cap_lo = cap_pair.lo;
    w_hi = w_pair.hi, w_lo = w_pair.lo;
  }
}

VectorRung::VectorRung(const AttentionProblem& problem, InstructionSet set)
    : problem_(&problem),
      kernels_(&ladder_kernels(set)),
      constants_(problem),
      d_(problem.channels()),
      dv_(problem.value_channels()),
      dv4_((problem.value_channels() + channel_group - 1) / channel_group * channel_group) {
  keys_ = {problem.keys(), 0};
  for (std::int64_t i = 0; i < problem.queries(); ++i) {
    const KeyRange r = problem.range(i);
    if (r.count() == 0) continue;
    keys_.begin = std::min(keys_.begin, r.begin);
    keys_.end = std::max(keys_.end, r.end);
  }
  keys_.begin = std::min(keys_.begin, keys_.end);
  if (problem.sink) {
    WideInterval t(300, *problem.sink), ln_2(300);
    mpfi_const_log2(ln_2.raw());
    const Pair pair = pair_of(t / ln_2);
    sink_hi_ = pair.hi;
    sink_lo_ = pair.lo;
  }
  // operands of more than 11 bits are hardly ever on a common grid
  split_all_ = problem.q.format().precision + problem.k.format().precision > 24;
  measure_keys(false);
}

void VectorRung::load(const Matrix& m, std::int64_t row, double* out) const {
  if (const auto words = words_of(m.format())) {
    kernels_->convert(*words, m.row_bytes(row), m.columns(), out);
  } else {
    m.load_row(row, out);
  }
}

VectorRung::Reach VectorRung::reach(const Format& format, const double* x) const {
  double squares, least, most;
  kernels_->measure(x, d_, &squares, &least, &most);
  return reach(format, squares, least);
}

double VectorRung::Reach::norm() const { return root_bound(square); }

VectorRung::Reach VectorRung::reach(const Format& format, double squares, double least) const {
  Reach r;
  r.finite = std::isfinite(squares);
  if (!r.finite) return r;
  r.square = square_bound(squares, static_cast<double>(d_));
  r.quarters = reach_of(r.square, grid_exponent(least, format));
  return r;
}

void VectorRung::measure_keys(bool check_values) {
  const auto columns = static_cast<std::size_t>(dv4_);
  constexpr std::size_t reaches = reach_limit + 1;
  reach_count_.assign(reaches + 1, 0);
  reach_norm_.assign(reaches + 1, 0);
  // sums of squares of the columns of V, one row for each reach that occurs
  std::vector<std::ptrdiff_t> row_of(reaches, -1);
  std::vector<double> squares;
  vmax_.assign(columns, 0.0);
  std::vector<double> key(static_cast<std::size_t>(d_)), value(columns, 0.0);
  const Matrix &k = problem_->k, &v = problem_->v;
  const Format& format = k.format();
  const auto k_words = words_of(format), v_words = words_of(v.format());
  key_reach_.assign(static_cast<std::size_t>(problem_->keys()), 0);
  for (std::int64_t j = keys_.begin; j < keys_.end; ++j) {
    Reach r;
    if (k_words) {
      double key_squares, least;
      kernels_->measure_words(*k_words, k.row_bytes(j), d_, &key_squares, &least);
      r = this->reach(format, key_squares, least);
    } else {
      load(k, j, key.data());
      r = this->reach(format, key.data());
    }
    bool finite = r.finite;
    if (check_values) {
      load(v, j, value.data());
      double value_squares, unused;
      kernels_->measure(value.data(), dv_, &value_squares, &unused, &unused);
      finite = finite && std::isfinite(value_squares);
    }
    if (!finite) {
      if (bad_.empty()) bad_.assign(static_cast<std::size_t>(problem_->keys()), 0);
      bad_[static_cast<std::size_t>(j)] = 1;
      continue;
    }
    const auto reach = static_cast<std::size_t>(r.quarters);
    ++reach_count_[reach];
    reach_norm_[reach] = std::max(reach_norm_[reach], r.square);  // its root is taken below
    key_reach_[static_cast<std::size_t>(j)] = static_cast<std::uint8_t>(reach);
    if (row_of[reach] < 0) {
      row_of[reach] = static_cast<std::ptrdiff_t>(squares.size());
      squares.resize(squares.size() + columns, 0.0);
    }
    double* row = &squares[static_cast<std::size_t>(row_of[reach])];
    if (v_words) {
      kernels_->absorb_words(*v_words, v.row_bytes(j), dv_, vmax_.data(), row);
    } else {
      load(v, j, value.data());
      kernels_->absorb(value.data(), dv_, vmax_.data(), row);
    }
  }
  // a NaN or an infinity in V stays in the sums; only then is each value row looked at
  const bool all_finite =
      std::all_of(squares.begin(), squares.end(), [](double x) { return std::isfinite(x); });
  if (!all_finite && !check_values) {
    bad_.clear();
    return measure_keys(true);
  }
  // suffixes; every value bound is inflated over the whole number of additions
  const auto n = static_cast<double>(keys_.count());
  std::vector<double> sums(columns, 0.0);
  reach_v_norm_.assign(columns, 0.0);
  reach_row_.assign(reaches + 1, 0);
  for (std::size_t a = reaches; a-- > 0;) {
    reach_count_[a] += reach_count_[a + 1];
    reach_norm_[a] = std::max(root_bound(reach_norm_[a]), reach_norm_[a + 1]);
    reach_row_[a] = reach_row_[a + 1];
    if (row_of[a] < 0) continue;
    reach_row_[a] = reach_v_norm_.size();
    for (std::size_t c = 0; c < columns; ++c) {
      sums[c] += squares[static_cast<std::size_t>(row_of[a]) + c];
      reach_v_norm_.push_back(norm_bound(sums[c], n + 300));
    }
  }
  key_norm_ = reach_norm_[0];
  v_norm_.assign(reach_v_norm_.end() - static_cast<std::ptrdiff_t>(columns), reach_v_norm_.end());
}

/// What is known of a query row before any score.
struct VectorRung::RowFacts {
  RowKind kind = RowKind::enclosed;
  double norm = 0;
  double exponent = 0;  ///< bound of |t|, without the bias's part
  bool split = false;
  double score_error = 0;         ///< of every key (split) or of the inexact ones
  std::int64_t inexact_keys = 0;  ///< keys with inexact scores, not split
  std::size_t inexact_from = 0;   ///< their reaches start here
};

VectorRung::RowFacts VectorRung::facts_of(std::int64_t row, double* query) const {
  RowFacts f;
  const Matrix& q = problem_->q;
  Reach reach;
  if (const auto words = words_of(q.format())) {
    double squares, least;
    kernels_->measure_words(*words, q.row_bytes(row), d_, &squares, &least);
    reach = this->reach(q.format(), squares, least);
  } else {
    load(q, row, query);
    reach = this->reach(q.format(), query);
  }
  if (!reach.finite) {
    f.kind = RowKind::undefined;
    return f;
  }
  const auto d = static_cast<double>(d_);
  f.norm = reach.norm();
  const int exact_to = 4 * 53 - reach.quarters;  // reaches up to this are exact
  f.inexact_from = static_cast<std::size_t>(std::clamp(exact_to + 1, 0, reach_limit + 1));
  f.inexact_keys = reach_count_[f.inexact_from];
  f.split = f.inexact_keys > 0 && (split_all_ || f.inexact_keys * split_share > keys_.count());
  if (f.split) {
    f.inexact_keys = 0;
    f.score_error = gamma(2 * d) * std::sqrt(d) * 0x1p-24 * f.norm * key_norm_ * inflation;
  } else if (f.inexact_keys > 0) {
    f.score_error = gamma(d) * f.norm * reach_norm_[f.inexact_from] * inflation;
  }
  f.exponent = problem_->softcap ? constants_.cap_hi
                                 : std::fabs(constants_.c_hi) * f.norm * key_norm_ * inflation;
  const bool small_error = constants_.natural_magnitude * f.score_error < 0x1p-10;
  if (!(f.exponent <= largest_exponent) || !small_error ||
      !(std::fabs(sink_hi_) <= largest_exponent)) {
    f.kind = RowKind::unknown;
  }
  return f;
}

RowKind VectorRung::scan(std::int64_t row) const {
  RowKind kind = RowKind::empty;
  std::vector<double> query(static_cast<std::size_t>(d_));
  load(problem_->q, row, query.data());
  if (!reach(problem_->q.format(), query.data()).finite) return RowKind::undefined;
  const KeyRange range = problem_->range(row);
  for (std::int64_t j = range.begin; j < range.end; ++j) {
    if (!problem_->visible(row, j)) continue;
    if (bad_key(j) || !std::isfinite(problem_->bias_at(row, j))) return RowKind::undefined;
    kind = RowKind::unknown;
  }
  return kind;
}

/// One call's rows: panels of rows with their running sums.
struct VectorRung::Block {
  struct Panel {
    std::vector<std::int64_t> rows;   ///< problem rows
    std::vector<std::size_t> places;  ///< their places in the result
    bool split = false;
    bool brief = true;        ///< exp2_short serves every row
    Buffer query, query_low;  ///< [d][R]; split: q' and (q, q") as [2 d][R]
    Buffer part, total;       ///< [dv4][R]
    PanelState state{};
    double group_sum[most_panel_rows] = {};
    double most_bias[most_panel_rows] = {};
    bool shift_set[most_panel_rows] = {};
    bool all_set = false;
    bool flushed = false;            ///< the part is in the total already
    bool bad[most_panel_rows] = {};  ///< saw an infinite or NaN bias
    KeyRange any, all;               ///< keys that some row, every row, can see by range
    std::vector<RowFacts> facts;
  };
  std::vector<Panel> panels;
};

RowEnclosures VectorRung::enclose(std::span<const std::int64_t> rows) const {
  const AttentionProblem& p = *problem_;
  const auto row_count = static_cast<std::int64_t>(rows.size());
  const LadderKernels& small = small_ladder_kernels(kernels_->set, row_count);
  const bool few = row_count <= small.panel_rows ||
                   (kernels_->set == InstructionSet::avx512 && row_count <= most_single_rows);
  const LadderKernels& kernel = few ? small : *kernels_;
  const std::int64_t height = kernel.panel_rows;
  const std::size_t n_rows = rows.size();
  RowEnclosures out;
  out.kind.assign(n_rows, RowKind::enclosed);
  out.lo.resize(n_rows * static_cast<std::size_t>(dv_));  // filled at the end
  out.hi.resize(n_rows * static_cast<std::size_t>(dv_));
  out.lse2_lo.assign(n_rows, -infinity);
  out.lse2_hi.assign(n_rows, infinity);

  // --- rows into panels, split ones apart
  std::vector<RowFacts> facts(n_rows);
  std::vector<double> query(static_cast<std::size_t>(d_));
  std::vector<std::size_t> plain, split;
  for (std::size_t i = 0; i < n_rows; ++i) {
    facts[i] = facts_of(rows[i], query.data());
    out.kind[i] = facts[i].kind == RowKind::unknown ? scan(rows[i]) : facts[i].kind;
    if (facts[i].kind == RowKind::enclosed) (facts[i].split ? split : plain).push_back(i);
  }
  const auto sigma_of = [](double norm) {
    // grid 2^-26 of the norm rounded up to a power of two; 1.5 * 2^52 of it
    return norm > 0 ? std::ldexp(1.5, std::ilogb(norm) + 1 - 26 + 52) : 1.0;
  };
  Block block;
  const auto add_panels = [&](const std::vector<std::size_t>& places, bool is_split) {
    std::vector<double> high(static_cast<std::size_t>(d_)), low(high.size());
    for (std::size_t first = 0; first < places.size(); first += static_cast<std::size_t>(height)) {
      Block::Panel panel;
      panel.split = is_split;
      panel.query = Buffer(d_ * height);
      if (is_split) panel.query_low = Buffer(2 * d_ * height);
      panel.part = Buffer(dv4_ * height);
      panel.total = Buffer(dv4_ * height);
      panel.any = {p.keys(), 0};
      panel.all = {0, p.keys()};
      const std::size_t last = std::min(places.size(), first + static_cast<std::size_t>(height));
      for (std::size_t i = first; i < last; ++i) {
        const std::size_t place = places[i];
        const auto r = static_cast<std::int64_t>(i - first);
        load(p.q, rows[place], query.data());
        if (is_split) {
          kernel.split(query.data(), d_, sigma_of(facts[place].norm), high.data(), low.data());
          for (std::int64_t t = 0; t < d_; ++t) {
            const auto at = static_cast<std::size_t>(t);
            panel.query.get()[t * height + r] = high[at];
            panel.query_low.get()[t * height + r] = query[at];
            panel.query_low.get()[(d_ + t) * height + r] = low[at];
          }
        } else {
          for (std::int64_t t = 0; t < d_; ++t) {
            panel.query.get()[t * height + r] = query[static_cast<std::size_t>(t)];
          }
        }
        panel.rows.push_back(rows[place]);
        panel.places.push_back(place);
        panel.facts.push_back(facts[place]);
        panel.brief =
            panel.brief && !is_split && !p.softcap && !p.bias &&
            facts[place].exponent * (1 + 0x1p-20) <= exp2_short_limit &&  // of computed scores too
            std::fabs(sink_hi_) <= exp2_short_limit;
        const KeyRange range = p.range(rows[place]);
        panel.any.begin = std::min(panel.any.begin, range.begin);
        panel.any.end = std::max(panel.any.end, range.end);
        panel.all.begin = std::max(panel.all.begin, range.begin);
        panel.all.end = std::min(panel.all.end, range.end);
      }
      for (std::int64_t r = 0; r < height; ++r) {
        panel.state.greatest[r] = -infinity;
        if (p.sink && !panel.brief) {
          panel.state.greatest[r] = sink_hi_;
          panel.state.shift[r] = std::nearbyint(sink_hi_);
        }
        // padded rows are settled from the start
        panel.shift_set[r] = static_cast<std::size_t>(r) >= panel.rows.size();
        panel.all_set = panel.brief;
      }
      block.panels.push_back(std::move(panel));
    }
  };
  add_panels(plain, false);
  add_panels(split, true);

  // --- one pass over the tiles
  const std::int64_t k_stride = d_ + 8, k2_stride = 2 * d_ + 8;
  const Buffer k_tile(plain.empty() ? 1 : tile_keys * k_stride);
  const Buffer k2_tile(split.empty() ? 1 : tile_keys * k2_stride);
  const Buffer v_tile(dv4_ * tile_keys), scores(tile_keys * height), low(tile_keys * height);
  const Buffer bias(p.bias ? tile_keys * height : 1), visible(tile_keys * height);
  std::vector<double> key(static_cast<std::size_t>(d_)), value(static_cast<std::size_t>(dv4_));
  std::vector<double> bias_row(static_cast<std::size_t>(tile_keys));
  KeyRange span{p.keys(), 0};
  for (const Block::Panel& panel : block.panels) {
    span.begin = std::min(span.begin, panel.any.begin);
    span.end = std::max(span.end, panel.any.end);
  }
  ExponentArgs args;
  const bool capped = p.softcap.has_value();
  args.c_hi = capped ? std::fabs(constants_.w_hi) : constants_.c_hi;
  args.c_lo = capped && constants_.w_hi < 0 ? -constants_.w_lo
              : capped                      ? constants_.w_lo
                                            : constants_.c_lo;
  // tanh is odd: a negative scale flips the sign of the capped score
  args.cap_hi = capped && constants_.w_hi < 0 ? -constants_.cap_hi : constants_.cap_hi;
  args.cap_lo = capped && constants_.w_hi < 0 ? -constants_.cap_lo : constants_.cap_lo;
  std::int64_t tiles = 0;
  const auto flush = [&](Block::Panel& panel) {
    if (!panel.flushed) kernel.flush(panel.part.get(), panel.total.get(), dv4_ * height);
    for (std::int64_t r = 0; r < height; ++r) {
      panel.group_sum[r] += panel.state.sum[r];
      panel.state.sum[r] = 0;
    }
  };
  const auto v_words = words_of(p.v.format());
  for (std::int64_t begin = span.begin; begin < span.end; begin += tile_keys, ++tiles) {
    const bool group_ends = tiles % tiles_in_group == tiles_in_group - 1;
    const std::int64_t n = std::min(tile_keys, span.end - begin);
    for (std::int64_t j = 0; j < tile_keys; ++j) {
      double* k_row = plain.empty() ? nullptr : k_tile.get() + j * k_stride;
      double* k2_row = split.empty() ? nullptr : k2_tile.get() + j * k2_stride;
      if (j >= n || bad_key(begin + j)) {
        if (k_row != nullptr) std::fill_n(k_row, d_, 0.0);
        if (k2_row != nullptr) std::fill_n(k2_row, 2 * d_, 0.0);
        std::fill(value.begin(), value.end(), 0.0);
      } else {
        double* raw = k_row != nullptr ? k_row : key.data();
        load(p.k, begin + j, raw);
        if (k2_row != nullptr) {
          double squares, least, most;
          kernel.measure(raw, d_, &squares, &least, &most);
          kernel.split(raw, d_, sigma_of(norm_bound(squares, static_cast<double>(d_))), k2_row + d_,
                       k2_row);
        }
        if (v_words) {
          kernel.convert_values(*v_words, p.v.row_bytes(begin + j), dv_,
                                v_tile.get() + j * channel_group);
          continue;  // channels from dv on stay zero
        }
        load(p.v, begin + j, value.data());
      }
      for (std::int64_t c = 0; c < dv4_; c += channel_group) {
        std::memcpy(v_tile.get() + c * tile_keys + j * channel_group, &value[std::size_t(c)],
                    channel_group * sizeof(double));
      }
    }
    for (Block::Panel& panel : block.panels) {
      panel.flushed = false;
      if (begin >= panel.any.end || begin + n <= panel.any.begin) continue;
      const auto n_panel = static_cast<std::int64_t>(panel.rows.size());
      // --- what is visible of this tile
      bool mixed = begin < panel.all.begin || begin + n > panel.all.end || !p.ranges_only();
      if (p.bias) {
        mixed = true;
        std::fill_n(bias.get(), tile_keys * height, 0.0);
      }
      if (mixed) {
        std::fill_n(visible.get(), tile_keys * height, 0.0);
        bool any = false, all = true;
        for (std::int64_t r = 0; r < n_panel; ++r) {
          const std::int64_t row = panel.rows[static_cast<std::size_t>(r)];
          const KeyRange range = p.range(row);
          const std::int64_t first = std::max<std::int64_t>(0, range.begin - begin);
          const std::int64_t last = std::min(n, range.end - begin);
          all = all && first == 0 && last == n;
          if (p.bias) {
            const Matrix& b = *p.bias;
            const std::byte* at =
                b.row_bytes(b.rows() == 1 ? 0 : row) + begin * b.format().storage_bytes();
            load(Matrix(nullptr, at, b.format(), 1, n, 0), 0, bias_row.data());
          }
          for (std::int64_t j = first; j < last; ++j) {
            bool seen = p.ranges_only() || p.sees(row, begin + j);
            if (seen && p.bias) {
              const double b = bias_row[static_cast<std::size_t>(j)];
              if (b == -infinity) {
                seen = false;
              } else {
                const double magnitude = std::fabs(b);
                if (!(magnitude < infinity)) panel.bad[r] = true;
                if (!(magnitude <= panel.most_bias[r])) panel.most_bias[r] = magnitude;
                bias.get()[j * height + r] = magnitude <= largest_bias ? b : 0;
              }
            }
            if (seen) {
              visible.get()[j * height + r] = 1;
              any = true;
              if (bad_key(begin + j)) panel.bad[r] = true;
            } else {
              all = false;
            }
          }
        }
        if (!any) continue;
        mixed = !all;
      } else if (any_bad_key()) {
        for (std::int64_t j = 0; j < n; ++j) {
          if (bad_key(begin + j)) std::fill_n(panel.bad, n_panel, true);
        }
      }
      args.visible = mixed ? visible.get() : nullptr;
      args.bias = p.bias ? bias.get() : nullptr;
      args.low = panel.split ? low.get() : nullptr;

      // --- scores, weights, sums
      const auto make_scores = [&] {
        if (panel.split) {
          kernel.scores(panel.query.get(), k2_tile.get() + d_, k2_stride, d_, n, scores.get());
          kernel.scores(panel.query_low.get(), k2_tile.get(), k2_stride, 2 * d_, n, low.get());
        } else {
          kernel.scores(panel.query.get(), k_tile.get(), k_stride, d_, n, scores.get());
        }
      };
      make_scores();
      double greatest[most_panel_rows];
      if (!panel.all_set) {
        kernel.greatest(args, scores.get(), n, greatest);
        panel.all_set = true;
        for (std::int64_t r = 0; r < n_panel; ++r) {
          if (!panel.shift_set[r] && greatest[r] > -infinity) {
            const double most = std::max(greatest[r], panel.state.greatest[r]);
            panel.state.shift[r] = std::nearbyint(most);
            panel.shift_set[r] = true;
          }
          panel.all_set = panel.all_set && panel.shift_set[r];
        }
      }
      bool rescale = false;
      double sum_before[most_panel_rows], squares_before[most_panel_rows];
      if (panel.brief) {
        kernel.short_weights(args, scores.get(), n, &panel.state);
      } else {
        std::copy_n(panel.state.sum, height, sum_before);
        std::copy_n(panel.state.squares, height, squares_before);
        kernel.weights(args, scores.get(), n, &panel.state);
        for (std::int64_t r = 0; r < n_panel; ++r) {
          rescale =
              rescale || panel.state.greatest[r] > panel.state.shift[r] + headroom_above_shift;
        }
      }
      if (rescale) {
        std::copy_n(sum_before, height, panel.state.sum);
        std::copy_n(squares_before, height, panel.state.squares);
        for (std::int64_t r = 0; r < n_panel; ++r) {
          const double greatest_now = panel.state.greatest[r], shift_before = panel.state.shift[r];
          if (!(greatest_now > shift_before + headroom_above_shift)) continue;
          const double shift = std::nearbyint(greatest_now);
          const int down = static_cast<int>(std::max(shift_before - shift, -3000.0));
          panel.state.shift[r] = shift;
          panel.state.sum[r] = std::ldexp(panel.state.sum[r], down);
          panel.group_sum[r] = std::ldexp(panel.group_sum[r], down);
          panel.state.squares[r] = std::ldexp(panel.state.squares[r], 2 * down);
          for (std::int64_t c = 0; c < dv4_; ++c) {
            double& part = panel.part.get()[c * height + r];
            double& total = panel.total.get()[c * height + r];
            part = std::ldexp(part, down);
            total = std::ldexp(total, down);
          }
        }
        make_scores();
        kernel.weights(args, scores.get(), n, &panel.state);
      }
      kernel.values(scores.get(), v_tile.get(), dv4_, n, panel.part.get(),
                    group_ends ? panel.total.get() : nullptr);
      panel.flushed = group_ends;
    }
    if (group_ends) {
      for (Block::Panel& panel : block.panels) flush(panel);
    }
  }

  // --- from sums to enclosures
  const auto groups = static_cast<double>((tiles + tiles_in_group - 1) / tiles_in_group);
  const double gamma_l = gamma((weight_chain - 1) + (tile_keys / weight_chain - 1) +
                               (tiles_in_group - 1) + (groups - 1));
  const double gamma_o =
      gamma(value_chain + (tiles_in_group * (tile_keys / value_chain) - 1) + (groups - 1));
  const auto n_keys = static_cast<double>(span.end > span.begin ? span.end - span.begin : 0) + 8;
  // ends are made for eight channels at a time and transposed in squares of cache lines
  constexpr std::int64_t line = 8;
  const Buffer lo(line * height), hi(line * height), extra(dv4_ * height);
  for (Block::Panel& panel : block.panels) {
    flush(panel);
    double l[most_panel_rows] = {}, l_error[most_panel_rows] = {}, l_bound[most_panel_rows] = {};
    double p_norm[most_panel_rows] = {}, relative[most_panel_rows] = {};
    double absolute[most_panel_rows] = {};
    bool with_extra = false;
    for (std::size_t r = 0; r < panel.rows.size(); ++r) {
      RowKind& kind = out.kind[panel.places[r]];
      const RowFacts& f = panel.facts[r];
      const PanelState& s = panel.state;
      l[r] = panel.group_sum[r];
      if (panel.brief) panel.shift_set[r] = l[r] > 0;
      // a sink alone leaves the shift "unset" and no weight
      if (!panel.shift_set[r]) {
        kind = panel.bad[r] ? RowKind::undefined : RowKind::empty;
        l[r] = 1;
        continue;
      }
      if (panel.bad[r]) kind = RowKind::undefined;
      if (panel.most_bias[r] > largest_bias && kind == RowKind::enclosed) kind = RowKind::unknown;
      const double t_bound =
          std::min(0x1p19, f.exponent + 1.5 * std::min(panel.most_bias[r], largest_bias));
      double exponent_error = 0x1p-100 * t_bound + (capped ? 5 * u * constants_.cap_hi : 0.0);
      if (f.split) {
        exponent_error += constants_.natural_magnitude * 1.4427 * f.score_error;
      }
      const double eps =
          ((panel.brief ? exp2_short_relative_error_bound : exp2_relative_error_bound) +
           exponent_error * 0.6931472 * (1 + 0x1p-9)) *
          inflation;
      const double delta =
          f.split ? 0.0 : constants_.natural_magnitude * f.score_error * (1 + 0x1p-9) * inflation;
      const double second_order = 1 + 2 * (eps + delta);
      if (p.sink) {
        double w;
        vector_kernels(kernel.set).exp2_pair(&sink_hi_, &sink_lo_, s.shift[r], &w, 1);
        l[r] += w;
        l_error[r] = w * 2 * exp2_relative_error_bound;
      }
      const double mass = l[r] * (1 + 2 * gamma_l) * inflation;
      const double norm =
          std::sqrt(s.squares[r] * (1 + (n_keys + 8) * 0x1p-51) + n_keys * 0x1p-960) *
          (1 + 0x1p-50);
      const double inexact_mass =
          delta > 0 ? std::min(mass, norm * std::sqrt(static_cast<double>(f.inexact_keys)) *
                                         (1 + 0x1p-50))
                    : 0.0;
      const double lost = n_keys * underflow_per_key;
      l_error[r] = (l_error[r] + (gamma_l + 2 * u) * mass +
                    (eps * mass + delta * inexact_mass) * second_order + lost) *
                   inflation;
      l_bound[r] = mass;
      p_norm[r] = norm;
      relative[r] = (gamma_o + eps * second_order) * inflation;
      absolute[r] = lost;
      if (delta > 0) {
        if (!with_extra) std::fill_n(extra.get(), dv4_ * height, 0.0);
        with_extra = true;
        const double* v_tail = &reach_v_norm_[reach_row_[f.inexact_from]];
        for (std::int64_t c = 0; c < dv_; ++c) {
          extra.get()[c * height + static_cast<std::int64_t>(r)] =
              delta * second_order *
              std::min(mass * vmax_[static_cast<std::size_t>(c)], norm * v_tail[c]) * inflation;
        }
      }
      if (kind == RowKind::enclosed) {
        if (!(panel.brief || l[r] > 0x1p-2) || !(l_error[r] < 0x1p-2 * l[r])) {
          kind = RowKind::unknown;
          continue;
        }
        const LogBounds lse = log2_bounds(std::nextafter(l[r] - l_error[r], 0.0),
                                          std::nextafter(l[r] + l_error[r], infinity), s.shift[r]);
        out.lse2_lo[panel.places[r]] = lse.lo;
        out.lse2_hi[panel.places[r]] = lse.hi;
      }
    }
    const auto n_panel = static_cast<std::int64_t>(panel.rows.size());
    for (std::int64_t first = 0; first < dv_; first += line) {
      const std::int64_t count = std::min(dv_ - first, line);
      kernel.finish(panel.total.get() + first * height, count, l, l_error, l_bound, p_norm,
                    relative, absolute, &vmax_[static_cast<std::size_t>(first)],
                    &v_norm_[static_cast<std::size_t>(first)],
                    with_extra ? extra.get() + first * height : nullptr, lo.get(), hi.get());
      for (std::int64_t r = 0; r < n_panel; ++r) {
        const std::size_t to =
            panel.places[static_cast<std::size_t>(r)] * static_cast<std::size_t>(dv_) +
            static_cast<std::size_t>(first);
        for (std::int64_t c = 0; c < count; ++c) out.lo[to + c] = lo.get()[c * height + r];
        for (std::int64_t c = 0; c < count; ++c) out.hi[to + c] = hi.get()[c * height + r];
      }
    }
  }
  for (std::size_t i = 0; i < n_rows; ++i) {
    if (out.kind[i] == RowKind::enclosed) continue;
    const auto at = static_cast<std::ptrdiff_t>(i * static_cast<std::size_t>(dv_));
    std::fill_n(out.lo.begin() + at, dv_, -infinity);
    std::fill_n(out.hi.begin() + at, dv_, infinity);
  }
  return out;
}

}  // namespace headroom
