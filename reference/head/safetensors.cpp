// The .safetensors reader. Source: the format's specification (README of huggingface/safetensors):
// 8 bytes little-endian header length, a JSON object beginning with '{' and optionally padded with
// spaces, then the data; offsets are relative to the data and leave no holes.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "reference/head/strict_json.h"
#include "reference/head/tensor_file.h"
#include "reference/input_error.h"

namespace headroom {

void parse_safetensors(TensorFile& file);

namespace {

// The cap of the format's own reader: bounds what is spent on a hostile header.
constexpr std::uint64_t max_header_bytes = 100'000'000;
constexpr std::size_t max_rank = 64;
// A tensor costs several times its header text, a key of the metadata up to 30 times: these keep
// the most hostile header of that size below 1 GiB.
constexpr std::size_t max_tensors = 1 << 20;
constexpr std::size_t max_metadata_keys = 1 << 16;

struct Dtype {
  std::string_view name;
  std::int64_t bits;
  const Format* operand;  ///< nullptr: extent known, but not an operand
};

// F8_E4M3 is the one without infinity (OCP, "E4M3FN"); what ends in FNUZ has a name of its own.
constexpr Dtype dtypes[] = {
    {"F32", 32, &fp32},      {"F16", 16, &fp16},          {"BF16", 16, &bf16},
    {"F8_E5M2", 8, &e5m2},   {"F8_E4M3", 8, &e4m3fn},     {"F64", 64, nullptr},
    {"I64", 64, nullptr},    {"U64", 64, nullptr},        {"I32", 32, nullptr},
    {"U32", 32, nullptr},    {"I16", 16, nullptr},        {"U16", 16, nullptr},
    {"I8", 8, nullptr},      {"U8", 8, nullptr},          {"BOOL", 8, nullptr},
    {"F8_E8M0", 8, nullptr}, {"F8_E4M3FNUZ", 8, nullptr}, {"F8_E5M2FNUZ", 8, nullptr},
    {"F6_E2M3", 6, nullptr}, {"F6_E3M2", 6, nullptr},     {"F4", 4, nullptr},
    {"C64", 64, nullptr},
};

const Dtype* find_dtype(std::string_view name) {
  for (const Dtype& dtype : dtypes) {
    if (dtype.name == name) return &dtype;
  }
  return nullptr;
}

struct Entry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<std::int64_t>> shape;
  std::optional<std::vector<std::int64_t>> offsets;
};

/// Reads the header into entries; the JSON's own structure is checked here, what the numbers mean
/// afterwards.
class HeaderReader : public StrictJson {
 public:
  explicit HeaderReader(const std::string& path) : StrictJson(path_text(path) + ": header", 8) {}
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;

 private:
  enum class Field : std::uint8_t { none, dtype, shape, offsets };

  void on_key(const std::string& key) override {
    if (depth() == 1) {
      in_metadata_ = key == "__metadata__";
      if (in_metadata_) return;
      if (entries.size() >= max_tensors) fail(fmt::format("more than {} tensors", max_tensors));
      entries.push_back({key, {}, {}, {}});
    } else if (in_metadata_) {
      if (metadata.size() >= max_metadata_keys) {
        fail(fmt::format("more than {} keys of __metadata__", max_metadata_keys));
      }
      metadata_key_ = key;
    } else if (key == "dtype") {
      field_ = Field::dtype;
    } else if (key == "shape") {
      field_ = Field::shape;
    } else if (key == "data_offsets") {
      field_ = Field::offsets;
    } else {
      fail(fmt::format("{}: unknown key {}, expected dtype, shape and data_offsets", tensor(),
                       quoted_text(key)));
    }
  }

