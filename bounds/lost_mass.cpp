#include "bounds/lost_mass.h"

#include <cmath>
#include <cstdint>

namespace headroom {
namespace {

constexpr double guard_step = 0x1p-20;

}  // namespace

// Proof of the bound. Let r be the number of lost keys over the number of kept ones. Lost keys have
// scores below zbar - D, so the kept keys' mean is at least zbar + r D; by Jensen their mass is at
// least (kept) 2^(zbar + r D), while the lost mass is at most r (kept) 2^(zbar - D). The ratio
// r 2^(-D (1 + r)) is largest at r = 1 / (D ln 2), where it is rho. lost / l <= rho / (1 + rho).
Upper<Relative> lost_mass(const UpwardRounding&, Lower<Log2> margin) {
  const double d = margin.value();
  if (!(d > 0)) return Upper<Relative>(1);
  static const Interval euler = exp(Interval(1.0));
  const Interval bits(d);
  const Interval e_d_ln2 = euler * bits * ln_2();
  if (d > 1000) return Upper<Relative>::of(exp2(-bits) / e_d_ln2);  // rho; 2^D may overflow
  // 1 / (1 + 1 / rho) is accurate for every rho.
  const Interval sharp = Interval(1.0) / (Interval(1.0) + e_d_ln2 * exp2(bits));
  return tighter(Upper<Relative>::of(sharp), Upper<Relative>(1));
}

Upper<Log2> guard_bits(const UpwardRounding& up, double eps) {
  if (eps >= 1) return Upper<Log2>(0);
  if (!(eps > 0)) return {};
  const auto enough = [&](std::int64_t steps) {
    return lost_mass(up, Lower<Log2>(static_cast<double>(steps) * guard_step)).value() <= eps;
  };
  // 2^-1074 needs fewer than 1,100 bits. Bisection keeps `enough(high)`, so the result is rigorous
  // whether or not the computed bound is monotone to the last bit.
  std::int64_t low = 0, high = std::int64_t{1100} << 20;
  if (!enough(high)) return {};
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (enough(middle) ? high : low) = middle;
  }
  return Upper<Log2>(static_cast<double>(high) * guard_step);
}

Upper<Relative> lost_mass_by_count(const UpwardRounding&, std::int64_t count, Upper<Log2> threshold,
                                   Lower<Log2> mass) {
  if (count <= 0) return Upper<Relative>(0);
  const Upper<Log2> difference = threshold - mass;
  if (std::isinf(difference.value()) && difference.value() > 0) return Upper<Relative>(1);
  const Interval fraction =
      exp2(Interval(difference.value())) * Interval(static_cast<double>(count));
  return tighter(Upper<Relative>::of(fraction), Upper<Relative>(1));  // a fraction of the mass
}

}  // namespace headroom
