#include "certify/claim.h"

#include <cmath>
#include <limits>

namespace headroom {

ClaimOutcome Claim::outcome() const {
  switch (kind) {
    case LimitKind::none:
      return ClaimOutcome::holds;
    case LimitKind::at_most:
      if (value.hi() <= limit) return ClaimOutcome::holds;
      return value.lo() > limit ? ClaimOutcome::fails : ClaimOutcome::unknown;
    case LimitKind::at_least:
      if (value.lo() >= limit) return ClaimOutcome::holds;
      return value.hi() < limit ? ClaimOutcome::fails : ClaimOutcome::unknown;
  }
  return ClaimOutcome::unknown;
}

double Claim::margin_bits() const {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (kind == LimitKind::none) return infinity;
  const bool upper = kind == LimitKind::at_most;
  const double end = upper ? value.hi() : value.lo();
  if (unit == ClaimUnit::log2) {
    // equal infinities: no room at all
    if (std::isinf(end) && end == limit) return 0;
    return upper ? limit - end : end - limit;
  }
  // A report, not a bound: the outcome is decided on the enclosure itself. A logarithm of 0 is
  // -infinity; two of them leave no room at all.
  if (!(end > 0) || !(limit > 0)) {
    if (!(end > 0) && !(limit > 0)) return 0;
    return upper == !(end > 0) ? infinity : -infinity;
  }
  const UpwardRounding rounding;
  const Interval quotient = upper ? log2(Interval(limit)) - log2(Interval(end))
                                  : log2(Interval(end)) - log2(Interval(limit));
  return quotient.lo();
}

std::string_view to_text(ClaimStatus status) {
  switch (status) {
    case ClaimStatus::proved:
      return "proved";
    case ClaimStatus::enclosed:
      return "enclosed";
    case ClaimStatus::assumed:
      return "assumed";
  }
  return "";
}

std::string_view to_text(ClaimOutcome outcome) {
  switch (outcome) {
    case ClaimOutcome::holds:
      return "holds";
    case ClaimOutcome::fails:
      return "fails";
    case ClaimOutcome::unknown:
      return "unknown";
  }
  return "";
}

std::string_view to_text(ClaimUnit unit) {
  switch (unit) {
    case ClaimUnit::log2:
      return "log2";
    case ClaimUnit::relative:
      return "relative";
    case ClaimUnit::absolute:
      return "absolute";
  }
  return "";
}

std::string_view to_text(LimitKind kind) {
  switch (kind) {
    case LimitKind::at_most:
      return "at-most";
    case LimitKind::at_least:
      return "at-least";
    case LimitKind::none:
      return "none";
  }
  return "";
}

std::string_view to_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::certified:
      return "certified";
    case Verdict::fallback:
      return "fallback";
    case Verdict::undecided:
      return "undecided";
    case Verdict::refuted:
      return "refuted";
  }
  return "";
}

}  // namespace headroom
