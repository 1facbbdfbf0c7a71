#include "reference/evaluate/simulate/plain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

namespace headroom {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

constexpr std::size_t event_kinds = 5;

/// The first event of each kind of one row.
class RowEvents {
 public:
  explicit RowEvents(std::int64_t row) : row_(row) {}
  void note(EventKind kind, SimulationStage stage, std::int64_t tile, std::int64_t key,
            std::int64_t channel, double before, double after) {
    auto& first = first_[static_cast<std::size_t>(kind)];
    if (!first) first = SimulationEvent{row_, kind, stage, tile, key, channel, before, after};
  }
  /// `after` is what a step made of numbers that were finite.
  void undefined(SimulationStage stage, std::int64_t tile, std::int64_t key, std::int64_t channel,
                 double before, double after) {
    if (std::isnan(after)) note(EventKind::nan, stage, tile, key, channel, before, after);
    if (std::isinf(after)) note(EventKind::infinity, stage, tile, key, channel, before, after);
  }
  /// `after` is what a step made of `before`: a NaN of an infinity, an infinity, or zero, of a
  /// finite number.
  void watch(SimulationStage stage, std::int64_t tile, std::int64_t key, std::int64_t channel,
             double before, double after) {
    if (std::isnan(before) || (std::isinf(before) && !std::isnan(after))) return;
    undefined(stage, tile, key, channel, before, after);
    if (after == 0 && before != 0) {
      note(EventKind::flush, stage, tile, key, channel, before, after);
    }
  }
  void append_to(std::vector<SimulationEvent>& all) const {
    for (const auto& event : first_) {
      if (event) all.push_back(*event);
    }
  }

 private:
  std::int64_t row_;
  std::array<std::optional<SimulationEvent>, event_kinds> first_;
};

/// E(sink - mu).
float sink_weight(const HeadArithmetic& head, float shift) {
  return head.unit()(static_cast<float>(
      head.exponent_stage().add(*head.scaled_sink(), -static_cast<double>(shift))));
}

/// 1 / l as the kernel holds it.
float reciprocal_of(const HeadArithmetic& head, float l) {
  const float r =
      reciprocal(head.kernel().normalise, l, head.options().reciprocal, head.options().seed);
  // the reciprocal has its own rule for flushing, whatever the sums do
  return static_cast<float>(round_to(head.kernel().denominator.format, r));
}

/// LSE in the delivered base, FP32 operations: the logarithm of l 2^-offset plus the shift.
float log_sum(const KernelModel& kernel, float shift, float l, float offset) {
  const ExponentBase delivered = kernel.lse.base;
  const int power = offset_taken_out(kernel, offset);
  const float sum = power == 0 ? l : std::ldexp(l, -power);
  constexpr float ln_2 = 0x1.62e43p-1F, log2_e = 0x1.715476p+0F;
  float at = shift + static_cast<float>(power);
  if (kernel.exponent.base != delivered) at *= delivered == ExponentBase::e ? ln_2 : log2_e;
  return at + HeadArithmetic::logarithm(delivered, sum);
}

/// O / l in the numerator's format, l being result.denominator, and LSE: of l as the guard leaves
/// it (aiter), infinite where the guard finds no l (flash-attention).
void divide(const HeadArithmetic& head, const std::vector<double>& o, float offset,
            PartResult& result, RowEvents* events) {
  const Normalisation& last = head.kernel().normalise;
  const Stage numerator(head.kernel().numerator.format, head.kernel().numerator.flush_to_zero);
  const float l = result.denominator;
  const bool missing = l == 0 || std::isnan(l);
  float divisor = l;
  if (last.guard == DenominatorGuard::zero_to_one && missing) {
    divisor = 1;
    result.lse = lse_without_denominator(head.kernel());
  }
  const bool to_zero = last.guard == DenominatorGuard::zero_to_zero && missing;
  if (to_zero) result.lse = -infinity;
  if (last.guard == DenominatorGuard::maximum) {
    // max drops a NaN, as the hardware's does
    divisor = std::fmax(l, static_cast<float>(last.guard_value));
    result.lse = log_sum(head.kernel(), result.shift, divisor, offset);
  }
  const bool multiplied = to_zero || last.division == Division::reciprocal;
  const float inverse = to_zero ? 0.0F : multiplied ? reciprocal_of(head, divisor) : 0.0F;
  if (multiplied && l != 0 && events != nullptr) {
    events->watch(SimulationStage::normalise, -1, -1, -1, l, inverse);
  }
  result.output.clear();
  for (std::size_t c = 0; c < o.size(); ++c) {
    const double quotient = last.every_tile ? o[c]
                            : multiplied    ? numerator.multiply(o[c], inverse)
                                            : numerator.divide(o[c], divisor);
    result.output.push_back(static_cast<float>(quotient));
    if (events != nullptr) {
      events->watch(SimulationStage::normalise, -1, -1, static_cast<std::int64_t>(c), o[c],
                    quotient);
    }
  }
}

/// What a row carries through the loop.
struct RowState {
  RunningSum l;
  std::vector<RunningSum> o;
  std::vector<float> normalised;  ///< O / l after the last tile, where every tile is normalised
  float shift = 0;
  std::mt19937_64 random;  ///< of this row, whatever other rows are run
};

class PlainRun {
 public:
  PlainRun(const HeadArithmetic& head, LoopStabilizer& stabilizer, SimulationDump* dump,
           std::span<const std::int64_t> wanted)
      : head_(head),
        kernel_(head.kernel()),
        problem_(head.problem()),
        stabilizer_(stabilizer),
        dump_(dump),
        wanted_(wanted),
        unsaturated_(kernel_.p.format, kernel_.p.flush_to_zero),
        denominator_(kernel_.denominator, head.options().order,
                     kernel_.p.denominator_rounded ? kernel_.p.format : kernel_.exp2.result),
        numerator_(kernel_.numerator, head.options().order, kernel_.p.format, kernel_.operand) {}

