// A second simulation, for the tests of reference/evaluate/simulate: every operation an exact MPFR
// one and one rounding by MPFR, every sum evaluated anew from the list of its terms.
//
// Written from docs/kernel_file.md and the docstrings of simulate.h and running_sum.h. Shares with
// the simulation the model, the problem and the visibility of keys, nothing else.
#pragma once

#include <mpfr.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reference/evaluate/simulate/simulate.h"
#include "tests/unit/format/mpfr_rounding.h"

namespace headroom::second {

inline constexpr mpfr_prec_t exact_bits = 1400;

/// A real number, an infinity or NaN. Sums and products of numbers of FP32 are exact.
class Exact {
 public:
  Exact() { mpfr_init2(x_, exact_bits); }
  Exact(double x) : Exact() { mpfr_set_d(x_, x, MPFR_RNDN); }  // NOLINT: a number is a number
  Exact(const Exact& other) : Exact() { mpfr_set(x_, other.x_, MPFR_RNDN); }
  Exact& operator=(const Exact& other) {
    mpfr_set(x_, other.x_, MPFR_RNDN);
    return *this;
  }
  ~Exact() { mpfr_clear(x_); }
  mpfr_ptr raw() { return x_; }
  mpfr_srcptr raw() const { return x_; }

 private:
  mpfr_t x_;
};
using Operation = int (*)(mpfr_ptr, mpfr_srcptr, mpfr_srcptr, mpfr_rnd_t);
inline Exact apply(Operation operation, const Exact& a, const Exact& b) {
  Exact r;
  operation(r.raw(), a.raw(), b.raw(), MPFR_RNDN);
  return r;
}
inline Exact operator+(const Exact& a, const Exact& b) { return apply(mpfr_add, a, b); }
inline Exact operator-(const Exact& a, const Exact& b) { return apply(mpfr_sub, a, b); }
inline Exact operator*(const Exact& a, const Exact& b) { return apply(mpfr_mul, a, b); }
inline Exact operator/(const Exact& a, const Exact& b) { return apply(mpfr_div, a, b); }
inline Exact function(int (*f)(mpfr_ptr, mpfr_srcptr, mpfr_rnd_t), const Exact& a) {
  Exact r;
  f(r.raw(), a.raw(), MPFR_RNDN);
  return r;
}
inline Exact log2_e() {
  Exact r;
  mpfr_const_log2(r.raw(), MPFR_RNDN);
  return Exact(1) / r;
}
inline Exact rational(const Rational& value) {
  Exact r;
  mpfr_set_str(r.raw(), numerator(value).str().c_str(), 10, MPFR_RNDN);
  Exact below;
  mpfr_set_str(below.raw(), denominator(value).str().c_str(), 10, MPFR_RNDN);
  return r / below;
}

struct Policy {
  bool flush = false, saturate = false;
};
inline double round(const Format& format, const Exact& x, Policy policy = {}) {
  static std::map<std::string, std::unique_ptr<testing::MpfrFormat>> formats;
  const double infinite = std::numeric_limits<double>::infinity();
  if (mpfr_nan_p(x.raw())) return std::numeric_limits<double>::quiet_NaN();
  const double sign = mpfr_signbit(x.raw()) ? -1.0 : 1.0;
  if (mpfr_zero_p(x.raw())) return std::copysign(0.0, sign);
  if (mpfr_inf_p(x.raw())) {
    if (policy.saturate) return sign * format.max_finite();
    return format.specials == Specials::ieee ? sign * infinite
                                             : std::numeric_limits<double>::quiet_NaN();
  }
  auto& known = formats[std::string(format.name)];
  if (!known) known = std::make_unique<testing::MpfrFormat>(format);
  const auto r = known->round(x.raw(), Rounding::nearest_even);
  if (policy.flush && r.tiny) return std::copysign(0.0, sign);
  return policy.saturate ? r.saturated : r.gradual;
}
inline float fp32_of(const Exact& x) { return static_cast<float>(round(fp32, x)); }

inline bool subnormal(const Format& format, double x) {
  return x != 0 && std::fabs(x) < std::ldexp(1.0, format.emin);
}
inline double zero_if_subnormal(bool flush, const Format& format, double x) {
  return flush && subnormal(format, x) ? std::copysign(0.0, x) : x;
}

/// A sum as its history: terms, and factors by which all that came before was multiplied.
class Sum {
 public:
  explicit Sum(const Accumulator& unit, FreeOrder free, double initial = 0,
               const Format& a_format = fp32, const Format& b_format = fp32)
      : unit_(unit), free_(free), initial_(initial), a_format_(a_format), b_format_(b_format) {}
  void scale(double factor) { steps_.push_back({true, factor, 1}); }
  /// The terms of one call.
  void add(const std::vector<double>& a, const std::vector<double>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) steps_.push_back({false, a[i], b[i], calls_});
    ++calls_;
  }
  double total() const {
    switch (unit_.order.kind) {
      case OrderKind::sequential:
        return one_after_another(1, 0, initial_);
      case OrderKind::any:
        return any();
      case OrderKind::tile:
        return tiles();
      case OrderKind::lanes:
        return lanes();
      case OrderKind::pairwise:
        return pairwise();
      case OrderKind::matrix_unit:
        return steps_of_the_unit();
    }
    return 0;
  }

