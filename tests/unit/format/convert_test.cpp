// Conversions against MPFR, the processor and the textbook formula.
#include "reference/format/convert.h"

#include <gtest/gtest.h>
#include <immintrin.h>
#include <algorithm>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "reference/format/format.h"
#include "tests/unit/format/mpfr_rounding.h"

namespace headroom {
namespace {

using testing::all_roundings;
using testing::CodeTable;
using testing::MpfrFormat;
using testing::MpfrNumber;

bool is_narrow(const Format& f) { return f.bits() <= 19; }

std::vector<const Format*> narrow_formats() {
  std::vector<const Format*> result;
  for (const Format* f : all_formats) {
    if (is_narrow(*f)) result.push_back(f);
  }
  return result;
}

std::vector<ConversionPolicy> all_policies() {
  std::vector<ConversionPolicy> result;
  for (const Rounding rounding : all_roundings) {
    for (int bits = 0; bits < 8; ++bits) {
      result.push_back({rounding, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0});
    }
  }
  return result;
}

// Counts disagreements and keeps the first, so that millions of comparisons stay cheap.
class Disagreements {
 public:
  void compare(std::uint64_t got, std::uint64_t expected, const Format& to,
               const ConversionPolicy& policy, double input) {
    ++compared_;
    if (got == expected) return;
    if (count_++ > 0) return;
    std::ostringstream text;
    text << std::hexfloat << input << std::hex << " to " << to.name << " rounding "
         << static_cast<int>(policy.rounding) << (policy.saturate ? " saturate" : "")
         << (policy.flush_to_zero ? " ftz" : "") << (policy.denormals_are_zero ? " daz" : "")
         << ": got 0x" << got << ", expected 0x" << expected;
    first_ = text.str();
  }
  void expect_none(long at_least_compared) const {
    EXPECT_EQ(count_, 0) << first_;
    EXPECT_GE(compared_, at_least_compared);
  }

 private:
  long compared_ = 0;
  long count_ = 0;
  std::string first_;
};

// The code of a value that the target has, for any target.
class Encoder {
 public:
  explicit Encoder(const Format& f) : format_(f) {
    if (is_narrow(f)) table_.emplace(f);
  }
  std::uint64_t code_of(double value) const {
    if (table_) return table_->code_of(value);
    if (std::isnan(value)) {
      return format_.nan_code() | (std::signbit(value) ? format_.sign_mask() : 0);
    }
    if (format_ == fp32) return std::bit_cast<std::uint32_t>(static_cast<float>(value));  // exact
    return std::bit_cast<std::uint64_t>(value);
  }

 private:
  Format format_;
  std::optional<CodeTable> table_;
};

// The independent conversion of a double, NaN and infinities by the rules of convert.h's text.
class Oracle {
 public:
  explicit Oracle(const Format& to) : to_(to), mpfr_(to), encoder_(to), exact_(53) {}

  struct Outcome {
    std::uint64_t gradual, saturated;
    bool tiny, negative;
  };

  Outcome outcome(double input, Rounding rounding) {
    const bool negative = std::signbit(input);
    const double sign = negative ? -1 : 1;
    if (!std::isfinite(input)) {
      // Infinity, else NaN, else the largest finite number; a NaN likewise without infinity.
      const double largest = testing::textbook_magnitude(to_, to_.max_finite_code());
      double gradual = std::copysign(input, sign);
      if (to_.specials == Specials::nan_only) gradual = std::copysign(std::nan(""), sign);
      if (to_.specials == Specials::none) gradual = sign * largest;
      const double saturated = std::isnan(input) ? gradual : sign * largest;
      return {encoder_.code_of(gradual), encoder_.code_of(saturated), false, negative};
    }
    mpfr_set_d(exact_.get(), input, MPFR_RNDN);
    return outcome(exact_.get(), rounding);
  }

  Outcome outcome(mpfr_srcptr exact, Rounding rounding) {
    const MpfrFormat::Rounded r = mpfr_.round(exact, rounding);
    return {encoder_.code_of(r.gradual), encoder_.code_of(r.saturated), r.tiny,
            mpfr_signbit(exact) != 0};
  }

