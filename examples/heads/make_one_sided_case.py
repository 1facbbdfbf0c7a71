#!/usr/bin/env python3
"""Writes one_sided_gate_bf16.safetensors: a head that passes a one-sided gate and is wrong.

    python3 examples/heads/make_one_sided_case.py examples/heads

4,096 keys whose exact mean is zero, |q| max|k| = 231.08, in log2 units already (--scale-log2 1).
2,418 keys score -2.004, 1,674 score +2.895, and four have norm 1 in a third channel, which lifts the
Cauchy-Schwarz bound. V is -1 on the first group, +1 elsewhere. At C = 107 the gate allows 232, but
the first group, 20.9 % of the softmax mass, is flushed to zero.
Python 3 standard library only; the same bytes each time.
"""

import json
import pathlib
import struct
import sys

N = 4096


def bf16(value):
    word = struct.unpack("<I", struct.pack("<f", value))[0]
    assert word & 0xFFFF == 0, f"{value} is no bfloat16"
    return struct.pack("<H", word >> 16)


def key(j):
    if j < 2418:
        return (-9 / 1024, 0.0, 0.0)
    if j < 2418 + 1674:
        return (13 / 1024, 0.0, 0.0)
    return (0.0, 0.0, 1.0 if j < N - 2 else -1.0)


def main(folder):
    tensors = {
        "q": ([1, 3], [(114.0, 201.0, 0.0)]),
        "k": ([N, 3], [key(j) for j in range(N)]),
        "v": ([N, 1], [(-1.0 if j < 2418 else 1.0,) for j in range(N)]),
    }
    header = {"__metadata__": {"mask": "none"}}
    data = b""
    for name, (shape, rows) in tensors.items():
        words = b"".join(bf16(x) for row in rows for x in row)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + len(words)]}
        data += words
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = pathlib.Path(folder) / "one_sided_gate_bf16.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    main(*sys.argv[1:])
