#include "bounds/norms.h"

#include <emmintrin.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <vector>

namespace headroom {
namespace {

// Under upward rounding a sum of terms rounded up is an upper bound, and a sum of *negated* terms
// rounded up is minus a lower bound: one rounding mode serves both ends.
//
// The compiler must not turn x * (-x) into -(x * x), which rounds the other way. -frounding-math
// forbids it; the empty asm makes sure.
inline __m128d hidden(__m128d x) {
  asm("" : "+x"(x));
  return x;
}
inline double hidden(double x) {
  asm("" : "+x"(x));
  return x;
}
// maxsd, never a branch. If one is NaN (0 times an infinite end) the other is as good: 0 times a
// real number is 0.
inline double larger(double a, double b) {
  return _mm_cvtsd_f64(_mm_max_sd(_mm_set_sd(a), _mm_set_sd(b)));
}

double sum_of_lanes(__m128d a, __m128d b) {
  const __m128d s = _mm_add_pd(a, b);
  return opaque(_mm_cvtsd_f64(s)) + _mm_cvtsd_f64(_mm_unpackhi_pd(s, s));
}

// [lower, upper] of a sum of squares, given minus its lower bound. The lower end of a sum that
// overflows is the largest double (upward rounding of a negative overflow), which is sound.
Interval root(double minus_lower, double upper) {
  const double lower = larger(0.0, -minus_lower);
  return sqrt(Interval(lower <= upper ? lower : 0.0, upper));
}

}  // namespace

Interval norm(const UpwardRounding&, std::span<const double> x) {
  const std::size_t n = x.size();
  const __m128d zero = _mm_setzero_pd();
  const __m128d sign = hidden(_mm_set1_pd(-0.0));
  __m128d upper0 = zero, upper1 = zero, lower0 = zero, lower1 = zero;
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const __m128d a = _mm_loadu_pd(x.data() + i);
    const __m128d b = _mm_loadu_pd(x.data() + i + 2);
    upper0 = _mm_add_pd(upper0, _mm_mul_pd(a, a));
    upper1 = _mm_add_pd(upper1, _mm_mul_pd(b, b));
    lower0 = _mm_add_pd(lower0, _mm_mul_pd(a, hidden(_mm_xor_pd(a, sign))));
    lower1 = _mm_add_pd(lower1, _mm_mul_pd(b, hidden(_mm_xor_pd(b, sign))));
  }
  double upper = sum_of_lanes(upper0, upper1);
  double minus_lower = sum_of_lanes(lower0, lower1);
  for (; i < n; ++i) {
    upper = upper + x[i] * x[i];
    minus_lower = minus_lower + x[i] * hidden(-x[i]);
  }
  return root(minus_lower, upper);
}

Interval norm(const UpwardRounding&, std::span<const double> lo, std::span<const double> hi) {
  assert(lo.size() == hi.size());
  double upper = 0, minus_lower = 0;
  for (std::size_t i = 0; i < lo.size(); ++i) {
    const double most = larger(hi[i], -lo[i]);                // largest |x|
    const double least = larger(0.0, larger(lo[i], -hi[i]));  // smallest |x|
    upper = upper + most * most;
    minus_lower = minus_lower + least * hidden(-least);
  }
  return root(minus_lower, upper);
}

Interval norm(const UpwardRounding& up, std::span<const Interval> a) {
  const std::vector<double> origin(a.size());
  return distance(up, origin, origin, a);
}

Interval distance(const UpwardRounding&, std::span<const double> lo, std::span<const double> hi,
                  std::span<const Interval> a) {
  assert(lo.size() == hi.size() && lo.size() == a.size());
  double upper = 0, minus_lower = 0;
  for (std::size_t i = 0; i < lo.size(); ++i) {
    // Upper bounds of x - a and of a - x; their negatives are lower bounds of a - x and x - a.
    const double above = hi[i] - a[i].lo();
    const double below = a[i].hi() - lo[i];
    const double most = larger(above, below);
    const double least = larger(0.0, larger(-above, -below));
    upper = upper + most * most;
    minus_lower = minus_lower + least * hidden(-least);
  }
  return root(minus_lower, upper);
}

Interval dot(const UpwardRounding&, std::span<const double> q, std::span<const Interval> a) {
  assert(q.size() == a.size());
  double upper = 0, minus_lower = 0;
  for (std::size_t i = 0; i < q.size(); ++i) {
    const double x = q[i], minus_x = hidden(-q[i]);
    const double lo = a[i].lo(), hi = a[i].hi();
    upper = upper + larger(x * lo, x * hi);
    minus_lower = minus_lower + larger(minus_x * lo, minus_x * hi);
  }
  return {-minus_lower, upper};
}

Interval dot(const UpwardRounding&, std::span<const double> q, std::span<const double> lo,
             std::span<const double> hi) {
  assert(q.size() == lo.size() && q.size() == hi.size());
  const std::size_t n = q.size();
  const __m128d sign = hidden(_mm_set1_pd(-0.0));
  __m128d up = _mm_setzero_pd(), down = _mm_setzero_pd();
  std::size_t i = 0;
  for (; i + 2 <= n; i += 2) {
    const __m128d x = _mm_loadu_pd(q.data() + i), minus_x = hidden(_mm_xor_pd(x, sign));
    const __m128d a = _mm_loadu_pd(lo.data() + i), b = _mm_loadu_pd(hi.data() + i);
    up = _mm_add_pd(up, _mm_max_pd(_mm_mul_pd(x, a), _mm_mul_pd(x, b)));
    down = _mm_add_pd(down, _mm_max_pd(_mm_mul_pd(minus_x, a), _mm_mul_pd(minus_x, b)));
  }
  double upper = sum_of_lanes(up, _mm_setzero_pd());
  double minus_lower = sum_of_lanes(down, _mm_setzero_pd());
  for (; i < n; ++i) {
    const double minus_x = hidden(-q[i]);
    upper = upper + larger(q[i] * lo[i], q[i] * hi[i]);
    minus_lower = minus_lower + larger(minus_x * lo[i], minus_x * hi[i]);
  }
  return {-minus_lower, upper};
}

}  // namespace headroom
