// One head that the fuzzer tries: small, in memory, cheap to copy and to change.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reference/evaluate/ladder/problem.h"
#include "reference/format/format.h"
#include "reference/head/head.h"

namespace headroom::fuzz {

struct Shape {
  std::int64_t queries = 1, keys = 1, channels = 1, value_channels = 1;
  auto operator<=>(const Shape&) const = default;
};

/// What a head has beside Q, K and V. Simulators are prepared for a shape and a setting, so that
/// candidates that share both cost least.
struct Setting {
  MaskKind mask = MaskKind::none;  ///< causal only with as many queries as keys
  std::int64_t length = -1;        ///< visible keys, the rest is padding; -1: all
  std::optional<Window> window;
  std::vector<std::int32_t> query_segments, key_segments;  ///< both empty: one segment
  std::vector<std::uint8_t> visible;  ///< boolean mask, Nq x Nk or 1 x Nk; empty: none
  std::vector<float> bias;  ///< natural units, FP32, Nq x Nk or 1 x Nk, -infinity hides; or empty
  std::optional<double> softcap;  ///< natural units, > 0
  std::optional<double> sink;     ///< natural units, finite
  bool operator==(const Setting&) const = default;

  bool plain() const { return *this == Setting{}; }
};

/// Q, K and V row-major, as numbers of the kernel's operand format (which floats hold exactly);
/// NaN and infinities are allowed.
struct Candidate {
  Shape shape;
  Setting setting;
  std::vector<float> q, k, v;
  bool operator==(const Candidate& other) const;  ///< bit for bit

  float* query(std::int64_t i) { return q.data() + i * shape.channels; }
  float* key(std::int64_t j) { return k.data() + j * shape.channels; }
  float* value(std::int64_t j) { return v.data() + j * shape.value_channels; }
  const float* query(std::int64_t i) const { return q.data() + i * shape.channels; }
  const float* key(std::int64_t j) const { return k.data() + j * shape.channels; }
  const float* value(std::int64_t j) const { return v.data() + j * shape.value_channels; }
  /// Keys that are not padding.
  std::int64_t length() const { return setting.length < 0 ? shape.keys : setting.length; }
};

/// Zeros of this shape.
Candidate make_candidate(const Shape& shape, Setting setting = {});

/// Makes the setting fit the shape, by dropping what does not: masks and biases of another size,
/// causal with Nq != Nk (bottom-right instead), lengths above Nk or below 1. Nothing else of the
/// fuzzer has to check.
void repair(Candidate& candidate);

/// Rounds every operand to a number of the format, to nearest; beyond the range to the largest
/// finite number of that sign. NaN and infinities stay where the format has them.
void round_operands(Candidate& candidate, const Format& operand);
/// The same for these numbers. Requires: rounding to nearest.
void round_numbers(const Format& operand, std::span<float> numbers);
/// The number of the format nearest to x, finite for finite x.
float operand_number(const Format& operand, double x);

/// Little-endian words of the format, row-major.
std::vector<std::byte> words_of(const std::vector<float>& numbers, const Format& format);

/// As the reference and the certifier read it. Throws InputError where a setting does not fit.
AttentionProblem problem_of(const Candidate& candidate, const Format& operand, const Scale& scale);
Head head_of(const Candidate& candidate, const Format& operand, const Scale& scale);
/// Finite operands and bias wherever a row can see.
bool all_finite(const Candidate& candidate);

}  // namespace headroom::fuzz
