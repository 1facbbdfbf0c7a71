#!/usr/bin/env python3
"""The commands shown in a document give the outputs shown there.

    console_blocks.py PROGRAM ROOT DOCUMENT...

A block fenced as ```console holds commands ("$ " first; a final backslash continues the line) and
below each what it prints, stdout and stderr together. A line that is just "..." stands for any
number of lines. Commands run by bash in a scratch folder that shows the tree's examples/ and the
program both as `headroom` and as build-release/cli/headroom; `echo $?` is the exit code of the
command above it. Python 3 standard library only.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile


def console_blocks(text):
    """(line number of the fence, lines) of every ```console block."""
    for found in re.finditer(r"^```console\n(.*?)^```$", text, re.M | re.S):
        yield text.count("\n", 0, found.start()) + 1, found.group(1).splitlines()


def steps(lines):
    """(command, expected output lines) in the order of the block."""
    result = []
    continued = False
    for line in lines:
        if continued:
            result[-1][0] += "\n" + line
        elif line.startswith("$ "):
            result.append([line[2:], []])
        elif result:
            result[-1][1].append(line)
        else:
            raise ValueError("a console block begins with output")
        continued = (continued or line.startswith("$ ")) and line.endswith("\\")
    return result


def agrees(expected, actual):
    """Line by line, "..." matching any number of lines, none included."""
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"\n"
                      for line in expected)
    return re.fullmatch(pattern, "".join(line + "\n" for line in actual)) is not None


def scratch_folder(folder, program, root):
    (folder / "build-release" / "cli").mkdir(parents=True)
    (folder / "build-release" / "cli" / "headroom").symlink_to(program)
    (folder / "examples").symlink_to(root / "examples")


def check(document, program, root):
    """The number of commands run and of those whose output differs."""
    commands = failures = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        scratch_folder(folder, program, root)
        env = dict(os.environ, PATH=f"{folder / 'build-release' / 'cli'}:{os.environ['PATH']}")
        code = 0
        for line, block in console_blocks(document.read_text()):
            for command, expected in steps(block):
                done = subprocess.run(["bash", "-c", f"(exit {code})\n{command}"], cwd=folder,
                                      env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, timeout=600, check=False)
                code = done.returncode
                commands += 1
                actual = done.stdout.decode().splitlines()
                if not agrees(expected, actual):
                    failures += 1
                    shown = "\n".join(["--- shown", *expected, "--- printed", *actual, "---"])
                    print(f"{document}:{line}: $ {command}\n{shown}")
    return commands, failures


def main():
    program, root, *documents = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    failed = False
    for document in documents:
        commands, failures = check(document, program, root)
        print(f"{document.name}: {commands} commands, {failures} with another output")
        failed = failed or failures > 0 or commands == 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
