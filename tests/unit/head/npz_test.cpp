// Archives laid out by hand, one lie at a time, and one that numpy wrote.
#include <sys/resource.h>
#include <zlib.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <random>

#include "reference/head/load.h"
#include "reference/head/tensor_file.h"
#include "tests/unit/head/scratch.h"
#include "tests/unit/head/zip_bytes.h"

namespace headroom {
namespace {

using tests::mentions;
using tests::message_of;
using tests::npy;
using tests::ZipBytes;
using tests::ZipEntry;

std::string array(const std::string& shape, const std::string& data,
                  const std::string& descr = "<f4") {
  return npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }", data);
}

class Npz : public tests::Scratch {
 protected:
  std::shared_ptr<const TensorFile> open(const std::string& bytes,
                                         const OpenOptions& options = {}) {
    return TensorFile::open(put("x.npz", bytes), options);
  }
  std::string error_of(const std::string& bytes) {
    const std::string file = put("x.npz", bytes);
    const std::string message = message_of([&] { TensorFile::open(file); });
    EXPECT_TRUE(mentions(message, file));
    return message;
  }
  /// The message where one entry is changed and the rest is right.
  std::string entry_error(const std::function<void(ZipEntry&)>& change) {
    ZipBytes zip;
    zip.add("q.npy", array("(2,)", "abcdefgh"), true);
    change(zip.entries[0]);
    return error_of(zip.bytes());
  }
};

std::string text_of(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.data), static_cast<std::size_t>(tensor.bytes)};
}

TEST_F(Npz, StoredAndDeflatedMembers) {
  for (const bool zip64 : {false, true}) {
    ZipBytes zip;
    zip.zip64 = zip64;
    zip.add("layer1.q.npy", array("(2,)", "abcdefgh"), false);
    zip.add("layer1.k.npy", array("(2, 2)", "ijklmnop", "<f2"), true);
    zip.add("empty.npy", array("(0, 4)", ""), true);
    zip.add("steps.npy", array("(2,)", "12345678", "<i4"), true);
    zip.add("read.me", "hello", true);
    const auto file = open(zip.bytes());
    EXPECT_TRUE(file->is_npz());
    ASSERT_EQ(file->tensors().size(), 3U);
    EXPECT_EQ(file->tensors()[0].name, "layer1.q");
    EXPECT_EQ(text_of(file->tensors()[0]), "abcdefgh");
    EXPECT_TRUE(file->find("layer1.k")->format == fp16);
    EXPECT_EQ(file->find("layer1.k")->shape, (std::vector<std::int64_t>{2, 2}));
    EXPECT_EQ(text_of(*file->find("layer1.k")), "ijklmnop");
    EXPECT_EQ(file->find("empty")->bytes, 0);
    EXPECT_EQ(file->unusable().at("steps").dtype, "<i4");
    EXPECT_EQ(file->unusable().at("steps").bytes, 8);
    EXPECT_EQ(static_cast<char>(file->unusable().at("steps").data[7]), '8');
    EXPECT_EQ(file->unusable().at("read.me").dtype, "no .npy");
    file->require_unchanged();
  }
  EXPECT_TRUE(open(ZipBytes().bytes())->tensors().empty());
  ZipBytes commented;
  commented.comment = std::string(60000, 'c');
  commented.add("q.npy", array("(2,)", "abcdefgh"), false);
  EXPECT_EQ(open(commented.bytes())->tensors().size(), 1U);
}

// `numpy.savez(f, q=numpy.float32([[1, 2]]))` of numpy 1.24, its ZIP64 local header included.
TEST_F(Npz, WhatPythonsZipfileWrites) {
  const std::string member = array("(1, 2)", std::string("\0\0\x80\x3f\0\0\0\x40", 8));
  ZipBytes zip;
  zip.add("q.npy", member, false);
  zip.entries[0].local_zip64 =
      true;  // force_zip64: the sizes beside the data are in the extra field
  const auto file = open(zip.bytes());
  float values[2];
  Matrix(file, file->tensors()[0].data, fp32, 1, 2, 8).load_row(0, values);
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[1], 2);
}

TEST_F(Npz, LargeMembersAreInflatedThroughSmallBuffers) {
  std::string data(3'000'000, '\0');
  std::mt19937_64 random(3);
  for (std::size_t i = 0; i < data.size(); i += 1 + random() % 50) {
    data[i] = static_cast<char>(random() % 4);
  }
  ZipBytes zip;
  zip.add("a.npy", array("(250000,)", data.substr(0, 1'000'000)), true);
  zip.add("b.npy", array("(500, 1000)", data.substr(1'000'000)), true);
  const auto file = open(zip.bytes());
  EXPECT_TRUE(text_of(*file->find("a")) == data.substr(0, 1'000'000));
  EXPECT_TRUE(text_of(*file->find("b")) == data.substr(1'000'000));
}

