#include "reference/stabilizer/loop/fixed.h"

#include <xmmintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "reference/input_error.h"
#include "reference/stabilizer/kernel_arithmetic.h"
#include "reference/stabilizer/loop/exponent_arithmetic.h"
#include "reference/stabilizer/loop/families.h"
#include "reference/stabilizer/loop/row_maximum.h"
#include "reference/stabilizer/norm_rule.h"

namespace headroom {
namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

struct Pair {
  double sum, error;
};
/// a + b = sum + error exactly (Knuth's TwoSum).
Pair two_sum(double a, double b) {
  const double sum = a + b, b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

/// `x` rounded toward +infinity into the format. Requires: exact, or rounded to odd.
double round_up_to(const Format& format, double x) {
  if (format != fp32) return round_to(format, x, {.rounding = Rounding::upward});
  const auto nearest = static_cast<float>(x);
  return nearest < x ? std::nextafter(nearest, HUGE_VALF) : nearest;
}

/// The larger, or NaN if either is.
double larger_or_nan(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? not_a_number : std::max(a, b);
}

/// sum[k] + x[k][0]^2 + x[k][1]^2 + ... of eight rows in FP32, one after another in each row.
void add_squares(const float* const x[8], std::size_t d, float sum[8]) {
  __m128 sums[2] = {_mm_loadu_ps(sum), _mm_loadu_ps(sum + 4)};
  std::size_t c = 0;
  for (; c + 4 <= d; c += 4) {
    for (int half = 0; half < 2; ++half) {
      __m128 v[4];
      for (int k = 0; k < 4; ++k) v[k] = _mm_loadu_ps(x[4 * half + k] + c);
      _MM_TRANSPOSE4_PS(v[0], v[1], v[2], v[3]);
      for (const __m128 channel : v) {
        sums[half] = _mm_add_ps(sums[half], _mm_mul_ps(channel, channel));
      }
    }
  }
  _mm_storeu_ps(sum, sums[0]);
  _mm_storeu_ps(sum + 4, sums[1]);
  for (; c < d; ++c) {
    for (int k = 0; k < 8; ++k) sum[k] += x[k][c] * x[k][c];
  }
}

/// Norms of rows, products and sums rounded one after another from `initial` on, as
/// KernelArithmetic::norm.
template <typename Row>
void norms_of(const KernelArithmetic& arithmetic, double initial, std::int64_t rows,
              std::int64_t channels, const Row& row, double* norms) {
  const auto d = static_cast<std::size_t>(channels);
  std::int64_t i = 0;
  if (arithmetic.format() == fp32) {
    for (; i < rows; i += 8) {
      const auto n = static_cast<int>(std::min<std::int64_t>(8, rows - i));
      const float* x[8];
      float sum[8];
      for (int k = 0; k < 8; ++k) {
        x[k] = row(i + std::min(k, n - 1));
        sum[k] = static_cast<float>(initial);
      }
      add_squares(x, d, sum);
      for (int k = 0; k < n; ++k) norms[i + k] = std::sqrt(sum[k]);
    }
    return;
  }
  std::vector<double> wide(d);
  for (; i < rows; ++i) {
    const float* x = row(i);
    std::copy_n(x, d, wide.begin());
    norms[i] = arithmetic.norm(wide, initial);
  }
}

/// One mu a row, given; what derives it overrides init().
class FixedLoop : public LoopStabilizer {
 public:
  FixedLoop(std::string name, bool last_online)
      : name_(std::move(name)), last_online_(last_online) {}
  FixedLoop(std::string name, std::vector<float> mus, bool gate, bool last_online)
      : name_(std::move(name)), mus_(std::move(mus)), gate_(gate), last_online_(last_online) {}

  std::string_view name() const final { return name_; }
  void init(const LoopArithmetic& kernel) override { kernel_ = &kernel; }
  bool gate() const final { return gate_; }
  void before_loop(std::span<const std::int64_t> rows) final {
    shift_.resize(rows.size());
    top_.resize(rows.size());
    for (std::size_t r = 0; r < rows.size(); ++r) {
      shift_[r] = mus_[static_cast<std::size_t>(rows[r])];
    }
  }
  void tile(const TileScores& scores, const TileDecision& decision) final {
    if (last_online_ && scores.last) {
      std::copy(shift_.begin(), shift_.end(), top_.begin());
      raise_to_scaled(*kernel_, scores, NanInMaximum::kept, top_.data());
      with_exponents(kernel_->model().exponent.format, [&](const auto& x) {
        for (std::size_t r = 0; r < top_.size(); ++r) shift_[r] = x.subtract(shift_[r], top_[r]);
      });
      kernel_->exponentials(shift_.data(), decision.correction, shift_.size());
      shift_ = top_;
    }
    std::copy(shift_.begin(), shift_.end(), decision.shift);
  }

 protected:
  const LoopArithmetic& kernel() const { return *kernel_; }
  /// A new head: its gate, and room for a mu of each row.
  std::vector<float>& start(bool gate, std::size_t rows) {
    gate_ = gate;
    mus_.resize(rows);
    return mus_;
  }

 private:
  std::string name_;
  std::vector<float> mus_, shift_, top_;
  bool gate_ = true, last_online_;
  const LoopArithmetic* kernel_ = nullptr;
};

/// NormRule (norm_rule.h) on the operands that the loop shows.
class NormLoop : public FixedLoop {
 public:
  NormLoop(std::string_view name, const LoopParameters& parameters)
      : FixedLoop(std::string(name), parameters.at("last_online") != 0) {}

  void init(const LoopArithmetic& kernel) final {
    FixedLoop::init(kernel);
    norm_ = KernelArithmetic(kernel.model().stabilizer.norm);
    factor_ = std::fabs(kernel.score_factor());
    begin_head();
    take_norms();
    after_norms();
    cap_ = exponent_cap();
    const bool accepted = accepts();
    std::vector<float>& mus = start(accepted, row_norms_.size());
    const StabilizerStage& stage = kernel.model().stabilizer;
    for (std::size_t i = 0; i < mus.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      mus[i] = static_cast<float>(
          round_sum_of_three(stage.store, stage.round_up, base(row), -cap_, centre_of(row)));
    }
  }

 protected:
  virtual void begin_head() {}
  virtual void after_norms() {}
  virtual double initial_square() const { return 0; }
  virtual double exponent_cap() const = 0;
  virtual bool accepts() const = 0;
  virtual double base(std::int64_t row) const = 0;

  const KernelArithmetic& norm() const { return norm_; }
  std::span<const double> row_norms() const { return row_norms_; }
  double row_norm(std::int64_t row) const { return row_norms_[static_cast<std::size_t>(row)]; }
  double query_norm() const { return query_norm_; }
  double key_norm() const { return key_norm_; }
  double factor() const { return factor_; }
  double cap() const { return cap_; }
  double nearest_bound(double query_norm) const {
    const double product = norm_.multiply(query_norm, key_norm_);
    return factor_ == 1 ? product : norm_.multiply(product, norm_.round(factor_));
  }
  static bool within(double value, double limit) { return std::isfinite(value) && value <= limit; }

 private:
  void take_norms() {
    const std::int64_t d = kernel().channels();
    mean_.clear();
    differences_.clear();
    if (kernel().model().centring.keys == Centring::virtual_) take_differences();
    const auto key = [&](std::int64_t j) {
      return differences_.empty() ? kernel().key(j)
                                  : differences_.data() + static_cast<std::size_t>(j * d);
    };
    key_norms_.resize(static_cast<std::size_t>(kernel().keys()));
    norms_of(norm_, initial_square(), kernel().keys(), d, key, key_norms_.data());
    row_norms_.resize(static_cast<std::size_t>(kernel().queries()));
    norms_of(
        norm_, initial_square(), kernel().queries(), d,
        [&](std::int64_t i) { return kernel().query(i); }, row_norms_.data());
    query_norm_ = key_norm_ = 0;
    for (const double x : key_norms_) key_norm_ = larger_or_nan(key_norm_, x);
    for (const double x : row_norms_) query_norm_ = larger_or_nan(query_norm_, x);
  }

  /// The mean, summed in FP32 one key after another, and K - mean in stabilizer.norm.
  void take_differences() {
    const auto d = static_cast<std::size_t>(kernel().channels());
    const std::int64_t n = kernel().keys();
    std::vector<float> sum(d);
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::size_t c = 0; c < d; ++c) sum[c] += kernel().key(j)[c];
    }
    mean_.resize(d);
    for (std::size_t c = 0; n > 0 && c < d; ++c) {
      mean_[c] = round_to(kernel().model().centring.mean, sum[c] / static_cast<float>(n));
    }
    differences_.resize(static_cast<std::size_t>(n) * d);
    for (std::int64_t j = 0; j < n; ++j) {
      float* out = differences_.data() + static_cast<std::size_t>(j) * d;
      for (std::size_t c = 0; c < d; ++c) {
        out[c] = static_cast<float>(norm_.subtract(kernel().key(j)[c], mean_[c]));
      }
    }
  }

