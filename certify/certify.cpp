#include "certify/certify.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <oneapi/tbb/parallel_for.h>

#include "bounds/sums.h"
#include "certify/bias_absorption.h"
#include "certify/executed_rows.h"
#include "certify/path_claims.h"
#include "certify/row_scores.h"
#include "certify/unseen_keys.h"
#include "reference/stabilizer/stabilizer.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// How bad an outcome is for a verdict.
bool all_required(const std::vector<Claim>& claims, ClaimOutcome outcome) {
  return std::all_of(claims.begin(), claims.end(),
                     [&](const Claim& c) { return !c.required || c.outcome() == outcome; });
}
bool any_required(const std::vector<Claim>& claims, ClaimOutcome outcome) {
  return std::any_of(claims.begin(), claims.end(),
                     [&](const Claim& c) { return c.required && c.outcome() == outcome; });
}

/// Holds far from anything the head's numbers move: a count of terms against a format, or the size
/// of a score or of mu in a format whose range is many binades away.
bool far_from_the_head(const Claim& claim) {
  constexpr double near_bits = 16;
  return claim.id == "sum.absorption" || claim.id == "exponent.defined" ||
         (claim.id == "score.range" && claim.margin_bits() > near_bits);
}

/// `clis` chooses the largest C for which these hold, so their margins say nothing of the head.
bool fitted_by_cap(const Claim& claim) {
  return claim.id == "exponent.upper" || claim.id == "p.range" || claim.id == "l.range" ||
         claim.id == "o.range" || claim.id == "normalise.range";
}

/// The required claim of this outcome with the least margin; nullptr if there is none. Claims that
/// hold far from the head, or because C was fitted to them, do not bind.
const Claim* binding_claim(const std::vector<Claim>& claims, ClaimOutcome outcome,
                           bool cap_is_fitted = false) {
  const Claim* least = nullptr;
  for (const Claim& claim : claims) {
    if (!claim.required || claim.outcome() != outcome || claim.kind == LimitKind::none) continue;
    if (outcome == ClaimOutcome::holds &&
        (far_from_the_head(claim) || (cap_is_fitted && fitted_by_cap(claim)))) {
      continue;
    }
    if (least == nullptr || claim.margin_bits() < least->margin_bits()) least = &claim;
  }
  return least;
}

void decide_by(HeadReport& report, const std::vector<Claim>& claims, Verdict if_all_hold,
               const std::string& path) {
  ClaimOutcome deciding = ClaimOutcome::holds;
  if (any_required(claims, ClaimOutcome::fails)) {
    report.verdict = Verdict::refuted;
    deciding = ClaimOutcome::fails;
    report.reason = path + " fails";
  } else if (!all_required(claims, ClaimOutcome::holds)) {
    report.verdict = Verdict::undecided;
    deciding = ClaimOutcome::unknown;
    report.reason = "bounds and exact evaluation do not decide " + path;
  } else {
    report.verdict = if_all_hold;
    report.reason = if_all_hold == Verdict::certified ? path + " holds every claim"
                                                      : "the gate refuses; " + path + " holds";
  }
  const bool cap_is_fitted = report.policy == Policy::clis && if_all_hold == Verdict::certified;
  if (const Claim* claim = binding_claim(claims, deciding, cap_is_fitted)) {
    report.binding = claim->id;
    report.margin_bits = claim->margin_bits();
  } else {
    report.margin_bits = infinity;
  }
}

void weaken_status(HeadReport& report) {
  report.status = report.assumptions.empty() ? ClaimStatus::enclosed : ClaimStatus::assumed;
}

/// What online softmax is taken to do where the first tiles of a row are hidden.
void assume_guard(const Head& head, HeadReport& report) {
  if (!head.modifiers.hides_keys() && !head.modifiers.bias) return;
  report.assumptions.emplace_back(
      "online.hidden-tiles: online softmax guards a running maximum of -inf, where the first "
      "tiles of a row are hidden");
  weaken_status(report);
}

/// The first value that a numerator of [numerator] denormals_are_zero would read as zero, in words;
/// empty if there is none.
std::string values_read_as_zero(const Head& head, const KernelModel& kernel) {
  if (!kernel.numerator.denormals_are_zero) return {};
  const double least = std::ldexp(1.0, kernel.operand.emin);
  std::vector<double> v(static_cast<std::size_t>(head.value_channels()));
  for (std::int64_t j = 0; j < head.keys(); ++j) {
    head.v.load_row(j, v.data());
    for (const double x : v) {
      if (x != 0 && std::fabs(x) < least) return "a subnormal value at key " + std::to_string(j);
    }
  }
  return {};
}

