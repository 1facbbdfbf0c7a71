#include "reference/evaluate/simulate/lanes/lanes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <oneapi/tbb/enumerable_thread_specific.h>
#include <oneapi/tbb/parallel_for.h>

#include "reference/evaluate/simulate/lanes/operands.h"

namespace headroom {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

constexpr int most_lanes = 64;
/// Rows of a block that run together where the stabilizer does not need all of them.
constexpr std::int64_t most_rows = 64;

std::int64_t padded(std::int64_t n) { return (n + lane_group - 1) / lane_group * lane_group; }

bool covers(const Accumulator& sum, FreeOrder order) {
  switch (sum.order.kind) {
    case OrderKind::sequential:
      return true;
    case OrderKind::any:
    case OrderKind::tile:
      return order == FreeOrder::ascending;
    case OrderKind::lanes:
      return order == FreeOrder::ascending && sum.order.size <= most_lanes;
    case OrderKind::pairwise:
    case OrderKind::matrix_unit:
      return false;
  }
  return false;
}

/// Formats of what a score's products multiply, and of P and V.
struct Multiplied {
  Format q, k, p, v;
};
Multiplied multiplied_formats(const AttentionProblem& problem, const KernelModel& kernel) {
  const auto of = [&](const Matrix& stored, FactorSite site) {
    const bool folded = kernel.scale.scale == site || kernel.scale.log2e == site;
    const bool wider = !folded || stored.format().precision > kernel.operand.precision;
    return wider ? stored.format() : kernel.operand;
  };
  Multiplied formats{of(problem.q, FactorSite::query), of(problem.k, FactorSite::key),
                     kernel.p.format, problem.v.format()};
  if (kernel.centring.keys == Centring::mean &&
      kernel.centring.difference.precision > formats.k.precision) {
    formats.k = kernel.centring.difference;
  }
  return formats;
}

MatrixUnit matrix_unit_of(const Accumulator& sum, const Format& a, const Format& b) {
  if (sum.order.kind != OrderKind::matrix_unit) return {};
  return {sum.order.size, sum.order.fraction_bits, a.emin, b.emin, sum.flush_to_zero};
}
/// As SumRule of head_arithmetic.cpp and plain.cpp.
MatrixUnit score_unit(const KernelModel& kernel) {
  return matrix_unit_of(
      kernel.score.accumulator, kernel.operand,
      kernel.centring.keys == Centring::mean ? kernel.centring.difference : kernel.operand);
}
MatrixUnit numerator_unit(const KernelModel& kernel) {
  return matrix_unit_of(kernel.numerator, kernel.p.format, kernel.operand);
}
/// Is this a matrix unit whose sums the loops hold? Its steps leave no order free.
bool covers(const MatrixUnit& unit, const Format& a, const Format& b) {
  return unit.covered() && a.precision + b.precision <= fp32.precision;
}

/// Is the FP32 product of numbers of formats a and b, rounded once more, the stage's? It has few
/// enough bits to be exact, or, where it underflows, to be no nearer to a boundary than FP32 tells.
Products products_of(const Accumulator& sum, const Format& a, const Format& b) {
  if (!sum.rounded_products) return Products::fused;
  const bool exact = sum.format.emin > fp32.emin ? a.precision + b.precision <= fp32.precision
                                                 : a.precision <= 8 && b.precision <= 8;
  return exact ? Products::exact : Products::rounded;
}

std::vector<ScoreChain> chains_of(const AccumulationOrder& order, std::int64_t channels) {
  std::vector<ScoreChain> chains;
  if (order.kind == OrderKind::tile) {
    for (std::int64_t t = 0; t < channels; t += order.size) {
      chains.push_back({t, std::min<std::int64_t>(t + order.size, channels), 1});
    }
  } else if (order.kind == OrderKind::lanes) {
    // one lane without terms does what all of them do
    for (std::int64_t t = 0; t < std::min<std::int64_t>(order.size, channels + 1); ++t) {
      chains.push_back({t, channels, order.size});
    }
  } else {
    chains.push_back({0, channels, 1});
  }
  return chains;
}

float smallest_normal(const Format& format) {
  return static_cast<float>(std::ldexp(1.0, format.emin));
}

}  // namespace

