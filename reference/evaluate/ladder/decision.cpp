#include "reference/evaluate/ladder/decision.h"

#include <bit>
#include <cmath>

namespace headroom {

namespace {

/// Position of a code on the number line: consecutive integers, -0 at -1 and +0 at 0.
std::int64_t ordinal(const Format& format, std::uint64_t code) {
  const auto magnitude = static_cast<std::int64_t>(code & ~format.sign_mask());
  return (code & format.sign_mask()) != 0 ? -magnitude - 1 : magnitude;
}

Dyadic dyadic(const ExactValue& value) {
  Integer significand = value.significand;
  if (value.negative) significand = -significand;
  return {significand, value.exponent};
}

/// What a real of one sign below the smallest normal, in the normal range, or beyond becomes, by
/// integer arithmetic on the bits of a double: the rounded code, or all ones where the fast way
/// does not apply (subnormal results, overflow, other formats).
class FastRounding {
 public:
  explicit FastRounding(const Target& target)
      : shift_(53 - target.format.precision),
        sign_shift_(63 - (target.format.bits() - 1)),
        rebias_(static_cast<std::uint64_t>(1023 - target.format.bias())
                << target.format.trailing_bits()),
        least_(std::uint64_t(target.format.emin + 1023) << 52),
        greatest_(target.format.max_finite_code()),
        rounding_(target.rounding) {}

  bool applies() const { return shift_ > 0; }

  std::uint64_t operator()(double x) const {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const std::uint64_t magnitude = bits & 0x7fffffffffffffffU;
    const bool negative = bits != magnitude;
    std::uint64_t increment = 0;
    switch (rounding_) {
      case Rounding::nearest_even:
        increment = (std::uint64_t{1} << (shift_ - 1)) - 1 + ((magnitude >> shift_) & 1);
        break;
      case Rounding::toward_zero:
        break;
      case Rounding::upward:
        if (!negative) increment = (std::uint64_t{1} << shift_) - 1;
        break;
      case Rounding::downward:
        if (negative) increment = (std::uint64_t{1} << shift_) - 1;
        break;
    }
    const std::uint64_t code = ((magnitude + increment) >> shift_) - rebias_;
    if (magnitude < least_ || code > greatest_) return ~std::uint64_t{0};
    return code | (negative ? (std::uint64_t{1} << (63 - sign_shift_)) : 0);
  }

 private:
  int shift_, sign_shift_;
  std::uint64_t rebias_, least_, greatest_;
  Rounding rounding_;
};

}  // namespace

Dyadic Dyadic::of(double finite) { return dyadic(exact_value(finite)); }

std::optional<std::uint64_t> common_code(const Target& target, double lo, double hi) {
  const std::uint64_t a = encode(target.format, lo, target.policy());
  if (lo == hi) return lo == 0 ? 0 : a;
  // an enclosure that touches zero does not say which zero
  if (!(lo > 0 || hi < 0)) return std::nullopt;
  const std::uint64_t b = encode(target.format, hi, target.policy());
  if (a != b) return std::nullopt;
  return a;
}

std::optional<std::uint64_t> common_code(const Target& target, mpfr_srcptr lo, mpfr_srcptr hi) {
  if (mpfr_nan_p(lo) || mpfr_nan_p(hi)) return std::nullopt;
  const std::uint64_t a = encode(target.format, lo, target.policy());
  if (mpfr_equal_p(lo, hi)) return mpfr_zero_p(lo) ? 0 : a;
  if (mpfr_sgn(lo) <= 0 && mpfr_sgn(hi) >= 0) return std::nullopt;
  const std::uint64_t b = encode(target.format, hi, target.policy());
  if (a != b) return std::nullopt;
  return a;
}

std::int64_t common_codes(const Target& target, const double* lo, const double* hi,
                          std::int64_t count, std::uint64_t* codes, std::uint8_t* decided) {
  const FastRounding fast(target);
  std::int64_t undecided = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (fast.applies()) {
      const std::uint64_t a = fast(lo[i]), b = fast(hi[i]);
      if (a != ~std::uint64_t{0} && b != ~std::uint64_t{0}) {
        codes[i] = a;
        decided[i] = a == b;
        undecided += a != b;
        continue;
      }
    }
    const auto code = common_code(target, lo[i], hi[i]);
    codes[i] = code.value_or(target.nan());
    decided[i] = code.has_value();
    undecided += !code;
  }
  return undecided;
}

std::optional<Dyadic> boundary_between(const Target& target, std::uint64_t below,
                                       std::uint64_t above) {
  const Format& f = target.format;
  if (ordinal(f, above) - ordinal(f, below) != 1) return std::nullopt;
  const bool below_finite = is_finite(f, below), above_finite = is_finite(f, above);
  if (!below_finite && !above_finite) return std::nullopt;
  // of the overflow threshold: one step beyond the largest finite number
  const auto beyond = [&](bool negative) {
    Integer significand = f.max_finite_significand() + 1;
    if (negative) significand = -significand;
    return Dyadic{significand, f.emax - f.precision + 1};
  };
  const Dyadic a = below_finite ? dyadic(decode_exact(f, below)) : beyond(true);
  const Dyadic b = above_finite ? dyadic(decode_exact(f, above)) : beyond(false);
  switch (target.rounding) {
    case Rounding::nearest_even: {
      const std::int64_t e = std::min(a.exponent, b.exponent);
      const Integer sum = (a.significand << static_cast<unsigned>(a.exponent - e)) +
                          (b.significand << static_cast<unsigned>(b.exponent - e));
      return Dyadic{sum, e - 1};
    }
    case Rounding::upward:
      return a;
    case Rounding::downward:
      return b;
    case Rounding::toward_zero:
      return (above & f.sign_mask()) == 0 ? b : a;
  }
  return std::nullopt;
}

std::uint64_t rounded(const Target& target, const Dyadic& value) {
  if (value.significand == 0) return 0;
  mpfr_t x;
  mpfr_init2(x, static_cast<mpfr_prec_t>(std::max<std::size_t>(
                    2, mpz_sizeinbase(value.significand.backend().data(), 2))));
  mpfr_set_z_2exp(x, value.significand.backend().data(), value.exponent, MPFR_RNDN);
  const std::uint64_t code = encode(target.format, x, target.policy());
  mpfr_clear(x);
  return code;
}

}  // namespace headroom
