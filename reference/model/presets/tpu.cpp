// TPUs: MaxDiffusion's video attention.
#include "reference/model/presets/families.h"

namespace headroom {
namespace {

constexpr const char* xla_accuracy = "JAX documentation, accuracy.md, reviewed 2026-09-18";
constexpr const char* maxdiffusion =
    "AI-Hypercomputer/maxdiffusion 7cfb8801, custom_splash_attention.py, attention_flax.py";
constexpr const char* xla_reciprocal =
    "JAX documentation, accuracy.md, reviewed 2026-09-18 (XLA lowering); flush and powers of two: "
    "no source";

}  // namespace

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

}  // namespace headroom
