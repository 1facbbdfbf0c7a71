// Interval arithmetic against the undecorated lines of ITF1788 (IEEE 1788 conformance vectors), for
// every operation that Interval or WideInterval has; skipped where the vectors are absent.
//
// The vectors give the tightest enclosures in double precision. Ours must contain each of them, and
// equal it where the operation is documented as tight. Lines with an empty operand, or an empty
// result, have no counterpart: these intervals always hold a number.
#include <gtest/gtest.h>
#include <mpfr.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "reference/real/fp_environment.h"
#include "reference/real/interval.h"
#include "reference/real/wide_interval.h"
#include "tests/shared_data.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

fs::path shared;

/// `text` as a double, rounded in the given direction.
double number(const std::string& text, mpfr_rnd_t rounding) {
  MPFR_DECL_INIT(exact, 53);
  if (text == "infinity" || text == "+infinity") return HUGE_VAL;
  if (text == "-infinity") return -HUGE_VAL;
  char* end = nullptr;
  mpfr_strtofr(exact, text.c_str(), &end, 0, rounding);
  EXPECT_EQ(*end, '\0') << text;
  return mpfr_get_d(exact, rounding);
}

/// An operand or a result: an interval (nothing: empty), or a word such as "true" or "1.5".
struct Term {
  bool bracketed = false;
  std::optional<Interval> interval;
  std::string word;
};

Term read_term(const std::string& text) {
  Term term;
  if (text.front() != '[') {
    term.word = text;
    return term;
  }
  term.bracketed = true;
  std::string inside = text.substr(1, text.size() - 2);
  std::erase(inside, ' ');
  if (inside == "entire") {
    term.interval = Interval::entire();
  } else if (inside != "empty") {
    const std::size_t comma = inside.find(',');
    const std::string lo = inside.substr(0, comma);
    const std::string hi = comma == std::string::npos ? lo : inside.substr(comma + 1);
    term.interval = Interval(number(lo, MPFR_RNDD), number(hi, MPFR_RNDU));
  }
  return term;
}

struct Line {
  std::string operation, text;
  std::vector<Term> operands;
  Term result;
};

/// The file without its comments.
std::string read_code(const fs::path& file) {
  std::ifstream in(file);
  std::stringstream content;
  content << in.rdbuf();
  std::string text = content.str();
  for (const auto& [open, close] : {std::pair{"/*", "*/"}, std::pair{"//", "\n"}}) {
    for (std::size_t at = text.find(open); at != std::string::npos; at = text.find(open, at)) {
      const std::size_t end = text.find(close, at);
      text.replace(at, end == std::string::npos ? end : end + 2 - at, "\n");
    }
  }
  return text;
}

/// Terms between blanks; an interval is one term, blanks in it or not.
std::vector<std::string> split_terms(const std::string& text) {
  std::vector<std::string> terms;
  for (std::size_t at = 0; at < text.size();) {
    if (std::isspace(static_cast<unsigned char>(text[at])) != 0) {
      ++at;
      continue;
    }
    const std::size_t end = text[at] == '['
                                ? text.find(']', at) + 1
                                : std::min(text.find_first_of(" \t\n[", at), text.size());
    terms.push_back(text.substr(at, end - at));
    at = end;
  }
  return terms;
}

