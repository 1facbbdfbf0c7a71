#include "reference/real/fp_environment.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>

namespace headroom {
namespace {

constexpr std::uint32_t ftz = 0x8000, daz = 0x0040, sticky_flags = 0x3f;
constexpr std::uint32_t toward_zero = 0x6000, downward = 0x2000, upward = 0x4000;

std::uint32_t control_bits() { return _mm_getcsr() & ~sticky_flags; }

double third() { return opaque(opaque(1.0) / opaque(3.0)); }
constexpr double third_above = 0x1.5555555555556p-2, third_below = 0x1.5555555555555p-2;

TEST(SelfCheck, PassesHereAndLeavesTheEnvironmentAsItFoundIt) {
  for (const std::uint32_t mode : {0U, downward, upward, toward_zero}) {
    const MxcsrScope scope(mxcsr_nearest | mode);
    EXPECT_EQ(floating_point_self_check(), "");
    EXPECT_EQ(control_bits(), mxcsr_nearest | mode);
  }
}

TEST(SelfCheck, NamesFlushingInTheCallersThread) {
  const auto message = [](std::uint32_t bits) {
    const MxcsrScope scope(mxcsr_nearest | bits);
    const std::string said = floating_point_self_check();
    EXPECT_EQ(control_bits(), mxcsr_nearest | bits);
    return said;
  };
  EXPECT_EQ(message(ftz).rfind("FTZ (", 0), 0U) << message(ftz);
  EXPECT_EQ(message(daz).rfind("DAZ (", 0), 0U) << message(daz);
  EXPECT_EQ(message(ftz | daz).rfind("FTZ and DAZ", 0), 0U) << message(ftz | daz);
}

// In a child process: what a library does to MXCSR must not reach the other tests.
TEST(SelfCheck, DetectsALibraryLinkedWithFastMath) {
  std::fflush(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!floating_point_self_check().empty()) _exit(10);
    void* library = dlopen(FAST_MATH_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr || dlsym(library, "fast_math_library_loaded") == nullptr) _exit(11);
    if ((_mm_getcsr() & ftz) == 0) _exit(12);  // the library no longer does what it is here for
    const std::string said = floating_point_self_check();
    if (said.find("-ffast-math") == std::string::npos) _exit(13);
    {
      const UpwardRounding up;  // a scope sets the whole MXCSR, so bounds inside one stay sound
      if (opaque(opaque(0x1p-1022) / opaque(2.0)) == 0) _exit(14);
    }
    _exit((_mm_getcsr() & ftz) != 0 ? 0 : 15);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(floating_point_self_check(), "");
}

TEST(Scopes, NestAndRestoreTheWholeWord) {
  const std::uint32_t before = control_bits();
  {
    const MxcsrScope foreign(mxcsr_nearest | ftz | daz | toward_zero);
    {
      const UpwardRounding up;
      EXPECT_EQ(control_bits(), mxcsr_upward);
      EXPECT_EQ(third(), third_above);
      {
        const NearestRounding nearest;
        EXPECT_EQ(control_bits(), mxcsr_nearest);
        EXPECT_EQ(third(), third_below);
      }
      EXPECT_EQ(third(), third_above);
    }
    EXPECT_EQ(control_bits(), mxcsr_nearest | ftz | daz | toward_zero);
  }
  EXPECT_EQ(control_bits(), before);
}

TEST(Scopes, AThreadInheritsItsCreatorsModeAndAScopeOverridesIt) {
  const UpwardRounding up;
  std::uint32_t inherited = 0;
  double in_scope = 0;
  std::thread([&] {
    inherited = control_bits();
    const NearestRounding nearest;
    in_scope = third();
  }).join();
  EXPECT_EQ(inherited, mxcsr_upward);
  EXPECT_EQ(in_scope, third_below);
  EXPECT_EQ(control_bits(), mxcsr_upward);
}

// oneTBB captures a floating-point environment at its first parallel call. Whatever it is, a task
// with its own scope computes in the mode it asked for and leaves the worker as it found it.
TEST(Scopes, EachTbbTaskSetsAndRestoresItsOwn) {
  for (const std::uint32_t outer : {mxcsr_upward, mxcsr_nearest, mxcsr_nearest | ftz | daz}) {
    const MxcsrScope scope(outer);
    std::atomic<int> wrong_value{0}, not_restored{0};
    tbb::parallel_for(tbb::blocked_range<int>(0, 2000, 1), [&](const auto& range) {
      for (int i = range.begin(); i != range.end(); ++i) {
        const std::uint32_t entry = control_bits();
        if (i % 2 == 0) {
          const UpwardRounding up;
          if (third() != third_above) ++wrong_value;
          if (opaque(opaque(0x1p-1022) / opaque(2.0)) == 0) ++wrong_value;
        } else {
          const NearestRounding nearest;
          if (third() != third_below) ++wrong_value;
        }
        if (control_bits() != entry) ++not_restored;
      }
    });
    EXPECT_EQ(wrong_value, 0);
    EXPECT_EQ(not_restored, 0);
    EXPECT_EQ(control_bits(), outer);
  }
}

}  // namespace
}  // namespace headroom
