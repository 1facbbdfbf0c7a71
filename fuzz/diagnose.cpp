#include "fuzz/diagnose.h"

#include <mpfr.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "certify/clis_table.h"
#include "fuzz/claim_checks.h"
#include "fuzz/exact_gate.h"
#include "reference/evaluate/exact_attention.h"
#include "reference/evaluate/ladder/ladder.h"
#include "reference/evaluate/ladder/wide_row.h"
#include "reference/evaluate/simulate/compare.h"
#include "reference/format/convert.h"
#include "reference/input_error.h"
#include "reference/real/fp_environment.h"
#include "reference/stabilizer/stabilizer.h"

namespace headroom::fuzz {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// The same bits on every processor.
LadderOptions exact_options() {
  LadderOptions options;
  options.output = options.lse = {fp64, Rounding::nearest_even};
  options.instruction_set = InstructionSet::portable;
  return options;
}

/// An ulp of the numbers of a format at magnitude x.
double ulp_at(const Format& format, double x) {
  const int exponent =
      x == 0 || !std::isfinite(x) ? format.emin : std::max(format.emin, std::ilogb(x));
  return std::ldexp(1.0, exponent - format.precision + 1);
}

/// e^(a - b), rounded down or up whatever the rounding mode.
double exp_of_difference(double a, double b, mpfr_rnd_t direction) {
  MPFR_DECL_INIT(x, 120);
  mpfr_set_d(x, a, MPFR_RNDN);
  mpfr_sub_d(x, x, b, direction);
  mpfr_exp(x, x, direction);
  return mpfr_get_d(x, direction);
}

/// The policy whose certificate is about loops of this stabilizer, with the numbers that they
/// share; nothing where there is none.
std::optional<CertifyOptions> policy_of(const Target& target) {
  if (target.gate == GateChoice::certified) return target.certify_options();
  const std::string& name = target.stabilizer;
  CertifyOptions options;
  options.eps = target.eps;
  const auto take = [&](std::initializer_list<const char*> parameters) {
    for (const char* p : parameters) {
      const auto given = target.parameters.find(p);
      if (given != target.parameters.end() && !std::isnan(given->second)) {
        options.parameters[p] = given->second;
      }
    }
  };
  for (const Policy policy :
       {Policy::clis, Policy::clis_alg1, Policy::fixed_m, Policy::fixed_m_n}) {
    options.policy = policy;
    if (to_text(policy) == name) return options;
  }
  if (name.starts_with("fdpp")) {
    options.policy = Policy::fdpp;
    take({"phi", "a", "b"});
    if (name == "fdpp-untested") {
      options.parameters["a"] = -infinity;
      options.parameters["b"] = infinity;
      options.parameters.try_emplace("phi", 5);  // the loop's own default
    }
    return options;
  }
  if (name.starts_with("fa4-") || name == "lazy-wave") {
    options.policy = Policy::fa4;
    take({"threshold", "offset", "wave", "running_max"});
    if (name == "fa4-tile1") options.parameters["wave"] = 0;
    return options;
  }
  if (name.starts_with("online")) {
    options.policy = Policy::online;
    take({"initial_max"});
    return options;
  }
  return std::nullopt;
}

using Loop = std::unique_ptr<LoopStabilizer>;

/// One kernel on one head, with what lets the head through.
struct Execution {
  bool runs = false;     ///< a loop was there to be run
  bool accepted = true;  ///< by the target's gate
  std::optional<HeadReport> report;
  Simulated run;
  SimulationDump dump;
};

/// The loop that a certificate is about: that of the target's name, or the first.
Loop certified_loop(const Target& target, const HeadReport& report, const Head& head,
                    const KernelModel& kernel) {
  std::vector<Loop> loops = certified_loops(report, head, kernel, true);
  if (loops.empty()) return nullptr;
  for (Loop& loop : loops) {
    if (loop->name() == target.stabilizer) return std::move(loop);
  }
  return std::move(loops.front());
}

/// The fixed loop in front of which a policy's gate refused.
Loop refused_loop(const Target& target, const Head& head, const KernelModel& kernel) {
  const std::string name(to_text(target.policy));
  LoopParameters parameters = {{"last_online", 0}};
  switch (target.policy) {
    case Policy::clis: {
      const CertifiedTable table = certified_table(head, kernel, target.eps);
      parameters["cap"] = table.cap;
      parameters["kappa"] = table.kappa;
      return make_loop_stabilizer(name, parameters);
    }
    case Policy::clis_alg1:
    case Policy::fixed_m:
    case Policy::fixed_m_n:
      return make_loop_stabilizer(name, parameters);
    default:
      return nullptr;
  }
}

Execution execute(const Target& target, const KernelModel& kernel, const Candidate& candidate,
                  bool needs_refusal) {
  const Scale scale = target.scale_of(candidate.shape);
  const AttentionProblem problem = problem_of(candidate, kernel.operand, scale);
  Execution e;
  Loop loop;
  bool takes_table = false;
  if (target.gate == GateChoice::certified) {
    const Head head = head_of(candidate, kernel.operand, scale);
    e.report = certify_head(head, kernel, target.certify_options());
    e.accepted = e.report->verdict == Verdict::certified;
    if (e.accepted && !needs_refusal) loop = certified_loop(target, *e.report, head, kernel);
    if (needs_refusal && e.report->verdict == Verdict::fallback) {
      loop = refused_loop(target, head, kernel);
    }
  } else {
    LoopParameters parameters = target.parameters;
    takes_table = target.stabilizer == "clis" && !parameters.contains("cap");
    if (takes_table) {
      const CertifiedTable table =
          certified_table(head_of(candidate, kernel.operand, scale), kernel, target.eps);
      parameters["cap"] = table.cap;
      parameters["kappa"] = table.kappa;
      e.accepted = table.accepts;
    }
    loop = make_loop_stabilizer(target.stabilizer, parameters);
  }
  if (!loop) return e;
  SimulationOptions how = target.how;
  how.events = how.plain = true;
  how.absorbed = target.tolerance;
  e.run = simulate(problem, kernel, *loop, all_rows(problem), how, &e.dump);
  e.runs = true;
  if (target.gate == GateChoice::own && !takes_table) e.accepted = e.run.gate;
  if (target.gate == GateChoice::none) e.accepted = true;
  return e;
}

class Judge {
 public:
  Judge(const Target& target, const Candidate& candidate, Diagnosis& d)
      : target_(target), candidate_(candidate), kernel_(target.kernel), d_(d) {}

