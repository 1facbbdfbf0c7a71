// --set name=value: numbers that a rule leaves open.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace headroom::cli {

/// Each name once; the value is an exact number ("2^-10", "1/3"), rounded to the nearest double, or
/// inf or -inf. Throws InputError.
std::map<std::string, double> settings_of(const std::vector<std::string>& settings);

}  // namespace headroom::cli
