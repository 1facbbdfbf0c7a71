// The last rung: one row in MPFR intervals of any precision, and exactness decided exactly.
//
// Ties. An element is compared with a rounding boundary f through the sign of
//     D = sum_j w_j (v_j - f)            (O),      D = sum_j w_j - e^f or 2^f      (LSE, LSE2).
// Keys are grouped so that the weights of different groups are linearly independent over the
// algebraic numbers; D = 0 iff the exact coefficient of each group is 0:
//   * natural exponents s x + b (s rational or 1/sqrt(n)): equal exponents are one group, by the
//     Lindemann-Weierstrass theorem (Baker, Transcendental Number Theory, 1975, theorem 1.4);
//   * base-2 exponents z (rational) with natural biases b: one group for each b and z mod 1, with
//     coefficients 2^floor(z), since x^m - 2 is irreducible;
//   * softcap: no criterion is known; vanishing coefficients are sufficient only.
// Otherwise D is enclosed at doubling precision until its sign is known. Since exactly equal terms
// are gone from D, gaps between scores cost no precision.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "reference/evaluate/ladder/decision.h"
#include "reference/evaluate/ladder/problem.h"
#include "reference/real/wide_interval.h"

namespace headroom {

/// Largest working precision; beyond it an element is reported undecided.
inline constexpr mpfr_prec_t widest_precision = 4096;
inline constexpr mpfr_prec_t first_precision = 160;

enum class LseBase : std::uint8_t { natural, two };

/// One row, prepared exactly. Requires: finite visible operands; the problem outlives the row.
class WideRow {
 public:
  WideRow(const AttentionProblem& problem, std::int64_t row);
  ~WideRow();
  WideRow(WideRow&&) noexcept;

  /// No visible key (a sink may still be there).
  bool empty() const;
  /// The correctly rounded output of value channel c, decided by `wide`, `tie` or `undecided`.
  Settled output(std::int64_t c, const Target& target);
  /// The correctly rounded LSE.
  Settled lse(LseBase base, const Target& target);
  /// Enclosures at a working precision: their relative width is about 2^-bits times the
  /// cancellation in the sum.
  WideInterval enclose_output(std::int64_t c, mpfr_prec_t bits);
  WideInterval enclose_lse(LseBase base, mpfr_prec_t bits);
  /// Largest precision used so far.
  mpfr_prec_t precision_used() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// <a, b>, exactly. Requires: finite.
Dyadic exact_product(const double* a, const double* b, std::int64_t n);

}  // namespace headroom
