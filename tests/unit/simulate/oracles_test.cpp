// What every kernel has to do, whatever its arithmetic: V = 1 gives 1, q = 0 the mean, hidden bits
// change nothing, parts and other rows do not matter. Expected values are exact attention's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "reference/evaluate/ladder/ladder.h"
#include "reference/evaluate/simulate/simulate.h"
#include "reference/input_error.h"
#include "tests/unit/simulate/tiny_kernels.h"

namespace headroom {
namespace {

using tiny::Dice;
using tiny::matrix;
using tiny::problem_of;
using tiny::same;

constexpr double infinity = std::numeric_limits<double>::infinity();

KernelModel fp32_kernel() {
  KernelModel k = preset("ieee-fp32");
  k.name = "oracle";
  k.facts.clear();
  return k;
}

/// Every stabilizer that needs no table.
std::vector<std::string> stabilizers() {
  std::vector<std::string> names;
  for (const LoopDescription& description : loop_stabilizers()) {
    if (description.name != "clis" && description.name != "softcap-max") {
      names.push_back(description.name);
    }
  }
  return names;
}

/// Random numbers of about `size`, none of them odd ones.
Matrix normal(Dice& dice, const Format& format, std::int64_t rows, std::int64_t columns,
              double size) {
  return matrix(format, rows, columns, [&](auto, auto) { return dice.normal() * size; });
}
Matrix integers(Dice& dice, const Format& format, std::int64_t rows, std::int64_t columns,
                std::int64_t most) {
  return matrix(format, rows, columns,
                [&](auto, auto) { return static_cast<double>(dice.between(-most, most)); });
}

Simulated run(const AttentionProblem& p, const KernelModel& k, const std::string& stabilizer,
              const std::vector<std::int64_t>& rows, const SimulationOptions& options = {}) {
  return simulate(p, k, *make_loop_stabilizer(stabilizer), rows, options);
}

void expect_same(const Simulated& a, const Simulated& b, const std::string& where) {
  ASSERT_EQ(a.output.size(), b.output.size());
  for (std::size_t i = 0; i < a.output.size(); ++i) {
    ASSERT_TRUE(same(a.output[i], b.output[i]))
        << where << ": " << a.output[i] << " and " << b.output[i];
  }
  for (std::size_t i = 0; i < a.lse.size(); ++i) ASSERT_TRUE(same(a.lse[i], b.lse[i])) << where;
}

// P of p bits against an l of unrounded weights: a weight moves by at most u / (1 + u), u = 2^-p,
// of itself, or by half the least subnormal; FP32 sums of n terms move by at most (n - 1) 2^-24
// each, relatively; the division and the output's rounding come on top.
TEST(SimulationOracles, OnesGiveOne) {
  Dice dice(1);
  for (int i = 0; i < 300; ++i) {
    KernelModel k = fp32_kernel();
    k.p.format = dice.pick({fp32, bf16, fp16, tf32, e4m3fn, e5m2});
    k.p.denominator_rounded = dice.coin();
    k.exp2.flush_to_zero = dice.coin();
    k.tiles.keys = static_cast<int>(dice.between(1, 40));
    k.numerator.order =
        dice.pick({AccumulationOrder{OrderKind::sequential}, AccumulationOrder{OrderKind::pairwise},
                   AccumulationOrder{OrderKind::lanes, 4}});
    const std::int64_t n = dice.between(1, 300);
    const AttentionProblem p =
        problem_of(normal(dice, bf16, 3, 8, 2), normal(dice, bf16, n, 8, 1),
                   matrix(bf16, n, 1, [](auto, auto) { return 1.0; }), Scale::reciprocal_sqrt(8));
    for (const char* name : {"online-scaled", "online-fa2", "online-splash"}) {
      const Simulated one = run(p, k, name, all_rows(p));
      for (std::size_t r = 0; r < 3; ++r) {
        const double u = std::ldexp(1.0, -k.p.format.precision);
        const double rounding = k.p.denominator_rounded
                                    ? 0
                                    : u / (1 + u) + std::ldexp(static_cast<double>(n),
                                                               k.p.format.least_exponent() - 1) /
                                                        static_cast<double>(one.denominator[r]);
        EXPECT_NEAR(one.output[r], 1, rounding + (2.0 * static_cast<double>(n) + 4) * 0x1p-24)
            << name << ' ' << k.p.format.name << ' ' << n;
      }
    }
  }
}

// 1/257 is what BF16 weights can lose: weights just below a midpoint, (1 + 2^-8) / 2.
TEST(SimulationOracles, OnesLoseAtMostOne257thToBf16) {
  constexpr std::int64_t n = 20001;
  KernelModel k = fp32_kernel();
  k.p.format = bf16;
  const double midpoint = std::log2((1 + 0x1p-8) / 2);
  const AttentionProblem p = problem_of(
      matrix(fp32, 1, 1, [](auto, auto) { return 1.0; }),
      matrix(fp32, n, 1, [&](std::int64_t j, auto) { return j == 0 ? 0 : midpoint - 1e-6; }),
      matrix(fp32, n, 1, [](auto, auto) { return 1.0; }), Scale::base2(1));
  const double output = run(p, k, "online-scaled", {0}).output[0];
  EXPECT_GT(output, 1 - 1.0 / 257 - 0x1p-20);
  EXPECT_LT(output, 1 - 1.0 / 257 + 1e-4);
}

// Equal weights: integer values give exactly RN(sum / n) where P is a power of two.
TEST(SimulationOracles, ZeroQueryGivesTheMean) {
  Dice dice(2);
  for (int i = 0; i < 40; ++i) {
    KernelModel k = fp32_kernel();
    k.p.format = dice.pick({fp32, bf16});
    k.tiles.keys = static_cast<int>(dice.between(1, 40));
    k.tiles.queries = 4;
    const std::int64_t n = dice.between(1, 200), rows = 6;
    AttentionProblem p = problem_of(matrix(bf16, rows, 4, [](auto, auto) { return 0.0; }),
                                    normal(dice, bf16, n, 4, 3), integers(dice, bf16, n, 2, 100),
                                    Scale::reciprocal_sqrt(4));
    if (dice.coin()) {
      for (std::int64_t j = 0; j < n; ++j) p.mask.push_back(dice.one_in(3) ? 0 : 1);
    }
    for (const std::string& name : stabilizers()) {
      const Simulated mean = run(p, k, name, all_rows(p));
      for (std::int64_t c = 0; c < 2; ++c) {
        double sum = 0, count = 0, magnitude = 0;
        std::vector<double> v(2);
        for (std::int64_t j = 0; j < n; ++j) {
          if (!p.visible(0, j)) continue;
          p.v.load_row(j, v.data());
          sum += v[static_cast<std::size_t>(c)];
          magnitude += std::fabs(v[static_cast<std::size_t>(c)]);
          count += 1;
        }
        const double expected = count == 0 ? 0 : sum / count;
        const bool power_of_two =
            name != "llama-offset" && name != "fdpp-untested" && name != "clis-alg1";
        // other weights: P as BF16 is off by 2^-8, in l it is not
        const double width =
            power_of_two ? std::fabs(expected) * 0x1p-24
                         : (k.p.format == bf16 ? 0x1p-8 : 1e-4) * magnitude / std::max(1.0, count);
        for (std::int64_t r = 0; r < rows; ++r) {
          EXPECT_NEAR(mean.output[static_cast<std::size_t>(r * 2 + c)], expected, width)
              << name << " n " << n;
        }
      }
    }
  }
}

// Keys past the length are never read by kernels that slice; hidden keys only take part as P = 0.
TEST(SimulationOracles, PaddedAndHiddenBitsChangeNothing) {
  Dice dice(3);
  for (int i = 0; i < 250; ++i) {
    KernelModel k = tiny::random_kernel(dice);
    k.tiles.padding = Padding::sliced;
    k.mask = {};
    k.exp2.floor = 0;
    AttentionProblem p = tiny::random_problem(dice, k.operand, false);
    if (p.bias && !k.score.scale_before_store) p.bias.reset();
    if (p.softcap && p.bias) p.softcap.reset();
    const std::int64_t d = p.channels(), dv = p.value_channels(), n = p.keys();
    const auto changed = [&](const Matrix& m, std::int64_t columns, const auto& replaced) {
      return matrix(m.format(), n, columns, [&](std::int64_t j, std::int64_t c) {
        return replaced(j) ? dice.pick({65504.0, -0x1p-10, 3.0, -7.5})
                           : decode(m.format(), m.code(j, c));
      });
    };
    const auto padded = [&](double poison) {
      AttentionProblem q = p;
      const auto with = [&](const Matrix& m, std::int64_t columns) {
        return matrix(m.format(), n, columns, [&](std::int64_t j, std::int64_t c) {
          return j >= p.visibility.length ? poison : decode(m.format(), m.code(j, c));
        });
      };
      q.k = with(p.k, d);
      q.v = with(p.v, dv);
      return q;
    };
    const std::vector<std::int64_t> rows = all_rows(p);
    for (const std::string& name : stabilizers()) {
      Simulated plain;
      try {
        plain = run(p, k, name, rows);
      } catch (const InputError&) {
        continue;
      }
      if (p.visibility.length < n) {
        for (const double poison : {std::nan(""), infinity, -infinity, 60000.0, 0x1p-24}) {
          expect_same(plain, run(padded(poison), k, name, rows), name + " padded");
        }
      }
      // rules that look at keys before the loop look at hidden ones too
      if (k.centring.keys != Centring::none || !name.starts_with("online")) continue;
      AttentionProblem hidden = p;
      const auto unseen = [&](std::int64_t j) {
        for (const std::int64_t r : rows) {
          if (p.sees(r, j)) return false;
        }
        return true;
      };
      hidden.k = changed(p.k, d, unseen);
      hidden.v = changed(p.v, dv, unseen);
      expect_same(plain, run(hidden, k, name, rows), name + " hidden");
    }
  }
}

// Whatever the split and the merge, exact attention within FP32's rounding: scores below 64 in
// magnitude move a weight by at most 2^-24 (64 (d + 4)) ln 2, and log-sum-exps too.
TEST(SimulationOracles, EveryPartitionIsExactAttention) {
  Dice dice(4);
  for (int i = 0; i < 60; ++i) {
    KernelModel k = fp32_kernel();
    k.tiles.keys = static_cast<int>(dice.between(1, 6));
    k.tiles.queries = 2;
    k.exponent.base = dice.pick({ExponentBase::two, ExponentBase::e});
    k.lse.base = k.split.reads = dice.pick({ExponentBase::two, ExponentBase::e});
    const std::int64_t n = dice.between(1, 24), rows = 4;
    AttentionProblem p = problem_of(normal(dice, fp32, rows, 4, 2), normal(dice, fp32, n, 4, 2),
                                    normal(dice, fp32, n, 2, 1), Scale::natural(Rational(1, 2)));
    switch (dice.between(0, 4)) {
      case 0:
        p.visibility.kind = MaskKind::causal_bottom_right;
        break;
      case 1:
        p.visibility.kind = MaskKind::causal_top_left;
        break;
      case 2:  // leading hidden keys, and holes
        for (std::int64_t j = 0; j < n; ++j) p.mask.push_back(j < n / 2 || dice.one_in(4) ? 0 : 1);
        break;
      case 3:
        p.sink = dice.normal();
        break;
      default:
        break;
    }
    k.sink = dice.pick({SinkPlace::end, SinkPlace::start});
    LadderOptions ladder;
    ladder.output.format = ladder.lse.format = fp64;
    const RoundedRows exact = correctly_rounded(p, all_rows(p), ladder);
    const double width = 64 * 8 * 0x1p-24;
    const auto check = [&](const std::string& name, const std::string& where) {
      const Simulated got = run(p, k, name, all_rows(p));
      for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
        for (std::int64_t c = 0; c < 2; ++c) {
          ASSERT_NEAR(got.output[r * 2 + static_cast<std::size_t>(c)],
                      decode(fp64, exact.output_code(r, c)), 4 * width)
              << where << " row " << r << " seed " << i;
        }
        const double lse = decode(fp64, exact.lse_code(r)) *
                           (k.lse.base == ExponentBase::two ? 1.4426950408889634 : 1);
        if (std::isinf(lse)) {
          ASSERT_EQ(got.lse[r], lse) << where;
        } else {
          ASSERT_NEAR(got.lse[r], lse, 4 * width) << where << " row " << r << " seed " << i;
        }
      }
    };
    for (const int parts : {1, 2, 3, 5, 8, 30}) {
      k.split.parts = parts;
      const std::string where = " in " + std::to_string(parts) + " parts";
      k.split.merge = MergeRule::lse;
      for (const char* name : {"online-scaled", "online-fa2", "online-fa3", "online-splash",
                               "fa4-row", "fa4-tile1", "online-flashinfer", "fdpp"}) {
        check(name, name + where);
      }
      // added parts need one mu, which is no sink's
      if (!p.sink || k.sink == SinkPlace::end) {
        k.split.merge = MergeRule::accumulate;
        check("static-max", "accumulate" + where);
      }
    }
  }
}

// Which rows are asked for, and in which order, changes no bit; nor does a second run.
TEST(SimulationOracles, OtherRowsDoNotMatter) {
  Dice dice(5);
  for (int i = 0; i < 150; ++i) {
    const KernelModel k = tiny::random_kernel(dice);
    const AttentionProblem p = tiny::random_problem(dice, k.operand, dice.one_in(3));
    SimulationOptions options;
    options.order = dice.pick(
        {FreeOrder::ascending, FreeOrder::descending, FreeOrder::pairwise, FreeOrder::random});
    options.seed = static_cast<std::uint64_t>(i);
    const auto dv = static_cast<std::size_t>(p.value_channels());
    for (const std::string& name : stabilizers()) {
      Simulated all;
      try {
        all = run(p, k, name, all_rows(p), options);
      } catch (const InputError&) {
        continue;
      }
      std::vector<std::int64_t> some;
      for (std::int64_t r = 0; r < p.queries(); ++r) {
        if (dice.coin()) some.push_back(r);
      }
      std::reverse(some.begin(), some.end());
      const Simulated chosen = run(p, k, name, some, options);
      for (std::size_t s = 0; s < some.size(); ++s) {
        const auto r = static_cast<std::size_t>(some[s]);
        for (std::size_t c = 0; c < dv; ++c) {
          ASSERT_TRUE(same(chosen.output[s * dv + c], all.output[r * dv + c]))
              << name << " row " << r << " seed " << i;
        }
        ASSERT_TRUE(same(chosen.lse[s], all.lse[r])) << name << " row " << r << " seed " << i;
        ASSERT_EQ(chosen.recomputed[s], all.recomputed[r]);
      }
    }
  }
}

// A vector added to every key leaves O and moves LSE by c <q, a>; integers keep everything exact.
TEST(SimulationOracles, CommonKeyShiftMovesOnlyLse) {
  Dice dice(6);
  for (int i = 0; i < 60; ++i) {
    KernelModel k = fp32_kernel();
    k.p.format = dice.pick({fp32, bf16, fp16});
    k.lse.base = ExponentBase::two;
    k.tiles.keys = static_cast<int>(dice.between(1, 8));
    const std::int64_t n = dice.between(1, 30);
    const Matrix q = integers(dice, fp32, 1, 3, 4), keys = integers(dice, fp32, n, 3, 3);
    const Matrix v = normal(dice, fp32, n, 2, 1);
    std::vector<double> shift, query(3);
    for (int c = 0; c < 3; ++c) shift.push_back(static_cast<double>(dice.between(-9, 9)));
    q.load_row(0, query.data());
    const Matrix moved = matrix(fp32, n, 3, [&](std::int64_t j, std::int64_t c) {
      return decode(fp32, keys.code(j, c)) + shift[static_cast<std::size_t>(c)];
    });
    const double by = query[0] * shift[0] + query[1] * shift[1] + query[2] * shift[2];
    const AttentionProblem before = problem_of(q, keys, v, Scale::base2(1));
    const AttentionProblem after = problem_of(q, moved, v, Scale::base2(1));
    for (const char* name : {"online-scaled", "online-fa2", "fa4-row", "online-splash"}) {
      const Simulated a = run(before, k, name, {0}), b = run(after, k, name, {0});
      EXPECT_TRUE(same(a.output[0], b.output[0]) && same(a.output[1], b.output[1])) << name;
      EXPECT_NEAR(b.lse[0] - a.lse[0], by, 0x1p-14) << name;
    }
  }
}

}  // namespace
}  // namespace headroom
