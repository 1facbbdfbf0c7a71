"""The table: where to hunt for each weakening of tests/mutation/mutations.py, or why not.

HUNTS   name of the mutation -> hunts, tried one after another
READERS the sources that a changed header is compiled into
SILENT  name -> why no execution contradicts a certificate, with what shows it; hunted all the same
APART   name -> why it makes no certificate easier to get; not hunted
"""

from dataclasses import dataclass, field


@dataclass
class Hunt:
    """`headroom fuzz --policy POLICY --kernel FILE ARGUMENTS`, FILE holding this text."""
    policy: str
    kernel: str
    arguments: list = field(default_factory=list)


def kernel(text, machine="ieee-fp32", tile=8):
    tiles = "" if "[tiles]" in text else f"[tiles]\nkeys = {tile}\n"
    return f'name = "weakened"\nmachine = "{machine}"\n{text}\n{tiles}'


def shapes(*list_of):
    return [word for shape in list_of for word in ("--shape", shape)]


def objectives(*list_of):
    return [word for name in list_of for word in ("--objective", name)]


FLUSHING = kernel("[exp2]\nflush_to_zero = true\n")
PLAIN = kernel("")
BF16 = kernel('operand = "bf16"\n')
BF16_FLUSHING = kernel('operand = "bf16"\n[exp2]\nflush_to_zero = true\n')
BF16_SCORES = kernel('[score]\naccumulator = "bf16"\norder = "sequential"\n'
                     "rounded_products = false\n[exp2]\nflush_to_zero = true\n")
BF16_SUM = kernel('[denominator]\naccumulator = "bf16"\norder = "lanes:2"\n')
FLUSHING_SUM = kernel("[denominator]\nflush_to_zero = true\n")
FP8 = kernel('operand = "bf16"\n[p]\nformat = "e4m3fn"\nsaturate = true\n')
RECIPROCAL = kernel('operand = "bf16"\n[normalise]\ndivision = "reciprocal"\n'
                    "reciprocal_flush_to_zero = true\nreciprocal_exact_at_powers_of_two = true\n")
ZERO_KEYS = kernel('operand = "bf16"\n[tiles]\nkeys = 8\npadding = "zero-keys"\n')
MASKED = kernel('operand = "bf16"\n[tiles]\nkeys = 8\npadding = "masked"\n')
BF16_MU = kernel('operand = "bf16"\n[stabilizer]\nstore = "bf16"\nround_up = false\n')
BF16_EXPONENT = kernel('[exponent]\nformat = "bf16"\n[exp2]\nflush_to_zero = true\n')
BF16_NORM = kernel('operand = "bf16"\n[exp2]\nflush_to_zero = true\n'
                   '[stabilizer]\nnorm = "bf16"\n')
FLUSHING_PRODUCTS = kernel('operand = "bf16"\n[numerator]\nflush_to_zero = true\n'
                           "rounded_products = true\n")
NO_RECIPROCAL = kernel('operand = "bf16"\n[normalise]\ndivision = "reciprocal"\n'
                       'reciprocal_max_error_ulps = "2^23"\n')
NO_EXP2 = kernel('operand = "bf16"\n[exp2]\nunit = "ulp:8388608"\n')
FINITE_MASK = kernel('[score]\nscale_before_store = false\n[mask]\nvalue = "-110"\n')
MERGED = kernel('[split]\nparts = 2\nmerge = "lse"\nreads = "2"\n[lse]\nbase = "e"\n')
UNFUSED = kernel('[score]\nscale_before_store = false\n')

FP16_STORE = kernel('operand = "fp16"\n[score]\nstore = "fp16"\n')
SEQUENTIAL_SUM = kernel('[denominator]\naccumulator = "bf16"\norder = "sequential"\n')
ADDITIVE = kernel('operand = "bf16"\n[mask]\nform = "additive"\n'
                  '[tiles]\nkeys = 8\npadding = "masked"\n')

