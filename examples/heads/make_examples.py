#!/usr/bin/env python3
"""Cut the bundled example heads out of larger dumps of whole models.

    python3 examples/heads/make_examples.py DUMPS examples/heads

DUMPS holds ropegpt_n1024_bf16 and toydit_t0.5_f16, each a .safetensors file and a .json sidecar.
Tensor words are copied unchanged. What a run needs (scale, mask) goes into the metadata of the
.safetensors file, where it cannot be lost; where the heads come from goes into a sidecar of the
same stem. The output depends on nothing but the input.
"""

import hashlib
import json
import pathlib
import struct
import sys

LICENSE = "Apache-2.0 (as the rest of this repository; trained for it, weights and data are its own)"

# (name of the dump, layer to keep, name of the example, what the heads are)
EXAMPLES = [
    ("ropegpt_n1024_bf16", "layer1", "ropegpt_layer1_bf16",
     "layer 1 of 4 of a 3.7M-parameter causal decoder (RMSNorm, SwiGLU, QKV bias, RoPE): "
     "4 heads, 1024 tokens, d = 64"),
    ("toydit_t0.5_f16", "layer2", "toydit_layer2_f16",
     "layer 2 of 4 of a 3.7M-parameter video diffusion transformer (QK-norm, 3-D RoPE): "
     "2 heads, 1152 tokens, d = 128, noise level 0.5"),
]


def read_safetensors(path):
    """The header (a dict) and the data bytes of a .safetensors file."""
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    return json.loads(raw[8:8 + length]), raw[8 + length:]


def cut(dumps, dump, layer, name, what, out):
    source = dumps / (dump + ".safetensors")
    header, data = read_safetensors(source)
    sidecar = json.loads(source.with_suffix(".json").read_text())

    kept = {"__metadata__": {"scale": repr(sidecar["scale"]),
                             "causal": "true" if sidecar["causal"] else "false"}}
    words = b""
    for tensor in (layer + ".q", layer + ".k", layer + ".v"):
        begin, end = header[tensor]["data_offsets"]
        kept[tensor] = dict(header[tensor], data_offsets=[len(words), len(words) + end - begin])
        words += data[begin:end]
    text = json.dumps(kept, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data begins at a multiple of 8 bytes
    (out / (name + ".safetensors")).write_bytes(struct.pack("<Q", len(text)) + text + words)

    provenance = {
        "model": what,
        "training": sidecar["weights_license"].removeprefix("own work (").removesuffix(")"),
        "input": sidecar["input"],
        "license": LICENSE,
        "cut_from_sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        "maker": "examples/heads/make_examples.py",
    }
    (out / (name + ".json")).write_text(json.dumps(provenance, indent=2) + "\n")


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: make_examples.py DUMPS OUT")
    dumps, out = map(pathlib.Path, sys.argv[1:])
    for dump, layer, name, what in EXAMPLES:
        cut(dumps, dump, layer, name, what, out)


if __name__ == "__main__":
    main()
