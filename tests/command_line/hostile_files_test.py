#!/usr/bin/env python3
"""What files and disks can do to a run: damaged, endless, blocking or shrinking input, a full disk,
a kill at any moment. Always one line of error and exit code 2, and nothing half-written.

    hostile_files_test.py PROGRAM ROOT      Python 3 standard library only
"""

import contextlib
import ctypes
import json
import math
import os
import pathlib
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

PROGRAM, ROOT = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2])
ROPE = ROOT / "examples/heads/ropegpt_layer1_bf16.safetensors"
CERTIFY = ["--kernel", "hopper"]


def tensors_of(path):
    """Name to (dtype, shape, bytes) of a .safetensors file, and its metadata."""
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    words = data[8 + length:]
    return {name: (entry["dtype"], entry["shape"], words[slice(*entry["data_offsets"])])
            for name, entry in header.items()}, metadata


def safetensors(tensors):
    header, data = {}, b""
    for name, (dtype, shape, words) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(words)]}
        data += words
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def npy(descr, shape, words):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + words


class Hostile(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="headroom-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_program(self, *arguments, **options):
        return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, timeout=300,
                              stdin=subprocess.DEVNULL, check=False, cwd=ROOT, **options)

    def assert_refused(self, done, *parts):
        errors = done.stderr.decode(errors="surrogateescape")
        self.assertEqual(done.returncode, 2, errors)
        self.assertEqual(done.stdout, b"")
        self.assertRegex(errors, r"\Aheadroom: [^\n]*\n\Z")
        for part in parts:
            self.assertIn(str(part), errors)

    def written(self):
        return sorted(path.relative_to(self.folder).as_posix()
                      for path in self.folder.rglob("*") if path.is_file())

    # --- bad input beside good

    def test_one_bad_file_among_good_ones(self):
        good = ROPE.read_bytes()
        one_sided = ROOT / "examples/heads/one_sided_gate_bf16.safetensors"
        bad = {
            "cut": good[:len(good) // 2], "long": good + b"x", "empty": b"",
            "text": b"not tensors at all", "header": good[:20] + b"\xff" + good[21:],
            "huge": b"\xff" * 8 + b"{}", "zip": b"PK\x03\x04" + good[:100],
        }
        out = self.folder / "out"
        for name, data in bad.items():
            path = self.folder / f"{name}.safetensors"
            path.write_bytes(data)
            for files in ([ROPE, path, one_sided], [path, ROPE]):
                done = self.run_program("certify", *files, *CERTIFY, "--mask", "none",
                                        "--certificates", out)
                self.assert_refused(done, path.name)
                self.assertFalse(out.exists(), name)
        done = self.run_program("certify", ROPE, self.folder / "none.npz", *CERTIFY,
                                "--certificates", out)
        self.assert_refused(done, "none.npz", "No such file")
        self.assertFalse(out.exists())

    def test_what_is_no_regular_file(self):
        fifo, folder = self.folder / "pipe.safetensors", self.folder / "folder.npz"
        os.mkfifo(fifo)
        folder.mkdir()
        for path in (fifo, folder, "/dev/zero", "/dev/null", "/dev/stdin", "/proc/self/mem"):
            self.assert_refused(self.run_program("certify", path, *CERTIFY), path)
            self.assert_refused(self.run_program("certify", ROPE, "--kernel", path), path)
        # a sidecar counts as a file that was named
        head = self.folder / "x.safetensors"
        head.write_bytes(ROPE.read_bytes())
        os.mkfifo(self.folder / "x.json")
        self.assert_refused(self.run_program("certify", head, *CERTIFY), "x.json", "is a FIFO")

    def test_outputs_that_cannot_be_written(self):
        plain, folder = self.folder / "plain", self.folder / "folder"
        plain.write_bytes(b"old")
        folder.mkdir()
        reference = ["reference", ROPE, "--format", "fp32", "--rows", "0", "-o"]
        certify = ["certify", ROPE, *CERTIFY, "--certificates"]
        npy = folder / "taken.npy"
        npy.mkdir()
        before = self.written()
        for command, target, says in (
                (certify, plain, "cannot make this folder"),
                (certify, plain / "below", "cannot make this folder"),
                (certify, "/proc/headroom", "cannot make this folder"),
                (certify, "/dev/null", "cannot make this folder"),
                (reference, self.folder / "none" / "o.safetensors", "No such file or directory"),
                (reference, plain / "o.safetensors", "Not a directory"),
                (reference, "/proc/o.safetensors", "o.safetensors"),
                ([*reference[:-1], "--heads", "layer1:0", "-o"], npy, "is no regular file")):
            self.assert_refused(self.run_program(*command, target), target, says)
        # one certificate's name is taken by a folder: that one is missing, none is half there
        out = self.folder / "out"
        self.assertEqual(self.run_program(*certify, out).returncode, 0)
        names = sorted(path.name for path in out.iterdir())
        taken = out / names[-1]
        whole = {name: (out / name).read_bytes() for name in names}
        taken.unlink()
        taken.mkdir()
        self.assert_refused(self.run_program(*certify, out), taken.name, "is no regular file")
        for name in names[:-1]:
            self.assertEqual((out / name).read_bytes(), whole[name])
        shutil.rmtree(out)
        self.assertEqual(self.written(), before)

    def test_a_disk_that_is_read_only(self):
        with small_tmpfs(self.folder / "disk", "48k", read_only=True) as disk:
            if disk is None:
                self.skipTest("cannot mount a tmpfs here")
            for arguments in (["certify", ROPE, *CERTIFY, "--certificates", disk],
                              ["certify", ROPE, *CERTIFY, "--certificates", disk / "out"],
                              ["reference", ROPE, "--format", "fp32", "--rows", "0", "-o",
                               disk / "o.safetensors"]):
                self.assert_refused(self.run_program(*arguments), disk, "Read-only file system")

    def test_many_files_and_many_heads(self):
        """Forty heads of one file, and three hundred files with few descriptors: what is said of a
        head does not depend on what else is there."""
        draw = random.Random(5)
        def triple(heads):
            words = {name: b"".join(struct.pack("<f", draw.uniform(-2, 2))[2:]
                                    for _ in range(heads * 24)) for name in "qkv"}
            return {name: ("BF16", [heads, 6, 4], data) for name, data in words.items()}
        tensors = triple(40)
        forty = self.folder / "forty.safetensors"
        forty.write_bytes(safetensors(tensors))
        together = json.loads(self.run_program("certify", forty, *CERTIFY, "--json").stdout)["heads"]
        self.assertEqual([h["head"]["id"] for h in together], [f"forty:{i}" for i in range(40)])
        paths = []
        for i in range(300):
            path = self.folder / f"f{i:03}.safetensors"
            path.write_bytes(safetensors(
                {name: (dtype, [6, 4], data[i % 40 * 48:(i % 40 + 1) * 48])
                 for name, (dtype, _, data) in tensors.items()}))
            paths.append(path)
        out = self.folder / "out"
        done = self.run_program(
            "certify", *paths, *CERTIFY, "--json", "--certificates", out,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32)))
        self.assertNotEqual(done.returncode, 2, done.stderr)
        alone = json.loads(done.stdout)["heads"]
        self.assertEqual(len(list(out.iterdir())), 300)
        self.assertEqual([h["head"]["id"] for h in alone], [f"f{i:03}:0" for i in range(300)])
        for i, head in enumerate(alone):
            self.assertEqual(head["claims"], together[i % 40]["claims"])
            self.assertEqual(head["head"]["sha256"], together[i % 40]["head"]["sha256"])

    def test_names_of_any_bytes(self):
        name = os.path.join(os.fsencode(self.folder), b"caf\xe9\n\x1b[31m.safetensors")
        with open(name, "wb") as out:
            out.write(ROPE.read_bytes())
        done = subprocess.run([PROGRAM, "certify", name, *CERTIFY, "--json", "--certificates",
                               os.fsencode(self.folder / "out")], capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(json.loads(done.stdout)["heads"]), 4)
        self.assertEqual(len([path for path in self.written() if path.startswith("out/")]), 4)
        done = subprocess.run([PROGRAM, "certify", name, *CERTIFY, "--heads", "none"],
                              capture_output=True, check=False)
        self.assert_refused(done, "\\x0a\\x1b[31m")

    def test_a_file_that_shrinks_while_it_is_read(self):
        rows, channels = 8000, 64
        words = random.Random(1).randbytes(2 * rows * channels)
        words = bytes(byte & 0xBF if i % 2 else byte for i, byte in enumerate(words))  # below 2
        path, output = self.folder / "x.safetensors", self.folder / "o.safetensors"
        whole = safetensors({name: ("BF16", [rows, channels], words) for name in "qkv"})
        path.write_bytes(whole)
        command = ["reference", path, "--format", "fp32", "-o", output]
        begin = time.monotonic()
        self.assertEqual(self.run_program(*command).returncode, 0)
        takes = time.monotonic() - begin
        for share in (0.1, 0.2, 0.4):  # early enough on a machine that gets faster meanwhile
            path.write_bytes(whole)
            output.unlink(missing_ok=True)
            with subprocess.Popen([PROGRAM, *map(str, command)], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE) as running:
                time.sleep(share * takes)
                os.truncate(path, 10000)
                out, errors = running.communicate(timeout=300)
            done = subprocess.CompletedProcess([], running.returncode, out, errors)
            self.assert_refused(done, path)
            self.assertEqual(self.written(), ["x.safetensors"])

    # --- the same heads in every file

    def test_archives_say_what_files_say(self):
        tensors, metadata = tensors_of(ROPE)
        expected = json.loads(self.run_program("certify", ROPE, *CERTIFY, "--json").stdout)
        for method, name in ((zipfile.ZIP_STORED, "stored"), (zipfile.ZIP_DEFLATED, "deflated")):
            path = self.folder / f"{name}.npz"
            with zipfile.ZipFile(path, "w", method) as archive:
                for tensor, (_, shape, words) in tensors.items():
                    archive.writestr(tensor + ".npy", npy("|V2", shape, words))
            path.with_suffix(".json").write_text(json.dumps(metadata))
            self.assert_refused(self.run_program("certify", path, *CERTIFY), "--npy-v2 bf16")
            done = self.run_program("certify", path, *CERTIFY, "--json", "--npy-v2", "bf16")
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(done.stdout)
            for one, other in zip(found["heads"], expected["heads"], strict=True):
                self.assertEqual(one["claims"], other["claims"])
                self.assertEqual(one["head"]["sha256"], other["head"]["sha256"])
                self.assertEqual(len(one["warnings"]), 3)
        self.assert_refused(self.run_program("certify", ROPE, *CERTIFY, "--npy-v2", "fp16"),
                            "--npy-v2", "bf16")

    def test_deflated_members_whose_end_fills_the_buffer(self):
        """Output may be left when all input is used: sizes around the inflater's buffer."""
        q = npy("<f4", (2, 2), struct.pack("<4f", 1, 1, 1, 1))
        for size in [n * (1 << 18) + d for n in (1, 2) for d in range(-144, 16, 16)]:
            path = self.folder / "z.npz"
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for name in "qkv":
                    archive.writestr(name + ".npy", q)
                archive.writestr("other.npy", npy("<f4", (size // 4,), bytes(size // 4 * 4)))
            done = self.run_program("certify", path, "--kernel", "ieee-fp32")
            self.assertEqual(done.returncode, 0, (size, done.stderr))

    def test_sidecars_that_cannot_be_followed(self):
        heads = self.folder / "x.safetensors"
        heads.write_bytes(ROPE.read_bytes())
        for target in ("x.json", "nowhere.json"):
            (self.folder / "x.json").symlink_to(target)
            self.assert_refused(self.run_program("certify", heads, *CERTIFY), "x.json")
            (self.folder / "x.json").unlink()

    def test_masks_are_numbers(self):
        mask = [1.0] * 16 + [math.nan] * 16
        heads = self.folder / "m.safetensors"
        ones = struct.pack("<32f", *([1.0] * 32))
        heads.write_bytes(safetensors({"q": ("F32", [16, 2], ones), "k": ("F32", [16, 2], ones),
                                       "v": ("F32", [16, 2], ones),
                                       "keep": ("F32", [1, 16],
                                                struct.pack("<16f", *mask[8:24]))}))
        self.assert_refused(self.run_program("certify", heads, "--kernel", "ieee-fp32",
                                             "--mask-tensor", "keep"), "keep", "NaN")

    def test_eight_bit_heads(self):
        path = self.folder / "x.safetensors"
        ones = {"F8_E4M3": b"\x38", "F8_E5M2": b"\x3c"}
        for dtype, one in ones.items():
            path.write_bytes(safetensors({name: (dtype, [3, 4], one * 12) for name in "qkv"}))
            output = self.folder / "o.safetensors"
            done = self.run_program("reference", path, "--format", "fp32", "--scale", "1", "-o",
                                    output)
            self.assertEqual(done.returncode, 0, done.stderr)
            tensors, _ = tensors_of(output)
            self.assertEqual(tensors["o"][2], struct.pack("<12f", *[1.0] * 12))
            # the log of three equal weights e^4: 4 + ln 3
            self.assertEqual(tensors["lse"][2], struct.pack("<3f", *[5.09861228866811] * 3))
            self.assert_refused(self.run_program("certify", path, *CERTIFY), "--cast rne")
            done = self.run_program("certify", path, *CERTIFY, "--cast", "rne")
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_simulate_replaces_no_input(self):
        """Neither the heads, nor their sidecar's link, nor an array that an option names."""
        path = self.folder / "h.safetensors"
        words = {name: ("F32", [3, 4], bytes(48)) for name in "qkv"}
        path.write_bytes(safetensors(words))
        before = path.read_bytes()
        common = ["--kernel", "ieee-fp32", "--stabilizer", "online-fa2"]
        self.assert_refused(self.run_program("simulate", path, *common, "-o", path), "is the input")
        arrays = [self.folder / f"{name}.npy" for name in ("q", "k", "v", "bias")]
        for array in arrays[:3]:
            array.write_bytes(npy("<f4", (3, 4), bytes(48)))
        arrays[3].write_bytes(npy("<f4", (3, 3), bytes(36)))
        self.assert_refused(self.run_program("simulate", *arrays[:3], *common, "--bias", arrays[3],
                                             "-o", arrays[3]), "is the input")
        lse = self.folder / "o.lse.npy"
        arrays[0].rename(lse)
        self.assert_refused(self.run_program("simulate", lse, *arrays[1:3], *common, "-o",
                                             self.folder / "o.npy"), "is the input")
        self.assertEqual((path.read_bytes(), (self.folder / "o.npy").exists()), (before, False))

    def test_tensors_that_options_name(self):
        """Scores 0, two keys of three visible and a sink of 0: LSE is ln 3. What no option names is
        warned of."""
        path, out = self.folder / "h.safetensors", self.folder / "o.safetensors"
        path.write_bytes(safetensors({
            **{name: ("F32", [1, 3, 4], bytes(48)) for name in "qkv"},
            "mask": ("BOOL", [3, 3], bytes([1, 0, 1, 1, 1, 0, 0, 1, 1])),
            "sink": ("F32", [1], bytes(4))}))
        arguments = ["reference", str(path), "--format", "fp32", "-o", str(out)]
        done = self.run_program(*arguments, "--mask-tensor", "mask", "--sink", "sink")
        self.assertEqual((done.returncode, b"warning" in done.stdout), (0, False), done.stdout)
        words = tensors_of(out)[0]["lse"][2]
        self.assertEqual(words, struct.pack("<3f", *[math.log(3)] * 3))
        done = self.run_program(*arguments, "--sink", "sink")
        self.assertIn(b"warning: tensor 'mask' is not read", done.stdout)
        self.assertNotIn(b"tensor 'sink' is not read", done.stdout)

    def test_locale(self):
        plain = self.run_program("certify", ROPE, *CERTIFY, "--claims", "--eps", "0.001")
        for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "tr_TR.UTF-8"):
            localised = self.run_program("certify", ROPE, *CERTIFY, "--claims", "--eps", "0.001",
                                         env={**os.environ, "LC_ALL": name, "LANG": name})
            self.assertEqual(localised.stdout, plain.stdout)
            self.assertEqual(localised.returncode, plain.returncode)

    # --- disks that fill up, and kills

    def full_disk(self, arguments, before):
        """Runs with files limited in size, which stands in for a full disk; on a small tmpfs too
        where one can be mounted."""
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
        done = self.run_program(*arguments, preexec_fn=limit)
        self.assert_refused(done, "File too large")
        self.assertEqual(self.written(), before)

    def test_full_disk(self):
        old = self.folder / "o.npy"
        old.write_bytes(b"old")
        before = self.written()
        self.full_disk(["reference", ROPE, "--format", "fp32", "--rows", "0-63", "--heads",
                        "layer1:0", "-o", old], before)
        self.full_disk(["reference", ROPE, "--format", "fp32", "--rows", "0-63", "-o",
                        self.folder / "o.safetensors"], before)
        self.assertEqual(old.read_bytes(), b"old")
        self.full_disk(["certify", ROPE, *CERTIFY, "--certificates", self.folder / "out"], before)

    def test_full_tmpfs(self):
        with small_tmpfs(self.folder / "disk", "48k") as disk:
            if disk is None:
                self.skipTest("cannot mount a tmpfs here")
            out = disk / "certificates"
            # the first certificates fit, the last do not: each is whole or not there
            done = self.run_program("certify", ROPE, *CERTIFY, "--certificates", out)
            self.assert_refused(done, "No space left on device")
            names = sorted(path.name for path in out.iterdir())
            self.assertLess(len(names), 4)
            for name in names:
                self.assertTrue(name.endswith(".json"))
                json.loads((out / name).read_text())
            shutil.rmtree(out)
            done = self.run_program("reference", ROPE, "--format", "fp32", "--rows", "0-255",
                                    "--heads", "layer1:0", "-o", disk / "o.npy")
            self.assert_refused(done, "No space left on device")
            self.assertEqual(list(disk.iterdir()), [])

    def test_kill_at_any_moment(self):
        nameless = has_nameless_files(self.folder)
        output, out = self.folder / "o.safetensors", self.folder / "out"
        draw = random.Random(7)
        for arguments in (["reference", ROPE, "--format", "fp32", "--rows", "0-15", "-o", output],
                          ["certify", ROPE, *CERTIFY, "--certificates", out]):
            begin = time.monotonic()
            self.assertEqual(self.run_program(*arguments).returncode, 0)
            takes = time.monotonic() - begin
            whole = {name: (self.folder / name).read_bytes() for name in self.written()}
            output.unlink(missing_ok=True)  # the first runs write anew, the later ones replace
            shutil.rmtree(out, ignore_errors=True)
            for _ in range(8):
                with subprocess.Popen([PROGRAM, *map(str, arguments)], cwd=ROOT,
                                      stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL) as running:
                    time.sleep(draw.uniform(0.5, 1.05) * takes)
                    running.send_signal(signal.SIGKILL)
                for name in self.written():
                    path = self.folder / name
                    if path.name.startswith(".headroom-"):  # on its way to its name, and whole
                        self.assertIn(path.read_bytes() if nameless else None,
                                      [*whole.values(), None])
                    else:
                        self.assertEqual(path.read_bytes(), whole.get(name), name)
            output.unlink(missing_ok=True)
            shutil.rmtree(out, ignore_errors=True)


def has_nameless_files(folder):
    try:
        os.close(os.open(folder, os.O_WRONLY | os.O_TMPFILE, 0o600))
        return True
    except OSError:
        return False


@contextlib.contextmanager
def small_tmpfs(folder, size, read_only=False):
    """A mounted tmpfs, or None where that is not allowed."""
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    mounted = libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", int(read_only),  # MS_RDONLY: 1
                         f"size={size}".encode()) == 0
    try:
        yield folder if mounted else None
    finally:
        if mounted:
            libc.umount2(os.fsencode(folder), 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
