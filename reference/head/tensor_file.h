// Tensors in files: .safetensors, .npy (v1-v3) and .npz, mapped without copying where stored.
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
#include "reference/head/mapped_file.h"

namespace headroom {

/// One tensor of a file: a view of row-major little-endian words, possibly unaligned.
struct Tensor {
  std::string name;
  Format format;
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;  ///< owned by the TensorFile
  std::int64_t bytes = 0;
  bool was_void = false;  ///< the file gives no type; read as bf16 on request
};

/// A tensor that is listed but cannot be an operand.
struct UnusableTensor {
  std::string dtype;  ///< as the file spells it, e.g. "F64", "BOOL", "<i4"
  std::vector<std::int64_t> shape;
  /// Its bytes, owned by the TensorFile. The extent fits the shape only where the dtype's width is
  /// known to the reader.
  const std::byte* data = nullptr;
  std::int64_t bytes = 0;
};

/// What a file cannot say of itself.
struct OpenOptions {
  /// numpy saves bfloat16 as `V2`, two bytes of no type: read those as bf16. Any other type of two
  /// bytes would be misread, so this is never guessed.
  bool v2_is_bf16 = false;
  /// List the array of a .npy by unusable() where its dtype is no operand format, as that of a
  /// .npz: for masks. Else it is an InputError that says what to do.
  bool any_dtype = false;
};

/// A read-only tensor file. Everything the header says is validated on opening. Not copyable;
/// tensors point into it.
///
/// * .safetensors: header size (at most 100 MB, as in the format's own reader), JSON (duplicate
///   keys refused), dtypes, shapes, offsets without gaps or overlaps, alignment not assumed.
///   Operands are F32, F16, BF16, F8_E4M3 and F8_E5M2. Tensors of other dtypes are listed by
///   `unusable()`; their extents are checked all the same where the dtype's width is known.
/// * .npy versions 1, 2, 3: '<f2', '<f4' in C order, and 'V2' on request. A big-endian,
///   Fortran-ordered, structured or void dtype is an InputError that says so (any_dtype: it is
///   listed by `unusable()`); .npy has no FP8. The
///   single tensor is named after the file's stem.
/// * .npz: a zip archive of .npy members, each a tensor of the member's name. Stored members are
///   mapped where they lie, deflated ones are inflated into a temporary file without a name
///   (TMPDIR), max_inflated_bytes in all; checksums are verified on opening. A member whose dtype
///   is no operand format is listed by `unusable()`.
///
/// Tensor data of the first two are not read on opening. The content decides which of the three a
/// file is, not its name. The mapping is private but not a snapshot: a file that is rewritten in
/// place while mapped changes under the reader, and reading past a truncation raises SIGBUS
/// (`exit_on_truncation`). Programs that publish a verdict call `require_unchanged`.
class TensorFile {
 public:
  /// Throws InputError (one line, names the file) on anything malformed or unreadable: only regular
  /// files are opened, so that no FIFO or device can block or lie about its size.
  static std::shared_ptr<const TensorFile> open(const std::string& path,
                                                const OpenOptions& options = {});

  const std::string& path() const { return path_; }
  bool is_npz() const { return is_npz_; }
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
  /// Takes the pages of these bytes of a tensor out of the process (MappedFile::drop).
  void drop(const std::byte* data, std::int64_t bytes) const;
  /// Throws InputError if the file's size or modification time is no longer what it was on opening,
  /// or if the path now names another file.
  void require_unchanged() const;

  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;

 private:
  TensorFile() = default;
  friend void parse_safetensors(TensorFile& file);
  friend void parse_npy(TensorFile& file, const OpenOptions& options);
  friend void parse_npz(TensorFile& file, const OpenOptions& options);
  void read_sidecar();

  struct Identity {
    std::uint64_t device = 0, inode = 0;
    std::int64_t size = 0, seconds = 0, nanoseconds = 0;
    bool operator==(const Identity&) const = default;
  };

  std::string path_, stem_, sidecar_path_;
  bool is_npz_ = false;
  MappedFile map_;
  MappedFile inflated_;  // members of a .npz that do not lie in it as they are
  Identity identity_;
  std::vector<Tensor> tensors_;
  std::map<std::string, std::size_t> index_;
  std::map<std::string, UnusableTensor> unusable_;
  std::map<std::string, std::string> metadata_;
  std::set<std::string> sidecar_keys_;
};

/// Deflated members of one .npz hold at most this many bytes in all; stored ones are not limited.
inline constexpr std::int64_t max_inflated_bytes = std::int64_t{8} << 30;

/// "[4,1024,64]".
std::string shape_text(const std::vector<std::int64_t>& shape);
/// A path as it may stand in a one-line message: control characters escaped.
std::string path_text(std::string_view path);
/// Text from a file as it may stand in a one-line message: as path_text, quoted, cut after 80
/// bytes.
std::string quoted_text(std::string_view text);

}  // namespace headroom
