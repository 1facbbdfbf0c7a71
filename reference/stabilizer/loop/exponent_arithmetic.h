// The exponent stage's operations as stabilizers use them: floats, rounded once into its format.
#pragma once

#include <cmath>

#include "reference/stabilizer/kernel_arithmetic.h"

namespace headroom {

/// FP32: the machine's own operations.
struct NativeExponents {
  static float multiply(float a, float b) { return a * b; }
  static float subtract(float a, float b) { return a - b; }
  /// a b - c
  static float multiply_subtract(float a, float b, float c) { return std::fma(a, b, -c); }
};

/// Any format of at most 24 bits.
class RoundedExponents {
 public:
  explicit RoundedExponents(const Format& format) : arithmetic_(format) {}
  float multiply(float a, float b) const { return static_cast<float>(arithmetic_.multiply(a, b)); }
  float subtract(float a, float b) const { return static_cast<float>(arithmetic_.subtract(a, b)); }
  float multiply_subtract(float a, float b, float c) const {
    return static_cast<float>(arithmetic_.subtract(static_cast<double>(a) * b, c));
  }

 private:
  KernelArithmetic arithmetic_;
};

/// `use(arithmetic)` with the operations of the format.
template <typename Use>
void with_exponents(const Format& format, const Use& use) {
  if (format == fp32) {
    use(NativeExponents());
  } else {
    use(RoundedExponents(format));
  }
}

}  // namespace headroom
