"""The theorems rest on the standard axioms of the reals and on nothing else.

    axioms.py COQC FOLDER_OF_VO SOURCE_FOLDER

Asks Coq for the assumptions of each main theorem and compares them with an allow-list; and no
source has an Admitted, an Axiom, a Parameter or a Conjecture, nor switches a check off. Theorems
that use the interval tactic also rest on primitive machine integers, by name; they are listed
apart, and no other theorem may.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

REALS = {
    "ClassicalDedekindReals.sig_not_dec",
    "ClassicalDedekindReals.sig_forall_dec",
    "FunctionalExtensionality.functional_extensionality_dep",
    "Classical_Prop.classic",
}
# Primitive machine integers and their specification, as the interval tactic computes with them.
PRIMITIVE = re.compile(r"(PrimInt63|Uint63|PrimFloat|FloatAxioms|FloatOps|Uint63Axioms|Sint63)\b.*")

THEOREMS = [
    "Sums.acc_bound", "Sums.nacc_lower", "Sums.sum_truncated", "SumsToNearest.near_step",
    "SumsInSequence.sequential_sum_stalls", "SumsInIeee.no_overflow", "SumsInIeee.row_sum_lower",
    "SumsInIeee.published_rule", "SumsInIeee.floor_rule",
    "CauchySchwarz.score_upper", "Centring.centring_error", "Centring.prescale_error",
    "Dot.dot_error", "Dot.score_error_from_norms", "Dot.scaled_score_error",
    "Exp2.faithful_contract", "Exp2.faithful_flushed_contract", "Exp2.approximate_weight",
    "Jensen.row_mass", "Jensen.row_mass_of_subset", "Jensen.row_mass_general",
    "LostMass.lost_mass_simple", "LostMass.lost_mass_sharp", "LostMass.lost_mass",
    "Execution.sum_safe", "Execution.sum_error", "Execution.sum_lower",
    "Adders.ieee_bounded", "Adders.ieee_close", "Adders.ieee_close_on_weights", "Adders.ieee_keeps",
    "Adders.truncating_bounded", "Adders.truncating_close",
    "Weights.flushing_unit", "Weights.gradual_unit", "Weights.approximate_unit_promises",
    "Weights.stored_range", "Weights.stored_close_normal",
    "Masked.masked_exponent", "Masked.masked_term",
    "Division.divider_normalises", "Division.reciprocal_normalises",
    "Division.rounded_reciprocal_close",
    "OutputError.reweighting_error", "OutputError.weights_error", "OutputError.quotient_error",
    "Stabilizer.mu_enclosed", "Stabilizer.exponent_at_most_cap",
    "Row.row_theorem", "Kernel.kernel_promises", "MainTheorem.row_is_certified",
    "Checker.check_sound", "Certified.certified", "Certified.lost_mass_within",
    "FastSums.decode_list_value", "FastSums.norm2_value", "FastSums.product_value",
    "FastCheck.check_fast_sound", "FastCheck.certified_fast",
    "Instance.instance_checked", "Instance.instance_checked_fast", "Instance.instance_certified",
    "Instance.smaller_kappa_refused",
    "LogSumExp.lse_error", "FlushedProducts.flushed_products", "Reported.lse_within", "Reported.flushed_within",
    "Absorption.takes_in", "Absorption.equal_terms_exact", "Absorption.further_terms_absorbed",
    "Log2e.scale_enclosed", "Words.decode_row_value",
    "CounterexampleAccumulator.bf16_accumulator_overflows",
    "CounterexampleCentring.rounded_mean_all_scores_negative",
    "CounterexampleCentring.causal_row_all_scores_negative",
    "CounterexampleGate.gate_accepts", "CounterexampleGate.a_fifth_is_lost",
]
WITH_INTERVAL = [
    "Exp2Thresholds.exp2_fp32_threshold", "Exp2Thresholds.exp2_fp16_threshold",
    "Exp2Thresholds.exp2_bf16_threshold", "Exp2Polynomial.exp2_polynomial_error",
    "Exp2Polynomial.exp2_polynomial_ulps",
]
FORBIDDEN = re.compile(r"\b(Admitted|admit|Axiom|Axioms|Parameter|Parameters|Conjecture|"
                       r"Unset\s+Guard\s+Checking|Unset\s+Universe\s+Checking|"
                       r"Unset\s+Positivity\s+Checking|bypass_check|native_compute)\b")


def assumptions(coqc, folder, theorems):
    """Names on which any of the theorems rests, as Coq prints them. One question for all: each
    walks through the whole library of the reals."""
    modules = sorted({theorem.split(".")[0] for theorem in theorems})
    bundle = ", ".join("@" + theorem for theorem in theorems)
    with tempfile.TemporaryDirectory() as scratch:
        source = pathlib.Path(scratch, "audit.v")
        source.write_text(f"From Headroom Require {' '.join(modules)}.\n"
                          f"Definition theorems := ({bundle}).\nPrint Assumptions theorems.\n",
                          encoding="utf-8")
        result = subprocess.run([coqc, "-q", "-R", str(folder), "Headroom", str(source)],
                                capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return None, result.stderr
    return set(re.findall(r"^([A-Z_a-z][\w.']*)\s*(?::|$)", result.stdout, re.M)) - {"Axioms"}, ""


def without_comments(text):
    out, depth, i = [], 0, 0
    while i < len(text):
        if text.startswith("(*", i):
            depth, i = depth + 1, i + 2
        elif text.startswith("*)", i) and depth:
            depth, i = depth - 1, i + 2
        else:
            out.append(text[i] if depth == 0 else " ")
            i += 1
    return "".join(out)


def main(coqc, folder, sources):
    failures = []
    for theorems, with_interval in ((THEOREMS, False), (WITH_INTERVAL, True)):
        names, error = assumptions(coqc, folder, theorems)
        if names is None:
            failures.append(error.strip())
            continue
        if not with_interval and not names & REALS:
            failures.append(f"found the assumptions {sorted(names)}, expected those of the reals")
        extra = {name for name in names - REALS
                 if not (with_interval and PRIMITIVE.fullmatch(name))}
        if extra:
            failures.append(f"{theorems[0]} and others rest on {', '.join(sorted(extra))}")
    for path in sorted(pathlib.Path(sources).glob("*.v")):
        for match in FORBIDDEN.finditer(without_comments(path.read_text(encoding="utf-8"))):
            failures.append(f"{path.name}: {match.group()}")
    print("\n".join(failures) if failures
          else f"{len(THEOREMS)} theorems rest on the axioms of the reals alone")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
