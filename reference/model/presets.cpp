// Stock kernels of the machines. Every hardware fact carries how well it is known and from where;
// what no source establishes is `assumed`, and is then the pessimistic reading where there is one.

#include <fmt/format.h>

#include "reference/input_error.h"
#include "reference/model/kernel_file.h"

namespace headroom {
namespace {

constexpr const char* xla_accuracy = "JAX documentation, accuracy.md, reviewed 2026-09-18";
constexpr const char* maxdiffusion =
    "AI-Hypercomputer/maxdiffusion 7cfb8801, custom_splash_attention.py, attention_flax.py";
constexpr const char* flash_attention = "Dao-AILab/flash-attention 0251105a, hopper/softmax.h";
constexpr const char* mma_sim = "MMA-Sim, arXiv 2511.10909, bit-exact model of the matrix unit";
constexpr const char* ptx_isa = "NVIDIA PTX ISA 9.1";
constexpr const char* ieee_754 = "IEEE 754-2019";
constexpr const char* xla_reciprocal =
    "JAX documentation, accuracy.md, reviewed 2026-09-18 (XLA lowering); flush and powers of two: "
    "no source";

/// MaxDiffusion's video attention: base-2 scores, scale folded into K and log2(e) into Q in BF16,
/// keys centred by their BF16 mean, FP32 sums, BF16 P, unrounded denominator, O times 1/l.
KernelModel maxdiffusion_like(const std::string& machine) {
  KernelModel m;
  m.name = machine;
  m.machine = machine;
  m.operand = bf16;
  m.scale = {
      .scale = FactorSite::key, .log2e = FactorSite::query, .constant = bf16, .arithmetic = bf16};
  m.centring = {.keys = Centring::mean, .mean = bf16, .difference = bf16};
  const Accumulator matrix_unit{.format = fp32,
                                .order = {OrderKind::tile, 256},
                                .flush_to_zero = true,
                                .rounded_products = true};
  m.score = {.accumulator = matrix_unit, .store = fp32, .scale_before_store = true};
  m.exponent = {.format = fp32, .fused = false};
  m.exp2 = {.name = ulp_unit_name(90),
            .result = fp32,
            .max_error_ulps = 90,
            .flush_to_zero = true,
            .monotone_at_integers = false,
            .propagates_nan = true,
            .evidence = Evidence::assumed,
            .source = "JAX documentation, accuracy.md, for the XLA lowering; assumed for Pallas"};
  m.p = {.format = bf16, .saturate = false, .flush_to_zero = true, .denominator_rounded = false};
  m.denominator = {.format = fp32,
                   .order = {OrderKind::tile, 256},
                   .flush_to_zero = true,
                   .rounded_products = false};
  m.numerator = matrix_unit;
  m.normalise = {.division = Division::reciprocal,
                 .reciprocal_max_error_ulps = 1.5,
                 .reciprocal_flush_to_zero = true,
                 .reciprocal_exact_at_powers_of_two = false,
                 .guard = DenominatorGuard::none,
                 .guard_value = 0,
                 .output = bf16,
                 .evidence = Evidence::assumed,
                 .source = xla_reciprocal};
  m.stabilizer = {.norm = fp32, .store = fp32, .round_up = true};
  m.tiles = {.keys = 256, .padding = Padding::sliced, .empty_row = EmptyRowRule::nan};
  m.facts = {
      {"exp2.error", "XLA's FP32 exp2 errs by at most 90 ulp (exhaustive)", Evidence::documented,
       xla_accuracy},
      {"exp2.pallas",
       "exp2 as Pallas lowers it, without XLA's accuracy modes, errs by at most 90 ulp",
       Evidence::assumed, ""},
      {"exp2.flush", "subnormal results of exp2 are flushed to zero", Evidence::documented,
       xla_accuracy},
      {"exp2.nan", "exp2 of NaN is NaN", Evidence::assumed, ""},
      {"matrix-unit.products", "the matrix unit multiplies BF16 and accumulates in FP32",
       Evidence::documented, "JAX documentation, Pallas TPU details"},
      {"matrix-unit.order",
       "sums are FP32, round to nearest, 256 terms a pass in any order, passes one after another",
       Evidence::assumed, ""},
      {"matrix-unit.flush", "products and partial sums below 2^-126 are flushed to zero",
       Evidence::assumed, ""},
      {"denominator.order", "the denominator adds 256 keys a step in any order, then the steps",
       Evidence::documented, maxdiffusion},
      {"conversion.rounding", "FP32 to BF16 rounds to nearest even and flushes subnormals",
       Evidence::assumed, ""},
      {"reciprocal.error", "XLA's FP32 reciprocal errs by at most 1.5 ulp (exhaustive)",
       Evidence::documented, xla_accuracy},
      {"reciprocal.flush", "subnormal reciprocals are flushed to zero", Evidence::assumed, ""},
      {"reciprocal.powers-of-two", "the reciprocal may be inexact at powers of two",
       Evidence::assumed, ""},
  };
  return m;
}

/// FlashAttention-3 forward, 16-bit operands: raw scores, scale and log2(e) as one FP32 constant in
/// the fused exponent, BF16 P, FP32 denominator of the unrounded P.
KernelModel hopper() {
  KernelModel m;
  m.name = "hopper";
  m.machine = "hopper";
  m.operand = bf16;
  m.scale = {
      .scale = FactorSite::score, .log2e = FactorSite::score, .constant = fp32, .arithmetic = fp32};
  m.centring = {.keys = Centring::none, .mean = bf16, .difference = bf16};
  const Accumulator matrix_unit{.format = fp32,
                                .order = {OrderKind::matrix_unit, 16, 25},
                                .flush_to_zero = false,
                                .rounded_products = false};
  m.score = {.accumulator = matrix_unit, .store = fp32, .scale_before_store = false};
  m.exponent = {.format = fp32, .fused = true};
  m.exp2 = {.name = "ex2.approx.ftz",
            .result = fp32,
            .max_error_ulps = 2.5,
            .flush_to_zero = true,
            .monotone_at_integers = false,
            .propagates_nan = true,
            .evidence = Evidence::documented,
            .source = "NVIDIA PTX ISA 9.1, 9.7.3.21: 2 ulp from the correctly rounded result"};
  m.p = {.format = bf16, .saturate = false, .flush_to_zero = false, .denominator_rounded = false};
  m.denominator = {.format = fp32,
                   .order = {OrderKind::lanes, 4},
                   .flush_to_zero = true,
                   .rounded_products = false};
  m.numerator = matrix_unit;
  m.normalise = {.division = Division::reciprocal,
                 .reciprocal_max_error_ulps = 2.5,
                 .reciprocal_flush_to_zero = true,
                 .reciprocal_exact_at_powers_of_two = false,
                 .guard = DenominatorGuard::zero_to_one,
                 .guard_value = 0,
                 .output = bf16,
                 .evidence = Evidence::assumed,
                 .source = ""};
  m.stabilizer = {.norm = fp32, .store = fp32, .round_up = true};
  m.tiles = {.keys = 128, .padding = Padding::masked, .empty_row = EmptyRowRule::zero};
  m.facts = {
      {"exp2.error",
       "ex2.approx.ftz.f32 is within 2 ulp of the correctly rounded result, so within 2.5 ulp of "
       "2^x",
       Evidence::documented, ptx_isa},
      {"exp2.flush", "ex2.approx.ftz.f32 flushes subnormal arguments and results to zero",
       Evidence::documented, ptx_isa},
      {"exp2.nan", "ex2.approx.ftz.f32 of NaN is NaN", Evidence::documented, ptx_isa},
      {"exp2.powers-of-two", "ex2.approx.ftz.f32 may be inexact at nonzero integers",
       Evidence::assumed, ""},
      {"matrix-unit.order",
       "16 exact products and the accumulator are aligned to the largest exponent, truncated to "
       "25 fraction bits, added exactly and truncated to FP32",
       Evidence::measured, mma_sim},
      {"matrix-unit.steps", "blocks of 16 terms are taken in ascending order", Evidence::assumed,
       ""},
      {"matrix-unit.flush", "the matrix unit honours subnormal inputs and results",
       Evidence::measured, mma_sim},
      {"denominator.order", "four threads a row each add their own keys, then the four are added",
       Evidence::documented, flash_attention},
      {"denominator.flush", "FP32 additions outside the matrix unit flush subnormals (fast math)",
       Evidence::assumed, ""},
      {"conversion.rounding", "FP32 to BF16 (cvt.rn) rounds to nearest even, keeping subnormals",
       Evidence::assumed, ""},
      {"reciprocal.error", "1 / l under fast math errs by at most 2.5 ulp", Evidence::assumed, ""},
      {"reciprocal.flush", "1 / l under fast math flushes subnormal results", Evidence::assumed,
       ""},
      {"reciprocal.powers-of-two", "1 / l under fast math may be inexact at powers of two",
       Evidence::assumed, ""},
  };
  return m;
}

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

}  // namespace

std::vector<std::string> preset_names() {
  return {"tpu7x", "tpu-v6e", "hopper", "ieee-fp32", "fp16-everywhere"};
}

KernelModel preset(const std::string& name) {
  // accuracy.md gives tpu7x and tpu-v6e the same bounds for exp2 (90) and reciprocal (1.5)
  if (name == "tpu7x" || name == "tpu-v6e") return maxdiffusion_like(name);
  if (name == "hopper") return hopper();
  if (name == "ieee-fp32") return ieee_fp32();
  if (name == "fp16-everywhere") return fp16_everywhere();
  std::string names;
  for (const std::string& n : preset_names()) names += (names.empty() ? "" : ", ") + n;
  throw InputError(fmt::format("kernel: found \"{}\", expected one of {}", name, names));
}

}  // namespace headroom
