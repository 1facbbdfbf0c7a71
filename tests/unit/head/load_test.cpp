// Which rows of which file a head gets: each element carries its own coordinates.
#include "reference/head/load.h"

#include <cmath>
#include <functional>

#include "reference/head/write.h"
#include "tests/unit/head/scratch.h"

namespace headroom {
namespace {

using tests::mentions;
using tests::message_of;

/// Words of fp32 numbered from `first`: exact up to 2^24.
std::shared_ptr<std::vector<float>> numbered(std::int64_t count, float first) {
  const auto values = std::make_shared<std::vector<float>>(static_cast<std::size_t>(count));
  for (float& value : *values) value = first++;
  return values;
}

class Load : public tests::Scratch {
 protected:
  void add(const std::string& name, const std::vector<std::int64_t>& shape, float first = 0) {
    std::int64_t count = 1;
    for (const std::int64_t n : shape) count *= n;
    const auto values = numbered(count, first);
    writer_.add(name, fp32, shape, std::as_bytes(std::span(*values)), values);
  }
  void add_triple(const std::string& prefix, const std::vector<std::int64_t>& q,
                  const std::vector<std::int64_t>& kv) {
    add(prefix + "q", q, 0);
    add(prefix + "k", kv, 100000);
    add(prefix + "v", kv, 200000);
  }
  std::vector<Head> load(const LoadOptions& options = {}) {
    writer_.write_safetensors(path("x.safetensors"));
    return load_heads(path("x.safetensors"), options);
  }
  std::string error_of(const LoadOptions& options = {}) {
    const std::string message = message_of([&] { load(options); });
    return message;
  }
  static std::vector<std::string> ids(const std::vector<Head>& heads) {
    std::vector<std::string> all;
    for (const Head& head : heads) all.push_back(head.id);
    return all;
  }
  static double at(const Matrix& matrix, std::int64_t row, std::int64_t column) {
    std::vector<double> values(static_cast<std::size_t>(matrix.columns()));
    matrix.load_row(row, values.data());
    return values[static_cast<std::size_t>(column)];
  }

