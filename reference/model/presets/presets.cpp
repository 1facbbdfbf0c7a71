#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "reference/input_error.h"
#include "reference/model/kernel_file.h"
#include "reference/model/presets/families.h"

namespace headroom {
namespace {

/// What a preset's name may end in: one reading of subnormal numbers for every stage.
constexpr std::string_view flushed = ":ftz", gradual = ":gradual";

/// The preset's kernel where every stage flushes subnormal results, or none does. As a kernel file
/// that says so: what is known of a stage that changes is dropped, and the reading is assumed.
KernelModel with_reading(const std::string& name, bool flushes) {
  const std::string base = name.substr(0, name.rfind(':'));
  const KernelModel m = preset(base);
  std::string text = fmt::format("name = \"{}\"\nmachine = \"{}\"\n", name, base);
  const auto section = [&](const char* title) { text += fmt::format("[{}]\n", title); };
  const auto key = [&](const char* title, bool value) {
    text += fmt::format("{} = {}\n", title, value);
  };
  section("exp2");
  if (!flushes && m.exp2.name == "ex2.approx.ftz") {  // ex2.approx without .ftz
    text += fmt::format("unit = \"{}\"\nmonotone_at_integers = {}\n",
                        ulp_unit_name(m.exp2.max_error_ulps), m.exp2.monotone_at_integers);
  }
  key("flush_to_zero", flushes);
  section("p");
  key("flush_to_zero", flushes);
  const auto sum = [&](const char* title, const Accumulator& accumulator) {
    section(title);
    key("flush_to_zero", flushes);
    if (!flushes && accumulator.denormals_are_zero) key("denormals_are_zero", false);
  };
  sum("score", m.score.accumulator);
  sum("denominator", m.denominator);
  sum("numerator", m.numerator);
  section("normalise");
  key("reciprocal_flush_to_zero", flushes);
  return parse_kernel(text, name);
}

}  // namespace

std::vector<std::string> preset_names() {
  return {"tpu7x",     "tpu-v6e", "ampere",          "ada",       "hopper",
          "blackwell", "cdna3",   "cpu-avx512-bf16", "ieee-fp32", "fp16-everywhere"};
}

bool is_preset(const std::string& name) {
  const std::vector<std::string> names = preset_names();
  const auto known = [&](std::string_view base) {
    return std::find(names.begin(), names.end(), base) != names.end();
  };
  const auto reads = [&](std::string_view reading) {
    return name.ends_with(reading) &&
           known(std::string_view(name).substr(0, name.size() - reading.size()));
  };
  return known(name) || reads(flushed) || reads(gradual);
}

KernelModel preset(const std::string& name) {
  // accuracy.md gives tpu7x and tpu-v6e the same bounds for exp2 (90) and reciprocal (1.5)
  if (name == "tpu7x" || name == "tpu-v6e") return maxdiffusion_like(name);
  if (name == "ampere") return ampere();
  if (name == "ada") return ada();
  if (name == "hopper") return hopper();
  if (name == "blackwell") return blackwell();
  if (name == "cdna3") return cdna3();
  if (name == "cpu-avx512-bf16") return cpu_avx512_bf16();
  if (name == "ieee-fp32") return ieee_fp32();
  if (name == "fp16-everywhere") return fp16_everywhere();
  if (is_preset(name)) return with_reading(name, name.ends_with(flushed));
  std::string names;
  for (const std::string& n : preset_names()) names += (names.empty() ? "" : ", ") + n;
  throw InputError(fmt::format("kernel: found \"{}\", expected one of {}", name, names));
}

}  // namespace headroom
