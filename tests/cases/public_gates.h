// Heads that pass a public gate and are wrong, built exactly (DESIGN.md, "Cases"). Scores are in
// log2 units already (c = 1); kernels are variants of the ideal fixed-stabilizer kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reference/head/head.h"
#include "reference/model/kernel_file.h"

namespace headroom::cases {

/// A head from functions of (row, channel); formats bf16; z = <q, k>.
inline Head make_head(const std::string& id, std::int64_t queries, std::int64_t keys,
                      std::int64_t channels, std::int64_t value_channels,
                      const std::function<double(std::int64_t, std::int64_t)>& q,
                      const std::function<double(std::int64_t, std::int64_t)>& k,
                      const std::function<double(std::int64_t, std::int64_t)>& v,
                      const Format& format = bf16) {
  const auto fill = [&](std::int64_t rows, std::int64_t columns,
                        const std::function<double(std::int64_t, std::int64_t)>& f) {
    std::vector<double> values(static_cast<std::size_t>(rows * columns));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        values[static_cast<std::size_t>(r * columns + c)] = f(r, c);
      }
    }
    return Matrix::from_values(format, rows, columns, values);
  };
  Head head;
  head.id = id;
  head.layout = "nd";
  head.q = fill(queries, channels, q);
  head.k = fill(keys, channels, k);
  head.v = fill(keys, value_channels, v);
  head.stored_q = head.stored_k = head.stored_v = format;
  head.scale = Scale::base2(1);
  head.scale_source = "option";
  head.visibility.queries = queries;
  head.visibility.keys = keys;
  head.visibility.length = keys;
  return head;
}

/// Released fixed-m arithmetic: FP32 exp2 that flushes, correctly rounded; BF16 P; BF16 key mean
/// and difference; reciprocal that flushes and is exact at powers of two. `more` overrides keys.
inline KernelModel ideal_kernel(const std::string& more = {}, bool products_flush = false) {
  return parse_kernel(
      "name = \"ideal\"\n"
      "machine = \"tpu7x\"\n"
      "[exp2]\nunit = \"correctly-rounded\"\nflush_to_zero = true\n"
      "[normalise]\nreciprocal_max_error_ulps = \"1/2\"\n"
      "reciprocal_exact_at_powers_of_two = true\nreciprocal_flush_to_zero = true\n"
      "[numerator]\nflush_to_zero = " +
          std::string(products_flush ? "true\nrounded_products = true\n" : "false\n") + more,
      "ideal.toml");
}

inline Head case_a() {
  return make_head(
      "case-a", 1, 75600, 128, 1, [](auto, auto) { return -260.0; },
      [](std::int64_t j, std::int64_t i) { return (i + j) % 20 < 9 ? 1 + 0x1p-7 : 1.0; },
      [](std::int64_t j, auto) { return static_cast<double>(j % 20) / 32; });
}

inline Head case_b() {
  return make_head(
      "case-b", 1, 75600, 3, 1,
      [](auto, std::int64_t c) { return c == 0   ? 1.0
                                        : c == 1 ? 113.0
                                                 : 0.0; },
      [](std::int64_t j, std::int64_t c) {
        const bool high = j % 5 < 2;
        if (c == 0) return high ? 51.0 / 32 : -17.0 / 16;
        // signs balanced in each group: groups of 5 keys alternate
        return c == 1 ? 0.0 : (j / 5) % 2 == 0 ? 1.0 : -1.0;
      },
      [](std::int64_t j, auto) { return j % 5 < 2 ? 1.0 : -1.0; });
}

inline Head all_equal(const std::string& id, std::int64_t keys, double value) {
  return make_head(
      id, 1, keys, 2, 1, [](auto, auto) { return 1.0; }, [](auto, auto) { return 0.5; },
      [value](auto, auto) { return value; });
}
inline Head case_c() { return all_equal("case-c", 75600, 0x1p24); }
inline Head case_d() { return all_equal("case-d", 65536, 0.75); }

inline Head case_e() {
  return make_head(
      "case-e", 1, 4096, 3, 1,
      [](auto, std::int64_t c) { return c == 0   ? 114.0
                                        : c == 1 ? 201.0
                                                 : 0.0; },
      [](std::int64_t j, std::int64_t c) {
        if (j < 2418) return c == 0 ? -9 * 0x1p-10 : 0.0;
        if (j < 2418 + 1674) return c == 0 ? 13 * 0x1p-10 : 0.0;
        return c == 2 ? (j < 4094 ? 1.0 : -1.0) : 0.0;
      },
      [](std::int64_t j, auto) { return j < 2418 ? -1.0 : 1.0; });
}

inline Head case_f() {
  return make_head(
      "case-f", 1, 1024, 2, 1, [](auto, std::int64_t c) { return c == 0 ? 213.0 : 0.0; },
      [](std::int64_t j, std::int64_t c) { return c == 0       ? 0.0
                                                  : j % 2 == 0 ? 1.0
                                                               : -1.0; },
      [](auto, auto) { return 0.30078125; });
}

}  // namespace headroom::cases
