#!/usr/bin/env python3
"""Writes the first inputs of each reader's corpus: whole files and one lie each.

    make_corpus.py FOLDER      write FOLDER/TARGET/NAME; files that fuzzing found stay

Python 3 standard library only. What fuzzing found is added by hand, named after what it broke.
"""

import io
import json
import pathlib
import struct
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def npy(descr="'<f4'", shape="(2,)", data=b"abcdefgh", order="False", major=1):
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    return (b"\x93NUMPY" + bytes([major, 0])
            + struct.pack("<H" if major == 1 else "<I", len(text)) + text + data)


def npz(members, method=zipfile.ZIP_STORED, comment=b""):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members.items():
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
                member.write(data)
        archive.comment = comment
    return out.getvalue()


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def triple(shape, bytes_each, dtype="F16", prefix="l1."):
    return {prefix + part: tensor(dtype, shape, i * bytes_each, (i + 1) * bytes_each)
            for i, part in enumerate("qkv")}


def heads(header, data, sidecar=b""):
    file = safetensors(header, data)
    return struct.pack("<I", len(file)) + file + sidecar


def corpus():
    words = bytes(range(96))
    one = {"a": tensor("F32", [2], 0, 8)}
    yield "safetensors", {
        "every_dtype": safetensors({
            name: tensor(name, [8], sum(widths[:i]), sum(widths[:i + 1]))
            for widths in [[32, 16, 16, 8, 8, 64, 8, 4, 6]]
            for i, name in enumerate("F32 F16 BF16 F8_E4M3 F8_E5M2 I64 BOOL F4 F6_E2M3".split())},
            bytes(162)),
        "metadata": safetensors({"__metadata__": {"scale": "0.5", "mask": "causal"}, **one},
                                b"abcdefgh"),
        "empty_and_scalar": safetensors({"e": tensor("F16", [3, 0], 0, 0),
                                         "s": tensor("F32", [], 0, 4)}, b"wxyz"),
        "padded": safetensors(json.dumps(one).encode() + b"    ", b"abcdefgh"),
        "hole": safetensors({"a": tensor("F32", [1], 4, 8)}, b"abcdefgh"),
        "overlap": safetensors({"a": tensor("F32", [1], 0, 4), "b": tensor("F32", [1], 0, 4)},
                               b"abcd"),
        "outside": safetensors({"a": tensor("F32", [1 << 62], 0, 1 << 62)}, b"abcd"),
        "duplicate": safetensors(b'{"a":{"dtype":"F32","dtype":"F32"}}'),
        "huge_header": struct.pack("<Q", 1 << 63) + b"{}",
        "deep": safetensors(b'{"a":' + b"[" * 100),
        "escapes": safetensors(b'{"\\u001b[31m\\u0000\\ud83d\\ude00":1}'),
    }
    yield "npy", {
        "f4": npy(), "f2_v2": npy("'<f2'", "(2, 2)", major=2), "v3": npy(major=3),
        "void": npy("'|V2'", "(4,)", b"abcdefg\x01"), "fortran": npy(order="True", shape="(1, 2)"),
        "big_endian": npy("'>f4'"), "structured": npy("[('a', '<f4'), ('b(', '<i4', (2,))]", "(1,)"),
        "object": npy("'|O'"), "scalar": npy(shape="()", data=b"abcd"),
        "long": npy("'<f2'", "(4L,)"), "overflow": npy(shape="(4294967296, 4294967296)"),
        "short": npy(data=b"abc"), "no_header": b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
    }
    arrays = {"l1.q.npy": npy(), "k.npy": npy("'<i8'", "(1,)"), "read.me": b"hello"}
    whole = npz(arrays)
    yield "npz", {
        "stored": whole, "deflated": npz(arrays, zipfile.ZIP_DEFLATED, b"a comment"),
        "empty": npz({}), "bzip2": npz(arrays, zipfile.ZIP_BZIP2),
        "pickle": npz({"archive/data.pkl": b"x"}), "cut": whole[:-7], "shifted": whole[1:],
        "prefixed": b"PK\x03\x04" + whole, "wrong_checksum": whole.replace(b"abcdefgh", b"abcdefgX"),
        "void": npz({"q.npy": npy("'<V2'", "(4,)")}, zipfile.ZIP_DEFLATED, b"\x01"),
    }
    metadata = {"__metadata__": {"scale": "1/sqrt(d)", "causal": "true"}}
    yield "heads", {
        "plain": heads(triple([4, 4], 32), words),
        "sidecar": heads({**metadata, **triple([1, 4, 4], 32)}, words,
                         b'{"scale":0.25,"mask":"causal-top-left","lengths":[3]}'),
        "four_dimensions": heads({"__metadata__": {"layout": "bnhd"}, **triple([2, 2, 2, 2], 32)},
                                 words, b'{"lengths":[1,2],"scale":1e-3}'),
        "fp8": heads(triple([8, 4], 32, "F8_E4M3", ""), words, b'{"layout":"[tokens,channels]"}'),
        "grouped": heads({"q": tensor("BF16", [4, 2, 2], 0, 32),
                          "k": tensor("BF16", [1, 4, 2], 32, 48),
                          "v": tensor("BF16", [1, 4, 2], 48, 64)}, words[:64],
                         b'{"scale":"0x1p-3","mask":"causal-bottom-right"}'),
        "wrong_sidecar": heads(triple([4, 4], 32), words, b'{"scale":[1]}'),
        "scale_of_many_digits": heads(triple([4, 4], 32), words, b'{"scale":1e-99999}'),
    }
    yield "json", {
        "values": b'{"a":[1,-2,0.1e5,18446744073709551616,true,null,"\\u00e9"],"b":{}}',
        "duplicate": b'{"x":[{"a":1,"a":2}]}', "nul": b"{}\0", "mark": b"\xef\xbb\xbf{}",
        "deep": b"[" * 70 + b"]" * 70, "scalar": b'"text"', "infinite": b"1e999",
        "certificate": certificate(),
    }
    yield "kernel_file", {path.stem: path.read_bytes()
                          for path in sorted((ROOT / "examples" / "kernels").glob("*.toml"))} | {
        "facts": b'machine = "hopper"\n[[facts]]\nid = "a"\nevidence = "measured"\ntext = "b"\n',
        "deep_keys": b"a." * 200 + b"b = 1\n", "deep_arrays": b"a = " + b"[" * 300,
        "bytes": b'machine = "\xff\x00"\n', "numbers": b'machine = "hopper"\n[tiles]\nkeys = 1e9\n',
    }
    yield "finding", findings()


