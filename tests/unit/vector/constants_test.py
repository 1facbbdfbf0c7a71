#!/usr/bin/env python3
"""Every constant of the vector kernels exists in C++ and in the proof scripts: are they equal?

  constants_test.py equal SOURCE_ROOT   compares the headers with the Sollya and Gappa scripts and
                                        with their recorded outputs, which have to say that every
                                        claim holds
  constants_test.py sollya SOURCE_ROOT  runs the Sollya scripts: the output is the recorded one
  constants_test.py gappa SOURCE_ROOT   runs the Gappa proofs, that of exp2 on all entries of its
                                        table, and sees tighter claims refused

Exit status 0: yes; 1: no; 77: the tool is not installed.
"""
import pathlib
import re
import shutil
import subprocess
import sys

NUMBER = r"-?(?:0x[0-9a-fA-F.]+(?:p[+-]?\d+)?|\d+(?:\.\d+)?)"
SKIPPED = 77


def value(text):
    """A literal, or a sum or difference of two, as a double; both scripts write hex floats."""
    text = text.strip()
    parts = re.fullmatch(rf"({NUMBER})(?:\s*([+-])\s*({NUMBER}))?", text)
    if not parts:
        raise SystemExit(f"not a number: {text!r}")
    first = float.fromhex(parts[1])
    second = float.fromhex(parts[3]) if parts[3] else 0.0
    return first - second if parts[2] == "-" else first + second


def header_constants(path):
    """name -> list of values, for every `inline constexpr double name[...] = ...;`."""
    text = re.sub(r"//.*", "", path.read_text())
    found = {}
    for name, body in re.findall(r"constexpr double (\w+)(?:\[[^]]*\])?\s*=\s*([^;]*);", text):
        body = body.strip().strip("{}")
        found[name] = [value(v) for v in body.split(",") if v.strip()]
    return found


def script_constants(path, comment):
    """name -> value, for every `name = number;` of a script."""
    text = re.sub(comment + ".*", "", path.read_text())
    pairs = re.findall(rf"^(\w+) = ({NUMBER});", text, flags=re.M)
    return {name: value(number) for name, number in pairs}


class Tracked(dict):
    """Constants by name, and which were compared."""

    def __init__(self, constants):
        super().__init__(constants)
        self.used = set()

    def __getitem__(self, name):
        self.used.add(name)
        return super().__getitem__(name)

    def get(self, name, otherwise=None):
        self.used.add(name)
        return super().get(name, otherwise)


# Numbers that no proof is about: where arguments are cut off, the least subnormal, and what a script
# works with.
WITHOUT_PROOF = {"exp2_round_to_sixteenth", "exp2_argument_limit", "exp2_shift_limit",
                 "exp2_absolute_error_bound", "exp2_short_limit", "prec", "worst"}


class Comparison:
    def __init__(self):
        self.failures = 0
        self.count = 0

    def equal(self, what, expected, found):
        self.count += 1
        if expected != found:
            self.failures += 1
            print(f"{what}: the header has {expected}, the proof {found}")

    def true(self, what, condition):
        self.count += 1
        if not condition:
            self.failures += 1
            print(f"{what}: does not hold")


