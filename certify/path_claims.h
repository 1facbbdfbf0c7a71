// The claims of one path through the kernel (fixed stabilizer, or online), over all rows.
#pragma once

#include <cstdint>
#include <vector>

#include "certify/certify.h"
#include "certify/claim.h"
#include "certify/head_scan.h"
#include "certify/policy.h"
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

/// Claims of online softmax (the row's own maximum, rescaling as it rises).
PathResult online_path_claims(const PathContext& context);

}  // namespace headroom
