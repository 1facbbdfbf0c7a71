// The numbers of the exp2 kernel, and what is proved about them. The one place: the kernels, the
// proof scripts (proofs/sollya/vector_exp2.sollya, proofs/gappa/vector_exp2.g) and the tests are
// compared with this file by tests/unit/vector/constants_test.py.
#pragma once

#include <bit>
#include <cstdint>

namespace headroom {

/// 2^r = 1 + r P(r) for |r| <= exp2_reduced_limit, P(r) = c[0] + c[1] r + ... + c[6] r^6.
/// Coefficients: Sollya's fpminimax, proofs/sollya/vector_exp2.sollya.
inline constexpr int exp2_degree = 6;
inline constexpr double exp2_coefficients[exp2_degree + 1] = {
    0x1.62e42fefa39efp-1, 0x1.ebfbdff82c594p-3,  0x1.c6b08d7050bb6p-5, 0x1.3b2ab6fb03673p-7,
    0x1.5d87f7c8e088p-10, 0x1.430a4de062debp-13, 0x1.03b8b74c5307ep-16};

/// 2^(j/16) = head[j] + tail[j], each the nearest double.
inline constexpr int exp2_table_size = 16;
alignas(64) inline constexpr double exp2_table_head[exp2_table_size] = {0x1p0,
                                                                        0x1.0b5586cf9890fp0,
                                                                        0x1.172b83c7d517bp0,
                                                                        0x1.2387a6e756238p0,
                                                                        0x1.306fe0a31b715p0,
                                                                        0x1.3dea64c123422p0,
                                                                        0x1.4bfdad5362a27p0,
                                                                        0x1.5ab07dd485429p0,
                                                                        0x1.6a09e667f3bcdp0,
                                                                        0x1.7a11473eb0187p0,
                                                                        0x1.8ace5422aa0dbp0,
                                                                        0x1.9c49182a3f09p0,
                                                                        0x1.ae89f995ad3adp0,
                                                                        0x1.c199bdd85529cp0,
                                                                        0x1.d5818dcfba487p0,
                                                                        0x1.ea4afa2a490dap0};
alignas(64) inline constexpr double exp2_table_tail[exp2_table_size] = {0x0p0,
                                                                        0x1.8a62e4adc610bp-54,
                                                                        -0x1.19041b9d78a76p-55,
                                                                        0x1.9b07eb6c70573p-54,
                                                                        0x1.6f46ad23182e4p-55,
                                                                        0x1.ada0911f09ebcp-55,
                                                                        0x1.d4397afec42e2p-56,
                                                                        0x1.6324c054647adp-54,
                                                                        -0x1.bdd3413b26456p-54,
                                                                        -0x1.41577ee04992fp-55,
                                                                        0x1.6e9f156864b27p-54,
                                                                        0x1.c7c46b071f2bep-56,
                                                                        0x1.7a1cd345dcc81p-54,
                                                                        0x1.11065895048ddp-55,
                                                                        0x1.2ed02d75b3707p-55,
                                                                        -0x1.e9c23179c2893p-54};

/// 1.5 * 2^48: th + exp2_round_to_sixteenth rounds th to the nearest multiple of 1/16 and leaves
/// that multiple, in sixteenths, in the low bits of the significand (|th| < 2^46).
inline constexpr double exp2_round_to_sixteenth = 0x1.8p48;

/// Arguments are clamped to [-exp2_argument_limit, exp2_argument_limit]; the tail of a two-part
/// argument to [-exp2_tail_limit, exp2_tail_limit] (half an ulp of the head at the limit, and as
/// much again for c_lo s).
inline constexpr double exp2_argument_limit = 0x1p20;
inline constexpr double exp2_tail_limit = 0x1p-32;
/// Row shifts are integers of at most this magnitude. A clamped argument then still means a result
/// that is 0 or +infinity: 2^20 - (2^20 - 2^12) = 4096 lies beyond every binary64 exponent.
inline constexpr double exp2_shift_limit = 0x1p20 - 0x1p12;
/// |r| <= 1/32 + exp2_tail_limit.
inline constexpr double exp2_reduced_limit = 0x1p-5 + 0x1p-32;

// The error account. Each part is relative to the exact power 2^t, t the mathematical argument.
/// |1 + r P(r) - 2^r| / 2^r, Sollya's supnorm over |r| <= exp2_reduced_limit.
inline constexpr double exp2_polynomial_error = 0x1.25p-63;
/// Roundings of the polynomial, the table and the reconstruction; last ones included. Gappa.
inline constexpr double exp2_rounding_error = 0x1.0fp-53;
/// |2^(j/16) - head[j] - tail[j]|.
inline constexpr double exp2_table_error = 0x1p-107;
/// Rounding of r = head' + tail to double: half an ulp of |r| < 2^-4, times ln 2 (< 1).
inline constexpr double exp2_argument_error = 0x1p-58;
/// What c s loses as head + tail: the last rounding of the tail and c - (c_hi + c_lo).
inline constexpr double exp2_product_error = 0x1p-82;

/// The promise: every exp2 function of exp2.h returns y with
///   |y - 2^t| <= exp2_relative_error_bound 2^t + exp2_absolute_error_bound,
/// t the exact argument (product and shift included). The absolute part is used only by results
/// below 2^-1022 (at most half of it: one rounding to the grid of subnormals, or the flush of what
/// is below 2^-1075). Where 2^t (1 + bound) >= 2^1024 the result may be +infinity, and is so from
/// 2^t (1 - bound) >= 2^1024 on: infinity means "above the largest double, or within the bound".
inline constexpr double exp2_relative_error_bound = 0x1.18p-53;
inline constexpr double exp2_absolute_error_bound = 0x1p-1074;

// The parts compose: (1 + a)(1 + b)... - 1 <= bound, the products of two parts being below 2^-100.
static_assert(exp2_rounding_error + exp2_argument_error + exp2_polynomial_error + exp2_table_error +
                  exp2_product_error + 0x1p-100 <=
              exp2_relative_error_bound);

// The short form (exp2_short): no tails, arguments of moderate size.

/// Largest |c s|: no power, and no square of one, is near the ends of the range.
inline constexpr double exp2_short_limit = 400;
/// Roundings of the polynomial and the reconstruction, and the table's tails. Gappa.
inline constexpr double exp2_short_rounding_error = 0x1.c9p-53;
/// r = RN(c_lo s + RN(c_hi s - k)): 2^-59 and 2^-58, times ln 2.
inline constexpr double exp2_scaled_argument_error = 0x1.0bp-58;
inline constexpr double exp2_short_relative_error_bound = 0x1.d2p-53;
static_assert(exp2_short_rounding_error + exp2_scaled_argument_error + exp2_polynomial_error +
                  exp2_table_error + exp2_product_error + 0x1p-100 <=
              exp2_short_relative_error_bound);

/// Its table: head[j] with j 2^48 taken off its bits, which add_exponent puts back.
struct Exp2ShortTable {
  alignas(64) double entry[exp2_table_size];
};
inline constexpr Exp2ShortTable exp2_short_table = [] {
  Exp2ShortTable t{};
  for (int j = 0; j < exp2_table_size; ++j) {
    t.entry[j] = std::bit_cast<double>(std::bit_cast<std::uint64_t>(exp2_table_head[j]) -
                                       (static_cast<std::uint64_t>(j) << 48));
  }
  return t;
}();

}  // namespace headroom
