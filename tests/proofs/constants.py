"""Numbers that the proof development shares with the program are the same on both sides.

    constants.py PRINT_CONSTANTS SOURCE_ROOT

PRINT_CONSTANTS is the program of print_constants.cpp: the numbers as the C++ has them. Of the Coq
sources and of the checker's driver the text is read. Nothing may be missing on either side: every
number that is printed has to be compared, and so has every definition of a number in proofs/coq that
is not listed as the development's own. A changed number on either side is caught: each is moved once,
in memory, and the comparison has to fail.
"""

import pathlib
import re
import subprocess
import sys
from fractions import Fraction

# Numbers of the development alone, and why the program has none like it.
OWN = {
    "CheckHead.q_rho": "nodes of a sum a key, as MainTheorem.nodes_allowed has them",
    "MainTheorem.padding": "results that add nothing, a bound of the model",
    "Log2e.ln2_lo": "proved there to enclose ln 2", "Log2e.ln2_hi": "proved there to enclose ln 2",
    "CounterexampleGate.C": "of a counterexample", "CounterexampleGate.L": "of a counterexample",
    "CounterexampleGate.U": "of a counterexample",
}
# Formats of the program that no file of the development is about.
FORMATS_WITHOUT_PROOFS = ("fp64", "e4m3fn", "e5m2", "e2m1")
NUMBER = r"\(?(-?[0-9.]+(?:\s*/\s*[0-9]+)?)\)?(?:%Z)?"


class Comparison:
    def __init__(self, printed, sources):
        self.printed, self.sources = printed, sources
        self.used, self.defined, self.failures = set(), set(), []

    def cpp(self, name):
        self.used.add(name)
        if name not in self.printed:
            self.failures.append(f"{name}: the program prints no such number")
            return Fraction(0)
        return self.printed[name]

    def found(self, file, pattern):
        """The groups of the one place in a source that the pattern matches."""
        matches = re.findall(pattern, self.sources[file])
        if len(matches) != 1:
            self.failures.append(f"{file}: found {len(matches)} places like {pattern}")
            return None
        return [matches[0]] if isinstance(matches[0], str) else list(matches[0])

    def equal(self, file, pattern, *names):
        values = self.found(file, pattern)
        if values is None:
            for name in names:
                self.cpp(name)
            return
        for value, name in zip(values, names, strict=True):
            if rational(value) != self.cpp(name):
                self.failures.append(f"{file}: found {value}, {name} is {self.cpp(name)}")

    def holds(self, what, condition):
        if not condition:
            self.failures.append(what)


def rational(text):
    """A decimal number, or a fraction of two."""
    numerator, _, denominator = text.strip("(). ").partition("/")
    return Fraction(numerator.strip()) / Fraction(denominator.strip() or "1")


