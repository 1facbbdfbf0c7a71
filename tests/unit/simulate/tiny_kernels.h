// Small random problems and kernels of every kind that a model can say, and a stabilizer that
// follows a script: what the tests of the simulation run.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reference/evaluate/simulate/simulate.h"
#include "reference/format/convert.h"
#include "reference/model/kernel_file.h"
#include "tests/unit/simulate/second_simulation.h"

namespace headroom::tiny {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  std::int64_t between(std::int64_t a, std::int64_t b) {
    return a + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(b - a + 1));
  }
  bool one_in(std::int64_t n) { return between(1, n) == 1; }
  bool coin() { return one_in(2); }
  double normal() { return std::normal_distribution<double>()(engine_); }
  template <class T>
  T pick(std::initializer_list<T> list) {
    return *(list.begin() + between(0, static_cast<std::int64_t>(list.size()) - 1));
  }

 private:
  std::mt19937_64 engine_;
};

inline Matrix matrix(const Format& format, std::int64_t rows, std::int64_t columns,
                     const std::function<double(std::int64_t, std::int64_t)>& element) {
  std::vector<double> x;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) x.push_back(round_to(format, element(r, c)));
  }
  return Matrix::from_values(format, rows, columns, x);
}

inline AttentionProblem problem_of(Matrix q, Matrix k, Matrix v, Scale scale) {
  AttentionProblem p;
  p.q = std::move(q);
  p.k = std::move(k);
  p.v = std::move(v);
  p.scale = std::move(scale);
  p.visibility.queries = p.queries();
  p.visibility.keys = p.visibility.length = p.keys();
  return p;
}

inline std::vector<std::int64_t> all_rows(const AttentionProblem& p) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(p.queries()));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

/// Numbers about `size`, now and then zero, huge, tiny or (`wild`) far out.
inline double number(Dice& dice, double size, bool wild) {
  if (dice.one_in(12)) return 0;
  double x = dice.normal() * size;
  if (dice.one_in(10)) x = std::ldexp(x, static_cast<int>(dice.between(-20, 3)));
  if (wild && dice.one_in(6)) x = std::ldexp(x, static_cast<int>(dice.between(-140, 60)));
  return x;
}

inline AttentionProblem random_problem(Dice& dice, const Format& format, bool wild) {
  const std::int64_t queries = dice.between(1, 6), keys = dice.between(1, 21);
  const std::int64_t d = dice.between(1, 9), dv = dice.between(1, 3);
  const double size = dice.pick({0.3, 1.0, 3.0, 12.0});
  const auto filled = [&](std::int64_t rows, std::int64_t columns, double s) {
    return matrix(format, rows, columns,
                  [&](auto, auto) { return number(dice, s, wild && dice.one_in(8)); });
  };
  AttentionProblem p =
      problem_of(filled(queries, d, size), filled(keys, d, size), filled(keys, dv, 1),
                 dice.pick({Scale::natural(1), Scale::natural(Rational(1, 8)), Scale::base2(1),
                            Scale::base2(Rational(3, 16)),
                            Scale::reciprocal_sqrt(static_cast<std::uint64_t>(d))}));
  switch (dice.between(0, 5)) {
    case 0:
      p.visibility.kind = MaskKind::causal_top_left;
      break;
    case 1:
      p.visibility.kind = MaskKind::causal_bottom_right;
      break;
    case 2:
      p.window = Window{.left = dice.between(-1, 4), .right = dice.between(-1, 4)};
      break;
    case 3:
      for (std::int64_t i = 0; i < queries; ++i) {
        p.query_segments.push_back(static_cast<std::int32_t>(dice.between(0, 1)));
      }
      for (std::int64_t j = 0; j < keys; ++j) {
        p.key_segments.push_back(static_cast<std::int32_t>(dice.between(0, 2)));
      }
      break;
    case 4: {
      const std::int64_t rows = dice.coin() ? 1 : queries;
      for (std::int64_t i = 0; i < rows * keys; ++i) p.mask.push_back(dice.one_in(3) ? 0 : 1);
      break;
    }
    default:
      break;
  }
  if (dice.one_in(4)) p.visibility.length = dice.between(0, keys);
  if (dice.one_in(5)) {
    p.bias = matrix(fp32, dice.coin() ? 1 : queries, keys, [&](auto, auto) {
      return dice.one_in(8) ? -std::numeric_limits<double>::infinity() : dice.normal() * 4;
    });
  }
  if (dice.one_in(5)) p.softcap = dice.pick({Rational(5), Rational(1, 3), Rational(50)});
  if (dice.one_in(5)) p.sink = dice.normal() * 3;
  return p;
}

inline Format narrow(Dice& dice) { return dice.pick({fp16, bf16}); }
inline Format any_format(Dice& dice) { return dice.pick({fp32, fp32, fp16, bf16}); }

inline AccumulationOrder random_order(Dice& dice, const Format& format) {
  switch (dice.between(0, 6)) {
    case 0:
      return {OrderKind::tile, static_cast<int>(dice.between(1, 9))};
    case 1:
      return {OrderKind::pairwise};
    case 2:
      return {OrderKind::lanes, static_cast<int>(dice.between(1, 6))};
    case 3:
      return {OrderKind::any};
    case 4:
      if (format == fp32) {
        return {OrderKind::matrix_unit, dice.pick({1, 2, 4}), dice.pick({13, 24, 25})};
      }
      return {OrderKind::sequential};
    default:
      return {OrderKind::sequential};
  }
}

inline Accumulator random_accumulator(Dice& dice, const Format& format) {
  Accumulator a;
  a.format = format;
  a.order = random_order(dice, format);
  a.flush_to_zero = dice.coin();
  a.rounded_products = a.order.kind != OrderKind::matrix_unit && dice.coin();
  a.denormals_are_zero = dice.one_in(6);
  return a;
}

