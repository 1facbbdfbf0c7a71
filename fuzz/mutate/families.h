// The mutators, by what they change.
#pragma once

#include <array>

#include "fuzz/generate/pieces.h"
#include "fuzz/mutate.h"

namespace headroom::fuzz::change {

using Change = void(Random& random, const Landmarks& marks, const SearchSpace& space,
                    const Candidate& other, Candidate& c);

// elements.cpp: one number, or one row or channel of them
Change flip_bit, nudge, scale_element, special_element, negate, copy_element, scale_row, zero_row,
    power_row, scale_channel, trade_channel, zero_channel, shift_channel;
// structure.cpp: keys, queries and values as wholes
Change copy_key, swap_keys, copy_query, rotate_keys, swap_tiles, cluster_keys, value_row,
    scale_values, fill_all_values, cross_rows, cross_matrix, refill, refill_part;
// targets.cpp: solved on the equations
Change align_query, orthogonal_query, aim_score, aim_row, aim_gate, aim_levels, shift_tile;
// settings.cpp
Change new_setting, nudge_setting, poison, resize;

}  // namespace headroom::fuzz::change
