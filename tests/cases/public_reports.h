// Public reports as the certifier must answer them: a row names the record, the head, the kernel
// and the policy, and the verdict that the record demands.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "certify/certify.h"
#include "tests/cases/reported_heads.h"

namespace headroom::reports {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

enum class Expected : std::uint8_t {
  certified,
  fallback,   ///< rows recomputed, safely
  refuted,    ///< the claim named fails
  undecided,  ///< neither is shown
};
inline constexpr Expected certified = Expected::certified, fallback = Expected::fallback,
                          refuted = Expected::refuted, undecided = Expected::undecided;

struct Case {
  std::string record, what;
  AttentionProblem problem;
  KernelModel kernel;
  Policy policy;
  PolicyParameters parameters;
  Expected expected;
  std::string claim;  ///< of a rejection
};
using Cases = std::vector<Case>;

/// The records that were checked.
inline std::set<std::string>& checked() {
  static std::set<std::string> records;
  return records;
}

inline void check(const Case& c) {
  SCOPED_TRACE(c.record + ": " + c.what);
  checked().insert(c.record);
  ASSERT_FALSE(find_problem(c.kernel)) << find_problem(c.kernel)->keys.front();
  CertifyOptions options;
  options.policy = c.policy;
  options.parameters = c.parameters;
  const HeadReport r = certify_head(head_of(c.problem, c.record), c.kernel, options);
  std::string found = std::string(to_text(r.verdict)) + ", " + r.reason + ", " + r.binding;
  for (const Claim& claim : r.claims) {
    if (claim.required && claim.outcome() != ClaimOutcome::holds) {
      found += fmt::format("; {} [{}, {}] against {}", claim.id, claim.value.lo(), claim.value.hi(),
                           claim.limit);
    }
  }
  switch (c.expected) {
    case Expected::certified:
      EXPECT_EQ(r.verdict, Verdict::certified) << found;
      return;
    case Expected::fallback:
      EXPECT_EQ(r.verdict, Verdict::fallback) << found;
      return;
    case Expected::undecided:
      EXPECT_EQ(r.verdict, Verdict::undecided) << found;
      return;
    case Expected::refuted:
      break;
  }
  EXPECT_EQ(r.verdict, Verdict::refuted) << found;
  const bool fails = std::any_of(r.claims.begin(), r.claims.end(), [&](const Claim& claim) {
    return claim.id == c.claim && claim.required && claim.outcome() == ClaimOutcome::fails;
  });
  EXPECT_TRUE(fails) << c.claim << " does not fail; " << found;
}
inline void check(const Cases& cases) {
  for (const Case& c : cases) check(c);
}

/// An exponent that multiplies the stored score by the factor, not fused.
inline KernelModel unfused(KernelModel k) {
  k.exponent.fused = false;
  return k;
}
inline KernelModel with(KernelModel k, const std::function<void(KernelModel&)>& change) {
  change(k);
  return k;
}
inline const PolicyParameters phi_untested = {{"phi", 5}, {"a", -infinity}, {"b", infinity}};

}  // namespace headroom::reports
