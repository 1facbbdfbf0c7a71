#include "reference/model/kernel_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "reference/input_error.h"

namespace headroom {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse_kernel(text, "k.toml");
  } catch (const InputError& e) {
    return e.what();
  }
  return "no error";
}

const char* const hopper_head = "name = \"mine\"\nmachine = \"hopper\"\n";

TEST(Presets, AreValidAndRoundTrip) {
  std::set<std::string> digests;
  for (const std::string& name : preset_names()) {
    const KernelModel m = preset(name);
    EXPECT_FALSE(find_problem(m)) << name << ": " << find_problem(m)->keys.front();
    EXPECT_EQ(m.name, name);
    EXPECT_EQ(m.machine, name);
    const std::string text = canonical_text(m);
    EXPECT_EQ(parse_kernel(text, name), m) << text;
    EXPECT_EQ(canonical_text(parse_kernel(text, name)), text);
    EXPECT_EQ(load_kernel(name), m);
    digests.insert(digest(m));
    for (const MachineFact& f : m.facts) {
      EXPECT_EQ(f.evidence == Evidence::assumed, f.source.empty()) << name << " " << f.id;
    }
  }
  EXPECT_EQ(digests.size(), preset_names().size());
}

TEST(Presets, HaveBothReadingsOfSubnormals) {
  const auto flushes = [](const KernelModel& m) {
    return std::vector<bool>{m.exp2.flush_to_zero,
                             m.p.flush_to_zero,
                             m.score.accumulator.flush_to_zero,
                             m.denominator.flush_to_zero,
                             m.numerator.flush_to_zero,
                             m.normalise.reciprocal_flush_to_zero};
  };
  for (const std::string& name : preset_names()) {
    for (const bool flushed : {true, false}) {
      const std::string reading = name + (flushed ? ":ftz" : ":gradual");
      ASSERT_TRUE(is_preset(reading));
      const KernelModel m = load_kernel(reading), stock = preset(name);
      EXPECT_EQ(m.name, reading);
      EXPECT_EQ(m.machine, name);
      EXPECT_EQ(flushes(m), std::vector<bool>(6, flushed)) << reading;
      EXPECT_FALSE(find_problem(m)) << reading;
      EXPECT_TRUE(simulated_only(m).empty()) << reading;
      EXPECT_EQ(parse_kernel(canonical_text(m), reading), m);
      // nothing else is another
      EXPECT_EQ(m.exp2.max_error_ulps, stock.exp2.max_error_ulps);
      EXPECT_EQ(m.score.accumulator.order, stock.score.accumulator.order);
      // a stage that reads subnormals otherwise than its source says is assumed
      if (m.exp2.flush_to_zero != stock.exp2.flush_to_zero) {
        EXPECT_TRUE(std::any_of(m.facts.begin(), m.facts.end(), [](const MachineFact& f) {
          return f.id == "exp2.kernel-file" && f.evidence == Evidence::assumed;
        })) << reading;
      }
    }
  }
  for (const char* no : {"hopper:", "hopper:FTZ", ":ftz", "volta:ftz", "hopper:ftz:ftz"}) {
    EXPECT_FALSE(is_preset(no)) << no;
  }
}

TEST(Presets, StateTheFactsOfTheirMachines) {
  EXPECT_EQ(to_text(preset("ampere").numerator.order), "matrix-unit:24:8");
  EXPECT_EQ(to_text(preset("ada").numerator.order), "matrix-unit:24:8");
  EXPECT_EQ(to_text(preset("blackwell").numerator.order), "matrix-unit:25:16");
  EXPECT_EQ(preset("blackwell").exp2.max_error_ulps, 1430);
  EXPECT_FALSE(preset("blackwell").exp2.propagates_nan);
  EXPECT_EQ(preset("ampere").tiles.empty_row, EmptyRowRule::zero_pos_inf);
  EXPECT_TRUE(preset("cpu-avx512-bf16").numerator.denormals_are_zero);
  EXPECT_EQ(preset("cdna3").exp2.max_error_ulps, 1.5);
  for (const char* name : {"tpu7x", "tpu-v6e"}) {
    const KernelModel m = preset(name);
    EXPECT_EQ(m.exp2.max_error_ulps, 90);
    EXPECT_TRUE(m.exp2.flush_to_zero);
    EXPECT_EQ(m.centring.keys, Centring::mean);
    EXPECT_EQ(m.scale.scale, FactorSite::key);
    EXPECT_EQ(m.scale.log2e, FactorSite::query);
    EXPECT_EQ(m.normalise.reciprocal_max_error_ulps, 1.5);
    EXPECT_FALSE(m.normalise.reciprocal_exact_at_powers_of_two);
  }
  const KernelModel hopper = preset("hopper");
  EXPECT_EQ(to_text(hopper.score.accumulator.order), "matrix-unit:25:16");
  EXPECT_EQ(to_text(hopper.numerator.order), "matrix-unit:25:16");
  EXPECT_TRUE(hopper.exponent.fused);
  // "2 ulp from the correctly rounded result" is 2.5 ulp from 2^x
  EXPECT_EQ(hopper.exp2.max_error_ulps, 2.5);
  const KernelModel fp16_kernel = preset("fp16-everywhere");
  EXPECT_EQ(fp16_kernel.numerator.format, fp16);
  EXPECT_FALSE(fp16_kernel.exp2.flush_to_zero);
}

