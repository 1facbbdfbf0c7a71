#include "fuzz/execute.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "certify/certify.h"
#include "certify/clis_table.h"
#include "fuzz/gated_loop.h"
#include "reference/input_error.h"
#include "reference/model/kernel_file.h"

namespace headroom::fuzz {
namespace {

constexpr double log2e = 1.4426950408889634;
constexpr double never = -std::numeric_limits<double>::infinity();
constexpr double certain = 1;  ///< the closeness of what was seen

/// A stabilizer whose parameters change from head to head: the certifier's table.
class Tabled final : public LoopStabilizer {
 public:
  explicit Tabled(std::string name) : name_(std::move(name)) {}
  void set(const LoopParameters& parameters) { inner_ = make_loop_stabilizer(name_, parameters); }
  std::string_view name() const override { return name_; }
  void init(const LoopArithmetic& kernel) override { inner_->init(kernel); }
  bool gate() const override { return inner_->gate(); }
  void before_loop(std::span<const std::int64_t> rows) override { inner_->before_loop(rows); }
  void tile(const TileScores& scores, const TileDecision& decision) override {
    inner_->tile(scores, decision);
  }

 private:
  std::string name_;
  std::unique_ptr<LoopStabilizer> inner_;
};

std::unique_ptr<LoopStabilizer> make_loop(const Target& target) {
  if (takes_table(target)) return std::make_unique<Tabled>("clis");
  return loop_of(target);
}

std::vector<std::int64_t> count_up(std::int64_t n) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

bool finite_range(const float* x, std::size_t n) {
  // the largest exponent, on the bits: a loop without branches and without roundings
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(x[i]) & 0x7f800000U);
  }
  return largest != 0x7f800000U;
}

float largest_magnitude(const float* x, std::size_t n) {
  std::uint32_t largest = 0;  // magnitudes are ordered as their bits are
  for (std::size_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffU);
  }
  return std::bit_cast<float>(largest);
}

/// sum (x - y)^2 in doubles, in eight interleaved parts so that it can be done in vectors.
double squared_distance(const float* x, const double* y, std::size_t n) {
  double part[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (std::size_t l = 0; l < 8; ++l) {
      const double difference = double{x[i + l]} - y[i + l];
      part[l] += difference * difference;
    }
  }
  for (; i < n; ++i) {
    const double difference = double{x[i]} - y[i];
    part[i % 8] += difference * difference;
  }
  return ((part[0] + part[4]) + (part[1] + part[5])) + ((part[2] + part[6]) + (part[3] + part[7]));
}

/// factor max|q| max|k - mean| (max|k| without centring), in doubles.
double gate_value(const Candidate& c, const Landmarks& marks) {
  const auto d = static_cast<std::size_t>(c.shape.channels);
  const std::int64_t keys = c.length();
  constexpr std::size_t most = 1024;
  if (d > most) return std::numeric_limits<double>::quiet_NaN();
  double largest_q = 0, largest_k = 0, mean[most], zero[most];
  std::fill_n(mean, d, 0.0);
  std::fill_n(zero, d, 0.0);
  for (std::int64_t i = 0; i < c.shape.queries; ++i) {
    largest_q = std::max(largest_q, squared_distance(c.query(i), zero, d));
  }
  if (marks.centred) {
    for (std::int64_t j = 0; j < keys; ++j) {
      const float* k = c.key(j);
      for (std::size_t x = 0; x < d; ++x) mean[x] += double{k[x]};
    }
    for (std::size_t x = 0; x < d; ++x) mean[x] /= static_cast<double>(keys);
  }
  for (std::int64_t j = 0; j < keys; ++j) {
    largest_k = std::max(largest_k, squared_distance(c.key(j), mean, d));
  }
  return std::fabs(marks.factor) * std::sqrt(largest_q) * std::sqrt(largest_k);
}

std::uint64_t step_of(double x, double step, int steps) {
  if (std::isnan(x)) return 0;
  const double bucket = std::floor(std::clamp(x, -1e6, 1e6) / step);
  return static_cast<std::uint64_t>(std::clamp(bucket, -steps / 2.0, steps / 2.0 - 1) +
                                    steps / 2.0);
}

}  // namespace