def compare(root):
    vector = root / "reference" / "evaluate" / "vector"
    exp2 = Tracked(header_constants(vector / "exp2_constants.h"))
    log2 = Tracked(header_constants(vector / "log2.h"))
    sollya = Tracked(script_constants(root / "proofs/sollya/vector_exp2.sollya", "//"))
    sollya_log2 = Tracked(script_constants(root / "proofs/sollya/vector_log2.sollya", "//"))
    sollya_out = (root / "proofs/sollya/vector_exp2.out").read_text()
    sollya_log2_out = (root / "proofs/sollya/vector_log2.out").read_text()
    gappa_path = root / "proofs/gappa/vector_exp2.g"
    gappa = Tracked(script_constants(gappa_path, "#"))
    gappa_text = re.sub(r"#.*", "", gappa_path.read_text())
    gappa_out = (root / "proofs/gappa/vector_exp2.out").read_text()
    c = Comparison()

    c.equal("number of coefficients", 7, len(exp2["exp2_coefficients"]))
    for i, coefficient in enumerate(exp2["exp2_coefficients"]):
        c.equal(f"c{i}, Sollya", coefficient, sollya.get(f"c{i}"))
        c.equal(f"c{i}, Gappa", coefficient, gappa.get(f"c{i}"))

    table = [tuple(value(v) for v in line.split()[1:])
             for line in sollya_out.splitlines() if line.startswith("table 0x")]
    c.equal("table", list(zip(exp2["exp2_table_head"], exp2["exp2_table_tail"])), table)
    c.equal("table size", 16, len(table))

    for name in ("exp2_tail_limit", "exp2_polynomial_error", "exp2_rounding_error",
                 "exp2_argument_error", "exp2_scaled_argument_error", "exp2_table_error",
                 "exp2_product_error", "exp2_relative_error_bound", "exp2_short_rounding_error",
                 "exp2_short_relative_error_bound"):
        c.equal(name, exp2[name], [sollya.get(name)])
    c.equal("exp2_reduced_limit", exp2["exp2_reduced_limit"],
            [2.0**-5 + sollya["exp2_tail_limit"]])
    c.true("exp2_reduced_limit in Sollya",
           "exp2_reduced_limit = 0x1p-5 + exp2_tail_limit;"
           in (root / "proofs/sollya/vector_exp2.sollya").read_text())

    claims = dict(re.findall(rf"\|(.*?)\| <= ({NUMBER})", gappa_text))
    c.equal("Gappa's claim", exp2["exp2_rounding_error"], [value(claims["y -/ exact"])])
    c.equal("Gappa's claim of the short form", exp2["exp2_short_rounding_error"],
            [value(claims["short -/ exact"])])
    c.equal("Gappa's claim about r", exp2["exp2_argument_error"],
            [value(claims["r - (f + tail)"])])
    ranges = {name: (value(lo), value(hi)) for name, lo, hi in
              re.findall(rf"(\w+) in \[({NUMBER}), ({NUMBER})\]", gappa_text)}
    limit = exp2["exp2_tail_limit"][0]
    c.equal("Gappa's range of tail", (-limit, limit), ranges.get("tail"))
    c.equal("Gappa's range of f", (-2.0**-5, 2.0**-5), ranges.get("f"))

    for name in ("log2_absolute_error", "ln_absolute_error"):
        c.equal(name, log2[name], [sollya_log2.get(name)])
    c.equal("the exp2 bound in vector_log2", exp2["exp2_relative_error_bound"],
            [sollya_log2.get("exp2_relative_error_bound")])
    for name in ("log2_e", "ln_2"):
        line = re.search(rf"^{name} (0x\S+) (0x\S+)$", sollya_log2_out, flags=re.M)
        c.equal(name, log2[name + "_hi"] + log2[name + "_lo"], [value(line[1]), value(line[2])])

    for what, out in (("vector_exp2.out", sollya_out), ("vector_log2.out", sollya_log2_out)):
        c.true(f"{what}: a claim", "true" in out and "false" not in out and "error" not in
               re.sub(r"\w*_error\w*|relative error", "", out).lower())
    c.equal("entries that Gappa recorded", 16, gappa_out.count("claims hold"))

    # The error account line by line: the operations of the script are those of the code.
    code = (vector / "exp2.h").read_text()
    for n in range(5, -1, -1):
        previous = "c6" if n == 5 else f"p{n + 1}"
        c.true(f"p{n} in the script", f"p{n} rnd= {previous} * r + c{n};" in gappa_text)
        operand = r"Simd::set\(exp2_coefficients\[6\]\)" if n == 5 else f"p{n + 1}"
        c.true(f"p{n} in the code",
               re.search(rf"const Double p{n} =\s*Simd::fma\({operand}, r,\s*"
                         rf"Simd::set\(exp2_coefficients\[{n}\]\)\);", code))
    for script, source in (
            ("r rnd= f + tail;", r"const Double r = Simd::add\(f, tail\);"),
            ("z rnd= r * p0;", r"const Double z = Simd::mul\(r, p0\);"),
            ("w rnd= table_head * z + table_tail;",
             r"const Double w = Simd::fma\(table_head, z, table_tail\);"),
            ("unrounded_y = table_head + w;", r"const Double y = Simd::add\(table_head, w\);")):
        c.true(script, script in gappa_text)
        c.true(source, re.search(source, code))
    c.true("the short form in the script",
           "unrounded_short = table_head * z + table_head;" in gappa_text)
    many = code[code.index("void exp2_short"):]
    for source in (r"p\[i\] = Simd::set\(exp2_coefficients\[exp2_degree\]\)",
                   r"for \(int n = exp2_degree - 1; n >= 0; --n\) {\s*"
                   r"const Double c = Simd::set\(exp2_coefficients\[n\]\);\s*"
                   r"each\(.*{ p\[i\] = Simd::fma\(p\[i\], r\[i\], c\); }\);",
                   r"p\[i\] = Simd::mul\(r\[i\], p\[i\]\)",
                   r"power\[i\] = Simd::fma\(scaled\[i\], p\[i\], scaled\[i\]\)"):
        c.true("exp2_short: " + source, re.search(source, many))

    # log2 and the quotient.
    gappa_log2 = root / "proofs/gappa/vector_log2.g"
    constants = Tracked(script_constants(gappa_log2, "#"))
    for name in ("log2_e_hi", "log2_e_lo", "ln_2_hi", "ln_2_lo"):
        c.equal(f"{name} in Gappa", log2[name], [constants.get(name)])
    text, code = re.sub(r"#.*", "", gappa_log2.read_text()), (vector / "log2.cpp").read_text()
    for script, source in (
            ("correction = rnd(q * log2_e_hi);", "const double correction = q * log2_e_hi;"),
            ("tail rnd= rest + correction;", "return {head, rest + correction,"),
            ("end rnd= tail - radius;", "p.tail - p.radius"),
            ("ln_inner rnd= ln_2_lo * ln_head + ln_remainder;",
             "std::fma(ln_2_lo, log2_x.head, remainder)"),
            ("ln_tail rnd= ln_2_hi * log2_tail + ln_inner;",
             "const double tail = std::fma(ln_2_hi, log2_x.tail, std::fma(")):
        c.true(script, script in text)
        c.true(source, source in code)
    code = (vector / "quotient.h").read_text()
    text = (root / "proofs/gappa/vector_quotient.g").read_text()
    for script, source in (("q = rnd(a / b);", "const auto q = Simd::div(a, b);"),
                           ("remainder = a - q * b;", "const auto remainder = Simd::fnma(q, b, a);")):
        c.true(script, script in text)
        c.true(source, source in code)

    # Nothing is on one side only.
    for what, numbers in (("exp2_constants.h", exp2), ("log2.h", log2), ("vector_exp2.sollya", sollya),
                          ("vector_log2.sollya", sollya_log2), ("vector_exp2.g", gappa),
                          ("vector_log2.g", constants)):
        for name in sorted(set(numbers) - numbers.used - WITHOUT_PROOF):
            c.true(f"{what}: {name} is compared with nothing; that it has a counterpart", False)

    print(f"{c.count - c.failures} of {c.count} comparisons hold")
    return 1 if c.failures else 0


