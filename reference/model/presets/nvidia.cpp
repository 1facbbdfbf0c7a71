// NVIDIA GPUs: FlashAttention 2, 3 and 4.
#include "reference/model/presets/families.h"

namespace headroom {
namespace {

constexpr const char* flash_attention = "Dao-AILab/flash-attention 0251105a, hopper/softmax.h";
constexpr const char* flash_attention_2 =
    "Dao-AILab/flash-attention 0251105a, csrc/flash_attn/src/softmax.h";
constexpr const char* flash_attention_4 =
    "Dao-AILab/flash-attention 0251105a, flash_attn/cute/softmax.py, flash_fwd_sm100.py";
constexpr const char* launch_template =
    "Dao-AILab/flash-attention 01afd16d, csrc/flash_attn/src/flash_fwd_launch_template.h";
constexpr const char* recorded =
    "MATLAB-tensor-core, model_validation: answers recorded on an A100, all reproduced";
constexpr const char* mma_sim = "MMA-Sim, arXiv 2511.10909, bit-exact model of the matrix unit";
constexpr const char* ptx_isa = "NVIDIA PTX ISA 9.1";

}  // namespace

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

namespace {

/// FlashAttention-2 forward, 16-bit operands, on matrix units that take 8 products a step and keep
/// 24 fraction bits. `tile`: keys a block at d = 128.
KernelModel flash_attention_2_on(const std::string& machine, int tile) {
  KernelModel m = hopper();
  m.name = machine;
  m.machine = machine;
  m.score.accumulator.order = m.numerator.order = {OrderKind::matrix_unit, 8, 24};
  m.tiles = {.keys = tile, .padding = Padding::masked, .empty_row = EmptyRowRule::zero_pos_inf};
  for (MachineFact& fact : m.facts) {
    if (fact.id == "matrix-unit.order") {
      fact.text =
          "8 exact products and the accumulator are aligned to the largest exponent, truncated to "
          "24 fraction bits, added exactly and truncated to FP32";
    } else if (fact.id == "matrix-unit.steps") {
      fact.text =
          "blocks of 8 terms are taken in ascending order: an instruction of 16 is two of them";
    } else if (fact.id == "denominator.order") {
      fact.source = flash_attention_2;
    }
  }
  m.facts.push_back({"empty-row.rule", "rows without keys give O = 0, LSE = +inf",
                     Evidence::documented, flash_attention_2});
  return m;
}

}  // namespace

KernelModel ampere() {
  KernelModel m = flash_attention_2_on("ampere", 64);
  for (MachineFact& fact : m.facts) {
    if (fact.id == "matrix-unit.order") fact.source = std::string(mma_sim) + "; " + recorded;
  }
  m.facts.push_back(
      {"tiles.keys", "64 keys a block at d = 128", Evidence::documented, launch_template});
  return m;
}

KernelModel ada() {
  KernelModel m = flash_attention_2_on("ada", 32);
  m.facts.push_back({"tiles.keys",
                     "32 keys a block at d = 128; 64 if causal: fewer rescales, which the bounds "
                     "of 32 cover",
                     Evidence::documented, launch_template});
  return m;
}

/// FlashAttention-4 forward, 16-bit operands: some weights are made by ex2.approx.ftz, others by a
/// polynomial of degree 3, which of them is a matter of tuning: one unit that promises what both
/// do.
KernelModel blackwell() {
  KernelModel m = hopper();
  m.name = m.machine = "blackwell";
  const Exp2Unit polynomial = *fa4_polynomial("fa4-poly3");
  m.exp2.name = ulp_unit_name(polynomial.max_error_ulps);
  m.exp2.max_error_ulps = polynomial.max_error_ulps;
  m.exp2.propagates_nan = false;
  m.exp2.evidence = Evidence::measured;
  m.exp2.source = polynomial.source + "; ex2.approx.ftz errs less";
  m.denominator.order = {OrderKind::tile, 128};
  m.normalise.reciprocal_max_error_ulps = 1.5;
  m.normalise.evidence = Evidence::documented;
  m.normalise.source = "NVIDIA PTX ISA 9.1, rcp.approx: at most 1 ulp";
  m.facts = {
      {"exp2.error",
       "ex2.approx.ftz.f32 is within 2.5 ulp of 2^x, the polynomial of degree 3 within 1430 from "
       "-126 to below 128",
       Evidence::measured, "NVIDIA PTX ISA 9.1; headroom exp2, every number of FP32"},
      {"exp2.mixture", "which of the two makes a weight is tuned per kernel: either is allowed",
       Evidence::documented, flash_attention_4},
      {"exp2.flush",
       "results below 2^-126 are zero; the polynomial's own there are wrong subnormals, up to "
       "2^-126",
       Evidence::assumed, ""},
      {"exp2.nan", "the polynomial reads NaN as -127 and gives 0", Evidence::documented,
       flash_attention_4},
      {"matrix-unit.order",
       "16 exact products and the accumulator are aligned to the largest exponent, truncated to "
       "25 fraction bits, added exactly and truncated to FP32 (tcgen05, sums in tensor memory)",
       Evidence::measured, mma_sim},
      {"matrix-unit.steps", "blocks of 16 terms are taken in ascending order", Evidence::assumed,
       ""},
      {"matrix-unit.flush", "the matrix unit honours subnormal inputs and results",
       Evidence::measured, mma_sim},
      {"denominator.order",
       "one thread a row adds the 128 keys of a tile in several partial sums, then the tiles",
       Evidence::documented, flash_attention_4},
      {"denominator.flush", "FP32 additions outside the matrix unit flush subnormals (fast math)",
       Evidence::assumed, ""},
      {"conversion.rounding", "FP32 to BF16 (cvt.rn) rounds to nearest even, keeping subnormals",
       Evidence::assumed, ""},
      {"reciprocal.error", "rcp.approx errs by at most 1 ulp of the correctly rounded quotient",
       Evidence::documented, ptx_isa},
      {"reciprocal.flush", "rcp.approx flushes subnormal results", Evidence::assumed, ""},
      {"reciprocal.powers-of-two", "rcp.approx may be inexact at powers of two", Evidence::assumed,
       ""},
  };
  return m;
}

}  // namespace headroom
