#include "certify/policy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bounds/exp2_unit.h"
#include "bounds/lost_mass.h"
#include "bounds/norms.h"
#include "bounds/score.h"
#include "bounds/stabilizer.h"
#include "bounds/sums.h"
#include "certify/row_scores.h"
#include "reference/format/convert.h"
#include "reference/input_error.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct PolicyName {
  Policy policy;
  std::string_view name;
};
constexpr PolicyName policy_names[] = {
    {Policy::clis, "clis"},       {Policy::clis_alg1, "clis-alg1"},
    {Policy::fixed_m, "fixed-m"}, {Policy::fixed_m_n, "fixed-m-n"},
    {Policy::fdpp, "fdpp"},       {Policy::fa4, "fa4"},
    {Policy::online, "online"}};

/// Half an ulp of the largest magnitude of `value` in a format: what rounding to nearest can take
/// away.
double half_ulp(const Format& format, const Interval& value) {
  const double magnitude = std::max(value.magnitude(), std::ldexp(1.0, format.emin));
  if (!std::isfinite(magnitude)) return infinity;
  return std::ldexp(1.0, std::ilogb(magnitude) + 1 - format.precision);
}

/// How far the centre's score, as a kernel adds it to mu, can be from factor <q~, a>; 0 for a = 0.
/// As a score; and as a kernel may compute it beside the loop: products rounded, one after another,
/// the constant and its multiplication rounded to the accumulator's format.
double centre_score_error(const UpwardRounding& up, const KernelModel& kernel,
                          const Operands& operands, const Interval& q_norm,
                          const Interval& centre_norm) {
  if (centre_norm.hi() == 0) return 0;
  const Format& f = kernel.score.accumulator.format;
  const Interval relative(
      compound_roundings(up, Upper<Relative>::of(power_of_two(f.log2_unit_roundoff())),
                         operands.channels() + 4)
          .value());
  const Interval underflow = Interval(static_cast<double>(operands.channels()) + 1) *
                             Interval(underflow_error(f, f.emin <= fp32.emin).value()) *
                             (Interval(1.0) + relative);
  return (Interval(score_error(up, kernel, operands, Upper<Absolute>(q_norm.hi()),
                               Upper<Absolute>(centre_norm.hi()))
                       .value()) +
          abs(operands.score_factor()) * (relative * q_norm * centre_norm + underflow) + underflow)
      .hi();
}

/// What the fixed-stabilizer policies share: norms, centres, and how mu is rounded when stored.
class NormStabilizer : public FixedStabilizer {
 public:
  NormStabilizer(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                 const Operands& operands, const HeadScan& scan, const GateNorms& joined,
                 double eps)
      : up_(up),
        head_(head),
        kernel_(kernel),
        operands_(operands),
        scan_(scan),
        joined_(joined),
        eps_(eps),
        factor_(abs(operands.score_factor())),
        row_errors_(up, head, kernel, operands, scan) {
    centre_norm_ = kernel.centring.keys == Centring::virtual_ ? norm(up, operands.stored_mean())
                                                              : Interval(0.0);
  }

  Interval mu(std::int64_t row) const override {
    const RowScan& r = scan_.rows[static_cast<std::size_t>(row)];
    const double e = centre_error(r);
    return rounded(up_, kernel_.stabilizer.store, base(row) + r.centre_score + Interval(-e, e),
                   kernel_.stabilizer.round_up);
  }

