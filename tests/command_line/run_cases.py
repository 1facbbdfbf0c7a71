#!/usr/bin/env python3
"""Runs the program as a user would and checks exit codes, streams and outputs (cases.py).

    run_cases.py PROGRAM ROOT [--update] [NAME...]

Prints one line a failing case, with the command to repeat it. Also checks that every subcommand
has a --help with an example, and that a full disk is an error. Python 3 standard library only.
"""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

from cases import CASES

ANSI = re.compile(r"\x1b")


def run(program, arguments, root):
    """Exit code, stdout and stderr of the program, run in the root of the source tree."""
    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    env["TERM"] = "xterm-256color"  # a pipe must stay plain even where colour would be possible
    done = subprocess.run([program, *arguments], cwd=root, env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=600, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def stream_problems(code, out, err):
    """What is wrong whatever the command was."""
    if ANSI.search(out) or ANSI.search(err):
        yield "an ANSI sequence in output that is not a terminal"
    if code == 2:
        if out:
            yield f"bad input, yet stdout has {out[:200]!r}"
        if not (err.startswith("headroom: ") and err.count("\n") == 1 and err.endswith("\n")):
            yield f"stderr is not one line starting with 'headroom: ': {err[:400]!r}"
    elif err:
        yield f"stderr is not empty: {err[:400]!r}"


def problems(case, program, root, update):
    with tempfile.TemporaryDirectory() as tmp:
        arguments = [argument.replace("{tmp}", tmp) for argument in case["arguments"]]
        code, out, err = run(program, arguments, root)
        written = sorted(path.relative_to(tmp).as_posix()
                         for path in pathlib.Path(tmp).rglob("*") if path.is_file())
        out = out.replace(tmp, "{tmp}")
    if code != case["code"]:
        yield f"exit code {code}, expected {case['code']}; stderr: {err[:400]!r}"
        return
    yield from stream_problems(code, out, err)
    if "out" in case and out != case["out"]:
        yield f"stdout is {out!r}, expected {case['out']!r}"
    for part in case.get("has", []):
        if part not in out:
            yield f"stdout lacks {part!r}"
    if "err" in case and not re.search(case["err"], err):
        yield f"stderr {err!r} does not match {case['err']!r}"
    if "json" in case:
        try:
            if not case["json"](json.loads(out)):
                yield f"the JSON is not as expected: {out[:400]!r}"
        except (ValueError, KeyError, TypeError, IndexError) as error:
            yield f"the JSON is not as expected ({error!r}): {out[:400]!r}"
    if "files" in case and written != sorted(case["files"]):
        yield f"files written: {written}, expected {sorted(case['files'])}"
    if "golden" in case:
        golden = pathlib.Path(__file__).parent / "golden" / case["golden"]
        if update:
            golden.parent.mkdir(exist_ok=True)
            golden.write_text(out)
        elif not golden.exists():
            yield f"{golden} is missing"
        elif golden.read_text() != out:
            yield f"stdout differs from {golden}:\n{out}"


def subcommands(help_text):
    """Names under the heading "Subcommands:"."""
    section = help_text.partition("Subcommands:\n")[2]
    return re.findall(r"^  ([a-z][a-z0-9-]*)\b", section, re.M)


def help_problems(program, root):
    """(what was run, problem) for every subcommand whose --help does not help."""
    names = subcommands(run(program, ["--help"], root)[1])
    if not names:
        yield "--help", "no subcommands listed"
    for name in names:
        code, out, err = run(program, [name, "--help"], root)
        for problem in stream_problems(code, out, err):
            yield name, problem
        if code != 0:
            yield name, f"--help exits with {code}"
        if "Example" not in out or f"headroom {name}" not in out.partition("Example")[2]:
            yield name, "--help shows no example"


def full_disk_problems(program, root):
    """Output that cannot be written is an error, not a verdict."""
    if not os.path.exists("/dev/full"):
        return
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([program, "limits"], cwd=root, stdout=full, stderr=subprocess.PIPE,
                              timeout=600, check=False)
    if done.returncode != 2:
        yield f"exit code {done.returncode} with nothing written, expected 2"
    yield from stream_problems(2, "", done.stderr.decode())


def main():
    options = [argument for argument in sys.argv[1:] if argument.startswith("--")]
    program, root, *wanted = [word for word in sys.argv[1:] if word not in options]
    program = str(pathlib.Path(program).resolve())
    failures = 0
    chosen = [case for case in CASES if not wanted or case["name"] in wanted]
    for case in chosen:
        for problem in problems(case, program, root, "--update" in options):
            failures += 1
            print(f"{case['name']}: {problem}\n  {program} {shlex.join(case['arguments'])}")
    if not wanted:
        for name, problem in help_problems(program, root):
            failures += 1
            print(f"help of {name}: {problem}")
        for problem in full_disk_problems(program, root):
            failures += 1
            print(f"limits > /dev/full: {problem}")
    print(f"{len(chosen)} cases, {failures} problems")
    return 1 if failures or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