  std::uint64_t select(const Outcome& outcome, const ConversionPolicy& policy) const {
    if (policy.flush_to_zero && outcome.tiny) return zero(outcome.negative);
    return policy.saturate ? outcome.saturated : outcome.gradual;
  }

  std::uint64_t zero(bool negative) const {
    return negative ? std::uint64_t{1} << (to_.bits() - 1) : 0;
  }

 private:
  Format to_;
  MpfrFormat mpfr_;
  Encoder encoder_;
  MpfrNumber exact_;
};

class EveryFormat : public ::testing::TestWithParam<const Format*> {};
INSTANTIATE_TEST_SUITE_P(Format, EveryFormat, ::testing::ValuesIn(all_formats),
                         [](const auto& info) { return std::string(info.param->name); });

class NarrowFormat : public ::testing::TestWithParam<const Format*> {};
INSTANTIATE_TEST_SUITE_P(Format, NarrowFormat, ::testing::ValuesIn(narrow_formats()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST_P(NarrowFormat, DecodesEveryCodeAsTheTextbookDoesAndEncodesItBack) {
  const Format& f = *GetParam();
  const std::uint64_t half_of_codes = std::uint64_t{1} << (f.bits() - 1);
  const double least_normal = std::ldexp(1.0, f.emin);
  long wrong = 0;
  for (std::uint64_t code = 0; code < 2 * half_of_codes; ++code) {
    const std::uint64_t magnitude = code % half_of_codes;
    const double value = decode(f, code);
    if (std::signbit(value) != (code >= half_of_codes)) ++wrong;
    const NumberClass kind = classify(f, code);
    if (magnitude > f.max_finite_code()) {
      const bool infinite = f.specials == Specials::ieee && magnitude == f.max_finite_code() + 1;
      if (kind != (infinite ? NumberClass::infinite : NumberClass::nan)) ++wrong;
      if (infinite ? !std::isinf(value) : !std::isnan(value)) ++wrong;
      const std::uint64_t canonical = infinite ? magnitude : f.nan_code();
      if (encode(f, value, {}) != ((code - magnitude) | canonical)) ++wrong;
      if (is_finite(f, code)) ++wrong;
      continue;
    }
    const double expected = testing::textbook_magnitude(f, magnitude);
    if (std::fabs(value) != expected || !is_finite(f, code)) ++wrong;
    const NumberClass expected_kind = expected == 0             ? NumberClass::zero
                                      : expected < least_normal ? NumberClass::subnormal
                                                                : NumberClass::normal;
    if (kind != expected_kind) ++wrong;
    const ExactValue exact = decode_exact(f, code);
    if (exact.sticky || exact.negative != (code >= half_of_codes)) ++wrong;
    if (std::ldexp(static_cast<double>(exact.significand), static_cast<int>(exact.exponent)) !=
        expected) {
      ++wrong;
    }
    for (const Rounding rounding : all_roundings) {
      if (encode(f, value, {rounding, true, false, false}) != code) ++wrong;
      if (encode(f, exact, {rounding, false, false, false}) != code) ++wrong;
      if (convert(f, code, f, {rounding, false, false, false}) != code) ++wrong;
    }
    if (round_to(f, value) != value) ++wrong;
  }
  EXPECT_EQ(wrong, 0);
}

TEST(WideFormat, Fp32DecodesAsTheProcessorDoes) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 300000; ++i) {
    const auto code = static_cast<std::uint32_t>(random() >> (i % 3 == 0 ? 41 : 32));
    const float value = std::bit_cast<float>(code);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(decode(fp32, code)));
      continue;
    }
    ASSERT_EQ(std::bit_cast<std::uint64_t>(decode(fp32, code)),
              std::bit_cast<std::uint64_t>(static_cast<double>(value)));
    ASSERT_EQ(encode(fp32, decode(fp32, code), {}), code);
  }
}

TEST(WideFormat, Fp64CodesAreTheirOwn) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 300000; ++i) {
    const std::uint64_t code = random() >> (i % 4 == 0 ? 12 : 0);
    const double value = decode(fp64, code);
    ASSERT_EQ(std::bit_cast<std::uint64_t>(value), code);
    if (std::isfinite(value)) {
      const ExactValue exact = exact_value(value);
      ASSERT_EQ(encode(fp64, exact, {}), code);
    }
  }
}

