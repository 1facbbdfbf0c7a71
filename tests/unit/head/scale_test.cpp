// Exact numbers against MPFR and GMP; enclosures against MPFR at high precision.
#include "reference/head/scale.h"

#include <gmp.h>
#include <mpfr.h>

#include <cmath>
#include <random>

#include "reference/input_error.h"
#include "reference/real/fp_environment.h"
#include "tests/unit/head/scratch.h"

namespace headroom {
namespace {

using tests::mentions;
using tests::message_of;

std::string canonical(const std::string& text) { return to_text(parse_exact_number(text)); }

TEST(ExactNumber, Spellings) {
  EXPECT_EQ(canonical("0.125"), "1/8");
  EXPECT_EQ(canonical("-1.5e-3"), "-3/2000");
  EXPECT_EQ(canonical("+1.5E+3"), "1500");
  EXPECT_EQ(canonical("0x1.8p-3"), "3/16");
  EXPECT_EQ(canonical("0X1.8P3"), "12");
  EXPECT_EQ(canonical("0x10"), "16");
  EXPECT_EQ(canonical("0x.8"), "1/2");
  EXPECT_EQ(canonical("3/8"), "3/8");
  EXPECT_EQ(canonical("-6/16"), "-3/8");
  EXPECT_EQ(canonical("1.5/0.25"), "6");
  EXPECT_EQ(canonical("2^-10"), "1/1024");
  EXPECT_EQ(canonical("-2^10"), "-1024");
  EXPECT_EQ(canonical("10^-3"), "1/1000");
  EXPECT_EQ(canonical("1/2^10"), "1/1024");
  EXPECT_EQ(canonical("010"), "10");  // not octal
  EXPECT_EQ(canonical("00"), "0");
  EXPECT_EQ(canonical("-0"), "0");
  EXPECT_EQ(canonical("0e20000"), "0");
  EXPECT_EQ(canonical(".5"), "1/2");
  EXPECT_EQ(canonical("5."), "5");
  EXPECT_EQ(canonical("0.08838834764831843"), "8838834764831843/100000000000000000");
}

TEST(ExactNumber, RefusesTheRest) {
  for (const char* bad : {"",
                          "-",
                          ".",
                          "nan",
                          "NaN",
                          "inf",
                          "-inf",
                          "infinity",
                          "1/0",
                          "1/0.0",
                          "1//2",
                          "1/2/3",
                          "1/-2",
                          "e5",
                          "1e",
                          "1e+",
                          "1e5.5",
                          "0x",
                          "0xp3",
                          "0x1p",
                          "1p3",
                          "0x1e+",
                          " 1",
                          "1 ",
                          "1,5",
                          "1_000",
                          "--1",
                          "+-1",
                          "2^",
                          "2^1.5",
                          "3^2",
                          "2.0^2",
                          "2^-",
                          "1e20001",
                          "2^20001",
                          "0x1p-20001",
                          "1e99999999999999999999",
                          "1f",
                          "0b1",
                          "1\n",
                          "½"}) {
    EXPECT_THROW(parse_exact_number(bad), std::invalid_argument) << bad;
  }
  EXPECT_THROW(parse_exact_number(std::string("1\0", 2)), std::invalid_argument);
  EXPECT_THROW(parse_exact_number(std::string(70000, '1')), std::invalid_argument);
}

TEST(ExactNumber, LargestExponentsAreReadAndWrittenBack) {
  const Rational tiny = parse_exact_number("1e-20000");
  EXPECT_EQ(to_text(tiny), "1/1" + std::string(20000, '0'));
  EXPECT_EQ(parse_exact_number(to_text(tiny)), tiny);
  EXPECT_EQ(enclose(tiny).lo(), 0);
  EXPECT_EQ(enclose(tiny).hi(), 0x1p-1074);
  const Interval huge = enclose(parse_exact_number("-2^20000"));
  EXPECT_EQ(huge.lo(), -INFINITY);
  EXPECT_EQ(huge.hi(), -0x1.fffffffffffffp1023);
}

TEST(ExactNumber, HexadecimalAgreesWithMpfr) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 2000; ++i) {
    const double x =
        std::ldexp(static_cast<double>(random() >> 11U), static_cast<int>(random() % 2000) - 1070);
    char text[64];
    mpfr_t value;
    mpfr_init2(value, 53);
    mpfr_set_d(value, i % 2 != 0 ? -x : x, MPFR_RNDN);
    mpfr_snprintf(text, sizeof text, "%Ra", value);
    const Interval enclosure = enclose(parse_exact_number(text));
    EXPECT_TRUE(enclosure.is_point()) << text;
    EXPECT_EQ(enclosure.lo(), mpfr_get_d(value, MPFR_RNDN)) << text;
    mpfr_clear(value);
  }
}