  /// Results of one block's rows, one vector of parts a row; rows to be recomputed are marked.
  std::vector<std::vector<PartResult>> block(const std::vector<std::int64_t>& rows,
                                             std::vector<RowEvents>& events,
                                             std::vector<std::uint8_t>& recompute) {
    std::vector<std::vector<PartResult>> results(rows.size());
    const std::int64_t block = rows.empty() ? 0 : rows[0] / kernel_.tiles.queries;
    for (std::int64_t part = 0; part < kernel_.split.parts; ++part) {
      std::vector<PartResult> one =
          run_part(rows, part, tiles_of(head_, block, part), events, recompute);
      for (std::size_t r = 0; r < rows.size(); ++r) results[r].push_back(std::move(one[r]));
    }
    return results;
  }

 private:
  std::vector<PartResult> run_part(const std::vector<std::int64_t>& rows, std::int64_t part,
                                   std::vector<std::int64_t> tiles, std::vector<RowEvents>& events,
                                   std::vector<std::uint8_t>& recompute) {
    const auto n_rows = static_cast<std::int64_t>(rows.size());
    const auto dv = static_cast<std::size_t>(problem_.value_channels());
    std::vector<RowState> states(rows.size());
    for (RowState& s : states) {
      s.l = RunningSum(initial_denominator(head_, stabilizer_, part));
      s.o.assign(dv, RunningSum());
      s.normalised.assign(dv, 0.0F);
      s.random.seed(head_.options().seed * 0x9e3779b97f4a7c15U +
                    static_cast<std::uint64_t>(rows[static_cast<std::size_t>(&s - states.data())]));
    }
    stabilizer_.before_loop(rows);
    stabilizer_.order(tiles);
    std::vector<float> shift(rows.size(), 0.0F), correction(rows.size());
    std::vector<std::uint8_t> again(rows.size(), 0);
    std::vector<bool> visible_somewhere(rows.size(), false);

    for (std::size_t t = 0; t < tiles.size(); ++t) {
      const std::int64_t tile = tiles[t], begin = tile * kernel_.tiles.keys;
      const std::int64_t n = std::min<std::int64_t>(kernel_.tiles.keys, head_.tiled_keys() - begin);
      scores_.resize(static_cast<std::size_t>(n * n_rows));
      for (std::int64_t j = 0; j < n; ++j) {
        for (std::int64_t r = 0; r < n_rows; ++r) {
          bool visible = true;
          scores_[static_cast<std::size_t>(j * n_rows + r)] =
              score_of(rows[static_cast<std::size_t>(r)], begin + j, static_cast<std::int64_t>(t),
                       visible, events[static_cast<std::size_t>(r)]);
          if (visible) visible_somewhere[static_cast<std::size_t>(r)] = true;
        }
      }
      std::fill(correction.begin(), correction.end(), 1.0F);
      TileScores view;
      view.scores = scores_.data();
      view.rows = view.stride = n_rows;
      view.keys = n;
      view.first_key = begin;
      view.tile = static_cast<std::int64_t>(t);
      view.last = t + 1 == tiles.size();
      stabilizer_.tile(view, {shift.data(), correction.data(), again.data()});
      load_values(begin, n);
      for (std::int64_t r = 0; r < n_rows; ++r) {
        const auto i = static_cast<std::size_t>(r);
        add_tile(rows[i], r, n_rows, begin, n, static_cast<std::int64_t>(t), tile, shift[i],
                 correction[i], states[i], events[i]);
      }
    }
    std::vector<PartResult> results;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (again[r] != 0) recompute[r] = 1;
      results.push_back(finish(states[r], part, visible_somewhere[r], events[r]));
    }
    return results;
  }

