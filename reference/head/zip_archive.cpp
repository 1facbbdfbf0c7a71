#include "reference/head/zip_archive.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "reference/head/tensor_file.h"
#include "reference/input_error.h"

namespace headroom {
namespace {

constexpr std::uint64_t max_members = 1 << 16;
constexpr std::size_t local_bytes = 30, central_bytes = 46, end_bytes = 22;
constexpr std::size_t locator_bytes = 20, end64_bytes = 56;
constexpr std::uint32_t local_mark = 0x04034b50, central_mark = 0x02014b50, end_mark = 0x06054b50;
constexpr std::uint32_t locator_mark = 0x07064b50, end64_mark = 0x06064b50;
constexpr std::uint16_t encrypted = 1;
constexpr std::uint16_t is_stored = 0, is_deflated = 8;
constexpr std::uint16_t zip64_extra = 1;
constexpr std::uint32_t in_zip64 = 0xFFFFFFFF;
// A deflated block of one match of 258 bytes in two bits is the densest there is (RFC 1951).
constexpr std::uint64_t densest_deflate = 1032;

/// Little-endian fields at any offset; the caller has checked that they are inside.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint16_t u16(std::size_t at) const { return read<std::uint16_t>(at); }
  std::uint32_t u32(std::size_t at) const { return read<std::uint32_t>(at); }
  std::uint64_t u64(std::size_t at) const { return read<std::uint64_t>(at); }
  std::string text(std::size_t at, std::size_t length) const {
    const auto part = bytes_.subspan(at, length);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

 private:
  template <class Word>
  Word read(std::size_t at) const {
    Word word;
    std::memcpy(&word, bytes_.subspan(at, sizeof word).data(), sizeof word);  // little-endian host
    return word;
  }
  std::span<const std::byte> bytes_;
};

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80   ? 1
                               : lead < 0xC2 ? 0
                               : lead < 0xE0 ? 2
                               : lead < 0xF0 ? 3
                               : lead < 0xF5 ? 4
                                             : 0;
    if (length == 0 || length > text.size() - i) return false;
    std::uint32_t code = length == 1 ? lead : lead & (0x7FU >> length);
    for (std::size_t j = 1; j < length; ++j) {
      const auto next = static_cast<unsigned char>(text[i + j]);
      if ((next & 0xC0U) != 0x80) return false;
      code = code << 6U | (next & 0x3FU);
    }
    constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < least[length] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    i += length;
  }
  return true;
}

struct Directory {
  std::uint64_t begin = 0, bytes = 0, members = 0;
};

class Reader {
 public:
  Reader(const std::string& where, std::span<const std::byte> archive)
      : where_(where), archive_(archive), fields_(archive) {}

  std::vector<ZipMember> read(const std::function<void()>& pause) {
    const Directory directory = find_directory();
    std::vector<ZipMember> members;
    std::vector<Extent> extents;
    std::set<std::string> names;
    std::uint64_t at = directory.begin;
    const std::uint64_t end = directory.begin + directory.bytes;
    for (std::uint64_t i = 0; i < directory.members; ++i) {
      if (end - at < central_bytes || fields_.u32(at) != central_mark) {
        fail(fmt::format("entry {} of the directory is cut off or malformed", i));
      }
      const std::uint64_t length = central_bytes + std::uint64_t{fields_.u16(at + 28)} +
                                   fields_.u16(at + 30) + fields_.u16(at + 32);
      if (length > end - at) {
        fail(fmt::format("entry {} of the directory is longer than the directory", i));
      }
      members.push_back(read_member(at, directory.begin, extents));
      if (!names.insert(members.back().name).second) {
        fail("member " + quoted_text(members.back().name) + " is there twice");
      }
      at += length;
      if (pause && i % 256 == 255) pause();  // each member took a page, and those around it
    }
    if (pause) pause();
    if (at != end) fail(fmt::format("{} bytes behind the last entry of the directory", end - at));
    check_extents(extents, members);
    return members;
  }

