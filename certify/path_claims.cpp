#include "certify/path_claims.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "bounds/exp2_unit.h"
#include "bounds/lost_mass.h"
#include "bounds/output_error.h"
#include "bounds/row_mass.h"
#include "bounds/score.h"
#include "bounds/stabilizer.h"
#include "bounds/sums.h"
#include "certify/lazy_frames.h"
#include "certify/row_execution.h"
#include "certify/row_scores.h"
#include "certify/worst_rows.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const Interval unknown_log2(-infinity, infinity);

/// A quantity's enclosure on one row, for every claim that is made row by row.
struct RowFacts {
  Interval score_range = unknown_log2;
  Interval exponent = unknown_log2;     ///< largest x^, as stored
  Interval weight = unknown_log2;       ///< log2 of the largest stored P
  Interval denominator = unknown_log2;  ///< log2 of the largest partial sum of l
  Interval final_l = unknown_log2;      ///< log2 of the final l
  Interval numerator = unknown_log2;    ///< log2 of the largest partial sum of O
  Interval lost{0.0, 1.0};
  Interval flush{0.0, infinity};
  Interval mask{0.0, infinity};
  Interval hidden = unknown_log2;   ///< exponent of a hidden key, whose score is a finite stand-in
  Interval initial = unknown_log2;  ///< initial maximum less the row's own
  /// log2 of the largest rescale factor, where it is a claim of rows (waves)
  Interval correction{0.0};
  std::int64_t key = -1;
};

/// What a row's facts are computed from; log2 units.
struct RowInputs {
  std::int64_t row = -1;
  std::int64_t visible = 0;        ///< visible keys; of a block of rows the most
  std::int64_t least_visible = 0;  ///< of a block of rows the fewest
  double norm = 0;                 ///< upper bound of ||q~||
  Upper<Log2> exponent;            ///< bound of x^ before its rounding
  Lower<Log2> mean_exponent;       ///< zbar - mu - e
  Lower<Log2> exact_mean;          ///< zbar - mu
  /// Of a row that stays in a tested range: a lower bound of every stored exponent.
  Lower<Log2> least_exponent{-infinity};
  /// Online: lower bound of the exponent that the row's maximum has, in every frame from its
  /// tile's.
  Lower<Log2> top_exponent;
  double residual = 0;    ///< online: how far rounding can move what is subtracted
  double correction = 0;  ///< waves: upper bound of log2 of a rescale factor
  /// Exact scores of hidden keys, where they are finite stand-ins; what is known of them less mu.
  Interval hidden_score{-infinity, -infinity};
  Interval initial{-infinity, -infinity};  ///< initial maximum less the row's own, log2 units
  std::int64_t far = 0;                    ///< far keys (row_scores.h)
  /// Upper bound of a far key's exponent, exact or computed: bias.most - b_j is at least far_bits,
  /// of which rounding in formats of 8 bits takes less than 8.
  Upper<Log2> far_exponent{-infinity};
  double reach = 0;       ///< |exponent|
  double bias_reach = 0;  ///< max |b_j|
  bool sink_may_flush = false;
  Interval mu{0.0};
  double mean_score_lo = 0;
  double score_error = 0;
};

struct Limits {
  double exponent;        ///< largest exponent whose exp2 is finite
  double weight;          ///< log2 of P's largest finite number
  double denominator;     ///< log2 of l's largest finite number
  double numerator;       ///< log2 of O's largest finite number
  double final_l_most;    ///< the reciprocal stays normal
  double hidden;          ///< exponents of hidden keys that E certainly makes zero
  double final_l_least;   ///< l is nonzero, its reciprocal finite, its guard idle
  double flush_exponent;  ///< weights from here on survive exp2, P and l, the unit's error included
  // What lies beyond a limit above need not fail; beyond these it certainly does.
  double exponent_fails;   ///< exp2 certainly overflows above
  double weight_fails;     ///< P is certainly infinite above
  double final_l_too_big;  ///< the reciprocal is certainly flushed, or l infinite, above
  double
      final_l_too_small;  ///< l is certainly 0, its reciprocal infinite or its guard active, below
};

/// Both enclose one quantity; where they do not meet the second, the exact evaluation's.
Interval meet(const Interval& a, const Interval& b) {
  const double lo = std::max(a.lo(), b.lo());
  const double hi = std::min(a.hi(), b.hi());
  return lo <= hi ? Interval(lo, hi) : b;
}

/// log2 (1 - error); [-inf, 0] where an error may be all of the value.
Interval log2_kept(const Interval& error) {
  return error.hi() < 1 ? log2(Interval(1.0) - error) : Interval(-infinity, 0.0);
}

/// The limits that the reciprocal and the guards set to l.
void limit_final_l(const KernelModel& kernel, Limits& limits) {
  const Format& f = kernel.denominator.format;
  const Normalisation& last = kernel.normalise;
  limits.final_l_most = limits.final_l_too_big = limits.denominator;
  limits.final_l_least = limits.final_l_too_small =
      flush_exponent(f, kernel.denominator.flush_to_zero);
  if (last.division == Division::reciprocal) {
    const bool rounded_correctly = last.reciprocal_max_error_ulps <= 0.5;
    // k ulps of 2^e <= 1 / l are at most k 2^(1 - p) of it, half an ulp at most 2^-p
    const Interval error =
        Interval(last.reciprocal_max_error_ulps) * Interval(std::ldexp(1.0, 1 - f.precision));
    if (last.reciprocal_flush_to_zero) {
      // A unit that may err by more than half an ulp can land below 2^emin from just above it.
      const bool exact = rounded_correctly && last.reciprocal_exact_at_powers_of_two;
      limits.final_l_most = exact ? -f.emin
                            : (Interval(-f.emin) + log2_kept(error)).lo() > -f.emin - 1
                                ? -f.emin - 1
                                : -infinity;
      limits.final_l_too_big =
          rounded_correctly ? -f.emin : (Interval(-f.emin) + log2(Interval(1.0) + error)).hi();
    }
    // 1 / l, grown by the unit's error, stays below the largest number and half an ulp of it.
    const Interval room = Interval(1.0) - Interval(std::ldexp(1.0, -f.precision - 1));
    const Interval least = Interval(-f.emax - 1) +
                           log2((rounded_correctly ? Interval(1.0) : Interval(1.0) + error) / room);
    limits.final_l_least = std::max(limits.final_l_least, least.hi());
    const Interval hopeless =
        Interval(-f.emax - 1) + (rounded_correctly ? Interval(0.0) : log2_kept(error));
    limits.final_l_too_small = std::max(limits.final_l_too_small, hopeless.lo());
  }
  if (last.guard == DenominatorGuard::maximum && last.guard_value > 0) {
    const Interval guard = log2(Interval(last.guard_value));
    limits.final_l_least = std::max(limits.final_l_least, guard.hi());
    limits.final_l_too_small = std::max(limits.final_l_too_small, guard.lo());
  }
}

Limits limits_of(const UpwardRounding& up, const KernelModel& kernel) {
  const Interval eps(exp2_relative_error(kernel.exp2).value());
  const Format& result = kernel.exp2.result;
  Limits limits{};
  limits.exponent =
      (Interval(exp2_limit(up, kernel.exp2).value()) - log2(Interval(1.0) + eps)).lo();
  // 2^x less the unit's error still rounds to infinity
  limits.exponent_fails = (Interval(result.emax + 1) - log2_kept(eps)).hi();
  if (kernel.exp2.monotone_at_integers || kernel.exp2.max_error_ulps <= 0.5) {
    limits.exponent_fails = std::min<double>(limits.exponent_fails, result.emax + 1);
  }
  limits.hidden = certainly_zero_below(kernel.exp2);
  limits.weight = log2_max_finite(up, kernel.p.format).value();
  limits.weight_fails = kernel.p.saturate ? infinity : kernel.p.format.emax + 1;
  limits.denominator = log2_max_finite(up, kernel.denominator.format).value();
  limits.numerator = log2_max_finite(up, kernel.numerator.format).value();
  limit_final_l(kernel, limits);
  const int flush =
      std::max({exp2_flush_exponent(kernel.exp2), weight_flush_exponent(kernel.p),
                flush_exponent(kernel.denominator.format, kernel.denominator.flush_to_zero)});
  // Rounded upward to a number of the exponent's format, so that x from there on stays there.
  limits.flush_exponent =
      rounded(up, kernel.exponent.format, Interval((Interval(flush) - log2_kept(eps)).hi()), true)
          .hi();
  return limits;
}

bool same_statement(const Claim& a, const Claim& b) {
  return a.id == b.id && a.kind == b.kind && a.limit == b.limit && a.required == b.required &&
         a.reference == b.reference;
}

/// Over all rows.
struct Extremes {
  RowInputs worst;
  std::array<std::size_t, 8> rows{};  ///< positions in inputs_ of the rows that are extreme
  double mu = 0, raw_error = 0;       ///< max |mu|, the largest error against raw operands
  double score_reach = 0;             ///< max reach_of
  std::int64_t mu_row = -1;
};

class PathBuilder {
 public:
  static constexpr std::size_t block = range_fan * range_fan;

  PathBuilder(const PathContext& context, bool online)
      : c_(context),
        online_(online),
        limits_(limits_of(context.up, context.kernel)),
        eps_(context.options.eps),
        row_errors_(context.up, context.head, context.kernel, context.operands, context.scan) {}

