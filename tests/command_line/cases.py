"""The table of command-line cases. One entry: case(name, arguments, exit code, expectations).

Paths are relative to the root of the source tree; "{tmp}" is an empty folder of the case's own.
Checked for every case, without being written here:
  * no ANSI sequence on stdout or stderr (neither is a terminal);
  * exit code 2: nothing on stdout, exactly one line on stderr, and it starts with "headroom: ";
  * any other exit code: nothing on stderr.
Expectations, all optional:
  out      stdout, whole
  has      strings that stdout holds
  err      a regular expression that the line on stderr matches
  golden   name of a file in golden/ that stdout equals (`run_cases.py --update` writes it: read
           the difference before you commit it)
  json     a function that gets the parsed stdout and returns true
  files    names that exist under {tmp} afterwards, and no others
"""

CASES = []


def case(name, arguments, code, **expectations):
    unknown = set(expectations) - {"out", "has", "err", "golden", "json", "files"}
    assert not unknown, f"case {name}: unknown expectations {unknown}"
    assert all(other["name"] != name for other in CASES), f"two cases named {name}"
    CASES.append({"name": name, "arguments": arguments, "code": code, **expectations})


def values(*path):
    """A function that lists what stands at a path of keys, where "*" is every item of a list."""
    def follow(value):
        found = [value]
        for key in path:
            found = [item for one in found for item in (one if key == "*" else [one[key]])]
        return found
    return follow


# The program itself.
case("version", ["--version"], 0, out="0.1.0\n")
case("help", ["--help"], 0, has=["certify", "limits", "Exit codes"])
case("no-subcommand", [], 2, err=r"subcommand.*--help")
case("empty-subcommand", [""], 2, err=r"''.*certify.*limits")
case("unknown-subcommand", ["divine"], 2, err=r"'divine'.*certify.*limits")
case("unknown-subcommand-help", ["divine", "--help"], 2, err=r"'divine'.*certify.*limits")
case("unknown-option", ["--frobnicate"], 2, err=r"frobnicate|subcommand")
case("subcommand-unknown-option", ["limits", "--frobnicate"], 2, err=r"frobnicate")
case("line-feed-in-an-option", ["limits", "--frob\nnicate"], 2, err=r"frob\\x0anicate")
case("escape-in-a-subcommand", ["\x1b[32mok"], 2, err=r"\\x1b\[32mok")

# limits. Overflow thresholds: log2 of the midpoint above the largest finite value, computed in
# 40-digit decimal arithmetic from the formats' definitions (IEEE 754-2019 table 3.5; OCP 8-bit formats 1.0).
#   fp16 log2(65520), bf16 128 + log2(1 - 2^-9), fp32 128 + log2(1 - 2^-25), e4m3fn log2(464)
case("limits", ["limits"], 0, has=["fp16", "bf16", "fp32", "e4m3fn", "e5m2"])
case("limits-json", ["limits", "--json"], 0,
     json=lambda value: values("formats", "*", "format")(value)
     == ["fp64", "fp32", "tf32", "fp16", "bf16", "e4m3fn", "e5m2", "e2m1"])
case("limits-fp16", ["limits", "--format", "fp16"], 0, has=["x >= 15.9996477365", "x > -25"])
case("limits-bf16", ["limits", "--format", "bf16"], 0, has=["x >= 127.9971794809", "x > -134"])
case("limits-fp32", ["limits", "--format", "fp32"], 0, has=["x >= 127.9999999570", "x > -150"])
case("limits-e4m3fn", ["limits", "--format", "e4m3fn"], 0, has=["x > 8.8579809951", "x > -10"])
# 127 - ceil(log2 75600) - 3 = 107 as published, 127 - floor(log2 75600) - 3 = 108 tight.
case("limits-stabilizer-exponent",
     ["limits", "--format", "fp32", "--keys", "75600", "--value-exponent", "3", "--json"], 0,
     json=lambda value: [(one["published"], one["tight"]) for one in
                         values("formats", "*", "accumulator", "*")(value)] == [(107, 108)])
case("limits-bad-format", ["limits", "--format", "fp12"], 2, err=r"fp12.*fp16")
case("limits-format-without-value", ["limits", "--format"], 2, err=r"--format")
case("limits-no-keys", ["limits", "--keys", "0"], 2,
     err=r"^headroom: --keys: found '0', expected an integer from 1 \(see --help\)$")
case("limits-negative-keys", ["limits", "--keys", "-4"], 2, err=r"--keys")
case("limits-keys-not-a-number", ["limits", "--keys", "many"], 2, err=r"--keys.*many")

# certify
ROPE = "examples/heads/ropegpt_layer1_bf16.safetensors"
TOY = "examples/heads/toydit_layer2_f16.safetensors"
FA3_HALF = "examples/kernels/flash-attention-3-fp16.toml"
ONE_SIDED = ["certify", "examples/heads/one_sided_gate_bf16.safetensors", "--kernel",
             "examples/kernels/one-sided.toml", "--scale-log2", "1"]


def certify(name, arguments, code, **expectations):
    case("certify-" + name, ["certify", *arguments], code, **expectations)


certify("no-arguments", [], 2)
certify("no-such-file", ["no/such.safetensors", "--kernel", "hopper"], 2,
        err=r"no/such\.safetensors")
certify("no-kernel", [ROPE], 2, err=r"--kernel is required")
# exit codes: 0 all certified, 1 refuted or fallback, 3 undecided
certify("certified", [ROPE, "--kernel", "hopper"], 0,
        has=["4 certified, 0 fallback, 0 undecided, 0 refuted", "scale 0.125 (metadata), mask "
             "causal (metadata): 4 heads", "assumed:", "layer1.3"])
certify("fallback", [ROPE, "--kernel", "hopper", "--policy", "fixed-m", "--scale", "8"], 1,
        has=["0 certified, 4 fallback, 0 undecided, 0 refuted", "scale 8 (option)"])
