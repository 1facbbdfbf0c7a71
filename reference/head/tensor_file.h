// Tensors in files: .safetensors and .npy (v1-v3), mapped without copying.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
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

/// A tensor that is listed but cannot be an operand.
struct UnusableTensor {
  std::string dtype;  ///< as the file spells it, e.g. "F64", "I32", "F8_E4M3"
  std::vector<std::int64_t> shape;
};

/// A read-only mapped tensor file. Everything the header says is validated on opening; tensor data
/// is not read. Not copyable; tensors point into it.
///
/// * .safetensors: header size (at most 100 MB, as in the format's own reader), JSON (duplicate
///   keys refused), dtypes, shapes, offsets without gaps or overlaps, alignment not assumed.
///   Tensors of dtypes that are no operand format (integers, bool, F64, 8-bit) are listed by
///   `unusable()`; their extents are checked all the same where the dtype's width is known.
/// * .npy versions 1, 2, 3: '<f2', '<f4' in C order. A big-endian, Fortran-ordered, structured or
///   void dtype is an InputError that says so; the single tensor is named after the file's stem.
///
/// The content decides which of the two a file is, not its name. The mapping is private but not a
/// snapshot: a file that is rewritten in place while mapped changes under the reader, and reading
/// past a truncation raises SIGBUS. Programs that publish a verdict call `require_unchanged`.
class TensorFile {
 public:
  /// Throws InputError (one line, names the file) on anything malformed or unreadable: only regular
  /// files are opened, so that no FIFO or device can block or lie about its size.
  static std::shared_ptr<const TensorFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  /// File name without folder and extension.
  const std::string& stem() const { return stem_; }
  /// Operand tensors in the order of the file's header.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// The tensor of that name, or nullptr.
  const Tensor* find(const std::string& name) const;
  /// Tensors whose dtype cannot be an operand, by name.
  const std::map<std::string, UnusableTensor>& unusable() const { return unusable_; }
  /// The file's string metadata (safetensors `__metadata__`), then the JSON sidecar of the same
  /// stem for keys that are not there: only top-level strings, numbers (digit for digit as written)
  /// and booleans, as text. Nested values and null are skipped, except that a nested value of a key
  /// that changes the meaning of the tensors (scale, causal, mask, layout, lengths) is an
  /// InputError, and a list of integers for `lengths` becomes "512,300".
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// "metadata" or "sidecar" for a key of metadata(), else the empty string.
  std::string metadata_source(const std::string& key) const;
  /// The sidecar's path, or empty.
  const std::string& sidecar_path() const { return sidecar_path_; }

  /// One line that lists tensors with shape and dtype, at most 20 and then a count.
  std::string summary() const;
  /// Throws InputError if the file's size or modification time is no longer what it was on opening,
  /// or if the path now names another file.
  void require_unchanged() const;

  ~TensorFile();
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;

 private:
  TensorFile() = default;
  friend void parse_safetensors(TensorFile& file);
  friend void parse_npy(TensorFile& file);
  void read_sidecar();

  struct Identity {
    std::uint64_t device = 0, inode = 0;
    std::int64_t size = 0, seconds = 0, nanoseconds = 0;
    bool operator==(const Identity&) const = default;
  };

  std::string path_, stem_, sidecar_path_;
  const std::byte* map_ = nullptr;
  std::size_t size_ = 0;
  Identity identity_;
  std::vector<Tensor> tensors_;
  std::map<std::string, std::size_t> index_;
  std::map<std::string, UnusableTensor> unusable_;
  std::map<std::string, std::string> metadata_;
  std::set<std::string> sidecar_keys_;
};

/// "[4,1024,64]".
std::string shape_text(const std::vector<std::int64_t>& shape);
/// A path as it may stand in a one-line message: control characters escaped.
std::string path_text(std::string_view path);
/// Text from a file as it may stand in a one-line message: as path_text, quoted, cut after 80
/// bytes.
std::string quoted_text(std::string_view text);

}  // namespace headroom
