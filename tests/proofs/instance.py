"""The words of proofs/coq/Instance.v are those of the example head.

    instance.py INSTANCE.v ropegpt_layer1_bf16.safetensors
"""

import json
import pathlib
import re
import struct
import sys


def main(instance, heads):
    text = pathlib.Path(instance).read_text(encoding="utf-8")
    data = pathlib.Path(heads).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    failures = []
    for name in "qkv":
        body = re.search(rf"Definition {name}_words : list \(list Z\) := \[\n(.*?)\]\.\n", text, re.S).group(1)
        found = [[int(word) for word in row.split(";")] for row in re.findall(r"\[(.*?)\]", body + "]", re.S)]
        tensor = header[f"layer1.{name}"]
        channels = tensor["shape"][2]
        start = 8 + length + tensor["data_offsets"][0]
        expected = [list(struct.unpack_from(f"<{channels}H", data, start + 2 * channels * row)) for row in range(6)]
        if tensor["dtype"] != "BF16" or found != expected:
            failures.append(f"{name}: the words differ from the file's")
    print("\n".join(failures) if failures else "6 rows of q, k and v are those of the file")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
