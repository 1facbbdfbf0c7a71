// The .npz reader. Source: numpy.lib.format and numpy.savez: a zip archive of NAME.npy members,
// stored (savez) or deflated (savez_compressed).
#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "reference/head/npy.h"
#include "reference/head/small_file.h"
#include "reference/head/tensor_file.h"
#include "reference/head/zip_archive.h"
#include "reference/input_error.h"

namespace headroom {

void parse_npz(TensorFile& file, const OpenOptions& options);

namespace {

constexpr std::string_view npy_ending = ".npy";
constexpr std::uint64_t alignment = 64;

/// A file without a name, that is gone when it is closed, however the process ends.
Descriptor nameless_file(const std::string& where, std::string& folder) {
  std::error_code error;
  folder = std::filesystem::temp_directory_path(error).string();
  int fd = -1;
  if (!error) {
    fd = ::open(folder.c_str(), O_RDWR | O_TMPFILE | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {  // not every file system can
      std::string pattern = folder + "/headroom-XXXXXX";
      fd = ::mkostemp(pattern.data(), O_CLOEXEC);
      if (fd >= 0) ::unlink(pattern.c_str());
    }
  }
  if (fd < 0) {
    throw InputError(fmt::format("{}: cannot inflate into {} (TMPDIR): {}", where,
                                 path_text(folder), std::strerror(errno)));
  }
  return Descriptor(fd);
}

/// Writes what one member inflates to, through buffers of fixed size.
class Inflater {
 public:
  explicit Inflater(std::string where)
      : where_(std::move(where)), file_(nameless_file(where_, folder_)) {}

  /// Inflates a member to the offset `begin`. Stops at its first byte too many.
  void add(const ZipMember& member, std::uint64_t begin) {
    const auto fail = [&](const std::string& what) {
      throw InputError(where_ + ": member " + quoted_text(member.name) + ": " + what);
    };
    Stream stream;
    std::uint64_t taken = 0, made = 0;
    uLong crc = ::crc32(0, nullptr, 0);
    int state = Z_OK;
    while (state != Z_STREAM_END) {
      if (stream.z.avail_in == 0 && taken < member.stored.size()) {
        constexpr std::uint64_t most = 1 << 20;
        const std::uint64_t next = std::min<std::uint64_t>(most, member.stored.size() - taken);
        stream.z.next_in =
            const_cast<Bytef*>(reinterpret_cast<const Bytef*>(member.stored.data() + taken));
        stream.z.avail_in = static_cast<uInt>(next);
        taken += next;
      }
      stream.z.next_out = buffer_.data();
      stream.z.avail_out = static_cast<uInt>(buffer_.size());
      state = ::inflate(&stream.z, Z_NO_FLUSH);
      if (state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR) {
        fail("its deflated data are damaged");
      }
      const std::size_t got = buffer_.size() - stream.z.avail_out;
      // without input there may still be output that had no room
      if (got == 0 && state != Z_STREAM_END && stream.z.avail_in == 0 &&
          taken == member.stored.size()) {
        fail("its deflated data are cut off");
      }
      if (got > member.size - made) {
        fail(fmt::format("inflates to more than the {} bytes it is said to hold", member.size));
      }
      crc = ::crc32_z(crc, buffer_.data(), got);
      write(got, begin + made);
      made += got;
    }
    if (made != member.size || taken - stream.z.avail_in != member.stored.size()) {
      fail(fmt::format("inflates to {} bytes, {} bytes of data left, expected {} and none", made,
                       member.stored.size() - taken + stream.z.avail_in, member.size));
    }
    if (crc != member.crc32) fail("its checksum is wrong (damaged file?)");
  }

  MappedFile map(std::uint64_t bytes) const {
    return {file_.get(), bytes, where_ + ": inflated copy in " + path_text(folder_)};
  }

 private:
  struct Stream {
    Stream() {
      // raw deflate: no zlib header
      if (::inflateInit2(&z, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
    }
    ~Stream() { ::inflateEnd(&z); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    z_stream z{};
  };

  void write(std::size_t bytes, std::uint64_t at) const {
    const Bytef* from = buffer_.data();
    while (bytes > 0) {
      const ssize_t wrote = ::pwrite(file_.get(), from, bytes, static_cast<off_t>(at));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) {
        throw InputError(fmt::format("{}: cannot inflate into {} (TMPDIR): {}", where_,
                                     path_text(folder_), std::strerror(errno)));
      }
      from += wrote;
      at += static_cast<std::uint64_t>(wrote);
      bytes -= static_cast<std::size_t>(wrote);
    }
  }

  std::string where_, folder_;
  Descriptor file_;
  std::vector<Bytef> buffer_ = std::vector<Bytef>(std::size_t{1} << 18);
};

/// CRC-32 of mapped bytes, whose pages are dropped behind it.
uLong checksum(const MappedFile& map, std::span<const std::byte> bytes) {
  constexpr std::size_t piece = std::size_t{16} << 20;
  uLong crc = ::crc32(0, nullptr, 0);
  for (std::size_t i = 0; i < bytes.size(); i += piece) {
    const auto part = bytes.subspan(i, std::min(piece, bytes.size() - i));
    crc = ::crc32_z(crc, reinterpret_cast<const Bytef*>(part.data()), part.size());
    map.drop(part.data(), part.size());
  }
  return crc;
}

bool is_array(const ZipMember& member) {
  return member.name.size() > npy_ending.size() && member.name.ends_with(npy_ending);
}

}  // namespace

void parse_npz(TensorFile& file, const OpenOptions& options) {
  file.is_npz_ = true;
  const std::string where = path_text(file.path_);
  const std::vector<ZipMember> members =
      read_zip_directory(where, {file.map_.data(), file.map_.size()},
                         [&file] { file.map_.drop(file.map_.data(), file.map_.size()); });
  if (!members.empty() && std::none_of(members.begin(), members.end(), is_array)) {
    throw InputError(
        fmt::format("{}: zip archive: holds {}, expected members that end in .npy (a "
                    "PyTorch file? save it as .safetensors)",
                    where, quoted_text(members.front().name)));
  }

  // where each deflated member goes; the limit is checked before the first is inflated
  std::vector<std::uint64_t> begin(members.size(), 0);
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!members[i].deflated || !is_array(members[i])) continue;
    begin[i] = total;
    constexpr auto limit = static_cast<std::uint64_t>(max_inflated_bytes);
    if (members[i].size > limit - total) {
      throw InputError(
          fmt::format("{}: deflated members hold more than {} bytes, the limit; save "
                      "them stored (numpy.savez) or as .safetensors",
                      where, max_inflated_bytes));
    }
    total += std::min(limit - total, (members[i].size + alignment - 1) / alignment * alignment);
  }
  if (total > 0) {
    Inflater inflater(where);
    std::uint64_t end = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (!members[i].deflated || !is_array(members[i])) continue;
      inflater.add(members[i], begin[i]);
      file.map_.drop(members[i].stored.data(), members[i].stored.size());
      end = begin[i] + members[i].size;
    }
    if (end > 0) file.inflated_ = inflater.map(end);
  }

