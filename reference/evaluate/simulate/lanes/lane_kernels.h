// The loops of the vector simulation, one set per instruction set, chosen at run time.
//
// Lanes are query rows, 16 a group. Arrays over rows have a stride of a multiple of 16 floats, and
// every loop runs over whole groups: [keys][stride] for scores and weights, [channels][stride] for
// Q transposed and for sums. Every number is a float of its stage's format. All sets give the same
// bits up to the sign and payload of NaN. NaN that enters has its low 15 bits zero, as the
// canonical one's are; no operation changes that.
//
// FP32 stages that flush run under MXCSR.FTZ, set by the caller, which tests for underflow after
// rounding with unbounded exponent, as convert.h does; all others under NearestRounding.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reference/evaluate/vector/kernels.h"
#include "reference/format/convert.h"
#include "reference/format/format.h"

namespace headroom {

inline constexpr std::int64_t lane_group = 16;

/// A conversion of floats into a format of at most 24 bits, RNE, as constants of the loops.
struct Narrowing {
  Narrowing() = default;
  Narrowing(const Format& format, bool flush_to_zero, bool saturate);

  /// Is this RNE into bf16 or fp16 and nothing else?
  bool plain_bf16() const { return shift == 16 && flushed == 0 && over == 0x7f800000U; }
  bool plain_fp16() const {
    return shift == 13 && normal != 0 && flushed == 0 && over == 0x7f800000U;
  }

  bool identity = true;       ///< FP32 that neither flushes nor saturates
  std::uint32_t shift = 0;    ///< bits cut off
  std::uint32_t half = 0;     ///< just below half a unit of the last kept place
  std::uint32_t odd = 0;      ///< 1 if bits are cut
  std::uint32_t keep = ~0U;   ///< mask of the kept bits
  std::uint32_t normal = 0;   ///< encoding of the smallest normal, 0 where it is FP32's
  float magic = 0;            ///< adding and subtracting it rounds to a multiple of 2^least
  std::uint32_t largest = 0;  ///< encoding of the largest finite number
  std::uint32_t over = 0;     ///< encoding of what is given beyond it
  std::uint32_t flushed = 0;  ///< magnitudes with encodings below this become zeros
};

/// How the terms of a sum arise.
enum class Products : std::uint8_t {
  fused,    ///< a b + sum, rounded once
  exact,    ///< a b, rounded, then added; FP32's a b rounded once more is correct
  rounded,  ///< the same for any a and b
};

/// A matrix unit (matrix_unit.h) whose sums the loops hold; `size` 0: none.
struct MatrixUnit {
  static constexpr int most_terms = 32;

  int size = 0;           ///< products a step
  int fraction_bits = 0;  ///< F
  int a_emin = -126, b_emin = -126;
  bool flush_to_zero = false;

