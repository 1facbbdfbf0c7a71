#include "reference/evaluate/simulate/units.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "reference/evaluate/simulate/allowed_results.h"
#include "reference/evaluate/simulate/fa4_polynomial.h"
#include "reference/evaluate/simulate/unit_kernels.h"
#include "reference/evaluate/vector/exp2_constants.h"
#include "reference/format/convert.h"
#include "reference/input_error.h"

namespace headroom {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr std::size_t block_size = 256;
constexpr std::size_t table_size = 65536;

// log2(e) as a double and what is left, |log2(e) - hi - lo| <= 2^-108.
constexpr double log2e_hi = 0x1.71547652b82fep0;
constexpr double log2e_lo = 0x1.777d0ffda0d24p-56;

std::uint64_t mixed(std::uint64_t x) {  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// 2^x or e^x with 256 bits, for arguments that doubles do not settle.
class ExactPower {
 public:
  ExactPower(ExponentBase base, float x) {
    mpfr_init2(x_, 24);
    mpfr_init2(power_, 256);
    mpfr_set_flt(x_, x, MPFR_RNDN);
    const int inexact = base == ExponentBase::two ? mpfr_exp2(power_, x_, MPFR_RNDZ)
                                                  : mpfr_exp(power_, x_, MPFR_RNDZ);
    sticky_ = inexact != 0;
  }
  ~ExactPower() {
    mpfr_clear(x_);
    mpfr_clear(power_);
  }
  ExactPower(const ExactPower&) = delete;
  ExactPower& operator=(const ExactPower&) = delete;

  TruncatedReal get() const { return {power_, sticky_}; }

 private:
  mpfr_t x_, power_;
  bool sticky_;
};

int polynomial_degree(const std::string& name) {
  return name.starts_with("fa4-poly") ? name.back() - '0' : 0;
}

// What two units have to share to give the same answers.
struct Behaviour {
  Format result;
  double max_error_ulps, floor;
  bool flush_to_zero, monotone, reads_subnormals_as_zero;
  ExponentBase base;
  UnitChoice choice;
  bool operator==(const Behaviour&) const = default;
};

// Results of 65,536 arguments, by code.
struct Table {
  std::once_flag once;
  std::atomic<std::size_t> asked{0};
  std::atomic<bool> ready{false};
  std::vector<float> result;
};
struct Tables {
  Table bf16, fp16;
};

// The tables of a behaviour: units are made anew for every head and share them.
std::shared_ptr<Tables> tables_of(const Behaviour& behaviour) {
  static std::mutex mutex;
  static std::vector<std::pair<Behaviour, std::shared_ptr<Tables>>> known;
  if (behaviour.choice == UnitChoice::random) return std::make_shared<Tables>();
  const std::lock_guard<std::mutex> lock(mutex);
  for (const auto& [other, tables] : known) {
    if (other == behaviour) return tables;
  }
  known.emplace_back(behaviour, std::make_shared<Tables>());
  return known.back().second;
}

}  // namespace

struct ExponentialUnit::Implementation {
  Implementation(const Exp2Unit& unit, ExponentBase base_, UnitChoice choice_, std::uint64_t seed_)
      : promise{unit.result, unit.max_error_ulps, unit.flush_to_zero, true},
        base(base_),
        choice(choice_),
        seed(seed_),
        monotone(unit.monotone_at_integers),
        reads_subnormals_as_zero(unit.name == "ex2.approx.ftz"),
        sixteenths(unit.max_error_ulps * 16 == std::floor(unit.max_error_ulps * 16)),
        degree(polynomial_degree(unit.name)),
        floor(static_cast<float>(unit.floor)),
        c_hi(base_ == ExponentBase::two ? 1 : log2e_hi),
        c_lo(base_ == ExponentBase::two ? 0 : log2e_lo),
        kernels(unit_kernels(best_instruction_set())) {
    if (unit.max_error_ulps <= 0.5) choice = UnitChoice::nearest;
    if (degree != 0 && base == ExponentBase::e) {
      throw InputError("exp2.unit: found " + unit.name +
                       " with exponent.base = e, expected base 2: it computes powers of two");
    }
    if (tabulated()) {
      tables = tables_of({unit.result, unit.max_error_ulps, unit.floor, unit.flush_to_zero,
                          unit.monotone_at_integers, reads_subnormals_as_zero, base, choice});
    }
  }

  bool nearest() const { return choice == UnitChoice::nearest; }

  // Does the unit answer a 16-bit argument sooner from a table?
  bool tabulated() const { return degree == 0 && !(nearest() && promise.result == fp32); }

