#include "reference/evaluate/simulate/running_sum.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "reference/evaluate/simulate/matrix_unit.h"

namespace headroom {
namespace {

/// Balanced tree over the pool, left to right.
double tree(const Stage& stage, std::vector<double> pool) {
  if (pool.empty()) return 0;
  if (pool.size() == 1) return stage.round(pool[0]);
  while (pool.size() > 1) {
    std::size_t out = 0;
    for (std::size_t i = 0; i < pool.size(); i += 2) {
      pool[out++] = i + 1 < pool.size() ? stage.add(pool[i], pool[i + 1]) : pool[i];
    }
    pool.resize(out);
  }
  return pool[0];
}

double random_tree(const Stage& stage, std::vector<double> pool, std::mt19937_64& random) {
  if (pool.empty()) return 0;
  if (pool.size() == 1) return stage.round(pool[0]);
  while (pool.size() > 1) {
    std::swap(pool[random() % pool.size()], pool.back());
    const double x = pool.back();
    pool.pop_back();
    double& y = pool[random() % pool.size()];
    y = stage.add(x, y);
  }
  return pool[0];
}

}  // namespace

double RunningSum::term(const SumRule& rule, double a, double b) const {
  return rule.unit.rounded_products ? rule.stage.multiply(a, b) : a * b;
}

double RunningSum::joined(const SumRule& rule, double sum, double term) {
  const double next = rule.stage.add(sum, term);
  if (next == sum && term != 0 && sum != 0) absorbed_ += std::fabs(term);
  return next;
}

/// start + a[0] b[0] + ..., in the free order.
double RunningSum::chain(const SumRule& rule, double start, const float* a, const float* b,
                         std::int64_t n, std::mt19937_64& random) {
  const auto product = [&](std::int64_t i) {
    return term(rule, a[i], b == nullptr ? 1.0 : static_cast<double>(b[i]));
  };
  if (rule.free == FreeOrder::ascending) {
    for (std::int64_t i = 0; i < n; ++i) start = joined(rule, start, product(i));
    return start;
  }
  if (rule.free == FreeOrder::descending) {
    for (std::int64_t i = n; i-- > 0;) start = joined(rule, start, product(i));
    return start;
  }
  std::vector<double> pool;
  pool.reserve(static_cast<std::size_t>(n) + 1);
  for (std::int64_t i = 0; i < n; ++i) pool.push_back(product(i));
  if (rule.free == FreeOrder::pairwise) return joined(rule, start, tree(rule.stage, pool));
  pool.push_back(start);
  return random_tree(rule.stage, std::move(pool), random);
}

void RunningSum::add(const SumRule& rule, const float* a, const float* b, std::int64_t n,
                     std::mt19937_64& random) {
  const AccumulationOrder& order = rule.unit.order;
  const auto product = [&](std::int64_t i) {
    return term(rule, a[i], b == nullptr ? 1.0 : static_cast<double>(b[i]));
  };
  switch (order.kind) {
    case OrderKind::sequential:
      for (std::int64_t i = 0; i < n; ++i) run_ = joined(rule, run_, product(i));
      return;
    case OrderKind::any:
      run_ = chain(rule, run_, a, b, n, random);
      return;
    case OrderKind::tile:
      for (std::int64_t i = 0; i < n;) {
        const std::int64_t take = std::min<std::int64_t>(n - i, order.size - in_tile_);
        tile_ = chain(rule, tile_, a + i, b == nullptr ? nullptr : b + i, take, random);
        in_tile_ += take;
        i += take;
        if (in_tile_ == order.size) {
          run_ = joined(rule, run_, tile_);
          tile_ = 0;
          in_tile_ = 0;
        }
      }
      return;
    case OrderKind::lanes:
      if (lanes_.empty()) {
        lanes_.assign(static_cast<std::size_t>(order.size), 0.0);
        lanes_[0] = run_;
      }
      for (std::int64_t i = 0; i < n; ++i) {
        double& lane = lanes_[static_cast<std::size_t>(next_lane_)];
        lane = joined(rule, lane, product(i));
        next_lane_ = next_lane_ + 1 == order.size ? 0 : next_lane_ + 1;
      }
      return;
    case OrderKind::pairwise:
      if (!started_ && run_ != 0) levels_.emplace_back(run_, 1);
      started_ = true;
      for (std::int64_t i = 0; i < n; ++i) {
        levels_.emplace_back(rule.stage.round(product(i)), 1);
        while (levels_.size() > 1 && levels_.back().second == levels_[levels_.size() - 2].second) {
          const auto last = levels_.back();
          levels_.pop_back();
          levels_.back().first = joined(rule, levels_.back().first, last.first);
          levels_.back().second += last.second;
        }
      }
      return;
    case OrderKind::matrix_unit:
      for (std::int64_t i = 0; i < n; i += order.size) {
        const std::int64_t take = std::min<std::int64_t>(n - i, order.size);
        std::vector<float> ones;
        const float* factors = b == nullptr ? nullptr : b + i;
        if (factors == nullptr) {
          ones.assign(static_cast<std::size_t>(take), 1.0F);
          factors = ones.data();
        }
        double next = matrix_unit_step(order.fraction_bits, a + i, factors, take,
                                       static_cast<float>(run_), rule.a_emin, rule.b_emin);
        if (rule.unit.flush_to_zero && std::fabs(next) < 0x1p-126) next = std::copysign(0.0, next);
        if (next == run_ && run_ != 0) {
          for (std::int64_t j = 0; j < take; ++j) {
            absorbed_ += std::fabs(static_cast<double>(a[i + j]) * static_cast<double>(factors[j]));
          }
        }
        run_ = next;
      }
      return;
  }
}

void RunningSum::scale(const SumRule& rule, double factor) {
  if (factor == 1) return;
  const auto apply = [&](double& x) { x = rule.stage.multiply(x, factor); };
  apply(run_);
  apply(tile_);
  for (double& lane : lanes_) apply(lane);
  for (auto& level : levels_) apply(level.first);
  absorbed_ *= factor;
}

double RunningSum::total(const SumRule& rule, std::mt19937_64& random) const {
  switch (rule.unit.order.kind) {
    case OrderKind::tile:
      return in_tile_ == 0 ? run_ : rule.stage.add(run_, tile_);
    case OrderKind::lanes: {
      if (lanes_.empty()) return run_;
      std::vector<double> pool = lanes_;
      if (rule.free == FreeOrder::random) return random_tree(rule.stage, std::move(pool), random);
      if (rule.free == FreeOrder::pairwise) return tree(rule.stage, std::move(pool));
      if (rule.free == FreeOrder::descending) std::reverse(pool.begin(), pool.end());
      double sum = pool[0];
      for (std::size_t i = 1; i < pool.size(); ++i) sum = rule.stage.add(sum, pool[i]);
      return sum;
    }
    case OrderKind::pairwise: {
      if (levels_.empty()) return run_;
      double sum = levels_.back().first;
      for (std::size_t i = levels_.size() - 1; i-- > 0;) {
        sum = rule.stage.add(levels_[i].first, sum);
      }
      return sum;
    }
    default:
      return run_;
  }
}

}  // namespace headroom
