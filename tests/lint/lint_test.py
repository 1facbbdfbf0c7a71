#!/usr/bin/env python3
"""Each rule of lint.py finds what it exists for, and leaves the permitted neighbour alone."""

import pathlib
import tempfile
import unittest

from lint import RULES
from source_tree import without_comments

FLAGS = "add_project_arguments('-frounding-math', '-ffp-contract=off')\n"
HEADER = "// A header.\n#pragma once\n"


class LintTest(unittest.TestCase):
    def violations(self, rule, files):
        """What the rule says of a tree of the given files (path -> text)."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {"meson.build": FLAGS, **files}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return list(RULES[rule](root))

    def assert_clean(self, rule, files):
        self.assertEqual(self.violations(rule, files), [])

    def assert_found(self, rule, files, part):
        self.assertIn(part, "\n".join(self.violations(rule, files)))

    def test_includes_point_one_way(self):
        tree = {"reference/format/f.h": HEADER, "reference/real/r.h": HEADER,
                "reference/evaluate/e.h": HEADER, "bounds/b.h": HEADER, "cli/c.h": HEADER,
                "reference/input_error.h": HEADER}

        def including(name, *included):
            lines = "".join(f'#include "{path}"\n' for path in included)
            return {**tree, name: HEADER + lines}

        self.assert_clean("include-direction", including(
            "certify/x.cpp", "bounds/b.h", "reference/evaluate/e.h", "reference/input_error.h"))
        self.assert_clean("include-direction", including(
            "tests/unit/x.cpp", "cli/c.h", "bounds/b.h"))
        self.assert_found("include-direction", including("reference/real/x.cpp", "bounds/b.h"),
                          "reference/real/x.cpp:3:")
        self.assert_found("include-direction", including("reference/format/f.h",
                                                         "reference/real/r.h"), "f.h:3")
        self.assert_found("include-direction", including("reference/stabilizer/x.cpp",
                                                         "reference/evaluate/e.h"), "x.cpp:3")
        self.assert_found("include-direction", including("bounds/x.cpp", "b.h"), "not a path")
        self.assert_found("include-direction", including("bounds/x.cpp", "../cli/c.h"),
                          "not a path")
        self.assert_found("include-direction",
                          {**tree, "tests/t.h": HEADER, "cli/x.cpp": '#include "tests/t.h"\n'},
                          "must not include")

    def test_headers(self):
        self.assert_clean("headers", {"cli/c.h": HEADER})
        self.assert_found("headers", {"cli/c.h": "#pragma once\n"}, "first line")
        self.assert_found("headers", {"cli/c.h": "// A header.\n"}, "#pragma once")
        self.assert_found("headers", {"cli/c.h": HEADER + "using namespace std;\n"}, "using")

    def test_banned_words(self):
        self.assert_clean("banned-words", {"README.md": "network/folder, methodology, tododo\n"})
        for word in ("TO" "DO", "FIX" "ME: later", "see /wo" "rk/main", "pypi." "org", "/ro" "ot/x",
                     "crates." "io"):
            self.assert_found("banned-words", {"docs/a.md": f"line\n{word}\n"}, "docs/a.md:2:")

    def test_folder_names(self):
        self.assert_clean("folder-names", {"reference/format/x.h": HEADER})
        self.assert_found("folder-names", {"reference/utils/x.h": HEADER}, "reference/utils")
        self.assert_found("folder-names", {"bounds/core/deep/x.h": HEADER}, "bounds/core")

    def test_interval_comparisons(self):
        rule = "interval-comparisons"
        self.assert_clean(rule, {"bounds/x.cpp": "// mpfi_cmp is not used\nless(a, b);\n"})
        self.assert_found(rule, {"bounds/x.cpp": "if (mpfi_cmp(a, b) < 0)\n"}, "bounds/x.cpp:1")
        self.assert_found(rule, {"bounds/x.cpp": "#include <boost/multiprecision/mpfi.hpp>\n"},
                          "mpfi.hpp")
        self.assert_found(rule, {"bounds/x.cpp": "CGAL::Interval_nt<false> a;\n"}, "Interval_nt")
        self.assert_found(rule, {"reference/real/interval.h": "bool operator<(I, I);\n"},
                          "operator<")
        self.assert_clean(rule, {"reference/real/interval.h": "I operator*(I, I); // operator<(\n"})

    def test_no_libm_bounds(self):
        rule = "no-libm-bounds"
        self.assert_clean(rule, {"bounds/x.cpp": "exp2(Interval(1)); std::sqrt(x); log2_up(x);\n"
                                                 "headroom::exp2(x); std::max(1, 2);\n",
                                 "cli/x.cpp": "std::log2(x);\n"})
        for call in ("std::exp2(x)", "std::log2(x)", "std::exp(x)", "std::pow(x, 2)", "::exp2(x)",
                     "exp2f(x)", "std::log1p (x)", "__builtin_exp2(x)", "using std::log2;"):
            self.assert_found(rule, {"certify/x.cpp": f"double y = {call};\n"}, "certify/x.cpp:1")

    def test_rounding_flags(self):
        self.assert_clean("rounding-flags", {"bounds/meson.build": "# never -ffast-math\n"})
        self.assert_clean("rounding-flags", {"bounds/meson.build": "'-fno-fast-math'\n"})
        self.assert_found("rounding-flags", {"bounds/meson.build": "'-ffast-math'\n"}, ":1:")
        self.assert_found("rounding-flags", {"bounds/meson.build": "'-ffp-contract=fast'\n"}, ":1:")
        self.assert_found("rounding-flags", {"meson.build": "'-frounding-math'\n"}, "missing")
        self.assert_found("rounding-flags", {"cli/x.cpp": '#pragma GCC optimize("O3")\n'}, "x.cpp:1")

    def test_defects(self):
        test = {"tests/a_test.cpp": "TEST_F(Load, Fails) {}"}
        self.assert_clean("defects", test)
        self.assert_clean("defects", {**test, "DEFECTS.md": "| B01 | `Load.Fails`, `p.format` |"})
        self.assert_found("defects", {**test, "DEFECTS.md": "x\n| B01 | `Load.Passes` |"},
                          "DEFECTS.md:2: no test Load.Passes")

    def test_comments_are_blanked_and_lines_kept(self):
        text = 'a; // b\n/* c\nd */ e = "// f"; g = \'"\'; h = 1\'000; // i\n'
        kept = without_comments(text)
        self.assertEqual(kept.count("\n"), text.count("\n"))
        for gone in "bcdi":
            self.assertNotIn(gone, kept)
        self.assertIn('"// f"', kept)
        self.assertIn("h = 1'000;", kept)


if __name__ == "__main__":
    unittest.main()
