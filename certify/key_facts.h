// What one key adds to the maxima of a head.
#pragma once

#include <cstdint>
#include <vector>

#include "bounds/stabilizer.h"
#include "certify/head_scan.h"

namespace headroom {

/// Evaluates rows of K one by one, in full.
class KeyFacts {
 public:
  KeyFacts(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
           const Operands& operands);

  /// Raises scan's key_norm, radius, kernel_radius, raw_centred_norm and key_difference to include
  /// row j. Rows may come in any order and more than once; where two are equal, the first taken
  /// stays the one that is named.
  void take(std::int64_t j, HeadScan& scan);

 private:
  const UpwardRounding& up_;
  const KernelModel& kernel_;
  const Operands& operands_;
  bool virtual_centre_;
  KernelNorm kernel_norm_;
  Interval difference_rounding_;
  std::vector<Interval> centre_, exact_;
  std::vector<double> lo_, hi_, raw_lo_, raw_hi_;
};

}  // namespace headroom
