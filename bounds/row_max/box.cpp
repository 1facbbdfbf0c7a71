#include "bounds/row_max/box.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "bounds/norms.h"

namespace headroom {

void KeyBox::add(std::span<const double> lo, std::span<const double> hi) {
  assert(lo.size() == lo_.size() && hi.size() == hi_.size());
  if (count_++ == 0) {
    std::copy(lo.begin(), lo.end(), lo_.begin());
    std::copy(hi.begin(), hi.end(), hi_.begin());
    return;
  }
  for (std::size_t c = 0; c < lo_.size(); ++c) {
    lo_[c] = std::min(lo_[c], lo[c]);
    hi_[c] = std::max(hi_[c], hi[c]);
  }
}

Upper<Log2> box_maximum(const UpwardRounding& up, const Interval& factor, std::span<const double> q,
                        const KeyBox& keys) {
  if (keys.count() == 0) return Upper<Log2>(-std::numeric_limits<double>::infinity());
  return Upper<Log2>::of(factor * dot(up, q, keys.lo(), keys.hi()));
}

}  // namespace headroom
