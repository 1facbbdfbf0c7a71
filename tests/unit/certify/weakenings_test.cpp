// Heads at the edge of what may be certified. Each family is built so that a certifier which leaves
// out one step of the argument would certify a head whose simulated execution fails (binary128 and
// exact sums, judge.h); tests/mutation seeds those omissions and expects these tests to fail. Every
// family also has a head that is certified, so that refusing everything fails too.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/certify/judge.h"

namespace headroom {
namespace {

using cases::make_head;

/// FP32 without any flush, plus what `more` says.
KernelModel plain_kernel(const std::string& more) {
  return parse_kernel("name = \"plain\"\nmachine = \"ieee-fp32\"\n" + more, "plain.toml");
}

/// 120 keys, a part of which lies `depth` bits below their mean score and the rest such that the
/// part's share of the mass is as large as any row's can be (bounds/lost_mass.cpp: r = 1 / (D ln 2)
/// lost keys a kept one). One channel carries the scores; the other only lengthens q.
Head two_levels(double depth, double length) {
  constexpr std::int64_t keys = 120;
  const double r = 1 / (depth * std::log(2.0));
  const auto low_keys = static_cast<std::int64_t>(std::lround(keys * r / (1 + r)));
  const double ratio = static_cast<double>(low_keys) / static_cast<double>(keys - low_keys);
  const auto single = [](double x) { return static_cast<double>(static_cast<float>(x)); };
  const double low = single(-depth), high = single(depth * ratio);
  return make_head(
      "two levels, depth " + std::to_string(depth), 1, keys, 2, 1,
      [=](auto, std::int64_t c) { return c == 0 ? 1.0 : single(length); },
      [=](std::int64_t j, std::int64_t c) {
        return c != 0 ? 0.0 : j * low_keys / keys != (j + 1) * low_keys / keys ? low : high;
      },
      [](std::int64_t j, auto) { return j % 2 == 0 ? 1.0 : -0.5; }, fp32);
}

/// The same, q so long that the low keys' exponents end just below `threshold`.
Head two_levels_below(double depth, double threshold, const KernelModel& kernel, Policy policy) {
  // mu + C is proportional to |q| but for roundings: three steps of the secant settle it
  double length = 64;
  for (int i = 0; i < 3; ++i) {
    const Head head = two_levels(depth, length);
    const Prepared prepared(head, kernel, policy, 0x1p-10);
    const double bound = prepared.stabilizer->mu(0).lo() + prepared.stabilizer->cap();
    const double wanted = -depth - threshold + 0x1p-9 + prepared.stabilizer->cap();
    const double norm = std::sqrt(1 + length * length) * wanted / bound;
    length = std::sqrt(norm * norm - 1);
  }
  return two_levels(depth, length);
}

struct FlushCase {
  const char* name;
  const char* kernel;
  double threshold;  ///< exponents below it are lost
};
const FlushCase flush_cases[] = {
    {"exp2 flushes", "[exp2]\nflush_to_zero = true\n", -126},
    {"P flushes", "[p]\nflush_to_zero = true\n", -126},
    {"P in FP16", "[p]\nformat = \"fp16\"\n", -25},
    {"P in FP16 flushes", "[p]\nformat = \"fp16\"\nflush_to_zero = true\n", -14},
    {"P in BF16", "[p]\nformat = \"bf16\"\n", -134},
    {"gradual", "", -150},
};

// D(2^-10) = 6.41: a shallower second level is lost to more than eps, a deeper one to less.
TEST(Weakenings, LostMassAtTheExtremalRow) {
  for (const FlushCase& flush : flush_cases) {
    SCOPED_TRACE(flush.name);
    const KernelModel kernel = plain_kernel(flush.kernel);
    for (const Policy policy : {Policy::clis, Policy::clis_alg1}) {
      for (const double depth : {1.5, 5.0, 6.2, 6.39}) {
        const Head head = two_levels_below(depth, flush.threshold, kernel, policy);
        Truth truth;
        const HeadReport report = judge(head, kernel, policy, &truth);
        ASSERT_GT(truth.lost, 0x1p-10) << depth;
        EXPECT_NE(report.verdict, Verdict::certified) << depth;
        // the sound gate must refuse too: for `clis` it is the gate, else a claim of its own
        const Claim* conservative = find_claim(report, "gate.conservative");
        if (policy == Policy::clis) {
          EXPECT_GT(report.gate_value.hi(), report.gate_limit) << depth;
        } else if (conservative != nullptr) {
          EXPECT_NE(conservative->outcome(), ClaimOutcome::holds) << depth;
        }
      }
      // half an ulp below 2^L still rounds to it: gradual underflow loses from L - 1 on, while the
      // certifier counts from L
      const double deeper = 6.42 + (flush.threshold == -25 || flush.threshold < -126 ? 1.2 : 0.0);
      const Head head = two_levels_below(deeper, flush.threshold, kernel, policy);
      Truth truth;
      const HeadReport report = judge(head, kernel, policy, &truth);
      EXPECT_LE(truth.lost, 0x1p-10);
      // with gradual underflow throughout it is the products of P and V that set the limit
      if (policy == Policy::clis && flush.threshold != -150) {
        EXPECT_EQ(report.verdict, Verdict::certified) << report.binding << report.gate_note;
      }
    }
  }
}

// Weights below 2^-126 that an accumulator flushes one by one, though their sum would be normal.
TEST(Weakenings, DenominatorThatFlushes) {
  for (const bool flush : {false, true}) {
    const KernelModel kernel = plain_kernel(
        "[denominator]\nflush_to_zero = " + std::string(flush ? "true" : "false") + "\n");
    for (const Policy policy : {Policy::clis, Policy::clis_alg1}) {
      const Head head = two_levels_below(0.5, -130, kernel, policy);
      CertifyOptions options;
      options.policy = policy;
      options.evaluate_rows = 0;
      Truth truth;
      const HeadReport report = judge(head, kernel, options, &truth);
      EXPECT_EQ(truth.least_l == 0, flush);  // exactly 2^-122.6
      if (flush) {
        EXPECT_NE(report.verdict, Verdict::certified);
        if (policy == Policy::clis) {
          EXPECT_GT(report.gate_value.hi(), report.gate_limit);
        }
      } else if (policy == Policy::clis) {
        EXPECT_EQ(report.verdict, Verdict::certified) << report.gate_note;
      }
    }
  }
}

// A score that BF16 sums one by one: -a and 32 terms below half an ulp of a. The computed score is
// lower than the exact one by their sum, 7.7 bits, for every key.
TEST(Weakenings, ScoreErrorAtTheThreshold) {
  const KernelModel kernel = plain_kernel(
      "[score]\naccumulator = \"bf16\"\norder = \"sequential\"\nrounded_products = false\n"
      "[exp2]\nflush_to_zero = true\n");
  constexpr double a = 80, t = 0x1.c2p-5;  // a t^2 = 0.2415
  int certified = 0, all_lost_above_guard = 0;
  for (double length = 0; length < 3; length += 0x1p-5) {
    const Head head = make_head(
        "absorbed, " + std::to_string(length), 1, 16, 34, 1,
        [=](auto, std::int64_t c) { return c == 0    ? 1.0
                                           : c == 33 ? length
                                                     : t; },
        [=](auto, std::int64_t c) { return c == 0    ? -a
                                           : c == 33 ? 0.0
                                                     : a * t; },
        [](std::int64_t j, auto) { return j % 2 == 0 ? 1.0 : -1.0; }, fp32);
    Truth truth;
    const HeadReport report = judge(head, kernel, Policy::clis, &truth);
    certified += report.verdict == Verdict::certified ? 1 : 0;
    // exact scores lie more than the guard bits above the threshold, and yet all is lost
    const Prepared prepared(head, kernel, Policy::clis, 0x1p-10);
    const double z = -a + 32 * a * t * t;
    if (truth.lost == 1 && z - prepared.stabilizer->mu(0).hi() + 126 > 6.42) {
      ++all_lost_above_guard;
      EXPECT_GT(report.gate_value.hi(), report.gate_limit);
    }
  }
  EXPECT_GT(certified, 0);
  EXPECT_GT(all_lost_above_guard, 0);
}

// The same upward: q and k parallel, each term a little more than half an ulp of a, so that the
// computed score exceeds |q| |k| by 7.7 bits. `clis` promises that no stored exponent exceeds C.
TEST(Weakenings, ScoreErrorAboveTheNormProduct) {
  const KernelModel kernel = plain_kernel(
      "[score]\naccumulator = \"bf16\"\norder = \"sequential\"\nrounded_products = false\n");
  constexpr double t = 0x1.d3p-5;  // 80 t^2 = 0.2602
  int above = 0;
  for (const double a : {80.0, 64.0, 127.0}) {
    for (const double value : {1.0, 0x1p60, 0x1.fep100, 0x1.fep120}) {
      const Head head = make_head(
          "raised", 1, 255, 33, 1, [=](auto, std::int64_t c) { return c == 0 ? 1.0 : t; },
          [=](auto, std::int64_t c) { return c == 0 ? a : a * t; },
          [=](auto, auto) { return value; }, fp32);
      for (const Policy policy : {Policy::clis, Policy::clis_alg1, Policy::fixed_m}) {
        Truth truth;
        const HeadReport report = judge(head, kernel, policy, &truth);
        if (policy == Policy::clis) {
          EXPECT_LE(truth.largest_exponent, report.cap);
        } else {
          above += truth.largest_exponent > report.cap + 1 ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(above, 0);  // published stabilizers do not count the score's error
}

// |V| of 3 is no power of two: G = 2. N = 1945, so that 3 N 2^116 = 2^128.5.
TEST(Weakenings, ValuesThatAreNoPowersOfTwo) {
  const KernelModel kernel = plain_kernel("");
  for (const double value : {3.0, 1.5, 5.0, 0x1.8p20, 0.75, 1.0, 2.0, 4.0}) {
    for (const std::int64_t keys : {1024, 1945, 2047}) {
      const Head head = cases::all_equal("equal " + std::to_string(value), keys, value);
      Truth truth;
      const HeadReport clis =
          judge(head, plain_kernel("operand = \"bf16\"\n"), Policy::clis, &truth);
      EXPECT_EQ(clis.verdict, Verdict::certified) << clis.binding;
      // C is the largest: one more leaves the accumulators' range (exactly, FP32)
      EXPECT_GE(clis.cap + std::log2(static_cast<double>(keys)) +
                    std::ceil(std::log2(std::fmax(1, value))) + 1,
                128);
    }
  }
  // V must count even where nothing is evaluated exactly
  CertifyOptions bounds_only;
  bounds_only.policy = Policy::fixed_m;
  bounds_only.evaluate_rows = 0;
  const HeadReport report = judge(cases::all_equal("huge", 2047, 0x1p36),
                                  plain_kernel("operand = \"bf16\"\n"), bounds_only);
  EXPECT_NE(report.verdict, Verdict::certified);  // 2^88 2^36 2047 = 2^135
  const HeadReport fits = judge(cases::all_equal("large", 2047, 0x1p28),
                                plain_kernel("operand = \"bf16\"\n"), bounds_only);
  EXPECT_EQ(fits.verdict, Verdict::certified) << fits.binding;
}

// Lines 5 and 7 of the published algorithm: C = 127 - ceil(log2 N) - ceil(log2 max(1, max|V|)).
TEST(Weakenings, PublishedCap) {
  const KernelModel kernel = plain_kernel("operand = \"bf16\"\n");
  for (const std::int64_t keys : {1, 2, 3, 255, 256, 257, 4096, 65536}) {
    for (const double value : {0x1p-10, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 256.0}) {
      if (keys > 1000 && value != 0x1p-10 && value != 3) continue;
      const Head head = cases::all_equal("equal", keys, value);
      const HeadReport report = judge(head, kernel, Policy::clis_alg1);
      // all scores equal the bound, so l is N 2^C: it has to be a finite number
      const double l = std::ldexp(static_cast<double>(keys), static_cast<int>(report.cap));
      EXPECT_LE(l, fp32.max_finite()) << keys << " " << value;
      EXPECT_LE(l * std::fmax(1, value), fp32.max_finite()) << keys << " " << value;
      int a = 0;
      while (std::ldexp(1.0, a) < static_cast<double>(keys)) ++a;
      int g = 0;
      while (std::ldexp(1.0, g) < value) ++g;
      EXPECT_EQ(report.cap, 127 - a - g) << keys << " " << value;
      EXPECT_EQ(report.verdict, Verdict::certified) << keys << " " << value << report.binding;
    }
  }
}

// 65,535 keys and one of padding that is added: 2^16 terms of 2^112 are 2^128.
TEST(Weakenings, PaddingThatIsAdded) {
  for (const bool padded : {false, true}) {
    const KernelModel kernel =
        plain_kernel("operand = \"bf16\"\n[tiles]\nkeys = 128\npadding = \"" +
                     std::string(padded ? "zero-keys" : "sliced") + "\"\n");
    const Head head = make_head(
        "padded", 1, 65535, 1, 1, [](auto, auto) { return 0.0; }, [](auto, auto) { return 0.0; },
        [](auto, auto) { return 1.0; });
    const HeadReport report = judge(head, kernel, Policy::clis);
    EXPECT_EQ(report.verdict, Verdict::certified) << report.binding;
    EXPECT_EQ(report.cap, padded ? 111 : 112);
  }
  // zero keys beside visible ones far below them hold all of l
  const KernelModel kernel =
      plain_kernel("operand = \"bf16\"\n[tiles]\nkeys = 128\npadding = \"zero-keys\"\n");
  const Head head = make_head(
      "padding dominates", 1, 100, 1, 1, [](auto, auto) { return 1.0; },
      [](auto, auto) { return -40.0; }, [](auto, auto) { return 1.0; });
  for (const Policy policy : {Policy::clis, Policy::clis_alg1, Policy::fixed_m}) {
    EXPECT_NE(judge(head, kernel, policy).verdict, Verdict::certified);
  }
}

// Keys far on one side of the origin: their mean is not 0, with or without a rounded centre.
TEST(Weakenings, MeanIsNotZero) {
  int certified = 0, failed = 0;
  for (const char* centring : {"none", "mean", "virtual"}) {
    const KernelModel kernel = plain_kernel(
        "operand = \"bf16\"\n[exp2]\nflush_to_zero = true\n"
        "[centring]\nkeys = \"" +
        std::string(centring) +
        "\"\nmean = \"bf16\"\n"
        "difference = \"bf16\"\n");
    for (const double q : {-1.0, -4.0, -32.0, -100.0, -128.0, -200.0}) {
      // 257 in BF16 is 256: both centred keys keep (1, 1) of their mean at least
      const Head head = make_head(
          "one-sided", 1, 64, 2, 1, [=](auto, auto) { return q / 2; },
          [](std::int64_t j, std::int64_t c) { return (j + c) % 2 == 0 ? 256.0 : 258.0; },
          [](std::int64_t j, auto) { return j % 3 == 0 ? 1.0 : -1.0; });
      Truth truth;
      const HeadReport report = judge(head, kernel, Policy::clis, &truth);
      certified += report.verdict == Verdict::certified ? 1 : 0;
      failed += truth.lost > 0x1p-10 ? 1 : 0;
    }
  }
  EXPECT_GT(certified, 0);
  EXPECT_GT(failed, 0);
}

// A causal row sees its own prefix: the first rows' keys lie opposite to the later ones.
TEST(Weakenings, CausalRowsHaveTheirOwnMean) {
  const KernelModel kernel = plain_kernel("operand = \"bf16\"\n[exp2]\nflush_to_zero = true\n");
  for (const double reach : {8.0, 120.0, 130.0, 160.0}) {
    Head head = make_head(
        "causal", 64, 64, 1, 1, [](auto, auto) { return 1.0; },
        [=](std::int64_t j, auto) { return j == 0 ? -reach : reach / 16; },
        [](std::int64_t j, auto) { return j % 2 == 0 ? 1.0 : -1.0; });
    head.visibility.kind = MaskKind::causal;
    Truth truth;
    const HeadReport report = judge(head, kernel, Policy::clis, &truth);
    if (reach == 8) {
      EXPECT_EQ(report.verdict, Verdict::certified) << report.binding;
    }
    if (reach >= 130) {
      EXPECT_EQ(truth.lost, 1);  // row 0 loses its only key
      EXPECT_GT(report.gate_value.hi(), report.gate_limit);
    }
  }
}

// Max |V| = 2^120 makes C negative; a BF16 mu rounded to nearest then lies up to a quarter below
// U - C, and O = 255 2^(C + 3 + 120) has no quarter of a bit to spare.
TEST(Weakenings, StoredStabilizerRoundedDown) {
  int certified = 0, below = 0;
  for (const bool round_up : {false, true}) {
    const KernelModel kernel =
        plain_kernel("operand = \"bf16\"\n[stabilizer]\nstore = \"bf16\"\nround_up = " +
                     std::string(round_up ? "true" : "false") + "\n");
    for (double q = 8; q < 11; q += 0x1p-3) {
      const Head head = make_head(
          "negative C, q = " + std::to_string(q), 1, 255, 1, 1, [=](auto, auto) { return q; },
          [](auto, auto) { return 9.875; }, [](auto, auto) { return 0x1p123; });
      Truth truth;
      const HeadReport report = judge(head, kernel, Policy::clis, &truth);
      EXPECT_LT(report.cap, 0);
      certified += report.verdict == Verdict::certified ? 1 : 0;
      below += truth.largest_exponent > report.cap ? 1 : 0;
      if (round_up) {
        EXPECT_LE(truth.largest_exponent, report.cap);
      }
    }
  }
  EXPECT_GT(certified, 0);
  EXPECT_GT(below, 0);
}

// FP8 P saturates at 448 while the denominator keeps 2^88.
TEST(Weakenings, SaturatedWeights) {
  const KernelModel kernel =
      plain_kernel("operand = \"bf16\"\n[p]\nformat = \"e4m3fn\"\nsaturate = true\n");
  const Head head = cases::all_equal("saturated", 64, 1);
  Truth truth;
  const HeadReport fixed = judge(head, kernel, Policy::fixed_m, &truth);
  EXPECT_EQ(truth.lost, 1);
  EXPECT_EQ(fixed.verdict, Verdict::refuted);
  // 448 of 2^88: the output is about 0 where it should be 1, and no bound is given
  EXPECT_GT(truth.output_error, 0.99);
  EXPECT_EQ(find_claim(fixed, "output.error")->value.hi(), INFINITY);
  EXPECT_EQ(find_claim(fixed, "lse.error")->value.hi(), INFINITY);
  const HeadReport clis = judge(head, kernel, Policy::clis, &truth);
  EXPECT_EQ(clis.verdict, Verdict::certified) << clis.binding;
  EXPECT_LE(std::exp2(clis.cap), 448);
  EXPECT_GT(std::exp2(clis.cap + 1), 448);
}

// l = 2^127 has a reciprocal of 2^-127, which flushes.
TEST(Weakenings, FlushedReciprocal) {
  for (const bool exact : {true, false}) {
    const KernelModel kernel = plain_kernel(
        "operand = \"bf16\"\n[normalise]\ndivision = \"reciprocal\"\n"
        "reciprocal_flush_to_zero = true\nreciprocal_exact_at_powers_of_two = " +
        std::string(exact ? "true" : "false") + "\n");
    for (const std::int64_t keys : {63, 64, 65, 4096}) {
      const Head head = cases::all_equal("equal", keys, 0.75);
      const HeadReport clis = judge(head, kernel, Policy::clis);
      EXPECT_EQ(clis.verdict, Verdict::certified) << clis.binding;
      // l = N 2^C exactly: RN(1 / l) has to be normal, an inexact unit's one binade further
      const double l = std::ldexp(static_cast<double>(keys), static_cast<int>(clis.cap));
      EXPECT_LE(l, exact ? 0x1p126 : 0x1p125);
      EXPECT_GT(2 * l, exact ? 0x1p126 : 0x1p125);
      Truth truth;
      const HeadReport published = judge(head, kernel, Policy::clis_alg1, &truth);
      if (!truth.finite) {
        EXPECT_EQ(published.verdict, Verdict::refuted);
      }
    }
  }
}

}  // namespace
}  // namespace headroom
