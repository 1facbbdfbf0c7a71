// What `certify --bounds` shows: bounds of the scores and their slack.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "certify/certify.h"

namespace headroom::cli {

/// The tables, one line a head: slack of each bound ("median/largest", bits, rounded upward), and
/// the radii behind them. Heads without rows that see a key have dashes.
std::string bounds_tables(const std::vector<HeadReport>& reports, bool colour);

/// `maxima` of --json (certify/certificate_v1.md): every evaluated row with its bounds.
nlohmann::ordered_json row_maxima_json(const BoundsReport& bounds);

}  // namespace headroom::cli