  PathResult build(const FixedStabilizer* stabilizer);

 private:
  // Row level -------------------------------------------------------------------------------
  double row_error(const RowScan& row) const { return row_errors_.of(row).value(); }
  void add_sink(RowInputs& in) const;
  /// Upper bound of the row's capped and biased scores, `product` one of factor <q~, k~>.
  Upper<Log2> modified(Upper<Log2> product, const RowScan& row) const {
    if (c_.scan.softcap) {
      product = tighter(max(product, Upper<Log2>(0)), Upper<Log2>(c_.scan.softcap->hi()));
    }
    return product + Upper<Log2>(row.bias.most);
  }
  // `largest` bounds factor <q~, k~> of the row's visible keys, besides Cauchy-Schwarz.
  RowInputs fixed_inputs(std::int64_t row, const FixedStabilizer& stabilizer,
                         Upper<Log2> largest = {}) const;
  RowInputs online_inputs(std::int64_t row, Upper<Log2> largest = {}) const;
  RowInputs inputs_of(std::int64_t row, const FixedStabilizer* stabilizer,
                      Upper<Log2> largest = {}) const {
    RowInputs in = stabilizer != nullptr ? fixed_inputs(row, *stabilizer, largest)
                                         : online_inputs(row, largest);
    in.reach = std::fabs(in.exponent.value());
    return in;
  }
  void try_tighter_bounds(std::vector<std::size_t>& open, std::vector<Claim>& worst,
                          const FixedStabilizer* stabilizer);
  void summarise();
  static void worsen(RowInputs& worst, const RowInputs& in);
  RowInputs worst_of(std::size_t begin, std::size_t end) const;
  RowFacts bound(const RowInputs& in) const;
  double padded_share(const RowInputs& in) const;
  Upper<Log2> largest_sum(const Accumulator& accumulator, std::int64_t n, Upper<Log2> term) const;
  Interval log2_kept_below_normal() const;
  void refine(RowFacts& facts, const RowInputs& in, const RowExecution& run) const;
  void refine_weights(RowFacts& facts, const RowExecution& run) const;
  Upper<Relative> lost_by_flush(const RowInputs& in, double log2_least_l) const;
  Interval rounded_exponent(const Interval& x) const {
    return rounded(c_.up, c_.kernel.exponent.format, x, false);
  }
  bool decided(const RowFacts& facts) const;

  // Claims ----------------------------------------------------------------------------------
  std::vector<Claim> row_claims(const RowFacts& facts, const RowInputs& in) const;
  void head_claims(std::vector<Claim>& claims, const FixedStabilizer* stabilizer) const;
  std::vector<Claim> output_of(std::size_t begin, std::size_t end) const;
  void output_claims(std::vector<Claim>& claims) const;
  std::vector<std::size_t> likely_rows() const {
    std::vector<std::size_t> rows(extremes_.rows.begin(), extremes_.rows.end());
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    return rows;
  }
  std::int64_t added(std::int64_t visible) const { return visible + c_.scan.padding_keys; }
  /// Tiles whose rescale factor need not be 1, of a row with n keys. Where the row sees nothing of
  /// a tile that its query block visits, its maximum stays and the factor is E(0).
  std::int64_t rescales(std::int64_t n) const {
    if (!online_) return 0;
    const std::int64_t tile = std::max(1, c_.kernel.tiles.keys);
    const Exp2Unit& unit = c_.kernel.exp2;
    const bool one_at_zero = unit.monotone_at_integers || unit.max_error_ulps <= 0.5;
    const std::int64_t all = added(std::min(c_.head.visibility.length, c_.head.keys()));
    const std::int64_t tiles = (std::max(n, all) + tile - 1) / tile;
    if (!one_at_zero) return tiles;
    // keys that masks leave may lie in as many tiles
    const bool scattered = c_.head.modifiers.hides_keys() || c_.head.modifiers.bias;
    return scattered ? std::min(n, tiles) : (n + tile - 1) / tile;
  }
  /// May a rescale factor exceed 1 by more than the unit's error?
  bool may_fall() const { return c_.lazy != nullptr && c_.lazy->may_fall(); }
  /// Policies fdpp and fa4 hold the maximum of scores as stored, before they are scaled.
  bool raw_maximum() const { return c_.lazy != nullptr || c_.paths != nullptr; }
  /// The maximum of raw scores under a negative scale is the row's minimum.
  bool lowest_of_raw() const {
    return raw_maximum() && factor_after_store() && c_.operands.stored_score_factor() < 0;
  }
  bool factor_after_store() const {
    // a softcap that is applied before the scale multiplies where the scale would
    return !c_.kernel.score.scale_before_store &&
           (c_.head.modifiers.softcap || c_.operands.stored_score_factor() != 1);
  }
  /// Largest |z^| of the row, far keys included.
  Interval reach_of(const RowScan& row, double score_error) const {
    Interval raw = abs(c_.operands.score_factor()) * row.norm * c_.scan.key_norm;
    if (c_.scan.softcap) raw = min(raw, *c_.scan.softcap);
    return raw + Interval(score_error) + Interval(row.bias.largest);
  }
  /// A row that may take another path fails nothing: what it would fail is unknown.
  bool may_take_another(std::int64_t row) const {
    return c_.paths != nullptr && c_.paths->of[static_cast<std::size_t>(row)] == RowPath::either;
  }
  RowExecution execute(const RowInputs& in, RowFacts& facts) const;
  /// Do computed tiles hold hidden keys with a finite score?
  bool finite_mask() const {
    const Visibility& v = c_.head.visibility;
    const bool hides = v.kind != MaskKind::none || c_.head.modifiers.hides_keys() ||
                       (c_.kernel.tiles.padding == Padding::masked && v.length < v.keys);
    return hides && std::isfinite(c_.kernel.mask.value);
  }
  /// Are parts of the keys worked off by themselves and merged by their LSE?
  bool split() const { return c_.kernel.split.parts > 1; }
  double merge_lost(const RowInputs& in) const;
  void merge_claims(std::vector<Claim>& claims) const;
  Interval scaled_constant(double stored) const;
  Interval hidden_score(const RowScan& row) const;
  std::int64_t cost(const RowInputs& in) const;
  /// Scores of execute_row are products alone, of all keys.
  bool exact_evaluation_covers_rows() const {
    const ScoreModifiers& modifiers = c_.head.modifiers;
    return !modifiers.bias && !modifiers.softcap && !modifiers.sink &&
           !(c_.lazy != nullptr && lowest_of_raw()) && !split();
  }

  const PathContext& c_;
  bool online_;
  Limits limits_;
  double eps_;
  RowScoreErrors row_errors_;
  std::vector<RowInputs> inputs_, blocks_;  ///< of each row; the worst of each `block` of them
  Extremes extremes_;
};

RowInputs PathBuilder::fixed_inputs(std::int64_t i, const FixedStabilizer& stabilizer,
                                    Upper<Log2> largest) const {
  const RowScan& row = c_.scan.rows[static_cast<std::size_t>(i)];
  RowInputs in;
  in.row = i;
  in.visible = in.least_visible = row.visible;
  in.norm = row.norm.hi();
  in.score_error = row_error(row);
  in.mu = stabilizer.mu(i);
  in.mean_score_lo = row.mean_score.lo();
  in.exponent = stabilizer.largest_exponent(i, Upper<Log2>(in.score_error));
  if (c_.scan.softcap) {  // a cap raises negative scores
    const Interval from_mu = Interval(in.score_error) - Interval(in.mu.lo());
    in.exponent = tighter(max(in.exponent, Upper<Log2>(from_mu.hi())),
                          Upper<Log2>((*c_.scan.softcap + from_mu).hi()));
  }
  if (c_.head.modifiers.bias) in.exponent = in.exponent + Upper<Log2>(row.bias.most);
  in.exponent = tighter(  // z^ - mu, z^ at most e above the largest score
      in.exponent, modified(largest, row) + Upper<Log2>(in.score_error) - Lower<Log2>(in.mu.lo()));
  in.far = row.far_keys;
  if (in.far > 0) in.far_exponent = in.exponent + Upper<Log2>(8 - far_bits);
  if (c_.paths != nullptr) in.exponent = tighter(in.exponent, Upper<Log2>(stabilizer.cap()));
  if (c_.scan.padding_keys > 0) {  // zero keys have exponent 0 - mu
    in.exponent = max(in.exponent, Upper<Log2>(-in.mu.lo()));
  }
  in.least_exponent = stabilizer.least_exponent(i);
  in.exact_mean = Lower<Log2>((Interval(row.mean_score.lo()) - Interval(in.mu.hi())).lo());
  // a stored exponent of at least this is one of exact scores within their error
  in.mean_exponent =
      tighter(in.exact_mean - Upper<Log2>(in.score_error),
              in.least_exponent - Upper<Log2>(in.score_error) - Upper<Log2>(in.score_error));
  in.bias_reach = row.bias.largest;
  add_sink(in);
  if (finite_mask()) {
    in.hidden_score = hidden_score(row);
    in.exponent = max(in.exponent, Upper<Log2>((in.hidden_score - in.mu).hi()));
  }
  return in;
}

