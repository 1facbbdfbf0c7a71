// Certified claims against the bit-exact simulator: random kernels, random and structured heads of
// many rows, every order and every answer of the units that a model allows. Independent of
// verdicts_test: another implementation, real loop stabilizers, exact values from the ladder.
//
// usage: simulator_test [--vector | --modified | --rules] ROWS [first seed [more seeds...]]: heads
// until so many rows were checked; --modified: all with windows, biases and the like; --vector:
// heads of 1024 rows and orders that the vector implementation covers; --rules: the policies fdpp
// and fa4 with random parameters, some heads with windows and the like, intermediates of single
// rows and claims that fail too. Prints violations and the tightest margins; exit status 1 if there
// is a violation. VERBOSE=1 adds kernels and claims.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "certify/certify.h"
#include "fuzz/claim_checks.h"
#include "reference/evaluate/ladder/ladder.h"
#include "reference/evaluate/simulate/compare.h"
#include "reference/evaluate/simulate/simulate.h"
#include "reference/input_error.h"
#include "reference/model/kernel_file.h"
#include "tests/property/random_instances.h"

namespace headroom::simulation {
namespace {

__extension__ using Quad = __float128;

/// How near an observed value came to its bound: the largest quotient.
struct Margin {
  double share = 0;
  long seed = 0;
  long checks = 0;
};

class Run {
 public:
  static bool vector_only, modified_only, rules;
  static long rows, violations, vectorised;
  static std::map<std::string, long> counts;
  static std::map<std::string, Margin> margins;

  explicit Run(long seed)
      : seed_(seed), g_(static_cast<std::uint64_t>(seed) * 0x9e3779b97f4a7c15ULL + 777) {}

  void go() {
    for (;;) {
      text_ = random_kernel_text(g_);
      try {
        kernel_ = parse_kernel(text_, "k.toml");
        break;
      } catch (const InputError&) {
      }
    }
    kernel_.tiles.queries = 16 << below(g_, 4);
    if (vector_only) {
      for (Accumulator* unit :
           {&kernel_.score.accumulator, &kernel_.denominator, &kernel_.numerator}) {
        if (unit->order.kind != OrderKind::sequential) unit->order = {OrderKind::tile, 16};
      }
      kernel_.tiles.keys = 16 << below(g_, 3);
    }
    head_ = random_head(g_, kernel_, vector_only ? 1024 : 64);
    if (!vector_only && chance(g_, 0.5)) aim_at_tiles();
    if (modified_only || (rules && chance(g_, 0.3))) add_modifiers(g_, head_);
    CertifyOptions options;
    options.policy =
        pick(g_, std::vector<Policy>{Policy::clis, Policy::clis, Policy::clis_alg1, Policy::fixed_m,
                                     Policy::fixed_m_n, Policy::online});
    if (rules) pick_rule(options);
    options.eps = pick(g_, std::vector<double>{0x1p-10, 0x1p-10, 0x1p-4, 0x1p-20, 0.5});
    const HeadReport report = certify_head(head_, kernel_, options);
    ++counts[std::string(to_text(options.policy)) + " " + std::string(to_text(report.verdict)) +
             (head_.modifiers.none() ? "" : ", modified")];
    const bool refuted = rules && report.verdict == Verdict::refuted && head_.modifiers.none();
    if (report.verdict != Verdict::certified && report.verdict != Verdict::fallback && !refuted) {
      return;
    }
    const AttentionProblem stored(head_);
    std::optional<AttentionProblem> multiplied;
    try {
      multiplied = multiplied_problem(stored, kernel_);
    } catch (const InputError&) {
      ++counts["kernels that cannot be simulated"];
      return;
    }
    if (!multiplied) {
      ++counts["a scale without exact form"];
      return;
    }
    if (refuted) return check_refuted(report, stored, *multiplied);
    const std::vector<std::int64_t> all = all_rows(stored);
    const EnclosedRows exact = enclosures(*multiplied, all, {});
    // bounds cost more than executions: many of each head
    const int repeats = vector_only ? 64 : 4;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      SimulationOptions how;
      how.seed = g_();
      if (repeat > 0) {
        if (!vector_only) how.order = static_cast<FreeOrder>(below(g_, 4));
        how.exp2 = static_cast<UnitChoice>(below(g_, 4));
        how.reciprocal = static_cast<UnitChoice>(below(g_, 4));
      }
      const auto loops = certified_loops(report, head_, kernel_, repeat % 4 == 1);
      for (const auto& loop : loops) {
        Simulated run;
        try {
          run = simulate(stored, kernel_, *loop, all, how);
        } catch (const InputError&) {
          ++counts["kernels that cannot be simulated"];
          return;
        }
        vectorised += run.vectorised ? 1 : 0;
        const long before = violations;
        check(report, run, exact, std::string(loop->name()));
        if (rules) check_rule(report, stored, *multiplied, *loop, run, how);
        if (violations > before && std::getenv("VERBOSE") != nullptr) {
          how.events = true;
          SimulationDump dump;
          show(simulate(stored, kernel_, *loop, std::vector<std::int64_t>{row_}, how, &dump), how);
          for (std::size_t j = 0; j < dump.scores.size(); ++j) {
            std::printf("  key %zu: score %a exponent %a weight %a P %a\n", j, dump.scores[j],
                        dump.exponents[j], dump.weights[j], dump.stored_weights[j]);
          }
        }
      }
    }
  }

