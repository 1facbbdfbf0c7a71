#include "certify/executed_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "certify/policy_loops.h"
#include "certify/row_execution.h"
#include "certify/row_scores.h"
#include "reference/evaluate/simulate/simulate.h"
#include "reference/format/convert.h"
#include "reference/input_error.h"
#include "reference/real/fp_environment.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::size_t most_rows = 8;

struct Broken {
  std::string claim;
  double value = infinity;  ///< in the claim's unit
  std::int64_t key = -1;
  std::string what;
  ClaimUnit unit = ClaimUnit::log2;
};

const char* claim_of(const SimulationEvent& event) {
  switch (event.stage) {
    case SimulationStage::operand:
      return "operand.finite";
    case SimulationStage::score:
    case SimulationStage::mask:
      return "score.range";
    case SimulationStage::shift:
    case SimulationStage::exponent:
      return "exponent.defined";
    case SimulationStage::correction:
      // E of (-inf) - (-inf), or a factor beyond every number
      return event.kind == EventKind::nan ? "exponent.defined" : "correction.range";
    case SimulationStage::weight:
      return "exponent.upper";
    case SimulationStage::p:
      return "p.range";
    case SimulationStage::denominator:
      return "l.range";
    case SimulationStage::numerator:
      return "o.range";
    case SimulationStage::normalise:
      // of l, or of an output
      return event.channel < 0 || event.kind == EventKind::nan ? "l.nonzero" : "normalise.range";
    case SimulationStage::merge:
    case SimulationStage::lse:
      return "merge.range";
  }
  return "";
}

/// One row's execution.
class Execution {
 public:
  Execution(const Head& head, const KernelModel& kernel, const CertifyOptions& options,
            LoopStabilizer& loop, std::int64_t row)
      : head_(head),
        kernel_(kernel),
        row_(row),
        maxima_only_rise_(loop.name().starts_with("online")) {
    SimulationOptions how;
    how.events = true;
    // the simulation estimates what is absorbed in doubles, to far less than 2^-20 of it
    how.absorbed = options.eps * (1 + 0x1p-20);
    const std::int64_t rows[] = {row};
    run_ = simulate(AttentionProblem(head), kernel, loop, rows, how, &dump_);
  }

  std::optional<Broken> first_broken() const {
    if (auto undefined = undefined_number()) return undefined;
    if (auto merged = undefined_merge()) return merged;
    if (auto leaks = hidden_key()) return leaks;
    if (auto of_l = unusable_denominator()) return of_l;
    return absorbed();
  }

 private:
  const SimulationEvent* event(EventKind kind) const {
    const auto it = std::find_if(run_.events.begin(), run_.events.end(),
                                 [&](const SimulationEvent& e) { return e.kind == kind; });
    return it == run_.events.end() ? nullptr : &*it;
  }

  std::optional<Broken> undefined_number() const {
    const SimulationEvent* first = event(EventKind::infinity);
    const SimulationEvent* nan = event(EventKind::nan);
    // an infinite score of a key that the row does not see is replaced, or becomes NaN
    if (first != nullptr && first->stage == SimulationStage::score &&
        !head_.modifiers.visible(head_.visibility, row_, first->key)) {
      first = nullptr;
    }
    const auto place = [](const SimulationEvent& e) {
      const std::int64_t last = std::numeric_limits<std::int64_t>::max();
      return std::pair(e.tile < 0 ? last : e.tile, e.stage);
    };
    if (first == nullptr || (nan != nullptr && place(*nan) < place(*first))) first = nan;
    // what operands hold is a matter of operand.finite
    if (first == nullptr || first->stage == SimulationStage::operand) return {};
    Broken broken;
    broken.claim = claim_of(*first);
    broken.key = first->key;
    if (first->stage == SimulationStage::weight && first->before > 0) broken.value = first->before;
    broken.what =
        fmt::format("{} {:.9g} gives {:.9g}", to_text(first->stage), first->before, first->after);
    return broken;
  }

