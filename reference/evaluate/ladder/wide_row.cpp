#include "reference/evaluate/ladder/wide_row.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace headroom {

namespace {

/// Shifts of exact coefficients beyond this many bits are not attempted; intervals decide.
constexpr std::int64_t widest_shift = std::int64_t{1} << 22;
/// Of enclosures, which add a few such numbers a row. GMP ends the program beyond what it can hold.
constexpr std::int64_t widest_enclosed_shift = std::int64_t{1} << 26;
constexpr std::int64_t no_exponent = std::numeric_limits<std::int64_t>::max();

mpz_srcptr raw(const Integer& x) { return x.backend().data(); }
Integer shifted(const Integer& x, std::int64_t bits) {
  Integer r;
  mpz_mul_2exp(r.backend().data(), raw(x), static_cast<mp_bitcnt_t>(bits));
  return r;
}

/// Numbers as integers on one power-of-two grid.
struct Grid {
  std::int64_t exponent = 0;
  std::vector<Integer> values;

  static Grid of(const std::vector<Dyadic>& numbers) {
    Grid g;
    g.exponent = no_exponent;
    for (const Dyadic& x : numbers) {
      if (x.significand != 0) g.exponent = std::min(g.exponent, x.exponent);
    }
    if (g.exponent == no_exponent) g.exponent = 0;
    g.values.reserve(numbers.size());
    for (const Dyadic& x : numbers) {
      g.values.push_back(x.significand == 0 ? Integer(0)
                                            : shifted(x.significand, x.exponent - g.exponent));
    }
    return g;
  }
  Dyadic at(std::size_t i) const { return {values[i], exponent}; }
};

/// a - b.
Dyadic difference(const Dyadic& a, const Dyadic& b) {
  if (b.significand == 0) return a;
  if (a.significand == 0) return {-b.significand, b.exponent};
  const std::int64_t e = std::min(a.exponent, b.exponent);
  return {shifted(a.significand, a.exponent - e) - shifted(b.significand, b.exponent - e), e};
}

WideInterval wide(mpfr_prec_t bits, const Integer& x) {
  WideInterval r(bits);
  mpfi_set_z(r.raw(), raw(x));
  return r;
}
WideInterval wide(mpfr_prec_t bits, const Dyadic& x) {
  WideInterval r = wide(bits, x.significand);
  if (x.exponent >= 0) {
    mpfi_mul_2ui(r.raw(), r.raw(), static_cast<unsigned long>(x.exponent));
  } else {
    mpfi_div_2ui(r.raw(), r.raw(), static_cast<unsigned long>(-x.exponent));
  }
  return r;
}
Integer to_integer(const boost::multiprecision::cpp_int& x) { return Integer(x.str()); }
Integer numerator_of(const Rational& r) { return to_integer(boost::multiprecision::numerator(r)); }
Integer denominator_of(const Rational& r) {
  return to_integer(boost::multiprecision::denominator(r));
}
WideInterval wide(mpfr_prec_t bits, const Rational& r) {
  return wide(bits, numerator_of(r)) / wide(bits, denominator_of(r));
}

/// -1, 0 or 1 if the sign is certain.
std::optional<int> sign_of(const WideInterval& x) {
  mpfr_srcptr lo = &x.raw()->left;
  mpfr_srcptr hi = &x.raw()->right;
  if (mpfr_nan_p(lo) || mpfr_nan_p(hi)) return std::nullopt;
  if (mpfr_sgn(lo) > 0) return 1;
  if (mpfr_sgn(hi) < 0) return -1;
  if (mpfr_zero_p(lo) && mpfr_zero_p(hi)) return 0;
  return std::nullopt;
}

/// Elements of a row as integer significands on the row's own grid.
struct Significands {
  std::int64_t exponent = 0;
  int bits = 0;  ///< of the largest significand, 0 if it does not fit 62
  std::vector<std::int64_t> small;

