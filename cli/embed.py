"""Files as C++ string constants: embed.py OUTPUT NAME=FILE..."""
import sys


def main():
    lines = ["// Made by cli/embed.py.", "#pragma once", "", "namespace headroom::cli {", ""]
    for item in sys.argv[2:]:
        name, path = item.split("=", 1)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        assert ')text"' not in text, path
        pieces = [text[i:i + 8000] for i in range(0, len(text), 8000)]
        lines.append(f"inline constexpr const char* {name} =")
        lines.append("\n".join(f'    R"text({piece})text"' for piece in pieces) + ";")
        lines.append("")
    lines.append("}  // namespace headroom::cli")
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
