// Policies: a stabilizer, its gate and its fallback, and what they mean for one head.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "certify/claim.h"
#include "certify/head_scan.h"

namespace headroom {

/// `--policy`: clis (the sound gate), clis-alg1 (lines 1-7 of the published algorithm, one-sided),
/// fixed-m (C = 88, gate 213), fixed-m-n (C(N)), fdpp (a shift, a range that every score of a row
/// is tested against, rows outside recomputed online), fa4 (online with a maximum that may stay
/// behind), online.
enum class Policy : std::uint8_t { clis, clis_alg1, fixed_m, fixed_m_n, fdpp, fa4, online };

std::string_view to_text(Policy policy);
/// Throws InputError that lists the names.
Policy parse_policy(const std::string& text);

/// Norms of the heads that share one gate decision (one head, or a head over its batch entries).
struct GateNorms {
  Interval radius{0.0};         ///< max_j ||k~_j - a||, exact
  Interval exact_query{0.0};    ///< max_i ||q~_i||, exact
  Interval kernel_query{0.0};   ///< max_i ||q~_i|| as the kernel computes it
  Interval kernel_radius{0.0};  ///< max_j ||k~_j - a|| as the kernel computes it
  double v_magnitude = 0;
};
GateNorms norms_of(const HeadScan& scan);
GateNorms join(const GateNorms& a, const GateNorms& b);

/// What a fixed-stabilizer policy does on a head: its C, its gate, and each row's stored mu.
///
/// All rules are in log2 units over the multiplied operands. Enclosures hold for every order in
/// which the kernel may sum its norms.
class FixedStabilizer {
 public:
  virtual ~FixedStabilizer() = default;
  virtual std::string_view name() const = 0;
  /// C.
  virtual double cap() const = 0;
  /// The kernel's own gate: value, limit, and whether it accepts. NaN or Inf never passes.
  struct Gate {
    Interval value{0.0};
    double limit = 0;
    Tri accepts = Tri::unknown;
    std::string note;
    std::int64_t row = -1;  ///< where the value is largest, if it is made row by row
  };
  virtual Gate gate() const = 0;
  /// `clis`: kappa, the slope that the kernel multiplies its own norm of q~_i with (in its norm
  /// format): the radius and all error of scores and norms. 0 for policies without a table.
  virtual double kappa() const { return 0; }
  /// The sound one-sided gate for this stabilizer at its own C (DESIGN.md, "The sound gate"):
  /// max_i (mu_i + C + e_i - zbar_i) <= C - L - D(eps) - log2(1 / (1 - exp2 error)).
  virtual Gate sound_gate() const = 0;
  /// Every value that the stored mu of this row can have.
  virtual Interval mu(std::int64_t row) const = 0;
  /// Upper bound of the row's largest computed exponent z^ - mu, before its own rounding;
  /// `score_error` bounds |z^ - z~|.
  virtual Upper<Log2> largest_exponent(std::int64_t row, Upper<Log2> score_error) const = 0;
  /// Lower bound of every stored exponent of a row that stays on this path; -inf without a test.
  virtual Lower<Log2> least_exponent(std::int64_t) const {
    return Lower<Log2>(-std::numeric_limits<double>::infinity());
  }
};

/// Requires: a policy whose gate looks at norms; scan.finite. `eps` sets the guard bits of `clis`.
std::unique_ptr<FixedStabilizer> make_fixed_stabilizer(const UpwardRounding& up, Policy policy,
                                                       const Head& head, const KernelModel& kernel,
                                                       const Operands& operands,
                                                       const HeadScan& scan,
                                                       const GateNorms& joined, double eps);

/// kappa of `clis` for keys within `radius` of a centre of norm `centre_norm` (0: the origin) whose
/// score the kernel adds to mu: |factor| radius, the errors of a score and of the centre's over the
/// largest ||q~||, then the norm's own error and its roundings; a number of kernel.stabilizer.norm,
/// rounded upward. mu = RU(RN(norm kappa) - C [+ centre's score]) keeps every stored exponent at
/// most C. Requires: scan.finite.
double clis_kappa(const UpwardRounding& up, const KernelModel& kernel, const Operands& operands,
                  const HeadScan& scan, const Interval& radius, const Interval& centre_norm);

/// log2 of the largest stored P for an exp2 result of at most 2^weight: the rounding to P's format
/// can raise it.
Upper<Log2> stored_weight(const UpwardRounding& up, const KernelModel& kernel, Upper<Log2> weight);

/// The largest integer C for which no exponent, weight, partial sum or reciprocal leaves its range
/// (theory in DESIGN.md, "Choice of C"), or a value below every useful one if there is none.
/// `keys` terms in l, `value_exponent` = ceil(log2 max(1, max |V|)).
int clis_cap(const UpwardRounding& up, const KernelModel& kernel, std::int64_t keys,
             int value_exponent);

}  // namespace headroom