  void decide() {
    const bool about_refusals = d_.objective == Objective::needless_fallback;
    const bool nan_wanted = d_.objective == Objective::swallowed_nan;
    if (d_.objective == Objective::claim && target_.gate == GateChoice::certified &&
        !all_finite(candidate_)) {
      return certified_nan();
    }
    if (!nan_wanted && !finite_where_seen()) {
      d_.verdict = "not looked at: a number that a row may see is NaN or infinite";
      return;
    }
    if (d_.objective == Objective::claim && target_.gate != GateChoice::certified) {
      d_.verdict = "no certificate is asked for";
      return;
    }
    if (about_refusals && target_.gate == GateChoice::none) {
      d_.verdict = "no gate is asked for";
      return;
    }
    problem_ = problem_of(candidate_, kernel_.operand, target_.scale_of(candidate_.shape));
    dv_ = static_cast<std::size_t>(problem_.value_channels());
    own_ = execute(target_, kernel_, candidate_, about_refusals);
    d_.output = own_.run.output;
    d_.lse = own_.run.lse;
    if (own_.report) take_report(*own_.report);
    if (own_.accepted == about_refusals) {
      if (d_.verdict.empty()) d_.verdict = own_.accepted ? "the gate accepts" : "the gate refuses";
      return;
    }
    if (!own_.runs) {
      d_.verdict += ", but no loop executes what it is about";
      return;
    }
    look_at_rows();
    if (nan_wanted) {
      swallowed_nan();
    } else if (d_.objective == Objective::gate_underestimate) {
      gate_underestimate();
    } else {
      multiplied_ = multiplied_problem(problem_, kernel_, how());
      if (!multiplied_) {
        d_.verdict = "the scale that is left at the score has no exact form";
        return;
      }
      exact_ = enclosures(*multiplied_, all_rows(problem_), exact_options());
      judge();
    }
    if (d_.met) finish();
  }

 private:
  SimulationOptions how() const {
    SimulationOptions options = target_.how;
    options.plain = true;
    return options;
  }

  Head head() const {
    return head_of(candidate_, kernel_.operand, target_.scale_of(candidate_.shape));
  }

  bool finite_where_seen() const {
    const auto good = [](float b) { return std::isfinite(b) || b == -HUGE_VALF; };
    return all_finite(candidate_) &&
           std::all_of(candidate_.setting.bias.begin(), candidate_.setting.bias.end(), good);
  }

  void look_at_rows() {
    const std::int64_t nk = problem_.keys();
    sees_.assign(static_cast<std::size_t>(problem_.queries()), false);
    largest_.assign(sees_.size(), 0);
    seen_by_any_.assign(static_cast<std::size_t>(nk), false);
    for (std::int64_t i = 0; i < problem_.queries(); ++i) {
      const KeyRange range = problem_.range(i);
      for (std::int64_t j = range.begin; j < range.end; ++j) {
        if (!problem_.visible(i, j)) continue;
        const auto row = static_cast<std::size_t>(i);
        sees_[row] = seen_by_any_[static_cast<std::size_t>(j)] = true;
        for (std::size_t c = 0; c < dv_; ++c) {
          largest_[row] =
              std::max(largest_[row], std::fabs(static_cast<double>(candidate_.value(j)[c])));
        }
      }
    }
  }

  // --- Elements