KernelModel careful_twin(const KernelModel& kernel) {
  KernelModel t = kernel;
  const Accumulator sum{.format = fp32,
                        .order = {OrderKind::sequential},
                        .flush_to_zero = false,
                        .rounded_products = false};
  t.score.accumulator = t.denominator = t.numerator = sum;
  t.score.store = fp32;
  t.score.scale_before_store = true;
  t.score.softcap = SoftcapFormula::tanh;
  t.mask = {};
  t.sink = SinkPlace::start;
  const KernelModel ideal = preset("ieee-fp32");
  t.exponent = ideal.exponent;
  t.exp2 = ideal.exp2;
  t.p = ideal.p;
  t.normalise = ideal.normalise;
  t.stabilizer = ideal.stabilizer;
  t.tiles = {.keys = 64, .padding = Padding::sliced, .empty_row = EmptyRowRule::zero};
  t.split = {};
  t.lse = {.base = ExponentBase::two};
  return t;
}

struct Executor::Prepared {
  Shape shape;
  Setting setting;
  Landmarks marks;
  bool usable = false;                 ///< false: the kernel does not have this setting
  std::vector<std::uint8_t> row_sees;  ///< one a row: it sees a key
  std::unique_ptr<Simulator> kernel, twin;
  Tabled* table = nullptr;  ///< the kernel's stabilizer, where heads bring their own table
  std::vector<std::unique_ptr<Simulator>> tilings, partitions;
  std::int64_t used = 0;
};

Executor::Executor(const Hunt& hunt) : hunt_(hunt), twin_(careful_twin(hunt.target.kernel)) {
  for (const Objective o : hunt.objectives) wanted_[static_cast<std::size_t>(o)] = true;
}
Executor::~Executor() = default;

const Landmarks& Executor::landmarks(const Shape& shape) {
  for (const auto& [known, marks] : landmarks_) {
    if (known == shape) return marks;
  }
  if (landmarks_.size() >= 256) landmarks_.clear();
  landmarks_.emplace_back(shape, landmarks_of(hunt_.target, shape));
  return landmarks_.back().second;
}

Executor::Prepared& Executor::prepare(const Candidate& candidate) {
  const auto fits = [&](const Prepared& p) {
    return p.shape == candidate.shape && p.setting == candidate.setting;
  };
  if (last_ != nullptr && fits(*last_)) return *last_;
  for (const auto& p : prepared_) {
    if (fits(*p)) return *(last_ = p.get());
  }
  constexpr std::size_t most = 48;
  if (prepared_.size() >= most) {  // keep those that were used most
    std::sort(prepared_.begin(), prepared_.end(),
              [](const auto& a, const auto& b) { return a->used > b->used; });
    prepared_.resize(most / 2);
    for (const auto& p : prepared_) p->used /= 2;
  }
  auto made = std::make_unique<Prepared>();
  Prepared& p = *made;
  p.shape = candidate.shape;
  p.setting = candidate.setting;
  p.marks = landmarks(candidate.shape);
  const Target& target = hunt_.target;
  try {
    const Scale scale = target.scale_of(p.shape);
    const AttentionProblem problem = problem_of(candidate, target.kernel.operand, scale);
    for (std::int64_t i = 0; i < problem.queries(); ++i) {
      bool sees = false;
      for (std::int64_t j = 0; !sees && j < problem.keys(); ++j) sees = problem.visible(i, j);
      p.row_sees.push_back(sees ? 1 : 0);
    }
    const std::vector<std::int64_t> rows = count_up(problem.queries());
    auto loop = make_loop(target);
    if (takes_table(target)) p.table = static_cast<Tabled*>(loop.get());
    p.kernel =
        std::make_unique<Simulator>(problem, target.kernel, std::move(loop), rows, target.how);
    p.twin =
        std::make_unique<Simulator>(problem, twin_, make_loop_stabilizer("online-scaled"), rows);
    const auto variant = [&](auto& list, const KernelModel& kernel) {
      if (find_problem(kernel) || p.table != nullptr) return;
      list.push_back(
          std::make_unique<Simulator>(problem, kernel, make_loop(target), rows, target.how));
    };
    if (wanted_[static_cast<std::size_t>(Objective::tiling)]) {
      KernelModel other = target.kernel;
      other.tiles.keys = std::max(1, target.kernel.tiles.keys / 2);
      variant(p.tilings, other);
    }
    if (wanted_[static_cast<std::size_t>(Objective::partition)]) {
      KernelModel other = target.kernel;
      other.split.parts = target.kernel.split.parts == 1 ? 2 : 1;
      variant(p.partitions, other);
    }
    p.usable = true;
  } catch (const InputError&) {
    p.usable = false;
  }
  prepared_.push_back(std::move(made));
  return *(last_ = prepared_.back().get());
}

