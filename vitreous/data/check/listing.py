"""Problems as lines for people: the gravest first, and of many alike only some."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from vitreous.data.source import Problem

SHOWN = {"leak": 20, "fatal": 20, "note": 3}
"""How many problems that are alike are shown, of each level, the gravest first."""

_PARTICULAR = re.compile(r"'[^']*'|\"[^\"]*\"|\S*[/\\\d]\S*|\S+\.\w+")


def listing(problems: Iterable[Problem]) -> Iterator[tuple[str, str]]:
    """The level and the text of each line. Problems are alike if they differ only in names and
    numbers."""
    groups: dict[str, dict[str, list[Problem]]] = {level: defaultdict(list) for level in SHOWN}
    for problem in problems:
        level = "leak" if problem.leak else "fatal" if problem.fatal else "note"
        groups[level][_PARTICULAR.sub("…", problem.what)].append(problem)
    for level, most in SHOWN.items():
        for alike in groups[level].values():
            shown = alike if len(alike) <= most + 1 else alike[:most]
            for problem in shown:
                yield level, f"{problem.file}: {problem.what}"
            if more := len(alike) - len(shown):
                yield level, f"… and {more:,} more like that"
