// Biases beside which scores vanish.
#pragma once

#include <cstdint>
#include <optional>

#include "certify/head_scan.h"

namespace headroom {

/// The rows of a head that has modifiers whose biases leave nothing of their scores: every sum of a
/// score and its bias rounds to the bias, in the store's format. Rows that see one key only do not
/// count. Nothing if there is none. `row` is the one that lacks most, `bits` by how many bits its
/// largest possible score lies below half an ulp of its least bias, log2.
struct AbsorbedRow {
  std::int64_t row = -1;
  double bits = 0;
};
std::optional<AbsorbedRow> absorbed_by_bias(const UpwardRounding& up, const Head& head,
                                            const KernelModel& kernel, const Operands& operands,
                                            const HeadScan& scan);

}  // namespace headroom