  /// The stored score of one pair, masked; `visible` is cleared if the row cannot see the key.
  float score_of(std::int64_t row, std::int64_t key, std::int64_t tile, bool& visible,
                 RowEvents& events) {
    const bool padding = key >= head_.keys();
    if (padding && kernel_.tiles.padding == Padding::masked) {
      visible = false;
      return -infinity;
    }
    const bool sees = padding || problem_.sees(row, key);
    if (!sees && kernel_.mask.form == MaskForm::select) {
      visible = false;
      return head_.masked(0);
    }
    float s = head_.score(row, head_.key(key));
    if (!std::isfinite(s)) note_score(row, key, tile, s, events);
    if (!padding) {
      const float with_bias = head_.biased(row, key, s);
      if (std::isnan(with_bias)) {
        events.note(EventKind::nan, SimulationStage::mask, tile, key, -1, s, with_bias);
      } else if (std::isinf(with_bias) && std::isfinite(s) && problem_.visible(row, key)) {
        events.note(EventKind::infinity, SimulationStage::mask, tile, key, -1, s, with_bias);
      }
      s = with_bias;
    }
    visible = sees && (padding || problem_.visible(row, key));
    if (!sees) {
      const float hidden = head_.masked(s);
      if (std::isnan(hidden)) {
        events.note(EventKind::nan, SimulationStage::mask, tile, key, -1, s, hidden);
      }
      s = hidden;
    }
    return s;
  }

  /// A score that is not finite: made of an operand that is not, or of this exact one.
  void note_score(std::int64_t row, std::int64_t key, std::int64_t tile, float s,
                  RowEvents& events) const {
    const float *q = head_.query(row), *k = head_.key(key);
    double exact = 0;
    for (std::int64_t t = 0; t < head_.channels(); ++t) {
      if (!std::isfinite(q[t]) || !std::isfinite(k[t])) {
        const float operand = std::isfinite(q[t]) ? k[t] : q[t];
        events.undefined(SimulationStage::operand, tile, key, t, operand, s);
        return;
      }
      exact += static_cast<double>(q[t]) * k[t];
    }
    events.undefined(SimulationStage::score, tile, key, -1, exact * head_.early_factor(), s);
  }

  /// The tile's value rows, transposed; rows that pad it are zeros where they do not exist.
  void load_values(std::int64_t begin, std::int64_t n) {
    const std::int64_t dv = problem_.value_channels();
    values_.assign(static_cast<std::size_t>(n * dv), 0.0F);
    std::vector<float> row(static_cast<std::size_t>(dv));
    const double least = std::ldexp(1.0, kernel_.operand.emin);
    for (std::int64_t j = 0; j < n; ++j) {
      const bool padding = begin + j >= head_.keys();
      if (padding && (kernel_.tiles.padding == Padding::zero_keys || begin + j >= problem_.keys()))
        continue;
      problem_.v.load_row(begin + j, row.data());
      for (std::int64_t c = 0; c < dv; ++c) {
        float x = row[static_cast<std::size_t>(c)];
        if (kernel_.numerator.denormals_are_zero && std::fabs(static_cast<double>(x)) < least) {
          x = std::copysign(0.0F, x);
        }
        values_[static_cast<std::size_t>(c * n + j)] = x;
      }
    }
  }

