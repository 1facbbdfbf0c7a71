// Malformed files one class at a time, truncation at every byte, and random damage.
#include <sys/stat.h>

#include <random>

#include "reference/head/tensor_file.h"
#include "tests/unit/head/scratch.h"

namespace headroom {
namespace {

using tests::mentions;
using tests::message_of;
using tests::safetensors;

class Safetensors : public tests::Scratch {
 protected:
  std::string error_of(const std::string& bytes) {
    const std::string file = put("x.safetensors", bytes);
    const std::string message = message_of([&] { TensorFile::open(file); });
    EXPECT_TRUE(mentions(message, file));
    return message;
  }
  std::shared_ptr<const TensorFile> open(const std::string& bytes) {
    return TensorFile::open(put("x.safetensors", bytes));
  }
};

const std::string eight = "abcdefgh";

TEST_F(Safetensors, ReadsTensorsInHeaderOrder) {
  const auto file = open(safetensors(R"({"b":{"dtype":"F32","shape":[1,2],"data_offsets":[4,12]},)"
                                     R"("__metadata__":{"scale":"0.5"},)"
                                     R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}   )",
                                     "wxyz" + eight));
  ASSERT_EQ(file->tensors().size(), 2U);
  EXPECT_EQ(file->stem(), "x");
  EXPECT_EQ(file->tensors()[0].name, "b");
  EXPECT_TRUE(file->tensors()[0].format == fp32);
  EXPECT_EQ(file->tensors()[0].shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(file->tensors()[0].bytes, 8);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file->tensors()[0].data), 8), eight);
  EXPECT_TRUE(file->find("a")->format == bf16);
  EXPECT_EQ(file->find("c"), nullptr);
  EXPECT_EQ(file->metadata().at("scale"), "0.5");
  EXPECT_EQ(file->metadata_source("scale"), "metadata");
  EXPECT_EQ(file->metadata_source("mask"), "");
  file->require_unchanged();
}

TEST_F(Safetensors, ZeroSizeTensorsAndScalarsAreLegal) {
  const auto file =
      open(safetensors(R"({"scaled_fp8":{"dtype":"F8_E4M3","shape":[0],"data_offsets":[0,0]},)"
                       R"("e":{"dtype":"F16","shape":[3,0,5],"data_offsets":[4,4]},)"
                       R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
                       "wxyz"));
  EXPECT_EQ(file->find("e")->bytes, 0);
  EXPECT_EQ(file->find("s")->bytes, 4);
  EXPECT_EQ(file->find("scaled_fp8")->bytes, 0);
  EXPECT_TRUE(open(safetensors("{}"))->tensors().empty());
  EXPECT_TRUE(open(safetensors(R"({"__metadata__":{}})"))->tensors().empty());
}

TEST_F(Safetensors, OtherDtypesAreListedAndTheirExtentsChecked) {
  const auto file = open(safetensors(R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
                                     R"("b":{"dtype":"F4","shape":[4],"data_offsets":[8,10]},)"
                                     R"("c":{"dtype":"NEW9","shape":[7],"data_offsets":[10,16]}})",
                                     eight + eight));
  EXPECT_TRUE(file->tensors().empty());
  EXPECT_EQ(file->unusable().at("a").dtype, "F64");
  EXPECT_EQ(file->unusable().at("c").shape, (std::vector<std::int64_t>{7}));
  EXPECT_TRUE(mentions(
      error_of(safetensors(R"({"a":{"dtype":"I32","shape":[1],"data_offsets":[0,8]}})", eight)),
      "needs 4 bytes, data_offsets [0,8] hold 8"));
  EXPECT_TRUE(mentions(
      error_of(safetensors(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,8]}})", eight)),
      "no whole number of bytes"));
}

