#include "reference/head/write.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "reference/head/tensor_file.h"
#include "reference/input_error.h"

namespace headroom {
namespace {

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw InputError(fmt::format("{}: cannot {}: {}", path_text(path), what, std::strerror(errno)));
}

/// The temporary file. It has no name until it is whole, where the file system can do that, so that
/// a process that is killed leaves nothing; else a name that is removed unless it was renamed.
class Temporary {
 public:
  explicit Temporary(const std::filesystem::path& target)
      : target_(target.string()),
        folder_(target.parent_path().empty() ? "." : target.parent_path().string()) {
    fd_ = ::open(folder_.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
    if (fd_ >= 0 && ::access(link_source().c_str(), F_OK) != 0) ::close(std::exchange(fd_, -1));
    if (fd_ >= 0) return;
    take_name([this] {
      fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      return fd_ >= 0;
    });
  }
  ~Temporary() {
    if (fd_ >= 0) ::close(fd_);
    if (!path_.empty() && !renamed_) ::unlink(path_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t wrote = ::write(fd_, bytes.data(), bytes.size());
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) fail(target_, "write");
      bytes.remove_prefix(static_cast<std::size_t>(wrote));
    }
  }
  /// All bytes are on the disk, under some name beside the target.
  void finish() {
    if (::fsync(fd_) != 0) fail(target_, "write");
    if (path_.empty()) {
      take_name([this] {
        return ::linkat(AT_FDCWD, link_source().c_str(), AT_FDCWD, path_.c_str(),
                        AT_SYMLINK_FOLLOW) == 0;
      });
    }
    if (::close(std::exchange(fd_, -1)) != 0) fail(target_, "write");
  }
  void publish() {
    if (::rename(path_.c_str(), target_.c_str()) != 0) fail(target_, "rename to it");
    renamed_ = true;
    // the file is complete either way; a folder that cannot be synced is no failure of it
    const int folder = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
      ::fsync(folder);
      ::close(folder);
    }
  }

 private:
  std::string link_source() const { return fmt::format("/proc/self/fd/{}", fd_); }

  /// Tries names until `make` takes one; the mode obeys the umask. A name left by another process
  /// is skipped, never reused.
  template <class Make>
  void take_name(Make make) {
    static std::atomic<unsigned> counter{0};
    for (int attempt = 0; attempt < 1000; ++attempt) {
      path_ = fmt::format("{}/.headroom-{}-{}.tmp", folder_, ::getpid(), counter++);
      if (make()) return;
      if (errno != EEXIST) break;
    }
    path_.clear();
    fail(target_, "create a file beside it");
  }

  std::string target_, path_, folder_;
  int fd_ = -1;
  bool renamed_ = false;
};

/// Where the bytes go: `path` itself, or what a symbolic link there points to.
std::filesystem::path checked_target(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    throw InputError(quoted_text(path) + ": is no path to write to");
  }
  std::filesystem::path target(path);
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(target, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw InputError(path_text(path) + ": exists and is no regular file, refusing to replace it");
  }
  if (std::filesystem::exists(status)) {
    const std::filesystem::path resolved = std::filesystem::canonical(target, error);
    if (!error) target = resolved;
  }
  return target;
}

void write_all(const std::string& path, const std::vector<std::string_view>& parts) {
  Temporary temporary(checked_target(path));
  for (const std::string_view part : parts) temporary.write(part);
  temporary.finish();
  temporary.publish();
}

std::string_view dtype_of(const Format& format) {
  if (format == fp32) return "F32";
  if (format == fp16) return "F16";
  if (format == bf16) return "BF16";
  if (format == e4m3fn) return "F8_E4M3";
  if (format == e5m2) return "F8_E5M2";
  throw std::invalid_argument("TensorWriter: " + std::string(format.name) +
                              " has no dtype, expected fp32, fp16, bf16, e4m3fn or e5m2");
}

}  // namespace

void atomic_write_file(const std::string& path, std::string_view bytes) {
  write_all(path, {bytes});
}

void atomic_write_files(const std::vector<std::pair<std::string, std::string>>& files) {
  std::vector<std::unique_ptr<Temporary>> temporaries;
  for (const auto& [path, bytes] : files) {
    temporaries.push_back(std::make_unique<Temporary>(checked_target(path)));
    temporaries.back()->write(bytes);
    temporaries.back()->finish();
  }
  for (const auto& temporary : temporaries) temporary->publish();
}

