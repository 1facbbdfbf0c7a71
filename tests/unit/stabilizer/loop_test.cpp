#include "reference/stabilizer/loop/loop.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "reference/input_error.h"
#include "reference/stabilizer/loop/row_maximum.h"
#include "tests/unit/stabilizer/loop_arithmetic.h"

namespace headroom {
namespace {

using Scores = std::vector<std::vector<float>>;
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float none = -infinity;
constexpr float nan_ = std::numeric_limits<float>::quiet_NaN();
constexpr double log2_e = 0x1.71547652b82fep+0;

/// Tiles of `tile` keys, base 2, c = 1, FP32 P.
TestArithmetic plain(int tile) {
  TestArithmetic a;
  a.kernel.tiles.keys = tile;
  a.kernel.p.format = fp32;
  a.kernel.p.saturate = false;
  a.kernel.exponent.fused = false;
  a.kernel.stabilizer.round_up = false;
  return a;
}

Scores ones(std::size_t keys) { return Scores(keys, {1.0F}); }

std::vector<LoopRow> run(const TestArithmetic& a, const std::string& name, const Scores& scores,
                         const Scores& v, const LoopParameters& parameters = {}) {
  return run_loop(a, *make_loop_stabilizer(name, parameters), scores, v);
}
LoopRow run_row(const TestArithmetic& a, const std::string& name, const std::vector<float>& scores,
                const LoopParameters& parameters = {}) {
  return run(a, name, {scores}, ones(scores.size()), parameters)[0];
}
std::string error_of(const std::string& name, const LoopParameters& parameters) {
  try {
    make_loop_stabilizer(name, parameters);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

// The list.

TEST(Registry, NamesEveryStabilizer) {
  std::vector<std::string> names;
  for (const LoopDescription& d : loop_stabilizers()) {
    names.push_back(d.name);
    EXPECT_FALSE(d.summary.empty()) << d.name;
    EXPECT_EQ(d.summary.find('\n'), std::string::npos) << d.name;
  }
  const std::vector<std::string> expected = {
      "online-fa2",        "online-fa3",    "online-scaled",
      "online-triton",     "online-splash", "online-maxdiffusion",
      "online-rpa",        "clis",          "clis-alg1",
      "fixed-m",           "fixed-m-n",     "vfa",
      "vfa-sampled",       "fdpp",          "fdpp-untested",
      "fa4-row",           "fa4-tile1",     "fa4-tile2",
      "lazy-wave",         "static-max",    "softcap-max",
      "online-flashinfer", "llama-offset"};
  EXPECT_EQ(names, expected);
  for (const std::string& name : names) {
    if (name == "clis") continue;  // needs its table
    EXPECT_EQ(make_loop_stabilizer(name)->name(), name);
  }
}

TEST(Registry, ErrorsNameWhatIsKnown) {
  EXPECT_EQ(error_of("online", {}).substr(0, 62),
            "stabilizer: found \"online\", expected one of online-fa2, online");
  EXPECT_EQ(error_of("static-max", {{"phi", 1}}),
            "stabilizer static-max: found parameter \"phi\", expected one of estimate");
  EXPECT_EQ(error_of("softcap-max", {{"cap", 1}}),
            "stabilizer softcap-max: found parameter \"cap\", expected none");
  EXPECT_EQ(error_of("vfa", {{"sink_blocks", 0.5}}),
            "stabilizer vfa: sink_blocks: found 0.5, expected an integer of at least 0");
  EXPECT_EQ(error_of("vfa", {{"prescan", 2}}), "stabilizer vfa: prescan: found 2, expected 0 or 1");
  EXPECT_EQ(error_of("fdpp", {{"phi", std::nan("")}}),
            "stabilizer fdpp: phi: found nan, expected a number");
  EXPECT_EQ(error_of("clis", {{"cap", 1}}),
            "stabilizer clis: found no cap and kappa, expected the certifier's table");
}

TEST(Registry, EveryRuleIsSoftmaxWhereNothingGoesWrong) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  for (const ExponentBase base : {ExponentBase::two, ExponentBase::e}) {
    for (const float c : {1.0F, 0.71F}) {
      TestArithmetic a = plain(4);
      a.kernel.exponent.base = base;
      a.kernel.exponent.fused = c != 1;
      a.kernel.tiles.queries = 8;
      a.c = c;
      a.cap = 3.0F;
      constexpr std::size_t rows = 19, keys = 23, d = 4;
      Scores scores(rows, std::vector<float>(keys)), v(keys, std::vector<float>(2));
      a.q.assign(rows, std::vector<float>(d));
      a.k.assign(keys, std::vector<float>(d));
      for (auto* m : {&a.q, &a.k, &v}) {
        for (auto& row : *m) {
          for (float& x : row) x = normal(random);
        }
      }
      const NearestRounding nearest;
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t j = 0; j < keys; ++j) {
          scores[r][j] = a.score(static_cast<std::int64_t>(r), a.k[j].data());
        }
      }
      for (const LoopDescription& description : loop_stabilizers()) {
        LoopParameters parameters;
        if (description.name == "clis") parameters = {{"cap", 20}, {"kappa", 8}};
        // their C is in log2 units
        const bool base_2_only = description.name == "clis-alg1" || description.name == "fixed-m-n";
        if (base_2_only && base == ExponentBase::e) continue;
        const auto result = run(a, description.name, scores, v, parameters);
        for (std::size_t r = 0; r < rows; ++r) {
          double l = 0, o = 0;
          for (std::size_t j = 0; j < keys; ++j) {
            const double z = double{scores[r][j]} * c;
            const double w = base == ExponentBase::two ? std::exp2(z) : std::exp(z);
            l += w;
            o += w * v[j][1];
          }
          EXPECT_NEAR(result[r].output(1), o / l, 3e-6) << description.name << " row " << r;
          EXPECT_FALSE(result[r].recompute) << description.name;
          const double log_l = base == ExponentBase::two ? std::log2(l) : std::log(l);
          const double kernel_log = base == ExponentBase::two ? std::log2(double{result[r].l})
                                                              : std::log(double{result[r].l});
          EXPECT_NEAR(result[r].shift + kernel_log, log_l, 2e-5) << description.name;
        }
      }
    }
  }
}

TEST(RowMaximum, EqualsMaximaOneByOne) {
  std::mt19937_64 random(2);
  for (const std::int64_t rows : {1, 15, 16, 17, 37, 64, 130}) {
    const std::int64_t keys = 9, stride = rows + 5;
    std::vector<float> s(static_cast<std::size_t>(keys * stride));
    for (float& x : s) {
      const auto kind = random() % 20;
      x = kind == 0 ? nan_ : kind == 1 ? none : static_cast<float>(random() % 1000) - 500;
    }
    TileScores tile;
    tile.scores = s.data();
    tile.rows = rows;
    tile.stride = stride;
    tile.keys = keys;
    TestArithmetic a = plain(9);
    for (const float c : {1.0F, 1.7F, -0.3F}) {
      a.c = c;
      const NearestRounding nearest;
      std::vector<float> raw(static_cast<std::size_t>(rows), -400.0F), scaled = raw, kept = raw;
      raise_to_stored(tile, NanInMaximum::dropped, raw.data());
      raise_to_scaled(a, tile, NanInMaximum::dropped, scaled.data());
      raise_to_stored(tile, NanInMaximum::kept, kept.data());
      for (std::int64_t r = 0; r < rows; ++r) {
        float m = -400, z = -400;
        bool any_nan = false;
        for (std::int64_t j = 0; j < keys; ++j) {
          const float x = s[static_cast<std::size_t>(j * stride + r)];
          any_nan = any_nan || std::isnan(x);
          m = std::fmax(m, x);
          z = std::fmax(z, a.scaled(x));
        }
        const auto i = static_cast<std::size_t>(r);
        EXPECT_EQ(raw[i], m);
        EXPECT_EQ(scaled[i], z);
        EXPECT_EQ(std::isnan(kept[i]), any_nan);
        if (!any_nan) {
          EXPECT_EQ(kept[i], m);
        }
      }
    }
  }
}

// Raw maxima: a fused exponent of the row's own maximum is the rounding error of m c.

TEST(OnlineFa2, ResidualOfTheMaximum) {
  struct Row {
    float score, scale, shift, residual;
  };
  // pytorch issue 121558 (fill 133120 at d = 64, 256) and aotriton issue 54 (d = 1)
  for (const Row& row : {Row{1134139801600.0F, 0.125F, 204527222784.0F, 7916.0F},
                         Row{4536559206400.0F, 0.0625F, 0.0F, 15832.0F},
                         Row{17720934400.0F, 0.25F, 0.0F, 247.375F}}) {
    TestArithmetic a = plain(4);
    a.kernel.exponent.fused = true;
    a.c = row.scale * 1.4426950216293335F;
    for (const char* name : {"online-fa2", "online-fa3", "online-flashinfer", "fa4-row"}) {
      const LoopRow result = run_row(a, name, {row.score});
      if (row.shift != 0) {
        EXPECT_EQ(result.shift, row.shift) << name;
      }
      const NearestRounding nearest;
      EXPECT_EQ(a.exponent(row.score, result.shift), row.residual) << name;
    }
    a.kernel.exponent.fused = false;
    EXPECT_EQ(run_row(a, "online-fa2", {row.score}).l, 1);
    EXPECT_EQ(run_row(a, "online-scaled", {row.score}).l, 1);
  }
}

TEST(OnlineFa2, CorrectionScalesTheDifference) {
  TestArithmetic a = plain(1);
  a.c = 0x1.000002p0F;
  // m c = 2^23 + 2 + 2^-23 is rounded, -4 c is not
  const auto row = run_row(a, "online-fa2", {0x1p23F + 1, 0x1p23F + 5});
  EXPECT_EQ(row.shifts, (std::vector<float>{0x1p23F + 2, 0x1p23F + 6}));
  EXPECT_EQ(row.corrections, (std::vector<float>{1, a.exponential(-0x1.000002p2F)}));
}

TEST(OnlineFa2, NarrowExponentsRoundEachOperation) {
  TestArithmetic a = plain(1);
  a.kernel.exponent.format = bf16;
  a.c = 1.0078125F;  // 1 + 2^-7
  const auto row = run_row(a, "online-fa2", {257, 263});
  // 257 c = 259.0078 and 263 c = 265.05, BF16 steps of 2; -6 c = -6.046875, steps of 2^-5
  EXPECT_EQ(row.shifts, (std::vector<float>{260, 266}));
  EXPECT_EQ(row.corrections[1], a.exponential(-6.0625F));
}

TEST(OnlineFa3, Fp8WeightsAreOffset) {
  TestArithmetic a = plain(2);
  a.kernel.p.format = e4m3fn;
  a.kernel.p.saturate = true;
  const LoopRow row = run_row(a, "online-fa3", {3, 5, 9, 9});
  EXPECT_EQ(row.shifts, (std::vector<float>{5 - 8, 9 - 8}));
  EXPECT_EQ(row.l, 0x1p2F + 0x1p4F + 2 * 0x1p8F);
  const auto fa3 = make_loop_stabilizer("online-fa3");
  fa3->init(a);
  EXPECT_EQ(fa3->offset(), 8);
  a.kernel.p.format = bf16;
  fa3->init(a);
  EXPECT_EQ(fa3->offset(), 0);
  const auto chosen = make_loop_stabilizer("online-fa3", {{"offset", 4}});
  chosen->init(a);
  EXPECT_EQ(chosen->offset(), 4);
  EXPECT_EQ(run_row(a, "online-fa2", {3, 5}).shift, 5);
}

TEST(OnlineFa2, FiniteSentinelHidesLowRows) {
  // FlashInfer issue 4267: 64 keys of raw score -524288, m starts at -5e4
  TestArithmetic a = plain(32);
  a.c = static_cast<float>(std::sqrt(1 / 128.0)) * 1.4426950216293335F;
  a.kernel.exponent.fused = true;
  const std::vector<float> scores(64, -524288.0F);
  for (const char* name : {"online-fa2", "online-flashinfer"}) {
    const LoopRow hidden = run_row(a, name, scores, {{"initial_max", -5e4}});
    const NearestRounding nearest;
    EXPECT_NEAR(a.exponent(-524288.0F, hidden.shift), -60479.99, 0.01) << name;
    EXPECT_EQ(hidden.o[0], 0) << name;
    // l starts at 1 there, and is multiplied by the residual of m c
    EXPECT_NEAR(hidden.l, std::string(name) == "online-flashinfer" ? 1 : 0, 1e-3);
    const LoopRow right = run_row(a, name, scores);
    EXPECT_EQ(right.output(), 1) << name;
    EXPECT_NEAR(right.shift + std::log2(right.l), -66855.85877 + 6, 0.01);
  }
}

// Rows whose first tiles are hidden.

TEST(HiddenTiles, EachRuleAsPublished) {
  TestArithmetic a = plain(2);
  const std::vector<float> late = {none, none, none, none, 3, 4};
  for (const char* name :
       {"online-fa2", "online-fa3", "online-scaled", "online-flashinfer", "online-splash",
        "online-maxdiffusion", "fa4-row", "fa4-tile1", "fa4-tile2", "lazy-wave", "llama-offset"}) {
    const LoopRow row = run_row(a, name, late);
    EXPECT_EQ(row.output(), 1) << name;
    EXPECT_NEAR(row.shift + std::log2(row.l), std::log2(24.0), 1e-6) << name;
  }
  // without the check: (-inf) - (-inf) from the second tile on
  for (const char* name : {"online-triton", "online-rpa"}) {
    const LoopRow row = run_row(a, name, late);
    EXPECT_EQ(row.shifts[0], none) << name;
    EXPECT_TRUE(std::isnan(row.l)) << name;
  }
  EXPECT_TRUE(std::isnan(run_row(a, "online-scaled", late, {{"guard", 0}}).l));
  const LoopRow unchecked = run_row(a, "online-fa2", late, {{"check_inf", 0}});
  EXPECT_EQ(unchecked.shifts[0], 0);  // weights are safe, the correction is not
  EXPECT_EQ(unchecked.corrections[0], 1);
  EXPECT_TRUE(std::isnan(unchecked.corrections[1]));

  const LoopRow guarded = run_row(a, "online-fa2", late);
  EXPECT_EQ(guarded.shifts, (std::vector<float>{0, 0, 4}));
  EXPECT_EQ(guarded.corrections, (std::vector<float>{1, 0, 0}));
  const LoopRow finite = run_row(a, "online-flashinfer", late);
  EXPECT_EQ(finite.shifts, (std::vector<float>{-0x1.FFFFFEp127F, -0x1.FFFFFEp127F, 4}));
  EXPECT_EQ(finite.corrections, (std::vector<float>{0, 0, 0}));
  const LoopRow splash = run_row(a, "online-splash", late);
  EXPECT_EQ(splash.shifts[0], static_cast<float>(-0.7 * 0x1.FFFFFEp127));
  EXPECT_EQ(splash.corrections, (std::vector<float>{1, 1, 0}));
}

TEST(HiddenTiles, AfterVisibleOnes) {
  TestArithmetic a = plain(2);
  const std::vector<float> early = {3, 4, none, none};
  for (const char* name :
       {"online-fa2", "online-fa3", "online-scaled", "online-triton", "online-rpa",
        "online-flashinfer", "online-splash", "fa4-row", "fa4-tile1", "lazy-wave"}) {
    const LoopRow row = run_row(a, name, early);
    EXPECT_EQ(row.output(), 1) << name;
    EXPECT_EQ(row.shift + std::log2(row.l), 4 + std::log2(1.5F)) << name;
  }
}

TEST(OnlineTriton, StartsAtOneAndForgetsIt) {
  TestArithmetic a = plain(1);
  const LoopRow row = run_row(a, "online-triton", {5, 6});
  EXPECT_EQ(row.corrections, (std::vector<float>{0, 0.5F}));
  EXPECT_EQ(row.l, 1.5F);
  EXPECT_EQ(make_loop_stabilizer("online-triton")->initial_denominator(), 1);
  // a negative factor: the tile's maximum is scaled, not the maximum of scaled scores
  a.c = -1;
  a.kernel.tiles.keys = 2;
  EXPECT_EQ(run_row(a, "online-triton", {1, 3}).shift, -3);
  EXPECT_EQ(run_row(a, "online-scaled", {1, 3}).shift, -1);
}

TEST(OnlineSplash, MaximumKeepsNan) {
  TestArithmetic a = plain(2);
  EXPECT_TRUE(std::isnan(run_row(a, "online-splash", {1, nan_}).shift));
  EXPECT_EQ(run_row(a, "online-splash", {1, nan_}, {{"nan_max", 0}}).shift, 1);
  EXPECT_EQ(run_row(a, "online-fa2", {1, nan_}).shift, 1);
  EXPECT_TRUE(std::isnan(run_row(a, "online-fa2", {1, nan_}).l));
}

TEST(OnlineSplash, FormatsTooNarrowForItsStart) {
  TestArithmetic a = plain(2);
  a.kernel.exponent.format = fp16;
  EXPECT_EQ(run_row(a, "online-splash", {none, none}).shift, -65504);
}

TEST(OnlineRpa, RoundedMaximumUndershoots) {
  TestArithmetic a = plain(1);
  a.kernel.exponent.base = ExponentBase::e;
  a.kernel.stabilizer.store = bf16;
  // ties to even below: |m| ~ 2^13 gives e^32, 2^14 e^64, 2^15 e^128, which is infinite
  const LoopRow small = run_row(a, "online-rpa", {8192 + 32});
  EXPECT_EQ(small.shift, 8192);
  EXPECT_EQ(small.l, std::exp(32.0F));
  EXPECT_EQ(run_row(a, "online-rpa", {16384 + 64}).l, std::exp(64.0F));
  EXPECT_EQ(run_row(a, "online-rpa", {32768 + 128}).l, infinity);
  // 1009 is stored as 1008; the factor e^-8 is rounded to BF16
  const LoopRow row = run_row(a, "online-rpa", {1000, 1009});
  EXPECT_EQ(row.shifts, (std::vector<float>{1000, 1008}));
  EXPECT_EQ(row.corrections[1], static_cast<float>(round_to(bf16, std::exp(-8.0))));
  EXPECT_EQ(run_row(a, "online-rpa", {1000, 1009}, {{"narrow_correction", 0}}).corrections[1],
            std::exp(-8.0F));
  // -2.9921875 is halfway between BF16 numbers, -3 the even one
  const LoopRow tie = run_row(a, "online-rpa", {1.0078125F, 4});
  EXPECT_EQ(tie.corrections[1], static_cast<float>(round_to(bf16, std::exp(-3.0))));
  EXPECT_EQ(run_row(a, "online-rpa", {1.0078125F, 4}, {{"narrow_correction", 0}}).corrections[1],
            static_cast<float>(std::exp(-2.9921875)));
}

TEST(Sinks, StartTheMaximum) {
  TestArithmetic a = plain(2);
  a.sink_score = 6.0F;
  a.c = 0.5F;
  for (const char* name : {"online-fa2", "online-scaled", "online-splash", "online-flashinfer",
                           "online-triton", "fa4-row", "lazy-wave"}) {
    const LoopRow row = run_row(a, name, {8, 8, 16, 8}, {});
    // sink 2^6, keys 2^4, 2^4, 2^8, 2^4
    EXPECT_NEAR(row.shift + std::log2(row.l), std::log2(64.0 + 48 + 256), 1e-6) << name;
    EXPECT_EQ(row.output(), 304.0F / 368) << name;
  }
}

TEST(LlamaOffset, LeavesRoomAndFlushes) {
  TestArithmetic a = plain(1);
  a.kernel.exponent.base = ExponentBase::e;
  const auto added = static_cast<float>(3 * 0.6931);
  const LoopRow row = run_row(a, "llama-offset", {1, 2, 23});
  EXPECT_EQ(row.shifts, (std::vector<float>{1 + added, 2 + added, 23 + added}));
  EXPECT_EQ(row.corrections[0], 0);
  EXPECT_NEAR(row.corrections[1], std::exp(-1.0), 1e-6);
  EXPECT_EQ(row.corrections[2], 0);  // below e^-20
  EXPECT_NEAR(row.l, 0.125, 1e-4);
  EXPECT_EQ(run_row(a, "llama-offset", {none}).shift, -65504.0F / 2);
}

// FlashAttention-4.

TEST(Fa4, RowsKeepMaximaThatLagAtMostTheThreshold) {
  TestArithmetic a = plain(1);
  const LoopRow row = run_row(a, "fa4-row", {0, 8, 8.5F, 3});
  EXPECT_EQ(row.shifts, (std::vector<float>{0, 0, 8.5F, 8.5F}));
  EXPECT_EQ(row.corrections[1], 1);
  EXPECT_EQ(row.corrections[2], std::exp2(-8.5F));
  EXPECT_EQ(row.corrections[3], 1);
  const LoopRow always = run_row(a, "fa4-row", {0, 8, 8.5F, 3}, {{"threshold", 0}});
  EXPECT_EQ(always.shifts, (std::vector<float>{0, 8, 8.5F, 8.5F}));
  // the threshold is on scaled scores
  a.c = 0.5F;
  EXPECT_EQ(run_row(a, "fa4-row", {0, 16}).shift, 0);
  EXPECT_EQ(run_row(a, "fa4-row", {0, 16.5F}).shift, 8.25F);
}

TEST(Fa4, DefaultsFollowTheFormatOfWeights) {
  TestArithmetic a = plain(1);
  a.kernel.p.format = e4m3fn;
  const auto fa4 = make_loop_stabilizer("fa4-row");
  fa4->init(a);
  EXPECT_EQ(fa4->offset(), 8);
  EXPECT_EQ(run_row(a, "fa4-row", {0, 1}).shifts, (std::vector<float>{-8, -7}));
  a.kernel.p.format = fp16;
  fa4->init(a);
  EXPECT_EQ(fa4->offset(), 0);
  EXPECT_EQ(run_row(a, "fa4-row", {0, 1}).shifts, (std::vector<float>{0, 0}));
}

TEST(Fa4, Fp8WeightsSaturateBehindAStaleMaximum) {
  // flash-attention issue 2577: 127 keys at 0 with V = -1, then one at 4 with V = 1
  TestArithmetic a = plain(127);
  a.kernel.p.format = e4m3fn;
  a.kernel.p.saturate = true;
  Scores scores(1, std::vector<float>(128, 0.0F)), v(128, {-1.0F});
  scores[0][127] = 4;
  v[127] = {1};
  const auto output = [&](const LoopParameters& p) {
    return run(a, "fa4-row", scores, v, p)[0].output();
  };
  EXPECT_NEAR(output({{"threshold", 4}, {"offset", 8}}), -0.87587, 5e-6);
  EXPECT_NEAR(output({{"threshold", 4}, {"offset", 4}}), -0.77622, 5e-6);
  EXPECT_NEAR(output({}), -0.77622, 5e-6);  // threshold 0
  // one key before it, V = (0, 1)
  a.kernel.tiles.keys = 1;
  const Scores two = {{0, 4}}, last = {{0}, {1}};
  EXPECT_NEAR(run(a, "fa4-row", two, last, {{"threshold", 4}, {"offset", 8}})[0].output(), 0.102941,
              1e-6);
  EXPECT_NEAR(run(a, "fa4-row", two, last)[0].output(), 0.941176, 1e-6);
}

TEST(Fa4, TileReadings) {
  TestArithmetic a = plain(1);
  const Scores scores = {{0, 5, 5}, {0, 20, 20}, {7, 1, 1}};
  const auto rows = run(a, "fa4-row", scores, ones(3));
  EXPECT_EQ(rows[0].shifts, (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(rows[1].shifts, (std::vector<float>{0, 20, 20}));
  EXPECT_EQ(rows[2].shifts, (std::vector<float>{7, 7, 7}));
  const auto tile1 = run(a, "fa4-tile1", scores, ones(3));
  EXPECT_EQ(tile1[0].shifts, (std::vector<float>{0, 5, 5}));
  EXPECT_EQ(tile1[0].corrections, (std::vector<float>{1, 0x1p-5F, 1}));
  EXPECT_EQ(tile1[1].shifts, (std::vector<float>{0, 20, 20}));
  EXPECT_EQ(tile1[2].shifts, (std::vector<float>{7, 7, 7}));
  EXPECT_EQ(tile1[2].corrections, (std::vector<float>{1, 1, 1}));
  // nobody beyond: nobody moves
  EXPECT_EQ(run(a, "fa4-tile1", {{0, 5}, {0, 8}}, ones(2))[0].shifts, (std::vector<float>{0, 0}));
  EXPECT_TRUE(make_loop_stabilizer("fa4-tile1")->couples_rows());
  EXPECT_FALSE(make_loop_stabilizer("fa4-row")->couples_rows());
  const auto tile2 = run(a, "fa4-tile2", scores, ones(3));
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(tile2[r].shifts, rows[r].shifts);
    EXPECT_EQ(tile2[r].corrections, rows[r].corrections);
  }
}

TEST(LazyWave, OneRowRescalesAll) {
  // FlyDSL pull request 1033: row 0 gets 2^160
  TestArithmetic a = plain(128);
  Scores scores(2, std::vector<float>(256));
  for (std::size_t j = 0; j < 256; ++j) {
    scores[0][j] = j < 128 ? 100 : -60;
    scores[1][j] = j < 128 ? 0 : 20;
  }
  const auto wave = run(a, "lazy-wave", scores, ones(256));
  EXPECT_EQ(wave[0].corrections[1], infinity);
  EXPECT_EQ(wave[0].shift, -60);
  EXPECT_TRUE(std::isnan(wave[0].output()));
  EXPECT_EQ(wave[1].corrections[1], 0x1p-20F);
  EXPECT_EQ(wave[1].output(), 1);
  const auto running = run(a, "lazy-wave", scores, ones(256), {{"running_max", 1}});
  EXPECT_EQ(running[0].corrections[1], 1);
  EXPECT_EQ(running[0].shift, 100);
  EXPECT_EQ(running[0].output(), 1);
  // waves of one row are rows
  EXPECT_EQ(run(a, "lazy-wave", scores, ones(256), {{"wave", 1}})[0].shift, 100);
  EXPECT_EQ(run(a, "lazy-wave", scores, ones(256), {{"threshold", 20}})[0].shift, 100);
  EXPECT_EQ(run_row(a, "fa4-row", scores[0]).shift, 100);
  EXPECT_TRUE(make_loop_stabilizer("lazy-wave")->couples_rows());
}

// Fixed numbers.

TEST(FlashDecoding, Window) {
  // the paper's figure: a = -3, b = 3, phi = 6
  TestArithmetic a = plain(2);
  a.kernel.exponent.base = ExponentBase::e;
  const LoopParameters figure = {{"phi", 6}, {"a", -3}, {"b", 3}};
  EXPECT_FALSE(run_row(a, "fdpp", {4, 5, 6, 7}, figure).recompute);
  EXPECT_TRUE(run_row(a, "fdpp", {4, 9, 6, 7}, figure).recompute);
  EXPECT_FALSE(run_row(a, "fdpp", {4, std::nextafter(9.0F, 0.0F)}, figure).recompute);
  EXPECT_TRUE(run_row(a, "fdpp", {3, 5}, figure).recompute);  // a itself is outside
  EXPECT_FALSE(run_row(a, "fdpp", {4, none}, figure).recompute);
  EXPECT_TRUE(run_row(a, "fdpp", {4, nan_}, figure).recompute);
  EXPECT_EQ(run_row(a, "fdpp", {4, 5}, figure).shift, 6);
  EXPECT_EQ(make_loop_stabilizer("fdpp")->fallback(), "online-fa2");
  EXPECT_EQ(make_loop_stabilizer("fdpp-untested")->fallback(), "");
  // only the row concerned
  const auto rows = run(a, "fdpp", {{4, 5}, {4, 10}, {5, 5}}, ones(2), figure);
  EXPECT_FALSE(rows[0].recompute);
  EXPECT_TRUE(rows[1].recompute);
  EXPECT_FALSE(rows[2].recompute);
}

TEST(FlashDecoding, WindowIsNaturalInBase2) {
  TestArithmetic a = plain(1);
  a.c = static_cast<float>(log2_e);
  for (const bool fused : {false, true}) {
    a.kernel.exponent.fused = fused;
    const LoopParameters p = {{"phi", 1}, {"a", -3}, {"b", 3}};
    EXPECT_EQ(run_row(a, "fdpp", {1}, p).shift, static_cast<float>(log2_e));
    EXPECT_FALSE(run_row(a, "fdpp", {3.999F, -1.999F}, p).recompute);
    EXPECT_TRUE(run_row(a, "fdpp", {4.001F}, p).recompute);
    EXPECT_TRUE(run_row(a, "fdpp", {-2.001F}, p).recompute);
  }
}

TEST(FlashDecoding, FastTestIsTheExactOne) {
  std::mt19937_64 random(3);
  const LoopParameters p = {{"phi", 0.3}, {"a", -2}, {"b", 2}};
  int outside_rows = 0;
  for (const Format& format : {fp32, bf16}) {
    for (const bool fused : {false, true}) {
      TestArithmetic a = plain(3);
      a.kernel.exponent.format = format;
      a.kernel.exponent.fused = fused;
      a.c = 0.37F;
      const NearestRounding nearest;
      const float phi = a.round_exponent(0.3 * log2_e), low = a.round_exponent(-2 * log2_e),
                  high = a.round_exponent(2 * log2_e);
      for (int trial = 0; trial < 500; ++trial) {
        std::vector<float> s(3);
        for (float& x : s) {  // around the ends of the window, or anywhere
          x = static_cast<float>(random() % 4001) / 250.0F - 8;
          if (trial % 2 != 0) {
            const double end = (random() % 2 == 0 ? low : high) + double{phi};
            x = static_cast<float>(end / a.c);
            const int steps = static_cast<int>(random() % 9) - 4;
            for (int i = 0; i < std::abs(steps); ++i)
              x = std::nextafter(x, steps > 0 ? 99.F : -99.F);
          }
        }
        bool outside = false;
        for (const float x : s) {
          // the scores are so that these double differences are exact, or rounded far below
          const float e = fused ? a.round_exponent(static_cast<double>(
                                      static_cast<long double>(double{x} * a.c) - phi))
                                : a.round_exponent(double{a.scaled(x)} - phi);
          outside = outside || e <= low || e >= high;
        }
        outside_rows += outside ? 1 : 0;
        EXPECT_EQ(run_row(a, "fdpp", s, p).recompute, outside)
            << format.name << fused << std::hexfloat << " " << s[0] << " " << s[1] << " " << s[2];
      }
    }
  }
  EXPECT_GT(outside_rows, 500);
  EXPECT_LT(outside_rows, 1950);
}

TEST(FlashDecoding, UntestedPhi) {
  // executorch pull request 22133, phi = 5, natural exponents in FP32
  TestArithmetic a = plain(4096);
  a.kernel.exponent.base = ExponentBase::e;
  EXPECT_EQ(run_row(a, "fdpp-untested", {93.73F}).l, infinity);
  EXPECT_NE(run_row(a, "fdpp-untested", {93.72F}).l, infinity);
  EXPECT_EQ(run_row(a, "fdpp-untested", std::vector<float>(4096, 85.42F)).l, infinity);
  EXPECT_NE(run_row(a, "fdpp-untested", std::vector<float>(4096, 85.39F)).l, infinity);
  EXPECT_EQ(run_row(a, "fdpp-untested", {-98.98F, -99.5F}).l, 0);
  EXPECT_GT(run_row(a, "fdpp-untested", {-98.9F}).l, 0);
  EXPECT_TRUE(run_row(a, "fdpp", {93.73F}, {{"phi", 5}}).recompute);
}

TEST(ConstantMaxima, EstimateAndSoftcap) {
  TestArithmetic a = plain(1);
  EXPECT_EQ(run_row(a, "static-max", {1, 2}, {{"estimate", 30}}).shifts,
            (std::vector<float>(2, static_cast<float>(30 * log2_e))));
  a.kernel.exponent.base = ExponentBase::e;
  EXPECT_EQ(run_row(a, "static-max", {1}, {{"estimate", 30}}).shift, 30);
  EXPECT_THROW(run_row(a, "softcap-max", {1}), InputError);
  a.cap = 72.125F;
  EXPECT_EQ(run_row(a, "softcap-max", {1, 2}).shifts, (std::vector<float>(2, 72.125F)));
}

// Frozen maxima.

TestArithmetic with_operands(int tile, int queries, Scores q, Scores k) {
  TestArithmetic a = plain(tile);
  a.kernel.tiles.queries = queries;
  a.q = std::move(q);
  a.k = std::move(k);
  return a;
}
Scores scores_of(const TestArithmetic& a) {
  const NearestRounding nearest;
  Scores s(a.q.size(), std::vector<float>(a.k.size()));
  for (std::size_t r = 0; r < a.q.size(); ++r) {
    for (std::size_t j = 0; j < a.k.size(); ++j) {
      const bool seen = a.sees(static_cast<std::int64_t>(r), static_cast<std::int64_t>(j));
      s[r][j] = seen ? a.score(static_cast<std::int64_t>(r), a.k[j].data()) : none;
    }
  }
  return s;
}
const LoopParameters frozen = {{"sink_blocks", 0}, {"local_blocks", 0}};

TEST(Vfa, SignedAbsMaxKeys) {
  // block 0: (3, 2), the tie 3, -3 positive; block 1: (-4, 1)
  const TestArithmetic a =
      with_operands(2, 1, {{1, 1}, {-1, 0}, {0, -1}}, {{-3, -1}, {3, 2}, {-4, 0.5F}, {2, 1}});
  const auto rows = run(a, "vfa", scores_of(a), ones(4), frozen);
  EXPECT_EQ(rows[0].shift, 5);  // over: the true maximum is 5, of (3, 2)
  EXPECT_EQ(rows[1].shift, 4);
  EXPECT_EQ(rows[2].shift, -1);  // under: (-3, -1) scores 1
  LoopParameters safe = frozen;
  safe["safety"] = 1;
  EXPECT_EQ(run(a, "vfa", scores_of(a), ones(4), safe)[0].shift, 6);
}

TEST(Vfa, OverestimateFlushesEverything) {
  // each channel's extreme comes from another key
  Scores keys;
  for (int j = 0; j < 16; ++j) {
    keys.emplace_back(16, 0.0F);
    keys.back()[static_cast<std::size_t>(j)] = 20;
  }
  const TestArithmetic a = with_operands(16, 1, {std::vector<float>(16, 1.0F)}, keys);
  const LoopRow row = run(a, "vfa", scores_of(a), ones(16), frozen)[0];
  EXPECT_EQ(row.shift, 320);  // scores are 20
  EXPECT_EQ(row.l, 0);
  EXPECT_EQ(run(a, "vfa", scores_of(a), ones(16))[0].shift, 320);  // a maximum only grows
}

TEST(Vfa, UnderestimateOverflows) {
  // one aligned key hidden among larger elements of the other sign
  const TestArithmetic a = with_operands(3, 1, {{10, 10}}, {{10, 10}, {-11, 0}, {0, -11}});
  const LoopRow row = run(a, "vfa", scores_of(a), ones(3), frozen)[0];
  EXPECT_EQ(row.shift, -220);
  EXPECT_EQ(row.l, infinity);
  // as the sink block the tile raises m
  EXPECT_EQ(run(a, "vfa", scores_of(a), ones(3))[0].output(), 1);
}

TEST(Vfa, SinkAndLocalTilesFirst) {
  // eight tiles of one key, query blocks of one row: row 5 has its diagonal in tile 5
  Scores keys(8, {0.0F}), queries(8, {1.0F});
  for (std::size_t j = 0; j < 8; ++j) keys[j][0] = static_cast<float>(j);
  const TestArithmetic a = with_operands(1, 1, queries, keys);
  const auto order = [&](const TestArithmetic& arithmetic, std::int64_t row,
                         const LoopParameters& p) {
    const auto vfa = make_loop_stabilizer("vfa", p);
    const NearestRounding nearest;
    vfa->init(arithmetic);
    const std::vector<std::int64_t> rows = {row};
    vfa->before_loop(rows);
    std::vector<std::int64_t> tiles = {0, 1, 2, 3, 4, 5, 6, 7};
    vfa->order(tiles);
    return tiles;
  };
  using Tiles = std::vector<std::int64_t>;
  EXPECT_EQ(order(a, 5, {}), (Tiles{0, 5, 1, 2, 3, 4, 6, 7}));
  EXPECT_EQ(order(a, 0, {}), (Tiles{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(order(a, 5, {{"sink_blocks", 2}, {"local_blocks", 2}}),
            (Tiles{0, 1, 4, 5, 6, 2, 3, 7}));
  EXPECT_EQ(order(a, 5, {{"sink_blocks", 0}, {"local_blocks", 0}}),
            (Tiles{0, 1, 2, 3, 4, 5, 6, 7}));
  TestArithmetic blocks = a;
  blocks.kernel.tiles.queries = 2;  // rows 4 and 5
  EXPECT_EQ(order(blocks, 5, {}), (Tiles{0, 4, 5, 1, 2, 3, 6, 7}));
  TestArithmetic late = a;  // two queries: their diagonal ends at the last key
  late.q.resize(2);
  EXPECT_EQ(order(late, 0, {}), (Tiles{0, 6, 1, 2, 3, 4, 5, 7}));
}

TEST(Vfa, OnlineThenFrozen) {
  // tiles of two keys; representatives score 1 (tile 0), 3 (1), -1 (2)
  TestArithmetic a =
      with_operands(2, 1, {{1, 1}, {1, 1}}, {{4, -4}, {-4, -3}, {2, 1}, {0, 0}, {3, 2}, {-6, 0}});
  // with only tile 2 in sight of row 1
  a.visible = [](std::int64_t row, std::int64_t key) { return row == 0 || key >= 4; };
  const LoopParameters sink = {{"sink_blocks", 1}, {"local_blocks", 0}};
  const auto rows = run(a, "vfa", scores_of(a), ones(6), sink);
  // rep 0 = (4, -4) scores 0, rep 1 = (2, 1) 3, rep 2 = (-6, 2) -4; scores of row 0: 0 -7 3 0 5 -6
  EXPECT_EQ(rows[0].shifts, (std::vector<float>{3, 3, 3}));
  EXPECT_EQ(rows[0].l, 0x1p-3F + 0x1p-10F + 1 + 0x1p-3F + 4 + 0x1p-9F);
  // row 1 sees tile 2 only: rep 2, and what the sink tile leaves alone
  EXPECT_EQ(rows[1].shifts, (std::vector<float>{-4, -4, -4}));
  LoopParameters all = sink;
  all["visible_only"] = 0;
  EXPECT_EQ(run(a, "vfa", scores_of(a), ones(6), all)[1].shift, 3);

  // scores above their keys' (a bias, say): the sink tile raises m, then the local tile of the last
  // key does, and what follows is frozen
  const TestArithmetic b = with_operands(1, 1, {{0.5F}}, {{7}, {9}, {8}, {12}});
  const LoopRow raised = run(b, "vfa", {{7, 9, 8, 12}}, ones(4))[0];
  EXPECT_EQ(raised.shifts, (std::vector<float>{7, 12, 12, 12}));
  EXPECT_EQ(raised.corrections, (std::vector<float>{1, 0x1p-5F, 1, 1}));
}

TEST(Vfa, PrescanTakesTheSameMaximaBeforeTheLoop) {
  const TestArithmetic a =
      with_operands(2, 2, {{1, 1}, {-1, 2}}, {{10, -10}, {-9, 9}, {2, 1}, {0, 5}, {3, 2}, {-6, 4}});
  const Scores s = scores_of(a);
  const auto online = run(a, "vfa", s, ones(6)),
             prescan = run(a, "vfa", s, ones(6), {{"prescan", 1}});
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(prescan[r].shift, online[r].shift);
    EXPECT_EQ(prescan[r].corrections, (std::vector<float>{1, 1, 1}));
    EXPECT_EQ(prescan[r].l, online[r].l);
  }
}

TEST(VfaSampled, MaximumOverSomeBlocks) {
  std::mt19937_64 random(4);
  Scores keys(64, std::vector<float>(2)), queries(3, std::vector<float>(2));
  for (auto* m : {&keys, &queries}) {
    for (auto& row : *m) {
      for (float& x : row) x = static_cast<float>(random() % 64) - 32;
    }
  }
  TestArithmetic a = with_operands(4, 1, queries, keys);
  const Scores s = scores_of(a);
  const auto maximum = [&](std::size_t r, std::size_t begin, std::size_t end) {
    return *std::max_element(s[r].begin() + static_cast<std::ptrdiff_t>(begin),
                             s[r].begin() + static_cast<std::ptrdiff_t>(end));
  };
  std::vector<bool> seen(16);
  for (int seed = 0; seed < 40; ++seed) {
    const auto rows = run(a, "vfa-sampled", s, ones(64), {{"blocks", 1}, {"seed", double(seed)}});
    // one block, the same for each row
    bool some = false;
    for (std::size_t b = 0; b < 16; ++b) {
      bool all = true;
      for (std::size_t r = 0; r < 3; ++r)
        all = all && rows[r].shift == maximum(r, 4 * b, 4 * b + 4);
      some = some || all;
      seen[b] = seen[b] || all;
    }
    EXPECT_TRUE(some) << seed;
  }
  EXPECT_GT(std::count(seen.begin(), seen.end(), true), 8);
  for (const double blocks : {16.0, 100.0}) {
    const auto rows = run(a, "vfa-sampled", s, ones(64), {{"blocks", blocks}});
    for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(rows[r].shift, maximum(r, 0, 64));
  }
  const auto rows = run(a, "vfa-sampled", s, ones(64), {{"blocks", 16}, {"safety", 1.5}});
  EXPECT_EQ(rows[0].shift, maximum(0, 0, 64) + 1.5F);
  // a row whose sampled keys are all hidden subtracts nothing
  a.visible = [](std::int64_t row, std::int64_t) { return row != 1; };
  EXPECT_EQ(run(a, "vfa-sampled", scores_of(a), ones(64), {{"blocks", 16}})[1].shift, 0);
}

TEST(VfaSampled, TopBlocksByMeanKeys) {
  // mean keys score 1, 3, 2; the largest single key is in block 0
  TestArithmetic a = with_operands(2, 1, {{1}}, {{10}, {-8}, {3}, {3}, {0}, {4}});
  const Scores s = scores_of(a);
  const auto shift = [&](double blocks) {
    return run(a, "vfa-sampled", s, ones(6), {{"blocks", blocks}, {"top", 1}})[0].shift;
  };
  EXPECT_EQ(shift(1), 3);
  EXPECT_EQ(shift(2), 4);
  EXPECT_EQ(shift(3), 10);
}

}  // namespace
}  // namespace headroom