TEST_F(Safetensors, HeaderLength) {
  EXPECT_TRUE(mentions(error_of("1234567"), "7 bytes, expected at least the 8"));
  EXPECT_TRUE(mentions(error_of(std::string("\x05\0\0\0\0\0\0\0{}", 10)),
                       "header length 5 exceeds the 2 bytes that follow"));
  EXPECT_TRUE(mentions(error_of(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)),
                       "header length 18446744073709551615 exceeds the limit of 100000000"));
  EXPECT_TRUE(mentions(error_of(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10)),
                       "header length 100000001 exceeds the limit"));
  EXPECT_TRUE(mentions(error_of(std::string(8, '\0')), "does not begin with '{'"));
  EXPECT_TRUE(mentions(error_of(safetensors(" {}")), "does not begin with '{'"));
  EXPECT_TRUE(mentions(error_of(safetensors("\xEF\xBB\xBF{}")), "does not begin with '{'"));
  EXPECT_TRUE(mentions(error_of(safetensors("[]")), "does not begin with '{'"));
  EXPECT_TRUE(mentions(error_of("PK\x03\x04 and more than twenty-two"), "zip archive"));
}

TEST_F(Safetensors, HeaderSyntax) {
  EXPECT_TRUE(mentions(error_of(safetensors("{")), "header: not valid JSON at byte"));
  EXPECT_TRUE(mentions(error_of(safetensors("{}x")), "not valid JSON at byte"));
  EXPECT_TRUE(mentions(error_of(safetensors("{} {}")), "not valid JSON at byte"));
  EXPECT_TRUE(mentions(error_of(safetensors(std::string("{}\0", 3))), "holds a NUL byte"));
  EXPECT_TRUE(mentions(error_of(safetensors("{\"a\xff\":1}")), "not valid JSON"));
  EXPECT_TRUE(mentions(error_of(safetensors(R"({"a":1e999})")), "not valid JSON"));
  EXPECT_TRUE(mentions(error_of(safetensors(R"({"a":NaN})")), "not valid JSON"));
  EXPECT_TRUE(mentions(error_of(safetensors(R"({"a":1})")), "'a': is no object"));
  EXPECT_TRUE(mentions(error_of(safetensors(R"({"a":[]})")), "'a': is a list"));
  EXPECT_TRUE(mentions(error_of(safetensors(R"({"a":{"x":1}})")), "unknown key 'x'"));
}

TEST_F(Safetensors, DuplicateKeysAtEveryLevel) {
  const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_TRUE(
      mentions(error_of(safetensors("{" + a + "," + a + "}", "wxyz")), "duplicate key 'a'"));
  EXPECT_TRUE(mentions(
      error_of(safetensors(R"({"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})",
                           "wxyz")),
      "duplicate key 'shape'"));
  EXPECT_TRUE(mentions(error_of(safetensors(R"({"__metadata__":{"k":"1","k":"1"}})")),
                       "duplicate key 'k'"));
  EXPECT_TRUE(mentions(error_of(safetensors(R"({"__metadata__":{},"__metadata__":{}})")),
                       "duplicate key '__metadata__'"));
  // the same key spelled by an escape
  EXPECT_TRUE(mentions(error_of(safetensors(R"({"__metadata__":{"k":"1","\u006b":"1"}})")),
                       "duplicate key 'k'"));
}

TEST_F(Safetensors, MetadataIsAMapOfStrings) {
  EXPECT_TRUE(mentions(error_of(safetensors(R"({"__metadata__":{"k":1}})")),
                       "__metadata__ key 'k' is no string"));
  EXPECT_TRUE(mentions(error_of(safetensors(R"({"__metadata__":{"k":null}})")), "no string"));
  EXPECT_TRUE(mentions(error_of(safetensors(R"({"__metadata__":{"k":{}}})")), "no string"));
  EXPECT_TRUE(mentions(error_of(safetensors(R"({"__metadata__":{"k":["x"]}})")), "no string"));
  EXPECT_TRUE(mentions(error_of(safetensors(R"({"__metadata__":[]})")), "is a list"));
  EXPECT_TRUE(mentions(error_of(safetensors(R"({"__metadata__":"x"})")), "is no object"));
}