  Significands(const double* x, std::int64_t n) {
    std::int64_t least = no_exponent, most = std::numeric_limits<std::int64_t>::min();
    for (std::int64_t t = 0; t < n; ++t) {
      if (x[t] == 0) continue;
      int e;
      const double m = std::frexp(x[t], &e);
      const auto significand = static_cast<std::uint64_t>(std::ldexp(std::fabs(m), 53));
      least = std::min<std::int64_t>(least, e - 53 + __builtin_ctzll(significand));
      most = std::max<std::int64_t>(most, e);
    }
    if (least == no_exponent) {
      bits = 1;
      small.assign(static_cast<std::size_t>(n), 0);
      return;
    }
    exponent = least;
    if (most - least > 62) return;
    bits = static_cast<int>(most - least);
    small.resize(static_cast<std::size_t>(n));
    for (std::int64_t t = 0; t < n; ++t) {
      small[static_cast<std::size_t>(t)] =
          static_cast<std::int64_t>(std::ldexp(x[t], static_cast<int>(-least)));
    }
  }
};

Dyadic product(const Significands& a, const double* x, const Significands& b, const double* y,
               std::int64_t n) {
  const int carry = std::bit_width(static_cast<std::uint64_t>(n)) + 1;
  if (a.bits != 0 && b.bits != 0 && a.bits + b.bits + carry < 126) {
    __extension__ using Int128 = __int128;
    __extension__ using Unsigned128 = unsigned __int128;
    Int128 sum = 0;
    for (std::size_t t = 0; t < static_cast<std::size_t>(n); ++t) {
      sum += static_cast<Int128>(a.small[t]) * b.small[t];
    }
    const bool negative = sum < 0;
    const auto magnitude = static_cast<Unsigned128>(negative ? -sum : sum);
    Integer value = static_cast<std::uint64_t>(magnitude >> 64);
    value = (value << 64) + static_cast<std::uint64_t>(magnitude);
    if (negative) value = -value;
    return {value, a.exponent + b.exponent};
  }
  Dyadic sum;
  for (std::int64_t t = 0; t < n; ++t) {
    const Dyadic p = Dyadic::of(x[t]), q = Dyadic::of(y[t]);
    sum = difference(sum, {-(p.significand * q.significand), p.exponent + q.exponent});
  }
  return sum;
}

/// One group of keys: weights w_j = 2^(shift_j) W with a common W.
struct Group {
  std::size_t first = 0, last = 0;  ///< members: order[first, last)
  std::int64_t base_shift = 0;      ///< smallest floor(z) of the group, base 2 only
};

}  // namespace

Dyadic exact_product(const double* a, const double* b, std::int64_t n) {
  return product(Significands(a, n), a, Significands(b, n), b, n);
}

struct WideRow::State {
  const AttentionProblem& problem;
  Scale scale;
  bool grouped_by_pairs;  ///< by (x, b): irrational scale, or softcap

  std::vector<std::int64_t> keys;  ///< visible keys; -1 for the sink
  Grid x, b;                       ///< products <q, k_j> and biases
  // Group keys: exponents are equal (mod 1 for base 2) iff both are.
  std::vector<Integer> first, second;
  std::vector<std::int64_t> shift;  ///< floor(z_j), base 2 without softcap
  Integer denominator = 1;          ///< of `second` (base 2) or `first` (natural, rational)
  std::int64_t unit = 0;            ///< natural, rational: exponent = first 2^unit / denominator
  std::vector<std::size_t> order;
  std::vector<Group> groups;
  std::size_t reference = 0;  ///< key whose exponent is subtracted from all others
  bool shifts_fit = true;

  mpfr_prec_t bits = 0, most_bits = 0;
  std::vector<WideInterval> weights;  ///< one a group at `bits`, relative to the reference

  std::int64_t value_channel = -1;
  Grid values;  ///< v_j of one channel

  State(const AttentionProblem& p, std::int64_t row) : problem(p), scale(p.scale) {
    grouped_by_pairs = scale.is_irrational() || p.softcap.has_value();
    const std::int64_t d = p.channels();
    std::vector<double> query(static_cast<std::size_t>(d)), key(query.size());
    p.q.load_row(row, query.data());
    const Significands query_significands(query.data(), d);
    std::vector<Dyadic> products, biases;
    const KeyRange range = p.range(row);
    for (std::int64_t j = range.begin; j < range.end; ++j) {
      if (!p.visible(row, j)) continue;
      p.k.load_row(j, key.data());
      keys.push_back(j);
      products.push_back(
          product(query_significands, query.data(), Significands(key.data(), d), key.data(), d));
      biases.push_back(Dyadic::of(p.bias_at(row, j)));
    }
    if (p.sink) {
      keys.push_back(-1);
      products.emplace_back();
      biases.push_back(Dyadic::of(*p.sink));
    }
    x = Grid::of(products);
    b = Grid::of(biases);
    if (!keys.empty()) make_groups();
  }

