// What every mutator has to leave, and what some of them keep.
#include "fuzz/mutate.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "fuzz/generate.h"
#include "reference/format/convert.h"
#include "tests/unit/fuzz/marks.h"

namespace headroom::fuzz {
namespace {

using test::Checksum;

Candidate parent(const Landmarks& marks, const SearchSpace& space, const Shape& shape,
                 std::uint64_t seed) {
  Random random(seed, 7);
  Candidate c = make_candidate(shape, make_setting(random, space, marks, shape));
  random.pick(generators()).fill(random, marks, c);
  repair(c);
  round_operands(c, marks.operand);
  return c;
}

void expect_sound(const Candidate& c, const Landmarks& marks, const std::string& where) {
  ASSERT_EQ(c.q.size(), static_cast<std::size_t>(c.shape.queries * c.shape.channels)) << where;
  ASSERT_EQ(c.k.size(), static_cast<std::size_t>(c.shape.keys * c.shape.channels)) << where;
  ASSERT_EQ(c.v.size(), static_cast<std::size_t>(c.shape.keys * c.shape.value_channels)) << where;
  ASSERT_TRUE(all_finite(c)) << where;
  for (const std::vector<float>* numbers : {&c.q, &c.k, &c.v}) {
    for (const float x : *numbers) {
      if (!std::isfinite(x)) continue;
      ASSERT_EQ(round_to(marks.operand, static_cast<double>(x)), static_cast<double>(x)) << where;
    }
  }
  ASSERT_NO_THROW(problem_of(c, marks.operand, Scale::base2(1))) << where;
}

TEST(Mutators, NamesAreUniqueAndFitABitMask) {
  std::set<std::string_view> names;
  for (const Mutator& m : mutators()) {
    EXPECT_TRUE(names.insert(m.name).second) << m.name;
    EXPECT_GT(m.weight, 0) << m.name;
  }
  EXPECT_LE(mutators().size(), 64U);
}

TEST(Mutators, EachLeavesAHead) {
  const SearchSpace space = test::wide_space();
  for (const auto& [name, marks] : test::all_marks()) {
    for (const Mutator& m : mutators()) {
      for (const Shape& shape : test::shapes()) {
        for (std::uint64_t seed = 0; seed < 6; ++seed) {
          Candidate c = parent(marks, space, shape, seed);
          const Candidate other = parent(marks, space, shape, seed + 100);
          if (m.needs == Mutator::Needs::poison && c.length() == shape.keys) continue;
          Candidate again = c;
          Random random(seed), once_more(seed);
          m.change(random, marks, space, other, c);
          m.change(once_more, marks, space, other, again);
          ASSERT_TRUE(c == again) << m.name;
          repair(c);
          round_operands(c, marks.operand);
          expect_sound(c, marks, std::string(m.name) + " " + name);
        }
      }
    }
  }
}

TEST(Mutate, LongChainsStayHeads) {
  const SearchSpace space = test::wide_space();
  for (const auto& [name, marks] : test::all_marks()) {
    std::vector<std::uint64_t> sums;
    for (int run = 0; run < 2; ++run) {
      Random random(11);
      Checksum sum;
      std::uint64_t used = 0;
      int changed = 0;
      for (const Shape& shape : test::shapes()) {
        Candidate c = parent(marks, space, shape, 1);
        Candidate other = parent(marks, space, shape, 2);
        for (int i = 0; i < 400; ++i) {
          const Candidate before = c;
          used |= mutate(random, marks, space, other, c);
          if (!(c == before)) ++changed;
          if (run == 0) expect_sound(c, marks, name + " step " + std::to_string(i));
          if (HasFatalFailure()) return;
          sum.add(c);
          if (i % 10 == 0) std::swap(c, other);
        }
      }
      sums.push_back(sum.sum());
      EXPECT_EQ(used, (std::uint64_t{1} << mutators().size()) - 1) << name;
      EXPECT_GT(changed, 400 * 6 * 7 / 10) << name;
    }
    EXPECT_EQ(sums[0], sums[1]) << name;
  }
}

TEST(Mutate, OneToFourByWeight) {
  SearchSpace space;
  space.shapes = {{4, 8, 4, 2}};
  const Landmarks marks = test::released();
  const Candidate start = parent(marks, space, space.shapes[0], 1);
  Random random(3);
  std::array<int, 5> sizes{};
  std::vector<int> uses(mutators().size());
  for (int i = 0; i < 4000; ++i) {
    Candidate c = start;
    const std::uint64_t used = mutate(random, marks, space, start, c);
    const int n = std::popcount(used);
    ASSERT_TRUE(n >= 1 && n <= 4);
    ++sizes[static_cast<std::size_t>(n)];
    for (std::size_t m = 0; m < uses.size(); ++m) uses[m] += static_cast<int>((used >> m) & 1U);
  }
  EXPECT_GT(sizes[1], 1800);
  EXPECT_GT(sizes[3], 200);
  for (std::size_t m = 0; m < uses.size(); ++m) {
    // nothing to set, to pad or to resize here
    EXPECT_EQ(uses[m] > 0, mutators()[m].needs == Mutator::Needs::nothing) << mutators()[m].name;
  }
}

const Mutator& named(std::string_view name) {
  for (const Mutator& m : mutators()) {
    if (m.name == name) return m;
  }
  throw std::runtime_error("no such mutator");
}

TEST(Mutators, TradeChannelKeepsScores) {
  const Landmarks marks = test::released();
  SearchSpace space;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Candidate c = make_candidate({3, 5, 4, 1});
    Random random(seed);
    for (float& x : c.q) x = static_cast<float>(random.between(-9, 9));
    for (float& x : c.k) x = static_cast<float>(random.between(-9, 9));
    const Candidate before = c;
    named("trade-channel").change(random, marks, space, c, c);
    EXPECT_FALSE(c == before);
    for (std::int64_t i = 0; i < 3; ++i) {
      for (std::int64_t j = 0; j < 5; ++j) {
        double now = 0, then = 0;
        for (std::int64_t ch = 0; ch < 4; ++ch) {
          now += static_cast<double>(c.query(i)[ch]) * static_cast<double>(c.key(j)[ch]);
          then += static_cast<double>(before.query(i)[ch]) * static_cast<double>(before.key(j)[ch]);
        }
        EXPECT_EQ(now, then);
      }
    }
  }
}

TEST(Mutators, OneNumberByOneBitOrAFewUlps) {
  const Landmarks marks = test::released();
  SearchSpace space;
  const Candidate before = parent(marks, space, {3, 8, 4, 2}, 4);
  for (const char* name : {"flip-bit", "nudge", "scale-element", "special-element"}) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      Candidate c = before;
      Random random(seed);
      named(name).change(random, marks, space, before, c);
      int changes = 0;
      for (const auto& [a, b] :
           {std::pair{&before.q, &c.q}, {&before.k, &c.k}, {&before.v, &c.v}}) {
        for (std::size_t i = 0; i < a->size(); ++i) {
          const auto x = std::bit_cast<std::uint32_t>((*a)[i]);
          const auto y = std::bit_cast<std::uint32_t>((*b)[i]);
          if (x == y) continue;
          ++changes;
          if (std::string_view(name) == "flip-bit") {
            EXPECT_EQ(std::popcount(x ^ y), 1);
            EXPECT_EQ((x ^ y) & 0xffffU, 0U);  // a digit that BF16 has
          }
          if (std::string_view(name) == "nudge" && std::fabs((*a)[i]) > 0x1p-100F) {
            EXPECT_LE(std::fabs((*a)[i] - (*b)[i]), 3 * 0x1p-7F * std::fabs((*a)[i]));
          }
        }
      }
      EXPECT_LE(changes, 1) << name;
    }
  }
}

