// Files that other readers took for something else, from public reports: header limits and shapes
// (safetensors issues 401, 466, 668; modelaudit 1607), byte order (safetensors 307, 448; NpyCpp 2;
// loaders.gl 986), Fortran order (cnpy 7; tract 655; libnpy 10), lost dtypes (ml_dtypes 41, 216;
// keras 19091). And what surrounds a file: alignment, locales, names.
#include <clocale>
#include <cmath>
#include <locale>
#include <tuple>

#include "reference/head/load.h"
#include "reference/head/tensor_file.h"
#include "tests/unit/head/scratch.h"

namespace headroom {
namespace {

using tests::mentions;
using tests::message_of;
using tests::npy;
using tests::safetensors;

class ReportedFiles : public tests::Scratch {
 protected:
  std::string error_of(const std::string& name, const std::string& bytes) {
    const std::string file = put(name, bytes);
    const std::string message = message_of([&] { TensorFile::open(file); });
    EXPECT_TRUE(mentions(message, file));
    return message;
  }
  std::vector<Head> load(const std::string& header, const std::string& data,
                         const LoadOptions& options = {}) {
    return load_heads(put("x.safetensors", safetensors(header, data)), options);
  }
};

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  std::size_t begin, std::size_t end) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape +
         R"(,"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

// safetensors 668: a header of 132,095,296 bytes is beyond the format's cap of 100 MB.
TEST_F(ReportedFiles, HeaderOfMillionsOfTensors) {
  std::string length(8, '\0');
  for (std::uint64_t n = 132095296, i = 0; i < 8; ++i, n >>= 8U) {
    length[i] = static_cast<char>(n & 0xFFU);
  }
  EXPECT_TRUE(mentions(error_of("x.safetensors", length + "{}"),
                       "header length 132095296 exceeds the limit of 100000000"));
  // below the cap in bytes, the keys of the metadata are limited in number
  std::string keys = "{\"__metadata__\":{";
  for (int i = 0; i <= 65536; ++i) {
    keys += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":\"\"";
  }
  EXPECT_TRUE(mentions(error_of("x.safetensors", safetensors(keys + "}}")),
                       "more than 65536 keys of __metadata__"));
}

// safetensors 401: reported as bad offsets there.
TEST_F(ReportedFiles, DuplicateKeyIsCalledThat) {
  EXPECT_TRUE(
      mentions(error_of("x.safetensors", safetensors("{" + entry("q", "F32", "[1]", 0, 4) + "," +
                                                         entry("q", "F32", "[1]", 4, 8) + "}",
                                                     "abcdefgh")),
               "duplicate key 'q'"));
}

// safetensors 466: a file of metadata alone was once written with a comma too many.
TEST_F(ReportedFiles, MetadataAlone) {
  EXPECT_TRUE(mentions(error_of("x.safetensors", safetensors(R"({"__metadata__":{"a":"b"},})")),
                       "not valid JSON at byte"));
  const auto file =
      TensorFile::open(put("x.safetensors", safetensors(R"({"__metadata__":{"a":"b"}})")));
  EXPECT_EQ(file->metadata().at("a"), "b");
  EXPECT_TRUE(file->tensors().empty());
}

// modelaudit 1607: `scaled_fp8` of shape [0], offsets equal, at the end and between others.
TEST_F(ReportedFiles, EmptyTensorsBesideHeads) {
  const std::string header =
      "{" + entry("scaled_fp8", "F8_E4M3", "[0]", 0, 0) + "," + entry("q", "F32", "[1,1]", 0, 4) +
      "," + entry("scale_weight", "F32", "[0]", 4, 4) + "," + entry("k", "F32", "[1,1]", 4, 8) +
      "," + entry("v", "F32", "[1,1]", 8, 12) + "}";
  EXPECT_EQ(load(header, std::string(12, '\0')).size(), 1U);
  EXPECT_TRUE(mentions(message_of([&] {
                         load("{" + entry("q", "F32", "[0,1]", 0, 0) + "," +
                                  entry("k", "F32", "[0,1]", 0, 0) + "," +
                                  entry("v", "F32", "[0,1]", 0, 0) + "}",
                              "");
                       }),
                       "shape [0,1] is empty: no head to judge"));
}

// safetensors 307, 448: ones in BF16 came out as another number on a big-endian machine. The file
// has one byte order; 3F 80 are the bytes of -63 * 2^-133 in it, and the reader exchanges nothing.
TEST_F(ReportedFiles, WordsAreLittleEndian) {
  const std::string header = "{" + entry("q", "BF16", "[1,2]", 0, 4) + "," +
                             entry("k", "BF16", "[1,2]", 4, 8) + "," +
                             entry("v", "BF16", "[1,2]", 8, 12) + "}";
  const std::string ones = "\x80\x3f\x80\x3f", exchanged = "\x3f\x80\x3f\x80";
  const auto heads = load(header, ones + exchanged + ones);
  double row[2];
  heads.at(0).q.load_row(0, row);
  EXPECT_EQ(row[0], 1);
  heads[0].k.load_row(0, row);
  EXPECT_EQ(row[0], -63 * 0x1p-133);
  EXPECT_EQ(heads[0].k.code(0, 0), 0x803fU);
}

TEST_F(ReportedFiles, BigEndianIsRefusedNotSwappedNorIgnored) {
  for (const char* dtype : {">f4", ">f2"}) {
    EXPECT_TRUE(mentions(error_of("q.npy", npy("{'descr': '" + std::string(dtype) +
                                                   "', 'fortran_order': False, 'shape': (1,), }",
                                               "abcd")),
                         "big-endian, expected little-endian"));
  }
}

// cnpy 7 compares five characters of 'True' and finds False; a transposed K changes every score.
TEST_F(ReportedFiles, FortranOrderIsRefused) {
  for (const char* spelled : {"True", " True ", "True\n"}) {
    EXPECT_TRUE(mentions(error_of("k.npy", npy("{'descr': '<f4', 'fortran_order':" +
                                                   std::string(spelled) + ", 'shape': (2, 1), }",
                                               "abcdefgh")),
                         "fortran_order is True"));
  }
}

// keras 19091 took any void of two bytes for bfloat16: an FP16 tensor would be misread.
TEST_F(ReportedFiles, LostDtypesAreReadOnlyOnRequest) {
  const auto file = [&](const std::string& descr) {
    return put("q.npy", npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (1, 2), }",
                            descr.ends_with('2') ? "\x80\x3f\x80\x3f" : "\x38\x38"));
  };
  for (const char* descr : {"|V2", "<V2", "V2"}) {
    const std::string name = file(descr);
    EXPECT_TRUE(mentions(message_of([&] { TensorFile::open(name); }), "--npy-v2 bf16")) << descr;
    const auto read = TensorFile::open(name, {.v2_is_bf16 = true});
    EXPECT_TRUE(read->tensors().at(0).format == bf16);
    EXPECT_TRUE(read->tensors()[0].was_void);
  }
  for (const char* descr : {">V2", "=V2", "|V1", "<V1", "<f1", "|V4", "|V22"}) {
    const std::string name = file(descr);
    EXPECT_NE(message_of([&] { TensorFile::open(name, {.v2_is_bf16 = true}); }), "") << descr;
  }
}

