#!/usr/bin/env python3
"""Every header compiles alone.

    headers_alone.py BUILD_DIR ROOT

Takes compiler and flags from the build folder's compile_commands.json: those of a source beside
the header if there is one, else the union of all include paths. Only syntax is checked.
"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

from source_tree import project_files, room_of


def flags_of(command):
    """The compiler and the flags of a compile command, without its input and outputs."""
    words = shlex.split(command)
    kept = []
    skip = 0
    for word in words:
        if skip:
            skip -= 1
        elif word in ("-o", "-MF", "-MQ", "-MT"):
            skip = 1
        elif word in ("-c", "-MD", "-MMD") or word.endswith(".cpp"):
            pass
        else:
            kept.append(word)
    return kept


def main():
    build, root = map(pathlib.Path, sys.argv[1:])
    commands = json.loads((build / "compile_commands.json").read_text())
    by_folder = {}
    every = []
    for entry in commands:
        source = (pathlib.Path(entry["directory"]) / entry["file"]).resolve()
        flags = flags_of(entry["command"])
        by_folder.setdefault(source.parent, flags)
        every = every or flags
        every += [flag for flag in flags if flag.startswith(("-I", "-isystem")) and flag not in every]
    directory = commands[0]["directory"]
    names = [name for name in project_files(root) if name.suffix == ".h" and room_of(name)]

    def check(name):
        flags = by_folder.get((root / name).resolve().parent, every)
        with tempfile.NamedTemporaryFile("w", suffix=".cpp") as unit:
            # Twice: a header without a guard fails too.
            unit.write(f'#include "{name}"\n#include "{name}"\n')
            unit.flush()
            done = subprocess.run([*flags, "-fsyntax-only", unit.name], cwd=directory, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return name, done.returncode, done.stdout

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, code, output in pool.map(check, names):
            if code != 0:
                failed += 1
                print(f"{name} does not compile alone:\n{output}")
    print(f"{len(names)} headers, {failed} failed")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
