// The built-in stabilizers by family, for the registry (loop.cpp).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "reference/stabilizer/loop/loop.h"

namespace headroom {

/// One stabilizer as its file lists it. `make` gets every parameter, all within their kinds.
struct LoopEntry {
  /// A parameter: a count is an integer of at least 0, a choice 0 or 1.
  enum class Kind : std::uint8_t { number, count, choice };
  struct Parameter {
    std::string_view name;
    double value;  ///< the default; NaN: what the kernel or the head says
    Kind kind = Kind::number;
  };
  std::string_view name;
  std::string_view summary;
  std::vector<Parameter> parameters;
  std::unique_ptr<LoopStabilizer> (*make)(std::string_view name, const LoopParameters& parameters);
};

const std::vector<LoopEntry>& online_entries();        // online.cpp
const std::vector<LoopEntry>& fixed_entries();         // fixed.cpp
const std::vector<LoopEntry>& block_key_entries();     // vfa.cpp
const std::vector<LoopEntry>& range_tested_entries();  // fdpp.cpp
const std::vector<LoopEntry>& lazy_entries();          // lazy.cpp
const std::vector<LoopEntry>& constant_entries();      // constant.cpp
const std::vector<LoopEntry>& later_online_entries();  // online.cpp

}  // namespace headroom
