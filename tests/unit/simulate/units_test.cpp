// Exponential and reciprocal units against MPFR, the definition of their promise, the certifier's
// reading of it (bounds/exp2_unit.h) and the published edges of FlashAttention-4's polynomials.
#include "reference/evaluate/simulate/units.h"

#include <gtest/gtest.h>
#include <mpfr.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bounds/exp2_unit.h"
#include "reference/evaluate/simulate/fa4_polynomial.h"
#include "reference/evaluate/simulate/unit_kernels.h"
#include "reference/format/convert.h"
#include "reference/input_error.h"
#include "reference/real/fp_environment.h"

namespace headroom {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

std::uint32_t to_bits(float x) { return std::bit_cast<std::uint32_t>(x); }

class Number {
 public:
  explicit Number(mpfr_prec_t bits = 256) { mpfr_init2(value_, bits); }
  ~Number() { mpfr_clear(value_); }
  Number(const Number&) = delete;
  Number& operator=(const Number&) = delete;
  mpfr_ptr get() { return value_; }

 private:
  mpfr_t value_;
};

Exp2Unit unit_of(const std::string& name, const Format& result, double ulps, bool flush,
                 bool monotone) {
  Exp2Unit unit;
  unit.name = name;
  unit.result = result;
  unit.max_error_ulps = ulps;
  unit.flush_to_zero = flush;
  unit.monotone_at_integers = monotone;
  return unit;
}
Exp2Unit correctly_rounded(const Format& result, bool flush) {
  return unit_of("correctly-rounded", result, 0.5, flush, true);
}

std::vector<float> all_arguments(const Format& format) {
  std::vector<float> x;
  for (std::uint64_t code = 0; code < 65536; ++code) {
    x.push_back(static_cast<float>(decode(format, code)));
  }
  return x;
}

// y = 2^x or e^x. Far outside of every format's range a nearer argument stands for x.
void set_power(Number& y, ExponentBase base, float x) {
  const float bounded = std::fmin(std::fmax(x, -300.0F), 300.0F);
  Number argument(24);
  mpfr_set_flt(argument.get(), bounded, MPFR_RNDN);
  if (base == ExponentBase::two) {
    mpfr_exp2(y.get(), argument.get(), MPFR_RNDN);
  } else {
    mpfr_exp(y.get(), argument.get(), MPFR_RNDN);
  }
}

// The correctly rounded result by MPFR alone: rounding at the format's precision with unbounded
// exponent (flushed below 2^emin), or with the subnormals' exponents.
float nearest_power(const Format& f, bool flush, ExponentBase base, float x) {
  if (x == -infinity) return 0;
  const mpfr_exp_t emin = mpfr_get_emin(), emax = mpfr_get_emax();
  Number argument(24), y(f.precision);
  mpfr_set_flt(argument.get(), std::fmin(std::fmax(x, -600.0F), 600.0F), MPFR_RNDN);
  if (!flush) mpfr_set_emin(f.least_exponent() + 1);
  mpfr_set_emax(f.emax + 1);
  int ternary = base == ExponentBase::two ? mpfr_exp2(y.get(), argument.get(), MPFR_RNDN)
                                          : mpfr_exp(y.get(), argument.get(), MPFR_RNDN);
  if (!flush) ternary = mpfr_subnormalize(y.get(), ternary, MPFR_RNDN);
  const double result = mpfr_get_d(y.get(), MPFR_RNDN);
  mpfr_set_emin(emin);
  mpfr_set_emax(emax);
  if (flush && result < std::ldexp(1.0, f.emin)) return 0;
  return static_cast<float>(result);
}

// A BF16 number with the same answers as x, for most of them are far from every threshold: powers
// beyond every format, and 1 +- less than 2^-30.
float stand_in(float x) {
  if (std::fabs(x) > 300) return std::copysign(300.0F, x);
  if (x != 0 && std::fabs(x) < 0x1p-31F) return std::copysign(0x1p-31F, x);
  return x;
}
std::size_t index_of(float bf16_number) { return to_bits(bf16_number) >> 16; }

TEST(ExponentialUnit, IsCorrectlyRoundedForAll16BitArguments) {
  const NearestRounding nearest;
  for (const Format& argument : {bf16, fp16}) {
    const std::vector<float> x = all_arguments(argument);
    for (const Format& result : {fp32, bf16, fp16}) {
      for (const bool flush : {false, true}) {
        for (const ExponentBase base : {ExponentBase::two, ExponentBase::e}) {
          const ExponentialUnit unit(correctly_rounded(result, flush), base);
          std::vector<float> y(x.size()), again(x.size());
          unit.apply(x.data(), y.data(), x.size());
          unit.apply(x.data(), again.data(), x.size());  // from the table, where there is one
          for (std::size_t i = 0; i < x.size(); ++i) {
            const float expected =
                std::isnan(x[i]) ? nan : nearest_power(result, flush, base, stand_in(x[i]));
            ASSERT_EQ(to_bits(y[i]), to_bits(expected))
                << result.name << " flush " << flush << " base e " << (base == ExponentBase::e)
                << std::hexfloat << " x " << x[i] << ": " << y[i] << " expected " << expected;
            ASSERT_EQ(to_bits(again[i]), to_bits(y[i])) << std::hexfloat << x[i];
          }
        }
      }
    }
  }
}

TEST(ExponentialUnit, IsCorrectlyRoundedForRandomArguments) {
  const NearestRounding nearest;
  std::mt19937_64 random(7);
  std::vector<float> x;
  for (int i = 0; i < 60000; ++i) {
    const auto any = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    const double near = -160 + 300 * std::ldexp(static_cast<double>(random() >> 11), -53);
    x.push_back(i % 3 == 0 ? any : static_cast<float>(i % 3 == 1 ? near : -near / 64));
  }
  for (float edge : {-149.0F, -150.0F, -126.0F, 127.0F, 128.0F, 0.0F, -0.0F}) {
    for (int i = 0; i < 40; ++i) {
      x.push_back(edge);
      edge = std::nextafter(edge, i < 20 ? infinity : -infinity);
    }
  }
  for (const ExponentBase base : {ExponentBase::two, ExponentBase::e}) {
    for (const bool flush : {false, true}) {
      const ExponentialUnit unit(correctly_rounded(fp32, flush), base);
      std::vector<float> y(x.size());
      unit.apply(x.data(), y.data(), x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float expected = std::isnan(x[i]) ? nan : nearest_power(fp32, flush, base, x[i]);
        ASSERT_EQ(to_bits(y[i]), to_bits(expected)) << std::hexfloat << x[i] << " " << y[i];
        if (i % 64 == 0) {
          ASSERT_EQ(to_bits(unit(x[i])), to_bits(expected)) << std::hexfloat << x[i];
        }
      }
      std::vector<float> in_place = x;
      unit.apply(in_place.data(), in_place.data(), in_place.size() - 5);
      for (std::size_t i = 0; i + 5 < x.size(); ++i) ASSERT_EQ(to_bits(in_place[i]), to_bits(y[i]));
    }
  }
}

// Is E within k units in the last place of y or of E, whichever is larger? Units of subnormals
// unless results flush.
class Promise {
 public:
  Promise(const Exp2Unit& unit) : unit_(unit) {}  // NOLINT(google-explicit-constructor)

