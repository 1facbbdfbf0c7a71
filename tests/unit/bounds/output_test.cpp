// The composed output error against simulated kernels and the exact softmax in binary128.
//
// HEADROOM_LONG=1 runs ten times as many rows, of more keys (suite 'long').
#include "bounds/output_error.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "bounds/lost_mass.h"
#include "bounds/norms.h"
#include "bounds/score.h"
#include "tests/unit/bounds/kernel_rows.h"

namespace headroom {
namespace {

using simulation::below;
using simulation::Quad;
using simulation::Random;
using simulation::uniform;

constexpr double infinity = std::numeric_limits<double>::infinity();

bool long_run() { return std::getenv("HEADROOM_LONG") != nullptr; }

struct Configuration {
  std::string name;
  KernelModel kernel;
  bool online = false;
};

KernelModel base() {
  KernelModel k;
  k.score.accumulator = {fp32, {OrderKind::sequential}};
  k.denominator = {fp32, {OrderKind::tile, 16}};
  k.numerator = {fp32, {OrderKind::tile, 16}};
  k.exp2.flush_to_zero = true;
  k.normalise.output = fp32;
  return k;
}

std::vector<Configuration> configurations() {
  std::vector<Configuration> all;
  const auto add = [&](const char* name, const std::function<void(KernelModel&)>& change,
                       bool online = false) {
    Configuration c{name, base(), online};
    change(c.kernel);
    all.push_back(c);
  };
  add("bf16 P, FTZ", [](KernelModel&) {});
  add("bf16 P, FTZ, bf16 output, reciprocal", [](KernelModel& k) {
    k.normalise.output = bf16;
    k.normalise.division = Division::reciprocal;
  });
  add("bf16 P, FTZ everywhere, rounded products, 2.5 ulp exp2", [](KernelModel& k) {
    k.exp2.max_error_ulps = 2.5;
    k.exp2.monotone_at_integers = false;
    k.score.accumulator.flush_to_zero = k.denominator.flush_to_zero = true;
    k.numerator.flush_to_zero = k.numerator.rounded_products = true;
    k.numerator.order = k.denominator.order = {OrderKind::pairwise};
  });
  add("fp16 P, gradual", [](KernelModel& k) {
    k.exp2.flush_to_zero = false;
    k.p.format = fp16;
    k.numerator.order = {OrderKind::any};
  });
  add("fp16 P, FTZ exp2, bf16 output", [](KernelModel& k) {
    k.p.format = fp16;
    k.normalise.output = bf16;
  });
  add("f32 P", [](KernelModel& k) { k.p.format = fp32; });
  add("f32 P, gradual, any order", [](KernelModel& k) {
    k.p.format = fp32;
    k.exp2.flush_to_zero = false;
    k.numerator.order = k.denominator.order = {OrderKind::any};
  });
  add("bf16 P in both sums", [](KernelModel& k) { k.p.denominator_rounded = true; });
  add("fp16 P in both sums, gradual", [](KernelModel& k) {
    k.p.denominator_rounded = true;
    k.p.format = fp16;
    k.exp2.flush_to_zero = false;
  });
  add("bf16 exponent and exp2", [](KernelModel& k) {
    k.exponent.format = bf16;
    k.exp2.result = bf16;
    k.p.denominator_rounded = true;
  });
  add("bf16 P gradual, FTZ sums", [](KernelModel& k) {
    k.exp2.flush_to_zero = false;
    k.numerator.flush_to_zero = k.denominator.flush_to_zero = true;
  });
  add("matrix unit F = 25", [](KernelModel& k) {
    k.numerator.order = {OrderKind::matrix_unit, 16, 25};
    k.score.accumulator.order = {OrderKind::matrix_unit, 16, 25};
  });
  add("matrix unit F = 13, f32 P", [](KernelModel& k) {
    k.p.format = tf32;
    k.numerator.order = {OrderKind::matrix_unit, 16, 13};
  });
  add("bf16 accumulators", [](KernelModel& k) {
    k.p.denominator_rounded = true;
    k.numerator.format = k.denominator.format = bf16;
    k.numerator.order = k.denominator.order = {OrderKind::lanes, 8};
  });
  add("fp16 denominator, gradual", [](KernelModel& k) {
    k.exp2.flush_to_zero = false;
    k.p.format = fp16;
    k.denominator.format = fp16;
    k.denominator.order = {OrderKind::pairwise};
    k.normalise.output = fp16;
  });
  add(
      "online, fused, bf16 P", [](KernelModel& k) { k.exponent.fused = true; }, true);
  add(
      "online, fused, f32 P, FTZ sums",
      [](KernelModel& k) {
        k.exponent.fused = true;
        k.p.format = fp32;
        k.numerator.flush_to_zero = k.denominator.flush_to_zero = true;
      },
      true);
  for (Configuration& c : all) c.kernel.score.scale_before_store = !c.online;
  return all;
}

/// A row as simulated, and what output_error needs of it.
struct SimulatedRow {
  OutputErrorInputs inputs;
  double out = 0;
  double l = 0;
  Quad exact = 0, log2_error = 0;  // y; log2 l^ - log2 l
  bool bounded_inputs = true;
};

/// Scores of the row in one of six families, values chosen at random or against the weights.
class RowMaker {
 public:
  explicit RowMaker(std::uint64_t seed) : g_(seed) {}

