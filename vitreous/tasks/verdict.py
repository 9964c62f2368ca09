"""What a result means: what knows nothing, to compare with, and faults that predictions show.

A task has baselines and signs of its own (`tasks/*/verdict.py`). What is to be done about a finding
depends on the run, and is decided where that is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from vitreous.data.loader import Batch

Severity = Literal["good", "warn", "bad"]
Remedy = Literal["learn", "longer", "balance", "data", "hold out", "test", ""]
"""What helps: better weights to start from, or longer training; longer training; balanced classes;
a look at the data; more validation images; images to test on; or nothing that is known."""
FEW = 5
"""A class with fewer images or objects than this may be missed by chance."""
LISTED = 5
"""Names of classes in one sentence."""


@dataclass(frozen=True)
class Verdict:
    """One sentence about a result, and one about what to do next."""

    severity: Severity
    seen: str
    next: str = ""

    def to_dict(self) -> dict[str, str]:
        """Plain data for JSON."""
        return {"severity": self.severity, "seen": self.seen, "next": self.next}


class Finding(NamedTuple):
    """Something that was seen in predictions, before it is known what to do about it."""

    severity: Severity
    seen: str
    remedy: Remedy


class Baseline:
    """Answers that need no training: a model that is no better has learned nothing more.

    It is shown training images with their targets, then answers for other images as the model does,
    and the same metrics measure both.
    """

    name: ClassVar[str]
    copies: ClassVar[bool] = False
    """Whether it looks at the images, and would find those that it was shown. Only then a batch has
    some: small copies, (b, c, h, w) of one size."""

    def learn(self, batch: Batch, targets: Any) -> None:
        raise NotImplementedError

    def answer(self, batch: Batch) -> Any:
        """What the task's `infer` would give."""
        raise NotImplementedError


class Signs:
    """Of faults. It sees all predictions with their targets, as metrics do."""

    def see(self, output: Any, targets: Any) -> None:
        pass

    def findings(self, result: Mapping[str, Any]) -> list[Finding]:
        """After the last batch, with the metrics."""
        return []


def never_predicted(
    missing: Mapping[str, int], what: str, how: str = "never predicted"
) -> list[Finding]:
    """Classes that are never predicted, with how many images or objects (`what`) of them there
    are; those with fewer than FEW do not count."""
    many = {name: count for name, count in missing.items() if count >= FEW}
    if not many:
        return []
    listed = [f"{name} ({count:,} {what})" for name, count in list(many.items())[:LISTED]]
    more = f" and {len(many) - LISTED:,} more" if len(many) > LISTED else ""
    classes = "class" if len(many) == 1 else "classes"
    seen = f"{len(many)} {classes} {how}: {', '.join(listed)}{more}"
    return [Finding("warn", seen, "balance")]


def joined(parts: Sequence[str]) -> str:
    """a, b and c"""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def percent(value: float, sign: bool = True) -> str:
    """With another digit where there is little: 12.3 %, 0.04 %."""
    digits = 1 if value >= 0.01 or not value else 2
    return f"{100 * value:.{digits}f}{' %' if sign else ''}"


def with_interval(value: float, limits: Iterable[float] | None) -> str:
    """98.3 % (95 % interval 96.9 to 99.4)"""
    if limits is None:
        return percent(value)
    low, high = (percent(each, sign=False) for each in limits)
    return f"{percent(value)} (95 % interval {low} to {high})"