  bool base2_groups() const { return scale.is_base2() && !grouped_by_pairs; }

  void make_groups() {
    const std::size_t n = keys.size();
    const Integer p = numerator_of(scale.rational()), q = denominator_of(scale.rational());
    first.resize(n);
    second.resize(n);
    shift.assign(n, 0);
    if (grouped_by_pairs) {
      first = x.values;
      second = b.values;
    } else if (base2_groups()) {
      // z = p x 2^e / q = floor + second / denominator
      const std::int64_t up = std::max<std::int64_t>(x.exponent, 0);
      denominator = shifted(q, std::max<std::int64_t>(-x.exponent, 0));
      for (std::size_t i = 0; i < n; ++i) {
        Integer floor;
        const Integer numerator = shifted(p * x.values[i], up);
        mpz_fdiv_qr(floor.backend().data(), second[i].backend().data(), raw(numerator),
                    raw(denominator));
        first[i] = b.values[i];
        if (mpz_fits_slong_p(raw(floor)) == 0) {
          shifts_fit = false;
        } else {
          shift[i] = mpz_get_si(raw(floor));
        }
      }
    } else {
      unit = std::min(x.exponent, b.exponent);
      denominator = q;
      for (std::size_t i = 0; i < n; ++i) {
        first[i] = shifted(p * x.values[i], x.exponent - unit) +
                   shifted(q * b.values[i], b.exponent - unit);
      }
    }
    order.resize(n);
    for (std::size_t i = 0; i < n; ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t c) {
      if (first[a] != first[c]) return first[a] < first[c];
      if (second[a] != second[c]) return second[a] < second[c];
      return a < c;
    });
    for (std::size_t i = 0; i < n;) {
      Group g{.first = i, .last = i, .base_shift = shift[order[i]]};
      while (g.last < n && first[order[g.last]] == first[order[i]] &&
             second[order[g.last]] == second[order[i]]) {
        g.base_shift = std::min(g.base_shift, shift[order[g.last]]);
        ++g.last;
      }
      i = g.last;
      groups.push_back(g);
    }
    // any reference is right; the largest exponent, judged roughly, keeps numbers in range
    std::optional<WideInterval> best;
    for (const Group& g : groups) {
      for (std::size_t i = g.first; i < g.last; ++i) {
        WideInterval e = exponent(order[i], 64);
        if (!best || mpfr_greater_p(&e.raw()->right, &best->raw()->right) != 0) {
          best = e;
          reference = order[i];
        }
        if (!base2_groups()) break;  // all members are equal
      }
    }
  }

  /// The natural exponent of key i (all terms), at `bits`.
  WideInterval exponent(std::size_t i, mpfr_prec_t bits_) const {
    WideInterval e = scale.natural_factor(bits_) * wide(bits_, x.at(i));
    if (problem.softcap) e = capped(e, bits_);
    return e + wide(bits_, b.at(i));
  }
  WideInterval capped(WideInterval e, mpfr_prec_t bits_) const {
    const WideInterval cap = wide(bits_, *problem.softcap);
    e /= cap;
    mpfi_tanh(e.raw(), e.raw());
    return e * cap;
  }

  /// e^(exponent of the group's unit - reference), the unit being 2^base_shift in base 2.
  WideInterval weight_of(const Group& g) const {
    const std::size_t i = order[g.first];
    if (base2_groups()) {
      WideInterval w = exp2(wide(bits, second[i]) / wide(bits, denominator));
      const Dyadic bias = difference(b.at(i), b.at(reference));
      if (bias.significand != 0) {
        WideInterval e = wide(bits, bias);
        mpfi_exp(e.raw(), e.raw());
        w *= e;
      }
      const std::int64_t s = g.base_shift - shift[reference];
      if (s >= 0) {
        mpfi_mul_2ui(w.raw(), w.raw(), static_cast<unsigned long>(s));
      } else {
        mpfi_div_2ui(w.raw(), w.raw(), static_cast<unsigned long>(-s));
      }
      return w;
    }
    WideInterval e(bits);
    if (!grouped_by_pairs) {
      e = wide(bits, Dyadic{first[i] - first[reference], unit}) / wide(bits, denominator);
    } else if (problem.softcap) {
      e = exponent(i, bits) - exponent(reference, bits);
    } else {
      e = scale.natural_factor(bits) * wide(bits, difference(x.at(i), x.at(reference))) +
          wide(bits, difference(b.at(i), b.at(reference)));
    }
    mpfi_exp(e.raw(), e.raw());
    return e;
  }

  void at_precision(mpfr_prec_t precision) {
    if (bits == precision && !weights.empty()) return;
    bits = precision;
    most_bits = std::max(most_bits, bits);
    weights.clear();
    weights.reserve(groups.size());
    for (const Group& g : groups) weights.push_back(weight_of(g));
  }

  /// Are all exact shifts of keys within their groups small enough to be written out?
  bool writable(std::int64_t widest = widest_shift) const {
    if (!shifts_fit) return false;
    for (const Group& g : groups) {
      for (std::size_t i = g.first; i < g.last; ++i) {
        if (shift[order[i]] - g.base_shift > widest) return false;
      }
    }
    return true;
  }

  void load_values(std::int64_t c) {
    if (value_channel == c) return;
    std::vector<Dyadic> numbers(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] >= 0) {
        numbers[i] = Dyadic::of(decode(problem.v.format(), problem.v.code(keys[i], c)));
      }
    }
    values = Grid::of(numbers);
    value_channel = c;
  }

  /// sum over groups of weight * coefficient.
  WideInterval combine(const std::vector<Dyadic>& coefficients) const {
    WideInterval sum(bits);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (coefficients[g].significand != 0) sum += weights[g] * wide(bits, coefficients[g]);
    }
    return sum;
  }

  /// Exact sum_{j in g} 2^(shift_j - base) of each group.
  std::vector<Dyadic> counts() const {
    std::vector<Dyadic> r(groups.size());
    for (std::size_t g = 0; g < groups.size(); ++g) {
      for (std::size_t i = groups[g].first; i < groups[g].last; ++i) {
        r[g].significand += shifted(1, shift[order[i]] - groups[g].base_shift);
      }
    }
    return r;
  }
  /// Exact sum_{j in g} 2^(shift_j - base) (v_j - f) of each group.
  std::vector<Dyadic> deviations(const Dyadic& f) const {
    const Dyadic zero_at_grid{0, values.exponent};
    std::int64_t e = values.exponent;
    if (f.significand != 0) e = std::min(e, f.exponent);
    const Integer target = f.significand == 0 ? Integer(0) : shifted(f.significand, f.exponent - e);
    std::vector<Dyadic> r(groups.size());
    for (std::size_t g = 0; g < groups.size(); ++g) {
      r[g].exponent = e;
      for (std::size_t i = groups[g].first; i < groups[g].last; ++i) {
        const std::size_t j = order[i];
        r[g].significand += shifted(shifted(values.values[j], values.exponent - e) - target,
                                    shift[j] - groups[g].base_shift);
      }
    }
    return r;
  }

  /// The precision to try next: twice as many bits, the widest as the last.
  static mpfr_prec_t after(mpfr_prec_t p) {
    return p < widest_precision ? std::min(2 * p, widest_precision) : widest_precision + 1;
  }

  /// Sign of sum_g W_g C_g (+ extra(bits)), or nothing at the largest precision.
  template <class Extra>
  std::optional<int> sign(const std::vector<Dyadic>& coefficients, const Extra& extra) {
    const bool all_zero = std::all_of(coefficients.begin(), coefficients.end(),
                                      [](const Dyadic& c) { return c.significand == 0; });
    for (mpfr_prec_t p = std::max(bits, first_precision); p <= widest_precision; p = after(p)) {
      at_precision(p);
      const std::optional<WideInterval> other = extra(p);
      if (all_zero && !other) return 0;
      WideInterval sum = combine(coefficients);
      if (other) sum += *other;
      const std::optional<int> s = sign_of(sum);
      if (s && *s != 0) return s;
    }
    return std::nullopt;
  }

  WideInterval output_at(std::int64_t c, mpfr_prec_t precision) {
    at_precision(precision);
    load_values(c);
    if (!writable(widest_enclosed_shift)) return nothing_known(precision);
    return combine(deviations(Dyadic{})) / combine(counts());
  }
  static WideInterval nothing_known(mpfr_prec_t precision) {
    WideInterval r(precision);
    mpfr_set_inf(&r.raw()->left, -1);
    mpfr_set_inf(&r.raw()->right, 1);
    return r;
  }

  WideInterval lse_at(LseBase base, mpfr_prec_t precision) {
    at_precision(precision);
    if (!writable(widest_enclosed_shift)) return nothing_known(precision);
    WideInterval sum = combine(counts());
    const auto ln_2_at = [&] {
      WideInterval r(precision);
      mpfi_const_log2(r.raw());
      return r;
    };
    if (base2_groups()) {
      // the reference weight is 1 at exponent shift + bias alone, its fraction being in the weight
      WideInterval e = log2(sum) + wide(precision, Integer(shift[reference]));
      if (base == LseBase::two) return e + wide(precision, b.at(reference)) / ln_2_at();
      return e * ln_2_at() + wide(precision, b.at(reference));
    }
    mpfi_log(sum.raw(), sum.raw());
    WideInterval e = exponent(reference, precision) + sum;
    return base == LseBase::natural ? e : e / ln_2_at();
  }

  /// Decides between two neighbouring codes once the sign against the boundary is known.
  template <class Enclose, class Compare>
  Settled settle(const Target& target, const Enclose& enclose, const Compare& compare) {
    bool zero_compared = false;
    for (mpfr_prec_t p = std::max(bits, first_precision); p <= widest_precision; p = after(p)) {
      WideInterval e = enclose(p);
      mpfr_ptr lo = &e.raw()->left;
      mpfr_ptr hi = &e.raw()->right;
      if (mpfr_nan_p(lo) || mpfr_nan_p(hi)) continue;
      if (const auto code = common_code(target, lo, hi)) {
        return {*code, mpfr_equal_p(lo, hi) ? Rung::tie : Rung::wide};
      }
      if (mpfr_sgn(lo) <= 0 && mpfr_sgn(hi) >= 0) {
        if (zero_compared) continue;
        zero_compared = true;
        const std::optional<int> s = compare(Dyadic{});
        if (!s) continue;
        if (*s == 0) return {0, Rung::tie};
        // the smallest number of the right sign stands for the end at zero
        if (*s > 0) {
          mpfr_set_zero(lo, 1);
          mpfr_nextabove(lo);
        } else {
          mpfr_set_zero(hi, 1);
          mpfr_nextbelow(hi);
        }
        if (const auto code = common_code(target, lo, hi)) return {*code, Rung::wide};
        zero_compared = false;
        // the precision of the comparison is where the enclosure has a sign too
        p = std::max(p, bits / 2);
        if (p >= widest_precision) break;
        if (!boundary_between(target, encode(target.format, lo, target.policy()),
                              encode(target.format, hi, target.policy()))) {
          continue;
        }
      }
      const std::uint64_t below = encode(target.format, lo, target.policy());
      const std::uint64_t above = encode(target.format, hi, target.policy());
      const std::optional<Dyadic> f = boundary_between(target, below, above);
      if (!f) continue;
      const std::optional<int> s = compare(*f);
      if (!s) break;
      if (*s == 0) return {rounded(target, *f), Rung::tie};
      return {*s < 0 ? below : above, Rung::wide};
    }
    return {target.nan(), Rung::undecided};
  }
};

