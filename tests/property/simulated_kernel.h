// A plain simulator of the modelled kernels, for tests of verdicts: every operation in its format,
// where the model leaves freedom (orders, exp2 within its contract) at random or at its worst.
// Independent of bounds/ and certify/.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "reference/head/head.h"
#include "reference/model/kernel_model.h"
#include "tests/unit/bounds/simulation.h"

namespace headroom::simulation {

__extension__ using Quad = __float128;

/// Rounding into any format of the model, saturation and flush included.
inline double convert_weight(const WeightStage& p, double x) {
  if (std::isnan(x)) return x;
  const Format& f = p.format;
  double r = x;
  if (x != 0 && std::isfinite(x)) {
    const int exponent = std::max(std::ilogb(x), f.emin) - f.precision + 1;
    r = std::ldexp(std::nearbyint(std::ldexp(x, -exponent)), exponent);
  }
  if (std::fabs(r) > f.max_finite()) {
    if (p.saturate) return std::copysign(f.max_finite(), r);
    return f.has_infinity() ? std::copysign(INFINITY, r) : NAN;
  }
  // as MXCSR.FTZ: tested after rounding with unbounded exponent range
  if (p.flush_to_zero && x != 0) {
    const int exponent = std::ilogb(x) - f.precision + 1;
    const double unbounded = std::ldexp(std::nearbyint(std::ldexp(x, -exponent)), exponent);
    if (std::fabs(unbounded) < std::ldexp(1.0, f.emin)) return 0;
  }
  return r;
}

/// Sum of a[i] * b[i]; beyond the largest finite number it is infinite (the matrix unit of
/// simulation.h does not say so).
inline double added(const Accumulator& unit, const std::vector<double>& a,
                    const std::vector<double>& b, Random& g) {
  double special = 0;
  for (std::size_t i = 0; i < a.size(); ++i) special += std::isfinite(a[i]) ? 0 : a[i] * b[i];
  if (special != 0) return special;  // infinite or NaN; NaN compares unequal too
  const double sum = accumulate(unit, a, b, g);
  return std::fabs(sum) > unit.format.max_finite() ? std::copysign(INFINITY, sum) : sum;
}

/// How an exp2 unit uses what its contract leaves open.
enum class Bias : std::uint8_t { nearest, up, down, random, rich, poor };

/// One E(x) within the unit's contract.
inline double exp2_unit(const Exp2Unit& unit, double x, Bias bias, Random& g) {
  if (std::isnan(x)) return x;
  if (x == -INFINITY) return 0;
  const Format& f = unit.result;
  if (x > f.emax + 2) return INFINITY;
  const long double y = x < -16000 ? 0.0L : exp2l(static_cast<long double>(x));
  const int bottom = f.least_exponent();
  // nearest; the long double is rounded once
  const auto nearest = [&](long double value) {
    if (value <= 0) return 0.0L;
    const int e = std::max(std::ilogb(value), f.emin) - f.precision + 1;
    return ldexpl(std::nearbyint(ldexpl(value, -e)), e);
  };
  long double r = nearest(y);
  if (unit.max_error_ulps > 0.5 && bias != Bias::nearest) {
    double share = 1;
    if (bias == Bias::down) share = -1;
    if (bias == Bias::random) share = 2 * uniform(g) - 1;
    if (bias == Bias::rich) share = (g() & 1) != 0 ? 1 : -1;
    if (bias == Bias::poor) share = x > -20 ? -1 : 1;
    const auto ulp = [&](long double value) {
      const int e = value > 0 ? std::max(std::ilogb(value), f.emin) : f.emin;
      return ldexpl(1.0L, e - f.precision + 1);
    };
    const long double step = ulp(y);
    r = nearest(std::fmax(0.0L, y + share * unit.max_error_ulps * step));
    // back within the contract: ulps of the exact value
    while (r > 0 && std::fabs(r - y) > unit.max_error_ulps * step) {
      r += r > y ? -ulp(r * 0.999L) : ulp(r);
      if (r < 0) r = 0;
    }
  }
  if (unit.monotone_at_integers && unit.max_error_ulps > 0.5) {
    const double low = std::floor(x), high = std::ceil(x);
    if (low >= bottom) r = std::fmax(r, ldexpl(1.0L, static_cast<int>(low)));
    if (high >= bottom) {
      r = std::fmin(r, ldexpl(1.0L, static_cast<int>(high)));
    } else {
      r = std::fmin(r, ldexpl(1.0L, bottom));
    }
  }
  if (r > static_cast<long double>(f.max_finite())) return INFINITY;
  if (unit.flush_to_zero && r < ldexpl(1.0L, f.emin)) return 0;
  return static_cast<double>(r);
}

/// What the head is, exactly: multiplied operands and the exact factor.
struct MultipliedHead {
  std::vector<std::vector<double>> q, k, v;
  long double factor = 1;    ///< exact factor at the score
  double stored_factor = 1;  ///< as stored
  bool multiplies = false;
  std::int64_t padding = 0;
};

struct SimulatedRow {
  bool overflow_score = false;  ///< a score or an intermediate of one is not finite
  bool finite = true;           ///< no NaN or infinity in P, l, O, 1 / l, out
  double largest_exponent = -INFINITY, largest_weight = 0;
  double largest_score_error = 0;
  double mu = 0, l = 0, largest_o = 0, reciprocal = 0;
  bool exp2_overflows = false, p_overflows = false, l_overflows = false, o_overflows = false;
  double lost = 0;    ///< exact weights of keys with P zero or saturated over exact l
  double padded = 0;  ///< weight of padded keys over exact l
  double output_error = 0, lse_error = 0;
  double flushed_share =
      0;  ///< |sum of flushed products| / (l max |V|), visible keys, largest channel
};

class SimulatedKernel {
 public:
  SimulatedKernel(const KernelModel& kernel, const MultipliedHead& head, Bias bias, Random& g)
      : k_(kernel), h_(head), bias_(bias), g_(g) {}