TEST_F(Npz, ArraysAreCheckedAsInFilesOfTheirOwn) {
  const auto member_error = [&](const std::string& bytes) {
    ZipBytes zip;
    zip.add("q.npy", bytes, true);
    const std::string message = error_of(zip.bytes());
    EXPECT_TRUE(mentions(message, "member 'q.npy': "));
    return message;
  };
  EXPECT_TRUE(mentions(member_error(array("(3,)", "abcdefgh")), "needs 12 bytes of data, found 8"));
  EXPECT_TRUE(
      mentions(member_error(array("(3,)", "abcdefgh", "<i4")), "needs 12 bytes of data, found 8"));
  EXPECT_TRUE(mentions(member_error("no array"), "npy header is truncated"));
  EXPECT_TRUE(mentions(member_error(""), "npy header is truncated"));
  EXPECT_TRUE(mentions(member_error("no array, and long"), "does not begin with"));
  EXPECT_TRUE(mentions(
      member_error(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2)}", "abcdefgh")),
      "fortran_order is True"));
}

TEST_F(Npz, DtypesThatAreNoOperandsAreListed) {
  ZipBytes zip;
  zip.add("big.npy", array("(2,)", "abcdefgh", ">f4"), true);
  zip.add("keep.npy", array("(8,)", "abcdefgh", "|b1"), true);
  zip.add("v.npy", array("(4,)", "abcdefgh", "<V2"), true);
  zip.add("rec.npy",
          npy("{'descr': [('a', '<f4'), ('b(', '<f4', (2,))], 'fortran_order': False, "
              "'shape': (1,)}",
              "abcdefghijkl"),
          false);
  const auto file = open(zip.bytes());
  EXPECT_TRUE(file->tensors().empty());
  EXPECT_EQ(file->unusable().at("big").dtype, ">f4");
  EXPECT_EQ(file->unusable().at("keep").bytes, 8);
  EXPECT_EQ(file->unusable().at("rec").dtype, "[('a', '<f4'), ('b(', '<f4', (2,))]");
  EXPECT_EQ(file->unusable().at("v").dtype, "<V2");
  const auto as_bf16 = open(zip.bytes(), {.v2_is_bf16 = true});
  ASSERT_EQ(as_bf16->tensors().size(), 1U);
  EXPECT_TRUE(as_bf16->tensors()[0].format == bf16);
  EXPECT_TRUE(as_bf16->tensors()[0].was_void);
}