// Every code of every format of at most 16 bits, to every format, under every policy.
TEST_P(EveryFormat, ReceivesEveryNarrowCodeAsMpfrRoundsIt) {
  const Format& to = *GetParam();
  Oracle oracle(to);
  Disagreements disagreements;
  for (const Format* from : narrow_formats()) {
    if (from->bits() > 16) continue;  // TF32 sources: the exhaustive suite
    for (std::uint64_t code = 0; code >> from->bits() == 0; ++code) {
      const double input = decode(*from, code);  // exact, tested above
      const bool subnormal = input != 0 && std::fabs(input) < std::ldexp(1.0, from->emin);
      for (const Rounding rounding : all_roundings) {
        const Oracle::Outcome outcome = oracle.outcome(input, rounding);
        for (int bits = 0; bits < 8; ++bits) {
          const ConversionPolicy policy{rounding, (bits & 1) != 0, (bits & 2) != 0,
                                        (bits & 4) != 0};
          const std::uint64_t expected = policy.denormals_are_zero && subnormal
                                             ? oracle.zero(std::signbit(input))
                                             : oracle.select(outcome, policy);
          disagreements.compare(convert(*from, code, to, policy), expected, to, policy, input);
        }
      }
    }
  }
  disagreements.expect_none(4000000);
}

// Around every tie and every value of the target: the doubles (floats) beside them.
std::vector<double> points_around(const Format& to, bool as_floats) {
  const CodeTable table(to);
  const std::vector<double>& values = table.magnitudes();
  std::vector<double> points;
  // Wide tables are thinned (TF32's more), but for both ends, where everything special happens.
  const std::size_t step = values.size() > 65536 ? 61 : values.size() > 4096 ? 5 : 1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % step != 0 && i >= 256 && i + 256 <= values.size()) continue;
    const double low = values[i];
    const double high = i + 1 < values.size() ? values[i + 1] : low + (low - values[i - 1]);
    for (const double exact : {low, low + (high - low) / 2, high}) {
      if (as_floats) {
        const auto x = static_cast<float>(exact);
        const float far = std::numeric_limits<float>::infinity();
        for (const float y : {x, std::nextafter(x, far), std::nextafter(x, -far)}) {
          points.push_back(y);
        }
      } else {
        const double far = std::numeric_limits<double>::infinity();
        for (const double y : {exact, std::nextafter(exact, far), std::nextafter(exact, -far)}) {
          points.push_back(y);
        }
      }
    }
  }
  const std::size_t positive = points.size();
  for (std::size_t i = 0; i < positive; ++i) points.push_back(-points[i]);
  return points;
}

TEST_P(NarrowFormat, ReceivesFp32AroundEveryTieAsMpfrRoundsIt) {
  const Format& to = *GetParam();
  Oracle oracle(to);
  Disagreements disagreements;
  std::vector<double> points = points_around(to, true);
  std::mt19937_64 random(3);
  for (int i = 0; i < 60000; ++i) {
    points.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  }
  for (const double input : points) {
    const std::uint64_t code =
        std::bit_cast<std::uint32_t>(static_cast<float>(input));  // exact: points are floats
    for (const Rounding rounding : all_roundings) {
      const Oracle::Outcome outcome = oracle.outcome(input, rounding);
      for (const bool flush : {false, true}) {
        const ConversionPolicy policy{rounding, flush, flush, false};
        disagreements.compare(convert(fp32, code, to, policy), oracle.select(outcome, policy), to,
                              policy, input);
      }
    }
  }
  disagreements.expect_none(480000);
}

