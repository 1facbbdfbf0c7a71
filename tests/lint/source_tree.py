"""The project's own files, and C++ text without its comments."""

import pathlib
import subprocess

# Folders of the program and library; tests/ and bench/ may include any of them.
ROOMS = ("reference", "bounds", "certify", "fuzz", "cli")

BINARY_SUFFIXES = {".safetensors", ".npy", ".npz", ".png", ".so"}


def project_files(root):
    """All text files of the project, as paths relative to root: what git tracks or would add,
    or, without a git checkout, everything outside build folders."""
    root = pathlib.Path(root)
    if (root / ".git").exists():
        listing = subprocess.run(
            ["git", "-c", "safe.directory=*", "-C", str(root), "ls-files", "-z", "--cached",
             "--others", "--exclude-standard"],
            capture_output=True, check=False)
        if listing.returncode == 0:
            names = {pathlib.Path(name) for name in listing.stdout.decode().split("\0") if name}
            return sorted(name for name in names if is_text_file(root, name))
    names = (path.relative_to(root) for path in root.rglob("*"))
    return sorted(name for name in names
                  if not name.parts[0].startswith(("build", "certificates"))
                  and name.parts[0] != ".git" and is_text_file(root, name))


def is_text_file(root, name):
    return name.suffix not in BINARY_SUFFIXES and (root / name).is_file()


def is_cpp(name):
    return name.suffix in {".h", ".cpp"}


def room_of(name):
    return name.parts[0] if name.parts and name.parts[0] in ROOMS else None


def without_comments(text):
    """C++ text in which comments are blanks; strings and line numbers stay as they are."""
    out = []
    i = 0
    state = "code"
    while i < len(text):
        two = text[i:i + 2]
        if state == "code":
            if two == "//":
                state = "line"
            elif two == "/*":
                state = "block"
            elif text[i] == '"' or (text[i] == "'" and not (i > 0 and text[i - 1].isalnum())):
                state = text[i]  # an apostrophe after a digit separates digits
            if state in ("line", "block"):
                out.append("  ")
                i += 2
                continue
            out.append(text[i])
        elif state == "line":
            if text[i] == "\n":
                state = "code"
            out.append("\n" if text[i] == "\n" else " ")
        elif state == "block":
            if two == "*/":
                state = "code"
                out.append("  ")
                i += 2
                continue
            out.append("\n" if text[i] == "\n" else " ")
        else:  # inside a string or character literal
            out.append(text[i])
            if text[i] == "\\" and i + 1 < len(text):
                out.append(text[i + 1])
                i += 2
                continue
            if text[i] in (state, "\n"):
                state = "code"
        i += 1
    return "".join(out)