/// A constant of the stored score's unit, as the kernel scales it.
Interval PathBuilder::scaled_constant(double stored) const {
  const Interval c(factor_after_store() ? c_.operands.stored_score_factor() : 1.0);
  const Interval x = Interval(stored) * c;
  return hull(x,
              rounded(c_.up, c_.kernel.exponent.format,
                      rounded(c_.up, c_.kernel.score.store, Interval(stored), false) * c, false));
}

/// What a hidden key scores: the mask's value, or that and its own score.
Interval PathBuilder::hidden_score(const RowScan& row) const {
  const Interval value = scaled_constant(c_.kernel.mask.value);
  if (c_.kernel.mask.form == MaskForm::select) return value;
  // their sum is rounded once more
  const Interval own(reach_of(row, row_error(row)).hi());
  const Interval sum = value + Interval(-own.hi(), own.hi());
  const double u = std::ldexp(
      1.0, 1 - std::min(c_.kernel.score.store.precision, c_.kernel.exponent.format.precision));
  return sum + Interval(sum.magnitude()) * Interval(-u, u);
}

/// The sink as one more key, of its own exponent. It only adds to l, unless it is flushed.
void PathBuilder::add_sink(RowInputs& in) const {
  if (!c_.scan.sink) return;
  const Interval error(sink_error(c_.scan).value());
  const Interval exponent = *c_.scan.sink - in.mu + Interval(-error.hi(), error.hi());
  ++in.visible;
  in.exponent = max(in.exponent, Upper<Log2>(exponent.hi()));
  in.sink_may_flush = exponent.lo() < limits_.flush_exponent + 1;
}

RowInputs PathBuilder::online_inputs(std::int64_t i, Upper<Log2> largest) const {
  const RowScan& row = c_.scan.rows[static_cast<std::size_t>(i)];
  const KernelModel& k = c_.kernel;
  RowInputs in;
  in.row = i;
  in.visible = in.least_visible = row.visible;
  in.norm = row.norm.hi();
  in.score_error = row_error(row);
  in.mean_score_lo = row.mean_score.lo();
  const Interval factor = abs(c_.operands.score_factor());
  Interval reach = reach_of(row, in.score_error);
  // until a key is visible the maximum is the mask's value, rounded like any other
  const Interval plain_reach = reach;
  if (finite_mask()) {
    in.hidden_score = hidden_score(row);
    reach = max(reach, abs(in.hidden_score));
  }
  // Exponent of the maximum itself: a fused kernel subtracts the rounded product m c from the
  // unrounded s c; a narrower store rounds m.
  const auto half_ulp_at = [&](const Format& f, const Interval& x) {
    if (!std::isfinite(x.hi())) return infinity;
    const double magnitude = std::max(x.hi(), std::ldexp(1.0, f.emin));
    return std::ldexp(1.0, std::ilogb(magnitude) + 1 - f.precision);
  };
  const auto half_ulp = [&](const Format& f) { return half_ulp_at(f, reach); };
  double residual = 0;
  if (k.exponent.fused && factor_after_store()) {
    // kernels round the product where they multiply scores, or where they subtract
    residual = std::max(half_ulp(k.score.accumulator.format), half_ulp(k.exponent.format));
  }
  // These rules subtract RN(m c) in the exponent's format; with c = 1 that rounds a wider m.
  if (raw_maximum() && !factor_after_store() &&
      (k.exponent.format.precision < k.score.store.precision ||
       k.exponent.format.least_exponent() > k.score.store.least_exponent())) {
    residual = std::max(residual, half_ulp(k.exponent.format));
  }
  // The maximum is one of scores in the store format, in the exponent's once scaled there, or a
  // product in the accumulator's if the exponent is fused.
  const bool scaled_last = factor_after_store();
  const Format& held = !scaled_last       ? k.score.store
                       : k.exponent.fused ? k.score.accumulator.format
                                          : k.exponent.format;
  if (k.stabilizer.store.precision < held.precision ||
      k.stabilizer.store.least_exponent() > held.least_exponent()) {
    const double roundings = k.stabilizer.round_up ? 2 : 1;  // half an ulp, or all of it
    residual =
        (Interval(residual) + Interval(roundings) * Interval(half_ulp(k.stabilizer.store))).hi();
  }
  const double lag = c_.lazy != nullptr ? largest_lag(k, c_.operands, *c_.lazy) : 0;
  const double offset = c_.lazy != nullptr ? c_.lazy->offset : 0;
  if (offset != 0) {  // one more rounding: of m c less the offset
    residual = (Interval(residual) +
                Interval(half_ulp_at(k.exponent.format, reach + Interval(std::fabs(offset)))))
                   .hi();
  }
  in.residual = residual;
  // Frames: tile maxima, alphas and the fused product are each rounded; their errors telescope to
  // at most 4.2 u Z + 135 u beyond the residual (composed bound, online kernels).
  const double frame =
      (Interval(5.2) * Interval(half_ulp_at(k.exponent.format, plain_reach)) + Interval(residual) +
       Interval(std::ldexp(135.0, -k.exponent.format.precision)))
          .hi();
  in.score_error = (Interval(in.score_error) + Interval(frame)).hi();
  Interval top = Interval(residual) + Interval(lag) + Interval(offset);
  // a raw maximum under a negative scale is the row's minimum
  const bool lowest =
      lowest_of_raw() || (k.exponent.fused && c_.operands.stored_score_factor() < 0);
  if (lowest) top = Interval(2.0) * reach + Interval(residual) + Interval(offset);
  in.exponent = Upper<Log2>(top.hi());
  // the final m lies within the scores' error of the exact row maximum, or stays behind it
  const Upper<Log2> bound = tighter(
      largest,
      Upper<Log2>::of(row.centre_score + Interval((factor * row.norm * c_.scan.radius).hi())));
  const Interval most = Interval(modified(bound, row).value()) + Interval(in.score_error) +
                        Interval(residual) - Interval(offset);
  const Interval least = row.mean_score - Interval(in.score_error) - Interval(residual) -
                         Interval(lag) - Interval(offset);
  in.mu = Interval(std::min(least.lo(), most.hi()), most.hi());
  if (lowest) in.mu = hull(in.mu, -reach - Interval(residual) - Interval(offset));
  in.exact_mean = Lower<Log2>((Interval(row.mean_score.lo()) - Interval(in.mu.hi())).lo());
  in.mean_exponent = in.exact_mean - Upper<Log2>(in.score_error);
  in.bias_reach = row.bias.largest;
  // Where the maximum stays behind, it may rise after the row's largest score: by rescale factors
  // whose errors are those of the frames.
  in.top_exponent =
      Lower<Log2>((Interval(offset) - Interval(c_.lazy != nullptr ? frame : residual)).lo());
  if (std::isfinite(c_.initial_max)) {
    const Interval start = scaled_constant(c_.initial_max);
    const Interval own((row.mean_score - Interval(in.score_error)).lo(), most.hi());
    in.initial = start - own;
    in.mu = max(in.mu, start);
    in.exact_mean = Lower<Log2>((Interval(row.mean_score.lo()) - Interval(in.mu.hi())).lo());
    in.mean_exponent = in.exact_mean - Upper<Log2>(in.score_error);
    in.top_exponent = in.top_exponent - Upper<Log2>(std::max(0.0, in.initial.hi()));
  }
  const std::int64_t spread =
      c_.head.modifiers.hides_keys() || c_.head.modifiers.bias ? c_.head.keys() : row.visible;
  if (may_fall() && spread > k.tiles.keys) in.correction = (Interval(2.0) * reach).hi();
  if (split()) {  // a part has its own maximum, and a mean that nobody knows
    in.mu = hull(in.mu, -reach - Interval(residual) - Interval(lag) - Interval(offset));
    in.exact_mean = in.mean_exponent = Lower<Log2>();
  }
  in.far = row.far_keys;
  if (in.far > 0) {
    in.far_exponent = Upper<Log2>((Interval(in.mu.hi()) - Interval(in.mu.lo())).hi()) +
                      Upper<Log2>(std::max(0.0, offset)) + Upper<Log2>(8 - far_bits);
  }
  add_sink(in);
  return in;
}

void PathBuilder::worsen(RowInputs& worst, const RowInputs& in) {
  if (in.mean_exponent.value() < worst.mean_exponent.value()) worst.row = in.row;
  worst.visible = std::max(worst.visible, in.visible);
  worst.least_visible = std::min(worst.least_visible, in.least_visible);
  worst.norm = std::max(worst.norm, in.norm);
  worst.exponent = max(worst.exponent, in.exponent);
  worst.mean_exponent = min(worst.mean_exponent, in.mean_exponent);
  worst.exact_mean = min(worst.exact_mean, in.exact_mean);
  worst.reach = std::max(worst.reach, in.reach);
  worst.bias_reach = std::max(worst.bias_reach, in.bias_reach);
  worst.least_exponent = min(worst.least_exponent, in.least_exponent);
  worst.top_exponent = min(worst.top_exponent, in.top_exponent);
  worst.residual = std::max(worst.residual, in.residual);
  worst.correction = std::max(worst.correction, in.correction);
  worst.hidden_score = hull(worst.hidden_score, in.hidden_score);
  worst.initial = hull(worst.initial, in.initial);
  worst.mu = hull(worst.mu, in.mu);
  worst.mean_score_lo = std::min(worst.mean_score_lo, in.mean_score_lo);
  worst.score_error = std::max(worst.score_error, in.score_error);
  worst.far = std::max(worst.far, in.far);
  worst.far_exponent = max(worst.far_exponent, in.far_exponent);
  worst.sink_may_flush = worst.sink_may_flush || in.sink_may_flush;
}

