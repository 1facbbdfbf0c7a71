// The table that a kernel under `clis` gets from the certifier.
#pragma once

#include "reference/head/head.h"
#include "reference/model/kernel_model.h"

namespace headroom {

/// C and the slope of mu in the kernel's norm of q~ (DESIGN.md, "The stored mu").
struct CertifiedTable {
  double cap = 0;
  double kappa = 0;
  bool accepts = false;  ///< what the sound gate says of the head
  double beyond = 0;     ///< the gate's value, upper end, less its limit; log2 units
};
/// A head that holds NaN or infinity has no table: its gate refuses, and the slope that its norms
/// would give is infinite. `eps`: limit of the lost mass, which sets the gate's guard bits.
CertifiedTable certified_table(const Head& head, const KernelModel& kernel, double eps);

}  // namespace headroom
