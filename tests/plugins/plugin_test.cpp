// Plug-ins in this process: the rule of a built-in stabilizer gives its bits, and what breaks the
// interface is a fault.
#include "reference/stabilizer/plugin/plugin.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "fuzz/candidate.h"
#include "fuzz/generate.h"
#include "fuzz/random.h"
#include "fuzz/target.h"
#include "reference/evaluate/ladder/ladder.h"
#include "reference/evaluate/simulate/simulate.h"
#include "reference/input_error.h"
#include "reference/model/kernel_file.h"
#include "reference/stabilizer/plugin/guarded_buffer.h"

namespace headroom {
namespace {

std::string library(const std::string& name) {
  return std::string(HEADROOM_PLUGINS) + "/" + name + ".so";
}

std::string refusal(const std::string& name) {
  try {
    load_plugin(library(name));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

/// One head of each generator, as the kernel's operands.
std::vector<fuzz::Candidate> heads(const KernelModel& kernel, const std::string& stabilizer) {
  fuzz::Target target;
  target.kernel = kernel;
  target.stabilizer = stabilizer;
  std::vector<fuzz::Candidate> all;
  std::uint64_t number = 0;
  for (const auto& generator : fuzz::generators()) {
    fuzz::Random random(7, 0, number++);
    const fuzz::Shape shape{5, 3 * std::min(kernel.tiles.keys, 64) + 1, 4, 3};
    fuzz::Candidate c = fuzz::make_candidate(shape);
    generator.fill(random, fuzz::landmarks_of(target, shape), c);
    fuzz::round_operands(c, kernel.operand);
    all.push_back(std::move(c));
  }
  return all;
}

Simulated run(const fuzz::Candidate& c, const KernelModel& kernel, const std::string& stabilizer,
              bool plain) {
  const AttentionProblem problem =
      fuzz::problem_of(c, kernel.operand, Scale::reciprocal_sqrt(c.shape.channels));
  const auto loop = make_loop_stabilizer(stabilizer);
  SimulationOptions options;
  options.plain = plain;
  return simulate(problem, kernel, *loop, all_rows(problem), options);
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Plugin, TheRuleOfABuiltInStabilizerGivesItsBits) {
  EXPECT_EQ(load_plugin(library("online")).loop.name, "plugin:online");
  for (const char* name : {"hopper", "ieee-fp32", "fp16-everywhere", "tpu7x", "blackwell"}) {
    KernelModel kernel = preset(name);
    kernel.tiles.keys = std::min(kernel.tiles.keys, 64);
    for (const fuzz::Candidate& c : heads(kernel, "online-fa2")) {
      for (const bool plain : {false, true}) {
        const Simulated built_in = run(c, kernel, "online-fa2", plain);
        const Simulated mine = run(c, kernel, "plugin:online", plain);
        EXPECT_TRUE(same(built_in.output, mine.output)) << name;
        EXPECT_TRUE(same(built_in.lse, mine.lse)) << name;
      }
    }
  }
}

TEST(Plugin, AGateAndParametersAreThePlugIns) {
  const PluginDescription& d = load_plugin(library("norm_bound"));
  EXPECT_TRUE(d.has_gate);
  EXPECT_EQ(d.loop.parameters, (LoopParameters{{"cap", 88}}));
  EXPECT_EQ(d.sha256.size(), 64U);
  const KernelModel kernel = preset("ieee-fp32");
  int accepted = 0, refused = 0;
  for (const fuzz::Candidate& c : heads(kernel, "fixed-m")) {
    (run(c, kernel, "plugin:norm-bound", false).gate ? accepted : refused) += 1;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
  EXPECT_THROW(make_loop_stabilizer("plugin:norm-bound", {{"lid", 1}}), InputError);
  EXPECT_THROW(make_loop_stabilizer("plugin:nobody"), InputError);
}

TEST(Plugin, WhatIsNoPlugInIsRefusedInOneLine) {
  const std::pair<const char*, const char*> wrong[] = {{"no-entry", "headroom_stabilizer_entry"},
                                                       {"null-table", "no stabilizer"},
                                                       {"other-abi", "version 1000"},
                                                       {"short-table", "16 bytes"},
                                                       {"bad-name", "a name of two lines"},
                                                       {"no-tile", "callback missing"},
                                                       {"twice-a-parameter", "parameter x twice"},
                                                       {"no-such-fallback", "online-nothing"},
                                                       {"unknown-flags", "flags 0x80"},
                                                       {"nothing-there", "nothing-there"}};
  for (const auto& [name, text] : wrong) {
    const std::string line = refusal(name);
    EXPECT_NE(line.find(text), std::string::npos) << name << ": " << line;
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  }
}

std::pair<std::string, std::string> fault_of(const std::string& name, std::int64_t queries) {
  load_plugin(library(name));
  const KernelModel kernel = preset("hopper");
  fuzz::Candidate c = fuzz::make_candidate({queries, 64, 2, 1});
  try {
    run(c, kernel, "plugin:planted", false);
  } catch (const StabilizerFault& fault) {
    return {fault.stage(), fault.event()};
  }
  return {"", ""};
}

// Plug-ins of one name cannot live in one process: each test here is one of its own.
TEST(PluginFaultDeathTest, BrokenRulesAreFaults) {
  const auto check = [](const char* name, const char* stage, const char* event) {
    EXPECT_EXIT(
        {
          const auto fault = fault_of(name, 3);
          std::exit(fault.first == stage && fault.second == event ? 0 : 1);
        },
        testing::ExitedWithCode(0), "")
        << name;
  };
  check("past-the-end", "tile", "out-of-bounds");
  check("before-the-beginning", "tile", "out-of-bounds");
  check("past-the-state", "before-loop", "out-of-bounds");
  check("leaves-flushing-on", "tile", "environment");
  check("refuses", "init", "refused");
  check("answers-two", "gate", "no-answer");
}

TEST(GuardedBufferTest, SeesWritesAroundIt) {
  GuardedBuffer buffer("numbers");
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64},
                                  std::size_t{65}, std::size_t{4096}, std::size_t{100000}}) {
    buffer.reset(bytes);
    for (std::size_t i = 0; i < bytes; ++i) EXPECT_EQ(buffer.data()[i], std::byte{0});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
    EXPECT_TRUE(buffer.intact());
    buffer.data()[-1] = std::byte{0};
    EXPECT_FALSE(buffer.intact());
    buffer.reset(bytes);
    EXPECT_TRUE(buffer.intact());
    if (bytes % 64 == 0) continue;
    buffer.data()[bytes] = std::byte{0};
    EXPECT_FALSE(buffer.intact());
  }
}

TEST(GuardedBufferDeathTest, FarWritesEndAtOnce) {
  GuardedBuffer buffer("numbers");
  buffer.reset(64);
  EXPECT_DEATH(*const_cast<volatile std::byte*>(buffer.data() + 64) = std::byte{0}, "");
}

}  // namespace
}  // namespace headroom
