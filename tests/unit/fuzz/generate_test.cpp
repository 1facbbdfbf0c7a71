// What every generator, every setting and every cut has to be.
#include "fuzz/generate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "reference/format/convert.h"
#include "tests/unit/fuzz/marks.h"

namespace headroom::fuzz {
namespace {

using test::Checksum;

Candidate generate(const Generator& g, const Landmarks& marks, const Shape& shape,
                   std::uint64_t seed, Setting setting = {}) {
  Random random(seed, 1, static_cast<std::uint64_t>(&g - generators().data()));
  Candidate c = make_candidate(shape, std::move(setting));
  g.fill(random, marks, c);
  return c;
}

TEST(Generators, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const Generator& g : generators()) {
    EXPECT_TRUE(names.insert(g.name).second) << g.name;
    EXPECT_FALSE(g.summary.empty()) << g.name;
  }
}

TEST(Generators, GiveHeadsThatAreAccepted) {
  for (const auto& [name, marks] : test::all_marks()) {
    for (const Generator& g : generators()) {
      for (const Shape& shape : test::shapes()) {
        for (std::uint64_t seed = 0; seed < 3; ++seed) {
          Setting setting;
          if (seed == 2 && shape.keys > 1) setting.length = shape.keys - 1;
          Candidate c = generate(g, marks, shape, seed, setting);
          const std::string where = std::string(g.name) + " " + name;
          ASSERT_TRUE(c.shape == shape && c.setting == setting) << where;
          ASSERT_EQ(c.q.size(), static_cast<std::size_t>(shape.queries * shape.channels));
          ASSERT_EQ(c.k.size(), static_cast<std::size_t>(shape.keys * shape.channels));
          ASSERT_EQ(c.v.size(), static_cast<std::size_t>(shape.keys * shape.value_channels));
          repair(c);
          ASSERT_TRUE(c.setting == setting) << where;
          round_operands(c, marks.operand);
          for (const std::vector<float>* numbers : {&c.q, &c.k, &c.v}) {
            for (const float x : *numbers) {
              ASSERT_TRUE(std::isfinite(x)) << where << " seed " << seed;
              ASSERT_EQ(round_to(marks.operand, static_cast<double>(x)), static_cast<double>(x))
                  << where;
            }
          }
          ASSERT_TRUE(all_finite(c)) << where;
          if (seed > 0) continue;
          ASSERT_NO_THROW(problem_of(c, marks.operand, Scale::base2(1))) << where;
        }
      }
    }
  }
}

TEST(Generators, TheSameForTheSameSeed) {
  const auto all = [](std::uint64_t seed) {
    Checksum sum;
    for (const auto& [name, marks] : test::all_marks()) {
      for (const Generator& g : generators()) {
        for (const Shape& shape : test::shapes()) {
          Candidate c = generate(g, marks, shape, seed);
          round_operands(c, marks.operand);
          sum.add(c);
        }
      }
    }
    return sum.sum();
  };
  EXPECT_EQ(all(1), all(1));
  EXPECT_NE(all(1), all(2));
  RecordProperty("checksum", std::to_string(all(1)));
}

// What was in a candidate before has no part in what a generator makes of it.
TEST(Generators, WriteEveryNumber) {
  const Landmarks marks = test::released();
  for (const Generator& g : generators()) {
    for (const Shape& shape : test::shapes()) {
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        Random random(seed), again(seed);
        Candidate c = make_candidate(shape), dirty = c;
        for (std::vector<float>* numbers : {&dirty.q, &dirty.k, &dirty.v}) {
          std::fill(numbers->begin(), numbers->end(), 7.0F);
        }
        g.fill(random, marks, c);
        g.fill(again, marks, dirty);
        ASSERT_TRUE(c == dirty) << g.name;
      }
    }
  }
}

TEST(Settings, FitWhatTheyAreMadeFor) {
  const SearchSpace space = test::wide_space();
  for (const auto& [name, marks] : test::all_marks()) {
    for (const Shape& shape : test::shapes()) {
      for (std::uint64_t seed = 0; seed < 200; ++seed) {
        Random random(seed), again(seed);
        const Setting s = make_setting(random, space, marks, shape);
        ASSERT_TRUE(make_setting(again, space, marks, shape) == s);
        Candidate c = make_candidate(shape, s);
        repair(c);
        ASSERT_TRUE(c.setting == s) << name << " seed " << seed;
        ASSERT_NO_THROW(problem_of(c, bf16, Scale::natural(1))) << name << " seed " << seed;
      }
    }
  }
}

TEST(Settings, OnlyWhatTheSpaceHas) {
  SearchSpace space;
  space.shapes = test::shapes();
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    EXPECT_TRUE(make_setting(random, space, test::released(), {4, 16, 2, 1}).plain());
  }
}

/// How many of 2,000 settings have it.
template <class Has>
int count_settings(const Shape& shape, Has&& has) {
  const SearchSpace space = test::wide_space();
  Landmarks marks = test::released();
  marks.parts = 2;
  int found = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    Candidate c = make_candidate(shape, make_setting(random, space, marks, shape));
    if (has(c, problem_of(c, bf16, Scale::natural(1)))) ++found;
  }
  return found;
}

