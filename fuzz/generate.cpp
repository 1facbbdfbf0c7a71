#include "fuzz/generate.h"

#include "fuzz/generate/families.h"

namespace headroom::fuzz {

const std::vector<Generator>& generators() {
  using namespace generate;  // NOLINT(google-build-using-namespace): the list itself
  static const std::vector<Generator> all = {
      {"constant", "one number everywhere, such as 133120", constant},
      {"equal-keys", "every key the same: the gate is 0 and every key counts", equal_keys},
      {"narrow-grid", "keys on neighbouring numbers far from 0, whose mean is rounded away",
       narrow_grid},
      {"orthogonal", "queries that no key has a part of, as long as the gate lets them",
       orthogonal},
      {"aligned", "queries along keys or their mean", aligned},
      {"anti-aligned", "queries against keys or their mean", anti_aligned},
      {"two-level", "two levels of scores about the mean, one just flushed behind the gate",
       two_level},
      {"multi-level", "a few levels of scores and a gate's value", multi_level},
      {"far-rows", "rows at -120, -5e4, -524288 and this kernel's own marks", far_rows},
      {"creeping-maximum", "a maximum that rises just under and over the threshold, tile by tile",
       creeping_maximum},
      {"opposed-rows", "rows of one block of which one falls far where another rises",
       opposed_rows},
      {"hot-and-tails", "one hot key and a tail that counts only together", hot_and_tails},
      {"duplicate-maxima", "several keys that hold the maximum", duplicate_maxima},
      {"sink-key", "a key that takes all of the mass", sink_key},
      {"causal-prefix", "first keys against every query, though the mean is 0", causal_prefix},
      {"flush-edge", "weights on both sides of every threshold", flush_edge},
      {"uneven-parts", "parts of keys whose sums differ by more than a format's range",
       uneven_parts},
      {"block-extremes", "tiles whose extremes come from different keys", block_extremes},
      {"hidden-key", "a key along the query among larger elements that point away", hidden_key},
      {"swallowed-terms", "scores whose small terms the accumulator swallows or rounds up",
       swallowed_terms},
      {"extreme-values", "V at the ends of its format, at the brink of sums, or below 1",
       extreme_values},
      {"tiny", "subnormals and zeros of both signs", tiny},
      {"huge", "products and sums that leave FP32 or cancel there", huge},
      {"store-edge", "raw scores at the ends of the formats that hold them", store_edge},
      {"fused-residual", "scores whose rounding is an exponent of its own", fused_residual},
      {"small-integers", "few small integers: ties, and exact sums", small_integers},
      {"outlier-channels", "channels of keys that are many times the others", outlier_channels},
      {"rope", "rows that turn with their position, slow channels with a constant part", rope},
      {"rms-normed", "rows of equal length with gains a channel, outliers and a sink", rms_normed},
      {"loud-padding", "numbers that would count where no row sees them", loud_padding},
      {"gaussian", "normal numbers", gaussian},
      {"uniform-bits", "every finite code alike", uniform_bits},
  };
  return all;
}

}  // namespace headroom::fuzz
