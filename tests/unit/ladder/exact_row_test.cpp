// The ladder's bits against the plain MPFR oracle of exact_attention.h: all elements of small
// heads, sampled rows of a large one, the operands that kernels multiply, and every way to run it.
#include <gtest/gtest.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "reference/evaluate/exact_attention.h"
#include "reference/evaluate/ladder/ladder.h"
#include "reference/input_error.h"
#include "reference/model/kernel_file.h"
#include "reference/model/operands.h"
#include "tests/unit/ladder/oracle.h"

namespace headroom {
namespace {

using ladder_test::problem_of;
using ladder_test::real;
using ladder_test::Source;

constexpr Rounding roundings[] = {Rounding::nearest_even, Rounding::toward_zero, Rounding::upward,
                                  Rounding::downward};
const Format* const targets[] = {&fp64, &fp32, &fp16, &bf16, &e4m3fn, &e5m2};

std::vector<InstructionSet> sets() {
  std::vector<InstructionSet> r = {InstructionSet::portable};
  for (InstructionSet s : {InstructionSet::avx2, InstructionSet::avx512}) {
    if (processor_has(s)) r.push_back(s);
  }
  return r;
}

/// The code of every number within `error` of x; nothing if they have several.
std::optional<std::uint64_t> certain_code(const Target& t, const Real& x, const Real& error) {
  Real lo = real(0.0), hi = real(0.0);
  mpfr_sub(lo.backend().data(), x.backend().data(), error.backend().data(), MPFR_RNDD);
  mpfr_add(hi.backend().data(), x.backend().data(), error.backend().data(), MPFR_RNDU);
  const std::uint64_t a = encode(t.format, lo.backend().data(), t.policy());
  if (a != encode(t.format, hi.backend().data(), t.policy())) return std::nullopt;
  return a;
}

/// (2 n + 8) 2^-bits factor, the error that exact_attention.h promises; 0 without a key.
Real promised_error(std::size_t n, int bits, double factor) {
  Real e = real(n == 0 ? 0.0 : 2.0 * static_cast<double>(n) + 8);
  mpfr_mul_d(e.backend().data(), e.backend().data(), factor, MPFR_RNDU);
  mpfr_mul_2si(e.backend().data(), e.backend().data(), -bits, MPFR_RNDU);
  return e;
}

/// A channel's values among the keys [begin, begin + n).
struct ValueRange {
  double most = 0, first = 0;
  bool equal = true;
};
ValueRange values_of(const Matrix& v, std::int64_t channel, std::int64_t begin, std::size_t n) {
  ValueRange r;
  for (std::int64_t j = begin; j < begin + static_cast<std::int64_t>(n); ++j) {
    const double x = decode(v.format(), v.code(j, channel));
    if (j == begin) r.first = x;
    r.equal = r.equal && x == r.first;
    r.most = std::max(r.most, std::fabs(x));
  }
  return r;
}

/// Compares one row; returns how many elements the oracle's promise leaves open.
int compare_row(const RoundedRows& r, std::size_t i, const ExactRow& exact, const Matrix& v,
                const LadderOptions& o, int bits, const std::string& what) {
  int open = 0;
  const std::size_t n = exact.z.size();
  for (std::int64_t c = 0; c < v.columns(); ++c) {
    const Real& output = exact.output[static_cast<std::size_t>(c)];
    const ValueRange values = values_of(v, c, exact.first_key, n);
    // a mean of equal numbers is that number, exactly; a zero is +0
    const std::optional<std::uint64_t> code =
        values.equal
            ? (values.first == 0 ? 0 : encode(o.output.format, values.first, o.output.policy()))
            : certain_code(o.output, output, promised_error(n, bits, values.most));
    if (!code) {
      ++open;
      continue;
    }
    EXPECT_EQ(r.output_code(i, c), *code)
        << what << " row " << r.rows[i] << " channel " << c << " to " << o.output.format.name;
  }
  const Real& lse = o.lse_base == LseBase::two ? exact.lse2 : exact.lse;
  const auto code = certain_code(o.lse, lse, promised_error(n, bits, 1));
  open += !code;
  if (code) {
    EXPECT_EQ(r.lse_code(i), *code) << what << " row " << r.rows[i] << " LSE";
  }
  return open;
}

Head head_of(Source& s, const Format& f, std::int64_t nq, std::int64_t nk, std::int64_t d,
             std::int64_t dv, Source::Kind kind, Scale scale) {
  Head h;
  h.id = "test";
  h.q = s.matrix(f, nq, d, kind);
  h.k = s.matrix(f, nk, d, kind);
  h.v = s.matrix(f, nk, dv, kind == Source::offset ? Source::gaussian : kind);
  h.scale = scale;
  h.visibility = {.kind = MaskKind::none, .queries = nq, .keys = nk, .length = nk};
  return h;
}

TEST(ExactRow, AllElementsOfSmallHeads) {
  constexpr int bits = 700;
  Source s(314159);
  const Format formats[] = {bf16, fp16, fp32, e4m3fn, e5m2};
  const Source::Kind kinds[] = {Source::gaussian, Source::offset, Source::outlier, Source::spread};
  const MaskKind masks[] = {MaskKind::none, MaskKind::causal_top_left,
                            MaskKind::causal_bottom_right};
  std::int64_t compared = 0, open = 0;
  for (int n = 0; n < 60; ++n) {
    const std::int64_t nq = s.between(1, 12), nk = s.between(1, 60), d = s.between(1, 32);
    const Scale scales[] = {Scale::reciprocal_sqrt(static_cast<std::uint64_t>(d)),
                            Scale::natural(Rational(1, 10)), Scale::base2(Rational(3, 16))};
    Head h = head_of(s, formats[n % 5], nq, nk, d, s.between(1, 9), kinds[n % 4], scales[n % 3]);
    h.visibility.kind = masks[n / 2 % 3];
    if (n % 7 == 0) h.visibility.length = s.between(0, nk);
    LadderOptions o;
    o.output = {*targets[n % 6], roundings[n / 6 % 4]};
    o.lse = {*targets[n / 2 % 4], roundings[n / 3 % 4]};
    o.lse_base = n % 2 == 0 ? LseBase::natural : LseBase::two;
    o.instruction_set = sets()[static_cast<std::size_t>(n) % sets().size()];
    const AttentionProblem p(h);
    const RoundedRows r = correctly_rounded(p, all_rows(p), o);
    for (std::int64_t i = 0; i < nq; ++i) {
      open += compare_row(r, static_cast<std::size_t>(i), exact_row(h, i, bits), h.v, o, bits,
                          "head " + std::to_string(n));
      compared += h.value_channels() + 1;
    }
  }
  EXPECT_GT(compared, 1000);
  EXPECT_EQ(open, 0);  // exact results apart, 700 bits decide every element here
}

TEST(ExactRow, SampledRowsOfALargeHead) {
  constexpr int bits = 128;
  Source s(2718);
  Head h = head_of(s, bf16, 4096, 4096, 128, 128, Source::gaussian, Scale::reciprocal_sqrt(128));
  h.visibility.kind = MaskKind::causal_top_left;
  std::vector<std::int64_t> rows;
  for (int i = 0; i < 7; ++i) rows.push_back(s.between(0, 4095));
  rows.push_back(4095);
  const AttentionProblem p(h);
  std::vector<LadderOptions> options(2);
  options[0].output = {bf16, Rounding::nearest_even};
  options[1].output = {fp32, Rounding::upward};
  options[1].lse = {fp64, Rounding::nearest_even};
  std::vector<RoundedRows> results;
  for (const LadderOptions& o : options) results.push_back(correctly_rounded(p, rows, o));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ExactRow exact = exact_row(h, rows[i], bits);
    for (std::size_t n = 0; n < options.size(); ++n) {
      EXPECT_EQ(compare_row(results[n], i, exact, h.v, options[n], bits, "large"), 0);
    }
  }
  EXPECT_EQ(results[0].counts.of(Rung::vector) + results[0].counts.of(Rung::double_double) +
                results[0].counts.of(Rung::wide),
            static_cast<std::int64_t>(rows.size()) * 129);
}

/// The exact factor that the kernel leaves at the score, in log2 units.
Real score_factor(const Head& h, const KernelModel& kernel) {
  Real factor = real(1.0), part = real(0.0);
  if (kernel.scale.scale == FactorSite::score) {
    factor = real(h.scale.rational());
    mpfr_sqrt_ui(part.backend().data(), h.scale.radicand(), MPFR_RNDN);
    mpfr_div(factor.backend().data(), factor.backend().data(), part.backend().data(), MPFR_RNDN);
  }
  if (!h.scale.is_base2() && kernel.scale.log2e == FactorSite::score) {
    mpfr_const_log2(part.backend().data(), MPFR_RNDN);
    mpfr_div(factor.backend().data(), factor.backend().data(), part.backend().data(), MPFR_RNDN);
  }
  return factor;
}

/// The ladder over multiplied operands against scores made from Operands, all elements.
void compare_multiplied(const Head& h, const KernelModel& kernel, const std::string& what,
                        bool* same_as_stored) {
  constexpr int bits = 500;
  const AttentionProblem p = AttentionProblem::as_multiplied(h, kernel);
  LadderOptions o;
  o.output = o.lse = {fp32, Rounding::nearest_even};
  const RoundedRows r = correctly_rounded(p, all_rows(p), o);
  const AttentionProblem stored(h);
  *same_as_stored = r.output == correctly_rounded(stored, all_rows(p), o).output;
  std::unique_ptr<Operands> operands;
  {
    const UpwardRounding up;
    operands = std::make_unique<Operands>(up, h, kernel);
  }
  ASSERT_TRUE(operands->finite() && operands->keys_certain()) << what;
  const Real factor = score_factor(h, kernel);
  ASSERT_TRUE(mpfr_cmp_d(factor.backend().data(), operands->score_factor().lo()) >= 0 &&
              mpfr_cmp_d(factor.backend().data(), operands->score_factor().hi()) <= 0)
      << what;
  const auto d = static_cast<std::size_t>(h.channels());
  std::vector<double> q(d), k(d), hi(d), v(static_cast<std::size_t>(h.value_channels()));
  for (std::int64_t i = 0; i < h.queries(); ++i) {
    operands->query_row(i, q.data());
    std::vector<Real> z;
    std::vector<double> values;
    const KeyRange keys = h.visibility.visible(i);
    for (std::int64_t j = keys.begin; j < keys.end; ++j) {
      operands->key_row(j, k.data(), hi.data());
      ASSERT_EQ(k, hi) << what;
      Real score = real(0.0);
      const Real dot = exact_dot(q.data(), k.data(), h.channels());
      mpfr_mul(score.backend().data(), dot.backend().data(), factor.backend().data(), MPFR_RNDN);
      z.push_back(std::move(score));
      h.v.load_row(j, v.data());
      values.insert(values.end(), v.begin(), v.end());
    }
    const ExactRow exact = exact_row_from_scores(z, values, h.value_channels(), bits);
    EXPECT_EQ(compare_row(r, static_cast<std::size_t>(i), exact, h.v, o, bits, what), 0) << what;
  }
}

/// Keys whose FP32 sum is exact in any order: small multiples of 1/8, so that centring is certain.
Head certain_head(Source& s, const Format& f, std::int64_t d, Scale scale) {
  Head h = head_of(s, f, 9, 64, d, 7, Source::gaussian, scale);
  std::vector<double> k(static_cast<std::size_t>(64 * d));
  for (double& x : k) x = static_cast<double>(s.between(-9, 20)) / 8;
  h.k = Matrix::from_values(f, 64, d, k);
  return h;
}

TEST(Multiplied, EqualsTheOracleOverTheKernelsOperands) {
  Source s(161803);
  int folded = 0;
  for (const std::string& name : preset_names()) {
    const KernelModel kernel = preset(name);
    for (const MaskKind mask : {MaskKind::none, MaskKind::causal_bottom_right}) {
      for (const Scale& scale : {Scale::reciprocal_sqrt(24), Scale::natural(Rational(1, 4)),
                                 Scale::base2(Rational(5, 16))}) {
        Head h = certain_head(s, kernel.operand, 24, scale);
        h.visibility.kind = mask;
        const bool folds = kernel.scale.scale != FactorSite::score;
        bool same = false;
        ASSERT_NO_FATAL_FAILURE(compare_multiplied(
            h, kernel, name + ", scale " + scale.text() + ", " + to_text(mask), &same));
        const bool pre_rounds = folds || kernel.centring.keys == Centring::mean;
        if (!pre_rounds) {
          EXPECT_TRUE(same) << name;
        }
        folded += !same;
      }
    }
  }
  EXPECT_GE(folded, 6);  // tpu7x and tpu-v6e fold, in every combination
}

TEST(Multiplied, RefusesWhatDependsOnTheOrderOfAMean) {
  Source s(1);
  const Head h = head_of(s, bf16, 2, 500, 16, 2, Source::spread, Scale::reciprocal_sqrt(16));
  const KernelModel kernel = preset("tpu7x");
  const UpwardRounding up;
  const Operands operands(up, h, kernel);
  ASSERT_FALSE(operands.keys_certain());
  const NearestRounding nearest;
  EXPECT_THROW(AttentionProblem::as_multiplied(h, kernel), InputError);
}

// Every instruction set, one thread and two, tall and low panels: the same bits. FP64 targets, so
// that the later rungs have work.
TEST(Invariance, InstructionSetsThreadsAndPanels) {
  Source s(55);
  for (int n = 0; n < 4; ++n) {
    const Format& f = n % 2 == 0 ? bf16 : fp32;
    AttentionProblem p =
        problem_of(s.matrix(f, 70, 20, Source::gaussian), s.matrix(f, 131, 20, Source::outlier),
                   s.matrix(f, 131, 5, Source::gaussian), Scale::reciprocal_sqrt(20));
    if (n > 0) p.visibility.kind = MaskKind::causal_bottom_right;
    if (n > 1) {
      p.bias = s.matrix(bf16, 1, 131, Source::gaussian);
      p.sink = 0.5;
      for (int j = 0; j < 131; ++j) p.mask.push_back(j % 5 != 3);
    }
    if (n == 3) p.softcap = Rational(7);
    LadderOptions o;
    o.output = {n % 2 == 0 ? fp64 : fp32, Rounding::nearest_even};
    o.lse = {fp64, Rounding::downward};
    const auto run = [&](const std::vector<std::int64_t>& rows, int threads) {
      RoundedRows r;
      oneapi::tbb::task_arena arena(threads);
      arena.execute([&] { r = correctly_rounded(p, rows, o); });
      return r;
    };
    o.instruction_set = InstructionSet::portable;
    const std::vector<std::int64_t> all = all_rows(p);
    const RoundedRows expected = run(all, 1);
    EXPECT_EQ(expected.counts.of(Rung::undecided), 0);
    for (const InstructionSet set : sets()) {
      o.instruction_set = set;
      for (const int threads : {1, 2}) {
        const RoundedRows r = run(all, threads);
        EXPECT_EQ(r.output, expected.output) << n << " " << name(set) << " " << threads;
        EXPECT_EQ(r.lse, expected.lse) << n << " " << name(set) << " " << threads;
      }
      for (const std::int64_t count : {1, 3, 9}) {
        std::vector<std::int64_t> few(all.end() - count, all.end());
        const RoundedRows r = run(few, 2);
        for (std::size_t i = 0; i < few.size(); ++i) {
          const auto at = static_cast<std::size_t>(few[i]);
          EXPECT_EQ(r.lse_code(i), expected.lse_code(at)) << n << " " << name(set);
          for (std::int64_t c = 0; c < 5; ++c) {
            EXPECT_EQ(r.output_code(i, c), expected.output_code(at, c)) << n << " " << name(set);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace headroom
