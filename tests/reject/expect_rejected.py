#!/usr/bin/env python3
"""Each case of a file must not compile; its twin, which differs in one respect, must.

usage: expect_rejected.py CASES.cpp -- COMPILER ARGS...

A case is `// case: NAME` and the lines up to the next one. In it, lines that end in `// reject`
are the mistake and lines that end in `// control` the correct twin; all others are shared. The
control shows that the mistake, and nothing else, is what the compiler refuses.
"""

import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile


def read_cases(path):
    """Returns the common prologue and a list of (name, lines)."""
    prologue, cases = [], []
    for line in path.read_text().splitlines():
        named = re.fullmatch(r"// case: (.+)", line)
        if named:
            cases.append((named.group(1), []))
        else:
            (cases[-1][1] if cases else prologue).append(line)
    return prologue, cases


def compile_text(command, text):
    run = subprocess.run(command + ["-fsyntax-only", "-x", "c++", "-"], input=text,
                         capture_output=True, text=True, check=False)
    return run.returncode == 0, run.stderr


def precompile(command, prologue, folder):
    """Compiles the prologue once; returns the command that starts from it."""
    header = pathlib.Path(folder) / "prologue.h"
    header.write_text("\n".join(prologue) + "\n")
    subprocess.run(command + ["-x", "c++-header", str(header), "-o", f"{header}.gch"], check=True)
    return command + ["-include", str(header)]


def judge(command, name, lines):
    """Returns the complaints about one case."""
    if not any(l.rstrip().endswith("// reject") for l in lines):
        return [f"{name}: has no line marked `// reject`"]
    complaints = []
    for kept, dropped, must_compile in (("control", "reject", True), ("reject", "control", False)):
        body = [l for l in lines if not l.rstrip().endswith(f"// {dropped}")]
        compiled, errors = compile_text(command, "\n".join(body) + "\n")
        if compiled != must_compile:
            said = "did not compile:\n" + errors if must_compile else "compiled, and must not"
            complaints.append(f"{name}: the {kept} twin {said}")
    return complaints


def main(arguments):
    split = arguments.index("--")
    path, command = pathlib.Path(arguments[0]), arguments[split + 1:]
    prologue, cases = read_cases(path)
    if not cases:
        sys.exit(f"{path}: no cases found")
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(2) as pool:
        command = precompile(command, prologue, folder)
        complaints = sum(pool.map(lambda case: judge(command, *case), cases), [])
    for complaint in complaints:
        print(complaint)
    print(f"{path.name}: {len(cases)} cases, {len(complaints)} wrong")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
