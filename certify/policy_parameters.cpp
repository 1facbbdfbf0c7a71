#include "certify/policy_parameters.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "bounds/stabilizer.h"
#include "certify/policy.h"
#include "reference/format/convert.h"
#include "reference/input_error.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

PolicyParameters defaults_of(Policy policy, const KernelModel& kernel) {
  const bool fp8 = kernel.p.format.bits() <= 8;
  switch (policy) {
    case Policy::fdpp:
      return {{"phi", 0}, {"a", -60}, {"b", 60}};
    case Policy::fa4:
      return {{"threshold", fp8 ? 0 : 8}, {"offset", fp8 ? 8 : 0}, {"wave", 1}, {"running_max", 1}};
    case Policy::online:
      return {{"initial_max", -infinity}, {"guard", 1}};
    default:
      return {};
  }
}

void require(bool holds, Policy policy, const std::string& name, double found,
             const std::string& expected) {
  if (holds) return;
  throw InputError(
      fmt::format("policy {}: {}: found {}, expected {}", to_text(policy), name, found, expected));
}

void check(Policy policy, const std::string& name, double x) {
  if (name == "wave") {
    require(x >= 0 && x <= 0x1p53 && x == std::floor(x), policy, name, x,
            "an integer of at least 0");
  } else if (name == "initial_max") {
    require(x <= fp32.max_finite(), policy, name, x, "a finite number or -inf");
  } else if (name == "running_max" || name == "guard") {
    require(x == 0 || x == 1, policy, name, x, "0 or 1");
  } else if (name == "threshold") {
    require(x >= 0 && x <= fp32.max_finite(), policy, name, x, "a number of at least 0");
  } else if (name == "phi" || name == "offset") {
    require(std::fabs(x) <= fp32.max_finite(), policy, name, x, "a finite number");
  } else {
    require(!std::isnan(x), policy, name, x, "a number");
  }
}

}  // namespace

PolicyParameters complete_parameters(Policy policy, const KernelModel& kernel,
                                     const PolicyParameters& given) {
  PolicyParameters complete = defaults_of(policy, kernel);
  std::string names;
  for (const auto& [name, value] : complete) names += (names.empty() ? "" : ", ") + name;
  for (const auto& [name, value] : given) {
    const auto known = complete.find(name);
    if (known == complete.end()) {
      throw InputError(fmt::format("policy {}: found parameter \"{}\", expected {}",
                                   to_text(policy), name,
                                   names.empty() ? "none" : "one of " + names));
    }
    check(policy, name, value);
    known->second = value;
  }
  if (policy == Policy::fdpp) {
    require(complete.at("a") < complete.at("b"), policy, "a", complete.at("a"),
            fmt::format("less than b = {}", complete.at("b")));
  }
  return complete;
}

LazyRescale lazy_rescale(const PolicyParameters& complete) {
  // the kernel compares with FP32 numbers
  return {.threshold = round_to(fp32, complete.at("threshold")),
          .offset = round_to(fp32, complete.at("offset")),
          .wave = static_cast<std::int64_t>(complete.at("wave")),
          .running_max = complete.at("running_max") != 0};
}

RangeTest range_test(const KernelModel& kernel, const PolicyParameters& complete) {
  const UpwardRounding up;
  const auto stored = [&](const char* name) {
    const double x = complete.at(name);
    if (std::isinf(x)) return x > 0 ? Interval(infinity) : Interval(-infinity);
    return rounded(up, kernel.exponent.format, Interval(x) * log2_e(), false);
  };
  return {stored("phi"), stored("a"), stored("b")};
}

}  // namespace headroom
