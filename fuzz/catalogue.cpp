// Failures that are known, as hunts: each is to be found again from nothing.
#include <fmt/format.h>

#include "fuzz/target.h"
#include "reference/input_error.h"
#include "reference/model/kernel_file.h"

namespace headroom::fuzz {
namespace {

using enum Objective;

/// Released fixed-stabilizer arithmetic: FP32 exp2 that flushes, BF16 P, BF16 key mean, a
/// reciprocal that flushes; tiles of 8 keys, so that small heads have a loop.
KernelModel released(const std::string& more = {}, bool products_flush = false) {
  KernelModel k = parse_kernel(
      "name = \"released\"\nmachine = \"tpu7x\"\n"
      "[exp2]\nunit = \"correctly-rounded\"\nflush_to_zero = true\n"
      "[tiles]\nkeys = 8\n"
      "[normalise]\nreciprocal_max_error_ulps = \"1/2\"\n"
      "reciprocal_exact_at_powers_of_two = true\nreciprocal_flush_to_zero = true\n"
      "[numerator]\nflush_to_zero = " +
          std::string(products_flush ? "true\nrounded_products = true\n" : "false\n") + more,
      "released.toml");
  return k;
}

/// FP32 sums, BF16 operands and P, raw scores and a fused exponent, as FlashAttention-2.
KernelModel flash(const Format& format = bf16) {
  KernelModel k = preset("ieee-fp32");
  k.name = "flash";
  k.facts.clear();
  k.operand = k.p.format = k.normalise.output = format;
  k.score.scale_before_store = false;
  k.exponent.fused = true;
  k.normalise.division = Division::reciprocal;
  k.normalise.guard = DenominatorGuard::zero_to_one;
  k.tiles.keys = 8;
  return k;
}

/// FP32 throughout, scores scaled before they are stored.
KernelModel plain(const Format& operand = bf16) {
  KernelModel k = preset("ieee-fp32");
  k.name = "plain";
  k.facts.clear();
  k.operand = operand;
  k.tiles.keys = 8;
  return k;
}

KernelModel flushing(KernelModel k) {
  k.exp2.flush_to_zero = k.denominator.flush_to_zero = k.numerator.flush_to_zero = true;
  return k;
}

const std::vector<Shape>& small() {
  static const std::vector<Shape> shapes = {
      {1, 8, 2, 1}, {1, 16, 2, 1}, {1, 16, 4, 2}, {4, 32, 8, 4}, {16, 64, 16, 16}};
  return shapes;
}

Hunt entry(std::string name, std::string summary, KernelModel kernel, std::string stabilizer,
           LoopParameters parameters, std::vector<Objective> objectives) {
  Hunt h;
  h.summary = std::move(summary);
  h.target.name = std::move(name);
  h.target.kernel = std::move(kernel);
  h.target.stabilizer = std::move(stabilizer);
  h.target.parameters = std::move(parameters);
  h.objectives = std::move(objectives);
  h.space.shapes = small();
  return h;
}

Hunt behind_gate(Hunt h) {
  h.target.gate = GateChoice::own;
  h.target.scale = Scale::base2(1);
  return h;
}

/// Only this event at this stage counts.
Hunt by(Hunt h, EventKind event, SimulationStage stage) {
  h.event = to_text(event);
  h.stage = to_text(stage);
  return h;
}

std::vector<Hunt> make_catalogue() {
  std::vector<Hunt> all;
  // --- heads that pass a public gate and are wrong (DESIGN.md, "Cases")
  all.push_back(by(behind_gate(entry("case-a",
                                     "every weight flushes behind the released gate: keys "
                                     "on a narrow grid, their mean rounded to BF16",
                                     released(), "fixed-m", {}, {non_finite})),
                   EventKind::nan, SimulationStage::normalise));
  all.push_back(behind_gate(entry("case-b", "the released gate, and most of the keys flush",
                                  released(), "fixed-m", {}, {lost_mass})));
  all.push_back(by(behind_gate(entry("case-c",
                                     "the numerator overflows behind a gate that does "
                                     "not look at V",
                                     released(), "fixed-m", {}, {non_finite})),
                   EventKind::infinity, SimulationStage::numerator));
  all.push_back(by(behind_gate(entry("case-d", "1 / l flushes with the published C", released(),
                                     "clis-alg1", {}, {zero_row})),
                   EventKind::flush, SimulationStage::normalise));
  all.push_back(
      behind_gate(entry("case-e", "the one-sided gate of C(N) loses mass",
                        released("[gate]\ngate = \"one-sided\"\n[stabilizer]\nround_up = false\n"),
                        "fixed-m-n", {}, {lost_mass})));
  all.push_back(by(behind_gate(entry("case-f", "products of far weights and small values flush",
                                     released({}, true), "fixed-m", {}, {zero_row})),
                   EventKind::flush, SimulationStage::numerator));
  {
    Hunt h = behind_gate(entry(
        "causal-alg1", "a causal row below the mean of all keys, which Algorithm 1 centres by",
        parse_kernel("name = \"algorithm-1\"\nmachine = \"tpu7x\"\noperand = \"fp32\"\n"
                     "[scale]\nscale = \"score\"\nlog2e = \"score\"\nconstant = \"fp32\"\n"
                     "arithmetic = \"fp32\"\n"
                     "[centring]\nkeys = \"mean\"\nmean = \"fp32\"\ndifference = \"fp32\"\n"
                     "[exp2]\nunit = \"correctly-rounded\"\nflush_to_zero = true\n"
                     "[tiles]\nkeys = 8\n"
                     "[normalise]\noutput = \"fp32\"\nguard = \"zero-to-zero\"\n",
                     "algorithm-1.toml"),
        "clis-alg1", {}, {zero_row}));
    h = by(h, EventKind::flush, SimulationStage::weight);
    h.target.scale.reset();
    h.space.shapes = {{8, 8, 4, 2}, {16, 16, 8, 4}, {16, 64, 16, 16}, {64, 64, 4, 2}};
    h.space.masks = {MaskKind::causal, MaskKind::causal_bottom_right};
    all.push_back(h);
  }
  // --- frozen estimates and shifts
  KernelModel vfa = flushing(plain());
  vfa.name = "vfa";
  vfa.normalise.guard = DenominatorGuard::maximum;
  vfa.normalise.guard_value = 1e-7F;
  const LoopParameters aiter = {{"sink_blocks", 0}, {"local_blocks", 0}, {"safety", 1}};
  all.push_back(by(entry("vfa-over", "block summaries above every score: all weights flush", vfa,
                         "vfa", aiter, {zero_row}),
                   EventKind::flush, SimulationStage::weight));
  all.push_back(by(entry("vfa-under",
                         "an aligned key that the block summary hides: weights "
                         "overflow",
                         vfa, "vfa", aiter, {non_finite}),
                   EventKind::infinity, SimulationStage::weight));
  all.push_back(by(entry("fdpp-untested", "a constant shift without its range test",
                         flushing(plain()), "fdpp-untested", {{"phi", 5}}, {non_finite}),
                   EventKind::infinity, SimulationStage::weight));
  // --- lazy rescaling
  {
    KernelModel k = flash();
    k.name = "fa4-fp8";
    k.p.format = e4m3fn;
    k.p.saturate = true;
    all.push_back(
        by(entry("fa4-fp8", "FP8 weights with threshold 4 and offset 8 saturate, l does not", k,
                 "fa4-row", {{"threshold", 4}, {"offset", 8}}, {inaccurate}),
           EventKind::saturation, SimulationStage::p));
  }
  {
    KernelModel k = flash();
    k.name = "fa4-poly3";
    k.exp2 = *fa4_polynomial("fa4-poly3");
    Hunt h = entry("fa4-poly-nan", "the polynomial reads NaN as a weight of 0", k, "fa4-row", {},
                   {swallowed_nan});
    h.space.poison_visible = true;
    all.push_back(h);
    all.push_back(by(entry("fa4-poly-range", "arguments of 128 and more give NaN as weights", k,
                           "fdpp-untested", {{"phi", 0}}, {non_finite}),
                     EventKind::nan, SimulationStage::weight));
  }
  {
    Hunt h =
        entry("lazy-wave", "a wave rescales all its rows to lower maxima: factors overflow",
              flash(), "lazy-wave", {{"wave", 16}, {"threshold", 8}}, {non_finite, inaccurate});
    h.space.shapes = {{4, 16, 4, 2}, {16, 32, 8, 4}, {16, 64, 16, 16}};
    all.push_back(by(h, EventKind::infinity, SimulationStage::correction));
  }
  // --- online softmax
  all.push_back(by(entry("fused-residual",
                         "fma(s, c, -RN(m c)) at huge scores: the maximum's own "
                         "weight overflows",
                         flash(), "online-fa2", {}, {non_finite}),
                   EventKind::infinity, SimulationStage::weight));
  {
    KernelModel k = flash();
    k.exponent.fused = false;
    all.push_back(entry("finite-sentinel", "a running maximum that starts at -5e4", k,
                        "online-flashinfer", {{"initial_max", -5e4}}, {zero_row}));
  }
  {
    KernelModel k = plain();
    k.name = "rpa";
    k.stabilizer.store = bf16;
    k.stabilizer.round_up = false;
    k.exponent.base = ExponentBase::e;
    all.push_back(by(entry("bf16-maximum", "a maximum kept in BF16 lies below the scores", k,
                           "online-rpa", {{"narrow_correction", 0}}, {non_finite}),
                     EventKind::infinity, SimulationStage::weight));
  }
  {
    KernelModel k = plain(fp16);
    k.name = "fp16-numerator";
    k.numerator.format = fp16;
    Hunt h = entry("fp16-numerator", "the numerator in FP16 overflows", k, "online-scaled", {},
                   {non_finite});
    all.push_back(by(h, EventKind::infinity, SimulationStage::numerator));
    k = plain(fp16);
    k.name = "fp16-denominator";
    k.denominator.format = fp16;
    k.denominator.order = {OrderKind::sequential};
    h = entry("fp16-absorption", "a denominator in FP16 stops growing", k, "online-scaled", {},
              {absorption});
    h.target.tolerance = 0x1p-8;
    h.space.shapes = {{1, 64, 4, 2}, {1, 256, 2, 1}, {1, 4096, 1, 1}};
    all.push_back(h);
  }
  {
    KernelModel k = flash();
    k.exponent.fused = false;  // else the maximum's own weight overflows sooner
    Hunt h = entry("sink-outside", "a sink that the maximum does not see: its weight overflows", k,
                   "online-fa3", {}, {non_finite});
    h.space.sinks = true;
    all.push_back(by(h, EventKind::infinity, SimulationStage::weight));
  }
  // --- merges and the backward pass
  {
    KernelModel k = plain();
    k.name = "lse-base";
    k.split = {.parts = 2, .merge = MergeRule::lse, .reads = ExponentBase::e};
    k.lse.base = ExponentBase::two;
    all.push_back(entry("lse-base", "a merge reads base-2 log-sum-exps as natural ones", k,
                        "online-scaled", {}, {inaccurate, partition}));
    k = plain();
    k.name = "naive-merge";
    k.split = {.parts = 4, .merge = MergeRule::lse_naive, .reads = ExponentBase::e};
    Hunt h = entry("empty-merge", "two parts without keys: -inf - -inf", k, "online-scaled", {},
                   {non_finite});
    h.space.masks = {MaskKind::none, MaskKind::causal_bottom_right, MaskKind::causal_top_left};
    h.space.lengths = h.space.windows = h.space.booleans = true;
    h.space.shapes = {{1, 32, 2, 1}, {4, 32, 4, 2}, {16, 64, 16, 16}};
    all.push_back(h);
  }
  {
    Hunt h = entry("backward-padding", "exp(0 - LSE) on keys that pad the last tile", flash(),
                   "online-fa3", {}, {backward});
    h.target.kernel.tiles.keys = 16;
    h.space.shapes = {{1, 12, 2, 1}, {2, 24, 4, 2}, {4, 40, 8, 4}};
    all.push_back(h);
  }
  // --- sound: to be hunted in vain
  for (const char* machine : {"tpu7x", "hopper", "ieee-fp32"}) {
    Hunt h = make_certified_hunt(preset(machine), Policy::clis, {}, 0x1p-10);
    h.target.name = std::string("clis-") + machine;
    h.sound = true;
    all.push_back(h);
  }
  return all;
}

}  // namespace

const std::vector<Hunt>& catalogue() {
  static const std::vector<Hunt> all = make_catalogue();
  return all;
}

const Hunt& catalogue_entry(const std::string& name) {
  std::string known;
  for (const Hunt& h : catalogue()) {
    if (h.target.name == name) return h;
    known += (known.empty() ? "" : ", ") + h.target.name;
  }
  throw InputError(fmt::format("--known: found '{}', expected one of {}", name, known));
}

}  // namespace headroom::fuzz
