#!/usr/bin/env python3
"""The project's own rules, checked on its text.

    lint.py ROOT RULE...     print every violation as `file:line: what`, exit 1 if there is one
    lint.py --rules          print the names of the rules

Each rule is a function from a root folder to violations; lint_test.py shows each one failing.
"""

import pathlib
import re
import sys

from source_tree import is_cpp, project_files, room_of, without_comments

RULES = {}


def rule(name):
    def register(function):
        RULES[name] = function
        return function
    return register


def matches(root, names, pattern, text_of=None):
    """`file:line: matched text` of every match, line by line."""
    pattern = re.compile(pattern)
    for name in names:
        text = (root / name).read_text(errors="replace")
        lines = (text_of(text) if text_of else text).splitlines()
        for number, line in enumerate(lines, 1):
            found = pattern.search(line)
            if found:
                yield f"{name}:{number}: {found.group(0).strip()}"


# Arrows point one way only: a folder may include itself and folders of a lower rank.
RANKS = {
    "reference/format": 0, "reference/real": 1, "reference/head": 2, "reference/model": 3,
    "reference/stabilizer": 4, "reference/evaluate": 5, "bounds": 6, "certify": 7, "fuzz": 8,
    "cli": 9,
}


def folder_of(name):
    """The key of RANKS that holds the file, or None."""
    parts = pathlib.PurePosixPath(name).parts
    return next((key for key in ("/".join(parts[:2]), parts[0]) if key in RANKS), None)


@rule("include-direction")
def include_direction(root):
    for name in filter(is_cpp, project_files(root)):
        text = without_comments((root / name).read_text(errors="replace"))
        for number, line in enumerate(text.splitlines(), 1):
            found = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not found:
                continue
            included = found.group(1)
            if ".." in pathlib.PurePosixPath(included).parts or not (root / included).is_file():
                yield f'{name}:{number}: "{included}" is not a path from the root'
                continue
            if room_of(name) is None:
                continue
            if included == "reference/input_error.h":
                continue  # the one header that everything shares
            source, target = folder_of(name.as_posix()), folder_of(included)
            if source == target and source is not None:
                continue
            if source is None or target is None or RANKS[target] >= RANKS[source]:
                yield f'{name}:{number}: {source or name.parent} must not include "{included}"'


@rule("headers")
def headers(root):
    """A header says what it is in its first line and is included once."""
    for name in project_files(root):
        if name.suffix != ".h":
            continue
        text = (root / name).read_text()
        if re.match(r"/\*\n \* \w[^\n]*\.h: ", text):  # C, for compilers of others: a guard
            if not re.search(r"^#ifndef (\w+_H)\n#define \1$", text, re.M):
                yield f"{name}:1: no include guard"
            continue
        if not text.startswith("// "):
            yield f"{name}:1: the first line is not a comment that says what the header is"
        if "\n#pragma once\n" not in text:
            yield f"{name}:1: no #pragma once"
        if re.search(r"^using namespace", text, re.M):
            yield f"{name}:1: using namespace in a header"


# Split so that this file does not match itself.
BANNED_WORDS = "|".join((
    "TO" r"DO\b", "FIX" r"ME\b", r"\bX" r"XX\b",              # unfinished work
    r"(?<![\w.])/wo" r"rk/", r"(?<![\w.])/ro" r"ot/", r"(?<![\w.])/ho" r"me/\w",  # machine paths
    r"pypi\." r"org", r"pythonhosted\." r"org", r"npmjs\." r"(?:org|com)", r"crates\." r"io",
    r"proxy\.golang\." r"org", r"rubygems\." r"org", r"deb\.debian\." r"org",
    r"conan\." r"io", r"anaconda\." r"org",
))


@rule("banned-words")
def banned_words(root):
    names = [name for name in project_files(root) if name.name != "LICENSE"]
    yield from matches(root, names, BANNED_WORDS)


@rule("folder-names")
def folder_names(root):
    vague = {"utils", "util", "core", "common", "misc", "helpers"}
    folders = {parent for name in project_files(root) for parent in name.parents}
    for folder in sorted(folders):
        if folder.name in vague:
            yield f"{folder}: a folder is named after what is in it"