WideRow::WideRow(const AttentionProblem& problem, std::int64_t row)
    : state_(std::make_unique<State>(problem, row)) {}
WideRow::~WideRow() = default;
WideRow::WideRow(WideRow&&) noexcept = default;

bool WideRow::empty() const {
  return state_->keys.empty() || (state_->keys.size() == 1 && state_->keys[0] < 0);
}
mpfr_prec_t WideRow::precision_used() const { return state_->most_bits; }

WideInterval WideRow::enclose_output(std::int64_t c, mpfr_prec_t bits) {
  if (empty()) return WideInterval(bits);
  return state_->output_at(c, bits);
}

WideInterval WideRow::enclose_lse(LseBase base, mpfr_prec_t bits) {
  if (state_->keys.empty()) {
    WideInterval r(bits);
    mpfr_set_inf(&r.raw()->left, -1);
    mpfr_set_inf(&r.raw()->right, -1);
    return r;
  }
  return state_->lse_at(base, bits);
}

Settled WideRow::output(std::int64_t c, const Target& target) {
  State& s = *state_;
  if (empty()) return {0, Rung::defined};
  if (!s.shifts_fit) return {target.nan(), Rung::undecided};
  s.load_values(c);
  const bool writable = s.writable();
  return s.settle(
      target, [&](mpfr_prec_t p) { return s.output_at(c, p); },
      [&](const Dyadic& f) -> std::optional<int> {
        if (!writable) return std::nullopt;
        return s.sign(s.deviations(f), [](mpfr_prec_t) { return std::optional<WideInterval>(); });
      });
}

