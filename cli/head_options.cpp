#include "cli/head_options.h"

#include <fmt/format.h>

#include "cli/table.h"
#include "reference/input_error.h"

namespace headroom::cli {

void add_head_options(CLI::App& command, HeadOptions& options) {
  LoadOptions& load = options.load;
  command
      .add_option("--heads", load.heads, "Heads by prefix pattern and list, e.g. 'layer3.*:0-7'")
      ->capture_default_str();
  command.add_option("--q", load.q, "Final part of Q's tensor names")->capture_default_str();
  command.add_option("--k", load.k, "Final part of K's tensor names")->capture_default_str();
  command.add_option("--v", load.v, "Final part of V's tensor names")->capture_default_str();
  CLI::Option* scale = command.add_option(
      "--scale", load.scale,
      "Softmax scale: a number, hex float, fraction or 1/sqrt(d) (default: metadata, else "
      "1/sqrt(d))");
  command
      .add_option("--scale-log2", load.scale_log2,
                  "Exact factor c of z = c<q,k> for tensors that already hold log2(e)")
      ->excludes(scale);
  command.add_option("--mask", load.mask,
                     "none, causal, causal-top-left or causal-bottom-right (default: metadata, "
                     "else none)");
  command.add_option("--layout", load.layout, "Layout of 4-D tensors: bhnd or bnhd");
  command.add_option(
      "--lengths", load.lengths,
      "Visible keys, the rest being padding: one number, or one a batch entry (512,300)");
  command.add_option("--cast", options.cast,
                     "rne: round stored tensors to the kernel's operand format");
  command.add_option("--npy-v2", options.npy_v2,
                     "bf16: what numpy saved as V2, words of two bytes and no type, is bfloat16");
}

LoadOptions load_options(const HeadOptions& options, const std::optional<Format>& operand) {
  LoadOptions load = options.load;
  load.operand = operand;
  if (!options.cast.empty() && options.cast != "rne") {
    throw InputError(fmt::format("--cast: found '{}', expected rne", printable(options.cast)));
  }
  load.cast = !options.cast.empty();
  if (!options.npy_v2.empty() && options.npy_v2 != "bf16") {
    throw InputError(fmt::format("--npy-v2: found '{}', expected bf16", printable(options.npy_v2)));
  }
  load.open.v2_is_bf16 = !options.npy_v2.empty();
  return load;
}

std::string scale_text(const Scale& scale) {
  constexpr std::size_t longest = 60;
  const std::string exact = scale.text();
  if (exact.size() > longest) return exact.substr(0, longest) + "...";
  if (scale.is_irrational()) return exact;
  boost::multiprecision::cpp_int ten_to_places = 1;
  for (int places = 0; places <= 20; ++places, ten_to_places *= 10) {
    const Rational shifted = scale.rational() * ten_to_places;
    if (denominator(shifted) != 1) continue;
    std::string digits = boost::multiprecision::cpp_int(abs(numerator(shifted))).str();
    const auto width = static_cast<std::size_t>(places);
    if (digits.size() <= width) digits.insert(0, width + 1 - digits.size(), '0');
    if (places > 0) digits.insert(digits.size() - width, ".");
    return (scale.is_base2() ? "log2:" : "") + std::string(scale.rational() < 0 ? "-" : "") +
           digits;
  }
  return scale.text();
}

}  // namespace headroom::cli
