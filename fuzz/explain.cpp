// What happened, in one paragraph of plain English.
#include <cmath>

#include <fmt/format.h>

#include "fuzz/diagnose.h"

namespace headroom::fuzz {
namespace {

/// Six digits, and the number itself in hexadecimal where six digits are not all of it.
std::string number(double x) {
  if (std::isnan(x)) return "NaN";
  if (std::isinf(x)) return x < 0 ? "-infinity" : "infinity";
  std::string digits = fmt::format("{:.6g}", x);
  return std::strtod(digits.c_str(), nullptr) == x && std::fabs(x) < 1e6
             ? digits
             : fmt::format("{} ({:a})", digits, x);
}

/// An exact value between two doubles: one of them, to six digits.
std::string exact(const Diagnosis& d) {
  if (std::isnan(d.exact_lo)) return "NaN";
  return number(d.exact_lo) + (d.exact_lo == d.exact_hi ? ", exactly" : "");
}

std::string shape_text(const Candidate& c) {
  const Shape& s = c.shape;
  std::string text = fmt::format(
      "{} {} and {} {} of {} {}", s.queries, s.queries == 1 ? "query" : "queries", s.keys,
      s.keys == 1 ? "key" : "keys", s.channels, s.channels == 1 ? "channel" : "channels");
  const Setting& g = c.setting;
  if (g.mask != MaskKind::none) text += ", " + to_text(g.mask);
  if (c.length() < s.keys) text += fmt::format(", {} of the keys padding", s.keys - c.length());
  if (g.window) text += ", a window";
  if (!g.query_segments.empty()) text += ", segments";
  if (!g.visible.empty()) text += ", a mask";
  if (!g.bias.empty()) text += ", a bias";
  if (g.softcap) text += ", a softcap";
  if (g.sink) text += ", a sink";
  return text;
}

std::string stabilizer_text(const Target& t) {
  std::string text =
      t.gate == GateChoice::certified ? fmt::format("policy {}", to_text(t.policy)) : t.stabilizer;
  std::string list;
  for (const auto& [name, value] :
       t.gate == GateChoice::certified ? t.policy_parameters : t.parameters) {
    list += fmt::format("{}{} = {}", list.empty() ? "" : ", ", name, number(value));
  }
  return list.empty() ? text : text + " (" + list + ")";
}

std::string element(const Diagnosis& d) {
  return d.channel < 0 ? "the log-sum-exp" : fmt::format("output channel {}", d.channel);
}

/// What the objective says, with its numbers.
std::string failure(const Target& t, const Diagnosis& d) {
  const std::string row = fmt::format("Row {}", d.row);
  switch (d.objective) {
    case Objective::non_finite:
      return fmt::format("{}: {} is {}, and exact attention gives {}.", row, element(d),
                         number(d.found), exact(d));
    case Objective::zero_row:
      return fmt::format("{}: all outputs are 0, and output channel {} should be {}.", row,
                         d.channel, exact(d));
    case Objective::inaccurate:
      return fmt::format("{}: {} is {}, and exact attention gives {}: off by {}, where {} is {}.",
                         row, element(d), number(d.found), exact(d), number(d.amount),
                         "the tolerance times the largest visible |v|", number(d.limit));
    case Objective::lost_mass:
      return fmt::format(
          "{}: keys whose stored weight is 0 hold a share of {} of the row's exact mass, and eps "
          "is {}.",
          row, number(d.amount), number(d.limit));
    case Objective::saturation:
      return fmt::format(
          "{}: the weight of key {} is {} and is stored as {}, the largest number "
          "of {}.",
          row, d.key, number(d.amount), number(d.found), t.kernel.p.format.name);
    case Objective::absorption:
      return fmt::format(
          "{}: the sum {} has swallowed a share of {} of what was added to it; {} is tolerated.",
          row, number(d.found), number(d.amount), number(d.limit));
    case Objective::wrong_lse:
      return fmt::format(
          "{}: the log-sum-exp is {}, and exact attention gives {}: off by {} "
          "natural units, where {} is tolerated.",
          row, number(d.found), exact(d), number(d.amount), number(d.limit));
    case Objective::partition:
    case Objective::tiling:
    case Objective::padding:
      return fmt::format("{}: {} is {}, but {} with {}; exact attention gives {}.", row, element(d),
                         number(d.found), number(d.variant_found), d.variant, exact(d));
    case Objective::backward:
      return fmt::format(
          "{}: the log-sum-exp is finite, and the weight that a backward pass recomputes from it "
          "for key {} is {}.",
          row, d.key, number(d.found));
    case Objective::gate_underestimate:
      return fmt::format(
          "The gate computes {} and accepts at most {}; in exact arithmetic the same bound is {}.",
          number(d.found), number(d.limit), number(d.exact_lo));
    case Objective::needless_fallback:
      return fmt::format(
          "The gate refuses the head, and the refused path is accurate: its "
          "largest error is {}, in row {}, where an eighth of the tolerance is {}.",
          number(d.amount), d.row, number(d.limit));
    case Objective::swallowed_nan:
      return fmt::format("{}: {} NaN, and output channel 0 is {}.", row,
                         d.key < 0 ? std::string("its query holds")
                                   : fmt::format("the visible key {} holds", d.key),
                         number(d.found));
    case Objective::claim:
      if (d.claim == "operand.finite") {
        return "The head is certified, and a number that a row may see is NaN or infinite.";
      }
      if (d.claim == "gate") {
        return "The head is certified for the path behind the gate, which the kernel's own gate "
               "refuses.";
      }
      return fmt::format(
          "{}: the head is certified, and this execution contradicts the claim {}: "
          "it finds {}, where {} is all that is allowed.",
          row, d.claim, number(d.found), number(d.limit));
  }
  return {};
}

/// The event, as a sentence.
std::string mechanism(const Diagnosis& d) {
  if (d.event.empty()) return {};
  std::string place;
  if (d.tile >= 0) place += fmt::format(", tile {}", d.tile);
  if (d.key >= 0) place += fmt::format(", key {}", d.key);
  const auto say = [&](const std::string& what) {
    return fmt::format(" It begins at the stage `{}`{}: {}.", d.stage, place, what);
  };
  if (d.event == "nan") return say("the first NaN of the row");
  if (d.event == "infinity") return say("the first infinity of the row");
  if (d.event == "flush") return say("a number that is not 0 becomes 0");
  if (d.event == "saturation") return say("a number is cut to the largest of its format");
  if (d.event == "absorption") return say("the sum no longer feels its terms");
  return {};
}

std::string gates(const Target& t, const Diagnosis& d) {
  std::string text;
  const bool refusal = d.objective == Objective::needless_fallback;
  switch (t.gate) {
    case GateChoice::none:
      text = " No gate stands before it.";
      break;
    case GateChoice::own:
      text = refusal ? " The stabilizer's own gate refuses the head"
                     : " The stabilizer's own gate lets the head through";
      if (d.gate_limit != 0) {
        text += fmt::format(": it computes {} and allows {}", number(d.gate_value),
                            number(d.gate_limit));
      }
      text += ".";
      break;
    case GateChoice::certified:
      return fmt::format(" The certifier's verdict is {}{}.", d.verdict,
                         d.claim.empty() ? "" : ", and the claim that decides is " + d.claim);
  }
  if (d.verdict.empty()) return text;
  const bool is_verdict = d.verdict == "certified" || d.verdict == "fallback" ||
                          d.verdict == "undecided" || d.verdict == "refuted";
  if (!is_verdict) return text + " The certifier says nothing: " + d.verdict + ".";
  return text + fmt::format(" The certifier's verdict on the head is {}{}.", d.verdict,
                            d.claim.empty() ? "" : ", and the claim that decides is " + d.claim);
}

}  // namespace

std::string explain(const Target& target, const Candidate& candidate, const Diagnosis& d) {
  const std::string subject = fmt::format("Kernel {} with {} on {}", target.kernel.name,
                                          stabilizer_text(target), shape_text(candidate));
  if (!d.met) {
    return fmt::format("{}: {} does not happen{}.", subject, to_text(d.objective),
                       d.verdict.empty() ? "" : " (" + d.verdict + ")");
  }
  return fmt::format("{}. {}{}{}", subject, failure(target, d), mechanism(d), gates(target, d));
}

}  // namespace headroom::fuzz
