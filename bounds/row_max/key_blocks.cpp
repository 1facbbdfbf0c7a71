#include "bounds/row_max/key_blocks.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "bounds/norms.h"
#include "bounds/score.h"

namespace headroom {

KeyBlocks::KeyBlocks(const UpwardRounding& up, const Operands& operands, std::int64_t end,
                     std::int64_t size)
    : size_(size), channels_(static_cast<std::size_t>(operands.channels())) {
  assert(size >= 1 && end >= 0 && end <= operands.keys());
  const auto capacity = static_cast<std::size_t>(std::min(size, end)) * channels_;
  std::vector<double> lo(capacity), hi(capacity);
  for (std::int64_t begin = 0; begin < end; begin += size) {
    const std::int64_t n = std::min(size, end - begin);
    for (std::int64_t j = 0; j < n; ++j) {
      const std::size_t at = static_cast<std::size_t>(j) * channels_;
      operands.key_row(begin + j, lo.data() + at, hi.data() + at);
    }
    const std::size_t used = static_cast<std::size_t>(n) * channels_;
    close(up, std::span(lo).first(used), std::span(hi).first(used));
  }
}

void KeyBlocks::close(const UpwardRounding& up, std::span<const double> lo,
                      std::span<const double> hi) {
  // The mean of what differs from the first key: equal channels keep their value, however large.
  std::vector<double> centre(channels_);
  for (std::size_t at = 0; at < lo.size(); at += channels_) {
    for (std::size_t c = 0; c < channels_; ++c) centre[c] += lo[at + c] - lo[c];
  }
  const double n = static_cast<double>(lo.size()) / static_cast<double>(channels_);
  std::vector<Interval> a(channels_);
  for (std::size_t c = 0; c < channels_; ++c) {
    centre[c] = lo[c] + centre[c] / n;
    a[c] = Interval(centre[c]);
  }
  double radius = 0;
  for (std::size_t at = 0; at < lo.size(); at += channels_) {
    radius = std::max(radius,
                      distance(up, lo.subspan(at, channels_), hi.subspan(at, channels_), a).hi());
  }
  centres_.insert(centres_.end(), centre.begin(), centre.end());
  radii_.emplace_back(radius);
}

std::span<const double> KeyBlocks::centre(std::int64_t block) const {
  return std::span(centres_).subspan(static_cast<std::size_t>(block) * channels_, channels_);
}

KeyRange KeyBlocks::blocks_of(const KeyRange& keys) const {
  if (keys.count() == 0) return {0, 0};
  return {keys.begin / size_, std::min(count(), (keys.end + size_ - 1) / size_)};
}

Upper<Log2> block_ball_maximum(const UpwardRounding& up, const Interval& factor,
                               std::span<const double> q, Upper<Absolute> q_norm,
                               const KeyBlocks& blocks, const KeyRange& visible) {
  Upper<Log2> most(-std::numeric_limits<double>::infinity());
  const KeyRange range = blocks.blocks_of(visible);
  for (std::int64_t b = range.begin; b < range.end; ++b) {
    const std::span<const double> centre = blocks.centre(b);
    const Interval score = factor * dot(up, q, centre, centre);
    most = max(most, cauchy_schwarz(up, factor, q_norm, blocks.radius(b), score));
  }
  return most;
}

}  // namespace headroom
