"""Writes proofs/INDEX.md: every claim with its theorem or its honest status, every file with its
theorems.

    index.py            writes it
    index.py --check    exits 1 if it is not what this program would write

Fails if a theorem that is named here does not exist, if a claim of certify/certificate_v1.md has no
entry, or if a file of the development is not built.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent
COQ = ROOT / "coq"

# claim: what is proved of it, and where. "covered": part of Certified.certified, for the kernels that
# Kernel describes. "lemma": proved, not used by the checker. "none": no theorem.
CLAIMS = {
    "operand.finite": ("covered", "Words.decode_value", "a word that is NaN or infinite is refused"),
    "score.range": ("covered", "Score.score_sum_safe", "every partial sum of a score is finite"),
    "score.error": ("covered", "Score.score_sum_error Score.scaled_error", "over the multiplied operands"),
    "exponent.defined": ("covered", "Masked.masked_exponent", "mu is finite; -inf - mu is -inf"),
    "stabilizer.stored": ("covered", "Stabilizer.mu_enclosed Stabilizer.exponent_at_most_cap", ""),
    "exponent.upper": ("covered", "Row.exponents", "every stored exponent is at most C"),
    "exponent.rounding": ("covered", "Row.exponent_close", "part of the output's bound"),
    "exp2.contract": ("covered", "Weights.flushing_unit Weights.gradual_unit Weights.approximate_unit_promises",
                      "what a rounded, a flushing and an approximate unit promise; that the machine has one is assumed"),
    "p.range": ("covered", "Weights.stored_range Kernel.stored_promise", "P of FP32's exponent range"),
    "correction.range": ("none", "", "online softmax"),
    "l.range": ("covered", "Execution.sum_safe Adders.ieee_bounded", "also SumsToNearest.near_step beyond 2^p terms"),
    "o.range": ("covered", "Execution.sum_safe Adders.truncating_bounded", ""),
    "l.nonzero": ("covered", "Row.l_value", "2^low <= l"),
    "normalise.range": ("covered", "Division.reciprocal_normalises Division.divider_normalises", ""),
    "mass.lost": ("covered", "LostMass.lost_mass Certified.lost_within_bound Certified.lost_mass_within",
                  "the sharp bound, with ln 2 and e^x enclosed by Log2e"),
    "product.flush": ("covered", "FlushedProducts.flushed_products Reported.flushed_within",
                      "as a part of l, absolutely; a summand of the output's bound. Not compared with eps"),
    "mask.mass": ("none", "", "padding that is added as zero keys"),
    "sum.absorption": ("lemma", "Absorption.takes_in Absorption.equal_terms_exact Absorption.further_terms_absorbed "
                                "SumsInSequence.sequential_sum_stalls",
                       "sums to nearest, one term after another; tiles, lanes and matrix units have no theorem"),
    "bias.absorption": ("none", "", "reported; biases are outside the theorem"),
    "empty.row": ("none", "", "rows that see no key are outside the theorem"),
    "gate.conservative": ("covered", "MainTheorem.row_is_certified", "its hypotheses i_exponent and i_mean, row by row"),
    "output.error": ("covered", "OutputError.weights_error OutputError.quotient_error Bounds.sums_bound_upper",
                     "the checker states its own bound"),
    "lse.error": ("covered", "LogSumExp.lse_error Reported.lse_within",
                  "log2 l + mu, before the kernel rounds them; the checker states its own bound"),
    "merge.identity": ("none", "", "kernels that split the keys are outside the theorem"),
    "merge.range": ("none", "", "kernels that split the keys are outside the theorem"),
}


def sources():
    """{file stem: (title, [(kind, name)])} in the order of proofs/coq/meson.build."""
    build = (COQ / "meson.build").read_text(encoding="utf-8")
    order = re.findall(r"^  \['(\w+)', \[", build, re.M)
    stems = {path.stem for path in COQ.glob("*.v")} - {"Extract"}
    if set(order) != stems:
        raise SystemExit(f"proofs/coq/meson.build: found {sorted(set(order) ^ stems)} in one place only")
    result = {}
    for stem in order:
        text = (COQ / f"{stem}.v").read_text(encoding="utf-8")
        title = re.match(r"\(\*\* \* (.*?)(?:\n\n|\*\))", text, re.S).group(1)
        names = re.findall(r"^(Theorem|Corollary|Lemma)\s+([\w']+)", text, re.M)
        result[stem] = (" ".join(title.split()), names)
    return result


def index():
    files = sources()
    documented = re.findall(r"^\| (`[a-z0-9.`, ]+`) \|", (ROOT.parent / "certify/certificate_v1.md")
                            .read_text(encoding="utf-8").split("## Meaning")[1].split("## Verdict")[0], re.M)
    ids = [name for cell in documented for name in re.findall(r"`([a-z0-9]+\.[a-z0-9]+)`", cell)]
    missing = [name for name in ids if name not in CLAIMS]
    if missing:
        raise SystemExit(f"claims without an entry: {', '.join(missing)}")
    lines = ["# Index of the proofs", "",
             "Written by `proofs/index.py`; a test compares. `covered`: part of the theorem",
             "`Certified.certified`, or of `Reported`'s, for policy `clis` and the kernels of `coq/Kernel.v`. `lemma`: proved,",
             "not used by the checker. `none`: no theorem.", "",
             "| claim | status | theorem | note |", "|---|---|---|---|"]
    for claim, (status, theorems, note) in CLAIMS.items():
        links = []
        for theorem in theorems.split():
            stem, name = theorem.split(".")
            if stem not in files or name not in [n for _, n in files[stem][1]]:
                raise SystemExit(f"{claim}: there is no {theorem}")
            links.append(f"[{theorem}](coq/{stem}.v)")
        lines.append(f"| `{claim}` | {status} | {', '.join(links)} | {note} |")
    lines += ["", "## Files", "", "| file | about | theorems |", "|---|---|---|"]
    for stem, (title, names) in files.items():
        theorems = ", ".join(f"`{name}`" for kind, name in names if kind != "Lemma")
        lines.append(f"| [{stem}](coq/{stem}.v) | {title} | {theorems} |")
    return "\n".join(lines) + "\n"


def main(arguments):
    target = ROOT / "INDEX.md"
    text = index()
    if arguments == ["--check"]:
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            print("proofs/INDEX.md: not what proofs/index.py writes; run it")
            return 1
        return 0
    target.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