  double ulp(double e) const {
    int exponent = std::ilogb(e);
    if (!unit_.flush_to_zero) exponent = std::max(exponent, unit_.result.emin);
    return std::ldexp(1.0, exponent - unit_.result.precision + 1);
  }
  bool allows(Number& y, double e) {
    double unit = ulp(mpfr_get_d(y.get(), MPFR_RNDZ));
    if (e > 0) unit = std::fmax(unit, ulp(e));
    mpfr_sub_d(error_->get(), y.get(), e, MPFR_RNDN);
    mpfr_abs(error_->get(), error_->get(), MPFR_RNDN);
    mpfr_set_d(limit_->get(), unit_.max_error_ulps, MPFR_RNDN);
    mpfr_mul_d(limit_->get(), limit_->get(), unit, MPFR_RNDN);
    return mpfr_cmp(error_->get(), limit_->get()) <= 0;
  }
  double below(double e) const {  // the next number, its exponent unbounded if results flush
    const double half = ulp(e) / 2;
    return std::ilogb(e - half) < std::ilogb(e) && ulp(e - half) < ulp(e) ? e - half : e - 2 * half;
  }
  double above(double e) const { return e + ulp(e); }

  // Is `e` the least (largest) number that is allowed? A zero stands for all that is flushed.
  bool is_least(Number& y, double e) {
    const Format& f = unit_.result;
    const double normal = std::ldexp(1.0, f.emin);
    if (e == 0) {
      if (!unit_.flush_to_zero) return allows(y, 0);
      return mpfr_cmp_d(y.get(), normal) < 0 || allows(y, below(normal));
    }
    if (std::isinf(e)) return mpfr_cmp_d(y.get(), f.max_finite()) > 0 && !allows(y, f.max_finite());
    return allows(y, e) && !allows(y, below(e));
  }
  bool is_largest(Number& y, double e) {
    const Format& f = unit_.result;
    const double beyond = std::ldexp(1.0, f.emax + 1);
    if (std::isinf(e)) return mpfr_cmp_d(y.get(), beyond) >= 0 || allows(y, beyond);
    if (e == 0) {
      return !allows(y, std::ldexp(1.0, unit_.flush_to_zero ? f.emin : f.least_exponent()));
    }
    return allows(y, e) && !allows(y, above(e));
  }

