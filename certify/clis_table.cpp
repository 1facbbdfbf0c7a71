#include "certify/clis_table.h"

#include <limits>

#include "certify/head_scan.h"
#include "certify/policy.h"
#include "reference/model/operands.h"
#include "reference/real/fp_environment.h"

namespace headroom {

CertifiedTable certified_table(const Head& head, const KernelModel& kernel, double eps) {
  const UpwardRounding up;
  const Operands operands(up, head, kernel);
  const HeadScan scan = scan_head(up, head, kernel, operands);
  if (!scan.finite)
    return {0, std::numeric_limits<double>::infinity(), false,
            std::numeric_limits<double>::infinity()};
  const auto fixed =
      make_fixed_stabilizer(up, Policy::clis, head, kernel, operands, scan, norms_of(scan), eps);
  const FixedStabilizer::Gate gate = fixed->gate();
  return {fixed->cap(), fixed->kappa(), gate.accepts == Tri::yes, gate.value.hi() - gate.limit};
}

}  // namespace headroom
