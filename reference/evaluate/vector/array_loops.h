// Loops of the kernels over arrays, for the one translation unit per instruction set.
#pragma once

#include <cstddef>

#include "reference/evaluate/vector/exp2.h"
#include "reference/evaluate/vector/kernels.h"
#include "reference/evaluate/vector/quotient.h"

namespace headroom {
inline namespace HEADROOM_VECTOR_FLAGS {

/// The kernels of VectorKernels for one instruction set.
template <class Simd>
struct ArrayLoops {
  using Double = typename Simd::Double;
  static constexpr std::size_t lanes = Simd::lanes;

  /// Loads `count` doubles; the rest are copies of the first, so that no lane holds garbage.
  static Double load_some(const double* p, std::size_t count) {
    if (count == lanes) return Simd::load(p);
    double buffer[lanes];
    for (std::size_t i = 0; i < lanes; ++i) buffer[i] = p[i < count ? i : 0];
    return Simd::load(buffer);
  }
  static void store_some(double* p, Double a, std::size_t count) {
    if (count == lanes) return Simd::store(p, a);
    double buffer[lanes];
    Simd::store(buffer, a);
    for (std::size_t i = 0; i < count; ++i) p[i] = buffer[i];
  }
  static std::size_t count_at(std::size_t i, std::size_t n) {
    return n - i < lanes ? n - i : lanes;
  }

  static void exp2(const double* x, double* y, std::size_t n) {
    const Exp2Constants<Simd> constants;
    for (std::size_t i = 0; i < n; i += lanes) {
      const std::size_t m = count_at(i, n);
      store_some(y + i, exp2_of<Simd>(constants, load_some(x + i, m)), m);
    }
  }
  static void exp2_pair(const double* hi, const double* lo, double shift, double* y,
                        std::size_t n) {
    const Exp2Constants<Simd> constants;
    for (std::size_t i = 0; i < n; i += lanes) {
      const std::size_t m = count_at(i, n);
      store_some(y + i,
                 exp2_of_pair<Simd>(constants, load_some(hi + i, m), load_some(lo + i, m),
                                    Simd::set(shift)),
                 m);
    }
  }
  static void exp2_product(double c_hi, double c_lo, const double* s, double shift, double* y,
                           std::size_t n) {
    const Exp2Constants<Simd> constants;
    const Exp2Factor c = exp2_factor(c_hi, c_lo);
    for (std::size_t i = 0; i < n; i += lanes) {
      const std::size_t m = count_at(i, n);
      store_some(y + i, exp2_of_product<Simd>(constants, c, load_some(s + i, m), Simd::set(shift)),
                 m);
    }
  }
  static void quotient(const double* o, const double* o_error, const double* l,
                       const double* l_error, double* lo, double* hi, std::size_t n) {
    for (std::size_t i = 0; i < n; i += lanes) {
      const std::size_t m = count_at(i, n);
      const Bounds<Simd> b = quotient_bounds<Simd>(load_some(o + i, m), load_some(o_error + i, m),
                                                   load_some(l + i, m), load_some(l_error + i, m));
      store_some(lo + i, b.lo, m);
      store_some(hi + i, b.hi, m);
    }
  }

  static constexpr VectorKernels kernels{exp2, exp2_pair, exp2_product, quotient};
};

}  // namespace HEADROOM_VECTOR_FLAGS
}  // namespace headroom