/// Inputs whose bounds hold for every row of inputs_[begin, end): each bound is monotone in each.
RowInputs PathBuilder::worst_of(std::size_t begin, std::size_t end) const {
  RowInputs worst = inputs_[begin];
  for (std::size_t i = begin; i < end;) {
    const bool whole = i % block == 0 && (i + block <= end || end == inputs_.size());
    worsen(worst, whole ? blocks_[i / block] : inputs_[i]);
    i += whole ? block : 1;
  }
  return worst;
}

/// The worst of each block of rows, the rows that are extreme in one input, and what the claims
/// over the whole head are made from.
void PathBuilder::summarise() {
  blocks_.clear();
  extremes_ = {};
  Extremes& most = extremes_;
  double own_error = 0;  // of a row's scores, without what online softmax adds
  for (std::size_t at = 0; at < inputs_.size(); ++at) {
    const RowInputs& in = inputs_[at];
    if (at % block == 0) {
      blocks_.push_back(in);
    } else {
      worsen(blocks_.back(), in);
    }
    if (at == 0) most.worst = in;
    const auto keep = [&](std::size_t which, bool worse) {
      if (worse) most.rows[which] = at;
    };
    keep(0, in.norm > most.worst.norm);
    keep(1, in.exponent.value() > most.worst.exponent.value());
    keep(2, in.mean_exponent.value() < most.worst.mean_exponent.value());
    keep(3, in.exact_mean.value() < most.worst.exact_mean.value());
    keep(4, in.score_error > most.worst.score_error);
    keep(5, in.mean_score_lo < most.worst.mean_score_lo);
    keep(6, in.visible > most.worst.visible);
    keep(7, in.least_visible < most.worst.least_visible);
    const double mu = in.mu.magnitude();
    if (mu >= most.mu) {
      most.mu = mu;
      most.mu_row = in.row;
    }
    const RowScan& row = c_.scan.rows[static_cast<std::size_t>(in.row)];
    const double raw = in.score_error + row.operand_error;  // upward
    if (raw > most.raw_error) most.raw_error = raw;
    own_error = std::max(own_error, row_error(row));
    worsen(most.worst, in);
  }
  if (inputs_.empty()) return;
  // the bound of |z^| is monotone in the norm, the error and the bias
  RowScan largest;
  largest.norm = Interval(most.worst.norm);
  largest.bias.largest = most.worst.bias_reach;
  most.score_reach = reach_of(largest, own_error).hi();
}

Upper<Relative> PathBuilder::lost_by_flush(const RowInputs& in, double log2_least_l) const {
  if (in.least_exponent.value() >= limits_.flush_exponent && !in.sink_may_flush && in.far == 0) {
    return Upper<Relative>(0.0);
  }
  const Lower<Log2> margin = in.mean_exponent - Upper<Log2>(limits_.flush_exponent);
  // A lost key's computed exponent is below the threshold, and the exact one within the scores'
  // error of it, or it is far.
  const double error =
      c_.scan.sink ? std::max(in.score_error, sink_error(c_.scan).value()) : in.score_error;
  const Upper<Log2> threshold =
      max(Upper<Log2>((Interval(limits_.flush_exponent) + Interval(error)).hi()), in.far_exponent);
  const Lower<Log2> mass = row_mass(c_.up, in.least_visible, in.exact_mean);
  Upper<Relative> lost = in.far > 0 ? lost_mass_by_count(c_.up, in.visible, threshold, mass)
                                    : lost_mass(c_.up, margin);
  if (in.sink_may_flush && in.far == 0) {
    lost = Upper<Relative>(
        (Interval(lost.value()) + Interval(lost_mass_by_count(c_.up, 1, threshold, mass).value()))
            .hi());
  }
  // One key that is the maximum itself is kept.
  if (online_ && in.visible == 1 && in.top_exponent.value() >= limits_.flush_exponent) {
    lost = Upper<Relative>(0.0);
  } else if (online_ && std::isfinite(log2_least_l)) {
    // Exact weights: a lost key's computed exponent is below the threshold, the maximum's is at
    // least -residual; each may differ from the exact one by the score's error.
    lost = tighter(lost, lost_mass_by_count(c_.up, in.visible, threshold,
                                            in.top_exponent - Upper<Log2>(in.score_error)));
    // a rescale can flush what l held: at most 2^L a tile
    lost = Upper<Relative>((Interval(lost.value()) +
                            Interval(lost_mass_by_count(c_.up, rescales(in.visible),
                                                        Upper<Log2>(flush_exponent(
                                                            c_.kernel.denominator.format,
                                                            c_.kernel.denominator.flush_to_zero)),
                                                        Lower<Log2>(log2_least_l))
                                         .value()))
                               .hi());
  }
  if (split()) {
    lost = Upper<Relative>((Interval(lost.value()) + Interval(merge_lost(in))).hi());
  }
  return Upper<Relative>(std::min(1.0, lost.value()));
}

/// Share of the mass in parts whose weight E(LSE - largest LSE) is flushed: each part's LSE is off
/// by no more than its scores, its sums (twice N at most) and its own rounding.
double PathBuilder::merge_lost(const RowInputs& in) const {
  const Interval log2_n =
      log2(Interval(static_cast<double>(std::max<std::int64_t>(1, in.visible))));
  const Interval size = abs(c_.operands.score_factor()) * Interval(in.norm) * c_.scan.key_norm +
                        Interval(in.score_error) + Interval(in.bias_reach) + log2_n +
                        Interval(256.0);
  const Interval off =
      Interval(2.0) * (Interval(2.0) * Interval(in.score_error) + log2_n + Interval(8.0)) +
      size * Interval(0x1p-20);
  return exp2(Interval(limits_.flush_exponent) + off +
              log2(Interval(static_cast<double>(c_.kernel.split.parts))))
      .hi();
}

/// What a merge does with parts of which a row sees nothing, with the base of its LSE, and with the
/// differences of two.
void PathBuilder::merge_claims(std::vector<Claim>& claims) const {
  const KernelModel& k = c_.kernel;
  const std::int64_t tile = k.tiles.keys;
  const std::int64_t tiles = (c_.head.keys() + tile - 1) / tile;
  const std::int64_t part = (tiles + k.split.parts - 1) / k.split.parts;  // of tiles, at most
  bool all_see_all = true, one_tile = false, two_empty = false;
  std::int64_t row = -1;
  double reach = 0;
  for (const RowInputs& in : inputs_) {
    const std::vector<KeyRange> runs = visible_runs(c_.head, in.row);
    const std::int64_t first = runs.front().begin / tile, last = (runs.back().end - 1) / tile;
    all_see_all = all_see_all && in.visible == c_.head.keys() && tiles >= k.split.parts;
    const bool alone = first == last && tiles >= k.split.parts;
    const bool late = first >= 2 * part;
    if ((alone && !one_tile) || (late && !two_empty)) row = in.row;
    one_tile = one_tile || alone;
    two_empty = two_empty || late;
    const RowScan& scan = c_.scan.rows[static_cast<std::size_t>(in.row)];
    reach = std::max(reach, reach_of(scan, row_error(scan)).hi());
  }
  const auto statement = [&](const char* id, const Interval& value, double limit,
                             const std::string& note) {
    Claim claim;
    claim.id = id;
    claim.kind = LimitKind::at_most;
    claim.value = value;
    claim.limit = limit;
    claim.row = row;
    claim.note = note;
    claims.push_back(std::move(claim));
  };
  if (k.split.reads != k.lse.base) {
    statement("merge.identity", Interval(1.0), 0,
              "the merge takes LSE in another base than it has");
  } else if (k.split.merge != MergeRule::lse || k.tiles.empty_row != EmptyRowRule::zero) {
    // the rule's own care for (0, -infinity), and that parts without keys are that
    const bool certain =
        k.split.merge == MergeRule::lse_naive && k.tiles.empty_row == EmptyRowRule::zero
            ? two_empty
            : k.tiles.empty_row != EmptyRowRule::zero && one_tile;
    const bool never = all_see_all;
    statement("merge.identity",
              certain ? Interval(1.0)
              : never ? Interval(0.0)
                      : Interval(0.0, 1.0),
              0, "a part without keys is (0, -inf), and changes nothing");
  } else {
    statement("merge.identity", Interval(0.0), 0, "a part without keys is (0, -inf), and weighs 0");
  }
  if (k.split.merge == MergeRule::lse_log1p) {
    const Interval difference = (Interval(2.0) * Interval(reach) +
                                 log2(Interval(static_cast<double>(c_.scan.most_visible)))) *
                                ln_2();
    statement("merge.range", Interval(-infinity, difference.hi()), 88.7,
              "largest difference of two LSE, natural units: e of it has to be finite");
  } else {
    const double v = c_.scan.v_magnitude > 0 ? log2(Interval(c_.scan.v_magnitude)).hi() : -infinity;
    statement(
        "merge.range",
        Interval(-infinity,
                 (Interval(v) + log2(Interval(static_cast<double>(k.split.parts))) + Interval(2.0))
                     .hi()),
        log2_max_finite(c_.up, fp32).value(),
        "exponents of a merge are at most 0; log2 of its largest sum");
  }
}

