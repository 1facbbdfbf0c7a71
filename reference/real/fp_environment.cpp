#include "reference/real/fp_environment.h"

#include <cfloat>
#include <cmath>
#include <limits>

static_assert(FLT_EVAL_METHOD == 0, "excess precision (x87) would break every directed rounding");
static_assert(std::numeric_limits<double>::is_iec559 && std::numeric_limits<float>::is_iec559);

namespace headroom {
namespace {

constexpr std::uint32_t mxcsr_downward = mxcsr_nearest | 0x2000;
constexpr std::uint32_t mxcsr_daz = 0x0040;
constexpr std::uint32_t mxcsr_ftz = 0x8000;

// Literals on purpose: a compiler that folds them rounds to nearest. The empty volatile asm keeps
// the function from being judged pure, so that calls under two modes are not merged into one.
[[gnu::noinline]] double folded_third() {
  asm volatile("");
  return opaque(1.0 / 3.0);
}
[[gnu::noinline]] double folded_nearbyint() {
  asm volatile("");
  return opaque(std::nearbyint(0.125));
}

double product(double a, double b) { return opaque(opaque(a) * opaque(b)); }
double sum(double a, double b) { return opaque(opaque(a) + opaque(b)); }
double quotient(double a, double b) { return opaque(opaque(a) / opaque(b)); }
double square_root(double a) { return opaque(std::sqrt(opaque(a))); }
double to_float(double a) { return opaque(static_cast<float>(opaque(a))); }
double from_integer(std::int64_t a) {
  asm volatile("" : "+r"(a));
  return opaque(static_cast<double>(a));
}
// Every operand is opaque, the product is not: what is left to the compiler is the contraction.
double multiply_subtract(double a, double b, double c) {
  a = opaque(a), b = opaque(b), c = opaque(c);
  return opaque(a * b - c);
}

// Exact values, from integers: (2^27 + 1)^2 = 2^54 + 2^28 + 1 lies between doubles 4 apart,
// 2^53 + 1 between doubles 2 apart; 1/3 and sqrt(2) by their binary expansions.
constexpr double factor = 0x1p27 + 1;
constexpr double square_below = 0x1p54 + 0x1p28, square_above = 0x1p54 + 0x1p28 + 4;
constexpr double third_below = 0x1.5555555555555p-2, third_above = 0x1.5555555555556p-2;
constexpr double root_below = 0x1.6a09e667f3bccp+0, root_above = 0x1.6a09e667f3bcdp+0;

std::string check_upward() {
  const UpwardRounding up;
  if (product(factor, factor) != square_above || -product(-factor, factor) != square_below) {
    return "a product does not bracket its exact value under upward rounding";
  }
  if (sum(0x1p53, 1) != 0x1p53 + 2 || -sum(-0x1p53, -1) != 0x1p53) {
    return "a sum does not bracket its exact value under upward rounding";
  }
  if (quotient(1, 3) != third_above || -quotient(-1, 3) != third_below) {
    return "a quotient does not bracket its exact value under upward rounding";
  }
  if (square_root(2) != root_above) return "a square root is not rounded upward";
  if (to_float(1 + 0x1p-40) != 1 + 0x1p-23) return "double to float is not rounded upward";
  if (from_integer((std::int64_t{1} << 53) + 1) != 0x1p53 + 2) {
    return "integer to double is not rounded upward";
  }
  if (folded_third() != third_above) {
    return "the compiler folded a quotient of literals (is -frounding-math missing?)";
  }
  if (folded_nearbyint() != 1 || std::nearbyint(opaque(0.125)) != 1) {
    return "nearbyint does not follow upward rounding";
  }
  return {};
}

std::string check_downward() {
  const MxcsrScope down(mxcsr_downward);
  if (square_root(2) != root_below) return "a square root is not rounded downward";
  if (folded_third() != third_below) return "a quotient of literals is not rounded downward";
  return {};
}

std::string check_nearest() {
  const NearestRounding nearest;
  if (product(factor, factor) != square_below || quotient(1, 3) != third_below ||
      sum(0x1p53, 1) != 0x1p53) {
    return "round to nearest is not obeyed";
  }
  if (folded_nearbyint() != 0) return "nearbyint does not follow rounding to nearest";
  // (1 + 2^-30)^2 = 1 + 2^-29 + 2^-60: the last term survives in a fused operation only.
  if (multiply_subtract(1 + 0x1p-30, 1 + 0x1p-30, 1 + 0x1p-29) != 0) {
    return "a product and a sum were contracted into a fused multiply-add";
  }
  return {};
}

std::string check_subnormals(std::uint32_t mxcsr) {
  const MxcsrScope scope(mxcsr);
  if (product(DBL_MIN, 0.5) != 0x1p-1023) return "subnormal results are flushed to zero";
  if (product(DBL_TRUE_MIN, 0x1p52) != DBL_MIN) return "subnormal operands are read as zero";
  return {};
}

}  // namespace

std::string floating_point_self_check() {
  const std::uint32_t found = _mm_getcsr();
  if ((found & (mxcsr_ftz | mxcsr_daz)) != 0) {
    const std::string what = (found & mxcsr_ftz) == 0   ? "DAZ (subnormals read as zero)"
                             : (found & mxcsr_daz) == 0 ? "FTZ (subnormal results flushed)"
                                                        : "FTZ and DAZ (subnormals lost)";
    return what + " is on in this thread: a library built with -ffast-math was loaded";
  }
  for (const std::string& failure :
       {check_upward(), check_downward(), check_nearest(), check_subnormals(mxcsr_nearest),
        check_subnormals(mxcsr_upward)}) {
    if (!failure.empty()) return failure;
  }
  if ((_mm_getcsr() & ~0x3fU) != (found & ~0x3fU)) {  // the low six bits are sticky flags
    return "MXCSR was not restored after a rounding scope";
  }
  return {};
}

}  // namespace headroom
