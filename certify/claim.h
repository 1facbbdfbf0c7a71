// Claims and verdicts: what the certifier says, with values, limits, margins and reasons.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reference/real/interval.h"

namespace headroom {

/// How a claim is supported. `proved` needs the Coq theory's check in this build and is not given
/// by the certifier alone.
enum class ClaimStatus : std::uint8_t { proved, enclosed, assumed };

/// Does the enclosed value respect the limit?
enum class ClaimOutcome : std::uint8_t {
  holds,    ///< the whole enclosure does
  fails,    ///< the whole enclosure lies beyond the limit
  unknown,  ///< the enclosure straddles it
};

/// Which side of the limit is safe.
enum class LimitKind : std::uint8_t { at_most, at_least, none };

/// What a value is measured in.
enum class ClaimUnit : std::uint8_t {
  log2,      ///< log2 units: a margin is a difference
  relative,  ///< a ratio: a margin is log2 of a quotient
  absolute,  ///< the tensor's own unit: a margin is log2 of a quotient
};

/// One named inequality about one head under one kernel and policy (DESIGN.md, "Claims").
struct Claim {
  std::string id;
  ClaimUnit unit = ClaimUnit::log2;
  LimitKind kind = LimitKind::none;
  /// Encloses the quantity; for the worst row, or over all rows.
  Interval value{0.0};
  double limit = 0;
  /// Row and key that bind the claim, -1 where there is none.
  std::int64_t row = -1, key = -1;
  ClaimStatus status = ClaimStatus::enclosed;
  /// Required claims decide the verdict; the others are reported.
  bool required = true;
  /// The operands that the exact value is over: "multiplied" or "raw".
  std::string_view reference = "multiplied";
  std::string note;

  ClaimOutcome outcome() const;
  /// Bits between the value's unfavourable end and the limit, rounded down; negative if beyond.
  /// +inf without a limit. Any rounding mode may be active.
  double margin_bits() const;
};

/// All of the required claims hold, one fails, or neither is known. `with_accuracy`: those of how
/// much is lost count too, not only those of whether anything is undefined.
ClaimOutcome conjunction(const std::vector<Claim>& claims, bool with_accuracy);

enum class Verdict : std::uint8_t { certified, fallback, undecided, refuted };

std::string_view to_text(ClaimStatus status);
std::string_view to_text(ClaimOutcome outcome);
std::string_view to_text(ClaimUnit unit);
std::string_view to_text(LimitKind kind);
std::string_view to_text(Verdict verdict);

}  // namespace headroom