  void add_tile(std::int64_t row, std::int64_t r, std::int64_t n_rows, std::int64_t begin,
                std::int64_t n, std::int64_t t, std::int64_t tile, float shift, float correction,
                RowState& state, RowEvents& events) {
    const auto dv = static_cast<std::size_t>(problem_.value_channels());
    SumsBefore before;
    if (head_.options().events) before = sums_of(state);
    events.undefined(SimulationStage::correction, t, -1, -1, before.l, correction);
    if (shift != -infinity) {
      events.undefined(SimulationStage::shift, t, -1, -1, state.shift, shift);
    }
    state.shift = shift;
    if (!kernel_.normalise.every_tile) {
      for (RunningSum& sum : state.o) sum.scale(numerator_, correction);
    }
    state.l.scale(denominator_, correction);
    const auto corrected_l = kernel_.normalise.every_tile
                                 ? static_cast<float>(state.l.total(denominator_, state.random))
                                 : 0;

    x_.resize(static_cast<std::size_t>(n));
    e_.resize(x_.size());
    p_.resize(x_.size());
    const Stage& weights = head_.weight_stage();
    for (std::int64_t j = 0; j < n; ++j) {
      const auto i = static_cast<std::size_t>(j);
      x_[i] = head_.exponent(scores_[static_cast<std::size_t>(j * n_rows + r)], state.shift);
    }
    head_.unit().apply(x_.data(), e_.data(), x_.size());
    for (std::int64_t j = 0; j < n; ++j) {
      const auto i = static_cast<std::size_t>(j);
      p_[i] = static_cast<float>(weights.round(e_[i]));
      const float s = scores_[static_cast<std::size_t>(j * n_rows + r)];
      if (std::isnan(x_[i]) && !std::isnan(s)) {
        events.note(EventKind::nan, SimulationStage::exponent, t, begin + j, -1, s, x_[i]);
      }
      if (std::isinf(x_[i]) && std::isfinite(s) && std::isfinite(shift)) {
        events.note(EventKind::infinity, SimulationStage::exponent, t, begin + j, -1, s, x_[i]);
      }
      if (std::isinf(x_[i]) && std::isnan(e_[i])) {  // a polynomial beyond its range
        events.note(EventKind::nan, SimulationStage::weight, t, begin + j, -1, x_[i], e_[i]);
      }
      if (std::isnan(x_[i])) continue;
      if (kernel_.p.saturate && !std::isnan(e_[i]) && !std::isfinite(unsaturated_.round(e_[i]))) {
        events.note(EventKind::saturation, SimulationStage::p, t, begin + j, -1, e_[i], p_[i]);
      }
      if (std::isinf(x_[i])) continue;
      events.undefined(SimulationStage::weight, t, begin + j, -1, x_[i], e_[i]);
      if (e_[i] == 0) {
        events.note(EventKind::flush, SimulationStage::weight, t, begin + j, -1, x_[i], 0);
      }
      events.watch(SimulationStage::p, t, begin + j, -1, e_[i], p_[i]);
    }
    const std::vector<float>& terms = kernel_.p.denominator_rounded ? p_ : e_;
    flush_subnormals(kernel_.denominator.denormals_are_zero,
                     kernel_.p.denominator_rounded ? kernel_.p.format : kernel_.exp2.result, terms,
                     terms_);
    state.l.add(denominator_, terms_.data(), nullptr, n, state.random);
    flush_subnormals(kernel_.numerator.denormals_are_zero, kernel_.p.format, p_, stored_);
    const auto l = static_cast<float>(state.l.total(denominator_, state.random));
    events.undefined(SimulationStage::denominator, t, -1, -1, before.l, l);
    if (kernel_.normalise.every_tile) {
      normalise_tile(n, l, corrected_l, state);
    } else {
      for (std::size_t c = 0; c < dv; ++c) {
        state.o[c].add(numerator_, stored_.data(), &values_[c * static_cast<std::size_t>(n)], n,
                       state.random);
      }
    }
    if (head_.options().events) note_sums(t, begin, n, l, before, state, events);
    if (dump_ != nullptr) write_dump(row, begin, n, r, n_rows, tile, correction, l, state);
  }

  /// l and O of a row before a tile, for its events.
  struct SumsBefore {
    double l = 0;
    std::vector<double> o;
  };
  SumsBefore sums_of(const RowState& state) const {
    std::mt19937_64 random = state.random;  // looking must not change the draws of the row
    SumsBefore sums;
    sums.l = state.l.total(denominator_, random);
    for (const RunningSum& sum : state.o) sums.o.push_back(sum.total(numerator_, random));
    return sums;
  }

  /// Terms that l or O read as zero, or that leave l zero.
  void note_flushed_terms(std::int64_t t, std::int64_t begin, std::int64_t n, float l,
                          RowEvents& events) const {
    const std::vector<float>& given = kernel_.p.denominator_rounded ? p_ : e_;
    for (std::int64_t j = 0; j < n; ++j) {
      const auto i = static_cast<std::size_t>(j);
      if (given[i] != 0 && (terms_[i] == 0 || l == 0)) {
        events.note(EventKind::flush, SimulationStage::denominator, t, begin + j, -1, given[i], 0);
      }
      if (p_[i] != 0 && stored_[i] == 0) {
        events.note(EventKind::flush, SimulationStage::numerator, t, begin + j, -1, p_[i], 0);
      }
    }
  }

