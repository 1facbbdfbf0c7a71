// What a fixed stabilizer is enclosed to do, against the kernels' own arithmetic emulated bit for
// bit (reference/stabilizer); gates that several heads share; data that are no numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/stabilizer/stabilizer.h"
#include "tests/unit/certify/judge.h"

namespace headroom {
namespace {

using simulation::Random;
using simulation::uniform;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Random operands of a format. The last channel of every key is 0, and so are all but the last of
/// query 0, which is a power of two: its mu shows the table value kappa of `clis` exactly.
Head random_head(Random& g, const Format& format, const Scale& scale) {
  const auto queries = static_cast<std::int64_t>(2 + simulation::below(g, 4));
  const auto keys = static_cast<std::int64_t>(1 + simulation::below(g, 24));
  const auto channels = static_cast<std::int64_t>(2 + simulation::below(g, 9));
  const int q_size = static_cast<int>(simulation::below(g, 8)) - 4;
  const int k_size = static_cast<int>(simulation::below(g, 6)) - 3;
  const double offset = simulation::random_value(format, g, k_size, 0);
  const auto value = [&](int size, double shift) {
    const double x = simulation::random_value(format, g, size, 3) + shift;
    return simulation::Arithmetic{format}.round(x);
  };
  Head head = cases::make_head(
      "random", queries, keys, channels, 2,
      [&](std::int64_t i, std::int64_t c) {
        if (i == 0) return c == channels - 1 ? 0x1p10 : 0.0;
        return value(q_size, 0);
      },
      [&](auto, std::int64_t c) { return c == channels - 1 ? 0.0 : value(k_size, offset); },
      [&](auto, auto) { return value(0, 0); }, format);
  head.scale = scale;
  if (simulation::below(g, 4) == 0) {
    head.visibility.length = 1 + static_cast<std::int64_t>(simulation::below(g, keys));
  }
  return head;
}

std::vector<KernelModel> kernels() {
  std::vector<KernelModel> all;
  for (const char* centring : {"none", "mean", "virtual"}) {
    for (const char* norm : {"fp32", "bf16"}) {
      for (const char* store : {"fp32", "bf16"}) {
        for (const char* up : {"true", "false"}) {
          for (const char* site : {"score", "query"}) {
            all.push_back(parse_kernel(
                "name = \"" + std::string(centring) + " norm " + norm + " store " + store + " up " +
                    up + " at " + site +
                    "\"\nmachine = \"ieee-fp32\"\noperand = \"bf16\"\n[scale]\nscale = \"" +
                    std::string(site) + "\"\nlog2e = \"score\"\n[centring]\nkeys = \"" + centring +
                    "\"\nmean = \"bf16\"\ndifference = \"bf16\"\n[stabilizer]\nnorm = \"" + norm +
                    "\"\nstore = \"" + store + "\"\nround_up = " + up +
                    "\n[gate]\nquery_block = " + (norm[0] == 'f' ? "0" : "2") + "\n",
                "k.toml"));
          }
        }
      }
    }
  }
  return all;
}

TEST(Policies, EncloseTheEmulatedStabilizers) {
  Random g(7);
  const Scale scales[] = {Scale::base2(1), Scale::reciprocal_sqrt(64), Scale::natural(-1),
                          Scale::natural(Rational(1, 3))};
  int compared = 0, clis_compared = 0;
  for (const KernelModel& kernel : kernels()) {
    for (int trial = 0; trial < 6; ++trial) {
      const Head head = random_head(g, bf16, scales[simulation::below(g, 4)]);
      for (const Policy policy :
           {Policy::fixed_m, Policy::fixed_m_n, Policy::clis_alg1, Policy::clis}) {
        const Prepared prepared(head, kernel, policy, 0x1p-10);
        if (!prepared.scan.finite) continue;
        StabilizerParameters parameters;
        if (policy == Policy::clis) {
          // mu_0 = |q_0| kappa - C exactly, |q_0| a power of two, if the store format holds it
          const Interval mu = prepared.stabilizer->mu(0);
          std::vector<double> q(static_cast<std::size_t>(head.channels()));
          prepared.operands.query_row(0, q.data());
          int exponent = 0;
          if (std::frexp(std::fabs(q.back()), &exponent) != 0.5) continue;
          const Interval kappa =
              (mu + Interval(prepared.stabilizer->cap())) * Interval(std::ldexp(1.0, 1 - exponent));
          if (kernel.stabilizer.store == bf16 || !mu.is_point() || !kappa.is_point()) continue;
          if (!(mu.lo() + prepared.stabilizer->cap() > 256)) continue;
          parameters.clis = ClisTable{prepared.stabilizer->cap(), kappa.lo(), 0, 0};
          ++clis_compared;
        }
        const auto emulated = make_stabilizer(std::string(to_text(policy)), head, kernel,
                                              prepared.operands, parameters);
        const std::string who = std::string(to_text(policy)) + " " + kernel.name +
                                head.scale.text() + " keys " + std::to_string(head.keys());
        EXPECT_EQ(emulated->exponent_cap(), prepared.stabilizer->cap()) << who;
        for (std::int64_t i = 0; i < head.queries(); ++i) {
          const double mu = emulated->mu(i);
          const Interval enclosed = prepared.stabilizer->mu(i);
          EXPECT_TRUE(enclosed.contains(mu))
              << mu << " in [" << enclosed.lo() << ", " << enclosed.hi() << "] row " << i << who;
          // and it is no sham enclosure
          if (kernel.stabilizer.norm == fp32 && kernel.stabilizer.store == fp32) {
            EXPECT_LE(enclosed.width(), 1.1 + 1e-4 * std::fabs(mu)) << who;
          }
          ++compared;
        }
        if (policy == Policy::clis) continue;  // its gate is the certificate, not a kernel's
        const GateOutcome gate = emulated->gate();
        const FixedStabilizer::Gate enclosed = prepared.stabilizer->gate();
        EXPECT_EQ(gate.limit, enclosed.limit) << who;
        EXPECT_TRUE(enclosed.value.contains(gate.value))
            << gate.value << " in [" << enclosed.value.lo() << ", " << enclosed.value.hi() << who;
        if (enclosed.accepts != Tri::unknown) {
          EXPECT_EQ(gate.accepts, enclosed.accepts == Tri::yes) << who;
        }
      }
    }
  }
  EXPECT_GT(compared, 3000);
  EXPECT_GT(clis_compared, 40);
}

// The exact exponents of every row lie below what the stabilizer says of them.
TEST(Policies, LargestExponentHoldsExactScores) {
  Random g(11);
  for (const KernelModel& kernel : kernels()) {
    for (int trial = 0; trial < 2; ++trial) {
      const Head head = random_head(g, bf16, Scale::base2(1));
      for (const Policy policy :
           {Policy::fixed_m, Policy::fixed_m_n, Policy::clis_alg1, Policy::clis}) {
        const Prepared prepared(head, kernel, policy, 0x1p-10);
        if (!prepared.scan.finite || !prepared.operands.keys_certain()) continue;
        const auto d = static_cast<std::size_t>(head.channels());
        std::vector<double> q(d), k(d), hi(d);
        for (std::int64_t i = 0; i < head.queries(); ++i) {
          prepared.operands.query_row(i, q.data());
          const double top = prepared.stabilizer->largest_exponent(i, Upper<Log2>(0)).value();
          for (std::int64_t j = 0; j < head.visibility.length; ++j) {
            prepared.operands.key_row(j, k.data(), hi.data());
            const auto z = simulation::exact_dot(q, k);
            EXPECT_LE(static_cast<double>(z - prepared.stabilizer->mu(i).lo()) - 1e-12, top)
                << to_text(policy) << kernel.name;
          }
          if (policy == Policy::clis) {
            // but for the rounding of the certifier's own arithmetic
            EXPECT_TRUE(top <= prepared.stabilizer->cap() + 1e-9 || !kernel.stabilizer.round_up)
                << kernel.name << " " << top - prepared.stabilizer->cap();
          }
        }
      }
    }
  }
}

TEST(Policies, OneGateOverABatch) {
  const KernelModel kernel = parse_kernel(
      "name = \"k\"\nmachine = \"ieee-fp32\"\noperand = \"bf16\"\n[gate]\n"
      "unit = \"head-over-batch\"\n",
      "k.toml");
  const auto entry = [](const std::string& prefix, std::int64_t batch, double q, double k) {
    Head head = cases::make_head(
        prefix + std::to_string(batch), 2, 4, 1, 1, [=](auto, auto) { return q; },
        [=](auto, auto) { return k; }, [](auto, auto) { return 1.0; });
    head.file = "file";
    head.prefix = prefix;
    head.has_batch = true;
    head.batch = batch;
    return head;
  };
  // |q| of one entry times |k| of the other: 20 20 = 400 > 213, while each alone is 20
  const std::vector<Head> heads = {entry("a.", 0, 20, 1), entry("a.", 1, 1, 20),
                                   entry("b.", 0, 20, 1)};
  CertifyOptions options;
  options.policy = Policy::fixed_m;
  const std::vector<HeadReport> reports = certify_heads(heads, kernel, options);
  for (int i : {0, 1}) {
    EXPECT_EQ(reports[i].gate_value.lo(), 400);
    EXPECT_EQ(reports[i].gate_value.hi(), 400);
    EXPECT_EQ(reports[i].gate_accepts, Tri::no);
    EXPECT_EQ(reports[i].verdict, Verdict::fallback);
  }
  EXPECT_EQ(reports[2].gate_value.hi(), 20);
  EXPECT_EQ(reports[2].gate_accepts, Tri::yes);
  for (const Head& head : heads) {  // alone, each passes
    EXPECT_EQ(certify_head(head, kernel, options).gate_value.hi(), 20);
  }
  // the emulation agrees
  const UpwardRounding up;
  const Operands a(up, heads[0], kernel), b(up, heads[1], kernel);
  StabilizerParameters joined;
  const auto other = make_stabilizer("fixed-m", heads[1], kernel, b);
  joined.joined_query_norm = other->largest_query_norm();
  joined.joined_key_norm = other->largest_key_norm();
  EXPECT_EQ(make_stabilizer("fixed-m", heads[0], kernel, a, joined)->gate().value, 400);
  // a batch neighbour that is NaN closes the gate for all
  std::vector<Head> poisoned = heads;
  poisoned[1] = entry("a.", 1, not_a_number, 20);
  const std::vector<HeadReport> with_nan = certify_heads(poisoned, kernel, options);
  EXPECT_EQ(with_nan[0].gate_accepts, Tri::no);
  EXPECT_NE(with_nan[0].verdict, Verdict::certified);
  EXPECT_EQ(with_nan[1].verdict, Verdict::refuted);
  EXPECT_EQ(with_nan[2].gate_accepts, Tri::yes);
}

// What is not a number never passes a gate and is never certified, wherever it stands.
TEST(Policies, NonFiniteDataAreRefuted) {
  for (const double bad : {not_a_number, infinity, -infinity}) {
    for (const char tensor : {'q', 'k', 'v'}) {
      for (const std::int64_t row : {0, 5}) {
        const auto value = [=](char of) {
          return [=](std::int64_t r, std::int64_t c) {
            return of == tensor && r == row && c == 1 ? bad : 0.5;
          };
        };
        const Head head = cases::make_head("bad", 6, 6, 3, 2, value('q'), value('k'), value('v'));
        for (const char* machine : {"ieee-fp32", "tpu7x", "hopper"}) {
          KernelModel kernel = preset(machine);
          kernel.operand = bf16;
          for (const Policy policy : {Policy::clis, Policy::clis_alg1, Policy::fixed_m,
                                      Policy::fixed_m_n, Policy::online}) {
            CertifyOptions options;
            options.policy = policy;
            const HeadReport report = certify_head(head, kernel, options);
            EXPECT_EQ(report.verdict, Verdict::refuted) << tensor << bad << machine;
            EXPECT_EQ(report.binding, "operand.finite");
            EXPECT_NE(report.gate_accepts, Tri::yes);
            EXPECT_EQ(report.reason.find(std::string(1, tensor) + "[" + std::to_string(row)) !=
                          std::string::npos,
                      true)
                << report.reason;
          }
        }
      }
    }
  }
}

// Beyond the length nothing is read, unless the kernel adds those keys or masks by selection.
TEST(Policies, NonFinitePaddingOnlyWhereItIsRead) {
  for (const char tensor : {'k', 'v'}) {
    const auto value = [=](char of) {
      return [=](std::int64_t r, auto) { return of == tensor && r == 5 ? not_a_number : 0.5; };
    };
    Head head = cases::make_head("padding", 2, 6, 3, 2, value('q'), value('k'), value('v'));
    head.visibility.length = 5;
    for (const char* padding : {"sliced", "masked", "zero-keys"}) {
      const KernelModel kernel = parse_kernel(
          "name = \"k\"\nmachine = \"ieee-fp32\"\noperand = \"bf16\"\n[tiles]\n"
          "keys = 8\npadding = \"" +
              std::string(padding) + "\"\n",
          "k.toml");
      for (const Policy policy : {Policy::clis, Policy::fixed_m, Policy::online}) {
        CertifyOptions options;
        options.policy = policy;
        const HeadReport report = certify_head(head, kernel, options);
        if (padding[0] == 's') {
          EXPECT_EQ(report.verdict, Verdict::certified) << padding << tensor << report.binding;
        } else if (tensor == 'v' || padding[0] == 'z') {
          // 0 NaN is NaN: a padded value reaches O even where its P is 0
          EXPECT_EQ(report.verdict, Verdict::refuted) << padding << tensor;
        }
      }
    }
  }
}

// Finite numbers whose scores, norms or weights overflow are never certified by a fixed policy.
TEST(Policies, NonFiniteGatesNeverAccept) {
  const KernelModel kernel =
      parse_kernel("name = \"k\"\nmachine = \"ieee-fp32\"\noperand = \"bf16\"\n", "k.toml");
  for (const double q : {0x1p64, 0x1p100, 0x1.fep127}) {
    for (const double k : {0x1p64, 0x1.fep127}) {
      const Head head = cases::make_head(
          "huge", 2, 3, 2, 1, [=](auto, auto) { return q; }, [=](auto, auto) { return k; },
          [](auto, auto) { return 1.0; });
      for (const Policy policy :
           {Policy::clis, Policy::clis_alg1, Policy::fixed_m, Policy::fixed_m_n, Policy::online}) {
        CertifyOptions options;
        options.policy = policy;
        const HeadReport report = certify_head(head, kernel, options);
        EXPECT_NE(report.verdict, Verdict::certified) << q << " " << k;
        EXPECT_NE(report.gate_accepts, Tri::yes) << q << " " << k << to_text(policy);
      }
    }
  }
}

// Arithmetic that is simulated but has no bound is never decided, whatever the policy. Only data
// that are no numbers still refute.
TEST(Policies, KernelsThatNoBoundCoversAreUndecided) {
  const auto head_with_key = [](double key) {
    return cases::make_head(
        "plain", 2, 6, 2, 1, [](auto, auto) { return 0.5; },
        [=](std::int64_t j, auto) { return j == 0 ? key : 0.25; }, [](auto, auto) { return 1.0; });
  };
  const Head plain = head_with_key(0.25), poisoned = head_with_key(not_a_number);
  const std::string stock = "name = \"k\"\nmachine = \"ieee-fp32\"\noperand = \"bf16\"\n";
  const std::pair<const char*, const char*> cases[] = {
      {"[numerator]\ndenormals_are_zero = true\n", "numerator.denormals_are_zero = true"},
      {"[score]\nsoftcap = \"exp-ratio\"\n", "score.softcap = exp-ratio"},
      {"[sink]\nplace = \"start\"\n", "sink.place = start"},
      {"[exponent]\nbase = \"e\"\n", "exponent.base = e"},
      {"[exp2]\nunit = \"fa4-poly3\"\n", "exp2.unit = fa4-poly3"},
      {"[exp2]\nfloor = \"2^-126\"\n", "exp2.floor = 0x1p-126"},
      {"[normalise]\nevery_tile = true\n", "normalise.every_tile = true"},
      {"[split]\nparts = 2\nmerge = \"accumulate\"\n", "split.merge = accumulate"}};
  for (const Policy policy :
       {Policy::clis, Policy::clis_alg1, Policy::fixed_m, Policy::fixed_m_n, Policy::online}) {
    CertifyOptions options;
    options.policy = policy;
    EXPECT_EQ(certify_head(plain, parse_kernel(stock, "k.toml"), options).verdict,
              Verdict::certified)
        << to_text(policy);
    for (const auto& [body, keys] : cases) {
      const KernelModel kernel = parse_kernel(stock + body, "k.toml");
      const HeadReport report = certify_head(plain, kernel, options);
      EXPECT_EQ(report.verdict, Verdict::undecided) << to_text(policy) << " " << body;
      EXPECT_EQ(report.reason, "no bound covers " + std::string(keys)) << to_text(policy);
      EXPECT_TRUE(report.claims.empty()) << to_text(policy) << " " << body;
      EXPECT_EQ(certify_head(poisoned, kernel, options).verdict, Verdict::refuted)
          << to_text(policy) << " " << body;
    }
  }
}

}  // namespace
}  // namespace headroom
