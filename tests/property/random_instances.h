// Random kernel files and random heads aimed at the thresholds of gates and formats.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "reference/head/head.h"
#include "reference/model/kernel_model.h"
#include "tests/unit/bounds/simulation.h"

namespace headroom::simulation {

template <class T>
const T& pick(Random& g, const std::vector<T>& from) {
  return from[below(g, from.size())];
}
inline bool chance(Random& g, double p) { return uniform(g) < p; }
inline std::string yes_no(bool b) { return b ? "true" : "false"; }

inline const std::vector<std::string> formats = {"fp32", "fp32", "fp32", "fp16", "bf16"};

inline std::string random_order(Random& g, const std::string& format) {
  std::vector<std::string> orders = {"sequential", "any",     "pairwise",
                                     "tile:4",     "tile:16", "lanes:4"};
  if (format == "fp32") {
    orders.push_back("matrix-unit:25:16");
    orders.push_back("matrix-unit:13:4");
  }
  return pick(g, orders);
}

inline std::string random_kernel_text(Random& g) {
  const std::vector<std::string> machines = {"tpu7x", "tpu-v6e", "hopper", "ieee-fp32",
                                             "fp16-everywhere"};
  std::string text = "name = \"k\"\nmachine = \"" + pick(g, machines) + "\"\n";
  const double wild = pick(g, std::vector<double>{0, 0.1, 0.4, 0.8});
  const auto maybe = [&] { return chance(g, wild); };
  if (maybe())
    text += "operand = \"" + pick(g, std::vector<std::string>{"bf16", "fp16", "fp32"}) + "\"\n";
  const std::vector<std::string> sites = {"query", "key", "score"};
  std::string section;
  const auto flush_section = [&](const std::string& name) {
    if (!section.empty()) text += "[" + name + "]\n" + section;
    section.clear();
  };
  const auto add = [&](const std::string& key, const std::string& value, bool quoted = true) {
    if (maybe()) section += key + " = " + (quoted ? "\"" + value + "\"" : value) + "\n";
  };
  add("scale", pick(g, sites));
  add("log2e", pick(g, sites));
  add("constant", pick(g, formats));
  add("arithmetic", pick(g, formats));
  flush_section("scale");
  add("keys", pick(g, std::vector<std::string>{"none", "mean", "virtual"}));
  add("mean", pick(g, formats));
  add("difference", pick(g, formats));
  flush_section("centring");
  const auto accumulator = [&](const std::string& name) {
    if (maybe()) {
      const std::string format = pick(g, formats);
      section += "accumulator = \"" + format + "\"\norder = \"" + random_order(g, format) + "\"\n";
      section += "rounded_products = false\n";
    }
    add("flush_to_zero", yes_no(chance(g, 0.5)), false);
    if (name != "score" && section.empty()) add("rounded_products", yes_no(chance(g, 0.5)), false);
  };
  accumulator("score");
  add("store", pick(g, formats));
  const bool before = chance(g, 0.5);
  if (maybe()) {
    const bool fused = !before && chance(g, 0.6);
    section += "scale_before_store = " + yes_no(before) + "\n";
    flush_section("score");
    section += "fused = " + yes_no(fused) + "\n";
  } else {
    flush_section("score");
  }
  add("format", pick(g, formats));
  flush_section("exponent");
  if (maybe()) {
    const std::string result = pick(g, formats);
    const double most = result == "fp32" ? 500 : result == "fp16" ? 300 : 60;
    const bool rounded = chance(g, 0.5);
    section += "result = \"" + result + "\"\n";
    if (rounded) {
      section += "unit = \"correctly-rounded\"\n";
    } else {
      const double ulps = std::floor(std::exp(uniform(g) * std::log(most)) * 4) / 4;
      section += "unit = \"ulp:" + std::string([&] {
                   char b[32];
                   std::snprintf(b, sizeof b, "%g", std::max(0.75, ulps));
                   return std::string(b);
                 }()) +
                 "\"\n";
      section += "monotone_at_integers = " + yes_no(chance(g, 0.5)) + "\n";
    }
    section += "flush_to_zero = " + yes_no(chance(g, 0.5)) + "\n";
  }
  flush_section("exp2");
  add("format",
      pick(g, std::vector<std::string>{"fp32", "bf16", "fp16", "e4m3fn", "e5m2", "tf32"}));
  add("saturate", yes_no(chance(g, 0.5)), false);
  add("flush_to_zero", yes_no(chance(g, 0.5)), false);
  add("denominator_rounded", yes_no(chance(g, 0.5)), false);
  flush_section("p");
  accumulator("denominator");
  flush_section("denominator");
  accumulator("numerator");
  flush_section("numerator");
  add("division", pick(g, std::vector<std::string>{"divide", "reciprocal"}));
  add("reciprocal_max_error_ulps", pick(g, std::vector<std::string>{"1/2", "1", "4", "100"}));
  add("reciprocal_flush_to_zero", yes_no(chance(g, 0.5)), false);
  add("reciprocal_exact_at_powers_of_two", yes_no(chance(g, 0.5)), false);
  if (maybe()) {
    const std::string guard = pick(g, std::vector<std::string>{"none", "zero-to-one", "maximum"});
    section += "guard = \"" + guard + "\"\n";
    if (guard == "maximum")
      section += "guard_value = \"2^-" + std::to_string(below(g, 120)) + "\"\n";
  }
  add("output", pick(g, formats));
  flush_section("normalise");
  add("norm", pick(g, formats));
  add("store", pick(g, formats));
  add("round_up", yes_no(chance(g, 0.5)), false);
  flush_section("stabilizer");
  if (maybe()) section += "vmax = \"2^" + std::to_string(below(g, 12)) + "\"\n";
  add("gate", pick(g, std::vector<std::string>{"two-sided", "one-sided"}));
  add("query_block", std::to_string(below(g, 3)), false);
  flush_section("gate");
  add("keys", std::to_string(std::size_t{1} << below(g, 7)), false);
  add("padding", pick(g, std::vector<std::string>{"sliced", "masked", "zero-keys"}));
  flush_section("tiles");
  return text;
}

inline double random_normal(Random& g) {
  return std::sqrt(-2 * std::log(1 - uniform(g))) * std::cos(6.283185307179586 * uniform(g));
}

/// Windows, segments, masks, biases, softcaps and sinks, some or all of them.
inline void add_modifiers(Random& g, Head& head) {
  ScoreModifiers& m = head.modifiers;
  const std::int64_t queries = head.queries(), keys = head.keys();
  const auto up_to = [&](std::int64_t n) {
    return static_cast<std::int64_t>(below(g, static_cast<std::size_t>(n)));
  };
  const auto all = [&](std::int64_t rows) { return static_cast<std::size_t>(rows * keys); };
  if (chance(g, 0.3)) m.window = Window{up_to(keys + 2) - 1, up_to(keys + 2) - 1};
  if (chance(g, 0.2)) {
    const std::int64_t segments = 1 + up_to(4);
    const bool packed = chance(g, 0.6);
    const auto ids = [&](std::int64_t n) {
      std::vector<std::int32_t> result;
      for (std::int64_t i = 0; i < n; ++i) {
        result.push_back(static_cast<std::int32_t>(packed ? i * segments / n : up_to(segments)));
      }
      return result;
    };
    m.query_segments = ids(queries);
    m.key_segments = ids(keys);
  }
  if (chance(g, 0.2)) {
    const double density = pick(g, std::vector<double>{0.05, 0.5, 0.95});
    m.mask.resize(all(chance(g, 0.3) ? 1 : queries));
    for (std::uint8_t& one : m.mask) one = chance(g, density) ? 1 : 0;
  }
  if (chance(g, 0.4)) {
    const std::int64_t rows = chance(g, 0.4) ? 1 : queries;
    std::vector<double> bias(all(rows));
    const std::size_t kind = below(g, 6);
    const double slope = std::exp2(-8 * uniform(g)), spread = std::exp2(12 * uniform(g) - 6);
    const double hidden = pick(g, std::vector<double>{-HUGE_VAL, -0x1.fffffep127, -1e4, -100, -60});
    for (std::size_t i = 0; i < bias.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) / keys,
                 key = static_cast<std::int64_t>(i) % keys;
      bias[i] = kind == 0   ? -slope * static_cast<double>(std::abs(row - key))
                : kind == 1 ? spread * random_normal(g)
                : kind == 2 ? (chance(g, 0.5) ? hidden : 0)
                : kind == 3 ? (chance(g, 0.1) ? 0 : hidden)
                : kind == 4 ? -spread
                            : (key % 7 == 0 ? spread : -spread);
    }
    const Format& format = chance(g, 0.5) ? fp32 : bf16;
    for (double& b : bias) b = round_to(format, b);
    m.bias = Matrix::from_values(format, rows, keys, bias);
  }
  if (chance(g, 0.2)) {
    m.softcap = parse_exact_number(pick(g, std::vector<std::string>{"1", "5", "30", "50", "1/3"}));
  }
  if (chance(g, 0.3)) {
    m.sink = pick(g, std::vector<double>{-1e30, -100, -60, -5, 0, 3, 30, 100, 1e5});
  }
}