certify("fallback-accepted", [ROPE, "--kernel", "hopper", "--policy", "fixed-m", "--scale", "8",
                              "--accept-fallback"], 0, has=["4 fallback"])
# the head of example E: 20.9 % of the mass is lost behind the one-sided gate of 232 at C = 107
case("certify-refuted", [*ONE_SIDED, "--policy", "fixed-m-n"], 1,
     has=["refuted", "mass.lost", "0 certified, 0 fallback, 0 undecided, 1 refuted"])
case("certify-refuted-is-not-accepted", [*ONE_SIDED, "--policy", "fixed-m-n", "--accept-fallback"],
     1, has=["1 refuted"])
case("certify-refuted-json", [*ONE_SIDED, "--policy", "fixed-m-n", "--json"], 1,
     json=lambda value: value["exit_code"] == 1 and value["heads"][0]["verdict"] == "refuted"
     and value["heads"][0]["head"]["scale"] == "log2:1"
     and any(claim["id"] == "mass.lost" and claim["outcome"] == "fails"
             and abs(float.fromhex(claim["value"][0]) - 0.209) < 1e-3
             for claim in value["heads"][0]["claims"]))
case("certify-sound-gate", [*ONE_SIDED], 0, has=["1 certified", "gate.conservative"])
certify("undecided", [TOY, "--kernel", "hopper", "--cast", "rne", "--max-error", "0.000001"], 3,
        has=["2 undecided", "output.error", "cast to bf16 (rne)"])
certify("max-error", [TOY, "--kernel", "hopper", "--cast", "rne", "--max-error", "1/8"], 0,
        has=["2 certified"])
# what enters the softmax besides Q, K, V
certify("window", [ROPE, "--kernel", "hopper", "--window", "64,0", "--sink", "3/2"], 0,
        has=["4 certified", "window 64,0, sink 1.5: 4 heads"])
certify("segments", [ROPE, "--kernel", "hopper", "--segments", "1000,24", "--json"], 0,
        json=lambda value: all(len(head["head"]["modifiers"]["segments"]["key_sha256"]) == 64
                               for head in value["heads"]))
certify("plain-head-has-no-modifiers", [ROPE, "--kernel", "hopper", "--json"], 0,
        json=lambda value: all("modifiers" not in head["head"] for head in value["heads"]))
certify("softcap", [ROPE, "--kernel", "hopper", "--softcap", "50"], 0,
        has=["4 certified", "softcap 50: 4 heads", "softcap.tanh"])
certify("softcap-centred", [ROPE, "--kernel", "tpu7x", "--softcap", "50"], 3,
        has=["undecided: no bound covers a softcap beside centred keys"])
certify("softcap-negative", [ROPE, "--kernel", "hopper", "--softcap", "-3"], 2,
        err=r"layer1\.0: softcap -3, expected > 0")
# a cap that FP32 holds as 0 or as a subnormal number divides a score of 0 by nothing
for cap in ("1e-39", "1e-60", "1e39"):
    certify(f"softcap-{cap}", [ROPE, "--kernel", "hopper", "--softcap", cap], 3,
            has=["undecided: no bound covers a softcap that FP32 cannot hold"])
# a shell variable that was not set
for option in ("--window", "--segments", "--bias", "--mask-tensor", "--softcap", "--sink"):
    certify(f"empty{option}", [ROPE, "--kernel", "hopper", option, ""], 2, err=option)
for bad in ("-2,0", "0,-5"):
    certify(f"window-{bad}", [ROPE, "--kernel", "hopper", f"--window={bad}"], 2,
            err=r"--window: found '.*', expected numbers of at least -1")
certify("bias-missing", [ROPE, "--kernel", "hopper", "--bias", "nothere"], 2,
        err=r"tensor layer1\.nothere: not found")
certify("segments-too-short", [ROPE, "--kernel", "hopper", "--segments", "100,156"], 2,
        err=r"--segments: lengths '100,156' add to 256, expected 1024")
# the worst verdict decides: heads of different files
certify("several-files", [ROPE, "examples/heads/one_sided_gate_bf16.safetensors", "--kernel",
                          "examples/kernels/one-sided.toml", "--scale-log2", "1", "--policy",
                          "fixed-m-n", "--mask", "none"], 1, has=["1 refuted"])
certify("default-scale", ["examples/heads/one_sided_gate_bf16.safetensors", "--kernel",
                          "examples/kernels/one-sided.toml"], 0,
        has=["scale 1/sqrt(3) (default)"])
certify("online", [ROPE, "--kernel", "hopper", "--policy", "online"], 0, has=["4 certified"])
certify("claims", [ROPE, "--kernel", "hopper", "--heads", "layer1:2", "--claims"], 0,
        has=["1 certified", "layer1.2", "exponent.upper", "l.nonzero", "mass.lost",
             "reported", "lse.error"])
# bounds of the scores: five slacks of two numbers, both at least 0, the larger one second
certify("bounds", [ROPE, "--kernel", "hopper", "--heads", "layer1:2", "--bounds"], 0,
        has=["1 certified", "(rows sample:64)", "cauchy-schwarz", "ball/least"])
certify("exact-max-json", [ROPE, "--kernel", "hopper", "--heads", "layer1:1-2", "--json",
                           "--exact-max", "rows=all"], 0,
        json=lambda value: all(
            head["bounds"]["evaluated"] == head["head"]["queries"] == len(head["bounds"]["maxima"])
            and all(0 <= float.fromhex(slack["median"]) <= float.fromhex(slack["largest"])
                    for slack in head["bounds"]["slack"].values())
            and all(float.fromhex(row["largest"][0]) <= min(
                        float.fromhex(row[bound])
                        for bound in ("norms", "cauchy-schwarz", "ball", "box", "blocks"))
                    for row in head["bounds"]["maxima"])
            for head in value["heads"]))
for bad in ("rows=some", "rows=sample:0", "sample:-3", "rows=sample:2x"):
    certify(f"exact-max-{bad}", [ROPE, "--kernel", "hopper", "--exact-max", bad], 2,
            err=r"--exact-max: found '.*', expected rows=all or rows=sample:K")