 private:
  void pick_rule(CertifyOptions& options) {
    if (chance(g_, 0.15)) {
      kernel_.mask = {
          .form = chance(g_, 0.7) ? MaskForm::select : MaskForm::additive,
          .value = pick(g_, std::vector<double>{-30, -200, -1000, -10000, -1e9, -0x1p100})};
    }
    if (chance(g_, 0.15)) {
      options.policy = Policy::online;
      options.parameters = {
          {"initial_max", pick(g_, std::vector<double>{0, -20, -300, -1000, -50000})}};
      return;
    }
    if (chance(g_, 0.5)) {
      options.policy = Policy::fdpp;
      const double phi = chance(g_, 0.5) ? 0 : 30 * random_normal(g_);
      const double width = pick(g_, std::vector<double>{2, 8, 20, 60, 80, 120});
      const double middle = chance(g_, 0.5) ? 0 : width * (uniform(g_) - 0.5);
      options.parameters = {{"phi", phi}, {"a", middle - width / 2}, {"b", middle + width / 2}};
      if (chance(g_, 0.15)) options.parameters["a"] = -HUGE_VAL;
      if (chance(g_, 0.15)) options.parameters["b"] = HUGE_VAL;
      return;
    }
    options.policy = Policy::fa4;
    options.parameters = {
        {"threshold", pick(g_, std::vector<double>{0, 0.75, 4, 8, 8, 12, 16 * uniform(g_)})},
        {"offset", pick(g_, std::vector<double>{0, 0, 0, 8, -4, 3.3})},
        {"wave", pick(g_, std::vector<double>{1, 1, 0, 3})},
        {"running_max", chance(g_, 0.8) ? 1.0 : 0.0}};
    if (chance(g_, 0.3)) options.parameters.erase("threshold"), options.parameters.erase("offset");
    if (kernel_.numerator.order.kind != OrderKind::matrix_unit && chance(g_, 0.7)) {
      kernel_.tiles.keys = pick(g_, std::vector<int>{1, 2, 3, 8});
    }
    if (chance(g_, 0.25)) {
      kernel_.split = {
          .parts = 2 + static_cast<int>(below(g_, 3)),
          .merge = pick(g_, std::vector<MergeRule>{MergeRule::lse, MergeRule::lse,
                                                   MergeRule::lse_naive, MergeRule::lse_log1p}),
          .reads = kernel_.lse.base};
      if (chance(g_, 0.5)) options.policy = Policy::online, options.parameters.clear();
    }
  }

