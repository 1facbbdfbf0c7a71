#!/usr/bin/env python3
"""Plug-ins as their authors meet them: planted mistakes are found, wrong libraries refused.

    plugins_test.py PROGRAM PLUGINS ROOT      Python 3 standard library only
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = str(pathlib.Path(sys.argv[1]).resolve())
PLUGINS = pathlib.Path(sys.argv[2]).resolve()
EXAMPLES = pathlib.Path(sys.argv[3]).resolve() / "examples"

WRONG_OUTPUTS = ("non-finite", "zero-row", "inaccurate", "lost-mass", "saturation", "wrong-lse",
                 "tiling", "partition", "backward", "absorption")


KERNEL_THAT_READS_NAN_AS_ZERO = """name = "reads-nan-as-zero"
machine = "blackwell"
[exp2]
unit = "fa4-poly3"
"""


class Plugins(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.addCleanup(self.temporary.cleanup)

    def run_program(self, *arguments, timeout=200):
        return subprocess.run([PROGRAM, *map(str, arguments)], cwd=self.folder,
                              capture_output=True, text=True, timeout=timeout, check=False)

    def plugin(self, name):
        return str(PLUGINS / f"{name}.so")

    def hunt(self, name, *arguments):
        done = self.run_program("fuzz", "--plugin", self.plugin(name), "--seconds", "60", "--json",
                                *arguments)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return json.loads(done.stdout)["findings"]

    def found(self, name, *arguments, objectives=WRONG_OUTPUTS, kernel="ieee-fp32"):
        found = self.hunt(name, "--kernel", kernel, "--stop-at-find", *arguments)
        self.assertTrue(found, f"{name}: nothing was found")
        self.assertIn(found[0]["objective"], objectives, found[0])
        self.assertIn("plugin:planted", json.loads(
            (self.folder / found[0]["file"]).read_text())["target"]["stabilizer"])
        again = self.run_program("replay", found[0]["file"], "--plugin", self.plugin(name))
        self.assertEqual(again.returncode, 1, again.stdout + again.stderr)
        return found[0]

    def test_an_off_by_one_tile(self):
        self.found("off-by-one-tile")

    def test_a_stale_maximum(self):
        self.found("stale-maximum")

    def test_a_lost_residual(self):
        self.found("lost-residual")

    def test_a_gate_that_forgets_flushing(self):
        self.found("no-flush", kernel="tpu7x")

    def test_a_nan_that_the_maximum_drops(self):
        (self.folder / "k.toml").write_text(KERNEL_THAT_READS_NAN_AS_ZERO)
        self.found("dropped-nan", "--objective", "swallowed-nan", kernel="k.toml",
                   objectives=("swallowed-nan",))

    def test_a_wrong_last_block(self):
        self.found("wrong-last-block")

    def test_a_mended_plug_in_does_not_reproduce(self):
        first = self.found("stale-maximum")
        other = self.run_program("replay", first["file"])
        self.assertEqual(other.returncode, 2)
        self.assertIn("--plugin", other.stderr)
        self.assertEqual(other.stderr.count("\n"), 1, other.stderr)

    def test_a_good_plug_in_survives(self):
        done = self.run_program("fuzz", "--plugin", self.plugin("online"), "--kernel", "ieee-fp32",
                                "--objective", "lost-mass", "--objective", "zero-row", "--runs",
                                "4096", "--seconds", "0", "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_what_breaks_the_interface_is_one_line(self):
        for name, text in (("no-entry", "headroom_stabilizer_entry"), ("other-abi", "version 1000"),
                           ("bad-name", "a name of two lines"), ("refuses", "init returned 1"),
                           ("answers-two", "gate answered 2"), ("nothing-there", "No such file")):
            done = self.run_program("fuzz", "--plugin", self.plugin(name), "--kernel", "hopper",
                                    "--runs", "512", "--seconds", "0")
            self.assertEqual(done.returncode, 2, name + done.stdout)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(text, done.stderr)

    def output(self, *rule):
        """The bytes of the tensors that a stabilizer gives on the bundled head."""
        head = EXAMPLES / "heads" / "one_sided_gate_bf16.safetensors"
        done = self.run_program("simulate", head, "--kernel", "hopper", *rule, "-o",
                                "out.safetensors")
        self.assertIn(done.returncode, (0, 1), done.stderr)
        raw = (self.folder / "out.safetensors").read_bytes()
        return raw[8 + int.from_bytes(raw[:8], "little"):]

    def test_the_examples_in_c_and_rust_give_the_bits_of_the_built_in_rule(self):
        built_in = self.output("--stabilizer", "online-fa2")
        self.assertEqual(self.output("--plugin", self.plugin("online")), built_in)
        if shutil.which("rustc") is None:
            self.skipTest("no Rust compiler: the example in C was compared")
        made = subprocess.run(["rustc", "--edition", "2021", "--crate-type", "cdylib", "-O", "-o",
                               "online_rs.so", EXAMPLES / "plugins" / "online.rs"],
                              cwd=self.folder, capture_output=True, check=False, text=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(self.output("--plugin", "online_rs.so"), built_in)

    @unittest.skipUnless(shutil.which("cc"), "no C compiler")
    def test_a_new_stabilizer_is_built_and_hunted_at_once(self):
        done = self.run_program("new-stabilizer", "mine", "--seconds", "2", "--kernel",
                                "ieee-fp32")
        self.assertIn(done.returncode, (0, 1), done.stderr)
        self.assertIn("heads/s", done.stdout)
        self.assertTrue((self.folder / "mine" / "mine.so").exists())
        again = self.run_program("new-stabilizer", "mine")
        self.assertEqual(again.returncode, 2)
        self.assertIn("nothing is replaced", again.stderr)
        self.assertEqual(self.run_program("new-stabilizer", "../mine").returncode, 2)
        if shutil.which("make"):
            made = subprocess.run(["make", "-B", "-C", "mine"], cwd=self.folder,
                                  capture_output=True, check=False, text=True)
            self.assertEqual(made.returncode, 0, made.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
