// Verdicts against simulated kernels: random small adversarial heads, random kernel models, every
// policy. A certificate is checked against what the simulated kernel gives, a refutation has to be
// seen, claims have to bound what is simulated.
//
// usage: verdicts_test [heads [first seed [more seeds...]]]; prints violations, exit status 1 if
// there are any. VERBOSE=1 adds the kernel and the claims of a violation, SHOW=1 those of every
// head.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bounds/stabilizer.h"
#include "certify/certificate.h"
#include "certify/certify.h"
#include "certify/head_scan.h"
#include "certify/policy.h"
#include "reference/input_error.h"
#include "reference/model/kernel_file.h"
#include "reference/real/fp_environment.h"
#include "reference/stabilizer/stabilizer.h"
#include "tests/property/random_instances.h"
#include "tests/property/simulated_kernel.h"

namespace headroom::simulation {
namespace {

/// The operands as the simulated kernel multiplies them: folded and centred here, the mean summed
/// in a random order. Nothing if some value overflows.
std::optional<MultipliedHead> multiply_out(Random& g, const Head& head, const KernelModel& kernel,
                                           const Operands& operands) {
  MultipliedHead out;
  const auto d = static_cast<std::size_t>(head.channels());
  const auto length = static_cast<std::size_t>(head.visibility.length);
  const long double number = static_cast<long double>(static_cast<double>(head.scale.rational())) /
                             std::sqrt(static_cast<long double>(head.scale.radicand()));
  constexpr long double log2_of_e = 1.442695040888963407359924681001892137L;
  const auto factor_at = [&](FactorSite site, bool& present) {
    long double f = 1;
    present = false;
    if (kernel.scale.scale == site) f *= number, present = true;
    if (kernel.scale.log2e == site && !head.scale.is_base2()) f *= log2_of_e, present = true;
    return f;
  };
  bool present = false;
  const auto constant = [&](long double f) {
    return Arithmetic{kernel.scale.constant}.round(static_cast<double>(f));
  };
  const auto fold = [&](double x, double c) {
    return Arithmetic{kernel.operand}.round(Arithmetic{kernel.scale.arithmetic}.round(x * c));
  };
  const long double exact_q = factor_at(FactorSite::query, present);
  const double cq = constant(exact_q);
  const bool fold_q = present && exact_q != 1;
  const long double exact_k = factor_at(FactorSite::key, present);
  const double ck = constant(exact_k);
  const bool fold_k = present && exact_k != 1;
  out.factor = factor_at(FactorSite::score, present);
  out.multiplies = present && out.factor != 1;
  out.stored_factor = out.multiplies ? constant(out.factor) : 1;
  std::vector<double> row(d), lo(d), hi(d);
  for (std::int64_t i = 0; i < head.queries(); ++i) {
    head.q.load_row(i, row.data());
    if (fold_q) {
      for (double& x : row) x = fold(x, cq);
    }
    operands.query_row(i, lo.data());
    for (std::size_t c = 0; c < d; ++c) {
      if (lo[c] != row[c]) std::printf("VIOLATION folded query differs\n");
    }
    out.q.push_back(row);
  }
  for (std::int64_t j = 0; j < head.keys(); ++j) {
    head.k.load_row(j, row.data());
    if (fold_k) {
      for (double& x : row) x = fold(x, ck);
    }
    out.k.push_back(row);
    std::vector<double> v(static_cast<std::size_t>(head.value_channels()));
    head.v.load_row(j, v.data());
    out.v.push_back(v);
  }
  if (kernel.centring.keys == Centring::mean && length > 0) {
    const Arithmetic single{fp32};
    for (std::size_t c = 0; c < d; ++c) {
      std::vector<double> column;
      for (std::size_t j = 0; j < length; ++j) column.push_back(out.k[j][c]);
      const double sum = random_association(single, column, g);
      const auto n = static_cast<double>(length);
      const double mean =
          (g() & 1) != 0 ? single.round(sum / n) : single.multiply(sum, single.round(1 / n));
      const double stored = Arithmetic{kernel.centring.mean}.round(mean);
      for (std::size_t j = 0; j < length; ++j) {
        out.k[j][c] = Arithmetic{kernel.centring.difference}.add(out.k[j][c], -stored);
      }
    }
  }
  for (std::size_t j = 0; j < length; ++j) {
    operands.key_row(static_cast<std::int64_t>(j), lo.data(), hi.data());
    for (std::size_t c = 0; c < d; ++c) {
      if (!(lo[c] <= out.k[j][c] && out.k[j][c] <= hi[c])) {
        std::printf("VIOLATION key outside its enclosure\n");
      }
    }
  }
  if (kernel.tiles.padding == Padding::zero_keys) {
    const auto tile = static_cast<std::int64_t>(kernel.tiles.keys);
    out.padding = (tile - head.visibility.length % tile) % tile;
  }
  return out;
}

const Claim* find(const std::vector<Claim>& claims, const std::string& id,
                  const std::string& reference = "multiplied") {
  for (const Claim& c : claims) {
    if (c.id == id && c.reference == reference) return &c;
  }
  return nullptr;
}

class Run {
 public:
  explicit Run(std::uint64_t seed) : seed_(seed), g_(seed * 0x9e3779b97f4a7c15ULL + 12345) {}