  double out_lo(std::size_t i, std::size_t c) const { return exact_.output_lo[i * dv_ + c]; }
  double out_hi(std::size_t i, std::size_t c) const { return exact_.output_hi[i * dv_ + c]; }
  /// The exact element rounds to a number.
  bool defined(std::size_t i, std::size_t c) const {
    const Format& f = kernel_.normalise.output;
    return std::isfinite(round_to(f, out_lo(i, c))) && std::isfinite(round_to(f, out_hi(i, c)));
  }
  double lse_unit() const { return kernel_.lse.base == ExponentBase::two ? std::log(2.0) : 1.0; }
  bool lse_defined(std::size_t i) const {
    const double most = 0x1.fp127 * lse_unit();
    return std::fabs(exact_.lse_lo[i]) < most && std::fabs(exact_.lse_hi[i]) < most;
  }
  /// How far an output is from the exact element and from its correct rounding.
  double error_of(double o, std::size_t i, std::size_t c) const {
    const Format& f = kernel_.normalise.output;
    return outside(o, std::min(out_lo(i, c), round_to(f, out_lo(i, c))),
                   std::max(out_hi(i, c), round_to(f, out_hi(i, c))));
  }
  /// What delivering LSE in FP32 costs: three roundings of numbers of its parts' size.
  double lse_rounding(const Simulated& run, std::size_t i) const {
    const double l = run.denominator[i];
    const double log_l = l > 0 && std::isfinite(l) ? std::fabs(std::log2(l)) : 0;
    return 3 * 0x1p-24 * (std::fabs(run.shift[i]) + log_l + std::fabs(run.lse[i] * lse_unit()) + 1);
  }
  double lse_error(const Simulated& run, std::size_t i) const {
    return outside(run.lse[i] * lse_unit(), exact_.lse_lo[i], exact_.lse_hi[i]);
  }

  /// Keeps the worst row: the first with the largest amount.
  void meet(std::size_t row, std::int64_t channel, double found, double amount, double limit) {
    if (d_.met && !(amount > d_.amount)) return;
    d_.met = true;
    d_.row = static_cast<std::int64_t>(row);
    d_.channel = channel;
    d_.found = found;
    d_.amount = amount;
    d_.limit = limit;
  }

  void judge() {
    switch (d_.objective) {
      case Objective::non_finite:
        return non_finite();
      case Objective::zero_row:
        return zero_row();
      case Objective::inaccurate:
        return inaccurate();
      case Objective::lost_mass:
        return lost_mass();
      case Objective::saturation:
        return saturation();
      case Objective::absorption:
        return absorption();
      case Objective::wrong_lse:
        return wrong_lse();
      case Objective::partition:
        return partition();
      case Objective::tiling:
        return tiling();
      case Objective::padding:
        return padding();
      case Objective::backward:
        return backward();
      case Objective::needless_fallback:
        return needless_fallback();
      case Objective::claim:
        return claim();
      case Objective::gate_underestimate:
      case Objective::swallowed_nan:
        return;
    }
  }

  // --- One execution against the exact rows

  void non_finite() {
    for (std::size_t i = 0; i < sees_.size() && !d_.met; ++i) {
      if (!sees_[i]) continue;
      for (std::size_t c = 0; c < dv_ && !d_.met; ++c) {
        const float o = own_.run.output[i * dv_ + c];
        if (!std::isfinite(o) && defined(i, c)) {
          meet(i, static_cast<std::int64_t>(c), o, infinity, kernel_.normalise.output.max_finite());
        }
      }
      const float lse = own_.run.lse[i];
      if (!d_.met && !std::isfinite(lse) && lse_defined(i)) {
        meet(i, -1, lse, infinity, fp32.max_finite());
      }
    }
  }

  bool zero(std::size_t i, std::size_t& channel) const {
    const auto row = [&](const auto& all) { return std::span(all).subspan(i * dv_, dv_); };
    const RowFailure failure = row_failure(row(own_.run.output), row(exact_.output_lo),
                                           row(exact_.output_hi), kernel_.normalise.output);
    if (!failure.zero) return false;
    channel = 0;
    const auto size = [&](std::size_t c) { return std::fabs(out_lo(i, c) + out_hi(i, c)); };
    for (std::size_t c = 1; c < dv_; ++c) {
      if (size(c) > size(channel)) channel = c;
    }
    return true;
  }

  /// What no arithmetic of the output's range can be asked for: kernels flush subnormal numbers.
  double unavoidable() const {
    const Format& f = kernel_.normalise.output;
    return std::ldexp(1.0, f.emin <= fp32.emin ? f.emin : f.least_exponent());
  }

  /// What roundings of one weight may amount to, relative: exponent, exp2, P. (e^y - 1 < y + y^2.)
  double weight_rounding() const {
    const double y = std::ldexp(128 * std::log(2.0), -kernel_.exponent.format.precision);
    return y + y * y +
           kernel_.exp2.max_error_ulps * std::ldexp(2.0, -kernel_.exp2.result.precision) +
           std::ldexp(1.0, -kernel_.p.format.precision);
  }
  /// sum p |v| / l of a row's channels, from above.
  std::vector<double> magnitudes(std::size_t i) const {
    Candidate c = candidate_;
    for (float& v : c.v) v = std::fabs(v);
    const auto problem = multiplied_problem(
        problem_of(c, kernel_.operand, target_.scale_of(c.shape)), kernel_, how());
    const std::vector<std::int64_t> row = {static_cast<std::int64_t>(i)};
    return enclosures(*problem, row, exact_options()).output_hi;
  }

