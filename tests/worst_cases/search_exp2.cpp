// Finds hard arguments of exp2 and prints a worst-case file:
//
//   search_exp2 [--seed N] [--tries N] [--keep N] > exp2.wc
//
// Two kinds of records:
//   midpoint FORMAT x    an FP32 argument whose power lies close to a rounding boundary of FORMAT
//                        (fp32, bf16, fp16; a midpoint of neighbours, subnormal ones included).
//                        Every FP32 argument with a result that is not trivially 0, 1 or infinite
//                        is looked at: the list is complete down to its last entry.
//   kernel hi lo shift   arguments hi + lo - shift at which the kernel's relative error is large.
//                        Random search and steepest ascent over neighbours: a lower bound of the
//                        largest error, never an upper one (that is what the proof is for).
#include <mpfr.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "reference/evaluate/vector/kernels.h"
#include "reference/real/fp_environment.h"
#include "tests/unit/vector/exp2_oracle.h"
#include "tests/worst_cases/exp2_boundary.h"

namespace headroom {
namespace {

struct Near {
  float x;
  double distance;  ///< of the power to the nearest boundary, relative to the power
};

/// The `keep` nearest of what it is shown.
class Nearest {
 public:
  explicit Nearest(std::size_t keep) : keep_(keep) {}
  void show(float x, double distance) {
    if (distance >= limit_) return;
    found_.push_back({x, distance});
    if (found_.size() >= 4 * keep_) cut();
  }
  std::vector<Near> finish() {
    cut();
    return found_;
  }