 private:
  struct Step {
    bool scale;
    double a, b;
    int call = 0;
  };
  double rounded(const Exact& x) const {
    return round(unit_.format, x, {.flush = unit_.flush_to_zero});
  }
  Exact term(const Step& s) const {
    const Exact product = Exact(s.a) * Exact(s.b);
    return unit_.rounded_products ? Exact(rounded(product)) : product;
  }
  double plus(double sum, const Exact& term) const { return rounded(Exact(sum) + term); }
  double plus(double a, double b) const { return rounded(Exact(a) + Exact(b)); }
  double multiplied(double x, double factor) const {
    return factor == 1 ? x : rounded(Exact(x) * Exact(factor));
  }

  /// The terms with index = remainder mod modulus, in their order.
  double one_after_another(std::int64_t modulus, std::int64_t remainder, double sum) const {
    std::int64_t index = 0;
    for (const Step& s : steps_) {
      if (s.scale) {
        // lanes begin with the first term, the first of them with what there was
        if (index > 0 || remainder == 0) sum = multiplied(sum, s.a);
      } else if (index++ % modulus == remainder) {
        sum = plus(sum, term(s));
      }
    }
    return sum;
  }
  double tree(const std::vector<Exact>& leaves, std::size_t begin, std::size_t end) const {
    if (begin == end) return 0;
    if (end - begin == 1) return rounded(leaves[begin]);
    if (end - begin == 2) return rounded(leaves[begin] + leaves[begin + 1]);
    // left part: the largest power of two below the count
    std::size_t half = 1;
    while (half * 2 < end - begin) half *= 2;
    const double left = tree(leaves, begin, begin + half);
    // a single leaf that has no partner goes up as it is
    if (end - begin - half == 1) return rounded(Exact(left) + leaves[begin + half]);
    return plus(left, tree(leaves, begin + half, end));
  }
  double chunk(double sum, std::vector<Exact> terms) const {
    if (terms.empty()) return sum;
    if (free_ == FreeOrder::pairwise) return plus(sum, tree(terms, 0, terms.size()));
    if (free_ == FreeOrder::descending) std::reverse(terms.begin(), terms.end());
    for (const Exact& t : terms) sum = plus(sum, t);
    return sum;
  }
  double any() const {
    double sum = initial_;
    for (std::size_t i = 0; i < steps_.size();) {
      if (steps_[i].scale) {
        sum = multiplied(sum, steps_[i++].a);
        continue;
      }
      std::vector<Exact> terms;
      const int call = steps_[i].call;
      for (; i < steps_.size() && !steps_[i].scale && steps_[i].call == call; ++i) {
        terms.push_back(term(steps_[i]));
      }
      sum = chunk(sum, terms);
    }
    return sum;
  }
  double tiles() const {
    double sum = initial_, tile = 0;
    std::int64_t index = 0;
    const std::int64_t size = unit_.order.size;
    for (std::size_t i = 0; i < steps_.size();) {
      if (steps_[i].scale) {
        sum = multiplied(sum, steps_[i].a);
        tile = multiplied(tile, steps_[i].a);
        ++i;
        continue;
      }
      std::vector<Exact> terms;
      const int call = steps_[i].call;
      do {
        terms.push_back(term(steps_[i++]));
        ++index;
      } while (index % size != 0 && i < steps_.size() && !steps_[i].scale &&
               steps_[i].call == call);
      tile = chunk(tile, terms);
      if (index % size == 0) {
        sum = plus(sum, tile);
        tile = 0;
      }
    }
    return index % size == 0 ? sum : plus(sum, tile);
  }
  double lanes() const {
    std::vector<Exact> sums;
    for (std::int64_t lane = 0; lane < unit_.order.size; ++lane) {
      sums.emplace_back(one_after_another(unit_.order.size, lane, lane == 0 ? initial_ : 0.0));
    }
    if (free_ == FreeOrder::pairwise) return tree(sums, 0, sums.size());
    if (free_ == FreeOrder::descending) std::reverse(sums.begin(), sums.end());
    double sum = mpfr_get_d(sums[0].raw(), MPFR_RNDN);
    for (std::size_t i = 1; i < sums.size(); ++i) sum = plus(sum, sums[i]);
    return sum;
  }
  /// The sum of terms [begin, begin + count), count a power of two, as it is after `time` steps.
  double node(const std::vector<std::size_t>& at, std::size_t begin, std::size_t count,
              std::size_t time) const {
    double sum;
    const std::size_t complete = at[begin + count - 1];
    if (count == 1) {
      sum = at[begin] == initial_place ? initial_ : rounded(term(steps_[at[begin]]));
    } else {
      sum = plus(node(at, begin, count / 2, complete),
                 node(at, begin + count / 2, count / 2, complete));
    }
    const std::size_t from = complete == initial_place ? 0 : complete + 1;
    for (std::size_t i = from; i < time; ++i) {
      if (steps_[i].scale) sum = multiplied(sum, steps_[i].a);
    }
    return sum;
  }
  double pairwise() const {
    std::vector<std::size_t> at;
    double first = initial_;
    for (std::size_t i = 0; i < steps_.size() && steps_[i].scale; ++i) {
      first = multiplied(first, steps_[i].a);
    }
    if (first != 0) at.push_back(initial_place);
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (!steps_[i].scale) at.push_back(i);
    }
    if (at.empty()) return first;
    // blocks of the count's binary digits, the smallest last; added from the smallest up
    std::vector<std::pair<std::size_t, std::size_t>> blocks;
    std::size_t begin = 0;
    for (std::size_t bit = std::size_t{1} << 40; bit > 0; bit /= 2) {
      if ((at.size() & bit) != 0) {
        blocks.emplace_back(begin, bit);
        begin += bit;
      }
    }
    double sum = node(at, blocks.back().first, blocks.back().second, steps_.size());
    for (std::size_t i = blocks.size() - 1; i-- > 0;) {
      sum = plus(node(at, blocks[i].first, blocks[i].second, steps_.size()), sum);
    }
    return sum;
  }

  static int exponent_of(const Format& format, double x) {
    return std::max(std::ilogb(x), format.emin);
  }
  static Exact cut(const Exact& x, int last) {
    Exact r;
    mpfr_mul_2si(r.raw(), x.raw(), -last, MPFR_RNDN);
    mpfr_trunc(r.raw(), r.raw());
    mpfr_mul_2si(r.raw(), r.raw(), last, MPFR_RNDN);
    return r;
  }
  double unit_step(double sum, const std::vector<const Step*>& terms) const {
    constexpr int none = -100000;
    Exact plain(sum);
    for (const Step* s : terms) plain = plain + Exact(s->a) * Exact(s->b);
    if (!mpfr_number_p(plain.raw())) return mpfr_get_d(plain.raw(), MPFR_RNDN);
    int top = sum == 0 ? none : exponent_of(fp32, sum);
    for (const Step* s : terms) {
      if (s->a == 0 || s->b == 0) continue;
      top = std::max(top, exponent_of(a_format_, s->a) + exponent_of(b_format_, s->b));
    }
    if (top == none) return 0;
    const int last = top - unit_.order.fraction_bits;
    Exact exact = cut(sum, last);
    for (const Step* s : terms) exact = exact + cut(Exact(s->a) * Exact(s->b), last);
    if (mpfr_zero_p(exact.raw())) return 0;
    const int lead = static_cast<int>(mpfr_get_exp(exact.raw())) - 1;
    if (lead > 127) return mpfr_sgn(exact.raw()) * std::numeric_limits<double>::infinity();
    const Exact result = cut(exact, std::max(lead, -126) - std::min(23, unit_.order.fraction_bits));
    const double r = mpfr_get_d(result.raw(), MPFR_RNDN);
    return zero_if_subnormal(unit_.flush_to_zero, fp32, r);
  }
  double steps_of_the_unit() const {
    double sum = initial_;
    for (std::size_t i = 0; i < steps_.size();) {
      if (steps_[i].scale) {
        sum = multiplied(sum, steps_[i++].a);
        continue;
      }
      std::vector<const Step*> terms;
      const int call = steps_[i].call;
      for (int k = 0;
           k < unit_.order.size && i < steps_.size() && !steps_[i].scale && steps_[i].call == call;
           ++k) {
        terms.push_back(&steps_[i++]);
      }
      sum = unit_step(sum, terms);
    }
    return sum;
  }

  static constexpr std::size_t initial_place = ~std::size_t{0};
  Accumulator unit_;
  FreeOrder free_;
  double initial_;
  Format a_format_, b_format_;
  std::vector<Step> steps_;
  int calls_ = 0;
};

