#include "reference/model/passes/passes.h"

#include <cassert>
#include <cmath>

#include "reference/model/passes/packs.h"

namespace headroom {

extern const PassKernels* const passes_portable;
extern const PassKernels* const passes_avx2;
extern const PassKernels* const passes_avx512;
extern const PassKernels* const passes_avx512_bf16;

namespace {

constexpr std::int64_t chunk = 2 * pack_size;

template <class Real>
std::vector<Real> arranged(WordFormat format, std::span<const double> by_channel) {
  std::vector<Real> result(
      static_cast<std::size_t>(padded_channels(static_cast<std::int64_t>(by_channel.size()))));
  for (std::size_t c = 0; c < by_channel.size(); ++c) {
    const std::int64_t at = position_of(format, static_cast<std::int64_t>(c));
    result[static_cast<std::size_t>(at)] = static_cast<Real>(by_channel[c]);
  }
  return result;
}

}  // namespace

std::optional<WordFormat> word_format(const Format& format) {
  if (format == bf16) return WordFormat::bf16;
  if (format == fp16) return WordFormat::fp16;
  if (format == fp32) return WordFormat::fp32;
  return std::nullopt;
}

StoredRows stored_rows(const Matrix& matrix, std::int64_t rows) {
  assert(rows <= matrix.rows());
  return {matrix.row_bytes(0), matrix.row_stride_bytes(), rows, matrix.columns()};
}

std::int64_t padded_channels(std::int64_t channels) {
  return (channels + chunk - 1) / chunk * chunk;
}

std::int64_t position_of(WordFormat format, std::int64_t channel) {
  if (format != WordFormat::bf16) return channel;
  const std::int64_t within = channel % chunk;
  return channel - within + within / 2 + (within % 2 == 1 ? pack_size : 0);
}

std::vector<float> arranged_floats(WordFormat format, std::span<const double> by_channel) {
  return arranged<float>(format, by_channel);
}
std::vector<double> arranged_doubles(WordFormat format, std::span<const double> by_channel) {
  return arranged<double>(format, by_channel);
}

double column_error(std::int64_t rows) {
  // gamma_m = m u / (1 - m u) <= 1.01 m u for m u <= 0.009; 2^40 rows are 2^-19
  const double additions = 66 + std::ceil(static_cast<double>(rows) / 16);
  return 1.02 * additions * 0x1p-53;
}

double column_sum_error(std::int64_t rows) {
  // as above; 2^40 rows are 2^-21
  const double additions = 66 + std::ceil(static_cast<double>(rows) / 64);
  return 1.02 * additions * 0x1p-53;
}

std::int64_t lane_roundings(std::int64_t channels) {
  // product, one addition a chunk and pack, the two packs' sums, four levels over the lanes
  return 1 + 2 * ((channels + chunk - 1) / chunk) + 1 + 4;
}

double centred_error(std::int64_t channels) {
  // The three sums, and four roundings more: of |a|^2 to FP32, and in adding them up. The centre's
  // own error moves 2 <x, a> by at most 2^-15 |x| |a|, a rest below 2^-126 taken as 0 by less.
  return 0x1.8p-16 + 1.02 * static_cast<double>(lane_roundings(channels) + 4) * 0x1p-24;
}

double sums_floor(std::int64_t channels) { return static_cast<double>(channels) * 0x1p-124; }

bool has_bf16_products() {
  __builtin_cpu_init();
  return processor_has(InstructionSet::avx512) && __builtin_cpu_supports("avx512bf16");
}

const PassKernels& pass_kernels(InstructionSet set, WordFormat format, bool bf16_products) {
  assert(processor_has(set));
  const auto at = static_cast<std::size_t>(format);
  switch (set) {
    case InstructionSet::avx512:
      return bf16_products && has_bf16_products() ? passes_avx512_bf16[at] : passes_avx512[at];
    case InstructionSet::avx2:
      return passes_avx2[at];
    case InstructionSet::portable:
      break;
  }
  return passes_portable[at];
}

}  // namespace headroom
