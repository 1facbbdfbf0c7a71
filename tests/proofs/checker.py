"""headroom-check accepts what `clis` certifies, and rejects what was tampered with.

    checker.py HEADROOM HEADROOM_CHECK HEADS.safetensors...

Certifies the heads, checks every certificate against its tensors, then changes certificates and
tensors one thing at a time. A tampered certificate must give exit code 1 (or 4 where the change puts
it outside the theorem, 2 where the tensor file itself is broken) and no crash.
"""

import copy
import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import tempfile


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)


def next_float(text, steps):
    """A hexadecimal float moved by so many ulps of FP32 where it is one, else of a double."""
    value = float.fromhex(text)
    single = struct.unpack("<f", struct.pack("<f", value))[0]
    if single == value and value > 0:
        bits = struct.unpack("<I", struct.pack("<f", value))[0] + steps
        return struct.unpack("<f", struct.pack("<I", bits))[0].hex()
    bits = struct.unpack("<q", struct.pack("<d", value))[0] + steps
    return struct.unpack("<d", struct.pack("<q", bits))[0].hex()


def short(text):
    """As certificates write it: no trailing zeros in the fraction."""
    mantissa, exponent = text.split("p")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}p{exponent}"


def with_kernel(certificate, old, new):
    text = certificate["kernel"]["text"]
    if old not in text:
        return None
    certificate["kernel"]["text"] = text.replace(old, new, 1)
    certificate["kernel"]["sha256"] = hashlib.sha256(certificate["kernel"]["text"].encode()).hexdigest()
    return certificate


def with_max_error(certificate):
    """An output.error limit that the claim meets and the checker's own bound does not."""
    for claim in certificate["claims"]:
        if claim["id"] == "output.error":
            claim.update(value=["0x0p+0", "0x1p-30"], limit="0x1p-30", kind="at-most", required=True,
                         margin_bits="0x0p+0")
    certificate["parameters"]["max_error"] = "0x1p-30"


