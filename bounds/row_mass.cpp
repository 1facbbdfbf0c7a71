#include "bounds/row_mass.h"

#include <cassert>
#include <cmath>

namespace headroom {

Lower<Log2> row_mass(const UpwardRounding&, std::int64_t count, Lower<Log2> mean_score) {
  assert(count >= 1);
  return Lower<Log2>::of(log2(Interval(static_cast<double>(count)))) + mean_score;
}

// With pi_j = w_j / W, W = sum w:
//   sum pi_j z_j + H2(pi) = log2 W + (1 / W) sum w_j (z_j - log2 w_j),
// so nothing has to be divided before the end and no normalised weight is rounded.
Lower<Log2> row_mass(const UpwardRounding&, std::span<const double> weights,
                     std::span<const Interval> scores) {
  assert(weights.size() == scores.size());
  Interval total(0.0), sum(0.0), log_weight(0.0);
  double last_weight = 1;
  std::size_t used = 0, last_used = 0;
  for (std::size_t j = 0; j < weights.size(); ++j) {
    const double w = weights[j];
    if (w == 0) continue;
    if (!(w > 0) || !std::isfinite(w)) return {};  // no probability: nothing known
    if (w != last_weight) {
      log_weight = log2(Interval(w));
      last_weight = w;
    }
    ++used;
    last_used = j;
    total += Interval(w);
    sum += Interval(w) * (Interval(scores[j].lo()) - log_weight);
  }
  if (used == 0) return {};
  if (used == 1) return Lower<Log2>(scores[last_used].lo());  // the witness key, exactly
  return Lower<Log2>::of(log2(total) + sum / total);
}

}  // namespace headroom