def certificate():
    """The shape of a certificate, certify/certificate_v1.md; the values mean nothing."""
    claim = {"id": "mass.lost", "value": ["0x0p+0", "0x1p-20"], "limit": "0x1p-10", "row": 3}
    return json.dumps({"schema": "headroom-certificate/1", "toolkit": "0.1.0",
                       "kernel": {"digest": "00" * 32, "text": "complete = true\n"},
                       "head": {"id": "x:0", "scale": "1/8", "shapes": {"q": [4, 4]}},
                       "claims": [claim, dict(claim, id="l.range", key=-1)],
                       "verdict": "certified"}, indent=2).encode()


def findings():
    """The examples, and lies about one of them."""
    files = {path.stem: path.read_bytes()
             for path in sorted((ROOT / "examples" / "findings").glob("*.headroom"))}
    good = json.loads(files["zero-row"])

    def lie(*path, value):
        copy = json.loads(json.dumps(good))
        inner = copy
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        return json.dumps(copy).encode()

    head = ("head", "setting")
    return files | {
        "many_keys": lie("head", "keys", value=1 << 60), "no_rows": lie("head", "q", value=[]),
        "short_row": lie("head", "k", value=["3f80", "3f80 0000"]),
        "half_a_kernel": lie("target", "kernel", value=good["target"]["kernel"][:300]),
        "no_number": lie("target", "eps", value="0x1p-99999999"),
        "hidden": lie(*head, "visible", value=["00"]), "sunk": lie(*head, "sink", value="0x1p+9"),
        "segments": lie(*head, "key_segments", value=[1, 2]),
        "biased": lie(*head, "bias", value=["ff800000 7fc00000"]),
        "deep": b'{"schema":' + b"[" * 70 + b"]" * 70 + b"}",
    }


def main(folder):
    for target, inputs in corpus():
        (folder / target).mkdir(parents=True, exist_ok=True)
        for name, data in inputs.items():
            (folder / target / name).write_bytes(data)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
