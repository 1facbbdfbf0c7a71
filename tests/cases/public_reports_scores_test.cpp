// Failures of attention kernels that were reported in public, certified: scores, masks, padding and
// rows without keys. The arithmetic that each report describes is refuted, the corrected arithmetic
// is accepted. Names are those of the shared list of reports, whose records the simulator runs too
// (kernel_reports_test.cpp).
#include <random>

#include "reference/evaluate/ladder/ladder.h"
#include "reference/evaluate/simulate/simulate.h"
#include "tests/cases/public_reports.h"

namespace headroom::reports {
namespace {

TEST(PublicReports, B01_FusedExponentOfTheMaximum) {
  const KernelModel half = with(flash(fp16), [](KernelModel& k) {
    k.score.accumulator.order = {OrderKind::pairwise};  // 64 equal products: exact
  });
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
          refuted,
          "exponent.upper"},
         {"B01",
          "not fused: 0",
          all(bf16, 133120),
          unfused(flash(bf16)),
          Policy::online,
          {},
          certified,
          ""},
         {"B01", "FP16, residual 1.9966", all(fp16, 1708), half, Policy::online, {}, certified, ""},
         {"B01",
          "FP16, residual 31.9: P overflows",
          all(fp16, 6832),
          half,
          Policy::online,
          {},
          refuted,
          "p.range"},
         {"B01",
          "FP16, residual 156.6",
          all(fp16, 19296),
          half,
          Policy::online,
          {},
          refuted,
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
  // the last integer that FP16 stores as a number
  const auto edge = [](double last) {
    return problem_of(
        matrix(fp16, 1, 2, [](auto, std::int64_t c) { return c == 0 ? 256.0 : 1.0; }),
        matrix(fp16, 1, 2, [&](auto, std::int64_t c) { return c == 0 ? 255.0 : last; }),
        filled(fp16, 1, 1, 1), Scale::natural(1));
  };
  check({{"B02", "65519 stored", edge(239), narrow, Policy::online, {}, certified, ""},
         {"B02", "65520 stored", edge(240), narrow, Policy::online, {}, refuted, "score.range"},
         {"B02", "71234 stored", scaled(1), narrow, Policy::online, {}, refuted, "score.range"},
         {"B02", "stored in FP32", scaled(1), wide, Policy::online, {}, certified, ""},
         {"B02", "q less 2^4", scaled(0x1p-4), narrow, Policy::online, {}, certified, ""},
         {"B04",
          "65536 from one product",
          equal(1, 256),
          narrow,
          Policy::online,
          {},
          refuted,
          "score.range"},
         {"B04",
          "65536 from 64 products",
          equal(64, 32),
          narrow,
          Policy::online,
          {},
          refuted,
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
    check({{"B07",
            "-10000 above -20000",
            outranked,
            kernel(form, -10000),
            Policy::online,
            {},
            refuted,
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
            refuted,
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
  // a bias is what it says, in exact attention too
  AttentionProblem biased = learned;
  biased.mask.clear();
  biased.bias = matrix(fp32, 1, 3, [](auto, std::int64_t j) { return j == 2 ? -10000.0 : 0.0; });
  AttentionProblem twice = scores({0, 0}, column(fp32, {1, 3}));
  twice.bias = matrix(fp32, 1, 2, [](auto, std::int64_t j) { return j == 0 ? -20000.0 : -10000; });
  check({{"B08", "a bias of -10000", biased, base_2(), Policy::online, {}, certified, ""},
         {"B08", "two biases on one key", twice, base_2(), Policy::online, {}, certified, ""}});
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
          refuted,
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

// In either unit a bias of that size leaves no bit of a score, and the report says so.
TEST(PublicReports, B11_ABiasAbsorbsScores) {
  AttentionProblem p = scores({0.3, -1.2, 2}, column(fp32, {3, 6, 12}));
  const auto absorbed = [&](double bias, const KernelModel& kernel) {
    p.bias = filled(fp32, 1, 3, bias);
    CertifyOptions options;
    options.policy = Policy::online;
    const HeadReport r = certify_head(head_of(p, "B11"), kernel, options);
    return r.reason.find("absorbs all bits") != std::string::npos;
  };
  for (const KernelModel& kernel : {base_2(), natural()}) {
    EXPECT_TRUE(absorbed(-fp32.max_finite(), kernel));
    EXPECT_TRUE(absorbed(-fp32.max_finite() / 2, kernel));
    EXPECT_TRUE(absorbed(-0x1p28, kernel));   // an ulp is 32, a quarter of it 8: more than 2
    EXPECT_FALSE(absorbed(-0x1p23, kernel));  // an ulp is 1: 2 stays
    EXPECT_FALSE(absorbed(-100, kernel));
  }
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
  AttentionProblem partly = leading;
  partly.mask[15] = 1;
  // row 20 sees key 20 alone, and its block starts with the tile of key 0
  AttentionProblem diagonal = problem_of(filled(bf16, 32, 8, 1), filled(bf16, 32, 8, 0.5),
                                         filled(bf16, 32, 1, 1), Scale::reciprocal_sqrt(8));
  diagonal.window = Window{0, 0};
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
         {"B13",
          "the first tile is seen in part",
          partly,
          tiles,
          Policy::online,
          {{"guard", 0}},
          certified,
          ""},
         {"B13",
          "a window that starts after its block",
          diagonal,
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
  AttentionProblem seen_by_one = hidden, hidden_value = hidden;
  seen_by_one.mask = {1, 0, 1, 1};  // the second
  hidden_value.k = filled(fp32, 2, 4, 1);
  hidden_value.v =
      matrix(fp32, 2, 4, [](std::int64_t j, auto) { return j == 1 ? nan_value : 1.0; });
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
          "NaN in a hidden key, replaced",
          hidden,
          base_2(),
          Policy::online,
          {},
          certified,
          ""},
         {"B36",
          "NaN in a hidden key, added to",
          hidden,
          with(base_2(), [](KernelModel& k) { k.mask.form = MaskForm::additive; }),
          Policy::online,
          {},
          refuted,
          "operand.finite"},
         {"B36",
          "NaN in a key that one row sees",
          seen_by_one,
          base_2(),
          Policy::online,
          {},
          refuted,
          "operand.finite"},
         {"B36",
          "NaN in a hidden value",
          hidden_value,
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
      checked().insert("B44");
    }
  }
}

}  // namespace
}  // namespace headroom::reports
