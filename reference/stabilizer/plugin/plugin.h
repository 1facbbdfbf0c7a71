// Stabilizers from shared libraries: headroom_stabilizer.h made into LoopStabilizer.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "reference/input_error.h"
#include "reference/stabilizer/loop/loop.h"

namespace headroom {

/// "plugin:" NAME: what loaded stabilizers are called.
inline constexpr std::string_view plugin_prefix = "plugin:";

/// A plug-in that did not keep its side of the interface.
class StabilizerFault : public InputError {
 public:
  StabilizerFault(std::string stage, std::string event, const std::string& what)
      : InputError(what), stage_(std::move(stage)), event_(std::move(event)) {}
  /// "init", "gate", "before-loop", "order", "tile" or "finish".
  const std::string& stage() const { return stage_; }
  /// "out-of-bounds", "refused" (init), "no-answer" or "environment".
  const std::string& event() const { return event_; }

 private:
  std::string stage_, event_;
};

/// What is known of a plug-in without calling it.
struct PluginDescription {
  LoopDescription loop;  ///< its name with the prefix
  std::string fallback;
  bool has_gate = false, starts_at_sink = false;
  std::string path, sha256;
};

/// Loads a library and keeps it for good; the same file twice is one. Throws InputError that names
/// the path: no such file, no entry, another ABI, names or parameters that are none, a built-in
/// fallback that does not exist, the name of another plug-in; or a library that changes the
/// floating-point environment.
const PluginDescription& load_plugin(const std::string& path);

/// Throws InputError: not known, or a parameter that it does not have.
const PluginDescription& find_plugin(const std::string& name);
/// The parameters complete, in the plug-in's order. Throws InputError.
LoopParameters plugin_parameters(const std::string& name, const LoopParameters& given);

/// Throws InputError as plugin_parameters(). What the stabilizer does wrong is thrown by its
/// members as StabilizerFault.
std::unique_ptr<LoopStabilizer> make_plugin_loop(const std::string& name,
                                                 const LoopParameters& parameters);

}  // namespace headroom