  static long violations;
  static std::map<std::string, long> counts;

  void go() {
    std::string text;
    KernelModel kernel;
    for (;;) {
      text = random_kernel_text(g_);
      try {
        kernel = parse_kernel(text, "k.toml");
        break;
      } catch (const InputError&) {
      }
    }
    text_ = text;
    head_ = random_head(g_, kernel);
    const Policy policy =
        pick(g_, std::vector<Policy>{Policy::clis, Policy::clis_alg1, Policy::fixed_m,
                                     Policy::fixed_m_n, Policy::online});
    policy_ = policy;
    CertifyOptions options;
    options.policy = policy;
    options.eps = pick(g_, std::vector<double>{0x1p-10, 0x1p-10, 0x1p-4, 0x1p-20, 0.5, 1});
    if (chance(g_, 0.1)) options.evaluate_rows = 0;
    eps_ = options.eps;
    if (std::getenv("SHOW") != nullptr) {
      std::printf("%s\npolicy %s N %lld d %lld len %lld scale %s\n", text_.c_str(),
                  std::string(to_text(policy)).c_str(), static_cast<long long>(head_.keys()),
                  static_cast<long long>(head_.channels()),
                  static_cast<long long>(head_.visibility.length), head_.scale.text().c_str());
      const UpwardRounding up;
      const Operands operands(up, head_, kernel);
      std::vector<double> row(static_cast<std::size_t>(head_.channels()));
      for (std::int64_t j = 0; j < std::min<std::int64_t>(4, head_.keys()); ++j) {
        head_.k.load_row(j, row.data());
        for (const double x : row) std::printf("%g ", x);
        std::printf("\n");
      }
      for (const Interval& m : operands.stored_mean()) std::printf("[%a,%a] ", m.lo(), m.hi());
      std::fflush(stdout);
    }
    options.exact_rows = ExactRows{};
    report_ = certify_head(head_, kernel, options);
    expect_no_less_than_without_tighter_bounds(kernel, options);
    ++counts[std::string(to_text(policy)) + " " + std::string(to_text(report_.verdict)) +
             (report_.verdict == Verdict::refuted ? " " + report_.binding : "")];

    const UpwardRounding up;
    const Operands operands(up, head_, kernel);
    const HeadScan scan = scan_head(up, head_, kernel, operands);
    if (!scan.finite) return;
    std::optional<MultipliedHead> multiplied;
    {
      const NearestRounding nearest;
      multiplied = multiply_out(g_, head_, kernel, operands);
    }
    check_largest_scores(*multiplied);
    const bool online = report_.stabilizer == "online";
    std::unique_ptr<FixedStabilizer> fixed;
    std::unique_ptr<Stabilizer> emulated;
    if (policy != Policy::online) {
      fixed = make_fixed_stabilizer(up, policy, head_, kernel, operands, scan, norms_of(scan),
                                    options.eps);
      if (policy != Policy::clis) {
        emulated = make_stabilizer(std::string(to_text(policy)), head_, kernel, operands);
        const GateOutcome gate = emulated->gate();
        if (std::isfinite(gate.value) && !report_.gate_value.contains(gate.value)) {
          fail("gate value outside", gate.value, report_.gate_value.lo());
        }
        if ((report_.gate_accepts == Tri::yes && !gate.accepts) ||
            (report_.gate_accepts == Tri::no && gate.accepts)) {
          fail("gate decision", gate.value, report_.gate_limit);
        }
      }
    }
    bool failure_seen = false;
    const int repeats = report_.verdict == Verdict::refuted ? 4 : 3;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      const Bias bias = static_cast<Bias>(repeat == 0 ? 1 + below(g_, 5) : below(g_, 6));
      for (std::int64_t i = 0; i < head_.queries(); ++i) {
        const auto n = static_cast<std::size_t>(head_.visibility.visible(i).count());
        if (n == 0) continue;
        row_ = i;
        double mu = 0;
        if (fixed) {
          const Interval enclosed = fixed->mu(i);
          if (emulated) {
            mu = emulated->mu(i);
            if (!std::isnan(mu) && !enclosed.contains(mu)) fail("mu outside", mu, enclosed.lo());
          } else {
            mu = repeat % 3 == 0   ? enclosed.lo()
                 : repeat % 3 == 1 ? enclosed.hi()
                                   : rounded(up, kernel.stabilizer.store,
                                             Interval(enclosed.lo() / 2 + enclosed.hi() / 2), true)
                                         .hi();
            if (mu > enclosed.hi()) mu = enclosed.hi();
          }
        }
        const NearestRounding nearest;
        SimulatedKernel simulated(kernel, *multiplied, bias, g_);
        if (online) {
          if (multiplied->padding > 0) continue;
          check(kernel, simulated.online(static_cast<std::size_t>(i), n), report_.claims, true);
          if (simulated.alpha_above_one && holds(report_.claims, "correction.range")) {
            fail("correction above one", 1, 1);
          }
          failure_seen =
              failure_seen || seen(kernel, simulated.online(static_cast<std::size_t>(i), n));
        } else {
          const SimulatedRow r = simulated.fixed(static_cast<std::size_t>(i), n, mu);
          check(kernel, r, report_.claims, report_.verdict == Verdict::certified);
          failure_seen = failure_seen || seen(kernel, r);
        }
        if (fixed && online) {
          check(kernel, simulated.fixed(static_cast<std::size_t>(i), n, mu), report_.fixed_claims,
                false);
        }
      }
    }
    // one execution may fail where those above do not: it is of other orders and answers of units
    if (report_.execution) {
      ++counts[failure_seen ? "executions that refute, seen" : "executions that refute, not seen"];
    } else if (report_.verdict == Verdict::refuted && !failure_seen &&
               report_.binding != "empty.row") {
      if (!(online && multiplied->padding > 0)) fail("refutation not seen", report_.margin_bits, 0);
    }
  }

