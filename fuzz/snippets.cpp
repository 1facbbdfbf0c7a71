// Findings as tests of the user's own suite.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "fuzz/finding.h"
#include "reference/evaluate/ladder/ladder.h"
#include "reference/format/convert.h"
#include "reference/input_error.h"

namespace headroom::fuzz {
namespace {

/// The words of a row-major matrix, a line of code a row.
std::string word_lines(const Format& format, const std::vector<float>& x, std::int64_t columns) {
  std::string lines;
  const auto digits = static_cast<std::size_t>(2 * format.storage_bytes());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool begins = i % static_cast<std::size_t>(columns) == 0;
    const bool ends = (i + 1) % static_cast<std::size_t>(columns) == 0;
    if (begins) lines += "    \"";
    const std::uint64_t code = format == fp32 ? std::uint64_t{std::bit_cast<std::uint32_t>(x[i])}
                                              : encode(format, static_cast<double>(x[i]), {});
    lines += fmt::format("{:0{}x}", code, digits);
    lines += ends ? " \"\n" : " ";
  }
  return lines;
}

/// `text` as lines of a comment, at most 96 characters each.
std::string comment(const std::string& text, const std::string& mark) {
  constexpr std::size_t width = 96;
  std::string lines, line;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    std::string word = text.substr(at, end - at);
    for (char& c : word) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') c = '?';
    }
    at = end + 1;
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      lines += mark + " " + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return lines + mark + " " + line + "\n";
}

/// "zero_row_normalise".
std::string snake_name(const Finding& f) {
  std::string name = std::string(to_text(f.objective)) +
                     (f.diagnosis.stage.empty() ? "" : "_" + f.diagnosis.stage);
  for (char& c : name) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (!letter) c = '_';
  }
  return name;
}

/// "ZeroRowNormalise".
std::string camel_name(const Finding& f) {
  std::string name;
  bool upper = true;
  for (const char c : snake_name(f)) {
    if (c == '_') {
      upper = true;
      continue;
    }
    name += upper && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    upper = false;
  }
  return name;
}

std::string cpp(const Finding& f) {
  // no text of the document can end the literal
  std::string end = "finding";
  const std::string text = finding_text(f);
  while (text.find(")" + end + "\"") != std::string::npos) end += "_";
  std::string code =
      comment(f.text, "//") +
      "#include <gtest/gtest.h>\n\n#include \"fuzz/finding.h\"\n\nTEST(HeadroomFinding, ";
  code += camel_name(f);
  code += ") {\n  headroom::fuzz::Finding finding = headroom::fuzz::parse_finding(R\"" + end + "(" +
          text + ")" + end +
          "\",\n      \"finding\");\n"
          "  // the kernel as it is now, if another shall be tested:\n"
          "  // finding.target.kernel = headroom::load_kernel(\"my-kernel.toml\");\n"
          "  EXPECT_FALSE(\n"
          "      headroom::fuzz::diagnose(finding.target, finding.candidate, finding.objective)"
          ".met)\n"
          "      << finding.text;\n}\n";
  return code;
}

/// What a user's kernel is held to: exact attention over the stored operands.
struct Expectation {
  std::vector<std::int64_t> rows;  ///< those that see a key
  std::vector<float> output;       ///< correctly rounded to FP32
  std::vector<double> tolerance;   ///< of each row
};

Expectation expected(const Finding& f) {
  const Candidate& c = f.candidate;
  const AttentionProblem problem =
      problem_of(c, f.target.kernel.operand, f.target.scale_of(c.shape));
  Expectation e;
  LadderOptions options;
  options.instruction_set = InstructionSet::portable;
  std::vector<double> largest;
  for (std::int64_t i = 0; i < problem.queries(); ++i) {
    double most = -1;
    for (std::int64_t j = 0; j < problem.keys(); ++j) {
      if (!problem.visible(i, j)) continue;
      most = std::max(most, 0.0);
      for (std::int64_t v = 0; v < problem.value_channels(); ++v) {
        most = std::max(most, std::fabs(static_cast<double>(c.value(j)[v])));
      }
    }
    if (most < 0) continue;
    e.rows.push_back(i);
    e.tolerance.push_back(f.target.tolerance * most);
  }
  if (e.rows.empty()) return e;
  const RoundedRows exact = correctly_rounded(problem, e.rows, options);
  for (std::size_t r = 0; r < e.rows.size(); ++r) {
    for (std::int64_t v = 0; v < problem.value_channels(); ++v) {
      e.output.push_back(static_cast<float>(decode(fp32, exact.output_code(r, v))));
    }
  }
  return e;
}

template <class T>
std::string list(const std::vector<T>& x) {
  std::string text;
  for (const T& a : x) text += fmt::format("{}{}", text.empty() ? "" : ", ", a);
  return "[" + text + "]";
}

struct Library {
  std::string_view imports, tensor, attention, output;
};

constexpr Library torch = {
    "import torch\n\nDTYPES = {\n"
    "    \"fp32\": torch.float32, \"fp16\": torch.float16, \"bf16\": torch.bfloat16,\n"
    "    \"e4m3fn\": getattr(torch, \"float8_e4m3fn\", None),\n"
    "    \"e5m2\": getattr(torch, \"float8_e5m2\", None),\n}\n",
    "    return torch.frombuffer(bytearray(raw), dtype=DTYPES[name]).reshape(1, 1, *shape)\n",
    "def attention(q, k, v, scale, **extra):\n"
    "    \"\"\"The kernel to be tested: q, k, v are [batch, heads, rows, channels].\"\"\"\n"
    "    return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scale, **extra)\n",
    "out.double().cpu().reshape(QUERIES, VALUE_CHANNELS).tolist()"};

