// Where tests find the shared cases and heads, which are not part of the repository.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace headroom::tests {

/// Exit status by which a test program tells Meson that it was skipped.
inline constexpr int skipped = 77;

/// The folder named by HEADROOM_SHARED, else `../shared` beside the checkout
/// (HEADROOM_SOURCE_ROOT, set by Meson). Ends the process as skipped, saying so, if it is absent.
inline std::filesystem::path shared_data_or_skip() {
  namespace fs = std::filesystem;
  const char* named = std::getenv("HEADROOM_SHARED");
  const char* checkout = std::getenv("HEADROOM_SOURCE_ROOT");
  fs::path folder;
  if (named != nullptr && *named != '\0') {
    folder = named;
  } else if (checkout != nullptr) {
    folder = fs::path(checkout).parent_path() / "shared";
  }
  if (folder.empty() || !fs::is_directory(folder)) {
    std::printf("skipped: no shared data (%s); set HEADROOM_SHARED to the folder that holds it\n",
                folder.empty() ? "HEADROOM_SHARED is unset" : folder.c_str());
    std::exit(skipped);
  }
  return folder;
}

}  // namespace headroom::tests