certify("exact-max-empty", [ROPE, "--kernel", "hopper", "--exact-max="], 2, err=r"--exact-max")
certify("json", [ROPE, "--kernel", "hopper", "--json"], 0,
        json=lambda value: value["schema"] == "headroom-certify/1" and value["exit_code"] == 0
        and values("heads", "*", "verdict")(value) == ["certified"] * 4
        and values("heads", "*", "head", "query_head")(value) == [0, 1, 2, 3]
        and values("heads", "*", "schema")(value) == ["headroom-certificate/1"] * 4
        and values("heads", "*", "scale_source")(value) == ["metadata"] * 4)
certify("certificates", [ROPE, "--kernel", "hopper", "--heads", "layer1.*:0,2-3", "--certificates",
                         "{tmp}/new/folder"], 0,
        files=[f"new/folder/ropegpt_layer1_bf16:layer1.{head}.json" for head in (0, 2, 3)])
certify("certificates-of-refuted-heads", [*ONE_SIDED[1:], "--policy", "fixed-m-n",
                                          "--certificates", "{tmp}"], 1,
        files=["one_sided_gate_bf16:0.json"])
certify("certificates-into-a-file", [ROPE, "--kernel", "hopper", "--certificates", ROPE], 2,
        err=r"--certificates .*cannot make this folder")
certify("heads-list", [ROPE, "--kernel", "hopper", "--heads", "layer1:0,2"], 0,
        has=["2 certified", "layer1.0", "layer1.2"])
certify("heads-glob", [ROPE, "--kernel", "hopper", "--heads", "lay*"], 0, has=["4 certified"])
certify("heads-no-match", [ROPE, "--kernel", "hopper", "--heads", "encoder*"], 2,
        err=r"--heads 'encoder\*'.*layer1\.")
certify("heads-no-such-head", [ROPE, "--kernel", "hopper", "--heads", "layer1:7"], 2,
        err=r"head 7.*0 to 3")
certify("heads-bad-list", [ROPE, "--kernel", "hopper", "--heads", "layer1:x"], 2, err=r"--heads")
certify("names-no-match", [ROPE, "--kernel", "hopper", "--q", "query"], 2, err=r"layer1\.")
certify("kernel-file", [ROPE, "--kernel", "examples/kernels/hopper-tiled.toml", "--heads",
                        "layer1:0"], 0, has=["1 certified"])
certify("unknown-kernel", [ROPE, "--kernel", "volta"], 2, err=r"volta.*tpu7x.*hopper.*cdna3")
for machine in ("ampere", "ada", "blackwell", "cdna3", "cpu-avx512-bf16", "hopper:gradual",
                "cpu-avx512-bf16:gradual", "tpu7x:ftz"):
    certify(f"preset-{machine}", [ROPE, "--kernel", machine, "--heads", "layer1:0"], 0,
            has=["1 certified", f"kernel {machine} (machine {machine.split(':')[0]})"])
certify("preset-reading-unknown", [ROPE, "--kernel", "hopper:flush"], 2, err=r"hopper:flush")
certify("kernel-is-a-folder", [ROPE, "--kernel", "examples"], 2, err=r"examples")
certify("kernel-is-no-kernel", [ROPE, "--kernel", "examples/heads/README.md"], 2,
        err=r"examples/heads/README\.md:\d+:\d+: ")
certify("unknown-policy", [ROPE, "--kernel", "hopper", "--policy", "CLIS"], 2,
        err=r"--policy.*'CLIS'.*clis, clis-alg1, fixed-m, fixed-m-n, fdpp, fa4, online")
certify("fa4", [ROPE, "--kernel", "hopper", "--policy", "fa4"], 0, has=["4 certified"])
certify("fdpp-rows-leave", [TOY, "--kernel", FA3_HALF, "--policy", "fdpp", "--set", "a=-5", "--set",
                            "b=5"], 1, has=["0 certified, 2 fallback", "rows leave the range"])
certify("fdpp-rows-stay", [TOY, "--kernel", "ieee-fp32", "--cast", "rne", "--policy", "fdpp"], 0,
        has=["2 certified"])
certify("fdpp-json", [TOY, "--kernel", FA3_HALF, "--policy", "fdpp", "--set", "b=1/2", "--heads",
                      "*:0", "--json"], 1,
        json=lambda value: float.fromhex(value["heads"][0]["parameters"]["b"]) == 0.5
        and value["heads"][0]["gate"]["rows"]["leave"] > 0)
certify("set-unknown", [ROPE, "--kernel", "hopper", "--policy", "fa4", "--set", "phi=1"], 2,
        err=r'policy fa4: found parameter "phi", expected one of offset, running_max, threshold, wave')
certify("set-without-rule", [ROPE, "--kernel", "hopper", "--set", "phi=1"], 2,
        err=r'policy clis: found parameter "phi", expected none')
# One name=value an option: the second of `--set a=1 b=2` would be a file.
SETS = ["--set", "a=-inf", "b=inf"]
certify("set-takes-one", [TOY, "--kernel", FA3_HALF, "--policy", "fdpp", *SETS], 2,
        err=r"found 'b=inf' among the files, expected --set b=inf: .* repeated")
certify("set-before-the-files", ["--policy", "fdpp", "--set", "a=9", "--set", "b=9", TOY, "--kernel",
                                 "hopper"], 2, err=r"expected less than b = 9")
case("simulate-set-takes-one", ["simulate", TOY, "--kernel", FA3_HALF, "--stabilizer", "fdpp", *SETS], 2,
     err=r"found 'b=inf' among the files, expected --set b=inf: .* repeated")
for command in ("certify", "simulate"):
    case(f"{command}-set-help", [command, "--help"], 0, has=["One NAME=X"])