  /// Two things that are no failure explain zeros: mass within eps that was lost, in both sums, and
  /// values that cancel to less than the roundings of their weights.
  void zero_row() {
    for (std::size_t i = 0; i < sees_.size(); ++i) {
      std::size_t largest = 0;
      if (!sees_[i] || !zero(i, largest)) continue;
      const std::vector<double> whole = magnitudes(i);
      for (std::size_t c = 0; c < dv_; ++c) {
        const double error = error_of(0, i, c);
        const double explained = 2 * target_.eps * largest_[i] + weight_rounding() * whole[c];
        if (!(error > std::max(unavoidable(), explained))) continue;
        meet(i, static_cast<std::int64_t>(c), 0, error, explained);
      }
      if (d_.met) return;
    }
  }

  void inaccurate() {
    for (std::size_t i = 0; i < sees_.size(); ++i) {
      for (std::size_t c = 0; sees_[i] && c < dv_; ++c) {
        const double o = own_.run.output[i * dv_ + c];
        if (!std::isfinite(o) || !defined(i, c)) continue;
        const double error = error_of(o, i, c);
        const double limit = std::max(unavoidable(), target_.tolerance * largest_[i]);
        if (error > limit) meet(i, static_cast<std::int64_t>(c), o, error, limit);
      }
    }
  }

  struct Share {
    double lo = 0, hi = 0;
  };
  /// The exact share of each row's mass that the chosen keys hold.
  std::vector<Share> shares(std::vector<std::uint8_t> chosen) const {
    const auto nk = static_cast<std::size_t>(problem_.keys());
    std::vector<Share> result(sees_.size());
    std::vector<std::int64_t> rows;
    for (std::size_t i = 0; i < sees_.size(); ++i) {
      const auto begin = chosen.begin() + static_cast<std::ptrdiff_t>(i * nk);
      if (std::find(begin, begin + static_cast<std::ptrdiff_t>(nk), 1) !=
          begin + static_cast<std::ptrdiff_t>(nk)) {
        rows.push_back(static_cast<std::int64_t>(i));
      }
    }
    if (rows.empty()) return result;
    AttentionProblem part = *multiplied_;
    part.mask = std::move(chosen);
    part.sink.reset();
    const EnclosedRows mass = enclosures(part, rows, exact_options());
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto i = static_cast<std::size_t>(rows[r]);
      if (!std::isfinite(mass.lse_lo[r]) || !std::isfinite(exact_.lse_hi[i])) continue;
      result[i].lo = exp_of_difference(mass.lse_lo[r], exact_.lse_hi[i], MPFR_RNDD);
      result[i].hi = std::min(1.0, exp_of_difference(mass.lse_hi[r], exact_.lse_lo[i], MPFR_RNDU));
    }
    return result;
  }

  std::vector<Share> lost_shares() const {
    const auto nk = static_cast<std::size_t>(problem_.keys());
    std::vector<std::uint8_t> lost(sees_.size() * nk, 0);
    for (std::size_t i = 0; i < sees_.size(); ++i) {
      for (std::size_t j = 0; sees_[i] && j < nk; ++j) {
        lost[i * nk + j] =
            own_.dump.stored_weights[i * nk + j] == 0 &&
            problem_.visible(static_cast<std::int64_t>(i), static_cast<std::int64_t>(j));
      }
    }
    return shares(std::move(lost));
  }

  void lost_mass() {
    const std::vector<Share> lost = lost_shares();
    for (std::size_t i = 0; i < lost.size(); ++i) {
      if (lost[i].lo > target_.eps) meet(i, -1, lost[i].lo, lost[i].lo, target_.eps);
    }
  }

  void saturation() {
    const auto nk = static_cast<std::size_t>(problem_.keys());
    const double most = kernel_.p.format.max_finite();
    if (!kernel_.p.saturate) return;
    for (std::size_t i = 0; i < sees_.size(); ++i) {
      for (std::size_t j = 0; sees_[i] && j < nk; ++j) {
        const double e = own_.dump.weights[i * nk + j], p = own_.dump.stored_weights[i * nk + j];
        // what rounds to the largest number is not clipped
        if (!(e > p) || p < most || round_to(unclipped(), e) <= most) continue;
        if (!problem_.visible(static_cast<std::int64_t>(i), static_cast<std::int64_t>(j))) continue;
        if (d_.met && !(e > d_.amount)) continue;
        meet(i, -1, p, e, most);
        d_.key = static_cast<std::int64_t>(j);
        d_.exact_lo = d_.exact_hi = e;
      }
    }
  }
  /// P's format with room above.
  Format unclipped() const {
    Format f = kernel_.p.format;
    f.emax = 1000;
    f.emin = std::max(f.emin, -1000);
    f.specials = Specials::ieee;
    return f;
  }

  void absorption() {
    for (const SimulationEvent& e : own_.run.events) {
      const auto i = static_cast<std::size_t>(e.row);
      if (e.kind != EventKind::absorption || !sees_[i] || !(std::fabs(e.before) > 0)) continue;
      const double share = 1 - std::fabs(e.after / e.before);
      if (share > target_.tolerance) meet(i, e.channel, e.after, share, target_.tolerance);
    }
  }

