#include "certify/scan_passes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "bounds/norms.h"
#include "bounds/score.h"
#include "reference/format/convert.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t most_channels = 1 << 18;  // m u stays below 0.01 for sums in FP32

StoredRows between(const Matrix& matrix, std::int64_t begin, std::int64_t end) {
  StoredRows rows = stored_rows(matrix, end);
  rows.data += begin * rows.stride;
  rows.rows -= begin;
  return rows;
}

/// gamma_m = m u / (1 - m u) <= 1.02 m u for m u <= 0.01, u = 2^-precision.
double gamma(std::int64_t roundings, int precision) {
  return 1.02 * static_cast<double>(roundings) * std::ldexp(1.0, -precision);
}

// --- keys ----------------------------------------------------------------------------------------

/// Computed sums of squares S^, one a row, and how the exact value x of a row is bounded by them:
/// x <= sqrt((S^ + absolute)(1 + relative)) + slack.
struct RowBounds {
  std::vector<float> squares;
  double absolute = 0, relative = 0, slack = 0;

  double upper(float s) const {
    return (sqrt(max(Interval(0.0), Interval(s) + Interval(absolute)) *
                 (Interval(1.0) + Interval(relative))) +
            Interval(slack))
        .hi();
  }
  /// Rows with S^ below this are certainly below `value`.
  double threshold(double value) const {
    const double rest = (Interval(value) - Interval(slack)).lo();
    if (!(rest > 0)) return -infinity;
    return (square(Interval(rest)) / (Interval(1.0) + Interval(relative)) - Interval(absolute))
        .lo();
  }
  std::int64_t largest() const {  // a row that is not finite first
    std::int64_t at = 0;
    for (std::size_t j = 0; j < squares.size(); ++j) {
      if (!(squares[j] < std::numeric_limits<float>::infinity()))
        return static_cast<std::int64_t>(j);
      if (squares[j] > squares[static_cast<std::size_t>(at)]) at = static_cast<std::int64_t>(j);
    }
    return at;
  }
};

/// Takes every row that may raise one of the maxima.
void take_candidates(const KernelNorm& kernel_norm, std::int64_t n, const RowBounds& length,
                     const RowBounds& radius, const RowBounds& exact, const RowBounds* difference,
                     KeyFacts& facts, HeadScan& scan) {
  HeadScan first = scan;
  for (const RowBounds* bounds : {&length, &radius, &exact, difference}) {
    if (bounds != nullptr) facts.take(bounds->largest(), first);
  }
  // A row in full may lie above its exact value by its own rounding: (n + 4) 2^-53 and less.
  constexpr double certainly = 1 - 0x1p-30;
  // The kernel's own norm of a row, at most RN(sqrt((x^2 + lost) grown)), x (1 + u) if centred.
  const double kernel = first.kernel_radius.lo() * (1 - 0x1p-21);
  const double exact_norm =
      kernel > 0x1p-100
          ? sqrt(max(Interval(0.0), square(Interval(kernel)) / Interval(kernel_norm.grown()) -
                                        Interval(kernel_norm.lost())))
                    .lo() *
                (1 - 0x1p-21)
          : 0.0;
  const double by_length = length.threshold(first.key_norm.lo() * certainly);
  const double by_radius =
      std::min(radius.threshold(first.radius.lo() * certainly), radius.threshold(exact_norm));
  const double by_exact = exact.threshold(first.raw_centred_norm * certainly);
  const double by_difference =
      difference != nullptr ? difference->threshold(first.key_difference * certainly) : infinity;
  for (std::int64_t j = 0; j < n; ++j) {
    const auto at = static_cast<std::size_t>(j);
    const bool below = length.squares[at] < by_length && radius.squares[at] < by_radius &&
                       exact.squares[at] < by_exact &&
                       (difference == nullptr || difference->squares[at] < by_difference);
    if (!below) facts.take(j, scan);
  }
}

bool holds_exactly(const std::vector<Interval>& mean) {
  return std::all_of(mean.begin(), mean.end(), [](const Interval& a) {
    return round_to(fp32, a.lo()) == a.lo() && round_to(fp32, a.hi()) == a.hi();
  });
}

std::vector<double> ends_of(const std::vector<Interval>& x, bool upper) {
  std::vector<double> ends;
  for (const Interval& each : x) ends.push_back(upper ? each.hi() : each.lo());
  return ends;
}