  Upper<Log2> largest_exponent(std::int64_t row, Upper<Log2> score_error) const override {
    const RowScan& r = scan_.rows[static_cast<std::size_t>(row)];
    // z^ <= t + |f| ||q|| radius + e and mu >= base + t^ - rounding: the centre's score t cancels
    // but for the error of its computed value t^ (theory: the same centre in both).
    const double centre_off = centre_error(r);
    const Interval b = base(row);
    double rounding = 0;
    if (!kernel_.stabilizer.round_up) {
      const Interval unrounded = b + r.centre_score + Interval(-centre_off, centre_off);
      rounding = half_ulp(kernel_.stabilizer.store, unrounded);
      // a value that the format holds is not rounded
      const Interval stored = rounded(up_, kernel_.stabilizer.store, unrounded, false);
      if (unrounded.is_point() && stored.is_point() && stored.lo() == unrounded.lo()) rounding = 0;
    }
    const Interval spread = factor_ * r.norm * scan_.radius;
    const Interval top = Interval(spread.hi()) - Interval(b.lo()) + Interval(score_error.value()) +
                         Interval(centre_off) + Interval(rounding);
    return Upper<Log2>(top.hi());
  }

  Gate sound_gate() const override {
    const double c = cap();
    double most = -infinity, least = -infinity;
    std::int64_t worst_row = -1;
    for (std::size_t i = 0; i < scan_.rows.size(); ++i) {
      const RowScan& row = scan_.rows[i];
      if (row.visible == 0) continue;
      const double e = row_errors_.of(row).value();
      const Interval m = mu(static_cast<std::int64_t>(i));
      // upward: the value's upper end, and minus its lower end
      const double hi = m.hi() + c + e - row.mean_score.lo();
      const double minus_lo = row.mean_score.hi() - e - c - m.lo();
      if (!(hi <= most)) {  // NaN (infinities of both signs): nothing is known
        most = std::isnan(hi) ? infinity : hi;
        worst_row = static_cast<std::int64_t>(i);
      }
      if (!std::isnan(minus_lo)) least = std::max(least, -minus_lo);
    }
    const Interval worst(least, std::max(least, most));
    const Interval unit_error(exp2_relative_error(kernel_.exp2).value());
    const double flush =
        std::max({exp2_flush_exponent(kernel_.exp2), weight_flush_exponent(kernel_.p),
                  flush_exponent(kernel_.denominator.format, kernel_.denominator.flush_to_zero)});
    const Interval limit =
        Interval(cap()) - Interval(flush) - Interval(guard_bits(up_, eps_).value()) +
        (unit_error.hi() < 1 ? log2(Interval(1.0) - unit_error) : Interval(-infinity, 0.0));
    Gate gate = decide(worst, limit.lo());
    gate.row = worst_row;
    return gate;
  }

 protected:
  /// mu before the centre's score is added and before the rounding to the store format.
  virtual Interval base(std::int64_t row) const = 0;

  /// RN(||q|| kappa) [times the score factor] of the kernel's own norms, in the norm format.
  Interval kernel_bound(const Interval& kernel_query_norm) const {
    const Format& f = kernel_.stabilizer.norm;
    Interval b = rounded(up_, f, kernel_query_norm * joined_.kernel_radius, false);
    // as stored, or rounded to the norms' format before it multiplies
    const double constant = std::fabs(operands_.stored_score_factor());
    const Interval stored = hull(Interval(constant), rounded(up_, f, Interval(constant), false));
    // where a norm may be infinite the kernel may have 0 * inf, which is NaN and passes no gate
    if (!std::isfinite(kernel_query_norm.hi()) || !std::isfinite(joined_.kernel_radius.hi()) ||
        !std::isfinite(b.hi())) {
      return {std::isfinite(b.lo()) ? std::min(b.lo(), (b * stored).lo()) : b.lo(), infinity};
    }
    if (constant != 1) b = rounded(up_, f, b * stored, false);
    return b;
  }

  double centre_error(const RowScan& row) const {
    return centre_score_error(up_, kernel_, operands_, row.norm, centre_norm_);
  }

  static Gate decide(const Interval& value, double limit, std::string note = {}) {
    Gate gate{value, limit, less_equal(value, Interval(limit)), std::move(note), -1};
    if (!std::isfinite(value.hi())) {
      gate.accepts = std::isfinite(value.lo()) ? Tri::unknown : Tri::no;
    }
    return gate;
  }

