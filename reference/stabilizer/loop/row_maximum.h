// Row maxima of tiles, and what stabilizers that follow a running maximum share.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "reference/stabilizer/loop/loop.h"

namespace headroom {

inline constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// What a kernel's maximum makes of NaN: GPUs' fmax drops it, XLA's max keeps it.
enum class NanInMaximum : std::uint8_t { dropped, kept };

/// m[r] = max(m[r], the row's stored scores of the tile).
void raise_to_stored(const TileScores& tile, NanInMaximum nan, float* m);

/// m[r] = max(m[r], the row's scaled scores of the tile). Since RN(s c) grows with s, the factor
/// c > 0 multiplies the maximum only.
void raise_to_scaled(const LoopArithmetic& kernel, const TileScores& tile, NanInMaximum nan,
                     float* m);

/// max as the kernel takes it of two numbers.
inline float maximum(float a, float b, NanInMaximum nan) {
  if (nan == NanInMaximum::kept && b != b) return b;
  return b > a ? b : a;
}

/// What every rule here holds: the head, its parameters, a running maximum a row, work space.
class RowMaximumLoop : public LoopStabilizer {
 public:
  explicit RowMaximumLoop(std::string_view name) : name_(name) {}
  std::string_view name() const final { return name_; }
  void init(const LoopArithmetic& kernel) override { kernel_ = &kernel; }
  void before_loop(std::span<const std::int64_t> rows) override {
    maximum_.assign(rows.size(), minus_infinity);
    top_.resize(rows.size());
    change_.resize(rows.size());
  }

 protected:
  const LoopArithmetic& kernel() const { return *kernel_; }

  std::vector<float> maximum_;  ///< m of each row
  std::vector<float> top_;      ///< of the tile
  std::vector<float> change_;   ///< arguments of the correction's exponentials

 private:
  std::string_view name_;  ///< a literal of the registry
  const LoopArithmetic* kernel_ = nullptr;
};

}  // namespace headroom