const Observation& Executor::run(const Candidate& candidate, bool thorough) {
  seen_ = {};
  seen_.closeness.fill(never);
  Prepared& with = prepare(candidate);
  ++with.used;
  if (!with.usable) return seen_;
  seen_.ran = true;
  const auto keys = static_cast<std::size_t>(candidate.length());
  const auto d = static_cast<std::size_t>(candidate.shape.channels);
  const auto dv = static_cast<std::size_t>(candidate.shape.value_channels);
  seen_.finite = finite_range(candidate.q.data(), candidate.q.size()) &&
                 finite_range(candidate.k.data(), keys * d) &&
                 finite_range(candidate.v.data(), keys * dv);
  seen_.gate_value = gate_value(candidate, with.marks);
  look(candidate, with, thorough);
  judge(candidate, with);
  if (hunt_.target.gate == GateChoice::certified) only_if_certified(candidate, with, thorough);
  return seen_;
}

/// The table of `clis` for this head; false if the sound gate refuses.
bool Executor::take_table(const Candidate& candidate, Prepared& with) {
  const Target& target = hunt_.target;
  const CertifiedTable table = headroom::certified_table(
      head_of(candidate, target.kernel.operand, target.scale_of(with.shape)), target.kernel,
      target.eps);
  seen_.gate_value = with.marks.gate_limit + table.beyond;
  if (!table.accepts || !std::isfinite(table.kappa)) return false;
  with.table->set({{"cap", table.cap}, {"kappa", table.kappa}, {"last_online", 0}});
  return true;
}

void Executor::look(const Candidate& candidate, Prepared& with, bool thorough) {
  const Target& target = hunt_.target;
  const auto words = [&](const std::vector<float>& numbers, std::vector<std::byte>& to) {
    const std::size_t n = numbers.size();
    if (target.kernel.operand == fp32) return static_cast<const void*>(numbers.data());
    if (target.kernel.operand == bf16) {
      to.resize(2 * n);
      auto* out = reinterpret_cast<std::uint16_t*>(to.data());
      for (std::size_t i = 0; i < n; ++i) {
        out[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(numbers[i]) >> 16);
      }
    } else {
      to = words_of(numbers, target.kernel.operand);
    }
    return static_cast<const void*>(to.data());
  };
  const bool certified = target.gate == GateChoice::certified;
  own_gate_ = true;
  output_difference_ = 0;
  top_l_ = -HUGE_VAL;
  if (certified && !seen_.finite) {  // whoever certifies that is wrong
    look_at_claims(candidate, with);
    seen_.gate = !seen_.refused;
    return;
  }
  if (with.table != nullptr) {
    seen_.gate = take_table(candidate, with);
    if (!seen_.gate) return;
  }
  const void *q = words(candidate.q, q_), *k = words(candidate.k, k_), *v = words(candidate.v, v_);
  const Simulated& run = with.kernel->run(q, k, v);
  ++simulations_;
  if (target.gate == GateChoice::own) seen_.gate = run.gate;
  if (certified && with.table == nullptr) own_gate_ = run.gate;
  if (!own_gate_) {
    if (thorough) look_at_claims(candidate, with);
    seen_.gate = thorough && !seen_.refused;
    if (!seen_.gate) return;
  }
  const bool refused_matters = wanted_[static_cast<std::size_t>(Objective::needless_fallback)];
  if (!seen_.gate && !refused_matters) return;
  const Simulated& twin = with.twin->run(q, k, v);
  ++simulations_;
  look_at_rows(candidate, with, run, twin);
  if (!thorough || !seen_.gate || !seen_.finite) return;
  look_at_variants(candidate, with, run);
  if (certified) look_at_claims(candidate, with);
}