TEST(Mutators, PoisonStaysInPadding) {
  const Landmarks marks = test::released();
  SearchSpace space = test::wide_space();
  int poisoned = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Setting setting;
    setting.length = 5;
    Candidate c = make_candidate({2, 8, 3, 2}, setting);
    Random random(seed);
    generators()[0].fill(random, marks, c);
    round_operands(c, marks.operand);
    const Candidate before = c;
    named("poison").change(random, marks, space, before, c);
    EXPECT_TRUE(std::equal(before.k.begin(), before.k.begin() + 15, c.k.begin()));
    EXPECT_TRUE(std::equal(before.v.begin(), before.v.begin() + 10, c.v.begin()));
    EXPECT_TRUE(c.q == before.q);
    if (!std::isfinite(c.k.back()) || !std::isfinite(c.v.back())) ++poisoned;
    // and where padding becomes visible, numbers take its place
    c.setting.length = -1;
    mutate(random, marks, space, before, c);
    EXPECT_TRUE(all_finite(c));
  }
  EXPECT_GT(poisoned, 30);
}

TEST(Mutators, PoisonOfVisibleRowsWhereItIsLookedFor) {
  const Landmarks marks = test::released();
  SearchSpace space;
  space.shapes = {{2, 8, 3, 2}};
  space.poison_visible = true;
  int queries = 0, keys = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    Candidate c = parent(marks, SearchSpace{}, space.shapes[0], seed);
    const Candidate other = c;
    for (int i = 0; i < 20; ++i) mutate(random, marks, space, other, c);
    const auto nan = [](float x) { return std::isnan(x); };
    if (std::any_of(c.q.begin(), c.q.end(), nan)) ++queries;
    if (std::any_of(c.k.begin(), c.k.end(), nan)) ++keys;
    EXPECT_FALSE(std::any_of(c.v.begin(), c.v.end(), [](float x) { return !std::isfinite(x); }));
  }
  EXPECT_GT(queries, 10);
  EXPECT_GT(keys, 50);
}

