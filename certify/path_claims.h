// The claims of one path through the kernel (fixed stabilizer, or online), over all rows.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "certify/certify.h"
#include "certify/claim.h"
#include "certify/head_scan.h"
#include "certify/policy.h"
#include "certify/policy_parameters.h"
#include "certify/range_test.h"
#include "certify/row_bounds.h"

namespace headroom {

/// Everything the claims of a head are made from.
struct PathContext {
  const UpwardRounding& up;
  const Head& head;
  const KernelModel& kernel;
  const Operands& operands;
  const HeadScan& scan;
  const CertifyOptions& options;
  KeyGeometry& geometry;
  /// Policy fa4: the maximum that may stay behind. Online softmax without it.
  const LazyRescale* lazy = nullptr;
  /// Policy fdpp: the rows that the path is about. A row that may take it or the other one fails no
  /// claim: what it would fail is unknown.
  const RowPaths* paths = nullptr;
  /// Policy online: where the running maximum starts, in the unit of the stored score, and whether
  /// a running maximum of -inf is guarded.
  double initial_max = -std::numeric_limits<double>::infinity();
  bool guard = true;
};

struct PathResult {
  std::vector<Claim> claims;
  std::int64_t rows_evaluated = 0;
  /// Rows with a required claim that neither bounds nor exact evaluation decided.
  std::int64_t rows_undecided = 0;
};

/// Claims of the loop-invariant stabilizer: bounds for every row, then exact evaluation of the
/// worst rows where bounds leave a required claim open. Requires: scan.finite.
PathResult fixed_path_claims(const PathContext& context, const FixedStabilizer& stabilizer);

/// Claims of online softmax (the row's own maximum, rescaling as it rises), or with `lazy` of a
/// maximum that may stay behind.
PathResult online_path_claims(const PathContext& context);

/// Claims of a head whose rows take one path or the other: the worse of each two claims of one
/// name.
std::vector<Claim> worse_of(const std::vector<Claim>& a, const std::vector<Claim>& b);

}  // namespace headroom
