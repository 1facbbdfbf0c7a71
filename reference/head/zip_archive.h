// The directory of a zip archive, checked against the bytes it speaks of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace headroom {

/// One member of an archive: where its bytes lie and what they should become.
struct ZipMember {
  std::string name;  ///< valid UTF-8, unique in the archive
  bool deflated = false;
  std::uint32_t crc32 = 0;
  std::span<const std::byte> stored;  ///< as in the archive
  std::uint64_t size = 0;             ///< after inflating; stored.size() where not deflated
};

/// The members in the order of the directory. Source: PKWARE's APPNOTE 6.3, sections 4.3 to 4.5,
/// with ZIP64; methods 0 (stored) and 8 (deflated) only.
///
/// Stricter than the format, so that an archive means one thing: it begins with its first member
/// and ends with its directory and comment; members overlap neither each other nor the directory;
/// the name and method beside the data are those of the directory; no name comes twice; nothing is
/// encrypted or in several volumes; no member claims more than deflate can hold. At most 65,536
/// members. Throws InputError; memory is bounded by the size of the directory.
///
/// Beside the directory a few bytes of each member are read, all over the archive. `pause`, if
/// given, is called now and then while nothing of it is needed in memory.
std::vector<ZipMember> read_zip_directory(const std::string& where,
                                          std::span<const std::byte> archive,
                                          const std::function<void()>& pause = {});

}  // namespace headroom
