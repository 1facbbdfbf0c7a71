"""Exits 0 if coqc (the argument) finds the libraries that the development imports."""

import pathlib
import subprocess
import sys
import tempfile

with tempfile.TemporaryDirectory() as folder:
    probe = pathlib.Path(folder, "probe.v")
    probe.write_text("From Flocq Require Core.\nFrom Interval Require Tactic.\n"
                     "From Gappa Require Gappa_tactic.\n", encoding="utf-8")
    sys.exit(subprocess.run([sys.argv[1], "-q", str(probe)], capture_output=True,
                            check=False).returncode)
