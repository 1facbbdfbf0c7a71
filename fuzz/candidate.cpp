#include "fuzz/candidate.h"

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
  if (s.softcap && !(*s.softcap >= 0x1p-20 && *s.softcap <= 0x1p20)) s.softcap.reset();
  if (s.sink && !std::isfinite(*s.sink)) s.sink.reset();
}

float operand_number(const Format& operand, double x) {
  if (std::isnan(x)) return static_cast<float>(x);
  const double largest = operand.max_finite();
  return static_cast<float>(std::clamp(round_to(operand, x), -largest, largest));
}

void round_operands(Candidate& c, const Format& operand) {
  for (std::vector<float>* numbers : {&c.q, &c.k, &c.v}) {
    if (operand == bf16) {  // by far the most frequent: to nearest even on the bits
      for (float& x : *numbers) {
        const auto bits = std::bit_cast<std::uint32_t>(x);
        if ((bits & 0x7f800000U) == 0x7f800000U) {
          if ((bits & 0x007fffffU) != 0) x = std::bit_cast<float>(0x7fc00000U);
          continue;
        }
        std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U;
        if ((rounded & 0x7f800000U) == 0x7f800000U) rounded -= 0x10000U;
        x = std::bit_cast<float>(rounded);
      }
    } else if (operand != fp32) {
      for (float& x : *numbers) {
        if (std::isfinite(x)) x = operand_number(operand, static_cast<double>(x));
      }
    }
  }
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