/// A head aimed at thresholds: scores near the gates and the flush limits. `many_rows`: that many
/// query rows instead of a few.
inline Head random_head(Random& g, const KernelModel& kernel, std::size_t many_rows = 0) {
  const std::size_t n = chance(g, 0.2) ? 1 + below(g, 3) : 1 + below(g, 64);
  std::size_t rows = chance(g, 0.3) ? n : 1 + below(g, 3);
  if (many_rows > 0) rows = many_rows;
  const std::size_t d = chance(g, 0.2) ? 1 : 1 + below(g, 16), dv = 1 + below(g, 3);
  std::vector<double> q(rows * d), k(n * d), v(n * dv);
  const std::size_t family = below(g, 7);
  const double share = uniform(g);
  for (double& x : q) x = random_normal(g);
  for (double& x : k) x = random_normal(g);
  if (family == 1 || family == 2) {  // levels along one coordinate, junk across
    const double high = random_normal(g), low = high - uniform(g) * 4;
    const double across = std::exp2(8 * uniform(g));
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t c = 0; c < d; ++c) {
        q[i * d + c] = c == 0 ? 1 + 0.1 * random_normal(g) : c == 1 ? across : 0;
      }
    }
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t c = 0; c < d; ++c) {
        k[j * d + c] = c == 0                  ? (uniform(g) < share ? high : low)
                       : c == 2 && family == 1 ? (j % 2 == 0 ? 1 : -1)
                       : c == 1 && family == 2 ? 0.01 * random_normal(g)
                                               : 0;
      }
    }
  } else if (family == 3) {  // all equal
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t c = 0; c < d; ++c) k[j * d + c] = k[c];
    }
  } else if (family == 4) {  // powers of two, zeros, duplicates
    for (double& x : q) x = std::ldexp(chance(g, 0.5) ? 1 : -1, static_cast<int>(below(g, 8)) - 3);
    for (double& x : k) {
      x = chance(g, 0.3) ? 0
                         : std::ldexp(chance(g, 0.5) ? 1 : -1, static_cast<int>(below(g, 8)) - 3);
    }
    for (std::size_t j = 1; j < n; ++j) {
      if (!chance(g, 0.5)) continue;
      for (std::size_t c = 0; c < d; ++c) k[j * d + c] = k[(j - 1) * d + c];
    }
  } else if (family == 5) {  // far from the origin
    const double shift = std::exp2(20 * uniform(g));
    for (std::size_t c = 0; c < d; ++c) {
      const double s = shift * random_normal(g);
      for (std::size_t j = 0; j < n; ++j) k[j * d + c] += s;
    }
  } else if (family == 6) {  // most keys at one level, few far away, scores of one sign
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t c = 0; c < d; ++c) {
        k[j * d + c] = c == 0 ? (chance(g, 0.9) ? -1 : -1 - uniform(g)) : 0;
      }
    }
    for (std::size_t i = 0; i < rows; ++i) q[i * d] = std::fabs(q[i * d]) + 0.1;
  }
  Head head;
  head.id = "random";
  head.layout = "nd";
  const std::size_t scale = below(g, 10);
  double factor = 1;
  if (scale < 5) {
    head.scale = Scale::base2(1);
  } else if (scale < 7) {
    head.scale = Scale::reciprocal_sqrt(d);
    factor = 1.4427 / std::sqrt(static_cast<double>(d));
  } else if (scale < 8) {
    head.scale = Scale::natural(1);
    factor = 1.4427;
  } else {
    const std::string text =
        pick(g, std::vector<std::string>{"-1/8", "0", "2^-20", "2^10", "3/7", "-3"});
    const Rational value = parse_exact_number(text);
    head.scale = chance(g, 0.5) ? Scale::base2(value) : Scale::natural(value);
    factor = std::fabs(static_cast<double>(value));
  }
  // aim the Cauchy-Schwarz bound at a threshold
  double q_norm = 0, k_norm = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    double s = 0;
    for (std::size_t c = 0; c < d; ++c) s += q[i * d + c] * q[i * d + c];
    q_norm = std::max(q_norm, std::sqrt(s));
  }
  for (std::size_t j = 0; j < n; ++j) {
    double s = 0;
    for (std::size_t c = 0; c < d; ++c) s += k[j * d + c] * k[j * d + c];
    k_norm = std::max(k_norm, std::sqrt(s));
  }
  const double target =
      pick(g, std::vector<double>{1,   5,   8,   12,  16,  20,  24,  30,  60,  100,  110, 117,
                                  126, 140, 180, 212, 213, 230, 237, 250, 400, 3000, 1e5}) *
      (chance(g, 0.5) ? 1 : 0.9 + 0.2 * uniform(g));
  if (q_norm > 0 && k_norm > 0 && factor > 0 && chance(g, 0.95)) {
    const double ratio = target / (q_norm * k_norm * factor);
    const double part = family == 5 ? 0 : 0.6 * uniform(g);
    for (double& x : q) x *= std::pow(ratio, 1 - part);
    for (double& x : k) x *= std::pow(ratio, part);
  }
  if (chance(g, 0.3)) {
    for (std::size_t i = 1; i < rows; ++i) {
      const double s = uniform(g) * (chance(g, 0.5) ? 1 : 0.01);
      for (std::size_t c = 0; c < d; ++c) q[i * d + c] *= s;
    }
  }
  const double magnitude = pick(g, std::vector<double>{1, 1, 1, 0.3, 8, 1000, 6e4, 0x1p24, 0x1p80,
                                                       0x1p120, 0x1p-20, 0x1p-100, 0x1p-126, 0});
  const std::size_t kind = below(g, 4);
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t c = 0; c < dv; ++c) {
      double x = kind == 0   ? 1
                 : kind == 1 ? (j % 2 == 0 ? 1 : -1)
                 : kind == 2 ? random_normal(g)
                             : (k[j * d] > k[0] * 0.999 ? 1 : -1);
      v[j * dv + c] = x * magnitude;
    }
  }
  const Format& f = kernel.operand;
  const auto store = [&](std::vector<double>& x) {
    for (double& e : x) {
      e = round_to(f, e);
      if (!std::isfinite(e)) e = std::copysign(f.max_finite(), e);
    }
  };
  store(q), store(k), store(v);
  head.q = Matrix::from_values(f, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(d), q);
  head.k = Matrix::from_values(f, static_cast<std::int64_t>(n), static_cast<std::int64_t>(d), k);
  head.v = Matrix::from_values(f, static_cast<std::int64_t>(n), static_cast<std::int64_t>(dv), v);
  head.stored_q = head.stored_k = head.stored_v = f;
  head.scale_source = head.mask_source = "option";
  head.visibility.queries = static_cast<std::int64_t>(rows);
  head.visibility.keys = static_cast<std::int64_t>(n);
  head.visibility.length =
      chance(g, 0.15) ? static_cast<std::int64_t>(below(g, n + 1)) : static_cast<std::int64_t>(n);
  if (rows == n && chance(g, 0.5)) head.visibility.kind = MaskKind::causal;
  if (chance(g, 0.1)) head.visibility.kind = MaskKind::causal_bottom_right;
  return head;
}

}  // namespace headroom::simulation