TEST(KernelFile, DigestIsStable) {
  // The digest is of the canonical text, whose first lines these are.
  const std::string text = canonical_text(preset("ieee-fp32"));
  EXPECT_EQ(text.substr(0, 68),
            "complete = true\nname = \"ieee-fp32\"\nmachine = \"ieee-fp32\"\noperand = \"");
  EXPECT_EQ(digest(preset("ieee-fp32")), digest(parse_kernel(text, "elsewhere")));
  EXPECT_EQ(digest(preset("ieee-fp32")).size(), 64U);
  // Digests that certificates hold from before there were optional keys.
  for (const auto& [name, sha256] : std::vector<std::pair<std::string, std::string>>{
           {"tpu7x", "324665985ca97c597f0d760dc8fe466169fe3d14d121e20fa7777851f3fdb3c1"},
           {"tpu-v6e", "a9d9a1c992cca68ed474037c1b28e02143352ca2b51ab23e82cfe0382d6793ea"},
           {"hopper", "7fded15c71d1b03aa4beab8c1b07aecc5b62c782da1575452d394dbcdf0c923e"},
           {"ieee-fp32", "8d009eb37da08bc581710950257bc90ec4d02945933aff96351cb4d4982fe681"},
           {"fp16-everywhere",
            "fdf5b9592ae16d0704f5b989f5e9829b2d91a95ad4acf718c8cf0795a176c2c5"}}) {
    EXPECT_EQ(digest(preset(name)), sha256) << name;
  }
}

TEST(KernelFile, DigestIsSha256OfTheText) {
  const auto path = std::filesystem::temp_directory_path() / "headroom_kernel_digest.toml";
  std::ofstream(path) << canonical_text(preset("hopper"));
  FILE* pipe = popen(("sha256sum < " + path.string()).c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char line[65] = {};
  ASSERT_EQ(fread(line, 1, 64, pipe), 64U);
  pclose(pipe);
  EXPECT_EQ(digest(load_kernel(path.string())), line);
  std::filesystem::remove(path);
}

TEST(KernelFile, InheritsFromTheMachine) {
  const KernelModel base = preset("hopper");
  KernelModel expected = base;
  expected.name = "mine";
  EXPECT_EQ(parse_kernel(hopper_head, "k.toml"), expected);
  const KernelModel m = parse_kernel(std::string(hopper_head) + R"(
operand = "fp16"
[p]
format = "fp16"
[gate]
vmax = "2^4"
gate = "one-sided"
query_block = 64
[[fact]]
id = "exp2.nan"
text = "NaN was seen to survive"
evidence = "measured"
source = "a test"
)",
                                     "k.toml");
  EXPECT_EQ(m.operand, fp16);
  EXPECT_EQ(m.p.format, fp16);
  EXPECT_EQ(m.gate.vmax, 16);
  EXPECT_EQ(m.gate.sides, GateSides::one_sided);
  EXPECT_EQ(m.gate.query_block, 64);
  EXPECT_EQ(m.exp2, base.exp2);
  ASSERT_EQ(m.facts.size(), base.facts.size());  // the fact of that id is replaced
  int measured = 0;
  for (const MachineFact& f : m.facts) measured += f.source == "a test";
  EXPECT_EQ(measured, 1);
}

TEST(KernelFile, OptionalKeys) {
  const KernelModel m = parse_kernel(std::string(hopper_head) + R"(
[score]
denormals_are_zero = true
softcap = "exp-ratio"
[mask]
form = "additive"
value = "-10000"
[sink]
place = "start"
[exponent]
base = "e"
[exp2]
unit = "fa4-poly3"
floor = "2^-24"
[normalise]
guard = "zero-to-zero"
every_tile = true
[tiles]
queries = 64
[split]
parts = 3
merge = "lse-log1p"
reads = "2"
[lse]
base = "2"
)",
                                     "k.toml");
  KernelModel expected = preset("hopper");
  EXPECT_TRUE(m.score.accumulator.denormals_are_zero);
  EXPECT_FALSE(m.denominator.denormals_are_zero);
  EXPECT_EQ(m.score.softcap, SoftcapFormula::exp_ratio);
  EXPECT_EQ(m.mask, (MaskStage{MaskForm::additive, -1e4}));
  EXPECT_EQ(m.sink, SinkPlace::start);
  EXPECT_EQ(m.exponent.base, ExponentBase::e);
  EXPECT_EQ(m.exp2.name, "fa4-poly3");
  EXPECT_FALSE(m.exp2.propagates_nan);
  EXPECT_EQ(m.exp2.evidence, Evidence::assumed);
  EXPECT_EQ(m.exp2.floor, 0x1p-24);
  EXPECT_EQ(m.normalise.guard, DenominatorGuard::zero_to_zero);
  EXPECT_TRUE(m.normalise.every_tile);
  EXPECT_EQ(m.tiles.queries, 64);
  EXPECT_EQ(m.tiles.keys, expected.tiles.keys);
  EXPECT_EQ(m.split, (SplitStage{3, MergeRule::lse_log1p, ExponentBase::two}));
  EXPECT_EQ(m.lse, LseStage{ExponentBase::two});
  const std::string text = canonical_text(m);
  EXPECT_EQ(parse_kernel(text, "again"), m) << text;

  // complete files may lack them; what a complete file leaves out is the default
  const std::string stock = canonical_text(preset("hopper"));
  for (const char* key : {"denormals_are_zero", "softcap", "[mask]", "[sink]", "base", "floor",
                          "every_tile", "queries", "[split]", "[lse]"}) {
    EXPECT_EQ(stock.find(key), std::string::npos) << key;
    EXPECT_NE(text.find(key), std::string::npos) << key;
  }
  EXPECT_EQ(parse_kernel(stock, "k.toml"), preset("hopper"));
  EXPECT_EQ(parse_kernel(stock + "[mask]\nvalue = \"-inf\"\n[lse]\nbase = \"e\"\n", "k.toml"),
            preset("hopper"));
  // minus infinity is a value; the largest finite one of a narrower format is another
  EXPECT_EQ(parse_kernel(stock + "[mask]\nvalue = -65504\n", "k.toml").mask.value, -65504);
}

