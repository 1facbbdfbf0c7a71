// Failures of attention kernels that were reported in public, certified: the arithmetic that each
// report describes is not accepted, the corrected arithmetic is. Names are those of the shared list
// of reports, whose records the simulator runs too (kernel_reports_test.cpp).
//
// Not here, because no claim of a certificate speaks of them:
//   B29  which of two exponential units made a weight; the larger error is the unit's, below
//   B30  the backward pass
//   B37  uninitialised buffers; B46 index widths: a harness's matter
//   B43  the LSE of centred keys: `lse.shift`, not covered; the outputs are the same, below
//   B50  an implausible scale: a warning of the reader (tests/unit/head)
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "certify/certify.h"
#include "reference/evaluate/ladder/ladder.h"
#include "reference/evaluate/simulate/simulate.h"
#include "tests/cases/reported_heads.h"

namespace headroom {
namespace {

using namespace reports;  // NOLINT(google-build-using-namespace): the reports' own words

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

enum class Expected : std::uint8_t {
  certified,
  fallback,   ///< rows recomputed, safely
  rejected,   ///< the claim named does not hold: refuted or undecided
  refuted,    ///< it certainly fails
  undecided,  ///< no bound covers the kernel
};
constexpr Expected certified = Expected::certified, fallback = Expected::fallback,
                   rejected = Expected::rejected, refuted = Expected::refuted,
                   undecided = Expected::undecided;

struct Case {
  std::string record, what;
  AttentionProblem problem;
  KernelModel kernel;
  Policy policy;
  PolicyParameters parameters;
  Expected expected;
  std::string claim;  ///< of a rejection
};
using Cases = std::vector<Case>;

void check(const Case& c) {
  SCOPED_TRACE(c.record + ": " + c.what);
  ASSERT_FALSE(find_problem(c.kernel)) << find_problem(c.kernel)->keys.front();
  CertifyOptions options;
  options.policy = c.policy;
  options.parameters = c.parameters;
  const HeadReport r = certify_head(head_of(c.problem, c.record), c.kernel, options);
  const std::string found = std::string(to_text(r.verdict)) + ", " + r.reason + ", " + r.binding;
  switch (c.expected) {
    case Expected::certified:
      EXPECT_EQ(r.verdict, Verdict::certified) << found;
      return;
    case Expected::fallback:
      EXPECT_EQ(r.verdict, Verdict::fallback) << found;
      return;
    case Expected::undecided:
      EXPECT_EQ(r.verdict, Verdict::undecided) << found;
      return;
    case Expected::rejected:
    case Expected::refuted:
      break;
  }
  if (c.expected == Expected::refuted) {
    EXPECT_EQ(r.verdict, Verdict::refuted) << found;
  } else {
    EXPECT_TRUE(r.verdict == Verdict::refuted || r.verdict == Verdict::undecided) << found;
  }
  const bool open = std::any_of(r.claims.begin(), r.claims.end(), [&](const Claim& claim) {
    return claim.id == c.claim && claim.required && claim.outcome() != ClaimOutcome::holds;
  });
  EXPECT_TRUE(open) << c.claim << " holds; " << found;
}
void check(const Cases& cases) {
  for (const Case& c : cases) check(c);
}

/// An exponent that multiplies the stored score by the factor, not fused.
KernelModel unfused(KernelModel k) {
  k.exponent.fused = false;
  return k;
}
KernelModel with(KernelModel k, const std::function<void(KernelModel&)>& change) {
  change(k);
  return k;
}
const PolicyParameters phi_untested = {{"phi", 5}, {"a", -infinity}, {"b", infinity}};

TEST(PublicReports, B01_FusedExponentOfTheMaximum) {
  const auto all = [](const Format& f, double fill) {
    return problem_of(filled(f, 1, 64, fill), filled(f, 1, 64, fill), filled(f, 1, 1, 1),
                      Scale::natural(Rational(1, 8)));
  };
  check({{"B01",
          "residual 7916",
          all(bf16, 133120),
          flash(bf16),
          Policy::online,
          {},
          rejected,
          "exponent.upper"},
         {"B01",
          "not fused: 0",
          all(bf16, 133120),
          unfused(flash(bf16)),
          Policy::online,
          {},
          certified,
          ""},
         {"B01",
          "FP16, residual 1.9966",
          all(fp16, 1708),
          flash(fp16),
          Policy::online,
          {},
          certified,
          ""},
         {"B01",
          "FP16, residual 31.9: P overflows",
          all(fp16, 6832),
          flash(fp16),
          Policy::online,
          {},
          rejected,
          "p.range"},
         {"B01",
          "FP16, residual 156.6",
          all(fp16, 19296),
          flash(fp16),
          Policy::online,
          {},
          rejected,
          "exponent.upper"}});
}

TEST(PublicReports, B02_B04_B48_ScoresInFp16) {
  const auto scaled = [](double q_factor) {
    return problem_of(
        matrix(fp16, 1, 2, [&](auto, std::int64_t c) { return (c == 0 ? 256 : 2) * q_factor; }),
        matrix(fp16, 4, 2,
               [](std::int64_t j, std::int64_t c) {
                 return c == 0 ? (j == 3 ? 278.0 : 277.0) : (j == 3 ? 33.0 : 0.0);
               }),
        one_hot(fp16, 4), Scale::natural(1));
  };
  const KernelModel wide = with(base_2(), [](KernelModel& k) {
    k.operand = fp16;
    k.score.scale_before_store = false;
  });
  const KernelModel narrow = with(wide, [](KernelModel& k) { k.score.store = fp16; });
  const auto equal = [](std::int64_t d, double fill) {
    return problem_of(filled(fp16, 1, d, fill), filled(fp16, 1, d, fill), filled(fp16, 1, 1, 3),
                      Scale::natural(1));
  };
  std::mt19937_64 engine(48);
  std::normal_distribution<double> normal;
  const auto random = [&](auto, auto) { return 40 * normal(engine); };
  const Matrix q = matrix(fp16, 2, 128, random), keys = matrix(fp16, 4096, 128, random);
  const AttentionProblem tail =
      problem_of(q, keys, filled(fp16, 4096, 1, 1), Scale::reciprocal_sqrt(128));
  const KernelModel folded =
      with(narrow, [](KernelModel& k) { k.scale.scale = FactorSite::query; });
  check({{"B02", "71234 stored", scaled(1), narrow, Policy::online, {}, refuted, "score.range"},
         {"B02", "stored in FP32", scaled(1), wide, Policy::online, {}, certified, ""},
         {"B02", "q less 2^4", scaled(0x1p-4), narrow, Policy::online, {}, certified, ""},
         {"B04",
          "65536 from one product",
          equal(1, 256),
          narrow,
          Policy::online,
          {},
          rejected,
          "score.range"},
         {"B04",
          "65536 from 64 products",
          equal(64, 32),
          narrow,
          Policy::online,
          {},
          rejected,
          "score.range"},
         {"B04", "in FP32", equal(64, 32), wide, Policy::online, {}, certified, ""},
         {"B48",
          "the largest of 8192 random scores",
          tail,
          narrow,
          Policy::online,
          {},
          refuted,
          "score.range"},
         {"B48", "1 / sqrt(d) folded into q", tail, folded, Policy::online, {}, certified, ""}});
}

TEST(PublicReports, B06_FiniteSentinel) {
  const KernelModel k = unfused(flash(bf16));
  for (const std::int64_t keys : {1, 64}) {
    const AttentionProblem low = problem_of(filled(bf16, 1, 128, 64), filled(bf16, keys, 128, -64),
                                            filled(bf16, keys, 1, 1), Scale::reciprocal_sqrt(128));
    const AttentionProblem high = problem_of(filled(bf16, 1, 128, 16), filled(bf16, keys, 128, -16),
                                             filled(bf16, keys, 1, 1), Scale::reciprocal_sqrt(128));
    check({{"B06",
            "raw -524288 below -50000",
            low,
            k,
            Policy::online,
            {{"initial_max", -5e4}},
            refuted,
            "stabilizer.stored"},
           {"B06",
            "raw -32768 above it",
            high,
            k,
            Policy::online,
            {{"initial_max", -5e4}},
            certified,
            ""},
           {"B06", "-infinity", low, k, Policy::online, {}, certified, ""}});
  }
}

TEST(PublicReports, B07_B08_B09_FiniteMasks) {
  const auto masked = [](double q, std::vector<double> keys, std::vector<std::uint8_t> mask) {
    const auto n = static_cast<std::int64_t>(keys.size());
    AttentionProblem p =
        problem_of(column(fp32, {q}), column(fp32, keys), filled(fp32, n, 1, 1), Scale::natural(1));
    p.mask = std::move(mask);
    return p;
  };
  const auto kernel = [](MaskForm form, double value) {
    return with(base_2(), [&](KernelModel& k) {
      k.mask = {.form = form, .value = value};
      k.score.scale_before_store = false;  // the value is in natural units
    });
  };
  const AttentionProblem outranked = masked(-20000, {1, 0}, {1, 0});
  const AttentionProblem learned = masked(1, {-10005, -10004, 0}, {1, 1, 0});
  for (const MaskForm form : {MaskForm::select, MaskForm::additive}) {
    // what a hidden key scores besides is bounded, not evaluated
    const Expected outranks = form == MaskForm::select ? refuted : rejected;
    check({{"B07",
            "-10000 above -20000",
            outranked,
            kernel(form, -10000),
            Policy::online,
            {},
            outranks,
            "mask.mass"},
           {"B07",
            "-infinity",
            outranked,
            kernel(form, -infinity),
            Policy::online,
            {},
            certified,
            ""},
           {"B07",
            "-1e9 is below every score",
            outranked,
            kernel(form, -1e9),
            Policy::online,
            {},
            certified,
            ""},
           {"B08",
            "-10000 beside -10004",
            learned,
            kernel(form, -10000),
            Policy::online,
            {},
            outranks,
            "mask.mass"},
           {"B08",
            "-infinity",
            learned,
            kernel(form, -infinity),
            Policy::online,
            {},
            certified,
            ""}});
  }
  // the least that is admissible: 104 below in FP32 with gradual underflow
  check({{"B07",
          "-103 is seen",
          masked(1, {0, 0}, {1, 0}),
          kernel(MaskForm::select, -103),
          Policy::online,
          {},
          refuted,
          "mask.mass"},
         {"B07",
          "-105 is not",
          masked(1, {0, 0}, {1, 0}),
          kernel(MaskForm::select, -105),
          Policy::online,
          {},
          certified,
          ""}});
  // rows of which every key is hidden get a mean of hidden keys
  AttentionProblem empty = problem_of(column(fp16, {1, 1}), column(fp16, {-16, 0}),
                                      column(fp16, {10, 20}), Scale::natural(1));
  empty.mask = {0, 0, 0, 1};
  const KernelModel lowest = with(kernel(MaskForm::additive, -65504), [](KernelModel& k) {
    k.operand = k.score.store = fp16;
    k.tiles.empty_row = EmptyRowRule::mean_of_visited;
  });
  check({{"B09", "-65504 added in FP16", empty, lowest, Policy::online, {}, refuted, "empty.row"},
         {"B09",
          "selected, and a rule for empty rows",
          empty,
          with(base_2(), [](KernelModel& k) { k.operand = k.score.store = fp16; }),
          Policy::online,
          {},
          certified,
          ""}});
}

TEST(PublicReports, B11_LowestFp32InLog2Units) {
  const auto p = [](double bias) {
    AttentionProblem q =
        problem_of(matrix(fp32, 1, 4, [](auto, std::int64_t c) { return c == 0 ? 1.0 : 0.0; }),
                   matrix(fp32, 3, 4,
                          [](std::int64_t j, std::int64_t c) {
                            return c != 0 ? 0.0 : j == 0 ? 0.3 : j == 1 ? -1.2 : 2.0;
                          }),
                   column(fp32, {3, 6, 12}), Scale::natural(1));
    q.bias = filled(fp32, 1, 3, bias);
    return q;
  };
  check({{"B11",
          "-FLT_MAX log2(e)",
          p(-fp32.max_finite()),
          base_2(),
          Policy::online,
          {},
          rejected,
          "score.range"},
         {"B11",
          "a bias that leaves the scores their bits",
          p(-100),
          base_2(),
          Policy::online,
          {},
          certified,
          ""}});
}

TEST(PublicReports, B12_B13_B16_RowsAndTilesWithoutKeys) {
  AttentionProblem empty = problem_of(filled(fp32, 2, 4, 1), filled(fp32, 2, 4, 0.5),
                                      filled(fp32, 2, 4, 3), Scale::reciprocal_sqrt(4));
  empty.mask = {0, 0, 1, 1};
  const auto rule = [](EmptyRowRule r) {
    return with(base_2(), [&](KernelModel& k) { k.tiles.empty_row = r; });
  };
  AttentionProblem leading = problem_of(filled(bf16, 1, 8, 1), filled(bf16, 32, 8, 0.5),
                                        filled(bf16, 32, 1, 1), Scale::reciprocal_sqrt(8));
  leading.mask.assign(32, 1);
  std::fill_n(leading.mask.begin(), 16, 0);
  const KernelModel tiles = with(base_2(), [](KernelModel& k) {
    k.operand = bf16;
    k.tiles.keys = 16;
  });
  AttentionProblem bottom = problem_of(filled(fp32, 4, 1, 0), filled(fp32, 2, 1, 0),
                                       filled(fp32, 2, 1, 5), Scale::natural(1));
  bottom.visibility.kind = MaskKind::causal_bottom_right;
  check({{"B12",
          "O = 0, LSE = -inf",
          empty,
          rule(EmptyRowRule::zero),
          Policy::online,
          {},
          certified,
          ""},
         {"B12", "NaN", empty, rule(EmptyRowRule::nan), Policy::online, {}, refuted, "empty.row"},
         {"B12",
          "a mean of hidden keys",
          empty,
          rule(EmptyRowRule::mean_of_visited),
          Policy::online,
          {},
          refuted,
          "empty.row"},
         {"B13",
          "m - m = -inf - -inf",
          leading,
          tiles,
          Policy::online,
          {{"guard", 0}},
          refuted,
          "exponent.defined"},
         {"B13", "guarded", leading, tiles, Policy::online, {}, certified, ""},
         {"B16",
          "LSE = +inf",
          bottom,
          rule(EmptyRowRule::zero_pos_inf),
          Policy::online,
          {},
          refuted,
          "empty.row"},
         {"B16", "LSE = -inf", bottom, rule(EmptyRowRule::zero), Policy::online, {}, certified, ""},
         {"B16",
          "the same as FlashAttention-2 does it",
          bottom,
          with(preset("ampere"), [](KernelModel& k) { k.operand = fp32; }),
          Policy::online,
          {},
          refuted,
          "empty.row"}});
}

TEST(PublicReports, B15_B16_B18_B19_Merges) {
  AttentionProblem last_tile = scores({0, 0, 0, 0, 0, 0, 1, 2}, filled(fp32, 8, 1, 4));
  last_tile.mask = {0, 0, 0, 0, 0, 0, 1, 1};
  const AttentionProblem empty_first = two_parts(1, 0, 9, 1, 5);
  const AttentionProblem parts = two_parts(8, 2, 0, 8, 10);
  const auto empty_is = [](MergeRule merge, EmptyRowRule rule) {
    return with(split(1, 2, merge), [&](KernelModel& k) { k.tiles.empty_row = rule; });
  };
  const auto bases = [](ExponentBase delivered, ExponentBase read) {
    return with(split(8, 2, MergeRule::lse), [&](KernelModel& k) {
      k.lse.base = delivered;
      k.split.reads = read;
    });
  };
  constexpr ExponentBase e = ExponentBase::e, two = ExponentBase::two;
  const AttentionProblem apart = scores({-60, 30}, column(fp32, {1, 2}));
  check({{"B15",
          "-inf - -inf of two empty parts",
          last_tile,
          split(2, 4, MergeRule::lse_naive),
          Policy::online,
          {},
          refuted,
          "merge.identity"},
         {"B15",
          "(0, -inf) weighs 0",
          last_tile,
          split(2, 4, MergeRule::lse),
          Policy::online,
          {},
          certified,
          ""},
         {"B16",
          "an empty part of LSE = +inf",
          empty_first,
          empty_is(MergeRule::lse, EmptyRowRule::zero_pos_inf),
          Policy::online,
          {},
          refuted,
          "merge.identity"},
         {"B16",
          "an empty part of LSE = -inf",
          empty_first,
          empty_is(MergeRule::lse, EmptyRowRule::zero),
          Policy::online,
          {},
          certified,
          ""},
         {"B18",
          "ln read as log2",
          parts,
          bases(e, two),
          Policy::online,
          {},
          refuted,
          "merge.identity"},
         {"B18",
          "log2 read as ln",
          parts,
          bases(two, e),
          Policy::online,
          {},
          refuted,
          "merge.identity"},
         {"B18", "ln", parts, bases(e, e), Policy::online, {}, certified, ""},
         {"B18", "log2", parts, bases(two, two), Policy::online, {}, certified, ""},
         {"B19",
          "e^90",
          apart,
          split(1, 2, MergeRule::lse_log1p),
          Policy::online,
          {},
          rejected,
          "merge.range"},
         {"B19",
          "the larger LSE first",
          apart,
          split(1, 2, MergeRule::lse),
          Policy::online,
          {},
          certified,
          ""}});
}

TEST(PublicReports, B21_B23_B40_B41_NarrowAccumulators) {
  const KernelModel half = with(base_2(), [](KernelModel& k) {
    k.operand = k.p.format = k.numerator.format = fp16;
    k.p.denominator_rounded = true;
  });
  const KernelModel wide = with(half, [](KernelModel& k) { k.numerator.format = fp32; });
  const auto denominator = [](const Accumulator& a) {
    return with(base_2(), [&](KernelModel& k) { k.denominator = a; });
  };
  const auto truncating = [](int bits) {
    return with(base_2(), [&](KernelModel& k) {
      k.operand = k.p.format = bf16;
      k.numerator = {.format = fp32, .order = {OrderKind::matrix_unit, 1, bits}};
    });
  };
  // ln 8 on the maximum, to three bits: P = 1/8
  const PolicyParameters an_eighth = {{"threshold", 0}, {"offset", -3}};
  check({{"B21",
          "sums to 65536",
          equal_keys(fp16, 1024, 64),
          half,
          Policy::online,
          {},
          rejected,
          "o.range"},
         {"B21",
          "sums to 65472",
          equal_keys(fp16, 1023, 64),
          half,
          Policy::online,
          {},
          certified,
          ""},
         {"B21", "an offset: 16384 + 8 = 16384", equal_keys(fp16, 8192, 64), half, Policy::fa4,
          an_eighth, rejected, "sum.absorption"},
         {"B21", "FP32", equal_keys(fp16, 8192, 64), wide, Policy::fa4, an_eighth, certified, ""},
         {"B21",
          "FP32 without an offset",
          equal_keys(fp16, 8192, 64),
          wide,
          Policy::online,
          {},
          certified,
          ""},
         {"B23",
          "FP16, 4096 keys",
          equal_keys(fp32, 4096, 1),
          denominator({.format = fp16, .order = {OrderKind::any}}),
          Policy::online,
          {},
          rejected,
          "sum.absorption"},
         {"B23",
          "FP16, 1024 keys one after another",
          equal_keys(fp32, 1024, 1),
          denominator({.format = fp16, .order = {OrderKind::sequential}}),
          Policy::online,
          {},
          certified,
          ""},
         {"B23",
          "BF16, 512 keys",
          equal_keys(fp32, 512, 1),
          denominator({.format = bf16, .order = {OrderKind::any}}),
          Policy::online,
          {},
          rejected,
          "sum.absorption"},
         {"B23", "FP32", equal_keys(fp32, 4096, 1), base_2(), Policy::online, {}, certified, ""},
         {"B40",
          "tile sums of FP16",
          equal_keys(fp16, 16384, 4),
          with(half,
               [](KernelModel& k) {
                 k.numerator.order = {OrderKind::tile, 64};
               }),
          Policy::online,
          {},
          rejected,
          "o.range"},
         {"B40", "FP32", equal_keys(fp16, 16384, 4), wide, Policy::online, {}, certified, ""},
         {"B41",
          "14 bits, 2^14 keys",
          equal_keys(bf16, 1 << 14, 1),
          truncating(13),
          Policy::online,
          {},
          certified,
          ""},
         {"B41",
          "14 bits, 160000 keys",
          equal_keys(bf16, 160000, 1),
          truncating(13),
          Policy::online,
          {},
          rejected,
          "sum.absorption"},
         {"B41",
          "26 bits, 160000 keys",
          equal_keys(bf16, 160000, 1),
          truncating(25),
          Policy::online,
          {},
          certified,
          ""}});
}

TEST(PublicReports, B24_B25_ShiftsThatDoNotFollow) {
  const KernelModel gradual = base_2();
  const KernelModel flushing = with(gradual, flush_everywhere);
  const auto one = [](double score) { return scores({score}, column(fp32, {1})); };
  const auto many = [](double score) {
    return scores(std::vector<double>(4096, score), filled(fp32, 4096, 1, 1));
  };
  const AttentionProblem aligned =
      problem_of(filled(fp32, 1, 128, 2.8824), filled(fp32, 1, 128, 2.8824), filled(fp32, 1, 1, 1),
                 Scale::reciprocal_sqrt(128));
  AttentionProblem capped = scores({119, 60}, column(fp32, {1, 2}));
  const AttentionProblem uncapped = capped;
  capped.softcap = 20;
  AttentionProblem alibi = scores({0, 0}, one_hot(fp32, 2));
  alibi.bias =
      matrix(fp32, 1, 2, [](auto, std::int64_t j) { return 0.5 * (j == 0 ? 4095 : 4094); });
  const AttentionProblem long_scores = scores({151.29, 150}, one_hot(fp32, 2));
  const PolicyParameters none = {{"phi", 0}, {"a", -infinity}, {"b", infinity}};
  const PolicyParameters estimate = {{"phi", 30}, {"a", -infinity}, {"b", infinity}};
  const KernelModel half = with(base_2(), [](KernelModel& k) { k.exp2.result = fp16; });
  check(
      {{"B24", "93.73", one(93.73), gradual, Policy::fdpp, phi_untested, refuted, "exponent.upper"},
       {"B24", "93.72", one(93.72), gradual, Policy::fdpp, phi_untested, certified, ""},
       {"B24", "4096 of 85.41", many(85.41), gradual, Policy::fdpp, phi_untested, refuted,
        "l.range"},
       {"B24", "4096 of 85.4", many(85.4), gradual, Policy::fdpp, phi_untested, certified, ""},
       {"B24", "4096 of -98.98", many(-98.98), gradual, Policy::fdpp, phi_untested, refuted,
        "l.nonzero"},
       {"B24", "4096 of -90", many(-90), gradual, Policy::fdpp, phi_untested, certified, ""},
       {"B24", "4096 of -82.34, flushed", many(-82.34), flushing, Policy::fdpp, phi_untested,
        refuted, "l.nonzero"},
       {"B24", "4096 of -70, flushed", many(-70), flushing, Policy::fdpp, phi_untested, certified,
        ""},
       {"B24", "128 channels", aligned, gradual, Policy::fdpp, phi_untested, refuted,
        "exponent.upper"},
       {"B24", "a maximum of 30 is exceeded", uncapped, gradual, Policy::fdpp, estimate, refuted,
        "exponent.upper"},
       {"B24", "until scores are capped at 20", capped, gradual, Policy::fdpp, estimate, certified,
        ""},
       {"B25", "151.29", long_scores, gradual, Policy::fdpp, none, refuted, "exponent.upper"},
       {"B25", "151.29 with a maximum", long_scores, gradual, Policy::online, {}, certified, ""},
       {"B25", "a position bias", alibi, gradual, Policy::fdpp, none, rejected, "exponent.upper"},
       {"B25", "a position bias with a maximum", alibi, gradual, Policy::online, {}, certified, ""},
       {"B25", "FP16: 11.2", one(11.2), half, Policy::fdpp, none, refuted, "exponent.upper"},
       {"B25", "FP16: 11.08", one(11.08), half, Policy::fdpp, none, certified, ""}});
  // the published rule: rows outside of (a, b) are recomputed
  for (const AttentionProblem& p :
       {one(93.73), many(85.41), many(-98.98), many(-82.34), aligned, long_scores}) {
    check({{"B24", "tested", p, flushing, Policy::fdpp, {{"phi", 5}}, fallback, ""}});
  }
  check({{"B24", "inside", one(4), flushing, Policy::fdpp, {{"phi", 5}}, certified, ""}});
}

TEST(PublicReports, B26_WaveWideRescale) {
  const AttentionProblem p =
      problem_of(one_hot(fp32, 2),
                 matrix(fp32, 256, 2,
                        [](std::int64_t j, std::int64_t c) {
                          return j < 128 ? (c == 0 ? 100.0 : 0.0) : (c == 0 ? -60.0 : 20.0);
                        }),
                 matrix(fp32, 256, 1, [](std::int64_t j, auto) { return j < 128 ? 1.0 : 2.0; }),
                 Scale::base2(1));
  const PolicyParameters wave = {{"wave", 64}, {"running_max", 0}};
  check(
      {{"B26", "a factor of 2^160", p, base_2(), Policy::fa4, wave, refuted, "correction.range"},
       {"B26",
        "the larger maximum is kept",
        p,
        base_2(),
        Policy::fa4,
        {{"wave", 64}},
        certified,
        ""},
       {"B26",
        "each row for itself",
        p,
        base_2(),
        Policy::fa4,
        {{"wave", 1}, {"running_max", 0}},
        certified,
        ""},
       {"B26", "FlashAttention-4", p, base_2(), Policy::fa4, {}, certified, ""},
       {"B26", "FlashAttention-4, a tile", p, base_2(), Policy::fa4, {{"wave", 0}}, certified, ""},
       {"B26", "online", p, base_2(), Policy::online, {}, certified, ""}});
}

TEST(PublicReports, B27_Fp8WeightsSaturate) {
  const auto p = [](std::int64_t prefix, double v_prefix, double v_last) {
    return problem_of(
        filled(bf16, 1, 1, 1),
        matrix(bf16, prefix + 1, 1, [&](std::int64_t j, auto) { return j == prefix ? 4.0 : 0.0; }),
        matrix(bf16, prefix + 1, 1,
               [&](std::int64_t j, auto) { return j == prefix ? v_last : v_prefix; }),
        Scale::base2(1));
  };
  const auto kernel = [](int tile) {
    return with(base_2(), [&](KernelModel& k) {
      k.operand = bf16;
      k.p.format = e4m3fn;
      k.p.saturate = true;
      k.tiles.keys = tile;
    });
  };
  const PolicyParameters eight = {{"threshold", 4}, {"offset", 8}};
  const PolicyParameters four = {{"threshold", 4}, {"offset", 4}};
  const PolicyParameters room = {{"threshold", 0.75}, {"offset", 8}};  // vLLM's fork
  check({{"B27", "P = 4096, 127 keys before", p(127, -1, 1), kernel(127), Policy::fa4, eight,
          refuted, "mass.lost"},
         {"B27", "offset 4", p(127, -1, 1), kernel(127), Policy::fa4, four, certified, ""},
         {"B27", "P = 4096, one key before", p(1, 0, 1), kernel(1), Policy::fa4, eight, refuted,
          "mass.lost"},
         {"B27", "offset 4", p(1, 0, 1), kernel(1), Policy::fa4, four, certified, ""},
         {"B27", "threshold 0.75", p(1, 0, 1), kernel(1), Policy::fa4, room, certified, ""},
         {"B27", "threshold 0, as released", p(1, 0, 1), kernel(1), Policy::fa4, {}, certified, ""},
         {"B27", "one tile: the maximum is known in time", p(127, -1, 1), kernel(128), Policy::fa4,
          eight, certified, ""}});
}

TEST(PublicReports, B29_B32_B38_UnitsAndFormulas) {
  const AttentionProblem row = problem_of(filled(bf16, 1, 1, 1), column(bf16, {0, -1, 3}),
                                          column(bf16, {0, 1, 1}), Scale::base2(1));
  AttentionProblem capped = problem_of(filled(fp32, 1, 1, 5000), column(fp32, {1, 0.5}),
                                       column(fp32, {1, 3}), Scale::natural(1));
  capped.softcap = 50;
  AttentionProblem hidden = problem_of(filled(fp16, 1, 1, 0), filled(fp16, 128, 1, 0),
                                       filled(fp16, 128, 1, 1), Scale::natural(1));
  for (std::int64_t j = 0; j < 128; ++j) hidden.mask.push_back(j < 32 ? 1 : 0);
  const KernelModel half =
      with(base_2(), [](KernelModel& k) { k.operand = k.exp2.result = k.p.format = fp16; });
  check({{"B29", "either unit", row, preset("blackwell"), Policy::fa4, {}, certified, ""},
         {"B32",
          "a ratio of sums of exponentials",
          capped,
          with(base_2(), [](KernelModel& k) { k.score.softcap = SoftcapFormula::exp_ratio; }),
          Policy::online,
          {},
          undecided,
          ""},
         {"B32", "tanh", capped, base_2(), Policy::online, {}, certified, ""},
         {"B38",
          "never zero",
          hidden,
          with(half, [](KernelModel& k) { k.exp2.floor = 0x1p-14; }),
          Policy::online,
          {},
          undecided,
          ""},
         {"B38", "zero", hidden, half, Policy::online, {}, certified, ""}});
  // the error that both units keep is the one that counts
  CertifyOptions options;
  options.policy = Policy::fa4;
  const HeadReport r = certify_head(head_of(row, "B29"), preset("blackwell"), options);
  for (const Claim& claim : r.claims) {
    if (claim.id == "exp2.contract") {
      EXPECT_GE(claim.value.hi(), 8.5e-5);
    }
  }
}

TEST(PublicReports, B35_B36_NumbersThatNobodySees) {
  const auto padded = [](double padding) {
    AttentionProblem q =
        problem_of(filled(bf16, 1, 4, 1),
                   matrix(bf16, 128, 4,
                          [&](std::int64_t j, std::int64_t c) {
                            return j < 3 ? static_cast<double>(j + c) / 8 : padding;
                          }),
                   matrix(bf16, 128, 2,
                          [&](std::int64_t j, std::int64_t c) {
                            return j < 3 ? static_cast<double>(j - c) : padding;
                          }),
                   Scale::reciprocal_sqrt(4));
    q.visibility.length = 3;
    return q;
  };
  const auto kernel = [](Padding padding) {
    return with(base_2(), [&](KernelModel& k) {
      k.operand = bf16;
      k.tiles.padding = padding;
    });
  };
  AttentionProblem hidden =
      problem_of(filled(fp32, 2, 4, 1),
                 matrix(fp32, 2, 4,
                        [](std::int64_t r, std::int64_t c) {
                          return r == 1 && c == 0 ? nan_value : static_cast<double>(4 * r + c);
                        }),
                 filled(fp32, 2, 4, 1), Scale::reciprocal_sqrt(4));
  hidden.mask = {1, 0};
  for (const double padding : {nan_value, infinity}) {
    check({{"B35",
            "0 NaN",
            padded(padding),
            kernel(Padding::masked),
            Policy::online,
            {},
            refuted,
            "operand.finite"},
           {"B35",
            "never read",
            padded(padding),
            kernel(Padding::sliced),
            Policy::online,
            {},
            certified,
            ""}});
  }
  check({{"B35", "finite", padded(1), kernel(Padding::masked), Policy::online, {}, certified, ""},
         {"B36",
          "NaN in a hidden key",
          hidden,
          base_2(),
          Policy::online,
          {},
          refuted,
          "operand.finite"}});
}

TEST(PublicReports, B43_KeySmoothing) {
  const AttentionProblem p = problem_of(
      matrix(fp32, 1, 4, [](auto, std::int64_t c) { return static_cast<double>(c + 1); }),
      matrix(fp32, 2, 4,
             [](std::int64_t j, std::int64_t c) {
               return (c == 0 ? 10.0 : 0.0) + (c == 1 ? (j == 0 ? 0.5 : -0.5) : 0.0);
             }),
      column(fp32, {1, 2}), Scale::natural(Rational(1, 2)));
  const KernelModel smoothed = with(base_2(), [](KernelModel& k) {
    k.centring = {.keys = Centring::mean, .mean = fp32, .difference = fp32};
  });
  check({{"B43", "plain", p, base_2(), Policy::online, {}, certified, ""},
         {"B43", "smoothed", p, smoothed, Policy::online, {}, certified, ""}});
}

// Must be accepted: 32,769 random keys in FP16 with FP32 accumulators.
TEST(PublicReports, B54_NegativeControl) {
  std::mt19937_64 engine(54);
  std::normal_distribution<double> normal;
  const auto random = [&](auto, auto) { return normal(engine); };
  const Matrix q = matrix(fp16, 2, 64, random), keys = matrix(fp16, 32769, 64, random);
  const AttentionProblem p =
      problem_of(q, keys, matrix(fp16, 32769, 2, random), Scale::reciprocal_sqrt(64));
  const KernelModel half =
      with(preset("hopper"), [](KernelModel& k) { k.operand = k.p.format = fp16; });
  for (const Policy policy : {Policy::online, Policy::fa4}) {
    check({{"B54", "flash attention", p, flash(fp16), policy, {}, certified, ""},
           {"B54", "Hopper", p, half, policy, {}, certified, ""}});
  }
}

// Keys that share a component of 100, and keys that share none: with and without their mean taken
// off the certificate holds, the operands stay as they are, and a second run gives the same bits.
TEST(PublicReports, B44_KeysLessTheirMean) {
  std::mt19937_64 engine(44);
  std::uniform_real_distribution<double> spread(-1, 1);
  const auto random = [&](auto, auto) { return spread(engine); };
  for (const double shared : {100.0, 0.0}) {
    const AttentionProblem p =
        problem_of(matrix(bf16, 4, 16, random),
                   matrix(bf16, 64, 16, [&](auto, auto) { return shared + spread(engine); }),
                   matrix(bf16, 64, 2, random), Scale::natural(Rational(1, 4)));
    const std::string keys = p.k.sha256();
    for (const Centring centring : {Centring::none, Centring::mean}) {
      KernelModel k = preset("ieee-fp32");
      k.operand = bf16;
      k.centring = {.keys = centring, .mean = fp32, .difference = bf16};
      CertifyOptions options;
      options.policy = Policy::online;
      const HeadReport report = certify_head(head_of(p, "B44"), k, options);
      EXPECT_EQ(report.verdict, Verdict::certified) << report.reason << " " << report.binding;
      const std::vector<std::int64_t> rows = all_rows(p);
      const Simulated first = simulate(p, k, *make_loop_stabilizer("online-scaled"), rows);
      const Simulated second = simulate(p, k, *make_loop_stabilizer("online-scaled"), rows);
      EXPECT_EQ(first.output, second.output);
      EXPECT_EQ(first.lse, second.lse);
      EXPECT_EQ(p.k.sha256(), keys);
    }
  }
}

}  // namespace
}  // namespace headroom