  void on_scalar(const JsonScalar& value) override {
    switch (depth()) {
      case 0:
        fail("expected a JSON object");
      case 1:
        fail(in_metadata_ ? "__metadata__ is no object, expected a map of strings"
                          : tensor() + ": is no object, expected dtype, shape and data_offsets");
      case 2:
        if (in_metadata_) {
          if (value.kind != JsonScalar::Kind::string) refuse_metadata();
          metadata.emplace(metadata_key_, value.text);
        } else if (field_ != Field::dtype) {
          fail(fmt::format("{}: {} is {}, expected a list of non-negative integers", tensor(),
                           field_name(), quoted_text(value.text)));
        } else if (value.kind != JsonScalar::Kind::string) {
          fail(
              fmt::format("{}: dtype is {}, expected a string", tensor(), quoted_text(value.text)));
        } else {
          entries.back().dtype = value.text;
        }
        return;
      default:
        if (value.kind != JsonScalar::Kind::natural || value.natural > INT64_MAX) {
          fail(fmt::format("{}: {} holds {}, expected non-negative integers below 2^63", tensor(),
                           field_name(), quoted_text(value.text)));
        }
        std::vector<std::int64_t>& list =
            field_ == Field::shape ? *entries.back().shape : *entries.back().offsets;
        if (list.size() >= max_rank) {
          fail(fmt::format("{}: {} has more than {} elements", tensor(), field_name(), max_rank));
        }
        list.push_back(static_cast<std::int64_t>(value.natural));
    }
  }

  void on_open(bool object) override {
    switch (depth()) {
      case 1:
        if (!object) fail("expected a JSON object");
        return;
      case 2:
        if (!object) {
          fail(in_metadata_ ? "__metadata__ is a list, expected a map of strings"
                            : tensor() + ": is a list, expected dtype, shape and data_offsets");
        }
        return;
      case 3:
        if (in_metadata_) refuse_metadata();
        if (object || field_ == Field::dtype) {
          fail(
              fmt::format("{}: {} is a nested value, expected {}", tensor(), field_name(),
                          field_ == Field::dtype ? "a string" : "a list of non-negative integers"));
        }
        (field_ == Field::shape ? entries.back().shape : entries.back().offsets).emplace();
        return;
      default:
        fail(fmt::format("{}: {} is nested too deep, expected a list of non-negative integers",
                         tensor(), field_name()));
    }
  }

  void on_close(bool /*object*/) override {
    if (depth() != 2 || in_metadata_) return;
    const Entry& entry = entries.back();
    const char* missing = !entry.dtype     ? "dtype"
                          : !entry.shape   ? "shape"
                          : !entry.offsets ? "data_offsets"
                                           : nullptr;
    if (missing != nullptr) fail(fmt::format("{}: {} is missing", tensor(), missing));
    if (entry.offsets->size() != 2) {
      fail(fmt::format("{}: data_offsets has {} elements, expected 2", tensor(),
                       entry.offsets->size()));
    }
  }

  std::string tensor() const { return "tensor " + quoted_text(entries.back().name); }
  const char* field_name() const {
    return field_ == Field::dtype ? "dtype" : field_ == Field::shape ? "shape" : "data_offsets";
  }
  [[noreturn]] void refuse_metadata() const {
    fail(fmt::format("__metadata__ key {} is no string, expected a map of strings",
                     quoted_text(metadata_key_)));
  }

  bool in_metadata_ = false;
  Field field_ = Field::none;
  std::string metadata_key_;
};

/// Bytes of a tensor, or nothing if the bit count overflows or is no whole number of bytes.
std::optional<std::int64_t> extent(const std::vector<std::int64_t>& shape, std::int64_t bits) {
  std::int64_t product = bits;
  bool empty = false;
  for (const std::int64_t n : shape) {
    if (n == 0) {
      empty = true;  // the other dimensions must be representable all the same
    } else if (__builtin_mul_overflow(product, n, &product)) {
      return std::nullopt;
    }
  }
  if (empty) return 0;
  if (product % 8 != 0) return std::nullopt;
  return product / 8;
}

}  // namespace