  /// Flushed products and sums, sums that are not finite, and terms that sums no longer feel.
  void note_sums(std::int64_t t, std::int64_t begin, std::int64_t n, float l,
                 const SumsBefore& before, RowState& state, RowEvents& events) {
    const double share = head_.options().absorbed;
    std::mt19937_64 random = state.random;  // looking must not change the draws of the row
    note_flushed_terms(t, begin, n, l, events);
    const double absorbed_l = state.l.absorbed();
    if (std::isfinite(l) && absorbed_l > share * l) {
      events.note(EventKind::absorption, SimulationStage::denominator, t, -1, -1, l + absorbed_l,
                  l);
    }
    for (std::size_t c = 0; c < state.o.size(); ++c) {
      const auto channel = static_cast<std::int64_t>(c);
      if (kernel_.numerator.rounded_products) {
        for (std::int64_t j = 0; j < n; ++j) {
          const double product =
              static_cast<double>(stored_[static_cast<std::size_t>(j)]) *
              values_[c * static_cast<std::size_t>(n) + static_cast<std::size_t>(j)];
          if (product != 0 && numerator_.stage.round(product) == 0) {
            events.note(EventKind::flush, SimulationStage::numerator, t, begin + j, channel,
                        product, 0);
          }
        }
      }
      const double o = state.o[c].total(numerator_, random);
      const float* values = &values_[c * static_cast<std::size_t>(n)];
      if (o == 0 && before.o[c] == 0) {
        double sum = 0;
        for (std::int64_t j = 0; j < n; ++j) {
          sum += static_cast<double>(p_[static_cast<std::size_t>(j)]) * values[j];
        }
        if (sum != 0) {
          events.note(EventKind::flush, SimulationStage::numerator, t, -1, channel, sum, 0);
        }
      }
      if (!std::isfinite(o)) {
        for (std::int64_t j = 0; j < n; ++j) {
          if (std::isfinite(values[j])) continue;
          events.undefined(SimulationStage::operand, t, begin + j, channel, values[j], o);
          break;
        }
      }
      events.undefined(SimulationStage::numerator, t, -1, channel, before.o[c], o);
      const double absorbed = state.o[c].absorbed();
      if (std::isfinite(o) && absorbed > share * (std::fabs(o) + absorbed)) {
        events.note(EventKind::absorption, SimulationStage::numerator, t, -1, channel,
                    std::fabs(o) + absorbed, o);
      }
    }
  }

  /// As the Pallas TPU kernel: inv = 1 / l (or 1 if l = 0), O = O RN(alpha l inv) + RN(tile inv).
  void normalise_tile(std::int64_t n, float l, float corrected_l, RowState& state) {
    const float inverse = l == 0 ? 1.0F : reciprocal_of(head_, l);
    const auto keep = static_cast<float>(numerator_.stage.multiply(corrected_l, inverse));
    for (std::size_t c = 0; c < state.o.size(); ++c) {
      RunningSum tile;
      tile.add(numerator_, stored_.data(), &values_[c * static_cast<std::size_t>(n)], n,
               state.random);
      const double added = numerator_.stage.multiply(tile.total(numerator_, state.random), inverse);
      state.normalised[c] = static_cast<float>(
          numerator_.stage.add(numerator_.stage.multiply(state.normalised[c], keep), added));
      state.o[c] = RunningSum(state.normalised[c]);
    }
  }

  static void flush_subnormals(bool flush, const Format& format, const std::vector<float>& from,
                               std::vector<float>& to) {
    to = from;
    if (!flush) return;
    for (float& x : to) {
      if (std::fabs(static_cast<double>(x)) < std::ldexp(1.0, format.emin)) {
        x = std::copysign(0.0F, x);
      }
    }
  }

  PartResult finish(RowState& state, std::int64_t part, bool any_visible, RowEvents& events) {
    const bool added = accumulates(kernel_), with_sink = part == 0 && head_.scaled_sink();
    if (!any_visible && !added && kernel_.tiles.empty_row != EmptyRowRule::mean_of_visited) {
      PartResult empty = empty_row(head_, with_sink);
      if (!with_sink) empty.shift = state.shift;
      if (std::isnan(empty.lse)) {  // 0 / 0
        events.note(EventKind::nan, SimulationStage::normalise, -1, -1, -1, 0, not_a_number);
      }
      return empty;
    }
    PartResult result;
    result.visible = any_visible;
    result.shift = state.shift;
    const double without_sink = sums_of(state).l;
    if (with_sink && !added && !starts_with_sink(head_, stabilizer_)) {
      const float weight = sink_weight(head_, state.shift);
      events.undefined(SimulationStage::weight, -1, -1, -1, *head_.scaled_sink(), weight);
      state.l.add(denominator_, &weight, nullptr, 1, state.random);
    }
    const auto l = static_cast<float>(state.l.total(denominator_, state.random));
    result.denominator = l;
    events.undefined(SimulationStage::denominator, -1, -1, -1, without_sink, l);
    result.lse = log_sum(kernel_, state.shift, l, stabilizer_.offset());
    std::vector<double> o;
    for (const RunningSum& sum : state.o) o.push_back(sum.total(numerator_, state.random));
    if (added) {
      for (const double x : o) result.output.push_back(static_cast<float>(x));
    } else {
      divide(head_, o, stabilizer_.offset(), result, &events);
    }
    return result;
  }

