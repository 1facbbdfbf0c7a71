"""Every head of real models that `clis` certifies is accepted, under every kernel that is covered.

    heads.py HEADROOM HEADROOM_CHECK SHARED_FOLDER_UNLESS_IN_HEADROOM_SHARED

What is certified is accepted (0), what is not is not covered (4). FP32 without flushing has two heads
whose rows lie among subnormal weights: the theorem's bound of the output does not reach them (4).
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

KERNELS = {
    "bf16": ("hopper", "ampere", "ada", "blackwell", "cdna3", "cpu-avx512-bf16"),
    "f16": ("FP16",),
    "f32": ("ieee-fp32",),
}
BEYOND = {"stories260k_f32:layer0.0", "stories260k_f32:layer3.3"}


def main(headroom, check, shared):
    files = sorted(pathlib.Path(os.environ.get("HEADROOM_SHARED", shared)).glob("data/heads/*/*.safetensors"))
    if not files:
        print("no heads: skipped")
        return 77
    failures, accepted, not_covered = [], 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        fp16 = pathlib.Path(scratch, "hopper-fp16-operands.toml")
        fp16.write_text('name = "hopper-fp16-operands"\nmachine = "hopper"\noperand = "fp16"\n', encoding="utf-8")
        for file in files:
            for kernel in KERNELS[file.stem.rsplit("_", 1)[1]]:
                folder = pathlib.Path(scratch, f"{file.stem}-{kernel}")
                subprocess.run([headroom, "certify", file, "--kernel", fp16 if kernel == "FP16" else kernel,
                                "--certificates", folder], capture_output=True, check=False)
                for path in sorted(folder.glob("*.json")):
                    certificate = json.loads(path.read_text(encoding="utf-8"))
                    result = subprocess.run([check, path, file], capture_output=True, text=True, check=False)
                    covered = certificate["verdict"] == "certified" and certificate["head"]["id"] not in BEYOND
                    accepted += result.returncode == 0
                    not_covered += result.returncode == 4
                    if result.returncode != (0 if covered else 4):
                        failures.append(f"{kernel} {path.name}: found exit {result.returncode}: "
                                        f"{(result.stdout + result.stderr).strip()}")
    print("\n".join(failures))
    print(f"{accepted} accepted, {not_covered} not covered, {len(failures)} failures")
    return 1 if failures or accepted < 500 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
