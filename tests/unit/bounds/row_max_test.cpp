// Upper bounds of a row's largest score, and the largest score itself, against exact rationals.
#include <gtest/gtest.h>

#include <boost/multiprecision/gmp.hpp>
#include <boost/multiprecision/mpfr.hpp>
#include <limits>
#include <span>
#include <string>

#include "bounds/norms.h"
#include "bounds/row_max/box.h"
#include "bounds/row_max/enclosing_ball.h"
#include "bounds/row_max/exact.h"
#include "bounds/row_max/key_blocks.h"
#include "tests/unit/bounds/key_families.h"

namespace headroom {
namespace {

using simulation::below;
using simulation::Keys;
using simulation::Random;
using Rational = boost::multiprecision::mpq_rational;
using Number = boost::multiprecision::mpfr_float_100;

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Instance {
  Head head;
  KernelModel kernel;
  Number factor;  ///< of the score, to 100 digits
  std::string who;
};

/// One head of keys and queries of a family; q and k of `format`.
Instance make_instance(Keys family, const Format& format, std::size_t n, std::size_t rows,
                       std::size_t d, Centring centring, MaskKind mask, int scale, Random& g) {
  Instance x;
  x.kernel.operand = format;
  x.kernel.centring.keys = centring;
  x.kernel.centring.difference = format;
  x.who = std::string(format.name) + ", family " + std::to_string(static_cast<int>(family)) +
          ", n " + std::to_string(n) + ", d " + std::to_string(d) + ", centring " +
          to_text(centring) + ", mask " + to_text(mask);
  const NearestRounding nearest;
  const std::vector<double> k = simulation::make_keys(family, format, n, d, g);
  const Keys of_queries =
      family == Keys::huge || family == Keys::subnormal ? family : Keys::gaussian;
  const std::vector<double> q = simulation::make_keys(of_queries, format, rows, d, g);
  const auto matrix = [&](const std::vector<double>& values, std::size_t count) {
    return Matrix::from_values(format, static_cast<std::int64_t>(count),
                               static_cast<std::int64_t>(d), values);
  };
  x.head.q = matrix(q, rows);
  x.head.k = x.head.v = matrix(k, n);
  x.head.stored_q = x.head.stored_k = x.head.stored_v = format;
  x.head.visibility = {mask, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(n),
                       static_cast<std::int64_t>(n)};
  x.head.scale = scale == 0   ? Scale::base2(1)
                 : scale == 1 ? Scale::base2(-3)
                              : Scale::reciprocal_sqrt(d);
  x.factor = scale == 0   ? Number(1)
             : scale == 1 ? Number(-3)
                          : 1 / log(Number(2)) / sqrt(Number(d));
  return x;
}

/// The largest exact score of a row over its visible keys, each anywhere in its enclosure.
Number largest_score(const Instance& x, const Operands& operands, std::int64_t row) {
  const auto d = static_cast<std::size_t>(operands.channels());
  std::vector<double> q(d), lo(d), hi(d);
  operands.query_row(row, q.data());
  bool first = true;
  Number most = -infinity;
  for (std::int64_t j = 0; j < x.head.visibility.visible(row).end; ++j) {
    operands.key_row(j, lo.data(), hi.data());
    Rational product = 0;
    for (std::size_t c = 0; c < d; ++c) {
      const Rational a = Rational(q[c]) * Rational(lo[c]), b = Rational(q[c]) * Rational(hi[c]);
      product += x.factor > 0 ? std::max(a, b) : std::min(a, b);
    }
    const Number score = x.factor * Number(product);
    if (first || score > most) most = score;
    first = false;
  }
  return most;
}

/// Every bound of every row, held against the exact maximum.
void expect_bounds_hold(const Instance& x) {
  const UpwardRounding up;
  const Operands operands(up, x.head, x.kernel);
  ASSERT_TRUE(operands.finite()) << x.who;
  const auto d = static_cast<std::size_t>(operands.channels());
  const std::int64_t n = operands.keys();
  std::vector<double> q(d), lo(d), hi(d);
  KeyBox box(operands.channels());
  for (std::int64_t j = 0; j < n; ++j) {
    operands.key_row(j, lo.data(), hi.data());
    box.add(lo, hi);
  }
  const KeyBlocks blocks(up, operands, n, 4), single(up, operands, n, 1);
  const EnclosingBall ball = enclosing_ball(
      up, [&](std::int64_t j, double* l, double* h) { operands.key_row(j, l, h); }, n,
      operands.channels());
  std::vector<VisibleRow> rows;
  for (std::int64_t i = 0; i < operands.queries(); ++i) {
    const KeyRange visible = x.head.visibility.visible(i);
    rows.push_back({i, {}});
    if (visible.count() > 0) rows.back().keys.push_back(visible);
  }
  const std::vector<RowMaximum> maxima = row_maxima(up, operands, rows);
  const Interval& factor = operands.score_factor();
  for (std::int64_t i = 0; i < operands.queries(); ++i) {
    const KeyRange visible = x.head.visibility.visible(i);
    const RowMaximum& most = maxima[static_cast<std::size_t>(i)];
    if (visible.count() == 0) {
      EXPECT_EQ(most.value.hi(), -infinity);
      EXPECT_EQ(most.key, -1);
      continue;
    }
    operands.query_row(i, q.data());
    const Upper<Absolute> q_norm = Upper<Absolute>::of(norm(up, q));
    const Number exact = largest_score(x, operands, i);
    const auto holds = [&](const char* bound, double value) {
      ASSERT_GE(Number(value), exact) << bound << ": " << x.who << ", row " << i;
    };
    holds("box", box_maximum(up, factor, q, box).value());
    const double by_blocks = block_ball_maximum(up, factor, q, q_norm, blocks, visible).value();
    holds("blocks", by_blocks);
    const double by_single = block_ball_maximum(up, factor, q, q_norm, single, visible).value();
    holds("blocks of one key", by_single);
    const Interval centre_score = factor * dot(up, q, ball.centre, ball.centre);
    holds("ball", cauchy_schwarz(up, factor, q_norm, ball.radius, centre_score).value());
    holds("exact", most.value.hi());
    ASSERT_LE(visible.begin, most.key);
    ASSERT_LT(most.key, visible.end);
    const RowMaximum alone = row_maximum(up, operands, i, visible.begin, visible.end);
    ASSERT_EQ(most.value.lo(), alone.value.lo()) << x.who;
    ASSERT_EQ(most.value.hi(), alone.value.hi()) << x.who;
    ASSERT_EQ(most.key, alone.key) << x.who;
    if (operands.keys_certain()) {
      ASSERT_LE(Number(most.value.lo()), exact) << x.who;
      // a ball of one key has no radius
      ASSERT_NEAR(by_single, most.value.hi(),
                  0x1p-48 * (1 + (abs(factor) * norm(up, q) * norm(up, box.lo(), box.hi())).hi()))
          << x.who;
    }
  }
}

TEST(RowMaximum, EveryBoundHoldsForEveryFamily) {
  Random g(11);
  int scale = 0;
  for (const Format& format : {fp32, fp16, bf16}) {
    for (const Keys family : simulation::key_families) {
      for (const std::size_t n : {1, 2, 5, 13}) {
        const std::size_t d = 1 + below(g, 9);
        expect_bounds_hold(
            make_instance(family, format, n, 3, d, Centring::none, MaskKind::none, scale++ % 3, g));
      }
    }
  }
}

TEST(RowMaximum, EveryBoundHoldsUnderMasksAndCentring) {
  Random g(12);
  for (const Keys family : {Keys::gaussian, Keys::shifted, Keys::clusters, Keys::outlier}) {
    for (const Centring centring : {Centring::none, Centring::mean, Centring::virtual_}) {
      for (const MaskKind mask : {MaskKind::causal, MaskKind::causal_bottom_right}) {
        for (const Format& format : {fp32, bf16}) {
          const std::size_t n = 9 + below(g, 4);
          const std::size_t rows = mask == MaskKind::causal ? n : n + 3;
          expect_bounds_hold(make_instance(family, format, n, rows, 1 + below(g, 6), centring, mask,
                                           static_cast<int>(below(g, 3)), g));
        }
      }
    }
  }
}

// One key: the box is the key, and the bound is the exact score rounded upward once an operation.
TEST(RowMaximum, BoxOfOneKeyIsItsScore) {
  Random g(13);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> q, k;
    {
      const NearestRounding nearest;
      q = simulation::make_keys(Keys::heavy_tailed, fp32, 1, 7, g);
      k = simulation::make_keys(Keys::heavy_tailed, fp32, 1, 7, g);
    }
    Rational exact = 0;
    for (std::size_t c = 0; c < 7; ++c) exact += Rational(q[c]) * Rational(k[c]);
    const UpwardRounding up;
    KeyBox box(7);
    box.add(k, k);
    const double bound = box_maximum(up, Interval(1.0), q, box).value();
    EXPECT_GE(Rational(bound), exact);
    EXPECT_LE(bound, static_cast<double>(exact) + 0x1p-44 * norm(up, q).hi() * norm(up, k).hi());
  }
}

// Keys (-+1, -+1), q = (2, -3): every channel counts with its own end. Negative factors swap them.
TEST(RowMaximum, BoxTakesTheCornerOnTheSideOfQ) {
  const UpwardRounding up;
  const std::vector<double> q = {2, -3};
  KeyBox box(2);
  EXPECT_EQ(box_maximum(up, Interval(1.0), q, box).value(), -infinity);
  const std::vector<double> a = {1, 5}, b = {-1, 4};
  box.add(a, a);
  box.add(b, b);
  EXPECT_EQ(box_maximum(up, Interval(1.0), q, box).value(), 2 * 1 - 3 * 4);
  EXPECT_EQ(box_maximum(up, Interval(-1.0), q, box).value(), -(2 * -1 - 3 * 5));
  EXPECT_EQ(box_maximum(up, Interval(-1.0, 1.0), q, box).value(), 17);
}

// Two tight clusters, in blocks of their own: the ball of all keys is wide, those of blocks are
// not.
TEST(RowMaximum, BlocksOfAlikeKeysAreTight) {
  Random g(14);
  Instance x = make_instance(Keys::equal, bf16, 8, 1, 4, Centring::none, MaskKind::none, 0, g);
  std::vector<double> k(8 * 4);
  for (std::size_t j = 0; j < 8; ++j) k[j * 4 + (j < 4 ? 0 : 1)] = 64;
  x.head.k = Matrix::from_values(bf16, 8, 4, k);
  x.head.q = Matrix::from_values(bf16, 1, 4, {1, 1, 0, 0});
  const UpwardRounding up;
  const Operands operands(up, x.head, x.kernel);
  const std::vector<double> q = {1, 1, 0, 0};
  const Upper<Absolute> q_norm = Upper<Absolute>::of(norm(up, q));
  const auto bound = [&](std::int64_t size, const KeyRange& visible) {
    return block_ball_maximum(up, Interval(1.0), q, q_norm, KeyBlocks(up, operands, 8, size),
                              visible)
        .value();
  };
  EXPECT_EQ(bound(4, {0, 8}), 64);
  EXPECT_EQ(bound(4, {0, 0}), -infinity);
  EXPECT_GT(bound(8, {0, 8}), 64 + 60);
  EXPECT_GT(bound(3, {0, 8}), 64);
  EXPECT_EQ(bound(3, {0, 3}), 64);  // the block that holds both clusters is not seen
  EXPECT_GT(bound(3, {0, 4}), 64);  // one of its keys is
  EXPECT_EQ(bound(3, {7, 8}), 64);
}

// Keys in runs, within tiles and across their edges, against the same keys one by one.
TEST(RowMaximum, RunsOfKeys) {
  Random g(16);
  const Instance x =
      make_instance(Keys::gaussian, bf16, 300, 4, 3, Centring::none, MaskKind::none, 2, g);
  const UpwardRounding up;
  const Operands operands(up, x.head, x.kernel);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<VisibleRow> rows;
    for (std::int64_t i = 0; i < 4; ++i) {
      rows.push_back({i, {}});
      std::int64_t at = static_cast<std::int64_t>(below(g, 150));
      while (at < 300) {
        const std::int64_t end = std::min<std::int64_t>(300, at + 1 + below(g, i == 0 ? 3 : 200));
        rows.back().keys.push_back({at, end});
        at = end + 1 + static_cast<std::int64_t>(below(g, i == 1 ? 2 : 90));
      }
    }
    const std::vector<RowMaximum> maxima = row_maxima(up, operands, rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      Interval most(-infinity, -infinity);
      std::int64_t key = -1;
      for (const KeyRange& run : rows[i].keys) {
        for (std::int64_t j = run.begin; j < run.end; ++j) {
          const Interval score = row_maximum(up, operands, rows[i].row, j, j + 1).value;
          if (key < 0 || score.hi() > most.hi()) key = j;
          most = max(most, score);
        }
      }
      EXPECT_EQ(maxima[i].value.lo(), most.lo());
      EXPECT_EQ(maxima[i].value.hi(), most.hi());
      EXPECT_EQ(maxima[i].key, key);
    }
  }
}

// The radius about a block's centre is rounded upward.
TEST(RowMaximum, BlockRadiiHoldTheirKeys) {
  Random g(15);
  for (const Keys family : simulation::key_families) {
    const Instance x = make_instance(family, bf16, 23, 1, 5, Centring::none, MaskKind::none, 0, g);
    const UpwardRounding up;
    const Operands operands(up, x.head, x.kernel);
    const KeyBlocks blocks(up, operands, 23, 5);
    ASSERT_EQ(blocks.count(), 5);
    std::vector<double> key(5), hi(5);
    for (std::int64_t j = 0; j < 23; ++j) {
      operands.key_row(j, key.data(), hi.data());
      Rational square = 0;
      for (std::size_t c = 0; c < 5; ++c) {
        const Rational off = Rational(key[c]) - Rational(blocks.centre(j / 5)[c]);
        square += off * off;
      }
      const Rational radius(blocks.radius(j / 5).value());
      EXPECT_LE(square, radius * radius) << x.who << ", key " << j;
    }
  }
}

}  // namespace
}  // namespace headroom
