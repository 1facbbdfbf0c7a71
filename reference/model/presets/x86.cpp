// x86 processors.
#include "reference/model/presets/families.h"

namespace headroom {
namespace {

constexpr const char* sdm =
    "Intel 64 and IA-32 Architectures Software Developer's Manual, VDPBF16PS, VCVTNEPS2BF16";

}  // namespace

/// A CPU kernel on AVX512-BF16: VDPBF16PS for both products, a vector exp2 in FP32, P by
/// VCVTNEPS2BF16, FP32 elsewhere under the default MXCSR.
KernelModel cpu_avx512_bf16() {
  KernelModel m;
  m.name = m.machine = "cpu-avx512-bf16";
  m.operand = bf16;
  m.scale = {
      .scale = FactorSite::score, .log2e = FactorSite::score, .constant = fp32, .arithmetic = fp32};
  m.centring = {.keys = Centring::none, .mean = bf16, .difference = bf16};
  const Accumulator dot_product{.format = fp32,
                                .order = {OrderKind::any},
                                .flush_to_zero = true,
                                .rounded_products = false,
                                .denormals_are_zero = true};
  m.score = {.accumulator = dot_product, .store = fp32, .scale_before_store = false};
  m.exponent = {.format = fp32, .fused = true};
  m.exp2 = {.name = ulp_unit_name(4),
            .result = fp32,
            .max_error_ulps = 4,
            .flush_to_zero = true,
            .monotone_at_integers = false,
            .propagates_nan = true,
            .evidence = Evidence::assumed,
            .source = ""};
  m.p = {.format = bf16, .saturate = false, .flush_to_zero = true, .denominator_rounded = false};
  m.denominator = {.format = fp32,
                   .order = {OrderKind::lanes, 16},
                   .flush_to_zero = false,
                   .rounded_products = false};
  m.numerator = dot_product;
  m.normalise = {.division = Division::divide,
                 .reciprocal_max_error_ulps = 0.5,
                 .reciprocal_flush_to_zero = false,
                 .reciprocal_exact_at_powers_of_two = true,
                 .guard = DenominatorGuard::none,
                 .guard_value = 0,
                 .output = bf16,
                 .evidence = Evidence::documented,
                 .source = "IEEE 754-2019, 5.4.1: VDIVPS"};
  m.stabilizer = {.norm = fp32, .store = fp32, .round_up = true};
  m.tiles = {.keys = 64, .padding = Padding::sliced, .empty_row = EmptyRowRule::zero};
  m.facts = {
      {"exp2.error",
       "the kernel's vector exp2 errs by at most 4 ulp and flushes (a polynomial and an exponent "
       "shifted in)",
       Evidence::assumed, ""},
      {"matrix-unit.products",
       "VDPBF16PS adds each product of two BF16 numbers by one fused multiply-add, rounded to "
       "nearest even whatever MXCSR says",
       Evidence::documented, sdm},
      {"matrix-unit.flush",
       "VDPBF16PS reads subnormals as zeros and flushes subnormal results, always",
       Evidence::documented, sdm},
      {"matrix-unit.order", "pairs of keys or channels a lane, lanes and registers in any order",
       Evidence::assumed, ""},
      {"denominator.order", "16 lanes add their own keys, then the lanes are added",
       Evidence::assumed, ""},
      {"denominator.flush", "MXCSR leaves FTZ and DAZ off: FP32 sums keep subnormals",
       Evidence::assumed, ""},
      {"conversion.rounding",
       "VCVTNEPS2BF16 rounds to nearest even, reads subnormals as zeros and flushes",
       Evidence::documented, sdm},
      {"arithmetic.division", "VDIVPS is correctly rounded", Evidence::documented,
       "IEEE 754-2019, 5.4.1"},
      {"empty-row.rule", "rows without keys give O = 0, LSE = -inf", Evidence::assumed, ""},
  };
  return m;
}

}  // namespace headroom