 private:
  Exp2Unit unit_;
  std::shared_ptr<Number> error_ = std::make_shared<Number>(600);
  std::shared_ptr<Number> limit_ = std::make_shared<Number>(200);
};

const std::vector<Exp2Unit>& promising_units() {
  static const std::vector<Exp2Unit> units = {
      unit_of("ulp:1", fp32, 1, false, false),    unit_of("ulp:2.5", fp32, 2.5, true, true),
      unit_of("ulp:90", fp32, 90, true, false),   unit_of("ulp:0.75", bf16, 0.75, false, true),
      unit_of("ulp:2", bf16, 2, true, false),     unit_of("ulp:101", bf16, 101, false, false),
      unit_of("ulp:3.5", fp16, 3.5, false, true), unit_of("ulp:14", fp16, 14, true, false),
  };
  return units;
}

// All answers of a unit to all BF16 arguments, with and without its promise at integers.
struct Answers {
  Exp2Unit unit;
  Promise promise;
  std::vector<float> lo, hi, free_lo, free_hi;

  Answers(const Exp2Unit& u, ExponentBase base, const std::vector<float>& x)
      : unit(u), promise(u), lo(x.size()), hi(x.size()), free_lo(x.size()), free_hi(x.size()) {
    Exp2Unit free = u;
    free.monotone_at_integers = false;
    const auto fill = [&](const Exp2Unit& of, UnitChoice choice, std::vector<float>& y) {
      ExponentialUnit(of, base, choice).apply(x.data(), y.data(), x.size());
    };
    fill(u, UnitChoice::lowest, lo);
    fill(u, UnitChoice::highest, hi);
    fill(free, UnitChoice::lowest, free_lo);
    fill(free, UnitChoice::highest, free_hi);
  }
};

// At integers the power itself; between them nothing below or above those around it.
void expect_monotone(const Answers& a, ExponentBase base, float x, std::size_t i) {
  double bottom = 0, top = infinity;
  if (base == ExponentBase::e) {  // e^0 is the only power that is known
    if (x >= 0) bottom = 1;
    if (x <= 0) top = 1;
  } else {
    const Format& f = a.unit.result;
    const int flush = flush_exponent(f, a.unit.flush_to_zero);
    const double floor = std::floor(x), ceiling = std::fmax(std::ceil(x), flush);
    if (floor >= flush && floor <= f.emax) bottom = std::exp2(floor);
    if (ceiling <= f.emax) top = std::exp2(ceiling);
  }
  ASSERT_EQ(a.lo[i], std::fmax(a.free_lo[i], bottom)) << a.unit.name << std::hexfloat << " " << x;
  ASSERT_EQ(a.hi[i], std::fmin(a.free_hi[i], top)) << a.unit.name << std::hexfloat << " " << x;
}

TEST(ExponentialUnit, ChoosesTheEndsOfThePromiseForAll16BitArguments) {
  const NearestRounding nearest;
  const std::vector<float> x = all_arguments(bf16);
  for (const ExponentBase base : {ExponentBase::two, ExponentBase::e}) {
    std::vector<Answers> answers;
    answers.reserve(promising_units().size());
    for (const Exp2Unit& unit : promising_units()) {
      // in base e only the argument of the same code differs: half of the units will do
      if (base == ExponentBase::two || unit.monotone_at_integers) {
        answers.emplace_back(unit, base, x);
      }
    }
    Number y;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (const float other = stand_in(x[i]); other != x[i] && std::isfinite(x[i])) {
        const std::size_t j = index_of(other);
        for (const Answers& a : answers) {
          ASSERT_TRUE(a.lo[i] == a.lo[j] && a.hi[i] == a.hi[j] && a.free_lo[i] == a.free_lo[j] &&
                      a.free_hi[i] == a.free_hi[j])
              << a.unit.name << std::hexfloat << " " << x[i];
        }
        continue;
      }
      if (std::isfinite(x[i])) set_power(y, base, x[i]);
      for (Answers& a : answers) {
        if (!std::isfinite(x[i])) {
          const float limit = std::isnan(x[i]) ? nan : x[i] < 0 ? 0 : infinity;
          ASSERT_EQ(to_bits(a.lo[i]), to_bits(limit));
          ASSERT_EQ(to_bits(a.hi[i]), to_bits(limit));
          continue;
        }
        ASSERT_TRUE(a.promise.is_least(y, a.free_lo[i]) && a.promise.is_largest(y, a.free_hi[i]))
            << a.unit.name << " " << a.unit.result.name << " base e " << (base == ExponentBase::e)
            << std::hexfloat << " x " << x[i] << ": " << a.free_lo[i] << " to " << a.free_hi[i];
        if (a.unit.monotone_at_integers) expect_monotone(a, base, x[i], i);
      }
    }
  }
}