TEST_F(Npz, LiesOfTheDirectory) {
  EXPECT_TRUE(mentions(entry_error([](ZipEntry& e) { e.crc ^= 1; }), "its checksum is wrong"));
  EXPECT_TRUE(mentions(entry_error([](ZipEntry& e) { e.size += 1; }), "inflates to"));
  EXPECT_TRUE(mentions(entry_error([](ZipEntry& e) { e.size -= 1; }), "more than the"));
  EXPECT_TRUE(mentions(entry_error([](ZipEntry& e) { e.method = 12; }), "compression method 12"));
  EXPECT_TRUE(mentions(entry_error([](ZipEntry& e) { e.flags = 1; }), "is encrypted"));
  EXPECT_TRUE(mentions(entry_error([](ZipEntry& e) { e.local_name = "k.npy"; }),
                       "says something else than the directory"));
  EXPECT_TRUE(mentions(entry_error([](ZipEntry& e) { e.local_method = 0; }),
                       "says something else than the directory"));
  EXPECT_TRUE(mentions(entry_error([](ZipEntry& e) { e.offset = 7; }), "has no header at 7"));
  EXPECT_TRUE(mentions(entry_error([](ZipEntry& e) { e.offset = 0xFFFFFFF0; }), "has no header"));
  EXPECT_TRUE(mentions(entry_error([](ZipEntry& e) { e.compressed_said = 1U << 30U; }),
                       "run into the directory"));
  EXPECT_TRUE(mentions(entry_error([](ZipEntry& e) { e.disk = 3; }), "another volume"));
  EXPECT_TRUE(
      mentions(entry_error([](ZipEntry& e) { e.name = e.local_name = "q\xff.npy"; }), "no UTF-8"));
  EXPECT_TRUE(mentions(entry_error([](ZipEntry& e) { e.name = e.local_name = ""; }), "empty"));
  EXPECT_TRUE(
      mentions(entry_error([](ZipEntry& e) { e.name = e.local_name = std::string("q\0.npy", 6); }),
               "UTF-8"));
  EXPECT_TRUE(mentions(entry_error([](ZipEntry& e) { e.name = e.local_name = "data.pkl"; }),
                       "expected members that end in .npy (a PyTorch file?"));
  EXPECT_TRUE(mentions(entry_error([](ZipEntry& e) {
                         e.compressed.pop_back();
                         e.compressed_said = e.compressed.size();
                       }),
                       "deflated data are cut off"));
  EXPECT_TRUE(
      mentions(entry_error([](ZipEntry& e) { e.compressed += "more"; }), "4 bytes of data left"));
  EXPECT_TRUE(mentions(entry_error([](ZipEntry& e) { e.compressed[0] = '\x07'; }), "are damaged"));
  EXPECT_TRUE(
      mentions(entry_error([](ZipEntry& e) { e.size = 0xFFFFFFFF; }), "ZIP64 sizes are missing"));

  ZipBytes stored;
  stored.add("q.npy", array("(2,)", "abcdefgh"), false);
  const std::string good = stored.bytes();
  std::string bad = good;
  bad[bad.find("abcd")] ^= 1;
  EXPECT_TRUE(mentions(error_of(bad), "member 'q.npy': its checksum is wrong"));
  stored.entries[0].size -= 1;
  EXPECT_TRUE(mentions(error_of(stored.bytes()), "stored as it is, yet of"));

  ZipBytes twice;
  twice.add("q.npy", array("(2,)", "abcdefgh"), false);
  twice.add("q.npy", array("(2,)", "abcdefgh"), false);
  EXPECT_TRUE(mentions(error_of(twice.bytes()), "member 'q.npy' is there twice"));

  EXPECT_TRUE(mentions(error_of("x" + good), "does not begin with PK, expected a .npz archive"));
  EXPECT_TRUE(mentions(error_of(good + "x"), "no end of its directory"));
  EXPECT_TRUE(mentions(error_of(good.substr(0, good.size() - 1)), "no end of its directory"));
}

TEST_F(Npz, DirectoryLies) {
  const auto change = [&](std::size_t from_end, std::uint16_t value, bool zip64 = false) {
    ZipBytes zip;
    zip.zip64 = zip64;
    zip.add("q.npy", array("(2,)", "abcdefgh"), true);
    std::string bytes = zip.bytes();
    bytes[bytes.size() - from_end] = static_cast<char>(value & 0xFFU);
    bytes[bytes.size() - from_end + 1] = static_cast<char>(value >> 8U);
    return error_of(bytes);
  };
  EXPECT_TRUE(mentions(change(22 - 4, 1), "several volumes"));
  EXPECT_TRUE(mentions(change(22 - 8, 2), "several volumes"));
  EXPECT_TRUE(mentions(change(22 - 12, 7), "expected it to end at"));
  EXPECT_TRUE(mentions(change(22 - 16, 7), "expected it to end at"));
  EXPECT_TRUE(mentions(change(22 + 20 - 8, 7, true), "ZIP64 record is not where"));
  EXPECT_TRUE(mentions(change(22 + 20 + 56 - 4, 45, true), "of another length"));
  ZipBytes zip;
  zip.add("q.npy", array("(2,)", "abcdefgh"), true);
  zip.claimed_members = 2;
  EXPECT_TRUE(mentions(error_of(zip.bytes()), "entry 1 of the directory is cut off"));
  zip.claimed_members = 0;
  EXPECT_TRUE(mentions(error_of(zip.bytes()), "bytes behind the last entry"));
}

