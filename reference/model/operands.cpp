#include "reference/model/operands.h"

#include <gmp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "reference/format/convert.h"
#include "reference/model/key_sums.h"
#include "reference/real/wide_interval.h"

namespace headroom {
namespace {

constexpr double smallest_normal = 0x1p-126;

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
  factor.log2_e =
      !scale.is_base2() && kernel.exponent.base == ExponentBase::two && folding.log2e == site;
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
  if (!examine_together() && examine_queries()) examine_keys();
}

void Operands::reject(std::string where, bool certain) {
  finite_ = false;
  non_finite_certain_ = certain;
  non_finite_where_ = std::move(where);
}

// RN_operand(RN_arithmetic(x c)): as one FP32 product and a rounding to BF16 if the arithmetic is
// FP32, or if every product of the constant and a BF16 number is an FP32 number.
std::optional<Operands::PassReading> Operands::reading(const Matrix& matrix, bool folds,
                                                       double constant) const {
  const std::optional<WordFormat> words = word_format(matrix.format());
  if (!words || !folds) return words ? std::optional<PassReading>({*words, {}}) : std::nullopt;
  const KernelModel& kernel = *kernel_;
  const bool in_fp32 = round_to(fp32, constant) == constant;
  const bool once = kernel.scale.arithmetic == fp32 ||
                    (kernel.scale.arithmetic == bf16 && round_to(bf16, constant) == constant);
  if (*words != WordFormat::bf16 || kernel.operand != bf16 || !in_fp32 || !once || constant == 0) {
    return std::nullopt;
  }
  return PassReading{*words, {true, static_cast<float>(constant)}};
}

/// Rows [begin, end) are finite, also when folded: true if that is certain. Drops `reading` where a
/// product underflows.
bool Operands::examine_by_pass(const Matrix& matrix, std::int64_t begin, std::int64_t end,
                               std::optional<PassReading>& reading) const {
  if (!reading) return false;
  if (begin >= end || matrix.columns() == 0) return true;
  const NearestRounding nearest;
  StoredRows rows = stored_rows(matrix, end);
  rows.data += begin * rows.stride;
  rows.rows -= begin;
  const Extremes e = pass_kernels(best_instruction_set(), reading->words).extremes(rows);
  if (!e.finite) return false;
  if (!reading->fold.on) return true;
  const double constant = reading->fold.constant;
  if (!(e.smallest * std::fabs(constant) >= smallest_normal)) {
    reading.reset();
    return false;
  }
  // rounding is monotone
  return std::isfinite(fold(e.least, matrix.format(), constant, *kernel_)) &&
         std::isfinite(fold(e.most, matrix.format(), constant, *kernel_));
}

bool Operands::examine_queries() {
  query_reading_ = reading(head_->q, fold_query_, stored_query_factor_);
  if (examine_by_pass(head_->q, 0, queries(), query_reading_)) return true;
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

/// Makes key_squares_: false if a key is not finite, or its square might not be.
bool Operands::square_keys(std::int64_t n) {
  if (!key_reading_ || key_reading_->fold.on || channels() == 0) return false;
  KeySquares pass{std::vector<float>(static_cast<std::size_t>(n)),
                  std::vector<double>(static_cast<std::size_t>(padded_channels(channels())))};
  const NearestRounding nearest;
  pass_kernels(best_instruction_set(), key_reading_->words)
      .sums(stored_rows(head_->k, n), pass.squares.data(), pass.by_channel.data());
  for (const float square : pass.squares) {
    if (!std::isfinite(square)) return false;
  }
  key_squares_ = std::move(pass);
  return true;
}

/// K, then Q with the keys' mean, each read once for what is made of it: true if all of both that
/// has to be is certainly finite.
bool Operands::examine_together() {
  const Visibility& visible = head_->visibility;
  if (kernel_->centring.keys != Centring::none || visible.kind != MaskKind::none ||
      visible.length <= 0 || visible.length > keys() || queries() == 0 || channels() == 0) {
    return false;
  }
  query_reading_ = reading(head_->q, fold_query_, stored_query_factor_);
  key_reading_ = reading(head_->k, fold_key_, stored_key_factor_);
  const std::int64_t n = visible.length;
  const std::int64_t examined = kernel_->tiles.padding == Padding::zero_keys ? keys() : n;
  if (!query_reading_ || query_reading_->fold.on || !square_keys(n) ||
      !examine_by_pass(head_->k, n, examined, key_reading_)) {
    key_squares_.reset();
    return false;
  }
  const auto rows = static_cast<std::size_t>(queries());
  const WordFormat words = query_reading_->words;
  std::vector<double> mean;
  const NearestRounding nearest;
  for (std::int64_t c = 0; c < channels(); ++c) {
    const auto at = static_cast<std::size_t>(position_of(key_reading_->words, c));
    mean.push_back(key_squares_->by_channel[at] / static_cast<double>(n));
  }
  QueryProducts products{arranged_doubles(words, mean), std::vector<double>(rows),
                         std::vector<double>(rows), std::vector<std::uint8_t>(rows)};
  pass_kernels(best_instruction_set(), words)
      .queries(stored_rows(head_->q, queries()), {},
               {products.mean.data(), nullptr, nullptr, nullptr, 1},
               {products.squares.data(), products.dots.data(), nullptr, nullptr, nullptr, nullptr,
                products.may_be_on_grid.data()});
  // NaN and infinity have no square below 2^256, as words of any format are read
  for (const double square : products.squares) {
    if (!(square < 0x1p255)) {
      key_squares_.reset();
      return false;
    }
  }
  query_products_ = std::move(products);
  return true;
}

void Operands::examine_keys() {
  const KeyCentring& centring = kernel_->centring;
  const std::int64_t n = std::clamp<std::int64_t>(head_->visibility.length, 0, keys());
  const std::int64_t examined = kernel_->tiles.padding == Padding::zero_keys ? keys() : n;
  const auto width = static_cast<std::size_t>(channels());
  std::vector<KeyChannel> statistics(centring.keys == Centring::none ? 0 : width);
  std::vector<double> row(width);
  bool done = false;
  key_reading_ = reading(head_->k, fold_key_, stored_key_factor_);
  if (centring.keys == Centring::none || n == 0) {
    const bool squared = centring.keys == Centring::none && n > 0 && square_keys(n);
    done = examine_by_pass(head_->k, squared ? n : 0, examined, key_reading_);
  } else if (key_reading_) {
    const auto key = [&](std::int64_t j, std::int64_t c) {
      const double k = decode(head_->k.format(), head_->k.code(j, c));
      return fold_key_ ? fold(k, head_->k.format(), stored_key_factor_, *kernel_) : k;
    };
    if (auto channels =
            key_channels_by_pass(head_->k, n, key_reading_->words, key_reading_->fold, key)) {
      statistics = std::move(*channels);
      done = examine_by_pass(head_->k, n, examined, key_reading_);
    } else {
      key_reading_.reset();
    }
    if (!done) statistics.assign(width, KeyChannel());
  }
  for (std::int64_t j = 0; j < examined && !done; ++j) {
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
    const KeyChannel& s = statistics[c];
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