TEST(KernelFile, SimulatedOnlyNamesWhatNoBoundCovers) {
  for (const std::string& name : preset_names()) {
    EXPECT_TRUE(simulated_only(preset(name)).empty()) << name;
  }
  const auto open = [](const std::string& body) {
    std::string list;
    for (const std::string& key : simulated_only(parse_kernel(hopper_head + body, "k.toml"))) {
      list += (list.empty() ? "" : ", ") + key;
    }
    return list;
  };
  EXPECT_EQ(open(""), "");
  // what no bound depends on
  EXPECT_EQ(open("[tiles]\nqueries = 64\n"), "");
  EXPECT_EQ(open("[numerator]\ndenormals_are_zero = true\n"),
            "numerator.denormals_are_zero = true");
  EXPECT_EQ(open("[score]\nsoftcap = \"logistic\"\n"), "score.softcap = logistic");
  EXPECT_EQ(open("[mask]\nvalue = -10000\n"), "");
  EXPECT_EQ(open("[mask]\nform = \"additive\"\n"), "");
  // subnormal operands that are read as zeros are covered where nothing subnormal is left to lose
  EXPECT_EQ(open("[score]\ndenormals_are_zero = true\n"), "score.denormals_are_zero = true");
  EXPECT_EQ(open("[score]\ndenormals_are_zero = true\nflush_to_zero = true\n"), "");
  EXPECT_EQ(open("[p]\nflush_to_zero = true\n[numerator]\ndenormals_are_zero = true\n"), "");
  EXPECT_EQ(open("[denominator]\ndenormals_are_zero = true\n"), "");  // its exp2 flushes
  EXPECT_EQ(open("[sink]\nplace = \"start\"\n"), "sink.place = start");
  EXPECT_EQ(open("[exponent]\nbase = \"e\"\n"), "exponent.base = e");
  EXPECT_EQ(open("[exp2]\nunit = \"fa4-poly5\"\nfloor = \"2^-126\"\n"),
            "exp2.unit = fa4-poly5, exp2.floor = 0x1p-126");
  EXPECT_EQ(open("[normalise]\nevery_tile = true\n[split]\nparts = 2\n"),
            "normalise.every_tile = true, split.parts = 2");
}

TEST(KernelFile, OtherPromisesLoseTheInheritedEvidence) {
  const KernelModel m =
      parse_kernel(std::string(hopper_head) + "[exp2]\nmax_error_ulps = 4\n", "k.toml");
  EXPECT_EQ(m.exp2.name, "ulp:4");
  EXPECT_EQ(m.exp2.evidence, Evidence::assumed);
  EXPECT_EQ(m.exp2.source, "");
  int about_exp2 = 0;
  for (const MachineFact& f : m.facts) {
    if (!f.id.starts_with("exp2.")) continue;
    ++about_exp2;
    EXPECT_EQ(f.id, "exp2.kernel-file");
    EXPECT_EQ(f.evidence, Evidence::assumed);
  }
  EXPECT_EQ(about_exp2, 1);
  // saying what is inherited changes nothing
  KernelModel same = preset("hopper");
  same.name = "mine";
  EXPECT_EQ(parse_kernel(std::string(hopper_head) + "[exp2]\nunit = \"ex2.approx.ftz\"\n"
                                                    "[numerator]\norder = \"matrix-unit:25:16\"\n",
                         "k.toml"),
            same);
  const KernelModel tiled =
      parse_kernel(std::string(hopper_head) + "[numerator]\norder = \"tile:64\"\n", "k.toml");
  for (const MachineFact& f : tiled.facts) {
    if (f.id.starts_with("matrix-unit.")) {
      EXPECT_EQ(f.id, "matrix-unit.kernel-file");
    }
  }
}

TEST(KernelFile, OtherConversionsLoseTheInheritedFact) {
  const auto conversion_facts = [](const std::string& machine, const std::string& body) {
    std::string facts;
    for (const MachineFact& f :
         parse_kernel("name = \"k\"\nmachine = \"" + machine + "\"\n" + body, "k.toml").facts) {
      if (!f.id.starts_with("conversion.")) continue;
      facts += f.id + ": " + f.text + " [" + to_text(f.evidence) + "]\n";
    }
    return facts;
  };
  const std::string fp16_p = "[p]\nformat = \"fp16\"\n";
  const std::string inherited =
      "conversion.rounding: FP32 to BF16 (cvt.rn) rounds to nearest even, keeping subnormals "
      "[assumed]\n";
  EXPECT_EQ(conversion_facts("hopper", ""), inherited);
  EXPECT_EQ(conversion_facts("hopper", "[tiles]\nkeys = 64\n"), inherited);
  EXPECT_EQ(conversion_facts("hopper", fp16_p + "[normalise]\noutput = \"fp16\"\n"),
            "conversion.kernel-file: FP32 to FP16 rounds to nearest even, subnormal P kept "
            "[assumed]\n");
  // P goes to FP16, O still to BF16
  EXPECT_EQ(conversion_facts("hopper", fp16_p),
            "conversion.kernel-file: FP32 to BF16, FP32 to FP16 round to nearest even, subnormal P "
            "kept [assumed]\n");
  EXPECT_EQ(conversion_facts("hopper",
                             "[p]\nformat = \"e4m3fn\"\nsaturate = true\n"
                             "flush_to_zero = true\n[normalise]\noutput = \"fp32\"\n"),
            "conversion.kernel-file: FP32 to E4M3FN rounds to nearest even, P saturates, subnormal "
            "P flushed [assumed]\n");
  EXPECT_EQ(conversion_facts("hopper", "[p]\nflush_to_zero = true\n"),
            "conversion.kernel-file: FP32 to BF16 rounds to nearest even, subnormal P flushed "
            "[assumed]\n");
  // nothing is converted: nothing is assumed of conversions
  EXPECT_EQ(conversion_facts("hopper",
                             "[p]\nformat = \"fp32\"\n[normalise]\noutput = "
                             "\"fp32\"\n"),
            "");
  // the folded query, rounded to BF16, becomes an FP16 operand
  EXPECT_EQ(conversion_facts("tpu7x", "operand = \"fp16\"\n"),
            "conversion.kernel-file: BF16 to FP16, FP32 to BF16 round to nearest even, subnormal P "
            "flushed [assumed]\n");
  // what is stated under that id is taken
  EXPECT_EQ(conversion_facts("ieee-fp32", fp16_p + "[[fact]]\nid = \"conversion.kernel-file\"\n"
                                                   "text = \"RNE\"\nevidence = \"measured\"\n"
                                                   "source = \"a test\"\n"),
            "conversion.kernel-file: RNE [measured]\n");
}