bool lanes_cover(const AttentionProblem& problem, const KernelModel& kernel,
                 const SimulationOptions& options) {
  const Multiplied formats = multiplied_formats(problem, kernel);
  return !options.plain && !options.events && !problem.bias && !problem.softcap &&
         !kernel.normalise.every_tile && covers(kernel.denominator, options.order) &&
         (covers(kernel.score.accumulator, options.order) ||
          covers(score_unit(kernel), formats.q, formats.k)) &&
         (covers(kernel.numerator, options.order) ||
          covers(numerator_unit(kernel), formats.p, formats.v));
}

LaneSimulation::LaneSimulation(const HeadArithmetic& head, InstructionSet set, bool often)
    : head_(head), kernel_(head.kernel()), loops_(lane_kernels(set)) {
  const AttentionProblem& problem = head.problem();
  const Multiplied formats = multiplied_formats(problem, kernel_);
  const Accumulator& score = kernel_.score.accumulator;
  score_ = LaneStageChoice(loops_, score, products_of(score, formats.q, formats.k));
  score_.unit = score_unit(kernel_);
  numerator_ = LaneStageChoice(loops_, kernel_.numerator,
                               products_of(kernel_.numerator, formats.p, formats.v));
  numerator_.unit = numerator_unit(kernel_);
  numerator_.matrix_products = loops_.matrix_products;
  denominator_ =
      LaneStageChoice(loops_, kernel_.denominator,
                      kernel_.denominator.rounded_products ? Products::rounded : Products::fused);
  chains_ = chains_of(score.order, head.channels());
  score_args_.channels = head.channels();
  score_args_.chains = chains_.data();
  score_args_.n_chains = static_cast<std::int64_t>(chains_.size());
  score_args_.from_zero = score.order.kind == OrderKind::tile;
  score_args_.factor = head.early_factor();
  if (kernel_.score.store != fp32 && kernel_.score.store != score.format) {
    score_args_.store = Narrowing(kernel_.score.store, score.flush_to_zero, false);
  }
  exponent_args_.factor = head.factor();
  exponent_args_.fused = head.fused();
  exponent_args_.native = kernel_.exponent.format == fp32;
  exponent_args_.format = Narrowing(kernel_.exponent.format, false, false);
  weight_ = Narrowing(kernel_.p.format, kernel_.p.flush_to_zero, kernel_.p.saturate);
  output_ = Narrowing(kernel_.normalise.output, false, false);
  // the reciprocal has its own rule for flushing, whatever the sums do
  reciprocal_ = Narrowing(kernel_.denominator.format, false, false);
  hidden_ = head.masked(0);
  if (kernel_.denominator.denormals_are_zero) {
    least_term_ =
        smallest_normal(kernel_.p.denominator_rounded ? kernel_.p.format : kernel_.exp2.result);
  }
  if (kernel_.numerator.denormals_are_zero) least_weight_ = smallest_normal(kernel_.p.format);
  // the units that give RN(2^x) wherever it is normal
  one_pass_ =
      loops_.weights != nullptr && exponent_args_.native && kernel_.exp2.floor == 0 &&
      kernel_.exponent.base == ExponentBase::two && kernel_.exp2.result == fp32 &&
      head.options().exp2 == UnitChoice::nearest && !fa4_polynomial(kernel_.exp2.name) &&
      (weight_.plain_bf16() || weight_.plain_fp16() || (weight_.identity && least_weight_ == 0));
  // settled weights are far from bf16's ends, where it flushes or saturates
  one_pass_weight_ = kernel_.p.format == bf16 ? Narrowing(bf16, false, false) : weight_;
  if (often && kernel_.exponent.format.bits() == 16) {
    for (std::uint64_t code = 0; code < 0x10000; ++code) {
      table_.push_back(static_cast<float>(decode(kernel_.exponent.format, code)));
    }
    head.unit().apply(table_.data(), table_.data(), table_.size());
  }
  reload();
}