  // The least and the largest result that a monotone unit may give, added to the promise.
  void clamp(float x, AllowedResults& results) const {
    if (base == ExponentBase::e) {  // only e^0 is a power of two
      if (x <= 0) results.largest = std::min(results.largest, 1.0);
      if (x >= 0) results.least = std::max(results.least, 1.0);
      return;
    }
    const int lowest = flush_exponent(promise.result, promise.flush_to_zero);
    const double bounded = std::clamp(static_cast<double>(x), -2000.0, 2000.0);
    const int below = static_cast<int>(std::floor(bounded));
    const int above = std::max(static_cast<int>(std::ceil(bounded)), lowest);
    if (below >= lowest && below <= promise.result.emax) {
      results.least = std::max(results.least, std::ldexp(1.0, below));
    }
    if (above <= promise.result.emax) {
      results.largest = std::min(results.largest, std::ldexp(1.0, above));
    }
  }

  // The answer to x, not NaN, given power = 2^(c x) as the kernels compute it.
  float answer(float x, double power) const {
    std::optional<AllowedResults> results;
    if (reads_subnormals_as_zero && std::fabs(x) < 0x1p-126F) x = 0;
    if (x == -infinity) {
      results = AllowedResults{0, 0};
    } else if (x == infinity) {
      results = AllowedResults{infinity, infinity};
    } else {
      const bool exact = base == ExponentBase::two ? x == std::floor(x) : x == 0;
      // exp2_relative_error_bound and the rounding of the products stay within 2^-51
      const double lo = exact ? power : power * (1 - 0x1p-51);
      const double hi = exact ? power : power * (1 + 0x1p-51);
      results = allowed_results(promise, lo, hi, nearest());
      if (!results && std::fabs(x) < 0x1p-33F && sixteenths) {
        // 1 +- less than 2^-32: no 16th of an ulp lies between 1 and the power, any one in its
        // place gives the same.
        const double near = x > 0 ? 1 + 0x1p-40 : 1 - 0x1p-40;
        results = allowed_results(promise, near, near, false);
      }
      if (!results) {
        // A finite x far outside of every format's range stands for all beyond.
        const float bounded = std::clamp(x, -300.0F, 300.0F);
        results = allowed_results(promise, ExactPower(base, bounded).get(), nearest());
      }
      if (monotone && !nearest()) clamp(x, *results);
    }
    double result = results->least;
    if (choice == UnitChoice::highest) result = results->largest;
    if (choice == UnitChoice::random) {
      const std::uint64_t hash = mixed(std::bit_cast<std::uint32_t>(x) + mixed(seed + 1));
      result = pick_result(promise, *results, power * (1 - 0x1p-51), hash);
    }
    return std::max(floor, static_cast<float>(result));
  }

  void apply_block(const float* x, float* y, std::size_t n) const {
    if (nearest() && promise.result == fp32) {
      UnsettledArgument unsettled[block_size];
      const NearestPower power{c_hi, c_lo, promise.flush_to_zero, floor};
      const std::size_t count = kernels.nearest(power, x, y, n, unsettled);
      for (std::size_t i = 0; i < count; ++i) {
        const float argument = unsettled[i].x;
        double doubled = 0;
        kernels.power(c_hi, c_lo, &argument, &doubled, 1);
        y[unsettled[i].index] = std::isnan(argument) ? nan : answer(argument, doubled);
      }
      return;
    }
    double power[block_size];
    kernels.power(c_hi, c_lo, x, power, n);
    for (std::size_t i = 0; i < n; ++i) y[i] = std::isnan(x[i]) ? nan : answer(x[i], power[i]);
  }

  // The table of BF16 arguments (upper half of the FP32 word), or of FP16's.
  const float* table_of(const Format& format, std::size_t n) const {
    Table& table = format == bf16 ? tables->bf16 : tables->fp16;
    if (table.ready.load(std::memory_order_acquire)) return table.result.data();
    // Built once it would have paid off.
    if (table.asked.fetch_add(n, std::memory_order_relaxed) < table_size) return nullptr;
    std::call_once(table.once, [&] {
      std::vector<float> x(table_size);
      for (std::size_t code = 0; code < table_size; ++code) {
        x[code] = static_cast<float>(decode(format, code));
      }
      table.result.resize(table_size);
      for (std::size_t i = 0; i < table_size; i += block_size) {
        apply_block(x.data() + i, table.result.data() + i, block_size);
      }
      table.ready.store(true, std::memory_order_release);
    });
    return table.result.data();
  }

  void apply(const float* x, float* y, std::size_t n) const {
    if (degree != 0) return kernels.polynomial(fa4_coefficients[degree], degree, floor, x, y, n);
    for (std::size_t i = 0; i < n; i += block_size) {
      const std::size_t m = std::min(block_size, n - i);
      if (!tabulated() || !look_up(x + i, y + i, m)) apply_block(x + i, y + i, m);
    }
  }