TEST(KernelFile, FactsOfDenominatorsNameNoProducts) {
  for (const MachineFact& f :
       parse_kernel(std::string(hopper_head) + "[denominator]\norder = \"tile:64\"\n", "k.toml")
           .facts) {
    if (f.id != "denominator.kernel-file") continue;
    EXPECT_EQ(f.text, "the denominator is summed as fp32 in order tile:64, subnormals flushed");
    return;
  }
  FAIL() << "no fact denominator.kernel-file";
}

TEST(KernelFile, UnitsSetTheirPromises) {
  const auto exp2_of = [](const std::string& body) {
    return parse_kernel(std::string(hopper_head) + "[exp2]\n" + body, "k.toml").exp2;
  };
  EXPECT_EQ(exp2_of("unit = \"correctly-rounded\"\n").max_error_ulps, 0.5);
  EXPECT_TRUE(exp2_of("unit = \"correctly-rounded\"\n").monotone_at_integers);
  EXPECT_EQ(exp2_of("unit = \"ulp:0x2p+0\"\n").name, "ulp:2");
  EXPECT_EQ(exp2_of("unit = \"ulp:1.5\"\nmonotone_at_integers = true\n").max_error_ulps, 1.5);
  const KernelModel tpu = parse_kernel(
      "name = \"t\"\nmachine = \"tpu7x\"\n[exp2]\nunit = \"ex2.approx.ftz\"\n", "k.toml");
  EXPECT_EQ(tpu.exp2, preset("hopper").exp2);
}

TEST(KernelFile, BoundsRoundUpAndValuesAreExact) {
  const auto ulps = [](const std::string& number) {
    return parse_kernel(std::string(hopper_head) + "[exp2]\nmax_error_ulps = " + number + "\n",
                        "k.toml")
        .exp2.max_error_ulps;
  };
  EXPECT_EQ(ulps("2"), 2);
  EXPECT_EQ(ulps("1.25"), 1.25);
  EXPECT_EQ(ulps("\"0x1.8p+1\""), 3);
  EXPECT_EQ(ulps("\"2^3\""), 8);
  EXPECT_EQ(ulps("\"5/4\""), 1.25);
  // 0.51 and 4/3 are no doubles: never less than what the file says, and next to it
  using Exact = boost::multiprecision::cpp_rational;
  for (const std::string text : {"0.51", "\"0.51\"", "\"51/100\""}) {
    EXPECT_GT(Exact(ulps(text)), Exact(51, 100)) << text;
    EXPECT_LE(ulps(text), std::nextafter(0.51, 1)) << text;
  }
  EXPECT_GT(Exact(ulps("\"4/3\"")), Exact(4, 3));
  EXPECT_EQ(error_of(std::string(hopper_head) + "[gate]\nvmax = \"0.1\"\n"),
            "k.toml:4:8: gate.vmax: found \"0.1\", expected an exact number, such as "
            "\"0x1.99999ap-4\"");
  EXPECT_EQ(error_of(std::string(hopper_head) + "[gate]\nvmax = 16777217\n"),
            "k.toml:4:8: gate.vmax: found 16777217 (0x1.000001p+24), expected a number that fp32 "
            "holds, such as \"0x1p+24\"");
}

