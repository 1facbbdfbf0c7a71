// Each generator has what it is named after: by its scores in binary64, and by gate_value, which
// aim_test.cpp holds against rationals.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "fuzz/generate.h"
#include "reference/format/convert.h"
#include "reference/real/fp_environment.h"
#include "tests/unit/fuzz/marks.h"

namespace headroom::fuzz {
namespace {

using Scores = std::vector<double>;  ///< of one row, log2 units

Scores scores_of(const Landmarks& marks, const Candidate& c, std::int64_t row) {
  Scores z;
  for (std::int64_t j = 0; j < c.length(); ++j) {
    double sum = 0;
    for (std::int64_t ch = 0; ch < c.shape.channels; ++ch) {
      sum += static_cast<double>(c.query(row)[ch]) * static_cast<double>(c.key(j)[ch]);
    }
    z.push_back(marks.factor * sum);
  }
  return z;
}
double largest(const Scores& z) { return *std::max_element(z.begin(), z.end()); }
double least(const Scores& z) { return *std::min_element(z.begin(), z.end()); }
double mean(const Scores& z) {
  double sum = 0;
  for (const double x : z) sum += x;
  return sum / static_cast<double>(z.size());
}
double gate(const Landmarks& marks, const Candidate& c) {
  return gate_value(marks, c, marks.centred ? Centre::mean : Centre::none);
}

struct Tally {
  int of = 0, met = 0;
};
/// In how many of 200 heads of a generator something holds.
Tally count(std::string_view name, const Landmarks& marks, const Shape& shape,
            const std::function<bool(const Candidate&)>& holds) {
  Tally run;
  for (const Generator& g : generators()) {
    if (g.name != name) continue;
    for (std::uint64_t seed = 0; seed < 200; ++seed, ++run.of) {
      Random random(seed);
      Candidate c = make_candidate(shape);
      g.fill(random, marks, c);
      round_operands(c, marks.operand);
      if (holds(c)) ++run.met;
    }
  }
  EXPECT_EQ(run.of, 200) << name;
  return run;
}

const Shape small = {2, 16, 4, 2};

TEST(Structure, Constant) {
  const Landmarks flash = test::all_marks()[1].marks;
  EXPECT_EQ(count("constant", flash, small,
                  [](const Candidate& c) {
                    return std::set<float>(c.q.begin(), c.q.end()).size() == 1 &&
                           std::set<float>(c.k.begin(), c.k.end()).size() == 1;
                  })
                .met,
            200);
  EXPECT_GT(count("constant", flash, small,
                  [](const Candidate& c) { return c.q[0] == 133120 && c.k[0] == 133120; })
                .met,
            3);
}

TEST(Structure, EqualKeys) {
  const Landmarks marks = test::released();
  EXPECT_EQ(
      count("equal-keys", marks, small, [&](const Candidate& c) { return gate(marks, c) == 0; })
          .met,
      200);
}

TEST(Structure, NarrowGrid) {
  const Landmarks marks = test::released();
  EXPECT_EQ(count("narrow-grid", marks, small,
                  [](const Candidate& c) {
                    const auto [lo, hi] = std::minmax_element(c.k.begin(), c.k.end());
                    return std::fabs(*lo) >= 0.9F &&
                           std::fabs(*hi - *lo) <= 4.5 * 0x1p-7 * std::fabs(*lo);
                  })
                .met,
            200);
  // the released gate takes it by the norms it sees, and every score is far below 0
  EXPECT_GT(count("narrow-grid", marks, small,
                  [&](const Candidate& c) {
                    const double seen = gate_value(marks, c, Centre::rounded_mean);
                    Candidate lower = c;  // by what the rounded mean leaves
                    float base = *std::min_element(c.k.begin(), c.k.end());
                    for (float& x : lower.k) x -= base;
                    return seen <= 213 && seen > 150 && largest(scores_of(marks, lower, 0)) < -60;
                  })
                .met,
            10);
}

TEST(Structure, Orthogonal) {
  const Landmarks marks = test::released();
  EXPECT_EQ(count("orthogonal", marks, small,
                  [&](const Candidate& c) {
                    const Scores z = scores_of(marks, c, 0);
                    return largest(z) == 0 && least(z) == 0;
                  })
                .met,
            200);
  EXPECT_GT(count("orthogonal", marks, small,
                  [&](const Candidate& c) {
                    const double value = gate(marks, c);
                    return value <= 213 && value > 210;
                  })
                .met,
            50);
}

TEST(Structure, AlignedAndAntiAligned) {
  for (const bool against : {false, true}) {
    const Landmarks marks = test::all_marks()[1].marks;
    const double sign = against ? -1 : 1;
    EXPECT_GT(count(against ? "anti-aligned" : "aligned", marks, small,
                    [&](const Candidate& c) {  // one score as far as norms let it be
                      const Scores z = scores_of(marks, c, 0);
                      return sign * (against ? least(z) : largest(z)) > 0.85 * gate(marks, c);
                    })
                  .met,
              60);
    EXPECT_GT(count(against ? "anti-aligned" : "aligned", marks, small,
                    [&](const Candidate& c) { return sign * mean(scores_of(marks, c, 0)) > 0; })
                  .met,
              150);
  }
}

TEST(Structure, TwoLevelBehindTheGate) {
  const Landmarks marks = test::released();
  EXPECT_EQ(count("two-level", marks, small,
                  [&](const Candidate& c) {
                    const Scores z = scores_of(marks, c, 0);
                    return std::set<double>(z.begin(), z.end()).size() <= 2;
                  })
                .met,
            200);
  // the gate just met, the lower level just flushed and the upper one not: mu = ceil(value) - 88
  EXPECT_GT(count("two-level", marks, small,
                  [&](const Candidate& c) {
                    const double value = gate(marks, c), mu = std::ceil(value) - 88;
                    const Scores z = scores_of(marks, c, 0);
                    return value <= 213 && value > 211 && least(z) - mu < -126 &&
                           least(z) - mu > -130 && largest(z) - mu > -126;
                  })
                .met,
            30);
}

TEST(Structure, MultiLevel) {
  const Landmarks marks = test::released();
  const Tally run = count("multi-level", marks, {2, 64, 4, 2}, [&](const Candidate& c) {
    const Scores z = scores_of(marks, c, 0);
    const std::size_t levels = std::set<double>(z.begin(), z.end()).size();
    return levels >= 3 && levels <= 6;
  });
  EXPECT_GT(run.met, 100);
}

TEST(Structure, FarRows) {
  const Landmarks marks = test::all_marks()[1].marks;
  for (const double wish : {-120.0, -5e4, -524288.0}) {
    EXPECT_GT(count("far-rows", marks, small,
                    [&](const Candidate& c) {
                      const Scores z = scores_of(marks, c, 0);
                      return std::fabs(largest(z) / wish - 1) < 0.02;
                    })
                  .met,
              3)
        << wish;
  }
}

TEST(Structure, CreepingMaximum) {
  const Landmarks marks = test::all_marks()[2].marks;  // tiles of 16, threshold 4
  Landmarks precise = marks;
  precise.operand = bf16;
  int under = 0, over = 0;
  count("creeping-maximum", precise, {2, 64, 4, 2}, [&](const Candidate& c) {
    const Scores z = scores_of(precise, c, 0);
    for (std::size_t t = 1; t < 4; ++t) {
      const double before = largest({z.begin(), z.begin() + static_cast<std::ptrdiff_t>(t * 16)});
      const double now = largest({z.begin() + static_cast<std::ptrdiff_t>(t * 16),
                                  z.begin() + static_cast<std::ptrdiff_t>(t * 16 + 16)});
      if (now - before > 3.5 && now - before <= 4) ++under;
      if (now - before > 4 && now - before < 4.6) ++over;
    }
    return true;
  });
  EXPECT_GT(under, 50);
  EXPECT_GT(over, 20);
}

TEST(Structure, OpposedRows) {
  Landmarks marks = test::all_marks()[2].marks;
  marks.operand = bf16;
  EXPECT_GT(count("opposed-rows", marks, {2, 64, 4, 2},
                  [&](const Candidate& c) {
                    // tile by tile: one row's maximum falls by far, the other's rises
                    const auto tile = [&](std::int64_t row, std::size_t t) {
                      const Scores z = scores_of(marks, c, row);
                      return largest({z.begin() + static_cast<std::ptrdiff_t>(t * 16),
                                      z.begin() + static_cast<std::ptrdiff_t>(t * 16 + 16)});
                    };
                    for (std::size_t t = 1; t < 4; ++t) {
                      const double falls = tile(0, t - 1) - tile(0, t);
                      const double rises = tile(1, t) - tile(1, t - 1);
                      if (falls > 60 && rises > 4) return true;
                    }
                    return false;
                  })
                .met,
            100);
}

TEST(Structure, HotAndTails) {
  const Landmarks marks = test::all_marks()[1].marks;
  const auto tail = [&](const Candidate& c) {
    Scores z = scores_of(marks, c, 0);
    std::sort(z.begin(), z.end());
    return z.front() == z[z.size() - 3] ? z.back() - z.front() : 0;  // one or two are hot
  };
  EXPECT_GT(
      count("hot-and-tails", marks, {2, 128, 4, 2}, [&](const Candidate& c) { return tail(c) > 0; })
          .met,
      150);
  EXPECT_GT(count("hot-and-tails", marks, {2, 128, 4, 2},
                  [&](const Candidate& c) { return std::fabs(tail(c) - 7) < 0.05; })
                .met,
            20);
}

TEST(Structure, DuplicateMaxima) {
  const Landmarks marks = test::all_marks()[1].marks;
  EXPECT_GT(count("duplicate-maxima", marks, small,
                  [&](const Candidate& c) {
                    const Scores z = scores_of(marks, c, 0);
                    return std::count(z.begin(), z.end(), largest(z)) >= 2;
                  })
                .met,
            120);
}

TEST(Structure, SinkKey) {
  const Landmarks marks = test::all_marks()[1].marks;
  EXPECT_GT(count("sink-key", marks, small,
                  [&](const Candidate& c) {
                    Scores z = scores_of(marks, c, 0);
                    const double first = z[0];
                    z.erase(z.begin());
                    return first > largest(z) + 10;
                  })
                .met,
            80);
}

TEST(Structure, CausalPrefix) {
  const Landmarks marks = test::released();
  EXPECT_GT(count("causal-prefix", marks, small,
                  [&](const Candidate& c) {
                    const Scores z = scores_of(marks, c, 0);
                    return gate(marks, c) <= 213 && z[0] < -90 &&
                           std::fabs(mean(z)) < 0.05 * std::fabs(z[0]);
                  })
                .met,
            30);
}

TEST(Structure, FlushEdge) {
  const Landmarks marks = test::all_marks()[1].marks;  // L = -149 below a maximum of 0
  const auto near = [&](const Candidate& c, double from, double to) {
    const Scores z = scores_of(marks, c, 0);
    const double top = largest(z);
    return std::any_of(z.begin(), z.end(),
                       [&](double x) { return x - top >= from && x - top <= to; });
  };
  EXPECT_GT(count("flush-edge", marks, small,
                  [&](const Candidate& c) { return near(c, -149, -147) && near(c, -151, -149); })
                .met,
            50);
}

TEST(Structure, UnevenParts) {
  const Landmarks marks = test::all_marks()[3].marks;  // two parts
  EXPECT_GT(count("uneven-parts", marks, small,
                  [&](const Candidate& c) {
                    const Scores z = scores_of(marks, c, 0);
                    const Scores a(z.begin(), z.begin() + 8), b(z.begin() + 8, z.end());
                    return std::fabs(largest(a) - largest(b)) > 85;
                  })
                .met,
            60);
}

/// Score of a block's signed abs-max key, and of its best real one.
std::pair<double, double> block_scores(const Landmarks& marks, const Candidate& c,
                                       std::int64_t begin, std::int64_t end) {
  double made_up = 0;
  for (std::int64_t ch = 0; ch < c.shape.channels; ++ch) {
    float best = 0;
    for (std::int64_t j = begin; j < end; ++j) {
      if (std::fabs(c.key(j)[ch]) > std::fabs(best)) best = c.key(j)[ch];
    }
    made_up += static_cast<double>(c.query(0)[ch]) * static_cast<double>(best);
  }
  const Scores z = scores_of(marks, c, 0);
  return {marks.factor * made_up, largest({z.begin() + begin, z.begin() + end})};
}

TEST(Structure, BlockExtremesAndHiddenKey) {
  Landmarks marks = test::all_marks()[1].marks;
  marks.flush = -126;
  marks.key_block = 8;
  const Shape shape = {2, 32, 4, 2};
  EXPECT_GT(count("block-extremes", marks, shape,
                  [&](const Candidate& c) {
                    const Scores z = scores_of(marks, c, 0);
                    for (std::int64_t b = 0; b < 32; b += 8) {
                      const double made_up = block_scores(marks, c, b, b + 8).first;
                      if (made_up - largest(z) > 126) return true;
                    }
                    return false;
                  })
                .met,
            60);
  EXPECT_GT(count("hidden-key", marks, shape,
                  [&](const Candidate& c) {
                    const Scores z = scores_of(marks, c, 0);
                    double top = -HUGE_VAL;
                    for (std::int64_t b = 0; b < 32; b += 8) {
                      top = std::max(top, block_scores(marks, c, b, b + 8).first);
                    }
                    const auto best = std::max_element(z.begin(), z.end()) - z.begin();
                    return largest(z) - top > 126 && best >= 8 && best < 24;
                  })
                .met,
            50);
}

TEST(Structure, NumbersAtTheEndsOfFormats) {
  const Landmarks marks = test::released();
  const auto values = [&](const std::function<bool(float)>& which, bool all) {
    return count("extreme-values", marks, small,
                 [&](const Candidate& c) {
                   return all ? std::all_of(c.v.begin(), c.v.end(), which)
                              : std::any_of(c.v.begin(), c.v.end(), which);
                 })
        .met;
  };
  EXPECT_GT(values([](float x) { return x == 0x1.FEp127F; }, false), 40);
  EXPECT_GT(values([](float x) { return std::fabs(x) < 1; }, true), 40);
  EXPECT_GT(values([](float x) { return std::fabs(x) <= 0x1p-120F; }, true), 20);
  EXPECT_GT(values([](float x) { return x == 0x1p36F; }, true), 3);  // 2^(36 + 88 + 4): infinite
  EXPECT_GT(count("tiny", marks, small,
                  [](const Candidate& c) {
                    return std::any_of(c.k.begin(), c.k.end(),
                                       [](float x) { return x == 0 && std::signbit(x); }) &&
                           std::any_of(c.k.begin(), c.k.end(),
                                       [](float x) { return x != 0 && std::fabs(x) < 0x1p-126F; });
                  })
                .met,
            50);
  EXPECT_GT(count("huge", marks, small,
                  [&](const Candidate& c) {
                    for (const double z : scores_of(marks, c, 0)) {
                      if (std::fabs(z) > 0x1.FFFFFEp127) return true;
                    }
                    return false;
                  })
                .met,
            50);
  EXPECT_EQ(count("uniform-bits", marks, {16, 64, 16, 16},
                  [](const Candidate& c) {
                    std::set<int> exponents;
                    for (const float x : c.k) exponents.insert(x == 0 ? -1000 : std::ilogb(x));
                    return exponents.size() > 200;
                  })
                .met,
            200);
}

TEST(Structure, StoreEdgeAndResidual) {
  Landmarks marks = test::all_marks()[3].marks;  // FP16
  marks.factor = 1;
  EXPECT_GT(count("store-edge", marks, small,
                  [&](const Candidate& c) {
                    const Scores z = scores_of(marks, c, 0);
                    return std::any_of(z.begin(), z.end(),
                                       [](double x) {
                                         return std::fabs(x) >= 65520 && std::fabs(x) < 65600;
                                       }) &&
                           std::any_of(z.begin(), z.end(), [](double x) {
                             return std::fabs(x) < 65520 && std::fabs(x) > 65450;
                           });
                  })
                .met,
            20);
  const Landmarks flash = test::all_marks()[1].marks;
  // RN(s c) is off by more than 1 where s c is beyond 2^25
  EXPECT_GT(count("fused-residual", flash, small,
                  [&](const Candidate& c) {
                    const Scores z = scores_of(flash, c, 0);
                    return std::max(largest(z), -least(z)) > 0x1p25;
                  })
                .met,
            60);
}

// A BF16 sum, term by term, is off by more than half of what the small terms are: 32 of them move
// the exact score by several bits.
TEST(Structure, SwallowedTerms) {
  Landmarks marks = test::all_marks()[4].marks;  // FP32 operands
  marks.factor = 1;
  marks.score_precision = bf16.precision;
  int raised = 0, lowered = 0;
  count("swallowed-terms", marks, {1, 8, 34, 1}, [&](const Candidate& c) {
    double computed = 0;
    for (std::int64_t ch = 0; ch < 34; ++ch) {
      computed = round_to(bf16, computed + double{c.query(0)[ch]} * double{c.key(0)[ch]});
    }
    const double exact = scores_of(marks, c, 0)[0];
    raised += computed - exact > 2 ? 1 : 0;
    lowered += exact - computed > 2 ? 1 : 0;
    return true;
  });
  EXPECT_GT(raised, 20);
  EXPECT_GT(lowered, 20);
}

TEST(Structure, LikeRealHeads) {
  const Landmarks marks = test::all_marks()[1].marks;
  const Shape shape = {8, 64, 16, 4};
  const auto channel_sizes = [&](const Candidate& c) {
    std::vector<double> sizes;
    for (std::int64_t ch = 0; ch < shape.channels; ++ch) {
      double sum = 0;
      for (std::int64_t j = 0; j < shape.keys; ++j) {
        const auto x = static_cast<double>(c.key(j)[ch]);
        sum += x * x;
      }
      sizes.push_back(std::sqrt(sum / static_cast<double>(shape.keys)));
    }
    std::sort(sizes.begin(), sizes.end());
    return sizes;
  };
  for (const char* name : {"outlier-channels", "rms-normed"}) {
    EXPECT_GT(count(name, marks, shape,
                    [&](const Candidate& c) {
                      const std::vector<double> sizes = channel_sizes(c);
                      return sizes.back() > 4 * sizes[sizes.size() / 2];
                    })
                  .met,
              100)
        << name;
  }
  // the first pair turns by 2 atan(1/2) a position, 53 degrees: neighbours of its mean part are
  // uncorrelated with those after a quarter; the slow pairs keep their direction
  EXPECT_GT(count("rope", marks, shape,
                  [&](const Candidate& c) {
                    double shares = 0;
                    for (const std::int64_t ch : {std::int64_t{12}, std::int64_t{14}}) {
                      double sum = 0, square = 0;
                      for (std::int64_t j = 1; j < shape.keys; ++j) {
                        const auto x = static_cast<double>(c.key(j)[ch]);
                        sum += x;
                        square += x * x;
                      }
                      shares = std::max(shares, std::fabs(sum) / 63 / std::sqrt(square / 63));
                    }
                    return shares > 0.7;
                  })
                .met,
            100);
}

TEST(Structure, LoudPadding) {
  const Landmarks marks = test::released();
  int loud = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    Setting setting;
    setting.length = 10;
    Candidate c = make_candidate({2, 16, 4, 2}, setting);
    for (const Generator& g : generators()) {
      if (g.name == "loud-padding") g.fill(random, marks, c);
    }
    const auto hidden = static_cast<double>(std::fabs(c.key(12)[0]));
    EXPECT_EQ(std::fabs(c.value(15)[1]), std::fabs(c.key(12)[0]));
    if (hidden >= 400 || hidden < 0x1p-100) ++loud;
  }
  EXPECT_EQ(loud, 50);
}

}  // namespace
}  // namespace headroom::fuzz