def run_sollya(root):
    if not shutil.which("sollya"):
        return SKIPPED
    failed = 0
    for name in ("vector_exp2", "vector_log2"):
        folder = root / "proofs" / "sollya"
        run = subprocess.run(["sollya", str(folder / f"{name}.sollya")], capture_output=True,
                             text=True, stdin=subprocess.DEVNULL)
        if run.stdout != (folder / f"{name}.out").read_text():
            failed = 1
            print(f"{name}.sollya now prints:\n{run.stdout}{run.stderr}")
    return failed


def accepted(script):
    return subprocess.run(["gappa", "-Eno-auto-dichotomy"], input=script, capture_output=True,
                          text=True).returncode == 0


def run_gappa(root):
    if not shutil.which("gappa"):
        return SKIPPED
    folder = root / "proofs" / "gappa"
    run = subprocess.run([sys.executable, "-B", str(folder / "vector_exp2.py")],
                         capture_output=True, text=True)
    if run.returncode != 0:
        print(run.stdout + run.stderr)
        return 1
    # What Gappa prints may change with its version; that a smaller bound is refused may not.
    for name, claims in (
            ("vector_exp2", (("|y -/ exact| <= 0x1.0fp-53", "|y -/ exact| <= 0x1p-53"),
                             ("|short -/ exact| <= 0x1.c9p-53", "|short -/ exact| <= 0x1.9p-53"))),
            ("vector_log2", (("<= 0x1p-93", "<= 0x1p-95"), ("<= 0x1p-92", "<= 0x1p-94"),
                             ("<= 0x1p-86", "<= 0x1p-88"), ("<= 0x1p-84", "<= 0x1p-87"))),
            ("vector_quotient", (("|q - a / b| <= 0x1p-53", "|q - a / b| <= 0x1p-54"),
                                 ("a in [1, 2]", "a in [1, 3]")))):
        script = (folder / f"{name}.g").read_text()
        if not accepted(script):
            print(f"Gappa refuses {name}.g")
            return 1
        for claim, stronger in claims:
            assert claim in script
            if accepted(script.replace(claim, stronger)):
                print(f"Gappa accepts {stronger} in {name}.g: the script proves nothing")
                return 1
    return 0


if __name__ == "__main__":
    MODES = {"equal": compare, "sollya": run_sollya, "gappa": run_gappa}
    if len(sys.argv) != 3 or sys.argv[1] not in MODES:
        sys.exit(__doc__)
    sys.exit(MODES[sys.argv[1]](pathlib.Path(sys.argv[2])))