TEST_F(Npz, BombsAreRefusedByALimit) {
  // more than the format can hold in so few bytes
  EXPECT_TRUE(
      mentions(entry_error([](ZipEntry& e) { e.size = 1U << 31U; }), "more than deflate can hold"));
  // members that share bytes
  ZipBytes shared;
  shared.add("a.npy", array("(2,)", "abcdefgh"), true);
  shared.add("a.npy", array("(2,)", "abcdefgh"), true);
  shared.entries[1].name = "b.npy";
  shared.entries[1].offset = 0;
  EXPECT_TRUE(mentions(error_of(shared.bytes()), "says something else"));
  shared.entries[1].name = "a.npy";
  EXPECT_TRUE(mentions(error_of(shared.bytes()), "is there twice"));
  // an inner member in an outer stored one
  ZipBytes inner;
  inner.add("b.npy", array("(2,)", "abcdefgh"), true);
  const std::string inner_bytes = inner.bytes();
  ZipBytes outer;
  outer.add("a.npy", inner_bytes, false);
  outer.entries.push_back(inner.entries[0]);
  outer.entries[1].is_directory_only = true;
  outer.entries[1].offset = 30 + 5;
  EXPECT_TRUE(mentions(error_of(outer.bytes()), "overlaps the one before"));
  // honest, dense, and beyond the limit: nothing is inflated before the sum is known
  ZipBytes dense;
  for (int i = 0; i < 3; ++i) {
    dense.add("z" + std::to_string(i) + ".npy", "x", true);
    dense.entries.back().compressed = std::string(3'000'000, '\0');
    dense.entries.back().size = 3'000'000'000;
  }
  EXPECT_TRUE(mentions(error_of(dense.bytes()),
                       "deflated members hold more than 8589934592 bytes, the limit"));
}

TEST_F(Npz, InflatingNeedsRoom) {
  ZipBytes zip;
  zip.add("q.npy", array("(50000,)", std::string(200000, 'x')), true);
  const std::string file = put("x.npz", zip.bytes());
  const char* old_folder = std::getenv("TMPDIR");
  const std::string saved = old_folder == nullptr ? "" : old_folder;
  ::setenv("TMPDIR", path("none").c_str(), 1);
  EXPECT_TRUE(mentions(message_of([&] { TensorFile::open(file); }), "cannot inflate into"));
  if (old_folder == nullptr) {
    ::unsetenv("TMPDIR");
  } else {
    ::setenv("TMPDIR", saved.c_str(), 1);
  }
  // a file size limit stands in for a full disk
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = 1000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of([&] { TensorFile::open(file); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(mentions(message, "File too large"));
  EXPECT_EQ(TensorFile::open(file)->tensors().size(), 1U);
}

TEST_F(Npz, TruncationAndRandomDamage) {
  ZipBytes zip;
  zip.add("a.npy", array("(2,)", "abcdefgh"), false);
  zip.add("b.npy", array("(2,)", "ijklmnop"), true);
  const std::string whole = zip.bytes();
  const tests::MemoryFile memory;
  for (std::size_t n = 0; n < whole.size(); ++n) {
    EXPECT_THROW(TensorFile::open(memory.put(whole.substr(0, n))), InputError) << n;
  }
  std::mt19937_64 random(11);
  int opened = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = whole;
    for (std::uint64_t f = 0; f <= random() % 3; ++f) {
      damaged[random() % whole.size()] ^= static_cast<char>(1U << random() % 8);
    }
    try {
      const auto file = TensorFile::open(memory.put(damaged));
      ++opened;  // flags, dates and versions may change freely; the bytes of an array may not
      for (const Tensor& tensor : file->tensors()) {
        const std::string text = text_of(tensor);
        ASSERT_TRUE(text == "abcdefgh" || text == "ijklmnop") << text;
      }
    } catch (const InputError& error) {
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(opened, 30);
}

TEST_F(Npz, HeadsOfAnArchive) {
  const std::string words(2 * 3 * 4 * 2, '\x3c');
  ZipBytes zip;
  for (const char* name : {"layer1.q", "layer1.k", "layer1.v"}) {
    zip.add(std::string(name) + ".npy", array("(2, 3, 4)", words, "|V2"), true);
  }
  const std::string file = put("x.npz", zip.bytes());
  put("x.json", R"({"scale":0.25})");
  EXPECT_TRUE(mentions(message_of([&] { load_heads(file, {}); }),
                       "bfloat16 saved by numpy is read with --npy-v2 bf16"));
  LoadOptions options;
  options.open.v2_is_bf16 = true;
  const auto heads = load_heads(file, options);
  ASSERT_EQ(heads.size(), 2U);
  EXPECT_EQ(heads[1].id, "x:layer1.1");
  EXPECT_TRUE(heads[1].q.format() == bf16);
  EXPECT_EQ(heads[1].scale.text(), "1/4");
  EXPECT_EQ(heads[1].q.code(2, 3), 0x3c3cU);
  ASSERT_EQ(heads[1].warnings.size(), 3U);
  EXPECT_TRUE(mentions(heads[1].warnings[0], "'layer1.q' has words of no type (V2)"));
  heads[1].require_unchanged();
  put("x.npz", "gone");
  EXPECT_TRUE(mentions(message_of([&] { heads[1].require_unchanged(); }), "changed while"));
}

}  // namespace
}  // namespace headroom