  /// A key that a finite mask value hides and that has a weight where no later factor meets it.
  std::optional<Broken> hidden_key() const {
    if (!std::isfinite(kernel_.mask.value) || !maxima_only_rise_) return {};
    const std::int64_t keys = std::min(head_.keys(), head_.visibility.length);
    for (std::int64_t j = 0; j < keys; ++j) {
      const auto at = static_cast<std::size_t>(j);
      if (head_.modifiers.sees(head_.visibility, row_, j) || !(dump_.stored_weights[at] > 0)) {
        continue;
      }
      if (dump_.shifts[at / static_cast<std::size_t>(kernel_.tiles.keys)] != run_.shift[0])
        continue;
      Broken broken;
      broken.claim = "mask.mass";
      broken.value = dump_.exponents[at];
      broken.key = j;
      broken.what = fmt::format("hidden key {} weighs {:.3g}", j, dump_.stored_weights[at]);
      return broken;
    }
    return {};
  }

  /// The LSE of parts is merged into one that is no number, of outputs that are.
  std::optional<Broken> undefined_merge() const {
    if (kernel_.split.parts == 1 || std::isfinite(run_.lse[0])) return {};
    Broken broken;
    broken.claim = "merge.range";
    broken.what = fmt::format("the merged LSE is {}", run_.lse[0]);
    return broken;
  }

  std::optional<Broken> unusable_denominator() const {
    if (kernel_.split.parts != 1 || kernel_.normalise.every_tile) return {};
    const float l = run_.denominator[0];
    const Normalisation& last = kernel_.normalise;
    Broken broken;
    broken.claim = "l.nonzero";
    if (l == 0) {
      broken.value = -infinity;
      broken.what = "l = 0";
      return broken;
    }
    if (last.guard == DenominatorGuard::maximum && l < last.guard_value) {
      const UpwardRounding up;
      broken.value = log2(Interval(static_cast<double>(l))).hi();
      broken.what = fmt::format("l = {:.3g} is below its guard", l);
      return broken;
    }
    if (last.division == Division::reciprocal && std::isfinite(l)) {
      const NearestRounding nearest;
      if (round_to(kernel_.denominator.format, reciprocal(last, l)) == 0) {
        broken.claim = "normalise.range";
        broken.what = fmt::format("1 / l of l = {:.3g} is flushed", l);
        return broken;
      }
    }
    return {};
  }

  std::optional<Broken> absorbed() const {
    const SimulationEvent* first = event(EventKind::absorption);
    if (first == nullptr || kernel_.normalise.every_tile) return {};
    if (first->stage == SimulationStage::numerator && !one_sign(first->channel)) return {};
    const UpwardRounding up;
    const Interval all(std::fabs(first->before)), kept(std::fabs(first->after));
    Broken broken;
    broken.claim = "sum.absorption";
    broken.unit = ClaimUnit::relative;
    broken.value = ((all - kept) / all).lo();
    broken.what = fmt::format("{} {:.9g} is {:.9g}: terms leave it as it was",
                              first->stage == SimulationStage::numerator ? "O" : "l", first->before,
                              first->after);
    return broken;
  }

  /// Then what O lacks of a channel is lost, not cancelled.
  bool one_sign(std::int64_t channel) const {
    bool positive = false, negative = false;
    std::vector<double> v(static_cast<std::size_t>(head_.value_channels()));
    for (const KeyRange& run : visible_runs(head_, row_)) {
      for (std::int64_t j = run.begin; j < run.end; ++j) {
        head_.v.load_row(j, v.data());
        positive = positive || v[static_cast<std::size_t>(channel)] > 0;
        negative = negative || v[static_cast<std::size_t>(channel)] < 0;
      }
    }
    return !(positive && negative);
  }

  const Head& head_;
  const KernelModel& kernel_;
  std::int64_t row_;
  bool maxima_only_rise_;
  Simulated run_;
  SimulationDump dump_;
};