// A random double whose exponent lies where the format rounds, flushes or overflows.
double random_double_near(std::mt19937_64& random, const Format& to) {
  const std::uint64_t bits = random();
  const int lowest = std::max(to.least_exponent() - 3, -1074);
  const int span = std::min(to.emax + 3, 1024) - lowest;
  const int exponent = lowest + static_cast<int>(random() % static_cast<std::uint64_t>(span));
  // Long runs of equal bits make ties and near ties.
  std::uint64_t fraction = bits & fp64.trailing_mask();
  const int shift = static_cast<int>(bits >> 58) % 53;
  if ((bits >> 52 & 3) == 0) fraction = fraction >> shift << shift;
  if ((bits >> 52 & 3) == 1) fraction |= (std::uint64_t{1} << shift) - 1;
  if ((bits >> 52 & 3) == 2) fraction = std::uint64_t{1} << shift | (fraction & 1);
  const double significand = 1 + std::ldexp(static_cast<double>(fraction), -52);
  return std::ldexp((bits >> 63) != 0 ? -significand : significand, exponent);
}

TEST_P(NarrowFormat, ReceivesFp64AroundEveryTieAsMpfrRoundsIt) {
  const Format& to = *GetParam();
  Oracle oracle(to);
  Disagreements disagreements;
  std::vector<double> points = points_around(to, false);
  std::mt19937_64 random(4);
  for (int i = 0; i < 60000; ++i) points.push_back(random_double_near(random, to));
  for (const double x : {0.0, -0.0, 0x1p-1074, -0x1p-1074, 0x1.fffffffffffffp1023, HUGE_VAL}) {
    points.push_back(x);
    points.push_back(-x);
  }
  points.push_back(std::nan(""));
  points.push_back(-std::nan(""));
  for (const double input : points) {
    for (const Rounding rounding : all_roundings) {
      const Oracle::Outcome outcome = oracle.outcome(input, rounding);
      for (const bool flush : {false, true}) {
        const ConversionPolicy policy{rounding, flush, flush, false};
        disagreements.compare(encode(to, input, policy), oracle.select(outcome, policy), to, policy,
                              input);
      }
    }
  }
  disagreements.expect_none(480000);
}

// encode(double) has a short path for the common case; convert from FP64 has none.
TEST_P(EveryFormat, ShortAndGeneralPathAgree) {
  const Format& to = *GetParam();
  Disagreements disagreements;
  std::mt19937_64 random(8);
  std::vector<double> points;
  for (int i = 0; i < 20000; ++i) points.push_back(random_double_near(random, to));
  for (const int exponent : {to.emin - 1, to.emin, to.emax - 1, to.emax, to.emax + 1}) {
    const double power = std::ldexp(1.0, exponent);
    for (const double x : {power, std::nextafter(power, 0), std::nextafter(power, HUGE_VAL)}) {
      points.push_back(x);
      points.push_back(-x);
    }
  }
  for (const double input : points) {
    for (const ConversionPolicy& policy : all_policies()) {
      disagreements.compare(encode(to, input, policy),
                            convert(fp64, std::bit_cast<std::uint64_t>(input), to, policy), to,
                            policy, input);
    }
  }
  disagreements.expect_none(640000);
}

// cvtsd2ss under every MXCSR: the processor's own rounding, FTZ (after rounding) and DAZ.
std::uint32_t processor_fp32(double value, const ConversionPolicy& policy) {
  unsigned mode = 0;
  switch (policy.rounding) {
    case Rounding::nearest_even:
      mode = _MM_ROUND_NEAREST;
      break;
    case Rounding::toward_zero:
      mode = _MM_ROUND_TOWARD_ZERO;
      break;
    case Rounding::upward:
      mode = _MM_ROUND_UP;
      break;
    case Rounding::downward:
      mode = _MM_ROUND_DOWN;
      break;
  }
  constexpr unsigned daz = 0x0040;
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(_MM_MASK_MASK | mode | (policy.flush_to_zero ? _MM_FLUSH_ZERO_ON : 0) |
             (policy.denormals_are_zero ? daz : 0));
  float result = 0;
  asm volatile("cvtsd2ss %1, %0" : "=x"(result) : "x"(value));
  _mm_setcsr(saved);
  return std::bit_cast<std::uint32_t>(result);
}