// What the certifier assumes of the unit holds for the ends of the promise: the relative or the
// floor error, the largest result, and that results from the flush exponent on are positive.
TEST(ExponentialUnit, StaysInsideTheCertifiersReading) {
  struct Case {
    Exp2Unit unit;
    double eps, floor;
    float flush;
    std::vector<float> y[2];
  };
  std::vector<float> x = all_arguments(fp16);
  const std::vector<float> wide = all_arguments(bf16);
  x.insert(x.end(), wide.begin(), wide.end());
  std::vector<Case> cases;
  for (const Exp2Unit& unit : promising_units()) {
    cases.push_back({unit,
                     exp2_relative_error(unit).value(),
                     exp2_floor_error(unit).value(),
                     static_cast<float>(exp2_flush_exponent(unit)),
                     {std::vector<float>(x.size()), std::vector<float>(x.size())}});
    const NearestRounding nearest;
    for (const int i : {0, 1}) {
      const UnitChoice choice = i == 0 ? UnitChoice::lowest : UnitChoice::highest;
      ExponentialUnit(unit, ExponentBase::two, choice)
          .apply(x.data(), cases.back().y[i].data(), x.size());
    }
  }
  Number exact, error(600), allowed;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i]) || stand_in(x[i]) != x[i]) continue;
    set_power(exact, ExponentBase::two, x[i]);
    for (const Case& c : cases) {
      for (const std::vector<float>& answers : c.y) {
        const float y = answers[i];
        const auto where = [&] {
          return ::testing::Message() << c.unit.name << " " << c.unit.result.name << std::hexfloat
                                      << " x " << x[i] << ": " << y;
        };
        if (x[i] >= c.flush) {
          ASSERT_GT(y, 0) << where();
        }
        if (i % 16 == 0 || std::isinf(y)) {
          const UpwardRounding up;
          const double top = exp2_upper(up, c.unit, Upper<Log2>(x[i])).value();
          mpfr_set_d(allowed.get(), y, MPFR_RNDN);
          mpfr_log2(allowed.get(), allowed.get(), MPFR_RNDD);
          ASSERT_LE(mpfr_cmp_d(allowed.get(), top), 0) << where();
        }
        if (std::isinf(y)) continue;
        mpfr_sub_d(error.get(), exact.get(), y, MPFR_RNDN);
        mpfr_abs(error.get(), error.get(), MPFR_RNDN);
        mpfr_mul_d(allowed.get(), exact.get(), c.eps, MPFR_RNDN);
        ASSERT_TRUE(mpfr_cmp(error.get(), allowed.get()) <= 0 ||
                    mpfr_cmp_d(error.get(), c.floor) <= 0)
            << where();
      }
    }
  }
}

