#include "reference/model/operands.h"

#include <gmp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "reference/format/convert.h"
#include "reference/real/wide_interval.h"

namespace headroom {
namespace {

// --- constants -----------------------------------------------------------------------------------

/// Exact product of the factors sent to one site: rational / sqrt(radicand), times log2(e) if so.
struct Factor {
  Rational rational = 1;
  std::uint64_t radicand = 1;
  bool log2_e = false;
  bool is_one() const { return rational == 1 && radicand == 1 && !log2_e; }
};

Factor factor_at(FactorSite site, const Scale& scale, const KernelModel& kernel) {
  const ScaleFolding& folding = kernel.scale;
  Factor factor;
  if (folding.scale == site) factor = {scale.rational(), scale.radicand(), false};
  factor.log2_e = !scale.is_base2() && kernel.exponent.base == ExponentBase::two &&
                  folding.log2e == site;
  return factor;
}

WideInterval enclose(const Factor& factor, mpfr_prec_t bits) {
  WideInterval value(bits), divisor(bits);
  mpq_t rational;
  mpq_init(rational);
  mpq_set_str(rational, to_text(factor.rational).c_str(), 10);
  mpfi_set_q(value.raw(), rational);
  mpq_clear(rational);
  if (factor.radicand > 1) {
    mpfi_set_ui(divisor.raw(), factor.radicand);
    mpfi_sqrt(divisor.raw(), divisor.raw());
    value /= divisor;
  }
  if (factor.log2_e) {
    mpfi_const_log2(divisor.raw());  // MPFR's name for ln 2
    value /= divisor;
  }
  return value;
}

/// The exact factor rounded once, to nearest even. Ends: both ends of the enclosure round to one
/// number as soon as it holds no midpoint, and a midpoint (at most 54 bits) is a rational that is
/// enclosed by itself; irrational factors are no midpoints.
double round_once(const Factor& factor, const Format& format) {
  for (mpfr_prec_t bits = 128;; bits *= 2) {
    const WideInterval value = enclose(factor, bits);
    const double lo = decode(format, encode(format, &value.raw()->left, {}));
    const double hi = decode(format, encode(format, &value.raw()->right, {}));
    if (lo == hi || (std::isnan(lo) && std::isnan(hi))) return lo;
  }
}

// --- element arithmetic, independent of the processor's rounding mode
// -----------------------------

/// Every product of a number of `a` and one of `b` is a double.
bool products_are_doubles(const Format& a, const Format& b) {
  return a.precision + b.precision <= fp64.precision &&
         a.least_exponent() + b.least_exponent() >= fp64.least_exponent() &&
         a.emax + b.emax + 1 <= fp64.emax;
}

double fold(double x, const Format& format, double constant, const KernelModel& kernel) {
  if (products_are_doubles(format, kernel.scale.constant)) {
    return round_to(kernel.operand, round_to(kernel.scale.arithmetic, x * constant));
  }
  MPFR_DECL_INIT(exact, 2 * 53);
  mpfr_set_d(exact, x, MPFR_RNDN);
  mpfr_mul_d(exact, exact, constant, MPFR_RNDN);
  const std::uint64_t product = encode(kernel.scale.arithmetic, exact, {});
  return decode(kernel.operand, convert(kernel.scale.arithmetic, product, kernel.operand, {}));
}

/// RN_format(a - b), one rounding. Requires: round to nearest, no overflow of a - b as a double.
double rounded_difference(const Format& format, double a, double b) {
  double difference = opaque(opaque(a) - opaque(b));
  // Knuth's TwoSum (The Art of Computer Programming, vol. 2, 4.2.2, theorem B): the exact error.
  const double b_virtual = opaque(a - difference);
  const double a_virtual = opaque(difference + b_virtual);
  const double error = opaque(opaque(a - a_virtual) + opaque(b_virtual - b));
  if (error != 0 && format.precision + 2 <= fp64.precision) {
    // Rounded to odd, a second rounding to at least two bits less is as good as the first (Boldo,
    // Melquiond, Emulation of FMA and correctly rounded sums, 2008).
    auto code = std::bit_cast<std::uint64_t>(difference);
    if ((code & 1) == 0) code += (error > 0) == (difference > 0) ? 1 : -1;
    difference = std::bit_cast<double>(code);
  }
  return round_to(format, difference);
}

// --- the key mean --------------------------------------------------------------------------------

constexpr double fp32_overflow = 0x1p128 - 0x1p103;  // RNE to FP32 is infinite from here on
constexpr double smallest_normal = 0x1p-126;
constexpr int fp32_least = fp32.least_exponent();

/// What a summation in any order may do, for one channel of the folded keys.
struct Channel {
  Interval sum{0.0};                            ///< exact sum
  double absolute = 0;                          ///< upper bound of sum |k|
  int grain = std::numeric_limits<int>::max();  ///< every key is a multiple of 2^grain
  double least = std::numeric_limits<double>::infinity(), most = -least;

