// Passes over stored rows at memory speed: extremes, norms, column sums, dot products.
//
// One set of loops an instruction set, chosen at run time. Everything is computed to nearest, and
// each pass states how far its result may lie from the exact one, so that a bound can be made of
// it. Requires in all: round to nearest, no FTZ, no DAZ (NearestRounding); formats BF16, FP16 or
// FP32. Rows may be unaligned and have any stride.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "reference/format/format.h"
#include "reference/head/matrix.h"
#include "reference/real/instruction_set.h"

namespace headroom {

enum class WordFormat : std::uint8_t { bf16, fp16, fp32 };
/// None for formats that the passes do not read.
std::optional<WordFormat> word_format(const Format& format);

struct StoredRows {
  const std::byte* data;
  std::int64_t stride, rows, channels;
};
/// The first `rows` rows.
StoredRows stored_rows(const Matrix& matrix, std::int64_t rows);

/// Stored x becomes RN_bf16(RN_fp32(x constant)) before anything else; nothing happens if not on.
struct Folding {
  bool on = false;
  float constant = 1;
};

/// Arrays by channel are read and written in the order in which a pass meets the channels: element
/// `position_of(format, channel)` of `padded_channels(channels)`. Padding is 0.
std::int64_t padded_channels(std::int64_t channels);
std::int64_t position_of(WordFormat format, std::int64_t channel);
std::vector<float> arranged_floats(WordFormat format, std::span<const double> by_channel);
std::vector<double> arranged_doubles(WordFormat format, std::span<const double> by_channel);

/// Exact: least and most element, smallest magnitude that is not 0 (infinity if there is none).
/// If not finite, some element is NaN or infinite and the rest is unspecified.
struct Extremes {
  float least = std::numeric_limits<float>::infinity(), most = -least, smallest = least;
  bool finite = true;
};

/// Sums of folded keys, channel by channel (arranged; `padded_channels` long). Over rows n, each is
/// at most `column_error(n)` of sum |k| from the exact sum; `least` and `most` are exact.
struct ColumnSums {
  std::vector<double> sum, magnitude;
  std::vector<float> least, most;
  float smallest = std::numeric_limits<float>::infinity();  ///< as Extremes, of the stored keys
};
/// Roundings that a term passes, as a relative error: gamma of 64 + ceil(n / 64) additions.
double column_error(std::int64_t rows);

/// Keys under mean centring, k~ in [D(k - a_hi), D(k - a_lo)], D to FP32 and, if narrow, on to BF16
/// (together one rounding where k and a are BF16: Figueroa, When is double rounding innocuous?,
/// 1995). `mean_lo`, `mean_hi` arranged; `factor` the exact factor that was folded, to nearest.
struct CentredKeys {
  const float* mean_lo;
  const float* mean_hi;
  bool certain;  ///< mean_lo = mean_hi throughout
  bool narrow;
  float factor;
  // one element a row, squares of: largest |k~|; largest |k~ - (factor k - a)|; largest
  // |factor k - a|
  float* length;
  float* difference;
  float* exact;
  // sums of both ends of k~ over the rows, arranged; errors as ColumnSums
  double* sum_lo;
  double* sum_hi;
};

/// What is made of a query row with vectors of doubles beside it (arranged; null if absent).
struct QueryVectors {
  const double* mean;         ///< m
  const double* mean_half;    ///< w >= 0; null: spread is not made
  const double* centre;       ///< second vector, or null
  const double* centre_half;  ///< required with centre
  double factor;              ///< the exact factor that is folded, to nearest
};
struct QuerySums {
  double* squares;      ///< sum q~^2
  double* mean_dot;     ///< sum q~ m
  double* mean_spread;  ///< sum |q~| w
  double* centre_dot;   ///< of the second vector
  double* centre_spread;
  double* difference;  ///< sum (q~ - factor q)^2; only with folding
  /// 0: some element is no multiple of the grid on which FP32 sums of squares are exact.
  std::uint8_t* may_be_on_grid;
};

/// Sums of d terms in FP32 or doubles over 16 lanes: a term passes at most this many roundings (its
/// product's included).
std::int64_t lane_roundings(std::int64_t channels);

/// Errors of PassKernels::norms. The centre may be taken to 2^-16 of each element.
double centred_error(std::int64_t channels);
/// What operands, products and sums below 2^-126 that are taken as 0 amount to, 4 d 2^-126.
double sums_floor(std::int64_t channels);

/// Roundings that a term of PassKernels::sums passes, as a relative error: gamma of
/// 66 + ceil(n / 64) additions.
double column_sum_error(std::int64_t rows);

struct PassKernels {
  Extremes (*extremes)(const StoredRows&);
  /// Per row R = sum x^2, and C = |x - a|^2 as R - 2 <x, a> + |a|^2, a the centre (arranged;
  /// null: R alone). R^ and C^ of the exact R and C, u = 2^-24, m = lane_roundings(d):
  ///   |R^ - R| <= ((1 + u)^m - 1) R + sums_floor(d),
  ///   |C^ - C| <= centred_error(d) (|x| + |a|)^2 + sums_floor(d);
  /// C^ may be below 0. Not finite if a sum overflows.
  void (*norms)(const StoredRows&, const float* centre, float* raw, float* centred);
  /// For rows that are not folded: of each row R^ as above, and sums by channel (arranged), which
  /// are added to. Each is within column_sum_error(n) of sum |x| of the exact one. Unspecified
  /// unless every R^ is finite.
  void (*sums)(const StoredRows&, float* raw, double* by_channel);
  /// Adds to `into`.
  void (*columns)(const StoredRows&, Folding, ColumnSums& into);
  void (*centred)(const StoredRows&, Folding, const CentredKeys&);
  /// All sums with relative error at most gamma of lane_roundings(d) at u = 2^-53, of sum |terms|.
  /// Of a row with NaN or infinity `squares` is NaN or at least 2^256, the rest unspecified.
  void (*queries)(const StoredRows&, Folding, const QueryVectors&, const QuerySums&);
  /// dot[i] = <q~_i, sum of the folded keys [0, ends[i])>; ends do not decrease. The running sums
  /// pass ends[i] additions.
  void (*prefixes)(const StoredRows& queries, Folding, const StoredRows& keys, Folding,
                   const std::int64_t* ends, double* dot);
};

/// Does this processor multiply pairs of BF16 numbers? avx512 uses it then.
bool has_bf16_products();
/// Requires processor_has(set). Without `bf16_products` as on a processor that has none.
const PassKernels& pass_kernels(InstructionSet set, WordFormat format, bool bf16_products = true);

}  // namespace headroom