TEST(ExponentialUnit, DrawsEveryAllowedResultReproducibly) {
  const NearestRounding nearest;
  const Exp2Unit promise = unit_of("ulp:2", bf16, 2, false, false);
  std::vector<int> seen(8);
  const ExponentialUnit least(promise, ExponentBase::two, UnitChoice::lowest);
  const ExponentialUnit largest(promise, ExponentBase::two, UnitChoice::highest);
  const float x = 0.3F;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const ExponentialUnit unit(promise, ExponentBase::two, UnitChoice::random, seed);
    const float y = unit(x);
    EXPECT_EQ(y, unit(x));
    EXPECT_GE(y, least(x));
    EXPECT_LE(y, largest(x));
    ++seen.at(static_cast<std::size_t>((y - least(x)) * 128));
  }
  const auto count = static_cast<std::size_t>((largest(x) - least(x)) * 128) + 1;
  EXPECT_EQ(count, 4U);  // 4 ulps wide, the exact value between two numbers
  for (std::size_t i = 0; i < count; ++i) EXPECT_GT(seen[i], 20) << i;
}

TEST(ExponentialUnit, HasAFloor) {
  const NearestRounding nearest;
  Exp2Unit unit = correctly_rounded(fp32, true);
  unit.floor = 0x1p-126;
  const ExponentialUnit e(unit, ExponentBase::two);
  EXPECT_EQ(e(-infinity), 0x1p-126F);
  EXPECT_EQ(e(-1000), 0x1p-126F);
  EXPECT_EQ(e(-125), 0x1p-125F);
  EXPECT_TRUE(std::isnan(e(nan)));
  unit.result = bf16;
  const ExponentialUnit narrow(unit, ExponentBase::e);
  EXPECT_EQ(narrow(-infinity), 0x1p-126F);
  EXPECT_EQ(narrow(0), 1);
}

// Without the promise at integers, the least answers to 0 and -1 lie below the powers.
TEST(ExponentialUnit, ReadsSubnormalArgumentsOfEx2ApproxAsZero) {
  const NearestRounding nearest;
  const ExponentialUnit unit(unit_of("ex2.approx.ftz", fp32, 2.5, true, false), ExponentBase::two,
                             UnitChoice::lowest);
  EXPECT_EQ(unit(0), 1 - 2.5F * 0x1p-23F);  // 2.5 ulps of 1 are 5 of the numbers below it
  EXPECT_EQ(unit(-0x1p-140F), unit(0));
  EXPECT_EQ(unit(0x1p-130F), unit(0));
}