void Executor::look_at_rows(const Candidate& candidate, Prepared& with, const Simulated& run,
                            const Simulated& twin) {
  const KernelModel& kernel = hunt_.target.kernel;
  const auto dv = static_cast<std::size_t>(candidate.shape.value_channels);
  const double unit = kernel.exponent.base == ExponentBase::e ? log2e : 1;
  const double lse_unit = kernel.lse.base == ExponentBase::e ? 1 : 1 / log2e;
  const double vmax =
      std::max(1e-300, static_cast<double>(largest_magnitude(
                           candidate.v.data(), static_cast<std::size_t>(candidate.length()) * dv)));
  const bool whole = kernel.split.parts == 1;
  for (std::size_t i = 0; i < with.row_sees.size(); ++i) {
    if (with.row_sees[i] == 0) continue;
    const float *o = &run.output[i * dv], *t = &twin.output[i * dv];
    const float largest = largest_magnitude(o, dv), twin_largest = largest_magnitude(t, dv);
    const bool numbers = finite_range(o, dv), twin_numbers = finite_range(t, dv);
    float worst = 0;
    if (numbers && twin_numbers) {
      for (std::size_t c = 0; c < dv; ++c) worst = std::max(worst, std::fabs(o[c] - t[c]));
      output_difference_ = std::max(output_difference_, static_cast<double>(worst));
    }
    if (!numbers) {
      for (std::size_t c = 0; c < dv; ++c) {
        seen_.nan = seen_.nan || std::isnan(o[c]);
        seen_.infinite = seen_.infinite || std::isinf(o[c]);
      }
    } else if (twin_numbers) {
      seen_.error = std::max(seen_.error, static_cast<double>(worst) / vmax);
    }
    seen_.zero_row = seen_.zero_row || (numbers && largest == 0 && twin_largest > 0);
    const double lse = static_cast<double>(run.lse[i]) * lse_unit;
    const double twin_lse = static_cast<double>(twin.lse[i]) / log2e;
    seen_.least_lse = std::min(seen_.least_lse, twin_lse);
    if (std::isfinite(twin_lse)) {
      if (std::isfinite(lse)) {
        seen_.lse_error =
            std::max(seen_.lse_error, std::fabs(lse - twin_lse) - 0x1p-21 * std::fabs(twin_lse));
      } else {
        seen_.nan = seen_.nan || std::isnan(lse);
        seen_.infinite = seen_.infinite || std::isinf(lse);
      }
    }
    const double l = static_cast<double>(run.denominator[i]);
    const double twin_l = static_cast<double>(twin.denominator[i]);
    const double twin_shift = static_cast<double>(twin.shift[i]);
    seen_.largest_score = std::max(seen_.largest_score, std::fabs(twin_shift));
    if (!whole) continue;
    const double shift = static_cast<double>(run.shift[i]) * unit;
    const double log2_l = l > 0 ? std::log2(l) : l == 0 ? -1100.0 : HUGE_VAL;
    top_l_ = std::max(top_l_, log2_l);
    const double in_frame = std::log2(twin_l) + twin_shift - shift;  // log2 of what l should be
    if (std::isfinite(in_frame)) {
      seen_.least_l = std::min(seen_.least_l, std::min(log2_l, in_frame));
      seen_.largest_l = std::max(seen_.largest_l, in_frame);
      seen_.top_exponent = std::max(seen_.top_exponent, twin_shift - shift);
      seen_.low_top_exponent = std::min(seen_.low_top_exponent, twin_shift - shift);
      const double numerator =
          in_frame + (twin_largest > 0 ? std::log2(static_cast<double>(twin_largest)) : -1100.0);
      seen_.least_numerator = std::min(seen_.least_numerator, numerator);
      seen_.largest_numerator = std::max(seen_.largest_numerator, numerator);
      if (l >= 0) seen_.lost = std::max(seen_.lost, 1 - std::exp2(log2_l - in_frame));
    }
  }
}