# exponent.defined stands for two claims here: that of |mu| (limit 128) holds; the other is open, 0 or
# 1 where the limit is 0, as a negative factor meets hidden scores of -inf. No row is run.
certify("binding-claim-of-an-id-of-two", [ROPE, "--kernel", "hopper", "--policy", "online", "--scale",
                                          "-0.125", "--heads", "*:0", "--evaluate-rows", "0"], 3,
        has=["undecided", "online softmax: exponent.defined is 1, limit 0\n"])
# a row that is run shows what it does: exp2(+inf)
certify("refuted-by-execution", [ROPE, "--kernel", "hopper", "--policy", "online", "--scale", "-0.125",
                                 "--heads", "*:0"], 1, has=["refuted: an execution fails, online-fa"])
# log2(65504) = 15.9993 and 16.001 would both be printed as 16
certify("digits-that-part-a-claim-from-its-limit",
        [TOY, "--kernel", FA3_HALF, "--policy", "fdpp", "--set", "a=-inf", "--set", "b=inf", "--set",
         "phi=2.68237", "--heads", "*:0", "--evaluate-rows", "0"], 3, has=["p.range is 16.00", ", limit 15.999, row"])
certify("fdpp-one-row-leaves", [TOY, "--kernel", FA3_HALF, "--policy", "fdpp", "--set", "b=10.78125",
                                "--heads", "*:0"], 1, has=["1 row leaves the range, "])
for unknown in ("Hopper", "hopper:FTZ"):
    certify(f"preset-{unknown}", [ROPE, "--kernel", unknown], 2,
            err=r"hopper.*each also with :ftz or :gradual")
certify("set-malformed", [ROPE, "--kernel", "hopper", "--policy", "fdpp", "--set", "phi"], 2,
        err=r"--set: found 'phi', expected name=value")
certify("initial-max-above-the-scores", [ROPE, "--kernel", "hopper", "--policy", "online", "--set",
                                         "initial_max=1000"], 1,
        has=["4 refuted", "stabilizer.stored"])
certify("initial-max-below-them", [ROPE, "--kernel", "hopper", "--policy", "online", "--set",
                                   "initial_max=-1000000"], 0, has=["4 certified"])
certify("set-empty-range", [ROPE, "--kernel", "hopper", "--policy", "fdpp", "--set", "a=9", "--set",
                            "b=9"], 2, err=r"policy fdpp: a: found 9, expected less than b = 9")
for bad in ("0", "-0.5", "nan", "inf", "abc", "", "1e-99999"):
    certify(f"eps-{bad or 'empty'}", [ROPE, "--kernel", "hopper", f"--eps={bad}"], 2, err=r"--eps")
certify("eps-exact", [ROPE, "--kernel", "hopper", "--eps", "2^-20", "--heads", "layer1:0"], 0,
        has=["eps 2^-20"])
certify("bad-max-error", [ROPE, "--kernel", "hopper", "--max-error", "-1"], 2, err=r"--max-error")
certify("bad-scale", [ROPE, "--kernel", "hopper", "--scale", "nan"], 2, err=r"scale.*nan")
certify("two-scales", [ROPE, "--kernel", "hopper", "--scale", "1", "--scale-log2", "1"], 2,
        err=r"--scale")
certify("unknown-mask", [ROPE, "--kernel", "hopper", "--mask", "diagonal"], 2,
        err=r"'diagonal'.*causal-bottom-right")
certify("layout-of-rank-3", [ROPE, "--kernel", "hopper", "--layout", "sideways"], 2,
        err=r"layout.*sideways")
certify("cast-required", [TOY, "--kernel", "hopper"], 2,
        err=r"layer2\.q.*fp16.*bf16.*--cast rne")
certify("unknown-cast", [TOY, "--kernel", "hopper", "--cast", "up"], 2, err=r"--cast.*'up'.*rne")
certify("lengths", [ROPE, "--kernel", "hopper", "--lengths", "100", "--heads", "layer1:0", "--json"],
        0, json=lambda value: values("heads", "*", "head", "length")(value) == [100]
        and values("heads", "*", "values", "most_visible")(value) == [100])
certify("lengths-too-long", [ROPE, "--kernel", "hopper", "--lengths", "1025"], 2,
        err=r"--lengths.*1025.*1024")
certify("lengths-negative", [ROPE, "--kernel", "hopper", "--lengths", "-1"], 2, err=r"lengths")
certify("folder-for-file", ["examples/heads", "--kernel", "hopper"], 2, err=r"is a directory")
certify("no-tensors", ["examples/heads/README.md", "--kernel", "hopper"], 2, err=r"README\.md")
certify("two-npy", ["q.npy", "k.npy", "--kernel", "hopper"], 2, err=r"three \.npy files: Q, K and V")
certify("four-npy", ["q.npy", "k.npy", "v.npy", "w.npy", "--kernel", "hopper"], 2, err=r"three")
certify("npy-and-safetensors", ["q.npy", "k.npy", ROPE, "--kernel", "hopper"], 2, err=r"three")
certify("missing-npy", ["q.npy", "k.npy", "v.npy", "--kernel", "ieee-fp32"], 2, err=r"q\.npy")
certify("bad-rows", [ROPE, "--kernel", "hopper", "--evaluate-rows", "-1"], 2,
        err=r"--evaluate-rows")
certify("bad-threads", [ROPE, "--kernel", "hopper", "--threads", "many"], 2, err=r"--threads")
certify("one-thread", [ROPE, "--kernel", "hopper", "--threads", "1", "--evaluate-rows", "0"], 0,
        has=["4 certified"])
certify("line-feed-in-a-name", ["no\nsuch", "--kernel", "hopper"], 2, err=r"no\\x0asuch")

# reference: options, refusals and counts on the example heads. The values themselves, from file to
# file, are checked by tests/unit/ladder/program_test.py.
REFERENCE_OUT = ["-o", "{tmp}/o.safetensors"]


def reference(name, arguments, code, **expectations):
    case("reference-" + name, ["reference", *arguments], code, **expectations)