TEST(Settings, HideFirstTilesPartsAndEverything) {
  const Shape shape = {4, 40, 2, 1};  // tiles of 8
  const auto sees_any = [](const AttentionProblem& p, std::int64_t row, std::int64_t begin,
                           std::int64_t end) {
    for (std::int64_t j = begin; j < end; ++j) {
      if (p.visible(row, j)) return true;
    }
    return false;
  };
  EXPECT_GT(count_settings(shape,
                           [&](const Candidate&, const AttentionProblem& p) {
                             return !sees_any(p, 3, 0, 8) && sees_any(p, 3, 8, 40);
                           }),
            50);
  EXPECT_GT(count_settings(shape,
                           [&](const Candidate&, const AttentionProblem& p) {
                             return sees_any(p, 3, 0, 20) != sees_any(p, 3, 20, 40);
                           }),
            50);
  EXPECT_GT(
      count_settings(shape, [&](const Candidate&,
                                const AttentionProblem& p) { return !sees_any(p, 0, 0, 40); }),
      10);
  EXPECT_GT(
      count_settings(shape, [](const Candidate& c, const auto&) { return c.length() % 8 == 4; }),
      20);
  EXPECT_GT(
      count_settings(shape, [](const Candidate& c, const auto&) { return c.length() % 8 == 1; }),
      10);
  EXPECT_GT(count_settings(shape, [](const Candidate& c, const auto&) { return c.length() == 31; }),
            5);
}

TEST(Settings, BiasesAtTheEndsOfFormats) {
  const Shape shape = {4, 40, 2, 1};
  const auto with = [&](float bias) {
    return count_settings(shape, [bias](const Candidate& c, const auto&) {
      return std::find(c.setting.bias.begin(), c.setting.bias.end(), bias) != c.setting.bias.end();
    });
  };
  constexpr float lowest = std::numeric_limits<float>::lowest();
  for (const float bias : {lowest, lowest / 2, -65504.0F, -131008.0F, -10000.0F, -20000.0F,
                           -std::numeric_limits<float>::infinity(), -15.9921875F}) {
    EXPECT_GT(with(bias), 2) << bias;
  }
  EXPECT_GT(count_settings(shape, [](const Candidate& c, const auto&) { return !!c.setting.sink; }),
            200);
  EXPECT_GT(
      count_settings(shape, [](const Candidate& c, const auto&) { return !!c.setting.softcap; }),
      200);
}

TEST(Cuts, RowsAndChannelsOfTheHead) {
  // what an element is says where it was
  Head head;
  std::vector<double> q, k, v;
  for (int r = 0; r < 20; ++r) {
    for (int ch = 0; ch < 8; ++ch) q.push_back(r * 8 + ch);
  }
  for (int r = 0; r < 30; ++r) {
    for (int ch = 0; ch < 8; ++ch) k.push_back(r * 8 + ch);
    for (int ch = 0; ch < 4; ++ch) v.push_back(r * 4 + ch);
  }
  head.q = Matrix::from_values(fp16, 20, 8, q);
  head.k = Matrix::from_values(fp16, 30, 8, k);
  head.v = Matrix::from_values(fp16, 30, 4, v);
  bool first_key = false;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    for (const Shape& shape : {Shape{4, 16, 3, 2}, Shape{1, 1, 1, 1}, Shape{25, 64, 16, 5}}) {
      Random random(seed), again(seed);
      const Candidate c = cut_from(head, random, shape);
      EXPECT_TRUE(cut_from(head, again, shape) == c);
      EXPECT_TRUE(c.shape == shape && c.setting.plain());
      for (std::int64_t ch = 0; ch < shape.channels; ++ch) {
        const int channel = static_cast<int>(c.query(0)[ch]) % 8;
        for (std::int64_t i = 0; i < shape.queries; ++i) {
          EXPECT_EQ(static_cast<int>(c.query(i)[ch]) % 8, channel);
          EXPECT_EQ(static_cast<int>(c.query(i)[ch]) / 8, static_cast<int>(c.query(i)[0]) / 8);
        }
        for (std::int64_t j = 0; j < shape.keys; ++j) {
          const int row = static_cast<int>(c.key(j)[ch]) / 8;
          EXPECT_EQ(static_cast<int>(c.key(j)[ch]) % 8, channel);
          EXPECT_EQ(row, static_cast<int>(c.key(j)[0]) / 8);
          EXPECT_EQ(row, static_cast<int>(c.value(j)[0]) / 4);  // keys go with their values
          first_key = first_key || row == 0;
        }
      }
    }
  }
  EXPECT_TRUE(first_key);
  Random random(1);
  EXPECT_TRUE(cut_from(Head{}, random, {2, 2, 2, 2}) == make_candidate({2, 2, 2, 2}));
}

}  // namespace
}  // namespace headroom::fuzz