TEST(UnitKernels, AllSetsGiveTheSameBits) {
  const NearestRounding nearest;
  std::mt19937_64 random(5);
  std::vector<float> x;
  for (int i = 0; i < 100003; ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    x.push_back(i % 2 == 0 ? std::bit_cast<float>(bits)
                           : -140 + static_cast<float>(bits % 1000000) / 3571);
  }
  for (const InstructionSet set : {InstructionSet::avx2, InstructionSet::avx512}) {
    if (!processor_has(set)) continue;
    const UnitKernels& one = unit_kernels(InstructionSet::portable);
    const UnitKernels& other = unit_kernels(set);
    std::vector<float> y(x.size()), z(x.size());
    std::vector<UnsettledArgument> of_y(x.size()), of_z(x.size());
    for (const bool flush : {false, true}) {
      const NearestPower power{0x1.71547652b82fep0, 0x1.777d0ffda0d24p-56, flush, 0x1p-140F};
      const std::size_t found = one.nearest(power, x.data(), y.data(), x.size(), of_y.data());
      ASSERT_EQ(other.nearest(power, x.data(), z.data(), x.size(), of_z.data()), found);
      for (std::size_t i = 0; i < found; ++i) {
        ASSERT_EQ(of_y[i].index, of_z[i].index);
        y[of_y[i].index] = z[of_z[i].index] = 0;
      }
      for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(to_bits(y[i]), to_bits(z[i])) << x[i];
    }
    for (int degree = 1; degree <= fa4_degrees; ++degree) {
      one.polynomial(fa4_coefficients[degree], degree, 0, x.data(), y.data(), x.size());
      other.polynomial(fa4_coefficients[degree], degree, 0, x.data(), z.data(), x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(to_bits(y[i]), to_bits(z[i])) << name(set) << std::hexfloat << " " << x[i];
      }
    }
  }
}

ExponentialUnit fa4(int degree) {
  return {fa4_polynomial("fa4-poly" + std::to_string(degree)).value(), ExponentBase::two};
}

// The published instructions in MPFR, each rounded once, and the two words added as integers.
float published(int degree, float x) {
  if (std::isnan(x) || x < -127) x = -127;
  Number sum(24), f(24), y(24);
  const float magic = 12582912;
  mpfr_set_flt(sum.get(), std::fabs(x) < 0x1p-126F ? 0 : x, MPFR_RNDN);
  mpfr_add_d(sum.get(), sum.get(), magic, MPFR_RNDD);
  const float r = mpfr_get_flt(sum.get(), MPFR_RNDN);
  mpfr_sub_d(f.get(), sum.get(), magic, MPFR_RNDN);
  mpfr_set_flt(y.get(), x, MPFR_RNDN);
  mpfr_sub(f.get(), y.get(), f.get(), MPFR_RNDN);
  mpfr_set_flt(y.get(), fa4_coefficients[degree][degree], MPFR_RNDN);
  for (int i = degree - 1; i >= 0; --i) {
    Number c(24);
    mpfr_set_flt(c.get(), fa4_coefficients[degree][i], MPFR_RNDN);
    mpfr_fma(y.get(), y.get(), f.get(), c.get(), MPFR_RNDN);
  }
  const std::uint32_t word = (to_bits(r) << 23) + to_bits(mpfr_get_flt(y.get(), MPFR_RNDN));
  const auto result = std::bit_cast<float>(word);
  return std::isnan(result) ? nan : result;
}

TEST(Fa4Polynomial, RunsThePublishedInstructions) {
  const NearestRounding nearest;
  std::mt19937_64 random(11);
  for (int degree = 1; degree <= fa4_degrees; ++degree) {
    const ExponentialUnit unit = fa4(degree);
    for (int i = 0; i < 20000; ++i) {
      float x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
      if (i % 2 == 0) x = -130 + 390 * std::ldexp(static_cast<float>(random() >> 40), -24);
      if (std::isinf(x) || std::fabs(x) > 0x1p22F) continue;  // MPFR has no overflow at 2^128
      ASSERT_EQ(to_bits(unit(x)), to_bits(published(degree, x)))
          << degree << std::hexfloat << " " << x << ": " << unit(x);
    }
  }
}

