// Closed intervals of doubles that enclose a real number, and what may be asked of them.
//
// The arithmetic is CGAL's Interval_nt<false>: outward-rounded under one protector, here
// UpwardRounding. An operation outside that scope is a bug; debug builds assert it. Comparisons are
// three-valued: there is no operator<, and no conversion to bool of an undecided one.
#pragma once

#include <CGAL/Interval_nt.h>

#include <cassert>
#include <cmath>
#include <limits>

#include "reference/real/fp_environment.h"

namespace headroom {

/// The answer to a question about enclosed numbers.
enum class Tri : unsigned char { no, yes, unknown };

/// [lo, hi] with lo <= hi, possibly infinite ends, never NaN: a NaN end becomes the whole line.
class Interval {
 public:
  Interval() : v_(0.0) {}
  /// The exact value of a double, infinities included. NaN becomes (-inf, inf).
  Interval(double exact)  // NOLINT(google-explicit-constructor): exact, so no information is lost
      : v_(std::isnan(exact) ? Native::largest() : Native(exact, exact)) {}
  Interval(double lo, double hi) : v_(lo <= hi ? Native(lo, hi) : Native::largest()) {
    assert(!(lo > hi));
  }

  double lo() const { return v_.inf(); }
  double hi() const { return v_.sup(); }
  bool is_point() const { return lo() == hi(); }
  bool is_finite() const { return std::isfinite(lo()) && std::isfinite(hi()); }
  bool contains(double x) const { return lo() <= x && x <= hi(); }
  /// Upper bound of hi - lo.
  double width() const { return is_point() ? 0.0 : opaque(opaque(hi()) - lo()); }
  /// Largest absolute value.
  double magnitude() const { return std::fmax(std::fabs(lo()), std::fabs(hi())); }

  friend Interval operator+(const Interval& a, const Interval& b) { return wrap(a.v_ + b.v_); }
  friend Interval operator-(const Interval& a, const Interval& b) { return wrap(a.v_ - b.v_); }
  friend Interval operator*(const Interval& a, const Interval& b) {
    if (!a.is_finite() || !b.is_finite()) return product_with_infinite_end(a, b);
    return wrap(a.v_ * b.v_);
  }
  /// Division by an interval that holds 0 is the whole line.
  friend Interval operator/(const Interval& a, const Interval& b) { return wrap(a.v_ / b.v_); }
  Interval operator-() const { return wrap(-v_); }
  Interval& operator+=(const Interval& b) { return *this = *this + b; }
  Interval& operator-=(const Interval& b) { return *this = *this - b; }
  Interval& operator*=(const Interval& b) { return *this = *this * b; }

  friend Interval abs(const Interval& a) { return wrap(CGAL::abs(a.v_)); }
  friend Interval square(const Interval& a) { return wrap(CGAL::square(a.v_)); }
  /// Square root of the nonnegative part. Requires hi >= 0.
  friend Interval sqrt(const Interval& a) {
    return wrap(CGAL::sqrt(Native(std::fmax(a.lo(), 0.0), a.hi())));
  }
  friend Interval min(const Interval& a, const Interval& b) {
    return {std::fmin(a.lo(), b.lo()), std::fmin(a.hi(), b.hi())};
  }
  friend Interval max(const Interval& a, const Interval& b) {
    return {std::fmax(a.lo(), b.lo()), std::fmax(a.hi(), b.hi())};
  }
  /// Smallest interval that holds both.
  friend Interval hull(const Interval& a, const Interval& b) {
    return {std::fmin(a.lo(), b.lo()), std::fmax(a.hi(), b.hi())};
  }
  static Interval entire() { return raw(Native::largest()); }

 private:
  using Native = CGAL::Interval_nt<false>;
  static Interval wrap(const Native& v) {
    assert((_mm_getcsr() & 0xe040U) == 0x4000U && "interval arithmetic outside UpwardRounding");
    // inf - inf and 0 * inf leave a NaN end in the native type
    return std::isnan(v.inf()) || std::isnan(v.sup()) ? raw(Native::largest()) : raw(v);
  }
  // CGAL 5.5 built for SSE 4.1 or AVX loses values here: it tells ends of different sign by their
  // sign bits, multiplies a zero with an infinity and drops the NaN, so that
  // [-inf, 0] * [2, inf] = [-inf, -inf]. The ends are limits of real products: 0 * inf is 0.
  static Interval product_with_infinite_end(const Interval& a, const Interval& b) {
    assert((_mm_getcsr() & 0xe040U) == 0x4000U && "interval arithmetic outside UpwardRounding");
    double negated_lo = -std::numeric_limits<double>::infinity(), hi = negated_lo;
    for (const double x : {a.lo(), a.hi()}) {
      for (const double y : {b.lo(), b.hi()}) {
        if (x == 0 || y == 0) {
          negated_lo = std::fmax(negated_lo, 0.0), hi = std::fmax(hi, 0.0);
          continue;
        }
        hi = std::fmax(hi, opaque(opaque(x) * y));
        negated_lo = std::fmax(negated_lo, opaque(opaque(-x) * y));
      }
    }
    return {-negated_lo, hi};
  }
  static Interval raw(const Native& v) {
    Interval r;
    r.v_ = v;
    return r;
  }
  Native v_;
};

/// Is every value of a less than (at most) every value of b?
inline Tri less(const Interval& a, const Interval& b) {
  if (a.hi() < b.lo()) return Tri::yes;
  return a.lo() >= b.hi() ? Tri::no : Tri::unknown;
}
inline Tri less_equal(const Interval& a, const Interval& b) {
  if (a.hi() <= b.lo()) return Tri::yes;
  return a.lo() > b.hi() ? Tri::no : Tri::unknown;
}

/// Elementary functions, each end correctly rounded outward by MPFR. Results are tight enclosures.
/// They set their own rounding scope, so they may be called in any.
/// log2 and log of an interval: requires hi > 0; a lower end <= 0 gives -infinity.
Interval exp2(const Interval& x);
Interval log2(const Interval& x);
Interval exp(const Interval& x);
Interval log(const Interval& x);
Interval tanh(const Interval& x);
/// 2^k for an integer k, exact; [0, least double] or [largest double, inf] where no double is 2^k.
Interval power_of_two(long k);

/// log2(e) and ln 2, tight.
Interval log2_e();
Interval ln_2();

}  // namespace headroom