TEST(Fp64ToFp32, AgreesWithTheProcessorInEveryMode) {
  Disagreements disagreements;
  std::mt19937_64 random(5);
  std::vector<double> points;
  for (int i = 0; i < 200000; ++i) points.push_back(random_double_near(random, fp32));
  for (std::uint32_t code :
       {0u, 1u, 2u, 0x7fffffu, 0x800000u, 0x800001u, 0x3f800000u, 0x7f7ffffeu, 0x7f7fffffu}) {
    const double x = std::bit_cast<float>(code);
    const double next = code == 0x7f7fffffu ? 0x1p128 : std::bit_cast<float>(code + 1);
    for (const double y : {x, x + (next - x) / 2, x + (next - x) / 4, x + (next - x) * 0.75}) {
      for (const double z : {y, std::nextafter(y, 1e300), std::nextafter(y, -1e300)}) {
        points.push_back(z);
        points.push_back(-z);
      }
    }
  }
  points.push_back(HUGE_VAL);
  points.push_back(-HUGE_VAL);
  for (const double input : points) {
    for (const ConversionPolicy& policy : all_policies()) {
      if (policy.saturate) continue;
      disagreements.compare(encode(fp32, input, policy), processor_fp32(input, policy), fp32,
                            policy, input);
    }
  }
  disagreements.expect_none(3000000);
}

// Numbers with far more than 64 bits, close to ties: only the sticky bit tells them apart.
TEST_P(EveryFormat, RoundsLongMpfrNumbersOnce) {
  const Format& to = *GetParam();
  Oracle oracle(to);
  Disagreements disagreements;
  std::mt19937_64 random(6);
  MpfrNumber exact(400);
  MpfrNumber small(64);
  for (int i = 0; i < 20000; ++i) {
    // A value of the format, plus half a unit or not, plus or minus something tiny or nothing.
    const int p = to.precision;
    const int exponent =
        to.least_exponent() - 2 +
        static_cast<int>(random() % static_cast<std::uint64_t>(to.emax - to.least_exponent() + 4));
    const int quantum = std::max(exponent - p + 1, to.least_exponent());
    const std::uint64_t units =
        2 * (random() >>
             (64 - std::min(p, exponent - quantum + 1 > 0 ? exponent - quantum + 1 : 1))) +
        (random() & 1);
    mpfr_set_ui_2exp(exact.get(), units, quantum - 1, MPFR_RNDN);
    const int distance = 1 + static_cast<int>(random() % 250);
    mpfr_set_ui_2exp(small.get(), random() % 3, quantum - 1 - distance, MPFR_RNDN);
    const bool below = (random() & 1) != 0 && mpfr_cmp(exact.get(), small.get()) > 0;
    const int inexact = below ? mpfr_sub(exact.get(), exact.get(), small.get(), MPFR_RNDN)
                              : mpfr_add(exact.get(), exact.get(), small.get(), MPFR_RNDN);
    ASSERT_EQ(inexact, 0);
    if ((random() & 1) != 0) mpfr_neg(exact.get(), exact.get(), MPFR_RNDN);
    for (const Rounding rounding : all_roundings) {
      const Oracle::Outcome outcome = oracle.outcome(exact.get(), rounding);
      for (int bits = 0; bits < 4; ++bits) {
        const ConversionPolicy policy{rounding, (bits & 1) != 0, (bits & 2) != 0, false};
        disagreements.compare(encode(to, exact.get(), policy), oracle.select(outcome, policy), to,
                              policy, mpfr_get_d(exact.get(), MPFR_RNDN));
      }
    }
  }
  disagreements.expect_none(320000);
}

