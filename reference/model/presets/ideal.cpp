// Arithmetic without a chip: IEEE 754 in FP32, and FP16 in every place.
#include "reference/model/presets/families.h"

namespace headroom {
namespace {

constexpr const char* ieee_754 = "IEEE 754-2019";

}  // namespace

/// FP32 throughout, every operation correctly rounded, gradual underflow, sums one after another.
KernelModel ieee_fp32() {
  KernelModel m;
  m.name = "ieee-fp32";
  m.machine = "ieee-fp32";
  m.operand = fp32;
  m.scale = {
      .scale = FactorSite::score, .log2e = FactorSite::score, .constant = fp32, .arithmetic = fp32};
  m.centring = {.keys = Centring::none, .mean = fp32, .difference = fp32};
  const Accumulator products{.format = fp32,
                             .order = {OrderKind::sequential},
                             .flush_to_zero = false,
                             .rounded_products = true};
  m.score = {.accumulator = products, .store = fp32, .scale_before_store = true};
  m.exponent = {.format = fp32, .fused = false};
  m.exp2 = {.name = "correctly-rounded",
            .result = fp32,
            .max_error_ulps = 0.5,
            .flush_to_zero = false,
            .monotone_at_integers = true,
            .propagates_nan = true,
            .evidence = Evidence::documented,
            .source = "IEEE 754-2019, 9.2"};
  m.p = {.format = fp32, .saturate = false, .flush_to_zero = false, .denominator_rounded = false};
  m.denominator = {.format = fp32,
                   .order = {OrderKind::sequential},
                   .flush_to_zero = false,
                   .rounded_products = false};
  m.numerator = products;
  m.normalise = {.division = Division::divide,
                 .reciprocal_max_error_ulps = 0.5,
                 .reciprocal_flush_to_zero = false,
                 .reciprocal_exact_at_powers_of_two = true,
                 .guard = DenominatorGuard::none,
                 .guard_value = 0,
                 .output = fp32,
                 .evidence = Evidence::documented,
                 .source = "IEEE 754-2019, 5.4.1"};
  m.stabilizer = {.norm = fp32, .store = fp32, .round_up = true};
  m.tiles = {.keys = 128, .padding = Padding::sliced, .empty_row = EmptyRowRule::zero};
  m.facts = {
      {"exp2.error", "exp2 is correctly rounded", Evidence::documented, ieee_754},
      {"arithmetic.rounding",
       "additions, products, quotients and conversions are correctly rounded to nearest even with "
       "gradual underflow",
       Evidence::documented, ieee_754},
  };
  return m;
}

/// FP16 in every place that can be FP16, as kernels with half accumulators do; norms stay FP32,
/// because a FP16 sum of squares overflows for a vector longer than 255.
KernelModel fp16_everywhere() {
  KernelModel m;
  m.name = "fp16-everywhere";
  m.machine = "fp16-everywhere";
  m.operand = fp16;
  m.scale = {
      .scale = FactorSite::score, .log2e = FactorSite::score, .constant = fp16, .arithmetic = fp16};
  m.centring = {.keys = Centring::none, .mean = fp16, .difference = fp16};
  const Accumulator products{.format = fp16,
                             .order = {OrderKind::sequential},
                             .flush_to_zero = false,
                             .rounded_products = false};
  m.score = {.accumulator = products, .store = fp16, .scale_before_store = true};
  m.exponent = {.format = fp16, .fused = false};
  m.exp2 = {.name = "correctly-rounded",
            .result = fp16,
            .max_error_ulps = 0.5,
            .flush_to_zero = false,
            .monotone_at_integers = true,
            .propagates_nan = true,
            .evidence = Evidence::assumed,
            .source = ""};
  m.p = {.format = fp16, .saturate = false, .flush_to_zero = false, .denominator_rounded = false};
  m.denominator = {.format = fp16,
                   .order = {OrderKind::sequential},
                   .flush_to_zero = false,
                   .rounded_products = false};
  m.numerator = products;
  m.normalise = {.division = Division::divide,
                 .reciprocal_max_error_ulps = 0.5,
                 .reciprocal_flush_to_zero = false,
                 .reciprocal_exact_at_powers_of_two = true,
                 .guard = DenominatorGuard::none,
                 .guard_value = 0,
                 .output = fp16,
                 .evidence = Evidence::documented,
                 .source = "IEEE 754-2019, 5.4.1"};
  m.stabilizer = {.norm = fp32, .store = fp16, .round_up = true};
  m.tiles = {.keys = 128, .padding = Padding::sliced, .empty_row = EmptyRowRule::zero};
  m.facts = {
      {"exp2.error",
       "FP16 exp2 is correctly rounded (ex2.approx.f16 promises 2^-9.9 relative only)",
       Evidence::assumed, ""},
      {"exp2.subnormals", "FP16 exp2 takes and gives subnormals (ex2.approx.f16 has no .ftz form)",
       Evidence::documented, "NVIDIA PTX ISA 9.1, 9.7.4.10"},
      {"arithmetic.rounding",
       "FP16 additions, fused products, quotients and conversions round to nearest even",
       Evidence::assumed, ""},
      {"arithmetic.subnormals", "FP16 arithmetic honours subnormals", Evidence::assumed, ""},
  };
  return m;
}

}  // namespace headroom
