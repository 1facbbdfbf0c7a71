#include "certify/path_claims.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "certify/path_builder.h"

namespace headroom {
namespace {

bool same_statement(const Claim& a, const Claim& b) {
  return a.id == b.id && a.kind == b.kind && a.limit == b.limit && a.required == b.required &&
         a.reference == b.reference;
}

}  // namespace

void PathBuilder::worsen(RowInputs& worst, const RowInputs& in) {
  if (in.mean_exponent.value() < worst.mean_exponent.value()) worst.row = in.row;
  worst.visible = std::max(worst.visible, in.visible);
  worst.least_visible = std::min(worst.least_visible, in.least_visible);
  worst.norm = std::max(worst.norm, in.norm);
  worst.exponent = max(worst.exponent, in.exponent);
  worst.mean_exponent = min(worst.mean_exponent, in.mean_exponent);
  worst.exact_mean = min(worst.exact_mean, in.exact_mean);
  worst.terms = std::max(worst.terms, in.terms);
  worst.reach = std::max(worst.reach, in.reach);
  worst.bias_reach = std::max(worst.bias_reach, in.bias_reach);
  worst.value = std::min(worst.value, in.value);
  worst.least_exponent = min(worst.least_exponent, in.least_exponent);
  worst.top_exponent = min(worst.top_exponent, in.top_exponent);
  worst.residual = std::max(worst.residual, in.residual);
  worst.correction = std::max(worst.correction, in.correction);
  worst.hidden_score = hull(worst.hidden_score, in.hidden_score);
  worst.initial = hull(worst.initial, in.initial);
  worst.mu = hull(worst.mu, in.mu);
  worst.mean_score_lo = std::min(worst.mean_score_lo, in.mean_score_lo);
  worst.score_error = std::max(worst.score_error, in.score_error);
  worst.far = std::max(worst.far, in.far);
  worst.far_exponent = max(worst.far_exponent, in.far_exponent);
  worst.sink_may_flush = worst.sink_may_flush || in.sink_may_flush;
}

/// Inputs whose bounds hold for every row at [begin, end): each bound is monotone in each.
RowInputs PathBuilder::worst_of(std::size_t begin, std::size_t end) const {
  const auto whole = [&](std::size_t i) {
    return i % block == 0 && (i + block <= end || end == count_);
  };
  const auto part = [&](std::size_t i) { return whole(i) ? blocks_[i / block] : input(i); };
  RowInputs worst = part(begin);
  for (std::size_t i = begin; i < end; i += whole(i) ? block : 1) {
    if (i != begin) worsen(worst, part(i));
  }
  return worst;
}

/// Positions of the path's rows.
void PathBuilder::list_rows() {
  const auto rows = static_cast<std::int64_t>(c_.scan.rows.size());
  const auto belongs = [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    return c_.scan.rows[at].visible != 0 &&
           (c_.paths == nullptr ||
            c_.paths->of[at] != (online_ ? RowPath::fixed : RowPath::online));
  };
  std::int64_t i = 0;
  if (c_.paths == nullptr && c_.scan.empty_rows == 0) i = rows;
  while (i < rows && belongs(i)) ++i;
  count_ = static_cast<std::size_t>(i);
  if (i == rows) return;
  for (std::int64_t j = 0; j < rows; ++j) {
    if (belongs(j)) rows_.push_back(j);
  }
  count_ = rows_.size();
}

/// The worst of each block of rows, the rows that are extreme in one input, and what the claims
/// over the whole head are made from.
void PathBuilder::summarise() {
  blocks_.clear();
  blocks_.reserve((count_ + block - 1) / block);
  extremes_ = {};
  if (count_ > 0) inputs_are_plain() ? summarise_plain() : summarise_each();
}

void PathBuilder::summarise_each() {
  Extremes& most = extremes_;
  double own_error = 0;  // of a row's scores, without what online softmax adds
  for (std::size_t at = 0; at < count_; ++at) {
    const RowInputs in = input(at);
    if (at % block == 0) {
      blocks_.push_back(in);
    } else {
      worsen(blocks_.back(), in);
    }
    if (at == 0) most.worst = in;
    const auto keep = [&](std::size_t which, bool worse) {
      if (worse) most.rows[which] = at;
    };
    keep(0, in.norm > most.worst.norm);
    keep(1, in.exponent.value() > most.worst.exponent.value());
    keep(2, in.mean_exponent.value() < most.worst.mean_exponent.value());
    keep(3, in.exact_mean.value() < most.worst.exact_mean.value());
    keep(4, in.score_error > most.worst.score_error);
    keep(5, in.mean_score_lo < most.worst.mean_score_lo);
    keep(6, in.visible > most.worst.visible);
    keep(7, in.least_visible < most.worst.least_visible);
    keep(8, in.value < most.worst.value);
    const double mu = in.mu.magnitude();
    if (mu >= most.mu) {
      most.mu = mu;
      most.mu_row = in.row;
    }
    const RowScan& row = c_.scan.rows[static_cast<std::size_t>(in.row)];
    const double raw = in.score_error + row.operand_error;  // upward
    if (raw > most.raw_error) most.raw_error = raw;
    own_error = std::max(own_error, error_of(in.row));
    worsen(most.worst, in);
  }
  // the bound of |z^| is monotone in the norm, the error and the bias
  RowScan largest;
  largest.norm = Interval(most.worst.norm);
  largest.bias.largest = most.worst.bias_reach;
  most.score_reach = reach_of(largest, own_error).hi();
}

/// Are inputs of the fixed path made from norms, means and mu alone?
bool PathBuilder::inputs_are_plain() const {
  return !online_ && c_.head.modifiers.none() && c_.paths == nullptr && tightened_.empty() &&
         row_terms_.empty() && c_.scan.padding_keys == 0 && !finite_mask() &&
         std::isinf(stabilizer_->least_exponent(0).value());
}

/// summarise_each where inputs are plain, number by number: what no row has stays as it is.
void PathBuilder::summarise_plain() {
  Extremes& most = extremes_;
  std::array<double, 9> ends{};  // the extreme values at most.rows
  for (std::size_t begin = 0; begin < count_; begin += block) {
    const std::size_t end = std::min(begin + block, count_);
    RowInputs worst = input(begin);
    double norm = worst.norm, exponent = worst.exponent.value(), reach = worst.reach;
    double mean_exponent = worst.mean_exponent.value(), exact_mean = worst.exact_mean.value();
    double block_mu_lo = worst.mu.lo(), block_mu_hi = worst.mu.hi();
    double error = worst.score_error, mean = worst.mean_score_lo;
    if (begin == 0) {
      ends = {norm,
              exponent,
              mean_exponent,
              exact_mean,
              error,
              mean,
              static_cast<double>(worst.visible),
              static_cast<double>(worst.least_visible),
              worst.value};
    }
    for (std::size_t at = begin; at < end; ++at) {
      const std::int64_t i = row_at(at);
      const RowScan& row = c_.scan.rows[static_cast<std::size_t>(i)];
      const Upper<Log2> row_error = row_errors_.of(row);
      const double e = row_error.value();
      const Interval mu = stabilizer_->mu(i);
      const double x = stabilizer_->largest_exponent(i, row_error).value();
      const double exact = Lower<Log2>(-opaque(opaque(mu.hi()) - row.mean_score.lo())).value();
      const double with_error = (Lower<Log2>(exact) - row_error).value();
      const double count = static_cast<double>(row.visible), value = value_of(row);
      const auto keep = [&](std::size_t which, double value, bool worse) {
        if (worse) most.rows[which] = at, ends[which] = value;
      };
      keep(0, row.norm.hi(), row.norm.hi() > ends[0]);
      keep(1, x, x > ends[1]);
      keep(2, with_error, with_error < ends[2]);
      keep(3, exact, exact < ends[3]);
      keep(4, e, e > ends[4]);
      keep(5, row.mean_score.lo(), row.mean_score.lo() < ends[5]);
      keep(6, count, count > ends[6]);
      keep(7, count, count < ends[7]);
      keep(8, value, value < ends[8]);
      norm = std::max(norm, row.norm.hi());
      exponent = std::max(exponent, x);
      reach = std::max(reach, std::fabs(x));
      if (with_error < mean_exponent) mean_exponent = with_error, worst.row = i;
      exact_mean = std::min(exact_mean, exact);
      mean = std::min(mean, row.mean_score.lo());
      error = std::max(error, e);
      block_mu_lo = std::min(block_mu_lo, mu.lo());
      block_mu_hi = std::max(block_mu_hi, mu.hi());
      const double magnitude = std::max(std::fabs(mu.lo()), std::fabs(mu.hi()));
      if (magnitude >= most.mu) most.mu = magnitude, most.mu_row = i;
      most.raw_error = std::max(most.raw_error, e + row.operand_error);  // upward
      worst.visible = std::max(worst.visible, row.visible);
      worst.least_visible = std::min(worst.least_visible, row.visible);
      worst.value = std::min(worst.value, value);
    }
    worst.norm = norm;
    worst.exponent = Upper<Log2>(exponent);
    worst.mean_exponent = Lower<Log2>(mean_exponent);
    worst.exact_mean = Lower<Log2>(exact_mean);
    worst.reach = reach;
    worst.score_error = error;
    worst.mean_score_lo = mean;
    worst.mu = Interval(block_mu_lo, block_mu_hi);
    if (begin == 0) most.worst = worst;
    worsen(most.worst, worst);
    blocks_.push_back(worst);
  }
  RowScan largest;  // as above
  largest.norm = Interval(most.worst.norm);
  most.score_reach = reach_of(largest, most.worst.score_error).hi();
}

/// Open rows that exact evaluation does not reach, all of them, are bounded once more, by the ball
/// and the box of the keys, then by the balls of their blocks; those that are decided then are
/// dropped.
void PathBuilder::try_tighter_bounds(std::vector<std::size_t>& open, std::vector<Claim>& worst) {
  std::int64_t scores = 0;
  for (const std::size_t i : open) scores += cost(input(i));
  const bool all_in_reach = exact_evaluation_covers_rows() &&
                            std::cmp_less_equal(open.size(), c_.options.evaluate_rows) &&
                            scores <= c_.options.evaluate_scores;
  if (!c_.options.tighter_bounds || all_in_reach) return;
  KeyGeometry& keys = c_.geometry;
  std::int64_t balls_left = c_.options.evaluate_scores;  // each costs about as much as a score
  const auto is_decided = [&](std::size_t i) {
    const std::int64_t row = row_at(i);
    Upper<Log2> largest = keys.ball_or_box(row);
    RowInputs& in = tightened_[i];
    in = inputs_of(row, largest);
    RowFacts facts = bound(in);
    const std::int64_t balls = (in.visible + keys.blocks().size() - 1) / keys.blocks().size();
    if (!decided(facts) && balls <= balls_left) {
      balls_left -= balls;
      largest = tighter(largest, keys.block_balls(row));
      in = inputs_of(row, largest);
      facts = bound(in);
    }
    if (!decided(facts)) return false;
    worsen_claims(worst, row_claims(facts, in));
    return true;
  };
  std::erase_if(open, is_decided);
}

PathResult PathBuilder::build() {
  PathResult result;
  list_rows();
  summarise();

  // Bounds for every row; the rows they leave open, worst first. The sound policy's gate asks only
  // whether all rows hold.
  std::vector<Claim> worst;
  std::vector<std::size_t> open;
  if (c_.paths != nullptr && c_.paths->either > 0) {
    // what a row may fail depends on its path: one by one
    for (std::size_t i = 0; i < count_; ++i) {
      const RowInputs in = input(i);
      const RowFacts own = bound(in);
      if (decided(own)) {
        worsen_claims(worst, row_claims(own, in));
      } else {
        open.push_back(i);
      }
    }
  } else {
    const bool list_open = online_ || c_.options.policy != Policy::clis ||
                           c_.options.evaluate_rows > 0 || c_.options.tighter_bounds;
    worst = worst_claims(
        count_, likely_rows(),
        [&](std::size_t begin, std::size_t end) {
          const RowInputs in = end - begin == 1 ? input(begin) : worst_of(begin, end);
          return row_claims(bound(in), in);
        },
        list_open ? &open : nullptr);
  }
  if (!open.empty()) {
    try_tighter_bounds(open, worst);
    if (!tightened_.empty()) summarise();
  }
  std::vector<std::pair<double, std::size_t>> by_mean;
  for (const std::size_t i : open) by_mean.emplace_back(input(i).mean_exponent.value(), i);
  std::stable_sort(by_mean.begin(), by_mean.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::int64_t scores_left = c_.options.evaluate_scores;
  bool scores_are_tightened = false;
  for (const auto& [mean, i] : by_mean) {
    RowInputs in = input(i);
    const bool plain = exact_evaluation_covers_rows();
    if (plain && result.rows_evaluated < c_.options.evaluate_rows && cost(in) <= scores_left &&
        !std::isfinite(in.score_error) && tighten_scores(in.row)) {
      in = tightened_[i] = inputs_of(in.row);
      scores_are_tightened = true;
    }
    RowFacts facts = bound(in);
    if (plain && result.rows_evaluated < c_.options.evaluate_rows && cost(in) <= scores_left &&
        std::isfinite(in.score_error)) {
      const RowExecution run = execute(in, facts);
      refine(facts, in, run);
      ++result.rows_evaluated;
      scores_left -= cost(in);
    } else if (plain && result.rows_evaluated < c_.options.evaluate_rows &&
               cost(in) <= scores_left && facts.score_range.hi() > 0) {
      // scores that may overflow have no error bound; whether they do is another matter
      const RowExecution run =
          execute_row(c_.up, c_.head, c_.kernel, c_.operands, c_.scan, in.row, Interval(0.0), 0);
      facts.score_range =
          Interval(run.score_overflow_lo, std::max(facts.score_range.hi(), run.score_overflow_lo));
      ++result.rows_evaluated;
      scores_left -= cost(in);
    }
    if (!decided(facts)) ++result.rows_undecided;
    worsen_claims(worst, row_claims(facts, in));
  }
  if (scores_are_tightened) summarise();
  head_claims(result.claims, stabilizer_);
  if (split() && count_ > 0) merge_claims(result.claims);
  for (Claim& claim : worst) result.claims.push_back(std::move(claim));
  safe_ = conjunction(result.claims, false) == ClaimOutcome::holds;
  if (count_ > 0) output_claims(result.claims);
  return result;
}

PathResult fixed_path_claims(const PathContext& context, const FixedStabilizer& stabilizer) {
  return PathBuilder(context, &stabilizer).build();
}

PathResult online_path_claims(const PathContext& context) {
  return PathBuilder(context, nullptr).build();
}

std::vector<Claim> worse_of(const std::vector<Claim>& a, const std::vector<Claim>& b) {
  std::vector<Claim> worst = a;
  std::vector<bool> taken(a.size(), false);
  for (const Claim& claim : b) {
    std::size_t i = 0;
    while (i < a.size() && (taken[i] || !same_statement(a[i], claim))) ++i;
    if (i == a.size()) {
      worst.push_back(claim);
      continue;
    }
    taken[i] = true;
    worst[i] = worse(a[i], claim);
  }
  return worst;
}

}  // namespace headroom