/// Means of n keys from sums that lie within `error` of the exact ones.
std::vector<Interval> means(const WordFormat words, std::int64_t channels, std::int64_t n,
                            const std::vector<double>& lo, const std::vector<double>& hi,
                            const std::function<double(std::size_t)>& error) {
  std::vector<Interval> mean;
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto at = static_cast<std::size_t>(position_of(words, c));
    const double e = error(at);
    mean.push_back((Interval(lo[at], hi[at]) + Interval(-e, e)) / Interval(static_cast<double>(n)));
  }
  return mean;
}

/// Plain sums of the folded keys: k~ without mean centring.
std::vector<Interval> mean_of_folded(const Head& head, const Operands::PassReading& reading,
                                     std::int64_t n) {
  const auto width = static_cast<std::size_t>(padded_channels(head.channels()));
  ColumnSums sums;
  sums.sum.assign(width, 0.0);
  sums.magnitude = sums.sum;
  sums.least.assign(width, 0.0F);
  sums.most = sums.least;
  {
    const NearestRounding nearest;
    pass_kernels(best_instruction_set(), reading.words)
        .columns(stored_rows(head.k, n), reading.fold, sums);
  }
  return means(reading.words, head.channels(), n, sums.sum, sums.sum, [&](std::size_t at) {
    return (Interval(2 * column_error(n)) * Interval(sums.magnitude[at])).hi();
  });
}

}  // namespace

bool values_by_pass(const Head& head, std::int64_t keys_read, HeadScan& scan) {
  const std::optional<WordFormat> words = word_format(head.v.format());
  if (!words || keys_read == 0 || head.value_channels() == 0) return false;
  const std::int64_t real = std::min(head.visibility.length, keys_read);
  Extremes visible, padding;
  {
    const NearestRounding nearest;
    const PassKernels& kernels = pass_kernels(best_instruction_set(), *words);
    visible = kernels.extremes(between(head.v, 0, real));
    padding = kernels.extremes(between(head.v, real, keys_read));
  }
  if (!visible.finite || !padding.finite) return false;  // the row by row scan finds the place
  scan.v_real_magnitude =
      real > 0 ? std::fmax(std::fabs(visible.least), std::fabs(visible.most)) : 0;
  scan.v_min = std::fmin(visible.least, padding.least);
  scan.v_max = std::fmax(visible.most, padding.most);
  scan.v_magnitude = std::fmax(std::fabs(scan.v_min), std::fabs(scan.v_max));
  return true;
}

bool magnitudes_by_pass(const Head& head, std::vector<double>& most) {
  const std::optional<WordFormat> words = word_format(head.v.format());
  if (!words || most.empty() || head.value_channels() == 0) return false;
  const NearestRounding nearest;
  const PassKernels& kernels = pass_kernels(best_instruction_set(), *words);
  StoredRows key = stored_rows(head.v, static_cast<std::int64_t>(most.size()));
  key.rows = 1;
  for (double& magnitude : most) {
    const Extremes own = kernels.extremes(key);
    magnitude = std::fmax(std::fabs(own.least), std::fabs(own.most));
    key.data += key.stride;
  }
  return true;
}

