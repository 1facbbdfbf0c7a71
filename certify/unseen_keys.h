// Keys whose scores no row keeps.
#pragma once

#include <optional>

#include "certify/policy.h"
#include "reference/head/head.h"
#include "reference/model/kernel_model.h"

namespace headroom {

/// The head with zeros in the keys that hold NaN or infinity, if the kernel replaces every score of
/// them: no row sees one, masks select, padding is masked, keys are not centred, and mu is not made
/// from their norms. All results are then the same, bit for bit. Nothing if there is no such key,
/// or another key is not finite. Values are left as they are: 0 NaN is NaN.
std::optional<Head> without_unseen_keys(const Head& head, const KernelModel& kernel, Policy policy);

}  // namespace headroom
