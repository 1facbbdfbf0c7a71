// The generators, by what they are built from. Each writes all of Q, K and V.
#pragma once

#include "fuzz/generate/pieces.h"

namespace headroom::fuzz::generate {

// levels.cpp: scores that are chosen
void two_level(Random& random, const Landmarks& marks, Candidate& c);
void multi_level(Random& random, const Landmarks& marks, Candidate& c);
void far_rows(Random& random, const Landmarks& marks, Candidate& c);
void creeping_maximum(Random& random, const Landmarks& marks, Candidate& c);
void opposed_rows(Random& random, const Landmarks& marks, Candidate& c);
void hot_and_tails(Random& random, const Landmarks& marks, Candidate& c);
void duplicate_maxima(Random& random, const Landmarks& marks, Candidate& c);
void sink_key(Random& random, const Landmarks& marks, Candidate& c);
void causal_prefix(Random& random, const Landmarks& marks, Candidate& c);
void flush_edge(Random& random, const Landmarks& marks, Candidate& c);
void uneven_parts(Random& random, const Landmarks& marks, Candidate& c);

// geometry.cpp: how queries lie to keys
void constant(Random& random, const Landmarks& marks, Candidate& c);
void equal_keys(Random& random, const Landmarks& marks, Candidate& c);
void narrow_grid(Random& random, const Landmarks& marks, Candidate& c);
void orthogonal(Random& random, const Landmarks& marks, Candidate& c);
void aligned(Random& random, const Landmarks& marks, Candidate& c);
void anti_aligned(Random& random, const Landmarks& marks, Candidate& c);
void block_extremes(Random& random, const Landmarks& marks, Candidate& c);
void hidden_key(Random& random, const Landmarks& marks, Candidate& c);
void swallowed_terms(Random& random, const Landmarks& marks, Candidate& c);

// numbers.cpp: where numbers lie in their formats, and heads like real ones
void extreme_values(Random& random, const Landmarks& marks, Candidate& c);
void tiny(Random& random, const Landmarks& marks, Candidate& c);
void huge(Random& random, const Landmarks& marks, Candidate& c);
void store_edge(Random& random, const Landmarks& marks, Candidate& c);
void fused_residual(Random& random, const Landmarks& marks, Candidate& c);
void small_integers(Random& random, const Landmarks& marks, Candidate& c);
void outlier_channels(Random& random, const Landmarks& marks, Candidate& c);
void rope(Random& random, const Landmarks& marks, Candidate& c);
void rms_normed(Random& random, const Landmarks& marks, Candidate& c);
void loud_padding(Random& random, const Landmarks& marks, Candidate& c);
void gaussian(Random& random, const Landmarks& marks, Candidate& c);
void uniform_bits(Random& random, const Landmarks& marks, Candidate& c);

}  // namespace headroom::fuzz::generate
