// A second way to exact attention for the ladder's tests: plain MPFR loops at a high precision over
// an AttentionProblem, and random problems of awkward kinds.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "reference/evaluate/exact_attention.h"
#include "reference/evaluate/ladder/ladder.h"

namespace headroom::ladder_test {

inline constexpr int oracle_bits = 1400;

inline Real real(double x, int bits = oracle_bits) {
  Real r;
  mpfr_set_prec(r.backend().data(), bits);
  mpfr_set_d(r.backend().data(), x, MPFR_RNDN);
  return r;
}
inline Real real(const Rational& x, int bits = oracle_bits) {
  Real r = real(0.0, bits);
  mpq_t q;
  mpq_init(q);
  mpq_set_str(q, x.str().c_str(), 10);
  mpfr_set_q(r.backend().data(), q, MPFR_RNDN);
  mpq_clear(q);
  return r;
}

/// Output and LSE of one row at oracle_bits.
struct OracleRow {
  bool empty = true;  ///< no visible key (a sink may be there)
  std::vector<Real> output;
  Real lse, lse2;
};

/// One obvious loop: no grouping, no shift, MPFR's huge exponent range.
inline OracleRow oracle_row(const AttentionProblem& p, std::int64_t row) {
  const auto raw = [](Real& x) { return x.backend().data(); };
  OracleRow out;
  out.output.assign(static_cast<std::size_t>(p.value_channels()), real(0.0));
  std::vector<double> q(static_cast<std::size_t>(p.channels())), k(q.size());
  std::vector<double> v(static_cast<std::size_t>(p.value_channels()));
  p.q.load_row(row, q.data());
  Real ln_2 = real(0.0);
  mpfr_const_log2(raw(ln_2), MPFR_RNDN);
  Real scale = real(p.scale.rational());
  Real root = real(0.0);
  mpfr_sqrt_ui(raw(root), p.scale.radicand(), MPFR_RNDN);
  mpfr_div(raw(scale), raw(scale), raw(root), MPFR_RNDN);
  if (p.scale.is_base2()) mpfr_mul(raw(scale), raw(scale), raw(ln_2), MPFR_RNDN);
  Real sum = real(0.0), weight = real(0.0), term = real(0.0);
  for (std::int64_t j = 0; j < p.keys(); ++j) {
    if (!p.visible(row, j)) continue;
    out.empty = false;
    p.k.load_row(j, k.data());
    p.v.load_row(j, v.data());
    Real x = real(0.0);
    for (std::size_t t = 0; t < q.size(); ++t) {
      mpfr_set_d(raw(term), q[t], MPFR_RNDN);
      mpfr_mul_d(raw(term), raw(term), k[t], MPFR_RNDN);
      mpfr_add(raw(x), raw(x), raw(term), MPFR_RNDN);
    }
    mpfr_mul(raw(x), raw(x), raw(scale), MPFR_RNDN);
    if (p.softcap) {
      Real cap = real(*p.softcap);
      mpfr_div(raw(x), raw(x), raw(cap), MPFR_RNDN);
      mpfr_tanh(raw(x), raw(x), MPFR_RNDN);
      mpfr_mul(raw(x), raw(x), raw(cap), MPFR_RNDN);
    }
    mpfr_add_d(raw(x), raw(x), p.bias_at(row, j), MPFR_RNDN);
    mpfr_exp(raw(weight), raw(x), MPFR_RNDN);
    mpfr_add(raw(sum), raw(sum), raw(weight), MPFR_RNDN);
    for (std::size_t c = 0; c < v.size(); ++c) {
      mpfr_mul_d(raw(term), raw(weight), v[c], MPFR_RNDN);
      mpfr_add(raw(out.output[c]), raw(out.output[c]), raw(term), MPFR_RNDN);
    }
  }
  if (p.sink) {
    mpfr_set_d(raw(term), *p.sink, MPFR_RNDN);
    mpfr_exp(raw(term), raw(term), MPFR_RNDN);
    mpfr_add(raw(sum), raw(sum), raw(term), MPFR_RNDN);
  }
  out.lse = real(0.0);
  out.lse2 = real(0.0);
  mpfr_log(raw(out.lse), raw(sum), MPFR_RNDN);
  mpfr_log2(raw(out.lse2), raw(sum), MPFR_RNDN);
  if (!out.empty) {
    for (Real& o : out.output) mpfr_div(raw(o), raw(o), raw(sum), MPFR_RNDN);
  }
  return out;
}

/// Numbers exactly representable in a format, of kinds that break things.
class Source {
 public:
  explicit Source(std::uint64_t seed) : engine_(seed) {}
  std::mt19937_64& engine() { return engine_; }
  std::int64_t between(std::int64_t a, std::int64_t b) {
    return std::uniform_int_distribution<std::int64_t>(a, b)(engine_);
  }
  double uniform(double a, double b) {
    return std::uniform_real_distribution<double>(a, b)(engine_);
  }

  enum Kind { gaussian, spread, offset, integers, tiny, signs, outlier, kinds };
  double number(const Format& f, Kind kind) {
    double x = std::normal_distribution<double>()(engine_);
    switch (kind) {
      case spread:
        x = std::ldexp(x, static_cast<int>(between(-12, 2)));
        if (between(0, 7) == 0) x = 0;
        break;
      case offset:
        x += 16;
        break;
      case integers:
        x = static_cast<double>(between(-3, 3));
        break;
      case tiny:
        x = std::ldexp(x, f.least_exponent() + 3);
        break;
      case signs:
        x = x < 0 ? -1 : 1;
        break;
      case outlier:
        if (between(0, 15) == 0) x *= 20;
        break;
      default:
        break;
    }
    return round_to(f, x);
  }
  Matrix matrix(const Format& f, std::int64_t rows, std::int64_t columns, Kind kind) {
    std::vector<double> x(static_cast<std::size_t>(rows * columns));
    for (double& y : x) y = number(f, kind);
    return Matrix::from_values(f, rows, columns, x);
  }

 private:
  std::mt19937_64 engine_;
};

inline AttentionProblem problem_of(Matrix q, Matrix k, Matrix v, Scale scale) {
  AttentionProblem p;
  p.visibility = {
      .kind = MaskKind::none, .queries = q.rows(), .keys = k.rows(), .length = k.rows()};
  p.q = std::move(q);
  p.k = std::move(k);
  p.v = std::move(v);
  p.scale = scale;
  return p;
}

/// Rounds the oracle's number. Within 2^-1250 relative of a number of 200 bits it is taken to be
/// that number: the heads here have no two different outputs that close.
inline std::uint64_t rounded_oracle(const Target& t, const Real& x) {
  mpfr_srcptr exact = x.backend().data();
  if (mpfr_zero_p(exact)) return 0;
  Real near = real(0.0, 200), distance = real(0.0), slack = real(0.0);
  mpfr_set(near.backend().data(), exact, MPFR_RNDN);
  mpfr_sub(distance.backend().data(), exact, near.backend().data(), MPFR_RNDN);
  mpfr_mul_2si(slack.backend().data(), exact, -1250, MPFR_RNDN);
  const bool on_it = mpfr_cmpabs(distance.backend().data(), slack.backend().data()) <= 0;
  return encode(t.format, on_it ? near.backend().data() : exact, t.policy());
}

}  // namespace headroom::ladder_test
