// Numbers that are bounds: direction and unit in the type.
//
// Upper<U> is a number that some quantity does not exceed, Lower<U> one that it does not fall
// below; U is the unit. Only the combinations that keep the meaning compile: Upper + Upper,
// Upper - Lower, Upper * Upper of nonnegative quantities, and so on; mixes of direction or unit
// do not (tests/reject proves it). All arithmetic rounds away from the bounded quantity and needs
// UpwardRounding to be active. Results are opaque as well as operands: a compiler may otherwise
// move the operation behind the end of the rounding scope, to where its result is used.
#pragma once

#include <cassert>
#include <cmath>

#include "reference/real/interval.h"

namespace headroom {

struct Absolute {};  ///< a plain real number in the quantity's own unit
struct Relative {};  ///< a ratio to the exact value
struct Log2 {};      ///< log2 units ("bits")
template <const auto& F>
struct Ulps {};  ///< units in the last place of format F; to Absolute only with a magnitude

template <class Unit>
class Lower;

/// `quantity <= value()`. Default-constructed: +infinity (nothing known).
template <class Unit>
class Upper {
 public:
  constexpr Upper() : v_(std::numeric_limits<double>::infinity()) {}
  /// Asserts that `v` is an upper bound. NaN becomes +infinity: nothing known.
  constexpr explicit Upper(double v) : v_(v == v ? v : std::numeric_limits<double>::infinity()) {}
  static Upper of(const Interval& enclosure) { return Upper(enclosure.hi()); }
  constexpr double value() const { return v_; }

  friend Upper operator+(Upper a, Upper b) { return Upper(opaque(opaque(a.v_) + b.v_)); }
  friend Upper operator-(Upper a, Lower<Unit> b) { return Upper(opaque(opaque(a.v_) - b.value())); }
  friend Upper max(Upper a, Upper b) { return Upper(std::fmax(a.v_, b.v_)); }
  /// Both bound the same quantity: the tighter.
  friend Upper tighter(Upper a, Upper b) { return Upper(std::fmin(a.v_, b.v_)); }
  Lower<Unit> operator-() const;

 private:
  double v_;
};

/// `quantity >= value()`. Default-constructed: -infinity (nothing known).
template <class Unit>
class Lower {
 public:
  constexpr Lower() : v_(-std::numeric_limits<double>::infinity()) {}
  /// Asserts that `v` is a lower bound. NaN becomes -infinity: nothing known.
  constexpr explicit Lower(double v) : v_(v == v ? v : -std::numeric_limits<double>::infinity()) {}
  static Lower of(const Interval& enclosure) { return Lower(enclosure.lo()); }
  constexpr double value() const { return v_; }

  friend Lower operator+(Lower a, Lower b) { return Lower(-opaque(opaque(-a.v_) - b.v_)); }
  friend Lower operator-(Lower a, Upper<Unit> b) {
    return Lower(-opaque(opaque(b.value()) - a.v_));
  }
  friend Lower min(Lower a, Lower b) { return Lower(std::fmin(a.v_, b.v_)); }
  friend Lower tighter(Lower a, Lower b) { return Lower(std::fmax(a.v_, b.v_)); }
  Upper<Unit> operator-() const { return Upper<Unit>(-v_); }

 private:
  double v_;
};

template <class Unit>
Lower<Unit> Upper<Unit>::operator-() const {
  return Lower<Unit>(-v_);
}

/// Products and quotients of nonnegative absolute or relative quantities.
template <class Unit>
Upper<Unit> operator*(Upper<Unit> a, Upper<Relative> b) {
  assert(a.value() >= 0 && b.value() >= 0);
  return Upper<Unit>(opaque(opaque(a.value()) * b.value()));
}
inline Upper<Absolute> operator*(Upper<Absolute> a, Upper<Absolute> b) {
  assert(a.value() >= 0 && b.value() >= 0);
  return Upper<Absolute>(opaque(opaque(a.value()) * b.value()));
}
inline Upper<Absolute> operator/(Upper<Absolute> a, Lower<Absolute> b) {
  assert(a.value() >= 0);
  return b.value() > 0 ? Upper<Absolute>(opaque(opaque(a.value()) / b.value())) : Upper<Absolute>();
}

/// Is the quantity certainly at most the limit?
template <class Unit>
constexpr bool certainly_at_most(Upper<Unit> quantity, Lower<Unit> limit) {
  return quantity.value() <= limit.value();
}

}  // namespace headroom
