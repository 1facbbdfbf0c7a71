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
case("limits-no-keys", ["limits", "--keys", "0"], 2, err=r"--keys")
case("limits-negative-keys", ["limits", "--keys", "-4"], 2, err=r"--keys")
case("limits-keys-not-a-number", ["limits", "--keys", "many"], 2, err=r"--keys.*many")

# certify
case("certify-no-arguments", ["certify"], 2)
case("certify-no-such-file", ["certify", "no/such.safetensors", "--kernel", "hopper"], 2,
     err=r"no/such\.safetensors")