void LaneSimulation::reload() {
  const AttentionProblem& problem = head_.problem();
  const std::int64_t dv = problem.value_channels();
  const std::int64_t held =
      kernel_.tiles.padding == Padding::zero_keys
          ? head_.keys()
          : std::min(std::max(head_.keys(), head_.tiled_keys()), problem.keys());
  values_.resize(static_cast<std::size_t>(std::max(held, head_.tiled_keys()) * dv));
  load_matrix(loops_, problem.v, held, values_.data());
  std::fill(values_.begin() + held * dv, values_.end(), 0.0F);
  if (kernel_.numerator.denormals_are_zero) {
    loops_.flush(smallest_normal(kernel_.operand), values_.data(), held * dv);
  }
}

std::vector<LaneBlock> LaneSimulation::blocks(const LoopStabilizer& stabilizer,
                                              std::span<const std::int64_t> rows) const {
  std::vector<LaneBlock> blocks;
  const std::int64_t most =
      stabilizer.couples_rows() ? std::numeric_limits<std::int64_t>::max() : most_rows;
  for (const std::vector<std::int64_t>& all : blocks_of(head_, stabilizer, rows)) {
    const auto n = static_cast<std::int64_t>(all.size());
    std::vector<std::vector<std::int64_t>> tiles;
    for (std::int64_t part = 0; part < kernel_.split.parts; ++part) {
      tiles.push_back(tiles_of(head_, all[0] / kernel_.tiles.queries, part));
    }
    for (std::int64_t first = 0; first < n; first += std::min(most, n)) {
      LaneBlock block;
      block.rows.assign(all.begin() + first, all.begin() + std::min(n, first + std::min(most, n)));
      block.tiles = tiles;
      block.all_end = std::numeric_limits<std::int64_t>::max();
      for (const std::int64_t row : block.rows) {
        const KeyRange range = head_.problem().range(row);
        block.ranges.push_back(range);
        block.all_begin = std::max(block.all_begin, range.begin);
        block.all_end = std::min(block.all_end, range.end);
      }
      blocks.push_back(std::move(block));
    }
  }
  return blocks;
}

void LaneSimulation::load_queries(const LaneBlock& block, std::int64_t stride,
                                  LaneArray& queries) const {
  const auto n = static_cast<std::int64_t>(block.rows.size());
  const std::int64_t d = head_.channels();
  queries.resize(static_cast<std::size_t>(d * stride));
  if (block.rows.back() - block.rows.front() + 1 == n) {
    loops_.transpose(head_.query(block.rows[0]), n, d, queries.data(), stride);
    return;
  }
  std::fill(queries.begin(), queries.end(), 0.0F);
  for (std::int64_t r = 0; r < n; ++r) {
    const float* from = head_.query(block.rows[static_cast<std::size_t>(r)]);
    for (std::int64_t t = 0; t < d; ++t)
      queries[static_cast<std::size_t>(t * stride + r)] = from[t];
  }
}

/// What the kernel's mask makes of one tile's scores, and which rows see a key of it.
void LaneSimulation::mask(const LaneBlock& block, std::int64_t begin, std::int64_t n,
                          std::int64_t stride, LaneWorkspace& work) const {
  const AttentionProblem& problem = head_.problem();
  const auto rows = block.rows.size();
  const bool ranges_only = problem.ranges_only();
  const bool select = kernel_.mask.form == MaskForm::select;
  if (ranges_only && begin >= block.all_begin && begin + n <= block.all_end) {
    std::fill(work.visible.begin(), work.visible.end(), std::uint8_t{1});
    return;
  }
  for (std::int64_t j = 0; j < n; ++j) {
    const std::int64_t key = begin + j;
    float* scores = &work.scores[static_cast<std::size_t>(j * stride)];
    if (key >= head_.keys()) {
      if (kernel_.tiles.padding == Padding::masked) {
        std::fill(scores, scores + stride, -infinity);
      } else {
        std::fill(work.visible.begin(), work.visible.end(), std::uint8_t{1});
      }
      continue;
    }
    for (std::size_t r = 0; r < rows; ++r) {
      const KeyRange& range = block.ranges[r];
      if (key >= range.begin && key < range.end &&
          (ranges_only || problem.sees(block.rows[r], key))) {
        work.visible[r] = 1;
      } else {
        scores[r] = select ? hidden_ : head_.masked(scores[r]);
      }
    }
  }
}