  const UpwardRounding& up_;
  const Head& head_;
  const KernelModel& kernel_;
  const Operands& operands_;
  const HeadScan& scan_;
  GateNorms joined_;
  double eps_;
  Interval factor_;
  Interval centre_norm_{0.0};  ///< of the stored mean, virtual centring; else 0
  RowScoreErrors row_errors_;
};

/// m_i = ceil(|q_i| max|k|) - C, gate max|q| max|k| <= limit; released with C = 88, limit 213.
class FixedM final : public NormStabilizer {
 public:
  using NormStabilizer::NormStabilizer;
  std::string_view name() const override { return "fixed-m"; }
  double cap() const override { return 88; }
  Gate gate() const override { return decide(kernel_bound(joined_.kernel_query), 213); }

 protected:
  Interval base(std::int64_t row) const override {
    return ceiling(kernel_bound(scan_.rows[static_cast<std::size_t>(row)].kernel_norm)) -
           Interval(cap());
  }
};

/// C(N) = 127 - ceil(log2 N) - max(0, ceil(log2 vmax)), W = C + 125; gate floor(W / 2) two-sided,
/// W one-sided; heads with max|V| > vmax are refused.
class FixedMN final : public NormStabilizer {
 public:
  using NormStabilizer::NormStabilizer;
  std::string_view name() const override { return "fixed-m-n"; }
  double cap() const override {
    const int keys = ceil_log2(static_cast<std::uint64_t>(std::max<std::int64_t>(1, head_.keys())));
    return 127 - keys - ceil_log2_at_least_one(kernel_.gate.vmax);
  }
  Gate gate() const override {
    const double width = cap() + 125;
    const bool two_sided = kernel_.gate.sides == GateSides::two_sided;
    Gate gate =
        decide(kernel_bound(joined_.kernel_query), two_sided ? std::floor(width / 2) : width);
    if (joined_.v_magnitude > kernel_.gate.vmax) {
      gate.accepts = Tri::no;
      gate.note = "max |V| exceeds the gate's vmax";
    }
    if (kernel_.p.format.emax + 1 <= cap()) {
      gate.accepts = Tri::no;
      gate.note = "the format of P does not hold 2^C";
    }
    return gate;
  }

 protected:
  Interval base(std::int64_t row) const override {
    Interval norm = scan_.rows[static_cast<std::size_t>(row)].kernel_norm;
    if (kernel_.gate.query_block > 0) {
      const std::int64_t size = kernel_.gate.query_block;
      const std::int64_t begin = row / size * size;
      const std::int64_t end = std::min(begin + size, static_cast<std::int64_t>(scan_.rows.size()));
      for (std::int64_t i = begin; i < end; ++i) {
        norm = max(norm, scan_.rows[static_cast<std::size_t>(i)].kernel_norm);
      }
    }
    return ceiling(kernel_bound(norm)) - Interval(cap());
  }
};

/// Algorithm 1, lines 1-7 as published: C = min(floor(U_exp), ceil(U_acc - A) - 1),
/// mu_i = BoundUp(q_i, kappa) - C, gate B_h <= C - L (one-sided).
class ClisAlgorithm1 final : public NormStabilizer {
 public:
  using NormStabilizer::NormStabilizer;
  std::string_view name() const override { return "clis-alg1"; }
  double cap() const override {
    const int keys = ceil_log2(static_cast<std::uint64_t>(std::max<std::int64_t>(1, head_.keys())));
    const int a = keys + ceil_log2_at_least_one(scan_.v_real_magnitude);
    // log2 of the largest finite number lies in (emax, emax + 1): floor is emax, and
    // ceil(U_acc - A) is emax + 1 - A
    const int u_exp = kernel_.exp2.result.emax;
    const int u_acc = std::min(kernel_.denominator.format.emax, kernel_.numerator.format.emax) + 1;
    return std::min(u_exp, u_acc - a - 1);
  }
  Gate gate() const override {
    return decide(bound_up(joined_.exact_query, joined_.kernel_query),
                  cap() - flush_exponent(kernel_.exp2.result, kernel_.exp2.flush_to_zero));
  }