/// What a stabilizer that only follows a script says of a row and a tile.
struct Scripted {
  float shift = 0, correction = 1;
};
using Script = std::function<Scripted(std::int64_t row, std::int64_t tile)>;

/// One row as the model says. Units are correctly rounded ones.
class Row {
 public:
  struct Result {
    std::vector<double> output;
    double lse = 0, denominator = 0, shift = 0;
    // by key, NaN where not visited
    std::vector<double> scores, exponents, weights, stored;
    // by tile, NaN where not visited
    std::vector<double> denominators;
    std::vector<std::vector<double>> numerators;
  };

  Row(const AttentionProblem& p, const KernelModel& k, FreeOrder order, std::int64_t row)
      : p_(p), k_(k), order_(order), row_(row), base2_(k.exponent.base == ExponentBase::two) {
    length_ = std::clamp<std::int64_t>(p.visibility.length, 0, p.keys());
    const std::int64_t tile = k.tiles.keys, whole = (length_ + tile - 1) / tile * tile;
    tiled_ = k.tiles.padding == Padding::sliced   ? length_
             : k.tiles.padding == Padding::masked ? std::min(whole, p.keys())
                                                  : whole;
    constants();
    for (std::int64_t j = 0; j < tiled_; ++j) scores_.push_back(score(j));
  }