MANY_ROWS = shapes("96x16x4x1", "80x12x2x1", "72x8x2x1")
ONE_ROW = shapes("1x8x2x1", "1x16x2x1", "1x16x4x2", "1x64x2x1")
CLAIM = objectives("claim")
LOSES = objectives("lost-mass", "claim")

HUNTS = {
    # bounds
    "norm-to-nearest": [Hunt("clis", PLAIN, CLAIM + ONE_ROW)],
    "norm-sum-to-nearest": [Hunt("clis", PLAIN, CLAIM + ONE_ROW)],
    "G-at-least-one-dropped": [Hunt("clis-alg1", FLUSHING)],
    "G-floor-for-ceil": [Hunt("clis-alg1", FLUSHING)],
    "any-order-k-beyond-2^p": [Hunt("online", BF16_SUM, objectives("claim", "inaccurate")
                                    + ["--tolerance", "2^-9"] + shapes("1x259x2x1", "1x261x1x1"))],
    "any-order-no-end": [Hunt("online", BF16_SUM, CLAIM + shapes("1x66000x1x1"))],
    "lost-mass-without-ln2": [Hunt("clis", FLUSHING, LOSES)],
    "lost-mass-second-e": [Hunt("clis", FLUSHING, LOSES)],
    "exp2-flush-ignored": [Hunt("clis", FLUSHING)],
    "weight-flush-ignored": [Hunt("clis", kernel("[p]\nflush_to_zero = true\n"))],
    "comparison-reversed": [Hunt("fixed-m", BF16_FLUSHING)],
    "box-of-the-last-key": [Hunt("fixed-m", PLAIN, MANY_ROWS)],
    "box-lower-end": [Hunt("fixed-m", PLAIN, MANY_ROWS)],
    "block-radius-rounded-down": [Hunt("fixed-m", PLAIN, CLAIM + MANY_ROWS)],
    "last-block-not-seen": [Hunt("fixed-m", PLAIN, MANY_ROWS)],
    "ball-radius-rounded-down": [Hunt("fixed-m", PLAIN, CLAIM + MANY_ROWS)],
    "ball-of-its-core-set": [Hunt("fixed-m", PLAIN, MANY_ROWS)],
    # policies
    "published-cap-at-most-for-less": [Hunt("clis-alg1", FLUSHING)],
    "published-cap-without-V": [Hunt("clis-alg1", FLUSHING)],
    "sound-gate-without-guard-bits": [Hunt("clis", FLUSHING)],
    "sound-gate-without-score-error": [Hunt("clis", BF16_SCORES, shapes("1x8x34x1", "1x16x34x1"))],
    "kappa-without-score-error": [Hunt("clis", BF16_SCORES, shapes("1x8x34x1", "1x64x33x1"))],
    "gate-comparison-reversed": [Hunt("fixed-m", BF16_FLUSHING)],
    "infinite-gate-accepted": [Hunt("fixed-m", BF16_FLUSHING), Hunt("clis-alg1", FLUSHING)],
    "stored-mu-not-rounded-down": [Hunt("clis", BF16_MU, ONE_ROW)],
    "cap-reciprocal-one-binade-high": [Hunt("clis", RECIPROCAL)],
    "cap-without-V": [Hunt("clis", BF16)],
    "sound-gate-without-denominator-flush": [Hunt("clis", FLUSHING_SUM)],
    # one pass over the head
    "padding-not-counted": [Hunt("clis", ZERO_KEYS), Hunt("fixed-m", ZERO_KEYS)],
    "mean-assumed-zero": [Hunt("clis", BF16_NORM)],
    "mean-of-all-keys": [Hunt("clis", BF16_NORM, shapes("8x8x2x1", "16x16x4x1", "8x16x2x1"))],
    "nan-in-V-not-seen": [Hunt("fixed-m", MASKED)],
    "reciprocal-that-promises-nothing": [
        Hunt("online", NO_RECIPROCAL, CLAIM + ["--reciprocal-choice", "lowest"]),
        Hunt("online", NO_RECIPROCAL, CLAIM + ["--reciprocal-choice", "highest"])],
    "exponentials-that-promise-nothing": [
        Hunt("online", NO_EXP2, CLAIM + ["--exp2-choice", "lowest"]),
        Hunt("online", NO_EXP2, CLAIM + ["--exp2-choice", "random"])],
    # claims
    "margin-without-score-error": [Hunt("clis", BF16_SCORES, shapes("1x8x34x1", "1x16x34x1")),
                                   Hunt("fixed-m", BF16_SCORES, shapes("1x8x34x1", "1x16x34x1"))],
    "exponent-without-score-error": [
        Hunt("clis", BF16_SCORES, CLAIM + shapes("1x8x33x1", "1x16x34x1")),
        Hunt("fixed-m", BF16_SCORES, CLAIM + shapes("1x8x33x1", "1x16x34x1"))],
    "maximum-for-mean": [Hunt("fixed-m", FLUSHING)],
    "tighter-exponent-without-score-error": [
        Hunt("fixed-m", BF16_SCORES, CLAIM + shapes("72x8x33x1", "80x8x34x1"))],
    "ball-without-its-radius": [Hunt("fixed-m", PLAIN, MANY_ROWS)],
    "V-ignored": [Hunt("fixed-m", BF16)],
    "saturation-ignored": [Hunt("fixed-m", FP8)],
    "reciprocal-one-binade-high": [Hunt("clis-alg1", RECIPROCAL)],
    "denominator-flush-ignored": [Hunt("clis-alg1", FLUSHING_SUM)],
    "exponent-of-padding-forgotten": [Hunt("fixed-m", ZERO_KEYS), Hunt("clis-alg1", ZERO_KEYS)],
    # exact evaluation
    "exponent-rounding-dropped": [Hunt("fixed-m", BF16_EXPONENT, LOSES)],
    "saturated-mass-kept": [Hunt("fixed-m", FP8)],
    "flush-threshold-without-rounding": [Hunt("fixed-m", FLUSHING), Hunt("fixed-m", PLAIN)],
    # masks, biases, softcaps, sinks
    "softcap-mean-of-scores": [Hunt("clis", FLUSHING)],
    "far-keys-in-the-mass": [Hunt("clis", FLUSHING)],
    "hidden-keys-in-the-mean": [Hunt("clis", FLUSHING)],
    "cap-ignores-sink": [Hunt("clis", FLUSHING)],
    # tested ranges, maxima that stay behind, stand-ins, merges
    "range-without-phi": [Hunt("fdpp", FLUSHING, ["--set", "phi=5"])],
    "lag-without-threshold": [Hunt("fa4", BF16, ["--set", "threshold=8"])],
    "offset-of-fp8-forgotten": [Hunt("fa4", FP8, ["--set", "threshold=4", "--set", "offset=8"])],
    "wave-never-falls": [Hunt("fa4", UNFUSED, ["--set", "wave=16", "--set", "threshold=8"]
                              + shapes("4x16x4x2", "16x32x8x4"))],
    "hidden-keys-two-bits-nearer": [Hunt("online", FINITE_MASK)],
    "initial-maximum-ignored": [Hunt("online", UNFUSED, ["--set", "initial_max=-5e4"])],
    "base-of-merged-lse-ignored": [Hunt("online", MERGED, objectives("inaccurate", "claim"))],
    # passes at memory speed
    "pass-norm-without-error": [Hunt("clis", PLAIN, CLAIM + ONE_ROW)],
    "pass-mean-without-error": [Hunt("clis", FLUSHING, CLAIM + ONE_ROW)],
    "pass-prefix-without-error": [Hunt("clis", FLUSHING, CLAIM + shapes("8x8x2x1"))],
    "plain-rows-exponent-of-the-first": [Hunt("fixed-m", PLAIN, CLAIM + shapes("4x8x2x1", "8x8x4x1"))],
    "plain-rows-mu-of-the-first": [Hunt("fixed-m", PLAIN, CLAIM + shapes("4x8x2x1", "8x8x4x1"))],
    "pass-key-sums-without-error": [Hunt("clis", BF16_FLUSHING, CLAIM + ONE_ROW)],
    "pass-centred-sum-without-error": [Hunt("clis", kernel("", "tpu7x"), CLAIM + ONE_ROW)],
    "pass-first-candidate-only": [Hunt("clis", BF16, CLAIM + ONE_ROW)],
    "branch-and-bound-stops-early": [Hunt("fixed-m", FLUSHING)],
    "product-flush-over-the-largest-of-the-head": [
        Hunt("clis", FLUSHING_PRODUCTS, ["--tolerance", "2^-5"] + shapes("8x8x2x1", "16x16x4x1"))],
    "row-values-of-the-first-row": [
        Hunt("clis", FLUSHING_PRODUCTS, ["--tolerance", "2^-5"] + shapes("8x8x2x1", "16x16x4x1"))],
    "flushed-row-over-the-largest-of-the-head": [
        Hunt("fixed-m", FLUSHING_PRODUCTS, ["--tolerance", "2^-5"] + shapes("8x8x2x1", "16x16x4x1"))],
    # executions and keys that nobody sees
    "store-overflows-an-ulp-late": [Hunt("online", FP16_STORE)],
    "sequential-sum-unrounded": [
        Hunt("online", SEQUENTIAL_SUM, CLAIM + shapes("1x300x1x1", "1x520x1x1"))],
    "unseen-keys-of-some-rows": [Hunt("fixed-m", MASKED, shapes("4x16x2x1", "8x24x4x1"))],
    "unseen-keys-under-additive-masks": [
        Hunt("fixed-m", ADDITIVE, shapes("4x16x2x1", "8x24x4x1"))],
    "unguarded-window": [Hunt("online", UNFUSED, shapes("8x32x2x1", "16x64x4x1"))],
    "softcap-of-any-size": [Hunt("clis", FLUSHING), Hunt("online", PLAIN)],
}