  void wrong_lse() {
    for (std::size_t i = 0; i < sees_.size(); ++i) {
      if (!sees_[i] || !lse_defined(i) || !std::isfinite(own_.run.lse[i])) continue;
      const double error = lse_error(own_.run, i);
      const double limit = target_.tolerance + lse_rounding(own_.run, i);
      if (error > limit) meet(i, -1, own_.run.lse[i], error, limit);
    }
  }

  // --- Two executions against each other

  /// Runs another kernel or head; met where a row differs by more than the tolerance.
  void vary(const std::string& variant, const KernelModel& kernel, const Candidate& candidate) {
    Execution other;
    try {
      validate(kernel);
      other = execute(target_, kernel, candidate, false);
    } catch (const InputError&) {
      return;  // no such kernel
    }
    if (!other.runs || !other.accepted) return;
    const auto meet_variant = [&](std::size_t i, std::int64_t c, double a, double b, double amount,
                                  double limit) {
      if (d_.met && !(amount > d_.amount)) return;
      meet(i, c, a, amount, limit);
      d_.variant = variant;
      d_.variant_found = b;
      other_events_ = other.run.events;
    };
    const Format& f = kernel_.normalise.output;
    for (std::size_t i = 0; i < sees_.size(); ++i) {
      if (!sees_[i]) continue;
      for (std::size_t c = 0; c < dv_; ++c) {
        const double a = own_.run.output[i * dv_ + c], b = other.run.output[i * dv_ + c];
        if (!defined(i, c) || (!std::isfinite(a) && !std::isfinite(b))) continue;
        // neighbours of the output's format are one result
        const double limit = target_.tolerance * largest_[i] +
                             ulp_at(f, std::max(std::fabs(out_lo(i, c)), std::fabs(out_hi(i, c))));
        const bool both = std::isfinite(a) && std::isfinite(b);
        const double difference = both ? std::fabs(a - b) : infinity;
        if (difference > limit) {
          meet_variant(i, static_cast<std::int64_t>(c), a, b, difference, limit);
        }
      }
      if (d_.met && d_.channel >= 0) continue;  // an output says more than a log-sum-exp
      const double a = own_.run.lse[i], b = other.run.lse[i];
      if (!lse_defined(i) || (!std::isfinite(a) && !std::isfinite(b))) continue;
      const bool both = std::isfinite(a) && std::isfinite(b);
      const double difference = both ? std::fabs(a - b) * lse_unit() : infinity;
      const double limit =
          target_.tolerance + lse_rounding(own_.run, i) + lse_rounding(other.run, i);
      if (difference > limit) meet_variant(i, -1, a, b, difference, limit);
    }
  }

  void partition() {
    for (const int parts : {1, 2, 3, 4}) {
      if (parts == kernel_.split.parts) continue;
      KernelModel kernel = kernel_;
      kernel.split.parts = parts;
      // a kernel that splits nothing yet is split as it should be
      if (kernel_.split.parts == 1) kernel.split.reads = kernel.lse.base;
      vary(fmt::format("split.parts = {}", parts), kernel, candidate_);
    }
  }

  void tiling() {
    constexpr int most = 1 << 20;
    for (const int keys : {kernel_.tiles.keys / 2, std::min(kernel_.tiles.keys, most) * 2}) {
      if (keys < 1) continue;
      KernelModel kernel = kernel_;
      kernel.tiles.keys = keys;
      vary(fmt::format("tiles.keys = {}", keys), kernel, candidate_);
    }
  }

  /// Keys that the model says are not read, with other numbers: padding always (zeros take its
  /// place, or it is sliced off, or a selection hides its scores); keys within the length that no
  /// row sees only as finite numbers, and their K only where neither a mean nor an additive mask
  /// reads it. A gate that then refuses has seen them, and nothing is said.
  void padding() {
    const double most = std::min(kernel_.operand.max_finite(), fp32.max_finite());
    const std::array<std::pair<const char*, double>, 5> numbers = {{{"zero", 0},
                                                                    {"largest", most},
                                                                    {"-largest", -most},
                                                                    {"nan", not_a_number},
                                                                    {"infinity", infinity}}};
    const std::int64_t length = candidate_.length();
    bool hidden = false;
    for (std::int64_t j = 0; j < length; ++j) {
      hidden = hidden || !seen_by_any_[static_cast<std::size_t>(j)];
    }
    const bool keys_too =
        kernel_.centring.keys == Centring::none && kernel_.mask.form == MaskForm::select;
    for (const auto& [name, number] : numbers) {
      if (std::isnan(number) && !kernel_.operand.has_nan()) continue;
      if (std::isinf(number) && !kernel_.operand.has_infinity()) continue;
      const auto x = static_cast<float>(number);
      const auto fill = [&](Candidate& c, std::int64_t j, bool key) {
        if (key) std::fill_n(c.key(j), c.shape.channels, x);
        std::fill_n(c.value(j), c.shape.value_channels, x);
      };
      if (length < candidate_.shape.keys) {
        Candidate changed = candidate_;
        for (std::int64_t j = length; j < candidate_.shape.keys; ++j) fill(changed, j, true);
        vary(fmt::format("padding = {}", name), kernel_, changed);
      }
      if (hidden && std::isfinite(number)) {
        Candidate changed = candidate_;
        for (std::int64_t j = 0; j < length; ++j) {
          if (!seen_by_any_[static_cast<std::size_t>(j)]) fill(changed, j, keys_too);
        }
        vary(fmt::format("hidden {} = {}", keys_too ? "keys and values" : "values", name), kernel_,
             changed);
      }
    }
  }

