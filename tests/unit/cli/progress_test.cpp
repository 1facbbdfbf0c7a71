#include "cli/progress.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace headroom::cli {
namespace {

using std::chrono::duration;
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File temporary_file() { return {std::tmpfile(), std::fclose}; }

std::string contents(std::FILE* file) {
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}

TEST(ProgressLine, ShowsBarShareRateAndTimeLeft) {
  EXPECT_EQ(progress_line("heads", 6, 12, duration<double>(3)),
            "heads [############............]  50%  2/s  3 s left");
  EXPECT_EQ(progress_line("heads", 12, 12, duration<double>(6)),
            "heads [########################] 100%  2/s");
  EXPECT_EQ(progress_line("heads", 1, 1201, duration<double>(1)),
            "heads [........................]   0%  1/s  20 min left");
  EXPECT_EQ(progress_line("heads", 1, 36001, duration<double>(1)),
            "heads [........................]   0%  1/s  10.0 h left");
}

TEST(ProgressLine, NoRateBeforeTheFirstItem) {
  EXPECT_EQ(progress_line("heads", 0, 12, duration<double>(9)),
            "heads [........................]   0%");
  EXPECT_EQ(progress_line("heads", 3, 12, duration<double>(0)),
            "heads [######..................]  25%");
}

TEST(ProgressLine, EdgesOfTheCount) {
  EXPECT_EQ(progress_line("x", 0, 0, duration<double>(1)), "x [########################] 100%");
  EXPECT_EQ(progress_line("x", 9, 4, duration<double>(2)),
            "x [########################] 100%  2/s");
  EXPECT_EQ(progress_line("x", UINT64_MAX, UINT64_MAX, duration<double>(0)),
            "x [########################] 100%");
}

TEST(Progress, SilentWhereNotVisible) {
  const File file = temporary_file();
  {
    Progress progress("heads", 4, file.get(), false, std::chrono::seconds(0));
    progress.advance(4);
  }
  EXPECT_EQ(contents(file.get()), "");
}

TEST(Progress, SilentForShortWork) {
  const File file = temporary_file();
  {
    Progress progress("heads", 4, file.get(), true, std::chrono::hours(1));
    progress.advance(4);
  }
  EXPECT_EQ(contents(file.get()), "");
}

TEST(Progress, DrawsThenClearsItsLine) {
  const File file = temporary_file();
  {
    Progress progress("heads", 4, file.get(), true, std::chrono::seconds(0));
    progress.advance(2);
  }
  const std::string text = contents(file.get());
  EXPECT_EQ(text.rfind("\r\x1b[Kheads [############............]  50%", 0), 0U) << text;
  ASSERT_GE(text.size(), 4U);
  EXPECT_EQ(text.substr(text.size() - 4), "\r\x1b[K") << text;
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST(Progress, RedrawsAtMostTenTimesASecond) {
  const File file = temporary_file();
  {
    Progress progress("heads", 100000, file.get(), true, std::chrono::seconds(0));
    const auto begin = Progress::Clock::now();
    while (Progress::Clock::now() - begin < std::chrono::milliseconds(50)) progress.advance();
  }
  const std::string text = contents(file.get());
  std::size_t draws = 0;
  for (auto at = text.find("heads"); at != std::string::npos; at = text.find("heads", at + 1)) {
    ++draws;
  }
  EXPECT_GE(draws, 1U);
  EXPECT_LE(draws, 2U);  // a second one only where the loop ran late by another 50 ms
}

TEST(Progress, CountsFromManyThreads) {
  const File file = temporary_file();
  Progress progress("items", 40000, file.get(), true, std::chrono::seconds(0));
  std::vector<std::jthread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&progress] {
      for (int i = 0; i < 10000; ++i) progress.advance();
    });
  }
  threads.clear();  // joins
  EXPECT_EQ(progress.done(), 40000U);
}

}  // namespace
}  // namespace headroom::cli
