#include "reference/real/wide_interval.h"

namespace headroom {
namespace {

bool has_nan(const WideInterval& a) {
  return mpfr_nan_p(&a.raw()->left) || mpfr_nan_p(&a.raw()->right);
}

}  // namespace

// MPFR's predicates are false for NaN, so the negative answer needs its own test: a NaN end means
// that nothing is known.
Tri less(const WideInterval& a, const WideInterval& b) {
  if (has_nan(a) || has_nan(b)) return Tri::unknown;
  if (mpfr_less_p(&a.raw()->right, &b.raw()->left)) return Tri::yes;
  return mpfr_greaterequal_p(&a.raw()->left, &b.raw()->right) ? Tri::no : Tri::unknown;
}

Tri less_equal(const WideInterval& a, const WideInterval& b) {
  if (has_nan(a) || has_nan(b)) return Tri::unknown;
  if (mpfr_lessequal_p(&a.raw()->right, &b.raw()->left)) return Tri::yes;
  return mpfr_greater_p(&a.raw()->left, &b.raw()->right) ? Tri::no : Tri::unknown;
}

}  // namespace headroom
