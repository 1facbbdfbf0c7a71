#include "reference/stabilizer/loop/row_maximum.h"

#include <algorithm>
#include <cstring>

#include "reference/stabilizer/loop/exponent_arithmetic.h"

namespace headroom {
namespace {

/// Four rows, an SSE register of every x86-64; a vector of this type is what all compilers make
/// maxps of.
typedef float Rows __attribute__((vector_size(16)));
constexpr std::int64_t lanes = 4, registers = 4;

template <NanInMaximum nan>
Rows raised(Rows m, Rows s) {
  const Rows larger = s > m ? s : m;
  if constexpr (nan == NanInMaximum::kept) return s != s ? s : larger;
  return larger;
}

template <NanInMaximum nan>
void raise(const TileScores& tile, float* m) {
  std::int64_t r = 0;
  for (; r + registers * lanes <= tile.rows; r += registers * lanes) {
    Rows largest[registers];
    std::memcpy(largest, m + r, sizeof largest);
    const float* s = tile.scores + r;
    for (std::int64_t j = 0; j < tile.keys; ++j, s += tile.stride) {
      for (std::int64_t i = 0; i < registers; ++i) {
        Rows scores;
        std::memcpy(&scores, s + i * lanes, sizeof scores);
        largest[i] = raised<nan>(largest[i], scores);
      }
    }
    std::memcpy(m + r, largest, sizeof largest);
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
