#include "reference/evaluate/simulate/lanes/lane_kernels.h"

#include <bit>
#include <cassert>
#include <cmath>

namespace headroom {

extern const LaneKernels lane_kernels_portable;
extern const LaneKernels lane_kernels_avx2;
extern const LaneKernels lane_kernels_avx512;

namespace {

std::uint32_t encoding(double x) { return std::bit_cast<std::uint32_t>(static_cast<float>(x)); }

}  // namespace

Narrowing::Narrowing(const Format& format, bool flush_to_zero, bool saturate) {
  const int p = format.precision;
  identity = format == fp32 && !flush_to_zero && !saturate;
  shift = static_cast<std::uint32_t>(fp32.precision - p);
  odd = shift > 0 ? 1 : 0;
  half = shift > 0 ? (1U << (shift - 1)) - 1 : 0;
  keep = ~0U << shift;
  if (format.emin > fp32.emin) {
    normal = encoding(std::ldexp(1.0, format.emin));
    magic = static_cast<float>(std::ldexp(1.0, format.least_exponent() + fp32.precision - 1));
  }
  largest = encoding(format.max_finite());
  over = saturate                ? largest
         : format.has_infinity() ? encoding(INFINITY)
                                 : encoding(NAN) & 0x7fffffffU;
  if (flush_to_zero) {
    // half a unit below the smallest normal rounds to it with unbounded exponent; of a float that
    // is not rounded at all, nothing below does
    const double least = std::ldexp(1.0, format.emin);
    flushed = encoding(format == fp32 ? least : least - std::ldexp(1.0, format.emin - p - 1));
  }
}

const LaneKernels& lane_kernels(InstructionSet set) {
  assert(processor_has(set));
  switch (set) {
    case InstructionSet::avx512:
      return lane_kernels_avx512;
    case InstructionSet::avx2:
      return lane_kernels_avx2;
    case InstructionSet::portable:
      break;
  }
  return lane_kernels_portable;
}

}  // namespace headroom
