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


# The program itself.
case("version", ["--version"], 0, out="0.1.0\n")
case("help", ["--help"], 0, has=["certify", "limits", "Exit codes"])
case("no-subcommand", [], 2, err=r"subcommand.*--help")
case("unknown-subcommand", ["divine"], 2, err=r"divine")
case("unknown-option", ["--frobnicate"], 2, err=r"frobnicate|subcommand")
case("subcommand-unknown-option", ["limits", "--frobnicate"], 2, err=r"frobnicate")

# limits
case("limits", ["limits"], 0, has=["FP16", "BF16", "FP32"])
case("limits-json", ["limits", "--json"], 0, json=lambda value: bool(value))
case("limits-one-format", ["limits", "--format", "bf16"], 0, has=["BF16"])
case("limits-bad-format", ["limits", "--format", "fp12"], 2, err=r"fp12")
case("limits-format-without-value", ["limits", "--format"], 2, err=r"--format")

# certify
case("certify-no-arguments", ["certify"], 2, err=r"")
case("certify-no-such-file", ["certify", "no/such.safetensors", "--kernel", "hopper"], 2,
     err=r"no/such\.safetensors")