/// A kernel whose units are correctly rounded; it keeps validate().
inline KernelModel random_kernel(Dice& dice) {
  for (;;) {
    KernelModel k = preset("ieee-fp32");
    k.name = "tiny";
    k.facts.clear();
    const int style = static_cast<int>(dice.between(0, 2));
    const Format fixed = style == 0 ? fp32 : narrow(dice);
    const auto choose = [&] { return style == 2 ? any_format(dice) : fixed; };
    k.operand = style == 0 ? any_format(dice) : choose();
    k.scale.scale = dice.pick({FactorSite::query, FactorSite::key, FactorSite::score});
    k.scale.log2e = dice.pick({FactorSite::query, FactorSite::key, FactorSite::score});
    k.scale.constant = choose();
    k.scale.arithmetic = choose();
    if (dice.one_in(5)) {
      k.centring.keys = Centring::mean;
      k.centring.mean = choose();
      k.centring.difference = choose();
    }
    k.score.accumulator = random_accumulator(dice, choose());
    k.score.store = choose();
    k.score.scale_before_store = dice.coin();
    k.score.softcap =
        dice.pick({SoftcapFormula::tanh, SoftcapFormula::exp_ratio, SoftcapFormula::logistic});
    if (dice.one_in(5)) {
      k.mask.form = MaskForm::additive;
      k.mask.value = dice.pick({-std::numeric_limits<double>::infinity(), -10000.0, -65504.0});
    } else if (dice.one_in(5)) {
      k.mask.value = dice.pick({-50.0, -10000.0, -0x1.6p127});
    }
    k.sink = dice.pick({SinkPlace::end, SinkPlace::start});
    k.exponent.format = choose();
    if (dice.one_in(4)) {
      k.exponent.base = ExponentBase::e;
      k.scale.log2e = k.scale.scale;
    }
    k.exponent.fused = dice.coin();
    k.exp2.result = choose();
    k.exp2.flush_to_zero = dice.coin();
    if (dice.one_in(8)) k.exp2.floor = std::ldexp(1.0, static_cast<int>(dice.between(-14, -4)));
    k.p.format = style == 0 ? dice.pick({fp32, bf16, fp16, tf32, e4m3fn, e5m2}) : choose();
    k.p.saturate = dice.coin();
    k.p.flush_to_zero = dice.coin();
    k.p.denominator_rounded = dice.coin();
    k.denominator = random_accumulator(dice, choose());
    k.numerator = random_accumulator(dice, choose());
    k.normalise.division = dice.pick({Division::divide, Division::reciprocal});
    k.normalise.reciprocal_flush_to_zero = dice.coin();
    k.normalise.guard = dice.pick({DenominatorGuard::none, DenominatorGuard::zero_to_one,
                                   DenominatorGuard::zero_to_zero, DenominatorGuard::maximum});
    if (k.normalise.guard == DenominatorGuard::maximum) k.normalise.guard_value = 0x1p-20;
    k.normalise.output = choose();
    k.normalise.every_tile = dice.one_in(6);
    k.tiles.keys = static_cast<int>(dice.between(1, 9));
    if (k.numerator.order.kind == OrderKind::matrix_unit) {
      k.tiles.keys = k.numerator.order.size * static_cast<int>(dice.between(1, 3));
    }
    k.tiles.queries = static_cast<int>(dice.between(1, 4));
    k.tiles.padding = dice.pick({Padding::sliced, Padding::masked, Padding::zero_keys});
    k.tiles.empty_row = dice.pick({EmptyRowRule::zero, EmptyRowRule::zero_pos_inf,
                                   EmptyRowRule::mean_of_visited, EmptyRowRule::nan});
    if (dice.one_in(3)) {
      k.split.parts = static_cast<int>(dice.between(2, 4));
      k.split.merge = dice.pick(
          {MergeRule::lse, MergeRule::lse_naive, MergeRule::lse_log1p, MergeRule::accumulate});
      k.split.reads = dice.pick({ExponentBase::e, ExponentBase::two});
    }
    if (k.split.merge == MergeRule::accumulate) k.normalise.every_tile = false;
    k.lse.base = dice.pick({ExponentBase::e, ExponentBase::two});
    if (!find_problem(k)) return k;
  }
}

/// Subtracts and multiplies what the script says, whatever the scores.
class ScriptedLoop final : public LoopStabilizer {
 public:
  ScriptedLoop(second::Script script, second::Row::Start start, bool couples = false)
      : script_(std::move(script)), start_(start), couples_(couples) {}

  std::string_view name() const override { return "scripted"; }
  void init(const LoopArithmetic& kernel) override { kernel_ = &kernel; }
  bool couples_rows() const override { return couples_; }
  void before_loop(std::span<const std::int64_t> rows) override {
    rows_.assign(rows.begin(), rows.end());
  }
  void order(std::vector<std::int64_t>& tiles) const override {
    if (start_.descending) std::reverse(tiles.begin(), tiles.end());
  }
  void tile(const TileScores& scores, const TileDecision& decision) override {
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const second::Scripted said = script_(rows_[r], scores.first_key / kernel_->key_block());
      decision.shift[r] = said.shift;
      decision.correction[r] = said.correction;
    }
  }
  bool starts_at_sink() const override { return start_.at_sink; }
  float initial_denominator() const override { return start_.denominator; }
  float offset() const override { return start_.offset; }

 private:
  second::Script script_;
  second::Row::Start start_;
  bool couples_;
  const LoopArithmetic* kernel_ = nullptr;
  std::vector<std::int64_t> rows_;
};

/// Equal numbers, of either sign if zero, or two NaN.
inline bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace headroom::tiny