void parse_safetensors(TensorFile& file) {
  const std::string where = path_text(file.path_);
  if (file.map_.size() < 8) {
    throw InputError(
        fmt::format("{}: {} bytes, expected at least the 8 of a safetensors header "
                    "length",
                    where, file.map_.size()));
  }
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.map_.data(), 8);  // little-endian, as is the host
  if (header_bytes > max_header_bytes) {
    throw InputError(
        fmt::format("{}: header length {} exceeds the limit of {} bytes (not a "
                    "safetensors file?)",
                    where, header_bytes, max_header_bytes));
  }
  if (header_bytes > file.map_.size() - 8) {
    throw InputError(
        fmt::format("{}: header length {} exceeds the {} bytes that follow (truncated, "
                    "or not a safetensors file)",
                    where, header_bytes, file.map_.size() - 8));
  }
  const std::string_view header(reinterpret_cast<const char*>(file.map_.data()) + 8, header_bytes);
  if (!header.starts_with('{')) {
    throw InputError(where + ": header does not begin with '{' (not a safetensors file?)");
  }
  HeaderReader reader(file.path_);
  reader.read(header);

  const std::int64_t data_bytes = static_cast<std::int64_t>(file.map_.size() - 8 - header_bytes);
  for (const Entry& entry : reader.entries) {
    const std::int64_t begin = (*entry.offsets)[0];
    const std::int64_t end = (*entry.offsets)[1];
    const auto fail = [&](const std::string& what) {
      throw InputError(fmt::format("{}: tensor {}: {}", where, quoted_text(entry.name), what));
    };
    if (begin > end || end > data_bytes) {
      fail(fmt::format("data_offsets [{},{}] lie outside the {} bytes of data{}", begin, end,
                       data_bytes, end > data_bytes ? " (truncated file?)" : ""));
    }
    const Dtype* dtype = find_dtype(*entry.dtype);
    if (dtype == nullptr) continue;
    const std::optional<std::int64_t> bytes = extent(*entry.shape, dtype->bits);
    if (!bytes) {
      fail(fmt::format("shape {} of dtype {} is no whole number of bytes below 2^60",
                       shape_text(*entry.shape), dtype->name));
    }
    if (*bytes != end - begin) {
      fail(fmt::format("shape {} of dtype {} needs {} bytes, data_offsets [{},{}] hold {}",
                       shape_text(*entry.shape), dtype->name, *bytes, begin, end, end - begin));
    }
  }

  // no holes, no overlaps: sorted by offset each tensor begins where the one before ends
  std::vector<const Entry*> by_offset;
  for (const Entry& entry : reader.entries) by_offset.push_back(&entry);
  std::sort(by_offset.begin(), by_offset.end(),
            [](const Entry* a, const Entry* b) { return *a->offsets < *b->offsets; });
  std::int64_t expected = 0;
  for (const Entry* entry : by_offset) {
    const std::int64_t begin = (*entry->offsets)[0];
    if (begin != expected) {
      throw InputError(fmt::format("{}: tensor {}: data begin at {}, expected {} ({})", where,
                                   quoted_text(entry->name), begin, expected,
                                   begin < expected ? "tensors overlap" : "a hole in the data"));
    }
    expected = (*entry->offsets)[1];
  }
  if (expected != data_bytes) {
    throw InputError(fmt::format("{}: {} bytes of data after the last tensor's end at {}", where,
                                 data_bytes - expected, expected));
  }

  const std::byte* data = file.map_.data() + 8 + header_bytes;
  for (Entry& entry : reader.entries) {
    const Dtype* dtype = find_dtype(*entry.dtype);
    const std::int64_t begin = (*entry.offsets)[0];
    const std::int64_t bytes = (*entry.offsets)[1] - begin;
    if (dtype == nullptr || dtype->operand == nullptr) {
      file.unusable_.emplace(
          entry.name, UnusableTensor{*entry.dtype, *std::move(entry.shape), data + begin, bytes});
    } else {
      file.tensors_.push_back(
          {entry.name, *dtype->operand, *std::move(entry.shape), data + begin, bytes});
    }
  }
  file.metadata_ = std::move(reader.metadata);
}

}  // namespace headroom
