// Judges a report by simulated executions: every claim that it makes has to be true of them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "certify/certify.h"
#include "certify/head_scan.h"
#include "certify/policy.h"
#include "tests/cases/public_gates.h"
#include "tests/unit/certify/simulated_head.h"

namespace headroom {

inline const Claim* find_claim(const HeadReport& report, const std::string& id) {
  for (const Claim& c : report.claims) {
    if (c.id == id) return &c;
  }
  return nullptr;
}

/// Operands, scan and stabilizer of a head under a fixed policy.
struct Prepared {
  Prepared(const Head& head, const KernelModel& kernel, Policy policy, double eps)
      : operands(up, head, kernel),
        scan(scan_head(up, head, kernel, operands)),
        stabilizer(
            make_fixed_stabilizer(up, policy, head, kernel, operands, scan, norms_of(scan), eps)) {}
  UpwardRounding up;
  Operands operands;
  HeadScan scan;
  std::unique_ptr<FixedStabilizer> stabilizer;
};

/// What the worst row of all simulated executions showed.
struct Truth {
  double lost = 0, largest_exponent = -INFINITY, least_l = INFINITY, largest_l = 0, largest_o = 0;
  double largest_weight = 0, output_error = 0;
  bool finite = true;
};

/// Simulates rows under both ends of the enclosed mu.
inline Truth simulate_head(const Head& head, const KernelModel& kernel, Policy policy, double eps,
                           std::uint64_t seed = 1, int executions = 1) {
  struct Row {
    std::int64_t row;
    double mu;
  };
  std::vector<Row> rows;
  std::unique_ptr<Operands> operands;
  {
    const Prepared prepared(head, kernel, policy, eps);
    for (std::int64_t i = 0; i < head.queries(); ++i) {
      if (head.visibility.visible(i).count() == 0) continue;
      const Interval mu = prepared.stabilizer->mu(i);
      rows.push_back({i, mu.lo()});
      if (!mu.is_point()) rows.push_back({i, mu.hi()});
    }
    operands = std::make_unique<Operands>(prepared.up, head, kernel);
  }
  Truth truth;
  simulation::Random g(seed);
  for (const Row& r : rows) {
    for (int i = 0; i < executions; ++i) {
      const auto s = simulation::simulate_row(head, kernel, *operands, r.row, r.mu, g);
      truth.lost = std::fmax(truth.lost, s.lost);
      truth.largest_exponent = std::fmax(truth.largest_exponent, s.largest_exponent);
      truth.largest_weight = std::fmax(truth.largest_weight, s.largest_weight);
      truth.least_l = std::fmin(truth.least_l, s.l);
      truth.largest_l = std::fmax(truth.largest_l, s.l);
      truth.largest_o = std::fmax(truth.largest_o, s.o);
      truth.output_error = std::fmax(truth.output_error, s.output_error);
      truth.finite = truth.finite && s.finite;
    }
  }
  return truth;
}

/// Certifies, and fails the test where the report says more than the simulation bears out.
inline HeadReport judge(const Head& head, const KernelModel& kernel, const CertifyOptions& options,
                        Truth* shown = nullptr) {
  const HeadReport report = certify_head(head, kernel, options);
  if (report.stabilizer == "online" || report.stabilizer.empty()) {
    if (shown != nullptr && options.policy != Policy::online && report.has_gate) {
      *shown = simulate_head(head, kernel, options.policy, options.eps);
    }
    return report;
  }
  const Truth truth = simulate_head(head, kernel, options.policy, options.eps);
  if (shown != nullptr) *shown = truth;
  const std::string who = head.id + ", " + std::string(to_text(options.policy)) + ", " +
                          std::string(to_text(report.verdict)) + ": ";
  constexpr double slack = 1e-9;  // of the test's own logarithms
  const auto at_most = [&](const std::string& id, double value) {
    const Claim* claim = find_claim(report, id);
    ASSERT_NE(claim, nullptr) << who << id;
    // an overflow says only that the value lies beyond the limit
    EXPECT_GE(claim->value.hi(), std::isinf(value) && value > 0 ? claim->limit : value - slack)
        << who << id;
    if (claim->kind == LimitKind::at_most && claim->outcome() == ClaimOutcome::holds) {
      EXPECT_LE(value, claim->limit + slack) << who << id;
    }
  };
  at_most("exponent.upper", truth.largest_exponent);
  if (!kernel.p.saturate) at_most("p.range", std::log2(truth.largest_weight));
  // sums of finite weights; whether they are finite is a claim of its own
  const bool finite_weights = std::isfinite(truth.largest_weight);
  if (finite_weights) {
    at_most("l.range", std::log2(truth.largest_l));
    at_most("o.range", truth.largest_o > 0 ? std::log2(truth.largest_o) : -INFINITY);
  }
  at_most("mass.lost", truth.lost);
  const Claim* least = find_claim(report, "l.nonzero");
  EXPECT_LE(least->value.lo(), std::log2(truth.least_l) + slack) << who << "l.nonzero";
  // what is refuted really fails: the certain end of the worst row is reached
  const Claim* lost = find_claim(report, "mass.lost");
  EXPECT_LE(lost->value.lo(), truth.lost + slack) << who << "mass.lost, certain part";
  // whatever the verdict: a bound is one
  if (const Claim* error = find_claim(report, "output.error")) {
    EXPECT_LE(truth.output_error, error->value.hi()) << who << "output.error";
  }
  if (report.verdict == Verdict::certified) {
    EXPECT_TRUE(truth.finite) << who << "l " << truth.least_l << ".." << truth.largest_l << " o "
                              << truth.largest_o;
    EXPECT_LE(truth.lost, options.eps) << who;
  }
  return report;
}

inline HeadReport judge(const Head& head, const KernelModel& kernel, Policy policy,
                        Truth* shown = nullptr) {
  CertifyOptions options;
  options.policy = policy;
  return judge(head, kernel, options, shown);
}

}  // namespace headroom
