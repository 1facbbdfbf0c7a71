// Pages of mapped files that are dropped: the process gets smaller, and what is read stays the
// same.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "reference/head/mapped_file.h"

namespace headroom {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

/// Resident pages of files, those in memory included, bytes: from /proc/self/status.
std::size_t resident() {
  std::ifstream status("/proc/self/status");
  std::size_t total = 0;
  for (std::string word; status >> word;) {
    std::size_t kib = 0;
    if ((word == "RssFile:" || word == "RssShmem:") && status >> kib) total += kib << 10U;
  }
  return total;
}

/// A sparse file of `bytes`, every 1000th page marked with its number.
MappedFile sparse(std::size_t bytes) {
  const int fd = ::memfd_create("sparse", 0);
  EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(bytes)), 0);
  for (std::size_t at = 0; at < bytes; at += 1000 * 4096) {
    EXPECT_EQ(::pwrite(fd, &at, sizeof at, static_cast<off_t>(at)), ssize_t{sizeof at});
  }
  MappedFile map(fd, bytes, "sparse");
  ::close(fd);
  return map;
}

/// Reads every page; true if the marks are there and all else is 0.
bool as_written(const MappedFile& map) {
  bool right = true;
  for (std::size_t at = 0; at < map.size(); at += 4096) {
    std::size_t word = 0;
    std::memcpy(&word, map.data() + at, sizeof word);
    right = right && word == (at % (1000 * 4096) == 0 ? at : 0);
  }
  return right;
}

TEST(Drop, TakesWhatWasReadOutOfTheProcess) {
  const MappedFile map = sparse(resident_bytes + 16 * mib);
  const std::size_t before = resident();
  ASSERT_TRUE(as_written(map));
  EXPECT_GE(resident(), before + resident_bytes);
  map.drop(map.data(), 100 * mib);
  EXPECT_LE(resident(), before + map.size() - 99 * mib);
  map.drop(map.data() + 100 * mib + 1, map.size() - 100 * mib - 1);
  EXPECT_LE(resident(), before + mib);
  EXPECT_TRUE(as_written(map));  // and comes back when it is read
}

TEST(Drop, LeavesFilesThatFitInPlace) {
  const MappedFile map = sparse(16 * mib);
  const std::size_t before = resident();
  ASSERT_TRUE(as_written(map));
  map.drop(map.data(), map.size());
  EXPECT_GE(resident(), before + 15 * mib);
}

TEST(Drop, TouchesNothingOutsideItsMapping) {
  const MappedFile map = sparse(resident_bytes + mib);
  constexpr std::size_t size = 64 * 4096;
  const std::unique_ptr<std::byte, decltype(&std::free)> other(
      static_cast<std::byte*>(std::aligned_alloc(4096, size)), &std::free);
  std::memset(other.get(), 7, size);
  map.drop(other.get(), size);  // memory that is dropped reads as zeros
  for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(other.get()[i], std::byte{7}) << i;
  map.drop(map.data() + map.size() - 10, 11);
  map.drop(map.data() - 4096, 8192);
  map.drop(nullptr, 1);
  MappedFile().drop(map.data(), mib);
  EXPECT_TRUE(as_written(map));
}

}  // namespace
}  // namespace headroom
