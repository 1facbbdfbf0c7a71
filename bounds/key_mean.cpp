#include "bounds/key_mean.h"

#include <cassert>

#include "bounds/norms.h"

namespace headroom {

void KeyMean::add(const UpwardRounding&, std::span<const double> lo, std::span<const double> hi) {
  assert(lo.size() == sum_.size() && hi.size() == sum_.size());
  for (std::size_t c = 0; c < sum_.size(); ++c) sum_[c] += Interval(lo[c], hi[c]);
  ++count_;
}

std::vector<Interval> KeyMean::mean(const UpwardRounding&) const {
  assert(count_ > 0);
  const Interval count(static_cast<double>(count_));  // below 2^53: exact
  std::vector<Interval> result;
  result.reserve(sum_.size());
  for (const Interval& s : sum_) result.push_back(s / count);
  return result;
}

Interval KeyMean::dot_mean(const UpwardRounding& up, std::span<const double> q) const {
  assert(count_ > 0);
  return dot(up, q, sum_) / Interval(static_cast<double>(count_));
}

}  // namespace headroom
