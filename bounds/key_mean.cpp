#include "bounds/key_mean.h"

#include <cassert>

#include "bounds/norms.h"

namespace headroom {

void KeyMean::add(const UpwardRounding&, std::span<const double> lo, std::span<const double> hi) {
  assert(lo.size() == upper_.size() && hi.size() == upper_.size());
  for (std::size_t c = 0; c < upper_.size(); ++c) {
    minus_lower_[c] = minus_lower_[c] - lo[c];
    upper_[c] = upper_[c] + hi[c];
  }
  ++count_;
}

std::vector<Interval> KeyMean::mean(const UpwardRounding&) const {
  assert(count_ > 0);
  const Interval count(static_cast<double>(count_));  // below 2^53: exact
  std::vector<Interval> result;
  result.reserve(upper_.size());
  for (std::size_t c = 0; c < upper_.size(); ++c) {
    result.push_back(Interval(-minus_lower_[c], upper_[c]) / count);
  }
  return result;
}

Interval KeyMean::dot_mean(const UpwardRounding& up, std::span<const double> q) const {
  assert(count_ > 0);
  std::vector<double> lower(minus_lower_.size());
  for (std::size_t c = 0; c < lower.size(); ++c) lower[c] = -minus_lower_[c];
  return dot(up, q, lower, upper_) / Interval(static_cast<double>(count_));
}

}  // namespace headroom
