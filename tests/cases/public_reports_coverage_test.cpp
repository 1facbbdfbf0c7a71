// Every record of the shared list of reports is checked, or is one that no certifier can decide.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/cases/public_reports.h"

namespace headroom::reports {
namespace {

/// Records of which no claim of a certificate speaks, and who does.
const std::map<std::string, std::string> not_decided = {
    {"B30", "the backward pass: backward.exponent is not covered; the simulator runs it"},
    {"B37", "uninitialised buffers: a matter of the harness that runs a kernel"},
    {"B46", "widths of indices: index.range is not covered"},
    {"B50", "an implausible scale: a warning of the reader of heads (tests/unit/head)"},
};

/// After all tests, where none was left out.
class Coverage : public testing::Environment {
 public:
  void TearDown() override {
    if (testing::UnitTest::GetInstance()->test_to_run_count() <
        testing::UnitTest::GetInstance()->total_test_count()) {
      return;
    }
    const char* named = std::getenv("HEADROOM_SHARED");
    const char* checkout = std::getenv("HEADROOM_SOURCE_ROOT");
    const std::filesystem::path shared =
        named != nullptr      ? std::filesystem::path(named)
        : checkout != nullptr ? std::filesystem::path(checkout).parent_path() / "shared"
                              : std::filesystem::path();
    std::ifstream file(shared / "cases" / "public_reports.md");
    if (!file) return;  // tested where the list is at hand
    std::set<std::string> records;
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("### B")) records.insert(line.substr(4, line.find(' ', 4) - 4));
    }
    EXPECT_FALSE(records.empty());
    for (const std::string& record : records) {
      EXPECT_NE(checked().contains(record), not_decided.contains(record)) << record;
    }
  }
};

const testing::Environment* const coverage = testing::AddGlobalTestEnvironment(new Coverage);

}  // namespace
}  // namespace headroom::reports
