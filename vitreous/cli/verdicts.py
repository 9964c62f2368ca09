"""How a result is printed: never without its interval and what to compare it with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vitreous.terminal import print


def number_text(name: str, result: Mapping[str, Any], digits: int = 4) -> str:
    """0.9833 (0.9694 to 0.9944; k-NN on pixels 0.9861)"""
    limits = result.get("intervals", {}).get(name)
    notes = [] if limits is None else [" to ".join(f"{limit:.{digits}f}" for limit in limits)]
    for baseline, numbers in result.get("baselines", {}).items():
        if numbers.get(name) is not None:
            notes.append(f"{baseline} {numbers[name]:.{digits}f}")
    text = "-" if result[name] is None else f"{result[name]:.{digits}f}"
    return f"{text} ({'; '.join(notes)})" if notes else text


def print_verdicts(result: Mapping[str, Any]) -> None:
    """A line each."""
    for each in result.get("verdicts", ()):
        sentences = filter(None, (each["seen"], each["next"]))
        print(f"{each['severity']:<8} {'; '.join(sentences)}")
