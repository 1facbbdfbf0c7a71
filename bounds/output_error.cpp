#include "bounds/output_error.h"

#include <algorithm>
#include <cmath>

#include "bounds/exp2_unit.h"
#include "bounds/lost_mass.h"
#include "bounds/sums.h"

// Derivation. Exact weights w_j = 2^(z_j - mu), mass l = sum w; weights as both sums see them
// P_j = r_j w_j + e_j with r_j in [r_min, r_max], |e_j| <= h (exponent, exp2, rescale factors; P's
// rounding too where l adds the rounded P).
//  1. Reweighting by r_j moves a mean of values in [vmin, vmax] by at most
//     (vmax - vmin) (sqrt R - 1) / (sqrt R + 1) = (vmax - vmin) tanh(ln R / 4), R = r_max / r_min.
//  2. The e_j move it by sum e_j (v_j - y) / sum P <= (vmax - vmin) N h / l_d,
//     l_d = r_min W - N h <= sum P. Or, where exp2 flushes to zero and nothing is rescaled: lost
//     keys have z_j - mu below log2(h_E / (1 - eps_E)) + A, their share of the mass is at most
//     lost_mass(D'), and sum P >= r_min W (1 - lost).
//  3. l^ = (sum P)(1 + t) + events, |t| <= g_l. O^ = sum p v + error <= g_O sum p |v| + events,
//  with
//     p = P rounded: |p - P| <= u_P P + h_P. Against y_P = sum P v / sum P:
//     |O^ / l^ - y_P| <= V ((1 + u_P)(1 + g_O) / (1 - g_l) - 1)
//                        + (V N h_P + n_f h_O)(1 + g_O) / l^          and, for events in l,
//                        + T n_l h_l (1 + g_l) / l^,  T a bound of |O^| / ((sum P)(1 + t)).
//  4. Division and output format multiply by (1 + eps_D)(1 + u_o) and add h_o; |y| <= V.

