#!/usr/bin/env python3
"""Runs vector_exp2.g on each table entry of proofs/sollya/vector_exp2.out and prints what Gappa
found. Exit status 0: every claim holds; 1: one does not. The recorded output is vector_exp2.out."""
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def table():
    """(head, tail) of each entry, as written by Sollya."""
    lines = (HERE.parent / "sollya" / "vector_exp2.out").read_text().splitlines()
    return [line.split()[1:] for line in lines if line.startswith("table 0x")]


def instantiate(script, head, tail):
    """The script with the entry's numbers and one more, open, goal: the error itself."""
    entry = (f"  /\\ table_head in [{head}, {head}] /\\ table_tail in [{tail}, {tail}]")
    script, found = re.subn(r"^.*# entry$", lambda _: entry, script, flags=re.M)
    assert found == 1, "vector_exp2.g has no line marked 'entry'"
    script, found = re.subn(r" }$", r" /\\ y -/ exact in ? }", script, flags=re.M)
    assert found == 1, "vector_exp2.g has no goal"
    return script


def main():
    script = (HERE / "vector_exp2.g").read_text()
    entries = table()
    failed = len(entries) != 16
    for j, (head, tail) in enumerate(entries):
        run = subprocess.run(["gappa"], input=instantiate(script, head, tail),
                             capture_output=True, text=True)
        text = run.stdout + run.stderr
        error = re.search(r"y -/ exact in (.*)", text)
        ok = run.returncode == 0 and error is not None and "Error" not in text
        failed |= not ok
        print(f"entry {j}: {'claims hold; y -/ exact in ' + error[1] if ok else text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
