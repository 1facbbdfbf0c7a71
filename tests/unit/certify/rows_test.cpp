// Exact evaluation of rows against MPFR and against simulated kernels; degenerate heads.
#include <gtest/gtest.h>

#include <cmath>

#include "bounds/score.h"
#include "certify/row_execution.h"
#include "reference/evaluate/exact_attention.h"
#include "tests/unit/certify/judge.h"

namespace headroom {
namespace {

using simulation::Random;

Head random_head(Random& g, double spread, const Format& format = bf16) {
  const auto queries = static_cast<std::int64_t>(1 + simulation::below(g, 5));
  const auto keys = static_cast<std::int64_t>(1 + simulation::below(g, 40));
  const auto channels = static_cast<std::int64_t>(1 + simulation::below(g, 8));
  const auto value = [&](int size) { return simulation::random_value(format, g, size, 3); };
  const double amount = spread / std::sqrt(static_cast<double>(channels));
  Head head = cases::make_head(
      "random", queries, keys, channels, 2,
      [&](auto, auto) { return simulation::Arithmetic{format}.round(value(0) * amount); },
      [&](auto, auto) { return value(0); }, [&](auto, auto) { return value(-1); }, format);
  switch (simulation::below(g, 4)) {
    case 0:
      head.visibility.length = 1 + static_cast<std::int64_t>(simulation::below(g, keys));
      break;
    case 1:
      head.visibility.kind = MaskKind::causal_top_left;
      break;
    case 2:
      head.visibility.kind = MaskKind::causal_bottom_right;
      break;
    default:
      break;
  }
  return head;
}

KernelModel kernel_of(const std::string& more) {
  return parse_kernel("name = \"rows\"\nmachine = \"ieee-fp32\"\noperand = \"bf16\"\n" + more,
                      "rows.toml");
}

const char* const kernel_texts[] = {
    "",
    "[exp2]\nflush_to_zero = true\n",
    "[exponent]\nformat = \"bf16\"\n[exp2]\nflush_to_zero = true\n",
    "[exponent]\nformat = \"fp16\"\n[exp2]\nflush_to_zero = true\n",
    "[exp2]\nresult = \"bf16\"\nflush_to_zero = true\n",
    "[exp2]\nunit = \"ulp:90\"\nflush_to_zero = true\n",
    "[p]\nformat = \"fp16\"\n",
    "[p]\nformat = \"bf16\"\nflush_to_zero = true\ndenominator_rounded = true\n",
    "[p]\nformat = \"e4m3fn\"\nsaturate = true\n",
    "[denominator]\naccumulator = \"fp16\"\n",
    "[denominator]\naccumulator = \"bf16\"\norder = \"lanes:4\"\nflush_to_zero = true\n",
    "[denominator]\norder = \"any\"\n[numerator]\norder = \"any\"\nflush_to_zero = true\n",
    "[score]\naccumulator = \"bf16\"\nrounded_products = true\n",
    "[score]\nstore = \"fp16\"\n",
    "[tiles]\nkeys = 16\npadding = \"zero-keys\"\n",
};

// Every simulated execution lies in the enclosures of the row, and exact quantities do.
TEST(RowExecution, HoldsExactAndSimulatedRows) {
  Random g(3);
  int flushed = 0, kept = 0, rows = 0;
  for (const char* text : kernel_texts) {
    SCOPED_TRACE(text);
    const KernelModel kernel = kernel_of(text);
    for (int trial = 0; trial < 60; ++trial) {
      const double spreads[] = {0.25, 4, 32, 90};
      const Head head = random_head(g, spreads[simulation::below(g, 4)]);
      const UpwardRounding up;
      const Operands operands(up, head, kernel);
      const HeadScan scan = scan_head(up, head, kernel, operands);
      const auto row =
          static_cast<std::int64_t>(simulation::below(g, static_cast<std::size_t>(head.queries())));
      if (head.visibility.visible(row).count() == 0) continue;
      const RowScan& r = scan.rows[static_cast<std::size_t>(row)];
      const double e = score_error(up, kernel, operands, Upper<Absolute>(r.norm.hi()),
                                   Upper<Absolute>(scan.key_norm.hi()))
                           .value();
      if (!std::isfinite(e)) continue;
      // stabilizers from far below to far above the scores, integers and not
      const double center = std::floor((r.norm * scan.key_norm).hi());
      const double offsets[] = {-100, -60, 0, 60, 120, 126, 140, 160};
      const double mu = center + offsets[simulation::below(g, 8)] +
                        (simulation::below(g, 2) == 0 ? 0.0 : 0.328125);
      const RowExecution run = execute_row(up, head, kernel, operands, scan, row, Interval(mu), e);
      const ExactRow exact = exact_row(head, row);  // the scale is 1, operands are as stored
      const double log2_mass = static_cast<double>(exact.lse2 - Real(mu));
      constexpr double slack = 1e-9;
      EXPECT_LE(run.log2_mass.lo(), log2_mass + slack);
      EXPECT_GE(run.log2_mass.hi(), log2_mass - slack);
      EXPECT_LE(run.log2_mass.width(), 1e-6);
      for (int execution = 0; execution < 2; ++execution) {
        simulation::SimulatedRow s;
        {
          const NearestRounding nearest;
          s = simulation::simulate_row(head, kernel, operands, row, mu, g);
        }
        ++rows;
        EXPECT_NEAR(s.log2_mass, log2_mass, slack);
        EXPECT_LE(run.lost.lo(), s.lost + slack) << mu;
        EXPECT_GE(run.lost.hi(), s.lost - slack) << mu;
        flushed += s.lost == 1 ? 1 : 0;
        kept += s.lost == 0 ? 1 : 0;
        const bool overflows = !std::isfinite(s.l);
        if (s.l == 0) {
          EXPECT_EQ(run.log2_denominator.lo(), -INFINITY) << mu;
        } else if (!overflows) {
          EXPECT_FALSE(run.denominator_zero) << mu;
          EXPECT_LE(run.log2_denominator.lo(), std::log2(s.l) + slack) << mu;
          EXPECT_GE(run.log2_denominator.hi(), std::log2(s.l) - slack) << mu;
        }
        if (s.o > 0 && std::isfinite(s.o)) {
          EXPECT_GE(run.log2_numerator.hi(), std::log2(s.o) - slack) << mu;
        }
        if (std::isfinite(s.o)) {
          EXPECT_LE(run.log2_numerator.lo(), (s.o > 0 ? std::log2(s.o) : -INFINITY) + slack) << mu;
        }
        if (kernel.tiles.padding != Padding::zero_keys) {
          // before its own rounding, half an ulp at most
          const double rounding =
              std::ldexp(std::fabs(s.largest_exponent) + 1, 1 - kernel.exponent.format.precision);
          EXPECT_GE(run.max_exponent.hi() + rounding, s.largest_exponent) << mu;
          EXPECT_LE(run.max_exponent.lo() - rounding, s.largest_exponent) << mu;
        }
      }
    }
  }
  EXPECT_GT(flushed, 50);
  EXPECT_GT(kept, 200);
  EXPECT_GT(rows, 1000);
}

// A scale at the score site with an irrational factor: MPFR's scores, not the code's.
TEST(RowExecution, FactorsAtTheScoreSite) {
  Random g(5);
  const KernelModel kernel = kernel_of("");
  for (const Scale& scale : {Scale::reciprocal_sqrt(3), Scale::natural(Rational(1, 7)),
                             Scale::base2(Rational(-3, 4)), Scale::natural(0)}) {
    for (int trial = 0; trial < 20; ++trial) {
      Head head = random_head(g, 8);
      head.scale = scale;
      const UpwardRounding up;
      const Operands operands(up, head, kernel);
      const HeadScan scan = scan_head(up, head, kernel, operands);
      for (std::int64_t row = 0; row < head.queries(); ++row) {
        if (head.visibility.visible(row).count() == 0) continue;
        const RowExecution run =
            execute_row(up, head, kernel, operands, scan, row, Interval(2.5), 0.25);
        const ExactRow exact = exact_row(head, row);
        EXPECT_LE(run.log2_mass.lo(), static_cast<double>(exact.lse2) - 2.5 + 1e-9);
        EXPECT_GE(run.log2_mass.hi(), static_cast<double>(exact.lse2) - 2.5 - 1e-9);
        // the maximum, less mu, within the score's error and the exponent's rounding
        EXPECT_LE(run.max_exponent.lo(), static_cast<double>(exact.max_z) - 2.5);
        EXPECT_GE(run.max_exponent.hi(), static_cast<double>(exact.max_z) - 2.5);
        const KeyRange visible = head.visibility.visible(row);
        EXPECT_TRUE(run.max_key >= visible.begin && run.max_key < visible.end);
      }
    }
  }
}

// A row's mean is over the keys that it sees: against exact scores.
TEST(HeadScan, MeansOfVisibleKeys) {
  Random g(9);
  for (int trial = 0; trial < 60; ++trial) {
    const Head head = random_head(g, 8);
    const KernelModel kernel = kernel_of("");
    const UpwardRounding up;
    const Operands operands(up, head, kernel);
    const HeadScan scan = scan_head(up, head, kernel, operands);
    std::int64_t most = 0, empty = 0;
    for (std::int64_t i = 0; i < head.queries(); ++i) {
      const RowScan& row = scan.rows[static_cast<std::size_t>(i)];
      const ExactRow exact = exact_row(head, i);
      EXPECT_EQ(row.visible, static_cast<std::int64_t>(exact.z.size()));
      most = std::max(most, row.visible);
      if (exact.z.empty()) {
        ++empty;
        continue;
      }
      Real sum = 0;
      for (const Real& z : exact.z) sum += z;
      const double mean = static_cast<double>(sum / Real(exact.z.size()));
      EXPECT_LE(row.mean_score.lo(), mean + 1e-10);
      EXPECT_GE(row.mean_score.hi(), mean - 1e-10);
      EXPECT_LE(row.mean_score.width(), 1e-9);
    }
    EXPECT_EQ(scan.most_visible, most);
    EXPECT_EQ(scan.empty_rows, empty);
  }
}

// Random heads under every policy: whatever the report says is true of simulated executions.
TEST(Certify, RandomHeadsUnderEveryPolicy) {
  Random g(13);
  int verdicts[4] = {};
  for (const char* text : kernel_texts) {
    SCOPED_TRACE(text);
    const KernelModel kernel = kernel_of(text);
    for (int trial = 0; trial < 12; ++trial) {
      const double spreads[] = {0.25, 4, 20, 40, 64};
      const Head head = random_head(g, spreads[simulation::below(g, 5)]);
      for (const Policy policy :
           {Policy::clis, Policy::clis_alg1, Policy::fixed_m, Policy::fixed_m_n, Policy::online}) {
        CertifyOptions options;
        options.policy = policy;
        options.evaluate_rows = simulation::below(g, 2) == 0 ? 0 : 64;
        ++verdicts[static_cast<int>(judge(head, kernel, options).verdict)];
      }
    }
  }
  for (const Verdict v : {Verdict::certified, Verdict::fallback, Verdict::refuted}) {
    EXPECT_GT(verdicts[static_cast<int>(v)], 0) << to_text(v);
  }
}

TEST(Certify, DegenerateHeads) {
  const KernelModel kernel = kernel_of("");
  const auto constant = [](double x) { return [x](auto, auto) { return x; }; };
  struct Shape {
    std::int64_t queries, keys, channels;
    double q, k, v;
  };
  for (const Shape& s : {Shape{1, 1, 1, 1, 1, 1}, Shape{1, 1, 1, 0, 0, 0}, Shape{3, 5, 1, 0, 2, 1},
                         Shape{3, 5, 2, 2, 0, 1}, Shape{3, 5, 2, 2, 1, 0}, Shape{2, 1, 4, -3, 3, 2},
                         Shape{1, 7, 1, 0x1p-133, 0x1p-133, 0x1p-133}, Shape{4, 4, 1, 1, -1, -1}}) {
    const Head head = cases::make_head("degenerate", s.queries, s.keys, s.channels, 2,
                                       constant(s.q), constant(s.k), constant(s.v));
    for (const Policy policy :
         {Policy::clis, Policy::clis_alg1, Policy::fixed_m, Policy::fixed_m_n, Policy::online}) {
      const HeadReport report = judge(head, kernel, policy);
      EXPECT_EQ(report.verdict, Verdict::certified)
          << to_text(policy) << " " << s.q << " " << s.k << " " << s.v << " " << report.binding
          << " " << report.gate_note;
      // all scores equal: with E(0) and l exact, the output is V but for roundings
      const Claim* error = find_claim(report, "output.error");
      ASSERT_NE(error, nullptr);
      EXPECT_TRUE(std::isfinite(error->value.hi()));
    }
  }
}

TEST(Certify, EmptyRows) {
  Head head = cases::make_head(
      "empty rows", 6, 4, 2, 1, [](auto, auto) { return 1.0; }, [](auto, auto) { return 0.5; },
      [](auto, auto) { return 1.0; });
  head.visibility.kind = MaskKind::causal_bottom_right;  // rows 0 and 1 see nothing
  for (const char* rule : {"zero", "zero-pos-inf", "mean-of-visited", "nan"}) {
    const KernelModel kernel = kernel_of("[tiles]\nempty_row = \"" + std::string(rule) + "\"\n");
    for (const Policy policy : {Policy::clis, Policy::fixed_m, Policy::online}) {
      const HeadReport report = judge(head, kernel, policy);
      const Claim* claim = find_claim(report, "empty.row");
      ASSERT_NE(claim, nullptr);
      const bool right = std::string(rule) == "zero";
      EXPECT_EQ(claim->outcome() == ClaimOutcome::holds, right) << rule;
      EXPECT_EQ(claim->row, 0);
      EXPECT_EQ(report.verdict == Verdict::certified, right) << rule << to_text(policy);
    }
  }
  // no row sees anything
  head.visibility.length = 0;
  const HeadReport report = certify_head(head, kernel_of(""), {});
  EXPECT_EQ(report.verdict, Verdict::certified) << report.reason << report.binding;
  EXPECT_EQ(report.most_visible, 0);
}

// NaN may only stand where nobody looks; a report never holds one.
TEST(Certify, ReportsHoldNoNan) {
  Random g(17);
  for (const char* text : kernel_texts) {
    const KernelModel kernel = kernel_of(text);
    for (const double size : {0.25, 64.0, 0x1p40, 0x1p100}) {
      const Head head = random_head(g, size);
      for (const Policy policy :
           {Policy::clis, Policy::clis_alg1, Policy::fixed_m, Policy::fixed_m_n, Policy::online}) {
        CertifyOptions options;
        options.policy = policy;
        const HeadReport report = certify_head(head, kernel, options);
        EXPECT_FALSE(std::isnan(report.margin_bits)) << text << size;
        EXPECT_FALSE(std::isnan(report.cap)) << text << size;
        for (const Claim& claim : report.claims) {
          EXPECT_FALSE(std::isnan(claim.limit)) << claim.id;
          EXPECT_FALSE(std::isnan(claim.margin_bits())) << claim.id << text << size;
        }
      }
    }
  }
}

}  // namespace
}  // namespace headroom
