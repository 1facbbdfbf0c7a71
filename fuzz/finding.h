// A finding: a head, a kernel and what went wrong, in one file that replays bit for bit.
#pragma once

#include <string>

#include "fuzz/candidate.h"
#include "fuzz/diagnose.h"
#include "fuzz/objective.h"
#include "fuzz/target.h"

namespace headroom::fuzz {

struct Finding {
  Target target;
  Candidate candidate;
  Objective objective = Objective::non_finite;
  Diagnosis diagnosis;
  std::string text;  ///< explain()

  /// Findings of one class are one finding: objective, stage and binding claim.
  std::string class_name() const;
};

/// docs/finding.md: JSON with the kernel as canonical text and every number as its bit pattern.
std::string finding_text(const Finding& finding);
/// Inverse of finding_text. Throws InputError that starts with `where`; any bytes give a finding
/// whose kernel and shapes are consistent, or an InputError. Memory is bounded by the text.
Finding parse_finding(const std::string& text, const std::string& where);
/// At most 64 MiB. Throws InputError.
Finding read_finding(const std::string& path);

/// Runs the finding again. `reproduces`: the objective is met, and outputs and LSE have the same
/// bits.
struct Replay {
  bool reproduces = false;
  bool same_bits = false;
  Diagnosis diagnosis;
};
Replay replay(const Finding& finding);

/// A test for the user's own suite: "c++" (this library), "pytorch" or "jax" (the head and the
/// exact outputs, to run the user's kernel on). Throws InputError for other names.
std::string test_snippet(const Finding& finding, const std::string& language);

}  // namespace headroom::fuzz