def decided(value, part, head=0):
    """(elements, decided by doubles, undecided) of one head."""
    counts = value["heads"][head]["decided_by"][part]
    return sum(counts.values()), counts["vector"], counts["undecided"]


reference("no-arguments", [], 2)
reference("no-output", [ROPE, "--format", "bf16"], 2, err=r"--output is required")
reference("no-format", [ROPE, *REFERENCE_OUT], 2, err=r"--format is required", files=[])
reference("bad-format", [ROPE, "--format", "fp12", *REFERENCE_OUT], 2,
          err=r"--format.*'fp12'.*fp64, fp32", files=[])
reference("bad-lse-format", [ROPE, "--format", "fp32", "--lse-format", "x", *REFERENCE_OUT], 2,
          err=r"--lse-format.*'x'", files=[])
reference("bad-lse-base", [ROPE, "--format", "fp32", "--lse-base", "10", *REFERENCE_OUT], 2,
          err=r"--lse-base.*'10'.*e or 2", files=[])
reference("bad-rounding", [ROPE, "--format", "fp32", "--rounding", "up", *REFERENCE_OUT], 2,
          err=r"--rounding.*'up'.*rne, rz, ru or rd", files=[])
for bad in ("1024", "-1", "5-2", "a", "0-", "1,,2"):
    reference(f"rows-{bad}", [ROPE, "--format", "fp32", f"--rows={bad}", *REFERENCE_OUT], 2,
              err=r"--rows", files=[])
for bad in ("0", "-3", "many"):
    reference(f"sample-rows-{bad}",
              [ROPE, "--format", "fp32", f"--sample-rows={bad}", *REFERENCE_OUT], 2,
              err=r"--sample-rows", files=[])
reference("rows-and-sample-rows",
          [ROPE, "--format", "fp32", "--rows", "1", "--sample-rows", "1", *REFERENCE_OUT], 2,
          err=r"--rows", files=[])
reference("seed-without-sample", [ROPE, "--format", "fp32", "--seed", "1", *REFERENCE_OUT], 2,
          err=r"--seed", files=[])
reference("missing-folder",
          [ROPE, "--format", "fp32", "--rows", "0", "-o", "{tmp}/no/such/o.safetensors"], 2,
          err=r"no/such/o\.safetensors", files=[])
reference("output-is-no-tensor-file", [ROPE, "--format", "fp32", "-o", "{tmp}/o.txt"], 2,
          err=r"o\.txt.*\.safetensors or \.npy", files=[])
reference("npy-names-leave-the-prefix-out",
          [ROPE, "--format", "fp32", "--rows", "0", "--heads", "layer1:0", "-o", "{tmp}/o.npy"], 0,
          has=["written to"], files=["o.npy", "o.lse.npy"])
reference("npy-cannot-name-bf16", [ROPE, "--format", "bf16", "--rows", "0", "--heads", "layer1:0",
                                   "-o", "{tmp}/o.npy"], 2, err=r"bf16.*\.npy", files=[])
reference("table", [ROPE, "--format", "bf16", "--rows", "0-15", *REFERENCE_OUT], 0,
          files=["o.safetensors"], has=["double-double", "undecided", "layer1.0", "layer1.3",
                                        "scale 0.125 (metadata), mask causal (metadata): 4 heads"])
# 4 heads of 64 channels: each element is decided once, and nearly all in doubles
reference("json", [ROPE, "--format", "bf16", "--sample-rows", "5", "--seed", "3", "--json",
                   *REFERENCE_OUT], 0, files=["o.safetensors"],
          json=lambda value: value["schema"] == "headroom-reference-1" and value["exit_code"] == 0
          and value["format"] == value["lse_format"] == "bf16" and value["rounding"] == "rne"
          and len(value["heads"]) == 4
          and all(decided(value, "o", head)[0] == 5 * value["heads"][head]["channels"]
                  and decided(value, "lse", head)[0] == 5
                  and decided(value, "o", head)[1] >= 0.9 * decided(value, "o", head)[0]
                  and decided(value, "o", head)[2] == 0 for head in range(4)))
reference("json-of-enclosures", [ROPE, "--format", "fp32", "--enclosure", "--rows", "7", "--json",
                                 *REFERENCE_OUT], 0, files=["o.safetensors"],
          json=lambda value: value["enclosure"] and value["rounding"] == "outward")
reference("kernel", [ROPE, "--format", "fp32", "--kernel", "hopper", "--rows", "0-3", "--json",
                     *REFERENCE_OUT], 0, files=["o.safetensors"],
          json=lambda value: value["reference"] == "multiplied operands of kernel hopper")
reference("cast-without-kernel", [TOY, "--format", "fp32", "--cast", "rne", *REFERENCE_OUT], 2,
          err=r"--cast.*--kernel", files=[])
reference("unknown-kernel", [ROPE, "--format", "fp32", "--kernel", "volta", *REFERENCE_OUT], 2,
          err=r"volta", files=[])
for bad in ("5", "1,2,3", "a,b"):
    reference(f"window-{bad}", [ROPE, "--format", "fp32", f"--window={bad}", *REFERENCE_OUT], 2,
              err=r"--window", files=[])
for bad in ("0", "-2", "x"):
    reference(f"softcap-{bad}", [ROPE, "--format", "fp32", f"--softcap={bad}", *REFERENCE_OUT], 2,
              err=r"softcap", files=[])
reference("no-such-bias", [ROPE, "--format", "fp32", "--bias", "alibi", *REFERENCE_OUT], 2,
          err=r"tensor layer1\.alibi.*not found", files=[])
reference("no-such-mask", [ROPE, "--format", "fp32", "--mask-tensor", "keep", *REFERENCE_OUT], 2,
          err=r"tensor layer1\.keep.*not found", files=[])
reference("bad-sink", [ROPE, "--format", "fp32", "--sink", "drain", *REFERENCE_OUT], 2,
          err=r"--sink.*'drain'", files=[])
reference("segments-too-short", [ROPE, "--format", "fp32", "--segments", "5,6", *REFERENCE_OUT], 2,
          err=r"--segments.*11.*1024", files=[])
