#include "reference/model/key_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "reference/format/convert.h"
#include "reference/format/format.h"

namespace headroom {
namespace {

constexpr double fp32_overflow = 0x1p128 - 0x1p103;  // RNE to FP32 is infinite from here on
constexpr double smallest_normal = 0x1p-126;
constexpr int fp32_least = fp32.least_exponent();

/// Is every key of this channel a multiple of 2^exponent? Reads up to the first that is not.
bool all_multiples(std::int64_t n, std::int64_t channel, int exponent,
                   const std::function<double(std::int64_t, std::int64_t)>& key) {
  for (std::int64_t j = 0; j < n; ++j) {
    const double k = key(j, channel);
    if (k == 0) continue;
    const ExactValue value = exact_value(k);
    if (static_cast<int>(value.exponent) + std::countr_zero(value.significand) < exponent) {
      return false;
    }
  }
  return true;
}

}  // namespace

void KeyChannel::add(double k) {
  least = std::fmin(least, k), most = std::fmax(most, k);
  if (k == 0) return;
  sum += Interval(k);
  absolute = opaque(opaque(absolute) + std::fabs(k));
  const ExactValue value = exact_value(k);
  grain = std::min(grain, static_cast<int>(value.exponent) + std::countr_zero(value.significand));
}

std::optional<std::vector<KeyChannel>> key_channels_by_pass(
    const Matrix& keys, std::int64_t n, WordFormat words, Folding fold,
    const std::function<double(std::int64_t, std::int64_t)>& key) {
  const std::int64_t width = padded_channels(keys.columns());
  constexpr float none = std::numeric_limits<float>::infinity();
  ColumnSums sums;
  sums.sum.assign(static_cast<std::size_t>(width), 0.0);
  sums.magnitude = sums.sum;
  sums.least.assign(static_cast<std::size_t>(width), none);
  sums.most.assign(static_cast<std::size_t>(width), -none);
  {
    const NearestRounding nearest;
    pass_kernels(best_instruction_set(), words).columns(stored_rows(keys, n), fold, sums);
  }
  // the product with the constant is normal, and so are the numbers that rounding leaves
  const double least = sums.smallest * (fold.on ? std::fabs(fold.constant) : 1.0);
  if (fold.on && !(least >= 0x1p-126)) return std::nullopt;
  const bool normal_throughout = least >= std::ldexp(1.0, fp32.emin + keys.format().precision);
  const Interval error(column_error(n));
  std::vector<KeyChannel> channels(static_cast<std::size_t>(keys.columns()));
  for (std::size_t c = 0; c < channels.size(); ++c) {
    const auto channel = static_cast<std::int64_t>(c);
    const auto at = static_cast<std::size_t>(position_of(words, channel));
    if (!std::isfinite(sums.magnitude[at])) return std::nullopt;
    KeyChannel& k = channels[c];
    k.least = sums.least[at], k.most = sums.most[at];
    if (sums.magnitude[at] == 0) continue;
    // The coarsest grid on which every partial sum of the keys is a binary32 number, if they lie on
    // it; the pass has made no rounding then.
    int exponent = 0;
    const bool power_of_two = std::frexp(sums.magnitude[at], &exponent) == 0.5;
    const int coarse = std::max(exponent - (power_of_two ? 1 : 0) - fp32.precision, fp32_least);
    if (all_multiples(n, channel, coarse, key)) {
      k.grain = coarse;
      k.absolute = sums.magnitude[at];
      k.sum = Interval(sums.sum[at]);
      continue;
    }
    const bool normal =
        coarse > fp32.emin && (normal_throughout || all_multiples(n, channel, fp32.emin, key));
    k.grain = normal ? fp32.emin : std::min(coarse, fp32.emin) - 1;
    // sum |k| <= S^ / (1 - error), and 1 / (1 - x) <= 1 + 2 x
    const Interval absolute =
        Interval(sums.magnitude[at]) * (Interval(1.0) + Interval(2.0) * error);
    k.absolute = absolute.hi();
    const double off = (error * absolute).hi();
    k.sum = Interval(sums.sum[at]) + Interval(-off, off);
  }
  return channels;
}

ComputedSum computed_sum(const KeyChannel& channel, std::int64_t n, double growth) {
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

}  // namespace headroom