  double centre_of(std::int64_t row) const {
    if (mean_.empty()) return 0;
    const KernelArithmetic score(kernel().model().score.accumulator.format);
    const float* q = kernel().query(row);
    const std::vector<double> wide(q, q + mean_.size());
    const double centre = score.dot(wide, mean_);
    const double factor = kernel().score_factor();
    return factor == 1 ? centre : score.multiply(centre, score.round(factor));
  }

  KernelArithmetic norm_{fp32};
  std::vector<double> row_norms_, key_norms_, mean_;  ///< mean_: virtual centring only
  std::vector<float> differences_;
  double query_norm_ = 0, key_norm_ = 0, factor_ = 1, cap_ = 0;
};

class FixedM final : public NormLoop {
 public:
  FixedM(std::string_view name, const LoopParameters& parameters)
      : NormLoop(name, parameters), c_(parameters.at("cap")), limit_(parameters.at("limit")) {}

 private:
  double exponent_cap() const override { return c_; }
  bool accepts() const override { return within(nearest_bound(query_norm()), limit_); }
  double base(std::int64_t row) const override { return std::ceil(nearest_bound(row_norm(row))); }

  double c_, limit_;
};

class FixedMN final : public NormLoop {
 public:
  using NormLoop::NormLoop;

 private:
  double exponent_cap() const override {
    return 127 - ceil_log2_count(kernel().padded_keys()) -
           ceil_log2_at_least_one_or_nan(kernel().model().gate.vmax);
  }
  bool accepts() const override {
    const KernelModel& model = kernel().model();
    const double width = cap() + 125;
    const bool two_sided = model.gate.sides == GateSides::two_sided;
    return within(nearest_bound(query_norm()), two_sided ? std::floor(width / 2) : width) &&
           kernel().largest_value() <= model.gate.vmax && model.p.format.emax + 1 > cap();
  }
  double base(std::int64_t row) const override {
    double norm = row_norm(row);
    if (const std::int64_t block = kernel().model().gate.query_block; block > 0) {
      const std::int64_t begin = row / block * block;
      const std::int64_t end = std::min(begin + block, kernel().queries());
      for (std::int64_t i = begin; i < end; ++i) norm = std::fmax(norm, row_norm(i));
    }
    return std::ceil(nearest_bound(norm));
  }
};