constexpr Library jax = {
    "import jax\nimport jax.numpy as jnp\nimport numpy as np\n\nDTYPES = {\n"
    "    \"fp32\": jnp.float32, \"fp16\": jnp.float16, \"bf16\": jnp.bfloat16,\n"
    "    \"e4m3fn\": getattr(jnp, \"float8_e4m3fn\", None),\n"
    "    \"e5m2\": getattr(jnp, \"float8_e5m2\", None),\n}\n",
    "    return jnp.asarray(np.frombuffer(raw, dtype=DTYPES[name]).reshape(1, 1, *shape))\n",
    "def attention(q, k, v, scale, **extra):\n"
    "    \"\"\"The kernel to be tested: q, k, v are [batch, heads, rows, channels].\"\"\"\n"
    "    q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))\n"
    "    return jnp.swapaxes(jax.nn.dot_product_attention(q, k, v, scale=scale, **extra), 1, 2)\n",
    "np.asarray(out, dtype=np.float64).reshape(QUERIES, VALUE_CHANNELS).tolist()"};

std::string python(const Finding& f, const Library& library) {
  const Candidate& c = f.candidate;
  const Shape& s = c.shape;
  const Format& operand = f.target.kernel.operand;
  const AttentionProblem problem = problem_of(c, operand, f.target.scale_of(s));
  const Expectation e = expected(f);
  std::string code = comment(f.text, "#");
  code += library.imports;
  code += fmt::format(
      "\n\ndef tensor(name, words, shape):\n"
      "    \"\"\"A tensor of these bit patterns.\"\"\"\n"
      "    raw = b\"\".join(int(w, 16).to_bytes(len(w) // 2, \"little\") for w in words.split())\n"
      "{}\n\n{}\n\n",
      library.tensor, library.attention);
  code += fmt::format("QUERIES, KEYS, CHANNELS, VALUE_CHANNELS = {}, {}, {}, {}\n", s.queries,
                      s.keys, s.channels, s.value_channels);
  const Interval scale = f.target.scale_of(s).natural_factor();
  code += fmt::format("SCALE = {}  # natural units\n", scale.lo() / 2 + scale.hi() / 2);
  const auto matrix = [&](const char* name, const std::vector<float>& x, const Format& format,
                          std::int64_t columns) {
    code += fmt::format("{} = (\n{})\n", name, word_lines(format, x, columns));
  };
  matrix("Q", c.q, operand, s.channels);
  matrix("K", c.k, operand, s.channels);
  matrix("V", c.v, operand, s.value_channels);
  code += "# exact attention of these operands, correctly rounded to FP32; what a row may be off\n";
  matrix("EXACT", e.output, fp32, s.value_channels);
  code += fmt::format("ROWS = {}\nTOLERANCE = {}\n", list(e.rows), list(e.tolerance));
  std::string extra;
  const Setting& g = c.setting;
  if (!g.plain()) {
    // every mask as one: who sees whom, and the bias beside it
    std::string visible, bias;
    for (std::int64_t i = 0; i < s.queries; ++i) {
      visible += "    \"";
      for (std::int64_t j = 0; j < s.keys; ++j) visible += problem.visible(i, j) ? '1' : '0';
      visible += "\",\n";
    }
    code += "# which keys a row sees\nVISIBLE = [\n" + visible + "]\n";
    extra += ", mask=[[c == \"1\" for c in row] for row in VISIBLE]";
    if (!g.bias.empty()) {
      std::vector<float> all;
      for (std::int64_t i = 0; i < s.queries; ++i) {
        for (std::int64_t j = 0; j < s.keys; ++j) {
          all.push_back(static_cast<float>(problem.bias_at(i, j)));
        }
      }
      code += "# added to scores, natural units\n";
      matrix("BIAS", all, fp32, s.keys);
      extra += ", bias=tensor(\"fp32\", BIAS, (QUERIES, KEYS))";
    }
    if (g.softcap) extra += fmt::format(", softcap={}", *g.softcap);
    if (g.sink) extra += fmt::format(", sink={}", *g.sink);
  }
  code += fmt::format(
      "\n\ndef test_headroom_{}():\n"
      "    q = tensor(\"{}\", Q, (QUERIES, CHANNELS))\n"
      "    k = tensor(\"{}\", K, (KEYS, CHANNELS))\n"
      "    v = tensor(\"{}\", V, (KEYS, VALUE_CHANNELS))\n",
      snake_name(f), operand.name, operand.name, operand.name);
  if (!extra.empty()) {
    code += "    # name the arguments as the kernel does: mask is True where a row sees a key\n";
  }
  code +=
      fmt::format("    out = attention(q, k, v, SCALE{})\n    found = {}\n", extra, library.output);
  code += fmt::format(
      "    words = iter(EXACT.split())\n"
      "    for row, tolerance in zip(ROWS, TOLERANCE):\n"
      "        for channel in range(VALUE_CHANNELS):\n"
      "            exact = struct.unpack(\">f\", bytes.fromhex(next(words)))[0]\n"
      "            x = found[row][channel]\n"
      "            good = x != x if exact != exact else abs(x - exact) <= tolerance\n"
      "            assert good, f\"row {{row}}, channel {{channel}}: {{x}}, exactly {{exact}}\"\n");
  return comment("Made by headroom replay --test: a head on which a kernel was wrong.", "#") +
         "import struct\n\n" + code;
}

}  // namespace

std::string test_snippet(const Finding& finding, const std::string& language) {
  if (language == "c++") return cpp(finding);
  if (language == "pytorch") return python(finding, torch);
  if (language == "jax") return python(finding, jax);
  throw InputError(
      fmt::format("language: found '{}', expected one of c++, pytorch, jax", language));
}

}  // namespace headroom::fuzz
