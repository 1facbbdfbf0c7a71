// The limits of exp2 against MPFR's correctly rounded exp2: for every TF32 argument, and for FP32
// arguments within 2^16 codes of each limit, into every format, with and without flushing.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "reference/format/convert.h"
#include "reference/format/exp2_limits.h"
#include "tests/unit/format/mpfr_rounding.h"

namespace headroom {
namespace {

using testing::MpfrFormat;
using testing::MpfrNumber;

double value_at(const Format& f, std::int64_t index) {
  const double magnitude =
      testing::textbook_magnitude(f, static_cast<std::uint64_t>(std::abs(index)));
  return index < 0 ? -magnitude : magnitude;
}

std::int64_t index_of(const Format& f, std::uint64_t code) {
  const auto magnitude = static_cast<std::int64_t>(code & (f.sign_mask() - 1));
  return (code & f.sign_mask()) != 0 ? -magnitude : magnitude;
}

struct Count {
  long compared = 0;
  long wrong = 0;
};

// Arguments first..last (codes ordered by value) against the limits, both ways of flushing.
void compare(const Format& argument, const Format& result, std::int64_t first, std::int64_t last,
             Count& count) {
  const Exp2Limits gradual = exp2_limits(argument, result, false);
  const Exp2Limits flushed = exp2_limits(argument, result, true);
  const double least_normal = std::ldexp(1.0, result.emin);
  MpfrFormat to(result);
  MpfrNumber x(53);
  double previous[2] = {0, 0};
  for (std::int64_t i = first; i <= last; ++i) {
    mpfr_set_d(x.get(), value_at(argument, i), MPFR_RNDN);
    const MpfrFormat::Rounded r = to.exp2(x.get(), Rounding::nearest_even);
    for (const Exp2Limits* limits : {&gradual, &flushed}) {
      const bool flush = limits == &flushed;
      const double delivered = flush && r.tiny ? 0 : r.saturated;
      const bool monotone = delivered >= previous[flush];
      previous[flush] = delivered;
      const bool finite_right = !r.overflow == (i <= index_of(argument, limits->largest_finite));
      const bool normal_right =
          (delivered >= least_normal) == (i >= index_of(argument, limits->smallest_normal));
      const bool nonzero_right =
          (delivered != 0) == (i >= index_of(argument, limits->smallest_nonzero));
      ++count.compared;
      if (monotone && finite_right && normal_right && nonzero_right) continue;
      if (++count.wrong > 5) continue;
      std::printf("%s argument %a to %s%s: exp2 %a disagrees with the limits\n",
                  std::string(argument.name).c_str(), value_at(argument, i),
                  std::string(result.name).c_str(), flush ? " ftz" : "", delivered);
    }
  }
}

int run() {
  Count count;
  for (const Format* result : all_formats) {
    const auto top = static_cast<std::int64_t>(tf32.max_finite_code());
    compare(tf32, *result, -top, top, count);
    constexpr std::int64_t reach = std::int64_t{1} << 16;
    for (const bool flush : {false, true}) {
      const Exp2Limits limits = exp2_limits(fp32, *result, flush);
      for (const std::uint64_t code :
           {limits.smallest_nonzero, limits.smallest_normal, limits.largest_finite}) {
        const std::int64_t middle = index_of(fp32, code);
        compare(fp32, *result, middle - reach, middle + reach, count);
      }
    }
  }
  std::printf("%ld results compared, %ld wrong\n", count.compared, count.wrong);
  return count.wrong == 0 && count.compared > 0 ? 0 : 1;
}

}  // namespace
}  // namespace headroom

int main() { return headroom::run(); }
