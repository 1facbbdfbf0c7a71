// Landmarks of a few kernels, for tests of what aims at them.
#pragma once

#include <string>
#include <vector>

#include "fuzz/candidate.h"
#include "fuzz/random.h"
#include "fuzz/target.h"

namespace headroom::fuzz::test {

struct NamedMarks {
  std::string name;
  Landmarks marks;
};

/// A gate of 213 over centred keys, as released; FlashAttention's raw scores; FP8 P and a lazy
/// rescale; FP16 everywhere; FP32 operands and a one-sided gate.
inline std::vector<NamedMarks> all_marks() {
  std::vector<NamedMarks> all;
  Landmarks released;
  released.centred = true;
  released.gate_limit = 213;
  released.cap = 88;
  released.key_block = 8;
  released.scores = {-7, -120, 126};
  all.push_back({"released", released});
  Landmarks flash;
  flash.factor = 0.125 * 1.4426950408889634;
  flash.flush = -149;
  flash.key_block = 16;
  flash.scores = {-5e4, -524288, 300};
  all.push_back({"flash", flash});
  Landmarks lazy = flash;
  lazy.operand = e4m3fn;
  lazy.threshold = 4;
  lazy.largest_weight = 8.807354922057604;
  all.push_back({"lazy", lazy});
  Landmarks half = flash;
  half.operand = fp16;
  half.emax = 15;
  half.flush = -24;
  half.parts = 2;
  all.push_back({"half", half});
  Landmarks wide = released;
  wide.operand = fp32;
  wide.cap = 107;
  wide.gate_limit = 232;
  wide.factor = -0.5;
  all.push_back({"wide", wide});
  return all;
}
inline Landmarks released() { return all_marks()[0].marks; }

inline const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {{1, 1, 1, 1},     {1, 16, 2, 1}, {4, 33, 1, 2},
                                         {16, 64, 16, 16}, {3, 8, 3, 1},  {8, 40, 5, 4}};
  return all;
}

inline SearchSpace wide_space() {
  SearchSpace s;
  s.shapes = shapes();
  s.shapes.push_back({4, 48, 1, 2});
  s.masks = {MaskKind::none, MaskKind::causal, MaskKind::causal_top_left,
             MaskKind::causal_bottom_right};
  s.lengths = s.windows = s.segments = s.booleans = s.biases = s.softcaps = s.sinks = s.poison =
      true;
  return s;
}

/// FNV-1a over the bits of everything.
class Checksum {
 public:
  void add(const void* bytes, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      sum_ = (sum_ ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3ULL;
    }
  }
  template <class T>
  void add(const std::vector<T>& numbers) {
    if (!numbers.empty()) add(numbers.data(), numbers.size() * sizeof(T));
  }
  void add(const Candidate& c) {
    add(&c.shape, sizeof c.shape);
    add(c.q);
    add(c.k);
    add(c.v);
    add(c.setting.visible);
    add(c.setting.bias);
    add(c.setting.query_segments);
    add(c.setting.key_segments);
    const std::int64_t length = c.length();
    add(&length, sizeof length);
  }
  std::uint64_t sum() const { return sum_; }

 private:
  std::uint64_t sum_ = 0xcbf29ce484222325ULL;
};

}  // namespace headroom::fuzz::test
