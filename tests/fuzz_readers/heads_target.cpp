// Heads: names, layouts, scales, masks and lengths from metadata and sidecar. The input is the
// length of a tensor file (4 bytes, little-endian), that file, and the rest is its sidecar.
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <fstream>
#include <vector>

#include "reference/head/load.h"
#include "reference/input_error.h"
#include "tests/fuzz_readers/memory_file.h"

namespace headroom::fuzz {
namespace {

/// A folder that goes with the process.
class Folder {
 public:
  Folder() {
    std::string pattern = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm/headroom-fuzz-XXXXXX"
                                                          : "/tmp/headroom-fuzz-XXXXXX";
    require(::mkdtemp(pattern.data()) != nullptr, "a folder for the input");
    name_ = pattern;
  }
  ~Folder() {
    ::unlink(path("x.safetensors").c_str());
    ::unlink(path("x.json").c_str());
    ::rmdir(name_.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path(const char* name) const { return name_ + "/" + name; }

  std::string put(const char* name, const std::uint8_t* data, std::size_t size) const {
    ::unlink(path(name).c_str());
    std::ofstream(path(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    return path(name);
  }

 private:
  std::string name_;
};

void read_heads(const std::string& file, const LoadOptions& options, const std::string& folder) {
  std::vector<Head> heads;
  try {
    heads = load_heads(file, options);
  } catch (const InputError& error) {
    require(std::string(error.what()).find('\n') == std::string::npos, "an error is one line");
    require(std::string(error.what()).find(folder) != std::string::npos, "an error names the file");
    return;
  }
  require(!heads.empty(), "heads or an error");
  for (const Head& head : heads) {
    std::vector<double> row;
    for (const Matrix* m : {&head.q, &head.k, &head.v}) {
      row.resize(static_cast<std::size_t>(m->columns()));
      for (std::int64_t i = 0; i < m->rows(); ++i) m->load_row(i, row.data());
    }
    require(head.k.columns() == head.q.columns() && head.v.rows() == head.keys(), "shapes fit");
    for (std::int64_t i = 0; i < head.queries(); ++i) {
      const auto visible = head.visibility.visible(i);
      require(visible.begin >= 0 && visible.begin <= visible.end && visible.end <= head.keys(),
              "visible keys are keys");
    }
    require(!head.scale.text().empty(), "a scale has a text");
    head.require_unchanged();
  }
}

}  // namespace
}  // namespace headroom::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const headroom::fuzz::Folder folder;
  std::uint32_t length = 0;
  if (size < sizeof length) return 0;
  std::memcpy(&length, data, sizeof length);
  data += sizeof length;
  size -= sizeof length;
  if (length > size) length = static_cast<std::uint32_t>(size);
  const std::string file = folder.put("x.safetensors", data, length);
  folder.put("x.json", data + length, size - length);
  if (size == length) ::unlink(folder.path("x.json").c_str());
  headroom::LoadOptions options;
  headroom::fuzz::read_heads(file, options, folder.path(""));
  options.layout = "bhnd";
  options.operand = headroom::bf16;
  options.cast = true;
  headroom::fuzz::read_heads(file, options, folder.path(""));
  return 0;
}
