#include "reference/stabilizer/loop/row_maximum.h"

#include <algorithm>

#include "reference/stabilizer/loop/exponent_arithmetic.h"

namespace headroom {
namespace {

constexpr std::int64_t lanes = 16;  // rows whose maxima stay in registers

template <NanInMaximum nan>
void raise(const TileScores& tile, float* m) {
  std::int64_t r = 0;
  for (; r + lanes <= tile.rows; r += lanes) {
    float largest[lanes];
    std::copy_n(m + r, lanes, largest);
    const float* s = tile.scores + r;
    for (std::int64_t j = 0; j < tile.keys; ++j, s += tile.stride) {
      for (std::int64_t i = 0; i < lanes; ++i) {
        float next = s[i] > largest[i] ? s[i] : largest[i];
        if constexpr (nan == NanInMaximum::kept) next = s[i] != s[i] ? s[i] : next;
        largest[i] = next;
      }
    }
    std::copy_n(largest, lanes, m + r);
  }
  for (; r < tile.rows; ++r) {
    for (std::int64_t j = 0; j < tile.keys; ++j) {
      m[r] = maximum(m[r], tile.scores[j * tile.stride + r], nan);
    }
  }
}

}  // namespace

void raise_to_stored(const TileScores& tile, NanInMaximum nan, float* m) {
  if (nan == NanInMaximum::kept) {
    raise<NanInMaximum::kept>(tile, m);
  } else {
    raise<NanInMaximum::dropped>(tile, m);
  }
}

void raise_to_scaled(const LoopArithmetic& kernel, const TileScores& tile, NanInMaximum nan,
                     float* m) {
  if (kernel.factor() == 1) {
    raise_to_stored(tile, nan, m);
    return;
  }
  if (!(kernel.factor() > 0)) {  // each score by itself: 0 makes NaN of a hidden key's
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      for (std::int64_t j = 0; j < tile.keys; ++j) {
        m[r] = maximum(m[r], kernel.scaled(tile.scores[j * tile.stride + r]), nan);
      }
    }
    return;
  }
  constexpr std::int64_t block = 64;
  float top[block];
  for (std::int64_t r = 0; r < tile.rows; r += block) {
    const std::int64_t n = std::min(block, tile.rows - r);
    std::fill_n(top, n, minus_infinity);
    TileScores part = tile;
    part.scores += r;
    part.rows = n;
    raise_to_stored(part, nan, top);
    with_exponents(kernel.model().exponent.format, [&](const auto& x) {
      for (std::int64_t i = 0; i < n; ++i) {
        m[r + i] = maximum(m[r + i], x.multiply(top[i], kernel.factor()), nan);
      }
    });
  }
}

}  // namespace headroom