  SimulatedRow make(const Configuration& configuration) {
    const KernelModel& kernel = configuration.kernel;
    draw_operands();
    const std::size_t n = row_.k.size(), d = row_.q.size();
    SimulatedRow result;

    const Quad c = log2q(expq(static_cast<Quad>(1))) / sqrtq(static_cast<Quad>(d));
    Interval factor;
    double key_norm = 0, e = 0, q_norm = 0;
    const double stored = static_cast<double>(static_cast<float>(static_cast<double>(c)));
    {
      const UpwardRounding up;
      factor = log2_e() / sqrt(Interval(static_cast<double>(d)));
      q_norm = norm(up, row_.q).hi();
      for (const auto& k : row_.k) key_norm = std::fmax(key_norm, norm(up, k).hi());
      e = score_error(up, kernel, static_cast<std::int64_t>(d), factor, stored,
                      Upper<Absolute>(q_norm), Upper<Absolute>(key_norm))
              .value();
    }

    std::vector<Quad> z(n);
    Quad mean = 0, top = -1e300;
    for (std::size_t j = 0; j < n; ++j) {
      z[j] = c * simulation::exact_dot(row_.q, row_.k[j]);
      mean += z[j];
      top = z[j] > top ? z[j] : top;
    }
    mean /= static_cast<Quad>(n);

    Quad frame;
    double exponent_error;
    std::int64_t rescales = 0;
    int factors = 1;
    std::vector<double> weights(n);
    double l = 0, o = 0;
    const std::uint64_t replay = g_();
    if (!configuration.online) {
      const int flush = std::max(exp2_flush_exponent(kernel.exp2), -126);
      const int accumulator_top = kernel.p.format == fp16 ? 8 : 20;
      const double margin = family_ == 3 || family_ == 5 ? 0.1 + uniform(g_) * (g_() & 1 ? 3 : 20)
                                                         : 20 + uniform(g_) * 80;
      double floor = flush;
      if (kernel.p.format == fp16) floor = -24 - 4 * uniform(g_);
      const double by_margin = static_cast<double>(mean) - floor - margin;
      const double by_top = static_cast<double>(top) + e + 0.01 - accumulator_top;
      double mu = std::fmax(by_margin, by_top);
      mu = static_cast<double>(static_cast<float>(mu));
      if (kernel.exponent.format == bf16) mu = simulation::Arithmetic{bf16}.round(mu);
      frame = mu;
      simulate_fixed(kernel, stored, mu, replay, weights, l, o);
      if (g_() % 2 == 0) {  // V against the weights, after the fact
        Quad mass = 0;
        for (const Quad& x : z) mass += exp2q(x - frame);
        for (std::size_t j = 0; j < n; ++j) {
          const Quad share = static_cast<Quad>(simulation::stored_weight(kernel.p, weights[j])) / l;
          row_.v[j] = share >= exp2q(z[j] - frame) / mass ? v_ : -v_;
        }
        simulate_fixed(kernel, stored, mu, replay, weights, l, o);
      }
      // x = RN(z^ - mu): half an ulp of the largest exponent that matters, thresholds included.
      const double u = std::ldexp(1.0, kernel.exponent.format.log2_unit_roundoff());
      exponent_error = (e + u * 151) * (1 + 0x1p-40);
    } else {
      rescales = simulate_online(kernel, stored, c, frame, factors, weights, l, o);
      const double z_largest = static_cast<double>(c) * q_norm * key_norm * (1 + 0x1p-30);
      exponent_error = (e + 0x1p-24 * (z_largest + 135 + 4.2 * z_largest)) * (1 + 0x1p-40);
    }

    Quad mass = 0, sum = 0;
    for (std::size_t j = 0; j < n; ++j) {
      const Quad w = exp2q(z[j] - frame);
      mass += w;
      sum += w * row_.v[j];
    }
    result.exact = sum / mass;
    result.out = simulation::simulated_normalise(kernel, o, l);
    result.l = l;
    result.log2_error = log2q(static_cast<Quad>(l) / mass);

    OutputErrorInputs& in = result.inputs;
    in.visible = static_cast<std::int64_t>(n);
    in.exponent_error = Upper<Log2>(exponent_error);
    in.exp2_factors = factors;
    // The exact mass, or Jensen's bound of it.
    const Quad log2_mass = g_() & 1 ? log2q(mass) : mean - frame + log2q(static_cast<Quad>(n));
    in.log2_mass = Lower<Log2>(static_cast<double>(log2_mass) -
                               1e-12 * (1 + std::fabs(static_cast<double>(log2_mass))));
    if (g_() & 1) {
      in.mean_exponent = Lower<Log2>(static_cast<double>(mean - frame) - 1e-9);
    }
    in.vmin = in.vmax = row_.v[0];
    for (const double v : row_.v) {
      in.vmin = std::fmin(in.vmin, v);
      in.vmax = std::fmax(in.vmax, v);
      in.vmax_abs = std::fmax(in.vmax_abs, std::fabs(v));
    }
    in.rescales = rescales;
    return result;
  }