  /// Of n products, each below 4 units of 2^F, and an accumulator below 2: do 32 bits hold the sum?
  static bool fits(int fraction_bits, int n) {
    return fraction_bits <= 29 && 4 * n + 2 <= 1 << (31 - fraction_bits);
  }
  /// If not, halves are added apart.
  bool halves() const { return !fits(fraction_bits, size); }
  bool covered() const {
    return size >= 1 && size <= most_terms && fits(fraction_bits, (size + 1) / 2);
  }
  /// A mask of the result's bits: min(23, F) of its fraction.
  std::uint32_t kept_bits() const {
    return fraction_bits >= 23 ? ~0U : ~0U << (23 - fraction_bits);
  }
};

/// Channels (or terms) begin, begin + step, ... of one chain of a score's sum.
struct ScoreChain {
  std::int64_t begin = 0, end = 0, step = 1;
};

struct ScoreArgs {
  const float* q = nullptr;  ///< [channels][stride]
  std::int64_t stride = 0;
  const float* k = nullptr;  ///< [keys][channels]
  std::int64_t keys = 0, channels = 0;
  const ScoreChain* chains = nullptr;
  std::int64_t n_chains = 0;
  bool from_zero = false;  ///< chains are added to 0, the first included
  float factor = 1;        ///< multiplies before the store, rounded by the stage; 1: nothing
  Narrowing store;
  float* scores = nullptr;  ///< [keys][stride]
};

/// sum[c] = start[c] + p[0] v[0][c] + p[step] v[step][c] + ..., one after another.
struct ProductArgs {
  const float* start = nullptr;   ///< [channels][start_stride]
  std::int64_t start_stride = 0;  ///< 0: one row of lanes for all channels
  float* sum = nullptr;           ///< [channels][stride]; may be start
  bool join = false;              ///< sum = sum + (start + ...) instead
  std::int64_t channels = 0, stride = 0;
  const float* p = nullptr;  ///< [terms][stride]
  const float* v = nullptr;  ///< [terms][v_stride]
  std::int64_t v_stride = 0;
  std::int64_t terms = 0, step = 1;
};
/// The same with v = 1 and one channel. `least`: terms below this magnitude are read as zeros.
struct TermArgs {
  const float* start = nullptr;
  float* sum = nullptr;
  bool join = false;
  std::int64_t stride = 0;
  const float* p = nullptr;
  std::int64_t terms = 0, step = 1;
  float least = 0;
};

/// The loops of one stage: its format, FTZ and products.
struct StageLoops {
  void (*scores)(const ScoreArgs& args);
  void (*products)(const ProductArgs& args);
  void (*terms)(const TermArgs& args);
  /// a[i] + b[i], numbers of the stage's format.
  void (*add)(const float* a, const float* b, float* sum, std::int64_t n);
  /// x[c][r] times factor[r], unless that is 1.
  void (*scale)(float* x, std::int64_t channels, std::int64_t stride, const float* factor);
  /// x[c][r] / divisor[r].
  void (*divide)(float* x, std::int64_t channels, std::int64_t stride, const float* divisor);
};

/// How x = z - mu is computed.
struct ExponentArgs {
  const float* scores = nullptr;  ///< [keys][stride]
  std::int64_t keys = 0, stride = 0;
  const float* shift = nullptr;
  float factor = 1;
  bool fused = false;
  bool native = true;  ///< FP32
  Narrowing format;    ///< if not
  float* exponents = nullptr;
};

/// Exponents, their exponentials and P in one pass: x in FP32, E(x) = RN(2^x).
struct WeightArgs {
  ExponentArgs exponent;     ///< native; `exponents` receives E(x)
  Narrowing p;               ///< identity, or plain bf16 or fp16
  float* weights = nullptr;  ///< [keys][stride]; unused if p is the identity
};
/// E(x) at exponents[index] is still to be computed, and rounded into weights[index].
struct UnsettledWeight {
  std::int64_t index;
  float x;
};

struct LaneKernels {
  /// Those of a stage whose format is fp32, bf16 or fp16. `flush` has no effect on fp32's.
  const StageLoops& (*stage)(const Format& format, bool flush, Products products);
  /// Sums of matrix units into FP32. Requires: unit.covered(); products of factors are exact in
  /// FP32 but for its range; of ProductArgs, start is sum and step is 1.
  void (*matrix_scores)(const MatrixUnit& unit, const ScoreArgs& args);
  void (*matrix_products)(const MatrixUnit& unit, const ProductArgs& args);
  void (*exponents)(const ExponentArgs& args);
  /// Returns how many weights are unsettled; `unsettled` has room for keys * stride. Null where
  /// there is no such loop.
  std::int64_t (*weights)(const WeightArgs& args, UnsettledWeight* unsettled);
  /// y[i] = x[i] in the format; x may be y.
  void (*narrow)(const Narrowing& format, const float* x, float* y, std::int64_t n);
  /// x[i] below `least` in magnitude becomes a zero of its sign.
  void (*flush)(float least, float* x, std::int64_t n);
  /// Words of bf16 or fp16 as floats, NaN of bf16 as it is.
  void (*widen_bf16)(const std::uint16_t* words, float* x, std::int64_t n);
  void (*widen_fp16)(const std::uint16_t* words, float* x, std::int64_t n);
  /// x[i] = operand(arithmetic(x[i] constant)).
  void (*fold)(float constant, const Narrowing& arithmetic, const Narrowing& operand, float* x,
               std::int64_t n);
  /// sum[c] = x[0][c] + x[1][c] + ... in FP32.
  void (*column_sums)(const float* x, std::int64_t rows, std::int64_t columns, float* sum);
  /// x[j][c] -= mean[c], rounded into the format.
  void (*centre)(const float* mean, const Narrowing& format, float* x, std::int64_t rows,
                 std::int64_t columns);
  /// x[rows][columns] as y[columns][stride]; rows from `rows` to the stride's end are zeros.
  void (*transpose)(const float* x, std::int64_t rows, std::int64_t columns, float* y,
                    std::int64_t stride);
  /// x[columns][stride] as y[rows][columns] in the format, NaN canonical.
  void (*deliver)(const Narrowing& format, const float* x, std::int64_t stride, std::int64_t rows,
                  std::int64_t columns, float* y);
  /// x[i] = table[code of x[i]], numbers of bf16 or of fp16.
  void (*look_up)(bool words_of_bf16, const float* table, float* x, std::int64_t n);
  /// ln x or log2 x in doubles, within 2^-44 relatively where x is positive and finite.
  void (*logarithms)(bool base_two, const float* x, double* y, std::int64_t n);
};

/// Requires processor_has(set).
const LaneKernels& lane_kernels(InstructionSet set);

}  // namespace headroom
