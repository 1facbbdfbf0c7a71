#!/usr/bin/env python3
"""Seeded weakenings: every one of them must make a test fail.

    run_mutations.py [--work FOLDER] [--list] ROOT [NAME...]

Copies the tree that git knows (changed and new files included) to a scratch folder, builds the test
programs that the table (mutations.py) names and sees them pass; then, one mutation at a time, puts
the replacement into the copy, rebuilds one test program, and expects it to fail. Exit code 1 if a
mutation survives, does not compile, or its text is no longer there exactly once. Python 3 standard
library, meson and ninja.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from mutations import MUTATIONS


def copy_tree(root, tree):
    """The files of the working tree that are tracked or could be."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=root, capture_output=True, check=False)
    if listed.returncode == 0:
        names = [name for name in listed.stdout.decode().split("\0") if name]
    else:  # no repository: an unpacked release
        names = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
    for name in names:
        source, target = root / name, tree / name
        if not source.is_file():
            continue  # deleted but not yet committed
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != source.read_bytes():
            shutil.copyfile(source, target)
            shutil.copymode(source, target)


def build(folder, targets):
    """None, or what the build said when it failed."""
    done = subprocess.run(["ninja", "-C", str(folder), *targets], capture_output=True, check=False)
    return None if done.returncode == 0 else done.stdout.decode(errors="replace")[-2000:]


def fails(folder, target, arguments):
    """True if the test program fails; a crash or a timeout is a failure too."""
    try:
        done = subprocess.run([str(folder / target), *arguments], cwd=folder, capture_output=True,
                              timeout=300, check=False)
    except subprocess.TimeoutExpired:
        return True, "timeout"
    text = done.stdout.decode(errors="replace")
    failed = [line.split("]")[1].split("(")[0].strip()
              for line in text.splitlines() if line.startswith("[  FAILED  ] ") and "." in line]
    # a program that died names only the test that it had begun
    begun = [line.split("]")[1].strip() for line in text.splitlines() if line.startswith("[ RUN ")]
    died = f"{begun[-1] if begun else 'no test'}, exit {done.returncode}"
    return done.returncode != 0, failed[0] if failed else died


def arguments_of(tests):
    return [f"--gtest_filter={tests}"] if tests else []


class Scratch:
    """A copy of the tree with a build folder."""

    def __init__(self, root, work):
        self.tree, self.build = work / "tree", work / "build"
        copy_tree(root, self.tree)
        if not (self.build / "build.ninja").exists():
            done = subprocess.run(["meson", "setup", str(self.build), str(self.tree),
                                   "-Ddebug=false", "-Doptimization=1", "-Dwerror=false"],
                                  capture_output=True, check=False)
            if done.returncode != 0:
                sys.exit("meson setup failed:\n" + done.stdout.decode()[-3000:])

    def outcome(self, mutation):
        """(killed, words) for one mutation; the tree is as before afterwards."""
        path = self.tree / mutation["file"]
        original = path.read_text()
        count = original.count(mutation["old"])
        if count != 1:
            return False, f"its text occurs {count} times in {mutation['file']}, expected once"
        path.write_text(original.replace(mutation["old"], mutation["new"]))
        try:
            problem = build(self.build, [mutation["target"]])
            if problem:
                return False, "does not compile:\n" + problem
            failed, which = fails(self.build, mutation["target"], arguments_of(mutation["tests"]))
            return failed, which if failed else f"{mutation['target']} {mutation['tests']} passes"
        finally:
            path.write_text(original)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--work", type=pathlib.Path, help="scratch folder (default: a temporary)")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    chosen = [m for m in MUTATIONS if not options.names or m["name"] in options.names]
    if options.list or not chosen:
        for mutation in chosen:
            print(f"{mutation['name']}: {mutation['file']}; {mutation['target']}")
        return 0 if chosen else 2
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Scratch(options.root.resolve(), options.work or pathlib.Path(temporary))
        targets = sorted({mutation["target"] for mutation in chosen})
        problem = build(scratch.build, targets)
        if problem:
            sys.exit("the tree does not build:\n" + problem)
        for target in targets:
            failed, which = fails(scratch.build, target, [])
            if failed:
                sys.exit(f"{target} fails without any mutation: {which}")
        survived = 0
        for mutation in chosen:
            start = time.monotonic()
            killed, words = scratch.outcome(mutation)
            survived += not killed
            print(f"{'killed  ' if killed else 'SURVIVED'} {mutation['name']} "
                  f"({time.monotonic() - start:.0f} s): {words}", flush=True)
    print(f"{len(chosen)} mutations, {survived} not killed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
