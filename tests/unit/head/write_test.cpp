// Round trips, the bytes of small files, and that failures leave nothing behind.
#include "reference/head/write.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include "reference/head/tensor_file.h"
#include "tests/unit/head/scratch.h"

namespace headroom {
namespace {

using tests::mentions;
using tests::message_of;

class Write : public tests::Scratch {
 protected:
  int entries() const {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      (void)entry;
      ++count;
    }
    return count;
  }
};

TEST_F(Write, AtomicFile) {
  atomic_write_file(path("a"), "one");
  EXPECT_EQ(get(path("a")), "one");
  atomic_write_file(path("a"), std::string("tw\0o", 4));
  EXPECT_EQ(get(path("a")), std::string("tw\0o", 4));
  atomic_write_file(path("a"), "");
  EXPECT_EQ(get(path("a")), "");
  EXPECT_EQ(entries(), 1);
  struct stat status {};
  ASSERT_EQ(::stat(path("a").c_str(), &status), 0);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  EXPECT_EQ(status.st_mode & 0777U, 0666U & ~mask);

  std::filesystem::create_symlink("a", path("link"));
  atomic_write_file(path("link"), "through");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(get(path("a")), "through");
}

TEST_F(Write, FailuresLeaveTheTargetAndNoTemporaryFile) {
  EXPECT_TRUE(mentions(message_of([&] { atomic_write_file(path("none/a"), "x"); }), "none/a"));
  EXPECT_TRUE(mentions(message_of([&] { atomic_write_file(folder_.string(), "x"); }),
                       "is no regular file"));
  EXPECT_TRUE(
      mentions(message_of([] { atomic_write_file("/dev/null", "x"); }), "is no regular file"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_THROW(atomic_write_file("", "x"), InputError);
  EXPECT_THROW(atomic_write_file(std::string("a\0b", 3), "x"), InputError);
  EXPECT_EQ(entries(), 0);

  // a file size limit stands in for a full disk
  atomic_write_file(path("a"), "before");
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = 1000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message =
      message_of([&] { atomic_write_file(path("a"), std::string(5000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(mentions(message, path("a") + ": cannot write: File too large"));
  EXPECT_EQ(get(path("a")), "before");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Write, SafetensorsBytes) {
  TensorWriter writer;
  const std::string half = "abcd", single = "wxyz";
  writer.add("h", fp16, {2}, std::as_bytes(std::span(half)));
  writer.add("s", fp32, {1}, std::as_bytes(std::span(single)));
  writer.write_safetensors(path("x.safetensors"));
  // header order as added, wider data first
  std::string header = R"({"h":{"dtype":"F16","shape":[2],"data_offsets":[4,8]},)"
                       R"("s":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(get(path("x.safetensors")), tests::safetensors(header, "wxyzabcd"));
}

TEST_F(Write, SafetensorsRoundTrip) {
  TensorWriter writer;
  const Matrix a = Matrix::from_values(bf16, 2, 3, {1, -2, 0.5, 0, -0.0, 3});
  const Matrix b = Matrix::from_values(bf16, 2, 3, {7, 8, 9, 10, 11, 12});
  writer.add("layer0.q", {a, b});
  writer.add("layer0.k", Matrix::from_values(fp32, 1, 1, {0x1p-149}));
  writer.add("odd \"name\"\n\xC3\xA9", a);
  writer.set_metadata("scale", "1/sqrt(d)");
  writer.write_safetensors(path("x.safetensors"));
  const auto file = TensorFile::open(path("x.safetensors"));
  ASSERT_EQ(file->tensors().size(), 3U);
  EXPECT_EQ(file->find("layer0.q")->shape, (std::vector<std::int64_t>{2, 2, 3}));
  EXPECT_EQ(file->find("odd \"name\"\n\xC3\xA9")->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(file->metadata().at("scale"), "1/sqrt(d)");
  const Tensor& stack = *file->find("layer0.q");
  EXPECT_EQ(Matrix(file, stack.data, bf16, 2, 3, 6).sha256(), a.sha256());
  EXPECT_EQ(Matrix(file, stack.data + 12, bf16, 2, 3, 6).sha256(), b.sha256());
  TensorWriter().write_safetensors(path("none.safetensors"));
  EXPECT_TRUE(TensorFile::open(path("none.safetensors"))->tensors().empty());
}

TEST_F(Write, NpyBytesAndRoundTrip) {
  TensorWriter writer;
  const std::string words = "abcdefgh";
  writer.add("m", fp16, {2, 2}, std::as_bytes(std::span(words)));
  writer.add("l", fp32, {2}, std::as_bytes(std::span(words)));
  writer.add("b", bf16, {4}, std::as_bytes(std::span(words)));
  writer.write_npy("m", path("m.npy"));
  const std::string bytes = get(path("m.npy"));
  // numpy 1.x writes exactly these: 128 bytes of header, dict padded and ended by a newline
  EXPECT_EQ(bytes.substr(0, 10), std::string("\x93NUMPY\x01\0\x76\0", 10));
  EXPECT_EQ(bytes.substr(10, 58), "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 2), ");
  EXPECT_EQ(bytes.size(), 136U);
  EXPECT_EQ(bytes[127], '\n');
  EXPECT_EQ(bytes.substr(128), words);
  writer.write_npy("l", path("l.npy"));
  EXPECT_EQ(TensorFile::open(path("l.npy"))->tensors()[0].shape, (std::vector<std::int64_t>{2}));
  EXPECT_THROW(writer.write_npy("b", path("b.npy")), std::invalid_argument);
  EXPECT_THROW(writer.write_npy("none", path("b.npy")), std::invalid_argument);
  EXPECT_FALSE(std::filesystem::exists(path("b.npy")));
}

TEST_F(Write, RefusesWhatItCannotSay) {
  TensorWriter writer;
  const std::string words = "abcd";
  const auto bytes = std::as_bytes(std::span(words));
  EXPECT_THROW(writer.add("a", fp64, {1}, bytes), std::invalid_argument);
  EXPECT_THROW(writer.add("a", fp32, {2}, bytes), std::invalid_argument);
  EXPECT_THROW(writer.add("a", fp32, {-1}, bytes), std::invalid_argument);
  EXPECT_THROW(writer.add("__metadata__", fp32, {1}, bytes), std::invalid_argument);
  writer.add("a", fp32, {1}, bytes);
  EXPECT_THROW(writer.add("a", fp32, {1}, bytes), std::invalid_argument);
}

}  // namespace
}  // namespace headroom