/// A tile's exponents, exponentials and P, which is returned.
const float* LaneSimulation::weigh(std::int64_t n, std::int64_t stride, LaneWorkspace& work) const {
  const ExponentialUnit& unit = head_.unit();
  float *e = work.exponentials.data(), *p = work.weights.data();
  WeightArgs args;
  args.exponent = exponent_args_;
  args.exponent.scores = work.scores.data();
  args.exponent.keys = n;
  args.exponent.stride = stride;
  args.exponent.shift = work.shift.data();
  args.exponent.exponents = e;
  const bool same = weight_.identity && least_weight_ == 0;
  if (one_pass_) {
    args.p = one_pass_weight_;
    args.weights = p;
    if (work.unsettled.size() < static_cast<std::size_t>(n * stride)) {
      work.unsettled.resize(static_cast<std::size_t>(n * stride));
    }
    const std::int64_t found = loops_.weights(args, work.unsettled.data());
    for (std::int64_t i = 0; i < found; ++i) {
      const UnsettledWeight& one = work.unsettled[static_cast<std::size_t>(i)];
      e[one.index] = unit(one.x);
      if (!same) p[one.index] = static_cast<float>(head_.weight_stage().round(e[one.index]));
    }
    return same ? e : p;
  }
  loops_.exponents(args.exponent);
  if (table_.empty()) {
    unit.apply(e, e, static_cast<std::size_t>(n * stride));
  } else {
    loops_.look_up(kernel_.exponent.format == bf16, table_.data(), e, n * stride);
  }
  if (same) return e;
  loops_.narrow(weight_, e, p, n * stride);
  return p;
}

void LaneSimulation::run_part(const LaneBlock& block, std::int64_t part, LoopStabilizer& stabilizer,
                              LaneWorkspace& work) const {
  const auto rows = static_cast<std::int64_t>(block.rows.size()), stride = padded(rows);
  const auto lanes = static_cast<std::size_t>(stride);
  const std::int64_t dv = head_.problem().value_channels();
  work.denominator.start(denominator_, kernel_.denominator.order, 1, stride,
                         initial_denominator(head_, stabilizer, part));
  work.numerator.start(numerator_, kernel_.numerator.order, dv, stride, 0);
  work.shift.assign(lanes, 0.0F);
  work.again.assign(block.rows.size(), 0);
  work.visible.assign(block.rows.size(), 0);
  stabilizer.before_loop(block.rows);
  work.tiles.assign(block.tiles[static_cast<std::size_t>(part)].begin(),
                    block.tiles[static_cast<std::size_t>(part)].end());
  stabilizer.order(work.tiles);

  for (std::size_t t = 0; t < work.tiles.size(); ++t) {
    const std::int64_t begin = work.tiles[t] * kernel_.tiles.keys;
    const std::int64_t n = std::min<std::int64_t>(kernel_.tiles.keys, head_.tiled_keys() - begin);
    const auto size = static_cast<std::size_t>(n * stride);
    if (work.scores.size() < size) {
      work.scores.resize(size);
      work.exponentials.resize(size);
      work.weights.resize(size);
    }
    ScoreArgs score = score_args_;
    score.q = work.queries.data();
    score.k = head_.key(begin);
    score.stride = stride;
    score.keys = n;
    score.scores = work.scores.data();
    {
      const StageScope scope(score_.flush_scope);
      if (score_.unit.size > 0) {
        loops_.matrix_scores(score_.unit, score);
      } else {
        score_.loops->scores(score);
      }
    }
    mask(block, begin, n, stride, work);

    work.correction.assign(lanes, 1.0F);
    TileScores view;
    view.scores = work.scores.data();
    view.rows = rows;
    view.stride = stride;
    view.keys = n;
    view.first_key = begin;
    view.tile = static_cast<std::int64_t>(t);
    view.last = t + 1 == work.tiles.size();
    stabilizer.tile(view, {work.shift.data(), work.correction.data(), work.again.data()});
    make_nan_canonical(work.shift.data(), rows);
    make_nan_canonical(work.correction.data(), rows);
    work.numerator.scale(work.correction.data());
    work.denominator.scale(work.correction.data());

    const float* weights = weigh(n, stride, work);
    work.denominator.add(kernel_.p.denominator_rounded ? weights : work.exponentials.data(), n,
                         least_term_);
    if (least_weight_ > 0) loops_.flush(least_weight_, work.weights.data(), n * stride);
    work.numerator.add(weights, &values_[static_cast<std::size_t>(begin * dv)], dv, n);
  }
}