  // Answers a block from a table, if one holds all its arguments and is ready.
  bool look_up(const float* x, float* y, std::size_t n) const {
    std::uint32_t low = 0;
    for (std::size_t i = 0; i < n; ++i) low |= std::bit_cast<std::uint32_t>(x[i]) & 0xffff;
    if (low == 0) {
      const float* table = table_of(bf16, n);
      if (table == nullptr) return false;
      for (std::size_t i = 0; i < n; ++i) y[i] = table[std::bit_cast<std::uint32_t>(x[i]) >> 16];
      return true;
    }
    if ((low & 0x1fff) != 0) return false;  // a subnormal FP16 number has fewer bits, not more
    std::uint16_t codes[block_size];
    for (std::size_t i = 0; i < n; ++i) {
      if (!fp16_code(x[i], codes[i])) return false;
    }
    const float* table = table_of(fp16, n);
    if (table == nullptr) return false;
    for (std::size_t i = 0; i < n; ++i) y[i] = table[codes[i]];
    return true;
  }

  // The FP16 code of x, if it is a number of FP16 that is zero, normal or special.
  static bool fp16_code(float x, std::uint16_t& code) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t sign = bits >> 16 & 0x8000, field = bits >> 23 & 0xff;
    if ((bits & 0x7fffffff) == 0) {
      code = static_cast<std::uint16_t>(sign);
    } else if (field >= 113 && field <= 142) {  // 2^-14 to 2^15
      code = static_cast<std::uint16_t>(sign | (field - 112) << 10 | (bits >> 13 & 0x3ff));
    } else if (field == 255) {
      code = static_cast<std::uint16_t>(sign | 0x7c00 | ((bits & 0x7fffff) != 0 ? 0x200 : 0));
    } else {
      return false;
    }
    return true;
  }

  UlpPromise promise;
  ExponentBase base;
  UnitChoice choice;
  std::uint64_t seed;
  bool monotone, reads_subnormals_as_zero;
  bool sixteenths;  ///< is the error in ulps a multiple of 1/16?
  int degree;       ///< of FlashAttention-4's polynomial, or 0
  float floor;
  double c_hi, c_lo;
  const UnitKernels& kernels;
  std::shared_ptr<Tables> tables;
};

ExponentialUnit::ExponentialUnit(const Exp2Unit& unit, ExponentBase base, UnitChoice choice,
                                 std::uint64_t seed)
    : implementation_(std::make_unique<Implementation>(unit, base, choice, seed)) {}
ExponentialUnit::~ExponentialUnit() = default;
ExponentialUnit::ExponentialUnit(ExponentialUnit&&) noexcept = default;
ExponentialUnit& ExponentialUnit::operator=(ExponentialUnit&&) noexcept = default;

float ExponentialUnit::operator()(float x) const {
  float y = 0;
  implementation_->apply(&x, &y, 1);
  return y;
}

void ExponentialUnit::apply(const float* x, float* y, std::size_t n) const {
  implementation_->apply(x, y, n);
}

float reciprocal(const Normalisation& unit, float x, UnitChoice choice, std::uint64_t seed) {
  if (std::isnan(x)) return nan;
  if (x == 0 || std::isinf(x)) return 1 / x;
  const float magnitude = std::fabs(x);
  int exponent = 0;
  const bool power_of_two = std::frexp(magnitude, &exponent) == 0.5F;
  const UlpPromise promise{fp32, unit.reciprocal_max_error_ulps, unit.reciprocal_flush_to_zero,
                           false};
  AllowedResults results{};
  if (choice == UnitChoice::nearest || promise.max_error_ulps <= 0.5 ||
      (power_of_two && unit.reciprocal_exact_at_powers_of_two)) {
    const float rounded = 1 / magnitude;  // above 2^126 the largest quotient is 2^-126 (1 - 2^-23)
    results.least = results.largest =
        promise.flush_to_zero && rounded < 0x1p-126F ? 0 : static_cast<double>(rounded);
  } else {
    mpfr_t y;
    mpfr_init2(y, 256);
    mpfr_set_flt(y, magnitude, MPFR_RNDN);
    const bool sticky = mpfr_ui_div(y, 1, y, MPFR_RNDZ) != 0;
    results = allowed_results(promise, TruncatedReal{y, sticky}, false);
    mpfr_clear(y);
  }
  // The least result of a negative number is the largest magnitude.
  const bool largest = choice == UnitChoice::highest ? x > 0 : x < 0;
  double result = largest ? results.largest : results.least;
  if (choice == UnitChoice::random) {
    result = pick_result(promise, results, 1 / static_cast<double>(magnitude) * (1 - 0x1p-51),
                         mixed(std::bit_cast<std::uint32_t>(x) + mixed(seed)));
  }
  return static_cast<float>(std::copysign(result, x));
}

}  // namespace headroom
