// AMD GPUs.
#include "reference/model/presets/families.h"

namespace headroom {
namespace {

constexpr const char* mma_sim = "MMA-Sim, arXiv 2511.10909, bit-exact model of the matrix unit";
constexpr const char* llvm = "LLVM AMDGPUUsage, llvm.exp2 and llvm.amdgcn.exp2 (review D153024)";

}  // namespace

/// FlashAttention-2 as Composable Kernel and Triton write it for MI300: raw scores, one FP32
/// constant in a fused exponent, v_exp_f32, BF16 P, FP32 denominator of the unrounded P.
KernelModel cdna3() {
  KernelModel m;
  m.name = m.machine = "cdna3";
  m.operand = bf16;
  m.scale = {
      .scale = FactorSite::score, .log2e = FactorSite::score, .constant = fp32, .arithmetic = fp32};
  m.centring = {.keys = Centring::none, .mean = bf16, .difference = bf16};
  const Accumulator matrix_unit{.format = fp32,
                                .order = {OrderKind::matrix_unit, 8, 23},
                                .flush_to_zero = false,
                                .rounded_products = false};
  m.score = {.accumulator = matrix_unit, .store = fp32, .scale_before_store = false};
  m.exponent = {.format = fp32, .fused = true};
  m.exp2 = {.name = ulp_unit_name(1.5),
            .result = fp32,
            .max_error_ulps = 1.5,
            .flush_to_zero = true,
            .monotone_at_integers = false,
            .propagates_nan = true,
            .evidence = Evidence::documented,
            .source = "LLVM AMDGPUUsage: 1 ulp, taken as one of the correctly rounded result"};
  m.p = {.format = bf16, .saturate = false, .flush_to_zero = false, .denominator_rounded = false};
  m.denominator = {
      .format = fp32, .order = {OrderKind::any}, .flush_to_zero = true, .rounded_products = false};
  m.numerator = matrix_unit;
  m.normalise = {.division = Division::reciprocal,
                 .reciprocal_max_error_ulps = 1.5,
                 .reciprocal_flush_to_zero = true,
                 .reciprocal_exact_at_powers_of_two = false,
                 .guard = DenominatorGuard::zero_to_zero,
                 .guard_value = 0,
                 .output = bf16,
                 .evidence = Evidence::assumed,
                 .source = ""};
  m.stabilizer = {.norm = fp32, .store = fp32, .round_up = true};
  m.tiles = {.keys = 64, .padding = Padding::masked, .empty_row = EmptyRowRule::zero};
  m.facts = {
      {"exp2.error", "v_exp_f32 errs by at most 1 ulp", Evidence::documented, llvm},
      {"exp2.flush", "v_exp_f32 without the scaling of small arguments flushes subnormals",
       Evidence::documented, llvm},
      {"exp2.nan", "v_exp_f32 of NaN is NaN", Evidence::assumed, ""},
      {"exp2.powers-of-two", "v_exp_f32 may be inexact at nonzero integers", Evidence::assumed, ""},
      {"matrix-unit.order",
       "groups of 8 products, cut to 24 bits, are added to the accumulator with at least 23 "
       "fraction bits below the largest exponent",
       Evidence::measured, mma_sim},
      {"matrix-unit.direction",
       "sums that are cut downward and rounded to nearest at the end err no more, and grow no "
       "larger, than those of a unit of 23 fraction bits that truncates",
       Evidence::assumed, ""},
      {"matrix-unit.flush",
       "the matrix unit honours subnormal inputs and results (CDNA2's does not)",
       Evidence::measured, mma_sim},
      {"denominator.order", "lanes of a wave add their own keys and are then reduced: any order",
       Evidence::assumed, ""},
      {"denominator.flush", "FP32 additions outside the matrix unit flush subnormals",
       Evidence::assumed, ""},
      {"conversion.rounding", "FP32 to BF16 rounds to nearest even, keeping subnormals",
       Evidence::assumed, ""},
      {"reciprocal.error", "1 / l (v_rcp_f32) errs by at most 1 ulp", Evidence::assumed, ""},
      {"reciprocal.flush", "1 / l flushes subnormal results", Evidence::assumed, ""},
      {"reciprocal.powers-of-two", "1 / l may be inexact at powers of two", Evidence::assumed, ""},
      {"empty-row.rule", "rows without keys give O = 0, LSE = -inf", Evidence::assumed, ""},
  };
  return m;
}

}  // namespace headroom