 private:
  void draw_operands() {
    const simulation::Arithmetic operand{bf16};
    std::normal_distribution<double> normal(0, 1);
    const std::size_t d = std::size_t{1} << (1 + below(g_, 4)),
                      n = 2 + below(g_, long_run() ? 62 : 30);
    family_ = static_cast<int>(below(g_, 6));
    const double q_scale = std::ldexp(1.0, static_cast<int>(below(g_, 5)) - 2);
    const double k_scale = std::ldexp(1.0, static_cast<int>(below(g_, 5)) - 2);
    const double offset = g_() % 3 == 0 ? std::ldexp(1.0, static_cast<int>(below(g_, 8))) : 0;
    std::vector<double> centre(d), direction(d);
    row_.q.assign(d, 0);
    for (double& x : row_.q) x = operand.round(normal(g_) * q_scale);
    for (double& x : centre) x = normal(g_) * offset;
    for (double& x : direction) x = normal(g_) * k_scale;
    row_.k.assign(n, std::vector<double>(d));
    for (std::size_t j = 0; j < n; ++j) {
      const double level = j % 5 < 2 ? 1 : -0.66;  // two levels, mean near 0
      for (std::size_t i = 0; i < d; ++i) {
        double t = 0;
        if (family_ == 0 || family_ == 3) t = normal(g_) * k_scale;
        if (family_ == 1 || family_ == 5) t = direction[i] * level;
        if (family_ == 4) t = normal(g_) * k_scale * 0.01;
        row_.k[j][i] = operand.round(centre[i] + t);
      }
    }
    if (family_ == 3 || family_ == 5) {  // a spread of a few bits
      double mean = 0, square = 0;
      for (const auto& k : row_.k) {
        double s = 0;
        for (std::size_t i = 0; i < d; ++i) s += row_.q[i] * (k[i] - centre[i]);
        mean += s;
        square += s * s;
      }
      mean /= static_cast<double>(n);
      const double deviation =
          std::sqrt(std::fmax(1e-30, square / static_cast<double>(n) - mean * mean)) * 1.4427 /
          std::sqrt(static_cast<double>(d));
      const double f = (0.3 + 3 * uniform(g_)) / deviation;
      if (f > 1e-3 && f < 1e3) {
        for (double& x : row_.q) x = operand.round(x * f);
      }
    }
    v_ = operand.round(std::ldexp(1 + uniform(g_), static_cast<int>(below(g_, 5)) - 2));
    row_.v.assign(n, v_);
    const auto kind = below(g_, 4);
    for (double& v : row_.v) {
      if (kind < 2) v = g_() & 1 ? v_ : -v_;
      if (kind == 2) v = operand.round(v_ * (2 * uniform(g_) - 1));
    }
  }