SILENT = {}

REPORTED = "a number that `certify --exact-rows` reports beside its bounds; no claim reads it"
LANES = "what the vector simulation of a matrix unit computes; no bound"
FILE = "memory of files; no bound"
APART = {
    "least-radius-about-the-wrong-centre": REPORTED,
    "exact-maximum-of-hidden-keys": REPORTED,
    "run-across-tiles-forgotten": REPORTED,
    "output-error-without-its-premises": "gives a bound of the output where SAFE fails; such a head is not certified",
    "a-theorem-for-any-verdict": "says of heads that are not certified which theorem is about them",
    "matrix-unit-highest-exponent": LANES,
    "matrix-unit-lowest-exponent": LANES,
    "matrix-unit-sum-of-33-bits": LANES,
    "matrix-unit-subnormal-operands": LANES,
    "pages-dropped-outside-the-mapping": FILE,
    "half-of-the-pages-kept": FILE,
    "split-parts-without-limit": "what a kernel file may say; no bound",
}

# The certifier's sources that read a changed header: compiled anew, all others as they are.
READERS = {
    "reference/real/interval.h": ["certify/policy.cpp"],
    "bounds/sequential_sum.h": ["certify/row_execution.cpp"],
    "reference/model/passes/pass_loops.h": [
        f"reference/model/passes/passes_{of}.cpp"
        for of in ("portable", "avx2", "avx512", "avx512_bf16")],
    "certify/policy_parameters.h": ["certify/lazy_frames.cpp", "certify/online_path.cpp",
                                    "certify/path_head.cpp", "certify/path_rows.cpp"],
}