void TensorWriter::add(const std::string& name, const Format& format,
                       std::vector<std::int64_t> shape, std::span<const std::byte> words,
                       std::shared_ptr<const void> owner) {
  dtype_of(format);
  if (name == "__metadata__") throw std::invalid_argument("TensorWriter: reserved name " + name);
  std::int64_t bytes = format.storage_bytes();
  for (const std::int64_t n : shape) {
    if (n < 0 || __builtin_mul_overflow(bytes, n, &bytes)) {
      throw std::invalid_argument("TensorWriter: bad shape " + shape_text(shape));
    }
  }
  if (static_cast<std::size_t>(bytes) != words.size()) {
    throw std::invalid_argument(fmt::format("TensorWriter: shape {} needs {} bytes, given {}",
                                            shape_text(shape), bytes, words.size()));
  }
  for (const Item& item : items_) {
    if (item.name == name) throw std::invalid_argument("TensorWriter: name taken: " + name);
  }
  items_.push_back({name, format, std::move(shape), words, std::move(owner)});
}

void TensorWriter::add(const std::string& name, const std::vector<Matrix>& stack) {
  if (stack.empty()) throw std::invalid_argument("TensorWriter: empty stack");
  const Matrix& first = stack.front();
  const std::int64_t row_bytes = first.columns() * first.format().storage_bytes();
  const auto storage = std::make_shared<std::vector<std::byte>>();
  storage->reserve(stack.size() * static_cast<std::size_t>(first.rows() * row_bytes));
  for (const Matrix& matrix : stack) {
    if (matrix.format() != first.format() || matrix.rows() != first.rows() ||
        matrix.columns() != first.columns()) {
      throw std::invalid_argument("TensorWriter: matrices of one stack differ in shape or format");
    }
    for (std::int64_t i = 0; i < matrix.rows(); ++i) {
      storage->insert(storage->end(), matrix.row_bytes(i), matrix.row_bytes(i) + row_bytes);
    }
  }
  add(name, first.format(),
      {static_cast<std::int64_t>(stack.size()), first.rows(), first.columns()}, *storage, storage);
}

void TensorWriter::add(const std::string& name, const Matrix& matrix) {
  add(name, std::vector<Matrix>{matrix});
  items_.back().shape = {matrix.rows(), matrix.columns()};
}

void TensorWriter::write_safetensors(const std::string& path) const {
  std::vector<const Item*> by_width;
  for (const Item& item : items_) by_width.push_back(&item);
  std::stable_sort(by_width.begin(), by_width.end(), [](const Item* a, const Item* b) {
    return a->format.storage_bytes() > b->format.storage_bytes();
  });
  std::map<const Item*, std::size_t> begin;
  std::size_t offset = 0;
  for (const Item* item : by_width) {
    begin[item] = offset;
    offset += item->words.size();
  }
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata_.empty()) header["__metadata__"] = metadata_;
  for (const Item& item : items_) {
    header[item.name] = {{"dtype", dtype_of(item.format)},
                         {"shape", item.shape},
                         {"data_offsets", {begin[&item], begin[&item] + item.words.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::string prefix(8, '\0');
  std::memcpy(prefix.data(), &length, 8);
  std::vector<std::string_view> parts = {prefix, text};
  for (const Item* item : by_width) parts.push_back(as_text(item->words));
  write_all(path, parts);
}

void TensorWriter::write_npy(const std::string& name, const std::string& path) const {
  const auto item = std::find_if(items_.begin(), items_.end(),
                                 [&](const Item& candidate) { return candidate.name == name; });
  if (item == items_.end()) throw std::invalid_argument("TensorWriter: no tensor " + name);
  if (item->format != fp32 && item->format != fp16) {
    throw std::invalid_argument("TensorWriter: .npy cannot name " + std::string(item->format.name));
  }
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                 item->format == fp32 ? "<f4" : "<f2", fmt::join(item->shape, ", "),
                                 item->shape.size() == 1 ? "," : "");
  // NEP 1: padded with spaces and ended by a newline so that the data begin at a multiple of 64
  dict.resize((10 + dict.size() + 1 + 63) / 64 * 64 - 11, ' ');
  dict += '\n';
  std::string prefix = "\x93NUMPY";
  prefix += {'\x01', '\x00', static_cast<char>(dict.size() & 0xFFU),
             static_cast<char>(dict.size() >> 8U)};
  write_all(path, {prefix, dict, as_text(item->words)});
}

}  // namespace headroom
