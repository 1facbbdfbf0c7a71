#include "cli/output_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "cli/head_options.h"
#include "cli/table.h"
#include "reference/head/tensor_file.h"
#include "reference/head/write.h"
#include "reference/input_error.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string_view dtype_of(const Format& f) {
  return f == fp64     ? "F64"
         : f == fp32   ? "F32"
         : f == fp16   ? "F16"
         : f == bf16   ? "BF16"
         : f == e4m3fn ? "F8_E4M3"
                       : "F8_E5M2";
}

/// All of the program's formats; TensorWriter (reference/head) is for operand formats.
std::string safetensors_bytes(const std::vector<OutputTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<const OutputTensor*> order;
  for (const OutputTensor& t : tensors) order.push_back(&t);
  // wider words first: every tensor is then aligned to its words
  std::stable_sort(order.begin(), order.end(), [](const OutputTensor* a, const OutputTensor* b) {
    return a->format.storage_bytes() > b->format.storage_bytes();
  });
  Json header;
  header["__metadata__"] = metadata;
  std::size_t offset = 0;
  for (const OutputTensor* t : order) {
    header[t->name] = {{"dtype", std::string(dtype_of(t->format))},
                       {"shape", t->shape},
                       {"data_offsets", {offset, offset + t->words.size()}}};
    offset += t->words.size();
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t size = text.size();
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  bytes += text;
  for (const OutputTensor* t : order) {
    bytes.append(reinterpret_cast<const char*>(t->words.data()), t->words.size());
  }
  return bytes;
}

}  // namespace

std::string npy_bytes(const std::string& option, const OutputTensor& t) {
  const char* descr = t.format == fp64   ? "<f8"
                      : t.format == fp32 ? "<f4"
                      : t.format == fp16 ? "<f2"
                                         : nullptr;
  if (descr == nullptr) {
    throw InputError(fmt::format(
        "{} {}: .npy has no such dtype, expected fp64, fp32 or fp16, or a .safetensors output",
        option, t.format.name));
  }
  std::string shape;
  for (const std::int64_t n : t.shape) shape += std::to_string(n) + ",";
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  header.append(64 - (10 + header.size() + 1) % 64, ' ');
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8);
  bytes += header;
  bytes.append(reinterpret_cast<const char*>(t.words.data()), t.words.size());
  return bytes;
}

void write_output(const std::string& option, const std::string& path, const std::string& prefix,
                  const std::vector<OutputTensor>& tensors,
                  const std::map<std::string, std::string>& metadata,
                  const std::vector<std::string>& inputs) {
  if (!ends_with(path, ".npy")) {
    require_no_input("-o", path, inputs);
    atomic_write_file(path, safetensors_bytes(tensors, metadata));
    return;
  }
  // exact.npy, exact.lse.npy, ...: one file a tensor
  const std::string stem = path.substr(0, path.size() - 4);
  std::vector<std::pair<std::string, std::string>> files;
  for (const OutputTensor& t : tensors) {
    const std::string name = t.name.starts_with(prefix) ? t.name.substr(prefix.size()) : t.name;
    files.emplace_back(name == "o" ? path : stem + "." + name + ".npy", npy_bytes(option, t));
  }
  for (const auto& [name, bytes] : files) require_no_input("-o", name, inputs);
  atomic_write_files(files);
}

std::vector<std::byte> encoded(const Format& f, Rounding rounding,
                               const std::vector<double>& values) {
  const auto bytes = static_cast<std::size_t>(f.storage_bytes());
  std::vector<std::byte> words(values.size() * bytes);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t code = encode(f, values[i], {.rounding = rounding});
    std::memcpy(&words[i * bytes], &code, bytes);
  }
  return words;
}

void stack(std::vector<OutputTensor>& out, const std::vector<const Head*>& heads,
           const std::vector<HeadTensors>& tensors) {
  std::vector<std::int64_t> leading;
  if (heads.front()->layout != "nd" || heads.size() > 1) {
    leading = {static_cast<std::int64_t>(heads.size())};
    std::set<std::int64_t> batches, numbers;
    for (const Head* h : heads) {
      batches.insert(h->batch);
      numbers.insert(h->query_head);
    }
    if (heads.front()->has_batch && batches.size() * numbers.size() == heads.size()) {
      leading = {static_cast<std::int64_t>(batches.size()),
                 static_cast<std::int64_t>(numbers.size())};
    }
  }
  for (std::size_t t = 0; t < tensors.front().size(); ++t) {
    OutputTensor whole = tensors.front()[t];
    whole.name = heads.front()->prefix + whole.name;
    whole.words.clear();
    for (const HeadTensors& one : tensors) {
      if (one[t].shape != tensors.front()[t].shape) {
        throw InputError(fmt::format("{}: heads of different shapes cannot share tensor {}",
                                     printable(heads.front()->file), printable(whole.name)));
      }
      whole.words.insert(whole.words.end(), one[t].words.begin(), one[t].words.end());
    }
    whole.shape.insert(whole.shape.begin(), leading.begin(), leading.end());
    out.push_back(std::move(whole));
  }
}

void check_output_name(const std::string& option, const std::string& path) {
  if (!ends_with(path, ".safetensors") && !ends_with(path, ".npy")) {
    throw InputError(fmt::format("{} {}: expected a name ending in .safetensors or .npy", option,
                                 printable(path)));
  }
}

std::vector<std::string> input_paths(const std::vector<Head>& heads,
                                     std::vector<std::string> others) {
  std::set<std::string> paths(others.begin(), others.end());
  for (const Head& head : heads) {
    for (const auto& file : head.files) {
      if (file == nullptr) continue;
      paths.insert(file->path());
      paths.insert(file->sidecar_path());
    }
  }
  return {paths.begin(), paths.end()};
}

void require_no_input(const std::string& option, const std::string& path,
                      const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    std::error_code error;  // what does not exist is not the same file
    if (!std::filesystem::equivalent(path, input, error) || error) continue;
    throw InputError(fmt::format("{} {}: is the input {}, expected another file", option,
                                 printable(path), printable(input)));
  }
}

}  // namespace headroom::cli
