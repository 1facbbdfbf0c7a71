#!/usr/bin/env python3
"""Files larger than what a run keeps in memory: pages of a head are dropped when it is done, so the
resident set is that of the heads in work, however many there are.

    large_files_test.py PROGRAM MIB LIMIT_MIB     a sparse file of MIB, a resident set of LIMIT_MIB

Python 3 standard library only.
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile

CHANNELS, WIDTH = 128, 2  # BF16
ONE = struct.pack("<H", 0x3F80)


def sparse_safetensors(path, mib, tokens):
    """Heads of zeros, a one in the first row of every tensor; nothing else is on the disk."""
    heads = (mib << 20) // (3 * tokens * CHANNELS * WIDTH)
    size = heads * tokens * CHANNELS * WIDTH
    header = {name: {"dtype": "BF16", "shape": [heads, tokens, CHANNELS],
                     "data_offsets": [i * size, (i + 1) * size]} for i, name in enumerate("qkv")}
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        begin = out.tell()
        for i in range(3):
            out.seek(begin + i * size)
            out.write(ONE)
        out.truncate(begin + 3 * size)
    return heads


def stored_npz(path, mib):
    """Layers of one small head each; all members are read once, as checksums are over them."""
    shape = (1024, 128)
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(4 << 17)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for i in range(3 * ((mib << 20) // (3 * len(array)))):
            archive.writestr(f"l{i // 3}.{'qkv'[i % 3]}.npy", array)


def resident_mib(program, arguments):
    """Exit code, stdout, and the largest resident set of the run."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        with subprocess.Popen([program, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=out,
                              stderr=errors) as running:
            _, status, usage = os.wait4(running.pid, 0)
            running.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        return running.returncode, out.read(), errors.read().decode(), usage.ru_maxrss >> 10


def main():
    program, mib, limit = str(pathlib.Path(sys.argv[1]).resolve()), *map(int, sys.argv[2:])
    problems = []

    def check(name, arguments, heads):
        code, out, errors, resident = resident_mib(program, arguments)
        print(f"{name}: {heads} heads of {mib} MiB, {resident} MiB resident at most")
        if code != 0:
            problems.append(f"{name}: exit code {code}: {errors}")
        elif len(json.loads(out)["heads"]) != heads:
            problems.append(f"{name}: {len(json.loads(out)['heads'])} heads, expected {heads}")
        elif resident > limit:
            problems.append(f"{name}: {resident} MiB resident, expected at most {limit}")

    with tempfile.TemporaryDirectory(prefix="headroom-") as folder:
        folder = pathlib.Path(folder)
        path, output = folder / "x.safetensors", folder / "o.safetensors"
        heads = sparse_safetensors(path, mib, 8192 if mib < 1024 else 65536)
        common = ["--threads", "2", "--json"]
        # digests are in the certificates: every byte is read twice
        check("certify", ["certify", path, "--kernel", "hopper", *common, "--certificates",
                          folder / "certificates"], heads)
        check("reference", ["reference", path, "--format", "fp32", "--rows", "0", "-o", output,
                            *common], heads)
        path.unlink()
        path = folder / "x.npz"
        stored_npz(path, mib)
        check("npz", ["reference", path, "--format", "fp32", "--rows", "0", "--scale", "1",
                      "--heads", "l0.:0", "-o", output, *common], 1)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
