#include "certify/claim.h"

#include <cmath>
#include <limits>

namespace headroom {
namespace {

/// Claims of how much is lost rather than whether anything is undefined.
bool of_accuracy(const Claim& claim) {
  return claim.id == "mass.lost" || claim.id == "product.flush" || claim.id == "mask.mass" ||
         claim.id == "output.error" || claim.id == "gate.conservative";
}

}  // namespace

ClaimOutcome conjunction(const std::vector<Claim>& claims, bool with_accuracy) {
  ClaimOutcome all = ClaimOutcome::holds;
  for (const Claim& claim : claims) {
    if (!claim.required || (of_accuracy(claim) && !with_accuracy)) continue;
    if (claim.outcome() == ClaimOutcome::fails) return ClaimOutcome::fails;
    if (claim.outcome() == ClaimOutcome::unknown) all = ClaimOutcome::unknown;
  }
  return all;
}

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
  const UpwardRounding rounding;  // margins are rounded down, whoever asks
  const bool upper = kind == LimitKind::at_most;
  Interval end(upper ? value.hi() : value.lo());
  Interval bound(limit);
  if (unit != ClaimUnit::log2) {  // the logarithm of what is not positive is -infinity
    const auto logarithm = [](const Interval& x) {
      return x.lo() > 0 ? log2(x) : Interval(-infinity, -infinity);
    };
    end = logarithm(end);
    bound = logarithm(bound);
  }
  // equal infinities: no room at all
  if (std::isinf(end.lo()) && end.lo() == end.hi() && bound.lo() == end.lo() &&
      bound.hi() == end.hi()) {
    return 0;
  }
  return (upper ? bound - end : end - bound).lo();
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