 private:
  void cut() {
    std::sort(found_.begin(), found_.end(), [](const Near& a, const Near& b) {
      return a.distance != b.distance ? a.distance < b.distance : a.x < b.x;
    });
    if (found_.size() > keep_) found_.resize(keep_);
    if (found_.size() == keep_) limit_ = found_.back().distance;
  }
  std::size_t keep_;
  double limit_ = INFINITY;
  std::vector<Near> found_;
};

/// Every FP32 x with 2^-26 <= |x| < 160, in batches through the kernel.
void search_midpoints(std::size_t keep) {
  const VectorKernels& kernels = vector_kernels(best_instruction_set());
  // Twice as many candidates as records: the kernel's distances are off by 2^-52 or so, MPFR's
  // decide the order.
  std::vector<Nearest> nearest(boundary_formats.size(), Nearest(2 * keep));
  const std::uint32_t first = std::bit_cast<std::uint32_t>(0x1p-26F);
  const std::uint32_t last = std::bit_cast<std::uint32_t>(160.0F);
  constexpr std::size_t batch = 4096;
  std::vector<double> x(batch), y(batch);
  for (const std::uint32_t sign : {0U, 0x80000000U}) {
    for (std::uint32_t from = first; from < last; from += batch) {
      const std::size_t n = std::min<std::size_t>(batch, last - from);
      for (std::size_t i = 0; i < n; ++i) {
        x[i] = std::bit_cast<float>(sign | (from + static_cast<std::uint32_t>(i)));
      }
      kernels.exp2(x.data(), y.data(), n);
      for (std::size_t f = 0; f < boundary_formats.size(); ++f) {
        for (std::size_t i = 0; i < n; ++i) {
          const double boundary = nearest_boundary(boundary_formats[f], y[i]);
          if (boundary == 0) continue;
          nearest[f].show(static_cast<float>(x[i]), std::fabs(y[i] - boundary) / y[i]);
        }
      }
    }
  }
  Exp2BoundaryDistance distance;
  for (std::size_t f = 0; f < boundary_formats.size(); ++f) {
    std::vector<Near> found = nearest[f].finish();
    for (Near& n : found) n.distance = std::fabs(distance.of(boundary_formats[f], n.x));
    std::sort(found.begin(), found.end(),
              [](const Near& a, const Near& b) { return a.distance < b.distance; });
    if (found.size() > keep) found.resize(keep);
    for (const Near& n : found) {
      std::printf("midpoint %s %a %.4f\n", boundary_formats[f].name, n.x, std::log2(n.distance));
    }
  }
}

struct Argument {
  double hi, lo, shift;
  double error = 0;
};

void search_kernel_errors(std::size_t keep, std::size_t tries, std::uint64_t seed) {
  const VectorKernels& kernels = vector_kernels(best_instruction_set());
  std::mt19937_64 random(seed);
  const auto unit = [&random] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  Exp2Oracle oracle;
  const auto measure = [&](Argument& a) {
    double y;
    kernels.exp2_pair(&a.hi, &a.lo, a.shift, &y, 1);
    oracle.argument_pair(a.hi, a.lo, a.shift);
    const Exp2Judgement j = oracle.judge(y);
    if (!j.within) {
      std::fprintf(stderr, "BEYOND THE BOUND: %a + %a - %g\n", a.hi, a.lo, a.shift);
      std::exit(1);
    }
    a.error = j.normal ? j.error_in_2_53 : 0;
  };
  std::vector<Argument> best;
  for (std::size_t i = 0; i < tries; ++i) {
    // The last rounding weighs most just above a power of two, so most tries have a fraction in
    // the cells j = 0, 1, 2 of the table.
    const double range = i % 4 == 0 ? 1 : i % 4 == 1 ? 30 : i % 4 == 2 ? 1000 : 0x1p19;
    const double whole = std::rint((unit() * 2 - 1) * range);
    const double fraction = i % 8 == 7 ? unit() : unit() * 0x1p-3;
    Argument a{whole + fraction, 0, range > 1000 ? whole : 0};
    a.lo = std::ldexp(a.hi, -53) * (unit() * 2 - 1);
    measure(a);
    best.push_back(a);
    if (best.size() >= 64 * keep || i + 1 == tries) {
      std::sort(best.begin(), best.end(),
                [](const Argument& p, const Argument& q) { return p.error > q.error; });
      if (best.size() > keep) best.resize(keep);
    }
  }
  for (Argument& a : best) {  // ascent: neighbours at growing distances, other tails
    for (std::size_t i = 0; i < tries / (8 * keep); ++i) {
      Argument b = a;
      const double step = std::ldexp(std::fabs(a.hi), -52) * std::exp2(unit() * 20);
      b.hi += step * (unit() < 0.5 ? -1 : 1);
      b.lo = std::ldexp(b.hi, -53) * (unit() * 2 - 1);
      measure(b);
      if (b.error > a.error) a = b;
    }
  }
  std::sort(best.begin(), best.end(),
            [](const Argument& p, const Argument& q) { return p.error > q.error; });
  for (const Argument& a : best) {
    std::printf("kernel %a %a %.0f %.4f\n", a.hi, a.lo, a.shift, a.error);
  }
}

int run(int argc, char** argv) {
  std::uint64_t seed = 1;
  std::size_t tries = 2000000, keep = 32;
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (has_value && std::strcmp(argv[i], "--seed") == 0) {
      seed = std::strtoull(argv[++i], nullptr, 0);
    } else if (has_value && std::strcmp(argv[i], "--tries") == 0) {
      tries = std::strtoull(argv[++i], nullptr, 0);
    } else if (has_value && std::strcmp(argv[i], "--keep") == 0) {
      keep = std::strtoull(argv[++i], nullptr, 0);
    } else {
      std::fprintf(stderr, "usage: search_exp2 [--seed N] [--tries N] [--keep N] > exp2.wc\n");
      return 2;
    }
  }
  const NearestRounding nearest;
  std::printf(
      "# Hard arguments of exp2. Written by: search_exp2 --seed %llu --tries %zu --keep %zu\n",
      static_cast<unsigned long long>(seed), tries, keep);
  std::printf("# (tests/worst_cases/search_exp2.cpp, judged by MPFR %s, kernel %s)\n",
              mpfr_get_version(), name(best_instruction_set()));
  std::printf("# midpoint FORMAT x d      2^x is within a relative 2^d of a rounding boundary\n");
  std::printf(
      "# kernel hi lo shift e     2^(hi + lo - shift) comes out e 2^-53 wrong, relatively\n");
  search_midpoints(keep);
  search_kernel_errors(keep, tries, seed);
  return std::ferror(stdout) || std::fflush(stdout) ? 1 : 0;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) { return headroom::run(argc, argv); }