def changes(original):
    """(what, exit codes that are right, changed certificate or raw text)"""
    def edit(what, function, codes=(1,)):
        certificate = copy.deepcopy(original)
        result = function(certificate)
        return what, codes, json.dumps(certificate if result is None else result)

    def put(*path):
        *keys, last, value = path

        def apply(certificate):
            node = certificate
            for key in keys:
                node = node[key]
            node[last] = value
        return apply

    text = json.dumps(original)
    head, gate = original["head"], original["gate"]
    cap = float.fromhex(gate["C"])
    kappa = float.fromhex(gate["kappa"])
    yield "schema", (1,), text.replace("headroom-certificate/1", "headroom-certificate/2", 1)
    yield "a duplicate key", (1,), text[:-1] + ', "policy": "clis"}'
    yield "something after the end", (1,), text + "{}"
    for cut in range(1, 12):
        yield f"truncated at {cut}/12", (1,), text[:len(text) * cut // 12]
    for key in ("schema", "kernel", "policy", "parameters", "head", "gate", "claims", "verdict", "path"):
        yield edit(f"no {key}", lambda c, k=key: c.pop(k) and None)
    for key in ("id", "prefix", "layout", "query_head", "kv_head", "queries", "keys", "channels",
                "value_channels", "mask", "length", "scale", "stored", "sha256"):
        yield edit(f"no head.{key}", lambda c, k=key: c["head"].pop(k) is None or None)
    for step in (1, 2, 3, 5, 10, 20):
        yield edit(f"C + {step}", put("gate", "C", float(cap + step).hex()))
    for step in (64, 80, 100, 120):
        yield edit(f"C - {step}", put("gate", "C", float(cap - step).hex()), (1, 4))
    yield edit("C + 1/2", put("gate", "C", float(cap + 0.5).hex()))
    for factor in (0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 8, 64, 1024):
        yield edit(f"kappa * {factor}", put("gate", "kappa", float(
            struct.unpack("<f", struct.pack("<f", kappa * factor))[0]).hex()))
    yield edit("kappa = 0", put("gate", "kappa", "0x0p+0"))
    yield edit("kappa negative", put("gate", "kappa", (-kappa).hex()))
    yield edit("kappa decimal", put("gate", "kappa", "1.5"))
    for key in ("q", "k", "v"):
        digest = head["sha256"][key]
        yield edit(f"digest of {key}", put("head", "sha256", key, digest[:-1] + ("0" if digest[-1] != "0" else "1")))
        yield edit(f"stored {key}", put("head", "stored", key, "fp16" if head["stored"][key] != "fp16" else "bf16"), (1, 4))
    yield edit("digests swapped", lambda c: c["head"]["sha256"].update(
        q=head["sha256"]["k"], k=head["sha256"]["q"]))
    for key in ("queries", "keys", "channels", "value_channels"):
        for delta in (-1, 1, 7):
            yield edit(f"{key} {delta:+}", put("head", key, head[key] + delta))
    for key in ("query_head", "kv_head"):
        for other in range(0, 4):
            if other != head[key]:
                yield edit(f"{key} = {other}", put("head", key, other))
        yield edit(f"{key} = 1000", put("head", key, 1000))
    yield edit("prefix", put("head", "prefix", "nowhere."))
    yield edit("layout", put("head", "layout", "bhnd"))
    yield edit("mask unknown", put("head", "mask", "window"), (4,))
    for times in ("64", "1024", "100000", "-1", "0", "x", "log2:1000"):
        yield edit(f"scale {times}", put("head", "scale", times), (1, 4))
    for scale in ("1/0", "0/1", "1e9999999", "inf", "nan", "1/sqrt(0)", "1/sqrt(-4)", "9" * 5000, "1/sqrt(9999999999999999999)",
                  "log2:1/0", "log2:", "0x1p-3"):
        yield edit(f"scale {scale[:20]}", put("head", "scale", scale))
    yield "deep nesting", (1,), "[" * 200000 + "]" * 200000
    yield "deep nesting inside", (1,), text[:-1] + ', "more": ' + '{"a":' * 5000 + "1" + "}" * 5000 + "}"
    yield "nothing", (1,), ""
    yield "no object", (1,), "[]"
    yield "a number", (1,), "1" * 100000
    yield "control characters", (1, 4), text.replace("clis", "cl\\u0000is", 1)
    yield "not UTF-16", (1,), text.replace("clis", "\\ud800", 1)
    for number in ("0x1p+99999", "0x1p-99999", "0x" + "f" * 3000 + "p+0", "0x1p+999999", "inf", "nan", "-0x1p+0", "1e5"):
        yield edit(f"C = {number[:12]}", put("gate", "C", number), (1, 4))
        yield edit(f"kappa = {number[:12]}", put("gate", "kappa", number), (1, 4))
        yield edit(f"eps = {number[:12]}", put("parameters", "eps", number))
    for number in (-1, 0, 1e30, 2 ** 62, 10 ** 14, 1.5, "64", None, True):
        yield edit(f"channels = {number}", put("head", "channels", number))
        yield edit(f"keys = {number}", put("head", "keys", number))
        yield edit(f"length = {number}", put("head", "length", number), (1, 4))
    for key in ("safe", "accurate"):
        yield edit(key, put(key, "fails"))
    yield edit("status proved", put("status", "proved"))
    yield edit("accepts", put("gate", "accepts", "unknown"))
    yield edit("stabilizer", put("gate", "stabilizer", "clis-alg1"))
    yield edit("binding", put("binding", "score.range"))
    yield edit("margin", put("margin_bits", short(next_float(original["margin_bits"], 1))))
    yield edit("path online", put("path", "online"), (4,))
    def both(*changes):
        def apply(certificate):
            for change in changes:
                change(certificate)
        return apply

    # what no theorem is about: rejected unless the certificate itself says so
    beyond = [("cast", put("head", "cast", "rne"), "head.cast")]
    beyond += [(f"verdict {verdict}", put("verdict", verdict), f"verdict {verdict}")
               for verdict in ("fallback", "undecided", "refuted")]
    beyond += [(f"policy {policy}", put("policy", policy), f"policy {policy}")
               for policy in ("clis-alg1", "fixed-m", "online", "fa4")]
    beyond += [(f"modifiers {modifiers}", put("head", "modifiers", modifiers), "head.modifiers")
               for modifiers in ({}, {"softcap": "0x1p+4"}, {"window": [3, 0]}, {"sink": "0x0p+0"})]
    for what, change, why in beyond:
        yield edit(what, change)
        yield edit(f"{what}, and no theorem", both(change, put("theorem", f"none: {why}")), (4,))
        yield edit(f"{what}, and no theorem for another reason", both(change, put("theorem", "none: reason")))
        yield edit(f"no theorem: {why}", put("theorem", f"none: {why}"))
    yield edit("another theorem", put("theorem", "Certified.lost_mass_within"))
    yield edit("no theorem", lambda c: c.pop("theorem") and None)
    yield edit("v_magnitude an ulp up", put("values", "v_magnitude", short(next_float(original["values"]["v_magnitude"], 1))))
    yield edit("v_magnitude an ulp down", put("values", "v_magnitude", short(next_float(original["values"]["v_magnitude"], -1))))
    yield edit("most_visible", put("values", "most_visible", original["values"]["most_visible"] + 1))
    yield edit("most_visible, one less", put("values", "most_visible", original["values"]["most_visible"] - 1))
    for limit in ("0x1p-60", "0x1p-1000", "0x0p+0"):
        yield edit(f"max_error {limit}", put("parameters", "max_error", limit))
    yield edit("max_error with its claim", with_max_error)
    yield edit("eps = 0", put("parameters", "eps", "0x0p+0"))
    yield edit("eps = 2^-400", put("parameters", "eps", "0x1p-400"))
    for i, claim in enumerate(original["claims"]):
        name = f"{claim['id']} ({i})"
        if claim["limit"] is not None and claim["kind"] == "at-most":
            value = claim["limit"]
            if value not in ("inf", "-inf") and float.fromhex(value) != 0:
                worse = short(next_float(value, 1) if float.fromhex(value) > 0 else next_float(value, -1))
                yield edit(f"{name}: an ulp over its limit", put("claims", i, "value", 1, worse))
        if claim["required"]:
            if claim["id"] != "normalise.range":  # there are two
                yield edit(f"{name}: left out", lambda c, k=i: c["claims"].pop(k) and None)
            yield edit(f"{name}: not required", put("claims", i, "required", False))
        if claim["unit"] == "log2" and claim["limit"] is not None and float.fromhex(claim["margin_bits"]) > 0:
            yield edit(f"{name}: margin an ulp up", put("claims", i, "margin_bits", short(next_float(claim["margin_bits"], 1))))
        if claim["limit"] is not None:
            yield edit(f"{name}: outcome", put("claims", i, "outcome", "unknown"))
        yield edit(f"{name}: value decimal", put("claims", i, "value", ["0.5", "0.5"]))
        yield edit(f"{name}: value reversed", put("claims", i, "value", ["0x1p+900", "0x1p-900"]))
        if claim["id"] == "score.range":
            yield edit(f"{name}: another limit", put("claims", i, "limit", "0x1p+0"))
        if claim["id"] in ("exponent.upper", "p.range", "l.range", "o.range"):
            yield edit(f"{name}: a limit beyond FP32", put("claims", i, "limit", "0x1.02p+7"))
        if claim["id"] == "exponent.upper":
            yield edit(f"{name}: a value that rows exceed", put("claims", i, "value", ["-0x1p+9", "-0x1p+8"]))
        if claim["id"] == "sum.absorption":
            yield edit(f"{name}: fewer terms", put("claims", i, "value", ["0x0p+0", "0x1p+0"]))
        if claim["id"] in ("mass.lost", "product.flush", "output.error"):
            yield edit(f"{name}: less than nothing", put("claims", i, "value", ["-0x1p-9", "0x0p+0"]))
    yield edit("kernel.sha256", put("kernel", "sha256", "0" * 64))
    yield edit("kernel.text", put("kernel", "text", original["kernel"]["text"].replace("bf16", "fp16", 1)))
    for old, new, codes in [
            ('keys = "none"', 'keys = "mean"', (4,)), ('scale = "score"', 'scale = "query"', (4,)),
            ('complete = true', 'complete = false', (4,)), ('padding = "masked"', 'padding = "zero-keys"', (4,)),
            ('format = "bf16"', 'format = "e4m3fn"', (4,)), ('round_up = true', 'round_up = false', (4,)),
            ('[exp2]', '[sink]\nplace = "end"\n\n[exp2]', (1, 4)),
            ('max_error_ulps = "0x1.4p+1"', 'max_error_ulps = "0x1p+23"', (1, 4)),
            ('order = "matrix-unit:25:16"', 'order = "matrix-unit:1:16"', (1,)),
            ('order = "matrix-unit:25:16"', 'order = "matrix-unit:x:16"', (1,)),
            ('order = "lanes:4"', 'order = "lanes:4"\norder = "any"', (1,)),
            ('fused = true', 'fused = maybe', (1,)), ('operand = "bf16"', 'operand = "fp8"', (4,))]:
        certificate = with_kernel(copy.deepcopy(original), old, new)
        if certificate:
            yield f"kernel: {new!r}", codes, json.dumps(certificate)


def main(headroom, check, *files):
    failures, accepted, rejected, policies = [], 0, 0, set()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        tampered = False
        for file in files:
            folder = scratch / pathlib.Path(file).stem
            folder.mkdir()
            for policy in ("clis-alg1", "fixed-m", "fixed-m-n", "fdpp", "fa4", "online"):
                others = scratch / policy
                run(headroom, "certify", file, "--kernel", "hopper", "--policy", policy, "--certificates", others,
                    *(["--set", "phi=0"] if policy == "fdpp" else []))
                for path in sorted(others.glob("*.json")):
                    found = json.loads(path.read_text(encoding="utf-8"))["theorem"]
                    code = run(check, path, file).returncode
                    policies.add(policy)
                    if found != f"none: policy {policy}" or code != 4:
                        failures.append(f"{path}: found theorem \"{found}\" and exit {code}")
            run(headroom, "certify", file, "--kernel", "hopper", "--certificates", folder)
            for path in sorted(folder.glob("*.json")):
                certificate = json.loads(path.read_text(encoding="utf-8"))
                result = run(check, path, file)
                expected = 0 if certificate["verdict"] == "certified" else 4
                if result.returncode != expected:
                    failures.append(f"{path.name}: found exit {result.returncode}, expected {expected}: "
                                    f"{(result.stdout + result.stderr).strip()}")
                    continue
                accepted += expected == 0
                if expected == 0:  # two bounds that share no code are close
                    own = json.loads(run(check, "--json", path, file).stdout)
                    for claim in certificate["claims"]:
                        if claim["id"] in ("output.error", "lse.error"):
                            ratio = float.fromhex(own[claim["id"].replace(".", "_")]) / float.fromhex(claim["value"][1])
                            if not 0.5 < ratio < 2:
                                failures.append(f"{path.name}: {claim['id']}: the checker's bound is {ratio} times the claim's")
                if expected != 0 or tampered:
                    continue
                tampered = True
                other = scratch / "tampered.json"
                for what, codes, text in changes(certificate):
                    other.write_text(text, encoding="utf-8")
                    result = run(check, other, file)
                    if result.returncode not in codes:
                        failures.append(f"{what}: found exit {result.returncode}, expected {codes}: "
                                        f"{(result.stdout + result.stderr).strip()}")
                    else:
                        rejected += 1
                # the tensors themselves
                data = bytearray(pathlib.Path(file).read_bytes())
                length = struct.unpack("<Q", data[:8])[0]
                offsets = json.loads(data[8:8 + length])
                broken = scratch / "broken.safetensors"
                for name in ("q", "k", "v"):
                    begin = offsets[certificate["head"]["prefix"] + name]["data_offsets"][0] + 8 + length
                    for change, word in (("another word", b"\x01\x40"), ("a NaN", b"\xc0\x7f"), ("infinity", b"\x80\x7f")):
                        edited = bytearray(data)
                        edited[begin:begin + 2] = word
                        broken.write_bytes(edited)
                        result = run(check, path, broken)
                        if result.returncode != 1:
                            failures.append(f"{change} in {name}: found exit {result.returncode}, expected 1")
                        else:
                            rejected += 1
                # tensors under each other's names, and as .npy files
                def named(**names):
                    header = {key: value for key, value in offsets.items()}
                    for name, other in names.items():
                        header[certificate["head"]["prefix"] + name] = offsets[certificate["head"]["prefix"] + other]
                    text = json.dumps(header).encode()
                    broken.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length:])
                    return [broken]

                def arrays(order="qkv", descr="|V2", fortran="False", cut=0, magic=b"\x93NUMPY"):
                    files = []
                    for name in order:
                        tensor = offsets[certificate["head"]["prefix"] + name]
                        begin, end = (at + 8 + length for at in tensor["data_offsets"])
                        text = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {tuple(tensor['shape'])}, }}\n"
                        files.append(scratch / f"{name}.npy")
                        files[-1].write_bytes(magic + b"\x01\x00" + struct.pack("<H", len(text)) + text.encode()
                                              + data[begin:end - cut])
                    return files

                for what, code, tensors in (
                        ("the tensors as they are", 0, named), ("k and v swapped", 1, lambda: named(k="v", v="k")),
                        ("q for k", 1, lambda: named(k="q")), (".npy files", 0, arrays),
                        (".npy files in another order", 1, lambda: arrays("kqv")),
                        (".npy files of FP16", 1, lambda: arrays(descr="<f2")),
                        (".npy files in Fortran order", 2, lambda: arrays(fortran="True")),
                        (".npy files of integers", 2, lambda: arrays(descr="<i2")),
                        (".npy files that are cut", 2, lambda: arrays(cut=2)),
                        ("no .npy files", 2, lambda: arrays(magic=b"\x93NUMPX")),
                        ("one file twice", 1, lambda: [arrays()[0]] * 3)):
                    result = run(check, path, *tensors())
                    if result.returncode != code:
                        failures.append(f"{what}: found exit {result.returncode}, expected {code}: "
                                        f"{(result.stdout + result.stderr).strip()}")
                    rejected += code != 0
                for cut in (0, 4, 100, len(data) // 2):
                    broken.write_bytes(data[:cut])
                    result = run(check, path, broken)
                    if result.returncode != 2:
                        failures.append(f"tensors cut to {cut} bytes: found exit {result.returncode}, expected 2")
                    else:
                        rejected += 1
    print("\n".join(failures))
    print(f"{accepted} accepted, {rejected} tampered ones rejected, {len(failures)} failures")
    return 1 if failures or accepted == 0 or rejected < 200 or len(policies) < 6 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
