// --set name=value: numbers that a rule leaves open.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace headroom::cli {

/// Each name once; the value is an exact number ("2^-10", "1/3"), rounded to the nearest double, or
/// inf or -inf. Throws InputError.
std::map<std::string, double> settings_of(const std::vector<std::string>& settings);

/// Throws InputError if settings are given and a file that does not exist looks like one more: the
/// second of `--set a=1 b=2` is taken for a file.
void refuse_settings_as_files(const std::vector<std::string>& settings,
                              const std::vector<std::string>& files);

}  // namespace headroom::cli