  // --- The rest

  void backward() {
    for (std::size_t i = 0; i < sees_.size() && !d_.met; ++i) {
      const float lse = own_.run.lse[i];
      if (!sees_[i] || !std::isfinite(lse)) continue;
      const std::vector<float> weights = recomputed_weights(
          problem_, kernel_, static_cast<std::int64_t>(i), lse, /*masked=*/false, how());
      for (std::size_t j = 0; j < weights.size(); ++j) {
        if (std::isfinite(weights[j])) continue;
        meet(i, -1, weights[j], infinity, kernel_.exp2.result.max_finite());
        d_.key = static_cast<std::int64_t>(j);
        d_.tile = d_.key / kernel_.tiles.keys;
        d_.stage = "backward";
        d_.event = std::isnan(weights[j]) ? "nan" : "infinity";
        d_.exact_lo = 0;
        d_.exact_hi = d_.key < candidate_.length() ? 1 : 0;
        break;
      }
    }
  }

  void swallowed_nan() {
    const auto holds_nan = [](const float* x, std::int64_t n) {
      return std::any_of(x, x + n, [](float a) { return std::isnan(a); });
    };
    const Shape& s = candidate_.shape;
    for (std::int64_t i = 0; i < s.queries; ++i) {
      const auto row = static_cast<std::size_t>(i);
      if (!sees_[row]) continue;
      bool nan = holds_nan(candidate_.query(i), s.channels);
      std::int64_t key = -1;
      for (std::int64_t j = 0; j < s.keys && !nan; ++j) {
        nan = problem_.visible(i, j) && holds_nan(candidate_.key(j), s.channels);
        if (nan) key = j;
      }
      if (!nan || holds_nan(&own_.run.output[row * dv_], s.value_channels)) continue;
      meet(row, 0, own_.run.output[row * dv_], 0, 0);
      d_.key = key;
      d_.exact_lo = d_.exact_hi = not_a_number;
      return;
    }
  }

  void gate_underestimate() {
    const std::optional<ExactGate> gate =
        exact_gate(head(), kernel_, target_.stabilizer, target_.parameters, how());
    if (!gate || target_.gate == GateChoice::certified) {
      d_.verdict = "the stabilizer has no gate of its own";
      return;
    }
    if (!own_.run.gate || !(gate->exact_lo > gate->limit)) return;
    meet(0, -1, gate->value, gate->exact_lo, gate->limit);
    d_.row = -1;
    d_.exact_lo = gate->exact_lo;
    d_.exact_hi = gate->exact_hi;
    d_.stage = "gate";
  }

  void needless_fallback() {
    const std::vector<Share> lost = lost_shares();
    double worst = 0, limit_of_worst = 0;
    std::size_t row = 0, channel = 0, seen = 0;
    for (std::size_t i = 0; i < sees_.size(); ++i) {
      if (!sees_[i]) continue;
      ++seen;
      std::size_t unused = 0;
      if (lost[i].hi > target_.eps || !std::isfinite(own_.run.lse[i]) || zero(i, unused)) return;
      for (std::size_t c = 0; c < dv_; ++c) {
        const double o = own_.run.output[i * dv_ + c];
        const double limit = target_.tolerance / 8 * largest_[i];
        if (!std::isfinite(o) || !defined(i, c)) return;
        const double error = error_of(o, i, c);
        if (error > limit) return;
        if (seen == 1 && c == 0) row = i, limit_of_worst = limit;
        if (error > worst) {
          worst = error;
          limit_of_worst = limit;
          row = i;
          channel = c;
        }
      }
    }
    if (seen == 0) return;
    meet(row, static_cast<std::int64_t>(channel), own_.run.output[row * dv_ + channel], worst,
         limit_of_worst);
    d_.stage = "gate";
  }

  /// The exact scores of a row's keys from the first visible one on, log2 units.
  std::vector<long double> exact_scores(std::int64_t row) const {
    const AttentionProblem& p = *multiplied_;
    const std::int64_t d = p.channels();
    std::vector<double> q(static_cast<std::size_t>(d)), k(q.size());
    p.q.load_row(row, q.data());
    const WideInterval factor = p.scale.log2_factor(200);
    std::vector<long double> scores;
    const KeyRange range = p.range(row);
    mpfr_t z;
    mpfr_init2(z, 200);
    for (std::int64_t j = range.begin; j < range.end; ++j) {
      p.k.load_row(j, k.data());
      const Real dot = exact_dot(q.data(), k.data(), d);
      mpfr_mul(z, dot.backend().data(), &factor.raw()->left, MPFR_RNDN);
      scores.push_back(mpfr_get_ld(z, MPFR_RNDN));
    }
    mpfr_clear(z);
    return scores;
  }