  std::int64_t tiled_keys() const { return tiled_; }
  /// The stored score of a key, masked; what a stabilizer is shown.
  double stored_score(std::int64_t key) const { return scores_[static_cast<std::size_t>(key)]; }
  double scaled(double s) const {
    return factor_ == 1 ? s : round(k_.exponent.format, Exact(s) * Exact(factor_));
  }

  struct Start {
    float denominator = 0;    ///< l before the first tile
    float offset = 0;         ///< of P, in log units
    bool descending = false;  ///< tiles from the last to the first
    bool at_sink = false;     ///< the rule starts at a sink
  };
  Result run(const Script& script, const Start& start) const {
    Result all;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const auto keys = static_cast<std::size_t>(p_.keys());
    all.scores = all.exponents = all.weights = all.stored = std::vector<double>(keys, nan);
    const std::int64_t tiles = (tiled_ + k_.tiles.keys - 1) / k_.tiles.keys;
    all.denominators.assign(static_cast<std::size_t>(tiles), nan);
    all.numerators.resize(static_cast<std::size_t>(tiles));
    std::vector<Part> parts;
    for (std::int64_t part = 0; part < k_.split.parts; ++part) {
      parts.push_back(run_part(script, tiles * part / k_.split.parts,
                               tiles * (part + 1) / k_.split.parts, part == 0, start, all));
    }
    join(parts, all);
    return all;
  }

 private:
  struct Part {
    std::vector<double> o;
    double l = 0, shift = 0, lse = 0;
    bool any = false;  ///< the row sees a key of it
  };

  // --- operands and constants

  void constants() {
    const auto site = [&](FactorSite where, bool& present) {
      Exact f(1);
      present = false;
      if (k_.scale.scale == where) {
        Exact root;
        mpfr_sqrt_ui(root.raw(), p_.scale.radicand(), MPFR_RNDN);
        f = rational(p_.scale.rational()) / root;
        present = p_.scale.radicand() != 1 || p_.scale.rational() != 1;
      }
      if (base2_ && !p_.scale.is_base2() && k_.scale.log2e == where) {
        f = f * log2_e();
        present = true;
      }
      return f;
    };
    bool at_query, at_key, at_score;
    const double query = round(k_.scale.constant, site(FactorSite::query, at_query));
    const double key = round(k_.scale.constant, site(FactorSite::key, at_key));
    const Exact exact_score = site(FactorSite::score, at_score);
    const double stored = at_score ? round(k_.scale.constant, exact_score) : 1;
    (k_.score.scale_before_store ? early_ : factor_) = stored;
    const Exact unit = base2_ ? log2_e() : Exact(1);
    bias_unit_ = fp32_of(unit);
    if (p_.softcap) {
      const Exact cap = rational(*p_.softcap) * unit;
      cap_ = fp32_of(cap);
      if (!k_.score.scale_before_store) {
        slope_ = fp32_of(exact_score / cap);
        factor_ = *cap_;
      }
    }
    if (p_.sink) sink_ = fp32_of(Exact(static_cast<float>(*p_.sink)) * Exact(bias_unit_));

    q_ = row_of(p_.q, row_);
    const auto fold = [&](std::vector<double>& x, bool present, double constant) {
      for (double& e : x) {
        if (!present) break;
        e = round(k_.operand, round(k_.scale.arithmetic, Exact(e) * Exact(constant)));
      }
    };
    fold(q_, at_query, query);
    const std::int64_t read = std::max(length_, std::min(tiled_, p_.keys()));
    for (std::int64_t j = 0; j < read; ++j) {
      keys_.push_back(row_of(p_.k, j));
      fold(keys_.back(), at_key, key);
    }
    if (k_.centring.keys == Centring::mean && length_ > 0) {
      for (std::size_t c = 0; c < q_.size(); ++c) {
        double sum = 0;
        for (std::int64_t j = 0; j < length_; ++j) {
          sum = fp32_of(Exact(sum) + Exact(keys_[static_cast<std::size_t>(j)][c]));
        }
        const double mean =
            round(k_.centring.mean, fp32_of(Exact(sum) / Exact(static_cast<double>(length_))));
        for (auto& x : keys_) x[c] = round(k_.centring.difference, Exact(x[c]) - Exact(mean));
      }
    }
    for (std::int64_t j = 0; j < tiled_; ++j) {
      if (j >= length_ && k_.tiles.padding == Padding::zero_keys) {
        if (j < static_cast<std::int64_t>(keys_.size())) {
          keys_[static_cast<std::size_t>(j)].assign(q_.size(), 0.0);
        } else {
          keys_.emplace_back(q_.size(), 0.0);
        }
      }
    }
    const bool zeros = k_.score.accumulator.denormals_are_zero;
    for (double& x : q_) x = zero_if_subnormal(zeros, k_.operand, x);
    for (auto& row : keys_) {
      for (double& x : row) x = zero_if_subnormal(zeros, k_.operand, x);
    }
  }
  static std::vector<double> row_of(const Matrix& m, std::int64_t row) {
    std::vector<double> x(static_cast<std::size_t>(m.columns()));
    m.load_row(row, x.data());
    return x;
  }

