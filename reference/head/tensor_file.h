// Tensors in files: .safetensors and .npy (v1-v3), mapped without copying.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "reference/format/format.h"

namespace headroom {

/// One tensor of a file: a view of row-major little-endian words, possibly unaligned.
struct Tensor {
  std::string name;
  Format format;
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;  ///< owned by the TensorFile
  std::int64_t bytes = 0;
};

/// A read-only mapped tensor file. Everything the header says is validated on opening; tensor data
/// is not read. Not copyable; tensors point into it.
///
/// * .safetensors: header size, JSON (duplicate keys refused), dtypes, shapes, offsets without
///   gaps or overlaps, alignment not assumed. Tensors of dtypes that are no operand format
///   (integers, bool, F64, 8-bit) are listed with `unusable()` naming the dtype.
/// * .npy versions 1, 2, 3: '<f2', '<f4' in C order. A big-endian, Fortran-ordered, structured or
///   void dtype is an InputError that says so; the single tensor is named after the file's stem.
class TensorFile {
 public:
  /// Throws InputError (one line, names the file) on anything malformed or unreadable.
  static std::shared_ptr<const TensorFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  /// File name without folder and extension.
  const std::string& stem() const { return stem_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// The tensor of that name, or nullptr.
  const Tensor* find(const std::string& name) const;
  /// Names of tensors whose dtype cannot be an operand, with the dtype.
  const std::map<std::string, std::string>& unusable() const { return unusable_; }
  /// The file's string metadata (safetensors `__metadata__`), then the JSON sidecar of the same
  /// stem for keys that are not there (only strings, numbers and booleans, as text).
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// The sidecar's path, or empty.
  const std::string& sidecar_path() const { return sidecar_path_; }

  ~TensorFile();
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;

 private:
  TensorFile() = default;
  friend void parse_safetensors(TensorFile& file);
  friend void parse_npy(TensorFile& file);
  void read_sidecar();

  std::string path_, stem_, sidecar_path_;
  const std::byte* map_ = nullptr;
  std::size_t size_ = 0;
  std::vector<Tensor> tensors_;
  std::map<std::string, std::string> unusable_, metadata_;
};

}  // namespace headroom
