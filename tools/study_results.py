"""Writes docs/study-results.md from the results in studies/results: `python tools/study_results.py`.

With folders of studies as arguments, their study.json files are copied there first."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "studies" / "results", ROOT / "docs" / "study-results.md"
SIGNS = {"holds": "holds", "fails": "**does not hold**", "undecided": "undecided"}
WORDS = {"undecided": "undecided at this scale"}


def main(folders: list[str]) -> None:
    RESULTS.mkdir(exist_ok=True)
    for folder in folders:
        found = json.loads((Path(folder) / "study.json").read_text(encoding="utf-8"))
        text = json.dumps(found, indent=1, ensure_ascii=False)
        (RESULTS / f"{found['study']}.json").write_text(text + "\n", encoding="utf-8")
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]
    PAGE.write_text(page(results), encoding="utf-8")


def page(results: list[dict[str, Any]]) -> str:
    lines = [
        "# What the studies found",
        "",
        "Generated from `studies/results` by `tools/study_results.py`; `make study` runs all studies again. Numbers are means",
        "over the seeds; differences are in points with their 95 % interval. [How a verdict is made](studies.md#how-the-verdict-is-made).",
        "",
        "| study | question | verdict | seeds | CPU minutes |",
        "|---|---|---|---|---|",
    ]
    for each in results:
        verdict = WORDS.get(each["verdict"], each["verdict"])
        lines.append(
            f"| [{each['study']}](#{each['study']}) | {each['question']} | {verdict} | {each['seeds']} | {each['cpu_minutes']:.0f} |"
        )
    for each in results:
        lines += ["", *section(each)]
    return "\n".join(lines) + "\n"


def section(found: dict[str, Any]) -> list[str]:
    claim, paper, name = found["claim"], found["paper"], found["metric"]
    lines = [f"## {found['study']}", "", f"**{found['question']}** {claim['text']} ({claim['source']})", ""]
    lines += [claim["differs"], ""]
    lines += [f"- {SIGNS[rule['outcome']]}: {rule['text']} {rule['seen']}" for rule in found["rules"]]
    axis = found["axis"]
    head = ["variant", *([axis] if axis else []), name.replace("_", " "), "paper", "lr", "MFLOP", "parameters"]
    lines += ["", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for point in found["points"]:
        cells = [point["variant"], *([text(point["value"])] if axis else [])]
        cells += [number(point, name), papers(paper, point), text(point["lr"])]
        flops, parameters = (point["numbers"].get(n, {}).get("mean") for n in ("flops", "parameters"))
        cells += ["" if flops is None else f"{1000 * flops:.2f}"]
        cells += ["" if parameters is None else f"{parameters:,.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    known = {n: v for n, v in found["baselines"].items() if v is not None}
    if known:
        beside = ", ".join(f"{n} {100 * v:.1f} %" for n, v in known.items())
        lines += ["", f"What knows nothing, on the same images: {beside}."]
    if paper.get("note"):
        lines += ["", paper["note"]]
    for what, why in found["failures"].items():
        lines += ["", f"Failed: {what}: {why}"]
    how = f"`{found['command']}`: {found['data']}, {found['seeds']} seeds, {found['cpu_minutes']:.0f} CPU minutes on {found['machine']}."
    return [*lines, "", how]


def number(point: dict[str, Any], name: str) -> str:
    found = point["numbers"].get(name)
    if found is None:
        return "–"
    limits = found["interval"]
    value = f"{100 * found['mean']:.1f} %"
    return value if limits is None else f"{value} ({100 * limits[0]:.1f} to {100 * limits[1]:.1f})"


def papers(paper: dict[str, Any], point: dict[str, Any]) -> str:
    value = paper["values"].get(point["variant"])
    if isinstance(value, list):
        value = next((y for x, y in value if text(x) == text(point["value"])), None)
    return "" if value is None else f"{value:g} {paper['unit']}".rstrip()


def text(value: Any) -> str:
    if value is None:
        return ""
    return "x".join(map(text, value)) if isinstance(value, list) else f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main(sys.argv[1:])