 private:
  /// Tighter bounds may decide more, never less, and never otherwise. Without exact evaluation, so
  /// that bounds alone decide.
  void expect_no_less_than_without_tighter_bounds(const KernelModel& kernel,
                                                  CertifyOptions options) {
    options.exact_rows.reset();
    options.evaluate_rows = 0;
    const HeadReport with = certify_head(head_, kernel, options);
    options.tighter_bounds = false;
    const HeadReport without = certify_head(head_, kernel, options);
    if (without.verdict != Verdict::undecided && with.verdict != without.verdict) {
      fail("verdict changed by tighter bounds", with.margin_bits, without.margin_bits);
    }
    if (with.verdict != Verdict::undecided && report_.verdict != Verdict::undecided &&
        with.verdict != report_.verdict) {
      fail("tighter bounds against exact evaluation", with.margin_bits, report_.margin_bits);
    }
    if (with.rows_undecided > without.rows_undecided) {
      fail("rows undecided by tighter bounds", static_cast<double>(with.rows_undecided),
           static_cast<double>(without.rows_undecided));
    }
    if (with.rows_undecided < without.rows_undecided) ++counts["rows decided by tighter bounds"];
    if (with.verdict != without.verdict) ++counts["heads decided by tighter bounds"];
  }

  /// The largest scores of the multiplied operands lie in their enclosures and below every bound.
  void check_largest_scores(const MultipliedHead& multiplied) {
    if (!report_.bounds) return;
    for (const EvaluatedRow& e : report_.bounds->evaluated) {
      row_ = e.row;
      const auto n = static_cast<std::size_t>(head_.visibility.visible(e.row).count());
      const std::vector<double>& q = multiplied.q[static_cast<std::size_t>(e.row)];
      long double largest = -INFINITY, terms = 0;
      for (std::size_t j = 0; j < n; ++j) {
        long double dot = 0, size = 0;
        for (std::size_t c = 0; c < q.size(); ++c) {
          const long double term = static_cast<long double>(q[c]) * multiplied.k[j][c];
          dot += term, size += std::fabs(term);
        }
        largest = std::fmax(largest, multiplied.factor * dot);
        terms = std::fmax(terms, std::fabs(multiplied.factor) * size);
      }
      // of the test's own sums and factor, in long doubles
      const long double slack = 0x1p-55L * terms + 0x1p-1070L;
      if (e.largest.hi() < largest - slack || e.largest.lo() > largest + slack) {
        fail("largest score outside", static_cast<double>(largest), e.largest.hi());
      }
      for (const ScoreBound bound : score_bounds) {
        if (e.bounds[bound].value() < largest - slack) {
          fail(std::string(to_text(bound)).c_str(), static_cast<double>(largest),
               e.bounds[bound].value());
        }
      }
    }
  }

