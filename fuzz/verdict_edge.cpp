#include "fuzz/verdict_edge.h"

#include <algorithm>
#include <cmath>

#include "fuzz/generate/pieces.h"
#include "fuzz/mutate.h"
#include "reference/input_error.h"

namespace headroom::fuzz {
namespace {

bool certified(const Target& target, const Candidate& c) {
  try {
    const Head head = head_of(c, target.kernel.operand, target.scale_of(c.shape));
    return certify_head(head, target.kernel, target.certify_options()).verdict ==
           Verdict::certified;
  } catch (const InputError&) {
    return false;
  }
}

}  // namespace

bool aim_at_verdict(Random& random, const Target& target, Candidate& candidate) {
  const std::uint64_t what = random.below(5);
  const auto by = [&](double x) {  // the head with what was chosen times 2^x
    Motion motion;
    if (what < 2) motion.by[0] = x;                // Q
    if (what == 2 || what == 3) motion.by[1] = x;  // the keys less their mean
    if (what == 3) motion.by[2] = x;               // and the mean
    if (what == 4) motion.by[3] = x;               // V
    Candidate c = candidate;
    move(motion, c);
    repair(c);
    round_operands(c, target.kernel.operand);
    return c;
  };
  const bool was = certified(target, candidate);
  // larger numbers are harder to certify, but for values that are too small
  double step = was ? 0.25 : -0.25;
  double from = 0, to = step;
  while (certified(target, by(to)) == was) {
    from = to;
    step *= 2;
    to += step;
    if (std::fabs(to) > 64) return false;
  }
  const int steps = std::min(target.kernel.operand.precision + 4, 18);
  double inside = was ? from : to, outside = was ? to : from;
  for (int i = 0; i < steps; ++i) {
    const double middle = (inside + outside) / 2;
    (certified(target, by(middle)) ? inside : outside) = middle;
  }
  candidate = by(inside);
  return true;
}

}  // namespace headroom::fuzz