  /// One row with a stored mu; visible keys [0, n).
  SimulatedRow fixed(std::size_t row, std::size_t n, double mu) {
    begin(row, n);
    out_.mu = mu;
    std::vector<double> p, e;
    weigh(0, n, mu, p, e);
    if (h_.padding > 0) {
      const double x = Arithmetic{k_.exponent.format}.add(0, -mu);
      for (std::int64_t i = 0; i < h_.padding; ++i) {
        e.push_back(E(x));
        p.push_back(convert_weight(k_.p, e.back()));
      }
    }
    const std::vector<double>& terms = k_.p.denominator_rounded ? p : e;
    double l = added(k_.denominator, terms, std::vector<double>(terms.size(), 1.0), g_);
    std::vector<double> o;
    const std::size_t channels = h_.v[0].size();
    for (std::size_t c = 0; c < channels; ++c) {
      std::vector<double> v(p.size());
      for (std::size_t j = 0; j < n; ++j) v[j] = h_.v[j][c];
      o.push_back(added(k_.numerator, p, v, g_));
    }
    finish(row, n, mu, l, o, p);
    return out_;
  }

  /// Online softmax, rescaling at every tile that raises the maximum.
  SimulatedRow online(std::size_t row, std::size_t n) {
    begin(row, n);
    const std::size_t tile = static_cast<std::size_t>(std::max(1, k_.tiles.keys));
    const std::size_t channels = h_.v[0].size();
    double m = -INFINITY, mu = -INFINITY, l = 0;
    std::vector<double> o(channels, 0.0), all_p;
    const Arithmetic sum_l{k_.denominator.format, k_.denominator.flush_to_zero};
    const Arithmetic sum_o{k_.numerator.format, k_.numerator.flush_to_zero};
    for (std::size_t t = 0; t < n; t += tile) {
      const std::size_t end = std::min(n, t + tile);
      double top = m;
      for (std::size_t j = t; j < end; ++j) top = std::fmax(top, held_[j]);
      // mu is stored in log2 units: the raw maximum of a fused kernel is scaled first
      const bool scales = k_.exponent.fused && h_.multiplies;
      const double scaled =
          scales ? Arithmetic{k_.score.accumulator.format}.multiply(top, h_.stored_factor) : top;
      const double next = round_store(scaled);
      if (next != mu) {
        const double alpha = t == 0 ? 0 : E(Arithmetic{k_.exponent.format}.add(mu, -next));
        if (alpha > 1) alpha_above_one = true;
        l = sum_l.round(l * alpha);
        for (double& x : o) x = sum_o.round(x * alpha);
      }
      m = top;
      mu = next;
      std::vector<double> p, e;
      weigh(t, end, mu, p, e);
      all_p.insert(all_p.end(), p.begin(), p.end());
      const std::vector<double>& terms = k_.p.denominator_rounded ? p : e;
      const auto join = [&](const Arithmetic& a, const Accumulator& unit, double sum,
                            const std::vector<double>& x, const std::vector<double>& y) {
        if (unit.order.kind == OrderKind::sequential || (unit.order.kind == OrderKind::any)) {
          for (std::size_t i = 0; i < x.size(); ++i) {
            sum = a.add(unit.rounded_products ? a.multiply(x[i], y[i]) : x[i] * y[i], sum);
          }
          return sum;
        }
        return t == 0 ? added(unit, x, y, g_) : a.add(sum, added(unit, x, y, g_));
      };
      l = join(sum_l, k_.denominator, l, terms, std::vector<double>(terms.size(), 1.0));
      for (std::size_t c = 0; c < channels; ++c) {
        std::vector<double> v;
        for (std::size_t j = t; j < end; ++j) v.push_back(h_.v[j][c]);
        o[c] = join(sum_o, k_.numerator, o[c], p, v);
      }
    }
    out_.mu = mu;
    finish(row, n, mu, l, o, all_p);
    return out_;
  }

