#!/usr/bin/env python3
"""Is every seeded weakening of the certifier broken by the fuzzer?

usage: weakenings.py [--cap 60] [--seed 1] [--check] BUILD [NAME...]

For each mutation of tests/mutation/mutations.py that makes the certifier accept more: builds the
program of the build folder with that mutation alone, hunts where weakening_hunts.py says, on one
thread, for at most --cap seconds of processor time, and replays what it finds in both programs. A
weakening is broken if its own program reproduces the finding (the head is certified and wrong) and
the unchanged one does not; `stopped`: an assertion of the program itself saw it. --check only sees that the table names every mutation. Python 3 standard
library and ninja.
"""

import argparse
import datetime
import json
import os
import pathlib
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "mutation"))
from mutations import MUTATIONS  # noqa: E402
from weakening_hunts import APART, HUNTS, READERS, SILENT  # noqa: E402


def check_table():
    """Every mutation stands in HUNTS or APART, and nothing else does."""
    names = {mutation["name"] for mutation in MUTATIONS}
    problems = [f"{name}: neither hunted nor set apart" for name in names - set(HUNTS) - set(APART)]
    problems += [f"{name}: no such mutation" for name in (set(HUNTS) | set(APART) | set(SILENT)) - names]
    problems += [f"{name}: hunted and set apart" for name in set(HUNTS) & set(APART)]
    problems += [f"{name}: silent, but not hunted" for name in set(SILENT) - set(HUNTS)]
    return sorted(problems)


class Programs:
    """The program of a build folder with one mutation at a time: what it changes is compiled anew
    and linked before the libraries, whose own object of that name is then not asked for."""

    def __init__(self, root, build, work):
        self.root, self.build, self.work = root, build, work
        self.original = build / "cli" / "headroom"
        done = subprocess.run(["ninja", "-C", str(build), "cli/headroom"], capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            sys.exit("the tree does not build:\n" + done.stdout[-3000:])
        commands = subprocess.run(["ninja", "-C", str(build), "-t", "commands", "cli/headroom"],
                                  capture_output=True, text=True, check=True).stdout.splitlines()
        self.link = shlex.split(commands[-1])
        listed = json.loads((build / "compile_commands.json").read_text())
        self.compile = {os.path.relpath(os.path.join(c["directory"], c["file"]), root):
                        shlex.split(c["command"]) for c in listed}

    def run(self, command, what):
        done = subprocess.run(command, cwd=self.build, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{what} does not build:\n{done.stderr[-3000:]}")

    def object_of(self, source, text, name):
        """`source` compiled with the text in its place, or with what stands in work/include."""
        changed, made = self.work / "changed.cpp", self.work / f"{name}-{pathlib.Path(source).stem}.o"
        changed.write_text(text)
        command, skip = [], False
        for word in self.compile[source]:
            if skip or word in ("-g", "-MD", "-c", "-Werror"):
                skip = False
            elif word in ("-o", "-MQ", "-MF"):
                skip = True
            elif not word.endswith(source):
                command.append(word)
                if word.endswith("++") or "g++" in word or "clang++" in word:
                    command.append(f"-I{self.work / 'include'}")
        self.run([*command, "-w", "-O0", "-c", str(changed), "-o", str(made)], name)
        return made

    def weakened(self, mutation):
        name, file = mutation["name"], mutation["file"]
        text = (self.root / file).read_text()
        if text.count(mutation["old"]) != 1:
            sys.exit(f"{name}: its text is not once in {file}")
        text = text.replace(mutation["old"], mutation["new"])
        include = self.work / "include"
        shutil.rmtree(include, ignore_errors=True)
        if file.endswith(".h"):
            (include / file).parent.mkdir(parents=True)
            (include / file).write_text(text)
            objects = [self.object_of(source, (self.root / source).read_text(), name)
                       for source in READERS[file]]
        else:
            objects = [self.object_of(file, text, name)]
        program = self.work / name
        at = self.link.index("-o")
        quick = ["-fuse-ld=lld"] if shutil.which("ld.lld") else []
        self.run([*self.link[:at], *quick, "-o", str(program), *map(str, objects), *self.link[at + 2:]], name)
        for made in objects:
            made.unlink()
        return program


def hunt(program, where, seed, seconds, folder):
    """What `headroom fuzz` says as JSON, and the processor time that it took."""
    kernel = folder / "kernel.toml"
    kernel.write_text(where.kernel)
    limit = max(1, round(seconds))

    def limits():
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 60))

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(program), "fuzz", "--policy", where.policy, "--kernel", str(kernel),
                           *where.arguments, "--seconds", "0", "--threads", "1", "--seed", str(seed),
                           "--stop-at-find", "--no-shrink", "--json", "-o", str(folder / "found")],
                          capture_output=True, text=True, check=False, preexec_fn=limits)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode == 2:
        sys.exit(f"headroom fuzz: {done.stderr}")
    if done.returncode < 0:  # an assertion of the program itself
        return done.stderr.strip().splitlines()[-1], 0.0
    return (json.loads(done.stdout), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def reproduces(program, finding):
    done = subprocess.run([str(program), "replay", finding], capture_output=True, check=False)
    return done.returncode == 1


def outcome(original, program, name, seed, cap):
    """One line: broken or not, by what, after how long."""
    used, runs, nearest = 0.0, 0, -float("inf")
    for where in HUNTS[name]:
        if used >= cap:
            break
        with tempfile.TemporaryDirectory() as temporary:
            told, seconds = hunt(program, where, seed, cap - used, pathlib.Path(temporary))
            if isinstance(told, str):
                return "stopped", f"{'':18}  {told[told.rfind('/') + 1:]}"
            used += seconds
            runs += told["runs"]
            near = [bits for bits in told["nearest"].values() if bits is not None]
            nearest = max([nearest, *near])
            for found in told["findings"]:
                own, other = (reproduces(p, found["file"]) for p in (program, original))
                shape = "x".join(map(str, found["shape"]))
                if own and not other:
                    return "broken", f"{used:8.2f} {runs:10}  {where.policy:10} {found['class']}, {shape}"
                return "DOUBT", f"{used:8.2f} {runs:10}  own {own}, unchanged {other}: {found['class']}"
    return "silent", f"{used:8.2f} {runs:10}  {SILENT.get(name, 'NOT EXPLAINED')} (nearest {nearest:.2f} bits)"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--cap", type=float, default=60, help="seconds of processor time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    problems = check_table()
    if problems or options.check:
        print("\n".join(problems) or "every mutation is hunted or set apart")
        return 1 if problems else 0
    chosen = [m for m in MUTATIONS if not options.names or m["name"] in options.names]
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(__file__).resolve().parents[2]
        programs = Programs(root, options.build.resolve(), pathlib.Path(temporary))
        print(f"{datetime.date.today()}, one thread, at most {options.cap:g} s of processor time each, "
              f"seed {options.seed}, load {os.getloadavg()[0]:.1f}")
        print(f"{'weakening':43} {'outcome':8} {'s':>7} {'heads':>10}  policy and finding")
        unexplained = 0
        for mutation in chosen:
            name = mutation["name"]
            if name in APART:
                print(f"{name:43} {'apart':8} {'':18}  {APART[name]}", flush=True)
                continue
            program = programs.weakened(mutation)
            word, words = outcome(programs.original, program, name, options.seed, options.cap)
            program.unlink()
            unexplained += word == "DOUBT" or (word == "silent" and name not in SILENT)
            print(f"{name:43} {word:8} {words}", flush=True)
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
