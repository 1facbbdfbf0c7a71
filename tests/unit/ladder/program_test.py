#!/usr/bin/env python3
"""`headroom reference` from file to file, against exact rationals and 80-digit decimals.

    program_test.py PROGRAM

Writes tiny heads, runs the program, reads what it wrote with a reader of its own, and compares
every element with sums of fractions, Python's decimal exp and ln, and one rounding. Python 3
standard library only.
"""

import decimal
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile
from decimal import Decimal
from fractions import Fraction

PROGRAM = ""
decimal.getcontext().prec = 80
DTYPES = {"F64": "<d", "F32": "<f", "F16": "<e", "BF16": None}
NPY = {"<f8": "<d", "<f4": "<f", "<f2": "<e"}
# precision with the leading bit, least exponent of a unit in the last place
FORMATS = {"fp64": (53, -1074), "fp32": (24, -149), "fp16": (11, -24), "bf16": (8, -133)}


def bf16(x):
    """x cut to BF16."""
    return struct.unpack("<f", b"\0\0" + struct.pack("<f", x)[2:])[0]


def pack(dtype, numbers):
    if dtype == "BF16":
        return b"".join(struct.pack("<f", x)[2:] for x in numbers)
    if dtype == "BOOL":
        return bytes(bool(x) for x in numbers)
    if dtype == "U8 as BOOL":
        return bytes(numbers)
    if dtype == "I32":
        return struct.pack(f"<{len(numbers)}i", *numbers)
    return b"".join(struct.pack(DTYPES[dtype], x) for x in numbers)


def unpack(dtype, data):
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    return [x for (x,) in struct.iter_unpack(DTYPES[dtype], data)]


def write_safetensors(path, tensors):
    """tensors: name -> (dtype, shape, numbers)."""
    header, body = {}, b""
    for name, (dtype, shape, numbers) in tensors.items():
        data = pack(dtype, numbers)
        header[name] = {"dtype": dtype.split()[-1], "shape": shape,
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


def read_safetensors(path):
    """(metadata, name -> (dtype, shape, numbers))."""
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__", {})
    body = data[8 + size:]
    assert sum(t["data_offsets"][1] - t["data_offsets"][0] for t in header.values()) == len(body)
    return metadata, {name: (t["dtype"], t["shape"], unpack(t["dtype"], body[slice(
        *t["data_offsets"])])) for name, t in header.items()}


def npy_bytes(descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)}, }}".encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def read_npy(path):
    data = pathlib.Path(path).read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00"
    (size,) = struct.unpack("<H", data[8:10])
    assert (10 + size) % 64 == 0
    header = eval(data[10:10 + size].decode(), {"__builtins__": {}})  # pylint: disable=eval-used
    numbers = [x for (x,) in struct.iter_unpack(NPY[header["descr"]], data[10 + size:])]
    return list(header["shape"]), numbers


