"""Writes docs/study-results.md from studies/results: `python tools/study_results.py [FOLDER …]`.

The study.json of each folder that is given is copied there first."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from vitreous.course.results import Found, Telling, all_results, row

ROOT = Path(__file__).parent.parent
RESULTS, PAGE = ROOT / "studies" / "results", ROOT / "docs" / "study-results.md"
HEAD = """# What the studies found

Written by `tools/study_results.py` from `studies/results`; `make study` runs all studies again.
Numbers are means over the seeds with their 95 % interval, differences are in points.
[How a verdict is made](studies.md#how-the-verdict-is-made).

| study | question | verdict | seeds | CPU minutes |
|---|---|---|---|---|
"""


def main(folders: list[str]) -> None:
    RESULTS.mkdir(exist_ok=True)
    for folder in folders:
        found = json.loads((Path(folder) / "study.json").read_text(encoding="utf-8"))
        written = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        (RESULTS / f"{found['study']}.json").write_text(written, encoding="utf-8")
    PAGE.write_text(page(all_results()), encoding="utf-8")


def page(found: list[Found]) -> str:
    rows = "".join(map(summary, found))
    sections = (f"\n## {each['study']}\n\n{Telling().section(each)}" for each in found)
    return HEAD + rows + "".join(sections)


def summary(found: Found) -> str:
    name = found["study"]
    cells = (f"[{name}](#{name})", found["question"], Telling().verdict(found), found["seeds"])
    return row(*cells, f"{found['cpu_minutes']:.0f}")


if __name__ == "__main__":
    main(sys.argv[1:])
