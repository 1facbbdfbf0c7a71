// Synthetic heads of a video diffusion transformer, seeded: see docs/validity.md for what they are
// made of and why.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reference/head/head.h"

namespace headroom::bench {

/// Latent frames of height x width tokens; token t is (t / (height width), t / width % height,
/// t % width).
struct VideoShape {
  std::int64_t frames = 1, height = 1, width = 1;
  std::int64_t tokens() const { return frames * height * width; }
};

/// Which channel pairs the component that all keys share lives in.
enum class CommonBand : std::uint8_t {
  slow,  ///< those that turn by little over the video: the mean key keeps it
  all,   ///< all: after rotation it favours near tokens, and the mean key loses most of it
};

/// One head's character. Before RMS norm a key is common u + frame f(t) + site g(t) + rest noise,
/// its shares being of the energy, and a query the same with its own shares; `aligned` is signed.
/// A query's `partner` share copies the noise of one other token's key.
struct HeadCharacter {
  std::string_view name;
  CommonBand band = CommonBand::slow;
  double key_common = 0, key_frame = 0, key_site = 0;
  double query_common = 0, query_frame = 0, query_site = 0, query_partner = 0;
  double gain = 1;   ///< root mean square over channels of (gain of q) (gain of k)
  int outliers = 0;  ///< channels of slow pairs whose gains are `outlier_factor` larger
  double outlier_factor = 1;
  int sinks = 0;  ///< the first keys are `sink_factor` u alone
  double sink_factor = 1;
};

/// The heads of every workload.
const std::vector<HeadCharacter>& head_characters();

/// Q, K, V of one head, BF16, d = 128, scale 1/sqrt(128), no mask. V is unit normal. Parallel over
/// tokens on the enclosing TBB arena; the result depends on the arguments alone. Requires:
/// NearestRounding is active.
Head make_video_head(const VideoShape& shape, const HeadCharacter& character, std::uint64_t seed);

}  // namespace headroom::bench
