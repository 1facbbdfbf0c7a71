// What is hunted: a kernel, its stabilizer, the gate in front of it, and where to look.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "certify/certify.h"
#include "fuzz/candidate.h"
#include "fuzz/objective.h"
#include "reference/evaluate/simulate/simulate.h"
#include "reference/model/kernel_model.h"
#include "reference/stabilizer/loop/loop.h"

namespace headroom::fuzz {

/// What must let a head through before its failure counts.
enum class GateChoice : std::uint8_t {
  none,       ///< nothing: the stabilizer is always taken
  own,        ///< the stabilizer's own gate, as the kernel computes it
  certified,  ///< the certifier: the verdict has to be `certified`, and every claim is held to
};
std::string_view to_text(GateChoice gate);
GateChoice parse_gate(const std::string& text);  ///< throws InputError

/// Everything that decides whether an execution is a finding; a finding's file holds it whole.
struct Target {
  std::string name;  ///< of the catalogue, or made from what it consists of
  KernelModel kernel;
  std::string stabilizer;  ///< `--stabilizer`; behind a certificate that of the policy
  LoopParameters parameters;
  GateChoice gate = GateChoice::none;
  Policy policy = Policy::clis;        ///< certified only
  PolicyParameters policy_parameters;  ///< certified only
  std::optional<Scale> scale;          ///< none: 1/sqrt(d)
  double eps = 0x1p-10;                ///< as CertifyOptions::eps; lost_mass
  double tolerance = 0x1p-5;           ///< of objectives that name it
  /// How the executions choose where the model leaves a choice. `events` and `plain` do not matter.
  SimulationOptions how;

  Scale scale_of(const Shape& shape) const {
    return scale ? *scale : Scale::reciprocal_sqrt(static_cast<std::uint64_t>(shape.channels));
  }
  CertifyOptions certify_options() const;
};

/// Where a hunt looks: shapes and settings that candidates start from.
struct SearchSpace {
  std::vector<Shape> shapes;
  std::vector<MaskKind> masks = {MaskKind::none};
  bool lengths = false, windows = false, segments = false, booleans = false;
  bool biases = false, softcaps = false, sinks = false;
  /// NaN and infinities among hidden keys.
  bool poison = false;
  /// NaN in a query or a visible key: for swallowed_nan; a little behind a certificate too.
  bool poison_visible = false;
};

/// Numbers that generators aim at, in the target's own units; of one shape.
struct Landmarks {
  Format operand = bf16;
  double factor = 1;            ///< z = factor <q, k>, log2 units
  bool centred = false;         ///< norms are taken of the keys less their mean
  double gate_limit = 0;        ///< log2 units of factor max|q| max|k - mean|; 0: no such gate
  double cap = 0;               ///< C of a fixed stabilizer; 0: none
  int flush = -126;             ///< L, the least of exp2's, P's and the accumulators'
  int emax = 127;               ///< of the narrowest accumulator
  double largest_weight = 127;  ///< log2 of P's largest finite number
  int score_precision = 24;     ///< of the accumulator of scores, in bits
  int key_block = 128, query_block = 128, parts = 1;
  double threshold = 0;  ///< of a lazy rescale, log2 units; 0: none
  /// Scores in log2 units that mean something to this kernel: initial maxima, mask values,
  /// -126, -5e4, -524288, 133120^2 ...
  std::vector<double> scores;
};
Landmarks landmarks_of(const Target& target, const Shape& shape);

/// A target with the place to look and what to look for.
struct Hunt {
  Target target;
  SearchSpace space;
  std::vector<Objective> objectives;
  std::string summary;  ///< one line: what is to be found here, with its source
  /// If not empty, only findings that begin with this event at this stage count.
  std::string event, stage;
  bool sound = false;  ///< nothing is to be found

  /// Is NaN in a query or a visible key what is looked for?
  bool sees_nan() const {
    return std::find(objectives.begin(), objectives.end(), Objective::swallowed_nan) !=
           objectives.end();
  }
};

/// Known failures to be found again, and sound targets to be hunted in vain: `headroom fuzz
/// --list`.
const std::vector<Hunt>& catalogue();
/// Throws InputError that lists the names.
const Hunt& catalogue_entry(const std::string& name);

/// A hunt for a kernel and a stabilizer: its own gate if it has one and `gated`, every objective
/// that can be met, settings that the kernel has.
Hunt make_hunt(const KernelModel& kernel, const std::string& stabilizer,
               const LoopParameters& parameters, bool gated);
/// A hunt for a head that a policy certifies wrongly.
Hunt make_certified_hunt(const KernelModel& kernel, Policy policy,
                         const PolicyParameters& parameters, double eps);

}  // namespace headroom::fuzz