  void write_dump(std::int64_t row, std::int64_t begin, std::int64_t n, std::int64_t r,
                  std::int64_t n_rows, std::int64_t tile, float correction, float l,
                  RowState& state) {
    const auto keys = static_cast<std::size_t>(problem_.keys());
    std::mt19937_64 random = state.random;
    for (std::size_t place = 0; place < wanted_.size(); ++place) {
      if (wanted_[place] != row) continue;
      for (std::int64_t j = 0; j < n && begin + j < problem_.keys(); ++j) {
        const std::size_t at = place * keys + static_cast<std::size_t>(begin + j);
        const auto i = static_cast<std::size_t>(j);
        dump_->scores[at] = scores_[static_cast<std::size_t>(j * n_rows + r)];
        dump_->exponents[at] = x_[i];
        dump_->weights[at] = e_[i];
        dump_->stored_weights[at] = p_[i];
      }
      const std::size_t at =
          place * static_cast<std::size_t>(dump_->tiles) + static_cast<std::size_t>(tile);
      dump_->shifts[at] = state.shift;
      dump_->corrections[at] = correction;
      dump_->denominators[at] = l;
      for (std::size_t c = 0; c < state.o.size(); ++c) {
        dump_->numerators[at * state.o.size() + c] =
            static_cast<float>(state.o[c].total(numerator_, random));
      }
    }
  }

  const HeadArithmetic& head_;
  const KernelModel& kernel_;
  const AttentionProblem& problem_;
  LoopStabilizer& stabilizer_;
  SimulationDump* dump_;
  std::span<const std::int64_t> wanted_;
  Stage unsaturated_;
  SumRule denominator_, numerator_;
  std::vector<float> scores_, values_, x_, e_, p_, terms_, stored_;
};

}  // namespace