std::string count_of_rows(std::int64_t n) {
  return std::to_string(n) + (n == 1 ? " row" : " rows");
}

/// Policy fdpp: rows that stay in the range hold the claims of the fixed shift, rows that are
/// recomputed those of online softmax, rows that may go either way both.
void take_tested(const PathContext& context, HeadReport& report) {
  const RangeTest test = range_test(context.kernel, report.parameters);
  const std::unique_ptr<FixedStabilizer> shift =
      make_range_tested(context.up, context.kernel, context.operands, context.scan, test);
  report.stabilizer = std::string(shift->name());
  report.row_paths =
      row_paths(context.up, context.head, context.kernel, context.operands, context.scan, test,
                context.options.evaluate_rows, context.options.evaluate_scores);
  const RowPaths& paths = report.row_paths;
  report.rows_evaluated = paths.rows_evaluated;
  report.cap = shift->cap();
  report.has_gate = true;
  report.gate_value = paths.excess;
  report.gate_limit = 0;
  report.gate_accepts = paths.online > 0 ? Tri::no : paths.either > 0 ? Tri::unknown : Tri::yes;

  PathContext chosen = context;
  chosen.paths = &paths;
  const bool all_stay = paths.online + paths.either == 0;
  const auto take = [&](PathResult path) {
    report.rows_evaluated += path.rows_evaluated;
    report.rows_undecided += path.rows_undecided;
    report.claims =
        report.claims.empty() ? std::move(path.claims) : worse_of(report.claims, path.claims);
  };
  if (all_stay || paths.fixed + paths.either > 0) take(fixed_path_claims(chosen, *shift));
  if (!all_stay) {
    assume_guard(context.head, report);
    take(online_path_claims(chosen));
  }
  decide_by(report, report.claims, all_stay ? Verdict::certified : Verdict::fallback,
            all_stay ? "the tested shift" : "the shift or online softmax");
  if (all_stay) return;
  const std::string rows =
      count_of_rows(paths.online) + (paths.online == 1 ? " leaves" : " leave") + " the range" +
      (paths.either > 0 ? ", " + count_of_rows(paths.either) + " may" : std::string());
  report.reason =
      rows + "; " +
      (report.verdict == Verdict::fallback ? "the shift and online softmax hold" : report.reason);
}

