#include "fuzz/candidate_bytes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "reference/format/convert.h"

namespace headroom::fuzz {
namespace {

constexpr std::size_t header = 4;
constexpr double sink_step = 8;

std::size_t place_of_shape(const Hunt& hunt, const Shape& shape) {
  const auto& all = hunt.space.shapes;
  const auto found = std::find(all.begin(), all.end(), shape);
  return found == all.end() ? 0 : static_cast<std::size_t>(found - all.begin());
}

}  // namespace

Candidate candidate_of_bytes(const Hunt& hunt, std::span<const std::uint8_t> bytes) {
  const auto at = [&](std::size_t i) { return i < bytes.size() ? bytes[i] : std::uint8_t{0}; };
  const SearchSpace& space = hunt.space;
  Candidate c = make_candidate(space.shapes[at(0) % space.shapes.size()]);
  c.setting.mask = space.masks[at(1) % space.masks.size()];
  if (space.lengths && at(2) != 0) c.setting.length = 1 + (at(2) - 1) % c.shape.keys;
  if (space.sinks && at(3) != 0) {
    c.setting.sink = sink_step * static_cast<double>(static_cast<std::int8_t>(at(3)));
  }
  const Format& format = hunt.target.kernel.operand;
  const auto size = static_cast<std::size_t>(format.storage_bytes());
  std::size_t next = header;
  for (std::vector<float>* numbers : {&c.q, &c.k, &c.v}) {
    for (float& x : *numbers) {
      std::uint64_t code = 0;
      for (std::size_t b = 0; b < size; ++b) code |= std::uint64_t{at(next++)} << (8 * b);
      x = static_cast<float>(decode(format, code));
      if (!std::isfinite(x)) x = 0;
    }
    if (next >= bytes.size()) break;
  }
  repair(c);
  return c;
}

std::vector<std::uint8_t> bytes_of_candidate(const Hunt& hunt, const Candidate& candidate) {
  const SearchSpace& space = hunt.space;
  Candidate c = make_candidate(space.shapes[place_of_shape(hunt, candidate.shape)]);
  // another shape: what there is of the numbers, from the front
  const auto fill = [](const std::vector<float>& from, std::vector<float>& to) {
    std::copy_n(from.begin(), std::min(from.size(), to.size()), to.begin());
  };
  fill(candidate.q, c.q);
  fill(candidate.k, c.k);
  fill(candidate.v, c.v);
  const auto mask = std::find(space.masks.begin(), space.masks.end(), candidate.setting.mask);
  std::vector<std::uint8_t> bytes = {
      static_cast<std::uint8_t>(place_of_shape(hunt, candidate.shape)),
      static_cast<std::uint8_t>(mask == space.masks.end() ? 0 : mask - space.masks.begin()),
      static_cast<std::uint8_t>(std::clamp<std::int64_t>(candidate.setting.length, 0, 255)),
      static_cast<std::uint8_t>(static_cast<std::int8_t>(
          std::clamp(candidate.setting.sink.value_or(0) / sink_step, -127.0, 127.0)))};
  for (const std::vector<float>* numbers : {&c.q, &c.k, &c.v}) {
    const std::vector<std::byte> words = words_of(*numbers, hunt.target.kernel.operand);
    const auto* begin = reinterpret_cast<const std::uint8_t*>(words.data());
    bytes.insert(bytes.end(), begin, begin + words.size());
  }
  return bytes;
}

}  // namespace headroom::fuzz