TEST(KernelFile, ErrorsNameThePlace) {
  const std::string formats = "one of fp32, fp16, bf16";
  const std::vector<std::pair<std::string, std::string>> files = {
      {"operand = \"fp64\"\n", "k.toml:3:11: operand: found fp64, expected " + formats},
      {"operand = \"fp8\"\n", "k.toml:3:11: operand: found \"fp8\", expected " + formats},
      {"[p]\nformat = \"float16\"\n",
       "k.toml:4:10: p.format: found \"float16\", expected one of fp32, tf32, fp16, bf16, e4m3fn, "
       "e5m2"},
      {"operand = 16\n", "k.toml:3:11: operand: found 16, expected " + formats},
      {"operands = \"fp16\"\n",
       "k.toml:3:1: operands: found an unknown key, expected one of complete, name, machine, "
       "operand, scale, centring, score, mask, sink, exponent, exp2, p, denominator, numerator, "
       "normalise, stabilizer, gate, tiles, split, lse, fact"},
      {"[score]\nformat = \"fp32\"\n",
       "k.toml:4:1: score.format: found an unknown key, expected one of accumulator, order, "
       "flush_to_zero, rounded_products, denormals_are_zero, store, scale_before_store, softcap"},
      {"score = 3\n", "k.toml:3:9: score: found 3, expected a table [score]"},
      {"[score]\norder = \"tile:0\"\n",
       "k.toml:4:9: score.order: found \"tile:0\", expected sequential, tile:N, pairwise, "
       "lanes:N, matrix-unit:F:k or any"},
      {"[numerator]\norder = \"matrix-unit:25\"\n",
       "k.toml:4:9: numerator.order: found \"matrix-unit:25\", expected sequential, tile:N, "
       "pairwise, lanes:N, matrix-unit:F:k or any"},
      {"[numerator]\nrounded_products = true\n",
       "k.toml:4:20: numerator.rounded_products: found rounded_products = true with "
       "matrix-unit:25:16, expected false: a matrix unit adds exact products"},
      {"[numerator]\naccumulator = \"fp16\"\n",
       "k.toml:4:15: numerator.accumulator: found fp16 with matrix-unit:25:16, expected fp32 "
       "with matrix-unit"},
      {"[exponent]\nfused = 1\n", "k.toml:4:9: exponent.fused: found 1, expected true or false"},
      {"[scale]\nscale = \"query\"\nlog2e = \"query\"\n",
       "k.toml:4:9: exponent.fused (inherited from hopper): found true with no factor at the "
       "score, expected [exponent] fused = false, or a factor at site \"score\""},
      {"[scale]\nscale = \"Query\"\n",
       "k.toml:4:9: scale.scale: found \"Query\", expected one of query, key, score"},
      {"[score]\nscale_before_store = true\n",
       "k.toml:4:22: exponent.fused (inherited from hopper): found true with "
       "score.scale_before_store = true, "
       "expected one of them: fma(s, c, -mu) multiplies the stored score"},
      {"[exp2]\nunit = \"ulp:2\"\nmax_error_ulps = 3\n",
       "k.toml:5:18: exp2.max_error_ulps: found 3 ulps with unit ulp:2, expected unit \"ulp:3\""},
      {"[exp2]\nmax_error_ulps = \"0.25\"\n",
       "k.toml:4:18: exp2.max_error_ulps: found 0.25, expected at least 0.5 and less than 8388608 "
       "ulps"},
      {"[exp2]\nmax_error_ulps = nan\n",
       "k.toml:4:18: exp2.max_error_ulps: found nan, expected a number, or an exact one in a "
       "string such as \"0x1p-3\", \"3/8\", \"2^-10\""},
      {"[exp2]\nunit = \"fa4-poly6\"\n",
       "k.toml:4:8: exp2.unit: found \"fa4-poly6\", expected correctly-rounded, ulp:K, "
       "ex2.approx.ftz or fa4-poly1 to 5"},
      {"[exp2]\nunit = \"fa4-poly3\"\npropagates_nan = true\n",
       "k.toml:5:18: exp2.propagates_nan: found true with unit fa4-poly3, expected false: it takes "
       "NaN for -127"},
      {"[exp2]\nfloor = \"2^-150\"\n",
       "k.toml:4:9: exp2.floor: found 0x1p-150, expected 0 or a positive number of fp32"},
      {"[mask]\nvalue = 0\n",
       "k.toml:4:9: mask.value: found 0x0p+0, expected -inf or a negative number that fp32 holds"},
      {"[mask]\nvalue = \"-0x1.000001p0\"\n",
       "k.toml:4:9: mask.value: found -0x1.000001p+0, expected -inf or a negative number that fp32 "
       "holds"},
      {"[mask]\nvalue = \"inf\"\n",
       "k.toml:4:9: mask.value: found \"inf\", expected a number, or an exact one in a string such "
       "as \"0x1p-3\", \"3/8\", \"2^-10\""},
      {"[mask]\nform = \"or\"\n",
       "k.toml:4:8: mask.form: found \"or\", expected one of select, additive"},
      {"[score]\nsoftcap = \"sinh\"\n",
       "k.toml:4:11: score.softcap: found \"sinh\", expected one of tanh, exp-ratio, logistic"},
      {"[sink]\nplace = \"middle\"\n",
       "k.toml:4:9: sink.place: found \"middle\", expected one of end, start"},
      {"[exponent]\nbase = \"10\"\n",
       "k.toml:4:8: exponent.base: found \"10\", expected one of 2, e"},
      {"[scale]\nscale = \"query\"\n[exponent]\nbase = \"e\"\n",
       "k.toml:6:8: exponent.base: found e with log2(e) at a site of its own, expected both at one "
       "site: base e multiplies no log2(e)"},
      {"[split]\nparts = 0\n",
       "k.toml:4:9: split.parts: found 0, expected an integer from 1 to 4096"},
      {"[split]\nparts = 4097\n",
       "k.toml:4:9: split.parts: found 4097, expected an integer from 1 to 4096"},
      {"[split]\nmerge = \"sum\"\n",
       "k.toml:4:9: split.merge: found \"sum\", expected one of lse, lse-naive, lse-log1p, "
       "accumulate"},
      {"[tiles]\nqueries = 0\n",
       "k.toml:4:11: tiles.queries: found 0, expected an integer from 1 to 1048576"},
      {"[lse]\nbase = 2\n", "k.toml:4:8: lse.base: found 2, expected one of 2, e"},
      {"[lse]\nbasis = \"2\"\n",
       "k.toml:4:1: lse.basis: found an unknown key, expected one of base"},
      {"[exp2]\nmax_error_ulps = 3\nevidence = \"measured\"\n",
       "k.toml:5:12: exp2.evidence: found measured without a source, expected a source, or "
       "evidence = \"assumed\""},
      {"[normalise]\nguard = \"maximum\"\n",
       "k.toml:3:1: normalise.guard_value: found 0 (0x0p+0), expected a positive number that fp32 "
       "holds"},
      {"[normalise]\nguard_value = 1\n",
       "k.toml:4:15: normalise.guard_value: found 1 with guard zero-to-one, expected 0, or guard "
       "= \"maximum\""},
      {"[tiles]\nkeys = 0\n",
       "k.toml:4:8: tiles.keys: found 0, expected an integer from 1 to 1048576"},
      {"[tiles]\nkeys = -5\n",
       "k.toml:4:8: tiles.keys: found -5, expected an integer from 0 to 1048576"},
      {"[tiles]\nkeys = 9223372036854775807\n",
       "k.toml:4:8: tiles.keys: found 9223372036854775807, expected an integer from 0 to 1048576"},
      {"[[fact]]\nid = \"Exp2\"\ntext = \"t\"\n",
       "k.toml:4:6: fact[0].id: found \"Exp2\", expected letters a-z, digits, '.' and '-'"},
      {"[[fact]]\nid = \"a\"\ntext = \"t\"\n[[fact]]\nid = \"a\"\ntext = \"t\"\n",
       "k.toml:7:6: fact[1].id: found \"a\" twice, expected one fact an id"},
      {"[[fact]]\nid = \"a\"\ntext = \"t\"\nevidence = \"documented\"\n",
       "k.toml:6:12: fact[0].evidence: found documented without a source, expected a source, or "
       "evidence = \"assumed\""},
      {"fact = 1\n", "k.toml:3:8: fact: found 1, expected tables [[fact]]"},
  };
  for (const auto& [body, error] : files) EXPECT_EQ(error_of(hopper_head + body), error) << body;
}