class ClisAlgorithm1 final : public NormLoop {
 public:
  using NormLoop::NormLoop;

 private:
  void begin_head() override {
    const Format& format = norm().format();
    if (channels_ == kernel().channels() && format_ == format) return;
    channels_ = kernel().channels();
    format_ = format;
    initial_square_ = clis_alg1_initial_square(format, channels_);
    inflation_ = clis_alg1_inflation(format, channels_);
  }
  double initial_square() const override { return initial_square_; }
  double exponent_cap() const override {
    const KernelModel& model = kernel().model();
    const double a = ceil_log2_count(kernel().padded_keys()) +
                     ceil_log2_at_least_one_or_nan(kernel().largest_value());
    const double by_sums = std::min(model.denominator.format.emax, model.numerator.format.emax) - a;
    return std::isnan(by_sums) ? by_sums : std::min<double>(model.exp2.result.emax, by_sums);
  }
  bool accepts() const override {
    const Exp2Unit& unit = kernel().model().exp2;
    return within(bound_up(query_norm()), cap() - flush_exponent(unit.result, unit.flush_to_zero));
  }
  double base(std::int64_t row) const override { return bound_up(row_norm(row)); }
  double bound_up(double query_norm) const {
    const Format& format = norm().format();
    double bound = round_up_to(format, query_norm * key_norm());
    bound = round_up_to(format, bound * inflation_);
    const double factor = round_up_to(format, this->factor());
    return factor == 1 ? bound : round_up_to(format, bound * factor);
  }

  std::int64_t channels_ = -1;
  Format format_ = fp32;
  double initial_square_ = 0, inflation_ = 1;
};

