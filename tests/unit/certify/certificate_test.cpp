// Certificates as text: numbers, names, keys, and kernels that can be read back from them. What a
// certificate says is checked by check_certificate.py, which shares no code with the program.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <set>

#include <nlohmann/json.hpp>

#include "certify/certificate.h"
#include "reference/model/kernel_file.h"
#include "tests/cases/public_gates.h"

namespace headroom {
namespace {

TEST(Certificate, HexFloatsAreExact) {
  EXPECT_EQ(hex_float(12), "0x1.8p+3");
  EXPECT_EQ(hex_float(-0x1p-1074), "-0x0.0000000000001p-1022");
  EXPECT_EQ(hex_float(0), "0x0p+0");
  EXPECT_EQ(hex_float(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(hex_float(-std::numeric_limits<double>::infinity()), "-inf");
  std::mt19937_64 g(1);
  for (int i = 0; i < 10000; ++i) {
    const double x = std::bit_cast<double>(g());
    if (!std::isfinite(x)) continue;
    EXPECT_EQ(std::bit_cast<std::uint64_t>(std::strtod(hex_float(x).c_str(), nullptr)),
              std::bit_cast<std::uint64_t>(x));
  }
}

TEST(Certificate, FileNames) {
  EXPECT_EQ(certificate_file_name("stem:layer3.7"), "stem:layer3.7.json");
  EXPECT_EQ(certificate_file_name("../a b/c"), "%2e.%2fa%20b%2fc.json");
  EXPECT_EQ(certificate_file_name("100%"), "100%25.json");
  EXPECT_EQ(certificate_file_name(std::string("a\0b\n", 4)), "a%00b%0a.json");
  EXPECT_EQ(certificate_file_name("\xc3\xa9"), "\xc3\xa9.json");
  // different ids have different names, however long they are, and no file system objects
  std::set<std::string> names;
  for (int i = 0; i < 1000; ++i) {
    const std::string name = certificate_file_name(std::string(300, 'x') + std::to_string(i));
    EXPECT_LE(name.size(), 255U);
    EXPECT_EQ(name.find('/'), std::string::npos);
    names.insert(name);
  }
  for (const char* id : {"a/b", "a%2fb", "a b", "a%20b"}) names.insert(certificate_file_name(id));
  EXPECT_EQ(names.size(), 1004U);
}

/// Throws on a key that occurs twice.
nlohmann::json parse_strictly(const std::string& text) {
  std::vector<std::set<std::string>> open;
  const auto callback = [&](int, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && !open.back().insert(value.get<std::string>()).second) {
      throw std::runtime_error("key twice: " + value.get<std::string>());
    }
    return true;
  };
  return nlohmann::json::parse(text, callback);
}

TEST(Certificate, KernelsAreReadBack) {
  std::vector<KernelModel> kernels = {cases::ideal_kernel(), cases::ideal_kernel({}, true)};
  for (const std::string& name : preset_names()) kernels.push_back(preset(name));
  for (const KernelModel& kernel : kernels) {
    Head head = cases::all_equal("head", 5, 1);
    head.q = head.q.cast(kernel.operand, Rounding::nearest_even);
    head.k = head.k.cast(kernel.operand, Rounding::nearest_even);
    head.v = head.v.cast(kernel.operand, Rounding::nearest_even);
    for (const Policy policy :
         {Policy::clis, Policy::clis_alg1, Policy::fixed_m, Policy::fixed_m_n, Policy::online}) {
      CertifyOptions options;
      options.policy = policy;
      const HeadReport report = certify_head(head, kernel, options);
      const std::string text = certificate_json(head, kernel, options, report);
      const nlohmann::json json = parse_strictly(text);
      EXPECT_EQ(text.back(), '\n');
      EXPECT_EQ(json.at("schema"), "headroom-certificate/1");
      EXPECT_EQ(json.at("policy"), to_text(policy));
      const KernelModel again = parse_kernel(json.at("kernel").at("text"), "certificate");
      EXPECT_EQ(again, kernel);
      EXPECT_EQ(digest(again), json.at("kernel").at("sha256"));
      // no bare numbers but counts: every other number is a hexadecimal string
      EXPECT_FALSE(json.at("margin_bits").is_number());
      EXPECT_EQ(json.at("claims").size(), report.claims.size());
      EXPECT_EQ(json.at("gate").is_null(), policy == Policy::online);
    }
  }
}

// The theorem is about certified heads of `clis` that are multiplied as they are stored.
TEST(Certificate, NamesItsTheorem) {
  Head head = cases::all_equal("head", 2, 1);
  const KernelModel kernel = cases::ideal_kernel();
  const auto theorem = [&](Policy policy, Verdict verdict) {
    CertifyOptions options;
    options.policy = policy;
    HeadReport report;
    report.verdict = verdict;
    return parse_strictly(certificate_json(head, kernel, options, report))
        .at("theorem")
        .get<std::string>();
  };
  EXPECT_EQ(theorem(Policy::clis, Verdict::certified), "Certified.certified");
  EXPECT_EQ(theorem(Policy::clis, Verdict::fallback), "none: verdict fallback");
  EXPECT_EQ(theorem(Policy::fa4, Verdict::certified), "none: policy fa4");
  EXPECT_EQ(theorem(Policy::online, Verdict::refuted), "none: policy online");
  head.was_cast = true;
  EXPECT_EQ(theorem(Policy::clis, Verdict::certified), "none: head.cast");
  head.modifiers.softcap = 30;
  EXPECT_EQ(theorem(Policy::clis, Verdict::certified), "none: head.modifiers");
}

// Any bytes in a name give valid UTF-8 JSON.
TEST(Certificate, NamesOfAnyBytes) {
  Head head = cases::all_equal("head", 2, 1);
  for (const int byte : {1, 10, 27, 31, 127, 128, 0xc3, 0xed, 0xf4, 0xff}) {
    head.id = head.prefix = std::string(1, static_cast<char>(byte)) + "\"\\";
    const KernelModel kernel = cases::ideal_kernel();
    HeadReport report;
    EXPECT_NO_THROW(parse_strictly(certificate_json(head, kernel, {}, report))) << byte;
  }
}

}  // namespace
}  // namespace headroom