/// Undecorated lines with one result: no `_com` and its kind, no `nai`, no signal.
std::vector<Line> read_lines(const fs::path& file) {
  std::string text = read_code(file);
  for (char& c : text) {
    if (c == '{' || c == '}') c = ';';
  }
  std::vector<Line> lines;
  std::stringstream statements(text);
  for (std::string statement; std::getline(statements, statement, ';');) {
    const std::size_t equals = statement.find('=');
    if (equals == std::string::npos) continue;
    if (statement.find_first_of("_\"") != std::string::npos ||
        statement.find("nai") != std::string::npos) {
      continue;
    }
    const std::vector<std::string> terms = split_terms(statement.substr(0, equals));
    const std::vector<std::string> results = split_terms(statement.substr(equals + 1));
    if (terms.empty() || results.size() != 1) continue;
    Line line;
    line.operation = terms[0];
    line.text = statement;
    for (std::size_t i = 1; i < terms.size(); ++i) line.operands.push_back(read_term(terms[i]));
    line.result = read_term(results[0]);
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<Line> all_lines() {
  std::vector<Line> lines;
  for (const auto& entry : fs::directory_iterator(shared / "data/itf1788")) {
    if (entry.path().extension() != ".itl") continue;
    const std::vector<Line> some = read_lines(entry.path());
    lines.insert(lines.end(), some.begin(), some.end());
  }
  return lines;
}

bool any_empty(const Line& line) {
  const auto empty = [](const Term& t) { return t.bracketed && !t.interval; };
  return std::any_of(line.operands.begin(), line.operands.end(), empty) || empty(line.result);
}

using Operands = std::vector<Interval>;
struct Operation {
  std::function<Interval(const Operands&)> compute;
  bool tight = true;
  std::function<bool(const Operands&)> tight_if = [](const Operands&) { return true; };
};

bool holds_zero(const Interval& x) { return x.contains(0); }

/// Operations whose result is an interval.
const std::map<std::string, Operation>& interval_operations() {
  // division is tight where its docstring says more than "the whole line"
  const auto finite_quotient = [](const Operands& x) {
    return !holds_zero(x.back()) && x.back().is_finite() && x.front().is_finite();
  };
  static const std::map<std::string, Operation> operations = {
      {"pos", {[](const Operands& x) { return x[0]; }}},
      {"neg", {[](const Operands& x) { return -x[0]; }}},
      {"add", {[](const Operands& x) { return x[0] + x[1]; }}},
      {"sub", {[](const Operands& x) { return x[0] - x[1]; }}},
      {"mul", {[](const Operands& x) { return x[0] * x[1]; }}},
      {"div", {[](const Operands& x) { return x[0] / x[1]; }, true, finite_quotient}},
      {"recip", {[](const Operands& x) { return Interval(1.0) / x[0]; }, true, finite_quotient}},
      {"sqr", {[](const Operands& x) { return square(x[0]); }}},
      {"sqrt", {[](const Operands& x) { return sqrt(x[0]); }}},
      {"abs", {[](const Operands& x) { return abs(x[0]); }}},
      {"min", {[](const Operands& x) { return min(x[0], x[1]); }}},
      {"max", {[](const Operands& x) { return max(x[0], x[1]); }}},
      {"convexHull", {[](const Operands& x) { return hull(x[0], x[1]); }}},
      {"exp", {[](const Operands& x) { return exp(x[0]); }}},
      {"exp2", {[](const Operands& x) { return exp2(x[0]); }}},
      {"log", {[](const Operands& x) { return log(x[0]); }}},
      {"log2", {[](const Operands& x) { return log2(x[0]); }}},
      {"tanh", {[](const Operands& x) { return tanh(x[0]); }}},
  };
  return operations;
}

/// The same of WideInterval, at 53 bits and MPFR's exponent range.
const std::map<std::string, std::function<WideInterval(const std::vector<WideInterval>&)>>&
wide_operations() {
  using W = std::vector<WideInterval>;
  static const std::map<std::string, std::function<WideInterval(const W&)>> operations = {
      {"add", [](const W& x) { return x[0] + x[1]; }},
      {"sub", [](const W& x) { return x[0] - x[1]; }},
      {"mul", [](const W& x) { return x[0] * x[1]; }},
      {"div", [](const W& x) { return x[0] / x[1]; }},
      {"exp2", [](const W& x) { return exp2(x[0]); }},
      {"log2", [](const W& x) { return log2(x[0]); }},
      {"sqrt", [](const W& x) { return sqrt(x[0]); }},
  };
  return operations;
}

/// Operations whose result is a number of the interval: our upper bound of it, or the number.
const std::map<std::string, std::function<double(const Interval&)>>& number_operations() {
  static const std::map<std::string, std::function<double(const Interval&)>> operations = {
      {"inf", [](const Interval& x) { return x.lo(); }},
      {"sup", [](const Interval& x) { return x.hi(); }},
      {"mag", [](const Interval& x) { return x.magnitude(); }},
      {"wid", [](const Interval& x) { return x.width(); }},
  };
  return operations;
}

Operands operands_of(const Line& line) {
  Operands all;
  for (const Term& term : line.operands) all.push_back(*term.interval);
  return all;
}

TEST(IntervalConformance, EveryOperationContainsAndIsTightWhereClaimed) {
  const UpwardRounding up;
  std::map<std::string, int> checked, tight;
  for (const Line& line : all_lines()) {
    const auto found = interval_operations().find(line.operation);
    if (found == interval_operations().end() || any_empty(line)) continue;
    const Operands x = operands_of(line);
    const Interval ours = found->second.compute(x), expected = *line.result.interval;
    EXPECT_LE(ours.lo(), expected.lo()) << line.text;
    EXPECT_GE(ours.hi(), expected.hi()) << line.text;
    ++checked[line.operation];
    if (!found->second.tight || !found->second.tight_if(x)) continue;
    EXPECT_EQ(ours.lo(), expected.lo()) << line.text;
    EXPECT_EQ(ours.hi(), expected.hi()) << line.text;
    ++tight[line.operation];
  }
  for (const auto& [name, operation] : interval_operations()) {
    EXPECT_GT(checked[name], 2) << name;
    EXPECT_GT(tight[name], 1) << name;
    std::printf("%-12s %4d lines, %4d of them tight\n", name.c_str(), checked[name], tight[name]);
  }
}

TEST(IntervalConformance, WideIntervalsContain) {
  std::map<std::string, int> checked;
  for (const Line& line : all_lines()) {
    const auto found = wide_operations().find(line.operation);
    if (found == wide_operations().end() || any_empty(line)) continue;
    std::vector<WideInterval> x;
    for (const Term& term : line.operands) {
      WideInterval& one = x.emplace_back(53);
      mpfi_interv_d(one.raw(), term.interval->lo(), term.interval->hi());
    }
    const WideInterval ours = found->second(x);
    const Interval expected = *line.result.interval;
    // NaN ends say nothing, as the whole line
    const auto* raw = ours.raw();
    if (mpfr_nan_p(&raw->left) == 0) {
      EXPECT_LE(mpfr_get_d(&raw->left, MPFR_RNDD), expected.lo()) << line.text;
    }
    if (mpfr_nan_p(&raw->right) == 0) {
      EXPECT_GE(mpfr_get_d(&raw->right, MPFR_RNDU), expected.hi()) << line.text;
    }
    ++checked[line.operation];
  }
  for (const auto& [name, operation] : wide_operations()) EXPECT_GT(checked[name], 4) << name;
}

TEST(IntervalConformance, NumbersOfAnInterval) {
  const UpwardRounding up;
  std::map<std::string, int> checked;
  for (const Line& line : all_lines()) {
    const auto found = number_operations().find(line.operation);
    if (found == number_operations().end() || any_empty(line)) continue;
    EXPECT_EQ(found->second(*line.operands[0].interval), number(line.result.word, MPFR_RNDU))
        << line.text;
    ++checked[line.operation];
  }
  for (const auto& [name, operation] : number_operations()) EXPECT_GT(checked[name], 4) << name;
}

/// less and less_equal ask whether every value of a is below (at most) every value of b: what the
/// vectors call strictPrecedes and precedes.
TEST(IntervalConformance, Comparisons) {
  std::map<std::string, int> checked;
  for (const Line& line : all_lines()) {
    const bool strict = line.operation == "strictPrecedes";
    if ((!strict && line.operation != "precedes") || any_empty(line)) continue;
    const Operands x = operands_of(line);
    // infinite ends stand for numbers without bound, so none is below another; the vectors let
    // only real numbers be members, and so agree where an end of either is finite
    const Tri ours = strict ? less(x[0], x[1]) : less_equal(x[0], x[1]);
    EXPECT_EQ(ours == Tri::yes, line.result.word == "true") << line.text;
    ++checked[line.operation];
  }
  EXPECT_GT(checked["precedes"], 10);
  EXPECT_GT(checked["strictPrecedes"], 10);
}

/// What the vectors have and this project does not: listed, so that a new operation is noticed.
TEST(IntervalConformance, OperationsWithoutCounterpart) {
  std::set<std::string> others;
  for (const Line& line : all_lines()) {
    const std::string& name = line.operation;
    if (interval_operations().contains(name) || number_operations().contains(name) ||
        wide_operations().contains(name) || name == "precedes" || name == "strictPrecedes") {
      continue;
    }
    others.insert(name);
  }
  std::string names;
  for (const std::string& name : others) names += " " + name;
  std::printf("no counterpart:%s\n", names.c_str());
  for (const char* name : {"pow", "pown", "fma", "sin", "cancelMinus", "intersection"}) {
    EXPECT_TRUE(others.contains(name)) << name;
  }
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  headroom::shared = headroom::tests::shared_data_or_skip();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
