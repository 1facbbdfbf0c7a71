// The same (public_reports_scores_test.cpp): merges, accumulators, shifts, rescaling and units.
#include <random>

#include "bounds/sequential_sum.h"
#include "tests/cases/public_reports.h"

namespace headroom::reports {
namespace {

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
          refuted,
          "merge.range"},
         {"B19",
          "e^80",
          scores({-60, 20}, column(fp32, {1, 2})),
          split(1, 2, MergeRule::lse_log1p),
          Policy::online,
          {},
          certified,
          ""},
         {"B19",
          "e^-90: the larger LSE first",
          scores({30, -60}, column(fp32, {1, 2})),
          split(1, 2, MergeRule::lse_log1p),
          Policy::online,
          {},
          certified,
          ""},
         {"B19",
          "less the larger LSE",
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
  std::mt19937_64 engine(23);
  std::normal_distribution<double> normal(0, 0.5);
  std::vector<double> drawn;
  for (int j = 0; j < 4096; ++j) drawn.push_back(normal(engine));
  const AttentionProblem normal_scores = scores(drawn, filled(fp32, 4096, 1, 1));
  // ln 8 on the maximum, to three bits: P = 1/8
  const PolicyParameters an_eighth = {{"threshold", 0}, {"offset", -3}};
  check({{"B21",
          "sums to 65536",
          equal_keys(fp16, 1024, 64),
          half,
          Policy::online,
          {},
          refuted,
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
          an_eighth, refuted, "sum.absorption"},
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
          refuted,
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
          refuted,
          "sum.absorption"},
         {"B23",
          "FP16, 4096 keys one after another",
          equal_keys(fp32, 4096, 1),
          denominator({.format = fp16, .order = {OrderKind::sequential}}),
          Policy::online,
          {},
          refuted,
          "sum.absorption"},
         {"B23",
          "FP16, 2048 keys",
          equal_keys(fp32, 2048, 1),
          denominator({.format = fp16, .order = {OrderKind::any}}),
          Policy::online,
          {},
          certified,
          ""},
         {"B23",
          "BF16, 256 keys",
          equal_keys(fp32, 256, 1),
          denominator({.format = bf16, .order = {OrderKind::any}}),
          Policy::online,
          {},
          certified,
          ""},
         {"B23",
          "FP16, 4096 keys of normal scores",
          normal_scores,
          denominator({.format = fp16, .order = {OrderKind::sequential}}),
          Policy::online,
          {},
          refuted,
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
          refuted,
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
          "14 bits, 2^14 - 1 keys",
          equal_keys(bf16, (1 << 14) - 1, 1),
          truncating(13),
          Policy::online,
          {},
          certified,
          ""},
         {"B41",
          "14 bits, 2^17 keys",
          equal_keys(bf16, 1 << 17, 1),
          truncating(13),
          Policy::online,
          {},
          refuted,
          "sum.absorption"},
         {"B41",
          "14 bits, 2^18 keys",
          equal_keys(bf16, 1 << 18, 1),
          truncating(13),
          Policy::online,
          {},
          refuted,
          "sum.absorption"},
         {"B41",
          "14 bits, 160000 keys",
          equal_keys(bf16, 160000, 1),
          truncating(13),
          Policy::online,
          {},
          refuted,
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

// Where sums of ones stop: the records' own numbers.
TEST(PublicReports, B23_SequentialSumsOfOnes) {
  const UpwardRounding up;
  for (const auto& [format, stalls] : {std::pair{fp16, 2048.0}, {bf16, 256.0}}) {
    SequentialSum sum(up, format);
    for (int j = 0; j < 4096; ++j) sum.add(Interval(1.0));
    EXPECT_EQ(sum.total().lo(), stalls);
    EXPECT_EQ(sum.total().hi(), stalls);
    EXPECT_EQ(sum.largest(), stalls);
  }
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
       {"B24", "4096 of 85.405", many(85.405), gradual, Policy::fdpp, phi_untested, certified, ""},
       {"B24", "4096 of -98.98", many(-98.98), gradual, Policy::fdpp, phi_untested, refuted,
        "l.nonzero"},
       {"B24", "4096 of -90", many(-90), gradual, Policy::fdpp, phi_untested, certified, ""},
       {"B24", "4096 of -82.34, flushed", many(-82.34), flushing, Policy::fdpp, phi_untested,
        refuted, "l.nonzero"},
       {"B24", "4096 of -82.33, flushed", many(-82.33), flushing, Policy::fdpp, phi_untested,
        certified, ""},
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
       {"B25", "a position bias", alibi, gradual, Policy::fdpp, none, refuted, "normalise.range"},
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
          refuted,
          "score.range"},
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

}  // namespace
}  // namespace headroom::reports