bool keys_by_passes(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                    const Operands& operands, KeyFacts& facts, HeadScan& scan,
                    MultipliedKeys& keys) {
  const std::optional<Operands::PassReading>& reading = operands.key_reading();
  const std::int64_t n = head.visibility.length, d = head.channels();
  if (!reading || kernel.stabilizer.norm != fp32 || n <= 0 || d <= 0 || d > most_channels) {
    return false;
  }
  const KeyCentring& centring = kernel.centring;
  const std::vector<Interval>& stored_mean = operands.stored_mean();
  const bool prefixes = head.visibility.kind != MaskKind::none;
  const PassKernels& kernels = pass_kernels(best_instruction_set(), reading->words);
  const StoredRows rows = stored_rows(head.k, n);
  const auto count = static_cast<std::size_t>(n);
  const KernelNorm kernel_norm(up, kernel.stabilizer.norm, d);
  const double unit = 2 * gamma(lane_roundings(d) + 2, fp32.precision);
  const double absolute = sums_floor(d);
  RowBounds length{std::vector<float>(), absolute, unit, 0};

  if (const auto& made = operands.key_squares()) {
    length.squares = made->squares;
    take_candidates(kernel_norm, n, length, length, length, nullptr, facts, scan);
    if (prefixes) return true;
    // channel by channel off by at most e / n sum_j |k_jc|: a vector of at most e max |k_j|
    keys.mean = means(reading->words, d, n, made->by_channel, made->by_channel,
                      [](std::size_t) { return 0.0; });
    keys.apart = (Interval(2 * column_sum_error(n)) * scan.key_norm).hi();
    return true;
  }
  length.squares.resize(count);
  if (centring.keys != Centring::mean && !reading->fold.on) {
    if (centring.keys == Centring::none) {
      {
        const NearestRounding nearest;
        kernels.norms(rows, nullptr, length.squares.data(), nullptr);
      }
      take_candidates(kernel_norm, n, length, length, length, nullptr, facts, scan);
    } else {
      // x - a for a in the box of the stored mean: from its middle, and half the box's diagonal
      std::vector<double> middle, half;
      for (const Interval& a : stored_mean) {
        const double m = static_cast<float>(a.lo());
        middle.push_back(m);
        half.push_back((a - Interval(m)).magnitude());
      }
      RowBounds radius{std::vector<float>(count), absolute, 0, norm(up, half).hi()};
      const std::vector<float> centre = arranged_floats(reading->words, middle);
      if (!std::all_of(centre.begin(), centre.end(), [](float x) { return std::isfinite(x); })) {
        return false;
      }
      {
        const NearestRounding nearest;
        kernels.norms(rows, centre.data(), length.squares.data(), radius.squares.data());
      }
      const double longest =
          length.upper(length.squares[static_cast<std::size_t>(length.largest())]);
      const Interval both = square(Interval(longest) + norm(up, middle));
      radius.absolute = (Interval(centred_error(d)) * both + Interval(absolute)).hi();
      take_candidates(kernel_norm, n, length, radius, radius, nullptr, facts, scan);
    }
    if (!prefixes) keys.mean = mean_of_folded(head, *reading, n);
    return true;
  }

  // Keys that are centred, or folded only: centred by 0.
  const bool narrow = centring.keys == Centring::mean && centring.difference == bf16;
  if (centring.keys == Centring::virtual_) return false;
  if (centring.keys == Centring::mean) {
    const bool one_rounding = narrow ? reading->words == WordFormat::bf16 && centring.mean == bf16
                                     : centring.difference == fp32;
    if (!one_rounding || !holds_exactly(stored_mean)) return false;
  }
  const auto width = static_cast<std::size_t>(padded_channels(d));
  std::vector<float> mean_lo(width), mean_hi(width);
  Interval mean_norm(0.0);
  if (!stored_mean.empty()) {
    const std::vector<double> lo = ends_of(stored_mean, false), hi = ends_of(stored_mean, true);
    mean_lo = arranged_floats(reading->words, lo);
    mean_hi = arranged_floats(reading->words, hi);
    mean_norm = norm(up, lo, hi);
  }
  // Beyond the sums' own error: factor k is rounded, as is the factor, and k' - a, once each before
  // they are squared; |k'| <= |k' - a| + |a|.
  RowBounds exact{std::vector<float>(count), absolute, unit + 0x1p-18,
                  (Interval(0x1p-20) * mean_norm).hi() + absolute};
  RowBounds difference{std::vector<float>(count), absolute, unit, 0};
  std::vector<double> sum_lo(width), sum_hi(width);
  {
    const NearestRounding nearest;
    const CentredKeys pass{mean_lo.data(),
                           mean_hi.data(),
                           mean_lo == mean_hi,
                           narrow,
                           static_cast<float>(operands.key_factor().lo()),
                           length.squares.data(),
                           difference.squares.data(),
                           exact.squares.data(),
                           sum_lo.data(),
                           sum_hi.data()};
    kernels.centred(rows, reading->fold, pass);
  }
  const double furthest = exact.upper(exact.squares[static_cast<std::size_t>(exact.largest())]);
  difference.slack =
      (Interval(0x1p-22) * (Interval(furthest) + Interval(2.0) * mean_norm)).hi() + absolute;
  take_candidates(kernel_norm, n, length, length, exact, &difference, facts, scan);
  if (!prefixes) {
    const double error =
        (Interval(2 * column_error(n)) * Interval(static_cast<double>(n)) * scan.key_norm).hi();
    keys.mean = means(reading->words, d, n, sum_lo, sum_hi, [&](std::size_t) { return error; });
  }
  return true;
}

// --- queries -------------------------------------------------------------------------------------

