#include "reference/head/tensor_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "reference/head/small_file.h"
#include "reference/head/strict_json.h"
#include "reference/input_error.h"

namespace headroom {

void parse_safetensors(TensorFile& file);
void parse_npy(TensorFile& file, const OpenOptions& options);
void parse_npz(TensorFile& file, const OpenOptions& options);

namespace {

constexpr std::size_t max_sidecar_bytes = std::size_t{16} << 20;
constexpr std::size_t max_listed_tensors = 20;
// What load_heads reads: a nested value under one of these must not be skipped in silence.
constexpr std::array<std::string_view, 5> meaningful_keys = {"scale", "causal", "mask", "layout",
                                                             "lengths"};

bool is_meaningful(std::string_view key) {
  for (const std::string_view known : meaningful_keys) {
    if (known == key) return true;
  }
  return false;
}

/// Keeps the top-level scalars of a JSON object as text.
class SidecarReader : public StrictJson {
 public:
  explicit SidecarReader(const std::string& path) : StrictJson(path_text(path), 64) {}
  std::map<std::string, std::string> values;

 private:
  void on_key(const std::string& key) override {
    if (depth() == 1) key_ = key;
  }
  void on_scalar(const JsonScalar& value) override {
    if (depth() == 0) fail("expected a JSON object");
    if (depth() == 1) {
      if (value.kind != JsonScalar::Kind::null) values.emplace(key_, value.text);
    } else if (key_ == "lengths") {
      if (value.kind != JsonScalar::Kind::natural) refuse_nested();
      std::string& list = values[key_];
      list += (list.empty() ? "" : ",") + value.text;
    }
  }
  void on_open(bool object) override {
    if (depth() == 1 && !object) fail("expected a JSON object");
    if (depth() < 2 || !is_meaningful(key_)) return;
    if (key_ != "lengths" || object || depth() > 2) refuse_nested();
  }
  void on_close(bool /*object*/) override {
    if (depth() == 2 && key_ == "lengths" && !values.contains(key_)) refuse_nested();
  }
  [[noreturn]] void refuse_nested() const {
    fail(fmt::format("key \"{}\" holds a nested value, expected {}", key_,
                     key_ == "lengths" ? "an integer or a list of integers" : "a single value"));
  }

  std::string key_;
};

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

std::string path_text(std::string_view path) {
  std::string out;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const auto c = static_cast<unsigned char>(path[i]);
    // U+0080..U+009F (C2 80..C2 9F) are control characters too: terminals obey U+009B
    const bool c1 =
        c == 0xC2 && i + 1 < path.size() && static_cast<unsigned char>(path[i + 1]) < 0xA0U;
    if (c < 0x20 || c == 0x7F || c1) {
      out += fmt::format("\\x{:02x}", c);
      if (c1) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(path[++i]));
    } else {
      out += path[i];
    }
  }
  return out;
}

std::string quoted_text(std::string_view text) {
  constexpr std::size_t longest = 80;
  if (text.size() <= longest) return "'" + path_text(text) + "'";
  std::size_t end = longest;  // do not cut a UTF-8 sequence
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return "'" + path_text(text.substr(0, end)) + "...'";
}

std::shared_ptr<const TensorFile> TensorFile::open(const std::string& path,
                                                   const OpenOptions& options) {
  struct stat status {};
  const Descriptor descriptor = open_regular(path, status);
  if (status.st_size == 0) throw InputError(path_text(path) + ": is empty, expected tensors");

  const std::shared_ptr<TensorFile> file(new TensorFile);
  file->path_ = path;
  file->stem_ = std::filesystem::path(path).stem().string();
  file->identity_ = {status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec};
  file->map_ =
      MappedFile(descriptor.get(), static_cast<std::size_t>(status.st_size), path_text(path));

  const std::string_view head(reinterpret_cast<const char*>(file->map_.data()),
                              std::min<std::size_t>(6, file->map_.size()));
  if (head == "\x93NUMPY") {
    parse_npy(*file, options);
  } else if (head.starts_with("PK\x03\x04") || head.starts_with("PK\x05\x06")) {
    parse_npz(*file, options);
  } else if (std::filesystem::path(path).extension() == ".npy") {
    throw InputError(path_text(path) + ": does not begin with \\x93NUMPY, expected a .npy file");
  } else if (std::filesystem::path(path).extension() == ".npz") {
    throw InputError(path_text(path) + ": does not begin with PK, expected a .npz archive");
  } else {
    parse_safetensors(*file);
  }
  for (std::size_t i = 0; i < file->tensors_.size(); ++i) {
    file->index_.emplace(file->tensors_[i].name, i);
  }
  file->read_sidecar();
  return file;
}

const Tensor* TensorFile::find(const std::string& name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

std::string TensorFile::metadata_source(const std::string& key) const {
  if (!metadata_.contains(key)) return "";
  return sidecar_keys_.contains(key) ? "sidecar" : "metadata";
}

void TensorFile::read_sidecar() {
  std::filesystem::path sidecar(path_);
  sidecar.replace_extension(".json");
  std::error_code error;
  // a link that leads nowhere is a sidecar that cannot be read, not one that is not there
  const auto found = std::filesystem::symlink_status(sidecar, error).type();
  if (sidecar.string() == path_ || found == std::filesystem::file_type::not_found ||
      error == std::errc::filename_too_long) {
    return;
  }
  sidecar_path_ = sidecar.string();
  const std::string text = read_small_file(sidecar_path_, max_sidecar_bytes);
  SidecarReader reader(sidecar_path_);
  reader.read(text);
  for (auto& [key, value] : reader.values) {
    if (metadata_.emplace(key, value).second) sidecar_keys_.insert(key);
  }
}

std::string TensorFile::summary() const {
  std::string text;
  std::size_t listed = 0;
  const std::size_t total = tensors_.size() + unusable_.size();
  const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape,
                       std::string_view dtype) {
    if (listed++ >= max_listed_tensors) return;
    text += fmt::format("{}{} {} {}", listed > 1 ? ", " : "", quoted_text(name), shape_text(shape),
                        dtype);
  };
  for (const Tensor& tensor : tensors_) add(tensor.name, tensor.shape, tensor.format.name);
  for (const auto& [name, tensor] : unusable_)
    add(name, tensor.shape, path_text(tensor.dtype).substr(0, 80));
  if (total == 0) return "no tensors";
  if (total > max_listed_tensors) text += fmt::format(" and {} more", total - max_listed_tensors);
  return text;
}

void TensorFile::drop(const std::byte* data, std::int64_t bytes) const {
  map_.drop(data, static_cast<std::size_t>(bytes));
  inflated_.drop(data, static_cast<std::size_t>(bytes));
}

void TensorFile::require_unchanged() const {
  struct stat status {};
  const bool found = ::stat(path_.c_str(), &status) == 0;
  const Identity now{status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec};
  if (!found || now != identity_) {
    throw InputError(path_text(path_) + ": changed while it was being read");
  }
}

}  // namespace headroom
