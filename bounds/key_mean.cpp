#include "bounds/key_mean.h"

#include <cassert>
#include <utility>

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

KeySums::KeySums(const UpwardRounding&, std::int64_t keys, std::int64_t channels, KeyRow key)
    : channels_(static_cast<std::size_t>(channels)), key_(std::move(key)) {
  std::vector<double> lo(channels_), hi(channels_);
  std::vector<Interval> sum(channels_);
  prefix_.reserve(static_cast<std::size_t>(keys / block + 1) * channels_);
  prefix_.insert(prefix_.end(), sum.begin(), sum.end());
  for (std::int64_t j = 0; j < keys; ++j) {
    key_(j, lo.data(), hi.data());
    for (std::size_t c = 0; c < channels_; ++c) sum[c] += Interval(lo[c], hi[c]);
    if ((j + 1) % block == 0) prefix_.insert(prefix_.end(), sum.begin(), sum.end());
  }
}

void KeySums::add(const UpwardRounding&, std::int64_t begin, std::int64_t end,
                  std::span<Interval> sum) const {
  assert(0 <= begin && begin <= end && sum.size() == channels_);
  std::vector<double> lo(channels_), hi(channels_);
  const auto rows = [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t j = from; j < to; ++j) {
      key_(j, lo.data(), hi.data());
      for (std::size_t c = 0; c < channels_; ++c) sum[c] += Interval(lo[c], hi[c]);
    }
  };
  const std::int64_t first = (begin + block - 1) / block, last = end / block;
  if (first >= last) return rows(begin, end);
  rows(begin, first * block);
  const Interval* from = &prefix_[static_cast<std::size_t>(first) * channels_];
  const Interval* to = &prefix_[static_cast<std::size_t>(last) * channels_];
  for (std::size_t c = 0; c < channels_; ++c) sum[c] += to[c] - from[c];
  rows(last * block, end);
}

}  // namespace headroom
