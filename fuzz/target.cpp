#include "fuzz/target.h"

#include <algorithm>
#include <cmath>

#include "reference/model/kernel_file.h"
#include "reference/stabilizer/plugin/plugin.h"

namespace headroom::fuzz {
namespace {

double parameter(const LoopParameters& given, const std::string& stabilizer,
                 const std::string& name, double otherwise) {
  if (const auto found = given.find(name); found != given.end()) return found->second;
  for (const LoopDescription& d : loop_stabilizers()) {
    if (d.name != stabilizer) continue;
    const auto found = d.parameters.find(name);
    if (found != d.parameters.end() && !std::isnan(found->second)) return found->second;
  }
  return otherwise;
}

int ceil_log2(double n) {
  return n <= 1 ? 0 : std::ilogb(n) + (std::ldexp(1.0, std::ilogb(n)) < n);
}

/// Limit of factor max|q| max|k - mean| that the rule's own gate has, and its C; for clis-alg1 at
/// values of at most 1.
void add_gate(const Target& target, const Shape& shape, Landmarks& marks) {
  const KernelModel& k = target.kernel;
  const int keys = ceil_log2(static_cast<double>(shape.keys));
  if (target.stabilizer == "fixed-m") {
    marks.cap = parameter(target.parameters, "fixed-m", "cap", 88);
    marks.gate_limit = parameter(target.parameters, "fixed-m", "limit", 213);
  } else if (target.stabilizer == "fixed-m-n") {
    marks.cap = 127 - keys - ceil_log2(std::max(1.0, k.gate.vmax));
    const double width = marks.cap + 125;
    marks.gate_limit = k.gate.sides == GateSides::two_sided ? std::floor(width / 2) : width;
  } else if (target.stabilizer == "clis-alg1" || target.stabilizer == "clis") {
    marks.cap = std::min(k.exp2.result.emax,
                         std::min(k.denominator.format.emax, k.numerator.format.emax) - keys);
    marks.gate_limit = marks.cap - flush_exponent(k.exp2.result, k.exp2.flush_to_zero);
  }
}

}  // namespace

Landmarks landmarks_of(const Target& target, const Shape& shape) {
  const KernelModel& k = target.kernel;
  Landmarks m;
  m.operand = k.operand;
  m.factor = target.scale_of(shape).log2_factor().hi();
  m.centred = k.centring.keys != Centring::none;
  add_gate(target, shape, m);
  m.flush = std::max({flush_exponent(k.exp2.result, k.exp2.flush_to_zero),
                      flush_exponent(k.p.format, k.p.flush_to_zero),
                      flush_exponent(k.denominator.format, k.denominator.flush_to_zero)});
  m.emax = std::min({k.exp2.result.emax, k.denominator.format.emax, k.numerator.format.emax});
  m.largest_weight = std::log2(k.p.format.max_finite());
  m.score_precision = k.score.accumulator.format.precision;
  m.key_block = k.tiles.keys;
  m.query_block = k.tiles.queries;
  m.parts = k.split.parts;
  m.threshold = parameter(target.parameters, target.stabilizer, "threshold", 0);
  if (target.stabilizer.starts_with("fa4") && !target.parameters.contains("threshold")) {
    m.threshold = k.p.format.bits() <= 8 ? 0 : 8;
  }
  const double log2e = 1.4426950408889634;
  m.scores = {-7, -120, -126, -150, -5e4 * log2e, -524288, 120, 128, 300, 1e4};
  const auto add = [&](double x) {
    if (!std::isfinite(x) || x == 0) return;
    // the unit is the stored score's: raw, scaled or natural
    for (const double unit : {1.0, log2e, std::fabs(m.factor)}) m.scores.push_back(x * unit);
  };
  add(parameter(target.parameters, target.stabilizer, "initial_max", HUGE_VAL));
  add(parameter(target.parameters, target.stabilizer, "phi", HUGE_VAL));
  add(parameter(target.parameters, target.stabilizer, "estimate", HUGE_VAL));
  add(k.mask.value);
  if (k.score.store.emax < 127 || k.operand == fp16) add(k.score.store.max_finite());
  return m;
}

Hunt make_hunt(const KernelModel& kernel, const std::string& stabilizer,
               const LoopParameters& parameters, bool gated) {
  Hunt h;
  Target& t = h.target;
  t.name = stabilizer + "@" + kernel.name;
  t.kernel = kernel;
  t.stabilizer = stabilizer;
  t.parameters = parameters;
  const bool plugin = stabilizer.starts_with(plugin_prefix);
  const bool has_gate = stabilizer == "fixed-m" || stabilizer == "fixed-m-n" ||
                        stabilizer == "clis-alg1" || (plugin && find_plugin(stabilizer).has_gate);
  t.gate = gated && has_gate ? GateChoice::own : GateChoice::none;
  SearchSpace& s = h.space;
  const std::int64_t tile = kernel.tiles.keys;
  s.shapes = {{1, 8, 2, 1}, {1, 16, 4, 2}, {4, 32, 8, 4}, {16, 64, 16, 16}, {2, 65, 4, 2}};
  if (tile <= 128) {
    s.shapes.push_back({2, 2 * tile, 4, 2});
    s.shapes.push_back({2, 2 * tile + 1, 4, 2});
    if (tile > 32) s.shapes.push_back({1, 3 * tile - tile / 2, 4, 1});
  } else {
    s.shapes.push_back({1, 2 * tile, 2, 1});
  }
  s.masks = {MaskKind::none, MaskKind::none, MaskKind::causal_bottom_right,
             MaskKind::causal_top_left};
  s.lengths = s.windows = s.booleans = s.segments = s.poison = true;
  // rules that know how a sink, a bias or a cap enters are those of online loops
  const bool online = stabilizer.starts_with("online") || stabilizer.starts_with("fa4") ||
                      stabilizer == "lazy-wave";
  s.sinks = online || (plugin && find_plugin(stabilizer).starts_at_sink);
  s.biases = online && kernel.score.scale_before_store;
  for (const Objective o : all_objectives()) {
    if (o == Objective::claim || o == Objective::saturation) continue;
    // what the exact gate of a plug-in would be, nobody knows
    if (plugin && o == Objective::gate_underestimate) continue;
    const bool about_gate = o == Objective::gate_underestimate || o == Objective::needless_fallback;
    if (about_gate && t.gate != GateChoice::own) continue;
    if (o == Objective::padding && kernel.tiles.padding == Padding::zero_keys) continue;
    h.objectives.push_back(o);
  }
  if (kernel.p.saturate) h.objectives.push_back(Objective::saturation);
  h.summary = "what this rule does wrong on this kernel";
  return h;
}

Hunt make_certified_hunt(const KernelModel& kernel, Policy policy,
                         const PolicyParameters& parameters, double eps) {
  const std::string rule(to_text(policy));
  Hunt h = make_hunt(kernel,
                     rule == "fa4"      ? "fa4-row"
                     : rule == "online" ? "online-fa2"
                                        : rule,
                     {}, false);
  h.target.name = "certified-" + rule + "@" + kernel.name;
  h.target.stabilizer = rule;
  h.target.gate = GateChoice::certified;
  h.target.policy = policy;
  h.target.policy_parameters = parameters;
  h.target.eps = eps;
  h.space.sinks = h.space.biases = h.space.softcaps = h.space.poison_visible = true;
  h.objectives = {Objective::non_finite, Objective::zero_row,   Objective::inaccurate,
                  Objective::lost_mass,  Objective::absorption, Objective::wrong_lse,
                  Objective::padding,    Objective::claim};
  // what a certificate allows is its own stated error: `claim` holds it to that
  h.target.tolerance = 0.25;
  h.summary = "a head that is certified and wrong";
  return h;
}

}  // namespace headroom::fuzz