  // --- scores

  double store(const Exact& x) const {
    return round(k_.score.store, x, {.flush = k_.score.accumulator.flush_to_zero});
  }
  double exponential_fp32(double u) const { return fp32_of(function(mpfr_exp, Exact(u))); }
  double capped(double s) const {
    const double u = slope_ != 0 ? fp32_of(Exact(s) * Exact(slope_)) : fp32_of(Exact(s) / *cap_);
    const double outer = slope_ != 0 ? 1.0 : static_cast<double>(*cap_);
    switch (k_.score.softcap) {
      case SoftcapFormula::tanh:
        return fp32_of(Exact(outer) * Exact(fp32_of(function(mpfr_tanh, Exact(u)))));
      case SoftcapFormula::exp_ratio: {
        const double up = exponential_fp32(u), down = exponential_fp32(-u);
        const double above = fp32_of(Exact(outer) * Exact(fp32_of(Exact(up) - Exact(down))));
        return fp32_of(Exact(above) / Exact(fp32_of(Exact(up) + Exact(down))));
      }
      case SoftcapFormula::logistic: {
        const double below =
            fp32_of(Exact(exponential_fp32(fp32_of(Exact(2) * Exact(u)))) + Exact(1));
        const double inner = fp32_of(Exact(1) - Exact(fp32_of(Exact(2) / Exact(below))));
        return fp32_of(Exact(outer) * Exact(inner));
      }
    }
    return 0;
  }
  double score(std::int64_t key) const {
    const double infinite = std::numeric_limits<double>::infinity();
    const bool padding = key >= length_;
    if (padding && k_.tiles.padding == Padding::masked) return -infinite;
    const bool sees = padding || p_.sees(row_, key);
    if (!sees && k_.mask.form == MaskForm::select) return store(k_.mask.value);
    Sum sum(k_.score.accumulator, order_, 0, k_.operand,
            k_.centring.keys == Centring::mean ? k_.centring.difference : k_.operand);
    sum.add(q_, keys_[static_cast<std::size_t>(key)]);
    double s = sum.total();
    if (early_ != 1) {
      s = round(k_.score.accumulator.format, Exact(s) * Exact(early_),
                {.flush = k_.score.accumulator.flush_to_zero});
    }
    if (cap_) s = capped(s);
    s = store(s);
    if (!padding && p_.bias) {
      const double bias = fp32_of(Exact(p_.bias_at(row_, key)) * Exact(bias_unit_));
      s = store(Exact(s) + Exact(bias));
    }
    return sees ? s : store(Exact(s) + Exact(k_.mask.value));
  }

  // --- the loop

