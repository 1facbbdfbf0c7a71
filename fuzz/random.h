// Random numbers of the fuzzer: the same sequence with every compiler and library.
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace headroom::fuzz {

/// xoshiro256** of Blackman and Vigna, seeded by splitmix64. Nothing here calls libm, whose results
/// differ between libraries.
class Random {
 public:
  /// Streams of different (seed, generation, index) are independent for all practical purposes.
  explicit Random(std::uint64_t seed, std::uint64_t generation = 0, std::uint64_t index = 0) {
    std::uint64_t x = seed;
    for (const std::uint64_t more : {generation, index}) x = mix(x) ^ (more + step);
    for (std::uint64_t& s : state_) s = mix(x += step);
  }

  std::uint64_t bits() {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }
  /// 0 .. n - 1, with a bias below 2^-32 for n < 2^32. Requires: 1 <= n < 2^32.
  std::uint64_t below(std::uint64_t n) { return ((bits() >> 32) * n) >> 32; }
  /// Of [lo, hi].
  std::int64_t between(std::int64_t lo, std::int64_t hi) {
    return lo + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(hi - lo + 1)));
  }
  /// Of [0, 1), 53 bits.
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double uniform(double lo, double hi) { return lo + (hi - lo) * uniform(); }
  /// Nearly normal, of mean 0 and variance 1: a sum of twelve uniforms, within 6 of 0.
  double normal() {
    double sum = -6;
    for (int i = 0; i < 6; ++i) {
      const std::uint64_t two = bits();
      sum += static_cast<double>(two >> 32) * 0x1p-32 +
             static_cast<double>(two & 0xffffffffU) * 0x1p-32;
    }
    return sum;
  }
  bool chance(double p) { return uniform() < p; }
  bool coin() { return (bits() >> 63) != 0; }
  template <class T>
  const T& pick(std::span<const T> from) {
    return from[below(from.size())];
  }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }
  template <class T>
  T pick(std::initializer_list<T> from) {
    return from.begin()[below(from.size())];
  }

 private:
  static constexpr std::uint64_t step = 0x9e3779b97f4a7c15ULL;
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  std::uint64_t state_[4];
};

}  // namespace headroom::fuzz
