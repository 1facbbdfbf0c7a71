// Smaller and simpler heads that fail in the same way.
#pragma once

#include <cstdint>
#include <functional>

#include "fuzz/finding.h"

namespace headroom::fuzz {

struct ShrinkOptions {
  std::int64_t most_runs = 20000;  ///< diagnoses at most
  std::function<void(std::int64_t runs, const Candidate&)> progress;
};

/// The smallest Nq, Nk, d and dv, then the simplest setting and numbers (zeros, then one value
/// shared by many, then short significands), for which diagnose() still meets the objective with
/// the same stage and claim. Deterministic; never larger than the finding. Its diagnosis and text
/// are made anew.
Finding shrink(const Finding& finding, const ShrinkOptions& options = {});

}  // namespace headroom::fuzz
