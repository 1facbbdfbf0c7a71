// The limits of exp2 and of accumulators against MPFR's correctly rounded exp2, brute force and
// published values.
#include "reference/format/exp2_limits.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "reference/format/convert.h"
#include "tests/unit/format/mpfr_rounding.h"

namespace headroom {
namespace {

using testing::MpfrFormat;
using testing::MpfrNumber;

double value_of(const ResultThreshold& t) {
  return std::ldexp(static_cast<double>(t.significand), t.exponent);
}

// Independently computed values (the table of DESIGN.md), to the digits given there.
struct Published {
  const Format* format;
  double log2_overflow, overflow, largest_finite, least_normal;
  bool overflows_at_equality;
  int zero_up_to;
};
const Published published[] = {
    {&fp16, 15.9996477365, 65520, 65504, 0x1p-14, true, -25},
    {&bf16, 127.9971794809, 0x1p128 * (1 - 0x1p-9), 0x1.FEp127, 0x1p-126, true, -134},
    {&fp32, 127.9999999570, 0x1p128 * (1 - 0x1p-25), 0x1.FFFFFEp127, 0x1p-126, true, -150},
    {&e4m3fn, 8.8579809951, 464, 448, 0x1p-6, false, -10},
    {&e5m2, 15.9068905956, 61440, 57344, 0x1p-14, true, -17},
};

TEST(Exp2Thresholds, AreThePublishedOnes) {
  for (const Published& row : published) {
    const Exp2Thresholds t = exp2_thresholds(*row.format, false);
    EXPECT_EQ(value_of(t.overflow), row.overflow) << row.format->name;
    EXPECT_EQ(t.overflow.includes_equality, row.overflows_at_equality) << row.format->name;
    EXPECT_NEAR(t.overflow.log2_lower, row.log2_overflow, 6e-11) << row.format->name;
    EXPECT_EQ(t.overflow.log2_upper, std::nextafter(t.overflow.log2_lower, HUGE_VAL));
    EXPECT_EQ(row.format->max_finite(), row.largest_finite);
    EXPECT_EQ(std::ldexp(1.0, row.format->emin), row.least_normal);
    EXPECT_EQ(t.nonzero.log2_lower, row.zero_up_to) << row.format->name;
    EXPECT_EQ(t.nonzero.log2_upper, row.zero_up_to) << row.format->name;
    EXPECT_FALSE(t.nonzero.includes_equality);
    // A number just above the threshold and one below, by the conversion tested elsewhere.
    const double below = std::nextafter(row.overflow, 0);
    EXPECT_TRUE(is_finite(*row.format, encode(*row.format, below, {})));
    const double above = std::nextafter(row.overflow, HUGE_VAL);
    EXPECT_FALSE(is_finite(*row.format, encode(*row.format, above, {})));
  }
}

// At each threshold, and just beside it, the conversion changes kind as the threshold says.
TEST(Exp2Thresholds, AreWhereConversionsChangeKind) {
  for (const Format* f : all_formats) {
    for (const bool flush : {false, true}) {
      const Exp2Thresholds t = exp2_thresholds(*f, flush);
      const ConversionPolicy policy{Rounding::nearest_even, false, flush, false};
      MpfrNumber x(70);
      const auto check = [&](const ResultThreshold& threshold, auto&& upper_kind) {
        mpfr_set_ui_2exp(x.get(), threshold.significand, threshold.exponent, MPFR_RNDN);
        EXPECT_EQ(upper_kind(encode(*f, x.get(), policy)), threshold.includes_equality) << f->name;
        mpfr_nextbelow(x.get());
        EXPECT_FALSE(upper_kind(encode(*f, x.get(), policy))) << f->name;
        mpfr_nextabove(x.get());
        mpfr_nextabove(x.get());
        EXPECT_TRUE(upper_kind(encode(*f, x.get(), policy))) << f->name;
      };
      check(t.normal, [&](auto code) { return classify(*f, code) == NumberClass::normal; });
      check(t.nonzero, [](auto code) { return code != 0; });
      if (f->specials == Specials::none) continue;  // saturates: no conversion shows the overflow
      check(t.overflow, [&](auto code) { return !is_finite(*f, code); });
    }
  }
  EXPECT_EQ(value_of(exp2_thresholds(e2m1, false).overflow), 7);  // the tie of 6 and 8 goes to 8
  EXPECT_TRUE(exp2_thresholds(e2m1, false).overflow.includes_equality);
}

TEST(Exp2Limits, AreThePublishedOnesForFp32Arguments) {
  for (const Published& row : published) {
    const Exp2Limits limits = exp2_limits(fp32, *row.format, false);
    ASSERT_TRUE(limits.largest_zero.has_value());
    EXPECT_EQ(decode(fp32, *limits.largest_zero), row.zero_up_to) << row.format->name;
  }
  EXPECT_NEAR(decode(fp32, exp2_limits(fp32, bf16, false).smallest_overflow.value()), 127.997185,
              5e-7);
  EXPECT_EQ(decode(fp32, exp2_limits(fp32, fp32, false).smallest_overflow.value()), 128);
  EXPECT_EQ(decode(fp32, exp2_limits(fp32, fp32, true).smallest_nonzero), -126);
  EXPECT_EQ(decode(bf16, exp2_limits(bf16, bf16, false).smallest_overflow.value()), 128);
}

// Compares the limits with MPFR for the arguments at `indices` (codes in the order of values).
void compare(const Format& argument, const Format& result,
             const std::vector<std::int64_t>& indices) {
  const Exp2Limits gradual = exp2_limits(argument, result, false);
  const Exp2Limits flushed = exp2_limits(argument, result, true);
  const double least_normal = std::ldexp(1.0, result.emin);
  MpfrFormat to(result);
  MpfrNumber x(53);
  long wrong = 0;
  double previous[2] = {0, 0};
  for (const std::int64_t index : indices) {
    const double value =
        index < 0 ? -testing::textbook_magnitude(argument, static_cast<std::uint64_t>(-index))
                  : testing::textbook_magnitude(argument, static_cast<std::uint64_t>(index));
    mpfr_set_d(x.get(), value, MPFR_RNDN);
    const MpfrFormat::Rounded r = to.exp2(x.get(), Rounding::nearest_even);
    for (const bool flush : {false, true}) {
      const Exp2Limits& limits = flush ? flushed : gradual;
      const auto at_least = [&](std::uint64_t code) { return value >= decode(argument, code); };
      const auto at_most = [&](std::uint64_t code) { return value <= decode(argument, code); };
      const double delivered = flush && r.tiny ? 0 : r.saturated;
      const bool monotone = delivered >= previous[flush];
      previous[flush] = delivered;
      const bool right[] = {
          monotone,
          r.overflow != at_most(limits.largest_finite),
          r.overflow == (limits.smallest_overflow && at_least(*limits.smallest_overflow)),
          (delivered >= least_normal) == at_least(limits.smallest_normal),
          (delivered < least_normal) ==
              (limits.largest_below_normal && at_most(*limits.largest_below_normal)),
          (delivered != 0) == at_least(limits.smallest_nonzero),
          (delivered == 0) == (limits.largest_zero && at_most(*limits.largest_zero)),
      };
      for (const bool one : right) wrong += one ? 0 : 1;
    }
  }
  EXPECT_EQ(wrong, 0) << argument.name << " to " << result.name;
  EXPECT_FALSE(indices.empty());
}

TEST(Exp2Limits, HoldForEveryNarrowArgument) {
  for (const Format* argument : {&fp16, &bf16, &e4m3fn, &e5m2, &e2m1}) {
    const auto top = static_cast<std::int64_t>(argument->max_finite_code());
    std::vector<std::int64_t> indices;
    for (std::int64_t i = -top; i <= top; ++i) indices.push_back(i);
    for (const Format* result : all_formats) compare(*argument, *result, indices);
  }
}

TEST(Exp2Limits, HoldAroundEachLimitForWideArguments) {
  for (const Format* argument : {&tf32, &fp32, &fp64}) {
    const auto top = static_cast<std::int64_t>(argument->max_finite_code());
    for (const Format* result : all_formats) {
      std::set<std::int64_t> indices;  // in order
      for (const bool flush : {false, true}) {
        const Exp2Limits limits = exp2_limits(*argument, *result, flush);
        for (const std::uint64_t code :
             {limits.smallest_nonzero, limits.smallest_normal, limits.largest_finite}) {
          const auto magnitude = static_cast<std::int64_t>(code & ~argument->sign_mask());
          const std::int64_t index = (code & argument->sign_mask()) != 0 ? -magnitude : magnitude;
          for (std::int64_t i = index - 40; i <= index + 40; ++i) {
            if (std::abs(i) <= top) indices.insert(i);
          }
        }
      }
      compare(*argument, *result, {indices.begin(), indices.end()});
    }
  }
}

TEST(Exp2Limits, SayWhereNoArgumentReachesALimit) {
  const Exp2Limits limits = exp2_limits(e2m1, fp32, true);  // arguments from -6 to 6
  EXPECT_EQ(limits.largest_finite, e2m1.max_finite_code());
  EXPECT_FALSE(limits.smallest_overflow.has_value());
  EXPECT_FALSE(limits.largest_zero.has_value());
  EXPECT_FALSE(limits.largest_below_normal.has_value());
  EXPECT_EQ(decode(e2m1, limits.smallest_nonzero), -6);
}

TEST(Exp2Limits, LargestFiniteNumbersAreEnclosed) {
  for (const Format* f : all_formats) {
    const Log2Enclosure log2 = log2_largest_finite(*f);
    EXPECT_GE(log2.lower, f->emax);
    EXPECT_LE(log2.upper, f->emax + 1);
    EXPECT_LT(log2.lower, log2.upper);
    if (f->emax > 127) continue;  // long double's exp2 checks the others
    EXPECT_LE(log2.lower, std::log2(static_cast<long double>(f->max_finite())) + 1e-15L);
    EXPECT_GE(log2.upper, std::log2(static_cast<long double>(f->max_finite())) - 1e-15L);
  }
}

// The values that follow from Algorithm 1 and from the tight rule (DESIGN.md, "Sums").
TEST(StabilizerExponent, HasThePublishedValues) {
  const auto at = [](std::uint64_t count, int g) {
    return largest_stabilizer_exponent(fp32, fp32, count, g);
  };
  EXPECT_EQ(at(75600, 0).published, 110);
  EXPECT_EQ(at(75600, 0).tight, 111);
  EXPECT_EQ(at(75600, 3).published, 107);
  EXPECT_EQ(at(75600, 3).tight, 108);
  EXPECT_EQ(at(75600, 8).published, 102);
  EXPECT_EQ(at(75600, 8).tight, 103);
  EXPECT_EQ(at(65536, 0).published, 111);
  EXPECT_EQ(at(1, 0).published, 127);
  EXPECT_EQ(at(1, 0).tight, 127);
  EXPECT_EQ(at(16777216, 0).tight, 103);
  EXPECT_FALSE(at(16777217, 0).tight.has_value());
  EXPECT_TRUE(at(std::uint64_t{1} << 48, 0).published_is_sound_to_nearest);
  EXPECT_FALSE(at((std::uint64_t{1} << 48) + 1, 0).published_is_sound_to_nearest);
  const auto sound = [](const Format& f, std::uint64_t count) {
    return largest_stabilizer_exponent(f, f, count, 0).published_is_sound_to_nearest;
  };
  EXPECT_TRUE(sound(fp16, 4194304));
  EXPECT_FALSE(sound(fp16, 4194305));
  EXPECT_TRUE(sound(bf16, 65536));
  EXPECT_FALSE(sound(bf16, 65537));
  EXPECT_FALSE(sound(bf16, 123840));  // the explicit tree that overflows
  // exp2's own range caps C.
  EXPECT_EQ(largest_stabilizer_exponent(fp16, fp32, 4096, 0).published, 15);
  EXPECT_EQ(largest_stabilizer_exponent(fp16, fp32, 4096, 0).tight, 15);
}

TEST(StabilizerExponent, IsTheLargestByBruteForce) {
  for (const Format* f : {&fp16, &bf16, &e5m2, &e4m3fn, &e2m1, &tf32}) {
    const std::uint64_t all = std::uint64_t{1} << f->precision;
    for (std::uint64_t count = 1; count <= all; ++count) {
      for (const int g : {0, 1, 5}) {
        const auto fits = [&](int c) {  // exact in double: count <= 2^11
          return std::ldexp(static_cast<double>(count), c + g) <= f->max_finite();
        };
        const StabilizerExponent c = largest_stabilizer_exponent(fp32, *f, count, g);
        ASSERT_TRUE(c.tight.has_value());
        ASSERT_TRUE(fits(*c.tight)) << f->name << ' ' << count;
        ASSERT_TRUE(*c.tight == fp32.emax || !fits(*c.tight + 1)) << f->name << ' ' << count;
        int ceiling = 0;
        while ((std::uint64_t{1} << ceiling) < count) ++ceiling;
        ASSERT_LT(c.published + ceiling + g, log2_largest_finite(*f).upper);
        ASSERT_GE(c.published + 1 + ceiling + g, log2_largest_finite(*f).lower);
        if (f->specials != Specials::ieee) continue;
        int floor = 0;
        while ((std::uint64_t{2} << floor) <= count) ++floor;
        ASSERT_EQ(*c.tight, f->emax - floor - g);
      }
    }
  }
}

}  // namespace
}  // namespace headroom
