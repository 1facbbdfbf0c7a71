// One array in .npy bytes: a file of its own, or a member of a .npz.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/format/format.h"
#include "reference/head/tensor_file.h"

namespace headroom {

struct NpyArray {
  std::string descr;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
  const Format* operand = nullptr;  ///< nullptr: no operand, for the reason in `refusal`
  bool was_void() const { return operand == &bf16; }
  std::string refusal;  ///< "dtype '>f4': big-endian, ..."
};

/// Reads the header of an array whose bytes are all there. `where` begins messages. Throws
/// InputError where the header is malformed or, for an operand, does not fit the size of the data;
/// a dtype that is no operand format is no error here.
NpyArray read_npy(const std::string& where, std::span<const std::byte> bytes,
                  const OpenOptions& options);

/// Throws InputError where shape and dtype do not fit the size of the data. A dtype of no known
/// width passes.
void check_extent(const std::string& where, const NpyArray& array);

}  // namespace headroom