void Executor::look_at_variants(const Candidate& candidate, Prepared& with, const Simulated& run) {
  const auto dv = static_cast<std::size_t>(candidate.shape.value_channels);
  const double vmax =
      std::max(1e-300, static_cast<double>(largest_magnitude(
                           candidate.v.data(), static_cast<std::size_t>(candidate.length()) * dv)));
  const std::vector<float> output = run.output;  // `run` is the same simulator's, if keys change
  const auto difference = [&](const Simulated& other) {
    double worst = 0;
    for (std::size_t i = 0; i < with.row_sees.size(); ++i) {
      if (with.row_sees[i] == 0) continue;
      for (std::size_t x = i * dv; x < (i + 1) * dv; ++x) {
        const float a = output[x], b = other.output[x];
        if (std::isfinite(a) != std::isfinite(b)) return HUGE_VAL;
        if (std::isfinite(a)) worst = std::max(worst, std::fabs(double{a} - double{b}) / vmax);
      }
    }
    return worst;
  };
  const auto run_again = [&](Simulator& simulator, const Candidate& c) -> const Simulated& {
    const Format& operand = hunt_.target.kernel.operand;
    const std::vector<std::byte> q = words_of(c.q, operand), k = words_of(c.k, operand),
                                 v = words_of(c.v, operand);
    ++simulations_;
    return simulator.run(q.data(), k.data(), v.data());
  };
  for (const auto& other : with.tilings) {
    seen_.variance = std::max(seen_.variance, difference(run_again(*other, candidate)));
  }
  for (const auto& other : with.partitions) {
    seen_.variance = std::max(seen_.variance, difference(run_again(*other, candidate)));
  }
  const std::int64_t hidden = candidate.shape.keys - candidate.length();
  if (wanted_[static_cast<std::size_t>(Objective::padding)] && hidden > 0) {
    Candidate poisoned = candidate;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::fill(poisoned.k.begin() + poisoned.length() * poisoned.shape.channels, poisoned.k.end(),
              nan);
    std::fill(poisoned.v.begin() + poisoned.length() * poisoned.shape.value_channels,
              poisoned.v.end(), nan);
    seen_.padding = difference(run_again(*with.kernel, poisoned));
  }
}

void Executor::look_at_claims(const Candidate& candidate, Prepared& with) {
  const Target& target = hunt_.target;
  const HeadReport report =
      certify_head(head_of(candidate, target.kernel.operand, target.scale_of(with.shape)),
                   target.kernel, target.certify_options());
  seen_.refused = report.verdict != Verdict::certified;
  seen_.short_of = std::clamp(-report.margin_bits, 0.0, 298.0);
  if (!seen_.refused) look_at_claims(report, candidate.setting);
}

void Executor::look_at_claims(const HeadReport& report, const Setting& setting) {
  const auto use = [&](double log2_share) { seen_.claim = std::max(seen_.claim, log2_share); };
  // a certificate says that the fixed path is taken, and of what
  if (!own_gate_ || !seen_.finite) return use(certain);
  const double reach = seen_.largest_score + std::fabs(seen_.top_exponent);
  const double noise =
      0x1p-13 + std::ldexp(reach, 1 - hunt_.target.kernel.exponent.format.precision);
  for (const Claim& c : report.claims) {
    if (c.reference != "multiplied") continue;
    const double value = c.value.hi();
    // with a bias, a softcap or a sink the largest exponent of the row is not a score's
    const bool scores_alone = setting.bias.empty() && !setting.softcap && !setting.sink;
    if (c.id == "exponent.upper" && c.kind != LimitKind::none && scores_alone) {
      use(seen_.top_exponent - value);
    }
    if (c.id == "l.range") use(std::max(top_l_, seen_.largest_l) - value);
    if (c.id == "l.nonzero") use(c.value.lo() - seen_.least_l);
    // of what l lacks, roundings of exponents explain some; claims of less are no guide
    if (c.id == "mass.lost")
      use(std::log2(std::max(0.0, seen_.lost - noise) / std::max(value, noise)));
    if (c.id == "output.error" && output_difference_ > 0) {
      use(std::log2(output_difference_ / value));
    }
  }
}

