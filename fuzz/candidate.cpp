#include "fuzz/candidate.h"

#include <emmintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>

#include "reference/format/convert.h"

namespace headroom::fuzz {
namespace {

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

std::size_t count(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows * columns);
}

Matrix matrix_of(const std::vector<float>& numbers, const Format& format, std::int64_t rows,
                 std::int64_t columns) {
  const auto words = std::make_shared<const std::vector<std::byte>>(words_of(numbers, format));
  return {words, words->data(), format, rows, columns, columns * format.storage_bytes()};
}

ScoreModifiers modifiers_of(const Candidate& c) {
  const Setting& s = c.setting;
  ScoreModifiers m;
  m.window = s.window;
  m.query_segments = s.query_segments;
  m.key_segments = s.key_segments;
  m.mask = s.visible;
  if (!s.bias.empty()) {
    const auto rows = static_cast<std::int64_t>(s.bias.size()) / c.shape.keys;
    m.bias = matrix_of(s.bias, fp32, rows, c.shape.keys);
  }
  if (s.softcap) m.softcap = Rational(*s.softcap);
  m.sink = s.sink;
  return m;
}

Visibility visibility_of(const Candidate& c) {
  Visibility v;
  v.kind = c.setting.mask;
  v.queries = c.shape.queries;
  v.keys = c.shape.keys;
  v.length = c.length();
  return v;
}

bool finite(const std::vector<float>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); });
}

}  // namespace

bool Candidate::operator==(const Candidate& other) const {
  return shape == other.shape && setting == other.setting && same_bits(q, other.q) &&
         same_bits(k, other.k) && same_bits(v, other.v);
}

Candidate make_candidate(const Shape& shape, Setting setting) {
  Candidate c;
  c.shape = shape;
  c.setting = std::move(setting);
  c.q.resize(count(shape.queries, shape.channels));
  c.k.resize(count(shape.keys, shape.channels));
  c.v.resize(count(shape.keys, shape.value_channels));
  return c;
}

void repair(Candidate& c) {
  Setting& s = c.setting;
  const std::size_t nq = static_cast<std::size_t>(c.shape.queries);
  const std::size_t nk = static_cast<std::size_t>(c.shape.keys);
  if (s.mask == MaskKind::causal && nq != nk) s.mask = MaskKind::causal_bottom_right;
  if (s.length > c.shape.keys) s.length = -1;
  if (s.length == 0) s.length = 1;
  if (s.query_segments.size() != nq || s.key_segments.size() != nk) {
    s.query_segments.clear();
    s.key_segments.clear();
  }
  if (s.visible.size() != nk && s.visible.size() != nq * nk) s.visible.clear();
  if (s.bias.size() != nk && s.bias.size() != nq * nk) s.bias.clear();
  for (float& b : s.bias) {
    if (std::isnan(b) || b == HUGE_VALF) b = 0;
  }
  if (s.softcap && !(*s.softcap >= 0x1p-149 && *s.softcap <= 0x1p127)) s.softcap.reset();
  if (s.sink && !std::isfinite(*s.sink)) s.sink.reset();
}

float operand_number(const Format& operand, double x) {
  if (std::isnan(x)) return static_cast<float>(x);
  const double largest = operand.max_finite();
  return static_cast<float>(round_to(operand, std::clamp(x, -largest, largest)));
}