HeadReport decide_by_bounds(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                            const CertifyOptions& options, const Operands& operands,
                            const HeadScan& scan, const GateNorms& joined) {
  HeadReport report;
  report.id = head.id;
  report.policy = options.policy;
  report.parameters = complete_parameters(options.policy, kernel, options.parameters);
  report.keys = head.keys();
  report.queries = head.queries();
  report.channels = head.channels();
  report.value_channels = head.value_channels();
  for (const MachineFact& fact : kernel.facts) {
    if (fact.evidence == Evidence::assumed) {
      report.assumptions.push_back(fact.id + ": " + fact.text);
    }
  }
  weaken_status(report);

  if (!scan.finite) {
    Claim finite;
    finite.id = "operand.finite";
    finite.kind = LimitKind::at_most;
    finite.value = scan.non_finite_certain ? Interval(1.0) : Interval(0.0, 1.0);
    finite.limit = 0;
    finite.note = scan.non_finite_where;
    report.claims.push_back(finite);
    report.verdict = scan.non_finite_certain ? Verdict::refuted : Verdict::undecided;
    report.reason = (scan.non_finite_certain ? "not finite: " : "not finite in some orders: ") +
                    scan.non_finite_where;
    report.stabilizer = std::string(to_text(options.policy));
    report.binding = finite.id;
    report.margin_bits = finite.margin_bits();
    report.gate_accepts = Tri::no;
    return report;
  }
  report.scanned = true;
  report.most_visible = scan.most_visible;
  report.v_magnitude = scan.v_magnitude;
  report.query_norm = scan.query_norm.hi();
  report.radius = scan.radius.hi();
  report.key_norm = scan.key_norm.hi();

  std::vector<std::string> open = simulated_only(kernel);
  for (const std::string& phrase : uncovered_modifiers(head, kernel, operands)) {
    open.push_back(phrase);
  }
  if (head.modifiers.softcap && !kernel.score.scale_before_store) {
    const bool raw = options.policy == Policy::fdpp || options.policy == Policy::fa4;
    const bool starts = report.parameters.contains("initial_max") &&
                        std::isfinite(report.parameters.at("initial_max"));
    for (const auto& [with, phrase] :
         {std::pair{raw, "under policy " + std::string(to_text(options.policy))},
          {std::isfinite(kernel.mask.value), std::string("with a finite mask value")},
          {starts, std::string("with a finite initial_max")}}) {
      if (with) open.push_back("a softcap that multiplies after the store " + phrase);
    }
  }
  if (kernel.split.parts != 1 && kernel.split.merge != MergeRule::accumulate) {
    for (const auto& [with, phrase] :
         {std::pair{options.policy != Policy::online && options.policy != Policy::fa4,
                    "under policy " + std::string(to_text(options.policy))},
          {head.modifiers.sink.has_value(), std::string("with a sink")},
          {std::isfinite(kernel.mask.value), std::string("with a finite mask value")},
          {scan.padding_keys > 0, std::string("with padding that is added")},
          {report.parameters.contains("initial_max") &&
               std::isfinite(report.parameters.at("initial_max")),
           std::string("with a finite initial_max")}}) {
      if (with) open.push_back(fmt::format("split.parts = {} {}", kernel.split.parts, phrase));
    }
  }
  if (!open.empty()) {
    report.verdict = Verdict::undecided;
    report.reason = "no bound covers";
    for (const std::string& key : open) {
      report.reason += (&key == &open.front() ? " " : ", ") + key;
    }
    report.stabilizer = std::string(to_text(options.policy));
    report.margin_bits = infinity;
    return report;
  }

  if (const std::string where = values_read_as_zero(head, kernel); !where.empty()) {
    report.verdict = Verdict::undecided;
    report.reason = "no bound covers numerator.denormals_are_zero = true with " + where;
    report.stabilizer = std::string(to_text(options.policy));
    report.margin_bits = infinity;
    return report;
  }

  KeyGeometry geometry(up, head, operands, scan);
  if (options.exact_rows) {
    report.bounds =
        score_bounds_report(up, head, kernel, operands, scan, geometry, *options.exact_rows);
  }
  PathContext context{up, head, kernel, operands, scan, options, geometry};
  if (head.modifiers.softcap) {
    report.assumptions.emplace_back(
        "softcap.tanh: the softcap's tanh is correctly rounded in FP32 (tanh.approx is not)");
    weaken_status(report);
  }
  const auto take_online = [&](Verdict if_all_hold, const LazyRescale* lazy = nullptr) {
    if (context.guard) assume_guard(head, report);
    PathContext chosen = context;
    chosen.lazy = lazy;
    PathResult online = online_path_claims(chosen);
    report.stabilizer = lazy != nullptr ? "fa4" : "online";
    report.rows_evaluated += online.rows_evaluated;
    report.rows_undecided = online.rows_undecided;
    decide_by(
        report, online.claims, if_all_hold,
        lazy != nullptr ? "online softmax with a maximum that may stay behind" : "online softmax");
    report.claims = std::move(online.claims);
  };
  if (options.policy == Policy::online) {
    context.initial_max = report.parameters.at("initial_max");
    context.guard = report.parameters.at("guard") != 0;
    take_online(Verdict::certified);
    return report;
  }
  if (options.policy == Policy::fa4) {
    const LazyRescale lazy = lazy_rescale(report.parameters);
    take_online(Verdict::certified, &lazy);
    return report;
  }
  if (options.policy == Policy::fdpp) {
    take_tested(context, report);
    return report;
  }

  const std::unique_ptr<FixedStabilizer> stabilizer =
      make_fixed_stabilizer(up, options.policy, head, kernel, operands, scan, joined, options.eps);
  report.stabilizer = std::string(stabilizer->name());
  report.cap = stabilizer->cap();
  report.kappa = stabilizer->kappa();
  report.has_gate = true;
  const FixedStabilizer::Gate gate = stabilizer->gate();
  report.gate_value = gate.value;
  report.gate_limit = gate.limit;
  report.gate_accepts = gate.accepts;
  report.gate_note = gate.note;

  // The gate as the kernel computes it, bit by bit in sequential order: one execution of those that
  // the enclosure covers. Joined gates need the other heads' sums and are left to the enclosure.
  if (options.policy != Policy::clis && kernel.gate.unit == GateUnit::head) {
    const GateOutcome emulated =
        make_stabilizer(std::string(to_text(options.policy)), head, kernel, operands)->gate();
    report.has_kernel_gate = true;
    report.kernel_gate_value = emulated.value;
    const Tri decided = emulated.accepts ? Tri::yes : Tri::no;
    if (gate.accepts != Tri::unknown && gate.accepts != decided) {
      report.verdict = Verdict::undecided;
      report.binding = "gate.conservative";
      report.reason = "the emulated gate and its enclosure disagree: report this as a bug";
      report.margin_bits = -infinity;
      return report;
    }
  }

  // The sound policy's gate is the certificate itself: it takes the fixed path only where the
  // bounds alone hold every claim, so nothing needs exact evaluation there.
  CertifyOptions bounds_only = options;
  bounds_only.evaluate_rows = 0;
  bounds_only.tighter_bounds = false;
  const bool sound = options.policy == Policy::clis;
  const PathContext fixed_context{
      up, head, kernel, operands, scan, sound ? bounds_only : options, geometry};
  if (!sound && gate.accepts == Tri::no) {
    take_online(Verdict::fallback);
    return report;
  }
  PathResult fixed = fixed_path_claims(fixed_context, *stabilizer);
  report.rows_evaluated = fixed.rows_evaluated;
  report.rows_undecided = fixed.rows_undecided;
  if (sound) {  // the gate itself is a claim: how many bits the head's bound may grow
    Claim gate_claim;
    gate_claim.id = "gate.conservative";
    gate_claim.kind = LimitKind::at_most;
    gate_claim.value = gate.value;
    gate_claim.limit = gate.limit;
    gate_claim.row = gate.row;
    gate_claim.note = "max_i (mu_i + C + e_i - mean score) against C - L - D(eps)";
    fixed.claims.push_back(gate_claim);
  }
  const bool holds = all_required(fixed.claims, ClaimOutcome::holds);
  if (sound) {
    if (holds) {
      report.gate_accepts = Tri::yes;
      decide_by(report, fixed.claims, Verdict::certified, "the fixed stabilizer");
      report.claims = std::move(fixed.claims);
      return report;
    }
    report.gate_accepts = Tri::no;
    // Name the claim behind the gate's refusal; the gate's own claim is only its sum.
    report.gate_note = fixed.claims.back().id;
    const std::vector<Claim> behind(fixed.claims.begin(), fixed.claims.end() - 1);
    if (const Claim* claim = binding_claim(behind, ClaimOutcome::fails)) {
      report.gate_note = claim->id;
    } else if (const Claim* open = binding_claim(behind, ClaimOutcome::unknown)) {
      report.gate_note = open->id;
    }
    report.fixed_claims = std::move(fixed.claims);
    take_online(Verdict::fallback);
    return report;
  }
  if (gate.accepts == Tri::unknown) {
    decide_by(report, fixed.claims, Verdict::certified, "the fixed stabilizer");
    report.claims = std::move(fixed.claims);
    report.verdict = Verdict::undecided;
    report.reason = "the kernel's gate may go either way within its own rounding";
    report.binding = "gate.conservative";
    report.margin_bits = (Interval(gate.limit) - Interval(gate.value.hi())).lo();
    return report;
  }
  decide_by(report, fixed.claims, Verdict::certified, "the fixed stabilizer");
  report.claims = std::move(fixed.claims);
  // Would the sound gate have taken this stabilizer, at its own C?
  const FixedStabilizer::Gate sound_gate = stabilizer->sound_gate();
  Claim conservative;
  conservative.id = "gate.conservative";
  conservative.required = false;
  conservative.kind = LimitKind::at_most;
  conservative.value = sound_gate.value;
  conservative.limit = sound_gate.limit;
  conservative.row = sound_gate.row;
  conservative.note = "the kernel's gate accepts; the sound gate at its C";
  report.claims.push_back(conservative);
  return report;
}