// What is no TOML is one line that shows the text and what belongs there, not a grammar's words.
TEST(KernelFile, SyntaxErrorsSayWhatIsExpected) {
  const std::pair<const char*, const char*> files[] = {
      {"name = \"x\"\nmachine = hopper\n",
       "k.toml:2:11: syntax: found `machine = hopper`, expected a value: \"text\", a number, true "
       "or "
       "false"},
      {"name = \"x\nmachine = \"hopper\"\n",
       "k.toml:1:10: syntax: found `name = \"x`, expected a string that ends with its quotes on "
       "the "
       "same line, a backslash written \\\\"},
      {"[score\nstore = \"fp32\"\n", "k.toml:1:7: syntax: found `[score`, expected [section]"},
      {"name = \"x\"\nname = \"y\"\n",
       "k.toml:2:8: syntax: found `name = \"y\"`, expected each key and each [section] once"},
      {"name = \"x\" machine = \"y\"\n",
       "k.toml:1:12: syntax: found `name = \"x\" machine = \"y\"`, expected one `key = value` or "
       "one "
       "[section] a line"},
      {"a = [1,\n", "k.toml:1:9: syntax: found `a = [1,`, expected [value, value, ...]"},
  };
  for (const auto& [text, error] : files) {
    const std::string found = error_of(text);
    EXPECT_EQ(found, error) << text;
    EXPECT_EQ(found.find("while parsing"), std::string::npos) << text;
  }
}

TEST(KernelFile, ErrorsOfTheWholeFile) {
  EXPECT_EQ(
      error_of("name = \"x\"\n"),
      "k.toml:1:1: machine: found nothing, expected one of tpu7x, tpu-v6e, ampere, ada, hopper, "
      "blackwell, cdna3, cpu-avx512-bf16, "
      "ieee-fp32, fp16-everywhere, or complete = true and every key");
  EXPECT_EQ(
      error_of("machine = \"volta\"\nname = \"x\"\n"),
      "k.toml:1:11: machine: found \"volta\", expected one of tpu7x, tpu-v6e, ampere, ada, hopper, "
      "blackwell, cdna3, cpu-avx512-bf16, "
      "ieee-fp32, fp16-everywhere, or complete = true and every key");
  EXPECT_EQ(error_of("machine = \"hopper\"\n"),
            "k.toml:1:1: name: found nothing, expected a name for this kernel");
  EXPECT_EQ(error_of("complete = true\nname = \"x\"\nmachine = \"mine\"\noperand = \"bf16\"\n"
                     "[scale]\nscale = \"score\"\n"),
            "k.toml:5:1: scale.log2e: found nothing, expected a value: the file is complete = "
            "true");
  EXPECT_TRUE(error_of("name = \"x\nmachine").starts_with("k.toml:1:10: syntax: found "));
  EXPECT_TRUE(error_of("name = \"x\"\nname = \"y\"\n").starts_with("k.toml:2:")) << "duplicate";
  EXPECT_EQ(error_of(std::string(max_kernel_bytes + 1, '#')),
            "k.toml:1:1: size: found more than 1048576 bytes, expected a kernel file");
  EXPECT_THROW(load_kernel("/nonexistent/kernel.toml"), InputError);
  try {
    load_kernel("/");
    FAIL();
  } catch (const InputError& e) {
    EXPECT_STREQ(
        e.what(),
        "/: is a directory, expected a kernel file or one of tpu7x, tpu-v6e, ampere, ada, hopper, "
        "blackwell, cdna3, cpu-avx512-bf16, "
        "ieee-fp32, fp16-everywhere, each also with :ftz or :gradual after it");
  }
  EXPECT_THROW(load_kernel(""), InputError);
}

TEST(KernelFile, DeepNestingIsRefused) {
  const auto repeat = [](const std::string& part, int n) {
    std::string s;
    for (int i = 0; i < n; ++i) s += part;
    return s;
  };
  // half a million tables, one inside the other, in several disguises
  EXPECT_TRUE(error_of("a" + repeat(".a", 500000) + " = 1").starts_with("k.toml:1:18: syntax"));
  EXPECT_NE(error_of("[a" + repeat(".a", 500000) + "]"), "no error");
  EXPECT_NE(error_of("x = [\"\"\"\n'\"\"\", {a" + repeat(".a", 400000) + " = 1}]"), "no error");
  EXPECT_NE(error_of("x = [\"\"\"b\"\"\"\"\", {a" + repeat(".a", 400000) + " = 1}]"), "no error");
  EXPECT_NE(error_of("x = ['''b'''', {a" + repeat(".a", 400000) + " = 1}]"), "no error");
  EXPECT_NE(error_of("x = [\"\\\"\", {a" + repeat(".a", 400000) + " = 1}]"), "no error");
  EXPECT_NE(error_of("#\r a" + repeat(".a", 400000) + " = 1"), "no error");
  EXPECT_NE(error_of("#\u2028 a" + repeat(".a", 400000) + " = 1"), "no error");
  EXPECT_NE(error_of("x = " + repeat("[", 500000)), "no error");
  EXPECT_NE(error_of("x = " + repeat("{a.a.a.a.a.a.a = [\n", 50000)), "no error");
  EXPECT_NE(error_of(repeat("[a.a.a.a.a.a.a]\n", 60000)), "no error");
  // dots in strings and comments are no keys
  EXPECT_EQ(error_of(std::string(hopper_head) + "# ....................\n[[fact]]\nid = \"a\"\n"
                                                "text = \"... ... ... ... \\\" ... \"\n"),
            "no error");
}