 protected:
  Interval base(std::int64_t row) const override {
    const RowScan& r = scan_.rows[static_cast<std::size_t>(row)];
    return bound_up(r.norm, r.kernel_norm) - Interval(cap());
  }

 private:
  /// BoundUp: not below the exact product, and not above the kernel's product of upward-inflated
  /// norms: each norm's own error twice and two roundings.
  Interval bound_up(const Interval& exact_norm, const Interval& kernel_query_norm) const {
    const Format& f = kernel_.stabilizer.norm;
    // the kernel multiplies by its stored constant, rounded up, which the exact factor may exceed
    const Interval stored =
        rounded(up_, f, Interval(std::fabs(operands_.stored_score_factor())), true);
    const Interval factor = hull(factor_, stored);
    const Interval exact = factor * exact_norm * joined_.radius;
    // the sum of squares starts at what underflowing squares can lack: n times the smallest
    // normal (formats that flush, FP32's range) or subnormal number, rounded up
    const int eta = f.emin <= fp32.emin ? f.emin : f.least_exponent();
    const Interval start = sqrt(
        Interval(2.0) * Interval(static_cast<double>(operands_.channels())) * power_of_two(eta));
    const Interval computed = (kernel_query_norm + Interval(0.0, start.hi())) *
                              (joined_.kernel_radius + Interval(0.0, start.hi())) * factor;
    const Interval unit = kernel_norm(up_, f, Interval(1.0), operands_.channels());
    const Interval inflation = (Interval(unit.hi()) / Interval(unit.lo())) *
                               (Interval(1.0) + Interval(std::ldexp(8.0, -f.precision)));
    return {exact.lo(), std::max(exact.hi(), (computed * square(inflation)).hi())};
  }
};

/// The sound policy: kappa holds every error of the kernel's score and of its own norm, mu is
/// rounded up, C is the largest that the formats allow, the gate leaves D(eps) guard bits.
class Clis final : public NormStabilizer {
 public:
  Clis(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
       const Operands& operands, const HeadScan& scan, const GateNorms& joined, double eps)
      : NormStabilizer(up, head, kernel, operands, scan, joined, eps) {
    cap_ = clis_cap(up, kernel, scan.most_visible + scan.padding_keys,
                    ceil_log2_at_least_one(scan.v_magnitude));
    // what biases, a softcap's arithmetic and a sink add to a score comes off C
    const double excess = score_excess(up, head, kernel, operands, scan).value();
    cap_ -= std::ceil(std::clamp(excess, 0.0, 0x1p20));
    kappa_ = clis_kappa(up, kernel, operands, scan, scan.radius, centre_norm_);
    make_rows();
  }
  std::string_view name() const override { return "clis"; }
  double kappa() const override { return kappa_; }
  double cap() const override { return cap_; }

  /// The certificate is the gate: the sound one.
  Gate gate() const override { return sound_gate(); }

  Interval mu(std::int64_t row) const override {
    if (rows_.empty()) return NormStabilizer::mu(row);
    const Row& r = rows_[static_cast<std::size_t>(row)];
    return {r.mu_lo, r.mu_hi};
  }
  Upper<Log2> largest_exponent(std::int64_t row, Upper<Log2> score_error) const override {
    if (rows_.empty()) return NormStabilizer::largest_exponent(row, score_error);
    return Upper<Log2>(rows_[static_cast<std::size_t>(row)].top) + score_error;
  }

 protected:
  Interval base(std::int64_t row) const override {
    const Interval& n = scan_.rows[static_cast<std::size_t>(row)].kernel_norm;
    return rounded(up_, kernel_.stabilizer.norm, n * Interval(kappa_), false) - Interval(cap_);
  }