  static bool holds(const std::vector<Claim>& claims, const std::string& id) {
    const Claim* c = find(claims, id);
    return c != nullptr && c->kind != LimitKind::none && c->outcome() == ClaimOutcome::holds;
  }

  bool seen(const KernelModel& kernel, const SimulatedRow& r) const {
    const std::string& b = report_.binding;
    if (b == "score.range") return r.overflow_score;
    if (r.overflow_score) return true;
    if (b == "exponent.upper") return r.exp2_overflows;
    if (b == "p.range") return r.p_overflows;
    if (b == "l.range") return r.l_overflows;
    if (b == "o.range") return r.o_overflows;
    if (b == "mass.lost") return r.lost > eps_;
    if (b == "product.flush") return r.flushed_share > eps_;
    if (b == "l.nonzero") {
      const Normalisation& n = kernel.normalise;
      return !(r.l > 0) || !std::isfinite(1 / r.l) || !r.finite ||
             (n.guard == DenominatorGuard::maximum && r.l < n.guard_value);
    }
    if (b == "normalise.range") return r.reciprocal == 0 || !r.finite;
    return true;
  }

  void check(const KernelModel& kernel, const SimulatedRow& r, const std::vector<Claim>& claims,
             bool promised) {
    if (claims.empty()) return;
    const bool certified =
        promised && (report_.verdict == Verdict::certified || report_.verdict == Verdict::fallback);
    if (certified) {
      ++counts["rows certified or fallback"];
      if (r.overflow_score) fail("score overflows", 0, 0);
      if (!r.finite) fail("not finite", r.l, r.largest_weight);
      if (!(r.l > 0)) fail("l is not positive", r.l, 0);
      if (r.lost > eps_ * (1 + 1e-12)) fail("mass lost", r.lost, eps_);
      if (r.padded > eps_ * (1 + 1e-12)) fail("padding mass", r.padded, eps_);
      if (kernel.normalise.division == Division::reciprocal && !(r.reciprocal > 0)) {
        fail("reciprocal", r.reciprocal, r.l);
      }
      if (kernel.normalise.guard == DenominatorGuard::maximum &&
          r.l < kernel.normalise.guard_value) {
        fail("guard active", r.l, kernel.normalise.guard_value);
      }
    }
    if (r.overflow_score) return;
    const auto at_most = [&](const char* id, double value, bool log) {
      const Claim* c = find(claims, id);
      if (c == nullptr || std::isnan(value)) return;
      if (value == 0 && log) return;
      const double x = log ? std::log2(value) : value;
      const double slack = 1e-11 * (1 + std::fabs(x));
      if (x > c->value.hi() + (log ? slack : std::fabs(x) * 1e-11)) fail(id, x, c->value.hi());
    };
    at_most("score.error", r.largest_score_error - 1e-11 * std::fabs(r.mu), false);
    at_most("exponent.upper", r.largest_exponent, false);
    if (!r.exp2_overflows) at_most("p.range", r.largest_weight, true);
    if (!r.p_overflows && !r.exp2_overflows) {
      at_most("l.range", r.l, true);
      at_most("o.range", r.largest_o, true);
      const Claim* l = find(claims, "l.nonzero");
      if (l != nullptr && std::isfinite(r.l)) {
        const double x = r.l > 0 ? std::log2(r.l) : -INFINITY;
        if (x < l->value.lo() - 1e-11 * (1 + std::fabs(x))) fail("l.nonzero", x, l->value.lo());
      }
    }
    at_most("mass.lost", r.lost * (1 - 1e-12), false);
    if (!r.exp2_overflows && find(claims, "mask.mass") != nullptr)
      at_most("mask.mass", r.padded * (1 - 1e-12), false);
    at_most("product.flush", r.flushed_share * (1 - 1e-12), false);
    if (certified) {
      at_most("output.error", r.output_error * (1 - 1e-12) - 1e-300, false);
      at_most("lse.error", r.lse_error - 1e-13 - 1e-15 * std::fabs(r.mu), false);
    }
  }