reference("no-such-file", ["no/such.safetensors", "--format", "fp32", *REFERENCE_OUT], 2,
          err=r"no/such\.safetensors", files=[])

# Certificates are named by ids: two heads of one id must not overwrite each other's.
case("certify-equal-ids",
     ["certify", "examples/heads/one_sided_gate_bf16.safetensors",
      "examples/heads/one_sided_gate_bf16.safetensors", "--kernel",
      "examples/kernels/one-sided.toml", "--scale-log2", "1", "--certificates", "{tmp}/out"], 2,
     err=r"one_sided_gate_bf16:0")
case("certify-eps-above-one",
     ["certify", "examples/heads/one_sided_gate_bf16.safetensors", "--kernel", "hopper", "--eps",
      "2"], 2, err=r"--eps.*below 1")
case("certify-certificates-nowhere",
     ["certify", "examples/heads/one_sided_gate_bf16.safetensors", "--kernel", "hopper",
      "--certificates", ""], 2, err=r"--certificates.*folder")

# simulate. What a kernel gives bit for bit is tested where the engine is; here: options, refusals,
# files, exit codes, and case E, whose kernel gives 1.0027 where exact attention gives 0.58195.
SIMULATE = [ROPE, "--kernel", "hopper", "--heads", "layer1:0"]
CASE_E = ["examples/heads/one_sided_gate_bf16.safetensors", "--kernel",
          "examples/kernels/one-sided.toml", "--scale-log2", "1"]


def simulate(name, arguments, code, **expectations):
    case("simulate-" + name, ["simulate", *arguments], code, **expectations)


def errors(value, over="multiplied", head=0):
    return value["heads"][head]["errors"][over]


for flags in (["--list"], ["--stabilizer", "list"]):
    simulate("list" + flags[0], flags, 0,
             has=["online-fa2\n", "fixed-m\n", "fa4-row\n", "cap = 88", "vfa\n", "lazy-wave\n"])
simulate("list-json", ["--list", "--json"], 0,
         json=lambda value: {"online-fa2", "online-fa3", "online-scaled", "online-triton",
                             "online-splash", "online-maxdiffusion", "online-rpa", "clis",
                             "clis-alg1", "fixed-m", "fixed-m-n", "vfa", "vfa-sampled", "fdpp",
                             "fdpp-untested", "fa4-row", "fa4-tile1", "fa4-tile2", "lazy-wave",
                             "static-max", "softcap-max"}
         <= set(values("stabilizers", "*", "name")(value)))
simulate("no-kernel", [ROPE, "--stabilizer", "fa4-row"], 2, err=r"--kernel is required")
simulate("no-stabilizer", [ROPE, "--kernel", "hopper"], 2, err=r"--stabilizer is required")
simulate("no-files", ["--kernel", "hopper", "--stabilizer", "fa4-row"], 2, err=r"found 0 files")
simulate("no-such-file", ["no/such.safetensors", "--kernel", "hopper", "--stabilizer", "fa4-row"],
         2, err=r"no/such\.safetensors")
simulate("unknown-stabilizer", [*SIMULATE, "--stabilizer", "softermax"], 2,
         err=r"softermax.*online-fa2")
simulate("unknown-parameter", [*SIMULATE, "--stabilizer", "fixed-m", "--set", "gap=3"], 2,
         err=r"fixed-m.*gap.*cap")
for bad in ("cap", "=3", "cap=", "cap=many", "cap=nan"):
    simulate(f"set-{bad}", [*SIMULATE, "--stabilizer", "fixed-m", "--set", bad], 2, err=r"--set.*")
simulate("set-twice", [*SIMULATE, "--stabilizer", "fixed-m", "--set", "cap=3", "--set", "cap=4"], 2,
         err=r"--set.*cap.*twice")
for option in ("--order", "--exp2-choice", "--reciprocal-choice"):
    simulate("bad" + option, [*SIMULATE, "--stabilizer", "fa4-row", option, "best"], 2,
             err=option + r".*'best'.*(ascending|nearest)")
for bad in ("1024", "sample:0", "sample:x", "sample:"):
    simulate(f"rows-{bad}", [*SIMULATE, "--stabilizer", "fa4-row", "--rows", bad], 2, err=r"--rows")
simulate("bad-output", [*SIMULATE, "--stabilizer", "fa4-row", "-o", "{tmp}/o.txt"], 2,
         err=r"-o.*o\.txt.*\.safetensors or \.npy", files=[])
simulate("dump-nowhere", [*SIMULATE, "--stabilizer", "fa4-row", "--dump", ""], 2,
         err=r"--dump.*folder")
simulate("dump-into-a-file", [*SIMULATE, "--stabilizer", "fa4-row", "--dump", ROPE], 2,
         err=r"--dump .*cannot make this folder")
simulate("table", [ROPE, "--kernel", "hopper", "--stabilizer", "fa4-row", "--rows", "0-40"], 0,
         has=["takes", "layer1.0", "layer1.3", "of max|v|", "scale 0.125 (metadata), mask causal "
              "(metadata): 4 heads", "kernel hopper (machine hopper), stabilizer fa4-row"])
# BF16 P and O: a fraction of the spacing of BF16 at max |v|, and FP32 sums
simulate("right", [*SIMULATE, "--stabilizer", "online-fa3", "--rows", "sample:40", "--json"], 0,
         json=lambda value: value["schema"] == "headroom-simulate-1" and value["exit_code"] == 0
         and value["heads"][0]["gate"] and value["heads"][0]["events"] == []
         and 0 < errors(value)["relative_to_largest_value"] < 2**-7
         and errors(value)["lse"] < 1e-4)
# every shift is -200 or 400 in natural units: scores of a few tens overflow, and flush
simulate("infinite", [*SIMULATE, "--stabilizer", "static-max", "--set", "estimate=-200", "--rows",
                      "0-9", "--json"], 1,
         json=lambda value: value["heads"][0]["nonfinite"] == 10 and value["heads"][0]["zero"] == 0
         and value["heads"][0]["nonfinite_rows"] == "0-9" and errors(value) is None
         and "infinity" in values("heads", "*", "events", "*", "event")(value))
