#include "reference/evaluate/simulate/head_arithmetic.h"

#include <mpfr.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/evaluate/simulate/lanes/operands.h"
#include "reference/input_error.h"

namespace headroom {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

Exp2Unit correctly_rounded_fp32() {
  Exp2Unit unit;
  unit.name = "correctly-rounded";
  unit.result = fp32;
  return unit;
}

/// An enclosure of 256 bits rounded once to FP32: its ends agree unless it holds a midpoint, which
/// no constant here is.
float rounded(const WideInterval& x) {
  return static_cast<float>(decode(fp32, encode(fp32, &x.raw()->left, {})));
}

/// `approximate` rounded to FP32 where an error of 2^-49 of it cannot matter, else `exact`, an MPFR
/// function of x. glibc's log, log2 and tanh err by at most two ulps of a double.
template <class Exact>
float round_function(double x, double approximate, const Exact& exact) {
  const auto lo = static_cast<float>(approximate * (1 - 0x1p-49));
  const auto hi = static_cast<float>(approximate * (1 + 0x1p-49));
  if (lo == hi || !std::isfinite(approximate)) return lo;
  MPFR_DECL_INIT(argument, 53);
  MPFR_DECL_INIT(value, 200);
  mpfr_set_d(argument, x, MPFR_RNDN);
  exact(value, argument);
  return static_cast<float>(decode(fp32, encode(fp32, static_cast<mpfr_srcptr>(value), {})));
}

float tanh_fp32(float u) {
  if (std::fabs(u) < 0x1p-20F) return u;  // |tanh u - u| < u^3 / 3, below half an ulp of u
  return round_function(u, std::tanh(static_cast<double>(u)),
                        [](mpfr_ptr y, mpfr_srcptr x) { mpfr_tanh(y, x, MPFR_RNDN); });
}

bool subnormal(const Format& format, float x) {
  return x != 0 && std::fabs(static_cast<double>(x)) < std::ldexp(1.0, format.emin);
}

}  // namespace

float HeadArithmetic::logarithm(ExponentBase base, float x) {
  if (x == 0) return -infinity;
  if (base == ExponentBase::two) {
    return round_function(x, std::log2(static_cast<double>(x)),
                          [](mpfr_ptr y, mpfr_srcptr a) { mpfr_log2(y, a, MPFR_RNDN); });
  }
  return round_function(x, std::log(static_cast<double>(x)),
                        [](mpfr_ptr y, mpfr_srcptr a) { mpfr_log(y, a, MPFR_RNDN); });
}