  double exponential(double x) const {
    const double e =
        round(k_.exp2.result, base2_ ? function(mpfr_exp2, Exact(x)) : function(mpfr_exp, Exact(x)),
              {.flush = k_.exp2.flush_to_zero});
    return e < k_.exp2.floor ? k_.exp2.floor : e;
  }
  double exponent(double s, double shift) const {
    if (k_.exponent.fused && factor_ != 1) {
      return round(k_.exponent.format, Exact(s) * Exact(factor_) - Exact(shift));
    }
    return round(k_.exponent.format, Exact(scaled(s)) - Exact(shift));
  }
  double value(std::int64_t key, std::int64_t channel) const {
    if (key >= length_ && (k_.tiles.padding == Padding::zero_keys || key >= p_.keys())) return 0;
    return zero_if_subnormal(k_.numerator.denormals_are_zero, k_.operand,
                             row_of(p_.v, key)[static_cast<std::size_t>(channel)]);
  }
  double reciprocal_of(double l) const {
    const double r =
        round(fp32, Exact(1) / Exact(l), {.flush = k_.normalise.reciprocal_flush_to_zero});
    return round(k_.denominator.format, r, {});
  }
  double numerator_round(const Exact& x) const {
    return round(k_.numerator.format, x, {.flush = k_.numerator.flush_to_zero});
  }

  /// Tiles that hold a key in the range of a row of this row's block.
  bool visited(std::int64_t tile) const {
    const std::int64_t size = k_.tiles.queries, block = row_ / size;
    for (std::int64_t i = block * size; i < std::min(p_.queries(), (block + 1) * size); ++i) {
      const KeyRange range = p_.range(i);
      if (range.count() > 0 && range.begin < (tile + 1) * k_.tiles.keys &&
          range.end > tile * k_.tiles.keys) {
        return true;
      }
    }
    return false;
  }