def formats(c):
    # the words of stored tensors, in Coq and in the driver
    for name in ("bf16", "fp16", "fp32"):
        bits = (f"{name}.exponent_bits", f"{name}.fraction_bits")
        c.equal("Words.v", rf"{name}_words := {{\| exponent_bits := (\d+); fraction_bits := (\d+) \|}}", *bits)
        c.equal("hints.ml", rf'"{name}" -> {{[^}}]*fraction = (\d+); exponent_bits = (\d+) }}', *reversed(bits))
    # Flocq's emax is one more than IEEE 754's
    pairs = {(c.cpp(f"{name}.precision"), c.cpp(f"{name}.emax") + 1) for name in ("fp32", "tf32", "fp16", "bf16")}
    for file, text in c.sources.items():
        for precision, emax in re.findall(r"\bbinary_float (\d+) (\d+)", text):
            c.holds(f"{file}: binary_float {precision} {emax} is no format of the program",
                    (Fraction(precision), Fraction(emax)) in pairs)
    for match, name in (('"bf16" -> (\\d+), (\\d+) \\| "tf32"', "bf16"), ('\\| "tf32" -> (\\d+), (\\d+)', "tf32"),
                        ('"tf32" -> \\d+, \\d+ \\| _ -> (\\d+), (\\d+)', "fp32"), ('"bf16" -> (\\d+), (\\d+) \\| "fp16"', "bf16"),
                        ('\\| "fp16" -> (\\d+), (\\d+)', "fp16"), ('"fp16" -> \\d+, \\d+ \\| _ -> (\\d+), (\\d+)', "fp32")):
        values = c.found("model.ml", match)
        c.holds(f"model.ml: {name}: found {values}", values is not None and [rational(v) for v in values]
                == [c.cpp(f"{name}.precision"), c.cpp(f"{name}.emax") + 1])
    for name in ("fp32", "bf16", "fp16", "tf32"):
        emin, least, precision = (c.cpp(f"{name}.{part}") for part in ("emin", "least_exponent", "precision"))
        c.holds(f"{name}: Flocq's emin is 3 - emax - prec", least == 3 - (c.cpp(f"{name}.emax") + 1) - precision)
        c.holds(f"{name}: emin", emin == least + precision - 1)
        c.holds(f"{name}: bits", c.cpp(f"{name}.fraction_bits") == precision - 1)
        c.holds(f"{name}: bias", 2 ** (c.cpp(f"{name}.exponent_bits") - 1) - 1 == c.cpp(f"{name}.emax"))
    for name in FORMATS_WITHOUT_PROOFS:
        for part in ("precision", "emax", "emin", "least_exponent", "exponent_bits", "fraction_bits"):
            c.cpp(f"{name}.{part}")


def thresholds(c):
    c.equal("Kernel.v", r"flush_at \(b : bool\) : option Z := if b then Some \((-\d+)\)%Z", "fp32.emin")
    c.equal("Kernel.v", r"eta_of \(a : adder\) : R := match a with\s*\| Ieee true => bpow radix2 \((-\d+)\) \| _ => bpow radix2 \((-\d+)\)",
            "fp32.emin", "fp32.least_exponent")
    promise = r"\| {} => {{\| pr_L := (-\d+); pr_La := (-\d+); pr_Z0 := (-\d+); pr_low := (-\d+);"
    kept = {"Rounded true": ("exp2.flushing.kept_from", "fp32.emin"), "Rounded false": ("exp2.gradual.kept_from", "fp32.least_exponent"),
            "Within a k h": ("exp2.ulps.kept_from", "fp32.emin")}
    for unit, (name, low) in kept.items():
        values = c.found("Kernel.v", promise.format(unit))
        if values is None:
            continue
        L, La, zero, lowest = map(rational, values)
        c.holds(f"Kernel.v: {unit}: kept from {L}, {name} is {c.cpp(name)}", L == c.cpp(name))
        c.holds(f"Kernel.v: {unit}: accurate from {La}", La == max(L, c.cpp("fp32.emin")))
        c.holds(f"Kernel.v: {unit}: kept results are at least 2^{lowest}", lowest == c.cpp(low))
        c.holds(f"Kernel.v: {unit}: 0 from {zero}", zero == c.cpp(low) - 1)
    for name in ("bf16", "tf32", "fp32"):
        c.holds(f"p.{name}: kept from", c.cpp(f"p.{name}.kept_from") == c.cpp(f"{name}.emin"))
        c.equal("Kernel.v", r"unit_promises u C : unit_ok u -> \(-126 <= C <= (\d+)\)%Z", f"p.{name}.limit")
    c.equal("CheckHead.v", r"64 <=\? c_C c\) && \(c_C c <=\? (\d+)\)", "fp32.emax")


