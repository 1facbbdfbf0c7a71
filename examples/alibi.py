#!/usr/bin/env python3
"""Writes an ALiBi bias, for `headroom certify --bias FILE.npy`.

    alibi.py FILE.npy HEADS TOKENS [keys]

Head h of H has the slope m = 2^(-8 (h + 1) / H). The array is [H, N, N] with m (j - i) at query i and
key j; with `keys` it is [H, 1, N] with m j, which differs by a constant a row. FP32, natural units.
Python 3 standard library only.
"""

import struct
import sys


def rows(slopes, tokens, per_key):
    for m in slopes:
        for i in range(1 if per_key else tokens):
            yield [m * (j - (0 if per_key else i)) for j in range(tokens)]


def main():
    if len(sys.argv) not in (4, 5) or sys.argv[4:] not in ([], ["keys"]):
        sys.exit(__doc__.strip())
    name, heads, tokens, per_key = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    slopes = [2 ** (-8 * (h + 1) / heads) for h in range(heads)]
    shape = (heads, 1 if per_key else tokens, tokens)
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(name, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        for row in rows(slopes, tokens, per_key):
            file.write(struct.pack(f"<{tokens}f", *row))


if __name__ == "__main__":
    main()