/// Is the report about executions of its path, whether or not a bound covers them?
bool path_is_taken(const HeadReport& report) {
  const bool has_no_gate =
      report.stabilizer == "online" || report.stabilizer == "fa4" || report.stabilizer == "fdpp";
  return has_no_gate || (report.policy != Policy::clis && report.gate_accepts == Tri::yes);
}

/// Says where a bias leaves nothing of a row's scores. Reported: exact attention takes such a bias
/// for what it is, and kernels may be right or wrong by it.
void note_absorbed_scores(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                          const Operands& operands, const HeadScan& scan, HeadReport& report) {
  const std::optional<AbsorbedRow> row = absorbed_by_bias(up, head, kernel, operands, scan);
  if (!row) return;
  report.reason += fmt::format("; the bias absorbs all bits of the scores of row {}", row->row);
  if (report.claims.empty()) return;
  Claim absorbed;
  absorbed.id = "bias.absorption";
  absorbed.required = false;
  absorbed.kind = LimitKind::at_least;
  absorbed.value = Interval(-infinity, -row->bits);
  absorbed.limit = 0;
  absorbed.row = row->row;
  absorbed.note =
      "the bias absorbs all bits of the scores: log2 of the largest over a quarter of its ulp";
  report.claims.push_back(std::move(absorbed));
}

