"""How long the fuzzer takes to find each known failure again, from nothing.

usage: rediscovery.py PROGRAM [--seeds 5] [--cap 60] [--runs 1048576]
       [--strategies full,gaussian] [--only NAME,...]

For each known failure: one run a seed, stopped at the find. Prints a table as text, and what it
depends on. --runs caps heads in place of seconds, which is fair on a busy machine. Baselines
(uniform-bits, gaussian, byte-mutation) run with the first seed alone.
"""
import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("program")
parser.add_argument("--seeds", type=int, default=5)
parser.add_argument("--cap", type=float, default=60)
parser.add_argument("--strategies", default="full")
parser.add_argument("--only", default="")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--runs", type=int, default=0, help="heads at most, instead of a time")
arguments = parser.parse_args()


def hunt(name, seed, strategy):
    """Seconds to the find, heads tried and the finding's class, or None."""
    with tempfile.TemporaryDirectory() as folder:
        command = [arguments.program, "fuzz", "--known", name, "--seed", str(seed),
                   "--seconds", str(0 if arguments.runs else arguments.cap),
                   "--runs", str(arguments.runs), "--stop-at-find", "--json",
                   "--threads", str(arguments.threads), "--strategy", strategy,
                   "--no-shrink", "-o", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 2:
            raise SystemExit(done.stderr)
        result = json.loads(done.stdout)
        found = result["findings"]
        if not found:
            return None, result
        return found[0], result


known = json.loads(subprocess.run([arguments.program, "fuzz", "--list", "--json"],
                                  capture_output=True, text=True, check=True).stdout)
names = [k["name"] for k in known if not k["sound"]]
if arguments.only:
    names = arguments.only.split(",")
cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if "model name" in line),
           platform.machine())
print(f"{datetime.date.today()}, {cpu}, {os.cpu_count()} processors, {arguments.threads} threads, "
      f"cap {arguments.runs or arguments.cap:g} {'heads' if arguments.runs else 's'}, load {os.getloadavg()[0]:.1f}")
print(f"{'known failure':18} {'strategy':14} {'median s':>9} {'each seed, s':40} {'heads':>10}  class")
for name in names:
    for strategy in arguments.strategies.split(","):
        seeds = range(1, arguments.seeds + 1) if strategy == "full" else [1]
        times, heads, classes = [], [], set()
        for seed in seeds:
            found, result = hunt(name, seed, strategy)
            times.append(found["seconds"] if found else float("inf"))
            heads.append(found["run"] if found else result["runs"])
            if found:
                classes.add(found["class"])
        each = " ".join("-" if t == float("inf") else f"{t:.2f}" for t in times)
        median = statistics.median(times)
        shown = "-" if median == float("inf") else f"{median:.2f}"
        print(f"{name:18} {strategy:14} {shown:>9} {each:40} {statistics.median(heads):>10.0f}  "
              f"{', '.join(sorted(classes))}", flush=True)