std::vector<std::vector<std::int64_t>> blocks_of(const HeadArithmetic& head,
                                                 const LoopStabilizer& stabilizer,
                                                 std::span<const std::int64_t> rows) {
  std::vector<std::int64_t> sorted(rows.begin(), rows.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  const std::int64_t size = head.kernel().tiles.queries;
  std::vector<std::vector<std::int64_t>> blocks;
  std::int64_t last = -1;
  for (const std::int64_t row : sorted) {
    const std::int64_t block = row / size;
    if (block != last) {
      blocks.emplace_back();
      last = block;
      if (stabilizer.couples_rows()) {
        const std::int64_t end = std::min(head.queries(), (block + 1) * size);
        for (std::int64_t i = block * size; i < end; ++i) blocks.back().push_back(i);
      }
    }
    if (!stabilizer.couples_rows()) blocks.back().push_back(row);
  }
  return blocks;
}

std::vector<std::int64_t> tiles_of(const HeadArithmetic& head, std::int64_t block,
                                   std::int64_t part) {
  const KernelModel& kernel = head.kernel();
  const std::int64_t size = kernel.tiles.queries, width = kernel.tiles.keys;
  std::int64_t begin = head.tiled_keys(), end = 0;
  for (std::int64_t row = block * size; row < std::min(head.queries(), (block + 1) * size); ++row) {
    const KeyRange range = head.problem().range(row);
    if (range.count() == 0) continue;
    begin = std::min(begin, range.begin);
    end = std::max(end, range.end);
  }
  // keys that pad the last tile are computed with it
  if (end >= head.keys()) end = head.tiled_keys();
  const std::int64_t all = (head.tiled_keys() + width - 1) / width;
  const std::int64_t parts = kernel.split.parts;
  const std::int64_t first = all * part / parts, last = all * (part + 1) / parts;
  std::vector<std::int64_t> tiles;
  for (std::int64_t t = std::max(first, begin / width);
       t < std::min(last, (end + width - 1) / width); ++t) {
    tiles.push_back(t);
  }
  return tiles;
}

bool starts_with_sink(const HeadArithmetic& head, const LoopStabilizer& stabilizer) {
  return head.sink() && stabilizer.starts_at_sink() && !accumulates(head.kernel());
}

float initial_denominator(const HeadArithmetic& head, const LoopStabilizer& stabilizer,
                          std::int64_t part) {
  if (!head.sink() || !stabilizer.starts_at_sink()) return stabilizer.initial_denominator();
  return part == 0 && starts_with_sink(head, stabilizer) ? head.unit()(stabilizer.offset()) : 0.0F;
}

float lse_without_denominator(const KernelModel& kernel) {
  return kernel.split.parts > 1 && !accumulates(kernel) ? -infinity : infinity;
}

int offset_taken_out(const KernelModel& kernel, float offset) {
  constexpr float most = 126;  // l 2^-offset stays in FP32's range
  const bool whole = kernel.exponent.base == ExponentBase::two && std::fabs(offset) <= most &&
                     offset == std::floor(offset);
  return whole ? static_cast<int>(offset) : 0;
}

PartResult empty_row(const HeadArithmetic& head, bool with_sink) {
  const KernelModel& kernel = head.kernel();
  const EmptyRowRule rule = kernel.tiles.empty_row;
  const bool nan = rule == EmptyRowRule::nan && !with_sink;
  PartResult result;
  result.output.assign(static_cast<std::size_t>(head.problem().value_channels()),
                       nan ? not_a_number : 0.0F);
  result.lse = nan ? not_a_number : rule == EmptyRowRule::zero_pos_inf ? infinity : -infinity;
  if (with_sink) {
    result.shift = *head.scaled_sink();
    result.denominator = 1;
    result.lse = log_sum(kernel, result.shift, 1, 0);
  }
  return result;
}

namespace {

/// O and l of the parts added; mu is that of a part that has keys.
PartResult added_parts(const HeadArithmetic& head, const std::vector<PartResult>& parts,
                       RowEvents* events) {
  const KernelModel& kernel = head.kernel();
  const bool with_sink = head.scaled_sink().has_value();
  const auto seen =
      std::find_if(parts.begin(), parts.end(), [](const PartResult& part) { return part.visible; });
  if (seen == parts.end() && kernel.tiles.empty_row != EmptyRowRule::mean_of_visited) {
    return empty_row(head, with_sink);
  }
  const Stage numerator(kernel.numerator.format, kernel.numerator.flush_to_zero);
  const Stage denominator(kernel.denominator.format, kernel.denominator.flush_to_zero);
  PartResult joined = seen == parts.end() ? parts[0] : *seen;
  double l = parts[0].denominator;
  std::vector<double> o(parts[0].output.begin(), parts[0].output.end());
  for (std::size_t i = 1; i < parts.size(); ++i) {
    l = denominator.add(l, parts[i].denominator);
    for (std::size_t c = 0; c < o.size(); ++c) o[c] = numerator.add(o[c], parts[i].output[c]);
  }
  if (with_sink) l = denominator.add(l, sink_weight(head, joined.shift));
  joined.denominator = static_cast<float>(l);
  joined.lse = log_sum(kernel, joined.shift, joined.denominator, 0);
  divide(head, o, 0, joined, events);
  return joined;
}

/// Two states at a time, in order: weights E(LSE - larger LSE) / their sum, and no care for two
/// states without keys. LSE = a + log(1 + E(b - a)) if `log1p`.
PartResult chained_parts(const HeadArithmetic& head, const std::vector<PartResult>& parts,
                         bool log1p) {
  const KernelModel& kernel = head.kernel();
  const ExponentBase base = kernel.split.reads;
  const Stage sum(kernel.numerator.format, kernel.numerator.flush_to_zero);
  PartResult joined = parts[0];
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const float a = joined.lse, b = parts[i].lse;
    float keep, add, lse;
    if (log1p) {
      lse = a + HeadArithmetic::logarithm(base, 1.0F + head.exact_power(base, b - a));
      keep = head.exact_power(base, a - lse);
      add = head.exact_power(base, b - lse);
    } else {
      const float most = std::fmax(a, b);
      keep = head.exact_power(base, a - most);
      add = head.exact_power(base, b - most);
      const float total = keep + add;
      lse = most + HeadArithmetic::logarithm(base, total);
      keep /= total;
      add /= total;
    }
    for (std::size_t c = 0; c < joined.output.size(); ++c) {
      joined.output[c] = static_cast<float>(
          sum.add(sum.multiply(joined.output[c], keep), sum.multiply(parts[i].output[c], add)));
    }
    joined.lse = lse;
  }
  return joined;
}

/// All at once: weights E(LSE - largest LSE); parts of LSE = -infinity weigh nothing.
PartResult weighted_parts(const HeadArithmetic& head, const std::vector<PartResult>& parts) {
  const KernelModel& kernel = head.kernel();
  const ExponentBase base = kernel.split.reads;
  const Stage sum(kernel.numerator.format, kernel.numerator.flush_to_zero);
  PartResult joined = parts[0];
  float most = -infinity;
  for (const PartResult& part : parts) most = std::fmax(most, part.lse);
  float total = 0;
  std::vector<double> o(joined.output.size(), 0.0);
  for (const PartResult& part : parts) {
    if (part.lse == -infinity) continue;
    const float weight = head.exact_power(base, part.lse - most);
    total += weight;
    for (std::size_t c = 0; c < o.size(); ++c) {
      o[c] = sum.add(o[c], sum.multiply(weight, part.output[c]));
    }
  }
  const bool none = total == 0;
  for (std::size_t c = 0; c < o.size(); ++c) {
    joined.output[c] = none ? 0.0F : static_cast<float>(sum.divide(o[c], total));
  }
  joined.lse = none ? -infinity : most + HeadArithmetic::logarithm(base, total);
  joined.denominator = total;
  return joined;
}

}  // namespace