/// log2 of the largest partial sum of n terms of at most 2^term each. Rescale factors of a unit
/// that may exceed E(0) = 1 let terms grow, and sums leave the grid of their terms.
Upper<Log2> PathBuilder::largest_sum(const Accumulator& accumulator, std::int64_t n,
                                     Upper<Log2> term) const {
  const Exp2Unit& unit = c_.kernel.exp2;
  if (!online_ || unit.monotone_at_integers || unit.max_error_ulps <= 0.5) {
    return partial_sums(c_.up, accumulator, n, term).log2_largest;
  }
  const Interval growth =
      Interval(static_cast<double>(rescales(n))) *
          log2(Interval(1.0) + Interval(exp2_relative_error(unit).value())) +
      log2(Interval(1.0) +
           Interval(accumulation_error(c_.up, accumulator, n, rescales(n)).value()));
  return Upper<Log2>(
      (Interval(term.value()) + log2(Interval(static_cast<double>(n))) + growth).hi());
}

/// Padded weight as computed over the exact l: pad 2^(0 - mu) / (N 2^(zbar - mu)). mu cancels; what
/// does not are the rounding of 0 - mu to the exponent's format, the unit's error and P's rounding.
double PathBuilder::padded_share(const RowInputs& in) const {
  const KernelModel& k = c_.kernel;
  const double u = std::ldexp(1.0, -k.exponent.format.precision);
  Interval log2_share = log2(Interval(static_cast<double>(c_.scan.padding_keys))) -
                        log2(Interval(static_cast<double>(in.least_visible))) -
                        Interval(in.mean_score_lo) +
                        log2(Interval(1.0) + Interval(exp2_relative_error(k.exp2).value())) +
                        log2(Interval(1.0) + Interval(std::ldexp(1.0, -k.p.format.precision))) +
                        Interval(u) * Interval(in.mu.magnitude() + 1);
  if (online_) log2_share += Interval(in.score_error);
  double share = exp2(Interval(log2_share.hi())).hi();
  // Below the normal range errors are absolute: each stage adds at most its floor.
  const int least_normal = std::max(k.exp2.result.emin, k.p.format.emin);
  if (!(-in.mu.hi() > least_normal + 1)) {
    const Interval floor =
        Interval(exp2_floor_error(k.exp2).value()) + Interval(std::ldexp(1.0, k.p.format.emin));
    const Interval log2_exact_l = log2(Interval(static_cast<double>(in.least_visible))) +
                                  Interval(in.mean_score_lo) - Interval(in.mu.hi());
    share = (Interval(share) + Interval(static_cast<double>(c_.scan.padding_keys)) * floor *
                                   exp2(-Interval(log2_exact_l.lo())))
                .hi();
  }
  return share;
}

/// log2 of what a kept weight keeps at least of itself where exp2's results are subnormal: errors
/// are absolute there.
Interval PathBuilder::log2_kept_below_normal() const {
  const Exp2Unit& unit = c_.kernel.exp2;
  if (unit.flush_to_zero || limits_.flush_exponent >= unit.result.emin) return Interval(0.0);
  const Interval kept =
      log2_kept(Interval(unit.max_error_ulps) *
                exp2(Interval(unit.result.least_exponent()) - Interval(limits_.flush_exponent)));
  const bool keeps_half = unit.monotone_at_integers || unit.max_error_ulps <= 0.5;
  return Interval(keeps_half ? std::max(kept.lo(), -1.0) : kept.lo());
}

RowFacts PathBuilder::bound(const RowInputs& in) const {
  const KernelModel& k = c_.kernel;
  RowFacts facts;
  facts.key = c_.scan.radius_at;
  facts.score_range =
      Interval(-infinity, score_range(c_.up, k, c_.operands, Upper<Absolute>(in.norm),
                                      Upper<Absolute>(c_.scan.key_norm.hi()))
                              .value());
  if (c_.head.modifiers.bias) {  // the sum of score and bias is stored too
    const Interval reach = abs(c_.operands.score_factor()) * Interval(in.norm) * c_.scan.key_norm +
                           Interval(in.score_error) + Interval(in.bias_reach);
    const Interval over = log2(reach) - Interval(log2_max_finite(c_.up, k.score.store).value());
    facts.score_range = Interval(-infinity, std::max(facts.score_range.hi(), over.hi()));
  }
  const double x = std::isfinite(in.exponent.value())
                       ? rounded_exponent(Interval(in.exponent.value())).hi()
                       : infinity;
  facts.exponent = Interval(-infinity, x);
  const Upper<Log2> e = exp2_upper(c_.up, k.exp2, Upper<Log2>(x));
  const Upper<Log2> p = stored_weight(c_.up, k, e);
  facts.weight = Interval(-infinity, p.value());
  const std::int64_t n =
      finite_mask() ? std::max(added(in.visible), added(c_.head.keys())) : added(in.visible);
  const Upper<Log2> l = largest_sum(k.denominator, n, k.p.denominator_rounded ? max(p, e) : e);
  facts.denominator = Interval(-infinity, l.value());
  if (c_.scan.v_magnitude > 0) {
    const Interval v = log2(Interval(c_.scan.v_magnitude));
    const Upper<Log2> exact = largest_sum(k.numerator, n, p + Upper<Log2>(v.hi()));
    const Upper<Log2> power =
        largest_sum(k.numerator, n, p + Upper<Log2>(ceil_log2_at_least_one(c_.scan.v_magnitude)));
    facts.numerator = Interval(-infinity, tighter(exact, power).value());
  } else {
    facts.numerator = Interval(-infinity, -infinity);
  }

  // Lower bound of the computed l: kept mass, each kept weight at least (1 - eps) of the exact one.
  const Interval eps(exp2_relative_error(k.exp2).value());
  const bool narrow_l = k.denominator.format.precision < k.exp2.result.precision ||
                        k.denominator.format.emin > k.exp2.result.emin;
  const Interval kept_factor =
      Interval(static_cast<double>(1 + rescales(in.visible))) * log2_kept(eps) +
      log2_kept_below_normal() - Interval(k.p.denominator_rounded ? 1.0 : 0.0) -
      Interval(narrow_l ? 1.0 : 0.0) -
      Interval(std::ldexp(1.0, -k.exponent.format.precision)) *
          Interval(std::max(std::fabs(limits_.flush_exponent), std::fabs(x)) + 1);
  const double g = accumulation_error(c_.up, k.denominator, n, rescales(in.visible)).value();
  const Interval sum_factor = g < 1 ? log2(Interval(1.0) - Interval(g)) : unknown_log2;
  double least = -infinity;
  if (online_) {  // the row's maximum keeps E(-residual) in the final frame
    least = (Interval(in.top_exponent.value()) + kept_factor + sum_factor).lo();
  }
  // a saturated weight is lost too: its excess is missing in the numerator
  const bool may_saturate = k.p.saturate && p.value() > limits_.weight;
  facts.lost = Interval(0.0, may_saturate ? 1.0 : lost_by_flush(in, least).value());
  if (facts.lost.hi() < 1) {
    const Interval kept = log2(Interval(1.0) - Interval(facts.lost.hi()));
    const Lower<Log2> mass = row_mass(c_.up, in.least_visible, in.mean_exponent);
    least = std::max(least, (Interval(mass.value()) + kept + kept_factor + sum_factor).lo());
  }
  // A mean at or above the threshold keeps at least one key whole: l >= 2^L.
  if (!online_ && (in.mean_exponent - Upper<Log2>(limits_.flush_exponent)).value() >= 0) {
    least =
        std::max(least, static_cast<double>(flush_exponent(k.exp2.result, k.exp2.flush_to_zero)));
  }
  // a row that cannot stay in its range has a mass that its exponents do not allow
  if (c_.paths != nullptr) least = std::min(least, l.value());
  facts.final_l = Interval(least, l.value());
  if (c_.scan.v_magnitude > 0) {
    const double flush =
        product_flush(c_.up, k, n + rescales(in.visible), Lower<Log2>(least)).value();
    facts.flush = Interval(0.0, (Interval(flush) / Interval(c_.scan.v_magnitude)).hi());
  } else {
    facts.flush = Interval(0.0);
  }
  if (c_.scan.padding_keys > 0) facts.mask = Interval(0.0, padded_share(in));
  facts.hidden = in.hidden_score - in.mu;
  facts.initial = in.initial;
  if (finite_mask() && facts.hidden.hi() >= limits_.hidden) facts.lost = Interval(0.0, 1.0);
  facts.correction = Interval(-infinity, in.correction);
  if (may_fall() && in.correction > 0) {  // what was held may grow by it: nothing else is known
    facts.denominator = facts.final_l = facts.numerator = unknown_log2;
    facts.lost = Interval(0.0, 1.0);
    facts.flush = facts.mask = Interval(0.0, infinity);
  }
  return facts;
}

