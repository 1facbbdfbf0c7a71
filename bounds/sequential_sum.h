// A sum whose order is known, enclosed term by term.
#pragma once

#include <algorithm>

#include "bounds/stabilizer.h"
#include "reference/format/format.h"
#include "reference/real/fp_environment.h"
#include "reference/real/interval.h"

namespace headroom {

/// Terms added one after another in the order of the calls, each sum rounded to nearest, ties to
/// even: rounding is monotone, so the ends of the enclosure are sums of the terms' ends. Tight
/// where terms are: a sum of equal points is exact, its stalling included.
/// **Requires** that no partial sum is flushed.
class SequentialSum {
 public:
  SequentialSum(const UpwardRounding& up, const Format& format) : up_(up), format_(format) {}
  void add(const Interval& term) {
    sum_ = rounded(up_, format_, sum_ + term, false);
    largest_ = std::max(largest_, sum_.magnitude());
  }
  /// Of all terms. Infinite ends where it may overflow.
  const Interval& total() const { return sum_; }
  /// Upper bound of |any partial sum|.
  double largest() const { return largest_; }

 private:
  const UpwardRounding& up_;
  Format format_;
  Interval sum_{0.0};
  double largest_ = 0;
};

}  // namespace headroom
