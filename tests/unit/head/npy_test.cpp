#include <random>

#include "reference/head/tensor_file.h"
#include "tests/unit/head/scratch.h"

namespace headroom {
namespace {

using tests::mentions;
using tests::message_of;
using tests::npy;

class Npy : public tests::Scratch {
 protected:
  std::shared_ptr<const TensorFile> open(const std::string& bytes) {
    return TensorFile::open(put("query.npy", bytes));
  }
  std::string error_of(const std::string& bytes) {
    const std::string file = put("query.npy", bytes);
    const std::string message = message_of([&] { TensorFile::open(file); });
    EXPECT_TRUE(mentions(message, file));
    return message;
  }
  std::string dict_error(const std::string& dict) { return error_of(npy(dict, "abcdefgh")); }
  std::string dtype_error(const std::string& descr) {
    return dict_error("{'descr': " + descr + ", 'fortran_order': False, 'shape': (2,), }");
  }
};

TEST_F(Npy, ReadsVersionsOneToThree) {
  for (const char major : {'\x01', '\x02', '\x03'}) {
    const auto file =
        open(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }", "abcdefgh", major));
    ASSERT_EQ(file->tensors().size(), 1U);
    const Tensor& tensor = file->tensors()[0];
    EXPECT_EQ(tensor.name, "query");
    EXPECT_TRUE(tensor.format == fp32);
    EXPECT_EQ(tensor.shape, (std::vector<std::int64_t>{1, 2}));
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(tensor.data), 8), "abcdefgh");
  }
  EXPECT_TRUE(mentions(error_of(npy("{}", "", '\x04')), "npy version 4.0, expected 1.0, 2.0"));
  EXPECT_TRUE(mentions(error_of(npy("{}", "", '\x00')), "npy version 0.0"));
}

TEST_F(Npy, DictSpellings) {
  EXPECT_TRUE(open(npy("{\"shape\":(2,2),\"fortran_order\":False,\"descr\":\"<f2\"}", "abcdefgh"))
                  ->tensors()[0]
                  .format == fp16);
  EXPECT_EQ(
      open(npy("{ 'shape' : ( 4L , ) , 'descr' : '<f2' , 'fortran_order' : False }  ", "abcdefgh"))
          ->tensors()[0]
          .shape,
      (std::vector<std::int64_t>{4}));
  EXPECT_EQ(open(npy("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", "abcd"))
                ->tensors()[0]
                .shape,
            std::vector<std::int64_t>{});
  EXPECT_EQ(open(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9)}", ""))
                ->tensors()[0]
                .bytes,
            0);
  // one dimension is the same in either order
  EXPECT_EQ(open(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2,)}", "abcdefgh"))
                ->tensors()[0]
                .bytes,
            8);
}

TEST_F(Npy, EachRefusedDtypeSaysWhy) {
  EXPECT_TRUE(mentions(dtype_error("'>f4'"), "big-endian"));
  EXPECT_TRUE(mentions(dtype_error("'>f2'"), "big-endian"));
  EXPECT_TRUE(mentions(dtype_error("'|V2'"), "bfloat16 saved by numpy loses its type"));
  EXPECT_TRUE(mentions(dtype_error("'<V2'"), "bfloat16 saved by numpy loses its type"));
  EXPECT_TRUE(mentions(dtype_error("'V1'"), "void"));
  EXPECT_TRUE(mentions(dtype_error("'<f1'"), "8-bit float"));
  EXPECT_TRUE(mentions(dtype_error("'<f8'"), "float64"));
  EXPECT_TRUE(mentions(dtype_error("'|O'"), "pickled"));
  EXPECT_TRUE(mentions(dtype_error("'<i4'"), "no operand format"));
  EXPECT_TRUE(mentions(dtype_error("'f4'"), "no operand format"));
  EXPECT_TRUE(mentions(dtype_error("'|f4'"), "no operand format"));
  EXPECT_TRUE(mentions(dtype_error("'=f4'"), "no operand format"));
  EXPECT_TRUE(mentions(dtype_error("''"), "no operand format"));
  EXPECT_TRUE(mentions(dtype_error("[('a', '<f4')]"), "structured dtype"));
}