  bool alpha_above_one = false;

 private:
  double E(double x) {
    const double e = exp2_unit(k_.exp2, x, bias_, g_);
    if (std::isinf(e)) out_.exp2_overflows = true;
    return e;
  }
  double round_store(double x) const {
    const Format& f = k_.stabilizer.store;
    const double r = Arithmetic{f}.round(x);
    if (k_.stabilizer.round_up && r < x) {
      const int e = std::max(std::ilogb(r == 0 ? std::ldexp(1.0, f.emin) : r), f.emin);
      double ulp = std::ldexp(1.0, e - f.precision + 1);
      // below a power of two in magnitude a negative number's neighbour is half as far
      if (r < 0 && std::ldexp(1.0, std::ilogb(r)) == -r && std::ilogb(r) > f.emin) ulp /= 2;
      return r + ulp;
    }
    return r;
  }

  void begin(std::size_t row, std::size_t n) {
    out_ = {};
    held_.clear();
    exact_.clear();
    const std::vector<double>& q = h_.q[row];
    const Arithmetic acc{k_.score.accumulator.format, k_.score.accumulator.flush_to_zero};
    const Arithmetic store{k_.score.store, k_.score.accumulator.flush_to_zero};
    const Arithmetic exponent{k_.exponent.format};
    for (std::size_t j = 0; j < n; ++j) {
      Quad dot = 0;
      for (std::size_t i = 0; i < q.size(); ++i) {
        dot += static_cast<Quad>(q[i]) * static_cast<Quad>(h_.k[j][i]);
      }
      exact_.push_back(static_cast<long double>(dot * static_cast<Quad>(h_.factor)));
      double s = added(k_.score.accumulator, q, h_.k[j], g_);
      double z = s;
      bool bad = !std::isfinite(s);
      if (k_.score.scale_before_store) {
        if (h_.multiplies) z = acc.multiply(s, h_.stored_factor);
        bad = bad || !std::isfinite(z);
        z = store.round(z);
      } else {
        z = store.round(s);
        bad = bad || !std::isfinite(z);
        if (h_.multiplies && !k_.exponent.fused) z = exponent.multiply(z, h_.stored_factor);
      }
      bad = bad || !std::isfinite(z);
      out_.overflow_score = out_.overflow_score || bad;
      held_.push_back(z);
      const long double scaled =
          k_.exponent.fused && h_.multiplies ? static_cast<long double>(z) * h_.stored_factor : z;
      out_.largest_score_error =
          std::fmax(out_.largest_score_error, static_cast<double>(std::fabs(scaled - exact_[j])));
    }
  }

  void weigh(std::size_t begin, std::size_t end, double mu, std::vector<double>& p,
             std::vector<double>& e) {
    const Arithmetic exponent{k_.exponent.format};
    for (std::size_t j = begin; j < end; ++j) {
      const double x = k_.exponent.fused && h_.multiplies
                           ? exponent.fused(held_[j], h_.stored_factor, -mu)
                           : exponent.add(held_[j], -mu);
      out_.largest_exponent = std::fmax(out_.largest_exponent, x);
      e.push_back(E(x));
      p.push_back(convert_weight(k_.p, e.back()));
      if (!std::isfinite(p.back())) out_.p_overflows = true;
      out_.largest_weight = std::fmax(out_.largest_weight, p.back());
      saturated_.resize(std::max(saturated_.size(), j + 1));
      saturated_[j] = k_.p.saturate && e.back() > k_.p.format.max_finite() &&
                      Arithmetic{k_.p.format}.round(e.back()) > k_.p.format.max_finite();
    }
  }