TEST(ExactValueOfMpfr, KeepsTheLeadingBitsAndAStickyBit) {
  MpfrNumber x(200);
  mpfr_set_ui(x.get(), 1, MPFR_RNDN);
  ExactValue exact = exact_value(x.get());
  EXPECT_FALSE(exact.sticky);
  EXPECT_EQ(std::ldexp(static_cast<double>(exact.significand), static_cast<int>(exact.exponent)),
            1.0);
  MpfrNumber tiny(64);
  mpfr_set_ui_2exp(tiny.get(), 1, -190, MPFR_RNDN);
  ASSERT_EQ(mpfr_add(x.get(), x.get(), tiny.get(), MPFR_RNDN), 0);
  exact = exact_value(x.get());
  EXPECT_TRUE(exact.sticky);
  EXPECT_EQ(exact.significand, std::uint64_t{1} << 63);
  EXPECT_EQ(exact.exponent, -63);
  mpfr_set_zero(x.get(), -1);
  exact = exact_value(x.get());
  EXPECT_TRUE(exact.negative);
  EXPECT_EQ(exact.significand, 0u);
  EXPECT_EQ(encode(fp16, x.get(), {}), 0x8000u);
  mpfr_set_inf(x.get(), -1);
  EXPECT_EQ(encode(fp16, x.get(), {}), 0xfc00u);
  mpfr_set_nan(x.get());
  EXPECT_EQ(encode(fp16, x.get(), {}) & 0x7fffu, 0x7e00u);
}

// A sticky value of 63 bits (the smallest width allowed) next to a tie, and far below everything.
TEST(Sticky, DecidesTiesAtTheSmallestWidthAllowed) {
  const ExactValue tie{false, (std::uint64_t{1} << 62) + (std::uint64_t{1} << 51), -62, false};
  ExactValue above = tie;
  above.sticky = true;
  EXPECT_EQ(encode(fp16, tie, {}), 0x3c00u);
  EXPECT_EQ(encode(fp16, above, {}), 0x3c01u);
  ExactValue below = tie;
  below.significand -= 1;
  below.sticky = true;
  EXPECT_EQ(encode(fp16, below, {}), 0x3c00u);
  const ExactValue speck{true, std::uint64_t{1} << 63, -4000000000000000000, true};
  EXPECT_EQ(encode(fp64, speck, {}), fp64.sign_mask());
  EXPECT_EQ(encode(fp64, speck, {Rounding::downward}), fp64.sign_mask() | 1);
  EXPECT_EQ(encode(fp64, speck, {Rounding::downward, false, true}), fp64.sign_mask());
  const ExactValue giant{false, std::uint64_t{1} << 63, 4000000000000000000, true};
  EXPECT_EQ(encode(fp64, giant, {}), fp64.infinity_code());
  EXPECT_EQ(encode(fp64, giant, {Rounding::toward_zero}), fp64.max_finite_code());
}

TEST(Saturation, FollowsTheFormats) {
  // OCP OFP8: E4M3's largest finite number is 448; 464 ties to it, anything above overflows.
  EXPECT_EQ(encode(e4m3fn, 464.0, {}), 0x7eu);
  EXPECT_EQ(encode(e4m3fn, std::nextafter(464.0, 1e9), {}), 0x7fu);
  EXPECT_EQ(encode(e4m3fn, -465.0, {}), 0xffu);
  EXPECT_EQ(encode(e4m3fn, -465.0, {.saturate = true}), 0xfeu);
  EXPECT_EQ(encode(e4m3fn, 1e30, {Rounding::toward_zero}), 0x7eu);
  EXPECT_EQ(encode(e4m3fn, 449.0, {Rounding::upward}), 0x7fu);
  EXPECT_EQ(encode(e4m3fn, HUGE_VAL, {}), 0x7fu);
  EXPECT_EQ(encode(e4m3fn, HUGE_VAL, {Rounding::toward_zero}), 0x7fu);
  EXPECT_EQ(encode(e4m3fn, HUGE_VAL, {.saturate = true}), 0x7eu);
  EXPECT_EQ(encode(e4m3fn, std::nan(""), {.saturate = true}), 0x7fu);
  EXPECT_EQ(encode(e5m2, 61440.0, {}), 0x7cu);
  EXPECT_EQ(encode(e5m2, std::nextafter(61440.0, 0), {}), 0x7bu);
  EXPECT_EQ(encode(e5m2, 1e9, {.saturate = true}), 0x7bu);
  EXPECT_EQ(encode(e5m2, HUGE_VAL, {Rounding::toward_zero}), 0x7cu);  // an infinity is exact
  EXPECT_EQ(encode(e2m1, 1e9, {}), 0x7u);
  EXPECT_EQ(encode(e2m1, -HUGE_VAL, {}), 0xfu);
  EXPECT_EQ(encode(e2m1, std::nan(""), {}), 0x7u);
  EXPECT_EQ(encode(fp16, 65519.999, {}), 0x7bffu);
  EXPECT_EQ(encode(fp16, 65520.0, {}), 0x7c00u);
  EXPECT_EQ(encode(fp16, -65520.0, {Rounding::upward}), 0xfbffu);
  EXPECT_EQ(encode(fp16, -65520.0, {Rounding::downward}), 0xfc00u);
}