/// Largest exponent and largest weight of a row whose visible keys were run. Requires: no keys are
/// added besides.
void PathBuilder::refine_weights(RowFacts& facts, const RowExecution& run) const {
  if (c_.scan.padding_keys > 0) return;
  facts.exponent = meet(facts.exponent, rounded_exponent(run.max_exponent));
  const Upper<Log2> e = exp2_upper(c_.up, c_.kernel.exp2, Upper<Log2>(facts.exponent.hi()));
  facts.weight = Interval(facts.weight.lo(),
                          std::min(facts.weight.hi(), stored_weight(c_.up, c_.kernel, e).value()));
  // the largest weight is at least its exponent's, less the unit's error and P's rounding
  const Interval least = Interval(facts.exponent.lo()) +
                         log2_kept(Interval(exp2_relative_error(c_.kernel.exp2).value())) +
                         log2_kept(Interval(std::ldexp(1.0, -c_.kernel.p.format.precision)));
  // only where E and P are normal numbers, and P does not saturate below it
  const int least_normal = std::max(c_.kernel.exp2.result.emin, c_.kernel.p.format.emin);
  if (least.lo() >= least_normal + 1) {
    const double most = c_.kernel.p.saturate ? limits_.weight : infinity;
    facts.weight = Interval(std::min({least.lo(), facts.weight.hi(), most}), facts.weight.hi());
  }
}

void PathBuilder::refine(RowFacts& facts, const RowInputs& in, const RowExecution& run) const {
  if (may_fall() && facts.correction.hi() > 0) return;  // sums in frames that grow
  facts.score_range =
      Interval(run.score_overflow_lo, std::max(facts.score_range.hi(), run.score_overflow_lo));
  facts.key = run.max_key;
  if (online_) {
    // weights of earlier frames are larger: only the upper end of what is lost carries over, but
    // for a maximum that was followed through its frames
    if (c_.lazy != nullptr) {
      facts.lost = meet(facts.lost, run.lost);
      refine_weights(facts, run);
    } else if (!(c_.kernel.p.saturate && facts.weight.hi() > limits_.weight)) {
      facts.lost = Interval(0.0, std::min(facts.lost.hi(), run.lost.hi()));
    }
    // the same weights, rescaled and rounded once more a tile
    const Accumulator& l = c_.kernel.denominator;
    const Interval rescaled =
        Interval(run.log2_denominator.lo()) +
        Interval(static_cast<double>(rescales(in.visible))) *
            (log2_kept(Interval(exp2_relative_error(c_.kernel.exp2).value())) +
             log2(Interval(1.0) - Interval(std::ldexp(1.0, -l.format.precision))));
    const double least = std::max(facts.final_l.lo(), rescaled.lo());
    facts.final_l = Interval(least, facts.final_l.hi());
    if (c_.scan.v_magnitude > 0) {
      const double flush = product_flush(c_.up, c_.kernel, added(in.visible) + rescales(in.visible),
                                         Lower<Log2>(least))
                               .value();
      facts.flush = Interval(
          0.0, std::min(facts.flush.hi(), (Interval(flush) / Interval(c_.scan.v_magnitude)).hi()));
    }
    return;
  }
  if (c_.scan.padding_keys > 0) {  // padded keys that are added have exponent 0 - mu
    facts.exponent = meet(facts.exponent, rounded_exponent(max(run.max_exponent, -in.mu)));
  } else {
    refine_weights(facts, run);
    facts.denominator = meet(facts.denominator, run.log2_denominator);
    facts.final_l = meet(facts.final_l, run.log2_denominator);
  }
  if (c_.scan.padding_keys > 0) {
    // (a row that cannot stay in its range may have a mass that its exponents do not allow)
    facts.final_l = Interval(
        std::min(std::max(facts.final_l.lo(), run.log2_denominator.lo()), facts.final_l.hi()),
        facts.final_l.hi());
  }
  facts.numerator = meet(facts.numerator, run.log2_numerator);
  facts.lost = meet(facts.lost, run.lost);
  facts.flush = meet(facts.flush, run.product_flush);
}

std::vector<Claim> PathBuilder::row_claims(const RowFacts& facts, const RowInputs& in) const {
  std::vector<Claim> claims;
  const auto add = [&](const char* id, ClaimUnit unit, LimitKind kind, const Interval& value,
                       double limit, std::int64_t key = -1) {
    Claim claim;
    claim.id = id;
    claim.unit = unit;
    claim.kind = kind;
    claim.value = value;
    claim.limit = limit;
    claim.row = in.row;
    claim.key = key;
    claims.push_back(std::move(claim));
  };
  add("score.range", ClaimUnit::log2, LimitKind::at_most, facts.score_range, 0,
      c_.scan.key_norm_at);
  // Beyond a limit by no more than what the model leaves open is not evidence of failure.
  const auto certain = [](const Interval& value, LimitKind kind, double limit, double fails) {
    if (kind == LimitKind::at_most && value.lo() > limit && !(value.lo() > fails)) {
      return Interval(limit, value.hi());
    }
    if (kind == LimitKind::at_least && value.hi() < limit && !(value.hi() < fails)) {
      return Interval(value.lo(), limit);
    }
    return value;
  };
  add("exponent.upper", ClaimUnit::log2, LimitKind::at_most,
      certain(facts.exponent, LimitKind::at_most, limits_.exponent, limits_.exponent_fails),
      limits_.exponent, facts.key);
  add("p.range", ClaimUnit::log2, LimitKind::at_most,
      certain(facts.weight, LimitKind::at_most, limits_.weight, limits_.weight_fails),
      limits_.weight, facts.key);
  add("l.range", ClaimUnit::log2, LimitKind::at_most, facts.denominator, limits_.denominator);
  add("o.range", ClaimUnit::log2, LimitKind::at_most, facts.numerator, limits_.numerator);
  add("l.nonzero", ClaimUnit::log2, LimitKind::at_least,
      certain(facts.final_l, LimitKind::at_least, limits_.final_l_least, limits_.final_l_too_small),
      limits_.final_l_least);
  add("normalise.range", ClaimUnit::log2, LimitKind::at_most,
      certain(facts.final_l, LimitKind::at_most, limits_.final_l_most, limits_.final_l_too_big),
      limits_.final_l_most);
  add("mass.lost", ClaimUnit::relative, LimitKind::at_most, facts.lost, eps_);
  add("product.flush", ClaimUnit::relative, LimitKind::at_most, facts.flush, eps_);
  if (c_.scan.padding_keys > 0) {
    add("mask.mass", ClaimUnit::relative, LimitKind::at_most, facts.mask, eps_);
  }
  if (finite_mask()) {  // beside every visible score, E makes it zero
    add("mask.mass", ClaimUnit::log2, LimitKind::at_most, facts.hidden, limits_.hidden);
  }
  if (std::isfinite(c_.initial_max)) {
    add("stabilizer.stored", ClaimUnit::log2, LimitKind::at_most, facts.initial, 0);
  }
  if (may_fall()) {
    // a factor E(x), x <= 0, may exceed 1 by the unit's error: the exponents' bound has room for it
    const Interval eps(exp2_relative_error(c_.kernel.exp2).value());
    const double room = c_.kernel.exp2.monotone_at_integers ? 0 : log2(Interval(1.0) + eps).hi();
    add("correction.range", ClaimUnit::log2, LimitKind::at_most,
        facts.correction + Interval(0.0, room), room);
  }
  if (in.row >= 0 && may_take_another(in.row)) {
    for (Claim& claim : claims) {
      if (claim.outcome() == ClaimOutcome::fails) claim.value = hull(claim.value, claim.limit);
    }
  }
  return claims;
}

bool PathBuilder::decided(const RowFacts& facts) const {
  for (const Claim& claim : row_claims(facts, {})) {
    if (claim.outcome() != ClaimOutcome::holds) return false;
  }
  return true;
}

