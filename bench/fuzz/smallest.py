#!/usr/bin/env python3
"""How small the known failures become: each hunted from nothing and shrunk.

usage: smallest.py [--seeds 3] [--runs 65536] [--keep FOLDER] PROGRAM [NAME...]

A line for each known failure: the smallest finding of the first --seeds seeds (keys, then channels,
queries and value channels). --keep writes these findings, NAME.headroom, into a folder. Counted in
heads, not in seconds, so that any machine prints the same.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import tempfile

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("program")
parser.add_argument("names", nargs="*")
parser.add_argument("--seeds", type=int, default=3)
parser.add_argument("--runs", type=int, default=65536)
parser.add_argument("--keep", type=pathlib.Path)
arguments = parser.parse_args()


def told(*words):
    done = subprocess.run([arguments.program, "fuzz", "--json", *words], capture_output=True,
                          text=True, check=False)
    if done.returncode == 2:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


names = arguments.names or [k["name"] for k in told("--list") if not k["sound"]]
print(f"{'known failure':18} {'Nq x N x d x dv':>18}  class")
for name in names:
    best = None
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, arguments.seeds + 1):
            for finding in told("--known", name, "--seed", str(seed), "--seconds", "0", "--runs",
                                str(arguments.runs), "--stop-at-find", "-o",
                                f"{folder}/{seed}")["findings"]:
                queries, keys, channels, values = finding["shape"]
                size = (keys, channels, queries, values)
                if best is None or size < best[0]:
                    best = (size, finding)
        if best is None:
            print(f"{name:18} not found", flush=True)
            continue
        shape = " x ".join(map(str, best[1]["shape"]))
        print(f"{name:18} {shape:>18}  {best[1]['class']}", flush=True)
        if arguments.keep:
            arguments.keep.mkdir(exist_ok=True)
            shutil.copyfile(best[1]["file"], arguments.keep / f"{name}.headroom")