  /// Which rows were recomputed, and every intermediate of one row.
  void check_rule(const HeadReport& report, const AttentionProblem& stored,
                  const AttentionProblem& multiplied, LoopStabilizer& loop, const Simulated& run,
                  const SimulationOptions& how) {
    const auto violation = [&](const ClaimViolation& found) {
      row_ = found.row;
      fail(report, found.what, found.found, found.expected);
    };
    for (std::size_t i = 0; i < report.row_paths.of.size(); ++i) {
      if (visible_runs(head_, static_cast<std::int64_t>(i)).empty()) continue;
      const RowPath path = report.row_paths.of[i];
      const bool again = run.recomputed[i] != 0;
      ++counts[again ? "rows recomputed" : "rows that stayed"];
      if (path != RowPath::either && again != (path == RowPath::online)) {
        violation({"recomputed", double(again), double(!again), static_cast<std::int64_t>(i)});
      }
    }
    if (!head_.modifiers.none()) return;
    const auto row =
        static_cast<std::int64_t>(below(g_, static_cast<std::size_t>(head_.queries())));
    const KeyRange visible = head_.visibility.visible(row);
    if (visible.count() == 0) return;
    SimulationDump dump;
    simulate(stored, kernel_, loop, std::vector<std::int64_t>{row}, how, &dump);
    const std::vector<long double> exact = exact_scores(multiplied, row);
    for (const ClaimUse& use : check_row_claims(report, kernel_, row, dump, exact, violation)) {
      if (use.checks > 0) use_margin(report, use);
    }
  }

  /// Every execution of a row whose claim fails shows it.
  void check_refuted(const HeadReport& report, const AttentionProblem& stored,
                     const AttentionProblem& multiplied) {
    const auto loops = certified_loops(report, head_, kernel_, false);
    if (loops.empty()) return;
    for (const Claim& claim : report.claims) {
      if (!claim.required || claim.outcome() != ClaimOutcome::fails || claim.row < 0) continue;
      if (head_.visibility.visible(claim.row).count() == 0) continue;
      // the published row rule: what other readings do is not what was evaluated
      SimulationDump dump;
      Simulated run;
      try {
        run = simulate(stored, kernel_, *loops.back(), std::vector<std::int64_t>{claim.row}, {},
                       &dump);
      } catch (const InputError&) {
        ++counts["kernels that cannot be simulated"];
        return;
      }
      ++counts["claims that fail: " + claim.id];
      if (!shows_failure(claim, kernel_, dump, run.denominator[0],
                         exact_scores(multiplied, claim.row))) {
        row_ = claim.row;
        fail(report, "not shown: " + claim.id, claim.value.lo(), claim.value.hi());
      }
    }
  }

  std::vector<long double> exact_scores(const AttentionProblem& multiplied,
                                        std::int64_t row) const {
    const KeyRange visible = head_.visibility.visible(row);
    std::vector<long double> exact;
    const long double c = multiplied.scale.log2_factor().hi();
    std::vector<double> q(static_cast<std::size_t>(multiplied.channels())), k(q.size());
    multiplied.q.load_row(row, q.data());
    for (std::int64_t j = visible.begin; j < visible.end; ++j) {
      multiplied.k.load_row(j, k.data());
      Quad sum = 0;
      for (std::size_t i = 0; i < q.size(); ++i) sum += static_cast<Quad>(q[i]) * k[i];
      exact.push_back(static_cast<long double>(sum) * c);
    }
    return exact;
  }

  void use_margin(const HeadReport& report, const ClaimUse& use) {
    Margin& margin = margins[std::string(use.claim) + ", " + report.stabilizer];
    margin.checks += use.checks;
    if (use.share > margin.share) {
      margin.share = use.share;
      margin.seed = seed_;
    }
  }

  /// Many small tiles, blocks of rows that visit tiles which some of their rows cannot see.
  void aim_at_tiles() {
    kernel_.tiles.queries = pick(g_, std::vector<int>{1, 3, 17, 64});
    if (kernel_.numerator.order.kind != OrderKind::matrix_unit) {
      kernel_.tiles.keys = pick(g_, std::vector<int>{1, 2, 3, 8});
    }
    head_.visibility.kind =
        pick(g_, std::vector<MaskKind>{MaskKind::causal_top_left, MaskKind::causal_bottom_right});
  }

  static void show(const Simulated& run, const SimulationOptions& how) {
    std::printf("order %d exp2 %d reciprocal %d: l %a shift %a lse %a, outputs", int(how.order),
                int(how.exp2), int(how.reciprocal), run.denominator[0], run.shift[0], run.lse[0]);
    for (const float x : run.output) std::printf(" %a", x);
    std::printf("\n");
    for (const SimulationEvent& e : run.events) {
      std::printf("  %s at %s tile %lld key %lld channel %lld: %a -> %a\n", to_text(e.kind).c_str(),
                  to_text(e.stage).c_str(), static_cast<long long>(e.tile),
                  static_cast<long long>(e.key), static_cast<long long>(e.channel), e.before,
                  e.after);
    }
  }

