// Plain MPFR calls on Boost's numbers: each result gets its precision explicitly, because Boost's
// default precision is process- or thread-wide state that anyone may have changed.
#include "reference/evaluate/exact_attention.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <stdexcept>

#include "reference/real/fp_environment.h"

namespace headroom {
namespace {

mpfr_ptr raw(Real& x) { return x.backend().data(); }
mpfr_srcptr raw(const Real& x) { return x.backend().data(); }

Real zero(mpfr_prec_t bits) {
  Real x;
  mpfr_set_prec(raw(x), bits);
  mpfr_set_zero(raw(x), 1);
  return x;
}

Real minus_infinity(mpfr_prec_t bits) {
  Real x = zero(bits);
  mpfr_set_inf(raw(x), -1);
  return x;
}

void require_exact(int ternary) {
  if (ternary != 0) throw std::logic_error("exact_dot: an operation was rounded");
}

/// product = a * b; 106 bits hold any product of doubles.
void multiply_exactly(Real& product, Real& scratch, double a, double b) {
  require_exact(mpfr_set_d(raw(scratch), a, MPFR_RNDN));
  require_exact(mpfr_mul_d(raw(product), raw(scratch), b, MPFR_RNDN));
  if (!mpfr_number_p(raw(product))) throw std::invalid_argument("exact_dot: NaN or infinity");
}

/// c of z = c <q, k>: s log2(e) = s / ln 2, or c itself in base 2; five roundings at most.
Real log2_factor(const Scale& scale, mpfr_prec_t bits) {
  Real factor = zero(bits), divisor = zero(bits);
  mpq_t rational;
  mpq_init(rational);
  mpq_set_str(rational, to_text(scale.rational()).c_str(), 10);
  mpfr_set_q(raw(factor), rational, MPFR_RNDN);
  mpq_clear(rational);
  mpfr_sqrt_ui(raw(divisor), scale.radicand(), MPFR_RNDN);
  mpfr_div(raw(factor), raw(factor), raw(divisor), MPFR_RNDN);
  if (!scale.is_base2()) {
    mpfr_const_log2(raw(divisor), MPFR_RNDN);
    mpfr_div(raw(factor), raw(factor), raw(divisor), MPFR_RNDN);
  }
  return factor;
}

/// Bits needed in front of the binary point of |z|.
mpfr_prec_t integer_bits(const Real& z) {
  return mpfr_regular_p(raw(z)) ? std::max<mpfr_exp_t>(0, mpfr_get_exp(raw(z))) : 0;
}

using ValueRow = std::function<const double*(std::size_t)>;

/// Weights relative to the maximum, their sums, and the quotient; see the header for the error.
ExactRow softmax(std::vector<Real> z, const ValueRow& value_row, std::int64_t value_channels,
                 int bits) {
  ExactRow row;
  row.output.assign(static_cast<std::size_t>(value_channels), zero(bits));
  row.max_z = row.lse2 = row.lse = minus_infinity(bits);
  row.z = std::move(z);
  if (row.z.empty()) return row;

  row.max_z = *std::max_element(row.z.begin(), row.z.end(), [](const Real& a, const Real& b) {
    return mpfr_less_p(raw(a), raw(b)) != 0;
  });
  mpfr_prec_t wide = bits + 8;
  for (const Real& each : row.z) wide = std::max(wide, bits + 8 + integer_bits(each));

  Real weight = zero(wide), term = zero(wide), sum = zero(wide);
  std::vector<Real> output(row.output.size(), zero(wide));
  for (std::size_t j = 0; j < row.z.size(); ++j) {
    mpfr_sub(raw(weight), raw(row.z[j]), raw(row.max_z), MPFR_RNDN);
    mpfr_exp2(raw(weight), raw(weight), MPFR_RNDN);
    mpfr_add(raw(sum), raw(sum), raw(weight), MPFR_RNDN);
    const double* value = value_row(j);
    for (std::size_t c = 0; c < output.size(); ++c) {
      mpfr_mul_d(raw(term), raw(weight), value[c], MPFR_RNDN);
      mpfr_add(raw(output[c]), raw(output[c]), raw(term), MPFR_RNDN);
    }
  }
  for (std::size_t c = 0; c < output.size(); ++c) {
    mpfr_div(raw(row.output[c]), raw(output[c]), raw(sum), MPFR_RNDN);
  }
  // LSE2 = max + log2(sum) and LSE = LSE2 ln 2, kept wide: the sum may cancel.
  row.lse2 = row.lse = zero(wide);
  mpfr_log2(raw(row.lse2), raw(sum), MPFR_RNDN);
  mpfr_add(raw(row.lse2), raw(row.lse2), raw(row.max_z), MPFR_RNDN);
  mpfr_const_log2(raw(row.lse), MPFR_RNDN);
  mpfr_mul(raw(row.lse), raw(row.lse), raw(row.lse2), MPFR_RNDN);
  return row;
}

std::vector<double> load_row(const Matrix& matrix, std::int64_t row) {
  std::vector<double> values(static_cast<std::size_t>(matrix.columns()));
  matrix.load_row(row, values.data());
  return values;
}

}  // namespace

Real exact_dot(const double* a, const double* b, std::int64_t n) {
  const NearestRounding scope;  // MPFR reads doubles: no DAZ
  // Every product is a multiple of 2^lowest and below 2^highest in magnitude, so every partial sum
  // is a multiple of 2^lowest below n 2^highest.
  Real product = zero(106), scratch = zero(53);
  mpfr_exp_t lowest = std::numeric_limits<mpfr_exp_t>::max();
  mpfr_exp_t highest = std::numeric_limits<mpfr_exp_t>::min();
  for (std::int64_t i = 0; i < n; ++i) {
    multiply_exactly(product, scratch, a[i], b[i]);
    if (mpfr_zero_p(raw(product))) continue;
    const mpfr_exp_t exponent = mpfr_get_exp(raw(product));
    highest = std::max(highest, exponent);
    lowest = std::min(lowest, exponent - mpfr_min_prec(raw(product)));
  }
  if (highest < lowest) return zero(2);  // no product but zeros
  Real sum = zero(highest - lowest + std::bit_width(static_cast<std::uint64_t>(n)));
  for (std::int64_t i = 0; i < n; ++i) {
    multiply_exactly(product, scratch, a[i], b[i]);
    require_exact(mpfr_add(raw(sum), raw(sum), raw(product), MPFR_RNDN));
  }
  return sum;
}

ExactRow exact_row(const Head& head, std::int64_t row, int bits) {
  const NearestRounding scope;
  const KeyRange keys = head.visibility.visible(row);
  const std::vector<double> q = load_row(head.q, row);
  std::vector<Real> z;
  mpfr_prec_t widest = 0;
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    z.push_back(exact_dot(q.data(), load_row(head.k, j).data(), head.channels()));
    widest = std::max(widest, integer_bits(z.back()));
  }
  // An error of z is a relative error of 2^z: the digits in front of the point come on top. The
  // factor may add some of its own.
  const mpfr_prec_t wide = bits + 8 + widest + integer_bits(log2_factor(head.scale, bits));
  const Real factor = log2_factor(head.scale, wide);
  for (Real& each : z) {
    Real scaled = zero(wide);
    mpfr_mul(raw(scaled), raw(each), raw(factor), MPFR_RNDN);
    each = std::move(scaled);
  }
  std::vector<double> v(static_cast<std::size_t>(head.value_channels()));
  const ValueRow value_row = [&](std::size_t j) {
    head.v.load_row(keys.begin + static_cast<std::int64_t>(j), v.data());
    return v.data();
  };
  ExactRow result = softmax(std::move(z), value_row, head.value_channels(), bits);
  result.first_key = keys.begin;
  return result;
}

ExactRow exact_row_from_scores(std::vector<Real> z, const std::vector<double>& values,
                               std::int64_t value_channels, int bits) {
  const NearestRounding scope;
  const ValueRow value_row = [&](std::size_t j) {
    return values.data() + j * static_cast<std::size_t>(value_channels);
  };
  return softmax(std::move(z), value_row, value_channels, bits);
}

ExactMaximum exact_row_maximum(const Head& head, std::int64_t row) {
  const NearestRounding scope;
  const KeyRange keys = head.visibility.visible(row);
  if (keys.count() == 0) throw std::invalid_argument("exact_row_maximum: no visible key");
  const std::vector<double> q = load_row(head.q, row);
  const auto score = [&](std::int64_t j) {
    return exact_dot(q.data(), load_row(head.k, j).data(), head.channels());
  };
  ExactMaximum best{score(keys.begin), keys.begin};
  for (std::int64_t j = keys.begin + 1; j < keys.end; ++j) {
    Real value = score(j);
    if (mpfr_greater_p(raw(value), raw(best.value))) best = {std::move(value), j};
  }
  return best;
}

}  // namespace headroom