TEST_F(Npy, FortranOrder) {
  EXPECT_TRUE(mentions(dict_error("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2), }"),
                       "fortran_order is True for shape [1,2], expected C order"));
  // words that begin like True or False are neither
  for (const char* word : {"Truthy", "Falsey", "true", "1", "'True'", "None", ""}) {
    EXPECT_TRUE(mentions(
        dict_error("{'descr': '<f4', 'shape': (2,), 'fortran_order': " + std::string(word) + "}"),
        "expected True or False"))
        << word;
  }
}

TEST_F(Npy, DictErrors) {
  const std::string d = "'descr': '<f4'", f = "'fortran_order': False", s = "'shape': (2,)";
  EXPECT_TRUE(mentions(dict_error("{" + d + "," + f + "}"), "key shape is missing"));
  EXPECT_TRUE(mentions(dict_error("{" + s + "," + f + "}"), "key descr is missing"));
  EXPECT_TRUE(mentions(dict_error("{" + d + "," + s + "}"), "key fortran_order is missing"));
  EXPECT_TRUE(
      mentions(dict_error("{" + d + "," + d + "," + f + "," + s + "}"), "duplicate key 'descr'"));
  EXPECT_TRUE(mentions(dict_error("{'x': 1}"), "unknown key 'x'"));
  EXPECT_TRUE(mentions(dict_error(""), "expected '{' at byte"));
  EXPECT_TRUE(mentions(dict_error("{" + d), "expected '}'"));
  EXPECT_TRUE(mentions(dict_error("{" + d + " " + f + "}"), "expected '}'"));
  EXPECT_TRUE(mentions(dict_error("{" + d + "," + f + "," + s + "} x"), "after the closing brace"));
  EXPECT_TRUE(mentions(dict_error("{'descr"), "unterminated string"));
  EXPECT_TRUE(mentions(dict_error("{'de\\x73cr': '<f4'}"), "unterminated string"));
  for (const char* bad : {"(2)", "(2 2)", "(-2,)", "(2.0,)", "(,)", "(2,,)", "[2]", "2", "(2",
                          "(99999999999999999999,)", "('2',)", "(True,)"}) {
    dict_error("{" + d + "," + f + ",'shape': " + bad + "}");
  }
  EXPECT_TRUE(
      mentions(dict_error("{" + d + "," + f + ",'shape': (4294967296, 4294967296)}"), "2^63"));
}

TEST_F(Npy, DataSizeMustFit) {
  EXPECT_TRUE(mentions(dict_error("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}"),
                       "needs 12 bytes of data, found 8 (truncated file)"));
  EXPECT_TRUE(mentions(dict_error("{'descr': '<f2', 'fortran_order': False, 'shape': (3,)}"),
                       "needs 6 bytes of data, found 8 (trailing bytes)"));
  EXPECT_TRUE(mentions(error_of("not numpy at all"), "does not begin with \\x93NUMPY"));
  EXPECT_TRUE(mentions(error_of(std::string("\x93NUMPY\x02\0\xff\xff\xff\xff{}", 14)),
                       "header length 4294967295 exceeds the limit"));
}

TEST_F(Npy, TruncationAndRandomDamage) {
  for (const char major : {'\x01', '\x02'}) {
    const std::string whole =
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }", "abcdefgh", major);
    const tests::MemoryFile memory;
    for (std::size_t n = 0; n < whole.size(); ++n) {
      EXPECT_THROW(TensorFile::open(memory.put(whole.substr(0, n))), InputError) << n;
    }
    EXPECT_THROW(TensorFile::open(memory.put(whole + "x")), InputError);
    std::mt19937_64 random(7);
    for (int i = 0; i < 3000; ++i) {
      std::string damaged = whole;
      for (std::uint64_t f = 0; f <= random() % 3; ++f) {
        damaged[random() % (whole.size() - 8)] ^= static_cast<char>(1U << random() % 8);
      }
      try {
        const auto file = TensorFile::open(memory.put(damaged));
        ASSERT_LE(file->tensors()[0].bytes, 8);
      } catch (const InputError&) {
      }
    }
  }
}

}  // namespace
}  // namespace headroom