@rule("interval-comparisons")
def interval_comparisons(root):
    """Intervals are compared by named, three-valued functions only. CGAL's and MPFI's own
    comparisons throw, or call overlapping intervals equal."""
    cpp = [name for name in project_files(root) if is_cpp(name)]
    yield from matches(root, cpp, r"boost/multiprecision/mpfi\.hpp|\bmpfi_float\w*|\bmpfi_cmp\w*",
                       without_comments)
    outside = [name for name in cpp if room_of(name) and name.stem != "interval"
               and name.as_posix() != "reference/real/fp_environment.cpp"]
    yield from matches(root, outside, r"\bInterval_nt\b|\bCGAL::(?:compare|sign|is_\w+)\b",
                       without_comments)
    intervals = [name for name in cpp if name.as_posix() in
                 ("reference/real/interval.h", "reference/real/wide_interval.h")]
    yield from matches(root, intervals, r"operator\s*(?:<=>|<=|>=|==|!=|<|>)\s*\(|operator bool",
                       without_comments)


@rule("no-libm-bounds")
def no_libm_bounds(root):
    """glibc's functions do not enclose under directed rounding: no bound comes from them.
    std::sqrt, std::fma and std::ldexp of normal results are exact or correctly rounded."""
    names = [name for name in project_files(root)
             if is_cpp(name) and name.parts[0] in ("bounds", "certify")]
    functions = "exp|exp2|expm1|log|log2|log10|log1p|pow|tanh|cbrt|hypot|lgamma|erf"
    yield from matches(root, names, rf"(?:\bstd|(?<!\w))::(?:{functions})[fl]?\s*\(",
                       without_comments)
    yield from matches(root, names, rf"(?<![\w:.>])(?:{functions})[fl]\s*\(", without_comments)
    yield from matches(root, names, r"\b(?:__)?builtin_(?:exp|log|pow)\w*|using std::(?:exp|log|pow)",
                       without_comments)


@rule("rounding-flags")
def rounding_flags(root):
    names = [name for name in project_files(root) if name.name == "meson.build"]
    without_hash_comments = lambda text: re.sub(r"#.*", "", text)
    yield from matches(root, names, r"-ffast-math|-Ofast|-funsafe-math\S*|-fassociative-math"
                       r"|-freciprocal-math|-ffinite-math-only|-ffp-contract=(?!off)\w+"
                       r"|-fno-rounding-math", without_hash_comments)
    top = without_hash_comments((root / "meson.build").read_text())
    for flag in ("-frounding-math", "-ffp-contract=off"):
        if flag not in top:
            yield f"meson.build: {flag} is missing"
    sources = [name for name in project_files(root) if is_cpp(name)]
    yield from matches(root, sources, r"#\s*pragma\s+(?:GCC\s+optimize|STDC\s+FP_CONTRACT\s+ON)|"
                       r"__attribute__\s*\(\(\s*optimize", without_comments)


@rule("defects")
def defects(root):
    """DEFECTS.md names tests that exist."""
    path = pathlib.Path(root) / "DEFECTS.md"
    if not path.exists():
        return
    tests = set()
    for name in filter(is_cpp, project_files(root)):
        if name.parts[0] == "tests":
            text = (pathlib.Path(root) / name).read_text(errors="replace")
            tests.update(map(".".join, re.findall(r"\bTEST(?:_F|_P)?\((\w+),\s*(\w+)\)", text)))
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for name in re.findall(r"`([A-Z]\w*\.[A-Z]\w*)`", line):
            if name not in tests:
                yield f"DEFECTS.md:{number}: no test {name}"


def main(arguments):
    if arguments == ["--rules"]:
        print("\n".join(RULES))
        return 0
    if len(arguments) < 2 or any(name not in RULES for name in arguments[1:]):
        print(f"usage: lint.py ROOT RULE...\nrules: {' '.join(RULES)}", file=sys.stderr)
        return 2
    root = pathlib.Path(arguments[0])
    violations = [f"{line} [{name}]" for name in arguments[1:] for line in RULES[name](root)]
    print("\n".join(violations) if violations else f"{', '.join(arguments[1:])}: clean")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
