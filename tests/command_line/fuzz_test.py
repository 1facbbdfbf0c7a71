#!/usr/bin/env python3
"""`headroom fuzz` as its users meet it: hunts, findings, corpora, bad options and kills.

    fuzz_test.py PROGRAM      Python 3 standard library only
"""

import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = str(pathlib.Path(sys.argv[1]).resolve())


def run(*arguments, folder, timeout=120):
    return subprocess.run([PROGRAM, *arguments], cwd=folder, capture_output=True, text=True,
                          timeout=timeout, check=False)


class Fuzz(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.addCleanup(self.temporary.cleanup)

    def hunt(self, *arguments, timeout=120):
        done = run("fuzz", *arguments, "--json", folder=self.folder, timeout=timeout)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return done.returncode, json.loads(done.stdout)

    def refused(self, *arguments):
        done = run("fuzz", *arguments, folder=self.folder)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertFalse((self.folder / "findings").exists())
        return done.stderr

    def test_a_known_failure_is_found_written_and_replayed(self):
        code, found = self.hunt("--known", "case-b", "--runs", "4096", "--seconds", "0",
                                "--stop-at-find")
        self.assertEqual(code, 1)
        self.assertEqual(found["findings"][0]["objective"], "lost-mass")
        for finding in found["findings"]:
            again = run("replay", finding["file"], folder=self.folder)
            self.assertEqual(again.returncode, 1, again.stderr)
            # shrunk where theory allows: two keys of two channels are enough
            queries, keys, channels, _ = finding["shape"]
            self.assertEqual(queries, 1)
            if finding["claim"] == "mass.lost":
                self.assertLessEqual((keys, channels), (8, 4))

    def test_the_same_hunt_finds_the_same_with_other_threads(self):
        texts = []
        for threads in ("1", "2"):
            _, found = self.hunt("--known", "lazy-wave", "--runs", "6144", "--seconds", "0",
                                 "--threads", threads, "-o", "f" + threads)
            for finding in found["findings"]:
                del finding["seconds"]
                text = (self.folder / finding.pop("file")).read_text()
                finding["text of the file"] = text
            texts.append([found["runs"], found["cells"], found["coverage"], found["nearest"],
                          found["findings"]])
        self.assertEqual(texts[0], texts[1])

    def test_nothing_found_writes_nothing(self):
        code, found = self.hunt("--known", "case-a", "--strategy", "gaussian", "--runs", "512",
                                "--seconds", "0")
        self.assertEqual((code, found["findings"]), (0, []))
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_stabilizer_on_a_kernel_file_of_ones_own(self):
        (self.folder / "k.toml").write_text('name = "mine"\nmachine = "ieee-fp32"\n'
                                            '[numerator]\naccumulator = "fp16"\n')
        code, found = self.hunt("--kernel", "k.toml", "--stabilizer", "online-fa2",
                                "--objective", "non-finite", "--runs", "20480", "--seconds", "0",
                                "--shape", "1x8x2", "--stop-at-find")
        self.assertEqual(code, 1)
        self.assertEqual(found["kernel"], "mine")

    def test_the_list_names_objectives_and_known_failures(self):
        done = run("fuzz", "--list", folder=self.folder)
        self.assertEqual(done.returncode, 0)
        for word in ("case-a", "vfa-under", "clis-hopper", "non-finite", "gate-underestimate"):
            self.assertIn(word, done.stdout)

    def test_bad_options_are_one_line(self):
        self.assertIn("--known", self.refused("--known", "no-such"))
        self.assertIn("expected one", self.refused("--seconds", "1"))
        self.assertIn("expected one", self.refused("--known", "case-a", "--policy", "clis"))
        self.assertIn("--kernel", self.refused("--stabilizer", "vfa"))
        self.assertIn("objective", self.refused("--known", "case-a", "--objective", "all"))
        self.assertIn("--shape", self.refused("--known", "case-a", "--shape", "1x0x2"))
        self.assertIn("--shape", self.refused("--known", "case-a", "--shape", "99999999x9x9"))
        self.assertIn("--strategy", self.refused("--known", "case-a", "--strategy", "luck"))
        self.assertIn("--eps", self.refused("--known", "case-a", "--eps", "-1"))
        self.assertIn("scale", self.refused("--known", "case-a", "--scale", "big"))
        self.assertIn("claim", self.refused("--known", "case-a", "--objective", "claim"))
        self.assertIn("nothere", self.refused("--known", "case-a", "--seeds", "nothere.npz"))

    def test_a_corpus_that_is_none_is_refused_and_kept(self):
        (self.folder / "c").mkdir()
        bad = self.folder / "c" / "case-a.corpus"
        for text in ("", "headroom.corpus/1\nentry 99999999999\n{}",
                     "headroom.corpus/1\nentry 2\n{}", "headroom.corpus/1\nrubbish"):
            bad.write_text(text)
            self.assertIn("case-a.corpus", self.refused("--known", "case-a", "--corpus", "c"))
            self.assertEqual(bad.read_text(), text)

    def test_a_killed_hunt_leaves_a_corpus_that_the_next_goes_on_with(self):
        arguments = ["fuzz", "--known", "clis-ieee-fp32", "--seconds", "60", "--corpus", "c",
                     "--shape", "1x8x2"]
        corpus = self.folder / "c" / "clis-ieee-fp32.corpus"
        hunt = subprocess.Popen([PROGRAM, *arguments], cwd=self.folder,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(600):
                if corpus.exists():
                    break
                time.sleep(0.1)
            time.sleep(random.random())
        finally:
            hunt.send_signal(signal.SIGKILL)
            hunt.wait()
        self.assertTrue(corpus.read_text().startswith("headroom.corpus/1\nentry "))
        code, found = self.hunt("--known", "clis-ieee-fp32", "--runs", "512", "--seconds", "0",
                                "--corpus", "c", "--shape", "1x8x2")
        self.assertEqual(code, 0)
        self.assertGreater(found["cells"], 0)
        self.assertEqual([p.name for p in (self.folder / "c").iterdir()], [corpus.name])

    def test_a_limit_of_processor_time_ends_a_hunt_with_what_it_has(self):
        limited = ["bash", "-c", 'ulimit -S -t 2; exec "$0" "$@"', PROGRAM, "fuzz", "--known",
                   "clis-ieee-fp32", "--seconds", "0", "--json"]
        done = subprocess.run(limited, cwd=self.folder, capture_output=True, text=True,
                              timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(json.loads(done.stdout)["runs"], 0)

    def test_executions_may_be_chosen(self):
        (self.folder / "k.toml").write_text('name = "mine"\nmachine = "ieee-fp32"\n'
                                            '[denominator]\naccumulator = "bf16"\norder = "any"\n')
        text = []
        for order in ("ascending", "pairwise"):
            self.hunt("--kernel", "k.toml", "--stabilizer", "online-fa2", "--objective",
                      "absorption", "--runs", "20480", "--seconds", "0", "--order", order,
                      "--shape", "1x600x1", "--stop-at-find", "--no-shrink", "-o", order)
            found = list(self.folder.glob(f"{order}/*.headroom"))
            text.append(json.loads(found[0].read_text())["target"]["options"]["order"] if found
                        else order)
        self.assertEqual(text, ["ascending", "pairwise"])
        self.assertIn("--order", self.refused("--known", "case-a", "--order", "sorted"))

    def test_findings_that_cannot_be_written_are_an_error(self):
        (self.folder / "taken").write_text("mine")
        done = run("fuzz", "--known", "case-c", "--runs", "4096", "--seconds", "0", "-o", "taken",
                   folder=self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertEqual((self.folder / "taken").read_text(), "mine")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