namespace headroom {
namespace {

const Interval one(1.0);

Interval of(Upper<Relative> x) { return Interval(x.value()); }
Interval of(Upper<Absolute> x) { return Interval(x.value()); }

/// Hardware with binary32's exponent range may flush a result to zero without saying so per stage;
/// narrower formats round gradually unless they are asked to flush.
Interval result_underflow(const Format& format, bool flush) {
  return of(underflow_error(format, flush && format.emin <= fp32.emin));
}

bool holds(const Format& wide, const Format& narrow) {
  return wide.precision >= narrow.precision && wide.least_exponent() <= narrow.least_exponent() &&
         wide.max_finite() >= narrow.max_finite();
}

/// Worst relative error of rounding to nearest: u / (1 + u) = 1 / (2^p + 1), attained.
Interval worst_rounding(const Format& format) {
  return one / (power_of_two(format.precision) + one);
}

Interval power(const Interval& x, int n) {
  Interval result(1.0);
  for (int i = 0; i < n; ++i) result *= x;
  return result;
}

// The elementary functions below serve every row of a head and are nearly 1 in most: series with a
// proved sign of the remainder there, MPFR elsewhere.
constexpr double small = 0x1p-7;

/// Upper bound of 2^a, a >= 0.
Interval exp2_above(double a) {
  if (a >= small) return Interval(exp2(Interval(a)).hi());
  // e^y <= (2 + y) / (2 - y) on (0, 2).
  const Interval y = Interval(a) * ln_2();
  return Interval(((Interval(2.0) + y) / (Interval(2.0) - y)).hi());
}

/// Upper bound of log2 x, x >= 1; lower bound of log2 x, 0 < x <= 1.
double log2_above(double x) {
  const Interval t = Interval(x) - one;
  if (!(t.hi() < small)) return log2(Interval(x)).hi();
  // ln(1 + t) <= t - t^2 / 2 + t^3 / 3.
  return (t * (one - t * (Interval(0.5) - t / Interval(3.0))) * log2_e()).hi();
}
double log2_below(double x) {
  const Interval t = one - Interval(x);
  if (!(t.hi() < small)) return log2(Interval(x)).lo();
  // -ln(1 - t) <= t + t^2 / 2 + t^3 / (3 (1 - t)).
  const Interval tail = t * t / (Interval(3.0) * (one - t));
  return -(t * (one + t * Interval(0.5) + tail) * log2_e()).hi();
}

/// Weights that a sum may be given: the exponents of their grid and of the smallest that is not 0.
struct WeightGrid {
  int grid, smallest;
};

/// Everything that is the same for every row of N keys.
struct Stages {
  Interval eps_e, h_e;   // exp2
  Interval u_p, h_p;     // rounding of P in the numerator
  Interval g_l, g_o;     // accumulators
  Interval h_l, h_o;     // what one underflow event loses in l, in O
  Interval n_l, n_f;     // numbers of such events
  Interval value_daz;    // subnormal values read as zero
  Interval shift, mass;  // 2^A (from above) and W (from below) of the row
};

Stages stages_of(const UpwardRounding& up, const KernelModel& kernel,
                 const OutputErrorInputs& row) {
  const Exp2Unit& exp2_unit = kernel.exp2;
  const Format& p = kernel.p.format;
  Stages s;
  s.eps_e = of(exp2_relative_error(exp2_unit));
  s.h_e = of(exp2_floor_error(exp2_unit));

  WeightGrid plain{exp2_unit.result.least_exponent(),
                   flush_exponent(exp2_unit.result, exp2_unit.flush_to_zero)};
  WeightGrid stored = plain;
  if (!holds(p, exp2_unit.result) || kernel.p.flush_to_zero) {
    stored = {std::max(plain.grid, p.least_exponent()),
              std::max(plain.smallest, flush_exponent(p, kernel.p.flush_to_zero))};
    s.u_p = holds(p, exp2_unit.result) ? Interval(0.0) : worst_rounding(p);
    // Weights at or above P's smallest normal number round to such numbers: no underflow there.
    const bool underflows = plain.smallest < p.emin;
    s.h_p = underflows ? of(underflow_error(p, kernel.p.flush_to_zero)) : Interval(0.0);
  }

  // Sums of nonnegative numbers of the accumulator's own grid are exact below the normal range and
  // never flush while every term is normal. Otherwise each of the N terms may cost one event.
  Accumulator l = kernel.denominator;
  l.rounded_products = false;  // nothing is multiplied
  const WeightGrid& added = kernel.p.denominator_rounded ? stored : plain;
  const bool loses =
      l.flush_to_zero ? added.smallest < l.format.emin : added.grid < l.format.least_exponent();
  const auto count = static_cast<double>(row.visible), rescales = static_cast<double>(row.rescales);
  s.n_l = Interval(rescales + (loses ? count : 0));
  s.n_f = Interval(rescales + count);
  s.h_l = of(underflow_event(l));
  s.h_o = of(underflow_event(kernel.numerator));
  s.g_l = of(accumulation_error(up, l, row.visible, row.rescales));
  s.g_o = of(accumulation_error(up, kernel.numerator, row.visible, row.rescales));

  s.shift = exp2_above(row.exponent_error.value());
  s.mass = Interval(exp2(Interval(row.log2_mass.value())).lo());

  // A multiplier that flushes may read subnormal operands as zero: values below 2^emin, and stored
  // weights, which cost V 2^emin each.
  const Format& o = kernel.numerator.format;
  if (kernel.numerator.flush_to_zero) {
    s.value_daz = power_of_two(o.emin);
    if (stored.smallest < o.emin) s.h_p += power_of_two(o.emin);
  }
  return s;
}

/// The bound for one way to account for the flushed weights.
OutputError compose(const UpwardRounding&, const KernelModel& kernel, const OutputErrorInputs& row,
                    const Stages& stage, bool by_mean, const Interval& lost) {
  OutputError result;
  const Interval count(static_cast<double>(row.visible));
  const Interval v(row.vmax_abs);
  const Interval spread = Interval(row.vmax) - Interval(row.vmin);
  const Interval mass = stage.mass;
  const bool rounded_sum = kernel.p.denominator_rounded;

  // An error of all of a weight, or of all of 1 / l, leaves no bound (and no sign).
  if (!((one - stage.eps_e).lo() > 0)) return result;

  // Weights: r in [r_min, r_max], absolute errors h.
  Interval r_max = stage.shift * power(one + stage.eps_e, row.exp2_factors);
  Interval r_min = power(one - stage.eps_e, row.exp2_factors) / stage.shift;
  Interval h = by_mean ? Interval(0.0) : stage.h_e;
  Interval u_p = stage.u_p, h_p = stage.h_p;
  if (rounded_sum) {
    r_max *= one + u_p;
    r_min *= one - u_p;
    h = h * (one + u_p) + h_p;
    u_p = Interval(0.0);
    h_p = Interval(0.0);
  }
  if (!(r_min.lo() > 0) || !(stage.g_l.hi() < 1)) return result;

  const Interval kept_mass = mass * (one - lost);
  const double denominator = (r_min * kept_mass - count * h).lo();  // l_d
  if (!(denominator > 0) || !std::isfinite(denominator)) return result;
  const Interval l_d(denominator);
  const Interval events_l = stage.n_l * stage.h_l * (one + stage.g_l);
  const double computed = (l_d * (one - stage.g_l) - events_l).lo();  // l^
  if (!(computed > 0)) return result;
  const Interval l_hat(computed);

  // tanh(ln R / 4) = (sqrt R - 1) / (sqrt R + 1), increasing in R.
  const Interval root(sqrt(r_max / r_min).hi());
  const Interval weights = spread * (root - one) / (root + one);
  const Interval flush = spread * (lost + count * h / l_d);
  const Interval grown = (one + u_p) * (one + stage.g_o) / (one - stage.g_l);
  const Interval rounding = v * (grown - one);
  const Interval events_o = (v * count * h_p + stage.n_f * stage.h_o) * (one + stage.g_o) / l_hat;
  const Interval daz = stage.value_daz * grown;
  const Interval underflow = events_o + daz + (v * grown + events_o + daz) * events_l / l_hat;

  // Division, in the narrower of the accumulators' formats, and the output.
  const Format& arithmetic = kernel.numerator.format.precision < kernel.denominator.format.precision
                                 ? kernel.numerator.format
                                 : kernel.denominator.format;
  const Normalisation& last = kernel.normalise;
  const bool flushes = kernel.numerator.flush_to_zero || kernel.denominator.flush_to_zero ||
                       last.reciprocal_flush_to_zero;
  const Interval unit = power_of_two(arithmetic.log2_unit_roundoff());
  Interval divided = one + unit;
  Interval reciprocal_underflow(0.0);
  if (last.division == Division::reciprocal) {
    const double ulps = last.reciprocal_max_error_ulps;
    if (!(ulps < std::ldexp(1.0, arithmetic.precision - 1))) return result;
    const Interval error =
        ulps <= 0.5 ? unit
                    : Interval(ulps) / (power_of_two(arithmetic.precision - 1) - Interval(ulps));
    divided = divided * (one + error);
    // 1/l below the normal range, for l > 2^-emin: an absolute error times |O^| <= V l (1 + ...).
    const double largest =
        std::fmin(row.log2_denominator.value(), static_cast<double>(arithmetic.emax) + 1);
    if (!last.reciprocal_flush_to_zero && largest > -arithmetic.emin) {
      const Interval step = power_of_two(arithmetic.least_exponent()) *
                            Interval(std::fmax(0.5, ulps)) * exp2(Interval(largest));
      reciprocal_underflow = (v * grown + underflow) * step * (one + unit);
    }
  }
  const bool narrows = !holds(last.output, arithmetic);
  const Interval stored = narrows ? one + worst_rounding(last.output) : one;
  const Interval factor = divided * stored;
  const Interval floor = (result_underflow(arithmetic, flushes) + reciprocal_underflow) * stored +
                         (narrows ? result_underflow(last.output, flushes) : Interval(0.0));

  result.weights = Upper<Absolute>::of(weights * factor);
  result.flush = Upper<Absolute>::of(flush * factor);
  result.rounding = Upper<Absolute>::of(rounding * factor);
  result.underflow = Upper<Absolute>::of(underflow * factor);
  result.normalise = Upper<Absolute>::of(v * (factor - one) + floor);
  result.total =
      result.weights + result.flush + result.rounding + result.underflow + result.normalise;
  // An output that may not be finite has no error bound.
  result.defined = (v + of(result.total)).hi() <= last.output.max_finite();
  if (!result.defined) result.total = Upper<Absolute>();

  const Interval relative_events = events_l / mass;
  const Interval high =
      r_max * (one + stage.g_l) + count * h * (one + stage.g_l) / mass + relative_events;
  const Interval low = r_min * (one - lost) * (one - stage.g_l) -
                       count * h * (one - stage.g_l) / mass - relative_events;
  const double top = log2_above(high.hi());
  const double bottom =
      low.lo() > 0 ? log2_below(low.lo()) : -std::numeric_limits<double>::infinity();
  result.lse2 = Interval(bottom, top);
  return result;
}

}  // namespace

OutputError output_error(const UpwardRounding& up, const KernelModel& kernel,
                         const OutputErrorInputs& row) {
  if (row.visible <= 0 || !std::isfinite(row.exponent_error.value()) ||
      !std::isfinite(row.log2_mass.value()) || row.exponent_error.value() < 0) {
    return {};
  }
  const Stages stage = stages_of(up, kernel, row);
  OutputError plain = compose(up, kernel, row, stage, false, Interval(0.0));
  if (!kernel.exp2.flush_to_zero || row.rescales != 0 || row.exp2_factors != 1 ||
      !std::isfinite(row.mean_exponent.value())) {
    return plain;
  }
  const Interval kept = one - stage.eps_e;
  if (!(kept.lo() > 0)) return plain;
  const int emin = kernel.exp2.result.emin;  // h_E is 2^emin (1 + eps_E)
  const double above = log2_above((stage.h_e / kept / power_of_two(emin)).hi());
  const Interval threshold =
      Interval(emin) + Interval(above) + Interval(row.exponent_error.value());  // of z - mu
  const Lower<Log2> margin = row.mean_exponent - Upper<Log2>::of(threshold);
  const Interval lost(0.0, lost_mass(up, margin).value());
  const OutputError by_mean = compose(up, kernel, row, stage, true, Interval(lost.hi()));
  return !plain.defined || (by_mean.defined && by_mean.total.value() < plain.total.value())
             ? by_mean
             : plain;
}

Upper<Absolute> product_flush(const UpwardRounding& up, const KernelModel& kernel,
                              std::int64_t count, Lower<Log2> log2_denominator) {
  if (count <= 0) return Upper<Absolute>(0);
  const Upper<Absolute> lost = accumulation_underflow(up, kernel.numerator, count);
  return Upper<Absolute>::of(of(lost) * exp2(-Interval(log2_denominator.value())));
}

}  // namespace headroom