  void check(const HeadReport& report, const Simulated& run, const EnclosedRows& exact,
             const std::string& loop) {
    loop_ = loop;
    for (std::int64_t i = 0; i < head_.queries(); ++i) {
      rows += visible_runs(head_, i).empty() ? 0 : 1;
    }
    const auto violation = [&](const ClaimViolation& found) {
      if (violations > 0 && std::getenv("VERBOSE") != nullptr) return;
      row_ = found.row;
      fail(report, found.what, found.found, found.expected);
    };
    if (kernel_.split.parts > 1) {  // l and LSE are a merge's; its outputs have to be numbers
      ++counts["runs of merged parts"];
      for (std::size_t x = 0; x < run.output.size(); ++x) {
        const auto i = static_cast<std::int64_t>(x) / head_.value_channels();
        if (!std::isfinite(run.output[x]) && !visible_runs(head_, i).empty()) {
          violation({"merged output not finite", run.output[x], 0, i});
        }
      }
      return;
    }
    for (const ClaimUse& use : check_claims(
             report, kernel_, head_, all_rows(AttentionProblem(head_)), run, exact, violation)) {
      if (use.checks > 0) use_margin(report, use);
    }
  }

  void fail(const HeadReport& report, const std::string& what, double a, double b) {
    ++violations;
    if (++counts["VIOLATION " + what.substr(0, 24)] > 6) return;
    std::printf(
        "VIOLATION %s: %.17g vs %.17g; seed %ld row %lld policy %s loop %s verdict %s N %lld d "
        "%lld "
        "len %lld mask %d scale %s\n",
        what.c_str(), a, b, seed_, static_cast<long long>(row_),
        std::string(to_text(report.policy)).c_str(), loop_.c_str(),
        std::string(to_text(report.verdict)).c_str(), static_cast<long long>(head_.keys()),
        static_cast<long long>(head_.channels()), static_cast<long long>(head_.visibility.length),
        static_cast<int>(head_.visibility.kind), head_.scale.text().c_str());
    if (std::getenv("VERBOSE") != nullptr && violations == 1) {
      std::printf("%s\n", text_.c_str());
      for (const Claim& c : report.claims) {
        std::printf("   %s [%.9g, %.9g] limit %.9g\n", c.id.c_str(), c.value.lo(), c.value.hi(),
                    c.limit);
      }
    }
  }

  long seed_;
  Random g_;
  std::string text_, loop_;
  KernelModel kernel_;
  Head head_;
  std::int64_t row_ = -1;
};

bool Run::vector_only = false, Run::modified_only = false, Run::rules = false;
long Run::rows = 0, Run::violations = 0, Run::vectorised = 0;
std::map<std::string, long> Run::counts;
std::map<std::string, Margin> Run::margins;

}  // namespace
}  // namespace headroom::simulation

int main(int argc, char** argv) {
  using headroom::simulation::Run;
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode.starts_with("--")) {
    (mode == "--vector"     ? Run::vector_only
     : mode == "--modified" ? Run::modified_only
                            : Run::rules) = true;
    --argc;
    ++argv;
  }
  const long rows = argc > 1 ? std::atol(argv[1]) : 100000;
  const long first = argc > 2 ? std::atol(argv[2]) : 1;
  for (int i = 3; i < argc; ++i) Run(std::atol(argv[i])).go();
  long heads = 0;
  for (; Run::rows < rows; ++heads) Run(first + heads).go();
  for (const auto& [what, count] : Run::counts) std::printf("%8ld  %s\n", count, what.c_str());
  std::printf("largest share of a bound that was used:\n");
  for (const auto& [what, margin] : Run::margins) {
    std::printf("  %-32s %.6f of %ld checks, seed %ld\n", what.c_str(), margin.share, margin.checks,
                margin.seed);
  }
  std::printf("%ld heads, %ld rows (%ld runs vectorised), %ld violations\n", heads, Run::rows,
              Run::vectorised, Run::violations);
  return Run::violations == 0 ? 0 : 1;
}