TEST_F(Safetensors, EntryFields) {
  const auto entry = [&](const std::string& fields) {
    return error_of(safetensors("{\"a\":{" + fields + "}}", eight));
  };
  EXPECT_TRUE(mentions(entry(R"("shape":[2],"data_offsets":[0,8])"), "'a': dtype is missing"));
  EXPECT_TRUE(mentions(entry(R"("dtype":"F32","data_offsets":[0,8])"), "shape is missing"));
  EXPECT_TRUE(mentions(entry(R"("dtype":"F32","shape":[2])"), "data_offsets is missing"));
  EXPECT_TRUE(mentions(entry(R"("dtype":32,"shape":[2],"data_offsets":[0,8])"),
                       "dtype is '32', expected a string"));
  EXPECT_TRUE(mentions(entry(R"("dtype":["F32"],"shape":[2],"data_offsets":[0,8])"),
                       "dtype is a nested value"));
  EXPECT_TRUE(mentions(entry(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"),
                       "shape is '2', expected a list"));
  EXPECT_TRUE(mentions(entry(R"("dtype":"F32","shape":{},"data_offsets":[0,8])"),
                       "shape is a nested value"));
  EXPECT_TRUE(mentions(entry(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"), "nested"));
  for (const char* bad : {"-2", "2.0", "2e0", "\"2\"", "true", "null", "9223372036854775808",
                          "18446744073709551616", "-0"}) {
    EXPECT_TRUE(
        mentions(entry(std::string(R"("dtype":"F32","data_offsets":[0,8],"shape":[)") + bad + "]"),
                 "expected non-negative integers"))
        << bad;
    EXPECT_TRUE(
        mentions(entry(std::string(R"("dtype":"F32","shape":[2],"data_offsets":[0,)") + bad + "]"),
                 "expected non-negative integers"))
        << bad;
  }
  EXPECT_TRUE(mentions(entry(R"("dtype":"F32","shape":[2],"data_offsets":[8])"),
                       "data_offsets has 1 elements, expected 2"));
  EXPECT_TRUE(mentions(entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"),
                       "data_offsets has 3 elements, expected 2"));
  EXPECT_TRUE(mentions(entry(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"),
                       "shape [3] of dtype F32 needs 12 bytes, data_offsets [0,8] hold 8"));
  EXPECT_TRUE(
      mentions(entry(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8])"),
               "no whole number of bytes below 2^60"));
  EXPECT_TRUE(
      mentions(entry(R"("dtype":"F32","shape":[0,9223372036854775807,9],"data_offsets":[0,0])"),
               "no whole number of bytes below 2^60"));
  std::string many = "1";
  for (int i = 0; i < 64; ++i) many += ",1";
  EXPECT_TRUE(mentions(entry(R"("dtype":"F32","data_offsets":[0,8],"shape":[)" + many + "]"),
                       "shape has more than 64 elements"));
}

TEST_F(Safetensors, OffsetsCoverTheDataOnce) {
  const auto two = [&](const std::string& first, const std::string& second) {
    return error_of(safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)" + first +
                                    R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":)" + second +
                                    "}}",
                                eight + "wxyz"));
  };
  EXPECT_TRUE(mentions(two("[0,4]", "[0,4]"), "'b': data begin at 0, expected 4 (tensors overlap"));
  EXPECT_TRUE(mentions(two("[2,6]", "[0,4]"), "'a': data begin at 2, expected 4 (tensors overlap"));
  EXPECT_TRUE(mentions(two("[0,4]", "[8,12]"), "'b': data begin at 8, expected 4 (a hole"));
  EXPECT_TRUE(mentions(two("[4,8]", "[8,12]"), "'a': data begin at 4, expected 0 (a hole"));
  EXPECT_TRUE(mentions(two("[0,4]", "[4,8]"), "4 bytes of data after the last tensor's end at 8"));
  EXPECT_TRUE(mentions(two("[0,4]", "[10,14]"), "outside the 12 bytes of data (truncated file?)"));
  EXPECT_TRUE(mentions(two("[8,4]", "[4,8]"), "data_offsets [8,4] lie outside"));
  // an empty tensor inside another one's data is a hole for the format's own reader too
  EXPECT_TRUE(
      mentions(error_of(safetensors(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                    R"("b":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})",
                                    eight)),
               "overlap"));
}

TEST_F(Safetensors, DeepNestingIsRefusedWithoutRecursion) {
  const std::string deep(1'000'000, '[');
  EXPECT_TRUE(mentions(error_of(safetensors("{\"a\":" + deep)), "'a': is a list"));
  put("x.json", "{\"a\":" + deep);
  EXPECT_TRUE(
      mentions(message_of([&] { open(safetensors("{}")); }), "x.json: nested deeper than 64"));
}

TEST_F(Safetensors, NamesCannotBreakTheLineOrTheTerminal) {
  const std::string message = error_of(safetensors("{\"a\\n\\u001b[31m\\u009b\":1}"));
  EXPECT_TRUE(mentions(message, R"('a\x0a\x1b[31m\xc2\x9b')"));
  EXPECT_TRUE(mentions(error_of(safetensors("{\"" + std::string(500, 'n') + "\":1}")),
                       "'" + std::string(80, 'n') + "...'"));
}

TEST_F(Safetensors, OnlyRegularFilesAreOpened) {
  const auto error = [](const std::string& file) {
    return message_of([&] { TensorFile::open(file); });
  };
  EXPECT_TRUE(mentions(error(path("none.safetensors")), "No such file"));
  EXPECT_TRUE(mentions(error(""), "No such file"));
  EXPECT_TRUE(mentions(error(folder_.string()), "is a directory, expected a regular file"));
  EXPECT_TRUE(mentions(error("/dev/null"), "is a device or socket"));
  EXPECT_TRUE(mentions(error("/dev/zero"), "is a device or socket"));
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_TRUE(mentions(error(path("fifo")), "is a FIFO"));  // and does not block
  EXPECT_TRUE(mentions(error(put("empty.safetensors", "")), "is empty"));
  EXPECT_TRUE(mentions(error(path("x") + std::string("\0y", 2)), "NUL byte"));
}

TEST_F(Safetensors, Sidecar) {
  const std::string bytes = safetensors(R"({"__metadata__":{"scale":"0.25"}})");
  put("x.json",
      R"({"scale":0.5,"mask":"none","causal":true,"n":12,"neg":-3,"f":0.08838834764831843,)"
      R"("big":123456789012345678901234567890,"skip":null,"layers":[{"a":1},{"a":2}]})");
  const auto file = open(bytes);
  EXPECT_EQ(file->sidecar_path(), path("x.json"));
  const std::map<std::string, std::string> expected = {{"scale", "0.25"},
                                                       {"mask", "none"},
                                                       {"causal", "true"},
                                                       {"n", "12"},
                                                       {"neg", "-3"},
                                                       {"f", "0.08838834764831843"},
                                                       {"big", "123456789012345678901234567890"}};
  EXPECT_EQ(file->metadata(), expected);
  EXPECT_EQ(file->metadata_source("scale"), "metadata");
  EXPECT_EQ(file->metadata_source("mask"), "sidecar");

  put("x.json", R"({"lengths":[512,300]})");
  EXPECT_EQ(open(bytes)->metadata().at("lengths"), "512,300");

  const auto sidecar_error = [&](const std::string& text) {
    put("x.json", text);
    const std::string message = message_of([&] { open(bytes); });
    EXPECT_TRUE(mentions(message, path("x.json")));
    return message;
  };
  EXPECT_TRUE(mentions(sidecar_error(""), "not valid JSON"));
  EXPECT_TRUE(mentions(sidecar_error("{\"a\":1"), "not valid JSON"));
  EXPECT_TRUE(mentions(sidecar_error("[1]"), "expected a JSON object"));
  EXPECT_TRUE(mentions(sidecar_error("3"), "expected a JSON object"));
  EXPECT_TRUE(mentions(sidecar_error("\xEF\xBB\xBF{}"), "byte order mark"));
  EXPECT_TRUE(mentions(sidecar_error(R"({"scale":1,"scale":2})"), "duplicate key 'scale'"));
  EXPECT_TRUE(mentions(sidecar_error(R"({"x":[{"a":1,"a":2}]})"), "duplicate key 'a'"));
  for (const char* key : {"scale", "causal", "mask", "layout"}) {
    EXPECT_TRUE(mentions(sidecar_error("{\"" + std::string(key) + "\":[1]}"), "nested value"));
    EXPECT_TRUE(mentions(sidecar_error("{\"" + std::string(key) + "\":{}}"), "nested value"));
  }
  for (const char* bad : {"[]", "[1.5]", "[-1]", "[[1]]", "{}", "[true]"}) {
    EXPECT_TRUE(mentions(sidecar_error("{\"lengths\":" + std::string(bad) + "}"),
                         "expected an integer or a list of integers"))
        << bad;
  }
  std::filesystem::remove(path("x.json"));
  ASSERT_EQ(::mkfifo(path("x.json").c_str(), 0600), 0);
  EXPECT_TRUE(mentions(message_of([&] { open(bytes); }), "is a FIFO"));
}

TEST_F(Safetensors, NoticesChanges) {
  const auto file = open(safetensors("{}"));
  file->require_unchanged();
  std::ofstream(path("x.safetensors"), std::ios::app) << ' ';
  EXPECT_TRUE(mentions(message_of([&] { file->require_unchanged(); }), "changed while"));
  std::filesystem::remove(path("x.safetensors"));
  EXPECT_TRUE(mentions(message_of([&] { file->require_unchanged(); }), "changed while"));
}

TEST_F(Safetensors, SummaryListsTwentyAndCounts) {
  std::string header = "{";
  for (int i = 0; i < 25; ++i) {
    header += (i > 0 ? ",\"t" : "\"t") + std::to_string(i) +
              R"(":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]})";
  }
  const std::string text = open(safetensors(header + "}"))->summary();
  EXPECT_TRUE(mentions(text, "'t0' [0,4] fp32, 't1' [0,4] fp32"));
  EXPECT_TRUE(mentions(text, "'t19' [0,4] fp32 and 5 more"));
}

