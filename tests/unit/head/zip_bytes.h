// Zip archives laid out by hand, with every field open to a lie.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headroom::tests {

inline std::string little(std::uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i, value >>= 8U) out += static_cast<char>(value & 0xFFU);
  return out;
}

/// Raw deflate, as in archives.
inline std::string deflated(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, static_cast<uLong>(text.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

struct ZipEntry {
  std::string name, local_name, compressed;
  std::uint16_t method = 0, local_method = 0, flags = 0, disk = 0;
  std::uint64_t crc = 0, size = 0;
  std::optional<std::uint64_t> offset, compressed_said;
  bool local_zip64 = false;        ///< the sizes beside the data are in an extra field
  bool is_directory_only = false;  ///< no bytes of its own
};

struct ZipBytes {
  std::vector<ZipEntry> entries;
  bool zip64 = false;  ///< sizes, offsets and the end record in their ZIP64 form
  std::string comment;
  std::optional<std::uint64_t> claimed_members;

  void add(const std::string& name, const std::string& text, bool deflate) {
    ZipEntry e;
    e.name = e.local_name = name;
    e.compressed = deflate ? deflated(text) : text;
    e.method = e.local_method = deflate ? 8 : 0;
    e.crc = ::crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size());
    e.size = text.size();
    entries.push_back(e);
  }

  std::string bytes() const {
    constexpr std::uint64_t wide = 0xFFFFFFFF;
    std::string out, directory;
    for (const ZipEntry& e : entries) {
      const std::uint64_t offset = e.offset.value_or(out.size());
      const std::uint64_t compressed = e.compressed_said.value_or(e.compressed.size());
      if (!e.is_directory_only) {
        const bool extra = e.local_zip64 || zip64;
        out += "PK\x03\x04" + little(45, 2) + little(e.flags, 2) + little(e.local_method, 2) +
               little(0, 4) + little(e.crc, 4) + little(extra ? wide : compressed, 4) +
               little(extra ? wide : e.size, 4) + little(e.local_name.size(), 2) +
               little(extra ? 20 : 0, 2) + e.local_name;
        if (extra) out += little(1, 2) + little(16, 2) + little(e.size, 8) + little(compressed, 8);
        out += e.compressed;
      }
      directory += "PK\x01\x02" + little(45, 2) + little(45, 2) + little(e.flags, 2) +
                   little(e.method, 2) + little(0, 4) + little(e.crc, 4) +
                   little(zip64 ? wide : compressed, 4) + little(zip64 ? wide : e.size, 4) +
                   little(e.name.size(), 2) + little(zip64 ? 28 : 0, 2) + little(0, 2) +
                   little(e.disk, 2) + little(0, 6) + little(zip64 ? wide : offset, 4) + e.name;
      if (zip64) {
        directory += little(1, 2) + little(24, 2) + little(e.size, 8) + little(compressed, 8) +
                     little(offset, 8);
      }
    }
    const std::uint64_t begin = out.size(), members = claimed_members.value_or(entries.size());
    out += directory;
    if (zip64) {
      const std::uint64_t record = out.size();
      out += "PK\x06\x06" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) +
             little(members, 8) + little(members, 8) + little(directory.size(), 8) +
             little(begin, 8);
      out += "PK\x06\x07" + little(0, 4) + little(record, 8) + little(1, 4);
    }
    out += "PK\x05\x06" + little(0, 4) + little(zip64 ? 0xFFFF : members, 2) +
           little(zip64 ? 0xFFFF : members, 2) + little(zip64 ? wide : directory.size(), 4) +
           little(zip64 ? wide : begin, 4) + little(comment.size(), 2) + comment;
    return out;
  }
};

}  // namespace headroom::tests