  /// NaN and infinities are in keys alone, and in none that a row sees.
  bool only_in_unseen_keys() const {
    Candidate without = candidate_;
    const AttentionProblem problem =
        problem_of(candidate_, kernel_.operand, target_.scale_of(candidate_.shape));
    for (std::int64_t j = 0; j < candidate_.length(); ++j) {
      bool seen = false;
      for (std::int64_t i = 0; !seen && i < problem.queries(); ++i) seen = problem.sees(i, j);
      if (!seen) std::fill_n(without.key(j), candidate_.shape.channels, 0.0F);
    }
    return all_finite(without);
  }

  /// A certificate says that all operands are finite that a row may see.
  void certified_nan() {
    if (only_in_unseen_keys()) {
      d_.verdict = "not looked at: no row sees what is NaN or infinite";
      return;
    }
    own_ = execute(target_, kernel_, candidate_, false);
    d_.output = own_.run.output;
    d_.lse = own_.run.lse;
    take_report(*own_.report);
    if (!own_.accepted || !own_.runs) return;
    meet(0, -1, not_a_number, infinity, kernel_.operand.max_finite());
    d_.row = -1;
    d_.claim = "operand.finite";
    d_.stage = "operand";
  }

  void claim() {
    const HeadReport& report = *own_.report;
    // "certified" says that the fixed path is taken
    if (report.has_gate && !own_.run.gate) {
      meet(0, -1, report.gate_value.hi(), infinity, report.gate_limit);
      d_.row = -1;
      d_.claim = "gate";
      d_.stage = "gate";
      return;
    }
    const Head head = this->head();
    const auto violation = [&](const simulation::ClaimViolation& v) {
      // what is not finite is worse than any share
      const bool a_share = v.expected == 1;
      const double amount = a_share && !std::isnan(v.found) ? v.found : infinity;
      if (d_.met && !(amount > d_.amount)) return;
      meet(static_cast<std::size_t>(v.row), -1, v.found, amount, v.expected);
      d_.claim = a_share ? v.what : v.what.starts_with("l ") ? "l.nonzero" : "output.finite";
    };
    if (kernel_.split.parts > 1) {  // l and LSE are a merge's; its outputs have to be numbers
      for (std::size_t x = 0; x < own_.run.output.size(); ++x) {
        const std::size_t i = x / dv_;
        if (!sees_[i] || std::isfinite(own_.run.output[x])) continue;
        violation({"output not finite", own_.run.output[x], 0, static_cast<std::int64_t>(i)});
      }
      return;
    }
    simulation::check_claims(report, kernel_, head, all_rows(problem_), own_.run, exact_,
                             violation);
    if (!head.modifiers.none()) return;
    const auto nk = static_cast<std::size_t>(problem_.keys());
    const auto tiles = static_cast<std::size_t>(own_.dump.tiles);
    for (std::size_t i = 0; i < sees_.size(); ++i) {
      if (!sees_[i] || own_.run.recomputed[i] != 0) continue;
      const auto part = [&](const std::vector<float>& all, std::size_t n) {
        return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(i * n),
                                  all.begin() + static_cast<std::ptrdiff_t>((i + 1) * n));
      };
      SimulationDump row;
      row.exponents = part(own_.dump.exponents, nk);
      row.weights = part(own_.dump.weights, nk);
      row.stored_weights = part(own_.dump.stored_weights, nk);
      row.corrections = part(own_.dump.corrections, tiles);
      const auto number = static_cast<std::int64_t>(i);
      simulation::check_row_claims(report, kernel_, number, row, exact_scores(number), violation);
    }
  }

  // --- What is said of a failure

  void take_report(const HeadReport& report) {
    d_.verdict = to_text(report.verdict);
    if (report.has_gate) {
      d_.gate_value = report.gate_value.hi();
      d_.gate_limit = report.gate_limit;
    }
    if (d_.claim.empty()) d_.claim = report.binding;
  }

  void finish() {
    fill_exact();
    fill_event();
    if (target_.gate != GateChoice::certified) {
      fill_gate();
      ask_the_certifier();
    }
  }

  /// The element's exact value, to double, from both sides: the same whatever decided it before.
  void fill_exact() {
    switch (d_.objective) {
      case Objective::saturation:
      case Objective::backward:
      case Objective::swallowed_nan:
      case Objective::gate_underestimate:
      case Objective::claim:
        return;
      case Objective::lost_mass:
      case Objective::absorption:
        d_.exact_lo = d_.exact_hi = 0;  // nothing is to be lost
        if (d_.objective == Objective::lost_mass) return;
        break;
      default:
        break;
    }
    const auto i = static_cast<std::size_t>(d_.row);
    const bool of_lse = d_.channel < 0;
    d_.exact_lo = of_lse ? exact_.lse_lo[i] : out_lo(i, static_cast<std::size_t>(d_.channel));
    d_.exact_hi = of_lse ? exact_.lse_hi[i] : out_hi(i, static_cast<std::size_t>(d_.channel));
    if (d_.objective == Objective::absorption) return;
    WideRow row(*multiplied_, d_.row);
    const auto element = [&](Rounding direction) {
      const headroom::Target to{fp64, direction};
      const LseBase base = kernel_.lse.base == ExponentBase::two ? LseBase::two : LseBase::natural;
      const Settled s = of_lse ? row.lse(base, to) : row.output(d_.channel, to);
      return s.rung == Rung::undecided ? not_a_number : decode(fp64, s.code);
    };
    const double lo = element(Rounding::downward), hi = element(Rounding::upward);
    if (!std::isnan(lo) && !std::isnan(hi)) {
      d_.exact_lo = lo;
      d_.exact_hi = hi;
    }
  }

  /// Which kinds of events explain an objective, best first.
  std::vector<EventKind> explaining() const {
    using enum EventKind;
    switch (d_.objective) {
      case Objective::lost_mass:
      case Objective::zero_row:
        return {flush, nan, infinity, absorption};
      case Objective::saturation:
        return {saturation};
      case Objective::absorption:
        return {absorption};
      case Objective::swallowed_nan:
        return {nan};
      case Objective::gate_underestimate:
      case Objective::needless_fallback:
      case Objective::backward:
        return {};
      default:
        return {infinity, nan, saturation, absorption, flush};
    }
  }

  /// The first event of the row: of the best kind that it has, infinity and NaN counting as one.
  void fill_event() {
    const std::vector<EventKind> kinds = explaining();
    const auto find = [&](const std::vector<SimulationEvent>& events) -> const SimulationEvent* {
      const auto before = [](const SimulationEvent& a, const SimulationEvent& b) {
        const auto place = [](const SimulationEvent& e) {
          return std::pair(e.tile < 0 ? std::numeric_limits<std::int64_t>::max() : e.tile, e.stage);
        };
        return place(a) < place(b);
      };
      const SimulationEvent* found = nullptr;
      for (const EventKind kind : kinds) {
        for (const SimulationEvent& e : events) {
          if (e.row != d_.row || e.kind != kind) continue;
          if (found == nullptr || (is_undefined(found->kind) && before(e, *found))) found = &e;
        }
        const bool more_of_the_same = kind == EventKind::infinity && kinds.size() > 1;
        if (found != nullptr && !more_of_the_same) break;
      }
      return found;
    };
    // of two executions, the one that is farther off
    const SimulationEvent* event = nullptr;
    if (!d_.variant.empty() && other_is_worse()) event = find(other_events_);
    if (event == nullptr) event = find(own_.run.events);
    if (event == nullptr && !d_.variant.empty()) event = find(other_events_);
    if (event != nullptr) {
      d_.stage = to_text(event->stage);
      d_.event = to_text(event->kind);
      if (d_.key < 0) d_.key = event->key;
      d_.tile = event->tile;
    }
    if (d_.stage.empty()) d_.stage = default_stage();
  }
  static bool is_undefined(EventKind kind) {
    return kind == EventKind::nan || kind == EventKind::infinity;
  }
  bool other_is_worse() const {
    const double middle = d_.exact_lo / 2 + d_.exact_hi / 2;
    return !std::isfinite(d_.variant_found) ||
           (std::isfinite(d_.found) &&
            std::fabs(d_.variant_found - middle) > std::fabs(d_.found - middle));
  }
  std::string default_stage() const {
    switch (d_.objective) {
      case Objective::wrong_lse:
        return "lse";
      case Objective::partition:
        return "merge";
      default:
        return "rounding";
    }
  }

  void fill_gate() {
    const std::optional<ExactGate> gate =
        exact_gate(head(), kernel_, target_.stabilizer, target_.parameters, how());
    if (!gate) return;
    d_.gate_value = gate->value;
    d_.gate_limit = gate->limit;
  }

  void ask_the_certifier() {
    const std::optional<CertifyOptions> options = policy_of(target_);
    if (!options) {
      d_.verdict = "no policy is about " + target_.stabilizer;
      return;
    }
    try {
      const HeadReport report = certify_head(head(), kernel_, *options);
      const double value = d_.gate_value, limit = d_.gate_limit;
      take_report(report);
      if (limit != 0) d_.gate_value = value, d_.gate_limit = limit;  // the kernel's own is known
    } catch (const InputError& error) {
      d_.verdict = error.what();
    }
  }

  const Target& target_;
  const Candidate& candidate_;
  const KernelModel& kernel_;
  Diagnosis& d_;
  AttentionProblem problem_;
  std::optional<AttentionProblem> multiplied_;
  Execution own_;
  EnclosedRows exact_;
  std::vector<bool> sees_, seen_by_any_;
  std::vector<double> largest_;  ///< |v| of a row's visible keys
  std::vector<SimulationEvent> other_events_;
  std::size_t dv_ = 0;
};

}  // namespace

Diagnosis diagnose(const Target& target, const Candidate& candidate, Objective objective) {
  const auto not_met = [&](const std::string& reason) {
    Diagnosis d;
    d.objective = objective;
    d.verdict = reason;
    return d;
  };
  const NearestRounding nearest;  // whatever the caller's
  try {
    Diagnosis d;
    d.objective = objective;
    Judge(target, candidate, d).decide();
    return d;
  } catch (const InputError& error) {
    return not_met(error.what());
  } catch (const std::invalid_argument& error) {
    return not_met(error.what());
  }
}

}  // namespace headroom::fuzz
