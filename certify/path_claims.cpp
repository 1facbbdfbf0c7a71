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
  worst.reach = std::max(worst.reach, in.reach);
  worst.bias_reach = std::max(worst.bias_reach, in.bias_reach);
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

/// Inputs whose bounds hold for every row of inputs_[begin, end): each bound is monotone in each.
RowInputs PathBuilder::worst_of(std::size_t begin, std::size_t end) const {
  RowInputs worst = inputs_[begin];
  for (std::size_t i = begin; i < end;) {
    const bool whole = i % block == 0 && (i + block <= end || end == inputs_.size());
    worsen(worst, whole ? blocks_[i / block] : inputs_[i]);
    i += whole ? block : 1;
  }
  return worst;
}

/// The worst of each block of rows, the rows that are extreme in one input, and what the claims
/// over the whole head are made from.
void PathBuilder::summarise() {
  blocks_.clear();
  extremes_ = {};
  Extremes& most = extremes_;
  double own_error = 0;  // of a row's scores, without what online softmax adds
  for (std::size_t at = 0; at < inputs_.size(); ++at) {
    const RowInputs& in = inputs_[at];
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
    const double mu = in.mu.magnitude();
    if (mu >= most.mu) {
      most.mu = mu;
      most.mu_row = in.row;
    }
    const RowScan& row = c_.scan.rows[static_cast<std::size_t>(in.row)];
    const double raw = in.score_error + row.operand_error;  // upward
    if (raw > most.raw_error) most.raw_error = raw;
    own_error = std::max(own_error, row_error(row));
    worsen(most.worst, in);
  }
  if (inputs_.empty()) return;
  // the bound of |z^| is monotone in the norm, the error and the bias
  RowScan largest;
  largest.norm = Interval(most.worst.norm);
  largest.bias.largest = most.worst.bias_reach;
  most.score_reach = reach_of(largest, own_error).hi();
}

/// Open rows that exact evaluation does not reach, all of them, are bounded once more, by the ball
/// and the box of the keys, then by the balls of their blocks; those that are decided then are
/// dropped.
void PathBuilder::try_tighter_bounds(std::vector<std::size_t>& open, std::vector<Claim>& worst,
                                     const FixedStabilizer* stabilizer) {
  std::int64_t scores = 0;
  for (const std::size_t i : open) scores += cost(inputs_[i]);
  const bool all_in_reach = exact_evaluation_covers_rows() &&
                            std::cmp_less_equal(open.size(), c_.options.evaluate_rows) &&
                            scores <= c_.options.evaluate_scores;
  if (!c_.options.tighter_bounds || all_in_reach) return;
  KeyGeometry& keys = c_.geometry;
  std::int64_t balls_left = c_.options.evaluate_scores;  // each costs about as much as a score
  const auto is_decided = [&](std::size_t i) {
    const std::int64_t row = inputs_[i].row;
    Upper<Log2> largest = keys.ball_or_box(row);
    inputs_[i] = inputs_of(row, stabilizer, largest);
    RowFacts facts = bound(inputs_[i]);
    const std::int64_t balls =
        (inputs_[i].visible + keys.blocks().size() - 1) / keys.blocks().size();
    if (!decided(facts) && balls <= balls_left) {
      balls_left -= balls;
      largest = tighter(largest, keys.block_balls(row));
      inputs_[i] = inputs_of(row, stabilizer, largest);
      facts = bound(inputs_[i]);
    }
    if (!decided(facts)) return false;
    worsen_claims(worst, row_claims(facts, inputs_[i]));
    return true;
  };
  std::erase_if(open, is_decided);
}

PathResult PathBuilder::build(const FixedStabilizer* stabilizer) {
  PathResult result;
  const auto rows = static_cast<std::int64_t>(c_.scan.rows.size());
  inputs_.reserve(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < rows; ++i) {
    if (c_.scan.rows[static_cast<std::size_t>(i)].visible == 0) continue;
    if (c_.paths != nullptr &&
        c_.paths->of[static_cast<std::size_t>(i)] == (online_ ? RowPath::fixed : RowPath::online)) {
      continue;
    }
    inputs_.push_back(inputs_of(i, stabilizer));
  }

  summarise();

  // Bounds for every row; the rows they leave open, worst first. The sound policy's gate asks only
  // whether all rows hold.
  std::vector<Claim> worst;
  std::vector<std::size_t> open;
  if (c_.paths != nullptr && c_.paths->either > 0) {
    // what a row may fail depends on its path: one by one
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const RowFacts own = bound(inputs_[i]);
      if (decided(own)) {
        worsen_claims(worst, row_claims(own, inputs_[i]));
      } else {
        open.push_back(i);
      }
    }
  } else {
    const bool list_open = online_ || c_.options.policy != Policy::clis ||
                           c_.options.evaluate_rows > 0 || c_.options.tighter_bounds;
    worst = worst_claims(
        inputs_.size(), likely_rows(),
        [&](std::size_t begin, std::size_t end) {
          const RowInputs in = end - begin == 1 ? inputs_[begin] : worst_of(begin, end);
          return row_claims(bound(in), in);
        },
        list_open ? &open : nullptr);
  }
  if (!open.empty()) {
    try_tighter_bounds(open, worst, stabilizer);
    summarise();
  }
  std::sort(open.begin(), open.end(), [&](std::size_t a, std::size_t b) {
    return inputs_[a].mean_exponent.value() < inputs_[b].mean_exponent.value();
  });
  std::int64_t scores_left = c_.options.evaluate_scores;
  for (const std::size_t i : open) {
    const RowInputs& in = inputs_[i];
    RowFacts facts = bound(in);
    const bool plain = exact_evaluation_covers_rows();
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
  head_claims(result.claims, stabilizer);
  if (split() && !inputs_.empty()) merge_claims(result.claims);
  for (Claim& claim : worst) result.claims.push_back(std::move(claim));
  if (!inputs_.empty()) output_claims(result.claims);
  return result;
}

PathResult fixed_path_claims(const PathContext& context, const FixedStabilizer& stabilizer) {
  return PathBuilder(context, false).build(&stabilizer);
}

PathResult online_path_claims(const PathContext& context) {
  return PathBuilder(context, true).build(nullptr);
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
