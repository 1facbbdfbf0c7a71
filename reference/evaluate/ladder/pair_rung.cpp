// Error account, u = 2^-53, T >= |t_j| terms, n keys:
//   score       exact, or gamma_(d + 16)^2 |q| |k_j| (pair_kernels.h)
//   exponent    e_t = 2^-101 T + |c| (score error), or with softcap 2^-94 cap log2(e) + the same
//   weight      rho = 2^-98 + e_t ln 2 (1 + 2^-9) relative; below 2^-900 taken as 0
//   l           rho + (n / lanes + lanes) 3 u^2 relative, all terms being positive
//   output      (rho + 2 u^2 + (n / lanes + lanes) 3 u^2 (1 + 2^-50)) A, A = sum p |v|: each
//               addition errs by 3 u^2 of a partial sum, which A bounds
#include "reference/evaluate/ladder/pair_rung.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace headroom {

namespace {

constexpr double u = 0x1p-53;
constexpr double largest_exponent = 0x1p40;
constexpr mpfr_prec_t pair_precision = 224;

std::size_t padded(std::size_t n) {
  constexpr auto p = static_cast<std::size_t>(pair_padding);
  return (n + p - 1) / p * p;
}

WideInterval pair_value(double hi, double lo) {
  WideInterval x(pair_precision, hi);
  mpfi_add_d(x.raw(), x.raw(), lo);
  return x;
}
/// x +- error
void widen(WideInterval& x, double error) {
  mpfr_sub_d(&x.raw()->left, &x.raw()->left, error, MPFR_RNDD);
  mpfr_add_d(&x.raw()->right, &x.raw()->right, error, MPFR_RNDU);
}

}  // namespace

PairRow::PairRow(const AttentionProblem& problem, const VectorRung& rung, std::int64_t row,
                 PairWorkspace& work)
    : problem_(&problem),
      kernels_(&pair_kernels(rung.instruction_set())),
      loops_(&ladder_kernels(rung.instruction_set())) {
  const std::int64_t d = problem.channels();
  work.query.resize(static_cast<std::size_t>(d));
  work.key.resize(static_cast<std::size_t>(d));
  std::vector<double>&query = work.query, &key = work.key;
  rung.load(problem.q, row, query.data());
  const VectorRung::Reach reach = rung.reach(problem.q.format(), query.data());
  const double query_norm = reach.norm();
  const ScaleConstants& c = rung.constants();
  const bool capped = problem.softcap.has_value();

  const KeyRange range = problem.range(row);
  const auto most = padded(static_cast<std::size_t>(range.count()) + 1);
  std::vector<double>&s_hi = work.s_hi, &s_lo = work.s_lo, &bias = work.bias;
  s_hi.assign(most, 0.0);
  s_lo.assign(most, 0.0);
  bias.assign(most, 0.0);
  keys_.reserve(most);
  double score_error = 0, largest_score = 0, largest_bias = 0;
  const auto n_d = static_cast<double>(d) + 16;
  const double cascade = n_d * n_d * u * u * (1 + 0x1p-30);
  const bool all_visible = problem.ranges_only() && !problem.bias;
  // keys of reach up to this have exact scores, whatever the order
  const int exact_to = 4 * 53 - reach.quarters;
  const auto k_words = words_of(problem.k.format());
  const bool together =
      k_words && 2 * rung.keys_of_reach(std::max(0, exact_to + 1)) < range.count();
  if (together) {
    // the few inexact ones are computed again below; hidden ones are dropped
    work.scores.resize(most);
    kernels_->scores(*k_words, problem.k.row_bytes(range.begin), problem.k.row_stride_bytes(),
                     range.count(), query.data(), d, work.scores.data());
  }
  for (std::int64_t j = range.begin; j < range.end; ++j) {
    if (!all_visible && !problem.visible(row, j)) continue;
    const std::size_t i = keys_.size();
    keys_.push_back(j);
    const int quarters = rung.key_reach(j);
    const bool exact = quarters <= exact_to;
    if (exact && together) {
      s_hi[i] = work.scores[static_cast<std::size_t>(j - range.begin)];
    } else {
      rung.load(problem.k, j, key.data());
      if (exact) {
        s_hi[i] = kernels_->dot(query.data(), key.data(), d);
      } else {
        kernels_->dot_pair(query.data(), key.data(), d, &s_hi[i], &s_lo[i]);
        score_error = std::max(score_error, cascade * query_norm * rung.norm_of_reach(quarters));
        ++cascaded_;
      }
    }
    largest_score = std::max(largest_score, std::fabs(s_hi[i]) + std::fabs(s_lo[i]));
    if (problem.bias) {
      bias[i] = problem.bias_at(row, j);
      largest_bias = std::max(largest_bias, std::fabs(bias[i]));
    }
  }
  if (keys_.empty()) return;
  std::size_t n = keys_.size();
  if (problem.sink) largest_bias = std::max(largest_bias, std::fabs(*problem.sink));
  const double t_bound =
      ((capped ? c.cap_hi : std::fabs(c.c_hi) * largest_score) + 1.4427 * largest_bias) *
      (1 + 0x1p-40);
  if (!(t_bound <= largest_exponent)) return;
  const double e_t = (pair_exponent_error * t_bound + (capped ? pair_softcap_error * c.cap_hi : 0) +
                      c.natural_magnitude * 1.4427 * score_error) *
                     (1 + 0x1p-40);
  if (!(e_t < 0x1p-12)) return;

  std::vector<double>&t_hi = work.t_hi, &t_lo = work.t_lo;
  t_hi.resize(most);
  t_lo.resize(most);
  const PairScale scale =
      capped ? PairScale{c.w_hi, c.w_lo, c.cap_hi, c.cap_lo} : PairScale{c.c_hi, c.c_lo, 0, 0};
  const auto count = static_cast<std::int64_t>(padded(n + 1));
  if (problem.sink) bias[n] = *problem.sink;  // a key of score 0 and value 0
  const bool biased = problem.bias.has_value() || problem.sink.has_value();
  kernels_->exponents(scale, s_hi.data(), s_lo.data(), biased ? bias.data() : nullptr,
                      std::min<std::int64_t>(count, static_cast<std::int64_t>(most)), t_hi.data(),
                      t_lo.data());
  if (problem.sink) ++n;
  double greatest = t_hi[0];
  for (std::size_t i = 1; i < n; ++i) greatest = std::max(greatest, t_hi[i]);
  shift_ = std::nearbyint(greatest);
  p_hi_.assign(most, 0.0);
  p_lo_.assign(most, 0.0);
  kernels_->weights(t_hi.data(), t_lo.data(), shift_, static_cast<std::int64_t>(most), p_hi_.data(),
                    p_lo_.data());
  std::fill(p_hi_.begin() + static_cast<std::ptrdiff_t>(n), p_hi_.end(), 0.0);
  std::fill(p_lo_.begin() + static_cast<std::ptrdiff_t>(n), p_lo_.end(), 0.0);
  weight_error_ = (pair_exp2_error + e_t * 0.6931472 * (1 + 0x1p-9)) * (1 + 0x1p-40);
  lost_ = static_cast<double>(n) * 0x1p-899;
  kernels_->sum(p_hi_.data(), p_lo_.data(), static_cast<std::int64_t>(most), &l_hi_, &l_lo_);
  usable_ = true;
}