class Clis final : public NormLoop {
 public:
  Clis(std::string_view name, const LoopParameters& parameters)
      : NormLoop(name, parameters),
        c_(parameters.at("cap")),
        kappa_(parameters.at("kappa")),
        residual_(parameters.at("residual")),
        width_(parameters.at("width")) {
    if (std::isnan(c_) || std::isnan(kappa_)) {
      throw InputError("stabilizer clis: found no cap and kappa, expected the certifier's table");
    }
  }

 private:
  double exponent_cap() const override { return c_; }
  bool accepts() const override {
    const Format& format = norm().format();
    const double value = round_up_to(format, query_norm() * kappa_);
    const double bound = round_sum_of_three(format, true, value, residual_, 0);
    return within(bound, std::isnan(width_) ? std::numeric_limits<double>::infinity() : width_);
  }
  double base(std::int64_t row) const override { return norm().multiply(row_norm(row), kappa_); }

  double c_, kappa_, residual_, width_;
};

class TabledClis final : public NormLoop {
 public:
  using MakeTable = std::function<LoopTable(const LoopArithmetic&, const LoopNorms&)>;
  explicit TabledClis(MakeTable make_table)
      : NormLoop("clis", {{"last_online", 0}}), make_table_(std::move(make_table)) {}

 private:
  void after_norms() override {
    table_ = make_table_(kernel(), {query_norm(), key_norm(), row_norms()});
  }
  double exponent_cap() const override { return table_.cap; }
  bool accepts() const override { return table_.accepts; }
  double base(std::int64_t row) const override {
    return norm().multiply(row_norm(row), table_.kappa);
  }

  MakeTable make_table_;
  LoopTable table_;
};

template <typename Rule>
std::unique_ptr<LoopStabilizer> make(std::string_view name, const LoopParameters& parameters) {
  return std::make_unique<Rule>(name, parameters);
}

}  // namespace

double round_sum_of_three(const Format& format, bool round_up, double a, double b, double c) {
  const double all = a + b + c;
  if (!std::isfinite(all)) return all;
  // high + middle + low is the exact sum, each part at most half an ulp of the one before
  const Pair ab = two_sum(a, b);
  const Pair abc = two_sum(ab.sum, c);
  const Pair rest = two_sum(ab.error, abc.error);
  const Pair high = two_sum(abc.sum, rest.sum);
  const Pair middle = two_sum(high.error, rest.error);
  const Pair top = two_sum(high.sum, middle.sum);
  double sum = top.sum;
  const double left = top.error != 0 ? top.error : middle.error;
  const auto bits = std::bit_cast<std::uint64_t>(sum);
  // to odd, which any rounding to fewer bits than 52 then sees through
  if (left != 0 && (bits & 1) == 0) {
    sum = std::bit_cast<double>((left > 0) == (sum > 0) ? bits + 1 : bits - 1);
  }
  if (sum == 0) return 0;
  return round_up ? round_up_to(format, sum) : KernelArithmetic(format).round(sum);
}

std::unique_ptr<LoopStabilizer> make_fixed_loop(std::string name, std::vector<float> mus, bool gate,
                                                bool last_online) {
  return std::make_unique<FixedLoop>(std::move(name), std::move(mus), gate, last_online);
}

std::unique_ptr<LoopStabilizer> make_clis_loop(
    std::function<LoopTable(const LoopArithmetic&, const LoopNorms&)> make_table) {
  return std::make_unique<TabledClis>(std::move(make_table));
}

const std::vector<LoopEntry>& fixed_entries() {
  using enum LoopEntry::Kind;
  static const std::vector<LoopEntry> entries = {
      {"clis",
       "mu = store(||q|| kappa - cap), the certifier's table; DESIGN.md",
       {{"cap", not_a_number},
        {"kappa", not_a_number},
        {"residual", 0},
        {"width", not_a_number},
        {"last_online", 0, choice}},
       make<Clis>},
      {"clis-alg1",
       "mu = BoundUp(||q|| max||k||) - C, C from N and V; the CLiS paper's page, Algorithm 1",
       {{"last_online", 0, choice}},
       make<ClisAlgorithm1>},
      {"fixed-m",
       "mu = ceil(||q|| max||k||) - 88, last tile online; maxdiffusion 7cfb8801",
       {{"cap", 88}, {"limit", 213}, {"last_online", 1, choice}},
       make<FixedM>},
      {"fixed-m-n",
       "mu = ceil(max||q|| max||k||) - C(N), last tile online; maxdiffusion pull request 477",
       {{"last_online", 1, choice}},
       make<FixedMN>},
  };
  return entries;
}

}  // namespace headroom
