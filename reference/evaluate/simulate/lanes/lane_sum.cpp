#include "reference/evaluate/simulate/lanes/lane_sum.h"

#include <algorithm>

namespace headroom {

LaneStageChoice::LaneStageChoice(const LaneKernels& kernels, const Accumulator& accumulator,
                                 Products products)
    : loops(&kernels.stage(accumulator.format, accumulator.flush_to_zero, products)),
      flush_scope(accumulator.format == fp32 && accumulator.flush_to_zero) {}

void LaneSum::start(const LaneStageChoice& stage, const AccumulationOrder& order,
                    std::int64_t channels, std::int64_t stride, float initial) {
  stage_ = stage;
  order_ = order;
  channels_ = channels;
  stride_ = stride;
  run_.assign(static_cast<std::size_t>(size()), initial);
  in_tile_ = next_lane_ = 0;
  started_ = false;
  if (order_.kind == OrderKind::tile) {
    tile_.resize(run_.size());
    empty_.assign(static_cast<std::size_t>(stride_), 0.0F);
  }
}

void LaneSum::scale(const float* factor) {
  if (std::all_of(factor, factor + stride_, [](float x) { return x == 1; })) return;
  const StageScope scope(stage_.flush_scope);
  if (started_) {
    stage_.loops->scale(lanes_.data(), order_.size * channels_, stride_, factor);
    return;
  }
  stage_.loops->scale(run_.data(), channels_, stride_, factor);
  if (order_.kind != OrderKind::tile) return;
  if (in_tile_ > 0) {
    stage_.loops->scale(tile_.data(), channels_, stride_, factor);
  } else {
    stage_.loops->scale(empty_.data(), 1, stride_, factor);
  }
}

/// add(first, terms, step, start, start_stride, sum, join) for each chain of the next n terms.
template <typename Add>
void LaneSum::in_order(std::int64_t n, const Add& add) {
  const StageScope scope(stage_.flush_scope);
  switch (order_.kind) {
    case OrderKind::tile:
      for (std::int64_t i = 0; i < n;) {
        const std::int64_t take = std::min<std::int64_t>(n - i, order_.size - in_tile_);
        const bool completes = in_tile_ + take == order_.size;
        const bool first = in_tile_ == 0;
        add(i, take, 1, first ? empty_.data() : tile_.data(), first ? 0 : stride_,
            completes ? run_.data() : tile_.data(), completes);
        in_tile_ = completes ? 0 : in_tile_ + take;
        if (completes) std::fill(empty_.begin(), empty_.end(), 0.0F);
        i += take;
      }
      return;
    case OrderKind::lanes:
      if (!started_) {
        lanes_.assign(static_cast<std::size_t>(order_.size * size()), 0.0F);
        std::copy(run_.begin(), run_.end(), lanes_.begin());
        started_ = true;
      }
      for (std::int64_t i = 0; i < std::min<std::int64_t>(n, order_.size); ++i) {
        float* lane = &lanes_[static_cast<std::size_t>((next_lane_ + i) % order_.size * size())];
        add(i, (n - i + order_.size - 1) / order_.size, order_.size, lane, stride_, lane, false);
      }
      next_lane_ = (next_lane_ + n) % order_.size;
      return;
    default:
      add(0, n, 1, run_.data(), stride_, run_.data(), false);
  }
}

void LaneSum::add(const float* p, const float* v, std::int64_t v_stride, std::int64_t n) {
  ProductArgs args;
  args.channels = channels_;
  args.stride = stride_;
  args.v_stride = v_stride;
  in_order(n, [&](std::int64_t first, std::int64_t terms, std::int64_t step, const float* start,
                  std::int64_t start_stride, float* sum, bool join) {
    args.start = start;
    args.start_stride = start_stride;
    args.sum = sum;
    args.join = join;
    args.p = p + first * stride_;
    args.v = v + first * v_stride;
    args.terms = terms;
    args.step = step;
    if (stage_.unit.size > 0) {
      stage_.matrix_products(stage_.unit, args);
    } else {
      stage_.loops->products(args);
    }
  });
}

void LaneSum::add(const float* p, std::int64_t n, float least) {
  TermArgs args;
  args.stride = stride_;
  args.least = least;
  in_order(n, [&](std::int64_t first, std::int64_t terms, std::int64_t step, const float* start,
                  std::int64_t, float* sum, bool join) {
    args.start = start;
    args.sum = sum;
    args.join = join;
    args.p = p + first * stride_;
    args.terms = terms;
    args.step = step;
    stage_.loops->terms(args);
  });
}

void LaneSum::total(float* sums) const {
  const StageScope scope(stage_.flush_scope);
  if (started_) {
    std::copy(lanes_.begin(), lanes_.begin() + size(), sums);
    for (std::int64_t lane = 1; lane < order_.size; ++lane) {
      stage_.loops->add(sums, &lanes_[static_cast<std::size_t>(lane * size())], sums, size());
    }
  } else if (order_.kind == OrderKind::tile && in_tile_ > 0) {
    stage_.loops->add(run_.data(), tile_.data(), sums, size());
  } else {
    std::copy(run_.begin(), run_.end(), sums);
  }
}

}  // namespace headroom