 private:
  /// mu, and |f| ||q|| radius - base: what NormStabilizer makes of a row where mu is rounded up and
  /// has no centre, in plain upward arithmetic for all rows at once.
  struct Row {
    double mu_lo, mu_hi, top;
  };
  void make_rows() {
    const Format& norm = kernel_.stabilizer.norm;
    const Format& store = kernel_.stabilizer.store;
    if (kernel_.centring.keys == Centring::virtual_ || !kernel_.stabilizer.round_up ||
        !norm.has_infinity() || !store.has_infinity() || !std::isfinite(kappa_) ||
        !std::isfinite(cap_)) {
      return;
    }
    const double factor = factor_.hi(), radius = scan_.radius.hi();
    ConversionPolicy upward;
    upward.rounding = Rounding::upward;
    const bool norm_is_fp32 = norm == fp32, store_is_fp32 = store == fp32;
    const auto as_float = [](double x) {
      return opaque(static_cast<double>(static_cast<float>(opaque(x))));
    };
    constexpr std::size_t block = 512;
    std::vector<Row> rows(scan_.rows.size());
    for (std::size_t begin = 0; begin < rows.size(); begin += block) {
      const std::size_t end = std::min(begin + block, rows.size());
      for (std::size_t i = begin; i < end; ++i) {  // the products |q| kappa
        const Interval& k = scan_.rows[i].kernel_norm;
        if (!std::isfinite(k.hi())) return;
        rows[i] = {-opaque(-k.lo() * kappa_), opaque(k.hi() * kappa_), 0};
      }
      {
        const NearestRounding nearest;
        for (std::size_t i = begin; i < end; ++i) {
          Row& r = rows[i];
          r.mu_lo = norm_is_fp32 ? as_float(r.mu_lo) : round_to(norm, r.mu_lo);
          r.mu_hi = norm_is_fp32 ? as_float(r.mu_hi) : round_to(norm, r.mu_hi);
        }
      }
      for (std::size_t i = begin; i < end; ++i) {
        Row& r = rows[i];
        const double base_lo = -(cap_ - r.mu_lo), base_hi = r.mu_hi - cap_;
        r.top = factor * scan_.rows[i].norm.hi() * radius - base_lo;
        r.mu_lo = store_is_fp32 ? as_float(base_lo) : round_to(store, base_lo, upward);
        r.mu_hi = store_is_fp32 ? as_float(base_hi) : round_to(store, base_hi, upward);
      }
    }
    rows_ = std::move(rows);
  }

  double cap_ = 0, kappa_ = 0;
  std::vector<Row> rows_;
};

}  // namespace

std::string_view to_text(Policy policy) {
  for (const PolicyName& p : policy_names) {
    if (p.policy == policy) return p.name;
  }
  return "";
}

Policy parse_policy(const std::string& text) {
  std::string known;
  for (const PolicyName& p : policy_names) {
    if (p.name == text) return p.policy;
    known += (known.empty() ? "" : ", ") + std::string(p.name);
  }
  throw InputError("--policy: found '" + text + "', expected one of " + known);
}

Upper<Log2> stored_weight(const UpwardRounding& up, const KernelModel& kernel, Upper<Log2> weight) {
  const double whole = std::floor(weight.value());
  if (!std::isfinite(whole)) return weight;
  if (whole < kernel.p.format.emin) {
    // Subnormals have fewer bits, but hold every power of two from the least one on.
    return Upper<Log2>(std::fmax(std::ceil(weight.value()), kernel.p.format.least_exponent()));
  }
  const double significand = exp2(Interval(weight.value()) - Interval(whole)).hi();
  const Interval stored = rounded(up, kernel.p.format, Interval(significand), false);
  return Upper<Log2>((Interval(whole) + log2(Interval(stored.hi()))).hi());
}

GateNorms norms_of(const HeadScan& scan) {
  if (!scan.finite) {  // NaN or Inf never passes a gate, nor do its batch neighbours
    const Interval none(infinity);
    return {none, none, none, none, infinity};
  }
  return {scan.radius, scan.query_norm, scan.kernel_query_norm, scan.kernel_radius,
          scan.v_real_magnitude};
}

GateNorms join(const GateNorms& a, const GateNorms& b) {
  return {max(a.radius, b.radius), max(a.exact_query, b.exact_query),
          max(a.kernel_query, b.kernel_query), max(a.kernel_radius, b.kernel_radius),
          std::max(a.v_magnitude, b.v_magnitude)};
}

