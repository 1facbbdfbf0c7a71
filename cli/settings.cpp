#include "cli/settings.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <system_error>

#include <fmt/format.h>

#include "cli/table.h"
#include "reference/head/scale.h"
#include "reference/input_error.h"
#include "reference/real/interval.h"

namespace headroom::cli {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double nearest_double(const Rational& value) {
  const UpwardRounding up;
  const Interval x = enclose(value);
  if (x.is_point() || !x.is_finite()) return x.lo();
  return value * 2 <= Rational(x.lo()) + Rational(x.hi()) ? x.lo() : x.hi();
}

}  // namespace

std::map<std::string, double> settings_of(const std::vector<std::string>& settings) {
  std::map<std::string, double> parameters;
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    const auto refuse = [&] {
      throw InputError(
          fmt::format("--set: found '{}', expected name=value with a number", printable(setting)));
    };
    if (equals == std::string::npos || equals == 0) refuse();
    const std::string text = setting.substr(equals + 1);
    double value = text == "-inf" ? -infinity : infinity;
    try {
      if (text != "-inf" && text != "inf") value = nearest_double(parse_exact_number(text));
    } catch (const std::invalid_argument&) {
      refuse();
    }
    if (!parameters.emplace(setting.substr(0, equals), value).second) {
      throw InputError(fmt::format("--set: {} is set twice", printable(setting.substr(0, equals))));
    }
  }
  return parameters;
}

void refuse_settings_as_files(const std::vector<std::string>& settings,
                              const std::vector<std::string>& files) {
  if (settings.empty()) return;
  for (const std::string& file : files) {
    const std::size_t name = file.find_first_not_of("abcdefghijklmnopqrstuvwxyz_");
    if (name == 0 || name == std::string::npos || file[name] != '=') continue;
    std::error_code error;
    if (std::filesystem::exists(file, error)) continue;
    throw InputError(
        fmt::format("found '{0}' among the files, expected --set {0}: --set takes one name=value "
                    "and is repeated",
                    printable(file)));
  }
}

}  // namespace headroom::cli