  for (std::size_t i = 0; i < members.size(); ++i) {
    const ZipMember& member = members[i];
    const std::string at = where + ": member " + quoted_text(member.name);
    if (!is_array(member)) {
      file.unusable_.emplace(member.name, UnusableTensor{"no .npy", {}, nullptr, 0});
      continue;
    }
    std::span<const std::byte> bytes = member.stored;
    if (member.deflated) {
      bytes = {file.inflated_.data() + begin[i], static_cast<std::size_t>(member.size)};
    } else if (checksum(file.map_, bytes) != member.crc32) {
      throw InputError(at + ": its checksum is wrong (damaged file?)");
    }
    NpyArray array = read_npy(at, bytes, options);
    file.map_.drop(member.stored.data(), member.stored.size());  // its header was read again
    std::string name = member.name.substr(0, member.name.size() - npy_ending.size());
    const auto size = static_cast<std::int64_t>(array.data.size());
    if (array.operand == nullptr) {
      check_extent(at, array);
      file.unusable_.emplace(std::move(name), UnusableTensor{array.descr, std::move(array.shape),
                                                             array.data.data(), size});
    } else {
      file.tensors_.push_back({std::move(name), *array.operand, std::move(array.shape),
                               array.data.data(), size, array.was_void()});
    }
  }
}

}  // namespace headroom