TEST(Fa4Polynomial, HasThePublishedEdges) {
  const NearestRounding nearest;
  const ExponentialUnit unit = fa4(3);
  EXPECT_EQ(to_bits(unit(nan)), 0U);
  EXPECT_EQ(to_bits(unit(-127)), 0U);
  EXPECT_EQ(to_bits(unit(-1e30F)), 0U);
  EXPECT_EQ(to_bits(unit(-infinity)), 0U);
  EXPECT_NEAR(unit(-1e-10F), 0.999915, 5e-7);
  EXPECT_EQ(unit(0), 1);
  EXPECT_EQ(unit(-126), 0x1p-126F);
  EXPECT_NEAR(unit(-126.999F) / 8e-42F, 1, 0.05);  // exp2 would give 5.9e-39
  EXPECT_NEAR(unit(127.5F) / std::exp2(127.5), 1, 1e-4);
  EXPECT_EQ(unit(128), infinity);
  EXPECT_TRUE(std::isnan(unit(128.5F)));
  EXPECT_EQ(to_bits(unit(129)), 0x80000000U);
  EXPECT_LT(unit(130.5F), 0);
  EXPECT_EQ(unit(256), -1);
  EXPECT_TRUE(std::isnan(unit(infinity)));
  EXPECT_THROW(ExponentialUnit(fa4_polynomial("fa4-poly3").value(), ExponentBase::e), InputError);
}

TEST(Reciprocal, IsRoundedToNearest) {
  const NearestRounding nearest;
  Normalisation unit;
  std::mt19937_64 random(3);
  for (const bool flush : {false, true}) {
    unit.reciprocal_flush_to_zero = flush;
    for (int i = 0; i < 20000; ++i) {
      const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
      if (std::isnan(x)) continue;
      float expected = static_cast<float>(1 / static_cast<double>(x));  // 53 >= 2 24 + 2
      if (flush && std::fabs(expected) < 0x1p-126F) expected = std::copysign(0.0F, x);
      ASSERT_EQ(to_bits(reciprocal(unit, x)), to_bits(expected)) << std::hexfloat << x;
    }
  }
  EXPECT_EQ(reciprocal(unit, 0.0F), infinity);
  EXPECT_EQ(reciprocal(unit, -0.0F), -infinity);
  EXPECT_EQ(to_bits(reciprocal(unit, -infinity)), 0x80000000U);
  EXPECT_EQ(to_bits(reciprocal(unit, std::bit_cast<float>(0xffc00001U))), to_bits(nan));
  EXPECT_EQ(reciprocal(unit, 0x1p126F), 0x1p-126F);
  EXPECT_EQ(reciprocal(unit, std::nextafter(0x1p126F, infinity)), 0);
}

TEST(Reciprocal, ChoosesTheEndsOfThePromise) {
  const NearestRounding nearest;
  Normalisation unit;
  unit.reciprocal_max_error_ulps = 1.5;
  unit.reciprocal_exact_at_powers_of_two = true;
  EXPECT_EQ(reciprocal(unit, 4, UnitChoice::lowest), 0.25F);
  // 1 / 3 lies 2/3 of a unit above 0x1.555554p-2 and 4/3 below 0x1.555558p-2.
  EXPECT_EQ(reciprocal(unit, 3, UnitChoice::lowest), 0x1.555554p-2F);
  EXPECT_EQ(reciprocal(unit, 3, UnitChoice::highest), 0x1.555558p-2F);
  EXPECT_EQ(reciprocal(unit, -3, UnitChoice::lowest), -0x1.555558p-2F);
  EXPECT_EQ(reciprocal(unit, -3, UnitChoice::highest), -0x1.555554p-2F);
  unit.reciprocal_exact_at_powers_of_two = false;
  // 1.5 ulps of 1/4 are three of the numbers below it, one above.
  EXPECT_EQ(reciprocal(unit, 4, UnitChoice::lowest), 0.25F - 1.5F * 0x1p-25F);
  EXPECT_EQ(reciprocal(unit, 4, UnitChoice::highest), 0.25F + 0x1p-25F);
  unit.reciprocal_flush_to_zero = true;
  EXPECT_EQ(reciprocal(unit, 0x1p126F, UnitChoice::lowest), 0);
  // 2^-126 is two units of 2^-127 above: units are those of 1 / l.
  EXPECT_EQ(reciprocal(unit, std::nextafter(0x1p126F, infinity), UnitChoice::highest), 0);
  unit.reciprocal_max_error_ulps = 2;
  EXPECT_EQ(reciprocal(unit, std::nextafter(0x1p126F, infinity), UnitChoice::highest), 0x1p-126F);
}

}  // namespace
}  // namespace headroom
