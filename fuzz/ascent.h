// A continuous search around one candidate: six numbers that move all of it.
#pragma once

#include <cstdint>
#include <vector>

#include "fuzz/candidate.h"
#include "fuzz/mutate.h"
#include "fuzz/random.h"

namespace headroom::fuzz {

/// CMA-ES with a diagonal covariance (Ros and Hansen 2008) over the motions of a base candidate.
/// Each generation asks for `population` motions and is told how near each came.
class Ascent {
 public:
  static constexpr int population = 16;

  bool running() const { return running_; }
  void start(const Candidate& base, double closeness);
  const Candidate& base() const { return base_; }
  std::vector<Motion> ask(Random& random);
  /// In the order of ask(). -infinity for what could not be run.
  void tell(const std::vector<double>& closeness);

 private:
  Candidate base_;
  bool running_ = false;
  double mean_[Motion::dimensions] = {}, deviation_[Motion::dimensions] = {};
  double path_[Motion::dimensions] = {}, step_path_[Motion::dimensions] = {};
  double sigma_ = 0.5, best_ = 0;
  int generation_ = 0, since_better_ = 0;
  std::vector<Motion> asked_, steps_;
};

}  // namespace headroom::fuzz