/// Any excess contradicts; the twin's own roundings are some 2^-20 bits.
double Executor::claim_closeness() const {
  return seen_.claim > 0x1p-20 ? certain : std::min(seen_.claim, -0x1p-20);
}

/// Behind a certificate only certified heads are suspects: the certifier is asked of those that
/// look like one. What it refuses is the nearer the less it lacks.
void Executor::only_if_certified(const Candidate& candidate, Prepared& with, bool asked) {
  auto& close = seen_.closeness;
  const auto suspect = [](double x) { return x >= 0; };
  if (!seen_.gate || std::none_of(close.begin(), close.end(), suspect)) return;
  if (!asked) look_at_claims(candidate, with);
  if (!seen_.refused) {
    const auto claim = static_cast<std::size_t>(Objective::claim);
    if (wanted_[claim]) close[claim] = claim_closeness();
    return;
  }
  for (double& x : close) {
    if (suspect(x)) x = -1 - seen_.short_of;
  }
}

/// Could what was seen have begun as the hunt asks? Judged by the magnitudes that a careful kernel
/// has in this one's frame.
bool Executor::likely(const Landmarks& marks) const {
  if (hunt_.event.empty() && hunt_.stage.empty()) return true;
  const KernelModel& k = hunt_.target.kernel;
  const bool weight = seen_.top_exponent >= k.exp2.result.emax;
  const bool l = seen_.largest_l >= k.denominator.format.emax;
  const bool numerator = seen_.largest_numerator >= k.numerator.format.emax;
  const bool residual = seen_.largest_score > 0x1p20;
  const bool sum_flushes = seen_.least_l < marks.flush + 8;
  if (hunt_.event == "infinity" && hunt_.stage == "numerator") return numerator && !weight;
  if (hunt_.event == "infinity" && hunt_.stage == "weight") return weight || residual;
  if (hunt_.event == "infinity" && hunt_.stage == "denominator") return l;
  if (hunt_.event == "nan" && hunt_.stage == "normalise") return sum_flushes;
  if (hunt_.event == "flush" && hunt_.stage == "weight") return sum_flushes;
  if (hunt_.event == "saturation") return !weight && !residual && !l;
  return true;
}

