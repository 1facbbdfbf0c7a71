// The exhaustive check of exponential units against the same figures gathered one by one in MPFR.
#include "reference/evaluate/simulate/exp2_check.h"

#include <gtest/gtest.h>
#include <mpfr.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/format/convert.h"
#include "reference/real/fp_environment.h"

namespace headroom {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

struct Exact {
  double ulps, relative;
};
// |E - 2^x| in units of the larger of E and 2^x, and of 2^x.
Exact errors(float x, float y, const Format& f) {
  mpfr_t power, error;
  mpfr_inits2(200, power, error, mpfr_ptr(nullptr));
  mpfr_set_flt(power, x, MPFR_RNDN);
  mpfr_exp2(power, power, MPFR_RNDN);
  mpfr_set_flt(error, y, MPFR_RNDN);
  const auto exponent = std::max(mpfr_get_exp(power), mpfr_get_exp(error)) - 1;
  mpfr_sub(error, error, power, MPFR_RNDA);
  mpfr_abs(error, error, MPFR_RNDN);
  Exact e{};
  e.ulps = std::ldexp(mpfr_get_d(error, MPFR_RNDN), static_cast<int>(f.precision - 1 - exponent));
  mpfr_div(error, error, power, MPFR_RNDN);
  e.relative = mpfr_get_d(error, MPFR_RNDN);
  mpfr_clears(power, error, mpfr_ptr(nullptr));
  return e;
}

std::vector<float> ascending(const Format& f) {
  std::vector<float> x;
  for (std::uint64_t code = f.max_finite_code() + 1; code-- > 0;) {
    x.push_back(static_cast<float>(decode(f, f.sign_mask() | code)));
  }
  for (std::uint64_t code = 0; code <= f.max_finite_code(); ++code) {
    x.push_back(static_cast<float>(decode(f, code)));
  }
  return x;
}

void expect_same(const Occurrences& found, std::uint64_t count, float first) {
  EXPECT_EQ(found.count, count);
  EXPECT_EQ(found.first.x, first);
}

TEST(Exp2Check, GathersWhatALoopGathers) {
  const NearestRounding nearest;
  Exp2Unit rough;
  rough.name = "ulp:3";
  rough.result = bf16;
  rough.max_error_ulps = 3;
  rough.monotone_at_integers = false;
  for (const Format& argument : {bf16, fp16}) {
    for (const Exp2Unit& unit : {*fa4_polynomial("fa4-poly3"), rough}) {
      const ExponentialUnit e(unit, ExponentBase::two, UnitChoice::random, 5);
      Exact worst{};
      std::uint64_t negative = 0, decreasing = 0, inexact = 0, not_finite = 0;
      float first_negative = 0, first_decreasing = 0, first_inexact = 0, overflow = 0, zero = 0;
      float before = -infinity;
      for (const float x : ascending(argument)) {
        const float y = e(x);
        if (std::signbit(y) && negative++ == 0) first_negative = x;
        if (y < before && decreasing++ == 0) first_decreasing = x;
        before = y;
        const bool integer = x == std::floor(x) && x <= 127;
        if (integer && x >= static_cast<float>(flush_exponent(unit.result, unit.flush_to_zero)) &&
            y != std::ldexp(1.0F, static_cast<int>(x)) && inexact++ == 0) {
          first_inexact = x;
        }
        if (y == infinity && overflow == 0) overflow = x;
        if (x <= 0 && y == 0) zero = x;
        if (!std::isfinite(y) && x < 127.99F) ++not_finite;
        if (x < -126 || x >= 128 || !(y >= 0x1p-126F) || std::isinf(y)) continue;
        const Exact now = errors(x, y, unit.result);
        worst = {std::max(worst.ulps, now.ulps), std::max(worst.relative, now.relative)};
      }
      const Exp2Report r = check_exp2(unit, ExponentBase::two, UnitChoice::random, 5, argument);
      EXPECT_EQ(r.arguments, ascending(argument).size());
      EXPECT_GE(r.error_ulps, worst.ulps);
      EXPECT_LE(r.error_ulps, worst.ulps * (1 + 1e-12) + 0x1p-26);
      EXPECT_GE(r.relative_error, worst.relative);
      EXPECT_LE(r.relative_error, worst.relative * (1 + 1e-6));
      EXPECT_EQ(errors(r.at_ulps.x, r.at_ulps.y, unit.result).ulps, worst.ulps);
      expect_same(r.negative, negative, first_negative);
      expect_same(r.decreasing, decreasing, first_decreasing);
      expect_same(r.inexact, inexact, first_inexact);
      EXPECT_EQ(r.not_finite.count, not_finite);
      EXPECT_EQ(r.overflow->x, overflow);
      EXPECT_EQ(r.last_zero->x, zero);
    }
  }
}

TEST(Exp2Check, FindsWhereAPromiseEnds) {
  Exp2Unit unit = *fa4_polynomial("fa4-poly3");
  Exp2Report r = check_exp2(unit, ExponentBase::two, UnitChoice::nearest, 0, bf16);
  EXPECT_FALSE(r.kept());
  EXPECT_EQ(r.first_kept, -126);  // wrong subnormals below
  EXPECT_EQ(r.last_kept, 128);    // E(128) = inf, E(129) = -0
  EXPECT_TRUE(r.nan_kept);        // no promise
  EXPECT_EQ(r.first_normal->x, -126);
  unit.propagates_nan = true;
  r = check_exp2(unit, ExponentBase::two, UnitChoice::nearest, 0, bf16);
  EXPECT_FALSE(r.nan_kept);
  unit.max_error_ulps = 1400;  // less than the error toward -0
  r = check_exp2(unit, ExponentBase::two, UnitChoice::nearest, 0, bf16);
  // From -2^-25 on, x - floor(x) rounds to x itself or 1; E(-2^-25) = p(1), 1430 ulps below 1.
  EXPECT_LE(*r.first_kept, 0);
  EXPECT_GT(*r.first_kept, -0x1p-25F);
}

// Every answer that the promise allows keeps it.
TEST(Exp2Check, PassesUnitsThatKeepTheirPromise) {
  for (const Format& result : {fp32, bf16, fp16}) {
    for (const double ulps : {0.5, 2.5, 100.0}) {
      for (const bool flush : {false, true}) {
        for (const bool monotone : {false, true}) {
          if (flush == monotone && ulps == 100) continue;  // seconds
          Exp2Unit unit;
          unit.name = ulp_unit_name(ulps);
          unit.result = result;
          unit.max_error_ulps = ulps;
          unit.flush_to_zero = flush;
          unit.monotone_at_integers = monotone || ulps == 0.5;
          for (const UnitChoice choice :
               {UnitChoice::nearest, UnitChoice::lowest, UnitChoice::highest, UnitChoice::random}) {
            if (choice != UnitChoice::nearest && ulps == 0.5) continue;
            for (const ExponentBase base : {ExponentBase::two, ExponentBase::e}) {
              if (base == ExponentBase::e && (flush || result == fp32)) continue;  // seconds
              const Exp2Report r = check_exp2(unit, base, choice, 1, fp16);
              EXPECT_TRUE(r.kept())
                  << unit.name << " " << result.name << " flush " << flush << " monotone "
                  << monotone << " choice " << static_cast<int>(choice) << std::hexfloat << " x "
                  << r.broken.first.x << " " << r.broken.first.y;
              EXPECT_LE(r.error_ulps, ulps + 0x1p-26)
                  << result.name << " flush " << flush << " monotone " << monotone << " choice "
                  << static_cast<int>(choice) << " base " << static_cast<int>(base) << std::hexfloat
                  << " x " << r.at_ulps.x << " " << r.at_ulps.y;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace headroom
