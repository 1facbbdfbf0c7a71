// The vector simulation gives the bits of the plain one: random kernels, heads and stabilizers,
// every instruction set.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>

#include "reference/evaluate/simulate/lanes/simulator.h"
#include "reference/evaluate/simulate/matrix_unit.h"
#include "reference/input_error.h"
#include "reference/model/kernel_file.h"
#include "reference/real/fp_environment.h"
#include "tests/unit/simulate/tiny_kernels.h"
#include "tests/unit/vector/instruction_sets.h"

namespace headroom {
namespace {

using tiny::Dice;

constexpr InstructionSet all_sets[] = {InstructionSet::portable, InstructionSet::avx2,
                                       InstructionSet::avx512};

bool has_matrix_units(const KernelModel& k) {
  return k.score.accumulator.order.kind == OrderKind::matrix_unit ||
         k.numerator.order.kind == OrderKind::matrix_unit;
}

/// Scores, O or both by matrix units, of formats whose products FP32 holds.
void make_matrix_units(Dice& dice, KernelModel& k) {
  const auto sums = [&](Accumulator& sum) {
    // V100, A100, H100, Ada, and what no one builds
    const int unit = static_cast<int>(dice.between(0, 5));
    const int sizes[] = {4, 8, 16, 16, 3, 32}, bits[] = {23, 24, 25, 13, 1, 24};
    sum.order = {OrderKind::matrix_unit, sizes[unit], bits[unit]};
    sum.format = fp32;
    sum.rounded_products = false;
  };
  const std::int64_t which = dice.between(0, 2);
  if (which != 0) sums(k.score.accumulator);
  if (which != 1) {
    sums(k.numerator);
    const int size = k.numerator.order.size;
    k.tiles.keys = (k.tiles.keys + size - 1) / size * size;
  }
  k.operand = dice.pick({bf16, fp16, e4m3fn, tf32});
  k.p.format = dice.pick({bf16, fp16, e5m2});
  k.centring.difference = dice.pick({bf16, fp16});
}

/// A kernel that lanes_cover, any stage of any format.
KernelModel covered_kernel(Dice& dice) {
  KernelModel k = tiny::random_kernel(dice);
  for (Accumulator* sum : {&k.score.accumulator, &k.denominator, &k.numerator}) {
    if (sum->order.kind == OrderKind::pairwise || sum->order.kind == OrderKind::matrix_unit) {
      sum->order = {OrderKind::sequential};
    }
    if (sum->order.kind == OrderKind::tile) {
      sum->order.size = static_cast<int>(dice.pick({1, 3, 8, 16, 24, 50}));
    }
    if (sum->order.kind == OrderKind::lanes && dice.one_in(4)) sum->order.size = 64;
  }
  k.normalise.every_tile = false;
  k.tiles.keys = static_cast<int>(dice.pick({1, 7, 16, 24, 64}));
  if (dice.one_in(3)) make_matrix_units(dice, k);
  k.tiles.queries = static_cast<int>(dice.pick({1, 5, 16, 40, 128}));
  if (!has_matrix_units(k) && dice.one_in(3)) {
    k.p.format = dice.pick({fp32, bf16, fp16, tf32, e4m3fn, e5m2});
  }
  if (dice.one_in(4)) {
    k.exp2.result = fp32;
    k.exp2.name = "ex2.approx.ftz";
    k.exp2.max_error_ulps = 2.5;
    k.exp2.flush_to_zero = true;
  } else if (dice.one_in(6)) {
    const double floor = k.exp2.floor;
    k.exp2 = fa4_polynomial("fa4-poly3").value();
    if (floor > 0) k.exp2.floor = floor;
  }
  if (dice.one_in(3)) k.normalise.reciprocal_max_error_ulps = 1.5;
  return find_problem(k) ? covered_kernel(dice) : k;
}

/// Sizes about what kernels run: more rows than lanes, keys over several tiles.
AttentionProblem head(Dice& dice, const Format& format) {
  const std::int64_t queries = dice.between(1, 40), keys = dice.between(1, 90);
  const std::int64_t d = dice.pick({1, 3, 8, 16, 33}), dv = dice.pick({1, 2, 5, 16, 21});
  const double size = dice.pick({0.3, 1.0, 3.0, 12.0, 80.0});
  const double tiny = dice.one_in(6) ? std::ldexp(1.0, format.emin + 6) : 1.0;
  const bool wild = dice.one_in(3), specials = dice.one_in(8);
  const auto filled = [&](std::int64_t rows, double s) {
    return tiny::matrix(format, rows, s == 1 ? dv : d, [&](auto, auto) {
      if (specials && dice.one_in(60)) {
        return dice.pick({HUGE_VAL, -HUGE_VAL, std::nan(""), format.max_finite(), -0.0});
      }
      return tiny::number(dice, s, wild && dice.one_in(30)) * tiny;
    });
  };
  AttentionProblem p = tiny::problem_of(
      filled(queries, size * 1.01), filled(keys, size * 0.99), filled(keys, 1),
      dice.pick({Scale::natural(1), Scale::natural(Rational(1, 8)), Scale::natural(Rational(-1, 3)),
                 Scale::base2(1), Scale::base2(Rational(3, 16)),
                 Scale::reciprocal_sqrt(static_cast<std::uint64_t>(d))}));
  switch (dice.between(0, 6)) {
    case 0:
      p.visibility.kind = MaskKind::causal_top_left;
      break;
    case 1:
      p.visibility.kind = MaskKind::causal_bottom_right;
      break;
    case 2:
      p.window = Window{.left = dice.between(-1, 20), .right = dice.between(-1, 20)};
      break;
    case 3:
      for (std::int64_t i = 0; i < queries; ++i) {
        p.query_segments.push_back(static_cast<std::int32_t>(dice.between(0, 1)));
      }
      for (std::int64_t j = 0; j < keys; ++j) {
        p.key_segments.push_back(static_cast<std::int32_t>(dice.between(0, 2)));
      }
      break;
    case 4: {
      const std::int64_t rows = dice.coin() ? 1 : queries;
      for (std::int64_t i = 0; i < rows * keys; ++i) p.mask.push_back(dice.one_in(3) ? 0 : 1);
      break;
    }
    default:
      break;
  }
  if (dice.one_in(4)) p.visibility.length = dice.between(0, keys);
  if (dice.one_in(5)) p.sink = dice.normal() * 3;
  return p;
}

std::vector<std::int64_t> some_rows(Dice& dice, const AttentionProblem& p) {
  std::vector<std::int64_t> rows = tiny::all_rows(p);
  if (dice.one_in(3)) {
    std::vector<std::int64_t> few;
    for (int i = 0; i < 7; ++i) few.push_back(dice.between(0, p.queries() - 1));
    return few;
  }
  return rows;
}

std::unique_ptr<LoopStabilizer> some_rule(Dice& dice, std::string& name) {
  const std::vector<LoopDescription>& all = loop_stabilizers();
  name = all[static_cast<std::size_t>(dice.between(0, static_cast<std::int64_t>(all.size()) - 1))]
             .name;
  return make_loop_stabilizer(name);
}

::testing::AssertionResult equal(const char* what, const std::vector<float>& got,
                                 const std::vector<float>& expected, bool bits) {
  if (got.size() != expected.size()) return ::testing::AssertionFailure() << what << ": sizes";
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool nan = std::isnan(got[i]) && std::isnan(expected[i]) && !bits;
    if (!nan && std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(expected[i])) {
      char text[160];
      std::snprintf(text, sizeof text, "%s[%zu of %zu] = %a, expected %a", what, i, got.size(),
                    static_cast<double>(got[i]), static_cast<double>(expected[i]));
      return ::testing::AssertionFailure() << text;
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult equal(const Simulated& got, const Simulated& expected) {
  auto result = equal("output", got.output, expected.output, true);
  if (result) result = equal("lse", got.lse, expected.lse, true);
  if (result) result = equal("denominator", got.denominator, expected.denominator, false);
  if (result) result = equal("shift", got.shift, expected.shift, false);
  if (result && got.recomputed != expected.recomputed) {
    return ::testing::AssertionFailure() << "recomputed";
  }
  if (result && got.gate != expected.gate) return ::testing::AssertionFailure() << "gate";
  return result;
}

TEST(Lanes, GiveTheBitsOfThePlainSimulation) {
  const unsigned long seed = test_seed();
  long heads = 0, numbers = 0, finite = 0;
  for (int i = 0; i < 600 * test_multiplier(); ++i) {
    Dice dice(seed + static_cast<unsigned long>(i));
    const KernelModel kernel = covered_kernel(dice);
    const bool other = dice.one_in(4) && !has_matrix_units(kernel);
    const Format format = other ? dice.pick({fp32, fp16, bf16, e4m3fn}) : kernel.operand;
    const AttentionProblem first = head(dice, format);
    const std::vector<std::int64_t> rows = some_rows(dice, first);
    SimulationOptions options;
    if (dice.one_in(6)) {
      options.exp2 = dice.pick({UnitChoice::lowest, UnitChoice::highest, UnitChoice::random});
    }
    if (dice.one_in(6)) {
      options.reciprocal = dice.pick({UnitChoice::lowest, UnitChoice::highest, UnitChoice::random});
    }
    std::string name;
    const std::uint64_t rule_seed = seed ^ static_cast<unsigned long>(i) * 977;
    const auto rule = [&] {
      Dice of_rule(rule_seed);
      return some_rule(of_rule, name);
    };
    Simulated expected;
    SimulationOptions plain = options;
    plain.plain = true;
    try {
      expected = simulate(first, kernel, *rule(), rows, plain);
    } catch (const InputError&) {
      continue;
    }
    EXPECT_FALSE(expected.vectorised);
    ++heads;
    for (const float x : expected.output) {
      ++numbers;
      finite += std::isfinite(x) && x != 0;
    }
    for (const InstructionSet set : all_sets) {
      if (!processor_has(set)) continue;
      options.set = set;
      ASSERT_TRUE(lanes_cover(first, kernel, options));
      Simulator simulator(first, kernel, rule(), rows, options);
      const Simulated& got = simulator.run(first.q, first.k, first.v);
      ASSERT_TRUE(got.vectorised);
      ASSERT_TRUE(equal(got, expected))
          << headroom::name(set) << ", seed " << seed << " + " << i << ", " << name << ", "
          << first.queries() << " x " << first.keys() << "\n"
          << canonical_text(kernel);
    }
  }
  // most numbers are not NaN or zero, so that the comparison says something
  EXPECT_GT(finite, numbers / 3) << heads << " heads";
  EXPECT_GT(heads, 100);
}

TEST(Lanes, ThreadsGiveTheSameBits) {
  Dice dice(test_seed() + 2);
  const std::int64_t d = 16;
  const auto filled = [&](std::int64_t rows) {
    return tiny::matrix(bf16, rows, d, [&](auto, auto) { return dice.normal(); });
  };
  AttentionProblem p = tiny::problem_of(filled(300), filled(170), filled(170), Scale::natural(1));
  p.visibility.kind = MaskKind::causal_bottom_right;
  KernelModel kernel = preset("tpu7x");
  kernel.tiles.queries = 24;
  kernel.tiles.keys = 32;
  // rules that look at one row, at blocks of keys first, and at all rows of a block; rows given up
  for (const char* name : {"online-splash", "vfa", "lazy-wave", "fdpp"}) {
    const auto make = [&] { return make_loop_stabilizer(name); };
    const Simulated one = simulate(p, kernel, *make(), tiny::all_rows(p));
    EXPECT_TRUE(one.vectorised);
    EXPECT_TRUE(equal(simulate_in_parallel(p, kernel, make, tiny::all_rows(p)), one)) << name;
  }
}

/// A float near where roundings into `format` and flushes turn, or anywhere.
float edge(Dice& dice, const Format& format) {
  const int e = static_cast<int>(
      dice.pick({static_cast<std::int64_t>(format.emin), static_cast<std::int64_t>(format.emin) - 1,
                 static_cast<std::int64_t>(format.emax),
                 dice.between(format.least_exponent() - 2, format.emax), dice.between(-3, 3)}));
  // a number of the format, a tie, or half a unit below the smallest normal; then some ulps aside
  const double steps = std::ldexp(1.0, format.precision);
  const double near = std::ldexp(
      dice.pick({1.0, 1 - 0.5 / steps, static_cast<double>(dice.between(0, 1 << 12)) / steps + 1,
                 1 + 1 / steps, dice.normal()}),
      e);
  auto x = static_cast<float>(near);
  for (std::int64_t i = dice.between(0, 2); i > 0; --i) {
    x = std::nextafter(x, dice.coin() ? HUGE_VALF : -HUGE_VALF);
  }
  return dice.coin() ? x : -x;
}

/// Every loop of a stage against Stage, which works in doubles.
TEST(Lanes, StagesRoundAsStageDoes) {
  const NearestRounding nearest;
  Dice dice(test_seed());
  for (const InstructionSet set : all_sets) {
    if (!processor_has(set)) continue;
    for (const Format& format : {fp32, bf16, fp16}) {
      for (const bool flush : {false, true}) {
        for (const bool rounded : {false, true}) {
          Accumulator sum;
          sum.format = format;
          sum.flush_to_zero = flush;
          const LaneStageChoice choice(lane_kernels(set), sum,
                                       rounded ? Products::rounded : Products::fused);
          const Stage stage(format, flush);
          for (int i = 0; i < 400 * test_multiplier(); ++i) {
            float a[16], b[16], c[16], product[16], term[16], scaled[16], quotient[16], own[16];
            for (int k = 0; k < 16; ++k) {
              a[k] = edge(dice, format);
              b[k] = dice.coin() ? 1 : edge(dice, dice.coin() ? format : fp16);
              c[k] = dice.one_in(3) ? 0 : static_cast<float>(stage.round(edge(dice, format)));
              if (dice.coin()) c[k] = static_cast<float>(stage.round(-a[k] * b[k]));
              scaled[k] = quotient[k] = own[k] = c[k];
            }
            const float v = b[0];
            {
              const StageScope scope(choice.flush_scope);
              ProductArgs args;
              args.start = c;
              args.start_stride = args.stride = 16;
              args.sum = product;
              args.channels = 1;
              args.p = a;
              args.v = &v;
              args.terms = args.v_stride = 1;
              choice.loops->products(args);
              TermArgs terms;
              terms.start = c;
              terms.sum = term;
              terms.stride = 16;
              terms.p = a;
              terms.terms = 1;
              choice.loops->terms(terms);
              choice.loops->scale(scaled, 1, 16, b);
              choice.loops->divide(quotient, 1, 16, b);
              choice.loops->add(own, scaled, own, 16);
            }
            for (int k = 0; k < 16; ++k) {
              const double p = rounded ? stage.multiply(a[k], v) : static_cast<double>(a[k]) * v;
              const double t = rounded ? stage.round(a[k]) : static_cast<double>(a[k]);
              const double s = b[k] == 1 ? static_cast<double>(c[k]) : stage.multiply(c[k], b[k]);
              ASSERT_TRUE(tiny::same(product[k], stage.add(c[k], p)))
                  << a[k] << " " << v << " " << c[k] << " " << format.name;
              ASSERT_TRUE(tiny::same(term[k], stage.add(c[k], t))) << a[k] << " " << c[k];
              ASSERT_TRUE(tiny::same(scaled[k], s)) << c[k] << " " << b[k];
              ASSERT_TRUE(tiny::same(quotient[k], stage.divide(c[k], b[k]))) << c[k] << " " << b[k];
              ASSERT_TRUE(tiny::same(own[k], stage.add(c[k], s))) << c[k] << " " << s;
            }
          }
        }
      }
    }
  }
}

/// Every lane of the matrix units' loops against matrix_unit_step, whose answers are recorded ones:
/// exponents from end to end, all alike or far apart, infinities and NaN, sums at 2^31 units.
TEST(Lanes, MatrixUnitsAddAsOneStepDoes) {
  const NearestRounding nearest;
  Dice dice(test_seed() + 3);
  constexpr MatrixUnit units[] = {{4, 23}, {8, 24}, {16, 25}, {16, 13}, {32, 24}, {3, 1}};
  long ordinary = 0, all = 0;
  for (const InstructionSet set : all_sets) {
    if (!processor_has(set)) continue;
    const LaneKernels& loops = lane_kernels(set);
    for (MatrixUnit unit : units) {
      ASSERT_TRUE(unit.covered());
      for (int i = 0; i < 60 * test_multiplier(); ++i) {
        const Format format = dice.pick({bf16, fp16});
        unit.a_emin = unit.b_emin = format.emin;
        unit.flush_to_zero = dice.coin();
        const std::int64_t lo = dice.pick({-3L, -60L, -150L}), hi = dice.pick({0L, 3L, 60L, 127L});
        const bool specials = dice.one_in(5), same = dice.one_in(3);
        const auto number = [&] {
          if (specials && dice.one_in(40)) return dice.pick({HUGE_VALF, -HUGE_VALF, std::nanf("")});
          if (dice.one_in(9)) return dice.coin() ? 0.0F : -0.0F;
          const double significand = same ? 2 - 0x1p-7 : 1 + dice.between(0, 127) * 0x1p-7;
          const auto x = static_cast<float>(round_to(
              format, std::ldexp(significand, static_cast<int>(same ? hi : dice.between(lo, hi)))));
          return !same && dice.coin() ? -x : x;
        };
        const std::int64_t channels = dice.between(1, 40), keys = dice.between(1, 11), stride = 32;
        std::vector<float> q(static_cast<std::size_t>(channels * stride)),
            k(static_cast<std::size_t>(keys * channels)),
            s(static_cast<std::size_t>(keys * stride));
        for (float& x : q) x = number();
        for (float& x : k) x = number();
        ScoreArgs scores;
        scores.q = q.data();
        scores.stride = stride;
        scores.k = k.data();
        scores.keys = keys;
        scores.channels = channels;
        scores.scores = s.data();
        loops.matrix_scores(unit, scores);
        // O of as many channels as there are keys, from any numbers on
        std::vector<float> o(s.size()), before(s.size());
        for (float& x : before) x = dice.one_in(3) ? 0 : number();
        o = before;
        ProductArgs products;
        products.start = products.sum = o.data();
        products.start_stride = products.stride = stride;
        products.channels = products.v_stride = keys;
        products.p = q.data();
        std::vector<float> v(k.size());
        for (std::int64_t t = 0; t < channels; ++t) {
          for (std::int64_t c = 0; c < keys; ++c) {
            v[static_cast<std::size_t>(t * keys + c)] =
                k[static_cast<std::size_t>(c * channels + t)];
          }
        }
        products.v = v.data();
        products.terms = channels;
        loops.matrix_products(unit, products);
        for (std::int64_t key = 0; key < keys; ++key) {
          for (std::int64_t row = 0; row < stride; ++row) {
            const auto at = static_cast<std::size_t>(key * stride + row);
            float sums[2] = {0, before[at]};
            for (float& sum : sums) {
              for (std::int64_t t = 0; t < channels; t += unit.size) {
                const std::int64_t n = std::min<std::int64_t>(unit.size, channels - t);
                float a[MatrixUnit::most_terms];
                for (std::int64_t x = 0; x < n; ++x) {
                  a[x] = q[static_cast<std::size_t>((t + x) * stride + row)];
                }
                sum = matrix_unit_step(unit.fraction_bits, a,
                                       &k[static_cast<std::size_t>(key * channels + t)], n, sum,
                                       unit.a_emin, unit.b_emin);
                if (unit.flush_to_zero && std::fabs(sum) < 0x1p-126F)
                  sum = std::copysign(0.0F, sum);
              }
            }
            ++all;
            ordinary += std::isfinite(sums[0]) && sums[0] != 0 && std::fabs(sums[0]) > 0x1p-90F;
            const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
            ASSERT_EQ(bits(s[at]), bits(sums[0])) << s[at] << " " << sums[0] << " " << unit.size;
            ASSERT_EQ(bits(o[at]), bits(sums[1])) << o[at] << " " << sums[1] << " " << unit.size;
          }
        }
      }
    }
  }
  EXPECT_GT(ordinary, all / 3);
}

/// a b + c beside a midpoint of the format, where FP32 rounds to the midpoint. A second rounding
/// would go to the even neighbour; each pair has one sum that belongs to the odd one.
TEST(Lanes, FusedStepsBesideMidpoints) {
  const NearestRounding nearest;
  struct Step {
    double a, b, c;
  };
  const auto steps_of = [](const Format& format) {
    std::vector<Step> steps;
    // 3 b has one bit more than the format, and its last bit is set; c is far below
    const double b = format == bf16 ? 87 : 683;
    for (const double factor : {b, b + 2}) {
      for (const double c : {0x1p-20, -0x1p-20}) {
        steps.push_back({3, factor, c});
        steps.push_back({-3, factor, c});
      }
    }
    // half of the least subnormal and a part in 2^20, beside an odd multiple of it that is larger
    if (format == fp16) {
      for (const double part : {0x1p-10, -0x1p-10}) {
        for (const double c : {0x1p-15 + 0x1p-24, 0x1p-15 + 0x1p-23}) {
          steps.push_back({0x1p-11 * (1 + part), 0x1p-14 * (1 + 0x1p-10), c});
          steps.push_back({0x1p-11 * (1 + part), -0x1p-14 * (1 + 0x1p-10), -c});
        }
      }
    }
    return steps;
  };
  for (const InstructionSet set : all_sets) {
    if (!processor_has(set)) continue;
    for (const Format& format : {bf16, fp16}) {
      Accumulator sum;
      sum.format = format;
      const LaneStageChoice choice(lane_kernels(set), sum, Products::fused);
      const Stage stage(format, false);
      int twice_wrong = 0;
      for (const Step& step : steps_of(format)) {
        float a[16] = {}, c[16] = {}, product[16];
        a[5] = static_cast<float>(step.a);
        c[5] = static_cast<float>(step.c);
        const auto v = static_cast<float>(step.b);
        ProductArgs args;
        args.start = c;
        args.start_stride = args.stride = 16;
        args.sum = product;
        args.channels = 1;
        args.p = a;
        args.v = &v;
        args.terms = args.v_stride = 1;
        choice.loops->products(args);
        const double once = stage.add(c[5], step.a * step.b);
        ASSERT_TRUE(tiny::same(product[5], once)) << step.a << " " << v << " " << step.c;
        twice_wrong += stage.round(std::fma(a[5], v, c[5])) != once;
      }
      EXPECT_EQ(twice_wrong, format == bf16 ? 4 : 6) << format.name;
    }
  }
}

/// The same for conversions.
TEST(Lanes, NarrowingRoundsAsConversionsDo) {
  const NearestRounding nearest;
  Dice dice(test_seed() + 1);
  for (const InstructionSet set : all_sets) {
    if (!processor_has(set)) continue;
    for (const Format& format : {fp32, tf32, bf16, fp16, e4m3fn, e5m2}) {
      for (const bool flush : {false, true}) {
        for (const bool saturate : {false, true}) {
          const Narrowing narrowing(format, flush, saturate);
          for (int i = 0; i < 200 * test_multiplier(); ++i) {
            float x[16], y[16];
            for (float& one : x) {
              one = dice.one_in(20) ? dice.pick({HUGE_VALF, -HUGE_VALF, std::nanf(""), 0.0F, -0.0F})
                                    : edge(dice, format);
            }
            lane_kernels(set).narrow(narrowing, x, y, 16);
            for (int k = 0; k < 16; ++k) {
              const double expected =
                  round_to(format, x[k], {.saturate = saturate, .flush_to_zero = flush});
              ASSERT_TRUE(tiny::same(y[k], expected) &&
                          (y[k] != 0 || std::signbit(y[k]) == std::signbit(expected)))
                  << x[k] << " " << format.name << " " << y[k];
            }
          }
        }
      }
    }
  }
}

/// LaneKernels::weights against the unit, which has its own tests, on every `step`-th float.
void compare_weights(const LaneKernels& lanes, std::uint32_t step) {
  const NearestRounding nearest;
  const ExponentialUnit unit(preset("ieee-fp32").exp2, ExponentBase::two);
  constexpr std::int64_t n = 1 << 16;
  std::vector<float> x(n), y(n), expected(n), shift(lane_group, 0.0F);
  std::vector<UnsettledWeight> unsettled(n);
  WeightArgs args;
  args.exponent.scores = x.data();
  args.exponent.keys = n / lane_group;
  args.exponent.stride = lane_group;
  args.exponent.shift = shift.data();
  args.exponent.exponents = y.data();
  std::int64_t left = 0, all = 0;
  for (std::uint64_t code = 0; code < 0x100000000U;) {
    for (float& one : x) {
      one = std::bit_cast<float>(static_cast<std::uint32_t>(code));
      code += step;
    }
    const std::int64_t found = lanes.weights(args, unsettled.data());
    unit.apply(x.data(), expected.data(), n);
    for (std::int64_t i = 0; i < found; ++i) {
      const UnsettledWeight& one = unsettled[static_cast<std::size_t>(i)];
      const auto at = static_cast<std::size_t>(one.index);
      ASSERT_TRUE(tiny::same(one.x, x[at]));
      y[at] = expected[at];
      left += std::fabs(one.x) <= 125;
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(y[i]), std::bit_cast<std::uint32_t>(expected[i]))
          << x[i];
      all += std::fabs(x[i]) <= 125;
    }
  }
  EXPECT_LT(left, all / 1000);
}

TEST(Lanes, WeightsAreThoseOfTheUnit) {
  for (const InstructionSet set : all_sets) {
    if (!processor_has(set) || lane_kernels(set).weights == nullptr) continue;
    // odd, so that all low bits occur; 1 in the long suite
    compare_weights(lane_kernels(set), test_multiplier() > 1 ? 1 : 251);
  }
}

}  // namespace
}  // namespace headroom
