"""What a result means: what knows nothing, to compare with, and faults that predictions show.

A task has baselines and signs of its own (`tasks/*/verdict.py`). What is to be done about a finding
depends on the run, and is decided where that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from torch import Tensor

from vitreous.data.loader import Batch
from vitreous.wording import counted

Severity = Literal["good", "warn", "bad"]
Remedy = Literal["learn", "longer", "balance", "data", "hold out", "test", "fit", ""]
"""What helps: better weights to start from, or longer training; longer training; balanced classes;
a look at the data; more validation images; images to test on; other settings, for a few images that
were not learnt by heart; or nothing that is known."""
FEW = 5
"""A class with fewer images or objects than this may be missed by chance."""
LISTED = 5
"""Names of classes in one sentence."""
STILL = 0.02
"""A share of how much probabilities could vary, below which they do not."""


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


SAME_FOR_ALL = Finding(
    "bad", "the model gives every image nearly the same probabilities: it does not look", "learn"
)


def variation(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """(n, classes) -> (classes,) each: how far probabilities are from their mean over images, and
    how far they would be with the same mean and each of them 0 or 1."""
    mean = probabilities.mean(dim=0)
    return (probabilities - mean).abs().mean(dim=0), 2 * mean * (1 - mean)


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
    seen = f"{counted(len(many), 'class')} {how}: {', '.join(listed)}{more}"
    return [Finding("warn", seen, "balance")]