/// A valid model with every field drawn at random.
KernelModel random_model(std::mt19937_64& random) {
  const auto pick = [&](auto... options) {
    const std::common_type_t<decltype(options)...> values[] = {options...};
    return values[random() % sizeof...(options)];
  };
  const auto flag = [&] { return random() % 2 == 0; };
  const auto format = [&] { return pick(fp32, fp16, bf16); };
  const auto text = [&](std::size_t longest) {
    std::string s = "x";
    const std::size_t n = random() % longest;
    for (std::size_t i = 0; i < n; ++i)
      s += pick("a", "\"", "\\", " ", "#", "'", "[", "=", "é", "\u2028");
    return s;
  };
  const auto evidence = [&](Evidence& e, std::string& source) {
    e = pick(Evidence::measured, Evidence::documented, Evidence::assumed);
    source = e == Evidence::assumed && flag() ? "" : text(20);
  };
  const auto accumulator = [&] {
    Accumulator a;
    a.format = format();
    const int size = 1 + static_cast<int>(random() % 5000);
    a.order = pick(AccumulationOrder{OrderKind::sequential}, AccumulationOrder{OrderKind::any},
                   AccumulationOrder{OrderKind::pairwise}, AccumulationOrder{OrderKind::tile, size},
                   AccumulationOrder{OrderKind::lanes, size},
                   AccumulationOrder{OrderKind::matrix_unit, size, 1 + size % 64});
    a.flush_to_zero = flag();
    a.rounded_products = flag();
    a.denormals_are_zero = flag();
    if (a.order.kind == OrderKind::matrix_unit) {
      a.format = fp32;
      a.rounded_products = false;
    }
    return a;
  };
  const auto ulps = [&](int precision) {
    return std::ldexp(1 + std::ldexp(static_cast<double>(random() >> 12), -52),
                      static_cast<int>(random() % static_cast<unsigned>(precision)) - 1);
  };
  KernelModel m;
  m.name = text(30);
  m.machine = pick(std::string("hopper"), std::string("mine"), text(10));
  m.operand = format();
  m.scale = {pick(FactorSite::query, FactorSite::key, FactorSite::score),
             pick(FactorSite::query, FactorSite::key, FactorSite::score), format(), format()};
  m.centring = {pick(Centring::none, Centring::mean, Centring::virtual_), format(), format()};
  m.score = {accumulator(), format(), flag(),
             pick(SoftcapFormula::tanh, SoftcapFormula::exp_ratio, SoftcapFormula::logistic)};
  m.mask = {pick(MaskForm::select, MaskForm::additive),
            pick(-HUGE_VAL, -1e4, -0x1.fffffep127, -0x1p-149)};
  m.sink = pick(SinkPlace::end, SinkPlace::start);
  m.exponent = {format(), flag()};
  if (m.exponent.fused) {
    m.score.scale_before_store = false;
    m.scale.log2e = FactorSite::score;
  }
  if (m.scale.scale == m.scale.log2e) {
    m.exponent.base = pick(ExponentBase::two, ExponentBase::e);
  }
  m.exp2.result = format();
  m.exp2.flush_to_zero = flag();
  m.exp2.propagates_nan = flag();
  switch (random() % 4) {
    case 0:
      break;
    case 1:
      m.exp2.name = "ex2.approx.ftz";
      m.exp2.result = fp32;
      m.exp2.max_error_ulps = 2.5;
      m.exp2.flush_to_zero = true;
      m.exp2.monotone_at_integers = flag();
      break;
    case 2:
      m.exp2 = fa4_polynomial("fa4-poly" + std::to_string(1 + random() % 5)).value();
      break;
    default:
      m.exp2.max_error_ulps = ulps(7);
      m.exp2.name = ulp_unit_name(m.exp2.max_error_ulps);
      m.exp2.monotone_at_integers = flag();
  }
  m.exp2.floor =
      pick(0.0, std::ldexp(1, m.exp2.result.emin), std::ldexp(1, m.exp2.result.least_exponent()));
  evidence(m.exp2.evidence, m.exp2.source);
  m.p = {pick(fp32, tf32, fp16, bf16, e4m3fn, e5m2), flag(), flag(), flag()};
  m.denominator = accumulator();
  m.numerator = accumulator();
  m.normalise.division = pick(Division::divide, Division::reciprocal);
  m.normalise.reciprocal_max_error_ulps = ulps(20);
  m.normalise.reciprocal_flush_to_zero = flag();
  m.normalise.reciprocal_exact_at_powers_of_two = flag();
  m.normalise.every_tile = flag();
  m.normalise.guard = pick(DenominatorGuard::none, DenominatorGuard::zero_to_one,
                           DenominatorGuard::zero_to_zero, DenominatorGuard::maximum);
  if (m.normalise.guard == DenominatorGuard::maximum) {
    m.normalise.guard_value = pick(0x1p-149, 0x1.ad7f2ap-24, 1.0);
  }
  m.normalise.output = format();
  evidence(m.normalise.evidence, m.normalise.source);
  m.stabilizer = {format(), format(), flag()};
  m.gate = {pick(256.0, 0x1.99999ap-4, 1.0, 0x1.fffffep127),
            pick(GateSides::two_sided, GateSides::one_sided),
            pick(GateUnit::head, GateUnit::head_over_batch), static_cast<int>(random() % 4096)};
  m.tiles = {1 + static_cast<int>(random() % 4096),
             pick(Padding::sliced, Padding::masked, Padding::zero_keys),
             pick(EmptyRowRule::zero, EmptyRowRule::zero_pos_inf, EmptyRowRule::mean_of_visited,
                  EmptyRowRule::nan),
             pick(128, 1 + static_cast<int>(random() % 4096))};
  m.split = {
      pick(1, 1 + static_cast<int>(random() % 64)),
      pick(MergeRule::lse, MergeRule::lse_naive, MergeRule::lse_log1p, MergeRule::accumulate),
      pick(ExponentBase::two, ExponentBase::e)};
  m.lse = {pick(ExponentBase::two, ExponentBase::e)};
  for (std::size_t i = random() % 4; i > 0; --i) {
    MachineFact fact{"fact." + std::to_string(i), text(40), Evidence::assumed, ""};
    evidence(fact.evidence, fact.source);
    m.facts.push_back(fact);
  }
  return m;
}

