// What a unit that promises an error in ulps may answer, decided exactly.
#pragma once

#include <mpfr.h>

#include <optional>

#include "reference/evaluate/simulate/units.h"
#include "reference/format/format.h"

namespace headroom {

/// A promise about results y > 0: |E - y| is at most max_error_ulps units in the last place, of y
/// or (exp2: bounds/exp2_unit.h) of E, whichever is larger. At 0.5 it is rounding to nearest even.
/// `flush_to_zero`: E has unbounded exponent, and below the smallest normal number 0 is delivered;
/// else the least unit is that of subnormals. Beyond the largest finite number E is infinite.
struct UlpPromise {
  Format result;
  double max_error_ulps;
  bool flush_to_zero;
  bool ulps_of_result;
};

/// A real number y > 0: `value`, or if `sticky` one a little (a part of 2^-250) above it.
struct TruncatedReal {
  mpfr_srcptr value;  ///< at least 64 bits
  bool sticky;
};

struct AllowedResults {
  double least, largest;
};
/// The least and the largest result of the promise, or the nearest one twice if max_error_ulps is
/// at most 0.5 or `nearest` is asked for.
AllowedResults allowed_results(const UlpPromise& promise, const TruncatedReal& y, bool nearest);

/// The same for every real number of [lo, hi], if all have the same. Requires: NearestRounding is
/// active; lo and hi normal; 2^-500 <= lo <= hi <= 2^500.
std::optional<AllowedResults> allowed_results(const UlpPromise& promise, double lo, double hi,
                                              bool nearest);

/// One of the results that are allowed for the y >= lo which `results` are of, each number of the
/// format about as likely as any other (flushed ones are not numbers). They are not all that lie
/// between: just below a power of two, E may have to be nearer to y than E at the power, whose
/// units are larger. `hash` is any 64 bits.
double pick_result(const UlpPromise& promise, const AllowedResults& results, double lo,
                   std::uint64_t hash);

}  // namespace headroom