TEST(FlushToZero, IsDecidedAfterRoundingWithUnboundedExponent) {
  const ConversionPolicy flush{.flush_to_zero = true};
  const double least_normal = 0x1p-14;
  // The last number below 2^-14 on the grid of 11 bits, and the tie above it.
  const double last_tiny = least_normal * (1 - 0x1p-11);
  const double tie = least_normal * (1 - 0x1p-12);
  EXPECT_EQ(encode(fp16, last_tiny, flush), 0u);
  EXPECT_EQ(encode(fp16, -last_tiny, flush), 0x8000u);
  EXPECT_EQ(encode(fp16, last_tiny, {}), 0x0400u);  // gradual: a tie on the coarser grid
  EXPECT_EQ(encode(fp16, tie, flush), 0x0400u);
  EXPECT_EQ(encode(fp16, std::nextafter(tie, 0), flush), 0u);
  EXPECT_EQ(encode(fp16, last_tiny, {Rounding::upward, false, true}), 0u);
  EXPECT_EQ(encode(fp16, std::nextafter(last_tiny, 1), {Rounding::upward, false, true}), 0x0400u);
}

// Reports of real libraries: N11, N18 and N20 of the project's case collection.
TEST(PublicReports, DoubleRoundingThroughFloat) {
  const double trap = 1 + 0x1p-11 + 0x1p-22;
  EXPECT_EQ(encode(fp16, trap, {}), 0x3c01u);
  EXPECT_EQ(convert(fp32, 0x3f801002, fp16, {}), 0x3c01u);  // the same, a float
  const double through_float_trap = 1 + 0x1p-11 + 0x1p-30;  // a tie once it is a float
  EXPECT_EQ(encode(fp16, through_float_trap, {}), 0x3c01u);
  const double bfloat = 0.2691408770292272;
  EXPECT_EQ(decode(bf16, encode(bf16, bfloat, {})), 0.26953125);
  EXPECT_EQ(decode(bf16, encode(bf16, bfloat, {Rounding::toward_zero})), 0.267578125);
  EXPECT_EQ(convert(fp32, 0x7f800001, bf16, {}), 0x7fc0u);  // payload in the low bits stays NaN
  EXPECT_EQ(convert(fp32, 0xff800001, bf16, {}), 0xffc0u);
}

TEST(PublicReports, MidpointOfTheSmallestSubnormals) {
  // The midpoint of 2^-1074 and 2^-1073, less a unit in its 53rd (and 200th) place.
  for (const int place : {53, 200}) {
    MpfrNumber x(300);
    MpfrNumber less(64);
    mpfr_set_ui_2exp(x.get(), 3, -1075, MPFR_RNDN);
    EXPECT_EQ(encode(fp64, x.get(), {}), 2u);  // the tie goes to even
    mpfr_set_ui_2exp(less.get(), 1, -1074 - place, MPFR_RNDN);
    ASSERT_EQ(mpfr_sub(x.get(), x.get(), less.get(), MPFR_RNDN), 0);
    EXPECT_EQ(encode(fp64, x.get(), {}), 1u);
    EXPECT_EQ(encode(fp64, x.get(), {Rounding::upward}), 2u);
  }
  for (const Format* f : all_formats) {
    MpfrNumber half(64);
    mpfr_set_ui_2exp(half.get(), 1, f->least_exponent() - 1, MPFR_RNDN);
    EXPECT_EQ(encode(*f, half.get(), {}), 0u) << f->name;
    mpfr_nextabove(half.get());
    EXPECT_EQ(encode(*f, half.get(), {}), 1u) << f->name;
  }
}