HeadArithmetic::HeadArithmetic(const AttentionProblem& problem, const KernelModel& kernel,
                               const SimulationOptions& options)
    : problem_(&problem),
      kernel_(&kernel),
      options_(options),
      score_(kernel.score.accumulator.format, kernel.score.accumulator.flush_to_zero),
      store_(kernel.score.store, kernel.score.accumulator.flush_to_zero),
      exponent_(kernel.exponent.format),
      weight_(kernel.p.format, kernel.p.flush_to_zero, kernel.p.saturate),
      score_sum_(
          kernel.score.accumulator, options.order, kernel.operand,
          kernel.centring.keys == Centring::mean ? kernel.centring.difference : kernel.operand),
      unit_(kernel.exp2, kernel.exponent.base, options.exp2, options.seed),
      power_2_(correctly_rounded_fp32(), ExponentBase::two),
      power_e_(correctly_rounded_fp32(), ExponentBase::e),
      length_(std::clamp<std::int64_t>(problem.visibility.length, 0, problem.keys())),
      arithmetic_(kernel.scale.arithmetic, false, false),
      operand_(kernel.operand, false, false),
      difference_(kernel.centring.difference, false, false) {
  problem.validate();
  const auto refuse = [&](const std::string& found, const std::string& expected) {
    throw InputError("kernel " + kernel.name + ": found " + found + ", expected " + expected);
  };
  const bool base_two = kernel.exponent.base == ExponentBase::two;
  if (!base_two && problem.scale.is_base2()) {
    refuse("exponent.base = \"e\" with a base-2 scale", "a natural scale");
  }
  constants_ = stored_constants(problem.scale, kernel);
  stored_factor_ = constants_.at_score ? static_cast<float>(constants_.score) : 1.0F;
  (kernel.score.scale_before_store ? early_factor_ : factor_) = stored_factor_;

  // what a natural number is multiplied by to be in the unit of scaled scores
  constexpr mpfr_prec_t bits = 256;
  WideInterval unit(bits, 1.0);
  if (base_two) {
    mpfi_const_log2(unit.raw());
    mpfi_inv(unit.raw(), unit.raw());
  }
  const auto enclose_rational = [](const Rational& value) {
    WideInterval x(bits);
    mpq_t q;
    mpq_init(q);
    mpq_set_str(q, to_text(value).c_str(), 10);
    mpfi_set_q(x.raw(), q);
    mpq_clear(q);
    return x;
  };
  bias_factor_ = rounded(unit);
  if (problem.sink) {
    sink_ =
        static_cast<float>(static_cast<double>(static_cast<float>(*problem.sink)) * bias_factor_);
  }
  if (problem.softcap) {
    const WideInterval cap = enclose_rational(*problem.softcap);
    cap_ = rounded(cap * unit);
    if (!kernel.score.scale_before_store) {
      // tanh(s (scale / cap)) is stored, and the exponent stage multiplies by the cap; factors
      // that Q or K hold already are not multiplied again
      const Scale& scale = problem.scale;
      WideInterval factor(bits, 1.0);
      if (kernel.scale.scale == FactorSite::score) {
        factor = scale.is_base2() ? scale.log2_factor(bits) : scale.natural_factor(bits);
      }
      const bool log2e_left =
          base_two && !scale.is_base2() && kernel.scale.log2e == FactorSite::score;
      cap_slope_ = rounded(factor / (log2e_left ? cap : cap * unit));
      factor_ = *cap_;
    }
  }
  if (problem.bias && factor_ != 1) {
    refuse("a bias with scores that are scaled after they are stored",
           "score.scale_before_store = true");
  }

  if (kernel.normalise.every_tile && kernel.split.parts > 1 &&
      kernel.split.merge == MergeRule::accumulate) {
    refuse("normalise.every_tile with parts that are added", "another split.merge");
  }

  const std::int64_t tile = kernel.tiles.keys;
  switch (kernel.tiles.padding) {
    case Padding::sliced:
      tiled_keys_ = length_;
      break;
    case Padding::masked:
      tiled_keys_ = std::min(problem.keys(), (length_ + tile - 1) / tile * tile);
      break;
    case Padding::zero_keys:
      tiled_keys_ = (length_ + tile - 1) / tile * tile;
      break;
  }
  const AccumulationOrder& order = kernel.numerator.order;
  if (order.kind == OrderKind::matrix_unit && tile % order.size != 0 && tiled_keys_ > tile) {
    refuse("tiles.keys = " + std::to_string(tile) + " with numerator.order " + to_text(order),
           "a multiple of " + std::to_string(order.size));
  }
  reload();
}

void HeadArithmetic::reload() {
  load_queries();
  load_keys();
  largest_value_ = -1;
}

float HeadArithmetic::largest_value() const {
  float largest = largest_value_;
  if (largest >= 0 || std::isnan(largest)) return largest;
  largest = 0;
  std::vector<float> row(static_cast<std::size_t>(problem_->value_channels()));
  for (std::int64_t j = 0; j < length_ && !std::isnan(largest); ++j) {
    problem_->v.load_row(j, row.data());
    for (const float x : row) {
      largest = std::isfinite(x) ? std::max(largest, std::fabs(x))
                                 : std::numeric_limits<float>::quiet_NaN();
      if (!std::isfinite(x)) break;
    }
  }
  largest_value_ = largest;
  return largest;
}

/// Rows of Q or K, folded. The plain simulation does it number by number.
void HeadArithmetic::load(const Matrix& from, std::int64_t rows, bool fold, double constant,
                          float* to) const {
  if (!options_.plain) {
    const LaneKernels& lanes = lane_kernels(options_.set.value_or(best_instruction_set()));
    load_matrix(lanes, from, rows, to);
    if (fold) {
      lanes.fold(static_cast<float>(constant), arithmetic_, operand_, to, rows * from.columns());
    }
    return;
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    float* row = to + i * from.columns();
    from.load_row(i, row);
    for (std::int64_t t = 0; t < from.columns() && fold; ++t) {
      row[t] = static_cast<float>(fold_constant(row[t], from.format(), constant, *kernel_));
    }
  }
}

void HeadArithmetic::load_queries() {
  const Matrix& q = problem_->q;
  queries_.resize(static_cast<std::size_t>(q.rows() * q.columns()));
  load(q, q.rows(), constants_.at_query, constants_.query, queries_.data());
  if (kernel_->score.accumulator.denormals_are_zero) {
    for (float& x : queries_) {
      if (subnormal(kernel_->operand, x)) x = std::copysign(0.0F, x);
    }
  }
}