const std::string small_header =
    R"({"__metadata__":{"scale":"0.5"},"l.q":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]},)"
    R"("l.k":{"dtype":"BF16","shape":[2,2],"data_offsets":[8,16]},)"
    R"("l.v":{"dtype":"F32","shape":[1,2],"data_offsets":[16,24]}})";

TEST_F(Safetensors, TruncationAtEveryByteIsAnInputError) {
  const std::string whole = safetensors(small_header, eight + eight + eight);
  EXPECT_EQ(open(whole)->tensors().size(), 3U);
  const tests::MemoryFile memory;
  for (std::size_t n = 0; n < whole.size(); ++n) {
    EXPECT_THROW(TensorFile::open(memory.put(whole.substr(0, n))), InputError) << n;
  }
  EXPECT_THROW(TensorFile::open(memory.put(whole + "x")), InputError);
}

TEST_F(Safetensors, RandomDamageIsReadOrRefused) {
  const std::string whole = safetensors(small_header, eight + eight + eight);
  const std::size_t header_end = 8 + small_header.size();
  const tests::MemoryFile memory;
  std::mt19937_64 random(20240229);
  int opened = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string damaged = whole;
    const int flips = 1 + static_cast<int>(random() % 3);
    for (int f = 0; f < flips; ++f) {
      damaged[random() % header_end] ^= static_cast<char>(1U << random() % 8);
    }
    const std::string file = memory.put(damaged);
    try {
      const auto tensors = TensorFile::open(file);
      ++opened;
      unsigned sum = 0;
      for (const Tensor& tensor : tensors->tensors()) {
        ASSERT_GE(tensor.bytes, 0);
        ASSERT_LE(tensor.bytes, 24);
        for (std::int64_t b = 0; b < tensor.bytes; ++b) {
          sum += std::to_integer<unsigned>(tensor.data[b]);
        }
      }
      ASSERT_LE(sum, 24U * 255U);
    } catch (const InputError& error) {
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(opened, 100);  // names and metadata may change freely
}

}  // namespace
}  // namespace headroom