void PathBuilder::head_claims(std::vector<Claim>& claims, const FixedStabilizer* stabilizer) const {
  const KernelModel& k = c_.kernel;
  const auto add = [&](Claim claim) { claims.push_back(std::move(claim)); };
  {
    Claim finite;
    finite.id = "operand.finite";
    finite.value = Interval(0.0);
    finite.note = "Q, K and V hold no NaN or infinity";
    add(finite);
  }
  {
    Claim error;
    error.id = "score.error";
    error.required = false;
    if (!inputs_.empty()) {
      error.row = inputs_[extremes_.rows[4]].row;
      error.value = Interval(0.0, extremes_.worst.score_error);
    }
    error.note = "largest error of a score, log2 units";
    add(error);
    Claim against_raw = error;
    against_raw.reference = "raw";
    against_raw.value = Interval(0.0, extremes_.raw_error);
    against_raw.note = "the same with the pre-rounding of operands";
    add(against_raw);
  }
  const double largest_mu = extremes_.mu, largest_exponent = extremes_.worst.reach;
  const double largest_reach = extremes_.score_reach;
  {
    Claim defined;
    defined.id = "exponent.defined";
    defined.kind = LimitKind::at_most;
    const double log2_mu = largest_mu > 0 ? log2(Interval(largest_mu)).hi() : -infinity;
    defined.value = Interval(-infinity, log2_mu);
    defined.limit = std::min(log2_max_finite(c_.up, k.stabilizer.store).value(),
                             log2_max_finite(c_.up, k.exponent.format).value());
    defined.row = extremes_.mu_row;
    defined.note = "log2 |mu|: no term of mu overflows, so no exponent is inf - inf";
    add(defined);
  }
  const Visibility& visible = c_.head.visibility;
  const bool hides_padding = k.tiles.padding == Padding::masked && visible.length < visible.keys &&
                             visible.length % k.tiles.keys != 0;
  if (!k.score.scale_before_store && !(c_.operands.stored_score_factor() > 0) &&
      (visible.kind != MaskKind::none || hides_padding || c_.head.modifiers.hides_keys())) {
    Claim defined;
    defined.id = "exponent.defined";
    defined.kind = LimitKind::at_most;
    defined.value = Interval(0.0, 1.0);
    defined.limit = 0;
    defined.note = "masked scores are -inf: times a zero or negative scale NaN or +inf";
    add(defined);
  }
  if (stabilizer == nullptr && (c_.head.modifiers.hides_keys() || c_.head.modifiers.bias)) {
    Claim guarded;
    guarded.id = "exponent.defined";
    guarded.value = Interval(0.0);
    guarded.status = c_.guard ? ClaimStatus::assumed : ClaimStatus::enclosed;
    if (!c_.guard) {  // certain where a mask hides a tile that the row's block computes
      guarded.kind = LimitKind::at_most;
      guarded.value = Interval(0.0, 1.0);
      for (const RowInputs& in : inputs_) {
        if (c_.head.modifiers.mask.empty() || std::isfinite(k.mask.value)) break;
        if (visible_runs(c_.head, in.row).front().begin >= k.tiles.keys &&
            c_.head.modifiers.range(visible, in.row).begin == 0) {
          guarded.value = Interval(1.0);
          guarded.row = in.row;
        }
      }
    }
    guarded.note = "a running maximum of -inf, where the first tiles are hidden, is guarded";
    add(guarded);
  }
  if (stabilizer != nullptr) {
    Claim stored;
    stored.id = "stabilizer.stored";
    stored.required = false;
    double excess = -infinity;
    if (!inputs_.empty()) {  // rounding is monotone
      const double x = rounded_exponent(Interval(extremes_.worst.exponent.value())).hi();
      excess = (Interval(x) - Interval(stabilizer->cap())).hi();
      stored.row = inputs_[extremes_.rows[1]].row;
    }
    stored.value = Interval(-infinity, excess);
    stored.kind = LimitKind::at_most;
    stored.limit = 0;
    stored.note = "largest stored exponent over C; the ranges use the exponent itself";
    add(stored);
  } else {
    Claim correction;
    correction.id = "correction.range";
    if (lowest_of_raw()) {
      correction.kind = LimitKind::at_most;
      correction.value = Interval(0.0, 2 * largest_exponent);
      correction.note = "the maximum of raw scores under a negative scale is the row's minimum";
    } else if (k.exp2.monotone_at_integers) {
      correction.value = Interval(0.0);
      correction.note = "rescale factors are at most 1, per row: E(x) <= 1 for x <= 0";
    } else {
      correction.required = false;
      correction.value =
          Interval(0.0, log2(Interval(1.0) + Interval(exp2_relative_error(k.exp2).value())).hi());
      correction.note = "log2 of a rescale factor; the exponents' bound has room for it";
    }
    if (!may_fall() || lowest_of_raw()) add(correction);
    if (raw_maximum() && factor_after_store()) {
      // RN(m - m') before it is scaled
      Claim defined;
      defined.id = "exponent.defined";
      defined.kind = LimitKind::at_most;
      const Interval c(std::fabs(c_.operands.stored_score_factor()));
      const Interval change = Interval(2.0) * Interval(largest_reach) / c;
      defined.value =
          Interval(-infinity, largest_reach > 0 ? log2(Interval(change.hi())).hi() : -infinity);
      defined.limit = log2_max_finite(c_.up, k.exponent.format).value();
      defined.note = "log2 of the largest difference of two raw maxima";
      add(defined);
    }
  }
  {
    Claim rounding;
    rounding.id = "exponent.rounding";
    rounding.required = false;
    rounding.value =
        Interval(0.0, (Interval(std::ldexp(1.0, -k.exponent.format.precision)) *
                       Interval(std::max(largest_exponent, std::fabs(limits_.flush_exponent))))
                          .hi());
    rounding.note = "largest rounding of an exponent that matters, log2 units";
    add(rounding);
  }
  {
    Claim unit;
    unit.id = "exp2.contract";
    unit.unit = ClaimUnit::relative;
    unit.value = Interval(0.0, exp2_relative_error(k.exp2).value());
    unit.status =
        k.exp2.evidence == Evidence::assumed ? ClaimStatus::assumed : ClaimStatus::enclosed;
    unit.note = k.exp2.name + (k.exp2.source.empty() ? "" : ": " + k.exp2.source);
    add(unit);
  }
  {
    Claim absorption;
    absorption.id = "sum.absorption";
    absorption.kind = LimitKind::at_most;
    const double n = static_cast<double>(std::max<std::int64_t>(1, added(c_.scan.most_visible)));
    absorption.value = Interval(0.0, log2(Interval(n)).hi());
    absorption.limit = std::min(log2(Interval(absorption_limit(k.denominator))).lo(),
                                log2(Interval(absorption_limit(k.numerator))).lo());
    absorption.note = "log2 of the terms added; equal terms beyond the limit are absorbed";
    add(absorption);
  }
  if (c_.scan.empty_rows > 0) {
    Claim empty;
    empty.id = "empty.row";
    const bool right = k.tiles.empty_row == EmptyRowRule::zero;
    empty.kind = right ? LimitKind::none : LimitKind::at_most;
    empty.value = Interval(right ? 0.0 : 1.0);
    empty.limit = 0;
    empty.row = c_.scan.first_empty_row;
    empty.note = right ? "rows without visible keys give O = 0, LSE = -inf"
                       : "rows without visible keys do not give O = 0, LSE = -inf";
    add(empty);
  }
}

/// output.error and lse.error of rows [begin, end): a bound for every row in it.
std::vector<Claim> PathBuilder::output_of(std::size_t begin, std::size_t end) const {
  const RowInputs r = worst_of(begin, end);
  OutputErrorInputs in;
  in.visible = added(r.visible);
  const double reach = std::max(r.reach, std::fabs(limits_.flush_exponent)) + 1;
  const double e =
      c_.scan.sink ? std::max(r.score_error, sink_error(c_.scan).value()) : r.score_error;
  const Interval a = Interval(e) + Interval(std::ldexp(1.0, -c_.kernel.exponent.format.precision)) *
                                       Interval(reach);
  double mass = row_mass(c_.up, r.least_visible, r.exact_mean).value();
  if (online_) mass = std::max(mass, (r.top_exponent - Upper<Log2>(r.score_error)).value());
  const bool hidden_may_count = finite_mask() && (r.hidden_score - r.mu).hi() >= limits_.hidden;
  double far_share = 0;
  if (r.far > 0) {
    const Interval share = Interval(static_cast<double>(r.far)) *
                           exp2(Interval(r.far_exponent.value()) - Interval(mass));
    far_share = share.hi();
  }
  const double padded = c_.scan.padding_keys > 0 ? padded_share(r) : 0;
  in.exponent_error = Upper<Log2>(a.hi());
  in.log2_mass = Lower<Log2>(mass);
  in.rescales = rescales(in.visible);
  in.exp2_factors = 1 + static_cast<int>(std::min<std::int64_t>(in.rescales, 1 << 30));
  in.vmax_abs = c_.scan.v_magnitude;
  in.vmin = c_.scan.v_min;
  in.vmax = c_.scan.v_max;
  if (c_.scan.padding_keys > 0 || c_.scan.sink) {
    in.vmin = std::min(in.vmin, 0.0);
    in.vmax = std::max(in.vmax, 0.0);
  }
  const OutputError error = output_error(c_.up, c_.kernel, in);
  double total = error.defined ? error.total.value() : infinity;
  double lse_error = error.defined ? error.lse2.magnitude() : infinity;
  if (padded > 0) {  // a share of l that belongs to no key
    total = (Interval(total) + Interval(padded) * Interval(c_.scan.v_magnitude)).hi();
    lse_error = (Interval(lse_error) + log2(Interval(1.0) + Interval(padded))).hi();
  }
  if (hidden_may_count || split()) total = lse_error = infinity;
  if (far_share > 0) {
    // Far keys hold at most this share of the exact l, and twice it of the computed one. Taking
    // them out moves an average by at most twice max |V| times their share.
    const bool small = far_share <= 0.125;
    total = small ? (Interval(total) + Interval(8 * far_share) * Interval(c_.scan.v_magnitude)).hi()
                  : infinity;
    lse_error = small ? (Interval(lse_error) + Interval(4 * far_share)).hi() : infinity;
  }
  Claim output, lse;
  output.id = "output.error";
  output.unit = ClaimUnit::absolute;
  output.value = Interval(0.0, total);
  output.required = c_.options.max_error.has_value();
  if (output.required) {
    output.kind = LimitKind::at_most;
    output.limit = *c_.options.max_error;
  }
  output.row = r.row;
  output.note = "against exact attention over the multiplied operands";
  lse.id = "lse.error";
  lse.required = false;
  lse.value = Interval(0.0, lse_error);
  lse.row = r.row;
  lse.note = "error of LSE2, log2 units";
  return {output, lse};
}