def exp2_limits(c):
    text = "Exp2Thresholds.v"

    def enclosed(name, lower, upper):
        c.holds(f"{text}: {name}: the program has {c.cpp(name + '.lower')}, {c.cpp(name + '.upper')}",
                lower <= c.cpp(f"{name}.lower") <= c.cpp(f"{name}.upper") <= upper)

    def powers(pattern):
        values = c.found(text, pattern)
        return [int(value) for value in values] if values else [0] * 9

    a, b, d = powers(r"fp32_argument : forall x, x <= (\d+) - / 2\^(\d+) -> exp2 x < bpow radix2 (\d+)")
    c.holds("fp32: the largest argument", Fraction(a) - Fraction(1, 2 ** b) == c.cpp("exp2.fp32.largest_argument") and a == d)
    a, b, e, p, a2, b2 = powers(r"fp32_threshold : exp2 \((\d+) - / 2\^(\d+)\) < bpow radix2 (\d+) \* \(1 - / 2\^(\d+)\) < exp2 \((\d+) - / 2\^(\d+)\)")
    enclosed("exp2.fp32.overflow", Fraction(a) - Fraction(1, 2 ** b), Fraction(a2) - Fraction(1, 2 ** b2))
    c.holds("fp32: results overflow half a unit above the largest number", p == c.cpp("fp32.precision") + 1 and e == c.cpp("fp32.emax") + 1)
    half = c.cpp("exp2.fp32.largest_finite") + Fraction(2) ** (e - p)
    c.holds("fp32: the largest number", half == Fraction(2) ** e * (1 - Fraction(1, 2 ** p)))
    values = c.found(text, r"fp16_threshold : exp2 ([\d.]+) < (\d+) < exp2 ([\d.]+)")
    if values:
        enclosed("exp2.fp16.overflow", rational(values[0]), rational(values[2]))
        half = c.cpp("exp2.fp16.largest_finite") + Fraction(2) ** (c.cpp("fp16.emax") - c.cpp("fp16.precision"))
        c.holds("fp16: results overflow half a unit above the largest number", rational(values[1]) == half)
    a, b, most = powers(r"fp16_argument : forall x, x <= (\d+) - / 2\^(\d+) -> exp2 x < (\d+)")
    c.holds("fp16: the largest argument", Fraction(a) - Fraction(1, 2 ** b) == c.cpp("exp2.fp16.largest_argument"))
    c.holds("fp16: the largest number", most == c.cpp("exp2.fp16.largest_finite"))
    values = c.found(text, r"bf16_threshold : exp2 ([\d.]+) < bpow radix2 (\d+) \* \(1 - / 2\^(\d+)\) < exp2 ([\d.]+)")
    if values:
        lower, e, p, upper = map(rational, values)
        enclosed("exp2.bf16.overflow", lower, upper)
        c.holds("bf16: results overflow half a unit above the largest number", p == c.cpp("bf16.precision") + 1 and e == c.cpp("bf16.emax") + 1)
        half = c.cpp("exp2.bf16.largest_finite") + Fraction(2) ** (e - p)
        c.holds("bf16: the largest number", half == Fraction(2) ** e * (1 - Fraction(1, 2 ** int(p))))
        c.holds("bf16: no argument below the next power is too large", c.cpp("exp2.bf16.largest_argument") < lower)


def polynomial(c):
    c.holds("fa4-poly3.c0: the polynomial of Exp2Coefficients.P ends in 1", c.cpp("fa4-poly3.c0") == 1)
    for i in (1, 2, 3):
        c.equal("Exp2Coefficients.v", rf"Definition c{i} := (\d+/\d+)\.", f"fa4-poly3.c{i}")
        c.defined.add(f"Exp2Coefficients.c{i}")
    values = c.found("Exp2Polynomial.v", r"<= ([\d.]+) / (\d+)\.\nProof\.\nintros x Hx\. assert \(A := poly_round_error")
    if values:
        ulps, unit = map(rational, values)
        c.holds("Exp2Polynomial.v: the unit of the last place", unit == 2 ** (c.cpp("fp32.precision") - 1))
        c.holds(f"Exp2Polynomial.v: {ulps} ulps, the program promises {c.cpp('fa4-poly3.ulps')}",
                0 <= ulps - c.cpp("fa4-poly3.ulps") < Fraction(1, 2))
    values = c.found("Exp2PolynomialRounding.v", r"FLT_exp \((-\d+)\) (\d+)\)")
    c.holds("Exp2PolynomialRounding.v: roundings to FP32", values is not None
            and [rational(v) for v in values] == [c.cpp("fp32.least_exponent"), c.cpp("fp32.precision")])


