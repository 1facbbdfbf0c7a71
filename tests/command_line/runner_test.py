#!/usr/bin/env python3
"""The two runners notice what they exist to notice, on small programs of their own."""

import contextlib
import io
import pathlib
import tempfile
import unittest

import console_blocks
import run_cases


def script(folder, text):
    """A bash program in `folder`."""
    path = pathlib.Path(folder) / "program"
    path.write_text("#!/bin/bash\n" + text)
    path.chmod(0o755)
    return str(path)


class CasesTest(unittest.TestCase):
    def problems(self, text, **case):
        with tempfile.TemporaryDirectory() as folder:
            case = {"name": "x", "arguments": ["a", "{tmp}"], "code": 0, **case}
            return list(run_cases.problems(case, script(folder, text), folder, False))

    def test_good_runs_pass(self):
        self.assertEqual(self.problems("echo hi $1", out="hi a\n", has=["hi"]), [])
        self.assertEqual(self.problems("echo headroom: no >&2; exit 2", code=2, err="no"), [])
        self.assertEqual(self.problems('echo "{\\"a\\": 1}"', json=lambda v: v["a"] == 1), [])
        self.assertEqual(self.problems("touch $2/f", files=["f"]), [])

    def test_each_expectation_can_fail(self):
        for text, case in [
            ("exit 1", {}),
            ("echo hi", {"out": "ho\n"}),
            ("echo hi", {"has": ["ho"]}),
            ("echo warning >&2", {}),
            ("printf '\\033[32mok'", {}),
            ("echo error >&2; exit 2", {"code": 2}),                         # no "headroom: "
            ("printf 'headroom: a\\nb\\n' >&2; exit 2", {"code": 2}),        # two lines
            ("echo x; echo headroom: a >&2; exit 2", {"code": 2}),           # output as well
            ("echo headroom: a >&2; exit 2", {"code": 2, "err": "b"}),
            ("echo '{}'", {"json": lambda value: value["a"]}),
            ("echo no", {"json": lambda value: True}),
            ("touch $2/g", {"files": ["f"]}),
            ("echo hi", {"golden": "no-such-file"}),
        ]:
            with self.subTest(text=text):
                self.assertTrue(self.problems(text, **case))

    def test_help_needs_an_example(self):
        listing = '[ "$1" = --help ] && printf "Subcommands:\\n  go   goes\\n" && exit 0\n'
        with tempfile.TemporaryDirectory() as folder:
            good = script(folder, listing + 'echo "Example: headroom go"')
            self.assertEqual(list(run_cases.help_problems(good, folder)), [])
            bad = script(folder, listing + 'echo "Usage: headroom go"')
            self.assertTrue(list(run_cases.help_problems(bad, folder)))
            none = script(folder, "exit 0")
            self.assertTrue(list(run_cases.help_problems(none, folder)))


class ConsoleTest(unittest.TestCase):
    def failures(self, block):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(script(folder, 'echo "ran $1"; exit 3'))
            document = pathlib.Path(folder) / "README.md"
            document.write_text(f"Text.\n\n```console\n{block}```\n\n```sh\n$ false\n```\n")
            with contextlib.redirect_stdout(io.StringIO()):
                return console_blocks.check(document, program, pathlib.Path(folder))[1]

    def test_outputs_are_compared(self):
        self.assertEqual(self.failures("$ headroom a\nran a\n$ echo $?\n3\n"), 0)
        self.assertEqual(self.failures("$ build-release/cli/headroom b\nran b\n"), 0)
        self.assertEqual(self.failures("$ headroom \\\n  c\nran c\n"), 0)
        self.assertEqual(self.failures("$ headroom a\nran b\n"), 1)
        self.assertEqual(self.failures("$ headroom a\n"), 1)
        self.assertEqual(self.failures("$ true\nran a\n"), 1)
        self.assertEqual(self.failures("$ headroom a\nran a\n$ echo $?\n0\n"), 1)

    def test_dots_stand_for_any_lines(self):
        self.assertEqual(self.failures("$ seq 5\n1\n...\n5\n"), 0)
        self.assertEqual(self.failures("$ seq 5\n...\n"), 0)
        self.assertEqual(self.failures("$ seq 5\n1\n...\n6\n"), 1)


if __name__ == "__main__":
    unittest.main()