void PathBuilder::output_claims(std::vector<Claim>& claims) const {
  const std::vector<Claim> errors = worst_claims(
      inputs_.size(), likely_rows(),
      [&](std::size_t begin, std::size_t end) { return output_of(begin, end); }, nullptr);
  const Claim& output = errors.front();
  claims.insert(claims.end(), errors.begin(), errors.end());
  Claim output_range;

  // O / l stays within max |V| times the rounding of P, the sums and the division.
  output_range.id = "normalise.range";
  output_range.kind = LimitKind::at_most;
  output_range.limit = std::min(log2_max_finite(c_.up, c_.kernel.normalise.output).value(),
                                log2_max_finite(c_.up, c_.kernel.numerator.format).value());
  output_range.note = "log2 of the largest output";
  double largest = -infinity;
  if (c_.scan.v_magnitude > 0) {
    const std::int64_t n = added(c_.scan.most_visible);
    const double g_o = accumulation_error(c_.up, c_.kernel.numerator, n, rescales(n)).value();
    const double g_l = accumulation_error(c_.up, c_.kernel.denominator, n, rescales(n)).value();
    // P is at most doubled by its rounding (least subnormal from half of it)
    const Interval by_error = Interval(c_.scan.v_magnitude) + Interval(output.value.hi());
    largest = g_l < 1 ? (log2(Interval(c_.scan.v_magnitude)) + Interval(1.0) +
                         log2(Interval(1.0) + Interval(g_o)) - log2(Interval(1.0) - Interval(g_l)) +
                         Interval(0.01))
                            .hi()
                      : infinity;
    largest = std::min(
        largest, std::isfinite(by_error.hi()) ? (log2(by_error) + Interval(0.01)).hi() : infinity);
  }
  output_range.value = Interval(-infinity, largest);
  claims.push_back(output_range);
}

/// Open rows that exact evaluation does not reach, all of them, are bounded once more, by the ball
/// and the box of the keys, then by the balls of their blocks; those that are decided then are
/// dropped.
void PathBuilder::try_tighter_bounds(std::vector<std::size_t>& open, std::vector<Claim>& worst,
                                     const FixedStabilizer* stabilizer) {
  std::int64_t scores = 0;
  for (const std::size_t i : open) scores += cost(inputs_[i]);
  const bool all_in_reach = exact_evaluation_covers_rows() &&
                            std::cmp_less_equal(open.size(), c_.options.evaluate_rows) &&
                            scores <= c_.options.evaluate_scores;
  if (!c_.options.tighter_bounds || all_in_reach) return;
  KeyGeometry& keys = c_.geometry;
  std::int64_t balls_left = c_.options.evaluate_scores;  // each costs about as much as a score
  const auto is_decided = [&](std::size_t i) {
    const std::int64_t row = inputs_[i].row;
    Upper<Log2> largest = keys.ball_or_box(row);
    inputs_[i] = inputs_of(row, stabilizer, largest);
    RowFacts facts = bound(inputs_[i]);
    const std::int64_t balls =
        (inputs_[i].visible + keys.blocks().size() - 1) / keys.blocks().size();
    if (!decided(facts) && balls <= balls_left) {
      balls_left -= balls;
      largest = tighter(largest, keys.block_balls(row));
      inputs_[i] = inputs_of(row, stabilizer, largest);
      facts = bound(inputs_[i]);
    }
    if (!decided(facts)) return false;
    worsen_claims(worst, row_claims(facts, inputs_[i]));
    return true;
  };
  std::erase_if(open, is_decided);
}

/// Scores that an exact evaluation of the row reads.
std::int64_t PathBuilder::cost(const RowInputs& in) const {
  if (!may_fall()) return in.visible;
  const RowRange rows = rows_of_decision(*c_.lazy, c_.kernel, c_.head.queries(), in.row);
  return in.visible * (1 + rows.end - rows.begin);
}

/// Evaluates one row exactly. Where maxima may fall, the row's facts are those of `in` anew if they
/// did not.
RowExecution PathBuilder::execute(const RowInputs& in, RowFacts& facts) const {
  const auto run = [&](const Interval& mu, const LazyFrames* frames) {
    return execute_row(c_.up, c_.head, c_.kernel, c_.operands, c_.scan, in.row, mu, in.score_error,
                       frames);
  };
  if (!online_) return run(in.mu, nullptr);
  if (c_.lazy != nullptr) {
    const LazyFrames frames =
        lazy_frames(c_.up, c_.head, c_.kernel, c_.operands, c_.scan, *c_.lazy, in.row, in.residual);
    if (may_fall() && frames.correction.hi() <= 0) {
      RowInputs stays = in;
      stays.correction = 0;
      facts = bound(stays);
    }
    if (may_fall()) facts.correction = frames.correction;
    return run(frames.mu.back(), &frames);
  }
  // the row's own maximum, known only once its scores are
  Interval most(-infinity, -infinity);
  for (const KeyRange& keys : visible_runs(c_.head, in.row)) {
    most = max(most, row_maximum(c_.up, c_.operands, in.row, keys.begin, keys.end).value);
  }
  const double slack = (Interval(in.score_error) + Interval(in.residual)).hi();
  Interval mu = most + Interval(-slack, slack);
  if (std::isfinite(c_.initial_max)) {
    const Interval initial = scaled_constant(c_.initial_max) - mu;
    if (initial.hi() <= 0) {
      RowInputs starts_below = in;
      starts_below.initial = initial;
      starts_below.top_exponent = in.top_exponent + Lower<Log2>(std::max(0.0, in.initial.hi()));
      facts = bound(starts_below);
    }
    facts.initial = initial;
    mu = max(mu, scaled_constant(c_.initial_max));
  }
  facts.hidden = in.hidden_score - mu;
  return run(mu, nullptr);
}

PathResult PathBuilder::build(const FixedStabilizer* stabilizer) {
  PathResult result;
  const auto rows = static_cast<std::int64_t>(c_.scan.rows.size());
  inputs_.reserve(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < rows; ++i) {
    if (c_.scan.rows[static_cast<std::size_t>(i)].visible == 0) continue;
    if (c_.paths != nullptr &&
        c_.paths->of[static_cast<std::size_t>(i)] == (online_ ? RowPath::fixed : RowPath::online)) {
      continue;
    }
    inputs_.push_back(inputs_of(i, stabilizer));
  }

  summarise();

  // Bounds for every row; the rows they leave open, worst first. The sound policy's gate asks only
  // whether all rows hold.
  std::vector<Claim> worst;
  std::vector<std::size_t> open;
  if (c_.paths != nullptr && c_.paths->either > 0) {
    // what a row may fail depends on its path: one by one
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const RowFacts own = bound(inputs_[i]);
      if (decided(own)) {
        worsen_claims(worst, row_claims(own, inputs_[i]));
      } else {
        open.push_back(i);
      }
    }
  } else {
    const bool list_open = online_ || c_.options.policy != Policy::clis ||
                           c_.options.evaluate_rows > 0 || c_.options.tighter_bounds;
    worst = worst_claims(
        inputs_.size(), likely_rows(),
        [&](std::size_t begin, std::size_t end) {
          const RowInputs in = end - begin == 1 ? inputs_[begin] : worst_of(begin, end);
          return row_claims(bound(in), in);
        },
        list_open ? &open : nullptr);
  }
  if (!open.empty()) {
    try_tighter_bounds(open, worst, stabilizer);
    summarise();
  }
  std::sort(open.begin(), open.end(), [&](std::size_t a, std::size_t b) {
    return inputs_[a].mean_exponent.value() < inputs_[b].mean_exponent.value();
  });
  std::int64_t scores_left = c_.options.evaluate_scores;
  for (const std::size_t i : open) {
    const RowInputs& in = inputs_[i];
    RowFacts facts = bound(in);
    const bool plain = exact_evaluation_covers_rows();
    if (plain && result.rows_evaluated < c_.options.evaluate_rows && cost(in) <= scores_left &&
        std::isfinite(in.score_error)) {
      const RowExecution run = execute(in, facts);
      refine(facts, in, run);
      ++result.rows_evaluated;
      scores_left -= cost(in);
    } else if (plain && result.rows_evaluated < c_.options.evaluate_rows &&
               cost(in) <= scores_left && facts.score_range.hi() > 0) {
      // scores that may overflow have no error bound; whether they do is another matter
      const RowExecution run =
          execute_row(c_.up, c_.head, c_.kernel, c_.operands, c_.scan, in.row, Interval(0.0), 0);
      facts.score_range =
          Interval(run.score_overflow_lo, std::max(facts.score_range.hi(), run.score_overflow_lo));
      ++result.rows_evaluated;
      scores_left -= cost(in);
    }
    if (!decided(facts)) ++result.rows_undecided;
    worsen_claims(worst, row_claims(facts, in));
  }
  head_claims(result.claims, stabilizer);
  if (split() && !inputs_.empty()) merge_claims(result.claims);
  for (Claim& claim : worst) result.claims.push_back(std::move(claim));
  if (!inputs_.empty()) output_claims(result.claims);
  return result;
}

}  // namespace

PathResult fixed_path_claims(const PathContext& context, const FixedStabilizer& stabilizer) {
  return PathBuilder(context, false).build(&stabilizer);
}

PathResult online_path_claims(const PathContext& context) {
  return PathBuilder(context, true).build(nullptr);
}

std::vector<Claim> worse_of(const std::vector<Claim>& a, const std::vector<Claim>& b) {
  std::vector<Claim> worst = a;
  std::vector<bool> taken(a.size(), false);
  for (const Claim& claim : b) {
    std::size_t i = 0;
    while (i < a.size() && (taken[i] || !same_statement(a[i], claim))) ++i;
    if (i == a.size()) {
      worst.push_back(claim);
      continue;
    }
    taken[i] = true;
    worst[i] = worse(a[i], claim);
  }
  return worst;
}

}  // namespace headroom
