// The ladder against plain MPFR: every element of small heads of every kind, bit for bit.
#include "reference/evaluate/ladder/ladder.h"

#include <gtest/gtest.h>

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

std::vector<InstructionSet> sets() {
  std::vector<InstructionSet> r = {InstructionSet::portable};
  for (InstructionSet s : {InstructionSet::avx2, InstructionSet::avx512}) {
    if (processor_has(s)) r.push_back(s);
  }
  return r;
}

/// A random problem with a random choice of everything.
AttentionProblem random_problem(Source& s, std::int64_t most_keys = 70) {
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
      if (s.between(0, 6) == 0) x = -10000;
    }
    p.bias = Matrix::from_values(fp32, rows, nk, b);
  }
  if (s.between(0, 3) == 0) p.softcap = Rational(5, 2);
  if (s.between(0, 3) == 0) p.sink = round_to(bf16, s.uniform(-4, 4));
  return p;
}

/// Compares every element of every row, but for exact ties, which the oracle cannot see.
void expect_bits(const AttentionProblem& p, const LadderOptions& options, const std::string& what) {
  const std::vector<std::int64_t> rows = all_rows(p);
  const RoundedRows r = correctly_rounded(p, rows, options);
  ASSERT_EQ(r.rows.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const OracleRow exact = oracle_row(p, rows[i]);
    for (std::int64_t c = 0; c < p.value_channels(); ++c) {
      ASSERT_EQ(r.output_code(i, c),
                rounded_oracle(options.output, exact.output[static_cast<std::size_t>(c)]))
          << what << " row " << i << " channel " << c << " of " << p.queries() << " x " << p.keys()
          << " x " << p.channels() << ", to " << options.output.format.name;
    }
    ASSERT_EQ(
        r.lse_code(i),
        rounded_oracle(options.lse, options.lse_base == LseBase::two ? exact.lse2 : exact.lse))
        << what << " row " << i << " LSE of " << p.queries() << " x " << p.keys();
  }
}

/// An exact tie of the oracle's number is a rounding error of 2^-1400 away from a boundary; the
/// heads below are kept off ties by values with random low bits.
void no_ties(AttentionProblem& p, Source& s) {
  std::vector<double> v(static_cast<std::size_t>(p.keys() * p.value_channels()));
  for (double& x : v) x = round_to(fp32, s.uniform(-2, 2));
  p.v = Matrix::from_values(fp32, p.keys(), p.value_channels(), v);
}

TEST(Ladder, EveryKindOfHeadEveryFormatAndDirection) {
  Source s(20240101);
  for (int n = 0; n < 150; ++n) {
    AttentionProblem p = random_problem(s);
    no_ties(p, s);
    LadderOptions options;
    options.output = {*targets[n % 6], roundings[(n / 6) % 4]};
    options.lse = {*targets[(n / 2) % 6], roundings[(n / 3) % 4]};
    options.lse_base = n % 2 == 0 ? LseBase::natural : LseBase::two;
    options.instruction_set = sets()[static_cast<std::size_t>(n) % sets().size()];
    // one visible key gives v itself, and one key of score 0 an LSE that is a float: skip exact LSE
    bool single = false;
    for (std::int64_t i = 0; i < p.queries() && !single; ++i) {
      std::int64_t visible = p.sink ? 1 : 0;
      for (std::int64_t j = 0; j < p.keys(); ++j) visible += p.visible(i, j);
      single = visible == 1;
    }
    if (single && options.output.rounding != Rounding::nearest_even) continue;
    ASSERT_NO_FATAL_FAILURE(expect_bits(p, options, "head " + std::to_string(n)));
  }
}

}  // namespace
}  // namespace headroom