TEST(Move, NothingByNothing) {
  Candidate c = parent(test::released(), test::wide_space(), {4, 16, 4, 2}, 3);
  const Candidate before = c;
  move(Motion{}, c);
  EXPECT_TRUE(c == before);
}

TEST(Move, FactorsByHand) {
  Candidate c = make_candidate({1, 2, 2, 1});
  c.q = {1, 2};
  c.k = {1, 4, 3, 8};  // mean (2, 6)
  c.v = {1, -3};
  Candidate moved = c;
  move({{1, 0, 0, -2, 0, 0}}, moved);
  EXPECT_EQ(moved.q, (std::vector<float>{2, 4}));
  EXPECT_EQ(moved.k, c.k);
  EXPECT_EQ(moved.v, (std::vector<float>{0.25, -0.75}));
  moved = c;
  move({{0, 1, 0, 0, 0, 0}}, moved);
  EXPECT_EQ(moved.k, (std::vector<float>{0, 2, 4, 10}));
  moved = c;
  move({{0, 0, -1, 0, 0, 0}}, moved);
  EXPECT_EQ(moved.k, (std::vector<float>{0, 1, 2, 5}));
  // the query all the way to the larger key's direction, and against it
  c.q = {5, 0};
  c.k = {0, 1, 3, 4};
  moved = c;
  move({{0, 0, 0, 0, 1, 0}}, moved);
  EXPECT_EQ(moved.q, (std::vector<float>{3, 4}));
  moved = c;
  move({{0, 0, 0, 0, -1, 0}}, moved);
  EXPECT_EQ(moved.q, (std::vector<float>{-3, -4}));
  // keys to two levels about their mean along the largest: 1, 2, 6 -> 3 - 2, 3 - 2, 3 + 2... by
  // the mean deviation (2 + 1 + 3) / 3 = 2
  c = make_candidate({1, 3, 1, 1});
  c.k = {1, 2, 6};
  moved = c;
  move({{0, 0, 0, 0, 0, 1}}, moved);
  EXPECT_EQ(moved.k, (std::vector<float>{1, 1, 5}));
  // finite, however far
  moved = c;
  move({{1e300, 1e300, -1e300, 1e300, 5, -7}}, moved);
  EXPECT_TRUE(all_finite(moved));
}

}  // namespace
}  // namespace headroom::fuzz