namespace {

/// The parts of one row joined, before O is rounded to the output format.
PartResult unrounded_row(const HeadArithmetic& head, const std::vector<PartResult>& parts,
                         RowEvents* events) {
  if (parts.size() == 1) return parts[0];
  switch (head.kernel().split.merge) {
    case MergeRule::accumulate:
      return added_parts(head, parts, events);
    case MergeRule::lse_log1p:
      return chained_parts(head, parts, true);
    case MergeRule::lse_naive:
      return chained_parts(head, parts, false);
    case MergeRule::lse:
      return weighted_parts(head, parts);
  }
  return parts[0];
}

void round_output(const HeadArithmetic& head, std::vector<float>& output) {
  const Stage stage(head.kernel().normalise.output);
  for (float& x : output) x = static_cast<float>(stage.round(x));
}

/// What joining parts of finite numbers made of them, and what rounding made of that.
void note_output(const std::vector<PartResult>& parts, const PartResult& unrounded,
                 const std::vector<float>& output, RowEvents& events) {
  for (std::size_t c = 0; c < output.size(); ++c) {
    const auto channel = static_cast<std::int64_t>(c);
    const float joined = unrounded.output[c];
    if (parts.size() > 1) {
      bool finite = true;
      float largest = 0;
      for (const PartResult& part : parts) {
        finite = finite && std::isfinite(part.output[c]);
        if (std::fabs(part.output[c]) > std::fabs(largest)) largest = part.output[c];
      }
      if (finite) events.watch(SimulationStage::merge, -1, -1, channel, largest, joined);
    }
    events.watch(SimulationStage::normalise, -1, -1, channel, joined, output[c]);
  }
}

}  // namespace

PartResult join_parts(const HeadArithmetic& head, const std::vector<PartResult>& parts) {
  PartResult joined = unrounded_row(head, parts, nullptr);
  round_output(head, joined.output);
  return joined;
}

Simulated simulate_plain(const HeadArithmetic& head, LoopStabilizer& stabilizer,
                         std::span<const std::int64_t> rows, SimulationDump* dump) {
  const auto dv = static_cast<std::size_t>(head.problem().value_channels());
  Simulated all;
  all.output.assign(rows.size() * dv, 0.0F);
  all.lse.assign(rows.size(), 0.0F);
  all.denominator = all.shift = all.lse;
  all.recomputed.assign(rows.size(), 0);
  all.gate = stabilizer.gate();
  if (dump != nullptr) {
    const auto keys = static_cast<std::size_t>(head.problem().keys());
    const std::int64_t width = head.kernel().tiles.keys;
    dump->tiles = (head.tiled_keys() + width - 1) / width;
    const std::size_t tiles = rows.size() * static_cast<std::size_t>(dump->tiles);
    for (auto* array : {&dump->scores, &dump->exponents, &dump->weights, &dump->stored_weights}) {
      array->assign(rows.size() * keys, not_a_number);
    }
    for (auto* array : {&dump->shifts, &dump->corrections, &dump->denominators}) {
      array->assign(tiles, not_a_number);
    }
    dump->numerators.assign(tiles * dv, not_a_number);
  }
  std::unique_ptr<LoopStabilizer> fallback;
  PlainRun run(head, stabilizer, dump, rows);
  for (const std::vector<std::int64_t>& block : blocks_of(head, stabilizer, rows)) {
    std::vector<RowEvents> events;
    for (const std::int64_t row : block) events.emplace_back(row);
    std::vector<std::uint8_t> recompute(block.size(), 0);
    std::vector<std::vector<PartResult>> parts = run.block(block, events, recompute);
    std::vector<std::int64_t> again;
    std::vector<std::size_t> places;
    for (std::size_t r = 0; r < block.size(); ++r) {
      if (recompute[r] == 0) continue;
      again.push_back(block[r]);
      places.push_back(r);
      events[r] = RowEvents(block[r]);
    }
    if (!again.empty()) {
      if (!fallback) {
        fallback = make_loop_stabilizer(std::string(stabilizer.fallback()));
        fallback->init(head);
      }
      PlainRun second(head, *fallback, dump, rows);
      std::vector<RowEvents> second_events;
      for (const std::int64_t row : again) second_events.emplace_back(row);
      std::vector<std::uint8_t> never(again.size(), 0);
      const auto anew = second.block(again, second_events, never);
      for (std::size_t i = 0; i < again.size(); ++i) {
        parts[places[i]] = anew[i];
        events[places[i]] = second_events[i];
      }
    }
    for (std::size_t place = 0; place < rows.size(); ++place) {
      const auto found = std::lower_bound(block.begin(), block.end(), rows[place]);
      if (found == block.end() || *found != rows[place]) continue;
      const auto r = static_cast<std::size_t>(found - block.begin());
      const PartResult joined = unrounded_row(head, parts[r], &events[r]);
      std::vector<float> output = joined.output;
      round_output(head, output);
      note_output(parts[r], joined, output, events[r]);
      std::transform(output.begin(), output.end(),
                     all.output.begin() + static_cast<std::ptrdiff_t>(place * dv),
                     [](float x) { return std::isnan(x) ? not_a_number : x; });
      all.lse[place] = std::isnan(joined.lse) ? not_a_number : joined.lse;
      all.denominator[place] = joined.denominator;
      all.shift[place] = joined.shift;
      all.recomputed[place] = recompute[r];
      if (head.options().events) events[r].append_to(all.events);
    }
  }
  return all;
}

}  // namespace headroom
