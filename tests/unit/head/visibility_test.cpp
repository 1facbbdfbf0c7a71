#include "reference/head/visibility.h"

#include "tests/unit/head/scratch.h"

namespace headroom {
namespace {

/// Key j is visible to row i, said for each pair as the kinds define it.
bool sees(const Visibility& v, std::int64_t i, std::int64_t j) {
  if (j >= v.length) return false;
  switch (v.kind) {
    case MaskKind::none:
      return true;
    case MaskKind::causal:
    case MaskKind::causal_top_left:
      return j <= i;
    case MaskKind::causal_bottom_right:
      return j - v.keys <= i - v.queries;  // distances to the last key and the last row
  }
  return false;
}

TEST(Visibility, EveryPairOfEverySmallHead) {
  for (const MaskKind kind : {MaskKind::none, MaskKind::causal, MaskKind::causal_top_left,
                              MaskKind::causal_bottom_right}) {
    for (std::int64_t queries = 1; queries <= 6; ++queries) {
      for (std::int64_t keys = 1; keys <= 6; ++keys) {
        if (kind == MaskKind::causal && queries != keys) continue;
        for (std::int64_t length = 0; length <= keys; ++length) {
          const Visibility v{kind, queries, keys, length};
          std::int64_t most = 0;
          for (std::int64_t i = 0; i < queries; ++i) {
            const KeyRange range = v.visible(i);
            for (std::int64_t j = 0; j < keys; ++j) {
              EXPECT_EQ(range.begin <= j && j < range.end, sees(v, i, j));
            }
            most = std::max(most, range.count());
          }
          EXPECT_EQ(v.most_visible(), most);
        }
      }
    }
  }
}

TEST(Visibility, Names) {
  for (const char* name : {"none", "causal", "causal-top-left", "causal-bottom-right"}) {
    EXPECT_EQ(to_text(parse_mask(name)), name);
  }
  EXPECT_TRUE(tests::mentions(tests::message_of([] { parse_mask("Causal"); }),
                              "mask 'Causal': unknown, expected none, causal, causal-top-left"));
  EXPECT_THROW(parse_mask(""), InputError);
}

}  // namespace
}  // namespace headroom