  void add(double k) {
    least = std::fmin(least, k), most = std::fmax(most, k);
    if (k == 0) return;
    sum += Interval(k);
    absolute = opaque(opaque(absolute) + std::fabs(k));
    const ExactValue value = exact_value(k);
    grain = std::min(grain, static_cast<int>(value.exponent) + std::countr_zero(value.significand));
  }
};

struct ComputedSum {
  Interval value{0.0};
  bool may_overflow = false, must_overflow = false;
};

/// The FP32 sum of n keys in any order; see the class comment for the inequality.
ComputedSum computed_sum(const Channel& channel, std::int64_t n, double growth) {
  if (channel.absolute == 0) return {};
  const bool exact = channel.grain >= fp32_least &&
                     channel.absolute <= std::ldexp(1.0, fp32.precision + channel.grain);
  Interval error = exact ? Interval(0.0) : Interval(growth) * Interval(channel.absolute);
  if (channel.grain < fp32.emin) {
    error += Interval(2.0 * smallest_normal) * Interval(static_cast<double>(n)) *
             (Interval(1.0) + Interval(growth));
  }
  ComputedSum result;
  result.value = channel.sum + Interval(-error.hi(), error.hi());
  result.may_overflow = (Interval(channel.absolute) + error).hi() >= fp32_overflow;
  result.must_overflow = result.value.lo() >= fp32_overflow || result.value.hi() <= -fp32_overflow;
  return result;
}

/// Ends of S^ / n in FP32, divided or multiplied by the rounded reciprocal. Rounding is monotone,
/// so the ends of S^ give the ends of the mean.
Interval computed_mean(const Interval& sum, std::int64_t n) {
  const Interval exact_count(static_cast<double>(n));
  const double count = round_to(fp32, static_cast<double>(n));
  // 1/n lies between doubles far from any FP32 midpoint, or is a power of two
  const double reciprocal = round_to(fp32, (Interval(1.0) / Interval(count)).lo());
  double lo = std::numeric_limits<double>::infinity(), hi = -lo;
  for (const Interval& mean :
       {sum / exact_count, sum / Interval(count), sum * Interval(reciprocal)}) {
    lo = std::fmin(lo, round_to(fp32, mean.lo()));
    hi = std::fmax(hi, round_to(fp32, mean.hi()));
  }
  if (lo > 0 && lo < smallest_normal) lo = 0;  // flushed
  if (hi < 0 && hi > -smallest_normal) hi = 0;
  return {lo, hi};
}

std::string place(const char* tensor, std::int64_t row, std::int64_t column, double value) {
  char text[96];
  std::snprintf(text, sizeof text, "%s[%lld,%lld] = %.9g", tensor, static_cast<long long>(row),
                static_cast<long long>(column), value);
  return text;
}

}  // namespace

StoredConstants stored_constants(const Scale& scale, const KernelModel& kernel) {
  StoredConstants constants;
  const auto store = [&](FactorSite site, double& stored, bool& present) {
    const Factor factor = factor_at(site, scale, kernel);
    present = !factor.is_one();
    if (present) stored = round_once(factor, kernel.scale.constant);
  };
  store(FactorSite::query, constants.query, constants.at_query);
  store(FactorSite::key, constants.key, constants.at_key);
  store(FactorSite::score, constants.score, constants.at_score);
  return constants;
}

double fold_constant(double x, const Format& format, double constant, const KernelModel& kernel) {
  return fold(x, format, constant, kernel);
}

Operands::Operands(const UpwardRounding&, const Head& head, const KernelModel& kernel)
    : head_(&head), kernel_(&kernel) {
  struct Site {
    FactorSite site;
    const char* name;
    Interval* exact;
    double* stored;
    bool* folded;
  };
  for (const Site& each :
       {Site{FactorSite::query, "query", &query_factor_, &stored_query_factor_, &fold_query_},
        Site{FactorSite::key, "key", &key_factor_, &stored_key_factor_, &fold_key_},
        Site{FactorSite::score, "score", &score_factor_, &stored_score_factor_, nullptr}}) {
    const Factor factor = factor_at(each.site, head.scale, kernel);
    if (factor.is_one()) continue;
    *each.exact = enclose(factor, 256).to_doubles();
    *each.stored = round_once(factor, kernel.scale.constant);
    if (each.folded != nullptr) *each.folded = true;
    if (!std::isfinite(*each.stored)) {
      reject(std::string(each.name) + " constant overflows " +
             std::string(kernel.scale.constant.name));
      return;
    }
  }
  if (examine_queries()) examine_keys();
}

void Operands::reject(std::string where, bool certain) {
  finite_ = false;
  non_finite_certain_ = certain;
  non_finite_where_ = std::move(where);
}

bool Operands::examine_queries() {
  std::vector<double> row(static_cast<std::size_t>(channels()));
  for (std::int64_t i = 0; i < queries(); ++i) {
    query_row(i, row.data());
    const auto bad =
        std::find_if(row.begin(), row.end(), [](double x) { return !std::isfinite(x); });
    if (bad == row.end()) continue;
    const std::int64_t column = bad - row.begin();
    const double made = *bad;
    head_->q.load_row(i, row.data());
    const double stored = row[static_cast<std::size_t>(column)];
    std::string where = place("q", i, column, stored);
    if (std::isfinite(stored)) where += " becomes " + std::to_string(made) + " when scaled";
    reject(std::move(where));
    return false;
  }
  return true;
}

void Operands::examine_keys() {
  const KeyCentring& centring = kernel_->centring;
  const std::int64_t n = std::clamp<std::int64_t>(head_->visibility.length, 0, keys());
  const std::int64_t examined = kernel_->tiles.padding == Padding::zero_keys ? keys() : n;
  const auto width = static_cast<std::size_t>(channels());
  std::vector<Channel> statistics(centring.keys == Centring::none ? 0 : width);
  std::vector<double> row(width);
  for (std::int64_t j = 0; j < examined; ++j) {
    folded_key_row(j, row.data());
    for (std::size_t c = 0; c < width; ++c) {
      if (std::isfinite(row[c])) {
        if (j < n && centring.keys != Centring::none) statistics[c].add(row[c]);
        continue;
      }
      const double made = row[c];
      head_->k.load_row(j, row.data());
      std::string where = place("k", j, static_cast<std::int64_t>(c), row[c]);
      if (std::isfinite(row[c])) where += " becomes " + std::to_string(made) + " when scaled";
      return reject(std::move(where));
    }
  }
  if (centring.keys == Centring::none) return;

  stored_mean_.assign(width, Interval(0.0));
  if (n == 0) return;
  // (1 + u)^n - 1 <= e^(n u) - 1, u = 2^-24
  const Interval exponent = Interval(static_cast<double>(n)) * power_of_two(-fp32.precision);
  const double growth = (exp(exponent) - Interval(1.0)).hi();
  for (std::size_t c = 0; c < width; ++c) {
    const ComputedSum sum = computed_sum(statistics[c], n, growth);
    const std::string what = "mean of k, channel " + std::to_string(c);
    if (sum.may_overflow) return reject(what + ", overflows FP32", sum.must_overflow);
    const Interval mean = computed_mean(sum.value, n);
    const double lo = round_to(centring.mean, mean.lo()), hi = round_to(centring.mean, mean.hi());
    if (!std::isfinite(lo) || !std::isfinite(hi)) {
      return reject(what + ", overflows " + std::string(centring.mean.name),
                    !std::isfinite(lo) && !std::isfinite(hi));
    }
    stored_mean_[c] = Interval(lo, hi);
    if (centring.keys == Centring::mean && lo != hi) keys_certain_ = false;
  }
  if (centring.keys != Centring::mean) return;

  const NearestRounding nearest;
  for (std::size_t c = 0; c < width; ++c) {
    const auto overflows = [&](double k, double a) {
      return !std::isfinite(rounded_difference(centring.difference, k, a));
    };
    const double a_lo = stored_mean_[c].lo(), a_hi = stored_mean_[c].hi();
    const Channel& s = statistics[c];
    if (!overflows(s.most, a_lo) && !overflows(s.least, a_hi)) continue;
    const bool certain = overflows(s.most, a_hi) || overflows(s.least, a_lo);
    for (std::int64_t j = 0; j < n; ++j) {
      folded_key_row(j, row.data());
      if (overflows(row[c], a_lo) || overflows(row[c], a_hi)) {
        return reject(place("k", j, static_cast<std::int64_t>(c), row[c]) +
                          " less the mean overflows " + std::string(centring.difference.name),
                      certain);
      }
    }
  }
}

void Operands::query_row(std::int64_t i, double* out) const {
  const NearestRounding scope;
  head_->q.load_row(i, out);
  if (!fold_query_) return;
  for (std::int64_t c = 0; c < channels(); ++c) {
    out[c] = fold(out[c], head_->q.format(), stored_query_factor_, *kernel_);
  }
}

void Operands::folded_key_row(std::int64_t j, double* out) const {
  const NearestRounding scope;
  head_->k.load_row(j, out);
  if (!fold_key_) return;
  for (std::int64_t c = 0; c < channels(); ++c) {
    out[c] = fold(out[c], head_->k.format(), stored_key_factor_, *kernel_);
  }
}

void Operands::key_row(std::int64_t j, double* lo, double* hi) const {
  folded_key_row(j, lo);
  if (kernel_->centring.keys != Centring::mean) {
    std::copy(lo, lo + channels(), hi);
    return;
  }
  const NearestRounding scope;
  const Format& format = kernel_->centring.difference;
  for (std::int64_t c = 0; c < channels(); ++c) {
    const Interval& mean = stored_mean_[static_cast<std::size_t>(c)];
    const double k = lo[c];
    lo[c] = rounded_difference(format, k, mean.hi());
    hi[c] = mean.is_point() ? lo[c] : rounded_difference(format, k, mean.lo());
  }
}

void Operands::exact_key_row(std::int64_t j, double* lo, double* hi) const {
  const UpwardRounding scope;
  head_->k.load_row(j, lo);
  for (std::int64_t c = 0; c < channels(); ++c) {
    const Interval exact = fold_key_ ? Interval(lo[c]) * key_factor_ : Interval(lo[c]);
    lo[c] = exact.lo(), hi[c] = exact.hi();
  }
}

void Operands::exact_query_row(std::int64_t i, double* lo, double* hi) const {
  const UpwardRounding scope;
  head_->q.load_row(i, lo);
  for (std::int64_t c = 0; c < channels(); ++c) {
    const Interval exact = fold_query_ ? Interval(lo[c]) * query_factor_ : Interval(lo[c]);
    lo[c] = exact.lo(), hi[c] = exact.hi();
  }
}

}  // namespace headroom