bool is_open(const Claim& claim) {
  return claim.required && claim.outcome() == ClaimOutcome::unknown;
}

/// Rows of open claims, then the one of the largest norm and some spread over the head.
std::vector<std::int64_t> suspects(const HeadReport& report, const HeadScan& scan) {
  std::vector<std::int64_t> rows;
  const auto add = [&](std::int64_t row) {
    if (row < 0 || row >= static_cast<std::int64_t>(scan.rows.size())) return;
    if (scan.rows[static_cast<std::size_t>(row)].visible == 0) return;
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
  };
  for (const Claim& claim : report.claims) {
    if (is_open(claim)) add(claim.row);
  }
  add(scan.query_norm_at);
  const auto n = static_cast<std::int64_t>(scan.rows.size());
  for (std::int64_t i = 0; i < 4; ++i) add(i * (n - 1) / 3);
  return rows;
}

/// Makes the claim of this name fail: the open one, or another of the name. That sums absorb their
/// terms counts only where there are too many terms to exclude it.
bool break_claim(HeadReport& report, const Broken& broken, std::int64_t row, double eps) {
  const auto open = std::find_if(report.claims.begin(), report.claims.end(), [&](const Claim& c) {
    return c.id == broken.claim && is_open(c) &&
           (c.unit == broken.unit || broken.claim == "sum.absorption");
  });
  Claim claim;
  if (open != report.claims.end()) {
    claim = *open;
  } else if (broken.claim != "sum.absorption") {
    claim.id = broken.claim;
    claim.kind = broken.claim == "l.nonzero" ? LimitKind::at_least : LimitKind::at_most;
  } else {
    return false;
  }
  const bool lower = claim.kind == LimitKind::at_least;
  if (broken.unit == ClaimUnit::relative) {
    claim.unit = ClaimUnit::relative;
    claim.limit = eps;
    claim.value = Interval(broken.value, 1.0);
  } else if (lower) {
    claim.value = Interval(-infinity, broken.value < claim.limit ? broken.value : -infinity);
  } else {
    claim.value = Interval(broken.value > claim.limit ? broken.value : infinity, infinity);
  }
  claim.row = row;
  claim.key = broken.key;
  claim.note = "an execution: " + broken.what;
  if (open != report.claims.end()) {
    *open = std::move(claim);
  } else {
    if (report.claims.empty()) {  // no bound covers the kernel
      Claim finite;
      finite.id = "operand.finite";
      finite.note = "Q, K and V hold no NaN or infinity";
      report.claims.push_back(std::move(finite));
    }
    report.claims.push_back(std::move(claim));
  }
  return true;
}

}  // namespace

void refute_by_execution(const Head& head, const KernelModel& kernel, const CertifyOptions& options,
                         const HeadScan& scan, HeadReport& report) {
  if (options.evaluate_rows == 0) return;
  std::int64_t scores_left = options.evaluate_scores / 16;
  std::size_t rows_left = most_rows;
  std::vector<std::unique_ptr<LoopStabilizer>> loops = certified_loops(report, head, kernel, true);
  if (loops.empty()) return;
  LoopStabilizer& loop = *loops.back();
  for (const std::int64_t row : suspects(report, scan)) {
    const std::int64_t together =
        loop.couples_rows() ? std::min<std::int64_t>(kernel.tiles.queries, head.queries()) : 1;
    const std::int64_t cost = together * std::min(head.keys(), head.visibility.length);
    if (rows_left == 0 || cost > scores_left) break;
    scores_left -= cost;
    --rows_left;
    try {
      const Execution execution(head, kernel, options, loop, row);
      const std::optional<Broken> broken = execution.first_broken();
      if (!broken || !break_claim(report, *broken, row, options.eps)) continue;
      report.execution = ExecutedRow{std::string(loop.name()), row, broken->what};
      return;
    } catch (const InputError&) {  // no execution of this head and kernel
      return;
    }
  }
}

}  // namespace headroom