void Executor::judge(const Candidate& candidate, const Prepared& with) {
  const KernelModel& kernel = hunt_.target.kernel;
  const Landmarks& marks = with.marks;
  const double eps = hunt_.target.eps, tolerance = hunt_.target.tolerance;
  auto& close = seen_.closeness;
  const auto wanted = [&](Objective o) { return wanted_[static_cast<std::size_t>(o)]; };
  const auto set = [&](Objective o, double closeness) {
    if (wanted(o)) close[static_cast<std::size_t>(o)] = closeness;
  };
  const double beyond = marks.gate_limit > 0 ? seen_.gate_value - marks.gate_limit : 0;
  const bool padding_ok = wanted(Objective::padding) && seen_.padding > 0;

  if (!seen_.finite) {
    if (seen_.gate && wanted(Objective::swallowed_nan)) {
      set(Objective::swallowed_nan, seen_.nan || seen_.infinite ? -1 : certain);
    }
    if (seen_.claim > 0) set(Objective::claim, seen_.claim);
  } else if (!seen_.gate) {
    // refused: the nearer the gate, the better
    const double far = -300 - (std::isfinite(beyond) ? std::clamp(beyond, 0.0, 1e6) : 1e6);
    for (const Objective o : hunt_.objectives) {
      if (o != Objective::swallowed_nan) set(o, far);
    }
    const bool accurate = !seen_.nan && !seen_.infinite && !seen_.zero_row &&
                          seen_.error <= tolerance / 8 && seen_.lost <= eps &&
                          hunt_.target.gate == GateChoice::own;
    set(Objective::needless_fallback, accurate ? certain - 1e-3 * std::max(0.0, beyond) : far);
  } else {
    const double to_zero = seen_.least_l - marks.flush;  // bits above the flush threshold
    const double flush_guide = -14 - 0.05 * std::clamp(to_zero, -200.0, 1000.0);
    const bool infinity_only = hunt_.event == "infinity", nan_only = hunt_.event == "nan";
    double overflow = std::max({seen_.largest_l - kernel.denominator.format.emax,
                                seen_.largest_numerator - kernel.numerator.format.emax,
                                seen_.top_exponent - kernel.exp2.result.emax});
    if (infinity_only && hunt_.stage == "numerator") {
      overflow = seen_.largest_numerator - kernel.numerator.format.emax - 1;
    }
    if (seen_.largest_score > 0x1p20) {  // the residual of a rounding is half an ulp of it
      overflow = std::max(overflow, std::log2(seen_.largest_score) - 32);
    }
    double non_finite = infinity_only ? overflow
                        : nan_only    ? -to_zero
                                      : std::max(overflow, -to_zero);
    non_finite = std::min(non_finite, -0.5);
    const bool seen = seen_.nan || seen_.infinite;
    set(Objective::non_finite, !seen ? non_finite : likely(marks) ? certain : -2);
    double zero = -to_zero;
    if (hunt_.stage == "normalise") zero = seen_.largest_l - 126;
    if (hunt_.stage == "numerator") zero = marks.flush - seen_.least_numerator;
    if (hunt_.event.empty()) zero = std::max(zero, marks.flush - seen_.least_numerator);
    set(Objective::zero_row, !seen_.zero_row ? std::min(zero, -0.5) : likely(marks) ? certain : -2);
    const auto bits = [&](double share, double limit) {
      return share > 0x1p-20 ? std::max(std::log2(share / limit), flush_guide) : flush_guide;
    };
    const double inaccurate = bits(seen_.error, tolerance);
    set(Objective::inaccurate, likely(marks) ? inaccurate : std::min(inaccurate, -1.0));
    set(Objective::lost_mass, bits(seen_.lost, eps));
    set(Objective::saturation, std::max(seen_.top_exponent - marks.largest_weight,
                                        bits(seen_.error, 0.5 * tolerance) - 0.1));
    set(Objective::absorption,
        std::max(bits(seen_.lost, tolerance), bits(seen_.error, tolerance) - 0.1));
    set(Objective::wrong_lse,
        seen_.lse_error > 0 ? std::max(-14.0, std::log2(seen_.lse_error / tolerance)) : -14);
    const double variance = seen_.variance > 0 ? std::log2(seen_.variance / tolerance) : -20;
    set(Objective::partition, variance);
    set(Objective::tiling, variance);
    set(Objective::padding, padding_ok ? std::log2(seen_.padding / tolerance) : -20);
    const bool ragged = candidate.shape.keys % kernel.tiles.keys != 0;
    set(Objective::backward, (ragged ? 0 : -500) - seen_.least_lse * log2e - 128);
    set(Objective::claim, claim_closeness());
    if (marks.gate_limit > 0 && wanted(Objective::gate_underestimate)) {
      const double gap = std::fabs(beyond) / marks.gate_limit;
      set(Objective::gate_underestimate, beyond > 0 ? 0x1p-6 : -std::log2(1 + gap * 0x1p20));
    }
  }
  std::uint64_t cell = 0;
  const auto add = [&](std::uint64_t value, std::uint64_t of) { cell = cell * of + value; };
  add((seen_.nan ? 1U : 0U) + (seen_.infinite ? 2U : 0U) + (seen_.zero_row ? 4U : 0U), 8);
  add((seen_.gate ? 1U : 0U) + (seen_.finite ? 2U : 0U), 4);
  add(step_of(seen_.least_l, 16, 32), 32);
  add(step_of(seen_.largest_l, 16, 32), 32);
  add(step_of(seen_.top_exponent, 32, 16), 16);
  add(step_of(seen_.largest_numerator, 32, 32), 32);
  add(step_of(seen_.largest_score > 0 ? std::log2(seen_.largest_score) : -20, 4, 16), 16);
  add(step_of(seen_.error > 0 ? std::log2(seen_.error) : -30, 4, 16), 16);
  add(step_of(std::clamp(beyond, -64.0, 63.0), 16, 8), 8);
  seen_.cell = cell;
}

}  // namespace headroom::fuzz