TEST(KernelFile, RandomModelsRoundTrip) {
  std::mt19937_64 random(1);
  std::string last_text;
  KernelModel last;
  for (int i = 0; i < 400; ++i) {
    const KernelModel m = random_model(random);
    const auto problem = find_problem(m);
    ASSERT_FALSE(problem) << problem->keys.front() << " " << problem->found;
    const std::string text = canonical_text(m);
    const KernelModel back = parse_kernel(text, "random");
    ASSERT_TRUE(back == m) << text;
    ASSERT_EQ(canonical_text(back), text);
    ASSERT_EQ(m == last, text == last_text);
    last = m;
    last_text = text;
  }
}

TEST(KernelFile, EveryFieldIsInTheText) {
  // Changing one field changes the text: what no key holds would be lost from certificates.
  const KernelModel base = preset("hopper");
  const std::string text = canonical_text(base);
  std::mt19937_64 random(2);
  for (int i = 0; i < 100; ++i) {
    const KernelModel other = random_model(random);
    const auto swapped = [&](auto member) {
      KernelModel m = base;
      m.*member = other.*member;
      if (!(m == base) && !find_problem(m)) {
        EXPECT_NE(canonical_text(m), text);
      }
    };
    swapped(&KernelModel::operand);
    swapped(&KernelModel::scale);
    swapped(&KernelModel::centring);
    swapped(&KernelModel::score);
    swapped(&KernelModel::mask);
    swapped(&KernelModel::sink);
    swapped(&KernelModel::exponent);
    swapped(&KernelModel::exp2);
    swapped(&KernelModel::p);
    swapped(&KernelModel::denominator);
    swapped(&KernelModel::numerator);
    swapped(&KernelModel::normalise);
    swapped(&KernelModel::stabilizer);
    swapped(&KernelModel::gate);
    swapped(&KernelModel::tiles);
    swapped(&KernelModel::split);
    swapped(&KernelModel::lse);
    swapped(&KernelModel::facts);
  }
}

TEST(KernelFile, AnyBytesGiveAModelOrAnError) {
  std::mt19937_64 random(3);
  const std::string text = canonical_text(preset("fp16-everywhere"));
  int models = 0;
  const auto attempt = [&](const std::string& bytes) {
    try {
      const KernelModel m = parse_kernel(bytes, "bytes");
      EXPECT_FALSE(find_problem(m));
      EXPECT_EQ(parse_kernel(canonical_text(m), "again"), m);
      ++models;
    } catch (const InputError& e) {
      const std::string what = e.what();
      EXPECT_TRUE(what.starts_with("bytes:")) << what;
      EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    }
  };
  for (std::size_t n = 0; n < text.size(); n += 3) attempt(text.substr(0, n));
  for (int i = 0; i < 1500; ++i) {
    std::string bytes = text;
    for (std::size_t flips = 1 + random() % 3; flips > 0; --flips) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    }
    attempt(bytes);
  }
  for (int i = 0; i < 300; ++i) {
    std::string bytes(random() % 200, ' ');
    for (char& c : bytes) c = static_cast<char>(random());
    attempt(bytes);
  }
  EXPECT_GT(models, 0);
}

TEST(KernelFile, ExamplesLoad) {
  const char* root = std::getenv("HEADROOM_SOURCE_ROOT");
  ASSERT_NE(root, nullptr);
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(root) / "examples/kernels")) {
    if (entry.path().extension() != ".toml") continue;
    ++files;
    EXPECT_NO_THROW({
      const KernelModel m = load_kernel(entry.path().string());
      EXPECT_EQ(parse_kernel(canonical_text(m), "again"), m);
    }) << entry.path();
  }
  EXPECT_GE(files, 5);
}

TEST(Orders, TextAndBack) {
  for (const std::string text :
       {"sequential", "tile:64", "pairwise", "lanes:4", "matrix-unit:25:16", "any"}) {
    EXPECT_EQ(to_text(parse_order(text)), text);
  }
  EXPECT_EQ(parse_order("matrix-unit:25:16").fraction_bits, 25);
  EXPECT_EQ(parse_order("matrix-unit:25:16").size, 16);
  for (const std::string text :
       {"", "tile", "tile:", "tile:-1", "tile:+1", "tile:01", "tile:1x", "tile:99999999999",
        "matrix-unit:25", "matrix-unit::16", "lanes:0", "Any", "any "}) {
    EXPECT_THROW(parse_order(text), std::invalid_argument) << text;
  }
}

TEST(Validate, NamesKernelAndKey) {
  KernelModel m = preset("hopper");
  m.operand = fp64;
  try {
    validate(m);
    FAIL();
  } catch (const InputError& e) {
    EXPECT_STREQ(e.what(), "kernel hopper: operand: found fp64, expected one of fp32, fp16, bf16");
  }
  EXPECT_THROW(canonical_text(m), InputError);
  m = preset("hopper");
  m.facts.push_back(m.facts.front());
  EXPECT_TRUE(find_problem(m));
  m = preset("hopper");
  m.name = "two\nlines";
  EXPECT_TRUE(find_problem(m));
  m = preset("hopper");
  m.gate.vmax = std::nan("");
  EXPECT_TRUE(find_problem(m));
  m = preset("hopper");
  m.normalise.reciprocal_max_error_ulps = HUGE_VAL;
  EXPECT_TRUE(find_problem(m));
}

}  // namespace
}  // namespace headroom
