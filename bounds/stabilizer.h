// The stored stabilizer: how far mu lies from what its rule says in exact arithmetic.
#pragma once

#include <cstdint>
#include <span>

#include "reference/model/kernel_model.h"
#include "reference/real/bound.h"

namespace headroom {

/// A norm as a kernel computes it: elements rounded into `format` if they are not of it, squares
/// and sums in `format` in any order, fused or not, square root, each rounded to nearest.
class KernelNorm {
 public:
  /// Of vectors of n channels.
  KernelNorm(const UpwardRounding& up, const Format& format, std::int64_t n);

  /// Every result for an exact norm in `exact`: exact (1 -+ u)^((n + 3) / 2), rounded to nearest,
  /// with the underflow of small squares (flushed to zero or gradual in formats with binary32's
  /// exponent range or more, gradual in narrower ones). Infinite upper end where a partial sum may
  /// overflow; in bf16 and fp16 that is the common case for large norms.
  Interval of(const UpwardRounding& up, const Interval& exact) const;
  /// The same for a vector in the box [lo, hi]. If its elements are exact and their squares lie on
  /// a grid fine enough that every partial sum is a number of the format (|x|^2 <= 2^p grid), no
  /// order rounds and the result is the rounded root alone: 0 for the zero vector, 213 for (213,
  /// 0).
  Interval of(const UpwardRounding& up, std::span<const double> lo,
              std::span<const double> hi) const;

  /// The ends of `of(exact)` before the root: exact^2 shrunk - lost and (exact^2 + lost) grown.
  double grown() const { return grown_.hi(); }
  double shrunk() const { return shrunk_.lo(); }
  double lost() const { return lost_.hi(); }

 private:
  Format format_;
  Interval grown_, shrunk_, lost_;
};

/// KernelNorm for one vector.
Interval kernel_norm(const UpwardRounding& up, const Format& format, const Interval& exact,
                     std::int64_t n);
Interval kernel_norm(const UpwardRounding& up, const Format& format, std::span<const double> lo,
                     std::span<const double> hi);

/// Rounds an enclosed value to nearest, ties to even (or upward), into a format: every possible
/// result. A result that overflows is infinite, also in formats that deliver NaN there; an infinite
/// end of `value` (nothing known) stays infinite.
Interval rounded(const UpwardRounding& up, const Format& format, const Interval& value,
                 bool round_up);

/// ceil of an enclosed value: every possible result (integers at both ends).
Interval ceiling(const Interval& value);

/// floor/ceil of log2 of a positive integer; exact.
int floor_log2(std::uint64_t n);
int ceil_log2(std::uint64_t n);

/// An exponent beyond every format's range, small enough to be added and negated safely.
inline constexpr int unbounded_exponent = 1 << 20;
/// G = ceil(log2 max(1, vmax)), exact; unbounded_exponent for infinity and NaN.
int ceil_log2_at_least_one(double vmax);

}  // namespace headroom