  void finish(std::size_t, std::size_t n, double mu, double l, const std::vector<double>& o,
              const std::vector<double>& p) {
    out_.l = l;
    out_.l_overflows = !std::isfinite(l);
    long double top = -INFINITY;
    for (std::size_t j = 0; j < n; ++j) top = std::fmax(top, exact_[j]);
    long double mass = 0, lost = 0;
    std::vector<long double> y(o.size(), 0.0L);
    for (std::size_t j = 0; j < n; ++j) {
      const long double w = exp2l(exact_[j] - top);
      mass += w;
      if (p[j] == 0 || saturated_[j]) lost += w;
      for (std::size_t c = 0; c < o.size(); ++c) y[c] += w * h_.v[j][c];
    }
    out_.lost = static_cast<double>(lost / mass);
    long double padded = 0;
    for (std::size_t j = n; j < p.size(); ++j) padded += p[j];
    out_.padded = static_cast<double>(padded / mass * exp2l(static_cast<long double>(mu) - top));
    double v_most = 0;  // of the keys that the row sees
    for (std::size_t j = 0; j < n; ++j) {
      for (const double x : h_.v[j]) v_most = std::fmax(v_most, std::fabs(x));
    }
    if (k_.numerator.flush_to_zero && k_.numerator.rounded_products && v_most > 0 && l > 0) {
      for (std::size_t c = 0; c < o.size(); ++c) {
        long double flushed = 0;
        for (std::size_t j = 0; j < n; ++j) {
          const double product = p[j] * h_.v[j][c];
          if (Arithmetic{k_.numerator.format, true}.round(product) == 0) flushed += product;
        }
        out_.flushed_share =
            std::fmax(out_.flushed_share, static_cast<double>(std::fabs(flushed) / l / v_most));
      }
    }
    for (const double x : p) {
      if (!std::isfinite(x)) out_.finite = false;
    }
    if (!std::isfinite(l)) out_.finite = false;
    double divisor = l;
    const Normalisation& last = k_.normalise;
    if (last.guard == DenominatorGuard::zero_to_one && !(l != 0)) divisor = 1;
    if (last.guard == DenominatorGuard::maximum) divisor = std::fmax(l, last.guard_value);
    const Arithmetic divide{k_.numerator.format, false};
    const Arithmetic output{last.output, false};
    double reciprocal = 0;
    if (last.division == Division::reciprocal) {
      const Format& f = k_.denominator.format;
      reciprocal = Arithmetic{f}.round(1 / divisor);
      if (last.reciprocal_max_error_ulps > 0.5 && std::isfinite(reciprocal) && reciprocal != 0 &&
          !(last.reciprocal_exact_at_powers_of_two &&
            std::ldexp(1.0, std::ilogb(divisor)) == divisor)) {
        const int e = std::max(std::ilogb(1 / divisor), f.emin) - f.precision + 1;
        const double step = std::ldexp(std::floor(last.reciprocal_max_error_ulps - 0.5), e);
        const double moved = reciprocal + ((g_() & 1) != 0 ? step : -step);
        if (moved > 0) reciprocal = Arithmetic{f}.round(moved);
      }
      if (last.reciprocal_flush_to_zero && reciprocal < std::ldexp(1.0, f.emin)) reciprocal = 0;
      if (!std::isfinite(reciprocal)) out_.finite = false;
      out_.reciprocal = reciprocal;
    }
    for (std::size_t c = 0; c < o.size(); ++c) {
      out_.largest_o = std::fmax(out_.largest_o, std::fabs(o[c]));
      if (!std::isfinite(o[c])) out_.o_overflows = true, out_.finite = false;
      const double quotient = last.division == Division::reciprocal
                                  ? divide.multiply(o[c], reciprocal)
                                  : divide.round(o[c] / divisor);
      const double result = output.round(quotient);
      if (!std::isfinite(quotient) || !std::isfinite(result)) out_.finite = false;
      out_.output_error =
          std::fmax(out_.output_error, std::fabs(static_cast<double>(result - y[c] / mass)));
    }
    out_.lse_error = static_cast<double>(std::fabs((mu - top) + log2l(l) - log2l(mass)));
  }

  const KernelModel& k_;
  const MultipliedHead& h_;
  Bias bias_;
  Random& g_;
  SimulatedRow out_;
  std::vector<double> held_;        ///< scores as held before the exponent
  std::vector<long double> exact_;  ///< exact scores of the multiplied operands
  std::vector<bool> saturated_;
};

}  // namespace headroom::simulation
