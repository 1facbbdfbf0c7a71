// Certify heads: gate, claims, exact evaluation of what the bounds leave open, verdict.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "certify/claim.h"
#include "certify/policy.h"
#include "certify/policy_parameters.h"
#include "certify/range_test.h"
#include "certify/row_bounds.h"
#include "reference/head/head.h"
#include "reference/model/kernel_model.h"

namespace headroom {

struct CertifyOptions {
  Policy policy = Policy::clis;
  /// What the rule of the policy leaves open; defaults in policy_parameters.h for what is not
  /// given.
  PolicyParameters parameters;
  /// Limit of mass.lost, and the guard bits of the gate; product.flush is held to it too.
  double eps = 0x1p-10;
  /// Limit of output.error (absolute); reported only if unset.
  std::optional<double> max_error;
  /// Rows evaluated exactly at most, worst first, where bounds do not decide a claim.
  std::int64_t evaluate_rows = 64;
  /// Exactly evaluated scores at most, a head.
  std::int64_t evaluate_scores = std::int64_t{1} << 22;
  /// Where more rows stay open than are evaluated exactly, they are bounded by the box and the
  /// balls of their keys first. `clis` does without on its fixed path: kappa is its bound.
  bool tighter_bounds = true;
  /// Report each bound of these rows' scores with its slack (HeadReport::bounds).
  std::optional<ExactRows> exact_rows;
};

/// A row of an undecided head that was run bit by bit, and what broke a claim there.
struct ExecutedRow {
  std::string loop;  ///< the simulator's name of the rule
  std::int64_t row = -1;
  std::string what;
};

/// What was found for one head.
struct HeadReport {
  std::string id;
  Policy policy = Policy::clis;
  Verdict verdict = Verdict::undecided;
  /// SAFE: every required claim but those of accuracy. ACCURATE(eps): those too. Of the path taken.
  ClaimOutcome safe = ClaimOutcome::unknown, accurate = ClaimOutcome::unknown;
  std::string reason;      ///< one line: what decided it
  std::string binding;     ///< id of the claim with the least margin among those that decided
  double margin_bits = 0;  ///< its margin
  ClaimStatus status = ClaimStatus::enclosed;  ///< the weakest of the deciding claims

  /// The gate before the loop; empty name for `online`.
  std::string stabilizer;  ///< of the path that `claims` are about
  double cap = 0;          ///< C
  double kappa = 0;        ///< clis: the slope of mu in the kernel's norm of q~; else 0
  bool has_gate = false;
  Interval gate_value{0.0};
  double gate_limit = 0;
  Tri gate_accepts = Tri::unknown;
  std::string gate_note;
  /// The policy's parameters, complete.
  PolicyParameters parameters;
  /// fdpp: which rows stay on the fixed shift.
  RowPaths row_paths;
  /// The gate's value as the kernel itself computes it, bit by bit, in sequential order.
  bool has_kernel_gate = false;
  double kernel_gate_value = 0;

  std::vector<Claim> claims;        ///< of the path taken
  std::vector<Claim> fixed_claims;  ///< of the refused fixed path, if the gate refused
  std::vector<std::string> assumptions;
  /// False if the data hold NaN or infinity: then none of the numbers below was made.
  bool scanned = false;
  std::int64_t keys = 0, queries = 0, channels = 0, value_channels = 0;
  std::int64_t most_visible = 0, rows_evaluated = 0, rows_undecided = 0;
  double v_magnitude = 0, query_norm = 0, radius = 0, key_norm = 0;
  /// If asked for, and scanned.
  std::optional<BoundsReport> bounds;
  /// The execution that refutes the head, if bounds alone do not.
  std::optional<ExecutedRow> execution;
};

/// One report a head, in order. Heads are independent but for gates whose unit is head over batch.
/// `progress` is called from worker threads with the number of heads finished.
/// Never throws for a numerical outcome; InputError for parameters that the policy does not have.
std::vector<HeadReport> certify_heads(const std::vector<Head>& heads, const KernelModel& kernel,
                                      const CertifyOptions& options,
                                      const std::function<void(std::size_t)>& progress = {});

/// The same for one head whose gate is its own.
HeadReport certify_head(const Head& head, const KernelModel& kernel, const CertifyOptions& options);

}  // namespace headroom