namespace {

/// A vector of intervals as a pass takes it: the middle, and how far the ends lie from it.
struct Middle {
  /// `taken`: another point near the middle (arranged), if not empty.
  Middle(const UpwardRounding& up, WordFormat words, const std::vector<Interval>& x,
         const std::vector<double>& taken = {}) {
    std::vector<double> m, w;
    for (const Interval& each : x) {
      const auto at = position_of(words, static_cast<std::int64_t>(m.size()));
      m.push_back(taken.empty() ? each.lo() + (each.hi() - each.lo()) / 2
                                : taken[static_cast<std::size_t>(at)]);
      w.push_back((each - Interval(m.back())).magnitude());
    }
    length = norm(up, m).hi();
    half_length = norm(up, w).hi();
    middle = arranged_doubles(words, m);
    half = arranged_doubles(words, w);
  }
  std::vector<double> middle, half;
  double length = 0, half_length = 0;
};

/// Sums of a block of query rows.
struct Block {
  static constexpr std::size_t size = 512;
  std::array<double, size> squares, dot, spread, centre_dot, centre_spread, difference;
  std::array<std::uint8_t, size> may_be_on_grid;
  std::array<double, size> least_root, most_root;  // of the kernel's norm, before its rounding
};

/// To FP32, to nearest; in place.
void round_to_fp32(std::array<double, Block::size>& x, std::size_t n) {
  const NearestRounding nearest;
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = opaque(static_cast<double>(static_cast<float>(opaque(x[i]))));
  }
}

/// factor [middle - off, middle + off], ends rounded outward. Upward rounding is active.
inline Interval scaled(double factor_lo, double factor_hi, double middle, double off) {
  const double hi = middle + off, minus_lo = off - middle;
  // of the four products the largest, and the largest of their negatives
  const double top = std::max(std::max(hi * factor_lo, hi * factor_hi),
                              std::max(-minus_lo * factor_lo, -minus_lo * factor_hi));
  const double bottom = std::max(std::max(minus_lo * factor_lo, minus_lo * factor_hi),
                                 std::max(-hi * factor_lo, -hi * factor_hi));
  return {-bottom, top};
}

/// At most the root of x >= 0. Upward rounding is active.
inline double root_below(double x) { return -(-std::sqrt(x) * (1 - 0x1p-51)); }

}  // namespace