simulate("zero", [*SIMULATE, "--stabilizer", "static-max", "--set", "estimate=400", "--rows", "0-9"],
         1, has=["first flush: row 0, weight, tile 0, key 0: ", "stabilizer static-max with "
                 "estimate = 400"])
# scores 64 times as large: the gate of 213 refuses, which a kernel would heed
simulate("gate-refuses", [*SIMULATE, "--stabilizer", "fixed-m", "--scale", "8", "--rows", "0-9"], 0,
         has=["refuses", "warning: scale 8 (option)"])
simulate("no-gate", [*SIMULATE, "--stabilizer", "fixed-m", "--scale", "8", "--rows", "0-9",
                     "--no-gate"], 1, has=["refuses"])
simulate("case-e", [*CASE_E, "--stabilizer", "fixed-m-n", "--events", "--json"], 0,
         json=lambda value: abs(errors(value)["absolute"] - (1.0027 - 0.58195)) < 2**-8
         and value["heads"][0]["gate"]
         and value["heads"][0]["events"][0]["event"] == "flush"
         and value["heads"][0]["events"][0]["stage"] == "weight")
simulate("case-e-clis", [*CASE_E, "--stabilizer", "clis", "--json"], 0,
         json=lambda value: errors(value)["absolute"] < 2**-9 and value["heads"][0]["gate"])
simulate("clis-half-given", [*CASE_E, "--stabilizer", "clis", "--set", "cap=100"], 2,
         err=r"--set: found cap without kappa")
simulate("clis-given", [*CASE_E, "--stabilizer", "clis", "--set", "cap=100", "--set",
                       "kappa=0x1p-5"], 0,
         has=["stabilizer clis with cap = 100, kappa = 0.03125"])
simulate("choices", [*SIMULATE, "--stabilizer", "online-fa2", "--rows", "3", "--order", "random",
                     "--exp2-choice", "random", "--seed", "9", "--json"], 0,
         json=lambda value: value["order"] == "random" and value["seed"] == 9
         and value["exp2_choice"] == "random")
simulate("cast", [TOY, "--kernel", "hopper", "--cast", "rne", "--stabilizer", "vfa", "--rows",
                  "sample:9"], 0, has=["cast to bf16 (rne)"])
simulate("problem-options", [*SIMULATE, "--stabilizer", "online-fa2", "--rows", "100-120",
                             "--window", "16,0", "--segments", "110,914", "--json"], 0,
         json=lambda value: errors(value)["relative_to_largest_value"] < 2**-7)
simulate("dump-and-output", [*SIMULATE, "--stabilizer", "fa4-row", "--rows", "7,9", "--dump",
                             "{tmp}/dump", "-o", "{tmp}/o.safetensors"], 0,
         files=["o.safetensors"]
         + [f"dump/ropegpt_layer1_bf16:layer1.0.{name}.npy" for name in (
             "scores", "exponents", "weights", "stored_weights", "shifts", "corrections",
             "denominators", "numerators", "o", "lse", "rows")])
simulate("npy-output-needs-a-type", [*SIMULATE, "--stabilizer", "fa4-row", "--rows", "7", "-o",
                                     "{tmp}/o.npy"], 2, err=r"bf16.*\.npy", files=[])
# an offset that is no whole number of log2 units is not a power of two in l
for offset in ("8", "-3", "0.8"):
    simulate("lse-of-an-offset-" + offset,
             [*SIMULATE, "--stabilizer", "fa4-row", "--set", "offset=" + offset, "--rows", "0-9",
              "--json"], 0, json=lambda value: errors(value)["lse"] < 1e-5)
for offset in ("inf", "1e300"):
    simulate("offset-too-large-" + offset,
             [*SIMULATE, "--stabilizer", "online-fa3", "--set", "offset=" + offset, "--rows", "0-9"],
             1, has=["first nan", "inf"])

# check. Without the checker, which is built where Coq is, there is no more to ask (tests/proofs does).
case("check-help", ["check", "--help"], 0, has=["rejected", "no theorem covers it"])
case("check-nothing", ["check"], 2, err=r"certificate")
case("check-no-tensors", ["check", "certificate.json"], 2, err=r"tensors")
case("check-two-files", ["check", "certificate.json", "q.npy", "k.npy"], 2,
     err=r"found 2 tensor files, expected one \.safetensors file or three \.npy files")

# replay, shrink. Findings of cases B, C and F (tests/unit/fuzz): what is wrong with a file is tested
# where the reader is.
FOUND = "examples/findings/"
LOST, ZERO, MERGE = (FOUND + name + ".headroom" for name in ("lost-mass", "zero-row", "wrong-base"))

case("replay", ["replay", LOST], 1,
     has=["reproduces", "lost-mass/weight/", "1 x 10 x 3 x 1", "`weight`", "lets the head through"])
case("replay-many", ["replay", LOST, ZERO, MERGE, "--threads", "1", "--json"], 1,
     json=lambda value: values("findings", "*", "reproduces")(value) == [True] * 3
     and values("findings", "*", "same_bits")(value) == [True] * 3
     and values("findings", "*", "objective")(value) == ["lost-mass", "zero-row", "partition"])
case("replay-test-pytorch", ["replay", ZERO, "--test", "pytorch"], 0,
     has=["def test_headroom_zero_row_numerator():", "4355 0000", "torch.frombuffer"])
case("replay-test-jax", ["replay", ZERO, "--test", "jax"], 0, has=["import jax", "4355 0000"])
case("replay-test-c++", ["replay", ZERO, "--test", "c++"], 0,
     has=["TEST(HeadroomFinding, ZeroRowNumerator)", "headroom.finding/1"])
case("replay-test-of-two", ["replay", ZERO, LOST, "--test", "jax"], 2,
     err=r"--test: found 2 files, expected one")