/// 1 / l of every divisor as the kernel's unit and its denominator's format give it.
void LaneSimulation::reciprocals(LaneWorkspace& work) const {
  const Normalisation& unit = kernel_.normalise;
  const std::size_t n = work.divisor.size();
  work.inverse.resize(n);
  if (head_.options().reciprocal == UnitChoice::nearest) {
    for (std::size_t i = 0; i < n; ++i) work.inverse[i] = 1 / work.divisor[i];
    if (unit.reciprocal_flush_to_zero) {
      // not near 2^-126, where rounding and flushing could disagree (units.cpp)
      loops_.flush(0x1p-126F, work.inverse.data(), static_cast<std::int64_t>(n));
    }
  } else {
    for (std::size_t i = 0; i < n; ++i) {
      work.inverse[i] =
          reciprocal(unit, work.divisor[i], head_.options().reciprocal, head_.options().seed);
    }
  }
  loops_.narrow(reciprocal_, work.inverse.data(), work.inverse.data(),
                static_cast<std::int64_t>(n));
}

/// LSE of every row's divisor, as plain.cpp's log_sum. The logarithm is correctly rounded: from
/// doubles, or by MPFR where they do not tell.
void LaneSimulation::log_sums(std::int64_t rows, float offset, LaneWorkspace& work,
                              const LaneResults& results) const {
  const ExponentBase delivered = kernel_.lse.base;
  constexpr float ln_2 = 0x1.62e43p-1F, log2_e = 0x1.715476p+0F;
  work.logarithms.resize(static_cast<std::size_t>(rows));
  const int power = offset_taken_out(kernel_, offset);
  if (power != 0) {
    for (std::int64_t r = 0; r < rows; ++r) {
      results.lse[r] = std::ldexp(work.divisor[static_cast<std::size_t>(r)], -power);
    }
  } else {
    std::copy(work.divisor.begin(), work.divisor.begin() + rows, results.lse);
  }
  loops_.logarithms(delivered == ExponentBase::two, results.lse, work.logarithms.data(), rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float sum = results.lse[r];
    const double log = work.logarithms[static_cast<std::size_t>(r)];
    const auto lo = static_cast<float>(log * (1 - 0x1p-44)),
               hi = static_cast<float>(log * (1 + 0x1p-44));
    const bool known = lo == hi && sum > 0 && sum < infinity;
    float at = results.shift[r] + static_cast<float>(power);
    if (kernel_.exponent.base != delivered) at *= delivered == ExponentBase::e ? ln_2 : log2_e;
    results.lse[r] = at + (known ? lo : HeadArithmetic::logarithm(delivered, sum));
  }
}

