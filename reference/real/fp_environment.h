// The floating-point environment of this thread: directed rounding under a guard, and the checks
// that the compiler, the processor and loaded libraries leave it alone.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <string>

namespace headroom {

/// The MXCSR values this project runs under: all exceptions masked, no FTZ, no DAZ.
inline constexpr std::uint32_t mxcsr_nearest = 0x1f80;
inline constexpr std::uint32_t mxcsr_upward = 0x1f80 | 0x4000;

/// Sets the whole MXCSR for a scope and restores the caller's whole MXCSR at its end.
///
/// Every parallel task opens one of its own (UpwardRounding or NearestRounding): worker threads
/// inherit the creator's environment, and oneTBB captures one at its first parallel call, so
/// nothing outside the task can be trusted.
class MxcsrScope {
 public:
  explicit MxcsrScope(std::uint32_t mxcsr) : saved_(_mm_getcsr()) { _mm_setcsr(mxcsr); }
  ~MxcsrScope() { _mm_setcsr(saved_); }
  MxcsrScope(const MxcsrScope&) = delete;
  MxcsrScope& operator=(const MxcsrScope&) = delete;

 private:
  std::uint32_t saved_;
};

/// Rounding toward +infinity. Functions that compute a directed bound take a
/// `const UpwardRounding&`, so that a call outside the guard does not compile.
class UpwardRounding : MxcsrScope {
 public:
  UpwardRounding() : MxcsrScope(mxcsr_upward) {}
};

/// Round to nearest, no FTZ/DAZ: for emulation and for calls into libraries.
class NearestRounding : MxcsrScope {
 public:
  NearestRounding() : MxcsrScope(mxcsr_nearest) {}
};

/// A value the optimiser cannot see through: keeps an operation inside its rounding scope.
inline double opaque(double x) {
  asm volatile("" : "+x"(x));
  return x;
}

/// Checks in this thread that directed rounding is obeyed (products, sums, quotients, square roots
/// bracket their exact values; no contraction into FMA; subnormals neither flushed nor read as
/// zero; `nearbyint` follows the mode). Returns the empty string, or one line saying what failed.
/// Called at the program's start and after each dlopen. Leaves the environment as it found it.
std::string floating_point_self_check();

}  // namespace headroom