bool queries_by_passes(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                       const Operands& operands, const MultipliedKeys& keys, HeadScan& scan) {
  const std::optional<Operands::PassReading>& reading = operands.query_reading();
  const std::int64_t d = head.channels(), n = head.visibility.length;
  if (!reading || kernel.stabilizer.norm != fp32 || d <= 0 || d > most_channels) return false;
  const bool prefixes = head.visibility.kind != MaskKind::none && n > 0;
  const bool folded_keys = kernel.centring.keys != Centring::mean && operands.key_reading();
  if (prefixes ? !folded_keys : n > 0 && keys.mean.empty()) return false;

  const Interval& factor = operands.score_factor();
  const double factor_lo = factor.lo(), factor_hi = factor.hi(), most_factor = factor.magnitude();
  if (!factor.is_finite()) return false;
  const bool virtual_centre = kernel.centring.keys == Centring::virtual_;
  const std::vector<Interval> origin(static_cast<std::size_t>(d), Interval(0.0));
  const auto& products = operands.query_products();
  if (products && prefixes) return false;
  const Middle mean(up, reading->words, prefixes || n == 0 ? origin : keys.mean,
                    products ? products->mean : std::vector<double>());
  const Middle centre(up, reading->words, virtual_centre ? operands.stored_mean() : origin);
  const bool wide = mean.half_length > 0x1p-36 * mean.length;

  const PassKernels& kernels = pass_kernels(best_instruction_set(), reading->words);
  const KernelNorm kernel_norm(up, kernel.stabilizer.norm, d);
  const double grown = kernel_norm.grown(), shrunk = kernel_norm.shrunk();
  const double lost = kernel_norm.lost(), most_finite = kernel.stabilizer.norm.max_finite();
  const double relative = gamma(lane_roundings(d), fp64.precision);
  const double above = 1 + 2 * relative, below = -(2 * relative - 1);
  // rounding of <q, m>, and how far m may be off where no spread is made of it
  const double mean_error = relative * mean.length + (wide ? 0.0 : mean.half_length) + keys.apart;
  const double centre_error = relative * centre.length;
  // each running sum passes `count` additions of at most |k| each: over the count, count u |k|
  const double prefix_rounding =
      1.05 * 0x1p-53 * std::sqrt(static_cast<double>(d)) * scan.key_norm.hi();
  const double prefix_error = 1.05 * relative * scan.key_norm.hi();
  const Interval& query_factor = operands.query_factor();

  std::vector<double> q(static_cast<std::size_t>(d));
  Block block;
  for (std::int64_t begin = 0; begin < head.queries(); begin += Block::size) {
    const std::int64_t end =
        std::min<std::int64_t>(begin + static_cast<std::int64_t>(Block::size), head.queries());
    const double *squares = block.squares.data(), *dots = block.dot.data();
    const std::uint8_t* may_be_on_grid = block.may_be_on_grid.data();
    if (products && !wide) {
      squares = products->squares.data() + begin;
      dots = products->dots.data() + begin;
      may_be_on_grid = products->may_be_on_grid.data() + begin;
    } else {
      const NearestRounding nearest;
      const StoredRows rows = between(head.q, begin, end);
      const QueryVectors vectors{mean.middle.data(), wide ? mean.half.data() : nullptr,
                                 virtual_centre ? centre.middle.data() : nullptr,
                                 centre.half.data(), query_factor.lo()};
      const QuerySums sums{block.squares.data(),       block.dot.data(),
                           block.spread.data(),        block.centre_dot.data(),
                           block.centre_spread.data(), block.difference.data(),
                           block.may_be_on_grid.data()};
      kernels.queries(rows, reading->fold, vectors, sums);
    }
    for (std::int64_t i = begin; i < end; ++i) {
      const auto b = static_cast<std::size_t>(i - begin);
      RowScan& row = scan.rows[static_cast<std::size_t>(i)];
      const double squares_hi = squares[b] * above;
      const double squares_lo = -(-squares[b] * below);
      const double norm_hi = std::sqrt(squares_hi);
      row.norm = Interval(root_below(squares_lo), norm_hi);

      if (may_be_on_grid[b] != 0) {
        operands.query_row(i, q.data());
        row.kernel_norm = kernel_norm.of(up, q, q);
        block.least_root[b] = row.kernel_norm.lo();  // FP32 numbers already
        block.most_root[b] = row.kernel_norm.hi();
      } else {  // kernel_norm.of(row.norm)
        const double high = (squares_hi + lost) * grown;
        const double low = std::max(0.0, -(lost - -(-squares_lo * shrunk)));
        block.least_root[b] = root_below(low);
        block.most_root[b] = high <= most_finite ? std::sqrt(high) : infinity;
      }
      if (row.visible > 0 && !prefixes) {
        const double off = norm_hi * mean_error + (wide ? block.spread[b] * above : 0.0);
        row.mean_score = scaled(factor_lo, factor_hi, dots[b], off);
      }
      if (virtual_centre) {
        const double off = norm_hi * centre_error + block.centre_spread[b] * above;
        row.centre_score = scaled(factor_lo, factor_hi, block.centre_dot[b], off);
      }
      // |q~ - q'|: q' rounded, its factor too, relative to |q'| <= |q~| + |q~ - q'|
      double apart = 0;
      if (reading->fold.on) {
        const double computed = std::sqrt(block.difference[b] * above);
        apart = computed + 0x1p-49 * (norm_hi + computed);
      }
      row.operand_error =
          most_factor * (norm_hi * scan.key_difference + apart * scan.raw_centred_norm);
    }
    const auto n_rows = static_cast<std::size_t>(end - begin);
    round_to_fp32(block.least_root, n_rows);
    round_to_fp32(block.most_root, n_rows);
    for (std::size_t b = 0; b < n_rows; ++b) {
      scan.rows[static_cast<std::size_t>(begin) + b].kernel_norm =
          Interval(block.least_root[b], block.most_root[b]);
    }
    largest_queries(static_cast<std::size_t>(begin), static_cast<std::size_t>(end), scan);
  }
  if (!prefixes) return true;

  std::vector<double> dots(scan.rows.size());
  std::vector<std::int64_t> ends;
  for (const RowScan& row : scan.rows) ends.push_back(row.visible);
  {
    const NearestRounding nearest;
    kernels.prefixes(stored_rows(head.q, head.queries()), reading->fold, stored_rows(head.k, n),
                     operands.key_reading()->fold, ends.data(), dots.data());
  }
  for (std::size_t i = 0; i < scan.rows.size(); ++i) {
    RowScan& row = scan.rows[i];
    if (row.visible == 0) continue;
    const auto count = static_cast<double>(row.visible);
    const double off = row.norm.hi() * (count * prefix_rounding + prefix_error);
    row.mean_score = factor * (Interval(dots[i]) / Interval(count) + Interval(-off, off));
  }
  return true;
}

}  // namespace headroom