// FP8 in .safetensors: all 256 codes, against the OCP definition in exact arithmetic.
TEST_F(ReportedFiles, EightBitFloatsAreOperands) {
  std::string codes(256, '\0');
  for (int i = 0; i < 256; ++i) codes[static_cast<std::size_t>(i)] = static_cast<char>(i);
  for (const auto& [dtype, exponent_bits, significand_bits, bias] :
       {std::tuple{"F8_E4M3", 4, 3, 7}, std::tuple{"F8_E5M2", 5, 2, 15}}) {
    const auto heads = load("{" + entry("q", dtype, "[16,16]", 0, 256) + "," +
                                entry("k", dtype, "[16,16]", 256, 512) + "," +
                                entry("v", dtype, "[16,16]", 512, 768) + "}",
                            codes + codes + codes);
    const bool has_infinity = exponent_bits == 5;
    for (unsigned code = 0; code < 256; ++code) {
      double row[16];
      heads.at(0).v.load_row(code / 16, row);
      const double found = row[code % 16];
      const unsigned significand = code & ((1U << significand_bits) - 1);
      const unsigned exponent = (code & 0x7FU) >> significand_bits;
      const bool top = exponent + 1 == 1U << exponent_bits;
      const bool is_nan = has_infinity ? top && significand != 0 : (code & 0x7FU) == 0x7F;
      if (is_nan) {
        EXPECT_NE(found, found) << code;
        continue;
      }
      // integers times a power of two, exact in doubles
      double expected = exponent == 0 ? significand : significand + (1U << significand_bits);
      const int power = static_cast<int>(exponent == 0 ? 1 : exponent) - bias - significand_bits;
      for (int i = 0; i < power; ++i) expected *= 2;
      for (int i = 0; i < -power; ++i) expected /= 2;
      if (has_infinity && top) expected = HUGE_VAL;
      EXPECT_EQ(found, code < 128 ? expected : -expected) << code;
    }
  }
}