/// [lo, hi] is what MPFR's correctly rounded reading of the decimal gives, in any rounding mode.
TEST(ExactNumber, DecimalEnclosureAgreesWithMpfr) {
  std::mt19937_64 random(13);
  for (int i = 0; i < 3000; ++i) {
    std::string text = i % 2 != 0 ? "-" : "";
    const int digits = 1 + static_cast<int>(random() % 40);
    for (int k = 0; k < digits; ++k) text += static_cast<char>('0' + random() % 10);
    text += "." + std::to_string(random() % 1000);
    text += "e" + std::to_string(static_cast<int>(random() % 700) - 380);
    const UpwardRounding upward;
    const Interval enclosure = enclose(parse_exact_number(text));
    mpfr_t bound;
    mpfr_init2(bound, 53);
    mpfr_set_str(bound, text.c_str(), 10, MPFR_RNDD);
    EXPECT_EQ(enclosure.lo(), mpfr_get_d(bound, MPFR_RNDD)) << text;
    mpfr_set_str(bound, text.c_str(), 10, MPFR_RNDU);
    EXPECT_EQ(enclosure.hi(), mpfr_get_d(bound, MPFR_RNDU)) << text;
    mpfr_clear(bound);
  }
}

TEST(Scale, Kinds) {
  EXPECT_EQ(Scale::reciprocal_sqrt(64).text(), "1/8");
  EXPECT_FALSE(Scale::reciprocal_sqrt(64).is_irrational());
  EXPECT_EQ(Scale::reciprocal_sqrt(128).text(), "1/sqrt(128)");
  EXPECT_TRUE(Scale::reciprocal_sqrt(128).is_irrational());
  EXPECT_EQ(Scale::parse("1/sqrt(d)", 128), Scale::reciprocal_sqrt(128));
  EXPECT_EQ(Scale::parse("1/sqrt(96)", 128), Scale::reciprocal_sqrt(96));
  EXPECT_EQ(Scale::parse("1/8", 128), Scale::reciprocal_sqrt(64));
  EXPECT_EQ(Scale::parse("0", 128).text(), "0");
  EXPECT_EQ(Scale::parse("-0.5", 128).text(), "-1/2");
  EXPECT_EQ(Scale::base2(1).text(), "log2:1");
  EXPECT_TRUE(Scale::base2(1).is_base2());
  EXPECT_THROW(Scale::reciprocal_sqrt(0), std::invalid_argument);
  // a decimal is the decimal, not the root it was printed from
  EXPECT_NE(Scale::parse("0.08838834764831843", 128), Scale::reciprocal_sqrt(128));
  for (const char* bad : {"nan", "inf", "1/sqrt(0)", "1/sqrt()", "1/sqrt(-2)", "1/sqrt(2.5)",
                          "1/sqrt(d", "2/sqrt(d)", "sqrt(d)", "", "1/sqrt(9999999999999999999)"}) {
    EXPECT_TRUE(mentions(message_of([&] { Scale::parse(bad, 128); }), "expected")) << bad;
  }
  for (const Scale& scale : {Scale::reciprocal_sqrt(128), Scale::reciprocal_sqrt(64),
                             Scale::base2(Rational(-3, 8)), Scale::natural(0)}) {
    EXPECT_EQ(Scale::from_text(scale.text()), scale);
  }
  EXPECT_THROW(Scale::from_text("1/sqrt(d)"), InputError);
  EXPECT_THROW(Scale::from_text("log2:"), InputError);
  EXPECT_THROW(Scale::from_text("log2:1/sqrt(2)"), InputError);
}

TEST(Scale, IntegerSquareRootIsExactAtTheTop) {
  const std::uint64_t root = 4294967295U;
  EXPECT_EQ(Scale::reciprocal_sqrt(root * root).text(), "1/4294967295");
  EXPECT_EQ(Scale::reciprocal_sqrt(root * root - 1).text(), "1/sqrt(18446744065119617024)");
}