/// One part's results, before parts are joined: output [dv][stride] in the numerator's format.
void LaneSimulation::finish(const LaneBlock& block, std::int64_t part,
                            const LoopStabilizer& stabilizer, LaneWorkspace& work, float* output,
                            const LaneResults& results) const {
  const auto rows = static_cast<std::int64_t>(block.rows.size()), stride = padded(rows);
  const std::int64_t dv = head_.problem().value_channels();
  const Normalisation& last = kernel_.normalise;
  const bool added = accumulates(kernel_), with_sink = part == 0 && head_.scaled_sink();
  if (with_sink && !added && !starts_with_sink(head_, stabilizer)) {
    work.sink.resize(static_cast<std::size_t>(stride));
    for (std::size_t r = 0; r < work.sink.size(); ++r) {
      work.sink[r] = static_cast<float>(
          head_.exponent_stage().add(*head_.scaled_sink(), -static_cast<double>(work.shift[r])));
    }
    head_.unit().apply(work.sink.data(), work.sink.data(), work.sink.size());
    work.denominator.add(work.sink.data(), 1, 0);
  }
  work.divisor.resize(static_cast<std::size_t>(stride));
  work.denominator.total(work.divisor.data());
  const float* l = results.denominator;
  std::copy(work.divisor.begin(), work.divisor.begin() + rows, results.denominator);
  std::copy(work.shift.begin(), work.shift.begin() + rows, results.shift);
  if (last.guard == DenominatorGuard::maximum && !added) {
    // max drops a NaN, as the hardware's does
    const auto least = static_cast<float>(last.guard_value);
    for (float& divisor : work.divisor) divisor = std::fmax(divisor, least);
  }
  log_sums(rows, stabilizer.offset(), work, results);
  work.numerator.total(output);
  if (added) return;

  for (std::int64_t r = 0; r < rows && last.guard != DenominatorGuard::none; ++r) {
    float& divisor = work.divisor[static_cast<std::size_t>(r)];
    const bool missing = l[r] == 0 || std::isnan(l[r]);
    if (last.guard == DenominatorGuard::maximum) break;
    if (missing && last.guard == DenominatorGuard::zero_to_one) {
      divisor = 1;
      results.lse[r] = lse_without_denominator(kernel_);
    } else if (missing) {
      divisor = infinity;  // over which O is what it is times zero
      results.lse[r] = -infinity;
    }
  }
  if (last.division == Division::reciprocal) reciprocals(work);
  {
    const StageScope scope(numerator_.flush_scope);
    if (last.division == Division::reciprocal) {
      numerator_.loops->scale(output, dv, stride, work.inverse.data());
    } else {
      numerator_.loops->divide(output, dv, stride, work.divisor.data());
    }
  }
  if (kernel_.tiles.empty_row == EmptyRowRule::mean_of_visited) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    if (work.visible[static_cast<std::size_t>(r)] != 0) continue;
    const PartResult empty = empty_row(head_, with_sink);
    for (std::int64_t c = 0; c < dv; ++c) {
      output[c * stride + r] = empty.output[static_cast<std::size_t>(c)];
    }
    results.denominator[r] = empty.denominator;
    results.lse[r] = empty.lse;
    if (with_sink) results.shift[r] = empty.shift;
  }
}

void LaneSimulation::run_block(const LaneBlock& block, LoopStabilizer& stabilizer,
                               LaneWorkspace& work, const LaneResults& results) const {
  const auto rows = static_cast<std::int64_t>(block.rows.size()), stride = padded(rows);
  const std::int64_t dv = head_.problem().value_channels(), parts = kernel_.split.parts;
  load_queries(block, stride, work.queries);
  work.recompute.assign(block.rows.size(), 0);
  work.parts.resize(parts > 1 ? block.rows.size() : 0);
  for (auto& row : work.parts) row.clear();
  for (std::int64_t part = 0; part < parts; ++part) {
    run_part(block, part, stabilizer, work);
    const auto size = static_cast<std::size_t>(dv * stride);
    if (work.weights.size() < size) work.weights.resize(size);
    float* output = work.weights.data();
    finish(block, part, stabilizer, work, output, results);
    for (std::size_t r = 0; r < block.rows.size(); ++r) {
      if (work.again[r] != 0) work.recompute[r] = 1;
      if (parts == 1) continue;
      const auto i = static_cast<std::int64_t>(r);
      PartResult& one = work.parts[r].emplace_back();
      for (std::int64_t c = 0; c < dv; ++c) one.output.push_back(output[c * stride + i]);
      one.denominator = results.denominator[r];
      one.shift = results.shift[r];
      one.lse = results.lse[r];
      one.visible = work.visible[r] != 0;
      one.visible = work.visible[r] != 0;
    }
    if (parts == 1) loops_.deliver(output_, output, stride, rows, dv, results.output);
  }
  for (std::size_t r = 0; r < block.rows.size(); ++r) {
    if (parts > 1) {
      const PartResult joined = join_parts(head_, work.parts[r]);
      std::transform(joined.output.begin(), joined.output.end(),
                     results.output + static_cast<std::int64_t>(r) * dv,
                     [](float x) { return std::isnan(x) ? not_a_number : x; });
      results.denominator[r] = joined.denominator;
      results.shift[r] = joined.shift;
      results.lse[r] = joined.lse;
    }
    if (std::isnan(results.lse[r])) results.lse[r] = not_a_number;
    results.recomputed[r] = work.recompute[r];
  }
}

