// Numerical failures of attention kernels reported in public: what exact attention is there. The
// expected numbers are worked out by hand from the construction, never by the ladder.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/evaluate/ladder/ladder.h"
#include "tests/unit/ladder/oracle.h"

namespace headroom {
namespace {

using ladder_test::problem_of;
using ladder_test::Source;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

struct Result {
  double output;
  double lse;
};
/// Row `i`, channel `c` correctly rounded to FP64 (to nearest).
Result at(const AttentionProblem& p, std::int64_t i = 0, std::int64_t c = 0) {
  LadderOptions o;
  o.output.format = o.lse.format = fp64;
  const std::int64_t rows[] = {i};
  const RoundedRows r = correctly_rounded(p, rows, o);
  return {decode(fp64, r.output_code(0, c)), decode(fp64, r.lse_code(0))};
}
Matrix filled(const Format& f, std::int64_t rows, std::int64_t columns, double x) {
  return Matrix::from_values(f, rows, columns,
                             std::vector<double>(static_cast<std::size_t>(rows * columns), x));
}
Matrix column(const Format& f, const std::vector<double>& x) {
  return Matrix::from_values(f, static_cast<std::int64_t>(x.size()), 1, x);
}

// pytorch 121558: all operands 133120.
TEST(PublicRecords, ExponentOfTheMaximumIsNoResidual) {
  const AttentionProblem p = problem_of(filled(bf16, 1, 64, 133120), filled(bf16, 1, 64, 133120),
                                        filled(bf16, 1, 64, 133120), Scale::reciprocal_sqrt(64));
  EXPECT_EQ(at(p).output, 133120);
  EXPECT_EQ(at(p).lse, 141767475200.0);
}

// pytorch 119131: a score of 71234, one-hot up to 3 e^-322.
TEST(PublicRecords, ScoresBeyondFp16) {
  const AttentionProblem p =
      problem_of(Matrix::from_values(fp16, 1, 2, {256, 2}),
                 Matrix::from_values(fp16, 4, 2, {277, 0, 277, 0, 277, 0, 278, 33}),
                 Matrix::from_values(fp16, 4, 4, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}),
                 Scale::natural(1));
  EXPECT_EQ(at(p, 0, 3).output, 1);
  EXPECT_EQ(at(p).lse, 71234);
  EXPECT_NEAR(at(p, 0, 0).output / std::exp(-322.0), 1, 1e-12);
}

// flashinfer 4267: raw scores below a finite sentinel.
TEST(PublicRecords, AllScoresFarBelowZero) {
  const AttentionProblem p = problem_of(filled(bf16, 1, 128, 64), filled(bf16, 64, 128, -64),
                                        filled(bf16, 64, 1, 1), Scale::reciprocal_sqrt(128));
  EXPECT_EQ(at(p).output, 1);
  EXPECT_NEAR(at(p).lse, -524288 / std::sqrt(128.0) + std::log(64.0), 1e-9);
}

// lattice 361 (key 1 masked by -10000, the valid score is -20000), select-type mask.
TEST(PublicRecords, MaskedKeyIsNotSeen) {
  AttentionProblem p = problem_of(column(fp32, {-20000}), column(fp32, {1, 0}),
                                  column(fp32, {1, 100}), Scale::natural(1));
  p.mask = {1, 0};
  EXPECT_EQ(at(p).output, 1);
  EXPECT_EQ(at(p).lse, -20000);
  // as the finite bias it is, exact attention is what the kernel gave
  p.mask.clear();
  p.bias = Matrix::from_values(fp32, 1, 2, {0, -10000});
  EXPECT_EQ(at(p).output, 100);
}

// transformers 10484: learned scores below a -10000 mask.
TEST(PublicRecords, FiniteBiasKeepsItsMass) {
  AttentionProblem p = problem_of(column(fp32, {1}), column(fp32, {-10005, -10004, 0}),
                                  column(fp32, {0, 0, 1}), Scale::natural(1));
  p.bias = Matrix::from_values(fp32, 1, 3, {0, 0, -10000});
  EXPECT_NEAR(at(p).output, 1 / (1 + std::exp(-4.0) + std::exp(-5.0)), 1e-15);
}

// transformers 17306: a shift common to a row cancels exactly.
TEST(PublicRecords, CommonFiniteBiasCancels) {
  AttentionProblem p = problem_of(column(fp16, {1, 1}), column(fp16, {-16, 0}),
                                  column(fp16, {1, 2}), Scale::natural(1));
  const Result bare = at(p);
  p.bias = filled(fp16, 1, 2, -65504);
  EXPECT_EQ(at(p).output, bare.output);
  EXPECT_NEAR(at(p).lse, -65504, 1e-6);
}

// pytorch 109517: a bias of -FLT_MAX on every key; exact reals give softmax(scores).
TEST(PublicRecords, BiasThatAbsorbsEveryScoreInFp32) {
  const std::vector<double> k = {round_to(fp32, 0.3), round_to(fp32, -1.2), 2.0};
  AttentionProblem p =
      problem_of(column(fp32, {1}), column(fp32, k), column(fp32, {1, 2, 3}), Scale::natural(1));
  const Result bare = at(p);
  p.bias = filled(fp32, 1, 3, -fp32.max_finite());
  EXPECT_EQ(at(p).output, bare.output);
  EXPECT_EQ(at(p).lse, -fp32.max_finite());  // to nearest
}

// pytorch 103749: rows without visible keys.
TEST(PublicRecords, FullyMaskedRow) {
  AttentionProblem p = problem_of(filled(bf16, 2, 4, 1), filled(bf16, 2, 4, 1),
                                  filled(bf16, 2, 1, 3), Scale::reciprocal_sqrt(4));
  p.mask = {0, 0, 1, 1};
  EXPECT_EQ(at(p, 0).output, 0);
  EXPECT_EQ(at(p, 0).lse, -infinity);
  EXPECT_EQ(at(p, 1).output, 3);
  p.sink = 0.5;
  EXPECT_EQ(at(p, 0).output, 0);
  EXPECT_EQ(at(p, 0).lse, 0.5);
}

// vllm 48364: the first keys are masked, whatever the block.
TEST(PublicRecords, LeadingMaskedBlocks) {
  Source s(3);
  const Matrix q = s.matrix(bf16, 1, 64, Source::gaussian);
  const Matrix k = s.matrix(bf16, 128, 64, Source::gaussian);
  const Matrix v = s.matrix(bf16, 128, 1, Source::gaussian);
  for (const std::int64_t hidden : {1, 15, 16, 47, 48, 49, 96, 100}) {
    AttentionProblem masked = problem_of(q, k, v, Scale::reciprocal_sqrt(64));
    for (std::int64_t j = 0; j < 128; ++j) masked.mask.push_back(j >= hidden);
    const auto rest = [&](const Matrix& m) {
      return Matrix(nullptr, m.row_bytes(hidden), m.format(), m.rows() - hidden, m.columns(),
                    m.row_stride_bytes());
    };
    const AttentionProblem cut = problem_of(q, rest(k), rest(v), Scale::reciprocal_sqrt(64));
    EXPECT_EQ(at(masked).output, at(cut).output) << hidden;
    EXPECT_EQ(at(masked).lse, at(cut).lse) << hidden;
  }
}

// flash-attention 978: bottom-right causal with more queries than keys.
TEST(PublicRecords, RowsAboveABottomRightTriangle) {
  AttentionProblem p = problem_of(filled(bf16, 4, 2, 1), filled(bf16, 2, 2, 1),
                                  column(bf16, {4, 6}), Scale::natural(1));
  p.visibility.kind = MaskKind::causal_bottom_right;
  EXPECT_EQ(at(p, 0).lse, -infinity);
  EXPECT_EQ(at(p, 1).lse, -infinity);
  EXPECT_EQ(at(p, 1).output, 0);
  EXPECT_EQ(at(p, 2).output, 4);
  EXPECT_EQ(at(p, 3).output, 5);
}

// sglang 33064: 64 of 3136 equal keys.
TEST(PublicRecords, UniformScores) {
  std::vector<double> v(3136, 0.0);
  std::fill(v.end() - 64, v.end(), 1.0);
  const AttentionProblem p =
      problem_of(column(bf16, {1}), filled(bf16, 3136, 1, 0), column(bf16, v), Scale::natural(1));
  EXPECT_EQ(at(p).output, 64.0 / 3136);
  EXPECT_NEAR(at(p).lse, std::log(3136.0), 1e-14);
}

// EasyContext 14, executorch 18407: differences beyond the range of exp.
TEST(PublicRecords, ScoresNinetyApart) {
  const AttentionProblem p = problem_of(column(fp32, {1}), column(fp32, {-60, -60, 30}),
                                        column(fp32, {1, 1, 0}), Scale::natural(1));
  EXPECT_NEAR(at(p).output / (2 * std::exp(-90.0)), 1, 1e-13);
  EXPECT_EQ(at(p).lse, 30);  // 30 + 1.6e-39
  const AttentionProblem q = problem_of(column(fp32, {1}), column(fp32, {710, 709}),
                                        column(fp32, {1, 0}), Scale::natural(1));
  EXPECT_NEAR(at(q).lse, 710 + std::log1p(std::exp(-1.0)), 1e-12);
}

// llama.cpp 17746, candle 3727, SageAttention 388: equal weights of many keys.
TEST(PublicRecords, EqualWeightsGiveTheMeanAtEveryLength) {
  for (const std::int64_t n :
       {1023, 1024, 4096, 8192, 16383, 16384, 32767, 32768, 32769, 65535, 65536, 65537}) {
    const AttentionProblem p = problem_of(column(fp16, {0}), filled(fp16, n, 1, 1),
                                          filled(fp16, n, 1, 64), Scale::natural(1));
    EXPECT_EQ(at(p).output, 64) << n;
    LadderOptions o;
    o.output.format = bf16;
    const std::int64_t first[] = {0};
    EXPECT_EQ(correctly_rounded(p, first, o).counts.of(Rung::vector), 2) << n;
  }
}

// flash-attention 2577: one late key 4 bits above 127 others.
TEST(PublicRecords, LateMaximum) {
  std::vector<double> k(128, 0.0), v(128, -1.0);
  k.back() = 4;
  v.back() = 1;
  EXPECT_EQ(
      at(problem_of(column(bf16, {1}), column(bf16, k), column(bf16, v), Scale::base2(1))).output,
      (16.0 - 127) / (16 + 127));
  EXPECT_EQ(
      at(problem_of(column(bf16, {1}), column(bf16, {0, 4}), column(bf16, {0, 1}), Scale::base2(1)))
          .output,
      16.0 / 17);
}

// vllm 56578: softcap of large scores.
TEST(PublicRecords, SoftcapSaturates) {
  for (const double q : {4400.0, 5000.0, 10000.0, -10000.0}) {
    AttentionProblem p = problem_of(column(fp32, {q}), column(fp32, {1, 0.5}), column(fp32, {0, 1}),
                                    Scale::natural(1));
    p.softcap = Rational(50);
    EXPECT_EQ(at(p).output, 0.5) << q;  // to nearest; the capped scores differ by 4e-42
    EXPECT_NEAR(at(p).lse, (q > 0 ? 50 : -50) + std::log(2.0), 1e-13);
  }
}

// flash-attention 2374, pytorch 101967: NaN and infinities in what a row does not see.
TEST(PublicRecords, PaddingIsNeverRead) {
  Source s(8);
  std::vector<double> k(128 * 4), v(128 * 2);
  for (double& x : k) x = s.number(bf16, Source::gaussian);
  for (double& x : v) x = s.number(bf16, Source::gaussian);
  const Matrix q = s.matrix(bf16, 2, 4, Source::gaussian);
  const auto with = [&](double junk, bool by_mask) {
    std::vector<double> kk = k, vv = v;
    std::fill(kk.begin() + 3 * 4, kk.end(), junk);
    std::fill(vv.begin() + 3 * 2, vv.end(), junk);
    AttentionProblem p =
        problem_of(q, Matrix::from_values(bf16, 128, 4, kk), Matrix::from_values(bf16, 128, 2, vv),
                   Scale::reciprocal_sqrt(4));
    if (by_mask) {
      for (int j = 0; j < 128; ++j) p.mask.push_back(j < 3);
    } else {
      p.visibility.length = 3;
    }
    return at(p, 1, 1);
  };
  const Result clean = with(0, false);
  for (const double junk : {nan_value, infinity, -infinity, 0x1p100, 65536.0, 0x1p-130}) {
    for (const bool by_mask : {false, true}) {
      EXPECT_EQ(with(junk, by_mask).output, clean.output) << junk;
      EXPECT_EQ(with(junk, by_mask).lse, clean.lse) << junk;
    }
  }
}

// What a row does see makes it undefined, and only that row.
TEST(PublicRecords, VisibleNanIsUndefined) {
  AttentionProblem p = problem_of(column(bf16, {1, 1, nan_value}), column(bf16, {1, infinity, 1}),
                                  column(bf16, {1, 2, 3}), Scale::natural(1));
  p.visibility.kind = MaskKind::causal_top_left;
  EXPECT_EQ(at(p, 0).output, 1);
  EXPECT_TRUE(std::isnan(at(p, 1).output));
  EXPECT_TRUE(std::isnan(at(p, 1).lse));
  EXPECT_TRUE(std::isnan(at(p, 2).output));
}

// aiter 3334: a vector added to every key leaves O and moves LSE by s <q, c>.
TEST(PublicRecords, KeyShiftMovesOnlyLse) {
  const std::vector<double> k = {1, 0, 2, -1, 0, 1, 1, 0}, shifted = {11, 0, 2, -1, 10, 1, 1, 0};
  const Matrix q = Matrix::from_values(fp32, 1, 4, {1, 2, 3, 4});
  const Matrix v = column(fp32, {1, -2});
  const Scale half = Scale::natural(Rational(1, 2));
  const Result a = at(problem_of(q, Matrix::from_values(fp32, 2, 4, k), v, half));
  const Result b = at(problem_of(q, Matrix::from_values(fp32, 2, 4, shifted), v, half));
  EXPECT_EQ(a.output, b.output);
  EXPECT_NEAR(b.lse - a.lse, 5, 1e-14);
}

// xformers 719: all zeros.
TEST(PublicRecords, ZerosBeyondSixteenBitIndices) {
  for (const std::int64_t n : {32768, 33728, 65537}) {
    const AttentionProblem p = problem_of(filled(fp32, 1, 1, 0), filled(fp32, n, 1, 0),
                                          filled(fp32, n, 1, 0), Scale::natural(1));
    EXPECT_EQ(at(p).output, 0);
  }
}

// Splitting keys: partial (O, LSE) pairs merge to the whole within rounding.
TEST(Oracles, PartitionsMerge) {
  Source s(12);
  const Matrix q = s.matrix(bf16, 1, 8, Source::gaussian);
  const Matrix k = s.matrix(bf16, 100, 8, Source::outlier);
  const Matrix v = s.matrix(bf16, 100, 1, Source::gaussian);
  const Result whole = at(problem_of(q, k, v, Scale::reciprocal_sqrt(8)));
  double sum = 0, weight = 0;
  for (std::int64_t part = 0; part < 3; ++part) {
    AttentionProblem p = problem_of(q, k, v, Scale::reciprocal_sqrt(8));
    for (std::int64_t j = 0; j < 100; ++j) p.mask.push_back(j % 3 == part);
    const Result r = at(p);
    sum += std::exp(r.lse - whole.lse) * r.output;
    weight += std::exp(r.lse - whole.lse);
  }
  EXPECT_NEAR(weight, 1, 1e-14);
  EXPECT_NEAR(sum, whole.output, 1e-14);
}

}  // namespace
}  // namespace headroom
