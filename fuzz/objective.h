// What the fuzzer looks for.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace headroom::fuzz {

/// Each is a statement about one execution of one head, decided exactly
/// by `diagnose`; operands are finite where a row sees them, but for `swallowed_nan`.
/// "Exact": over the operands as the kernel multiplies them. Rows that see no key
/// are not looked at, nor errors below the output format's smallest normal number, nor, behind a
/// gate, heads that it refuses (but by the two about gates).
enum class Objective : std::uint8_t {
  non_finite,  ///< an output or an LSE is NaN or infinite, where the exact one rounds to a number
  zero_row,    ///< all outputs of a row are 0, and one should be larger than any rounding explains
  inaccurate,  ///< an output is off by more than the tolerance times the largest visible |v|
  lost_mass,   ///< keys whose stored weights are 0 have more than eps of a row's exact mass
  saturation,  ///< a weight was clipped to the largest number of P's format
  absorption,  ///< an accumulator lost more than the tolerance of a row to terms it swallowed
  wrong_lse,   ///< LSE is off by more than the tolerance (natural units) and its own rounding
  partition,   ///< the same row, with its keys split into parts, differs by more than tolerance
  tiling,      ///< the same with another number of keys a tile
  padding,     ///< numbers of keys that no row sees change an output
  backward,    ///< a weight that a backward pass recomputes from LSE is NaN or infinite
  gate_underestimate,  ///< the kernel's gate accepts, and in exact arithmetic it would refuse
  needless_fallback,   ///< the gate refuses a head that its fixed path computes accurately
  swallowed_nan,       ///< outputs of a row whose query or visible key holds NaN are numbers
  claim,               ///< behind a certificate only: an execution contradicts one of its claims
};
inline constexpr std::size_t objective_count = 15;

/// "non-finite", "zero-row", ...
std::string_view to_text(Objective objective);
/// Inverse of to_text. Throws InputError that lists the names.
Objective parse_objective(const std::string& text);
/// One line for --help and the documents.
std::string_view summary(Objective objective);
std::array<Objective, objective_count> all_objectives();

}  // namespace headroom::fuzz