  Part run_part(const Script& script, std::int64_t first, std::int64_t last, bool first_part,
                const Start& start, Result& all) const {
    const auto dv = static_cast<std::size_t>(p_.value_channels());
    const bool at_sink = sink_ && k_.sink == SinkPlace::start && start.at_sink;
    Part part;
    const double initial = !at_sink                 ? static_cast<double>(start.denominator)
                           : first_part && !added() ? exponential(start.offset)
                                                    : 0.0;
    Sum l(k_.denominator, order_, initial, k_.p.denominator_rounded ? k_.p.format : k_.exp2.result);
    std::vector<Sum> o(dv, Sum(k_.numerator, order_, 0, k_.p.format, k_.operand));
    std::vector<double> normalised(dv, 0.0);
    bool any = false;
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t t = start.descending ? last - 1 - (i - first) : i;
      if (!visited(t)) continue;
      const std::int64_t begin = t * k_.tiles.keys, end = std::min(tiled_, begin + k_.tiles.keys);
      const Scripted said = script(row_, t);
      part.shift = said.shift;
      l.scale(said.correction);
      for (Sum& sum : o) sum.scale(said.correction);
      const double corrected = l.total();
      std::vector<double> weights, stored;
      for (std::int64_t j = begin; j < end; ++j) {
        any = any || (j < length_ ? p_.visible(row_, j) : k_.tiles.padding == Padding::zero_keys);
        const double s = stored_score(j), x = exponent(s, said.shift), e = exponential(x);
        const double w = round(k_.p.format, e, {k_.p.flush_to_zero, k_.p.saturate});
        weights.push_back(e);
        stored.push_back(w);
        if (j < p_.keys()) {
          const auto i = static_cast<std::size_t>(j);
          all.scores[i] = s;
          all.exponents[i] = x;
          all.weights[i] = e;
          all.stored[i] = w;
        }
      }
      std::vector<double> terms = k_.p.denominator_rounded ? stored : weights;
      for (double& x : terms) {
        x = zero_if_subnormal(k_.denominator.denormals_are_zero,
                              k_.p.denominator_rounded ? k_.p.format : k_.exp2.result, x);
      }
      for (double& x : stored) {
        x = zero_if_subnormal(k_.numerator.denormals_are_zero, k_.p.format, x);
      }
      l.add(terms, std::vector<double>(terms.size(), 1.0));
      const double total = l.total();
      std::vector<double> after(dv);
      for (std::size_t c = 0; c < dv; ++c) {
        std::vector<double> values;
        for (std::int64_t j = begin; j < end; ++j) {
          values.push_back(value(j, static_cast<std::int64_t>(c)));
        }
        if (k_.normalise.every_tile) {
          const double inverse = total == 0 ? 1 : reciprocal_of(total);
          const double keep = numerator_round(Exact(corrected) * Exact(inverse));
          Sum tile(k_.numerator, order_, 0, k_.p.format, k_.operand);
          tile.add(stored, values);
          const double added = numerator_round(Exact(tile.total()) * Exact(inverse));
          const double kept = numerator_round(Exact(normalised[c]) * Exact(keep));
          normalised[c] = numerator_round(Exact(kept) + Exact(added));
          after[c] = normalised[c];
        } else {
          o[c].add(stored, values);
          after[c] = o[c].total();
        }
      }
      all.denominators[static_cast<std::size_t>(t)] = total;
      all.numerators[static_cast<std::size_t>(t)] = after;
    }
    finish(part, l, o, normalised, any, first_part, at_sink, start.offset);
    return part;
  }

  void finish(Part& part, Sum& l, std::vector<Sum>& o, const std::vector<double>& normalised,
              bool any, bool first_part, bool at_sink, float offset) const {
    const bool sink = sink_ && first_part;
    part.any = any;
    if (!any && !added() && k_.tiles.empty_row != EmptyRowRule::mean_of_visited) {
      empty(part, sink, o.size());
      return;
    }
    if (sink && !added() && !at_sink) l.add({sink_weight(part.shift)}, {1.0});
    part.l = l.total();
    part.lse = log_sum(part.shift, part.l, offset);
    for (std::size_t c = 0; c < o.size(); ++c) {
      part.o.push_back(k_.normalise.every_tile ? normalised[c] : o[c].total());
    }
    if (!added()) divide(part, offset);
  }
  bool added() const { return k_.split.parts > 1 && k_.split.merge == MergeRule::accumulate; }
  double sink_weight(double shift) const {
    return exponential(round(k_.exponent.format, Exact(*sink_) - Exact(shift)));
  }
  void empty(Part& part, bool sink, std::size_t channels) const {
    const double infinite = std::numeric_limits<double>::infinity();
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const EmptyRowRule rule = k_.tiles.empty_row;
    const bool undefined = rule == EmptyRowRule::nan && !sink;
    part.o.assign(channels, undefined ? nan : 0.0);
    part.l = 0;
    part.lse = undefined ? nan : rule == EmptyRowRule::zero_pos_inf ? infinite : -infinite;
    if (sink) {
      part.shift = *sink_;
      part.l = 1;
      part.lse = log_sum(part.shift, 1, 0);
    }
  }

  /// O / l and what the guard does to the log-sum-exp.
  void divide(Part& part, double offset = 0) const {
    const double infinite = std::numeric_limits<double>::infinity();
    const Normalisation& n = k_.normalise;
    const bool missing = part.l == 0 || std::isnan(part.l);
    double divisor = part.l;
    if (missing && n.guard == DenominatorGuard::zero_to_one) {
      divisor = 1;  // FA2: +infinity, -infinity for a part that an LSE merge takes
      part.lse =
          k_.split.parts > 1 && k_.split.merge != MergeRule::accumulate ? -infinite : infinite;
    }
    if (n.guard == DenominatorGuard::maximum) {
      divisor = std::isnan(part.l) ? n.guard_value : std::max(part.l, n.guard_value);
      part.lse = log_sum(part.shift, divisor, offset);
    }
    const bool to_zero = missing && n.guard == DenominatorGuard::zero_to_zero;
    if (to_zero) part.lse = -infinite;
    if (n.every_tile) return;
    for (double& o : part.o) {
      if (to_zero) {
        o = numerator_round(Exact(o) * Exact(0));
      } else if (n.division == Division::reciprocal) {
        o = numerator_round(Exact(o) * Exact(reciprocal_of(divisor)));
      } else {
        o = numerator_round(Exact(o) / Exact(divisor));
      }
    }
  }

  static double logarithm(ExponentBase base, double x) {
    return fp32_of(function(base == ExponentBase::two ? mpfr_log2 : mpfr_log, Exact(x)));
  }
  double log_sum(double shift, double l, double offset) const {
    // a power of two is taken out of the sum; else shift + log l is right as it is
    if (!base2_ || offset != std::floor(offset)) offset = 0;
    double at = fp32_of(Exact(shift) + Exact(offset));
    // FP32 constants: ln 2 and log2(e) rounded
    if (base2_ && k_.lse.base == ExponentBase::e) {
      at = fp32_of(Exact(at) * Exact(fp32_of(Exact(1) / log2_e())));
    }
    if (!base2_ && k_.lse.base == ExponentBase::two) {
      at = fp32_of(Exact(at) * Exact(fp32_of(log2_e())));
    }
    return fp32_of(Exact(at) + Exact(logarithm(k_.lse.base,
                                               fp32_of(std::ldexp(l, -static_cast<int>(offset))))));
  }

  // --- parts

  static double power(ExponentBase base, double x) {
    return fp32_of(function(base == ExponentBase::two ? mpfr_exp2 : mpfr_exp, Exact(x)));
  }
  void join(std::vector<Part>& parts, Result& all) const {
    const double infinite = std::numeric_limits<double>::infinity();
    Part joined = parts[0];
    const ExponentBase base = k_.split.reads;
    const std::size_t dv = joined.o.size();
    if (added()) {
      const auto seen =
          std::find_if(parts.begin(), parts.end(), [](const Part& part) { return part.any; });
      for (std::size_t i = 1; i < parts.size(); ++i) {
        joined.l = round(k_.denominator.format, Exact(joined.l) + Exact(parts[i].l),
                         {.flush = k_.denominator.flush_to_zero});
        for (std::size_t c = 0; c < dv; ++c) {
          joined.o[c] = numerator_round(Exact(joined.o[c]) + Exact(parts[i].o[c]));
        }
      }
      joined.shift = seen == parts.end() ? parts[0].shift : seen->shift;
      if (sink_) {
        joined.l = round(k_.denominator.format, Exact(joined.l) + Exact(sink_weight(joined.shift)),
                         {.flush = k_.denominator.flush_to_zero});
      }
      joined.lse = log_sum(joined.shift, joined.l, 0);
      divide(joined);
      if (seen == parts.end() && k_.tiles.empty_row != EmptyRowRule::mean_of_visited) {
        joined.shift = 0;
        empty(joined, sink_.has_value(), dv);
      }
    } else if (parts.size() > 1 && k_.split.merge == MergeRule::lse_log1p) {
      for (std::size_t i = 1; i < parts.size(); ++i) {
        const double a = joined.lse, b = parts[i].lse;
        const double grown = power(base, fp32_of(Exact(b) - Exact(a)));
        joined.lse = fp32_of(Exact(a) + Exact(logarithm(base, fp32_of(Exact(1) + Exact(grown)))));
        const double keep = power(base, fp32_of(Exact(a) - Exact(joined.lse)));
        const double more = power(base, fp32_of(Exact(b) - Exact(joined.lse)));
        for (std::size_t c = 0; c < dv; ++c) {
          joined.o[c] = numerator_round(Exact(numerator_round(Exact(joined.o[c]) * Exact(keep))) +
                                        Exact(numerator_round(Exact(parts[i].o[c]) * Exact(more))));
        }
      }
    } else if (parts.size() > 1 && k_.split.merge == MergeRule::lse_naive) {
      for (std::size_t i = 1; i < parts.size(); ++i) {
        const double a = joined.lse, b = parts[i].lse;
        const double most = std::isnan(a) ? b : std::isnan(b) ? a : std::max(a, b);
        const double wa = power(base, fp32_of(Exact(a) - Exact(most)));
        const double wb = power(base, fp32_of(Exact(b) - Exact(most)));
        const double total = fp32_of(Exact(wa) + Exact(wb));
        const double sa = fp32_of(Exact(wa) / Exact(total)), sb = fp32_of(Exact(wb) / Exact(total));
        joined.lse = fp32_of(Exact(most) + Exact(logarithm(base, total)));
        for (std::size_t c = 0; c < dv; ++c) {
          joined.o[c] = numerator_round(Exact(numerator_round(Exact(joined.o[c]) * Exact(sa))) +
                                        Exact(numerator_round(Exact(parts[i].o[c]) * Exact(sb))));
        }
      }
    } else if (parts.size() > 1) {
      double most = -infinite;
      for (const Part& part : parts) {
        if (!std::isnan(part.lse)) most = std::max(most, part.lse);
      }
      double total = 0;
      std::vector<double> o(dv, 0.0);
      for (const Part& part : parts) {
        if (part.lse == -infinite) continue;
        const double weight = power(base, fp32_of(Exact(part.lse) - Exact(most)));
        total = fp32_of(Exact(total) + Exact(weight));
        for (std::size_t c = 0; c < dv; ++c) {
          o[c] = numerator_round(Exact(o[c]) +
                                 Exact(numerator_round(Exact(weight) * Exact(part.o[c]))));
        }
      }
      const bool none = total == 0;
      for (std::size_t c = 0; c < dv; ++c) {
        joined.o[c] = none ? 0.0 : numerator_round(Exact(o[c]) / Exact(total));
      }
      joined.lse = none ? -infinite : fp32_of(Exact(most) + Exact(logarithm(base, total)));
      joined.l = total;
    }
    for (double& x : joined.o) x = round(k_.normalise.output, x);
    all.output = joined.o;
    all.lse = joined.lse;
    all.denominator = joined.l;
    all.shift = joined.shift;
  }

  const AttentionProblem& p_;
  const KernelModel& k_;
  FreeOrder order_;
  std::int64_t row_, length_ = 0, tiled_ = 0;
  bool base2_;
  double early_ = 1, factor_ = 1, slope_ = 0;
  float bias_unit_ = 1;
  std::optional<float> cap_, sink_;
  std::vector<double> q_;
  std::vector<std::vector<double>> keys_;
  std::vector<double> scores_;
};

}  // namespace headroom::second
