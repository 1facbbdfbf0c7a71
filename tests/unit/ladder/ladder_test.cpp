// The ladder against plain MPFR: every element of small heads of every kind, bit for bit, and each
// rung alone against the others.
#include "reference/evaluate/ladder/ladder.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "reference/evaluate/ladder/pair_rung.h"
#include "reference/evaluate/ladder/vector_rung.h"
#include "tests/unit/ladder/oracle.h"

namespace headroom {
namespace {

using ladder_test::oracle_row;
using ladder_test::OracleRow;
using ladder_test::problem_of;
using ladder_test::rounded_oracle;
using ladder_test::Source;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr Rounding roundings[] = {Rounding::nearest_even, Rounding::toward_zero, Rounding::upward,
                                  Rounding::downward};
const Format* const targets[] = {&fp64, &fp32, &fp16, &bf16, &e4m3fn, &e5m2};

int multiplier() {
  const char* text = std::getenv("HEADROOM_TEST_MULTIPLIER");
  return text != nullptr ? std::max(1, std::atoi(text)) : 1;
}

std::vector<InstructionSet> sets() {
  std::vector<InstructionSet> r = {InstructionSet::portable};
  for (InstructionSet s : {InstructionSet::avx2, InstructionSet::avx512}) {
    if (processor_has(s)) r.push_back(s);
  }
  return r;
}

/// A random problem with a random choice of everything.
AttentionProblem random_problem(Source& s, std::int64_t most_keys) {
  const Format formats[] = {bf16, fp16, fp32, e4m3fn, e5m2};
  const Format f = formats[s.between(0, 4)];
  const auto kind = [&] { return static_cast<Source::Kind>(s.between(0, Source::kinds - 1)); };
  const std::int64_t nk = s.between(1, most_keys), d = s.between(1, 40), dv = s.between(1, 9);
  const std::int64_t nq = s.between(1, 9);
  const Scale scales[] = {Scale::reciprocal_sqrt(static_cast<std::uint64_t>(d)),
                          Scale::natural(Rational(1, 10)), Scale::natural(1),
                          Scale::base2(Rational(3, 16)), Scale::natural(Rational(-1, 4))};
  AttentionProblem p = problem_of(s.matrix(f, nq, d, kind()), s.matrix(f, nk, d, kind()),
                                  s.matrix(f, nk, dv, kind()), scales[s.between(0, 4)]);
  switch (s.between(0, 3)) {
    case 1:
      p.visibility.kind = MaskKind::causal_top_left;
      break;
    case 2:
      p.visibility.kind = MaskKind::causal_bottom_right;
      break;
    case 3:
      p.visibility.length = s.between(0, nk);
      break;
  }
  if (s.between(0, 3) == 0) p.window = Window{s.between(-1, 5), s.between(-1, 3)};
  if (s.between(0, 3) == 0) {
    for (std::int64_t i = 0; i < nq; ++i) p.query_segments.push_back(int(s.between(0, 1)));
    for (std::int64_t i = 0; i < nk; ++i) p.key_segments.push_back(int(s.between(0, 1)));
  }
  if (s.between(0, 3) == 0) {
    const bool shared = s.between(0, 1) == 0;
    for (std::int64_t i = 0; i < (shared ? nk : nq * nk); ++i) {
      p.mask.push_back(s.between(0, 2) != 0);
    }
  }
  if (s.between(0, 2) == 0) {
    const std::int64_t rows = s.between(0, 1) == 0 ? 1 : nq;
    std::vector<double> b(static_cast<std::size_t>(rows * nk));
    for (double& x : b) {
      x = round_to(bf16, s.uniform(-3, 3));
      if (s.between(0, 6) == 0) x = -infinity;
      if (s.between(0, 6) == 0) x = -200;  // within what the oracle can resolve
    }
    p.bias = Matrix::from_values(fp32, rows, nk, b);
  }
  if (s.between(0, 3) == 0) p.softcap = Rational(5, 2);
  if (s.between(0, 3) == 0) p.sink = round_to(bf16, s.uniform(-4, 4));
  return p;
}

/// Can the oracle's precision tell any output from any boundary? Scores must not differ by more
/// than some 700 bits.
bool within_oracle(const AttentionProblem& p) {
  for (std::int64_t i = 0; i < p.queries(); ++i) {
    double lo = infinity, hi = -infinity;
    if (p.sink) lo = hi = 0;  // its score is within 4 of it
    std::vector<double> q(static_cast<std::size_t>(p.channels())), k(q.size());
    p.q.load_row(i, q.data());
    for (std::int64_t j = 0; j < p.keys(); ++j) {
      p.k.load_row(j, k.data());
      double x = 0;
      for (std::size_t t = 0; t < q.size(); ++t) x += q[t] * k[t];
      lo = std::min(lo, x);
      hi = std::max(hi, x);
    }
    if (hi - lo > 300 || hi > 1e15 || lo < -1e15) return false;
    if (p.softcap && (hi > 300 || lo < -300)) return false;  // 1 - tanh would be beyond it
  }
  return true;
}

std::uint64_t expected_lse(const OracleRow& exact, const LadderOptions& o) {
  return rounded_oracle(o.lse, o.lse_base == LseBase::two ? exact.lse2 : exact.lse);
}

/// What a failing head is made of.
std::string describe(const AttentionProblem& p) {
  return "scale " + p.scale.text() + ", mask " + to_text(p.visibility.kind) + " of " +
         std::to_string(p.visibility.length) + (p.window ? ", window" : "") +
         (p.query_segments.empty() ? "" : ", segments") + (p.mask.empty() ? "" : ", boolean") +
         (p.bias ? ", bias" : "") + (p.softcap ? ", softcap" : "") +
         (p.sink ? ", sink " + std::to_string(*p.sink) : "") + ", " +
         std::string(p.q.format().name);
}
std::string digits(const Real& x) { return x.str(60, std::ios_base::scientific); }

/// Compares every element of every row.
void expect_bits(const AttentionProblem& p, const LadderOptions& options,
                 const std::vector<OracleRow>& exact, const std::string& what) {
  const RoundedRows r = correctly_rounded(p, all_rows(p), options);
  ASSERT_EQ(r.rows.size(), exact.size());
  for (std::size_t i = 0; i < exact.size(); ++i) {
    for (std::int64_t c = 0; c < p.value_channels(); ++c) {
      const Real& o = exact[i].output[static_cast<std::size_t>(c)];
      ASSERT_EQ(r.output_code(i, c), rounded_oracle(options.output, o))
          << what << " row " << i << " channel " << c << " of " << p.queries() << " x " << p.keys()
          << " x " << p.channels() << ", to " << options.output.format.name << ", "
          << name(options.instruction_set) << "; " << describe(p) << "; exactly " << digits(o);
    }
    ASSERT_EQ(r.lse_code(i), expected_lse(exact[i], options))
        << what << " row " << i << " LSE of " << p.queries() << " x " << p.keys() << ", to "
        << options.lse.format.name << " in direction " << int(options.lse.rounding) << "; "
        << describe(p) << "; exactly "
        << digits(options.lse_base == LseBase::two ? exact[i].lse2 : exact[i].lse);
  }
  // Undecided only where no criterion is known and the value is a tie.
  if (!p.softcap) {
    ASSERT_EQ(r.counts.of(Rung::undecided), 0) << what;
  }
}

std::vector<OracleRow> oracle_rows(const AttentionProblem& p) {
  std::vector<OracleRow> r;
  for (std::int64_t i = 0; i < p.queries(); ++i) r.push_back(oracle_row(p, i));
  return r;
}

TEST(Ladder, EveryKindOfHeadEveryFormatAndDirection) {
  Source s(20240101);
  int compared = 0;
  for (int n = 0; n < 120 * multiplier(); ++n) {
    const AttentionProblem p = random_problem(s, 70);
    if (!within_oracle(p)) continue;
    ++compared;
    const std::vector<OracleRow> exact = oracle_rows(p);
    for (int m = 0; m < 4; ++m) {
      LadderOptions options;
      options.output = {*targets[(n + m) % 6], roundings[(n / 6 + m) % 4]};
      options.lse = {*targets[(n / 2 + m) % 6], roundings[(n / 3 + m) % 4]};
      options.lse_base = (n + m) % 2 == 0 ? LseBase::natural : LseBase::two;
      options.instruction_set = sets()[static_cast<std::size_t>(n + m) % sets().size()];
      ASSERT_NO_FATAL_FAILURE(expect_bits(p, options, exact, "head " + std::to_string(n)));
    }
  }
  EXPECT_GT(compared, 60 * multiplier());
}

// More keys than a tile and a group of tiles; more rows than a panel; every instruction set.
TEST(Ladder, LongerHeadsOnEveryInstructionSet) {
  Source s(7);
  for (const InstructionSet set : sets()) {
    for (const Format& f : {bf16, fp32}) {
      AttentionProblem p =
          problem_of(s.matrix(f, 5, 24, Source::gaussian), s.matrix(f, 441, 24, Source::outlier),
                     s.matrix(f, 441, 6, Source::gaussian), Scale::reciprocal_sqrt(24));
      p.visibility.kind = MaskKind::causal_bottom_right;
      LadderOptions options;
      options.instruction_set = set;
      ASSERT_NO_FATAL_FAILURE(
          expect_bits(p, options, oracle_rows(p), std::string(f.name) + " " + name(set)));
    }
  }
}

// The first rung's enclosures hold the exact values, and are tight.
TEST(VectorRung, EnclosesAndIsTight) {
  Source s(99);
  int enclosed = 0;
  for (int n = 0; n < 60 * multiplier(); ++n) {
    const AttentionProblem p = random_problem(s, 130);
    const InstructionSet set = sets()[static_cast<std::size_t>(n) % sets().size()];
    const NearestRounding nearest;
    const VectorRung rung(p, set);
    const std::vector<std::int64_t> rows = all_rows(p);
    const RowEnclosures e = rung.enclose(rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const OracleRow exact = oracle_row(p, rows[i]);
      ASSERT_EQ(e.kind[i] == RowKind::empty, exact.empty) << n << " row " << i;
      if (e.kind[i] != RowKind::enclosed) continue;
      ++enclosed;
      for (std::int64_t c = 0; c < p.value_channels(); ++c) {
        const std::size_t at =
            i * static_cast<std::size_t>(p.value_channels()) + static_cast<std::size_t>(c);
        mpfr_srcptr o = exact.output[static_cast<std::size_t>(c)].backend().data();
        ASSERT_LE(mpfr_cmp_d(o, e.lo[at]) < 0, false) << n << " row " << i << " channel " << c;
        ASSERT_LE(mpfr_cmp_d(o, e.hi[at]) > 0, false) << n << " row " << i << " channel " << c;
      }
      ASSERT_FALSE(mpfr_cmp_d(exact.lse2.backend().data(), e.lse2_lo[i]) < 0) << n;
      ASSERT_FALSE(mpfr_cmp_d(exact.lse2.backend().data(), e.lse2_hi[i]) > 0) << n;
    }
  }
  EXPECT_GT(enclosed, 200);
}

// Each of the other rungs alone gives the same bits.
TEST(Ladder, EachRungAloneAgrees) {
  Source s(5);
  for (int n = 0; n < 20 * multiplier(); ++n) {
    const AttentionProblem p = random_problem(s, 40);
    LadderOptions options;
    options.output = {fp32, roundings[n % 4]};
    options.lse = {fp32, roundings[n % 4]};
    const RoundedRows all = correctly_rounded(p, all_rows(p), options);
    options.use_vector_rung = false;
    const RoundedRows pairs = correctly_rounded(p, all_rows(p), options);
    options.use_pair_rung = false;
    const RoundedRows wide = correctly_rounded(p, all_rows(p), options);
    ASSERT_EQ(all.output, pairs.output) << n;
    ASSERT_EQ(all.lse, pairs.lse) << n;
    ASSERT_EQ(all.output, wide.output) << n;
    ASSERT_EQ(all.lse, wide.lse) << n;
    ASSERT_EQ(wide.counts.of(Rung::vector) + wide.counts.of(Rung::double_double), 0);
  }
}

// Rescaling: the first tile's scores lie thousands of bits below the last one's, and the reverse.
TEST(Ladder, RescalesInsteadOfOverflowing) {
  for (const bool rising : {true, false}) {
    const std::int64_t nk = 200;
    std::vector<double> k, v;
    for (std::int64_t j = 0; j < nk; ++j) {
      k.push_back(static_cast<double>(rising ? j : nk - 1 - j));
      v.push_back(round_to(bf16, 1.0 + 0.01 * static_cast<double>(j)));
    }
    const AttentionProblem p =
        problem_of(Matrix::from_values(bf16, 1, 1, {16}), Matrix::from_values(bf16, nk, 1, k),
                   Matrix::from_values(bf16, nk, 1, v), Scale::natural(1));
    for (const InstructionSet set : sets()) {
      LadderOptions options;
      options.instruction_set = set;
      const RoundedRows r = correctly_rounded(p, all_rows(p), options);
      // v of the largest score, plus e^-16 (v' - v) + ...; and LSE = 16 * 199 + e^-16 + ...
      const OracleRow exact = oracle_row(p, 0);
      EXPECT_EQ(r.output_code(0, 0), rounded_oracle(options.output, exact.output[0]));
      EXPECT_EQ(r.lse_code(0), rounded_oracle(options.lse, exact.lse));
      EXPECT_EQ(r.counts.of(Rung::vector), 2);
    }
  }
}

// Selection of rows, blocks and threads do not matter.
TEST(Ladder, RowsInAnyOrder) {
  Source s(11);
  AttentionProblem p =
      problem_of(s.matrix(bf16, 100, 16, Source::gaussian), s.matrix(bf16, 90, 16, Source::offset),
                 s.matrix(bf16, 90, 3, Source::gaussian), Scale::reciprocal_sqrt(16));
  p.visibility.kind = MaskKind::causal_top_left;
  const RoundedRows all = correctly_rounded(p, all_rows(p), {});
  const std::vector<std::int64_t> some = {99, 0, 42, 42, 7};
  const RoundedRows few = correctly_rounded(p, some, {});
  for (std::size_t i = 0; i < some.size(); ++i) {
    EXPECT_EQ(few.lse_code(i), all.lse_code(static_cast<std::size_t>(some[i])));
    for (std::int64_t c = 0; c < 3; ++c) {
      EXPECT_EQ(few.output_code(i, c), all.output_code(static_cast<std::size_t>(some[i]), c));
    }
  }
}

TEST(Ladder, EnclosuresHold) {
  Source s(17);
  for (int n = 0; n < 20; ++n) {
    const AttentionProblem p = random_problem(s, 60);
    const EnclosedRows e = enclosures(p, all_rows(p), {});
    for (std::int64_t i = 0; i < p.queries(); ++i) {
      const OracleRow exact = oracle_row(p, i);
      const auto r = static_cast<std::size_t>(i);
      for (std::int64_t c = 0; c < p.value_channels(); ++c) {
        const std::size_t at =
            r * static_cast<std::size_t>(p.value_channels()) + static_cast<std::size_t>(c);
        mpfr_srcptr o = exact.output[static_cast<std::size_t>(c)].backend().data();
        ASSERT_TRUE(mpfr_cmp_d(o, e.output_lo[at]) >= 0 && mpfr_cmp_d(o, e.output_hi[at]) <= 0)
            << n << " " << i << " " << c;
      }
      ASSERT_TRUE(mpfr_cmp_d(exact.lse.backend().data(), e.lse_lo[r]) >= 0) << n << " " << i;
      ASSERT_TRUE(mpfr_cmp_d(exact.lse.backend().data(), e.lse_hi[r]) <= 0) << n << " " << i;
    }
  }
}

}  // namespace
}  // namespace headroom