 private:
  /// What a member occupies, header and data.
  struct Extent {
    std::uint64_t begin, end;
    std::size_t member;
    bool operator<(const Extent& other) const { return begin < other.begin; }
  };

  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(where_ + ": zip archive: " + what);
  }

  Directory find_directory() const {
    const std::uint64_t size = archive_.size();
    if (size < end_bytes) fail("cut off before the end of its directory");
    // the record stands before a comment of at most 65,535 bytes, and nothing follows that
    std::uint64_t at = size - end_bytes;
    const std::uint64_t first = at > 0xFFFF ? at - 0xFFFF : 0;
    while (fields_.u32(at) != end_mark || at + end_bytes + fields_.u16(at + 20) != size) {
      if (at == first) fail("has no end of its directory (truncated file?)");
      --at;
    }
    Directory directory{fields_.u32(at + 16), fields_.u32(at + 12), fields_.u16(at + 10)};
    std::uint64_t disks = std::uint64_t{fields_.u16(at + 4)} | fields_.u16(at + 6);
    std::uint64_t here = fields_.u16(at + 8);
    std::uint64_t end = at;
    if (at >= locator_bytes && fields_.u32(at - locator_bytes) == locator_mark) {
      const std::uint64_t record = fields_.u64(at - locator_bytes + 8);
      if (at < locator_bytes + end64_bytes || record > at - locator_bytes - end64_bytes ||
          fields_.u32(record) != end64_mark) {
        fail("its ZIP64 record is not where it is said to be");
      }
      if (fields_.u64(record + 4) != at - locator_bytes - record - 12) {
        fail("its ZIP64 record is of another length than said");
      }
      directory = {fields_.u64(record + 48), fields_.u64(record + 40), fields_.u64(record + 32)};
      disks = fields_.u32(record + 16) | fields_.u32(record + 20);
      here = fields_.u64(record + 24);
      end = record;
    }
    if (disks != 0 || here != directory.members) fail("is one of several volumes, expected one");
    if (directory.members > max_members) {
      fail(fmt::format("{} members, expected at most {}", directory.members, max_members));
    }
    if (directory.bytes > end || directory.begin != end - directory.bytes) {
      fail(
          fmt::format("directory of {} bytes at {}, expected it to end at {} (truncated file, or "
                      "bytes before the first member?)",
                      directory.bytes, directory.begin, end));
    }
    return directory;
  }

  ZipMember read_member(std::uint64_t at, std::uint64_t directory, std::vector<Extent>& extents) {
    ZipMember member;
    const std::uint16_t name_length = fields_.u16(at + 28);
    const std::uint16_t method = fields_.u16(at + 10);
    member.name = fields_.text(at + central_bytes, name_length);
    const auto fail_member = [&](const std::string& what) {
      fail("member " + quoted_text(member.name) + ": " + what);
    };
    if (member.name.empty() || member.name.find('\0') != std::string::npos ||
        !is_utf8(member.name)) {
      fail_member("its name is empty or no UTF-8");
    }
    if ((fields_.u16(at + 8) & encrypted) != 0) fail_member("is encrypted");
    if (method != is_stored && method != is_deflated) {
      fail_member(
          fmt::format("compression method {}, expected stored (0) or deflated (8)", method));
    }
    member.deflated = method == is_deflated;
    member.crc32 = fields_.u32(at + 16);
    std::uint64_t compressed = fields_.u32(at + 20), begin = fields_.u32(at + 42);
    member.size = fields_.u32(at + 24);
    // what does not fit stands in the extra field, in this order
    std::vector<std::uint64_t*> wide;
    if (member.size == in_zip64) wide.push_back(&member.size);
    if (compressed == in_zip64) wide.push_back(&compressed);
    if (begin == in_zip64) wide.push_back(&begin);
    if (!wide.empty() &&
        !read_zip64(at + central_bytes + name_length, fields_.u16(at + 30), wide)) {
      fail_member("its ZIP64 sizes are missing");
    }
    if (fields_.u16(at + 34) != 0 && fields_.u16(at + 34) != 0xFFFF) {
      fail_member("lies in another volume");
    }

    if (begin > directory || directory - begin < local_bytes || fields_.u32(begin) != local_mark) {
      fail_member(fmt::format("has no header at {}", begin));
    }
    const std::uint64_t room = directory - begin - local_bytes;
    const std::uint64_t skipped = std::uint64_t{fields_.u16(begin + 26)} + fields_.u16(begin + 28);
    if (skipped > room || compressed > room - skipped) {
      fail_member(fmt::format("{} bytes at {} run into the directory", compressed, begin));
    }
    if (fields_.u16(begin + 26) != name_length ||
        fields_.text(begin + local_bytes, name_length) != member.name ||
        fields_.u16(begin + 8) != method || (fields_.u16(begin + 6) & encrypted) != 0) {
      fail_member("the header beside its data says something else than the directory");
    }
    member.stored = archive_.subspan(begin + local_bytes + skipped, compressed);
    if (!member.deflated && member.size != compressed) {
      fail_member(fmt::format("stored as it is, yet of {} and {} bytes", compressed, member.size));
    }
    if (member.deflated && member.size / densest_deflate > compressed) {
      fail_member(fmt::format("says that {} bytes inflate to {}, more than deflate can hold",
                              compressed, member.size));
    }
    extents.push_back({begin, begin + local_bytes + skipped + compressed, extents.size()});
    return member;
  }

  /// Fills the numbers from the ZIP64 extra field, if there is one and it holds them.
  bool read_zip64(std::uint64_t at, std::uint64_t length,
                  const std::vector<std::uint64_t*>& wide) const {
    while (length >= 4) {
      const std::uint16_t id = fields_.u16(at), bytes = fields_.u16(at + 2);
      if (bytes > length - 4) return false;
      if (id == zip64_extra) {
        if (bytes < 8 * wide.size()) return false;
        for (std::size_t i = 0; i < wide.size(); ++i) *wide[i] = fields_.u64(at + 4 + 8 * i);
        return true;
      }
      at += 4 + std::uint64_t{bytes};
      length -= 4 + std::uint64_t{bytes};
    }
    return false;
  }

  /// Members that share bytes make a small archive inflate to anything.
  void check_extents(std::vector<Extent>& extents, const std::vector<ZipMember>& members) const {
    std::sort(extents.begin(), extents.end());
    std::uint64_t end = 0;
    for (const Extent& extent : extents) {
      if (extent.begin < end) {
        fail("member " + quoted_text(members[extent.member].name) + ": overlaps the one before");
      }
      end = extent.end;
    }
    if (!extents.empty() && extents.front().begin != 0) fail("bytes before its first member");
  }

  const std::string& where_;
  std::span<const std::byte> archive_;
  Fields fields_;
};

}  // namespace

std::vector<ZipMember> read_zip_directory(const std::string& where,
                                          std::span<const std::byte> archive,
                                          const std::function<void()>& pause) {
  return Reader(where, archive).read(pause);
}

}  // namespace headroom