void round_numbers(const Format& format, std::span<float> numbers) {
  if (format == fp32) return;
  // On the bits of FP32, four at a time, since every mutation comes through here. Numbers of a
  // wider exponent range than the format's are its subnormals: 2^(least + 23) + |x| has ulps of
  // 2^least, so that its sum is rounded to a multiple of them.
  const int dropped = 24 - format.precision;
  const __m128i magnitude_bits = _mm_set1_epi32(0x7fffffff), special = _mm_set1_epi32(0x7f7fffff);
  const __m128i infinity = _mm_set1_epi32(0x7f800000), quiet_nan = _mm_set1_epi32(0x7fc00000);
  const __m128i below_half = _mm_set1_epi32((1 << (dropped - 1)) - 1), one = _mm_set1_epi32(1);
  const __m128i kept = _mm_set1_epi32(-(1 << dropped));
  const __m128i largest =
      _mm_set1_epi32(std::bit_cast<std::int32_t>(static_cast<float>(format.max_finite())));
  const __m128 shift = _mm_set1_ps(std::ldexp(1.0F, format.least_exponent() + 23));
  const __m128i least_normal = _mm_set1_epi32(format.emin <= -126 ? 0 : (format.emin + 127) << 23);
  const auto round_four = [&](float* x) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
    const __m128i magnitude = _mm_and_si128(bits, magnitude_bits);
    const __m128i odd = _mm_and_si128(_mm_srli_epi32(magnitude, dropped), one);
    __m128i rounded = _mm_and_si128(_mm_add_epi32(_mm_add_epi32(magnitude, below_half), odd), kept);
    const __m128i small = _mm_cmplt_epi32(magnitude, least_normal);
    const __m128i sum =
        _mm_castps_si128(_mm_sub_ps(_mm_add_ps(_mm_castsi128_ps(magnitude), shift), shift));
    rounded = _mm_or_si128(_mm_and_si128(small, sum), _mm_andnot_si128(small, rounded));
    const __m128i beyond = _mm_cmpgt_epi32(rounded, largest);
    rounded = _mm_or_si128(_mm_and_si128(beyond, largest), _mm_andnot_si128(beyond, rounded));
    rounded = _mm_or_si128(rounded, _mm_andnot_si128(magnitude_bits, bits));
    const __m128i not_finite = _mm_cmpgt_epi32(magnitude, special);
    const __m128i nan = _mm_cmpgt_epi32(magnitude, infinity);
    const __m128i same = _mm_or_si128(_mm_and_si128(nan, quiet_nan), _mm_andnot_si128(nan, bits));
    rounded = _mm_or_si128(_mm_and_si128(not_finite, same), _mm_andnot_si128(not_finite, rounded));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(x), rounded);
  };
  // Most of them are numbers of the format already, which takes less to see than to redo.
  const __m128i below_ulp = _mm_set1_epi32((1 << dropped) - 1), none = _mm_setzero_si128();
  const bool narrow = format.emin > -126;
  const auto all_are = [&](const float* x) {
    __m128i digits = none, found = none;
    const auto look = [&](const float* four) {
      const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(four));
      const __m128i magnitude = _mm_and_si128(bits, magnitude_bits);
      digits = _mm_or_si128(digits, bits);
      found = _mm_or_si128(found, _mm_cmpgt_epi32(magnitude, largest));
      if (narrow) {
        found = _mm_or_si128(found, _mm_and_si128(_mm_cmplt_epi32(magnitude, least_normal),
                                                  _mm_cmpgt_epi32(magnitude, none)));
      }
    };
    look(x);
    look(x + 4);
    look(x + 8);
    look(x + 12);
    found = _mm_or_si128(found, _mm_cmpgt_epi32(_mm_and_si128(digits, below_ulp), none));
    return _mm_movemask_epi8(found) == 0;
  };
  std::size_t i = 0;
  for (; i + 16 <= numbers.size(); i += 16) {
    float* x = numbers.data() + i;
    if (all_are(x)) continue;
    for (int four = 0; four < 16; four += 4) round_four(x + four);
  }
  for (; i + 4 <= numbers.size(); i += 4) round_four(numbers.data() + i);
  if (i == numbers.size()) return;
  float last[4] = {};
  std::copy(numbers.begin() + static_cast<std::ptrdiff_t>(i), numbers.end(), last);
  round_four(last);
  std::copy_n(last, numbers.size() - i, numbers.begin() + static_cast<std::ptrdiff_t>(i));
}

void round_operands(Candidate& c, const Format& operand) {
  for (std::vector<float>* numbers : {&c.q, &c.k, &c.v}) round_numbers(operand, *numbers);
}

std::vector<std::byte> words_of(const std::vector<float>& numbers, const Format& format) {
  const auto bytes = static_cast<std::size_t>(format.storage_bytes());
  std::vector<std::byte> words(numbers.size() * bytes);
  std::byte* to = words.data();
  for (const float x : numbers) {
    std::uint64_t code = 0;
    if (format == fp32) {
      code = std::bit_cast<std::uint32_t>(x);
    } else if (format == bf16) {
      code = std::bit_cast<std::uint32_t>(x) >> 16;
    } else {
      code = encode(format, static_cast<double>(x), {});
    }
    std::memcpy(to, &code, bytes);
    to += bytes;
  }
  return words;
}

AttentionProblem problem_of(const Candidate& c, const Format& operand, const Scale& scale) {
  AttentionProblem p;
  static_cast<ScoreModifiers&>(p) = modifiers_of(c);
  p.q = matrix_of(c.q, operand, c.shape.queries, c.shape.channels);
  p.k = matrix_of(c.k, operand, c.shape.keys, c.shape.channels);
  p.v = matrix_of(c.v, operand, c.shape.keys, c.shape.value_channels);
  p.scale = scale;
  p.visibility = visibility_of(c);
  p.validate();
  return p;
}

Head head_of(const Candidate& c, const Format& operand, const Scale& scale) {
  const AttentionProblem p = problem_of(c, operand, scale);
  Head head;
  head.id = "candidate:0";
  head.layout = "nd";
  head.q = p.q;
  head.k = p.k;
  head.v = p.v;
  head.stored_q = head.stored_k = head.stored_v = operand;
  head.scale = scale;
  head.scale_source = head.mask_source = "option";
  head.visibility = p.visibility;
  head.modifiers = p;
  return head;
}

bool all_finite(const Candidate& c) {
  const auto keys = static_cast<std::size_t>(c.length());
  const auto d = static_cast<std::size_t>(c.shape.channels);
  const auto dv = static_cast<std::size_t>(c.shape.value_channels);
  return finite(c.q) &&
         std::all_of(c.k.begin(), c.k.begin() + static_cast<std::ptrdiff_t>(keys * d),
                     [](float x) { return std::isfinite(x); }) &&
         std::all_of(c.v.begin(), c.v.begin() + static_cast<std::ptrdiff_t>(keys * dv),
                     [](float x) { return std::isfinite(x); });
}

}  // namespace headroom::fuzz
