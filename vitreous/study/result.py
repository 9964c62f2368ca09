"""What a study has found: a table, the verdict, and what it took."""

from __future__ import annotations

import math
import platform
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

from vitreous import __version__
from vitreous.study.numbers import Numbers, Point, as_mapping
from vitreous.study.spec import Study, text_of
from vitreous.study.verdict import Conclusion, Ruling, concluded, judged

Rows = list[list[str]]


@dataclass(frozen=True)
class StudyResult:
    """A study that was run. `to_dict` is study.json."""

    study: Study
    tier: str
    numbers: Numbers
    failures: dict[str, str]
    """Runs that could not be trained or measured, and why."""
    baselines: dict[str, float]
    """What knows nothing, on the same test images."""
    data: str
    cpu_seconds: float
    machine: str

    @cached_property
    def rulings(self) -> list[Ruling]:
        return judged(self.numbers)

    @property
    def has_learned(self) -> bool:
        """Whether any variant is better than the weakest of what knows nothing."""
        metric, name = self.numbers.metric, self.numbers.metric.key
        known = [value for value in self.baselines.values() if value is not None]
        if not known:
            return True
        weakest = min(known, key=metric.rank)
        means = (point.mean(name) for point in self.numbers.points)
        return any(mean is not None and metric.better(mean, weakest) for mean in means)

    @property
    def conclusion(self) -> Conclusion:
        return concluded(self.rulings) if self.has_learned else "undecided"

    @property
    def metric(self) -> str:
        return self.study.metric or self.numbers.metric.key

    def text(self, point: Point, name: str = "") -> str:
        """`97.2 % (96.1 to 98.3)`"""
        name = name or self.metric
        metric = self.numbers.metric_of(name)
        mean, limits = point.mean(name), point.interval(name, metric.range)
        if mean is None:
            return "–"
        if limits is None or not all(map(math.isfinite, limits)):
            return metric.text(mean)
        low, high = (metric.text(each).removesuffix(" %") for each in limits)
        return f"{metric.text(mean)} ({low} to {high})"

    def table(self) -> tuple[list[str], Rows]:
        """Headings and rows: each variant, at each value of the axis."""
        axis = self.numbers.axis
        headings = ["variant", *([axis.title] if axis else []), self.numbers.metric_of("").name]
        papers = any(self.papers(point) for point in self.numbers.points)
        headings += [*(["paper"] if papers else []), "lr", "GFLOP", "parameters", "runs"]
        rows = []
        for point in self.numbers.points:
            row = [self.study.named(point.variant).title]
            row += [text_of(point.value)] if axis else []
            row += [self.text(point), *([self.papers(point)] if papers else [])]
            row += ["" if point.lr is None else f"{point.lr:g}"]
            flops, parameters = point.mean("flops"), point.mean("parameters")
            row += ["" if flops is None else f"{flops:.3g}"]
            row += ["" if parameters is None else f"{parameters:,.0f}", str(len(point.runs))]
            rows.append(row)
        return headings, rows

    def papers(self, point: Point) -> str:
        """The paper's number, where it has one for this variant (and this value)."""
        value = self.study.paper.values.get(point.variant)
        if isinstance(value, list):
            pairs = {text_of(x): y for x, y in value}
            value = pairs.get(text_of(point.value))
        return "" if value is None else f"{value:g} {self.study.paper.unit}".rstrip()

    @property
    def edges(self) -> list[str]:
        """Variants whose best learning rate is the smallest or the largest that was tried: a
        better one may lie beyond."""
        found = []
        for point in self.numbers.points:
            tried = sorted(point.tried)
            if len(tried) > 2 and point.lr in (tried[0], tried[-1]) and point.variant not in found:
                found.append(point.variant)
        return found

    def to_dict(self) -> dict[str, Any]:
        study = self.study
        return {
            "study": study.name,
            "tier": self.tier,
            "question": study.question,
            "claim": vars(study.claim),
            "paper": vars(study.paper),
            "data": self.data,
            "metric": self.metric,
            "axis": study.axis.name if study.axis else None,
            "seeds": study.seeds,
            "equal": study.equal.what,
            "verdict": self.conclusion,
            "rules": [vars(each) for each in self.rulings],
            "points": [as_mapping(point) for point in self.numbers.points],
            "baselines": self.baselines,
            "failures": self.failures,
            "cpu_minutes": round(self.cpu_seconds / 60, 1),
            "machine": self.machine,
            "version": __version__,
            "command": command(study.name, self.tier),
        }

    def __str__(self) -> str:
        lines = [f"{study_line(self)}"]
        lines += [f"  {each.outcome}: {each.text} {each.seen}" for each in self.rulings]
        if not self.has_learned:
            lines.append("  No variant is better than what knows nothing: train longer.")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """In a notebook: the verdict and the table."""
        headings, rows = self.table()
        cells = [[f"<td>{escape(cell)}</td>" for cell in row] for row in rows]
        body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
        head = "".join(f"<th>{escape(each)}</th>" for each in headings)
        return f"<p>{escape(study_line(self))}</p><table><tr>{head}</tr>{body}</table>"


def command(name: str, tier: str) -> str:
    return f"vitreous study {name}" + ("" if tier == "standard" else f" --tier {tier}")


def study_line(result: StudyResult) -> str:
    words = {"undecided": "undecided at this scale"}
    conclusion = words.get(result.conclusion, result.conclusion)
    return f"{result.study.question} {result.study.claim.source or 'No claim'}: {conclusion}."


def machine_name() -> str:
    """The processor, as the system calls it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            line = next(line for line in file if line.startswith("model name"))
        return line.partition(":")[2].strip()
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