int clis_cap(const UpwardRounding& up, const KernelModel& kernel, std::int64_t keys,
             int value_exponent) {
  const int highest = std::min(kernel.exp2.result.emax, weight_limit_exponent(kernel.p));
  const int lowest = kernel.denominator.format.least_exponent() - value_exponent;
  const auto fits = [&](int cap) {
    const Upper<Log2> weight = exp2_upper(up, kernel.exp2, Upper<Log2>(cap));
    if (weight.value() > exp2_limit(up, kernel.exp2).value()) return false;
    const double l = partial_sums(up, kernel.denominator, keys, weight).log2_largest.value();
    if (l > log2_max_finite(up, kernel.denominator.format).value()) return false;
    if (kernel.normalise.division == Division::reciprocal) {
      // RN(1 / l) stays normal iff l <= 2^-emin; one binade less if not exact at powers of two
      const double reciprocal_limit = -kernel.denominator.format.emin -
                                      (kernel.normalise.reciprocal_exact_at_powers_of_two &&
                                               kernel.normalise.reciprocal_max_error_ulps <= 0.5
                                           ? 0
                                           : 1);
      if (kernel.normalise.reciprocal_flush_to_zero && l > reciprocal_limit) return false;
    }
    const Upper<Log2> product(stored_weight(up, kernel, weight).value() + value_exponent);
    const double o = partial_sums(up, kernel.numerator, keys, product).log2_largest.value();
    return o <= log2_max_finite(up, kernel.numerator.format).value();
  };
  int cap = highest;
  while (cap > lowest && !fits(cap)) --cap;
  return cap;
}

double clis_kappa(const UpwardRounding& up, const KernelModel& kernel, const Operands& operands,
                  const HeadScan& scan, const Interval& radius, const Interval& centre_norm) {
  const Format& f = kernel.stabilizer.norm;
  const Interval unit = kernel_norm(up, f, Interval(1.0), operands.channels());
  Interval kappa = Interval((abs(operands.score_factor()) * radius).hi());
  const double largest_norm = scan.query_norm.hi();
  if (largest_norm > 0) {
    const double error = score_error(up, kernel, operands, Upper<Absolute>(largest_norm),
                                     Upper<Absolute>(scan.key_norm.hi()))
                             .value();
    const double of_centre =
        centre_score_error(up, kernel, operands, Interval(largest_norm), centre_norm);
    kappa += (Interval(error) + Interval(of_centre)) / Interval(largest_norm);
  }
  const Interval nearest(1 - std::ldexp(1.0, -f.precision));
  // one rounding of |q| kappa; one more, since a norm just above a power of two rounds by more,
  // relatively, than the norm 1 does
  kappa = kappa / (Interval(unit.lo()) * square(nearest));
  return rounded(up, f, Interval(kappa.hi()), true).hi();
}

std::unique_ptr<FixedStabilizer> make_fixed_stabilizer(const UpwardRounding& up, Policy policy,
                                                       const Head& head, const KernelModel& kernel,
                                                       const Operands& operands,
                                                       const HeadScan& scan,
                                                       const GateNorms& joined, double eps) {
  switch (policy) {
    case Policy::clis:
      return std::make_unique<Clis>(up, head, kernel, operands, scan, joined, eps);
    case Policy::clis_alg1:
      return std::make_unique<ClisAlgorithm1>(up, head, kernel, operands, scan, joined, eps);
    case Policy::fixed_m:
      return std::make_unique<FixedM>(up, head, kernel, operands, scan, joined, eps);
    case Policy::fixed_m_n:
      return std::make_unique<FixedMN>(up, head, kernel, operands, scan, joined, eps);
    case Policy::fdpp:
    case Policy::fa4:
    case Policy::online:
      break;
  }
  throw std::logic_error("make_fixed_stabilizer: no stabilizer of norms");
}

}  // namespace headroom