std::vector<WideInterval> PairRow::outputs(std::span<const std::int64_t> channels,
                                           PairWorkspace& work) const {
  const std::size_t most = p_hi_.size(), n = keys_.size();
  const double additions =
      (static_cast<double>(most) + 16) * pair_sum_error * (1 + 0x1p-40);  // lanes may be one
  WideInterval l = pair_value(l_hi_, l_lo_);
  widen(l, l_hi_ * (weight_error_ + additions) * (1 + 0x1p-40) + lost_);

  // values of a batch of channels, transposed
  constexpr std::size_t batch = 16;
  std::vector<double>& values = work.values;
  values.assign(most * std::min(batch, channels.size()), 0.0);
  const Matrix& v = problem_->v;
  const auto words = words_of(v.format());
  std::vector<double> row(static_cast<std::size_t>(v.columns()));
  std::vector<WideInterval> result;
  result.reserve(channels.size());
  for (std::size_t first = 0; first < channels.size(); first += batch) {
    const std::size_t last = std::min(channels.size(), first + batch);
    if (words && last - first < 8) {
      for (std::size_t c = first; c < last; ++c) {
        kernels_->gather(*words, v.row_bytes(0) + channels[c] * v.format().storage_bytes(),
                         v.row_stride_bytes(), keys_.data(), static_cast<std::int64_t>(n),
                         &values[(c - first) * most]);
      }
    } else {
      for (std::size_t i = 0; i < n; ++i) {
        if (words) {
          loops_->convert(*words, v.row_bytes(keys_[i]), v.columns(), row.data());
        } else {
          v.load_row(keys_[i], row.data());
        }
        for (std::size_t c = first; c < last; ++c) {
          values[(c - first) * most + i] = row[static_cast<std::size_t>(channels[c])];
        }
      }
    }
    for (std::size_t c = first; c < last; ++c) {
      const double* value = &values[(c - first) * most];
      double hi, lo, magnitude, vmax = 0;
      kernels_->weighted_sum(p_hi_.data(), p_lo_.data(), value, static_cast<std::int64_t>(most),
                             &hi, &lo, &magnitude);
      for (std::size_t i = 0; i < n; ++i) vmax = std::max(vmax, std::fabs(value[i]));
      const double a = magnitude * (1 + (static_cast<double>(most) + 32) * 2 * u);
      WideInterval o = pair_value(hi, lo);
      widen(o,
            (a * (weight_error_ + pair_product_error + additions) + lost_ * vmax) * (1 + 0x1p-40));
      result.push_back(o / l);
    }
  }
  return result;
}

std::optional<double> PairRow::common_value(std::int64_t channel) const {
  const Matrix& v = problem_->v;
  const std::uint64_t code = v.code(keys_[0], channel);
  for (const std::int64_t j : keys_) {
    if (v.code(j, channel) != code) return std::nullopt;
  }
  const double value = decode(v.format(), code);
  if (problem_->sink && value != 0) return std::nullopt;
  return value;
}

WideInterval PairRow::lse2() const {
  const double additions = (static_cast<double>(p_hi_.size()) + 16) * pair_sum_error;
  WideInterval l = pair_value(l_hi_, l_lo_);
  widen(l, l_hi_ * (weight_error_ + additions) * (1 + 0x1p-40) + lost_);
  l = log2(l);
  mpfi_add_d(l.raw(), l.raw(), shift_);
  return l;
}

}  // namespace headroom