HeadReport decide_head(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                       const CertifyOptions& options, const Operands& operands,
                       const HeadScan& scan, const GateNorms& joined) {
  HeadReport report = decide_by_bounds(up, head, kernel, options, operands, scan, joined);
  if (report.verdict != Verdict::undecided || !report.scanned || !path_is_taken(report)) {
    return report;
  }
  refute_by_execution(head, kernel, options, scan, report);
  if (report.execution) {
    decide_by(report, report.claims, Verdict::undecided, "an execution");
    report.reason = fmt::format("an execution fails, {} in row {}: {}", report.execution->loop,
                                report.execution->row, report.execution->what);
  }
  return report;
}

/// `joined`: norms of a gate over more than this head.
HeadReport certify_scanned(const UpwardRounding& up, const Head& head, const KernelModel& kernel,
                           const CertifyOptions& options, const GateNorms* joined) {
  const auto certify = [&](const Head& h) {
    const Operands operands(up, h, kernel);
    const HeadScan scan = scan_head(up, h, kernel, operands);
    HeadReport found = decide_head(up, h, kernel, options, operands, scan,
                                   joined != nullptr ? *joined : norms_of(scan));
    if (found.scanned) note_absorbed_scores(up, h, kernel, operands, scan, found);
    return found;
  };
  HeadReport report = certify(head);
  if (report.scanned) return report;
  const std::optional<Head> cleaned = without_unseen_keys(head, kernel, options.policy);
  if (!cleaned) return report;
  HeadReport of_seen = certify(*cleaned);
  if (!of_seen.scanned) return report;
  for (Claim& claim : of_seen.claims) {
    if (claim.id == "operand.finite") {
      claim.note = "NaN or infinity is in keys only that no row sees, whose scores are replaced";
    }
  }
  return of_seen;
}

}  // namespace

std::vector<HeadReport> certify_heads(const std::vector<Head>& heads, const KernelModel& kernel,
                                      const CertifyOptions& options,
                                      const std::function<void(std::size_t)>& progress) {
  complete_parameters(options.policy, kernel, options.parameters);  // throws before any work
  // Facts of rows are kept for the heads that are worked on alone: those of a layer of 40 heads and
  // 75,600 rows are hundreds of MiB.
  // A gate whose unit is a head over its batch entries sees the norms of all of them.
  std::map<std::tuple<std::string, std::string, std::int64_t>, GateNorms> over_batch;
  const bool joint = kernel.gate.unit == GateUnit::head_over_batch;
  const auto key = [&](std::size_t i) {
    return std::make_tuple(heads[i].file, heads[i].prefix, heads[i].query_head);
  };
  if (joint) {
    std::vector<GateNorms> own(heads.size());
    oneapi::tbb::parallel_for(std::size_t{0}, heads.size(), [&](std::size_t i) {
      const UpwardRounding up;
      own[i] = norms_of(scan_head(up, heads[i], kernel, Operands(up, heads[i], kernel)));
      heads[i].drop_pages();
    });
    for (std::size_t i = 0; i < heads.size(); ++i) {
      const auto [it, fresh] = over_batch.emplace(key(i), own[i]);
      if (!fresh) it->second = join(it->second, own[i]);
    }
  }
  std::vector<HeadReport> reports(heads.size());
  std::atomic<std::size_t> finished{0};
  oneapi::tbb::parallel_for(std::size_t{0}, heads.size(), [&](std::size_t i) {
    const UpwardRounding up;
    reports[i] =
        certify_scanned(up, heads[i], kernel, options, joint ? &over_batch.at(key(i)) : nullptr);
    reports[i].safe = conjunction(reports[i].claims, false);
    reports[i].accurate = conjunction(reports[i].claims, true);
    heads[i].drop_pages();
    if (progress) progress(++finished);
  });
  return reports;
}

HeadReport certify_head(const Head& head, const KernelModel& kernel,
                        const CertifyOptions& options) {
  return certify_heads({head}, kernel, options).front();
}

}  // namespace headroom