/// numerator / denominator / sqrt(radicand) * factor at 400 bits, correctly rounded to a double.
double rounded(long numerator, long denominator, std::uint64_t radicand, int factor,
               mpfr_rnd_t direction) {
  mpfr_t x, y;
  mpfr_inits2(400, x, y, nullptr);
  mpfr_set_ui(x, radicand, MPFR_RNDN);
  mpfr_rec_sqrt(x, x, MPFR_RNDN);
  mpfr_mul_si(x, x, numerator, MPFR_RNDN);
  mpfr_div_si(x, x, denominator, MPFR_RNDN);
  if (factor == 1) {  // log2(e) as the logarithm of exp(1)
    mpfr_set_ui(y, 1, MPFR_RNDN);
    mpfr_exp(y, y, MPFR_RNDN);
    mpfr_log2(y, y, MPFR_RNDN);
    mpfr_mul(x, x, y, MPFR_RNDN);
  } else if (factor == 2) {
    mpfr_log_ui(y, 2, MPFR_RNDN);
    mpfr_mul(x, x, y, MPFR_RNDN);
  }
  const double result = mpfr_get_d(x, direction);
  mpfr_clears(x, y, nullptr);
  return result;
}

TEST(Scale, EnclosuresAreTheTightestInEitherRounding) {
  for (const bool up : {false, true}) {
    const MxcsrScope scope(up ? mxcsr_upward : mxcsr_nearest);
    for (long n = 1; n <= 600; ++n) {
      const Scale root = Scale::reciprocal_sqrt(static_cast<std::uint64_t>(n));
      const auto radicand = static_cast<std::uint64_t>(n);
      EXPECT_EQ(root.log2_factor().lo(), rounded(1, 1, radicand, 1, MPFR_RNDD)) << n;
      EXPECT_EQ(root.log2_factor().hi(), rounded(1, 1, radicand, 1, MPFR_RNDU)) << n;
      if (root.is_irrational()) {
        EXPECT_EQ(root.natural_factor().lo(), rounded(1, 1, radicand, 0, MPFR_RNDD)) << n;
        EXPECT_EQ(root.natural_factor().hi(), rounded(1, 1, radicand, 0, MPFR_RNDU)) << n;
      }
      const Scale base2 = Scale::base2(Rational(-n, 7));
      EXPECT_EQ(base2.natural_factor().lo(), rounded(-n, 7, 1, 2, MPFR_RNDD)) << n;
      EXPECT_EQ(base2.natural_factor().hi(), rounded(-n, 7, 1, 2, MPFR_RNDU)) << n;
      if (n % 7 != 0) {  // else the 400-bit quotient above is rounded off an exact integer
        EXPECT_EQ(base2.log2_factor().lo(), rounded(-n, 7, 1, 0, MPFR_RNDD)) << n;
        EXPECT_EQ(base2.log2_factor().hi(), rounded(-n, 7, 1, 0, MPFR_RNDU)) << n;
      }
      const Scale rational = Scale::natural(Rational(n, 1024));
      EXPECT_TRUE(rational.natural_factor().is_point());
      EXPECT_EQ(rational.natural_factor().lo(), static_cast<double>(n) / 1024);
    }
  }
  EXPECT_TRUE(Scale::natural(0).log2_factor().is_point());
  EXPECT_EQ(Scale::natural(0).log2_factor().hi(), 0);
}

TEST(Scale, WideEnclosuresHoldTheValueAndShrink) {
  mpfr_t exact, one;
  mpfr_inits2(1000, exact, one, nullptr);
  mpfr_set_ui(one, 1, MPFR_RNDN);
  mpfr_exp(exact, one, MPFR_RNDN);
  mpfr_log2(exact, exact, MPFR_RNDN);
  mpfr_t root;
  mpfr_init2(root, 1000);
  mpfr_sqrt_ui(root, 128, MPFR_RNDN);
  mpfr_div(exact, exact, root, MPFR_RNDN);
  for (const mpfr_prec_t bits : {64, 128, 256, 512}) {
    const WideInterval wide = Scale::reciprocal_sqrt(128).log2_factor(bits);
    EXPECT_EQ(wide.precision(), bits);
    EXPECT_LE(mpfr_cmp(&wide.raw()->left, exact), 0);
    EXPECT_GE(mpfr_cmp(&wide.raw()->right, exact), 0);
    mpfr_t width;
    mpfr_init2(width, 64);
    mpfr_sub(width, &wide.raw()->right, &wide.raw()->left, MPFR_RNDU);
    mpfr_div(width, width, exact, MPFR_RNDU);
    EXPECT_LE(mpfr_cmp_ui_2exp(width, 1, 2 - bits), 0) << bits;
    mpfr_clear(width);
  }
  mpfr_clears(exact, one, root, nullptr);
}

}  // namespace
}  // namespace headroom
