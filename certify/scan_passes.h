// The scan of a head by passes at memory speed, where they can read its operands.
#pragma once

#include <vector>

#include "certify/head_scan.h"
#include "certify/key_facts.h"

namespace headroom {

/// The mean of all multiplied keys: within `apart` of some point of the box `mean`, which is empty
/// if it was not made.
struct MultipliedKeys {
  std::vector<Interval> mean;
  double apart = 0;
};

/// Raises scan's query_norm and kernel_query_norm to include rows [begin, end).
void largest_queries(std::size_t begin, std::size_t end, HeadScan& scan);

// Each returns false, and leaves the scan as it was, where the passes do not apply.

/// V: least, most, largest magnitudes, exact.
bool values_by_pass(const Head& head, std::int64_t keys_read, HeadScan& scan);

/// V: max_c |v_jc| of as many keys as `most` has, exact. Requires: V is finite.
bool magnitudes_by_pass(const Head& head, std::vector<double>& most);

/// K: what KeyFacts makes of all rows, to the last bit. A pass bounds every row, in FP32 with the
/// error of its sums (S of the computed S^ is at most (S^ + d 2^-149)(1 + 2 gamma)); rows that may
/// hold a maximum are taken in full. Also the keys' mean, unless rows see different keys.
bool keys_by_passes(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                    const Operands& operands, KeyFacts& facts, HeadScan& scan,
                    MultipliedKeys& keys);

/// Q: every row of scan.rows, whose `visible` is set. Norms and means in doubles with their error:
/// enclosures are wider than those of a row by row scan by some 2^-45, relative to |q| and |q||k|.
/// Makes their largest norms too.
bool queries_by_passes(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                       const Operands& operands, const MultipliedKeys& keys, HeadScan& scan);

}  // namespace headroom
