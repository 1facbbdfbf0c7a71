// A kernel whose every operation is rounded to one format, emulated by MPFR number by number: what
// the simulation's speed is compared with, and its bits.
#pragma once

#include <mpfr.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "reference/evaluate/ladder/problem.h"

namespace headroom::bench {

/// MPFR numbers, cleared at the end.
class MpfrNumbers {
 public:
  MpfrNumbers(std::size_t n, mpfr_prec_t precision) : numbers_(n) {
    for (auto& x : numbers_) mpfr_init2(&x, precision);
  }
  ~MpfrNumbers() {
    for (auto& x : numbers_) mpfr_clear(&x);
  }
  MpfrNumbers(const MpfrNumbers&) = delete;
  MpfrNumbers& operator=(const MpfrNumbers&) = delete;
  mpfr_ptr operator[](std::size_t i) { return &numbers_[i]; }

 private:
  std::vector<__mpfr_struct> numbers_;
};

/// Preset fp16-everywhere, or the same in another format: sums one after another by FMA, scores
/// times one constant, the running maximum of scaled scores, tiles of `tile` keys.
class MpfrKernel {
 public:
  MpfrKernel(const Format& format, std::int64_t queries, std::int64_t keys, std::int64_t d,
             std::int64_t tile)
      : format_(format),
        nq_(queries),
        nk_(keys),
        d_(d),
        tile_(tile),
        q_(size(nq_ * d), format.precision),
        k_(size(nk_ * d), format.precision),
        v_(size(nk_ * d), format.precision),
        o_(size(d), format.precision),
        s_(size(tile), format.precision),
        work_(6, format.precision) {}

  /// Output rows x d as floats. The natural scale is 1 / sqrt(d).
  void run(const AttentionProblem& head, float* output) {
    const mpfr_exp_t emin = mpfr_get_emin(), emax = mpfr_get_emax();
    const mpfr_ptr factor = work_[0];
    {
      MpfrNumbers wide(2, 300);
      mpfr_const_log2(wide[0], MPFR_RNDN);
      mpfr_sqrt_ui(wide[1], static_cast<unsigned long>(d_), MPFR_RNDN);
      mpfr_mul(wide[0], wide[0], wide[1], MPFR_RNDN);
      mpfr_ui_div(factor, 1, wide[0], MPFR_RNDN);
    }
    mpfr_set_emin(format_.least_exponent() + 1);
    mpfr_set_emax(format_.emax + 1);
    read(head.q, nq_, q_);
    read(head.k, nk_, k_);
    read(head.v, nk_, v_);
    for (std::int64_t i = 0; i < nq_; ++i) row(i, output + i * d_);
    mpfr_set_emin(emin);
    mpfr_set_emax(emax);
  }

 private:
  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }
  static void settle(mpfr_ptr x, int ternary) { mpfr_subnormalize(x, ternary, MPFR_RNDN); }

  void read(const Matrix& from, std::int64_t rows, MpfrNumbers& to) {
    std::vector<float> x(size(d_));
    for (std::int64_t i = 0; i < rows; ++i) {
      from.load_row(i, x.data());
      for (std::int64_t t = 0; t < d_; ++t)
        mpfr_set_flt(to[size(i * d_ + t)], x[size(t)], MPFR_RNDN);
    }
  }

  void row(std::int64_t i, float* output) {
    const mpfr_ptr factor = work_[0], m = work_[1], next = work_[2], l = work_[3], x = work_[4],
                   p = work_[5];
    mpfr_set_inf(m, -1);
    mpfr_set_zero(l, 1);
    for (std::int64_t c = 0; c < d_; ++c) mpfr_set_zero(o_[size(c)], 1);
    for (std::int64_t begin = 0; begin < nk_; begin += tile_) {
      const std::int64_t n = std::min(tile_, nk_ - begin);
      mpfr_set(next, m, MPFR_RNDN);
      for (std::int64_t j = 0; j < n; ++j) {
        const mpfr_ptr s = s_[size(j)];
        mpfr_set_zero(s, 1);
        for (std::int64_t t = 0; t < d_; ++t) {
          settle(s,
                 mpfr_fma(s, q_[size(i * d_ + t)], k_[size((begin + j) * d_ + t)], s, MPFR_RNDN));
        }
        settle(s, mpfr_mul(s, s, factor, MPFR_RNDN));
        if (mpfr_greater_p(s, next)) mpfr_set(next, s, MPFR_RNDN);
      }
      settle(x, mpfr_sub(x, m, next, MPFR_RNDN));
      settle(p, mpfr_exp2(p, x, MPFR_RNDN));
      mpfr_set(m, next, MPFR_RNDN);
      settle(l, mpfr_mul(l, l, p, MPFR_RNDN));
      for (std::int64_t c = 0; c < d_; ++c) {
        settle(o_[size(c)], mpfr_mul(o_[size(c)], o_[size(c)], p, MPFR_RNDN));
      }
      for (std::int64_t j = 0; j < n; ++j) {
        settle(x, mpfr_sub(x, s_[size(j)], m, MPFR_RNDN));
        settle(p, mpfr_exp2(p, x, MPFR_RNDN));
        settle(l, mpfr_add(l, l, p, MPFR_RNDN));
        for (std::int64_t c = 0; c < d_; ++c) {
          const mpfr_ptr o = o_[size(c)];
          settle(o, mpfr_fma(o, p, v_[size((begin + j) * d_ + c)], o, MPFR_RNDN));
        }
      }
    }
    for (std::int64_t c = 0; c < d_; ++c) {
      settle(x, mpfr_div(x, o_[size(c)], l, MPFR_RNDN));
      output[c] = mpfr_get_flt(x, MPFR_RNDN);
    }
  }

  Format format_;
  std::int64_t nq_, nk_, d_, tile_;
  MpfrNumbers q_, k_, v_, o_, s_, work_;
};

}  // namespace headroom::bench
