"""Runs the code of the course, and writes what it prints behind it:

python tools/course_outputs.py [N …]
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

from vitreous.course.text import FOLDER, Chapter, chapters


def printed(chapter: Chapter) -> dict[str, str]:
    """What each code block of a chapter prints, run in one namespace as a reader does."""
    names: dict[str, object] = {"__name__": f"chapter_{chapter.number}"}
    found = {}
    for name, code in chapter.code().items():
        with contextlib.redirect_stdout(io.StringIO()) as stream:
            exec(compile(code.text, f"{chapter.stem}: {name}", "exec"), names)
        found[name] = stream.getvalue()
    return found


def with_outputs(text: str, outputs: dict[str, str]) -> str:
    """The English chapter with new outputs."""
    lines, made, name, inside = text.splitlines(), [], "", ""
    for line in lines:
        if not inside and line.startswith("```output"):
            inside = "output"
            while made and not made[-1].strip():
                made.pop()
            continue
        if inside == "output":
            inside = "" if line == "```" else inside
            continue
        made.append(line)
        if line.startswith("```python ") and not inside:
            inside, name = "python", line.split()[1]
        elif line.startswith("```"):
            if inside == "python" and outputs[name].strip():
                made += ["```output", *outputs[name].rstrip().splitlines(), "```"]
            inside = "" if inside else "other"
    return "\n".join(made) + "\n"


def main(numbers: list[str]) -> None:
    for chapter in chapters("en"):
        if numbers and str(chapter.number) not in numbers:
            continue
        path = FOLDER / f"{chapter.stem}.en.md"
        text = path.read_text(encoding="utf-8")
        path.write_text(with_outputs(text, printed(chapter)), encoding="utf-8")
        print(f"{path.relative_to(Path.cwd())}: {len(chapter.code())} code blocks")


if __name__ == "__main__":
    main(sys.argv[1:])