  void simulate_fixed(const KernelModel& kernel, double stored, double mu, std::uint64_t seed,
                      std::vector<double>& weights, double& l, double& o) const {
    Random g(seed);
    const simulation::Arithmetic exponent{kernel.exponent.format};
    const std::size_t n = row_.k.size();
    std::vector<double> in_l(n), in_o(n);
    for (std::size_t j = 0; j < n; ++j) {
      const double z = simulation::simulated_score(kernel, row_.q, row_.k[j], stored, true, g);
      weights[j] = simulation::simulated_exp2(kernel.exp2, exponent.add(z, -mu), g);
      in_o[j] = simulation::stored_weight(kernel.p, weights[j]);
      in_l[j] = kernel.p.denominator_rounded ? in_o[j] : weights[j];
    }
    Accumulator sum = kernel.denominator;
    sum.rounded_products = false;
    l = simulation::accumulate(sum, in_l, std::vector<double>(n, 1.0), g);
    o = simulation::accumulate(kernel.numerator, in_o, row_.v, g);
  }

  /// FA2: raw running maximum, x = fma(s, c, -RN(m c)), every change of the maximum rescales.
  std::int64_t simulate_online(const KernelModel& kernel, double stored, const Quad& c, Quad& frame,
                               int& factors, std::vector<double>& weights, double& l, double& o) {
    const simulation::Arithmetic f32{fp32}, sum{fp32, kernel.denominator.flush_to_zero},
        out{fp32, kernel.numerator.flush_to_zero};
    const std::size_t n = row_.k.size(), tile = 16;
    std::vector<double> s(n);
    for (std::size_t j = 0; j < n; ++j) {
      s[j] = simulation::accumulate(kernel.score.accumulator, row_.q, row_.k[j], g_);
    }
    double m = -infinity;
    std::int64_t rescales = 0;
    l = o = 0;
    for (std::size_t t = 0; t < n; t += tile) {
      const std::size_t end = std::min(n, t + tile);
      double largest = m;
      for (std::size_t j = t; j < end; ++j) largest = std::fmax(largest, s[j]);
      if (largest > m && m != -infinity) {
        const double alpha =
            simulation::simulated_exp2(kernel.exp2, f32.multiply(f32.add(m, -largest), stored), g_);
        l = sum.multiply(l, alpha);
        o = out.multiply(o, alpha);
        ++rescales;
      }
      m = largest;
      const double shift = f32.multiply(m, stored);
      double tile_l = 0, tile_o = 0;
      for (std::size_t j = t; j < end; ++j) {
        weights[j] = simulation::simulated_exp2(kernel.exp2, f32.fused(s[j], stored, -shift), g_);
        tile_l = sum.add(tile_l, weights[j]);
        tile_o = out.fused(simulation::stored_weight(kernel.p, weights[j]), row_.v[j], tile_o);
      }
      l = sum.add(l, tile_l);
      o = out.add(o, tile_o);
    }
    frame = static_cast<Quad>(m) * c;
    factors = 1 + static_cast<int>(rescales);
    return rescales;
  }

