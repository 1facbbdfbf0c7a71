#include "reference/stabilizer/loop/loop.h"

#include <cmath>

#include <fmt/format.h>

#include "reference/input_error.h"
#include "reference/stabilizer/loop/families.h"
#include "reference/stabilizer/plugin/plugin.h"

namespace headroom {
namespace {

using Entries = const std::vector<LoopEntry>& (*)();
constexpr Entries families[] = {online_entries,       fixed_entries, block_key_entries,
                                range_tested_entries, lazy_entries,  constant_entries,
                                later_online_entries};

const LoopEntry& find_entry(const std::string& name) {
  std::string names;
  for (const Entries entries : families) {
    for (const LoopEntry& entry : entries()) {
      if (entry.name == name) return entry;
      names += (names.empty() ? "" : ", ") + std::string(entry.name);
    }
  }
  throw InputError(fmt::format("stabilizer: found \"{}\", expected one of {}", name, names));
}

const LoopEntry::Parameter& find_parameter(const LoopEntry& entry, const std::string& key) {
  std::string keys;
  for (const LoopEntry::Parameter& parameter : entry.parameters) {
    if (parameter.name == key) return parameter;
    keys += (keys.empty() ? "" : ", ") + std::string(parameter.name);
  }
  throw InputError(fmt::format("stabilizer {}: found parameter \"{}\", expected {}", entry.name,
                               key, keys.empty() ? "none" : "one of " + keys));
}

void check_kind(const LoopEntry& entry, const LoopEntry::Parameter& parameter, double value) {
  const char* expected = nullptr;
  switch (parameter.kind) {
    case LoopEntry::Kind::number:
      if (std::isnan(value) && !std::isnan(parameter.value)) expected = "a number";
      break;
    case LoopEntry::Kind::count:
      if (!(value >= 0 && value <= 0x1p53 && value == std::floor(value))) {
        expected = "an integer of at least 0";
      }
      break;
    case LoopEntry::Kind::choice:
      if (value != 0 && value != 1) expected = "0 or 1";
      break;
  }
  if (expected != nullptr) {
    throw InputError(fmt::format("stabilizer {}: {}: found {}, expected {}", entry.name,
                                 parameter.name, value, expected));
  }
}

}  // namespace

const std::vector<LoopDescription>& loop_stabilizers() {
  static const std::vector<LoopDescription> all = [] {
    std::vector<LoopDescription> list;
    for (const Entries entries : families) {
      for (const LoopEntry& entry : entries()) {
        LoopDescription& description = list.emplace_back();
        description.name = entry.name;
        description.summary = entry.summary;
        for (const LoopEntry::Parameter& parameter : entry.parameters) {
          description.parameters.emplace(parameter.name, parameter.value);
        }
      }
    }
    return list;
  }();
  return all;
}

std::unique_ptr<LoopStabilizer> make_loop_stabilizer(const std::string& name,
                                                     const LoopParameters& parameters) {
  if (name.starts_with(plugin_prefix)) return make_plugin_loop(name, parameters);
  const LoopEntry& entry = find_entry(name);
  LoopParameters complete;
  for (const LoopEntry::Parameter& parameter : entry.parameters) {
    complete.emplace(parameter.name, parameter.value);
  }
  for (const auto& [key, value] : parameters) {
    check_kind(entry, find_parameter(entry, key), value);
    complete[key] = value;
  }
  return entry.make(entry.name, complete);
}

}  // namespace headroom