// The header's length decides where the data begin: every word may be at an odd address.
TEST_F(ReportedFiles, UnalignedData) {
  std::string header = "{" + entry("q", "F32", "[1,2]", 0, 8) + "," +
                       entry("k", "F32", "[1,2]", 8, 16) + "," +
                       entry("v", "F32", "[1,2]", 16, 24) + "}";
  const float values[2] = {1.5F, -0x1p-149F};
  std::string words(reinterpret_cast<const char*>(values), 8);
  for (int padding = 0; padding < 4; ++padding, header += ' ') {
    const auto heads = load(header, words + words + words);
    float row[2];
    heads.at(0).k.load_row(0, row);
    EXPECT_EQ(row[0], 1.5F);
    EXPECT_EQ(row[1], -0x1p-149F);
    EXPECT_EQ(heads[0].q.cast(fp16, Rounding::nearest_even).code(0, 0), 0x3e00U);
  }
}

struct CommaPoint : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

// A locale whose decimal point is a comma, in C++ streams and, where one is installed, in C.
TEST_F(ReportedFiles, LocaleChangesNothing) {
  const std::string header =
      R"({"__metadata__":{"lengths":"1"},)" + entry("q", "F32", "[1,1]", 0, 4) + "," +
      entry("k", "F32", "[1,1]", 4, 8) + "," + entry("v", "F32", "[1,1]", 8, 12) + "}";
  put("x.json", R"({"scale":0.08838834764831843,"exponent":1.5e-3,"count":1234567})");
  const std::locale before =
      std::locale::global(std::locale(std::locale::classic(), new CommaPoint));
  const std::string c_before = std::setlocale(LC_ALL, nullptr);
  bool has_comma = false;
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE", "pt_BR.UTF-8"}) {
    has_comma = has_comma || std::setlocale(LC_ALL, name) != nullptr;
  }
  const auto heads = load(header, std::string(12, '\0'));
  const auto file = TensorFile::open(path("x.safetensors"));
  LoadOptions bad_scale;
  bad_scale.scale = "0,5";
  const std::string message = message_of([&] { load(header, std::string(12, '\0'), bad_scale); });
  std::setlocale(LC_ALL, c_before.c_str());
  std::locale::global(before);
  EXPECT_EQ(file->metadata().at("scale"), "0.08838834764831843");
  EXPECT_EQ(file->metadata().at("exponent"), "1.5e-3");
  EXPECT_EQ(file->metadata().at("count"), "1234567");
  EXPECT_EQ(heads.at(0).scale.text(), Scale::parse("0.08838834764831843", 1).text());
  EXPECT_TRUE(mentions(message, "'0,5'"));
  if (!has_comma) GTEST_SKIP() << "no locale with a decimal comma is installed: C part not run";
}

TEST_F(ReportedFiles, NamesThatAreNoUtf8) {
  EXPECT_TRUE(mentions(error_of("x.safetensors", safetensors("{\"q\xff\":{}}")), "not valid JSON"));
  // the name of a file may be any bytes
  const std::string name = put("caf\xe9.safetensors", safetensors("{}"));
  EXPECT_EQ(TensorFile::open(name)->stem(), "caf\xe9");
}

}  // namespace
}  // namespace headroom
