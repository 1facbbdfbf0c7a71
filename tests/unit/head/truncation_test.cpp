// Files that shrink while they are mapped: with the handler of a program, and without.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "reference/head/load.h"
#include "reference/head/mapped_file.h"
#include "reference/head/tensor_file.h"
#include "tests/unit/head/scratch.h"

namespace headroom {
namespace {

using tests::mentions;
using tests::safetensors;

/// What a child process wrote to stderr, and how it ended.
struct Ending {
  int status = 0;
  std::string errors;
};

template <class Act>
Ending in_child(Act act) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    std::signal(SIGBUS, SIG_DFL);  // a sanitizer's own handler is not what is tested
    act();
    ::_exit(0);
  }
  ::close(ends[1]);
  Ending ending;
  char buffer[4096];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
    ending.errors.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  EXPECT_EQ(::waitpid(child, &ending.status, 0), child);
  return ending;
}

class Truncation : public tests::Scratch {
 protected:
  static constexpr std::int64_t numbers = 1 << 16;

  std::string put_large() const {
    return put("large.safetensors",
               safetensors(R"({"q":{"dtype":"F32","shape":[65536],"data_offsets":[0,262144]}})",
                           std::string(4 * numbers, 'x')));
  }
  static unsigned sum(const TensorFile& file) {
    unsigned total = 0;
    const Tensor& tensor = file.tensors()[0];
    for (std::int64_t i = 0; i < tensor.bytes; ++i) total += static_cast<unsigned>(tensor.data[i]);
    return total;
  }
};

TEST_F(Truncation, TheProgramsHandlerNamesTheFile) {
  const std::string name = put_large();
  const Ending ending = in_child([&] {
    exit_on_truncation("headroom");
    const auto other = TensorFile::open(put("other.safetensors", safetensors("{}")));
    const auto file = TensorFile::open(name);
    std::filesystem::resize_file(name, 5000);
    ::_exit(sum(*file) == 0 ? 3 : 4);
  });
  ASSERT_TRUE(WIFEXITED(ending.status));
  EXPECT_EQ(WEXITSTATUS(ending.status), 2);
  EXPECT_EQ(ending.errors, "headroom: " + name +
                               ": was cut off or became unreadable while it was being read, "
                               "expected a file that stays as it is\n");
}

TEST_F(Truncation, WithoutItTheSignalIsNobodysBusinessButTheProcess) {
  const std::string name = put_large();
  const Ending ending = in_child([&] {
    const auto file = TensorFile::open(name);
    std::filesystem::resize_file(name, 5000);
    ::_exit(sum(*file) == 0 ? 3 : 4);
  });
  EXPECT_TRUE(WIFSIGNALED(ending.status));
  EXPECT_EQ(WTERMSIG(ending.status), SIGBUS);
}

TEST_F(Truncation, OtherSignalsOfThatNumberEndTheProcessAsBefore) {
  const Ending ending = in_child([&] {
    exit_on_truncation("headroom");
    ::kill(::getpid(), SIGBUS);
    for (;;) ::pause();
  });
  EXPECT_TRUE(WIFSIGNALED(ending.status));
  EXPECT_EQ(WTERMSIG(ending.status), SIGBUS);
  EXPECT_EQ(ending.errors, "");
}

TEST_F(Truncation, ManyFilesMayBeOpenAtOnce) {
  const std::string name = put_large();
  const std::string small = put("small.safetensors", safetensors("{}"));
  const Ending ending = in_child([&] {
    exit_on_truncation("headroom");
    std::vector<std::shared_ptr<const TensorFile>> files;
    for (int i = 0; i < 900; ++i) files.push_back(TensorFile::open(small));
    files.push_back(TensorFile::open(name));
    for (int i = 0; i < 900; i += 2) files[static_cast<std::size_t>(i)].reset();
    std::filesystem::resize_file(name, 5000);
    ::_exit(sum(*files.back()) == 0 ? 3 : 4);
  });
  ASSERT_TRUE(WIFEXITED(ending.status));
  EXPECT_EQ(WEXITSTATUS(ending.status), 2);
  EXPECT_TRUE(mentions(ending.errors, name));
}

// Within its last page a file that was cut off reads as zeros, and no signal comes.
TEST_F(Truncation, ZerosInTheLastPageAreNoticedAfterwards) {
  const std::string name = put_large();
  const auto file = TensorFile::open(name);
  std::filesystem::resize_file(name, std::filesystem::file_size(name) - 8);
  EXPECT_EQ(static_cast<char>(file->tensors()[0].data[4 * numbers - 1]), '\0');
  EXPECT_TRUE(mentions(tests::message_of([&] { file->require_unchanged(); }), "changed while"));
}

}  // namespace
}  // namespace headroom
