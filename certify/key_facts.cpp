#include "certify/key_facts.h"

#include <cmath>

#include "bounds/norms.h"

namespace headroom {
namespace {

/// Raises the enclosed maximum `best` to include `value`; keeps where the upper end came from.
void raise_maximum(Interval& best, std::int64_t& at, const Interval& value, std::int64_t index) {
  if (value.hi() > best.hi()) at = index;
  best = max(best, value);
}

}  // namespace

KeyFacts::KeyFacts(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                   const Operands& operands)
    : up_(up),
      kernel_(kernel),
      operands_(operands),
      virtual_centre_(kernel.centring.keys == Centring::virtual_),
      kernel_norm_(up, kernel.stabilizer.norm, head.channels()),
      // k' - a for mean and virtual centring; k' otherwise
      centre_(operands.stored_mean()),
      exact_(static_cast<std::size_t>(head.channels())),
      lo_(exact_.size()),
      hi_(exact_.size()),
      raw_lo_(exact_.size()),
      raw_hi_(exact_.size()) {
  if (centre_.empty()) centre_.resize(exact_.size());
  // k - a is rounded channel by channel before it is squared
  const double u = std::ldexp(1.0, -kernel.stabilizer.norm.precision);
  difference_rounding_ = Interval(1.0) + Interval(-u, u);
}

void KeyFacts::take(std::int64_t j, HeadScan& scan) {
  operands_.key_row(j, lo_.data(), hi_.data());
  operands_.exact_key_row(j, raw_lo_.data(), raw_hi_.data());
  const Interval length = norm(up_, lo_, hi_);
  raise_maximum(scan.key_norm, scan.key_norm_at, length, j);
  const Interval from_centre = virtual_centre_ ? distance(up_, lo_, hi_, centre_) : length;
  raise_maximum(scan.radius, scan.radius_at, from_centre, j);
  scan.kernel_radius = max(
      scan.kernel_radius, virtual_centre_ ? kernel_norm_.of(up_, from_centre * difference_rounding_)
                                          : kernel_norm_.of(up_, lo_, hi_));
  const Interval raw_centred = distance(up_, raw_lo_, raw_hi_, centre_);
  scan.raw_centred_norm = std::fmax(scan.raw_centred_norm, raw_centred.hi());
  // k~ - (k' - a): zero when nothing was rounded
  for (std::size_t c = 0; c < exact_.size(); ++c) {
    exact_[c] = Interval(raw_lo_[c], raw_hi_[c]);
    if (kernel_.centring.keys == Centring::mean) exact_[c] -= centre_[c];
  }
  scan.key_difference = std::fmax(scan.key_difference, distance(up_, lo_, hi_, exact_).hi());
}

}  // namespace headroom