  TensorWriter writer_;
};

LoadOptions with(const std::function<void(LoadOptions&)>& change) {
  LoadOptions options;
  change(options);
  return options;
}

TEST_F(Load, TwoDimensions) {
  add_triple("", {3, 4}, {5, 4});
  const auto heads = load();
  ASSERT_EQ(heads.size(), 1U);
  const Head& head = heads[0];
  EXPECT_EQ(head.id, "x:0");
  EXPECT_EQ(head.layout, "nd");
  EXPECT_FALSE(head.has_batch);
  EXPECT_EQ(head.queries(), 3);
  EXPECT_EQ(head.keys(), 5);
  EXPECT_EQ(at(head.q, 2, 3), 11);
  EXPECT_EQ(at(head.k, 4, 3), 100019);
  EXPECT_EQ(head.scale.text(), "1/2");
  EXPECT_EQ(head.scale_source, "default");
  EXPECT_EQ(head.mask_source, "default");
  EXPECT_EQ(head.visibility.kind, MaskKind::none);
  EXPECT_EQ(head.visibility.length, 5);
  EXPECT_FALSE(head.was_cast);
  EXPECT_TRUE(head.warnings.empty());
}

TEST_F(Load, ThreeDimensionsWithGroupedQueries) {
  add_triple("layer3.", {6, 3, 4}, {2, 5, 4});
  const auto heads = load();
  ASSERT_EQ(heads.size(), 6U);
  for (std::int64_t h = 0; h < 6; ++h) {
    const Head& head = heads[static_cast<std::size_t>(h)];
    EXPECT_EQ(head.id, "x:layer3." + std::to_string(h));
    EXPECT_EQ(head.prefix, "layer3.");
    EXPECT_EQ(head.kv_head, h / 3);
    for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(at(head.q, i, 1), 12 * h + 4 * i + 1);
    for (std::int64_t j = 0; j < 5; ++j) {
      EXPECT_EQ(at(head.k, j, 2), 100000 + 20 * (h / 3) + 4 * j + 2);
      EXPECT_EQ(at(head.v, j, 2), 200000 + 20 * (h / 3) + 4 * j + 2);
    }
  }
}

TEST_F(Load, FourDimensionsInBothLayouts) {
  add_triple("a.", {2, 4, 3, 5}, {2, 2, 3, 5});
  EXPECT_TRUE(mentions(error_of(), "'a.q': shape [2,4,3,5] has 4 dimensions, expected --layout"));
  const auto bhnd = load(with([](auto& o) { o.layout = "bhnd"; }));
  ASSERT_EQ(bhnd.size(), 8U);
  EXPECT_EQ(bhnd[5].id, "x:a.1.1");
  EXPECT_TRUE(bhnd[5].has_batch);
  for (const Head& head : bhnd) {
    for (std::int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(at(head.q, i, 4), ((head.batch * 4 + head.query_head) * 3 + i) * 5 + 4);
      EXPECT_EQ(at(head.v, i, 4), 200000 + ((head.batch * 2 + head.kv_head) * 3 + i) * 5 + 4);
    }
  }
  // the same words read as [B,N,H,d]: 4 and 2 tokens, 3 heads
  const auto bnhd = load(with([](auto& o) { o.layout = "bnhd"; }));
  ASSERT_EQ(bnhd.size(), 6U);
  for (const Head& head : bnhd) {
    EXPECT_EQ(head.queries(), 4);
    EXPECT_EQ(head.keys(), 2);
    for (std::int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(at(head.q, i, 4), ((head.batch * 4 + i) * 3 + head.query_head) * 5 + 4);
    }
  }
}

TEST_F(Load, LayoutFromMetadata) {
  add_triple("", {2, 3, 4}, {2, 3, 4});
  writer_.set_metadata("layout", "[heads, tokens,channels]");
  EXPECT_EQ(load()[0].layout, "hnd");
  writer_.set_metadata("layout", "[tokens,heads,channels]");
  EXPECT_TRUE(mentions(error_of(), "layout '[tokens,heads,channels]': unknown, expected nd, hnd"));
  EXPECT_EQ(load(with([](auto& o) { o.layout = "hnd"; }))[0].layout, "hnd");
  writer_.set_metadata("layout", "bhnd");
  EXPECT_TRUE(mentions(error_of(), "has 3 dimensions, expected 4"));
  EXPECT_TRUE(
      mentions(error_of(with([](auto& o) { o.layout = "nhd"; })), "--layout: layout 'nhd'"));
}

TEST_F(Load, ShapesThatDoNotFit) {
  const auto error = [&](std::vector<std::int64_t> q, std::vector<std::int64_t> k,
                         std::vector<std::int64_t> v) {
    writer_ = {};
    add("q", std::move(q));
    add("k", std::move(k));
    add("v", std::move(v));
    return error_of();
  };
  EXPECT_TRUE(mentions(error({4}, {4}, {4}), "'q': shape [4], expected 2 dimensions"));
  EXPECT_TRUE(mentions(error({1, 1, 1, 1, 1}, {1, 1}, {1, 1}), "shape [1,1,1,1,1], expected 2"));
  EXPECT_TRUE(mentions(error({2, 4}, {1, 2, 4}, {2, 4}), "'k': shape [1,2,4], expected 2 dimen"));
  EXPECT_TRUE(
      mentions(error({2, 4}, {3, 5}, {3, 4}), "'k': shape [3,5]: 5 channels, expected the 4"));
  EXPECT_TRUE(
      mentions(error({2, 4}, {3, 4}, {2, 4}), "'v': shape [2,4]: 2 tokens, expected the 3"));
  EXPECT_TRUE(mentions(error({4, 2, 4}, {2, 2, 4}, {4, 2, 4}), "'v': shape [4,2,4]: 4 heads"));
  EXPECT_TRUE(
      mentions(error({4, 2, 4}, {3, 2, 4}, {3, 2, 4}), "3 KV heads, expected a divisor of"));
  EXPECT_TRUE(
      mentions(error({2, 2, 4}, {4, 2, 4}, {4, 2, 4}), "4 KV heads, expected a divisor of"));
  EXPECT_TRUE(mentions(error({0, 4}, {3, 4}, {3, 4}), "'q': shape [0,4] is empty"));
  EXPECT_TRUE(mentions(error({2, 4}, {0, 4}, {0, 4}), "'k': shape [0,4] is empty"));
  EXPECT_TRUE(mentions(error({2, 0}, {3, 0}, {3, 4}), "is empty"));
  writer_ = {};
  add("q", {2, 1, 3, 4});
  add("k", {1, 1, 3, 4});
  add("v", {2, 1, 3, 4});
  EXPECT_TRUE(mentions(error_of(with([](auto& o) { o.layout = "bhnd"; })),
                       "1 batch entries, expected the 2"));
  // V may have its own number of channels
  writer_ = {};
  add("q", {2, 4});
  add("k", {3, 4});
  add("v", {3, 7});
  EXPECT_EQ(load()[0].value_channels(), 7);
}

TEST_F(Load, Selection) {
  add_triple("layer0.", {4, 2, 4}, {4, 2, 4});
  add_triple("layer1.", {4, 2, 4}, {4, 2, 4});
  add_triple("cross1.", {2, 2, 4}, {2, 2, 4});
  const auto pick = [&](const std::string& heads) {
    return ids(load(with([&](auto& o) { o.heads = heads; })));
  };
  using Ids = std::vector<std::string>;
  EXPECT_EQ(pick("*").size(), 10U);
  EXPECT_EQ(pick("layer1.*:0-1,3"), (Ids{"x:layer1.0", "x:layer1.1", "x:layer1.3"}));
  EXPECT_EQ(pick("layer?:2"), (Ids{"x:layer0.2", "x:layer1.2"}));
  EXPECT_EQ(pick("layer1:0"), (Ids{"x:layer1.0"}));
  EXPECT_EQ(pick("*1.:1"), (Ids{"x:layer1.1", "x:cross1.1"}));
  EXPECT_EQ(pick(":0"), (Ids{"x:layer0.0", "x:layer1.0", "x:cross1.0"}));
  EXPECT_EQ(pick("cross1."), (Ids{"x:cross1.0", "x:cross1.1"}));
  const auto error = [&](const std::string& heads) {
    return error_of(with([&](auto& o) { o.heads = heads; }));
  };
  EXPECT_TRUE(
      mentions(error("layer7.*"), "--heads 'layer7.*' matches no PREFIXq, PREFIXk, PREFIXv"));
  EXPECT_TRUE(mentions(error("layer7.*"), "the file holds 'layer0.q' [4,2,4] fp32, 'layer0.k'"));
  EXPECT_TRUE(mentions(error("*:3"), "head 3, but"));  // cross1. has two heads
  EXPECT_TRUE(mentions(error("layer0:4"), "has heads 0 to 3"));
  for (const char* bad :
       {"*:", "*:1-", "*:-1", "*:3-1", "*:1,,2", "*:1-2-3", "*:99999999999999999999"}) {
    EXPECT_TRUE(mentions(error(bad), "expected e.g. 0-3,7")) << bad;
  }
}

TEST_F(Load, NothingToMatchListsTheFile) {
  add("weights", {2, 3});
  EXPECT_TRUE(mentions(error_of(),
                       "no tensors named PREFIXq, PREFIXk, PREFIXv; the file holds "
                       "'weights' [2,3] fp32"));
  add_triple("self_", {2, 4}, {2, 4});
  add("lonely.q", {2, 4});
  EXPECT_EQ(ids(load()), (std::vector<std::string>{"x:self_0"}));
  // names of one's own
  const auto heads = load(with([](auto& o) { o.q = "_q", o.k = "_k", o.v = "_v"; }));
  EXPECT_EQ(heads[0].id, "x:self0");
  EXPECT_TRUE(mentions(error_of(with([](auto& o) { o.k = "q"; })), "three different names"));
  EXPECT_TRUE(mentions(error_of(with([](auto& o) { o.q = ""; })), "three different names"));
}

TEST_F(Load, IncompleteTriplesAreNotPassedOver) {
  add_triple("a.", {2, 4}, {2, 4});
  add("b.q", {2, 4});
  add("b.k", {2, 4});
  const auto heads = load();
  ASSERT_EQ(heads.size(), 1U);
  ASSERT_EQ(heads[0].warnings.size(), 1U);
  EXPECT_TRUE(mentions(heads[0].warnings[0], "'b.v' is missing"));
  EXPECT_TRUE(mentions(error_of(with([](auto& o) { o.heads = "b.*"; })), "'b.v' is missing"));
}

TEST_F(Load, UnusableDtypesAreNamed) {
  const std::string entry = R"(":{"dtype":"F64","shape":[1,1],"data_offsets":[)";
  const std::string file = put(
      "d.safetensors",
      tests::safetensors("{\"q" + entry + "0,8]},\"k" + entry + "8,16]},\"v" + entry + "16,24]}}",
                         std::string(24, '\0')));
  EXPECT_TRUE(
      mentions(message_of([&] { load_heads(file, {}); }),
               "dtype 'F64' is no operand format, expected F32, F16, BF16, F8_E4M3 or F8_E5M2"));
}

TEST_F(Load, ScaleSources) {
  add_triple("", {2, 3}, {2, 3});
  EXPECT_EQ(load()[0].scale.text(), "1/sqrt(3)");
  put("x.json", R"({"scale": 0.5773502691896258})");
  EXPECT_EQ(load()[0].scale.text(), "2886751345948129/5000000000000000");
  EXPECT_EQ(load()[0].scale_source, "sidecar");
  writer_.set_metadata("scale", "1/sqrt(d)");
  EXPECT_EQ(load()[0].scale.text(), "1/sqrt(3)");
  EXPECT_EQ(load()[0].scale_source, "metadata");
  const Head option = load(with([](auto& o) { o.scale = "0x1p-1"; }))[0];
  EXPECT_EQ(option.scale.text(), "1/2");
  EXPECT_EQ(option.scale_source, "option");
  const Head log2 = load(with([](auto& o) { o.scale_log2 = "1"; }))[0];
  EXPECT_EQ(log2.scale.text(), "log2:1");
  EXPECT_TRUE(
      mentions(error_of(with([](auto& o) { o.scale = o.scale_log2 = "1"; })), "both given"));
  for (const char* bad : {"nan", "inf", "-inf", "x", ""}) {
    EXPECT_TRUE(mentions(error_of(with([&](auto& o) { o.scale = bad; })), "--scale: scale")) << bad;
    EXPECT_TRUE(mentions(error_of(with([&](auto& o) { o.scale_log2 = bad; })), "--scale-log2: "));
  }
  writer_.set_metadata("scale", "NaN");
  EXPECT_TRUE(mentions(error_of(), "x.safetensors: metadata key scale: scale 'NaN'"));
}

TEST_F(Load, ImplausibleScalesWarn) {
  add_triple("", {2, 192}, {2, 192});
  const auto warnings = [&](const std::string& scale) {
    return load(with([&](auto& o) { o.scale = scale; }))[0].warnings;
  };
  // d^-1/2 divided where it should be multiplied: sqrt(192) = 13.856, 192 times too large
  ASSERT_EQ(warnings("13.8564064605510183").size(), 1U);
  EXPECT_TRUE(mentions(warnings("13.8564064605510183")[0], "192 times 1/sqrt(d), d = 192"));
  EXPECT_TRUE(
      mentions(warnings("13.8564064605510183")[0], "divided where it should be multiplied"));
  EXPECT_EQ(warnings("1").size(), 1U);
  EXPECT_EQ(warnings("0").size(), 1U);
  EXPECT_EQ(warnings("-0.0722").size(), 1U);
  EXPECT_EQ(warnings("0.0722").size(), 0U);
  EXPECT_EQ(warnings("0.25").size(), 0U);   // 3.46 / sqrt(192)
  EXPECT_EQ(warnings("0.018").size(), 1U);  // 0.2494 / sqrt(192)
  // base 2: 0.1041 ln 2 sqrt(192) = 1.0
  EXPECT_EQ(load(with([](auto& o) { o.scale_log2 = "0.1041"; }))[0].warnings.size(), 0U);
  EXPECT_EQ(load(with([](auto& o) { o.scale_log2 = "1"; }))[0].warnings.size(), 1U);
}

TEST_F(Load, Masks) {
  add_triple("", {3, 4}, {3, 4});
  writer_.set_metadata("causal", "True");
  EXPECT_EQ(load()[0].visibility.kind, MaskKind::causal);
  EXPECT_EQ(load()[0].mask_source, "metadata");
  EXPECT_EQ(load(with([](auto& o) { o.mask = "none"; }))[0].visibility.kind, MaskKind::none);
  EXPECT_EQ(load(with([](auto& o) { o.mask = "none"; }))[0].mask_source, "option");
  writer_.set_metadata("mask", "causal-bottom-right");
  EXPECT_EQ(load()[0].visibility.kind, MaskKind::causal_bottom_right);
  writer_.set_metadata("mask", "none");
  EXPECT_TRUE(mentions(error_of(), "says none, but"));
  writer_.set_metadata("causal", "perhaps");
  EXPECT_TRUE(mentions(error_of(), "value 'perhaps': expected true or false"));
  writer_.set_metadata("mask", "window");
  EXPECT_TRUE(mentions(error_of(), "metadata key mask: mask 'window': unknown"));
}

TEST_F(Load, CausalNeedsAsManyKeysAsQueries) {
  add_triple("", {2, 4}, {5, 4});
  put("x.json", R"({"causal":true})");
  EXPECT_TRUE(mentions(error_of(),
                       "with 2 queries and 5 keys, expected --mask causal-top-left or "
                       "causal-bottom-right"));
  EXPECT_TRUE(mentions(error_of(), "x.json: sidecar key causal"));
  const Head head = load(with([](auto& o) { o.mask = "causal-bottom-right"; }))[0];
  EXPECT_EQ(head.visibility.visible(0).end, 4);
  put("x.json", R"({"causal":false})");
  EXPECT_EQ(load()[0].visibility.kind, MaskKind::none);
}

TEST_F(Load, Lengths) {
  add_triple("", {2, 1, 5, 4}, {2, 1, 5, 4});
  const auto options = [](const std::string& lengths) {
    return with([&](auto& o) { o.layout = "bhnd", o.lengths = lengths; });
  };
  EXPECT_EQ(load(options("3"))[0].visibility.length, 3);
  EXPECT_EQ(load(options("3"))[1].visibility.length, 3);
  EXPECT_EQ(load(options("5,2"))[0].visibility.length, 5);
  EXPECT_EQ(load(options("5,2"))[1].visibility.length, 2);
  EXPECT_EQ(load(options("0"))[1].visibility.visible(4).count(), 0);
  for (const char* bad : {"6", "5,6", "-1", "", "3,", "a", "3.0", " 3"}) {
    EXPECT_TRUE(mentions(error_of(options(bad)), "expected integers from 0 to the 5 keys")) << bad;
  }
  EXPECT_TRUE(mentions(error_of(options("6,5")), "0 to the 5 keys of "));
  EXPECT_TRUE(mentions(error_of(options("[4, 3]")), ", as 64 or 64,50"));
  EXPECT_TRUE(mentions(error_of(options("1,2,3")), "3 lengths, expected 1 or one for each of 2"));
  put("x.json", R"({"lengths":[4,3],"layout":"bhnd"})");
  EXPECT_EQ(load()[1].visibility.length, 3);
  writer_.set_metadata("lengths", "[5, 2]");
  EXPECT_EQ(load()[1].visibility.length, 2);
  for (const char* bad : {"[]", "[5, 2", "[[5, 2]]", "[5, 6]", "[5,, 2]"}) {
    writer_.set_metadata("lengths", bad);
    EXPECT_TRUE(mentions(error_of(), ", as 64 or 64,50 or [64, 50]")) << bad;
  }
}

TEST_F(Load, MisspeltSettingsAreNamed) {
  add_triple("", {2, 4}, {2, 4});
  put("x.json",
      R"({"scal":0.5,"Scale":1,"length":2,"masks":"causal","model":"m","mesk":1,"sale":1})");
  std::string all;
  const Head head = load()[0];
  for (const std::string& warning : head.warnings) all += warning + "\n";
  for (const char* part :
       {"x.json: sidecar key scal is not read; is scale meant?", "key Scale is not read; is scale",
        "key length is not read; is lengths", "key masks is not read; is mask",
        "key mesk is not read; is mask", "key sale is not read; is scale"}) {
    EXPECT_TRUE(mentions(all, part)) << all;
  }
  EXPECT_FALSE(mentions(all, "model"));
  // two neighbours swapped, at each place of a word; capitals; the names of other programs
  const std::vector<std::pair<std::string, std::string>> meant = {
      {"acusal", "causal"},   {"cuasal", "causal"},       {"casual", "causal"},
      {"cauasl", "causal"},   {"causla", "causal"},       {"CAUSAL", "causal"},
      {"Casual", "causal"},   {"is_causal", "causal"},    {"softmax_scale", "scale"},
      {"sm_scale", "scale"},  {"attention_mask", "mask"}, {"attn_mask", "mask"},
      {"seqlens", "lengths"}, {"legnths", "lengths"},     {"qkv_layout", "layout"},
  };
  for (const auto& [key, known] : meant) {
    put("x.json", "{\"" + key + "\":\"1\"}");
    const Head one = load()[0];
    ASSERT_EQ(one.warnings.size(), 1U) << key;
    EXPECT_TRUE(
        one.warnings[0].ends_with("sidecar key " + key + " is not read; is " + known + " meant?"))
        << one.warnings[0];
    EXPECT_EQ(one.mask_source, "default") << key;
  }
  // two changes, or a swap of letters that are no neighbours, are another word
  for (const char* other : {"lausac", "csauel", "scaling", "model", "maskcc", "layers"}) {
    put("x.json", std::string("{\"") + other + "\":\"1\"}");
    EXPECT_TRUE(load()[0].warnings.empty()) << other;
  }
  put("x.json", R"({"scale":1,"mask":"none","model":"m"})");
  EXPECT_TRUE(load()[0].warnings.empty());
}

TEST_F(Load, OperandFormat) {
  add_triple("", {2, 4}, {2, 4});
  EXPECT_TRUE(mentions(error_of(with([](auto& o) { o.operand = bf16; })),
                       "'q': stored as fp32, expected bf16, which the kernel reads; --cast rne"));
  EXPECT_FALSE(load(with([](auto& o) { o.operand = fp32, o.cast = true; }))[0].was_cast);
  const Head head = load(with([](auto& o) { o.operand = fp16, o.cast = true; }))[0];
  EXPECT_TRUE(head.was_cast);
  EXPECT_TRUE(head.stored_k == fp32);
  EXPECT_TRUE(head.k.format() == fp16);
  EXPECT_EQ(at(head.q, 1, 3), 7);
  EXPECT_TRUE(std::isinf(at(head.k, 0, 0)));  // 100000 is beyond binary16
  ASSERT_EQ(head.warnings.size(), 1U);
  EXPECT_TRUE(mentions(head.warnings[0], "the cast to fp16 made 16 finite values infinite"));
}

TEST_F(Load, TensorsThatChangeTheScoresAreMentioned) {
  add_triple("a.", {2, 4}, {2, 4});
  add("a.mask", {2, 2});
  EXPECT_TRUE(mentions(load()[0].warnings.at(0), "'a.mask' is not read"));
}

TEST_F(Load, ThreeNpyFiles) {
  add("q", {4, 3, 4}, 0);
  add("k", {2, 3, 4}, 1000);
  add("v", {2, 3, 4}, 2000);
  for (const char* name : {"q", "k", "v"}) {
    writer_.write_npy(name, path("my_" + std::string(name) + ".npy"));
  }
  put("my_q.json", R"({"scale":0.25,"causal":true})");
  const auto load_npy = [&](const LoadOptions& options = {}) {
    return load_heads(path("my_q.npy"), path("my_k.npy"), path("my_v.npy"), options);
  };
  const auto heads = load_npy();
  ASSERT_EQ(heads.size(), 4U);
  EXPECT_EQ(heads[3].id, "my_q:3");
  EXPECT_EQ(at(heads[3].k, 2, 3), 1000 + 12 + 11);
  EXPECT_EQ(heads[3].scale.text(), "1/4");
  EXPECT_EQ(heads[3].visibility.kind, MaskKind::causal);
  EXPECT_EQ(ids(load_npy(with([](auto& o) { o.heads = ":1-2"; }))),
            (std::vector<std::string>{"my_q:1", "my_q:2"}));
  EXPECT_TRUE(mentions(message_of([&] { load_npy(with([](auto& o) { o.heads = "layer1"; })); }),
                       ".npy tensors have no prefix"));
  EXPECT_TRUE(mentions(message_of([&] { load_heads(path("my_q.npy"), {}); }),
                       "the file holds 'my_q' [4,3,4] fp32"));
  put("my_k.json", R"({"scale":0.5})");
  EXPECT_TRUE(mentions(message_of([&] { load_npy(); }), "expected what the file of Q says"));
  put("my_k.json", R"({"scale":0.25})");
  EXPECT_EQ(load_npy().size(), 4U);
  writer_.write_safetensors(path("all.safetensors"));
  EXPECT_TRUE(mentions(message_of([&] {
                         load_heads(path("my_q.npy"), path("all.safetensors"), path("my_v.npy"),
                                    {});
                       }),
                       "expected one operand tensor"));
}

TEST_F(Load, HeadsOutliveTheFileHandle) {
  add_triple("", {2, 4}, {2, 4});
  const Head head = load()[0];
  std::filesystem::remove(path("x.safetensors"));
  EXPECT_EQ(at(head.q, 1, 3), 7);
}

}  // namespace
}  // namespace headroom