Settled WideRow::lse(LseBase base, const Target& target) {
  State& s = *state_;
  if (s.keys.empty()) {
    return {encode(target.format, -std::numeric_limits<double>::infinity(), target.policy()),
            Rung::defined};
  }
  if (!s.shifts_fit || !s.writable()) return {target.nan(), Rung::undecided};
  // Compares sum_j w_j with e^f or 2^f. Where that term belongs to a group it is subtracted there
  // exactly; else it is a group of its own.
  const auto compare = [&](const Dyadic& f) -> std::optional<int> {
    std::vector<Dyadic> coefficients = s.counts();
    // floor(f) and whether f is an integer, for 2^f
    const bool integer =
        f.significand == 0 || f.exponent >= 0 ||
        mpz_divisible_2exp_p(raw(f.significand), static_cast<mp_bitcnt_t>(-f.exponent)) != 0;
    bool absorbed = false;
    for (std::size_t g = 0; g < s.groups.size() && !absorbed; ++g) {
      const std::size_t i = s.order[s.groups[g].first];
      Dyadic term{1, 0};  // what e^f or 2^f is in units of the group's weight
      bool same = false;
      if (s.base2_groups()) {
        const std::int64_t base_shift = s.groups[g].base_shift;
        if (base == LseBase::natural) {
          same = s.second[i] == 0 && difference(s.b.at(i), f).significand == 0;
          term.exponent = -base_shift;
        } else if (s.b.values[i] == 0) {
          // f mod 1 = second / denominator
          Integer floor, rest;
          const Integer numerator =
              shifted(f.significand, std::max<std::int64_t>(f.exponent, 0)) * s.denominator;
          const Integer den = shifted(s.denominator, std::max<std::int64_t>(-f.exponent, 0));
          mpz_fdiv_qr(floor.backend().data(), rest.backend().data(), raw(numerator), raw(den));
          same = rest == shifted(s.second[i], std::max<std::int64_t>(-f.exponent, 0)) &&
                 mpz_fits_slong_p(raw(floor)) != 0;
          if (same) term.exponent = mpz_get_si(raw(floor)) - base_shift;
        }
      } else if (base == LseBase::natural) {
        if (s.grouped_by_pairs) {
          same = s.x.values[i] == 0 && difference(s.b.at(i), f).significand == 0;
        } else {
          same = difference(Dyadic{s.first[i], s.unit},
                            Dyadic{f.significand * s.denominator, f.exponent})
                     .significand == 0;
        }
      } else if (integer) {
        same = s.grouped_by_pairs ? s.x.values[i] == 0 && s.b.values[i] == 0 : s.first[i] == 0;
        if (same) {
          const Dyadic whole = f;
          const WideInterval value = wide(64, whole);
          const double e = value.to_doubles().lo();
          if (std::fabs(e) > static_cast<double>(widest_shift)) return e > 0 ? -1 : 1;
          term.exponent = static_cast<std::int64_t>(e);
        }
      }
      if (!same) continue;
      if (std::llabs(term.exponent) > widest_shift) return std::nullopt;
      coefficients[g] = difference(coefficients[g], term);
      absorbed = true;
    }
    return s.sign(coefficients, [&](mpfr_prec_t p) -> std::optional<WideInterval> {
      if (absorbed) return std::nullopt;
      // minus e^(f - reference exponent)
      WideInterval e = wide(p, f);
      WideInterval ln_2_p(p);
      mpfi_const_log2(ln_2_p.raw());
      if (s.base2_groups()) {
        if (base == LseBase::natural) {
          e -= wide(p, s.b.at(s.reference));
          e -= ln_2_p * wide(p, Integer(s.shift[s.reference]));
        } else {
          e -= wide(p, Integer(s.shift[s.reference]));
          e *= ln_2_p;
          e -= wide(p, s.b.at(s.reference));
        }
      } else {
        if (base == LseBase::two) e *= ln_2_p;
        e -= s.exponent(s.reference, p);
      }
      mpfi_exp(e.raw(), e.raw());
      mpfi_neg(e.raw(), e.raw());
      return e;
    });
  };
  return s.settle(
      target, [&](mpfr_prec_t p) { return s.lse_at(base, p); }, compare);
}

}  // namespace headroom
