// Writing tensors and other small files so that no reader ever sees half of one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reference/head/matrix.h"

namespace headroom {

/// Writes `bytes` to `path`: into a temporary file beside it, fsync, rename, fsync of the folder.
/// After a failure `path` is what it was before and no temporary file is left; after a kill `path`
/// is the old or the new file, whole, and where the file system has files without a name nothing
/// else is left. An existing target must be a regular file (a symbolic link is followed). Throws
/// InputError naming the path.
void atomic_write_file(const std::string& path, std::string_view bytes);

/// Several files, path and bytes, each as above; all are whole on the disk before the first is
/// renamed, so that a disk that fills up changes none.
void atomic_write_files(const std::vector<std::pair<std::string, std::string>>& files);

/// Collects tensors, then writes one .safetensors file, or one tensor as .npy (version 1).
class TensorWriter {
 public:
  /// `words`: the row-major little-endian words of one of fp32, fp16, bf16, e4m3fn, e5m2; kept
  /// alive by `owner` or by the caller until written. Throws std::invalid_argument if the size is
  /// not that of the shape, the format has no dtype, or the name is taken.
  void add(const std::string& name, const Format& format, std::vector<std::int64_t> shape,
           std::span<const std::byte> words, std::shared_ptr<const void> owner = nullptr);
  /// Matrices of the same format and shape stacked as [count, rows, columns].
  void add(const std::string& name, const std::vector<Matrix>& stack);
  /// One matrix as [rows, columns].
  void add(const std::string& name, const Matrix& matrix);
  void set_metadata(const std::string& key, const std::string& value) { metadata_[key] = value; }

  /// Header order is the order of add; the data of wider formats come first, so that every tensor
  /// is aligned to its words. The header is padded with spaces to a multiple of 8.
  void write_safetensors(const std::string& path) const;
  /// Writes one added tensor. Throws std::invalid_argument for all but fp32 and fp16, which .npy
  /// cannot name.
  void write_npy(const std::string& name, const std::string& path) const;

 private:
  struct Item {
    std::string name;
    Format format;
    std::vector<std::int64_t> shape;
    std::span<const std::byte> words;
    std::shared_ptr<const void> owner;
  };

  std::vector<Item> items_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace headroom