case("replay-test-unknown", ["replay", ZERO, "--test", "fortran"], 2,
     err=r"'fortran'.*c\+\+, pytorch, jax")
case("replay-nothing", ["replay"], 2, err=r"findings")
case("replay-no-such-file", ["replay", "no/such.headroom"], 2, err=r"no/such\.headroom: cannot open")
case("replay-no-finding", ["replay", ROPE], 2, err=r"ropegpt_layer1_bf16\.safetensors")
case("replay-bad-second", ["replay", LOST, "docs/finding.md"], 2, err=r"docs/finding\.md")
case("replay-a-device", ["replay", "/dev/zero"], 2, err=r"/dev/zero: is a device")
case("shrink", ["shrink", LOST, "-o", "{tmp}/small.headroom", "--json"], 0,
     files=["small.headroom"],
     json=lambda value: value["class"].startswith("lost-mass/weight/")
     and value["after"]["keys"] <= 8 and value["after"]["channels"] <= 4)
case("shrink-few-runs", ["shrink", ZERO, "-o", "{tmp}/small.headroom", "--runs", "1"], 0,
     has=["in 1 runs"], files=["small.headroom"])
case("shrink-nothing", ["shrink"], 2, err=r"finding")
case("shrink-no-finding", ["shrink", "docs/finding.md", "-o", "{tmp}/x"], 2,
     err=r"docs/finding\.md", files=[])
case("shrink-nowhere", ["shrink", ZERO, "--runs", "1", "-o", "{tmp}/no/such/folder.headroom"], 2,
     err=r"no/such/folder\.headroom", files=[])
case("shrink-no-runs", ["shrink", ZERO, "--runs", "0"], 2, err=r"--runs")

# Files: what is read, and what is said of the rest (tests/command_line/hostile_files_test.py makes
# the damaged ones).
certify("npy-v2-of-another-type", [ROPE, "--kernel", "hopper", "--npy-v2", "fp16"], 2,
        err=r"--npy-v2.*'fp16'.*bf16")
certify("npy-v2-changes-nothing-else", [ROPE, "--kernel", "hopper", "--npy-v2", "bf16", "--heads",
                                        "layer1:0"], 0, has=["1 certified"])
certify("head-is-a-device", ["/dev/zero", "--kernel", "hopper"], 2,
        err=r"/dev/zero: is a device or socket, expected a regular file")
certify("kernel-is-a-device", [ROPE, "--kernel", "/dev/zero"], 2,
        err=r"/dev/zero: is a device or socket, expected a regular file")
certify("missing-npz", ["no/such.npz", "--kernel", "hopper"], 2,
        err=r"no/such\.npz: cannot open: No such file")

# exp2. The edges of the polynomials are published: NaN gives 0, 129 gives -0, +infinity NaN.
def exp2(name, arguments, code, **expectations):
    case("exp2-" + name, ["exp2", *arguments], code, **expectations)


exp2("correctly-rounded", ["--unit", "correctly-rounded", "--format", "bf16"], 0,
     has=["kept for every argument", "Promise: 0.5 ulps, gradual, monotone at integers"])
exp2("fa4-poly3", ["--unit", "fa4-poly3", "--format", "bf16"], 1,
     has=["kept from -126 to 128", "NaN may be swallowed"])
exp2("fa4-poly3-json", ["--unit", "fa4-poly3", "--format", "fp16", "--json"], 1,
     json=lambda value: not value["kept"] and value["nan"]["result"] == "0x0p+0"
     and value["plus_infinity"]["result"] == "nan" and value["overflow_from"]["x"] == "0x1p+7"
     and value["zero_up_to"]["x"] == "-0x1.fcp+6" and value["negative"]["first"]["x"] == "0x1.02p+7"
     and 8.7e-5 < value["largest_error"]["relative"] < 8.77e-5
     and value["inexact_at_integers"]["count"] == 0)
exp2("adversary", ["--unit", "ulp:2", "--format", "fp16", "--choice", "highest",
                   "--flush-to-zero", "--json"], 0,
     json=lambda value: value["kept"] and abs(value["largest_error"]["ulps"] - 2) < 1e-9
     and value["promise"]["flush_to_zero"] and not value["promise"]["monotone_at_integers"])
exp2("ex2-approx", ["--unit", "ex2.approx.ftz", "--format", "bf16", "--choice", "random",
                    "--seed", "7", "--json"], 0,
     json=lambda value: value["kept"] and value["result"] == "fp32"
     and value["promise"]["max_error_ulps"] == 2.5)
exp2("base-e", ["--unit", "correctly-rounded", "--format", "bf16", "--result", "fp32", "--base",
                "e"], 0, has=["E(x) = e^x", "kept for every argument"])
exp2("help", ["--help"], 0, has=["fa4-poly1", "Examples", "--choice"])
exp2("no-unit", [], 2, err=r"--unit")
exp2("unknown-unit", ["--unit", "fa4-poly6"], 2, err=r"--unit: found 'fa4-poly6'.*fa4-poly5")
exp2("half-an-ulp-at-least", ["--unit", "ulp:0.25"], 2, err=r"--unit: found 'ulp:0.25'.*0\.5")
exp2("all-of-the-result", ["--unit", "ulp:128", "--format", "bf16"], 2,
     err=r"--unit: found 'ulp:128', expected fewer than 128 ulps of bf16")
exp2("unknown-format", ["--unit", "correctly-rounded", "--format", "e4m3fn"], 2,
     err=r"--format: found 'e4m3fn', expected bf16, fp16 or fp32")
exp2("result-of-a-fixed-unit", ["--unit", "fa4-poly3", "--result", "bf16"], 2, err=r"--result")
exp2("polynomials-have-base-2", ["--unit", "fa4-poly3", "--base", "e"], 2, err=r"--base.*expected 2")
exp2("unknown-choice", ["--unit", "ulp:2", "--choice", "worst"], 2, err=r"--choice.*'worst'.*lowest")