  Random g_;
  simulation::RowOperands row_;
  int family_ = 0;
  double v_ = 1;
};

/// A test-local bound that leaves something out.
struct Weakened {
  const char* what;
  std::function<double(const UpwardRounding&, KernelModel, OutputErrorInputs)> total;
  long violations = 0;
};

double total_of(const UpwardRounding& up, const KernelModel& k, const OutputErrorInputs& in) {
  return output_error(up, k, in).total.value();
}

std::vector<Weakened> weakened_bounds() {
  std::vector<Weakened> all;
  all.push_back({"without u_P", [](const auto& up, KernelModel k, const auto& in) {
                   if (k.p.format == bf16 || k.p.format == fp16) {
                     const bool keeps_floor = k.p.format == fp16;
                     k.p.format = keeps_floor ? Format{24, -14, 15, Specials::ieee, "wide"} : fp32;
                   }
                   return total_of(up, k, in);
                 }});
  all.push_back({"without h_P", [](const auto& up, KernelModel k, const auto& in) {
                   if (k.p.format == fp16) k.p.format = tf32;
                   return total_of(up, k, in);
                 }});
  all.push_back(
      {"without gamma", [](const auto& up, KernelModel k, const auto& in) {
         for (Accumulator* a : {&k.numerator, &k.denominator}) {
           a->format.precision = 53;
           if (a->order.kind == OrderKind::matrix_unit) a->order.fraction_bits = 60;
         }
         // division as before
         const OutputError e = output_error(up, k, in);
         return (Interval(e.total.value()) + Interval(0x1p-22) * Interval(in.vmax_abs)).hi();
       }});
  all.push_back({"without the tanh term", [](const auto& up, const KernelModel& k, const auto& in) {
                   const OutputError e = output_error(up, k, in);
                   return e.total.value() - e.weights.value();
                 }});
  all.push_back({"without flush", [](const auto& up, const KernelModel& k, const auto& in) {
                   const OutputError e = output_error(up, k, in);
                   return e.total.value() - e.flush.value();
                 }});
  all.push_back(
      {"without output rounding", [](const auto& up, const KernelModel& k, const auto& in) {
         const OutputError e = output_error(up, k, in);
         return e.total.value() - e.normalise.value();
       }});
  return all;
}

TEST(OutputError, SimulatedKernelsStayWithin) {
  const int rows = long_run() ? 12000 : 1200;
  std::vector<Weakened> weakened = weakened_bounds();
  long total_rows = 0, undefined = 0;
  std::uint64_t seed = 1;
  for (const Configuration& configuration : configurations()) {
    RowMaker maker(seed++);
    double worst = 0, worst_lse = 0;
    std::vector<double> ratios;
    long skipped = 0;
    for (int r = 0; r < rows; ++r) {
      SimulatedRow row;
      {
        const NearestRounding scope;
        row = maker.make(configuration);
      }
      const UpwardRounding up;
      const OutputError bound = output_error(up, configuration.kernel, row.inputs);
      ++total_rows;
      if (!bound.defined) {
        ++skipped;
        ++undefined;
        continue;
      }
      ASSERT_TRUE(std::isfinite(row.out)) << configuration.name << " row " << r;
      ASSERT_GT(row.l, 0) << configuration.name << " row " << r;
      const Quad error = fabsq(static_cast<Quad>(row.out) - row.exact);
      ASSERT_LE(error, static_cast<Quad>(bound.total.value()))
          << configuration.name << " row " << r << " n " << row.inputs.visible << " error "
          << static_cast<double>(error) << " bound " << bound.total.value();
      ASSERT_LE(row.log2_error, static_cast<Quad>(bound.lse2.hi())) << configuration.name;
      ASSERT_GE(row.log2_error, static_cast<Quad>(bound.lse2.lo())) << configuration.name;
      const double side = row.log2_error > 0 ? bound.lse2.hi() : bound.lse2.lo();
      worst_lse = std::max(worst_lse, static_cast<double>(row.log2_error) / side);
      const double ratio = static_cast<double>(error) / bound.total.value();
      worst = std::max(worst, ratio);
      ratios.push_back(ratio);
      for (Weakened& w : weakened) {
        if (r % 3 != 0) break;
        const double total = w.total(up, configuration.kernel, row.inputs);
        if (error > static_cast<Quad>(total)) ++w.violations;
      }
    }
    std::sort(ratios.begin(), ratios.end());
    const double median = ratios.empty() ? 0 : ratios[ratios.size() / 2];
    std::printf("%-56s undefined %5ld  error/bound max %.3f median %.4f  LSE2 max %.3f\n",
                configuration.name.c_str(), skipped, worst, median, worst_lse);
    EXPECT_GT(worst, 0.01) << configuration.name << ": the simulation exercises nothing";
    EXPECT_LT(static_cast<double>(skipped), 0.5 * rows) << configuration.name;
  }
  std::printf("%ld rows, %ld undefined\n", total_rows, undefined);
  // Each part of the bound is needed: without it some rows are outside.
  for (const Weakened& w : weakened) {
    std::printf("  %-28s %6ld violations\n", w.what, w.violations);
    EXPECT_GT(w.violations, 0) << w.what;
  }
}

OutputErrorInputs plain_row(std::int64_t n, double mass) {
  OutputErrorInputs in;
  in.visible = n;
  in.exponent_error = Upper<Log2>(1e-4);
  in.log2_mass = Lower<Log2>(mass);
  in.vmax_abs = in.vmax = 1;
  in.vmin = -1;
  return in;
}

TEST(OutputError, UndefinedWhereNothingIsKnown) {
  const UpwardRounding up;
  const KernelModel kernel = base();
  EXPECT_TRUE(output_error(up, kernel, plain_row(64, 0)).defined);
  EXPECT_FALSE(output_error(up, kernel, plain_row(64, -121)).defined);  // 64 flushed weights
  OutputErrorInputs in = plain_row(64, 0);
  in.exponent_error = Upper<Log2>();
  EXPECT_FALSE(output_error(up, kernel, in).defined);
  EXPECT_EQ(output_error(up, kernel, in).total.value(), infinity);
  in = plain_row(64, 0);
  in.log2_mass = Lower<Log2>();
  EXPECT_FALSE(output_error(up, kernel, in).defined);
  in = plain_row(0, 0);
  EXPECT_FALSE(output_error(up, kernel, in).defined);
  // The output format may overflow although V fits: no bound.
  KernelModel narrow = kernel;
  narrow.normalise.output = fp16;
  in = plain_row(64, 0);
  in.vmax = in.vmax_abs = 65500;
  EXPECT_FALSE(output_error(up, narrow, in).defined);
  // A mean well above the threshold decides a row whose mass alone does not.
  in = plain_row(64, -120.5);
  EXPECT_FALSE(output_error(up, kernel, in).defined);
  in.mean_exponent = Lower<Log2>(-124.0);
  EXPECT_TRUE(output_error(up, kernel, in).defined);
}

// All keys equal: the weights are exact powers, so only P's rounding and the accumulators move the
// output: 1 + 1/257 for V = 1 and BF16 P against unrounded l.
TEST(OutputError, Bf16WeightsAgainstUnroundedDenominator) {
  const UpwardRounding up;
  OutputErrorInputs in = plain_row(1, 0);
  in.exponent_error = Upper<Log2>(0);
  in.vmin = in.vmax = in.vmax_abs = 1;
  const OutputError e = output_error(up, base(), in);
  EXPECT_NEAR(e.total.value(), 1.0 / 257, 1e-6);
  EXPECT_EQ(e.weights.value(), 0);  // a constant V does not see the weights
  // Attained: P = 1 + 2^-8 is a tie that rounds to 1.
  const double p = 1 + 0x1p-8;
  EXPECT_GT(std::fabs(1 / p - 1), 0.99 / 257);
}

TEST(OutputError, ReciprocalThatLeavesTheNormalRange) {
  const UpwardRounding up;
  KernelModel kernel = base();
  kernel.normalise.division = Division::reciprocal;
  OutputErrorInputs in = plain_row(8, 127);
  const double unknown = output_error(up, kernel, in).normalise.value();
  in.log2_denominator = Upper<Log2>(126);
  const double normal = output_error(up, kernel, in).normalise.value();
  EXPECT_GT(unknown, normal);
  // l = 0x1.fffffep127: RN(1/l) = 2^-128 is subnormal; l = 2^127 (1 + 2^-23): the relative error
  // of the subnormal reciprocal is beyond u.
  const double l = 0x1p127 * (1 + 0x1p-23);
  const NearestRounding scope;
  const double r = static_cast<double>(1.0F / static_cast<float>(l));
  EXPECT_GT(std::fabs(r * l - 1), 0x1p-24);
  EXPECT_LE(std::fabs(r * l - 1), unknown);
}

// An error of k ulps of the result r^ of 1/l is at most k / (2^(p - 1) - k) of 1/l; from
// k = 2^(p - 1) on, r^ may be any number, and there is no bound.
TEST(OutputError, ReciprocalWithoutAPromise) {
  const UpwardRounding up;
  KernelModel kernel = base();
  kernel.normalise.division = Division::reciprocal;
  const OutputErrorInputs in = plain_row(8, 0);
  for (const Format& narrow : {fp32, fp16, bf16}) {
    kernel.denominator = {narrow, {OrderKind::sequential}};
    const double half = std::ldexp(1.0, narrow.precision - 1);  // ulps in a number 1
    kernel.normalise.reciprocal_max_error_ulps = half / 4;
    // V = 1: r^ may be 4/3 of 1/l, or 1/l / (1 + 1/4)
    EXPECT_GE(output_error(up, kernel, in).normalise.value(), 1.0 / 3) << narrow.name;
    kernel.normalise.reciprocal_max_error_ulps = half;
    EXPECT_FALSE(output_error(up, kernel, in).defined) << narrow.name;
    for (const double k : {half * 2, half * 1024, 0x1p22}) {
      kernel.normalise.reciprocal_max_error_ulps = k;
      const OutputError e = output_error(up, kernel, in);
      EXPECT_TRUE(k < half || !e.defined) << narrow.name << " " << k;
      EXPECT_GE(e.total.value(), 0) << narrow.name << " " << k;
    }
  }
}

// E = 0 is allowed from an error of 1 on: no factor of such a unit has a lower bound, an even
// number of them no more than an odd one.
TEST(OutputError, ExponentialsWithoutAPromise) {
  const UpwardRounding up;
  KernelModel kernel = base();
  kernel.exp2.name = "ulp:K";
  kernel.exp2.monotone_at_integers = false;
  OutputErrorInputs in = plain_row(8, 0);
  for (const int factors : {1, 2, 3, 4}) {
    in.exp2_factors = factors;
    in.rescales = factors - 1;
    kernel.exp2.max_error_ulps = 0x1p20;  // an error of 1/7
    EXPECT_TRUE(output_error(up, kernel, in).defined) << factors;
    for (const double k : {0x1p22, 0x1.8p22, 0x1.fp22}) {  // 1, 3, 31
      kernel.exp2.max_error_ulps = k;
      EXPECT_FALSE(output_error(up, kernel, in).defined) << factors << " " << k;
    }
  }
}

TEST(ProductFlush, CaseF) {
  const UpwardRounding up;
  KernelModel kernel = base();
  kernel.numerator.flush_to_zero = true;
  // 1024 keys of weight 2^-125: every product 0.3 2^-125 is flushed; l = 2^-115.
  const double bound = product_flush(up, kernel, 1024, Lower<Log2>(-115)).value();
  EXPECT_GE(bound, 0.300781);
  EXPECT_NEAR(bound, 0.5, 1e-4);
  kernel.numerator.flush_to_zero = false;
  EXPECT_LT(product_flush(up, kernel, 1024, Lower<Log2>(-115)).value(), 1e-7);
  EXPECT_EQ(product_flush(up, kernel, 0, Lower<Log2>(-115)).value(), 0);
  EXPECT_EQ(product_flush(up, kernel, 5, Lower<Log2>()).value(), infinity);
}

}  // namespace
}  // namespace headroom