def complete(c):
    """Nothing is on one side only."""
    for name in sorted(set(c.printed) - c.used):
        c.failures.append(f"{name}: printed by the program, compared with nothing")
    for file, text in c.sources.items():
        for name in re.findall(rf"^Definition (\w+)(?: : \w+)? := (?:{NUMBER}|\({NUMBER} [-+] \d+\)%Z)\.$", text, re.M):
            full = f"{file.removesuffix('.v')}.{name[0]}"
            if full not in c.defined and full not in OWN:
                c.failures.append(f"{full}: a number that is compared with nothing")


def compare(printed, sources):
    c = Comparison(printed, sources)
    for part in (formats, thresholds, exp2_limits, polynomial, complete):
        part(c)
    return c.failures


def moved(value):
    """Another number: the next one up of a coefficient, one more of what is only enclosed."""
    return value + (Fraction(1, value.denominator) if 1 < value.denominator < 2 ** 30 else 1)


def without_comments(text):
    return re.sub(r"\(\*.*?\*\)", "", text, flags=re.S)


def main(program, root):
    output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    printed = {}
    for line in output.splitlines():
        name, value = line.split()
        if name in printed:
            raise SystemExit(f"{name}: printed twice")
        printed[name] = Fraction(float.fromhex(value)) if "x" in value else Fraction(int(value))
    proofs = pathlib.Path(root, "proofs")
    files = [*sorted((proofs / "coq").glob("*.v")), proofs / "check" / "model.ml", proofs / "check" / "hints.ml"]
    sources = {file.name: without_comments(file.read_text(encoding="utf-8")) for file in files}
    failures = compare(printed, sources)
    # a changed number of the program is caught, and one that is missing or new
    changed = 0
    for name, value in printed.items():
        if any(name.startswith(other + ".") for other in FORMATS_WITHOUT_PROOFS):
            continue
        changed += 1
        if not compare({**printed, name: moved(value)}, sources):
            failures.append(f"{name}: a changed number of the program is not caught")
        if not compare({other: v for other, v in printed.items() if other != name}, sources):
            failures.append(f"{name}: a missing number of the program is not caught")
    if not compare({**printed, "another": Fraction(1)}, sources):
        failures.append("a new number of the program is not caught")
    # and one of the proofs
    for file, old, new in (
            ("Exp2Coefficients.v", "3817897/", "3817898/"), ("Words.v", "fraction_bits := 7", "fraction_bits := 8"),
            ("Kernel.v", "pr_L := -125", "pr_L := -126"), ("Kernel.v", "Some (-126)%Z", "Some (-127)%Z"),
            ("Exp2Thresholds.v", "128 - / 2^17", "128 - / 2^18"), ("Exp2Thresholds.v", "65520", "65519"),
            ("Exp2Thresholds.v", "exp2 127.9971", "exp2 127.9973"), ("Exp2Polynomial.v", "<= 1430.1", "<= 1429.1"),
            ("model.ml", '"bf16" -> 8, 128 | "tf32"', '"bf16" -> 9, 128 | "tf32"'), ("hints.ml", "fraction = 23", "fraction = 22"),
            ("Adders.v", "", "\nDefinition another := 3.\n")):
        if old not in sources[file]:
            failures.append(f"{file}: found no {old}")
        elif not compare(printed, {**sources, file: sources[file].replace(old, new, 1)}):
            failures.append(f"{file}: {new.strip()} instead of {old} is not caught")
        else:
            changed += 1
    print("\n".join(failures) if failures
          else f"{len(printed)} numbers agree with the proofs; {changed} changed ones were caught")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
