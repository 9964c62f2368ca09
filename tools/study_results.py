"""Writes docs/study-results.md from studies/results: `python tools/study_results.py [FOLDER …]`.

The study.json of each folder that is given is copied there first."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "studies" / "results", ROOT / "docs" / "study-results.md"
OUTCOMES = {"holds": "holds", "fails": "**does not hold**", "undecided": "undecided"}
VERDICTS = {"undecided": "undecided at this scale"}
HEAD = """# What the studies found

Written by `tools/study_results.py` from `studies/results`; `make study` runs all studies again.
Numbers are means over the seeds with their 95 % interval, differences are in points.
[How a verdict is made](studies.md#how-the-verdict-is-made).

| study | question | verdict | seeds | CPU minutes |
|---|---|---|---|---|
"""
Found = dict[str, Any]


def main(folders: list[str]) -> None:
    RESULTS.mkdir(exist_ok=True)
    for folder in folders:
        found = json.loads((Path(folder) / "study.json").read_text(encoding="utf-8"))
        written = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        (RESULTS / f"{found['study']}.json").write_text(written, encoding="utf-8")
    PAGE.write_text(page(results()), encoding="utf-8")


def results() -> list[Found]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]


def page(found: list[Found]) -> str:
    rows = "".join(summary(each) for each in found)
    return HEAD + rows + "".join(f"\n{section(each)}" for each in found)


def summary(found: Found) -> str:
    name, verdict = found["study"], VERDICTS.get(found["verdict"], found["verdict"])
    cells = (f"[{name}](#{name})", found["question"], verdict, found["seeds"])
    return row(*cells, f"{found['cpu_minutes']:.0f}")


def section(found: Found) -> str:
    claim, seeds = found["claim"], found["seeds"]
    known = {name: value for name, value in found["baselines"].items() if value is not None}
    beside = ", ".join(f"{name} {100 * value:.1f} %" for name, value in known.items())
    minutes = f"{found['cpu_minutes']:.0f} CPU minutes on {found['machine']}"
    rules = [
        f"- {OUTCOMES[each['outcome']]}: {each['text']} {each['seen']}" for each in found["rules"]
    ]
    parts = [
        f"## {found['study']}",
        f"**{found['question']}** {claim['text']} ({claim['source']})",
        claim["differs"],
        "\n".join(rules),
        table(found),
        f"What knows nothing, on the same images: {beside}." if known else "",
        edges(found),
        found["paper"].get("note", ""),
        *(f"Failed: {what}: {why}" for what, why in found["failures"].items()),
        f"`{found['command']}`: {found['data']}, {seeds} seeds, {minutes}.",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def edges(found: Found) -> str:
    """Variants whose learning rate is the smallest or the largest of those that were tried."""
    names = []
    for point in found["points"]:
        tried = sorted(each["lr"] for each in point["tried"])
        if len(tried) > 2 and point["lr"] in (tried[0], tried[-1]):
            names.append(point["variant"])
    if not names:
        return ""
    listed = ", ".join(dict.fromkeys(names))
    return (
        f"At the edge of the learning rates tried, so that a better one may lie beyond: {listed}."
    )


def table(found: Found) -> str:
    axis, name = found["axis"], found["metric"]
    head = ["variant", *([axis] if axis else []), name.replace("_", " "), "paper", "lr"]
    head += ["MFLOP", "parameters"]
    lines = [row(*head), row(*["---"] * len(head))]
    for point in found["points"]:
        means = {each: value["mean"] for each, value in point["numbers"].items()}
        flops, parameters = means.get("flops"), means.get("parameters")
        lines.append(
            row(
                *(point["variant"], *([text(point["value"])] if axis else [])),
                *(number(point, name), papers(found["paper"], point), text(point["lr"])),
                "" if flops is None else f"{1000 * flops:.2f}",
                "" if parameters is None else f"{parameters:,.0f}",
            )
        )
    return "".join(lines).rstrip()


def row(*cells: Any) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"


def number(point: Found, name: str) -> str:
    found = point["numbers"].get(name)
    if found is None:
        return "–"
    value, limits = f"{100 * found['mean']:.1f} %", found["interval"]
    return value if limits is None else f"{value} ({100 * limits[0]:.1f} to {100 * limits[1]:.1f})"


def papers(paper: Found, point: Found) -> str:
    value = paper["values"].get(point["variant"])
    if isinstance(value, list):
        value = next((y for x, y in value if text(x) == text(point["value"])), None)
    return "" if value is None else f"{value:g} {paper['unit']}".rstrip()


def text(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(map(text, value))
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main(sys.argv[1:])