  void fail(const std::string& what, double a, double b) {
    ++violations;
    ++counts["VIOLATION " + what];
    if (counts["VIOLATION " + what] > 6) return;
    std::printf(
        "VIOLATION %s: %.17g vs %.17g; seed %llu row %lld policy %s stab %s verdict %s binding %s "
        "eps %g N %lld d %lld len %lld mask %d scale %s gate [%g,%g] <= %g\n",
        what.c_str(), a, b, static_cast<unsigned long long>(seed_), static_cast<long long>(row_),
        std::string(to_text(policy_)).c_str(), report_.stabilizer.c_str(),
        std::string(to_text(report_.verdict)).c_str(), report_.binding.c_str(), eps_,
        static_cast<long long>(head_.keys()), static_cast<long long>(head_.channels()),
        static_cast<long long>(head_.visibility.length), static_cast<int>(head_.visibility.kind),
        head_.scale.text().c_str(), report_.gate_value.lo(), report_.gate_value.hi(),
        report_.gate_limit);
    if (std::getenv("VERBOSE") != nullptr) {
      std::printf("%s\n", text_.c_str());
      for (const Claim& c : report_.claims) {
        std::printf("   %s [%.9g, %.9g] limit %.9g %s row %lld\n", c.id.c_str(), c.value.lo(),
                    c.value.hi(), c.limit, std::string(to_text(c.outcome())).c_str(),
                    static_cast<long long>(c.row));
      }
    }
  }

  std::uint64_t seed_;
  Random g_;
  std::string text_;
  Head head_;
  HeadReport report_;
  Policy policy_ = Policy::clis;
  double eps_ = 0;
  std::int64_t row_ = -1;
};

long Run::violations = 0;
std::map<std::string, long> Run::counts;

}  // namespace
}  // namespace headroom::simulation

namespace {
volatile long current_seed = 0;
void on_abort(int) {
  std::printf("VIOLATION aborted at seed %ld\n", current_seed), std::fflush(stdout);
}
}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGABRT, on_abort);
  using headroom::simulation::Run;
  const long heads = argc > 1 ? std::atol(argv[1]) : 2000;
  const long first = argc > 2 ? std::atol(argv[2]) : 1;
  std::vector<long> seeds;
  for (long seed = first; seed < first + heads; ++seed) seeds.push_back(seed);
  for (int i = 3; i < argc; ++i) seeds.push_back(std::atol(argv[i]));
  for (const long seed : seeds) {
    current_seed = seed;
    Run(static_cast<std::uint64_t>(seed)).go();
  }
  for (const auto& [what, count] : Run::counts) std::printf("%8ld  %s\n", count, what.c_str());
  std::printf("%ld heads, %ld violations\n", heads, Run::violations);
  return Run::violations == 0 ? 0 : 1;
}
