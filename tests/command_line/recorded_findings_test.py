#!/usr/bin/env python3
"""The known failures as they were once found (tests/findings) fail again with the same bits, whatever
the number of threads.

    recorded_findings_test.py PROGRAM FOLDER      Python 3 standard library only
"""

import json
import pathlib
import subprocess
import sys
import unittest

PROGRAM, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])


class Recorded(unittest.TestCase):
    def replayed(self, threads):
        files = sorted(map(str, FOLDER.glob("*.headroom")))
        done = subprocess.run([PROGRAM, "replay", *files, "--threads", str(threads), "--json"],
                              capture_output=True, text=True, timeout=500, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        return files, json.loads(done.stdout)["findings"]

    def test_all_reproduce_with_any_number_of_threads(self):
        files, one = self.replayed(1)
        for file, finding in zip(files, one, strict=True):
            self.assertTrue(finding["reproduces"], f"{file}: {finding}")
        self.assertEqual(self.replayed(2)[1], one)

    def test_every_known_failure_is_recorded(self):
        done = subprocess.run([PROGRAM, "fuzz", "--list", "--json"], capture_output=True, text=True,
                              check=True)
        known = {k["name"] for k in json.loads(done.stdout) if not k["sound"]}
        self.assertEqual({path.stem for path in FOLDER.glob("*.headroom")}, known)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