/// K~ up to the padding: folded, then less the mean of the keys that are not padding, which is
/// summed in FP32 one key after another and divided (as sequential_key_mean, norm_rule.h).
void HeadArithmetic::load_keys() {
  const Matrix& k = problem_->k;
  const std::int64_t d = k.columns();
  const std::int64_t held = std::max(length_, std::min(tiled_keys_, k.rows()));
  keys_.resize(static_cast<std::size_t>(std::max(held, tiled_keys_) * d));
  const std::int64_t loaded = kernel_->tiles.padding == Padding::zero_keys ? length_ : held;
  load(k, loaded, constants_.at_key, constants_.key, keys_.data());
  std::fill(keys_.begin() + loaded * d, keys_.end(), 0.0F);
  if (kernel_->centring.keys == Centring::mean && length_ > 0) {
    const LaneKernels& lanes = lane_kernels(options_.set.value_or(best_instruction_set()));
    mean_.assign(static_cast<std::size_t>(d), 0.0F);
    if (options_.plain) {
      for (std::int64_t j = 0; j < length_; ++j) {
        const float* row = &keys_[at(j)];
        for (std::int64_t t = 0; t < d; ++t) mean_[static_cast<std::size_t>(t)] += row[t];
      }
    } else {
      lanes.column_sums(keys_.data(), length_, d, mean_.data());
    }
    for (float& x : mean_) {
      x = static_cast<float>(round_to(kernel_->centring.mean, x / static_cast<float>(length_)));
    }
    if (options_.plain) {
      const Stage difference(kernel_->centring.difference);
      for (std::int64_t j = 0; j < loaded; ++j) {
        float* row = &keys_[at(j)];
        for (std::int64_t t = 0; t < d; ++t) {
          row[t] = static_cast<float>(
              difference.add(row[t], -static_cast<double>(mean_[static_cast<std::size_t>(t)])));
        }
      }
    } else {
      lanes.centre(mean_.data(), difference_, keys_.data(), loaded, d);
    }
  }
  if (kernel_->score.accumulator.denormals_are_zero) {
    for (float& x : keys_) {
      if (subnormal(kernel_->operand, x)) x = std::copysign(0.0F, x);
    }
  }
}

float HeadArithmetic::store(double exact) const {
  return static_cast<float>(round_to(
      kernel_->stabilizer.store, exact,
      {.rounding = kernel_->stabilizer.round_up ? Rounding::upward : Rounding::nearest_even}));
}

/// tanh(u), or cap tanh(u) where the cap multiplies at once, in FP32 operations.
float HeadArithmetic::capped(float u) const {
  const float cap = cap_slope_ ? 1.0F : *cap_;
  switch (kernel_->score.softcap) {
    case SoftcapFormula::tanh:
      return cap * tanh_fp32(u);
    case SoftcapFormula::exp_ratio: {
      const float up = power_e_(u), down = power_e_(-u);
      return cap * (up - down) / (up + down);
    }
    case SoftcapFormula::logistic:
      return cap * (1.0F - 2.0F / (power_e_(2.0F * u) + 1.0F));
  }
  return 0;
}

float HeadArithmetic::score(std::int64_t row, const float* key) const {
  RunningSum sum;
  std::mt19937_64 random(options_.seed ^ static_cast<std::uint64_t>(row));
  sum.add(score_sum_, query(row), key, channels(), random);
  double s = sum.total(score_sum_, random);
  if (early_factor_ != 1) s = score_.multiply(s, early_factor_);
  if (cap_) {
    const auto fp32_score = static_cast<float>(s);
    s = capped(cap_slope_ ? fp32_score * *cap_slope_ : fp32_score / *cap_);
  }
  return static_cast<float>(store_.round(s));
}

float HeadArithmetic::biased(std::int64_t row, std::int64_t key, float score) const {
  if (!problem_->bias) return score;
  const auto bias = static_cast<float>(problem_->bias_at(row, key));
  const float b = bias_factor_ == 1 ? bias : bias * bias_factor_;
  return static_cast<float>(store_.add(score, b));
}

float HeadArithmetic::masked(float score) const {
  const double value = kernel_->mask.value;
  return static_cast<float>(kernel_->mask.form == MaskForm::select
                                ? store_.round(value)
                                : store_.round(sum_to_odd(score, value)));
}

}  // namespace headroom