def rounded(x, name, direction="rne"):
    """The Fraction x, once rounded, as a Fraction; nothing here comes near overflow."""
    precision, least = FORMATS[name]
    if x == 0:
        return x
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()  # within one of log2
    if abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - precision + 1, least)
    scaled = x / unit
    down = scaled.numerator // scaled.denominator
    if direction == "rd":
        return down * unit
    if direction == "ru":
        return -(-scaled.numerator // scaled.denominator) * unit
    if direction == "rz":
        return (down if x > 0 else -(-scaled.numerator // scaled.denominator)) * unit
    return round(scaled) * unit  # Python rounds halves to even


def dec(x):
    return Decimal(x.numerator) / Decimal(x.denominator)


class Head:
    """A random head of BF16 numbers, and its exact attention."""

    def __init__(self, seed, nq=6, nk=9, d=4, dv=3):
        draw = random.Random(seed)
        self.nq, self.nk, self.d, self.dv = nq, nk, d, dv
        self.q, self.k, self.v = ([[bf16(draw.gauss(0, 1)) for _ in range(columns)]
                                   for _ in range(rows)]
                                  for rows, columns in ((nq, d), (nk, d), (nk, dv)))
        self.bias = [[bf16(draw.gauss(0, 1)) for _ in range(nk)] for _ in range(nq)]
        self.mask = [[draw.random() < 0.6 for _ in range(nk)] for _ in range(nq)]

    def tensors(self):
        def flat(rows):
            return [x for row in rows for x in row]
        return {"q": ("BF16", [self.nq, self.d], flat(self.q)),
                "k": ("BF16", [self.nk, self.d], flat(self.k)),
                "v": ("BF16", [self.nk, self.dv], flat(self.v)),
                "bias": ("F32", [self.nq, self.nk], flat(self.bias)),
                "fmask": ("F32", [self.nq, self.nk], flat(self.mask)),
                "bmask": ("BOOL", [self.nq, self.nk], flat(self.mask)),
                "brow": ("BOOL", [1, self.nk], self.mask[0]),
                "imask": ("I32", [self.nq, self.nk], [int(x) for x in flat(self.mask)]),
                "broken": ("U8 as BOOL", [1, self.nk], [2] * self.nk),
                "sinks": ("F32", [1], [0.75]),
                "isinks": ("I32", [1], [1])}

    def row(self, i, scale=Fraction(1, 2), sees=lambda i, j: True, bias=False, softcap=None,
            sink=None):
        """(O as Fractions of 80 digits, LSE or None)."""
        total, sums = Decimal(0), [Decimal(0)] * self.dv
        for j in range(self.nk):
            if not sees(i, j):
                continue
            x = dec(scale * sum(Fraction(a) * Fraction(b) for a, b in zip(self.q[i], self.k[j])))
            if softcap is not None:
                cap = dec(softcap)
                e = (2 * x / cap).exp()
                x = cap * (e - 1) / (e + 1)
            if bias:
                x += Decimal(self.bias[i][j])
            weight = x.exp()
            total += weight
            sums = [s + weight * Decimal(v) for s, v in zip(sums, self.v[j])]
        empty = total == 0
        if sink is not None:
            total += dec(sink).exp()
        output = [Fraction(0) if empty else Fraction(s / total) for s in sums]
        return output, (Fraction(total.ln()) if total else None)


def run(*arguments, code=0):
    done = subprocess.run([PROGRAM, "reference", *map(str, arguments)], capture_output=True,
                          text=True, timeout=300, check=False)
    assert done.returncode == code, (done.returncode, done.stderr)
    return done


class ReferenceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.head = Head(7)
        self.file = self.folder / "head.safetensors"
        write_safetensors(self.file, self.head.tensors())
        self.out = self.folder / "out.safetensors"

    def expect(self, options, rows=None, name="fp32", direction="rne", **kind):
        """Runs with the options and compares O and LSE of `rows` with Head.row."""
        run(self.file, "--scale", "1/2", "--mask", "none", "--format", name, "--rounding",
            direction, "-o", self.out, *options)
        tensors = read_safetensors(self.out)[1]
        rows = list(range(self.head.nq)) if rows is None else rows
        self.assertEqual(tensors["o"][1], [len(rows), self.head.dv])
        self.assertEqual(tensors["lse"][1], [len(rows)])
        output, lse = [], []
        for i in rows:
            o, l = self.head.row(i, **kind)
            output += [rounded(x, name, direction) for x in o]
            lse.append(float("-inf") if l is None else rounded(l, name, direction))
        self.assertEqual(tensors["o"][2], output, options)
        self.assertEqual(tensors["lse"][2], lse, options)
        return output

    def test_every_format_and_direction(self):
        for name, dtype in (("fp64", "F64"), ("fp32", "F32"), ("fp16", "F16"), ("bf16", "BF16")):
            for direction in ("rne", "rz", "ru", "rd"):
                self.expect([], name=name, direction=direction)
                self.assertEqual(read_safetensors(self.out)[1]["o"][0], dtype)

    def test_options_that_change_the_function(self):
        plain = self.expect([])
        for options, kind in [
                (["--softcap", "1.5"], {"softcap": Fraction(3, 2)}),
                (["--sink", "-0.25"], {"sink": Fraction(-1, 4)}),
                (["--sink", "sinks"], {"sink": Fraction(3, 4)}),
                (["--window", "2,1"], {"sees": lambda i, j: i - 2 <= j <= i + 1}),
                (["--window", "-1,0"], {"sees": lambda i, j: j <= i}),
                (["--bias", "bias"], {"bias": True}),
                (["--mask-tensor", "fmask"], {"sees": lambda i, j: self.head.mask[i][j]}),
                (["--mask-tensor", "bmask"], {"sees": lambda i, j: self.head.mask[i][j]}),
                (["--mask-tensor", "brow"], {"sees": lambda i, j: self.head.mask[0][j]}),
                (["--segments", "2,4", "--key-segments", "5,4"],
                 {"sees": lambda i, j: (i < 2) == (j < 5)}),
                (["--lengths", "4"], {"sees": lambda i, j: j < 4}),
                (["--bias", "bias", "--softcap", "1.5", "--sink", "-0.25", "--window", "3,0"],
                 {"bias": True, "softcap": Fraction(3, 2), "sink": Fraction(-1, 4),
                  "sees": lambda i, j: i - 3 <= j <= i})]:
            self.assertNotEqual(self.expect(options, **kind), plain, options)

    def test_row_without_keys(self):
        # rows 1 to 5 see no key of the second segment, which has none
        self.expect(["--segments", "1,5", "--key-segments", "9,0"],
                    sees=lambda i, j: i == 0)

    def test_chosen_rows(self):
        self.expect(["--rows", "4,0-1"], rows=[0, 1, 4])
        self.assertEqual(read_safetensors(self.out)[0]["rows"], "0-1,4")

    def test_sampled_rows_follow_the_seed(self):
        arguments = [self.file, "--scale", "1/2", "--mask", "none", "--format", "fp32",
                     "--sample-rows", "3", "-o", self.out, "--seed"]
        chosen = set()
        for seed in range(8):
            run(*arguments, seed)
            once = self.out.read_bytes()
            run(*arguments, seed)
            self.assertEqual(self.out.read_bytes(), once)
            rows = read_safetensors(self.out)[0]["rows"]
            chosen.add(rows)
            numbers = []
            for part in rows.split(","):
                first, _, last = part.partition("-")
                numbers += range(int(first), int(last or first) + 1)
            self.assertEqual(len(set(numbers)), 3)
            self.expect(["--sample-rows", "3", "--seed", str(seed)], rows=numbers)
        self.assertGreater(len(chosen), 2)

    def test_enclosure_holds_the_exact_value(self):
        for name in FORMATS:
            run(self.file, "--scale", "1/2", "--mask", "none", "--format", name, "--enclosure",
                "-o", self.out)
            metadata, tensors = read_safetensors(self.out)
            self.assertEqual(metadata["rounding"], "outward")
            self.assertEqual(set(tensors), {"o_lo", "o_hi", "lse_lo", "lse_hi"})
            for i in range(self.head.nq):
                output, lse = self.head.row(i)
                for c, x in enumerate(output):
                    at = i * self.head.dv + c
                    lo, hi = tensors["o_lo"][2][at], tensors["o_hi"][2][at]
                    self.assertTrue(lo <= x <= hi, (name, i, c))
                    if name != "fp64":  # decided by doubles: neighbours, or one further apart
                        self.assertLessEqual(hi - lo, 2 * (rounded(x, name, "ru") -
                                                           rounded(x, name, "rd")))
                self.assertTrue(tensors["lse_lo"][2][i] <= lse <= tensors["lse_hi"][2][i])

    def test_lse_in_base_two_and_its_own_format(self):
        run(self.file, "--scale", "1/2", "--mask", "none", "--format", "bf16", "--lse-format",
            "fp64", "--lse-base", "2", "-o", self.out)
        tensors = read_safetensors(self.out)[1]
        self.assertEqual((tensors["o"][0], tensors["lse"][0]), ("BF16", "F64"))
        for i in range(self.head.nq):
            lse = dec(self.head.row(i)[1]) / Decimal(2).ln()
            self.assertEqual(tensors["lse"][2][i], rounded(Fraction(lse), "fp64"))

    def test_mask_in_an_archive(self):
        archive = self.folder / "head.npz"
        with zipfile.ZipFile(archive, "w") as z:
            for name, descr, dtype, columns in (
                    ("q", "<f4", "F32", self.head.d), ("k", "<f4", "F32", self.head.d),
                    ("v", "<f4", "F32", self.head.dv), ("mask", "|b1", "BOOL", self.head.nk)):
                rows = getattr(self.head, name)
                z.writestr(name + ".npy", npy_bytes(descr, [len(rows), columns], pack(
                    dtype, [x for row in rows for x in row])))
        safetensors, self.file = self.file, archive
        output = self.expect(["--mask-tensor", "mask"],
                             sees=lambda i, j: self.head.mask[i][j])
        self.file = safetensors
        self.assertEqual(self.expect(["--mask-tensor", "bmask"],
                                     sees=lambda i, j: self.head.mask[i][j]), output)

    def test_mask_and_sink_in_files_of_their_own(self):
        """Heads in .npy files have no other tensors: --mask-tensor and --sink name .npy files."""
        names = []
        for name, descr, dtype in (("q", "<f4", "F32"), ("k", "<f4", "F32"), ("v", "<f4", "F32"),
                                   ("mask", "|b1", "BOOL")):
            rows = getattr(self.head, name)
            names.append(self.folder / f"{name}.npy")
            names[-1].write_bytes(npy_bytes(descr, [len(rows), len(rows[0])], pack(
                dtype, [x for row in rows for x in row])))
        out = self.folder / "exact.npy"
        arguments = [*names[:3], "--scale", "1/2", "--mask", "none", "--format", "fp32", "-o", out]
        run(*arguments, "--mask-tensor", names[3])
        _, output = read_npy(out)
        for i in range(self.head.nq):
            o, _ = self.head.row(i, sees=lambda i, j: self.head.mask[i][j])
            self.assertEqual(output[i * self.head.dv:(i + 1) * self.head.dv],
                             [rounded(x, "fp32") for x in o])
        self.assertRegex(self.refused(*arguments, "--mask-tensor", "mask"),
                         r"--mask-tensor: found 'mask', expected FILE\.npy")
        self.assertRegex(self.refused(*arguments, "--bias", names[3]), r"\|b1, expected F32")
        self.assertRegex(self.refused(*arguments, "--sink", "mask"), "--sink: found 'mask'")
        self.assertRegex(self.refused(self.file, "--format", "fp32", "-o", self.out, "--bias",
                                      "alibi"), "alibi: not found, expected one of.*'bmask'")

    def test_inputs_are_not_replaced(self):
        before = self.file.read_bytes()
        link = self.folder / "link.safetensors"
        link.symlink_to(self.file)
        for out in (self.file, link):
            self.assertRegex(self.refused(self.file, "--format", "fp32", "-o", out),
                             "-o .*: is the input .*, expected another file")
            self.assertEqual(self.file.read_bytes(), before)

    def test_operands_as_a_kernel_rounds_them(self):
        """scale 3/8 multiplied into Q and rounded to BF16: the product has at most 10 bits, so that
        there is one rounding whatever `arithmetic` is; log2(e) stays at the score."""
        kernel = self.folder / "folded.toml"
        kernel.write_text('name = "folded"\nmachine = "tpu7x"\n[scale]\nscale = "query"\n'
                          'log2e = "score"\n[centring]\nkeys = "none"\n')
        plain = [self.head.row(i, Fraction(3, 8))[0] for i in range(self.head.nq)]
        self.head.q = [[float(rounded(Fraction(x) * Fraction(3, 8), "bf16")) for x in row]
                       for row in self.head.q]
        run(self.file, "--scale", "3/8", "--mask", "none", "--format", "fp32", "--kernel", kernel,
            "-o", self.out)
        metadata, tensors = read_safetensors(self.out)
        self.assertIn("folded", metadata["reference"])
        folded = [self.head.row(i, Fraction(1)) for i in range(self.head.nq)]
        self.assertEqual(tensors["o"][2], [rounded(x, "fp32") for o, _ in folded for x in o])
        self.assertEqual(tensors["lse"][2], [rounded(l, "fp32") for _, l in folded])
        self.assertNotEqual(tensors["o"][2], [rounded(x, "fp32") for o in plain for x in o])

    def test_npy_in_and_out(self):
        names = []
        for name in "qkv":
            rows = getattr(self.head, name)
            names.append(self.folder / f"{name}.npy")
            names[-1].write_bytes(npy_bytes("<f4", [len(rows), len(rows[0])], pack(
                "F32", [x for row in rows for x in row])))
        out = self.folder / "exact.npy"
        run(*names, "--scale", "1/2", "--mask", "none", "--format", "fp32", "-o", out)
        shape, output = read_npy(out)
        self.assertEqual(shape, [self.head.nq, self.head.dv])
        lse_shape, lse = read_npy(self.folder / "exact.lse.npy")
        self.assertEqual(lse_shape, [self.head.nq])
        for i in range(self.head.nq):
            o, l = self.head.row(i)
            self.assertEqual(output[i * self.head.dv:(i + 1) * self.head.dv],
                             [rounded(x, "fp32") for x in o])
            self.assertEqual(lse[i], rounded(l, "fp32"))

    def test_json_counts_every_element_once(self):
        done = run(self.file, "--scale", "1/2", "--mask", "none", "--format", "fp32", "--json",
                   "--segments", "4,2", "--key-segments", "9,0", "-o", self.out)
        (head,) = json.loads(done.stdout)["heads"]
        counts = head["decided_by"]
        self.assertEqual(counts["o"]["vector"], 4 * self.head.dv)
        self.assertEqual(counts["o"]["defined"], 2 * self.head.dv)
        self.assertEqual(counts["lse"]["vector"], 4)
        self.assertEqual(counts["lse"]["defined"], 2)
        self.assertEqual(sum(counts["o"].values()), self.head.nq * self.head.dv)
        self.assertEqual(sum(counts["lse"].values()), self.head.nq)

    def test_threads_do_not_matter(self):
        files = []
        for threads in ("1", "2"):
            run(self.file, "--format", "fp64", "--threads", threads, "-o", self.out)
            files.append(self.out.read_bytes())
        self.assertEqual(files[0], files[1])

    def test_undecided_elements_are_nan_and_exit_code_3(self):
        """tanh(5000) and tanh(6000) are equal to 14426 bits, 1 + 2^-8 is a midpoint of BF16."""
        write_safetensors(self.file, {"q": ("F32", [1, 1], [1]), "k": ("F32", [2, 1], [5000, 6000]),
                                      "v": ("F32", [2, 2], [1, 1, 1 + 2**-7, 2])})
        done = run(self.file, "--scale", "1", "--mask", "none", "--softcap", "1", "--format",
                   "bf16", "--json", "-o", self.out, code=3)
        document = json.loads(done.stdout)
        self.assertEqual(document["exit_code"], 3)
        (head,) = document["heads"]
        self.assertEqual(head["undecided"], [{"row": 0, "channel": 0}])
        self.assertEqual(head["decided_by"]["o"]["undecided"], 1)
        output = read_safetensors(self.out)[1]["o"][2]
        self.assertNotEqual(output[0], output[0])
        self.assertEqual(output[1], 1.5)

    def refused(self, *arguments):
        """Exit 2, one line, and nothing beside the input."""
        before = sorted(self.folder.rglob("*"))
        done = run(*arguments, code=2)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"\Aheadroom: [^\n]*\n\Z")
        self.assertEqual(sorted(self.folder.rglob("*")), before)
        return done.stderr

    def test_refusals_leave_no_file(self):
        good = [self.file, "--format", "fp32", "-o"]
        for arguments, expected in [
                ([*good, self.out, "--mask-tensor", "imask"], "imask.*I32.*expected BOOL, F32"),
                ([*good, self.out, "--mask-tensor", "broken"], "broken.*byte 2, expected 0 or 1"),
                ([*good, self.out, "--mask-tensor", "sinks"], r"sinks.*\[1\].*does not fit"),
                ([*good, self.out, "--sink", "isinks"], "isinks.*I32.*expected F32"),
                ([*good, self.out, "--bias", "bmask"], "bmask.*BOOL.*expected F32"),
                ([*good, self.out, "--bias", "nothing"], "nothing.*not found"),
                ([*good, self.out, "--bias", "q"], r"q.*\[6,4\].*does not fit"),
                ([*good, self.out, "--sink", "nothing"], "nothing"),
                ([*good, self.out, "--softcap", "0"], "softcap"),
                ([*good, self.out, "--segments", "3,2"], "segments"),
                ([*good, self.folder / "no" / "out.safetensors"], "no/out.safetensors"),
                ([*good, self.folder], "-o"),
                ([*good, self.out, "--rows", "6"], "--rows.*'6'.*0-5")]:
            self.assertRegex(self.refused(*arguments), expected)

    def test_an_old_output_survives_a_refusal(self):
        self.out.write_bytes(b"old")
        self.refused(self.file, "--format", "fp32", "-o", self.out, "--rows", "99")
        self.assertEqual(self.out.read_bytes(), b"old")


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