void LaneSimulation::run(const LaneBlock& block, LoopStabilizer& stabilizer, LaneWorkspace& work,
                         const LaneResults& results) const {
  run_block(block, stabilizer, work, results);
  LaneBlock given_up;
  std::vector<std::size_t> places;
  for (std::size_t r = 0; r < block.rows.size(); ++r) {
    if (work.recompute[r] == 0) continue;
    given_up.rows.push_back(block.rows[r]);
    given_up.ranges.push_back(block.ranges[r]);
    places.push_back(r);
  }
  if (places.empty()) return;
  given_up.tiles = block.tiles;
  given_up.all_begin = block.all_begin;
  given_up.all_end = block.all_end;
  if (!work.fallback) {
    work.fallback = make_loop_stabilizer(std::string(stabilizer.fallback()));
    work.fallback->init(head_);
    if (!work.second) work.second = std::make_unique<LaneWorkspace>();
  }
  const std::size_t n = places.size();
  const auto dv = static_cast<std::size_t>(head_.problem().value_channels());
  std::vector<float> output(n * dv), lse(n), denominator(n), shift(n);
  std::vector<std::uint8_t> never(n);
  run_block(given_up, *work.fallback, *work.second,
            {output.data(), lse.data(), denominator.data(), shift.data(), never.data()});
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t r = places[i];
    std::copy_n(&output[i * dv], dv, results.output + r * dv);
    results.lse[r] = lse[i];
    results.denominator[r] = denominator[i];
    results.shift[r] = shift[i];
  }
}

Simulated simulate_lanes(const HeadArithmetic& head, LoopStabilizer& stabilizer,
                         std::span<const std::int64_t> rows,
                         const std::function<std::unique_ptr<LoopStabilizer>()>& make) {
  // a table of all exponents costs as much as they do
  const bool often = static_cast<std::int64_t>(rows.size()) * head.keys() >= 0x40000;
  const LaneSimulation simulation(head, head.options().set.value_or(best_instruction_set()), often);
  const auto dv = static_cast<std::size_t>(head.problem().value_channels());
  Simulated all;
  all.output.assign(rows.size() * dv, 0.0F);
  all.lse.assign(rows.size(), 0.0F);
  all.denominator = all.shift = all.lse;
  all.recomputed.assign(rows.size(), 0);
  all.gate = stabilizer.gate();
  all.vectorised = true;
  std::vector<std::pair<std::int64_t, std::size_t>> wanted;
  for (std::size_t i = 0; i < rows.size(); ++i) wanted.emplace_back(rows[i], i);
  std::sort(wanted.begin(), wanted.end());
  const std::vector<LaneBlock> blocks = simulation.blocks(stabilizer, rows);
  const auto run = [&](const LaneBlock& block, LoopStabilizer& rule, LaneWorkspace& work) {
    const std::size_t n = block.rows.size();
    std::vector<float> output(n * dv), lse(n), denominator(n), shift(n);
    std::vector<std::uint8_t> recomputed(n);
    simulation.run(
        block, rule, work,
        {output.data(), lse.data(), denominator.data(), shift.data(), recomputed.data()});
    for (std::size_t r = 0; r < n; ++r) {
      for (auto at = std::lower_bound(wanted.begin(), wanted.end(),
                                      std::pair<std::int64_t, std::size_t>(block.rows[r], 0));
           at != wanted.end() && at->first == block.rows[r]; ++at) {
        std::copy_n(&output[r * dv], dv, &all.output[at->second * dv]);
        all.lse[at->second] = lse[r];
        all.denominator[at->second] = denominator[r];
        all.shift[at->second] = shift[r];
        all.recomputed[at->second] = recomputed[r];
      }
    }
  };
  if (!make || blocks.size() < 2) {
    LaneWorkspace work;
    for (const LaneBlock& block : blocks) run(block, stabilizer, work);
    return all;
  }
  struct Local {
    std::unique_ptr<LoopStabilizer> rule;
    LaneWorkspace work;
  };
  oneapi::tbb::enumerable_thread_specific<Local> locals;
  oneapi::tbb::parallel_for(std::size_t{0}, blocks.size(), [&](std::size_t i) {
    const NearestRounding nearest;
    Local& local = locals.local();
    if (!local.rule) {
      local.rule = make();
      local.rule->init(head);
    }
    run(blocks[i], *local.rule, local.work);
  });
  return all;
}

}  // namespace headroom