// The mistake these tests exist to catch does differ on their inputs: rounding to float first.
TEST(DoubleRounding, ThroughFloatIsWrongOnTheTraps) {
  const auto through_float = [](const Format& to, double value) {
    return convert(fp32, encode(fp32, value, {}), to, {});
  };
  EXPECT_NE(through_float(fp16, 1 + 0x1p-11 + 0x1p-30), encode(fp16, 1 + 0x1p-11 + 0x1p-30, {}));
  EXPECT_NE(through_float(fp16, 1 + 0x3p-11 - 0x1p-30), encode(fp16, 1 + 0x3p-11 - 0x1p-30, {}));
  EXPECT_NE(through_float(bf16, 1 + 0x1p-8 + 0x1p-40), encode(bf16, 1 + 0x1p-8 + 0x1p-40, {}));
  EXPECT_NE(through_float(e4m3fn, 464 + 0x1p-30), encode(e4m3fn, 464 + 0x1p-30, {}));
  EXPECT_NE(through_float(fp16, 0x1.0000000001p-25), encode(fp16, 0x1.0000000001p-25, {}));
  long differing = 0;
  for (const double x : points_around(fp16, false)) {
    if (through_float(fp16, x) != encode(fp16, x, {})) ++differing;
  }
  EXPECT_GT(differing, 10000);
}

TEST(Environment, TheProcessorsRoundingModeChangesNothing) {
  std::mt19937_64 random(7);
  constexpr unsigned daz = 0x0040;
  const unsigned saved = _mm_getcsr();
  long wrong = 0;
  for (int i = 0; i < 20000; ++i) {
    for (const Format* f : all_formats) {
      const double x = random_double_near(random, *f);
      const ConversionPolicy policy{all_roundings[i % 4], false, false, false};
      const std::uint64_t expected = encode(*f, x, policy);
      const auto expected_value = std::bit_cast<std::uint64_t>(decode(*f, expected));
      _mm_setcsr(_MM_MASK_MASK | _MM_ROUND_UP | _MM_FLUSH_ZERO_ON | daz);
      const std::uint64_t code = encode(*f, x, policy);
      const auto value = std::bit_cast<std::uint64_t>(decode(*f, code));
      _mm_setcsr(saved);
      if (code != expected || value != expected_value) ++wrong;
    }
  }
  EXPECT_EQ(wrong, 0);
}

// The short way of round_to against the code's way, which the tests above compare with MPFR: around
// every representable number and midpoint of the narrow formats, their ends, and at random.
TEST(RoundTo, EqualsEncodingAndDecoding) {
  std::mt19937_64 random(20);
  std::int64_t compared = 0;
  const auto compare = [&](const Format& format, double value) {
    const double direct = round_to(format, value);
    const double by_code = decode(format, encode(format, value, {}));
    ++compared;
    if (std::bit_cast<std::uint64_t>(direct) != std::bit_cast<std::uint64_t>(by_code) &&
        !(std::isnan(direct) && std::isnan(by_code))) {
      ADD_FAILURE() << format.name << " " << value << ": " << direct << " and " << by_code;
    }
  };
  for (const Format* format : all_formats) {
    if (format->bits() <= 16) {
      const std::uint64_t codes = std::uint64_t{1} << format->bits();
      for (std::uint64_t code = 0; code < codes; code += format->bits() == 16 ? 7 : 1) {
        if (!is_finite(*format, code)) continue;
        const double value = decode(*format, code);
        const double half_ulp =
            std::ldexp(1.0, std::max(value == 0 ? format->emin : std::ilogb(value), format->emin) -
                                format->precision);
        for (const double near : {value, value + half_ulp, value - half_ulp}) {
          compare(*format, near);
          compare(*format, std::nextafter(near, INFINITY));
          compare(*format, std::nextafter(near, -INFINITY));
        }
      }
    }
    for (int i = 0; i < 20000; ++i) compare(*format, std::bit_cast<double>(random()));
    for (int i = 0; i < 20000; ++i) {
      compare(*format, std::ldexp(static_cast<double>(random() >> 11),
                                  static_cast<int>(random() % 60) - 85));
    }
  }
  EXPECT_GT(compared, 100000);
}

}  // namespace
}  // namespace headroom
