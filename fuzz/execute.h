// One candidate run: what came out, how near each objective is, which cell of the search it is in.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "certify/certify.h"
#include "fuzz/candidate.h"
#include "fuzz/objective.h"
#include "fuzz/target.h"
#include "reference/evaluate/simulate/lanes/simulator.h"

namespace headroom::fuzz {

/// The same kernel, careful in everything after its operands: FP32 sums without flushing, correctly
/// rounded exp2, unrounded weights, online softmax that starts at the sink, one part. Its outputs
/// are near the exact ones over the operands as multiplied, and cost what the kernel's cost.
KernelModel careful_twin(const KernelModel& kernel);

/// Extremes over the rows that see a key. Log2 units; of the state at the end of the loop.
struct Observation {
  bool ran = false;    ///< the kernel has this setting, and the operands are for it
  bool gate = true;    ///< the gate let the head through
  bool finite = true;  ///< operands that a row can see are numbers
  bool nan = false, infinite = false, zero_row = false;  ///< of outputs
  double gate_value = 0;  ///< factor max|q| max|k - mean| of the stored operands, in doubles
  double least_l = HUGE_VAL, largest_l = -HUGE_VAL;  ///< log2 l
  double least_numerator = HUGE_VAL;  ///< log2 of a row's largest |O| before the division
  double largest_numerator = -HUGE_VAL;
  double top_exponent = -HUGE_VAL, low_top_exponent = HUGE_VAL;  ///< row max - mu
  double largest_score = 0;                                      ///< |row max|
  double error = 0;                                              ///< |o - twin's o| / max|v|
  double lost = 0;       ///< 1 - l / (the twin's l in this frame)
  double lse_error = 0;  ///< natural units
  double least_lse = HUGE_VAL;
  double variance = 0, padding = 0;  ///< of variants, if thorough: as `error`
  double claim = -HUGE_VAL;          ///< log2 of the largest share of a certified claim used
  bool refused = false;              ///< asked, the certifier did not certify the head
  double short_of = 0;               ///< by so many bits of margin

  /// How near an objective is, in bits or log2 units: a suspicion from 0 on. -infinity: not looked
  /// for, or not to be had here.
  std::array<double, objective_count> closeness;
  /// Behaviour in coarse steps: candidates of one cell compete (MAP-Elites).
  std::uint64_t cell = 0;
};

/// Runs candidates of one hunt. Keeps prepared simulators of the shapes and settings it met; not
/// for several threads at once.
class Executor {
 public:
  explicit Executor(const Hunt& hunt);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// `thorough`: also what needs more than two runs (other tilings and partitions, other hidden
  /// keys, the certifier's claims).
  const Observation& run(const Candidate& candidate, bool thorough);
  const Landmarks& landmarks(const Shape& shape);
  std::int64_t simulations() const { return simulations_; }

 private:
  struct Prepared;
  Prepared& prepare(const Candidate& candidate);
  void look(const Candidate& candidate, Prepared& with, bool thorough);
  void look_at_rows(const Candidate& candidate, Prepared& with, const Simulated& run,
                    const Simulated& twin);
  void look_at_variants(const Candidate& candidate, Prepared& with, const Simulated& run);
  void look_at_claims(const Candidate& candidate, Prepared& with);
  void look_at_claims(const HeadReport& report, const Setting& setting);
  double claim_closeness() const;
  void only_if_certified(const Candidate& candidate, Prepared& with, bool asked);
  bool likely(const Landmarks& marks) const;
  void judge(const Candidate& candidate, const Prepared& with);
  bool take_table(const Candidate& candidate, Prepared& with);

  const Hunt& hunt_;
  KernelModel twin_;
  std::array<bool, objective_count> wanted_{};
  std::vector<std::unique_ptr<Prepared>> prepared_;
  Prepared* last_ = nullptr;
  std::vector<std::pair<Shape, Landmarks>> landmarks_;
  Observation seen_;
  std::vector<std::byte> q_, k_, v_;
  std::int64_t simulations_ = 0;
  bool own_gate_ = true;          ///< what the kernel's own gate said, behind a certificate
  double output_difference_ = 0;  ///< the largest of |o - twin's o|
  double top_l_ = -HUGE_VAL;      ///< log2 of the largest l
};

}  // namespace headroom::fuzz
