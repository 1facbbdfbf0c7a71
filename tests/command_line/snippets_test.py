#!/usr/bin/env python3
"""What `headroom replay --test` prints is a test: it compiles, and run on exact attention it passes,
on a kernel that fails as the finding says it does not.

    snippets_test.py PROGRAM ROOT      Python 3 standard library only; runs on PyTorch too if it is
                                       there, else on as much of it as the snippet asks for
"""

import importlib.util
import math
import pathlib
import struct
import subprocess
import sys
import tempfile
import types
import unittest

PROGRAM, ROOT = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2])
FINDINGS = sorted((ROOT / "examples" / "findings").glob("*.headroom"))


def snippet(finding, language):
    done = subprocess.run([PROGRAM, "replay", str(finding), "--test", language],
                          capture_output=True, timeout=60, check=True)
    return done.stdout.decode()


class Array:
    """What a snippet does with a tensor."""

    def __init__(self, values, shape=None):
        self.values, self.shape = values, shape

    def reshape(self, *shape):
        return Array(self.values, shape)

    def double(self):
        return self

    cpu = double

    def tolist(self):
        width = self.shape[-1]
        return [self.values[i:i + width] for i in range(0, len(self.values), width)]


def frombuffer(raw, dtype):
    if dtype == "bfloat16":
        words = struct.unpack(f"<{len(raw) // 2}H", raw)
        return Array([struct.unpack("<f", struct.pack("<I", word << 16))[0] for word in words])
    return Array(list(struct.unpack(f"<{len(raw) // 4}f", raw)))


def exact_attention(q, k, v, scale):
    """Softmax attention in doubles: of [1, 1, rows, channels] arrays."""
    def attend(query):
        scores = [scale * sum(a * b for a, b in zip(query, key)) for key in k.tolist()]
        top = max(scores)
        weights = [math.exp(s - top) for s in scores]
        return [sum(w * x for w, x in zip(weights, column)) / sum(weights)
                for column in zip(*v.tolist())]
    return Array([x for query in q.tolist() for x in attend(query)])


def zeros(q, k, v, scale):
    del k, scale
    return Array([0.0] * (len(q.tolist()) * len(v.tolist()[0])))


class Snippets(unittest.TestCase):
    def test_there_are_findings(self):
        self.assertGreaterEqual(len(FINDINGS), 3)

    def test_python_compiles(self):
        for finding in FINDINGS:
            for language in ("pytorch", "jax"):
                compile(snippet(finding, language), f"{finding.stem}.{language}", "exec")

    def test_python_decides(self):
        torch = types.ModuleType("torch")
        torch.float32, torch.float16, torch.bfloat16 = "float32", "float16", "bfloat16"
        torch.frombuffer = frombuffer
        for finding in FINDINGS:
            names = {"__name__": "snippet"}
            before = sys.modules.get("torch")
            sys.modules["torch"] = torch
            try:
                exec(snippet(finding, "pytorch"), names)  # pylint: disable=exec-used
            finally:
                sys.modules.pop("torch")
                if before:
                    sys.modules["torch"] = before
            test = next(f for name, f in names.items() if name.startswith("test_headroom_"))
            names["attention"] = exact_attention
            test()
            if finding.stem == "zero-row":
                names["attention"] = zeros
                with self.assertRaises(AssertionError):
                    test()

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
    def test_on_pytorch(self):
        for finding in FINDINGS:
            names = {"__name__": "snippet"}
            exec(snippet(finding, "pytorch"), names)  # pylint: disable=exec-used
            torch = names["torch"]

            def attention(q, k, v, scale, torch=torch):
                q, k, v = (x.double() for x in (q, k, v))
                return torch.softmax(scale * q @ k.transpose(-1, -2), -1) @ v
            names["attention"] = attention
            next(f for name, f in names.items() if name.startswith("test_headroom_"))()

    def test_cpp_compiles(self):
        with tempfile.TemporaryDirectory() as tmp:
            source = pathlib.Path(tmp) / "snippet.cpp"
            source.write_text(snippet(FINDINGS[0], "c++"))
            done = subprocess.run(["c++", "-std=c++20", "-fsyntax-only", f"-I{ROOT}", str(source)],
                                  capture_output=True, timeout=300, check=False)
            self.assertEqual(done.returncode, 0, done.stderr.decode())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
